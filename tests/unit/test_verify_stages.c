/* SPDX-License-Identifier: MIT
 *
 * The stages of a verification on a driver without a GPU: what is run in which order, who is blamed for what, and that
 * nothing is left behind. Kernels are C functions here; the sources are only compiled. Needs NVRTC.
 */
#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "base/base.h"
#include "check.h"
#include "cuda/internal.h"
#include "fake_cupti.h"
#include "fake_driver.h"
#include "profile/ceilings.h"
#include "profile/profile.h"
#include "verify/verify.h"
#include "verify_kernels.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEAKS_ON_PURPOSE(on) ((on) ? __lsan_disable() : __lsan_enable())
#else
#define LEAKS_ON_PURPOSE(on) ((void)(on))
#endif

static stitch_context *ctx;
static stitch_error *err;

enum { N = 64, timing_calls = 1 + 12 + 3 /* warm-up, timed runs, after timing */ };

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* The task: y = x * w, in float64. */
static void run_oracle(void **params)
{
    for (int i = 0; i < VALUE(int, 3); i++)
        ((double *)PTR(2))[i] = (double)((float *)PTR(0))[i] * ((float *)PTR(1))[i];
}

static void multiply(float *y, const float *x, const float *w)
{
    for (int i = 0; i < N; i++)
        y[i] = x[i] * w[i];
}

static void run_baseline(void **params)
{
    multiply(PTR(2), PTR(0), PTR(1));
}

/* What the candidate does beside or instead of the right thing. */
static enum {
    RIGHT,
    WRONG_AT_CALL,
    PART,
    NOTHING,
    WRITES_INPUT,
    WRITES_WEIGHT,
    FAULT,
    HANG,
    OFF_WHEN_CALLED_AGAIN,
    WRONG_WHEN_CALLED_AGAIN
} behaviour;
static int at_call, calls;
static int64_t hang_ns;
/* Under CUPTI. */
static int recorded;                /* calls */
static uint64_t recorded_ns = 6000; /* how long a call's kernel takes; 0: it has no record */
static int others_at;               /* the recorded call that somebody else's kernel is beside; negative: all */
static size_t dropped;
static float seen[4096]; /* the first input of each call */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run_candidate(void **params)
{
    float *x = PTR(0), *w = PTR(1), *y = PTR(2);
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
    if (call < (int)(sizeof(seen) / sizeof(seen[0])))
        seen[call] = x[0];
    if (behaviour == NOTHING)
        return;
    for (int i = 0; i < N; i++)
        if (behaviour != PART || i < N - 5)
            y[i] = x[i] * w[i];
    if (behaviour == WRONG_AT_CALL && call == at_call)
        y[7] += 1;
    if (behaviour == OFF_WHEN_CALLED_AGAIN && call % 2)
        y[7] += 1e-6f;
    if (behaviour == WRONG_WHEN_CALLED_AGAIN && call % 2)
        y[call] += 1;
    if (behaviour == WRITES_INPUT)
        x[3] += 1;
    if (behaviour == WRITES_WEIGHT && call == at_call)
        w[3] += 1;
    if (behaviour == FAULT && call == at_call)
        fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    if (behaviour == HANG)
        fake.busy_until_ns = now_ns() + hang_ns;
}

static fake_kernel kernels[] = {
    VERIFY_KERNELS,
    {"oracle", 4, NULL, run_oracle, 100, 0},
    {"baseline", 4, NULL, run_baseline, 40, 0},
    {"candidate", 4, NULL, run_candidate, 10, 0},
};

/* ---- fixture ----------------------------------------------------------------------------------------------------- */

#define KERNEL(name, out)                                                                                              \
    "extern \"C\" __global__ void " name "(const float *x, const float *w, " out " *y, int n) "                        \
    "{ int i = threadIdx.x; if (i < n) y[i] = x[i] * w[i]; }"
#define PLAN(name)                                                                                                     \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"" name                                                                       \
    "\",\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"}]}]}"
static const char head[] = "{\"stitch_task\":1,\"name\":\"product\",\"dims\":{\"N\":64},\"inputs\":[{\"name\":\"x\","
                           "\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
                           "\"weights\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"outputs\":[{\"name\":"
                           "\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]}";

static stitch_program *program(stitch_context *c, const char *source, const char *plan)
{
    stitch_program *p = NULL;
    CHECK_OK(stitch_program_parse(c, source, plan, NULL, &p, &err));
    return p;
}

static stitch_task *task(stitch_context *c)
{
    stitch_task *t = NULL;
    CHECK_OK(stitch_task_parse(c, head, NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_program(t, program(c, KERNEL("oracle", "double"), PLAN("oracle")),
                                               STITCH_DTYPE_F64, &err));
    CHECK_OK(stitch_task_add_baseline_program(t, "eager", STITCH_PRECISION_F32,
                                              program(c, KERNEL("baseline", "float"), PLAN("baseline")), &err));
    return t;
}

static char cache[] = "/tmp/stitch-verify-test-XXXXXX";

static stitch_context *new_context(const stitch_allocator *allocator)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *c = NULL;
    if (strstr(cache, "XXXXXX") && !mkdtemp(cache)) /* the made name may hold an X, hardly six */
        FAIL("no temporary folder");
    options.device = "cuda:0";
    options.get_proc = fake_get_proc;
    options.cache_dir = cache;
    options.allocator = allocator;
    CHECK_OK(stitch_context_new(&c, &options, &err));
    stitch__cuda *cuda;
    CHECK_OK(stitch__cuda_state(c, &cuda, &err));
    CHECK_OK(stitch__cupti_bind(c, fake_cupti_get_proc, NULL, "the fake", &cuda->cupti, &err));
    cuda->cupti_ready = true;
    return c;
}

static void reset(void)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}, {8, 8, 8, 4}};
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        kernels[i].sizes = sizes[i];
        kernels[i].launches = 0;
    }
    fake.kernels = kernels;
    fake.kernel_count = sizeof(kernels) / sizeof(kernels[0]);
    fake.fault = CUDA_SUCCESS;
    fake.busy_until_ns = 0;
    fake.blocked_calls = 0;
    fake.allocations_left = -1;
    fake.log_flushes = false;
    fake.flush_bytes = 1 << 20;
    memset(fake.log, 0, sizeof(fake.log));
    behaviour = RIGHT;
    calls = at_call = recorded = 0;
    recorded_ns = 6000;
    others_at = 0;
    dropped = 0;
    fake_cupti_reset();
    fake_cupti_state.fail[FAKE_ActivityEnable] = STITCH__CUPTI_INSUFFICIENT_PRIVILEGES;
}

static stitch_verify_options few(void)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.trials = 3;
    o.warmup = 1;
    o.iterations = 12;
    o.seed = 7;
    o.flush_bytes = 1 << 20;
    o.profile = STITCH_PROFILE_NEVER;
    return o;
}

/* With stage profile, as far as a fake CUPTI goes. */
static stitch_verify_options profiled(void)
{
    stitch_verify_options o = few();
    o.profile = STITCH_PROFILE_TIMELINE;
    return o;
}

static void need_context(void)
{
    stitch_image *image = NULL;
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    int rc;

    reset();
    if (!ctx)
        ctx = new_context(NULL);
    options.arch = "sm_90";
    rc = stitch_compile(ctx, "__global__ void k() {}", &options, &image, &err);
    stitch_image_free(image);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
}

/* Verifies the candidate; the report's summary and its failed stage's message. */
static char message[2000];
static char text[8000];
static char busy_note[2000]; /* "": there is none */
static double idle_share;    /* negative: null */

static const char *json_string_or(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static stitch_report_summary verify(stitch_verify_options o)
{
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_task *t = task(ctx);
    stitch_program *p = program(ctx, KERNEL("candidate", "float"), PLAN("candidate"));
    stitch_report *r = NULL;
    const char *why = "";
    int before = fake.live; /* the library's kernels may come on top, once */

    CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err));
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        CHECK_INT(stitch_report_stage(r, s.failed_stage, NULL, NULL, &why), 0);
    snprintf(message, sizeof(message), "%s", why);
    snprintf(text, sizeof(text), "%s", stitch_report_text(r));
    json_t *root = json_loads(stitch_report_json(r), 0, NULL);
    CHECK(root != NULL);
    const json_t *side = json_object_get(json_object_get(root, "time"), "candidate");
    snprintf(busy_note, sizeof(busy_note), "%s", side ? json_string_or(side, "busy_note") : "");
    idle_share = json_is_number(json_object_get(side, "idle_share"))
                     ? json_number_value(json_object_get(side, "idle_share"))
                     : -1;
    CHECK(json_is_null(json_object_get(side, "busy_us")) == (side && s.busy_us == 0));
    json_decref(root);
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(t);
    if (fake.live > before + 3)
        FAIL("%d device objects are left behind", fake.live - before);
    return s;
}

/* Runs of the candidate before timing: 6 in trials, 12 in robust ones, and what stage exploit makes. */
static int calls_before_timing(void)
{
    reset();
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_NONE);
    int before = calls - timing_calls;
    reset();
    return before;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

TEST(a_right_candidate)
{
    need_context();
    stitch_report_summary s = verify(few());
    if (s.failed_stage)
        FAIL("%s", text);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 1);
    CHECK_INT(s.launches, 1);
    CHECK_INT(s.elements, 3 * N);
    CHECK_NEAR(s.median_us, 10, 1e-3);
    CHECK_NEAR(s.baseline_us, 40, 1e-3);
    CHECK_NEAR(s.speedup, 4, 1e-3);
}

TEST(order_of_timed_runs)
{
    stitch_verify_options o = few();
    char *at;
    int candidates = 0, baselines = 0;

    need_context();
    fake.log_flushes = true;
    o.warmup = 0; /* the default of 10 */
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE);
    at = strchr(fake.log, 'F');
    CHECK(at != NULL);
    /* For each timed run: generate, flush, run; candidate and baseline in turn one before the other. */
    for (int run = 0; (at = strchr(at, 'F')); at++, run++) {
        CHECK(at[-1] == 'g');
        CHECK(at[1] == (run % 4 == 0 || run % 4 == 3 ? 'c' : 'b')); /* compare is behind the run, never in front */
        candidates += at[1] == 'c';
        baselines += at[1] == 'b';
    }
    CHECK_INT(candidates, 12);
    CHECK_INT(baselines, 12);
    /* New contents for every trial and every timed run: no input comes twice but for the pairs of a trial and warm-up.
     */
    int different = 0;
    for (int i = 0; i < calls; i++) {
        bool first = true;
        for (int j = 0; j < i; j++)
            first = first && seen[i] != seen[j];
        different += first;
    }
    /* Trials, robust trials (two of which may begin with the same value), others in stage exploit, timed runs, three
     * after that. */
    CHECK(different >= 3 + 5 + 1 + 12 + 3 && different <= 3 + 6 + 1 + 12 + 3);
}

TEST(wrong_in_one_trial)
{
    need_context();
    behaviour = WRONG_AT_CALL;
    at_call = 4; /* third trial, first run */
    stitch_report_summary s = verify(few());
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    CHECK_INT(s.status, STITCH_E_VALIDATE);
    CHECK_INT(s.correct, 0);
    CHECK_INT(s.mismatches, 1);
    CHECK_HAS(message, "output y: 1 of 64 elements are wrong");
    CHECK_HAS(message, "first wrong y[7]");
    CHECK_INT(calls, 6); /* no more than the trials */
}

TEST(parts_not_written)
{
    need_context();
    behaviour = PART;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(message, "5 were never written, the first is y[59]");
    reset();
    behaviour = NOTHING;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(message, "none of its 64 elements was written");
}

TEST(changes_what_it_may_only_read)
{
    need_context();
    behaviour = WRITES_INPUT;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(message, "the program changed its input x");
    reset();
    behaviour = WRITES_WEIGHT;
    at_call = 1;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(message, "the program changed its weight w");
    int timing = calls_before_timing();
    behaviour = WRITES_WEIGHT;
    at_call = timing + 3;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_TIME);
}

TEST(wrong_when_timed)
{
    need_context();
    int timing = calls_before_timing();
    behaviour = WRONG_AT_CALL;
    at_call = timing + 1 + 11; /* warm-up, the last timed run */
    stitch_report_summary s = verify(few());
    CHECK_INT(s.failed_stage, STITCH_STAGE_TIME);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 0);
    CHECK_NEAR(s.speedup, 0, 0);
    CHECK_HAS(message, "right in the trials, but wrong in timed run 12");
    reset();
    behaviour = WRONG_AT_CALL;
    at_call = timing + 1; /* the first one */
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(message, "timed run 1:");
}

TEST(not_the_same_bits)
{
    need_context();
    behaviour = OFF_WHEN_CALLED_AGAIN;
    stitch_report_summary s = verify(few());
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE); /* reported only */
}

/* Right in the first run on its inputs, wrong in the second one. */
TEST(wrong_in_every_other_run)
{
    stitch_verify_options o = few();
    need_context();
    o.last_stage = STITCH_STAGE_CORRECT; /* by that stage alone */
    behaviour = WRONG_WHEN_CALLED_AGAIN;
    stitch_report_summary s = verify(o);
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    CHECK_INT(s.correct, 0);
    CHECK_HAS(message, "in a second run on the same inputs, output y: 1 of 64 elements are wrong");
    CHECK_HAS(message, "first wrong y[1]");
    CHECK_INT(s.mismatches, 3); /* one in each trial */
}

TEST(a_fault_is_the_candidates)
{
    need_context();
    int timing = calls_before_timing();
    const int at[] = {0, 6, 6 + 11, timing, timing + 5};
    for (size_t i = 0; i < STITCH__COUNT(at); i++) {
        int call = at[i];
        need_context();
        stitch_context *own = new_context(NULL), *shared = ctx; /* a context that may be lost */
        ctx = own;
        behaviour = FAULT;
        at_call = call;
        stitch_report_summary s = verify(few());
        CHECK_INT(s.failed_stage, call < 18 ? STITCH_STAGE_CORRECT : STITCH_STAGE_TIME);
        CHECK_INT(s.status, STITCH_E_FAULT);
        CHECK_INT(s.timed, 0);
        CHECK_HAS(text, "FAILED");
        ctx = shared;
        stitch_context_free(own);
        fake.fault = CUDA_SUCCESS;
    }
}

TEST(outlives_the_deadline_a_little)
{
    stitch_verify_options o = few();
    need_context();
    behaviour = HANG;
    hang_ns = 900000000;
    o.timeout_ms = 500;
    stitch_report_summary s = verify(o);
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    CHECK_INT(s.status, STITCH_E_TIMEOUT);
    CHECK_HAS(message, "the program did not end in time");
    CHECK_INT(fake.blocked_calls, 0);
}

TEST(hangs_for_good)
{
    stitch_verify_options o = few();
    stitch_report *r = NULL;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    int64_t start;

    need_context();
    stitch_task *t = task(ctx);
    stitch_program *p = program(ctx, KERNEL("candidate", "float"), PLAN("candidate"));
    behaviour = HANG;
    hang_ns = INT64_C(3600000000000);
    o.timeout_ms = 300;
    start = now_ns();
    LEAKS_ON_PURPOSE(true); /* what the device may still use is given up */
    int rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
    LEAKS_ON_PURPOSE(false);
    CHECK_OK(rc);
    CHECK((now_ns() - start) / 1000000 < 10000);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.status, STITCH_E_TIMEOUT);
    CHECK_INT(fake.blocked_calls, 0); /* nothing waits for a device that never answers */
    stitch_report_free(r);
    fake.busy_until_ns = 0;
    stitch_program_free(p);
    stitch_task_free(t);
}

static int stop_stage;

static void stop(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    if (stage == stop_stage)
        stitch_cancel_trigger(userdata);
}

TEST(cancelled_anywhere)
{
    stitch_cancel *cancel = NULL;
    CHECK_INT(stitch_cancel_new(&cancel), 0);
    need_context();
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_NONE); /* the library's kernels are loaded from here on */
    for (stop_stage = STITCH_STAGE_FORMAT; stop_stage < STITCH_STAGE_PROFILE; stop_stage++) {
        stitch_verify_options o = few();
        stitch_task *t = task(ctx);
        stitch_program *p = program(ctx, KERNEL("candidate", "float"), PLAN("candidate"));
        stitch_report *r = NULL;
        int before = fake.live;
        o.on_stage = stop;
        o.userdata = cancel;
        o.cancel = cancel;
        CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), STITCH_E_CANCELLED, "");
        CHECK(r == NULL);
        CHECK_INT(fake.live, before);
        stitch_cancel_reset(cancel);
        stitch_program_free(p);
        stitch_task_free(t);
    }
    stitch_cancel_free(cancel);
}

static int reference_status;

static int failing(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    return reference_status;
}

TEST(failures_that_are_not_the_candidates)
{
    stitch_verify_options o = few();
    stitch_report *r = NULL;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_task *t = NULL;

    need_context();
    stitch_program *p = program(ctx, KERNEL("candidate", "float"), PLAN("candidate"));
    /* A reference that fails: no verdict. */
    CHECK_OK(stitch_task_parse(ctx, head, NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_fn(t, failing, NULL, 0, &err));
    reference_status = STITCH_E_IO;
    CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), STITCH_E_IO, "callback of the reference failed");
    CHECK(r == NULL);
    stitch_task_free(t);
    /* A baseline that fails: a verdict without its figure. */
    CHECK_OK(stitch_task_parse(ctx, head, NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_program(t, program(ctx, KERNEL("oracle", "double"), PLAN("oracle")),
                                               STITCH_DTYPE_F64, &err));
    CHECK_OK(stitch_task_add_baseline_fn(t, "broken", STITCH_PRECISION_F32, failing, NULL, &err));
    CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err));
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 1);
    CHECK_NEAR(s.median_us, 10, 1e-3);
    CHECK_NEAR(s.speedup, 0, 0);
    CHECK_HAS(stitch_report_text(r), "baseline broken could not be measured");
    stitch_report_free(r);
    stitch_task_free(t);
    stitch_program_free(p);
}

static struct {
    int calls, computed;
} parts;

static int in_parts(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    int part = parts.calls++ % 3;
    parts.computed += part == 1;
    return part == 0 ? STITCH_READY : part == 1 ? STITCH_AGAIN : 0;
}

TEST(a_baseline_in_parts)
{
    stitch_verify_options o = few();
    stitch_report *r = NULL;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_task *t = NULL;

    need_context();
    stitch_program *p = program(ctx, KERNEL("candidate", "float"), PLAN("candidate"));
    CHECK_OK(stitch_task_parse(ctx, head, NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_program(t, program(ctx, KERNEL("oracle", "double"), PLAN("oracle")),
                                               STITCH_DTYPE_F64, &err));
    CHECK_OK(stitch_task_add_baseline_fn(t, "parts", STITCH_PRECISION_F32, in_parts, NULL, &err));
    memset(&parts, 0, sizeof(parts));
    CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err));
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.timed, 1);
    CHECK(strstr(stitch_report_text(r), "could not be measured") == NULL);
    CHECK(parts.computed >= o.iterations);
    CHECK_INT(parts.calls, 3 * parts.computed); /* every computation had all its parts */
    stitch_report_free(r);
    stitch_task_free(t);
    stitch_program_free(p);
}

TEST(stops_where_asked)
{
    stitch_verify_options o = few();
    need_context();
    o.last_stage = STITCH_STAGE_COMPILE;
    stitch_report_summary s = verify(o);
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(s.correct, 0);
    CHECK_INT(calls, 0);
    o.last_stage = STITCH_STAGE_CORRECT;
    s = verify(o);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 0);
}

TEST(time_budget)
{
    stitch_verify_options o = few();
    need_context();
    o.iterations = 1000000;
    o.time_budget_ms = 50;
    stitch_report_summary s = verify(o);
    CHECK_INT(s.timed, 1);
    CHECK_HAS(text, "its time budget of 50 ms was spent");
}

/* Device memory runs out at every place in turn. */
TEST(device_memory_runs_out)
{
    int n;
    need_context();
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_NONE);
    for (n = 0; n < 100; n++) {
        stitch_verify_options o = few();
        stitch_task *t = task(ctx);
        stitch_program *p = program(ctx, KERNEL("candidate", "float"), PLAN("candidate"));
        stitch_report *r = NULL;
        int before = fake.live, rc;
        fake.allocations_left = n;
        rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
        bool ran_out = fake.allocations_left == 0;
        fake.allocations_left = -1;
        if (rc != STITCH_OK && rc != STITCH_E_NOMEM)
            FAIL("allocation %d: %s: %s", n, stitch_status_name(rc), stitch_error_message(err));
        CHECK((rc == STITCH_OK) == (r != NULL));
        CHECK_INT(fake.live, before);
        stitch_report_free(r);
        stitch_program_free(p);
        stitch_task_free(t);
        stitch_error_free(err);
        err = NULL;
        if (!ran_out)
            break;
    }
    CHECK(n > 5 && n < 100);
}

/* ---- busy time --------------------------------------------------------------------------------------------------- */

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
    int before = calls_before_timing() + timing_calls;
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
    fake.log_flushes = true;
    stitch_report_summary s = verify(profiled());
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    CHECK_NEAR(s.median_us, 10, 1e-3);
    CHECK_NEAR(s.busy_us, 6, 1e-9);
    CHECK_NEAR(idle_share, 0.4, 1e-6);
    CHECK_STR(busy_note, "");
    CHECK_HAS(text, "busy 6.00 us of 10.00 us: the device idles for 40 % of it");
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
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
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
        fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
        fake_cupti_state.fail[rows[i].function] = rows[i].result;
        stitch_report_summary s = verify(profiled());
        CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
        CHECK_INT(s.timed, 1);
        CHECK_NEAR(s.speedup, 4, 1e-3);
        CHECK_NEAR(s.busy_us, 0, 0);
        CHECK_NEAR(idle_share, -1, 0);
        CHECK_HAS(busy_note, rows[i].note);
        CHECK_HAS(text, "the device's busy time was not measured: ");
        CHECK_HAS(text, rows[i].note);
        CHECK(recorded <= 1);
    }
}

TEST(records_that_cannot_be_right)
{
    need_context();
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
    recorded_ns = 0;
    CHECK_NEAR(verify(profiled()).busy_us, 0, 0);
    CHECK_HAS(busy_note, "nothing ran on the device");
    CHECK_INT(recorded, 4);
    need_context();
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
    dropped = 3;
    CHECK_NEAR(verify(profiled()).busy_us, 0, 0);
    CHECK_HAS(busy_note, "more records than a trace holds");
    need_context();
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
    others_at = 2; /* of three: the median is of one without */
    CHECK_NEAR(verify(profiled()).busy_us, 6, 1e-9);
    CHECK_INT(recorded, 4);
    need_context();
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
    others_at = -1;
    CHECK_NEAR(verify(profiled()).busy_us, 0, 0);
    CHECK_HAS(busy_note, "other work of this process may be among them");
    cupti_is_off();
}

/* In this process: what is lost with a fault is its own context, so the report has to say that. */
TEST(a_fault_under_cupti)
{
    need_context();
    int first = calls_before_timing() + timing_calls;
    for (int i = 0; i < 4; i += 3) {
        need_context();
        stitch_context *own = new_context(NULL), *shared = ctx;
        ctx = own;
        fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
        behaviour = FAULT;
        at_call = first + i;
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
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
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

/* ---- host memory ------------------------------------------------------------------------------------------------- */

static atomic_long countdown = -1, live;

static bool refuse(void)
{
    long left = atomic_load(&countdown);
    while (left > 0 && !atomic_compare_exchange_weak(&countdown, &left, left - 1))
        ;
    return left == 0;
}

static void *count_alloc(size_t size, void *userdata)
{
    void *p = refuse() ? NULL : malloc(size);
    if (p)
        atomic_fetch_add(&live, 1);
    return p;
}

static void *count_realloc(void *p, size_t size, void *userdata)
{
    return refuse() ? NULL : realloc(p, size);
}

static void count_free(void *p, void *userdata)
{
    atomic_fetch_sub(&live, 1);
    free(p);
}

TEST(host_memory_runs_out)
{
    stitch_allocator allocator = {sizeof(allocator), count_alloc, count_realloc, count_free, NULL};
    long n, step = 1;
    bool done = false;

    need_context();
    fake_cupti_state.fail[FAKE_ActivityEnable] = 0;
    stitch_context *own = new_context(&allocator);
    stitch_task *t = task(own);
    for (n = 0; !done && n < 1000000; n += step) {
        stitch_verify_options o = profiled();
        stitch_program *p = program(own, KERNEL("candidate", "float"), PLAN("candidate"));
        stitch_report *r = NULL;
        int before = fake.live, rc;
        o.trials = 1;
        o.iterations = 10;
        atomic_store(&countdown, n);
        rc = stitch_verify_program(own, t, p, &o, &r, &err);
        done = atomic_exchange(&countdown, -1) > 0;
        if (done && rc)
            FAIL("memory was left, but: %s: %s", stitch_status_name(rc), stitch_error_message(err));
        CHECK((rc == STITCH_OK) == (r != NULL));
        if (fake.live > before + 3) /* the library's kernels, kept with the context */
            FAIL("allocation %ld: %d device objects are left behind", n, fake.live - before);
        stitch_report_free(r);
        stitch_program_free(p);
        stitch_error_free(err);
        err = NULL;
        step = 1 + n / 12; /* all of the first, then samples */
    }
    CHECK(done);
    CHECK(recorded > 4);
    cupti_is_off();
    stitch_task_free(t);
    stitch_context_free(own);
    CHECK_INT(atomic_load(&live), 0);
}

TEST(nothing_is_left)
{
    if (!ctx)
        SKIP("no context");
    stitch_context_free(ctx);
    ctx = NULL;
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", cache);
    if (!strstr(cache, "XXXXXX"))
        CHECK_INT(system(command), 0);
}

TEST_MAIN(RUN(a_right_candidate), RUN(order_of_timed_runs), RUN(wrong_in_one_trial), RUN(parts_not_written),
          RUN(changes_what_it_may_only_read), RUN(wrong_when_timed), RUN(not_the_same_bits),
          RUN(wrong_in_every_other_run), RUN(a_fault_is_the_candidates), RUN(outlives_the_deadline_a_little),
          RUN(hangs_for_good), RUN(cancelled_anywhere), RUN(failures_that_are_not_the_candidates),
          RUN(a_baseline_in_parts), RUN(stops_where_asked), RUN(time_budget), RUN(busy_beside_wall_time),
          RUN(no_busy_time), RUN(records_that_cannot_be_right), RUN(a_fault_under_cupti),
          RUN(a_region_while_somebody_times), RUN(device_memory_runs_out), RUN(host_memory_runs_out),
          RUN(nothing_is_left))
