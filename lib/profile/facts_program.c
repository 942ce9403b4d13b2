/* SPDX-License-Identifier: MIT
 *
 * The steps of a program's launch plan as facts, and which two of them share a buffer that nothing else uses. From the
 * plan alone: what a kernel does with a pointer is known where it was compiled and says so in its parameters' types.
 */
#include <stdlib.h>

#include "profile/facts.h"
#include "program/program.h"

/* A step that is no loop. */
typedef struct leaf {
    const stitch__steps *list; /* that it stands in */
    const stitch__step *step;
    size_t at;              /* in the list */
    const uint64_t *before; /* a bit for every step of the list that is done when this one starts; NULL: all earlier */
} leaf;

typedef struct use {
    int32_t tensor;
    uint32_t leaf;
    uint8_t flags;              /* enum stitch__access */
    const stitch__expr *offset; /* NULL: 0 */
} use;

typedef struct walk {
    const stitch__doc *doc;
    stitch__arena arena;
    leaf *leaves;
    size_t leaf_count, leaf_cap;
    use *uses;
    size_t use_count, use_cap;
} walk;

/* ---- what uses what ---- */

/* Buffers of the workspace that run alone writes: nothing else can go away by joining two steps. */
static int add_use(walk *w, const stitch__ref *ref, int flags)
{
    if (!ref->name || ref->tensor < 0)
        return STITCH_OK;
    const stitch__tensor *t = &w->doc->tensors[ref->tensor];
    if (t->role != STITCH__ROLE_BUFFER || t->prepared)
        return STITCH_OK;
    if (stitch__grow(w->arena.ctx, &w->uses, &w->use_cap, w->use_count + 1, sizeof(*w->uses)))
        return STITCH_E_NOMEM;
    w->uses[w->use_count++] = (use){ref->tensor, (uint32_t)(w->leaf_count - 1), (uint8_t)flags, ref->offset};
    return STITCH_OK;
}

static int add_args(walk *w, const stitch__arg *args, size_t count)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        int access = args[i].access ? args[i].access : STITCH__TOUCHES;
        if (args[i].kind == STITCH__ARG_POINTER)
            rc = add_use(w, &args[i].ref, access);
        else if (args[i].kind == STITCH__ARG_TENSOR_MAP)
            rc = add_use(w, &args[i].map->buffer, access);
    }
    return rc;
}

static int add_gemm(walk *w, const stitch__gemm_step *g)
{
    const stitch__ref *const reads[] = {&g->a, &g->b, &g->d, &g->bias};
    int rc = STITCH_OK;
    for (size_t i = 0; i < STITCH__COUNT(reads) && rc == STITCH_OK; i++)
        rc = add_use(w, reads[i], STITCH__READS);
    return rc ? rc : add_use(w, &g->c, STITCH__WRITES | (g->beta != 0 && !g->d.name ? STITCH__READS : 0));
}

static int add_leaf(walk *w, const leaf *l)
{
    int rc;
    if (stitch__grow(w->arena.ctx, &w->leaves, &w->leaf_cap, w->leaf_count + 1, sizeof(*w->leaves)))
        return STITCH_E_NOMEM;
    w->leaves[w->leaf_count++] = *l;
    switch (l->step->kind) {
    case STITCH__STEP_KERNEL: return add_args(w, l->step->u.kernel->args, l->step->u.kernel->arg_count);
    case STITCH__STEP_OP: return add_args(w, l->step->u.op->args, l->step->u.op->arg_count);
    case STITCH__STEP_GEMM: return add_gemm(w, l->step->u.gemm);
    case STITCH__STEP_COPY:
        rc = add_use(w, &l->step->u.copy->from, STITCH__READS);
        return rc ? rc : add_use(w, &l->step->u.copy->to, STITCH__WRITES);
    default: return add_use(w, &l->step->u.fill->buffer, STITCH__WRITES);
    }
}

/* For a list with dependencies: a row of bits a step, of the steps that are done when it starts. */
static const uint64_t *ancestors(walk *w, const stitch__steps *list, size_t words)
{
    uint64_t *before = stitch__arena_array(&w->arena, list->count * words, sizeof(*before));
    for (size_t k = 0; before && k < list->count; k++) {
        size_t i = list->order[k];
        for (size_t a = 0; a < list->items[i].after_count; a++) {
            size_t from = list->items[i].after_index[a];
            for (size_t n = 0; n < words; n++)
                before[i * words + n] |= before[from * words + n];
            before[i * words + from / 64] |= UINT64_C(1) << (from % 64);
        }
    }
    return before;
}

/* Nested at most 64 deep: validation has seen it. */
static int walk_list(walk *w, const stitch__steps *list)
{
    size_t words = (list->count + 63) / 64;
    const uint64_t *before = list->graph ? ancestors(w, list, words) : NULL;
    int rc = list->graph && !before ? STITCH_E_NOMEM : STITCH_OK;
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++) {
        const leaf l = {list, &list->items[i], i, before ? before + i * words : NULL};
        rc = l.step->kind == STITCH__STEP_REPEAT ? walk_list(w, &l.step->u.repeat->steps) : add_leaf(w, &l);
    }
    return rc;
}

/* ---- two steps and a buffer between them ---- */

static int by_tensor(const void *pa, const void *pb)
{
    const use *a = pa, *b = pb;
    return a->tensor != b->tensor ? (a->tensor < b->tensor ? -1 : 1)
           : a->leaf != b->leaf   ? (a->leaf < b->leaf ? -1 : 1)
                                  : 0;
}

static bool comes_before(const leaf *a, const leaf *b)
{
    if (a->list != b->list) /* one of them in a loop: it takes part in several rounds of the other */
        return false;
    return b->before ? (b->before[a->at / 64] >> (a->at % 64) & 1) != 0 : a->at < b->at;
}

static bool same_offset(const stitch__expr *a, const stitch__expr *b)
{
    int64_t x = 0, y = 0;
    bool numbers = (!a || stitch__expr_number(a, &x)) && (!b || stitch__expr_number(b, &y));
    return numbers ? x == y : a && b && strcmp(a->text, b->text) == 0;
}

/* Whether the reader has a pointer to what the writer has a pointer to: not the second half of a buffer where the other
 * one wrote the first. */
static bool meet(const use *writer, size_t writers, const use *reader, size_t readers)
{
    for (size_t i = 0; i < writers; i++) {
        for (size_t k = 0; k < readers; k++) {
            if (same_offset(writer[i].offset, reader[k].offset))
                return true;
        }
    }
    return false;
}

static int flags_of(const use *u, size_t count)
{
    int flags = 0;
    for (size_t i = 0; i < count; i++)
        flags |= u[i].flags;
    return flags;
}

/* The uses of one buffer. A kernel of which nothing is known may do either: with one user before and one behind, the
 * first can only write it, and the second would not need it otherwise. */
static void join(const walk *w, const use *u, size_t count, stitch__facts *f)
{
    size_t first = 1;
    while (first < count && u[first].leaf == u[0].leaf)
        first++;
    if (first == count || u[count - 1].leaf != u[first].leaf)
        return; /* one step, or more than two */
    const use *writer = u, *reader = u + first;
    size_t writers = first, readers = count - first;
    if (!comes_before(&w->leaves[writer->leaf], &w->leaves[reader->leaf])) { /* the text's order need not be theirs */
        writer = u + first;
        reader = u;
        writers = count - first;
        readers = first;
        if (!comes_before(&w->leaves[writer->leaf], &w->leaves[reader->leaf]))
            return;
    }
    int wrote = flags_of(writer, writers), read = flags_of(reader, readers);
    if (!(wrote & (STITCH__WRITES | STITCH__MAY_WRITE | STITCH__TOUCHES)) ||
        (read & (STITCH__WRITES | STITCH__MAY_WRITE)) || !meet(writer, writers, reader, readers) ||
        writer->leaf >= f->step_count || reader->leaf >= f->step_count)
        return;
    stitch__step_fact *s = &f->steps[writer->leaf];
    const stitch__tensor *t = &w->doc->tensors[u->tensor];
    if (s->next >= 0 && s->between_bytes >= t->bytes) /* the largest, where a step passes on several */
        return;
    s->next = (int32_t)reader->leaf;
    s->between = stitch__facts_text(f, t->name);
    s->between_bytes = t->bytes;
}

static void find_pairs(walk *w, stitch__facts *f)
{
    if (w->use_count)
        qsort(w->uses, w->use_count, sizeof(*w->uses), by_tensor);
    for (size_t i = 0, n; i < w->use_count; i += n) {
        for (n = 1; i + n < w->use_count && w->uses[i + n].tensor == w->uses[i].tensor;)
            n++;
        join(w, w->uses + i, n, f);
    }
}

/* ---- the list ---- */

static int32_t tensor_of(const stitch__arg *a)
{
    return a->kind == STITCH__ARG_POINTER      ? a->ref.tensor
           : a->kind == STITCH__ARG_TENSOR_MAP ? a->map->buffer.tensor
                                               : -1;
}

/* Of what a kernel has pointers to, each tensor once. */
static uint64_t bytes_given(const stitch__doc *doc, const stitch__kernel_step *k)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < k->arg_count; i++) {
        int32_t tensor = tensor_of(&k->args[i]);
        size_t first = 0;
        while (first < i && tensor_of(&k->args[first]) != tensor)
            first++;
        if (tensor >= 0 && first == i)
            bytes += doc->tensors[tensor].bytes;
    }
    return bytes;
}

static stitch__step_fact fact_of(stitch__facts *f, const stitch__doc *doc, const stitch__step *step)
{
    stitch__step_fact s = {.place = stitch__facts_text(f, step->place), .name = "", .next = -1, .between = ""};
    switch (step->kind) {
    case STITCH__STEP_KERNEL:
        s.kind = "kernel";
        s.name = stitch__facts_text(f, step->u.kernel->name);
        s.bytes = bytes_given(doc, step->u.kernel);
        break;
    case STITCH__STEP_OP:
        s.kind = "op";
        s.name = stitch__facts_text(f, step->u.op->name);
        break;
    case STITCH__STEP_GEMM: s.kind = "gemm"; break;
    case STITCH__STEP_COPY: s.kind = "copy"; break;
    default: s.kind = "fill"; break;
    }
    s.moves_only = step->kind == STITCH__STEP_COPY || step->kind == STITCH__STEP_FILL;
    return s;
}

int stitch__facts_steps(stitch__facts *f, const stitch_program *program, stitch_error **err)
{
    walk w = {.doc = &program->doc, .arena = {.ctx = f->arena.ctx}};
    stitch__step_fact *steps = NULL;
    int rc;
    if (!program->iface)
        return stitch__err(f->arena.ctx, err, STITCH_E_STATE, "the program has not been validated");
    rc = walk_list(&w, &program->doc.run);
    size_t count = w.leaf_count < STITCH__FACTS_STEPS ? w.leaf_count : STITCH__FACTS_STEPS;
    if (rc == STITCH_OK)
        steps = stitch__calloc(f->arena.ctx, count ? count : 1, sizeof(*steps));
    if (!steps) {
        rc = stitch__err_nomem(f->arena.ctx, err);
        goto out;
    }
    stitch_free(f->steps);
    f->steps = steps;
    f->step_count = count;
    f->library_steps = false;
    for (size_t i = 0; i < w.leaf_count; i++) {
        int32_t kind = w.leaves[i].step->kind;
        f->library_steps |= kind == STITCH__STEP_GEMM || kind == STITCH__STEP_OP;
        if (i < count)
            f->steps[i] = fact_of(f, w.doc, w.leaves[i].step);
    }
    find_pairs(&w, f);
out:
    stitch_free(w.leaves);
    stitch_free(w.uses);
    stitch__arena_free(&w.arena);
    return rc;
}
