/* SPDX-License-Identifier: MIT
 *
 * The half of hardware counters that needs no GPU: which metrics a chip offers, how its counters are set up for them,
 * in how many passes, and what the raw counters mean. counters.c has the other half.
 */
#ifndef STITCH_LIB_PROFILE_METRIC_PLAN_H
#define STITCH_LIB_PROFILE_METRIC_PLAN_H

#include "cuda/cupti.h"
#include "profile/facts.h"

enum { STITCH__METRIC_TERMS = 4 };

/* A metric of metrics.def as a sum of CUPTI's, or nothing (count 0). */
typedef struct stitch__metric_sum {
    size_t count;
    size_t name[STITCH__METRIC_TERMS]; /* index into the plan's names */
    bool minus[STITCH__METRIC_TERMS];
} stitch__metric_sum;

/* All zero: none, and may be freed. */
typedef struct stitch__metric_plan {
    const stitch_context *ctx;
    const stitch__cupti *cupti;
    stitch__arena arena;
    const char *chip;
    const uint8_t *availability; /* the caller's */
    bool plain;                  /* nothing that is for the full set alone */
    void *host;                  /* CUPTI's object */
    size_t name_count;
    const char **names;   /* CUPTI's, each once */
    const char **ordered; /* scratch: the same */
    stitch__metric_sum metrics[STITCH__METRICS];
    size_t extra_count;
    size_t extra[STITCH__FACTS_EXTRA]; /* index into names; SIZE_MAX: not offered */
    size_t config_size, passes;
    uint8_t *config;     /* stitch_free() */
    const char *missing; /* keys and names of what the chip does not offer, joined by ", " */
    double *values;      /* scratch: one a name */
    bool *refused;       /* scratch: metrics.def's names and extra ones that CUPTI knows and cannot collect */
    const char **known;  /* their names */
    size_t known_count;
} stitch__metric_plan;

/* `chip`: as cuptiDeviceGetChipName says it ("GH100"). `availability`: the device's image, which the plan goes on
 * using, or NULL: everything that the chip has. `set`: STITCH__METRIC_CHEAP or _FULL. STITCH_E_UNSUPPORTED: this CUPTI
 * does not know the chip, or it has none of the metrics. stitch__cupti_open_profiler() has been called. */
int stitch__metric_plan_make(const stitch_context *ctx, const stitch__cupti *cupti, const char *chip,
                             const uint8_t *availability, int set, const char *const *extra, size_t extra_count,
                             stitch__metric_plan *out, stitch_error **err);
/* The same without what metrics.def has for the full set alone. */
int stitch__metric_plan_make_plain(const stitch_context *ctx, const stitch__cupti *cupti, const char *chip,
                                   const uint8_t *availability, int set, const char *const *extra, size_t extra_count,
                                   stitch__metric_plan *out, stitch_error **err);
/* Values of one range of decoded counter data: STITCH__METRICS of them and the extra ones, NAN where not known. Fails
 * where CUPTI gives none at all. */
int stitch__metric_plan_evaluate(stitch__metric_plan *plan, const uint8_t *data, size_t data_size, size_t range,
                                 double *metrics, double *extra, stitch_error **err);
void stitch__metric_plan_free(stitch__metric_plan *plan);

/* Plans that a context keeps (metric_plans.c). take() finds one for a set, without metrics by name, of a whole device,
 * and hands it over. keep() takes a plan over that worked, and frees it where it is none of these or has no place.
 * forget() frees what is kept, as the context's end does. From any thread. */
bool stitch__metric_plan_take(stitch_context *ctx, const stitch__cupti *cupti, const char *chip, int set,
                              stitch__metric_plan *out);
void stitch__metric_plan_keep(stitch_context *ctx, int set, stitch__metric_plan *plan);
void stitch__metric_plans_forget(stitch_context *ctx);

#endif
