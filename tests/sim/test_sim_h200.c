/* SPDX-License-Identifier: MIT
 *
 * The simulator's arithmetic against what an H200 computed (tests/sim/data says how it was recorded): matrix products
 * bit for bit, special functions by checksum of whole blocks of 2^24 inputs where the coefficients are the hardware's,
 * and within the stated error everywhere. STITCH_TEST_ALL_BLOCKS=1 compares all 256 blocks of each function (minutes).
 */
#include "check.h"
#include "sim/arith.h"

#include <math.h>

#ifndef STITCH_TEST_DATA
#error "STITCH_TEST_DATA names the folder of the recordings"
#endif

static void load(const char *name, void *out, size_t size)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", STITCH_TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    if (!f)
        FAIL("%s: cannot open", path);
    size_t got = fread(out, 1, size, f);
    fclose(f);
    CHECK_INT(got, size);
}

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static float as_float(uint32_t x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}

static uint32_t as_bits(float f)
{
    uint32_t x;
    memcpy(&x, &f, 4);
    return x;
}

/* ---- special functions ----------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t op, flags;
} functions[9] = {
    {"ex2.approx", STITCH__EX2_APPROX, 0},     {"ex2.approx.ftz", STITCH__EX2_APPROX, STITCH__FTZ},
    {"lg2.approx", STITCH__LG2_APPROX, 0},     {"rcp.approx", STITCH__RCP_APPROX, 0},
    {"rsqrt.approx", STITCH__RSQRT_APPROX, 0}, {"sqrt.approx", STITCH__SQRT_APPROX, 0},
    {"sin.approx", STITCH__SIN_APPROX, 0},     {"cos.approx", STITCH__COS_APPROX, 0},
    {"tanh.approx", STITCH__TANH_APPROX, 0},
};

static stitch__lanes_fn lanes_of(int i)
{
    return stitch__arith_lanes(&(stitch__arith_op){functions[i].op, STITCH__F32, STITCH__RN, functions[i].flags, 0});
}

static uint64_t checksum(stitch__lanes_fn fn, uint32_t block)
{
    uint64_t sum = 0;
    for (uint32_t start = 0; start < 1u << 24; start += STITCH__LANES) {
        uint32_t x[STITCH__LANES], y[STITCH__LANES];
        for (uint32_t i = 0; i < STITCH__LANES; i++)
            x[i] = block << 24 | (start + i);
        fn(y, x, NULL, NULL);
        for (int i = 0; i < STITCH__LANES; i++)
            sum += (uint64_t)mix(x[i] ^ mix(y[i])) * (x[i] | 1u);
    }
    return sum;
}

TEST(special_functions_give_the_hardware_bits)
{
    static uint64_t sums[9 * 256 + 36];
    static const uint8_t sample[] = {0x00, 0x3e, 0x3f, 0x40, 0x42, 0x7f, 0x80, 0xbf, 0xc2, 0xff};
    bool all = getenv("STITCH_TEST_ALL_BLOCKS") != NULL;
    int exact = 0, compared = 0;
    load("h200_sfu.bin", sums, sizeof(sums));
    for (int f = 0; f < 9; f++) {
        if (!stitch__arith_sfu_accuracy((stitch__fop)functions[f].op).exact)
            continue;
        exact++;
        for (uint32_t n = 0; n < (all ? 256 : sizeof(sample)); n++) {
            uint32_t block = all ? n : sample[n];
            if (checksum(lanes_of(f), block) != sums[f * 256 + (int)block])
                FAIL("%s: block %02x differs", functions[f].name, block);
            compared++;
        }
    }
    printf("# %d functions exact, %d blocks of 2^24 inputs compared\n", exact, compared);
    if (!exact)
        SKIP("no function has the hardware's coefficients: make them with gen_sfu_tables.py --samples");
}

/* Where hardware and simulator must agree whatever the coefficients: NaN, Inf, zeros, subnormals, signs and overflow. A
 * block of inputs whose results do not depend on the polynomial has the hardware's checksum. */
TEST(special_cases_give_the_hardware_bits)
{
    static uint64_t sums[9 * 256 + 36];
    static const struct {
        int function;
        uint8_t first, last;
    } whole[] = {{0, 0x44, 0x7f}, {0, 0xc4, 0xff}, {1, 0x44, 0x7f}, {1, 0xc4, 0xff}, {2, 0x81, 0xff},
                 {4, 0x81, 0xff}, {5, 0x81, 0xff}, {8, 0x42, 0x7f}, {8, 0xc2, 0xff}};
    load("h200_sfu.bin", sums, sizeof(sums));
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        for (int n = 0; n < 3; n++) {
            uint32_t block = n == 0 ? whole[i].first : n == 1 ? whole[i].last : (whole[i].first + whole[i].last) / 2u;
            if (checksum(lanes_of(whole[i].function), block) != sums[whole[i].function * 256 + (int)block])
                FAIL("%s: block %02x differs", functions[whole[i].function].name, block);
        }
    }
}

static double exact_value(int f, double x)
{
    switch (functions[f].op) {
    case STITCH__EX2_APPROX: return exp2(x);
    case STITCH__LG2_APPROX: return log2(x);
    case STITCH__RCP_APPROX: return 1 / x;
    case STITCH__RSQRT_APPROX: return 1 / sqrt(x);
    case STITCH__SQRT_APPROX: return sqrt(x);
    case STITCH__SIN_APPROX: return sin(x);
    case STITCH__COS_APPROX: return cos(x);
    default: return tanh(x);
    }
}

TEST(special_functions_keep_their_stated_error)
{
    for (int f = 0; f < 9; f++) {
        stitch__sfu_accuracy stated = stitch__arith_sfu_accuracy((stitch__fop)functions[f].op);
        stitch__lanes_fn fn = lanes_of(f);
        uint32_t worst = 0;
        double worst_absolute = 0;
        bool circular = functions[f].op == STITCH__SIN_APPROX || functions[f].op == STITCH__COS_APPROX;
        for (uint64_t start = 0; start < UINT64_C(1) << 32; start += STITCH__LANES * 401) {
            uint32_t x[STITCH__LANES], y[STITCH__LANES];
            for (uint32_t i = 0; i < STITCH__LANES; i++)
                x[i] = (uint32_t)start + i * 401;
            fn(y, x, NULL, NULL);
            for (int i = 0; i < STITCH__LANES; i++) {
                double z = as_float(x[i]), want = exact_value(f, z);
                float rounded = (float)want;
                if (!(fabsf(rounded) < 3e38f) || (circular && fabs(z) > 3.14159265))
                    continue;
                if (functions[f].op == STITCH__LG2_APPROX && !(z > 0.5 && z < 2))
                    continue; /* elsewhere the float's own rounding is larger than the bound */
                if (fabsf(rounded) > 1.2e-38f) {
                    uint32_t got = y[i], e = got > as_bits(rounded) ? got - as_bits(rounded) : as_bits(rounded) - got;
                    worst = e > worst ? e : worst;
                }
                double d = fabs(as_float(y[i]) - want);
                worst_absolute = d > worst_absolute ? d : worst_absolute;
            }
        }
        if (stated.ulp && worst > stated.ulp)
            FAIL("%s: %u units in the last place, stated %u", functions[f].name, worst, stated.ulp);
        if (stated.absolute > 0 && worst_absolute > stated.absolute)
            FAIL("%s: error 2^%.2f, stated 2^%.2f", functions[f].name, log2(worst_absolute), log2(stated.absolute));
        if (stated.ulp)
            printf("# %s: at most %u units in the last place\n", functions[f].name, worst);
        else
            printf("# %s: at most 2^%.2f\n", functions[f].name, log2(worst_absolute));
    }
}

/* All 65,536 inputs of the 16-bit forms, and of the pairs. */
TEST(half_functions_give_the_hardware_bits)
{
    static uint64_t sums[4][256];
    static const stitch__arith_op ops[4][2] = {
        {{STITCH__EX2_APPROX, STITCH__F16, 0, 0, 0}, {STITCH__EX2_APPROX, STITCH__F16X2, 0, 0, 0}},
        {{STITCH__TANH_APPROX, STITCH__F16, 0, 0, 0}, {STITCH__TANH_APPROX, STITCH__F16X2, 0, 0, 0}},
        {{STITCH__EX2_APPROX, STITCH__BF16, 0, STITCH__FTZ, 0},
         {STITCH__EX2_APPROX, STITCH__BF16X2, 0, STITCH__FTZ, 0}},
        {{STITCH__TANH_APPROX, STITCH__BF16, 0, 0, 0}, {STITCH__TANH_APPROX, STITCH__BF16X2, 0, 0, 0}},
    };
    if (!stitch__arith_sfu_accuracy(STITCH__EX2_APPROX).exact)
        SKIP("the coefficients are not the hardware's");
    load("h200_half.bin", sums, sizeof(sums));
    for (int f = 0; f < 4; f++) {
        for (uint32_t block = 0; block < 256; block++) {
            uint64_t sum = 0;
            for (uint32_t low = 0; low < 256; low++) {
                uint32_t x = block << 8 | low, y = (uint32_t)stitch__arith_eval(&ops[f][0], x, 0, 0);
                sum += (uint64_t)mix(x ^ mix(y)) * (x | 1u);
                CHECK_INT(stitch__arith_eval(&ops[f][1], x << 16 | (x ^ 1), 0, 0) >> 16, y);
                CHECK_INT(stitch__arith_eval(&ops[f][1], x | (x ^ 1) << 16, 0, 0) & 0xffff, y);
            }
            if (sum != sums[f][block])
                FAIL("function %d: block %02x differs", f, block);
        }
    }
}

/* Where random programs (tests/fuzz/ptx_diff.c) or the recording once differed from the H200, with its answers. */
TEST(differences_once_found)
{
    static const struct {
        stitch__arith_cvt cvt;
        uint64_t x, want;
    } cvts[] = {
        {{STITCH__F16, STITCH__F32, STITCH__RP, STITCH__FTZ, false}, 0xc7b7, 1},
        {{STITCH__F16, STITCH__F32, STITCH__RM, STITCH__FTZ, false}, 0x804aa65a, 0x8001},
        {{STITCH__F16, STITCH__F64, STITCH__RZ, 0, false}, 0xfffffffffffffffc, 0xffff},
        {{STITCH__F16, STITCH__F64, STITCH__RZ, 0, false}, 0x7ff6fde3db732d1d, 0x7fbf},
        {{STITCH__BF16, STITCH__F64, STITCH__RN, 0, false}, 0xfffa8afc8ec19dea, 0xffd4},
        {{STITCH__F32, STITCH__F64, STITCH__RN, 0, false}, 0xfffffffffffffffc, 0xffffffff},
        {{STITCH__F32, STITCH__F64, STITCH__RN, STITCH__FTZ, false}, 0xfff5e4f7bdb7cf96, 0xffef27bd},
        {{STITCH__F32, STITCH__F64, STITCH__RZ, STITCH__FTZ, false}, 0x7ffc0e98d3d6a061, 0x7fe074c6},
        {{STITCH__TF32, STITCH__F32, STITCH__RZ, 0, false}, 0x7ffab268, 0x7fffe000},
        {{STITCH__F64, STITCH__F16, STITCH__RN, 0, false}, 0x7d35, 0x7ffcd40000000000},
        {{STITCH__F64, STITCH__F32, STITCH__RN, STITCH__FTZ, false}, 0xffdeecc3, 0x7fffffffe0000000},
    };
    static const struct {
        stitch__arith_op op;
        uint64_t a, b, c, want;
    } ops[] = {
        {{STITCH__DIV, STITCH__F32, STITCH__RM, STITCH__FTZ, 0}, 0x800002, 0xbf800003, 0, 0x80000000},
        {{STITCH__FMA, STITCH__F16, STITCH__RN, STITCH__FTZ, 0}, 0x8401, 0x8402, 0x8400, 0x8400},
        {{STITCH__FMA, STITCH__F16X2, STITCH__RN, STITCH__FTZ | STITCH__RELU, 0},
         0x85b9fdb0,
         0x14205c65,
         0x040185b9,
         0x00007fff},
        {{STITCH__ADD, STITCH__F64, STITCH__RZ, 0, 0}, 0x7fff7256da1bd52e, 0x7ff7020f10b10080, 0, 0x7fff020f10b10080},
        {{STITCH__FMA, STITCH__F64, STITCH__RN, 0, 0},
         0x7ff0d7802cdee3e9,
         0x7ffde45aac3a9e84,
         0x7ff0000000000000,
         0x7ffde45aac3a9e84},
        {{STITCH__NEG, STITCH__F64, STITCH__RN, 0, 0}, 0xfff7469aa6f5fedf, 0, 0, 0xffff469aa6f5fedf},
        {{STITCH__RCP_APPROX, STITCH__F64, STITCH__RN, STITCH__FTZ, 0}, 0x2cac191d44ffa5f1, 0, 0, 0x533238cc00000000},
        /* The unit does not see the low word, nor that these are NaNs. */
        {{STITCH__RCP_APPROX, STITCH__F64, STITCH__RN, STITCH__FTZ, 0}, 0xfff0000000000001, 0, 0, 0x8000000000000000},
        {{STITCH__RCP_APPROX, STITCH__F64, STITCH__RN, STITCH__FTZ, 0}, 0x7ff0000000000001, 0, 0, 0},
        {{STITCH__SQRT_APPROX, STITCH__F32, STITCH__RN, STITCH__FTZ, 0}, 0x430f881e, 0, 0, 0x413fb004},
    };
    for (size_t i = 0; i < sizeof(cvts) / sizeof(cvts[0]); i++)
        if (stitch__arith_eval_cvt(&cvts[i].cvt, cvts[i].x, 0) != cvts[i].want)
            FAIL("conversion %zu of %" PRIx64 ": got %" PRIx64 ", expected %" PRIx64, i, cvts[i].x,
                 stitch__arith_eval_cvt(&cvts[i].cvt, cvts[i].x, 0), cvts[i].want);
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        uint64_t got = stitch__arith_eval(&ops[i].op, ops[i].a, ops[i].b, ops[i].c);
        if (got != ops[i].want)
            FAIL("operation %zu: got %" PRIx64 ", expected %" PRIx64, i, got, ops[i].want);
    }
}

/* The f64 seeds give 20 bits; rsqrt.approx.f64 is made of one. */
TEST(double_seeds_and_divisions)
{
    for (int i = 1; i < 20000; i++) {
        double x = ldexp(1 + i / 20000.0, i % 1500 - 750), r;
        uint64_t bits, out;
        memcpy(&bits, &x, 8);
        out = stitch__arith_eval(&(stitch__arith_op){STITCH__RCP_APPROX, STITCH__F64, STITCH__RN, STITCH__FTZ, 0}, bits,
                                 0, 0);
        memcpy(&r, &out, 8);
        CHECK(fabs(r * x - 1) < 0x1p-19);
        CHECK_INT(out & 0xffffffff, 0);
        out = stitch__arith_eval(&(stitch__arith_op){STITCH__RSQRT_APPROX, STITCH__F64, STITCH__RN, 0, 0}, bits, 0, 0);
        memcpy(&r, &out, 8);
        CHECK(fabs(r * sqrt(x) - 1) < 0x1p-50);
        /* div.full and div.approx: 2 units in the last place. */
        float a = (float)ldexp(1 + i / 20001.0, i % 60 - 30),
              b = (float)ldexp(1 + (i * 7 % 20000) / 20000.0, i % 50 - 25);
        for (unsigned o = STITCH__DIV_APPROX; o <= STITCH__DIV_FULL; o++) {
            for (unsigned flags = 0; flags < 2; flags++) {
                uint32_t q = (uint32_t)stitch__arith_eval(
                    &(stitch__arith_op){(uint8_t)o, STITCH__F32, 0, (uint8_t)flags, 0}, as_bits(a), as_bits(b), 0);
                int64_t e = (int64_t)q - as_bits(a / b);
                CHECK(e >= -2 && e <= 2);
            }
        }
    }
}

/* ---- matrices -------------------------------------------------------------------------------------------------- */

static uint32_t hash5(uint32_t t, uint32_t m, uint32_t w, uint32_t r, uint32_t c)
{
    return mix(mix(mix(t * 7u + m) * 9u + w) + r * 64u + c);
}

/* The inputs of h200_sfu_mma.cu: type, matrix number, 0 A 1 B 2 C, row, column. */
static uint32_t input(uint32_t t, uint32_t m, uint32_t w, uint32_t r, uint32_t c)
{
    uint32_t h = hash5(t, m, w, r, c), range = 1 + (m & 3) * 3, e = (h >> 16) % range, sign = h >> 31;
    if (w == 2)
        return sign << 31 | (120 + (h >> 8) % (range * 2)) << 23 |
               (mix(mix(mix(t * 7u + m) * 9u + 3) + r * 64u + c) & 0x7fffff);
    switch (t) {
    case 0: return sign << 15 | (15 - range / 2 + e) << 10 | (h & 1023);
    case 1: return sign << 15 | (127 - range / 2 + e) << 7 | (h & 127);
    case 2: return sign << 31 | (127 - range / 2 + e) << 23 | (h & 1023) << 13;
    default: return sign << 7 | (7 - range / 2 + e) << 3 | (h & 7);
    }
}

typedef struct matrices {
    uint8_t a[16 * 32 * 4], b[32 * 8 * 4];
    uint32_t c[16 * 8], d[16 * 8];
} matrices;

static const stitch__mma mma_types[4] = {
    {16, 8, 16, STITCH__F16, STITCH__F16, STITCH__F32, STITCH__F32, true, false},
    {16, 8, 16, STITCH__BF16, STITCH__BF16, STITCH__F32, STITCH__F32, true, false},
    {16, 8, 8, STITCH__TF32, STITCH__TF32, STITCH__F32, STITCH__F32, true, false},
    {16, 8, 32, STITCH__E4M3X2, STITCH__E4M3X2, STITCH__F32, STITCH__F32, true, false},
};

static void put(uint8_t *at, size_t i, uint32_t t, uint32_t bits)
{
    size_t size = t < 2 ? 2 : t == 2 ? 4 : 1;
    memcpy(at + i * size, &bits, size); /* little-endian */
}

static void fill(matrices *x, uint32_t t, uint32_t m)
{
    uint32_t depth = mma_types[t].k;
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t k = 0; k < depth; k++)
            put(x->a, r * depth + k, t, input(t, m, 0, r, k));
    for (uint32_t k = 0; k < depth; k++)
        for (uint32_t c = 0; c < 8; c++)
            put(x->b, k * 8 + c, t, input(t, m, 1, k, c));
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t c = 0; c < 8; c++)
            x->c[r * 8 + c] = input(t, m, 2, r, c);
}

TEST(matrix_products_give_the_hardware_bits)
{
    static struct {
        uint64_t hash[4][4096];
        uint32_t result[4][8][128];
    } want;
    load("h200_mma.bin", &want, sizeof(want));
    for (uint32_t t = 0; t < 4; t++) {
        for (uint32_t m = 0; m < 4096; m++) {
            matrices x;
            uint64_t hash = 0;
            fill(&x, t, m);
            CHECK(stitch__mma_run(&mma_types[t], x.d, x.a, x.b, x.c));
            for (uint32_t i = 0; i < 128; i++) {
                if (m < 8 && x.d[i] != want.result[t][m][i])
                    FAIL("type %u matrix %u element %u: got %08x, expected %08x", t, m, i, x.d[i],
                         want.result[t][m][i]);
                hash += (uint64_t)mix(x.d[i] ^ mix(i)) * (2 * i + 1);
            }
            if (hash != want.hash[t][m])
                FAIL("type %u matrix %u differs", t, m);
        }
    }
}

/* The fast mode is within a small multiple of the float32 rounding error of the exact sum. */
TEST(fast_matrix_products_are_near)
{
    for (uint32_t t = 0; t < 4; t++) {
        stitch__mma fast = mma_types[t];
        fast.exact = false;
        for (uint32_t m = 0; m < 64; m++) {
            matrices x, y;
            fill(&x, t, m);
            y = x;
            CHECK(stitch__mma_run(&mma_types[t], x.d, x.a, x.b, x.c) && stitch__mma_run(&fast, y.d, y.a, y.b, y.c));
            double largest = 0;
            for (int i = 0; i < 128; i++)
                largest = fmax(largest, fabs(as_float(x.d[i])));
            for (int i = 0; i < 128; i++)
                CHECK(fabs(as_float(x.d[i]) - as_float(y.d[i])) <= largest * 0x1p-18);
        }
    }
}

TEST(matrix_specials)
{
    stitch__mma mma = {1, 1, 16, STITCH__F16, STITCH__F16, STITCH__F32, STITCH__F32, true, false};
    uint16_t a[16] = {0}, b[16] = {0};
    uint32_t c = 0x3f800000, d;
    static const struct {
        uint16_t a0, b0, a1, b1;
        uint32_t c, want;
    } cases[] = {
        {0, 0, 0, 0, 0, 0},                              /* nothing */
        {0, 0, 0, 0, 0x3f800000, 0x3f800000},            /* C alone */
        {0, 0, 0, 0, 0x00000001, 0x00000001},            /* a subnormal C */
        {0x7c00, 0x3c00, 0, 0, 0x3f800000, 0x7f800000},  /* Inf x 1 */
        {0x7c00, 0xbc00, 0, 0, 0x3f800000, 0xff800000},  /* Inf x -1 */
        {0x7c00, 0, 0, 0, 0x3f800000, 0x7fffffff},       /* Inf x 0 */
        {0x7c00, 0x3c00, 0xfc00, 0x3c00, 0, 0x7fffffff}, /* Inf - Inf */
        {0x3c00, 0x7e01, 0, 0, 0, 0x7fffffff},           /* NaN */
        {0x3c00, 0x3c00, 0, 0, 0xff800000, 0xff800000},  /* C = -Inf */
        {0x7c00, 0x3c00, 0, 0, 0xff800000, 0x7fffffff},  /* Inf + -Inf */
        {0x0001, 0x0001, 0, 0, 0, 0x27800000},           /* 2^-24 x 2^-24 */
        {0x3c00, 0x3c00, 0xbc00, 0x3c00, 0, 0},          /* cancels to +0 */
        {0x3c00, 0x3c00, 0, 0, 0x32800000, 0x3f800000},  /* 1 + 2^-26: cut */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        a[0] = cases[i].a0;
        b[0] = cases[i].b0;
        a[5] = cases[i].a1;
        b[5] = cases[i].b1;
        c = cases[i].c;
        CHECK(stitch__mma_run(&mma, &d, a, b, &c));
        if (d != cases[i].want)
            FAIL("case %zu: got %08x, expected %08x", i, d, cases[i].want);
    }
    CHECK(stitch__mma_run(&mma, &d, a, b, NULL)); /* no C is zero */
}

TEST(matrix_f16_accumulators)
{
    stitch__mma mma = {2, 3, 16, STITCH__F16, STITCH__F16, STITCH__F16, STITCH__F16, true, false};
    uint16_t a[2 * 16], b[16 * 3], c[6], d[6], fast[6];
    for (int i = 0; i < 32; i++)
        a[i] = stitch__f16_from_f32(as_bits((float)(i % 7 - 3) * 0.25f), STITCH__RN);
    for (int i = 0; i < 48; i++)
        b[i] = stitch__f16_from_f32(as_bits((float)(i % 5 - 2) * 0.5f), STITCH__RN);
    for (int i = 0; i < 6; i++)
        c[i] = stitch__f16_from_f32(as_bits((float)i), STITCH__RN);
    CHECK(stitch__mma_run(&mma, d, a, b, c));
    mma.exact = false;
    CHECK(stitch__mma_run(&mma, fast, a, b, c));
    for (int r = 0; r < 2; r++) {
        for (int n = 0; n < 3; n++) {
            double sum = r * 3 + n;
            for (int k = 0; k < 16; k++)
                sum += (double)as_float(stitch__f32_from_f16(a[r * 16 + k])) *
                       as_float(stitch__f32_from_f16(b[k * 3 + n]));
            CHECK_INT(d[r * 3 + n], stitch__f16_from_f32(as_bits((float)sum), STITCH__RN));
            CHECK_INT(fast[r * 3 + n], d[r * 3 + n]);
        }
    }
}

TEST(matrix_integers_and_doubles)
{
    enum { M = 3, N = 4, K = 32 };
    static const uint8_t kinds[2] = {STITCH__U8, STITCH__S8};
    uint8_t a[M * K], b[K * N];
    uint32_t c[M * N], d[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (uint8_t)mix((uint32_t)i);
    for (int i = 0; i < K * N; i++)
        b[i] = (uint8_t)mix((uint32_t)i + 1000);
    for (int i = 0; i < M * N; i++)
        c[i] = i & 1 ? 0x7fffffff : mix((uint32_t)i + 2000);
    for (int s = 0; s < 8; s++) {
        stitch__mma mma = {M, N, K, kinds[s & 1], kinds[s >> 1 & 1], STITCH__S32, STITCH__S32, true, s >> 2};
        CHECK(stitch__mma_run(&mma, d, a, b, c));
        for (int i = 0; i < M * N; i++) {
            int64_t sum = (int32_t)c[i];
            for (int k = 0; k < K; k++) {
                int x = a[i / N * K + k], y = b[k * N + i % N];
                sum += (s & 1 && x > 127 ? x - 256 : x) * (s & 2 && y > 127 ? y - 256 : y);
            }
            if (s & 4)
                sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
            CHECK_INT(d[i], (uint32_t)sum);
        }
    }
    stitch__mma mma = {1, 1, 4, STITCH__F64, STITCH__F64, STITCH__F64, STITCH__F64, true, false};
    double x[4] = {1, 0x1p-60, -1, 3}, y[4] = {1, 1, 1, 0x1p-61}, z = 0, r;
    CHECK(stitch__mma_run(&mma, &r, x, y, &z));
    CHECK(r == fma(3, 0x1p-61, fma(-1, 1, fma(0x1p-60, 1, 1))));
}

TEST(matrix_combinations_that_do_not_exist)
{
    uint32_t x[64] = {0}, d[64] = {7};
    stitch__mma bad[] = {
        {1, 1, 0, STITCH__F16, STITCH__F16, STITCH__F32, STITCH__F32, true, false},
        {1, 1, 300, STITCH__F16, STITCH__F16, STITCH__F32, STITCH__F32, true, false},
        {1, 1, 16, STITCH__F16, STITCH__BF16, STITCH__F32, STITCH__F32, true, false},
        {1, 1, 16, STITCH__BF16, STITCH__BF16, STITCH__F16, STITCH__F16, true, false},
        {1, 1, 16, STITCH__S8, STITCH__S8, STITCH__F32, STITCH__F32, true, false},
        {1, 1, 4, STITCH__F64, STITCH__F64, STITCH__F32, STITCH__F64, true, false},
        {1, 1, 4, STITCH__U32, STITCH__U32, STITCH__S32, STITCH__S32, true, false},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!stitch__mma_run(&bad[i], d, x, x, x));
    CHECK_INT(d[0], 7);
}

TEST_MAIN(RUN(special_functions_give_the_hardware_bits), RUN(special_cases_give_the_hardware_bits),
          RUN(special_functions_keep_their_stated_error), RUN(half_functions_give_the_hardware_bits),
          RUN(differences_once_found), RUN(double_seeds_and_divisions), RUN(matrix_products_give_the_hardware_bits),
          RUN(fast_matrix_products_are_near), RUN(matrix_specials), RUN(matrix_f16_accumulators),
          RUN(matrix_integers_and_doubles), RUN(matrix_combinations_that_do_not_exist))
