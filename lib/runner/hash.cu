/* SPDX-License-Identifier: MIT
 *
 * Hash of device memory. Compiled by the library at run time, after convert.h. A sum of integers, so that it is the same
 * whatever the order.
 */
static __device__ stitch_u64 mix(stitch_u64 x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Adds to *out, which starts at zero: a sum of hashes of (place, word), whatever the order. What was read, and nothing
 * else, is written to `copy` if that is not NULL. */
extern "C" __global__ void stitch_hash(const void *data, void *copy, stitch_u64 bytes, stitch_u64 seed, stitch_u64 *out)
{
    stitch_u64 words = bytes / 8, step = (stitch_u64)gridDim.x * blockDim.x, sum = 0;
    stitch_u64 start = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (stitch_u64 i = start; i < words; i += step) {
        stitch_u64 word = ((const stitch_u64 *)data)[i];
        if (copy)
            ((stitch_u64 *)copy)[i] = word;
        sum += mix(word + mix(seed + i * 0x9e3779b97f4a7c15ull));
    }
    if (start == 0 && bytes % 8) {
        stitch_u64 tail = 0;
        for (stitch_u64 k = words * 8; k < bytes; k++) {
            unsigned char byte = ((const unsigned char *)data)[k];
            if (copy)
                ((unsigned char *)copy)[k] = byte;
            tail = tail << 8 | byte;
        }
        sum += mix(tail + mix(seed + words * 0x9e3779b97f4a7c15ull + 1));
    }
    for (int lane = 16; lane; lane /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, lane);
    if (threadIdx.x % 32 == 0)
        atomicAdd(out, sum);
}
