/* SPDX-License-Identifier: MIT
 *
 * A shared array is half as long as its indices need.
 *
 * launch: grid=2 block=64 in=128 out=128
 * expect: out_of_bounds
 * tools: memcheck
 */
extern "C" __global__ void planted_shared_bounds(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x * 2] = in[i]; // planted
    __syncthreads();
    out[i] = s[threadIdx.x * 2 % 64];
}

extern "C" __global__ void correct_shared_bounds(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x * 2] = in[i];
    __syncthreads();
    out[i] = s[threadIdx.x * 2 % 64];
}
