/* SPDX-License-Identifier: MIT
 *
 * Matrix products on the simulated device's memory. Operands become float (or double) matrices, a BLAS or a loop
 * multiplies them in panels of rows of c, and the epilogue is applied to each panel.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "sim/arith.h"
#include "sim/blas.h"
#include "sim/gemm.h"

enum { PANEL = 4 << 20 }; /* elements of c that are computed at once */

/* An operand as stored: `rows` rows of `cols` elements. */
typedef struct operand {
    const char *name;
    stitch__sim_gemm_matrix m;
    int64_t rows, cols;
    size_t elem;
} operand;

typedef struct product {
    const stitch__sim_gemm_args *args;
    stitch__sim_memory *memory;
    operand a, b, c, d, bias;
    bool has_bias, has_d, wide; /* wide: double instead of float */
    int32_t compute;
    int64_t batch;
    void *pa, *pb, *acc; /* panels: see run() */
    uint8_t *scratch;    /* one stored row */
} product;

const char *stitch__sim_gemm_backend(void)
{
    const stitch__blas *blas = stitch__sim_blas();
    return blas ? blas->name : "built-in loops";
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static bool is_float(int32_t dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F64:
    case STITCH_DTYPE_F32:
    case STITCH_DTYPE_TF32:
    case STITCH_DTYPE_F16:
    case STITCH_DTYPE_BF16:
    case STITCH_DTYPE_F8E4M3:
    case STITCH_DTYPE_F8E5M2: return true;
    default: return false;
    }
}

static int make_operand(operand *o, const char *name, const stitch__sim_gemm_matrix *m, int64_t rows, int64_t cols,
                        int64_t batch, stitch_error **err)
{
    *o = (operand){.name = name, .m = *m, .rows = rows, .cols = cols};
    if (!is_float(m->dtype))
        return stitch__err(NULL, err, STITCH_E_UNSUPPORTED, "gemm: %s has dtype %s, a floating-point one is needed",
                           name, stitch_dtype_name(m->dtype) ? stitch_dtype_name(m->dtype) : "(none)");
    o->elem = stitch_dtype_size(m->dtype);
    if (o->m.ld == 0)
        o->m.ld = cols;
    if (o->m.ld < cols || m->stride < 0)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "gemm: %s has rows of %" PRId64 " elements, ld %" PRId64 ", stride %" PRId64, name, cols,
                           o->m.ld, m->stride);
    if (m->address % o->elem)
        return stitch__err(NULL, err, STITCH_E_INVALID, "gemm: %s at 0x%" PRIx64 " is not aligned to its elements",
                           name, m->address);
    int64_t last, rest;
    if (__builtin_mul_overflow(m->stride, batch - 1, &last) || __builtin_mul_overflow(o->m.ld, rows, &rest) ||
        __builtin_add_overflow(last, rest, &last) || last > (INT64_C(1) << 47) ||
        m->address + (uint64_t)last * o->elem > STITCH__SIM_GLOBAL_END)
        return stitch__err(NULL, err, STITCH_E_INVALID, "gemm: %s is larger than any memory", name);
    return STITCH_OK;
}

static int check_dtypes(const product *p, stitch_error **err)
{
    int32_t a = p->a.m.dtype, b = p->b.m.dtype;
    bool all = a == STITCH_DTYPE_F64 && b == a && p->c.m.dtype == a && (!p->has_d || p->d.m.dtype == a) &&
               (!p->has_bias || p->bias.m.dtype == a);
    bool any = a == STITCH_DTYPE_F64 || b == STITCH_DTYPE_F64 || p->c.m.dtype == STITCH_DTYPE_F64 ||
               (p->has_d && p->d.m.dtype == STITCH_DTYPE_F64) || (p->has_bias && p->bias.m.dtype == STITCH_DTYPE_F64);
    bool single =
        (a == STITCH_DTYPE_F32 || a == STITCH_DTYPE_TF32) && (b == STITCH_DTYPE_F32 || b == STITCH_DTYPE_TF32);
    bool good = true;
    switch (p->compute) {
    case STITCH_DTYPE_F64: good = all; break;
    case STITCH_DTYPE_F32: good = !any; break;
    case STITCH_DTYPE_TF32: good = !any && single; break;
    case STITCH_DTYPE_F16: good = !any && a == STITCH_DTYPE_F16 && b == STITCH_DTYPE_F16; break;
    default: good = false; break;
    }
    if (good)
        return STITCH_OK;
    return stitch__err(NULL, err, STITCH_E_UNSUPPORTED, "gemm: compute %s does not go with a %s, b %s, c %s",
                       stitch_dtype_name(p->compute) ? stitch_dtype_name(p->compute) : "(none)", stitch_dtype_name(a),
                       stitch_dtype_name(b), stitch_dtype_name(p->c.m.dtype));
}

static int check_args(product *p, stitch_error **err)
{
    const stitch__sim_gemm_args *g = p->args;
    int64_t limit = INT32_MAX; /* of a BLAS */
    if (g->m <= 0 || g->n <= 0 || g->k < 0 || g->batch < 0 || g->m > limit || g->n > limit || g->k > limit ||
        g->a.ld > limit || g->b.ld > limit || g->c.ld > limit || g->d.ld > limit)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "gemm: m %" PRId64 ", n %" PRId64 ", k %" PRId64 ", batch %" PRId64
                           " is no product that can run",
                           g->m, g->n, g->k, g->batch);
    if (g->epilogue < STITCH__SIM_EPILOGUE_NONE || g->epilogue > STITCH__SIM_EPILOGUE_GELU)
        return stitch__err(NULL, err, STITCH_E_INVALID, "gemm: unknown epilogue %d", g->epilogue);
    p->batch = g->batch ? g->batch : 1;
    p->has_bias = g->bias.address != 0;
    p->has_d = g->beta != 0;
    int rc = make_operand(&p->a, "a", &g->a, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, p->batch, err);
    if (!rc)
        rc = make_operand(&p->b, "b", &g->b, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, p->batch, err);
    if (!rc)
        rc = make_operand(&p->c, "c", &g->c, g->m, g->n, p->batch, err);
    if (!rc && p->has_d)
        rc = make_operand(&p->d, "d", g->d.address ? &g->d : &g->c, g->m, g->n, p->batch, err);
    if (!rc && p->has_bias) {
        stitch__sim_gemm_matrix bias = g->bias;
        bias.ld = 0;
        rc = make_operand(&p->bias, "bias", &bias, 1, g->n, p->batch, err);
    }
    /* Apart: one whole matrix after the other, or side by side within the rows (heads of one attention output). */
    int64_t stride = p->c.m.stride;
    bool after = stride >= (g->m - 1) * p->c.m.ld + g->n,
         beside = stride >= g->n && stride <= (p->c.m.ld - g->n) / (p->batch > 1 ? p->batch - 1 : 1);
    if (!rc && p->batch > 1 && !after && !beside)
        rc = stitch__err(NULL, err, STITCH_E_INVALID, "gemm: the batches of c overlap, their stride is %" PRId64,
                         p->c.m.stride);
    p->compute = g->compute ? g->compute : g->a.dtype == STITCH_DTYPE_F64 ? STITCH_DTYPE_F64 : STITCH_DTYPE_F32;
    p->wide = p->compute == STITCH_DTYPE_F64;
    return rc ? rc : check_dtypes(p, err);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static uint64_t row_address(const operand *o, int64_t batch, int64_t row)
{
    return o->m.address + (uint64_t)(batch * o->m.stride + row * o->m.ld) * o->elem;
}

static void name_buffer(stitch__sim_report *r, const stitch__sim_alloc *a)
{
    if (a->name[0])
        snprintf(r->buffer, sizeof(r->buffer), "%s", a->name);
    else
        snprintf(r->buffer, sizeof(r->buffer), "allocation %" PRIu64, a->serial);
    r->buffer_size = a->size;
}

/* The report on `len` bytes from `address` on, of which at least one is not live. */
static void report_range(const product *p, const operand *o, uint64_t address, uint64_t len, stitch__sim_report *r)
{
    stitch__sim_alloc *a, *below, *above;
    uint64_t at = address;
    while ((a = stitch__sim_memory_find(p->memory, at)) && !a->freed)
        at = a->base + a->size;
    *r =
        (stitch__sim_report){.kind = STITCH__SIM_OUT_OF_BOUNDS, .space = STITCH__SIM_GLOBAL, .address = at, .count = 1};
    r->size = (uint32_t)o->elem;
    r->first.write = o == &p->c;
    snprintf(r->detail, sizeof(r->detail), "operand %s of a matrix product", o->name);
    if (a) {
        r->kind = STITCH__SIM_USE_AFTER_FREE;
        r->offset = at - a->base;
        name_buffer(r, a);
        return;
    }
    stitch__sim_memory_around(p->memory, at, &below, &above);
    if (below && at > address) { /* it began inside and ran over the end */
        r->distance = (int64_t)(address + len - at);
        name_buffer(r, below);
    } else if (below && (!above || at - (below->base + below->size) <= above->base - at)) {
        r->distance = (int64_t)(at - (below->base + below->size)) + 1;
        name_buffer(r, below);
    } else if (above) {
        r->distance = -(int64_t)(above->base - at);
        name_buffer(r, above);
    }
}

/* Whether every row is live. */
static int check_ranges(const product *p, const operand *o, stitch__sim_report *finding, bool *found,
                        stitch_error **err)
{
    if (o->cols == 0 || o->rows == 0)
        return STITCH_OK;
    bool dense = o->m.ld == o->cols;
    for (int64_t batch = 0; batch < (o->m.stride ? p->batch : 1); batch++) {
        for (int64_t row = 0; row < (dense ? 1 : o->rows); row++) {
            uint64_t at = row_address(o, batch, row);
            uint64_t len = (uint64_t)(dense ? o->rows * o->cols : o->cols) * o->elem;
            if (stitch__sim_memory_live(p->memory, at, len))
                continue;
            stitch__sim_report r;
            report_range(p, o, at, len, &r);
            if (finding)
                *finding = r;
            if (found)
                *found = true;
            return stitch__err(NULL, err, STITCH_E_FAULT,
                               "gemm: operand %s (%" PRId64 " x %" PRId64 " of %s, ld %" PRId64
                               ") is outside of live memory at 0x%" PRIx64 "%s%s",
                               o->name, o->rows, o->cols, stitch_dtype_name(o->m.dtype), o->m.ld, r.address,
                               r.buffer[0] ? ", near " : "", r.buffer);
        }
    }
    return STITCH_OK;
}

/* Elements of an input that nothing wrote; the first one is reported, all are counted. */
static void check_written(const product *p, const operand *o, stitch__sim_report *finding, bool *found)
{
    if (o->cols == 0 || !finding || !found || *found)
        return;
    for (int64_t batch = 0; batch < (o->m.stride ? p->batch : 1); batch++) {
        for (int64_t row = 0; row < o->rows; row++) {
            uint64_t at = row_address(o, batch, row), len = (uint64_t)o->cols * o->elem;
            const stitch__sim_alloc *a = stitch__sim_memory_find(p->memory, at);
            if (len <= a->size - (at - a->base) && stitch__sim_memory_written(a, at - a->base, len))
                continue;
            for (uint64_t end = at + len; at < end; at += o->elem) {
                a = stitch__sim_memory_find(p->memory, at);
                if (stitch__sim_memory_written(a, at - a->base, o->elem))
                    continue;
                if (!*found) {
                    *found = true;
                    *finding = (stitch__sim_report){.kind = STITCH__SIM_UNINITIALISED,
                                                    .space = STITCH__SIM_GLOBAL,
                                                    .address = at,
                                                    .size = (uint32_t)o->elem,
                                                    .offset = at - a->base};
                    name_buffer(finding, a);
                    snprintf(finding->detail, sizeof(finding->detail), "operand %s of a matrix product", o->name);
                }
                finding->count++;
            }
        }
    }
}

/* A stored row from column `from` on: in place where one allocation holds it, else copied. */
static const void *fetch(const product *p, const operand *o, int64_t batch, int64_t row, int64_t from, int64_t cols)
{
    uint64_t at = row_address(o, batch, row) + (uint64_t)from * o->elem, len = (uint64_t)cols * o->elem;
    const stitch__sim_alloc *a = stitch__sim_memory_find(p->memory, at);
    if (a && len <= a->size - (at - a->base))
        return a->host + (at - a->base);
    stitch__sim_memory_load(p->memory, at, p->scratch, len);
    return p->scratch;
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static uint32_t to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* To nearest, ties away from zero, as cvt.rna.tf32 does. Infinities and NaNs stay. */
static float round_tf32(float f)
{
    uint32_t bits = to_bits(f);
    return (bits & 0x7f800000u) == 0x7f800000u ? f : from_bits((bits + 0x1000u) & ~0x1fffu);
}

static void row_to_float(float *out, const void *in, int64_t n, int32_t dtype, bool tf32)
{
    switch (dtype) {
    case STITCH_DTYPE_F32:
    case STITCH_DTYPE_TF32:
        memcpy(out, in, (size_t)n * sizeof(float));
        for (int64_t i = 0; tf32 && i < n; i++)
            out[i] = round_tf32(out[i]);
        break;
    case STITCH_DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            out[i] = from_bits(stitch__f32_from_f16(((const uint16_t *)in)[i]));
        break;
    case STITCH_DTYPE_BF16:
        for (int64_t i = 0; i < n; i++)
            out[i] = from_bits(stitch__f32_from_bf16(((const uint16_t *)in)[i]));
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            stitch__num format = dtype == STITCH_DTYPE_F8E4M3 ? STITCH__E4M3X2 : STITCH__E5M2X2;
            out[i] = from_bits(stitch__f32_from_f16(stitch__f16_from_fp8(((const uint8_t *)in)[i], format)));
        }
        break;
    }
}

static void row_from_float(void *out, const float *in, int64_t n, int32_t dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F32:
    case STITCH_DTYPE_TF32: memcpy(out, in, (size_t)n * sizeof(float)); break;
    case STITCH_DTYPE_F16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = stitch__f16_from_f32(to_bits(in[i]), STITCH__RN);
        break;
    case STITCH_DTYPE_BF16:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)out)[i] = stitch__bf16_from_f32(to_bits(in[i]), STITCH__RN);
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            stitch__num format = dtype == STITCH_DTYPE_F8E4M3 ? STITCH__E4M3X2 : STITCH__E5M2X2;
            ((uint8_t *)out)[i] = stitch__fp8_from_f32(to_bits(in[i]), format, false);
        }
        break;
    }
}

/* ---- epilogue ---------------------------------------------------------------------------------------------------- */

static float act_float(float x, int32_t epilogue)
{
    if (epilogue == STITCH__SIM_EPILOGUE_RELU)
        return x < 0 ? 0 : x;
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static double act_double(double x, int32_t epilogue)
{
    if (epilogue == STITCH__SIM_EPILOGUE_RELU)
        return x < 0 ? 0 : x;
    return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* A row of c from its sums; `d` and `bias` are scratch rows of n elements each. */
static void finish_float(const product *p, int64_t batch, int64_t row, float *sums, float *d, const float *bias)
{
    const stitch__sim_gemm_args *g = p->args;
    float alpha = (float)g->alpha, beta = (float)g->beta;
    if (p->compute == STITCH_DTYPE_F16) {
        for (int64_t j = 0; j < g->n; j++)
            sums[j] = from_bits(stitch__f32_from_f16(stitch__f16_from_f32(to_bits(sums[j]), STITCH__RN)));
    }
    if (p->has_d)
        row_to_float(d, fetch(p, &p->d, batch, row, 0, g->n), g->n, p->d.m.dtype, false);
    for (int64_t j = 0; j < g->n; j++) {
        float v = alpha * sums[j];
        if (p->has_d)
            v += beta * d[j];
        if (p->has_bias)
            v += bias[j];
        sums[j] = g->epilogue ? act_float(v, g->epilogue) : v;
    }
    row_from_float(p->scratch, sums, g->n, p->c.m.dtype);
}

static void finish_double(const product *p, int64_t batch, int64_t row, double *sums, const double *bias)
{
    const stitch__sim_gemm_args *g = p->args;
    const double *d = p->has_d ? fetch(p, &p->d, batch, row, 0, g->n) : NULL;
    for (int64_t j = 0; j < g->n; j++) {
        double v = g->alpha * sums[j];
        if (d)
            v += g->beta * d[j];
        if (bias)
            v += bias[j];
        sums[j] = g->epilogue ? act_double(v, g->epilogue) : v;
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Copies `rows` stored rows, columns from `from` on, into a dense panel of the type that is computed with. */
static void pack(const product *p, const operand *o, int64_t batch, int64_t first, int64_t rows, int64_t from,
                 int64_t cols, bool tf32, void *out)
{
    for (int64_t r = 0; r < rows; r++) {
        const void *in = fetch(p, o, batch, first + r, from, cols);
        if (p->wide)
            memcpy((double *)out + r * cols, in, (size_t)cols * sizeof(double));
        else
            row_to_float((float *)out + r * cols, in, cols, o->m.dtype, tf32);
    }
}

/* Blocks of b stay in the cache while all rows of a pass over them. With trans_b each element is a dot product, whose
 * terms are spread over eight sums. */
#define MULTIPLY(type)                                                                                                 \
    static void multiply_##type(const stitch__sim_gemm_args *g, int64_t rows, const type *a, const type *b, type *acc) \
    {                                                                                                                  \
        const int64_t n = g->n, k = g->k, kb = 256, jb = 512;                                                          \
        for (int64_t j0 = 0; j0 < n; j0 += jb) {                                                                       \
            const int64_t cols = n - j0 < jb ? n - j0 : jb;                                                            \
            for (int64_t k0 = 0; k0 < k; k0 += kb) {                                                                   \
                const int64_t depth = k - k0 < kb ? k - k0 : kb;                                                       \
                for (int64_t i = 0; i < rows; i++) {                                                                   \
                    type line[256];                                                                                    \
                    for (int64_t l = 0; l < depth; l++)                                                                \
                        line[l] = g->trans_a ? a[(k0 + l) * rows + i] : a[i * k + k0 + l];                             \
                    if (g->trans_b)                                                                                    \
                        dots_##type(acc + i * n + j0, line, b + j0 * k + k0, cols, depth, k);                          \
                    else                                                                                               \
                        sums_##type(acc + i * n + j0, line, b + k0 * n + j0, cols, depth, n);                          \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
#define KERNELS(type)                                                                                                  \
    static void sums_##type(type *restrict c, const type *restrict a, const type *restrict b, int64_t cols,            \
                            int64_t depth, int64_t ldb)                                                                \
    {                                                                                                                  \
        for (int64_t l = 0; l < depth; l++) {                                                                          \
            for (int64_t j = 0; j < cols; j++)                                                                         \
                c[j] += a[l] * b[l * ldb + j];                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static void dots_##type(type *restrict c, const type *restrict a, const type *restrict b, int64_t cols,            \
                            int64_t depth, int64_t ldb)                                                                \
    {                                                                                                                  \
        for (int64_t j = 0; j < cols; j++) {                                                                           \
            type s[8] = {0};                                                                                           \
            int64_t l = 0;                                                                                             \
            for (; l + 8 <= depth; l += 8) {                                                                           \
                for (int i = 0; i < 8; i++)                                                                            \
                    s[i] += a[l + i] * b[j * ldb + l + i];                                                             \
            }                                                                                                          \
            for (; l < depth; l++)                                                                                     \
                s[0] += a[l] * b[j * ldb + l];                                                                         \
            c[j] += ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));                                 \
        }                                                                                                              \
    }
KERNELS(float)
KERNELS(double)
MULTIPLY(float)
MULTIPLY(double)
#undef KERNELS
#undef MULTIPLY

static void multiply(const product *p, int64_t rows, const void *a, const void *b, void *acc)
{
    const stitch__sim_gemm_args *g = p->args;
    const stitch__blas *blas = stitch__sim_blas();
    int m = (int)rows, n = (int)g->n, k = (int)g->k;
    int ta = g->trans_a ? STITCH__BLAS_TRANS : STITCH__BLAS_NO_TRANS,
        tb = g->trans_b ? STITCH__BLAS_TRANS : STITCH__BLAS_NO_TRANS;
    int lda = g->trans_a ? m : k, ldb = g->trans_b ? k : n;

    if (!blas || k == 0) { /* a BLAS refuses leading dimensions of 0 */
        memset(acc, 0, (size_t)(rows * g->n) * (p->wide ? sizeof(double) : sizeof(float)));
        if (p->wide)
            multiply_double(g, rows, a, b, acc);
        else
            multiply_float(g, rows, a, b, acc);
    } else if (p->wide) {
        blas->dgemm(STITCH__BLAS_ROW_MAJOR, ta, tb, m, n, k, 1.0, a, lda, b, ldb, 0.0, acc, n);
    } else {
        blas->sgemm(STITCH__BLAS_ROW_MAJOR, ta, tb, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, acc, n);
    }
}

static void store_rows(product *p, int64_t batch, int64_t first, int64_t rows, void *d, const void *bias)
{
    int64_t n = p->args->n;
    for (int64_t r = 0; r < rows; r++) {
        const void *out = p->scratch;
        if (p->wide) {
            out = (double *)p->acc + r * n;
            finish_double(p, batch, first + r, (double *)p->acc + r * n, bias);
        } else {
            finish_float(p, batch, first + r, (float *)p->acc + r * n, d, bias);
        }
        stitch__sim_memory_store(p->memory, row_address(&p->c, batch, first + r), out, (uint64_t)n * p->c.elem);
    }
}

static int check_limit(const stitch__sim_limit *limit, stitch_error **err)
{
    if (!limit)
        return STITCH_OK;
    if (stitch_cancel_triggered(limit->cancel) || stitch_cancel_triggered(limit->cancel_too))
        return stitch__err(NULL, err, STITCH_E_CANCELLED, "gemm: cancelled");
    if (limit->deadline_ns && stitch__now_ns() > limit->deadline_ns)
        return stitch__err(NULL, err, STITCH_E_TIMEOUT, "gemm: the deadline has passed");
    return STITCH_OK;
}

static int run(product *p, const stitch__sim_limit *limit, stitch_error **err)
{
    const stitch__sim_gemm_args *g = p->args;
    size_t word = p->wide ? sizeof(double) : sizeof(float);
    int64_t panel = PANEL / g->n < 1 ? 1 : PANEL / g->n < g->m ? PANEL / g->n : g->m;
    int64_t widest = g->m > g->n ? g->m : g->n;
    widest = widest > g->k ? widest : g->k;
    bool tf32 = p->compute == STITCH_DTYPE_TF32;
    int rc = STITCH_OK;
    void *d = stitch__calloc(NULL, (size_t)g->n, word), *bias = stitch__calloc(NULL, (size_t)g->n, word);
    p->scratch = stitch__calloc(NULL, (size_t)widest, sizeof(double));
    p->pa = stitch__calloc(NULL, (size_t)panel * (size_t)g->k + 1, word);
    p->pb = stitch__calloc(NULL, (size_t)g->n * (size_t)g->k + 1, word);
    p->acc = stitch__calloc(NULL, (size_t)panel * (size_t)g->n, word);
    if (!d || !bias || !p->scratch || !p->pa || !p->pb || !p->acc)
        rc = stitch__err_nomem(NULL, err);
    for (int64_t batch = 0; batch < p->batch && !rc; batch++) {
        if (batch == 0 || g->b.stride)
            pack(p, &p->b, batch, 0, p->b.rows, 0, p->b.cols, tf32, p->pb);
        if (p->has_bias)
            pack(p, &p->bias, batch, 0, 1, 0, g->n, false, bias);
        for (int64_t first = 0; first < g->m && !rc; first += panel) {
            int64_t rows = g->m - first < panel ? g->m - first : panel;
            rc = check_limit(limit, err);
            if (rc)
                break;
            if (g->trans_a)
                pack(p, &p->a, batch, 0, g->k, first, rows, tf32, p->pa);
            else
                pack(p, &p->a, batch, first, rows, 0, g->k, tf32, p->pa);
            multiply(p, rows, p->pa, p->pb, p->acc);
            store_rows(p, batch, first, rows, d, p->has_bias ? bias : NULL);
        }
    }
    stitch_free(d);
    stitch_free(bias);
    stitch_free(p->scratch);
    stitch_free(p->pa);
    stitch_free(p->pb);
    stitch_free(p->acc);
    return rc;
}

int stitch__sim_gemm(const stitch__sim_gemm_args *args, stitch__sim_memory *memory, const stitch__sim_limit *limit,
                     stitch__sim_report *finding, bool *found, stitch_error **err)
{
    product p = {.args = args, .memory = memory};
    if (found)
        *found = false;
    int rc = check_args(&p, err);
    const operand *operands[] = {&p.a, &p.b, p.has_d ? &p.d : NULL, p.has_bias ? &p.bias : NULL, &p.c};
    for (size_t i = 0; i < STITCH__COUNT(operands) && !rc; i++) {
        if (operands[i])
            rc = check_ranges(&p, operands[i], finding, found, err);
    }
    for (size_t i = 0; i + 1 < STITCH__COUNT(operands) && !rc; i++) {
        if (operands[i])
            check_written(&p, operands[i], finding, found);
    }
    return rc ? rc : run(&p, limit, err);
}
