/* SPDX-License-Identifier: MIT
 *
 * Rules about the steps of a program and about a run as a whole.
 */
#include <math.h>

#include "profile/rules.h"

/* ---- thresholds, with their reason ---- */

/* Of the run's time. */
#define LAUNCHES_FROM 0.20
#define WAITS_FROM    0.10
#define COPIES_FROM   0.05
#define MOVES_FROM    0.05
/* A launch costs the host 2 to 5 us: with longer kernels it is hidden. */
#define HIDES_LAUNCH_US 10.0
#define SEVERAL         4 /* launches: fewer are no chain */

/* ---- steps ---- */

bool stitch__rule_conversions(const stitch__subject *s, stitch__finding *out)
{
    const stitch__step_fact *step = stitch__step_of(s->f, s->k->step);
    if (!step || !step->moves_only || s->f->step_count < 2 || !(s->g->share >= MOVES_FROM || isnan(s->g->time_us)))
        return false;
    const stitch__step_fact *next = stitch__step_of(s->f, step->next);
    stitch__say(out->evidence, "%.60s computes nothing", step->place);
    if (next)
        stitch__say(out->evidence, "; %.3g MB in %.60s go on to %.60s", (double)step->between_bytes / 1e6,
                    step->between, next->place);
    out->part = 1;
    return true;
}

/* A chain of steps in one kernel: what is handed on is neither written nor read, and launches are saved. */
bool stitch__rule_fusable_neighbours(const stitch__subject *s, stitch__finding *out)
{
    const stitch__ceilings *c = &s->f->ceilings;
    double launch = s->f->graph ? c->graph_node_us : c->launch_us, bytes = 0, time = 0, longest = 0, gain = 0;
    int count = 0;
    bool timed = true;
    for (int32_t at = s->step, next; at >= 0; at = next) {
        const stitch__step_fact *step = &s->f->steps[at];
        double launches, here = stitch__step_time(s, at, &launches);
        timed &= !isnan(here);
        time += here;
        longest = fmax(longest, here);
        next = stitch__fusable_next(s->f, at);
        if (next >= 0) {
            bytes += launches * (double)step->between_bytes;
            gain += launch > 0 ? launches * launch : 0;
        }
        if (count < 4)
            stitch__say(out->evidence, "%s%.40s (%.40s)", count ? ", " : "", step->place, stitch__step_name(step));
        count++;
    }
    if (count < 2)
        return false;
    stitch__say(out->evidence, "%s hand on %.3g MB that nothing else reads", count > 4 ? " and more" : "", bytes / 1e6);
    if (c->dram_gb_s > 0)
        gain += 2 * bytes / (c->dram_gb_s * 1e3); /* written and read */
    out->gain_us = timed ? fmin(gain, fmax(time - longest, 0)) : gain;
    return true;
}

/* ---- the run ---- */

/* The run's time, or NAN, with which nothing holds. */
static double run_time(const stitch__subject *s)
{
    return s->run->time_us > 0 ? s->run->time_us : NAN;
}

bool stitch__rule_launch_bound(const stitch__subject *s, stitch__finding *out)
{
    const stitch__run_figures *r = s->run;
    double nodes = s->f->ceilings.graph_node_us;
    if (s->f->graph || s->f->launches < SEVERAL || !(r->launch_us >= LAUNCHES_FROM * run_time(s)) ||
        !(r->kernel_us < HIDES_LAUNCH_US))
        return false;
    stitch__say(out->evidence,
                "%" PRIu64 " kernels of %.1f us each, one by one; of %s the device is idle for %s in between",
                s->f->launches, r->kernel_us, stitch__time(r->time_us).s, stitch__time(r->launch_us).s);
    out->gain_us = fmax(r->launch_us - (nodes > 0 ? nodes * (double)(s->f->launches - 1) : 0), 0);
    return true;
}

bool stitch__rule_many_small_kernels(const stitch__subject *s, stitch__finding *out)
{
    const stitch__run_figures *r = s->run;
    double cost = r->launch_us + ((double)s->f->launches - 1) * fmin(STITCH__EMPTY_KERNEL_US, r->kernel_us);
    if (s->f->launches < SEVERAL || !(r->kernel_us < HIDES_LAUNCH_US) || !(cost >= LAUNCHES_FROM * run_time(s)))
        return false;
    stitch__say(out->evidence, "%" PRIu64 " kernels of %.1f us each%s; of %s, starting and ending them takes about %s",
                s->f->launches, r->kernel_us, s->f->graph ? ", although in a graph" : "", stitch__time(r->time_us).s,
                stitch__time(fmin(cost, r->time_us)).s);
    out->gain_us = cost;
    return true;
}

bool stitch__rule_host_bound(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->run->host_us >= WAITS_FROM * run_time(s)))
        return false;
    stitch__say(out->evidence, "of %s the device is idle for %s while the host is in no CUDA call",
                stitch__time(s->run->time_us).s, stitch__time(s->run->host_us).s);
    out->gain_us = s->run->host_us;
    return true;
}

bool stitch__rule_slow_calls(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->run->slow_call_us > 0) || !(s->run->slow_call_us >= WAITS_FROM * run_time(s)))
        return false;
    stitch__say(out->evidence, "of %s the device is idle for %s while the host is in %.80s",
                stitch__time(s->run->time_us).s, stitch__time(s->run->slow_call_us).s, s->f->slow_call);
    out->gain_us = s->run->slow_call_us;
    return true;
}

bool stitch__rule_sync_bound(const stitch__subject *s, stitch__finding *out)
{
    if (!(s->run->sync_us >= WAITS_FROM * run_time(s)))
        return false;
    stitch__say(out->evidence, "of %s the device is idle for %s while the host still waits for it",
                stitch__time(s->run->time_us).s, stitch__time(s->run->sync_us).s);
    out->gain_us = s->run->sync_us;
    return true;
}

/* [BPG] "Data Transfer Between Host and Device": pinned, asynchronous, few and large, or none. */
bool stitch__rule_host_copies(const stitch__subject *s, stitch__finding *out)
{
    double time = s->run->host_copy_us;
    if (!(time > 0) || !(time >= WAITS_FROM * run_time(s)))
        return false;
    stitch__say(out->evidence, "of %s, copies between host and device take %s", stitch__time(s->run->time_us).s,
                stitch__time(s->f->host_copy_us).s);
    if (time < s->f->host_copy_us)
        stitch__say(out->evidence, ", %s of that with no kernel beside them", stitch__time(time).s);
    if (s->f->host_copy_bytes)
        stitch__say(out->evidence, ", %.3g MB at %.1f GB/s", (double)s->f->host_copy_bytes / 1e6,
                    stitch__or(stitch__ratio((double)s->f->host_copy_bytes / 1e3, s->f->host_copy_us), 0));
    if (s->f->pageable_copies)
        stitch__say(out->evidence, ", %" PRIu64 " of the copies with memory that is not pinned", s->f->pageable_copies);
    out->gain_us = time;
    return true;
}

bool stitch__rule_redundant_copies(const stitch__subject *s, stitch__finding *out)
{
    double time = s->run->copy_us;
    size_t steps = 0, first = 0;
    for (size_t i = s->f->step_count; i-- > 0;) {
        const stitch__step_fact *step = &s->f->steps[i];
        if (step->moves_only && (strcmp(step->kind, "copy") == 0 || strcmp(step->kind, "fill") == 0)) {
            steps++;
            first = i;
        }
    }
    if (!(time >= COPIES_FROM * run_time(s)) && !(steps && !(s->run->time_us > 0)))
        return false;
    if (s->run->time_us > 0)
        stitch__say(out->evidence, "of %s, copies (%" PRIu64 ") and fills (%" PRIu64 ") within the device take %s",
                    stitch__time(s->run->time_us).s, s->f->copies, s->f->fills, stitch__time(time).s);
    if (steps)
        stitch__say(out->evidence, "%s%zu steps of the program do nothing else, the first is %.60s",
                    *out->evidence ? "; " : "", steps, s->f->steps[first].place);
    out->gain_us = s->run->time_us > 0 ? time : 0;
    return true;
}
