/* SPDX-License-Identifier: MIT
 *
 * Whether timed runs left the right outputs, and left them when they ended.
 */
#include "verify/timing.h"

#define OTHERS_EVERY 10 /* checked iterations: then baselines are checked, too */
#define GROUPS       8

static const stitch__trial_output *first_wrong(const stitch__timer *t)
{
    return stitch__first_wrong(t->outputs, stitch__output_count(t->v));
}

/* Draws the inputs here as well: a side in a worker has its own, and until now nothing else ran on the device. Nobody
 * waits for it before the comparison does. */
static int run_reference(stitch__timer *t, size_t iteration, stitch_error **err)
{
    stitch__verify *v = t->v;
    uint64_t seed = stitch__timer_seed(t, iteration);
    int rc = stitch__clear_states(v, v->want, err);
    if (!rc && v->has_states) /* the step before the one that was timed */
        rc = stitch__fill_inputs(v, stitch__seed_before(seed), NULL, err);
    if (!rc && v->has_states)
        rc = stitch__oracle_run(v->oracle, v->stream, err);
    if (!rc)
        rc = stitch__fill_inputs(v, seed, NULL, err);
    return rc ? rc : stitch__oracle_run(v->oracle, v->stream, err);
}

/* Brings the outputs of run k of a block. */
static int fetch(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, stitch_error **err)
{
    int set = b->count > 1 ? STITCH__SETS + (int)k : 0;
    if (s->oracle || s->taken)
        return STITCH_OK;
    return s->program.ops->fetch(s->program.self, &t->v->scope, set, s->set, t->v->stream, err);
}

int stitch__side_take(stitch__timer *t, stitch__side *s, const stitch__block *b, stitch_error **err)
{
    stitch__verify *v = t->v;
    bool shared = v->worker && !stitch__worker_unshared(v->worker) && t->side_count > 1 && t->sides[1].worker;
    int rc;

    s->taken = false;
    if (!shared || b->count > 1 || (s != &t->sides[0] && s != &t->sides[1]))
        return STITCH_OK;
    rc = s->program.ops->fetch(s->program.self, &v->scope, 0, s->set, NULL, err); /* and waits for it */
    s->taken = !rc;
    return rc;
}

/* t->outputs are the comparison of a run's outputs with the reference. */
static void record(stitch__timer *t, stitch__side *s, bool passed)
{
    for (size_t i = 0; i < stitch__output_count(t->v); i++) {
        const stitch__comparison *c = &t->outputs[i].c;
        s->timing->max_abs = c->max_abs > s->timing->max_abs ? c->max_abs : s->timing->max_abs;
        s->timing->max_rel = c->max_rel > s->timing->max_rel ? c->max_rel : s->timing->max_rel;
        s->timing->mismatches += c->mismatches;
    }
    s->timing->checks++;
    s->timing->checks_passed += passed;
}

/* What a run left is what it left when it ended: no later run of the block has written to it. Row `row` of t->hashes is
 * of what was fetched. */
static bool same_hashes(const stitch__timer *t, const stitch__side *s, size_t k, size_t row)
{
    size_t count = t->v->count;
    return stitch__first_changed(t->v, 1u << STITCH_TENSOR_OUTPUT, s->hashes + k * count, t->hashes + row * count) ==
           SIZE_MAX;
}

/* Into places that are clear. */
static int enqueue_hashes(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, size_t row,
                          stitch_error **err)
{
    stitch__verify *v = t->v;
    const stitch__hash_row what = {v->infos,   v->count,      s->set, NULL, 1u << STITCH_TENSOR_OUTPUT,
                                   b->keys[k], row * v->count};
    return stitch__hash_tensor_row(&v->hasher, v->stream, &what, err);
}

static int clear_hashes(stitch__timer *t, size_t rows, stitch_error **err)
{
    stitch__verify *v = t->v;
    return stitch__hash_clear(&v->hasher, v->stream, 0, rows * v->count, err);
}

static int fetch_hashes(stitch__timer *t, size_t rows, stitch_error **err)
{
    stitch__verify *v = t->v;
    return stitch__hash_fetch(&v->hasher, v->stream, &v->scope, "checking timed runs", rows * v->count, t->hashes, err);
}

/* The outputs of run k of a block against the reference, which has just run on its inputs; with all that a wrong one
 * deserves. */
static int check_alone(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, bool *kept,
                       stitch_error **err)
{
    stitch__verify *v = t->v;
    int rc = fetch(t, s, b, k, err);

    *kept = true;
    if (!rc && b->count > 1) {
        rc = clear_hashes(t, 1, err);
        if (!rc)
            rc = enqueue_hashes(t, s, b, k, 0, err);
        if (!rc)
            rc = fetch_hashes(t, 1, err);
        *kept = rc || same_hashes(t, s, k, 0);
    }
    if (!rc)
        rc = stitch__compare_set(v, s->set, s->oracle, NULL, t->outputs, err);
    if (!rc && first_wrong(t) && s->candidate)
        rc = stitch__budget_apply(v, t->outputs, err);
    if (!rc)
        record(t, s, *kept && !first_wrong(t));
    return rc;
}

/* A checked run of the candidate was wrong: the stage fails, with what was wrong. */
static int wrong_run(stitch__timer *t, size_t iteration, stitch_error **why)
{
    stitch__verify *v = t->v;
    stitch__buf b;
    char *text;
    int rc;

    stitch__buf_init(&b, v->ctx);
    stitch__describe_comparison(&b, v->report, first_wrong(t));
    text = stitch__buf_take(&b, NULL);
    if (!text)
        return stitch__err_nomem(v->ctx, why);
    rc = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "right in the trials, but wrong in timed run %zu: %s",
                     iteration + 1, text);
    stitch_free(text);
    return rc;
}

/* How something that was done with a side ended: what goes wrong with a baseline is not the candidate's. */
static int ended(stitch__timer *t, stitch__side *s, int rc, stitch_error **why, stitch_error **err)
{
    if (!s->candidate)
        return stitch__side_ended(t->v, s, rc, STITCH_OK, why, err);
    if (rc)
        stitch__err_hand_on(err, why);
    return rc;
}

static int changed_run(stitch__timer *t, size_t iteration, stitch_error **why)
{
    return stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                       "the outputs of timed run %zu were written to after it had ended", iteration + 1);
}

static int check_one(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, int *code, stitch_error **why,
                     stitch_error **err)
{
    stitch_error *trouble = NULL;
    bool kept = true;
    int before = s->timing->checks_passed, rc = check_alone(t, s, b, k, &kept, &trouble);

    rc = ended(t, s, rc, &trouble, err);
    if (!rc && s->candidate && s->timing->checks_passed == before)
        *code = kept ? wrong_run(t, b->first + k, why) : changed_run(t, b->first + k, why);
    return rc;
}

/* ---- several runs at once ---------------------------------------------------------------------------------------- */

/* Runs whose comparisons have been enqueued, each with a row of hashes and of results. */
typedef struct batch {
    size_t count;
    struct {
        stitch__side *side;
        size_t k;
    } rows[STITCH__ROWS];
} batch;

static int enqueue(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, size_t row, stitch_error **err)
{
    int rc = fetch(t, s, b, k, err);

    if (!rc)
        rc = enqueue_hashes(t, s, b, k, row, err);
    return rc ? rc : stitch__compare_set_enqueue(t->v, s->set, s->oracle, row, err);
}

static void take_row(stitch__timer *t, size_t row)
{
    const stitch__verify *v = t->v;
    const stitch__comparison *from = t->compared + row * stitch__output_count(v);

    for (size_t i = 0, k = 0; i < v->count; i++) {
        if (v->infos[i].role == STITCH_TENSOR_OUTPUT) {
            t->outputs[k] = (stitch__trial_output){.tensor = i, .c = from[k]};
            k++;
        }
    }
}

/* One wait for all of them. Those that are not simply right are looked at again, alone. */
static int conclude(stitch__timer *t, batch *checks, const stitch__block *b, int *code, stitch_error **why,
                    stitch_error **err)
{
    int rc = fetch_hashes(t, checks->count, err);

    if (!rc)
        rc = stitch__compare_rows(t->v, checks->count, t->compared, err);
    for (size_t row = 0; !rc && !*code && row < checks->count; row++) {
        stitch__side *s = checks->rows[row].side;
        size_t k = checks->rows[row].k;
        if (s->broken)
            continue;
        take_row(t, row);
        if (!same_hashes(t, s, k, row)) {
            record(t, s, false);
            if (s->candidate)
                *code = changed_run(t, b->first + k, why);
        } else if (!first_wrong(t)) {
            record(t, s, true);
        } else {
            rc = run_reference(t, b->first + k, err);
            if (!rc)
                rc = check_one(t, s, b, k, code, why, err);
        }
    }
    checks->count = 0;
    return rc;
}

/* Run k of a side, whose inputs the reference has been run on: with others, or now where it is alone or there is no
 * room for it beside them. */
static int check(stitch__timer *t, batch *checks, stitch__side *s, const stitch__block *b, size_t k, int *code,
                 stitch_error **why, stitch_error **err)
{
    stitch_error *trouble = NULL;
    int rc;

    if (b->count == 1 || checks->count == STITCH__ROWS)
        return check_one(t, s, b, k, code, why, err);
    rc = checks->count ? STITCH_OK : clear_hashes(t, STITCH__ROWS, err);
    if (!rc)
        rc = ended(t, s, enqueue(t, s, b, k, checks->count, &trouble), &trouble, err);
    if (rc || s->broken)
        return rc;
    checks->rows[checks->count].side = s;
    checks->rows[checks->count++].k = k;
    return STITCH_OK;
}

/* One run in each of GROUPS parts of those that were asked for, which nobody can know beforehand: a program that is
 * wrong in as many as it takes to change the median gets through one in hundreds of times. */
static bool is_secret(const stitch__timer *t, size_t i)
{
    size_t total = (size_t)t->v->options.iterations, part = (total + GROUPS - 1) / GROUPS;

    return i % part == stitch__seed_derive(t->v->options.seed, STITCH__SEED_CHECK, i / part) % part;
}

int stitch__look_around(stitch__timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    size_t changed;
    int rc = stitch__find_changed(v, false, &changed, err);

    if (!rc && changed != SIZE_MAX)
        *code = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "the program changed its weight %s while it was timed",
                            v->infos[changed].name);
    return rc || *code ? rc : v->candidate.ops->inspect(v->candidate.self, &v->scope, code, why, err);
}

int stitch__block_check(stitch__timer *t, const stitch__block *b, size_t sides, int *code, stitch_error **why,
                        stitch_error **err)
{
    const stitch__verify *v = t->v;
    int64_t began = stitch__now_ns();
    batch checks = {.count = 0};
    bool secret = false;
    int rc = STITCH_OK;

    for (size_t k = 0; !rc && !*code && k < b->count; k++) {
        size_t i = b->first + k;
        secret |= is_secret(t, i);
        if (!b->check && i && !is_secret(t, i) && !(b->last && k + 1 == b->count))
            continue;
        if (checks.count + sides > STITCH__ROWS)
            rc = conclude(t, &checks, b, code, why, err);
        if (!rc && !*code)
            rc = run_reference(t, i, err);
        for (size_t n = 0; !rc && !*code && n < sides; n++)
            if (!t->sides[n].broken && (n == 0 || i % OTHERS_EVERY == 0 || (b->last && k + 1 == b->count)))
                rc = check(t, &checks, &t->sides[n], b, k, code, why, err);
    }
    if (!rc && !*code && checks.count)
        rc = conclude(t, &checks, b, code, why, err);
    /* Where there are inputs that never change, an answer could be kept in memory that is looked at, and what was there
     * put back before the end. */
    if (!rc && !*code && secret && stitch__task_has_fixed(v->task))
        rc = stitch__look_around(t, code, why, err);
    t->checking_ns += stitch__now_ns() - began;
    return rc;
}
