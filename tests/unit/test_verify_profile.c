/* SPDX-License-Identifier: MIT
 *
 * Stage profile as far as the device's busy time goes, on a driver and a CUPTI without a GPU: what it says beside the
 * wall time, why it may say nothing, and that CUPTI is off afterwards. Needs NVRTC.
 */
#include "cuda/internal.h"
#include "fake_cupti.h"
#include "profile/ceilings.h"
#include "profile/profile.h"
#include "verify_fixture.h"

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static int fault_at;                /* the call; negative: none */
static int recorded;                /* calls under CUPTI */
static uint64_t recorded_ns = 6000; /* how long a call's kernel takes; 0: it has no record */
static int others_at;               /* the recorded call that somebody else's kernel is beside; negative: all */
static size_t dropped;

static void run_candidate(void **params)
{
    int call = calls++;

    if (fake_cupti_state.subscribed) {
        uint64_t t = fake_cupti_state.now + 1000;
        if (recorded_ns)
            fake_cupti_add_kernel("candidate", t, t + recorded_ns, 1);
        if (others_at && (recorded == others_at || others_at < 0))
            fake_cupti_add_kernel("other", t, t + 90000, 2);
        fake_cupti_state.dropped = dropped;
        recorded++;
    }
    multiply(PTR(2), PTR(0), PTR(1));
    if (call == fault_at)
        fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static int hang_at; /* the call of the baseline; 0: none */

static void watched_baseline(void **params)
{
    run_baseline(params);
    if (fake_cupti_state.subscribed)
        fake_cupti_add_kernel("baseline", fake_cupti_state.now + 1000, fake_cupti_state.now + 9000, 1);
    if (hang_at && ++recorded == hang_at)
        fake.busy_until_ns = INT64_MAX;
}

static fake_kernel kernels[] = {
    VERIFY_KERNELS,
    {"oracle", 4, NULL, run_oracle, 100, 0},
    {"baseline", 4, NULL, watched_baseline, 40, 0},
    {"candidate", 4, NULL, run_candidate, 10, 0},
};

/* ---- fixture ----------------------------------------------------------------------------------------------------- */

static void reset(void)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}, {8, 8, 8, 4}};
    reset_driver(kernels, sizes, STITCH__COUNT(kernels));
    fault_at = -1;
    hang_at = 0;
    recorded = 0;
    recorded_ns = 6000;
    others_at = 0;
    dropped = 0;
    fake_cupti_reset();
}

static stitch_context *with_cupti(stitch_context *c)
{
    stitch__cuda *cuda;
    CHECK_OK(stitch__cuda_state(c, &cuda, &err));
    CHECK_OK(stitch__cupti_bind(c, fake_cupti_get_proc, NULL, "the fake", &cuda->cupti, &err));
    cuda->cupti_ready = true;
    return c;
}

static void need_context(void)
{
    reset();
    if (!ctx)
        ctx = with_cupti(new_context(NULL));
    need_compiler();
}

static stitch_verify_options profiled(void)
{
    stitch_verify_options o = quick(3, 12);
    o.profile = STITCH_PROFILE_TIMELINE; /* as far as a fake CUPTI goes */
    return o;
}

static const char *busy_note; /* "": there is none */
static double idle_share;     /* negative: null */

static stitch_report_summary verify(stitch_verify_options o)
{
    get_verdict(&o, task_with_baseline(ctx), candidate(ctx));
    const json_t *idle = json_object_get(candidate_time(), "idle_share");
    const char *note = json_string_value(json_object_get(candidate_time(), "busy_note"));
    busy_note = note ? note : "";
    idle_share = json_is_number(idle) ? json_number_value(idle) : -1;
    return got.s;
}

/* Calls of the candidate before stage profile. */
static int calls_without_profile(void)
{
    stitch_verify_options o = profiled();
    o.profile = STITCH_PROFILE_NEVER;
    reset();
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE);
    int before = calls;
    reset();
    return before;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void cupti_is_off(void)
{
    CHECK(!fake_cupti_state.subscribed);
    for (size_t i = 0; i < STITCH__COUNT(fake_cupti_state.enabled); i++)
        CHECK_INT(fake_cupti_state.enabled[i], 0);
    CHECK_INT(stitch__trace_buffers(), 0);
}

TEST(busy_beside_wall_time)
{
    int flushes = 0;

    need_context();
    int before = calls_without_profile();
    fake.log_flushes = true;
    stitch_report_summary s = verify(profiled());
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    CHECK_NEAR(s.median_us, 10, 1e-3);
    CHECK_NEAR(s.busy_us, 6, 1e-9);
    CHECK_NEAR(idle_share, 0.4, 1e-6);
    CHECK_STR(busy_note, "");
    CHECK_HAS(got.text, "busy 6.00 us of 10.00 us: the device idles for 40 % of it");
    /* Three runs and one before them, after everything else; CUPTI is there for no other. */
    CHECK_INT(recorded, 4);
    CHECK_INT(calls, before + 4);
    for (const char *at = fake.log; (at = strchr(at, 'F')); at++)
        flushes++;
    CHECK_INT(flushes, 12 + 12 + 4);
    CHECK_INT(strlen(fake.log) >= 2 && strcmp(fake.log + strlen(fake.log) - 2, "Fc") == 0, 1);
    cupti_is_off();
    /* More than the wall time is no negative idle time. */
    need_context();
    recorded_ns = 12000;
    s = verify(profiled());
    CHECK_NEAR(s.busy_us, 12, 1e-9);
    CHECK_NEAR(idle_share, 0, 0);
    cupti_is_off();
}

TEST(no_busy_time)
{
    static const struct {
        enum fake_cupti_function function;
        int result;
        const char *note;
    } rows[] = {{FAKE_SubscribeNamed, STITCH__CUPTI_MULTIPLE_SUBSCRIBERS, "another tool traces or profiles"},
                {FAKE_ActivityEnable, STITCH__CUPTI_INSUFFICIENT_PRIVILEGES, "this user may not profile"},
                {FAKE_ActivityRegisterCallbacks, STITCH__CUPTI_NOT_INITIALIZED, "CUPTI did not start"},
                {FAKE_ActivityFlushAll, STITCH__CUPTI_HARDWARE_BUSY, "another process holds"}};

    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        need_context();
        fake_cupti_state.fail[rows[i].function] = rows[i].result;
        stitch_report_summary s = verify(profiled());
        CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
        CHECK_INT(s.timed, 1);
        CHECK_NEAR(s.speedup, 4, 1e-3);
        CHECK_NEAR(s.busy_us, 0, 0);
        CHECK_NEAR(idle_share, -1, 0);
        CHECK_HAS(busy_note, rows[i].note);
        CHECK_HAS(got.text, "the device's busy time was not measured: ");
        CHECK_HAS(got.text, rows[i].note);
        CHECK(recorded <= 1);
    }
}

TEST(records_that_cannot_be_right)
{
    need_context();
    recorded_ns = 0;
    CHECK_NEAR(verify(profiled()).busy_us, 0, 0);
    CHECK_HAS(busy_note, "nothing ran on the device");
    CHECK_INT(recorded, 4);
    need_context();
    dropped = 3;
    CHECK_NEAR(verify(profiled()).busy_us, 0, 0);
    CHECK_HAS(busy_note, "more records than a trace holds");
    need_context();
    others_at = 2; /* of three: the median is of one without */
    CHECK_NEAR(verify(profiled()).busy_us, 6, 1e-9);
    CHECK_INT(recorded, 4);
    need_context();
    others_at = -1;
    CHECK_NEAR(verify(profiled()).busy_us, 0, 0);
    CHECK_HAS(busy_note, "other work of this process may be among them");
    cupti_is_off();
}

/* In this process: what is lost with a fault is its own context, so the report has to say that. */
TEST(a_fault_under_cupti)
{
    need_context();
    int first = calls_without_profile();
    for (int i = 0; i < 4; i += 3) {
        need_context();
        stitch_context *own = with_cupti(new_context(NULL)), *shared = ctx;
        ctx = own;
        fault_at = first + i;
        stitch_report_summary s = verify(profiled());
        CHECK_INT(s.failed_stage, STITCH_STAGE_PROFILE);
        CHECK_INT(s.status, STITCH_E_FAULT);
        CHECK_INT(s.correct, 1);
        CHECK_INT(s.timed, 1);
        CHECK_NEAR(s.busy_us, 0, 0);
        CHECK_STR(busy_note, "stage profile did not come to it");
        CHECK_INT(recorded, i + 1);
        cupti_is_off();
        ctx = shared;
        stitch_context_free(own);
        fake.fault = CUDA_SUCCESS;
    }
}

static int one_kernel(void *userdata)
{
    int *runs = userdata;
    uint64_t t = fake_cupti_state.now + 1000;

    if (fake_cupti_state.subscribed)
        fake_cupti_add_kernel("k", t, t + 5000, 1);
    (*runs)++;
    return 0;
}

/* Nothing of the host's work needs the lock, but the device's ceilings are not measured while somebody times. */
TEST(a_region_while_somebody_times)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;
    stitch__gpu_lock lock;
    stitch__device *held;
    int runs = 0;

    need_context();
    stitch__scope scope = stitch__scope_make(ctx, NULL, 10000);
    CHECK_OK(stitch__device_get(ctx, &held, &err));
    CHECK(!stitch__ceilings_kept(ctx, held));
    CHECK_OK(stitch__gpu_lock_take(held, &scope, true, &lock, NULL, &err));
    o.profile = STITCH_PROFILE_TIMELINE;
    o.timeout_ms = 100;
    CHECK_ERR(stitch_profile_region(ctx, one_kernel, &runs, &o, &p, &err), STITCH_E_TIMEOUT,
              "another process that times");
    CHECK_INT(runs, 4);
    CHECK(!p);
    stitch__gpu_lock_release(&lock);
    CHECK_OK(stitch_profile_region(ctx, one_kernel, &runs, &o, &p, &err));
    CHECK_INT(runs, 8);
    stitch_profile_free(p);
    cupti_is_off();
}

/* Nothing waits for a device that never answers, and what it works with is not taken from it. */
TEST(a_task_whose_baseline_hangs)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;

    need_context();
    stitch_task *t = task_with_baseline(ctx);
    o.profile = STITCH_PROFILE_TIMELINE;
    o.timeout_ms = 3000; /* on a busy machine, too, it comes to the baseline before that */
    hang_at = 2;
    LEAKS_ON_PURPOSE(true);
    int rc = stitch_profile_task(ctx, t, &o, &p, &err);
    LEAKS_ON_PURPOSE(false);
    CHECK(!p);
    CHECK_INT(fake.blocked_calls, 0);
    CHECK_ERR(rc, STITCH_E_TIMEOUT, "profiling the baseline did not end before its deadline");
    cupti_is_off();
    reset();
    o.timeout_ms = 0;
    rc = stitch_profile_task(ctx, t, &o, &p, &err);
    CHECK_OK(rc);
    stitch_profile_free(p);
    stitch_task_free(t);
}

/* All of the first allocations fail in turn, then samples. */
TEST(host_memory_runs_out)
{
    int64_t step = 1;
    bool enough = false;

    need_context();
    memory.for_good = true;
    stitch_context *own = with_cupti(metered_context());
    stitch_task *t = task_with_baseline(own);
    for (int64_t n = 0; !enough && n < 1000000; n += step) {
        stitch_verify_options o = profiled();
        stitch_program *p = candidate(own);
        o.trials = 1;
        o.iterations = 10;
        refuse_memory(n);
        verify_short_of_memory(own, t, p, &o, OF_LIBRARY, &enough);
        step = 1 + n / 12;
    }
    CHECK(enough);
    CHECK(recorded > 4);
    cupti_is_off();
    free_metered(own, t);
}

static char logged[2000];

static void keep_log(int level, const char *message, void *userdata)
{
    size_t len = strlen(logged);
    snprintf(logged + len, sizeof(logged) - len, "%s\n", message);
}

/* Where no lock can be had the report says so of the profile, too; where there is no report, the log. */
TEST(nobody_is_kept_away)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *shared, *own = NULL;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char *before = runtime ? strdup(runtime) : NULL;

    need_context();
    shared = ctx;
    options.device = "cuda:0";
    options.get_proc = fake_get_proc;
    options.cache_dir = "";
    options.log = keep_log;
    options.log_level = STITCH_LOG_WARN;
    CHECK_OK(stitch_context_new(&own, &options, &err));
    ctx = with_cupti(own);
    CHECK_INT(unsetenv("XDG_RUNTIME_DIR"), 0);
    CHECK_INT(verify(profiled()).failed_stage, STITCH_STAGE_NONE);
    CHECK_HAS(got.text, "note: other verifications on this GPU were not kept away");
    CHECK_HAS(got.text, "while it was profiled, other verifications on this GPU were not kept away");
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_task *t = task_with_baseline(ctx);
    stitch_profile *p = NULL;
    o.profile = STITCH_PROFILE_TIMELINE;
    CHECK(!strstr(logged, "kept away"));
    CHECK_OK(stitch_profile_task(ctx, t, &o, &p, &err));
    CHECK_HAS(logged, "others on this GPU were not kept away: neither $XDG_RUNTIME_DIR");
    stitch_profile_free(p);
    stitch_task_free(t);
    ctx = shared;
    stitch_context_free(own);
    if (before)
        setenv("XDG_RUNTIME_DIR", before, 1);
    free(before);
}

TEST_MAIN(RUN(busy_beside_wall_time), RUN(no_busy_time), RUN(records_that_cannot_be_right), RUN(a_fault_under_cupti),
          RUN(a_region_while_somebody_times), RUN(a_task_whose_baseline_hangs), RUN(host_memory_runs_out),
          RUN(nobody_is_kept_away), RUN(nothing_is_left))
