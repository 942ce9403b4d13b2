/* SPDX-License-Identifier: MIT
 *
 * Register slots by linear scan. PTX names a register per value; a frame of one slot each would not stay in the cache.
 *
 * Lanes that wait elsewhere keep their values because every write is masked, so liveness along the control flow of one
 * thread is enough.
 */
#include "sim/flow.h"

typedef struct interval {
    uint32_t start, end, slot;
    uint8_t bank;
} interval;

typedef struct scan {
    flow *w;
    uint32_t *dense; /* virtual register -> interval + 1 */
    interval *iv;
    uint32_t count;
    uint32_t *home;   /* block (by layout) of the first occurrence; UINT32_MAX - 1: several */
    uint32_t *global; /* number among the registers that live across blocks, + 1 */
    uint32_t global_count;
} scan;

enum { SEVERAL = 0xfffffffe };

static uint32_t *operand(stitch__instr *in, uint32_t i)
{
    return i < in->nops ? &in->o[i] : &in->more[i - in->nops];
}

static uint8_t bank_of(const stitch__sim_function *f, uint32_t v)
{
    size_t lo = 0, hi = f->range_count;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (f->ranges[mid].first <= v)
            lo = mid;
        else
            hi = mid;
    }
    while (lo + 1 < f->range_count && f->ranges[lo].count == 0)
        lo++;
    return f->ranges[lo].bank;
}

/* All register operands of an instruction: calls `visit` with whether it is written. The guard comes first. */
#define EACH_REGISTER(in, number, is_def, body)                                                                        \
    do {                                                                                                               \
        uint32_t each_total = (uint32_t)(in)->nops + (in)->nmore;                                                      \
        for (int64_t each_i = (int64_t)each_total; each_i >= 0; each_i--) {                                            \
            uint32_t each_o = each_i == (int64_t)each_total ? (in)->guard : *operand(in, (uint32_t)each_i);            \
            bool is_def = each_i < (in)->ndef;                                                                         \
            if ((each_o & STITCH__OPD_KIND) != STITCH__OPD_REG)                                                        \
                continue;                                                                                              \
            uint32_t number = each_o & STITCH__OPD_INDEX;                                                              \
            body                                                                                                       \
        }                                                                                                              \
    } while (0)

static bool elementwise(const stitch__instr *in)
{
    return in->op == STITCH__OP_LANES || in->op == STITCH__OP_MOV32 || in->op == STITCH__OP_MOV64 ||
           in->op == STITCH__OP_SETP || in->op == STITCH__OP_SELP32 || in->op == STITCH__OP_SELP64 ||
           in->op == STITCH__OP_PRED;
}

static int number_registers(scan *s)
{
    stitch__sim_function *f = s->w->f;
    s->dense = stitch__calloc(s->w->ctx, f->vreg_count + 1u, sizeof(uint32_t));
    if (!s->dense)
        return STITCH_E_NOMEM;
    for (uint32_t i = 0; i < f->code_count; i++)
        EACH_REGISTER(&f->code[i], v, def, {
            (void)def;
            if (!s->dense[v])
                s->dense[v] = ++s->count;
        });
    s->iv = stitch__calloc(s->w->ctx, s->count + 1u, sizeof(*s->iv));
    s->home = stitch__alloc(s->w->ctx, (s->count + 1u) * sizeof(uint32_t));
    s->global = stitch__calloc(s->w->ctx, s->count + 1u, sizeof(uint32_t));
    if (!s->iv || !s->home || !s->global)
        return STITCH_E_NOMEM;
    for (uint32_t i = 0; i < s->count; i++) {
        s->iv[i].start = UINT32_MAX;
        s->home[i] = UINT32_MAX;
    }
    for (uint32_t v = 0; v < f->vreg_count; v++)
        if (s->dense[v])
            s->iv[s->dense[v] - 1].bank = bank_of(f, v);
    return STITCH_OK;
}

static void extend(interval *iv, uint32_t at)
{
    if (at < iv->start)
        iv->start = at;
    if (at > iv->end)
        iv->end = at;
}

/* Intervals from occurrences alone; finds the registers that live across blocks. */
static void local_intervals(scan *s)
{
    stitch__sim_function *f = s->w->f;
    uint32_t block = UINT32_MAX;
    for (uint32_t i = 0; i < f->code_count; i++) {
        stitch__instr *in = &f->code[i];
        if (in->op == STITCH__OP_BLOCK)
            block = in->slot;
        bool late = elementwise(in);
        EACH_REGISTER(in, v, def, {
            uint32_t d = s->dense[v] - 1;
            if (s->home[d] == UINT32_MAX) {
                s->home[d] = def && !in->guard ? block : SEVERAL; /* read before written: comes from elsewhere */
            } else if (s->home[d] != block) {
                s->home[d] = SEVERAL;
            }
            extend(&s->iv[d], 2 * i + (def && late));
            if (def)
                extend(&s->iv[d], 2 * i + 1);
        });
    }
    for (uint32_t d = 0; d < s->count; d++)
        if (s->home[d] == SEVERAL)
            s->global[d] = ++s->global_count;
}

static int global_intervals(scan *s)
{
    flow *w = s->w;
    stitch__sim_function *f = w->f;
    size_t words = (s->global_count + 63u) / 64, blocks = w->order_count;
    if (!s->global_count)
        return STITCH_OK;
    if (words * blocks * 8 > (UINT64_C(1) << 29)) { /* too large a table: such registers live everywhere */
        for (uint32_t d = 0; d < s->count; d++)
            if (s->global[d]) {
                extend(&s->iv[d], 0);
                extend(&s->iv[d], 2 * f->code_count);
            }
        return STITCH_OK;
    }
    uint64_t *gen = stitch__calloc(w->ctx, words * blocks, 8), *kill = stitch__calloc(w->ctx, words * blocks, 8);
    uint64_t *in_set = stitch__calloc(w->ctx, words * blocks, 8);
    uint64_t *out_set = stitch__calloc(w->ctx, words, 8);
    int rc = gen && kill && in_set && out_set ? STITCH_OK : STITCH_E_NOMEM;
    uint32_t *pos = rc ? NULL : stitch__calloc(w->ctx, w->count, sizeof(uint32_t));
    if (!pos)
        rc = STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        uint32_t block = 0;
        for (uint32_t i = 0; i < blocks; i++)
            pos[w->order[i]] = i;
        for (uint32_t i = 0; i < f->code_count; i++) {
            stitch__instr *in = &f->code[i];
            if (in->op == STITCH__OP_BLOCK)
                block = in->slot;
            uint64_t *g = gen + block * words, *k = kill + block * words;
            for (int pass = 0; pass < 2; pass++) /* uses before definitions */
                EACH_REGISTER(in, v, def, {
                    uint32_t n = s->global[s->dense[v] - 1];
                    if (!n || def != (pass == 1))
                        continue;
                    n--;
                    if (!def || in->guard) {
                        if (!(k[n / 64] >> (n % 64) & 1))
                            g[n / 64] |= UINT64_C(1) << (n % 64);
                    }
                    if (def && !in->guard)
                        k[n / 64] |= UINT64_C(1) << (n % 64);
                });
        }
        for (bool changed = true; changed;) {
            changed = false;
            for (size_t i = blocks; i-- > 0;) {
                const flow_block *b = &w->blocks[w->order[i]];
                memset(out_set, 0, words * 8);
                for (uint32_t e = 0; e < b->succ_count; e++) {
                    const uint64_t *si = in_set + (size_t)pos[w->edges[b->succ + e]] * words;
                    for (size_t k = 0; k < words; k++)
                        out_set[k] |= si[k];
                }
                uint64_t *bi = in_set + i * words;
                for (size_t k = 0; k < words; k++) {
                    uint64_t live = gen[i * words + k] | (out_set[k] & ~kill[i * words + k]);
                    if (live != bi[k]) {
                        bi[k] = live;
                        changed = true;
                    }
                }
            }
        }
        uint32_t *which = stitch__alloc(w->ctx, s->global_count * sizeof(uint32_t));
        if (!which)
            rc = STITCH_E_NOMEM;
        for (uint32_t d = 0; which && d < s->count; d++)
            if (s->global[d])
                which[s->global[d] - 1] = d;
        for (size_t i = 0; which && i < blocks; i++) {
            const flow_block *b = &w->blocks[w->order[i]];
            for (size_t k = 0; k < words; k++) {
                for (uint64_t m = in_set[i * words + k]; m; m &= m - 1)
                    extend(&s->iv[which[k * 64 + (size_t)__builtin_ctzll(m)]], 2 * b->at);
                uint64_t out = 0;
                for (uint32_t e = 0; e < b->succ_count; e++)
                    out |= in_set[(size_t)pos[w->edges[b->succ + e]] * words + k];
                for (; out; out &= out - 1)
                    extend(&s->iv[which[k * 64 + (size_t)__builtin_ctzll(out)]], 2 * b->at_end);
            }
        }
        stitch_free(which);
    }
    stitch_free(gen);
    stitch_free(kill);
    stitch_free(in_set);
    stitch_free(out_set);
    stitch_free(pos);
    return rc;
}

static int compare(const void *a, const void *b)
{
    const interval *x = *(const interval *const *)a, *y = *(const interval *const *)b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x < y ? -1 : x > y;
}

typedef struct heap {
    uint64_t *items; /* end << 32 | slot */
    uint32_t count;
} heap;

static void heap_push(heap *h, uint64_t v)
{
    uint32_t i = h->count++;
    while (i && h->items[(i - 1) / 2] > v) {
        h->items[i] = h->items[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->items[i] = v;
}

static uint64_t heap_pop(heap *h)
{
    uint64_t top = h->items[0], v = h->items[--h->count];
    uint32_t i = 0;
    for (;;) {
        uint32_t c = 2 * i + 1;
        if (c >= h->count)
            break;
        if (c + 1 < h->count && h->items[c + 1] < h->items[c])
            c++;
        if (h->items[c] >= v)
            break;
        h->items[i] = h->items[c];
        i = c;
    }
    h->items[i] = v;
    return top;
}

/* slots[bank]: how many are needed. */
static int assign(scan *s, uint32_t slots[3])
{
    const stitch_context *ctx = s->w->ctx;
    interval **sorted = stitch__calloc(ctx, s->count + 1u, sizeof(*sorted));
    uint64_t *items = stitch__calloc(ctx, s->count + 1u, 3 * sizeof(uint64_t));
    uint32_t *spare = stitch__calloc(ctx, s->count + 1u, 3 * sizeof(uint32_t));
    uint32_t spare_count[3] = {0};
    int rc = sorted && items && spare ? STITCH_OK : STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        heap active[3];
        for (int b = 0; b < 3; b++)
            active[b] = (heap){items + (size_t)b * (s->count + 1u), 0};
        for (uint32_t i = 0; i < s->count; i++)
            sorted[i] = &s->iv[i];
        qsort(sorted, s->count, sizeof(*sorted), compare);
        for (uint32_t i = 0; i < s->count; i++) {
            interval *iv = sorted[i];
            uint8_t b = iv->bank;
            uint32_t *free_slots = spare + (size_t)b * (s->count + 1u);
            while (active[b].count && (uint32_t)(active[b].items[0] >> 32) < iv->start)
                free_slots[spare_count[b]++] = (uint32_t)heap_pop(&active[b]);
            iv->slot = spare_count[b] ? free_slots[--spare_count[b]] : slots[b]++;
            heap_push(&active[b], (uint64_t)iv->end << 32 | iv->slot);
        }
    }
    stitch_free(sorted);
    stitch_free(items);
    stitch_free(spare);
    return rc;
}

int stitch__sim_allocate(flow *w)
{
    stitch__sim_function *f = w->f;
    scan s = {.w = w};
    uint32_t slots[3] = {0};
    int rc = number_registers(&s);
    if (rc == STITCH_OK) {
        local_intervals(&s);
        rc = global_intervals(&s);
    }
    if (rc == STITCH_OK)
        rc = assign(&s, slots);
    if (rc == STITCH_OK) {
        /* Offset 0: a lane array and a predicate that nothing reads, for results that nobody wants. */
        uint32_t base64 = 256, base32 = base64 + 256 * slots[1], sregs = base32 + 128 * slots[0], at = sregs;
        for (uint32_t i = 0; i < f->code_count; i++) {
            stitch__instr *in = &f->code[i];
            uint32_t total = (uint32_t)in->nops + in->nmore;
            for (uint32_t k = 0; k < total; k++) {
                uint32_t o = *operand(in, k);
                if ((o & STITCH__OPD_KIND) == STITCH__OPD_SREG && !f->sreg_at[o & STITCH__OPD_INDEX]) {
                    f->sreg_at[o & STITCH__OPD_INDEX] = at + 1;
                    at += 128;
                }
            }
        }
        uint32_t preds = at + 64; /* true, false, then the registers */
        f->pred_true = at;
        f->base32 = base32;
        f->info.registers = slots[0] + 2 * slots[1];
        f->frame_bytes = (preds + 4 * slots[2] + 63) & ~63u;
        uint32_t const_at = 0;
        for (size_t i = 0; i < f->const_count; i++)
            if (f->consts[i].wide) {
                f->consts[i].at = const_at;
                const_at += 256;
            }
        for (size_t i = 0; i < f->const_count; i++)
            if (!f->consts[i].wide) {
                f->consts[i].at = const_at;
                const_at += 128;
            }
        f->const_bytes = const_at;
        for (uint32_t i = 0; i < f->code_count; i++) {
            stitch__instr *in = &f->code[i];
            uint32_t total = (uint32_t)in->nops + in->nmore;
            for (uint32_t k = 0; k <= total; k++) {
                uint32_t *o = k == total ? &in->guard : operand(in, k);
                uint32_t n = *o & STITCH__OPD_INDEX;
                switch (*o & STITCH__OPD_KIND) {
                case STITCH__OPD_REG: {
                    const interval *iv = &s.iv[s.dense[n] - 1];
                    *o = iv->bank == STITCH__BANK_64   ? base64 + 256 * iv->slot
                         : iv->bank == STITCH__BANK_32 ? base32 + 128 * iv->slot
                                                       : preds + 4 * iv->slot;
                    break;
                }
                case STITCH__OPD_CONST: *o = f->consts[n].at | STITCH__OFFSET_CONST; break;
                case STITCH__OPD_SREG: *o = f->sreg_at[n] - 1; break;
                default:
                    *o = 0;
                    if (k < total && k >= in->ndef &&
                        (in->op == STITCH__OP_PRED || (in->op == STITCH__OP_SETP && k == 4)))
                        *o = f->pred_true + 4; /* false */
                    break;
                }
            }
        }
    }
    stitch_free(s.dense);
    stitch_free(s.iv);
    stitch_free(s.home);
    stitch_free(s.global);
    return rc;
}
