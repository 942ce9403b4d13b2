/* SPDX-License-Identifier: MIT
 *
 * Only the first half of the input was ever written.
 *
 * launch: grid=1 block=64 in=64 written=32 out=64
 * expect: uninitialised
 * tools: initcheck
 */
extern "C" __global__ void planted_unwritten_global(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = in[i] + 1; // planted
}

extern "C" __global__ void correct_unwritten_global(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = i < n / 2 ? in[i] + 1 : 0;
}
