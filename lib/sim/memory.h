/* SPDX-License-Identifier: MIT
 *
 * The simulated device's global memory: named allocations in one device address space, with a record of which bytes
 * were ever written. Implemented by memory.c; the interpreter reads it through stitch__sim_memory_find().
 *
 * Addresses. The interpreter keeps [0, STITCH__SIM_GLOBAL_BASE) for itself: the null page and the windows of shared,
 * local and parameter memory (see sim.h). Allocations lie in [STITCH__SIM_GLOBAL_BASE, STITCH__SIM_GLOBAL_END) and have
 * a gap of at least STITCH__SIM_GUARD bytes on both sides in which nothing lies, so that running over the end of a
 * buffer lands in no other one. Addresses must not depend on anything but the order of the calls: results are
 * reproducible. `base` of an ordinary allocation is a multiple of 256.
 */
#ifndef STITCH_LIB_SIM_MEMORY_H
#define STITCH_LIB_SIM_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stitch/base.h>

#define STITCH__SIM_GLOBAL_BASE UINT64_C(0x1000000000)   /* 64 GiB */
#define STITCH__SIM_GLOBAL_END  UINT64_C(0x7fffffffffff) /* 47 bits */
#define STITCH__SIM_GUARD       UINT64_C(0x100000)       /* 1 MiB */

typedef struct stitch__sim_memory stitch__sim_memory;

/* One allocation. The fields are read by the interpreter without locks while a launch runs; memory.c changes them only
 * between launches. */
typedef struct stitch__sim_alloc {
    uint64_t base; /* device address of the first byte */
    uint64_t size; /* bytes that were asked for: what lies behind is out of bounds */
    uint8_t
        *host;  /* where byte `base` lies on the host; at least 64 readable bytes follow the last one. NULL if freed */
    char *name; /* never NULL; "" if nobody named it */
    uint64_t serial; /* 1, 2, ... in the order of allocation: "allocation 7" where there is no name */
    bool freed;      /* kept as a tombstone, so that use after free can name it */
    bool readonly;   /* constant memory: a store is an error */
    bool managed;    /* owned by a module (a global variable), for words in reports */
    /* Bit i of word i/64: byte was written. NULL: all bytes were. Has one spare word at the end. Set with atomic OR. */
    _Atomic(uint64_t) *init;
    /* The interpreter's record of accesses during one launch, made with calloc(); memory.c frees it with free() when it
     * drops the allocation and otherwise leaves it alone. */
    void *race;
    size_t race_bytes;
    uint64_t race_launch;
} stitch__sim_alloc;

/* The allocation that holds the byte at `address`, live or freed (the newest if several did); NULL if none does.
 * Called by many threads at once while a launch runs; O(log n). */
stitch__sim_alloc *stitch__sim_memory_find(stitch__sim_memory *mem, uint64_t address);
/* The allocations that end before and begin after an address that belongs to none; either may be NULL. For reports. */
void stitch__sim_memory_around(stitch__sim_memory *mem, uint64_t address, stitch__sim_alloc **below,
                               stitch__sim_alloc **above);

int stitch__sim_memory_new(stitch__sim_memory **out, stitch_error **err);
void stitch__sim_memory_free(stitch__sim_memory *mem);
/* size > 0; `align` a power of two (0: 256). Fresh bytes count as never written, whatever they hold. `name` is copied.
 */
int stitch__sim_memory_alloc(stitch__sim_memory *mem, uint64_t size, uint64_t align, const char *name,
                             stitch__sim_alloc **out, stitch_error **err);
/* STITCH_E_INVALID if `address` is not the base of a live allocation. */
int stitch__sim_memory_release(stitch__sim_memory *mem, uint64_t address, stitch_error **err);
int stitch__sim_memory_rename(stitch__sim_memory *mem, uint64_t address, const char *name, stitch_error **err);
/* Bytes [offset, offset + len) of `a` were written (host copies, memset) or are to count as never written. */
void stitch__sim_memory_mark(stitch__sim_alloc *a, uint64_t offset, uint64_t len, bool written);
bool stitch__sim_memory_written(const stitch__sim_alloc *a, uint64_t offset, uint64_t len);

/* ---- for the driver layer ---------------------------------------------------------------------------------------- */

/* A memory whose own addresses lie in [base, end), a part of [STITCH__SIM_GLOBAL_BASE, STITCH__SIM_GLOBAL_END). */
int stitch__sim_memory_new_range(stitch__sim_memory **out, uint64_t base, uint64_t end, stitch_error **err);
/* Releases every allocation, mapping, reservation and tombstone. */
void stitch__sim_memory_reset(stitch__sim_memory *mem);
/* Whether `address` is the base of a live allocation that _alloc() made. */
bool stitch__sim_memory_owned(stitch__sim_memory *mem, uint64_t address);
uint64_t stitch__sim_memory_used(const stitch__sim_memory *mem); /* bytes of live allocations made by _alloc() */

/* Physical memory of the virtual memory calls: counted, may be mapped at several addresses at once, which then share
 * contents and the record of written bytes. */
typedef struct stitch__sim_backing stitch__sim_backing;
stitch__sim_backing *stitch__sim_backing_new(uint64_t size);  /* NULL: out of memory */
void stitch__sim_backing_unref(stitch__sim_backing *backing); /* NULL is ignored */

/* An address range in which only stitch__sim_memory_map() places anything. `fixed`: 0, or the address that is wanted,
 * which is a wish. STITCH_E_NOMEM where no range is left. */
int stitch__sim_memory_reserve(stitch__sim_memory *mem, uint64_t size, uint64_t align, uint64_t fixed,
                               uint64_t *address, stitch_error **err);
/* STITCH_E_INVALID if [address, address + size) is no reservation, STITCH_E_BUSY while something is mapped in it. */
int stitch__sim_memory_unreserve(stitch__sim_memory *mem, uint64_t address, uint64_t size, stitch_error **err);
bool stitch__sim_memory_reserved(const stitch__sim_memory *mem, uint64_t address, uint64_t size);
/* Maps the first `size` bytes of `backing` at `address`, without gaps around it. STITCH_E_BUSY if something lives
 * there. */
int stitch__sim_memory_map(stitch__sim_memory *mem, uint64_t address, uint64_t size, stitch__sim_backing *backing,
                           stitch__sim_alloc **out, stitch_error **err);
/* Makes host memory that the caller owns visible at its own address (page-locked memory). At least 64 readable bytes
 * must follow it. All its bytes count as written. */
int stitch__sim_memory_map_host(stitch__sim_memory *mem, void *host, uint64_t size, const char *name,
                                stitch__sim_alloc **out, stitch_error **err);

/* Copies by device address. Ranges may run over several mappings that touch. False, with nothing done, if a byte of a
 * range is in no live allocation. move() carries over which bytes were written; its ranges may overlap. fill() repeats
 * `count` elements of `elem` (1, 2 or 4) bytes. */
bool stitch__sim_memory_live(stitch__sim_memory *mem, uint64_t address, uint64_t len);
bool stitch__sim_memory_store(stitch__sim_memory *mem, uint64_t address, const void *data, uint64_t len);
bool stitch__sim_memory_load(stitch__sim_memory *mem, uint64_t address, void *data, uint64_t len);
bool stitch__sim_memory_move(stitch__sim_memory *dst_mem, uint64_t dst, stitch__sim_memory *src_mem, uint64_t src,
                             uint64_t len);
bool stitch__sim_memory_fill(stitch__sim_memory *mem, uint64_t address, uint32_t value, unsigned elem, uint64_t count);

#endif
