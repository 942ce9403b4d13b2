/* SPDX-License-Identifier: MIT
 *
 * Observes a region of work with everything that CUPTI offers here, one thing after the other, and leaves what was seen
 * in facts: a timeline of undisturbed runs, counters of each kernel, samples by source line. What cannot be had is
 * named in the facts and is nobody's failure.
 */
#ifndef STITCH_LIB_PROFILE_COLLECT_H
#define STITCH_LIB_PROFILE_COLLECT_H

#include "profile/facts.h"
#include "profile/profile.h"
#include "profile/sampling.h"
#include "program/pause.h"

enum {
    STITCH__PART_TIMELINE = 1,
    STITCH__PART_COUNTERS = 2, /* needs the timeline: launches are told apart by it */
    STITCH__PART_SAMPLES = 4,
    STITCH__PARTS = 7,
};

typedef struct stitch__collect_options {
    uint32_t parts;           /* STITCH__PART_* */
    int32_t set;              /* STITCH__METRIC_CHEAP or STITCH__METRIC_FULL */
    const char *const *extra; /* CUPTI's names of more metrics */
    size_t extra_count;       /* at most STITCH__FACTS_EXTRA */
} stitch__collect_options;

/* Both callbacks return 0, or anything else to end the collection: stitch__collect() then returns that value. */
typedef struct stitch__region {
    /* What every run needs before it and nobody wants to see: cleared states, an empty L2. Waits. May be NULL. */
    int (*before)(void *userdata);
    /* One run, the same work each time; it has ended on return. plain: as launches on streams, no graph, and with this
     * break (or NULL) if it can: the device has done what came before. */
    int (*run)(void *userdata, bool plain, const stitch__pause *pause);
    void *userdata;
    /* Of a program: what a run launches (program.c), so that records get their steps. */
    const stitch__expected *expected;
    size_t expected_count;
    /* For lines of source. */
    const stitch__sampled_module *modules;
    size_t module_count;
    uint32_t trace_flags; /* STITCH_TRACE_NO_* */
} stitch__region;

/* Adds to facts that hold no kernels yet. The device's context is current. Returns what a callback returned if that
 * was not 0, STITCH_E_NOMEM, STITCH_E_CANCELLED, STITCH_E_TIMEOUT or STITCH_E_FAULT, or STITCH_OK. */
int stitch__collect(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope, const stitch__region *region,
                    const stitch__collect_options *options, stitch__facts *f, stitch_error **err);

#endif
