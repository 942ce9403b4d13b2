/* SPDX-License-Identifier: MIT
 *
 * One-lane arithmetic on bit patterns, written so that a loop over lanes vectorises: no branches, no calls, no tables.
 *
 * Directed rounding never touches the floating-point environment here. An f32 operation is done in double: products and
 * quotients of f32 numbers are then exact or far enough from any f32 number, and the error of a sum is itself a double
 * (TwoSum). `s + err` is the exact result (or has its sign and position); one conversion and one step of a unit in the
 * last place give any rounding, subnormals and overflow included. The narrower types go through an f32 rounded to odd,
 * from which a second rounding is exact (24 bits are at least two more than 11 and 8 bits need).
 */
#ifndef STITCH_SIM_ARITH_CORE_H
#define STITCH_SIM_ARITH_CORE_H

#include "sim/arith.h"

#include <math.h>
#include <string.h>

/* Always inlined: a call in a loop over lanes would keep it scalar. */
#define INLINE static inline __attribute__((always_inline))

#define NAN16   0x7fffu
#define NAN32   0x7fffffffu
#define NAN64   0xfff8000000000000u
#define QUIET64 0x0008000000000000u
#define SIGN32  0x80000000u
#define LEAST32 0x00800000u /* the smallest normal number */
#define INF32   0x7f800000u

INLINE float as_f32(uint32_t x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}

INLINE uint32_t as_u32(float f)
{
    uint32_t x;
    memcpy(&x, &f, 4);
    return x;
}

INLINE double as_f64(uint64_t x)
{
    double f;
    memcpy(&f, &x, 8);
    return f;
}

INLINE uint64_t as_u64(double f)
{
    uint64_t x;
    memcpy(&x, &f, 8);
    return x;
}

INLINE bool is_nan32(uint32_t x)
{
    return (int32_t)(x & ~SIGN32) > (int32_t)INF32;
}

INLINE bool is_nan64(uint64_t x)
{
    return (int64_t)(x & ~(1ull << 63)) > (int64_t)0x7ff0000000000000;
}

/* ---- rounding -------------------------------------------------------------------------------------------------- */

INLINE uint32_t flush32(uint32_t x)
{
    return x & INF32 ? x : x & SIGN32;
}

/* [0, 1], NaN to +0. */
INLINE uint32_t saturate32(uint32_t x)
{
    int32_t v = (int32_t)x;
    v = v > (int32_t)INF32 || v < 0 ? 0 : v;
    return (uint32_t)(v > 0x3f800000 ? 0x3f800000 : v);
}

/* What every f32 instruction does to its result. */
INLINE uint32_t finish32(uint32_t x, bool ftz, bool sat)
{
    if (ftz)
        x = flush32(x);
    if (sat)
        return saturate32(x);
    return is_nan32(x) ? NAN32 : x;
}

/* The exact value s + err, |err| below half a unit in the last place of s, in f32. A NaN in err means zero. */
INLINE uint32_t round32(double s, double err, stitch__round mode)
{
    float f = (float)s;
    uint32_t u = as_u32(f);
    double diff = s - (double)f;
    diff = diff == 0 ? err : diff;
    if (mode == STITCH__RZ)
        return u - (uint32_t)((f > 0 && diff < 0) || (f < 0 && diff > 0));
    if (mode == STITCH__RM)
        return u + (diff < 0 ? (u >> 31 ? 1u : ~0u) : 0u);
    if (mode == STITCH__RP)
        return u + (diff > 0 ? (u >> 31 ? ~0u : 1u) : 0u);
    return u;
}

/* The same rounded to odd: truncated, and the last bit set when inexact. */
INLINE uint32_t odd32(double s, double err)
{
    float f = (float)s;
    uint32_t u = as_u32(f);
    double diff = s - (double)f;
    diff = diff == 0 ? err : diff;
    /* Written with integers: GCC does not vectorise the same in bool. */
    int32_t step = (diff > 0 ? 1 : 0) - (diff < 0 ? 1 : 0);
    step = u & SIGN32 ? -step : step;
    return u + (uint32_t)(u & 1 ? 0 : step);
}

/* s + err (err as from TwoSum) as a double rounded to odd: the f32 nearest to it is the f32 nearest to the sum. */
INLINE double odd64(double s, double err)
{
    uint64_t u = as_u64(s);
    int64_t step = (err > 0 ? 1 : 0) - (err < 0 ? 1 : 0);
    step = (int64_t)u < 0 ? -step : step;
    return as_f64(u + (uint64_t)(u & 1 ? 0 : step));
}

INLINE double two_sum_error(double a, double b, double s)
{
    double bb = s - a;
    return (a - (s - bb)) + (b - bb);
}

/* .ftz looks at the result rounded to 24 bits without a limit on the exponent: s + err, nearly 2^-126, may be less than
 * that although the nearest f32 is 2^-126 itself. */
INLINE uint32_t flush_least32(uint32_t r, double s, double err, stitch__round mode)
{
    s *= 0x1p64;
    err *= 0x1p64;
    uint32_t u = mode == STITCH__RN ? as_u32((float)odd64(s, err)) : round32(s, err, mode);
    return (r & ~SIGN32) == LEAST32 && (u & ~SIGN32) < LEAST32 + (64u << 23) ? r & SIGN32 : r;
}

/* ---- f32 ------------------------------------------------------------------------------------------------------- */

INLINE uint32_t add32(uint32_t a, uint32_t b, stitch__round mode)
{
    if (mode == STITCH__RN)
        return as_u32(as_f32(a) + as_f32(b));
    double x = as_f32(a), y = as_f32(b), s = x + y;
    uint32_t u = round32(s, two_sum_error(x, y, s), mode);
    /* An exact zero is -0 when rounding down, unless both addends are +0. */
    return mode == STITCH__RM && s == 0 ? (a | b) & SIGN32 : u;
}

INLINE uint32_t mul32(uint32_t a, uint32_t b, stitch__round mode)
{
    if (mode == STITCH__RN)
        return as_u32(as_f32(a) * as_f32(b));
    return round32((double)as_f32(a) * (double)as_f32(b), 0, mode);
}

INLINE uint32_t fma32(uint32_t a, uint32_t b, uint32_t c, stitch__round mode)
{
#ifdef __FMA__
    if (mode == STITCH__RN)
        return as_u32(__builtin_fmaf(as_f32(a), as_f32(b), as_f32(c)));
#endif
    double p = (double)as_f32(a) * (double)as_f32(b), z = as_f32(c), s = p + z;
    double err = two_sum_error(p, z, s);
    if (mode == STITCH__RN)
        return as_u32((float)odd64(s, err));
    uint32_t u = round32(s, err, mode);
    return mode == STITCH__RM && s == 0 ? ((a ^ b) | c) & SIGN32 : u;
}

INLINE uint32_t div32(uint32_t a, uint32_t b, stitch__round mode)
{
    if (mode == STITCH__RN)
        return as_u32(as_f32(a) / as_f32(b));
    return round32((double)as_f32(a) / (double)as_f32(b), 0, mode);
}

/* The results of .ftz that are 2^-126, once more with care. A product has c = 0. */
INLINE uint32_t fma_least32(uint32_t r, uint32_t a, uint32_t b, uint32_t c, stitch__round mode)
{
    double p = (double)as_f32(a) * (double)as_f32(b), z = as_f32(c), s = p + z;
    return flush_least32(r, s, two_sum_error(p, z, s), mode);
}

INLINE uint32_t div_least32(uint32_t r, uint32_t a, uint32_t b, stitch__round mode)
{
    return flush_least32(r, (double)as_f32(a) / (double)as_f32(b), 0, mode);
}

INLINE uint32_t sqrt32(uint32_t a, stitch__round mode)
{
    if (mode == STITCH__RN)
        return as_u32(__builtin_sqrtf(as_f32(a)));
    return round32(__builtin_sqrt((double)as_f32(a)), 0, mode);
}

/* The smaller (sign 0) or larger (sign 1 << 31) of two non-NaN f32: -0 is below +0. As integers: negative numbers are
 * mirrored so that the order of the bits is the order of the values. */
INLINE int32_t order32(uint32_t x)
{
    return (int32_t)(x ^ ((uint32_t)((int32_t)x >> 31) >> 1));
}

INLINE uint32_t minmax32(uint32_t a, uint32_t b, bool max, bool nan, bool xorsign)
{
    uint32_t sign = xorsign ? (a ^ b) & SIGN32 : 0;
    if (xorsign) {
        a &= ~SIGN32;
        b &= ~SIGN32;
    }
    bool na = is_nan32(a), nb = is_nan32(b);
    bool first = max ? order32(a) > order32(b) : order32(a) < order32(b);
    uint32_t r = first ? a : b;
    r = na ? b : nb ? a : r;
    r |= sign;
    return (nan ? na | nb : na & nb) ? NAN32 : r;
}

/* ---- f16 and bf16 ---------------------------------------------------------------------------------------------- */

INLINE uint32_t flush16(uint32_t h)
{
    return h & 0x7c00 ? h : h & 0x8000;
}

INLINE uint32_t widen_f16(uint32_t h)
{
    uint32_t m = h & 0x7fff;
    /* Exact for subnormals too: the bits as a (tiny) f32, times the ratio of the two biases. */
    uint32_t v = as_u32(as_f32(m << 13) * 0x1p112f);
    v = m >= 0x7c00 ? (m << 13) | INF32 : v;
    return v | (h & 0x8000) << 16;
}

INLINE uint32_t widen_bf16(uint32_t h)
{
    return h << 16;
}

/* Adds the rounding increment to q = sig >> shift. */
INLINE uint32_t round_bits(uint32_t q, uint32_t rest, uint32_t half, bool negative, stitch__round mode)
{
    if (mode == STITCH__RZ)
        return q;
    if (mode == STITCH__RM)
        return q + (uint32_t)(negative && rest != 0);
    if (mode == STITCH__RP)
        return q + (uint32_t)(!negative && rest != 0);
    if (mode == STITCH__RNA)
        return q + (uint32_t)(rest >= half);
    return q + (uint32_t)(rest > half || (rest == half && (q & 1)));
}

INLINE uint32_t narrow_f16(uint32_t x, stitch__round mode)
{
    uint32_t a = x & ~SIGN32, e = a >> 23;
    bool negative = x >> 31;
    uint32_t shift = e < 113 ? 126 - e : 13;
    shift = shift > 31 ? 31 : shift;
    uint32_t sig = e < 113 ? (e ? (a & 0x7fffff) | 0x800000 : a) : a - (112u << 23);
    uint32_t q = round_bits(sig >> shift, sig & ((1u << shift) - 1), 1u << (shift - 1), negative, mode);
    bool to_inf = mode == STITCH__RN || mode == STITCH__RNA || mode == (negative ? STITCH__RM : STITCH__RP);
    q = (int32_t)q >= 0x7c00 ? (to_inf || a == INF32 ? 0x7c00 : 0x7bff) : q;
    q |= (uint32_t)negative << 15;
    return (int32_t)a > (int32_t)INF32 ? NAN16 : q;
}

/* Toward zero, but what is too large for f16 is infinite: how the special function unit cuts its results. */
INLINE uint32_t cut_f16(uint32_t x)
{
    uint32_t h = narrow_f16(x, STITCH__RZ);
    return (int32_t)(x & ~SIGN32) >= 0x47800000 && !is_nan32(x) ? (x >> 16 & 0x8000) | 0x7c00 : h;
}

INLINE uint32_t narrow_bf16(uint32_t x, stitch__round mode)
{
    uint32_t q = round_bits(x >> 16, x & 0xffff, 0x8000, x >> 31, mode);
    return is_nan32(x) ? NAN16 : q;
}

/* Sum, product and fused sum as an f32 from which one more rounding gives the result. */
INLINE uint32_t half_fma(uint32_t a, uint32_t b, uint32_t c, bool bf)
{
    if (!bf) { /* products of f16 are exact in f32 */
        float p = as_f32(a) * as_f32(b), z = as_f32(c), s = p + z;
        float bb = s - p, err = (p - (s - bb)) + (z - bb);
        uint32_t u = as_u32(s);
        int32_t step = (err > 0 ? 1 : 0) - (err < 0 ? 1 : 0);
        step = u & SIGN32 ? -step : step;
        return u + (uint32_t)(u & 1 ? 0 : step);
    }
    double p = (double)as_f32(a) * (double)as_f32(b), z = as_f32(c), s = p + z;
    return odd32(s, two_sum_error(p, z, s));
}

INLINE uint32_t half_mul(uint32_t a, uint32_t b, bool bf)
{
    if (!bf)
        return as_u32(as_f32(a) * as_f32(b));
    return odd32((double)as_f32(a) * (double)as_f32(b), 0);
}

INLINE uint32_t widen_half(uint32_t h, bool bf)
{
    return bf ? widen_bf16(h & 0xffff) : widen_f16(h & 0xffff);
}

INLINE uint32_t narrow_half(uint32_t x, bool bf, bool ftz, bool sat, bool relu)
{
    if (ftz) /* f16 only; as f32 does: below 2^-14 when rounded to 11 bits */
        x = (x & ~SIGN32) < 0x387ff000 ? x & SIGN32 : x;
    uint32_t h = bf ? narrow_bf16(x, STITCH__RN) : narrow_f16(x, STITCH__RN);
    bool nan = (h & 0x7fff) > (bf ? 0x7f80u : 0x7c00u);
    if (sat) {
        uint32_t one = bf ? 0x3f80 : 0x3c00;
        h = nan || h >> 15 ? 0 : h > one ? one : h;
    }
    if (relu)
        h = h >> 15 ? 0 : h;
    return h;
}

/* ---- f64 ------------------------------------------------------------------------------------------------------- */

/* A NaN result is an operand's NaN, quieted; of several that of b, else of c, else of a. Operands that an instruction
 * lacks are 0. */
INLINE uint64_t finish64(uint64_t r, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t nan = is_nan64(a) ? a | QUIET64 : NAN64;
    nan = is_nan64(c) ? c | QUIET64 : nan;
    nan = is_nan64(b) ? b | QUIET64 : nan;
    return is_nan64(r) ? nan : r;
}

/* Division is a sequence of instructions: the dividend's NaN comes first. */
INLINE uint64_t finish_div64(uint64_t r, uint64_t a, uint64_t b)
{
    return finish64(r, b, a, 0);
}

INLINE int64_t order64(uint64_t x)
{
    return (int64_t)(x ^ ((uint64_t)((int64_t)x >> 63) >> 1));
}

/* Two NaNs give the second, quieted: that is what the instruction sequence for sm_90 does (a compare and a select). */
INLINE uint64_t minmax64(uint64_t a, uint64_t b, bool max)
{
    bool na = is_nan64(a), nb = is_nan64(b);
    bool first = max ? order64(a) > order64(b) : order64(a) < order64(b);
    uint64_t r = first ? a : b;
    r = na ? b : nb ? a : r;
    return na && nb ? b | QUIET64 : r;
}

#endif
