/* SPDX-License-Identifier: MIT
 *
 * cvt: every conversion that PTX has up to sm_90, one lane at a time. arith_lanes.h has vector forms of the common
 * ones.
 *
 * What the PTX manual leaves open is settled as the compiled code for sm_90 does it: bf16 to f32 is a shift (NaN
 * payloads stay), .rna.tf32 adds half a unit to the bits of anything but Inf and NaN and clears the low 13 bits of
 * everything.
 */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#include "sim/arith_core.h"
#include "sim/arith_lanes_select.h"

#include <stddef.h>

typedef stitch__arith_cvt cvt_spec;

static bool is_int(unsigned t)
{
    return t >= STITCH__U8 && t <= STITCH__S64;
}

static unsigned int_bits(unsigned t)
{
    return 8u << ((t - STITCH__U8) / 2);
}

static bool int_signed(unsigned t)
{
    return (t - STITCH__U8) & 1;
}

/* ---- integers -------------------------------------------------------------------------------------------------- */

typedef struct whole {
    uint64_t magnitude;
    bool negative;
} whole;

static whole load_int(unsigned type, uint64_t bits)
{
    unsigned drop = 64 - int_bits(type);
    whole w = {bits << drop >> drop, false};
    if (int_signed(type) && bits << drop >> 63) {
        w.negative = true;
        w.magnitude = (0 - (bits << drop >> drop)) << drop >> drop;
    }
    return w;
}

/* As registers hold it: narrow signed results are sign-extended to 32 bits. */
static uint64_t register_int(unsigned type, uint64_t bits)
{
    switch (type) {
    case STITCH__U8: return (uint8_t)bits;
    case STITCH__S8: return (uint32_t)(int8_t)bits;
    case STITCH__U16: return (uint16_t)bits;
    case STITCH__S16: return (uint32_t)(int16_t)bits;
    case STITCH__U32:
    case STITCH__S32: return (uint32_t)bits;
    default: return bits;
    }
}

static uint64_t store_int(unsigned type, whole w, bool clamp)
{
    unsigned bits = int_bits(type);
    uint64_t top = 1ull << (bits - 1);
    if (clamp) {
        uint64_t max = int_signed(type) ? (w.negative ? top : top - 1) : w.negative ? 0 : top - 1 + top;
        w.magnitude = w.magnitude > max ? max : w.magnitude;
    }
    return register_int(type, w.negative ? 0 - w.magnitude : w.magnitude);
}

/* magnitude rounded to `keep` significant bits, as a double (exact: at most 53). Rounding to odd when `odd`. */
static double round_whole(whole w, unsigned keep, stitch__round mode, bool odd)
{
    unsigned width = w.magnitude ? 64 - (unsigned)__builtin_clzll(w.magnitude) : 0;
    double value = (double)w.magnitude;
    if (width > keep) {
        unsigned shift = width - keep;
        uint64_t q = w.magnitude >> shift, rest = w.magnitude & ((1ull << shift) - 1), half = 1ull << (shift - 1);
        if (odd)
            q |= rest != 0;
        else if (mode == STITCH__RN)
            q += rest > half || (rest == half && (q & 1));
        else
            q += rest && mode == (w.negative ? STITCH__RM : STITCH__RP);
        value = ldexp((double)q, (int)shift);
    }
    return w.negative ? -value : value;
}

/* ---- floating point -------------------------------------------------------------------------------------------- */

static uint64_t widen_nan(uint32_t x)
{
    return (uint64_t)(x & SIGN32) << 32 | 0x7ff8000000000000u | (uint64_t)(x & 0x7fffff) << 29;
}

/* A NaN of f64 in a narrower type keeps its sign and the top of its payload. */
static uint32_t narrow_nan(uint64_t x, unsigned fraction, unsigned exponent)
{
    uint32_t top = (uint32_t)(x >> 63) << exponent | ((1u << exponent) - 1);
    return top << fraction | (uint32_t)((x | QUIET64) << 12 >> (64 - fraction));
}

/* The source as a double, exact; NaNs stay NaNs. */
static double load_float(unsigned type, uint64_t bits, bool ftz)
{
    uint32_t x = (uint32_t)bits;
    if (type == STITCH__F64)
        return as_f64(bits);
    if (type == STITCH__F16)
        x = finish32(widen_f16(x & 0xffff), false, false);
    else if (type == STITCH__BF16)
        x = widen_bf16(x & 0xffff);
    else if (ftz)
        x = flush32(x);
    return is_nan32(x) ? as_f64(widen_nan(x)) : (double)as_f32(x);
}

static double integral(double d, stitch__round mode)
{
    switch (mode) {
    case STITCH__RZ: return trunc(d);
    case STITCH__RM: return floor(d);
    case STITCH__RP: return ceil(d);
    default: return rint(d);
    }
}

static uint64_t float_to_int(const cvt_spec *cvt, double d)
{
    unsigned bits = int_bits(cvt->dst);
    if (d != d)
        return cvt->src != STITCH__F64 && bits < 64 ? 0 : register_int(cvt->dst, 1ull << (bits - 1));
    d = integral(d, cvt->round);
    whole w = {0, d < 0};
    double m = fabs(d);
    w.magnitude = m >= 0x1p64 ? UINT64_MAX : (uint64_t)m;
    return store_int(cvt->dst, w, true);
}

/* Finite results that overflowed, and infinities, become the largest number. */
static uint32_t finite16(uint32_t h, bool bf)
{
    uint32_t inf = bf ? 0x7f80 : 0x7c00;
    return (h & 0x7fff) == inf ? h - 1 : h;
}

static uint64_t store_float(const cvt_spec *cvt, double d)
{
    bool sat = cvt->flags & STITCH__SAT, relu = cvt->flags & STITCH__RELU;
    if (cvt->dst == STITCH__F64) {
        if (sat)
            return d > 0 ? as_u64(d < 1 ? d : 1) : 0;
        return as_u64(d);
    }
    if (cvt->dst == STITCH__F32) {
        uint32_t x = d != d ? NAN32 : round32(d, 0, cvt->round);
        if (cvt->flags & STITCH__FTZ)
            x = flush_least32(x, d, 0, cvt->round);
        return finish32(x, cvt->flags & STITCH__FTZ, sat);
    }
    bool bf = cvt->dst == STITCH__BF16;
    uint32_t x = d != d ? NAN32 : odd32(d, 0), h;
    if (fabs(d) == HUGE_VAL)
        x = as_u32((float)d);
    h = bf ? narrow_bf16(x, cvt->round) : narrow_f16(x, cvt->round);
    if (cvt->flags & STITCH__SATFINITE)
        h = finite16(h, bf);
    bool nan = d != d;
    if (sat)
        h = nan || h >> 15 ? 0 : h > (bf ? 0x3f80u : 0x3c00u) ? (bf ? 0x3f80u : 0x3c00u) : h;
    if (relu)
        h = h >> 15 ? 0 : h;
    return h;
}

static uint32_t to_tf32(uint32_t x, const cvt_spec *cvt)
{
    uint32_t a = x & ~SIGN32, r;
    if (cvt->round == STITCH__RNA) {
        r = (a < INF32 ? x + 0x1000 : x) & 0xffffe000;
        if (cvt->flags & STITCH__SATFINITE && (r & ~SIGN32) >= INF32)
            r -= 0x2000;
        return r;
    }
    uint32_t q = round_bits(x >> 13, x & 0x1fff, 0x1000, x >> 31, cvt->round) << 13;
    if (a > INF32)
        return NAN32 & 0xffffe000;
    if (cvt->flags & STITCH__SATFINITE && (q & ~SIGN32) == INF32)
        q -= 0x2000;
    return cvt->flags & STITCH__RELU && q >> 31 ? 0 : q;
}

/* ---- fp8 ------------------------------------------------------------------------------------------------------- */

uint8_t stitch__fp8_from_f32(uint32_t x, stitch__num format, bool relu)
{
    bool e5 = format == STITCH__E5M2X2;
    int bias = e5 ? 15 : 7;
    uint32_t fraction = e5 ? 2 : 3, max = e5 ? 0x7b : 0x7e, a = x & ~SIGN32, sign = x >> 31 << 7;
    if (a > INF32)
        return 0x7f;
    if (relu && sign)
        return 0;
    int e = (int)(a >> 23) - 127 + bias;
    uint32_t shift = 23 - fraction, sig = a & 0x7fffff, q;
    if (a >> 23)
        sig |= 0x800000;
    if (e < 1) { /* a subnormal of the narrow type */
        shift += (uint32_t)(1 - e);
        shift = shift > 31 ? 31 : shift;
        q = 0;
    } else {
        q = (uint32_t)(e - 1) << fraction; /* the leading one of sig adds the last exponent step */
    }
    q += round_bits(sig >> shift, sig & ((1u << shift) - 1), 1u << (shift - 1), false, STITCH__RN);
    return (uint8_t)(sign | (q > max ? max : q));
}

uint16_t stitch__f16_from_fp8(uint8_t x, stitch__num format)
{
    if (format == STITCH__E5M2X2)
        return (x & 0x7f) > 0x7c ? NAN16 : (uint16_t)(x << 8);
    uint32_t m = x & 0x7f;
    if (m == 0x7f)
        return NAN16;
    /* All e4m3 numbers are normal f16 numbers: scale through f32. */
    uint32_t f = as_u32(as_f32(m << 20) * 0x1p120f);
    return (uint16_t)(narrow_f16(f, STITCH__RN) | (uint32_t)(x >> 7) << 15);
}

/* ---- one lane -------------------------------------------------------------------------------------------------- */

static uint64_t convert_packed(const cvt_spec *cvt, uint64_t a, uint64_t b)
{
    bool relu = cvt->flags & STITCH__RELU;
    if (cvt->dst == STITCH__TF32)
        return to_tf32((uint32_t)a, cvt);
    if (cvt->dst == STITCH__E4M3X2 || cvt->dst == STITCH__E5M2X2) {
        uint32_t hi = (uint32_t)a, lo = (uint32_t)b;
        if (cvt->src == STITCH__F16X2) {
            hi = widen_f16((uint32_t)a >> 16 & 0xffff);
            lo = widen_f16((uint32_t)a & 0xffff);
        }
        return (uint64_t)(stitch__fp8_from_f32(hi, cvt->dst, relu) << 8 | stitch__fp8_from_f32(lo, cvt->dst, relu));
    }
    if (cvt->src == STITCH__E4M3X2 || cvt->src == STITCH__E5M2X2) {
        uint32_t lo = stitch__f16_from_fp8((uint8_t)a, cvt->src),
                 hi = stitch__f16_from_fp8((uint8_t)(a >> 8), cvt->src);
        if (relu) {
            lo = lo >> 15 ? 0 : lo;
            hi = hi >> 15 ? 0 : hi;
        }
        return hi << 16 | lo;
    }
    cvt_spec one = *cvt;
    one.dst = cvt->dst == STITCH__F16X2 ? STITCH__F16 : STITCH__BF16;
    return store_float(&one, load_float(STITCH__F32, a, false)) << 16 |
           store_float(&one, load_float(STITCH__F32, b, false));
}

/* A NaN between floating-point types, without .sat: conversions from and to f64 keep the payload, and so does the shift
 * that makes an f32 of a bf16; the rest give the canonical NaN. */
static uint64_t convert_nan(const cvt_spec *cvt, uint64_t a)
{
    if (cvt->src == STITCH__F64) {
        switch (cvt->dst) {
        case STITCH__F32: return narrow_nan(a, 23, 8);
        case STITCH__F16: return narrow_nan(a, 10, 5);
        case STITCH__BF16: return narrow_nan(a, 7, 8);
        default: return a | QUIET64;
        }
    }
    uint32_t x = (uint32_t)a;
    switch (cvt->dst) {
    case STITCH__F64:
        if (cvt->src == STITCH__F16)
            return (a & 0x8000) << 48 | 0x7ff8000000000000u | (a & 0x3ff) << 42;
        return widen_nan(cvt->src == STITCH__BF16 ? x << 16 : cvt->flags & STITCH__FTZ ? NAN32 : x);
    case STITCH__F32: return cvt->src == STITCH__BF16 && !cvt->integer ? x << 16 : NAN32;
    default: return NAN16;
    }
}

static uint64_t convert(const cvt_spec *cvt, uint64_t a, uint64_t b)
{
    if (cvt->dst > STITCH__F64 || cvt->src > STITCH__F64)
        return convert_packed(cvt, a, b);
    if (is_int(cvt->src)) {
        whole w = load_int(cvt->src, a);
        if (is_int(cvt->dst))
            return store_int(cvt->dst, w, cvt->flags & STITCH__SAT);
        bool half = cvt->dst == STITCH__F16 || cvt->dst == STITCH__BF16;
        return store_float(cvt, round_whole(w, cvt->dst == STITCH__F64 ? 53 : 24, cvt->round, half));
    }
    /* .ftz concerns f32 results and what becomes one or an integer; a rounded-up f16 of a subnormal f32 is not zero. */
    double d = load_float(cvt->src, a, cvt->flags & STITCH__FTZ && cvt->dst != STITCH__F16);
    if (is_int(cvt->dst))
        return float_to_int(cvt, d);
    if (d != d && !(cvt->flags & STITCH__SAT))
        return convert_nan(cvt, a);
    if (cvt->integer && d == d)
        d = integral(d, cvt->round);
    if (cvt->dst == STITCH__F32 && cvt->src == STITCH__BF16 && !(cvt->flags & STITCH__SAT))
        return (uint32_t)a << 16;
    return store_float(cvt, d);
}

/* ---- 32 lanes -------------------------------------------------------------------------------------------------- */

static bool wide(unsigned type)
{
    return type == STITCH__U64 || type == STITCH__S64 || type == STITCH__F64;
}

static void convert_lanes(const cvt_spec *cvt, void *d, const void *a, const void *b)
{
    bool wide_src = wide(cvt->src), wide_dst = wide(cvt->dst);
    for (int i = 0; i < STITCH__LANES; i++) {
        uint64_t x = wide_src ? ((const uint64_t *)a)[i] : ((const uint32_t *)a)[i];
        uint64_t y = b ? ((const uint32_t *)b)[i] : 0;
        uint64_t r = convert(cvt, x, y);
        if (wide_dst)
            ((uint64_t *)d)[i] = r;
        else
            ((uint32_t *)d)[i] = (uint32_t)r;
    }
}

/* One tiny function for each conversion, since a function pointer is all that a decoded instruction holds. */
#define ROUNDS(X, ...) X(RN, __VA_ARGS__) X(RZ, __VA_ARGS__) X(RM, __VA_ARGS__) X(RP, __VA_ARGS__)
#define INTS(X, ...)                                                                                                   \
    X(U8, __VA_ARGS__)                                                                                                 \
    X(S8, __VA_ARGS__)                                                                                                 \
    X(U16, __VA_ARGS__)                                                                                                \
    X(S16, __VA_ARGS__)                                                                                                \
    X(U32, __VA_ARGS__)                                                                                                \
    X(S32, __VA_ARGS__)                                                                                                \
    X(U64, __VA_ARGS__)                                                                                                \
    X(S64, __VA_ARGS__)
#define INTS_AGAIN(X, ...)                                                                                             \
    X(U8, __VA_ARGS__)                                                                                                 \
    X(S8, __VA_ARGS__)                                                                                                 \
    X(U16, __VA_ARGS__)                                                                                                \
    X(S16, __VA_ARGS__)                                                                                                \
    X(U32, __VA_ARGS__)                                                                                                \
    X(S32, __VA_ARGS__)                                                                                                \
    X(U64, __VA_ARGS__)                                                                                                \
    X(S64, __VA_ARGS__)

/* Z names the flags in the identifier. */
#define FLAGS_none     0
#define FLAGS_ftz      STITCH__FTZ
#define FLAGS_sat      STITCH__SAT
#define FLAGS_ftz_sat  (STITCH__FTZ | STITCH__SAT)
#define FLAGS_relu     STITCH__RELU
#define FLAGS_fin      STITCH__SATFINITE
#define FLAGS_relu_fin (STITCH__RELU | STITCH__SATFINITE)

#define INT_TO_INT(src, dst, X) X(dst, src, RN, sat, 0)
#define INT_TO_INT_ALL(dst, X)  INTS_AGAIN(INT_TO_INT, dst, X)
#define INT_TO_FLOAT(src, r, X)                                                                                        \
    X(F16, src, r, none, 0)                                                                                            \
    X(BF16, src, r, none, 0)                                                                                           \
    X(F32, src, r, none, 0) X(F64, src, r, none, 0) X(F16, src, r, sat, 0) X(F32, src, r, sat, 0) X(F64, src, r, sat, 0)
#define INT_TO_FLOAT_ALL(r, X) INTS(INT_TO_FLOAT, r, X)
#define FLOAT_TO_INT(dst, r, X)                                                                                        \
    X(dst, F16, r, none, 1)                                                                                            \
    X(dst, BF16, r, none, 1)                                                                                           \
    X(dst, F32, r, none, 1)                                                                                            \
    X(dst, F64, r, none, 1)                                                                                            \
    X(dst, F32, r, ftz, 1)                                                                                             \
    X(dst, F16, r, sat, 1)                                                                                             \
    X(dst, BF16, r, sat, 1) X(dst, F32, r, sat, 1) X(dst, F64, r, sat, 1) X(dst, F32, r, ftz_sat, 1)
#define FLOAT_TO_INT_ALL(r, X) INTS(FLOAT_TO_INT, r, X)
#define INTEGRAL(r, X)                                                                                                 \
    X(F16, F16, r, none, 1)                                                                                            \
    X(F16, F16, r, sat, 1)                                                                                             \
    X(BF16, BF16, r, none, 1)                                                                                          \
    X(F32, F32, r, none, 1)                                                                                            \
    X(F32, F32, r, sat, 1)                                                                                             \
    X(F32, F32, r, ftz, 1) X(F32, F32, r, ftz_sat, 1) X(F64, F64, r, none, 1) X(F64, F64, r, sat, 1)
#define NARROWING(r, X)                                                                                                \
    X(F32, F64, r, none, 0)                                                                                            \
    X(F32, F64, r, sat, 0)                                                                                             \
    X(F32, F64, r, ftz, 0)                                                                                             \
    X(F32, F64, r, ftz_sat, 0)                                                                                         \
    X(F16, F64, r, none, 0)                                                                                            \
    X(F16, F64, r, sat, 0)                                                                                             \
    X(BF16, F64, r, none, 0)                                                                                           \
    X(F16, F32, r, none, 0)                                                                                            \
    X(F16, F32, r, sat, 0)                                                                                             \
    X(F16, F32, r, ftz, 0)                                                                                             \
    X(F16, F32, r, ftz_sat, 0)                                                                                         \
    X(BF16, F32, r, none, 0)                                                                                           \
    X(F16, F32, r, relu, 0)                                                                                            \
    X(BF16, F32, r, relu, 0)                                                                                           \
    X(F16, F32, r, fin, 0)                                                                                             \
    X(BF16, F32, r, fin, 0)                                                                                            \
    X(F16, F32, r, relu_fin, 0)                                                                                        \
    X(BF16, F32, r, relu_fin, 0)                                                                                       \
    X(F16, BF16, r, none, 0)                                                                                           \
    X(BF16, F16, r, none, 0)                                                                                           \
    X(F16X2, F32, r, none, 0)                                                                                          \
    X(BF16X2, F32, r, none, 0)                                                                                         \
    X(F16X2, F32, r, relu, 0)                                                                                          \
    X(BF16X2, F32, r, relu, 0)                                                                                         \
    X(F16X2, F32, r, fin, 0)                                                                                           \
    X(BF16X2, F32, r, fin, 0) X(F16X2, F32, r, relu_fin, 0) X(BF16X2, F32, r, relu_fin, 0)
#define TO_TF32(r, X)                                                                                                  \
    X(TF32, F32, r, none, 0)                                                                                           \
    X(TF32, F32, r, fin, 0)
#define OTHERS(X)                                                                                                      \
    X(F32, F16, RN, none, 0)                                                                                           \
    X(F32, F16, RN, ftz, 0)                                                                                            \
    X(F32, F16, RN, sat, 0)                                                                                            \
    X(F32, F16, RN, ftz_sat, 0)                                                                                        \
    X(F32, BF16, RN, none, 0)                                                                                          \
    X(F64, F16, RN, none, 0)                                                                                           \
    X(F64, F16, RN, sat, 0)                                                                                            \
    X(F64, BF16, RN, none, 0)                                                                                          \
    X(F64, F32, RN, none, 0)                                                                                           \
    X(F64, F32, RN, ftz, 0)                                                                                            \
    X(F64, F32, RN, sat, 0)                                                                                            \
    X(F64, F32, RN, ftz_sat, 0)                                                                                        \
    X(F16, F16, RN, none, 0)                                                                                           \
    X(F16, F16, RN, sat, 0)                                                                                            \
    X(BF16, BF16, RN, none, 0)                                                                                         \
    X(F32, F32, RN, none, 0)                                                                                           \
    X(F32, F32, RN, ftz, 0)                                                                                            \
    X(F32, F32, RN, sat, 0)                                                                                            \
    X(F32, F32, RN, ftz_sat, 0)                                                                                        \
    X(F64, F64, RN, none, 0)                                                                                           \
    X(F64, F64, RN, sat, 0)                                                                                            \
    TO_TF32(RN, X)                                                                                                     \
    TO_TF32(RZ, X)                                                                                                     \
    TO_TF32(RNA, X)                                                                                                    \
    X(TF32, F32, RN, relu, 0)                                                                                          \
    X(TF32, F32, RZ, relu, 0)                                                                                          \
    X(TF32, F32, RN, relu_fin, 0)                                                                                      \
    X(TF32, F32, RZ, relu_fin, 0)                                                                                      \
    X(E4M3X2, F32, RN, fin, 0)                                                                                         \
    X(E5M2X2, F32, RN, fin, 0)                                                                                         \
    X(E4M3X2, F32, RN, relu_fin, 0)                                                                                    \
    X(E5M2X2, F32, RN, relu_fin, 0)                                                                                    \
    X(E4M3X2, F16X2, RN, fin, 0)                                                                                       \
    X(E5M2X2, F16X2, RN, fin, 0)                                                                                       \
    X(E4M3X2, F16X2, RN, relu_fin, 0)                                                                                  \
    X(E5M2X2, F16X2, RN, relu_fin, 0)                                                                                  \
    X(F16X2, E4M3X2, RN, none, 0)                                                                                      \
    X(F16X2, E5M2X2, RN, none, 0)                                                                                      \
    X(F16X2, E4M3X2, RN, relu, 0)                                                                                      \
    X(F16X2, E5M2X2, RN, relu, 0)
#define ALL(X)                                                                                                         \
    INTS(INT_TO_INT_ALL, X)                                                                                            \
    ROUNDS(INT_TO_FLOAT_ALL, X)                                                                                        \
    ROUNDS(FLOAT_TO_INT_ALL, X) ROUNDS(INTEGRAL, X) ROUNDS(NARROWING, X) OTHERS(X)

#define SPEC(dst, src, r, z, i)                                                                                        \
    {                                                                                                                  \
        STITCH__##dst, STITCH__##src, STITCH__##r, FLAGS_##z, i                                                        \
    }
#define DEFINE(dst, src, r, z, i)                                                                                      \
    static void dst##_##src##_##r##_##z##i(void *d, const void *a, const void *b, const void *c)                       \
    {                                                                                                                  \
        static const cvt_spec spec = SPEC(dst, src, r, z, i);                                                          \
        (void)c;                                                                                                       \
        convert_lanes(&spec, d, a, b);                                                                                 \
    }
ALL(DEFINE)

#define ENTRY(dst, src, r, z, i) {SPEC(dst, src, r, z, i), dst##_##src##_##r##_##z##i},
static const struct {
    cvt_spec spec;
    stitch__lanes_fn fn;
} conversions[] = {ALL(ENTRY)};

/* Forms that the lists above make and PTX refuses. */
static bool refused(const stitch__arith_cvt *cvt)
{
    bool bf16 = cvt->dst == STITCH__BF16 || cvt->src == STITCH__BF16;
    if (!is_int(cvt->dst) || !is_int(cvt->src)) {
        unsigned other = is_int(cvt->dst) ? cvt->dst : cvt->src;
        return bf16 && is_int(other) && (int_bits(other) == 8 || (is_int(cvt->dst) && cvt->flags & STITCH__SAT));
    }
    /* .sat between integers only where it can do something. */
    if (!(cvt->flags & STITCH__SAT))
        return false;
    if (int_signed(cvt->src) && !int_signed(cvt->dst))
        return false;
    return int_bits(cvt->dst) >= int_bits(cvt->src) + (unsigned)(!int_signed(cvt->src) && int_signed(cvt->dst));
}

stitch__lanes_fn stitch__arith_lanes_cvt(const stitch__arith_cvt *cvt)
{
    stitch__lanes_fn fn = NULL;
    if (refused(cvt))
        return NULL;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        fn = stitch__arith_select_cvt_avx2(cvt);
#endif
    if (!fn)
        fn = stitch__arith_select_cvt_generic(cvt);
    for (size_t i = 0; !fn && i < sizeof(conversions) / sizeof(conversions[0]); i++) {
        const cvt_spec *s = &conversions[i].spec;
        if (s->dst == cvt->dst && s->src == cvt->src && s->round == cvt->round && s->flags == cvt->flags &&
            s->integer == cvt->integer)
            fn = conversions[i].fn;
    }
    return fn;
}

uint64_t stitch__arith_eval_cvt(const stitch__arith_cvt *cvt, uint64_t a, uint64_t b)
{
    stitch__lanes_fn fn = stitch__arith_lanes_cvt(cvt);
    uint64_t in[STITCH__LANES] = {a}, out[STITCH__LANES] = {0};
    uint32_t in32[STITCH__LANES] = {(uint32_t)a}, second[STITCH__LANES] = {(uint32_t)b}, out32[STITCH__LANES] = {0};
    if (!fn)
        return 0;
    fn(wide(cvt->dst) ? (void *)out : (void *)out32, wide(cvt->src) ? (const void *)in : (const void *)in32, second,
       NULL);
    return wide(cvt->dst) ? out[0] : out32[0];
}

uint32_t stitch__f32_from_f16(uint16_t x)
{
    return finish32(widen_f16(x), false, false);
}

uint16_t stitch__f16_from_f32(uint32_t x, stitch__round round)
{
    return (uint16_t)narrow_f16(x, round);
}

uint32_t stitch__f32_from_bf16(uint16_t x)
{
    return widen_bf16(x);
}

uint16_t stitch__bf16_from_f32(uint32_t x, stitch__round round)
{
    return (uint16_t)narrow_bf16(x, round);
}
