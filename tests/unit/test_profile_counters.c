/* SPDX-License-Identifier: MIT
 *
 * Hardware counters against a CUPTI that fails in every way it can: each error in each function, ranges in any order,
 * metrics that are refused, other users, no memory. Nothing may crash, leak, or stay switched on.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "check.h"
#include "meter.h"
#include "cuda/cuda.h"
#include "fake_driver.h"
#include "fake_profiler.h"
#include "profile/counters.h"
#include "profile/metric_plan.h"
#include "profile/profile.h"

static meter memory = {.refuse_at = -1};
static stitch_context *ctx;
static stitch_error *err;
static stitch__device *dev;
static stitch__cupti cupti;
static stitch__counters *counters;
static stitch_trace *trace;
static const stitch__counters_options cheap = {STITCH__METRIC_CHEAP, NULL, 0, 64};
static fake_profiler *const fp = &fake_profiler_state;

static void begin_fresh(void)
{
    static const stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_trace_free(trace);
    trace = NULL;
    stitch__counters_close(counters);
    counters = NULL;
    stitch_error_free(err);
    err = NULL;
    memory.refuse_at = -1;
    fake.fault = CUDA_SUCCESS;
    if (ctx)
        stitch__metric_plans_forget(ctx);
    fake_profiler_reset();
    o.device = "cuda:0";
    o.get_proc = fake_get_proc;
    o.allocator = &allocator;
    if (!ctx) {
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
        CHECK_OK(stitch__device_get(ctx, &dev, &err));
    }
    CHECK_OK(stitch__cupti_bind(ctx, fake_profiler_get_proc, NULL, "the fake", &cupti, &err));
}

static int open_with(const stitch__counters_options *o)
{
    return stitch__counters_open(ctx, dev, &cupti, o, &counters, &err);
}

/* Opens, counts some launches, reads. */
static int whole(const stitch__counters_options *o, size_t launches, stitch_error **e)
{
    int rc = stitch__counters_open(ctx, dev, &cupti, o, &counters, e);
    if (rc == STITCH_OK)
        rc = stitch__counters_start(counters, e);
    if (rc == STITCH_OK) {
        fake_profiler_launch(launches);
        rc = stitch__counters_stop(counters, e);
    }
    return rc;
}

static void check_released(void)
{
    stitch__metric_plans_forget(ctx);
    CHECK_INT(fp->hosts, 0);
    CHECK_INT(fp->profilers, 0);
    CHECK(!fp->started);
    CHECK(!fake_cupti_state.subscribed);
}

/* Nothing is left on, and counters can be had. */
static void check_quiet(void)
{
    stitch__counters_close(counters);
    counters = NULL;
    check_released();
    begin_fresh();
    CHECK_OK(whole(&cheap, 2, &err));
    CHECK_INT(stitch__counters_count(counters), 2);
    stitch__counters_close(counters);
    counters = NULL;
    check_released();
}

static double value_of(int metric, size_t launch)
{
    double metrics[STITCH__METRICS], extra[STITCH__FACTS_EXTRA];
    stitch__counters_get(counters, launch, metrics, extra);
    return metrics[metric];
}

/* The system's, unless it is to have none left: this one is in front of it. */
typedef int (*create_fn)(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
static bool no_threads;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    void *address = dlsym(RTLD_NEXT, "pthread_create");
    create_fn create = NULL;
    memcpy(&create, &address, sizeof(create));
    return no_threads ? EAGAIN : create(thread, attributes, run, arg);
}

/* ---- what works ---- */

TEST(values_of_launches)
{
    static const char *const names[] = {"sm__cycles_elapsed.max", "fe__gone.sum", "dram__bytes.sum"};
    stitch__counters_options o = {STITCH__METRIC_FULL, names, 3, 10};
    double metrics[STITCH__METRICS], extra[3];
    begin_fresh();
    fp->without = "gone";
    CHECK_OK(open_with(&o));
    CHECK_STR(stitch__counters_missing(counters), "fe__gone.sum");
    CHECK(stitch__counters_passes(counters) > 2);
    CHECK_INT(stitch__counters_count(counters), 0);
    CHECK_INT(fp->profilers, 0); /* nothing is on before the start */
    CHECK(!fake_cupti_state.subscribed);
    fake_profiler_launch(3);
    CHECK_OK(stitch__counters_start(counters, &err));
    CHECK_INT(fp->profilers, 1);
    fake_profiler_launch(5);
    CHECK_INT(stitch__counters_count(counters), 0);
    CHECK_OK(stitch__counters_stop(counters, &err));
    CHECK_INT(fp->profilers, 0);
    CHECK(!fake_cupti_state.subscribed);
    fake_profiler_launch(3);
    CHECK_INT(stitch__counters_count(counters), 5);
    CHECK_INT(stitch__counters_dropped(counters), 0);
    for (size_t i = 0; i < 5; i++) {
        stitch__counters_get(counters, i, metrics, extra);
        CHECK_NEAR(metrics[STITCH__METRIC_TIME], fake_profiler_value("gpu__time_duration.sum", i), 0);
        CHECK_NEAR(metrics[STITCH__METRIC_INST], fake_profiler_value("sm__inst_executed_realtime.sum", i), 0);
        CHECK_NEAR(metrics[STITCH__METRIC_DRAM_BYTES], extra[2], 0);
        CHECK_NEAR(extra[0], fake_profiler_value(names[0], i), 0);
        CHECK(isnan(extra[1]));
        CHECK(isnan(metrics[STITCH__METRIC_FLOPS])); /* the simulator's */
        CHECK(!isnan(metrics[STITCH__METRIC_STALL_LONG]));
    }
    stitch__counters_get(counters, 5, metrics, extra);
    for (int i = 0; i < STITCH__METRICS; i++)
        CHECK(isnan(metrics[i]));
    CHECK(isnan(extra[0]));
    stitch__counters_get(counters, 0, metrics, NULL);
    /* The set that is cheap has the rest not. */
    check_quiet();
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK(isnan(value_of(STITCH__METRIC_STALL_LONG, 0)));
    CHECK(!isnan(value_of(STITCH__METRIC_TIME, 0)));
    CHECK_NEAR(value_of(STITCH__METRIC_INST, 0), fake_profiler_value("smsp__inst_executed.sum", 0), 0);
    check_quiet();
}

TEST(other_counters_in_the_full_set)
{
    static const stitch__counters_options full = {STITCH__METRIC_FULL, NULL, 0, 10};
    begin_fresh();
    fp->without = "sass"; /* what the chip has not */
    CHECK_OK(whole(&full, 1, &err));
    CHECK_STR(stitch__counters_missing(counters),
              "ffma, fadd, fmul, global_load_bytes_per_sector, global_store_bytes_per_sector");
    CHECK_NEAR(value_of(STITCH__METRIC_STORE_REQUESTS, 0),
               fake_profiler_value("smsp__inst_executed_op_global_st.sum", 0), 0);
    check_quiet();
    fp->uncollectable = "realtime"; /* what this device has not */
    CHECK_OK(whole(&full, 1, &err));
    CHECK_STR(stitch__counters_missing(counters), "");
    CHECK_NEAR(value_of(STITCH__METRIC_ALU_SHARE, 0),
               fake_profiler_value("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", 0), 0);
    CHECK_NEAR(value_of(STITCH__METRIC_INST, 0), fake_profiler_value("smsp__inst_executed.sum", 0), 0);
    CHECK_NEAR(value_of(STITCH__METRIC_STORE_REQUESTS, 0),
               fake_profiler_value("smsp__sass_inst_executed_op_global_st.sum", 0), 0);
    check_quiet();
}

/* Counters that nothing is known against until CUPTI refuses to start: the full set is had from the usual ones. */
TEST(other_counters_that_cannot_be_had)
{
    static const stitch__counters_options full = {STITCH__METRIC_FULL, NULL, 0, 10};
    const int *configured = &fp->calls[FAKE_PROFILER_RangeProfilerSetConfig];
    begin_fresh();
    fp->refused = "realtime";
    CHECK_OK(open_with(&full));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__counters_start(counters, &err));
        fake_profiler_launch(2);
        CHECK_OK(stitch__counters_stop(counters, &err));
        CHECK_INT(stitch__counters_count(counters), 2);
        CHECK_INT(*configured, 2 + i); /* once refused, then as it is */
        CHECK_STR(stitch__counters_missing(counters), "");
        CHECK_NEAR(value_of(STITCH__METRIC_ALU_SHARE, 1),
                   fake_profiler_value("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", 1), 0);
        CHECK_NEAR(value_of(STITCH__METRIC_INST, 1), fake_profiler_value("smsp__inst_executed.sum", 1), 0);
    }
    stitch__counters_close(counters);
    counters = NULL;
    CHECK_OK(whole(&full, 1, &err)); /* the plan that worked is kept */
    CHECK_INT(*configured, 5);
    check_quiet();
    begin_fresh();
    fp->refused = "realtime";
    int64_t from = memory.calls, live = 0;
    CHECK_OK(whole(&full, 1, &err));
    for (int64_t i = 0, needed = memory.calls - from; i < needed; i++) { /* no memory for any of this */
        check_quiet();
        live = live ? live : memory.live;
        fp->refused = "realtime";
        memory.refuse_at = memory.calls + i;
        int rc = whole(&full, 1, &err);
        memory.refuse_at = -1;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM || rc == STITCH_E_UNSUPPORTED);
        CHECK((rc == STITCH_OK) == !err);
        stitch_error_free(err);
        err = NULL;
        stitch__counters_close(counters);
        counters = NULL;
        check_released();
        CHECK_INT(memory.live, live);
    }
    begin_fresh();
    fp->refused = "gpu__time"; /* of the usual ones, too */
    CHECK_ERR(whole(&full, 1, &err), STITCH_E_UNSUPPORTED, "cuptiRangeProfilerSetConfig");
    CHECK_INT(*configured, 2);
    check_quiet();
    begin_fresh();
    fp->refused = "gpu__time"; /* the default set has no other plan */
    CHECK_ERR(whole(&cheap, 1, &err), STITCH_E_UNSUPPORTED, "cuptiRangeProfilerSetConfig");
    CHECK_INT(*configured, 1);
    check_quiet();
}

TEST(sums_and_differences)
{
    double a = fake_profiler_value("sm__inst_executed_pipe_tensor.sum", 0),
           b = fake_profiler_value("sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum", 0);
    begin_fresh();
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK_NEAR(value_of(STITCH__METRIC_TENSOR_INST, 0), a > b ? a - b : 0, 0);
    check_quiet();
    fp->without = "_type_hfma2";
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK_NEAR(value_of(STITCH__METRIC_TENSOR_INST, 0), fake_profiler_value("sm__inst_executed_pipe_tensor_v2.sum", 0),
               0);
    CHECK_STR(stitch__counters_missing(counters), "");
    check_quiet();
    fp->without = "dram__bytes_read";
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK_NEAR(value_of(STITCH__METRIC_DRAM_READ, 0), fake_profiler_value("dram__bytes_op_read.sum", 0), 0);
    check_quiet();
    fp->infinite = "l1tex__t_sector_hit_rate";
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK(isnan(value_of(STITCH__METRIC_L1_HIT, 0)));
    CHECK(!isnan(value_of(STITCH__METRIC_TIME, 0)));
    check_quiet();
}

TEST(ranges_come_in_any_order)
{
    begin_fresh();
    fp->backwards = true;
    CHECK_OK(whole(&cheap, 25, &err)); /* more than nine: names are no text to be sorted */
    CHECK_INT(stitch__counters_count(counters), 25);
    for (size_t i = 0; i < 25; i++)
        CHECK_NEAR(value_of(STITCH__METRIC_TIME, i), fake_profiler_value("gpu__time_duration.sum", i), 0);
    check_quiet();
    static const char *const odd[] = {"", "kernel", "7x", "99999999999999999999999999", "a/b", "-"};
    for (size_t n = 0; n < STITCH__COUNT(odd); n++) { /* then they stay as they are */
        fp->range_name = odd[n];
        CHECK_OK(whole(&cheap, 12, &err));
        for (size_t i = 0; i < 12; i++)
            CHECK_NEAR(value_of(STITCH__METRIC_TIME, i), fake_profiler_value("gpu__time_duration.sum", i), 0);
        check_quiet();
    }
    fp->range_name = "0/3";
    CHECK_OK(whole(&cheap, 12, &err));
    CHECK_INT(stitch__counters_count(counters), 12);
    check_quiet();
}

/* Serial, either would wait for the other in vain. */
TEST(values_are_read_while_the_profiler_is_switched_off)
{
    begin_fresh();
    fp->meets = true;
    CHECK_OK(whole(&cheap, 3, &err));
    CHECK_INT(atomic_load(&fp->missed), 0);
    CHECK(!fp->takes_signals); /* they are the host's, on threads of its own */
    CHECK_INT(stitch__counters_count(counters), 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_NEAR(value_of(STITCH__METRIC_TIME, i), fake_profiler_value("gpu__time_duration.sum", i), 0);
    check_quiet();
    int64_t live = memory.live;
    for (int both = 0; both < 2; both++) {
        begin_fresh();
        fp->fail[FAKE_PROFILER_RangeProfilerDisable] = 999;
        fp->fail[FAKE_PROFILER_ProfilerHostEvaluateToGpuValues] = both ? 999 : 0;
        CHECK_ERR(whole(&cheap, 3, &err), STITCH_E_LIBRARY, /* where both fail, that of the values matters */
                  both ? "cuptiProfilerHostEvaluateToGpuValues" : "cuptiRangeProfilerDisable");
        CHECK_INT(stitch__counters_count(counters), 0);
        check_quiet();
        CHECK_INT(memory.live, live);
    }
}

TEST(values_without_another_thread)
{
    begin_fresh();
    no_threads = true;
    int rc = whole(&cheap, 3, &err);
    no_threads = false;
    CHECK_OK(rc);
    CHECK(fp->takes_signals); /* it was this one */
    CHECK_INT(stitch__counters_count(counters), 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_NEAR(value_of(STITCH__METRIC_TIME, i), fake_profiler_value("gpu__time_duration.sum", i), 0);
    check_quiet();
}

TEST(more_kernels_than_room)
{
    stitch__counters_options o = {STITCH__METRIC_CHEAP, NULL, 0, 4};
    begin_fresh();
    CHECK_OK(whole(&o, 10, &err));
    CHECK_INT(stitch__counters_count(counters), 4);
    CHECK_INT(stitch__counters_dropped(counters), 6);
    check_quiet();
    fp->extra_ranges = 100; /* nonsense of a library is no reason to write past an end */
    CHECK_OK(whole(&o, 4, &err));
    CHECK_INT(stitch__counters_count(counters), 4);
    CHECK_INT(stitch__counters_dropped(counters), 100);
    check_quiet();
    CHECK_OK(whole(&cheap, 0, &err));
    CHECK_INT(stitch__counters_count(counters), 0);
    check_quiet();
    static const size_t odd[] = {0, 65537, SIZE_MAX};
    for (size_t i = 0; i < STITCH__COUNT(odd); i++) {
        o.max_kernels = odd[i];
        CHECK_ERR(open_with(&o), STITCH_E_INVALID, "1 to 65536 kernels");
        CHECK(!counters);
    }
}

TEST(starts_and_stops)
{
    begin_fresh();
    CHECK_OK(open_with(&cheap));
    CHECK_ERR(stitch__counters_stop(counters, &err), STITCH_E_STATE, "do not run");
    for (size_t i = 1; i < 5; i++) { /* the same object again */
        CHECK_OK(stitch__counters_start(counters, &err));
        CHECK_ERR(stitch__counters_start(counters, &err), STITCH_E_STATE, "run already");
        fake_profiler_launch(i);
        CHECK_OK(stitch__counters_stop(counters, &err));
        CHECK_INT(stitch__counters_count(counters), i);
        CHECK_ERR(stitch__counters_stop(counters, &err), STITCH_E_STATE, "do not run");
        CHECK_INT(stitch__counters_count(counters), i);
    }
    CHECK_OK(stitch__counters_start(counters, &err));
    CHECK_INT(stitch__counters_count(counters), 0); /* of the collection that runs */
    fp->incomplete = true;
    fake_profiler_launch(1);
    CHECK_OK(stitch__counters_stop(counters, &err));
    CHECK_OK(stitch__counters_start(counters, &err));
    stitch__counters_close(counters); /* while it runs */
    counters = NULL;
    stitch__counters_close(NULL);
    check_quiet();
}

TEST(pauses_and_launches_that_are_not_wanted)
{
    static const bool wanted[] = {true, false, true, false};
    const stitch__counters_options o = {STITCH__METRIC_CHEAP, NULL, 0, 4, true, wanted};
    bool more = false;
    begin_fresh();
    fp->repeats = true;
    fp->passes = 2;
    CHECK_OK(open_with(&o));
    CHECK_ERR(stitch__counters_pause(counters, &err), STITCH_E_STATE, "do not run");
    CHECK_OK(stitch__counters_start(counters, &err));
    for (int pass = 0; pass < 2; pass++) {
        fake_profiler_launch(3);
        CHECK_OK(stitch__counters_pause(counters, &err));
        CHECK_ERR(stitch__counters_pause(counters, &err), STITCH_E_STATE, "do not run");
        fake_profiler_launch(1000); /* the rest of the run */
        CHECK_OK(stitch__counters_again(counters, &more, &err));
        CHECK(more == (pass == 0));
    }
    CHECK_ERR(stitch__counters_again(counters, &more, &err), STITCH_E_STATE, "do not run");
    CHECK_OK(stitch__counters_stop(counters, &err));
    CHECK_INT(stitch__counters_count(counters), 3);
    CHECK_INT(stitch__counters_dropped(counters), 0);
    CHECK_INT(fp->calls[FAKE_PROFILER_ProfilerHostEvaluateToGpuValues], 2);
    for (size_t i = 0; i < 3; i++) {
        if (wanted[i])
            CHECK_NEAR(value_of(STITCH__METRIC_TIME, i), fake_profiler_value("gpu__time_duration.sum", i), 0);
        else
            CHECK(isnan(value_of(STITCH__METRIC_TIME, i)));
    }
    /* A pause without another pass after it is an end, and the object may start again. */
    fp->passes = 1;
    CHECK_OK(stitch__counters_start(counters, &err));
    fake_profiler_launch(1);
    CHECK_OK(stitch__counters_pause(counters, &err));
    CHECK_OK(stitch__counters_stop(counters, &err));
    CHECK_INT(stitch__counters_count(counters), 1);
    CHECK_OK(stitch__counters_start(counters, &err));
    fp->fail[FAKE_PROFILER_RangeProfilerStop] = 999;
    CHECK_ERR(stitch__counters_pause(counters, &err), STITCH_E_LIBRARY, "cuptiRangeProfilerStop");
    check_quiet();
}

/* ---- plans that are kept ---- */

static void collect_and_close(const stitch__counters_options *o)
{
    CHECK_OK(whole(o, 2, &err));
    CHECK_INT(stitch__counters_count(counters), 2);
    for (size_t i = 0; i < 2; i++)
        CHECK_NEAR(value_of(STITCH__METRIC_TIME, i), fake_profiler_value("gpu__time_duration.sum", i), 0);
    stitch__counters_close(counters);
    counters = NULL;
}

TEST(plans_are_kept)
{
    static const char *const names[] = {"sm__cycles_elapsed.max"};
    static const stitch__counters_options full = {STITCH__METRIC_FULL, NULL, 0, 64},
                                          more = {STITCH__METRIC_CHEAP, NULL, 0, 65},
                                          extra = {STITCH__METRIC_CHEAP, names, 1, 64};
    const int *plans = &fp->calls[FAKE_PROFILER_ProfilerHostConfigAddMetrics];
    begin_fresh();
    for (int i = 0; i < 3; i++) {
        collect_and_close(&cheap);
        CHECK(*plans == 1 && fp->hosts == 1);
    }
    for (int i = 0; i < 3; i++) { /* one for each set */
        collect_and_close(&full);
        CHECK(*plans == 2 && fp->hosts == 2);
    }
    collect_and_close(&cheap);
    CHECK_INT(*plans, 2);
    for (int i = 0; i < 3; i++) { /* not with names, which may be any */
        collect_and_close(&extra);
        CHECK(*plans == 3 + i && fp->hosts == 2);
    }
    collect_and_close(&more); /* with room for more kernels */
    collect_and_close(&cheap);
    CHECK_INT(*plans, 5);
    check_quiet();
}

TEST(a_kept_plan_has_one_user)
{
    stitch__counters *second = NULL;
    begin_fresh();
    collect_and_close(&cheap);
    CHECK_OK(open_with(&cheap));
    CHECK_OK(stitch__counters_open(ctx, dev, &cupti, &cheap, &second, &err));
    CHECK_INT(fp->calls[FAKE_PROFILER_ProfilerHostConfigAddMetrics], 2);
    CHECK_INT(fp->hosts, 2);
    stitch__counters_close(second);
    stitch__counters_close(counters);
    counters = NULL;
    CHECK_INT(fp->hosts, 1);
    collect_and_close(&cheap);
    CHECK_INT(fp->calls[FAKE_PROFILER_ProfilerHostConfigAddMetrics], 2);
    CHECK_OK(open_with(&cheap)); /* is not there while another has it, and comes back */
    CHECK_OK(stitch__counters_start(counters, &err));
    stitch__counters_close(counters); /* not at its end */
    counters = NULL;
    CHECK_INT(fp->hosts, 0);
    check_quiet();
}

/* A plan that something failed with is not used again. */
TEST(no_plan_is_kept_after_an_error)
{
    for (int function = 0; function < FAKE_PROFILER_FUNCTIONS; function++) {
        begin_fresh();
        collect_and_close(&cheap);
        fp->fail[function] = 999;
        int rc = whole(&cheap, 2, &err);
        stitch__counters_close(counters);
        counters = NULL;
        CHECK((rc == STITCH_OK) == !err);
        stitch_error_free(err);
        err = NULL;
        fp->fail[function] = 0;
        const int before = fp->calls[FAKE_PROFILER_ProfilerHostConfigAddMetrics], hosts = fp->hosts;
        CHECK(rc == STITCH_OK || hosts <= 1);
        collect_and_close(&cheap);
        CHECK_INT(fp->calls[FAKE_PROFILER_ProfilerHostConfigAddMetrics], before + (hosts == 0));
        check_quiet();
    }
}

TEST(the_context_frees_what_is_kept)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *other = NULL;
    stitch__device *there = NULL;
    begin_fresh();
    o.device = "cuda:0";
    o.get_proc = fake_get_proc;
    CHECK_OK(stitch_context_new(&other, &o, &err));
    CHECK_OK(stitch__device_get(other, &there, &err));
    CHECK_OK(stitch__counters_open(other, there, &cupti, &cheap, &counters, &err));
    stitch__counters_close(counters);
    counters = NULL;
    CHECK_INT(fp->hosts, 1);
    CHECK_OK(open_with(&cheap)); /* of this context, which has none */
    CHECK_INT(fp->hosts, 2);
    stitch_context_free(other);
    CHECK_INT(fp->hosts, 1);
    check_quiet();
}

/* ---- metrics that are not there ---- */

TEST(refused_metrics)
{
    static const char *const names[] = {"fe__odd.sum", "fe__good.sum"};
    stitch__counters_options o = {STITCH__METRIC_CHEAP, names, 2, 10};
    double metrics[STITCH__METRICS], extra[2];
    begin_fresh();
    fp->uncollectable = "odd"; /* known by name, and no counter: the whole list fails */
    CHECK_OK(whole(&o, 1, &err));
    CHECK_STR(stitch__counters_missing(counters), "fe__odd.sum");
    stitch__counters_get(counters, 0, metrics, extra);
    CHECK(isnan(extra[0]) && !isnan(extra[1]) && !isnan(metrics[STITCH__METRIC_TIME]));
    check_quiet();
    fp->uncollectable = "_type_hfma2"; /* the next alternative */
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK_STR(stitch__counters_missing(counters), "");
    CHECK_NEAR(value_of(STITCH__METRIC_TENSOR_INST, 0), fake_profiler_value("sm__inst_executed_pipe_tensor_v2.sum", 0),
               0);
    check_quiet();
    fp->without = "dram__";
    CHECK_OK(whole(&cheap, 1, &err));
    CHECK_STR(stitch__counters_missing(counters), "dram_pct, dram_bytes, dram_read_bytes, dram_write_bytes");
    check_quiet();
    fp->without = "__";
    CHECK_ERR(whole(&cheap, 1, &err), STITCH_E_UNSUPPORTED, "none of the metrics");
    check_quiet();
    fp->uncollectable = "__";
    CHECK_ERR(whole(&cheap, 1, &err), STITCH_E_UNSUPPORTED, "none of the metrics");
    check_quiet();
    fp->unevaluable = "dram__bytes.sum"; /* one value that cannot be had does not cost the others */
    CHECK_OK(whole(&cheap, 2, &err));
    CHECK(isnan(value_of(STITCH__METRIC_DRAM_BYTES, 1)) && !isnan(value_of(STITCH__METRIC_TIME, 1)));
    check_quiet();
    fp->unevaluable = "__";
    CHECK_ERR(whole(&cheap, 2, &err), STITCH_E_LIBRARY, "cuptiProfilerHostEvaluateToGpuValues");
    CHECK_INT(stitch__counters_count(counters), 0);
    check_quiet();
}

/* Asking what a device has takes time: only parts of a device are asked before CUPTI refuses something. */
TEST(counters_that_a_chip_has_and_a_device_has_not)
{
    static const char *const parts[] = {"NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A40-48Q", "GRID T4-2B4",
                                        "NVIDIA A100-1-5C", "GRID V100D-32"};
    static const char *const whole_ones[] = {"NVIDIA H200",     "NVIDIA A100-SXM4-40GB", "NVIDIA A40", "",
                                             "Tesla V100-32GB", "NVIDIA H100-",          "A-80",       "MIG"};
    static const char *const names[] = {"fe__rare.sum", "fe__good.sum"};
    const stitch__counters_options o = {STITCH__METRIC_CHEAP, names, 2, 10};
    double metrics[STITCH__METRICS], extra[2];
    int *asked = &fp->calls[FAKE_PROFILER_ProfilerGetCounterAvailability];
    begin_fresh();
    const char *name = dev->info.name;
    for (size_t i = 0; i < STITCH__COUNT(parts); i++) {
        begin_fresh();
        fp->unavailable = "rare";
        dev->info.name = parts[i];
        int rc = whole(&o, 1, &err);
        dev->info.name = name;
        CHECK_OK(rc);
        CHECK_INT(*asked, 2); /* for the size, for the image */
        CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerSetConfig], 1);
        CHECK_STR(stitch__counters_missing(counters), "fe__rare.sum");
        check_quiet();
    }
    for (size_t i = 0; i < STITCH__COUNT(whole_ones); i++) {
        begin_fresh();
        dev->info.name = whole_ones[i];
        int rc = whole(&o, 1, &err);
        dev->info.name = name;
        CHECK_OK(rc);
        CHECK_INT(*asked, 0);
        CHECK_STR(stitch__counters_missing(counters), "");
        check_quiet();
    }
    begin_fresh();
    fp->unavailable = "rare"; /* of a whole device: it is asked then, once an object */
    CHECK_OK(open_with(&o));
    CHECK_STR(stitch__counters_missing(counters), "");
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__counters_start(counters, &err));
        fake_profiler_launch(2);
        CHECK_OK(stitch__counters_stop(counters, &err));
        CHECK_INT(*asked, 2);
        CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerSetConfig], 2 + i);
        CHECK_STR(stitch__counters_missing(counters), "fe__rare.sum");
        stitch__counters_get(counters, 1, metrics, extra);
        CHECK(isnan(extra[0]) && !isnan(extra[1]) && !isnan(metrics[STITCH__METRIC_TIME]));
    }
    check_quiet();
    begin_fresh();
    fp->unavailable = "__"; /* all: the first refusal stands */
    CHECK_ERR(whole(&o, 1, &err), STITCH_E_UNSUPPORTED, "cuptiRangeProfilerSetConfig");
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerSetConfig], 1);
    check_quiet();
    begin_fresh();
    fp->unavailable = "rare";
    fp->availability = 0; /* CUPTI does not say */
    CHECK_ERR(whole(&o, 1, &err), STITCH_E_UNSUPPORTED, "cuptiRangeProfilerSetConfig");
    check_quiet();
    begin_fresh();
    fp->fail[FAKE_PROFILER_RangeProfilerStart] = 999; /* for another reason: no plan is tried twice */
    CHECK_ERR(whole(&o, 1, &err), STITCH_E_LIBRARY, "cuptiRangeProfilerStart");
    CHECK_INT(*asked, 2);
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerStart], 1);
    check_quiet();
    begin_fresh();
    fp->fail[FAKE_PROFILER_RangeProfilerStart] = STITCH__CUPTI_HARDWARE_BUSY;
    CHECK_ERR(whole(&o, 1, &err), STITCH_E_BUSY, "another process");
    CHECK_INT(*asked, 0);
    check_quiet();
}

/* ---- devices and libraries that cannot ---- */

TEST(devices_that_cannot)
{
    static const char *const texts[] = {"no reason",    "architecture", "SLI", "virtual GPU",
                                        "confidential", "mining",       "WSL"};
    for (int reason = 0; reason < 7; reason++) {
        for (int level = STITCH__CUPTI_LEVEL_UNSUPPORTED; level <= STITCH__CUPTI_LEVEL_DISABLED; level++) {
            begin_fresh();
            fp->level[0] = fp->level[reason] = level;
            CHECK_ERR(open_with(&cheap), STITCH_E_UNSUPPORTED, texts[reason]);
            CHECK(!counters);
            check_quiet();
        }
    }
    memset(fp->level, 0, sizeof(fp->level)); /* not known: what follows will say */
    CHECK_OK(open_with(&cheap));
    check_quiet();
    fp->chip = "GX999";
    CHECK_ERR(open_with(&cheap), STITCH_E_UNSUPPORTED, "GX999");
    check_quiet();
    fp->chip = NULL;
    CHECK_ERR(open_with(&cheap), STITCH_E_LIBRARY, "no name");
    check_quiet();
    dev->info.simulated = true;
    int rc = open_with(&cheap);
    dev->info.simulated = false;
    CHECK_ERR(rc, STITCH_E_UNSUPPORTED, "simulated");
}

TEST(libraries_that_lack_a_function)
{
    for (int i = 0; i < FAKE_PROFILER_FUNCTIONS; i++) {
        begin_fresh();
        fp->absent[i] = true;
        CHECK_OK(
            stitch__cupti_bind(ctx, fake_profiler_get_proc, NULL, "the fake", &cupti, &err)); /* traces still work */
        CHECK_ERR(open_with(&cheap), STITCH_E_NO_LIBRARY, "12.6 Update 2");
        CHECK(!counters);
        check_quiet();
    }
}

TEST(a_library_without_its_neighbour)
{
    begin_fresh();
    cupti.path = "/"; /* a folder that has no libnvperf_host.so */
#ifdef __SANITIZE_ADDRESS__
    CHECK_ERR(open_with(&cheap), STITCH_E_UNSUPPORTED, "AddressSanitizer");
#else
    int rc = open_with(&cheap);
    if (rc) /* the system's loader may know one */
        CHECK_ERR(rc, STITCH_E_NO_LIBRARY, "libnvperf_host.so");
#endif
    cupti.path = "the fake";
    check_quiet();
}

TEST(bad_requests)
{
    static const char *const names[STITCH__FACTS_EXTRA + 1] = {"a b"};
    stitch__counters_options o = {STITCH__METRIC_CHEAP, names, 1, 10};
    begin_fresh();
    CHECK_ERR(open_with(&o), STITCH_E_INVALID, "extra metric 0");
    o.extra_count = STITCH__FACTS_EXTRA + 1;
    CHECK_ERR(open_with(&o), STITCH_E_INVALID, "at most 64");
    o.extra = NULL;
    o.extra_count = 1;
    CHECK_ERR(open_with(&o), STITCH_E_INVALID, "extra");
    o.extra_count = 0;
    o.set = 17;
    CHECK_ERR(open_with(&o), STITCH_E_INVALID, "no set");
    check_quiet();
}

/* ---- every error in every function ---- */

static const int codes[] = {1,  2,  3,  7,  8,  9,  11, 12, 13, 14, 15, 17, 21, 23,  26, 27,
                            33, 34, 35, 36, 38, 39, 40, 41, 42, 43, 44, 45, 46, 999, -77};

static void fail_once(int function, int code, int after, const char *unavailable, const char *refused)
{
    const stitch__counters_options o = {refused ? STITCH__METRIC_FULL : STITCH__METRIC_CHEAP, NULL, 0, 64};
    begin_fresh();
    fp->unavailable = unavailable;
    fp->refused = refused;
    fp->fail[function] = code;
    fp->fail_after = after;
    int rc = whole(&o, 3, &err);
    CHECK((rc == STITCH_OK) == !err);
    if (rc == STITCH_OK) {
        CHECK_INT(stitch__counters_count(counters), 3);
        CHECK(!isnan(value_of(STITCH__METRIC_TIME, 2)) || function == FAKE_PROFILER_ProfilerHostEvaluateToGpuValues ||
              (refused && function == FAKE_PROFILER_ProfilerHostGetMetricProperties)); /* asked of others first */
    } else {
        CHECK(*stitch_error_message(err));
        CHECK(!counters || stitch__counters_count(counters) == 0);
    }
    check_quiet();
}

TEST(every_error_in_every_function)
{
    static const bool may_work[FAKE_PROFILER_FUNCTIONS] = {
        [FAKE_PROFILER_ProfilerHostDeinitialize] = true,       /* nothing can be done about it */
        [FAKE_PROFILER_ProfilerGetCounterAvailability] = true, /* nobody asks */
    };
    for (int function = 0; function < FAKE_PROFILER_FUNCTIONS; function++) {
        for (size_t c = 0; c < STITCH__COUNT(codes); c++) {
            for (int after = 0; after < 4; after++) {
                fail_once(function, codes[c], after, NULL, NULL);
                fail_once(function, codes[c], after, "l1tex__", NULL);  /* a plan is made again */
                fail_once(function, codes[c], after, NULL, "realtime"); /* and once more */
            }
        }
        begin_fresh();
        fp->fail[function] = 999;
        CHECK((whole(&cheap, 3, &err) == STITCH_OK) == may_work[function]);
        check_quiet();
    }
}

TEST(errors_of_the_subscription)
{
    static const int functions[] = {FAKE_SubscribeNamed, FAKE_Unsubscribe, FAKE_GetResultString};
    for (size_t f = 0; f < STITCH__COUNT(functions); f++) {
        for (size_t c = 0; c < STITCH__COUNT(codes); c++) {
            begin_fresh();
            fake_cupti_state.fail[functions[f]] = codes[c];
            int rc = whole(&cheap, 1, &err);
            CHECK((rc == STITCH_OK) == (functions[f] == FAKE_GetResultString));
            CHECK_INT(fp->profilers, 0);
            fake_cupti_state.fail[functions[f]] = 0;
            fake_cupti_state.subscribed = false; /* what could not be ended is the fake's */
            check_quiet();
        }
    }
}

TEST(errors_say_what_to_do)
{
    static const struct {
        int function, code, status;
        const char *text;
    } all[] = {
        {FAKE_PROFILER_RangeProfilerStart, 35, STITCH_E_UNSUPPORTED, "NVreg_RestrictProfilingToAdminUsers=0"},
        {FAKE_PROFILER_RangeProfilerEnable, 35, STITCH_E_UNSUPPORTED, "CAP_SYS_ADMIN"},
        {FAKE_PROFILER_RangeProfilerEnable, 26, STITCH_E_BUSY, "DCGM"},
        {FAKE_PROFILER_RangeProfilerStart, 26, STITCH_E_BUSY, "another process"},
        {FAKE_PROFILER_RangeProfilerEnable, 39, STITCH_E_BUSY, "one at a time"},
        {FAKE_PROFILER_RangeProfilerSetConfig, 36, STITCH_E_BUSY, "another profiler"},
        {FAKE_PROFILER_ProfilerInitialize, 15, STITCH_E_LIBRARY, "newer driver"},
        {FAKE_PROFILER_ProfilerInitialize, 27, STITCH_E_UNSUPPORTED, "cannot do that"},
        {FAKE_PROFILER_ProfilerDeviceSupported, 40, STITCH_E_UNSUPPORTED, "hypervisor"},
        {FAKE_PROFILER_RangeProfilerGetCounterDataSize, 8, STITCH_E_NOMEM, "memory"},
        {FAKE_PROFILER_RangeProfilerDecodeData, 999, STITCH_E_LIBRARY, "cuptiRangeProfilerDecodeData"},
    };
    for (size_t i = 0; i < STITCH__COUNT(all); i++) {
        begin_fresh();
        fp->fail[all[i].function] = all[i].code;
        CHECK_ERR(whole(&cheap, 1, &err), all[i].status, all[i].text);
        check_quiet();
    }
}

/* ---- other users ---- */

TEST(another_tool_holds_cupti)
{
    begin_fresh();
    CHECK_OK(open_with(&cheap));
    fake_cupti_state.holder = "CUPTI for Kineto";
    CHECK_ERR(stitch__counters_start(counters, &err), STITCH_E_BUSY, "(CUPTI for Kineto)");
    CHECK_INT(fp->profilers, 0);
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerEnable], 0);
    fake_cupti_state.holder = NULL;
    CHECK_OK(stitch__counters_start(counters, &err));
    CHECK_OK(stitch__counters_stop(counters, &err));
    check_quiet();
}

TEST(not_beside_a_trace)
{
    static const stitch_trace_options defaults = STITCH_TRACE_OPTIONS_INIT;
    stitch_trace *second;
    stitch__counters *other = NULL;
    begin_fresh();
    CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &defaults, &trace, &err));
    CHECK_OK(open_with(&cheap)); /* preparing touches nothing that the trace needs */
    CHECK_ERR(stitch__counters_start(counters, &err), STITCH_E_BUSY, "a trace runs in this process already");
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerEnable], 0);
    CHECK(fake_cupti_state.subscribed);
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_OK(stitch__counters_start(counters, &err));
    CHECK_ERR(stitch__trace_start(ctx, &cupti, NULL, &defaults, &second, &err), STITCH_E_BUSY, "hardware counters");
    CHECK(!second);
    CHECK_OK(stitch__counters_open(ctx, dev, &cupti, &cheap, &other, &err));
    CHECK_ERR(stitch__counters_start(other, &err), STITCH_E_BUSY, "hardware counters");
    stitch__counters_close(other);
    fake_profiler_launch(1);
    CHECK_OK(stitch__counters_stop(counters, &err));
    CHECK_INT(stitch__counters_count(counters), 1);
    CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &defaults, &second, &err));
    stitch_trace_free(second);
    check_quiet();
}

static atomic_int won;

static void *racing_thread(void *arg)
{
    stitch__counters *mine = NULL;
    pthread_barrier_t *barrier = arg;
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* of the fake */
    pthread_mutex_lock(&one);
    int rc = stitch__counters_open(ctx, dev, &cupti, &cheap, &mine, NULL);
    pthread_mutex_unlock(&one);
    pthread_barrier_wait(barrier);
    if (rc == STITCH_OK && stitch__counters_start(mine, NULL) == STITCH_OK)
        atomic_fetch_add(&won, 1);
    pthread_barrier_wait(barrier);
    pthread_mutex_lock(&one);
    stitch__counters_close(mine);
    pthread_mutex_unlock(&one);
    return NULL;
}

TEST(threads_race_for_counters)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    stitch_context *metered = ctx;
    begin_fresh();
    for (int round = 0; round < 20; round++) {
        stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT; /* the meter is of one thread */
        o.device = "cuda:0";
        o.get_proc = fake_get_proc;
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
        atomic_store(&won, 0);
        CHECK_INT(pthread_barrier_init(&barrier, NULL, THREADS), 0);
        for (int i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, racing_thread, &barrier), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
        stitch_context_free(ctx);
        ctx = metered;
        CHECK_INT(atomic_load(&won), 1);
    }
    check_quiet();
}

/* ---- faults, memory ---- */

TEST(a_kernel_that_faults)
{
    begin_fresh();
    CHECK_OK(open_with(&cheap));
    CHECK_OK(stitch__counters_start(counters, &err));
    fake_profiler_launch(1);
    fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    int rc = stitch__counters_stop(counters, &err);
    fake.fault = CUDA_SUCCESS;
    CHECK_ERR(rc, STITCH_E_FAULT, "");
    CHECK_INT(stitch__counters_count(counters), 0);
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerStop], 1);
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerDecodeData], 0);
    check_quiet();
}

static CUresult no_context(CUcontext context)
{
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* The context cannot even be made current. */
TEST(a_context_that_is_lost)
{
    static stitch__driver broken;
    begin_fresh();
    const stitch__driver *whole_driver = dev->drv;
    broken = *whole_driver;
    broken.CtxPushCurrent = no_context;
    for (int when = 0; when < 4; when++) { /* opening, starting, stopping, closing */
        int rc = STITCH_E_FAULT;
        dev->drv = when == 0 ? &broken : whole_driver;
        if (when == 0)
            rc = open_with(&cheap);
        else
            CHECK_OK(open_with(&cheap));
        dev->drv = when == 1 ? &broken : whole_driver;
        if (when == 1)
            rc = stitch__counters_start(counters, &err);
        else if (when > 1)
            CHECK_OK(stitch__counters_start(counters, &err));
        dev->drv = when > 1 ? &broken : whole_driver;
        if (when == 2)
            rc = stitch__counters_stop(counters, &err);
        stitch__counters_close(counters);
        counters = NULL;
        dev->drv = whole_driver;
        CHECK_INT(rc, STITCH_E_FAULT);
        CHECK(when == 3 || err);
        check_released();
        check_quiet();
    }
}

TEST(no_memory)
{
    static const char *const names[] = {"fe__odd.sum", "fe__good.sum"};
    stitch__counters_options o = {STITCH__METRIC_FULL, names, 2, 10};
    for (int refuse = 0; refuse < 2; refuse++) { /* the second time on the way of refused metrics */
        begin_fresh();
        fp->uncollectable = refuse ? "odd" : NULL;
        int64_t live = memory.live, from = memory.calls;
        CHECK_OK(whole(&o, 3, &err));
        stitch__counters_close(counters);
        counters = NULL;
        int64_t needed = memory.calls - from;
        CHECK_INT(memory.live, live);
        CHECK(needed > 5);
        for (int64_t i = 0; i < needed; i++) {
            memory.refuse_at = memory.calls + i;
            int rc = whole(&o, 3, &err);
            memory.refuse_at = -1;
            CHECK_INT(rc, STITCH_E_NOMEM);
            stitch_error_free(err);
            err = NULL;
            stitch__counters_close(counters);
            counters = NULL;
            CHECK_INT(memory.live, live);
            check_released();
        }
    }
    check_quiet();
}

TEST(a_thousand_collections_leak_nothing)
{
    int64_t live = 0;
    begin_fresh();
    for (int i = 0; i < 1000; i++) {
        CHECK_OK(whole(&cheap, 3, &err));
        stitch__counters_close(counters);
        counters = NULL;
        live = i ? live : memory.live;
    }
    CHECK_INT(memory.live, live);
    check_quiet();
}

TEST_MAIN(RUN(values_of_launches), RUN(other_counters_in_the_full_set), RUN(other_counters_that_cannot_be_had),
          RUN(sums_and_differences), RUN(ranges_come_in_any_order),
          RUN(values_are_read_while_the_profiler_is_switched_off), RUN(values_without_another_thread),
          RUN(more_kernels_than_room), RUN(starts_and_stops), RUN(pauses_and_launches_that_are_not_wanted),
          RUN(plans_are_kept), RUN(a_kept_plan_has_one_user), RUN(no_plan_is_kept_after_an_error),
          RUN(the_context_frees_what_is_kept), RUN(refused_metrics), RUN(counters_that_a_chip_has_and_a_device_has_not),
          RUN(devices_that_cannot), RUN(libraries_that_lack_a_function), RUN(a_library_without_its_neighbour),
          RUN(bad_requests), RUN(every_error_in_every_function), RUN(errors_of_the_subscription),
          RUN(errors_say_what_to_do), RUN(another_tool_holds_cupti), RUN(not_beside_a_trace),
          RUN(threads_race_for_counters), RUN(a_kernel_that_faults), RUN(a_context_that_is_lost), RUN(no_memory),
          RUN(a_thousand_collections_leak_nothing))
