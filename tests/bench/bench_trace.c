/* SPDX-License-Identifier: MIT
 *
 * What tracing costs: a launch without CUPTI, with a trace of device work alone, with a full trace, between traces, and
 * after one that took CUPTI out of the process; the same for the launch of a graph of eight kernels; beginning and
 * ending a trace.
 *
 * usage: bench_trace [ROUNDS]           (default 30; in each, every case has its turn with 2,000 launches)
 *        bench_trace processes [N]      (default 15) what is left of a trace, in pairs: N times three processes of
 * their own, one that never traced, one that did, one that took CUPTI out again Medians with the 5th and 95th
 * percentile; for processes, of the processes' medians. Exits with 77 where there is no GPU or no CUPTI.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "profile/profile.h"
#include <stitch/stitch.h>

enum { MAX_ROUNDS = 1000, LAUNCHES = 2000, GRAPHS = 250, NODES = 8 };
enum { BEFORE, OFF, DEVICE, FULL, UNLOADED, CASES };

static const char *const names[CASES] = {"before the first trace", "between traces", "trace of device work",
                                         "full trace", "CUPTI unloaded"};
static const char source[] = "extern \"C\" __global__ void nothing(int x) {}\n";

typedef struct bench {
    stitch_context *ctx;
    stitch__device *dev;
    stitch__module module;
    CUstream stream;
    CUgraphExec graph;
} bench;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void check(int rc, const char *what, stitch_error *err)
{
    bool absent = rc == STITCH_E_NO_DEVICE || rc == STITCH_E_NO_LIBRARY || rc == STITCH_E_UNSUPPORTED;
    if (rc == STITCH_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, stitch_error_message(err));
    exit(absent ? 77 : 1);
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
    double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

static void print(const char *what, const char *name, double *v, size_t n)
{
    qsort(v, n, sizeof(*v), by_value);
    printf("%-28s %-24s %9.3f us  (%.3f to %.3f, %zu samples)\n", what, name, v[n / 2], v[n / 20], v[n - 1 - n / 20],
           n);
}

static void launch(const bench *b)
{
    int x = 0;
    void *args[] = {&x};
    cu(b->dev->drv->LaunchKernel(b->module.kernels[0], 1, 1, 1, 32, 1, 1, 0, b->stream, args, NULL), "launch");
}

static void set_up(bench *b)
{
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUgraph graph;
    check(stitch_context_new(&b->ctx, NULL, &err), "context", err);
    check(stitch__device_get(b->ctx, &b->dev, &err), "device", err);
    if (b->dev->info.simulated)
        exit(77);
    check(stitch__device_enter(b->dev, &err), "enter", err);
    check(stitch_compile(b->ctx, source, NULL, &image, &err), "compile", err);
    check(stitch__module_load(b->dev, image, &b->module, &err), "load", err);
    stitch_image_free(image);
    const stitch__driver *drv = b->dev->drv;
    cu(drv->StreamCreate(&b->stream, CU_STREAM_NON_BLOCKING), "stream");
    cu(drv->StreamBeginCapture(b->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin capture");
    for (int i = 0; i < NODES; i++)
        launch(b);
    cu(drv->StreamEndCapture(b->stream, &graph), "end capture");
    memset(&params, 0, sizeof(params));
    cu(drv->GraphInstantiateWithParams(&b->graph, graph, &params), "instantiate");
    cu(drv->GraphDestroy(graph), "destroy");
}

typedef struct times {
    double call[MAX_ROUNDS], wall[MAX_ROUNDS], graph[MAX_ROUNDS];
} times;

static void measure(const bench *b, times *t, size_t round)
{
    const stitch__driver *drv = b->dev->drv;
    for (int i = 0; i < 50; i++)
        launch(b);
    cu(drv->StreamSynchronize(b->stream), "sync");
    double start = now_us();
    for (int i = 0; i < LAUNCHES; i++)
        launch(b);
    t->call[round] = (now_us() - start) / LAUNCHES;
    cu(drv->StreamSynchronize(b->stream), "sync");
    t->wall[round] = (now_us() - start) / LAUNCHES;
    start = now_us();
    for (int i = 0; i < GRAPHS; i++)
        cu(drv->GraphLaunch(b->graph, b->stream), "graph");
    cu(drv->StreamSynchronize(b->stream), "sync");
    t->graph[round] = (now_us() - start) / GRAPHS;
}

/* Records of the device alone. */
static const stitch_trace_options on_device = {.struct_size = sizeof(on_device),
                                               .flags = STITCH_TRACE_NO_SYNC | STITCH_TRACE_NO_DRIVER |
                                                        STITCH_TRACE_NO_RUNTIME | STITCH_TRACE_NO_WAIT};

static double begin[2][MAX_ROUNDS], end[2][MAX_ROUNDS];

static void traced(const bench *b, bool full, times *t, size_t round)
{
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    stitch_trace *trace = NULL;
    stitch_error *err = NULL;
    double start = now_us();
    check(stitch_trace_begin(b->ctx, full ? NULL : &on_device, &trace, &err), "begin", err);
    begin[full][round] = now_us() - start;
    measure(b, t, round);
    start = now_us();
    check(stitch_trace_end(trace, &err), "end", err);
    end[full][round] = now_us() - start;
    const uint64_t want = 50 + LAUNCHES + GRAPHS * NODES;
    stitch_trace_summary_get(trace, &s);
    if (s.kernels != want)
        fprintf(stderr, "%llu kernels of %llu were recorded\n", (unsigned long long)s.kernels,
                (unsigned long long)want);
    stitch_trace_free(trace);
}

static void tear_down(bench *b)
{
    b->dev->drv->GraphExecDestroy(b->graph);
    b->dev->drv->StreamDestroy(b->stream);
    stitch__module_unload(&b->module);
    stitch__device_leave(b->dev);
    stitch_context_free(b->ctx);
}

/* A trace of one launch. */
static void trace_once(const bench *b, uint32_t flags)
{
    stitch_trace_options options = on_device;
    stitch_trace *trace = NULL;
    stitch_error *err = NULL;
    options.flags |= flags;
    options.flags &= ~(uint32_t)STITCH_TRACE_NO_WAIT;
    check(stitch_trace_begin(b->ctx, &options, &trace, &err), "begin", err);
    launch(b);
    check(stitch_trace_end(trace, &err), "end", err);
    stitch_trace_free(trace);
}

enum { NEVER, LEFT, TAKEN_OUT, PAST };

static const char *const pasts[PAST] = {"never traced", "traced once", "traced, CUPTI unloaded"};

/* In a process of its own; on the CPU `cpu`, as the others, once the driver's own threads are there. */
static void process(int past, int cpu, int out)
{
    enum { SAMPLES = 15 };
    static times t;
    bench b = {0};
    double medians[2];
    cpu_set_t set;
    set_up(&b);
    if (past != NEVER)
        trace_once(&b, past == TAKEN_OUT ? STITCH_TRACE_UNLOAD : 0);
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
    for (size_t i = 0; i < SAMPLES; i++)
        measure(&b, &t, i);
    qsort(t.call, SAMPLES, sizeof(double), by_value);
    qsort(t.graph, SAMPLES, sizeof(double), by_value);
    medians[0] = t.call[SAMPLES / 2];
    medians[1] = t.graph[SAMPLES / 2];
    if (write(out, medians, sizeof(medians)) != (ssize_t)sizeof(medians))
        exit(1);
    tear_down(&b);
    exit(0);
}

static int processes(size_t count)
{
    static double launches[PAST][MAX_ROUNDS], graphs[PAST][MAX_ROUNDS];
    int cpu = sched_getcpu();
    for (size_t i = 0; i < count * PAST; i++) {
        int past = (int)((i + i / PAST) % PAST), ends[2], status = 0; /* each comes first, second and last */
        double medians[2];
        pid_t child = pipe(ends) == 0 ? fork() : -1;
        if (child == 0)
            process(past, cpu, ends[1]);
        if (child < 0)
            return 1;
        close(ends[1]);
        bool got = read(ends[0], medians, sizeof(medians)) == (ssize_t)sizeof(medians);
        close(ends[0]);
        if (waitpid(child, &status, 0) != child || !got || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return WIFEXITED(status) && WEXITSTATUS(status) == 77 ? 77 : 1;
        launches[past][i / PAST] = medians[0];
        graphs[past][i / PAST] = medians[1];
    }
    for (int p = 0; p < PAST; p++)
        print("launch, host's call", pasts[p], launches[p], count);
    for (int p = 0; p < PAST; p++)
        print("graph of 8, until done", pasts[p], graphs[p], count);
    return 0;
}

static size_t number(const char *text, size_t otherwise)
{
    int asked = text ? atoi(text) : (int)otherwise;
    return asked < 1 ? 1 : asked > MAX_ROUNDS ? MAX_ROUNDS : (size_t)asked;
}

int main(int argc, char **argv)
{
    static times t[CASES];
    if (argc > 1 && strcmp(argv[1], "processes") == 0)
        return processes(number(argc > 2 ? argv[2] : NULL, 15));
    size_t rounds = number(argc > 1 ? argv[1] : NULL, 30);
    bench b = {0};
    stitch_trace *trace = NULL;
    stitch_error *err = NULL;
    set_up(&b);
    printf("%s, driver %d, empty kernel, %d launches or %d graphs of %d kernels a sample\n", b.dev->info.name,
           b.dev->info.driver_version, LAUNCHES, GRAPHS, NODES);
    for (size_t r = 0; r < rounds; r++)
        measure(&b, &t[BEFORE], r);
    double start = now_us();
    check(stitch_trace_begin(b.ctx, &on_device, &trace, &err), "the first begin", err);
    double middle = now_us();
    check(stitch_trace_end(trace, &err), "the first end", err);
    printf("first begin (loads CUPTI) %.1f ms, its end %.1f ms\n", (middle - start) / 1e3, (now_us() - middle) / 1e3);
    stitch_trace_free(trace);
    for (size_t r = 0; r < rounds; r++) {
        traced(&b, false, &t[DEVICE], r);
        measure(&b, &t[OFF], r);
        traced(&b, true, &t[FULL], r);
    }
    trace_once(&b, STITCH_TRACE_UNLOAD);
    for (size_t r = 0; r < rounds; r++)
        measure(&b, &t[UNLOADED], r);
    for (int c = 0; c < CASES; c++)
        print("launch, host's call", names[c], t[c].call, rounds);
    for (int c = 0; c < CASES; c++)
        print("launch, until done", names[c], t[c].wall, rounds);
    for (int c = 0; c < CASES; c++)
        print("graph of 8, until done", names[c], t[c].graph, rounds);
    print("begin", names[DEVICE], begin[0], rounds);
    print("end (4,050 kernels)", names[DEVICE], end[0], rounds);
    print("begin", names[FULL], begin[1], rounds);
    print("end (4,050 kernels)", names[FULL], end[1], rounds);
    tear_down(&b);
    return 0;
}
