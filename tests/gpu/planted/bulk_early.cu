/* SPDX-License-Identifier: MIT
 *
 * One warp waits for a bulk copy into shared memory, the other reads it without. In the twin both wait, a pipeline of
 * two buffers is refilled once all have read, and one warp tells the other by a barrier of its own.
 *
 * arch: sm_90a
 * launch: grid=2 block=64 in=512 out=128
 * expect: shared_race
 * tools: -
 * false: racecheck (2025.3 does not take an arrival after __syncwarp() for that of the whole warp)
 */
static __device__ void bulk_early_init(unsigned long long *b, unsigned count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(b)), "r"(count)
                 : "memory");
}

static __device__ void bulk_early_expect(unsigned long long *b)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 256;" ::"r"((unsigned)__cvta_generic_to_shared(b))
                 : "memory");
}

static __device__ void bulk_early_arrive(unsigned long long *b)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"((unsigned)__cvta_generic_to_shared(b))
                 : "memory");
}

static __device__ void bulk_early_load(unsigned to, const float *from, unsigned b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                 "l"(from), "r"(b)
                 : "memory");
}

static __device__ void bulk_early_wait(unsigned long long *b, unsigned parity)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"((unsigned)__cvta_generic_to_shared(b)), "r"(parity)
                     : "memory");
}

#define BULK_EARLY_LOAD "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"

extern "C" __global__ void planted_bulk_early(float *out, const float *in, int n)
{
    __shared__ alignas(128) float s[64];
    __shared__ unsigned long long full;
    unsigned to = (unsigned)__cvta_generic_to_shared(s), b = (unsigned)__cvta_generic_to_shared(&full);
    if (threadIdx.x == 0)
        bulk_early_init(&full, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk_early_expect(&full);
        asm volatile(BULK_EARLY_LOAD ::"r"(to), "l"(in), "r"(b) : "memory"); // planted
    }
    __syncthreads();
    if (threadIdx.x < 32)
        bulk_early_wait(&full, 0);
    out[blockIdx.x * 64 + threadIdx.x] = s[threadIdx.x ^ 1]; // planted
}

extern "C" __global__ void correct_bulk_early(float *out, const float *in, int n)
{
    __shared__ alignas(128) float s[2][64];
    __shared__ unsigned long long full[2], empty[2];
    float sum = 0;
    if (threadIdx.x == 0)
        for (int k = 0; k < 2; k++) {
            bulk_early_init(&full[k], 1);
            bulk_early_init(&empty[k], 2);
        }
    __syncthreads();
    for (int k = 0; k < n / 64; k++) {
        if (threadIdx.x == 0) {
            if (k >= 2)
                bulk_early_wait(&empty[k % 2], (unsigned)(k / 2 - 1) & 1);
            bulk_early_expect(&full[k % 2]);
            bulk_early_load((unsigned)__cvta_generic_to_shared(s[k % 2]), in + 64 * k,
                            (unsigned)__cvta_generic_to_shared(&full[k % 2]));
        }
        __syncwarp();
        bulk_early_wait(&full[k % 2], (unsigned)(k / 2) & 1);
        sum += s[k % 2][threadIdx.x ^ 1];
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            bulk_early_arrive(&empty[k % 2]);
    }
    out[blockIdx.x * 64 + threadIdx.x] = sum;
}
