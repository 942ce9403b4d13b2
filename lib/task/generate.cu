/* SPDX-License-Identifier: MIT
 *
 * Fills a tensor. Compiled by the library at run time, after convert.h and draw.h. Each thread makes pairs of elements
 * (one Philox block); the result does not depend on grid and block.
 */
extern "C" __global__ void stitch_generate(void *out, stitch_u64 count, int dtype, int kind, double a, double b, double scale,
                                           stitch_u64 seed, stitch_u32 tensor, stitch_u64 rows, stitch_u64 cols)
{
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x, pairs = count / 2 + count % 2;
    for (stitch_u64 pair = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; pair < pairs; pair += step) {
        stitch_u32 c[4];
        stitch_words(seed, tensor, pair, c);
        for (int k = 0; k < 2; k++) {
            stitch_u64 i = 2 * pair + k;
            if (i < count)
                stitch_store(out, i, dtype, STITCH__MUL(stitch_value(c, i, kind, a, b, rows, cols), scale));
        }
    }
}
