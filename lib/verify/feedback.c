/* SPDX-License-Identifier: MIT
 *
 * The report for a model: the decisive fact first, then what helps to act on it, within a budget of bytes. Text that
 * comes from the candidate (its source, compiler messages, names) is quoted, cleaned and cut.
 */
#include "verify/verify.h"

#define DEFAULT_BYTES 8192
#define SMALLEST      256
#define MUCH_IDLE     0.3 /* share of a run in which the device does nothing that is worth a sentence */

static void put_diag(stitch__buf *b, const stitch__diag *d)
{
    static const char *const severities[] = {"note", "warning", "error"};
    stitch__buf_printf(b, "%s:%d:%d: %s: %s\n", *d->file ? d->file : "program.cu", d->line, d->column,
                       d->severity >= 0 && d->severity <= 2 ? severities[d->severity] : "message", d->message);
    if (*d->source_line)
        stitch__buf_printf(b, "  %5d | %s\n", d->line, d->source_line);
}

/* Errors first; warnings only where there is no error, for they rarely matter then. */
static void put_diags(stitch__buf *b, const stitch_report *r, size_t max)
{
    size_t errors = 0, shown = 0;
    for (size_t i = 0; i < r->diag_count; i++)
        errors += r->diags[i].severity == STITCH_SEVERITY_ERROR;
    for (size_t i = 0; i < r->diag_count; i++) {
        bool error = r->diags[i].severity == STITCH_SEVERITY_ERROR;
        bool note_of_error = r->diags[i].severity == STITCH_SEVERITY_NOTE && shown;
        if (errors && !error && !note_of_error)
            continue;
        if (shown && b->len > max) {
            stitch__buf_printf(b, "(%zu more diagnostics)\n", r->diag_count - i + r->diags_left_out);
            break;
        }
        put_diag(b, &r->diags[i]);
        shown++;
    }
}

static void put_findings(stitch__buf *b, const stitch_report *r, size_t max)
{
    const char *text = r->findings ? r->findings : "";
    size_t room = b->len < max ? max - b->len : 0;
    if (!*text)
        return;
    stitch__buf_puts_clean(b, text, strlen(text), room);
    if (b->len && !b->failed && b->data[b->len - 1] != '\n')
        stitch__buf_putc(b, '\n');
}

static void put_trial(stitch__buf *b, const stitch_report *r)
{
    const stitch__trial *t = stitch__report_failed_trial(r);
    size_t ran = 0, passed = 0;
    if (!t)
        return;
    for (size_t k = 0; k < t->output_count; k++) {
        if (stitch__output_passes(&t->outputs[k]) && t->output_count > 4)
            continue;
        stitch__describe_comparison(b, r, &t->outputs[k]);
        stitch__buf_putc(b, '\n');
    }
    for (size_t i = 0; i < r->trial_count; i++) {
        ran += r->trials[i].strict && r->trials[i].ran;
        passed += r->trials[i].strict && r->trials[i].ran && r->trials[i].passed;
    }
    stitch__buf_printf(b, "%zu of %zu trials with fresh inputs passed.\n", passed, ran);
}

static void put_robust(stitch__buf *b, const stitch_report *r)
{
    for (size_t i = 0; i < r->trial_count; i++) {
        const stitch__trial *t = &r->trials[i];
        const stitch__trial_output *wrong = stitch__first_wrong(t->outputs, t->output_count);
        if (t->strict || !t->ran || t->passed)
            continue;
        stitch__buf_printf(b, "Not counted yet: with %s inputs ", t->kind);
        if (wrong)
            stitch__describe_comparison(b, r, wrong);
        stitch__buf_putc(b, '\n');
    }
    if (!r->repeatable)
        stitch__buf_puts(b, "The outputs are not the same bits when the same inputs are run again (atomics in floating "
                            "point, or a race).\n");
}

static void put_idle(stitch__buf *b, const stitch_report *r)
{
    double idle = stitch__idle_share(r);
    int bound = r->profile ? r->profile->advice.run.bound : STITCH__BOUND_UNKNOWN;
    if (idle <= MUCH_IDLE || bound == STITCH__BOUND_LAUNCH || bound == STITCH__BOUND_HOST) /* what the profile says */
        return;
    stitch__buf_printf(b, "The device works in %.2f us of the %.2f us and idles for %.0f %%: ", r->busy_us,
                       r->candidate.median, 100 * idle);
    if (r->launches > 1)
        stitch__buf_puts(b, "the program is bound by its launches and by steps that wait for each other, so fewer and "
                            "larger kernels will help more than faster ones.\n");
    else
        stitch__buf_puts(b, "that is what its one launch costs, which no faster kernel takes away.\n");
}

static void put_times(stitch__buf *b, const stitch_report *r)
{
    const stitch__timing *c = &r->candidate;
    if (!c->count)
        return;
    for (size_t i = 0; i < r->baseline_count; i++) {
        const stitch__timing *t = &r->baselines[i];
        double speedup = stitch__speedup_over(r, t);
        if (!t->count)
            continue;
        stitch__buf_printf(b, "%s %s (precision %s): %.2f us", i ? "Also against" : "Against", t->name,
                           t->precision < 0 ? "of the reference" : stitch__precision_name(t->precision), t->median);
        if (speedup > 0)
            stitch__buf_printf(b, ", speed-up %.2f x\n", speedup);
        else
            stitch__buf_puts(b, "; no speed-up counts\n");
    }
    put_idle(b, r);
    stitch__buf_printf(
        b,
        "The task allows precision %s. One run makes %" PRIu64 " launches; workspace %.1f MiB; prepare took %.0f us.\n",
        stitch__precision_name(r->precision), r->launches, (double)r->workspace_bytes / (1 << 20), r->prepare_us);
}

static void put_kernels(stitch__buf *b, const stitch_report *r, size_t max)
{
    for (size_t i = 0; i < r->kernel_count && b->len < max; i++) {
        const stitch__kernel_row *k = &r->kernels[i];
        stitch__buf_printf(b, "kernel %.120s: ", k->name);
        if (k->registers >= 0) /* a simulated device has none */
            stitch__buf_printf(b, "%" PRId64 " registers, ", k->registers);
        stitch__buf_printf(b, "%" PRId64 " bytes static shared memory", k->static_shared);
        if (k->spill_stores > 0 || k->spill_loads > 0)
            stitch__buf_printf(b, ", spills %" PRId64 " bytes of stores and %" PRId64 " of loads", k->spill_stores,
                               k->spill_loads);
        else if (k->local > 0)
            stitch__buf_printf(b, ", %" PRId64 " bytes local memory", k->local);
        stitch__buf_putc(b, '\n');
    }
}

static void put_head(stitch__buf *b, const stitch_report *r)
{
    const char *message =
        r->failed_stage && r->stages[r->failed_stage].message ? r->stages[r->failed_stage].message : "";
    if (r->failed_stage) {
        stitch__buf_printf(b, "Verification failed in stage %s: ", stitch_stage_name(r->failed_stage));
        stitch__buf_puts_clean(b, message, strlen(message), 1000);
        stitch__buf_putc(b, '\n');
    } else if (r->candidate.count) {
        const stitch__timing *base = r->baseline_count ? &r->baselines[0] : NULL;
        stitch__buf_printf(b, "The program is correct and takes %.2f us (5-95 %%: %.2f to %.2f)", r->candidate.median,
                           r->candidate.low, r->candidate.high);
        if (base && stitch__speedup_over(r, base) > 0)
            stitch__buf_printf(b, ": %.2f x as fast as the baseline", stitch__speedup_over(r, base));
        stitch__buf_puts(b, ".\n");
    } else if (r->stages[STITCH_STAGE_CORRECT].status == STITCH_STAGE_PASSED) {
        stitch__buf_puts(b, "The program is correct; its time was not measured.\n");
    } else {
        stitch__buf_puts(b, "Nothing failed, but correctness was not tested.\n");
    }
}

int stitch_report_feedback(const stitch_report *r, size_t max_bytes, char **text, stitch_error **err)
{
    stitch__buf b;

    if (text)
        *text = NULL;
    if (!r || !text)
        return stitch__err(r ? r->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_report_feedback: needs a report and room for the text");
    if (!max_bytes)
        max_bytes = DEFAULT_BYTES;
    if (max_bytes < SMALLEST)
        max_bytes = SMALLEST;
    stitch__buf_init(&b, r->ctx);
    put_head(&b, r);
    if (r->failed_stage == STITCH_STAGE_CORRECT || r->failed_stage == STITCH_STAGE_TIME)
        put_trial(&b, r);
    stitch__exploit_put_feedback(&b, r);
    put_findings(&b, r, max_bytes / 4 * 3);
    if (r->failed_stage == STITCH_STAGE_COMPILE)
        put_diags(&b, r, max_bytes / 4 * 3);
    if (!r->failed_stage)
        put_times(&b, r);
    if (!r->failed_stage && r->profile && b.len + 4 <= max_bytes) /* no bytes would be no limit */
        stitch__advice_write_text(r->profile->facts, &r->profile->advice, (max_bytes - b.len) / 4 * 3, &b);
    put_robust(&b, r);
    if (r->failed_stage != STITCH_STAGE_COMPILE)
        put_kernels(&b, r, max_bytes / 8 * 7);
    for (size_t i = 0; i < r->note_count && b.len < max_bytes; i++)
        stitch__buf_printf(&b, "Note: %s\n", r->notes[i]);
    if (!b.failed && b.len > max_bytes) {
        /* Cut at a line, so that no half sentence misleads. */
        size_t cut = max_bytes - 16;
        while (cut > max_bytes / 2 && b.data[cut - 1] != '\n')
            cut--;
        if (b.data[cut - 1] != '\n') {
            cut = max_bytes - 16;
            while (cut && ((unsigned char)b.data[cut] & 0xc0) == 0x80) /* not within a character */
                cut--;
        }
        stitch__buf_truncate(&b, cut);
        stitch__buf_puts(&b, "(cut here)\n");
    }
    *text = stitch__buf_take(&b, NULL);
    return *text ? STITCH_OK : stitch__err_nomem(r->ctx, err);
}

/* What an output fails by, without figures. */
static uint64_t failure_kind(const stitch__comparison *c)
{
    return (uint64_t)(c->mismatches != 0) | (uint64_t)(c->unwritten != 0) << 1 |
           (uint64_t)(c->nan_got > c->nan_want) << 2 | (uint64_t)(c->inf_got > c->inf_want) << 3 |
           (uint64_t)(c->unwritten == c->elements) << 4;
}

/* Text with its numbers left out: counts, addresses and threads vary where what is said does not. */
static void hash_words(stitch__sha256 *h, const char *text)
{
    for (const char *p = text ? text : ""; *p;) {
        size_t words = strcspn(p, "0123456789");
        stitch__sha256_update(h, p, words);
        p += words;
        if (*p) {
            stitch__sha256_update(h, "#", 1);
            p += strspn(p, "0123456789");
        }
    }
    stitch__sha256_update(h, "", 1);
}

void stitch__report_fingerprint(stitch_report *r)
{
    stitch__sha256 h;
    const stitch__trial *failed = stitch__report_failed_trial(r);

    stitch__sha256_init(&h);
    for (int i = 1; i < STITCH_STAGE_COUNT; i++) {
        uint8_t status = (uint8_t)r->stages[i].status;
        stitch__sha256_update(&h, &status, 1);
    }
    stitch__sha256_string(&h, stitch_status_name(r->failed_status));
    for (size_t i = 0; i < r->diag_count; i++)
        if (r->diags[i].severity == STITCH_SEVERITY_ERROR) {
            stitch__sha256_string(&h, r->diags[i].message);
            stitch__sha256_string(&h, r->diags[i].source_line);
        }
    hash_words(&h, r->findings);
    /* The messages of these stages hold figures. */
    if (r->failed_stage && r->failed_stage != STITCH_STAGE_CORRECT && r->failed_stage != STITCH_STAGE_TIME &&
        !stitch__exploit_major(r))
        hash_words(&h, r->stages[r->failed_stage].message);
    stitch__exploit_hash(&h, r);
    if (failed) {
        stitch__sha256_string(&h, failed->note);
        for (size_t k = 0; k < failed->output_count; k++) {
            uint64_t kind = failure_kind(&failed->outputs[k].c);
            stitch__sha256_update(&h, &kind, sizeof(kind));
        }
    }
    stitch__sha256_hex(&h, r->fingerprint);
}
