/* SPDX-License-Identifier: MIT
 *
 * Hardware counters of the kernels of a region, through CUPTI's range profiler: each kernel is one range. For as many
 * passes as the metrics need, either the caller repeats the whole region, or each kernel is replayed with its memory
 * put back in between, which takes ten times as long. Kernels run one after the other and in the stream's own form:
 * what is launched as a graph is not seen. Clocks and caches are left as they are.
 *
 * An object is used by one thread at a time. One collection runs in a process, and none beside a trace (exclusive.h).
 */
#ifndef STITCH_LIB_PROFILE_COUNTERS_H
#define STITCH_LIB_PROFILE_COUNTERS_H

#include "cuda/cuda.h"
#include "cuda/cupti.h"
#include "profile/facts.h"

typedef struct stitch__counters stitch__counters;

typedef struct stitch__counters_options {
    int set;                    /* STITCH__METRIC_CHEAP or _FULL (which contains the cheap ones) */
    const char *const *extra;   /* CUPTI's names ("dram__bytes.sum.per_second"), collected besides; not kept */
    size_t extra_count;         /* at most STITCH__FACTS_EXTRA */
    size_t max_kernels;         /* launches, one at least. Those that come after are not measured; room takes time */
    bool repeats;               /* the caller repeats the region (stitch__counters_again()) */
    const bool *wanted;         /* max_kernels of them: launches whose values are read, which takes time; NULL: all */
    const stitch__scope *scope; /* of waits for the device, or NULL; outlives the object */
} stitch__counters_options;

/* Prepares: opens CUPTI's host part, checks the metrics against what the chip offers, and where the device is a part of
 * one, against what that offers (metrics that are not are left out and named by stitch__counters_missing(), which may
 * name more after start()), plans the passes, or takes the plan of an earlier collection, which the context keeps.
 * Switches nothing on: it may be called while a trace runs. Errors that mean "go on without": STITCH_E_BUSY (another
 * tool, another process), STITCH_E_UNSUPPORTED (not allowed, not offered, simulated), STITCH_E_NO_LIBRARY,
 * STITCH_E_LIBRARY; their messages say what would help. STITCH_E_INVALID: options. */
int stitch__counters_open(stitch_context *ctx, stitch__device *dev, const stitch__cupti *cupti,
                          const stitch__counters_options *options, stitch__counters **out, stitch_error **err);
/* Between these two every kernel that the device's context launches is measured. start() has open()'s errors and drops
 * the values of an earlier collection; after a failure the object may start again. stop() waits for the device,
 * switches everything off, whatever it returns, and meanwhile reads the values, on a thread that has ended when it
 * returns; on failure there are no values. Where the device does not come to rest within a second after a failure,
 * CUPTI is left (stitch__exclusive_leave()) instead. */
int stitch__counters_start(stitch__counters *c, stitch_error **err);
int stitch__counters_stop(stitch__counters *c, stitch_error **err);
/* After each run of the region, before stop(). *more: it has to be run once more, with the same launches; always false
 * where kernels are replayed. Waits for the device. After a failure stop() or close() ends the collection. */
int stitch__counters_again(stitch__counters *c, bool *more, stitch_error **err);
/* Once in each run of the region: launches that come after it are not measured, which makes them faster. Waits for the
 * device. */
int stitch__counters_pause(stitch__counters *c, stitch_error **err);
/* Launches that were measured, in their order, and those that were not because of max_kernels, as far as CUPTI tells
 * (that of CUDA 13.0 does not). */
size_t stitch__counters_count(const stitch__counters *c);
size_t stitch__counters_dropped(const stitch__counters *c);
/* The values of a launch: STITCH__METRICS of them, and those of options.extra in their order (`extra` may be NULL); NAN
 * where not known, or not wanted. */
void stitch__counters_get(const stitch__counters *c, size_t launch, double *metrics, double *extra);
/* Of the plan; start() may need another, where CUPTI refuses this one. */
size_t stitch__counters_passes(const stitch__counters *c);
/* Keys of the set and extra names that this device does not offer, joined by ", "; "" if none. */
const char *stitch__counters_missing(const stitch__counters *c);
/* Ends a collection that runs, too, as stop() does. */
void stitch__counters_close(stitch__counters *c);

#endif
