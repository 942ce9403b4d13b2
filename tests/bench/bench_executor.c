/* SPDX-License-Identifier: MIT
 *
 * What running a program costs the host, beside a hand-written CUDA graph of the same launches, in pairs in one run;
 * and what validating a program and loading it from the cache take.
 *
 * usage: bench_executor [PAIRS]     (default 200; each is the mean of 50 launches). Medians with the 5th and 95th
 * percentile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stitch/stitch.h>

#include "cuda/cuda.h"

enum { MAX_PAIRS = 10000, LAUNCHES = 50, STEPS = 5, N = 1 << 16 };

static const char source[] =
    "extern \"C\" __global__ void step(const float *a, float *b, int n)\n"
    "{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n)\n        b[i] = a[i] * 1.5f + 1.0f;\n}\n";

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void check(int rc, const char *what, stitch_error *err)
{
    if (rc == STITCH_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, stitch_error_message(err));
    exit(rc == STITCH_E_NO_DEVICE ? 77 : 1);
}

static void cu(CUresult rc, const char *what)
{
    if (rc != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, (int)rc);
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double print(const char *name, double *v, size_t n, const char *unit)
{
    qsort(v, n, sizeof(*v), by_value);
    printf("%-52s %9.3f %s  (%.3f to %.3f, %zu samples)\n", name, v[n / 2], unit, v[n / 20], v[n - 1 - n / 20], n);
    return v[n / 2];
}

/* Counts what goes through the context's allocator. */
static size_t allocations;

static void *counting_alloc(size_t size, void *userdata)
{
    (void)userdata;
    allocations++;
    return malloc(size);
}

static void *counting_realloc(void *ptr, size_t size, void *userdata)
{
    (void)userdata;
    allocations++;
    return realloc(ptr, size);
}

static void counting_free(void *ptr, void *userdata)
{
    (void)userdata;
    free(ptr);
}

static stitch_interface *make_interface(stitch_context *ctx)
{
    static const char *const shape[] = {"N"};
    stitch_interface *i = NULL;
    stitch_error *err = NULL;
    check(stitch_interface_new(ctx, &i, &err), "interface", err);
    check(stitch_interface_set_dim(i, "N", N, &err), "dim", err);
    check(stitch_interface_add_tensor(i, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, shape, &err), "x", err);
    check(stitch_interface_add_tensor(i, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, &err), "y", err);
    return i;
}

/* A chain of STEPS kernels. */
static stitch_program *make_program(stitch_context *ctx)
{
    char plan[4096] = "{\"stitch\":1,\"buffers\":{\"a\":{\"dtype\":\"f32\",\"shape\":[\"N\"]},\"b\":{\"dtype\":\"f32\","
                      "\"shape\":[\"N\"]}},\"run\":[";
    static const char *const chain[STEPS + 1] = {"x", "a", "b", "a", "b", "y"};
    stitch_program *p = NULL;
    stitch_error *err = NULL;
    for (int i = 0; i < STEPS; i++)
        sprintf(plan + strlen(plan),
                "%s{\"kernel\":\"step\",\"grid\":[\"ceil_div(N,256)\"],\"block\":[256],\"args\":[\"%s\",\"%s\",{"
                "\"i32\":\"N\"}]}",
                i ? "," : "", chain[i], chain[i + 1]);
    strcat(plan, "]}");
    check(stitch_program_parse(ctx, source, plan, NULL, &p, &err), "program", err);
    return p;
}

static CUgraphExec by_hand(stitch_context *ctx, stitch__device *dev, const CUdeviceptr p[4], CUstream stream,
                           stitch__module *module)
{
    const stitch__driver *drv = dev->drv;
    const CUdeviceptr chain[STEPS + 1] = {p[0], p[1], p[2], p[1], p[2], p[3]};
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    CUgraph graph;
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    int n = N;
    check(stitch_compile(ctx, source, NULL, &image, &err), "compile", err);
    check(stitch__module_load(dev, image, module, &err), "load", err);
    stitch_image_free(image);
    cu(drv->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin capture");
    for (int i = 0; i < STEPS; i++) {
        CUdeviceptr from = chain[i], to = chain[i + 1];
        void *args[] = {&from, &to, &n};
        cu(drv->LaunchKernel(module->kernels[0], (N + 255) / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL), "launch");
    }
    cu(drv->StreamEndCapture(stream, &graph), "end capture");
    memset(&params, 0, sizeof(params));
    cu(drv->GraphInstantiateWithParams(&exec, graph, &params), "instantiate");
    cu(drv->GraphDestroy(graph), "destroy");
    return exec;
}

static void measure_launches(stitch_context *ctx, stitch__device *dev, stitch_executor *x, size_t pairs)
{
    static double ours[MAX_PAIRS], hand[MAX_PAIRS];
    const stitch__driver *drv = dev->drv;
    stitch_error *err = NULL;
    stitch__module module;
    CUdeviceptr p[4];
    CUstream stream;
    memset(&module, 0, sizeof(module));
    cu(drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    for (int i = 0; i < 4; i++)
        cu(drv->MemAlloc(&p[i], N * sizeof(float)), "memory");
    check(stitch_executor_bind_name(x, "x", p[0], N * sizeof(float), &err), "bind", err);
    check(stitch_executor_bind_name(x, "y", p[3], N * sizeof(float), &err), "bind", err);
    check(stitch_executor_prepare(x, stream, &err), "prepare", err);
    CUgraphExec exec = by_hand(ctx, dev, p, stream, &module);
    for (int i = 0; i < 20; i++) {
        check(stitch_executor_run(x, stream, &err), "run", err);
        cu(drv->GraphLaunch(exec, stream), "launch");
    }
    cu(drv->StreamSynchronize(stream), "synchronise");
    size_t before = allocations;
    for (size_t i = 0; i < pairs; i++) {
        double t = now_us();
        for (int k = 0; k < LAUNCHES; k++)
            check(stitch_executor_run(x, stream, &err), "run", err);
        ours[i] = (now_us() - t) / LAUNCHES;
        cu(drv->StreamSynchronize(stream), "synchronise");
        t = now_us();
        for (int k = 0; k < LAUNCHES; k++)
            cu(drv->GraphLaunch(exec, stream), "launch");
        hand[i] = (now_us() - t) / LAUNCHES;
        cu(drv->StreamSynchronize(stream), "synchronise");
    }
    printf("allocations in %zu runs: %zu\n", pairs * LAUNCHES, allocations - before);
    double a = print("stitch_executor_run, host time", ours, pairs, "us"),
           b = print("cuGraphLaunch of the same kernels, host time", hand, pairs, "us");
    printf("%-52s %9.3f x\n", "ratio of the medians", a / b);
    /* A pointer that changes every time: the graph is updated, not rebuilt. */
    CUdeviceptr other;
    cu(drv->MemAlloc(&other, N * sizeof(float)), "memory");
    size_t n = pairs < 200 ? pairs : 200;
    before = allocations;
    for (size_t i = 0; i < n; i++) {
        double t = now_us();
        check(stitch_executor_bind(x, 0, i % 2 ? p[0] : other, N * sizeof(float), &err), "bind", err);
        check(stitch_executor_run(x, stream, &err), "run", err);
        ours[i] = now_us() - t;
        cu(drv->StreamSynchronize(stream), "synchronise");
    }
    stitch_executor_stats stats = STITCH_EXECUTOR_STATS_INIT;
    stitch_executor_stats_get(x, &stats);
    print("bind to other memory and run, host time", ours, n, "us");
    printf("graphs built %llu, updated %llu, allocations %zu\n", (unsigned long long)stats.graph_builds,
           (unsigned long long)stats.graph_updates, allocations - before);
}

static void measure_set_up(stitch_context *ctx, stitch_interface *interface)
{
    enum { ROUNDS = 50 };
    static double validate[ROUNDS], load[ROUNDS];
    stitch_error *err = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        stitch_program *p = make_program(ctx);
        stitch_executor *x = NULL;
        double t = now_us();
        check(stitch_program_validate(p, interface, "sm_90a", &err), "validate", err);
        validate[i] = (now_us() - t) / 1e3;
        t = now_us();
        check(stitch_executor_new(ctx, p, NULL, &x, &err), "executor", err); /* compiles: a cache hit */
        load[i] = (now_us() - t) / 1e3;
        stitch_executor_free(x);
        stitch_program_free(p);
    }
    print("validate, 5 steps", validate, ROUNDS, "ms");
    print("cache hit to loaded module (stitch_executor_new)", load, ROUNDS, "ms");
}

int main(int argc, char **argv)
{
    size_t pairs = argc > 1 ? strtoul(argv[1], NULL, 10) : 200;
    stitch_allocator allocator = {sizeof(allocator), counting_alloc, counting_realloc, counting_free, NULL};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch__device *dev = NULL;
    stitch_executor *x = NULL;
    stitch_error *err = NULL;

    pairs = pairs < 1 ? 1 : pairs > MAX_PAIRS ? MAX_PAIRS : pairs;
    o.allocator = &allocator;
    check(stitch_context_new(&ctx, &o, &err), "context", err);
    check(stitch__device_get(ctx, &dev, &err), "device", err);
    if (dev->info.simulated) {
        fprintf(stderr, "needs a GPU\n");
        return 77;
    }
    printf("%s, driver %d.%d\n", dev->info.name, dev->info.driver_version / 1000, dev->info.driver_version % 1000 / 10);
    check(stitch__device_enter(dev, &err), "enter", err);
    stitch_interface *interface = make_interface(ctx);
    stitch_program *p = make_program(ctx);
    check(stitch_program_validate(p, interface, NULL, &err), "validate", err);
    check(stitch_executor_new(ctx, p, NULL, &x, &err), "executor", err);
    measure_launches(ctx, dev, x, pairs);
    measure_set_up(ctx, interface);
    stitch_executor_free(x);
    stitch_program_free(p);
    stitch_interface_free(interface);
    stitch__device_leave(dev);
    stitch_context_free(ctx);
    return 0;
}
