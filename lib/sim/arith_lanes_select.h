/* SPDX-License-Identifier: MIT
 *
 * What the two compilations of the 32-lane functions export; arith.c chooses between them.
 */
#ifndef STITCH_SIM_ARITH_LANES_SELECT_H
#define STITCH_SIM_ARITH_LANES_SELECT_H

#include "sim/arith.h"

stitch__lanes_fn stitch__arith_select_generic(const stitch__arith_op *op);
stitch__lanes_fn stitch__arith_select_avx2(const stitch__arith_op *op); /* NULL off x86-64 */
stitch__lanes_fn stitch__arith_select_cvt_generic(const stitch__arith_cvt *cvt);
stitch__lanes_fn stitch__arith_select_cvt_avx2(const stitch__arith_cvt *cvt);
/* f64 with directed rounding. */
stitch__lanes_fn stitch__arith_select_f64_directed(const stitch__arith_op *op);

#endif
