/* SPDX-License-Identifier: MIT
 *
 * A baseline that is a program, in a worker of its own.
 */
#include "verify/verify.h"

bool stitch__baseline_apart(const stitch__verify *v, const stitch__compute *what)
{
    return what->program && !what->output_dtype && !stitch__needs_host(v, what->program);
}

bool stitch__baseline_expected(const stitch__verify *v)
{
    int last = v->options.last_stage;

    return v->task->baseline_count && stitch__wants_worker(v) && !v->dev->info.simulated &&
           (last == STITCH_STAGE_NONE || last >= STITCH_STAGE_TIME) &&
           stitch__baseline_apart(v, &v->task->baselines[0]);
}

/* Compiled here, as the candidate was; the worker only loads. */
int stitch__baseline_open(stitch__verify *v, const stitch__compute *what, bool main, stitch__worker **worker,
                          stitch__candidate *out, stitch_error **err)
{
    const stitch__worker_options clean = {.role = STITCH__WORKER_BASELINE};
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    int code = STITCH_OK;
    int rc = stitch_program_validate(what->program, v->task->iface, v->dev->info.arch, err);

    options.arch = v->dev->info.arch;
    options.ptx = v->dev->info.simulated;
    options.cancel = v->options.cancel;
    options.timeout_ms = stitch__scope_timeout_ms(&v->scope);
    if (!rc)
        rc = stitch_program_compile(what->program, &options, NULL, err);
    if (!rc)
        rc = stitch__worker_acquire(v->ctx, &v->scope, &clean, worker, err);
    if (!rc)
        rc = stitch__worker_open_beside(*worker, main ? v->worker : NULL, &v->scope, v->task, what->program, out, err);
    if (!rc)
        rc = stitch__candidate_begin(v, out, &code, err, err);
    return rc ? rc : code;
}
