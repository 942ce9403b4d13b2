// SPDX-License-Identifier: MIT
//
// Kernels of test_sim_core.c. core.ptx is made from this file by
//   nvcc -ptx -arch=sm_90a -lineinfo core.cu -o core.ptx
// with the folders taken out of its .file lines. Line numbers matter: the tests name them.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdint>
#include <cstdio>
#include <cuda.h>
#include <cuda_fp16.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;
#define KERNEL extern "C" __global__ void

// ---- results
KERNEL vadd(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i] * 2.0f;
}

KERNEL tile16(const float *A, const float *B, float *C, int n)
{
    __shared__ float a[16][16], b[16][16];
    int x = threadIdx.x, y = threadIdx.y, r = blockIdx.y * 16 + y, c = blockIdx.x * 16 + x;
    float s = 0;
    for (int k = 0; k < n; k += 16) {
        a[y][x] = A[r * n + k + x];
        b[y][x] = B[(k + y) * n + c];
        __syncthreads();
        for (int q = 0; q < 16; q++)
            s += a[y][q] * b[q][x];
        __syncthreads();
    }
    C[r * n + c] = s;
}

__device__ __noinline__ int fib(int n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

KERNEL fibs(int *o)
{
    o[threadIdx.x] = fib(threadIdx.x % 12);
}

typedef int (*function)(int);
__device__ __noinline__ int plus_one(int x)
{
    return x + 1;
}
__device__ __noinline__ int twice(int x)
{
    return x * 2;
}
__device__ function table[2] = {plus_one, twice};
KERNEL through_pointer(int *o)
{
    function f = threadIdx.x % 3 ? twice : plus_one;
    o[threadIdx.x] = f((int)threadIdx.x);
}

KERNEL cases(int *o)
{
    int x = threadIdx.x;
    switch (x % 8) {
    case 0: x = 7; break;
    case 1: x = x * 3; break;
    case 2: x += 100; break;
    case 3: x -= 9; break;
    case 4: x ^= 55; break;
    case 5: x <<= 2; break;
    case 6: x = -x; break;
    default: x = 0;
    }
    o[threadIdx.x] = x;
}

KERNEL print(int n)
{
    if (threadIdx.x < 2)
        printf("thread %d of %s: %5.2f %lld %c%%\n", threadIdx.x, "block", 1.5 * n, 1ll << 40, 'x');
}

KERNEL warp_sum(const float *a, float *o)
{
    float x = a[threadIdx.x];
    for (int k = 16; k; k >>= 1)
        x += __shfl_xor_sync(~0u, x, k);
    o[threadIdx.x] = x;
}

KERNEL histogram(const int *a, int *h, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(h + a[i] % 8, 1);
}

// ---- blocks that talk
KERNEL grid_sum(const float *a, float *part, float *o, int n)
{
    cg::grid_group g = cg::this_grid();
    __shared__ float s[128];
    float x = 0;
    for (int i = g.thread_rank(); i < n; i += g.size())
        x += a[i];
    s[threadIdx.x] = x;
    __syncthreads();
    for (int k = 64; k; k >>= 1) {
        if (threadIdx.x < k)
            s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        part[blockIdx.x] = s[0];
    g.sync();
    if (g.thread_rank() == 0) {
        float y = 0;
        for (int i = 0; i < gridDim.x; i++)
            y += part[i];
        o[0] = y;
    }
}

KERNEL last_block(const float *a, float *part, unsigned *count, float *o)
{
    __shared__ bool last;
    float x = a[blockIdx.x * 32 + threadIdx.x];
    for (int k = 16; k; k >>= 1)
        x += __shfl_down_sync(~0u, x, k);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x;
        __threadfence();
        last = atomicAdd(count, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float y = 0;
        for (int i = 0; i < gridDim.x; i++)
            y += part[i];
        o[0] = y;
    }
}

KERNEL last_block_no_fence(const float *a, float *part, unsigned *count, float *o)
{
    __shared__ bool last;
    float x = a[blockIdx.x * 32 + threadIdx.x];
    for (int k = 16; k; k >>= 1)
        x += __shfl_down_sync(~0u, x, k);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x;
        last = atomicAdd(count, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float y = 0;
        for (int i = 0; i < gridDim.x; i++)
            y += ((volatile float *)part)[i];
        o[0] = y;
    }
}

KERNEL wait_for_next(volatile int *flag, int *o)
{
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x)
            while (flag[blockIdx.x + 1] == 0)
                ;
        o[blockIdx.x] = blockIdx.x;
        __threadfence();
        flag[blockIdx.x] = 1;
    }
}

KERNEL spin_lock(int *lock, int *o)
{
    while (atomicCAS(lock, 0, 1) != 0)
        ;
    *(volatile int *)o += 1;
    __threadfence();
    atomicExch(lock, 0);
}

KERNEL never_set(volatile int *flag)
{
    while (*flag == 0)
        ;
}

// ---- checkers: a bug and its twin
KERNEL behind(const float *a, float *c)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i + 1]; // line: behind
}

KERNEL sum_shared(const float *a, float *o)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = a[t];
    for (int k = 128; k > 0; k >>= 1) {
        __syncthreads();
        if (t < k)
            s[t] += s[t + k];
    }
    if (t == 0)
        o[0] = s[0];
}

KERNEL sum_shared_bad(const float *a, float *o)
{
    __shared__ float s[256];
    int t = threadIdx.x;
    s[t] = a[t]; // line: wrote
    for (int k = 128; k > 0; k >>= 1) {
        if (t < k)
            s[t] += s[t + k]; // line: read
        __syncthreads();
    }
    if (t == 0)
        o[0] = s[0];
}

KERNEL swap_in_warp(float *o, int sync)
{
    __shared__ float s[32];
    s[threadIdx.x] = threadIdx.x;
    if (sync)
        __syncwarp();
    o[threadIdx.x] = s[threadIdx.x ^ 1];
}

KERNEL neighbour(float *a, int n, int step)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + step < n)
        a[i] = a[i + step] + 1.0f;
}

KERNEL half_rows(__half *h)
{
    __shared__ __half s[64];
    s[threadIdx.x] = h[threadIdx.x];
    __syncthreads();
    h[threadIdx.x] = __hadd(s[63 - threadIdx.x], __float2half(1.0f));
}

KERNEL squares(float *o, int n)
{
    float v[16];
    for (int i = 0; i < n; i++)
        v[i] = i * i;
    o[threadIdx.x] = v[threadIdx.x % 16];
}

KERNEL barrier_in_branches(float *o)
{
    if (threadIdx.x & 1) {
        __syncthreads();
        o[threadIdx.x] = 1;
    } else {
        __syncthreads();
        o[threadIdx.x] = 2;
    }
}

KERNEL early_return(float *o, int n)
{
    if (threadIdx.x >= n)
        return;
    __syncthreads();
    o[threadIdx.x] = 1;
}

KERNEL two_barriers(float *o)
{
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;");
    else
        asm volatile("bar.sync 2, 64;");
    o[threadIdx.x] = 1;
}

KERNEL half_of_a_shuffle(const float *a, float *o, int delta)
{
    float x = a[threadIdx.x];
    if (threadIdx.x < 16)
        x += __shfl_down_sync(0xffffu, x, delta);
    o[threadIdx.x] = x;
}

KERNEL unaligned(float *o, int shift)
{
    *(float4 *)(o + shift + threadIdx.x * 4) = make_float4(1, 2, 3, 4);
}

KERNEL asserts(int *o)
{
    assert(threadIdx.x < 5);
    o[threadIdx.x] = 1;
}

KERNEL named_pair(const float *a, float *o)
{
    __shared__ float s[64]; // producer warp 0, consumer warp 1
    if (threadIdx.x < 32) {
        s[threadIdx.x] = a[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        o[threadIdx.x - 32] = s[63 - threadIdx.x];
    }
}

// ---- asynchronous copies
__device__ inline uint32_t shared(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

KERNEL copy_async(const float *a, float *o, int wait)
{
    __shared__ __align__(16) float s[2][128];
    int t = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared(&s[k][t * 4])), "l"(a + k * 128 + t * 4));
        asm volatile("cp.async.commit_group;");
    }
    if (wait)
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    float x = s[0][127 - t];
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    o[t] = x + s[1][127 - t];
}

__device__ inline void mb_init(uint64_t *b, int n)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(b)), "r"(n));
}
__device__ inline void mb_expect(uint64_t *b, int n)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(b)), "r"(n) : "memory");
}
__device__ inline void mb_wait(uint64_t *b, int phase)
{
    asm volatile("{ .reg .pred P;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@P bra DONE;\nbra AGAIN;\n"
                 "DONE:\n}" ::"r"(shared(b)),
                 "r"(phase)
                 : "memory");
}

KERNEL bulk(const float *a, float *o, int wait)
{
    __shared__ __align__(128) float s[256];
    __shared__ uint64_t b;
    int t = threadIdx.x;
    if (t == 0)
        mb_init(&b, 1);
    __syncthreads();
    if (t == 0) {
        mb_expect(&b, 1024);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared(s)),
                     "l"(a), "r"(1024), "r"(shared(&b))
                     : "memory");
    }
    if (wait)
        mb_wait(&b, 0);
    __syncthreads();
    float x = s[255 - t];
    __syncthreads();
    s[t] = x + 1;
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    if (t == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(o), "r"(shared(s)), "r"(1024) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        if (wait)
            asm volatile("cp.async.bulk.wait_group 0;");
    }
}

KERNEL tensor_tile(const __grid_constant__ CUtensorMap m, float *o, int x, int y)
{
    __shared__ __align__(1024) float s[8 * 32];
    __shared__ uint64_t b;
    int t = threadIdx.x;
    if (t == 0)
        mb_init(&b, 1);
    __syncthreads();
    if (t == 0) {
        mb_expect(&b, 1024);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                         shared(s)),
                     "l"(&m), "r"(x), "r"(y), "r"(shared(&b))
                     : "memory");
    }
    mb_wait(&b, 0);
    for (int i = t; i < 256; i += 32)
        o[i] = s[i];
}

KERNEL __cluster_dims__(2, 1, 1) in_cluster(float *o)
{
    __shared__ float s[32];
    cg::cluster_group c = cg::this_cluster();
    int r = c.block_rank();
    s[threadIdx.x] = r * 100 + threadIdx.x;
    c.sync();
    o[blockIdx.x * 32 + threadIdx.x] = c.map_shared_rank(s, r ^ 1)[threadIdx.x];
    c.sync();
}

// ---- matrices; each writes its difference to the expected result
KERNEL wmma_16(const __half *a, const __half *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}

KERNEL load_matrix_mma(const __half *a, const __half *b, float *c)
{
    __shared__ __align__(16) __half sa[256], sb[128];
    int t = threadIdx.x, g = t / 4, q = t % 4;
    for (int i = t; i < 256; i += 32)
        sa[i] = a[i];
    for (int i = t; i < 128; i += 32)
        sb[i] = b[i];
    __syncthreads();
    uint32_t A[4], B[2];
    float d[4] = {0, 0, 0, 0};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(A[0]), "=r"(A[1]), "=r"(A[2]), "=r"(A[3])
                 : "r"(shared(sa + (t % 16) * 16 + (t / 16) * 8)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(B[0]), "=r"(B[1]) : "r"(shared(sb + (t % 16) * 8)));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
    c[g * 8 + 2 * q] = d[0];
    c[g * 8 + 2 * q + 1] = d[1];
    c[(g + 8) * 8 + 2 * q] = d[2];
    c[(g + 8) * 8 + 2 * q + 1] = d[3];
}

KERNEL mma_types(float *o)
{
    int t = threadIdx.x, g = t / 4, q = t % 4;
    float d[4] = {0, 0, 0, 0};
    uint32_t A[4], B[2];
    for (int i = 0; i < 4; i++)
        A[i] = __float_as_uint((float)(g + 8 * (i & 1) + q + 4 * (i >> 1)));
    for (int i = 0; i < 2; i++)
        B[i] = __float_as_uint((float)((q + 4 * i) * g));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i >> 1), col = 2 * q + (i & 1);
        float w = 0;
        for (int k = 0; k < 8; k++)
            w += (row + k) * (k * col);
        o[t * 4 + i] = d[i] - w;
    }
    int e[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        A[i] = 0;
        for (int j = 0; j < 4; j++)
            A[i] |= (uint32_t)(uint8_t)(int8_t)(g + 8 * (i & 1) - (q * 4 + 16 * (i >> 1) + j)) << (8 * j);
    }
    for (int i = 0; i < 2; i++) {
        B[i] = 0;
        for (int j = 0; j < 4; j++)
            B[i] |= (uint32_t)(uint8_t)(int8_t)(q * 4 + 16 * i + j - 2 * g) << (8 * j);
    }
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(e[0]), "+r"(e[1]), "+r"(e[2]), "+r"(e[3])
                 : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
    for (int i = 0; i < 4; i++) {
        int row = g + 8 * (i >> 1), col = 2 * q + (i & 1), w = 0;
        for (int k = 0; k < 32; k++)
            w += (row - k) * (k - 2 * col);
        o[128 + t * 4 + i] = e[i] - w;
    }
    double f[2] = {1, 1}, x = g + q, y = q * 2 - g;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(f[0]), "+d"(f[1]) : "d"(x), "d"(y));
    for (int i = 0; i < 2; i++) {
        double w = 1;
        for (int k = 0; k < 4; k++)
            w += (g + k) * (k * 2 - (2 * q + i));
        o[256 + t * 2 + i] = f[i] - w;
    }
}

// D = A B with A 64 x 16 and B 16 x 8 in shared memory, no swizzle; out[row][column]
KERNEL warpgroup(const __half *a, const __half *b, float *o)
{
    __shared__ __align__(128) __half sa[64 * 16], sb[8 * 16];
    int t = threadIdx.x;
    // core matrices of 8 rows x 16 bytes: along k 128 bytes apart, along rows 256
    for (int i = t; i < 64 * 16; i += 128)
        sa[(i / 16 / 8) * 128 + (i % 16 / 8) * 64 + (i / 16 % 8) * 8 + i % 8] = a[i];
    for (int i = t; i < 8 * 16; i += 128) // b[k][n], stored by n
        sb[(i % 16 / 8) * 64 + (i / 16) * 8 + i % 8] = b[(i % 16) * 8 + i / 16];
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    uint64_t da = (uint64_t)(shared(sa) >> 4 & 0x3fff) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
    uint64_t db = (uint64_t)(shared(sb) >> 4 & 0x3fff) | (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
    float d[4] = {5, 5, 5, 5};
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(da), "l"(db), "r"(0));
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    int w = t / 32, g = t % 32 / 4, q = t % 4;
    for (int i = 0; i < 4; i++)
        o[(16 * w + g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)] = d[i];
}
