/* SPDX-License-Identifier: MIT
 *
 * An allocator that counts and refuses: its n-th call, and every later one if `for_good`.
 *
 *     meter m = {.refuse_at = 3};
 *     stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &m};
 */
#ifndef STITCH_TESTS_METER_H
#define STITCH_TESTS_METER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct meter {
    _Atomic int64_t calls, refuse_at, live; /* refuse_at -1: none; any thread may allocate */
    bool for_good;
} meter;

static bool meter_refuses(meter *m)
{
    int64_t call = m->calls++, at = m->refuse_at;
    return at >= 0 && (call == at || (m->for_good && call > at));
}

static void *meter_alloc(size_t size, void *userdata)
{
    meter *m = userdata;
    void *ptr = meter_refuses(m) ? NULL : malloc(size);
    m->live += ptr != NULL;
    return ptr;
}

static void *meter_realloc(void *ptr, size_t size, void *userdata)
{
    meter *m = userdata;
    if (!ptr || !size)
        abort(); /* promised never to happen */
    return meter_refuses(m) ? NULL : realloc(ptr, size);
}

static void meter_free(void *ptr, void *userdata)
{
    meter *m = userdata;
    m->live--;
    free(ptr);
}

#endif
