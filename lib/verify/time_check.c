/* SPDX-License-Identifier: MIT
 *
 * Whether timed runs left the right outputs, and left them when they ended.
 */
#include "verify/timing.h"

#define OTHERS_EVERY 10 /* checked iterations: then baselines are checked, too */

/* What a run left is what it left when it ended: no later run of the block has written to it. */
static int same_hashes(stitch__timer *t, stitch__side *s, size_t k, bool *same, stitch_error **err)
{
    stitch__verify *v = t->v;
    const uint64_t *hashes = s->hashes + k * v->count;
    int rc = stitch__hash_fetch(&v->hasher, v->stream, &v->scope, "hashing outputs", v->hashes_after, err);

    *same = true;
    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == STITCH_TENSOR_OUTPUT)
            *same = *same && hashes[i] == v->hashes_after[i];
    return rc;
}

static const stitch__trial_output *first_wrong(const stitch__timer *t)
{
    return stitch__first_wrong(t->outputs, stitch__output_count(t->v));
}

/* The outputs of run k of a block against the reference, which has just run on its inputs. *kept: see above. */
static int check_run(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, bool *kept,
                     stitch_error **err)
{
    stitch__verify *v = t->v;
    int set = b->count > 1 ? STITCH__SETS + (int)k : 0;
    bool good = true;
    int rc = s->oracle ? STITCH_OK : s->program.ops->fetch(s->program.self, &v->scope, set, s->set, v->stream, err);

    *kept = true;
    if (!rc && b->count > 1)
        rc = stitch__hash_roles(&v->hasher, v->stream, v->infos, v->count, s->set, 1u << STITCH_TENSOR_OUTPUT,
                                b->keys[k], err);
    if (!rc)
        rc = stitch__compare_set(v, s->set, s->oracle, NULL, t->outputs, err);
    if (!rc && b->count > 1)
        rc = same_hashes(t, s, k, kept, err);
    if (!rc)
        good = !first_wrong(t);
    if (!rc && !good && s->candidate) {
        rc = stitch__budget_apply(v, t->outputs, err);
        good = !first_wrong(t);
    }
    for (size_t i = 0; !rc && i < stitch__output_count(v); i++) {
        const stitch__comparison *c = &t->outputs[i].c;
        s->timing->max_abs = c->max_abs > s->timing->max_abs ? c->max_abs : s->timing->max_abs;
        s->timing->max_rel = c->max_rel > s->timing->max_rel ? c->max_rel : s->timing->max_rel;
        s->timing->mismatches += c->mismatches;
    }
    s->timing->checks++;
    s->timing->checks_passed += good && *kept;
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

/* Draws the inputs here as well: a side in a worker has its own, and until now nothing else ran on the device. Nobody
 * waits for it before the comparison does. */
static int run_reference(stitch__verify *v, uint64_t seed, stitch_error **err)
{
    int rc = stitch__fill_inputs(v, seed, NULL, err);
    if (!rc)
        rc = stitch__clear_states(v, v->want, err);
    return rc ? rc : stitch__oracle_run(v->oracle, v->stream, err);
}

/* What a checked run of a side made. */
static int check_side(stitch__timer *t, stitch__side *s, const stitch__block *b, size_t k, int *code,
                      stitch_error **why, stitch_error **err)
{
    size_t i = b->first + k;
    bool kept;
    int rc;

    if (!s->candidate) {
        stitch_error *baseline_why = NULL;
        rc = check_run(t, s, b, k, &kept, &baseline_why);
        return stitch__side_ended(t->v, s, rc, STITCH_OK, &baseline_why, err);
    }
    rc = check_run(t, s, b, k, &kept, err);
    if (rc || s->timing->checks == s->timing->checks_passed)
        return rc;
    *code = kept ? wrong_run(t, i, why)
                 : stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                               "the outputs of timed run %zu were written to after it had ended", i + 1);
    return STITCH_OK;
}

int stitch__block_check(stitch__timer *t, const stitch__block *b, size_t sides, int *code, stitch_error **why,
                        stitch_error **err)
{
    stitch__verify *v = t->v;
    size_t total = (size_t)v->options.iterations;
    size_t secret = (size_t)(stitch__seed_derive(v->options.seed, STITCH__SEED_CHECK, 0) % total);
    int64_t began = stitch__now_ns();
    int rc = STITCH_OK;

    for (size_t k = 0; !rc && !*code && k < b->count; k++) {
        size_t i = b->first + k;
        if (!b->check && i && i != secret && !(b->last && k + 1 == b->count))
            continue;
        rc = run_reference(v, stitch__timer_seed(t, i), err);
        for (size_t n = 0; !rc && !*code && n < sides; n++)
            if (!t->sides[n].broken && (n == 0 || i % OTHERS_EVERY == 0 || (b->last && k + 1 == b->count)))
                rc = check_side(t, &t->sides[n], b, k, code, why, err);
    }
    t->checking_ns += stitch__now_ns() - began;
    return rc;
}
