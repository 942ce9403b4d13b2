/* SPDX-License-Identifier: MIT
 *
 * The report in a few lines for people, and the phrases that it shares with the feedback for models.
 */
#include <math.h>

#include "verify/verify.h"

#include "cuda/clocks.h"

enum { PROFILE_BYTES = 2000 };

/* "y[3, 17]" */
static void print_index(const stitch__tensor_row *t, uint64_t index, char *out, size_t size)
{
    uint64_t parts[STITCH_MAX_RANK];
    size_t used = (size_t)snprintf(out, size, "%.64s[", t->name);
    for (size_t k = t->rank; k-- > 0;) {
        uint64_t extent = t->shape[k] > 0 ? (uint64_t)t->shape[k] : 1;
        parts[k] = index % extent;
        index /= extent;
    }
    for (size_t k = 0; k < t->rank && used < size; k++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRIu64, k ? ", " : "", parts[k]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

/* Where in an output its mismatches are, if that says something. */
static void put_place(stitch__buf *b, const stitch__tensor_row *t, const stitch__trial_output *o)
{
    uint64_t box = 1, most = 0;
    for (size_t k = 0; k < t->rank; k++)
        box *= o->where.high[k] - o->where.low[k] + 1;
    for (size_t k = 0; k < STITCH__COUNT(o->where.stretch); k++)
        most = o->where.stretch[k] > most ? o->where.stretch[k] : most;
    if (o->c.mismatches < 2 || t->rank == 0)
        return;
    if (box < o->c.elements) {
        stitch__buf_printf(b, "; all wrong ones are in %.64s[", t->name);
        for (size_t k = 0; k < t->rank; k++)
            stitch__buf_printf(b, "%s%" PRIu64 "..%" PRIu64, k ? ", " : "", o->where.low[k], o->where.high[k]);
        stitch__buf_printf(b, "], %.3g %% of which is wrong", 100.0 * (double)o->c.mismatches / (double)box);
    } else if (o->c.elements >= 256 && most >= o->c.mismatches / 2) {
        stitch__buf_printf(b, "; %.3g %% of the wrong ones are in one 64th of the elements",
                           100.0 * (double)most / (double)o->c.mismatches);
    }
}

bool stitch__holds_i64(const stitch__tensor_row *t)
{
    return t->dtype == STITCH_DTYPE_I64 && t->want_dtype == STITCH_DTYPE_I64;
}

static void put_pair(stitch__buf *b, const stitch__tensor_row *t, stitch__element got, stitch__element want)
{
    if (stitch__holds_i64(t))
        stitch__buf_printf(b, "%" PRId64 ", want %" PRId64, got.integer, want.integer);
    else
        stitch__buf_printf(b, "%.9g, want %.9g", got.real, want.real);
}

void stitch__describe_comparison(stitch__buf *b, const stitch_report *r, const stitch__trial_output *o)
{
    const stitch__tensor_row *t = &r->tensors[o->tensor];
    const stitch__comparison *c = &o->c;
    char first[256], last[256], worst[256];

    if (!c->mismatches) {
        if (c->unwritten)
            stitch__buf_printf(b, "output %s: %" PRIu64 " of %" PRIu64 " elements were never written", t->name,
                               c->unwritten, c->elements);
        else
            stitch__buf_printf(b, "output %s: all %" PRIu64 " elements within the tolerance, largest error %.3g",
                               t->name, c->elements, c->max_abs);
        return;
    }
    print_index(t, c->first, first, sizeof(first));
    print_index(t, c->last, last, sizeof(last));
    if (c->unwritten == c->elements) {
        stitch__buf_printf(b, "output %s: none of its %" PRIu64 " elements was written", t->name, c->elements);
        return;
    }
    stitch__buf_printf(
        b, "output %s: %" PRIu64 " of %" PRIu64 " elements are wrong (tolerance atol %g + rtol %g * |want|)", t->name,
        c->mismatches, c->elements, r->atol, stitch__dtype_rtol(t->dtype, r->rtol));
    if (c->unwritten) {
        print_index(t, c->unwritten_first, worst, sizeof(worst));
        stitch__buf_printf(b, "; %" PRIu64 " were never written, the first is %s", c->unwritten, worst);
    }
    if (c->nan_got > c->unwritten && c->nan_got > c->nan_want)
        stitch__buf_printf(b, "; %" PRIu64 " are NaN where the reference has %" PRIu64, c->nan_got, c->nan_want);
    if (c->inf_got > c->inf_want)
        stitch__buf_printf(b, "; %" PRIu64 " are infinite where the reference has %" PRIu64, c->inf_got, c->inf_want);
    stitch__buf_printf(b, "; first wrong %s = ", first);
    put_pair(b, t, c->first_got, c->first_want);
    if (c->mismatches > 1)
        stitch__buf_printf(b, "; last wrong %s", last);
    if (c->worst != c->first && c->worst != UINT64_MAX) {
        print_index(t, c->worst, worst, sizeof(worst));
        stitch__buf_printf(b, "; worst %s = ", worst);
        put_pair(b, t, c->worst_got, c->worst_want);
    }
    if (o->located)
        put_place(b, t, o);
    stitch__buf_printf(b, "; largest absolute error %.3g, relative %.3g", c->max_abs, c->max_rel);
    if (o->budgeted)
        stitch__buf_printf(b, " (the task's own precision is off by %.3g; %g times that is allowed)", o->own_max_abs,
                           STITCH__BUDGET_FACTOR);
}

static void put_stages(stitch__buf *b, const stitch_report *r)
{
    for (int i = 1; i < STITCH_STAGE_COUNT; i++) {
        const char *message = r->stages[i].message ? r->stages[i].message : "";
        if (r->stages[i].status == STITCH_STAGE_NOT_RUN)
            continue;
        if (i == STITCH_STAGE_PROFILE && r->profile && r->stages[i].status == STITCH_STAGE_PASSED)
            message = ""; /* the profile's own text begins with it */
        stitch__buf_printf(b, "  %-9s %-8s %9.1f ms%s", stitch_stage_name(i),
                           stitch__stage_status_name(r->stages[i].status), r->stages[i].ms, *message ? "  " : "");
        stitch__buf_puts_clean(b, message, strlen(message), 300);
        stitch__buf_putc(b, '\n');
    }
}

static void put_times(stitch__buf *b, const stitch_report *r)
{
    const stitch__timing *c = &r->candidate;
    char reasons[128];
    if (!c->count)
        return;
    stitch__buf_printf(b, "time: %.2f us (5-95 %%: %.2f to %.2f, %zu runs), task precision %s\n", c->median, c->low,
                       c->high, c->count, stitch__precision_name(r->precision));
    if (fabs(c->taken_off_us) >= 0.005)
        stitch__buf_printf(b,
                           "  %.2f us %s: the main baseline takes %.2f us in the candidate's worker, %.2f in its own\n",
                           fabs(c->taken_off_us), c->taken_off_us > 0 ? "taken off every run" : "added to every run",
                           r->control.here_us, r->control.there_us);
    if (r->busy_us > 0)
        stitch__buf_printf(b, "  busy %.2f us of %.2f us: the device idles for %.0f %% of it\n", r->busy_us, c->median,
                           100 * stitch__idle_share(r));
    else if (r->busy_note)
        stitch__buf_printf(b, "  the device's busy time was not measured: %s\n", r->busy_note);
    for (size_t i = 0; i < r->baseline_count; i++) {
        const stitch__timing *t = &r->baselines[i];
        if (!t->count)
            continue;
        double speedup = stitch__speedup_over(r, t);
        if (speedup > 0)
            stitch__buf_printf(b, "  %.2f x against ", speedup);
        else
            stitch__buf_puts(b, "  no speed-up counts against ");
        stitch__buf_printf(b, "%s (precision %s): %.2f us (%.2f to %.2f)\n", t->name,
                           t->precision < 0 ? "of the reference" : stitch__precision_name(t->precision), t->median,
                           t->low, t->high);
        if (i == 0 && speedup > 0 && r->speedup_high > 0)
            stitch__buf_printf(b, "    95 %% interval of that: %.2f to %.2f x\n", r->speedup_low, r->speedup_high);
    }
    if (r->bound.us > 0)
        stitch__buf_printf(b, "  at %.0f %% of the device's limit (%.2f us for %s)\n", 100 * r->bound.us / c->median,
                           r->bound.us,
                           r->bound.memory_us >= r->bound.flops_us ? "its inputs and outputs" : "its operations");
    stitch__clocks_describe(r->clocks.reasons, reasons, sizeof(reasons));
    if (*reasons)
        stitch__buf_printf(b, "  the clocks were held down while this was measured: %s\n", reasons);
}

char *stitch__report_to_text(const stitch_report *r)
{
    stitch__buf b;
    const stitch__trial *failed = stitch__report_failed_trial(r);

    stitch__buf_init(&b, r->ctx);
    if (r->failed_stage)
        stitch__buf_printf(&b, "FAILED at %s (%s)\n", stitch_stage_name(r->failed_stage),
                           stitch_status_name(r->failed_status));
    else if (r->stages[STITCH_STAGE_CORRECT].status == STITCH_STAGE_PASSED)
        stitch__buf_puts(&b, "PASSED: the program is correct\n");
    else
        stitch__buf_puts(&b, "NOTHING FAILED, but correctness was not tested\n");
    if (r->device_name)
        stitch__buf_printf(&b, "on %s (%s%s), task %s%s, seed 0x%016" PRIx64 "\n", r->device_name,
                           r->device_arch ? r->device_arch : "?", r->simulated ? ", simulated" : "",
                           r->task_name ? r->task_name : "?", r->reduced ? " at its reduced dims" : "", r->seed);
    put_stages(&b, r);
    for (size_t k = 0; failed && k < failed->output_count; k++) {
        stitch__buf_puts(&b, "  ");
        stitch__describe_comparison(&b, r, &failed->outputs[k]);
        stitch__buf_putc(&b, '\n');
    }
    stitch__exploit_put_text(&b, r);
    put_times(&b, r);
    if (r->profile)
        stitch__advice_write_text(r->profile->facts, &r->profile->advice, PROFILE_BYTES, &b);
    for (size_t i = 0; i < r->note_count; i++)
        stitch__buf_printf(&b, "note: %s\n", r->notes[i]);
    return stitch__buf_take(&b, NULL);
}
