/* SPDX-License-Identifier: MIT
 *
 * Device code that knows where the driver keeps the times of events can write to them: they are in memory that the
 * device reaches. The verifier's own clock it does not reach. Candidate and main baseline do the same around their
 * runs, so what the candidate's blocks take longer by that clock is what its runs take longer by events, or events lie.
 */
#include "verify/timing.h"

#define LEAST_US    25.0 /* of a run: three times the noise of a block on a quiet host, shared by its runs */
#define LEAST_SHARE 0.5  /* of a run, by events */
#define FILL_BYTES  1e6  /* a microsecond: workspace is filled before each run */

enum { LEAST_RUNS = 8, LEAST_BLOCKS = 4 }; /* of a block; of a side */

void stitch__clock_add(stitch__side *s, int64_t ns, size_t runs)
{
    if (runs >= LEAST_RUNS && s->clocked < STITCH__COUNT(s->clock_us))
        s->clock_us[s->clocked++] = (double)ns / 1e3 / (double)runs;
}

/* The lower half's middle: whatever else the host does makes some blocks longer, and none shorter. */
static double clock_of(stitch__side *s)
{
    stitch__sort_times(s->clock_us, s->clocked);
    return s->clock_us[s->clocked / 4];
}

int stitch__clock_judge(stitch__timer *t, int *code, stitch_error **why)
{
    stitch_report *r = t->v->report;
    stitch__side *candidate = &t->sides[0], *main = t->side_count > 1 ? &t->sides[1] : NULL;
    double ours, theirs, by_events, allowed;

    if (!main || main->broken || candidate->clocked < LEAST_BLOCKS || main->clocked < LEAST_BLOCKS || t->v->has_states)
        return STITCH_OK; /* nothing to compare with; or runs that are not timed come between */
    ours = clock_of(candidate);
    theirs = clock_of(main);
    stitch__timing_finish(r, candidate->timing);
    stitch__timing_finish(r, main->timing);
    by_events = candidate->timing->median + candidate->timing->taken_off_us;
    r->clock_excess_us = ours - theirs - (by_events - main->timing->median);
    r->clock_known = true;
    allowed = LEAST_SHARE * by_events;
    allowed = (allowed > LEAST_US ? allowed : LEAST_US) + (double)r->workspace_bytes / FILL_BYTES;
    if (r->clock_excess_us <= allowed)
        return STITCH_OK;
    *code =
        stitch__err(t->v->ctx, why, STITCH_E_VALIDATE,
                    "a run takes %.3g us by the device's events, but %.3g us longer than a run of the main baseline "
                    "by the verifier's clock, which has %.3g us by events: the program changes the times of events",
                    by_events, ours - theirs, main->timing->median);
    return STITCH_OK;
}
