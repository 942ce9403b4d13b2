/* SPDX-License-Identifier: MIT
 *
 * The special function unit: rcp, rsqrt, sqrt, lg2, ex2, sin, cos and tanh in their .approx forms.
 *
 * Method. The unit evaluates C0 + C1 x + C2 x^2 in fixed point; the top bits of the significand select the
 * coefficients, x is the rest. The square comes from a truncated multiplier, the sum is truncated after a constant is
 * added. This is the published method (S. F. Oberman and M. Y. Siu, "A high-performance area-efficient multifunction
 * interpolator", 2005); the widths, the constants and the truncated square were learnt from the description of an
 * earlier chip in the envytools project and hold on the H200; sqrt and tanh, which that chip lacks, were found to be of
 * the same form, from recorded results: with the hardware's coefficients this code gives the
 * hardware's bits for every input of rcp, rsqrt, sqrt, lg2, ex2, sin, cos and tanh. What a PTX instruction does around
 * the unit (scaling of subnormals, the multiplication by 1 / 2 pi) is what the compiler emits for sm_90.
 *
 * The coefficients are in arith_sfu_tables.h, which says how they were made and whether they are the hardware's.
 */
#ifndef STITCH_SIM_ARITH_SFU_H
#define STITCH_SIM_ARITH_SFU_H

#include "sim/arith_core.h"
#include "sim/arith_sfu_tables.h"

/* Square of a 17-bit number, divided by 2^19: partial products are cut below 2^18, then one bit more is dropped. */
INLINE uint32_t sfu_square(uint32_t x)
{
    uint32_t sum = 0;
#pragma GCC unroll 17
    for (int i = 0; i < 17; i++)
        sum += (x >> (18 - i)) & (0u - (x >> i & 1));
    return sum >> 1;
}

/* C0 2^s0 + C1 x + C2 2^s2 square(x), as a double: all terms and sums are integers below 2^53. */
INLINE double sfu_poly(const int32_t *c0, const int32_t *c1, const int32_t *c2, uint32_t index, uint32_t x,
                       uint32_t square, double s0, double s2)
{
    return (double)c0[index] * s0 +
           ((double)c1[index] * (double)(int32_t)x + (double)c2[index] * s2 * (double)(int32_t)square);
}

INLINE uint32_t sfu_rcp(uint32_t v)
{
    uint32_t sign = v & SIGN32, e = v >> 23 & 255, m = v & 0x7fffff;
    uint32_t x = m & 0xffff;
    double p = sfu_poly(sfu_rcp_c0, sfu_rcp_c1, sfu_rcp_c2, m >> 16, x, sfu_square(x << 1), 0x1p13, 1);
    int32_t f = (int32_t)((p + 0x47e7) * 0x1p-15) - (1 << 23); /* the sum is positive: conversion truncates */
    int32_t r = (253 - (int32_t)e) * (1 << 23) + f;            /* f = 2^23 carries into the exponent by itself */
    r = r < (1 << 23) ? 0 : r;
    r = e == 0 ? (int32_t)INF32 : r;
    r = e == 255 ? 0 : r;
    return e == 255 && m ? NAN32 : (uint32_t)r | sign;
}

INLINE uint32_t sfu_rsqrt(uint32_t v)
{
    uint32_t sign = v & SIGN32, e = v >> 23 & 255, m = v & 0x7fffff;
    int32_t half = ((int32_t)e - 127) >> 1;
    uint32_t w = m | (((e - 127) & 1) << 23), x = w & 0x1ffff;
    double p = sfu_poly(sfu_rsqrt_c0, sfu_rsqrt_c1, sfu_rsqrt_c2, w >> 17, x, sfu_square(x), 0x1p14, 4);
    int32_t f = (int32_t)((p + 0x7fff) * 0x1p-16) - (1 << 23);
    f = w ? f : 1 << 23;
    uint32_t r = (uint32_t)((126 - half) * (1 << 23) + f);
    r = e == 255 ? 0 : r;
    r = sign || (e == 255 && m) ? NAN32 : r;
    return e == 0 ? sign | INF32 : r;
}

INLINE uint32_t sfu_sqrt(uint32_t v)
{
    uint32_t sign = v & SIGN32, e = v >> 23 & 255, m = v & 0x7fffff;
    int32_t half = ((int32_t)e - 127) >> 1;
    uint32_t w = m | (((e - 127) & 1) << 23), x = w & 0x1ffff;
    double p = sfu_poly(sfu_sqrt_c0, sfu_sqrt_c1, sfu_sqrt_c2, w >> 17, x, sfu_square(x), 0x1p15, 2);
    int32_t f = (int32_t)((p + 0xffff) * 0x1p-17) - (1 << 23);
    uint32_t r = (uint32_t)((127 + half) * (1 << 23) + f);
    r = e == 255 ? INF32 : r;
    r = sign || (e == 255 && m) ? NAN32 : r;
    return e == 0 ? sign : r;
}

INLINE uint32_t sfu_lg2(uint32_t v)
{
    uint32_t e = v >> 23 & 255, m = v & 0x7fffff, x = m & 0x1ffff;
    double p = sfu_poly(sfu_lg2_c0, sfu_lg2_c1, sfu_lg2_c2, m >> 17, x, sfu_square(x), 0x1p12, 2);
    /* 36 fraction bits; the exponent is the integer part. */
    double t = __builtin_floor((p + 0x3345) * 0.25);
    t = m == 0 && e == 127 ? 0 : t;
    t += (double)((int32_t)e - 127) * 0x1p36;
    bool negative = t < 0;
    t = negative ? -1 - t : t; /* one's complement */
    uint32_t r = round32(t * 0x1p-36, 0, STITCH__RZ) | (negative ? SIGN32 : 0);
    r = e == 255 ? INF32 : r;
    r = v >> 31 || (e == 255 && m) ? NAN32 : r;
    return e == 0 ? SIGN32 | INF32 : r;
}

/* |v| 2^23 truncated to an integer, for |v| < 2^7; `extra` more bits to the left are kept modulo 2^32. */
INLINE uint32_t sfu_fixed(uint32_t v, int32_t extra)
{
    int32_t e = (int32_t)(v >> 23 & 255), shift = e - 127 + extra;
    uint32_t m = (v & 0x7fffff) | 0x800000;
    uint32_t left = shift < 32 ? (uint32_t)(shift < 0 ? 0 : shift) : 31;
    uint32_t right = shift > -24 ? (uint32_t)(shift < 0 ? -shift : 0) : 24;
    m = (m << left) >> right;
    m = shift > 31 ? 0 : m;
    return e ? m : 0;
}

INLINE uint32_t sfu_ex2(uint32_t v)
{
    uint32_t e = v >> 23 & 255, a = v & ~SIGN32;
    int32_t f = (int32_t)sfu_fixed(v & (0u - (uint32_t)(e < 134)), 0), sign = (int32_t)v >> 31;
    f = (f ^ sign) + (f & 0x7fffff ? 0 : 1 & sign); /* one's complement, except for whole numbers */
    uint32_t m = (uint32_t)f & 0x7fffff, x = m & 0x1ffff;
    double p = sfu_poly(sfu_ex2_c0, sfu_ex2_c1, sfu_ex2_c2, m >> 17, x, sfu_square(x), 0x1p13, 1);
    int32_t g = (int32_t)((p + 0x77e2) * 0x1p-15) - (1 << 23);
    int32_t exponent = (f >> 23) + 127 + (g >> 23);
    uint32_t r = (uint32_t)((f >> 23) + 127) * (1u << 23) + (uint32_t)g;
    r = exponent <= 0 ? 0 : r;
    r = exponent >= 255 ? INF32 : r;
    r = e >= 134 ? (v >> 31 ? 0 : INF32) : r;
    return (int32_t)a > (int32_t)INF32 ? NAN32 : r;
}

/* v in turns (the angle over 2 pi): two bits of quadrant and 23 bits of fraction. In three steps, each of which
 * vectorises: where in the table, the polynomial (37 fraction bits), and the float. */
INLINE uint32_t sfu_angle(uint32_t v, bool cosine)
{
    return sfu_fixed(v, 2) + (cosine ? 1u << 23 : 0);
}

INLINE double sfu_sine(uint32_t angle)
{
    uint32_t m = (angle ^ (0u - (angle >> 23 & 1))) & 0x7fffff, x = m & 0x1ffff;
    return sfu_poly(sfu_sin_c0, sfu_sin_c1, sfu_sin_c2, m >> 17, x, sfu_square(x), 0x1p11, 1);
}

INLINE uint32_t sfu_sine_float(uint32_t v, uint32_t angle, double p, bool cosine)
{
    uint32_t r = round32(p * 0x1p-37, 0, STITCH__RZ) | (((cosine ? 0 : v) ^ (angle << 7)) & SIGN32);
    return (v & INF32) == INF32 ? NAN32 : r;
}

/* tanh: the binades from 2^-8 to 2^3 have 2^bits table entries each, and x is the next 17 bits; below them the result
 * is the input, above them 1. 39 fraction bits are cut to a float. */
INLINE uint32_t sfu_tanh(uint32_t v)
{
    static const int32_t bits[11] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3},
                         start[11] = {0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43};
    uint32_t a = v & ~SIGN32, m = v & 0x7fffff;
    int32_t e = (int32_t)(a >> 23) - 119, binade = e < 0 ? 0 : e;
    binade = binade > 10 ? 10 : binade;
    int32_t k = bits[binade];
    uint32_t index = (uint32_t)start[binade] + (m >> (23 - k)), x = m >> (6 - k) & 0x1ffff;
    double p = sfu_poly(sfu_tanh_c0, sfu_tanh_c1, sfu_tanh_c2, index, x, sfu_square(x), 0x1p15, 2);
    uint32_t r = round32(p * 0x1p-39, 0, STITCH__RZ);
    r = e < 0 ? a : r;
    r = e > 10 ? 0x3f800000 : r;
    return is_nan32(v) ? NAN32 : r | (v & SIGN32);
}

/* ---- the PTX instructions around the unit, as compiled for sm_90 ------------------------------------------------ */

INLINE uint32_t rcp_approx(uint32_t v, bool ftz)
{
    if (ftz)
        return sfu_rcp(v);
    float a = as_f32(v & ~SIGN32);
    float scale = a < 0x1p-126f ? 0x1p24f : a > 0x1p126f ? 0.25f : 1.0f;
    return finish32(as_u32(as_f32(sfu_rcp(as_u32(as_f32(v) * scale))) * scale), false, false);
}

INLINE uint32_t rsqrt_approx(uint32_t v, bool ftz)
{
    if (ftz)
        return sfu_rsqrt(v);
    bool tiny = as_f32(v & ~SIGN32) < 0x1p-126f;
    uint32_t r = sfu_rsqrt(as_u32(as_f32(v) * (tiny ? 0x1p24f : 1.0f)));
    return finish32(as_u32(as_f32(r) * (tiny ? 0x1p12f : 1.0f)), false, false);
}

INLINE uint32_t sqrt_approx(uint32_t v, bool ftz)
{
    if (ftz)
        return sfu_sqrt(v);
    bool tiny = as_f32(v & ~SIGN32) < 0x1p-126f;
    uint32_t r = sfu_sqrt(as_u32(as_f32(v) * (tiny ? 0x1p24f : 1.0f)));
    return finish32(as_u32(as_f32(r) * (tiny ? 0x1p-12f : 1.0f)), false, false);
}

INLINE uint32_t lg2_approx(uint32_t v, bool ftz)
{
    if (ftz)
        return sfu_lg2(v);
    bool tiny = as_f32(v & ~SIGN32) < 0x1p-126f;
    uint32_t r = sfu_lg2(as_u32(as_f32(v) * (tiny ? 0x1p24f : 1.0f)));
    return tiny ? finish32(as_u32(as_f32(r) - 24.0f), false, false) : r;
}

/* Without .ftz: what goes in, and what is made of what comes out. */
INLINE uint32_t ex2_before(uint32_t v)
{
    float f = as_f32(v);
    return as_u32(f * (f < -126.0f ? 0.5f : 1.0f));
}

INLINE uint32_t ex2_after(uint32_t v, uint32_t r)
{
    uint32_t square = as_u32(as_f32(r) * as_f32(r));
    return as_f32(v) < -126.0f ? square : r;
}

INLINE uint32_t sincos_before(uint32_t v)
{
    return finish32(mul32(v, 0x3e22f983, STITCH__RZ), false, false); /* 1 / 2 pi as f32 */
}

INLINE uint32_t div_approx(uint32_t a, uint32_t b, bool ftz, bool full)
{
    float m = as_f32(b & ~SIGN32), scale = 1;
    if (full)
        scale = m > 0x1p126f ? 0.25f : scale;
    if (ftz) {
        a = flush32(a);
        b = flush32(b);
    } else {
        scale = m < 0x1p-126f ? 0x1p24f : scale;
    }
    uint32_t r = sfu_rcp(as_u32(as_f32(b) * scale));
    uint32_t n = as_u32(as_f32(a) * scale);
    if (ftz) {
        r = flush32(r);
        n = flush32(n);
    }
    return finish32(mul32(n, r, STITCH__RN), ftz, false);
}

/* The f64 seeds see and give the high word alone: the unit's f32 result on those 20 bits of significand, cut to 20. A
 * NaN whose payload lies in the low word is an infinity to them. */
INLINE uint64_t seed64(uint64_t v, bool root)
{
    uint64_t sign = v & 1ull << 63;
    int32_t e = (int32_t)(v >> 52 & 0x7ff), odd = (e - 1023) & 1;
    uint32_t m = (uint32_t)(v >> 32 & 0xfffff) << 3;
    uint32_t y = root ? sfu_rsqrt((127u + (uint32_t)odd) << 23 | m) : sfu_rcp(127u << 23 | m);
    int32_t exponent = (int32_t)(y >> 23) - 127 + 1023 - (root ? (e - 1023 - odd) / 2 : e - 1023);
    uint64_t r = sign | (uint64_t)(uint32_t)exponent << 52 | (uint64_t)((y & 0x7fffff) >> 3) << 32;
    r = exponent <= 0 ? sign : r;
    r = e == 0x7ff ? (root ? 0 : sign) : r;
    r = is_nan64(v >> 32 << 32) || (root && sign) ? 0x7fffffff00000000u : r;
    return e ? r : sign | 0x7ff0000000000000u;
}

/* rsqrt.approx.f64: the seed and one step of third order. */
INLINE uint64_t rsqrt_f64(uint64_t v)
{
    double d = as_f64(v), scale = 1;
    if (d == 0)
        return (v & 1ull << 63) | 0x7ff0000000000000u;
    if (is_nan64(v))
        return v | QUIET64;
    if (v >> 63)
        return NAN64;
    if (v == 0x7ff0000000000000u)
        return 0;
    if (v < 0x0010000000000000u) {
        d *= 0x1p54;
        scale = 0x1p27;
    }
    double y = as_f64(seed64(as_u64(d), true));
    double e = fma(d, -(y * y), 1.0);
    return as_u64(fma(fma(e, 0.375, 0.5), y * e, y) * scale);
}

#endif
