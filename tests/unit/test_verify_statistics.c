/* SPDX-License-Identifier: MIT
 *
 * The interval of a speed-up; what the control takes off a candidate's times.
 */
#include <math.h>

#include "check.h"
#include "verify/timing.h"

enum { PAIRS = 101 };

static stitch_error *err;

static double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 - 0.5;
}

TEST(nothing_varies)
{
    double a[PAIRS], b[PAIRS], low, high;
    for (int i = 0; i < PAIRS; i++) {
        a[i] = 30;
        b[i] = 20;
    }
    CHECK_OK(stitch__speedup_interval(NULL, a, b, PAIRS, 1, &low, &high, &err));
    CHECK_NEAR(low, 1.5, 0);
    CHECK_NEAR(high, 1.5, 0);
}

TEST(too_few_pairs_give_none)
{
    double a[1] = {2}, b[1] = {1}, low = 7, high = 7;
    CHECK_OK(stitch__speedup_interval(NULL, a, b, 1, 1, &low, &high, &err));
    CHECK_NEAR(low, 0, 0);
    CHECK_NEAR(high, 0, 0);
    CHECK_OK(stitch__speedup_interval(NULL, a, b, 0, 1, &low, &high, &err));
    CHECK_NEAR(high, 0, 0);
}

TEST(the_same_for_the_same_seed)
{
    double a[PAIRS], b[PAIRS], low[3], high[3];
    uint64_t state = 5;
    for (int i = 0; i < PAIRS; i++) {
        a[i] = 30 + noise(&state);
        b[i] = 20 + noise(&state);
    }
    CHECK_OK(stitch__speedup_interval(NULL, a, b, PAIRS, 9, &low[0], &high[0], &err));
    CHECK_OK(stitch__speedup_interval(NULL, a, b, PAIRS, 9, &low[1], &high[1], &err));
    CHECK_OK(stitch__speedup_interval(NULL, a, b, PAIRS, 10, &low[2], &high[2], &err));
    CHECK(low[0] == low[1] && high[0] == high[1]);
    CHECK(low[0] != low[2] || high[0] != high[2]);
    CHECK(low[0] < high[0]);
}

/* Of intervals that claim 95 %, about as many hold the true ratio: 200 experiments, of which 10 may miss on average. */
TEST(holds_the_truth_about_as_often_as_it_claims)
{
    int held = 0;
    uint64_t state = 77;
    for (int experiment = 0; experiment < 200; experiment++) {
        double a[PAIRS], b[PAIRS], low, high;
        for (int i = 0; i < PAIRS; i++) {
            double both = noise(&state); /* what disturbs both sides of a pair */
            a[i] = 24 + both + noise(&state);
            b[i] = 20 + both + noise(&state);
        }
        CHECK_OK(stitch__speedup_interval(NULL, a, b, PAIRS, (uint64_t)experiment, &low, &high, &err));
        held += low <= 1.2 && 1.2 <= high;
    }
    if (held < 176)
        FAIL("only %d of 200 intervals hold the true ratio", held);
}

/* A slow outlier on one side moves a mean, but hardly an interval of medians. */
TEST(outliers_do_not_matter_much)
{
    double a[PAIRS], b[PAIRS], low, high;
    uint64_t state = 3;
    for (int i = 0; i < PAIRS; i++) {
        a[i] = 30 + 0.1 * noise(&state);
        b[i] = 20 + 0.1 * noise(&state);
    }
    b[50] = 1e6;
    CHECK_OK(stitch__speedup_interval(NULL, a, b, PAIRS, 1, &low, &high, &err));
    CHECK(low > 1.49 && high < 1.51);
}

/* Runs of the candidate that take `us`, of which the control has taken `off`. */
static void settle(double us, double off, double want, double want_off)
{
    double samples[3] = {us - off, us + 0.1 - off, us + 0.2 - off};
    stitch_report r = {.candidate = {.samples = samples, .count = 3, .taken_off_us = off}};
    stitch__verify v = {.report = &r};
    stitch__timer t = {.v = &v};

    CHECK(stitch__timing_finish(&r, &r.candidate)); /* as the stage does before */
    stitch__control_settle(&t);
    CHECK_NEAR(r.candidate.smallest, want - 0.1, 1e-9);
    CHECK(stitch__timing_finish(&r, &r.candidate));
    CHECK_NEAR(r.candidate.median, want, 1e-9);
    CHECK_NEAR(r.candidate.taken_off_us, want_off, 0);
    CHECK((r.no_control != NULL) == (off != want_off));
}

/* It was measured of the main baseline, which may take many times as long as the candidate. */
TEST(the_control_is_a_small_part)
{
    settle(8.9, 0.3, 8.7, 0.3);
    settle(8.9, -0.3, 9.3, -0.3);
    settle(1.9, 0.9, 2, 0); /* 2 us of which 0.9 would be of another program's */
    settle(0.4, 0.9, 0.5, 0);
    settle(0.4, -0.9, 0.5, 0);
    settle(8.9, 0, 9, 0);
}

TEST_MAIN(RUN(nothing_varies), RUN(too_few_pairs_give_none), RUN(the_same_for_the_same_seed),
          RUN(holds_the_truth_about_as_often_as_it_claims), RUN(outliers_do_not_matter_much),
          RUN(the_control_is_a_small_part))
