/* SPDX-License-Identifier: MIT
 *
 * Executors as the host sees them: its operators, its streams and captures, misuse, saved programs, allocations.
 */
#include "program_rig.h"

/* ---- host operators ---------------------------------------------------------------------------------------------- */

typedef struct op_record {
    stitch__device *dev;
    int calls, fail;
    char attrs[64];
    stitch_op_arg args[4];
    size_t count;
} op_record;

/* Copies its first tensor to its second. */
static int copy_op(stitch_stream stream, const stitch_op_arg *args, size_t count, const char *attrs, void *userdata)
{
    op_record *o = userdata;
    o->calls++;
    o->count = count;
    snprintf(o->attrs, sizeof(o->attrs), "%s", attrs);
    memcpy(o->args, args, (count < 4 ? count : 4) * sizeof(*args));
    if (o->fail)
        return o->fail;
    return o->dev->drv->MemcpyDtoDAsync(args[1].ptr, args[0].ptr, args[1].bytes, stream) == CUDA_SUCCESS
               ? 0
               : STITCH_E_DRIVER;
}

TEST(operators)
{
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"op\": {\"name\": \"host.copy\", \"args\": [\"x + 4\", "
                               "\"y\", {\"f32\": 0.5}, {\"i64\": \"N\"}], \"attrs\": {\"a\": 1}}}]}";
    float x[36], y[32];
    need_device();
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        op_record record = {0};
        stitch_op op = {"host.copy", copy_op, &record};
        stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
        stitch_executor *none;
        rig r;
        o.ops = &op;
        o.op_count = 1;
        o.no_graph = no_graph;
        CHECK_OK(stitch__device_get(ctx, &record.dev, &err));
        rig_open(&r, "N=32; input x f32 N+4; output y f32 N", "", plan, &o);
        CHECK_ERR(stitch_executor_new(ctx, r.program, NULL, &none, &err), STITCH_E_NOT_FOUND,
                  "run[0]: the host registered no operator 'host.copy'");
        fill_ramp(x, 36, 0, 1);
        rig_set(&r, "x", x, sizeof(x));
        rig_run(&r);
        CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
        rig_get(&r, "y", y, sizeof(y));
        for (int i = 0; i < 32; i++)
            CHECK_NEAR(y[i], x[i + 4], 0);
        CHECK_INT(record.calls, no_graph ? 2 : 1); /* a captured operator is replayed */
        CHECK_INT(record.count, 4);
        CHECK_STR(record.attrs, "{\"a\":1}");
        CHECK_INT(record.args[0].ptr, r.mem[0] + 16);
        CHECK_INT(record.args[0].bytes, 32 * 4);
        CHECK_INT(record.args[0].is_pointer, 1);
        CHECK_INT(record.args[0].dtype, STITCH_DTYPE_F32);
        CHECK_NEAR(record.args[2].real, 0.5, 0);
        CHECK_INT(record.args[2].is_pointer, 0);
        CHECK_INT(record.args[3].integer, 32);
        CHECK_INT(record.args[3].dtype, STITCH_DTYPE_I64);
        record.fail = STITCH_E_LIBRARY;
        CUdeviceptr other = rig_memory(&r, sizeof(y), "other");
        CHECK_OK(stitch_executor_bind_name(r.x, "y", other, sizeof(y), &err));
        CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_LIBRARY,
                  "run[0]: the host's operator 'host.copy' failed");
        record.fail = 0; /* a failure leaves the executor usable */
        CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
        rig_read(&r, other, y, sizeof(y));
        CHECK_NEAR(y[31], x[35], 0);
        CHECK_OK(stitch__device_enter(r.dev, &err));
        stitch__mem_free(r.dev, other);
        stitch__device_leave(r.dev);
        rig_close(&r);
    }
}

/* ---- the host's side --------------------------------------------------------------------------------------------- */

/* Without a graph, on the default stream, and inside a capture of the host's own. */
TEST(streams_of_the_host)
{
    stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    float x[100], y[100], w = 5;
    CUcontext current;
    need_device();
    fill_ramp(x, 100, 0, 1);
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        rig r;
        o.no_graph = no_graph;
        o.capturable = 1;
        rig_open(&r, "N=100; input x f32 N; weight w f32 1; output y f32 N", SCALE_SOURCE, SCALE_PLAN, &o);
        const stitch__driver *drv = r.dev->drv;
        rig_set(&r, "x", x, sizeof(x));
        rig_set(&r, "w", &w, sizeof(w));
        CHECK_OK(stitch_executor_prepare(r.x, NULL, &err));
        CHECK_OK(stitch_executor_run(r.x, NULL, &err));
        CHECK_INT(drv->CtxGetCurrent(&current), CUDA_SUCCESS);
        CHECK(current == NULL); /* what was current in this thread stays so */
        CHECK_OK(stitch__device_enter(r.dev, &err));
        CHECK_INT(drv->CtxSynchronize(), CUDA_SUCCESS);
        stitch__device_leave(r.dev);
        rig_get(&r, "y", y, sizeof(y));
        for (int i = 0; i < 100; i++)
            CHECK_NEAR(y[i], 5 * x[i], 0);

        CUgraph graph = NULL;
        CUgraphExec exec = NULL;
        CUDA_GRAPH_INSTANTIATE_PARAMS params;
        memset(&params, 0, sizeof(params));
        memset(y, 0, sizeof(y));
        rig_set(&r, "y", y, sizeof(y));
        CHECK_OK(stitch__device_enter(r.dev, &err));
        CHECK_INT(drv->StreamBeginCapture(r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
        int rc = stitch_executor_run(r.x, r.stream, &err);
        CHECK_INT(drv->StreamEndCapture(r.stream, &graph), CUDA_SUCCESS);
        CHECK_OK(rc);
        CHECK_INT(drv->GraphInstantiateWithParams(&exec, graph, &params), CUDA_SUCCESS);
        CHECK_INT(drv->GraphLaunch(exec, r.stream), CUDA_SUCCESS);
        CHECK_INT(drv->StreamSynchronize(r.stream), CUDA_SUCCESS);
        drv->GraphExecDestroy(exec);
        drv->GraphDestroy(graph);
        stitch__device_leave(r.dev);
        rig_get(&r, "y", y, sizeof(y));
        for (int i = 0; i < 100; i++)
            CHECK_NEAR(y[i], 5 * x[i], 0);
        rig_close(&r);
    }
}

TEST(misuse)
{
    rig r;
    stitch_executor *x;
    stitch_program *p;
    stitch_interface *i;
    stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    size_t slot;
    need_device();
    CHECK_OK(stitch_program_parse(ctx, SCALE_SOURCE, SCALE_PLAN, NULL, &p, &err));
    CHECK_ERR(stitch_executor_new(ctx, p, NULL, &x, &err), STITCH_E_STATE, "the program has no interface");
    i = new_interface(ctx, "N=100; input x f32 N; weight w f32 1; output y f32 N");
    CHECK_OK(stitch_program_validate(p, i, NULL, &err));
    CHECK_OK(stitch_executor_new(ctx, p, NULL, &x, &err));
    CHECK_ERR(stitch_executor_run(x, NULL, &err), STITCH_E_STATE, "stitch_executor_prepare()");
    CHECK_ERR(stitch_executor_prepare(x, NULL, &err), STITCH_E_STATE, "x is not bound");
    CHECK_ERR(stitch_executor_bind(x, 3, 256, 400, &err), STITCH_E_INVALID, "there is no slot 3");
    CHECK_ERR(stitch_executor_bind(x, 0, 256, 399, &err), STITCH_E_INVALID, "399 bytes were bound, it has 400");
    CHECK_ERR(stitch_executor_bind(x, 0, 264, 400, &err), STITCH_E_INVALID, "not aligned to 16 bytes");
    CHECK_ERR(stitch_executor_bind(x, 0, 0, 400, &err), STITCH_E_INVALID, "x: the device pointer");
    CHECK_ERR(stitch_executor_bind_name(x, "q", 256, 400, &err), STITCH_E_NOT_FOUND, "no tensor 'q'");
    CHECK_ERR(stitch_executor_slot(x, "q", &slot, &err), STITCH_E_NOT_FOUND, "no tensor 'q'");
    CHECK_ERR(stitch_executor_run(NULL, NULL, &err), STITCH_E_INVALID, "must not be NULL");
    o.max_plans = -1;
    stitch_executor *none;
    CHECK_ERR(stitch_executor_new(ctx, p, &o, &none, &err), STITCH_E_INVALID, "max_plans");
    o.max_plans = 0;
    o.op_count = 1;
    CHECK_ERR(stitch_executor_new(ctx, p, &o, &none, &err), STITCH_E_INVALID, "must not be NULL");
    stitch_executor_free(x);
    stitch_executor_free(NULL);
    stitch_program_free(p);
    stitch_interface_free(i);

    o = (stitch_executor_options)STITCH_EXECUTOR_OPTIONS_INIT;
    o.max_workspace_bytes = 1000;
    rig_open(&r, "N=32; output y f32 N", loop_source,
             PLAN(F32("h", "1000"), "",
                  STEP("set", "1", "32", "\"h\", {\"i32\": 1}, {\"f32\": 0}") ", " STEP(
                      "set", "1", "32", "\"y\", {\"i32\": 1}, {\"f32\": 0}")),
             &o);
    CHECK_ERR(stitch_executor_prepare(r.x, r.stream, &err), STITCH_E_LIMIT, "the limit is 1000");
    CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_STATE, "not prepared");
    rig_close(&r);
}

/* A program from a file runs without being compiled: its source is not even CUDA. */
TEST(saved_programs_run)
{
    stitch_program *p, *back;
    stitch_compile_options c = STITCH_COMPILE_OPTIONS_INIT;
    void *data;
    size_t size;
    float x[100], y[100], w = 0.5f;
    rig r;
    need_device();
    p = rig_program("N=100; input x f32 N; weight w f32 1; output y f32 N", SCALE_SOURCE, SCALE_PLAN);
    c.arch = device.arch;
    c.ptx = device.simulated;
    CHECK_OK(stitch_program_compile(p, &c, NULL, &err));
    CHECK_OK(stitch_program_save_memory(p, &data, &size, &err));
    stitch_program_free(p);
    CHECK_OK(stitch_program_load_memory(ctx, data, size, NULL, &back, &err));
    strcpy(back->source, "not CUDA");
    memset(&r, 0, sizeof(r));
    rig_open_program(&r, back, NULL, 1);
    fill_ramp(x, 100, 0, 1);
    rig_set(&r, "x", x, sizeof(x));
    rig_set(&r, "w", &w, sizeof(w));
    rig_run(&r);
    rig_get(&r, "y", y, sizeof(y));
    for (int i = 0; i < 100; i++)
        CHECK_NEAR(y[i], x[i] / 2, 0);
    stitch_free(data);
    rig_close(&r);
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static long allocations;

static void *counting_alloc(size_t size, void *userdata)
{
    allocations++;
    return malloc(size);
}

static void *counting_realloc(void *ptr, size_t size, void *userdata)
{
    allocations++;
    return realloc(ptr, size);
}

static void counting_free(void *ptr, void *userdata)
{
    free(ptr);
}

/* Everything that run() may meet: kernels, a product, a loop, a graph; with and without other memory for an output. */
TEST(run_allocates_nothing)
{
    static const char plan[] = "{\"stitch\": 1, \"buffers\": {" F32("h", "\"N\", \"N\"") ", " F32(
        "g", "\"N\"") "}, \"run\": ["
                      "{\"gemm\": {\"a\": \"x\", \"b\": \"x\", \"c\": \"h\", \"m\": \"N\", \"n\": \"N\", \"k\": \"N\", "
                      "\"epilogue\": \"relu\"}, \"id\": \"p\", \"after\": []}, "
                      "{\"fill\": {\"buffer\": \"g\", \"value\": 1}, \"id\": \"f\"}, "
                      "{\"repeat\": {\"var\": \"t\", \"count\": \"N\", \"steps\": [" STEP(
                          "add", "1", "32",
                          "\"h + t*N\", \"g\", {\"i32\": \"N\"}, {\"f32\": 1}") "]}, \"id\": \"l\", \"after\": [\"p\", "
                                                                                "\"f\"]}, "
                                                                                "{\"copy\": {\"from\": \"g\", \"to\": "
                                                                                "\"y\"}, \"after\": [\"l\"]}]}";
    const stitch_allocator allocator = {sizeof(allocator), counting_alloc, counting_realloc, counting_free, NULL};
    stitch_context_options co = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *outer;
    rig r;
    float x[32 * 32] = {0}, y[32];
    need_device();
    outer = ctx;
    co.device = getenv("STITCH_TEST_DEVICE");
    co.allocator = &allocator;
    CHECK_OK(stitch_context_new(&ctx, &co, &err));
    rig_open(&r, "N=32; input x f32 N,N; output y f32 N", loop_source, plan, NULL);
    for (int i = 0; i < 32; i++)
        x[i * 33] = (float)i;
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    CUdeviceptr other = rig_memory(&r, sizeof(y), "other");
    CHECK_OK(stitch__device_enter(r.dev, &err));
    r.dev->drv->StreamSynchronize(r.stream);
    stitch__device_leave(r.dev);
    long before = allocations;
    for (int k = 0; k < 100; k++)
        CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_INT(allocations - before, 0);
    CHECK_OK(stitch_executor_bind_name(r.x, "y", other, sizeof(y), &err));
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_INT(allocations - before, 0);
    rig_read(&r, other, y, sizeof(y));
    for (int i = 0; i < 32; i++)
        CHECK_NEAR(y[i], 1 + (float)(i * i), 1e-3);
    CHECK_OK(stitch__device_enter(r.dev, &err));
    stitch__mem_free(r.dev, other);
    stitch__device_leave(r.dev);
    rig_close(&r);
    stitch_context_free(ctx);
    ctx = outer;
}

TEST(the_context_closes)
{
    stitch_error_free(err);
    err = NULL;
    stitch_context_free(ctx);
    ctx = NULL;
}

TEST_MAIN(RUN(operators), RUN(streams_of_the_host), RUN(misuse), RUN(saved_programs_run), RUN(run_allocates_nothing),
          RUN(the_context_closes))
