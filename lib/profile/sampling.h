/* SPDX-License-Identifier: MIT
 *
 * Where warps wait: continuous PC sampling of a region through CUPTI, by function, source line and stall reason.
 * Kernels are neither serialised nor replayed.
 */
#ifndef STITCH_LIB_PROFILE_SAMPLING_H
#define STITCH_LIB_PROFILE_SAMPLING_H

#include "cuda/cuda.h"
#include "cuda/cupti.h"
#include "profile/facts.h"

typedef struct stitch__sampling stitch__sampling;

/* A module whose functions are mapped to source lines. The text is that of the file that was compiled ("program.cu" in
 * the line table, else its first one), for the lines' own text; it must outlive the sampling, the cubin needs not. */
typedef struct stitch__sampled_module {
    const void *cubin;
    size_t cubin_size;
    const char *source; /* may be NULL */
} stitch__sampled_module;

/* Errors that mean "go on without" are those of stitch__counters_open(). It is the one user of CUPTI in the process
 * until it is closed (exclusive.h), and takes up to 256 MiB of device memory. Modules may be loaded at any time before
 * their kernels run. period: a sample each 2^period cycles, 5 to 31; 0: 14. scope: of waits for the device, or NULL; it
 * outlives the sampling. */
int stitch__sampling_open(stitch_context *ctx, stitch__device *dev, const stitch__cupti *cupti,
                          const stitch__sampled_module *modules, size_t count, int period, const stitch__scope *scope,
                          stitch__sampling **out, stitch_error **err);
int stitch__sampling_start(stitch__sampling *s, stitch_error **err);
/* Waits for the device; then the samples are there, with those of earlier regions. STITCH_E_LIMIT: there were too many.
 * STITCH_E_TIMEOUT, STITCH_E_CANCELLED: it has to be ended. */
int stitch__sampling_stop(stitch__sampling *s, stitch_error **err);
/* Fills in samples and lines of the kernels of `f` by their symbols. Kernels of several steps with the same symbol get
 * the same; lines of several modules that have a kernel of that symbol stand side by side. Samples of a function that
 * was not inlined are its kernel's. Records of other modules are in the total alone. 0 or STITCH_E_NOMEM. */
int stitch__sampling_fill(const stitch__sampling *s, stitch__facts *f, stitch_error **err);
/* Gives CUPTI back; what was sampled stays. While stalls are being sampled, the device gets a second to come to rest;
 * where it does not, CUPTI is left (stitch__exclusive_leave()). */
void stitch__sampling_end(stitch__sampling *s);
/* Samples that CUPTI could give to no kernel: see stitch__exclusive_graph_traced(). */
uint64_t stitch__sampling_unknown(const stitch__sampling *s);
uint64_t stitch__sampling_total(const stitch__sampling *s);   /* samples */
uint64_t stitch__sampling_dropped(const stitch__sampling *s); /* that the hardware lost */
void stitch__sampling_close(stitch__sampling *s);

#endif
