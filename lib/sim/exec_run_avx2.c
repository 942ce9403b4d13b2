/* SPDX-License-Identifier: MIT
 *
 * The main loop for x86-64 with AVX2.
 */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,popcnt,lzcnt,bmi,bmi2"))), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC optimize("O3")
#pragma GCC target("avx2,popcnt,lzcnt,bmi,bmi2")
#endif
#define RUN_WARP stitch__run_warp_avx2
#include "sim/exec_run.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int stitch__run_warp_avx2_is_for_x86;
#endif
