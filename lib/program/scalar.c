/* SPDX-License-Identifier: MIT
 *
 * Typed scalars: ranges and bytes.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "program/program.h"

static const struct {
    const char *name;
    size_t size;
} types[] = {
#define ENTRY(name, text, bytes) {text, bytes},
    STITCH__SCALAR_LIST(ENTRY)
#undef ENTRY
};

const char *stitch__scalar_name(int type)
{
    return types[type].name;
}

size_t stitch__scalar_size(int type)
{
    return types[type].size;
}

bool stitch__scalar_is_float(int type)
{
    return type >= STITCH__SCALAR_F32;
}

int stitch__scalar_dtype(int type)
{
    static const int dtypes[] = {STITCH_DTYPE_I32, STITCH_DTYPE_I32, STITCH_DTYPE_I64, STITCH_DTYPE_I64,
                                 STITCH_DTYPE_F32, STITCH_DTYPE_F64, STITCH_DTYPE_F16, STITCH_DTYPE_BF16};
    return dtypes[type];
}

/* |v| in units of 2^-shift, rounded to the nearest even integer. v is finite. */
static uint64_t scaled(double v, int shift)
{
    return (uint64_t)nearbyint(ldexp(fabs(v), shift));
}

uint16_t stitch__f16_bits(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    int e;
    if (isnan(v))
        return sign | 0x7e00;
    if (isinf(v) || fabs(v) >= 65520.0) /* halfway between the largest finite value and the next power of two */
        return sign | 0x7c00;
    if (fabs(v) < 0x1p-14) /* subnormal, or the smallest normal after rounding */
        return (uint16_t)(sign | scaled(v, 24));
    frexp(v, &e);
    uint64_t m = scaled(v, 11 - e); /* 1024 .. 2048 */
    return (uint16_t)(sign | (((uint64_t)(e + 14) << 10) + m - 1024));
}

uint16_t stitch__bf16_bits(double v)
{
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    int e;
    if (isnan(v))
        return sign | 0x7fc0;
    if (isinf(v))
        return sign | 0x7f80;
    if (fabs(v) < 0x1p-126)
        return (uint16_t)(sign | scaled(v, 133));
    frexp(v, &e);
    if (e > 128)
        return sign | 0x7f80;
    uint64_t m = scaled(v, 8 - e); /* 128 .. 256 */
    uint64_t bits = ((uint64_t)(e + 126) << 7) + m - 128;
    return (uint16_t)(sign | (bits > 0x7f80 ? 0x7f80 : bits));
}

double stitch__f16_value(uint16_t bits)
{
    int e = bits >> 10 & 31, m = bits & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return bits & 0x8000 ? -v : v;
}

static bool encode_integer(int type, int64_t v, void *out, char *why)
{
    static const int64_t low[] = {INT32_MIN, 0, INT64_MIN, 0}, high[] = {INT32_MAX, UINT32_MAX, INT64_MAX, INT64_MAX};
    if (v < low[type] || v > high[type]) {
        snprintf(why, 96, "%" PRId64 " does not fit into %s", v, types[type].name);
        return false;
    }
    memcpy(out, &v, types[type].size); /* little-endian, like every host that CUDA runs on */
    return true;
}

bool stitch__scalar_encode(int type, int64_t integer, double real, bool is_real, void *out, char *why)
{
    double v = is_real ? real : (double)integer;
    float f = (float)v;
    uint16_t half;
    if (!stitch__scalar_is_float(type))
        return encode_integer(type, integer, out, why);
    half = type == STITCH__SCALAR_F16 ? stitch__f16_bits(v) : stitch__bf16_bits(v);
    bool over = (type == STITCH__SCALAR_F32 && isinf(f)) || (type == STITCH__SCALAR_F16 && (half & 0x7fff) == 0x7c00) ||
                (type == STITCH__SCALAR_BF16 && (half & 0x7fff) == 0x7f80);
    if (over || !isfinite(v)) {
        stitch__format(why, 96, "%g does not fit into %s", v, types[type].name);
        return false;
    }
    if (type == STITCH__SCALAR_F32)
        memcpy(out, &f, sizeof(f));
    else if (type == STITCH__SCALAR_F64)
        memcpy(out, &v, sizeof(v));
    else
        memcpy(out, &half, sizeof(half));
    return true;
}
