/* SPDX-License-Identifier: MIT
 *
 * Traces of real work: launches counted exactly, nodes of graphs, copies, gaps and their causes, threads, steps of
 * programs, and a thousand cycles of compile, load, trace, unload.
 */
#include <pthread.h>
#include <time.h>

#include "program_rig.h"
#include "cupti_device.h"
#include "profile/profile.h"

static const char source[] =
    "extern \"C\" __global__ void spin(long long cycles, int *out)\n"
    "{ long long t = clock64(); while (clock64() - t < cycles) ; if (out) out[threadIdx.x] = 1; }\n"
    "namespace n { template <int N> __global__ void add(const float *x, float *y) {\n"
    "    __shared__ float s[N]; s[threadIdx.x % N] = x[threadIdx.x]; __syncthreads(); y[threadIdx.x] += s[0]; } }\n"
    "extern \"C\" __global__ void big(float *y) { extern __shared__ float s[]; s[threadIdx.x] = y[threadIdx.x];\n"
    "    __syncthreads(); y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x]; }\n";

enum { SPIN, ADD, BIG, KERNELS, FLOATS = 1024 };
static const char *const kernel_names[KERNELS] = {"spin", "n::add<64>", "big"};

static stitch__device *dev;
static const stitch__driver *drv;
static stitch__module module;
static CUfunction kernels[KERNELS];
static CUstream stream, other;
static CUdeviceptr x, y;
static stitch_trace *trace;

static void need_cupti(void)
{
    (void)need_cupti_library();
    int rc = stitch_trace_begin(ctx, NULL, &trace, &err);
    if (rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_BUSY || rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
    stitch_trace_free(trace);
    trace = NULL;
}

/* Records of the device alone: the cheapest trace there is. */
static void begin_on_device(void)
{
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    o.flags = STITCH_TRACE_NO_SYNC | STITCH_TRACE_NO_DRIVER | STITCH_TRACE_NO_RUNTIME;
    CHECK_OK(stitch_trace_begin(ctx, &o, &trace, &err));
}

/* The trace stays, for its timeline. */
static stitch_trace_summary end_on_device(void)
{
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_OK(stitch_trace_summary_get(trace, &s));
    CHECK_INT(s.dropped + s.incomplete, 0);
    return s;
}

/* The device is entered afterwards. */
static void open_work(void)
{
    need_cupti();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    drv = dev->drv;
    if (!module.handle) {
        stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
        stitch_image *image;
        o.names = kernel_names;
        o.name_count = KERNELS;
        CHECK_OK(stitch_compile(ctx, source, &o, &image, &err));
        CHECK_OK(stitch__module_load(dev, image, &module, &err));
        for (int i = 0; i < KERNELS; i++) {
            size_t at;
            CHECK_INT(stitch_image_find(image, kernel_names[i], &at), STITCH_OK);
            kernels[i] = module.kernels[at];
        }
        stitch_image_free(image);
        CHECK_INT(drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        CHECK_INT(drv->StreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        CHECK_OK(stitch__mem_alloc(dev, FLOATS * 4, "x", &x, &err));
        CHECK_OK(stitch__mem_alloc(dev, FLOATS * 4, "y", &y, &err));
        CHECK_INT(drv->MemsetD8Async(x, 0, FLOATS * 4, stream), CUDA_SUCCESS);
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    }
}

static void launch_spin(CUstream s, long long cycles)
{
    CUdeviceptr none = 0;
    void *args[] = {&cycles, &none};
    CHECK_INT(drv->LaunchKernel(kernels[SPIN], 1, 1, 1, 32, 1, 1, 0, s, args, NULL), CUDA_SUCCESS);
}

static void launch_add(CUstream s, unsigned grid)
{
    void *args[] = {&x, &y};
    CHECK_INT(drv->LaunchKernel(kernels[ADD], grid, 2, 1, 128, 1, 1, 0, s, args, NULL), CUDA_SUCCESS);
}

static void launch_big(CUstream s, unsigned shared)
{
    void *args[] = {&y};
    CHECK_INT(drv->LaunchKernel(kernels[BIG], 3, 1, 1, 256, 1, 1, shared, s, args, NULL), CUDA_SUCCESS);
}

static stitch_trace_summary end(void)
{
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
    CHECK_INT(s.dropped, 0);
    CHECK_INT(stitch__trace_buffers(), 0);
    CHECK(s.busy_us <= s.span_us + 1e-6 && s.span_us <= s.region_us + 1e-6);
    return s;
}

static void close_work(void)
{
    stitch_trace_free(trace);
    trace = NULL;
    stitch__device_leave(dev);
}

static stitch_trace_kernel row_of(const char *name)
{
    stitch_trace_kernel k = STITCH_TRACE_KERNEL_INIT;
    for (size_t i = 0; stitch_trace_kernel_get(trace, i, &k) == STITCH_OK; i++) {
        if (strcmp(k.name, name) == 0)
            return k;
    }
    FAIL("no kernel %s in the trace", name);
}

static void print_text(void)
{
    char *text;
    CHECK_OK(stitch_trace_text(trace, 4000, &text, &err));
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        printf("# %.*s\n", (int)strcspn(line, "\n"), line);
    stitch_free(text);
}

/* ---- counts ---- */

TEST(launches_are_counted)
{
    int registers = 0;
    open_work();
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    for (unsigned i = 0; i < 257; i++)
        launch_add(stream, 1 + i % 5);
    for (unsigned i = 0; i < 3; i++)
        launch_big(i ? stream : other, 4096);
    stitch_trace_summary s = end();
    print_text();
    CHECK_INT(s.kernels, 260);
    CHECK_INT(s.copies + s.fills + s.graph_nodes + s.graph_launches, 0);
    CHECK_INT(s.incomplete, 0);
    CHECK_INT(s.streams, 2);
    CHECK_INT(s.devices, 1);
    CHECK(s.calls >= 260);
    CHECK_INT(stitch_trace_kernel_count(trace), 2);
    stitch_trace_kernel add = row_of("n::add<64>"), big = row_of("big");
    CHECK_INT(add.count, 257);
    CHECK_INT(add.varied, 1);
    CHECK_INT(add.block[0], 128);
    CHECK_INT(add.grid[1], 2);
    CHECK_INT(add.static_shared, 256);
    CHECK_STR(add.symbol, "_ZN1n3addILi64EEEvPKfPf");
    CHECK_INT(drv->FuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernels[ADD]), CUDA_SUCCESS);
    CHECK((int)add.registers >= registers && (int)add.registers < registers + 8); /* they are allocated by eight */
    CHECK_INT(big.count, 3);
    CHECK_INT(big.dynamic_shared, 4096);
    CHECK_INT(big.varied, 0);
    CHECK(add.min_us > 0 && add.min_us <= add.mean_us && add.mean_us <= add.max_us);
    CHECK_NEAR(add.share + big.share, 1, 1e-9);
    stitch_trace_record r = STITCH_TRACE_RECORD_INIT;
    double before = 0;
    for (size_t i = 0; i < stitch_trace_count(trace); i++) {
        CHECK_INT(stitch_trace_record_get(trace, i, &r), STITCH_OK);
        CHECK(r.start_us >= before && r.end_us >= r.start_us);
        before = r.start_us;
    }
    close_work();
}

TEST(the_occupancy_is_the_drivers)
{
    static const struct {
        int kernel, threads, shared;
    } cases[] = {{SPIN, 32, 0},    {SPIN, 1024, 0},    {ADD, 96, 0},       {ADD, 128, 0},    {ADD, 768, 0},
                 {BIG, 64, 48000}, {BIG, 256, 100000}, {BIG, 1024, 20000}, {BIG, 33, 10000}, {BIG, 256, 1}};
    open_work();
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    CHECK_OK(stitch_trace_end(trace, &err));
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        CUfunction f = kernels[cases[i].kernel];
        int blocks = 0, registers = 0, fixed = 0;
        CHECK_INT(drv->OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, cases[i].threads, (size_t)cases[i].shared),
                  CUDA_SUCCESS);
        CHECK_INT(drv->FuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f), CUDA_SUCCESS);
        CHECK_INT(drv->FuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f), CUDA_SUCCESS);
        stitch__event e = {.grid = {1, 1, 1}, .block = {(uint32_t)cases[i].threads, 1, 1}};
        e.registers = (uint16_t)registers;
        e.static_shared = (uint32_t)fixed;
        e.dynamic_shared = (uint32_t)cases[i].shared;
        CHECK_INT(stitch__occupancy_of(&stitch__trace_timeline(trace)->sm, &e).blocks, blocks);
    }
    close_work();
}

static CUgraphExec make_graph(void)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUgraph graph;
    CUgraphExec exec;
    CHECK_INT(drv->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    for (unsigned i = 0; i < 5; i++)
        launch_add(stream, 1 + i);
    CHECK_INT(drv->MemsetD32Async(y, 0, FLOATS, stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemcpyDtoDAsync(y, x, FLOATS * 4, stream), CUDA_SUCCESS);
    CHECK_INT(drv->StreamEndCapture(stream, &graph), CUDA_SUCCESS);
    memset(&params, 0, sizeof(params));
    CHECK_INT(drv->GraphInstantiateWithParams(&exec, graph, &params), CUDA_SUCCESS);
    CHECK_INT(drv->GraphDestroy(graph), CUDA_SUCCESS);
    return exec;
}

TEST(nodes_of_graphs)
{
    enum { LAUNCHES = 20 };
    stitch_trace_record r = STITCH_TRACE_RECORD_INIT;
    open_work();
    for (int fresh = 0; fresh < 2; fresh++) { /* a graph from before the trace, and one made within */
        CUgraphExec exec = fresh ? NULL : make_graph();
        CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
        if (fresh)
            exec = make_graph();
        for (int i = 0; i < LAUNCHES; i++)
            CHECK_INT(drv->GraphLaunch(exec, stream), CUDA_SUCCESS);
        stitch_trace_summary s = end();
        print_text();
        CHECK_INT(s.graph_launches, LAUNCHES);
        CHECK_INT(s.kernels + s.fills + s.copies, LAUNCHES * 7); /* a fill or a copy may run as a kernel */
        CHECK_INT(s.graph_nodes, LAUNCHES * 7);
        CHECK(s.kernels >= LAUNCHES * 5);
        CHECK_INT(row_of("n::add<64>").count, LAUNCHES * 5);
        for (size_t i = 0; i < stitch_trace_count(trace); i++) {
            CHECK_INT(stitch_trace_record_get(trace, i, &r), STITCH_OK);
            if (r.kind == STITCH_TRACE_KERNEL)
                CHECK(r.graph != 0 && r.graph_node != 0 && r.end_us > r.start_us);
        }
        CHECK_INT(drv->GraphExecDestroy(exec), CUDA_SUCCESS);
        stitch_trace_free(trace);
        trace = NULL;
    }
    close_work();
}

/* CUPTI goes with each of several traces, and graphs work on, from before the first and from within. */
TEST(graphs_after_cupti_has_gone)
{
    enum { LAUNCHES = 20 };
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    CUgraphExec before, within[3];

    open_work();
    before = make_graph();
    o.flags = STITCH_TRACE_UNLOAD;
    for (int round = 0; round < 3; round++) {
        CHECK_OK(stitch_trace_begin(ctx, &o, &trace, &err));
        within[round] = make_graph();
        for (int i = 0; i < LAUNCHES; i++) {
            CHECK_INT(drv->GraphLaunch(before, stream), CUDA_SUCCESS);
            CHECK_INT(drv->GraphLaunch(within[round], stream), CUDA_SUCCESS);
        }
        stitch_trace_summary s = end();
        CHECK_INT(s.graph_launches, 2 * LAUNCHES);
        CHECK_INT(row_of("n::add<64>").count, 2 * LAUNCHES * 5);
        stitch_trace_free(trace);
        trace = NULL;
        for (int i = 0; i < LAUNCHES; i++) {
            CHECK_INT(drv->GraphLaunch(before, stream), CUDA_SUCCESS);
            for (int k = 0; k <= round; k++)
                CHECK_INT(drv->GraphLaunch(within[k], stream), CUDA_SUCCESS);
        }
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    }
    CHECK_INT(drv->GraphExecDestroy(before), CUDA_SUCCESS);
    for (int round = 0; round < 3; round++)
        CHECK_INT(drv->GraphExecDestroy(within[round]), CUDA_SUCCESS);
    close_work();
}

TEST(copies_and_fills)
{
    enum { BYTES = 16 << 20 };
    CUdeviceptr d = 0;
    void *pinned = NULL, *pageable;
    open_work();
    pageable = malloc(BYTES);
    CHECK(pageable);
    memset(pageable, 1, BYTES);
    CHECK_OK(stitch__mem_alloc(dev, BYTES, "d", &d, &err));
    CHECK_INT(drv->MemHostAlloc(&pinned, BYTES, 0), CUDA_SUCCESS);
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    CHECK_INT(drv->MemcpyHtoDAsync(d, pinned, BYTES, stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemcpyHtoDAsync(d, pinned, BYTES / 2, stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemcpyDtoHAsync(pinned, d, BYTES, stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemsetD8Async(d, 3, BYTES, stream), CUDA_SUCCESS);
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    CHECK_INT(drv->MemcpyDtoH(pageable, d, BYTES), CUDA_SUCCESS);
    stitch_trace_summary s = end();
    print_text();
    CHECK_INT(s.kernels, 0);
    CHECK_INT(s.fills, 1);
    CHECK(s.copies >= 4); /* a pageable one may be in pieces */
    CHECK_INT(s.copy_bytes, (uint64_t)BYTES * 7 / 2);
    CHECK(s.syncs >= 1);
    bool up = false, down = false;
    stitch_trace_copy c = STITCH_TRACE_COPY_INIT;
    for (size_t i = 0; stitch_trace_copy_get(trace, i, &c) == STITCH_OK; i++) {
        if (strcmp(c.name, "HtoD") == 0) {
            up = true;
            CHECK_INT(c.count, 2);
            CHECK_INT(c.pageable, 0);
            CHECK_INT(c.bytes, (uint64_t)BYTES * 3 / 2);
            CHECK(c.gb_per_s > 0.5 && c.gb_per_s < 2000);
        } else if (strcmp(c.name, "DtoH") == 0) {
            down = true;
            CHECK_INT(c.bytes, (uint64_t)BYTES * 2);
            CHECK(c.pageable >= 1);
        }
    }
    CHECK(up && down);
    CHECK_INT(drv->MemFreeHost(pinned), CUDA_SUCCESS);
    stitch__mem_free(dev, d);
    free(pageable);
    close_work();
}

/* ---- time ---- */

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

TEST(gaps_have_causes)
{
    stitch_trace_gap g = STITCH_TRACE_GAP_INIT;
    open_work();
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    launch_spin(stream, 100000);
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    nap_ms(60);
    launch_add(stream, 1);
    stitch_trace_summary s = end();
    print_text();
    CHECK_INT(s.kernels, 2);
    CHECK_INT(s.gaps, 1);
    CHECK(s.idle_us >= 55000);
    CHECK(s.idle_host_us > 0.8 * s.idle_us);
    CHECK_INT(stitch_trace_gap_get(trace, 0, &g), STITCH_OK);
    CHECK_STR(g.cause, "host");
    CHECK_STR(g.before, "spin");
    CHECK_STR(g.after, "n::add<64>");
    close_work();
}

TEST(work_that_overlaps_counts_once)
{
    open_work();
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    for (int i = 0; i < 4; i++) { /* about 5 ms each, two at a time */
        launch_spin(stream, 8000000);
        launch_spin(other, 8000000);
    }
    stitch_trace_summary s = end();
    stitch_trace_kernel k = row_of("spin");
    CHECK_INT(k.count, 8);
    CHECK_NEAR(s.busy_us, s.kernel_us, 1e-6);
    CHECK(s.busy_us < 0.75 * k.total_us);
    CHECK(s.busy_us >= k.max_us);
    close_work();
}

TEST(busy_time_of_a_region)
{
    CUgraphExec exec;
    open_work();
    exec = make_graph();
    begin_on_device();
    launch_spin(stream, 3000000);
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    nap_ms(20);
    CHECK_INT(drv->GraphLaunch(exec, stream), CUDA_SUCCESS);
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    stitch_trace_summary s = end_on_device();
    printf("# busy %.2f us of %.2f us\n", s.busy_us, s.span_us);
    CHECK_INT(s.kernels + s.copies + s.fills, 8);
    CHECK_INT(s.graph_nodes, 7);
    CHECK(s.busy_us >= 1000 && s.busy_us < 15000);
    CHECK(s.span_us >= 20000);
    stitch_trace_free(trace);
    trace = NULL;
    CHECK_INT(drv->GraphExecDestroy(exec), CUDA_SUCCESS);
    close_work();
}

/* ---- threads ---- */

static void *begin_thread(void *arg)
{
    *(int *)arg = stitch_trace_begin(ctx, NULL, &trace, NULL);
    return NULL;
}

static void *launch_thread(void *arg)
{
    int *failed = arg;
    void *args[] = {&x, &y};
    *failed = drv->CtxSetCurrent(dev->context) != CUDA_SUCCESS;
    for (int i = 0; i < 100 && !*failed; i++)
        *failed = drv->LaunchKernel(kernels[ADD], 1, 1, 1, 128, 1, 1, 0, stream, args, NULL) != CUDA_SUCCESS;
    return NULL;
}

static void *end_thread(void *arg)
{
    *(int *)arg = stitch_trace_end(trace, NULL);
    return NULL;
}

TEST(threads)
{
    enum { THREADS = 4 };
    pthread_t one, many[THREADS];
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    stitch_trace *second;
    int rc = -1, failed[THREADS];
    open_work();
    CHECK_INT(pthread_create(&one, NULL, begin_thread, &rc), 0);
    pthread_join(one, NULL);
    CHECK_INT(rc, STITCH_OK);
    CHECK_ERR(stitch_trace_begin(ctx, NULL, &second, &err), STITCH_E_BUSY, "already");
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&many[i], NULL, launch_thread, &failed[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(many[i], NULL);
        CHECK(!failed[i]);
    }
    CHECK_INT(pthread_create(&one, NULL, end_thread, &rc), 0);
    pthread_join(one, NULL);
    CHECK_INT(rc, STITCH_OK);
    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
    CHECK_INT(s.kernels, THREADS * 100);
    CHECK_INT(s.dropped, 0);
    close_work();
}

/* ---- programs ---- */

/* Needs a device, but no CUPTI. */
TEST(what_a_program_launches)
{
    static const char plan[] = PLAN(
        F32("t", "\"N\""), "",
        "{\"fill\": {\"buffer\": \"t\", \"value\": 0}},"
        "{\"repeat\": {\"var\": \"i\", \"count\": 3, \"steps\": [" STEP(
            "add", "1", "64",
            "\"x\", \"t\", {\"i32\": \"N\"}, {\"f32\": 1}") ", {\"copy\": {\"from\": \"t\", \"to\": \"y\", \"count\": "
                                                            "\"i\"}}]}}," STEP(
                                                                "set", "1", "64",
                                                                "\"t\", {\"i32\": \"N\"}, "
                                                                "{\"f32\": 2}") ","
                                                                                "{\"gemm\": {\"a\": \"x\", \"b\": "
                                                                                "\"t\", \"c\": \"y\", \"m\": 4, \"n\": "
                                                                                "4, \"k\": 4}}");
    static const struct {
        int kind, step;
        const char *symbol;
    } want[] = {{STITCH_TRACE_FILL, 0, NULL},
                {STITCH_TRACE_KERNEL, 1, "_Z3addPKfPfif"},
                {STITCH_TRACE_KERNEL, 1, "_Z3addPKfPfif"},
                {STITCH_TRACE_COPY, 2, NULL},
                {STITCH_TRACE_KERNEL, 1, "_Z3addPKfPfif"},
                {STITCH_TRACE_COPY, 2, NULL},
                {STITCH_TRACE_KERNEL, 3, "_Z3setPfif"},
                {STITCH__EXPECTED_PRODUCT, 4, NULL}};
    stitch__expected *expected;
    size_t count;
    rig r;
    need_device();
    rig_open(&r, "N=32; input x f32 N; output y f32 N", loop_source, plan, NULL);
    CHECK_ERR(stitch__expected_of(r.x, &expected, &count, &err), STITCH_E_STATE, "not been prepared");
    int rc = stitch_executor_prepare(r.x, r.stream, &err);
    if (rc == STITCH_E_NO_LIBRARY) {
        rig_close(&r);
        SKIP(stitch_error_message(err)); /* no cuBLASLt */
    }
    CHECK_OK(rc);
    CHECK_OK(stitch__expected_of(r.x, &expected, &count, &err));
    CHECK_INT(count, STITCH__COUNT(want)); /* a copy of nothing is none */
    for (size_t i = 0; i < count; i++) {
        CHECK_INT(expected[i].kind, want[i].kind);
        CHECK_INT(expected[i].step, want[i].step);
        if (want[i].symbol)
            CHECK_STR(expected[i].symbol, want[i].symbol);
    }
    stitch_free(expected);
    rig_close(&r);
}

TEST(steps_of_a_program)
{
    static const char plan[] =
        PLAN(F32("t", "\"N\""), "",
             STEP("set", "1", "64", "\"t\", {\"i32\": \"N\"}, {\"f32\": 2}") "," STEP(
                 "add", "1", "64", "\"x\", \"t\", {\"i32\": \"N\"}, {\"f32\": 1}") ", {\"copy\": {\"from\": \"t\", "
                                                                                   "\"to\": \"y\"}}");
    need_cupti();
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
        stitch__expected *expected;
        uint64_t renamed = 0;
        size_t count;
        rig r;
        o.no_graph = no_graph;
        rig_open(&r, "N=32; input x f32 N; output y f32 N", loop_source, plan, &o);
        rig_run(&r);
        CHECK_INT(r.dev->drv->StreamSynchronize(r.stream), CUDA_SUCCESS);
        begin_on_device();
        for (int i = 0; i < 7; i++)
            CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
        stitch_trace_summary s = end_on_device();
        CHECK_INT(s.kernels + s.copies + s.fills, 21);
        stitch__timeline *t = stitch__trace_timeline(trace);
        CHECK_OK(stitch__expected_of(r.x, &expected, &count, &err));
        CHECK_INT(count, 3);
        CHECK_INT(stitch__attribute(t, expected, count, 7, &renamed), STITCH_OK);
        stitch_free(expected);
        printf("# %d names were stale\n", (int)renamed);
        for (size_t i = 0; i < t->count; i++)
            CHECK_INT(t->events[i].step, i % 3);
        stitch_trace_free(trace);
        trace = NULL;
        rig_close(&r);
    }
}

TEST(simulated_devices_have_no_timeline)
{
    need_device();
    if (!device.simulated)
        SKIP("the device is real");
    CHECK_ERR(stitch_trace_begin(ctx, NULL, &trace, &err), STITCH_E_UNSUPPORTED, "simulated");
    CHECK(!trace);
}

/* ---- a thousand cycles ---- */

static long resident_kb(void)
{
    long pages = 0, total = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * 4;
}

TEST(a_thousand_compile_trace_unload_cycles)
{
    enum { CYCLES = 1000, WARM = 200 };
    long resident = 0;
    size_t device_free = 0, total = 0, left = 0;
    uint64_t stale = 0;
    open_work();
    for (int i = 0; i < CYCLES; i++) {
        char text[256], symbol[64];
        stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
        stitch_image *image;
        stitch__module own;
        uint64_t renamed = 0;
        snprintf(symbol, sizeof(symbol), "cycle_%d", i);
        snprintf(text, sizeof(text), "extern \"C\" __global__ void %s(float *y) { y[threadIdx.x] = %d; }\n", symbol, i);
        o.no_cache = 1;
        CHECK_OK(stitch_compile(ctx, text, &o, &image, &err));
        CHECK_OK(stitch__module_load(dev, image, &own, &err));
        stitch_image_free(image);
        begin_on_device();
        void *args[] = {&y};
        unsigned grid = 1 + (unsigned)i % 61, block = 32 * (1 + (unsigned)i % 7);
        CHECK_INT(drv->LaunchKernel(own.kernels[0], grid, 1, 1, block, 1, 1, 0, stream, args, NULL), CUDA_SUCCESS);
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
        CHECK_INT(end_on_device().kernels, 1);
        stitch__timeline *t = stitch__trace_timeline(trace);
        CHECK_INT(t->count, 1);
        CHECK_INT(t->events[0].grid[0], grid);
        CHECK_INT(t->events[0].block[0], block);
        const stitch__expected step = {STITCH_TRACE_KERNEL, 0, symbol};
        CHECK_INT(stitch__attribute(t, &step, 1, 1, &renamed), STITCH_OK);
        CHECK_STR(t->names[t->events[0].name].text, symbol);
        stale += renamed;
        stitch_trace_free(trace);
        trace = NULL;
        stitch__module_unload(&own);
        CHECK_INT(stitch__trace_buffers(), 0);
        if (i == WARM) {
            resident = resident_kb();
            CHECK_INT(drv->MemGetInfo(&device_free, &total), CUDA_SUCCESS);
        }
    }
    CHECK_INT(drv->MemGetInfo(&left, &total), CUDA_SUCCESS);
    printf("# CUPTI gave %d of %d kernels the name of another; resident memory grew by %ld kB in %d cycles\n",
           (int)stale, CYCLES, resident_kb() - resident, CYCLES - WARM);
    CHECK(resident_kb() - resident < 32 * 1024);
    CHECK(left + (16u << 20) > device_free);
    close_work();
}

TEST(perfetto_json_of_real_work)
{
    char *json;
    json_t *root;
    open_work();
    CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
    for (unsigned i = 0; i < 50; i++)
        launch_add(i % 2 ? stream : other, 1);
    end();
    CHECK_OK(stitch_trace_json(trace, &json, &err));
    CHECK_OK(stitch__json_parse(ctx, json, strlen(json), 0, "trace", &root, &err));
    CHECK(json_array_size(json_object_get(root, "traceEvents")) > 100);
    json_decref(root);
    stitch_free(json);
    close_work();
}

TEST_MAIN(RUN(launches_are_counted), RUN(the_occupancy_is_the_drivers), RUN(nodes_of_graphs),
          RUN(graphs_after_cupti_has_gone), RUN(copies_and_fills), RUN(gaps_have_causes),
          RUN(work_that_overlaps_counts_once), RUN(busy_time_of_a_region), RUN(threads), RUN(what_a_program_launches),
          RUN(steps_of_a_program), RUN(simulated_devices_have_no_timeline), RUN(perfetto_json_of_real_work),
          RUN(a_thousand_compile_trace_unload_cycles))
