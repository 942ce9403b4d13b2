/* SPDX-License-Identifier: MIT
 *
 * Who reads and writes what: unwritten outputs, reads before the first write, writes to what is read-only, and steps of
 * a graph that touch one buffer with no order between them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "program/program.h"

typedef struct use {
    int32_t tensor;
    uint32_t step; /* index in the list that is looked at */
    uint8_t flags; /* enum stitch__access */
} use;

typedef struct access_checker {
    stitch__doc *doc;
    stitch__findings *f;
    stitch_error **err;
    bool in_run;
    uint8_t *state; /* by tensor: what steps up to here did */
    use *uses;      /* of one step, or of one list */
    size_t count, cap;
} access_checker;

static int add(access_checker *c, uint32_t step, const stitch__ref *ref, int flags)
{
    if (!ref->name || ref->tensor < 0)
        return STITCH_OK;
    if (stitch__grow(c->doc->ctx, &c->uses, &c->cap, c->count + 1, sizeof(*c->uses)))
        return stitch__err_nomem(c->doc->ctx, c->err);
    c->uses[c->count++] = (use){ref->tensor, step, (uint8_t)flags};
    return STITCH_OK;
}

static bool read_only(const stitch__doc *d, int32_t tensor)
{
    int32_t role = d->tensors[tensor].role;
    return role == STITCH_TENSOR_INPUT || role == STITCH_TENSOR_WEIGHT;
}

/* Inputs and weights cannot be written: a pointer to one is read, whatever its parameter's type says. */
static int add_args(access_checker *c, uint32_t step, const stitch__arg *args, size_t count)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        const stitch__ref *ref = args[i].kind == STITCH__ARG_POINTER      ? &args[i].ref
                                 : args[i].kind == STITCH__ARG_TENSOR_MAP ? &args[i].map->buffer
                                                                          : NULL;
        if (ref && ref->tensor >= 0)
            rc = add(c, step, ref,
                     read_only(c->doc, ref->tensor) ? STITCH__READS
                     : args[i].access               ? args[i].access
                                                    : STITCH__TOUCHES);
    }
    return rc;
}

/* All uses of a step, those of the steps inside a loop included. */
static int collect(access_checker *c, uint32_t index, const stitch__step *step)
{
    const stitch__gemm_step *g = step->u.gemm;
    const stitch__ref *c_read = step->kind == STITCH__STEP_GEMM && g->beta != 0 && !g->d.name ? &g->c : NULL;
    int rc = STITCH_OK;
    switch (step->kind) {
    case STITCH__STEP_KERNEL: return add_args(c, index, step->u.kernel->args, step->u.kernel->arg_count);
    case STITCH__STEP_OP: return add_args(c, index, step->u.op->args, step->u.op->arg_count);
    case STITCH__STEP_GEMM:
        if ((rc = add(c, index, &g->a, STITCH__READS)) || (rc = add(c, index, &g->b, STITCH__READS)) ||
            (rc = add(c, index, &g->d, STITCH__READS)) || (rc = add(c, index, &g->bias, STITCH__READS)) ||
            (c_read && (rc = add(c, index, c_read, STITCH__READS))))
            return rc;
        return add(c, index, &g->c, STITCH__WRITES);
    case STITCH__STEP_COPY:
        rc = add(c, index, &step->u.copy->from, STITCH__READS);
        return rc ? rc : add(c, index, &step->u.copy->to, STITCH__WRITES);
    case STITCH__STEP_FILL: return add(c, index, &step->u.fill->buffer, STITCH__WRITES);
    default: break;
    }
    for (size_t i = 0; i < step->u.repeat->steps.count && rc == STITCH_OK; i++)
        rc = collect(c, index, &step->u.repeat->steps.items[i]);
    return rc;
}

/* ---- reads before writes ---- */

static const char *role_name(int32_t role)
{
    return role == STITCH_TENSOR_INPUT    ? "input"
           : role == STITCH_TENSOR_WEIGHT ? "weight"
           : role == STITCH_TENSOR_OUTPUT ? "output"
                                          : "state";
}

static void check_use(access_checker *c, const stitch__step *step, int32_t tensor, int flags)
{
    stitch__tensor *t = &c->doc->tensors[tensor];
    char place[STITCH__PLACE_SIZE];
    const char *what = step->kind == STITCH__STEP_KERNEL ? "args"
                       : step->kind == STITCH__STEP_GEMM ? "gemm"
                       : step->kind == STITCH__STEP_COPY ? "copy"
                       : step->kind == STITCH__STEP_FILL ? "fill"
                                                         : "op";
    stitch__place(step, what, place);
    if (!c->in_run && t->role != STITCH_TENSOR_WEIGHT && t->role != STITCH__ROLE_BUFFER) {
        stitch__finding(c->f, "%s: uses the %s %s, but prepare sees weights and buffers only", place,
                        role_name(t->role), t->name);
        return;
    }
    if ((flags & STITCH__WRITES) && read_only(c->doc, tensor))
        stitch__finding(c->f, "%s: writes the %s %s, which is read-only", place, role_name(t->role), t->name);
    if (c->in_run && (flags & STITCH__WRITES) && (t->prepared && (c->state[tensor] & STITCH__MAY_WRITE)))
        stitch__finding(c->f, "%s: writes %s, which prepare wrote; run may only read it", place, t->name);
    bool known = read_only(c->doc, tensor) || t->role == STITCH_TENSOR_STATE || t->prepared ||
                 (c->state[tensor] & (STITCH__WRITES | STITCH__TOUCHES));
    if ((flags & STITCH__READS) && !known && !(flags & (STITCH__TOUCHES | STITCH__MAY_WRITE)))
        stitch__finding(c->f, "%s: reads %s %s before anything has written it", place,
                        t->role == STITCH_TENSOR_OUTPUT ? "output" : "buffer", t->name);
}

static int by_tensor(const void *x, const void *y)
{
    const use *a = x, *b = y;
    return a->tensor != b->tensor ? (a->tensor < b->tensor ? -1 : 1)
           : a->step != b->step   ? (a->step < b->step ? -1 : 1)
                                  : 0;
}

/* Makes one entry of several with the same tensor and step. */
static void merge(access_checker *c)
{
    size_t n = 0;
    qsort(c->uses, c->count, sizeof(*c->uses), by_tensor);
    for (size_t i = 0; i < c->count; i++) {
        if (n && by_tensor(&c->uses[n - 1], &c->uses[i]) == 0)
            c->uses[n - 1].flags |= c->uses[i].flags;
        else
            c->uses[n++] = c->uses[i];
    }
    c->count = n;
}

static int walk_access(access_checker *c, const stitch__steps *list)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < list->count && rc == STITCH_OK && c->f->count <= STITCH__MAX_FINDINGS; i++) {
        const stitch__step *step = &list->items[list->order ? list->order[i] : i];
        if (step->kind == STITCH__STEP_REPEAT) {
            rc = walk_access(c, &step->u.repeat->steps);
            continue;
        }
        c->count = 0;
        rc = collect(c, 0, step);
        if (rc == STITCH_OK && c->count)
            merge(c);
        for (size_t k = 0; k < c->count && rc == STITCH_OK; k++)
            check_use(c, step, c->uses[k].tensor, c->uses[k].flags);
        for (size_t k = 0; k < c->count && rc == STITCH_OK; k++) {
            int flags = c->uses[k].flags;
            uint8_t *state = &c->state[c->uses[k].tensor];
            if (flags & (STITCH__WRITES | STITCH__MAY_WRITE))
                *state |= STITCH__WRITES;
            if (flags & STITCH__TOUCHES)
                *state |= STITCH__TOUCHES;
            if (!c->in_run && (flags & (STITCH__WRITES | STITCH__MAY_WRITE)))
                *state |= STITCH__MAY_WRITE; /* remembers that prepare wrote it for certain */
        }
    }
    return rc;
}

/* ---- missing edges ---- */

static bool conflict(int a, int b)
{
    const int writes = STITCH__WRITES | STITCH__MAY_WRITE;
    return (a & writes) || (b & writes);
}

/* before[i] has a bit for every step that is done when step i starts. */
static void ancestors(const stitch__steps *list, uint64_t *before, size_t words)
{
    for (size_t k = 0; k < list->count; k++) {
        size_t i = list->order[k];
        for (size_t a = 0; a < list->items[i].after_count; a++) {
            size_t from = list->items[i].after_index[a];
            for (size_t w = 0; w < words; w++)
                before[i * words + w] |= before[from * words + w];
            before[i * words + from / 64] |= UINT64_C(1) << (from % 64);
        }
    }
}

static void check_pair(access_checker *c, const stitch__steps *list, const uint64_t *before, size_t words, const use *x,
                       const use *y)
{
    const stitch__step *a = &list->items[x->step], *b = &list->items[y->step];
    if (!conflict(x->flags, y->flags) || (before[x->step * words + y->step / 64] >> (y->step % 64) & 1) ||
        (before[y->step * words + x->step / 64] >> (x->step % 64) & 1))
        return;
    bool certain = (x->flags | y->flags) & STITCH__WRITES;
    stitch__finding(c->f,
                    "%s and %s use %s with no order between them: neither waits for the other through \"after\"%s",
                    a->place, b->place, c->doc->tensors[x->tensor].name,
                    certain ? "" : "; if both kernels only read it, make the parameters pointers to const");
}

static int check_edges(access_checker *c, const stitch__steps *list)
{
    size_t words = (list->count + 63) / 64;
    uint64_t *before = NULL;
    int rc = STITCH_OK;
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++) {
        if (list->items[i].kind == STITCH__STEP_REPEAT)
            rc = check_edges(c, &list->items[i].u.repeat->steps);
    }
    if (rc || !list->graph)
        return rc;
    c->count = 0;
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++)
        rc = collect(c, (uint32_t)i, &list->items[i]);
    if (rc || !c->count)
        return rc;
    merge(c);
    before = stitch__calloc(c->doc->ctx, list->count * words, sizeof(*before));
    if (!before)
        return stitch__err_nomem(c->doc->ctx, c->err);
    ancestors(list, before, words);
    for (size_t i = 0; i < c->count && c->f->count <= STITCH__MAX_FINDINGS; i++) {
        for (size_t k = i + 1; k < c->count && c->uses[k].tensor == c->uses[i].tensor; k++)
            check_pair(c, list, before, words, &c->uses[i], &c->uses[k]);
    }
    stitch_free(before);
    return STITCH_OK;
}

int stitch__check_access(stitch__doc *doc, stitch__findings *f, stitch_error **err)
{
    access_checker c = {.doc = doc, .f = f, .err = err};
    c.state = stitch__calloc(doc->ctx, doc->tensor_count ? doc->tensor_count : 1, 1);
    if (!c.state)
        return stitch__err_nomem(doc->ctx, err);
    for (size_t i = 0; i < doc->tensor_count; i++)
        doc->tensors[i].prepared = false;
    int rc = walk_access(&c, &doc->prepare);
    for (size_t i = 0; i < doc->tensor_count; i++) {
        doc->tensors[i].prepared = c.state[i] & (STITCH__WRITES | STITCH__TOUCHES);
        c.state[i] &= STITCH__MAY_WRITE;
    }
    c.in_run = true;
    if (rc == STITCH_OK)
        rc = walk_access(&c, &doc->run);
    for (size_t i = 0; i < doc->tensor_count && rc == STITCH_OK; i++) {
        if (doc->tensors[i].role == STITCH_TENSOR_OUTPUT && !(c.state[i] & (STITCH__WRITES | STITCH__TOUCHES)))
            stitch__finding(f, "run: no step writes the output %s", doc->tensors[i].name);
    }
    if (rc == STITCH_OK)
        rc = check_edges(&c, &doc->prepare);
    if (rc == STITCH_OK)
        rc = check_edges(&c, &doc->run);
    stitch_free(c.uses);
    stitch_free(c.state);
    return rc;
}
