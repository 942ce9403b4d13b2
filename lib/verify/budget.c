/* SPDX-License-Identifier: MIT
 *
 * The error budget. A tolerance that is narrower than what the task's own precision can do would refuse every honest
 * program. So where the task has a baseline that computes at that precision, the baseline's error against the reference
 * is measured on the same inputs, and a candidate may be off by a small factor of it: in the largest and in the mean
 * error of an output, so that a single bad element of the baseline gives nothing away.
 */
#include "verify/verify.h"

/* Mean relative error of what is no rounding any more: half precision stays far below, zeros are at 1. */
#define WRONG_FROM 0.5

typedef struct stitch__yardstick {
    stitch__oracle *oracle;
    CUdeviceptr *set;
    bool exact;
} stitch__yardstick;

/* The least precise baseline that is not less precise than the task's policy. stitch_precision goes from F32 to F16 in
 * falling order; ANY is no precision. */
const stitch__compute *stitch__budget_baseline(const stitch_task *t)
{
    const stitch__compute *best = NULL;
    for (size_t i = 0; i < t->baseline_count; i++) {
        const stitch__compute *c = &t->baselines[i];
        if (c->precision >= STITCH_PRECISION_F32 && c->precision <= t->precision &&
            (!best || c->precision > best->precision))
            best = c;
    }
    return best;
}

/* One that cannot be used is no reason to fail: the tolerance alone decides then. */
static int without(stitch__verify *v, int rc, stitch_error **why, stitch_error **err)
{
    bool lost = rc == STITCH_E_FAULT || rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT;
    stitch__budget_close(v);
    if (lost)
        stitch__err_hand_on(err, why);
    else
        rc = stitch__report_note(v->report, err, "no error budget, its baseline cannot be run: %s",
                                 *why ? stitch_error_message(*why) : stitch_status_text(rc));
    stitch_error_free(*why);
    *why = NULL;
    return rc;
}

int stitch__budget_open(stitch__verify *v, stitch_error **err)
{
    const stitch__compute *c = stitch__budget_baseline(v->task);
    stitch_error *why = NULL;
    int rc;

    if (!c)
        return STITCH_OK;
    v->yardstick = stitch__calloc(v->ctx, 1, sizeof(*v->yardstick));
    if (!v->yardstick)
        return stitch__err_nomem(v->ctx, err);
    v->yardstick->exact = c->precision == v->task->precision;
    rc = stitch__oracle_open(v->task, c, v->dev, v->options.ops, v->options.op_count, &v->yardstick->oracle, &why);
    if (!rc)
        rc = stitch__set_make(v, v->yardstick->oracle, " (error budget)", &v->yardstick->set, &why);
    if (!rc)
        rc = stitch__set_bound(v, v->yardstick->oracle, v->yardstick->set, &why);
    if (rc)
        return without(v, rc, &why, err);
    return stitch__report_set(v->report, &v->report->budget, c->name ? c->name : "", 255, err);
}

void stitch__budget_close(stitch__verify *v)
{
    if (!v->yardstick)
        return;
    if (!stitch__abandoned(v))
        stitch__oracle_close(v->yardstick->oracle);
    stitch__set_free(v, v->yardstick->set);
    stitch__zero_free(v->yardstick);
}

bool stitch__budget_exact(const stitch__verify *v)
{
    return v->yardstick && v->yardstick->exact;
}

static double mean_abs(const stitch__comparison *c)
{
    return c->finite ? c->sum_abs / (double)c->finite : 0;
}

/* A baseline with a mistake, and not with rounding errors: what it gets wrong gives nothing away. */
static bool is_wrong(const stitch__comparison *c)
{
    return c->rel_count && c->sum_rel / (double)c->rel_count >= WRONG_FROM;
}

int stitch__budget_apply(stitch__verify *v, stitch__trial_output *outputs, stitch_error **err)
{
    size_t count = stitch__output_count(v);
    stitch__trial_output *own;
    int rc;

    /* States live from run to run: the baseline would have to be taken along from the first. */
    if (!v->yardstick || v->has_states)
        return STITCH_OK;
    own = stitch__calloc(v->ctx, count ? count : 1, sizeof(*own));
    if (!own)
        return stitch__err_nomem(v->ctx, err);
    rc = stitch__oracle_run(v->yardstick->oracle, v->stream, err);
    if (!rc)
        rc = stitch__stream_wait(v->dev, v->stream, &v->scope, "measuring the error of the task's precision", err);
    if (!rc)
        rc = stitch__compare_set(v, v->yardstick->set, v->yardstick->oracle, NULL, own, err);
    for (size_t k = 0; !rc && k < count; k++) {
        stitch__trial_output *o = &outputs[k];
        o->budgeted = true;
        o->own_max_abs = own[k].c.max_abs;
        o->own_mean_abs = mean_abs(&own[k].c);
        o->own_unusable = own[k].c.not_finite > 0 || is_wrong(&own[k].c);
        o->in_budget = o->c.mismatches && !is_wrong(&own[k].c) && !o->c.unwritten && !o->c.not_finite &&
                       o->c.max_abs <= STITCH__BUDGET_FACTOR * o->own_max_abs &&
                       mean_abs(&o->c) <= STITCH__BUDGET_FACTOR * o->own_mean_abs;
    }
    stitch_free(own);
    return rc;
}

bool stitch__output_passes(const stitch__trial_output *o)
{
    return !o->c.unwritten && (!o->c.mismatches || o->in_budget);
}

const stitch__trial_output *stitch__first_wrong(const stitch__trial_output *outputs, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (!stitch__output_passes(&outputs[k]))
            return &outputs[k];
    return NULL;
}
