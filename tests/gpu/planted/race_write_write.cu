/* SPDX-License-Identifier: MIT
 *
 * One thread of each warp writes the same shared word.
 *
 * launch: grid=1 block=128 in=128 out=128
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_write_write(float *out, const float *in, int n)
{
    __shared__ float s;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x % 32 == 0)
        s = in[i]; // planted
    __syncthreads();
    out[i] = s;
}

extern "C" __global__ void correct_race_write_write(float *out, const float *in, int n)
{
    __shared__ float s;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        s = in[i];
    __syncthreads();
    out[i] = s;
}
