/* SPDX-License-Identifier: MIT
 *
 * The simulated device's global memory: where allocations lie and what was freed. memory_bytes.c has their contents.
 *
 * Allocations, live and freed, are kept in one array sorted by address; they never overlap. Addresses are handed out
 * upwards and come back into use only when the range is exhausted, so that a stale pointer keeps naming the buffer that
 * it once belonged to. Lookups go through a small table of hints first: gaps between allocations are at least as large
 * as the granule of the hint, so that a granule nearly always belongs to one allocation.
 */
#include <stdlib.h>

#include "base/base.h"
#include "sim/memory.h"

enum {
    HINTS = 256,
    HINT_SHIFT = 20,
    TOMBSTONES = 1024, /* freed allocations that are remembered */
    SLACK = 64,        /* readable bytes behind an allocation */
};

struct stitch__sim_backing {
    atomic_uint refs;
    uint64_t size;
    uint8_t *host;
    _Atomic(uint64_t) *init; /* NULL: all written */
    bool foreign;            /* host belongs to someone else */
};

/* The public part comes first, so that a stitch__sim_alloc * is an entry *. */
typedef struct entry {
    stitch__sim_alloc a;
    stitch__sim_backing *backing; /* NULL once freed */
    uint64_t freed_at;            /* order of freeing */
    bool counted;                 /* in `used` */
} entry;

typedef struct range {
    uint64_t base, size;
} range;

struct stitch__sim_memory {
    uint64_t base, end;
    uint64_t cursor; /* where the next allocation is tried */
    uint64_t serial, free_serial, used;
    entry **entries; /* sorted by base */
    size_t count, cap, tombstones;
    range *reserved;
    size_t reserved_count, reserved_cap;
    _Atomic(stitch__sim_alloc *) hints[HINTS];
};

/* ---- backing memory ---------------------------------------------------------------------------------------------- */

static size_t init_words(uint64_t size)
{
    return (size_t)(size / 64 + 2); /* one for the last bits, one spare */
}

/* calloc() and not stitch__calloc(): fresh pages of large blocks then cost nothing until they are touched. */
stitch__sim_backing *stitch__sim_backing_new(uint64_t size)
{
    if (size > (UINT64_C(1) << 39)) /* more than any device has, less than address sanitizers refuse to look at */
        return NULL;
    stitch__sim_backing *b = stitch__calloc(NULL, 1, sizeof(*b));
    if (!b)
        return NULL;
    b->host = calloc(1, (size_t)size + SLACK);
    b->init = calloc(init_words(size), sizeof(*b->init));
    if (!b->host || !b->init) {
        free(b->host);
        free(b->init);
        stitch_free(b);
        return NULL;
    }
    b->size = size;
    atomic_init(&b->refs, 1);
    return b;
}

void stitch__sim_backing_unref(stitch__sim_backing *b)
{
    if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
        return;
    if (!b->foreign)
        free(b->host);
    free(b->init);
    stitch_free(b);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static size_t hint_slot(uint64_t address)
{
    uint64_t granule = address >> HINT_SHIFT;
    return (size_t)((granule ^ (granule >> 8) ^ (granule >> 16)) % HINTS);
}

static void forget_hints(stitch__sim_memory *mem)
{
    for (size_t i = 0; i < HINTS; i++)
        atomic_store_explicit(&mem->hints[i], NULL, memory_order_relaxed);
}

/* Index of the first entry with base > address. */
static size_t upper(const stitch__sim_memory *mem, uint64_t address)
{
    size_t lo = 0, hi = mem->count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (mem->entries[mid]->a.base > address)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

stitch__sim_alloc *stitch__sim_memory_find(stitch__sim_memory *mem, uint64_t address)
{
    size_t slot = hint_slot(address);
    stitch__sim_alloc *a = atomic_load_explicit(&mem->hints[slot], memory_order_relaxed);
    if (a && address - a->base < a->size)
        return a;
    size_t i = upper(mem, address);
    if (i == 0)
        return NULL;
    a = &mem->entries[i - 1]->a;
    if (address - a->base >= a->size)
        return NULL;
    atomic_store_explicit(&mem->hints[slot], a, memory_order_relaxed);
    return a;
}

void stitch__sim_memory_around(stitch__sim_memory *mem, uint64_t address, stitch__sim_alloc **below,
                               stitch__sim_alloc **above)
{
    size_t i = upper(mem, address);
    *below = i > 0 ? &mem->entries[i - 1]->a : NULL;
    *above = i < mem->count ? &mem->entries[i]->a : NULL;
}

static void entry_free(entry *e)
{
    if (!e)
        return;
    stitch__sim_backing_unref(e->backing);
    free(e->a.race);
    stitch_free(e->a.name);
    stitch_free(e);
}

static void remove_at(stitch__sim_memory *mem, size_t i)
{
    entry *e = mem->entries[i];
    if (e->a.freed)
        mem->tombstones--;
    memmove(&mem->entries[i], &mem->entries[i + 1], (mem->count - i - 1) * sizeof(*mem->entries));
    mem->count--;
    forget_hints(mem);
    entry_free(e);
}

static bool drop_oldest_tombstone(stitch__sim_memory *mem)
{
    size_t oldest = SIZE_MAX;
    for (size_t i = 0; i < mem->count; i++) {
        if (mem->entries[i]->a.freed &&
            (oldest == SIZE_MAX || mem->entries[i]->freed_at < mem->entries[oldest]->freed_at))
            oldest = i;
    }
    if (oldest == SIZE_MAX)
        return false;
    remove_at(mem, oldest);
    return true;
}

/* The end of something that overlaps [lo, hi), 0 if nothing does. */
static uint64_t conflict(const stitch__sim_memory *mem, uint64_t lo, uint64_t hi, bool reservations)
{
    size_t i = upper(mem, hi - 1);
    if (i > 0) {
        const stitch__sim_alloc *a = &mem->entries[i - 1]->a;
        if (a->base + a->size > lo)
            return a->base + a->size;
    }
    for (size_t r = 0; reservations && r < mem->reserved_count; r++) {
        if (mem->reserved[r].base < hi && mem->reserved[r].base + mem->reserved[r].size > lo)
            return mem->reserved[r].base + mem->reserved[r].size;
    }
    return 0;
}

/* An address for `size` bytes with a guard on both sides, 0 if there is none. */
static uint64_t place(stitch__sim_memory *mem, uint64_t size, uint64_t align)
{
    if (size > mem->end - mem->base)
        return 0;
    for (;;) {
        uint64_t at = mem->cursor;
        for (int wrapped = 0;;) {
            at = (at + STITCH__SIM_GUARD + align - 1) & ~(align - 1);
            if (at + size + STITCH__SIM_GUARD > mem->end) {
                if (wrapped++)
                    break;
                at = mem->base;
                continue;
            }
            uint64_t end = conflict(mem, at - STITCH__SIM_GUARD, at + size + STITCH__SIM_GUARD, true);
            if (!end) {
                mem->cursor = at + size;
                return at;
            }
            at = end;
        }
        if (!drop_oldest_tombstone(mem))
            return 0;
    }
}

/* Takes the reference on `backing` that the caller holds, also when it fails. */
static int insert(stitch__sim_memory *mem, uint64_t address, uint64_t size, stitch__sim_backing *backing,
                  const char *name, stitch__sim_alloc **out, stitch_error **err)
{
    entry *e = stitch__calloc(NULL, 1, sizeof(*e));
    if (!e) {
        stitch__sim_backing_unref(backing);
        return stitch__err_nomem(NULL, err);
    }
    e->backing = backing;
    e->a.name = stitch__strdup(NULL, name ? name : "");
    if (!e->a.name || stitch__grow(NULL, &mem->entries, &mem->cap, mem->count + 1, sizeof(*mem->entries))) {
        entry_free(e);
        return stitch__err_nomem(NULL, err);
    }
    e->a.base = address;
    e->a.size = size;
    e->a.host = backing->host;
    e->a.init = backing->init;
    e->a.serial = ++mem->serial;
    size_t i = upper(mem, address);
    memmove(&mem->entries[i + 1], &mem->entries[i], (mem->count - i) * sizeof(*mem->entries));
    mem->entries[i] = e;
    mem->count++;
    *out = &e->a;
    return STITCH_OK;
}

/* ---- lifetime ---------------------------------------------------------------------------------------------------- */

int stitch__sim_memory_new_range(stitch__sim_memory **out, uint64_t base, uint64_t end, stitch_error **err)
{
    *out = NULL;
    if (base < STITCH__SIM_GLOBAL_BASE || end > STITCH__SIM_GLOBAL_END || end <= base)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "0x%" PRIx64 " .. 0x%" PRIx64 " is no range of device addresses", base, end);
    stitch__sim_memory *mem = stitch__calloc(NULL, 1, sizeof(*mem));
    if (!mem)
        return stitch__err_nomem(NULL, err);
    mem->base = mem->cursor = base;
    mem->end = end;
    *out = mem;
    return STITCH_OK;
}

int stitch__sim_memory_new(stitch__sim_memory **out, stitch_error **err)
{
    return stitch__sim_memory_new_range(out, STITCH__SIM_GLOBAL_BASE, STITCH__SIM_GLOBAL_END, err);
}

void stitch__sim_memory_reset(stitch__sim_memory *mem)
{
    for (size_t i = 0; i < mem->count; i++)
        entry_free(mem->entries[i]);
    mem->count = mem->tombstones = mem->reserved_count = 0;
    mem->used = 0;
    forget_hints(mem);
}

void stitch__sim_memory_free(stitch__sim_memory *mem)
{
    if (!mem)
        return;
    stitch__sim_memory_reset(mem);
    stitch_free(mem->entries);
    stitch_free(mem->reserved);
    stitch_free(mem);
}

uint64_t stitch__sim_memory_used(const stitch__sim_memory *mem)
{
    return mem->used;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

int stitch__sim_memory_alloc(stitch__sim_memory *mem, uint64_t size, uint64_t align, const char *name,
                             stitch__sim_alloc **out, stitch_error **err)
{
    *out = NULL;
    if (align == 0)
        align = 256;
    if (size == 0 || (align & (align - 1)) != 0)
        return stitch__err(NULL, err, STITCH_E_INVALID, "an allocation of %" PRIu64 " bytes aligned to %" PRIu64, size,
                           align);
    if (align < 256)
        align = 256;
    uint64_t at = place(mem, size, align);
    if (!at)
        return stitch__err(NULL, err, STITCH_E_NOMEM, "no device addresses are left for %" PRIu64 " bytes", size);
    stitch__sim_backing *backing = stitch__sim_backing_new(size);
    if (!backing)
        return stitch__err(NULL, err, STITCH_E_NOMEM, "the host has no memory for a device buffer of %" PRIu64 " bytes",
                           size);
    int rc = insert(mem, at, size, backing, name, out, err);
    if (rc == STITCH_OK) {
        ((entry *)*out)->counted = true;
        mem->used += size;
    }
    return rc;
}

static stitch__sim_alloc *live_base(stitch__sim_memory *mem, uint64_t address)
{
    stitch__sim_alloc *a = stitch__sim_memory_find(mem, address);
    return a && !a->freed && a->base == address ? a : NULL;
}

bool stitch__sim_memory_owned(stitch__sim_memory *mem, uint64_t address)
{
    const stitch__sim_alloc *a = live_base(mem, address);
    return a && ((const entry *)a)->counted;
}

int stitch__sim_memory_release(stitch__sim_memory *mem, uint64_t address, stitch_error **err)
{
    stitch__sim_alloc *a = live_base(mem, address);
    if (!a)
        return stitch__err(NULL, err, STITCH_E_INVALID, "0x%" PRIx64 " is not the start of a live allocation", address);
    entry *e = (entry *)a;
    if (e->counted)
        mem->used -= a->size;
    stitch__sim_backing_unref(e->backing);
    e->backing = NULL;
    free(a->race);
    a->race = NULL;
    a->race_bytes = 0;
    a->host = NULL;
    a->init = NULL;
    a->freed = true;
    e->freed_at = ++mem->free_serial;
    if (++mem->tombstones > TOMBSTONES)
        drop_oldest_tombstone(mem);
    return STITCH_OK;
}

int stitch__sim_memory_rename(stitch__sim_memory *mem, uint64_t address, const char *name, stitch_error **err)
{
    stitch__sim_alloc *a = stitch__sim_memory_find(mem, address);
    if (!a || a->freed)
        return stitch__err(NULL, err, STITCH_E_INVALID, "0x%" PRIx64 " is in no live allocation", address);
    char *copy = stitch__strdup(NULL, name ? name : "");
    if (!copy)
        return stitch__err_nomem(NULL, err);
    stitch_free(a->name);
    a->name = copy;
    return STITCH_OK;
}

/* ---- reservations and mappings ----------------------------------------------------------------------------------- */

int stitch__sim_memory_reserve(stitch__sim_memory *mem, uint64_t size, uint64_t align, uint64_t fixed,
                               uint64_t *address, stitch_error **err)
{
    *address = 0;
    if (align < 256)
        align = 256;
    if (size == 0 || (align & (align - 1)) != 0)
        return stitch__err(NULL, err, STITCH_E_INVALID, "a reservation of %" PRIu64 " bytes aligned to %" PRIu64, size,
                           align);
    if (stitch__grow(NULL, &mem->reserved, &mem->reserved_cap, mem->reserved_count + 1, sizeof(*mem->reserved)))
        return stitch__err_nomem(NULL, err);
    uint64_t at = fixed;
    if (at < mem->base || at % align || size > mem->end - mem->base || at > mem->end - size ||
        conflict(mem, at, at + size, true))
        at = place(mem, size, align);
    if (!at)
        return stitch__err(NULL, err, STITCH_E_NOMEM, "no device addresses are left for %" PRIu64 " bytes", size);
    mem->reserved[mem->reserved_count++] = (range){at, size};
    *address = at;
    return STITCH_OK;
}

static size_t reservation(const stitch__sim_memory *mem, uint64_t address, uint64_t size)
{
    for (size_t i = 0; i < mem->reserved_count; i++) {
        const range *r = &mem->reserved[i];
        if (address >= r->base && address - r->base <= r->size && size <= r->size - (address - r->base))
            return i;
    }
    return SIZE_MAX;
}

bool stitch__sim_memory_reserved(const stitch__sim_memory *mem, uint64_t address, uint64_t size)
{
    return reservation(mem, address, size) != SIZE_MAX;
}

int stitch__sim_memory_unreserve(stitch__sim_memory *mem, uint64_t address, uint64_t size, stitch_error **err)
{
    size_t i = reservation(mem, address, size);
    if (i == SIZE_MAX || mem->reserved[i].base != address || mem->reserved[i].size != size)
        return stitch__err(NULL, err, STITCH_E_INVALID, "0x%" PRIx64 " is not a reservation of %" PRIu64 " bytes",
                           address, size);
    for (size_t e = upper(mem, address + size - 1); e > 0; e--) {
        const stitch__sim_alloc *a = &mem->entries[e - 1]->a;
        if (a->base + a->size <= address)
            break;
        if (!a->freed)
            return stitch__err(NULL, err, STITCH_E_BUSY, "memory is still mapped at 0x%" PRIx64, a->base);
    }
    mem->reserved[i] = mem->reserved[--mem->reserved_count];
    return STITCH_OK;
}

/* Makes room at a fixed address: tombstones give way, live allocations do not. */
static bool clear_range(stitch__sim_memory *mem, uint64_t address, uint64_t size)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = upper(mem, address + size - 1); i > 0; i--) {
            const stitch__sim_alloc *a = &mem->entries[i - 1]->a;
            if (a->base + a->size <= address)
                break;
            if (!a->freed)
                return false;
            if (pass == 1)
                remove_at(mem, i - 1);
        }
    }
    return true;
}

int stitch__sim_memory_map(stitch__sim_memory *mem, uint64_t address, uint64_t size, stitch__sim_backing *backing,
                           stitch__sim_alloc **out, stitch_error **err)
{
    *out = NULL;
    if (size == 0 || size > backing->size || !stitch__sim_memory_reserved(mem, address, size))
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "0x%" PRIx64 " .. + %" PRIu64 " is in no reservation, or larger than the memory to map",
                           address, size);
    if (!clear_range(mem, address, size))
        return stitch__err(NULL, err, STITCH_E_BUSY, "memory is already mapped at 0x%" PRIx64, address);
    atomic_fetch_add(&backing->refs, 1);
    return insert(mem, address, size, backing, "", out, err);
}

int stitch__sim_memory_map_host(stitch__sim_memory *mem, void *host, uint64_t size, const char *name,
                                stitch__sim_alloc **out, stitch_error **err)
{
    *out = NULL;
    uint64_t address = (uintptr_t)host;
    if (size == 0 || address < STITCH__SIM_GLOBAL_BASE || size > STITCH__SIM_GLOBAL_END ||
        address > STITCH__SIM_GLOBAL_END - size)
        return stitch__err(NULL, err, STITCH_E_INVALID, "host memory at 0x%" PRIx64 " has no device address", address);
    if (!clear_range(mem, address, size))
        return stitch__err(NULL, err, STITCH_E_BUSY, "memory is already mapped at 0x%" PRIx64, address);
    stitch__sim_backing *b = stitch__calloc(NULL, 1, sizeof(*b));
    if (!b)
        return stitch__err_nomem(NULL, err);
    b->host = host;
    b->size = size;
    b->foreign = true;
    atomic_init(&b->refs, 1);
    return insert(mem, address, size, b, name, out, err);
}
