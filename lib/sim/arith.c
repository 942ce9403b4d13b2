/* SPDX-License-Identifier: MIT
 *
 * Choice of the 32-lane functions by processor, f64 with directed rounding, comparisons, and one-lane evaluation.
 */
#include "sim/arith_core.h"
#include "sim/arith_lanes_select.h"
#include "sim/arith_sfu_tables.h"

#include <fenv.h>
#include <stddef.h>

/* ---- f64 with directed rounding: rare, so the processor's rounding mode is changed around the loop --------------- */

/* `nan_b` and `nan_c`: operands other than a that a NaN result may come from. */
#define DIRECTED(name, expr, nan_b, nan_c)                                                                             \
    static void name##_lanes(void *dv, const void *av, const void *bv, const void *cv, int mode)                       \
    {                                                                                                                  \
        uint64_t *d = dv;                                                                                              \
        const uint64_t *pa = av, *pb = bv, *pc = cv;                                                                   \
        int before = fegetround();                                                                                     \
        fesetround(mode);                                                                                              \
        for (int i = 0; i < STITCH__LANES; i++) {                                                                      \
            /* volatile: neither side of the mode change may be computed on the other */                               \
            volatile double x = as_f64(pa[i]), y = pb ? as_f64(pb[i]) : 1, z = pc ? as_f64(pc[i]) : 0, r;              \
            (void)y;                                                                                                   \
            (void)z;                                                                                                   \
            r = (expr);                                                                                                \
            d[i] = finish64(as_u64(r), pa[i], nan_b, nan_c);                                                           \
        }                                                                                                              \
        fesetround(before);                                                                                            \
    }                                                                                                                  \
    static void name##_rz(void *d, const void *a, const void *b, const void *c)                                        \
    {                                                                                                                  \
        name##_lanes(d, a, b, c, FE_TOWARDZERO);                                                                       \
    }                                                                                                                  \
    static void name##_rm(void *d, const void *a, const void *b, const void *c)                                        \
    {                                                                                                                  \
        name##_lanes(d, a, b, c, FE_DOWNWARD);                                                                         \
    }                                                                                                                  \
    static void name##_rp(void *d, const void *a, const void *b, const void *c)                                        \
    {                                                                                                                  \
        name##_lanes(d, a, b, c, FE_UPWARD);                                                                           \
    }

DIRECTED(f64_add, x + y, pb[i], 0)
DIRECTED(f64_sub, x - y, pb[i], 0)
DIRECTED(f64_mul, x *y, pb[i], 0)
DIRECTED(f64_fma, fma(x, y, z), pb[i], pc[i])
DIRECTED(f64_div, x / y, pa[i], pb[i])
DIRECTED(f64_rcp, 1.0 / x, 0, 0)
DIRECTED(f64_sqrt, sqrt(x), 0, 0)

stitch__lanes_fn stitch__arith_select_f64_directed(const stitch__arith_op *op)
{
    static const stitch__lanes_fn table[STITCH__FOP_COUNT][4] = {
        [STITCH__ADD] = {NULL, f64_add_rz, f64_add_rm, f64_add_rp},
        [STITCH__SUB] = {NULL, f64_sub_rz, f64_sub_rm, f64_sub_rp},
        [STITCH__MUL] = {NULL, f64_mul_rz, f64_mul_rm, f64_mul_rp},
        [STITCH__FMA] = {NULL, f64_fma_rz, f64_fma_rm, f64_fma_rp},
        [STITCH__DIV] = {NULL, f64_div_rz, f64_div_rm, f64_div_rp},
        [STITCH__RCP] = {NULL, f64_rcp_rz, f64_rcp_rm, f64_rcp_rp},
        [STITCH__SQRT] = {NULL, f64_sqrt_rz, f64_sqrt_rm, f64_sqrt_rp},
    };
    return op->flags || op->round > STITCH__RP ? NULL : table[op->op][op->round];
}

/* ---- selection ------------------------------------------------------------------------------------------------- */

stitch__lanes_fn stitch__arith_lanes(const stitch__arith_op *op)
{
    if (op->op >= STITCH__FOP_COUNT || op->args == 3)
        return NULL;
    if (op->type == STITCH__F64 && op->round != STITCH__RN)
        return stitch__arith_select_f64_directed(op);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return stitch__arith_select_avx2(op);
#endif
    return stitch__arith_select_generic(op);
}

uint64_t stitch__arith_eval(const stitch__arith_op *op, uint64_t a, uint64_t b, uint64_t c)
{
    stitch__lanes_fn fn = stitch__arith_lanes(op);
    if (!fn)
        return 0;
    if (op->type == STITCH__F64) {
        uint64_t x[STITCH__LANES] = {a}, y[STITCH__LANES] = {b}, z[STITCH__LANES] = {c};
        fn(x, x, y, z);
        return x[0];
    }
    uint32_t x[STITCH__LANES] = {(uint32_t)a}, y[STITCH__LANES] = {(uint32_t)b}, z[STITCH__LANES] = {(uint32_t)c};
    fn(x, x, y, z);
    return x[0];
}

stitch__sfu_accuracy stitch__arith_sfu_accuracy(stitch__fop op)
{
    switch (op) {
    case STITCH__RCP_APPROX:
    case STITCH__SQRT_APPROX: return (stitch__sfu_accuracy){SFU_TABLES_EXACT, 1, 0};
    case STITCH__RSQRT_APPROX:
    case STITCH__EX2_APPROX: return (stitch__sfu_accuracy){SFU_TABLES_EXACT, 2, 0};
    case STITCH__LG2_APPROX: return (stitch__sfu_accuracy){SFU_TABLES_EXACT, 0, 0x1p-22};
    case STITCH__SIN_APPROX:
    case STITCH__COS_APPROX: return (stitch__sfu_accuracy){SFU_TABLES_EXACT, 0, 0x1p-20};
    case STITCH__TANH_APPROX: return (stitch__sfu_accuracy){SFU_TABLES_EXACT, 134, 0};
    default: return (stitch__sfu_accuracy){true, 0, 0};
    }
}

/* ---- comparisons ----------------------------------------------------------------------------------------------- */

#define EACH_CMP(X, ...)                                                                                               \
    X(EQ, x == y, __VA_ARGS__)                                                                                         \
    X(NE, (x < y || x > y), __VA_ARGS__)                                                                               \
    X(LT, x < y, __VA_ARGS__)                                                                                          \
    X(LE, x <= y, __VA_ARGS__)                                                                                         \
    X(GT, x > y, __VA_ARGS__)                                                                                          \
    X(GE, x >= y, __VA_ARGS__)                                                                                         \
    X(EQU, !(x < y || x > y), __VA_ARGS__)                                                                             \
    X(NEU, !(x == y), __VA_ARGS__)                                                                                     \
    X(LTU, !(x >= y), __VA_ARGS__)                                                                                     \
    X(LEU, !(x > y), __VA_ARGS__)                                                                                      \
    X(GTU, !(x <= y), __VA_ARGS__)                                                                                     \
    X(GEU, !(x < y), __VA_ARGS__)                                                                                      \
    X(NUM, (x == x && y == y), __VA_ARGS__)                                                                            \
    X(ISNAN, !(x == x && y == y), __VA_ARGS__)

/* T name: element array type `raw`, compared as `value` obtained by LOAD(bits). */
#define CMP_FN(cmp, expr, name, raw, value, LOAD)                                                                      \
    static uint32_t name##_##cmp(const void *av, const void *bv, uint32_t *hi)                                         \
    {                                                                                                                  \
        const raw *a = av, *b = bv;                                                                                    \
        uint32_t mask = 0;                                                                                             \
        (void)hi;                                                                                                      \
        for (int i = 0; i < STITCH__LANES; i++) {                                                                      \
            value x = LOAD(a[i]), y = LOAD(b[i]);                                                                      \
            mask |= (uint32_t)(expr) << i;                                                                             \
        }                                                                                                              \
        return mask;                                                                                                   \
    }
#define CMP_PAIR_FN(cmp, expr, name, raw, value, LOAD)                                                                 \
    static uint32_t name##_##cmp(const void *av, const void *bv, uint32_t *hi)                                         \
    {                                                                                                                  \
        const raw *a = av, *b = bv;                                                                                    \
        uint32_t mask = 0, upper = 0;                                                                                  \
        for (int i = 0; i < STITCH__LANES; i++) {                                                                      \
            value x = LOAD(a[i]), y = LOAD(b[i]);                                                                      \
            mask |= (uint32_t)(expr) << i;                                                                             \
            x = LOAD(a[i] >> 16);                                                                                      \
            y = LOAD(b[i] >> 16);                                                                                      \
            upper |= (uint32_t)(expr) << i;                                                                            \
        }                                                                                                              \
        if (hi)                                                                                                        \
            *hi = upper;                                                                                               \
        return mask;                                                                                                   \
    }
#define LOAD_F16(v)     as_f32(widen_f16((v)&0xffff))
#define LOAD_F16_FTZ(v) as_f32(widen_f16(flush16((v)&0xffff)))
#define LOAD_BF16(v)    as_f32(widen_bf16((v)&0xffff))
#define LOAD_F32(v)     as_f32(v)
#define LOAD_F32_FTZ(v) as_f32(flush32(v))
#define LOAD_F64(v)     as_f64(v)
EACH_CMP(CMP_FN, cmp_u16, uint32_t, uint16_t, (uint16_t))
EACH_CMP(CMP_FN, cmp_s16, uint32_t, int16_t, (int16_t))
EACH_CMP(CMP_FN, cmp_u32, uint32_t, uint32_t, (uint32_t))
EACH_CMP(CMP_FN, cmp_s32, uint32_t, int32_t, (int32_t))
EACH_CMP(CMP_FN, cmp_u64, uint64_t, uint64_t, (uint64_t))
EACH_CMP(CMP_FN, cmp_s64, uint64_t, int64_t, (int64_t))
EACH_CMP(CMP_FN, cmp_f16, uint32_t, float, LOAD_F16)
EACH_CMP(CMP_FN, cmp_f16z, uint32_t, float, LOAD_F16_FTZ)
EACH_CMP(CMP_FN, cmp_bf16, uint32_t, float, LOAD_BF16)
EACH_CMP(CMP_FN, cmp_f32, uint32_t, float, LOAD_F32)
EACH_CMP(CMP_FN, cmp_f32z, uint32_t, float, LOAD_F32_FTZ)
EACH_CMP(CMP_FN, cmp_f64, uint64_t, double, LOAD_F64)
EACH_CMP(CMP_PAIR_FN, cmp_f16x2, uint32_t, float, LOAD_F16)
EACH_CMP(CMP_PAIR_FN, cmp_f16x2z, uint32_t, float, LOAD_F16_FTZ)
EACH_CMP(CMP_PAIR_FN, cmp_bf16x2, uint32_t, float, LOAD_BF16)

#define CMP_ENTRY(cmp, expr, name) [STITCH__##cmp] = name##_##cmp,
#define CMP_ROW(name)                                                                                                  \
    {                                                                                                                  \
        EACH_CMP(CMP_ENTRY, name)                                                                                      \
    }

stitch__cmp_fn stitch__arith_lanes_cmp(stitch__num type, stitch__cmp cmp, bool ftz)
{
    static const stitch__cmp_fn table[STITCH__NUM_COUNT][STITCH__CMP_COUNT] = {
        [STITCH__U16] = CMP_ROW(cmp_u16), [STITCH__S16] = CMP_ROW(cmp_s16),     [STITCH__U32] = CMP_ROW(cmp_u32),
        [STITCH__S32] = CMP_ROW(cmp_s32), [STITCH__U64] = CMP_ROW(cmp_u64),     [STITCH__S64] = CMP_ROW(cmp_s64),
        [STITCH__F16] = CMP_ROW(cmp_f16), [STITCH__BF16] = CMP_ROW(cmp_bf16),   [STITCH__F32] = CMP_ROW(cmp_f32),
        [STITCH__F64] = CMP_ROW(cmp_f64), [STITCH__F16X2] = CMP_ROW(cmp_f16x2), [STITCH__BF16X2] = CMP_ROW(cmp_bf16x2),
    };
    static const stitch__cmp_fn flushing[3][STITCH__CMP_COUNT] = {CMP_ROW(cmp_f32z), CMP_ROW(cmp_f16z),
                                                                  CMP_ROW(cmp_f16x2z)};
    if ((unsigned)type >= STITCH__NUM_COUNT || (unsigned)cmp >= STITCH__CMP_COUNT)
        return NULL;
    if (ftz) {
        switch (type) {
        case STITCH__F32: return flushing[0][cmp];
        case STITCH__F16: return flushing[1][cmp];
        case STITCH__F16X2: return flushing[2][cmp];
        default: return NULL;
        }
    }
    if (type <= STITCH__S64 && cmp > STITCH__GE) /* integers have no NaN */
        return NULL;
    return table[type][cmp];
}

static bool test_one(bool is64, stitch__testp test, uint64_t bits)
{
    uint64_t a = is64 ? bits & ~(1ull << 63) : bits & ~SIGN32;
    uint64_t inf = is64 ? 0x7ff0000000000000u : INF32, least = is64 ? 0x0010000000000000u : 0x00800000u;
    switch (test) {
    case STITCH__TESTP_FINITE: return a < inf;
    case STITCH__TESTP_INFINITE: return a == inf;
    case STITCH__TESTP_NUMBER: return a <= inf;
    case STITCH__TESTP_NOTANUMBER: return a > inf;
    case STITCH__TESTP_NORMAL: return a == 0 || (a >= least && a < inf); /* as the hardware has it; PTX does not say */
    default: return a != 0 && a < least;
    }
}

uint32_t stitch__arith_testp(stitch__num type, stitch__testp test, const void *a)
{
    uint32_t mask = 0;
    bool is64 = type == STITCH__F64;
    for (int i = 0; i < STITCH__LANES; i++) {
        uint64_t bits = is64 ? ((const uint64_t *)a)[i] : ((const uint32_t *)a)[i];
        mask |= (uint32_t)test_one(is64, test, bits) << i;
    }
    return mask;
}
