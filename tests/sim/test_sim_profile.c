/* SPDX-License-Identifier: MIT
 *
 * Stage profile on a simulated device: what it counts becomes facts, verdicts and advice of the report, here and in a
 * worker, and reaches a model within its budget.
 */
#include "../gpu/verify_tasks.h"
#include <stitch/profile.h>

#define TURN(real)                                                                                                     \
    "extern \"C\" __global__ void turn(const float *x, " real " *y, int n)\n{\n"                                       \
    "    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;\n"                                   \
    "    y[c * n + r] = x[r * n + c];\n}\n"

static const char head[] = "\"name\":\"turn\",\"dims\":{\"N\":64},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\","
                           "\"shape\":[\"N\",\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":["
                           "\"N\",\"N\"]}],\"tolerance\":{\"atol\":1e-5,\"rtol\":1e-5}";
static const char plan[] = "{\"stitch\":1,\"run\":[{\"kernel\":\"turn\",\"grid\":[\"N/32\",\"N/8\"],\"block\":[32,8],"
                           "\"args\":[\"x\",\"y\",{\"i32\":\"N\"}]}]}";

static stitch_report *profiled(int profile, int where, const char *source)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    o.seed = 42;
    o.profile = profile;
    o.where = where;
    stitch_task *t = make_task(head, TURN("double"), plan, NULL);
    stitch_report *r = verify(t, source, plan, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), STITCH_OK);
    if (s.failed_stage && strcmp(source, TURN("float")) == 0)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(s.isolated, where == STITCH_VERIFY_WORKER);
    stitch_task_free(t);
    return r;
}

static void need_simulator(void)
{
    need_device();
    CHECK(device.simulated);
}

static void check_profile(const stitch_report *r)
{
    stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    const stitch_profile *p = stitch_report_profile(r);
    const char *message = NULL;
    int status = -1;

    CHECK(p);
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_PROFILE, &status, NULL, &message), STITCH_OK);
    CHECK_INT(status, STITCH_STAGE_PASSED);
    CHECK_INT(stitch_profile_verdict_get(p, SIZE_MAX, &v), STITCH_OK);
    CHECK_STR(v.bound, "memory");
    CHECK_STR(message, v.because);
    CHECK_INT(stitch_profile_kernel_count(p), 1);
    CHECK_INT(stitch_profile_advice_get(p, 0, &a), STITCH_OK);
    CHECK_STR(a.rule, "uncoalesced");
    CHECK_STR(a.kernel, "turn");
    CHECK_INT(a.line, 4);
    CHECK_INT(a.step, 0);
    CHECK(a.gain_us == 0); /* nothing was timed */

    CHECK_INT(json_integer_value(report_at(r, "profile.stitch_profile")), 1);
    CHECK_STR(json_string_value(report_at(r, "profile.facts.source")), "simulator");
    CHECK_STR(json_string_value(report_at(r, "profile.facts.steps.0.name")), "turn");
    CHECK_INT(json_number_value(report_at(r, "profile.facts.kernels.0.metrics.global_requests")), 2 * 64 * 64 / 32);
    CHECK_INT(json_number_value(report_at(r, "profile.facts.kernels.0.metrics.global_ideal_sectors")),
              2 * 64 * 64 * 4 / 32);
    CHECK_STR(json_string_value(report_at(r, "profile.advice.advice.0.rule")), "uncoalesced");
    CHECK_STR(json_string_value(report_at(r, "profile.advice.advice.0.source")), "y[c * n + r] = x[r * n + c];");
    json_t *own = json_loads(stitch_profile_json(p), 0, NULL);
    CHECK(json_equal(own, report_at(r, "profile")));
    json_decref(own);
    CHECK_HAS(stitch_report_text(r), "[uncoalesced] turn");
}

TEST(in_this_process)
{
    need_simulator();
    for (int profile = STITCH_PROFILE_AUTO; profile <= STITCH_PROFILE_FULL; profile++) {
        stitch_report *r = profiled(profile, STITCH_VERIFY_HERE, TURN("float"));
        check_profile(r);
        stitch_report_free(r);
    }
}

TEST(in_a_worker)
{
    need_simulator();
    stitch_report *r = profiled(STITCH_PROFILE_AUTO, STITCH_VERIFY_WORKER, TURN("float"));
    check_profile(r);
    stitch_report_free(r);
}

TEST(never)
{
    need_simulator();
    for (int where = STITCH_VERIFY_HERE; where <= STITCH_VERIFY_WORKER; where++) {
        stitch_report *r = profiled(STITCH_PROFILE_NEVER, where, TURN("float"));
        const char *message = NULL;
        int status = -1;
        CHECK_INT(stitch_report_stage(r, STITCH_STAGE_PROFILE, &status, NULL, &message), STITCH_OK);
        CHECK_INT(status, STITCH_STAGE_SKIPPED);
        CHECK_HAS(message, "not asked for");
        CHECK(!stitch_report_profile(r));
        CHECK(!strstr(stitch_report_json(r), "\"stitch_profile\""));
        stitch_report_free(r);
    }
}

/* Hardware counters by name are not known here, and that is said: here and in a worker. */
TEST(metrics_by_name)
{
    static const char *const metrics[] = {"lts__t_sectors.sum", "sm__cycles_elapsed.max"};
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;

    need_simulator();
    o.metrics = metrics;
    o.metric_count = STITCH__COUNT(metrics);
    for (o.where = STITCH_VERIFY_HERE; o.where <= STITCH_VERIFY_WORKER; o.where++) {
        stitch_task *t = make_task(head, TURN("double"), plan, NULL);
        stitch_report *r = verify(t, TURN("float"), plan, &o);
        CHECK_STR(json_string_value(report_at(r, "profile.facts.extra_names.1")), metrics[1]);
        CHECK(json_is_null(report_at(r, "profile.facts.kernels.0.extra.0")));
        CHECK_INT(json_array_size(report_at(r, "profile.facts.kernels.0.extra")), 2);
        CHECK_STR(json_string_value(report_at(r, "profile.facts.no_counters")),
                  "not offered by this device: lts__t_sectors.sum, sm__cycles_elapsed.max");
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

/* Others on "this GPU" are nothing to speak of where there is none, wherever a lock might lie. */
TEST(nobody_is_locked_out)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char *before = runtime ? strdup(runtime) : NULL;
    stitch_context *shared = ctx;

    need_simulator();
    CHECK_INT(unsetenv("XDG_RUNTIME_DIR"), 0);
    options.cache_dir = "";
    options.device = "sim:sm_90a";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    stitch_report *r = profiled(STITCH_PROFILE_AUTO, STITCH_VERIFY_HERE, TURN("float"));
    check_profile(r);
    bool said = strstr(stitch_report_json(r), "kept away") != NULL;
    stitch_report_free(r);
    stitch_context_free(ctx);
    ctx = shared;
    if (before)
        setenv("XDG_RUNTIME_DIR", before, 1);
    free(before);
    CHECK(!said);
}

/* A wrong program is not profiled. */
TEST(after_a_failure)
{
    need_simulator();
    stitch_report *r = profiled(STITCH_PROFILE_AUTO, STITCH_VERIFY_HERE,
                                "extern \"C\" __global__ void turn(const float *x, float *y, int n)\n"
                                "{ int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;\n"
                                "  y[r * n + c] = x[r * n + c]; }\n");
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    int status = -1;
    CHECK_INT(stitch_report_summary_get(r, &s), STITCH_OK);
    CHECK(s.failed_stage);
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_PROFILE, &status, NULL, NULL), STITCH_OK);
    CHECK_INT(status, STITCH_STAGE_NOT_RUN);
    CHECK(!stitch_report_profile(r));
    stitch_report_free(r);
}

TEST(feedback_keeps_its_budget)
{
    char *text = NULL;
    need_simulator();
    stitch_report *r = profiled(STITCH_PROFILE_AUTO, STITCH_VERIFY_HERE, TURN("float"));
    CHECK_OK(stitch_report_feedback(r, 0, &text, &err));
    CHECK_HAS(text, "The program is correct");
    CHECK_HAS(text, "[uncoalesced] turn (run[0])");
    CHECK_HAS(text, "At program.cu:4: y[c * n + r] = x[r * n + c];");
    size_t len = strlen(text);
    stitch_free(text);
    for (size_t max = 256; max < len + 100; max += 13) {
        CHECK_OK(stitch_report_feedback(r, max, &text, &err));
        if (strlen(text) > max)
            FAIL("%zu bytes for a budget of %zu", strlen(text), max);
        CHECK_HAS(text, "The program is correct");
        CHECK_HAS(text, max >= 512 ? "uncoalesced" : "");
        stitch_free(text);
    }
    stitch_report_free(r);
}

static const check_test tests[] = {
    RUN(in_this_process),           RUN(in_a_worker),          RUN(never),
    RUN(metrics_by_name),           RUN(nobody_is_locked_out), RUN(after_a_failure),
    RUN(feedback_keeps_its_budget),
};

int main(int argc, char **argv)
{
    setenv("STITCH_TEST_DEVICE", "sim:sm_90a", 1);
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc;
}
