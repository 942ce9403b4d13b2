/* SPDX-License-Identifier: MIT
 *
 * Matrix multiply-accumulate as tensor cores compute it.
 *
 * Measured on an H200 (tests/sim/data has the results, test_sim_h200.c compares): with float32 accumulators
 * one result is one fused sum. All products are exact. Products and C are aligned to the largest exponent among them,
 * where the exponent of a product is the sum of its factors' (the product of two significands is below 4 and is not
 * normalised first); each is cut, toward zero, at the weight 2^-25 below that exponent; the cut terms are added
 * exactly; and the sum is rounded to float32 toward zero. f16 and bf16 sum 16 products at once, tf32 8. fp8 with K = 32
 * takes two such steps of 16 products: first those with k mod 4 in {0, 1}, from zero, then those with {2, 3}, onto the
 * result of the first; C is added last, by a float32 addition to nearest.
 *
 * Longer K (wmma, wgmma) is a chain of such steps. Not measured, and chosen as published for earlier chips (Fasi,
 * Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021): subnormal inputs are used as they are,
 * with the exponent of the smallest normal number; f16 accumulators round the same sum to nearest even once; a sum
 * beyond float32 is infinite; a zero sum is +0. A NaN, infinity times zero, or infinities of both signs give the
 * canonical NaN; one infinity gives itself.
 */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("O3", "fp-contract=off")
#endif
#include "sim/arith_core.h"

#include <stddef.h>

#define FRACTION 25

/* A number as sign * significand * 2^(exponent - bits of the format); zero has an exponent below all others. */
enum { NO_EXPONENT = -10000 };

typedef struct terms {
    int32_t *significand; /* signed */
    int32_t *exponent;
    bool special; /* has NaN or Inf */
} terms;

typedef struct format {
    uint8_t exponent_bits, fraction_bits;
    bool has_inf; /* e4m3 has one NaN and no infinity */
} format;

static format format_of(unsigned type)
{
    switch (type) {
    case STITCH__F16: return (format){5, 10, true};
    case STITCH__BF16: return (format){8, 7, true};
    case STITCH__TF32: return (format){8, 10, true};
    case STITCH__E4M3X2: return (format){4, 3, false};
    default: return (format){5, 2, true}; /* e5m2 */
    }
}

static uint32_t element(unsigned type, const void *p, unsigned i)
{
    switch (type) {
    case STITCH__F16:
    case STITCH__BF16: return ((const uint16_t *)p)[i];
    case STITCH__TF32: return ((const uint32_t *)p)[i] >> 13;
    case STITCH__F32: return ((const uint32_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static void split(terms *out, unsigned type, const void *p, unsigned count)
{
    format f = format_of(type);
    uint32_t e_mask = (1u << f.exponent_bits) - 1, m_mask = (1u << f.fraction_bits) - 1;
    int32_t bias = (int32_t)(e_mask >> 1);
    out->special = false;
    for (unsigned i = 0; i < count; i++) {
        uint32_t x = element(type, p, i), m = x & m_mask, e = x >> f.fraction_bits & e_mask;
        bool negative = x >> (f.fraction_bits + f.exponent_bits) & 1;
        out->special |= f.has_inf ? e == e_mask : e == e_mask && m == m_mask;
        int32_t significand = (int32_t)(e ? m | (m_mask + 1) : m);
        out->significand[i] = negative ? -significand : significand;
        out->exponent[i] = significand ? (int32_t)(e ? e : 1) - bias : NO_EXPONENT;
    }
}

/* Any element as float; exact for all input types. */
static float value_of(unsigned type, const void *p, unsigned i)
{
    switch (type) {
    case STITCH__F16: return as_f32(widen_f16(((const uint16_t *)p)[i]));
    case STITCH__BF16: return as_f32(widen_bf16(((const uint16_t *)p)[i]));
    case STITCH__TF32: return as_f32(((const uint32_t *)p)[i] & 0xffffe000);
    case STITCH__F32: return as_f32(((const uint32_t *)p)[i]);
    default: return as_f32(widen_f16(stitch__f16_from_fp8(((const uint8_t *)p)[i], (stitch__num)type)));
    }
}

static double power_of_two(int32_t e)
{
    return as_f64((uint64_t)(int64_t)(e + 1023) << 52);
}

/* The aligned sum as an exact double. `step` products starting where the lists point, then one addend. The products'
 * own fraction bits are `bits`, so `up` = FRACTION - bits is how far they move left when they have the largest
 * exponent. */
typedef struct fused {
    const int32_t *sa, *ea; /* a row of A: consecutive */
    const int32_t *sb, *eb; /* columns of B */
    unsigned stride;        /* between rows of B */
    const uint8_t *order;   /* which k to take; NULL: 0, 1, 2 ... */
    unsigned count;
    int up;
} fused;

static double fused_sum(const fused *f, unsigned column, int32_t addend, int32_t addend_exponent, int addend_up)
{
    int32_t top = addend ? addend_exponent : NO_EXPONENT, product[STITCH__MMA_MAX_K], exponent[STITCH__MMA_MAX_K];
    for (unsigned i = 0; i < f->count; i++) {
        unsigned k = f->order ? f->order[i] : i, b = k * f->stride + column;
        product[i] = f->sa[k] * f->sb[b];
        exponent[i] = f->ea[k] + f->eb[b];
        top = exponent[i] > top ? exponent[i] : top;
    }
    if (top <= NO_EXPONENT / 2) /* nothing but zeros */
        return 0;
    int64_t sum = 0;
    for (unsigned i = 0; i < f->count; i++) {
        int32_t down = top - exponent[i], magnitude = product[i] < 0 ? -product[i] : product[i];
        magnitude = (magnitude << f->up) >> (down > 31 ? 31 : down);
        sum += product[i] < 0 ? -magnitude : magnitude;
    }
    if (addend) {
        int32_t down = top - addend_exponent, magnitude = addend < 0 ? -addend : addend;
        magnitude = (magnitude << addend_up) >> (down > 31 ? 31 : down);
        sum += addend < 0 ? -magnitude : magnitude;
    }
    return (double)sum * power_of_two(top - FRACTION);
}

static double fused_sum_with(const fused *f, unsigned column, uint32_t addend)
{
    int32_t e = (int32_t)(addend >> 23 & 255), m = (int32_t)(addend & 0x7fffff);
    m = e ? m | 0x800000 : m;
    return fused_sum(f, column, addend >> 31 ? -m : m, (e ? e : 1) - 127, FRACTION - 23);
}

static uint32_t toward_zero(double s)
{
    if (s >= 0x1p128 || s <= -0x1p128)
        return s > 0 ? INF32 : INF32 | SIGN32;
    return round32(s, 0, STITCH__RZ);
}

/* One element where an input is NaN or Inf: what the sum of the specials is; *special false if this element has none.
 */
static uint32_t special_sum(const stitch__mma *mma, const void *a, const void *b, unsigned row, unsigned column,
                            float c, bool *special)
{
    float sum = c - c == 0 ? 0 : c;
    *special = c - c != 0;
    for (unsigned k = 0; k < mma->k; k++) {
        float p = value_of(mma->a, a, row * mma->k + k), q = value_of(mma->b, b, k * mma->n + column);
        if (p - p != 0 || q - q != 0) { /* NaN or Inf */
            sum += p * q;
            *special = true;
        }
    }
    return sum != sum ? NAN32 : as_u32(sum);
}

static void store(const stitch__mma *mma, void *d, unsigned i, uint32_t f32)
{
    if (mma->d == STITCH__F16)
        ((uint16_t *)d)[i] = (uint16_t)narrow_f16(f32, STITCH__RN);
    else
        ((uint32_t *)d)[i] = f32;
}

static uint32_t accumulator(const stitch__mma *mma, const void *c, unsigned i)
{
    if (!c)
        return 0;
    return mma->c == STITCH__F16 ? widen_f16(((const uint16_t *)c)[i]) : ((const uint32_t *)c)[i];
}

/* One step of the hardware on one element: acc is the running float32. The last step of an f16 result rounds once to
 * nearest. */
static uint32_t exact_step(fused *f, unsigned column, uint32_t acc, bool fp8, bool to_f16)
{
    if (fp8) {
        static const uint8_t low[16] = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29};
        static const uint8_t high[16] = {2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31};
        unsigned count = f->count;
        f->count = count / 2;
        f->order = low;
        uint32_t first = toward_zero(fused_sum(f, column, 0, 0, 0));
        f->order = high;
        uint32_t both = toward_zero(fused_sum_with(f, column, first));
        f->count = count;
        return as_u32(as_f32(both) + as_f32(acc));
    }
    double s = fused_sum_with(f, column, acc);
    return to_f16 ? odd32(s, 0) : toward_zero(s);
}

static void run_exact(const stitch__mma *mma, void *d, const void *a, const void *b, const void *c)
{
    enum { ROW = STITCH__MMA_MAX_K, BLOCK = 4096 };
    bool fp8 = mma->a == STITCH__E4M3X2 || mma->a == STITCH__E5M2X2;
    unsigned step = fp8 ? 32 : mma->a == STITCH__TF32 ? 8 : 16;
    format fa = format_of(mma->a), fb = format_of(mma->b);
    /* Columns in groups, so that B's parts fit on the stack whatever n is. */
    int32_t sa[ROW], ea[ROW], sb[BLOCK], eb[BLOCK];
    unsigned group = (unsigned)BLOCK / mma->k;
    group = group > mma->n ? mma->n : group;
    for (unsigned start = 0; start < mma->n; start += group) {
        unsigned columns = mma->n - start < group ? mma->n - start : group;
        bool special_b = false;
        for (unsigned k = 0; k < mma->k; k++) {
            terms t = {sb + k * columns, eb + k * columns, false};
            size_t size = fp8 ? 1 : mma->b == STITCH__TF32 ? 4 : 2;
            split(&t, mma->b, (const uint8_t *)b + ((size_t)k * mma->n + start) * size, columns);
            special_b |= t.special;
        }
        for (unsigned i = 0; i < mma->m; i++) {
            size_t size = fp8 ? 1 : mma->a == STITCH__TF32 ? 4 : 2;
            terms t = {sa, ea, false};
            split(&t, mma->a, (const uint8_t *)a + (size_t)i * mma->k * size, mma->k);
            for (unsigned j = 0; j < columns; j++) {
                unsigned at = i * mma->n + start + j;
                uint32_t acc = accumulator(mma, c, at);
                if (t.special || special_b || (acc & INF32) == INF32) {
                    bool special;
                    uint32_t r = special_sum(mma, a, b, i, start + j, as_f32(acc), &special);
                    if (special) {
                        store(mma, d, at, r);
                        continue;
                    }
                }
                for (unsigned k = 0; k < mma->k; k += step) {
                    unsigned count = mma->k - k < step ? mma->k - k : step;
                    fused f = {sa + k,
                               ea + k,
                               sb + k * columns,
                               eb + k * columns,
                               columns,
                               NULL,
                               count,
                               FRACTION - fa.fraction_bits - fb.fraction_bits};
                    bool to_f16 = mma->d == STITCH__F16;
                    acc = exact_step(&f, j, acc, fp8, to_f16);
                    if (to_f16 && k + step < mma->k) /* the running value is an f16 between steps */
                        acc = widen_f16(narrow_f16(acc, STITCH__RN));
                }
                store(mma, d, at, acc);
            }
        }
    }
}

/* Float32 FMA chains, a row of D at a time so that the loop over columns is vector code. */
static void run_fast(const stitch__mma *mma, void *d, const void *a, const void *b, const void *c)
{
    enum { GROUP = 32 };
    float part[GROUP], column[STITCH__MMA_MAX_K][GROUP];
    for (unsigned start = 0; start < mma->n; start += GROUP) {
        unsigned columns = mma->n - start < GROUP ? mma->n - start : GROUP;
        memset(column, 0, sizeof(column[0]) * mma->k);
        for (unsigned k = 0; k < mma->k; k++)
            for (unsigned j = 0; j < columns; j++)
                column[k][j] = value_of(mma->b, b, k * mma->n + start + j);
        for (unsigned i = 0; i < mma->m; i++) {
            memset(part, 0, sizeof(part));
            for (unsigned j = 0; j < columns; j++)
                part[j] = as_f32(accumulator(mma, c, i * mma->n + start + j));
            for (unsigned k = 0; k < mma->k; k++) {
                float x = value_of(mma->a, a, i * mma->k + k);
                for (unsigned j = 0; j < GROUP; j++)
                    part[j] += x * column[k][j]; /* the product of two inputs is exact: this is a fused operation */
            }
            for (unsigned j = 0; j < columns; j++) {
                uint32_t r = as_u32(part[j]);
                store(mma, d, i * mma->n + start + j, is_nan32(r) ? NAN32 : r);
            }
        }
    }
}

static void run_int(const stitch__mma *mma, uint32_t *d, const uint8_t *a, const uint8_t *b, const uint32_t *c)
{
    for (unsigned i = 0; i < mma->m; i++) {
        for (unsigned j = 0; j < mma->n; j++) {
            int64_t sum = c ? (int32_t)c[i * mma->n + j] : 0;
            for (unsigned k = 0; k < mma->k; k++) {
                uint8_t x = a[i * mma->k + k], y = b[k * mma->n + j];
                sum +=
                    (mma->a == STITCH__S8 ? (int8_t)x : (int32_t)x) * (mma->b == STITCH__S8 ? (int8_t)y : (int32_t)y);
            }
            if (mma->satfinite)
                sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            d[i * mma->n + j] = (uint32_t)sum;
        }
    }
}

static void run_f64(const stitch__mma *mma, uint64_t *d, const uint64_t *a, const uint64_t *b, const uint64_t *c)
{
    for (unsigned i = 0; i < mma->m; i++) {
        for (unsigned j = 0; j < mma->n; j++) {
            double sum = c ? as_f64(c[i * mma->n + j]) : 0;
            for (unsigned k = 0; k < mma->k; k++)
                sum = fma(as_f64(a[i * mma->k + k]), as_f64(b[k * mma->n + j]), sum);
            d[i * mma->n + j] = finish64(as_u64(sum));
        }
    }
}

static bool is_fp8(unsigned t)
{
    return t == STITCH__E4M3X2 || t == STITCH__E5M2X2;
}

bool stitch__mma_run(const stitch__mma *mma, void *d, const void *a, const void *b, const void *c)
{
    if (!mma->k || mma->k > STITCH__MMA_MAX_K)
        return false;
    if ((mma->a == STITCH__U8 || mma->a == STITCH__S8) && (mma->b == STITCH__U8 || mma->b == STITCH__S8)) {
        if (mma->c != STITCH__S32 || mma->d != STITCH__S32)
            return false;
        run_int(mma, d, a, b, c);
        return true;
    }
    if (mma->a == STITCH__F64 && mma->b == STITCH__F64) {
        if (mma->c != STITCH__F64 || mma->d != STITCH__F64)
            return false;
        run_f64(mma, d, a, b, c);
        return true;
    }
    bool same = mma->a == mma->b && (mma->a == STITCH__F16 || mma->a == STITCH__BF16 || mma->a == STITCH__TF32);
    bool half = mma->a == STITCH__F16 || is_fp8(mma->a); /* these may have f16 accumulators */
    if (!same && !(is_fp8(mma->a) && is_fp8(mma->b)))
        return false;
    if ((mma->c != STITCH__F32 && !(half && mma->c == STITCH__F16)) ||
        (mma->d != STITCH__F32 && !(half && mma->d == STITCH__F16)))
        return false;
    if (mma->exact)
        run_exact(mma, d, a, b, c);
    else
        run_fast(mma, d, a, b, c);
    return true;
}
