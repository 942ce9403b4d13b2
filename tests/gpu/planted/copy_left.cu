/* SPDX-License-Identifier: MIT
 *
 * A warp copies into shared memory and ends without a wait; another warp reads what it copied.
 *
 * launch: grid=1 block=64 in=64 out=64 zero=1
 * expect: async_not_waited
 * tools: -
 */
extern "C" __global__ void planted_copy_left(float *out, const float *in, int n)
{
    __shared__ float s[32];
    if (threadIdx.x < 32) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + threadIdx.x) : "memory"); // planted
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x - 32]; // planted
}

extern "C" __global__ void correct_copy_left(float *out, const float *in, int n)
{
    __shared__ float s[32];
    if (threadIdx.x < 32) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        return;
    }
    asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = s[threadIdx.x - 32];
}
