/* SPDX-License-Identifier: MIT
 *
 * Warps of a block exchange values in global memory with no barrier between.
 *
 * launch: grid=1 block=128 in=128 out=256 zero=1
 * expect: global_race
 * tools: -
 */
extern "C" __global__ void planted_exchange_global(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = in[i]; // planted
    out[n + i] = out[blockDim.x - 1 - threadIdx.x]; // planted
}

extern "C" __global__ void correct_exchange_global(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = in[i];
    __syncthreads();
    out[n + i] = out[blockDim.x - 1 - threadIdx.x];
}
