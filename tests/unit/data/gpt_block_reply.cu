#include <cuda_fp16.h>

// ------------------------------------------------------------------ helpers
__device__ __forceinline__ unsigned pack_h2(float a, float b)
{
    __half2 t = __floats2half2_rn(a, b);
    return *reinterpret_cast<unsigned*>(&t);
}

__device__ __forceinline__ float ex2f(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ void cp16(unsigned dst, const __half* src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" :: "r"(dst), "l"(src) : "memory");
}

__device__ __forceinline__ void cp_commit()
{
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

__device__ __forceinline__ void cp_wait1()
{
    asm volatile("cp.async.wait_group 1;\n" ::: "memory");
}

__device__ __forceinline__ void wg_fence()
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wg_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wg_wait0()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

__device__ __forceinline__ void pin_f(float& r)
{
    asm volatile("" : "+f"(r) :: "memory");
}

__device__ __forceinline__ void pin_u(unsigned& r)
{
    asm volatile("" : "+r"(r) :: "memory");
}

// S[64 x 64] (+)= Q[64 x 16] * K[64 x 16]^T, both operands K-major in shared memory
__device__ __forceinline__ void wgmma_qk(float (&d)[32], unsigned long long da,
                                         unsigned long long db, int scale_d)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1, 0, 0;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(da), "l"(db), "r"(scale_d));
}

// O[64 x 96] += P[64 x 16] (registers) * V[16 x 96] (shared memory, N contiguous)
__device__ __forceinline__ void wgmma_pv(float (&d)[48], unsigned a0, unsigned a1,
                                         unsigned a2, unsigned a3,
                                         unsigned long long db, int scale_d)
{
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47}, "
        "{%48, %49, %50, %51}, "
        "%52, p, 1, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(db), "r"(scale_d));
}

// ------------------------------------------------------------------ prepare
__global__ void __launch_bounds__(256) f32_to_f16(const float* __restrict__ src,
                                                  __half* __restrict__ dst, int n)
{
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    if (i < n) dst[i] = __float2half_rn(src[i]);
}

// ------------------------------------------------------------------ layer norm, C = 768, one warp a row
__global__ void __launch_bounds__(256) layernorm768(const float* __restrict__ x,
                                                    const float* __restrict__ w,
                                                    const float* __restrict__ b,
                                                    __half* __restrict__ out, int rows)
{
    const int lane = (int)threadIdx.x & 31;
    const int blk = (int)gridDim.x - 1 - (int)blockIdx.x;      // last rows first
    const int row = blk * 8 + ((int)threadIdx.x >> 5);
    if (row >= rows) return;

    const float4* xr = reinterpret_cast<const float4*>(x) + (long long)row * 192;
    float4 v[6];
#pragma unroll
    for (int i = 0; i < 6; ++i) v[i] = xr[lane + 32 * i];

    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 6; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    const float mean = sum * (1.0f / 768.0f);

    float sq = 0.f;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        v[i].x -= mean; v[i].y -= mean; v[i].z -= mean; v[i].w -= mean;
        sq += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) sq += __shfl_xor_sync(0xffffffffu, sq, o);
    const float rstd = rsqrtf(sq * (1.0f / 768.0f) + 1e-5f);

    const float4* w4 = reinterpret_cast<const float4*>(w);
    const float4* b4 = reinterpret_cast<const float4*>(b);
    uint2* o2 = reinterpret_cast<uint2*>(out) + (long long)row * 192;
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        const float4 ww = w4[lane + 32 * i];
        const float4 bb = b4[lane + 32 * i];
        uint2 r;
        r.x = pack_h2(v[i].x * rstd * ww.x + bb.x, v[i].y * rstd * ww.y + bb.y);
        r.y = pack_h2(v[i].z * rstd * ww.z + bb.z, v[i].w * rstd * ww.w + bb.w);
        o2[lane + 32 * i] = r;
    }
}

// ------------------------------------------------------------------ causal attention
// T = 512, H = 8, D = 96; qkv is [B*T][2304] = q | k | v, out is [B*T][768].
// Block: 256 threads = 2 warpgroups, 128 query rows (64 a warpgroup), key tiles of 64.
// A 64 x 96 tile in shared memory is 3 panels of 64 rows x 64 bytes, 64-byte swizzle:
//   16-byte unit c (0..3) of row r lies at r*64 + ((c ^ ((r>>1)&3)) * 16).
// K and V tiles: dst is the stage (K at 0, V at 12288).
__device__ __forceinline__ void load_kv(unsigned dst, const __half* src)
{
#pragma unroll
    for (int c = 0; c < 3; ++c) cp16(dst + (unsigned)c * 4096u, src + c * 32);
#pragma unroll
    for (int c = 0; c < 3; ++c) cp16(dst + 12288u + (unsigned)c * 4096u, src + 768 + c * 32);
}

__global__ void __launch_bounds__(256, 2) attn_causal96(const __half* __restrict__ qkv,
                                                        __half* __restrict__ out)
{
    extern __shared__ unsigned char smem_raw[];
    const unsigned smem0 = ((unsigned)__cvta_generic_to_shared(smem_raw) + 1023u) & ~1023u;

    const int tid = (int)threadIdx.x;
    const int lane = tid & 31;
    const int warp = __shfl_sync(0xffffffffu, tid >> 5, 0);
    const int wg = warp >> 2;
    const int qb = (int)gridDim.x - 1 - (int)blockIdx.x;       // longest first
    const int bh = (int)gridDim.y - 1 - (int)blockIdx.y;       // last rows first
    const int b = bh >> 3;
    const int h = bh & 7;
    const int nkv = 2 * qb + 2;                                // key tiles of this block
    const int jd = 2 * qb + wg;                                // diagonal tile of this warpgroup

    const unsigned sQ = smem0;                                 // 2 x 12288
    const unsigned sKV = smem0 + 24576u;                       // 3 stages x 24576

    const int lr = tid >> 2;                                   // row 0..63
    const int lc = tid & 3;                                    // 16-byte unit 0..3 of a panel
    const unsigned soff = (unsigned)(lr * 64 + ((lc ^ ((lr >> 1) & 3)) << 4));
    const __half* gq = qkv + ((long long)(b * 512 + qb * 128 + lr) * 2304 + h * 96 + lc * 8);
    const __half* gk = qkv + ((long long)(b * 512 + lr) * 2304 + 768 + h * 96 + lc * 8);

    // prologue: Q and tile 0, then tile 1 (nkv >= 2)
#pragma unroll
    for (int w = 0; w < 2; ++w) {
#pragma unroll
        for (int c = 0; c < 3; ++c)
            cp16(sQ + (unsigned)(w * 12288 + c * 4096) + soff, gq + w * (64 * 2304) + c * 32);
    }
    load_kv(sKV + soff, gk);
    cp_commit();
    gk += 64 * 2304;
    load_kv(sKV + 24576u + soff, gk);
    cp_commit();
    gk += 64 * 2304;

    float o[48];
    float s[32];
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] = 0.f;
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = 0.f;

    const float NEG_INF = __int_as_float(0xff800000);
    const float sc = 1.4426950408889634f * 0.10206207261596577f;   // log2(e) / sqrt(96)
    float m0 = NEG_INF, m1 = NEG_INF, l0 = 0.f, l1 = 0.f;

    // descriptors: 64-byte swizzle (2 << 62), 8-row stride 512 bytes
    const unsigned long long DESC_K = (2ull << 62) | (32ull << 32) | (1ull << 16);
    const unsigned long long DESC_V = (2ull << 62) | (32ull << 32) | (256ull << 16);   // panel stride 4096
    const unsigned long long dq = DESC_K | (unsigned long long)((sQ + (unsigned)wg * 12288u) >> 4);

    int st = 0;
    for (int j = 0; j < nkv; ++j) {
        cp_wait1();
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();

        if (j + 2 < nkv) {
            const int ns = (st == 0) ? 2 : st - 1;             // (st + 2) % 3
            load_kv(sKV + (unsigned)ns * 24576u + soff, gk);
            gk += 64 * 2304;
        }
        cp_commit();

        if (j <= jd) {
            const unsigned kb = sKV + (unsigned)st * 24576u;
            const unsigned long long dk = DESC_K | (unsigned long long)(kb >> 4);
            const unsigned long long dv = DESC_V | (unsigned long long)((kb + 12288u) >> 4);

            // ---- S = Q K^T
#pragma unroll
            for (int i = 0; i < 32; ++i) pin_f(s[i]);
            wg_fence();
#pragma unroll
            for (int kk = 0; kk < 6; ++kk) {
                const unsigned long long off = (unsigned long long)((kk >> 1) * 256 + (kk & 1) * 2);
                wgmma_qk(s, dq + off, dk + off, kk == 0 ? 0 : 1);
            }
            wg_commit();
            wg_wait0();
#pragma unroll
            for (int i = 0; i < 32; ++i) pin_f(s[i]);

            // ---- mask of the diagonal tile
            if (j == jd) {
                const int r0 = (warp & 3) * 16 + (lane >> 2);
                const int cb = (lane & 3) * 2;
#pragma unroll
                for (int n = 0; n < 8; ++n) {
                    const int c = n * 8 + cb;
                    if (c > r0)         s[4 * n + 0] = NEG_INF;
                    if (c + 1 > r0)     s[4 * n + 1] = NEG_INF;
                    if (c > r0 + 8)     s[4 * n + 2] = NEG_INF;
                    if (c + 1 > r0 + 8) s[4 * n + 3] = NEG_INF;
                }
            }

            // ---- online softmax (rows g and g + 8 of the warp's 16)
            float mx0 = fmaxf(s[0], s[1]);
            float mx1 = fmaxf(s[2], s[3]);
#pragma unroll
            for (int n = 1; n < 8; ++n) {
                mx0 = fmaxf(mx0, fmaxf(s[4 * n + 0], s[4 * n + 1]));
                mx1 = fmaxf(mx1, fmaxf(s[4 * n + 2], s[4 * n + 3]));
            }
            mx0 = fmaxf(mx0, __shfl_xor_sync(0xffffffffu, mx0, 1));
            mx1 = fmaxf(mx1, __shfl_xor_sync(0xffffffffu, mx1, 1));
            mx0 = fmaxf(mx0, __shfl_xor_sync(0xffffffffu, mx0, 2));
            mx1 = fmaxf(mx1, __shfl_xor_sync(0xffffffffu, mx1, 2));
            const float mn0 = fmaxf(m0, mx0);
            const float mn1 = fmaxf(m1, mx1);
            const float a0 = ex2f((m0 - mn0) * sc);
            const float a1 = ex2f((m1 - mn1) * sc);
            m0 = mn0;
            m1 = mn1;
            const float ms0 = mn0 * sc;
            const float ms1 = mn1 * sc;

            unsigned p[16];
            float sum0 = 0.f, sum1 = 0.f;
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                const float e0 = ex2f(fmaf(s[4 * n + 0], sc, -ms0));
                const float e1 = ex2f(fmaf(s[4 * n + 1], sc, -ms0));
                const float e2 = ex2f(fmaf(s[4 * n + 2], sc, -ms1));
                const float e3 = ex2f(fmaf(s[4 * n + 3], sc, -ms1));
                sum0 += e0 + e1;
                sum1 += e2 + e3;
                p[2 * n + 0] = pack_h2(e0, e1);
                p[2 * n + 1] = pack_h2(e2, e3);
            }
            l0 = l0 * a0 + sum0;
            l1 = l1 * a1 + sum1;
#pragma unroll
            for (int n = 0; n < 12; ++n) {
                o[4 * n + 0] *= a0;
                o[4 * n + 1] *= a0;
                o[4 * n + 2] *= a1;
                o[4 * n + 3] *= a1;
            }

            // ---- O += P V
#pragma unroll
            for (int i = 0; i < 16; ++i) pin_u(p[i]);
#pragma unroll
            for (int i = 0; i < 48; ++i) pin_f(o[i]);
            wg_fence();
#pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                wgmma_pv(o, p[4 * kk + 0], p[4 * kk + 1], p[4 * kk + 2], p[4 * kk + 3],
                         dv + (unsigned long long)(kk * 64), 1);
            }
            wg_commit();
            wg_wait0();
#pragma unroll
            for (int i = 0; i < 48; ++i) pin_f(o[i]);
        }
        st = (st == 2) ? 0 : st + 1;
    }

    // ---- normalise, stage through the Q tile of this warpgroup, store 16 bytes a lane
    l0 += __shfl_xor_sync(0xffffffffu, l0, 1);
    l1 += __shfl_xor_sync(0xffffffffu, l1, 1);
    l0 += __shfl_xor_sync(0xffffffffu, l0, 2);
    l1 += __shfl_xor_sync(0xffffffffu, l1, 2);
    const float i0 = 1.0f / l0;
    const float i1 = 1.0f / l1;

    asm volatile("bar.sync %0, 128;\n" :: "r"(1 + wg) : "memory");

    const unsigned sO = sQ + (unsigned)wg * 12288u;
    const int wr = (warp & 3) * 16;
    {
        const int r = wr + (lane >> 2);
        const int sw = (r >> 1) & 3;
#pragma unroll
        for (int n = 0; n < 12; ++n) {
            const unsigned addr = sO + (unsigned)((n >> 2) * 4096 + r * 64 + (((n & 3) ^ sw) << 4) + (lane & 3) * 4);
            const unsigned v0 = pack_h2(o[4 * n + 0] * i0, o[4 * n + 1] * i0);
            const unsigned v1 = pack_h2(o[4 * n + 2] * i1, o[4 * n + 3] * i1);
            asm volatile("st.shared.u32 [%0], %1;\n" :: "r"(addr), "r"(v0) : "memory");
            asm volatile("st.shared.u32 [%0], %1;\n" :: "r"(addr + 512u), "r"(v1) : "memory");
        }
    }
    __syncwarp();
    __half* go = out + ((long long)(b * 512 + qb * 128 + wg * 64 + wr) * 768 + h * 96);
#pragma unroll
    for (int i = 0; i < 6; ++i) {
        const int idx = lane + 32 * i;
        const int rr = idx / 12;
        const int c = idx - rr * 12;
        const int row = wr + rr;
        const unsigned addr = sO + (unsigned)((c >> 2) * 4096 + row * 64 + (((c & 3) ^ ((row >> 1) & 3)) << 4));
        uint4 v;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(addr) : "memory");
        *reinterpret_cast<uint4*>(go + (long long)rr * 768 + c * 8) = v;
    }
}
