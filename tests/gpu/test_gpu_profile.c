/* SPDX-License-Identifier: MIT
 *
 * Profiles of real work. Six programs whose problem is known are diagnosed, in a worker and in this process: what
 * bounds them, which advice comes and which does not, and the line of source; being profiled changes nothing else in a
 * report. Then programs that are awkward to profile, tasks, regions of a host's own work, and what is left behind.
 */
#include <math.h>

#include "profile/exclusive.h"
#include "profile/profile.h"
#include "profile_check.h"
#include "verify_tasks.h"
#include "cupti_device.h"

static stitch__device *dev;
static const stitch__driver *drv;

static void need_profiler(void)
{
    (void)need_cupti_library();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    drv = dev->drv;
}

static stitch_verify_options few(int where, int profile)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.trials = 2;
    o.iterations = 12;
    o.warmup = 2;
    o.seed = 42;
    o.simulate = STITCH_SIMULATE_NEVER;
    o.where = where;
    o.profile = profile;
    return o;
}

/* ---- six programs ------------------------------------------------------------------------------------------------ */

static double stage_ms(const stitch_report *r, int want, const char **message)
{
    double ms = 0;
    int status = -1;
    CHECK_INT(stitch_report_stage(r, STITCH_STAGE_PROFILE, &status, &ms, message), STITCH_OK);
    if (status != want)
        FAIL("stage profile has status %d: %s", status, *message);
    return ms;
}

static void summary_of(const stitch_report *r, stitch_report_summary *s)
{
    *s = (stitch_report_summary)STITCH_REPORT_SUMMARY_INIT;
    CHECK_INT(stitch_report_summary_get(r, s), STITCH_OK);
    if (s->failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(s->correct, 1);
    CHECK_INT(s->timed, 1);
    CHECK(s->median_us > 0 && s->speedup > 0);
}

/* Verified once without a profile and once with everything: the profile is right, and all else is the same. */
static void diagnose(const example *e, int where)
{
    stitch_verify_options o = few(where, STITCH_PROFILE_NEVER);
    stitch_report_summary plain, profiled;
    stitch_report *r;
    const char *message = "", *place = where == STITCH_VERIFY_HERE ? "here" : "in a worker";
    char what[128];
    need_profiler();
    stitch_task *t = make_task(e->head, e->reference, e->plan, NULL);

    r = verify(t, e->source, e->plan, &o);
    summary_of(r, &plain);
    stage_ms(r, STITCH_STAGE_SKIPPED, &message);
    CHECK_HAS(message, "not asked for");
    CHECK(!stitch_report_profile(r));
    stitch_report_free(r);

    o.profile = STITCH_PROFILE_FULL;
    r = verify(t, e->source, e->plan, &o);
    summary_of(r, &profiled);
    double ms = stage_ms(r, STITCH_STAGE_PASSED, &message);
    const stitch_profile *p = stitch_report_profile(r);
    CHECK(p);
    CHECK_STR(message, verdict_of_run(p).because);
    snprintf(what, sizeof(what), "%s, %s: stage profile took %.0f ms", e->d.what, place, ms);
    print_profile(what, p);
    printf("#   median %.2f us with and %.2f us without being profiled later, speed-up %.3f and %.3f\n",
           profiled.median_us, plain.median_us, profiled.speedup, plain.speedup);
    need_all_parts(p);
    check_diagnosis(&e->d, e->source, p);
    CHECK_INT(profiled.isolated, where == STITCH_VERIFY_WORKER);
    CHECK(profiled.max_abs_error == plain.max_abs_error && profiled.mean_abs_error == plain.mean_abs_error &&
          profiled.max_rel_error == plain.max_rel_error);
    CHECK_INT(profiled.elements, plain.elements);
    CHECK_INT(profiled.mismatches, plain.mismatches);
    CHECK_INT(profiled.launches, plain.launches);
    CHECK_NEAR(profiled.median_us, plain.median_us, 0.15 * plain.median_us + 2);
    CHECK_NEAR(profiled.speedup, plain.speedup, 0.2 * plain.speedup);
    CHECK_NEAR(json_number_value(profile_at(p, "facts.run.wall_us")), profiled.median_us, 1e-3 * profiled.median_us);
    CHECK(json_equal(report_at(r, "profile"), (json_t *)profile_at(p, "")));
    stitch_report_free(r);
    stitch_task_free(t);
}

static void check_tuned(int where)
{
    stitch_verify_options o = few(where, STITCH_PROFILE_FULL);
    stitch_report_summary s;
    const char *message;
    diagnose(&tuned, where);
    stitch_task *t = make_task(tuned.head, tuned.reference, tuned.plan, NULL);
    stitch_report *r = verify(t, tuned.source, tuned.plan, &o);
    summary_of(r, &s);
    stage_ms(r, STITCH_STAGE_PASSED, &message);
    stitch_profile_verdict v = verdict_of_run(stitch_report_profile(r));
    CHECK(v.reached >= 0.8 && v.reached <= 1 && v.limit_us <= v.time_us);
    CHECK_HAS(v.because, "DRAM at");
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(a_naive_matmul_in_a_worker)
{
    diagnose(&matmul, STITCH_VERIFY_WORKER);
}
TEST(a_naive_matmul_here)
{
    diagnose(&matmul, STITCH_VERIFY_HERE);
}
TEST(an_uncoalesced_transpose_in_a_worker)
{
    diagnose(&transpose, STITCH_VERIFY_WORKER);
}
TEST(an_uncoalesced_transpose_here)
{
    diagnose(&transpose, STITCH_VERIFY_HERE);
}
TEST(bank_conflicts_in_a_worker)
{
    diagnose(&conflicts, STITCH_VERIFY_WORKER);
}
TEST(bank_conflicts_here)
{
    diagnose(&conflicts, STITCH_VERIFY_HERE);
}
TEST(a_chain_of_launches_in_a_worker)
{
    diagnose(&chain, STITCH_VERIFY_WORKER);
}
TEST(a_chain_of_launches_here)
{
    diagnose(&chain, STITCH_VERIFY_HERE);
}
TEST(copies_in_a_worker)
{
    diagnose(&copies, STITCH_VERIFY_WORKER);
}
TEST(copies_here)
{
    diagnose(&copies, STITCH_VERIFY_HERE);
}
TEST(a_tuned_kernel_in_a_worker)
{
    check_tuned(STITCH_VERIFY_WORKER);
}
TEST(a_tuned_kernel_here)
{
    check_tuned(STITCH_VERIFY_HERE);
}

/* ---- awkward programs -------------------------------------------------------------------------------------------- */

static stitch_report *profiled(stitch_task *t, const char *source, const char *plan, stitch_verify_options *o)
{
    stitch_report *r = verify(t, source, plan, o);
    const char *message = "";
    stitch_report_summary s;
    summary_of(r, &s);
    double ms = stage_ms(r, STITCH_STAGE_PASSED, &message);
    printf("# stage profile: %.0f ms, %s\n", ms, message);
    CHECK(stitch_report_profile(r));
    return r;
}

TEST(a_product_of_the_library_and_kernels)
{
    static const char head[] = HEAD("layer", "\"N\":1024", TENSOR("a", "\"N\",\"N\"") "," TENSOR("b", "\"N\",\"N\""),
                                    TENSOR("y", "\"N\",\"N\""), "tf32", "1e-1");
    static const char reference[] =
        "extern \"C\" __global__ void dense(const float *a, const float *b, double *y, int n)\n{\n"
        "    int r = blockIdx.y, c = blockIdx.x * 256 + threadIdx.x;\n    double sum = 0;\n"
        "    for (int k = 0; k < n; k++) sum += (double)a[r * n + k] * b[k * n + c];\n"
        "    y[r * n + c] = sum > 0 ? sum * 2 : 0;\n}\n";
    static const char source[] = "extern \"C\" __global__ void twice(const float *h, float *t, int n)\n"
                                 "{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) t[i] = h[i] * 2; }\n"
                                 "extern \"C\" __global__ void relu(const float *t, float *y, int n)\n"
                                 "{ int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = fmaxf(t[i], 0); }\n";
    static const char plan[] =
        "{\"stitch\":1,\"buffers\":{\"h\":{\"dtype\":\"f32\",\"shape\":[\"N\",\"N\"]},"
        "\"t\":{\"dtype\":\"f32\",\"shape\":[\"N\",\"N\"]}},\"run\":["
        "{\"gemm\":{\"a\":\"a\",\"b\":\"b\",\"c\":\"h\",\"m\":\"N\",\"n\":\"N\",\"k\":\"N\",\"compute\":\"tf32\"}}"
        "," KERNEL_STEP("twice", "\"N*N/256\"", "256",
                        "\"h\",\"t\",{\"i32\":\"N*N\"}") "," KERNEL_STEP("relu", "\"N*N/256\"", "256",
                                                                         "\"t\",\"y\",{\"i32\":\"N*"
                                                                         "N\"}") "]}";
    stitch_verify_options o = few(STITCH_VERIFY_WORKER, STITCH_PROFILE_FULL);
    bool seen[3] = {false, false, false};
    need_profiler();
    stitch_task *t =
        make_task(head, reference,
                  RUN_OF(KERNEL_STEP("dense", "\"N/256\",\"N\"", "256", "\"a\",\"b\",\"y\",{\"i32\":\"N\"}")), NULL);
    stitch_report *r = profiled(t, source, plan, &o);
    const stitch_profile *p = stitch_report_profile(r);
    CHECK(json_is_string(report_at(r, "environment.cublaslt"))); /* a product is computed with it */
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;

    print_profile("a product and two kernels", p);
    need_all_parts(p);
    CHECK(json_is_true(profile_at(p, "facts.library_steps")));
    for (size_t i = 0; i < stitch_profile_kernel_count(p); i++) {
        char path[64];
        snprintf(path, sizeof(path), "facts.kernels.%zu", i);
        const json_t *k = profile_at(p, path);
        const json_t *step = json_object_get(k, "step");
        CHECK(json_is_integer(step));
        int64_t at = json_integer_value(step);
        CHECK(at >= 0 && at < 3);
        seen[at] = true;
        CHECK_INT(json_is_true(json_object_get(k, "library")), at == 0);
        CHECK(json_is_number(json_object_get(json_object_get(k, "metrics"), "dram_bytes")));
    }
    CHECK(seen[0] && seen[1] && seen[2]);
    CHECK(find_advice(p, "fusable_neighbours", &a));
    CHECK(a.step == 0 || a.step == 1);
    check_gains("a product and two kernels", p);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(three_thousand_launches)
{
    static const char steps[] = KERNEL_STEP("first", "\"ceil_div(N, 256)\"", "256",
                                            CHAIN_ARGS) ",{\"repeat\":{"
                                                        "\"var\":\"i\",\"count\":3000,\"steps\":[" KERNEL_STEP(
                                                            "next", "\"ceil_div(N, 256)\"", "256", CHAIN_ARGS) "]}}";
    char plan[sizeof(steps) + 64];
    stitch_verify_options o = few(STITCH_VERIFY_WORKER, STITCH_PROFILE_FULL);
    const char *message;
    need_profiler();
    snprintf(plan, sizeof(plan), "{\"stitch\":1,\"run\":[%s]}", steps);
    stitch_task *t = make_task(chain.head, chain.reference, plan, NULL);
    stitch_report *r = profiled(t, chain.source, plan, &o);
    const stitch_profile *p = stitch_report_profile(r);

    print_profile("3001 launches", p);
    double ms = stage_ms(r, STITCH_STAGE_PASSED, &message);
    printf("# stage profile took %.0f ms\n", ms);
    CHECK(ms < 5000);
    CHECK_STR(verdict_of_run(p).bound, "launch");
    CHECK_INT(json_integer_value(profile_at(p, "facts.run.launches")), 3001);
    CHECK_STR(said(p, "facts.kernels.0.name"), "next");
    CHECK_INT(json_integer_value(profile_at(p, "facts.kernels.0.launches")), 3000);
    if (!strstr(said(p, "facts.no_counters"), "permission")) {
        CHECK_HAS(said(p, "facts.no_counters"), "of all but 17 of 3001 launches");
        CHECK(json_is_number(profile_at(p, "facts.kernels.0.metrics.inst")));
        CHECK(json_is_number(profile_at(p, "facts.kernels.1.metrics.inst")));
    }
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(metrics_by_name)
{
    static const char *const names[] = {"lts__t_sectors.sum", "no__such_metric.sum", "smsp__inst_executed.sum"};
    need_profiler();
    for (int here = 0; here < 2; here++) {
        stitch_verify_options o = few(here ? STITCH_VERIFY_HERE : STITCH_VERIFY_WORKER, STITCH_PROFILE_AUTO);
        o.metrics = names;
        o.metric_count = 3;
        stitch_task *t = make_task(copies.head, copies.reference, RUN_OF(SCALE_STEP("x")), NULL);
        stitch_report *r = profiled(t, copies.source, RUN_OF(SCALE_STEP("x")), &o);
        const stitch_profile *p = stitch_report_profile(r);

        need_all_parts(p);
        CHECK_STR(said(p, "facts.no_counters"), "not offered by this device: no__such_metric.sum");
        for (int i = 0; i < 3; i++) {
            char path[64];
            snprintf(path, sizeof(path), "facts.extra_names.%d", i);
            CHECK_STR(said(p, path), names[i]);
        }
        double sectors = json_number_value(profile_at(p, "facts.kernels.0.extra.0"));
        double inst = json_number_value(profile_at(p, "facts.kernels.0.metrics.inst"));
        printf("# %.0f sectors of L2, %.0f instructions\n", sectors, inst);
        CHECK(sectors > 16777216.0 * 8 / 32 * 0.9 && sectors < 16777216.0 * 8 / 32 * 4);
        CHECK(json_is_null(profile_at(p, "facts.kernels.0.extra.1")));
        CHECK_NEAR(json_number_value(profile_at(p, "facts.kernels.0.extra.2")), inst, 0.02 * inst);
        stitch_report_free(r);
        stitch_task_free(t);
    }
}

/* Counts its runs in its workspace and goes astray in the 400th one: there are fewer before it is profiled. */
TEST(a_fault_under_repetition_alone)
{
    static const char source[] = "extern \"C\" __global__ void k(const float *x, float *y, unsigned *runs, int n)\n{\n"
                                 "    int i = blockIdx.x * 256 + threadIdx.x;\n"
                                 "    if (i >= n) return;\n"
                                 "    y[i] = x[i] * 2;\n"
                                 "    if (i == 0) {\n"
                                 "        unsigned r = *runs - 1000000u < 100000u ? *runs + 1 : 1000000u;\n"
                                 "        *runs = r;\n"
                                 "        if (r > 1000400u) y[1ll << 40] = 0;\n"
                                 "    }\n}\n";
    static const char plan[] =
        "{\"stitch\":1,\"buffers\":{\"runs\":{\"dtype\":\"i32\",\"shape\":[1]}},\"run\":[" KERNEL_STEP(
            "k", "\"ceil_div(N, 256)\"", "256", "\"x\",\"y\",\"runs\",{\"i32\":\"N\"}") "]}";
    stitch_verify_options o = few(STITCH_VERIFY_WORKER, STITCH_PROFILE_FULL);
    stitch_report_summary s;
    const char *message = "";
    need_profiler();
    stitch_task *t = make_task(chain.head, SCALE("double"), RUN_OF(SCALE_STEP("x")), NULL);
    stitch_report *r = verify(t, source, plan, &o);

    summary_of(r, &s); /* it passed */
    stage_ms(r, STITCH_STAGE_SKIPPED, &message);
    printf("# %s\n", message);
    CHECK(*message);
    CHECK(!stitch_report_profile(r));
    CHECK_INT(s.isolated, 1);
    stitch_report_free(r);
    stitch_task_free(t);
    diagnose(&chain, STITCH_VERIFY_WORKER); /* nothing is left of it */
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

TEST(what_a_task_is_measured_against)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;
    need_profiler();
    o.profile = STITCH_PROFILE_FULL;
    stitch_task *t = make_task(transpose.head, transpose.reference, transpose.plan, transpose.source);
    CHECK_OK(stitch_profile_task(ctx, t, &o, &p, &err));
    print_profile("a task's baseline", p);
    CHECK_INT(stitch_profile_kernel_count(p), 1);
    CHECK_STR(said(p, "facts.kernels.0.name"), "turn");
    if (!*said(p, "facts.no_counters")) {
        stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
        CHECK(find_advice(p, "uncoalesced", &a));
        check_gains("a task's baseline", p);
    }
    stitch_profile_free(p);
    stitch_task_free(t);

    /* Without a baseline it is the reference, in float64. */
    o.profile = STITCH_PROFILE_TIMELINE;
    t = make_task(chain.head, chain.reference, chain.plan, NULL);
    CHECK_OK(stitch_profile_task(ctx, t, &o, &p, &err));
    print_profile("a task's reference", p);
    CHECK_INT(json_integer_value(profile_at(p, "facts.run.launches")), 32);
    CHECK_HAS(said(p, "facts.no_counters"), "not asked for");
    stitch_profile_free(p);
    stitch_task_free(t);

    stitch_task *empty = NULL;
    CHECK_OK(stitch_task_parse(ctx, "{\"stitch_task\":1," VECTOR_HEAD "}", NULL, &empty, &err));
    CHECK(stitch_profile_task(ctx, empty, &o, &p, &err) != STITCH_OK);
    CHECK(!p && *stitch_error_message(err));
    stitch_error_free(err);
    err = NULL;
    stitch_task_free(empty);
}

/* ---- regions ----------------------------------------------------------------------------------------------------- */

static const char region_source[] =
    "extern \"C\" __global__ void turn(const float *x, float *y, int n)\n{\n"
    "    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;\n"
    "    y[(size_t)c * n + r] = x[(size_t)r * n + c];\n}\n"
    "extern \"C\" __global__ void tiny(float *y)\n{\n    y[blockIdx.x * 256 + threadIdx.x] += 1;\n}\n";

enum { SIDE = 2048, HOST_BYTES = 32 << 20 };

typedef struct region {
    int turns, tinies; /* launches of a call */
    int vary;          /* one tiny launch more in each call but the first of this many */
    int give_up;       /* at this call; 0: never */
    CUgraphExec graph; /* launched besides */
    void *pageable;    /* copied there and back besides */
    int calls, failed;
} region;

static stitch_image *region_image;
static stitch__module region_module;
static CUfunction turn, tiny;
static CUstream stream;
static CUdeviceptr x, y;

/* The device is entered afterwards. */
static void open_region(void)
{
    need_profiler();
    CHECK_OK(stitch__device_enter(dev, &err));
    if (region_image)
        return;
    CHECK_OK(stitch_compile(ctx, region_source, NULL, &region_image, &err));
    CHECK_OK(stitch__module_load(dev, region_image, &region_module, &err));
    for (size_t i = 0; i < region_module.kernel_count; i++) {
        size_t at;
        CHECK_INT(stitch_image_find(region_image, i ? "tiny" : "turn", &at), STITCH_OK);
        *(i ? &tiny : &turn) = region_module.kernels[at];
    }
    CHECK_INT(drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_OK(stitch__mem_alloc(dev, (size_t)SIDE * SIDE * 4, "x", &x, &err));
    CHECK_OK(stitch__mem_alloc(dev, (size_t)SIDE * SIDE * 4, "y", &y, &err));
    CHECK_INT(drv->MemsetD8Async(x, 0, (size_t)SIDE * SIDE * 4, stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemsetD8Async(y, 0, (size_t)SIDE * SIDE * 4, stream), CUDA_SUCCESS);
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
}

static int launch_tiny(void)
{
    void *args[] = {&y};
    return drv->LaunchKernel(tiny, 64, 1, 1, 256, 1, 1, 0, stream, args, NULL);
}

static int call_region(void *userdata)
{
    region *r = userdata;
    int n = SIDE, failed = 0, tinies = r->tinies + (r->vary && r->calls > 0 ? r->calls % r->vary : 0);
    void *args[] = {&x, &y, &n};

    r->calls++;
    if (r->give_up && r->calls >= r->give_up)
        return 7;
    if (r->pageable)
        failed |= drv->MemcpyHtoD(x, r->pageable, HOST_BYTES / 2);
    for (int i = 0; i < r->turns; i++)
        failed |= drv->LaunchKernel(turn, SIDE / 32, SIDE / 8, 1, 32, 8, 1, 0, stream, args, NULL);
    for (int i = 0; i < tinies; i++)
        failed |= launch_tiny();
    if (r->graph)
        failed |= drv->GraphLaunch(r->graph, stream);
    if (r->pageable) {
        failed |= drv->StreamSynchronize(stream);
        failed |= drv->MemcpyDtoH(r->pageable, y, HOST_BYTES / 2);
    }
    r->failed |= failed;
    return failed;
}

static stitch_profile *profile_of(region *r, const char *what)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    const char *const sources[] = {region_source};
    const stitch_image *const images[] = {region_image};
    stitch_profile *p = NULL;
    int64_t start = stitch__now_ns();

    o.profile = STITCH_PROFILE_FULL;
    o.images = images;
    o.sources = sources;
    o.image_count = 1;
    CHECK_OK(stitch_profile_region(ctx, call_region, r, &o, &p, &err));
    printf("# %s: %d calls, %.0f ms\n", what, r->calls, (double)(stitch__now_ns() - start) / 1e6);
    print_profile(what, p);
    CHECK(!r->failed);
    check_gains(what, p);
    return p;
}

TEST(kernels_of_a_host)
{
    static const diagnosis want = {"transposes of a host",
                                   " memory latency ",
                                   "uncoalesced",
                                   " bank_conflicts host_copies redundant_copies memory_bound_near_limit ",
                                   NULL,
                                   "uncoalesced",
                                   "y[(size_t)c"};
    region r = {.turns = 4};
    open_region();
    stitch_profile *p = profile_of(&r, want.what);
    need_all_parts(p);
    check_diagnosis(&want, region_source, p);
    CHECK_INT(json_integer_value(profile_at(p, "facts.kernels.0.launches")), 4);
    CHECK(r.calls >= 8);
    stitch_profile_free(p);
    stitch__device_leave(dev);
}

TEST(launches_of_a_host)
{
    static const diagnosis want = {"launches of a host",
                                   " launch ",
                                   "launch_bound",
                                   " host_copies redundant_copies uncoalesced memory_bound_near_limit ",
                                   NULL,
                                   NULL,
                                   NULL};
    region r = {.tinies = 64};
    open_region();
    stitch_profile *p = profile_of(&r, want.what);
    check_diagnosis(&want, region_source, p);
    stitch_profile_free(p);
    stitch__device_leave(dev);
}

TEST(copies_of_a_host)
{
    static const diagnosis want = {
        "copies of a host", " copy ", "host_copies", " redundant_copies uncoalesced ", NULL, NULL, NULL};
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    region r = {.tinies = 1};
    open_region();
    CHECK(HOST_BYTES / 2 <= SIDE * SIDE * 4);
    r.pageable = calloc(1, HOST_BYTES);
    CHECK(r.pageable);
    stitch_profile *p = profile_of(&r, want.what);
    check_diagnosis(&want, region_source, p);
    CHECK(find_advice(p, "host_copies", &a));
    CHECK_HAS(a.evidence, "not pinned");
    CHECK_INT(json_integer_value(profile_at(p, "facts.run.host_copy_bytes")), HOST_BYTES);
    stitch_profile_free(p);
    free(r.pageable);
    stitch__device_leave(dev);
}

TEST(a_function_that_gives_up)
{
    static const int calls[] = {1, 2, 5, 6}; /* samples, timeline, launches, passes: as far as there are any */
    open_region();
    for (size_t i = 0; i < STITCH__COUNT(calls); i++) {
        stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
        region r = {.tinies = 3, .give_up = calls[i]};
        stitch_profile *p = NULL;
        stitch_trace *trace = NULL;
        o.profile = STITCH_PROFILE_FULL;
        CHECK_ERR(stitch_profile_region(ctx, call_region, &r, &o, &p, &err), STITCH_E_CANCELLED, "gave up");
        CHECK(!p);
        CHECK_INT(r.calls, calls[i]);
        CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err)); /* CUPTI is free again */
        stitch_trace_free(trace);
    }
    stitch__device_leave(dev);
}

TEST(a_graph_of_a_host)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraph graph;
    region r = {0};
    open_region();
    CHECK_INT(drv->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    for (int i = 0; i < 9; i++)
        CHECK_INT(launch_tiny(), CUDA_SUCCESS);
    CHECK_INT(drv->StreamEndCapture(stream, &graph), CUDA_SUCCESS);
    CHECK_INT(drv->GraphInstantiateWithParams(&r.graph, graph, &params), CUDA_SUCCESS);
    CHECK_INT(drv->GraphDestroy(graph), CUDA_SUCCESS);
    stitch_profile *p = profile_of(&r, "a graph of a host");
    CHECK_STR(said(p, "facts.no_timeline"), "");
    CHECK_INT(json_integer_value(profile_at(p, "facts.run.launches")), 9);
    CHECK(json_is_true(profile_at(p, "facts.run.graph")));
    printf("# no counters: %s\n", said(p, "facts.no_counters"));
    CHECK_HAS(said(p, "facts.no_counters"), "launches graphs");
    stitch_profile_free(p);
    CHECK_INT(drv->GraphExecDestroy(r.graph), CUDA_SUCCESS);
    stitch__device_leave(dev);
}

/* Counters of launches that are not the same each time would be those of other kernels: there are none. */
TEST(launches_that_vary)
{
    region r = {.turns = 1, .tinies = 2, .vary = 3};
    open_region();
    stitch_profile *p = profile_of(&r, "launches that vary");
    CHECK_STR(said(p, "facts.no_timeline"), "");
    printf("# no counters: %s\n", said(p, "facts.no_counters"));
    CHECK(*said(p, "facts.no_counters"));
    CHECK(!profile_at(p, "facts.kernels.0.metrics.inst"));
    stitch_profile_free(p);
    stitch__device_leave(dev);
}

/* ---- beside others, and afterwards ------------------------------------------------------------------------------- */

TEST(while_a_trace_runs)
{
    stitch_verify_options v = few(STITCH_VERIFY_HERE, STITCH_PROFILE_FULL);
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    region r = {.tinies = 3};
    stitch_profile *p = NULL;
    stitch_trace *trace = NULL;
    open_region();
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    CHECK_ERR(stitch_profile_region(ctx, call_region, &r, &o, &p, &err), STITCH_E_UNSUPPORTED, "a trace runs");
    CHECK(!p);
    stitch_task *t = make_task(chain.head, chain.reference, chain.plan, NULL);
    stitch_report *report = profiled(t, chain.source, chain.plan, &v);
    const stitch_profile *of = stitch_report_profile(report);
    print_profile("a program while a trace runs", of);
    CHECK_STR(verdict_of_run(of).bound, "unknown");
    CHECK_INT(stitch_profile_kernel_count(of), 0);
    CHECK_HAS(said(of, "facts.no_timeline"), "a trace runs");
    CHECK(*said(of, "facts.no_counters"));
    CHECK_HAS(said(of, "facts.no_samples"), "a trace runs");
    stitch_report_free(report);
    stitch_task_free(t);
    CHECK_OK(stitch_trace_end(trace, &err)); /* it has not noticed */
    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
    CHECK(s.kernels >= 32);
    stitch_trace_free(trace);
    stitch__device_leave(dev);
}

/* Of a launch, the best of several rounds: host and device. */
static double launch_us(void)
{
    enum { ROUNDS = 9, LAUNCHES = 4000 };
    double best = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
        int64_t start = stitch__now_ns();
        for (int k = 0; k < LAUNCHES; k++)
            CHECK_INT(launch_tiny(), CUDA_SUCCESS);
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
        best = fmin(best, (double)(stitch__now_ns() - start) / 1e3 / LAUNCHES);
    }
    return best;
}

static double median_here(stitch_task *t, int profile)
{
    stitch_verify_options o = few(STITCH_VERIFY_HERE, profile);
    stitch_report_summary s;
    o.iterations = 60;
    stitch_report *r = verify(t, chain.source, chain.plan, &o);
    summary_of(r, &s);
    stitch_report_free(r);
    return s.median_us;
}

/* Comes first: this process has not had CUPTI yet. What a launch takes more afterwards (0.5 us on an H200) is CUPTI's,
 * and is printed; a benchmark measures it. */
TEST(nothing_is_left_on_or_behind)
{
    size_t before = 0, after = 0, total;
    region r = {.turns = 2, .tinies = 8};
    open_region();
    stitch_task *t = make_task(chain.head, chain.reference, chain.plan, NULL);
    double launch = launch_us(), median = median_here(t, STITCH_PROFILE_NEVER);
    for (int i = 0; i < 3; i++) {
        stitch_profile *p = profile_of(&r, "again");
        stitch_profile_free(p);
        median_here(t, STITCH_PROFILE_FULL);
        CHECK_INT(drv->MemGetInfo(i ? &after : &before, &total), CUDA_SUCCESS);
    }
    double launch_after = launch_us(), median_after = median_here(t, STITCH_PROFILE_NEVER);
    printf("# a launch takes %.3f us, afterwards %.3f us; a program %.2f us, afterwards %.2f us\n", launch,
           launch_after, median, median_after);
    printf("# %.1f MB of device memory less after two more profiles\n", ((double)before - (double)after) / 1e6);
    CHECK(after + (16 << 20) >= before);
    CHECK_OK(stitch__exclusive_claim(ctx, "the test", &err));
    stitch__exclusive_release();
    CHECK_INT(stitch__trace_buffers(), 0);
    stitch_task_free(t);
    stitch__device_leave(dev);
}

static const check_test tests[] = {
    RUN(nothing_is_left_on_or_behind),
    RUN(a_naive_matmul_in_a_worker),
    RUN(a_naive_matmul_here),
    RUN(an_uncoalesced_transpose_in_a_worker),
    RUN(an_uncoalesced_transpose_here),
    RUN(bank_conflicts_in_a_worker),
    RUN(bank_conflicts_here),
    RUN(a_chain_of_launches_in_a_worker),
    RUN(a_chain_of_launches_here),
    RUN(copies_in_a_worker),
    RUN(copies_here),
    RUN(a_tuned_kernel_in_a_worker),
    RUN(a_tuned_kernel_here),
    RUN(a_product_of_the_library_and_kernels),
    RUN(three_thousand_launches),
    RUN(metrics_by_name),
    RUN(a_fault_under_repetition_alone),
    RUN(what_a_task_is_measured_against),
    RUN(kernels_of_a_host),
    RUN(launches_of_a_host),
    RUN(copies_of_a_host),
    RUN(a_function_that_gives_up),
    RUN(a_graph_of_a_host),
    RUN(launches_that_vary),
    RUN(while_a_trace_runs),
};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    if (region_image) {
        stitch__module_unload(&region_module);
        stitch_image_free(region_image);
    }
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc;
}
