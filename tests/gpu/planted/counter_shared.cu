/* SPDX-License-Identifier: MIT
 *
 * A shared counter without an atomic.
 *
 * launch: grid=1 block=128 in=128 out=128
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_counter_shared(float *out, const float *in, int n)
{
    __shared__ int s;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        s = 0;
    __syncthreads();
    if (in[i] > 3)
        s += 1; // planted
    __syncthreads();
    out[i] = (float)s;
}

extern "C" __global__ void correct_counter_shared(float *out, const float *in, int n)
{
    __shared__ int s;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        s = 0;
    __syncthreads();
    if (in[i] > 3)
        atomicAdd(&s, 1);
    __syncthreads();
    out[i] = (float)s;
}
