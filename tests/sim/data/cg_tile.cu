// SPDX-License-Identifier: MIT
//
// Groups of several warps, which keep their barriers in reserved shared memory, for test_sim_forms.c. cg_tile.ptx is
// made from this file by
//   nvcc -ptx -arch=compute_80 -std=c++17 cg_tile.cu -o cg_tile.ptx
// without the unused .global variables of the headers.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

// A sum of every 128 threads, and what their sixth thread has.
extern "C" __global__ void tile_sums(const int *in, int *out)
{
    auto tile = cg::tiled_partition<128>(cg::this_thread_block());
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    int sum = cg::reduce(tile, v, cg::plus<int>());
    tile.sync();
    int sixth = tile.shfl(v, 5);
    if (tile.thread_rank() == 0) {
        int *o = out + 2 * (blockIdx.x * tile.meta_group_size() + tile.meta_group_rank());
        o[0] = sum;
        o[1] = sixth;
    }
}
