/* SPDX-License-Identifier: MIT
 *
 * Matrix products on the simulated device, against sums in double that are written down here.
 */
#include <math.h>

#include "base/base.h"
#include "check.h"
#include "sim/arith.h"
#include "sim/gemm.h"

static stitch__sim_memory *mem;
static uint32_t seed;

static double draw(void) /* in [-1, 1), with few enough bits for every format but fp8 */
{
    seed = seed * 1664525 + 1013904223;
    return ((double)(seed >> 25) - 64) / 64;
}

static float as_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static uint32_t as_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

static double get(const uint8_t *p, int64_t i, int dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F64: return ((const double *)(const void *)p)[i];
    case STITCH_DTYPE_F32:
    case STITCH_DTYPE_TF32: return (double)((const float *)(const void *)p)[i];
    case STITCH_DTYPE_F16: return (double)as_float(stitch__f32_from_f16(((const uint16_t *)(const void *)p)[i]));
    case STITCH_DTYPE_BF16: return (double)as_float((uint32_t)((const uint16_t *)(const void *)p)[i] << 16);
    default: break;
    }
    stitch__num format = dtype == STITCH_DTYPE_F8E4M3 ? STITCH__E4M3X2 : STITCH__E5M2X2;
    return (double)as_float(stitch__f32_from_f16(stitch__f16_from_fp8(p[i], format)));
}

static void put(uint8_t *p, int64_t i, int dtype, double v)
{
    uint32_t bits = as_bits((float)v);
    switch (dtype) {
    case STITCH_DTYPE_F64: ((double *)(void *)p)[i] = v; break;
    case STITCH_DTYPE_F32:
    case STITCH_DTYPE_TF32: ((float *)(void *)p)[i] = (float)v; break;
    case STITCH_DTYPE_F16: ((uint16_t *)(void *)p)[i] = stitch__f16_from_f32(bits, STITCH__RN); break;
    case STITCH_DTYPE_BF16: ((uint16_t *)(void *)p)[i] = stitch__bf16_from_f32(bits, STITCH__RN); break;
    default:
        p[i] = stitch__fp8_from_f32(bits, dtype == STITCH_DTYPE_F8E4M3 ? STITCH__E4M3X2 : STITCH__E5M2X2, false);
        break;
    }
}

static stitch__sim_alloc *buffer(int64_t elements, int dtype, const char *name, bool fill)
{
    stitch_error *err = NULL;
    stitch__sim_alloc *a;
    uint64_t bytes = (uint64_t)elements * stitch_dtype_size(dtype);
    CHECK_OK(stitch__sim_memory_alloc(mem, bytes ? bytes : 1, 0, name, &a, &err)); /* k may be 0 */
    for (int64_t i = 0; fill && i < elements; i++)
        put(a->host, i, dtype, draw());
    stitch__sim_memory_mark(a, 0, a->size, fill);
    return a;
}

static void begin(void)
{
    stitch_error *err = NULL;
    stitch__sim_memory_free(mem);
    mem = NULL;
    CHECK_OK(stitch__sim_memory_new(&mem, &err));
    seed = 42;
}

static int call(const stitch__sim_gemm_args *g, stitch_error **err)
{
    stitch__sim_report finding;
    bool found;
    int rc = stitch__sim_gemm(g, mem, NULL, &finding, &found, err);
    if (rc == STITCH_OK && found)
        FAIL("unexpected finding: %s", finding.detail);
    return rc;
}

static double activate(double v, int epilogue)
{
    if (epilogue == STITCH__SIM_EPILOGUE_RELU)
        return v > 0 ? v : 0;
    if (epilogue == STITCH__SIM_EPILOGUE_GELU)
        return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    return v;
}

/* One product with everything on: leading dimensions, batches, beta, bias. */
static void one(int dtype, int out, int compute, bool ta, bool tb, int epilogue, int64_t m, int64_t n, int64_t k,
                int64_t batch, double tolerance)
{
    begin();
    int64_t lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 5, ldc = n + 2, ldd = n + 1;
    int64_t ra = ta ? k : m, rb = tb ? n : k;
    stitch__sim_alloc *a = buffer(lda * ra * batch, dtype, "a", true), *b = buffer(ldb * rb, dtype, "b", true);
    stitch__sim_alloc *c = buffer(ldc * m * batch, out, "c", false), *d = buffer(ldd * m * batch, out, "d", true);
    stitch__sim_alloc *bias = buffer(n, out, "bias", true);
    stitch__sim_gemm_args g = {
        .m = m,
        .n = n,
        .k = k,
        .batch = batch,
        .a = {a->base, dtype, lda, lda * ra},
        .b = {b->base, dtype, ldb, 0}, /* shared by all batches */
        .c = {c->base, out, ldc, ldc * m},
        .d = {d->base, out, ldd, ldd * m},
        .bias = {bias->base, out, 0, 0},
        .trans_a = ta,
        .trans_b = tb,
        .alpha = 0.75,
        .beta = -0.5,
        .epilogue = epilogue,
        .compute = compute,
    };
    stitch_error *err = NULL;
    CHECK_OK(call(&g, &err));
    for (int64_t s = 0; s < batch; s++) {
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += get(a->host, s * lda * ra + (ta ? l * lda + i : i * lda + l), dtype) *
                           get(b->host, tb ? j * ldb + l : l * ldb + j, dtype);
                double want = activate(
                    0.75 * sum - 0.5 * get(d->host, (s * m + i) * ldd + j, out) + get(bias->host, j, out), epilogue);
                double got = get(c->host, (s * m + i) * ldc + j, out);
                if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
                    FAIL("%s: c[%d][%d][%d] is %.9g, expected %.9g", stitch_dtype_name(dtype), (int)s, (int)i, (int)j,
                         got, want);
            }
            size_t elem = stitch_dtype_size(out);
            uint64_t at = (uint64_t)((s * m + i) * ldc) * elem;
            CHECK(stitch__sim_memory_written(c, at, (uint64_t)n * elem));
            CHECK(!stitch__sim_memory_written(c, at + (uint64_t)n * elem, 1)); /* padding is left alone */
        }
    }
}

TEST(every_dtype_and_layout)
{
    static const struct {
        int in, out, compute;
        double tolerance;
    } kinds[] = {
        {STITCH_DTYPE_F64, STITCH_DTYPE_F64, 0, 1e-14},
        {STITCH_DTYPE_F32, STITCH_DTYPE_F32, 0, 1e-6},
        {STITCH_DTYPE_F32, STITCH_DTYPE_F32, STITCH_DTYPE_TF32, 1e-6}, /* the inputs have 8 bits */
        {STITCH_DTYPE_TF32, STITCH_DTYPE_F32, STITCH_DTYPE_TF32, 1e-6},
        {STITCH_DTYPE_F16, STITCH_DTYPE_F16, STITCH_DTYPE_F32, 1e-3},
        {STITCH_DTYPE_F16, STITCH_DTYPE_F32, STITCH_DTYPE_F32, 1e-6},
        {STITCH_DTYPE_F16, STITCH_DTYPE_F16, STITCH_DTYPE_F16, 2e-3},
        {STITCH_DTYPE_BF16, STITCH_DTYPE_BF16, STITCH_DTYPE_F32, 8e-3},
        {STITCH_DTYPE_BF16, STITCH_DTYPE_F32, STITCH_DTYPE_F32, 1e-6},
        {STITCH_DTYPE_F8E4M3, STITCH_DTYPE_BF16, STITCH_DTYPE_F32, 8e-3},
        {STITCH_DTYPE_F8E5M2, STITCH_DTYPE_F8E5M2, STITCH_DTYPE_F32, 0.15},
    };
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        for (int t = 0; t < 4; t++)
            one(kinds[i].in, kinds[i].out, kinds[i].compute, t & 1, t & 2, (int)(i + (size_t)t) % 3, 13, 37, 29, 3,
                kinds[i].tolerance);
    }
}

TEST(sizes)
{
    static const int sizes[][3] = {{1, 1, 1}, {1, 300, 700}, {300, 1, 5}, {64, 64, 0}, {600, 33, 520}, {17, 1100, 300}};
    for (size_t i = 0; i < STITCH__COUNT(sizes); i++) {
        for (int t = 0; t < 4; t++)
            one(STITCH_DTYPE_F32, STITCH_DTYPE_F32, 0, t & 1, t & 2, 0, sizes[i][0], sizes[i][1], sizes[i][2], 1, 1e-5);
    }
}

/* More rows than are computed at once. */
TEST(panels)
{
    for (int t = 0; t < 2; t++) {
        begin();
        enum { M = 5000, N = 1024, K = 2 };
        stitch__sim_alloc *a = buffer(M * K, STITCH_DTYPE_F32, "a", true),
                          *b = buffer(K * N, STITCH_DTYPE_F32, "b", true);
        stitch__sim_alloc *c = buffer(M * N, STITCH_DTYPE_F32, "c", false);
        stitch__sim_gemm_args g = {.m = M,
                                   .n = N,
                                   .k = K,
                                   .a = {a->base, STITCH_DTYPE_F32, 0, 0},
                                   .b = {b->base, STITCH_DTYPE_F32, 0, 0},
                                   .c = {c->base, STITCH_DTYPE_F32, 0, 0},
                                   .alpha = 1,
                                   .trans_a = t};
        stitch_error *err = NULL;
        CHECK_OK(call(&g, &err));
        const float *x = (const float *)(void *)a->host, *y = (const float *)(void *)b->host;
        const float *z = (const float *)(void *)c->host;
        for (int i = 0; i < M; i += 7) {
            float p = t ? x[i] : x[2 * i], q = t ? x[M + i] : x[2 * i + 1];
            for (int j = 0; j < N; j += 5)
                CHECK_NEAR(z[i * N + j], p * y[j] + q * y[N + j], 1e-6);
        }
        CHECK(stitch__sim_memory_written(c, 0, c->size));
    }
}

/* beta with no d of its own means c; the epilogue keeps NaN; alpha 0 is not a way around the sum. */
TEST(in_place_and_nan)
{
    begin();
    stitch__sim_alloc *a = buffer(4, STITCH_DTYPE_F32, "a", true), *b = buffer(4, STITCH_DTYPE_F32, "b", true);
    stitch__sim_alloc *c = buffer(4, STITCH_DTYPE_F32, "c", true);
    float *x = (float *)(void *)a->host, *y = (float *)(void *)b->host, *z = (float *)(void *)c->host;
    for (int i = 0; i < 4; i++) {
        x[i] = (float)i;
        y[i] = (float)(i == 0 || i == 3);
        z[i] = 100;
    }
    x[3] = NAN;
    stitch__sim_gemm_args g = {.m = 2,
                               .n = 2,
                               .k = 2,
                               .a = {a->base, STITCH_DTYPE_F32, 0, 0},
                               .b = {b->base, STITCH_DTYPE_F32, 0, 0},
                               .c = {c->base, STITCH_DTYPE_F32, 0, 0},
                               .alpha = -1,
                               .beta = 0.015625,
                               .epilogue = STITCH__SIM_EPILOGUE_RELU};
    stitch_error *err = NULL;
    CHECK_OK(call(&g, &err));
    CHECK_NEAR(z[0], 1.5625, 0);
    CHECK_NEAR(z[1], 0.5625, 0);
    CHECK(isnan(z[3]));
}

TEST(tf32_rounds_to_nearest)
{
    begin();
    stitch__sim_alloc *a = buffer(1, STITCH_DTYPE_F32, "a", true), *b = buffer(1, STITCH_DTYPE_F32, "b", true);
    stitch__sim_alloc *c = buffer(1, STITCH_DTYPE_F32, "c", false);
    static const uint32_t cases[][2] = {{0x3f800fff, 0x3f800000}, {0x3f801000, 0x3f802000}, {0xbf801000, 0xbf802000},
                                        {0x3fffffff, 0x40000000}, {0x7f800000, 0x7f800000}, {0x00001000, 0x00002000}};
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        memcpy(a->host, &cases[i][0], 4);
        memcpy(b->host, "\x00\x00\x80\x3f", 4);
        stitch__sim_gemm_args g = {.m = 1,
                                   .n = 1,
                                   .k = 1,
                                   .a = {a->base, STITCH_DTYPE_F32, 0, 0},
                                   .b = {b->base, STITCH_DTYPE_F32, 0, 0},
                                   .c = {c->base, STITCH_DTYPE_F32, 0, 0},
                                   .alpha = 1,
                                   .compute = STITCH_DTYPE_TF32};
        stitch_error *err = NULL;
        CHECK_OK(call(&g, &err));
        uint32_t got;
        memcpy(&got, c->host, 4);
        CHECK_INT(got, cases[i][1]);
    }
}

static stitch__sim_gemm_args plain(const stitch__sim_alloc *a, const stitch__sim_alloc *b, const stitch__sim_alloc *c)
{
    return (stitch__sim_gemm_args){.m = 8,
                                   .n = 8,
                                   .k = 8,
                                   .a = {a->base, STITCH_DTYPE_F32, 0, 0},
                                   .b = {b->base, STITCH_DTYPE_F32, 0, 0},
                                   .c = {c->base, STITCH_DTYPE_F32, 0, 0},
                                   .alpha = 1};
}

TEST(findings)
{
    begin();
    stitch__sim_alloc *a = buffer(64, STITCH_DTYPE_F32, "act", true), *b = buffer(64, STITCH_DTYPE_F32, "weight", true);
    stitch__sim_alloc *c = buffer(64, STITCH_DTYPE_F32, "out", false);
    stitch__sim_gemm_args g = plain(a, b, c);
    stitch__sim_report r;
    bool found;
    stitch_error *err = NULL;

    stitch__sim_memory_mark(b, 40, 6, false); /* two elements, one of them in part */
    CHECK_OK(stitch__sim_gemm(&g, mem, NULL, &r, &found, &err));
    CHECK(found && r.kind == STITCH__SIM_UNINITIALISED);
    CHECK_INT(r.offset, 40);
    CHECK_INT(r.count, 2);
    CHECK_STR(r.buffer, "weight");
    CHECK_HAS(r.detail, "operand b");
    CHECK_OK(stitch__sim_gemm(&g, mem, NULL, NULL, NULL, &err));
    stitch__sim_memory_mark(b, 0, b->size, true);

    g.beta = 1; /* reads c, which now has been written */
    CHECK_OK(stitch__sim_gemm(&g, mem, NULL, &r, &found, &err));
    CHECK(!found);
    stitch__sim_memory_mark(c, 0, c->size, false);
    CHECK_OK(stitch__sim_gemm(&g, mem, NULL, &r, &found, &err));
    CHECK(found && r.count == 64);
    g.beta = 0;

    g.m = 9; /* one row too many */
    CHECK_ERR(stitch__sim_gemm(&g, mem, NULL, &r, &found, &err), STITCH_E_FAULT, "operand a (9 x 8 of f32");
    CHECK(found && r.kind == STITCH__SIM_OUT_OF_BOUNDS && !r.first.write);
    CHECK_INT(r.distance, 32);
    CHECK_STR(r.buffer, "act");
    g.m = 8;
    g.c.address -= 4;
    CHECK_ERR(stitch__sim_gemm(&g, mem, NULL, &r, &found, &err), STITCH_E_FAULT, "near out");
    CHECK(r.first.write && r.distance == -4);
    g.c.address += 4;
    CHECK_OK(stitch__sim_memory_release(mem, a->base, &err));
    CHECK_ERR(stitch__sim_gemm(&g, mem, NULL, &r, &found, &err), STITCH_E_FAULT, "act");
    CHECK(r.kind == STITCH__SIM_USE_AFTER_FREE);
}

/* The last row's padding need not exist. */
TEST(last_row_without_padding)
{
    begin();
    stitch__sim_alloc *a = buffer(7 * 100 + 8, STITCH_DTYPE_F32, "a", true),
                      *b = buffer(64, STITCH_DTYPE_F32, "b", true);
    stitch__sim_alloc *c = buffer(64, STITCH_DTYPE_F32, "c", false);
    stitch__sim_gemm_args g = plain(a, b, c);
    stitch_error *err = NULL;
    g.a.ld = 100;
    CHECK_OK(call(&g, &err));
    g.a.ld = 101;
    CHECK_ERR(call(&g, &err), STITCH_E_FAULT, "operand a");
}

TEST(bad_arguments)
{
    begin();
    stitch__sim_alloc *a = buffer(64, STITCH_DTYPE_F32, "a", true), *b = buffer(64, STITCH_DTYPE_F32, "b", true);
    stitch__sim_alloc *c = buffer(64, STITCH_DTYPE_F32, "c", false);
    const stitch__sim_gemm_args good = plain(a, b, c);
    stitch__sim_gemm_args g;
    stitch_error *err = NULL;
#define BAD(change, code, part)                                                                                        \
    do {                                                                                                               \
        g = good;                                                                                                      \
        change;                                                                                                        \
        CHECK_ERR(call(&g, &err), code, part);                                                                         \
    } while (0)
    BAD(g.m = 0, STITCH_E_INVALID, "m 0");
    BAD(g.k = -1, STITCH_E_INVALID, "k -1");
    BAD(g.n = INT64_MAX, STITCH_E_INVALID, "no product");
    BAD(g.batch = -1, STITCH_E_INVALID, "batch -1");
    BAD(g.batch = 2, STITCH_E_INVALID, "overlap");
    BAD(g.batch = INT64_MAX; g.c.stride = 64; g.a.stride = 64, STITCH_E_INVALID, "larger than any memory");
    BAD(g.a.ld = 7, STITCH_E_INVALID, "ld 7");
    BAD(g.b.stride = -8, STITCH_E_INVALID, "stride -8");
    BAD(g.a.address++, STITCH_E_INVALID, "not aligned");
    BAD(g.a.address = 0, STITCH_E_FAULT, "operand a");
    BAD(g.a.dtype = STITCH_DTYPE_I32, STITCH_E_UNSUPPORTED, "dtype i32");
    BAD(g.c.dtype = 0, STITCH_E_UNSUPPORTED, "(none)");
    BAD(g.c.dtype = 99, STITCH_E_UNSUPPORTED, "(none)");
    BAD(g.epilogue = 3, STITCH_E_INVALID, "epilogue 3");
    BAD(g.compute = STITCH_DTYPE_F64, STITCH_E_UNSUPPORTED, "compute f64");
    BAD(g.compute = STITCH_DTYPE_F16, STITCH_E_UNSUPPORTED, "compute f16");
    BAD(g.compute = STITCH_DTYPE_BOOL, STITCH_E_UNSUPPORTED, "compute bool");
    BAD(g.compute = 77, STITCH_E_UNSUPPORTED, "(none)");
#undef BAD
}

TEST(cancelled)
{
    begin();
    stitch__sim_alloc *a = buffer(64, STITCH_DTYPE_F32, "a", true), *b = buffer(64, STITCH_DTYPE_F32, "b", true);
    stitch__sim_alloc *c = buffer(64, STITCH_DTYPE_F32, "c", false);
    stitch__sim_gemm_args g = plain(a, b, c);
    stitch_cancel *cancel;
    stitch_error *err = NULL;
    CHECK_INT(stitch_cancel_new(&cancel), STITCH_OK);
    stitch_cancel_trigger(cancel);
    const stitch__sim_limit limits[] = {{.cancel = cancel}, {.cancel_too = cancel}};
    for (size_t i = 0; i < STITCH__COUNT(limits); i++)
        CHECK_ERR(stitch__sim_gemm(&g, mem, &limits[i], NULL, NULL, &err), STITCH_E_CANCELLED, "cancelled");
    const stitch__sim_limit past = {.deadline_ns = 1};
    CHECK_ERR(stitch__sim_gemm(&g, mem, &past, NULL, NULL, &err), STITCH_E_TIMEOUT, "deadline");
    CHECK(!stitch__sim_memory_written(c, 0, 4));
    stitch_cancel_free(cancel);
}

TEST(finish)
{
    CHECK(stitch__sim_gemm_backend()[0]);
    printf("# backend: %s\n", stitch__sim_gemm_backend());
    stitch__sim_memory_free(mem);
    mem = NULL;
}

TEST_MAIN(RUN(every_dtype_and_layout), RUN(sizes), RUN(panels), RUN(in_place_and_nan), RUN(tf32_rounds_to_nearest),
          RUN(findings), RUN(last_row_without_padding), RUN(bad_arguments), RUN(cancelled), RUN(finish))
