/* SPDX-License-Identifier: MIT
 *
 * The data of tensors on the host: the generator against published vectors, the distributions against what they should
 * be, conversions of small floating types against all their values.
 */
#include <math.h>

#include "base/base.h"
#include "check.h"
#include "task/task.h"

#include "task/convert.h"
#include "task/draw.h"

static stitch_context *ctx;
static stitch_error *err;

__attribute__((destructor)) static void release(void)
{
    stitch_error_free(err);
    stitch_context_free(ctx);
}

enum { N = 200000 };

static void make(int dtype, stitch_dist dist, uint64_t seed, uint32_t tensor, void *out)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    info.name = "x";
    info.dtype = dtype;
    info.rank = 1;
    info.shape[0] = N;
    info.elements = N;
    info.bytes = N * stitch_dtype_size(dtype);
    CHECK_OK(stitch__generate_host(ctx, &info, &dist, 1, seed, tensor, 0, N, out, &err));
}

TEST(philox_vectors)
{
    /* Known answers of the authors' library, Random123 */
    static const struct {
        uint32_t c[4], k[2], want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t c[4];
        memcpy(c, rows[i].c, sizeof(c));
        stitch_philox(c, rows[i].k[0], rows[i].k[1]);
        for (int k = 0; k < 4; k++)
            CHECK_INT(c[k], rows[i].want[k]);
    }
}

TEST(own_log_and_cosine)
{
    for (int i = 1; i <= 100000; i++) {
        double x = i / 100000.0;
        CHECK_NEAR(stitch_log(x), log(x), 4e-16 * (1 + fabs(log(x))));
    }
    CHECK_NEAR(stitch_log(0x1p-53), log(0x1p-53), 1e-14);
    CHECK_NEAR(stitch_log(1), 0, 0);
    for (int i = 0; i < 100000; i++) {
        double u = i / 100000.0;
        CHECK_NEAR(stitch_cos_turns(u, 0), cos(2 * M_PI * u), 1e-15);
        CHECK_NEAR(stitch_cos_turns(u, 3), sin(2 * M_PI * u), 1e-15);
    }
}

TEST(normal)
{
    static double x[N];
    double sum = 0, square = 0, third = 0, fourth = 0, next = 0;
    int beyond = 0;
    make(STITCH_DTYPE_F64, (stitch_dist){.kind = STITCH_DIST_NORMAL}, 7, 0, x);
    for (int i = 0; i < N; i++) {
        sum += x[i];
        square += x[i] * x[i];
        third += x[i] * x[i] * x[i];
        fourth += x[i] * x[i] * x[i] * x[i];
        next += i ? x[i] * x[i - 1] : 0;
        beyond += fabs(x[i]) > 1.959963985;
    }
    /* Five standard errors each. */
    CHECK_NEAR(sum / N, 0, 5 / sqrt(N));
    CHECK_NEAR(square / N, 1, 5 * sqrt(2.0 / N));
    CHECK_NEAR(third / N, 0, 5 * sqrt(15.0 / N));
    CHECK_NEAR(fourth / N, 3, 5 * sqrt(96.0 / N));
    CHECK_NEAR(next / N, 0, 5 / sqrt(N));
    CHECK_NEAR((double)beyond / N, 0.05, 5 * sqrt(0.05 * 0.95 / N));
    make(STITCH_DTYPE_F64, (stitch_dist){.kind = STITCH_DIST_NORMAL, .a = 10, .b = 0.5}, 7, 0, x);
    sum = square = 0;
    for (int i = 0; i < N; i++) {
        sum += x[i];
        square += (x[i] - 10) * (x[i] - 10);
    }
    CHECK_NEAR(sum / N, 10, 0.01);
    CHECK_NEAR(square / N, 0.25, 0.01);
}

TEST(uniform)
{
    static float x[N];
    int buckets[10] = {0};
    make(STITCH_DTYPE_F32, (stitch_dist){.kind = STITCH_DIST_UNIFORM, .a = -3, .b = 2}, 1, 5, x);
    for (int i = 0; i < N; i++) {
        CHECK(x[i] >= -3 && x[i] <= 2); /* 2 itself only by rounding to float32 */
        int bucket = (int)((x[i] + 3) / 5 * 10);
        buckets[bucket > 9 ? 9 : bucket]++;
    }
    for (int k = 0; k < 10; k++)
        CHECK_NEAR(buckets[k], N / 10.0, 5 * sqrt(N * 0.09));
}

TEST(integers)
{
    static int32_t x[N];
    static int64_t y[N];
    static uint8_t z[N];
    int count[7] = {0}, ones = 0;
    make(STITCH_DTYPE_I32, (stitch_dist){.kind = STITCH_DIST_RANDINT, .a = -3, .b = 4}, 1, 0, x);
    for (int i = 0; i < N; i++) {
        CHECK(x[i] >= -3 && x[i] < 4);
        count[x[i] + 3]++;
    }
    for (int k = 0; k < 7; k++)
        CHECK_NEAR(count[k], N / 7.0, 5 * sqrt(N / 7.0));
    make(STITCH_DTYPE_I64,
         (stitch_dist){.kind = STITCH_DIST_RANDINT, .a = -9007199254740992.0, .b = 9007199254740992.0}, 1, 0, y);
    int64_t low = 0, high = 0;
    for (int i = 0; i < N; i++) {
        low = y[i] < low ? y[i] : low;
        high = y[i] > high ? y[i] : high;
    }
    CHECK(low < -9000000000000000 && low >= -9007199254740992 && high > 9000000000000000 && high < 9007199254740992);
    make(STITCH_DTYPE_BOOL, (stitch_dist){.kind = STITCH_DIST_BERNOULLI, .a = 0.25}, 1, 0, z);
    for (int i = 0; i < N; i++) {
        CHECK(z[i] <= 1);
        ones += z[i];
    }
    CHECK_NEAR(ones, N * 0.25, 5 * sqrt(N * 0.1875));
    make(STITCH_DTYPE_U8, (stitch_dist){.kind = STITCH_DIST_ARANGE}, 1, 0, z);
    CHECK_INT(z[200], 200);
    CHECK_INT(z[300], 255); /* saturates */
    make(STITCH_DTYPE_I32, (stitch_dist){.kind = STITCH_DIST_ARANGE, .a = 5, .b = -2}, 1, 0, x);
    CHECK_INT(x[0], 5);
    CHECK_INT(x[1000], -1995);
    make(STITCH_DTYPE_I32, (stitch_dist){.kind = STITCH_DIST_CONSTANT, .a = 2.5}, 1, 0, x);
    CHECK_INT(x[N - 1], 2); /* ties to even */
}

TEST(tril_of_a_batch)
{
    float x[2 * 3 * 4];
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    stitch_dist dist = {.kind = STITCH_DIST_TRIL};
    info.name = "mask";
    info.dtype = STITCH_DTYPE_F32;
    info.rank = 3;
    info.shape[0] = 2;
    info.shape[1] = 3;
    info.shape[2] = 4;
    info.elements = 24;
    CHECK_OK(stitch__generate_host(NULL, &info, &dist, 1, 0, 0, 0, 24, x, &err));
    for (int b = 0; b < 2; b++)
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 4; c++)
                CHECK_NEAR(x[(b * 3 + r) * 4 + c], c <= r, 0);
}

TEST(elements_depend_on_seed_tensor_and_index_alone)
{
    static float whole[N], part[N], other[N];
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    stitch_dist dist = {.kind = STITCH_DIST_NORMAL};
    int same = 0;

    make(STITCH_DTYPE_F32, dist, 99, 3, whole);
    info.name = "x";
    info.dtype = STITCH_DTYPE_F32;
    info.elements = N;
    for (uint64_t at = 0; at < N; at += 777) {
        uint64_t count = N - at < 777 ? N - at : 777;
        CHECK_OK(stitch__generate_host(ctx, &info, &dist, 1, 99, 3, at, count, part + at, &err));
    }
    CHECK(memcmp(whole, part, sizeof(whole)) == 0);
    make(STITCH_DTYPE_F32, dist, 100, 3, other);
    for (int i = 0; i < N; i++)
        same += whole[i] == other[i];
    make(STITCH_DTYPE_F32, dist, 99, 4, other);
    for (int i = 0; i < N; i++)
        same += whole[i] == other[i];
    CHECK(same < 20);
    CHECK_ERR(stitch__generate_host(ctx, &info, &dist, 1, 99, 3, N - 1, 2, part, &err), STITCH_E_INVALID, "x");
}

TEST(small_types_round_trip)
{
    for (uint32_t i = 0; i < 65536; i++) {
        double half = stitch_small_to_double(i, 5, 10, 0), brain = stitch_small_to_double(i, 8, 7, 0);
        if (half == half)
            CHECK_INT(stitch_double_to_small(half, 5, 10, 0), i);
        if (brain == brain)
            CHECK_INT(stitch_double_to_small(brain, 8, 7, 0), i);
#ifdef __FLT16_MAX__
        union {
            uint16_t u;
            _Float16 f;
        } v = {.u = (uint16_t)i};
        if (half == half)
            CHECK((double)v.f == half);
#endif
    }
    for (uint32_t i = 0; i < 256; i++) {
        double e4m3 = stitch_small_to_double(i, 4, 3, 1), e5m2 = stitch_small_to_double(i, 5, 2, 0);
        if (e4m3 == e4m3)
            CHECK_INT(stitch_double_to_small(e4m3, 4, 3, 1), i);
        if (e5m2 == e5m2)
            CHECK_INT(stitch_double_to_small(e5m2, 5, 2, 0), i);
    }
    CHECK_NEAR(stitch_small_to_double(0x7e, 4, 3, 1), 448, 0);
    CHECK(isnan(stitch_small_to_double(0x7f, 4, 3, 1)) && isnan(stitch_small_to_double(0xff, 4, 3, 1)));
    CHECK(isinf(stitch_small_to_double(0x7c, 5, 2, 0)) && isnan(stitch_small_to_double(0x7d, 5, 2, 0)));
}

TEST(small_types_round)
{
    /* Ties to even, subnormals, overflow. */
    CHECK_INT(stitch_double_to_small(2049, 5, 10, 0), 0x6800); /* 2048 */
    CHECK_INT(stitch_double_to_small(2051, 5, 10, 0), 0x6802); /* 2052 */
    CHECK_INT(stitch_double_to_small(0x1p-25, 5, 10, 0), 0);   /* half of the smallest: to even */
    CHECK_INT(stitch_double_to_small(0x1.8p-25, 5, 10, 0), 1);
    CHECK_INT(stitch_double_to_small(0x1.000002p-25, 5, 10, 0), 1);
    CHECK_INT(stitch_double_to_small(0x1.ffcp-15 + 0x1p-25, 5, 10, 0),
              0x400); /* carries into the first normal number */
    CHECK_INT(stitch_double_to_small(65519.99, 5, 10, 0), 0x7bff);
    CHECK_INT(stitch_double_to_small(65520, 5, 10, 0), 0x7c00);
    CHECK_INT(stitch_double_to_small(-1e300, 5, 10, 0), 0xfc00);
    CHECK_INT(stitch_double_to_small(1e-320, 5, 10, 0), 0);
    CHECK_INT(stitch_double_to_small(1e9, 4, 3, 1), 0x7e); /* saturates */
    CHECK_INT(stitch_double_to_small(INFINITY, 4, 3, 1), 0x7e);
    CHECK_INT(stitch_double_to_small(464, 4, 3, 1), 0x7e);
    CHECK_INT(stitch_double_to_small(NAN, 4, 3, 1) & 0x7f, 0x7f);
    CHECK(isnan(stitch_small_to_double(stitch_double_to_small(NAN, 5, 10, 0), 5, 10, 0)));
#ifdef __FLT16_MAX__
    for (int i = 0; i < 300000; i++) {
        uint32_t c[4] = {(uint32_t)i, 0, 0, 0};
        stitch_philox(c, 1, 2);
        double x = ldexp((double)(int32_t)c[0], (int)(c[1] % 50) - 60);
        union {
            uint16_t u;
            _Float16 f;
        } v = {.f = (_Float16)x};
        CHECK_INT(stitch_double_to_small(x, 5, 10, 0), v.u);
    }
#endif
}

TEST(integers_round_and_saturate)
{
    CHECK_INT(stitch_double_to_int(0.5, -128, 127), 0);
    CHECK_INT(stitch_double_to_int(1.5, -128, 127), 2);
    CHECK_INT(stitch_double_to_int(-0.5, -128, 127), 0);
    CHECK_INT(stitch_double_to_int(-1.5, -128, 127), -2);
    CHECK_INT(stitch_double_to_int(-2.51, -128, 127), -3);
    CHECK_INT(stitch_double_to_int(1e9, -128, 127), 127);
    CHECK_INT(stitch_double_to_int(-1e9, -128, 127), -128);
    CHECK_INT(stitch_double_to_int(NAN, -128, 127), 0);
    CHECK_INT(stitch_double_to_int(1e300, INT64_MIN, INT64_MAX), INT64_MAX);
    CHECK_INT(stitch_double_to_int(-1e300, INT64_MIN, INT64_MAX), INT64_MIN);
    CHECK_INT(stitch_double_to_int(0.4, 0, 255), 0);
    CHECK_INT(stitch_double_to_int(-0.4, 0, 255), 0);
}

TEST(tf32_keeps_ten_bits)
{
    float x;
    uint32_t bits;
    stitch_store(&x, 0, STITCH_DTYPE_TF32, 1.0 + 0x1p-11); /* a tie: to even */
    CHECK_NEAR(x, 1, 0);
    stitch_store(&x, 0, STITCH_DTYPE_TF32, 1.0 + 0x1.8p-11);
    memcpy(&bits, &x, 4);
    CHECK_INT(bits & 0x1fff, 0);
    CHECK_NEAR(x, 1.0 + 0x1p-10, 0);
}

TEST(derived_seeds_differ)
{
    uint64_t seeds[400];
    size_t count = 0;
    for (uint64_t purpose = 1; purpose <= 4; purpose++)
        for (uint64_t n = 0; n < 100; n++)
            seeds[count++] = stitch__seed_derive(5, purpose, n);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++)
            CHECK(seeds[i] != seeds[j]);
    CHECK(stitch__seed_derive(5, 1, 0) == seeds[0] && stitch__seed_derive(6, 1, 0) != seeds[0]);
}

TEST_MAIN(RUN(philox_vectors), RUN(own_log_and_cosine), RUN(normal), RUN(uniform), RUN(integers), RUN(tril_of_a_batch),
          RUN(elements_depend_on_seed_tensor_and_index_alone), RUN(small_types_round_trip), RUN(small_types_round),
          RUN(integers_round_and_saturate), RUN(tf32_keeps_ten_bits), RUN(derived_seeds_differ))
