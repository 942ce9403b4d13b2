/* SPDX-License-Identifier: MIT
 *
 * The interpreter's main loop and the fast ways through memory: all 32 lanes active, one allocation, addresses that are
 * consecutive, equal, or anything. Compiled for any processor by exec_run.c and for AVX2 by exec_run_avx2.c.
 * Whatever is unusual about an access, an error above all, is left to exec_memory.c, which starts over.
 */
#include "sim/exec_shape.h"

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

/* The shape of the addresses, and offset of the first in the block's memory. NULL: not all lanes are inside, or not
 * all are aligned. */
static inline stitch__shape *shared_shape(stitch__exec *x, const stitch__instr *in, const void *base, uint32_t step,
                                          uint32_t pc, uint32_t *first, stitch__shape *scratch)
{
    const stitch__block *b = x->block;
    const uint32_t *p = base;
    uint32_t low[32];
    if (in->flags & STITCH__IN_ADDR64) {
        const uint64_t *wide = base;
        uint64_t high = 0;
        EACH_LANE
        {
            low[i] = (uint32_t)wide[i];
            high |= wide[i] >> 32;
        }
        if (high)
            return NULL;
        p = low;
    }
    stitch__shape *s = shape32(x, pc, p, scratch);
    *first = p[0] + (uint32_t)in->imm - (b->rank << 24);
    if (*first + s->low < STITCH__SIM_SHARED_START || *first + s->high + step > b->shared_end ||
        (*first | s->bits) & (step - 1))
        return NULL;
    return s;
}

static inline bool shared_written(const stitch__exec *x, const uint32_t *a, uint32_t step)
{
    uint64_t need = (UINT64_C(1) << step) - 1, have = need;
    for (int i = 0; i < 32; i++) /* an aligned element lies in one word of bits */
        have &= x->block->shared_init[a[i] >> 6] >> (a[i] & 63);
    return (have & need) == need;
}

static inline bool shared_read_each(stitch__exec *x, const uint32_t *a, uint32_t step, uint32_t pc)
{
    for (uint32_t i = 0; i < 32; i++) {
        if (i < 31 && a[i] == a[i + 1])
            continue;
        if (!shared_read_one(x, a[i], step, i, i && a[i] == a[i - 1] ? STITCH__KEY_MULTILANE : 0, pc))
            return false;
    }
    return true;
}

static inline bool shared_load_any(stitch__exec *x, const stitch__instr *in, const stitch__shape *s, uint32_t first,
                                   uint32_t step, uint32_t pc)
{
    uint32_t a[32];
    EACH_LANE a[i] = first + s->rel[i];
    if ((x->check_init && !shared_written(x, a, step)) || (x->check_shared && !shared_read_each(x, a, step, pc)))
        return false;
    gather(x->regs, in, x->block->shared, a);
    return true;
}

/* Half-warps: each at consecutive addresses, or each at one. */
static inline bool shared_load_halves(stitch__exec *x, const stitch__instr *in, const stitch__shape *s, uint32_t first,
                                      uint32_t step, uint32_t pc)
{
    stitch__block *b = x->block;
    bool rows = s->stride != 0;
    uint32_t second = first + s->rel[16], run = rows ? 16 * step : step, each = step >> x->shared_shift;
    if (x->check_init && (!bits_set(b->shared_init, first, run) || !bits_set(b->shared_init, second, run)))
        return false;
    if (x->check_shared) {
        if (!rows) {
            if (!shared_read_one(x, first, step, 15, STITCH__KEY_MULTILANE, pc) ||
                !shared_read_one(x, second, step, 31, STITCH__KEY_MULTILANE, pc))
                return false;
        } else if (first == second) {
            if (!shared_read_run(x, first, first + run, each, 16, STITCH__KEY_MULTILANE, pc))
                return false;
        } else if (!shared_read_run(x, first, first + run, each, 0, 0, pc) ||
                   !shared_read_run(x, second, second + run, each, 16, 0, pc)) {
            return false;
        }
    }
    spread(x->regs, in, b->shared + first, s->stride, 0, 16);
    spread(x->regs, in, b->shared + second, s->stride, 16, 16);
    return true;
}

static inline bool fast_shared_load(stitch__exec *x, const stitch__instr *in, uint32_t pc)
{
    stitch__block *b = x->block;
    stitch__shape scratch;
    uint32_t first, step = (uint32_t)in->size * in->vec;
    if (in->flags & STITCH__IN_VOLATILE || in->bytes_mask || b->slow)
        return false;
    stitch__shape *s = shared_shape(x, in, stitch__operand(x, in->o[4]), step, pc, &first, &scratch);
    if (!s)
        return false;
    if (shape_linear(s, step)) {
        if ((x->check_init && !bits_set(b->shared_init, first, 32 * step)) ||
            (x->check_shared && !shared_read_run(x, first, first + 32 * step, step >> x->shared_shift, 0, 0, pc)))
            return false;
        spread(x->regs, in, b->shared + first, step, 0, 32);
    } else if (shape_equal(s)) {
        if ((x->check_init && !bits_set(b->shared_init, first, step)) ||
            (x->check_shared && !shared_read_one(x, first, step, 0, STITCH__KEY_MULTILANE, pc)))
            return false;
        spread(x->regs, in, b->shared + first, 0, 0, 32);
    } else if (shape_rows(s, step) || shape_two(s)) {
        if (!shared_load_halves(x, in, s, first, step, pc))
            return false;
    } else if (!shared_load_any(x, in, s, first, step, pc)) {
        return false;
    }
    if (x->counting)
        count_shared_shape(&x->fc->mem[pc], s, first, step);
    return true;
}

static inline bool fast_shared_store(stitch__exec *x, const stitch__instr *in, uint32_t pc)
{
    stitch__block *b = x->block;
    stitch__shape scratch;
    uint32_t first, step = (uint32_t)in->size * in->vec, each = step >> x->shared_shift;
    if (in->flags & STITCH__IN_VOLATILE || b->slow)
        return false;
    stitch__shape *s = shared_shape(x, in, stitch__operand(x, in->o[0]), step, pc, &first, &scratch);
    if (!s)
        return false;
    if (shape_linear(s, step)) {
        if (x->check_shared && !shared_write_run(x, first, first + 32 * step, each, 0, pc))
            return false;
        if (x->check_init)
            set_bits(b->shared_init, first, 32 * step);
        collect(x, in, b->shared + first, 0, 32);
    } else if (shape_rows(s, step)) {
        uint32_t second = first + s->rel[16];
        if (x->check_shared && (!shared_write_run(x, first, first + 16 * step, each, 0, pc) ||
                                !shared_write_run(x, second, second + 16 * step, each, 16, pc)))
            return false;
        if (x->check_init) {
            set_bits(b->shared_init, first, 16 * step);
            set_bits(b->shared_init, second, 16 * step);
        }
        collect(x, in, b->shared + first, 0, 16);
        collect(x, in, b->shared + second, 16, 16);
    } else {
        uint32_t a[32];
        EACH_LANE a[i] = first + s->rel[i];
        for (uint32_t i = 0; x->check_shared && i < 32; i++)
            if (!shared_write_one(x, a[i], step, i, pc))
                return false;
        for (int i = 0; x->check_init && i < 32; i++)
            set_bits(b->shared_init, a[i], step);
        scatter(x, in, b->shared, a);
    }
    if (x->counting)
        count_shared_shape(&x->fc->mem[pc], s, first, step);
    return true;
}

/* ---- global memory ----------------------------------------------------------------------------------------------- */

static inline stitch__sim_alloc *cached_alloc(stitch__exec *x, uint32_t pc, uint64_t address)
{
    stitch__sim_alloc *a = x->fc->alloc[pc];
    if (a && address - a->base < a->size)
        return a;
    a = stitch__sim_memory_find(x->launch->memory, address);
    if (a && !a->freed)
        x->fc->alloc[pc] = a;
    return a;
}

/* The allocation that holds all lanes, the shape of the addresses, and the address of the first. NULL: not so simple.
 */
static inline stitch__sim_alloc *global_shape(stitch__exec *x, const stitch__instr *in, const uint64_t *base,
                                              uint32_t step, uint32_t pc, uint64_t *first, stitch__shape **shape,
                                              stitch__shape *scratch)
{
    *first = base[0] + (uint64_t)in->imm;
    if (*first < STITCH__SIM_GLOBAL_BASE)
        return NULL;
    stitch__sim_alloc *al = cached_alloc(x, pc, *first);
    if (!al || al->freed || al->size < step || al->size > UINT32_MAX)
        return NULL;
    stitch__shape *s = shape64(x, pc, base, scratch);
    int64_t at = (int64_t)(*first - al->base), room = (int64_t)al->size;
    if (s->low < -room || s->high > room || at + s->low < 0 || at + s->high > room - (int64_t)step ||
        ((uint32_t)*first | s->bits) & (step - 1))
        return NULL;
    *shape = s;
    return al;
}

static inline bool global_written(const _Atomic(uint64_t) *init, const uint32_t *offset, uint32_t step)
{
    uint64_t need = (UINT64_C(1) << step) - 1, have = need;
    for (int i = 0; i < 32; i++)
        have &= atomic_load_explicit(&init[offset[i] >> 6], memory_order_relaxed) >> (offset[i] & 63);
    return (have & need) == need;
}

static inline bool fast_global_load(stitch__exec *x, const stitch__instr *in, uint32_t pc)
{
    uint64_t first;
    stitch__shape *s, scratch;
    uint32_t offset[32], step = (uint32_t)in->size * in->vec, each = step >> x->global_shift;
    if (!(in->flags & STITCH__IN_ADDR64) || in->flags & STITCH__IN_VOLATILE || in->bytes_mask)
        return false;
    stitch__sim_alloc *al = global_shape(x, in, stitch__operand(x, in->o[4]), step, pc, &first, &s, &scratch);
    if (!al)
        return false;
    uint32_t at = (uint32_t)(first - al->base);
    const _Atomic(uint64_t) *init = x->check_init ? al->init : NULL;
    stitch__race_log *log = NULL;
    if (x->check_global && !al->readonly) {
        log = stitch__race_of(x, al);
        if (!log)
            return false;
    }
    if (shape_linear(s, step)) {
        if (init && !bits_set_shared(init, at, 32 * step))
            return false;
        if (log && !global_read_run(x, log, at >> x->global_shift, 32, 0, each, pc)) {
            EACH_LANE offset[i] = at + s->rel[i];
            if (!global_read_each(x, log, offset, each, pc))
                return false;
        }
        if (x->counting)
            count_run(&x->fc->mem[pc], first, step, false);
        spread(x->regs, in, al->host + at, step, 0, 32);
        return true;
    }
    EACH_LANE offset[i] = at + s->rel[i];
    if (log && shape_wide(s))
        global_prefetch(x, log, al->host, offset, log->brief_r);
    if (init && !global_written(init, offset, step))
        return false;
    if (log &&
        !(shape_rows(s, step) && global_read_run(x, log, offset[0] >> x->global_shift, 16, 0, each, pc) &&
          global_read_run(x, log, offset[16] >> x->global_shift, 16, 16, each, pc)) &&
        !global_read_each(x, log, offset, each, pc))
        return false;
    if (x->counting)
        count_global_shape(&x->fc->mem[pc], s, first, step);
    if (shape_equal(s))
        spread(x->regs, in, al->host + at, 0, 0, 32);
    else
        gather(x->regs, in, al->host, offset);
    return true;
}

static inline bool fast_global_store(stitch__exec *x, const stitch__instr *in, uint32_t pc)
{
    uint64_t first;
    stitch__shape *s, scratch;
    uint32_t offset[32], step = (uint32_t)in->size * in->vec, each = step >> x->global_shift;
    if (!(in->flags & STITCH__IN_ADDR64) || in->flags & STITCH__IN_VOLATILE)
        return false;
    stitch__sim_alloc *al = global_shape(x, in, stitch__operand(x, in->o[0]), step, pc, &first, &s, &scratch);
    if (!al || al->readonly || shape_equal(s))
        return false;
    uint32_t at = (uint32_t)(first - al->base);
    stitch__race_log *log = NULL;
    if (x->check_global) {
        log = stitch__race_of(x, al);
        if (!log)
            return false;
    }
    if (shape_linear(s, step)) {
        if (log && !global_write_run(x, log, at >> x->global_shift, 32, 0, each, pc)) {
            EACH_LANE offset[i] = at + s->rel[i];
            if (!global_write_each(x, log, offset, each, pc))
                return false;
        }
        if (al->init)
            set_bits_shared(al->init, at, 32 * step);
        if (x->counting)
            count_run(&x->fc->mem[pc], first, step, false);
        collect(x, in, al->host + at, 0, 32);
        return true;
    }
    EACH_LANE offset[i] = at + s->rel[i];
    if (log && shape_wide(s))
        global_prefetch(x, log, al->host, offset, log->brief_w);
    if (log &&
        !(shape_rows(s, step) && global_write_run(x, log, offset[0] >> x->global_shift, 16, 0, each, pc) &&
          global_write_run(x, log, offset[16] >> x->global_shift, 16, 16, each, pc)) &&
        !global_write_each(x, log, offset, each, pc))
        return false;
    if (al->init)
        for (int i = 0; i < 32; i++)
            set_bits_shared(al->init, offset[i], step);
    if (x->counting)
        count_global_shape(&x->fc->mem[pc], s, first, step);
    scatter(x, in, al->host, offset);
    return true;
}

static bool fast_load(stitch__exec *x, const stitch__instr *in, uint32_t pc)
{
    if (in->space == STITCH__SIM_SHARED)
        return fast_shared_load(x, in, pc);
    return (in->space == STITCH__SIM_GLOBAL || in->space == STITCH__SIM_GENERIC || in->space == STITCH__SIM_CONST) &&
           fast_global_load(x, in, pc);
}

static bool fast_store(stitch__exec *x, const stitch__instr *in, uint32_t pc)
{
    if (in->space == STITCH__SIM_SHARED)
        return fast_shared_store(x, in, pc);
    return (in->space == STITCH__SIM_GLOBAL || in->space == STITCH__SIM_GENERIC) && fast_global_store(x, in, pc);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static inline uint32_t combine(uint8_t how, uint32_t a, uint32_t c)
{
    switch (how) {
    case STITCH__BOOL_AND: return a & c;
    case STITCH__BOOL_OR: return a | c;
    case STITCH__BOOL_XOR: return a ^ c;
    case STITCH__BOOL_NOT: return ~a;
    default: return a;
    }
}

static inline void put_pred(uint8_t *regs, uint32_t o, uint32_t value, uint32_t mask)
{
    uint32_t *d = (uint32_t *)(void *)(regs + o);
    *d = (*d & ~mask) | (value & mask);
}

/* Elementwise instructions; `part`: only some lanes of the result may change. */
static inline void run_lanes(stitch__exec *x, const stitch__instr *in, uint32_t m, bool part)
{
    uint64_t temp[32] __attribute__((aligned(64)));
    void *real = x->regs + in->o[0], *d = part ? temp : real;
    bool wide = in->o[0] < x->frame->f->base32;
    switch (in->op) {
    case STITCH__OP_LANES:
        in->u.lanes(d, stitch__operand(x, in->o[1]), stitch__operand(x, in->o[2]), stitch__operand(x, in->o[3]));
        break;
    case STITCH__OP_MOV32: memcpy(d, stitch__operand(x, in->o[1]), 128); break;
    case STITCH__OP_MOV64: memcpy(d, stitch__operand(x, in->o[1]), 256); break;
    case STITCH__OP_SELP32: {
        uint32_t p = *(const uint32_t *)(const void *)(x->regs + in->o[3]), *out = d;
        const uint32_t *a = stitch__operand(x, in->o[1]), *b = stitch__operand(x, in->o[2]);
        EACH_LANE out[i] = p >> i & 1 ? a[i] : b[i];
        break;
    }
    default: {
        uint32_t p = *(const uint32_t *)(const void *)(x->regs + in->o[3]);
        uint64_t *out = d;
        const uint64_t *a = stitch__operand(x, in->o[1]), *b = stitch__operand(x, in->o[2]);
        EACH_LANE out[i] = p >> i & 1 ? a[i] : b[i];
        break;
    }
    }
    if (!part)
        return;
    if (wide)
        blend64(real, temp, m);
    else
        blend32(real, (const uint32_t *)(const void *)temp, m);
}

static inline void run_setp(stitch__exec *x, const stitch__instr *in, uint32_t m)
{
    uint32_t hi = 0, r = in->u.cmp(stitch__operand(x, in->o[2]), stitch__operand(x, in->o[3]), &hi);
    uint32_t c = *(const uint32_t *)(const void *)(x->regs + in->o[4]);
    put_pred(x->regs, in->o[1], combine(in->sub, in->sub2 ? hi : ~r, c), m);
    put_pred(x->regs, in->o[0], combine(in->sub, r, c), m);
}

void RUN_WARP(stitch__exec *x)
{
    stitch__frame *f;
    const stitch__instr *code;
    uint32_t pc, mask;
    bool full;
#define RELOAD()                                                                                                       \
    do {                                                                                                               \
        f = x->frame;                                                                                                  \
        code = f->f->code;                                                                                             \
        pc = f->pc;                                                                                                    \
        mask = f->mask;                                                                                                \
        full = f->count == 0;                                                                                          \
    } while (0)
    RELOAD();
    for (;;) {
        const stitch__instr *in = &code[pc];
        uint32_t m = mask;
        if (in->guard) {
            uint32_t p = *(const uint32_t *)(const void *)(x->regs + in->guard);
            m &= in->flags & STITCH__IN_GUARD_NOT ? ~p : p;
            if (!m) {
                pc++;
                continue;
            }
        }
        switch (in->op) {
        case STITCH__OP_LANES:
        case STITCH__OP_MOV32:
        case STITCH__OP_MOV64:
        case STITCH__OP_SELP32:
        case STITCH__OP_SELP64:
            run_lanes(x, in, m, !full || m != mask);
            pc++;
            continue;
        case STITCH__OP_SETP:
            run_setp(x, in, m);
            pc++;
            continue;
        case STITCH__OP_PRED: {
            uint32_t a = *(const uint32_t *)(const void *)(x->regs + in->o[1]);
            uint32_t b = *(const uint32_t *)(const void *)(x->regs + in->o[2]);
            put_pred(x->regs, in->o[0], combine(in->sub, a, b), m);
            pc++;
            continue;
        }
        case STITCH__OP_LOAD:
            if (m == ALL && fast_load(x, in, pc)) {
                pc++;
                continue;
            }
            break;
        case STITCH__OP_STORE:
            if (m == ALL && fast_store(x, in, pc)) {
                pc++;
                continue;
            }
            break;
        case STITCH__OP_BLOCK: {
            if (pc >= f->next_pc || f->polls >= 64) {
                uint32_t at = pc;
                f->pc = pc;
                f->mask = mask;
                stitch__next_split(x);
                RELOAD();
                if (pc != at)
                    continue;
            }
            uint32_t n = (uint32_t)__builtin_popcount(mask);
            x->executed += (uint64_t)in->imm;
            x->lanes += (uint64_t)in->imm * n;
            if (x->counting) {
                x->fc->entered[in->slot]++;
                x->fc->lanes[in->slot] += n;
            }
            if (--x->quantum < 0) {
                f->pc = pc;
                f->mask = mask;
                return;
            }
            pc++;
            continue;
        }
        case STITCH__OP_BRA: {
            uint32_t target = (uint32_t)in->imm;
            if (m == mask) {
                pc = target;
                continue;
            }
            if (x->counting)
                x->fc->divergent[pc]++;
            uint32_t rest = mask & ~m, behind = pc + 1;
            if (target < behind) {
                stitch__split_add(f, behind, rest, false);
                pc = target;
                mask = m;
            } else {
                stitch__split_add(f, target, m, false);
                pc = behind;
                mask = rest;
            }
            full = false;
            continue;
        }
        case STITCH__OP_RET:
        case STITCH__OP_EXIT:
            f->pc = pc + 1;
            f->mask = mask;
            if (in->op == STITCH__OP_EXIT)
                stitch__lanes_exit(x, m);
            else
                stitch__lanes_return(x, m);
            if (x->kill || x->warp->state == STITCH__WARP_DONE || !x->frame->mask)
                return;
            RELOAD();
            continue;
        default: break;
        }
        f->pc = pc;
        f->mask = mask;
        switch (in->u.fn(x, in, m)) {
        case STITCH__RUN_NEXT: pc++; continue;
        case STITCH__RUN_PARK:
            stitch__split_add(f, pc, m, true);
            f->mask &= ~m;
            f->pc = pc + 1;
            if (!f->mask && !stitch__next_split(x))
                return; /* every lane waits: the scheduler looks into it */
            RELOAD();
            continue;
        case STITCH__RUN_FRAME: RELOAD(); continue;
        case STITCH__RUN_RETRY:
            if (m != mask) { /* lanes that the guard lets pass go on by themselves */
                stitch__split_add(f, pc + 1, mask & ~m, false);
                f->mask = m;
            }
            return;
        case STITCH__RUN_WAIT: f->pc = pc + 1; return;
        default: x->kill = true; return;
        }
    }
#undef RELOAD
}
