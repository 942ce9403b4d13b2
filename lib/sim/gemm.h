/* SPDX-License-Identifier: MIT
 *
 * Matrix products on the simulated device's memory: what cuBLASLt does for `gemm` steps, by a BLAS on the CPU where the
 * build found one, otherwise by a blocked loop.
 */
#ifndef STITCH_LIB_SIM_GEMM_H
#define STITCH_LIB_SIM_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include <stitch/base.h>

#include "sim/sim.h"

typedef enum stitch__sim_epilogue {
    STITCH__SIM_EPILOGUE_NONE,
    STITCH__SIM_EPILOGUE_RELU, /* max(x, 0); NaN stays NaN */
    STITCH__SIM_EPILOGUE_GELU, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
} stitch__sim_epilogue;

typedef struct stitch__sim_gemm_matrix {
    uint64_t address; /* device address of the first element */
    int32_t dtype;    /* STITCH_DTYPE_F64 F32 TF32 F16 BF16 F8E4M3 F8E5M2 */
    int64_t ld;       /* elements from row to row as stored; 0: dense */
    int64_t stride;   /* elements from batch to batch; 0: the same matrix for all (not allowed for c) */
} stitch__sim_gemm_matrix;

/* Row-major: c[m,n] = epilogue(alpha * op(a)[m,k] op(b)[k,n] + beta * d[m,n] + bias[n]) for every batch.
 * a is stored m x k, or k x m with trans_a; b is stored k x n, or n x k with trans_b. c and d may be the same matrix;
 * otherwise no element of c may be one of an input's. d is read only when beta is not 0. */
typedef struct stitch__sim_gemm_args {
    int64_t m, n, k;                    /* m, n > 0; k >= 0 */
    int64_t batch;                      /* 0 and 1: one */
    stitch__sim_gemm_matrix a, b, c, d; /* d.address 0: c */
    stitch__sim_gemm_matrix bias;       /* n elements; address 0: none; ld is not used, stride as for matrices */
    bool trans_a, trans_b;
    double alpha, beta;
    int32_t epilogue; /* stitch__sim_epilogue */
    /* STITCH_DTYPE_F64 (all operands f64), F32, TF32 (a and b are f32 or tf32 and rounded to tf32, to nearest with ties
     * away from zero; float32 sums), F16 (a and b are f16; sums in float32, rounded to half at the end). NONE: F64 if a
     * is f64, else F32. */
    int32_t compute;
} stitch__sim_gemm_args;

/* What ends a product early. */
typedef struct stitch__sim_limit {
    const stitch_cancel *cancel, *cancel_too; /* may be NULL */
    int64_t deadline_ns;                      /* stitch__now_ns() clock; 0: none */
} stitch__sim_limit;

/* Checks arguments and ranges, computes, and marks the written elements of c as written. Elements of inputs that
 * nothing wrote are found too: *finding is then filled (kind UNINITIALISED; OUT_OF_BOUNDS and USE_AFTER_FREE for
 * ranges, where nothing is computed and STITCH_E_FAULT is returned) and *found set; both may be NULL. Rows that lie
 * apart (ld larger than a row) are checked row by row: padding need not be written, or even exist behind the last row.
 * STITCH_E_INVALID, STITCH_E_UNSUPPORTED, STITCH_E_FAULT, STITCH_E_NOMEM, STITCH_E_CANCELLED, STITCH_E_TIMEOUT (limit
 * may be NULL). */
int stitch__sim_gemm(const stitch__sim_gemm_args *args, stitch__sim_memory *memory, const stitch__sim_limit *limit,
                     stitch__sim_report *finding, bool *found, stitch_error **err);

/* "OpenBLAS 0.3.21 ..." or "built-in loops". */
const char *stitch__sim_gemm_backend(void);

#endif
