/* SPDX-License-Identifier: MIT
 *
 * The first element has no left neighbour.
 *
 * launch: grid=3 block=64 in=160 out=160
 * expect: out_of_bounds
 * tools: memcheck
 */
extern "C" __global__ void planted_bounds_before(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        out[i] = in[i] - in[i - 1]; // planted
}

extern "C" __global__ void correct_bounds_before(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        out[i] = in[i] - (i > 0 ? in[i - 1] : 0);
}
