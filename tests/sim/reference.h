/* SPDX-License-Identifier: MIT
 *
 * A slow reference of PTX arithmetic for the tests, written from the PTX manual and independent of lib/sim/arith*:
 * values are decoded to __float128 (113 bits; exact for every input type), computed there, and rounded by one general
 * routine. Sums that 113 bits do not hold are rounded to odd first, so that the second rounding is right.
 */
#ifndef STITCH_TESTS_SIM_REFERENCE_H
#define STITCH_TESTS_SIM_REFERENCE_H

#include "sim/arith.h"

#include <fenv.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef __float128 quad;

typedef struct float_format {
    int precision; /* significand bits, the hidden one included */
    int emin, emax;
    int exponent_bits;
    uint64_t nan;
    bool ftz; /* results below the smallest normal number, rounded without a limit on the exponent, become zero */
} float_format;

static const float_format REF_F16 = {11, -14, 15, 5, 0x7fff, false}, REF_BF16 = {8, -126, 127, 8, 0x7fff, false},
                          REF_F32 = {24, -126, 127, 8, 0x7fffffff, false},
                          REF_F64 = {53, -1022, 1023, 11, 0xfff8000000000000u, false};

static inline const float_format *ref_format(unsigned type)
{
    switch (type) {
    case STITCH__F16: return &REF_F16;
    case STITCH__BF16: return &REF_BF16;
    case STITCH__F32: return &REF_F32;
    case STITCH__F64: return &REF_F64;
    default: return NULL;
    }
}

typedef struct ref_value {
    enum { REF_FINITE, REF_INF, REF_NAN } kind;
    bool negative; /* of zero and Inf too */
    quad v;
} ref_value;

/* binary128: 15 bits of exponent with bias 16383, 112 of fraction. */
static inline quad ref_pow2(int e)
{
    unsigned __int128 bits = (unsigned __int128)(16383 + e) << 112;
    quad r;
    memcpy(&r, &bits, sizeof(r));
    return r;
}

static inline int ref_exponent(quad v)
{
    unsigned __int128 bits;
    memcpy(&bits, &v, sizeof(bits));
    return (int)((uint64_t)(bits >> 112) & 0x7fff) - 16383;
}

static inline int ref_bits(const float_format *f)
{
    return f->precision + f->exponent_bits;
}

static inline ref_value ref_decode(const float_format *f, uint64_t bits)
{
    ref_value r = {REF_FINITE, false, 0};
    int fraction = f->precision - 1;
    uint64_t m = bits & ((1ull << fraction) - 1), e = bits >> fraction & ((1ull << f->exponent_bits) - 1);
    r.negative = bits >> (ref_bits(f) - 1) & 1;
    if (e == (1ull << f->exponent_bits) - 1) {
        r.kind = m ? REF_NAN : REF_INF;
        return r;
    }
    r.v = (quad)(e ? m | 1ull << fraction : m) * ref_pow2((int)(e ? e : 1) + f->emin - 1 - fraction);
    if (r.negative)
        r.v = -r.v;
    return r;
}

/* Whether q + rest, 0 <= rest < 1, is rounded up in magnitude. */
static inline bool ref_up(uint64_t q, quad rest, bool negative, stitch__round mode)
{
    switch (mode) {
    case STITCH__RN: return rest > 0.5Q || (rest == 0.5Q && (q & 1));
    case STITCH__RNA: return rest >= 0.5Q;
    case STITCH__RM: return rest > 0 && negative;
    case STITCH__RP: return rest > 0 && !negative;
    default: return false;
    }
}

/* A finite quad rounded to the format; `negative` is the sign of a zero. Values to be rounded to nearest may come
 * rounded to odd. */
static inline uint64_t ref_round(const float_format *f, quad v, bool negative, stitch__round mode)
{
    uint64_t sign = 1ull << (ref_bits(f) - 1);
    int fraction = f->precision - 1;
    if (v == 0)
        return negative ? sign : 0;
    negative = v < 0;
    quad a = negative ? -v : v;
    int e = ref_exponent(a) < f->emin ? f->emin : ref_exponent(a);
    quad scaled = a * ref_pow2(fraction - e); /* below 2^precision */
    if (e > f->emax)
        scaled = ref_pow2(f->precision);
    uint64_t q = (uint64_t)scaled;
    quad rest = scaled - (quad)q;
    if (f->ftz && a < ref_pow2(f->emin)) {
        quad full = a * ref_pow2(fraction - ref_exponent(a));
        uint64_t top = (uint64_t)full;
        top += ref_up(top, full - (quad)top, negative, mode);
        uint64_t least = top >> f->precision && ref_exponent(a) == f->emin - 1 ? 1ull << fraction : 0;
        return least | (negative ? sign : 0);
    }
    q += ref_up(q, rest, negative, mode);
    uint64_t bits =
        ((uint64_t)(e - f->emin) << fraction) + q; /* the hidden bit adds one to the exponent of normal numbers */
    uint64_t inf = ((1ull << f->exponent_bits) - 1) << fraction;
    if (bits >= inf || e > f->emax) {
        bool to_inf = mode == STITCH__RN || mode == STITCH__RNA || mode == (negative ? STITCH__RM : STITCH__RP);
        bits = to_inf ? inf : inf - 1;
    }
    return bits | (negative ? sign : 0);
}

static inline uint64_t ref_inf(const float_format *f, bool negative)
{
    return ((1ull << f->exponent_bits) - 1) << (f->precision - 1) | (negative ? 1ull << (ref_bits(f) - 1) : 0);
}

/* The sum of two quads rounded to odd in 113 bits. */
static inline quad ref_sum_odd(quad a, quad b)
{
    quad s = a + b, bb = s - a, err = (a - (s - bb)) + (b - bb);
    unsigned __int128 bits;
    if (err == 0)
        return s;
    memcpy(&bits, &s, sizeof(bits));
    if (!(bits & 1))
        bits = (err > 0) == (s > 0) ? bits + 1 : bits - 1;
    memcpy(&s, &bits, sizeof(s));
    return s;
}

/* a b + c; with `product_only`, a b. */
static inline uint64_t ref_fma(const float_format *f, uint64_t x, uint64_t y, uint64_t z, bool product_only,
                               stitch__round mode)
{
    ref_value a = ref_decode(f, x), b = ref_decode(f, y), c = ref_decode(f, z);
    bool sign = a.negative ^ b.negative;
    if (a.kind == REF_NAN || b.kind == REF_NAN || (!product_only && c.kind == REF_NAN))
        return f->nan;
    if (a.kind == REF_INF || b.kind == REF_INF) {
        if ((a.kind == REF_FINITE && a.v == 0) || (b.kind == REF_FINITE && b.v == 0))
            return f->nan;
        if (!product_only && c.kind == REF_INF && c.negative != sign)
            return f->nan;
        return ref_inf(f, sign);
    }
    if (product_only)
        return ref_round(f, a.v * b.v, sign, mode);
    if (c.kind == REF_INF)
        return ref_inf(f, c.negative);
    quad s = ref_sum_odd(a.v * b.v, c.v);
    bool zero_sign = sign == c.negative ? sign : mode == STITCH__RM;
    if (s == 0 && a.v * b.v != 0) /* exact cancellation */
        zero_sign = mode == STITCH__RM;
    return ref_round(f, s, zero_sign, mode);
}

static inline uint64_t ref_add(const float_format *f, uint64_t x, uint64_t y, stitch__round mode)
{
    uint64_t one = ref_round(f, 1, false, STITCH__RN);
    return ref_fma(f, x, one, y, false, mode);
}

static inline uint64_t ref_negate(const float_format *f, uint64_t x)
{
    return x ^ 1ull << (ref_bits(f) - 1);
}

/* Division: a quad quotient of two 24- or 53-bit numbers is exact or far enough from any tie. */
static inline uint64_t ref_div(const float_format *f, uint64_t x, uint64_t y, stitch__round mode)
{
    ref_value a = ref_decode(f, x), b = ref_decode(f, y);
    bool sign = a.negative ^ b.negative;
    if (a.kind == REF_NAN || b.kind == REF_NAN || (a.kind == REF_INF && b.kind == REF_INF))
        return f->nan;
    if (a.kind == REF_INF)
        return ref_inf(f, sign);
    if (b.kind == REF_INF)
        return ref_round(f, 0, sign, mode);
    if (b.v == 0)
        return a.v == 0 ? f->nan : ref_inf(f, sign);
    return ref_round(f, a.v / b.v, sign, mode);
}

/* Square root: a long-double or double start and Newton steps in quad. */
static inline uint64_t ref_sqrt(const float_format *f, uint64_t x, stitch__round mode)
{
    ref_value a = ref_decode(f, x);
    if (a.kind == REF_NAN || (a.negative && !(a.kind == REF_FINITE && a.v == 0)))
        return f->nan;
    if (a.kind == REF_INF)
        return ref_inf(f, false);
    if (a.v == 0)
        return ref_round(f, 0, a.negative, mode);
    quad r = sqrt((double)a.v);
    for (int i = 0; i < 3; i++)
        r = (r + a.v / r) / 2;
    /* An exact root has few bits: find it, since the last bits of r are not to be trusted. */
    double d = (double)r;
    if ((quad)d * (quad)d == a.v)
        r = d;
    return ref_round(f, r, false, mode);
}

static inline uint64_t ref_flush(const float_format *f, uint64_t x)
{
    uint64_t mask = ((1ull << f->exponent_bits) - 1) << (f->precision - 1);
    return x & mask ? x : x & 1ull << (ref_bits(f) - 1);
}

static inline bool ref_is_nan(const float_format *f, uint64_t x)
{
    return ref_decode(f, x).kind == REF_NAN;
}

static inline uint64_t ref_saturate(const float_format *f, uint64_t x)
{
    ref_value v = ref_decode(f, x);
    if (v.kind == REF_NAN || v.negative)
        return 0;
    if (v.kind == REF_INF || v.v > 1)
        return ref_round(f, 1, false, STITCH__RN);
    return x;
}

static inline uint64_t ref_minmax(const float_format *f, uint64_t x, uint64_t y, bool max, bool nan, bool xorsign)
{
    uint64_t sign = 1ull << (ref_bits(f) - 1), xs = (x ^ y) & sign;
    if (xorsign) {
        x &= ~sign;
        y &= ~sign;
    }
    ref_value a = ref_decode(f, x), b = ref_decode(f, y);
    bool na = a.kind == REF_NAN, nb = b.kind == REF_NAN;
    if ((nan && (na || nb)) || (na && nb))
        return f == &REF_F64 ? y | 0x0008000000000000 : f->nan;
    uint64_t r;
    if (na || nb) {
        r = na ? y : x;
    } else {
        /* by sign, then Inf, then value; -0 is below +0 */
        quad va = a.kind == REF_INF ? (a.negative ? -1 : 1) * ref_pow2(2000) : a.v;
        quad vb = b.kind == REF_INF ? (b.negative ? -1 : 1) * ref_pow2(2000) : b.v;
        bool a_less = va < vb || (va == vb && a.negative && !b.negative);
        r = a_less != max ? x : y;
        if (va == vb && a.negative == b.negative)
            r = x;
    }
    return xorsign ? r | xs : r;
}

/* Which operand's NaN an f64 instruction passes on, quieted, as the H200 does. */
static inline uint64_t ref_nan64(stitch__fop op, const uint64_t *x)
{
    static const uint8_t orders[4][3] = {{0, 0, 0}, {0, 1, 1}, {1, 0, 0}, {1, 2, 0}};
    const uint8_t *order = orders[op == STITCH__FMA                                             ? 3
                                  : op == STITCH__ADD || op == STITCH__SUB || op == STITCH__MUL ? 2
                                  : op == STITCH__DIV                                           ? 1
                                                                                                : 0];
    for (int i = 0; i < 3; i++)
        if (ref_is_nan(&REF_F64, x[order[i]]))
            return x[order[i]] | 0x0008000000000000u;
    return REF_F64.nan;
}

/* One floating-point instruction on one element; false where this reference does not have it. */
static inline bool ref_arith(const stitch__arith_op *op, uint64_t a, uint64_t b, uint64_t c, uint64_t *out)
{
    const float_format *f = ref_format(op->type);
    if (!f)
        return false;
    stitch__round mode = (stitch__round)op->round;
    bool ftz = op->flags & STITCH__FTZ;
    uint64_t r, one = ref_round(f, 1, false, STITCH__RN), sign = 1ull << (ref_bits(f) - 1);
    uint64_t x[3] = {a, b, c};
    float_format flushing = *f;
    flushing.ftz = true;
    const float_format *to = ftz ? &flushing : f;
    if (ftz) {
        a = ref_flush(f, a);
        b = ref_flush(f, b);
        c = ref_flush(f, c);
    }
    switch (op->op) {
    case STITCH__ADD: r = ref_add(to, a, b, mode); break;
    case STITCH__SUB: r = ref_add(to, a, ref_negate(f, b), mode); break;
    case STITCH__MUL: r = ref_fma(to, a, b, 0, true, mode); break;
    case STITCH__FMA: r = ref_fma(to, a, b, c, false, mode); break;
    case STITCH__DIV: r = ref_div(to, a, b, mode); break;
    case STITCH__RCP: r = ref_div(to, one, a, mode); break;
    case STITCH__SQRT: r = ref_sqrt(f, a, mode); break;
    case STITCH__MIN:
    case STITCH__MAX:
        r = ref_minmax(f, a, b, op->op == STITCH__MAX, op->flags & STITCH__NAN, op->flags & STITCH__XORSIGN_ABS);
        break;
    case STITCH__NEG: r = a ^ sign; break;
    case STITCH__ABS: r = a & ~sign; break;
    case STITCH__COPYSIGN: *out = (a & sign) | (b & ~sign); return true;
    default: return false;
    }
    if (ref_is_nan(f, r) && !(op->type == STITCH__F64 && (op->op == STITCH__MIN || op->op == STITCH__MAX)))
        r = op->type == STITCH__F64 ? ref_nan64((stitch__fop)op->op, x) : f->nan;
    if (ftz)
        r = ref_flush(f, r);
    if (op->flags & STITCH__SAT)
        r = ref_saturate(f, r);
    if (op->flags & STITCH__RELU && !ref_is_nan(f, r) && r & sign)
        r = 0;
    *out = r;
    return true;
}

/* ---- conversions ----------------------------------------------------------------------------------------------- */

static inline bool ref_is_int(unsigned t)
{
    return t >= STITCH__U8 && t <= STITCH__S64;
}

static inline int ref_int_bits(unsigned t)
{
    static const int bits[] = {8, 8, 16, 16, 32, 32, 64, 64};
    return bits[t - STITCH__U8];
}

static inline bool ref_int_signed(unsigned t)
{
    return t == STITCH__S8 || t == STITCH__S16 || t == STITCH__S32 || t == STITCH__S64;
}

static inline uint64_t ref_int_register(unsigned t, __int128 v)
{
    switch (t) {
    case STITCH__U8: return (uint8_t)v;
    case STITCH__S8: return (uint32_t)(int32_t)(int8_t)v;
    case STITCH__U16: return (uint16_t)v;
    case STITCH__S16: return (uint32_t)(int32_t)(int16_t)v;
    case STITCH__U32:
    case STITCH__S32: return (uint32_t)v;
    default: return (uint64_t)v;
    }
}

static inline __int128 ref_clamp(unsigned t, __int128 v)
{
    int bits = ref_int_bits(t);
    __int128 max = ((__int128)1 << (ref_int_signed(t) ? bits - 1 : bits)) - 1, min = ref_int_signed(t) ? -max - 1 : 0;
    return v > max ? max : v < min ? min : v;
}

static inline __int128 ref_load_int(unsigned t, uint64_t x)
{
    switch (t) {
    case STITCH__U8: return (uint8_t)x;
    case STITCH__S8: return (int8_t)x;
    case STITCH__U16: return (uint16_t)x;
    case STITCH__S16: return (int16_t)x;
    case STITCH__U32: return (uint32_t)x;
    case STITCH__S32: return (int32_t)x;
    case STITCH__U64: return x;
    default: return (int64_t)x;
    }
}

/* To an integral value; |v| below 2^1025. */
static inline quad ref_integral(quad v, stitch__round mode)
{
    quad a = v < 0 ? -v : v;
    if (a >= ref_pow2(112))
        return v;
    quad t = (quad)(unsigned __int128)a, rest = a - t;
    bool odd = (unsigned __int128)a & 1, negative = v < 0, up = false;
    if (mode == STITCH__RN)
        up = rest > 0.5Q || (rest == 0.5Q && odd);
    else if (mode != STITCH__RZ)
        up = rest > 0 && mode == (negative ? STITCH__RM : STITCH__RP);
    t += up;
    return negative ? -t : t;
}

/* cvt between scalar types, for types of ref_format and integers. */
static inline bool ref_convert(const stitch__arith_cvt *cvt, uint64_t x, uint64_t *out)
{
    const float_format *to = ref_format(cvt->dst), *from = ref_format(cvt->src);
    stitch__round mode = (stitch__round)cvt->round;
    if ((!to && !ref_is_int(cvt->dst)) || (!from && !ref_is_int(cvt->src)))
        return false;
    ref_value v = {REF_FINITE, false, 0};
    if (!from) {
        __int128 i = ref_load_int(cvt->src, x);
        if (!to) {
            *out = ref_int_register(cvt->dst, cvt->flags & STITCH__SAT ? ref_clamp(cvt->dst, i) : i);
            return true;
        }
        v.v = (quad)i;
    } else {
        x &= ref_bits(from) == 64 ? ~0ull : (1ull << ref_bits(from)) - 1;
        if (cvt->flags & STITCH__FTZ && from == &REF_F32 && to != &REF_F16) /* what the H200 does, for f16 */
            x = ref_flush(from, x);
        v = ref_decode(from, x);
    }
    if (!to) {
        int bits = ref_int_bits(cvt->dst);
        if (v.kind == REF_NAN) {
            bool zero = cvt->src != STITCH__F64 && bits < 64;
            *out = zero ? 0 : ref_int_register(cvt->dst, (__int128)1 << (bits - 1));
            return true;
        }
        if (v.kind == REF_INF)
            v.v = v.negative ? -ref_pow2(100) : ref_pow2(100);
        quad q = ref_integral(v.v, mode);
        q = q > ref_pow2(100) ? ref_pow2(100) : q < -ref_pow2(100) ? -ref_pow2(100) : q;
        *out = ref_int_register(cvt->dst, ref_clamp(cvt->dst, (__int128)q));
        return true;
    }
    uint64_t r;
    if (v.kind == REF_NAN) {
        r = to->nan;
        if (to == &REF_F64 || from == &REF_F64) { /* quieted; the payload stays at the top */
            uint64_t payload = x << (65 - from->precision) | 1ull << 63;
            r = ref_inf(to, x >> (ref_bits(from) - 1) & 1) | payload >> (65 - to->precision);
        }
        if (to == &REF_F64 && from == &REF_F32 && cvt->flags & STITCH__FTZ)
            r = 0x7fffffffe0000000u;
        if (to == &REF_F32 && from == &REF_BF16)
            r = x << 16;
    } else if (v.kind == REF_INF) {
        r = ref_inf(to, v.negative);
        if (cvt->flags & STITCH__SATFINITE)
            r--;
    } else {
        if (cvt->integer)
            v.v = ref_integral(v.v, mode);
        float_format flushing = *to;
        flushing.ftz = cvt->flags & STITCH__FTZ && to == &REF_F32;
        r = ref_round(&flushing, v.v, v.negative, mode);
        uint64_t magnitude = r & ~(1ull << (ref_bits(to) - 1));
        if (cvt->flags & STITCH__SATFINITE && magnitude == ref_inf(to, false))
            r--;
    }
    if (cvt->flags & STITCH__FTZ && to == &REF_F32)
        r = ref_flush(to, r);
    if (cvt->flags & STITCH__SAT)
        r = ref_saturate(to, r);
    if (cvt->flags & STITCH__RELU && !ref_is_nan(to, r) && r >> (ref_bits(to) - 1) & 1)
        r = 0;
    *out = r;
    return true;
}

/* ---- inputs ---------------------------------------------------------------------------------------------------- */

static inline uint64_t ref_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* SplitMix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Bit patterns of a type that meet its corners: zeros, subnormals, powers of two and their neighbours, the largest,
 * Inf, NaN, values near 1, and plain random ones. */
static inline uint64_t ref_pattern(unsigned type, uint64_t *state)
{
    const float_format *f = ref_format(type);
    uint64_t r = ref_random(state), kind = ref_random(state) % 16;
    int bits = f ? ref_bits(f) : ref_is_int(type) ? ref_int_bits(type) : 32;
    uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    if (!f) {
        if (kind < 4) /* near the ends and zero */
            r = (kind & 1 ? 1ull << (bits - 1) : 0) + r % 9 - 4;
        else if (kind < 8) /* a random width */
            r = r >> (r & 63);
        return r & mask;
    }
    int fraction = f->precision - 1;
    uint64_t e_mask = (1ull << f->exponent_bits) - 1, sign = (r & 1) << (bits - 1),
             m = r >> 8 & ((1ull << fraction) - 1);
    uint64_t bias = e_mask >> 1;
    switch (kind) {
    case 0: return sign;
    case 1: return sign | (m & 7);                                    /* the smallest */
    case 2: return sign | m;                                          /* subnormal */
    case 3: return (sign | 1ull << fraction) + (r >> 32) % 5 - 2;     /* around the smallest normal */
    case 4: return sign | ((e_mask << fraction) - 1 - (r >> 32) % 4); /* the largest */
    case 5: return sign | e_mask << fraction;                         /* Inf */
    case 6: return sign | e_mask << fraction | m;                     /* NaN */
    case 7: return sign | (bias << fraction);                         /* 1 */
    case 8: return sign | ((bias + r % 5 - 2) << fraction | (m & 3)); /* near powers of two near 1 */
    case 9: return sign | ((bias - (uint64_t)fraction + r % (2 * (uint64_t)fraction + 8)) << fraction | m);
    case 10:
        return sign |
               ((bias - (uint64_t)fraction + r % (2 * (uint64_t)fraction + 8)) << fraction | (m & 1) << (fraction / 2));
    default: return r & mask;
    }
}

#endif
