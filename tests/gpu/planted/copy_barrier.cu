/* SPDX-License-Identifier: MIT
 *
 * Asynchronous copies that complete on a barrier object in shared memory: used before its phase completes, and after.
 * The twin also has a warp that copies and ends, and one buffer that is filled twice.
 *
 * launch: grid=2 block=64 in=128 out=128 zero=1
 * expect: async_not_waited
 * tools: -
 */
static __device__ void copy_barrier_init(unsigned long long *b, unsigned count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(b)), "r"(count)
                 : "memory");
}

static __device__ void copy_barrier_copy(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
}

static __device__ void copy_barrier_arrive(unsigned long long *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"((unsigned)__cvta_generic_to_shared(b))
                 : "memory");
}

static __device__ void copy_barrier_wait(unsigned long long *b, unsigned parity)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p;\n"
                     "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.b32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"((unsigned)__cvta_generic_to_shared(b)), "r"(parity)
                     : "memory");
}

extern "C" __global__ void planted_copy_barrier(float *out, const float *in, int n)
{
    __shared__ float s[64];
    __shared__ unsigned long long full;
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (threadIdx.x == 0)
        copy_barrier_init(&full, 64);
    __syncthreads();
    unsigned to = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + i) : "memory"); // planted
    copy_barrier_arrive(&full);
    __syncthreads();
    float v = s[threadIdx.x ^ 33]; // planted
    copy_barrier_wait(&full, 0);
    out[i] = v + s[threadIdx.x ^ 33];
}

extern "C" __global__ void correct_copy_barrier(float *out, const float *in, int n)
{
    __shared__ float s[2][32];
    __shared__ unsigned long long full, empty;
    unsigned lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        copy_barrier_init(&full, 32);
        copy_barrier_init(&empty, 32);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        for (int k = 0; k < 2; k++) {
            if (k)
                copy_barrier_wait(&empty, 0);
            copy_barrier_copy(&s[0][lane], in + 32 * k + lane);
            copy_barrier_copy(&s[1][lane], in + 64 + 32 * k + lane);
            copy_barrier_arrive(&full);
        }
        return;
    }
    float sum = 0;
    for (int k = 0; k < 2; k++) {
        copy_barrier_wait(&full, (unsigned)k);
        sum += s[0][lane ^ 1] + s[1][lane ^ 2];
        if (k == 0)
            asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(
                             (unsigned)__cvta_generic_to_shared(&empty))
                         : "memory");
    }
    out[blockIdx.x * 32 + lane] = sum;
}
