/* SPDX-License-Identifier: MIT
 *
 * How fast the simulator's core is: lane-instructions a second, checked (all checks) and unchecked, for kernels of
 * different habits (gemm: tiles of 16 x 16 in shared memory, a warp reads two rows; gemm32: of 32 x 32; strided: every
 * access of a lane 132 bytes from its neighbour's); a layer norm from CUDA C++ to its checked result; and decoding a
 * kernel of 10,000 instructions. No GPU is needed, NVRTC is.
 *
 * usage: bench_sim [THREADS] [SAMPLES] [NAME]     (default 1 host thread, 9 samples, everything; NAME: one kernel,
 * "layer_norm" or "decode"). Medians with the fastest and slowest. On one thread the processor time of the process is
 * measured, which other work on the machine disturbs least; on several, the time that passes.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <stitch/stitch.h>

#include "sim/sim.h"

enum {
    MAX_SAMPLES = 99,
    ELEMENTS = 1 << 20,
    PART = 1 << 18,
    EDGE = 256,
    ROWS = 256,
    COLUMNS = 768,
    LONG_KERNEL = 10000
};

static const char source[] =
    "extern \"C\" __global__ void elementwise(const float *a, const float *b, float *c, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) {\n"
    "        float x = a[i], y = b[i];\n"
    "        c[i] = (x * y + x) * 0.5f + (x - y) * (x + y);\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void strided(const float *a, const float *b, float *c, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x, s = (int)((i * 33u) & (n - 1));\n"
    "    float x = a[s], y = b[(s + 7) & (n - 1)];\n"
    "    c[s] = x * y + x;\n"
    "}\n"
    "extern \"C\" __global__ void gemm(const float *a, const float *b, float *c, int n)\n"
    "{\n"
    "    __shared__ float x[16][17], y[16][17];\n"
    "    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;\n"
    "    float sum = 0;\n"
    "    for (int k = 0; k < n; k += 16) {\n"
    "        x[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];\n"
    "        y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];\n"
    "        __syncthreads();\n"
    "        for (int j = 0; j < 16; j++)\n"
    "            sum += x[threadIdx.y][j] * y[j][threadIdx.x];\n"
    "        __syncthreads();\n"
    "    }\n"
    "    c[row * n + column] = sum;\n"
    "}\n"
    "extern \"C\" __global__ void gemm32(const float *a, const float *b, float *c, int n)\n"
    "{\n"
    "    __shared__ float x[32][32], y[32][32];\n"
    "    int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;\n"
    "    float sum = 0;\n"
    "    for (int k = 0; k < n; k += 32) {\n"
    "        x[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];\n"
    "        y[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];\n"
    "        __syncthreads();\n"
    "        for (int j = 0; j < 32; j++)\n"
    "            sum += x[threadIdx.y][j] * y[j][threadIdx.x];\n"
    "        __syncthreads();\n"
    "    }\n"
    "    c[row * n + column] = sum;\n"
    "}\n";

static const char layer_norm[] =
    "extern \"C\" __global__ void layer_norm(const float *x, const float *w, float *y, int n)\n"
    "{\n"
    "    __shared__ float part[2][8];\n"
    "    const float *row = x + (size_t)blockIdx.x * n;\n"
    "    float sum = 0, square = 0;\n"
    "    for (int i = threadIdx.x; i < n; i += 256) {\n"
    "        sum += row[i];\n"
    "        square += row[i] * row[i];\n"
    "    }\n"
    "    for (int d = 16; d; d /= 2) {\n"
    "        sum += __shfl_xor_sync(~0u, sum, d);\n"
    "        square += __shfl_xor_sync(~0u, square, d);\n"
    "    }\n"
    "    if (threadIdx.x % 32 == 0) {\n"
    "        part[0][threadIdx.x / 32] = sum;\n"
    "        part[1][threadIdx.x / 32] = square;\n"
    "    }\n"
    "    __syncthreads();\n"
    "    sum = square = 0;\n"
    "    for (int i = 0; i < 8; i++) {\n"
    "        sum += part[0][i];\n"
    "        square += part[1][i];\n"
    "    }\n"
    "    float mean = sum / n, scale = rsqrtf(square / n - mean * mean + 1e-5f);\n"
    "    for (int i = threadIdx.x; i < n; i += 256)\n"
    "        y[(size_t)blockIdx.x * n + i] = (row[i] - mean) * scale * w[i];\n"
    "}\n";

/* As the kernels above take them. */
typedef struct arguments {
    uint64_t a, b, c;
    int32_t n, padding;
} arguments;

typedef struct bench {
    stitch_context *ctx;
    stitch__sim_memory *memory;
    uint64_t a, b, c; /* ELEMENTS floats each */
    uint32_t threads;
    int samples;
    const char *only; /* NULL: everything */
} bench;

static double clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool wanted(const bench *b, const char *name)
{
    return !b->only || strcmp(b->only, name) == 0;
}

static void check(int rc, const char *what, stitch_error *err)
{
    if (rc == STITCH_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err ? stitch_error_message(err) : stitch_status_name(rc));
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, double *v, int n, const char *unit)
{
    qsort(v, (size_t)n, sizeof(*v), by_value);
    printf("%-52s %9.3f %s  (%.3f to %.3f, %d samples)\n", name, v[n / 2], unit, v[0], v[n - 1], n);
}

static stitch_image *compile(const bench *b, const char *text)
{
    stitch_compile_options options;
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    stitch_compile_options_init(&options, sizeof(options));
    options.arch = "sm_90";
    options.ptx = 1;
    options.no_cache = 1;
    int rc = stitch_compile(b->ctx, text, &options, &image, &err);
    if (rc == STITCH_E_NOT_FOUND || rc == STITCH_E_UNSUPPORTED) {
        fprintf(stderr, "skipped: %s\n", stitch_error_message(err));
        exit(77);
    }
    check(rc, "compile", err);
    return image;
}

static stitch__sim_module *load(const bench *b, const char *text)
{
    stitch_image *image = compile(b, text);
    stitch__sim_module *m = NULL;
    stitch_error *err = NULL;
    size_t size;
    const char *ptx = stitch_image_data(image, &size);
    check(stitch__sim_module_load(&m, b->ctx, ptx, size, "bench.cu", &err), "load", err);
    stitch_image_free(image);
    return m;
}

static uint64_t floats(bench *b, const char *name)
{
    stitch__sim_alloc *a = NULL;
    stitch_error *err = NULL;
    check(stitch__sim_memory_alloc(b->memory, ELEMENTS * 4ull, 0, name, &a, &err), "memory", err);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        float f = (float)(i % 1021) / 512 - 1;
        memcpy(a->host + 4ull * i, &f, 4);
    }
    stitch__sim_memory_mark(a, 0, a->size, true);
    return a->base;
}

/* One launch; its lane-instructions. A finding means that the benchmark is wrong. */
static uint64_t launch(const bench *b, const stitch__sim_module *m, const char *kernel, const uint32_t grid[2],
                       const uint32_t block[2], int n, uint32_t flags)
{
    arguments params = {b->a, b->b, b->c, n, 0};
    stitch__sim_launch l = {.function = stitch__sim_module_find(m, kernel),
                            .grid = {grid[0], grid[1], 1},
                            .block = {block[0], block[1], 1},
                            .params = &params,
                            .param_bytes = 28,
                            .memory = b->memory,
                            .flags = flags,
                            .threads = b->threads};
    stitch__sim_result result;
    stitch_error *err = NULL;
    check(stitch__sim_launch_run(&l, &result, &err), kernel, err);
    if (result.report_count || result.fault) {
        fprintf(stderr, "%s: %zu findings\n", kernel, result.report_count);
        exit(1);
    }
    uint64_t lanes = result.lane_instructions;
    stitch__sim_result_clear(&result);
    return lanes;
}

/* `what`: a word on the size. */
static void measure_kernel(const bench *b, const stitch__sim_module *m, const char *kernel, const char *what,
                           const uint32_t grid[2], const uint32_t block[2], int n)
{
    clockid_t clock = b->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    for (int checked = 1; checked >= 0 && wanted(b, kernel); checked--) {
        double rate[MAX_SAMPLES];
        char name[80];
        uint32_t flags = checked ? STITCH__SIM_CHECK_ALL : 0;
        launch(b, m, kernel, grid, block, n, flags); /* pages, code, caches */
        for (int i = 0; i < b->samples; i++) {
            double t = clock_ms(clock);
            uint64_t lanes = launch(b, m, kernel, grid, block, n, flags);
            rate[i] = (double)lanes / (clock_ms(clock) - t) / 1e6;
        }
        snprintf(name, sizeof(name), "%s, %s, %s", kernel, what, checked ? "checked" : "unchecked");
        print(name, rate, b->samples, "G lane-instructions/s");
    }
}

static void measure_layer_norm(const bench *b)
{
    double all[MAX_SAMPLES], run[MAX_SAMPLES];
    clockid_t clock = b->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    for (int i = -1; i < b->samples; i++) { /* the first one opens NVRTC */
        double start = clock_ms(clock);
        stitch__sim_module *m = load(b, layer_norm);
        double loaded = clock_ms(clock);
        launch(b, m, "layer_norm", (const uint32_t[2]){ROWS, 1}, (const uint32_t[2]){256, 1}, COLUMNS,
               STITCH__SIM_CHECK_ALL);
        double end = clock_ms(clock);
        stitch__sim_module_free(m);
        if (i >= 0) {
            all[i] = end - start;
            run[i] = end - loaded;
        }
    }
    print("layer norm 256 x 768, compiled, loaded and checked", all, b->samples, "ms");
    print("  of which checked run", run, b->samples, "ms");
}

/* A kernel of LONG_KERNEL instructions as NVRTC writes them: arithmetic, and a load and store now and then. */
static void measure_decode(const bench *b)
{
    size_t capacity = (size_t)LONG_KERNEL * 64 + 1024, used;
    char *text = malloc(capacity);
    double ms[MAX_SAMPLES];
    clockid_t clock = b->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    if (!text)
        exit(1);
    used = (size_t)snprintf(text, capacity,
                            ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
                            ".reg .f32 %%f<64>;\n.reg .b32 %%r<64>;\n.reg .b64 %%rd<4>;\n"
                            "ld.param.u64 %%rd1, [p];\ncvta.to.global.u64 %%rd2, %%rd1;\nmov.u32 %%r1, %%tid.x;\n"
                            "cvt.rn.f32.u32 %%f1, %%r1;\n");
    for (int i = 5; i < LONG_KERNEL - 1; i++) {
        int d = 1 + i % 63, s = 1 + (i * 7) % 63;
        switch (i % 8) {
        case 0:
            used += (size_t)snprintf(text + used, capacity - used, "ld.global.f32 %%f%d, [%%rd2+%d];\n", d, 4 * d);
            break;
        case 1:
            used += (size_t)snprintf(text + used, capacity - used, "st.global.f32 [%%rd2+%d], %%f%d;\n", 4 * d, s);
            break;
        case 2:
        case 3: used += (size_t)snprintf(text + used, capacity - used, "add.s32 %%r%d, %%r%d, %d;\n", d, s, i); break;
        default:
            used += (size_t)snprintf(text + used, capacity - used, "fma.rn.f32 %%f%d, %%f%d, %%f%d, 0f3F000000;\n", d,
                                     s, d);
        }
    }
    used += (size_t)snprintf(text + used, capacity - used, "ret;\n}\n");
    for (int i = 0; i < b->samples; i++) {
        stitch__sim_module *m = NULL;
        stitch_error *err = NULL;
        double t = clock_ms(clock);
        check(stitch__sim_module_load(&m, b->ctx, text, used, NULL, &err), "load", err);
        ms[i] = clock_ms(clock) - t;
        const stitch__sim_function *f = stitch__sim_module_find(m, "k");
        if (!f || stitch__sim_function_info_get(f)->refusal)
            exit(1);
        stitch__sim_module_free(m);
    }
    print("decoding 10,000 instructions", ms, b->samples, "ms");
    free(text);
}

int main(int argc, char **argv)
{
    bench b = {.threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 1,
               .samples = argc > 2 ? (int)strtol(argv[2], NULL, 0) : 9,
               .only = argc > 3 ? argv[3] : NULL};
    stitch_error *err = NULL;
    b.samples = b.samples < 1 ? 1 : b.samples > MAX_SAMPLES ? MAX_SAMPLES : b.samples;
    check(stitch_context_new(&b.ctx, NULL, &err), "context", err);
    check(stitch__sim_memory_new(&b.memory, &err), "memory", err);
    b.a = floats(&b, "a");
    b.b = floats(&b, "b");
    b.c = floats(&b, "c");
    stitch__sim_module *m = load(&b, source);
    const uint32_t wide[2] = {ELEMENTS / 256, 1}, part[2] = {PART / 256, 1}, line[2] = {256, 1},
                   tiles[2] = {EDGE / 16, EDGE / 16}, square[2] = {16, 16}, tiles32[2] = {EDGE / 32, EDGE / 32},
                   square32[2] = {32, 32};
    printf("%u host thread%s\n", b.threads, b.threads == 1 ? "" : "s");
    measure_kernel(&b, m, "elementwise", "2^20", wide, line, ELEMENTS);
    measure_kernel(&b, m, "gemm", "256^3", tiles, square, EDGE);
    measure_kernel(&b, m, "gemm32", "256^3", tiles32, square32, EDGE);
    measure_kernel(&b, m, "strided", "2^18", part, line, PART);
    measure_kernel(&b, m, "strided", "2^20", wide, line, ELEMENTS);
    if (wanted(&b, "layer_norm"))
        measure_layer_norm(&b);
    if (wanted(&b, "decode"))
        measure_decode(&b);
    stitch__sim_module_free(m);
    stitch__sim_memory_free(b.memory);
    stitch_context_free(b.ctx);
    return 0;
}
