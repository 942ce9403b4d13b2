/* SPDX-License-Identifier: MIT
 *
 * All launches of a kernel in a row: counts, times, sizes, the idle time before them.
 */
#include <stdlib.h>

#include "profile/profile.h"

typedef struct launch {
    int64_t group; /* equal for those of one row: the step, if they are told apart by it, and the name */
    int64_t gap;   /* ns of idle time right before it */
    const stitch__event *event;
} launch;

typedef struct row {
    const stitch__event *first, *longest;
    uint64_t count, timed;
    int64_t total, least, most, gaps;
    int32_t step;
    bool varied;
} row;

static double us(int64_t ns)
{
    return (double)ns / 1e3;
}

static int by_group(const void *pa, const void *pb)
{
    const launch *a = pa, *b = pb;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

static int by_total(const void *pa, const void *pb)
{
    const row *a = pa, *b = pb;
    if (a->total != b->total)
        return a->total > b->total ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static size_t find_launches(const stitch__timeline *t, const stitch__idle *idle, size_t steps, launch *out)
{
    size_t count = 0, gap = 0;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        bool after_gap = gap < idle->count && idle->gaps[gap].after == e;
        int64_t step = e->step >= 0 && (size_t)e->step < steps ? e->step : -1;
        if (e->kind == STITCH_TRACE_KERNEL)
            out[count++] = (launch){.group = (step + 1) * ((int64_t)UINT32_MAX + 1) + e->name,
                                    .gap = after_gap ? idle->gaps[gap].end - idle->gaps[gap].start : 0,
                                    .event = e};
        gap += after_gap;
    }
    return count;
}

static bool same_sizes(const stitch__event *a, const stitch__event *b)
{
    return memcmp(a->grid, b->grid, sizeof(a->grid)) == 0 && memcmp(a->block, b->block, sizeof(a->block)) == 0 &&
           a->static_shared == b->static_shared && a->dynamic_shared == b->dynamic_shared &&
           a->registers == b->registers;
}

static void add_launch(row *r, const launch *l)
{
    const stitch__event *e = l->event;
    int64_t time = e->end - e->start;
    r->count++;
    r->varied |= !same_sizes(r->first, e);
    if (r->step != e->step)
        r->step = -1;
    if (!e->timed)
        return;
    if (!r->timed || time > r->most) {
        r->longest = e;
        r->most = time;
    }
    r->least = !r->timed || time < r->least ? time : r->least;
    r->total += time;
    r->gaps += l->gap;
    r->timed++;
}

static void make_rows(const launch *launches, size_t count, row *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const stitch__event *e = launches[i].event;
        if (!i || launches[i].group != launches[i - 1].group)
            rows[n++] = (row){.first = e, .longest = e, .step = e->step};
        add_launch(&rows[n - 1], &launches[i]);
    }
}

static void describe(const stitch__timeline *t, const row *r, int64_t all, stitch_trace_kernel *k)
{
    const stitch__event *e = r->longest;
    stitch__occupancy o = stitch__occupancy_of(&t->sm, e);
    *k = (stitch_trace_kernel)STITCH_TRACE_KERNEL_INIT;
    k->name = t->names[e->name].text;
    k->symbol = t->names[e->name].symbol;
    k->count = r->count;
    k->total_us = us(r->total);
    k->mean_us = r->timed ? us(r->total) / (double)r->timed : 0;
    k->min_us = us(r->least);
    k->max_us = us(r->most);
    k->share = all > 0 ? (double)r->total / (double)all : 0;
    k->gap_before_us = us(r->gaps);
    memcpy(k->grid, e->grid, sizeof(k->grid));
    memcpy(k->block, e->block, sizeof(k->block));
    k->registers = e->registers;
    k->static_shared = e->static_shared;
    k->dynamic_shared = e->dynamic_shared;
    k->local = e->local;
    k->occupancy = o.share;
    k->waves = o.waves;
    k->limiter = o.limiter;
    k->varied = r->varied;
    k->step = r->step;
}

int stitch__kernel_table(const stitch__timeline *t, const stitch__idle *idle, size_t steps, stitch_trace_kernel **out,
                         size_t *count)
{
    const stitch_context *ctx = t->arena.ctx;
    launch *launches = stitch__calloc(ctx, t->count + 1, sizeof(*launches));
    row *rows = NULL;
    int64_t all = 0;
    size_t launched, n = 0;
    int rc = STITCH_E_NOMEM;
    *out = NULL;
    *count = 0;
    if (!launches)
        goto out;
    launched = find_launches(t, idle, steps, launches);
    qsort(launches, launched, sizeof(*launches), by_group);
    for (size_t i = 0; i < launched; i++)
        n += !i || launches[i].group != launches[i - 1].group;
    rows = stitch__calloc(ctx, n + 1, sizeof(*rows));
    *out = stitch__calloc(ctx, n + 1, sizeof(**out));
    if (!rows || !*out)
        goto out;
    make_rows(launches, launched, rows);
    qsort(rows, n, sizeof(*rows), by_total);
    for (size_t i = 0; i < n; i++)
        all += rows[i].total;
    for (size_t i = 0; i < n; i++)
        describe(t, &rows[i], all, &(*out)[i]);
    *count = n;
    rc = STITCH_OK;
out:
    stitch_free(launches);
    stitch_free(rows);
    if (rc)
        stitch__zero_free(*out);
    return rc;
}
