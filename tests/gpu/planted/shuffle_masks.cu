/* SPDX-License-Identifier: MIT
 *
 * Some lanes name a group that others of it do not name. In the twin each half of a warp names itself, comes when it
 * is ready, and votes, matches, reduces and waits by itself.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: inactive_lane
 * tools: -
 */
extern "C" __global__ void planted_shuffle_masks(float *out, const float *in, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned lane = threadIdx.x % 32, mask = lane < 24 ? 0x00ffffff : 0xffff0000;
    float v = in[i];
    v += __shfl_xor_sync(mask, v, 8); // planted
    out[i] = v;
}

extern "C" __global__ void correct_shuffle_masks(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned lane = threadIdx.x % 32, mask = lane < 16 ? 0xffff : 0xffff0000;
    float v = in[i];
    for (int k = 8; k; k /= 2)
        v += __shfl_down_sync(mask, v, k, 16);
    if (lane % 3 == 0) /* lanes of both halves come late */
        for (int k = 0; k < n; k++)
            v = v * 0.5f + in[k];
    v += __shfl_xor_sync(mask, v, 4);
    v += __popc(__ballot_sync(mask, v > 4)) + __any_sync(mask, v > 1000) + __popc(__match_any_sync(mask, lane % 4));
    s[threadIdx.x] = v;
    if (lane < 16)
        __syncwarp(mask);
    else
        __syncwarp(mask);
    v += s[threadIdx.x ^ 15];
    if (lane < 20) /* two places, one meeting */
        __syncwarp();
    else
        __syncwarp();
    s[threadIdx.x ^ 31] = v;
    __syncwarp();
    out[i] = s[threadIdx.x];
}
