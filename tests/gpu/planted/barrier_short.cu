/* SPDX-License-Identifier: MIT
 *
 * A named barrier waits for more warps than ever come; the GPU would hang, so only the simulator runs it.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: deadlock
 * tools: -
 */
extern "C" __global__ void planted_barrier_short(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory"); // planted
    out[i] = in[i];
}

extern "C" __global__ void correct_barrier_short(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 32;" ::: "memory");
    out[i] = in[i];
}
