/* SPDX-License-Identifier: MIT
 *
 * The interpreter's main loop and the fast ways through memory: all 32 lanes active, one allocation, addresses that are
 * consecutive, equal, or anything. Compiled for any processor by exec_run.c and for AVX2 by exec_run_avx2.c.
 * Whatever is unusual about an access, an error above all, is left to exec_memory.c, which starts over.
 */
#include "sim/exec_fast.h"

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

static inline bool shared_offsets(stitch__exec *x, const stitch__instr *in, const void *base, uint32_t *a,
                                  uint32_t rank)
{
    uint32_t imm = (uint32_t)in->imm - (rank << 24);
    if (in->flags & STITCH__IN_ADDR64) {
        const uint64_t *p = base;
        uint64_t high = 0;
        EACH_LANE
        {
            a[i] = (uint32_t)p[i] + imm;
            high |= p[i] >> 32;
        }
        return high == 0;
    }
    const uint32_t *p = base;
    EACH_LANE a[i] = p[i] + imm;
    (void)x;
    return true;
}

static inline bool in_range(const uint32_t *a, uint32_t low, uint32_t high, uint32_t step)
{
    uint32_t bad = 0;
    EACH_LANE bad |= (uint32_t)(a[i] - low > high - low) | (a[i] & (step - 1));
    return bad == 0;
}

/* Half-warps with consecutive addresses each: rows of 16 in a tile. */
static inline bool halves(const uint32_t *a, uint32_t step)
{
    uint32_t bad = 0;
    EACH_LANE bad |= a[i] - (a[i & 16] + (uint32_t)(i & 15) * step);
    return bad == 0;
}

static inline bool two_values(const uint32_t *a)
{
    uint32_t bad = 0;
    EACH_LANE bad |= a[i] - a[i & 16];
    return bad == 0;
}

static inline bool shared_read_each(stitch__exec *x, const uint32_t *a, uint32_t step, bool rows, uint32_t pc)
{
    if (rows)
        return shared_read_run(x, a[0], a[0] + 16 * step, step >> x->shared_shift, 0, pc) &&
               shared_read_run(x, a[16], a[16] + 16 * step, step >> x->shared_shift, 16, pc);
    for (uint32_t i = 0; i < 32; i++) {
        if (i < 31 && a[i] == a[i + 1])
            continue;
        if (!shared_read_one(x, a[i], step, i, i && a[i] == a[i - 1] ? STITCH__KEY_MULTILANE : 0, pc))
            return false;
    }
    return true;
}

static inline bool shared_written(const stitch__exec *x, const uint32_t *a, uint32_t step)
{
    uint64_t need = (UINT64_C(1) << step) - 1, have = need;
    for (int i = 0; i < 32; i++) /* an aligned element lies in one word of bits */
        have &= x->block->shared_init[a[i] >> 6] >> (a[i] & 63);
    return (have & need) == need;
}

static bool fast_shared_load(stitch__exec *x, const stitch__instr *in)
{
    stitch__block *b = x->block;
    uint32_t a[32], step = (uint32_t)in->size * in->vec, pc = stitch__pc(x, in);
    if (in->flags & STITCH__IN_VOLATILE || in->bytes_mask || b->far || b->shared_end < STITCH__SIM_SHARED_START + step ||
        !shared_offsets(x, in, stitch__operand(x, in->o[4]), a, b->rank) ||
        !in_range(a, STITCH__SIM_SHARED_START, b->shared_end - step, step))
        return false;
    int pattern = pattern32(a, step);
    if (pattern == PATTERN_LINEAR) {
        if ((x->check_init && !bits_set(b->shared_init, a[0], 32 * step)) ||
            (x->check_shared && !shared_read_run(x, a[0], a[0] + 32 * step, step >> x->shared_shift, 0, pc)))
            return false;
        if (x->counting)
            count_run(&x->fc->mem[pc], 0, step, true);
        spread(x->regs, in, b->shared + a[0], step);
        return true;
    }
    if (pattern == PATTERN_EQUAL) {
        if ((x->check_init && !bits_set(b->shared_init, a[0], step)) ||
            (x->check_shared && !shared_read_one(x, a[0], step, 0, STITCH__KEY_MULTILANE, pc)))
            return false;
        if (x->counting)
            count_shared(&x->fc->mem[pc], a, step);
        spread(x->regs, in, b->shared + a[0], 0);
        return true;
    }
    bool rows = halves(a, step), two = !rows && two_values(a);
    uint32_t run = rows ? 16 * step : step;
    if (x->check_init && !(rows || two ? bits_set(b->shared_init, a[0], run) && bits_set(b->shared_init, a[16], run)
                                       : shared_written(x, a, step)))
        return false;
    if (x->check_shared && !shared_read_each(x, a, step, rows, pc))
        return false;
    if (x->counting)
        count_shared(&x->fc->mem[pc], a, step);
    if (rows && step == 4 && !(in->flags & STITCH__IN_WIDE)) {
        memcpy(x->regs + in->o[0], b->shared + a[0], 64);
        memcpy(x->regs + in->o[0] + 64, b->shared + a[16], 64);
    } else {
        gather(x->regs, in, b->shared, a);
    }
    return true;
}

static bool fast_shared_store(stitch__exec *x, const stitch__instr *in)
{
    stitch__block *b = x->block;
    uint32_t a[32], step = (uint32_t)in->size * in->vec, pc = stitch__pc(x, in), each = step >> x->shared_shift;
    if (in->flags & STITCH__IN_VOLATILE || b->far || b->shared_end < STITCH__SIM_SHARED_START + step ||
        !shared_offsets(x, in, stitch__operand(x, in->o[0]), a, b->rank) ||
        !in_range(a, STITCH__SIM_SHARED_START, b->shared_end - step, step))
        return false;
    if (pattern32(a, step) == PATTERN_LINEAR) {
        if (x->check_shared && !shared_write_run(x, a[0], a[0] + 32 * step, each, 0, pc))
            return false;
        if (x->check_init)
            set_bits(b->shared_init, a[0], 32 * step);
        if (x->counting)
            count_run(&x->fc->mem[pc], 0, step, true);
        collect(x, in, b->shared + a[0]);
        return true;
    }
    if (x->check_shared) {
        for (uint32_t i = 0; i < 32; i++)
            if (!shared_write_run(x, a[i], a[i] + step, each, i, pc))
                return false;
    }
    if (x->check_init)
        for (int i = 0; i < 32; i++)
            set_bits(b->shared_init, a[i], step);
    if (x->counting)
        count_shared(&x->fc->mem[pc], a, step);
    scatter(x, in, b->shared, a);
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

/* Absolute addresses; the allocation that holds all lanes, offsets in it. NULL: not so simple. */
static inline stitch__sim_alloc *global_offsets(stitch__exec *x, const stitch__instr *in, const uint64_t *base,
                                                uint64_t *a, uint32_t *offset, uint32_t step, uint32_t pc, int *pattern)
{
    uint64_t imm = (uint64_t)in->imm, bad = 0;
    EACH_LANE a[i] = base[i] + imm;
    if (a[0] < STITCH__SIM_GLOBAL_BASE)
        return NULL;
    stitch__sim_alloc *al = cached_alloc(x, pc, a[0]);
    if (!al || al->freed || al->size < step || al->size > UINT32_MAX)
        return NULL;
    uint64_t start = al->base, last = al->size - step;
    EACH_LANE
    {
        uint64_t off = a[i] - start;
        bad |= (uint64_t)(off > last) | (a[i] & (step - 1));
        offset[i] = (uint32_t)off;
    }
    if (bad)
        return NULL;
    *pattern = pattern64(a, step);
    return al;
}

static bool fast_global_load(stitch__exec *x, const stitch__instr *in)
{
    uint64_t a[32];
    uint32_t offset[32], step = (uint32_t)in->size * in->vec, pc = stitch__pc(x, in);
    int pattern;
    if (!(in->flags & STITCH__IN_ADDR64) || in->flags & STITCH__IN_VOLATILE || in->bytes_mask)
        return false;
    stitch__sim_alloc *al = global_offsets(x, in, stitch__operand(x, in->o[4]), a, offset, step, pc, &pattern);
    if (!al)
        return false;
    const _Atomic(uint64_t) *init = x->check_init ? al->init : NULL;
    stitch__race_log *log = NULL;
    uint32_t each = step >> x->global_shift;
    if (x->check_global && !al->readonly) {
        log = stitch__race_of(x, al);
        if (!log)
            return false;
    }
    if (pattern == PATTERN_LINEAR) {
        if ((init && !bits_set_shared(init, offset[0], 32 * step)) ||
            (log && !global_read_run(x, log, offset[0] >> x->global_shift, 32, 0, each, pc) &&
             !global_read_each(x, log, offset, each, pc)))
            return false;
        if (x->counting)
            count_run(&x->fc->mem[pc], a[0], step, false);
        spread(x->regs, in, al->host + offset[0], step);
        return true;
    }
    if (init) {
        uint64_t need = (UINT64_C(1) << step) - 1, have = need;
        for (int i = 0; i < 32; i++)
            have &= atomic_load_explicit(&init[offset[i] >> 6], memory_order_relaxed) >> (offset[i] & 63);
        if ((have & need) != need)
            return false;
    }
    if (log &&
        !(halves(offset, step) && global_read_run(x, log, offset[0] >> x->global_shift, 16, 0, each, pc) &&
          global_read_run(x, log, offset[16] >> x->global_shift, 16, 16, each, pc)) &&
        !global_read_each(x, log, offset, each, pc))
        return false;
    if (x->counting)
        count_global(&x->fc->mem[pc], a, step);
    if (pattern == PATTERN_EQUAL)
        spread(x->regs, in, al->host + offset[0], 0);
    else
        gather(x->regs, in, al->host, offset);
    return true;
}

static bool fast_global_store(stitch__exec *x, const stitch__instr *in)
{
    uint64_t a[32];
    uint32_t offset[32], step = (uint32_t)in->size * in->vec, pc = stitch__pc(x, in);
    int pattern;
    if (!(in->flags & STITCH__IN_ADDR64) || in->flags & STITCH__IN_VOLATILE)
        return false;
    stitch__sim_alloc *al = global_offsets(x, in, stitch__operand(x, in->o[0]), a, offset, step, pc, &pattern);
    if (!al || al->readonly || pattern == PATTERN_EQUAL)
        return false;
    stitch__race_log *log = NULL;
    uint32_t each = step >> x->global_shift;
    if (x->check_global) {
        log = stitch__race_of(x, al);
        if (!log)
            return false;
    }
    if (pattern == PATTERN_LINEAR) {
        if (log && !global_write_run(x, log, offset[0] >> x->global_shift, 32, 0, each, pc) &&
            !global_write_each(x, log, offset, each, pc))
            return false;
        if (al->init)
            set_bits_shared(al->init, offset[0], 32 * step);
        if (x->counting)
            count_run(&x->fc->mem[pc], a[0], step, false);
        collect(x, in, al->host + offset[0]);
        return true;
    }
    if (log &&
        !(halves(offset, step) && global_write_run(x, log, offset[0] >> x->global_shift, 16, 0, each, pc) &&
          global_write_run(x, log, offset[16] >> x->global_shift, 16, 16, each, pc)) &&
        !global_write_each(x, log, offset, each, pc))
        return false;
    if (al->init)
        for (int i = 0; i < 32; i++)
            set_bits_shared(al->init, offset[i], step);
    if (x->counting)
        count_global(&x->fc->mem[pc], a, step);
    scatter(x, in, al->host, offset);
    return true;
}

static inline bool fast_load(stitch__exec *x, const stitch__instr *in)
{
    if (in->space == STITCH__SIM_SHARED)
        return fast_shared_load(x, in);
    return (in->space == STITCH__SIM_GLOBAL || in->space == STITCH__SIM_GENERIC || in->space == STITCH__SIM_CONST) &&
           fast_global_load(x, in);
}

static inline bool fast_store(stitch__exec *x, const stitch__instr *in)
{
    if (in->space == STITCH__SIM_SHARED)
        return fast_shared_store(x, in);
    return (in->space == STITCH__SIM_GLOBAL || in->space == STITCH__SIM_GENERIC) && fast_global_store(x, in);
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
            if (m == ALL && fast_load(x, in)) {
                pc++;
                continue;
            }
            break;
        case STITCH__OP_STORE:
            if (m == ALL && fast_store(x, in)) {
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
