/* SPDX-License-Identifier: MIT
 *
 * Blocks add to one word in global memory without an atomic; racecheck looks at shared memory only.
 *
 * launch: grid=4 block=32 in=128 out=1 zero=1
 * expect: global_race
 * tools: -
 */
extern "C" __global__ void planted_counter_global(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (in[i] > 3)
        out[0] += in[i]; // planted
}

extern "C" __global__ void correct_counter_global(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (in[i] > 3)
        atomicAdd(out, in[i]);
}
