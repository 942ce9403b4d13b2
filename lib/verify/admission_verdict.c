/* SPDX-License-Identifier: MIT
 *
 * The verdict of admission: is the task degenerate, why, what would cure it, and what else its host should know.
 *
 * Degenerate is what needs no candidate to be seen: for every output there is an answer that costs nothing and that the
 * tolerance takes for right in all elements; or nothing moves by more than the tolerance can see; or the reference
 * itself is none. Answers made of the right one (its elements in another order, its own mean) cost it; where they pass,
 * that is a warning, because outputs with equal elements are legitimate.
 */
#include "verify/admission.h"

#include <math.h>
#include <stdio.h>

#define MOST_WARNINGS 64
#define MOST_NAMED    4
#define FEW_ELEMENTS  64

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

STITCH__PRINTF(3, 4)
static int warn(stitch_admission *a, stitch_error **err, const char *fmt, ...)
{
    stitch__buf b;
    va_list ap;

    if (a->warning_count >= MOST_WARNINGS)
        return STITCH_OK;
    if (stitch__grow(a->ctx, &a->warnings, &a->warning_cap, a->warning_count + 1, sizeof(*a->warnings)))
        return stitch__err_nomem(a->ctx, err);
    stitch__buf_init(&b, a->ctx);
    va_start(ap, fmt);
    stitch__buf_vprintf(&b, fmt, ap);
    va_end(ap);
    a->warnings[a->warning_count] = stitch__buf_take(&b, NULL);
    if (!a->warnings[a->warning_count])
        return stitch__err_nomem(a->ctx, err);
    a->warning_count++;
    return STITCH_OK;
}

/* The first answer of a kind; NULL if it was not tried. */
static const stitch__answer *find_answer(const stitch__admission_output *o, stitch__answer_kind kind)
{
    for (size_t i = 0; i < o->answer_count; i++)
        if (o->answers[i].kind == kind)
            return &o->answers[i];
    return NULL;
}

static bool passes(const stitch__admission_output *o, stitch__answer_kind kind)
{
    const stitch__answer *r = find_answer(o, kind);
    return r && stitch__answer_passes(r);
}

bool stitch__admission_by_chance(const stitch_admission *a)
{
    uint64_t elements = 0;
    for (size_t k = 0; k < a->output_count; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        const stitch__answer *first = find_answer(o, STITCH__ANSWER_OWN_FIRST);
        elements += o->elements;
        if (first && stitch__answer_passes(first) && !(first->c.worst_key > 0)) /* exactly the same */
            return true;
    }
    return elements <= FEW_ELEMENTS;
}

/* The answer without cost that has the most elements right; one that passes if there is any. */
static const stitch__answer *best_free(const stitch__admission_output *o)
{
    const stitch__answer *best = NULL;
    for (size_t i = 0; i < o->answer_count; i++)
        if (stitch__answer_is_free(o->answers[i].kind) && (!best || o->answers[i].c.mismatches < best->c.mismatches))
            best = &o->answers[i];
    return best;
}

static bool is_cheap(const stitch__admission_output *o)
{
    const stitch__answer *best = best_free(o);
    return best && stitch__answer_passes(best);
}

/* Where a verb is needed: "zeros pass", "the input x passes". */
static const char *verb(const stitch__answer *r)
{
    return r->kind == STITCH__ANSWER_ZEROS ? "pass" : "passes";
}

static double worst(const stitch__comparison *c)
{
    return c->worst_key > 0 ? c->worst_key : 0;
}

static double rounding(int dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F64: return ldexp(1, -53);
    case STITCH_DTYPE_F32: return ldexp(1, -24);
    case STITCH_DTYPE_TF32:
    case STITCH_DTYPE_F16: return ldexp(1, -11);
    case STITCH_DTYPE_BF16: return ldexp(1, -8);
    case STITCH_DTYPE_F8E4M3: return ldexp(1, -4);
    default: return ldexp(1, -3);
    }
}

/* ---- cures ------------------------------------------------------------------------------------------------------- */

static double power_of_ten_below(double v)
{
    return pow(10, floor(log10(v) + 1e-9));
}

static void put_exact(stitch__buf *b, const stitch_admission *a, const stitch__admission_output *o,
                      const stitch__answer *r)
{
    const char *redrawn = a->draws > 1 ? a->redrawn : "inputs";
    if (r && r->kind == STITCH__ANSWER_ZEROS)
        stitch__buf_printf(b, "%s is exactly zero: draw %s for which it is not", o->name, redrawn);
    else if (r && r->kind == STITCH__ANSWER_INPUT)
        stitch__buf_printf(b, "%s is a copy of %s: draw inputs that the task changes, or leave the output out", o->name,
                           r->name);
    else
        stitch__buf_printf(b, "%s is the same whatever the %s are: draw %s that reach it, or change the task", o->name,
                           redrawn, redrawn);
}

/* What must become larger, for "scale ... so that %s". */
static void put_scale(stitch__buf *b, const stitch__admission_output *o, const stitch__answer *r, double times)
{
    double unit = power_of_ten_below(times) / 10;
    double rounded = ceil(times / unit - 1e-6) * unit; /* two digits, upwards */
    if (r && r->kind == STITCH__ANSWER_ZEROS)
        stitch__buf_printf(b, "scale the inputs or weights so that %s is about %g times as large", o->name, rounded);
    else if (r && r->kind == STITCH__ANSWER_INPUT)
        stitch__buf_printf(b, "scale what the task adds so that %s differs from %s about %g times as much", o->name,
                           r->name, rounded);
    else
        stitch__buf_printf(b, "scale the inputs or weights so that %s spreads about %g times as far", o->name, rounded);
}

/* `error`: what the tolerance does not see (mean over elements), of a cheap answer or, r NULL, of the spread. */
static void put_cure(stitch__buf *b, const stitch_admission *a, const stitch__admission_output *o,
                     const stitch__answer *r, double error)
{
    double tolerance = a->atol + stitch__dtype_rtol(o->dtype, a->rtol) * o->mean_abs, aim = error / o->factor;
    const char *joint = "";

    if (!(error > 0)) {
        put_exact(b, a, o, r);
        return;
    }
    if (!stitch__dtype_is_float(o->dtype)) {
        stitch__buf_printf(b, "%s holds integers: set atol below 1, so that only the same ones are right", o->name);
        return;
    }
    /* A tolerance below the dtype's own rounding would refuse right answers, too. */
    if (power_of_ten_below(aim) >= 2 * rounding(o->dtype) * o->mean_abs) {
        if (a->atol > aim) {
            stitch__buf_printf(b, "lower atol to %g", power_of_ten_below(aim));
            joint = " and ";
        }
        if (a->rtol * o->mean_abs > aim) {
            stitch__buf_printf(b, "%srtol to %g", *joint ? joint : "lower ", power_of_ten_below(aim / o->mean_abs));
            joint = " and ";
        }
        if (*joint)
            joint = ", or ";
    }
    stitch__buf_puts(b, joint);
    put_scale(b, o, r, tolerance > aim ? tolerance / aim : 1);
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

static bool reason_unwritten(const stitch_admission *a, stitch__buf *reason, stitch__buf *cure)
{
    for (size_t k = 0; k < a->output_count; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        if (!o->repeat.unwritten)
            continue;
        stitch__buf_printf(reason,
                           "the reference leaves %" PRIu64 " of %" PRIu64 " elements of output %s as they were before",
                           o->repeat.unwritten, o->elements, o->name);
        stitch__buf_puts(cure, "let the reference write every element of every output");
        return true;
    }
    return false;
}

static bool reason_unsteady(const stitch_admission *a, stitch__buf *reason, stitch__buf *cure)
{
    for (size_t k = 0; k < a->output_count; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        if (!o->repeat.mismatches)
            continue;
        stitch__buf_printf(reason,
                           "the reference is not deterministic: run twice on the same inputs, %" PRIu64 " of %" PRIu64
                           " elements of output %s differ by more than the tolerance (worst: %.3g times)",
                           o->repeat.mismatches, o->elements, o->name, worst(&o->repeat));
        stitch__buf_puts(cure, "take out what changes from run to run (random numbers, memory that nothing wrote, "
                               "atomics in float), or raise the tolerance above it");
        return true;
    }
    return false;
}

static bool reason_not_finite(const stitch_admission *a, stitch__buf *reason, stitch__buf *cure)
{
    for (size_t k = 0; k < a->output_count; k++)
        if (a->outputs[k].repeat.nan_got + a->outputs[k].repeat.inf_got < a->outputs[k].elements)
            return false;
    stitch__buf_puts(reason, "every element of every output of the reference is NaN or infinite");
    stitch__buf_puts(cure, "draw inputs and weights of a magnitude that the task can take");
    return true;
}

static bool reason_cheap(const stitch_admission *a, stitch__buf *reason, stitch__buf *cure)
{
    for (size_t k = 0; k < a->output_count; k++)
        if (!is_cheap(&a->outputs[k]))
            return false;
    for (size_t k = 0; k < a->output_count && k < MOST_NAMED; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        const stitch__answer *r = best_free(o);
        stitch__buf_printf(reason,
                           "%s%s %s as output %s (all %" PRIu64 " elements, the worst at %.3g of the tolerance)",
                           k ? "; " : "", r->name, verb(r), o->name, o->elements, worst(&r->c));
        stitch__buf_puts(cure, k ? "; " : "");
        put_cure(cure, a, o, r, r->c.finite ? r->c.sum_abs / (double)r->c.finite : 0);
    }
    if (a->output_count > MOST_NAMED)
        stitch__buf_printf(reason, "; and so on for %zu more outputs", a->output_count - MOST_NAMED);
    return true;
}

/* A candidate that passes then need not have computed what depends on the inputs. */
static bool reason_spread(const stitch_admission *a, stitch__buf *reason, stitch__buf *cure)
{
    if (a->draws < 2)
        return false;
    for (size_t k = 0; k < a->output_count; k++)
        if (a->outputs[k].spread.over_factor)
            return false;
    for (size_t k = 0; k < a->output_count && k < MOST_NAMED; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        double finite = o->spread.finite ? (double)o->spread.finite : 1;
        stitch__buf_printf(reason,
                           "%sno element of output %s changes by more than %g times the tolerance over %d draws of the "
                           "%s (%.3g times on average, at most %.3g)",
                           k ? "; " : "", o->name, o->factor, a->draws, a->redrawn, o->spread.sum_ratio / finite,
                           o->spread.max_ratio);
        stitch__buf_puts(cure, k ? "; " : "");
        put_cure(cure, a, o, NULL, o->spread.sum_change / finite);
    }
    return true;
}

/* ---- warnings ---------------------------------------------------------------------------------------------------- */

static int warn_answers(stitch_admission *a, const stitch__admission_output *o, stitch_error **err)
{
    const stitch__answer *best = best_free(o);
    uint64_t wrong = best ? best->c.mismatches : 0;

    if (best && !wrong && !a->degenerate)
        return warn(a, err, "output %s: %s %s, so that only the other outputs tell right from wrong", o->name,
                    best->name, verb(best));
    if (best && wrong && (double)wrong <= 0.01 * (double)o->elements)
        return warn(a, err, "output %s: %s would be wrong in %" PRIu64 " of %" PRIu64 " elements only", o->name,
                    best->name, wrong, o->elements);
    return STITCH_OK;
}

static int warn_order(stitch_admission *a, const stitch__admission_output *o, stitch_error **err)
{
    int rc = STITCH_OK;

    if (passes(o, STITCH__ANSWER_OWN_FIRST) || passes(o, STITCH__ANSWER_OWN_MEAN))
        return warn(a, err,
                    "output %s: all elements of a draw are the same within the tolerance; their order is not tested",
                    o->name);
    for (size_t i = 0; !rc && i < o->answer_count; i++) {
        const stitch__answer *r = &o->answers[i];
        if (r->kind >= STITCH__ANSWER_REVERSED && stitch__answer_passes(r))
            rc = warn(a, err, "output %s: %s would pass; elements that are mixed up in this way are not found", o->name,
                      r->name);
    }
    return rc;
}

static int warn_reference(stitch_admission *a, const stitch__admission_output *o, stitch_error **err)
{
    const stitch__comparison *c = &o->repeat;
    int rc = STITCH_OK;

    if (c->differ && !c->mismatches)
        rc = warn(a, err,
                  "output %s: bits of %" PRIu64 " of %" PRIu64
                  " elements of the reference differ from run to run (at most %.3g of the tolerance)",
                  o->name, c->differ, o->elements, worst(c));
    if (!rc && (c->nan_got || c->inf_got))
        rc = warn(a, err,
                  "output %s: %" PRIu64 " of %" PRIu64 " elements of the reference are NaN, %" PRIu64 " are infinite",
                  o->name, c->nan_got, o->elements, c->inf_got);
    return rc;
}

static int warn_spread(stitch_admission *a, const stitch__admission_output *o, stitch_error **err)
{
    if (a->draws < 2 || a->degenerate || (double)o->spread.over_factor >= 0.01 * (double)o->elements)
        return STITCH_OK;
    return warn(a, err,
                "output %s: %" PRIu64 " of %" PRIu64
                " elements change by more than %g times the tolerance over %d draws of the %s",
                o->name, o->spread.over_factor, o->elements, o->factor, a->draws, a->redrawn);
}

static int warn_inputs(stitch_admission *a, stitch_error **err)
{
    bool by_chance = stitch__admission_by_chance(a);
    size_t left_out = 0;
    char times[32];
    int rc = STITCH_OK;

    for (size_t k = 0; !rc && k < a->input_count; k++) {
        const stitch__admission_input *in = &a->inputs[k];
        bool tested = in->redraw == STITCH__REDRAW_ALONE || in->redraw == STITCH__REDRAW_TOGETHER;
        left_out += in->redraw == STITCH__REDRAW_LEFT_OUT;
        if (in->times > 1)
            snprintf(times, sizeof(times), "%d times", in->times);
        else
            snprintf(times, sizeof(times), "once");
        if (tested && !in->matters)
            rc = warn(a, err, "%s %s %s: drawn again %s, it changes no output by more than the tolerance",
                      in->role == STITCH_TENSOR_WEIGHT ? "weight" : "input", in->name,
                      by_chance ? "may not matter" : "does not matter", times);
    }
    if (!rc && left_out)
        rc = warn(a, err, "%zu inputs or weights were not drawn again, for %d runs of the reference are the bound",
                  left_out, a->max_runs);
    if (!rc && a->draws < 2)
        rc = warn(a, err,
                  "inputs and weights are the same in every draw: an answer that was once written down cannot be told "
                  "from one that is computed");
    return rc;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

int stitch__admission_judge(stitch_admission *a, stitch_error **err)
{
    static bool (*const reasons[])(const stitch_admission *, stitch__buf *, stitch__buf *) = {
        reason_unwritten, reason_unsteady, reason_not_finite, reason_cheap, reason_spread};
    stitch__buf reason, cure;
    int rc = STITCH_OK;

    stitch__buf_init(&reason, a->ctx);
    stitch__buf_init(&cure, a->ctx);
    stitch__buf_puts(&reason, "");
    stitch__buf_puts(&cure, "");
    for (size_t i = 0; !a->degenerate && i < STITCH__COUNT(reasons); i++)
        a->degenerate = reasons[i](a, &reason, &cure);
    a->reason = stitch__buf_take(&reason, NULL);
    a->cure = stitch__buf_take(&cure, NULL);
    if (!a->reason || !a->cure)
        return stitch__err_nomem(a->ctx, err);
    for (size_t k = 0; !rc && k < a->output_count; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        rc = warn_reference(a, o, err);
        if (!rc)
            rc = warn_answers(a, o, err);
        if (!rc)
            rc = warn_order(a, o, err);
        if (!rc)
            rc = warn_spread(a, o, err);
    }
    return rc ? rc : warn_inputs(a, err);
}
