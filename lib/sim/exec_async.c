/* SPDX-License-Identifier: MIT
 *
 * cp.async. A copy is checked when it is issued, as the write that it may be from then on, and done when a wait says
 * so: until then its target counts as never written, so that reading too early is found.
 */
#include "sim/exec.h"

static uint32_t first(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

static void forget_init(stitch__block *b, uint32_t offset, uint32_t size)
{
    for (uint32_t i = offset; i < offset + size; i++)
        b->shared_init[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

int stitch__exec_cpasync(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__warp *w = x->warp;
    if (stitch__grow(x->frame->f->module->ctx, &w->copies, &w->copy_cap, w->copy_count + 1, sizeof(*w->copies))) {
        x->rc = STITCH_E_NOMEM;
        return STITCH__RUN_KILL;
    }
    stitch__copy *c = &w->copies[w->copy_count];
    const uint64_t *dst = stitch__operand(x, in->o[0]), *src = stitch__operand(x, in->o[1]);
    const uint32_t *size = in->o[2] ? stitch__operand(x, in->o[2]) : NULL;
    uint32_t ignore = in->o[3] ? *(const uint32_t *)stitch__operand(x, in->o[3]) : 0;
    c->mask = 0;
    c->size = in->size;
    c->seq = ++w->copy_seq;
    c->in = in;
    c->f = x->frame->f;
    stitch__mem_count *count = x->counting ? &x->fc->mem[stitch__pc(x, in)] : NULL;
    uint64_t last = ~UINT64_C(0);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = first(m), bytes = ignore >> lane & 1 ? 0 : size ? size[lane] : in->size;
        stitch__where s, d;
        if (bytes > in->size)
            bytes = in->size;
        if (!stitch__locate(x, in, STITCH__SIM_SHARED, dst[lane], in->size, in->size, lane, true, &d) ||
            (bytes && !stitch__locate(x, in, STITCH__SIM_GLOBAL, src[lane], bytes, 1, lane, false, &s))) {
            if (x->kill)
                return STITCH__RUN_KILL;
            continue;
        }
        if (bytes && src[lane] & (in->size - 1u)) {
            stitch__report(x, STITCH__SIM_MISALIGNED, in, lane, STITCH__SIM_GLOBAL, src[lane], in->size,
                           "asynchronous copy of %u bytes", in->size);
            continue;
        }
        if (bytes && x->check_init && !stitch__is_init(&s, bytes))
            stitch__report_bounds(x, in, lane, STITCH__SIM_GLOBAL, src[lane], bytes, false, s.alloc,
                                  STITCH__SIM_UNINITIALISED);
        if (bytes && x->check_global)
            stitch__race_global(x, in, s.alloc, lane, s.offset, bytes, false, false, NULL);
        if (count && bytes) {
            count->bytes += bytes;
            for (uint64_t k = src[lane] >> 5; k <= (src[lane] + bytes - 1) >> 5; k++)
                if (k != last) {
                    count->units++;
                    last = k;
                }
        }
        c->src[lane] = src[lane];
        c->dst[lane] = (uint32_t)d.offset;
        c->bytes[lane] = bytes;
        c->group[lane] = UINT32_MAX;
        c->mask |= 1u << lane;
        if (x->check_shared)
            stitch__race_shared(x, in, d.owner, lane, (uint32_t)d.offset, in->size, true, false);
        forget_init(d.owner, (uint32_t)d.offset, in->size);
    }
    if (count) {
        count->requests++;
        count->ideal += ((uint64_t)__builtin_popcount(c->mask) * in->size + 31) / 32;
    }
    if (c->mask)
        w->copy_count++;
    return STITCH__RUN_NEXT;
}

/* `waited`: the thread itself waits; what it copied is as if it wrote it now. */
static void apply_lane(stitch__exec *x, stitch__warp *w, const stitch__copy *c, uint32_t lane, bool waited)
{
    stitch__block *b = w->block;
    uint8_t bytes[16] = {0};
    stitch__sim_alloc *a = c->bytes[lane] ? stitch__sim_memory_find(x->launch->memory, c->src[lane]) : NULL;
    if (a && !a->freed && c->src[lane] - a->base + c->bytes[lane] <= a->size)
        memcpy(bytes, a->host + (c->src[lane] - a->base), c->bytes[lane]);
    if (x->check_shared && waited && c->f == x->frame->f)
        stitch__race_wrote(x, c->in, b, lane, c->dst[lane], c->size);
    memcpy(b->shared + c->dst[lane], bytes, c->size);
    stitch__where d = {.owner = b, .offset = c->dst[lane], .space = STITCH__SIM_SHARED};
    stitch__mark_init(&d, c->size);
}

/* Does the copies of the lanes in `mask`: those of all but the newest `keep` groups, or (before_seq) those issued
 * before a point. */
bool stitch__copies_apply(stitch__exec *x, stitch__warp *w, uint32_t mask, uint32_t keep, uint32_t before_seq, bool all)
{
    size_t out = 0;
    for (size_t i = 0; i < w->copy_count; i++) {
        stitch__copy *c = &w->copies[i];
        for (uint32_t m = c->mask & mask; m; m &= m - 1) {
            uint32_t lane = first(m);
            bool due = before_seq ? c->seq <= before_seq
                                  : all || (c->group[lane] != UINT32_MAX && c->group[lane] + keep < w->commits[lane]);
            if (due) {
                apply_lane(x, w, c, lane, !before_seq);
                c->mask &= ~(1u << lane);
            }
        }
        if (c->mask) {
            if (out != i)
                w->copies[out] = *c;
            out++;
        }
    }
    w->copy_count = out;
    return true;
}

bool stitch__copies_find(const stitch__block *b, uint32_t offset, uint32_t size, stitch__pending *out)
{
    for (uint32_t i = 0; i < b->warp_count; i++)
        for (size_t k = 0; k < b->warps[i].copy_count; k++) {
            const stitch__copy *c = &b->warps[i].copies[k];
            for (uint32_t m = c->mask; m; m &= m - 1) {
                uint32_t lane = first(m);
                if (c->dst[lane] < offset + size && offset < c->dst[lane] + c->size) {
                    *out = (stitch__pending){.in = c->in, .f = c->f, .block = b, .warp = i, .lane = lane};
                    return true;
                }
            }
        }
    for (size_t k = 0; k < b->bulk_count; k++) {
        const stitch__flight *t = &b->bulk[k];
        if ((t->kind == STITCH__FLIGHT_LOAD || t->kind == STITCH__FLIGHT_SHARED) && t->shared < offset + size &&
            offset < t->shared + t->bytes) {
            *out = (stitch__pending){.in = t->in, .f = t->f, .block = t->by, .warp = t->warp, .lane = t->lane};
            return true;
        }
    }
    return false;
}

int stitch__exec_cpasync_commit(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__warp *w = x->warp;
    (void)in;
    for (size_t i = 0; i < w->copy_count; i++)
        for (uint32_t m = w->copies[i].mask & mask; m; m &= m - 1) {
            uint32_t lane = first(m);
            if (w->copies[i].group[lane] == UINT32_MAX)
                w->copies[i].group[lane] = w->commits[lane];
        }
    for (uint32_t m = mask; m; m &= m - 1)
        w->commits[first(m)]++;
    return STITCH__RUN_NEXT;
}

int stitch__exec_cpasync_wait(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__copies_apply(x, x->warp, mask, (uint32_t)in->imm, 0, in->sub);
    return STITCH__RUN_NEXT;
}
