/* SPDX-License-Identifier: MIT
 *
 * The accumulators of a matrix product of a warpgroup are read before the wait for it. The twin scales accumulators
 * between two products, and keeps one in progress while it adds the results of the other.
 *
 * arch: sm_90a
 * launch: grid=1 block=128 in=2048 out=512
 * expect: async_not_waited
 * tools: -
 */
#define PRODUCT_EARLY_WGMMA(d, a, b)                                                                                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"               \
                 : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])                                              \
                 : "l"(a), "l"(b)                                                                                      \
                 : "memory")

/* 8 x 4 floats are a core matrix; those of one k step lie 128 bytes apart, those of the next 8 rows 256. */
static __device__ unsigned long long product_early_operand(const float *p)
{
    unsigned long long a = (unsigned)__cvta_generic_to_shared(p);
    return (a & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
}

static __device__ void product_early_fill(float *a, float *b, const float *in)
{
    for (int k = (int)threadIdx.x; k < 64 * 8; k += 128)
        a[k] = in[k];
    if (threadIdx.x < 64)
        b[threadIdx.x] = in[threadIdx.x + 512];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

extern "C" __global__ void planted_product_early(float *out, const float *in, int n)
{
    __shared__ alignas(128) float a[64 * 8], b[8 * 8];
    float d[4] = {0, 0, 0, 0};
    product_early_fill(a, b, in);
    unsigned long long da = product_early_operand(a), db = product_early_operand(b);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    PRODUCT_EARLY_WGMMA(d, da, db); // planted
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    for (int k = 0; k < 4; k++)
        out[threadIdx.x * 4 + k] = d[k] + 1; // planted
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

extern "C" __global__ void correct_product_early(float *out, const float *in, int n)
{
    __shared__ alignas(128) float a[64 * 8], b[8 * 8];
    float d[4] = {0, 0, 0, 0}, e[4] = {1, 2, 3, 4};
    product_early_fill(a, b, in);
    unsigned long long da = product_early_operand(a), db = product_early_operand(b);
    for (int k = 0; k < n / 512; k++) {
        for (int j = 0; j < 4; j++)
            d[j] *= 0.5f;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        PRODUCT_EARLY_WGMMA(d, da, db);
        PRODUCT_EARLY_WGMMA(d, da, db);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        PRODUCT_EARLY_WGMMA(e, da, db);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        for (int j = 0; j < 4; j++)
            d[j] += (float)j;
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int k = 0; k < 4; k++)
        out[threadIdx.x * 4 + k] = d[k] + e[k];
}
