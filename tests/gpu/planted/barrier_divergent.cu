/* SPDX-License-Identifier: MIT
 *
 * Half of each warp waits at a barrier that the other half never reaches.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: barrier_divergence
 * tools: synccheck
 */
extern "C" __global__ void planted_barrier_divergent(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i];
    if (threadIdx.x % 32 < 16) {
        __syncthreads(); // planted
        s[threadIdx.x] *= 2;
    }
    __syncthreads(); // planted
    out[i] = s[63 - threadIdx.x];
}

extern "C" __global__ void correct_barrier_divergent(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i];
    __syncthreads();
    if (threadIdx.x % 32 < 16)
        s[threadIdx.x] *= 2;
    __syncthreads();
    out[i] = s[63 - threadIdx.x];
}
