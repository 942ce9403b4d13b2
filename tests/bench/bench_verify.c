/* SPDX-License-Identifier: MIT
 *
 * From source text to a verdict: compile, load, 5 correctness trials, 100 timed runs of a small kernel, in a worker;
 * three states of the caches, taken in turn so that they see the same machine:
 *   cold    new context, empty cache folder: also the library's own kernels, reference and baseline are compiled
 *   new     a candidate never seen before in a context that has verified others: the loop's usual turn
 *   again   the same candidate once more: its code comes from the cache
 * and new candidates in this process, and with stage profile, in both places. Opening the device is measured apart; it
 * happens once a process.
 *
 * usage: bench_verify [REPETITIONS] [ELEMENTS]     (default 11, 1048576). Medians with the 5th and 95th percentile,
 * milliseconds.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stitch/stitch.h>

enum { MAX_SAMPLES = 1000, WORKER = STITCH_VERIFY_WORKER, HERE = STITCH_VERIFY_HERE };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static const char task_json[] = "{\"stitch_task\":1,\"name\":\"scale_add\",\"dims\":{\"N\":%d},"
                                "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]},{\"name\":\"z\","
                                "\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
                                "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
                                "\"reference\":{\"program\":{\"source\":{\"text\":\"__global__ void k(const float *x, "
                                "const float *z, double *y, int n) "
                                "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2.0 * x[i] + z[i]; "
                                "}\"},\"plan\":%s},\"outputs\":\"f64\"},"
                                "\"baselines\":[{\"name\":\"plain\",\"precision\":\"f32\",\"program\":{\"source\":{"
                                "\"text\":\"__global__ void k(const float *x, "
                                "const float *z, float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if "
                                "(i < n) y[i] = 2.0f * x[i] + z[i]; }\"},"
                                "\"plan\":%s}}]}";
static const char plan[] = "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[\"ceil_div(N, 256)\"],\"block\":[256],"
                           "\"args\":[\"x\",\"z\",\"y\",{\"i32\":\"N\"}]}]}";
/* A number makes it one of its own down to the PTX: NVRTC keeps code on disk by that, where it may, which is not in a
 * compiler's process. */
static const char candidate[] =
    "__global__ void k(const float *x, const float *z, float *y, int n)\n{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (n == -%d)\n        return;\n"
    "    if (i < n)\n        y[i] = fmaf(2.0f, x[i], z[i]);\n}\n";

typedef struct series {
    const char *name;
    size_t count;
    double ms[MAX_SAMPLES];
} series;

static void fail(const char *what, stitch_error *err)
{
    fprintf(stderr, "%s: %s\n", what, stitch_error_message(err));
    exit(stitch_error_code(err) == STITCH_E_NO_DEVICE ? 77 : 1);
}

static void add(series *s, double ms)
{
    if (s->count < MAX_SAMPLES)
        s->ms[s->count++] = ms;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(series *s)
{
    qsort(s->ms, s->count, sizeof(s->ms[0]), by_value);
    if (s->count)
        printf("%-28s %9.2f ms  (%.2f to %.2f, %zu samples)\n", s->name, s->ms[s->count / 2], s->ms[s->count / 20],
               s->ms[s->count - 1 - s->count / 20], s->count);
}

/* Source to verdict, the program's and task's parsing included. */
static double once(stitch_context *ctx, stitch_task *t, int number, int where, int profile, char **stages)
{
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_error *err = NULL;
    stitch_report_summary summary = STITCH_REPORT_SUMMARY_INIT;
    stitch_verify_options options = STITCH_VERIFY_OPTIONS_INIT;
    char source[1000];
    double start, ms;

    options.where = where;
    options.profile = profile;
    snprintf(source, sizeof(source), candidate, number);
    start = now_ms();
    if (stitch_program_parse(ctx, source, plan, NULL, &p, &err) || stitch_verify_program(ctx, t, p, &options, &r, &err))
        fail("verify", err);
    ms = now_ms() - start;
    stitch_report_summary_get(r, &summary);
    if (!summary.correct || !summary.timed) {
        fprintf(stderr, "the candidate did not pass:\n%s", stitch_report_text(r));
        exit(1);
    }
    if (stages) {
        free(*stages);
        *stages = strdup(stitch_report_text(r));
    }
    stitch_report_free(r);
    stitch_program_free(p);
    return ms;
}

static stitch_task *new_task(stitch_context *ctx, int elements)
{
    static char text[4000];
    stitch_error *err = NULL;
    stitch_task *t = NULL;
    snprintf(text, sizeof(text), task_json, elements, plan, plan);
    if (stitch_task_parse(ctx, text, NULL, &t, &err))
        fail("task", err);
    return t;
}

static stitch_context *new_context(const char *cache)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    options.cache_dir = cache;
    if (stitch_context_new(&ctx, &options, &err))
        fail("context", err);
    return ctx;
}

static double open_device(stitch_context *ctx)
{
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    stitch_error *err = NULL;
    double start = now_ms();
    if (stitch_device_query(ctx, &info, &err))
        fail("device", err);
    if (info.simulated) {
        fprintf(stderr, "needs a real GPU\n");
        exit(77);
    }
    return now_ms() - start;
}

static void remove_folder(const char *path)
{
    char file[4096];
    struct dirent *entry;
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
        if (unlink(file))
            remove_folder(file);
    }
    if (folder)
        closedir(folder);
    rmdir(path);
}

int main(int argc, char **argv)
{
    int repetitions = argc > 1 ? atoi(argv[1]) : 11, elements = argc > 2 ? atoi(argv[2]) : 1 << 20,
        number = (int)getpid() % 1000000 * 1000 + 1;
    static series cold = {.name = "cold"}, fresh = {.name = "new candidate"}, again = {.name = "same candidate again"},
                  device = {.name = "opening the device, first"}, here = {.name = "new, in process"},
                  again_here = {.name = "same again, in process"}, profiled = {.name = "new, with its profile"},
                  profiled_here = {.name = "new, profile, in process"};
    char warm_cache[] = "/tmp/stitch-bench-XXXXXX", *stages_cold = NULL, *stages_new = NULL, *stages_here = NULL;
    stitch_context *warm;
    stitch_task *t;

    if (!mkdtemp(warm_cache))
        return 1;
    warm = new_context(warm_cache);
    add(&device, open_device(warm));
    t = new_task(warm, elements);
    once(warm, t, number++, WORKER, STITCH_PROFILE_AUTO, NULL);
    for (int i = 0; i < repetitions; i++) {
        char cold_cache[] = "/tmp/stitch-bench-XXXXXX";
        if (!mkdtemp(cold_cache))
            return 1;
        stitch_context *ctx = new_context(cold_cache);
        open_device(ctx);
        double start = now_ms();
        stitch_task *cold_task = new_task(ctx, elements);
        double parse = now_ms() - start;
        add(&cold, parse + once(ctx, cold_task, number++, WORKER, STITCH_PROFILE_NEVER, &stages_cold));
        stitch_task_free(cold_task);
        stitch_context_free(ctx);
        remove_folder(cold_cache);
        add(&fresh, once(warm, t, number, WORKER, STITCH_PROFILE_NEVER, &stages_new));
        add(&again, once(warm, t, number++, WORKER, STITCH_PROFILE_NEVER, NULL));
        add(&here, once(warm, t, number, HERE, STITCH_PROFILE_NEVER, &stages_here));
        add(&again_here, once(warm, t, number++, HERE, STITCH_PROFILE_NEVER, NULL));
        add(&profiled, once(warm, t, number++, WORKER, STITCH_PROFILE_AUTO, NULL));
        add(&profiled_here, once(warm, t, number++, HERE, STITCH_PROFILE_AUTO, NULL));
    }
    print(&device);
    print(&cold);
    print(&fresh);
    print(&again);
    print(&here);
    print(&again_here);
    print(&profiled);
    print(&profiled_here);
    printf("\nlast cold run:\n%s\nlast run of a new candidate:\n%s\nthe last one in this process:\n%s", stages_cold,
           stages_new, stages_here);
    stitch_task_free(t);
    stitch_context_free(warm);
    remove_folder(warm_cache);
    free(stages_cold);
    free(stages_new);
    free(stages_here);
    return 0;
}
