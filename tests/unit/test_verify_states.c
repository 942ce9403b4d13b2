/* SPDX-License-Identifier: MIT
 *
 * What is timed of a task with states, and what a timed run finds in memory that it shares, on a driver without a GPU:
 * kernels are C functions here. Needs NVRTC.
 */
#include "runner/runner.h"
#include "verify_fixture.h"

static float seen[4096];  /* a state's first element before each run of the candidate, */
static float given[4096]; /* and the input's */
static int wrong_step;    /* the step of a trial of which the candidate has one element wrong, or -1 */

/* Which step after zeros it is, from what the step before left in the state. */
static int which_step(float x, float s)
{
    static float last;
    static int n;

    if (s == 0)
        n = 0;
    else if (s == last)
        n++;
    last = s + x;
    return n;
}

/* y = x + 2 s, and x is added to s, which remembers all steps. */
static void step(const float *x, float *s, double *y)
{
    for (int i = 0; i < N; i++) {
        y[i] = x[i] + 2.0 * s[i];
        s[i] += x[i];
    }
}

static void run_step_oracle(void **params)
{
    step(PTR(0), PTR(1), PTR(2));
}

static void run_step(void **params)
{
    float *s = PTR(1), *y = PTR(2);
    double exact[N];

    CHECK(calls < (int)STITCH__COUNT(seen));
    given[calls] = *(const float *)PTR(0);
    seen[calls++] = s[0];
    int n = which_step(*(const float *)PTR(0), s[0]);
    step(PTR(0), s, exact);
    for (int i = 0; i < N; i++)
        y[i] = (float)exact[i] + (float)(n == wrong_step && i == N / 2);
}

static fake_kernel kernels[] = {
    VERIFY_KERNELS,
    {"oracle", 4, NULL, run_step_oracle, 100, 0},
    {"candidate", 4, NULL, run_step, 10, 0},
};

#define STEP(name, out)                                                                                                \
    "extern \"C\" __global__ void " name "(const float *x, float *s, " out " *y, int n) "                              \
    "{ int i = threadIdx.x; if (i < n) { y[i] = x[i] + 2 * s[i]; s[i] += x[i]; } }"
#define STEP_PLAN(name)                                                                                                \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"" name                                                                       \
    "\",\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"s\",\"y\",{\"i32\":\"N\"}]}]}"

static stitch_task *task(void)
{
    static const char head[] =
        "{\"stitch_task\":1,\"name\":\"step\",\"dims\":{\"N\":64},\"inputs\":[{\"name\":\"x\","
        "\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"states\":[{\"name\":\"s\",\"dtype\":\"f32\","
        "\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]}";
    stitch_task *t = NULL;

    CHECK_OK(stitch_task_parse(ctx, head, NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_program(t, program(ctx, STEP("oracle", "double"), STEP_PLAN("oracle")),
                                               STITCH_DTYPE_F64, &err));
    return t;
}

/* States are cleared before each timed run, but it is not the step from zeros that is timed: a program could leave out
 * what zeros make zero. */
TEST(not_the_step_from_zeros)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}};
    enum { TIMED = 12, AFTER = 3, STEPS = 2 };
    stitch_verify_options o = quick(2, TIMED);

    o.profile = STITCH_PROFILE_NEVER;
    wrong_step = -1;
    reset_driver(kernels, sizes, STITCH__COUNT(kernels));
    need_compiler();
    get_verdict(&o, task(), program(ctx, STEP("candidate", "float"), STEP_PLAN("candidate")));
    if (got.s.failed_stage)
        FAIL("%s", got.text);
    CHECK_NEAR(got.s.median_us, 10, 1e-3);
    CHECK_NEAR(got.s.baseline_us, 100, 1e-3);
    CHECK_INT(json_integer_value(json_object_get(candidate_time(), "checked_runs_passed")), TIMED);
    const json_t *baseline = json_array_get(json_object_get(json_object_get(got.json, "time"), "baselines"), 0);
    CHECK_INT(json_integer_value(json_object_get(baseline, "checked_runs")), 3);        /* each tenth, and the last */
    CHECK_INT(json_integer_value(json_object_get(baseline, "checked_runs_passed")), 3); /* of the same step */
    for (int i = 0; i < STEPS * TIMED; i++)
        CHECK((seen[calls - STEPS * (AFTER + TIMED) + i] != 0) == (i % STEPS != 0));
    /* Nor one on the inputs of the step before, where a state could keep what was made of them. */
    for (int i = 1; i < STEPS * TIMED; i++)
        CHECK(given[calls - STEPS * (AFTER + TIMED) + i] != given[calls - STEPS * (AFTER + TIMED) + i - 1]);
}

/* The state does not carry what was wrong before: each step is judged, not only the last. */
TEST(one_wrong_step)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}};
    enum { STEPS = 3 };
    stitch_verify_options o = quick(1, 3);

    for (wrong_step = 0; wrong_step < STEPS; wrong_step++) {
        reset_driver(kernels, sizes, STITCH__COUNT(kernels));
        need_compiler();
        get_verdict(&o, task(), program(ctx, STEP("candidate", "float"), STEP_PLAN("candidate")));
        CHECK_INT(got.s.failed_stage, STITCH_STAGE_CORRECT);
        CHECK_HAS(got.text, "1 of 64 elements are wrong");
    }
}

static bool all_are(CUdeviceptr at, size_t bytes, int byte)
{
    const unsigned char *data = (const unsigned char *)(uintptr_t)at;

    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (unsigned char)byte)
            return false;
    return true;
}

/* The place of an output in one set is that of the other set for the main baseline, which may just have had the same
 * inputs: a timed run must not find the answer there. Other runs leave it, for whoever still has to fetch it. */
TEST(no_answer_in_the_other_place)
{
    static const size_t sizes[][12] = {VERIFY_KERNEL_SIZES, {8, 8, 8, 4}, {8, 8, 8, 4}};
    enum { Y = 2, OLD = 0x11 };
    const stitch__load how = {.poison = -1};
    stitch_compile_options compile = STITCH_COMPILE_OPTIONS_INIT;
    stitch__scope scope = {.ctx = NULL};
    stitch__run run = STITCH__RUN_INIT;
    CUdeviceptr places[STITCH__SETS][3] = {{0}};
    stitch__prepared facts;
    stitch__device *dev;
    stitch__runner *r;
    stitch__took took;
    int code = STITCH_OK;

    reset_driver(kernels, sizes, STITCH__COUNT(kernels));
    need_compiler();
    scope.ctx = ctx;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    for (int set = 0; set < STITCH__SETS; set++)
        CHECK_OK(stitch__mem_alloc(dev, N * sizeof(float), "y", &places[set][Y], &err));
    stitch__runner_options options = {.places = {places[0], places[1]}};
    stitch_task *t = task();
    stitch_program *p = program(ctx, STEP("candidate", "float"), STEP_PLAN("candidate"));
    compile.arch = dev->info.arch;
    CHECK_OK(stitch_program_validate(p, t->iface, dev->info.arch, &err));
    CHECK_OK(stitch_program_compile(p, &compile, NULL, &err));
    CHECK_OK(stitch__runner_open(t, p, dev, &options, &r, &err));
    stitch__candidate c = stitch__runner_candidate(r);
    CHECK_OK(c.ops->load(c.self, &scope, &how, &code, &err, &err));
    CHECK_OK(c.ops->prepare(c.self, &scope, &facts, &code, &err, &err));
    run.poison = STITCH__POISON_A;
    run.draw = 1;
    for (run.set = 0; run.set < STITCH__SETS; run.set++) {
        CUdeviceptr other = places[1 - run.set][Y];
        memset((void *)(uintptr_t)other, OLD, N * sizeof(float));
        CHECK_OK(c.ops->run(c.self, &scope, &run, &code, &err, &err));
        CHECK(all_are(other, N * sizeof(float), OLD));
        CHECK_OK(c.ops->timed_run(c.self, &scope, &run, &took, &code, &err, &err));
        CHECK_INT(code, STITCH_OK);
        CHECK(all_are(other, N * sizeof(float), STITCH__POISON_A));
        CHECK(!all_are(places[run.set][Y], N * sizeof(float), STITCH__POISON_A));
    }
    stitch__runner_close(r);
    for (int set = 0; set < STITCH__SETS; set++)
        stitch__mem_free(dev, places[set][Y]);
    stitch__device_leave(dev);
    stitch_program_free(p);
    stitch_task_free(t);
}

TEST_MAIN(RUN(not_the_step_from_zeros), RUN(one_wrong_step), RUN(no_answer_in_the_other_place), RUN(nothing_is_left))
