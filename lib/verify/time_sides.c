/* SPDX-License-Identifier: MIT
 *
 * What stage time measures: the candidate and the task's baselines, opened, warmed up, run between events.
 */
#include "verify/timing.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int add_name(stitch__verify *v, stitch__timing *t, const char *name, int precision, stitch_error **err)
{
    t->precision = precision;
    return stitch__report_set(v->report, &t->name, name, 255, err);
}

/* A baseline that cannot be measured is said so and left out: it is not the candidate's fault. What it had measured
 * before does not count. In a worker it can lose that one only, not this process's context. */
static int drop_baseline(stitch__verify *v, stitch__side *s, int rc, stitch_error **why, stitch_error **err)
{
    bool lost = (rc == STITCH_E_FAULT && !s->worker) || rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT;
    s->broken = true;
    if (lost) {
        stitch__err_hand_on(err, why);
        return rc;
    }
    s->timing->count = 0;
    s->timing->checks = s->timing->checks_passed = 0;
    s->timing->max_abs = s->timing->max_rel = 0;
    s->timing->mismatches = 0;
    rc = stitch__report_note(v->report, err, "baseline %s could not be measured: %s", s->timing->name,
                             *why ? stitch_error_message(*why) : stitch_status_text(rc));
    stitch_error_free(*why);
    *why = NULL;
    return rc;
}

/* How something that was done with a baseline ended: `code` is the program's failure, `rc` any other one; *why, which
 * is used up, has the error of either. One whose worker is gone cannot be measured, whenever that shows. */
int stitch__side_ended(stitch__verify *v, stitch__side *s, int rc, int code, stitch_error **why, stitch_error **err)
{
    bool gone = rc && s->worker && stitch__worker_lost(s->worker) && rc != STITCH_E_CANCELLED && rc != STITCH_E_TIMEOUT;

    if (!rc && !code) {
        stitch_error_free(*why);
        return STITCH_OK;
    }
    if (rc && !gone) {
        stitch__err_hand_on(err, why);
        return rc;
    }
    return drop_baseline(v, s, rc ? rc : code, why, err);
}

static int open_in_worker(stitch__timer *t, stitch__side *s, const stitch__compute *what, stitch_error **why)
{
    stitch__verify *v = t->v;
    int rc = stitch__baseline_open(v, what, s == &t->sides[1], &s->worker, &s->program, why);

    return rc ? rc : stitch__set_make(v, NULL, " (baseline)", &s->set, why);
}

static int open_baseline(stitch__timer *t, stitch__side *s, const stitch__compute *what, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_error *why = NULL;
    int rc;

    if (v->worker && stitch__baseline_apart(v, what)) {
        rc = open_in_worker(t, s, what, &why);
        return rc ? drop_baseline(v, s, rc, &why, err) : STITCH_OK;
    }
    rc = stitch__oracle_open(v->task, what, v->dev, v->options.ops, v->options.op_count, &s->oracle, &why);

    if (!rc)
        rc = stitch__set_make(v, s->oracle, " (baseline)", &s->set, &why);
    if (!rc)
        rc = stitch__set_bound(v, s->oracle, s->set, &why);
    return rc ? drop_baseline(v, s, rc, &why, err) : STITCH_OK;
}

static int open_sides(stitch__timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_report *r = v->report;
    size_t declared = v->task->baseline_count, count = declared ? declared : 1;
    bool recorded = !declared && v->task->reference.kind == STITCH__COMPUTE_TENSORS;
    int rc;

    t->sides = stitch__calloc(v->ctx, 1 + count, sizeof(*t->sides));
    t->outputs = stitch__calloc(v->ctx, stitch__output_count(v), sizeof(*t->outputs));
    t->compared = stitch__calloc(v->ctx, STITCH__ROWS * stitch__output_count(v) + 1, sizeof(*t->compared));
    t->hashes = stitch__calloc(v->ctx, STITCH__ROWS * v->count + 1, sizeof(*t->hashes));
    r->baselines = stitch__calloc(v->ctx, count, sizeof(*r->baselines));
    if (!t->sides || !t->outputs || !t->compared || !t->hashes || !r->baselines)
        return stitch__err_nomem(v->ctx, err);
    t->side_count = 1;
    t->sides[0] = (stitch__side){.timing = &r->candidate, .set = v->first, .program = v->candidate, .candidate = true};
    rc = add_name(v, &r->candidate, "candidate", v->task->precision, err);
    if (!rc && recorded) /* reading tensors from a file is nothing to be faster than */
        return stitch__report_note(r, err, "the task has no baseline, so that there is no speed-up");
    for (size_t i = 0; !rc && i < count; i++) {
        const stitch__compute *what = declared ? &v->task->baselines[i] : &v->task->reference;
        stitch__side *s = &t->sides[t->side_count++];
        s->timing = &r->baselines[r->baseline_count++];
        snprintf(s->timing->hash, sizeof(s->timing->hash), "%s",
                 what->program ? stitch_program_hash(what->program) : "");
        rc = add_name(v, s->timing, declared ? what->name : "the reference", declared ? what->precision : -1, err);
        if (!rc)
            rc = open_baseline(t, s, what, err);
    }
    return rc;
}

int stitch__side_room(stitch__timer *t, stitch__side *s, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_error *why = NULL;
    int rc;

    if (s->oracle || s->broken)
        return STITCH_OK;
    if (s->candidate) {
        rc = stitch__own_room(v, err);
        s->kept = v->room;
    } else {
        rc = stitch__candidate_room(v, &s->program, &s->kept, &why);
        rc = stitch__side_ended(v, s, rc, STITCH_OK, &why, err);
    }
    if (rc || !s->kept)
        return rc;
    s->hashes = stitch__calloc(v->ctx, (size_t)s->kept * v->count + 1, sizeof(*s->hashes));
    return s->hashes ? STITCH_OK : stitch__err_nomem(v->ctx, err);
}

static bool inputs_small(const stitch__verify *v)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < v->count; i++)
        bytes += v->infos[i].role == STITCH_TENSOR_INPUT ? v->infos[i].bytes : 0;
    return bytes <= STITCH__KEPT_BYTES;
}

int stitch__timer_open(stitch__timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__device *dev = v->dev;
    int rc = open_sides(t, err);

    if (rc)
        return rc;
    STITCH__CU(dev->drv->EventCreate(&t->start, CU_EVENT_DEFAULT));
    STITCH__CU(dev->drv->EventCreate(&t->stop, CU_EVENT_DEFAULT));
    t->can_move = inputs_small(v);
    t->flush_bytes = v->options.flush_bytes;
    if (t->flush_bytes == 0)
        t->flush_bytes = stitch__flush_bytes(dev);
    if (t->flush_bytes == UINT64_MAX)
        t->flush_bytes = 0;
    if (t->flush_bytes)
        rc = stitch__mem_alloc(dev, (size_t)t->flush_bytes, "cache flush", &t->flush, err);
    v->report->flush_bytes = t->flush_bytes;
    v->report->warmup = v->options.warmup;
out:
    return rc;
}

void stitch__timer_close(stitch__timer *t)
{
    stitch__verify *v = t->v;
    if (!stitch__abandoned(v)) {
        for (size_t i = 1; i < t->side_count; i++) {
            stitch__side *s = &t->sides[i];
            stitch__oracle_close(s->oracle);
            if (s->program.ops)
                s->program.ops->close(s->program.self);
            stitch__worker_release(s->worker, true);
            stitch__set_free(v, s->set);
        }
        if (t->start)
            v->dev->drv->EventDestroy(t->start);
        if (t->stop)
            v->dev->drv->EventDestroy(t->stop);
        stitch__mem_free(v->dev, t->flush);
    }
    for (size_t i = 0; i < t->side_count; i++) {
        stitch_free(t->sides[i].hashes);
        stitch_free(t->sides[i].least_us);
    }
    stitch_free(t->sides);
    stitch_free(t->outputs);
    stitch_free(t->compared);
    stitch_free(t->hashes);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int wait_baseline(stitch__timer *t, int *code, stitch_error **why)
{
    stitch__verify *v = t->v;
    if (!*code)
        *code = stitch__stream_wait(v->dev, v->stream, &v->scope, "timing a baseline", why);
    return *code;
}

/* As few calls as there can be. */
static int warm_up_program(stitch__timer *t, const stitch__candidate *c, int *code, stitch_error **why,
                           stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__run_block block = {.count = 0};
    stitch__took took[STITCH__BLOCK];
    int rc = STITCH_OK;

    for (uint32_t k = 0; k < STITCH__BLOCK; k++)
        block.runs[k].run = (stitch__run)STITCH__RUN_INIT;
    for (int left = v->options.warmup; !rc && !*code && left > 0; left -= (int)block.count) {
        block.count = !c->ops->run_block ? 1 : left < STITCH__BLOCK ? (uint32_t)left : STITCH__BLOCK;
        rc = c->ops->run_block ? c->ops->run_block(c->self, &v->scope, &block, took, t->hashes, code, why, err)
                               : c->ops->run(c->self, &v->scope, &block.runs[0].run, code, why, err);
    }
    return rc;
}

int stitch__side_warm_up(stitch__timer *t, stitch__side *s, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;

    if (!s->oracle) {
        /* Warm-up draws no inputs, and the candidate, which reaches these, has just run. */
        uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0);
        int rc = s->candidate ? STITCH_OK : s->program.ops->fill_inputs(s->program.self, &v->scope, seed, NULL, err);
        return rc ? rc : warm_up_program(t, &s->program, code, why, err);
    }
    for (int i = 0; !*code && i < v->options.warmup; i++) {
        *code = stitch__oracle_run(s->oracle, v->stream, why);
        wait_baseline(t, code, why);
    }
    return STITCH_OK;
}

/* One run of a baseline, measured as the runner measures the candidate. */
static int time_baseline(stitch__timer *t, stitch__side *s, uint64_t seed, double *us, int *code, stitch_error **why,
                         stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__device *dev = v->dev;
    float ms = 0;
    bool more = false;
    int rc = stitch__clear_states(v, s->set, err);

    if (!rc && v->has_states) /* as the runner does */
        rc = stitch__fill_inputs(v, stitch__seed_before(seed), NULL, err);
    if (!rc && v->has_states) {
        *code = stitch__oracle_run(s->oracle, v->stream, why);
        if (wait_baseline(t, code, why))
            return STITCH_OK;
    }
    if (!rc)
        rc = stitch__fill_inputs(v, seed, NULL, err);
    if (!rc)
        rc = stitch__poison(v, s->set, s->oracle, STITCH__POISON_A, err);
    if (rc)
        return rc;
    *code = stitch__oracle_ready(s->oracle, v->stream, why);
    if (*code)
        goto out;
    if (t->flush)
        STITCH__CU(dev->drv->MemsetD8Async(t->flush, 0x5a, (size_t)t->flush_bytes, v->stream));
    STITCH__CU(dev->drv->EventRecord(t->start, v->stream));
    *code = stitch__oracle_begin(s->oracle, v->stream, &more, why);
    if (!*code)
        *code = stitch__cu_check(dev, dev->drv->EventRecord(t->stop, v->stream), why, "recording the end of a run");
    if (!*code && more) /* its results lie elsewhere: taking them to the outputs is not its work */
        *code = stitch__oracle_finish(s->oracle, v->stream, why);
    if (wait_baseline(t, code, why))
        goto out;
    STITCH__CU(dev->drv->EventElapsedTime(&ms, t->start, t->stop));
    *us = (double)ms * 1000;
out:
    return rc;
}

uint64_t stitch__timer_seed(const stitch__timer *t, size_t iteration)
{
    return stitch__seed_derive(t->v->options.seed, STITCH__SEED_TIMED, iteration);
}

bool stitch__block_moved(const stitch__timer *t, const stitch__block *b)
{
    return b->count > 1 && t->can_move && b->number & 2;
}

int stitch__block_set(const stitch__block *b)
{
    return b->count > 1 && b->number & 4 ? 1 : 0;
}

stitch__run stitch__timed_run_of(const stitch__timer *t, const stitch__block *b, uint64_t seed)
{
    stitch__run run = STITCH__RUN_INIT;

    run.poison = STITCH__POISON_A;
    run.flush_bytes = t->flush_bytes;
    run.draw = 1;
    run.seed = seed;
    run.moved = stitch__block_moved(t, b);
    run.set = stitch__block_set(b);
    return run;
}

/* The timed runs of a side in a block. */
int stitch__side_run(stitch__timer *t, stitch__side *s, const stitch__block *b, int *code, stitch_error **why,
                     stitch_error **err)
{
    stitch__verify *v = t->v;
    const stitch__candidate *c = &s->program;
    stitch__run_block block = {.count = (uint32_t)b->count};
    stitch__run *first = &block.runs[0].run;
    stitch__took took[STITCH__BLOCK] = {{0, 0}};
    int rc = STITCH_OK;

    for (size_t k = 0; k < b->count; k++) {
        block.runs[k].run = stitch__timed_run_of(t, b, stitch__timer_seed(t, b->first + k));
        block.runs[k].does = STITCH__RUN_TIMED | STITCH__RUN_KEPT;
        block.runs[k].key = b->keys[k];
    }
    if (s->oracle) {
        rc = time_baseline(t, s, first->seed, &took[0].us, code, why, err);
    } else if (b->count == 1) {
        rc = c->ops->timed_run(c->self, &v->scope, first, took, code, why, err);
    } else {
        rc = c->ops->run_block(c->self, &v->scope, &block, took, s->hashes, code, why, err);
    }
    for (size_t k = 0; !rc && !*code && k < b->count; k++) {
        rc = stitch__timing_add(v->report, s->timing, took[k].us - s->timing->taken_off_us, err);
        if (!rc && !s->oracle)
            rc = stitch__clock_add(t, s, &took[k], err);
    }
    return rc;
}
