/* SPDX-License-Identifier: MIT
 *
 * For each rule of the advice something small that has its problem, and a twin that has not.
 */
#ifndef STITCH_TESTS_RULE_PROGRAMS_H
#define STITCH_TESTS_RULE_PROGRAMS_H

#include "profile_programs.h"

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

/* All of them take (x, y, rounds); x is zeros, of which no compiler knows. FLOATS of each.
 *
 * chase: loads that need what the one before brought; 128 bytes of a warp each, all over 64 MB.
 * apart, abreast: loads that wait for each other, too; 16 sectors of a warp each, for one float in four or for float4.
 * meets: one warp of a block works, and the others wait for it; meets_once: each works for itself.
 * keeps: a block takes a quarter of a multiprocessor's shared memory.
 * uneven: one block of 16 has 16 times as much to do, wherever it runs. */
enum { FLOATS = 1 << 25 };

#define KERNELS(real)                                                                                                  \
    "#define KERNEL(name) extern \"C\" __global__ void name(const float *x, " real " *y, int rounds)\n"                \
    "#define ME (blockIdx.x * blockDim.x + threadIdx.x)\n"                                                             \
    "#define LANE (threadIdx.x & 31)\n"                                                                                \
    "__device__ float chase(const float *x, int rounds)\n{\n"                                                          \
    "    unsigned row = ME / 32 * 2654435761u;\n    float sum = 0;\n"                                                  \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "        float v = x[(row >> 13) * 32 + LANE];\n"                                                                  \
    "        sum += v;\n        row = row * 1664525u + 1013904223u + (v != v);\n    }\n"                               \
    "    return sum;\n}\n"                                                                                             \
    "__device__ float chain(float v, int rounds)\n{\n"                                                                 \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "#pragma unroll\n        for (int k = 0; k < 64; k++) v = v * 0.999f + 0.5f;\n    }\n"                             \
    "    return v;\n}\n"                                                                                               \
    "template <typename T> __device__ float chains(float x, int rounds)\n{\n"                                          \
    "    T v[8], sum = 0;\n    for (int k = 0; k < 8; k++) v[k] = (T)(x + k);\n"                                       \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "#pragma unroll\n        for (int k = 0; k < 64; k++) v[k % 8] = v[k % 8] * (T)0.999 + (T)0.5;\n    }\n"           \
    "    for (int k = 0; k < 8; k++) sum += v[k];\n"                                                                   \
    "    return (float)sum;\n}\n"                                                                                      \
    "__device__ float total(float v) { return v; }\n"                                                                  \
    "__device__ float total(float4 v) { return v.x + v.y + v.z + v.w; }\n"                                             \
    "template <typename T> __device__ float chase_near(const T *x, int each, int rounds)\n{\n"                         \
    "    unsigned row = ME / 32 * 2654435761u;\n    float sum = 0;\n"                                                  \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "        float v = total(x[((row >> 23) * 32 + LANE) * each]);\n"                                                  \
    "        sum += v;\n        row = row * 1664525u + 1013904223u + (v != v);\n    }\n"                               \
    "    return sum;\n}\n"                                                                                             \
    "KERNEL(apart) { y[ME] = chase_near(x, 4, rounds); }\n"                                                            \
    "KERNEL(abreast) { y[ME] = chase_near((const float4 *)x, 1, rounds); }\n"                                          \
    "KERNEL(waits) { y[ME] = chase(x, rounds); }\n"                                                                    \
    "KERNEL(one_chain) { y[ME] = chain(x[ME], rounds); }\n"                                                            \
    "KERNEL(floats) { y[ME] = chains<float>(x[ME], rounds); }\n"                                                       \
    "KERNEL(doubles) { y[ME] = chains<double>(x[ME], rounds); }\n"                                                     \
    "KERNEL(roots)\n{\n    float v[4] = {x[ME], 1, 2, 3};\n"                                                           \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "#pragma unroll\n        for (int k = 0; k < 64; k++)\n"                                                           \
    "            asm(\"rsqrt.approx.ftz.f32 %0, %0;\" : \"+f\"(v[k % 4]));\n    }\n"                                   \
    "    y[ME] = v[0] + v[1] + v[2] + v[3];\n}\n"                                                                      \
    "KERNEL(bits)\n{\n    unsigned h = ME + __float_as_uint(x[ME]), g = ~h;\n"                                         \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "#pragma unroll\n        for (int k = 0; k < 8; k++) {\n"                                                          \
    "            h ^= h << 13, g ^= g << 13;\n            h ^= h >> 17, g ^= g >> 17;\n"                               \
    "            h ^= h << 5, g ^= g << 5;\n        }\n    }\n"                                                        \
    "    y[ME] = h + g;\n}\n"                                                                                          \
    "KERNEL(meets)\n{\n    float v = x[ME];\n"                                                                         \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "        if (threadIdx.x < 32) v = chain(v, 1);\n        __syncthreads();\n    }\n"                                \
    "    y[ME] = v;\n}\n"                                                                                              \
    "KERNEL(meets_once)\n{\n    float v = chain(x[ME], rounds);\n    __syncthreads();\n    y[ME] = v;\n}\n"            \
    "KERNEL(keeps)\n{\n    __shared__ float tile[12288];\n"                                                            \
    "    tile[threadIdx.x] = chase(x, rounds);\n    __syncthreads();\n"                                                \
    "    y[ME] = tile[threadIdx.x ^ 32];\n}\n"                                                                         \
    "KERNEL(uneven) { y[ME] = chase(x, blockIdx.x * 2654435761u >> 28 ? rounds : 16 * rounds); }\n"                    \
    "KERNEL(locals)\n{\n    float v[64];\n    int add = 7 + (int)x[ME];\n"                                             \
    "    for (int k = 0; k < 64; k++) v[k] = x[k * 32 + LANE];\n"                                                      \
    "    for (int r = 0; r < rounds; r++)\n        v[r * add & 63] += v[(r * add + 13) & 63];\n"                       \
    "    y[ME] = v[add];\n}\n"                                                                                         \
    "KERNEL(counts)\n{\n    float sum = 0;\n"                                                                          \
    "    for (int r = 0; r < rounds; r++)\n        sum += atomicAdd(y, x[r]);\n"                                       \
    "    y[ME + 32] = sum;\n}\n"                                                                                       \
    "KERNEL(counts_once)\n{\n    float sum = chain(x[ME], rounds);\n"                                                  \
    "    y[ME + 32] = sum;\n"                                                                                          \
    "    if (threadIdx.x == 0)\n        atomicAdd(y, sum);\n}\n"                                                       \
    "KERNEL(few_lanes)\n{\n    float v = x[ME];\n    if (LANE < 4) v = chain(v, rounds);\n    y[ME] = v;\n}\n"         \
    "KERNEL(cached)\n{\n    float sum[8] = {0};\n"                                                                     \
    "    for (int r = 0; r < rounds; r++) {\n"                                                                         \
    "        const float *p = x + threadIdx.x + (r * 32 & 1023);\n"                                                    \
    "#pragma unroll\n        for (int k = 0; k < 8; k++) sum[k] += p[256 * k];\n    }\n"                               \
    "    y[ME] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];\n}\n"                          \
    "KERNEL(streams)\n{\n    unsigned all = gridDim.x * blockDim.x;\n"                                                 \
    "    for (unsigned i = ME; i < (1u << 23); i += all) ((float4 *)y)[i] = ((const float4 *)x)[i];\n}\n"

static const char kernels_source[] = KERNELS("float"), kernels_reference[] = KERNELS("double");

/* A launch: blocks for each multiprocessor. */
typedef struct launch {
    const char *kernel;
    double blocks;
    unsigned threads;
    int rounds;
} launch;

#define L(kernel, blocks, threads, rounds)                                                                             \
    {                                                                                                                  \
#kernel, blocks, threads, rounds                                                                               \
    }

/* X(rule, whether the simulator's counters are enough for it, a launch that has the problem, one that has not) */
#define LAUNCHES(X)                                                                                                    \
    X(small_grid, false, L(floats, 0.25, 256, 320), L(waits, 8, 256, 64))                                              \
    X(uncoalesced, true, L(apart, 4, 128, 64), L(abreast, 4, 128, 64))                                                 \
    X(barrier_stalls, false, L(meets, 2, 1024, 200), L(meets_once, 2, 1024, 60))                                       \
    X(fp64_bound, false, L(doubles, 8, 256, 40), L(floats, 8, 256, 80))                                                \
    X(xu_bound, false, L(roots, 8, 256, 10), L(floats, 8, 256, 80))                                                    \
    X(instruction_bound, false, L(bits, 8, 256, 50), L(floats, 8, 256, 80))                                            \
    X(compute_bound_near_limit, false, L(floats, 8, 256, 160), L(one_chain, 1, 128, 300))                              \
    X(memory_bound_near_limit, false, L(streams, 16, 256, 0), L(waits, 4, 128, 64))                                    \
    X(partial_warps, true, L(one_chain, 2, 33, 300), L(one_chain, 2, 64, 300))                                         \
    X(low_occupancy, false, L(keeps, 16, 128, 16), L(waits, 16, 128, 64))                                              \
    X(tail_effect, false, L(waits, 2.2, 1024, 64), L(waits, 4, 1024, 32))                                              \
    X(uneven_blocks, false, L(uneven, 16, 128, 16), L(waits, 16, 128, 64))                                             \
    X(latency_bound, false, L(waits, 4, 128, 64), L(streams, 16, 256, 0))                                              \
    X(spills, true, L(locals, 8, 256, 400), L(floats, 8, 256, 80))                                                     \
    X(atomic_contention, false, L(counts, 2, 256, 8), L(counts_once, 8, 256, 80))                                      \
    X(divergence, true, L(few_lanes, 4, 128, 100), L(one_chain, 4, 128, 100))                                          \
    X(cache_bound, false, L(cached, 8, 256, 300), L(floats, 8, 256, 80))

/* ---- programs ---------------------------------------------------------------------------------------------------- */

typedef struct twin {
    const char *source, *plan;
} twin;

#define N_INTS "{\"i32\":\"N\"}"

/* float32 becomes float16 in a kernel of its own, or where it is made. */
#define HALVES_HEAD HEAD("halves", "\"N\":4194304", TENSOR("x", "\"N\""), TENSOR("y", "\"N\""), "f16", "1e-2")
#define HALVES_SOURCE                                                                                                  \
    "#include <cuda_fp16.h>\n"                                                                                         \
    "#define EACH int i = blockIdx.x * 256 + threadIdx.x; if (i < n)\n"                                                \
    "extern \"C\" __global__ void scale(const float *x, float *t, int n) { EACH t[i] = x[i] * 2; }\n"                  \
    "extern \"C\" __global__ void narrow(const float *t, __half *h, int n) { EACH h[i] = __float2half(t[i]); }\n"      \
    "extern \"C\" __global__ void scale_half(const float *x, __half *h, int n)\n"                                      \
    "{ EACH h[i] = __float2half(x[i] * 2); }\n"                                                                        \
    "extern \"C\" __global__ void add(const __half *h, float *y, int n) { EACH y[i] = __half2float(h[i]) + 1; }\n"
#define HALVES_STEP(name, from, to) KERNEL_STEP(name, "\"ceil_div(N, 256)\"", "256", "\"" from "\",\"" to "\"," N_INTS)
#define HALVES_PLAN(buffers, steps)                                                                                    \
    "{\"stitch\":1,\"buffers\":{" buffers "\"h\":{\"dtype\":\"f16\",\"shape\":[\"N\"]}},\"run\":[" steps               \
    "," HALVES_STEP("add", "h", "y") "]}"

static const twin halves[] = {
    {HALVES_SOURCE, HALVES_PLAN(BUFFER("t") ",", HALVES_STEP("scale", "x", "t") "," HALVES_STEP("narrow", "t", "h"))},
    {HALVES_SOURCE, HALVES_PLAN("", HALVES_STEP("scale_half", "x", "h"))},
};

/* 256 MB four times from the beginning to the end, or each part of them four times while it is in the cache. The blocks
 * run all at once on a large device. */
#define PASSES_HEAD                                                                                                    \
    HEAD("passes", "\"N\":67108864,\"M\":262144", TENSOR("x", "\"N\""), TENSOR("y", "\"M\""), "f32", "1e-2")
/* The load is one that the compiler cannot take out of a loop. */
#define PASSES(loops, lane)                                                                                            \
    "extern \"C\" __global__ void __launch_bounds__(256, 8) passes(const float4 *x, float *y)\n{\n"                    \
    "    const int t = blockIdx.x * 256 + threadIdx.x;\n    float sum = 0;\n"                                          \
    "    " loops " {\n"                                                                                                \
    "        float4 v;\n"                                                                                              \
    "        asm volatile(\"ld.volatile.global.v4.f32 {%0, %1, %2, %3}, [%4];\"\n"                                     \
    "                     : \"=f\"(v.x), \"=f\"(v.y), \"=f\"(v.z), \"=f\"(v.w)\n"                                      \
    "                     : \"l\"(x + part * 262144 + (" lane ")));\n"                                                 \
    "        sum += v.x + v.y + v.z + v.w;\n    }\n"                                                                   \
    "    y[t] = sum;\n}\n"
#define PASSES_PLAN RUN_OF(KERNEL_STEP("passes", "1024", "256", "\"x\",\"y\""))

static const twin passes[] = {
    {PASSES("for (int pass = 0; pass < 4; pass++) for (int part = 0; part < 64; part++)", "t"), PASSES_PLAN},
    {PASSES("for (int part = 0; part < 64; part++) for (int pass = 0; pass < 4; pass++)", "t ^ 32 * pass"),
     PASSES_PLAN},
};

#endif
