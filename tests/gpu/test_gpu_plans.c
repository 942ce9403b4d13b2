/* SPDX-License-Identifier: MIT
 *
 * Executors whose dims change: what is validated when, what a failed prepare leaves behind, which plan sees which
 * weights.
 */
#include "program_rig.h"

/* y = x doubled, then the whole buffer t is filled with 7 and its last element goes to z. The grid is empty for N = 2.
 */
#define SCALED                                                                                                         \
    "{\"stitch\": 1, \"buffers\": {\"t\": {\"dtype\": \"f32\", \"shape\": [\"N\"]}}, \"run\": ["                       \
    "{\"fill\": {\"buffer\": \"t\", \"value\": 7}},"                                                                   \
    "{\"kernel\": \"twice\", \"grid\": [\"(N-2)/2\"], \"block\": [64], \"args\": [\"x\", \"y\", {\"i32\": \"N\"}]},"   \
    "{\"copy\": {\"from\": \"t + N - 1\", \"to\": \"z\"}}]}"
#define SCALED_INTERFACE "N=32; input x f32 N; output y f32 N; output z f32 1"

static const char twice[] = "__global__ void twice(const float *x, float *y, int n)\n{\n"
                            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = 2 * x[i];\n}\n";

enum { LARGEST = 64 };

static void open_scaled(rig *r, const stitch_executor_options *o)
{
    memset(r, 0, sizeof(*r));
    rig_open_program(r, rig_program(SCALED_INTERFACE, twice, SCALED), o, LARGEST / 32);
}

static void check_scaled(rig *r, int n)
{
    float x[LARGEST], y[LARGEST], z;
    for (int i = 0; i < n; i++)
        x[i] = (float)(i + n);
    rig_set(r, "x", x, sizeof(float) * (size_t)n);
    CHECK_OK(stitch_executor_run(r->x, r->stream, &err));
    rig_get(r, "y", y, sizeof(float) * (size_t)n);
    rig_get(r, "z", &z, sizeof(z));
    for (int i = 0; i < n; i++)
        CHECK_NEAR(y[i], 2 * x[i], 0);
    CHECK_NEAR(z, 7, 0);
}

TEST(dims_are_validated_before_the_first_prepare_too)
{
    rig r;
    need_device();
    open_scaled(&r, NULL);
    CHECK_OK(stitch_executor_set_dim(r.x, "N", 2, &err));
    CHECK_ERR(stitch_executor_prepare(r.x, r.stream, &err), STITCH_E_VALIDATE, "grid[0]");
    CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_STATE, "not prepared");
    CHECK_OK(stitch_executor_set_dim(r.x, "N", 64, &err));
    CHECK_OK(stitch_executor_prepare(r.x, r.stream, &err));
    check_scaled(&r, 64);
    rig_close(&r);
}

static void failed_prepare(int no_graph, int max_plans)
{
    stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    rig r;
    o.no_graph = no_graph;
    o.max_plans = max_plans;
    open_scaled(&r, &o);
    CHECK_OK(stitch_executor_prepare(r.x, r.stream, &err));
    check_scaled(&r, 32);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(stitch_executor_set_dim(r.x, "N", 2, &err));
        CHECK_ERR(stitch_executor_prepare(r.x, r.stream, &err), STITCH_E_VALIDATE, "grid[0]");
        CHECK_OK(stitch_executor_set_dim(r.x, "N", round % 2 ? 64 : 32, &err));
        CHECK_OK(stitch_executor_prepare(r.x, r.stream, &err));
        /* Other pointers have the graph's steps evaluated again. */
        size_t slot = rig_slot(&r, "y");
        CUdeviceptr other = rig_memory(&r, r.bytes[slot], "other y"), first = r.mem[slot];
        CHECK_OK(stitch_executor_bind(r.x, slot, other, r.bytes[slot], &err));
        r.mem[slot] = other;
        check_scaled(&r, round % 2 ? 64 : 32);
        r.mem[slot] = first;
        CHECK_OK(stitch_executor_bind(r.x, slot, first, r.bytes[slot], &err));
        check_scaled(&r, round % 2 ? 64 : 32);
        CHECK_OK(stitch__device_enter(r.dev, &err));
        stitch__mem_free(r.dev, other);
        stitch__device_leave(r.dev);
    }
    rig_close(&r);
}

TEST(a_failed_prepare_leaves_the_other_plans_as_they_were)
{
    need_device();
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        failed_prepare(no_graph, 0);
        failed_prepare(no_graph, 1); /* every change of dims evicts the plan before */
    }
}

TEST(unknown_dims_in_the_options)
{
    const char *names[] = {"N", "M"};
    const int64_t values[] = {16, 3};
    stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    stitch_executor *x = NULL;
    need_device();
    stitch_program *p = rig_program(SCALED_INTERFACE, twice, SCALED);
    o.dim_names = names;
    o.dim_values = values;
    o.dim_count = 2;
    CHECK_ERR(stitch_executor_new(ctx, p, &o, &x, &err), STITCH_E_NOT_FOUND, "no dim 'M'");
    names[1] = NULL;
    CHECK_ERR(stitch_executor_new(ctx, p, &o, &x, &err), STITCH_E_NOT_FOUND, "no dim '(null)'");
    CHECK(x == NULL);
    stitch_program_free(p);
}

/* An engine may free its weights and load others, which the allocator puts at the same address. */
TEST(other_weights_at_the_same_address)
{
    static const char plan[] = "{\"stitch\": 1, \"buffers\": {\"t\": {\"dtype\": \"f32\", \"shape\": [32]}},"
                               "\"prepare\": [{\"kernel\": \"twice\", \"grid\": [1], \"block\": [32], \"args\": "
                               "[\"w\", \"t\", {\"i32\": 32}]}],"
                               "\"run\": [{\"copy\": {\"from\": \"t\", \"to\": \"y\"}}]}";
    float w[32], y[32];
    rig r;
    need_device();
    rig_open(&r, "N=32; weight w f32 N; output y f32 N", twice, plan, NULL);
    for (int round = 1; round < 3; round++) {
        for (int i = 0; i < 32; i++)
            w[i] = (float)(round * 100 + i);
        rig_set(&r, "w", w, sizeof(w));
        size_t slot = rig_slot(&r, "w");
        CHECK_OK(stitch_executor_bind(r.x, slot, r.mem[slot], r.bytes[slot], &err));
        CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_STATE, "stitch_executor_prepare() first");
        rig_run(&r);
        rig_get(&r, "y", y, sizeof(y));
        for (int i = 0; i < 32; i++)
            CHECK_NEAR(y[i], 2 * w[i], 0);
    }
    rig_close(&r);
}

TEST(steps_of_no_elements)
{
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"fill\": {\"buffer\": \"y\", \"value\": 5}},"
                               "{\"fill\": {\"buffer\": \"y\", \"value\": 6, \"count\": \"N-32\"}},"
                               "{\"fill\": {\"buffer\": \"z\", \"value\": 0.1}},"
                               "{\"fill\": {\"buffer\": \"z\", \"value\": 0.3, \"count\": \"N-32\"}},"
                               "{\"copy\": {\"from\": \"x\", \"to\": \"y\", \"count\": \"N-32\"}}]}";
    float y[32];
    double z[4];
    need_device();
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
        rig r;
        o.no_graph = no_graph;
        rig_open(&r, "N=32; input x f32 N; output y f32 N; output z f64 4", "", plan, &o);
        rig_run(&r);
        rig_get(&r, "y", y, sizeof(y));
        rig_get(&r, "z", z, sizeof(z));
        CHECK_NEAR(y[0], 5, 0);
        CHECK_NEAR(z[0], 0.1, 0);
        rig_close(&r);
    }
}

/* ---- lists with dependencies that break off ---- */

static int fails_on_demand(stitch_stream stream, const stitch_op_arg *args, size_t count, const char *attrs,
                           void *userdata)
{
    (void)stream, (void)args, (void)count, (void)attrs;
    return *(int *)userdata;
}

TEST(a_step_that_fails_between_lanes)
{
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"id\": \"a\", \"fill\": {\"buffer\": \"y\", \"value\": 3}},"
                               "{\"id\": \"b\", \"after\": [], \"fill\": {\"buffer\": \"z\", \"value\": 4}},"
                               "{\"id\": \"c\", \"after\": [\"a\"], \"op\": {\"name\": \"host\", \"args\": [\"x\"]}}]}";
    need_device();
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        int status = STITCH_OK;
        stitch_op op = {"host", fails_on_demand, &status};
        stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
        float y[32], z[32];
        rig r;
        o.ops = &op;
        o.op_count = 1;
        o.no_graph = no_graph;
        rig_open(&r, "N=32; input x f32 N; output y f32 N; output z f32 N", "", plan, &o);
        CHECK_OK(stitch_executor_prepare(r.x, r.stream, &err));
        for (int round = 0; round < 2; round++) {
            size_t slot = rig_slot(&r, "z");
            CUdeviceptr other = rig_memory(&r, r.bytes[slot], "other z"), first = r.mem[slot];
            status = STITCH_E_IO;
            CHECK_OK(stitch_executor_bind(r.x, slot, other, r.bytes[slot], &err));
            CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_IO, "run[2]");
            status = STITCH_OK;
            r.mem[slot] = other;
            CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
            rig_get(&r, "y", y, sizeof(y));
            rig_get(&r, "z", z, sizeof(z));
            CHECK_NEAR(y[31], 3, 0);
            CHECK_NEAR(z[31], 4, 0);
            r.mem[slot] = first;
            CHECK_OK(stitch_executor_bind(r.x, slot, first, r.bytes[slot], &err));
            CHECK_OK(stitch__device_enter(r.dev, &err));
            stitch__mem_free(r.dev, other);
            stitch__device_leave(r.dev);
        }
        rig_close(&r);
    }
}

TEST(a_cancelled_context_prepares_nothing)
{
    rig r;
    need_device();
    open_scaled(&r, NULL);
    stitch_context_cancel(ctx);
    CHECK_ERR(stitch_executor_prepare(r.x, r.stream, &err), STITCH_E_CANCELLED, "stitch_executor_prepare");
    stitch_context_cancel_reset(ctx);
    CHECK_OK(stitch_executor_prepare(r.x, r.stream, &err));
    check_scaled(&r, 32);
    rig_close(&r);
}

TEST(null_handles)
{
    stitch_executor_stats stats = STITCH_EXECUTOR_STATS_INIT;
    size_t slot;
    stitch_executor *x = (stitch_executor *)1;
    CHECK_ERR(stitch_executor_new(NULL, NULL, NULL, &x, &err), STITCH_E_INVALID, "NULL");
    CHECK(x == NULL);
    CHECK_ERR(stitch_executor_new(NULL, NULL, NULL, NULL, &err), STITCH_E_INVALID, "out");
    CHECK(stitch_executor_interface(NULL) == NULL);
    CHECK_ERR(stitch_executor_set_dim(NULL, "N", 1, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_executor_slot(NULL, "x", &slot, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_executor_bind(NULL, 0, 16, 16, &err), STITCH_E_INVALID, "slot");
    CHECK_ERR(stitch_executor_bind_name(NULL, NULL, 16, 16, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_executor_prepare(NULL, NULL, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_executor_run(NULL, NULL, &err), STITCH_E_INVALID, "NULL");
    CHECK_INT(stitch_executor_stats_get(NULL, &stats), STITCH_E_INVALID);
    CHECK_INT(stitch_executor_options_init(NULL, 8), STITCH_E_INVALID);
    stitch_executor_free(NULL);
}

TEST(the_context_closes)
{
    stitch_error_free(err);
    err = NULL;
    stitch_context_free(ctx);
    ctx = NULL;
}

TEST_MAIN(RUN(dims_are_validated_before_the_first_prepare_too),
          RUN(a_failed_prepare_leaves_the_other_plans_as_they_were), RUN(unknown_dims_in_the_options),
          RUN(other_weights_at_the_same_address), RUN(steps_of_no_elements), RUN(a_step_that_fails_between_lanes),
          RUN(a_cancelled_context_prepares_nothing), RUN(null_handles), RUN(the_context_closes))
