/* SPDX-License-Identifier: MIT
 *
 * The 32-lane functions for any processor.
 */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
/* Sums of products must round as written; the others let GCC turn selections into vector code and change no result. */
#pragma GCC optimize("O3", "fp-contract=off", "no-math-errno", "no-trapping-math")
#endif
#define LANES_NAME(x) x##_generic
#include "sim/arith_lanes.h"
#include "sim/arith_mma_lanes.h"
