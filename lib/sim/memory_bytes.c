/* SPDX-License-Identifier: MIT
 *
 * The simulated device's global memory: copies by device address, and the record of which bytes were written.
 */
#include "base/base.h"
#include "sim/memory.h"

enum { CHUNK = 4096 };

/* ---- which bytes were written ------------------------------------------------------------------------------------ */

/* The 64 bits from bit `pos` on; a word behind the last one is readable. */
static uint64_t get_bits(const stitch__sim_alloc *a, uint64_t pos)
{
    if (!a->init)
        return UINT64_MAX;
    uint64_t lo = atomic_load_explicit(&a->init[pos / 64], memory_order_relaxed);
    if (pos % 64 == 0)
        return lo;
    uint64_t hi = atomic_load_explicit(&a->init[pos / 64 + 1], memory_order_relaxed);
    return lo >> (pos % 64) | hi << (64 - pos % 64);
}

static void put_word(_Atomic(uint64_t) *word, uint64_t mask, uint64_t bits)
{
    if (mask == UINT64_MAX) {
        atomic_store_explicit(word, bits, memory_order_relaxed);
    } else if (mask) {
        atomic_fetch_and_explicit(word, ~mask | bits, memory_order_relaxed);
        atomic_fetch_or_explicit(word, bits & mask, memory_order_relaxed);
    }
}

/* `count` (at most 64) bits from bit `pos` on. */
static void put_bits(stitch__sim_alloc *a, uint64_t pos, uint64_t bits, unsigned count)
{
    unsigned shift = (unsigned)(pos % 64);
    uint64_t mask = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    bits &= mask;
    put_word(&a->init[pos / 64], mask << shift, bits << shift);
    if (shift + count > 64)
        put_word(&a->init[pos / 64 + 1], mask >> (64 - shift), bits >> (64 - shift));
}

void stitch__sim_memory_mark(stitch__sim_alloc *a, uint64_t offset, uint64_t len, bool written)
{
    if (!a->init || a->freed)
        return;
    while (len > 0) {
        unsigned n = (unsigned)(64 - offset % 64);
        if (n > len)
            n = (unsigned)len;
        put_bits(a, offset, written ? UINT64_MAX : 0, n);
        offset += n;
        len -= n;
    }
}

bool stitch__sim_memory_written(const stitch__sim_alloc *a, uint64_t offset, uint64_t len)
{
    if (a->freed)
        return false;
    while (a->init && len > 0) {
        unsigned n = len < 64 ? (unsigned)len : 64;
        uint64_t mask = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        if ((get_bits(a, offset) & mask) != mask)
            return false;
        offset += n;
        len -= n;
    }
    return true;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* The allocation at `address` and how much of `len` lies in it; NULL if the byte is not live. */
static stitch__sim_alloc *span(stitch__sim_memory *mem, uint64_t address, uint64_t len, uint64_t *offset, uint64_t *n)
{
    stitch__sim_alloc *a = stitch__sim_memory_find(mem, address);
    *offset = 0;
    *n = len;
    if (!a || a->freed)
        return NULL;
    *offset = address - a->base;
    *n = a->size - *offset < len ? a->size - *offset : len;
    return a;
}

bool stitch__sim_memory_live(stitch__sim_memory *mem, uint64_t address, uint64_t len)
{
    uint64_t offset, n;
    for (; len > 0; address += n, len -= n) {
        if (!span(mem, address, len, &offset, &n))
            return false;
    }
    return true;
}

bool stitch__sim_memory_store(stitch__sim_memory *mem, uint64_t address, const void *data, uint64_t len)
{
    if (!stitch__sim_memory_live(mem, address, len))
        return false;
    const uint8_t *from = data;
    for (uint64_t offset, n; len > 0; address += n, len -= n, from += n) {
        stitch__sim_alloc *a = span(mem, address, len, &offset, &n);
        memmove(a->host + offset, from, (size_t)n);
        stitch__sim_memory_mark(a, offset, n, true);
    }
    return true;
}

bool stitch__sim_memory_load(stitch__sim_memory *mem, uint64_t address, void *data, uint64_t len)
{
    if (!stitch__sim_memory_live(mem, address, len))
        return false;
    uint8_t *to = data;
    for (uint64_t offset, n; len > 0; address += n, len -= n, to += n) {
        stitch__sim_alloc *a = span(mem, address, len, &offset, &n);
        memmove(to, a->host + offset, (size_t)n);
    }
    return true;
}

/* Bytes and their record, from one allocation to another. */
static void move_span(stitch__sim_alloc *to, uint64_t to_offset, const stitch__sim_alloc *from, uint64_t from_offset,
                      uint64_t n)
{
    memcpy(to->host + to_offset, from->host + from_offset, (size_t)n);
    for (uint64_t i = 0; to->init && i < n; i += 64)
        put_bits(to, to_offset + i, get_bits(from, from_offset + i), n - i < 64 ? (unsigned)(n - i) : 64);
}

/* Every chunk goes through a buffer, so that overlapping ranges and mapping boundaries inside of it cannot matter. */
bool stitch__sim_memory_move(stitch__sim_memory *dst_mem, uint64_t dst, stitch__sim_memory *src_mem, uint64_t src,
                             uint64_t len)
{
    if (!stitch__sim_memory_live(dst_mem, dst, len) || !stitch__sim_memory_live(src_mem, src, len))
        return false;
    uint8_t bytes[CHUNK];
    _Atomic(uint64_t) init[CHUNK / 64 + 2] = {0};
    stitch__sim_alloc buffer = {.size = CHUNK, .host = bytes, .init = init};
    bool backward = dst > src && dst - src < len;
    for (uint64_t done = 0, n; done < len; done += n) {
        n = len - done < CHUNK ? len - done : CHUNK;
        uint64_t at = backward ? len - done - n : done;
        for (uint64_t i = 0, offset, m; i < n; i += m) {
            const stitch__sim_alloc *a = span(src_mem, src + at + i, n - i, &offset, &m);
            move_span(&buffer, i, a, offset, m);
        }
        for (uint64_t i = 0, offset, m; i < n; i += m) {
            stitch__sim_alloc *a = span(dst_mem, dst + at + i, n - i, &offset, &m);
            move_span(a, offset, &buffer, i, m);
        }
    }
    return true;
}

bool stitch__sim_memory_fill(stitch__sim_memory *mem, uint64_t address, uint32_t value, unsigned elem, uint64_t count)
{
    uint64_t len = count * elem;
    if (count > UINT64_MAX / 4 || !stitch__sim_memory_live(mem, address, len))
        return false;
    uint8_t pattern[CHUNK + 4]; /* the spare bytes allow any phase of an element at the start of a mapping */
    for (unsigned i = 0; i < sizeof(pattern); i++)
        pattern[i] = (uint8_t)(value >> (8 * (i % elem)));
    uint64_t phase = 0;
    for (uint64_t offset, n; len > 0; address += n, len -= n, phase += n) {
        stitch__sim_alloc *a = span(mem, address, len, &offset, &n);
        for (uint64_t i = 0; i < n; i += CHUNK)
            memcpy(a->host + offset + i, pattern + phase % 4, (size_t)(n - i < CHUNK ? n - i : CHUNK));
        stitch__sim_memory_mark(a, offset, n, true);
    }
    return true;
}
