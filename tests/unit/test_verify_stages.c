/* SPDX-License-Identifier: MIT
 *
 * The stages of a verification on a driver without a GPU: what is run in which order, who is blamed for what, and that
 * nothing is left behind. Kernels are C functions here; the sources are only compiled. Needs NVRTC.
 */
#include "verify_fixture.h"

enum { timing_calls = 1 + 12 + 3 /* warm-up, timed runs, after timing */ };

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* What the candidate does beside or instead of the right thing. */
static enum {
    RIGHT,
    WRONG_AT_CALL,
    PART,
    NOTHING,
    WRITES_INPUT,
    WRITES_WEIGHT,
    PREPARE_WRITES_WEIGHT,
    COUNTS_WHERE_PREPARED,
    FAULT,
    HANG,
    SLOW_AT_CALL,
    CANCELLED_AT_CALL,
    OFF_WHEN_CALLED_AGAIN,
    WRONG_WHEN_CALLED_AGAIN,
    WRONG_ONCE_ROUGH_ONCE
} behaviour;
static int at_call;
static float baseline_off; /* each element of the baseline's */
static stitch_cancel *cancel_it;
static int64_t hang_ns;
static float seen[4096];     /* the first input of each call */
static const float *last_x;  /* where the last call had it */
static int prepared, peeked; /* prepare ran after that, and found data there */
static float *prepared_at;   /* what it wrote */

static void run_candidate(void **params)
{
    float *x = PTR(0), *w = PTR(1), *y = PTR(2);
    int call = calls++;

    last_x = x;
    if (call < (int)STITCH__COUNT(seen))
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
    if (behaviour == COUNTS_WHERE_PREPARED)
        prepared_at[5] += 1;
    if (behaviour == WRONG_ONCE_ROUGH_ONCE && call % 2 == at_call)
        y[7] += 1;
    for (int i = 0; i < N && behaviour == WRONG_ONCE_ROUGH_ONCE && call % 2 != at_call; i++)
        y[i] += baseline_off;
    if (behaviour == WRITES_INPUT)
        x[3] += 1;
    if (behaviour == WRITES_WEIGHT && call == at_call)
        w[3] = nextafterf(w[3], INFINITY); /* no output shows it */
    if (behaviour == FAULT && call == at_call)
        fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    if (behaviour == CANCELLED_AT_CALL && call == at_call)
        stitch_cancel_trigger(cancel_it);
    if (behaviour == HANG || ((behaviour == SLOW_AT_CALL || behaviour == CANCELLED_AT_CALL) && call == at_call))
        fake.busy_until_ns = stitch__now_ns() + hang_ns;
}

static void run_setup(void **params)
{
    static const unsigned char nothing[] = {0xff, 0xff, 0xff, 0xff};
    prepared += last_x != NULL;
    peeked += last_x && memcmp(last_x, nothing, sizeof(nothing)) != 0;
    prepared_at = PTR(1);
    memcpy(PTR(1), PTR(0), N * sizeof(float));
    if (behaviour == PREPARE_WRITES_WEIGHT)
        ((float *)PTR(0))[3] += 1;
}

static int found_own; /* runs that found in their workspace what an earlier one had left there */

static void run_keeper(void **params)
{
    float *x = PTR(0), *w = PTR(1), *y = PTR(2), *h = PTR(3);

    calls++;
    found_own += h[N - 1] == 12345;
    for (int i = 0; i < N; i++) {
        y[i] = x[i] * w[i];
        h[i] = 12345;
    }
}

static int baseline_calls, baseline_fault_at; /* 0: never */

static void run_faulting_baseline(void **params)
{
    run_baseline(params);
    for (int i = 0; i < N; i++)
        ((float *)PTR(2))[i] += baseline_off;
    if (++baseline_calls == baseline_fault_at)
        fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static fake_kernel kernels[] = {
    VERIFY_KERNELS,
    {"oracle", 4, NULL, run_oracle, 100, 0},
    {"baseline", 4, NULL, run_faulting_baseline, 40, 0},
    {"candidate", 4, NULL, run_candidate, 10, 0},
    {"setup", 2, NULL, run_setup, 10, 0},
    {"keeper", 5, NULL, run_keeper, 10, 0},
};

/* ---- fixture ----------------------------------------------------------------------------------------------------- */

static void reset(void)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4},
                                       {8, 8, 8, 4},        {8, 8},       {8, 8, 8, 8, 4}};
    reset_driver(kernels, sizes, STITCH__COUNT(kernels));
    behaviour = RIGHT;
    at_call = 0;
}

static stitch_verify_options few(void)
{
    stitch_verify_options o = quick(3, 12);
    o.profile = STITCH_PROFILE_NEVER;
    return o;
}

static void need_context(void)
{
    reset();
    need_compiler();
}

static stitch_report_summary verify(stitch_verify_options o)
{
    get_verdict(&o, task_with_baseline(ctx), candidate(ctx));
    return got.s;
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
        FAIL("%s", got.text);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 1);
    CHECK_INT(s.launches, 1);
    CHECK_INT(s.elements, 3 * N);
    CHECK_NEAR(s.median_us, 10, 1e-3);
    CHECK_NEAR(s.baseline_us, 40, 1e-3);
    CHECK_NEAR(s.speedup, 4, 1e-3);
}

/* The report says whether the program could have addressed the process's own memory. */
TEST(host_memory_within_reach)
{
    stitch_verify_options o = few();
    need_context();
    o.last_stage = STITCH_STAGE_COMPILE;
    for (int reaches = 0; reaches < 2; reaches++) {
        fake.reaches_host = reaches;
        verify(o);
        const json_t *value = json_object_get(json_object_get(got.json, "environment"), "reaches_host_memory");
        CHECK(reaches ? json_is_true(value) : json_is_false(value));
    }
    fake.reaches_host = false;
}

static const char *said(const char *object, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(got.json, object), key));
    return text ? text : "";
}

/* What was asked for, defaults among it, and with what: to do the same again. */
TEST(says_how_to_repeat_it)
{
    static const char *const metrics[] = {"lts__t_sectors.sum", "sm__cycles_elapsed.max"};
    stitch_verify_options o = few();
    const json_t *asked, *baseline;

    need_context();
    o.iterations = 20;
    o.timeout_ms = 50000;
    o.metrics = metrics;
    o.metric_count = 2;
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE);
    asked = json_object_get(got.json, "options");
    CHECK_INT(json_integer_value(json_object_get(asked, "trials")), 3);
    CHECK_INT(json_integer_value(json_object_get(asked, "warmup")), o.warmup ? o.warmup : 10);
    CHECK_INT(json_integer_value(json_object_get(asked, "iterations")), 20);
    CHECK_INT(json_integer_value(json_object_get(asked, "time_budget_ms")), 60000);
    CHECK_INT(json_integer_value(json_object_get(asked, "timeout_ms")), 50000);
    CHECK(json_is_null(json_object_get(asked, "last_stage")));
    CHECK_STR(said("options", "where"), o.where == STITCH_VERIFY_HERE ? "here" : "auto");
    CHECK_STR(said("options", "simulate"), o.simulate == STITCH_SIMULATE_NEVER ? "never" : "auto");
    CHECK_STR(said("options", "profile"), "never");
    CHECK_STR(json_string_value(json_array_get(json_object_get(asked, "metrics"), 1)), metrics[1]);
    CHECK_INT(json_array_size(json_object_get(asked, "metrics")), 2);
    baseline = json_array_get(json_object_get(json_object_get(got.json, "time"), "baselines"), 0);
    CHECK_INT(strlen(json_string_value(json_object_get(baseline, "sha256"))), 64);
    CHECK_STR(said("environment", "cublaslt"), ""); /* nobody multiplies matrices */
    o.last_stage = STITCH_STAGE_CORRECT;
    verify(o);
    CHECK_STR(said("options", "last_stage"), "correct");
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
    CHECK_HAS(got.message, "output y: 1 of 64 elements are wrong");
    CHECK_HAS(got.message, "first wrong y[7]");
    CHECK_INT(calls, 6); /* no more than the trials */
}

TEST(parts_not_written)
{
    need_context();
    behaviour = PART;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(got.message, "5 were never written, the first is y[59]");
    reset();
    behaviour = NOTHING;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(got.message, "none of its 64 elements was written");
}

TEST(changes_what_it_may_only_read)
{
    need_context();
    behaviour = WRITES_INPUT;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(got.message, "the program changed its input x");
    reset();
    behaviour = WRITES_WEIGHT;
    at_call = 1;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(got.message, "the program changed its weight w");
    int timing = calls_before_timing();
    behaviour = WRITES_WEIGHT;
    at_call = timing + 3;
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(got.message, "changed its weight w while it was timed");
}

/* In prepare, too. */
static const char setup_source[] = KERNEL("candidate", "float") "\nextern \"C\" __global__ void setup(const float *w, "
                                                                "float *h) { h[threadIdx.x] = w[threadIdx.x]; }";
static const char setup_plan[] =
    "{\"stitch\":1,\"buffers\":{\"h\":{\"dtype\":\"f32\",\"shape\":[\"N\"]}},\"prepare\":[{\"kernel\":\"setup\","
    "\"grid\":[1],\"block\":[64],\"args\":[\"w\",\"h\"]}],\"run\":[{\"kernel\":\"candidate\",\"grid\":[1],"
    "\"block\":[64],\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"}]}]}";

/* Inputs that never change hold nothing while it prepares: an answer that it makes of them would be right each time. */
TEST(prepare_finds_no_inputs)
{
    float data[N];
    stitch_verify_options o = few();

    need_context();
    for (int i = 0; i < N; i++)
        data[i] = 1 + (float)i / N;
    for (int fixed = 0; fixed < 2; fixed++) {
        stitch_task *t = task_with_baseline(ctx);
        if (fixed)
            CHECK_OK(stitch_task_set_data(t, "x", data, sizeof(data), &err));
        reset();
        last_x = NULL;
        prepared = peeked = 0;
        get_verdict(&o, t, program(ctx, setup_source, setup_plan));
        if (got.s.failed_stage)
            FAIL("%s", got.text);
        CHECK(prepared >= 2); /* for a fresh start, and to be timed */
        CHECK_INT(peeked, fixed ? 0 : prepared);
    }
}

TEST(prepare_changes_a_weight)
{
    stitch_verify_options o = few();

    need_context();
    get_verdict(&o, task_with_baseline(ctx), program(ctx, setup_source, setup_plan));
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_NONE);
    reset();
    behaviour = PREPARE_WRITES_WEIGHT;
    get_verdict(&o, task_with_baseline(ctx), program(ctx, setup_source, setup_plan));
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_PREPARE);
    CHECK_HAS(got.message, "prepare changed weight w, which it may only read");
    CHECK_INT(calls, 0);
}

/* An answer that is kept in workspace is gone when the next run begins: in trials, checks, and while it is timed. */
TEST(nothing_is_kept_in_workspace)
{
    static const char source[] =
        "extern \"C\" __global__ void keeper(const float *x, const float *w, float *y, float *h, int n) "
        "{ int i = threadIdx.x; if (i < n) { y[i] = x[i] * w[i]; h[i] = 1; } }";
    static const char plan[] =
        "{\"stitch\":1,\"buffers\":{\"h\":{\"dtype\":\"f32\",\"shape\":[\"N\"]}},\"run\":[{\"kernel\":\"keeper\","
        "\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"w\",\"y\",\"h\",{\"i32\":\"N\"}]}]}";
    stitch_verify_options o = few();

    need_context();
    found_own = 0;
    o.warmup = 1;
    get_verdict(&o, task_with_baseline(ctx), program(ctx, source, plan));
    if (got.s.failed_stage)
        FAIL("%s", got.text);
    CHECK(got.s.timed && calls > 6 + 12);
    CHECK_INT(found_own, 0);
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
    CHECK_HAS(got.message, "right in the trials, but wrong in timed run 12");
    reset();
    behaviour = WRONG_AT_CALL;
    at_call = timing + 1; /* the first one */
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(got.message, "timed run 1:");
}

/* What prepare wrote is no place to count runs in: a program could be wrong after more of them than anybody makes. */
TEST(counts_where_it_may_only_read)
{
    stitch_verify_options o = few();

    need_context();
    behaviour = COUNTS_WHERE_PREPARED;
    get_verdict(&o, task_with_baseline(ctx), program(ctx, setup_source, setup_plan));
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_TIME);
    CHECK_HAS(got.message, "run changes buffer h, which prepare wrote and run may only read");
    o.last_stage = STITCH_STAGE_EXPLOIT; /* nothing is timed */
    get_verdict(&o, task_with_baseline(ctx), program(ctx, setup_source, setup_plan));
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_NONE);
    static const float x[N] = {1}; /* with inputs that never change it could be their answer, at any time */
    stitch_task *t = task_with_baseline(ctx);
    CHECK_OK(stitch_task_set_data(t, "x", x, sizeof(x), &err));
    get_verdict(&o, t, program(ctx, setup_source, setup_plan));
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_CORRECT);
    CHECK_HAS(got.message, "run changes buffer h, which prepare wrote and run may only read");
}

TEST(not_the_same_bits)
{
    stitch_verify_options o = few();

    need_context();
    behaviour = OFF_WHEN_CALLED_AGAIN;
    for (o.last_stage = STITCH_STAGE_CORRECT; o.last_stage <= STITCH_STAGE_TIME; o.last_stage++) {
        CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE); /* reported only */
        CHECK(json_is_false(json_object_get(json_object_get(got.json, "correct"), "bitwise_repeatable")));
    }
    behaviour = RIGHT;
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE);
    CHECK(json_is_true(json_object_get(json_object_get(got.json, "correct"), "bitwise_repeatable")));
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
    CHECK_HAS(got.message, "in a second run on the same inputs, output y: 1 of 64 elements are wrong");
    CHECK_HAS(got.message, "first wrong y[1]");
    CHECK_INT(s.mismatches, 3); /* one in each trial */
}

/* A run that is as rough as the task's own precision, and right by that, does not make up for one that is wrong. */
TEST(wrong_beside_one_within_the_budget)
{
    need_context();
    for (int wrong = 0; wrong < 3; wrong++) { /* the first run, the second, or neither */
        stitch_verify_options o = few();
        stitch_task *t = task_with_baseline(ctx);

        reset();
        CHECK_OK(stitch_task_set_precision(t, STITCH_PRECISION_F32, &err));
        CHECK_OK(stitch_task_set_tolerance(t, 1e-4, 0, &err));
        o.last_stage = STITCH_STAGE_CORRECT;
        baseline_off = 0.01f;
        behaviour = WRONG_ONCE_ROUGH_ONCE;
        at_call = wrong;
        get_verdict(&o, t, candidate(ctx));
        CHECK_INT(got.s.failed_stage, wrong < 2 ? STITCH_STAGE_CORRECT : STITCH_STAGE_NONE);
        if (wrong < 2)
            CHECK_HAS(got.message, "output y: 1 of 64 elements are wrong");
    }
    baseline_off = 0;
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
        CHECK_HAS(got.text, "FAILED");
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
    CHECK_HAS(got.message, "the program did not end in time");
    CHECK_INT(fake.blocked_calls, 0);
}

TEST(hangs_for_good)
{
    stitch_verify_options o = few();
    stitch_report *r = NULL;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    int64_t start;

    need_context();
    stitch_task *t = task_with_baseline(ctx);
    stitch_program *p = candidate(ctx);
    behaviour = HANG;
    hang_ns = INT64_C(3600000000000);
    o.timeout_ms = 300;
    start = stitch__now_ns();
    LEAKS_ON_PURPOSE(true); /* what the device may still use is given up */
    int rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
    LEAKS_ON_PURPOSE(false);
    CHECK_OK(rc);
    CHECK((stitch__now_ns() - start) / 1000000 < 10000);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.status, STITCH_E_TIMEOUT);
    CHECK_INT(fake.blocked_calls, 0); /* nothing waits for a device that never answers */
    stitch_report_free(r);
    fake.busy_until_ns = 0;
    stitch_program_free(p);
    stitch_task_free(t);
}

/* What it still uses is not given back before it has ended, whoever is in a hurry. */
TEST(outlives_its_cancellation_a_little)
{
    stitch_verify_options o = few();

    need_context();
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE); /* the library's kernels are loaded from here on */
    reset();
    CHECK_INT(stitch_cancel_new(&cancel_it), 0);
    o.cancel = cancel_it;
    behaviour = CANCELLED_AT_CALL;
    at_call = 3;
    hang_ns = 300000000;
    get_failure(&o, task_with_baseline(ctx), candidate(ctx), STITCH_E_CANCELLED, "");
    CHECK_INT(calls, 4);
    CHECK_INT(fake.blocked_calls, 0);
    stitch_cancel_free(cancel_it);
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
        o.on_stage = stop;
        o.userdata = cancel;
        o.cancel = cancel;
        get_failure(&o, task_with_baseline(ctx), candidate(ctx), STITCH_E_CANCELLED, "");
        stitch_cancel_reset(cancel);
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

    need_context();
    stitch_program *p = candidate(ctx);
    /* A reference that fails: no verdict. */
    stitch_task *t = bare_task(ctx);
    CHECK_OK(stitch_task_set_reference_fn(t, failing, NULL, 0, &err));
    reference_status = STITCH_E_IO;
    CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), STITCH_E_IO, "callback of the reference failed");
    CHECK(r == NULL);
    stitch_task_free(t);
    /* A baseline that fails: a verdict without its figure. */
    t = task_with_reference(ctx);
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

/* In this process its fault is this process's: the context is lost, and no program is to blame for that. */
TEST(a_fault_of_a_baseline)
{
    stitch_verify_options o = few();
    int all;

    need_context();
    baseline_calls = baseline_fault_at = 0;
    CHECK_INT(verify(o).failed_stage, STITCH_STAGE_NONE);
    all = baseline_calls;
    CHECK(all > 12);
    for (int n = 1; n <= all; n += n < all - 13 ? 3 : 1) { /* the last are its timed runs, after one to warm up */
        need_context();
        baseline_calls = 0;
        baseline_fault_at = n;
        stitch_report *r = NULL;
        stitch_task *t = task_with_baseline(ctx);
        stitch_program *p = candidate(ctx);
        int rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
        if (rc != STITCH_E_FAULT || r)
            FAIL("call %d of %d: %s, %s", n, all, stitch_status_name(rc), r ? stitch_report_text(r) : "");
        stitch_error_free(err);
        err = NULL;
        stitch_program_free(p);
        stitch_task_free(t);
        fake.fault = CUDA_SUCCESS;
        stitch_context_free(ctx); /* it knows of the fault */
        ctx = NULL;
    }
    baseline_fault_at = 0;
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

    need_context();
    stitch_program *p = candidate(ctx);
    stitch_task *t = task_with_reference(ctx);
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

/* One bad value, and the message names it. */
TEST(options_out_of_range)
{
    stitch_verify_options list[10];
    static const char *const names[] = {
        "trials is -1;", "trials is 10001;", "warmup is -2;",   "iterations is 1000001;",         "last_stage is 99;",
        "where is 3;",   "simulate is 2;",   "simulate is -1;", "op_count is 1, but ops is NULL", "profile is 4;"};

    need_context();
    for (size_t i = 0; i < STITCH__COUNT(list); i++)
        list[i] = few();
    list[0].trials = -1;
    list[1].trials = 10001;
    list[2].warmup = -2;
    list[3].iterations = 1000001;
    list[4].last_stage = 99;
    list[5].where = 3;
    list[6].simulate = 2;
    list[7].simulate = -1;
    list[8].op_count = 1;
    list[9].profile = 4;
    for (size_t i = 0; i < STITCH__COUNT(list); i++)
        get_failure(&list[i], task_with_baseline(ctx), candidate(ctx), STITCH_E_INVALID, names[i]);
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
    CHECK_HAS(got.text, "its time budget of 50 ms was spent");
}

/* Inputs count for it only where the outputs need them: here nobody has seen that they do. */
TEST(faster_than_the_device_can_be)
{
    stitch__device *dev = NULL;
    stitch_verify_options o = few();

    need_context();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    const stitch_device_info before = dev->info;
    dev->info.l2_bytes = 0;
    dev->info.memory_clock_khz = 1000000;
    double rate = stitch__device_bandwidth(dev) / 1e6; /* bytes in a microsecond */
    CHECK(rate > 0);
    for (double us = 3; us < 15; us += 4) { /* that the output alone takes; with the input 6, 14 and 22 */
        bool slow = us > 10;
        dev->info.memory_clock_khz = (int32_t)(1e6 * (double)(N * sizeof(float)) / us / rate);
        verify(o);
        CHECK_INT(got.s.failed_stage, slow ? STITCH_STAGE_TIME : STITCH_STAGE_NONE);
        CHECK_INT(got.s.timed, !slow);
        if (slow)
            CHECK_HAS(got.message, "faster than the device can be: 10 us, but reading the inputs and writing the "
                                   "outputs once takes ");
    }
    dev->info = before;
}

/* The budget is for timed runs: what a program does in its warm-up cannot make them fewer. */
TEST(slow_in_warm_up)
{
    stitch_verify_options o = few();
    need_context();
    at_call = calls_before_timing();
    behaviour = SLOW_AT_CALL;
    hang_ns = 600000000;
    o.time_budget_ms = 500;
    CHECK_INT(verify(o).timed, 1);
    CHECK_INT(json_integer_value(json_object_get(candidate_time(), "runs")), o.iterations);
}

/* ---- the simulator beside the device ----------------------------------------------------------------------------- */

static const char *message_of(int stage)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(got.json, "stages"), (size_t)stage - 1), "message"));
}

static const char *status_of(int stage)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(got.json, "stages"), (size_t)stage - 1), "status"));
}

/* N is 64, or 16; the sources are what the simulator runs. */
#define OF_SIZE(name, out, body)                                                                                       \
    "extern \"C\" __global__ void " name "(const float *x, const float *w, " out " *y, int n) "                        \
    "{ int i = threadIdx.x; if (i < n) " body "; }"
#define RIGHT_AT_BOTH OF_SIZE("candidate", "float", "y[i] = x[i] * w[i]")

#define EAGER OF_SIZE("baseline", "float", "y[i] = x[i] * w[i]")

static const char *eager = EAGER;

/* atol 0 and rtol: of the tolerance. */
static stitch_task *task_of_two_sizes(stitch_context *c, const char *rtol, stitch_reference_fn reference,
                                      stitch_reference_fn baseline)
{
    char head[600];
    stitch_task *t = NULL;

    snprintf(
        head, sizeof(head),
        "{\"stitch_task\":1,\"name\":\"product\",\"dims\":{\"N\":64},\"reduced_dims\":{\"N\":16},\"inputs\":[{\"name\":"
        "\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"weights\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]"
        ","
        "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"tolerance\":{\"atol\":0,\"rtol\":%s},"
        "\"precision\":\"f32\"}",
        rtol);
    CHECK_OK(stitch_task_parse(c, head, NULL, &t, &err));
    if (reference)
        CHECK_OK(stitch_task_set_reference_fn(t, reference, NULL, 0, &err));
    else
        CHECK_OK(stitch_task_set_reference_program(
            t, program(c, OF_SIZE("oracle", "double", "y[i] = (double)x[i] * w[i]"), PLAN("oracle")), STITCH_DTYPE_F64,
            &err));
    if (baseline)
        CHECK_OK(stitch_task_add_baseline_fn(t, "host", STITCH_PRECISION_F32, baseline, NULL, &err));
    else
        CHECK_OK(stitch_task_add_baseline_program(t, "eager", STITCH_PRECISION_F32, program(c, eager, PLAN("baseline")),
                                                  &err));
    return t;
}

static void verify_two_sizes(const char *rtol, const char *source, const char *plan, stitch_reference_fn reference,
                             stitch_reference_fn baseline)
{
    stitch_verify_options o = few();
    get_verdict(&o, task_of_two_sizes(ctx, rtol, reference, baseline), program(ctx, source, plan));
}

TEST(results_at_the_reduced_dims)
{
    static const char right[] = RIGHT_AT_BOTH,
                      wrong[] = OF_SIZE("candidate", "float", "y[i] = n == 64 ? x[i] * w[i] : 0"),
                      one[] = OF_SIZE("candidate", "float", "y[i] = x[i] * w[i] + (n == 16 && i == 11)"),
                      silent[] = OF_SIZE("candidate", "float", "if (n == 64) y[i] = x[i] * w[i]"),
                      partial[] = OF_SIZE("candidate", "float", "if (n == 64 || i) y[i] = x[i] * w[i]");

    need_context();
    verify_two_sizes("1e-5", right, PLAN("candidate"), NULL, NULL);
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "passed");
    CHECK_STR(message_of(STITCH_STAGE_SIMULATE), "");
    CHECK(got.s.timed);
    CHECK_INT(got.s.elements, 3 * N); /* of the stages that follow only */
    reset();
    verify_two_sizes("1e-5", wrong, PLAN("candidate"), NULL, NULL);
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_SIMULATE);
    CHECK_INT(got.s.status, STITCH_E_VALIDATE);
    CHECK_HAS(got.message, "at the task's reduced dims (N = 16): output y: 16 of 16 elements are wrong "
                           "(tolerance atol 0 + rtol 1e-05 *");
    CHECK_HAS(got.feedback, "at the task's reduced dims (N = 16)");
    CHECK_INT(calls, 0); /* it did not come to the device */
    verify_two_sizes("1e-5", one, PLAN("candidate"), NULL, NULL);
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_SIMULATE);
    CHECK_HAS(got.message, "1 of 16 elements are wrong");
    CHECK_HAS(got.message, "first wrong y[11]");
    /* What makes nothing of these dims is not held against the program; to make a part of it is. */
    verify_two_sizes("1e-5", silent, PLAN("candidate"), NULL, NULL);
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "skipped");
    CHECK_HAS(message_of(STITCH_STAGE_SIMULATE), "writes nothing");
    CHECK(got.s.timed);
    verify_two_sizes("1e-5", partial, PLAN("candidate"), NULL, NULL);
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_SIMULATE);
    CHECK_HAS(got.message, "never written");
}

/* It is the simulated device that a fault costs. */
TEST(a_fault_at_the_reduced_dims)
{
    static const char source[] =
        "extern \"C\" __global__ void candidate(const float *x, const float *w, float *y, int n, const int *calls) "
        "{ int i = threadIdx.x; if (i == 0 && ++*(int *)calls == 2) __trap(); if (i < n) y[i] = x[i] * w[i]; }";
    static const char plan[] = "{\"stitch\":1,\"buffers\":{\"calls\":{\"dtype\":\"i32\",\"shape\":[1]}},\"prepare\":[{"
                               "\"fill\":{\"buffer\":\"calls\","
                               "\"value\":0}}],\"run\":[{\"kernel\":\"candidate\",\"grid\":[1],\"block\":[64],\"args\":"
                               "[\"x\",\"w\",\"y\",{\"i32\":"
                               "\"N\"},\"calls\"]}]}";

    need_context();
    verify_two_sizes("1e-5", source, plan, NULL, NULL);
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_SIMULATE);
    CHECK_INT(got.s.status, STITCH_E_FAULT);
    CHECK_HAS(got.message, "at the task's reduced dims (N = 16)");
    reset();
    verify_two_sizes("1e-5", RIGHT_AT_BOTH, PLAN("candidate"), NULL, NULL);
    CHECK(got.s.timed);
}

/* A plan that the reduced dims do not fit is no failure. */
TEST(a_plan_for_one_size)
{
    static const char plan[] = "{\"stitch\":1,\"run\":[{\"kernel\":\"candidate\",\"grid\":[\"N/64\"],\"block\":[64],"
                               "\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"}]}]}";

    need_context();
    verify_two_sizes("1e-5", RIGHT_AT_BOTH, plan, NULL, NULL);
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "skipped");
    CHECK_HAS(message_of(STITCH_STAGE_SIMULATE), "not simulated: ");
    CHECK(got.s.timed);
}

/* Errors within the budget of the task's precision pass, as they do in stage correct. */
TEST(the_budget_at_the_reduced_dims)
{
    need_context();
    verify_two_sizes("0", RIGHT_AT_BOTH, PLAN("candidate"), NULL, NULL);
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "passed");
    CHECK(got.s.timed);
    reset();
    verify_two_sizes("0", OF_SIZE("candidate", "float", "y[i] = x[i] * w[i] * 1.00001f"), PLAN("candidate"), NULL,
                     NULL);
    CHECK_INT(got.s.failed_stage, STITCH_STAGE_SIMULATE);
}

/* Where it cannot be measured there, errors beyond the tolerance are nothing to judge by. */
TEST(no_budget_at_the_reduced_dims)
{
    need_context();
    eager = OF_SIZE("baseline", "float",
                    "{ unsigned t; asm volatile(\"vadd.u32.u32.u32 %0, %1, %1;\" : \"=r\"(t) : "
                    "\"r\"(n)); y[i] = x[i] * w[i]; }");
    verify_two_sizes("0", RIGHT_AT_BOTH, PLAN("candidate"), NULL, NULL);
    eager = EAGER;
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "passed");
    CHECK_HAS(message_of(STITCH_STAGE_SIMULATE), "cannot be simulated");
    CHECK(got.s.timed);
}

static int from_the_host(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    multiply((float *)(uintptr_t)tensors[2].ptr, (const float *)(uintptr_t)tensors[0].ptr,
             (const float *)(uintptr_t)tensors[1].ptr);
    return 0;
}

/* The host's own computations know nothing of simulated addresses. */
TEST(no_callbacks_for_simulated_memory)
{
    need_context();
    verify_two_sizes("1e-5", RIGHT_AT_BOTH, PLAN("candidate"), from_the_host, NULL);
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "passed");
    CHECK_HAS(message_of(STITCH_STAGE_SIMULATE), "the reference is no program");
    CHECK(got.s.timed);
    reset();
    verify_two_sizes("1e-5", RIGHT_AT_BOTH, PLAN("candidate"), NULL, from_the_host);
    CHECK_STR(status_of(STITCH_STAGE_SIMULATE), "passed");
    CHECK_HAS(message_of(STITCH_STAGE_SIMULATE), "the error budget is measured by is no program");
    CHECK(got.s.timed);
}

static int64_t left; /* allocations from the beginning of stage simulate on */

static void start_counting(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    if (stage == STITCH_STAGE_SIMULATE && status == STITCH_STAGE_NOT_RUN)
        refuse_memory(left);
}

TEST(host_memory_runs_out_while_simulating)
{
    static const char wrong[] = OF_SIZE("candidate", "float", "y[i] = n == 64 ? x[i] * w[i] : 0");
    bool enough = false;

    need_context();
    memory.for_good = true;
    stitch_context *own = metered_context();
    stitch_task *t = task_of_two_sizes(own, "1e-5", NULL, NULL);
    for (left = 0; !enough && left < 100000; left += 1 + left / 8) {
        stitch_verify_options o = few();
        stitch_program *p = program(own, wrong, PLAN("candidate"));
        reset();
        o.last_stage = STITCH_STAGE_SIMULATE;
        o.on_stage = start_counting;
        verify_short_of_memory(own, t, p, &o, OF_LIBRARY, &enough);
    }
    CHECK(enough);
    printf("# %" PRId64 " allocations\n", left);
    free_metered(own, t);
}

static void when_timed(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    if (stage == STITCH_STAGE_TIME && status == STITCH_STAGE_NOT_RUN && total && done == total)
        refuse_memory(left);
}

/* A figure that there is no memory for is no figure: a program is not refused for it. */
TEST(host_memory_runs_out_after_timing)
{
    bool enough = false;

    need_context();
    memory.for_good = false;
    stitch_context *own = metered_context();
    stitch_task *t = task_with_baseline(own);
    for (left = 0; !enough && left < 10000; left++) {
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        stitch_verify_options o = few();
        stitch_program *p = candidate(own);
        stitch_report *r = NULL;
        reset();
        o.on_stage = when_timed;
        int rc = stitch_verify_program(own, t, p, &o, &r, &err);
        enough = memory.calls <= memory.refuse_at;
        memory.refuse_at = -1;
        if (rc != (enough ? STITCH_OK : rc) || (rc && rc != STITCH_E_NOMEM))
            FAIL("allocation %" PRId64 ": %s", left, stitch_error_message(err));
        if (!rc) {
            CHECK_INT(stitch_report_summary_get(r, &s), STITCH_OK);
            if (s.failed_stage || !(s.median_us > 0) || !(s.speedup > 0))
                FAIL("allocation %" PRId64 ": %s", left, stitch_report_text(r));
        }
        stitch_report_free(r);
        stitch_program_free(p);
        stitch_error_free(err);
        err = NULL;
    }
    CHECK(enough && left > 20);
    free_metered(own, t);
}

/* ---- places and limits ------------------------------------------------------------------------------------------- */

/* Nothing but a worker, or the simulator's word, makes a stranger's program one that runs in this process. */
TEST(no_worker_and_not_simulated)
{
    stitch_verify_options o = few();
    need_context();
    o.where = STITCH_VERIFY_AUTO;
    get_failure(&o, task_with_baseline(ctx), candidate(ctx), STITCH_E_UNSUPPORTED, "STITCH_VERIFY_HERE");
    CHECK_INT(calls, 0);
}

/* Device memory runs out at every place in turn. */
TEST(device_memory_runs_out)
{
    int n;
    need_context();
    CHECK_INT(verify(few()).failed_stage, STITCH_STAGE_NONE);
    stitch_task *t = task_with_baseline(ctx);
    for (n = 0; n < 100; n++) {
        stitch_verify_options o = few();
        stitch_program *p = candidate(ctx);
        int before = fake.live;
        bool enough;
        fake.allocations_left = n;
        verify_short_of_memory(ctx, t, p, &o, 0, &enough);
        CHECK_INT(fake.live, before);
        if (enough)
            break;
    }
    stitch_task_free(t);
    CHECK(n > 5 && n < 100);
}

TEST_MAIN(RUN(a_right_candidate), RUN(host_memory_within_reach), RUN(says_how_to_repeat_it), RUN(order_of_timed_runs),
          RUN(wrong_in_one_trial), RUN(parts_not_written), RUN(changes_what_it_may_only_read),
          RUN(prepare_finds_no_inputs), RUN(prepare_changes_a_weight), RUN(nothing_is_kept_in_workspace),
          RUN(wrong_when_timed), RUN(counts_where_it_may_only_read), RUN(not_the_same_bits),
          RUN(wrong_in_every_other_run), RUN(wrong_beside_one_within_the_budget), RUN(a_fault_is_the_candidates),
          RUN(outlives_the_deadline_a_little), RUN(outlives_its_cancellation_a_little), RUN(hangs_for_good),
          RUN(cancelled_anywhere), RUN(failures_that_are_not_the_candidates), RUN(a_fault_of_a_baseline),
          RUN(a_baseline_in_parts), RUN(options_out_of_range), RUN(stops_where_asked), RUN(time_budget),
          RUN(slow_in_warm_up), RUN(faster_than_the_device_can_be), RUN(results_at_the_reduced_dims),
          RUN(a_fault_at_the_reduced_dims), RUN(a_plan_for_one_size), RUN(the_budget_at_the_reduced_dims),
          RUN(no_budget_at_the_reduced_dims), RUN(no_callbacks_for_simulated_memory),
          RUN(host_memory_runs_out_while_simulating), RUN(host_memory_runs_out_after_timing),
          RUN(no_worker_and_not_simulated), RUN(device_memory_runs_out), RUN(nothing_is_left))
