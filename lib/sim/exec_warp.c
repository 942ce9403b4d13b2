/* SPDX-License-Identifier: MIT
 *
 * Warp-wide instructions, and atomics.
 */
#include "sim/exec.h"

static uint32_t first(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

static void put32(stitch__exec *x, uint32_t o, const uint32_t *v, uint32_t mask)
{
    uint32_t *d = (uint32_t *)(void *)(x->regs + o);
    for (int i = 0; i < 32; i++)
        d[i] = mask >> i & 1 ? v[i] : d[i];
}

static void fill32(stitch__exec *x, uint32_t o, uint32_t v, uint32_t mask)
{
    uint32_t *d = (uint32_t *)(void *)(x->regs + o);
    for (int i = 0; i < 32; i++)
        d[i] = mask >> i & 1 ? v : d[i];
}

static void put_pred(stitch__exec *x, uint32_t o, uint32_t v, uint32_t mask)
{
    uint32_t *d = (uint32_t *)(void *)(x->regs + o);
    *d = (*d & ~mask) | (v & mask);
}

int stitch__exec_shfl(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__groups g;
    int rc = stitch__sync_groups(x, in, mask, in->more[0], &g);
    if (rc == STITCH__RUN_PARK)
        return rc;
    const uint32_t *a = stitch__operand(x, in->o[2]), *b = stitch__operand(x, in->o[3]),
                   *c = stitch__operand(x, in->o[4]);
    uint32_t r[32], from[32], p = 0;
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t seg = c[i] >> 8 & 31, top = (i & seg) | (c[i] & 31 & ~seg), bottom = i & seg, j;
        bool ok;
        switch (in->sub) {
        case STITCH__SHFL_UP:
            j = i - (b[i] & 31);
            ok = (int32_t)j >= (int32_t)top;
            break;
        case STITCH__SHFL_DOWN:
            j = i + (b[i] & 31);
            ok = j <= top;
            break;
        case STITCH__SHFL_BFLY:
            j = i ^ (b[i] & 31);
            ok = j <= top;
            break;
        default:
            j = bottom | (b[i] & 31 & ~seg);
            ok = j <= top;
            break;
        }
        from[i] = (ok ? j : i) & 31;
        r[i] = a[from[i]];
        p |= (uint32_t)ok << i;
    }
    for (uint32_t k = 0; k < g.count; k++) {
        uint32_t group = g.lanes[k], lost = 0;
        for (uint32_t i = 0; i < 32; i++)
            lost |= (group & ~(group >> from[i] & 1 ? ~0u : 0)) & 1u << i;
        for (uint32_t m = lost; m; m &= m - 1)
            r[first(m)] = 0;
        if (lost && x->check_sync)
            stitch__report(x, STITCH__SIM_INACTIVE_LANE, in, first(lost), STITCH__SIM_GENERIC, 0, 0,
                           "lanes 0x%08x read a lane that does not take part; 0x%08x do", lost, group);
    }
    put32(x, in->o[0], r, g.all);
    if (in->o[1])
        put_pred(x, in->o[1], p, g.all);
    return stitch__sync_done(x, in, rc);
}

int stitch__exec_vote(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__groups g;
    int rc = stitch__sync_groups(x, in, mask, in->o[2], &g);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint32_t votes = *(const uint32_t *)stitch__operand(x, in->o[1]);
    for (uint32_t k = 0; k < g.count; k++) {
        uint32_t here = g.lanes[k], p = votes & here;
        bool yes = in->sub == STITCH__VOTE_ALL ? p == here : in->sub == STITCH__VOTE_ANY ? p != 0 : p == 0 || p == here;
        if (in->sub == STITCH__VOTE_BALLOT)
            fill32(x, in->o[0], p, here);
        else
            put_pred(x, in->o[0], yes ? ~0u : 0, here);
    }
    return stitch__sync_done(x, in, rc);
}

static void match_group(stitch__exec *x, const stitch__instr *in, const uint8_t *a, uint32_t here)
{
    uint32_t r[32] = {0}, all = 1;
    for (uint32_t i = 0; i < 32; i++)
        for (uint32_t k = 0; k < 32 && here >> i & 1; k++)
            if (here >> k & 1 && memcmp(a + (size_t)i * in->size, a + (size_t)k * in->size, in->size) == 0)
                r[i] |= 1u << k;
    for (uint32_t i = 0; i < 32; i++)
        all &= !(here >> i & 1) || r[i] == here;
    if (in->sub == STITCH__MATCH_ALL)
        for (uint32_t i = 0; i < 32; i++)
            r[i] = all ? here : 0;
    put32(x, in->o[0], r, here);
    if (in->o[1])
        put_pred(x, in->o[1], all ? ~0u : 0, here);
}

int stitch__exec_match(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__groups g;
    int rc = stitch__sync_groups(x, in, mask, in->o[3], &g);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint8_t a[256]; /* the result may take the operand's place */
    memcpy(a, stitch__operand(x, in->o[2]), (size_t)32 * in->size);
    for (uint32_t k = 0; k < g.count; k++)
        match_group(x, in, a, g.lanes[k]);
    return stitch__sync_done(x, in, rc);
}

int stitch__exec_activemask(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t r[32];
    for (int i = 0; i < 32; i++)
        r[i] = mask;
    put32(x, in->o[0], r, mask);
    return STITCH__RUN_NEXT;
}

int stitch__exec_elect(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__groups g;
    int rc = stitch__sync_groups(x, in, mask, in->o[2], &g);
    if (rc == STITCH__RUN_PARK)
        return rc;
    for (uint32_t k = 0; k < g.count; k++) {
        fill32(x, in->o[0], first(g.lanes[k]), g.lanes[k]);
        if (in->o[1])
            put_pred(x, in->o[1], g.lanes[k] & -g.lanes[k], g.lanes[k]);
    }
    return stitch__sync_done(x, in, rc);
}

static uint32_t combine(uint8_t op, uint8_t num, uint32_t a, uint32_t b, int64_t flags)
{
    if (num == STITCH__F32) {
        stitch__arith_op f = {.op = op == STITCH__ATOM_MIN ? STITCH__MIN : STITCH__MAX,
                              .type = STITCH__F32,
                              .flags = flags & 2 ? STITCH__NAN : 0};
        return (uint32_t)stitch__arith_eval(&f, a, b, 0);
    }
    bool s = num == STITCH__S32;
    switch (op) {
    case STITCH__ATOM_ADD: return a + b;
    case STITCH__ATOM_MIN: return s ? ((int32_t)a < (int32_t)b ? a : b) : (a < b ? a : b);
    case STITCH__ATOM_MAX: return s ? ((int32_t)a > (int32_t)b ? a : b) : (a > b ? a : b);
    case STITCH__ATOM_AND: return a & b;
    case STITCH__ATOM_OR: return a | b;
    default: return a ^ b;
    }
}

int stitch__exec_redux(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__groups g;
    int rc = stitch__sync_groups(x, in, mask, in->o[2], &g);
    if (rc == STITCH__RUN_PARK)
        return rc;
    const uint32_t *a = stitch__operand(x, in->o[1]);
    uint32_t clear = in->imm & 1 ? 0x7fffffffu : ~0u, result[32];
    for (uint32_t k = 0; k < g.count; k++) {
        uint32_t here = g.lanes[k], v = a[first(here)] & clear;
        for (uint32_t m = here & (here - 1); m; m &= m - 1)
            v = combine(in->sub, in->sub2, v, a[first(m)] & clear, in->imm);
        result[k] = v;
    }
    for (uint32_t k = 0; k < g.count; k++)
        fill32(x, in->o[0], result[k], g.lanes[k]);
    return stitch__sync_done(x, in, rc);
}

/* ---- atomics ----------------------------------------------------------------------------------------------------- */

static uint64_t atom_float(const stitch__instr *in, uint64_t old, uint64_t b, bool shared)
{
    stitch__arith_op f = {.type = in->sub2};
    f.op = in->sub == STITCH__ATOM_ADD ? STITCH__ADD : in->sub == STITCH__ATOM_MIN ? STITCH__MIN : STITCH__MAX;
    if (in->sub2 == STITCH__F32 && in->sub == STITCH__ATOM_ADD && !shared)
        f.flags = STITCH__FTZ; /* as PTX says of global memory */
    return stitch__arith_eval(&f, old, b, 0);
}

uint64_t stitch__atom_value(const stitch__instr *in, uint64_t old, uint64_t b, uint64_t c, bool shared)
{
    bool is_float = in->sub2 == STITCH__F32 || in->sub2 == STITCH__F64 || in->sub2 == STITCH__F16 ||
                    in->sub2 == STITCH__BF16 || in->sub2 == STITCH__F16X2 || in->sub2 == STITCH__BF16X2;
    bool s = in->sub2 == STITCH__S32 || in->sub2 == STITCH__S64;
    int64_t so = in->size == 8 ? (int64_t)old : (int32_t)old, sb = in->size == 8 ? (int64_t)b : (int32_t)b;
    if (is_float && in->sub <= STITCH__ATOM_MAX)
        return atom_float(in, old, b, shared);
    switch (in->sub) {
    case STITCH__ATOM_ADD: return old + b;
    case STITCH__ATOM_MIN: return s ? (so < sb ? old : b) : (old < b ? old : b);
    case STITCH__ATOM_MAX: return s ? (so > sb ? old : b) : (old > b ? old : b);
    case STITCH__ATOM_AND: return old & b;
    case STITCH__ATOM_OR: return old | b;
    case STITCH__ATOM_XOR: return old ^ b;
    case STITCH__ATOM_EXCH: return b;
    case STITCH__ATOM_CAS: return old == b ? c : old;
    case STITCH__ATOM_INC: return old >= b ? 0 : old + 1;
    default: return old == 0 || old > b ? b : old - 1;
    }
}

static uint64_t operand_lane(const stitch__exec *x, uint32_t o, uint32_t lane, uint32_t size)
{
    uint64_t v = 0;
    memcpy(&v, (const uint8_t *)stitch__operand(x, o) + (size_t)lane * (size == 8 ? 8 : 4), size);
    return v;
}

int stitch__exec_atom(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const void *base = stitch__operand(x, in->o[1]);
    uint64_t address[32];
    bool others = in->space != STITCH__SIM_SHARED;
    for (uint32_t i = 0; i < 32; i++)
        address[i] = in->flags & STITCH__IN_ADDR64 ? ((const uint64_t *)base)[i] + (uint64_t)in->imm
                                                   : (uint32_t)(((const uint32_t *)base)[i] + (uint32_t)in->imm);
    if (in->bytes_mask)
        stitch__time_release(x, others);
    stitch__time_acquire(x, others);
    if (x->counting) {
        stitch__mem_count *c = &x->fc->mem[stitch__pc(x, in)];
        for (uint32_t m = mask; m; m &= m - 1) {
            uint32_t lane = first(m);
            bool twice = false;
            for (uint32_t k = m & (m - 1); k && !twice; k &= k - 1)
                twice = address[first(k)] == address[lane];
            c->atomics++;
            c->collisions += twice;
        }
    }
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = first(m);
        stitch__where w;
        if (!stitch__locate(x, in, (stitch__sim_space)in->space, address[lane], (uint32_t)in->size * in->vec,
                            (uint32_t)in->size * in->vec, lane, true, &w) ||
            w.space == STITCH__SIM_LOCAL) {
            if (x->kill)
                return STITCH__RUN_KILL;
            continue;
        }
        if (x->check_init && !stitch__is_init(&w, (uint32_t)in->size * in->vec))
            stitch__report_bounds(x, in, lane, w.space, w.space == STITCH__SIM_GLOBAL ? address[lane] : w.offset,
                                  in->size, false, w.alloc, STITCH__SIM_UNINITIALISED);
        for (uint32_t k = 0; k < in->vec; k++) {
            uint64_t old = 0, b = operand_lane(x, k ? in->more[k - 1] : in->o[2], lane, in->size);
            uint64_t c = in->sub == STITCH__ATOM_CAS ? operand_lane(x, in->o[3], lane, in->size) : 0;
            memcpy(&old, w.host + k * in->size, in->size);
            uint64_t v = stitch__atom_value(in, old, b, c, w.space == STITCH__SIM_SHARED);
            memcpy(w.host + k * in->size, &v, in->size);
            if (k == 0 && in->o[0]) {
                if (in->size == 8)
                    ((uint64_t *)(void *)(x->regs + in->o[0]))[lane] = old;
                else
                    ((uint32_t *)(void *)(x->regs + in->o[0]))[lane] = (uint32_t)old;
            }
        }
        stitch__mark_init(&w, (uint32_t)in->size * in->vec);
        if (w.space == STITCH__SIM_SHARED && x->check_shared)
            stitch__race_shared(x, in, w.owner, lane, (uint32_t)w.offset, (uint32_t)in->size * in->vec, true, true);
        else if (w.space == STITCH__SIM_GLOBAL && x->check_global)
            stitch__race_global(x, in, w.alloc, lane, w.offset, (uint32_t)in->size * in->vec, true, true, NULL);
    }
    if (in->o[0])
        stitch__poll(x);
    return STITCH__RUN_NEXT;
}
