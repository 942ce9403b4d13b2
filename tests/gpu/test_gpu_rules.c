/* SPDX-License-Identifier: MIT
 *
 * Each rule of the advice on a device: said of something small that has its problem, not said of a twin that has not.
 * The profiles' figures are printed, so that a rule that does not hold where it should shows why. test_gpu_profile.c
 * has the rest of the rules; tests/unit/test_profile_rules.c has them all, by facts that are made up.
 */
#include "profile/profile.h"
#include "profile_check.h"
#include "rule_programs.h"
#include "verify_tasks.h"
#include "cupti_device.h"

static stitch__device *dev;
static const stitch__driver *drv;
static stitch_image *image;
static stitch__module module;
static CUstream stream;
static CUdeviceptr x, y;

static void need_profiler(void)
{
    (void)need_cupti_library();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    drv = dev->drv;
}

/* ---- what was seen ----------------------------------------------------------------------------------------------- */

static void print_members(const char *what, const json_t *object)
{
    const char *key;
    json_t *value;
    int column = printf("#     %s:", what);
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_number(value))
            continue;
        if (column > 110)
            column = printf("\n#      ") - 1;
        column += printf(" %s %.4g", key, json_number_value(value));
    }
    printf("\n");
}

/* What rules look at, of the run and of the three kernels with the most time. */
static void print_facts(const char *what, const stitch_profile *p)
{
    static const char *const missing[] = {"facts.no_timeline", "facts.no_counters", "facts.no_samples"};
    stitch_profile_verdict v = verdict_of_run(p);
    printf("#   %s: %.1f us, bound by %s (%s)\n", what, v.time_us, v.bound, v.because);
    print_members("run", profile_at(p, "facts.run"));
    for (size_t i = 0; i < STITCH__COUNT(missing); i++)
        if (*said(p, missing[i]))
            printf("#     %s: %s\n", missing[i], said(p, missing[i]));
    for (size_t i = 0; i < stitch_profile_kernel_count(p) && i < 3; i++) {
        char path[64], name[80];
        snprintf(path, sizeof(path), "facts.kernels.%zu.name", i);
        snprintf(name, sizeof(name), "%.60s", said(p, path));
        snprintf(path, sizeof(path), "facts.kernels.%zu", i);
        print_members(name, profile_at(p, path));
        snprintf(path, sizeof(path), "facts.kernels.%zu.metrics", i);
        print_members("counted", profile_at(p, path));
    }
    for (size_t i = 0; i < stitch_profile_advice_count(p); i++) {
        stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
        CHECK_INT(stitch_profile_advice_get(p, i, &a), STITCH_OK);
        printf("#     %s%s%s, %.2f us, line %u: %s\n", a.rule, *a.kernel ? " of " : "", a.kernel, a.gain_us, a.line,
               a.evidence);
    }
}

/* Whether the rule is said where it is wanted, or not said where not. */
static bool right(const char *rule, const stitch_profile *p, bool wanted)
{
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    print_facts(wanted ? "with" : "without", p);
    bool said = find_advice(p, rule, &a);
    if (said != wanted)
        printf("# %s is %s\n", rule, said ? "said of the twin" : "not said of what has the problem");
    return said == wanted;
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

/* The device is entered afterwards. */
static void open_region(void)
{
    const size_t bytes = (size_t)FLOATS * 4;
    need_profiler();
    CHECK_OK(stitch__device_enter(dev, &err));
    if (image)
        return;
    CHECK_OK(stitch_compile(ctx, kernels_source, NULL, &image, &err));
    CHECK_OK(stitch__module_load(dev, image, &module, &err));
    CHECK_INT(drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_OK(stitch__mem_alloc(dev, bytes, "x", &x, &err));
    CHECK_OK(stitch__mem_alloc(dev, bytes, "y", &y, &err));
    CHECK_INT(drv->MemsetD8Async(x, 0, bytes, stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemsetD8Async(y, 0, bytes, stream), CUDA_SUCCESS);
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
}

static int start(const launch *l)
{
    size_t at;
    int rounds = l->rounds;
    void *args[] = {&x, &y, &rounds};
    if (stitch_image_find(image, l->kernel, &at))
        return -1;
    return drv->LaunchKernel(module.kernels[at], (unsigned)(l->blocks * dev->info.multiprocessors), 1, 1, l->threads, 1,
                             1, 0, stream, args, NULL);
}

static bool region_is_right(const char *rule, stitch_region_fn fn, const void *userdata, bool wanted)
{
    const char *const sources[] = {kernels_source};
    const stitch_image *const images[] = {image};
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;
    int64_t begin = stitch__now_ns();
    o.profile = STITCH_PROFILE_FULL;
    o.images = images;
    o.sources = sources;
    o.image_count = 1;
    CHECK_OK(stitch_profile_region(ctx, fn, (void *)userdata, &o, &p, &err));
    printf("# %s: %.0f ms\n", rule, (double)(stitch__now_ns() - begin) / 1e6);
    need_all_parts(p);
    bool is_right = right(rule, p, wanted);
    check_gains(rule, p);
    stitch_profile_free(p);
    return is_right;
}

static int call_launch(void *userdata)
{
    return start(userdata);
}

/* ---- on the simulator, as a program ------------------------------------------------------------------------------ */

static bool counts_are_right(const char *rule, const launch *l, bool wanted)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    char head[512], plan[256];
    snprintf(head, sizeof(head),
             HEAD("rule", "\"X\":65536,\"Y\":%u", TENSOR("x", "\"X\""), TENSOR("y", "\"Y\""), "f32", "1e-3"),
             8 * l->threads);
    snprintf(plan, sizeof(plan), RUN_OF(KERNEL_STEP("%s", "8", "%u", "\"x\",\"y\",{\"i32\":%d}")), l->kernel,
             l->threads, l->rounds);
    stitch_task *t = make_task(head, kernels_reference, plan, NULL);
    o.trials = 1;
    o.where = STITCH_VERIFY_HERE;
    o.simulate = STITCH_SIMULATE_NEVER;
    o.profile = STITCH_PROFILE_FULL;
    stitch_report *r = verify(t, kernels_source, plan, &o);
    if (!stitch_report_profile(r))
        FAIL("%s", stitch_report_text(r));
    bool is_right = right(rule, stitch_report_profile(r), wanted);
    stitch_report_free(r);
    stitch_task_free(t);
    return is_right;
}

static void check_launches(const char *rule, bool counted, const launch *with, const launch *without)
{
    need_device();
    if (device.simulated && !counted)
        SKIP("needs more than the simulator counts");
    if (device.simulated) {
        bool has = counts_are_right(rule, with, true), has_not = counts_are_right(rule, without, false);
        CHECK(has && has_not);
        return;
    }
    open_region();
    bool has = region_is_right(rule, call_launch, with, true);
    bool has_not = region_is_right(rule, call_launch, without, false);
    stitch__device_leave(dev);
    CHECK(has && has_not);
}

#define LAUNCH_TEST(rule, counted, with, without)                                                                      \
    TEST(rule)                                                                                                         \
    {                                                                                                                  \
        static const launch has = with, has_not = without;                                                             \
        check_launches(#rule, counted, &has, &has_not);                                                                \
    }
LAUNCHES(LAUNCH_TEST)
#undef LAUNCH_TEST

/* ---- what the host does ------------------------------------------------------------------------------------------ */

typedef struct manners {
    int launches;
    bool waits;     /* after each launch */
    bool allocates; /* and frees, before each */
    int64_t thinks; /* ns before each */
} manners;

static int call_host(void *userdata)
{
    static const launch l = {"one_chain", 1, 128, 40};
    const manners *m = userdata;
    int failed = 0;
    for (int i = 0; i < m->launches; i++) {
        for (int64_t end = stitch__now_ns() + m->thinks; m->thinks && stitch__now_ns() < end;)
            continue;
        CUdeviceptr memory = 0;
        failed |= m->allocates ? drv->MemAlloc(&memory, 64 << 20) : CUDA_SUCCESS;
        failed |= memory ? drv->MemFree(memory) : CUDA_SUCCESS;
        failed |= start(&l);
        if (m->waits)
            failed |= drv->StreamSynchronize(stream);
    }
    return failed;
}

static void check_host(const char *rule, const manners *with)
{
    static const manners ahead = {.launches = 16};
    open_region();
    bool has = region_is_right(rule, call_host, with, true);
    bool has_not = region_is_right(rule, call_host, &ahead, false);
    stitch__device_leave(dev);
    CHECK(has && has_not);
}

TEST(host_bound)
{
    static const manners m = {.launches = 16, .thinks = 50000};
    check_host("host_bound", &m);
}

TEST(slow_calls)
{
    static const manners m = {.launches = 16, .allocates = true};
    check_host("slow_calls", &m);
}

TEST(sync_bound)
{
    static const manners m = {.launches = 16, .waits = true};
    check_host("sync_bound", &m);
}

/* ---- programs: they come last, for there are no samples once a graph was traced ---------------------------------- */

static bool program_is_right(const char *rule, const char *head, const twin *t, bool wanted)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;
    need_profiler();
    stitch_task *task = make_task(head, t->source, t->plan, t->source); /* its baseline is what is profiled */
    o.profile = STITCH_PROFILE_FULL;
    CHECK_OK(stitch_profile_task(ctx, task, &o, &p, &err));
    printf("# %s\n", rule);
    need_all_parts(p);
    bool is_right = right(rule, p, wanted);
    check_gains(rule, p);
    stitch_profile_free(p);
    stitch_task_free(task);
    return is_right;
}

static void check_programs(const char *rule, const char *head, const twin pair[2])
{
    bool has = program_is_right(rule, head, &pair[0], true), has_not = program_is_right(rule, head, &pair[1], false);
    CHECK(has && has_not);
}

TEST(conversions)
{
    check_programs("conversions", HALVES_HEAD, halves);
}

TEST(l2_thrash)
{
    check_programs("l2_thrash", PASSES_HEAD, passes);
}

static const check_test tests[] = {
#define LAUNCH_TEST(rule, counted, with, without) RUN(rule),
    LAUNCHES(LAUNCH_TEST)
#undef LAUNCH_TEST
        RUN(host_bound),
    RUN(slow_calls),
    RUN(sync_bound),
    RUN(conversions),
    RUN(l2_thrash),
};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    if (image) {
        stitch__module_unload(&module);
        stitch_image_free(image);
    }
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc;
}
