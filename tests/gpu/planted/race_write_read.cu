/* SPDX-License-Identifier: MIT
 *
 * Values that other warps write are read with no barrier between.
 *
 * launch: grid=2 block=128 in=256 out=256
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_write_read(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = in[i];            // planted
    out[i] = s[blockDim.x - 1 - threadIdx.x]; // planted
}

extern "C" __global__ void correct_race_write_read(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = 0;
    __syncthreads();
    s[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = s[blockDim.x - 1 - threadIdx.x];
}
