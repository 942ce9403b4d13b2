/* SPDX-License-Identifier: MIT
 *
 * A driver without a GPU for tests: memory is host memory, kernels are C functions found by name, time is a counter. It
 * does at once what a stream is given, and can be made to fail, to fault and to hang.
 */
#ifndef STITCH_TESTS_FAKE_DRIVER_H
#define STITCH_TESTS_FAKE_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* params as cuLaunchKernel gets them. */
typedef void (*fake_kernel_fn)(void **params);

typedef struct fake_kernel {
    const char *name;
    size_t param_count;
    const size_t *sizes; /* bytes of each parameter */
    fake_kernel_fn fn;
    double us; /* how long it takes */
    int launches;
} fake_kernel;

typedef struct fake_driver {
    fake_kernel *kernels;
    size_t kernel_count;
    double clock_us;
    CUresult fault;        /* sticky: what every call returns from now on */
    int64_t busy_until_ns; /* monotonic clock: streams are not ready before */
    int blocked_calls;     /* calls that would have waited for a busy device */
    bool reaches_host;     /* CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS */
    long allocations_left; /* device allocations that succeed; negative: all */
    int live;              /* allocations, streams, events, modules and graphs that exist */
    char log[4096];        /* a letter for each kernel that ran since it was last emptied: the kernel's first */
    bool log_flushes;      /* and 'F' for a fill of at least flush_bytes */
    size_t flush_bytes;
} fake_driver;

extern fake_driver fake; /* threads of one test share it */

void *fake_get_proc(const char *symbol, void *userdata);

#endif
