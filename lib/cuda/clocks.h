/* SPDX-License-Identifier: MIT
 *
 * What the GPU's clocks do while something is measured. They are observed, never set.
 */
#ifndef STITCH_LIB_CLOCKS_H
#define STITCH_LIB_CLOCKS_H

#include "cuda/cuda.h"

typedef struct stitch__clock_sample {
    uint32_t sm_mhz, memory_mhz;
    uint64_t reasons; /* NVML's bits of why the clocks are not higher */
} stitch__clock_sample;

/* What NVML says now; false where there is no NVML, or it does not know the device. The first call opens it, which
 * takes tens of milliseconds. Thread-safe. */
bool stitch__clocks_read(stitch__device *dev, stitch__clock_sample *out);

/* Reasons that make a measurement doubtful (power, temperature), as words: "power cap, thermal"; "" if there are none.
 */
void stitch__clocks_describe(uint64_t reasons, char *out, size_t size);

#endif
