/* SPDX-License-Identifier: MIT
 *
 * Lanes of one warp exchange values; only __syncwarp() orders them.
 *
 * launch: grid=1 block=32 in=32 out=32
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_in_warp(float *out, const float *in, int n)
{
    __shared__ float s[32];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i];      // planted
    out[i] = s[31 - threadIdx.x]; // planted
}

extern "C" __global__ void correct_race_in_warp(float *out, const float *in, int n)
{
    __shared__ float s[32];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i];
    __syncwarp();
    out[i] = s[31 - threadIdx.x];
}
