/* SPDX-License-Identifier: MIT
 *
 * Made the recordings of an H200 (driver 580.159, CUDA 13.0) from which pack_h200.py made h200_sfu.bin and
 * h200_mma.bin: nvcc -arch=sm_90 -o h200_sfu_mma h200_sfu_mma.cu && ./h200_sfu_mma h200_sfu_mma.bin
 *
 * Special functions: for each operation, the checksum of all 2^24 inputs of each of 256 blocks (the top byte of the
 * input's bits), and against the double-precision function rounded to float: how many normal results differ, how many
 * there are, the largest difference in units in the last place. Matrices: 4096 mma.sync of each of four types on inputs
 * made by el(type, matrix, which of A, B and C, row, column); results in row-major order.
 */
#include <cstdio>
typedef unsigned u;
typedef unsigned long long U;
__device__ u mx(u x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}
__device__ U s[9 * 256], d[9 * 4];
template <int O> __device__ void op(float x, float &y, double &r)
{
    double z = x;
#define A(n, o, e)                                                                                                     \
    if (O == n) {                                                                                                      \
        asm(o ".f32 %0,%1;" : "=f"(y) : "f"(x));                                                                       \
        r = e;                                                                                                         \
    }
    A(0, "ex2.approx", exp2(z))
    A(1, "ex2.approx.ftz", exp2(z)) A(2, "lg2.approx", log2(z)) A(3, "rcp.approx", 1 / z) A(4, "rsqrt.approx", rsqrt(z))
        A(5, "sqrt.approx", sqrt(z)) A(6, "sin.approx", sin(z)) A(7, "cos.approx", cos(z)) A(8, "tanh.approx", tanh(z))
}
template <int O> __global__ void k()
{
    u b = blockIdx.y;
    U h = 0;
    u n = 0, m = 0, c = 0;
    for (u i = blockIdx.x * 256 + threadIdx.x; i < 1 << 24; i += 65536) {
        u x = b << 24 | i;
        float y;
        double r;
        op<O>(__uint_as_float(x), y, r);
        u v = __float_as_uint(y);
        h += (U)mx(x ^ mx(v)) * (x | 1u);
        float f = r;
        if (f == f && fabsf(f) < 3e38f && fabsf(f) > 1.2e-38f) {
            c++;
            int e = (int)v - (int)__float_as_uint(f);
            u a = abs(e);
            n += a != 0;
            m = max(m, a);
        }
    }
    atomicAdd(s + O * 256 + b, h);
    atomicAdd(d + O * 4, (U)n);
    atomicAdd(d + O * 4 + 1, (U)c);
    atomicMax(d + O * 4 + 2, (U)m);
}
#define G(q, w, r, c) mx(mx(mx(t * 7u + m) * 9u + w) + r * 64u + c)
__device__ u el(int t, u m, u w, u r, u c)
{
    u h = G(0, w, r, c), R = 1 + (m & 3) * 3, e = (h >> 16) % R;
    u sg = h >> 31;
    if (w == 2)
        return sg << 31 | (120 + (h >> 8) % (R * 2) * 1) << 23 | (G(1, 3, r, c) & 0x7fffff);
    if (t == 0)
        return sg << 15 | (15 - R / 2 + e) << 10 | (h & 1023);
    if (t == 1)
        return sg << 15 | (127 - R / 2 + e) << 7 | (h & 127);
    if (t == 2)
        return sg << 31 | (127 - R / 2 + e) << 23 | (h & 1023) << 13;
    return sg << 7 | (7 - R / 2 + e) << 3 | (h & 7);
}
__global__ void mm(int t, u *o)
{
    u m = blockIdx.x, l = threadIdx.x, g = l >> 2, q = l & 3, a[4], b[2];
    float c[4];
    int P = t < 2 ? 2 : t == 2 ? 1 : 4, W = 32 / P;
    for (int i = 0; i < 4; i++) {
        a[i] = 0;
        for (int j = 0; j < P; j++)
            a[i] |= el(t, m, 0, g + 8 * (i & 1), q * P + 4 * P * (i >> 1) + j) << (W * j % 32);
        c[i] = __uint_as_float(el(t, m, 2, g + 8 * (i >> 1), 2 * q + (i & 1)));
    }
    for (int i = 0; i < 2; i++) {
        b[i] = 0;
        for (int j = 0; j < P; j++)
            b[i] |= el(t, m, 1, q * P + 4 * P * i + j, g) << (W * j % 32);
    }
#define M(S)                                                                                                           \
    asm("mma.sync.aligned." S " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"                                    \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                               \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    if (t == 0)
        M("m16n8k16.row.col.f32.f16.f16.f32")
        if (t == 1) M("m16n8k16.row.col.f32.bf16.bf16.f32") if (t == 2)
            M("m16n8k8.row.col.f32.tf32.tf32.f32") if (t == 3)
                M("m16n8k32.row.col.f32.e4m3.e4m3.f32") for (int i = 0; i < 4; i++)
                    o[(m * 16 + g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1)] = __float_as_uint(c[i]);
}
int main(int, char **v)
{
    FILE *f = fopen(v[1], "wb");
    dim3 g(256, 256);
#define K(n) k<n><<<g, 256>>>();
    K(0) K(1) K(2) K(3) K(4) K(5) K(6) K(7) K(8) static U S[2340];
    cudaMemcpyFromSymbol(S, s, 18432);
    cudaMemcpyFromSymbol(S + 2304, d, 288);
    fwrite(S, 8, 2340, f);
    for (int i = 0; i < 9; i++)
        printf("%d %llu/%llu max %llu\n", i, S[2304 + i * 4], S[2305 + i * 4], S[2306 + i * 4]);
    u *o;
    static u H[524288];
    cudaMalloc(&o, 2 << 20);
    for (int t = 0; t < 4; t++) {
        mm<<<4096, 32>>>(t, o);
        cudaMemcpy(H, o, 2 << 20, cudaMemcpyDeviceToHost);
        fwrite(H, 4, 524288, f);
    }
    puts(cudaGetErrorString(cudaGetLastError()));
}
