/* SPDX-License-Identifier: MIT
 *
 * An index from data runs out of an array in local memory.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: out_of_bounds
 * tools: -
 */
extern "C" __global__ void planted_local_bounds(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float a[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    a[(int)in[i]] = 1; // planted
    out[i] = a[threadIdx.x % 8];
}

extern "C" __global__ void correct_local_bounds(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float a[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    a[(int)in[i] % 8] = 1;
    out[i] = a[threadIdx.x % 8];
}
