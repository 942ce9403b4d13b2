/* SPDX-License-Identifier: MIT
 *
 * Who touched which memory without a barrier between.
 *
 * For every granule (the smallest access that the kernel makes, 1 to 4 bytes) two keys are kept, of the last write and
 * of a read: block, warp, lane and block time. A block's time goes up at every synchronisation; `full` is its value at
 * the last barrier of all threads. An earlier access is ordered before the present one if it was made
 *   - by the same thread, or before the block's last full barrier,
 *   - by the same warp before its last __syncwarp(),
 *   - by another warp before a time that the present warp has seen (barriers of some threads, mbarriers, fences with
 *     atomics),
 *   - by another block of its cluster before a time that the present block has seen (cluster barriers, mbarriers,
 * fences),
 *   - in global memory, by another block that released it (a fence of device scope) while the present block has
 * acquired since. The last rule is generous: which flag was read is not looked at. That can miss a race, but reports
 * none that is not. MULTILANE, MULTIWARP and MULTIBLOCK say that more threads than the one in the key have read the
 * granule.
 */
#include "sim/exec.h"
#include "sim/job.h"

bool stitch__race_open(stitch__exec *x, stitch__block *b)
{
    size_t n = ((size_t)b->shared_end >> x->shared_shift) + 64, lines = b->shared_end / 4096 + 1;
    b->race.words = 2 * lines + n / 64 + 2;
    b->race.w = stitch__calloc(NULL, 1, n * 24 + b->race.words * 8);
    if (!b->race.w)
        return false;
    b->race.r = b->race.w + n;
    b->race.wrote = b->race.r + n;
    b->race.read = b->race.wrote + lines;
    b->race.crowded = b->race.read + lines;
    b->race.wpc = (uint32_t *)(void *)(b->race.wrote + b->race.words);
    b->race.rpc = b->race.wpc + n;
    return true;
}

/* The record of an allocation, ready for this launch. NULL: no memory for it. */
stitch__race_log *stitch__race_of(stitch__exec *x, stitch__sim_alloc *a)
{
    stitch__job *j = x->job;
    if (__atomic_load_n(&a->race_launch, __ATOMIC_ACQUIRE) == j->number)
        return a->race;
    pthread_mutex_lock(&j->lock);
    if (a->race_launch != j->number &&
        stitch__grow(j->ctx, &j->touched, &j->touched_cap, j->touched_count + 1, sizeof(*j->touched)) == STITCH_OK) {
        size_t n = (size_t)(a->size >> x->global_shift) + 64, lines = n / STITCH__LINE / 8 * 8 + 8;
        size_t bytes =
            sizeof(stitch__race_log) + 64 + n * sizeof(stitch__race_entry) +
            lines * (sizeof(stitch__race_line) + sizeof(stitch__race_brief) + 2 * STITCH__LINE * sizeof(uint32_t));
        stitch__race_log *log = a->race;
        if (!log || a->race_bytes != bytes || log->tag >> STITCH__TAG_SHIFT == (1u << (32 - STITCH__TAG_SHIFT)) - 1) {
            /* Fresh pages are zero and cost nothing until they are touched. */
            free(log);
            a->race = log = calloc(1, bytes);
            a->race_bytes = log ? bytes : 0;
        }
        if (log) {
            log->line = (stitch__race_line *)(void *)(((uintptr_t)(log + 1) + 63) & ~(uintptr_t)63);
            log->brief = (stitch__race_brief *)(void *)(log->line + lines);
            log->brief_w = (uint32_t *)(void *)(log->brief + lines);
            log->brief_r = log->brief_w + lines * STITCH__LINE;
            log->word = (stitch__race_entry *)(void *)(log->brief_r + lines * STITCH__LINE);
            log->tag += 1u << STITCH__TAG_SHIFT;
        }
        j->touched[j->touched_count++] = a;
        __atomic_store_n(&a->race_launch, j->number, __ATOMIC_RELEASE);
    }
    stitch__race_log *log = a->race_launch == j->number ? a->race : NULL;
    pthread_mutex_unlock(&j->lock);
    return log;
}

/* The key that a brief entry stands for. When another block did it does not matter: kernels whose blocks wait for each
 * other have no brief entries. */
static uint64_t brief_key(const stitch__exec *x, uint32_t entry, uint32_t time)
{
    uint32_t seq = entry >> STITCH__BRIEF_SEQ_SHIFT;
    uint64_t clock = seq == x->block->seq ? x->block->begin + time : 0;
    return (uint64_t)seq << STITCH__KEY_BLOCK_SHIFT | (uint64_t)(entry >> 5 & 31) << STITCH__KEY_WARP_SHIFT |
           (uint64_t)(entry & 31) << STITCH__KEY_LANE_SHIFT | clock;
}

static void expand_brief(const stitch__exec *x, stitch__race_log *log, uint64_t line, uint32_t time)
{
    const stitch__race_brief *b = &log->brief[line];
    stitch__race_entry *e = &log->word[line * STITCH__LINE];
    uint32_t rpc = STITCH__SEE(b->r), wpc = STITCH__SEE(b->w);
    for (uint64_t i = 0; i < STITCH__LINE; i++) {
        uint32_t w = wpc ? STITCH__SEE(log->brief_w[line * STITCH__LINE + i]) : 0;
        uint32_t r = rpc ? STITCH__SEE(log->brief_r[line * STITCH__LINE + i]) : 0;
        if (w) {
            STITCH__PUT(e[i].w, brief_key(x, w, time));
            STITCH__PUT_TAG(e[i].wtag, (wpc - 1) | log->tag);
        }
        if (r) {
            STITCH__PUT(e[i].r, brief_key(x, r, time));
            STITCH__PUT_TAG(e[i].rtag, (rpc - 1) | log->tag);
        }
    }
}

static void expand_run(stitch__race_log *log, uint64_t line)
{
    const stitch__race_line *l = &log->line[line];
    stitch__race_entry *e = &log->word[line * STITCH__LINE];
    uint32_t wtag = STITCH__SEE_TAG(l->e.wtag), rtag = STITCH__SEE_TAG(l->e.rtag);
    uint64_t w = STITCH__SEE(l->e.w), r = STITCH__SEE(l->e.r);
    uint32_t wfrom = STITCH__SEE(l->wfrom), wend = stitch__race_now(log, wtag) ? wfrom + STITCH__SEE(l->wcount) : 0;
    uint32_t rfrom = STITCH__SEE(l->rfrom), rend = stitch__race_now(log, rtag) ? rfrom + STITCH__SEE(l->rcount) : 0;
    for (uint64_t i = wfrom; i < wend && i < STITCH__LINE; i++) {
        STITCH__PUT(e[i].w, w + ((i >> (wtag >> STITCH__TAG_EACH & 7)) << STITCH__KEY_LANE_SHIFT));
        STITCH__PUT_TAG(e[i].wtag, (wtag & STITCH__TAG_PC) | log->tag);
    }
    for (uint64_t i = rfrom; i < rend && i < STITCH__LINE; i++) {
        STITCH__PUT(e[i].r, r + ((i >> (rtag >> STITCH__TAG_EACH & 7)) << STITCH__KEY_LANE_SHIFT));
        STITCH__PUT_TAG(e[i].rtag, (rtag & STITCH__TAG_PC) | log->tag);
    }
}

/* Writes the record of a line into its granules; those of a line without one have old tags or none. */
void stitch__race_expand(const stitch__exec *x, stitch__race_log *log, uint64_t line)
{
    stitch__race_line *l = &log->line[line];
    uint32_t head = STITCH__SEE_TAG(log->brief[line].head), closed = log->tag | STITCH__BRIEF_CLOSED;
    uint64_t w = stitch__race_now(log, STITCH__SEE_TAG(l->e.wtag)) ? STITCH__SEE(l->e.w) : 0;
    if (w == STITCH__LINE_WORDS)
        return; /* another thread was faster */
    if (!__atomic_compare_exchange_n(&log->brief[line].head, &head, closed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return; /* is */
    if (w == STITCH__LINE_BRIEF) {
        if (head == closed)
            return;
        expand_brief(x, log, line, head & STITCH__BRIEF_CLOSED);
    } else {
        expand_run(log, line);
    }
    STITCH__PUT(l->e.w, STITCH__LINE_WORDS);
    STITCH__PUT_TAG(l->e.rtag, 0);
    STITCH__PUT_TAG(l->e.wtag, log->tag);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

uint32_t stitch__tick(stitch__block *b)
{
    return ++b->cluster->time;
}

void stitch__time_warp(stitch__exec *x)
{
    x->warp->clock = stitch__tick(x->block);
}

void stitch__time_release(stitch__exec *x, bool others)
{
    stitch__block *b = x->block;
    uint32_t now = stitch__tick(b);
    b->released[x->warp->index] = now;
    x->warp->clock = now;
    b->cluster->released[b->rank] = now;
    if (others && x->talks)
        stitch__job_release(x, now);
}

void stitch__time_acquire(stitch__exec *x, bool others)
{
    stitch__block *b = x->block;
    for (uint32_t w = 0; w < b->warp_count; w++)
        if (b->released[w] > b->seen[x->warp->index][w]) {
            b->seen[x->warp->index][w] = b->released[w];
            b->partial |= b->released[w] > b->full && w != x->warp->index;
        }
    for (uint32_t k = 0; k < b->cluster->count; k++)
        b->cluster->seen[b->rank][k] = b->cluster->released[k];
    if (others)
        b->acquired = 1;
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

static uint64_t key_of(const stitch__exec *x, uint32_t lane)
{
    return x->prefix | x->warp->clock | (uint64_t)lane << STITCH__KEY_LANE_SHIFT;
}

/* Whether what `e` tells of is ordered before the running warp's lane `lane`, both in one block. `several`: e is a read
 * that stands for others too. */
static bool ordered(const stitch__exec *x, uint64_t e, uint32_t lane)
{
    const stitch__block *b = x->block;
    uint32_t clock = (uint32_t)(e & STITCH__KEY_CLOCK), warp = (uint32_t)(e >> STITCH__KEY_WARP_SHIFT) & 31;
    if (clock < b->full)
        return true;
    if (warp != x->warp->index)
        return clock < b->seen[x->warp->index][warp];
    if (e & STITCH__KEY_MULTIWARP && !b->partial)
        return false;
    return clock < x->warp->clock || (!(e & STITCH__KEY_MULTILANE) && ((e >> STITCH__KEY_LANE_SHIFT) & 31) == lane);
}

/* Which flags of the read record `r` the record of a read by `mine`, of the same block, keeps or gets: those that tell
 * of reads that nothing orders before this one. */
static uint64_t others(const stitch__exec *x, uint64_t r, uint64_t mine)
{
    if (!r || (r & STITCH__KEY_CLOCK) < x->block->full)
        return 0;
    uint64_t flags = r & STITCH__KEY_MULTIWARP;
    if ((r ^ mine) >> STITCH__KEY_WARP_SHIFT & 31)
        return flags | STITCH__KEY_MULTIWARP;
    if ((r ^ mine) & STITCH__KEY_CLOCK)
        return flags;
    return flags | ((r ^ mine) >> STITCH__KEY_LANE_SHIFT & 31 ? STITCH__KEY_MULTILANE : r & STITCH__KEY_MULTILANE);
}

/* The same where another block of the cluster may be involved. */
static bool ordered_shared(const stitch__exec *x, uint64_t e, uint32_t lane)
{
    const stitch__cluster *c = x->block->cluster;
    uint32_t seq = (uint32_t)(e >> STITCH__KEY_BLOCK_SHIFT);
    if (seq == x->block->seq)
        return ordered(x, e, lane);
    for (uint32_t k = 0; k < c->count; k++)
        if (c->blocks[k]->seq == seq)
            return (e & STITCH__KEY_CLOCK) < c->seen[x->block->rank][k];
    return true; /* of a block that had this memory before */
}

/* What a read by `mine` leaves of the read record `r`. Of reads by two blocks that nothing orders, the one by another
 * block than the memory's own counts. */
static uint64_t merge_shared(const stitch__exec *x, const stitch__block *owner, uint64_t r, uint64_t mine,
                             uint32_t lane)
{
    if (r && (r ^ mine) >> STITCH__KEY_BLOCK_SHIFT)
        return x->block != owner || ordered_shared(x, r, lane) ? mine : r;
    return mine | others(x, r, mine);
}

static void note_write(stitch__block *owner, uint32_t g, uint32_t shift, uint64_t mine, uint32_t pc)
{
    uint32_t line = (g << shift) >> 6;
    owner->race.wrote[line >> 6] |= UINT64_C(1) << (line & 63);
    owner->race.crowded[g >> 6] &= ~(UINT64_C(1) << (g & 63)); /* who reads it from now on counts again */
    owner->race.w[g] = mine;
    owner->race.wpc[g] = pc;
}

bool stitch__race_shared(stitch__exec *x, const stitch__instr *in, stitch__block *owner, uint32_t lane, uint32_t offset,
                         uint32_t size, bool write, bool atomic)
{
    bool raced = false;
    /* What the toolkit's headers do in reserved memory is not the kernel's: all lanes store one value there. */
    if (!owner->race.w || offset < STITCH__SIM_SHARED_START)
        return false;
    bool copy = in->op == STITCH__OP_FN && (in->u.fn == stitch__exec_cpasync || in->u.fn == stitch__exec_bulk);
    uint64_t mine = key_of(x, lane) | (atomic ? STITCH__KEY_ATOMIC : 0);
    uint32_t pc = stitch__pc(x, in), from = offset >> x->shared_shift, to = (offset + size - 1) >> x->shared_shift;
    if (owner != x->block)
        owner->slow |= STITCH__SLOW_FAR;
    if (write && owner->slow & STITCH__SLOW_STORES)
        stitch__flights_overwritten(x, in, owner, lane, offset, size);
    if (write && owner->slow & STITCH__SLOW_PRODUCTS)
        stitch__product_overwrites(x, in, owner, lane, offset, size);
    for (uint32_t g = from; g <= to; g++) {
        uint64_t w = owner->race.w[g], r = owner->race.r[g];
        bool both = atomic && w & STITCH__KEY_ATOMIC;
        bool after_write = w && !both && !ordered_shared(x, w, lane);
        bool after_read =
            !after_write && write && r && !(atomic && r & STITCH__KEY_ATOMIC) && !ordered_shared(x, r, lane);
        if (after_write || after_read)
            stitch__report_race(x, STITCH__SIM_SHARED_RACE, in, lane, write, STITCH__SIM_SHARED, offset, size, NULL,
                                after_write ? w : r, (after_write ? owner->race.wpc : owner->race.rpc)[g], after_write);
        raced |= after_write || after_read;
        if (write) {
            note_write(owner, g, x->shared_shift, copy ? mine | STITCH__KEY_PROXY : mine, pc);
            continue;
        }
        uint32_t line = (g << x->shared_shift) >> 6;
        uint64_t next = merge_shared(x, owner, r, mine, lane);
        owner->race.read[line >> 6] |= UINT64_C(1) << (line & 63);
        owner->race.r[g] = next;
        if (next != r)
            owner->race.rpc[g] = pc;
    }
    return raced;
}

void stitch__race_wrote(stitch__exec *x, const stitch__instr *in, stitch__block *owner, uint32_t lane, uint32_t offset,
                        uint32_t size)
{
    if (!owner->race.w)
        return;
    for (uint32_t g = offset >> x->shared_shift; g <= (offset + size - 1) >> x->shared_shift; g++)
        note_write(owner, g, x->shared_shift, key_of(x, lane) | STITCH__KEY_PROXY, stitch__pc(x, in));
}

void stitch__race_landed(stitch__exec *x, const stitch__instr *in, stitch__block *owner, stitch__block *by,
                         uint32_t warp, uint32_t lane, uint32_t offset, uint32_t size)
{
    if (!owner->race.w || !size)
        return;
    uint64_t key = (uint64_t)by->seq << STITCH__KEY_BLOCK_SHIFT | (uint64_t)warp << STITCH__KEY_WARP_SHIFT |
                   (uint64_t)lane << STITCH__KEY_LANE_SHIFT | stitch__tick(by) | STITCH__KEY_PROXY;
    if (owner != by)
        owner->slow |= STITCH__SLOW_FAR;
    for (uint32_t g = offset >> x->shared_shift; g <= (offset + size - 1) >> x->shared_shift; g++)
        note_write(owner, g, x->shared_shift, key, stitch__pc(x, in));
    by->released[warp] = by->cluster->released[by->rank] = stitch__tick(by);
}

void stitch__race_proxy(stitch__exec *x, const stitch__instr *in, const stitch__block *owner, uint32_t lane,
                        uint32_t offset, uint32_t size)
{
    if (!owner->race.w || owner != x->block || !size || !x->check_shared)
        return;
    for (uint32_t g = offset >> x->shared_shift; g <= (offset + size - 1) >> x->shared_shift; g++) {
        uint64_t w = owner->race.w[g];
        if (!w || w & STITCH__KEY_PROXY || w >> STITCH__KEY_BLOCK_SHIFT != owner->seq ||
            (w & STITCH__KEY_CLOCK) < owner->proxy_fence)
            continue;
        stitch__report_race(x, STITCH__SIM_MISSING_FENCE, in, lane, false, STITCH__SIM_SHARED, g << x->shared_shift,
                            1u << x->shared_shift, NULL, w, owner->race.wpc[g], true);
        return;
    }
}

/* ---- global memory ----------------------------------------------------------------------------------------------- */

static bool ordered_global(const stitch__exec *x, uint64_t e, uint32_t lane, bool read)
{
    uint32_t block = (uint32_t)(e >> STITCH__KEY_BLOCK_SHIFT);
    if (block == x->block->seq) {
        if (read && e & STITCH__KEY_MULTIBLOCK && !x->talks)
            return false;
        return ordered(x, e, lane);
    }
    if (!x->talks || !x->block->acquired)
        return false;
    return (e & STITCH__KEY_CLOCK) < stitch__job_released(x, block);
}

/* What a read by `mine` leaves of the read record `r`. */
static uint64_t merge_read(const stitch__exec *x, uint64_t r, uint64_t mine)
{
    if (r && (r ^ mine) >> STITCH__KEY_BLOCK_SHIFT)
        return r & STITCH__KEY_MULTIBLOCK && !x->talks ? r : mine | STITCH__KEY_MULTIBLOCK;
    return mine | (r & STITCH__KEY_MULTIBLOCK) | others(x, r, mine);
}

void stitch__race_global(stitch__exec *x, const stitch__instr *in, stitch__sim_alloc *a, uint32_t lane, uint64_t offset,
                         uint32_t size, bool write, bool atomic, const void *new_value)
{
    stitch__race_log *log = a->readonly ? NULL : stitch__race_of(x, a);
    if (!log)
        return;
    uint64_t mine = key_of(x, lane) | (atomic ? STITCH__KEY_ATOMIC : 0);
    uint64_t from = offset >> x->global_shift, to = (offset + size - 1) >> x->global_shift;
    uint32_t tag = log->tag | (stitch__pc(x, in) & STITCH__TAG_PC);
    bool same = write && new_value && memcmp(a->host + offset, new_value, size) == 0;
    for (uint64_t g = from; g <= to; g++) {
        const stitch__race_entry *line = &log->line[g / STITCH__LINE].e;
        if (!stitch__race_now(log, STITCH__SEE_TAG(line->wtag)) || STITCH__SEE(line->w) != STITCH__LINE_WORDS)
            stitch__race_expand(x, log, g / STITCH__LINE);
        stitch__race_entry *e = &log->word[g];
        uint64_t w = stitch__race_now(log, STITCH__SEE_TAG(e->wtag)) ? STITCH__SEE(e->w) : 0;
        uint64_t r = stitch__race_now(log, STITCH__SEE_TAG(e->rtag)) ? STITCH__SEE(e->r) : 0;
        bool both = atomic && w & STITCH__KEY_ATOMIC;
        if (w && !both && !(write && same) && !ordered_global(x, w, lane, false))
            stitch__report_race(x, STITCH__SIM_GLOBAL_RACE, in, lane, write, STITCH__SIM_GLOBAL, a->base + offset, size,
                                a, w, STITCH__SEE(e->wtag) & STITCH__TAG_PC, true);
        else if (write && r && !same && !(atomic && r & STITCH__KEY_ATOMIC) && !ordered_global(x, r, lane, true))
            stitch__report_race(x, STITCH__SIM_GLOBAL_RACE, in, lane, write, STITCH__SIM_GLOBAL, a->base + offset, size,
                                a, r, STITCH__SEE(e->rtag) & STITCH__TAG_PC, false);
        if (write) {
            STITCH__PUT(e->w, mine);
            STITCH__PUT_TAG(e->wtag, tag);
            continue;
        }
        uint64_t next = merge_read(x, r, mine);
        STITCH__PUT(e->r, next);
        if (next != r) /* else it tells of an access that counts for more */
            STITCH__PUT_TAG(e->rtag, tag);
    }
}
