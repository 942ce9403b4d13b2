/* SPDX-License-Identifier: MIT
 *
 * Device code that knows where the driver keeps the times of events can write to them: they are in memory that the
 * device reaches. The clock of the host it does not reach (runner/watch.c). By that, a run has taken at least so long:
 * never more than it really has, whatever else the host does, but for what the device takes to tell it of an event.
 * What that may be, the main baseline shows where it is a program, too.
 */
#include "verify/timing.h"

/* What events may have less of a run. On an H200 that eight processes shared they never had less. */
#define MOST_US      2.0 /* more than of the main baseline; or */
#define MOST_SHARE   0.02
#define MOST_ALONE   5.0 /* where there is nothing to compare with; or */
#define MOST_ALONE_S 0.05

int stitch__clock_add(stitch__timer *t, stitch__side *s, const stitch__took *took, stitch_error **err)
{
    stitch_context *ctx = t->v->ctx;

    if (stitch__grow(ctx, &s->least_us, &s->least_cap, s->least_count + 1, sizeof(*s->least_us)))
        return stitch__err_nomem(ctx, err);
    s->least_us[s->least_count++] = took->least_us;
    return STITCH_OK;
}

/* Medians: the least that the host saw, and what events have. false: the host saw nothing. */
static bool compare(stitch__side *s, double *least, double *by_events)
{
    if (!s->least_count)
        return false;
    *least = stitch__median(s->least_us, s->least_count);
    *by_events = s->timing->median + s->timing->taken_off_us;
    return *least > 0;
}

int stitch__clock_judge(stitch__timer *t, int *code, stitch_error **why)
{
    stitch_report *r = t->v->report;
    double least, by_events, usual = 0, most, share, like, like_events;

    if (!compare(&t->sides[0], &least, &by_events))
        return STITCH_OK;
    r->clock_excess_us = least - by_events;
    r->clock_known = true;
    if (t->side_count > 1 && !t->sides[1].broken && compare(&t->sides[1], &like, &like_events)) {
        usual = like > like_events ? like - like_events : 0;
        most = MOST_US;
        share = MOST_SHARE;
    } else {
        most = MOST_ALONE;
        share = MOST_ALONE_S;
    }
    most = share * by_events > most ? share * by_events : most;
    if (r->clock_excess_us > usual + most)
        *code = stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                            "a run takes %.4g us by the device's events, but at least %.4g us by the host's clock: the "
                            "program changes the times of events",
                            by_events, least);
    return STITCH_OK;
}
