/* SPDX-License-Identifier: MIT
 *
 * Control flow of a decoded function: basic blocks, their order, and the code with block marks.
 *
 * A warp runs the split of lanes that is earliest in the code, so lanes that parted meet again where the code says, if
 * every block between a branch and the point where its ways meet lies before that point. Compilers nearly always order
 * blocks so; where not, blocks are put in reverse post-order.
 */
#include "sim/flow.h"

#include "sim/exec.h"

static bool ends_block(const stitch__instr *in)
{
    return in->op == STITCH__OP_BRA || in->op == STITCH__OP_BRX || in->op == STITCH__OP_RET ||
           in->op == STITCH__OP_EXIT;
}

static bool falls_through(const stitch__instr *in)
{
    return !ends_block(in) || in->guard != 0;
}

static int find_blocks(flow *w)
{
    stitch__sim_function *f = w->f;
    uint32_t n = f->code_count;
    uint8_t *leader = stitch__calloc(w->ctx, n + 1, 1);
    w->block_of = stitch__calloc(w->ctx, n + 1, sizeof(uint32_t));
    if (!leader || !w->block_of)
        goto nomem;
    leader[0] = 1;
    uint32_t edges = 0;
    for (uint32_t i = 0; i < n; i++) {
        const stitch__instr *in = &f->code[i];
        if (!ends_block(in))
            continue;
        leader[i + 1] = 1;
        if (in->op == STITCH__OP_BRA) {
            leader[in->imm] = 1;
        } else if (in->op == STITCH__OP_BRX) {
            const uint32_t *t = in->data;
            for (int64_t k = 0; k < in->imm; k++)
                leader[t[k]] = 1;
            edges += (uint32_t)in->imm;
        }
        edges += 2;
    }
    for (uint32_t i = 0; i < n; i++)
        w->count += leader[i];
    edges += w->count;
    w->blocks = stitch__calloc(w->ctx, w->count, sizeof(*w->blocks));
    w->edges = stitch__calloc(w->ctx, edges, sizeof(uint32_t));
    if (!w->blocks || !w->edges)
        goto nomem;
    uint32_t b = UINT32_MAX, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (leader[i]) {
            b++;
            w->blocks[b].first = i;
        }
        w->block_of[i] = b;
        w->blocks[b].end = i + 1;
    }
    for (b = 0; b < w->count; b++) {
        flow_block *k = &w->blocks[b];
        const stitch__instr *last = &f->code[k->end - 1];
        k->succ = at;
        if (falls_through(last) && b + 1 < w->count)
            w->edges[at++] = b + 1;
        if (last->op == STITCH__OP_BRA) {
            w->edges[at++] = w->block_of[last->imm];
        } else if (last->op == STITCH__OP_BRX) {
            const uint32_t *t = last->data;
            for (int64_t j = 0; j < last->imm; j++)
                w->edges[at++] = w->block_of[t[j]];
        }
        k->succ_count = at - k->succ;
    }
    stitch_free(leader);
    return STITCH_OK;
nomem:
    stitch_free(leader);
    return STITCH_E_NOMEM;
}

/* Depth first from block 0; of a block's successors the one that is last in the text goes first, so that in reverse
 * post-order what leaves a loop comes behind the loop. */
static int reverse_post_order(flow *w)
{
    uint32_t n = w->count, top = 0, post = 0;
    uint32_t *stack = stitch__calloc(w->ctx, n, 2 * sizeof(uint32_t));
    uint32_t *order = stitch__calloc(w->ctx, n, sizeof(uint32_t));
    uint8_t *seen = stitch__calloc(w->ctx, n, 1);
    int rc = stack && order && seen ? STITCH_OK : STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        for (uint32_t b = 0; b < n; b++) { /* later successors first */
            flow_block *k = &w->blocks[b];
            for (uint32_t i = 1; i < k->succ_count; i++)
                for (uint32_t j = k->succ + i; j > k->succ && w->edges[j] > w->edges[j - 1]; j--) {
                    uint32_t t = w->edges[j];
                    w->edges[j] = w->edges[j - 1];
                    w->edges[j - 1] = t;
                }
        }
        seen[0] = 1;
        stack[0] = stack[1] = 0;
        top = 1;
        while (top) {
            uint32_t *e = &stack[2 * (top - 1)];
            const flow_block *k = &w->blocks[e[0]];
            if (e[1] < k->succ_count) {
                uint32_t s = w->edges[k->succ + e[1]++];
                if (!seen[s]) {
                    seen[s] = 1;
                    stack[2 * top] = s;
                    stack[2 * top + 1] = 0;
                    top++;
                }
            } else {
                order[post++] = e[0];
                top--;
            }
        }
        w->rpo = order;
        w->rpo_count = post;
        for (uint32_t i = 0; i < post / 2; i++) {
            uint32_t t = order[i];
            order[i] = order[post - 1 - i];
            order[post - 1 - i] = t;
        }
        for (uint32_t i = 0; i < n; i++)
            w->blocks[i].rpo = UINT32_MAX;
        for (uint32_t i = 0; i < post; i++)
            w->blocks[order[i]].rpo = i;
        order = NULL;
    }
    stitch_free(stack);
    stitch_free(order);
    stitch_free(seen);
    return rc;
}

/* Immediate post-dominators by the usual iteration, over the reversed graph with one virtual exit (number w->count). */
static int post_dominators(flow *w)
{
    uint32_t n = w->count;
    uint32_t *ipdom = stitch__alloc(w->ctx, (n + 1) * sizeof(uint32_t));
    if (!ipdom)
        return STITCH_E_NOMEM;
    for (uint32_t i = 0; i <= n; i++)
        ipdom[i] = UINT32_MAX;
    ipdom[n] = n;
    /* Numbers that grow away from the exit: rpo of the forward graph, the exit last. */
#define NUMBER(b) ((b) == n ? UINT32_MAX : w->blocks[b].rpo)
    bool changed = true;
    for (unsigned round = 0; changed && round < 1000; round++) {
        changed = false;
        for (uint32_t i = w->rpo_count; i-- > 0;) {
            uint32_t b = w->rpo[i], d = UINT32_MAX;
            const flow_block *k = &w->blocks[b];
            for (uint32_t e = 0; e <= k->succ_count; e++) {
                uint32_t s;
                if (e < k->succ_count)
                    s = w->edges[k->succ + e];
                else if (w->f->code[k->end - 1].op == STITCH__OP_RET || w->f->code[k->end - 1].op == STITCH__OP_EXIT)
                    s = n;
                else
                    break;
                if (ipdom[s] == UINT32_MAX)
                    continue;
                if (d == UINT32_MAX) {
                    d = s;
                    continue;
                }
                uint32_t a = d, c = s, guard = 0;
                while (a != c && guard++ < 4 * n + 8) {
                    while (NUMBER(a) < NUMBER(c) && guard++ < 4 * n + 8)
                        a = ipdom[a];
                    while (NUMBER(c) < NUMBER(a) && guard++ < 4 * n + 8)
                        c = ipdom[c];
                }
                d = a == c ? a : n;
            }
            if (d != UINT32_MAX && ipdom[b] != d) {
                ipdom[b] = d;
                changed = true;
            }
        }
    }
#undef NUMBER
    for (uint32_t b = 0; b < n; b++)
        w->blocks[b].ipdom = ipdom[b] == UINT32_MAX ? n : ipdom[b];
    stitch_free(ipdom);
    return STITCH_OK;
}

/* Whether every block between a branch and its meeting point lies before that point in the text. */
static int layout_is_good(flow *w, bool *good)
{
    uint32_t n = w->count, mark = 0;
    uint64_t steps = 0;
    uint32_t *seen = stitch__calloc(w->ctx, n, sizeof(uint32_t)), *stack = stitch__calloc(w->ctx, n, sizeof(uint32_t));
    int rc = seen && stack ? STITCH_OK : STITCH_E_NOMEM;
    *good = true;
    for (uint32_t b = 0; rc == STITCH_OK && b < n && *good && steps < 20000000; b++) {
        const flow_block *k = &w->blocks[b];
        if (k->succ_count < 2 || k->rpo == UINT32_MAX || k->ipdom == n)
            continue;
        uint32_t top = 0;
        mark++;
        seen[b] = mark;
        stack[top++] = b;
        while (top && *good) {
            const flow_block *q = &w->blocks[stack[--top]];
            for (uint32_t e = 0; e < q->succ_count; e++, steps++) {
                uint32_t s = w->edges[q->succ + e];
                if (s == k->ipdom || seen[s] == mark)
                    continue;
                if (s > k->ipdom)
                    *good = false;
                seen[s] = mark;
                stack[top++] = s;
            }
        }
    }
    stitch_free(seen);
    stitch_free(stack);
    return rc;
}

static int layout(flow *w)
{
    stitch__sim_function *f = w->f;
    bool good;
    int rc = reverse_post_order(w);
    if (rc == STITCH_OK)
        rc = post_dominators(w);
    if (rc == STITCH_OK)
        rc = layout_is_good(w, &good);
    if (rc != STITCH_OK)
        return rc;
    w->order = stitch__calloc(w->ctx, w->count, sizeof(uint32_t));
    if (!w->order)
        return STITCH_E_NOMEM;
    w->order_count = 0;
    if (good) {
        for (uint32_t b = 0; b < w->count; b++)
            if (w->blocks[b].rpo != UINT32_MAX)
                w->order[w->order_count++] = b;
    } else {
        for (uint32_t i = 0; i < w->rpo_count; i++)
            w->order[w->order_count++] = w->rpo[i];
    }
    /* New code: a mark in front of each block, a jump behind it where the text went on elsewhere. */
    uint32_t need = 0;
    for (uint32_t i = 0; i < w->order_count; i++)
        need += w->blocks[w->order[i]].end - w->blocks[w->order[i]].first + 2;
    stitch__instr *code = stitch__calloc(w->ctx, need, sizeof(*code));
    if (!code)
        return STITCH_E_NOMEM;
    uint32_t at = 0;
    for (uint32_t i = 0; i < w->order_count; i++) {
        flow_block *k = &w->blocks[w->order[i]];
        const stitch__instr *first = &f->code[k->first], *last = &f->code[k->end - 1];
        uint32_t notes = 0; /* they are none of the kernel's instructions */
        for (const stitch__instr *in = first; in <= last; in++)
            notes += in->op == STITCH__OP_FN && in->u.fn == stitch__exec_product_note;
        k->at = at;
        code[at] = (stitch__instr){.op = STITCH__OP_BLOCK,
                                   .slot = i,
                                   .line = first->line,
                                   .place = first->place,
                                   .imm = k->end - k->first - notes,
                                   .cls = STITCH__SIM_CLASS_CONTROL};
        at++;
        memcpy(&code[at], first, (k->end - k->first) * sizeof(*code));
        at += k->end - k->first;
        uint32_t next = w->order[i] + 1;
        if (falls_through(last) && next < w->count && !(i + 1 < w->order_count && w->order[i + 1] == next)) {
            code[at] = (stitch__instr){.op = STITCH__OP_BRA,
                                       .imm = last - f->code + 1,
                                       .line = last->line,
                                       .place = last->place,
                                       .cls = STITCH__SIM_CLASS_CONTROL};
            at++;
        }
        k->at_end = at;
    }
    for (uint32_t i = 0; i < at; i++) {
        if (code[i].op == STITCH__OP_BRA) {
            code[i].imm = w->blocks[w->block_of[code[i].imm]].at;
        } else if (code[i].op == STITCH__OP_BRX) {
            uint32_t *t = code[i].data;
            for (int64_t k = 0; k < code[i].imm; k++)
                t[k] = w->blocks[w->block_of[t[k]]].at;
        }
    }
    stitch_free(f->code);
    f->code = code;
    f->code_count = at;
    f->block_count = w->order_count;
    return STITCH_OK;
}

int stitch__sim_flow(stitch__sim_function *f, stitch_error **err)
{
    flow w = {.f = f, .ctx = f->module->ctx};
    int rc = STITCH_OK;
    f->info.instructions = (uint32_t)f->instr_total;
    if (!f->info.refusal) {
        rc = stitch__sim_product_notes(f);
        if (rc == STITCH_OK)
            rc = find_blocks(&w);
        if (rc == STITCH_OK)
            rc = layout(&w);
        if (rc == STITCH_OK)
            rc = stitch__sim_allocate(&w);
    }
    stitch_free(w.block_of);
    stitch_free(w.blocks);
    stitch_free(w.edges);
    stitch_free(w.rpo);
    stitch_free(w.order);
    (void)err;
    return rc;
}
