/* SPDX-License-Identifier: MIT
 *
 * The main loop for any processor.
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#define RUN_WARP stitch__run_warp_generic
#include "sim/exec_run.h"
