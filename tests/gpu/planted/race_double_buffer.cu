/* SPDX-License-Identifier: MIT
 *
 * Two buffers take turns, with a barrier before the first turn only.
 *
 * launch: grid=1 block=128 in=128 out=128
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_double_buffer(float *out, const float *in, int n)
{
    __shared__ float s[2][128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = 0;
    s[0][threadIdx.x] = in[i];
    s[1][threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < n / 32; k++) {
        s[(k + 1) % 2][threadIdx.x] = in[i] + k; // planted
        sum += s[k % 2][blockDim.x - 1 - threadIdx.x]; // planted
    }
    out[i] = sum;
}

extern "C" __global__ void correct_race_double_buffer(float *out, const float *in, int n)
{
    __shared__ float s[2][128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = 0;
    s[0][threadIdx.x] = in[i];
    s[1][threadIdx.x] = 0;
    for (int k = 0; k < n / 32; k++) {
        __syncthreads();
        s[(k + 1) % 2][threadIdx.x] = in[i] + k;
        sum += s[k % 2][blockDim.x - 1 - threadIdx.x];
    }
    out[i] = sum;
}
