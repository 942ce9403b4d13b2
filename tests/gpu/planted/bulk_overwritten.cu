/* SPDX-License-Identifier: MIT
 *
 * Threads overwrite shared memory that a bulk copy may still send: nothing waits for its group before the barrier.
 *
 * arch: sm_90a
 * launch: grid=2 block=64 in=128 out=128
 * expect: async_not_waited
 * tools: -
 */
extern "C" __global__ void planted_bulk_overwritten(float *out, const float *in, int n)
{
    __shared__ alignas(128) float s[64];
    unsigned from = (unsigned)__cvta_generic_to_shared(s);
    float *to = out + blockIdx.x * 64;
    s[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(to), "r"(from)); // planted
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    __syncthreads();
    s[threadIdx.x] = 0; // planted
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void correct_bulk_overwritten(float *out, const float *in, int n)
{
    __shared__ alignas(128) float s[2][64];
    float *to = out + blockIdx.x * 64;
    for (int k = 0; k < 4; k++) {
        s[k % 2][threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] + k;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (threadIdx.x == 0) /* for the copy of the other half, which all write next */
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned from = (unsigned)__cvta_generic_to_shared(s[k % 2]);
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(to), "r"(from) : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    }
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
