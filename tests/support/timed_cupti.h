/* SPDX-License-Identifier: MIT
 *
 * A table of CUPTI's functions that says how much time each of the profiling ones takes.
 */
#ifndef STITCH_TESTS_TIMED_CUPTI_H
#define STITCH_TESTS_TIMED_CUPTI_H

#include <stdio.h>
#include <string.h>

#include "cuda/cupti.h"

enum {
    CALL_Subscribe,
    CALL_Unsubscribe,
#define X(need, member, symbol, params) CALL_##member,
#include "cuda/cupti_profiler_functions.def"
#undef X
    CALLS
};
static const char *const call_names[CALLS] = {
    "cuptiSubscribe",
    "cuptiUnsubscribe",
#define X(need, member, symbol, params) symbol,
#include "cuda/cupti_profiler_functions.def"
#undef X
};
static struct {
    size_t count;
    double ms, worst;
} calls[CALLS]; /* since they were printed */
static const stitch__cupti *real;

static int timed(int call, int64_t start, int result)
{
    double ms = (double)(stitch__now_ns() - start) / 1e6;
    calls[call].count++;
    calls[call].ms += ms;
    calls[call].worst = ms > calls[call].worst ? ms : calls[call].worst;
    return result;
}

#define X(need, member, symbol, params_)                                                                               \
    static int timed_##member params_                                                                                  \
    {                                                                                                                  \
        int64_t start = stitch__now_ns();                                                                              \
        return timed(CALL_##member, start, real->member(params));                                                      \
    }
#include "cuda/cupti_profiler_functions.def"
#undef X

static int timed_subscribe(void **subscriber, stitch__cupti_callback callback, void *userdata,
                           stitch__cupti_subscriber_params *params)
{
    int64_t start = stitch__now_ns();
    return timed(CALL_Subscribe, start, real->SubscribeNamed(subscriber, callback, userdata, params));
}

static int timed_unsubscribe(void *subscriber)
{
    int64_t start = stitch__now_ns();
    return timed(CALL_Unsubscribe, start, real->Unsubscribe(subscriber));
}

/* The functions of a table that stays, with their time taken. One at a time. */
static stitch__cupti timed_cupti(const stitch__cupti *cupti)
{
    stitch__cupti table = *cupti;
    real = cupti;
    table.Unsubscribe = timed_unsubscribe;
    if (real->SubscribeNamed)
        table.SubscribeNamed = timed_subscribe;
#define X(need, member, symbol, params)                                                                                \
    if (real->member)                                                                                                  \
        table.member = timed_##member;
#include "cuda/cupti_profiler_functions.def"
#undef X
    return table;
}

static void clear_calls(void)
{
    memset(calls, 0, sizeof(calls));
}

/* And clears them. */
static void print_calls(const char *of)
{
    double sum = 0;
    for (int i = 0; i < CALLS; i++)
        sum += calls[i].ms;
    printf("  in CUPTI, %s: %.2f ms\n", of, sum);
    for (int i = 0; i < CALLS; i++) {
        if (calls[i].ms >= 0.01)
            printf("    %-46s %4zu calls %9.2f ms, the longest %9.2f\n", call_names[i], calls[i].count, calls[i].ms,
                   calls[i].worst);
    }
    clear_calls();
}

#endif
