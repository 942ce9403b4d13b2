/* SPDX-License-Identifier: MIT
 *
 * The report as JSON (docs/report-format.md): everything that is needed to repeat and to judge the result.
 */
#include "verify/verify.h"

#include "cuda/clocks.h"

#include <math.h>

#include <stitch/version.h>

/* A writer that remembers that something failed, so that members can be put one after the other. */
typedef struct writer {
    bool failed;
} writer;

/* JSON has no infinities: they become text, so that nothing is lost. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static json_t *integer(uint64_t v)
{
    return json_integer((json_int_t)(v > INT64_MAX ? INT64_MAX : v));
}

static json_t *text(const char *s)
{
    return json_string(s ? s : "");
}

/* Seeds and hashes use all 64 bits, which not every JSON reader keeps. */
static json_t *hex(uint64_t v)
{
    char out[24];
    snprintf(out, sizeof(out), "0x%016" PRIx64, v);
    return json_string(out);
}

static json_t *stages_json(writer *w, const stitch_report *r)
{
    json_t *list = json_array();
    for (int i = 1; i < STITCH_STAGE_COUNT; i++) {
        json_t *s = json_object();
        stitch__json_put(&w->failed, s, "stage", text(stitch_stage_name(i)));
        stitch__json_put(&w->failed, s, "status", text(stitch__stage_status_name(r->stages[i].status)));
        stitch__json_put(&w->failed, s, "milliseconds", number(r->stages[i].ms));
        stitch__json_put(&w->failed, s, "message", text(r->stages[i].message));
        stitch__json_push(&w->failed, list, s);
    }
    return list;
}

static json_t *index_json(writer *w, const stitch__tensor_row *t, uint64_t index)
{
    json_t *list = json_array();
    int64_t parts[STITCH_MAX_RANK];
    if (index == UINT64_MAX)
        return json_decref(list), json_null();
    for (size_t k = t->rank; k-- > 0;) {
        uint64_t extent = t->shape[k] > 0 ? (uint64_t)t->shape[k] : 1;
        parts[k] = (int64_t)(index % extent);
        index /= extent;
    }
    for (size_t k = 0; k < t->rank; k++)
        stitch__json_push(&w->failed, list, json_integer(parts[k]));
    return list;
}

static const char *role_name(int role)
{
    static const char *const names[] = {"input", "weight", "output", "state"};
    return role >= 0 && (size_t)role < STITCH__COUNT(names) ? names[role] : "unknown";
}

static json_t *task_json(writer *w, const stitch_report *r)
{
    json_t *task = json_object(), *dims = json_object(), *tensors = json_array(), *tolerance = json_object();
    stitch__json_put(&w->failed, task, "name", text(r->task_name));
    stitch__json_put(&w->failed, task, "sha256", text(r->task_hash));
    for (size_t i = 0; i < r->dim_count; i++)
        stitch__json_put(&w->failed, dims, r->dims[i].name, json_integer(r->dims[i].value));
    stitch__json_put(&w->failed, task, "dims", dims);
    stitch__json_put(&w->failed, task, "reduced_dims", json_boolean(r->reduced));
    for (size_t i = 0; i < r->tensor_count; i++) {
        const stitch__tensor_row *t = &r->tensors[i];
        json_t *row = json_object(), *shape = json_array();
        stitch__json_put(&w->failed, row, "name", text(t->name));
        stitch__json_put(&w->failed, row, "role", text(role_name(t->role)));
        stitch__json_put(&w->failed, row, "dtype", text(stitch_dtype_name(t->dtype)));
        if (t->want_dtype)
            stitch__json_put(&w->failed, row, "reference_dtype", text(stitch_dtype_name(t->want_dtype)));
        for (size_t k = 0; k < t->rank; k++)
            stitch__json_push(&w->failed, shape, json_integer(t->shape[k]));
        stitch__json_put(&w->failed, row, "shape", shape);
        if (t->dist[0])
            stitch__json_put(&w->failed, row, "data", text(t->dist));
        stitch__json_push(&w->failed, tensors, row);
    }
    stitch__json_put(&w->failed, task, "tensors", tensors);
    stitch__json_put(&w->failed, tolerance, "atol", number(r->atol));
    stitch__json_put(&w->failed, tolerance, "rtol", number(r->rtol));
    stitch__json_put(&w->failed, task, "tolerance", tolerance);
    stitch__json_put(&w->failed, task, "precision", text(stitch__precision_name(r->precision)));
    stitch__json_put(&w->failed, task, "reference", text(r->reference));
    return task;
}

static json_t *diagnostics_json(writer *w, const stitch_report *r)
{
    static const char *const severities[] = {"note", "warning", "error"};
    json_t *list = json_array();
    for (size_t i = 0; i < r->diag_count; i++) {
        const stitch__diag *d = &r->diags[i];
        json_t *row = json_object();
        stitch__json_put(&w->failed, row, "severity",
                         text(d->severity >= 0 && d->severity <= 2 ? severities[d->severity] : "unknown"));
        stitch__json_put(&w->failed, row, "file", text(d->file));
        stitch__json_put(&w->failed, row, "line", json_integer(d->line));
        stitch__json_put(&w->failed, row, "column", json_integer(d->column));
        stitch__json_put(&w->failed, row, "message", text(d->message));
        stitch__json_put(&w->failed, row, "source", text(d->source_line));
        stitch__json_push(&w->failed, list, row);
    }
    return list;
}

static json_t *kernels_json(writer *w, const stitch_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->kernel_count; i++) {
        const stitch__kernel_row *k = &r->kernels[i];
        json_t *row = json_object();
        stitch__json_put(&w->failed, row, "name", text(k->name));
        stitch__json_put(&w->failed, row, "registers", json_integer(k->registers));
        stitch__json_put(&w->failed, row, "static_shared_bytes", json_integer(k->static_shared));
        stitch__json_put(&w->failed, row, "local_bytes", json_integer(k->local));
        stitch__json_put(&w->failed, row, "spill_store_bytes", json_integer(k->spill_stores));
        stitch__json_put(&w->failed, row, "spill_load_bytes", json_integer(k->spill_loads));
        stitch__json_put(&w->failed, row, "max_threads", json_integer(k->max_threads));
        stitch__json_push(&w->failed, list, row);
    }
    return list;
}

/* The part of the output that holds every mismatch: [first, last] along each axis. */
static json_t *range_json(writer *w, const stitch__tensor_row *t, const stitch__location *where)
{
    json_t *list = json_array();
    for (size_t k = 0; k < t->rank; k++) {
        json_t *pair = json_array();
        stitch__json_push(&w->failed, pair, integer(where->low[k]));
        stitch__json_push(&w->failed, pair, integer(where->high[k]));
        stitch__json_push(&w->failed, list, pair);
    }
    return list;
}

static json_t *element(const stitch__tensor_row *t, stitch__element e)
{
    return stitch__holds_i64(t) ? json_integer(e.integer) : number(e.real);
}

static json_t *comparison_json(writer *w, const stitch_report *r, const stitch__trial_output *o)
{
    const stitch__tensor_row *t = &r->tensors[o->tensor];
    const stitch__comparison *c = &o->c;
    json_t *row = json_object();
    stitch__json_put(&w->failed, row, "name", text(t->name));
    stitch__json_put(&w->failed, row, "elements", integer(c->elements));
    stitch__json_put(&w->failed, row, "mismatches", integer(c->mismatches));
    stitch__json_put(&w->failed, row, "max_abs_error", number(c->max_abs));
    stitch__json_put(&w->failed, row, "mean_abs_error", number(c->finite ? c->sum_abs / (double)c->finite : 0));
    stitch__json_put(&w->failed, row, "max_rel_error", number(c->max_rel));
    stitch__json_put(&w->failed, row, "mean_rel_error", number(c->rel_count ? c->sum_rel / (double)c->rel_count : 0));
    stitch__json_put(&w->failed, row, "worst_over_tolerance", number(c->worst_key < 0 ? 0 : c->worst_key));
    stitch__json_put(&w->failed, row, "worst_index", index_json(w, t, c->worst));
    stitch__json_put(&w->failed, row, "worst_got", element(t, c->worst_got));
    stitch__json_put(&w->failed, row, "worst_want", element(t, c->worst_want));
    if (c->mismatches) {
        stitch__json_put(&w->failed, row, "first_mismatch", index_json(w, t, c->first));
        stitch__json_put(&w->failed, row, "first_got", element(t, c->first_got));
        stitch__json_put(&w->failed, row, "first_want", element(t, c->first_want));
        stitch__json_put(&w->failed, row, "last_mismatch", index_json(w, t, c->last));
    }
    if (o->located)
        stitch__json_put(&w->failed, row, "mismatch_range", range_json(w, t, &o->where));
    if (o->budgeted) {
        json_t *budget = json_object();
        stitch__json_put(&w->failed, budget, "own_max_abs_error", number(o->own_max_abs));
        stitch__json_put(&w->failed, budget, "own_mean_abs_error", number(o->own_mean_abs));
        stitch__json_put(&w->failed, budget, "needed", json_boolean(c->mismatches > 0));
        stitch__json_put(&w->failed, budget, "kept", json_boolean(!c->mismatches || o->in_budget));
        stitch__json_put(&w->failed, row, "error_budget", budget);
    }
    stitch__json_put(&w->failed, row, "nan_got", integer(c->nan_got));
    stitch__json_put(&w->failed, row, "nan_want", integer(c->nan_want));
    stitch__json_put(&w->failed, row, "inf_got", integer(c->inf_got));
    stitch__json_put(&w->failed, row, "inf_want", integer(c->inf_want));
    stitch__json_put(&w->failed, row, "unwritten", integer(c->unwritten));
    stitch__json_put(&w->failed, row, "changed_when_repeated", integer(c->differ));
    return row;
}

static json_t *trials_json(writer *w, const stitch_report *r, bool declared)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->trial_count; i++) {
        const stitch__trial *t = &r->trials[i];
        json_t *row, *outputs;
        if (t->declared != declared)
            continue;
        row = json_object();
        outputs = json_array();
        stitch__json_put(&w->failed, row, "inputs", text(t->kind));
        stitch__json_put(&w->failed, row, "seed", hex(t->seed));
        stitch__json_put(&w->failed, row, "ran", json_boolean(t->ran));
        stitch__json_put(&w->failed, row, "passed", json_boolean(t->passed));
        if (!declared)
            stitch__json_put(&w->failed, row, "decides", json_boolean(t->strict));
        if (t->note)
            stitch__json_put(&w->failed, row, "note", text(t->note));
        for (size_t k = 0; t->ran && k < t->output_count; k++)
            stitch__json_push(&w->failed, outputs, comparison_json(w, r, &t->outputs[k]));
        stitch__json_put(&w->failed, row, "outputs", outputs);
        stitch__json_push(&w->failed, list, row);
    }
    return list;
}

static json_t *correct_json(writer *w, const stitch_report *r)
{
    json_t *correct = json_object(), *kernelbench = json_object(), *budget = json_object();
    int trials = 0, passed = 0;
    for (size_t i = 0; i < r->trial_count; i++) {
        bool close = true;
        if (!r->trials[i].declared || !r->trials[i].ran)
            continue;
        for (size_t k = 0; k < r->trials[i].output_count; k++)
            close = close && !r->trials[i].outputs[k].c.mismatches;
        trials++;
        passed += close;
    }
    stitch__json_put(&w->failed, correct, "trials", trials_json(w, r, true));
    stitch__json_put(&w->failed, correct, "robust", trials_json(w, r, false));
    stitch__json_put(&w->failed, budget, "baseline", r->budget ? text(r->budget) : json_null());
    stitch__json_put(&w->failed, budget, "factor", json_real(STITCH__BUDGET_FACTOR));
    stitch__json_put(&w->failed, correct, "error_budget", budget);
    stitch__json_put(&w->failed, correct, "bitwise_repeatable", json_boolean(r->repeatable));
    stitch__json_put(&w->failed, kernelbench, "allclose_trials", json_integer(trials));
    stitch__json_put(&w->failed, kernelbench, "passed", json_integer(passed));
    stitch__json_put(&w->failed, correct, "kernelbench", kernelbench);
    return correct;
}

static json_t *timing_json(writer *w, const stitch__timing *t)
{
    json_t *row = json_object(), *samples = json_array();
    stitch__json_put(&w->failed, row, "name", text(t->name));
    stitch__json_put(&w->failed, row, "precision",
                     text(t->precision < 0 ? "of the reference" : stitch__precision_name(t->precision)));
    stitch__json_put(&w->failed, row, "runs", json_integer((json_int_t)t->count));
    stitch__json_put(&w->failed, row, "median_us", number(t->median));
    stitch__json_put(&w->failed, row, "p5_us", number(t->low));
    stitch__json_put(&w->failed, row, "p95_us", number(t->high));
    stitch__json_put(&w->failed, row, "mean_us", number(t->mean));
    stitch__json_put(&w->failed, row, "min_us", number(t->smallest));
    stitch__json_put(&w->failed, row, "checked_runs", json_integer(t->checks));
    stitch__json_put(&w->failed, row, "checked_runs_passed", json_integer(t->checks_passed));
    stitch__json_put(&w->failed, row, "checked_max_abs_error", number(t->max_abs));
    stitch__json_put(&w->failed, row, "checked_max_rel_error", number(t->max_rel));
    for (size_t i = 0; i < t->count; i++)
        stitch__json_push(&w->failed, samples, json_real(round(t->samples[i] * 1000) / 1000));
    stitch__json_put(&w->failed, row, "samples_us", samples);
    return row;
}

static const char *no_busy_time(const stitch_report *r)
{
    const char *skipped = r->stages[STITCH_STAGE_PROFILE].message;

    if (r->busy_note)
        return r->busy_note;
    return r->stages[STITCH_STAGE_PROFILE].status == STITCH_STAGE_SKIPPED && skipped
               ? skipped
               : "stage profile did not come to it";
}

static json_t *candidate_json(writer *w, const stitch_report *r)
{
    json_t *row = timing_json(w, &r->candidate);
    double idle = stitch__idle_share(r);
    stitch__json_put(&w->failed, row, "busy_us", r->busy_us > 0 ? number(r->busy_us) : json_null());
    stitch__json_put(&w->failed, row, "idle_share", idle >= 0 ? number(idle) : json_null());
    if (!(r->busy_us > 0))
        stitch__json_put(&w->failed, row, "busy_note", text(no_busy_time(r)));
    return row;
}

/* The main baseline in both workers. */
static json_t *control_json(writer *w, const stitch_report *r)
{
    json_t *row;

    if (!r->control.runs)
        return json_null();
    row = json_object();
    stitch__json_put(&w->failed, row, "candidate_worker_us", number(r->control.here_us));
    stitch__json_put(&w->failed, row, "baseline_worker_us", number(r->control.there_us));
    stitch__json_put(&w->failed, row, "runs", json_integer(r->control.runs));
    stitch__json_put(&w->failed, row, "taken_off_us", number(r->candidate.taken_off_us));
    return row;
}

/* Against the main baseline, with the precision of both sides beside it. */
static json_t *speedup_json(writer *w, const stitch_report *r)
{
    json_t *row = json_object(), *interval = json_array();
    const stitch__timing *main = r->baseline_count ? &r->baselines[0] : NULL;
    double ratio = main ? stitch__speedup_over(r, main) : 0;
    if (!(ratio > 0)) {
        json_decref(row);
        json_decref(interval);
        return json_null();
    }
    stitch__json_put(&w->failed, row, "ratio", number(ratio));
    stitch__json_push(&w->failed, interval, number(r->speedup_low));
    stitch__json_push(&w->failed, interval, number(r->speedup_high));
    stitch__json_put(&w->failed, row, "interval_95", interval);
    stitch__json_put(&w->failed, row, "against", text(main->name));
    stitch__json_put(&w->failed, row, "baseline_precision",
                     text(main->precision < 0 ? "of the reference" : stitch__precision_name(main->precision)));
    stitch__json_put(&w->failed, row, "task_precision", text(stitch__precision_name(r->precision)));
    return row;
}

static json_t *bound_json(writer *w, const stitch_report *r)
{
    json_t *row = json_object();
    stitch__json_put(&w->failed, row, "us", number(r->bound.us));
    stitch__json_put(&w->failed, row, "input_and_output_bytes", integer(r->bound.bytes));
    stitch__json_put(&w->failed, row, "bytes_us", number(r->bound.bytes_us));
    stitch__json_put(&w->failed, row, "memory_bytes", integer(r->bound.memory_bytes));
    stitch__json_put(&w->failed, row, "memory_us", number(r->bound.memory_us));
    stitch__json_put(&w->failed, row, "flops", number(r->bound.flops));
    stitch__json_put(&w->failed, row, "flops_us", number(r->bound.flops_us));
    stitch__json_put(&w->failed, row, "weight_bytes", integer(r->bound.weight_bytes));
    stitch__json_put(&w->failed, row, "weights_us", number(r->bound.weights_us));
    return row;
}

static json_t *clocks_json(writer *w, const stitch_report *r)
{
    const stitch__clock_range *c = &r->clocks;
    json_t *row = json_object();
    char reasons[128];
    if (!c->count) {
        json_decref(row);
        return json_null();
    }
    stitch__clocks_describe(c->reasons, reasons, sizeof(reasons));
    stitch__json_put(&w->failed, row, "samples", json_integer((json_int_t)c->count));
    stitch__json_put(&w->failed, row, "sm_mhz_low", json_integer(c->sm_low));
    stitch__json_put(&w->failed, row, "sm_mhz_high", json_integer(c->sm_high));
    stitch__json_put(&w->failed, row, "memory_mhz_low", json_integer(c->memory_low));
    stitch__json_put(&w->failed, row, "memory_mhz_high", json_integer(c->memory_high));
    stitch__json_put(&w->failed, row, "throttled", json_boolean(*reasons != 0));
    stitch__json_put(&w->failed, row, "throttle_reasons", text(reasons));
    return row;
}

/* The order of the runs, which blocks change. */
#define METHOD(order)                                                                                                  \
    "events on the stream around each whole run; " order "; before each run new input contents, poisoned outputs, "    \
    "then flush_bytes written; outputs of checked runs compared with the reference"

static const char *method(const stitch_report *r)
{
    return r->blocks.alone ? METHOD("candidate and main baseline in the order A B B A")
                           : METHOD("candidate and main baseline in blocks of several runs, in the order A B B A; "
                                    "blocks take turns with the addresses of inputs and outputs, and the outputs of "
                                    "each run are kept until they are checked");
}

static json_t *blocks_json(writer *w, const stitch_report *r)
{
    const stitch__timed_blocks *b = &r->blocks;
    json_t *row = json_object();
    stitch__json_put(&w->failed, row, "count", integer(b->count));
    stitch__json_put(&w->failed, row, "longest", integer(b->longest));
    stitch__json_put(&w->failed, row, "input_places", json_integer(b->moved_inputs ? 2 : 1));
    stitch__json_put(&w->failed, row, "output_places", json_integer(b->second_outputs ? 2 : 1));
    stitch__json_put(&w->failed, row, "one_by_one", b->alone ? text(b->alone) : json_null());
    return row;
}

static json_t *time_json(writer *w, const stitch_report *r)
{
    json_t *time = json_object(), *list = json_array();
    stitch__json_put(&w->failed, time, "method", text(method(r)));
    stitch__json_put(&w->failed, time, "blocks", blocks_json(w, r));
    stitch__json_put(&w->failed, time, "speedup", speedup_json(w, r));
    stitch__json_put(&w->failed, time, "clock_excess_us", r->clock_known ? number(r->clock_excess_us) : json_null());
    stitch__json_put(&w->failed, time, "control", control_json(w, r));
    if (r->no_control)
        stitch__json_put(&w->failed, time, "control_note", text(r->no_control));
    stitch__json_put(&w->failed, time, "lower_bound", bound_json(w, r));
    stitch__json_put(&w->failed, time, "clocks", clocks_json(w, r));
    stitch__json_put(&w->failed, time, "warmup", json_integer(r->warmup));
    stitch__json_put(&w->failed, time, "flush_bytes", integer(r->flush_bytes));
    stitch__json_put(&w->failed, time, "persisting_l2_reset", json_boolean(r->l2_reset));
    stitch__json_put(&w->failed, time, "candidate", candidate_json(w, r));
    for (size_t i = 0; i < r->baseline_count; i++) {
        json_t *row = timing_json(w, &r->baselines[i]);
        stitch__json_put(&w->failed, row, "sha256", *r->baselines[i].hash ? text(r->baselines[i].hash) : json_null());
        stitch__json_put(&w->failed, row, "speedup", number(stitch__speedup_over(r, &r->baselines[i])));
        stitch__json_push(&w->failed, list, row);
    }
    stitch__json_put(&w->failed, time, "baselines", list);
    return time;
}

static json_t *environment_json(writer *w, const stitch_report *r)
{
    json_t *env = json_object();
    char driver[32];
    snprintf(driver, sizeof(driver), "%d.%d", r->driver_version / 1000, r->driver_version % 1000 / 10);
    stitch__json_put(&w->failed, env, "library", text(stitch_version_string()));
    stitch__json_put(&w->failed, env, "device", text(r->device_name));
    stitch__json_put(&w->failed, env, "arch", text(r->device_arch));
    stitch__json_put(&w->failed, env, "simulated", json_boolean(r->simulated));
    stitch__json_put(&w->failed, env, "reaches_host_memory", json_boolean(r->reaches_host));
    stitch__json_put(&w->failed, env, "driver", text(r->driver_version ? driver : ""));
    stitch__json_put(&w->failed, env, "driver_release",
                     r->driver_release && *r->driver_release ? text(r->driver_release) : json_null());
    stitch__json_put(&w->failed, env, "nvrtc", text(r->nvrtc));
    stitch__json_put(&w->failed, env, "cublaslt", r->cublaslt && *r->cublaslt ? text(r->cublaslt) : json_null());
    stitch__json_put(&w->failed, env, "program_ran", r->where ? text(r->where) : json_null());
    stitch__json_put(&w->failed, env, "outputs", r->outputs ? text(r->outputs) : json_null());
    return env;
}

static json_t *program_json(writer *w, const stitch_report *r)
{
    json_t *program = json_object();
    stitch__json_put(&w->failed, program, "sha256", text(r->program_hash));
    stitch__json_put(&w->failed, program, "launches", integer(r->launches));
    stitch__json_put(&w->failed, program, "prepare_launches", integer(r->prepare_launches));
    stitch__json_put(&w->failed, program, "prepare_us", number(r->prepare_us));
    stitch__json_put(&w->failed, program, "workspace_bytes", integer(r->workspace_bytes));
    stitch__json_put(&w->failed, program, "library_workspace_bytes", integer(r->library_workspace_bytes));
    stitch__json_put(&w->failed, program, "compile_cached", json_boolean(r->compile_cached));
    stitch__json_put(&w->failed, program, "kernels", kernels_json(w, r));
    return program;
}

static json_t *summary_json(writer *w, const stitch_report *r)
{
    json_t *row = json_object();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_report_summary_get(r, &s);
    stitch__json_put(&w->failed, row, "failed_stage",
                     r->failed_stage ? text(stitch_stage_name(r->failed_stage)) : json_null());
    stitch__json_put(&w->failed, row, "status", text(stitch_status_name(r->failed_status)));
    stitch__json_put(&w->failed, row, "correct", json_boolean(s.correct));
    stitch__json_put(&w->failed, row, "timed", json_boolean(s.timed));
    stitch__json_put(&w->failed, row, "degenerate", json_boolean(s.degenerate));
    if (s.degenerate)
        stitch__json_put(&w->failed, row, "degenerate_reason", text(r->exploit.degenerate_reason));
    stitch__json_put(&w->failed, row, "max_abs_error", number(s.max_abs_error));
    stitch__json_put(&w->failed, row, "max_rel_error", number(s.max_rel_error));
    stitch__json_put(&w->failed, row, "mean_abs_error", number(s.mean_abs_error));
    stitch__json_put(&w->failed, row, "elements", integer(s.elements));
    stitch__json_put(&w->failed, row, "mismatches", integer(s.mismatches));
    stitch__json_put(&w->failed, row, "median_us", number(s.median_us));
    stitch__json_put(&w->failed, row, "baseline_us", number(s.baseline_us));
    stitch__json_put(&w->failed, row, "speedup", number(s.speedup));
    stitch__json_put(&w->failed, row, "speedup_low", number(s.speedup_low));
    stitch__json_put(&w->failed, row, "speedup_high", number(s.speedup_high));
    stitch__json_put(&w->failed, row, "busy_us", number(s.busy_us));
    return row;
}

char *stitch__report_to_json(const stitch_report *r)
{
    writer w = {false};
    json_t *root = json_object(), *notes = json_array();
    char *out = NULL;

    stitch__json_put(&w.failed, root, "stitch_report", json_integer(1));
    stitch__json_put(&w.failed, root, "summary", summary_json(&w, r));
    stitch__json_put(&w.failed, root, "stages", stages_json(&w, r));
    stitch__json_put(&w.failed, root, "findings", text(r->findings));
    stitch__json_put(&w.failed, root, "diagnostics", diagnostics_json(&w, r));
    stitch__json_put(&w.failed, root, "diagnostics_left_out", integer(r->diags_left_out));
    stitch__json_put(&w.failed, root, "seed", hex(r->seed));
    if (r->options)
        stitch__json_put(&w.failed, root, "options", json_incref(r->options));
    if (r->task_name) {
        stitch__json_put(&w.failed, root, "task", task_json(&w, r));
        stitch__json_put(&w.failed, root, "program", program_json(&w, r));
        stitch__json_put(&w.failed, root, "environment", environment_json(&w, r));
        stitch__json_put(&w.failed, root, "correct", correct_json(&w, r));
        stitch__json_put(&w.failed, root, "exploit", stitch__exploit_to_json(r));
        if (r->exploit.admission)
            stitch__json_put(&w.failed, root, "admission", json_incref(r->exploit.admission));
    }
    if (r->candidate.count)
        stitch__json_put(&w.failed, root, "time", time_json(&w, r));
    if (r->profile)
        stitch__json_put(&w.failed, root, "profile", json_loads(r->profile->json, 0, NULL));
    for (size_t i = 0; i < r->note_count; i++)
        stitch__json_push(&w.failed, notes, text(r->notes[i]));
    stitch__json_put(&w.failed, root, "notes", notes);
    stitch__json_put(&w.failed, root, "fingerprint", text(r->fingerprint));
    if (!w.failed)
        out = stitch__json_dump(r->ctx, root, 2);
    json_decref(root);
    return out;
}
