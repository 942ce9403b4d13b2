/* SPDX-License-Identifier: MIT
 *
 * What the facts mean: which limit a kernel and the whole run are at, how far from it, and what to do, most gain first.
 * Pure functions of the facts. verdict.c derives figures and says what bounds what; rules.def is the table of rules
 * that a GPU engineer reads and extends; advice.c evaluates it; advice_text.c and advice_json.c print.
 */
#ifndef STITCH_LIB_PROFILE_ADVICE_H
#define STITCH_LIB_PROFILE_ADVICE_H

#include "profile/facts.h"

/* What bounds a kernel, or the run. X(NAME, "word") */
#define STITCH__BOUND_CLASS_LIST(X)                                                                                    \
    X(UNKNOWN, "unknown")                                                                                              \
    X(MEMORY, "memory")   /* at or near the memory's ceiling */                                                        \
    X(COMPUTE, "compute") /* at or near the ceiling of a unit that computes */                                         \
    X(LATENCY, "latency") /* far from both: warps wait */                                                              \
    X(LAUNCH, "launch")   /* of a run: the device waits for launches; of a kernel: too short or too small a grid */    \
    X(COPY, "copy")       /* of a run: copies between host and device take the time */                                 \
    X(HOST, "host")       /* of a run: the device waits for the host */

typedef enum stitch__bound_class {
#define X(name, word) STITCH__BOUND_##name,
    STITCH__BOUND_CLASS_LIST(X)
#undef X
        STITCH__BOUND_CLASSES
} stitch__bound_class;

const char *stitch__bound_class_name(int bound);

typedef struct stitch__verdict {
    int bound;           /* stitch__bound_class */
    double limit_us;     /* the time that the ceiling which bounds it allows; 0: not known */
    double reached;      /* limit_us / time, 0 to 1; 0: not known */
    double intensity;    /* operations per byte of DRAM; 0: not known */
    double gb_s, tflops; /* achieved; 0: not known */
    const char *because; /* one clause with its figures: "DRAM at 91 % of 4.1 TB/s" */
} stitch__verdict;

typedef struct stitch__advice {
    const char *rule; /* id: "uncoalesced" */
    int32_t kernel;   /* index into the facts' kernels; -1: the run as a whole */
    int32_t step;     /* -1: none */
    const char *file; /* "" if no line is meant */
    uint32_t line;
    const char *source;   /* text of that line; "" */
    const char *problem;  /* one sentence: what is the matter */
    const char *evidence; /* figures that show it */
    const char *action;   /* what to do */
    double gain_us;       /* what a run can gain at the most by the figures; 0: not known */
    double gain_share;    /* of the run's time, 0 to 1 */
} stitch__advice;

typedef struct stitch__advices {
    stitch__arena arena;
    stitch__verdict run;
    size_t kernel_count;
    stitch__verdict *kernels; /* one a kernel of the facts */
    size_t count;
    stitch__advice *list; /* most gain first */
} stitch__advices;

/* 0 or STITCH_E_NOMEM. The strings are the result's own: it may outlive the facts. */
int stitch__advise(const stitch_context *ctx, const stitch__facts *f, stitch__advices *out);
void stitch__advices_free(stitch__advices *a);

/* The decisive fact first, then kernels, then advice, at most max_bytes (0: no limit). For people and for models. */
void stitch__advice_write_text(const stitch__facts *f, const stitch__advices *a, size_t max_bytes, stitch__buf *out);
/* The verdicts and the list as one JSON object (docs/profile.md). 0 or STITCH_E_NOMEM. */
int stitch__advice_write_json(const stitch__facts *f, const stitch__advices *a, stitch__buf *out);

#endif
