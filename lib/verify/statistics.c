/* SPDX-License-Identifier: MIT
 *
 * How sure a speed-up is: percentile bootstrap of the ratio of medians over pairs (B. Efron and R. Tibshirani, "An
 * Introduction to the Bootstrap", 1993, chapter 13). Candidate and baseline of one iteration were measured one after
 * the other, so they are drawn together: what disturbs both cancels.
 */
#include "verify/verify.h"

#include <stdlib.h>

enum { RESAMPLES = 1000 };

/* splitmix64: S. Vigna, public domain */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

typedef struct ranked {
    double value;
    uint32_t pair;
} ranked;

static int by_value(const void *a, const void *b)
{
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return x < y ? -1 : x > y;
}

static void rank_samples(const double *samples, size_t count, ranked *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (ranked){samples[i], (uint32_t)i};
    qsort(out, count, sizeof(*out), by_value);
}

/* Median of a sample in which pair i occurs times[i] times; sum of times: count. */
static double median_of(const ranked *sorted, const uint32_t *times, size_t count)
{
    size_t below = (count - 1) / 2, above = count / 2, seen = 0;
    double low = 0;
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        seen += times[sorted[i].pair];
        if (!found && seen > below) {
            low = sorted[i].value;
            found = true;
        }
        if (seen > above)
            return (low + sorted[i].value) / 2;
    }
    return low;
}

static int by_ratio(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int stitch__speedup_interval(const stitch_context *ctx, const double *baseline, const double *candidate, size_t count,
                             uint64_t seed, double *low, double *high, stitch_error **err)
{
    ranked *a = stitch__calloc(ctx, count + 1, sizeof(*a)), *b = stitch__calloc(ctx, count + 1, sizeof(*b));
    uint32_t *times = stitch__calloc(ctx, count + 1, sizeof(*times));
    double *ratios = stitch__calloc(ctx, RESAMPLES, sizeof(*ratios));
    int rc = STITCH_OK;

    *low = *high = 0;
    if (!a || !b || !times || !ratios) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if (count < 2)
        goto out;
    rank_samples(baseline, count, a);
    rank_samples(candidate, count, b);
    for (size_t r = 0; r < RESAMPLES; r++) {
        memset(times, 0, count * sizeof(*times));
        for (size_t i = 0; i < count; i++)
            times[next_random(&seed) % count]++;
        double below = median_of(b, times, count);
        ratios[r] = below > 0 ? median_of(a, times, count) / below : 0;
    }
    qsort(ratios, RESAMPLES, sizeof(*ratios), by_ratio);
    *low = ratios[RESAMPLES * 25 / 1000];
    *high = ratios[RESAMPLES * 975 / 1000 - 1];
out:
    stitch_free(a);
    stitch_free(b);
    stitch_free(times);
    stitch_free(ratios);
    return rc;
}
