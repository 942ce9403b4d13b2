/* SPDX-License-Identifier: MIT
 *
 * The blocks of a cluster read each other's shared memory, and overwrite their own before the others have read it. In
 * the twin cluster barriers, whole and in halves, and barrier objects order all accesses.
 *
 * arch: sm_90a
 * launch: grid=4 block=64 in=256 out=256
 * expect: shared_race
 * tools: -
 */
static __device__ unsigned cluster_race_map(const void *p, unsigned rank)
{
    unsigned a;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(a) : "r"((unsigned)__cvta_generic_to_shared(p)), "r"(rank));
    return a;
}

static __device__ unsigned cluster_race_rank()
{
    unsigned r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

static __device__ void cluster_race_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

static __device__ void cluster_race_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

static __device__ float cluster_race_load(unsigned a)
{
    float v;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory");
    return v;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) planted_cluster_race(float *out, const float *in, int n)
{
    __shared__ float s[64];
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    float v;
    s[threadIdx.x] = in[i];
    cluster_race_arrive();
    cluster_race_wait();
    unsigned a = cluster_race_map(&s[threadIdx.x ^ 1], cluster_race_rank() ^ 1);
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory"); // planted
    __syncthreads();
    s[threadIdx.x] = v; // planted
    cluster_race_arrive();
    cluster_race_wait();
    out[i] = s[63 - threadIdx.x];
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) correct_cluster_race(float *out, const float *in, int n)
{
    __shared__ float s[64];
    __shared__ unsigned long long full;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned other = cluster_race_rank() ^ 1, done = 0;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"((unsigned)__cvta_generic_to_shared(&full)) : "memory");
    s[threadIdx.x] = in[i];
    cluster_race_arrive();
    cluster_race_wait();
    float v = cluster_race_load(cluster_race_map(&s[threadIdx.x ^ 1], other));
    cluster_race_arrive();
    v = v * 0.5f + in[i]; /* nothing of s between the halves */
    cluster_race_wait();
    s[threadIdx.x] = v;
    __syncthreads();
    v += s[threadIdx.x ^ 33];
    __syncthreads();
    /* Into the other block's memory, which waits for 64 arrivals from here. */
    cluster_race_arrive();
    cluster_race_wait();
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(cluster_race_map(&s[threadIdx.x], other)), "f"(v) : "memory");
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(cluster_race_map(&full, other))
                 : "memory");
    while (!done)
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"((unsigned)__cvta_generic_to_shared(&full))
                     : "memory");
    out[i] = s[63 - threadIdx.x];
    cluster_race_arrive();
    cluster_race_wait();
}
