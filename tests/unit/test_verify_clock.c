/* SPDX-License-Identifier: MIT
 *
 * Times by events beside the host's clock: what the host sees of a run is never more than the run takes, and events
 * that have less than that are found out. The device and the clock are made up.
 */
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

/* `runs` runs of `us` by events, of which one in `some` was seen for `seen` and the others for `least`. */
static int judge(double us, double taken_off, double least, double seen, int some, int runs, double *excess)
{
    static stitch__verify v;
    stitch__side side = {.candidate = true};
    stitch__timer t = {.v = &v, .side_count = 1, .sides = &side};
    int code = STITCH_OK;

    CHECK_OK(stitch__report_new(NULL, &v.report, &err));
    side.timing = &v.report->candidate;
    side.timing->taken_off_us = taken_off;
    for (int i = 0; i < runs; i++) {
        const stitch__took took = {us, i % some ? least : seen};
        CHECK_OK(stitch__timing_add(v.report, side.timing, us - taken_off, &err));
        CHECK_OK(stitch__clock_add(&t, &side, &took, &err));
    }
    CHECK_OK(stitch__clock_judge(&t, &code, &err));
    CHECK_INT(v.report->clock_known, runs && (some == 1 ? seen : least) > 0);
    *excess = v.report->clock_excess_us;
    stitch_free(side.least_us);
    stitch_report_free(v.report);
    return code;
}

TEST(times_that_cannot_be)
{
    double excess;
    CHECK_INT(judge(10, 0, 9, 9, 1, 20, &excess), STITCH_OK);
    CHECK_NEAR(excess, -1, 1e-9);
    CHECK_INT(judge(10, 0.5, 14.9, 14.9, 1, 20, &excess), STITCH_OK); /* what the control took off is no lie */
    CHECK_NEAR(excess, 4.9, 1e-9);
    CHECK_ERR(judge(10, 0, 15.1, 15.1, 1, 20, &excess), STITCH_E_VALIDATE,
              "10 us by the device's events, but at least 15.1 us by the host's clock");
    CHECK_INT(judge(1000, 0, 1049, 1049, 1, 20, &excess), STITCH_OK);
    CHECK_ERR(judge(1000, 0, 1051, 1051, 1, 20, &excess), STITCH_E_VALIDATE, "changes the times of events");
    /* Some runs that the host saw little of, or too much, change nothing. */
    CHECK_ERR(judge(10, 0, 20, 0, 3, 30, &excess), STITCH_E_VALIDATE, "at least 20 us");
    CHECK_INT(judge(10, 0, 9, 500, 3, 30, &excess), STITCH_OK);
    CHECK_INT(judge(10, 0, 0, 0, 1, 20, &excess), STITCH_OK);
    CHECK_INT(judge(10, 0, 0, 0, 1, 0, &excess), STITCH_OK);
    CHECK_NEAR(excess, 0, 0);
}

TEST_MAIN(RUN(never_more_than_a_run_takes), RUN(what_never_ends_is_left), RUN(times_that_cannot_be))
