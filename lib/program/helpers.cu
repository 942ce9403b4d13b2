// SPDX-License-Identifier: MIT
// Kernels of the library's own that programs need now and then: what a product cannot do in its epilogue, and fills with
// 8-byte patterns. Speed matters little here; every combination of types must work.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// stitch_dtype (include/stitch/base.h)
enum { F64 = 1, F32, TF32, F16, BF16 };

__device__ double load(const void *p, int type, long long i)
{
    switch (type) {
    case F64: return ((const double *)p)[i];
    case F16: return (double)__half2float(((const __half *)p)[i]);
    case BF16: return (double)__bfloat162float(((const __nv_bfloat16 *)p)[i]);
    default: return ((const float *)p)[i];
    }
}

__device__ void store(void *p, int type, long long i, double v)
{
    switch (type) {
    case F64: ((double *)p)[i] = v; break;
    case F16: ((__half *)p)[i] = __float2half_rn((float)v); break;
    case BF16: ((__nv_bfloat16 *)p)[i] = __float2bfloat16_rn((float)v); break;
    default: ((float *)p)[i] = (float)v; break;
    }
}

// c = act(c + beta * d + bias), row-major; d or bias null: left out. act: 0 none, 1 ReLU (NaN stays NaN), 2 GELU (tanh form).
extern "C" __global__ void __launch_bounds__(256)
    stitch_epilogue(void *c, int c_type, long long ldc, long long stride_c, const void *d, int d_type, long long ldd, long long stride_d,
                    double beta, const void *bias, int bias_type, long long rows, long long cols, int act)
{
    long long total = rows * cols, batch = blockIdx.y;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < total; i += gridDim.x * 256ll) {
        long long row = i / cols, col = i % cols, at = batch * stride_c + row * ldc + col;
        double v = load(c, c_type, at);
        if (d)
            v += beta * load(d, d_type, batch * stride_d + row * ldd + col);
        if (bias)
            v += load(bias, bias_type, col);
        if (act == 1)
            v = v < 0 ? 0 : v;
        else if (act == 2)
            v = 0.5 * v * (1 + tanh(0.79788456080286535588 * (v + 0.044715 * v * v * v)));
        store(c, c_type, at, v);
    }
}

extern "C" __global__ void __launch_bounds__(256) stitch_fill64(unsigned long long *p, unsigned long long value, long long n)
{
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
        p[i] = value;
}
