/* SPDX-License-Identifier: MIT
 *
 * Values: the expressions of a resolved launch plan for one set of dims, and steps with numbers in them.
 */
#include <stdio.h>

#include "program/program.h"

/* Evaluates an expression; a failure becomes the finding "PLACE: ...". */
static bool eval_at(stitch__session *s, const char *place, const char *field, stitch__expr *e, int64_t *out)
{
    stitch_error *why = NULL;
    int rc = stitch__expr_eval(e, &s->env, out, &why);
    if (rc == STITCH_E_NOMEM)
        s->nomem = true;
    else if (rc)
        stitch__finding(s->findings, "%s%s%s: %s", place, *field ? "." : "", field, stitch_error_message(why));
    stitch_error_free(why);
    s->loop_used |= rc == STITCH_OK && e->memo_epoch != s->env.epoch;
    return rc == STITCH_OK;
}

bool stitch__eval(stitch__session *s, const stitch__step *step, const char *field, stitch__expr *e, int64_t *out)
{
    char place[STITCH__PLACE_SIZE];
    if (e->memo_epoch == s->env.epoch) {
        *out = e->memo_value;
        return true;
    }
    return eval_at(s, stitch__place(step, field, place), "", e, out);
}

enum { LET_NEW, LET_OPEN, LET_DONE, LET_FAILED };

/* Lets may be written in any order: those that this one needs come first. There are at most 1024, which bounds the
 * depth. */
static bool let_value(stitch__session *s, stitch__let *let, const int32_t *let_of)
{
    char place[300];
    int64_t value;
    bool ok = true;
    if (let->state != LET_NEW)
        return let->state == LET_DONE;
    let->state = LET_OPEN;
    snprintf(place, sizeof(place), "let.%s", let->name);
    for (size_t i = 0; i < let->expr->count; i++) {
        int32_t symbol = let->expr->code[i].symbol;
        if (symbol < 0 || let_of[symbol] < 0)
            continue;
        stitch__let *other = &s->doc->lets[let_of[symbol]];
        if (other->state == LET_OPEN)
            stitch__finding(s->findings, "%s: depends on itself through '%s'", place, other->name);
        ok = let_value(s, other, let_of) && ok;
    }
    ok = ok && eval_at(s, place, "", let->expr, &value);
    let->state = ok ? LET_DONE : LET_FAILED;
    if (ok)
        s->env.values[let->symbol] = (stitch__symbol_value){value, STITCH__SYMBOL_FIXED};
    else if (s->env.values[let->symbol].state ==
             STITCH__SYMBOL_UNKNOWN) /* known by name, so that its uses are not reported too */
        s->env.values[let->symbol] = (stitch__symbol_value){1, STITCH__SYMBOL_FIXED};
    return ok;
}

static int eval_lets(stitch__session *s, stitch_error **err)
{
    stitch__doc *d = s->doc;
    int32_t *let_of = stitch__calloc(s->ctx, d->symbols.count ? d->symbols.count : 1, sizeof(*let_of));
    if (!let_of)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; i < d->symbols.count; i++)
        let_of[i] = -1;
    for (size_t i = 0; i < d->let_count; i++) {
        d->lets[i].state = LET_NEW;
        let_of[d->lets[i].symbol] = (int32_t)i;
    }
    for (size_t i = 0; i < d->let_count; i++)
        let_value(s, &d->lets[i], let_of);
    stitch_free(let_of);
    return STITCH_OK;
}

static void eval_buffer(stitch__session *s, const stitch_interface *iface, stitch__buffer *b)
{
    int64_t extent[STITCH_MAX_RANK];
    char place[300], field[32], problem[128];
    uint64_t elements, bytes;
    stitch__tensor *t = b->tensor >= 0 ? &s->doc->tensors[b->tensor] : NULL;
    if (t && t->buffer >= 0)
        t->elements = t->bytes = 0; /* sizes of other dims must not stay where this fails */
    snprintf(place, sizeof(place), "buffers.%s", b->name);
    for (size_t i = 0; i < b->rank; i++) {
        snprintf(field, sizeof(field), "shape[%zu]", i);
        if (!eval_at(s, place, field, b->shape[i], &extent[i]))
            return;
    }
    if (!stitch__shape_size(extent, b->rank, b->dtype, &elements, &bytes, problem, sizeof(problem))) {
        stitch__finding(s->findings, "%s.%s", place, problem);
        return;
    }
    if (!t)
        return;
    if (t->buffer >= 0) {
        t->elements = elements;
        t->bytes = bytes;
        s->workspace_bytes += (bytes + 255) / 256 * 256; /* 4096 buffers of at most 2^46 bytes: no overflow */
        return;
    }
    const stitch__iface_tensor *state = &iface->tensors[b->tensor];
    bool same = state->rank == b->rank;
    for (size_t i = 0; i < b->rank && same; i++)
        same = state->extent[i] == extent[i];
    if (b->keep && !state->problem && !same)
        stitch__finding(s->findings, "%s.shape: differs from the shape of the task's state", place);
}

int stitch__session_begin(stitch__session *s, stitch__doc *doc, const stitch_interface *iface, stitch__findings *f,
                          stitch_error **err)
{
    memset(s, 0, sizeof(*s));
    s->ctx = doc->ctx;
    s->doc = doc;
    s->findings = f;
    for (size_t i = 0; i < iface->dim_count; i++) {
        if (stitch__symbol(&doc->symbols, iface->dims[i].name, strlen(iface->dims[i].name)) < 0)
            return stitch__err_nomem(s->ctx, err);
    }
    stitch__symbol_value *values = stitch__calloc(s->ctx, doc->symbols.count ? doc->symbols.count : 1, sizeof(*values));
    if (!values)
        return stitch__err_nomem(s->ctx, err);
    s->env = (stitch__env){s->ctx, &doc->symbols, values, ++doc->epoch};
    for (size_t i = 0; i < iface->dim_count; i++) {
        int32_t symbol = stitch__symbol_find(&doc->symbols, iface->dims[i].name, strlen(iface->dims[i].name));
        values[symbol] = (stitch__symbol_value){iface->dims[i].value, STITCH__SYMBOL_FIXED};
    }
    int rc = eval_lets(s, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < iface->tensor_count; i++) {
        doc->tensors[i].elements = iface->tensors[i].elements;
        doc->tensors[i].bytes = iface->tensors[i].bytes;
    }
    for (size_t i = 0; i < doc->buffer_count; i++)
        eval_buffer(s, iface, &doc->buffers[i]);
    return s->nomem ? stitch__err_nomem(s->ctx, err) : STITCH_OK;
}

void stitch__session_end(stitch__session *s)
{
    stitch__zero_free(s->env.values);
}

void stitch__loop_set(stitch__session *s, int32_t symbol, int64_t value)
{
    s->env.values[symbol] = (stitch__symbol_value){value, STITCH__SYMBOL_LOOP};
}

void stitch__loop_clear(stitch__session *s, int32_t symbol)
{
    s->env.values[symbol].state = STITCH__SYMBOL_UNKNOWN;
}

/* ---- steps ---- */

bool stitch__eval_ref(stitch__session *s, const stitch__step *step, const char *field, const stitch__ref *ref,
                      stitch__range *out)
{
    char place[STITCH__PLACE_SIZE];
    int64_t offset = 0;
    *out = (stitch__range){-1, 0};
    if (!ref->name)
        return true;
    if (ref->tensor < 0)
        return false; /* said while names were resolved */
    const stitch__tensor *t = &s->doc->tensors[ref->tensor];
    if (ref->offset && !stitch__eval(s, step, field, ref->offset, &offset))
        return false;
    if (!t->elements)
        return false; /* its shape does not work out: said already */
    if (offset < 0 || (uint64_t)offset >= t->elements) {
        stitch__finding(s->findings, "%s: offset %" PRId64 " is outside of %s, which has %" PRIu64 " elements",
                        stitch__place(step, field, place), offset, t->name, t->elements);
        return false;
    }
    *out = (stitch__range){ref->tensor, (uint64_t)offset};
    return true;
}

static bool eval_sizes(stitch__session *s, const stitch__step *step, const char *name, stitch__expr *const *list,
                       size_t rank, int64_t *out)
{
    char field[32];
    bool ok = true;
    for (size_t i = 0; i < 3; i++) {
        out[i] = 1;
        snprintf(field, sizeof(field), "%s[%zu]", name, i);
        ok = (i >= rank || stitch__eval(s, step, field, list[i], &out[i])) && ok;
    }
    return ok;
}

bool stitch__eval_kernel(stitch__session *s, const stitch__step *step, stitch__kernel_values *out)
{
    const stitch__kernel_step *k = step->u.kernel;
    memset(out, 0, sizeof(*out));
    bool ok = eval_sizes(s, step, "grid", k->grid, k->grid_rank, out->grid);
    ok = eval_sizes(s, step, "block", k->block, k->block_rank, out->block) && ok;
    ok = eval_sizes(s, step, "cluster", k->cluster, k->cluster_rank, out->cluster) && ok;
    return (!k->shared || stitch__eval(s, step, "shared", k->shared, &out->shared)) && ok;
}

uint64_t stitch__matrix_extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    uint64_t a, b, sum;
    if (__builtin_mul_overflow((uint64_t)(rows - 1), (uint64_t)ld, &a) ||
        __builtin_mul_overflow((uint64_t)(batch - 1), (uint64_t)stride, &b) || __builtin_add_overflow(a, b, &sum) ||
        __builtin_add_overflow(sum, (uint64_t)cols, &sum))
        return 0;
    return sum;
}

/* An optional size, at least `min`. */
static bool eval_size(stitch__session *s, const stitch__step *step, const char *field, stitch__expr *e,
                      int64_t fallback, int64_t min, int64_t max, int64_t *out)
{
    *out = fallback;
    if (e && !stitch__eval(s, step, field, e, out))
        return false;
    if (*out >= min && *out <= max)
        return true;
    char place[STITCH__PLACE_SIZE];
    stitch__place(step, field, place);
    if (*out < min)
        stitch__finding(s->findings, "%s: is %" PRId64 ", but must be at least %" PRId64, place, *out, min);
    else
        stitch__finding(s->findings, "%s: is %" PRId64 ", the limit is %" PRId64, place, *out, max);
    return false;
}

bool stitch__eval_gemm(stitch__session *s, const stitch__step *step, stitch__gemm_values *v)
{
    const stitch__gemm_step *g = step->u.gemm;
    const int64_t big = INT64_C(1) << 46, side = INT32_MAX;
    memset(v, 0, sizeof(*v));
    bool ok = stitch__eval_ref(s, step, "gemm.a", &g->a, &v->a);
    ok = stitch__eval_ref(s, step, "gemm.b", &g->b, &v->b) && ok;
    ok = stitch__eval_ref(s, step, "gemm.c", &g->c, &v->c) && ok;
    ok = stitch__eval_ref(s, step, "gemm.bias", &g->bias, &v->bias) && ok;
    ok = stitch__eval_ref(s, step, "gemm.d", &g->d, &v->d) && ok;
    bool sizes = eval_size(s, step, "gemm.m", g->m, 1, 1, side, &v->m);
    sizes = eval_size(s, step, "gemm.n", g->n, 1, 1, side, &v->n) && sizes;
    sizes = eval_size(s, step, "gemm.k", g->k, 1, 1, side, &v->k) && sizes;
    sizes = eval_size(s, step, "gemm.batch", g->batch, 1, 1, side, &v->batch) && sizes;
    if (!sizes)
        return false;
    int64_t rows_a = g->trans_a ? v->k : v->m, cols_a = g->trans_a ? v->m : v->k;
    int64_t rows_b = g->trans_b ? v->n : v->k, cols_b = g->trans_b ? v->k : v->n;
    sizes = eval_size(s, step, "gemm.lda", g->lda, cols_a, cols_a, big, &v->lda);
    sizes = eval_size(s, step, "gemm.ldb", g->ldb, cols_b, cols_b, big, &v->ldb) && sizes;
    sizes = eval_size(s, step, "gemm.ldc", g->ldc, v->n, v->n, big, &v->ldc) && sizes;
    sizes = sizes && eval_size(s, step, "gemm.ldd", g->ldd, g->d.name ? v->n : v->ldc, v->n, big, &v->ldd);
    if (!sizes)
        return false;
    /* sides are below 2^31 and leading dimensions at most 2^46: dense strides do not overflow after this clamp */
    int64_t dense_a, dense_b, dense_c, dense_d;
    if (__builtin_mul_overflow(rows_a, v->lda, &dense_a) || __builtin_mul_overflow(rows_b, v->ldb, &dense_b) ||
        __builtin_mul_overflow(v->m, v->ldc, &dense_c) || __builtin_mul_overflow(v->m, v->ldd, &dense_d)) {
        stitch__finding(s->findings, "%s.gemm: the matrices are larger than any tensor", step->place);
        return false;
    }
    sizes = eval_size(s, step, "gemm.stride_a", g->stride_a, v->batch > 1 ? dense_a : 0, 0, INT64_MAX, &v->stride_a);
    sizes = eval_size(s, step, "gemm.stride_b", g->stride_b, v->batch > 1 ? dense_b : 0, 0, INT64_MAX, &v->stride_b) &&
            sizes;
    sizes = eval_size(s, step, "gemm.stride_c", g->stride_c, v->batch > 1 ? dense_c : 0, 0, INT64_MAX, &v->stride_c) &&
            sizes;
    sizes = eval_size(s, step, "gemm.stride_d", g->stride_d, v->batch > 1 ? (g->d.name ? dense_d : v->stride_c) : 0, 0,
                      INT64_MAX, &v->stride_d) &&
            sizes;
    if (g->beta != 0 && !g->d.name)
        v->d = v->c;
    return sizes && ok;
}

bool stitch__eval_map(stitch__session *s, const stitch__step *step, const char *field, const stitch__tensor_map *map,
                      stitch__map_values *out)
{
    char name[96];
    bool ok;
    memset(out, 0, sizeof(*out));
    snprintf(name, sizeof(name), "%s.buffer", field);
    ok = stitch__eval_ref(s, step, name, &map->buffer, &out->buffer);
    for (size_t i = 0; i < map->rank; i++) {
        snprintf(name, sizeof(name), "%s.shape[%zu]", field, i);
        ok = eval_size(s, step, name, map->shape[i], 1, 1, UINT32_MAX, &out->shape[i]) && ok;
        snprintf(name, sizeof(name), "%s.box[%zu]", field, i);
        ok = eval_size(s, step, name, map->box[i], 1, 1, 256, &out->box[i]) && ok;
    }
    if (!ok)
        return false;
    out->strides[map->rank - 1] = 1;
    for (size_t i = map->rank; i-- > 0;) {
        int64_t dense = 1;
        snprintf(name, sizeof(name), "%s.strides[%zu]", field, i);
        if (i + 1 < map->rank && __builtin_mul_overflow(out->strides[i + 1], out->shape[i + 1], &dense)) {
            char place[STITCH__PLACE_SIZE];
            stitch__finding(s->findings, "%s: the tensor is larger than any buffer", stitch__place(step, field, place));
            return false;
        }
        ok = eval_size(s, step, name, map->strides[i], dense, 0, INT64_C(1) << 40, &out->strides[i]) && ok;
    }
    return ok;
}

bool stitch__eval_count(stitch__session *s, const stitch__step *step, stitch__expr *count, const stitch__range *from,
                        int64_t *out)
{
    const char *field = step->kind == STITCH__STEP_COPY ? "copy.count" : "fill.count";
    uint64_t rest = s->doc->tensors[from->tensor].elements - from->offset;
    *out = (int64_t)rest;
    if (count && !stitch__eval(s, step, field, count, out))
        return false;
    if (*out >= 0)
        return true;
    stitch__finding(s->findings, "%s.%s: is %" PRId64 ", but must not be negative", step->place, field, *out);
    return false;
}
