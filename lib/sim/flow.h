/* SPDX-License-Identifier: MIT
 *
 * Working data of the flow pass (flow.c) and of register allocation (slots.c).
 */
#ifndef STITCH_LIB_SIM_FLOW_H
#define STITCH_LIB_SIM_FLOW_H

#include "sim/ir.h"

typedef struct flow_block {
    uint32_t first, end;       /* instructions in the text */
    uint32_t at, at_end;       /* in the new code, from the block mark on */
    uint32_t succ, succ_count; /* in flow.edges */
    uint32_t rpo;              /* UINT32_MAX: unreachable */
    uint32_t ipdom;            /* flow.count: the exit */
} flow_block;

typedef struct flow {
    stitch__sim_function *f;
    const stitch_context *ctx;
    flow_block *blocks;
    uint32_t count;
    uint32_t *block_of; /* of an instruction in the text */
    uint32_t *edges;
    uint32_t *rpo, rpo_count;
    uint32_t *order, order_count; /* blocks as laid out */
} flow;

/* Gives every virtual register a slot in the frame and rewrites all operands to offsets. */
int stitch__sim_allocate(flow *w);

#endif
