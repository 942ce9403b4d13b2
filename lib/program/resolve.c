/* SPDX-License-Identifier: MIT
 *
 * Findings, and names: what every pointer, loop variable and step id of a launch plan refers to.
 */
#include <stdio.h>

#include "program/program.h"

/* ---- findings ---- */

void stitch__findings_init(stitch__findings *f, const stitch_context *ctx)
{
    memset(f, 0, sizeof(*f));
    f->ctx = ctx;
    stitch__buf_init(&f->text, ctx);
}

void stitch__finding(stitch__findings *f, const char *fmt, ...)
{
    char line[sizeof(f->first)];
    va_list ap;
    va_start(ap, fmt);
    stitch__vformat(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (!f->count++)
        memcpy(f->first, line, sizeof(line));
    if (f->count > STITCH__MAX_FINDINGS)
        return;
    stitch__buf_puts(&f->text, line);
    stitch__buf_putc(&f->text, '\n');
}

int stitch__findings_end(stitch__findings *f, int code, stitch_error **err)
{
    int rc = STITCH_OK;
    if (f->count > STITCH__MAX_FINDINGS)
        stitch__buf_printf(&f->text, "and %zu more\n", f->count - STITCH__MAX_FINDINGS);
    if (f->count) {
        rc = stitch__err_native(f->ctx, err, code, STITCH_DOMAIN_PROGRAM, 0, "%s", f->first);
        stitch__err_details(err, f->text.failed ? f->first : f->text.data);
    }
    stitch__buf_free(&f->text);
    f->count = 0;
    return rc;
}

const char *stitch__place(const stitch__step *step, const char *field, char out[STITCH__PLACE_SIZE])
{
    if (step->kind == STITCH__STEP_KERNEL)
        snprintf(out, STITCH__PLACE_SIZE, "%s.kernel %.100s: %s", step->place, step->u.kernel->name, field);
    else
        snprintf(out, STITCH__PLACE_SIZE, "%s.%s", step->place, field);
    return out;
}

/* ---- names ---- */

typedef struct resolver {
    stitch__doc *doc;
    const stitch_interface *iface;
    stitch__findings *f;
    stitch_error **err;
    stitch__symbols names; /* of all tensors and buffers; a tensor's index is its symbol's */
    int32_t scope[64];     /* symbols of the loop variables around */
    size_t depth;
} resolver;

static bool is_dim(const stitch_interface *i, const char *name)
{
    for (size_t k = 0; k < i->dim_count; k++) {
        if (strcmp(i->dims[k].name, name) == 0)
            return true;
    }
    return false;
}

static bool is_let(const stitch__doc *d, const char *name)
{
    for (size_t k = 0; k < d->let_count; k++) {
        if (strcmp(d->lets[k].name, name) == 0)
            return true;
    }
    return false;
}

/* A kept buffer is a state of the task under its own name. */
static void resolve_kept(resolver *r, stitch__buffer *b)
{
    for (size_t k = 0; k < r->iface->tensor_count; k++) {
        const stitch__iface_tensor *t = &r->iface->tensors[k];
        if (strcmp(t->name, b->name) != 0)
            continue;
        if (t->role != STITCH_TENSOR_STATE)
            stitch__finding(r->f, "buffers.%s: the task has a tensor of this name that is no state", b->name);
        else if (t->dtype != b->dtype)
            stitch__finding(r->f, "buffers.%s: is %s, but the task's state is %s", b->name, stitch_dtype_name(b->dtype),
                            stitch_dtype_name(t->dtype));
        b->tensor = (int32_t)k;
        return;
    }
    stitch__finding(r->f, "buffers.%s: \"keep\" needs a state of this name in the task, and there is none", b->name);
}

static int make_tensors(resolver *r)
{
    stitch__doc *d = r->doc;
    size_t total = r->iface->tensor_count + d->buffer_count;
    d->tensors = stitch__arena_array(&d->arena, total, sizeof(*d->tensors));
    r->names.arena = &d->arena;
    if (!d->tensors)
        return stitch__err_nomem(d->ctx, r->err);
    d->tensor_count = 0;
    for (size_t k = 0; k < r->iface->tensor_count; k++) {
        const stitch__iface_tensor *t = &r->iface->tensors[k];
        if (stitch__symbol(&r->names, t->name, strlen(t->name)) < 0)
            return stitch__err_nomem(d->ctx, r->err);
        d->tensors[d->tensor_count++] =
            (stitch__tensor){r->names.names[k], t->role, t->dtype, -1, t->elements, t->bytes, false};
    }
    for (size_t k = 0; k < d->buffer_count; k++) {
        stitch__buffer *b = &d->buffers[k];
        int32_t index = stitch__symbol_find(&r->names, b->name, strlen(b->name));
        if (b->keep) {
            resolve_kept(r, b);
        } else if (index >= 0) {
            stitch__finding(
                r->f, "buffers.%s: the task already has a tensor of this name; use it, or give the buffer another name",
                b->name);
            b->tensor = index;
        } else {
            b->tensor = stitch__symbol(&r->names, b->name, strlen(b->name));
            if (b->tensor < 0)
                return stitch__err_nomem(d->ctx, r->err);
            d->tensors[d->tensor_count++] =
                (stitch__tensor){b->name, STITCH__ROLE_BUFFER, b->dtype, (int32_t)k, 0, 0, false};
        }
    }
    return STITCH_OK;
}

static void resolve_ref(resolver *r, const stitch__step *step, const char *field, stitch__ref *ref)
{
    char place[STITCH__PLACE_SIZE];
    if (!ref->name)
        return;
    ref->tensor = stitch__symbol_find(&r->names, ref->name, strlen(ref->name));
    if (ref->tensor >= 0 || r->f->count > STITCH__MAX_FINDINGS)
        return;
    for (size_t k = 0; k < r->doc->buffer_count; k++) { /* a kept buffer without a state: said already */
        if (strcmp(r->doc->buffers[k].name, ref->name) == 0)
            return;
    }
    const char *near = stitch__nearest(ref->name, r->names.names, r->names.count);
    stitch__place(step, field, place);
    if (is_dim(r->iface, ref->name) || is_let(r->doc, ref->name))
        stitch__finding(r->f, "%s: '%.64s' is a number, not a tensor; pass it as a scalar: {\"i32\": \"%.64s\"}", place,
                        ref->name, ref->name);
    else if (near)
        stitch__finding(r->f, "%s: there is no tensor or buffer '%.64s'; did you mean '%.64s'?", place, ref->name,
                        near);
    else
        stitch__finding(r->f, "%s: there is no tensor or buffer '%.64s'; declare it in \"buffers\"", place, ref->name);
}

static void resolve_args(resolver *r, const stitch__step *step, const char *prefix, stitch__arg *args, size_t count)
{
    char field[64];
    for (size_t i = 0; i < count; i++) {
        snprintf(field, sizeof(field), "%sargs[%zu]", prefix, i);
        if (args[i].kind == STITCH__ARG_POINTER)
            resolve_ref(r, step, field, &args[i].ref);
        else if (args[i].kind == STITCH__ARG_TENSOR_MAP)
            resolve_ref(r, step, field, &args[i].map->buffer);
    }
}

static int resolve_steps(resolver *r, stitch__steps *list);

static int resolve_repeat(resolver *r, stitch__step *step)
{
    stitch__repeat_step *rep = step->u.repeat;
    bool taken = is_dim(r->iface, rep->var) || is_let(r->doc, rep->var);
    for (size_t i = 0; i < r->depth; i++)
        taken |= r->scope[i] == rep->symbol;
    if (taken)
        stitch__finding(r->f, "%s.repeat.var: '%s' is already the name of a dim, a let or a loop around this one",
                        step->place, rep->var);
    if (r->depth == STITCH__COUNT(r->scope)) {
        stitch__finding(r->f, "%s.repeat: loops are nested more than %zu deep", step->place, STITCH__COUNT(r->scope));
        return STITCH_OK;
    }
    r->scope[r->depth++] = rep->symbol;
    int rc = resolve_steps(r, &rep->steps);
    r->depth--;
    return rc;
}

static int resolve_step(resolver *r, stitch__step *step)
{
    switch (step->kind) {
    case STITCH__STEP_KERNEL: resolve_args(r, step, "", step->u.kernel->args, step->u.kernel->arg_count); break;
    case STITCH__STEP_OP: resolve_args(r, step, "op.", step->u.op->args, step->u.op->arg_count); break;
    case STITCH__STEP_GEMM:
        resolve_ref(r, step, "gemm.a", &step->u.gemm->a);
        resolve_ref(r, step, "gemm.b", &step->u.gemm->b);
        resolve_ref(r, step, "gemm.c", &step->u.gemm->c);
        resolve_ref(r, step, "gemm.d", &step->u.gemm->d);
        resolve_ref(r, step, "gemm.bias", &step->u.gemm->bias);
        break;
    case STITCH__STEP_COPY:
        resolve_ref(r, step, "copy.from", &step->u.copy->from);
        resolve_ref(r, step, "copy.to", &step->u.copy->to);
        break;
    case STITCH__STEP_FILL: resolve_ref(r, step, "fill.buffer", &step->u.fill->buffer); break;
    case STITCH__STEP_REPEAT: return resolve_repeat(r, step);
    default: break;
    }
    return STITCH_OK;
}

/* A symbol for every id of the list, and the step that has it. */
static int resolve_ids(resolver *r, stitch__steps *list)
{
    stitch__symbols ids = {.arena = &r->doc->arena};
    uint32_t *owner = stitch__calloc(r->doc->ctx, list->count, sizeof(*owner));
    if (!owner)
        return stitch__err_nomem(r->doc->ctx, r->err);
    for (size_t i = 0; i < list->count; i++) {
        const char *id = list->items[i].id;
        size_t before = ids.count;
        if (!id)
            continue;
        int32_t symbol = stitch__symbol(&ids, id, strlen(id));
        if (symbol < 0) {
            stitch_free(owner);
            return stitch__err_nomem(r->doc->ctx, r->err);
        }
        if (ids.count == before)
            stitch__finding(r->f, "%s.id: '%.64s' is already the id of %s", list->items[i].place, id,
                            list->items[owner[symbol]].place);
        else
            owner[symbol] = (uint32_t)i;
    }
    for (size_t i = 0; i < list->count; i++) {
        stitch__step *step = &list->items[i];
        for (size_t a = 0; a < step->after_count; a++) {
            int32_t symbol = stitch__symbol_find(&ids, step->after[a], strlen(step->after[a]));
            step->after_index[a] = symbol < 0 ? (uint32_t)i : owner[symbol];
            if (step->after_index[a] != i || r->f->count > STITCH__MAX_FINDINGS)
                continue;
            const char *near = symbol < 0 ? stitch__nearest(step->after[a], ids.names, ids.count) : NULL;
            stitch__finding(r->f, "%s.after[%zu]: %s '%.64s'%s%s%s", step->place, a,
                            symbol < 0 ? "no step of this list has the id" : "the step waits for itself:",
                            step->after[a], near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        }
    }
    stitch_free(owner);
    return STITCH_OK;
}

typedef struct edges {
    uint32_t *start, *next; /* the successors of step i are next[start[i]] to next[start[i + 1] - 1] */
    uint32_t *cursor;       /* where the next successor of step i goes */
    uint32_t *waits;        /* how many predecessors of step i are not placed yet */
} edges;

static void collect_edges(const stitch__steps *list, edges *e)
{
    size_t n = list->count;
    for (size_t i = 0; i < n; i++) {
        for (size_t a = 0; a < list->items[i].after_count; a++)
            e->start[list->items[i].after_index[a] + 1]++;
    }
    for (size_t i = 0; i < n; i++) {
        e->start[i + 1] += e->start[i];
        e->cursor[i] = e->start[i];
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t a = 0; a < list->items[i].after_count; a++)
            e->next[e->cursor[list->items[i].after_index[a]]++] = (uint32_t)i;
        e->waits[i] = (uint32_t)list->items[i].after_count;
    }
}

/* Topological order that keeps close to the order of the list. */
static int order_graph(resolver *r, stitch__steps *list)
{
    size_t n = list->count, total = 0, done = 0;
    for (size_t i = 0; i < n; i++)
        total += list->items[i].after_count;
    list->order = stitch__arena_array(&r->doc->arena, n, sizeof(*list->order));
    uint32_t *work = stitch__calloc(r->doc->ctx, 3 * n + 1 + total, sizeof(*work));
    if (!list->order || !work) {
        stitch_free(work);
        return stitch__err_nomem(r->doc->ctx, r->err);
    }
    edges e = {work, work + 3 * n + 1, work + n + 1, work + 2 * n + 1};
    collect_edges(list, &e);
    for (size_t i = 0; i < n; i++) {
        if (!e.waits[i])
            list->order[done++] = (uint32_t)i;
    }
    for (size_t taken = 0; taken < done; taken++) {
        uint32_t i = list->order[taken];
        for (uint32_t k = e.start[i]; k < e.start[i + 1]; k++) {
            if (--e.waits[e.next[k]] == 0)
                list->order[done++] = e.next[k];
        }
    }
    bool said = false;
    for (size_t i = 0; i < n;
         i++) { /* what is left waits in circles: put it somewhere, so that the other checks can go on */
        if (!e.waits[i])
            continue;
        if (!said)
            stitch__finding(r->f, "%s.after: the steps wait for each other in a circle", list->items[i].place);
        said = true;
        list->order[done++] = (uint32_t)i;
    }
    stitch_free(work);
    return STITCH_OK;
}

static int resolve_steps(resolver *r, stitch__steps *list)
{
    int rc = resolve_ids(r, list);
    if (rc == STITCH_OK && list->graph)
        rc = order_graph(r, list);
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++)
        rc = resolve_step(r, &list->items[i]);
    return rc;
}

int stitch__resolve(stitch__doc *doc, const stitch_interface *iface, stitch__findings *f, stitch_error **err)
{
    resolver r = {.doc = doc, .iface = iface, .f = f, .err = err};
    for (size_t k = 0; k < doc->let_count; k++) {
        if (is_dim(iface, doc->lets[k].name))
            stitch__finding(f, "let.%s: the task already has a dim of this name", doc->lets[k].name);
    }
    int rc = make_tensors(&r);
    if (rc == STITCH_OK)
        rc = resolve_steps(&r, &doc->prepare);
    if (rc == STITCH_OK)
        rc = resolve_steps(&r, &doc->run);
    return rc;
}
