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
#pragma GCC optimize("fp-contract=off")
#endif
#include "sim/arith_core.h"
#include "sim/arith_mma.h"

#include <stddef.h>

enum { N = STITCH__MMA_COLUMNS };

typedef struct kernels {
    void (*split)(stitch__mma_terms *t, unsigned type, const void *p, unsigned count);
    void (*row)(const stitch__mma_row *r, uint32_t *out);
    void (*fast_row)(float *part, const float *a, const float *b, unsigned count);
    void (*floats)(float *out, unsigned type, const void *p, unsigned count);
} kernels;

static kernels choose(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (kernels){stitch__mma_split_avx2, stitch__mma_row_avx2, stitch__mma_fast_row_avx2,
                         stitch__mma_floats_avx2};
#endif
    return (kernels){stitch__mma_split_generic, stitch__mma_row_generic, stitch__mma_fast_row_generic,
                     stitch__mma_floats_generic};
}

static unsigned fraction_bits(unsigned type)
{
    switch (type) {
    case STITCH__BF16: return 7;
    case STITCH__E4M3X2: return 3;
    case STITCH__E5M2X2: return 2;
    default: return 10;
    }
}

static size_t element_size(unsigned type)
{
    return type == STITCH__TF32 ? 4 : type == STITCH__F16 || type == STITCH__BF16 ? 2 : 1;
}

static bool is_fp8(unsigned t)
{
    return t == STITCH__E4M3X2 || t == STITCH__E5M2X2;
}

/* Any element as float; exact for all input types. */
static float value_of(unsigned type, const void *p, unsigned i)
{
    switch (type) {
    case STITCH__F16: return as_f32(widen_f16(((const uint16_t *)p)[i]));
    case STITCH__BF16: return as_f32(widen_bf16(((const uint16_t *)p)[i]));
    case STITCH__TF32: return as_f32(((const uint32_t *)p)[i] & 0xffffe000);
    default: return as_f32(widen_f16(stitch__f16_from_fp8(((const uint8_t *)p)[i], (stitch__num)type)));
    }
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

/* Rows [k][N] of B's columns from `start`, `columns` of them; the others are zero. */
static const void *columns_of(const stitch__mma *mma, const void *b, unsigned k, unsigned start, unsigned columns,
                              void *padded)
{
    size_t size = element_size(mma->b);
    const uint8_t *at = (const uint8_t *)b + ((size_t)k * mma->n + start) * size;
    if (columns == N)
        return at;
    memset(padded, 0, N * size);
    memcpy(padded, at, columns * size);
    return padded;
}

/* The hardware's steps over k for one row and up to N columns: acc is the running float32. */
static void exact_row(const stitch__mma *mma, const kernels *run, stitch__mma_row *r, const int32_t *sa,
                      const int32_t *ea, const int32_t *sb, const int32_t *eb, uint32_t *acc)
{
    static const uint8_t low[16] = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29};
    static const uint8_t high[16] = {2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31};
    bool fp8 = is_fp8(mma->a), to_f16 = mma->d == STITCH__F16;
    unsigned step = fp8 ? 32 : mma->a == STITCH__TF32 ? 8 : 16;
    for (unsigned k = 0; k < mma->k; k += step) {
        unsigned count = mma->k - k < step ? mma->k - k : step;
        uint32_t sum[N];
        r->sa = sa + k;
        r->ea = ea + k;
        r->sb = sb + k * N;
        r->eb = eb + k * N;
        if (fp8) {
            r->count = count / 2;
            r->order = low;
            memset(r->addend, 0, sizeof(r->addend));
            run->row(r, sum);
            r->order = high;
            memcpy(r->addend, sum, sizeof(sum));
            run->row(r, sum);
            for (int j = 0; j < N; j++)
                acc[j] = as_u32(as_f32(sum[j]) + as_f32(acc[j]));
        } else {
            r->count = count;
            r->order = NULL;
            memcpy(r->addend, acc, sizeof(r->addend));
            r->to_odd = to_f16;
            run->row(r, acc);
        }
        if (to_f16 && k + step < mma->k) /* the running value is an f16 between steps */
            for (int j = 0; j < N; j++)
                acc[j] = widen_f16(narrow_f16(acc[j], STITCH__RN));
    }
}

static void run_exact(const stitch__mma *mma, void *d, const void *a, const void *b, const void *c)
{
    int32_t sa[STITCH__MMA_MAX_K], ea[STITCH__MMA_MAX_K], sb[STITCH__MMA_MAX_K * N], eb[STITCH__MMA_MAX_K * N];
    kernels run = choose();
    stitch__mma_row r = {.up = STITCH__MMA_FRACTION - (int)fraction_bits(mma->a) - (int)fraction_bits(mma->b)};
    for (unsigned start = 0; start < mma->n; start += N) {
        unsigned columns = mma->n - start < N ? mma->n - start : N;
        bool special_b = false;
        for (unsigned k = 0; k < mma->k; k++) {
            uint32_t padded[N];
            stitch__mma_terms t = {sb + k * N, eb + k * N, false};
            run.split(&t, mma->b, columns_of(mma, b, k, start, columns, padded), N);
            special_b |= t.special;
        }
        for (unsigned i = 0; i < mma->m; i++) {
            stitch__mma_terms t = {sa, ea, false};
            uint32_t acc[N] = {0}, first[N];
            run.split(&t, mma->a, (const uint8_t *)a + (size_t)i * mma->k * element_size(mma->a), mma->k);
            bool special = t.special || special_b;
            for (unsigned j = 0; j < columns; j++) {
                acc[j] = accumulator(mma, c, i * mma->n + start + j);
                special |= (acc[j] & INF32) == INF32;
            }
            memcpy(first, acc, sizeof(first));
            exact_row(mma, &run, &r, sa, ea, sb, eb, acc);
            for (unsigned j = 0; j < columns; j++) {
                bool replaced = false;
                uint32_t value = special ? special_sum(mma, a, b, i, start + j, as_f32(first[j]), &replaced) : 0;
                store(mma, d, i * mma->n + start + j, replaced ? value : acc[j]);
            }
        }
    }
}

/* Float32 FMA chains. */
static void run_fast(const stitch__mma *mma, void *d, const void *a, const void *b, const void *c)
{
    float row[STITCH__MMA_MAX_K], column[STITCH__MMA_MAX_K * N];
    kernels run = choose();
    for (unsigned start = 0; start < mma->n; start += N) {
        unsigned columns = mma->n - start < N ? mma->n - start : N;
        for (unsigned k = 0; k < mma->k; k++) {
            uint32_t padded[N];
            run.floats(column + k * N, mma->b, columns_of(mma, b, k, start, columns, padded), N);
        }
        for (unsigned i = 0; i < mma->m; i++) {
            float part[N] = {0};
            for (unsigned j = 0; j < columns; j++)
                part[j] = as_f32(accumulator(mma, c, i * mma->n + start + j));
            run.floats(row, mma->a, (const uint8_t *)a + (size_t)i * mma->k * element_size(mma->a), mma->k);
            run.fast_row(part, row, column, mma->k);
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
            d[i * mma->n + j] = finish64(as_u64(sum), 0, 0, 0);
        }
    }
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
