/* SPDX-License-Identifier: MIT
 *
 * A tree reduction without a barrier in its loop.
 *
 * launch: grid=2 block=128 in=256 out=2
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_tree(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i];
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            s[threadIdx.x] += s[threadIdx.x + k]; // planted
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = s[0];
}

extern "C" __global__ void correct_race_tree(float *out, const float *in, int n)
{
    __shared__ float s[128];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = in[i];
    __syncthreads();
    for (unsigned k = blockDim.x / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = s[0];
}
