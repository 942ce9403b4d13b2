/* SPDX-License-Identifier: MIT
 *
 * The inner loops of matrix products, compiled twice by arith_lanes.c and arith_lanes_avx2.c: 8 columns of a row at a
 * time. arith_mma.c says what is computed.
 */
#include "sim/arith_mma.h"

INLINE void split_loop(stitch__mma_terms *t, const void *p, unsigned count, unsigned size, unsigned drop,
                       unsigned exponent_bits, unsigned fraction_bits, bool has_inf)
{
    uint32_t e_mask = (1u << exponent_bits) - 1, m_mask = (1u << fraction_bits) - 1, special = 0;
    int32_t bias = (int32_t)(e_mask >> 1), *out_significand = t->significand, *out_exponent = t->exponent;
    VECTOR_LOOP for (unsigned i = 0; i < count; i++)
    {
        uint32_t x = size == 1   ? ((const uint8_t *)p)[i]
                     : size == 2 ? ((const uint16_t *)p)[i]
                                 : ((const uint32_t *)p)[i] >> drop;
        uint32_t m = x & m_mask, e = x >> fraction_bits & e_mask;
        special |= (uint32_t)(has_inf ? e == e_mask : (e == e_mask) & (m == m_mask));
        int32_t significand = (int32_t)(e ? m | (m_mask + 1) : m);
        out_significand[i] = x >> (fraction_bits + exponent_bits) & 1 ? -significand : significand;
        out_exponent[i] = significand ? (int32_t)(e ? e : 1) - bias : STITCH__MMA_NO_EXPONENT;
    }
    t->special = special != 0;
}

/* Elements of a row of A or B as significand and exponent. */
void LANES_NAME(stitch__mma_split)(stitch__mma_terms *t, unsigned type, const void *p, unsigned count)
{
    switch (type) {
    case STITCH__F16: split_loop(t, p, count, 2, 0, 5, 10, true); break;
    case STITCH__BF16: split_loop(t, p, count, 2, 0, 8, 7, true); break;
    case STITCH__TF32: split_loop(t, p, count, 4, 13, 8, 10, true); break;
    case STITCH__E4M3X2: split_loop(t, p, count, 1, 0, 4, 3, false); break;
    default: split_loop(t, p, count, 1, 0, 5, 2, true); break;
    }
}

/* 8 columns as one vector: loops of 8 are unrolled before the compiler looks for vector code. */
typedef int32_t mma_v8 __attribute__((vector_size(32)));
typedef float mma_f8 __attribute__((vector_size(32), aligned(4), may_alias));

/* Macros, not functions: how such vectors are passed depends on the processor that is compiled for. */
/* A read of 8 numbers anywhere: a copy would go through memory in halves and stall. */
typedef int32_t mma_any8 __attribute__((vector_size(32), aligned(4), may_alias));
#define MMA_LOAD(p) (*(const mma_any8 *)(p))
#define MMA_MAX(a, b)                                                                                                  \
    do {                                                                                                               \
        mma_v8 greater = (a) > (b);                                                                                    \
        (a) = ((a)&greater) | ((b) & ~greater);                                                                        \
    } while (0)
/* Adds x 2^up 2^(exponent - top), cut toward zero. */
#define MMA_ADD_ALIGNED(sum, x, up, top, exponent)                                                                     \
    do {                                                                                                               \
        mma_v8 down = (top) - (exponent), sign = (x) >> 31, far = down > 31;                                           \
        down = (down & ~far) | (31 & far);                                                                             \
        (sum) += ((((((x) ^ sign) - sign) << (up)) >> down) ^ sign) - sign;                                            \
    } while (0)

/* The aligned sum of products and addend for 8 columns, then the rounding. The products' own fraction bits subtracted
 * from STITCH__MMA_FRACTION are `up`: how far they move left when they have the largest exponent. */
void LANES_NAME(stitch__mma_row)(const stitch__mma_row *r, uint32_t *out)
{
    enum { N = STITCH__MMA_COLUMNS };
    mma_v8 product[STITCH__MMA_STEP], exponent[STITCH__MMA_STEP], c = MMA_LOAD(r->addend);
    mma_v8 e = c >> 23 & 255, m = c & 0x7fffff, normal = e != 0;
    m |= normal & 0x800000;
    mma_v8 addend = (m ^ (c >> 31)) - (c >> 31), zero = m == 0;
    mma_v8 addend_exponent = ((e + (~normal & 1) - 127) & ~zero) | (zero & STITCH__MMA_NO_EXPONENT),
           top = addend_exponent;
    for (unsigned i = 0; i < r->count; i++) {
        unsigned k = r->order ? r->order[i] : i;
        mma_v8 x = MMA_LOAD(r->eb + k * N) + r->ea[k];
        product[i] = MMA_LOAD(r->sb + k * N) * r->sa[k];
        exponent[i] = x;
        MMA_MAX(top, x);
    }
    /* 8 terms below 2^27 and an addend below 2^26 fit in 32 bits. */
    mma_v8 low = {0}, high = {0};
    int up = r->up;
    MMA_ADD_ALIGNED(low, addend, STITCH__MMA_FRACTION - 23, top, addend_exponent);
    unsigned i = 0;
    for (; i < r->count && i < 8; i++)
        MMA_ADD_ALIGNED(low, product[i], up, top, exponent[i]);
    for (; i < r->count; i++)
        MMA_ADD_ALIGNED(high, product[i], up, top, exponent[i]);
    int32_t half[2][N], highest[N];
    memcpy(half[0], &low, sizeof(low));
    memcpy(half[1], &high, sizeof(high));
    memcpy(highest, &top, sizeof(top));
    double s[N];
    VECTOR_LOOP for (int j = 0; j < N; j++)
    {
        int32_t biased = highest[j] - STITCH__MMA_FRACTION + 1023;
        biased = biased < 1 ? 1 : biased; /* only zeros: the sum is zero */
        s[j] = ((double)half[0][j] + (double)half[1][j]) * as_f64((uint64_t)(uint32_t)biased << 52);
    }
    if (r->to_odd) {
        VECTOR_LOOP for (int j = 0; j < N; j++)
        {
            out[j] = odd32(s[j], 0);
        }
        return;
    }
    VECTOR_LOOP for (int j = 0; j < N; j++)
    {
        uint32_t u = round32(s[j], 0, STITCH__RZ);
        out[j] = s[j] >= 0x1p128 ? INF32 : s[j] <= -0x1p128 ? INF32 | SIGN32 : u;
    }
}

/* part += a[k] b[k][] in order of k: with exact products this is a chain of FMAs. */
void LANES_NAME(stitch__mma_fast_row)(float *part, const float *a, const float *b, unsigned count)
{
    mma_f8 sum = *(const mma_f8 *)part;
    for (unsigned k = 0; k < count; k++)
        sum += *(const mma_f8 *)(b + k * STITCH__MMA_COLUMNS) * a[k];
    *(mma_f8 *)part = sum;
}

INLINE uint32_t widen_e4m3(uint32_t x)
{
    uint32_t m = x & 0x7f, v = as_u32(as_f32(m << 20) * 0x1p120f);
    v = m == 0x7f ? NAN32 : v;
    return v | (x & 0x80) << 24;
}

#define FLOAT_LOOP(type, expr)                                                                                         \
    VECTOR_LOOP for (unsigned i = 0; i < count; i++)                                                                   \
    {                                                                                                                  \
        uint32_t x = ((const type *)p)[i];                                                                             \
        out[i] = as_f32(expr);                                                                                         \
    }

void LANES_NAME(stitch__mma_floats)(float *out, unsigned type, const void *p, unsigned count)
{
    switch (type) {
    case STITCH__F16: FLOAT_LOOP(uint16_t, widen_f16(x)) break;
    case STITCH__BF16: FLOAT_LOOP(uint16_t, widen_bf16(x)) break;
    case STITCH__TF32: FLOAT_LOOP(uint32_t, x & 0xffffe000) break;
    case STITCH__E4M3X2: FLOAT_LOOP(uint8_t, widen_e4m3(x)) break;
    default: FLOAT_LOOP(uint8_t, widen_f16(x << 8))
    }
}
