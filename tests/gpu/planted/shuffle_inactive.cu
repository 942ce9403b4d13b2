/* SPDX-License-Identifier: MIT
 *
 * Lanes 8 to 15 fetch from lanes that do not take part.
 *
 * launch: grid=1 block=32 in=32 out=32
 * expect: inactive_lane
 * tools: -
 */
extern "C" __global__ void planted_shuffle_inactive(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float v = in[i];
    if (threadIdx.x < 16)
        v += __shfl_down_sync(0xffff, v, 8); // planted
    out[i] = v;
}

extern "C" __global__ void correct_shuffle_inactive(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float v = in[i];
    if (threadIdx.x < 16)
        v += __shfl_down_sync(0xffff, v, 8, 16);
    out[i] = v;
}
