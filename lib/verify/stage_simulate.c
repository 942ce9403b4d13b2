/* SPDX-License-Identifier: MIT
 *
 * Stage simulate: one run under all of the simulator's checkers, in memory of its own; on a GPU it comes first, at the
 * task's reduced dims, on a simulated device of the same architecture, and its results are compared there, too.
 */
#include "verify/verify.h"

#include "sim/sim_ext.h"

#define MAX_FINDINGS 20
#define BESIDE_MS    20000 /* for a simulation beside a GPU; it is given up without blame then */

typedef struct simulation {
    stitch__verify *v;
    stitch__device *dev; /* a simulated one */
    stitch__scope scope;
    stitch_context *own; /* of the device, where it is not the verification's; NULL */
    stitch__runner *runner;
} simulation;

static const struct {
    const char *word, *text;
} faults[] = {
#define ROW(name, word, text) {word, text},
    STITCH__SIM_FAULT_LIST(ROW)
#undef ROW
};

/* A kernel that never ends is stopped by the verification's own deadline or cancellation. */
static CUresult set_options(const simulation *s, uint32_t flags, bool keep_going)
{
    stitch__sim_set_options_fn set;
    stitch__sim_options options = {.flags = flags,
                                   .keep_going = keep_going,
                                   .cancel = s->scope.cancel,
                                   .cancel_too = stitch__context_token(s->v->ctx),
                                   .deadline_ns = s->scope.deadline_ns};
    memcpy(&set, &s->dev->drv->sim_set_options, sizeof(set));
    return set ? set(&options) : CUDA_ERROR_NOT_SUPPORTED;
}

static stitch__sim_reports *take_reports(const simulation *s)
{
    stitch__sim_take_reports_fn take;
    stitch__sim_reports *reports = NULL;
    memcpy(&take, &s->dev->drv->sim_take_reports, sizeof(take));
    return take && take(&reports) == CUDA_SUCCESS ? reports : NULL;
}

static void free_reports(const simulation *s, stitch__sim_reports *reports)
{
    stitch__sim_free_reports_fn release;
    memcpy(&release, &s->dev->drv->sim_free_reports, sizeof(release));
    if (release && reports)
        release(reports);
}

/* The name that the program uses for a mangled symbol. */
static const char *kernel_name(const stitch__verify *v, const char *symbol)
{
    for (size_t i = 0; v->image && i < stitch_image_kernel_count(v->image); i++) {
        stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
        if (!stitch_image_kernel(v->image, i, &info) && info.symbol && strcmp(info.symbol, symbol) == 0)
            return info.name;
    }
    return symbol;
}

/* The program's own source is named as diagnostics name it; the compiler put its working folder in front. */
static const char *file_name(const char *path)
{
    const char *base = strrchr(path, '/');
    return base && strcmp(base + 1, "program.cu") == 0 ? base + 1 : stitch__source_path(path);
}

static void put_place(stitch__buf *b, const stitch__sim_place *p)
{
    if (p && p->file)
        stitch__buf_printf(b, " at %.200s:%u", file_name(p->file), p->line);
    else if (p)
        stitch__buf_printf(b, " at PTX line %u", p->ptx_line);
    for (p = p ? p->inlined_at : NULL; p && p->file; p = p->inlined_at)
        stitch__buf_printf(b, ", called at line %u", p->line);
}

static void put_thread(stitch__buf *b, const stitch__sim_access *a)
{
    stitch__buf_printf(b, "thread (%u,%u,%u) of block (%u,%u,%u)", a->thread[0], a->thread[1], a->thread[2],
                       a->block[0], a->block[1], a->block[2]);
}

static void put_finding(stitch__buf *b, const stitch__verify *v, const stitch__sim_kernel_report *k,
                        const stitch__sim_report *r)
{
    const char *text = (size_t)r->kind < STITCH__COUNT(faults) ? faults[r->kind].text : "unknown finding";

    stitch__buf_printf(b, "kernel %.120s", kernel_name(v, k->kernel));
    put_place(b, r->first.place);
    stitch__buf_printf(b, ": %s: ", text);
    if (r->size)
        stitch__buf_printf(b, "%s of %u bytes ",
                           r->first.atomic  ? "atomic access"
                           : r->first.write ? "write"
                                            : "read",
                           r->size);
    stitch__buf_puts(b, "by ");
    put_thread(b, &r->first);
    if (*r->buffer) {
        stitch__buf_printf(b, ", buffer %.64s (%" PRIu64 " bytes)", r->buffer, r->buffer_size);
        if (r->kind == STITCH__SIM_OUT_OF_BOUNDS)
            stitch__buf_printf(b, ", %" PRId64 " bytes %s", r->distance < 0 ? -r->distance : r->distance,
                               r->distance < 0 ? "before its start" : "past its end");
        else
            stitch__buf_printf(b, ", byte %" PRIu64, r->offset);
    }
    if (r->has_second) {
        if (r->kind == STITCH__SIM_ASYNC_NOT_WAITED)
            stitch__buf_puts(b, "; begun by ");
        else if (r->second.unknown)
            stitch__buf_puts(b, "; another thread reads it too, and this one");
        else
            stitch__buf_printf(b, "; the other %s is by ", r->second.write ? "write" : "read");
        if (!r->second.unknown)
            put_thread(b, &r->second);
        put_place(b, r->second.place);
    }
    if (*r->detail)
        stitch__buf_printf(b, " (%.160s)", r->detail);
    if (r->count > 1)
        stitch__buf_printf(b, "; %" PRIu64 " times", r->count);
    stitch__buf_putc(b, '\n');
}

/* All findings as text; returns how many there are. */
static size_t put_findings(stitch__buf *b, const stitch__verify *v, const stitch__sim_reports *reports)
{
    size_t count = 0;
    for (size_t i = 0; reports && i < reports->count; i++) {
        const stitch__sim_kernel_report *k = &reports->kernels[i];
        for (size_t j = 0; j < k->report_count; j++) {
            if (count < MAX_FINDINGS)
                put_finding(b, v, k, &k->reports[j]);
            count++;
        }
        if (!k->report_count && (k->error != CUDA_SUCCESS || *k->message)) {
            stitch__buf_printf(b, "kernel %.120s: %.500s\n", kernel_name(v, k->kernel),
                               *k->message ? k->message : "its launch failed");
            count++;
        }
    }
    if (count > MAX_FINDINGS)
        stitch__buf_printf(b, "(%zu more findings)\n", count - MAX_FINDINGS);
    return count;
}

static int changed_tensor(simulation *s, const uint64_t *before, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = s->v;
    uint64_t *after = stitch__calloc(v->ctx, v->count + 1, sizeof(*after));
    int rc = after ? STITCH_OK : stitch__err_nomem(v->ctx, err);

    if (!rc)
        rc = stitch__runner_candidate(s->runner).ops->hash(s->runner, &s->scope, 1, true, after, err);
    for (size_t i = 0; !rc && !*code && i < v->count; i++)
        if (before[i] != after[i])
            *code = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "the program changed its %s %s, which it may only read",
                                v->infos[i].role == STITCH_TENSOR_WEIGHT ? "weight" : "input", v->infos[i].name);
    stitch_free(after);
    return rc;
}

/* Load, prepare and one run under the checkers. *code: a call that failed by itself. */
static int run_checked(simulation *s, const uint64_t *hashes, int *code, stitch_error **why, stitch_error **err)
{
    const stitch__candidate_ops *ops = stitch__runner_candidate(s->runner).ops;
    const stitch__load how = {.poison = -1}; /* the checker knows what nothing has written */
    stitch__run run = STITCH__RUN_INIT;
    stitch__prepared facts;
    int rc = ops->load(s->runner, &s->scope, &how, code, why, err);

    if (!rc && !*code)
        rc = ops->prepare(s->runner, &s->scope, &facts, code, why, err);
    if (!rc && !*code)
        rc = ops->run(s->runner, &s->scope, &run, code, why, err);
    if (!rc && !*code && !stitch__scope_ended(&s->scope))
        rc = changed_tensor(s, hashes, code, why, err);
    return rc;
}

/* Everything with the device entered. */
static int simulate(simulation *s, int *code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = s->v;
    const stitch__runner_options options = {v->options.ops, v->options.op_count, {NULL, NULL}, NULL};
    uint64_t *hashes = stitch__calloc(v->ctx, v->count + 1, sizeof(*hashes));
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_TRIAL, 0);
    /* Whoever asks for the kernels from here on does not look at the clock. */
    int rc = hashes ? stitch__runner_warm(s->dev, &v->scope, err) : stitch__err_nomem(v->ctx, err);
    const stitch__candidate_ops *ops;

    if (!rc)
        rc = stitch__runner_open(v->task, v->program, s->dev, &options, &s->runner, err);
    if (rc)
        goto out;
    ops = stitch__runner_candidate(s->runner).ops;
    rc = ops->fill_weights(s->runner, &s->scope, stitch__seed_derive(v->options.seed, STITCH__SEED_WEIGHTS, 0), err);
    if (!rc)
        rc = ops->fill_inputs(s->runner, &s->scope, seed, NULL, err);
    if (!rc)
        rc = ops->clear_states(s->runner, &s->scope, 0, err);
    if (!rc)
        rc = ops->hash(s->runner, &s->scope, 1, true, hashes, err); /* waits for them */
    if (rc)
        goto out;
    free_reports(s, take_reports(s)); /* of whatever ran before */
    if (set_options(s, STITCH__SIM_CHECK_ALL, true) != CUDA_SUCCESS)
        rc = stitch__err(v->ctx, err, STITCH_E_UNSUPPORTED, "the simulated device does not take options");
    else
        rc = run_checked(s, hashes, code, why, err);
out:
    stitch_free(hashes);
    return rc;
}

/* The time was over while it ran: what the simulator says of the kernel that it stopped is no finding of its own. */
static int judge_time(simulation *s, stitch_error **err)
{
    stitch__verify *v = s->v;
    stitch_error *why = NULL;
    int code = stitch__scope_check(&v->scope, "simulating the program", &why);

    if (!code) { /* only the time that a simulation beside a GPU may take */
        stitch_error_free(why);
        return stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED,
                                 "given up after 20 s: smaller reduced dims would help", err);
    }
    if (code == STITCH_E_TIMEOUT)
        stitch__err_prefix(&why, "the program did not end in time: ");
    return stitch__stage_judge(v, STITCH_STAGE_SIMULATE, code, &why, err); /* cancellation is handed on */
}

static int judge_findings(simulation *s, int code, stitch_error **why, stitch_error **err)
{
    stitch__verify *v = s->v;
    stitch__sim_reports *reports = take_reports(s);
    stitch__buf b;
    char *text = NULL;
    size_t count;
    int rc = STITCH_OK;

    stitch__buf_init(&b, v->ctx);
    count = put_findings(&b, v, reports);
    free_reports(s, reports);
    text = stitch__buf_take(&b, NULL);
    if (!text)
        return stitch__err_nomem(v->ctx, err);
    if (count) {
        size_t line = strcspn(text, "\n");
        rc = stitch__report_set(v->report, &v->report->findings, text, 16384, err);
        if (!rc)
            code = stitch__err(v->ctx, why, code == STITCH_E_UNSUPPORTED ? code : STITCH_E_VALIDATE, "%.*s",
                               (int)(line < 1000 ? line : 1000), text);
    }
    stitch_free(text);
    /* The GPU can what the simulator cannot, and may have the memory. */
    if (!rc && s->own && (code == STITCH_E_UNSUPPORTED || code == STITCH_E_NOMEM)) {
        stitch__zero_free(v->report->findings);
        rc = stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED, stitch_error_message(*why), err);
        stitch_error_free(*why);
        *why = NULL;
        return rc;
    }
    return rc ? rc : stitch__stage_judge(v, STITCH_STAGE_SIMULATE, code, why, err);
}

/* After the checkers found nothing: the results, where the device is there for this stage only. */
static int try_results(simulation *s, stitch_error **err)
{
    if (set_options(s, STITCH__SIM_CHECK_BOUNDS, false) != CUDA_SUCCESS)
        return stitch__err(s->v->ctx, err, STITCH_E_UNSUPPORTED, "the simulated device does not take options");
    return stitch__reduced_try(s->v, s->dev, &s->scope, err);
}

static int run_entered(simulation *s, stitch_error **err)
{
    stitch__verify *v = s->v;
    stitch_error *why = NULL;
    int code = STITCH_OK, rc = simulate(s, &code, &why, err);

    if (!rc && stitch__scope_ended(&s->scope))
        rc = judge_time(s, err);
    else if (!rc)
        rc = judge_findings(s, code, &why, err);
    free_reports(s, take_reports(s));
    stitch_error_free(why);
    stitch__runner_close(s->runner); /* the stages that follow begin afresh */
    s->runner = NULL;
    if (!rc && s->own && v->report->stages[STITCH_STAGE_SIMULATE].status == STITCH_STAGE_PASSED)
        rc = try_results(s, err);
    /* What follows was checked: only what hardware finds as well. */
    (void)set_options(s, v->report->failed_stage ? STITCH__SIM_CHECK_ALL : STITCH__SIM_CHECK_BOUNDS, false);
    return rc;
}

/* ---- beside a GPU ------------------------------------------------------------------------------------------------ */

static int open_beside(simulation *s, stitch_error **err)
{
    stitch__verify *v = s->v;
    stitch_context_options options = *stitch__context_options(v->ctx);
    char device[64];
    int rc;

    snprintf(device, sizeof(device), "sim:%.50s", v->dev->info.arch);
    options.device = device;
    options.get_proc = NULL;
    rc = stitch_context_new(&s->own, &options, err);
    if (!rc)
        rc = stitch__device_get(s->own, &s->dev, err);
    return rc;
}

/* The verification's names and sizes follow the task's current dims, and so does what the program was validated for. */
static int use_dims(stitch__verify *v, bool reduced, stitch_error **err)
{
    int rc = stitch_task_use_reduced(v->task, reduced, err);

    for (size_t i = 0; !rc && i < v->count; i++)
        rc = stitch_interface_tensor(v->task->iface, i, &v->infos[i]);
    return rc ? rc : stitch_program_validate(v->program, v->task->iface, v->dev->info.arch, err);
}

static int skip_beside(stitch__verify *v, const stitch_error *why, stitch_error **err)
{
    char message[400];
    snprintf(message, sizeof(message), "not simulated: %.300s", why ? stitch_error_message(why) : "unknown");
    return stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED, message, err);
}

/* Whatever keeps it from being simulated is no reason not to run it: the worker is there for what is left. */
static int simulate_beside(stitch__verify *v, stitch_error **err)
{
    simulation s = {.v = v, .scope = v->scope};
    int64_t until = stitch__now_ns() + (int64_t)BESIDE_MS * 1000000;
    const stitch_image *ptx;
    stitch_error *why = NULL;
    int rc, back;

    if (v->options.simulate == STITCH_SIMULATE_NEVER)
        return stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED, "not asked for", err);
    if (!stitch__task_has_reduced(v->task) && !v->task->reduced)
        return stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED,
                                 "the task has no reduced dims to be simulated at", err);
    if (stitch__needs_host(v, v->program))
        return stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED,
                                 "the host's operators cannot be simulated", err);
    if (!s.scope.deadline_ns || s.scope.deadline_ns > until)
        s.scope.deadline_ns = until;
    bool full = !v->task->reduced;
    rc = stitch__candidate_ptx(v, v->dev->info.arch, &ptx, &why); /* which the runner then finds */
    if (!rc)
        rc = open_beside(&s, &why);
    if (!rc && full)
        rc = use_dims(v, true, &why);
    if (!rc)
        rc = stitch__device_enter(s.dev, &why);
    if (!rc) {
        rc = run_entered(&s, &why);
        stitch__device_leave(s.dev);
    }
    if (rc && rc != STITCH_E_CANCELLED && rc != STITCH_E_NOMEM)
        rc = skip_beside(v, why, err);
    else if (rc)
        stitch__err_hand_on(err, &why);
    stitch_error_free(why);
    back = full ? use_dims(v, false, rc ? NULL : err) : STITCH_OK;
    stitch_context_free(s.own);
    return rc ? rc : back;
}

int stitch__stage_simulate(stitch__verify *v, stitch_error **err)
{
    simulation s = {.v = v, .dev = v->dev, .scope = v->scope};
    return v->dev->info.simulated ? run_entered(&s, err) : simulate_beside(v, err);
}
