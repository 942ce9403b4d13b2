/* SPDX-License-Identifier: MIT
 *
 * The launch gives 256 bytes of dynamic shared memory, the kernel uses 512.
 *
 * launch: grid=1 block=128 shared=256 in=128 out=128
 * expect: out_of_bounds
 * tools: memcheck
 */
extern "C" __global__ void planted_dynamic_bounds(float *out, const float *in, int n)
{
    extern __shared__ float s[];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i]; // planted
    __syncthreads();
    if (threadIdx.x < 64)
        out[i] = s[63 - threadIdx.x];
}

extern "C" __global__ void correct_dynamic_bounds(float *out, const float *in, int n)
{
    extern __shared__ float s[];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x < 64)
        s[threadIdx.x] = in[i];
    __syncthreads();
    if (threadIdx.x < 64)
        out[i] = s[63 - threadIdx.x];
}
