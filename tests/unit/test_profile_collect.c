/* SPDX-License-Identifier: MIT
 *
 * Collecting timeline, counters and samples of a region against a CUPTI and a driver that are none: what goes where,
 * parts that are missing one by one, work that varies, callbacks, calls and allocations that fail at every place. What
 * cannot be had has a reason, and nothing stays switched on.
 */
#include <math.h>

#include "check.h"
#include "meter.h"
#include "cuda/cuda.h"
#include "cuda/internal.h"
#include "fake_driver.h"
#include "fake_profiler.h"
#include "line_table.h"
#include "profile/collect.h"
#include "profile/exclusive.h"
#include "profile/metric_plan.h"
#include <stitch/profile.h>

static meter memory = {.refuse_at = -1};
static stitch_context *ctx;
static stitch_error *err;
static stitch__device *dev;
static stitch__facts *facts;
static fake_profiler *const fp = &fake_profiler_state;
static fake_cupti *const fc = &fake_cupti_state;
static int64_t left_blocks; /* with CUPTI, which a device that hangs had not given back */

/* ---- a CUPTI that samples: a hundred waits in line 2 of alpha ---- */

static struct {
    bool enabled, started, none; /* none: it cannot sample */
    size_t left;
    stitch__pcs_data *given;
} pcs;

#define FAILS(function)                                                                                                \
    do {                                                                                                               \
        fc->calls[FAKE_##function]++;                                                                                  \
        if (fc->fail[FAKE_##function])                                                                                 \
            return fc->fail[FAKE_##function];                                                                          \
    } while (0)

static int pcs_enable(stitch__pcs_context *p)
{
    FAILS(PcsEnable);
    if (pcs.enabled || !fc->subscribed)
        return STITCH__CUPTI_INVALID_PARAMETER;
    pcs.enabled = true;
    return 0;
}

/* Off, even where it is told to fail: what stays on would be the fake's. */
static int pcs_disable(stitch__pcs_context *p)
{
    bool was = pcs.enabled;
    pcs.enabled = pcs.started = false;
    pcs.given = NULL;
    FAILS(PcsDisable);
    return was ? 0 : STITCH__CUPTI_INVALID_PARAMETER;
}

static int pcs_start(stitch__pcs_context *p)
{
    FAILS(PcsStart);
    if (!pcs.enabled || pcs.started || !pcs.given)
        return STITCH__CUPTI_INVALID_PARAMETER;
    pcs.started = true;
    return 0;
}

static int pcs_stop(stitch__pcs_context *p)
{
    bool was = pcs.started;
    pcs.started = false;
    pcs.left = 1;
    FAILS(PcsStop);
    return was ? 0 : STITCH__CUPTI_INVALID_PARAMETER;
}

static int pcs_get_data(stitch__pcs_get_data *p)
{
    static char name[] = "alpha";
    stitch__pcs_data *d = p->data;
    FAILS(PcsGetData);
    d->count = pcs.left;
    if (pcs.left) {
        stitch__pcs_record *r = &d->records[0];
        r->crc = 4711;
        r->offset = 16;
        r->function = 1;
        r->name = name;
        r->stall_count = 1;
        r->stalls[0] = (stitch__pcs_stall){100, 100};
    }
    pcs.left = 0;
    return 0;
}

static int pcs_count(stitch__pcs_reason_count *p)
{
    FAILS(PcsGetNumReasons);
    *p->count = 1;
    return 0;
}

static int pcs_reasons(stitch__pcs_reasons *p)
{
    FAILS(PcsGetReasons);
    p->indices[0] = 100;
    strcpy(p->names[0], "smsp__pcsamp_warps_issue_stalled_long_scoreboard");
    return 0;
}

static int pcs_set(stitch__pcs_attributes *p)
{
    FAILS(PcsSetAttributes);
    for (size_t i = 0; i < p->count; i++)
        if (p->list[i].type == STITCH__PCS_DATA_BUFFER)
            pcs.given = p->list[i].value.buffer;
    return 0;
}

static int cubin_crc(stitch__cubin_crc *p)
{
    FAILS(GetCubinCrc);
    p->crc = 4711;
    return 0;
}

static void *get_proc(const char *symbol, void *userdata)
{
    static const struct {
        const char *symbol;
        int (*f)(void *);
    } mine[] = {
#define MINE(symbol, f) {symbol, (int (*)(void *))(void (*)(void))f}
        MINE("cuptiPCSamplingEnable", pcs_enable),
        MINE("cuptiPCSamplingDisable", pcs_disable),
        MINE("cuptiPCSamplingStart", pcs_start),
        MINE("cuptiPCSamplingStop", pcs_stop),
        MINE("cuptiPCSamplingGetData", pcs_get_data),
        MINE("cuptiPCSamplingGetNumStallReasons", pcs_count),
        MINE("cuptiPCSamplingGetStallReasons", pcs_reasons),
        MINE("cuptiPCSamplingSetConfigurationAttribute", pcs_set),
        MINE("cuptiGetCubinCrc", cubin_crc),
    };
    void *address = fake_profiler_get_proc(symbol, userdata);
    for (size_t i = 0; i < STITCH__COUNT(mine) && !pcs.none; i++)
        if (strcmp(symbol, mine[i].symbol) == 0)
            memcpy(&address, &mine[i].f, sizeof(address));
    return address;
}

/* ---- the region: alpha twice, then beta, of which beta is on the device first ---- */

enum { OWN_RC = 4242 };

static struct {
    int befores, runs, plain;
    int fail_before, fail_run; /* at which call they return OWN_RC; 0: never */
    int cancel_at, fault_at;   /* runs; 0: never */
    int more_at;               /* from this run on one launch more */
    int repeats;               /* alpha so many times more */
    size_t others;             /* launches of somebody else, beside counted runs */
    size_t nodes;              /* of a graph that is launched besides */
    size_t grids;              /* every second launch of alpha has another grid */
    bool whole;                /* it cannot be paused */
    int traced;                /* runs */
    uint64_t beta_ns[8];       /* what beta takes in each of those; 0: 4 us */
    int64_t slow_ms;           /* what the first of them takes the host */
    size_t pauses, after;      /* made, and where the last was */
    stitch_cancel *cancel;
    /* Of a region of the host's: while one of these is taken, the device is busy from then on. */
    uint32_t hang_in;
    int64_t hang_ms;
    bool hang_cancels;
} work;

static line_cubin cubin;
static stitch__sampled_module module;

static int work_before(void *userdata)
{
    return ++work.befores == work.fail_before ? OWN_RC : STITCH_OK;
}

static void record_run(uint32_t alphas)
{
    uint64_t start = fc->now += 1000, takes = work.traced < 8 ? work.beta_ns[work.traced] : 0;
    if (!work.traced++)
        stitch__sleep_ms(work.slow_ms);
    fake_cupti_add_kernel("beta", start, start + (takes ? takes : 4000), alphas + 1);
    for (uint32_t i = 0; i < alphas; i++) {
        stitch__cupti_kernel k = fake_cupti_kernel("alpha", start + 5000 + 3000 * i, start + 7000 + 3000 * i, i + 1);
        k.grid[0] += work.grids && i % 2;
        fake_cupti_add(&k);
    }
    fc->now += 10000 + 3000 * alphas;
    for (size_t i = 0; i < work.nodes; i++) {
        stitch__cupti_kernel k = fake_cupti_kernel("node", fc->now, fc->now + 1000, alphas + 2);
        k.graph = 1;
        k.graph_node = 1 + i;
        fake_cupti_add(&k);
        fc->now += 1000;
    }
}

static int work_run(void *userdata, bool plain, const stitch__pause *pause)
{
    size_t done = 0;
    int run = ++work.runs;
    uint32_t alphas = 2 + (uint32_t)work.repeats + (work.more_at && run >= work.more_at);

    work.plain += plain;
    if (run == work.fail_run)
        return OWN_RC;
    if (run == work.cancel_at)
        stitch_cancel_trigger(work.cancel);
    if (run == work.fault_at)
        fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    if (fc->enabled[STITCH__CUPTI_KIND_CONCURRENT_KERNEL])
        record_run(alphas);
    if (plain && pause && !work.whole) {
        fake_profiler_launch(done = pause->after);
        work.pauses++;
        work.after = pause->after;
        int rc = pause->fn(pause->userdata);
        if (rc)
            return rc;
    }
    fake_profiler_launch(alphas + 1 + work.others - done);
    return STITCH_OK;
}

/* What is being taken; 0: nothing. */
static uint32_t part_of_run(void)
{
    return pcs.started                                         ? STITCH__PART_SAMPLES
           : fp->started                                       ? STITCH__PART_COUNTERS
           : fc->enabled[STITCH__CUPTI_KIND_CONCURRENT_KERNEL] ? STITCH__PART_TIMELINE
                                                               : 0;
}

/* As a region of the host's. */
static int hosts_run(void *userdata)
{
    int rc = work_run(NULL, false, NULL);
    if (work.hang_in && part_of_run() == work.hang_in) {
        fake.busy_until_ns = stitch__now_ns() + work.hang_ms * 1000000;
        if (work.hang_cancels)
            stitch_cancel_trigger(work.cancel);
    }
    return rc;
}

static const stitch__region region = {.before = work_before, .run = work_run, .modules = &module, .module_count = 1};

static void begin_fresh(void)
{
    static const line_row rows[] = {{0, 1, 1, 0}, {16, 2, 1, 0}, {96, 0, 0, 0}};
    static const line_kernel kernels[] = {{"alpha", rows, STITCH__COUNT(rows), NULL, 0}};
    static const char *const files[] = {"program.cu", NULL};
    static const stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_cancel *cancel = work.cancel;
    stitch__cuda *cuda;

    stitch__facts_free(facts);
    facts = NULL;
    stitch_error_free(err);
    err = NULL;
    memory.refuse_at = -1;
    if (stitch__exclusive_left())
        stitch__exclusive_release(); /* no user can do that */
    fake.fault = CUDA_SUCCESS;
    fake.busy_until_ns = 0;
    fake.blocked_calls = 0;
    if (ctx)
        stitch__metric_plans_forget(ctx);
    fake_profiler_reset();
    fp->repeats = true;
    memset(&pcs, 0, sizeof(pcs));
    memset(&work, 0, sizeof(work));
    work.cancel = cancel;
    o.device = "cuda:0";
    o.get_proc = fake_get_proc;
    o.allocator = &allocator;
    if (!ctx) {
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
        CHECK_OK(stitch__device_get(ctx, &dev, &err));
        CHECK_INT(stitch_cancel_new(&work.cancel), STITCH_OK);
        make_line_cubin(&cubin, kernels, 1, files, 2, true, true);
        module = (stitch__sampled_module){cubin.data, cubin.size, "first\nsecond\n"};
    }
    stitch_cancel_reset(work.cancel);
    CHECK_OK(stitch__cuda_state(ctx, &cuda, &err));
    CHECK_OK(stitch__cupti_bind(ctx, get_proc, NULL, "the fake", &cuda->cupti, &err));
    cuda->cupti_ready = true;
    CHECK_OK(stitch__facts_new(ctx, &facts, &err));
}

static int collect(uint32_t parts)
{
    const stitch__collect_options o = {.parts = parts, .set = STITCH__METRIC_CHEAP};
    stitch__scope scope = stitch__scope_make(ctx, work.cancel, 0);
    return stitch__collect(ctx, dev, &scope, &region, &o, facts, &err);
}

/* Nothing is on or held, and all can be had again. */
static void check_quiet(const char *after)
{
    stitch__metric_plans_forget(ctx);
    bool on = fc->subscribed || fp->hosts || fp->profilers || fp->started || pcs.enabled || pcs.started;
    for (int i = 0; i < 64; i++)
        on = on || fc->enabled[i];
    if (on || stitch__trace_buffers())
        FAIL("something is on after %s", after);
    CHECK_OK(stitch__exclusive_claim(ctx, "the test", &err));
    stitch__exclusive_release();
}

static void check_all_again(const char *after)
{
    check_quiet(after);
    begin_fresh();
    CHECK_OK(collect(STITCH__PARTS));
    if (*facts->no_timeline || *facts->no_counters || *facts->no_samples)
        FAIL("after %s: %s%s%s", after, facts->no_timeline, facts->no_counters, facts->no_samples);
    check_quiet("everything");
}

static const stitch__kernel_fact *kernel(const char *name)
{
    for (size_t i = 0; i < facts->kernel_count; i++)
        if (strcmp(facts->kernels[i].symbol, name) == 0)
            return &facts->kernels[i];
    FAIL("there is no kernel %s", name);
}

/* Mean of a metric over launches first to last. */
static double mean_of(const char *metric, size_t first, size_t last)
{
    double sum = 0;
    for (size_t i = first; i <= last; i++)
        sum += fake_profiler_value(metric, i);
    return sum / (double)(last - first + 1);
}

/* ---- what works ---- */

TEST(everything)
{
    static const char *const names[] = {"sm__cycles_elapsed.max", "fe__gone.sum"};
    const stitch__collect_options o = {STITCH__PARTS, STITCH__METRIC_FULL, names, 2};
    stitch__scope scope = {0};
    begin_fresh();
    scope = stitch__scope_make(ctx, NULL, 60000);
    fp->without = "gone";
    CHECK_OK(stitch__collect(ctx, dev, &scope, &region, &o, facts, &err));
    CHECK_STR(facts->source, "cupti");
    CHECK_STR(facts->no_timeline, "");
    CHECK_STR(facts->no_counters, "not offered by this device: fe__gone.sum");
    CHECK_STR(facts->no_samples, "");
    CHECK_INT(facts->kernel_count, 2);
    CHECK_INT(facts->launches, 3);
    const stitch__kernel_fact *alpha = kernel("alpha"), *beta = kernel("beta");
    CHECK_INT(alpha->launches, 2);
    CHECK_INT(beta->launches, 1);
    CHECK_NEAR(alpha->time_us, 2, 1e-9);
    CHECK_NEAR(beta->time_us, 4, 1e-9);
    CHECK(facts->busy_us > 7.9 && facts->busy_us < 8.1);
    /* By the order of launches, not of the device. */
    CHECK_NEAR(alpha->metric[STITCH__METRIC_INST], mean_of("sm__inst_executed_realtime.sum", 0, 1), 1);
    CHECK_NEAR(beta->metric[STITCH__METRIC_INST], mean_of("sm__inst_executed_realtime.sum", 2, 2), 1);
    CHECK_NEAR(alpha->metric[STITCH__METRIC_L1_SHARE],
               mean_of("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", 0, 1), 1);
    CHECK_INT(facts->extra_count, 2);
    CHECK_STR(facts->extra_names[1], names[1]);
    CHECK_NEAR(beta->extra[0], mean_of(names[0], 2, 2), 1);
    CHECK(isnan(beta->extra[1]));
    CHECK_INT(alpha->samples, 100);
    CHECK_INT(beta->samples, 0);
    CHECK_INT(alpha->line_count, 1);
    CHECK_INT(alpha->lines[0].line, 2);
    CHECK_STR(alpha->lines[0].text, "second");
    CHECK_STR(alpha->lines[0].reasons[0].name, "long_scoreboard");
    check_quiet("everything");
}

/* Of three runs the one in the middle, whenever it comes; one that is not counted is before them. */
TEST(the_run_in_the_middle)
{
    static const uint64_t times[3][3] = {{4900, 4100, 4500}, {4500, 4900, 4100}, {4100, 4500, 4900}};
    for (size_t i = 0; i < STITCH__COUNT(times); i++) {
        begin_fresh();
        work.beta_ns[0] = 3000;
        memcpy(&work.beta_ns[1], times[i], sizeof(times[i]));
        CHECK_OK(collect(STITCH__PART_TIMELINE));
        CHECK_INT(work.traced, 4);
        CHECK_NEAR(kernel("beta")->time_us, 4.5, 1e-9);
    }
    begin_fresh();
    work.slow_ms = 1050; /* more than a second: one has to do */
    work.beta_ns[1] = 4700;
    CHECK_OK(collect(STITCH__PART_TIMELINE));
    CHECK_INT(work.traced, 2);
    CHECK_NEAR(kernel("beta")->time_us, 4.7, 1e-9);
    check_quiet("the run in the middle");
}

/* A launch's counters go to the step that launched it, not to whatever has its name. */
TEST(one_name_in_two_steps)
{
    static const stitch__expected launches[] = {
        {STITCH_TRACE_KERNEL, 0, "beta"}, {STITCH_TRACE_KERNEL, 1, "alpha"}, {STITCH_TRACE_KERNEL, 2, "alpha"}};
    static const size_t launch_of_step[] = {2, 0, 1};
    const stitch__collect_options o = {.parts = STITCH__PART_TIMELINE | STITCH__PART_COUNTERS};
    stitch__region program = region;
    stitch__scope scope = {0};

    begin_fresh();
    program.expected = launches;
    program.expected_count = STITCH__COUNT(launches);
    facts->steps = stitch__calloc(ctx, 3, sizeof(*facts->steps));
    CHECK(facts->steps);
    facts->step_count = 3;
    for (size_t i = 0; i < 3; i++)
        facts->steps[i] = (stitch__step_fact){.place = "", .kind = "kernel", .name = "", .next = -1, .between = ""};
    CHECK_OK(stitch__collect(ctx, dev, &scope, &program, &o, facts, &err));
    CHECK_STR(facts->no_counters, "");
    CHECK_INT(facts->kernel_count, 3);
    for (size_t i = 0; i < 3; i++) {
        const stitch__kernel_fact *k = &facts->kernels[i];
        size_t launch = k->step >= 0 && k->step < 3 ? launch_of_step[k->step] : 99;
        CHECK_INT(k->launches, 1);
        CHECK_NEAR(k->metric[STITCH__METRIC_INST], mean_of("smsp__inst_executed.sum", launch, launch), 1e-9);
    }
    check_quiet("one name in two steps");
}

/* The plain form is asked for where counters are, once a pass; the launches are those of the timeline. */
TEST(counted_runs_are_plain_and_repeated)
{
    for (size_t passes = 1; passes < 5; passes++) {
        begin_fresh();
        fp->passes = passes;
        CHECK_OK(collect(STITCH__PART_TIMELINE | STITCH__PART_COUNTERS));
        CHECK_STR(facts->no_counters, "");
        CHECK_INT(work.plain, passes);
        CHECK_INT(work.befores, work.runs); /* each run has its own */
        CHECK_NEAR(kernel("beta")->metric[STITCH__METRIC_INST], mean_of("smsp__inst_executed.sum", 2, 2), 1);
        check_quiet("passes");
    }
    begin_fresh();
    fp->incomplete = true; /* for ever */
    CHECK_OK(collect(STITCH__PART_TIMELINE | STITCH__PART_COUNTERS));
    CHECK(work.plain > 10 && work.plain < 200);
    check_all_again("passes without an end");
}

TEST(what_was_not_asked_for)
{
    begin_fresh();
    CHECK_OK(collect(STITCH__PART_TIMELINE));
    CHECK_STR(facts->no_timeline, "");
    CHECK_HAS(facts->no_counters, "not asked for");
    CHECK_HAS(facts->no_samples, "not asked for");
    CHECK_INT(work.plain, 0);
    CHECK_INT(work.runs, 4);
    check_quiet("a timeline");
    begin_fresh();
    CHECK_OK(collect(0));
    CHECK_INT(work.runs + work.befores, 0);
    CHECK_HAS(facts->no_timeline, "not asked for");
}

/* ---- what is missing ---- */

TEST(parts_that_cannot_be_had)
{
    enum { NO_TIMELINE = 1, NO_COUNTERS = 2, NO_SAMPLES = 4 };
    static const struct {
        const char *what;
        int function, profiler; /* -1: none */
        int missing;
    } rows[] = {
        {"no subscription", FAKE_SubscribeNamed, -1, NO_TIMELINE | NO_COUNTERS | NO_SAMPLES},
        {"no records", FAKE_ActivityEnable, -1, NO_TIMELINE | NO_COUNTERS},
        {"no clock", FAKE_GetTimestamp, -1, NO_TIMELINE | NO_COUNTERS},
        {"no callbacks", FAKE_ActivityRegisterCallbacks, -1, NO_TIMELINE | NO_COUNTERS},
        {"no profiler", -1, FAKE_PROFILER_ProfilerInitialize, NO_COUNTERS},
        {"no host", -1, FAKE_PROFILER_ProfilerHostInitialize, NO_COUNTERS},
        {"not enabled", -1, FAKE_PROFILER_RangeProfilerEnable, NO_COUNTERS},
        {"not configured", -1, FAKE_PROFILER_RangeProfilerSetConfig, NO_COUNTERS},
        {"not started", -1, FAKE_PROFILER_RangeProfilerStart, NO_COUNTERS},
        {"not stopped", -1, FAKE_PROFILER_RangeProfilerStop, NO_COUNTERS},
        {"not decoded", -1, FAKE_PROFILER_RangeProfilerDecodeData, NO_COUNTERS},
        {"not evaluated", -1, FAKE_PROFILER_ProfilerHostEvaluateToGpuValues, NO_COUNTERS},
        {"sampling not enabled", FAKE_PcsEnable, -1, NO_SAMPLES},
        {"sampling not configured", FAKE_PcsSetAttributes, -1, NO_SAMPLES},
        {"sampling not started", FAKE_PcsStart, -1, NO_SAMPLES},
        {"sampling not stopped", FAKE_PcsStop, -1, NO_SAMPLES},
        {"no samples", FAKE_PcsGetData, -1, NO_SAMPLES},
    };
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        begin_fresh();
        if (rows[i].function >= 0)
            fc->fail[rows[i].function] = STITCH__CUPTI_INSUFFICIENT_PRIVILEGES;
        if (rows[i].profiler >= 0)
            fp->fail[rows[i].profiler] = STITCH__CUPTI_INSUFFICIENT_PRIVILEGES;
        CHECK_OK(collect(STITCH__PARTS));
        int missing = (*facts->no_timeline ? NO_TIMELINE : 0) | (*facts->no_counters ? NO_COUNTERS : 0) |
                      (*facts->no_samples ? NO_SAMPLES : 0);
        if (missing != rows[i].missing)
            FAIL("%s: missing is %d, not %d (%s; %s; %s)", rows[i].what, missing, rows[i].missing, facts->no_timeline,
                 facts->no_counters, facts->no_samples);
        if (missing & NO_TIMELINE)
            CHECK_HAS(facts->no_counters, "no kernels were seen");
        else if (missing & NO_COUNTERS)
            CHECK_HAS(facts->no_counters, "NVreg_RestrictProfilingToAdminUsers");
        CHECK_INT(facts->kernel_count, missing & NO_TIMELINE ? 0 : 2);
        check_all_again(rows[i].what);
    }
}

/* Whatever fails, in whatever way: no crash, no failure of the whole but for memory, and nothing stays on. */
TEST(every_call_fails)
{
    static const int results[] = {1, STITCH__CUPTI_INSUFFICIENT_PRIVILEGES, STITCH__CUPTI_OUT_OF_MEMORY, 999};
    for (size_t r = 0; r < STITCH__COUNT(results); r++) {
        for (int i = 0; i < FAKE_CUPTI_FUNCTIONS + FAKE_PROFILER_FUNCTIONS; i++) {
            begin_fresh();
            if (i < FAKE_CUPTI_FUNCTIONS)
                fc->fail[i] = results[r];
            else
                fp->fail[i - FAKE_CUPTI_FUNCTIONS] = results[r];
            int rc = collect(STITCH__PARTS);
            if (rc && rc != STITCH_E_NOMEM)
                FAIL("function %d with %d: %s (%s)", i, results[r], stitch_status_name(rc), stitch_error_message(err));
            CHECK(rc == STITCH_OK || results[r] == STITCH__CUPTI_OUT_OF_MEMORY);
            CHECK_OK(stitch__exclusive_claim(ctx, "the test", &err));
            stitch__exclusive_release();
            fc->subscribed = false; /* what was told to stay on */
            memset(fc->enabled, 0, sizeof(fc->enabled));
        }
    }
    begin_fresh();
    check_all_again("every failure");
}

TEST(without_cupti_or_beside_others)
{
    stitch__cuda *cuda;
    begin_fresh();
    fc->holder = "Some Tool";
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_HAS(facts->no_timeline, "Some Tool");
    CHECK_HAS(facts->no_samples, "Some Tool");
    CHECK_INT(work.runs, 0);
    check_all_again("another tool");

    begin_fresh();
    CHECK_OK(stitch__exclusive_claim(ctx, "a trace", &err));
    CHECK_OK(collect(STITCH__PARTS));
    stitch__exclusive_release();
    CHECK_HAS(facts->no_timeline, "a trace runs in this process already");
    CHECK_HAS(facts->no_samples, "a trace runs in this process already");
    check_all_again("a trace");

    begin_fresh();
    pcs.none = true;
    CHECK_OK(stitch__cuda_state(ctx, &cuda, &err));
    CHECK_OK(stitch__cupti_bind(ctx, get_proc, NULL, "the fake", &cuda->cupti, &err));
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_STR(facts->no_counters, "");
    CHECK_HAS(facts->no_samples, "no PC sampling");

    begin_fresh();
    cuda->cupti_ready = false;
    setenv("STITCH_CUPTI", "/nonexistent/libcupti.so", 1);
    CHECK_OK(collect(STITCH__PARTS));
    unsetenv("STITCH_CUPTI");
    CHECK(*facts->no_timeline && *facts->no_counters && *facts->no_samples);
    CHECK_STR(facts->no_timeline, facts->no_samples);
    CHECK_INT(work.runs, 0);
    check_all_again("no CUPTI");
}

/* ---- work that varies ---- */

TEST(launches_that_counters_cannot_be_matched_to)
{
    for (int from = 2; from < 8; from++) { /* 1: a run that is not counted; 2 to 4: traced; 5, 6, 7: passes */
        begin_fresh();
        work.more_at = from;
        fp->passes = 3;
        CHECK_OK(collect(STITCH__PART_TIMELINE | STITCH__PART_COUNTERS));
        CHECK_STR(facts->no_timeline, "");
        if (from == 2)
            CHECK_STR(facts->no_counters, "");
        else if (from < 5)
            CHECK_HAS(facts->no_counters, "does not launch as many kernels each time");
        else
            CHECK_HAS(facts->no_counters, "counters came for 4 launches and the timeline has 3");
        CHECK(isnan(kernel("beta")->metric[STITCH__METRIC_INST]) == (from != 2));
    }
    begin_fresh();
    work.others = 5;
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_HAS(facts->no_counters, "other work of this process");
    check_all_again("others");
}

TEST(more_launches_than_are_counted)
{
    static const char inst[] = "smsp__inst_executed.sum";
    for (int whole = 0; whole < 2; whole++) {
        begin_fresh();
        work.whole = whole;
        work.repeats = 61; /* alpha 63 times, then beta: all are looked at */
        CHECK_OK(collect(STITCH__PARTS));
        CHECK_STR(facts->no_counters, "");
        CHECK_INT(fp->max_ranges, 65); /* one more would be seen */
        CHECK_INT(fp->calls[FAKE_PROFILER_ProfilerHostEvaluateToGpuValues], 64);
        CHECK_NEAR(kernel("alpha")->metric[STITCH__METRIC_INST], mean_of(inst, 0, 62), 1);
        CHECK_NEAR(kernel("beta")->metric[STITCH__METRIC_INST], mean_of(inst, 63, 63), 1);
        CHECK_INT(work.pauses, 0);

        begin_fresh();
        work.whole = whole;
        work.repeats = 62; /* one more: of alpha the first ones, and beta is too far away */
        CHECK_OK(collect(STITCH__PARTS));
        CHECK_STR(facts->no_counters, "of all but 16 of 65 launches");
        CHECK_INT(fp->max_ranges, 16);
        CHECK_INT(fp->calls[FAKE_PROFILER_ProfilerHostEvaluateToGpuValues], 16);
        CHECK_NEAR(kernel("alpha")->metric[STITCH__METRIC_INST], mean_of(inst, 0, 15), 1);
        CHECK(isnan(kernel("beta")->metric[STITCH__METRIC_INST]));

        begin_fresh();
        work.whole = whole;
        work.repeats = 600; /* nothing is counted behind the last of alpha that is looked at */
        fp->passes = 3;
        CHECK_OK(collect(STITCH__PARTS));
        CHECK_STR(facts->no_counters, "of all but 16 of 603 launches");
        CHECK_NEAR(kernel("alpha")->metric[STITCH__METRIC_INST], mean_of(inst, 0, 15), 1);
        CHECK(isnan(kernel("beta")->metric[STITCH__METRIC_INST]));
        CHECK_INT(kernel("alpha")->launches, 602);
        CHECK_INT(fp->max_ranges, 16);
        CHECK_INT(fp->dropped, whole ? 587 * 3 : 0);
        CHECK_INT(work.pauses, whole ? 0 : 3);
        CHECK_INT(work.after, whole ? 0 : 16);
        check_quiet("launches that are not counted");
    }
}

/* A launch that is looked at stands for those of its grid that are not. */
TEST(launches_weigh_by_grid)
{
    static const char inst[] = "smsp__inst_executed.sum";
    double even = 0, odd = 0;
    begin_fresh();
    work.grids = 2;
    work.repeats = 1001; /* 502 with the one grid, 501 with the other */
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_STR(facts->no_counters, "of all but 32 of 1004 launches");
    for (size_t i = 0; i < 16; i++) {
        even += fake_profiler_value(inst, 2 * i) / 16;
        odd += fake_profiler_value(inst, 2 * i + 1) / 16;
    }
    CHECK_NEAR(kernel("alpha")->metric[STITCH__METRIC_INST], (502 * even + 501 * odd) / 1003, 1);
    CHECK_INT(work.after, 32);
    check_quiet("two grids");
}

TEST(a_pause_that_fails)
{
    begin_fresh();
    work.repeats = 600;
    fp->fail[FAKE_PROFILER_RangeProfilerStop] = 999;
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_INT(work.pauses, 1);
    CHECK_HAS(facts->no_counters, "cuptiRangeProfilerStop");
    CHECK(isnan(kernel("alpha")->metric[STITCH__METRIC_INST]));
    check_all_again("a pause");
}

/* CUPTI counts none of their kernels, and fails with an error that tells nobody anything. */
TEST(graphs_of_a_host)
{
    begin_fresh();
    work.nodes = 2;
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_STR(facts->no_timeline, "");
    CHECK_INT(facts->launches, 5);
    CHECK_HAS(facts->no_counters, "CUPTI counts no kernels in them: run it without graphs");
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerEnable], 0);
    CHECK(stitch__exclusive_graph_traced());
    check_quiet("a graph");
}

TEST(metrics_that_are_not_offered)
{
    static const char *const names[] = {"fe__gone.sum"};
    const stitch__collect_options o = {STITCH__PART_TIMELINE | STITCH__PART_COUNTERS, STITCH__METRIC_CHEAP, names, 1};
    stitch__scope scope = {0};
    for (int i = 0; i < 2; i++) {
        begin_fresh();
        scope = stitch__scope_make(ctx, NULL, 60000);
        fp->without = i ? "dram__" : "gone";
        work.repeats = i ? 600 : 0;
        CHECK_OK(stitch__collect(ctx, dev, &scope, &region, &o, facts, &err));
        CHECK_STR(facts->no_counters,
                  i ? "of all but 16 of 603 launches; not offered by this device: dram_pct, dram_bytes, "
                      "dram_read_bytes, dram_write_bytes"
                    : "not offered by this device: fe__gone.sum");
        CHECK(!isnan(kernel("alpha")->metric[STITCH__METRIC_INST]));
        CHECK(isnan(kernel("alpha")->metric[STITCH__METRIC_DRAM_BYTES]) == (i == 1));
        check_quiet("metrics that are not offered");
    }
}

TEST(a_run_of_nothing)
{
    begin_fresh();
    fc->cut = SIZE_MAX; /* no record arrives */
    CHECK_OK(collect(STITCH__PARTS));
    CHECK_HAS(facts->no_timeline, "nothing ran on the device");
    CHECK_HAS(facts->no_counters, "no kernels were seen");
    CHECK_INT(facts->kernel_count, 0);
    check_all_again("nothing");
}

/* ---- ends ---- */

TEST(callbacks_that_fail)
{
    begin_fresh();
    CHECK_OK(collect(STITCH__PARTS));
    int befores = work.befores, runs = work.runs;
    CHECK(befores >= 6 && runs > befores);
    for (int i = 1; i <= befores; i++) {
        begin_fresh();
        work.fail_before = i;
        CHECK_INT(collect(STITCH__PARTS), OWN_RC);
        CHECK_INT(work.befores, i);
        CHECK(!err);
        check_quiet("a failure of what comes before a run");
    }
    for (int i = 1; i <= 12; i++) {
        begin_fresh();
        work.fail_run = i;
        CHECK_INT(collect(STITCH__PARTS), OWN_RC);
        CHECK_INT(work.runs, i);
        CHECK(!err);
        check_quiet("a failure of a run");
    }
    check_all_again("failures");
}

TEST(cancelled_late_and_faulted)
{
    for (int i = 1; i <= 12; i++) {
        begin_fresh();
        work.cancel_at = i;
        CHECK_ERR(collect(STITCH__PARTS), STITCH_E_CANCELLED, "profiling");
        CHECK(work.runs == i);
        check_quiet("being cancelled");
        begin_fresh();
        work.fault_at = i;
        int rc = collect(STITCH__PARTS);
        if (rc != STITCH_E_FAULT)
            FAIL("a fault in run %d: %s", i, stitch_status_name(rc));
        CHECK(*stitch_error_message(err));
        check_quiet("a fault");
    }
    begin_fresh();
    stitch__scope late = stitch__scope_make(ctx, NULL, 1);
    const stitch__collect_options all = {.parts = STITCH__PARTS};
    stitch__sleep_ms(3);
    CHECK_ERR(stitch__collect(ctx, dev, &late, &region, &all, facts, &err), STITCH_E_TIMEOUT, "profiling");
    CHECK_INT(work.runs, 0);
    check_all_again("ends");
}

TEST(no_memory)
{
    int64_t needed, failed = 0;
    begin_fresh();
    memory.calls = 0;
    CHECK_OK(collect(STITCH__PARTS));
    needed = memory.calls;
    for (int64_t at = 0; at < needed; at++) {
        begin_fresh();
        memory.calls = 0;
        memory.refuse_at = at;
        int rc = collect(STITCH__PARTS);
        memory.refuse_at = -1;
        if (rc && rc != STITCH_E_NOMEM)
            FAIL("allocation %d: %s (%s)", (int)at, stitch_status_name(rc), stitch_error_message(err));
        failed += rc != STITCH_OK;
        check_quiet("a refused allocation");
    }
    printf("# %d allocations, %d refusals ended it\n", (int)needed, (int)failed);
    CHECK(failed > 20);
    check_all_again("refused allocations");
}

/* ---- a device that does not get done ---- */

enum { HANGS_MS = 3600000 };

static int profile_hosts(int64_t timeout_ms)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;
    o.cancel = work.cancel;
    o.timeout_ms = timeout_ms;
    int rc = stitch_profile_region(ctx, hosts_run, NULL, &o, &p, &err);
    CHECK((rc == STITCH_OK) == (p != NULL));
    stitch_profile_free(p);
    return rc;
}

/* No call waited, and CUPTI is as it was. */
static void check_left(const char *why)
{
    stitch_trace *trace = NULL;
    CHECK_INT(fake.blocked_calls, 0);
    CHECK_HAS(stitch_error_message(err), why);
    CHECK_HAS(stitch_error_message(err), "only a new process can trace or profile again");
    CHECK(fc->subscribed);
    fake.busy_until_ns = 0; /* too late */
    stitch_cancel_reset(work.cancel);
    work.hang_in = 0;
    CHECK_ERR(stitch_trace_begin(ctx, NULL, &trace, &err), STITCH_E_BUSY, "only a new process");
    CHECK_ERR(profile_hosts(10000), STITCH_E_UNSUPPORTED, "only a new process");
}

TEST(a_region_that_hangs_while_it_is_sampled)
{
    begin_fresh();
    work.hang_in = STITCH__PART_SAMPLES;
    work.hang_ms = HANGS_MS;
    CHECK_INT(profile_hosts(200), STITCH_E_TIMEOUT);
    CHECK(pcs.enabled && pcs.started);
    CHECK_INT(fc->calls[FAKE_PcsStop] + fc->calls[FAKE_PcsDisable], 0);
    pcs.given->count = 0; /* still CUPTI's */
    check_left("0.2 s (stitch_profile_options.timeout_ms)");
}

TEST(a_region_that_hangs_while_it_is_counted)
{
    begin_fresh();
    int64_t live = memory.live;
    work.hang_in = STITCH__PART_COUNTERS;
    work.hang_ms = HANGS_MS;
    work.hang_cancels = true;
    CHECK_INT(profile_hosts(60000), STITCH_E_CANCELLED);
    CHECK(fp->started);
    CHECK_INT(fp->calls[FAKE_PROFILER_RangeProfilerStop] + fp->calls[FAKE_PROFILER_RangeProfilerDisable], 0);
    fp->data[0] ^= 1; /* still CUPTI's */
    check_left("the profiled work was cancelled");
    begin_fresh();
    left_blocks += memory.live - live;
}

TEST(a_region_that_hangs_while_it_is_traced)
{
    begin_fresh();
    work.hang_in = STITCH__PART_TIMELINE;
    work.hang_ms = HANGS_MS;
    CHECK_INT(profile_hosts(200), STITCH_E_TIMEOUT);
    CHECK_HAS(stitch_error_message(err), "0.2 s (stitch_profile_options.timeout_ms): the profiled work did not end");
    CHECK(!strstr(stitch_error_message(err), "new process"));
    CHECK_INT(fake.blocked_calls, 0);
    check_all_again("a trace of work that hangs");
}

TEST(work_before_a_profile_that_hangs)
{
    begin_fresh();
    fake.busy_until_ns = stitch__now_ns() + (int64_t)HANGS_MS * 1000000;
    CHECK_ERR(profile_hosts(50), STITCH_E_TIMEOUT, "the work before the profile");
    CHECK_INT(work.runs, 0);
    CHECK_INT(fake.blocked_calls, 0);
    check_all_again("work that hangs");
}

/* The device gets done a little later: then everything can be given back. */
TEST(a_region_that_is_cancelled)
{
    static const uint32_t parts[] = {STITCH__PART_SAMPLES, STITCH__PART_TIMELINE, STITCH__PART_COUNTERS};
    for (size_t i = 0; i < STITCH__COUNT(parts); i++) {
        begin_fresh();
        work.hang_in = parts[i];
        work.hang_ms = 100;
        work.hang_cancels = true;
        CHECK_ERR(profile_hosts(60000), STITCH_E_CANCELLED, "was cancelled");
        CHECK_INT(fake.blocked_calls, 0);
        fake.busy_until_ns = 0; /* a trace does not wait for it */
        check_all_again("a cancelled region");
    }
}

TEST(a_trace_that_ends_while_the_device_works)
{
    begin_fresh();
    const stitch__driver *newest = dev->drv;
    stitch__driver older = *newest; /* before 12.5 */
    older.CtxRecordEvent = NULL;
    for (int i = 0; i < 4; i++) {
        stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
        stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
        stitch_trace *trace = NULL;
        const bool cancelled = i % 2;
        begin_fresh();
        o.timeout_ms = cancelled ? 60000 : 30;
        o.cancel = work.cancel;
        dev->drv = i < 2 ? newest : &older;
        int rc = stitch_trace_begin(ctx, &o, &trace, &err);
        record_run(2);
        fake.busy_until_ns = stitch__now_ns() + (int64_t)HANGS_MS * 1000000;
        if (cancelled)
            stitch_cancel_trigger(work.cancel);
        int ended = rc ? rc : stitch_trace_end(trace, &err);
        dev->drv = newest;
        CHECK_OK(rc);
        CHECK_INT(ended, cancelled ? STITCH_E_CANCELLED : STITCH_E_TIMEOUT);
        CHECK_HAS(stitch_error_message(err), cancelled ? "was cancelled" : "within 0.03 s");
        CHECK_INT(fake.blocked_calls, 0);
        CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
        CHECK_INT(s.kernels, 3); /* what was recorded is there */
        CHECK_ERR(stitch_trace_end(trace, &err), STITCH_E_STATE, "already");
        stitch_trace_free(trace);
        check_all_again("a trace that ended too early");
    }
}

/* A struct from before it had a limit; and a wait that comes to its end. */
TEST(a_trace_of_an_older_caller)
{
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    stitch_trace *trace = NULL;
    begin_fresh();
    o.struct_size = offsetof(stitch_trace_options, cancel);
    o.timeout_ms = 1; /* beyond its end */
    CHECK_OK(stitch_trace_begin(ctx, &o, &trace, &err));
    fake.busy_until_ns = stitch__now_ns() + 50 * 1000000;
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK(stitch__now_ns() >= fake.busy_until_ns);
    stitch_trace_free(trace);
    check_quiet("a trace");
}

static const check_test tests[] = {
    RUN(everything),
    RUN(the_run_in_the_middle),
    RUN(one_name_in_two_steps),
    RUN(counted_runs_are_plain_and_repeated),
    RUN(what_was_not_asked_for),
    RUN(parts_that_cannot_be_had),
    RUN(every_call_fails),
    RUN(without_cupti_or_beside_others),
    RUN(launches_that_counters_cannot_be_matched_to),
    RUN(more_launches_than_are_counted),
    RUN(launches_weigh_by_grid),
    RUN(a_pause_that_fails),
    RUN(metrics_that_are_not_offered),
    RUN(a_run_of_nothing),
    RUN(callbacks_that_fail),
    RUN(cancelled_late_and_faulted),
    RUN(no_memory),
    RUN(a_region_that_hangs_while_it_is_sampled),
    RUN(a_region_that_hangs_while_it_is_counted),
    RUN(a_region_that_hangs_while_it_is_traced),
    RUN(work_before_a_profile_that_hangs),
    RUN(a_region_that_is_cancelled),
    RUN(a_trace_that_ends_while_the_device_works),
    RUN(a_trace_of_an_older_caller),
    RUN(graphs_of_a_host), /* the last: this process has traced a graph then */
};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    stitch__facts_free(facts);
    stitch_error_free(err);
    stitch_cancel_free(work.cancel);
    stitch_context_free(ctx);
    if (memory.live != left_blocks) {
        printf("# %d blocks are left\n", (int)(memory.live - left_blocks));
        rc = 1;
    }
    return rc;
}
