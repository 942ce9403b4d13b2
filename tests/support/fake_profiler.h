/* SPDX-License-Identifier: MIT
 *
 * The profiling half of a CUPTI without a GPU, beside fake_cupti.h: a host object, a range profiler, and launches that
 * a test makes. Every function can be made to fail; what is called out of order or with a wrong struct fails by itself.
 */
#ifndef STITCH_TESTS_FAKE_PROFILER_H
#define STITCH_TESTS_FAKE_PROFILER_H

#include <stdatomic.h>

#include "fake_cupti.h"

enum fake_profiler_function {
#define X(need, member, symbol, params) FAKE_PROFILER_##member,
#include "cuda/cupti_profiler_functions.def"
#undef X
    FAKE_PROFILER_FUNCTIONS
};

typedef struct fake_profiler {
    int fail[FAKE_PROFILER_FUNCTIONS]; /* what a function returns instead of doing its work; 0: it works */
    int fail_after;                    /* calls of a failing function that work first */
    int calls[FAKE_PROFILER_FUNCTIONS];
    bool absent[FAKE_PROFILER_FUNCTIONS]; /* the library does not export it */
    const char *chip;                     /* that the device has; NULL: it has no name */
    size_t availability;                  /* bytes of the image */
    int level[7];                         /* supported, architecture, sli, vgpu, confidential, mining, wsl */
    const char *without;                  /* names with this in them are not known */
    const char *uncollectable;            /* names with this in them are known, and refused */
    const char *unavailable;              /* names with this in them the chip has and the device has not */
    const char *refused;                  /* names with this in them no profiler takes, though nothing says so before */
    const char *unevaluable;              /* names with this in them have no value */
    const char *infinite;                 /* names with this in them are infinite */
    bool backwards;                       /* ranges come last first */
    const char *range_name;               /* of every range; NULL: its number */
    size_t extra_ranges;                  /* more than there were asked for */
    bool incomplete;                      /* stop says that passes are missing */
    bool repeats;                         /* the caller is to repeat its work; else kernels are replayed */
    size_t passes;                        /* starts and stops until all is complete; 0: one */
    bool meets;                           /* evaluating and disabling wait until both have been called */
    /* What there is. */
    int hosts, profilers;
    bool started;
    bool sized;                           /* the profiler has been asked how much room the data need */
    size_t launches, dropped, max_ranges; /* launches: of the pass that had most */
    size_t now, stops;                    /* launches of this pass; passes so far */
    uint8_t *data;
    atomic_bool evaluating, disabling; /* have been called */
    atomic_int missed;                 /* times that one waited for the other in vain */
    bool takes_signals;                /* the thread that evaluated last */
} fake_profiler;

extern fake_profiler fake_profiler_state;

void fake_profiler_reset(void); /* and fake_cupti_reset() */
void *fake_profiler_get_proc(const char *symbol, void *userdata);
/* Kernels that are launched now. */
void fake_profiler_launch(size_t count);
/* The value that a metric has for a launch. */
double fake_profiler_value(const char *metric, size_t launch);

#endif
