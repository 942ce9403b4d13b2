/* SPDX-License-Identifier: MIT
 *
 * Runs of the candidate: one by one, or made ahead of their turn, several in one call. A candidate in a worker is worth
 * the latter: between two runs on which the verifier works as well, the device changes from one process to the other
 * and back. The program sees the same runs in the same order either way, and no result of another one.
 */
#include "verify/verify.h"

stitch__run stitch__run_of_set(int set)
{
    stitch__run run = STITCH__RUN_INIT;

    run.set = set;
    run.poison = set ? STITCH__POISON_B : STITCH__POISON_A;
    return run;
}

bool stitch__ahead_left(const stitch__verify *v)
{
    return v->ahead.next < v->ahead.block.count;
}

static const stitch__block_run *next_run(const stitch__verify *v)
{
    return &v->ahead.block.runs[v->ahead.next];
}

void stitch__ahead_drop(stitch__verify *v)
{
    v->ahead.block.count = v->ahead.next = 0;
}

void stitch__ahead_close(stitch__verify *v)
{
    stitch__ahead_drop(v);
    stitch__zero_free(v->ahead.hashes);
    stitch__zero_free(v->ahead.own_hashes);
}

static int make_room(stitch__verify *v, stitch_error **err)
{
    stitch__ahead *a = &v->ahead;

    if (!a->hashes)
        a->hashes = stitch__calloc(v->ctx, STITCH__BLOCK * v->count + 1, sizeof(*a->hashes));
    if (!a->own_hashes)
        a->own_hashes = stitch__calloc(v->ctx, v->count + 1, sizeof(*a->own_hashes));
    return a->hashes && a->own_hashes ? STITCH_OK : stitch__err_nomem(v->ctx, err);
}

uint32_t stitch__ahead_most(const stitch__verify *v)
{
    return v->has_states || !v->candidate.ops->run_block ? 0 : v->room;
}

int stitch__ahead_make(stitch__verify *v, const stitch__block_run *runs, uint32_t count, int *code, stitch_error **why,
                       stitch_error **err)
{
    stitch__ahead *a = &v->ahead;
    stitch__took took[STITCH__BLOCK];
    int rc;

    *code = STITCH_OK;
    stitch__ahead_drop(v);
    if (count < 2 || count > stitch__ahead_most(v))
        return STITCH_OK;
    rc = make_room(v, err);
    if (rc)
        return rc;
    memcpy(a->block.runs, runs, count * sizeof(*runs));
    for (uint32_t k = 0; k < count; k++) {
        a->block.runs[k].does |= STITCH__RUN_KEPT;
        a->block.runs[k].key = stitch__seed_derive(v->options.seed, STITCH__SEED_AHEAD, a->keys++);
    }
    a->block.count = count;
    rc = v->candidate.ops->run_block(v->candidate.self, &v->scope, &a->block, took, a->hashes, code, why, err);
    if (rc || *code)
        stitch__ahead_drop(v);
    return rc;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

int stitch__draw_inputs(stitch__verify *v, uint64_t seed, const stitch__variant *variant, stitch_error **err)
{
    int rc = stitch__fill_inputs(v, seed, variant, err);

    v->ahead.drawn = seed;
    v->ahead.drawn_as = variant;
    if (rc || v->runner) /* which has the same memory */
        return rc;
    if (stitch__ahead_left(v) && next_run(v)->run.draw && next_run(v)->run.seed == seed &&
        next_run(v)->variant == variant)
        return STITCH_OK; /* it has had them */
    stitch__ahead_drop(v);
    return v->candidate.ops->fill_inputs(v->candidate.self, &v->scope, seed, variant, err);
}

/* Hashes are taken with a key of their own where the run that they are for has been made. */
static uint64_t hash_seed(const stitch__verify *v)
{
    for (uint32_t k = v->ahead.next; k < v->ahead.block.count; k++)
        if (v->ahead.block.runs[k].does & STITCH__RUN_INPUTS)
            return v->ahead.block.runs[k].key;
    return stitch__seed_derive(v->options.seed, STITCH__SEED_HASH, 0);
}

/* Roles of what a program may only read. */
static unsigned read_only(bool inputs)
{
    return 1u << STITCH_TENSOR_WEIGHT | (inputs ? 1u << STITCH_TENSOR_INPUT : 0);
}

int stitch__hash_tensors(stitch__verify *v, bool inputs, stitch_error **err)
{
    stitch__hash_row row = {v->infos, v->count, v->first, NULL, read_only(inputs), hash_seed(v), 0};
    int rc = stitch__hash_clear(&v->hasher, v->stream, 0, v->count, err);

    v->hashed_with = row.seed;
    if (!rc)
        rc = stitch__hash_tensor_row(&v->hasher, v->stream, &row, err);
    return rc ? rc
              : stitch__hash_fetch(&v->hasher, v->stream, &v->scope, "hashing inputs and weights", v->count, v->hashes,
                                   err);
}

/* The hashes that the candidate's inputs and weights had after the last run. */
static int candidate_hashes(stitch__verify *v, bool inputs, stitch_error **err)
{
    const stitch__ahead *a = &v->ahead;

    if (a->next && a->block.runs[a->next - 1].does & STITCH__RUN_INPUTS &&
        a->block.runs[a->next - 1].key == v->hashed_with) {
        memcpy(v->hashes_after, a->hashes + (a->next - 1) * v->count, v->count * sizeof(*v->hashes_after));
        return STITCH_OK;
    }
    return v->candidate.ops->hash(v->candidate.self, &v->scope, v->hashed_with, inputs, v->hashes_after, err);
}

size_t stitch__first_changed(const stitch__verify *v, unsigned roles, const uint64_t *before, const uint64_t *after)
{
    for (size_t i = 0; i < v->count; i++)
        if (roles >> v->infos[i].role & 1 && before[i] != after[i])
            return i;
    return SIZE_MAX;
}

int stitch__find_changed(stitch__verify *v, bool inputs, size_t *changed, stitch_error **err)
{
    int rc = candidate_hashes(v, inputs, err);

    *changed = rc ? SIZE_MAX : stitch__first_changed(v, read_only(inputs), v->hashes, v->hashes_after);
    return rc;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static bool is_next(const stitch__verify *v, const stitch__run *run)
{
    const stitch__block_run *b = next_run(v);

    return run->set == b->run.set && run->poison == b->run.poison && run->skip == b->run.skip &&
           run->moved == b->run.moved &&
           (!b->run.draw || (v->ahead.drawn == b->run.seed && v->ahead.drawn_as == b->variant));
}

/* What the run whose turn it is left when it ended. */
static int take(stitch__verify *v, const CUdeviceptr *into, int *code, stitch_error **why, stitch_error **err)
{
    stitch__ahead *a = &v->ahead;
    const uint64_t *hashes = a->hashes + a->next * v->count;
    const stitch__hash_row row = {v->infos, v->count, into, NULL, 1u << STITCH_TENSOR_OUTPUT, next_run(v)->key, 0};
    int set = STITCH__SETS + (int)a->next,
        rc = v->candidate.ops->fetch(v->candidate.self, &v->scope, set, into, v->stream, err);

    if (!rc)
        rc = stitch__hash_clear(&v->hasher, v->stream, 0, v->count, err);
    if (!rc)
        rc = stitch__hash_tensor_row(&v->hasher, v->stream, &row, err);
    if (!rc)
        rc = stitch__hash_fetch(&v->hasher, v->stream, &v->scope, "taking outputs", v->count, a->own_hashes, err);
    size_t changed = rc ? SIZE_MAX : stitch__first_changed(v, row.roles, hashes, a->own_hashes);
    if (changed != SIZE_MAX)
        *code = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "output %s of a run was written to after it had ended",
                            v->infos[changed].name);
    a->next++;
    return rc;
}

int stitch__candidate_run(stitch__verify *v, const stitch__scope *scope, const stitch__run *run, int times,
                          const CUdeviceptr *into, int *code, stitch_error **why, stitch_error **err)
{
    const stitch__candidate *c = &v->candidate;
    int rc = STITCH_OK;

    *code = STITCH_OK;
    if (stitch__ahead_left(v)) {
        if (times == 1 && is_next(v, run))
            return take(v, into, code, why, err);
        stitch__ahead_drop(v); /* other runs than were foreseen: it has the contents of the last of those */
        rc = c->ops->fill_inputs(c->self, &v->scope, v->ahead.drawn, v->ahead.drawn_as, err);
    }
    for (int i = 0; !rc && !*code && i < times; i++)
        rc = c->ops->run(c->self, scope, run, code, why, err);
    return rc || *code ? rc : c->ops->fetch(c->self, &v->scope, run->set, into, NULL, err);
}
