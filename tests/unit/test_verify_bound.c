/* SPDX-License-Identifier: MIT
 *
 * How fast nothing can be, and what is left out of that before somebody is refused for it. On a simulated device, whose
 * figures are changed for that. Needs NVRTC.
 */
#include <math.h>

#include "check.h"
#include "verify/verify.h"

enum { N = 4096, L2 = 1 << 20 };

static stitch_context *ctx;
static stitch_error *err;
static stitch__verify v;

/* y = x + table[index]: of `table` only the first 16 elements are ever used, `unused` not at all. */
static const char head[] =
    "{\"stitch_task\":1,\"name\":\"gather\",\"dims\":{\"N\":4096},\"precision\":\"f32\",\"flops\":\"N * 1000\","
    "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]},"
    "{\"name\":\"table\",\"dtype\":\"f32\",\"shape\":[\"N\"]},{\"name\":\"unused\",\"dtype\":\"f32\",\"shape\":[\"N\"]}"
    ","
    "{\"name\":\"index\",\"dtype\":\"i32\",\"shape\":[\"N\"],\"dist\":{\"randint\":[0,15]}}],"
    "\"weights\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[16]}],"
    "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]}";
static const char source[] =
    "extern \"C\" __global__ void gather(const float *x, const float *table, const int *index, double *y)\n"
    "{ int i = blockIdx.x * 256 + threadIdx.x; y[i] = (double)x[i] + table[index[i] & 15]; }";
static const char plan[] =
    "{\"stitch\":1,\"run\":[{\"kernel\":\"gather\",\"grid\":[16],\"block\":[256],\"args\":[\"x\","
    "\"table\",\"index\",\"y\"]}]}";

static void close_all(void)
{
    stitch__sets_close(&v);
    stitch_report_free(v.report);
    stitch__device_leave(v.dev);
    stitch_free(v.infos);
    stitch_task_free(v.task);
    stitch_context_free(ctx);
    memset(&v, 0, sizeof(v));
    ctx = NULL;
}

static void open_all(void)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_program *p = NULL;

    options.device = "sim:sm_90a";
    options.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    v.ctx = ctx;
    v.options.seed = 11;
    v.scope = stitch__scope_make(ctx, NULL, 60000);
    CHECK_OK(stitch_task_parse(ctx, head, NULL, &v.task, &err));
    CHECK_OK(stitch_program_parse(ctx, source, plan, NULL, &p, &err));
    CHECK_OK(stitch_task_set_reference_program(v.task, p, STITCH_DTYPE_F64, &err));
    CHECK_OK(stitch__device_get(ctx, &v.dev, &err));
    CHECK_OK(stitch__device_enter(v.dev, &err));
    CHECK_OK(stitch__report_new(ctx, &v.report, &err));
    v.count = stitch_interface_tensor_count(v.task->iface);
    v.infos = stitch__calloc(ctx, v.count, sizeof(*v.infos));
    v.report->tensors = stitch__calloc(ctx, v.count, sizeof(*v.report->tensors));
    CHECK(v.infos && v.report->tensors);
    for (size_t i = 0; i < v.count; i++) {
        v.infos[i].struct_size = sizeof(v.infos[i]);
        CHECK_INT(stitch_interface_tensor(v.task->iface, i, &v.infos[i]), 0);
    }
    v.dev->info.l2_bytes = L2;
}

/* 4 arrays of N are read, one is written. */
TEST(what_the_cache_can_hold_is_left_out)
{
    stitch__bound b;

    open_all();
    stitch__lower_bound(&v, &b);
    CHECK_INT(b.bytes, 5 * 4 * N);
    CHECK_INT(b.weight_bytes, 16 * 4);
    CHECK_INT(b.memory_bytes, 0); /* not flushed: everything fits */
    v.report->flush_bytes = 2 * L2;
    stitch__lower_bound(&v, &b);
    CHECK_INT(b.memory_bytes, 4 * 4 * N); /* the inputs have been pushed out, the output may stay in */
    v.dev->info.l2_bytes = N;
    stitch__lower_bound(&v, &b);
    CHECK_INT(b.memory_bytes, 5 * 4 * N - N);
    CHECK(b.memory_us > 0 && b.bytes_us > b.memory_us);
    v.dev->info.memory_clock_khz = 0; /* not known */
    stitch__lower_bound(&v, &b);
    CHECK_NEAR(b.memory_us, 0, 0);
    CHECK_NEAR(b.us, b.flops_us, 0);
    close_all();
}

TEST(the_fastest_unit_that_the_policy_allows)
{
    stitch__bound f32, f16, any, bytes;

    open_all();
    v.dev->info.compute_major = 8;
    v.dev->info.compute_minor = 0;
    stitch__lower_bound(&v, &f32);
    CHECK_NEAR(f32.flops, 1000.0 * N, 0);
    CHECK_NEAR(f32.flops_us / (f32.flops / (128.0 * v.dev->info.multiprocessors * v.dev->info.clock_khz * 1e3) * 1e6),
               1, 1e-12);
    v.infos[0].dtype = STITCH_DTYPE_BF16; /* a type of the task's own is within every policy */
    stitch__lower_bound(&v, &f16);
    CHECK_NEAR(f32.flops_us / f16.flops_us, 16, 1e-9);
    v.infos[0].dtype = STITCH_DTYPE_I8;
    stitch__lower_bound(&v, &bytes);
    v.task->precision = STITCH_PRECISION_ANY;
    stitch__lower_bound(&v, &any);
    CHECK_NEAR(f32.flops_us / any.flops_us, 64, 1e-9);
    CHECK_NEAR(bytes.flops_us, any.flops_us, 0);
    v.dev->info.compute_major = 7;
    stitch__lower_bound(&v, &any);
    CHECK_NEAR(any.flops_us, 0, 0);
    v.infos[0].dtype = STITCH_DTYPE_F32;
    close_all();
}

/* Nobody is refused for an input that an honest program does not read as a whole. */
TEST(inputs_that_need_not_be_read)
{
    const stitch__nvrtc *nvrtc;
    stitch__bound b;

    open_all();
    if (stitch__nvrtc_get(ctx, &nvrtc, &err) == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    v.report->flush_bytes = 2 * L2;
    CHECK_OK(stitch__sets_open(&v, &err));
    stitch__lower_bound(&v, &b);
    CHECK_INT(b.memory_bytes, 4 * 4 * N);
    CHECK_OK(stitch__bound_confirm(&v, &b, &err));
    CHECK_INT(b.memory_bytes, 4 * N); /* x alone */
    CHECK_INT(b.bytes, 5 * 4 * N);
    CHECK(b.us >= b.flops_us && b.memory_us < b.bytes_us / 4);
    v.scope.deadline_ns = 1;
    CHECK_ERR(stitch__bound_confirm(&v, &b, &err), STITCH_E_TIMEOUT, "");
    close_all();
}

TEST_MAIN(RUN(what_the_cache_can_hold_is_left_out), RUN(the_fastest_unit_that_the_policy_allows),
          RUN(inputs_that_need_not_be_read))
