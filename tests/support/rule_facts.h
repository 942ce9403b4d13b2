/* SPDX-License-Identifier: MIT
 *
 * For each rule of the advice facts that it holds for, and the same facts but for the figure that decides.
 */
#ifndef STITCH_TESTS_RULE_FACTS_H
#define STITCH_TESTS_RULE_FACTS_H

#include "advice_facts.h"
#include "profile/rules.h"

typedef void (*build_fn)(stitch__facts *f, bool holds);

__attribute__((unused)) static void conversions(stitch__facts *f, bool holds)
{
    plain_kernel(f)->step = 0;
    add_steps(f, 2);
    f->steps[0].next = 1;
    f->steps[0].between = "h";
    f->steps[0].between_bytes = 64000000;
    f->steps[0].moves_only = holds;
}

__attribute__((unused)) static void small_grid(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    k->grid[0] = holds ? 40 : 132;
    k->waves = k->grid[0] / 1056.0;
}

__attribute__((unused)) static void uncoalesced(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, STORE_SECTORS) = holds ? 1.6e7 : 2e6;
    METRIC(k, STORE_ASKED) = holds ? 4 : 32;
}

__attribute__((unused)) static void bank_conflicts(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, L1_SHARE) = 70;
    METRIC(k, SHARED_LOAD_WAVEFRONTS) = 3.3e6;
    METRIC(k, SHARED_LOAD_CONFLICTS) = holds ? 3.1e6 : 1e5;
}

__attribute__((unused)) static void spills(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    k->local = 400; /* an array that the compiler keeps in registers after all uses no memory */
    k->registers = 255;
    METRIC(k, LOCAL_LOADS) = holds ? 5e5 : 1e3;
}

__attribute__((unused)) static void atomic_contention(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    add_line(k, 7, holds ? "atomicAdd(&sum[0], v);" : "sum[i] = v;", "long_scoreboard", 600);
    add_line(k, 5, "v = x[i];", "long_scoreboard", 400);
}

__attribute__((unused)) static void tensor_unused(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    f->precision = holds ? STITCH_PRECISION_TF32 : STITCH_PRECISION_F32;
    METRIC(k, FFMA) = 512.0 * 4096 * 256;
    METRIC(k, DRAM_BYTES) = 5e7;
    METRIC(k, LOAD_REQUESTS) = 2 * METRIC(k, FFMA) / 32;
    METRIC(k, STORE_SECTORS) = 4096 * 256 / 8; /* a float each thread */
}

__attribute__((unused)) static void barrier_stalls(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), STALL_BARRIER) = holds ? 4 : 0.3;
}

__attribute__((unused)) static void fp64_bound(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), FP64_SHARE) = holds ? 80 : 20;
}

__attribute__((unused)) static void xu_bound(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), XU_SHARE) = holds ? 80 : 20;
}

__attribute__((unused)) static void instruction_bound(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, ISSUE) = 75;
    METRIC(k, FMA_SHARE) = holds ? 20 : 70;
}

__attribute__((unused)) static void l2_thrash(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    add_steps(f, 1);
    k->step = 0;
    METRIC(k, DRAM_BYTES) = 500 * 0.7 * 4100e3;
    METRIC(k, DRAM_READ) = 1.2e9;
    METRIC(k, L2_HIT) = 30;
    f->steps[0].bytes = holds ? 600000000 : 1200000000;
}

__attribute__((unused)) static void cache_bound(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), L1_SHARE) = holds ? 90 : 30;
}

__attribute__((unused)) static void memory_bound_near_limit(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), DRAM_BYTES) = 500 * (holds ? 0.93 : 0.5) * 4100e3;
}

__attribute__((unused)) static void compute_bound_near_limit(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), FMA_SHARE) = holds ? 92 : 70;
}

__attribute__((unused)) static void partial_warps(stitch__facts *f, bool holds)
{
    plain_kernel(f)->block[0] = holds ? 40 : 64;
}

__attribute__((unused)) static void divergence(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), THREAD_INST) = 1e7 * (holds ? 10 : 31);
}

__attribute__((unused)) static void low_occupancy(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    k->registers = 168;
    k->limiter = "registers";
    k->occupancy = holds ? 0.125 : 0.75;
    METRIC(k, WARPS_ACTIVE) = 12;
}

__attribute__((unused)) static void tail_effect(stitch__facts *f, bool holds)
{
    stitch__kernel_fact *k = plain_kernel(f);
    k->grid[0] = holds ? 1162 : 2112;
    k->waves = k->grid[0] / 1056.0;
}

__attribute__((unused)) static void uneven_blocks(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), WARPS_ACTIVE) = holds ? 30 : 90;
}

__attribute__((unused)) static void latency_bound(stitch__facts *f, bool holds)
{
    METRIC(plain_kernel(f), ISSUE) = holds ? 30 : 75;
}

__attribute__((unused)) static void host_copies(stitch__facts *f, bool holds)
{
    plain_kernel(f);
    f->wall_us = f->busy_us = 800;
    f->copy_us = f->host_copy_us = holds ? 300 : 30;
    f->host_copy_bytes = 3000000;
    f->copies = f->pageable_copies = 2;
}

__attribute__((unused)) static void host_bound(stitch__facts *f, bool holds)
{
    plain_kernel(f);
    f->wall_us = 700;
    f->idle_us = 200;
    f->host_us = holds ? 190 : 20;
}

__attribute__((unused)) static void slow_calls(stitch__facts *f, bool holds)
{
    plain_kernel(f);
    f->wall_us = 700;
    f->idle_us = 200;
    f->slow_call = "cuMemAlloc_v2";
    f->slow_call_us = holds ? 190 : 20;
}

__attribute__((unused)) static void sync_bound(stitch__facts *f, bool holds)
{
    plain_kernel(f);
    f->wall_us = 700;
    f->idle_us = 200;
    f->sync_us = holds ? 190 : 20;
}

__attribute__((unused)) static void many_launches(stitch__facts *f, uint64_t count, double time_us, double idle_us)
{
    stitch__kernel_fact *k = timed_kernel(f, "short", time_us);
    k->launches = f->launches = count;
    f->busy_us = time_us * (double)count;
    f->idle_us = idle_us;
    f->wall_us = f->busy_us + idle_us;
}

__attribute__((unused)) static void launch_bound(stitch__facts *f, bool holds)
{
    many_launches(f, 40, 2, 100);
    f->graph = !holds;
}

__attribute__((unused)) static void many_small_kernels(stitch__facts *f, bool holds)
{
    many_launches(f, holds ? 40 : 5, holds ? 2 : 16, 50);
    f->graph = true;
}

__attribute__((unused)) static void redundant_copies(stitch__facts *f, bool holds)
{
    plain_kernel(f);
    f->wall_us = f->busy_us = 700;
    f->copy_us = holds ? 100 : 20;
    f->copies = 4;
}

__attribute__((unused)) static void fusable_neighbours(stitch__facts *f, bool holds)
{
    for (int i = 0; i < 2; i++) {
        stitch__kernel_fact *k = timed_kernel(f, i ? "second" : "first", 250);
        full_counters(k);
        k->step = i;
    }
    f->launches = 2;
    add_steps(f, 2);
    f->steps[0].next = holds ? 1 : -1;
    f->steps[0].between = "h";
    f->steps[0].between_bytes = 64000000;
}

__attribute__((unused)) static void check_all(const char *id, const stitch__facts *f, const stitch__advices *a)
{
    for (size_t i = 0; i < a->count; i++) {
        const stitch__advice *v = &a->list[i];
        if (!*v->problem || !*v->evidence || !*v->action || strstr(v->evidence, "nan") || strstr(v->evidence, "inf"))
            FAIL("facts of %s, rule %s: %s / %s / %s", id, v->rule, v->problem, v->evidence, v->action);
        double most =
            v->kernel >= 0 ? f->kernels[v->kernel].time_us * (double)f->kernels[v->kernel].launches : f->wall_us;
        if (!(v->gain_us >= 0 && v->gain_us <= most) || fabs(v->gain_share - v->gain_us / f->wall_us) > 1e-9)
            FAIL("facts of %s, rule %s: gains %g (%g) of %g", id, v->rule, v->gain_us, v->gain_share, most);
        if (i && v->gain_us > v[-1].gain_us)
            FAIL("facts of %s: rule %s comes too late", id, v->rule);
    }
}

__attribute__((unused)) static void advise(stitch__facts *f, stitch__advices *a)
{
    CHECK_INT(stitch__advise(NULL, f, a), STITCH_OK);
    check_all("a test", f, a);
}

__attribute__((unused)) static void release(stitch__facts *f, stitch__advices *a)
{
    stitch__advices_free(a);
    stitch__facts_free(f);
}

__attribute__((unused)) static stitch__facts *simulated(void)
{
    stitch__facts *f = h200(NULL);
    f->source = "simulator";
    f->ceilings.measured = false;
    f->wall_us = f->busy_us = 0;
    f->no_timeline = f->no_counters = "the device is simulated";
    return f;
}

#endif
