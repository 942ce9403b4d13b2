/* SPDX-License-Identifier: MIT
 *
 * The kernels of driver.ptx, which was made from this file by NVRTC 13.0 with --gpu-architecture=compute_80 and
 * --generate-line-info.
 */
extern "C" {

__device__ int counter = 5;
__constant__ float scale[4] = {1.0f, 2.0f, 3.0f, 4.0f};
extern __shared__ float dyn[];

__global__ void vec_add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}

__global__ void scaled(float *p, int n, int which)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = p[i] * scale[which];
}

__global__ void bump(int by)
{
    if (threadIdx.x == 0)
        counter += by;
}

__global__ void past_end(float *p, int n)
{
    p[n + threadIdx.x] = 1.0f;
}

__global__ void traps()
{
    __trap();
}

__global__ void spins(volatile int *p)
{
    while (*p == 0) {
    }
}

__global__ void __launch_bounds__(64, 2) bounded(float *p)
{
    p[threadIdx.x] = 1.0f;
}

__global__ void reverse(float *p)
{
    dyn[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = dyn[blockDim.x - 1 - threadIdx.x];
}

__global__ void mixed(char a, double b, short c, long long *out)
{
    if (threadIdx.x == 0) {
        out[0] = a;
        out[1] = (long long)b;
        out[2] = c;
    }
}
}
