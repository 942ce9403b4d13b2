/* SPDX-License-Identifier: MIT
 *
 * See readout.h.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "profile/readout.h"

typedef struct stitch__readout_range {
    uint64_t number;
    size_t index;
} range;

static int check(const stitch__readout *r, int result, const char *call, stitch_error **err)
{
    return stitch__cupti_check(r->plan->ctx, r->plan->cupti, result, call, NULL, err);
}

/* ---- the ranges ---- */

static int by_number(const void *a, const void *b)
{
    const range *p = a, *q = b;
    if (p->number != q->number)
        return p->number < q->number ? -1 : 1;
    return (p->index > q->index) - (p->index < q->index);
}

/* Ranges are named by the numbers of their launches; where one is not, CUPTI's order stands. */
static int number_of(const stitch__readout *r, size_t index, uint64_t *number, stitch_error **err)
{
    stitch__cupti_range_info i = {STITCH__CUPTI_RANGE_INFO_SIZE, NULL, r->data, r->data_size, index, "/"};
    int rc = check(r, r->plan->cupti->RangeProfilerCounterDataGetRangeInfo(&i),
                   "cuptiRangeProfilerCounterDataGetRangeInfo", err);
    const char *name = rc || !i.name ? "" : i.name, *slash = strrchr(name, '/');
    char *end = NULL;
    name = slash ? slash + 1 : name;
    *number = strtoull(name, &end, 10);
    if (end == name || *end)
        *number = index;
    return rc;
}

static int order_ranges(stitch__readout *r, stitch_error **err)
{
    for (size_t i = 0; i < r->count; i++) {
        int rc = number_of(r, i, &r->order[i].number, err);
        if (rc)
            return rc;
        r->order[i].index = i;
    }
    qsort(r->order, r->count, sizeof(*r->order), by_number);
    return STITCH_OK;
}

static size_t row_of(const stitch__readout *r)
{
    return STITCH__METRICS + r->plan->extra_count;
}

int stitch__readout_open(stitch__readout *r, stitch__metric_plan *plan, uint8_t *data, size_t data_size, size_t most,
                         const bool *wanted, stitch_error **err)
{
    stitch__cupti_data_info info = {STITCH__CUPTI_DATA_INFO_SIZE, NULL, data, data_size};
    *r = (stitch__readout){.plan = plan, .data = data, .data_size = data_size, .wanted = wanted};
    r->rc = check(r, plan->cupti->RangeProfilerGetCounterDataInfo(&info), "cuptiRangeProfilerGetCounterDataInfo", err);
    if (r->rc || info.ranges == 0)
        return r->rc;
    r->count = info.ranges < most ? info.ranges : most;
    r->dropped = info.ranges - r->count;
    r->order = stitch__calloc(plan->ctx, r->count, sizeof(*r->order));
    r->values = stitch__calloc(plan->ctx, r->count * row_of(r), sizeof(*r->values));
    r->rc = r->order && r->values ? order_ranges(r, err) : stitch__err_nomem(plan->ctx, err);
    return r->rc;
}

/* ---- their values ---- */

static void *read_all(void *userdata)
{
    stitch__readout *r = userdata;
    const size_t row = row_of(r);
    for (size_t i = 0; i < r->count && r->rc == STITCH_OK; i++) {
        double *at = r->values + i * row;
        for (size_t k = 0; k < row; k++)
            at[k] = NAN;
        if (!r->wanted || r->wanted[i])
            r->rc = stitch__metric_plan_evaluate(r->plan, r->data, r->data_size, r->order[i].index, at,
                                                 at + STITCH__METRICS, &r->why);
    }
    return NULL;
}

void stitch__readout_begin(stitch__readout *r)
{
    sigset_t all, before;
    r->owns = true;
    sigfillset(&all); /* the host's signals are handled on the host's threads */
    if (r->count && pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
        r->apart = pthread_create(&r->thread, NULL, read_all, r) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!r->apart)
        read_all(r);
}

int stitch__readout_end(stitch__readout *r, stitch_error **err)
{
    if (r->apart)
        pthread_join(r->thread, NULL);
    r->apart = false;
    if (r->why)
        stitch__err_hand_on(err, &r->why);
    if (r->owns)
        stitch_free(r->data);
    r->owns = false;
    r->data = NULL;
    stitch__zero_free(r->order);
    if (r->rc) {
        stitch__zero_free(r->values);
        r->count = r->dropped = 0;
    }
    return r->rc;
}
