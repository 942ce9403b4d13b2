/* SPDX-License-Identifier: MIT
 *
 * Checks of single launches: sizes, ranges inside tensors, element types, limits of the architecture.
 */
#include <math.h>
#include <stdio.h>

#include "program/program.h"

/* A finding with the loop variables' values behind it. */
STITCH__PRINTF(4, 5)
static void finding(stitch__check *c, const stitch__step *step, const char *field, const char *fmt, ...)
{
    char text[600], loops[200] = "";
    size_t used = 0;
    va_list ap;
    va_start(ap, fmt);
    stitch__vformat(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (size_t i = 0; c->s.loop_used && i < c->s.env.symbols->count && used < 120; i++) {
        const stitch__symbol_value *v = &c->s.env.values[i];
        if (v->state == STITCH__SYMBOL_LOOP)
            used += (size_t)snprintf(loops + used, sizeof(loops) - used, "%s%.40s = %" PRId64, used ? ", " : " (",
                                     c->s.env.symbols->names[i], v->value);
    }
    char place[STITCH__PLACE_SIZE];
    stitch__finding(c->s.findings, "%s: %s%s%s", stitch__place(step, field, place), text, loops, used ? ")" : "");
}

/* `extent` elements from a range on lie inside its tensor. */
static bool inside(stitch__check *c, const stitch__step *step, const char *field, const stitch__range *r,
                   uint64_t extent)
{
    if (r->tensor < 0)
        return true;
    const stitch__tensor *t = &c->s.doc->tensors[r->tensor];
    if (extent && extent <= t->elements - r->offset)
        return true;
    if (!extent)
        finding(c, step, field, "the matrix is larger than any tensor");
    else
        finding(c, step, field, "reaches %" PRIu64 " elements from element %" PRIu64 " on, but %s has %" PRIu64, extent,
                r->offset, t->name, t->elements);
    return false;
}

static bool overlap(const stitch__range *a, uint64_t na, const stitch__range *b, uint64_t nb)
{
    return a->tensor >= 0 && a->tensor == b->tensor && a->offset < b->offset + nb && b->offset < a->offset + na;
}

static int dtype_of(const stitch__check *c, const stitch__range *r)
{
    int dtype = r->tensor < 0 ? STITCH_DTYPE_NONE : c->s.doc->tensors[r->tensor].dtype;
    return dtype == STITCH_DTYPE_TF32 ? STITCH_DTYPE_F32 : dtype;
}

/* ---- kernels ---- */

static void check_sizes(stitch__check *c, const stitch__step *step, const stitch__kernel_values *v)
{
    static const int64_t grid_max[] = {INT32_MAX, 65535, 65535}, block_max[] = {1024, 1024, 64};
    char field[32];
    int64_t threads = 1;
    for (size_t i = 0; i < 3; i++) {
        snprintf(field, sizeof(field), "grid[%zu]", i);
        if (v->grid[i] < 1 || v->grid[i] > grid_max[i])
            finding(c, step, field, "is %" PRId64 ", but must be between 1 and %" PRId64, v->grid[i], grid_max[i]);
        snprintf(field, sizeof(field), "block[%zu]", i);
        if (v->block[i] < 1 || v->block[i] > block_max[i])
            finding(c, step, field, "is %" PRId64 ", but must be between 1 and %" PRId64, v->block[i], block_max[i]);
        else
            threads *= v->block[i];
    }
    if (threads > 1024)
        finding(c, step, "block", "has %" PRId64 " threads, the limit is 1024", threads);
    if (v->shared < 0 || v->shared > c->arch.shared_per_block)
        finding(c, step, "shared", "is %" PRId64 ", but must be between 0 and %" PRId64 " bytes on %s", v->shared,
                c->arch.shared_per_block, c->arch.name);
}

static void check_cluster(stitch__check *c, const stitch__step *step, const stitch__kernel_values *v)
{
    const stitch__kernel_step *k = step->u.kernel;
    char field[32];
    int64_t blocks = 1;
    if (k->pdl && !c->arch.clusters)
        finding(c, step, "pdl", "%s has no programmatic launches; they need sm_90", c->arch.name);
    if (!k->cluster_rank)
        return;
    if (!c->arch.clusters)
        finding(c, step, "cluster", "%s has no clusters; they need sm_90", c->arch.name);
    for (size_t i = 0; i < 3; i++) {
        snprintf(field, sizeof(field), "cluster[%zu]", i);
        if (v->cluster[i] < 1 || v->cluster[i] > 16) {
            finding(c, step, field, "is %" PRId64 ", but must be between 1 and 16", v->cluster[i]);
            return;
        }
        if (v->grid[i] % v->cluster[i])
            finding(c, step, field, "is %" PRId64 ", but grid[%zu] is %" PRId64 " and must be a multiple of it",
                    v->cluster[i], i, v->grid[i]);
        blocks *= v->cluster[i];
    }
    if (blocks > 16)
        finding(c, step, "cluster", "has %" PRId64 " blocks, the limit is 16 (8 on some devices)", blocks);
}

static void check_map(stitch__check *c, const stitch__step *step, const char *field, const stitch__tensor_map *map)
{
    static const int64_t swizzle_bytes[] = {0, 32, 64, 128};
    stitch__map_values v;
    if (!c->arch.clusters)
        finding(c, step, field, "%s has no tensor maps; they need sm_90", c->arch.name);
    if (!stitch__eval_map(&c->s, step, field, map, &v))
        return;
    int dtype = c->s.doc->tensors[v.buffer.tensor].dtype;
    int64_t size = (int64_t)stitch_dtype_size(dtype);
    size_t last = map->rank - 1;
    uint64_t extent = 1;
    if (v.strides[last] != 1)
        finding(c, step, field, "the innermost stride is %" PRId64 ", but must be 1", v.strides[last]);
    for (size_t i = 0; i < map->rank; i++) {
        uint64_t reach;
        if (__builtin_mul_overflow((uint64_t)(v.shape[i] - 1), (uint64_t)v.strides[i], &reach) ||
            __builtin_add_overflow(extent, reach, &extent))
            extent = UINT64_MAX;
        if (i < last && v.strides[i] * size % 16)
            finding(c, step, field, "strides[%zu] is %" PRId64 " bytes, but must be a multiple of 16 bytes", i,
                    v.strides[i] * size);
    }
    if (v.buffer.offset * (uint64_t)size % 16)
        finding(c, step, field, "the tensor starts at byte %" PRIu64 ", but must start at a multiple of 16 bytes",
                v.buffer.offset * (uint64_t)size);
    if (v.box[last] * size % 16)
        finding(c, step, field,
                "the box is %" PRId64 " bytes wide, but its innermost extent must be a multiple of 16 bytes",
                v.box[last] * size);
    if (map->swizzle && v.box[last] * size > swizzle_bytes[map->swizzle])
        finding(c, step, field,
                "the box is %" PRId64 " bytes wide, but a swizzle of %" PRId64 " bytes allows no more than that",
                v.box[last] * size, swizzle_bytes[map->swizzle]);
    inside(c, step, field, &v.buffer, extent);
}

/* Evaluates arguments so that nothing can go wrong with them later; on kernels and operators alike. */
static void check_args(stitch__check *c, const stitch__step *step, const char *prefix, const stitch__arg *args,
                       size_t count)
{
    char field[64], why[96];
    unsigned char bytes[8];
    stitch__range range;
    size_t param_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const stitch__arg *a = &args[i];
        int64_t value = 0;
        snprintf(field, sizeof(field), "%sargs[%zu]", prefix, i);
        param_bytes += a->kind == STITCH__ARG_SCALAR    ? stitch__scalar_size(a->scalar)
                       : a->kind == STITCH__ARG_POINTER ? 8
                                                        : 128;
        if (a->kind == STITCH__ARG_POINTER)
            stitch__eval_ref(&c->s, step, field, &a->ref, &range);
        else if (a->kind == STITCH__ARG_TENSOR_MAP)
            check_map(c, step, field, a->map);
        else if ((!a->expr || stitch__eval(&c->s, step, field, a->expr, &value)) &&
                 !stitch__scalar_encode(a->scalar, value, a->real, !a->expr, bytes, why))
            finding(c, step, field, "%s", why);
    }
    if (param_bytes > (c->arch.number && c->arch.number < 70 ? 4096 : 32764))
        finding(c, step, "args", "%zu bytes of parameters, the limit is 32764", param_bytes);
}

static void check_kernel(stitch__check *c, const stitch__step *step)
{
    const stitch__kernel_step *k = step->u.kernel;
    stitch__kernel_values v;
    if (stitch__eval_kernel(&c->s, step, &v)) {
        check_sizes(c, step, &v);
        check_cluster(c, step, &v);
    }
    check_args(c, step, "", k->args, k->arg_count);
}

/* ---- products ---- */

static bool is_fp8(int dtype)
{
    return dtype == STITCH_DTYPE_F8E4M3 || dtype == STITCH_DTYPE_F8E5M2;
}

static const char *name_of(int dtype)
{
    const char *name = stitch_dtype_name(dtype);
    return name ? name : "none";
}

static bool is_real(int dtype)
{
    return dtype == STITCH_DTYPE_F64 || dtype == STITCH_DTYPE_F32 || dtype == STITCH_DTYPE_F16 ||
           dtype == STITCH_DTYPE_BF16;
}

/* Types of the operands. False after a finding. */
static bool check_gemm_types(stitch__check *c, const stitch__step *step, const stitch__gemm_values *v)
{
    const stitch__gemm_step *g = step->u.gemm;
    int a = dtype_of(c, &v->a), b = dtype_of(c, &v->b), out = dtype_of(c, &v->c), d = dtype_of(c, &v->d),
        bias = dtype_of(c, &v->bias);
    size_t before = c->s.findings->count;
    bool fp8 = is_fp8(a) && is_fp8(b);
    bool inputs = fp8 ? a == STITCH_DTYPE_F8E4M3 || b == STITCH_DTYPE_F8E4M3 : a == b && is_real(a);
    bool f64 = a == STITCH_DTYPE_F64;
    if (!inputs)
        finding(c, step, "gemm",
                "a is %s and b is %s; products take two operands of one type out of f64, f32, f16, bf16, or f8e4m3 "
                "with f8e4m3 or f8e5m2",
                name_of(a), name_of(b));
    else if (fp8 && !c->arch.fp8)
        finding(c, step, "gemm", "%s has no products of 8-bit floats; they need sm_89", c->arch.name);
    /* what cuBLASLt stores: the operands' own type, or float32; 8-bit floats have no product of their own type */
    bool stored = f64 ? out == STITCH_DTYPE_F64
                      : out == STITCH_DTYPE_F32 || (fp8 ? is_real(out) && out != STITCH_DTYPE_F64 : out == a);
    if (inputs && !stored)
        finding(c, step, "gemm.c", "is %s; the product of %s operands can be stored as %s%s", name_of(out), name_of(a),
                fp8 ? "f16, bf16 or f32" : name_of(a), fp8 || f64 || a == STITCH_DTYPE_F32 ? "" : " or f32");
    if ((d && (!is_real(d) || f64 != (d == STITCH_DTYPE_F64))))
        finding(c, step, "gemm.d", "is %s, but must be %s", name_of(d), f64 ? "f64" : "f32, f16 or bf16");
    if (bias && (!is_real(bias) || f64 != (bias == STITCH_DTYPE_F64)))
        finding(c, step, "gemm.bias", "is %s, but must be %s", name_of(bias), f64 ? "f64" : "f32, f16 or bf16");
    if (g->compute == STITCH_DTYPE_F64 ? !f64 : (f64 && g->compute != STITCH_DTYPE_NONE))
        finding(c, step, "gemm.compute", "is %s, but the operands are %s", name_of(g->compute), name_of(a));
    if (g->compute == STITCH_DTYPE_F16 && (a != STITCH_DTYPE_F16 || out != STITCH_DTYPE_F16))
        finding(c, step, "gemm.compute", "f16 needs a, b and c of type f16, but a is %s and c is %s", name_of(a),
                name_of(out));
    return c->s.findings->count == before;
}

static void check_gemm(stitch__check *c, const stitch__step *step)
{
    const stitch__gemm_step *g = step->u.gemm;
    stitch__gemm_values v;
    if (!stitch__eval_gemm(&c->s, step, &v) || !check_gemm_types(c, step, &v))
        return;
    int64_t rows_a = g->trans_a ? v.k : v.m, cols_a = g->trans_a ? v.m : v.k, rows_b = g->trans_b ? v.n : v.k,
            cols_b = g->trans_b ? v.k : v.n;
    uint64_t a = stitch__matrix_extent(rows_a, cols_a, v.lda, v.batch, v.stride_a),
             b = stitch__matrix_extent(rows_b, cols_b, v.ldb, v.batch, v.stride_b);
    uint64_t out = stitch__matrix_extent(v.m, v.n, v.ldc, v.batch, v.stride_c),
             d = stitch__matrix_extent(v.m, v.n, v.ldd, v.batch, v.stride_d);
    uint64_t one = stitch__matrix_extent(v.m, v.n, v.ldc, 1, 0);
    bool ok = inside(c, step, "gemm.a", &v.a, a);
    ok = inside(c, step, "gemm.b", &v.b, b) && ok;
    ok = inside(c, step, "gemm.c", &v.c, out) && ok;
    ok = inside(c, step, "gemm.d", &v.d, d) && ok;
    ok = inside(c, step, "gemm.bias", &v.bias, (uint64_t)v.n) && ok;
    if (!ok)
        return;
    /* batches of c lie behind each other, or side by side within its rows */
    bool apart = (uint64_t)v.stride_c >= one || (v.stride_c >= v.n && v.stride_c * (v.batch - 1) + v.n <= v.ldc);
    if (v.batch > 1 && !apart)
        finding(c, step, "gemm.stride_c", "is %" PRId64 ": the batches of c overlap", v.stride_c);
    if (overlap(&v.c, out, &v.a, a) || overlap(&v.c, out, &v.b, b) || overlap(&v.c, out, &v.bias, (uint64_t)v.n))
        finding(c, step, "gemm.c", "overlaps an operand of the product");
    bool same = v.d.tensor == v.c.tensor && v.d.offset == v.c.offset && v.ldd == v.ldc && v.stride_d == v.stride_c;
    if (!same && overlap(&v.c, out, &v.d, d))
        finding(c, step, "gemm.d", "overlaps c without being the same matrix");
    if (!is_fp8(dtype_of(c, &v.a)))
        return;
    if (g->trans_a || !g->trans_b)
        finding(c, step, "gemm",
                "products of 8-bit floats need trans_a false and trans_b true (both operands stored with k innermost)");
    if (v.k % 16 || v.n % 16 || v.lda % 16 || v.ldb % 16)
        finding(c, step, "gemm", "products of 8-bit floats need n, k, lda and ldb that are multiples of 16");
}

/* ---- copies, fills ---- */

static void check_copy(stitch__check *c, const stitch__step *step)
{
    const stitch__copy_step *s = step->u.copy;
    stitch__range from, to;
    int64_t count;
    bool ok = stitch__eval_ref(&c->s, step, "copy.from", &s->from, &from);
    if (!stitch__eval_ref(&c->s, step, "copy.to", &s->to, &to) || !ok ||
        !stitch__eval_count(&c->s, step, s->count, &from, &count) || !count)
        return;
    if (dtype_of(c, &from) != dtype_of(c, &to))
        finding(c, step, "copy", "from is %s and to is %s; a copy does not convert, write a kernel for that",
                name_of(dtype_of(c, &from)), name_of(dtype_of(c, &to)));
    ok = inside(c, step, "copy.from", &from, (uint64_t)count);
    if (inside(c, step, "copy.to", &to, (uint64_t)count) && ok && overlap(&from, (uint64_t)count, &to, (uint64_t)count))
        finding(c, step, "copy", "source and target overlap");
}

static bool fill_fits(int dtype, const stitch__fill_step *f)
{
    static const struct {
        int dtype;
        int64_t low, high;
    } ranges[] = {{STITCH_DTYPE_I64, INT64_MIN, INT64_MAX}, {STITCH_DTYPE_I32, INT32_MIN, INT32_MAX},
                  {STITCH_DTYPE_I16, INT16_MIN, INT16_MAX}, {STITCH_DTYPE_I8, INT8_MIN, INT8_MAX},
                  {STITCH_DTYPE_U8, 0, UINT8_MAX},          {STITCH_DTYPE_BOOL, 0, 1}};
    for (size_t i = 0; i < STITCH__COUNT(ranges); i++) {
        if (ranges[i].dtype == dtype)
            return !f->is_real && f->integer >= ranges[i].low && f->integer <= ranges[i].high;
    }
    switch (dtype) {
    case STITCH_DTYPE_F32: return fabs(f->value) < 0x1.ffffffp127;
    case STITCH_DTYPE_F16: return fabs(f->value) < 65520;
    case STITCH_DTYPE_BF16: return fabs(f->value) < 0x1.ffp127;
    case STITCH_DTYPE_F64: return true;
    default: return f->value == 0; /* 8-bit floats: only zero, whose bits are the same in every format */
    }
}

static void check_fill(stitch__check *c, const stitch__step *step)
{
    const stitch__fill_step *s = step->u.fill;
    stitch__range to;
    int64_t count;
    if (!stitch__eval_ref(&c->s, step, "fill.buffer", &s->buffer, &to) ||
        !stitch__eval_count(&c->s, step, s->count, &to, &count))
        return;
    if (!fill_fits(dtype_of(c, &to), s))
        finding(c, step, "fill.value", "%g cannot be stored as %s", s->value, name_of(dtype_of(c, &to)));
    if (count)
        inside(c, step, "fill.buffer", &to, (uint64_t)count);
}

void stitch__check_step(stitch__check *c, stitch__step *step)
{
    switch (step->kind) {
    case STITCH__STEP_KERNEL: check_kernel(c, step); break;
    case STITCH__STEP_GEMM: check_gemm(c, step); break;
    case STITCH__STEP_COPY: check_copy(c, step); break;
    case STITCH__STEP_FILL: check_fill(c, step); break;
    case STITCH__STEP_OP: check_args(c, step, "op.", step->u.op->args, step->u.op->arg_count); break;
    default: break;
    }
}
