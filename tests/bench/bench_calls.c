/* SPDX-License-Identifier: MIT
 *
 * Calls a function with stitch_executor_run's signature in a loop, for bench_python.py: what C pays for the same runs,
 * in the same process.
 */
#include <time.h>

#include <stitch/stitch.h>

typedef int (*run_fn)(void *x, void *stream, void **err);

__attribute__((visibility("default"))) double bench_calls(run_fn run, void *x, void *stream, int count, int *status);

/* Microseconds a call. The first failure ends it, and is in *status. */
double bench_calls(run_fn run, void *x, void *stream, int count, int *status)
{
    struct timespec from, to;
    void *err = NULL;
    *status = STITCH_OK;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < count && !*status; i++)
        *status = run(x, stream, &err);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) / count;
}
