/* SPDX-License-Identifier: MIT
 *
 * Device code that knows where the driver keeps the times of events can write to them: they are in memory that the
 * device reaches. The clock of the host it does not reach (runner/watch.c). By that, a run has taken at least so long:
 * never more than it really has, whatever else the host does, but for what the device takes to tell it of an event.
 */
#include "verify/timing.h"

#define MOST_US    5.0  /* that events may have less of a run, or */
#define MOST_SHARE 0.05 /* of it */

int stitch__clock_add(stitch__timer *t, stitch__side *s, const stitch__took *took, stitch_error **err)
{
    stitch_context *ctx = t->v->ctx;

    if (stitch__grow(ctx, &s->least_us, &s->least_cap, s->least_count + 1, sizeof(*s->least_us)))
        return stitch__err_nomem(ctx, err);
    s->least_us[s->least_count++] = took->least_us;
    return STITCH_OK;
}

int stitch__clock_judge(stitch__timer *t, int *code, stitch_error **why)
{
    stitch_report *r = t->v->report;
    stitch__side *s = &t->sides[0];
    double least, by_events, most;

    if (!s->least_count)
        return STITCH_OK;
    stitch__sort_times(s->least_us, s->least_count);
    least = s->least_us[s->least_count / 2];
    stitch__timing_finish(r, s->timing);
    by_events = s->timing->median + s->timing->taken_off_us;
    r->clock_excess_us = least - by_events;
    r->clock_known = least > 0;
    most = MOST_SHARE * by_events > MOST_US ? MOST_SHARE * by_events : MOST_US;
    if (r->clock_excess_us > most)
        *code = stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                            "a run takes %.4g us by the device's events, but at least %.4g us by the host's clock: the "
                            "program changes the times of events",
                            by_events, least);
    return STITCH_OK;
}
