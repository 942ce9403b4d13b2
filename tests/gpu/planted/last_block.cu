/* SPDX-License-Identifier: MIT
 *
 * The last block sums up what the others wrote; no fence orders their writes before the counter.
 *
 * launch: grid=8 block=32 in=256 out=32 zero=1
 * expect: global_race
 * tools: -
 */
extern "C" __global__ void planted_last_block(float *out, const float *in, int n)
{
    __shared__ bool last;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = in[i]; // planted
        last = atomicAdd((unsigned *)out, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x)
        out[16 + threadIdx.x] = out[1 + threadIdx.x]; // planted
}

extern "C" __global__ void correct_last_block(float *out, const float *in, int n)
{
    __shared__ bool last;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0) {
        out[1 + blockIdx.x] = in[i];
        __threadfence();
        last = atomicAdd((unsigned *)out, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x)
        out[16 + threadIdx.x] = out[1 + threadIdx.x];
}
