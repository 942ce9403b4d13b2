/* SPDX-License-Identifier: MIT
 *
 * The last block writes past the end: no test of the index.
 *
 * launch: grid=3 block=64 in=160 out=160
 * expect: out_of_bounds
 * tools: memcheck
 */
extern "C" __global__ void planted_bounds_write(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = 2 * in[i % n]; // planted
}

extern "C" __global__ void correct_bounds_write(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        out[i] = 2 * in[i % n];
}
