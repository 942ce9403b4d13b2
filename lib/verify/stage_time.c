/* SPDX-License-Identifier: MIT
 *
 * Stage time. Candidate and main baseline alternate; every timed run has new input contents, poisoned outputs and a
 * flushed L2 cache, and its outputs are compared with the reference.
 *
 * Where both are in workers they alternate in blocks of a few runs: the device takes longer to change from one process
 * to another than many programs run. The outputs of each run of a block are kept, and checked after it. Blocks take
 * turns with the addresses of inputs and outputs: where they lie in memory is worth a per cent or two to short kernels,
 * and two processes never have the same places.
 */
#include "verify/timing.h"

#include "cuda/clocks.h"

#define LEAST_RUNS   10
#define CLOCKS_EVERY 10      /* iterations */
#define BLOCKS       8       /* at least, if there are so many runs: each order with each choice of addresses */
#define BLOCK_US     20000.0 /* a side's runs in a row, by the device's time: what matters beyond that is drift */

/* Candidate and main baseline, in turn one before the other, so that neither gains by its place; then the baselines
 * that take part. */
static int measure_block(stitch__timer *t, stitch__block *b, size_t sides, int *code, stitch_error **why,
                         stitch_error **err)
{
    bool swap = b->number % 2 && sides > 1;
    int rc = STITCH_OK;

    for (size_t k = 0; k < b->count; k++)
        b->keys[k] = stitch__seed_derive(t->v->options.seed, STITCH__SEED_KEPT, b->first + k);
    for (size_t k = 0; !rc && !*code && k < sides; k++) {
        stitch__side *s = &t->sides[swap && k < 2 ? 1 - k : k];
        stitch_error *baseline_why = NULL;
        int side_code = STITCH_OK;
        if (s->broken)
            continue;
        if (s->candidate) {
            rc = stitch__side_run(t, s, b, code, why, err);
            if (!rc && !*code)
                rc = stitch__side_take(t, s, b, err);
            continue;
        }
        rc = stitch__side_run(t, s, b, &side_code, &baseline_why, &baseline_why);
        if (!rc && !side_code)
            rc = stitch__side_take(t, s, b, &baseline_why);
        rc = stitch__side_ended(t->v, s, rc, side_code, &baseline_why, err);
    }
    return rc || *code ? rc : stitch__block_check(t, b, sides, code, why, err);
}

/* The first runs are alone: a program that is wrong ends there. Then as many as all sides have room for, and as are
 * short enough. */
static size_t block_size(const stitch__timer *t, size_t sides, size_t first, size_t total)
{
    size_t count = (total - 1 + BLOCKS - 1) / BLOCKS;

    if (first == 0)
        return 1;
    count = count < total - first ? count : total - first;
    count = count < STITCH__BLOCK ? count : STITCH__BLOCK;
    for (size_t k = 0; k < sides; k++) {
        const stitch__side *s = &t->sides[k];
        double us = s->timing->count ? s->timing->samples[s->timing->count - 1] : 0;
        size_t most = s->kept;
        if (s->broken)
            continue;
        if (us > 0 && BLOCK_US / us < (double)most)
            most = (size_t)(BLOCK_US / us);
        count = most < count ? most : count;
    }
    return count ? count : 1;
}

/* Why the two that are compared are not put together, if they are not. */
static const char *why_alone(const stitch__timer *t)
{
    const stitch__side *candidate = &t->sides[0],
                       *baseline = t->side_count > 1 && !t->sides[1].broken ? &t->sides[1] : NULL;

    if (!candidate->program.ops->run_block)
        return "the program runs in the host's process, where nothing is gained by that";
    if (t->v->inputs_fixed)
        return "the inputs are the same in every run, and so is the answer";
    if (!candidate->kept)
        return "there is no room for the outputs of several runs of the program";
    if (baseline && !baseline->program.ops)
        return "the main baseline runs in the host's process";
    if (baseline && !baseline->kept)
        return "there is no room for the outputs of several runs of the main baseline";
    return "there are too few runs, or they take too long";
}

static void note_block(stitch__timer *t, const stitch__block *b)
{
    stitch__timed_blocks *blocks = &t->v->report->blocks;

    blocks->count++;
    blocks->longest = b->count > blocks->longest ? b->count : blocks->longest;
    blocks->moved_inputs |= stitch__block_moved(t, b);
    blocks->second_outputs |= stitch__block_set(b) != 0;
    blocks->alone = blocks->longest > 1 ? NULL : why_alone(t);
}

static void watch_clocks(stitch__timer *t)
{
    stitch__clock_range *c = &t->v->report->clocks;
    stitch__clock_sample now;

    if (!stitch__clocks_read(t->v->dev, &now))
        return;
    c->sm_low = !c->count || now.sm_mhz < c->sm_low ? now.sm_mhz : c->sm_low;
    c->sm_high = now.sm_mhz > c->sm_high ? now.sm_mhz : c->sm_high;
    c->memory_low = !c->count || now.memory_mhz < c->memory_low ? now.memory_mhz : c->memory_low;
    c->memory_high = now.memory_mhz > c->memory_high ? now.memory_mhz : c->memory_high;
    c->reasons |= now.reasons;
    c->count++;
}

static int warm_up_all(stitch__timer *t, int *code, stitch_error **why, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t k = 0; !rc && !*code && k < t->side_count; k++) {
        stitch_error *baseline_why = NULL;
        int side_code = STITCH_OK;
        if (t->sides[k].broken)
            continue;
        if (t->sides[k].candidate) {
            rc = stitch__side_warm_up(t, &t->sides[k], code, why, err);
            continue;
        }
        rc = stitch__side_warm_up(t, &t->sides[k], &side_code, &baseline_why, &baseline_why);
        rc = stitch__side_ended(t->v, &t->sides[k], rc, side_code, &baseline_why, err);
    }
    return rc;
}

/* Every run of the candidate is checked while checking has taken less than half of the time budget; the first, the last
 * and one in each eighth that nobody can know beforehand always are. Baselines are the task's own: some of their runs
 * are. */
static int measure(stitch__timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    size_t total = (size_t)v->options.iterations, others = total / 4 > LEAST_RUNS ? total / 4 : LEAST_RUNS;
    int64_t budget = v->options.time_budget_ms * 1000000, end;
    size_t done = 0, watched = 0, blocks = 0;
    int rc = warm_up_all(t, code, why, err);

    end = stitch__now_ns() + budget; /* for timed runs: one that takes its time in warm-up gets no fewer of them */
    while (!rc && !*code && done < total) {
        bool out_of_time = done + 1 >= LEAST_RUNS && stitch__now_ns() > end;
        size_t sides = done < others || t->side_count <= 2 ? t->side_count : 2;
        stitch__block b = {
            .number = blocks++, .first = done, .count = out_of_time ? 1 : block_size(t, sides, done, total)};
        b.last = out_of_time || done + b.count == total;
        b.check = t->checking_ns < budget / 2;
        if (done >= watched || b.last) {
            watch_clocks(t);
            watched = done + CLOCKS_EVERY;
        }
        rc = measure_block(t, &b, sides, code, why, err);
        note_block(t, &b);
        done += b.count;
        stitch__stage_progress(v, STITCH_STAGE_TIME, (int64_t)done, (int64_t)total);
        if (out_of_time && done < total) {
            if (!rc)
                rc = stitch__report_note(v->report, err,
                                         "timing ended after %zu of %zu runs: its time budget of %lld ms was spent",
                                         done, total, (long long)v->options.time_budget_ms);
            break;
        }
    }
    return rc;
}

/* A time that the device cannot have needed was not measured on the work that the task asks for. */
static int check_bound(stitch__timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch_report *r = t->v->report;
    double us = r->candidate.median + r->candidate.taken_off_us; /* as it was measured */
    int rc = STITCH_OK;

    stitch__lower_bound(t->v, &r->bound);
    if (r->candidate.count && us < r->bound.us)
        rc = stitch__bound_confirm(t->v, &r->bound, err);
    if (!rc && r->candidate.count && us < r->bound.us)
        *code = stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                            "faster than the device can be: %.3g us, but %s takes %.3g us at the peak rate", us,
                            r->bound.memory_us >= r->bound.flops_us ? "reading the inputs and writing the outputs once"
                                                                    : "the number of operations that the task states",
                            r->bound.us);
    return rc;
}

/* Statistics of what was measured, which everything that is concluded of it starts from. */
static int finish_times(stitch_report *r, stitch_error **err)
{
    bool finished = stitch__timing_finish(r, &r->candidate);

    for (size_t i = 0; i < r->baseline_count; i++)
        finished = stitch__timing_finish(r, &r->baselines[i]) && finished;
    return finished ? STITCH_OK : stitch__err_nomem(r->ctx, err); /* a median of 0 would be faster than any device */
}

static int conclude(stitch__timer *t, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_report *r = v->report;
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_BOOTSTRAP, 0);
    int rc = STITCH_OK;

    if (r->baseline_count && r->baselines[0].count && r->candidate.count) {
        size_t pairs = r->candidate.count < r->baselines[0].count ? r->candidate.count : r->baselines[0].count;
        rc = stitch__speedup_interval(v->ctx, r->baselines[0].samples, r->candidate.samples, pairs, seed,
                                      &r->speedup_low, &r->speedup_high, err);
    }
    return rc || *code ? rc : check_bound(t, code, why, err);
}

/* The main baseline has the candidate's memory, but never the same place of a tensor at the same time: else the
 * candidate could pass for what the baseline wrote. That memory must not have gone with a worker that was lost, either.
 * Nor may it have written around that memory, which would then be the candidate's doing. Its opening has cleared the
 * inputs. */
static int check_places(stitch__timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0);
    stitch__side *s = t->side_count > 1 ? &t->sides[1] : NULL;
    stitch_error *why = NULL;
    int rc = STITCH_OK, code = STITCH_OK;

    if (!v->worker)
        return STITCH_OK;
    if (s && s->worker && !s->broken) {
        if (!stitch__worker_apart(v->worker, s->worker))
            code = stitch__err(v->ctx, &why, STITCH_E_INTERNAL, "it has the candidate's places for inputs and outputs");
        else if (!stitch__worker_stands(s->worker, v->worker))
            code = stitch__err(v->ctx, &why, STITCH_E_STATE, "the memory that it shared with the candidate is gone");
        else
            rc = s->program.ops->inspect(s->program.self, &v->scope, &code, &why, &why);
        rc = stitch__side_ended(v, s, rc, code, &why, err);
    }
    return rc ? rc : v->candidate.ops->fill_inputs(v->candidate.self, &v->scope, seed, NULL, err);
}

/* Starts the workers of baselines and so on while others may use the device, then waits until nobody does. */
static int open_alone(stitch__timer *t, stitch__gpu_lock *lock, stitch_error **err)
{
    stitch__verify *v = t->v;
    char *unlocked = NULL;
    int rc = stitch__share_or_time(v, false, lock, NULL, err);

    if (!rc)
        rc = stitch__timer_open(t, err);
    stitch__gpu_lock_release(lock);
    if (!rc)
        rc = stitch__share_or_time(v, true, lock, &unlocked, err);
    if (!rc && unlocked)
        rc = stitch__report_note(v->report, err, "other verifications on this GPU were not kept away: %s", unlocked);
    stitch_free(unlocked);
    if (!rc && v->dev->drv->CtxResetPersistingL2Cache)
        v->report->l2_reset = v->dev->drv->CtxResetPersistingL2Cache() == CUDA_SUCCESS;
    return rc;
}

int stitch__stage_time(stitch__verify *v, stitch_error **err)
{
    stitch__timer t = {.v = v};
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    stitch_error *why = NULL;
    int code = STITCH_OK, rc;

    if (v->dev->info.simulated)
        return stitch__stage_end(v, STITCH_STAGE_TIME, STITCH_STAGE_SKIPPED, "the simulator reports no times", err);
    rc = open_alone(&t, &lock, err);
    if (!rc)
        rc = stitch__hash_tensors(v, false, err);
    if (!rc)
        rc = stitch__control_run(&t, err);
    if (!rc)
        rc = check_places(&t, err);
    if (!rc)
        rc = stitch__candidate_afresh(v, &v->candidate, &v->scope, &code, &why, err);
    for (size_t k = 0; !rc && !code && k < t.side_count; k++)
        rc = stitch__side_room(&t, &t.sides[k], err);
    if (!rc && !code)
        rc = measure(&t, &code, &why, err);
    if (!rc)
        rc = finish_times(v->report, err);
    if (!rc)
        stitch__control_settle(&t);
    if (!rc && !code)
        rc = stitch__clock_judge(&t, &code, &why);
    if (!rc && !code)
        rc = stitch__exploit_after_timing(v, &code, &why, err);
    if (!rc && !code)
        rc = stitch__look_around(&t, &code, &why, err);
    stitch__timer_close(&t);
    stitch__gpu_lock_release(&lock);
    if (!rc)
        rc = conclude(&t, &code, &why, err);
    if (rc) {
        stitch_error_free(why);
        return rc;
    }
    return stitch__stage_judge(v, STITCH_STAGE_TIME, code, &why, err);
}
