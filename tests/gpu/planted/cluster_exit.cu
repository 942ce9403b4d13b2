/* SPDX-License-Identifier: MIT
 *
 * A block reads the shared memory of another one of its cluster, which may have ended. The twin waits for all.
 *
 * arch: sm_90a
 * launch: grid=2 block=64 in=128 out=128
 * expect: block_ended
 * tools: -
 */
static __device__ void cluster_exit_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

static __device__ unsigned cluster_exit_other(const void *p)
{
    unsigned rank, a;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank ^ 1));
    return a;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) planted_cluster_exit(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float v;
    s[threadIdx.x] = in[i];
    unsigned a = cluster_exit_other(&s[threadIdx.x ^ 1]);
    cluster_exit_sync();
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory"); // planted
    out[i] = v;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) correct_cluster_exit(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float v;
    s[threadIdx.x] = in[i];
    unsigned a = cluster_exit_other(&s[threadIdx.x ^ 1]);
    cluster_exit_sync();
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory");
    out[i] = v;
    cluster_exit_sync();
}
