/* SPDX-License-Identifier: MIT
 *
 * Device busy time beside wall time: how much of a run the device works. Measured after everything else, because CUPTI
 * must not be there while runs are timed; whatever goes wrong with it is no fault of the program.
 */
#include "verify/verify.h"

enum {
    RUNS = 5,
    SLOW_US = 1000000, /* one run is enough of a program that takes that long */
    SET_UP_MS = 30000, /* for CUPTI, which has been seen to hang: then a worker is ended, and nothing else is lost */
};

/* The candidate's last timed run, or 0. */
static double last_us(const stitch__timing *t)
{
    return t->count ? t->samples[t->count - 1] : 0;
}

/* A worker can be ended before the whole verification's time is over; this process cannot. */
static stitch__scope limited(const stitch__verify *v, double us, int32_t runs)
{
    stitch__scope scope = v->scope;
    int64_t most = stitch__now_ns() + (int64_t)SET_UP_MS * 1000000 + (int64_t)(us * 1000 * 4 * (runs + 1));

    if (v->worker && (!scope.deadline_ns || scope.deadline_ns > most))
        scope.deadline_ns = most;
    return scope;
}

int stitch__busy_measure(stitch__verify *v, const stitch__candidate *c, uint64_t flush_bytes, int *code,
                         stitch_error **why, stitch_error **err)
{
    stitch_report *r = v->report;
    stitch__run run = STITCH__RUN_INIT;
    double us = last_us(&r->candidate), busy_us = -1;
    int32_t runs = us > SLOW_US ? 1 : RUNS;
    stitch__scope scope = limited(v, us, runs);
    stitch_error *reason = NULL, *cause = NULL;
    int failed = STITCH_OK, rc;

    run.flush_bytes = flush_bytes;
    rc = c->ops->busy(c->self, &scope, &run, runs, &busy_us, &failed, &reason, &cause);
    if (rc == STITCH_E_CANCELLED || (v->runner && rc == STITCH_E_FAULT)) {
        stitch_error_free(reason);
        stitch__err_hand_on(err, &cause);
        return rc;
    }
    if (!rc && failed && v->runner && (failed == STITCH_E_FAULT || stitch__abandoned(v))) {
        *code = failed; /* what is lost with that is this process's own */
        *why = reason;
        return STITCH_OK;
    }
    if (!rc && !failed && busy_us > 0) {
        r->busy_us = busy_us;
    } else {
        const stitch_error *said = rc ? cause : reason;
        const char *text = said ? stitch_error_message(said) : stitch_status_text(rc ? rc : failed);
        rc = stitch__report_set(r, &r->busy_note, text, 1000, err);
    }
    stitch_error_free(reason);
    stitch_error_free(cause);
    return rc;
}

double stitch__idle_share(const stitch_report *r)
{
    if (!(r->busy_us > 0) || !(r->candidate.median > 0))
        return -1;
    return r->busy_us < r->candidate.median ? 1 - r->busy_us / r->candidate.median : 0;
}
