/* SPDX-License-Identifier: MIT
 *
 * What a timeline of one or more runs says, as facts of one run: rows of kernels by step, busy and idle time, copies.
 */
#include <stdlib.h>

#include "profile/facts.h"
#include "profile/profile.h"

static double us(int64_t ns)
{
    return (double)ns / 1e3;
}

/* ---- where a run begins ---- */

/* The device's records in the order of their start. `length` of them are one run; 0: that cannot be told. */
typedef struct order {
    const stitch__timeline *t;
    size_t count, length;
    size_t untimed;   /* of them, records without times */
    uint32_t *events; /* indices; stitch_free() */
} order;

static int make_order(const stitch__timeline *t, uint64_t runs, order *o)
{
    *o = (order){.t = t};
    o->events = stitch__calloc(t->arena.ctx, t->count ? t->count : 1, sizeof(*o->events));
    if (!o->events)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        if (!(STITCH__TRACE_ON_DEVICE >> t->events[i].kind & 1))
            continue;
        o->events[o->count++] = (uint32_t)i;
        o->untimed += !t->events[i].timed;
    }
    if (runs == 1)
        o->length = o->count;
    else if (!t->dropped && !o->untimed && o->count % runs == 0)
        o->length = o->count / runs;
    return STITCH_OK;
}

static const stitch__event *event_at(const order *o, size_t i)
{
    return &o->t->events[o->events[i]];
}

/* ---- kernels ---- */

typedef struct launch {
    const stitch__event *event;
    int32_t step;
    int64_t gap;
} launch;

typedef struct row {
    const launch *first;
    const stitch__event *longest;
    size_t count, timed;
    int64_t total, gaps;
} row;

static int by_row(const void *pa, const void *pb)
{
    const launch *a = pa, *b = pb;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    if (a->event->name != b->event->name)
        return a->event->name < b->event->name ? -1 : 1;
    return (a->event > b->event) - (a->event < b->event);
}

static int by_total(const void *pa, const void *pb)
{
    const row *a = pa, *b = pb;
    if (a->total != b->total)
        return a->total > b->total ? -1 : 1;
    return by_row(a->first, b->first);
}

/* A kernel that does a step which is a copy or a fill: the driver's ("memcpy128"), where CUPTI records such nodes of a
 * graph as what they are made of. */
static bool only_moves(const stitch__facts *f, const stitch__event *e)
{
    const char *kind = e->step >= 0 && (size_t)e->step < f->step_count ? f->steps[e->step].kind : "";
    return e->kind == STITCH_TRACE_KERNEL && (strcmp(kind, "copy") == 0 || strcmp(kind, "fill") == 0);
}

/* Launches with the idle time before each: none before the first of a run. Where runs cannot be told apart, no gaps. */
static size_t make_launches(const stitch__facts *f, const order *o, launch *out)
{
    bool known = false;
    int64_t end = 0; /* of what ran before */
    size_t count = 0;
    for (size_t i = 0; i < o->count; i++) {
        const stitch__event *e = event_at(o, i);
        bool idle = o->length && i % o->length && known && e->timed && e->start > end;
        if (e->kind == STITCH_TRACE_KERNEL && !only_moves(f, e))
            out[count++] = (launch){.event = e,
                                    .step = e->step >= 0 && (size_t)e->step < f->step_count ? e->step : -1,
                                    .gap = idle ? e->start - end : 0};
        if (e->timed && (!known || e->end > end)) {
            end = e->end;
            known = true;
        }
    }
    return count;
}

static size_t make_rows(const launch *launches, size_t count, row *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const launch *l = &launches[i];
        const stitch__event *e = l->event;
        if (!n || rows[n - 1].first->step != l->step || rows[n - 1].first->event->name != e->name)
            rows[n++] = (row){.first = l, .longest = e};
        row *r = &rows[n - 1];
        r->count++;
        if (!e->timed)
            continue;
        if (!r->timed || e->end - e->start > r->longest->end - r->longest->start)
            r->longest = e;
        r->timed++;
        r->total += e->end - e->start;
        r->gaps += l->gap;
    }
    return n;
}

/* A kernel in a step that is none: a library launched it, or the host's operator. */
static bool of_library(const stitch__facts *f, int32_t step)
{
    return step >= 0 && strcmp(f->steps[step].kind, "kernel") != 0;
}

static int add_row(stitch__facts *f, const stitch__timeline *t, const row *r, int64_t all, uint64_t runs)
{
    const stitch__event *e = r->longest;
    stitch__occupancy o = stitch__occupancy_of(&t->sm, e);
    stitch__kernel_fact *k = stitch__facts_add_kernel(f);
    if (!k)
        return f->kernel_count < STITCH__FACTS_KERNELS ? STITCH_E_NOMEM : STITCH_OK;
    k->name = stitch__facts_text(f, t->names[e->name].text);
    k->symbol = stitch__facts_text(f, t->names[e->name].symbol);
    k->step = r->first->step;
    k->library = of_library(f, k->step);
    k->launches = stitch__facts_mean(r->count, runs);
    k->launches += !k->launches; /* it was launched */
    k->time_us = r->timed ? us(r->total) / (double)r->timed : 0;
    k->share = all > 0 ? (double)r->total / (double)all : 0;
    k->gap_us = r->timed ? us(r->gaps) / (double)r->timed : 0;
    memcpy(k->grid, e->grid, sizeof(k->grid));
    memcpy(k->block, e->block, sizeof(k->block));
    k->registers = e->registers;
    k->static_shared = e->static_shared;
    k->dynamic_shared = e->dynamic_shared;
    k->local = e->local;
    k->occupancy = o.share;
    k->waves = o.waves;
    k->limiter = o.limiter;
    return STITCH_OK;
}

static int add_kernels(stitch__facts *f, const order *o, uint64_t runs)
{
    const stitch_context *ctx = o->t->arena.ctx;
    launch *launches = stitch__calloc(ctx, o->count + 1, sizeof(*launches));
    row *rows = stitch__calloc(ctx, o->count + 1, sizeof(*rows));
    int rc = launches && rows ? STITCH_OK : STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        size_t count = make_launches(f, o, launches), n;
        int64_t all = 0;
        qsort(launches, count, sizeof(*launches), by_row);
        n = make_rows(launches, count, rows);
        qsort(rows, n, sizeof(*rows), by_total);
        for (size_t i = 0; i < n; i++)
            all += rows[i].total;
        for (size_t i = 0; i < n && rc == STITCH_OK; i++)
            rc = add_row(f, o->t, &rows[i], all, runs);
    }
    stitch_free(launches);
    stitch_free(rows);
    return rc;
}

/* ---- idle time ---- */

/* Takes out the gaps that lie between two runs: they end with the first record of one. */
static void drop_gaps_between(const order *o, stitch__spans *gaps)
{
    size_t kept = 0;
    for (size_t i = 0, run = o->length; i < gaps->count; i++) {
        while (run < o->count && event_at(o, run)->start < gaps->list[i].end)
            run += o->length;
        if (run >= o->count || event_at(o, run)->start != gaps->list[i].end)
            gaps->list[kept++] = gaps->list[i];
    }
    gaps->count = kept;
}

/* When the host began to launch something, by the number that the call and the device's record share. */
typedef struct call {
    uint32_t correlation;
    int64_t start;
} call;

static int by_correlation(const void *pa, const void *pb)
{
    const call *a = pa, *b = pb;
    if (a->correlation != b->correlation)
        return a->correlation < b->correlation ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static int64_t launched_at(const call *calls, size_t count, const stitch__event *e)
{
    size_t from = 0, to = count;
    while (from < to) { /* the first one: of a call of the runtime and the driver's within, the earlier */
        size_t middle = from + (to - from) / 2;
        if (calls[middle].correlation < e->correlation)
            from = middle + 1;
        else
            to = middle;
    }
    return e->correlation && from < count && calls[from].correlation == e->correlation ? calls[from].start : INT64_MAX;
}

/* Ends each gap where what comes after it was launched: the rest is the device's own, whatever the host does then. So
 * are the gaps between the nodes of a graph, and between launches that the host has made ahead. */
static int end_at_launches(const order *o, stitch__spans *gaps)
{
    const stitch__timeline *t = o->t;
    call *calls = stitch__calloc(t->arena.ctx, t->count + 1, sizeof(*calls));
    size_t count = 0, kept = 0;
    if (!calls)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        if (STITCH__TRACE_CALLS >> t->events[i].kind & 1 && t->events[i].timed)
            calls[count++] = (call){t->events[i].correlation, t->events[i].start};
    }
    qsort(calls, count, sizeof(*calls), by_correlation);
    for (size_t i = 0, next = 0; i < gaps->count; i++) {
        stitch__span gap = gaps->list[i];
        while (next < o->count && (!event_at(o, next)->timed || event_at(o, next)->start < gap.end))
            next++;
        int64_t at = next < o->count ? launched_at(calls, count, event_at(o, next)) : INT64_MAX;
        gap.end = at < gap.end ? at : gap.end;
        if (gap.end > gap.start)
            gaps->list[kept++] = gap;
    }
    gaps->count = kept;
    stitch_free(calls);
    return STITCH_OK;
}

static int add_idle_time(stitch__facts *f, const order *o, bool calls, uint64_t runs)
{
    const stitch__event_filter device = {STITCH__TRACE_ON_DEVICE, 0, 0, false};
    const stitch__event_filter waits = {STITCH__TRACE_BIT(SYNC) | STITCH__TRACE_CALLS, 0, 0, true};
    const stitch__event_filter any = {STITCH__TRACE_CALLS, 0, 0, false};
    const stitch__timeline *t = o->t;
    stitch__spans busy = {0}, gaps = {0}, sync = {0}, in_call = {0}, either = {0};
    int rc = STITCH_E_NOMEM;
    if (stitch__spans_of(t, &device, &busy) || stitch__spans_gaps(t->arena.ctx, &busy, &gaps) ||
        stitch__spans_of(t, &waits, &sync) || stitch__spans_of(t, &any, &in_call) ||
        stitch__spans_union(t->arena.ctx, &sync, &in_call, &either))
        goto out;
    drop_gaps_between(o, &gaps);
    f->idle_us = us(stitch__spans_length(&gaps)) / (double)runs;
    rc = calls ? end_at_launches(o, &gaps) : STITCH_OK;
    if (calls && rc == STITCH_OK) {
        f->sync_us = us(stitch__spans_common(&gaps, &sync)) / (double)runs;
        f->host_us = us(stitch__spans_length(&gaps) - stitch__spans_common(&gaps, &either)) / (double)runs;
    }
out:
    stitch__spans_free(&busy);
    stitch__spans_free(&gaps);
    stitch__spans_free(&sync);
    stitch__spans_free(&in_call);
    stitch__spans_free(&either);
    return rc;
}

/* ---- the rest ---- */

static void add_copies(stitch__facts *f, const stitch__analysis *a, uint64_t runs)
{
    uint64_t pageable = 0, bytes = 0;
    double time = 0;
    for (size_t i = 0; i < a->copy_count; i++) {
        const stitch_trace_copy *c = &a->copies[i];
        pageable += c->pageable;
        for (int d = 1; d <= 4; d++) { /* HtoD, DtoH, HtoA, AtoH */
            if (strcmp(c->name, stitch__copy_name(d)) != 0)
                continue;
            bytes += c->bytes;
            time += c->total_us;
        }
    }
    f->copy_us = a->summary.copy_us / (double)runs;
    f->host_copy_us = time / (double)runs;
    if (f->host_copy_us > f->copy_us) /* both directions at once: this is a sum, that a union */
        f->host_copy_us = f->copy_us;
    f->copy_bytes = stitch__facts_mean(a->summary.copy_bytes, runs);
    f->host_copy_bytes = stitch__facts_mean(bytes, runs);
    f->pageable_copies = stitch__facts_mean(pageable, runs);
}

/* Kernels that are copies count as those; how many bytes they move is not known. */
static void take_moves(stitch__facts *f, const order *o, uint64_t runs)
{
    uint64_t copies = 0, fills = 0;
    int64_t time = 0;
    for (size_t i = 0; i < o->count; i++) {
        const stitch__event *e = event_at(o, i);
        if (!only_moves(f, e))
            continue;
        *(strcmp(f->steps[e->step].kind, "copy") == 0 ? &copies : &fills) += 1;
        time += e->timed ? e->end - e->start : 0;
    }
    copies = stitch__facts_mean(copies, runs);
    fills = stitch__facts_mean(fills, runs);
    f->copies += copies;
    f->fills += fills;
    f->launches -= f->launches < copies + fills ? f->launches : copies + fills;
    f->copy_us += us(time) / (double)runs;
}

int stitch__facts_timeline(stitch__facts *f, const stitch__timeline *t, const stitch__analysis *a, uint64_t runs,
                           stitch_error **err)
{
    const stitch_trace_summary *s = &a->summary;
    bool calls = s->has_calls != 0;
    order o;
    int rc;
    if (!runs)
        return stitch__err(f->arena.ctx, err, STITCH_E_INVALID, "a timeline of no runs");
    rc = make_order(t, runs, &o);
    if (rc == STITCH_OK)
        rc = add_kernels(f, &o, runs);
    if (rc == STITCH_OK && o.length)
        rc = add_idle_time(f, &o, calls, runs);
    if (rc) {
        rc = stitch__err_nomem(f->arena.ctx, err);
        goto out;
    }
    if (!*f->source)
        f->source = "cupti";
    if (!f->multiprocessors && t->sm.count > 0)
        f->multiprocessors = (uint32_t)t->sm.count;
    f->busy_us = s->busy_us / (double)runs;
    f->launches = stitch__facts_mean(s->kernels, runs);
    f->copies = stitch__facts_mean(s->copies, runs);
    f->fills = stitch__facts_mean(s->fills, runs);
    f->graph = o.count && s->graph_nodes == o.count && (!calls || s->graph_launches == runs);
    add_copies(f, a, runs);
    take_moves(f, &o, runs);
    if (!o.count)
        f->no_timeline = "nothing ran on the device";
    else if (t->dropped)
        f->no_timeline = "records of the timeline were dropped: its counts and times are too low";
    else if (o.untimed)
        f->no_timeline = "records of the timeline have no times: its times are too low";
out:
    stitch_free(o.events);
    return rc;
}
