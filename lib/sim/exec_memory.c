/* SPDX-License-Identifier: MIT
 *
 * Loads and stores one lane at a time, with every check. The main loop comes here when its fast ways do not fit.
 */
#include "sim/exec.h"
#include "sim/job.h"

static uint32_t first_used(uint32_t mask)
{
    return mask ? (uint32_t)__builtin_ctz(mask) : 0;
}

/* ---- finding the bytes ------------------------------------------------------------------------------------------- */

static bool locate_shared(stitch__exec *x, const stitch__instr *in, uint64_t address, uint32_t size, uint32_t lane,
                          bool write, stitch__where *w)
{
    uint32_t rank = (uint32_t)(address >> 24), offset = (uint32_t)address & 0xffffff;
    stitch__block *b = x->block;
    if (address >> 32 || (rank != b->rank && (!b->cluster || rank >= b->cluster->count)))
        b = NULL;
    else if (rank != b->rank)
        b = b->cluster->blocks[rank];
    if (b && b != x->block && b->done && !b->killed) {
        stitch__report(x, STITCH__SIM_BLOCK_ENDED, in, lane, STITCH__SIM_SHARED, address, size,
                       "block %u of the cluster: a cluster barrier before its end would keep it", rank);
        return false;
    }
    uint32_t first = x->job->f->reserved_smem ? STITCH__SIM_SHARED_RESERVED : STITCH__SIM_SHARED_START;
    if (!b || !b->shared || offset < first || offset + (uint64_t)size > b->shared_end) {
        stitch__report_bounds(x, in, lane, STITCH__SIM_SHARED, address, size, write, NULL, STITCH__SIM_OUT_OF_BOUNDS);
        return false;
    }
    w->space = STITCH__SIM_SHARED;
    w->owner = b;
    w->host = b->shared + offset;
    w->offset = offset;
    return true;
}

static bool locate_global(stitch__exec *x, const stitch__instr *in, uint64_t address, uint32_t size, uint32_t lane,
                          bool write, stitch__where *w)
{
    stitch__sim_alloc *a = NULL;
    if (address >= STITCH__SIM_GLOBAL_BASE) {
        stitch__sim_alloc **cache = &x->fc->alloc[stitch__pc(x, in)];
        a = *cache && address - (*cache)->base < (*cache)->size ? *cache
                                                                : stitch__sim_memory_find(x->launch->memory, address);
        if (a && !a->freed)
            *cache = a;
    }
    if (!a || a->freed || address - a->base + size > a->size || (write && a->readonly)) {
        stitch__report_bounds(x, in, lane, STITCH__SIM_GLOBAL, address, size, write, a,
                              a && a->freed                              ? STITCH__SIM_USE_AFTER_FREE
                              : a && address - a->base + size <= a->size ? STITCH__SIM_READ_ONLY
                                                                         : STITCH__SIM_OUT_OF_BOUNDS);
        return false;
    }
    w->space = STITCH__SIM_GLOBAL;
    w->alloc = a;
    w->offset = address - a->base;
    w->host = a->host + w->offset;
    return true;
}

bool stitch__locate(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address, uint32_t size,
                    uint32_t align, uint32_t lane, bool write, stitch__where *w)
{
    memset(w, 0, sizeof(*w));
    if (space == STITCH__SIM_GENERIC && address < STITCH__SIM_GLOBAL_BASE) {
        if (address - STITCH__SIM_SHARED_WINDOW < UINT64_C(1) << 32) {
            space = STITCH__SIM_SHARED;
            address -= STITCH__SIM_SHARED_WINDOW;
        } else if (address - STITCH__SIM_LOCAL_WINDOW < UINT64_C(1) << 32) {
            space = STITCH__SIM_LOCAL;
            address -= STITCH__SIM_LOCAL_WINDOW;
        } else if (address - STITCH__SIM_PARAM_WINDOW < UINT64_C(1) << 32) {
            space = STITCH__SIM_PARAM;
            address -= STITCH__SIM_PARAM_WINDOW;
        }
    }
    if (address & (align - 1)) {
        stitch__report(x, STITCH__SIM_MISALIGNED, in, lane, space, address, size, "%s of %u bytes",
                       write ? "store" : "load", size);
        return false;
    }
    w->offset = address;
    switch (space) {
    case STITCH__SIM_SHARED: return locate_shared(x, in, address, size, lane, write, w);
    case STITCH__SIM_LOCAL:
        w->space = STITCH__SIM_LOCAL;
        if (address + size <= x->warp->local_size && address < UINT64_C(1) << 32)
            return true;
        stitch__report_bounds(x, in, lane, STITCH__SIM_LOCAL, address, size, write, NULL, STITCH__SIM_OUT_OF_BOUNDS);
        return false;
    case STITCH__SIM_PARAM:
        w->space = STITCH__SIM_PARAM;
        if (!write && address < UINT64_C(1) << 32 && address + size <= x->launch->param_bytes) {
            w->host = (uint8_t *)(uintptr_t)x->launch->params + address;
            return true;
        }
        stitch__report_bounds(x, in, lane, STITCH__SIM_PARAM, address, size, write, NULL,
                              write ? STITCH__SIM_READ_ONLY : STITCH__SIM_OUT_OF_BOUNDS);
        return false;
    default: return locate_global(x, in, address, size, lane, write, w);
    }
}

bool stitch__is_init(const stitch__where *w, uint32_t size)
{
    if (w->space == STITCH__SIM_GLOBAL) {
        if (!w->alloc->init)
            return true;
        for (uint32_t i = 0; i < size; i++)
            if (!(atomic_load_explicit(&w->alloc->init[(w->offset + i) / 64], memory_order_relaxed) >>
                      ((w->offset + i) % 64) &
                  1))
                return false;
        return true;
    }
    if (w->space == STITCH__SIM_SHARED)
        for (uint32_t i = 0; i < size; i++)
            if (!(w->owner->shared_init[(w->offset + i) / 64] >> ((w->offset + i) % 64) & 1))
                return false;
    return true;
}

void stitch__mark_init(const stitch__where *w, uint32_t size)
{
    if (w->space == STITCH__SIM_GLOBAL && w->alloc->init) {
        for (uint32_t i = 0; i < size; i++) {
            uint64_t bit = UINT64_C(1) << ((w->offset + i) % 64);
            _Atomic(uint64_t) *word = &w->alloc->init[(w->offset + i) / 64];
            if (!(atomic_load_explicit(word, memory_order_relaxed) & bit))
                atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
        }
    } else if (w->space == STITCH__SIM_SHARED) {
        for (uint32_t i = 0; i < size; i++)
            w->owner->shared_init[(w->offset + i) / 64] |= UINT64_C(1) << ((w->offset + i) % 64);
    }
}

/* ---- bytes of one lane ------------------------------------------------------------------------------------------- */

static void local_copy(stitch__exec *x, uint64_t at, uint32_t size, uint32_t lane, uint8_t *to, const uint8_t *from)
{
    for (uint32_t i = 0; i < size; i++) {
        uint8_t *p = &x->warp->local[stitch__row((uint32_t)at + i, lane)];
        if (to)
            to[i] = *p;
        else
            *p = from[i];
    }
}

/* Bytes that were never written. */
static void report_uninit(stitch__exec *x, const stitch__instr *in, uint32_t lane, const stitch__where *w,
                          uint64_t address, uint32_t size)
{
    stitch__report_bounds(x, in, lane, w->space, w->space == STITCH__SIM_GLOBAL ? address : w->offset, size, false,
                          w->space == STITCH__SIM_GLOBAL ? w->alloc : NULL, STITCH__SIM_UNINITIALISED);
}

/* Reads `size` bytes; those that `used` (0: all) does not name may be anything and lie anywhere. */
static bool read_lane(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address, uint8_t *to,
                      uint32_t size, uint32_t align, uint32_t used, uint32_t lane, bool atomic)
{
    uint32_t lo = used ? first_used(used) : 0, hi = used ? 32 - (uint32_t)__builtin_clz(used) : size;
    stitch__where w;
    stitch__pending copy;
    bool in_flight = false;
    memset(to, 0, size);
    if (hi > size)
        hi = size;
    if (address & (align - 1))
        lo = 0;
    if (!stitch__locate(x, in, space, address + lo, hi - lo, lo ? 1 : align, lane, false, &w))
        return false;
    if (w.space == STITCH__SIM_LOCAL) {
        uint32_t ok = ~0u;
        for (uint32_t i = 0; i < hi - lo; i++)
            if (!used || used >> (lo + i) & 1)
                ok &= x->warp->local_init[w.offset + i];
        if (x->check_init && !(ok >> lane & 1))
            report_uninit(x, in, lane, &w, address + lo, hi - lo);
        local_copy(x, w.offset, hi - lo, lane, to + lo, NULL);
        return true;
    }
    memcpy(to + lo, w.host, hi - lo);
    if (w.space == STITCH__SIM_PARAM)
        return true;
    if (x->check_init) {
        stitch__where byte = w;
        bool ok = used ? true : stitch__is_init(&w, size);
        for (uint32_t i = lo; used && i < hi; i++) {
            byte.offset = w.offset + i - lo;
            if (used >> i & 1)
                ok &= stitch__is_init(&byte, 1);
        }
        if (!ok && w.space == STITCH__SIM_SHARED && stitch__copies_find(w.owner, (uint32_t)w.offset, hi - lo, &copy))
            in_flight = true; /* a race if nothing orders it behind the copy's start */
        else if (!ok)
            report_uninit(x, in, lane, &w, address + lo, hi - lo);
    }
    bool raced = w.space == STITCH__SIM_SHARED && x->check_shared &&
                 stitch__race_shared(x, in, w.owner, lane, (uint32_t)w.offset, hi - lo, false, atomic);
    if (in_flight && !raced)
        stitch__report_unwaited(x, in, lane, false, w.offset, hi - lo, &copy, "");
    if (w.space == STITCH__SIM_GLOBAL && x->check_global)
        stitch__race_global(x, in, w.alloc, lane, w.offset, hi - lo, false, atomic, NULL);
    return true;
}

static bool write_lane(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address,
                       const uint8_t *from, uint32_t size, uint32_t align, uint32_t lane, bool atomic)
{
    stitch__where w;
    if (!stitch__locate(x, in, space, address, size, align, lane, true, &w))
        return false;
    if (w.space == STITCH__SIM_LOCAL) {
        for (uint32_t i = 0; i < size; i++)
            x->warp->local_init[w.offset + i] |= 1u << lane;
        local_copy(x, w.offset, size, lane, NULL, from);
        return true;
    }
    if (w.space == STITCH__SIM_SHARED && x->check_shared)
        stitch__race_shared(x, in, w.owner, lane, (uint32_t)w.offset, size, true, atomic);
    else if (w.space == STITCH__SIM_GLOBAL && x->check_global)
        stitch__race_global(x, in, w.alloc, lane, w.offset, size, true, atomic, from);
    stitch__mark_init(&w, size);
    memcpy(w.host, from, size);
    return true;
}

bool stitch__read_bytes(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address, void *to,
                        uint32_t size, uint32_t align, uint32_t lane)
{
    return read_lane(x, in, space, address, to, size, align, 0, lane, false);
}

bool stitch__write_bytes(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address,
                         const void *from, uint32_t size, uint32_t align, uint32_t lane)
{
    return write_lane(x, in, space, address, from, size, align, lane, false);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static uint64_t lane_address(const stitch__exec *x, const stitch__instr *in, uint32_t o, uint32_t lane)
{
    const void *base = stitch__operand(x, o);
    if (in->flags & STITCH__IN_ADDR64)
        return ((const uint64_t *)base)[lane] + (uint64_t)in->imm;
    return (uint32_t)(((const uint32_t *)base)[lane] + (uint32_t)in->imm);
}

/* Requests, sectors and bytes of a partly active warp; wavefronts are only exact for whole warps. */
static void count_slow(stitch__exec *x, const stitch__instr *in, uint32_t mask, uint32_t address_operand)
{
    if (!x->counting)
        return;
    stitch__mem_count *c = &x->fc->mem[stitch__pc(x, in)];
    uint32_t bytes = (uint32_t)in->size * in->vec, lanes = (uint32_t)__builtin_popcount(mask), sectors = 0, words = 0;
    uint64_t seen[64];
    for (uint32_t m = mask; m; m &= m - 1) {
        uint64_t a = lane_address(x, in, address_operand, (uint32_t)__builtin_ctz(m));
        for (uint64_t s = a >> 5; s <= (a + bytes - 1) >> 5; s++) {
            uint32_t k = 0;
            while (k < sectors && seen[k] != s)
                k++;
            if (k == sectors && sectors < 64)
                seen[sectors++] = s;
        }
    }
    if (in->space == STITCH__SIM_SHARED) {
        uint8_t depth[32] = {0};
        uint32_t word[32], used = 0;
        for (uint32_t m = mask; m; m &= m - 1) {
            uint32_t a = (uint32_t)lane_address(x, in, address_operand, (uint32_t)__builtin_ctz(m)) >> 2, k = 0;
            while (k < used && word[k] != a)
                k++;
            if (k == used) {
                word[used++] = a;
                if (++depth[a & 31] > words)
                    words = depth[a & 31];
            }
        }
    }
    c->requests++;
    c->bytes += (uint64_t)lanes * bytes;
    c->units += in->space == STITCH__SIM_SHARED ? words * (bytes > 4 ? bytes / 4 : 1) : sectors;
    c->ideal += in->space == STITCH__SIM_SHARED ? (bytes > 4 ? bytes / 4 : 1) : (lanes * bytes + 31) / 32;
}

/* Parameters of the kernel, and of calls. */
static bool load_param(stitch__exec *x, const stitch__instr *in, uint32_t mask, uint32_t lane, uint8_t *to,
                       uint32_t size)
{
    uint64_t at = lane_address(x, in, in->o[4], lane);
    (void)mask;
    if (in->sub2) {
        if (at + size > x->frame->f->param_area + 16u)
            return false;
        for (uint32_t i = 0; i < size; i++)
            to[i] = x->frame->scratch[stitch__row((uint32_t)at + i, lane)];
        return true;
    }
    return read_lane(x, in, STITCH__SIM_PARAM, at, to, size, 1, 0, lane, false);
}

/* A kernel parameter at a fixed place is one value for all lanes. */
static bool load_uniform_param(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t size = (uint32_t)in->size * in->vec;
    if (in->space != STITCH__SIM_PARAM || in->sub2 || !(in->o[4] & STITCH__OFFSET_CONST))
        return false;
    uint64_t at = lane_address(x, in, in->o[4], 0);
    if (at + size > x->launch->param_bytes)
        return false;
    bool wide = in->flags & STITCH__IN_WIDE || in->size == 8;
    for (uint32_t k = 0; k < in->vec; k++) {
        uint64_t v = 0;
        memcpy(&v, (const uint8_t *)x->launch->params + at + k * in->size, in->size);
        if (in->flags & STITCH__IN_SIGNED && in->size < 8)
            v = (uint64_t)((int64_t)(v << (64 - 8 * in->size)) >> (64 - 8 * in->size));
        for (uint32_t i = 0; i < 32; i++) {
            if (!(mask >> i & 1))
                continue;
            if (wide)
                ((uint64_t *)(void *)(x->regs + in->o[k]))[i] = v;
            else
                ((uint32_t *)(void *)(x->regs + in->o[k]))[i] = (uint32_t)v;
        }
    }
    return true;
}

int stitch__exec_load(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    if (load_uniform_param(x, in, mask))
        return STITCH__RUN_NEXT;
    uint32_t size = (uint32_t)in->size * in->vec;
    bool wide = in->flags & STITCH__IN_WIDE || in->size == 8, atomic = in->flags & STITCH__IN_VOLATILE;
    uint64_t address[32];
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        address[lane] = lane_address(x, in, in->o[4], lane);
    }
    count_slow(x, in, mask, in->o[4]);
    if (atomic)
        stitch__time_acquire(x, in->space != STITCH__SIM_SHARED);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        uint8_t bytes[64];
        memset(bytes, 0, sizeof(bytes));
        if (in->space == STITCH__SIM_PARAM)
            load_param(x, in, mask, lane, bytes, size);
        else
            read_lane(x, in, (stitch__sim_space)in->space, address[lane], bytes, size, size, in->bytes_mask, lane,
                      atomic);
        for (uint32_t k = 0; k < in->vec; k++) {
            uint64_t v = 0;
            memcpy(&v, bytes + k * in->size, in->size);
            if (in->flags & STITCH__IN_SIGNED && in->size < 8)
                v = (uint64_t)((int64_t)(v << (64 - 8 * in->size)) >> (64 - 8 * in->size));
            if (wide)
                ((uint64_t *)(void *)(x->regs + in->o[k]))[lane] = v;
            else
                ((uint32_t *)(void *)(x->regs + in->o[k]))[lane] = (uint32_t)v;
        }
        if (x->kill)
            return STITCH__RUN_KILL;
    }
    if (atomic)
        stitch__poll(x);
    return STITCH__RUN_NEXT;
}

int stitch__exec_store(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint32_t size = (uint32_t)in->size * in->vec;
    bool wide = in->flags & STITCH__IN_WIDE || in->size == 8, atomic = in->flags & STITCH__IN_VOLATILE;
    count_slow(x, in, mask, in->o[0]);
    if (in->bytes_mask)
        stitch__time_release(x, in->space != STITCH__SIM_SHARED);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        uint64_t address = lane_address(x, in, in->o[0], lane);
        uint8_t bytes[64];
        for (uint32_t k = 0; k < in->vec; k++) {
            const void *s = stitch__operand(x, in->o[1 + k]);
            memcpy(bytes + k * in->size, (const uint8_t *)s + (size_t)lane * (wide ? 8 : 4), in->size);
        }
        if (in->space == STITCH__SIM_PARAM) {
            for (uint32_t i = 0; in->sub2 && address + size <= x->frame->f->param_area + 16u && i < size; i++)
                x->frame->scratch[stitch__row((uint32_t)address + i, lane)] = bytes[i];
        } else {
            write_lane(x, in, (stitch__sim_space)in->space, address, bytes, size, size, lane, atomic);
        }
        if (x->kill)
            return STITCH__RUN_KILL;
    }
    return STITCH__RUN_NEXT;
}

int stitch__exec_localaddr(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    uint64_t v = (uint64_t)in->imm + x->frame->local_base;
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(m);
        if (in->size == 8)
            ((uint64_t *)(void *)(x->regs + in->o[0]))[lane] = v;
        else
            ((uint32_t *)(void *)(x->regs + in->o[0]))[lane] = (uint32_t)v;
    }
    return STITCH__RUN_NEXT;
}

int stitch__exec_isspacep(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint64_t *a = stitch__operand(x, in->o[1]);
    uint32_t r = 0;
    for (uint32_t i = 0; i < 32; i++) {
        bool is = false;
        switch (in->sub) {
        case STITCH__SIM_SHARED: is = a[i] - STITCH__SIM_SHARED_WINDOW < UINT64_C(1) << 32; break;
        case STITCH__SIM_LOCAL: is = a[i] - STITCH__SIM_LOCAL_WINDOW < UINT64_C(1) << 32; break;
        case STITCH__SIM_PARAM: is = a[i] - STITCH__SIM_PARAM_WINDOW < UINT64_C(1) << 32; break;
        case STITCH__SIM_CONST: break;
        default: is = a[i] >= STITCH__SIM_GLOBAL_BASE; break;
        }
        r |= (uint32_t)is << i;
    }
    uint32_t *d = (uint32_t *)(void *)(x->regs + in->o[0]);
    *d = (*d & ~mask) | (r & mask);
    return STITCH__RUN_NEXT;
}
