/* SPDX-License-Identifier: MIT
 *
 * What becomes of a candidate's busy time: measured, not to be had, or the candidate lost on the way; in this process
 * and in a worker.
 */
#include "base/base.h"
#include "check.h"
#include "verify/verify.h"

static stitch_context *ctx;
static stitch_error *err;

/* A candidate that answers as it is told. */
typedef struct fake {
    int rc, code;
    double busy_us;
    const char *says; /* NULL: nothing */
    stitch__run run;
    int32_t runs;
    int64_t deadline_ns;
} fake;

static int fake_busy(void *self, const stitch__scope *scope, const stitch__run *run, int32_t runs, double *busy_us,
                     int *code, stitch_error **why, stitch_error **error)
{
    fake *f = self;
    f->run = *run;
    f->runs = runs;
    f->deadline_ns = scope->deadline_ns;
    *busy_us = f->busy_us;
    *code = f->code;
    if (f->says)
        stitch__err(ctx, f->rc ? error : why, f->rc ? f->rc : f->code ? f->code : STITCH_E_UNSUPPORTED, "%s", f->says);
    return f->rc;
}

static const stitch__candidate_ops ops = {.where = "nowhere", .busy = fake_busy};
static char no_runner[4096]; /* as one that nothing was abandoned by */

static stitch__verify make(fake *f, bool worker, double us)
{
    stitch__verify v = {.ctx = ctx, .candidate = {&ops, f}};
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    v.ctx = ctx;
    v.scope = stitch__scope_make(ctx, NULL, 0);
    if (worker)
        v.worker = (stitch__worker *)(void *)no_runner; /* only whether there is one matters */
    else
        v.runner = (stitch__runner *)(void *)no_runner;
    CHECK_OK(stitch__report_new(ctx, &v.report, &err));
    CHECK_OK(stitch__timing_add(v.report, &v.report->candidate, us, &err));
    stitch__timing_finish(v.report, &v.report->candidate);
    return v;
}

TEST(answers)
{
    static const struct {
        fake f;
        bool worker;
        int rc, code;        /* expected */
        double busy_us;      /* expected */
        const char *message; /* expected: in the note, or in the error */
    } rows[] = {
        {{.busy_us = 4}, false, 0, 0, 4, NULL},
        {{.busy_us = 4}, true, 0, 0, 4, NULL},
        {{.busy_us = -1, .says = "another tool holds it"}, false, 0, 0, 0, "another tool holds it"},
        {{.busy_us = -1, .says = "another tool holds it"}, true, 0, 0, 0, "another tool holds it"},
        {{.busy_us = -1, .code = STITCH_E_FAULT, .says = "the worker died"}, true, 0, 0, 0, "the worker died"},
        {{.busy_us = -1, .code = STITCH_E_TIMEOUT, .says = "killed"}, true, 0, 0, 0, "killed"},
        {{.busy_us = -1, .code = STITCH_E_DRIVER, .says = "no launch"}, false, 0, 0, 0, "no launch"},
        {{.busy_us = -1, .code = STITCH_E_FAULT, .says = "it faulted"}, false, 0, STITCH_E_FAULT, 0, "it faulted"},
        {{.busy_us = -1, .rc = STITCH_E_IO, .says = "there is no worker"}, true, 0, 0, 0, "there is no worker"},
        {{.busy_us = -1, .rc = STITCH_E_NOMEM, .says = "no memory"}, false, 0, 0, 0, "no memory"},
        {{.busy_us = -1, .rc = STITCH_E_NOMEM}, false, 0, 0, 0, "memory"},
        {{.busy_us = -1, .rc = STITCH_E_FAULT, .says = "lost"}, false, STITCH_E_FAULT, 0, 0, "lost"},
        {{.busy_us = -1, .rc = STITCH_E_CANCELLED, .says = "stop"}, true, STITCH_E_CANCELLED, 0, 0, "stop"},
        {{.busy_us = -1, .rc = STITCH_E_CANCELLED, .says = "stop"}, false, STITCH_E_CANCELLED, 0, 0, "stop"},
    };

    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        fake f = rows[i].f;
        stitch__verify v = make(&f, rows[i].worker, 10);
        stitch_error *why = NULL;
        int code = STITCH_OK;
        CHECK_INT(stitch__busy_measure(&v, &v.candidate, 12345, &code, &why, &err), rows[i].rc);
        CHECK_INT(code, rows[i].code);
        CHECK_NEAR(v.report->busy_us, rows[i].busy_us, 0);
        CHECK_NEAR(stitch__idle_share(v.report), rows[i].busy_us > 0 ? 0.6 : -1, 1e-12);
        CHECK((v.report->busy_note != NULL) == (!rows[i].rc && !rows[i].code && rows[i].message));
        if (rows[i].message)
            CHECK_HAS(rows[i].rc     ? stitch_error_message(err)
                      : rows[i].code ? stitch_error_message(why)
                                     : v.report->busy_note,
                      rows[i].message);
        CHECK_INT(f.run.flush_bytes, 12345);
        CHECK_INT(f.run.skip, -1);
        stitch_error_free(why);
        stitch_error_free(err);
        err = NULL;
        stitch_report_free(v.report);
    }
}

/* A CUPTI that hangs costs a worker and half a minute, not the rest of the verification's time. */
TEST(time_that_it_may_take)
{
    for (int worker = 0; worker < 2; worker++) {
        fake f = {.busy_us = 1};
        stitch_error *why = NULL;
        int code;
        int64_t start = stitch__now_ns();
        stitch__verify v = make(&f, worker, 100);
        CHECK_OK(stitch__busy_measure(&v, &v.candidate, 0, &code, &why, &err));
        CHECK_INT(f.runs, 5);
        if (worker)
            CHECK(f.deadline_ns > start && f.deadline_ns < start + INT64_C(60000000000));
        else
            CHECK_INT(f.deadline_ns, 0);
        stitch_report_free(v.report);
        v = make(&f, worker, 3e6); /* three seconds a run */
        CHECK_OK(stitch__busy_measure(&v, &v.candidate, 0, &code, &why, &err));
        CHECK_INT(f.runs, 1);
        if (worker)
            CHECK(f.deadline_ns > start + INT64_C(36000000000));
        stitch_report_free(v.report);
        v = make(&f, worker, 100); /* never later than the whole */
        v.scope.deadline_ns = start + 5;
        CHECK_OK(stitch__busy_measure(&v, &v.candidate, 0, &code, &why, &err));
        CHECK_INT(f.deadline_ns, start + 5);
        stitch_report_free(v.report);
    }
    stitch_context_free(ctx);
    ctx = NULL;
}

TEST_MAIN(RUN(answers), RUN(time_that_it_may_take))
