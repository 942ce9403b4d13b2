/* SPDX-License-Identifier: MIT
 *
 * The 32-lane functions for x86-64 with AVX2 and FMA.
 */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off", "no-math-errno", "no-trapping-math")
#pragma GCC target("avx2,fma")
#endif
#define LANES_NAME(x) x##_avx2
#include "sim/arith_lanes.h"
#include "sim/arith_mma_lanes.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "sim/arith_lanes_select.h"

#include <stddef.h>

stitch__lanes_fn stitch__arith_select_avx2(const stitch__arith_op *op)
{
    (void)op;
    return NULL;
}

stitch__lanes_fn stitch__arith_select_cvt_avx2(const stitch__arith_cvt *cvt)
{
    (void)cvt;
    return NULL;
}
#endif
