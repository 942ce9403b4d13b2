/* SPDX-License-Identifier: MIT
 *
 * A trial on the simulated device that stage simulate has beside a GPU: a program that is right at the task's own dims
 * only is wrong, and nothing on the GPU would tell. It is a verification within the verification, of the stages load to
 * correct, with a report that nobody sees.
 */
#include "verify/verify.h"

#include <stdio.h>

#include "program/program.h"

/* Whatever the host computes itself it would be asked to compute with simulated addresses. */
static bool can_be_simulated(const stitch__verify *v, const stitch__compute *c)
{
    return c->kind == STITCH__COMPUTE_PROGRAM && !stitch__needs_host(v, c->program);
}

static const char *why_not(const stitch__verify *v)
{
    const stitch__compute *budget = stitch__budget_baseline(v->task);

    if (!can_be_simulated(v, &v->task->reference))
        return "the reference is no program that could be simulated";
    if (budget && !can_be_simulated(v, budget))
        return "the baseline that the error budget is measured by is no program that could be simulated";
    return NULL;
}

static int try_stages(stitch__verify *w, stitch_error **err)
{
    static int (*const stages[])(stitch__verify * v, stitch_error * *err) = {
        stitch__stage_load,
        stitch__stage_prepare,
        stitch__stage_correct,
    };
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < STITCH__COUNT(stages) && !w->report->failed_stage; i++)
        rc = stages[i](w, err);
    return rc;
}

/* No output has a single element of the program's: it does not go on at these dims, which is its right. */
static bool wrote_nothing(const stitch_report *r)
{
    const stitch__trial *t = stitch__report_failed_trial(r);
    bool nothing = t && !t->note && t->output_count;

    for (size_t k = 0; nothing && k < t->output_count; k++)
        nothing = t->outputs[k].c.unwritten == t->outputs[k].c.elements;
    return nothing;
}

static void put_dims(const stitch__verify *v, char *out, size_t size)
{
    size_t at = 0;

    *out = 0;
    for (size_t i = 0; i < stitch_interface_dim_count(v->task->iface) && at < size; i++) {
        const char *name = "";
        int64_t value = 0;
        (void)stitch_interface_dim(v->task->iface, i, &name, &value);
        at += (size_t)snprintf(out + at, size - at, "%s%.60s = %" PRId64, i ? ", " : "", name, value);
    }
}

/* Not tried, or not to the end. */
static int untried(stitch__verify *v, int status, const char *why, stitch_error **err)
{
    char message[400];

    snprintf(message, sizeof(message),
             "the checkers found nothing; the results at the reduced dims were not judged: %.300s", why);
    return stitch__stage_end(v, STITCH_STAGE_SIMULATE, status, message, err);
}

/* The program failed in a stage. */
static int failed(stitch__verify *v, const stitch__verify *w, stitch_error **err)
{
    const stitch_report *r = w->report;
    const char *message = r->stages[r->failed_stage].message;
    stitch_error *why = NULL;
    char dims[200];
    int code;

    if (wrote_nothing(r))
        return untried(v, STITCH_STAGE_SKIPPED, "the program writes nothing at them", err);
    /* The GPU can what the simulator cannot. */
    if (r->failed_status == STITCH_E_UNSUPPORTED || r->failed_status == STITCH_E_NOMEM)
        return untried(v, STITCH_STAGE_PASSED, message, err);
    if (stitch__budget_baseline(v->task) && !w->yardstick)
        return untried(v, STITCH_STAGE_PASSED, "the baseline that the error budget is measured by cannot be simulated",
                       err);
    put_dims(w, dims, sizeof(dims));
    code = stitch__err(v->ctx, &why, r->failed_status, "at the task's reduced dims (%s): %s", dims, message);
    return stitch__stage_judge(v, STITCH_STAGE_SIMULATE, code, &why, err);
}

/* What keeps it from being tried is no reason not to run it. */
static int judge(stitch__verify *v, const stitch__verify *w, int rc, stitch_error **trouble, stitch_error **err)
{
    if (rc == STITCH_E_CANCELLED || rc == STITCH_E_NOMEM) {
        stitch__err_hand_on(err, trouble);
        return rc;
    }
    if ((rc || w->report->failed_stage) && stitch__scope_ended(&w->scope))
        return untried(v, STITCH_STAGE_PASSED, "that took too long", err);
    if (rc)
        return untried(v, STITCH_STAGE_PASSED, *trouble ? stitch_error_message(*trouble) : stitch_status_text(rc), err);
    return w->report->failed_stage ? failed(v, w, err) : STITCH_OK;
}

int stitch__reduced_try(stitch__verify *v, stitch__device *dev, const stitch__scope *scope, stitch_error **err)
{
    stitch__verify w = {.ctx = v->ctx, .task = v->task, .program = v->program, .options = v->options};
    const char *reason = why_not(v);
    stitch_error *trouble = NULL;
    int rc;

    if (reason)
        return untried(v, STITCH_STAGE_PASSED, reason, err);
    w.scope = *scope;
    w.dev = dev;
    w.image = v->image;
    w.lock = (stitch__gpu_lock)STITCH__GPU_LOCK_INIT;
    w.options.where = STITCH_VERIFY_HERE; /* on a device that it cannot harm */
    w.options.trials = 1;
    w.options.on_stage = NULL;
    (void)stitch__warm_join(v); /* it compiles the same programs */
    rc = stitch__report_new(v->ctx, &w.report, err);
    if (rc)
        return rc;
    w.report->atol = v->task->atol; /* its messages name them */
    w.report->rtol = v->task->rtol;
    rc = stitch__take_tensors(&w, &trouble);
    if (!rc)
        rc = try_stages(&w, &trouble);
    rc = judge(v, &w, rc, &trouble, err);
    stitch__sets_close(&w);
    stitch_free(w.infos);
    stitch_report_free(w.report);
    stitch_error_free(trouble);
    return rc;
}
