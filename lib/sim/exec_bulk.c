/* SPDX-License-Identifier: MIT
 *
 * mbarriers, and the bulk and tensor copies that they or bulk groups complete.
 *
 * An mbarrier is the 64-bit object itself, in our own layout: pending arrivals (20 bits), expected arrivals (20 bits),
 * bytes still to come (23 bits, signed), and the parity of the phase in progress (1 bit).
 *
 * A copy is done when somebody tests its mbarrier, or waits for its group: data that is used without a wait is missing.
 */
#include "sim/exec.h"

static void flights_land(stitch__exec *x, uint64_t mbarrier);

#define PENDING(v)  ((uint32_t)(v)&0xfffffu)
#define EXPECTED(v) ((uint32_t)((v) >> 20) & 0xfffffu)
#define TX(v)       ((int32_t)((uint32_t)((v) >> 40) << 9) >> 9)

static uint64_t pack(uint32_t pending, uint32_t expected, int32_t tx, uint64_t phase)
{
    return (uint64_t)(pending & 0xfffffu) | (uint64_t)(expected & 0xfffffu) << 20 |
           (uint64_t)((uint32_t)tx & 0x7fffffu) << 40 | phase << 63;
}

static uint32_t first(uint32_t mask)
{
    return (uint32_t)__builtin_ctz(mask);
}

static bool find(stitch__exec *x, const stitch__instr *in, stitch__sim_space space, uint64_t address, uint32_t lane,
                 stitch__where *w)
{
    if (!stitch__locate(x, in, space, address, 8, 8, lane, true, w) || w->space != STITCH__SIM_SHARED)
        return false;
    if (x->check_init && !stitch__is_init(w, 8)) {
        stitch__report_bounds(x, in, lane, STITCH__SIM_SHARED, w->offset, 8, false, NULL, STITCH__SIM_UNINITIALISED);
        return false;
    }
    return true;
}

static void update(stitch__where *w, int32_t arrivals, int32_t drop, int32_t tx)
{
    uint64_t v;
    memcpy(&v, w->host, 8);
    uint32_t pending = PENDING(v), expected = EXPECTED(v) - (uint32_t)drop;
    int32_t left = TX(v) + tx;
    uint64_t phase = v >> 63;
    pending = pending < (uint32_t)arrivals ? 0 : pending - (uint32_t)arrivals;
    if (pending == 0 && left == 0) {
        phase ^= 1;
        pending = expected;
    }
    v = pack(pending, expected, left, phase);
    memcpy(w->host, &v, 8);
}

static void mbar_complete(stitch__exec *x, const stitch__instr *in, uint64_t address, uint32_t lane, int32_t arrivals,
                          int32_t tx)
{
    stitch__where w;
    if (find(x, in, STITCH__SIM_SHARED, address, lane, &w))
        update(&w, arrivals, 0, tx);
}

int stitch__exec_mbar_init(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint64_t *a = stitch__operand(x, in->o[1]);
    const uint32_t *n = stitch__operand(x, in->o[2]);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = first(m);
        stitch__where w;
        if (!stitch__locate(x, in, (stitch__sim_space)in->space, a[lane], 8, 8, lane, true, &w) ||
            w.space != STITCH__SIM_SHARED)
            continue;
        if (n[lane] == 0 || n[lane] > 0xfffff) {
            stitch__report(x, STITCH__SIM_BARRIER_MISUSE, in, lane, STITCH__SIM_SHARED, a[lane], 8,
                           "an mbarrier for %u arrivals", n[lane]);
            continue;
        }
        uint64_t v = pack(n[lane], n[lane], 0, 0);
        memcpy(w.host, &v, 8);
        stitch__mark_init(&w, 8);
    }
    stitch__time_release(x, false);
    return STITCH__RUN_NEXT;
}

int stitch__exec_mbar_inval(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    (void)x;
    (void)in;
    (void)mask;
    return STITCH__RUN_NEXT;
}

int stitch__exec_mbar_arrive(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint64_t *a = stitch__operand(x, in->o[1]);
    const uint32_t *n = stitch__operand(x, in->o[2]);
    stitch__time_release(x, false);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = first(m);
        stitch__where w;
        uint64_t v;
        if (!find(x, in, (stitch__sim_space)in->space, a[lane], lane, &w))
            continue;
        memcpy(&v, w.host, 8);
        if (in->o[0])
            ((uint64_t *)(void *)(x->regs + in->o[0]))[lane] = v;
        switch (in->sub) {
        case STITCH__MBAR_ARRIVE: update(&w, (int32_t)n[lane], 0, 0); break;
        case STITCH__MBAR_EXPECT_ARRIVE: update(&w, 1, 0, (int32_t)n[lane]); break;
        case STITCH__MBAR_DROP: update(&w, (int32_t)n[lane], (int32_t)n[lane], 0); break;
        case STITCH__MBAR_EXPECT: {
            v = pack(PENDING(v), EXPECTED(v), TX(v) + (int32_t)n[lane], v >> 63);
            memcpy(w.host, &v, 8);
            break;
        }
        default: update(&w, 0, 0, -(int32_t)n[lane]); break;
        }
    }
    return STITCH__RUN_NEXT;
}

int stitch__exec_mbar_test(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint64_t *a = stitch__operand(x, in->o[1]);
    const void *s = stitch__operand(x, in->o[2]);
    uint32_t done = 0;
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = first(m);
        stitch__where w;
        uint64_t v, want = in->sub ? ((const uint32_t *)s)[lane] & 1 : ((const uint64_t *)s)[lane] >> 63;
        if (!find(x, in, (stitch__sim_space)in->space, a[lane], lane, &w)) {
            done |= 1u << lane; /* reported; do not spin on it */
            continue;
        }
        memcpy(&v, w.host, 8);
        if (v >> 63 == want) {
            flights_land(x, (uint64_t)w.owner->rank << 24 | w.offset);
            memcpy(&v, w.host, 8);
        }
        if (v >> 63 != want)
            done |= 1u << lane;
    }
    uint32_t *d = (uint32_t *)(void *)(x->regs + in->o[0]);
    *d = (*d & ~mask) | done;
    if (done) {
        stitch__time_acquire(x, false);
        stitch__time_warp(x); /* lanes that waited are ordered behind what their own warp copied */
    }
    if (done != mask)
        stitch__poll(x);
    return STITCH__RUN_NEXT;
}

int stitch__exec_mbar_pending(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint64_t *s = stitch__operand(x, in->o[1]);
    for (uint32_t m = mask; m; m &= m - 1)
        ((uint32_t *)(void *)(x->regs + in->o[0]))[first(m)] = PENDING(s[first(m)]);
    return STITCH__RUN_NEXT;
}

/* ---- copies in flight -------------------------------------------------------------------------------------------- */

static stitch__flight *flight_add(stitch__exec *x, stitch__block *b)
{
    if (stitch__grow(x->frame->f->module->ctx, &b->bulk, &b->bulk_cap, b->bulk_count + 1, sizeof(*b->bulk))) {
        x->rc = STITCH_E_NOMEM;
        return NULL;
    }
    stitch__flight *t = &b->bulk[b->bulk_count++];
    memset(t, 0, sizeof(*t));
    t->mbarrier = UINT64_MAX;
    return t;
}

/* Checks a range of a block's shared memory that a copy will touch; the target of one counts as unwritten until then.
 */
static bool claim_shared(stitch__exec *x, const stitch__instr *in, uint64_t address, uint32_t bytes, uint32_t lane,
                         bool write, stitch__where *w)
{
    if (!stitch__locate(x, in, STITCH__SIM_SHARED, address, bytes, 16, lane, write, w))
        return false;
    if (write)
        for (uint64_t i = w->offset; i < w->offset + bytes; i++)
            w->owner->shared_init[i / 64] &= ~(UINT64_C(1) << (i % 64));
    return true;
}

static bool read_map(stitch__exec *x, const stitch__instr *in, uint64_t address, uint32_t lane,
                     stitch__sim_tensor_map *map)
{
    if (!stitch__read_bytes(x, in, STITCH__SIM_GENERIC, address, map, sizeof(*map), 64, lane))
        return false;
    const stitch__bulk *k = in->data;
    if (map->magic == STITCH__SIM_TENSOR_MAP_MAGIC && map->rank == k->rank && map->interleave == 0)
        return true;
    stitch__report(x, STITCH__SIM_ILLEGAL, in, lane, STITCH__SIM_GENERIC, address, sizeof(*map),
                   map->magic != STITCH__SIM_TENSOR_MAP_MAGIC ? "no tensor map there"
                   : map->rank != k->rank                     ? "tensor map of another rank"
                                                              : "interleaved layouts are not run");
    return false;
}

static uint32_t box_count(const stitch__sim_tensor_map *map, uint32_t d)
{
    uint32_t s = d == 0 || map->elem_stride[d] == 0 ? 1 : map->elem_stride[d];
    return (map->box[d] + s - 1) / s;
}

static uint32_t tile_bytes(const stitch__sim_tensor_map *map)
{
    uint64_t n = map->elem_size;
    for (uint32_t d = 0; d < map->rank; d++)
        n *= box_count(map, d);
    return n > (1u << 24) ? 1u << 24 : (uint32_t)n;
}

static uint32_t swizzled(const stitch__sim_tensor_map *map, uint32_t offset)
{
    switch (map->swizzle) {
    case 1: return offset ^ (offset >> 3 & 0x10);
    case 2: return offset ^ (offset >> 3 & 0x30);
    case 3: return offset ^ (offset >> 3 & 0x70);
    default: return offset;
    }
}

static void reduce(uint8_t *d, const uint8_t *s, uint32_t bytes, uint8_t op, uint8_t num)
{
    stitch__instr in = {.sub = op, .sub2 = num};
    uint32_t size = num == STITCH__F64 || num == STITCH__U64 || num == STITCH__S64                          ? 8
                    : num == STITCH__F16 || num == STITCH__BF16 || num == STITCH__U16 || num == STITCH__S16 ? 2
                                                                                                            : 4;
    in.size = (uint8_t)size;
    for (uint32_t i = 0; i + size <= bytes; i += size) {
        uint64_t a = 0, b = 0;
        memcpy(&a, d + i, size);
        memcpy(&b, s + i, size);
        a = stitch__atom_value(&in, a, b, 0, true);
        memcpy(d + i, &a, size);
    }
}

/* One row of a tile, or a plain range, between shared and global memory. NULL data: zero or NaN fill. */
static void put_global(stitch__exec *x, const stitch__flight *t, uint64_t address, const uint8_t *from, uint32_t bytes)
{
    stitch__sim_alloc *a = stitch__sim_memory_find(x->launch->memory, address);
    if (!a || a->freed || a->readonly || address - a->base + bytes > a->size) {
        stitch__report_bounds(x, t->in, t->lane, STITCH__SIM_GLOBAL, address, bytes, true, a,
                              STITCH__SIM_OUT_OF_BOUNDS);
        return;
    }
    stitch__where w = {
        .alloc = a, .offset = address - a->base, .space = STITCH__SIM_GLOBAL, .host = a->host + (address - a->base)};
    if (x->check_global)
        stitch__race_global(x, t->in, a, t->lane, w.offset, bytes, true, t->redop != UINT8_MAX, from);
    if (t->redop != UINT8_MAX)
        reduce(w.host, from, bytes, t->redop, t->rednum);
    else
        memcpy(w.host, from, bytes);
    stitch__mark_init(&w, bytes);
}

static void get_global(stitch__exec *x, const stitch__flight *t, uint64_t address, uint8_t *to, uint32_t bytes)
{
    stitch__sim_alloc *a = stitch__sim_memory_find(x->launch->memory, address);
    if (!a || a->freed || address - a->base + bytes > a->size) {
        stitch__report_bounds(x, t->in, t->lane, STITCH__SIM_GLOBAL, address, bytes, false, a,
                              STITCH__SIM_OUT_OF_BOUNDS);
        return;
    }
    stitch__where w = {.alloc = a, .offset = address - a->base, .space = STITCH__SIM_GLOBAL};
    if (x->check_init && !stitch__is_init(&w, bytes))
        stitch__report_bounds(x, t->in, t->lane, STITCH__SIM_GLOBAL, address, bytes, false, a,
                              STITCH__SIM_UNINITIALISED);
    if (x->check_global)
        stitch__race_global(x, t->in, a, t->lane, w.offset, bytes, false, false, NULL);
    memcpy(to, a->host + w.offset, bytes);
}

static uint8_t map_num(const stitch__sim_tensor_map *map)
{
    static const uint8_t nums[] = {STITCH__U8,  STITCH__U16, STITCH__U32, STITCH__S32, STITCH__U64,
                                   STITCH__S64, STITCH__F16, STITCH__F32, STITCH__F64, STITCH__BF16,
                                   STITCH__F32, STITCH__F32, STITCH__F32};
    return map->dtype < sizeof(nums) ? nums[map->dtype] : STITCH__U32;
}

static void land_tensor(stitch__exec *x, stitch__block *b, stitch__flight *t, const stitch__sim_tensor_map *map)
{
    uint32_t n[5] = {1, 1, 1, 1, 1}, i[5] = {0}, row = 0, inner, at = 0;
    bool load = t->kind == STITCH__FLIGHT_LOAD;
    for (uint32_t d = 0; d < map->rank; d++)
        n[d] = box_count(map, d);
    inner = n[0] * map->elem_size;
    t->rednum = map_num(map);
    for (row = 0; row < n[1] * n[2] * n[3] * n[4]; row++, at += inner) {
        uint64_t address = map->address;
        bool inside = true;
        for (uint32_t d = 1; d < map->rank; d++) {
            int64_t c = (int64_t)t->coord[d] + (int64_t)i[d] * (map->elem_stride[d] ? map->elem_stride[d] : 1);
            inside &= c >= 0 && c <= (int64_t)map->extent[d];
            address += (uint64_t)c * map->stride[d - 1];
        }
        /* Along the innermost dimension only [lo, hi) elements are in the tensor. */
        int64_t c0 = t->coord[0], lo = c0 < 0 ? -c0 : 0, hi = (int64_t)map->extent[0] + 1 - c0;
        if (hi > (int64_t)n[0])
            hi = n[0];
        if (!inside || hi < lo)
            lo = hi = 0;
        uint8_t line[65536];
        if (inner > sizeof(line))
            return;
        uint32_t from = (uint32_t)lo * map->elem_size, bytes = (uint32_t)(hi - lo) * map->elem_size;
        if (load) {
            memset(line, map->fill_nan ? 0xff : 0, inner);
            if (bytes)
                get_global(x, t, address + (uint64_t)((c0 + lo) * map->elem_size), line + from, bytes);
        }
        for (uint32_t k = 0; k < inner; k += 16) {
            uint32_t piece = inner - k < 16 ? inner - k : 16, s = swizzled(map, t->shared + at + k);
            if (s + piece > b->shared_end)
                return;
            if (load)
                memcpy(b->shared + s, line + k, piece);
            else
                memcpy(line + k, b->shared + s, piece);
        }
        if (!load && bytes)
            put_global(x, t, address + (uint64_t)((c0 + lo) * map->elem_size), line + from, bytes);
        for (uint32_t d = 1; d < 5 && ++i[d] == n[d]; d++)
            i[d] = 0;
    }
}

static void land(stitch__exec *x, stitch__block *b, stitch__flight *t)
{
    stitch__where w = {.owner = b, .offset = t->shared, .space = STITCH__SIM_SHARED};
    stitch__warp *warp = x->warp;
    stitch__sim_tensor_map map;
    switch (t->kind) {
    case STITCH__FLIGHT_LOAD:
        if (t->rank) {
            if (!read_map(x, t->in, t->global, t->lane, &map))
                return;
            land_tensor(x, b, t, &map);
        } else {
            get_global(x, t, t->global, b->shared + t->shared, t->bytes);
        }
        stitch__mark_init(&w, t->bytes);
        stitch__race_landed(x, t->in, b, t->by, t->warp, t->lane, t->shared, t->bytes);
        break;
    case STITCH__FLIGHT_SHARED:
        if (t->redop != UINT8_MAX)
            reduce(b->shared + t->shared, t->from->shared + t->from_offset, t->bytes, t->redop, t->rednum);
        else
            memcpy(b->shared + t->shared, t->from->shared + t->from_offset, t->bytes);
        stitch__mark_init(&w, t->bytes);
        stitch__race_landed(x, t->in, b, t->by, t->warp, t->lane, t->shared, t->bytes);
        break;
    case STITCH__FLIGHT_STORE:
        if (x->check_init && !stitch__is_init(&w, t->bytes))
            stitch__report_bounds(x, t->in, t->lane, STITCH__SIM_SHARED, t->shared, t->bytes, false, NULL,
                                  STITCH__SIM_UNINITIALISED);
        if (!t->rank)
            put_global(x, t, t->global, b->shared + t->shared, t->bytes);
        else if (read_map(x, t->in, t->global, t->lane, &map))
            land_tensor(x, b, t, &map);
        break;
    default:
        x->warp = &b->warps[t->warp];
        stitch__copies_apply(x, x->warp, 1u << t->lane, 0, t->seq, false);
        x->warp = warp;
        mbar_complete(x, t->in, t->mbarrier, t->lane, 1, 0);
        return;
    }
    if (t->mbarrier != UINT64_MAX)
        mbar_complete(x, t->in, t->mbarrier, t->lane, 0, -(int32_t)t->bytes);
}

/* Reports name the instruction that issued the copy; it may belong to another function than the running one. */
static void land_as(stitch__exec *x, stitch__block *b, stitch__flight t)
{
    if (t.f == x->frame->f) {
        land(x, b, &t);
        return;
    }
    stitch__frame stand_in = *x->frame, *keep = x->frame;
    stand_in.f = t.f;
    stitch__fn_count *fc = x->fc;
    x->frame = &stand_in;
    x->fc = &x->counts[t.f->index];
    land(x, b, &t);
    x->frame = keep;
    x->fc = fc;
}

static void land_one(stitch__exec *x, stitch__block *b, size_t i)
{
    stitch__flight t = b->bulk[i];
    bool stores = false;
    memmove(&b->bulk[i], &b->bulk[i + 1], (b->bulk_count - i - 1) * sizeof(*b->bulk));
    b->bulk_count--;
    for (size_t k = 0; k < b->bulk_count && !stores; k++)
        stores = b->bulk[k].kind == STITCH__FLIGHT_STORE;
    if (!stores)
        b->slow &= ~(uint32_t)STITCH__SLOW_STORES;
    land_as(x, b, t);
}

/* Does everything that completes on an mbarrier (shared address with the block's rank in front). */
static void flights_land(stitch__exec *x, uint64_t mbarrier)
{
    const stitch__cluster *c = x->block->cluster;
    for (uint32_t k = 0; k < c->count; k++) {
        stitch__block *b = c->blocks[k];
        for (size_t i = 0; i < b->bulk_count;) {
            if (b->bulk[i].mbarrier == mbarrier)
                land_one(x, b, i);
            else
                i++;
        }
    }
}

void stitch__flights_exit(stitch__exec *x)
{
    stitch__block *b = x->block;
    for (size_t i = 0; i < b->bulk_count;) {
        stitch__flight *t = &b->bulk[i];
        if (t->kind != STITCH__FLIGHT_STORE || t->warp != x->warp->index) {
            i++;
            continue;
        }
        if (x->check_sync)
            stitch__report(x, STITCH__SIM_ASYNC_NOT_WAITED, t->in, t->lane, STITCH__SIM_SHARED, t->shared, t->bytes,
                           "the thread ends while a bulk store may still read shared memory");
        land_one(x, b, i);
    }
}

void stitch__flights_overwritten(stitch__exec *x, const stitch__instr *in, const stitch__block *owner, uint32_t lane,
                                 uint32_t offset, uint32_t size)
{
    for (size_t i = 0; i < owner->bulk_count; i++) {
        const stitch__flight *t = &owner->bulk[i];
        if (t->kind != STITCH__FLIGHT_STORE || t->shared >= offset + size || offset >= t->shared + t->bytes)
            continue;
        stitch__pending copy = {.in = t->in, .f = t->f, .block = t->by, .warp = t->warp, .lane = t->lane};
        stitch__report_unwaited(x, in, lane, true, offset, size, &copy,
                                "a bulk store may still read it: cp.async.bulk.wait_group is missing");
        return;
    }
}

static void issue_one(stitch__exec *x, const stitch__instr *in, const stitch__bulk *k, uint32_t lane, uint64_t shared,
                      uint64_t other, uint32_t bytes, uint64_t mbarrier)
{
    stitch__where d, s;
    bool store = k->kind == STITCH__FLIGHT_STORE;
    if (!claim_shared(x, in, shared, bytes, lane, !store, &d))
        return;
    if (k->kind == STITCH__FLIGHT_SHARED && !claim_shared(x, in, other, bytes, lane, false, &s))
        return;
    if (x->check_shared)
        stitch__race_shared(x, in, d.owner, lane, (uint32_t)d.offset, bytes, !store, false);
    if (x->check_shared && k->kind == STITCH__FLIGHT_SHARED)
        stitch__race_shared(x, in, s.owner, lane, (uint32_t)s.offset, bytes, false, false);
    if (k->kind != STITCH__FLIGHT_LOAD) {
        const stitch__where *from = store ? &d : &s;
        stitch__race_proxy(x, in, from->owner, lane, (uint32_t)from->offset, bytes);
    }
    stitch__flight *t = flight_add(x, d.owner);
    if (!t)
        return;
    if (store && x->check_sync)
        d.owner->slow |= STITCH__SLOW_STORES;
    t->kind = k->kind;
    t->rank = k->rank;
    t->redop = k->reduce ? k->redop : UINT8_MAX;
    t->rednum = k->rednum;
    t->bytes = bytes;
    t->warp = x->warp->index;
    t->lane = lane;
    t->group = UINT32_MAX;
    t->by = x->block;
    t->shared = (uint32_t)d.offset;
    t->global = other;
    t->mbarrier = store ? UINT64_MAX : mbarrier;
    if (k->kind == STITCH__FLIGHT_SHARED) {
        t->from = s.owner;
        t->from_offset = (uint32_t)s.offset;
    }
    for (uint32_t i = 0; i < k->rank; i++)
        t->coord[i] = ((const int32_t *)stitch__operand(x, in->more[i]))[lane];
    t->in = in;
    t->f = x->frame->f;
}

int stitch__exec_bulk(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const stitch__bulk *k = in->data;
    const uint64_t *shared = stitch__operand(x, in->o[0]), *other = stitch__operand(x, in->o[1]);
    const uint64_t *mbarrier = in->o[3] ? stitch__operand(x, in->o[3]) : NULL;
    for (uint32_t m = mask; m && !x->rc; m &= m - 1) {
        uint32_t lane = first(m), bytes = k->rank ? 0 : ((const uint32_t *)stitch__operand(x, in->o[2]))[lane];
        uint64_t mb = mbarrier ? mbarrier[lane] : UINT64_MAX;
        if (k->rank) {
            stitch__sim_tensor_map map;
            if (!read_map(x, in, other[lane], lane, &map))
                continue;
            bytes = tile_bytes(&map);
        } else if (bytes % 16 || other[lane] % 16) {
            stitch__report(x, STITCH__SIM_MISALIGNED, in, lane, STITCH__SIM_GLOBAL, other[lane], bytes,
                           "bulk copies need 16-byte addresses and sizes");
            continue;
        }
        if (!bytes)
            continue;
        uint32_t rank = (uint32_t)(shared[lane] >> 24);
        if (mb != UINT64_MAX && mb >> 24 == 0) /* own addresses carry the rank */
            mb |= (uint64_t)x->block->rank << 24;
        if (!k->multicast) {
            issue_one(x, in, k, lane, shared[lane], other[lane], bytes, mb);
            continue;
        }
        uint32_t to = ((const uint32_t *)stitch__operand(x, in->o[4]))[lane] & 0xffff;
        for (; to; to &= to - 1) {
            uint64_t r = first(to);
            if (r >= x->block->cluster->count)
                continue;
            (void)rank;
            issue_one(x, in, k, lane, (shared[lane] & 0xffffff) | r << 24, other[lane], bytes,
                      (mb & 0xffffff) | r << 24);
        }
    }
    return x->rc || x->kill ? STITCH__RUN_KILL : STITCH__RUN_NEXT;
}

int stitch__exec_cpasync_mbar(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const uint64_t *a = stitch__operand(x, in->o[0]);
    for (uint32_t m = mask; m; m &= m - 1) {
        uint32_t lane = first(m);
        stitch__where w;
        if (!find(x, in, (stitch__sim_space)in->space, a[lane], lane, &w))
            continue;
        if (!in->sub) { /* the arrival is one more than those expected */
            uint64_t v;
            memcpy(&v, w.host, 8);
            v = pack(PENDING(v) + 1, EXPECTED(v), TX(v), v >> 63);
            memcpy(w.host, &v, 8);
        }
        stitch__flight *t = flight_add(x, x->block);
        if (!t)
            return STITCH__RUN_KILL;
        t->kind = STITCH__FLIGHT_ARRIVE;
        t->warp = x->warp->index;
        t->lane = lane;
        t->seq = x->warp->copy_seq;
        t->mbarrier = (uint64_t)w.owner->rank << 24 | w.offset;
        t->in = in;
        t->f = x->frame->f;
    }
    stitch__time_release(x, false);
    return STITCH__RUN_NEXT;
}

int stitch__exec_bulk_commit(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__block *b = x->block;
    (void)in;
    for (size_t i = 0; i < b->bulk_count; i++) {
        stitch__flight *t = &b->bulk[i];
        if (t->kind == STITCH__FLIGHT_STORE && t->warp == x->warp->index && mask >> t->lane & 1 &&
            t->group == UINT32_MAX)
            t->group = x->warp->bulk_commits[t->lane];
    }
    for (uint32_t m = mask; m; m &= m - 1)
        x->warp->bulk_commits[first(m)]++;
    return STITCH__RUN_NEXT;
}

int stitch__exec_bulk_wait(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    stitch__block *b = x->block;
    for (size_t i = 0; i < b->bulk_count;) {
        const stitch__flight *t = &b->bulk[i];
        if (t->kind == STITCH__FLIGHT_STORE && t->warp == x->warp->index && mask >> t->lane & 1 &&
            t->group != UINT32_MAX && t->group + (uint64_t)in->imm < x->warp->bulk_commits[t->lane])
            land_one(x, b, i);
        else
            i++;
    }
    return STITCH__RUN_NEXT;
}
