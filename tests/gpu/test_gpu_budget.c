/* SPDX-License-Identifier: MIT
 *
 * The error budget (a candidate may be off by a small factor of what the task's own precision is), and the trials
 * beyond the declared inputs that decide where the task has a measure of its precision.
 */
#include "verify_tasks.h"

/* y = a * x + b with an error `e` (in thousandths) of the element `i`, and a tolerance of a tenth of a thousandth. */
#define OFF(e) VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + 1e-3f * (" e ");")
#define EACH   "i % 2 ? 1 : -1" /* everywhere by 1 thousandth */
#define HEAD   "\"tolerance\":{\"atol\":1e-4,\"rtol\":0},\"precision\":"
#define VECTOR_OF(precision)                                                                                           \
    "\"name\":\"vector\",\"dims\":{\"N\":4099},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"     \
    "\"weights\":[{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[\"N\"]},{\"name\":\"b\",\"dtype\":\"f32\",\"shape\":["  \
    "\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]," HEAD "\"" precision "\""

static stitch_verify_options until_correct(void)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.trials = 2;
    o.seed = 42;
    o.last_stage = STITCH_STAGE_CORRECT;
    o.where = STITCH_VERIFY_HERE;
    return o;
}

/* A real GPU has trials of other magnitudes, which add errors of their own. */
static void need_simulator(void)
{
    need_device();
    if (!device.simulated)
        SKIP("its errors are planted for the declared inputs alone, as the simulator tries them");
}

static stitch_task *budget_task(const char *precision, const char *baseline)
{
    char head[1000];
    snprintf(head, sizeof(head), VECTOR_OF("%s"), precision);
    return make_task(head, VECTOR_KERNEL("double", "y[i] = (double)a[i] * x[i] + b[i];"), VECTOR_PLAN, baseline);
}

static stitch_report_summary summary_of(const stitch_report *r)
{
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    return s;
}

#define OUTPUT "correct.trials.0.outputs.0"

TEST(four_times_the_own_error_passes)
{
    stitch_verify_options o = until_correct();
    need_simulator();
    stitch_task *t = budget_task("f32", OFF(EACH));
    stitch_report *r = verify(t, OFF("3.5f * (" EACH ")"), VECTOR_PLAN, &o);
    stitch_report_summary s = summary_of(r);

    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.mismatches, 2 * 4099); /* beyond the tolerance they are all the same */
    CHECK_NEAR(s.max_abs_error, 3.5e-3, 1e-5);
    CHECK_STR(json_string_value(report_at(r, "correct.error_budget.baseline")), "plain");
    CHECK_NEAR(json_number_value(report_at(r, "correct.error_budget.factor")), 4, 0);
    CHECK_NEAR(json_number_value(report_at(r, OUTPUT ".error_budget.own_max_abs_error")), 1e-3, 1e-5);
    CHECK_NEAR(json_number_value(report_at(r, OUTPUT ".error_budget.own_mean_abs_error")), 1e-3, 1e-5);
    CHECK(json_is_true(report_at(r, OUTPUT ".error_budget.needed")));
    CHECK(json_is_true(report_at(r, OUTPUT ".error_budget.kept")));
    CHECK(json_is_true(report_at(r, "correct.trials.0.passed")));
    CHECK_INT(json_integer_value(report_at(r, "correct.kernelbench.allclose_trials")), 2);
    CHECK_INT(json_integer_value(report_at(r, "correct.kernelbench.passed")), 0); /* which knows no budget */
    stitch_report_free(r);

    r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    CHECK_INT(summary_of(r).correct, 1);
    CHECK(json_is_false(report_at(r, OUTPUT ".error_budget.needed")));
    CHECK(json_is_true(report_at(r, OUTPUT ".error_budget.kept")));
    CHECK_INT(json_integer_value(report_at(r, "correct.kernelbench.passed")), 2);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(what_no_budget_covers)
{
    static const struct {
        const char *what, *error, *baseline, *message;
    } rows[] = {
        {"six times", "6 * (" EACH ")", EACH, "largest absolute error 0.006"},
        {"the budget in words", "6 * (" EACH ")", EACH, "the task's own precision is off by 0.001; 4 times that"},
        {"one element above the largest", "i == 7 ? 5 : 0", EACH, "1 of 4099 elements are wrong"},
        {"the mean, under a baseline with one bad element", "2", "i == 7 ? 100 : 0", "4099 of 4099 elements are wrong"},
        {"any error where the baseline has none", "0.2f", "0", "4099 of 4099 elements are wrong"},
        {"what a wrong baseline gets wrong, too", "1000 * (" EACH ")", "1e6f * (" EACH ")", "4099 of 4099 elements"},
        {"NaN", "i == 7 ? sqrtf(-1 - fabsf(x[i])) : 0", EACH, "1 are NaN where the reference has 0"},
        {"infinity", "i == 7 ? 1e30f * 1e30f : 0", EACH, "1 are infinite where the reference has 0"},
        {"NaN as the baseline has", "i == 7 ? sqrtf(-1 - fabsf(x[i])) : 0", "i == 7 ? sqrtf(-1 - fabsf(x[i])) : 1",
         "1 are NaN"},
    };
    stitch_verify_options o = until_correct();
    need_simulator();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char source[1000], baseline[1000];
        const char *message = "";
        snprintf(source, sizeof(source), OFF("%s"), rows[i].error);
        snprintf(baseline, sizeof(baseline), OFF("%s"), rows[i].baseline);
        stitch_task *t = budget_task("f32", baseline);
        stitch_report *r = verify(t, source, VECTOR_PLAN, &o);
        stitch_report_summary s = summary_of(r);
        if (s.failed_stage != STITCH_STAGE_CORRECT || s.status != STITCH_E_VALIDATE || s.correct)
            FAIL("%s: %s", rows[i].what, stitch_report_text(r));
        CHECK_INT(stitch_report_stage(r, STITCH_STAGE_CORRECT, NULL, NULL, &message), 0);
        if (!strstr(message, rows[i].message))
            FAIL("%s: \"%s\" does not say \"%s\"", rows[i].what, message, rows[i].message);
        CHECK(json_is_true(report_at(r, OUTPUT ".error_budget.needed")));
        CHECK(json_is_false(report_at(r, OUTPUT ".error_budget.kept")));
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

TEST(which_baseline_measures)
{
    static const struct {
        const char *precision;
        bool measures; /* the float32 baseline */
    } rows[] = {{"f32", true}, {"tf32", true}, {"f16", true}, {"any", false}};
    stitch_verify_options o = until_correct();
    need_simulator();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch_task *t = budget_task(rows[i].precision, OFF(EACH));
        stitch_report *r = verify(t, OFF("2 * (" EACH ")"), VECTOR_PLAN, &o);
        if (summary_of(r).correct != rows[i].measures)
            FAIL("%s: %s", rows[i].precision, stitch_report_text(r));
        CHECK_INT(json_is_string(report_at(r, "correct.error_budget.baseline")), rows[i].measures);
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

TEST(the_least_precise_that_is_allowed)
{
    static const struct {
        const char *name, *source;
        int precision;
    } baselines[] = {{"half", OFF("1000"), STITCH_PRECISION_F16},
                     {"single", OFF("0"), STITCH_PRECISION_F32},
                     {"tensor float", OFF(EACH), STITCH_PRECISION_TF32}};
    stitch_verify_options o = until_correct();
    need_simulator();
    stitch_task *t = budget_task("tf32", NULL);
    for (size_t i = 0; i < sizeof(baselines) / sizeof(baselines[0]); i++) {
        stitch_program *p = NULL;
        CHECK_OK(stitch_program_parse(ctx, baselines[i].source, VECTOR_PLAN, NULL, &p, &err));
        CHECK_OK(stitch_task_add_baseline_program(t, baselines[i].name, baselines[i].precision, p, &err));
    }
    stitch_report *r = verify(t, OFF("2 * (" EACH ")"), VECTOR_PLAN, &o);
    CHECK_STR(json_string_value(report_at(r, "correct.error_budget.baseline")), "tensor float");
    CHECK_INT(summary_of(r).correct, 1);
    stitch_report_free(r);
    r = verify(t, OFF("6 * (" EACH ")"), VECTOR_PLAN, &o);
    CHECK_INT(summary_of(r).correct, 0);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(without_a_measure_the_tolerance_decides)
{
    static const struct {
        const char *what, *baseline, *note;
    } rows[] = {{"no baseline", NULL, NULL},
                {"one that does not compile", VECTOR_KERNEL("float", "y[i] = undefined_name;"),
                 "no error budget, its baseline cannot be run: "}};
    stitch_verify_options o = until_correct();
    need_simulator();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch_task *t = budget_task("f32", rows[i].baseline);
        stitch_report *r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
        if (!summary_of(r).correct)
            FAIL("%s: %s", rows[i].what, stitch_report_text(r));
        CHECK(json_is_null(report_at(r, "correct.error_budget.baseline")));
        CHECK(json_object_get(report_at(r, OUTPUT), "error_budget") == NULL);
        if (rows[i].note)
            CHECK_HAS(stitch_report_text(r), rows[i].note);
        else
            CHECK(!strstr(stitch_report_text(r), "error budget"));
        stitch_report_free(r);
        r = verify(t, OFF("0.2f"), VECTOR_PLAN, &o); /* twice the tolerance */
        CHECK_INT(summary_of(r).failed_stage, STITCH_STAGE_CORRECT);
        CHECK(json_object_get(report_at(r, OUTPUT), "error_budget") == NULL);
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

/* Errors far beyond those of the task's own precision are reported: not small ones, however exact the baseline is, nor
 * beside a baseline that says nothing. */
TEST(errors_of_a_lower_precision)
{
#define EXACT(e)  VECTOR_KERNEL("float", "y[i] = (double)a[i] * x[i] + b[i] + (" e ");")
#define SCALED(f) VECTOR_KERNEL("float", "y[i] = ((double)a[i] * x[i] + b[i]) * (1 + " f ");")
    static const struct {
        const char *source, *baseline;
        bool found;
    } rows[] = {{SCALED("2.5e-5"), EXACT("0"), false},
                {SCALED("5e-5"), EXACT("0"), true},
                {SCALED("5e-5"), EXACT("i % 2 ? 1e-5 : -1e-5"), false},
                {SCALED("5e-5"), EXACT("i == 7 ? 1e30f * 1e30f : 0"), false}};
    stitch_verify_options o = until_correct();
    char head[1000];
    need_simulator();
    o.last_stage = STITCH_STAGE_EXPLOIT;
    snprintf(head, sizeof(head), VECTOR_OF("%s"), "f32");
    memcpy(strstr(head, "1e-4"), "1e-2", 4);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch_task *t = make_task(head, VECTOR_KERNEL("double", "y[i] = (double)a[i] * x[i] + b[i];"), VECTOR_PLAN,
                                   rows[i].baseline);
        stitch_report *r = verify(t, rows[i].source, VECTOR_PLAN, &o);
        if (summary_of(r).failed_stage ||
            !strstr(stitch_report_text(r), "the mean error of output y is") == rows[i].found)
            FAIL("row %zu: %s", i, stitch_report_text(r));
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

/* ---- beyond the declared inputs ---------------------------------------------------------------------------------- */

#define ROWS_OF(precision)                                                                                             \
    "\"name\":\"softmax\",\"dims\":{\"M\":6,\"C\":96},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":["       \
    "\"M\",\"C\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"M\",\"C\"]}],"                         \
    "\"tolerance\":{\"atol\":1e-5,\"rtol\":1e-4},\"precision\":\"" precision "\""
#define ROWS_PLAN                                                                                                      \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[1],\"args\":[\"x\",\"y\",{\"i32\":\"C\"}]}]" \
    "}"
#define SOFTMAX(real, top)                                                                                             \
    "__global__ void k(const float *x, " real " *y, int c)\n{\n    x += blockIdx.x * c;\n    y += blockIdx.x * c;\n"   \
    "    " real " m = x[0], s = 0;\n    for (int i = 1; i < c; i++) m = x[i] > m ? x[i] : m;\n    m = " top ";\n"      \
    "    for (int i = 0; i < c; i++) s += exp(x[i] - m);\n    for (int i = 0; i < c; i++) y[i] = exp(x[i] - m) / "     \
    "s;\n}\n"
#define HONEST SOFTMAX("float", "m")
#define NAIVE  SOFTMAX("float", "0") /* exp overflows at 64 times the magnitude */

enum { KINDS = 6 };

/* These trials take long on the simulator, so that it leaves them out: for this stage it is taken for a GPU. */
static void hide_the_simulator(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    stitch__device *dev = userdata;
    if (stage == STITCH_STAGE_CORRECT)
        dev->info.simulated = 0;
}

static stitch_report *verify_as_on_a_gpu(stitch_task *t, const char *source)
{
    stitch_verify_options o = until_correct();
    stitch__device *dev = NULL;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    int rc;

    CHECK_OK(stitch_program_parse(ctx, source, ROWS_PLAN, NULL, &p, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    o.on_stage = hide_the_simulator;
    o.userdata = dev;
    rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
    dev->info.simulated = device.simulated;
    CHECK_OK(rc);
    stitch_program_free(p);
    return r;
}

/* How many of the trials with other inputs decide; the rest are information. */
static void check_kinds(const stitch_report *r, size_t deciding)
{
    const json_t *list = report_at(r, "correct.robust"), *trial;
    size_t i, count = 0;
    CHECK_INT(json_array_size(list), KINDS);
    json_array_foreach(list, i, trial) count += json_is_true(json_object_get(trial, "decides"));
    CHECK_INT(count, deciding);
    CHECK_INT(json_array_size(report_at(r, "correct.trials")), 2);
}

TEST(other_inputs_decide_with_a_baseline_of_the_precision)
{
    const char *message = "";
    char *feedback = NULL;
    need_device();
    stitch_task *t = make_task(ROWS_OF("f32"), SOFTMAX("double", "m"), ROWS_PLAN, HONEST);
    stitch_report *r = verify_as_on_a_gpu(t, HONEST);

    if (!summary_of(r).correct)
        FAIL("honest: %s", stitch_report_text(r));
    check_kinds(r, KINDS);
    stitch_report_free(r);
    r = verify_as_on_a_gpu(t, NAIVE);
    CHECK_INT(summary_of(r).failed_stage, STITCH_STAGE_CORRECT);
    CHECK_INT(summary_of(r).status, STITCH_E_VALIDATE);
    check_kinds(r, KINDS);
    CHECK(json_is_true(report_at(r, "correct.trials.0.passed")));
    CHECK(json_is_true(report_at(r, "correct.trials.1.passed")));
    CHECK_HAS(json_string_value(report_at(r, "correct.robust.0.inputs")), "large (64 times");
    CHECK(json_is_false(report_at(r, "correct.robust.0.passed")));
    CHECK_INT(json_integer_value(report_at(r, "correct.kernelbench.passed")), 2); /* which tries the declared alone */
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_CORRECT, NULL, NULL, &message), 0);
    CHECK_HAS(message, "with large (64 times the declared magnitude) inputs, output y: ");
    CHECK_HAS(message, "are NaN where the reference has 0");
    CHECK_OK(stitch_report_feedback(r, 0, &feedback, &err));
    CHECK_HAS(feedback, "stage correct: with large (64 times");
    stitch_free(feedback);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(otherwise_they_inform)
{
    static const struct {
        const char *what, *head, *baseline;
    } rows[] = {{"no baseline", ROWS_OF("f32"), NULL},
                {"a baseline that is more precise than asked for", ROWS_OF("f16"), HONEST},
                {"any precision", ROWS_OF("any"), HONEST}};
    need_device();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *feedback = NULL;
        stitch_task *t = make_task(rows[i].head, SOFTMAX("double", "m"), ROWS_PLAN, rows[i].baseline);
        stitch_report *r = verify_as_on_a_gpu(t, NAIVE);
        if (!summary_of(r).correct)
            FAIL("%s: %s", rows[i].what, stitch_report_text(r));
        check_kinds(r, 0);
        CHECK(json_is_false(report_at(r, "correct.robust.0.passed")));
        CHECK_OK(stitch_report_feedback(r, 0, &feedback, &err));
        CHECK_HAS(feedback, "Not counted yet: with large");
        stitch_free(feedback);
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

TEST(inputs_that_the_baseline_cannot_take_inform)
{
    need_device();
    stitch_task *t = make_task(ROWS_OF("f32"), SOFTMAX("double", "m"), ROWS_PLAN, NAIVE);
    stitch_report *r = verify_as_on_a_gpu(t, NAIVE);

    if (!summary_of(r).correct)
        FAIL("%s", stitch_report_text(r));
    /* What overflows: 64 times the magnitude, and 1024. */
    check_kinds(r, KINDS - 2);
    CHECK_HAS(json_string_value(report_at(r, "correct.robust.0.inputs")), "large");
    CHECK(json_is_false(report_at(r, "correct.robust.0.decides")));
    CHECK_HAS(json_string_value(report_at(r, "correct.robust.5.inputs")), "cancelling");
    CHECK(json_is_false(report_at(r, "correct.robust.5.decides")));
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST_MAIN(RUN(four_times_the_own_error_passes), RUN(what_no_budget_covers), RUN(which_baseline_measures),
          RUN(the_least_precise_that_is_allowed), RUN(without_a_measure_the_tolerance_decides),
          RUN(errors_of_a_lower_precision), RUN(other_inputs_decide_with_a_baseline_of_the_precision),
          RUN(otherwise_they_inform), RUN(inputs_that_the_baseline_cannot_take_inform))
