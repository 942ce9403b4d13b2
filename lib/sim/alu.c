/* SPDX-License-Identifier: MIT
 *
 * Integer lane functions for any processor, and the choice between the compilations.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#define ALU_TABLE stitch__alu_generic
#include "sim/alu_lanes.h"

stitch__lanes_fn stitch__alu_lanes(stitch__alu op)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return stitch__alu_avx2[op];
#endif
    return stitch__alu_generic[op];
}
