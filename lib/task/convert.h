/* SPDX-License-Identifier: MIT
 *
 * Elements of every dtype to and from double. Compiled into the library and, as text, into its device code: only
 * integer operations and exact casts, so that both give the same bits. STITCH__FN is the function qualifier.
 */
#ifndef STITCH__FN
#define STITCH__FN static inline
#endif

/* stitch_dtype values; the host checks them against the header. */
enum {
    DT_F64 = 1,
    DT_F32,
    DT_TF32,
    DT_F16,
    DT_BF16,
    DT_F8E4M3,
    DT_F8E5M2,
    DT_I64,
    DT_I32,
    DT_I16,
    DT_I8,
    DT_U8,
    DT_BOOL
};

typedef unsigned long long stitch_u64;
typedef long long stitch_i64;
typedef unsigned int stitch_u32;

STITCH__FN stitch_u64 stitch_bits_of(double x)
{
    union {
        double d;
        stitch_u64 u;
    } v;
    v.d = x;
    return v.u;
}

STITCH__FN double stitch_double_of(stitch_u64 bits)
{
    union {
        double d;
        stitch_u64 u;
    } v;
    v.u = bits;
    return v.d;
}

STITCH__FN stitch_u32 stitch_float_bits(float x)
{
    union {
        float f;
        stitch_u32 u;
    } v;
    v.f = x;
    return v.u;
}

STITCH__FN float stitch_float_of(stitch_u32 bits)
{
    union {
        float f;
        stitch_u32 u;
    } v;
    v.u = bits;
    return v.f;
}

/* A small floating format: `e` exponent and `m` mantissa bits. e4m3 has no infinities and one NaN (all ones). */
STITCH__FN double stitch_small_to_double(stitch_u32 bits, int e, int m, int finite_only)
{
    stitch_u32 sign = bits >> (e + m) & 1, exponent = bits >> m & ((1u << e) - 1), mantissa = bits & ((1u << m) - 1);
    int bias = (1 << (e - 1)) - 1;
    stitch_u64 out;
    if (exponent == (1u << e) - 1 && (!finite_only || mantissa == (1u << m) - 1)) {
        out = finite_only || mantissa ? 0x7ff8000000000000ull : 0x7ff0000000000000ull;
    } else if (exponent) {
        out = (stitch_u64)((int)exponent - bias + 1023) << 52 | (stitch_u64)mantissa << (52 - m);
    } else if (mantissa) {
        int shift = 0;
        while (!(mantissa >> m)) {
            mantissa <<= 1;
            shift++;
        }
        out = (stitch_u64)(1 - bias - shift + 1023) << 52 | (stitch_u64)(mantissa & ((1u << m) - 1)) << (52 - m);
    } else {
        out = 0;
    }
    return stitch_double_of(out | (stitch_u64)sign << 63);
}

/* Round to nearest, ties to even. Too large: infinity, or the largest number where there is none. */
STITCH__FN stitch_u32 stitch_double_to_small(double x, int e, int m, int finite_only)
{
    stitch_u64 bits = stitch_bits_of(x), mantissa = bits & 0xfffffffffffffull;
    stitch_u32 sign = (stitch_u32)(bits >> 63) << (e + m);
    int exponent = (int)(bits >> 52 & 0x7ff), bias = (1 << (e - 1)) - 1, shift, target;
    stitch_u32 infinity = ((1u << e) - 1) << m, largest = finite_only ? (infinity | ((1u << m) - 2)) : infinity - 1;
    stitch_u64 rounded, rest, half;

    if (exponent == 0x7ff) {
        if (mantissa)
            return sign | (finite_only ? infinity | ((1u << m) - 1) : infinity | 1u << (m - 1));
        return sign | (finite_only ? largest : infinity);
    }
    if (!exponent) /* doubles that small are below half of every format's smallest number */
        return sign;
    mantissa |= 1ull << 52;
    target = exponent - 1023 + bias;
    shift = 52 - m;
    if (target < 1) {
        shift += 1 - target;
        target = 0;
    }
    if (shift > 54)
        return sign;
    rounded = mantissa >> shift;
    rest = mantissa & ((1ull << shift) - 1);
    half = 1ull << (shift - 1);
    if (rest > half || (rest == half && (rounded & 1)))
        rounded++;
    /* A carry out of the mantissa goes into the exponent by itself. */
    if (target)
        rounded += (stitch_u64)(target - 1) << m;
    if (rounded > largest)
        return sign | (finite_only ? largest : infinity);
    return sign | (stitch_u32)rounded;
}

/* Nearest integer, ties to even, within [low, high]; NaN gives 0. high is a power of two minus one or 2^63 - 1. */
STITCH__FN stitch_i64 stitch_double_to_int(double x, stitch_i64 low, stitch_i64 high)
{
    stitch_i64 whole;
    double rest;
    if (!(x == x))
        return 0;
    if (x >= 9223372036854775808.0 || x >= (double)high)
        return high;
    if (x <= (double)low)
        return low;
    whole = (stitch_i64)x;
    rest = x - (double)whole;
    if (rest > 0.5 || (rest == 0.5 && (whole & 1)))
        whole++;
    else if (rest < -0.5 || (rest == -0.5 && (whole & 1)))
        whole--;
    return whole;
}

STITCH__FN double stitch_load(const void *data, stitch_u64 i, int dtype)
{
    switch (dtype) {
    case DT_F64: return ((const double *)data)[i];
    case DT_F32:
    case DT_TF32: return (double)((const float *)data)[i];
    case DT_F16: return stitch_small_to_double(((const unsigned short *)data)[i], 5, 10, 0);
    case DT_BF16: return (double)stitch_float_of((stitch_u32)((const unsigned short *)data)[i] << 16);
    case DT_F8E4M3: return stitch_small_to_double(((const unsigned char *)data)[i], 4, 3, 1);
    case DT_F8E5M2: return stitch_small_to_double(((const unsigned char *)data)[i], 5, 2, 0);
    case DT_I64: return (double)((const stitch_i64 *)data)[i];
    case DT_I32: return (double)((const int *)data)[i];
    case DT_I16: return (double)((const short *)data)[i];
    case DT_I8: return (double)((const signed char *)data)[i];
    default: return (double)((const unsigned char *)data)[i];
    }
}

STITCH__FN void stitch_store(void *data, stitch_u64 i, int dtype, double x)
{
    switch (dtype) {
    case DT_F64: ((double *)data)[i] = x; break;
    case DT_F32: ((float *)data)[i] = (float)x; break;
    case DT_TF32: {
        /* To 10 mantissa bits, like the operands of TF32 products. Bits of a finite float: ties to even. */
        stitch_u32 bits = stitch_float_bits((float)x);
        if ((bits & 0x7f800000u) != 0x7f800000u)
            bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
        ((float *)data)[i] = stitch_float_of(bits);
        break;
    }
    case DT_F16: ((unsigned short *)data)[i] = (unsigned short)stitch_double_to_small(x, 5, 10, 0); break;
    case DT_BF16: ((unsigned short *)data)[i] = (unsigned short)stitch_double_to_small(x, 8, 7, 0); break;
    case DT_F8E4M3: ((unsigned char *)data)[i] = (unsigned char)stitch_double_to_small(x, 4, 3, 1); break;
    case DT_F8E5M2: ((unsigned char *)data)[i] = (unsigned char)stitch_double_to_small(x, 5, 2, 0); break;
    case DT_I64:
        ((stitch_i64 *)data)[i] = stitch_double_to_int(x, -9223372036854775807ll - 1, 9223372036854775807ll);
        break;
    case DT_I32: ((int *)data)[i] = (int)stitch_double_to_int(x, -2147483647ll - 1, 2147483647ll); break;
    case DT_I16: ((short *)data)[i] = (short)stitch_double_to_int(x, -32768, 32767); break;
    case DT_I8: ((signed char *)data)[i] = (signed char)stitch_double_to_int(x, -128, 127); break;
    case DT_U8: ((unsigned char *)data)[i] = (unsigned char)stitch_double_to_int(x, 0, 255); break;
    default: ((unsigned char *)data)[i] = x != 0 ? 1 : 0; break;
    }
}
