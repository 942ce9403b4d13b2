/* SPDX-License-Identifier: MIT
 *
 * What the simulated driver offers beyond the CUDA Driver API. The functions are reached like all others, by name
 * through stitch__sim_get_proc() or dlsym() on libstitch-sim.so; a real driver has none of them:
 *
 *   "stitchSimSetOptions"     stitch__sim_set_options_fn
 *   "stitchSimGetOptions"     stitch__sim_get_options_fn
 *   "stitchSimTakeReports"    stitch__sim_take_reports_fn
 *   "stitchSimFreeReports"    stitch__sim_free_reports_fn
 *   "stitchSimNameAllocation" stitch__sim_name_allocation_fn
 *   "stitchSimMarkMemory"     stitch__sim_mark_memory_fn
 *   "stitchSimFindDevice"     stitch__sim_find_device_fn
 *   "stitchSimGemm"           stitch__sim_gemm_fn
 *   "stitchSimContextNew"     stitch__sim_context_new_fn
 *   "stitchSimContextFree"    stitch__sim_context_free_fn
 *   "stitchSimRecover"        stitch__sim_recover_fn
 *
 * But for the two that make and free contexts they act on the context that is current in the calling thread and may be
 * called from any thread.
 */
#ifndef STITCH_LIB_SIM_EXT_H
#define STITCH_LIB_SIM_EXT_H

#include <cuda.h>

#include "sim/gemm.h"
#include "sim/sim.h"

/* How kernels of a context are run and checked. Taken over as a whole; in force from the next launch on. Zero means
 * what stitch__sim_launch says of the same field. A new context checks everything (STITCH__SIM_CHECK_ALL) and counts
 * nothing. */
typedef struct stitch__sim_options {
    uint32_t flags; /* STITCH__SIM_CHECK_*, STITCH__SIM_COUNT */
    uint64_t instruction_budget;
    uint32_t threads;
    uint64_t seed;
    uint32_t sample_blocks;
    uint32_t max_reports;
    bool mma_fast;
    /* A finding that ends a kernel on hardware makes the context fail from then on, as hardware does; so does an end by
     * deadline or cancellation. Set: it is reported and nothing else happens, so that the steps that follow can still
     * be checked. */
    bool keep_going;
    const stitch_cancel *cancel, *cancel_too; /* must outlive the context or the next call that replaces them */
    int64_t deadline_ns;         /* stitch__now_ns() clock */
    void (*print)(void *userdata, const char *text, size_t len); /* NULL: printf() output of kernels is dropped */
    void *userdata;
} stitch__sim_options;

/* What is known about the launches of one kernel since the last time reports were taken. */
typedef struct stitch__sim_kernel_report {
    const char *kernel;         /* mangled name */
    uint64_t launches;          /* how many */
    uint64_t first;             /* number of the first of them among the launches of the context, from 0 */
    uint32_t grid[3], block[3]; /* of the last one */
    CUresult error;             /* the first failure, else CUDA_SUCCESS */
    char message[512];          /* words for `error` where no report says more: a refusal, a deadline; else "" */
    stitch__sim_fault fault;    /* the first finding that hardware would stop at */
    size_t report_count;
    stitch__sim_report *reports;
    uint64_t reports_dropped;
    stitch__sim_counters counters; /* summed over the launches */
    uint64_t warp_instructions, lane_instructions;
} stitch__sim_kernel_report;

/* Released with stitchSimFreeReports, which also releases the modules that the places point into: they stay valid until
 * then, even after cuModuleUnload and cuCtxDestroy. */
typedef struct stitch__sim_reports {
    size_t count;
    stitch__sim_kernel_report *kernels; /* in order of their first launch */
    uint64_t launches;                  /* of the context, ever */
    bool incomplete;                    /* memory ran out while findings were collected */
} stitch__sim_reports;

typedef CUresult(CUDAAPI *stitch__sim_set_options_fn)(const stitch__sim_options *options);
typedef CUresult(CUDAAPI *stitch__sim_get_options_fn)(stitch__sim_options *options);
/* Hands over what was collected and starts afresh. Also works in a context that has failed. */
typedef CUresult(CUDAAPI *stitch__sim_take_reports_fn)(stitch__sim_reports **out);
typedef void(CUDAAPI *stitch__sim_free_reports_fn)(stitch__sim_reports *reports); /* NULL is ignored */
/* The name that reports use for the allocation that holds `ptr`. */
typedef CUresult(CUDAAPI *stitch__sim_name_allocation_fn)(CUdeviceptr ptr, const char *name);
/* Makes bytes count as written or as never written: a workspace whose contents are undefined at the start of a run. */
typedef CUresult(CUDAAPI *stitch__sim_mark_memory_fn)(CUdeviceptr ptr, size_t bytes, int written);
/* The ordinal of the device of an architecture: "sm_90", "sm_90a", "90". CUDA_ERROR_NO_DEVICE if none is simulated.
 * Needs no context and no cuInit. */
typedef CUresult(CUDAAPI *stitch__sim_find_device_fn)(CUdevice *device, const char *arch);
/* Runs a product on the memory of the current context, in stream order (so: at once), or adds it to the graph when the
 * stream captures. CUDA_ERROR_INVALID_VALUE for bad arguments (*err says which); a range that is not in live memory
 * fails the context like a kernel's access would. err may be NULL. */
typedef CUresult(CUDAAPI *stitch__sim_gemm_fn)(const stitch__sim_gemm_args *args, CUstream stream, stitch_error **err);
/* A context that nobody else shares, current nowhere: options, findings and failures of a primary context are those of
 * all that retain it. CUDA_ERROR_OUT_OF_MEMORY: also when STITCH__DRV_SLOTS contexts are in use. */
typedef CUresult(CUDAAPI *stitch__sim_context_new_fn)(CUcontext *ctx, CUdevice device);
typedef CUresult(CUDAAPI *stitch__sim_context_free_fn)(CUcontext ctx);
/* Ends the failure of the current context: what hardware loses with it, its memory and modules, is all there still. */
typedef CUresult(CUDAAPI *stitch__sim_recover_fn)(void);

#endif
