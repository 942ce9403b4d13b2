/* SPDX-License-Identifier: MIT
 *
 * The simulated device's memory: addresses, lookup, tombstones, the record of written bytes, mappings, copies.
 */
#include "base/base.h"
#include "check.h"
#include "sim/memory.h"

static stitch__sim_memory *make(void)
{
    stitch_error *err = NULL;
    stitch__sim_memory *mem;
    CHECK_OK(stitch__sim_memory_new(&mem, &err));
    return mem;
}

static stitch__sim_alloc *alloc(stitch__sim_memory *mem, uint64_t size, const char *name)
{
    stitch_error *err = NULL;
    stitch__sim_alloc *a;
    CHECK_OK(stitch__sim_memory_alloc(mem, size, 0, name, &a, &err));
    return a;
}

TEST(addresses)
{
    stitch__sim_memory *mem = make(), *again = make();
    for (int i = 0; i < 20; i++) {
        uint64_t size = 1 + (uint64_t)i * 777;
        stitch__sim_alloc *a = alloc(mem, size, "x"), *b = alloc(again, size, "x");
        CHECK(a->base == b->base); /* depend on the order of calls alone */
        CHECK(a->base % 256 == 0 && a->base >= STITCH__SIM_GLOBAL_BASE);
        CHECK_INT(a->size, size);
        stitch__sim_alloc *below, *above;
        stitch__sim_memory_around(mem, a->base - 1, &below, &above);
        CHECK(above == a);
        CHECK(!below || a->base - (below->base + below->size) >= STITCH__SIM_GUARD);
    }
    CHECK(stitch__sim_memory_used(mem) == 20 + 777 * 190);
    stitch__sim_memory_free(mem);
    stitch__sim_memory_free(again);
}

TEST(bad_arguments)
{
    stitch_error *err = NULL;
    stitch__sim_alloc *a;
    stitch__sim_memory *mem = make(), *other;
    CHECK_ERR(stitch__sim_memory_alloc(mem, 0, 0, "", &a, &err), STITCH_E_INVALID, "0 bytes");
    CHECK_ERR(stitch__sim_memory_alloc(mem, 8, 3, "", &a, &err), STITCH_E_INVALID, "aligned to 3");
    CHECK_ERR(stitch__sim_memory_alloc(mem, UINT64_MAX - 5, 0, "", &a, &err), STITCH_E_NOMEM, "addresses");
    CHECK_ERR(stitch__sim_memory_alloc(mem, UINT64_C(1) << 46, 0, "", &a, &err), STITCH_E_NOMEM, "");
    CHECK(a == NULL);
    CHECK_ERR(stitch__sim_memory_release(mem, 12345, &err), STITCH_E_INVALID, "0x3039");
    CHECK_ERR(stitch__sim_memory_rename(mem, 12345, "x", &err), STITCH_E_INVALID, "0x3039");
    CHECK_ERR(stitch__sim_memory_new_range(&other, 0, 100, &err), STITCH_E_INVALID, "range");
    stitch__sim_memory_free(mem);
    stitch__sim_memory_free(NULL);
}

TEST(alignment_and_slack)
{
    stitch_error *err = NULL;
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a;
    CHECK_OK(stitch__sim_memory_alloc(mem, 100, 1 << 21, "big", &a, &err));
    CHECK_INT(a->base % (1 << 21), 0);
    volatile uint8_t sum = 0;
    for (int i = 0; i < 164; i++) /* readable past the end, the sanitizer would tell */
        sum = (uint8_t)(sum + a->host[i]);
    CHECK_INT(sum, 0);
    stitch__sim_memory_free(mem);
}

TEST(find_is_right_everywhere)
{
    enum { N = 300 };
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *all[N];
    for (int i = 0; i < N; i++)
        all[i] = alloc(mem, 64 + (uint64_t)i * 5000, "");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            stitch__sim_alloc *a = all[(i * 7) % N];
            CHECK(stitch__sim_memory_find(mem, a->base) == a);
            CHECK(stitch__sim_memory_find(mem, a->base + a->size - 1) == a);
            CHECK(stitch__sim_memory_find(mem, a->base + a->size / 2) == a);
            CHECK(stitch__sim_memory_find(mem, a->base - 1) == NULL);
            CHECK(stitch__sim_memory_find(mem, a->base + a->size) == NULL);
        }
    }
    CHECK(stitch__sim_memory_find(mem, 0) == NULL);
    CHECK(stitch__sim_memory_find(mem, UINT64_MAX) == NULL);
    stitch__sim_memory_free(mem);
}

TEST(tombstones)
{
    stitch_error *err = NULL;
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a = alloc(mem, 1000, "weights");
    uint64_t base = a->base;
    CHECK(stitch__sim_memory_owned(mem, base));
    CHECK_OK(stitch__sim_memory_release(mem, base, &err));
    CHECK_INT(stitch__sim_memory_used(mem), 0);
    stitch__sim_alloc *gone = stitch__sim_memory_find(mem, base + 999);
    CHECK(gone && gone->freed && !gone->host && !gone->init);
    CHECK_STR(gone->name, "weights");
    CHECK(!stitch__sim_memory_owned(mem, base));
    CHECK(!stitch__sim_memory_live(mem, base, 1));
    CHECK_ERR(stitch__sim_memory_release(mem, base, &err), STITCH_E_INVALID, "not the start of a live");
    for (int i = 0; i < 5000; i++) { /* old ones are forgotten, new ones are not */
        stitch__sim_alloc *b = alloc(mem, 10, "temp");
        CHECK(b->base > base);
        base = b->base;
        CHECK_OK(stitch__sim_memory_release(mem, base, &err));
    }
    CHECK(stitch__sim_memory_find(mem, base)->freed);
    CHECK(stitch__sim_memory_find(mem, STITCH__SIM_GLOBAL_BASE + STITCH__SIM_GUARD) == NULL);
    stitch__sim_memory_free(mem);
}

TEST(addresses_come_back_when_all_are_used)
{
    stitch_error *err = NULL;
    stitch__sim_memory *mem;
    uint64_t base = STITCH__SIM_GLOBAL_BASE, range = 64 * STITCH__SIM_GUARD;
    CHECK_OK(stitch__sim_memory_new_range(&mem, base, base + range, &err));
    stitch__sim_alloc *keep = alloc(mem, 100, "keep"), *a;
    uint64_t kept = keep->base;
    for (int i = 0; i < 500; i++) {
        CHECK_OK(stitch__sim_memory_alloc(mem, 1 << 20, 0, "t", &a, &err));
        CHECK(a->base >= base && a->base + a->size <= base + range);
        CHECK(stitch__sim_memory_find(mem, kept) == keep && !keep->freed);
        CHECK_OK(stitch__sim_memory_release(mem, a->base, &err));
    }
    int live = 0;
    while (stitch__sim_memory_alloc(mem, 1 << 20, 0, "t", &a, NULL) == STITCH_OK)
        live++;
    CHECK(live > 15 && live < 64);
    CHECK_ERR(stitch__sim_memory_alloc(mem, 1 << 20, 0, "t", &a, &err), STITCH_E_NOMEM, "no device addresses");
    stitch__sim_memory_free(mem);
}

TEST(names)
{
    stitch_error *err = NULL;
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a = alloc(mem, 100, NULL);
    CHECK_STR(a->name, "");
    CHECK_INT(a->serial, 1);
    CHECK_OK(stitch__sim_memory_rename(mem, a->base + 50, "h", &err));
    CHECK_STR(a->name, "h");
    CHECK_INT(alloc(mem, 1, "y")->serial, 2);
    stitch__sim_memory_free(mem);
}

/* Every span of a small allocation, against an array of flags. */
TEST(written_bytes)
{
    enum { SIZE = 150 };
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a = alloc(mem, SIZE, "");
    bool want[SIZE] = {false};
    uint32_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        seed = seed * 1664525 + 1013904223;
        uint32_t at = (seed >> 8) % SIZE, len = (seed >> 16) % (SIZE - at + 1);
        bool to = (seed >> 30) & 1;
        stitch__sim_memory_mark(a, at, len, to);
        for (uint32_t i = at; i < at + len; i++)
            want[i] = to;
        at = (seed >> 4) % SIZE;
        len = (seed >> 11) % (SIZE - at + 1);
        bool all = true;
        for (uint32_t i = at; i < at + len; i++)
            all = all && want[i];
        CHECK(stitch__sim_memory_written(a, at, len) == all);
        for (uint32_t i = 0; i < SIZE; i++)
            CHECK(stitch__sim_memory_written(a, i, 1) == want[i]);
    }
    stitch__sim_memory_free(mem);
}

TEST(store_load_fill)
{
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a = alloc(mem, 10000, "");
    uint8_t data[300], back[300];
    for (int i = 0; i < 300; i++)
        data[i] = (uint8_t)(i * 13);
    CHECK(stitch__sim_memory_store(mem, a->base + 77, data, 300));
    CHECK(!stitch__sim_memory_written(a, 76, 1) && stitch__sim_memory_written(a, 77, 300) &&
          !stitch__sim_memory_written(a, 377, 1));
    CHECK(stitch__sim_memory_load(mem, a->base + 77, back, 300));
    CHECK(memcmp(data, back, 300) == 0);
    CHECK(!stitch__sim_memory_store(mem, a->base + 9701, data, 300));
    CHECK(!stitch__sim_memory_load(mem, a->base + 9701, back, 300));
    CHECK(!stitch__sim_memory_store(mem, a->base - 1, data, 300));
    CHECK(stitch__sim_memory_store(mem, a->base + 9700, data, 300));
    CHECK(stitch__sim_memory_live(mem, 5, 0)); /* nothing is everywhere */

    CHECK(stitch__sim_memory_fill(mem, a->base + 4, 0x3f800001, 4, 2499));
    CHECK(!stitch__sim_memory_fill(mem, a->base + 4, 0x3f800001, 4, 2500));
    CHECK(!stitch__sim_memory_fill(mem, a->base, 1, 4, UINT64_MAX / 2));
    for (int i = 1; i < 2500; i++)
        CHECK(memcmp(a->host + 4 * i, "\x01\x00\x80\x3f", 4) == 0);
    CHECK(stitch__sim_memory_fill(mem, a->base + 2, 0xabcd, 2, 4999));
    CHECK(a->host[2] == 0xcd && a->host[3] == 0xab && a->host[9999] == 0xab);
    CHECK(stitch__sim_memory_fill(mem, a->base, 0x1ff, 1, 10000));
    CHECK(a->host[0] == 0xff && a->host[9999] == 0xff);
    stitch__sim_memory_free(mem);
}

/* Overlapping and unaligned moves carry bytes and their record, as memmove would. */
TEST(move)
{
    enum { SIZE = 20000 };
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a = alloc(mem, SIZE, "");
    static uint8_t bytes[SIZE], flags[SIZE];
    uint32_t seed = 7;
    for (int i = 0; i < SIZE; i++) {
        seed = seed * 1664525 + 1013904223;
        a->host[i] = bytes[i] = (uint8_t)(seed >> 24);
        flags[i] = (seed >> 13) & 1;
        stitch__sim_memory_mark(a, (uint64_t)i, 1, flags[i]);
    }
    static const int moves[][3] = {{0, 1, 19999},     {1, 0, 19999},   {100, 4196, 9000},
                                   {4196, 100, 9000}, {5, 5, 100},     {10000, 63, 5000},
                                   {64, 15000, 5000}, {0, 8192, 8192}, {3, 9, 4}};
    for (size_t m = 0; m < STITCH__COUNT(moves); m++) {
        int from = moves[m][0], to = moves[m][1], len = moves[m][2];
        CHECK(stitch__sim_memory_move(mem, a->base + (uint64_t)to, mem, a->base + (uint64_t)from, (uint64_t)len));
        memmove(bytes + to, bytes + from, (size_t)len);
        memmove(flags + to, flags + from, (size_t)len);
        CHECK(memcmp(a->host, bytes, SIZE) == 0);
        for (int i = 0; i < SIZE; i++)
            CHECK(stitch__sim_memory_written(a, (uint64_t)i, 1) == flags[i]);
    }
    CHECK(!stitch__sim_memory_move(mem, a->base + 1, mem, a->base, SIZE));
    stitch__sim_memory_free(mem);
}

TEST(mappings)
{
    enum { PAGE = 2 << 20 };
    stitch_error *err = NULL;
    stitch__sim_memory *mem = make();
    uint64_t at, other;
    CHECK_OK(stitch__sim_memory_reserve(mem, 4 * PAGE, PAGE, 0, &at, &err));
    CHECK_INT(at % PAGE, 0);
    CHECK_OK(stitch__sim_memory_reserve(mem, PAGE, PAGE, at, &other, &err)); /* the wish is taken already */
    CHECK(other >= at + 4 * PAGE || other + PAGE <= at);
    CHECK(stitch__sim_memory_reserved(mem, at + PAGE, PAGE) && !stitch__sim_memory_reserved(mem, at + PAGE, 4 * PAGE));
    stitch__sim_alloc *a = alloc(mem, 100, "elsewhere");
    CHECK(a->base + 100 <= at || a->base >= at + 4 * PAGE);

    stitch__sim_backing *one = stitch__sim_backing_new(PAGE), *two = stitch__sim_backing_new(PAGE);
    stitch__sim_alloc *m1, *m2, *m3;
    CHECK_ERR(stitch__sim_memory_map(mem, a->base, PAGE, one, &m1, &err), STITCH_E_INVALID, "reservation");
    CHECK_OK(stitch__sim_memory_map(mem, at, PAGE, one, &m1, &err));
    CHECK_ERR(stitch__sim_memory_map(mem, at, PAGE, two, &m2, &err), STITCH_E_BUSY, "already mapped");
    CHECK_OK(stitch__sim_memory_map(mem, at + PAGE, PAGE, two, &m2, &err));
    CHECK_OK(stitch__sim_memory_map(mem, at + 2 * PAGE, PAGE, one, &m3, &err)); /* the first one again */
    CHECK(!stitch__sim_memory_owned(mem, at));

    /* across the seam of two mappings */
    uint8_t data[64], back[64];
    memset(data, 0x5a, sizeof(data));
    CHECK(stitch__sim_memory_store(mem, at + PAGE - 32, data, 64));
    CHECK(stitch__sim_memory_load(mem, at + PAGE - 32, back, 64) && memcmp(data, back, 64) == 0);
    CHECK(stitch__sim_memory_written(m2, 0, 32) && !stitch__sim_memory_written(m2, 32, 1));
    CHECK(m3->host[PAGE - 1] == 0x5a && stitch__sim_memory_written(m3, PAGE - 32, 32)); /* the same memory */
    CHECK(stitch__sim_memory_fill(mem, at + PAGE - 6, 0x11223344, 4, 3));
    CHECK(m2->host[0] == 0x22 && m2->host[1] == 0x11 && m2->host[2] == 0x44);
    CHECK(stitch__sim_memory_move(mem, at + PAGE - 10, mem, at + PAGE - 6, 12));
    CHECK(m1->host[PAGE - 10] == 0x44 && m2->host[1] == 0x11);
    CHECK(!stitch__sim_memory_store(mem, at + 3 * PAGE - 1, data, 2));

    CHECK_ERR(stitch__sim_memory_unreserve(mem, at, 4 * PAGE, &err), STITCH_E_BUSY, "still mapped");
    CHECK_OK(stitch__sim_memory_release(mem, at, &err));
    CHECK(stitch__sim_memory_find(mem, at)->freed);
    CHECK_OK(stitch__sim_memory_map(mem, at, PAGE, two, &m1, &err)); /* takes the tombstone's place */
    CHECK(m1->host == m2->host);
    for (int i = 0; i < 3; i++)
        CHECK_OK(stitch__sim_memory_release(mem, at + (uint64_t)i * PAGE, &err));
    CHECK_ERR(stitch__sim_memory_unreserve(mem, at, PAGE, &err), STITCH_E_INVALID, "no");
    CHECK_OK(stitch__sim_memory_unreserve(mem, at, 4 * PAGE, &err));
    stitch__sim_backing_unref(one);
    stitch__sim_backing_unref(two);
    stitch__sim_backing_unref(NULL);
    stitch__sim_memory_free(mem);
}

TEST(host_memory)
{
    stitch_error *err = NULL;
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a;
    static uint8_t small[10];
    uint8_t *block = malloc(4096);
    CHECK(block);
    memset(block, 3, 4096);
    CHECK_OK(stitch__sim_memory_map_host(mem, block, 4000, "pinned", &a, &err));
    CHECK(a->base == (uintptr_t)block && a->host == block && stitch__sim_memory_written(a, 0, 4000));
    CHECK_ERR(stitch__sim_memory_map_host(mem, block + 8, 100, "", &a, &err), STITCH_E_BUSY, "already");
    CHECK_ERR(stitch__sim_memory_map_host(mem, small, 0, "", &a, &err), STITCH_E_INVALID, "");
    CHECK_OK(stitch__sim_memory_release(mem, (uintptr_t)block, &err));
    CHECK_INT(block[0], 3); /* the caller's, and still there */
    stitch__sim_memory_free(mem);
    free(block);
}

TEST(reset)
{
    stitch__sim_memory *mem = make();
    stitch__sim_alloc *a = alloc(mem, 100, "x");
    uint64_t old = a->base;
    a->race = calloc(1, 100); /* as the interpreter does; must not leak */
    stitch__sim_memory_reset(mem);
    CHECK(stitch__sim_memory_find(mem, old) == NULL);
    CHECK_INT(stitch__sim_memory_used(mem), 0);
    CHECK(alloc(mem, 100, "y")->base != old); /* stale pointers do not come alive again */
    stitch__sim_memory_free(mem);
}

TEST_MAIN(RUN(addresses), RUN(bad_arguments), RUN(alignment_and_slack), RUN(find_is_right_everywhere), RUN(tombstones),
          RUN(addresses_come_back_when_all_are_used), RUN(names), RUN(written_bytes), RUN(store_load_fill), RUN(move),
          RUN(mappings), RUN(host_memory), RUN(reset))
