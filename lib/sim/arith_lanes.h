/* SPDX-License-Identifier: MIT
 *
 * The 32-lane functions. This file is compiled twice: by arith_lanes.c for any processor and by arith_lanes_avx2.c for
 * AVX2 and FMA. (Function multiversioning by the linker would do the same, but its resolvers run before the sanitizers
 * are ready.) LANES_NAME(x) gives the external names their suffix. Each instruction with its modifiers is a loop of its
 * own over a function of arith_core.h whose modifiers are constants, so nothing is decided per lane.
 */
#include "sim/arith_core.h"
#include "sim/arith_lanes_select.h"
#include "sim/arith_sfu.h"

#include <stddef.h>

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* some loops stay scalar there */
#define VECTOR_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTOR_LOOP _Pragma("GCC ivdep")
#endif
#define EACH_LANE VECTOR_LOOP for (int i = 0; i < STITCH__LANES; i++)

#define LANES(name, out, in, expr)                                                                                     \
    static void name(void *dv, const void *av, const void *bv, const void *cv)                                         \
    {                                                                                                                  \
        out *d = dv;                                                                                                   \
        const in *pa = av, *pb = bv, *pc = cv;                                                                         \
        (void)pb;                                                                                                      \
        (void)pc;                                                                                                      \
        EACH_LANE                                                                                                      \
        {                                                                                                              \
            d[i] = (out)(expr);                                                                                        \
        }                                                                                                              \
    }
#define A (pa[i])
#define B (pb[i])
#define C (pc[i])

/* ---- f32 ------------------------------------------------------------------------------------------------------- */

#define F32_IN(x, z)      ((z) ? flush32(x) : (x))
#define F32_ADD(r, z, s)  finish32(add32(F32_IN(A, z), F32_IN(B, z), r), z, s)
#define F32_SUB(r, z, s)  finish32(add32(F32_IN(A, z), F32_IN(B, z) ^ SIGN32, r), z, s)
#define F32_MUL(r, z, s)  finish32(mul32(F32_IN(A, z), F32_IN(B, z), r), z, s)
#define F32_FMA(r, z, s)  finish32(fma32(F32_IN(A, z), F32_IN(B, z), F32_IN(C, z), r), z, s)
#define F32_DIV(r, z, s)  finish32(div32(F32_IN(A, z), F32_IN(B, z), r), z, s)
#define F32_RCP(r, z, s)  finish32(div32(0x3f800000, F32_IN(A, z), r), z, s)
#define F32_SQRT(r, z, s) finish32(sqrt32(F32_IN(A, z), r), z, s)

/* .ftz where a result may be inexact near 2^-126: those that are 2^-126 are looked at again. */
#define FLUSHING(name, expr, least)                                                                                    \
    static void name(void *dv, const void *av, const void *bv, const void *cv)                                         \
    {                                                                                                                  \
        uint32_t out[STITCH__LANES], any = 0;                                                                          \
        const uint32_t *pa = av, *pb = bv, *pc = cv;                                                                   \
        (void)pb;                                                                                                      \
        (void)pc;                                                                                                      \
        EACH_LANE                                                                                                      \
        {                                                                                                              \
            out[i] = (expr);                                                                                           \
        }                                                                                                              \
        EACH_LANE                                                                                                      \
        {                                                                                                              \
            any |= (uint32_t)((out[i] & ~SIGN32) == LEAST32);                                                          \
        }                                                                                                              \
        for (int i = 0; any && i < STITCH__LANES; i++)                                                                 \
            out[i] = (least);                                                                                          \
        memcpy(dv, out, sizeof(out));                                                                                  \
    }
#define F32_LEAST_MUL(r) fma_least32(out[i], F32_IN(A, 1), F32_IN(B, 1), 0, r)
#define F32_LEAST_FMA(r) fma_least32(out[i], F32_IN(A, 1), F32_IN(B, 1), F32_IN(C, 1), r)
#define F32_LEAST_DIV(r) div_least32(out[i], F32_IN(A, 1), F32_IN(B, 1), r)
#define F32_LEAST_RCP(r) div_least32(out[i], 0x3f800000, F32_IN(A, 1), r)

#define F32_PLAIN_MODES(op)                                                                                            \
    LANES(f32_##op##_rn, uint32_t, uint32_t, F32_##op(STITCH__RN, 0, 0))                                               \
    LANES(f32_##op##_rz, uint32_t, uint32_t, F32_##op(STITCH__RZ, 0, 0))                                               \
    LANES(f32_##op##_rm, uint32_t, uint32_t, F32_##op(STITCH__RM, 0, 0))                                               \
    LANES(f32_##op##_rp, uint32_t, uint32_t, F32_##op(STITCH__RP, 0, 0))
#define F32_PLAIN_SAT_MODES(op)                                                                                        \
    LANES(f32_##op##_rn_sat, uint32_t, uint32_t, F32_##op(STITCH__RN, 0, 1))                                           \
    LANES(f32_##op##_rz_sat, uint32_t, uint32_t, F32_##op(STITCH__RZ, 0, 1))                                           \
    LANES(f32_##op##_rm_sat, uint32_t, uint32_t, F32_##op(STITCH__RM, 0, 1))                                           \
    LANES(f32_##op##_rp_sat, uint32_t, uint32_t, F32_##op(STITCH__RP, 0, 1))
/* Exact where they are small: sums, and roots, which are never small. */
#define F32_FTZ_MODES(op)                                                                                              \
    LANES(f32_##op##_rn_ftz, uint32_t, uint32_t, F32_##op(STITCH__RN, 1, 0))                                           \
    LANES(f32_##op##_rz_ftz, uint32_t, uint32_t, F32_##op(STITCH__RZ, 1, 0))                                           \
    LANES(f32_##op##_rm_ftz, uint32_t, uint32_t, F32_##op(STITCH__RM, 1, 0))                                           \
    LANES(f32_##op##_rp_ftz, uint32_t, uint32_t, F32_##op(STITCH__RP, 1, 0))
#define F32_FTZ_SAT_MODES(op)                                                                                          \
    LANES(f32_##op##_rn_ftz_sat, uint32_t, uint32_t, F32_##op(STITCH__RN, 1, 1))                                       \
    LANES(f32_##op##_rz_ftz_sat, uint32_t, uint32_t, F32_##op(STITCH__RZ, 1, 1))                                       \
    LANES(f32_##op##_rm_ftz_sat, uint32_t, uint32_t, F32_##op(STITCH__RM, 1, 1))                                       \
    LANES(f32_##op##_rp_ftz_sat, uint32_t, uint32_t, F32_##op(STITCH__RP, 1, 1))
#define F32_FLUSHING_MODES(op)                                                                                         \
    FLUSHING(f32_##op##_rn_ftz, F32_##op(STITCH__RN, 1, 0), F32_LEAST_##op(STITCH__RN))                                \
    FLUSHING(f32_##op##_rz_ftz, F32_##op(STITCH__RZ, 1, 0), F32_LEAST_##op(STITCH__RZ))                                \
    FLUSHING(f32_##op##_rm_ftz, F32_##op(STITCH__RM, 1, 0), F32_LEAST_##op(STITCH__RM))                                \
    FLUSHING(f32_##op##_rp_ftz, F32_##op(STITCH__RP, 1, 0), F32_LEAST_##op(STITCH__RP))
#define F32_FLUSHING_SAT_MODES(op)                                                                                     \
    FLUSHING(f32_##op##_rn_ftz_sat, F32_##op(STITCH__RN, 1, 1), F32_LEAST_##op(STITCH__RN))                            \
    FLUSHING(f32_##op##_rz_ftz_sat, F32_##op(STITCH__RZ, 1, 1), F32_LEAST_##op(STITCH__RZ))                            \
    FLUSHING(f32_##op##_rm_ftz_sat, F32_##op(STITCH__RM, 1, 1), F32_LEAST_##op(STITCH__RM))                            \
    FLUSHING(f32_##op##_rp_ftz_sat, F32_##op(STITCH__RP, 1, 1), F32_LEAST_##op(STITCH__RP))

F32_PLAIN_MODES(ADD)
F32_PLAIN_SAT_MODES(ADD)
F32_FTZ_MODES(ADD)
F32_FTZ_SAT_MODES(ADD)
F32_PLAIN_MODES(SUB)
F32_PLAIN_SAT_MODES(SUB)
F32_FTZ_MODES(SUB)
F32_FTZ_SAT_MODES(SUB)
F32_PLAIN_MODES(MUL)
F32_PLAIN_SAT_MODES(MUL)
F32_FLUSHING_MODES(MUL)
F32_FLUSHING_SAT_MODES(MUL)
F32_PLAIN_MODES(FMA)
F32_PLAIN_SAT_MODES(FMA)
F32_FLUSHING_MODES(FMA)
F32_FLUSHING_SAT_MODES(FMA)
F32_PLAIN_MODES(DIV)
F32_FLUSHING_MODES(DIV)
F32_PLAIN_MODES(RCP)
F32_FLUSHING_MODES(RCP)
F32_PLAIN_MODES(SQRT)
F32_FTZ_MODES(SQRT)

#define F32_ROW(op)                                                                                                    \
    {                                                                                                                  \
        f32_##op##_rn, f32_##op##_rz, f32_##op##_rm, f32_##op##_rp, f32_##op##_rn_ftz, f32_##op##_rz_ftz,              \
            f32_##op##_rm_ftz, f32_##op##_rp_ftz                                                                       \
    }
#define F32_SAT_ROW(op)                                                                                                \
    {                                                                                                                  \
        f32_##op##_rn, f32_##op##_rz, f32_##op##_rm, f32_##op##_rp, f32_##op##_rn_ftz, f32_##op##_rz_ftz,              \
            f32_##op##_rm_ftz, f32_##op##_rp_ftz, f32_##op##_rn_sat, f32_##op##_rz_sat, f32_##op##_rm_sat,             \
            f32_##op##_rp_sat, f32_##op##_rn_ftz_sat, f32_##op##_rz_ftz_sat, f32_##op##_rm_ftz_sat,                    \
            f32_##op##_rp_ftz_sat                                                                                      \
    }

/* Indexed by round + 4 ftz + 8 sat. */
static const stitch__lanes_fn f32_rounded[STITCH__FOP_COUNT][16] = {
    [STITCH__ADD] = F32_SAT_ROW(ADD), [STITCH__SUB] = F32_SAT_ROW(SUB), [STITCH__MUL] = F32_SAT_ROW(MUL),
    [STITCH__FMA] = F32_SAT_ROW(FMA), [STITCH__DIV] = F32_ROW(DIV),     [STITCH__RCP] = F32_ROW(RCP),
    [STITCH__SQRT] = F32_ROW(SQRT),
};

/* f(ftz): the special functions and the rest that have no rounding. Flushing what the unit reads and writes is part of
 * it. */
#define F32_PAIR(op, expr0, expr1)                                                                                     \
    LANES(f32_##op, uint32_t, uint32_t, expr0)                                                                         \
    LANES(f32_##op##_ftz, uint32_t, uint32_t, expr1)

F32_PAIR(div_approx, div_approx(A, B, 0, 0), div_approx(A, B, 1, 0))
F32_PAIR(div_full, div_approx(A, B, 0, 1), div_approx(A, B, 1, 1))
F32_PAIR(rcp_approx, rcp_approx(A, 0), rcp_approx(A, 1))
F32_PAIR(sqrt_approx, sqrt_approx(A, 0), sqrt_approx(A, 1))
F32_PAIR(rsqrt_approx, rsqrt_approx(A, 0), rsqrt_approx(A, 1))
LANES(f32_ex2_approx_ftz, uint32_t, uint32_t, sfu_ex2(A))

INLINE void ex2_lanes(uint32_t *d, const uint32_t *a)
{
    uint32_t in[STITCH__LANES], out[STITCH__LANES];
    EACH_LANE in[i] = ex2_before(a[i]);
    EACH_LANE out[i] = sfu_ex2(in[i]);
    EACH_LANE d[i] = ex2_after(a[i], out[i]);
}

INLINE void sincos_lanes(uint32_t *d, const uint32_t *a, bool cosine)
{
    uint32_t turns[STITCH__LANES], angle[STITCH__LANES];
    double p[STITCH__LANES];
    EACH_LANE turns[i] = sincos_before(a[i]);
    EACH_LANE angle[i] = sfu_angle(turns[i], cosine);
    EACH_LANE p[i] = sfu_sine(angle[i]);
    EACH_LANE d[i] = sfu_sine_float(turns[i], angle[i], p[i], cosine);
}

static void f32_ex2_approx(void *d, const void *a, const void *b, const void *c)
{
    ex2_lanes(d, a);
}

static void f32_sin_approx(void *d, const void *a, const void *b, const void *c)
{
    sincos_lanes(d, a, false);
}

static void f32_cos_approx(void *d, const void *a, const void *b, const void *c)
{
    sincos_lanes(d, a, true);
}
F32_PAIR(lg2_approx, lg2_approx(A, 0), lg2_approx(A, 1))
LANES(f32_tanh_approx, uint32_t, uint32_t, sfu_tanh(A))
F32_PAIR(neg, finish32(A ^ SIGN32, 0, 0), finish32(A ^ SIGN32, 1, 0))
F32_PAIR(abs, finish32(A & ~SIGN32, 0, 0), finish32(A & ~SIGN32, 1, 0))
LANES(f32_copysign, uint32_t, uint32_t, (A & SIGN32) | (B & ~SIGN32))

static const stitch__lanes_fn f32_plain[STITCH__FOP_COUNT][2] = {
    [STITCH__DIV_APPROX] = {f32_div_approx, f32_div_approx_ftz},
    [STITCH__DIV_FULL] = {f32_div_full, f32_div_full_ftz},
    [STITCH__RCP_APPROX] = {f32_rcp_approx, f32_rcp_approx_ftz},
    [STITCH__SQRT_APPROX] = {f32_sqrt_approx, f32_sqrt_approx_ftz},
    [STITCH__RSQRT_APPROX] = {f32_rsqrt_approx, f32_rsqrt_approx_ftz},
    [STITCH__EX2_APPROX] = {f32_ex2_approx, f32_ex2_approx_ftz},
    [STITCH__LG2_APPROX] = {f32_lg2_approx, f32_lg2_approx_ftz},
    [STITCH__SIN_APPROX] = {f32_sin_approx, f32_sin_approx},
    [STITCH__COS_APPROX] = {f32_cos_approx, f32_cos_approx},
    [STITCH__TANH_APPROX] = {f32_tanh_approx, NULL},
    [STITCH__NEG] = {f32_neg, f32_neg_ftz},
    [STITCH__ABS] = {f32_abs, f32_abs_ftz},
    [STITCH__COPYSIGN] = {f32_copysign, NULL},
};

/* ---- min and max: indexed by max + 2 ftz + 4 NaN + 8 xorsign --------------------------------------------------- */

#define F32_MM(m, z, n, x) finish32(minmax32(F32_IN(A, z), F32_IN(B, z), m, n, x), z, 0)
#define H_IN(x, z)         ((z) ? flush16((x)&0xffff) : (x)&0xffff)
#define MM_SET(prefix, E)                                                                                              \
    LANES(prefix##0, uint32_t, uint32_t, E(0, 0, 0, 0))                                                                \
    LANES(prefix##1, uint32_t, uint32_t, E(1, 0, 0, 0))                                                                \
    LANES(prefix##2, uint32_t, uint32_t, E(0, 1, 0, 0))                                                                \
    LANES(prefix##3, uint32_t, uint32_t, E(1, 1, 0, 0))                                                                \
    LANES(prefix##4, uint32_t, uint32_t, E(0, 0, 1, 0))                                                                \
    LANES(prefix##5, uint32_t, uint32_t, E(1, 0, 1, 0))                                                                \
    LANES(prefix##6, uint32_t, uint32_t, E(0, 1, 1, 0))                                                                \
    LANES(prefix##7, uint32_t, uint32_t, E(1, 1, 1, 0))                                                                \
    LANES(prefix##8, uint32_t, uint32_t, E(0, 0, 0, 1))                                                                \
    LANES(prefix##9, uint32_t, uint32_t, E(1, 0, 0, 1))                                                                \
    LANES(prefix##10, uint32_t, uint32_t, E(0, 1, 0, 1))                                                               \
    LANES(prefix##11, uint32_t, uint32_t, E(1, 1, 0, 1))                                                               \
    LANES(prefix##12, uint32_t, uint32_t, E(0, 0, 1, 1))                                                               \
    LANES(prefix##13, uint32_t, uint32_t, E(1, 0, 1, 1))                                                               \
    LANES(prefix##14, uint32_t, uint32_t, E(0, 1, 1, 1))                                                               \
    LANES(prefix##15, uint32_t, uint32_t, E(1, 1, 1, 1))
#define MM_ROW(p)                                                                                                      \
    {                                                                                                                  \
        p##0, p##1, p##2, p##3, p##4, p##5, p##6, p##7, p##8, p##9, p##10, p##11, p##12, p##13, p##14, p##15           \
    }
MM_SET(f32_mm, F32_MM)
static const stitch__lanes_fn f32_mm[16] = MM_ROW(f32_mm);
/* ---- f16, bf16 and their pairs --------------------------------------------------------------------------------- */

#define H_ADD(a, b, c, bf) as_u32(as_f32(a) + as_f32(b))
#define H_SUB(a, b, c, bf) as_u32(as_f32(a) - as_f32(b))
#define H_MUL(a, b, c, bf) half_mul(a, b, bf)
#define H_FMA(a, b, c, bf) half_fma(a, b, c, bf)
#define H_NEG(a, b, c, bf) ((a) ^ SIGN32)
#define H_ABS(a, b, c, bf) ((a) & ~SIGN32)

/* Inputs widened to f32: the low halves, then the high ones. Steps in loops of their own are what GCC vectorises; they
 * are functions of their own so that each exists once. */
#define HALF_STEP(name, expr)                                                                                          \
    static __attribute__((noinline)) void name(uint32_t *d, const uint32_t *a, unsigned shift)                         \
    {                                                                                                                  \
        EACH_LANE                                                                                                      \
        {                                                                                                              \
            expr;                                                                                                      \
        }                                                                                                              \
    }
HALF_STEP(widen_f16_step, d[i] = widen_f16(a[i] >> shift & 0xffff))
HALF_STEP(widen_f16_ftz_step, d[i] = widen_f16(flush16(a[i] >> shift & 0xffff)))
HALF_STEP(widen_bf16_step, d[i] = widen_bf16(a[i] >> shift & 0xffff))
HALF_STEP(narrow_f16_step, d[i] |= narrow_half(a[i], 0, 0, 0, 0) << shift)
HALF_STEP(narrow_f16_ftz_step, d[i] |= narrow_half(a[i], 0, 1, 0, 0) << shift)
HALF_STEP(narrow_f16_sat_step, d[i] |= narrow_half(a[i], 0, 0, 1, 0) << shift)
HALF_STEP(narrow_f16_ftz_sat_step, d[i] |= narrow_half(a[i], 0, 1, 1, 0) << shift)
HALF_STEP(narrow_f16_relu_step, d[i] |= narrow_half(a[i], 0, 0, 0, 1) << shift)
HALF_STEP(narrow_f16_ftz_relu_step, d[i] |= narrow_half(a[i], 0, 1, 0, 1) << shift)
HALF_STEP(narrow_bf16_step, d[i] |= narrow_half(a[i], 1, 0, 0, 0) << shift)
HALF_STEP(narrow_bf16_relu_step, d[i] |= narrow_half(a[i], 1, 0, 0, 1) << shift)

typedef void half_step(uint32_t *d, const uint32_t *a, unsigned shift);

INLINE void widen_lanes(uint32_t *x, const uint32_t *a, bool bf, bool two, bool ftz)
{
    half_step *step = bf ? widen_bf16_step : ftz ? widen_f16_ftz_step : widen_f16_step;
    step(x, a, 0);
    if (two)
        step(x + STITCH__LANES, a, 16);
}

INLINE void narrow_lanes(uint32_t *d, const uint32_t *x, bool bf, bool two, bool ftz, bool sat, bool relu)
{
    half_step *step = bf    ? (relu ? narrow_bf16_relu_step : narrow_bf16_step)
                      : ftz ? (sat    ? narrow_f16_ftz_sat_step
                               : relu ? narrow_f16_ftz_relu_step
                                      : narrow_f16_ftz_step)
                            : (sat    ? narrow_f16_sat_step
                               : relu ? narrow_f16_relu_step
                                      : narrow_f16_step);
    memset(d, 0, STITCH__LANES * sizeof(*d));
    step(d, x, 0);
    if (two)
        step(d, x + STITCH__LANES, 16);
}

#define H_LANES(name, op, inputs, bf, two, z, s, r)                                                                    \
    static void name(void *d, const void *a, const void *b, const void *c)                                             \
    {                                                                                                                  \
        uint32_t x[2 * STITCH__LANES], y[2 * STITCH__LANES], w[2 * STITCH__LANES], out[2 * STITCH__LANES];             \
        widen_lanes(x, a, bf, two, z);                                                                                 \
        if (inputs > 1)                                                                                                \
            widen_lanes(y, b, bf, two, z);                                                                             \
        if (inputs > 2)                                                                                                \
            widen_lanes(w, c, bf, two, z);                                                                             \
        VECTOR_LOOP for (int i = 0; i < STITCH__LANES << two; i++)                                                     \
        {                                                                                                              \
            out[i] = op(x[i], y[i], w[i], bf);                                                                         \
        }                                                                                                              \
        narrow_lanes(d, out, bf, two, z, s, r);                                                                        \
    }
#define H_INPUTS_ADD 2
#define H_INPUTS_SUB 2
#define H_INPUTS_MUL 2
#define H_INPUTS_FMA 3
#define H_INPUTS_NEG 1
#define H_INPUTS_ABS 1
#define H_SET(op, suffix, z, s, r)                                                                                     \
    H_LANES(f16_##op##suffix, H_##op, H_INPUTS_##op, 0, 0, z, s, r)                                                    \
    H_LANES(f16x2_##op##suffix, H_##op, H_INPUTS_##op, 0, 1, z, s, r)
#define BF_SET(op, suffix, z, r)                                                                                       \
    H_LANES(bf16_##op##suffix, H_##op, H_INPUTS_##op, 1, 0, z, 0, r)                                                   \
    H_LANES(bf16x2_##op##suffix, H_##op, H_INPUTS_##op, 1, 1, z, 0, r)
#define H_SETS(op)                                                                                                     \
    H_SET(op, , 0, 0, 0)                                                                                               \
    H_SET(op, _ftz, 1, 0, 0)                                                                                           \
    H_SET(op, _sat, 0, 1, 0)                                                                                           \
    H_SET(op, _ftz_sat, 1, 1, 0)                                                                                       \
    BF_SET(op, , 0, 0)
H_SETS(ADD)
H_SETS(SUB)
H_SETS(MUL)
H_SETS(FMA)
H_SET(FMA, _relu, 0, 0, 1)
H_SET(FMA, _ftz_relu, 1, 0, 1)
BF_SET(FMA, _relu, 0, 1)
H_SET(NEG, , 0, 0, 0)
H_SET(NEG, _ftz, 1, 0, 0)
BF_SET(NEG, , 0, 0)
H_SET(ABS, , 0, 0, 0)
H_SET(ABS, _ftz, 1, 0, 0)
BF_SET(ABS, , 0, 0)

/* ex2 and tanh: the unit's f32 result cut to the narrower type. f16 takes the form of ex2 without .ftz: subnormal
 * inputs and results count. */
INLINE void tanh_lanes(uint32_t *d, const uint32_t *a)
{
    EACH_LANE d[i] = sfu_tanh(a[i]);
}

INLINE void ex2_ftz_lanes(uint32_t *d, const uint32_t *a)
{
    EACH_LANE d[i] = sfu_ex2(a[i]);
}

HALF_STEP(cut_f16_step, d[i] |= cut_f16(a[i]) << shift)
HALF_STEP(cut_bf16_step, d[i] |= narrow_bf16(a[i], STITCH__RZ) << shift)

#define HALF_SFU(name, f, bf, two)                                                                                     \
    static void name(void *d, const void *a, const void *b, const void *c)                                             \
    {                                                                                                                  \
        uint32_t x[2 * STITCH__LANES];                                                                                 \
        half_step *cut = bf ? cut_bf16_step : cut_f16_step;                                                            \
        widen_lanes(x, a, bf, two, 0);                                                                                 \
        memset(d, 0, STITCH__LANES * sizeof(uint32_t));                                                                \
        for (unsigned k = 0; k <= two; k++) {                                                                          \
            f(x + k * STITCH__LANES, x + k * STITCH__LANES);                                                           \
            cut(d, x + k * STITCH__LANES, 16 * k);                                                                     \
        }                                                                                                              \
    }
HALF_SFU(f16_EX2, ex2_lanes, 0, 0)
HALF_SFU(f16x2_EX2, ex2_lanes, 0, 1)
HALF_SFU(bf16_EX2_ftz, ex2_ftz_lanes, 1, 0)
HALF_SFU(bf16x2_EX2_ftz, ex2_ftz_lanes, 1, 1)
HALF_SFU(f16_TANH, tanh_lanes, 0, 0)
HALF_SFU(f16x2_TANH, tanh_lanes, 0, 1)
HALF_SFU(bf16_TANH, tanh_lanes, 1, 0)
HALF_SFU(bf16x2_TANH, tanh_lanes, 1, 1)

#define HALF_MM(name, bf, two, m, z, n, x)                                                                             \
    static void name(void *d, const void *a, const void *b, const void *c)                                             \
    {                                                                                                                  \
        uint32_t u[2 * STITCH__LANES], v[2 * STITCH__LANES], out[2 * STITCH__LANES];                                   \
        widen_lanes(u, a, bf, two, z);                                                                                 \
        widen_lanes(v, b, bf, two, z);                                                                                 \
        VECTOR_LOOP for (int i = 0; i < STITCH__LANES << two; i++)                                                     \
        {                                                                                                              \
            out[i] = minmax32(u[i], v[i], m, n, x);                                                                    \
        }                                                                                                              \
        narrow_lanes(d, out, bf, two, 0, 0, 0);                                                                        \
    }
#define HALF_MM_SET(p, bf, two)                                                                                        \
    HALF_MM(p##0, bf, two, 0, 0, 0, 0)                                                                                 \
    HALF_MM(p##1, bf, two, 1, 0, 0, 0)                                                                                 \
    HALF_MM(p##2, bf, two, 0, 1, 0, 0)                                                                                 \
    HALF_MM(p##3, bf, two, 1, 1, 0, 0)                                                                                 \
    HALF_MM(p##4, bf, two, 0, 0, 1, 0)                                                                                 \
    HALF_MM(p##5, bf, two, 1, 0, 1, 0)                                                                                 \
    HALF_MM(p##6, bf, two, 0, 1, 1, 0)                                                                                 \
    HALF_MM(p##7, bf, two, 1, 1, 1, 0)                                                                                 \
    HALF_MM(p##8, bf, two, 0, 0, 0, 1)                                                                                 \
    HALF_MM(p##9, bf, two, 1, 0, 0, 1)                                                                                 \
    HALF_MM(p##10, bf, two, 0, 1, 0, 1)                                                                                \
    HALF_MM(p##11, bf, two, 1, 1, 0, 1)                                                                                \
    HALF_MM(p##12, bf, two, 0, 0, 1, 1)                                                                                \
    HALF_MM(p##13, bf, two, 1, 0, 1, 1)                                                                                \
    HALF_MM(p##14, bf, two, 0, 1, 1, 1)                                                                                \
    HALF_MM(p##15, bf, two, 1, 1, 1, 1)
HALF_MM_SET(f16_mm, 0, 0)
HALF_MM_SET(bf16_mm, 1, 0)
HALF_MM_SET(f16x2_mm, 0, 1)
HALF_MM_SET(bf16x2_mm, 1, 1)
static const stitch__lanes_fn f16_mm[16] = MM_ROW(f16_mm), bf16_mm[16] = MM_ROW(bf16_mm),
                              f16x2_mm[16] = MM_ROW(f16x2_mm), bf16x2_mm[16] = MM_ROW(bf16x2_mm);

/* Columns: f16, f16x2, bf16, bf16x2. */
typedef struct half_row {
    uint8_t op, flags;
    stitch__lanes_fn fn[4];
} half_row;
#define HALF(OP, op, suffix, flags)                                                                                    \
    {                                                                                                                  \
        STITCH__##OP, flags,                                                                                           \
        {                                                                                                              \
            f16_##op##suffix, f16x2_##op##suffix, bf16_##op##suffix, bf16x2_##op##suffix                               \
        }                                                                                                              \
    }
#define HALF_F16(OP, op, suffix, flags)                                                                                \
    {                                                                                                                  \
        STITCH__##OP, flags,                                                                                           \
        {                                                                                                              \
            f16_##op##suffix, f16x2_##op##suffix, NULL, NULL                                                           \
        }                                                                                                              \
    }
#define HALF_ARITH(op)                                                                                                 \
    HALF(op, op, , 0), HALF_F16(op, op, _ftz, STITCH__FTZ), HALF_F16(op, op, _sat, STITCH__SAT),                       \
        HALF_F16(op, op, _ftz_sat, STITCH__FTZ | STITCH__SAT)
static const half_row half_rows[] = {
    HALF_ARITH(ADD),
    HALF_ARITH(SUB),
    HALF_ARITH(MUL),
    HALF_ARITH(FMA),
    HALF(FMA, FMA, _relu, STITCH__RELU),
    HALF_F16(FMA, FMA, _ftz_relu, STITCH__FTZ | STITCH__RELU),
    HALF(NEG, NEG, , 0),
    HALF_F16(NEG, NEG, _ftz, STITCH__FTZ),
    HALF(ABS, ABS, , 0),
    HALF_F16(ABS, ABS, _ftz, STITCH__FTZ),
    HALF_F16(EX2_APPROX, EX2, , 0),
    {STITCH__EX2_APPROX, STITCH__FTZ, {NULL, NULL, bf16_EX2_ftz, bf16x2_EX2_ftz}},
    HALF(TANH_APPROX, TANH, , 0),
};

/* ---- f64 ------------------------------------------------------------------------------------------------------- */

#define F64(x) as_f64(x)
LANES(f64_add, uint64_t, uint64_t, finish64(as_u64(F64(A) + F64(B)), A, B, 0))
LANES(f64_sub, uint64_t, uint64_t, finish64(as_u64(F64(A) - F64(B)), A, B, 0))
LANES(f64_mul, uint64_t, uint64_t, finish64(as_u64(F64(A) * F64(B)), A, B, 0))
LANES(f64_fma, uint64_t, uint64_t, finish64(as_u64(__builtin_fma(F64(A), F64(B), F64(C))), A, B, C))
LANES(f64_div, uint64_t, uint64_t, finish_div64(as_u64(F64(A) / F64(B)), A, B))
LANES(f64_rcp, uint64_t, uint64_t, finish64(as_u64(1.0 / F64(A)), A, 0, 0))
LANES(f64_sqrt, uint64_t, uint64_t, finish64(as_u64(__builtin_sqrt(F64(A))), A, 0, 0))
LANES(f64_min, uint64_t, uint64_t, minmax64(A, B, 0))
LANES(f64_max, uint64_t, uint64_t, minmax64(A, B, 1))
LANES(f64_neg, uint64_t, uint64_t, is_nan64(A) ? A | QUIET64 : A ^ 1ull << 63)
LANES(f64_abs, uint64_t, uint64_t, is_nan64(A) ? A | QUIET64 : A & ~(1ull << 63))
LANES(f64_copysign, uint64_t, uint64_t, (A & 1ull << 63) | (B & ~(1ull << 63)))
LANES(f64_rcp_approx, uint64_t, uint64_t, seed64(A, 0))
LANES(f64_rsqrt_seed, uint64_t, uint64_t, seed64(A, 1))
LANES(f64_rsqrt, uint64_t, uint64_t, rsqrt_f64(A))

static const stitch__lanes_fn f64_plain[STITCH__FOP_COUNT] = {
    [STITCH__ADD] = f64_add,
    [STITCH__SUB] = f64_sub,
    [STITCH__MUL] = f64_mul,
    [STITCH__FMA] = f64_fma,
    [STITCH__DIV] = f64_div,
    [STITCH__RCP] = f64_rcp,
    [STITCH__SQRT] = f64_sqrt,
    [STITCH__MIN] = f64_min,
    [STITCH__MAX] = f64_max,
    [STITCH__NEG] = f64_neg,
    [STITCH__ABS] = f64_abs,
    [STITCH__COPYSIGN] = f64_copysign,
    [STITCH__RSQRT_APPROX] = f64_rsqrt,
};

/* ---- selection ------------------------------------------------------------------------------------------------- */

static stitch__lanes_fn select_f32(const stitch__arith_op *op)
{
    unsigned ftz = op->flags & STITCH__FTZ ? 1 : 0, sat = op->flags & STITCH__SAT ? 1 : 0;
    if (op->op == STITCH__MIN || op->op == STITCH__MAX) {
        if (op->flags & ~(STITCH__FTZ | STITCH__NAN | STITCH__XORSIGN_ABS) || op->round != STITCH__RN)
            return NULL;
        return f32_mm[(op->op == STITCH__MAX) + 2 * ftz + (op->flags & STITCH__NAN ? 4 : 0) +
                      (op->flags & STITCH__XORSIGN_ABS ? 8 : 0)];
    }
    if (op->flags & ~(STITCH__FTZ | STITCH__SAT) || op->round > STITCH__RP)
        return NULL;
    stitch__lanes_fn fn = f32_rounded[op->op][op->round + 4 * ftz + 8 * sat];
    if (!fn && op->round == STITCH__RN && !sat)
        fn = f32_plain[op->op][ftz];
    return fn;
}

static stitch__lanes_fn select_half(const stitch__arith_op *op)
{
    static const uint8_t columns[STITCH__NUM_COUNT] = {
        [STITCH__F16] = 1, [STITCH__F16X2] = 2, [STITCH__BF16] = 3, [STITCH__BF16X2] = 4};
    unsigned column = columns[op->type];
    if (!column || op->round != STITCH__RN)
        return NULL;
    if (op->op == STITCH__MIN || op->op == STITCH__MAX) {
        static const stitch__lanes_fn *const rows[4] = {f16_mm, f16x2_mm, bf16_mm, bf16x2_mm};
        if (op->flags & ~(STITCH__FTZ | STITCH__NAN | STITCH__XORSIGN_ABS) || (column > 2 && op->flags & STITCH__FTZ))
            return NULL;
        return rows[column - 1][(op->op == STITCH__MAX) + (op->flags & STITCH__FTZ ? 2 : 0) +
                                (op->flags & STITCH__NAN ? 4 : 0) + (op->flags & STITCH__XORSIGN_ABS ? 8 : 0)];
    }
    for (size_t i = 0; i < sizeof(half_rows) / sizeof(half_rows[0]); i++) {
        if (half_rows[i].op == op->op && half_rows[i].flags == op->flags)
            return half_rows[i].fn[column - 1];
    }
    return NULL;
}

static stitch__lanes_fn select_f64(const stitch__arith_op *op)
{
    if (op->flags == STITCH__FTZ && op->round == STITCH__RN)
        return op->op == STITCH__RCP_APPROX ? f64_rcp_approx : op->op == STITCH__RSQRT_APPROX ? f64_rsqrt_seed : NULL;
    if (op->flags || op->round != STITCH__RN) /* directed rounding: arith.c */
        return NULL;
    return f64_plain[op->op];
}

stitch__lanes_fn LANES_NAME(stitch__arith_select)(const stitch__arith_op *op)
{
    if (op->op >= STITCH__FOP_COUNT || op->args == 3)
        return NULL;
    switch (op->type) {
    case STITCH__F32: return select_f32(op);
    case STITCH__F64: return select_f64(op);
    default: return op->type < STITCH__NUM_COUNT ? select_half(op) : NULL;
    }
}

/* ---- the common conversions; arith_cvt.c has all -------------------------------------------------------------- */

#define INT_CVTS(src, in, E)                                                                                           \
    LANES(cvt_8_##src, uint32_t, in, (uint8_t)(E))                                                                     \
    LANES(cvt_s8_##src, uint32_t, in, (int8_t)(E))                                                                     \
    LANES(cvt_16_##src, uint32_t, in, (uint16_t)(E))                                                                   \
    LANES(cvt_s16_##src, uint32_t, in, (int16_t)(E))                                                                   \
    LANES(cvt_32_##src, uint32_t, in, (uint32_t)(E))                                                                   \
    LANES(cvt_64_##src, uint64_t, in, (uint64_t)(int64_t)(E))
INT_CVTS(u8, uint32_t, (uint8_t)A)
INT_CVTS(s8, uint32_t, (int8_t)A)
INT_CVTS(u16, uint32_t, (uint16_t)A)
INT_CVTS(s16, uint32_t, (int16_t)A)
INT_CVTS(u32, uint32_t, A)
INT_CVTS(s32, uint32_t, (int32_t)A)
INT_CVTS(u64, uint64_t, A)
#define INT_ROW(src)                                                                                                   \
    {                                                                                                                  \
        [STITCH__U8] = cvt_8_##src, [STITCH__S8] = cvt_s8_##src, [STITCH__U16] = cvt_16_##src,                         \
        [STITCH__S16] = cvt_s16_##src, [STITCH__U32] = cvt_32_##src, [STITCH__S32] = cvt_32_##src,                     \
        [STITCH__U64] = cvt_64_##src, [STITCH__S64] = cvt_64_##src                                                     \
    }
static const stitch__lanes_fn int_cvts[STITCH__S64 + 1][STITCH__S64 + 1] = {
    [STITCH__U8] = INT_ROW(u8),   [STITCH__S8] = INT_ROW(s8),   [STITCH__U16] = INT_ROW(u16),
    [STITCH__S16] = INT_ROW(s16), [STITCH__U32] = INT_ROW(u32), [STITCH__S32] = INT_ROW(s32),
    [STITCH__U64] = INT_ROW(u64), [STITCH__S64] = INT_ROW(u64),
};

/* Float to 32-bit integer: the value is exact in double, where the clamp is exact too; a NaN gives 0. */
INLINE uint32_t to_s32(float f)
{
    double d = f;
    d = d > 2147483647.0 ? 2147483647.0 : d;
    d = d < -2147483648.0 ? -2147483648.0 : d;
    d = f == f ? d : 0;
    return (uint32_t)(int32_t)d;
}

INLINE uint32_t to_u32(float f)
{
    double d = f;
    d = d > 4294967295.0 ? 4294967295.0 : d;
    d = d > 0 ? d : 0;
    return (uint32_t)(int32_t)(d - 2147483648.0) ^ SIGN32; /* there is no vector instruction for unsigned */
}

/* The integral neighbours; a conversion to int does not do for large values, so those are kept as they are. */
#define SMALL(f) (__builtin_fabsf(f) < 0x1p23f)
INLINE float trunc32(float f)
{
    float t = (float)(int32_t)(SMALL(f) ? f : 0);
    return SMALL(f) ? as_f32(as_u32(t) | (as_u32(f) & SIGN32)) : f;
}

INLINE float nearest32(float f)
{
    float magic = as_f32(0x4b000000u | (as_u32(f) & SIGN32)), t = (f + magic) - magic;
    return SMALL(f) ? as_f32((as_u32(t) & ~SIGN32) | (as_u32(f) & SIGN32)) : f;
}

INLINE float floor32(float f)
{
    float t = trunc32(f);
    return t > f ? t - 1 : t;
}

INLINE float ceil32(float f)
{
    float t = trunc32(f);
    return t < f ? as_f32(as_u32(t + 1) | (as_u32(f) & SIGN32)) : t;
}

LANES(cvt_s32_f32_rn, uint32_t, uint32_t, to_s32(nearest32(as_f32(A))))
LANES(cvt_s32_f32_rz, uint32_t, uint32_t, to_s32(as_f32(A)))
LANES(cvt_s32_f32_rm, uint32_t, uint32_t, to_s32(floor32(as_f32(A))))
LANES(cvt_s32_f32_rp, uint32_t, uint32_t, to_s32(ceil32(as_f32(A))))
LANES(cvt_u32_f32_rn, uint32_t, uint32_t, to_u32(nearest32(as_f32(A))))
LANES(cvt_u32_f32_rz, uint32_t, uint32_t, to_u32(trunc32(as_f32(A))))
LANES(cvt_u32_f32_rm, uint32_t, uint32_t, to_u32(floor32(as_f32(A))))
LANES(cvt_u32_f32_rp, uint32_t, uint32_t, to_u32(ceil32(as_f32(A))))
LANES(cvt_f32_f32_rn, uint32_t, uint32_t, finish32(as_u32(nearest32(as_f32(A))), 0, 0))
LANES(cvt_f32_f32_rz, uint32_t, uint32_t, finish32(as_u32(trunc32(as_f32(A))), 0, 0))
LANES(cvt_f32_f32_rm, uint32_t, uint32_t, finish32(as_u32(floor32(as_f32(A))), 0, 0))
LANES(cvt_f32_f32_rp, uint32_t, uint32_t, finish32(as_u32(ceil32(as_f32(A))), 0, 0))
LANES(cvt_f32_f32_sat, uint32_t, uint32_t, saturate32(A))
LANES(cvt_f32_f32_ftz_sat, uint32_t, uint32_t, saturate32(flush32(A)))
LANES(cvt_f32_s32, uint32_t, uint32_t, as_u32((float)(int32_t)A))
LANES(cvt_f32_u32, uint32_t, uint32_t, as_u32((float)((double)(int32_t)(A ^ SIGN32) + 2147483648.0)))
LANES(cvt_f64_s32, uint64_t, uint32_t, as_u64((double)(int32_t)A))
LANES(cvt_f64_u32, uint64_t, uint32_t, as_u64((double)(int32_t)(A ^ SIGN32) + 2147483648.0))
LANES(cvt_f32_f16, uint32_t, uint32_t, finish32(widen_f16(A & 0xffff), 0, 0))
LANES(cvt_f32_bf16, uint32_t, uint32_t, A << 16)
LANES(cvt_f16_f32, uint32_t, uint32_t, narrow_f16(A, STITCH__RN))
LANES(cvt_bf16_f32, uint32_t, uint32_t, narrow_bf16(A, STITCH__RN))
LANES(cvt_f16x2_f32, uint32_t, uint32_t, narrow_f16(A, STITCH__RN) << 16 | narrow_f16(B, STITCH__RN))
LANES(cvt_bf16x2_f32, uint32_t, uint32_t, narrow_bf16(A, STITCH__RN) << 16 | narrow_bf16(B, STITCH__RN))

static const struct {
    uint8_t dst, src, round, flags, integer;
    stitch__lanes_fn fn;
} common_cvts[] = {
    {STITCH__S32, STITCH__F32, STITCH__RN, 0, 1, cvt_s32_f32_rn},
    {STITCH__S32, STITCH__F32, STITCH__RZ, 0, 1, cvt_s32_f32_rz},
    {STITCH__S32, STITCH__F32, STITCH__RM, 0, 1, cvt_s32_f32_rm},
    {STITCH__S32, STITCH__F32, STITCH__RP, 0, 1, cvt_s32_f32_rp},
    {STITCH__U32, STITCH__F32, STITCH__RN, 0, 1, cvt_u32_f32_rn},
    {STITCH__U32, STITCH__F32, STITCH__RZ, 0, 1, cvt_u32_f32_rz},
    {STITCH__U32, STITCH__F32, STITCH__RM, 0, 1, cvt_u32_f32_rm},
    {STITCH__U32, STITCH__F32, STITCH__RP, 0, 1, cvt_u32_f32_rp},
    {STITCH__F32, STITCH__F32, STITCH__RN, 0, 1, cvt_f32_f32_rn},
    {STITCH__F32, STITCH__F32, STITCH__RZ, 0, 1, cvt_f32_f32_rz},
    {STITCH__F32, STITCH__F32, STITCH__RM, 0, 1, cvt_f32_f32_rm},
    {STITCH__F32, STITCH__F32, STITCH__RP, 0, 1, cvt_f32_f32_rp},
    {STITCH__F32, STITCH__F32, STITCH__RN, STITCH__SAT, 0, cvt_f32_f32_sat},
    {STITCH__F32, STITCH__F32, STITCH__RN, STITCH__SAT | STITCH__FTZ, 0, cvt_f32_f32_ftz_sat},
    {STITCH__F32, STITCH__S32, STITCH__RN, 0, 0, cvt_f32_s32},
    {STITCH__F32, STITCH__U32, STITCH__RN, 0, 0, cvt_f32_u32},
    {STITCH__F64, STITCH__S32, STITCH__RN, 0, 0, cvt_f64_s32},
    {STITCH__F64, STITCH__U32, STITCH__RN, 0, 0, cvt_f64_u32},
    {STITCH__F32, STITCH__F16, STITCH__RN, 0, 0, cvt_f32_f16},
    {STITCH__F32, STITCH__BF16, STITCH__RN, 0, 0, cvt_f32_bf16},
    {STITCH__F16, STITCH__F32, STITCH__RN, 0, 0, cvt_f16_f32},
    {STITCH__BF16, STITCH__F32, STITCH__RN, 0, 0, cvt_bf16_f32},
    {STITCH__F16X2, STITCH__F32, STITCH__RN, 0, 0, cvt_f16x2_f32},
    {STITCH__BF16X2, STITCH__F32, STITCH__RN, 0, 0, cvt_bf16x2_f32},
};

stitch__lanes_fn LANES_NAME(stitch__arith_select_cvt)(const stitch__arith_cvt *cvt)
{
    if (cvt->dst && cvt->src && cvt->dst <= STITCH__S64 && cvt->src <= STITCH__S64)
        return cvt->flags || cvt->round != STITCH__RN || cvt->integer ? NULL : int_cvts[cvt->src][cvt->dst];
    for (size_t i = 0; i < sizeof(common_cvts) / sizeof(common_cvts[0]); i++) {
        if (common_cvts[i].dst == cvt->dst && common_cvts[i].src == cvt->src && common_cvts[i].round == cvt->round &&
            common_cvts[i].flags == cvt->flags && common_cvts[i].integer == cvt->integer)
            return common_cvts[i].fn;
    }
    return NULL;
}
