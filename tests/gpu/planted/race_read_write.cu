/* SPDX-License-Identifier: MIT
 *
 * The next turn of a loop overwrites what slower warps still read.
 *
 * launch: grid=1 block=128 in=128 out=128
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_read_write(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = 0;
    for (int k = 0; k < n / 64; k++) {
        s[threadIdx.x] = in[i] + k; // planted
        __syncthreads();
        sum += s[blockDim.x - 1 - threadIdx.x]; // planted
    }
    out[i] = sum;
}

extern "C" __global__ void correct_race_read_write(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = 0;
    for (int k = 0; k < n / 64; k++) {
        s[threadIdx.x] = in[i] + k;
        __syncthreads();
        sum += s[blockDim.x - 1 - threadIdx.x];
        __syncthreads();
    }
    out[i] = sum;
}
