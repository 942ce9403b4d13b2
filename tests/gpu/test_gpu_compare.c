/* SPDX-License-Identifier: MIT
 *
 * The comparison kernel and the hash kernel against plain loops on the host.
 */
#include <math.h>

#include "compare_one.h"
#include "device.h"
#include "verify/verify.h"

#include "task/convert.h"

static stitch__device *dev;
static stitch__comparator comparator;

static void open_comparator(void)
{
    need_device();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    if (!comparator.dev)
        CHECK_OK(stitch__comparator_open(&comparator, dev, 1, &err));
}

static CUdeviceptr upload(const void *data, size_t bytes)
{
    CUdeviceptr ptr = 0;
    CHECK_OK(stitch__mem_alloc(dev, bytes, "data", &ptr, &err));
    CHECK_INT(dev->drv->MemcpyHtoD(ptr, data, bytes), 0);
    return ptr;
}

static stitch__comparison compare(const void *got, int got_dtype, const void *again, const void *want, int want_dtype,
                                  uint64_t n, double atol, double rtol)
{
    stitch__comparison c;
    CUdeviceptr g = upload(got, n * stitch_dtype_size(got_dtype)), w = upload(want, n * stitch_dtype_size(want_dtype)),
                a = 0;
    if (again)
        a = upload(again, n * stitch_dtype_size(got_dtype));
    const stitch__compared what = {"y", g, a, w, got_dtype, want_dtype, n, atol, rtol};
    CHECK_OK(stitch__compare(&comparator, NULL, NULL, &what, &c, &err));
    stitch__mem_free(dev, g);
    stitch__mem_free(dev, w);
    stitch__mem_free(dev, a);
    return c;
}

TEST(equal_data)
{
    float got[1000];
    double want[1000];
    open_comparator();
    for (int i = 0; i < 1000; i++)
        want[i] = got[i] = (float)(i * 0.37 - 100);
    stitch__comparison c = compare(got, STITCH_DTYPE_F32, got, want, STITCH_DTYPE_F64, 1000, 0, 0);
    CHECK_INT(c.elements, 1000);
    CHECK_INT(c.mismatches, 0);
    CHECK_INT(c.differ, 0);
    CHECK_INT(c.unwritten, 0);
    CHECK(c.first == UINT64_MAX);
    CHECK_NEAR(c.max_abs, 0, 0);
    CHECK_INT(c.finite, 1000);
}

TEST(one_wrong_element)
{
    enum { COUNT = 5000 };
    static float got[COUNT];
    static double want[COUNT];
    open_comparator();
    for (int at = 0; at < COUNT; at += 777) {
        for (int i = 0; i < COUNT; i++)
            want[i] = got[i] = (float)i;
        want[at] += 0.5;
        stitch__comparison c = compare(got, STITCH_DTYPE_F32, NULL, want, STITCH_DTYPE_F64, COUNT, 0.01, 0);
        CHECK_INT(c.mismatches, 1);
        CHECK_INT(c.first, at);
        CHECK_INT(c.last, at);
        CHECK_INT(c.worst, at);
        CHECK_NEAR(c.worst_got.real, at, 0);
        CHECK_NEAR(c.worst_want.real, at + 0.5, 0);
        CHECK_NEAR(c.max_abs, 0.5, 1e-12);
        CHECK_NEAR(c.sum_abs, 0.5, 1e-12);
        CHECK_NEAR(c.worst_key, 50, 1e-9);
    }
}

/* The rules in a plain loop. */
static void check_against_host(const float *got, const double *want, uint64_t n, double atol, double rtol)
{
    stitch__comparison c = compare(got, STITCH_DTYPE_F32, NULL, want, STITCH_DTYPE_F64, n, atol, rtol);
    uint64_t mismatches = 0, first = UINT64_MAX, last = 0, nan_got = 0, nan_want = 0;
    double max_abs = 0, sum = 0, max_rel = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!compare_one(got[i], want[i], atol, rtol)) {
            mismatches++;
            first = first == UINT64_MAX ? i : first;
            last = i;
        }
        nan_got += isnan(got[i]) != 0;
        nan_want += isnan(want[i]) != 0;
        if (isfinite(got[i]) && isfinite(want[i])) {
            double error = fabs(got[i] - want[i]);
            max_abs = error > max_abs ? error : max_abs;
            sum += error;
            if (fabs(want[i]) > atol && error / fabs(want[i]) > max_rel)
                max_rel = error / fabs(want[i]);
        }
    }
    CHECK_INT(c.mismatches, mismatches);
    CHECK(c.first == first);
    CHECK_INT(c.last, last);
    CHECK_INT(c.nan_got, nan_got);
    CHECK_INT(c.nan_want, nan_want);
    CHECK_NEAR(c.max_abs, max_abs, 0);
    CHECK_NEAR(c.max_rel, max_rel, 1e-12 * max_rel);
    CHECK_NEAR(c.sum_abs, sum, 1e-9 * sum);
}

TEST(random_data_with_specials)
{
    enum { COUNT = 3001 };
    static float got[COUNT];
    static double want[COUNT];
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    stitch_dist normal = {.kind = STITCH_DIST_NORMAL};

    open_comparator();
    info.name = "y";
    info.dtype = STITCH_DTYPE_F32;
    info.elements = COUNT;
    for (uint64_t seed = 0; seed < 4; seed++) {
        CHECK_OK(stitch__generate_host(ctx, &info, &normal, 1, seed, 0, 0, COUNT, got, &err));
        for (int i = 0; i < COUNT; i++)
            want[i] = got[i] * (1 + 1e-3 * (i % 7 - 3));
        got[10] = NAN;
        want[11] = NAN;
        got[12] = NAN, want[12] = NAN;
        got[13] = INFINITY;
        want[14] = -INFINITY;
        got[15] = INFINITY, want[15] = INFINITY;
        got[16] = INFINITY, want[16] = -INFINITY;
        want[17] = 0;
        check_against_host(got, want, COUNT, 1e-4, 1.5e-3);
        check_against_host(got, want, COUNT, 0, 0);
        check_against_host(got, want, 1, 0, 0);
    }
}

TEST(poison_and_repeats)
{
    enum { COUNT = 600 };
    uint8_t a[COUNT * 8], b[COUNT * 8], want[COUNT * 8];
    open_comparator();
    for (int dtype = STITCH_DTYPE_F64; dtype <= STITCH_DTYPE_BOOL; dtype++) {
        size_t size = stitch_dtype_size(dtype);
        memset(a, STITCH__POISON_A, sizeof(a));
        memset(b, STITCH__POISON_B, sizeof(b));
        memset(want, 0, sizeof(want));
        memset(a, 0, 100 * size);                            /* 0 to 99: written, and the same twice */
        memset(b, 0, 110 * size);                            /* 100 to 109: looks like poison in the first run alone */
        memset(b + 590 * size, STITCH__POISON_A, 10 * size); /* poison that was written: the same twice */
        stitch__comparison c = compare(a, dtype, b, want, dtype, COUNT, 0, 0);
        CHECK_INT(c.unwritten, COUNT - 110 - 10);
        CHECK_INT(c.unwritten_first, 110);
        CHECK_INT(c.differ, 10);
        CHECK_INT(c.mismatches, COUNT - 100);
    }
}

TEST(large_integers)
{
    int64_t got[2] = {INT64_MAX - 1, 5}, want[2] = {INT64_MAX, 5};
    open_comparator();
    stitch__comparison c = compare(got, STITCH_DTYPE_I64, NULL, want, STITCH_DTYPE_I64, 2, 0, 0);
    CHECK_INT(c.mismatches, 1); /* the same as doubles */
    CHECK_INT(c.first, 0);
    CHECK(c.first_got.integer == INT64_MAX - 1 && c.first_want.integer == INT64_MAX);
    CHECK(c.worst_got.integer == INT64_MAX - 1 && c.worst_want.integer == INT64_MAX);
    CHECK_NEAR(c.max_abs, 1, 0);
}

/* The ends of their range, and a tolerance that only some are within. */
TEST(distances_of_large_integers)
{
    const int64_t top = INT64_C(1) << 60, got[] = {INT64_MIN, top + 3, top + 4, INT64_MAX, -5},
                  want[] = {INT64_MAX, top, top, INT64_MAX, -5};
    open_comparator();
    stitch__comparison c = compare(got, STITCH_DTYPE_I64, NULL, want, STITCH_DTYPE_I64, 5, 3, 0);
    CHECK_INT(c.mismatches, 2);
    CHECK(c.first == 0 && c.last == 2 && c.worst == 0);
    CHECK(c.worst_got.integer == INT64_MIN && c.worst_want.integer == INT64_MAX);
    CHECK_NEAR(c.max_abs, 0x1p64, 0);
}

/* Where they are is found by the same rule. */
TEST(places_of_large_integers)
{
    enum { ROWS = 8, COLUMNS = 16, COUNT = ROWS * COLUMNS };
    int64_t got[COUNT], want[COUNT];
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    stitch__location where;

    open_comparator();
    info.name = "y";
    info.rank = 2;
    info.shape[0] = ROWS;
    info.shape[1] = COLUMNS;
    info.elements = COUNT;
    for (int i = 0; i < COUNT; i++)
        got[i] = want[i] = (INT64_C(1) << 60) + i;
    got[3 * COLUMNS + 5]++;
    got[6 * COLUMNS + 9]--;
    CUdeviceptr g = upload(got, sizeof(got)), w = upload(want, sizeof(want));
    CHECK_OK(stitch__compare_locate(&comparator, NULL, NULL, &info, g, STITCH_DTYPE_I64, w, STITCH_DTYPE_I64, 0, 0,
                                    &where, &err));
    CHECK(where.low[0] == 3 && where.high[0] == 6 && where.low[1] == 5 && where.high[1] == 9);
    uint64_t found = 0;
    for (int i = 0; i < 64; i++)
        found += where.stretch[i];
    CHECK_INT(found, 2);
    CHECK_OK(stitch__compare_locate(&comparator, NULL, NULL, &info, g, STITCH_DTYPE_I64, w, STITCH_DTYPE_I64, 1, 0,
                                    &where, &err));
    CHECK(where.low[0] > where.high[0]); /* all are within this tolerance */
    stitch__mem_free(dev, g);
    stitch__mem_free(dev, w);
}

TEST(the_same_twice)
{
    enum { COUNT = 100000 };
    static float got[COUNT], want[COUNT];
    open_comparator();
    for (int i = 0; i < COUNT; i++) {
        got[i] = sinf((float)i);
        want[i] = sinf((float)i * 1.0001f);
    }
    stitch__comparison a = compare(got, STITCH_DTYPE_F32, NULL, want, STITCH_DTYPE_F32, COUNT, 1e-3, 1e-3);
    stitch__comparison b = compare(got, STITCH_DTYPE_F32, NULL, want, STITCH_DTYPE_F32, COUNT, 1e-3, 1e-3);
    CHECK(memcmp(&a, &b, sizeof(a)) == 0);
}

TEST(hashes)
{
    enum { COUNT = 40 };
    uint8_t data[COUNT], got[COUNT];
    uint64_t hashes[4], seen[COUNT + 2];
    size_t count = 0;
    CUdeviceptr ptr, copy;
    stitch__hasher hasher;

    open_comparator();
    CHECK_OK(stitch__hasher_open(&hasher, dev, NULL, 4, &err));
    for (int i = 0; i < COUNT; i++)
        data[i] = (uint8_t)(i * 37);
    ptr = upload(data, COUNT);
    memset(got, 0xee, COUNT);
    copy = upload(got, COUNT);
    for (int flip = -2; flip < COUNT; flip++) {
        if (flip >= 0)
            data[flip] ^= 1;
        CHECK_INT(dev->drv->MemcpyHtoD(ptr, data, COUNT), 0);
        CHECK_OK(stitch__hash_clear(&hasher, NULL, 0, 4, &err));
        CHECK_OK(stitch__hash_enqueue(&hasher, NULL, ptr, copy, COUNT - 1, 7, 1, &err)); /* all but the last byte */
        CHECK_OK(stitch__hash_fetch(&hasher, NULL, NULL, "hashing", 4, hashes, &err));
        seen[count++] = hashes[1];
        CHECK(!hashes[0] && !hashes[2] && !hashes[3]);
        CHECK_INT(dev->drv->MemcpyDtoH(got, copy, COUNT), 0);
        CHECK(memcmp(got, data, COUNT - 1) == 0 && got[COUNT - 1] == 0xee);
        if (flip >= 0)
            data[flip] ^= 1;
    }
    CHECK(seen[0] == seen[1]); /* repeatable */
    for (size_t i = 1; i + 1 < count; i++)
        for (size_t j = 1; j < i; j++)
            if (seen[i] == seen[j])
                FAIL("a flipped bit in byte %zu is not noticed", i - 2);
    CHECK(seen[count - 1] == seen[0]);
    /* Two equal words that change places. */
    memset(data, 0, COUNT);
    data[0] = 1;
    CHECK_INT(dev->drv->MemcpyHtoD(ptr, data, COUNT), 0);
    CHECK_OK(stitch__hash_clear(&hasher, NULL, 0, 4, &err));
    CHECK_OK(stitch__hash_enqueue(&hasher, NULL, ptr, 0, COUNT, 7, 0, &err));
    data[0] = 0;
    data[8] = 1;
    CHECK_OK(stitch__hash_fetch(&hasher, NULL, NULL, "hashing", 4, hashes, &err));
    seen[0] = hashes[0];
    CHECK_INT(dev->drv->MemcpyHtoD(ptr, data, COUNT), 0);
    CHECK_OK(stitch__hash_clear(&hasher, NULL, 0, 4, &err));
    CHECK_OK(stitch__hash_enqueue(&hasher, NULL, ptr, 0, COUNT, 7, 0, &err));
    CHECK_OK(stitch__hash_fetch(&hasher, NULL, NULL, "hashing", 4, hashes, &err));
    CHECK(seen[0] != hashes[0]);
    stitch__mem_free(dev, ptr);
    stitch__mem_free(dev, copy);
    stitch__hasher_close(&hasher);
}

TEST_MAIN(RUN(equal_data), RUN(one_wrong_element), RUN(random_data_with_specials), RUN(poison_and_repeats),
          RUN(large_integers), RUN(distances_of_large_integers), RUN(places_of_large_integers), RUN(the_same_twice),
          RUN(hashes))
