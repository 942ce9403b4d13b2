/* SPDX-License-Identifier: MIT
 *
 * Barriers of a block, of a warp and of a cluster, and fences.
 */
#include "sim/exec.h"

static uint32_t live_warps(const stitch__block *b)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < b->warp_count; i++)
        if (b->warps[i].state != STITCH__WARP_DONE)
            m |= 1u << i;
    return m;
}

static bool complete(const stitch__block *b, const stitch__barrier *k)
{
    if (!k->arrived_warps)
        return false;
    if (!k->expected)
        return !(live_warps(b) & ~k->arrived_warps);
    return (uint32_t)__builtin_popcount(k->arrived_warps) * 32 >= k->expected;
}

/* Everything that the warps in `came` did is ordered before what those in `wait` do next. */
static void order(stitch__block *b, uint32_t came, uint32_t wait)
{
    uint32_t now = stitch__tick(b);
    if (!(live_warps(b) & ~wait)) {
        b->full = now;
        b->partial = false;
        if (b->race.wrote)
            memset(b->race.wrote, 0, b->race.words * 8);
        for (uint32_t i = 0; i < b->warp_count; i++)
            b->warps[i].clock = now;
        return;
    }
    uint32_t join[STITCH__MAX_WARPS] = {0};
    b->partial = true;
    for (uint32_t i = 0; i < b->warp_count; i++) {
        if (!(came >> i & 1))
            continue;
        for (uint32_t k = 0; k < b->warp_count; k++)
            if (b->seen[i][k] > join[k])
                join[k] = b->seen[i][k];
        if (wait >> i & 1) /* one of them may pass on what all did, by a fence or an mbarrier */
            b->released[i] = now;
        uint32_t until = b->released[i];
        if (until > join[i])
            join[i] = until;
    }
    for (uint32_t i = 0; i < b->warp_count; i++)
        if (wait >> i & 1) {
            memcpy(b->seen[i], join, sizeof(join));
            b->warps[i].clock = now;
        }
}

/* Result of bar.red for one waiting warp. */
static void deliver(stitch__warp *w, const stitch__instr *in, const stitch__barrier *k)
{
    if (in->sub < STITCH__BAR_POPC)
        return;
    uint8_t *regs = w->top->regs;
    uint32_t mask = w->top->mask;
    if (in->sub == STITCH__BAR_POPC) {
        uint32_t *d = (uint32_t *)(void *)(regs + in->o[0]);
        for (uint32_t i = 0; i < 32; i++)
            if (mask >> i & 1)
                d[i] = k->votes;
        return;
    }
    bool yes = in->sub == STITCH__BAR_AND ? k->all : k->votes > 0;
    uint32_t *d = (uint32_t *)(void *)(regs + in->o[0]);
    *d = (*d & ~mask) | (yes ? mask : 0);
}

static void release(stitch__exec *x, stitch__barrier *k)
{
    stitch__block *b = x->block;
    order(b, k->arrived_warps, k->warps);
    for (uint32_t m = k->warps; m; m &= m - 1) {
        stitch__warp *w = &b->warps[__builtin_ctz(m)];
        deliver(w, w->waits_at, k);
        if (w->state == STITCH__WARP_BARRIER)
            w->state = STITCH__WARP_RUN;
    }
    memset(k, 0, sizeof(*k));
    x->barriers++;
}

int stitch__exec_bar(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__block *b = x->block;
    stitch__warp *w = x->warp;
    uint32_t here, lane = (uint32_t)__builtin_ctz(mask);
    int rc = stitch__sync_lanes(x, in, mask, w->alive, &here);
    if (rc == STITCH__RUN_PARK)
        return rc;
    uint32_t id = ((const uint32_t *)stitch__operand(x, in->o[1]))[lane];
    uint32_t count = in->o[2] ? ((const uint32_t *)stitch__operand(x, in->o[2]))[lane] : 0;
    if (id >= STITCH__MAX_BARRIERS || count % 32) {
        stitch__report(x, STITCH__SIM_BARRIER_MISUSE, in, lane, STITCH__SIM_GENERIC, 0, 0,
                       id >= STITCH__MAX_BARRIERS ? "barrier %u: there are 16"
                                                  : "barrier %u for %u threads, which is no multiple of 32",
                       id, count);
        return STITCH__RUN_KILL;
    }
    if (count > b->warp_count * 32 && x->check_sync)
        stitch__report(x, STITCH__SIM_BARRIER_MISUSE, in, lane, STITCH__SIM_GENERIC, 0, 0,
                       "barrier %u expects %u threads, the block has %u", id, count, b->thread_count);
    stitch__barrier *k = &b->barrier[id];
    if (k->arrived_warps && k->expected != count && x->check_sync)
        stitch__report(x, STITCH__SIM_BARRIER_MISUSE, in, lane, STITCH__SIM_GENERIC, 0, 0,
                       "barrier %u: others expect %u threads, this one %u", id, k->expected, count);
    if (!k->arrived_warps) {
        k->expected = count;
        k->all = true;
    }
    k->arrived_warps |= 1u << w->index;
    if (in->o[3]) {
        uint32_t p = *(const uint32_t *)stitch__operand(x, in->o[3]) & here;
        k->votes += (uint32_t)__builtin_popcount(p);
        k->all &= p == here;
    }
    if (in->sub == STITCH__BAR_ARRIVE) {
        stitch__time_release(x, false);
        if (complete(b, k))
            release(x, k);
        return stitch__sync_done(x, in, rc);
    }
    k->warps |= 1u << w->index;
    w->waits_at = in;
    w->waits_in = x->frame->f;
    w->bar_id = id;
    if (complete(b, k)) {
        release(x, k);
        return stitch__sync_done(x, in, rc);
    }
    w->state = STITCH__WARP_BARRIER;
    w->stuck = 0;
    return STITCH__RUN_WAIT;
}

void stitch__barrier_exit(stitch__exec *x)
{
    if (x->warp->state != STITCH__WARP_DONE)
        return;
    stitch__products_wake(x->block);
    for (uint32_t i = 0; i < STITCH__MAX_BARRIERS; i++)
        if (complete(x->block, &x->block->barrier[i]) && x->block->barrier[i].warps)
            release(x, &x->block->barrier[i]);
}

bool stitch__barrier_stuck(stitch__exec *x)
{
    stitch__block *b = x->block;
    for (uint32_t i = 0; i < b->warp_count; i++) {
        stitch__warp *w = &b->warps[i];
        if (w->state != STITCH__WARP_BARRIER)
            continue;
        x->warp = w;
        stitch__warp_frame(x);
        const stitch__barrier *k = &b->barrier[w->bar_id];
        uint32_t missing = live_warps(b) & ~k->arrived_warps;
        if (k->expected)
            stitch__report(x, STITCH__SIM_DEADLOCK, w->waits_at, (uint32_t)__builtin_ctz(w->alive), STITCH__SIM_GENERIC,
                           0, 0, "waits at barrier %u for %u threads; %u came and no more can", w->bar_id, k->expected,
                           (uint32_t)__builtin_popcount(k->arrived_warps) * 32);
        else
            stitch__report(x, STITCH__SIM_DEADLOCK, w->waits_at, (uint32_t)__builtin_ctz(w->alive), STITCH__SIM_GENERIC,
                           0, 0, "waits at barrier %u; warps 0x%x wait elsewhere", w->bar_id, missing);
    }
    return true;
}

int stitch__exec_barwarp(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__groups g;
    int rc = stitch__sync_groups(x, in, mask, in->o[0], &g);
    if (rc == STITCH__RUN_PARK)
        return rc;
    stitch__time_warp(x);
    return stitch__sync_done(x, in, rc);
}

int stitch__exec_fence(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    (void)mask;
    stitch__time_release(x, in->sub);
    if (in->sub2)
        x->block->proxy_fence = stitch__tick(x->block);
    return STITCH__RUN_NEXT;
}

/* ---- clusters ---------------------------------------------------------------------------------------------------- */

static uint32_t cluster_live(const stitch__cluster *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->count; i++)
        for (uint32_t k = 0; !c->blocks[i]->done && k < c->blocks[i]->warp_count; k++)
            n += c->blocks[i]->warps[k].state != STITCH__WARP_DONE;
    return n;
}

/* All live warps have arrived: the next phase begins. */
void stitch__cluster_check(stitch__cluster *c)
{
    uint32_t live = cluster_live(c);
    if (!live || c->arrived < live)
        return;
    uint32_t now = ++c->time;
    c->arrived = 0;
    c->phase++;
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t k = 0; k < 16; k++)
            c->seen[i][k] = now;
    for (uint32_t i = 0; i < c->count; i++) {
        stitch__block *b = c->blocks[i];
        if (b->done)
            continue;
        for (uint32_t k = 0; k < b->warp_count; k++) {
            b->warps[k].cluster_arrived = false;
            if (b->warps[k].state == STITCH__WARP_CLUSTER)
                b->warps[k].state = STITCH__WARP_RUN;
        }
        order(b, live_warps(b), live_warps(b));
        b->acquired = 1;
        b->slow &= ~(uint32_t)STITCH__SLOW_FAR;
    }
}

int stitch__exec_cluster_arrive(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t here;
    int rc = stitch__sync_lanes(x, in, mask, x->warp->alive, &here);
    if (rc == STITCH__RUN_PARK)
        return rc;
    stitch__time_release(x, true);
    if (x->warp->cluster_arrived && x->check_sync)
        stitch__report(x, STITCH__SIM_BARRIER_MISUSE, in, (uint32_t)__builtin_ctz(mask), STITCH__SIM_GENERIC, 0, 0,
                       "arrives at the cluster barrier twice without a wait");
    x->warp->cluster_arrived = true;
    x->warp->cluster_phase = x->block->cluster->phase;
    x->block->cluster->arrived++;
    stitch__cluster_check(x->block->cluster);
    return stitch__sync_done(x, in, rc);
}

int stitch__exec_cluster_wait(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t here;
    int rc = stitch__sync_lanes(x, in, mask, x->warp->alive, &here);
    if (rc == STITCH__RUN_PARK)
        return rc;
    if (x->block->cluster->phase != x->warp->cluster_phase)
        return stitch__sync_done(x, in, rc);
    x->warp->state = STITCH__WARP_CLUSTER;
    x->warp->waits_at = in;
    return STITCH__RUN_WAIT;
}

int stitch__exec_mapa(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint32_t *rank = stitch__operand(x, in->o[2]);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        if (in->size == 8) {
            uint64_t a = ((const uint64_t *)stitch__operand(x, in->o[1]))[lane];
            uint64_t window = in->sub == STITCH__SIM_SHARED ? 0 : STITCH__SIM_SHARED_WINDOW;
            ((uint64_t *)(void *)(x->regs + in->o[0]))[lane] =
                window + ((a - window) & 0xffffff) + ((uint64_t)rank[lane] << 24);
        } else {
            uint32_t a = ((const uint32_t *)stitch__operand(x, in->o[1]))[lane];
            ((uint32_t *)(void *)(x->regs + in->o[0]))[lane] = (a & 0xffffff) + (rank[lane] << 24);
        }
    }
    return STITCH__RUN_NEXT;
}

int stitch__exec_getctarank(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        uint64_t a = in->size == 8 ? ((const uint64_t *)stitch__operand(x, in->o[1]))[lane]
                                   : ((const uint32_t *)stitch__operand(x, in->o[1]))[lane];
        ((uint32_t *)(void *)(x->regs + in->o[0]))[lane] = (uint32_t)a >> 24;
    }
    return STITCH__RUN_NEXT;
}
