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

static void put(writer *w, json_t *object, const char *key, json_t *value)
{
    if (!value || json_object_set_new(object, key, value))
        w->failed = true;
}

static void push(writer *w, json_t *array, json_t *value)
{
    if (!value || json_array_append_new(array, value))
        w->failed = true;
}

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
        put(w, s, "stage", text(stitch_stage_name(i)));
        put(w, s, "status", text(stitch__stage_status_name(r->stages[i].status)));
        put(w, s, "milliseconds", number(r->stages[i].ms));
        put(w, s, "message", text(r->stages[i].message));
        push(w, list, s);
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
        push(w, list, json_integer(parts[k]));
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
    put(w, task, "name", text(r->task_name));
    put(w, task, "sha256", text(r->task_hash));
    for (size_t i = 0; i < r->dim_count; i++)
        put(w, dims, r->dims[i].name, json_integer(r->dims[i].value));
    put(w, task, "dims", dims);
    put(w, task, "reduced_dims", json_boolean(r->reduced));
    for (size_t i = 0; i < r->tensor_count; i++) {
        const stitch__tensor_row *t = &r->tensors[i];
        json_t *row = json_object(), *shape = json_array();
        put(w, row, "name", text(t->name));
        put(w, row, "role", text(role_name(t->role)));
        put(w, row, "dtype", text(stitch_dtype_name(t->dtype)));
        if (t->want_dtype)
            put(w, row, "reference_dtype", text(stitch_dtype_name(t->want_dtype)));
        for (size_t k = 0; k < t->rank; k++)
            push(w, shape, json_integer(t->shape[k]));
        put(w, row, "shape", shape);
        if (t->dist[0])
            put(w, row, "data", text(t->dist));
        push(w, tensors, row);
    }
    put(w, task, "tensors", tensors);
    put(w, tolerance, "atol", number(r->atol));
    put(w, tolerance, "rtol", number(r->rtol));
    put(w, task, "tolerance", tolerance);
    put(w, task, "precision", text(stitch__precision_name(r->precision)));
    put(w, task, "reference", text(r->reference));
    return task;
}

static json_t *diagnostics_json(writer *w, const stitch_report *r)
{
    static const char *const severities[] = {"note", "warning", "error"};
    json_t *list = json_array();
    for (size_t i = 0; i < r->diag_count; i++) {
        const stitch__diag *d = &r->diags[i];
        json_t *row = json_object();
        put(w, row, "severity", text(d->severity >= 0 && d->severity <= 2 ? severities[d->severity] : "unknown"));
        put(w, row, "file", text(d->file));
        put(w, row, "line", json_integer(d->line));
        put(w, row, "column", json_integer(d->column));
        put(w, row, "message", text(d->message));
        put(w, row, "source", text(d->source_line));
        push(w, list, row);
    }
    return list;
}

static json_t *kernels_json(writer *w, const stitch_report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->kernel_count; i++) {
        const stitch__kernel_row *k = &r->kernels[i];
        json_t *row = json_object();
        put(w, row, "name", text(k->name));
        put(w, row, "registers", json_integer(k->registers));
        put(w, row, "static_shared_bytes", json_integer(k->static_shared));
        put(w, row, "local_bytes", json_integer(k->local));
        put(w, row, "spill_store_bytes", json_integer(k->spill_stores));
        put(w, row, "spill_load_bytes", json_integer(k->spill_loads));
        put(w, row, "max_threads", json_integer(k->max_threads));
        push(w, list, row);
    }
    return list;
}

/* The part of the output that holds every mismatch: [first, last] along each axis. */
static json_t *range_json(writer *w, const stitch__tensor_row *t, const stitch__location *where)
{
    json_t *list = json_array();
    for (size_t k = 0; k < t->rank; k++) {
        json_t *pair = json_array();
        push(w, pair, integer(where->low[k]));
        push(w, pair, integer(where->high[k]));
        push(w, list, pair);
    }
    return list;
}

static json_t *comparison_json(writer *w, const stitch_report *r, const stitch__trial_output *o)
{
    const stitch__tensor_row *t = &r->tensors[o->tensor];
    const stitch__comparison *c = &o->c;
    json_t *row = json_object();
    put(w, row, "name", text(t->name));
    put(w, row, "elements", integer(c->elements));
    put(w, row, "mismatches", integer(c->mismatches));
    put(w, row, "max_abs_error", number(c->max_abs));
    put(w, row, "mean_abs_error", number(c->finite ? c->sum_abs / (double)c->finite : 0));
    put(w, row, "max_rel_error", number(c->max_rel));
    put(w, row, "mean_rel_error", number(c->rel_count ? c->sum_rel / (double)c->rel_count : 0));
    put(w, row, "worst_over_tolerance", number(c->worst_key < 0 ? 0 : c->worst_key));
    put(w, row, "worst_index", index_json(w, t, c->worst));
    put(w, row, "worst_got", number(c->worst_got));
    put(w, row, "worst_want", number(c->worst_want));
    if (c->mismatches) {
        put(w, row, "first_mismatch", index_json(w, t, c->first));
        put(w, row, "first_got", number(c->first_got));
        put(w, row, "first_want", number(c->first_want));
        put(w, row, "last_mismatch", index_json(w, t, c->last));
    }
    if (o->located)
        put(w, row, "mismatch_range", range_json(w, t, &o->where));
    if (o->budgeted) {
        json_t *budget = json_object();
        put(w, budget, "own_max_abs_error", number(o->own_max_abs));
        put(w, budget, "own_mean_abs_error", number(o->own_mean_abs));
        put(w, budget, "needed", json_boolean(c->mismatches > 0));
        put(w, budget, "kept", json_boolean(!c->mismatches || o->in_budget));
        put(w, row, "error_budget", budget);
    }
    put(w, row, "nan_got", integer(c->nan_got));
    put(w, row, "nan_want", integer(c->nan_want));
    put(w, row, "inf_got", integer(c->inf_got));
    put(w, row, "inf_want", integer(c->inf_want));
    put(w, row, "unwritten", integer(c->unwritten));
    put(w, row, "changed_when_repeated", integer(c->differ));
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
        put(w, row, "inputs", text(t->kind));
        put(w, row, "seed", hex(t->seed));
        put(w, row, "ran", json_boolean(t->ran));
        put(w, row, "passed", json_boolean(t->passed));
        if (!declared)
            put(w, row, "decides", json_boolean(t->strict));
        if (t->note)
            put(w, row, "note", text(t->note));
        for (size_t k = 0; t->ran && k < t->output_count; k++)
            push(w, outputs, comparison_json(w, r, &t->outputs[k]));
        put(w, row, "outputs", outputs);
        push(w, list, row);
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
    put(w, correct, "trials", trials_json(w, r, true));
    put(w, correct, "robust", trials_json(w, r, false));
    put(w, budget, "baseline", r->budget ? text(r->budget) : json_null());
    put(w, budget, "factor", json_real(STITCH__BUDGET_FACTOR));
    put(w, correct, "error_budget", budget);
    put(w, correct, "bitwise_repeatable", json_boolean(r->repeatable));
    put(w, kernelbench, "allclose_trials", json_integer(trials));
    put(w, kernelbench, "passed", json_integer(passed));
    put(w, correct, "kernelbench", kernelbench);
    return correct;
}

static json_t *timing_json(writer *w, const stitch__timing *t)
{
    json_t *row = json_object(), *samples = json_array();
    put(w, row, "name", text(t->name));
    put(w, row, "precision", text(t->precision < 0 ? "of the reference" : stitch__precision_name(t->precision)));
    put(w, row, "runs", json_integer((json_int_t)t->count));
    put(w, row, "median_us", number(t->median));
    put(w, row, "p5_us", number(t->low));
    put(w, row, "p95_us", number(t->high));
    put(w, row, "mean_us", number(t->mean));
    put(w, row, "min_us", number(t->smallest));
    put(w, row, "checked_runs", json_integer(t->checks));
    put(w, row, "checked_runs_passed", json_integer(t->checks_passed));
    put(w, row, "checked_max_abs_error", number(t->max_abs));
    put(w, row, "checked_max_rel_error", number(t->max_rel));
    for (size_t i = 0; i < t->count; i++)
        push(w, samples, json_real(round(t->samples[i] * 1000) / 1000));
    put(w, row, "samples_us", samples);
    return row;
}

static json_t *candidate_json(writer *w, const stitch_report *r)
{
    json_t *row = timing_json(w, &r->candidate);
    double idle = stitch__idle_share(r);
    put(w, row, "busy_us", r->busy_us > 0 ? number(r->busy_us) : json_null());
    put(w, row, "idle_share", idle >= 0 ? number(idle) : json_null());
    if (!(r->busy_us > 0))
        put(w, row, "busy_note", text(r->busy_note ? r->busy_note : "stage profile did not come to it"));
    return row;
}

/* Against the main baseline, with the precision of both sides beside it. */
static json_t *speedup_json(writer *w, const stitch_report *r)
{
    json_t *row = json_object(), *interval = json_array();
    const stitch__timing *main = r->baseline_count ? &r->baselines[0] : NULL;
    if (!main || !main->count || r->candidate.median <= 0) {
        json_decref(row);
        json_decref(interval);
        return json_null();
    }
    put(w, row, "ratio", number(main->median / r->candidate.median));
    push(w, interval, number(r->speedup_low));
    push(w, interval, number(r->speedup_high));
    put(w, row, "interval_95", interval);
    put(w, row, "against", text(main->name));
    put(w, row, "baseline_precision",
        text(main->precision < 0 ? "of the reference" : stitch__precision_name(main->precision)));
    put(w, row, "task_precision", text(stitch__precision_name(r->precision)));
    return row;
}

static json_t *bound_json(writer *w, const stitch_report *r)
{
    json_t *row = json_object();
    put(w, row, "us", number(r->bound.us));
    put(w, row, "input_and_output_bytes", integer(r->bound.bytes));
    put(w, row, "bytes_us", number(r->bound.bytes_us));
    put(w, row, "memory_bytes", integer(r->bound.memory_bytes));
    put(w, row, "memory_us", number(r->bound.memory_us));
    put(w, row, "flops", number(r->bound.flops));
    put(w, row, "flops_us", number(r->bound.flops_us));
    put(w, row, "weight_bytes", integer(r->bound.weight_bytes));
    put(w, row, "weights_us", number(r->bound.weights_us));
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
    put(w, row, "samples", json_integer((json_int_t)c->count));
    put(w, row, "sm_mhz_low", json_integer(c->sm_low));
    put(w, row, "sm_mhz_high", json_integer(c->sm_high));
    put(w, row, "memory_mhz_low", json_integer(c->memory_low));
    put(w, row, "memory_mhz_high", json_integer(c->memory_high));
    put(w, row, "throttled", json_boolean(*reasons != 0));
    put(w, row, "throttle_reasons", text(reasons));
    return row;
}

static json_t *time_json(writer *w, const stitch_report *r)
{
    json_t *time = json_object(), *list = json_array();
    put(w, time, "method",
        text(
            "events on the stream around each whole run; candidate and main baseline in the order A B B A; before each "
            "run "
            "new input contents, poisoned outputs, then flush_bytes written; outputs of checked runs compared with the "
            "reference"));
    put(w, time, "speedup", speedup_json(w, r));
    put(w, time, "lower_bound", bound_json(w, r));
    put(w, time, "clocks", clocks_json(w, r));
    put(w, time, "warmup", json_integer(r->warmup));
    put(w, time, "flush_bytes", integer(r->flush_bytes));
    put(w, time, "persisting_l2_reset", json_boolean(r->l2_reset));
    put(w, time, "candidate", candidate_json(w, r));
    for (size_t i = 0; i < r->baseline_count; i++) {
        json_t *row = timing_json(w, &r->baselines[i]);
        put(w, row, "speedup", number(r->candidate.median > 0 ? r->baselines[i].median / r->candidate.median : 0));
        push(w, list, row);
    }
    put(w, time, "baselines", list);
    return time;
}

static json_t *environment_json(writer *w, const stitch_report *r)
{
    json_t *env = json_object();
    char driver[32];
    snprintf(driver, sizeof(driver), "%d.%d", r->driver_version / 1000, r->driver_version % 1000 / 10);
    put(w, env, "library", text(stitch_version_string()));
    put(w, env, "device", text(r->device_name));
    put(w, env, "arch", text(r->device_arch));
    put(w, env, "simulated", json_boolean(r->simulated));
    put(w, env, "driver", text(r->driver_version ? driver : ""));
    put(w, env, "nvrtc", text(r->nvrtc));
    put(w, env, "program_ran", r->where ? text(r->where) : json_null());
    return env;
}

static json_t *program_json(writer *w, const stitch_report *r)
{
    json_t *program = json_object();
    put(w, program, "sha256", text(r->program_hash));
    put(w, program, "launches", integer(r->launches));
    put(w, program, "prepare_launches", integer(r->prepare_launches));
    put(w, program, "prepare_us", number(r->prepare_us));
    put(w, program, "workspace_bytes", integer(r->workspace_bytes));
    put(w, program, "library_workspace_bytes", integer(r->library_workspace_bytes));
    put(w, program, "compile_cached", json_boolean(r->compile_cached));
    put(w, program, "kernels", kernels_json(w, r));
    return program;
}

static json_t *summary_json(writer *w, const stitch_report *r)
{
    json_t *row = json_object();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_report_summary_get(r, &s);
    put(w, row, "failed_stage", r->failed_stage ? text(stitch_stage_name(r->failed_stage)) : json_null());
    put(w, row, "status", text(stitch_status_name(r->failed_status)));
    put(w, row, "correct", json_boolean(s.correct));
    put(w, row, "timed", json_boolean(s.timed));
    put(w, row, "degenerate", json_boolean(s.degenerate));
    if (s.degenerate)
        put(w, row, "degenerate_reason", text(r->exploit.degenerate_reason));
    put(w, row, "max_abs_error", number(s.max_abs_error));
    put(w, row, "max_rel_error", number(s.max_rel_error));
    put(w, row, "mean_abs_error", number(s.mean_abs_error));
    put(w, row, "elements", integer(s.elements));
    put(w, row, "mismatches", integer(s.mismatches));
    put(w, row, "median_us", number(s.median_us));
    put(w, row, "baseline_us", number(s.baseline_us));
    put(w, row, "speedup", number(s.speedup));
    put(w, row, "speedup_low", number(s.speedup_low));
    put(w, row, "speedup_high", number(s.speedup_high));
    put(w, row, "busy_us", number(s.busy_us));
    return row;
}

char *stitch__report_to_json(const stitch_report *r)
{
    writer w = {false};
    json_t *root = json_object(), *notes = json_array();
    char *out = NULL;

    put(&w, root, "stitch_report", json_integer(1));
    put(&w, root, "summary", summary_json(&w, r));
    put(&w, root, "stages", stages_json(&w, r));
    put(&w, root, "findings", text(r->findings));
    put(&w, root, "diagnostics", diagnostics_json(&w, r));
    put(&w, root, "diagnostics_left_out", integer(r->diags_left_out));
    put(&w, root, "seed", hex(r->seed));
    if (r->task_name) {
        put(&w, root, "task", task_json(&w, r));
        put(&w, root, "program", program_json(&w, r));
        put(&w, root, "environment", environment_json(&w, r));
        put(&w, root, "correct", correct_json(&w, r));
        put(&w, root, "exploit", stitch__exploit_to_json(r));
        if (r->exploit.admission)
            put(&w, root, "admission", json_incref(r->exploit.admission));
    }
    if (r->candidate.count)
        put(&w, root, "time", time_json(&w, r));
    if (r->profile)
        put(&w, root, "profile", json_loads(r->profile->json, 0, NULL));
    for (size_t i = 0; i < r->note_count; i++)
        push(&w, notes, text(r->notes[i]));
    put(&w, root, "notes", notes);
    put(&w, root, "fingerprint", text(r->fingerprint));
    if (!w.failed)
        out = stitch__json_dump(r->ctx, root, 2);
    json_decref(root);
    return out;
}
