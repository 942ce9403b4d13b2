/* SPDX-License-Identifier: MIT
 *
 * Stage simulate: on a simulated device, one run under all of the simulator's checkers.
 */
#include "verify/verify.h"

#include "sim/sim_ext.h"

#define MAX_FINDINGS 20

static const struct {
    const char *word, *text;
} faults[] = {
#define ROW(name, word, text) {word, text},
    STITCH__SIM_FAULT_LIST(ROW)
#undef ROW
};

/* Under the checkers, a kernel that never ends is stopped by the verification's own deadline or cancellation. */
static CUresult set_options(stitch__verify *v, uint32_t flags, bool keep_going)
{
    stitch__sim_set_options_fn set;
    stitch__sim_options options = {.flags = flags,
                                   .keep_going = keep_going,
                                   .cancel = keep_going ? v->scope.cancel : NULL,
                                   .deadline_ns = keep_going ? v->scope.deadline_ns : 0};
    memcpy(&set, &v->dev->drv->sim_set_options, sizeof(set));
    return set ? set(&options) : CUDA_ERROR_NOT_SUPPORTED;
}

static stitch__sim_reports *take_reports(stitch__verify *v)
{
    stitch__sim_take_reports_fn take;
    stitch__sim_reports *reports = NULL;
    memcpy(&take, &v->dev->drv->sim_take_reports, sizeof(take));
    return take && take(&reports) == CUDA_SUCCESS ? reports : NULL;
}

static void free_reports(stitch__verify *v, stitch__sim_reports *reports)
{
    stitch__sim_free_reports_fn release;
    memcpy(&release, &v->dev->drv->sim_free_reports, sizeof(release));
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
    return base && strcmp(base + 1, "program.cu") == 0 ? base + 1 : path;
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

/* The reference's weights are the same memory here: a program that writes them must not get any further. */
static int check_unchanged(stitch__verify *v, int *code, stitch_error **why, stitch_error **err)
{
    size_t changed = SIZE_MAX;
    int rc = stitch__find_changed(v, true, &changed, err);
    if (!rc && changed != SIZE_MAX)
        *code =
            stitch__err(v->ctx, why, STITCH_E_VALIDATE, "the program changed its %s %s, which it may only read",
                        v->infos[changed].role == STITCH_TENSOR_WEIGHT ? "weight" : "input", v->infos[changed].name);
    return rc;
}

/* Load, prepare and one run. *code: a call that failed by itself. */
static int run_once(stitch__verify *v, int *code, stitch_error **why, stitch_error **err)
{
    stitch__runner_options options = {v->options.ops, v->options.op_count, {v->first, v->again}, v->stream};
    const stitch__load how = {.poison = -1}; /* the checker knows what nothing has written */
    stitch__run run = STITCH__RUN_INIT;
    stitch__prepared facts;
    int rc = stitch__fill_inputs(v, stitch__seed_derive(v->options.seed, STITCH__SEED_TRIAL, 0), NULL, err);

    if (!rc)
        rc = stitch__clear_states(v, v->first, err);
    if (!rc)
        rc = stitch__hash_tensors(v, true, err); /* waits for them */
    if (!rc)
        rc = stitch__runner_open(v->task, v->program, v->dev, &options, &v->runner, err);
    if (rc)
        return rc;
    v->candidate = stitch__runner_candidate(v->runner);
    free_reports(v, take_reports(v)); /* of whatever ran before */
    if (set_options(v, STITCH__SIM_CHECK_ALL, true) != CUDA_SUCCESS)
        return stitch__err(v->ctx, err, STITCH_E_UNSUPPORTED, "the simulated device does not take options");
    rc = v->candidate.ops->load(v->runner, &v->scope, &how, code, why, err);
    if (!rc && !*code)
        rc = v->candidate.ops->prepare(v->runner, &v->scope, &facts, code, why, err);
    if (!rc && !*code)
        rc = v->candidate.ops->run(v->runner, &v->scope, &run, code, why, err);
    if (!rc && !*code && !stitch__scope_ended(&v->scope))
        rc = check_unchanged(v, code, why, err);
    if (!stitch__abandoned(v)) { /* the stages that follow begin afresh */
        stitch__runner_close(v->runner);
        v->candidate = (stitch__candidate){NULL, NULL};
        v->runner = NULL;
    }
    return rc;
}

/* The time was over while it ran: what the simulator says of the kernel that it stopped is no finding of its own. */
static int judge_time(stitch__verify *v, stitch_error **err)
{
    stitch_error *why = NULL;
    int code = stitch__scope_check(&v->scope, "simulating the program", &why);

    free_reports(v, take_reports(v));
    stitch__err_prefix(&why, "the program did not end in time: ");
    return stitch__stage_judge(v, STITCH_STAGE_SIMULATE, code, &why, err); /* cancellation is handed on */
}

static int judge_findings(stitch__verify *v, int code, stitch_error **why, stitch_error **err)
{
    stitch__sim_reports *reports = take_reports(v);
    stitch__buf b;
    char *text = NULL;
    size_t count;
    int rc = STITCH_OK;

    stitch__buf_init(&b, v->ctx);
    count = put_findings(&b, v, reports);
    free_reports(v, reports);
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
    return rc ? rc : stitch__stage_judge(v, STITCH_STAGE_SIMULATE, code, why, err);
}

int stitch__stage_simulate(stitch__verify *v, stitch_error **err)
{
    stitch_error *why = NULL;
    int code = STITCH_OK, rc;

    if (!v->dev->info.simulated)
        return stitch__stage_end(v, STITCH_STAGE_SIMULATE, STITCH_STAGE_SKIPPED,
                                 "the device is real; this version simulates only on simulated devices", err);
    rc = stitch__sets_open(v, err);
    if (!rc)
        rc = run_once(v, &code, &why, err);
    if (!rc && stitch__scope_ended(&v->scope))
        rc = judge_time(v, err);
    else if (!rc)
        rc = judge_findings(v, code, &why, err);
    else
        free_reports(v, take_reports(v));
    stitch_error_free(why);
    /* What follows was checked: only what hardware finds as well. */
    (void)set_options(v, v->report->failed_stage ? STITCH__SIM_CHECK_ALL : STITCH__SIM_CHECK_BOUNDS, false);
    return rc;
}
