/* SPDX-License-Identifier: MIT
 *
 * Times by events beside the host's clock: what the host sees of a run is never more than the run takes, and events
 * that have less than that are found out. The device and the clock are made up.
 */
#include <math.h>

#include "check.h"
#include "runner/internal.h"
#include "verify/timing.h"

static stitch_error *err;

/* ---- a clock that each look at it moves on, and a device whose run begins and ends at times of it ---------------- */

enum { BEGINS = 100000, ENDS = 160000, STEP = 500 };

static struct {
    int64_t now, begins, ends;
    int64_t late_at, late_by; /* the host is kept from looking, once */
} made_up;

int64_t __wrap_stitch__now_ns(void);

int64_t __wrap_stitch__now_ns(void)
{
    made_up.now += STEP;
    if (made_up.late_by && made_up.now >= made_up.late_at) {
        made_up.now += made_up.late_by;
        made_up.late_by = 0;
    }
    return made_up.now;
}

static CUresult CUDAAPI event_query(CUevent event)
{
    return made_up.now < made_up.begins ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult CUDAAPI stream_query(CUstream stream)
{
    return made_up.now < made_up.ends ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult CUDAAPI stream_fault(CUstream stream)
{
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static double watch(int64_t begins, int64_t ends, int64_t late_at, int64_t late_by, CUresult(CUDAAPI *query)(CUstream),
                    const stitch__scope *scope)
{
    stitch__driver drv = {.EventQuery = event_query, .StreamQuery = query};
    stitch__device dev = {.drv = &drv};
    stitch__runner r = {.dev = &dev, .start = (CUevent)&dev};

    made_up.now = 0;
    made_up.begins = begins;
    made_up.ends = ends;
    made_up.late_at = late_at;
    made_up.late_by = late_by;
    return stitch__runner_watch(&r, scope);
}

TEST(never_more_than_a_run_takes)
{
    double us = watch(BEGINS, ENDS, 0, 0, stream_query, NULL);
    CHECK(us <= 60 && us >= 60 - 4 * STEP / 1e3);
    /* Kept from looking when it begins, while it runs, when it ends, and all the time. */
    us = watch(BEGINS, ENDS, BEGINS, 30000, stream_query, NULL);
    CHECK(us <= 30 && us >= 30 - 4 * STEP / 1e3);
    us = watch(BEGINS, ENDS, BEGINS + 20000, 10000, stream_query, NULL);
    CHECK(us <= 60 && us >= 60 - 4 * STEP / 1e3);
    us = watch(BEGINS, ENDS, ENDS - 5000, 1000000, stream_query, NULL);
    CHECK(us <= 60 && us >= 55 - 4 * STEP / 1e3);
    CHECK_NEAR(watch(BEGINS, ENDS, BEGINS - 5000, 1000000, stream_query, NULL), 0, 0);
    /* All was over before the host came to look, or the run ended with a fault, which is told elsewhere. */
    CHECK_NEAR(watch(0, 0, 0, 0, stream_query, NULL), 0, 0);
    CHECK_NEAR(watch(BEGINS, ENDS, 0, 0, stream_fault, NULL), 0, 0);
    /* One that takes so long that the host sleeps between its looks. */
    us = watch(BEGINS, 100000000, 0, 0, stream_query, NULL);
    CHECK(us <= 99900 && us >= 99890);
}

TEST(what_never_ends_is_left)
{
    stitch__scope scope = {.deadline_ns = 500000};
    double us = watch(BEGINS, INT64_MAX, 0, 0, stream_query, &scope);
    CHECK(us > 300 && us <= 400);
    (void)watch(INT64_MAX, INT64_MAX, 0, 0, stream_query, &scope);
    CHECK(made_up.now < 600000);
}

/* ---- what is concluded ------------------------------------------------------------------------------------------- */

typedef struct seen {
    double us, taken_off; /* by events; what the control took off that */
    double least, other;  /* by the host's clock: most runs; one in `some` */
    int some, runs;
} seen;

static void add(stitch__timer *t, stitch__side *s, const seen *what)
{
    s->timing->taken_off_us = what->taken_off;
    for (int i = 0; i < what->runs; i++) {
        const stitch__took took = {what->us, what->some && i % what->some == 0 ? what->other : what->least};
        CHECK_OK(stitch__timing_add(t->v->report, s->timing, what->us - what->taken_off, &err));
        CHECK_OK(stitch__clock_add(t, s, &took, &err));
    }
}

/* `baseline` NULL: it is no program. Returns the code; *excess: what is reported, NAN where nothing is known. */
static int judge(const seen *candidate, const seen *baseline, double *excess)
{
    static stitch__verify v;
    stitch__timing other = {.name = NULL};
    stitch__side sides[2] = {{.candidate = true}, {.timing = &other}};
    stitch__timer t = {.v = &v, .side_count = 2, .sides = sides};
    int code = STITCH_OK;

    CHECK_OK(stitch__report_new(NULL, &v.report, &err));
    sides[0].timing = &v.report->candidate;
    add(&t, &sides[0], candidate);
    if (baseline)
        add(&t, &sides[1], baseline);
    CHECK(stitch__timing_finish(v.report, sides[0].timing) && stitch__timing_finish(v.report, &other));
    CHECK_OK(stitch__clock_judge(&t, &code, &err));
    *excess = v.report->clock_known ? v.report->clock_excess_us : NAN;
    for (int i = 0; i < 2; i++)
        stitch_free(sides[i].least_us);
    stitch_free(other.samples);
    stitch_report_free(v.report);
    return code;
}

/* One half of ten runs took `us`, the other one `more`, and the host saw a microsecond less of each. */
static int judge_halves(double us, double more, double *excess)
{
    static stitch__verify v;
    stitch__side side = {.candidate = true};
    stitch__timer t = {.v = &v, .side_count = 1, .sides = &side};
    int code = STITCH_OK;

    CHECK_OK(stitch__report_new(NULL, &v.report, &err));
    side.timing = &v.report->candidate;
    add(&t, &side, &(seen){.us = us, .least = us - 1, .runs = 5});
    add(&t, &side, &(seen){.us = more, .least = more - 1, .runs = 5});
    CHECK(stitch__timing_finish(v.report, side.timing));
    CHECK_OK(stitch__clock_judge(&t, &code, &err));
    *excess = v.report->clock_excess_us;
    stitch_free(side.least_us);
    stitch_report_free(v.report);
    return code;
}

/* Beside a baseline of the same device. */
TEST(times_that_cannot_be)
{
    static const seen usual = {.us = 30, .least = 29, .runs = 20}, slow = {.us = 30, .least = 33, .runs = 20};
    double excess;

    CHECK_INT(judge(&(seen){.us = 10, .least = 9, .runs = 20}, &usual, &excess), STITCH_OK);
    CHECK_NEAR(excess, -1, 1e-9);
    CHECK_INT(judge(&(seen){.us = 10, .taken_off = 0.5, .least = 11.9, .runs = 20}, &usual, &excess), STITCH_OK);
    CHECK_NEAR(excess, 1.9, 1e-9); /* what the control took off is no lie */
    CHECK_ERR(judge(&(seen){.us = 10, .least = 12.1, .runs = 20}, &usual, &excess), STITCH_E_VALIDATE,
              "10 us by the device's events, but at least 12.1 us by the host's clock");
    CHECK_INT(judge(&(seen){.us = 1000, .least = 1019, .runs = 20}, &usual, &excess), STITCH_OK);
    CHECK_ERR(judge(&(seen){.us = 1000, .least = 1021, .runs = 20}, &usual, &excess), STITCH_E_VALIDATE,
              "the times of events");
    /* A device that is slow to tell of an event is so for both. */
    CHECK_INT(judge(&(seen){.us = 10, .least = 14.9, .runs = 20}, &slow, &excess), STITCH_OK);
    CHECK_ERR(judge(&(seen){.us = 10, .least = 15.1, .runs = 20}, &slow, &excess), STITCH_E_VALIDATE,
              "at least 15.1 us");
}

TEST(times_without_a_baseline)
{
    double excess;

    CHECK_INT(judge(&(seen){.us = 10, .least = 14.9, .runs = 20}, NULL, &excess), STITCH_OK);
    CHECK_ERR(judge(&(seen){.us = 10, .least = 15.1, .runs = 20}, NULL, &excess), STITCH_E_VALIDATE,
              "at least 15.1 us");
    CHECK_INT(judge(&(seen){.us = 1000, .least = 1049, .runs = 20}, NULL, &excess), STITCH_OK);
    CHECK_ERR(judge(&(seen){.us = 1000, .least = 1051, .runs = 20}, NULL, &excess), STITCH_E_VALIDATE,
              "the times of events");
    /* Some runs that the host saw little of, or too much, change nothing. */
    CHECK_ERR(judge(&(seen){.us = 10, .least = 20, .some = 3, .runs = 30}, NULL, &excess), STITCH_E_VALIDATE,
              "at least 20 us");
    CHECK_INT(judge(&(seen){.us = 10, .least = 9, .other = 500, .some = 3, .runs = 30}, NULL, &excess), STITCH_OK);
    /* Two halves that differ, as those of few runs do: both medians lie in between. */
    CHECK_INT(judge_halves(1000, 1200, &excess), STITCH_OK);
    CHECK_NEAR(excess, -1, 1e-9);
    /* Nothing was seen, or timed. */
    CHECK_INT(judge(&(seen){.us = 10, .runs = 20}, NULL, &excess), STITCH_OK);
    CHECK(isnan(excess));
    CHECK_INT(judge(&(seen){.us = 10}, NULL, &excess), STITCH_OK);
    CHECK(isnan(excess));
}

TEST_MAIN(RUN(never_more_than_a_run_takes), RUN(what_never_ends_is_left), RUN(times_that_cannot_be),
          RUN(times_without_a_baseline))
