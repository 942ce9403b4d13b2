/* SPDX-License-Identifier: MIT
 *
 * The integer lane functions; compiled for any processor by alu.c and for AVX2 by alu_avx2.c.
 */
#include "sim/alu.h"

static inline uint32_t alu_sat(int64_t x)
{
    return (uint32_t)(int32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}

static inline int32_t alu_s24(uint32_t x)
{
    return (int32_t)(x << 8) >> 8;
}

static inline uint32_t alu_relu(uint32_t x)
{
    return (int32_t)x < 0 ? 0 : x;
}

static inline uint32_t alu_divu32(uint32_t a, uint32_t b)
{
    return b ? a / b : ~0u;
}

static inline uint32_t alu_divs32(uint32_t a, uint32_t b)
{
    if (b == 0)
        return ~0u;
    if (b == ~0u)
        return 0u - a;
    return (uint32_t)((int32_t)a / (int32_t)b);
}

static inline uint64_t alu_divs64(uint64_t a, uint64_t b)
{
    if (b == 0)
        return ~UINT64_C(0);
    if (b == ~UINT64_C(0))
        return 0u - a;
    return (uint64_t)((int64_t)a / (int64_t)b);
}

static inline uint32_t alu_min2u(uint32_t a, uint32_t b)
{
    uint32_t lo = (a & 0xffff) < (b & 0xffff) ? a & 0xffff : b & 0xffff, hi = a >> 16 < b >> 16 ? a >> 16 : b >> 16;
    return hi << 16 | lo;
}

static inline uint32_t alu_max2u(uint32_t a, uint32_t b)
{
    uint32_t lo = (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff, hi = a >> 16 > b >> 16 ? a >> 16 : b >> 16;
    return hi << 16 | lo;
}

static inline uint32_t alu_min2s(uint32_t a, uint32_t b)
{
    return alu_min2u(a ^ 0x80008000u, b ^ 0x80008000u) ^ 0x80008000u;
}

static inline uint32_t alu_max2s(uint32_t a, uint32_t b)
{
    return alu_max2u(a ^ 0x80008000u, b ^ 0x80008000u) ^ 0x80008000u;
}

static inline uint32_t alu_brev(uint32_t x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

static inline uint32_t alu_bfind(uint64_t x)
{
    return x ? 63u - (uint32_t)__builtin_clzll(x) : ~0u;
}

static inline uint32_t alu_bshift(uint32_t bit, uint32_t top)
{
    return bit == ~0u ? ~0u : top - bit;
}

/* PTX takes the low 8 bits of position and length; code compiled for the 64-bit form takes all of them. */
static inline uint64_t alu_bfe(uint64_t a, uint32_t pos, uint32_t len, uint32_t width, int is_signed)
{
    uint64_t top = a >> (width - 1) & 1;
    if (len == 0)
        return 0;
    uint64_t x = 0;
    if (pos < width)
        x = (width == 64 ? a : (uint32_t)a) >> pos;
    uint32_t have = pos < width ? width - pos : 0;
    if (len < have)
        have = len;
    uint64_t keep = have >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << have) - 1;
    x &= keep;
    if (is_signed) {
        uint64_t sign = (uint64_t)pos + len - 1 < width ? a >> (pos + len - 1) & 1 : top;
        if (sign)
            x |= ~keep;
    }
    return x;
}

/* x >= 0 of f32 bits. */
static inline int alu_not_below_zero(uint32_t x, int ftz)
{
    uint32_t a = x & 0x7fffffffu;
    return a <= 0x7f800000u && (x >> 31 == 0 || a == 0 || (ftz && a < 0x00800000u));
}

static inline uint32_t alu_bmsk(uint32_t a, uint32_t b, int wrap)
{
    if (!wrap && a > 31)
        return 0;
    if (b == 0)
        return 0;
    uint32_t ones = b > 31 ? ~0u : (1u << b) - 1;
    return ones << a;
}

static inline uint32_t alu_sext(uint32_t a, uint32_t bits)
{
    if (bits == 0)
        return 0;
    return (uint32_t)((int32_t)(a << (32 - bits)) >> (32 - bits));
}

static inline uint32_t alu_fns(uint32_t mask, uint32_t base, int32_t offset)
{
    base &= 31;
    if (offset == 0)
        return mask >> base & 1 ? base : ~0u;
    int step = offset > 0 ? 1 : -1;
    int left = offset > 0 ? offset : -(offset + 1) + 1;
    for (int i = (int)base; i >= 0 && i < 32; i += step)
        if (mask >> i & 1 && --left == 0)
            return (uint32_t)i;
    return ~0u;
}

static inline uint32_t alu_dp4a(uint32_t a, uint32_t b, uint32_t c, int sa, int sb)
{
    for (int k = 0; k < 32; k += 8) {
        int32_t x = sa ? (int8_t)(a >> k) : (int32_t)(uint8_t)(a >> k);
        int32_t y = sb ? (int8_t)(b >> k) : (int32_t)(uint8_t)(b >> k);
        c += (uint32_t)(x * y);
    }
    return c;
}

static inline uint32_t alu_dp2a(uint32_t a, uint32_t b, uint32_t c, int sa, int sb)
{
    for (int k = 0; k < 2; k++) {
        int32_t x = sa ? (int16_t)(a >> (16 * k)) : (int32_t)(uint16_t)(a >> (16 * k));
        int32_t y = sb ? (int8_t)(b >> (8 * k)) : (int32_t)(uint8_t)(b >> (8 * k));
        c += (uint32_t)(x * y);
    }
    return c;
}

static inline uint32_t alu_prmt(uint32_t a, uint32_t b, uint32_t sel)
{
    uint64_t ab = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t s = sel >> (4 * k) & 15;
        uint32_t byte = (uint32_t)(ab >> (8 * (s & 7))) & 0xff;
        if (s & 8)
            byte = byte & 0x80 ? 0xff : 0;
        r |= byte << (8 * k);
    }
    return r;
}

static inline uint32_t alu_b4e(uint32_t c)
{
    static const uint16_t sel[4] = {0x5670, 0x6701, 0x7012, 0x0123};
    return sel[c & 3];
}

static inline uint32_t alu_ecl(uint32_t c)
{
    static const uint16_t sel[4] = {0x3210, 0x3211, 0x3222, 0x3333};
    return sel[c & 3];
}

static inline uint32_t alu_ecr(uint32_t c)
{
    static const uint16_t sel[4] = {0x0000, 0x1110, 0x2210, 0x3210};
    return sel[c & 3];
}

#define A (pa[i])
#define B (pb[i])
#define C (pc[i])
#if defined(__clang__)
#define ALU_LOOP _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < STITCH__LANES; i++)
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#define ALU_LOOP _Pragma("GCC ivdep") for (int i = 0; i < STITCH__LANES; i++)
#endif
#define ALU_FUNCTION(name, td, ta, tb, tc, expr)                                                                       \
    static void alu_fn_##name(void *dv, const void *av, const void *bv, const void *cv)                                \
    {                                                                                                                  \
        td *d = dv;                                                                                                    \
        const ta *pa = av;                                                                                             \
        const tb *pb = bv;                                                                                             \
        const tc *pc = cv;                                                                                             \
        (void)pb;                                                                                                      \
        (void)pc;                                                                                                      \
        ALU_LOOP d[i] = (td)(expr);                                                                                    \
    }
STITCH__ALU_LIST(ALU_FUNCTION)

const stitch__lanes_fn ALU_TABLE[STITCH__ALU_COUNT] = {
#define ALU_ENTRY(name, d, a, b, c, expr) [STITCH__ALU_##name] = alu_fn_##name,
    STITCH__ALU_LIST(ALU_ENTRY)
#undef ALU_ENTRY
};
