/* SPDX-License-Identifier: MIT
 *
 * Verification: runs the stages in order and fills the report.
 */
#include "verify/verify.h"

#include <stdio.h>

enum { MAX_BUDGET_MS = 1000000000 }; /* more does not fit into nanoseconds some day */

/* ---- how stages end ---------------------------------------------------------------------------------------------- */

static void notify(stitch__verify *v, int stage, int status, int64_t done, int64_t total)
{
    if (v->options.on_stage)
        v->options.on_stage(stage, status, done, total, v->options.userdata);
}

void stitch__stage_progress(stitch__verify *v, int stage, int64_t done, int64_t total)
{
    notify(v, stage, STITCH_STAGE_NOT_RUN, done, total);
}

int stitch__stage_end(stitch__verify *v, int stage, int status, const char *message, stitch_error **err)
{
    return stitch__report_stage_set(v->report, stage, status, STITCH_OK, message, err);
}

int stitch__stage_fail(stitch__verify *v, int stage, int code, stitch_error **why, stitch_error **err)
{
    int rc = stitch__report_stage_set(v->report, stage, STITCH_STAGE_FAILED, code,
                                      *why ? stitch_error_message(*why) : stitch_status_text(code), err);
    stitch_error_free(*why);
    *why = NULL;
    return rc;
}

int stitch__share_or_time(stitch__verify *v, bool exclusive, stitch__gpu_lock *lock, char **why, stitch_error **err)
{
    int64_t start = stitch__now_ns();
    int rc = stitch__gpu_lock_take(v->dev, &v->scope, exclusive, lock, why, err);

    v->waited_ns += stitch__now_ns() - start;
    return rc;
}

/* A program that had less than half of its time, because others had the device, has not shown that it needs more. */
static bool had_no_time(const stitch__verify *v)
{
    return v->waited_ns / 1000000 > v->options.timeout_ms / 2;
}

/* A simulated kernel that the deadline or a cancellation ends has faulted, as far as the driver can tell. */
static int ended_or(const stitch__verify *v, int rc, stitch_error **err)
{
    if (rc != STITCH_E_FAULT || !v->dev || !v->dev->info.simulated || !stitch__scope_ended(&v->scope))
        return rc;
    return stitch__scope_check(&v->scope, "verifying the program", err);
}

int stitch__stage_judge(stitch__verify *v, int stage, int rc, stitch_error **why, stitch_error **err)
{
    if (rc == STITCH_OK) {
        stitch_error_free(*why);
        *why = NULL;
        return stitch__stage_end(v, stage, STITCH_STAGE_PASSED, "", err);
    }
    rc = ended_or(v, rc, why);
    if (rc == STITCH_E_TIMEOUT && had_no_time(v)) {
        stitch__err_prefix(why, "others had the device for %.1f of the call's %.1f s: ", (double)v->waited_ns / 1e9,
                           (double)v->options.timeout_ms / 1e3);
        stitch__err_hand_on(err, why);
        return rc;
    }
    /* Out of memory while checking or compiling is the host's; while simulating, loading and preparing it is what the
     * program asks for. */
    if (!stitch__is_candidates(rc) || (rc == STITCH_E_NOMEM && stage < STITCH_STAGE_SIMULATE)) {
        stitch__err_hand_on(err, why);
        return rc;
    }
    return stitch__stage_fail(v, stage, rc, why, err);
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

static int stage_format(stitch__verify *v, stitch_error **err)
{
    return stitch__stage_end(v, STITCH_STAGE_FORMAT, STITCH_STAGE_PASSED, "", err); /* a program was parsed already */
}

static const struct {
    int stage;
    bool needs_device;
    int (*run)(stitch__verify *v, stitch_error **err);
} stages[] = {
    {STITCH_STAGE_FORMAT, false, stage_format},           {STITCH_STAGE_VALIDATE, false, stitch__stage_validate},
    {STITCH_STAGE_COMPILE, false, stitch__stage_compile}, {STITCH_STAGE_SIMULATE, true, stitch__stage_simulate},
    {STITCH_STAGE_LOAD, true, stitch__stage_load},        {STITCH_STAGE_PREPARE, true, stitch__stage_prepare},
    {STITCH_STAGE_CORRECT, true, stitch__stage_correct},  {STITCH_STAGE_EXPLOIT, true, stitch__stage_exploit},
    {STITCH_STAGE_TIME, true, stitch__stage_time},        {STITCH_STAGE_PROFILE, true, stitch__stage_profile},
};

/* Stages that would disturb what another verification times on the same device wait until it has been timed. Those that
 * time wait for these; they lock for themselves. */
static int share_device(stitch__verify *v, int stage, stitch_error **err)
{
    if (!v->dev || v->dev->info.simulated || stage < STITCH_STAGE_LOAD || stage > STITCH_STAGE_EXPLOIT)
        return STITCH_OK;
    return stitch__share_or_time(v, false, &v->lock, NULL, err);
}

static int run_stages(stitch__verify *v, stitch_error **err)
{
    for (size_t i = 0; i < STITCH__COUNT(stages); i++) {
        int stage = stages[i].stage, rc;
        int64_t start;

        if (v->options.last_stage != STITCH_STAGE_NONE && stage > v->options.last_stage)
            break;
        rc = stitch__scope_check(&v->scope, stitch_stage_name(stage), err);
        if (rc)
            return rc;
        if (stages[i].needs_device && !v->dev) {
            int code = stitch_error_code(v->no_device);
            return stitch__err(v->ctx, err, code, "the program is valid and compiles, but cannot be run here: %s",
                               stitch_error_message(v->no_device));
        }
        notify(v, stage, STITCH_STAGE_NOT_RUN, 0, 0);
        rc = share_device(v, stage, err);
        start = stitch__now_ns();
        if (!rc)
            rc = stages[i].run(v, err);
        v->report->stages[stage].ms = (double)(stitch__now_ns() - start) / 1e6;
        if (rc)
            return rc;
        if (v->report->failed_stage == STITCH_STAGE_NONE) /* whoever wants to time can do so between two stages */
            stitch__gpu_lock_release(&v->lock);
        notify(v, stage, v->report->stages[stage].status, 1, 1);
        if (v->report->failed_stage != STITCH_STAGE_NONE)
            break;
    }
    return STITCH_OK;
}

/* ---- head of the report ------------------------------------------------------------------------------------------ */

static void describe_data(const stitch__verify *v, size_t i, char *out, size_t size)
{
    const stitch_task *t = v->task;
    const stitch_tensor_info *info = &v->infos[i];
    bool recorded = t->reference.kind == STITCH__COMPUTE_TENSORS;

    *out = 0;
    if (info->role == STITCH_TENSOR_OUTPUT)
        return;
    if (info->role == STITCH_TENSOR_STATE)
        snprintf(out, size, "zeros at the start");
    else if (t->tensors[i].data)
        snprintf(out, size, "set by the host");
    else if (recorded &&
             (info->role == STITCH_TENSOR_INPUT || stitch__safetensors_find(t->reference.tensors, info->name)))
        snprintf(out, size, "recorded");
    else if (t->weights && info->role == STITCH_TENSOR_WEIGHT)
        snprintf(out, size, "weights file");
    else
        stitch__dist_print(&t->tensors[i].dist, out, size);
}

int stitch__take_tensors(stitch__verify *v, stitch_error **err)
{
    stitch_report *r = v->report;

    v->count = stitch_interface_tensor_count(v->task->iface);
    v->infos = stitch__calloc(v->ctx, v->count ? v->count : 1, sizeof(*v->infos));
    r->tensors = stitch__calloc(v->ctx, v->count ? v->count : 1, sizeof(*r->tensors));
    if (!v->infos || !r->tensors)
        return stitch__err_nomem(v->ctx, err);
    v->inputs_fixed = stitch__task_inputs_fixed(v->task);
    for (size_t i = 0; i < v->count; i++) {
        stitch_tensor_info *info = &v->infos[i];
        stitch__tensor_row *row = &r->tensors[i];
        int kind = v->task->tensors[i].dist.kind, rc;
        info->struct_size = sizeof(*info);
        rc = stitch_interface_tensor(v->task->iface, i, info);
        if (rc)
            return stitch__err(v->ctx, err, rc, "tensor %zu of the task cannot be read", i);
        row->name = stitch__strdup(v->ctx, info->name);
        if (!row->name)
            return stitch__err_nomem(v->ctx, err);
        r->tensor_count++;
        row->role = info->role;
        row->dtype = info->dtype;
        row->rank = info->rank;
        memcpy(row->shape, info->shape, sizeof(row->shape));
        row->bytes = info->bytes;
        describe_data(v, i, row->dist, sizeof(row->dist));
        v->has_states |= info->role == STITCH_TENSOR_STATE;
        v->has_float_inputs |= info->role == STITCH_TENSOR_INPUT && !v->task->tensors[i].data &&
                               stitch__dtype_is_float(info->dtype) &&
                               (kind == STITCH_DIST_NORMAL || kind == STITCH_DIST_UNIFORM);
    }
    return STITCH_OK;
}

static int take_dims(stitch__verify *v, stitch_error **err)
{
    stitch_report *r = v->report;
    size_t count = stitch_interface_dim_count(v->task->iface);

    r->dims = stitch__calloc(v->ctx, count ? count : 1, sizeof(*r->dims));
    if (!r->dims)
        return stitch__err_nomem(v->ctx, err);
    for (size_t i = 0; i < count; i++) {
        const char *name = "";
        int rc = stitch_interface_dim(v->task->iface, i, &name, &r->dims[i].value);
        r->dims[i].name = stitch__strdup(v->ctx, name);
        if (rc || !r->dims[i].name)
            return rc ? rc : stitch__err_nomem(v->ctx, err);
        r->dim_count++;
    }
    return STITCH_OK;
}

static int take_device(stitch__verify *v, stitch_error **err)
{
    stitch_report *r = v->report;
    const stitch__nvrtc *nvrtc = NULL;
    char version[64] = "";
    int rc = STITCH_OK;

    if (v->dev) {
        rc = stitch__report_set(r, &r->device_name, v->dev->info.name, 200, err);
        if (!rc)
            rc = stitch__report_set(r, &r->device_arch, v->dev->info.arch, 40, err);
        r->simulated = v->dev->info.simulated != 0;
        r->reaches_host = stitch__device_reaches_host(v->dev);
        r->driver_version = v->dev->info.driver_version;
    }
    if (!rc && stitch__nvrtc_get(v->ctx, &nvrtc, NULL) == STITCH_OK)
        snprintf(version, sizeof(version), "%d.%d", nvrtc->major, nvrtc->minor);
    return rc ? rc : stitch__report_set(r, &r->nvrtc, version, sizeof(version), err);
}

static int take_head(stitch__verify *v, stitch_error **err)
{
    stitch_report *r = v->report;
    char hash[65];
    int rc = stitch_task_hash(v->task, hash, err);

    if (!rc)
        rc = stitch__report_set(r, &r->task_hash, hash, 64, err);
    if (!rc)
        rc = stitch__report_set(r, &r->task_name, v->task->name, 255, err);
    if (!rc)
        rc = stitch__report_set(r, &r->program_hash, stitch_program_hash(v->program), 64, err);
    if (!rc)
        rc = stitch__take_tensors(v, err);
    if (!rc)
        rc = take_dims(v, err);
    if (!rc)
        rc = take_device(v, err);
    if (!rc)
        rc = stitch__take_options(v, err);
    r->atol = v->task->atol;
    r->rtol = v->task->rtol;
    r->precision = v->task->precision;
    r->reduced = v->task->reduced;
    r->seed = v->options.seed;
    return rc;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* A value that is out of its range is named. */
static int check_options(const stitch__verify *v, stitch_error **err)
{
    const stitch_verify_options *o = &v->options;
    const struct {
        const char *name;
        int64_t value, most;
    } list[] = {{"trials", o->trials, 10000},
                {"warmup", o->warmup, 1000000},
                {"iterations", o->iterations, 1000000},
                {"last_stage", o->last_stage, STITCH_STAGE_COUNT - 1},
                {"where", o->where, STITCH_VERIFY_WORKER},
                {"simulate", o->simulate, STITCH_SIMULATE_NEVER}};

    for (size_t i = 0; i < STITCH__COUNT(list); i++)
        if (list[i].value < 0 || list[i].value > list[i].most)
            return stitch__err(v->ctx, err, STITCH_E_INVALID,
                               "stitch_verify_options: %s is %" PRId64 "; it must be 0 to %" PRId64, list[i].name,
                               list[i].value, list[i].most);
    if (o->op_count && !o->ops)
        return stitch__err(v->ctx, err, STITCH_E_INVALID, "stitch_verify_options: op_count is %zu, but ops is NULL",
                           o->op_count);
    return STITCH_OK;
}

static int resolve_options(stitch__verify *v, const stitch_verify_options *options, stitch_error **err)
{
    stitch_verify_options *o = &v->options;
    int rc = stitch__options_copy(v->ctx, o, sizeof(*o), options, "stitch_verify_options", err);

    if (rc)
        return rc;
    rc = check_options(v, err);
    if (rc)
        return rc;
    rc = stitch__collect_options_make(v->ctx, o->profile, o->metrics, o->metric_count, "stitch_verify_options",
                                      &v->collect, err);
    if (rc)
        return rc;
    if (!o->warmup)
        o->warmup = 10;
    if (!o->iterations)
        o->iterations = 100;
    if (o->time_budget_ms <= 0)
        o->time_budget_ms = 60000;
    if (o->time_budget_ms > MAX_BUDGET_MS)
        o->time_budget_ms = MAX_BUDGET_MS;
    if (o->timeout_ms <= 0)
        o->timeout_ms = 600000;
    if (!o->seed)
        rc = stitch__random(v->ctx, &o->seed, sizeof(o->seed), err);
    if (!o->seed)
        o->seed = 1;
    v->scope = stitch__scope_make(v->ctx, o->cancel, o->timeout_ms);
    return rc;
}

/* The device, or why there is none. Only validation and compilation can do without. */
static int open_device(stitch__verify *v, stitch_error **err)
{
    int rc = stitch__device_get(v->ctx, &v->dev, &v->no_device);
    if (rc == STITCH_E_NO_DEVICE || rc == STITCH_E_NO_LIBRARY) {
        v->dev = NULL;
        if (!v->no_device) /* no memory for it */
            return stitch__err_nomem(v->ctx, err);
        return STITCH_OK;
    }
    if (rc)
        stitch__err_hand_on(err, &v->no_device);
    return rc;
}

/* Everything between entering and leaving the device's context. */
static int verify_entered(stitch__verify *v, stitch_error **err)
{
    int rc;

    if (stitch__wants_compiler(v) && v->options.last_stage != STITCH_STAGE_FORMAT &&
        v->options.last_stage != STITCH_STAGE_VALIDATE)
        stitch__worker_ahead(v->ctx, STITCH__WORKER_COMPILER); /* ready by the time that it is needed, or nearly */
    if (v->dev)
        stitch__device_limit(v->dev, &v->scope);
    rc = take_head(v, err);
    if (!rc && v->dev && (v->options.last_stage == STITCH_STAGE_NONE || v->options.last_stage > STITCH_STAGE_COMPILE))
        rc = stitch__warm_start(v, err);
    if (!rc)
        rc = ended_or(v, run_stages(v, err), err);
    if (!rc)
        rc = stitch__take_software(v, err);
    if (v->dev) {
        stitch__device_recover(v->dev);
        stitch__device_limit(v->dev, NULL);
    }
    (void)stitch__warm_join(v);
    stitch__sets_close(v);
    stitch__worker_release(v->profiler, true);
    stitch__gpu_lock_release(&v->lock);
    return rc;
}

static int take_turn(stitch__verify *v, stitch_error **err)
{
    int64_t start = stitch__now_ns();
    int rc = stitch__device_turn(v->dev, &v->scope, err);

    v->waited_ns += stitch__now_ns() - start;
    return rc;
}

static int verify_task(stitch__verify *v, stitch_error **err)
{
    bool reduced_here = false;
    int rc = stitch__task_check(v->task, err);

    if (!rc && v->dev)
        rc = take_turn(v, err);
    if (rc)
        return rc;
    if (v->dev && v->dev->info.simulated && !v->task->reduced && stitch__task_has_reduced(v->task)) {
        /* Recorded data fixes the dims; then they are simulated as they are. */
        reduced_here = stitch_task_use_reduced(v->task, 1, NULL) == STITCH_OK;
        if (reduced_here)
            rc = stitch__report_note(v->report, err, "the device is simulated: the task's reduced dims were used");
    }
    if (!v->options.trials)
        v->options.trials = v->dev && v->dev->info.simulated ? 2 : 5;
    if (!rc && v->dev)
        rc = stitch__device_enter(v->dev, err);
    if (!rc) {
        rc = verify_entered(v, err);
        if (v->dev)
            stitch__device_leave(v->dev);
    }
    if (reduced_here)
        (void)stitch_task_use_reduced(v->task, 0, NULL); /* was so before; can only fail for lack of memory */
    if (v->dev)
        stitch__device_turn_end(v->dev);
    return rc;
}

int stitch_verify_program(stitch_context *ctx, stitch_task *task, stitch_program *program,
                          const stitch_verify_options *options, stitch_report **out, stitch_error **err)
{
    stitch__verify v = {.ctx = ctx, .task = task, .program = program, .lock = STITCH__GPU_LOCK_INIT};
    int rc;

    if (out)
        *out = NULL;
    if (!ctx || !task || !program || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_verify_program: needs a context, a task, a program and room for the report");
    rc = resolve_options(&v, options, err);
    if (!rc)
        rc = stitch__report_new(ctx, &v.report, err);
    if (!rc)
        rc = open_device(&v, err);
    if (!rc)
        rc = verify_task(&v, err);
    if (!rc)
        rc = stitch__report_finish(v.report, err);
    if (rc)
        stitch_report_free(v.report);
    else
        *out = v.report;
    stitch_error_free(v.no_device);
    stitch_free(v.infos);
    return rc;
}
