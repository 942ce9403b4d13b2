/* SPDX-License-Identifier: MIT
 *
 * Values of launches out of the decoded counters of a collection. That is arithmetic of CUPTI's host part, which the
 * device has nothing to do with: it is done on a thread of its own while the caller switches the profiler off.
 */
#ifndef STITCH_LIB_PROFILE_READOUT_H
#define STITCH_LIB_PROFILE_READOUT_H

#include <pthread.h>

#include "profile/metric_plan.h"

/* A row of values has the plan's metrics and extra ones. All zero: none, and may be ended. */
typedef struct stitch__readout {
    stitch__metric_plan *plan;
    uint8_t *data;
    size_t data_size;
    const bool *wanted;
    size_t count;                        /* launches */
    size_t dropped;                      /* ranges beyond the limit */
    struct stitch__readout_range *order; /* of their ranges */
    double *values;                      /* a row for each launch */
    /* The reading. */
    pthread_t thread;
    bool owns, apart;
    int rc;
    stitch_error *why;
} stitch__readout;

/* Finds the ranges and makes room for their values. `data` is the caller's until begin(); `plan`, and `wanted` (`most`
 * of them: launches whose values are read; NULL: all), until end(). */
int stitch__readout_open(stitch__readout *r, stitch__metric_plan *plan, uint8_t *data, size_t data_size, size_t most,
                         const bool *wanted, stitch_error **err);
/* Takes the data over and begins to read it; the plan is in use until end(). Where there is no thread to be had, all is
 * read before it returns. */
void stitch__readout_begin(stitch__readout *r);
/* Waits until all is read, and frees what was needed for that. The values are the caller's then; after a failure, of
 * open() too, there are none. */
int stitch__readout_end(stitch__readout *r, stitch_error **err);

#endif
