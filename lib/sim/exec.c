/* SPDX-License-Identifier: MIT
 *
 * Splits of a warp's lanes, frames of function calls, and how lanes end.
 */
#include "sim/exec.h"

uint32_t stitch__pc(const stitch__exec *x, const stitch__instr *in)
{
    return (uint32_t)(in - x->frame->f->code);
}

void stitch__warp_frame(stitch__exec *x)
{
    x->frame = x->warp->top;
    if (!x->frame)
        return;
    x->regs = x->frame->regs;
    x->consts = x->frame->f->const_data + x->block->rank * x->frame->f->const_stride;
    x->fc = &x->counts[x->frame->f->index];
}

static void note_next(stitch__frame *f)
{
    f->next_pc = UINT32_MAX;
    for (uint32_t i = 0; i < f->count; i++)
        if (!f->split[i].parked && f->split[i].pc < f->next_pc)
            f->next_pc = f->split[i].pc;
}

void stitch__split_add(stitch__frame *f, uint32_t pc, uint32_t mask, bool parked)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->split[i].pc == pc && f->split[i].parked == parked) {
            f->split[i].mask |= mask;
            return;
        }
    f->split[f->count++] = (stitch__split){pc, mask, parked};
    note_next(f);
}

/* Makes the right split of the top frame the running one: the earliest in the code, or after many polls of memory any
 * other for a while. A running split with lanes is put back first. False: none can run (all are parked or gone). */
bool stitch__next_split(stitch__exec *x)
{
    stitch__frame *f = x->frame;
    uint32_t pc = f->pc;
    if (f->mask && f->polls < 64) {
        if (pc > f->next_pc && f->hold) { /* runs out of turn */
            f->hold--;
            return true;
        }
    }
    bool rotate = f->polls >= 64;
    f->polls = 0;
    if (f->mask) {
        if (rotate && f->next_pc == UINT32_MAX)
            return true;
        stitch__split_add(f, pc, f->mask, false);
        f->mask = 0;
    }
    uint32_t best = UINT32_MAX, after = UINT32_MAX;
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->split[i].parked)
            continue;
        if (best == UINT32_MAX || f->split[i].pc < f->split[best].pc)
            best = i;
        if (f->split[i].pc > pc && (after == UINT32_MAX || f->split[i].pc < f->split[after].pc))
            after = i;
    }
    f->hold = 0;
    if (rotate) {
        if (after != UINT32_MAX)
            best = after;
        f->hold = 2000;
    }
    if (best == UINT32_MAX)
        return false;
    f->pc = f->split[best].pc;
    f->mask = f->split[best].mask;
    f->split[best] = f->split[--f->count];
    note_next(f);
    return true;
}

void stitch__poll(stitch__exec *x)
{
    x->warp->polled = true;
    if (x->frame->count)
        x->frame->polls++;
    x->quantum -= 64;
}

/* A warp instruction that names `members`: waits until all of them that still live are here. Afterwards *active has the
 * lanes that take part; the running split has grown by lanes that waited. */
int stitch__sync_lanes(stitch__exec *x, const stitch__instr *in, uint32_t mask, uint32_t members, uint32_t *active)
{
    stitch__frame *f = x->frame;
    uint32_t here = mask, pc = stitch__pc(x, in);
    *active = mask;
    if (!(members & x->warp->alive & ~mask))
        return STITCH__RUN_NEXT;
    for (uint32_t i = 0; i < f->count;) {
        if (f->split[i].pc == pc) {
            here |= f->split[i].mask;
            f->mask |= f->split[i].mask;
            f->split[i] = f->split[--f->count];
        } else {
            i++;
        }
    }
    note_next(f);
    *active = here;
    uint32_t missing = members & x->warp->alive & ~here;
    if (missing && x->warp->force && x->check_sync) {
        stitch__report(x, in->u.fn == stitch__exec_bar ? STITCH__SIM_BARRIER_DIVERGENCE : STITCH__SIM_INACTIVE_LANE, in,
                       (uint32_t)__builtin_ctz(here), STITCH__SIM_GENERIC, 0, 0,
                       "lanes 0x%08x are here, lanes 0x%08x never come", here, missing);
    }
    if (!missing || x->warp->force) {
        x->warp->force = false;
        x->warp->stuck = 0;
        return STITCH__RUN_FRAME;
    }
    f->mask = (f->mask & ~here) | mask; /* those that waited go on waiting */
    if (here & ~mask)
        stitch__split_add(f, pc, here & ~mask, true);
    *active = mask;
    return STITCH__RUN_PARK;
}

/* Lanes that wait at `in`, or come to it next, and, for __syncwarp(), those that wait at another one. */
static uint32_t lanes_at(const stitch__exec *x, const stitch__instr *in, uint32_t o, uint32_t members[32])
{
    const stitch__frame *f = x->frame;
    uint32_t pc = stitch__pc(x, in), at = 0, pass = ~0u;
    if (in->guard) {
        pass = *(const uint32_t *)(const void *)(x->regs + in->guard);
        pass = in->flags & STITCH__IN_GUARD_NOT ? ~pass : pass;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        const stitch__split *s = &f->split[i];
        const stitch__instr *there = &f->f->code[s->pc];
        bool elsewhere = s->parked && in->u.fn == stitch__exec_barwarp && there->op == STITCH__OP_FN &&
                         there->u.fn == stitch__exec_barwarp;
        if (s->pc != pc && !elsewhere)
            continue;
        uint32_t lanes = s->parked ? s->mask : s->mask & pass;
        const uint32_t *m = stitch__operand(x, s->pc == pc ? o : there->o[0]);
        for (uint32_t k = lanes; k; k &= k - 1)
            members[__builtin_ctz(k)] = m[__builtin_ctz(k)];
        at |= lanes;
    }
    return at;
}

/* The lanes `done` of splits leave them: those at `pc` join the running split, those elsewhere go on there. */
static void take_lanes(stitch__frame *f, uint32_t pc, uint32_t done)
{
    uint32_t count = f->count, moved[32], to[32], n = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t lanes = f->split[i].mask & done;
        if (lanes && f->split[i].pc != pc) {
            moved[n] = lanes;
            to[n++] = f->split[i].pc + 1;
        } else if (lanes) {
            f->mask |= lanes;
        }
        f->split[i].mask &= ~done;
    }
    for (uint32_t i = f->count; i-- > 0;)
        if (!f->split[i].mask)
            f->split[i] = f->split[--f->count];
    for (uint32_t i = 0; i < n; i++)
        stitch__split_add(f, to[i], moved[i], false);
    note_next(f);
}

/* One group of lanes that name `members`: whether it can go on. */
static bool group_complete(stitch__exec *x, const stitch__instr *in, uint32_t group, uint32_t members, uint32_t others)
{
    uint32_t missing = members & x->warp->alive & ~group, strange = group & ~members;
    if (missing && !x->warp->force)
        return false;
    if (missing && x->check_sync)
        stitch__report(x, STITCH__SIM_INACTIVE_LANE, in, (uint32_t)__builtin_ctz(group), STITCH__SIM_GENERIC, 0, 0,
                       missing & others ? "lanes 0x%08x name the lanes 0x%08x, but of these 0x%08x name others"
                                        : "lanes 0x%08x are here and name 0x%08x, of which lanes 0x%08x never come",
                       group, members, missing & others ? missing & others : missing);
    if (strange && x->check_sync)
        stitch__report(x, STITCH__SIM_INACTIVE_LANE, in, (uint32_t)__builtin_ctz(strange), STITCH__SIM_GENERIC, 0, 0,
                       "lanes 0x%08x execute it, but their mask is 0x%08x", strange, members);
    return true;
}

/* A warp instruction whose operand `o` says, for each lane, which lanes take part with it. Lanes with one mask are a
 * group, which goes on once all of its lanes that live are here; the other lanes wait. */
int stitch__sync_groups(stitch__exec *x, const stitch__instr *in, uint32_t mask, uint32_t o, stitch__groups *g)
{
    const uint32_t *operand = stitch__operand(x, o);
    uint32_t members[32], first = operand[__builtin_ctz(mask)], differ = 0;
    for (uint32_t i = 0; i < 32; i++)
        differ |= (operand[i] ^ first) & (0 - (mask >> i & 1));
    g->all = g->lanes[0] = mask;
    g->count = 1;
    if (!differ && (first & x->warp->alive) == mask)
        return STITCH__RUN_NEXT;
    memcpy(members, operand, sizeof(members));
    uint32_t pool = mask | lanes_at(x, in, o, members), done = 0;
    g->count = 0;
    for (uint32_t left = pool, group; left; left &= ~group) {
        uint32_t m = members[__builtin_ctz(left)];
        group = 0;
        for (uint32_t k = left; k; k &= k - 1)
            group |= members[__builtin_ctz(k)] == m ? k & -k : 0;
        if (!group_complete(x, in, group, m, pool & ~group))
            continue;
        done |= group;
        g->lanes[g->count++] = group;
    }
    if (!done)
        return STITCH__RUN_PARK;
    stitch__frame *f = x->frame;
    uint32_t pc = stitch__pc(x, in), wait = mask & ~done, at_pc = mask & done;
    for (uint32_t i = 0; i < f->count; i++)
        at_pc |= f->split[i].pc == pc ? f->split[i].mask & done : 0;
    f->mask &= ~wait;
    take_lanes(f, pc, done);
    if (wait)
        stitch__split_add(f, pc, wait, true);
    g->all = at_pc;
    x->warp->force = false;
    x->warp->stuck = 0;
    return STITCH__RUN_FRAME;
}

int stitch__sync_done(stitch__exec *x, const stitch__instr *in, int rc)
{
    x->warp->stuck = 0;
    if (rc == STITCH__RUN_FRAME)
        x->frame->pc = stitch__pc(x, in) + 1;
    return rc;
}

void stitch__unstick(stitch__exec *x)
{
    stitch__frame *f = x->frame;
    for (uint32_t i = 0; i < f->count; i++)
        f->split[i].parked = false;
    note_next(f);
    if (x->warp->stuck++ > 0)
        x->warp->force = true;
    f->pc = 0;
    f->polls = 0;
    stitch__next_split(x);
}

void stitch__frame_free(stitch__frame *f)
{
    if (f) {
        stitch_free(f->regs);
        stitch_free(f->scratch);
        stitch_free(f->products);
        stitch_free(f);
    }
}

static void fill32(void *d, uint32_t v)
{
    uint32_t *p = d;
    for (int i = 0; i < 32; i++)
        p[i] = v;
}

static uint32_t sreg_value(const stitch__exec *x, stitch__sreg s, uint32_t lane)
{
    const stitch__block *b = x->block;
    const stitch__sim_launch *l = x->launch;
    uint32_t t = x->warp->index * 32 + lane, bx = l->block[0], by = l->block[1];
    uint32_t cluster[3];
    for (int i = 0; i < 3; i++)
        cluster[i] = l->cluster[i] ? l->cluster[i] : 1;
    switch (s) {
    case STITCH__SREG_TID_X: return t % bx;
    case STITCH__SREG_TID_Y: return t / bx % by;
    case STITCH__SREG_TID_Z: return t / bx / by;
    case STITCH__SREG_NTID_X: return l->block[0];
    case STITCH__SREG_NTID_Y: return l->block[1];
    case STITCH__SREG_NTID_Z: return l->block[2];
    case STITCH__SREG_CTAID_X: return b->id[0];
    case STITCH__SREG_CTAID_Y: return b->id[1];
    case STITCH__SREG_CTAID_Z: return b->id[2];
    case STITCH__SREG_NCTAID_X: return l->grid[0];
    case STITCH__SREG_NCTAID_Y: return l->grid[1];
    case STITCH__SREG_NCTAID_Z: return l->grid[2];
    case STITCH__SREG_LANEID: return lane;
    case STITCH__SREG_WARPID: return x->warp->index;
    case STITCH__SREG_NWARPID: return b->warp_count;
    case STITCH__SREG_SMID: return (uint32_t)(b->linear % (l->sm_count ? l->sm_count : 132));
    case STITCH__SREG_NSMID: return l->sm_count ? l->sm_count : 132;
    case STITCH__SREG_LANEMASK_EQ: return 1u << lane;
    case STITCH__SREG_LANEMASK_LE: return (2u << lane) - 1;
    case STITCH__SREG_LANEMASK_LT: return (1u << lane) - 1;
    case STITCH__SREG_LANEMASK_GE: return ~0u << lane;
    case STITCH__SREG_LANEMASK_GT: return lane == 31 ? 0 : ~0u << (lane + 1);
    case STITCH__SREG_CLUSTERID_X: return b->id[0] / cluster[0];
    case STITCH__SREG_CLUSTERID_Y: return b->id[1] / cluster[1];
    case STITCH__SREG_CLUSTERID_Z: return b->id[2] / cluster[2];
    case STITCH__SREG_NCLUSTERID_X: return l->grid[0] / cluster[0];
    case STITCH__SREG_NCLUSTERID_Y: return l->grid[1] / cluster[1];
    case STITCH__SREG_NCLUSTERID_Z: return l->grid[2] / cluster[2];
    case STITCH__SREG_CLUSTER_CTAID_X: return b->id[0] % cluster[0];
    case STITCH__SREG_CLUSTER_CTAID_Y: return b->id[1] % cluster[1];
    case STITCH__SREG_CLUSTER_CTAID_Z: return b->id[2] % cluster[2];
    case STITCH__SREG_CLUSTER_NCTAID_X: return cluster[0];
    case STITCH__SREG_CLUSTER_NCTAID_Y: return cluster[1];
    case STITCH__SREG_CLUSTER_NCTAID_Z: return cluster[2];
    case STITCH__SREG_CLUSTER_CTARANK: return b->rank;
    case STITCH__SREG_CLUSTER_NCTARANK: return cluster[0] * cluster[1] * cluster[2];
    case STITCH__SREG_DYNAMIC_SMEM: return l->dynamic_shared;
    case STITCH__SREG_TOTAL_SMEM: return b->shared_end - STITCH__SIM_SHARED_START;
    case STITCH__SREG_ENVREG1: return (uint32_t)(stitch__grid_workspace(x) >> 32);
    case STITCH__SREG_ENVREG2: return (uint32_t)stitch__grid_workspace(x);
    case STITCH__SREG_RESERVED_SMEM_1: return b->rank << 24 | STITCH__SIM_SHARED_RESERVED;
    case STITCH__SREG_CLUSTER_EXPLICIT: return cluster[0] * cluster[1] * cluster[2] > 1;
    default: return 0;
    }
}

/* `again`: the frame served the same warp of another block before, so what depends on the lane is there. */
static void frame_start(stitch__exec *x, stitch__frame *f, bool again)
{
    uint32_t yes = ~0u;
    if (!again) {
        memset(f->regs, 0, f->f->frame_bytes);
        memcpy(f->regs + f->f->pred_true, &yes, 4);
    }
    for (int s = 0; s < STITCH__SREG_COUNT; s++) {
        if (!f->f->sreg_at[s])
            continue;
        uint32_t *d = (uint32_t *)(void *)(f->regs + f->f->sreg_at[s] - 1);
        bool uniform = !(s <= STITCH__SREG_TID_Z || (s >= STITCH__SREG_LANEID && s <= STITCH__SREG_LANEMASK_GT));
        if (!uniform && again)
            continue;
        if (uniform)
            fill32(d, sreg_value(x, (stitch__sreg)s, 0));
        else
            for (uint32_t i = 0; i < 32; i++)
                d[i] = sreg_value(x, (stitch__sreg)s, i);
    }
}

bool stitch__frame_push(stitch__exec *x, const stitch__sim_function *f, uint32_t mask)
{
    const stitch_context *ctx = f->module->ctx;
    stitch__warp *w = x->warp;
    if (!w->top && w->spare && w->spare->f == f) {
        stitch__frame *t = w->spare;
        w->spare = NULL;
        t->mask = mask;
        t->pc = t->count = t->polls = t->hold = 0;
        t->next_pc = UINT32_MAX;
        w->top = t;
        if (w->local_size)
            memset(w->local_init, 0, (size_t)w->local_size * 4);
        frame_start(x, t, true);
        stitch__warp_frame(x);
        return true;
    }
    stitch__frame *t = stitch__calloc(ctx, 1, sizeof(*t));
    if (!t)
        return false;
    t->regs = stitch__alloc(ctx, f->frame_bytes + 64u);
    t->scratch = stitch__calloc(ctx, 1, stitch__row(f->param_area + 16, 0) + 128);
    t->local_base = w->top ? w->top->local_base + ((w->top->f->local_bytes + 15) & ~15u) : 0;
    uint32_t need = t->local_base + f->local_bytes;
    if (t->regs && t->scratch && need > w->local_size) {
        uint8_t *local = stitch__realloc(ctx, w->local, stitch__row(need + 64, 0) + 256);
        if (local)
            w->local = local;
        uint32_t *init = local ? stitch__realloc(ctx, w->local_init, ((size_t)need + 64) * 4) : NULL;
        if (init) {
            memset(init + w->local_size, 0, ((size_t)need + 64 - w->local_size) * 4);
            w->local_init = init;
            w->local_size = need;
        }
    }
    if (!t->regs || !t->scratch || need > w->local_size) {
        stitch__frame_free(t);
        return false;
    }
    for (uint32_t i = t->local_base; i < need; i++)
        w->local_init[i] &= ~mask;
    t->f = f;
    t->up = w->top;
    t->mask = mask;
    t->next_pc = UINT32_MAX;
    w->top = t;
    frame_start(x, t, false);
    stitch__warp_frame(x);
    return true;
}

/* The frame's lanes are all gone: the one below goes on. */
static void frame_pop(stitch__exec *x)
{
    stitch__warp *w = x->warp;
    stitch__frame *f = w->top;
    w->top = f->up;
    if (!f->up && !w->spare)
        w->spare = f;
    else
        stitch__frame_free(f);
    stitch__warp_frame(x);
    if (!w->top)
        return;
    w->top->mask &= w->alive;
    for (uint32_t i = 0; i < w->top->count;) {
        w->top->split[i].mask &= w->alive;
        if (!w->top->split[i].mask)
            w->top->split[i] = w->top->split[--w->top->count];
        else
            i++;
    }
    note_next(w->top);
}

static void lanes_gone(stitch__exec *x)
{
    stitch__warp *w = x->warp;
    while (w->top && !w->top->mask) {
        if (stitch__next_split(x))
            return;
        if (w->top->count)
            return; /* the others wait for lanes: the scheduler looks into it */
        frame_pop(x);
    }
    if (!w->top || !w->alive) {
        while (w->top)
            frame_pop(x);
        w->state = STITCH__WARP_DONE; /* its copies go on */
    }
}

void stitch__lanes_exit(stitch__exec *x, uint32_t mask)
{
    x->warp->alive &= ~mask;
    if (!x->warp->alive && x->block->bulk_count)
        stitch__flights_exit(x);
    x->frame->mask &= ~mask;
    lanes_gone(x);
    stitch__barrier_exit(x);
}

static void copy_results(stitch__frame *callee, stitch__frame *caller, const stitch__call *c, uint32_t mask)
{
    for (uint32_t i = 0; i < c->returns && i < callee->f->return_count; i++) {
        const stitch__sim_param *from = &callee->f->params[i];
        uint32_t n = from->size < c->piece[i].size ? from->size : c->piece[i].size;
        for (uint32_t k = 0; k < n; k++)
            for (uint32_t m = mask; m; m &= m - 1) {
                uint32_t lane = (uint32_t)__builtin_ctz(m);
                caller->scratch[stitch__row(c->piece[i].offset + k, lane)] =
                    callee->scratch[stitch__row(from->offset + k, lane)];
            }
    }
}

void stitch__lanes_return(stitch__exec *x, uint32_t mask)
{
    stitch__frame *f = x->frame;
    if (!f->up) {
        stitch__lanes_exit(x, mask);
        return;
    }
    copy_results(f, f->up, f->call, mask);
    f->mask &= ~mask;
    lanes_gone(x);
}

int stitch__exec_call(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__call *c = in->data;
    stitch__frame *up = x->frame;
    if (c->builtin)
        return stitch__builtin_call(x, in, mask);
    uint32_t callee = c->callee, depth = 0, pc = stitch__pc(x, in);
    const stitch__sim_module *m = up->f->module;
    if (callee == UINT32_MAX) { /* lanes with another target call later */
        const uint64_t *p = stitch__operand(x, in->o[0]);
        uint64_t target = p[__builtin_ctz(mask)];
        uint32_t same = 0;
        for (uint32_t k = mask; k; k &= k - 1)
            if (p[__builtin_ctz(k)] == target)
                same |= k & -k;
        uint64_t index = (target - STITCH__SIM_FUNC_WINDOW) / 16;
        if (target < STITCH__SIM_FUNC_WINDOW || index >= m->function_count || (target & 15)) {
            stitch__report(x, STITCH__SIM_ILLEGAL, in, (uint32_t)__builtin_ctz(mask), STITCH__SIM_GENERIC, target, 0,
                           "call through a pointer that is no function");
            return STITCH__RUN_KILL;
        }
        callee = stitch__sim_resolve(m, (uint32_t)index);
        if (same != mask) {
            stitch__split_add(up, pc, mask & ~same, false);
            up->mask &= ~(mask & ~same);
            mask = same;
        }
    }
    const stitch__sim_function *f = m->functions[callee];
    for (const stitch__frame *t = up; t; t = t->up)
        depth++;
    if (!f->has_body || f->info.refusal || f->entry) {
        stitch__report(x, STITCH__SIM_ILLEGAL, in, (uint32_t)__builtin_ctz(mask), STITCH__SIM_GENERIC, 0, 0,
                       "call of %s, which cannot run", f->name);
        return STITCH__RUN_KILL;
    }
    if (depth >= STITCH__MAX_DEPTH || x->warp->top->local_base + f->local_bytes > (512u << 10)) {
        stitch__report(x, STITCH__SIM_STACK, in, (uint32_t)__builtin_ctz(mask), STITCH__SIM_LOCAL, 0, 0,
                       "%u calls deep in %s", depth, f->name);
        return STITCH__RUN_KILL;
    }
    if (up->mask != mask) { /* lanes that the guard holds back go on behind the call */
        stitch__split_add(up, pc + 1, up->mask & ~mask, false);
        up->mask = mask;
    }
    up->pc = pc + 1;
    if (!stitch__frame_push(x, f, mask)) {
        x->rc = STITCH_E_NOMEM;
        return STITCH__RUN_KILL;
    }
    stitch__frame *t = x->frame;
    t->call = c;
    for (uint32_t i = c->returns; i < c->count && f->return_count + (i - c->returns) < f->info.param_count; i++) {
        const stitch__sim_param *to = &f->params[f->return_count + (i - c->returns)];
        uint32_t n = to->size < c->piece[i].size ? to->size : c->piece[i].size;
        for (uint32_t k = 0; k < (n + 3) / 4; k++)
            memcpy(t->scratch + stitch__row(to->offset + 4 * k, 0),
                   up->scratch + stitch__row(c->piece[i].offset + 4 * k, 0), 128);
    }
    return STITCH__RUN_FRAME;
}

int stitch__exec_brx(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__frame *f = x->frame;
    const uint32_t *index = stitch__operand(x, in->o[0]), *targets = in->data;
    uint32_t pc = stitch__pc(x, in);
    if (f->mask != mask)
        stitch__split_add(f, pc + 1, f->mask & ~mask, false);
    f->mask = 0;
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        if (index[lane] >= (uint64_t)in->imm) {
            stitch__report(x, STITCH__SIM_ILLEGAL, in, lane, STITCH__SIM_GENERIC, index[lane], 0,
                           "indexed branch outside of its table");
            return STITCH__RUN_KILL;
        }
        stitch__split_add(f, targets[index[lane]], 1u << lane, false);
    }
    if (x->counting && f->count > 1)
        x->fc->divergent[pc]++;
    f->polls = 0;
    stitch__next_split(x);
    return STITCH__RUN_FRAME;
}
