/* SPDX-License-Identifier: MIT
 *
 * Measures a device's ceilings.
 */
#ifndef STITCH_LIB_PROFILE_MEASURE_H
#define STITCH_LIB_PROFILE_MEASURE_H

#include "profile/ceilings.h"

/* Replaces in `c` what can be measured; the rest stays. c->measured: the copy was; *matrix: products were. Only the
 * scope's end and a fault of the device are errors. */
int stitch__measure(stitch__device *dev, const stitch__scope *scope, stitch__ceilings *c, bool *matrix,
                    stitch_error **err);

/* ceilings.c: where they are kept. Released with stitch_free(); NULL: nowhere. */
char *stitch__ceilings_path(stitch_context *ctx, const stitch__device *dev);

#endif
