/* SPDX-License-Identifier: MIT
 *
 * Threads read what they will write, and so do others: with no barrier before the write, and with one in the twin, after
 * which the thread itself reads once more.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: shared_race
 * tools: -
 */
extern "C" __global__ void planted_reread(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int t = (int)threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    float v = s[t ^ 32]; // planted
    v += s[t]; // planted
    s[t] = v; // planted
    __syncthreads();
    out[t] = s[63 - t];
}

extern "C" __global__ void correct_reread(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int t = (int)threadIdx.x;
    s[t] = in[t];
    __syncwarp();
    float v = s[t ^ 1];
    __syncwarp();
    v += s[t];
    s[t] = v;
    __syncthreads();
    v = s[t ^ 32];
    __syncthreads();
    v += s[t];
    s[t] = v;
    __syncthreads();
    out[t] = s[63 - t];
}
