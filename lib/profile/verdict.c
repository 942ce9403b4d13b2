/* SPDX-License-Identifier: MIT
 *
 * Figures derived from the facts, and which limit a kernel and the run are at.
 *
 * The model is the roofline (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009): a kernel needs at least
 * bytes / bandwidth and at least operations / rate. Each part of the device gives such a bound, as a share of its peak
 * over the kernel's time; the greatest share is the bound that the kernel comes nearest to, and share * time is what
 * that part alone would have needed. The metrics mean what Nsight Compute's documentation says ("Metrics Structure" and
 * "Memory Chart"); a hierarchy of rooflines (DRAM, L2, L1) follows Ilic et al. and Yang et al. Where none is near,
 * warps wait: by Little's law, too few bytes or operations are in flight.
 */
#include <math.h>

#include "profile/ceilings.h"
#include "profile/rules.h"

#include <stitch/task.h>

/* Idle for a quarter of the run: the device waits more than any kernel rule can give (and trace.md's text says so). */
#define IDLE_FROM 0.25
/* Copies that take half of the run are what it does. */
#define COPIES_FROM 0.50

double stitch__measured(double value)
{
    return isfinite(value) && value >= 0 ? value : NAN;
}

double stitch__or(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

double stitch__most(double a, double b)
{
    return isnan(a) ? b : isnan(b) || a > b ? a : b;
}

double stitch__at_most_1(double share)
{
    return share > 1 ? 1 : share; /* NAN stays */
}

static double positive(double value)
{
    return isfinite(value) && value > 0 ? value : NAN;
}

double stitch__ratio(double a, double b)
{
    return stitch__measured(a / positive(b));
}

static double percent(const stitch__kernel_fact *k, int which)
{
    return stitch__at_most_1(stitch__metric_of(k, which) / 100);
}

static double sum(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : stitch__measured(a + b);
}

/* ---- the run ---- */

static double launch_time(const stitch__kernel_fact *k)
{
    double time = positive(k->time_us);
    return isnan(time) ? positive(k->metric[STITCH__METRIC_TIME] / 1e3) : time;
}

static double total_time(const stitch__kernel_fact *k)
{
    return stitch__measured(launch_time(k) * (double)(k->launches ? k->launches : 1));
}

void stitch__figures_of_run(const stitch__facts *f, stitch__run_figures *out)
{
    double wall = stitch__or(positive(f->wall_us), 0), busy = stitch__or(positive(f->busy_us), 0);
    double idle = stitch__or(positive(f->idle_us), 0), launches = 0;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < f->kernel_count; i++) {
        double total = total_time(&f->kernels[i]);
        if (isnan(total))
            continue;
        out->kernels_us += total;
        launches += (double)(f->kernels[i].launches ? f->kernels[i].launches : 1);
    }
    out->kernels_us = stitch__or(stitch__measured(out->kernels_us), 0);
    out->kernel_us = stitch__or(stitch__ratio(out->kernels_us, launches), 0);
    /* Tracing makes launches slower. Where the undisturbed run was timed, the device cannot have been idle for longer
     * than what that leaves. */
    if (wall > 0 && busy > 0)
        idle = fmin(idle, fmax(wall - busy, 0));
    out->time_us = wall > 0 ? wall : busy + idle > 0 ? busy + idle : out->kernels_us;
    out->time_us = stitch__or(stitch__measured(out->time_us), 0);
    out->idle_us = idle = fmin(idle, out->time_us);
    double sync = stitch__or(positive(f->sync_us), 0), host = stitch__or(positive(f->host_us), 0);
    double whole = stitch__or(positive(f->idle_us), 0);
    double scale = whole > 0 ? idle / whole : 0;
    out->sync_us = fmin(sync * scale, idle);
    out->host_us = fmin(host * scale, idle - out->sync_us);
    out->slow_call_us = fmin(stitch__or(positive(f->slow_call_us), 0) * scale, idle - out->sync_us - out->host_us);
    out->launch_us = idle - out->sync_us - out->host_us - out->slow_call_us;
    /* Which copies kernels ran beside is not known: those between host and device, as far as there are so many. */
    double copy = stitch__or(positive(f->copy_us), 0), beside = stitch__or(positive(f->overlap_us), 0);
    out->host_copy_us = fmax(stitch__or(positive(f->host_copy_us), 0) - beside, 0);
    out->copy_us = fmax(copy - beside - out->host_copy_us, 0);
}

/* ---- a kernel ---- */

static void busiest(double *most, const char **part, double share, const char *name)
{
    if (!isnan(share) && (isnan(*most) || share > *most)) {
        *most = share;
        *part = name;
    }
}

/* The part of the time of all multiprocessors in which they had a block: as it was counted, or at most what the grid
 * gives them. CUPTI's shares of their pipes are those of active cycles: 40 blocks can keep the tensor cores of 40
 * multiprocessors at 90 % of their peak, and the device's are at 27 % then. */
static double active(const stitch__kernel_fact *k, const stitch__figures *g)
{
    double counted = stitch__at_most_1(positive(k->metric[STITCH__METRIC_SM_ACTIVE] / 100));
    return stitch__or(counted, stitch__or(stitch__at_most_1(stitch__ratio(g->blocks, g->multiprocessors)), 1));
}

/* Shares of peaks. Rates of bytes go with the time that was measured together with the bytes: a replay's caches can be
 * colder than a run's, and then its bytes in a run's time would be more than the device can move. */
static void set_parts(const stitch__facts *f, const stitch__kernel_fact *k, stitch__figures *out)
{
    double counted_us = positive(k->metric[STITCH__METRIC_TIME] / 1e3);
    if (isnan(counted_us))
        counted_us = out->time_us;
    out->gb_s = stitch__ratio(out->dram_bytes / 1e3, counted_us);
    out->tflops = stitch__ratio(out->flops / 1e6, out->time_us);
    out->dram = stitch__at_most_1(stitch__ratio(out->gb_s, f->ceilings.dram_gb_s));
    if (isnan(out->dram))
        out->dram = percent(k, STITCH__METRIC_DRAM_SHARE);
    out->l2 = percent(k, STITCH__METRIC_L2_SHARE);
    out->l1 = percent(k, STITCH__METRIC_L1_SHARE);
    out->active = active(k, out);
    out->fma = out->active * percent(k, STITCH__METRIC_FMA_SHARE);
    if (!(stitch__metric_of(k, STITCH__METRIC_MMA_INST) > 0)) /* whose operations would be counted, too */
        out->fma = stitch__most(out->fma, stitch__at_most_1(stitch__ratio(out->tflops, f->ceilings.f32_tflops)));
    out->alu = out->active * percent(k, STITCH__METRIC_ALU_SHARE);
    out->xu = out->active * percent(k, STITCH__METRIC_XU_SHARE);
    out->fp64 = out->active * percent(k, STITCH__METRIC_FP64_SHARE);
    out->tensor = out->active * percent(k, STITCH__METRIC_TENSOR_ACTIVE);
    out->issue = percent(k, STITCH__METRIC_ISSUE);
    out->memory = out->compute = NAN;
    out->memory_part = out->compute_part = "";
    busiest(&out->memory, &out->memory_part, out->dram, "DRAM");
    busiest(&out->memory, &out->memory_part, out->l2, "L2");
    busiest(&out->memory, &out->memory_part, out->l1, "the load/store pipe of L1 and shared memory");
    busiest(&out->compute, &out->compute_part, out->tensor, "tensor cores");
    busiest(&out->compute, &out->compute_part, out->fma, "float32 (FMA) pipe");
    busiest(&out->compute, &out->compute_part, out->alu, "integer (ALU) pipe");
    busiest(&out->compute, &out->compute_part, out->xu, "special-function (XU) pipe");
    busiest(&out->compute, &out->compute_part, out->fp64, "float64 pipe");
    busiest(&out->compute, &out->compute_part, out->issue, "issue slots");
    out->reached = stitch__most(out->memory, out->compute);
}

static void set_accesses(const stitch__kernel_fact *k, stitch__figures *out)
{
    out->load_requests = stitch__metric_of(k, STITCH__METRIC_LOAD_REQUESTS);
    out->load_sectors = stitch__metric_of(k, STITCH__METRIC_LOAD_SECTORS);
    out->store_requests = stitch__metric_of(k, STITCH__METRIC_STORE_REQUESTS);
    out->store_sectors = stitch__metric_of(k, STITCH__METRIC_STORE_SECTORS);
    /* 0 where accesses are of kinds that this counter leaves out: cp.async counts as a load by the others. */
    out->load_asked = positive(stitch__metric_of(k, STITCH__METRIC_LOAD_ASKED));
    out->store_asked = positive(stitch__metric_of(k, STITCH__METRIC_STORE_ASKED));
    out->requests = sum(out->load_requests, out->store_requests);
    out->sectors = sum(out->load_sectors, out->store_sectors);
    out->ideal = stitch__metric_of(k, STITCH__METRIC_GLOBAL_IDEAL_SECTORS);
    if (!isnan(out->ideal) && !isnan(stitch__metric_of(k, STITCH__METRIC_GLOBAL_SECTORS))) {
        out->requests = stitch__metric_of(k, STITCH__METRIC_GLOBAL_REQUESTS);
        out->sectors = stitch__metric_of(k, STITCH__METRIC_GLOBAL_SECTORS);
    }
    out->shared_wavefronts = stitch__metric_of(k, STITCH__METRIC_SHARED_WAVEFRONTS);
    out->shared_wasted =
        stitch__measured(out->shared_wavefronts - stitch__metric_of(k, STITCH__METRIC_SHARED_IDEAL_WAVEFRONTS));
    if (isnan(out->shared_wasted)) {
        out->shared_wavefronts = sum(stitch__metric_of(k, STITCH__METRIC_SHARED_LOAD_WAVEFRONTS),
                                     stitch__metric_of(k, STITCH__METRIC_SHARED_STORE_WAVEFRONTS));
        out->shared_wasted = sum(stitch__metric_of(k, STITCH__METRIC_SHARED_LOAD_CONFLICTS),
                                 stitch__metric_of(k, STITCH__METRIC_SHARED_STORE_CONFLICTS));
    }
    out->local_requests = stitch__metric_of(k, STITCH__METRIC_LOCAL_REQUESTS);
    if (isnan(out->local_requests))
        out->local_requests =
            sum(stitch__metric_of(k, STITCH__METRIC_LOCAL_LOADS), stitch__metric_of(k, STITCH__METRIC_LOCAL_STORES));
}

void stitch__figures_of(const stitch__facts *f, const stitch__run_figures *run, const stitch__kernel_fact *k,
                        stitch__figures *out)
{
    memset(out, 0, sizeof(*out));
    out->time_us = launch_time(k);
    out->total_us = total_time(k);
    out->share = stitch__at_most_1(positive(k->share));
    if (isnan(out->share))
        out->share = stitch__at_most_1(stitch__ratio(out->total_us, run->kernels_us));
    out->blocks = positive((double)k->grid[0] * k->grid[1] * k->grid[2]);
    out->threads = positive((double)k->block[0] * k->block[1] * k->block[2]);
    out->multiprocessors = positive(f->multiprocessors);
    out->dram_bytes = stitch__metric_of(k, STITCH__METRIC_DRAM_BYTES);
    if (isnan(out->dram_bytes))
        out->dram_bytes = stitch__measured(stitch__metric_of(k, STITCH__METRIC_DRAM_READ) +
                                           stitch__metric_of(k, STITCH__METRIC_DRAM_WRITE));
    out->tensor_inst = stitch__metric_of(k, STITCH__METRIC_TENSOR_INST);
    if (isnan(out->tensor_inst))
        out->tensor_inst = stitch__metric_of(k, STITCH__METRIC_MMA_INST);
    /* A fused multiply-add is two operations. CUPTI does not count those of tensor cores, and how many an instruction
     * makes differs: where there are some, the sum would be far too low and is not known. */
    out->flops = stitch__metric_of(k, STITCH__METRIC_FLOPS);
    if (isnan(out->flops) && !(out->tensor_inst > 0))
        out->flops = stitch__measured(2 * stitch__metric_of(k, STITCH__METRIC_FFMA) +
                                      stitch__or(stitch__metric_of(k, STITCH__METRIC_FADD), 0) +
                                      stitch__or(stitch__metric_of(k, STITCH__METRIC_FMUL), 0));
    out->intensity = stitch__ratio(out->flops, out->dram_bytes);
    set_parts(f, k, out);
    set_accesses(k, out);
    out->lanes = stitch__at_most_1(stitch__ratio(stitch__metric_of(k, STITCH__METRIC_THREAD_INST),
                                                 32 * stitch__metric_of(k, STITCH__METRIC_INST)));
    out->occupancy = stitch__at_most_1(positive(k->occupancy));
    out->achieved_occupancy = percent(k, STITCH__METRIC_WARPS_ACTIVE);
}

/* ---- the verdict of a kernel ---- */

STITCH__PRINTF(2, 3) static void say(stitch__judged *j, const char *fmt, ...)
{
    size_t len = strlen(j->because);
    va_list ap;
    va_start(ap, fmt);
    stitch__vformat(j->because + len, sizeof(j->because) - len, fmt, ap);
    va_end(ap);
}

static void say_part(const stitch__facts *f, const stitch__figures *g, const char *part, double share,
                     stitch__judged *j)
{
    if (strcmp(part, "DRAM") == 0 && g->gb_s > 0 && positive(f->ceilings.dram_gb_s) > 0)
        say(j, "DRAM at %.0f %% of the %.0f GB/s that it %s", 100 * share, f->ceilings.dram_gb_s,
            f->ceilings.measured ? "was measured to copy at" : "should copy at");
    else
        say(j, "%s", stitch__level(part, share).s);
}

static void judge_by_counts(const stitch__facts *f, const stitch__kernel_fact *k, const stitch__figures *g,
                            stitch__judged *j)
{
    double bytes = stitch__metric_of(k, STITCH__METRIC_GLOBAL_BYTES);
    double rate = stitch__metric_of(k, STITCH__METRIC_MMA_INST) > 0
                      ? stitch__ceilings_matrix(&f->ceilings, f->precision)
                      : f->ceilings.f32_tflops;
    double ridge = stitch__ratio(rate * 1e3, f->ceilings.dram_gb_s), intensity = stitch__ratio(g->flops, bytes);
    if (isnan(ridge) || isnan(intensity)) {
        say(j, "counted, not timed: nothing says how busy the device is");
        return;
    }
    /* Bytes asked for are at least those of DRAM: above the ridge arithmetic bounds it in any case. */
    j->bound = intensity >= ridge ? STITCH__BOUND_COMPUTE : STITCH__BOUND_MEMORY;
    say(j,
        "%.3g operations for each byte that threads ask for, and arithmetic bounds it from %.3g on (counted, not "
        "timed)",
        intensity, ridge);
}

bool stitch__all_counted(const stitch__figures *g)
{
    return !isnan(g->dram) && !isnan(g->l2) && !isnan(g->l1) && !isnan(g->fma) && !isnan(g->issue);
}

static void judge_wait(const stitch__kernel_fact *k, const stitch__figures *g, stitch__judged *j)
{
    double share;
    const char *reason = stitch__stall_most(k, &share), *meaning;
    (void)stitch__stall_hint(reason, &meaning);
    j->bound = STITCH__BOUND_LATENCY;
    say(j, "far from %s: %s at %.0f %%, %s at %.0f %%",
        stitch__all_counted(g) ? "every limit" : "the limits that were counted", g->memory_part, 100 * g->memory,
        g->compute_part, 100 * g->compute);
    if (*reason)
        say(j, "; warps wait, %.0f %% of that %s (%s)", 100 * share, meaning, reason);
}

void stitch__judge_kernel(const stitch__facts *f, const stitch__kernel_fact *k, const stitch__figures *g,
                          stitch__judged *j)
{
    memset(j, 0, sizeof(*j));
    j->gb_s = stitch__or(g->gb_s, 0);
    j->tflops = stitch__or(g->tflops, 0);
    j->intensity = stitch__or(g->intensity, 0);
    j->reached = isnan(g->time_us) ? 0 : stitch__or(g->reached, 0);
    j->limit_us = j->reached * stitch__or(g->time_us, 0);
    if (g->reached >= STITCH__BOUND_FROM) {
        bool memory = !isnan(g->memory) && g->memory == g->reached;
        j->bound = memory ? STITCH__BOUND_MEMORY : STITCH__BOUND_COMPUTE;
        say_part(f, g, memory ? g->memory_part : g->compute_part, g->reached, j);
    } else if (g->time_us < STITCH__SHORT_KERNEL_US) {
        j->bound = STITCH__BOUND_LAUNCH;
        say(j, "%.1f us, hardly more than an empty kernel takes", g->time_us);
    } else if (2 * g->blocks <= g->multiprocessors && !isnan(g->time_us)) {
        j->bound = STITCH__BOUND_LAUNCH;
        say(j, "%.0f blocks on %.0f multiprocessors", g->blocks, g->multiprocessors);
    } else if (!isnan(g->memory) && !isnan(g->compute)) {
        judge_wait(k, g, j);
    } else if (isnan(g->time_us)) {
        judge_by_counts(f, k, g, j);
    } else {
        say(j, isnan(g->reached) ? "not known without counters" : "the counters that are known do not tell");
        say(j, "%s%.150s", *f->no_counters ? ": " : "", f->no_counters);
    }
}

/* ---- the verdict of the run ---- */

/* Where nothing is timed, instructions stand for the time. */
static double weight_of(const stitch__kernel_fact *k, const stitch__figures *g)
{
    double launches = (double)(k->launches ? k->launches : 1);
    return stitch__or(g->total_us, launches * stitch__or(stitch__metric_of(k, STITCH__METRIC_INST), 1));
}

/* "3001 kernels of 1.1 us each, ..." */
static void say_short_kernels(const stitch__facts *f, const stitch__figures *figures, double all, stitch__judged *j)
{
    double launches = 0, time = 0;
    for (size_t i = 0; i < f->kernel_count; i++) {
        if (!(figures[i].time_us < STITCH__SHORT_KERNEL_US))
            continue;
        launches += (double)(f->kernels[i].launches ? f->kernels[i].launches : 1);
        time += stitch__or(figures[i].total_us, 0);
    }
    if (launches == 1)
        say(j, "one kernel of %.1f us, hardly more than an empty one takes", time);
    else
        say(j, "%.0f kernels of %.1f us each, hardly more than an empty one takes", launches, time / launches);
    if (time < 0.995 * all)
        say(j, ": %.0f %% of the kernel time", 100 * stitch__or(stitch__ratio(time, all), 0));
}

static void judge_kernels(const stitch__facts *f, const stitch__figures *figures, const stitch__judged *kernels,
                          stitch__judged *j)
{
    double time[STITCH__BOUND_CLASSES] = {0}, most = 0, all = 0;
    char name[STITCH__NAME_BYTES];
    size_t worst = 0;
    int bound = STITCH__BOUND_UNKNOWN;
    for (size_t i = 0; i < f->kernel_count; i++) {
        double weight = weight_of(&f->kernels[i], &figures[i]);
        time[kernels[i].bound] += weight;
        all += weight;
    }
    for (int b = 0; b < STITCH__BOUND_CLASSES; b++) {
        if (time[b] > time[bound])
            bound = b;
    }
    for (size_t i = 0; i < f->kernel_count; i++) {
        double weight = weight_of(&f->kernels[i], &figures[i]);
        if (kernels[i].bound == bound && weight > most) {
            most = weight;
            worst = i;
        }
    }
    j->bound = bound;
    const char *what = isnan(figures[worst].total_us) ? "work" : "kernel time";
    stitch__short_name(f->kernels[worst].name, name, sizeof(name));
    if (bound == STITCH__BOUND_LAUNCH && figures[worst].time_us < STITCH__SHORT_KERNEL_US)
        say_short_kernels(f, figures, all, j);
    else if (f->kernel_count == 1)
        say(j, "%s", kernels[0].because);
    else if (time[bound] > 1.01 * most)
        say(j, "%.0f %% of the %s, most of it in %s (%.0f %%): %s",
            100 * stitch__or(stitch__ratio(time[bound], all), 0), what, name,
            100 * stitch__or(stitch__ratio(most, all), 0), kernels[worst].because);
    else
        say(j, "%s, %.0f %% of the %s: %s", name, 100 * stitch__or(stitch__ratio(most, all), 0), what,
            kernels[worst].because);
}

static void judge_idle(const stitch__facts *f, const stitch__run_figures *run, stitch__judged *j)
{
    const char *why = f->graph ? "between the nodes of a graph" : "between launches";
    const char *call = "";
    double most = run->launch_us;
    j->bound = STITCH__BOUND_LAUNCH;
    if (run->host_us > most) {
        most = run->host_us;
        why = "while the host is in no CUDA call";
        j->bound = STITCH__BOUND_HOST;
    }
    if (run->sync_us > most) {
        most = run->sync_us;
        why = "while the host waits for it and has launched nothing else";
        j->bound = STITCH__BOUND_HOST;
    }
    if (run->slow_call_us > most) {
        most = run->slow_call_us;
        why = "while the host is in ";
        call = f->slow_call;
        j->bound = STITCH__BOUND_HOST;
    }
    say(j, "the device is idle for %.0f %% of %s, for %s of that %s%.60s", 100 * fmin(run->idle_us / run->time_us, 1),
        stitch__time(run->time_us).s, stitch__time(most).s, why, call);
    if (f->kernels_left_out + f->kernel_count > 1 && run->kernel_us > 0)
        say(j, "; a kernel takes %.1f us", run->kernel_us);
}

/* What all kernels would need at their limits, as far as those are known, and rates over all of them. */
static void add_up(const stitch__facts *f, const stitch__run_figures *run, const stitch__figures *figures,
                   const stitch__judged *kernels, stitch__judged *j)
{
    double limit = 0, bytes = 0, flops = 0, bytes_us = 0, flops_us = 0, flops_of_bytes = 0, bytes_of_flops = 0;
    bool known = false;
    for (size_t i = 0; i < f->kernel_count; i++) {
        double launches = (double)(f->kernels[i].launches ? f->kernels[i].launches : 1), total = figures[i].total_us;
        if (isnan(total))
            continue;
        known |= kernels[i].limit_us > 0;
        limit += kernels[i].limit_us > 0 ? kernels[i].limit_us * launches : total;
        if (figures[i].dram_bytes > 0) {
            bytes += figures[i].dram_bytes * launches;
            bytes_us += total;
        }
        if (figures[i].flops > 0) {
            flops += figures[i].flops * launches;
            flops_us += total;
        }
        if (figures[i].intensity > 0) {
            flops_of_bytes += figures[i].flops * launches;
            bytes_of_flops += figures[i].dram_bytes * launches;
        }
    }
    j->gb_s = stitch__or(stitch__ratio(bytes / 1e3, bytes_us), 0);
    j->tflops = stitch__or(stitch__ratio(flops / 1e6, flops_us), 0);
    j->intensity = stitch__or(stitch__ratio(flops_of_bytes, bytes_of_flops), 0);
    if (known && run->time_us > 0) {
        j->limit_us = fmin(stitch__or(stitch__measured(limit), 0), run->time_us);
        j->reached = stitch__at_most_1(j->limit_us / run->time_us);
    }
}

void stitch__judge_run(const stitch__facts *f, const stitch__run_figures *run, const stitch__figures *figures,
                       const stitch__judged *kernels, stitch__judged *j)
{
    const char *beside = f->overlap_us > 0 ? " with no kernel beside them" : "";
    memset(j, 0, sizeof(*j));
    if (run->time_us > 0 && run->host_copy_us >= COPIES_FROM * run->time_us) {
        j->bound = STITCH__BOUND_COPY;
        say(j, "copies between host and device take %.0f %% of %s%s: %.3g MB at %.1f GB/s",
            100 * fmin(run->host_copy_us / run->time_us, 1), stitch__time(run->time_us).s, beside,
            (double)f->host_copy_bytes / 1e6,
            stitch__or(stitch__ratio((double)f->host_copy_bytes / 1e3, f->host_copy_us), 0));
        if (f->pageable_copies)
            say(j, "; %" PRIu64 " of them with memory that is not pinned", f->pageable_copies);
    } else if (run->time_us > 0 && run->idle_us >= IDLE_FROM * run->time_us) {
        judge_idle(f, run, j);
    } else if (run->time_us > 0 && run->copy_us + run->host_copy_us >= COPIES_FROM * run->time_us) {
        j->bound = STITCH__BOUND_COPY;
        say(j, "copies and fills take %.0f %% of %s%s",
            100 * fmin((run->copy_us + run->host_copy_us) / run->time_us, 1), stitch__time(run->time_us).s, beside);
    } else if (f->kernel_count) {
        judge_kernels(f, figures, kernels, j);
    } else {
        say(j, "nothing was observed%s%.180s", *f->no_timeline ? ": " : "", f->no_timeline);
    }
    add_up(f, run, figures, kernels, j);
}
