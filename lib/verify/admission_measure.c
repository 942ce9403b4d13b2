/* SPDX-License-Identifier: MIT
 *
 * Measuring a reference for admission: which contents it is run on, how often, and what is kept of it.
 */
#include "verify/admission.h"

#include <stdio.h>

/* How long a reference that outlives the deadline may still take before its memory is given up. */
#define GRACE_MS 2000
/* Attempts to draw contents that differ from the first ones. */
#define DRAW_TRIES 8
/* More draws where chance may have its hand in it: of one tensor, and in all. */
#define TENSOR_RETRIES 8
#define MOST_RETRIES   16

/* ---- contents ---------------------------------------------------------------------------------------------------- */

/* Fills a tensor for step `step`: as in the first draw, or with seed `other` where it is drawn again. */
static int fill(stitch__admit *s, size_t index, uint64_t other, int step, stitch_error **err)
{
    uint64_t seed = s->infos[index].role == STITCH_TENSOR_WEIGHT ? s->weights_seed : s->base_seed;
    if (s->redrawn[index])
        seed = other;
    if (step && s->infos[index].role == STITCH_TENSOR_INPUT)
        seed = stitch__seed_derive(seed, STITCH__ADMIT_SEED_STEP, (uint64_t)step);
    return stitch__task_fill(s->task, s->dev, s->stream, index, seed, NULL, s->run[index], err);
}

static int fill_role(stitch__admit *s, int role, uint64_t other, int step, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < s->count; i++)
        if (s->infos[i].role == role)
            rc = fill(s, i, other, step, err);
    return rc;
}

/* Hashes of inputs and weights as they are; `only_redrawn`: of those, the others keep the last value. */
static int hash_contents(stitch__admit *s, bool only_redrawn, uint64_t *out, stitch_error **err)
{
    uint64_t seed = stitch__seed_derive(s->a->seed, STITCH__ADMIT_SEED_HASH, 0);
    int rc = stitch__hash_clear(&s->hasher, s->stream, 0, s->count, err);
    for (size_t k = 0; !rc && k < s->a->input_count; k++) {
        size_t i = s->a->inputs[k].tensor;
        if (!only_redrawn || s->redrawn[i])
            rc = stitch__hash_enqueue(&s->hasher, s->stream, s->run[i], 0, s->infos[i].bytes, seed, i, err);
    }
    return rc ? rc
              : stitch__hash_fetch(&s->hasher, s->stream, &s->scope, "hashing inputs and weights", s->count, out, err);
}

/* Finds a seed that gives at least one of the tensors to be drawn again other contents than in the first draw; 0 if
 * there is none among a few. The hashes of that draw are in s->hashes_now. */
static int find_draw(stitch__admit *s, uint64_t *other, stitch_error **err)
{
    int rc = STITCH_OK;
    *other = 0;
    for (int n = 0; !rc && !*other && n < DRAW_TRIES; n++) {
        uint64_t seed = stitch__seed_derive(s->a->seed, STITCH__ADMIT_SEED_OTHER, s->draws++);
        for (size_t i = 0; !rc && i < s->count; i++)
            if (s->redrawn[i])
                rc = fill(s, i, seed, 0, err);
        if (!rc)
            rc = hash_contents(s, true, s->hashes_now, err);
        for (size_t i = 0; !rc && i < s->count; i++)
            if (s->redrawn[i] && s->hashes_now[i] != s->hashes[i])
                *other = seed;
        for (size_t i = 0; i < s->count; i++)
            s->weights_dirty |= s->redrawn[i] && s->infos[i].role == STITCH_TENSOR_WEIGHT;
    }
    return rc;
}

/* ---- running the reference --------------------------------------------------------------------------------------- */

/* The reference is the host's, but a deadline holds for it too; memory that it still uses is not released. */
static int wait_reference(stitch__admit *s, const char *what, stitch_error **err)
{
    int rc = stitch__stream_wait(s->dev, s->stream, &s->scope, what, err);
    int64_t until = stitch__now_ns() + (int64_t)GRACE_MS * 1000000;

    while ((rc == STITCH_E_TIMEOUT || rc == STITCH_E_CANCELLED) && !s->abandoned &&
           s->dev->drv->StreamQuery(s->stream) == CUDA_ERROR_NOT_READY) {
        s->abandoned = stitch__now_ns() > until;
        if (s->abandoned)
            stitch__log(s->ctx, STITCH_LOG_ERROR,
                        "the device still runs the reference of task %s: its memory is given up, and the context may "
                        "block until the process ends",
                        s->task->name);
        else
            stitch__sleep_ms(5);
    }
    return rc;
}

static int prepare(stitch__admit *s, stitch_error **err)
{
    stitch_bound_tensor *bound = stitch__calloc(s->ctx, s->count ? s->count : 1, sizeof(*bound));
    int rc;

    if (!bound)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; i < s->count; i++) {
        bound[i].info = s->infos[i];
        bound[i].ptr = s->run[i];
    }
    rc = stitch__oracle_prepare(s->oracle, s->stream, bound, s->count, err);
    if (!rc)
        rc = wait_reference(s, "preparing the reference", err);
    stitch_free(bound);
    return rc;
}

static int fill_weights(stitch__admit *s, uint64_t other, stitch_error **err)
{
    bool redrawn = false;
    int rc = STITCH_OK;

    for (size_t i = 0; i < s->count; i++)
        redrawn |= s->redrawn[i] && s->infos[i].role == STITCH_TENSOR_WEIGHT;
    if (!redrawn && !s->weights_dirty)
        return STITCH_OK;
    for (size_t i = 0; !rc && i < s->count; i++)
        if (s->infos[i].role == STITCH_TENSOR_WEIGHT && s->drawn[i])
            rc = fill(s, i, other, 0, err);
    s->weights_dirty = redrawn;
    return rc ? rc : prepare(s, err);
}

/* One evaluation, into s->run: tensors that are marked in s->redrawn with the seed `other`, the rest as in the first
 * draw. */
static int evaluate(stitch__admit *s, uint64_t other, int poison, stitch_error **err)
{
    int rc = stitch__scope_check(&s->scope, "running the reference", err);

    if (!rc)
        rc = fill_weights(s, other, err);
    if (!rc)
        rc = fill_role(s, STITCH_TENSOR_STATE, 0, 0, err); /* zeros */
    for (int step = 0; !rc && step < s->a->steps; step++) {
        rc = fill_role(s, STITCH_TENSOR_INPUT, other, step, err);
        for (size_t k = 0; !rc && k < s->a->output_count; k++) {
            const stitch__admission_output *o = &s->a->outputs[k];
            rc = stitch__cu_checkf(s->dev,
                                   s->dev->drv->MemsetD8Async(s->run[o->tensor], (unsigned char)poison,
                                                              (size_t)stitch__admit_want_bytes(o), s->stream),
                                   err, "filling output %s", o->name);
        }
        if (!rc)
            rc = stitch__oracle_run(s->oracle, s->stream, err);
        if (!rc)
            rc = wait_reference(s, "running the reference", err);
    }
    s->a->runs++;
    return rc;
}

static int keep(stitch__admit *s, CUdeviceptr *to, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t k = 0; !rc && k < s->a->output_count; k++) {
        const stitch__admission_output *o = &s->a->outputs[k];
        rc = stitch__cu_checkf(s->dev,
                               s->dev->drv->MemcpyDtoDAsync(to[o->tensor], s->run[o->tensor],
                                                            (size_t)stitch__admit_want_bytes(o), s->stream),
                               err, "copying output %s", o->name);
    }
    return rc;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

static void mark(stitch__admit *s, int role)
{
    for (size_t i = 0; i < s->count; i++)
        s->redrawn[i] = s->drawn[i] && s->infos[i].role == role;
}

static void unmark(stitch__admit *s)
{
    memset(s->redrawn, 0, s->count * sizeof(*s->redrawn));
}

/* The first draw, twice: is the reference the same both times, and does it write everything? */
static int measure_repeat(stitch__admit *s, stitch_error **err)
{
    int rc = fill_role(s, STITCH_TENSOR_WEIGHT, 0, 0, err);

    if (!rc)
        rc = fill_role(s, STITCH_TENSOR_INPUT, 0, 0, err);
    if (!rc)
        rc = hash_contents(s, false, s->hashes, err);
    if (!rc)
        rc = prepare(s, err);
    if (!rc)
        rc = evaluate(s, 0, STITCH__POISON_A, err);
    if (!rc)
        rc = keep(s, s->first, err);
    if (!rc)
        rc = evaluate(s, 0, STITCH__POISON_B, err);
    for (size_t k = 0; !rc && k < s->a->output_count; k++) {
        stitch__admission_output *o = &s->a->outputs[k];
        CUdeviceptr first = s->first[o->tensor], again = s->run[o->tensor];
        const stitch__compared what = {o->name,     first,         again,
                                       again,       o->want_dtype, o->want_dtype,
                                       o->elements, s->a->atol,    stitch__dtype_rtol(o->dtype, s->a->rtol)};
        rc = stitch__compare(&s->comparator, s->stream, &s->scope, &what, &o->repeat, err);
    }
    return rc;
}

/* Two other draws, of the inputs or, where those are fixed, of the weights. */
static int measure_spread(stitch__admit *s, stitch_error **err)
{
    static const struct {
        int role;
        const char *name;
    } kinds[] = {{STITCH_TENSOR_INPUT, "inputs"}, {STITCH_TENSOR_WEIGHT, "weights"}};
    uint64_t second = 0, third = 0;
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && !second && i < STITCH__COUNT(kinds); i++) {
        mark(s, kinds[i].role);
        rc = find_draw(s, &second, err);
        s->a->redrawn = second ? kinds[i].name : "nothing";
    }
    if (!rc && second) {
        rc = evaluate(s, second, STITCH__POISON_A, err);
        if (!rc)
            rc = keep(s, s->other, err);
        if (!rc)
            rc = find_draw(s, &third, err);
        /* Where chance has little to choose from (one coin), the third draw may have to be the second one again. */
        if (!rc)
            rc = evaluate(s, third ? third : second, STITCH__POISON_A, err);
        s->a->draws = 3;
    }
    for (size_t k = 0; !rc && second && k < s->a->output_count; k++)
        rc = stitch__admit_spread(s, &s->a->outputs[k], err);
    unmark(s);
    return rc;
}

/* Compares what the evaluation gave with the first draw; every tensor with other contents gets the counts. */
static int take_changes(stitch__admit *s, bool *matters, stitch_error **err)
{
    size_t count = s->a->output_count;
    uint64_t *changed = stitch__calloc(s->ctx, count ? count : 1, sizeof(*changed));
    stitch__comparison c;
    int rc = changed ? STITCH_OK : stitch__err_nomem(s->ctx, err);

    *matters = false;
    for (size_t k = 0; !rc && k < count; k++) {
        stitch__admission_output *o = &s->a->outputs[k];
        const stitch__compared what = {o->name,
                                       s->run[o->tensor],
                                       0,
                                       s->first[o->tensor],
                                       o->want_dtype,
                                       o->want_dtype,
                                       o->elements,
                                       s->a->atol,
                                       stitch__dtype_rtol(o->dtype, s->a->rtol)};
        rc = stitch__compare(&s->comparator, s->stream, &s->scope, &what, &c, err);
        if (!rc)
            changed[k] = c.mismatches;
        *matters |= !rc && c.mismatches > 0;
    }
    for (size_t k = 0; !rc && k < s->a->input_count; k++) {
        stitch__admission_input *in = &s->a->inputs[k];
        if (!s->redrawn[in->tensor] || in->redraw == STITCH__REDRAW_SAME)
            continue;
        if (!in->changed)
            in->changed = stitch__calloc(s->ctx, count, sizeof(*changed));
        if (!in->changed)
            rc = stitch__err_nomem(s->ctx, err);
        else
            memcpy(in->changed, changed, count * sizeof(*changed));
        in->matters = *matters;
        in->times++;
    }
    stitch_free(changed);
    return rc;
}

/* Which of the tensors to be drawn again got other contents. */
static void take_redraws(stitch__admit *s, bool found)
{
    size_t group = 0;
    for (size_t i = 0; i < s->count; i++)
        group += s->redrawn[i] && found && s->hashes_now[i] != s->hashes[i];
    for (size_t k = 0; k < s->a->input_count; k++) {
        stitch__admission_input *in = &s->a->inputs[k];
        bool differs = found && s->hashes_now[in->tensor] != s->hashes[in->tensor];
        if (s->redrawn[in->tensor] && differs)
            in->redraw = group > 1 ? STITCH__REDRAW_TOGETHER : STITCH__REDRAW_ALONE;
        else if (s->redrawn[in->tensor] && in->redraw == STITCH__REDRAW_LEFT_OUT)
            in->redraw = STITCH__REDRAW_SAME;
    }
}

/* Draws the marked tensors again, all others kept. */
static int measure_group(stitch__admit *s, stitch_error **err)
{
    bool by_chance = stitch__admission_by_chance(s->a), matters = false, again;
    uint64_t other = 0;
    int rc, times = 0;

    do {
        rc = find_draw(s, &other, err);
        if (!rc)
            take_redraws(s, other != 0);
        if (!rc && other)
            rc = evaluate(s, other, STITCH__POISON_A, err);
        if (!rc && other)
            rc = take_changes(s, &matters, err);
        again = !rc && other && !matters && by_chance && s->retries > 0 && times++ < TENSOR_RETRIES;
        s->retries -= again;
        s->retried += again;
    } while (again);
    unmark(s);
    return rc;
}

/* One by one as far as runs are left; the weights in as many groups. */
static int measure_role(stitch__admit *s, int role, stitch_error **err)
{
    size_t total = 0, done = 0;
    int left = s->a->max_runs - (s->a->runs - s->retried), rc = STITCH_OK;

    for (size_t i = 0; i < s->count; i++)
        total += s->infos[i].role == role && s->drawn[i];
    size_t groups = left < 0 ? 0 : total < (size_t)left ? total : (size_t)left;
    for (size_t i = 0, group = 0; !rc && groups && i < s->count; i++) {
        if (s->infos[i].role != role || !s->drawn[i])
            continue;
        s->redrawn[i] = true;
        /* The group ends where the next tensor's share of the whole belongs to the next one. */
        done++;
        if (done * groups / total > group) {
            group = done * groups / total;
            rc = measure_group(s, err);
        }
    }
    unmark(s);
    return rc;
}

/* An answer passes; free_only: one that costs nothing. */
static bool something_passes(const stitch_admission *a, bool free_only)
{
    for (size_t k = 0; k < a->output_count; k++)
        for (size_t i = 0; i < a->outputs[k].answer_count; i++) {
            const stitch__answer *r = &a->outputs[k].answers[i];
            if (stitch__answer_passes(r) && (!free_only || stitch__answer_is_free(r->kind)))
                return true;
        }
    return false;
}

static bool something_moves(const stitch_admission *a)
{
    for (size_t k = 0; k < a->output_count; k++)
        if (a->outputs[k].spread.over_factor)
            return true;
    return false;
}

/* How many more draws are to be asked: none if nothing looks degenerate; many if it may do so by chance. */
static int doubts(const stitch_admission *a)
{
    bool still = !something_moves(a);
    if (a->draws < 2 || (!still && !something_passes(a, false)))
        return 0;
    return stitch__admission_by_chance(a) && (still || something_passes(a, true)) ? MOST_RETRIES : 2;
}

/* One more draw: what passed or stood still so far has to do so again. s->first becomes this draw. */
static int ask_again(stitch__admit *s, uint64_t other, stitch_error **err)
{
    int rc = evaluate(s, other, STITCH__POISON_A, err);

    for (size_t k = 0; !rc && k < s->a->output_count; k++) {
        stitch__admission_output *o = &s->a->outputs[k];
        stitch__spread before = o->spread;
        memset(&o->spread, 0, sizeof(o->spread));
        rc = stitch__admit_spread(s, o, err);
        if (o->spread.over_factor <= before.over_factor)
            o->spread = before;
    }
    if (!rc)
        rc = keep(s, s->first, err);
    for (size_t k = 0; !rc && k < s->a->output_count; k++)
        rc = stitch__admit_confirm(s, &s->a->outputs[k], err);
    return rc;
}

static int measure_doubts(stitch__admit *s, stitch_error **err)
{
    int role = strcmp(s->a->redrawn, "weights") == 0 ? STITCH_TENSOR_WEIGHT : STITCH_TENSOR_INPUT, rc = STITCH_OK;

    for (int n = 0; !rc && n < doubts(s->a); n++) {
        uint64_t other = 0;
        mark(s, role);
        rc = find_draw(s, &other, err);
        if (rc || !other)
            break;
        rc = ask_again(s, other, err);
    }
    unmark(s);
    return rc;
}

int stitch__admit_measure(stitch__admit *s, stitch_error **err)
{
    int rc = measure_repeat(s, err);

    s->retries = MOST_RETRIES;
    if (!rc)
        rc = measure_spread(s, err);
    /* The inputs must be those of the first draw (tasks with states: of the last step). */
    if (!rc)
        rc = fill_role(s, STITCH_TENSOR_INPUT, 0, s->a->steps - 1, err);
    for (size_t k = 0; !rc && k < s->a->output_count; k++)
        rc = stitch__admit_answers(s, &s->a->outputs[k], err);
    if (!rc)
        rc = measure_role(s, STITCH_TENSOR_INPUT, err);
    if (!rc)
        rc = measure_role(s, STITCH_TENSOR_WEIGHT, err);
    return rc ? rc : measure_doubts(s, err);
}
