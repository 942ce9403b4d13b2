/* SPDX-License-Identifier: MIT
 *
 * A vector of two floats is read at every float.
 *
 * launch: grid=1 block=64 in=160 out=160
 * expect: misaligned
 * tools: memcheck
 */
extern "C" __global__ void planted_misaligned(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float2 v = *(const float2 *)(in + i); // planted
    out[i] = v.x + v.y;
}

extern "C" __global__ void correct_misaligned(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float2 v = make_float2(in[i], in[i + 1]);
    out[i] = v.x + v.y;
}
