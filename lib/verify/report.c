/* SPDX-License-Identifier: MIT
 *
 * The report as a container: filled by the stages, then finished and never changed again.
 */
#include "verify/verify.h"

#include <stdlib.h>

static const char *const stage_names[] = {"none",
#define NAME(name, text) text,
                                          STITCH_STAGE_LIST(NAME)
#undef NAME
};

const char *stitch_stage_name(int stage)
{
    return stage > 0 && stage < STITCH_STAGE_COUNT ? stage_names[stage] : stage_names[0];
}

const char *stitch__stage_status_name(int status)
{
    static const char *const names[] = {"not run", "passed", "failed", "skipped"};
    return status >= 0 && (size_t)status < STITCH__COUNT(names) ? names[status] : "unknown";
}

int stitch_verify_options_init(stitch_verify_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(*options));
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

int stitch__report_new(stitch_context *ctx, stitch_report **out, stitch_error **err)
{
    stitch_report *r = stitch__calloc(ctx, 1, sizeof(*r));
    *out = r;
    if (!r)
        return stitch__err_nomem(ctx, err);
    r->ctx = ctx;
    r->repeatable = true;
    return STITCH_OK;
}

int stitch__report_set(stitch_report *r, char **field, const char *text, size_t max, stitch_error **err)
{
    stitch__buf b;
    char *clean;

    stitch__buf_init(&b, r->ctx);
    stitch__buf_puts(&b, "");
    stitch__buf_puts_clean(&b, text, strlen(text), max);
    clean = stitch__buf_take(&b, NULL);
    if (!clean)
        return stitch__err_nomem(r->ctx, err);
    stitch_free(*field);
    *field = clean;
    return STITCH_OK;
}

int stitch__report_note(stitch_report *r, stitch_error **err, const char *fmt, ...)
{
    stitch__buf b;
    va_list ap;
    char *text;

    stitch__buf_init(&b, r->ctx);
    va_start(ap, fmt);
    stitch__buf_vprintf(&b, fmt, ap);
    va_end(ap);
    text = stitch__buf_take(&b, NULL);
    if (!text || stitch__grow(r->ctx, &r->notes, &r->note_cap, r->note_count + 1, sizeof(*r->notes))) {
        stitch_free(text);
        return stitch__err_nomem(r->ctx, err);
    }
    r->notes[r->note_count++] = text;
    return STITCH_OK;
}

int stitch__report_stage_set(stitch_report *r, int stage, int status, int code, const char *message, stitch_error **err)
{
    r->stages[stage].status = status;
    if (status == STITCH_STAGE_FAILED && r->failed_stage == STITCH_STAGE_NONE) {
        r->failed_stage = stage;
        r->failed_status = code;
    }
    return message && *message ? stitch__report_set(r, &r->stages[stage].message, message, 2000, err) : STITCH_OK;
}

/* Line `line` of a text, from 1. */
static const char *line_of(const char *text, int line, size_t *len)
{
    const char *end;
    while (text && --line > 0) {
        text = strchr(text, '\n');
        if (text)
            text++;
    }
    if (!text || line < 0)
        return *len = 0, "";
    end = strchr(text, '\n');
    *len = end ? (size_t)(end - text) : strlen(text);
    return text;
}

int stitch__report_add_diag(stitch_report *r, const stitch_diagnostic *d, const char *source, stitch_error **err)
{
    stitch__diag made = {.severity = d->severity, .line = d->line, .column = d->column};
    const char *text = "";
    size_t len = 0;
    char *line = NULL;
    int rc;

    if (r->diag_count >= 200) { /* a broken template can give thousands */
        r->diags_left_out++;
        return STITCH_OK;
    }
    if (stitch__grow(r->ctx, &r->diags, &r->diag_cap, r->diag_count + 1, sizeof(*r->diags)))
        return stitch__err_nomem(r->ctx, err);
    if (d->line > 0 && d->file && strcmp(d->file, "program.cu") == 0)
        text = line_of(source, d->line, &len);
    line = stitch__strndup(r->ctx, text, len < 4096 ? len : 4096);
    rc = line ? stitch__report_set(r, &made.source_line, line, 240, err) : stitch__err_nomem(r->ctx, err);
    if (!rc)
        rc = stitch__report_set(r, &made.file, d->file ? d->file : "", 240, err);
    if (!rc)
        rc = stitch__report_set(r, &made.message, d->message ? d->message : "", 1000, err);
    stitch_free(line);
    if (rc) {
        stitch_free(made.source_line);
        stitch_free(made.file);
        stitch_free(made.message);
        return rc;
    }
    r->diags[r->diag_count++] = made;
    return STITCH_OK;
}

stitch__trial *stitch__report_add_trial(stitch_report *r, const char *kind, bool strict, size_t outputs)
{
    stitch__trial *t;
    stitch__trial_output *list = stitch__calloc(r->ctx, outputs ? outputs : 1, sizeof(*list));

    if (!list || stitch__grow(r->ctx, &r->trials, &r->trial_cap, r->trial_count + 1, sizeof(*r->trials))) {
        stitch_free(list);
        return NULL;
    }
    t = &r->trials[r->trial_count++];
    *t = (stitch__trial){.kind = kind, .strict = strict, .declared = strict, .output_count = outputs, .outputs = list};
    return t;
}

double stitch__idle_share(const stitch_report *r)
{
    if (!(r->busy_us > 0) || !(r->candidate.median > 0))
        return -1;
    return r->busy_us < r->candidate.median ? 1 - r->busy_us / r->candidate.median : 0;
}

double stitch__speedup_over(const stitch_report *r, const stitch__timing *baseline)
{
    if (r->stages[STITCH_STAGE_TIME].status != STITCH_STAGE_PASSED || r->exploit.degenerate || !baseline->count)
        return 0;
    return r->candidate.median > 0 ? baseline->median / r->candidate.median : 0;
}

int stitch__timing_add(stitch_report *r, stitch__timing *t, double us, stitch_error **err)
{
    if (stitch__grow(r->ctx, &t->samples, &t->cap, t->count + 1, sizeof(*t->samples)))
        return stitch__err_nomem(r->ctx, err);
    t->samples[t->count++] = us;
    return STITCH_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double stitch__median(double *us, size_t count)
{
    qsort(us, count, sizeof(*us), by_value);
    return (us[(count - 1) / 2] + us[count / 2]) / 2;
}

/* Nearest rank: a value that was measured. */
static double percentile(const double *sorted, size_t count, double p)
{
    size_t rank = (size_t)(p / 100 * (double)count + 0.9999999);
    return sorted[rank < 1 ? 0 : rank > count ? count - 1 : rank - 1];
}

bool stitch__timing_finish(stitch_report *r, stitch__timing *t)
{
    double *sorted, sum = 0;
    if (!t->count)
        return true;
    sorted = stitch__alloc(r->ctx, t->count * sizeof(*sorted));
    if (!sorted)
        return false;
    memcpy(sorted, t->samples, t->count * sizeof(*sorted));
    t->median = stitch__median(sorted, t->count);
    for (size_t i = 0; i < t->count; i++)
        sum += sorted[i];
    t->low = percentile(sorted, t->count, 5);
    t->high = percentile(sorted, t->count, 95);
    t->smallest = sorted[0];
    t->mean = sum / (double)t->count;
    stitch_free(sorted);
    return true;
}

void stitch__timing_shift(stitch__timing *t, double us)
{
    double *const all[] = {&t->median, &t->low, &t->high, &t->mean, &t->smallest};

    for (size_t i = 0; i < t->count; i++)
        t->samples[i] += us;
    for (size_t i = 0; i < STITCH__COUNT(all); i++)
        *all[i] += us;
}

int stitch__report_finish(stitch_report *r, stitch_error **err)
{
    stitch__report_fingerprint(r);
    r->json = stitch__report_to_json(r);
    r->text = stitch__report_to_text(r);
    return r->json && r->text ? STITCH_OK : stitch__err_nomem(r->ctx, err);
}

int stitch_report_new_format_failure(stitch_context *ctx, const stitch_error *why, stitch_report **out,
                                     stitch_error **err)
{
    stitch_report *r = NULL;
    const char *details = stitch_error_details(why);
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_report_new_format_failure: out is NULL");
    *out = NULL;
    if (!ctx || !why)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_report_new_format_failure: needs a context and an error");
    rc = stitch__report_new(ctx, &r, err);
    if (!rc)
        rc = stitch__report_stage_set(r, STITCH_STAGE_FORMAT, STITCH_STAGE_FAILED, stitch_error_code(why),
                                      stitch_error_message(why), err);
    if (!rc && *details)
        rc = stitch__report_set(r, &r->findings, details, 16384, err);
    if (!rc)
        rc = stitch__report_finish(r, err);
    if (rc)
        stitch_report_free(r);
    else
        *out = r;
    return rc;
}

static void timing_clear(stitch__timing *t)
{
    stitch_free(t->name);
    stitch_free(t->samples);
}

void stitch_report_free(stitch_report *r)
{
    if (!r)
        return;
    for (int i = 0; i < STITCH_STAGE_COUNT; i++)
        stitch_free(r->stages[i].message);
    for (size_t i = 0; i < r->dim_count; i++)
        stitch_free(r->dims[i].name);
    for (size_t i = 0; i < r->tensor_count; i++)
        stitch_free(r->tensors[i].name);
    for (size_t i = 0; i < r->diag_count; i++) {
        stitch_free(r->diags[i].file);
        stitch_free(r->diags[i].message);
        stitch_free(r->diags[i].source_line);
    }
    for (size_t i = 0; i < r->kernel_count; i++)
        stitch_free(r->kernels[i].name);
    for (size_t i = 0; i < r->trial_count; i++) {
        stitch_free(r->trials[i].outputs);
        stitch_free(r->trials[i].note);
    }
    timing_clear(&r->candidate);
    for (size_t i = 0; i < r->baseline_count; i++)
        timing_clear(&r->baselines[i]);
    for (size_t i = 0; i < r->note_count; i++)
        stitch_free(r->notes[i]);
    stitch__exploit_free(r);
    json_decref(r->options);
    stitch_profile_free(r->profile);
    void *const owned[] = {r->dims,        r->tensors,   r->diags,     r->kernels,        r->trials,    r->baselines,
                           r->notes,       r->task_name, r->task_hash, r->program_hash,   r->reference, r->device_name,
                           r->device_arch, r->nvrtc,     r->budget,    r->where,          r->outputs,   r->findings,
                           r->json,        r->text,      r->busy_note, r->driver_release, r->cublaslt};
    for (size_t i = 0; i < STITCH__COUNT(owned); i++)
        stitch_free(owned[i]);
    stitch_free(r);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const stitch__trial *stitch__report_failed_trial(const stitch_report *r)
{
    for (size_t i = 0; i < r->trial_count; i++)
        if (r->trials[i].strict && r->trials[i].ran && !r->trials[i].passed)
            return &r->trials[i];
    return NULL;
}

static void sum_errors(const stitch_report *r, stitch_report_summary *s)
{
    double sum = 0;
    uint64_t finite = 0;
    for (size_t i = 0; i < r->trial_count; i++) {
        const stitch__trial *t = &r->trials[i];
        if (!t->declared || !t->ran)
            continue;
        for (size_t k = 0; k < t->output_count; k++) {
            const stitch__comparison *c = &t->outputs[k].c;
            s->elements += c->elements;
            s->mismatches += c->mismatches;
            s->max_abs_error = c->max_abs > s->max_abs_error ? c->max_abs : s->max_abs_error;
            s->max_rel_error = c->max_rel > s->max_rel_error ? c->max_rel : s->max_rel_error;
            sum += c->sum_abs;
            finite += c->finite;
        }
    }
    s->mean_abs_error = finite ? sum / (double)finite : 0;
}

const stitch_profile *stitch_report_profile(const stitch_report *r)
{
    return r ? r->profile : NULL;
}

int stitch_report_summary_get(const stitch_report *r, stitch_report_summary *out)
{
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    size_t size;

    if (!r || !out || out->struct_size < sizeof(size_t))
        return STITCH_E_INVALID;
    s.failed_stage = r->failed_stage;
    s.status = r->failed_status;
    s.correct = r->stages[STITCH_STAGE_CORRECT].status == STITCH_STAGE_PASSED;
    s.timed = r->stages[STITCH_STAGE_TIME].status == STITCH_STAGE_PASSED;
    s.degenerate = r->exploit.degenerate;
    sum_errors(r, &s);
    s.median_us = r->candidate.median;
    s.low_us = r->candidate.low;
    s.high_us = r->candidate.high;
    s.busy_us = r->busy_us;
    if (r->baseline_count) {
        s.baseline_us = r->baselines[0].median;
        s.baseline_low_us = r->baselines[0].low;
        s.baseline_high_us = r->baselines[0].high;
        s.speedup = stitch__speedup_over(r, &r->baselines[0]);
        s.speedup_low = s.speedup > 0 ? r->speedup_low : 0;
        s.speedup_high = s.speedup > 0 ? r->speedup_high : 0;
    }
    s.prepare_us = r->prepare_us;
    s.workspace_bytes = r->workspace_bytes;
    s.launches = r->launches;
    s.seed = r->seed;
    s.isolated = r->isolated;
    size = out->struct_size < sizeof(s) ? out->struct_size : sizeof(s);
    s.struct_size = out->struct_size;
    memcpy(out, &s, size);
    return STITCH_OK;
}

int stitch_report_stage(const stitch_report *r, int stage, int *status, double *milliseconds, const char **message)
{
    if (!r || stage <= STITCH_STAGE_NONE || stage >= STITCH_STAGE_COUNT)
        return STITCH_E_INVALID;
    if (status)
        *status = r->stages[stage].status;
    if (milliseconds)
        *milliseconds = r->stages[stage].ms;
    if (message)
        *message = r->stages[stage].message ? r->stages[stage].message : "";
    return STITCH_OK;
}

const char *stitch_report_json(const stitch_report *r)
{
    return r ? r->json : "";
}

const char *stitch_report_text(const stitch_report *r)
{
    return r ? r->text : "";
}

const char *stitch_report_fingerprint(const stitch_report *r)
{
    return r ? r->fingerprint : "";
}
