/* SPDX-License-Identifier: MIT
 *
 * The input is freed before the launch (of the planted kernel only).
 *
 * launch: grid=1 block=64 in=160 out=160 freed=1
 * expect: use_after_free
 * tools: memcheck
 */
extern "C" __global__ void planted_after_free(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = in[i] + 1; // planted
}

extern "C" __global__ void correct_after_free(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = in[i] + 1;
}
