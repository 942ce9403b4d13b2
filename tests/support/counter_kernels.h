/* SPDX-License-Identifier: MIT
 *
 * Kernels whose counters can be calculated, and memory for them: for the tests and the benchmark of hardware counters.
 */
#ifndef STITCH_TESTS_COUNTER_KERNELS_H
#define STITCH_TESTS_COUNTER_KERNELS_H

#include "cuda/cuda.h"

static const char counter_source[] =
    /* 12 bytes of memory, two loads and a store a thread */
    "extern \"C\" __global__ void add(const float *a, const float *b, float *c, long long n)\n"
    "{ long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }\n"
    /* 8 n FFMA a thread */
    "extern \"C\" __global__ void fused(float *out, int n)\n"
    "{ float x = threadIdx.x, y = 0.5f, z = 1.0f;\n"
    "#pragma unroll 1\n"
    "  for (int i = 0; i < n; i++) {\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < 8; k++)\n"
    "      asm volatile(\"fma.rn.f32 %0, %0, %1, %2;\" : \"+f\"(x) : \"f\"(y), \"f\"(z)); }\n"
    "  out[blockIdx.x * blockDim.x + threadIdx.x] = x; }\n"
    /* a load a thread, `stride` floats from its neighbour's */
    "extern \"C\" __global__ void gather(const float *x, float *out, int stride)\n"
    "{ long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; out[i] = x[i * stride]; }\n"
    /* n loads of shared memory a thread, `stride` words from its neighbour's */
    "extern \"C\" __global__ void shared_read(float *out, int stride, int n)\n"
    "{ __shared__ float s[1024]; float sum = 0, v;\n"
    "  for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = i;\n"
    "  __syncthreads();\n"
    "  int at = (threadIdx.x & 31) * stride;\n"
    "  unsigned base = (unsigned)__cvta_generic_to_shared(s);\n"
    "#pragma unroll 1\n"
    "  for (int i = 0; i < n; i++) {\n"
    "    asm volatile(\"ld.volatile.shared.f32 %0, [%1];\" : \"=f\"(v) : \"r\"(base + (((at + i) & 1023) << 2)));\n"
    "    sum += v; }\n"
    "  out[blockIdx.x * blockDim.x + threadIdx.x] = sum; }\n"
    /* n matrix instructions a warp */
    "extern \"C\" __global__ void matrix(float *out, int n)\n"
    "{ unsigned a = threadIdx.x, b = a + 1; float c0 = 0, c1 = 0, c2 = 0, c3 = 0;\n"
    "#pragma unroll 1\n"
    "  for (int i = 0; i < n; i++)\n"
    "    asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%4,%5}, \"\n"
    "                 \"{%0,%1,%2,%3};\" : \"+f\"(c0), \"+f\"(c1), \"+f\"(c2), \"+f\"(c3) : \"r\"(a), \"r\"(b));\n"
    "  out[blockIdx.x * blockDim.x + threadIdx.x] = c0 + c1 + c2 + c3; }\n"
    /* n special functions and 4 n logic operations a thread */
    "extern \"C\" __global__ void special(float *out, int n)\n"
    "{ float x = threadIdx.x; unsigned k = threadIdx.x;\n"
    "#pragma unroll 1\n"
    "  for (int i = 0; i < n; i++) {\n"
    "    asm volatile(\"ex2.approx.ftz.f32 %0, %0;\" : \"+f\"(x));\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++)\n"
    "      asm volatile(\"xor.b32 %0, %0, %1;\" : \"+r\"(k) : \"r\"(i)); }\n"
    "  out[blockIdx.x * blockDim.x + threadIdx.x] = x + k; }\n"
    "extern \"C\" __global__ void increment(int *p)\n"
    "{ p[blockIdx.x * blockDim.x + threadIdx.x] += 1; }\n";

enum { ADD, FUSED, GATHER, SHARED_READ, MATRIX, SPECIAL, INCREMENT, COUNTER_KERNELS, COUNTER_BLOCK = 256 };
static const char *const counter_names[COUNTER_KERNELS] = {"add",    "fused",   "gather",   "shared_read",
                                                           "matrix", "special", "increment"};

typedef struct counter_work {
    stitch__device *dev;
    stitch__module module;
    CUfunction kernels[COUNTER_KERNELS];
    CUstream stream;
    CUdeviceptr x, y, z; /* of `floats` floats each */
    size_t floats;
} counter_work;

/* The device is entered. A failure leaves what there is for counter_work_close(). */
static inline int counter_work_open(stitch_context *context, stitch__device *on, size_t floats, counter_work *w,
                                    stitch_error **error)
{
    stitch_image *image = NULL;
    memset(w, 0, sizeof(*w));
    w->dev = on;
    w->floats = floats;
    int rc = stitch_compile(context, counter_source, NULL, &image, error);
    if (rc == STITCH_OK)
        rc = stitch__module_load(on, image, &w->module, error);
    for (int i = 0; i < COUNTER_KERNELS && rc == STITCH_OK; i++) {
        size_t at = 0;
        rc = stitch_image_find(image, counter_names[i], &at);
        if (rc == STITCH_OK)
            w->kernels[i] = w->module.kernels[at];
    }
    stitch_image_free(image);
    CUdeviceptr *const memory[] = {&w->x, &w->y, &w->z};
    for (size_t i = 0; i < STITCH__COUNT(memory) && rc == STITCH_OK; i++)
        rc = stitch__mem_alloc(on, floats * sizeof(float), "counted", memory[i], error);
    if (rc == STITCH_OK)
        rc = stitch__cu_check(on, on->drv->StreamCreate(&w->stream, CU_STREAM_NON_BLOCKING), error, "cuStreamCreate");
    for (size_t i = 0; i < STITCH__COUNT(memory) && rc == STITCH_OK; i++)
        rc = stitch__cu_check(on, on->drv->MemsetD8Async(*memory[i], 0, floats * sizeof(float), w->stream), error,
                              "cuMemsetD8Async");
    if (rc == STITCH_OK)
        rc = stitch__cu_check(on, on->drv->StreamSynchronize(w->stream), error, "cuStreamSynchronize");
    return rc;
}

static inline void counter_work_close(counter_work *w)
{
    stitch__mem_free(w->dev, w->x);
    stitch__mem_free(w->dev, w->y);
    stitch__mem_free(w->dev, w->z);
    if (w->stream)
        w->dev->drv->StreamDestroy(w->stream);
    stitch__module_unload(&w->module);
}

static inline CUresult counter_launch(counter_work *w, int kernel, unsigned grid, CUstream stream, void **args)
{
    return w->dev->drv->LaunchKernel(w->kernels[kernel], grid, 1, 1, COUNTER_BLOCK, 1, 1, 0, stream, args, NULL);
}

static inline CUresult launch_add(counter_work *w, size_t n)
{
    long long count = (long long)n;
    void *args[] = {&w->x, &w->y, &w->z, &count};
    return counter_launch(w, ADD, (unsigned)((n + COUNTER_BLOCK - 1) / COUNTER_BLOCK), w->stream, args);
}

static inline CUresult launch_fused(counter_work *w, unsigned grid, CUstream stream, int n)
{
    void *args[] = {&w->z, &n};
    return counter_launch(w, FUSED, grid, stream, args);
}

static inline CUresult launch_gather(counter_work *w, unsigned grid, int stride)
{
    void *args[] = {&w->x, &w->z, &stride};
    return counter_launch(w, GATHER, grid, w->stream, args);
}

static inline CUresult launch_shared_read(counter_work *w, unsigned grid, int stride, int n)
{
    void *args[] = {&w->z, &stride, &n};
    return counter_launch(w, SHARED_READ, grid, w->stream, args);
}

static inline CUresult launch_matrix(counter_work *w, unsigned grid, int n)
{
    void *args[] = {&w->z, &n};
    return counter_launch(w, MATRIX, grid, w->stream, args);
}

static inline CUresult launch_special(counter_work *w, unsigned grid, int n)
{
    void *args[] = {&w->z, &n};
    return counter_launch(w, SPECIAL, grid, w->stream, args);
}

static inline CUresult launch_increment(counter_work *w, unsigned grid)
{
    void *args[] = {&w->y};
    return counter_launch(w, INCREMENT, grid, w->stream, args);
}

/* A program of six kernels; needs SIX_FLOATS floats. */
enum { SIX_FLOATS = 1 << 26, SIX = 6 };
static const char *const six_names[SIX] = {"add", "fused", "gather", "shared_read", "matrix", "increment"};

static inline CUresult launch_six(counter_work *w)
{
    CUresult r = launch_add(w, SIX_FLOATS);
    if (r == CUDA_SUCCESS)
        r = launch_fused(w, 4096, w->stream, 256);
    if (r == CUDA_SUCCESS)
        r = launch_gather(w, SIX_FLOATS / 32 / COUNTER_BLOCK, 32);
    if (r == CUDA_SUCCESS)
        r = launch_shared_read(w, 1024, 32, 256);
    if (r == CUDA_SUCCESS)
        r = launch_matrix(w, 1024, 1000);
    return r == CUDA_SUCCESS ? launch_increment(w, SIX_FLOATS / COUNTER_BLOCK) : r;
}

#endif
