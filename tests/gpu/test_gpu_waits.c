/* SPDX-License-Identifier: MIT
 *
 * A kernel that runs until the host says so, while traces and profiles wait for it: deadlines and cancellations hold,
 * no call of CUPTI blocks, and what can be given back is. What leaves CUPTI behind comes last, and once a process:
 * "sampled" ends a run of all tests, "counted" is a run of its own (its name as argument).
 */
#include <pthread.h>

#include "device.h"
#include "cupti_device.h"
#include "profile/counters.h"
#include "profile/exclusive.h"
#include "profile/profile.h"
#include <stitch/profile.h>

static const char source[] = "extern \"C\" __global__ void wait_for(const volatile int *flag) { while (!*flag) ; }\n"
                             "extern \"C\" __global__ void tiny(int *x) { x[threadIdx.x] += 1; }\n";

enum { WAIT, TINY, KERNELS };
static const char *const kernel_names[KERNELS] = {"wait_for", "tiny"};

static stitch__device *dev;
static const stitch__driver *drv;
static stitch_image *image;
static stitch__module module;
static CUfunction kernels[KERNELS];
static CUstream stream; /* does not wait for the legacy one */
static CUdeviceptr x;
static int *flag; /* pinned: the kernel sees it */
static pthread_t guard;
static atomic_bool guarded;

#define CHECK_CU(call) CHECK_INT(call, CUDA_SUCCESS)

/* Sets the flag after ten seconds, where a call blocks that should not. */
static void *watch(void *arg)
{
    for (int i = 0; i < 1000 && atomic_load(&guarded); i++)
        stitch__sleep_ms(10);
    *(volatile int *)flag = 1;
    return NULL;
}

static void hold(void)
{
    *(volatile int *)flag = 0;
    atomic_store(&guarded, true);
    CHECK_INT(pthread_create(&guard, NULL, watch, NULL), 0);
}

/* The device gets done. */
static void let_go(void)
{
    atomic_store(&guarded, false);
    pthread_join(guard, NULL);
    CHECK_CU(drv->StreamSynchronize(stream));
}

static CUresult launch(int kernel)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)flag;
    void *args[] = {kernel == WAIT ? &at : &x};
    return drv->LaunchKernel(kernels[kernel], 1, 1, 1, kernel == WAIT ? 1 : 32, 1, 1, 0, stream, args, NULL);
}

/* The device is entered afterwards. */
static void open_work(void)
{
    (void)need_cupti_library();
    if (stitch__exclusive_left())
        SKIP("CUPTI was left behind");
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    drv = dev->drv;
    if (!drv->CtxRecordEvent)
        SKIP("the driver is older than 12.5");
    if (module.handle)
        return;
    CHECK_OK(stitch_compile(ctx, source, NULL, &image, &err));
    CHECK_OK(stitch__module_load(dev, image, &module, &err));
    for (size_t i = 0, at; i < KERNELS; i++) {
        CHECK_INT(stitch_image_find(image, kernel_names[i], &at), STITCH_OK);
        kernels[i] = module.kernels[at];
    }
    CHECK_CU(drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(drv->MemAlloc(&x, 4096));
    CHECK_CU(drv->MemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    *flag = 1;
    CHECK_CU(launch(WAIT)); /* and loaded, which waits for the device */
    CHECK_CU(launch(TINY));
    CHECK_CU(drv->StreamSynchronize(stream));
}

static void close_work(void)
{
    stitch__device_leave(dev);
}

static double seconds_since(int64_t start)
{
    return (double)(stitch__now_ns() - start) / 1e9;
}

TEST(a_wait_for_all_streams)
{
    open_work();
    hold();
    int rc = launch(WAIT);
    int64_t start = stitch__now_ns();
    stitch__scope scope = stitch__scope_make(ctx, NULL, 100);
    int waited = stitch__context_wait(dev, &scope, "the kernel", &err);
    double took = seconds_since(start);
    bool rests = stitch__context_rests(dev);
    let_go();
    CHECK_CU(rc);
    CHECK_ERR(waited, STITCH_E_TIMEOUT, "the kernel did not end before its deadline");
    CHECK(took >= 0.1 && took < 0.5);
    CHECK(!rests);
    CHECK_OK(stitch__context_wait(dev, NULL, "the kernel", &err));
    close_work();
}

TEST(a_trace)
{
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    stitch_trace *trace = NULL;
    open_work();
    for (int i = 0; i < 3; i++) {
        o.timeout_ms = i == 1 ? 200 : 0;
        CHECK_OK(stitch_trace_begin(ctx, &o, &trace, &err));
        CHECK_CU(launch(TINY));
        CHECK_CU(drv->StreamSynchronize(stream));
        hold();
        int rc = i == 1 ? launch(WAIT) : launch(TINY);
        int64_t start = stitch__now_ns();
        int ended = stitch_trace_end(trace, &err);
        double took = seconds_since(start);
        let_go();
        CHECK_CU(rc);
        printf("# a trace ended in %.3f s: %s\n", took, stitch_error_message(err));
        if (i == 1)
            CHECK_ERR(ended, STITCH_E_TIMEOUT, "within 0.2 s");
        else
            CHECK_OK(ended);
        CHECK(took < 2);
        CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
        if (i != 1)
            CHECK_INT(s.kernels, 2);
        else
            CHECK(s.kernels >= 1);
        stitch_trace_free(trace);
        trace = NULL;
    }
    close_work();
}

static int runs, hang_at;

static int region(void *userdata)
{
    CUresult rc = launch(TINY);
    if (++runs == hang_at && rc == CUDA_SUCCESS)
        rc = launch(WAIT);
    return rc;
}

static int profile(int32_t how_much, int at, double *took)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *p = NULL;
    o.profile = how_much;
    o.timeout_ms = at ? 2000 : 60000;
    runs = 0;
    hang_at = at;
    int64_t start = stitch__now_ns();
    int rc = stitch_profile_region(ctx, region, NULL, &o, &p, &err);
    *took = seconds_since(start);
    printf("# %d runs in %.3f s: %s\n", runs, *took, stitch_error_message(err));
    stitch_profile_free(p);
    return rc;
}

TEST(traced)
{
    double took;
    open_work();
    hold();
    int rc = profile(STITCH_PROFILE_TIMELINE, 2, &took);
    let_go();
    CHECK_ERR(rc, STITCH_E_TIMEOUT, "the profiled work did not end");
    CHECK(took < 5);
    CHECK(!stitch__exclusive_left());
    CHECK_OK(profile(STITCH_PROFILE_TIMELINE, 0, &took));
    close_work();
}

/* Everything of the process ends, once the device does. */
static void close_all(void)
{
    int64_t start = stitch__now_ns();
    CHECK_CU(launch(TINY));
    CHECK_CU(drv->StreamSynchronize(stream));
    CHECK_CU(drv->StreamDestroy(stream));
    stitch__module_unload(&module);
    stitch_image_free(image);
    image = NULL;
    drv->MemFree(x);
    drv->MemFreeHost(flag);
    close_work();
    stitch_context_free(ctx);
    ctx = NULL;
    printf("# the context was freed in %.3f s\n", seconds_since(start));
}

TEST(sampled)
{
    stitch_trace *trace = NULL;
    double took;
    open_work();
    hold();
    int rc = profile(STITCH_PROFILE_AUTO, 1, &took);
    let_go();
    CHECK_INT(rc, STITCH_E_TIMEOUT);
    CHECK(took < 5);
    if (!stitch__exclusive_left())
        SKIP("there are no samples here");
    CHECK_HAS(stitch_error_message(err), "only a new process");
    CHECK_ERR(stitch_trace_begin(ctx, NULL, &trace, &err), STITCH_E_BUSY, "only a new process");
    CHECK_ERR(profile(STITCH_PROFILE_AUTO, 0, &took), STITCH_E_UNSUPPORTED, "only a new process");
    close_all();
}

TEST(counted)
{
    stitch__counters_options o = {STITCH__METRIC_CHEAP, NULL, 0, 8, true};
    stitch__counters *counters = NULL;
    const stitch__cupti *cupti;
    open_work();
    CHECK_OK(stitch__cupti_get(ctx, &cupti, &err));
    stitch__scope scope = stitch__scope_make(ctx, NULL, 3000);
    o.scope = &scope;
    int rc = stitch__counters_open(ctx, dev, cupti, &o, &counters, &err);
    if (rc == STITCH_OK)
        rc = stitch__counters_start(counters, &err);
    if (rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_BUSY || rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
    hold();
    int64_t start = stitch__now_ns();
    CUresult launched = launch(WAIT);
    double launching = seconds_since(start);
    int stopped = stitch__counters_stop(counters, &err);
    double took = seconds_since(start);
    bool left = stitch__exclusive_left();
    let_go();
    stitch__counters_close(counters);
    CHECK_CU(launched);
    printf("# counting: the launch took %.3f s, all %.3f s: %s\n", launching, took, stitch_error_message(err));
    if (launching > 9)
        SKIP("CUPTI makes the launch wait for the kernel");
    CHECK_ERR(stopped, STITCH_E_TIMEOUT, "the counted work");
    CHECK(took < 6);
    CHECK(left);
    close_all();
}

TEST_MAIN(RUN(a_wait_for_all_streams), RUN(a_trace), RUN(traced), RUN(sampled), RUN(counted))
