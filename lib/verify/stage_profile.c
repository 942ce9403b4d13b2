/* SPDX-License-Identifier: MIT
 *
 * Stage profile: what a right program spends its time on. Where the program ran in a worker it is profiled in another
 * one that is there for nothing else, because a process is slower once CUPTI is in it. Nothing is decided by what is
 * seen here: a program that cannot be profiled has passed all the same.
 */
#include "verify/verify.h"

enum {
    SET_UP_MS = 60000, /* for CUPTI, which has been seen to hang: then the worker is ended, and nothing else is lost */
    RUNS = 4096,       /* that a profile takes at the most, replays included */
};

typedef struct profiling {
    stitch__verify *v;
    stitch__worker *worker; /* NULL: in this process */
    stitch__candidate candidate;
    stitch__scope scope;
} profiling;

static int prepare(profiling *p, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = p->v;
    int rc = STITCH_OK;

    if (p->worker)
        rc = stitch__candidate_fill(v, &p->candidate, &p->scope, err);
    else if (!v->inputs_fixed)
        rc = stitch__fill_inputs(v, stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0), NULL, err);
    return rc ? rc : stitch__candidate_afresh(v, &p->candidate, &p->scope, code, why, err);
}

static int open_profiled(profiling *p, stitch_error **err)
{
    const stitch__worker_options options = {.role = STITCH__WORKER_PROFILER};
    stitch__verify *v = p->v;
    int rc;

    if (!v->worker) {
        p->candidate = v->candidate;
        return STITCH_OK;
    }
    rc = stitch__worker_acquire(v->ctx, &p->scope, &options, &p->worker, err);
    return rc ? rc : stitch__worker_open(p->worker, &p->scope, v->task, v->program, &p->candidate, err);
}

/* In this process the host may work on the device, too. Then the records are no run of the program alone. */
static bool records_fit(const stitch__verify *v, const stitch__facts *f)
{
    for (size_t i = 0; v->runner && i < f->kernel_count; i++) {
        if (f->kernels[i].step < 0)
            return false;
    }
    return true;
}

/* How long the device works in a run, by the timeline. */
static int take_busy_time(stitch__verify *v, const stitch__facts *f, stitch_error **err)
{
    stitch_report *r = v->report;
    const char *missing = f->no_timeline;

    if (!*missing && !records_fit(v, f))
        missing = "what CUPTI recorded are not the steps of the program: other work of this process may be among them";
    else if (!*missing && !(f->busy_us > 0))
        missing = "CUPTI recorded nothing of a run";
    if (*missing)
        return stitch__report_set(r, &r->busy_note, missing, 1000, err);
    r->busy_us = f->busy_us;
    return STITCH_OK;
}

static int collect(profiling *p, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = p->v;
    stitch__run run = STITCH__RUN_INIT;
    stitch__facts *f = NULL;
    int rc;

    run.flush_bytes = v->report->flush_bytes;
    rc = p->candidate.ops->profile(p->candidate.self, &p->scope, &run, &v->collect, &f, code, why, err);
    if (!rc && !*code && !v->dev->info.simulated)
        rc = take_busy_time(v, f, err);
    if (rc || *code) {
        stitch__facts_free(f);
        return rc;
    }
    f->precision = v->task->precision;
    f->wall_us = v->report->candidate.count ? v->report->candidate.median : 0;
    return stitch__profile_make(v->ctx, v->dev, &v->scope, f, &v->report->profile, err);
}

/* Everything with the device locked. */
static int profile(profiling *p, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = p->v;
    int rc = open_profiled(p, err);

    if (!rc && (p->worker || v->dev->info.simulated))
        rc = prepare(p, code, why, err);
    if (!rc && !*code)
        rc = collect(p, code, why, err);
    v->profiler = p->worker;
    return rc;
}

/* A worker can be ended before the whole verification's time is over; this process cannot. */
static stitch__scope limited(const stitch__verify *v)
{
    const stitch__timing *t = &v->report->candidate;
    stitch__scope scope = v->scope;
    double us = t->count ? t->samples[t->count - 1] : 0;
    int64_t most = stitch__now_ns() + (int64_t)SET_UP_MS * 1000000 + (int64_t)(us * 1000 * (us < 1e6 ? RUNS : 64));

    if (v->worker && (!scope.deadline_ns || scope.deadline_ns > most))
        scope.deadline_ns = most;
    return scope;
}

/* What was seen, in a line; or why there is nothing to see. */
static int end(stitch__verify *v, int rc, int code, stitch_error **why, stitch_error **cause, stitch_error **err)
{
    bool lost_here = v->runner && (code == STITCH_E_FAULT || stitch__abandoned(v));
    stitch_error *said = rc ? *cause : *why;

    if (rc == STITCH_E_CANCELLED || rc == STITCH_E_NOMEM ||
        (rc == STITCH_E_TIMEOUT && stitch__scope_ended(&v->scope)) || (v->runner && rc == STITCH_E_FAULT)) {
        stitch__err_hand_on(err, cause);
        return rc;
    }
    if (!rc && code && lost_here) { /* what is lost with that is this process's own */
        stitch_profile_free(v->report->profile);
        v->report->profile = NULL;
        return stitch__stage_fail(v, STITCH_STAGE_PROFILE, code, why, err);
    }
    if (rc || code)
        return stitch__stage_end(v, STITCH_STAGE_PROFILE, STITCH_STAGE_SKIPPED,
                                 said ? stitch_error_message(said) : stitch_status_text(rc ? rc : code), err);
    return stitch__stage_end(v, STITCH_STAGE_PROFILE, STITCH_STAGE_PASSED, v->report->profile->advice.run.because, err);
}

int stitch__stage_profile(stitch__verify *v, stitch_error **err)
{
    profiling p = {.v = v};
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    char *unlocked = NULL;
    stitch_error *why = NULL, *cause = NULL;
    stitch__scope waiting;
    int64_t now = stitch__now_ns();
    int code = STITCH_OK, rc;

    if (v->options.profile == STITCH_PROFILE_NEVER)
        return stitch__stage_end(v, STITCH_STAGE_PROFILE, STITCH_STAGE_SKIPPED, "it was not asked for", err);
    waiting = v->scope;
    if (waiting.deadline_ns) /* a verdict that is there is not given up for others who time long */
        waiting.deadline_ns = now + (waiting.deadline_ns - now) / 2;
    /* A simulated device is this process's own: nobody could disturb it, and nothing is timed. */
    rc = v->dev->info.simulated ? STITCH_OK : stitch__gpu_lock_take(v->dev, &waiting, true, &lock, &unlocked, &cause);
    p.scope = limited(v); /* from here on: others may have held the device for long */
    if (!rc)
        rc = profile(&p, &code, &why, &cause);
    stitch__gpu_lock_release(&lock);
    rc = end(v, rc, code, &why, &cause, err);
    if (!rc && unlocked)
        rc = stitch__report_note(
            v->report, err, "while it was profiled, other verifications on this GPU were not kept away: %s", unlocked);
    stitch_free(unlocked);
    stitch_error_free(why);
    stitch_error_free(cause);
    return rc;
}
