/* SPDX-License-Identifier: MIT
 *
 * The library's own kernels of a verification as C functions, for tests on the fake driver.
 */
#ifndef STITCH_TESTS_VERIFY_KERNELS_H
#define STITCH_TESTS_VERIFY_KERNELS_H

#include <math.h>

#include "check.h"
#include "compare_one.h"
#include "fake_driver.h"
#include "verify/verify.h"

#include "task/convert.h"
#include "task/draw.h"

#define PTR(i)      (*(void **)params[i])
#define VALUE(t, i) (*(t *)params[i])

static void run_generate(void **params)
{
    uint32_t c[4];
    for (uint64_t i = 0; i < VALUE(uint64_t, 1); i++) {
        stitch_words(VALUE(uint64_t, 7), VALUE(uint32_t, 8), i / 2, c);
        stitch_store(PTR(0), i, VALUE(int, 2),
                     stitch_value(c, i, VALUE(int, 3), VALUE(double, 4), VALUE(double, 5), VALUE(uint64_t, 9),
                                  VALUE(uint64_t, 10)) *
                         VALUE(double, 6));
    }
}

static uint64_t bits_at(const void *data, uint64_t i, size_t size)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)data + i * size, size);
    return bits;
}

static void run_compare(void **params)
{
    stitch__comparison *r = PTR(11);
    size_t size = (size_t)VALUE(int, 2);
    double atol = VALUE(double, 7), rtol = VALUE(double, 8);

    memset(r, 0, sizeof(*r));
    r->first = r->worst = r->unwritten_first = UINT64_MAX;
    for (uint64_t i = 0; i < VALUE(uint64_t, 6); i++) {
        double got = stitch_load(PTR(0), i, VALUE(int, 1)), want = stitch_load(PTR(4), i, VALUE(int, 5)),
               error = fabs(got - want);
        bool unwritten =
            bits_at(PTR(0), i, size) == VALUE(uint64_t, 9) &&
            (PTR(3) ? bits_at(PTR(3), i, size) == VALUE(uint64_t, 10) : !compare_one(got, want, atol, rtol));
        r->elements++;
        r->unwritten += unwritten;
        r->unwritten_first = unwritten && r->unwritten_first == UINT64_MAX ? i : r->unwritten_first;
        r->differ += PTR(3) && !unwritten && bits_at(PTR(0), i, size) != bits_at(PTR(3), i, size);
        r->nan_got += isnan(got) != 0;
        if (!compare_one(got, want, atol, rtol)) {
            r->mismatches++;
            r->last = i;
            if (r->first == UINT64_MAX) {
                r->first = r->worst = i;
                r->first_got.real = r->worst_got.real = got;
                r->first_want.real = r->worst_want.real = want;
            }
        }
        if (isfinite(error)) {
            r->finite++;
            r->sum_abs += error;
            r->max_abs = error > r->max_abs ? error : r->max_abs;
        }
    }
}

static void run_fold(void **params)
{
    memcpy(PTR(2), PTR(0), sizeof(stitch__comparison));
}

static void run_locate(void **params)
{
    stitch__location *where = PTR(8);
    for (uint64_t i = 0; i < VALUE(uint64_t, 4); i++) {
        if (compare_one(stitch_load(PTR(0), i, VALUE(int, 1)), stitch_load(PTR(2), i, VALUE(int, 3)), VALUE(double, 5),
                        VALUE(double, 6)))
            continue;
        where->low[0] = i < where->low[0] ? i : where->low[0];
        where->high[0] = i > where->high[0] ? i : where->high[0];
        where->stretch[i * 64 / VALUE(uint64_t, 4)]++;
    }
}

static void run_hash(void **params)
{
    const unsigned char *data = PTR(0);
    uint64_t h = VALUE(uint64_t, 3), bytes = VALUE(uint64_t, 2);
    for (uint64_t i = 0; i < bytes; i++)
        h = (h ^ data[i]) * 0x100000001b3u;
    if (PTR(1))
        memcpy(PTR(1), data, bytes);
    *(uint64_t *)PTR(4) += h;
}

/* Rows of a table of kernels, and the sizes of their parameters in the same order. */
#define VERIFY_KERNELS                                                                                                 \
    {"stitch_generate", 11, NULL, run_generate, 1, 0}, {"stitch_compare", 12, NULL, run_compare, 1, 0},                \
        {"stitch_compare_fold", 3, NULL, run_fold, 1, 0}, {"stitch_hash", 5, NULL, run_hash, 1, 0},                    \
    {                                                                                                                  \
        "stitch_locate", 9, NULL, run_locate, 1, 0                                                                     \
    }
#define VERIFY_KERNEL_SIZES                                                                                            \
    {8, 8, 4, 4, 8, 8, 8, 8, 4, 8, 8}, {8, 4, 4, 8, 8, 4, 8, 8, 8, 8, 8, 8}, {8, 4, 8}, {8, 8, 8, 8, 8},               \
    {                                                                                                                  \
        8, 4, 8, 4, 8, 8, 8, 72, 8                                                                                     \
    }

#endif
