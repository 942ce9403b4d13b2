/* SPDX-License-Identifier: MIT
 *
 * A launch: checks of its sizes, blocks over host threads, and what comes back.
 *
 * Blocks that cannot influence each other run to their end, spread over threads. Kernels whose blocks talk (atomics,
 * volatile accesses, fences on global memory), that print, or that have clusters of several blocks run on one thread in
 * a fixed order, so that every run gives the same result; a block that polls memory makes room for others.
 */
#include "sim/exec.h"
#include "sim/job.h"

#include <pthread.h>
#include <unistd.h>

enum { QUANTUM = 4096, RESIDENT_MAX = 4096, TIME_MAX = 1 << 25 };

typedef struct unit { /* the blocks of one cluster */
    stitch__cluster cluster;
    uint64_t number;
} unit;

void stitch__job_block_id(const stitch__job *j, uint32_t seq, uint32_t id[3])
{
    const stitch__sim_launch *l = j->launch;
    uint64_t linear = seq ? seq - 1 : 0; /* keys hold the linear block number + 1 */
    id[0] = (uint32_t)(linear % l->grid[0]);
    id[1] = (uint32_t)(linear / l->grid[0] % l->grid[1]);
    id[2] = (uint32_t)(linear / l->grid[0] / l->grid[1]);
}

void stitch__job_release(stitch__exec *x, uint32_t time)
{
    stitch__job *j = x->job;
    if (x->block->seq < j->released_cap)
        j->released[x->block->seq] = time;
}

uint32_t stitch__job_released(const stitch__exec *x, uint32_t seq)
{
    return seq < x->job->released_cap ? x->job->released[seq] : 0;
}

uint64_t stitch__grid_workspace(const stitch__exec *x)
{
    return x->job->workspace;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void block_free(stitch__block *b)
{
    if (!b)
        return;
    for (uint32_t i = 0; b->warps && i < b->warp_count; i++) {
        stitch__warp *w = &b->warps[i];
        while (w->top) {
            stitch__frame *f = w->top;
            w->top = f->up;
            stitch__frame_free(f);
        }
        stitch__frame_free(w->spare);
        stitch_free(w->local);
        stitch_free(w->local_init);
        stitch_free(w->copies);
        stitch_free(w->products);
    }
    stitch_free(b->warps);
    stitch_free(b->shared);
    stitch_free(b->shared_init);
    stitch_free(b->race.w);
    stitch_free(b->seen);
    stitch_free(b->bulk);
    stitch_free(b->product_reads);
    stitch_free(b);
}

static stitch__block *block_new(stitch__exec *x)
{
    const stitch__sim_launch *l = x->launch;
    const stitch_context *ctx = x->job->ctx;
    const stitch__sim_function *f = x->job->f;
    stitch__block *b = stitch__calloc(ctx, 1, sizeof(*b));
    if (!b)
        return NULL;
    uint32_t end = STITCH__SIM_SHARED_START + f->info.static_shared;
    if (f->info.dynamic_shared || l->dynamic_shared) {
        uint32_t align = f->dynamic_align < 16 ? 16 : f->dynamic_align;
        end = (end + align - 1) / align * align + l->dynamic_shared;
    }
    b->launch = l;
    b->shared_end = end;
    b->thread_count = l->block[0] * l->block[1] * l->block[2];
    b->warp_count = (b->thread_count + 31) / 32;
    b->warps = stitch__calloc(ctx, b->warp_count, sizeof(*b->warps));
    b->shared = stitch__calloc(ctx, 1, (size_t)end + 64);
    b->shared_init = stitch__calloc(ctx, end / 64 + 2, 8);
    b->seen = stitch__calloc(ctx, STITCH__MAX_WARPS, sizeof(*b->seen));
    if (!b->warps || !b->shared || !b->shared_init || !b->seen || (x->check_shared && !stitch__race_open(x, b))) {
        block_free(b);
        return NULL;
    }
    return b;
}

/* Makes a (used) block object ready for block `linear` of the grid. */
static bool block_begin(stitch__exec *x, stitch__block *b, uint64_t linear, stitch__cluster *cluster, uint32_t rank)
{
    const stitch__sim_launch *l = x->launch;
    b->linear = linear;
    b->id[0] = (uint32_t)(linear % l->grid[0]);
    b->id[1] = (uint32_t)(linear / l->grid[0] % l->grid[1]);
    b->id[2] = (uint32_t)(linear / l->grid[0] / l->grid[1]);
    b->seq = (uint32_t)(linear + 1) & 0xffffff;
    b->cluster = cluster;
    b->rank = rank;
    b->done = b->killed = b->partial = false;
    b->slow = 0;
    stitch__products_reset(b);
    b->executed = 0;
    b->acquired = 0;
    b->live_warps = b->warp_count;
    b->bulk_count = 0;
    memset(b->barrier, 0, sizeof(b->barrier));
    memset(b->released, 0, sizeof(b->released));
    memset(b->shared_init, 0, (b->shared_end / 64 + 2) * 8);
    if (x->job->f->reserved_smem) { /* the toolkit's headers clear the bits that they need, and no others */
        const uint32_t from = STITCH__SIM_SHARED_RESERVED, bytes = STITCH__SIM_SHARED_START - from;
        memset(b->shared + from, 0, bytes);
        memset(b->shared_init + from / 64, 0xff, bytes / 8);
    }
    b->full = b->begin = b->proxy_fence = stitch__tick(b);
    if (b->race.wrote)
        memset(b->race.wrote, 0, b->race.words * 8);
    for (uint32_t i = 0; i < b->warp_count; i++) {
        stitch__warp *w = &b->warps[i];
        uint32_t left = b->thread_count - i * 32;
        w->block = b;
        w->index = i;
        w->exists = w->alive = left >= 32 ? ~0u : (1u << left) - 1;
        w->state = STITCH__WARP_RUN;
        w->clock = b->full;
        w->polled = w->cluster_arrived = w->force = false;
        w->stuck = 0;
        w->copy_count = 0;
        memset(w->commits, 0, sizeof(w->commits));
        memset(w->bulk_commits, 0, sizeof(w->bulk_commits));
        w->waits_at = NULL;
        while (w->top) { /* left over from a block that was stopped */
            stitch__frame *f = w->top;
            w->top = f->up;
            stitch__frame_free(f);
        }
        x->warp = w;
        x->block = b;
        if (!stitch__frame_push(x, x->job->f, w->alive))
            return false;
    }
    return true;
}

static void run_warp(stitch__exec *x)
{
#if defined(__x86_64__)
    if (x->avx2) {
        stitch__run_warp_avx2(x);
        return;
    }
#endif
    stitch__run_warp_generic(x);
}

static void block_kill(stitch__exec *x, stitch__block *b)
{
    (void)x;
    b->killed = b->done = true;
    for (uint32_t i = 0; i < b->warp_count; i++)
        b->warps[i].state = STITCH__WARP_DONE;
    stitch__cluster_check(b->cluster);
}

static bool job_ended(stitch__exec *x)
{
    stitch__job *j = x->job;
    const stitch__sim_launch *l = x->launch;
    if (__atomic_load_n(&j->stop, __ATOMIC_RELAXED))
        return true;
    if (stitch_cancel_triggered(l->cancel) || stitch_cancel_triggered(l->cancel_too))
        x->rc = STITCH_E_CANCELLED;
    else if (l->deadline_ns && stitch__now_ns() > l->deadline_ns)
        x->rc = STITCH_E_TIMEOUT;
    if (x->rc)
        __atomic_store_n(&j->stop, true, __ATOMIC_RELAXED);
    return x->rc != 0;
}

/* One turn of every warp that can run. False: none could. */
static bool block_turn(stitch__exec *x, stitch__block *b, bool *polled)
{
    bool ran = false;
    uint64_t budget = x->launch->instruction_budget ? x->launch->instruction_budget : UINT64_C(1) << 34;
    x->block = b;
    for (uint32_t i = 0; i < b->warp_count && !b->done; i++) {
        stitch__warp *w = &b->warps[i];
        if (w->state != STITCH__WARP_RUN)
            continue;
        ran = true;
        x->warp = w;
        stitch__warp_frame(x);
        x->prefix = (uint64_t)b->seq << STITCH__KEY_BLOCK_SHIFT | (uint64_t)i << STITCH__KEY_WARP_SHIFT;
        x->quantum = QUANTUM;
        x->kill = false;
        w->polled = false;
        uint64_t before = x->executed;
        if (x->frame && !x->frame->mask)
            stitch__unstick(x);
        run_warp(x);
        b->executed += x->executed - before;
        *polled |= w->polled;
        if (!x->kill && b->executed > budget) {
            const stitch__frame *f = x->frame;
            if (f && w->state != STITCH__WARP_DONE)
                stitch__report(x, STITCH__SIM_BUDGET, &f->f->code[f->pc],
                               (uint32_t)__builtin_ctz(f->mask ? f->mask : w->alive), STITCH__SIM_GENERIC, 0, 0,
                               "%" PRIu64 " warp instructions in this block", b->executed);
            x->kill = true;
        }
        if (x->kill || x->rc) {
            block_kill(x, b);
            return true;
        }
        if (b->cluster->time > (1u << 26) - 1000) { /* the keys hold no more: forget what was recorded */
            x->check_shared = x->check_global = false;
        }
    }
    return ran;
}

static bool block_ended(const stitch__block *b)
{
    for (uint32_t i = 0; i < b->warp_count; i++)
        if (b->warps[i].state != STITCH__WARP_DONE)
            return false;
    return true;
}

/* One turn of a cluster's blocks. True when all have ended. */
static bool unit_turn(stitch__exec *x, unit *u, bool *polled)
{
    bool ran = false, ended = true;
    for (uint32_t i = 0; i < u->cluster.count; i++) {
        stitch__block *b = u->cluster.blocks[i];
        if (b->done)
            continue;
        ran |= block_turn(x, b, polled);
        if (block_ended(b)) {
            b->done = true;
            stitch__cluster_check(&u->cluster);
        }
        ended &= b->done;
    }
    if (ended || ran)
        return ended;
    for (uint32_t i = 0; i < u->cluster.count; i++) { /* nothing can run: whoever waits, waits forever */
        stitch__block *b = u->cluster.blocks[i];
        if (b->done)
            continue;
        x->block = b;
        stitch__barrier_stuck(x);
        for (uint32_t k = 0; k < b->warp_count; k++)
            if (b->warps[k].state == STITCH__WARP_CLUSTER || b->warps[k].state == STITCH__WARP_PRODUCT) {
                x->warp = &b->warps[k];
                stitch__warp_frame(x);
                stitch__report(x, STITCH__SIM_DEADLOCK, x->warp->waits_at, (uint32_t)__builtin_ctz(x->warp->alive),
                               STITCH__SIM_GENERIC, 0, 0,
                               x->warp->state == STITCH__WARP_CLUSTER
                                   ? "waits at the cluster barrier"
                                   : "waits for a wgmma that other warps of its warpgroup have not begun");
            }
        block_kill(x, b);
    }
    return true;
}

/* ---- which blocks ------------------------------------------------------------------------------------------------ */

static bool next_unit(stitch__exec *x, uint64_t *number)
{
    stitch__job *j = x->job;
    uint64_t n = __atomic_fetch_add(&j->next, 1, __ATOMIC_RELAXED);
    if (n >= j->units)
        return false;
    *number = j->order ? j->order[n] : n;
    return true;
}

/* Time begins again before the keys hold no more: what was recorded is forgotten. */
static void reset_time(stitch__exec *x, stitch__cluster *c)
{
    c->time = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        stitch__block *b = c->blocks[i];
        if (b && b->race.w)
            memset(b->race.w, 0, (((size_t)b->shared_end >> x->shared_shift) + 64) * 24 + b->race.words * 8);
        if (b)
            memset(b->seen, 0, STITCH__MAX_WARPS * sizeof(*b->seen));
    }
}

static bool unit_begin(stitch__exec *x, unit *u, uint64_t number)
{
    const stitch__sim_launch *l = x->launch;
    uint32_t c[3], count = x->job->cluster_blocks;
    for (int i = 0; i < 3; i++)
        c[i] = l->cluster[i] ? l->cluster[i] : 1;
    u->number = number;
    u->cluster.count = count;
    u->cluster.arrived = u->cluster.phase = 0;
    if (u->cluster.time > TIME_MAX)
        reset_time(x, &u->cluster);
    for (uint32_t i = 0; i < 16; i++) {
        u->cluster.released[i] = u->cluster.time;
        for (uint32_t k = 0; k < 16; k++)
            u->cluster.seen[i][k] = u->cluster.time;
    }
    uint64_t nx = l->grid[0] / c[0], ny = l->grid[1] / c[1];
    uint64_t cx = number % nx, cy = number / nx % ny, cz = number / nx / ny;
    for (uint32_t i = 0; i < count; i++) {
        if (!u->cluster.blocks[i])
            u->cluster.blocks[i] = block_new(x);
        if (!u->cluster.blocks[i])
            return false;
        uint64_t bx = cx * c[0] + i % c[0], by = cy * c[1] + i / c[0] % c[1], bz = cz * c[2] + i / c[0] / c[1];
        if (!block_begin(x, u->cluster.blocks[i], bx + l->grid[0] * (by + (uint64_t)l->grid[1] * bz), &u->cluster, i))
            return false;
    }
    return true;
}

static void unit_free(unit *u)
{
    for (uint32_t i = 0; u && i < 16; i++)
        block_free(u->cluster.blocks[i]);
    stitch_free(u);
}

/* Blocks that do not talk: one after the other. */
static void run_apart(stitch__exec *x)
{
    unit *u = stitch__calloc(x->job->ctx, 1, sizeof(*u));
    uint64_t number;
    if (!u)
        x->rc = STITCH_E_NOMEM;
    while (!x->rc && !job_ended(x) && next_unit(x, &number)) {
        bool polled = false;
        if (!unit_begin(x, u, number)) {
            x->rc = STITCH_E_NOMEM;
            break;
        }
        while (!unit_turn(x, u, &polled) && !x->rc)
            if (job_ended(x))
                break;
    }
    unit_free(u);
}

/* Blocks that may wait for each other: turn about, more of them whenever all that run are polling. */
static void run_together(stitch__exec *x)
{
    stitch__job *j = x->job;
    unit **active = NULL, **spare = NULL;
    size_t count = 0, cap = 0, spare_count = 0, spare_cap = 0;
    bool more = true;
    size_t want = x->launch->cooperative ? (size_t)j->units : 1;
    while (!x->rc && (more || count)) {
        while (more && count < want && !x->rc) {
            uint64_t number;
            if (!(more = next_unit(x, &number)))
                break;
            unit *u = spare_count ? spare[--spare_count] : stitch__calloc(j->ctx, 1, sizeof(*u));
            if (!u || stitch__grow(j->ctx, &active, &cap, count + 1, sizeof(*active))) {
                unit_free(u);
                x->rc = STITCH_E_NOMEM;
                break;
            }
            active[count++] = u;
            if (!unit_begin(x, u, number))
                x->rc = STITCH_E_NOMEM;
        }
        bool ended = false, all_poll = true;
        for (size_t i = 0; i < count && !x->rc;) {
            bool polled = false;
            if (unit_turn(x, active[i], &polled)) {
                ended = true;
                if (stitch__grow(j->ctx, &spare, &spare_cap, spare_count + 1, sizeof(*spare))) {
                    x->rc = STITCH_E_NOMEM;
                    break;
                }
                spare[spare_count++] = active[i];
                memmove(&active[i], &active[i + 1], (count - i - 1) * sizeof(*active));
                count--;
                continue;
            }
            all_poll &= polled;
            i++;
        }
        if (!ended && all_poll && more && want < RESIDENT_MAX)
            want = want < 16 ? want + 1 : want * 2;
        if (job_ended(x))
            break;
    }
    while (count)
        unit_free(active[--count]);
    while (spare_count)
        unit_free(spare[--spare_count]);
    stitch_free(active);
    stitch_free(spare);
}

/* ---- one host thread --------------------------------------------------------------------------------------------- */

static uint32_t granule_shift(uint32_t smallest)
{
    return smallest >= 4 ? 2 : smallest >= 2 ? 1 : 0;
}

static bool exec_open(stitch__exec *x, stitch__job *j)
{
    const stitch__sim_launch *l = j->launch;
    const stitch__sim_module *m = j->f->module;
    memset(x, 0, sizeof(*x));
    x->job = j;
    x->job_ctx = j->ctx;
    x->launch = l;
    x->check_init = l->flags & STITCH__SIM_CHECK_INIT;
    x->check_shared = l->flags & STITCH__SIM_CHECK_SHARED_RACE;
    x->check_global = l->flags & STITCH__SIM_CHECK_GLOBAL_RACE;
    x->check_sync = l->flags & STITCH__SIM_CHECK_SYNC;
    x->counting = l->flags & STITCH__SIM_COUNT;
    x->talks = j->talks;
    x->shared_shift = granule_shift(j->f->shared_min);
    x->global_shift = granule_shift(j->f->global_min);
#if defined(__x86_64__)
    x->avx2 = __builtin_cpu_supports("avx2");
#endif
    x->counts = stitch__calloc(j->ctx, m->function_count + 1, sizeof(*x->counts));
    x->shapes = stitch__calloc(j->ctx, 1, sizeof(*x->shapes));
    if (!x->counts || !x->shapes)
        return false;
    for (size_t i = 0; i < m->function_count; i++) {
        const stitch__sim_function *f = m->functions[i];
        if (!f->has_body || f->info.refusal || (f->entry && f != j->f))
            continue;
        stitch__fn_count *c = &x->counts[i];
        c->alloc = stitch__calloc(j->ctx, f->code_count + 1u, sizeof(*c->alloc));
        c->shape = stitch__calloc(j->ctx, f->code_count + 1u, sizeof(*c->shape));
        if (!c->alloc || !c->shape)
            return false;
        if (!x->counting)
            continue;
        c->entered = stitch__calloc(j->ctx, f->block_count + 1u, 8);
        c->lanes = stitch__calloc(j->ctx, f->block_count + 1u, 8);
        c->divergent = stitch__calloc(j->ctx, f->code_count + 1u, 8);
        c->mem = stitch__calloc(j->ctx, f->code_count + 1u, sizeof(*c->mem));
        if (!c->entered || !c->lanes || !c->divergent || !c->mem)
            return false;
    }
    return true;
}

static void exec_close(stitch__exec *x)
{
    const stitch__sim_module *m = x->job->f->module;
    for (size_t i = 0; x->counts && i < m->function_count; i++) {
        stitch_free(x->counts[i].alloc);
        stitch_free(x->counts[i].shape);
        stitch_free(x->counts[i].entered);
        stitch_free(x->counts[i].lanes);
        stitch_free(x->counts[i].divergent);
        stitch_free(x->counts[i].mem);
    }
    stitch_free(x->counts);
    stitch_free(x->shapes);
    x->counts = NULL;
    x->shapes = NULL;
}

static void *thread_main(void *arg)
{
    stitch__exec *x = arg;
    if (x->talks || x->launch->cooperative)
        run_together(x);
    else
        run_apart(x);
    if (x->rc)
        __atomic_store_n(&x->job->stop, true, __ATOMIC_RELAXED);
    return NULL;
}

static uint32_t thread_count(const stitch__job *j)
{
    uint64_t n = j->launch->threads;
    if (j->in_order)
        return 1;
    if (!n) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        n = cores > 0 ? (uint64_t)cores : 1;
    }
    if (n > j->units / 4)
        n = j->units / 4;
    return n < 1 ? 1 : n > 256 ? 256 : (uint32_t)n;
}

static int run_threads(stitch__job *j)
{
    uint32_t n = thread_count(j), started = 0;
    int rc = STITCH_OK;
    stitch__exec *x = stitch__calloc(j->ctx, n, sizeof(*x));
    pthread_t *t = stitch__calloc(j->ctx, n, sizeof(*t));
    if (!x || !t) {
        stitch_free(x);
        stitch_free(t);
        return STITCH_E_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!exec_open(&x[i], j))
            rc = STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        for (uint32_t i = 1; i < n && pthread_create(&t[i], NULL, thread_main, &x[i]) == 0; i++)
            started = i;
        thread_main(&x[0]);
        for (uint32_t i = 1; i <= started; i++)
            pthread_join(t[i], NULL);
        for (uint32_t i = 0; i <= started; i++) {
            if (x[i].rc && !rc)
                rc = x[i].rc;
            j->out->warp_instructions += x[i].executed;
            j->out->lane_instructions += x[i].lanes;
            j->out->counters.barriers += x[i].barriers;
        }
        if (rc == STITCH_OK && j->launch->flags & STITCH__SIM_COUNT)
            rc = stitch__counters_merge(j, x, started + 1);
    }
    for (uint32_t i = 0; i < n; i++)
        exec_close(&x[i]);
    stitch_free(x);
    stitch_free(t);
    return rc;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Which clusters run, and in which order. */
static int choose(stitch__job *j)
{
    const stitch__sim_launch *l = j->launch;
    uint64_t total = j->units,
             want = l->sample_blocks ? (l->sample_blocks + j->cluster_blocks - 1) / j->cluster_blocks : total;
    uint64_t state = l->seed;
    if (l->cooperative)
        want = total;
    if (want >= total && !l->seed)
        return STITCH_OK;
    if (want > total)
        want = total;
    if (want > (1u << 24))
        return STITCH_OK;
    j->order = stitch__calloc(j->ctx, want ? want : 1, 8);
    if (!j->order)
        return STITCH_E_NOMEM;
    if (want == total) {
        for (uint64_t i = 0; i < total; i++)
            j->order[i] = i;
        for (uint64_t i = total - 1; i > 0; i--) {
            uint64_t k = mix(&state) % (i + 1), t = j->order[i];
            j->order[i] = j->order[k];
            j->order[k] = t;
        }
        return STITCH_OK;
    }
    /* The first, the last, and one of each stretch between: distinct without a table. */
    for (uint64_t i = 0; i < want; i++) {
        uint64_t lo = i * total / want, hi = (i + 1) * total / want;
        j->order[i] = i == 0 ? 0 : i == want - 1 ? total - 1 : lo + mix(&state) % (hi - lo);
    }
    qsort(j->order, want, 8, compare_numbers);
    j->units = want;
    return STITCH_OK;
}

static int check_launch(const stitch__sim_launch *l, const stitch_context *ctx, uint32_t cluster[3], stitch_error **err)
{
    const stitch__sim_function *f = l->function;
    const stitch__sim_module *m = f->module;
    if (f->info.refusal)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "kernel %s cannot be simulated: %s", f->name,
                           f->info.refusal);
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    if (!l->grid[0] || !l->grid[1] || !l->grid[2] || l->grid[1] > 65535 || l->grid[2] > 65535 || l->grid[0] > INT32_MAX)
        return stitch__err(ctx, err, STITCH_E_INVALID, "kernel %s: a grid of %u x %u x %u blocks is out of range",
                           f->name, l->grid[0], l->grid[1], l->grid[2]);
    if (!threads || threads > 1024 || l->block[0] > 1024 || l->block[1] > 1024 || l->block[2] > 64)
        return stitch__err(ctx, err, STITCH_E_INVALID, "kernel %s: a block of %u x %u x %u threads is out of range",
                           f->name, l->block[0], l->block[1], l->block[2]);
    if (threads > f->info.max_threads)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "kernel %s: %" PRIu64 " threads a block, its launch bounds allow %u", f->name, threads,
                           f->info.max_threads);
    for (int i = 0; i < 3; i++)
        if (f->info.required_block[0] && f->info.required_block[i] != l->block[i])
            return stitch__err(ctx, err, STITCH_E_INVALID, "kernel %s requires blocks of %u x %u x %u threads", f->name,
                               f->info.required_block[0], f->info.required_block[1], f->info.required_block[2]);
    uint64_t shared = (uint64_t)f->info.static_shared + l->dynamic_shared;
    if (shared > STITCH__SIM_SHARED_MAX)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "kernel %s: %" PRIu64 " bytes of shared memory, a block can have %u", f->name, shared,
                           STITCH__SIM_SHARED_MAX);
    if (l->param_bytes < f->info.param_bytes || (f->info.param_bytes && !l->params))
        return stitch__err(ctx, err, STITCH_E_INVALID, "kernel %s: %zu bytes of parameters, it takes %u", f->name,
                           l->param_bytes, f->info.param_bytes);
    uint64_t blocks = 1;
    for (int i = 0; i < 3; i++) {
        cluster[i] = l->cluster[i] ? l->cluster[i] : f->info.required_cluster[i] ? f->info.required_cluster[i] : 1;
        blocks *= cluster[i];
        if (f->info.required_cluster[0] && l->cluster[i] && l->cluster[i] != f->info.required_cluster[i])
            return stitch__err(ctx, err, STITCH_E_INVALID, "kernel %s requires another cluster size", f->name);
        if (blocks > 16 || l->grid[i] % cluster[i])
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "kernel %s: clusters of %u x %u x %u do not fit the grid or exceed 16 blocks", f->name,
                               l->cluster[0], l->cluster[1], l->cluster[2]);
    }
    for (size_t i = 0; i < m->variable_count; i++)
        if (!m->variables[i].bound)
            return stitch__err(ctx, err, STITCH_E_INVALID, "variable %s of the module has no address yet",
                               m->variables[i].info.name);
    return STITCH_OK;
}

static int compare_reports(const void *a, const void *b)
{
    const stitch__sim_report *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->first.place != y->first.place)
        return x->first.place < y->first.place ? -1 : 1;
    if (x->second.place != y->second.place)
        return x->second.place < y->second.place ? -1 : 1;
    return strcmp(x->buffer, y->buffer);
}

static int take_reports(stitch__job *j)
{
    stitch__sim_result *out = j->out;
    int rc = STITCH_OK;
    if (j->report_count) {
        out->reports = stitch__calloc(j->ctx, j->report_count, sizeof(*out->reports));
        if (!out->reports)
            rc = STITCH_E_NOMEM;
    }
    for (size_t i = 0; i < STITCH__COUNT(j->reports); i++) {
        stitch__kept_report *k = j->reports[i];
        while (k) {
            stitch__kept_report *next = k->next;
            if (out->reports)
                out->reports[out->report_count++] = k->r;
            stitch_free(k);
            k = next;
        }
    }
    if (out->report_count)
        qsort(out->reports, out->report_count, sizeof(*out->reports), compare_reports);
    out->reports_dropped = j->dropped;
    out->fault = j->fault;
    return rc;
}

int stitch__sim_launch_run(const stitch__sim_launch *launch, stitch__sim_result *out, stitch_error **err)
{
    memset(out, 0, sizeof(*out));
    stitch__sim_launch l = *launch;
    const stitch_context *ctx = l.function->module->ctx;
    int rc = check_launch(launch, ctx, l.cluster, err);
    if (rc != STITCH_OK) {
        stitch__err_domain(err, STITCH_DOMAIN_SIM);
        return rc;
    }
    stitch__job j = {.launch = &l, .f = l.function, .ctx = ctx, .out = out};
    j.number = (uintptr_t)&j; /* unlike that of any other launch in progress */
    j.cluster_blocks = l.cluster[0] * l.cluster[1] * l.cluster[2];
    j.units = (uint64_t)l.grid[0] * l.grid[1] * l.grid[2] / j.cluster_blocks;
    j.talks = l.function->may_talk || j.cluster_blocks > 1;
    j.in_order = j.talks || l.function->prints || l.cooperative;
    j.report_limit = l.max_reports ? l.max_reports : 64;
    stitch__buf_init(&j.printed, ctx);
    pthread_mutex_init(&j.lock, NULL);
    out->counters.blocks_total = j.units * j.cluster_blocks;
    if (j.talks) {
        j.released_cap = out->counters.blocks_total + 2 < (1u << 24) ? out->counters.blocks_total + 2 : 1u << 24;
        j.released = stitch__calloc(ctx, j.released_cap, sizeof(uint32_t));
        if (!j.released)
            rc = STITCH_E_NOMEM;
    }
    stitch__sim_alloc *workspace = NULL;
    if (rc == STITCH_OK && l.function->info.grid_sync) {
        rc = stitch__sim_memory_alloc(l.memory, 4096, 256, "grid barrier", &workspace, err);
        if (rc == STITCH_OK) {
            memset(workspace->host, 0, 4096);
            stitch__sim_memory_mark(workspace, 0, 4096, true);
            j.workspace = workspace->base;
        }
    }
    if (rc == STITCH_OK)
        rc = choose(&j);
    if (rc == STITCH_OK) {
        out->counters.blocks_run = j.units * j.cluster_blocks;
        rc = run_threads(&j);
    }
    if (workspace)
        stitch__sim_memory_release(l.memory, workspace->base, NULL);
    for (size_t i = 0; i < j.touched_count; i++)
        j.touched[i]->race_launch = 0;
    stitch_free(j.touched);
    int rc2 = take_reports(&j);
    if (rc == STITCH_OK)
        rc = rc2 ? rc2 : j.rc;
    if (l.print && j.printed.len && !j.printed.failed)
        l.print(l.userdata, j.printed.data, j.printed.len);
    stitch__buf_free(&j.printed);
    stitch_free(j.order);
    stitch_free(j.released);
    pthread_mutex_destroy(&j.lock);
    if (rc == STITCH_E_NOMEM)
        stitch__err_nomem(ctx, err);
    else if (rc == STITCH_E_CANCELLED)
        stitch__err(ctx, err, rc, "the simulation of kernel %s was cancelled", l.function->name);
    else if (rc == STITCH_E_TIMEOUT)
        stitch__err(ctx, err, rc, "the simulation of kernel %s did not end before its deadline", l.function->name);
    if (rc)
        stitch__err_domain(err, STITCH_DOMAIN_SIM);
    return rc;
}

void stitch__sim_result_clear(stitch__sim_result *r)
{
    stitch_free(r->reports);
    stitch_free(r->counters.lines);
    memset(r, 0, sizeof(*r));
}
