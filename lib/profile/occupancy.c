/* SPDX-License-Identifier: MIT
 *
 * How many warps of a kernel fit on a multiprocessor, by the rules of NVIDIA's occupancy calculator.
 */
#include "profile/profile.h"

enum {
    WARP = 32,
    REGISTER_UNIT = 256, /* registers are given to warps in such pieces */
    PARTITIONS = 4,      /* a warp's registers lie in one of them */
    SHARED_UNIT = 128,
};

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

stitch__occupancy stitch__occupancy_of(const stitch__sm *sm, const stitch__event *k)
{
    stitch__occupancy out = {0, 0, 0, ""};
    uint64_t threads = (uint64_t)k->block[0] * k->block[1] * k->block[2];
    uint64_t grid = (uint64_t)k->grid[0] * k->grid[1] * k->grid[2];
    if (sm->threads < WARP || sm->blocks < 1 || sm->registers < 1 || sm->shared < 1 || sm->count < 1 || !threads ||
        threads > 1024)
        return out;
    uint64_t warps = (threads + WARP - 1) / WARP, most = (uint64_t)sm->threads / WARP;
    uint64_t blocks = most / warps;
    out.limiter = "warps";
    if ((uint64_t)sm->blocks < blocks) {
        blocks = (uint64_t)sm->blocks;
        out.limiter = "blocks";
    }
    if (k->registers) {
        uint64_t a_warp = round_up((uint64_t)k->registers * WARP, REGISTER_UNIT);
        uint64_t fit = (uint64_t)sm->registers / PARTITIONS / a_warp * PARTITIONS / warps;
        if (fit < blocks) {
            blocks = fit;
            out.limiter = "registers";
        }
    }
    uint64_t shared = (uint64_t)k->static_shared + k->dynamic_shared + (uint64_t)sm->reserved_shared;
    if (shared) {
        uint64_t fit = (uint64_t)sm->shared / round_up(shared, SHARED_UNIT);
        if (fit < blocks) {
            blocks = fit;
            out.limiter = "shared memory";
        }
    }
    if (!blocks) { /* it ran, so some limit is not what it is taken for */
        out.limiter = "";
        return out;
    }
    out.blocks = (int)blocks;
    out.share = (double)(blocks * warps) / (double)most;
    if (blocks * warps == most)
        out.limiter = "";
    out.waves = (double)grid / (double)(blocks * (uint64_t)sm->count);
    return out;
}
