/* SPDX-License-Identifier: MIT
 *
 * A quarter of the shared array is never written; no sanitizer tool looks at shared memory for this.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: uninitialised
 * tools: -
 */
extern "C" __global__ void planted_unwritten_shared(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x < 48)
        s[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = s[threadIdx.x]; // planted
}

extern "C" __global__ void correct_unwritten_shared(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    s[threadIdx.x] = threadIdx.x < 48 ? in[i] : 0;
    __syncthreads();
    out[i] = s[threadIdx.x];
}
