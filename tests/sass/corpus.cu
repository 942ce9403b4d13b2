// SPDX-License-Identifier: MIT
//
// What compilers make of common code: opcodes for the table of lib/verify/scan_sass.c that corpus.py does not reach.
// check_sass.py SCAN_DUMP --extra corpus.cu --table scan_sass_table.h
#include <cassert>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cooperative_groups.h>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
namespace cg = cooperative_groups;
#define F(name, expr)                                                                                                  \
    __global__ void name(float *y, const float *x, int n)                                                              \
    {                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        if (i < n) {                                                                                                   \
            float a = x[i], b = x[i + n];                                                                              \
            y[i] = (expr);                                                                                             \
        }                                                                                                              \
    }
F(f1, sinf(a) + cosf(b) + tanf(a))
F(f2, powf(a, b) + expf(a) + logf(b)) F(f3, erff(a) + erfcf(b) + tgammaf(a) + lgammaf(b))
    F(f4, tanhf(a) + atan2f(a, b) + asinf(a) + acoshf(b))
        F(f5, fmodf(a, b) + remainderf(a, b) + roundf(a) + floorf(b) + rintf(a) + ceilf(b))
            F(f6, __expf(a) + __sinf(b) + __fdividef(a, b) + rsqrtf(a) + sqrtf(b) + cbrtf(a) + hypotf(a, b) +
                      normcdff(b) + j0f(a))
#define D(name, expr)                                                                                                  \
    __global__ void name(double *y, const double *x, int n)                                                            \
    {                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        if (i < n) {                                                                                                   \
            double a = x[i], b = x[i + n];                                                                             \
            y[i] = (expr);                                                                                             \
        }                                                                                                              \
    }
                D(d1, sin(a) + exp(b) + log(a) + a / b + sqrt(b))
                    D(d2, pow(a, b) + erf(a) + rint(b) + fmod(a, b) + (double)(long long)a + (int)b + fmin(a, b))
#define I(name, T, expr)                                                                                               \
    __global__ void name(T *y, const T *x, int n)                                                                      \
    {                                                                                                                  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        if (i < n) {                                                                                                   \
            T a = x[i], b = x[i + n];                                                                                  \
            y[i] = (expr);                                                                                             \
        }                                                                                                              \
    }
                        I(i1, int, a / b + a % b + min(a, b) + __popc(a) + __clz(b) + abs(a))
                            I(i2, long long, a / b + a % b + a * b + (a << (b & 63)) + max(a, b))
                                I(i3, unsigned,
                                  a / 7 + a % b + __brev(a) + __byte_perm(a, b, 0x3210) + __funnelshift_l(a, b, 5) +
                                      __umulhi(a, b)) I(i4, unsigned long long,
                                                        a / b + __popcll(a) + __clzll(b) + __umul64hi(a, b))
                                    I(i5, short, a *b + a / b) I(i6, unsigned char, a *b + (a >> 2))
                                        I(i7, signed char, a *b + max(a, b))
                                            I(h1, __half, hsin(a) + hexp(b) * hlog(a) + hsqrt(b) + hrcp(a))
                                                I(h2, __half2, __hfma2(a, b, a) + h2exp2(b) + __hmax2(a, b))
                                                    I(h3, __nv_bfloat16, a *b + hexp(a) + __hmax(a, b))
                                                        I(h4, __nv_bfloat162, __hfma2(a, b, b) + h2rsqrt(a)) __global__
    void red(float *y, const float *x, int n)
{
    typedef cub::BlockReduce<float, 256> B;
    __shared__ typename B::TempStorage t;
    float s = 0;
    for (int i = threadIdx.x; i < n; i += 256)
        s += x[i];
    s = B(t).Sum(s);
    if (!threadIdx.x)
        atomicAdd(y, s);
}
__global__ void sorted(int *y)
{
    typedef cub::BlockRadixSort<int, 128, 4> B;
    __shared__ typename B::TempStorage t;
    int k[4];
    for (int i = 0; i < 4; i++)
        k[i] = y[threadIdx.x * 4 + i];
    B(t).Sort(k);
    for (int i = 0; i < 4; i++)
        y[threadIdx.x * 4 + i] = k[i];
}
__global__ void scan(int *y)
{
    typedef cub::BlockScan<int, 256> B;
    __shared__ typename B::TempStorage t;
    int v = y[threadIdx.x];
    B(t).InclusiveSum(v, v);
    y[threadIdx.x] = v;
}
__global__ void coop(float *y, int n)
{
    auto g = cg::this_grid();
    auto w = cg::tiled_partition<32>(cg::this_thread_block());
    float v = y[g.thread_rank()];
    for (int o = 16; o; o /= 2)
        v += w.shfl_xor(v, o);
    g.sync();
    if (w.any(v > 0))
        y[g.thread_rank()] = v;
    auto a = cg::coalesced_threads();
    if (a.thread_rank() == 0)
        atomicMax((int *)y, n);
}
using namespace nvcuda;
__global__ void wm(const half *a, const half *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
__device__ __noinline__ float call(float x, int n)
{
    return n > 3 ? x : call(x * 2, n + 1);
}
typedef float (*fp)(float);
__device__ float fa(float x)
{
    return x + 1;
}
__device__ float fb(float x)
{
    return x * 3;
}
__global__ void calls(float *y, int n)
{
    fp t[2] = {fa, fb};
    y[0] = call(y[1], n) + t[n & 1](y[2]);
}
__global__ void gemm(float *c, const float *a, const float *b, int n)
{
    __shared__ float s[32][33], t[32][33];
    float acc = 0;
    for (int k = 0; k < n; k += 32) {
        s[threadIdx.y][threadIdx.x] = a[(blockIdx.y * 32 + threadIdx.y) * n + k + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 32; i++)
            acc += s[threadIdx.y][i] * t[i][threadIdx.x];
        __syncthreads();
    }
    c[(blockIdx.y * 32 + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x] = acc;
}
__global__ void sw(int *y, int n)
{
    switch (n) {
    case 0: y[0] = 1; break;
    case 1: y[1] = 7; break;
    case 2: y[5] = y[2]; break;
    case 3: y[1] = y[0] * 3; break;
    case 4: y[6] = 2; break;
    case 5: y[8] = y[9]; break;
    default: __trap();
    }
    __nanosleep(5);
    __threadfence();
    if (__all_sync(~0u, n))
        y[3] = __reduce_add_sync(~0u, n);
    assert(n < 100);
    printf("%d\n", n);
    y[9] = clock();
    int *p = (int *)malloc(4);
    *p = n;
    y[10] = *p;
    free(p);
    atomicCAS(y, 1, 2);
    atomicAdd((double *)y, 1.0);
    atomicAdd((unsigned long long *)y, 1ull);
    atomicExch(y + 4, 1);
    atomicAdd((half2 *)y, half2());
}
__global__ void atomics_half(__half2 *y, __half2 x)
{
    y[1] = atomicAdd(y, x);
}
__global__ void atomics_bfloat16(__nv_bfloat162 *y, __nv_bfloat162 x)
{
    y[1] = atomicAdd(y, x);
}
__device__ float cache[64];
__device__ __noinline__ void put(float *p, float v)
{
    p[threadIdx.x] = v;
}
__global__ void selects(float *y)
{
    put(y[1] > 0 ? cache : y, 3);
    y[0] = cache[5];
}
/* Values that are the same in all threads: conversions, divisions and 64-bit sums in uniform registers. */
__global__ void uniform_values(float *y, double *d, long long *l, __half *h, long long n, unsigned long long m, int k,
                               unsigned u, float f, double g, __half v)
{
    y[0] = (float)n, y[1] = (float)m, y[2] = (float)k, y[3] = (float)u, y[4] = (float)g, y[5] = __half2float(v);
    d[0] = (double)n, d[1] = (double)m, d[2] = (double)k, d[3] = (double)u, d[4] = f;
    l[0] = (long long)f, l[1] = (long long)g, l[2] = (int)f, l[3] = (unsigned)g, l[4] = n / (long long)m, l[5] = m % u;
    l[6] = k / (int)u, l[7] = u % k, l[8] = n * (long long)m, l[9] = __popcll(m), l[10] = __clzll(n), l[11] = __ffs(k);
    l[12] = __brev(u), l[13] = __popc(u), l[14] = n >> k, l[15] = m << k, l[16] = n < k ? m : u, l[17] = __mulhi(k, 77);
    h[0] = __float2half(f), h[1] = __int2half_rn(k), h[2] = __double2half(g), h[3] = __ll2half_rn(n), h[4] = v * v;
    y[6] = rintf(f), y[7] = floorf(f), y[8] = sqrtf(f), y[9] = expf(f), y[10] = 1 / f, y[11] = sinf(f);
    d[5] = rint(g), d[6] = floor(g), d[7] = sqrt(g), d[8] = 1 / g, d[9] = fmin(g, 3.0), d[10] = fma(g, g, 1.0);
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__global__ void uniform_descriptors(float *y, int n)
{
    extern __shared__ __align__(128) __half tile[];
    float a[4] = {0, 0, 0, 0};
    unsigned long long base = (__cvta_generic_to_shared(tile) & 0x3ffff) >> 4 | 1ull << 62;
    for (int i = 0; i < n; i++) {
        asm volatile("wgmma.fence.sync.aligned;\n");
        for (int k = 0; k < 4; k++)
            asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n"
                         : "+f"(a[0]), "+f"(a[1]), "+f"(a[2]), "+f"(a[3])
                         : "l"(base + 64ull * i + 2ull * k), "l"(base + 1024 + 64ull * k));
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    }
    y[threadIdx.x] = a[0] + a[1] + a[2] + a[3];
}
#endif
