/* SPDX-License-Identifier: MIT
 *
 * An asynchronous copy into shared memory is used without a wait for it.
 *
 * launch: grid=1 block=64 in=64 out=64
 * expect: async_not_waited
 * tools: -
 */
extern "C" __global__ void planted_copy_not_waited(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + i) : "memory"); // planted
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    out[i] = s[threadIdx.x ^ 1]; // planted
}

extern "C" __global__ void correct_copy_not_waited(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + i) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[i] = s[threadIdx.x ^ 1];
}
