/* SPDX-License-Identifier: MIT
 *
 * Products on a device against a float64 reference: types, transposes, leading dimensions, batches, scaling, bias,
 * residual, epilogues; those that cuBLASLt does in one call and those that need a kernel of the library's own.
 */
#include <math.h>

#include "program_rig.h"

typedef struct gemm_case {
    const char *a, *b, *c, *d, *bias; /* dtypes; d NULL: no residual, "same": c itself; bias NULL: none */
    int m, n, k;
    bool trans_a, trans_b;
    int pad_a, pad_b, pad_c, pad_d; /* elements between rows */
    int batch;                      /* 0: not given */
    int heads;                      /* 1: batches of a and c lie side by side in rows; 2: b is shared by all batches */
    double alpha, beta;
    const char *epilogue, *compute; /* NULL: not given */
} gemm_case;

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Eighths between -1 and 1: exact in every type, 8-bit floats included. */
static double draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return ((double)((*state >> 40) % 17) - 8) / 8;
}

static uint8_t f8_bits(double v, int mantissa, int bias)
{
    int e;
    if (v == 0)
        return 0;
    double f = frexp(fabs(v), &e); /* [0.5, 1) */
    unsigned m = (unsigned)lrint(ldexp(f, mantissa + 1)) - (1u << mantissa);
    return (uint8_t)((v < 0 ? 0x80 : 0) | (unsigned)(e - 1 + bias) << mantissa | m);
}

static void store(int dtype, void *p, size_t i, double v)
{
    uint32_t bits;
    float f = (float)v;
    switch (dtype) {
    case STITCH_DTYPE_F64: ((double *)p)[i] = v; break;
    case STITCH_DTYPE_F16: ((uint16_t *)p)[i] = stitch__f16_bits(v); break;
    case STITCH_DTYPE_BF16: ((uint16_t *)p)[i] = stitch__bf16_bits(v); break;
    case STITCH_DTYPE_F8E4M3: ((uint8_t *)p)[i] = f8_bits(v, 3, 7); break;
    case STITCH_DTYPE_F8E5M2: ((uint8_t *)p)[i] = f8_bits(v, 2, 15); break;
    default:
        memcpy(&bits, &f, 4);
        ((uint32_t *)p)[i] = bits;
        break;
    }
}

static double load(int dtype, const void *p, size_t i)
{
    uint32_t bits;
    float f;
    switch (dtype) {
    case STITCH_DTYPE_F64: return ((const double *)p)[i];
    case STITCH_DTYPE_F16: return stitch__f16_value(((const uint16_t *)p)[i]);
    case STITCH_DTYPE_BF16: bits = (uint32_t)((const uint16_t *)p)[i] << 16; break;
    default: bits = ((const uint32_t *)p)[i]; break;
    }
    memcpy(&f, &bits, 4);
    return f;
}

/* Relative size of one rounding. */
static double epsilon(int dtype)
{
    return dtype == STITCH_DTYPE_F64    ? 1e-15
           : dtype == STITCH_DTYPE_F16  ? 0x1p-11
           : dtype == STITCH_DTYPE_BF16 ? 0x1p-8
                                        : 0x1p-22;
}

/* ---- one product ------------------------------------------------------------------------------------------------- */

typedef struct matrix {
    int dtype;
    size_t rows, cols, ld, stride, elements;
    void *data; /* as the device has it */
    double *v;
} matrix;

static void matrix_make(matrix *x, const char *dtype, size_t rows, size_t cols, size_t ld, size_t stride, size_t batch,
                        uint64_t *seed)
{
    x->dtype = stitch_dtype_parse(dtype);
    CHECK(x->dtype);
    x->rows = rows, x->cols = cols, x->ld = ld, x->stride = stride;
    x->elements = (rows - 1) * ld + (batch - 1) * stride + cols;
    x->data = calloc(x->elements, stitch_dtype_size(x->dtype));
    x->v = calloc(x->elements, sizeof(double));
    CHECK(x->data && x->v);
    for (size_t i = 0; i < x->elements; i++) {
        x->v[i] = draw(seed);
        if (x->dtype == STITCH_DTYPE_F8E5M2) /* two bits behind the point: quarters below 1 */
            x->v[i] = rint(x->v[i] * 4) / 4;
        store(x->dtype, x->data, i, x->v[i]);
    }
}

static void matrix_free(matrix *x)
{
    free(x->data);
    free(x->v);
}

static double activate(double v, const char *epilogue)
{
    if (epilogue && strcmp(epilogue, "relu") == 0)
        return v > 0 ? v : 0;
    if (epilogue && strcmp(epilogue, "gelu") == 0)
        return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v;
}

static void describe_case(const gemm_case *g, char *out, size_t size)
{
    snprintf(out, size,
             "%s x %s -> %s, d %s, bias %s, %d x %d x %d, trans %d %d, pad %d %d %d %d, batch %d/%d, alpha %g beta %g, "
             "%s, %s",
             g->a, g->b, g->c, g->d ? g->d : "none", g->bias ? g->bias : "none", g->m, g->n, g->k, g->trans_a,
             g->trans_b, g->pad_a, g->pad_b, g->pad_c, g->pad_d, g->batch, g->heads, g->alpha, g->beta,
             g->epilogue ? g->epilogue : "none", g->compute ? g->compute : "default");
}

static void make_plan(const gemm_case *g, const matrix *a, const matrix *b, const matrix *c, const matrix *d,
                      stitch__buf *plan)
{
    stitch__buf_printf(plan, "{\"stitch\": 1, \"run\": [");
    if (g->d && strcmp(g->d, "same") == 0) /* c starts as a copy of what d holds */
        stitch__buf_printf(plan, "{\"copy\": {\"from\": \"d\", \"to\": \"c\"}}, ");
    stitch__buf_printf(plan,
                       "{\"gemm\": {\"a\": \"a\", \"b\": \"b\", \"c\": \"c\", \"m\": %d, \"n\": %d, \"k\": %d, "
                       "\"lda\": %zu, \"ldb\": %zu, \"ldc\": %zu",
                       g->m, g->n, g->k, a->ld, b->ld, c->ld);
    stitch__buf_printf(plan, ", \"trans_a\": %s, \"trans_b\": %s, \"alpha\": %.17g", g->trans_a ? "true" : "false",
                       g->trans_b ? "true" : "false", g->alpha);
    if (g->beta != 0)
        stitch__buf_printf(plan, ", \"beta\": %.17g", g->beta);
    if (g->d && strcmp(g->d, "same") != 0)
        stitch__buf_printf(plan, ", \"d\": \"d\", \"ldd\": %zu", d->ld);
    if (g->batch) {
        stitch__buf_printf(plan, ", \"batch\": %d, \"stride_a\": %zu, \"stride_b\": %zu, \"stride_c\": %zu", g->batch,
                           a->stride, b->stride, c->stride);
        if (g->d && strcmp(g->d, "same") != 0)
            stitch__buf_printf(plan, ", \"stride_d\": %zu", d->stride);
    }
    if (g->bias)
        stitch__buf_puts(plan, ", \"bias\": \"bias\"");
    if (g->epilogue)
        stitch__buf_printf(plan, ", \"epilogue\": \"%s\"", g->epilogue);
    if (g->compute)
        stitch__buf_printf(plan, ", \"compute\": \"%s\"", g->compute);
    stitch__buf_puts(plan, "}}]}");
}

static void compare(const gemm_case *g, const matrix *a, const matrix *b, const matrix *c, const matrix *d,
                    const matrix *bias, const void *got, const void *before, const char *what)
{
    int batches = g->batch ? g->batch : 1;
    size_t size = stitch_dtype_size(c->dtype);
    bool *written = calloc(c->elements, sizeof(bool));
    double eps = epsilon(c->dtype), sum_eps = g->compute && strcmp(g->compute, "f16") == 0
                                                  ? 0x1p-10
                                                  : epsilon(a->dtype == STITCH_DTYPE_F64 ? a->dtype : STITCH_DTYPE_F32);
    CHECK(written);
    for (int l = 0; l < batches; l++) {
        for (int i = 0; i < g->m; i++) {
            for (int j = 0; j < g->n; j++) {
                double sum = 0, mass = 0;
                for (int p = 0; p < g->k; p++) {
                    double x = a->v[(size_t)l * a->stride +
                                    (g->trans_a ? (size_t)p * a->ld + (size_t)i : (size_t)i * a->ld + (size_t)p)];
                    double y = b->v[(size_t)l * b->stride +
                                    (g->trans_b ? (size_t)j * b->ld + (size_t)p : (size_t)p * b->ld + (size_t)j)];
                    sum += x * y;
                    mass += fabs(x * y);
                }
                double v = g->alpha * sum;
                if (g->beta != 0)
                    v += g->beta * d->v[(size_t)l * d->stride + (size_t)i * d->ld + (size_t)j];
                if (g->bias)
                    v += bias->v[j];
                size_t at = (size_t)l * c->stride + (size_t)i * c->ld + (size_t)j;
                double want = activate(v, g->epilogue), is = load(c->dtype, got, at);
                /* roundings of the sum, of the result, and of what is stored in between when the epilogue is a kernel
                 * of its own */
                double slack = 4 * sum_eps * fabs(g->alpha) * mass + 2.5 * eps * (fabs(want) + fabs(g->alpha * sum)) +
                               (g->epilogue ? 2e-3 * eps / 0x1p-11 : 0) + 1e-7 * (eps > 1e-14);
                written[at] = true;
                if (!(fabs(is - want) <= slack))
                    FAIL("%s: c[%d][%d,%d] is %.9g, expected %.9g within %.3g", what, l, i, j, is, want, slack);
            }
        }
    }
    for (size_t i = 0; i < c->elements; i++) {
        if (!written[i] && memcmp((const char *)got + i * size, (const char *)before + i * size, size) != 0)
            FAIL("%s: element %zu of c, between rows, was changed", what, i);
    }
    free(written);
}

static void run_case(const gemm_case *g)
{
    uint64_t seed = 42;
    matrix a = {0}, b = {0}, c = {0}, d = {0}, bias = {0};
    size_t batches = g->batch ? (size_t)g->batch : 1;
    size_t rows_a = (size_t)(g->trans_a ? g->k : g->m), cols_a = (size_t)(g->trans_a ? g->m : g->k);
    size_t rows_b = (size_t)(g->trans_b ? g->n : g->k), cols_b = (size_t)(g->trans_b ? g->k : g->n), m = (size_t)g->m,
           n = (size_t)g->n;
    size_t lda = (g->heads == 1 ? cols_a * batches : cols_a) + (size_t)g->pad_a, ldb = cols_b + (size_t)g->pad_b;
    size_t ldc = (g->heads == 1 ? n * batches : n) + (size_t)g->pad_c, ldd = n + (size_t)g->pad_d;
    char what[400], iface[600];
    stitch__buf plan;
    rig r;

    describe_case(g, what, sizeof(what));
    matrix_make(&a, g->a, rows_a, cols_a, lda, g->batch ? (g->heads == 1 ? cols_a : rows_a * lda) : 0, batches, &seed);
    matrix_make(&b, g->b, rows_b, cols_b, ldb, g->batch && g->heads != 2 ? rows_b * ldb : 0, batches, &seed);
    matrix_make(&c, g->c, m, n, ldc, g->batch ? (g->heads == 1 ? n : m * ldc) : 0, batches, &seed);
    if (g->d && strcmp(g->d, "same") != 0)
        matrix_make(&d, g->d, m, n, ldd, g->batch ? m * ldd : 0, batches, &seed);
    else /* what c holds before */
        matrix_make(&d, g->c, m, n, ldc, c.stride, batches, &seed);
    matrix_make(&bias, g->bias ? g->bias : "f32", 1, n, n, 0, 1, &seed);
    stitch__buf_init(&plan, NULL);
    make_plan(g, &a, &b, &c, &d, &plan);
    snprintf(iface, sizeof(iface),
             "Z=1; input a %s %zu; weight b %s %zu; input d %s %zu; weight bias %s %zu; output c %s %zu", g->a,
             a.elements, g->b, b.elements, stitch_dtype_name(d.dtype), d.elements, g->bias ? g->bias : "f32", n, g->c,
             c.elements);
    rig_open(&r, iface, "", plan.data, NULL);
    rig_set(&r, "a", a.data, a.elements * stitch_dtype_size(a.dtype));
    rig_set(&r, "b", b.data, b.elements * stitch_dtype_size(b.dtype));
    rig_set(&r, "d", d.data, d.elements * stitch_dtype_size(d.dtype));
    rig_set(&r, "bias", bias.data, n * stitch_dtype_size(bias.dtype));
    size_t bytes = c.elements * stitch_dtype_size(c.dtype);
    void *before = g->d && strcmp(g->d, "same") == 0 ? d.data : c.data, *got = malloc(bytes);
    CHECK(got);
    rig_set(&r, "c", c.data, bytes);
    int rc = stitch_executor_prepare(r.x, r.stream, &err);
    if (rc)
        FAIL("%s: %s", what, stitch_error_message(err));
    rig_set(&r, "c", c.data, bytes);
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err)); /* a second run starts from the same inputs */
    rig_get(&r, "c", got, bytes);
    compare(g, &a, &b, &c, &d, &bias, got, before, what);
    rig_close(&r);
    stitch__buf_free(&plan);
    free(got);
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&c);
    matrix_free(&d);
    matrix_free(&bias);
}

static void run_cases(const gemm_case *cases, size_t count)
{
    need_device();
    for (size_t i = 0; i < count; i++)
        run_case(&cases[i]);
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

TEST(types)
{
    static const gemm_case cases[] = {
        {"f32", "f32", "f32", .m = 48, .n = 64, .k = 80, .alpha = 1},
        {"f32", "f32", "f32", .m = 33, .n = 17, .k = 29, .alpha = 1, .compute = "f32"},
        {"f32", "f32", "f32", .m = 48, .n = 64, .k = 80, .alpha = 1, .compute = "tf32"},
        {"tf32", "tf32", "f32", .m = 48, .n = 64, .k = 80, .alpha = 1},
        {"f16", "f16", "f16", .m = 48, .n = 64, .k = 80, .alpha = 1},
        {"f16", "f16", "f32", .m = 48, .n = 64, .k = 80, .alpha = 1},
        {"f16", "f16", "f16", .m = 48, .n = 64, .k = 80, .alpha = 1, .compute = "f16"},
        {"f16", "f16", "f16", .m = 33, .n = 17, .k = 29, .alpha = 1},
        {"f16", "f16", "f32", .m = 33, .n = 17, .k = 29, .alpha = 1},
        {"bf16", "bf16", "bf16", .m = 48, .n = 64, .k = 80, .alpha = 1},
        {"bf16", "bf16", "f32", .m = 33, .n = 17, .k = 29, .alpha = 1},
        {"f64", "f64", "f64", .m = 33, .n = 17, .k = 29, .alpha = 1},
        {"f64", "f64", "f64", .m = 48, .n = 64, .k = 80, .alpha = 1, .compute = "f64"},
        {"f16", "f16", "f16", .m = 1, .n = 1, .k = 1, .alpha = 1},
        {"f32", "f32", "f32", .m = 1, .n = 64, .k = 300, .alpha = 1},
        {"f32", "f32", "f32", .m = 300, .n = 1, .k = 64, .alpha = 1},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(eight_bit_floats)
{
    static const gemm_case cases[] = {
        {"f8e4m3", "f8e4m3", "f32", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1},
        {"f8e4m3", "f8e4m3", "f16", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1},
        {"f8e4m3", "f8e4m3", "bf16", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 0.5},
        {"f8e5m2", "f8e4m3", "f32", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1},
        {"f8e4m3", "f8e5m2", "f16", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1},
        {"f8e4m3", "f8e4m3", "f32", .bias = "f32", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1,
         .epilogue = "gelu"},
        {"f8e4m3", "f8e4m3", "f16", .bias = "f16", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1,
         .epilogue = "relu"},
        {"f8e4m3", "f8e4m3", "f32", "f16", "bf16", .m = 48, .n = 64, .k = 80, .trans_b = true, .alpha = 1, .beta = 1},
    };
    need_device();
    if (device.compute_major * 10 + device.compute_minor < 89)
        SKIP("8-bit floats need sm_89");
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(layouts)
{
    static const char *const types[][2] = {{"f32", "f32"}, {"f16", "f16"}, {"f16", "f32"}, {"f64", "f64"}};
    need_device();
    for (size_t t = 0; t < STITCH__COUNT(types); t++) {
        for (int trans = 0; trans < 4; trans++) {
            for (int odd = 0; odd < 2; odd++) {
                gemm_case g = {types[t][0],        types[t][0],        types[t][1], .m = odd ? 21 : 40,
                               .n = odd ? 35 : 56, .k = odd ? 19 : 72, .alpha = 1};
                g.trans_a = trans & 1;
                g.trans_b = trans & 2;
                run_case(&g);
                g.pad_a = odd ? 3 : 8, g.pad_b = odd ? 5 : 16, g.pad_c = odd ? 1 : 8;
                run_case(&g);
            }
        }
    }
}

TEST(batches)
{
    static const gemm_case cases[] = {
        {"f32", "f32", "f32", .m = 16, .n = 24, .k = 32, .batch = 5, .alpha = 1},
        {"f16", "f16", "f16", .m = 16, .n = 24, .k = 32, .batch = 1, .alpha = 1},
        {"f16", "f16", "f16", .m = 16, .n = 24, .k = 32, .batch = 5, .heads = 1, .alpha = 0.125, .trans_b = true},
        {"f16", "f16", "f32", .m = 16, .n = 24, .k = 32, .batch = 5, .heads = 2, .alpha = 1, .trans_b = true},
        {"f32", "f32", "f32", .m = 13, .n = 11, .k = 7, .batch = 3, .pad_a = 1, .pad_b = 2, .pad_c = 3, .alpha = 1,
         .trans_a = true},
        {"f64", "f64", "f64", .m = 16, .n = 24, .k = 32, .batch = 3, .alpha = 1},
        {"f32", "f32", "f32", "f32", "f32", .m = 16, .n = 24, .k = 32, .batch = 3, .alpha = 1, .beta = 2,
         .epilogue = "relu"},
        {"f16", "f16", "f16", NULL, "f32", .m = 16, .n = 24, .k = 32, .batch = 4, .alpha = 1, .epilogue = "gelu"},
        {"f64", "f64", "f64", "f64", "f64", .m = 16, .n = 24, .k = 32, .batch = 4, .pad_d = 2, .alpha = 1, .beta = 1,
         .epilogue = "gelu"},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

/* Bias, residual and epilogue in all combinations of their types. */
TEST(epilogues)
{
    static const char *const results[][2] = {{"f32", "f32"},   {"f16", "f16"},  {"f16", "f32"},
                                             {"bf16", "bf16"}, {"bf16", "f32"}, {"f64", "f64"}};
    static const char *const others[] = {NULL, "f32", "f16", "bf16"};
    static const char *const acts[] = {NULL, "relu", "gelu"};
    need_device();
    for (size_t t = 0; t < STITCH__COUNT(results); t++) {
        bool f64 = strcmp(results[t][1], "f64") == 0;
        for (size_t k = 0; k < 4 * 4 * 3; k++) {
            gemm_case g = {results[t][0], results[t][0], results[t][1],   .m = 32,
                           .n = 48,       .k = 64,       .trans_b = true, .alpha = 0.5};
            g.bias = others[k % 4];
            g.d = others[k / 4 % 4];
            g.epilogue = acts[k / 16];
            if (f64 && ((g.bias && k % 4 > 1) || (g.d && k / 4 % 4 > 1)))
                continue;
            g.bias = g.bias && f64 ? "f64" : g.bias;
            g.d = g.d && f64 ? "f64" : g.d;
            g.beta = g.d ? -2 : 0;
            run_case(&g);
        }
    }
}

TEST(scaling_and_residuals)
{
    static const gemm_case cases[] = {
        {"f32", "f32", "f32", "same", .m = 32, .n = 48, .k = 64, .alpha = 1, .beta = 1},
        {"f32", "f32", "f32", "same", .m = 32, .n = 48, .k = 64, .alpha = -0.25, .beta = 0.5, .pad_c = 4},
        {"f16", "f16", "f16", "same", "f16", .m = 32, .n = 48, .k = 64, .alpha = 1, .beta = 1, .epilogue = "gelu"},
        {"f16", "f16", "f16", "same", "f32", .m = 32, .n = 48, .k = 64, .alpha = 1, .beta = 1, .epilogue = "relu"},
        {"f64", "f64", "f64", "same", "f64", .m = 32, .n = 48, .k = 64, .alpha = 1, .beta = 3, .epilogue = "relu"},
        {"f16", "f16", "f32", "f32", "f32", .m = 32, .n = 48, .k = 64, .alpha = 1, .beta = 1, .pad_c = 8, .pad_d = 16},
        {"f32", "f32", "f32", "f32", .m = 32, .n = 48, .k = 64, .alpha = 0, .beta = 1},
        {"f16", "f16", "f16", "f16", .m = 33, .n = 47, .k = 65, .alpha = 1, .beta = 1, .compute = "f16"},
        {"f16", "f16", "f16", NULL, "f16", .m = 32, .n = 48, .k = 64, .alpha = 1, .compute = "f16", .epilogue = "relu"},
        {"f32", "f32", "f32", NULL, "f32", .m = 32, .n = 48, .k = 64, .alpha = 1, .compute = "tf32",
         .epilogue = "gelu"},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

/* Strict float32 does not round its operands to TF32: 1 + 2^-12 is kept. */
TEST(strict_float32_is_strict)
{
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"gemm\": {\"a\": \"a\", \"b\": \"b\", \"c\": \"c\", \"m\": "
                               "64, \"n\": 64, \"k\": 64, \"compute\": \"%s\"}}]}";
    static float a[64 * 64], b[64 * 64], c[64 * 64];
    need_device();
    for (int i = 0; i < 64 * 64; i++) {
        a[i] = i % 65 == 0 ? 1.0f + 0x1p-12f : 0; /* a diagonal */
        b[i] = 1.0f;
    }
    for (int tf32 = 0; tf32 < 2; tf32++) {
        char text[512];
        rig r;
        snprintf(text, sizeof(text), plan, tf32 ? "tf32" : "f32");
        rig_open(&r, "N=64; input a f32 N,N; input b f32 N,N; output c f32 N,N", "", text, NULL);
        rig_set(&r, "a", a, sizeof(a));
        rig_set(&r, "b", b, sizeof(b));
        rig_run(&r);
        rig_get(&r, "c", c, sizeof(c));
        for (int i = 0; i < 64 * 64; i++)
            CHECK_NEAR(c[i], tf32 ? 1.0f : 1.0f + 0x1p-12f, tf32 ? 0x1p-11 : 0);
        rig_close(&r);
    }
}

/* Shapes that change with a loop variable: as many products as there are shapes. */
TEST(shapes_from_loops)
{
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"fill\": {\"buffer\": \"c\", \"value\": 0}}, {\"repeat\": "
                               "{\"var\": \"t\", \"count\": 4, \"steps\": ["
                               "{\"gemm\": {\"a\": \"a\", \"b\": \"b\", \"c\": \"c + 64*t\", \"m\": 8, \"n\": 8, "
                               "\"k\": \"8*(t + 1)\", \"lda\": 32, \"ldb\": 8}}]}}]}";
    static float a[8 * 32], b[32 * 8], c[4 * 64];
    rig r;
    need_device();
    for (int i = 0; i < 256; i++)
        a[i] = b[i] = 1;
    rig_open(&r, "N=8; input a f32 N,32; input b f32 32,N; output c f32 4,N,N", "", plan, NULL);
    rig_set(&r, "a", a, sizeof(a));
    rig_set(&r, "b", b, sizeof(b));
    rig_run(&r);
    rig_get(&r, "c", c, sizeof(c));
    for (int i = 0; i < 256; i++)
        CHECK_NEAR(c[i], 8 * (i / 64 + 1), 0);
    rig_close(&r);
}

/* The kernel that applies what cuBLASLt cannot, by itself: the simulator's products never need it. */
TEST(epilogue_kernel)
{
    static const int types[] = {STITCH_DTYPE_F64, STITCH_DTYPE_F32, STITCH_DTYPE_F16, STITCH_DTYPE_BF16};
    static const char *const acts[] = {NULL, "relu", "gelu"};
    enum { ROWS = 7, COLS = 19, LDC = 23, LDD = 21, BATCH = 2, ROOM = BATCH * ROWS * LDC };
    stitch_image *image;
    stitch__module module;
    stitch__device *dev;
    size_t index, fill;
    CUdeviceptr mem[3];
    double in[3][ROOM] = {{0}};
    char host[3][ROOM * 8], out[ROOM * 8];
    uint64_t seed = 7;
    need_device();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__compile_helpers(ctx, device.arch, device.simulated != 0, false, &image, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__module_load(dev, image, &module, &err));
    CHECK_INT(stitch_image_find(image, "stitch_epilogue", &index), STITCH_OK);
    CHECK_INT(stitch_image_find(image, "stitch_fill64", &fill), STITCH_OK);
    for (int i = 0; i < 3; i++)
        CHECK_OK(stitch__mem_alloc(dev, sizeof(host[i]), "test", &mem[i], &err));
    for (int k = 0; k < 4 * 4 * 4 * 3 * 4; k++) { /* types of c, d and bias; epilogue; which of d and bias there are */
        int type[3] = {types[k % 4], types[k / 4 % 4], types[k / 16 % 4]}, act = k / 64 % 3;
        CUdeviceptr c = mem[0], d = k / 192 & 1 ? mem[1] : 0, bias = k / 384 ? mem[2] : 0;
        long long ldc = LDC, stride_c = ROWS * LDC, ldd = LDD, stride_d = ROWS * LDD, rows = ROWS, cols = COLS;
        double beta = -1.5;
        void *args[] = {&c,        &type[0], &ldc,  &stride_c, &d,    &type[1], &ldd,
                        &stride_d, &beta,    &bias, &type[2],  &rows, &cols,    &act};
        for (int i = 0; i < 3; i++) {
            for (int e = 0; e < ROOM; e++)
                store(type[i], host[i], (size_t)e, in[i][e] = draw(&seed));
            CHECK_INT(dev->drv->MemcpyHtoD(mem[i], host[i], sizeof(host[i])), CUDA_SUCCESS);
        }
        CHECK_INT(dev->drv->LaunchKernel(module.kernels[index], 1, BATCH, 1, 256, 1, 1, 0, NULL, args, NULL),
                  CUDA_SUCCESS);
        CHECK_INT(dev->drv->MemcpyDtoH(out, mem[0], sizeof(out)), CUDA_SUCCESS);
        for (int e = 0; e < ROOM; e++) {
            int l = e / (ROWS * LDC), row = e / LDC % ROWS, col = e % LDC;
            double v = in[0][e] + (d ? beta * in[1][l * ROWS * LDD + row * LDD + col] : 0) + (bias ? in[2][col] : 0);
            double want = col < COLS ? activate(v, acts[act]) : in[0][e];
            if (!(fabs(load(type[0], out, (size_t)e) - want) <= 2 * epsilon(type[0]) * fabs(want) + 1e-12))
                FAIL("combination %d, element %d: got %.9g, expected %.9g", k, e, load(type[0], out, (size_t)e), want);
        }
    }
    uint64_t value = UINT64_C(0x0123456789abcdef), words[ROOM];
    long long count = ROOM - 2;
    CUdeviceptr from = mem[0] + 8;
    void *args[] = {&from, &value, &count};
    CHECK_INT(dev->drv->MemcpyHtoD(mem[0], in[0], sizeof(in[0])), CUDA_SUCCESS);
    CHECK_INT(dev->drv->LaunchKernel(module.kernels[fill], 1, 1, 1, 256, 1, 1, 0, NULL, args, NULL), CUDA_SUCCESS);
    CHECK_INT(dev->drv->MemcpyDtoH(words, mem[0], sizeof(words)), CUDA_SUCCESS);
    for (int i = 0; i < ROOM; i++)
        CHECK(i && i < ROOM - 1 ? words[i] == value : memcmp(&words[i], &in[0][i], 8) == 0);
    for (int i = 0; i < 3; i++)
        stitch__mem_free(dev, mem[i]);
    stitch__module_unload(&module);
    stitch__device_leave(dev);
    stitch_image_free(image);
}

TEST(the_context_closes)
{
    stitch_error_free(err);
    err = NULL;
    stitch_context_free(ctx);
    ctx = NULL;
}

TEST_MAIN(RUN(types), RUN(eight_bit_floats), RUN(layouts), RUN(batches), RUN(epilogues), RUN(scaling_and_residuals),
          RUN(strict_float32_is_strict), RUN(shapes_from_loops), RUN(epilogue_kernel), RUN(the_context_closes))
