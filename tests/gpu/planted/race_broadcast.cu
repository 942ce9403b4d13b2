/* SPDX-License-Identifier: MIT
 *
 * One thread publishes a result; the others do not wait for it.
 *
 * launch: grid=2 block=128 in=256 out=256
 * expect: shared_race
 * tools: racecheck
 */
extern "C" __global__ void planted_race_broadcast(float *out, const float *in, int n)
{
    __shared__ float s;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        s = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        s = in[i]; // planted
    out[i] = s * in[i]; // planted
}

extern "C" __global__ void correct_race_broadcast(float *out, const float *in, int n)
{
    __shared__ float s;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        s = in[i];
    __syncthreads();
    out[i] = s * in[i];
}
