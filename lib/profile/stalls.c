/* SPDX-License-Identifier: MIT
 *
 * Why warps wait: by samples where there are enough, or else by counters.
 */
#include <math.h>

#include "profile/rules.h"

/* Those with a metric come first. What they mean is in Nsight Compute's kernel profiling guide ("Warp Stall Reasons").
 */
static const struct {
    const char *name;
    int metric;
    const char *meaning, *hint;
} reasons[] = {
    {"long_scoreboard", STITCH__METRIC_STALL_LONG, "for global or local memory",
     "Load earlier and more at once (several independent loads before the first use, float4, cp.async into shared "
     "memory), and keep reused data in registers or shared memory."},
    {"short_scoreboard", STITCH__METRIC_STALL_SHORT, "for shared memory or the special-function unit",
     "Read shared memory in wider pieces and further ahead of the use; check for bank conflicts."},
    {"barrier", STITCH__METRIC_STALL_BARRIER, "at __syncthreads()", "Fewer barriers, or the same work for each warp."},
    {"mio_throttle", STITCH__METRIC_STALL_MIO, "for the queue of shared memory and special instructions",
     "Fewer, wider accesses to shared memory; check for bank conflicts."},
    {"lg_throttle", STITCH__METRIC_STALL_LG, "for the queue of global loads and stores",
     "Coalesced, fewer and wider global accesses (float4), reuse from shared memory."},
    {"math_pipe_throttle", STITCH__METRIC_STALL_MATH, "for a busy arithmetic pipe",
     "Fewer instructions of that kind, or another pipe."},
    {"wait", STITCH__METRIC_STALL_WAIT, "a fixed number of cycles after each instruction",
     "More independent instructions a thread (work on several elements at once) or more warps."},
    {"gmma", STITCH__METRIC_STALL_GMMA, "for tensor cores", "Keep more products in flight (more stages of tiles)."},
    {"branch_resolving", -1, "for branches", "Unroll, or use selects in place of short branches."},
    {"no_instructions", -1, "for instructions", "Smaller code: less unrolling, loops that fit the instruction cache."},
    {"membar", -1, "at memory fences", "Fewer or narrower fences (__threadfence_block())."},
    {"drain", -1, "for stores at the end of the kernel", "Coalesce the stores and spread them over the kernel's time."},
    {"imc_miss", -1, "for constants", "Index constants by values that are the same for the whole warp."},
    {"sleeping", -1, "in __nanosleep()", "Poll less, or for less long."},
    {"tex_throttle", -1, "for the queue of textures", "Fewer texture fetches, or loads in their place."},
    {"dispatch_stall", -1, "for the dispatcher", ""},
};

const char *stitch__stall_hint(const char *reason, const char **meaning)
{
    *meaning = "";
    for (size_t i = 0; i < STITCH__COUNT(reasons); i++) {
        if (strcmp(reasons[i].name, reason) == 0) {
            *meaning = reasons[i].meaning;
            return reasons[i].hint;
        }
    }
    return "";
}

/* Of the samples: those of the lines that the facts kept, so rather too few. */
static double sampled_share(const stitch__kernel_fact *k, const char *reason)
{
    double all = 0, these = 0;
    for (size_t i = 0; i < stitch__lines_of(k); i++) {
        all += (double)k->lines[i].samples;
        these += (double)stitch__line_samples(&k->lines[i], reason);
    }
    all = fmax(all, (double)k->samples);
    return all < STITCH__SAMPLES_FROM ? NAN : stitch__at_most_1(stitch__ratio(these, all));
}

double stitch__stall_share(const stitch__kernel_fact *k, const char *reason)
{
    double share = sampled_share(k, reason), all = 1, these = NAN; /* 1: the warp that issues */
    if (!isnan(share))
        return share;
    /* smsp__average_warps_issue_stalled_X_per_issue_active: warps that wait for X, for each that issues. */
    for (size_t i = 0; i < STITCH__COUNT(reasons) && reasons[i].metric >= 0; i++) {
        double value = stitch__metric_of(k, reasons[i].metric);
        all += stitch__or(value, 0);
        if (strcmp(reasons[i].name, reason) == 0)
            these = value;
    }
    return stitch__at_most_1(stitch__ratio(these, all));
}

const char *stitch__stall_most(const stitch__kernel_fact *k, double *share)
{
    const char *most = "";
    *share = NAN;
    for (size_t i = 0; i < STITCH__COUNT(reasons); i++) {
        double here = stitch__stall_share(k, reasons[i].name);
        if (here > stitch__or(*share, 0)) {
            *share = here;
            most = reasons[i].name;
        }
    }
    return most;
}
