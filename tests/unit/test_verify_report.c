/* SPDX-License-Identifier: MIT
 *
 * Reports: figures, JSON, text, fingerprints; from results made up here, without a device.
 */
#include <math.h>

#include "base/base.h"
#include "check.h"
#include "verify/verify.h"

static stitch_context *ctx;
static stitch_error *err;

__attribute__((destructor)) static void release(void)
{
    stitch_error_free(err);
    stitch_context_free(ctx);
}

/* A report of a 4 x 8 output "y" with one strict trial. */
static stitch_report *make(void)
{
    stitch_report *r = NULL;
    stitch__trial *t;

    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_OK(stitch__report_new(ctx, &r, &err));
    CHECK_OK(stitch__report_set(r, &r->task_name, "task", 100, &err));
    CHECK_OK(stitch__report_set(r, &r->device_name, "a device", 100, &err));
    r->tensors = stitch__calloc(ctx, 1, sizeof(*r->tensors));
    r->tensors[0].name = stitch__strdup(ctx, "y");
    r->tensors[0].role = STITCH_TENSOR_OUTPUT;
    r->tensors[0].dtype = STITCH_DTYPE_F32;
    r->tensors[0].want_dtype = STITCH_DTYPE_F64;
    r->tensors[0].rank = 2;
    r->tensors[0].shape[0] = 4;
    r->tensors[0].shape[1] = 8;
    r->tensor_count = 1;
    r->atol = 1e-3;
    r->rtol = 1e-3;
    r->seed = 0xfedcba9876543210u;
    t = stitch__report_add_trial(r, "declared", true, 1);
    CHECK(t != NULL);
    t->ran = t->passed = true;
    t->outputs[0].c = (stitch__comparison){.elements = 32,
                                           .finite = 32,
                                           .first = UINT64_MAX,
                                           .worst = 3,
                                           .unwritten_first = UINT64_MAX,
                                           .max_abs = 1e-5,
                                           .sum_abs = 3.2e-5,
                                           .worst_key = 0.01};
    return r;
}

static json_t *parse(const stitch_report *r)
{
    json_t *root = json_loads(stitch_report_json(r), 0, NULL);
    CHECK(root != NULL);
    return root;
}

static void fail_correct(stitch_report *r)
{
    stitch__trial *t = &r->trials[0];
    t->passed = false;
    t->outputs[0].c.mismatches = 2;
    t->outputs[0].c.first = 9;
    t->outputs[0].c.last = 31;
    t->outputs[0].c.worst = 31;
    t->outputs[0].c.worst_key = INFINITY;
    t->outputs[0].c.first_got.real = 1.5;
    t->outputs[0].c.first_want.real = 1.25;
    t->outputs[0].c.worst_got.real = NAN;
    t->outputs[0].c.worst_want.real = 2;
    t->outputs[0].c.nan_got = 1;
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_FAILED, STITCH_E_VALIDATE, "wrong", &err));
}

/* int64 as it is: doubles do not hold it. */
TEST(large_integers_are_not_rounded)
{
    stitch_report *r = make();
    stitch__comparison *c = &r->trials[0].outputs[0].c;
    json_t *root, *output;

    fail_correct(r);
    r->tensors[0].dtype = r->tensors[0].want_dtype = STITCH_DTYPE_I64;
    c->nan_got = 0;
    c->first_got.integer = INT64_MAX - 1;
    c->first_want.integer = INT64_MAX;
    c->worst_got.integer = INT64_MIN;
    c->worst_want.integer = 9007199254740993;
    CHECK_OK(stitch__report_finish(r, &err));
    root = parse(r);
    output = json_array_get(
        json_object_get(json_array_get(json_object_get(json_object_get(root, "correct"), "trials"), 0), "outputs"), 0);
    CHECK(json_integer_value(json_object_get(output, "first_got")) == INT64_MAX - 1);
    CHECK(json_integer_value(json_object_get(output, "first_want")) == INT64_MAX);
    CHECK(json_integer_value(json_object_get(output, "worst_got")) == INT64_MIN);
    CHECK(json_integer_value(json_object_get(output, "worst_want")) == 9007199254740993);
    json_decref(root);
    CHECK_HAS(stitch_report_text(r), "first wrong y[1, 1] = 9223372036854775806, want 9223372036854775807");
    CHECK_HAS(stitch_report_text(r), "worst y[3, 7] = -9223372036854775808, want 9007199254740993");
    stitch_report_free(r);
}

TEST(stage_names)
{
    CHECK_STR(stitch_stage_name(STITCH_STAGE_FORMAT), "format");
    CHECK_STR(stitch_stage_name(STITCH_STAGE_PROFILE), "profile");
    CHECK_STR(stitch_stage_name(STITCH_STAGE_NONE), "none");
    CHECK_STR(stitch_stage_name(-1), "none");
    CHECK_STR(stitch_stage_name(STITCH_STAGE_COUNT), "none");
}

TEST(percentiles)
{
    stitch_report *r = make();
    stitch__timing *t = &r->candidate;
    for (int i = 100; i >= 1; i--)
        CHECK_OK(stitch__timing_add(r, t, i, &err));
    stitch__timing_finish(r, t);
    CHECK_NEAR(t->median, 50.5, 1e-12);
    CHECK_NEAR(t->low, 5, 0);
    CHECK_NEAR(t->high, 95, 0);
    CHECK_NEAR(t->mean, 50.5, 1e-12);
    CHECK_NEAR(t->smallest, 1, 0);
    CHECK_NEAR(t->samples[0], 100, 0); /* in the order of measurement */
    stitch_report_free(r);
    r = make();
    CHECK_OK(stitch__timing_add(r, &r->candidate, 7, &err));
    stitch__timing_finish(r, &r->candidate);
    CHECK_NEAR(r->candidate.median, 7, 0);
    CHECK_NEAR(r->candidate.low, 7, 0);
    CHECK_NEAR(r->candidate.high, 7, 0);
    stitch_report_free(r);
}

/* 10 us, beside 25 us of a baseline. */
static void take_times(stitch_report *r)
{
    r->baselines = stitch__calloc(ctx, 1, sizeof(*r->baselines));
    r->baseline_count = 1;
    CHECK_OK(stitch__report_set(r, &r->baselines[0].name, "eager", 100, &err));
    CHECK_OK(stitch__timing_add(r, &r->candidate, 10, &err));
    CHECK_OK(stitch__timing_add(r, &r->baselines[0], 25, &err));
    stitch__timing_finish(r, &r->candidate);
    stitch__timing_finish(r, &r->baselines[0]);
    r->speedup_low = 2.25;
    r->speedup_high = 2.75;
}

TEST(summary)
{
    stitch_report *r = make();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    struct {
        size_t struct_size;
        int32_t failed_stage, status;
        char guard[8];
    } prefix = {16, 0, 0, "guarded"};

    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_PASSED, 0, "", &err));
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_TIME, STITCH_STAGE_PASSED, 0, "", &err));
    take_times(r);
    r->busy_us = 7.5;
    CHECK_OK(stitch__report_finish(r, &err));
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 1);
    CHECK_INT(s.elements, 32);
    CHECK_INT(s.mismatches, 0);
    CHECK_NEAR(s.speedup, 2.5, 1e-12);
    CHECK_NEAR(s.speedup_low, 2.25, 0);
    CHECK_NEAR(s.speedup_high, 2.75, 0);
    CHECK_NEAR(s.busy_us, 7.5, 0);
    CHECK_NEAR(s.mean_abs_error, 1e-6, 1e-12);
    CHECK(s.seed == 0xfedcba9876543210u);
    /* An older caller's shorter struct. */
    CHECK_INT(stitch_report_summary_get(r, (stitch_report_summary *)&prefix), 0);
    CHECK_STR(prefix.guard, "guarded");
    prefix.struct_size = 0;
    CHECK_INT(stitch_report_summary_get(r, (stitch_report_summary *)&prefix), STITCH_E_INVALID);
    CHECK_INT(stitch_report_summary_get(NULL, &s), STITCH_E_INVALID);
    CHECK_HAS(stitch_report_text(r), "PASSED");
    CHECK_HAS(stitch_report_text(r), "2.50 x against eager");
    /* A task whose verdicts mean nothing. */
    r->exploit.degenerate = true;
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK(s.degenerate && s.speedup == 0 && s.speedup_low == 0 && s.speedup_high == 0);
    stitch_report_free(r);
}

/* Nowhere in a report is there a speed-up that does not count. */
TEST(speedups_that_do_not_count)
{
    for (int failed = 0; failed < 2; failed++) {
        stitch_report *r = make();
        json_t *root, *time, *baseline;

        CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_PASSED, 0, "", &err));
        CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_TIME, failed ? STITCH_STAGE_FAILED : STITCH_STAGE_PASSED,
                                          failed ? STITCH_E_VALIDATE : 0, "", &err));
        r->exploit.degenerate = !failed;
        CHECK_OK(stitch__report_set(r, &r->exploit.degenerate_reason, "zeros pass", 100, &err));
        take_times(r);
        CHECK_OK(stitch__report_finish(r, &err));
        root = parse(r);
        time = json_object_get(root, "time");
        baseline = json_array_get(json_object_get(time, "baselines"), 0);
        CHECK(json_is_null(json_object_get(time, "speedup")));
        CHECK_NEAR(json_number_value(json_object_get(baseline, "speedup")), 0, 0);
        CHECK_NEAR(json_number_value(json_object_get(baseline, "median_us")), 25, 0);
        CHECK(!strstr(stitch_report_text(r), "2.50") && !strstr(stitch_report_text(r), "interval"));
        CHECK_HAS(stitch_report_text(r), "no speed-up counts against eager");
        json_decref(root);
        stitch_report_free(r);
    }
}

TEST(json_has_everything)
{
    stitch_report *r = make();
    json_t *root, *trial, *output;

    fail_correct(r);
    CHECK_OK(stitch__report_note(r, &err, "a note %d", 7));
    CHECK_OK(stitch__report_finish(r, &err));
    root = parse(r);
    CHECK_INT(json_integer_value(json_object_get(root, "stitch_report")), 1);
    CHECK_STR(json_string_value(json_object_get(root, "seed")), "0xfedcba9876543210");
    CHECK_STR(json_string_value(json_object_get(json_object_get(root, "summary"), "failed_stage")), "correct");
    CHECK_STR(json_string_value(json_object_get(json_object_get(root, "summary"), "status")), "STITCH_E_VALIDATE");
    CHECK_INT(json_array_size(json_object_get(root, "stages")), STITCH_STAGE_COUNT - 1);
    CHECK_STR(json_string_value(json_array_get(json_object_get(root, "notes"), 0)), "a note 7");
    CHECK(json_object_get(root, "time") == NULL);
    trial = json_array_get(json_object_get(json_object_get(root, "correct"), "trials"), 0);
    output = json_array_get(json_object_get(trial, "outputs"), 0);
    CHECK_INT(json_integer_value(json_object_get(output, "mismatches")), 2);
    CHECK_STR(json_string_value(json_object_get(output, "worst_got")), "nan"); /* JSON has no NaN */
    CHECK_STR(json_string_value(json_object_get(output, "worst_over_tolerance")), "inf");
    CHECK_INT(json_integer_value(json_array_get(json_object_get(output, "first_mismatch"), 0)), 1);
    CHECK_INT(json_integer_value(json_array_get(json_object_get(output, "first_mismatch"), 1)), 1);
    json_t *kernelbench = json_object_get(json_object_get(root, "correct"), "kernelbench");
    CHECK_INT(json_integer_value(json_object_get(kernelbench, "allclose_trials")), 1);
    CHECK_INT(json_integer_value(json_object_get(kernelbench, "passed")), 0);
    json_decref(root);
    CHECK_HAS(stitch_report_text(r), "FAILED at correct");
    CHECK_HAS(stitch_report_text(r), "first wrong y[1, 1] = 1.5, want 1.25");
    stitch_report_free(r);
}

TEST(format_failure)
{
    stitch_report *r = NULL;
    stitch_error *why = NULL;
    const char *message = NULL;
    int status = 0;

    stitch_report_free(make());
    (void)stitch__err(ctx, &why, STITCH_E_REPLY, "no ```cuda block");
    stitch__err_details(&why, "line one\nline two");
    CHECK_OK(stitch_report_new_format_failure(ctx, why, &r, &err));
    stitch_error_free(why);
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_FORMAT, &status, NULL, &message), 0);
    CHECK_INT(status, STITCH_STAGE_FAILED);
    CHECK_STR(message, "no ```cuda block");
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_TIME, &status, NULL, &message), 0);
    CHECK_INT(status, STITCH_STAGE_NOT_RUN);
    CHECK_STR(message, "");
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_COUNT, &status, NULL, &message), STITCH_E_INVALID);
    CHECK_INT(stitch_report_stage(r, 0, &status, NULL, &message), STITCH_E_INVALID);
    CHECK_HAS(stitch_report_json(r), "line two");
    stitch_report_free(r);
    stitch_report_free(NULL);
    CHECK_ERR(stitch_report_new_format_failure(ctx, NULL, &r, &err), STITCH_E_INVALID, "error");
    CHECK_STR(stitch_report_json(NULL), "");
    CHECK_STR(stitch_report_text(NULL), "");
    CHECK_STR(stitch_report_fingerprint(NULL), "");
}

TEST(first_failure_stays)
{
    stitch_report *r = make();
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_COMPILE, STITCH_STAGE_FAILED, STITCH_E_COMPILE, "a", &err));
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_TIME, STITCH_STAGE_FAILED, STITCH_E_FAULT, "b", &err));
    CHECK_INT(r->failed_stage, STITCH_STAGE_COMPILE);
    CHECK_INT(r->failed_status, STITCH_E_COMPILE);
    stitch_report_free(r);
}

static void fingerprint_of(void (*change)(stitch_report *r), char out[65])
{
    stitch_report *r = make();
    fail_correct(r);
    if (change)
        change(r);
    CHECK_OK(stitch__report_finish(r, &err));
    strcpy(out, stitch_report_fingerprint(r));
    stitch_report_free(r);
}

static void other_figures(stitch_report *r)
{
    r->trials[0].outputs[0].c.mismatches = 17;
    r->trials[0].outputs[0].c.max_abs = 9;
    r->trials[0].seed = 5;
    r->seed = 12;
    r->stages[STITCH_STAGE_CORRECT].ms = 1234;
    CHECK_OK(stitch__report_set(r, &r->stages[STITCH_STAGE_CORRECT].message, "17 of 32 wrong", 100, &err));
}

static void other_kind(stitch_report *r)
{
    r->trials[0].outputs[0].c.unwritten = 5;
}

static void other_finding(stitch_report *r)
{
    CHECK_OK(stitch__report_set(r, &r->findings, "run[0]: x", 100, &err));
}

/* What is no fault of the program's ends the call without a verdict. Memory it may ask for too much of, but only when
 * it is loaded. */
TEST(whose_failure_it_is)
{
    static const int hosts[] = {STITCH_E_CANCELLED, STITCH_E_IO, STITCH_E_INTERNAL, STITCH_E_NO_DEVICE,
                                STITCH_E_NO_LIBRARY},
                     programs[] = {STITCH_E_FAULT,   STITCH_E_TIMEOUT, STITCH_E_VALIDATE,
                                   STITCH_E_COMPILE, STITCH_E_DRIVER,  STITCH_E_LIMIT};

    for (int stage = STITCH_STAGE_FORMAT; stage < STITCH_STAGE_COUNT; stage++) {
        for (size_t i = 0; i < STITCH__COUNT(hosts) + STITCH__COUNT(programs) + 2; i++) {
            size_t of_hosts = STITCH__COUNT(hosts), of_both = of_hosts + STITCH__COUNT(programs);
            int code = i < of_hosts ? hosts[i] : i < of_both ? programs[i - of_hosts] : STITCH_E_NOMEM, rc;
            bool late = i == of_both + 1, its_own = i >= of_hosts && (i < of_both || stage >= STITCH_STAGE_SIMULATE);
            stitch__verify v = {.options.timeout_ms = 1000, .waited_ns = late ? 501000000 : 500000000};
            stitch_error *why = NULL;

            if (late) /* others had the device for most of the time */
                code = STITCH_E_TIMEOUT, its_own = false;
            CHECK_OK(stitch__report_new(NULL, &v.report, &err));
            stitch__err(NULL, &why, code, "so it was");
            rc = stitch__stage_judge(&v, stage, code, &why, &err);
            CHECK(!why);
            if (rc != (its_own ? STITCH_OK : code) || v.report->failed_stage != (its_own ? stage : STITCH_STAGE_NONE))
                FAIL("%s in stage %s: %s, failed stage %s", stitch_status_name(code), stitch_stage_name(stage),
                     stitch_status_name(rc), stitch_stage_name(v.report->failed_stage));
            if (rc)
                CHECK_HAS(stitch_error_message(err), "so it was");
            stitch_error_free(err);
            err = NULL;
            stitch_report_free(v.report);
        }
    }
}

TEST(fingerprint_ignores_figures)
{
    char a[65], b[65], c[65], d[65];
    fingerprint_of(NULL, a);
    fingerprint_of(other_figures, b);
    fingerprint_of(other_kind, c);
    fingerprint_of(other_finding, d);
    CHECK_INT(strlen(a), 64);
    CHECK_STR(a, b);
    CHECK(strcmp(a, c) != 0);
    CHECK(strcmp(a, d) != 0);
}

static int stop_at(const stitch_verify_options *o)
{
    stitch_report *r = (stitch_report *)ctx;
    stitch_task *t = NULL;
    int rc;
    CHECK_OK(stitch_task_new(ctx, "t", &t, &err));
    rc = stitch_verify_program(ctx, t, (stitch_program *)t, o, &r, &err); /* never gets as far as the program */
    CHECK(r == NULL);
    stitch_task_free(t);
    return rc;
}

TEST(options_are_checked)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT, made;
    stitch_report *r = NULL;

    stitch_report_free(make());
    CHECK_INT(stitch_verify_options_init(&made, sizeof(made)), 0);
    CHECK_INT(made.struct_size, sizeof(made));
    CHECK_ERR(stitch_verify_program(ctx, NULL, NULL, NULL, &r, &err), STITCH_E_INVALID, "task");
    o.trials = -1;
    CHECK_INT(stop_at(&o), STITCH_E_INVALID);
    CHECK_HAS(stitch_error_message(err), "trials");
    o = (stitch_verify_options)STITCH_VERIFY_OPTIONS_INIT;
    o.last_stage = STITCH_STAGE_COUNT;
    CHECK_INT(stop_at(&o), STITCH_E_INVALID);
    o = (stitch_verify_options)STITCH_VERIFY_OPTIONS_INIT;
    o.struct_size = 3;
    CHECK_INT(stop_at(&o), STITCH_E_INVALID);
    stitch_error_free(err);
    err = NULL;
}

/* A verdict must not be lost behind findings that are none. */
TEST(a_major_finding_after_many_minor_ones)
{
    enum { MANY = STITCH__EXPLOIT_MAX_FINDINGS + 6 };
    stitch_report *r = make();

    for (int i = 0; i < MANY; i++)
        CHECK_OK(
            stitch__exploit_find(r, STITCH__CHECK_STEPS, STITCH__FOUND_DEAD_STEP, false, "run", &err, "no. %d", i));
    CHECK(stitch__exploit_major(r) == NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(stitch__exploit_find(r, STITCH__CHECK_CODE, STITCH__FOUND_ERRORS, true, "y", &err, "wrong %d", i));
    CHECK(stitch__exploit_major(r) != NULL);
    CHECK_STR(stitch__exploit_major(r)->evidence, "wrong 0");
    CHECK_INT(r->exploit.finding_count, STITCH__EXPLOIT_MAX_FINDINGS + 1);
    CHECK_INT(r->exploit.left_out, 7);
    stitch_report_free(r);
}

TEST_MAIN(RUN(large_integers_are_not_rounded), RUN(stage_names), RUN(percentiles), RUN(summary),
          RUN(speedups_that_do_not_count), RUN(json_has_everything), RUN(format_failure), RUN(first_failure_stays),
          RUN(whose_failure_it_is), RUN(fingerprint_ignores_figures), RUN(options_are_checked),
          RUN(a_major_finding_after_many_minor_ones))
