/* SPDX-License-Identifier: MIT
 *
 * A pipeline of two buffers copies into the one that other warps may still read: the barrier behind the sum is missing.
 *
 * launch: grid=1 block=64 in=256 out=64
 * expect: shared_race
 * tools: -
 */
static __device__ void copy_refill_copy(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

static __device__ void copy_refill_wait()
{
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

static __device__ void copy_refill_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

extern "C" __global__ void planted_copy_refill(float *out, const float *in, int n)
{
    __shared__ float s[2][64];
    float sum = 0;
    int t = (int)threadIdx.x, stages = n / 64;
    copy_refill_copy(&s[0][t], in + t);
    copy_refill_commit();
    copy_refill_copy(&s[1][t], in + 64 + t);
    copy_refill_commit();
    for (int k = 0; k < stages; k++) {
        copy_refill_wait();
        __syncthreads();
        sum += s[k % 2][t ^ 32]; // planted
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[k % 2][t]);
        const float *from = in + 64 * (k + 2) + t;
        if (k + 2 < stages)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory"); // planted
        copy_refill_commit();
    }
    out[t] = sum;
}

extern "C" __global__ void correct_copy_refill(float *out, const float *in, int n)
{
    __shared__ float s[2][64];
    float sum = 0;
    int t = (int)threadIdx.x, stages = n / 64;
    copy_refill_copy(&s[0][t], in + t);
    copy_refill_commit();
    copy_refill_copy(&s[1][t], in + 64 + t);
    copy_refill_commit();
    for (int k = 0; k < stages; k++) {
        copy_refill_wait();
        __syncthreads();
        sum += s[k % 2][t ^ 32];
        __syncthreads();
        if (k + 2 < stages)
            copy_refill_copy(&s[k % 2][t], in + 64 * (k + 2) + t);
        copy_refill_commit();
    }
    out[t] = sum;
}
