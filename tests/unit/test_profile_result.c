/* SPDX-License-Identifier: MIT
 *
 * Finished profiles as users read them, the options of what makes them, and calls that cannot succeed.
 */
#include <string.h>

#include "advice_facts.h"
#include "meter.h"
#include "cuda/cuda.h"
#include "profile/result.h"
#include "verify/verify.h"

static meter memory = {.refuse_at = -1};
static stitch_context *ctx;
static stitch__device *dev;
static stitch_profile *profile;

/* A simulated device has ceilings without measuring any. */
static void need_context(void)
{
    static const stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.device = "sim:sm_90a";
    o.allocator = &allocator;
    memory.refuse_at = -1;
    stitch_error_free(err);
    err = NULL;
    stitch_profile_free(profile);
    profile = NULL;
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
    int rc = stitch__device_get(ctx, &dev, &err);
    if (rc)
        SKIP(stitch_error_message(err));
}

/* A run of 500 us: 300 us in launches of a transpose with scattered stores, the rest in a tuned copy. */
static stitch__facts *two_kernels(void)
{
    stitch__facts *f = h200(ctx);
    stitch__kernel_fact *k = timed_kernel(f, "turn", 150);
    cheap_counters(k);
    k->launches = 2;
    METRIC(k, LOAD_REQUESTS) = 1e6;
    METRIC(k, LOAD_SECTORS) = 4e6;
    METRIC(k, STORE_REQUESTS) = 1e6;
    METRIC(k, STORE_SECTORS) = 32e6;
    k->samples = 100;
    k->line_count = 1;
    k->lines[0] =
        (stitch__line_fact){.file = "program.cu", .line = 4, .text = "y[c] = x[r];", .samples = 100, .reason_count = 1};
    k->lines[0].reasons[0] = (stitch__reason){"long_scoreboard", 90};
    k = timed_kernel(f, "copy<float4>", 200);
    cheap_counters(k);
    METRIC(k, DRAM_BYTES) = 200 * 0.9 * 4900e3;
    f->launches = 3;
    return f;
}

static int make(stitch_error **e)
{
    stitch__scope scope = stitch__scope_make(ctx, NULL, 0);
    return stitch__profile_make(ctx, dev, &scope, two_kernels(), &profile, e);
}

/* ---- reading ---- */

TEST(verdicts_and_advice)
{
    stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    need_context();
    CHECK_OK(make(&err));
    CHECK_INT(stitch_profile_kernel_count(profile), 2);
    CHECK_INT(stitch_profile_verdict_get(profile, SIZE_MAX, &v), STITCH_OK);
    CHECK_STR(v.name, "");
    CHECK_NEAR(v.time_us, 500, 1e-9);
    CHECK(*v.bound && *v.because);
    CHECK(v.reached >= 0 && v.reached <= 1 && v.limit_us <= v.time_us);
    CHECK_INT(stitch_profile_verdict_get(profile, 0, &v), STITCH_OK);
    CHECK_STR(v.name, "turn");
    CHECK_NEAR(v.time_us, 300, 1e-9); /* of both launches */
    CHECK(v.reached > 0);
    CHECK_NEAR(v.limit_us, v.reached * v.time_us, 1e-6);
    CHECK_INT(stitch_profile_verdict_get(profile, 1, &v), STITCH_OK);
    CHECK_STR(v.name, "copy<float4>");
    CHECK_STR(v.bound, "memory");
    CHECK_NEAR(v.limit_us, v.reached * v.time_us, 1e-6);
    CHECK_INT(stitch_profile_verdict_get(profile, 2, &v), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_profile_verdict_get(profile, SIZE_MAX - 1, &v), STITCH_E_NOT_FOUND);

    CHECK(stitch_profile_advice_count(profile) >= 1);
    CHECK_INT(stitch_profile_advice_get(profile, 0, &a), STITCH_OK);
    CHECK_STR(a.rule, "uncoalesced");
    CHECK_STR(a.kernel, "turn");
    CHECK_STR(a.file, "program.cu");
    CHECK_INT(a.line, 4);
    CHECK_INT(a.step, -1);
    CHECK(a.gain_us > 0 && a.gain_us <= 300 && a.gain_share > 0 && a.gain_share <= 0.6);
    CHECK(*a.problem && *a.evidence && *a.action);
    CHECK_INT(stitch_profile_advice_get(profile, stitch_profile_advice_count(profile), &a), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_profile_advice_get(profile, SIZE_MAX, &a), STITCH_E_NOT_FOUND);
}

/* Callers that were compiled against shorter and longer structs, and such that have not set the size. */
TEST(structs_of_other_versions)
{
    struct {
        stitch_profile_verdict v;
        char more[64];
    } longer;
    struct {
        stitch_profile_advice a;
        char more[64];
    } longer_advice;
    need_context();
    CHECK_OK(make(&err));
    memset(&longer, 0x5a, sizeof(longer));
    longer.v.struct_size = offsetof(stitch_profile_verdict, time_us);
    CHECK_INT(stitch_profile_verdict_get(profile, 0, &longer.v), STITCH_OK);
    CHECK(*longer.v.bound);
    CHECK(((const char *)&longer.v.time_us)[0] == 0x5a); /* nothing beyond the size */
    longer.v.struct_size = sizeof(longer);
    CHECK_INT(stitch_profile_verdict_get(profile, 0, &longer.v), STITCH_OK);
    CHECK_NEAR(longer.v.time_us, 300, 1e-9);
    longer.v.struct_size = 0;
    CHECK_INT(stitch_profile_verdict_get(profile, 0, &longer.v), STITCH_E_INVALID);

    memset(&longer_advice, 0x5a, sizeof(longer_advice));
    longer_advice.a.struct_size = offsetof(stitch_profile_advice, gain_us);
    CHECK_INT(stitch_profile_advice_get(profile, 0, &longer_advice.a), STITCH_OK);
    CHECK_STR(longer_advice.a.rule, "uncoalesced");
    CHECK(((const char *)&longer_advice.a.gain_us)[0] == 0x5a);
    longer_advice.a.struct_size = 0;
    CHECK_INT(stitch_profile_advice_get(profile, 0, &longer_advice.a), STITCH_E_INVALID);
}

TEST(json)
{
    need_context();
    CHECK_OK(make(&err));
    const char *text = stitch_profile_json(profile);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    stitch__facts *again = NULL;
    CHECK(root);
    CHECK_INT(json_integer_value(json_object_get(root, "stitch_profile")), 1);
    const json_t *advice = json_object_get(root, "advice"), *facts = json_object_get(root, "facts");
    CHECK_STR(json_string_value(json_object_get(facts, "arch")), dev->info.arch); /* the device's, not the facts' */
    CHECK_INT(json_integer_value(json_object_get(facts, "multiprocessors")), dev->info.multiprocessors);
    CHECK_INT(json_array_size(json_object_get(advice, "kernels")), 2);
    CHECK_INT(json_array_size(json_object_get(advice, "advice")), stitch_profile_advice_count(profile));
    char *dumped = json_dumps(facts, 0);
    CHECK_OK(stitch__facts_read(ctx, dumped, strlen(dumped), &again, &err)); /* what is written can be read */
    CHECK_INT(again->kernel_count, 2);
    stitch__facts_free(again);
    free(dumped);
    json_decref(root);
    CHECK(stitch_profile_json(profile) == text);
}

TEST(text_keeps_its_budget)
{
    char *all = NULL, *text = NULL;
    need_context();
    CHECK_OK(make(&err));
    CHECK_OK(stitch_profile_text(profile, 0, &all, &err));
    CHECK_HAS(all, "uncoalesced");
    CHECK_HAS(all, "copy<float4>");
    CHECK_HAS(all, "program.cu:4");
    size_t len = strlen(all), before = 0;
    for (size_t max = 1; max < len + 200; max += 7) {
        CHECK_OK(stitch_profile_text(profile, max, &text, &err));
        if (strlen(text) > max)
            FAIL("%zu bytes of text for a budget of %zu", strlen(text), max);
        CHECK(stitch__utf8_valid(text, strlen(text)));
        if (max >= 300)
            CHECK_HAS(text, "uncoalesced"); /* the decisive fact goes last */
        before = strlen(text);
        stitch_free(text);
    }
    CHECK_INT(before, len);
    CHECK_ERR(stitch_profile_text(NULL, 0, &text, &err), STITCH_E_INVALID, "needs a profile");
    CHECK_ERR(stitch_profile_text(profile, 0, NULL, &err), STITCH_E_INVALID, "room for the text");
    stitch_free(all);
}

TEST(nothing_to_read)
{
    stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    need_context();
    stitch_profile_free(NULL);
    CHECK_STR(stitch_profile_json(NULL), "");
    CHECK_INT(stitch_profile_kernel_count(NULL), 0);
    CHECK_INT(stitch_profile_advice_count(NULL), 0);
    CHECK_INT(stitch_profile_verdict_get(NULL, 0, &v), STITCH_E_INVALID);
    CHECK_INT(stitch_profile_advice_get(NULL, 0, &a), STITCH_E_INVALID);
    CHECK(!stitch_report_profile(NULL));
    CHECK_OK(make(&err));
    CHECK_INT(stitch_profile_verdict_get(profile, 0, NULL), STITCH_E_INVALID);
    CHECK_INT(stitch_profile_advice_get(profile, 0, NULL), STITCH_E_INVALID);

    /* Facts of nothing at all. */
    stitch__facts *f = NULL;
    stitch_profile *empty = NULL;
    char *text = NULL;
    stitch__scope scope = stitch__scope_make(ctx, NULL, 0);
    CHECK_OK(stitch__facts_new(ctx, &f, &err));
    CHECK_OK(stitch__profile_make(ctx, dev, &scope, f, &empty, &err));
    CHECK_INT(stitch_profile_verdict_get(empty, SIZE_MAX, &v), STITCH_OK);
    CHECK_STR(v.bound, "unknown");
    CHECK_HAS(v.because, "nothing was observed");
    CHECK_INT(stitch_profile_verdict_get(empty, 0, &v), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_profile_advice_count(empty), 0);
    CHECK_OK(stitch_profile_text(empty, 0, &text, &err));
    CHECK(*text);
    stitch_free(text);
    stitch_profile_free(empty);
}

TEST(no_memory)
{
    need_context();
    memory.calls = 0;
    CHECK_OK(make(&err));
    int64_t needed = memory.calls, first;
    /* What the facts themselves need is the test's. */
    memory.calls = 0;
    stitch__facts_free(two_kernels());
    first = memory.calls;
    CHECK(needed > first + 5);
    for (int64_t at = first; at < needed; at++) {
        stitch_error *why = NULL;
        need_context();
        int64_t live = memory.live;
        memory.calls = 0;
        memory.refuse_at = at;
        int rc = make(&why);
        memory.refuse_at = -1;
        if (rc && rc != STITCH_E_NOMEM)
            FAIL("allocation %d: %s", (int)at, stitch_error_message(why));
        CHECK((rc == STITCH_OK) == (profile != NULL));
        stitch_error_free(why);
        stitch_profile_free(profile);
        profile = NULL;
        CHECK_INT(memory.live, live);
    }
}

/* ---- options and calls that cannot succeed ---- */

static int never_called(void *userdata)
{
    *(int *)userdata += 1;
    return 0;
}

TEST(options_are_checked)
{
    static const char *const good[] = {"lts__t_sectors.sum"};
    static const char *const bad[] = {"", "a b", "x;y", "lts__t_sectors.sum\n", "caf\xc3\xa9", NULL};
    char huge[STITCH__METRIC_NAME + 2]; /* a byte too long */
    const char *many[65];
    int called = 0;
    need_context();
    memset(huge, 'a', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = 0;
    for (size_t i = 0; i < STITCH__COUNT(many); i++)
        many[i] = good[0];
    const struct {
        int32_t profile;
        const char *const *metrics;
        size_t metric_count;
        size_t images; /* image_count, with images NULL (1) or a list of NULL (2) */
        const char *message;
    } rows[] = {
        {-1, NULL, 0, 0, "profile is -1"},
        {4, NULL, 0, 0, "profile is 4"},
        {STITCH_PROFILE_NEVER, NULL, 0, 0, "STITCH_PROFILE_NEVER"},
        {0, NULL, 1, 0, "metrics is NULL"},
        {0, many, 65, 0, "metric_count is 65"},
        {0, &bad[0], 1, 0, "metrics[0]"},
        {0, &bad[1], 1, 0, "metrics[0]"},
        {0, &bad[2], 1, 0, "metrics[0]"},
        {0, &bad[3], 1, 0, "metrics[0]"},
        {0, &bad[4], 1, 0, "metrics[0]"},
        {0, &bad[5], 1, 0, "metrics[0]"},
        {0, NULL, 0, 1, "images is NULL"},
        {0, NULL, 0, 2, "images[0] is NULL"},
    };
    static const stitch_image *const no_image[] = {NULL};
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
        stitch_profile *p = (stitch_profile *)&o;
        o.profile = rows[i].profile;
        o.metrics = rows[i].metrics;
        o.metric_count = rows[i].metric_count;
        o.image_count = rows[i].images != 0;
        o.images = rows[i].images == 2 ? no_image : NULL;
        CHECK_ERR(stitch_profile_region(ctx, never_called, &called, &o, &p, &err), STITCH_E_INVALID, rows[i].message);
        CHECK(!p);
    }
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    const char *const long_name[] = {huge};
    o.metrics = long_name;
    o.metric_count = 1;
    CHECK_ERR(stitch_profile_region(ctx, never_called, &called, &o, &profile, &err), STITCH_E_INVALID, "metrics[0]");
    o = (stitch_profile_options)STITCH_PROFILE_OPTIONS_INIT;
    o.struct_size = 3;
    CHECK(stitch_profile_region(ctx, never_called, &called, &o, &profile, &err) == STITCH_E_INVALID);
    stitch_error_free(err);
    err = NULL;
    CHECK_INT(called, 0);

    /* The most that there can be, and where defaults come from. */
    stitch__collect_options what;
    stitch_profile_options resolved = STITCH_PROFILE_OPTIONS_INIT;
    o = (stitch_profile_options)STITCH_PROFILE_OPTIONS_INIT;
    o.metrics = many;
    o.metric_count = 64;
    o.profile = STITCH_PROFILE_FULL;
    CHECK_OK(stitch__profile_options_resolve(ctx, &o, &resolved, &what, &err));
    CHECK_INT(what.parts, STITCH__PARTS);
    CHECK_INT(what.set, STITCH__METRIC_FULL);
    CHECK_INT(what.extra_count, 64);
    CHECK(resolved.timeout_ms > 0);
    resolved = (stitch_profile_options)STITCH_PROFILE_OPTIONS_INIT;
    CHECK_OK(stitch__profile_options_resolve(ctx, NULL, &resolved, &what, &err));
    CHECK_INT(what.parts, STITCH__PARTS);
    CHECK_INT(what.set, STITCH__METRIC_CHEAP);
    o.profile = STITCH_PROFILE_TIMELINE;
    CHECK_OK(stitch__profile_options_resolve(ctx, &o, &resolved, &what, &err));
    CHECK_INT(what.parts, STITCH__PART_TIMELINE);

    memset(&o, 0x5a, sizeof(o));
    CHECK_INT(stitch_profile_options_init(&o, sizeof(o)), STITCH_OK);
    CHECK_INT(o.struct_size, sizeof(o));
    CHECK_INT(o.metric_count + o.image_count + (size_t)o.timeout_ms + (size_t)o.profile, 0);
    CHECK_INT(stitch_profile_options_init(NULL, sizeof(o)), STITCH_E_INVALID);
}

TEST(calls_that_cannot_succeed)
{
    int called = 0;
    stitch_task *task = NULL;
    need_context();
    CHECK_ERR(stitch_profile_region(NULL, never_called, &called, NULL, &profile, &err), STITCH_E_INVALID, "a context");
    CHECK_ERR(stitch_profile_region(ctx, NULL, &called, NULL, &profile, &err), STITCH_E_INVALID, "a function");
    CHECK_ERR(stitch_profile_region(ctx, never_called, &called, NULL, NULL, &err), STITCH_E_INVALID, "room");
    CHECK_ERR(stitch_profile_region(ctx, never_called, &called, NULL, &profile, &err), STITCH_E_UNSUPPORTED,
              "simulated");
    CHECK_INT(stitch_profile_region(ctx, NULL, NULL, NULL, &profile, NULL), STITCH_E_INVALID);
    CHECK_INT(called, 0);
    CHECK_OK(stitch_task_parse(ctx,
                               "{\"stitch_task\":1,\"name\":\"t\",\"dims\":{\"N\":4},\"inputs\":[{\"name\":\"x\","
                               "\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\","
                               "\"shape\":[\"N\"]}]}",
                               NULL, &task, &err));
    CHECK_ERR(stitch_profile_task(NULL, task, NULL, &profile, &err), STITCH_E_INVALID, "a context");
    CHECK_ERR(stitch_profile_task(ctx, NULL, NULL, &profile, &err), STITCH_E_INVALID, "a task");
    CHECK_ERR(stitch_profile_task(ctx, task, NULL, NULL, &err), STITCH_E_INVALID, "room");
    CHECK(stitch_profile_task(ctx, task, NULL, &profile, &err) != STITCH_OK); /* no reference; and no GPU */
    CHECK(!profile && *stitch_error_message(err));
    stitch_error_free(err);
    err = NULL;
    stitch_task_free(task);
}

/* Where nothing is timed, a kernel's share of the work is that of all its launches. */
TEST(work_that_was_counted)
{
    need_context();
    stitch__facts *f = h200(ctx);
    stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
    stitch__scope scope = stitch__scope_make(ctx, NULL, 0);
    f->wall_us = f->busy_us = 0;
    for (int i = 0; i < 2; i++) {
        stitch__kernel_fact *k = timed_kernel(f, i ? "often" : "once", 0);
        k->launches = i ? 99 : 1;
        METRIC(k, INST) = i ? 100 : 150;
        METRIC(k, FLOPS) = 10;
        METRIC(k, GLOBAL_BYTES) = 1000;
    }
    CHECK_OK(stitch__profile_make(ctx, dev, &scope, f, &profile, &err));
    CHECK_INT(stitch_profile_verdict_get(profile, SIZE_MAX, &v), STITCH_OK);
    CHECK_HAS(v.because, "most of it in often (99 %)");
}

static const check_test tests[] = {
    RUN(verdicts_and_advice),   RUN(structs_of_other_versions), RUN(json),
    RUN(text_keeps_its_budget), RUN(nothing_to_read),           RUN(no_memory),
    RUN(options_are_checked),   RUN(calls_that_cannot_succeed), RUN(work_that_was_counted),
};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    stitch_profile_free(profile);
    stitch_error_free(err);
    stitch_context_free(ctx);
    if (memory.live) {
        printf("# %d blocks are left\n", (int)memory.live);
        rc = 1;
    }
    return rc;
}
