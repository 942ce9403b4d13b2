/* SPDX-License-Identifier: MIT
 *
 * Facts for tests of the advice: an H200, and a kernel on it that is far from every limit and has nothing else wrong.
 */
#ifndef STITCH_TESTS_ADVICE_FACTS_H
#define STITCH_TESTS_ADVICE_FACTS_H

#include <math.h>
#include <stitch/task.h>

#include "check.h"
#include "profile/advice.h"

static stitch_error *err;

__attribute__((unused)) static stitch__facts *h200(const stitch_context *ctx)
{
    stitch__facts *f = NULL;
    CHECK_OK(stitch__facts_new(ctx, &f, &err));
    f->source = "cupti";
    f->device = "NVIDIA H200";
    f->arch = "sm_90a";
    f->multiprocessors = 132;
    f->precision = STITCH_PRECISION_TF32;
    f->ceilings = (stitch__ceilings){true, 4100, 60, 400, 800, 800, 1600, 2.3, 1.2};
    f->wall_us = f->busy_us = 500;
    f->launches = 1;
    return f;
}

#define METRIC(k, name) ((k)->metric[STITCH__METRIC_##name])

/* A kernel as the timeline has it. */
__attribute__((unused)) static stitch__kernel_fact *timed_kernel(stitch__facts *f, const char *name, double time_us)
{
    stitch__kernel_fact *k = stitch__facts_add_kernel(f);
    CHECK(k != NULL);
    k->name = k->symbol = name;
    k->launches = 1;
    k->time_us = time_us;
    k->grid[0] = 4096;
    k->block[0] = 256;
    k->grid[1] = k->grid[2] = k->block[1] = k->block[2] = 1;
    k->registers = 32;
    k->occupancy = 1;
    k->waves = 3.88;
    return k;
}

__attribute__((unused)) static void cheap_counters(stitch__kernel_fact *k)
{
    METRIC(k, TIME) = k->time_us * 1e3;
    METRIC(k, DRAM_SHARE) = 26;
    METRIC(k, DRAM_BYTES) = k->time_us * 0.3 * 4100e3;
    METRIC(k, WARPS_ACTIVE) = 90;
    METRIC(k, ISSUE) = 30;
    METRIC(k, L1_HIT) = 20;
    METRIC(k, TENSOR_ACTIVE) = METRIC(k, TENSOR_INST) = 0;
}

__attribute__((unused)) static void full_counters(stitch__kernel_fact *k)
{
    cheap_counters(k);
    METRIC(k, DRAM_READ) = METRIC(k, DRAM_WRITE) = METRIC(k, DRAM_BYTES) / 2;
    METRIC(k, L2_SHARE) = 25;
    METRIC(k, L2_HIT) = 60;
    METRIC(k, L1_SHARE) = 30;
    METRIC(k, INST) = 1e7;
    METRIC(k, THREAD_INST) = 3.2e8;
    METRIC(k, FMA_SHARE) = 20;
    METRIC(k, ALU_SHARE) = 15;
    METRIC(k, XU_SHARE) = 2;
    METRIC(k, FP64_SHARE) = 0;
    METRIC(k, FFMA) = 1e7;
    METRIC(k, FADD) = METRIC(k, FMUL) = 1e6;
    METRIC(k, LOAD_REQUESTS) = 1e6;
    METRIC(k, LOAD_SECTORS) = 4e6;
    METRIC(k, STORE_REQUESTS) = 5e5;
    METRIC(k, STORE_SECTORS) = 2e6;
    METRIC(k, LOAD_ASKED) = METRIC(k, STORE_ASKED) = 32;
    METRIC(k, LOCAL_LOADS) = METRIC(k, LOCAL_STORES) = 0;
    METRIC(k, SHARED_LOAD_WAVEFRONTS) = METRIC(k, SHARED_STORE_WAVEFRONTS) = 1e5;
    METRIC(k, SHARED_LOAD_CONFLICTS) = METRIC(k, SHARED_STORE_CONFLICTS) = 100;
    METRIC(k, STALL_LONG) = 3;
    METRIC(k, STALL_SHORT) = 0.3;
    METRIC(k, STALL_BARRIER) = METRIC(k, STALL_MIO) = METRIC(k, STALL_LG) = 0.1;
    METRIC(k, STALL_MATH) = 0.2;
    METRIC(k, STALL_WAIT) = 1;
    METRIC(k, STALL_GMMA) = 0;
}

__attribute__((unused)) static stitch__kernel_fact *plain_kernel(stitch__facts *f)
{
    stitch__kernel_fact *k = timed_kernel(f, "plain", 500);
    full_counters(k);
    return k;
}

__attribute__((unused)) static stitch__line_fact *add_line(stitch__kernel_fact *k, uint32_t line, const char *text,
                                                           const char *reason, uint64_t samples)
{
    CHECK(k->line_count < STITCH__FACTS_LINES);
    stitch__line_fact *l = &k->lines[k->line_count++];
    memset(l, 0, sizeof(*l));
    l->file = "program.cu";
    l->line = line;
    l->text = text;
    l->samples = samples;
    k->samples += samples;
    if (reason) {
        l->reason_count = 1;
        l->reasons[0] = (stitch__reason){reason, samples};
    }
    return l;
}

__attribute__((unused)) static void add_steps(stitch__facts *f, size_t count)
{
    static const char *const places[] = {"run[0]", "run[1]", "run[2]", "run[3]", "run[4]", "run[5]"};
    CHECK(count <= STITCH__COUNT(places) && !f->steps);
    f->steps = stitch__calloc(f->arena.ctx, count, sizeof(*f->steps));
    CHECK(f->steps != NULL);
    f->step_count = count;
    for (size_t i = 0; i < count; i++)
        f->steps[i] = (stitch__step_fact){places[i], "kernel", "", -1, "", 0, false};
}

/* NULL: the rule said nothing. */
__attribute__((unused)) static const stitch__advice *advice_of(const stitch__advices *a, const char *rule)
{
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->list[i].rule, rule) == 0)
            return &a->list[i];
    }
    return NULL;
}

#endif
