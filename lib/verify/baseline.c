/* SPDX-License-Identifier: MIT
 *
 * A baseline that is a program, in a worker of its own: opened when it is timed, or while the candidate compiles, which
 * takes longer.
 */
#include "verify/verify.h"

enum { LOCK_MS = 1 }; /* for who may as well be opened later */

bool stitch__baseline_apart(const stitch__verify *v, const stitch__compute *what)
{
    return what->program && !what->output_dtype && !stitch__needs_host(v, what->program);
}

static int prepare(stitch__verify *v, stitch__baseline *b, stitch_error **err)
{
    int code = STITCH_OK, rc = stitch__candidate_fill(v, &b->program, &v->scope, err);

    if (!rc)
        rc = stitch__candidate_afresh(v, &b->program, &v->scope, &code, err, err);
    return rc ? rc : code;
}

/* Compiled here, as the candidate was; the worker only loads. */
static int open_in(stitch__verify *v, const stitch__compute *what, const stitch__worker_options *which,
                   stitch__baseline *b, stitch_error **err)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    int rc = stitch_program_validate(what->program, v->task->iface, v->dev->info.arch, err);

    b->what = what;
    options.arch = v->dev->info.arch;
    options.ptx = v->dev->info.simulated;
    options.cancel = v->options.cancel;
    options.timeout_ms = stitch__scope_left_ms(&v->scope, INT64_MAX);
    if (!rc)
        rc = stitch_program_compile(what->program, &options, NULL, err);
    if (!rc)
        rc = stitch__worker_acquire(v->ctx, &v->scope, which, &b->worker, err);
    if (!rc)
        rc = stitch__worker_open(b->worker, &v->scope, v->task, what->program, &b->program, err);
    return rc ? rc : prepare(v, b, err);
}

int stitch__baseline_open(stitch__verify *v, const stitch__compute *what, stitch__baseline *out, stitch_error **err)
{
    const stitch__worker_options clean = {.role = STITCH__WORKER_BASELINE};

    if (v->early.what == what) {
        *out = v->early;
        v->early = (stitch__baseline){0};
        return STITCH_OK;
    }
    *out = (stitch__baseline){0};
    return open_in(v, what, &clean, out, err);
}

void stitch__baseline_close(stitch__baseline *b)
{
    if (b->program.ops)
        b->program.ops->close(b->program.self);
    stitch__worker_release(b->worker, true);
    *b = (stitch__baseline){0};
}

const stitch__compute *stitch__baseline_early(const stitch__verify *v)
{
    const stitch__compute *what = v->task->baseline_count ? &v->task->baselines[0] : NULL;
    int last = v->options.last_stage;

    /* Where the simulator comes first, it changes the task's dims meanwhile. */
    if (!what || !stitch__wants_worker(v) || v->dev->info.simulated || stitch__task_has_reduced(v->task) ||
        (last != STITCH_STAGE_NONE && last < STITCH_STAGE_TIME) || !stitch__baseline_apart(v, what))
        return NULL;
    return what;
}

void stitch__baseline_ahead(stitch__verify *v, const stitch__compute *what)
{
    const stitch__worker_options ready = {.role = STITCH__WORKER_BASELINE, .ready = true};
    stitch__scope soon = stitch__scope_make(v->ctx, v->options.cancel, LOCK_MS);
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    stitch_error *why = NULL; /* for stage time to find out */

    if (stitch__gpu_lock_take(v->dev, &soon, false, &lock, NULL, &why) == STITCH_OK &&
        open_in(v, what, &ready, &v->early, &why) != STITCH_OK) {
        bool none = !v->early.worker;
        stitch__baseline_close(&v->early);
        if (none)
            stitch__worker_ahead(v->ctx, STITCH__WORKER_BASELINE);
    }
    stitch__gpu_lock_release(&lock);
    stitch_error_free(why);
}
