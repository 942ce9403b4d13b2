/* SPDX-License-Identifier: MIT
 *
 * A bulk copy sends what threads wrote to shared memory, with a barrier but no fence between the two proxies.
 *
 * arch: sm_90a
 * launch: grid=2 block=64 in=128 out=128
 * expect: missing_fence
 * tools: -
 */
static __device__ void bulk_unfenced_wait()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void planted_bulk_unfenced(float *out, const float *in, int n)
{
    __shared__ alignas(128) float s[64];
    unsigned from = (unsigned)__cvta_generic_to_shared(s);
    float *to = out + blockIdx.x * 64;
    s[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] + 1; // planted
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(to), "r"(from)); // planted
        bulk_unfenced_wait();
    }
}

extern "C" __global__ void correct_bulk_unfenced(float *out, const float *in, int n)
{
    __shared__ alignas(128) float s[64];
    unsigned from = (unsigned)__cvta_generic_to_shared(s);
    float *to = out + blockIdx.x * 64;
    for (int k = 0; k < 2; k++) {
        s[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x] + k;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(to), "r"(from) : "memory");
            bulk_unfenced_wait();
        }
        __syncthreads();
    }
}
