/* SPDX-License-Identifier: MIT
 *
 * What a device can do at the most: measured once and kept in the cache folder, or from the architecture's rates.
 */
#ifndef STITCH_LIB_PROFILE_CEILINGS_H
#define STITCH_LIB_PROFILE_CEILINGS_H

#include "cuda/cuda.h"
#include "profile/facts.h"

/* From the architecture's rates, clocks and bus width; also for simulated devices. */
void stitch__ceilings_estimate(const stitch__device *dev, stitch__ceilings *out);
/* Nothing has to be measured: the device is simulated, or they are in the cache folder. */
bool stitch__ceilings_kept(stitch_context *ctx, const stitch__device *dev);
/* From the cache folder; else measured (copies, products of cuBLASLt where it is there, empty launches; below two
 * seconds and 1 GiB of device memory) and kept there for this device, driver and version of the measurement. What
 * cannot be measured stays estimated; measured says whether at least the copy was. A simulated device: estimated. The
 * caller has locked the device for timing, unless they are kept. */
int stitch__ceilings_get(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope, stitch__ceilings *out,
                         stitch_error **err);
/* The ceiling in TFLOP/s of the fastest unit that a precision (stitch_precision) allows; 0: not known. */
double stitch__ceilings_matrix(const stitch__ceilings *c, int precision);

#endif
