/* SPDX-License-Identifier: MIT
 *
 * What a timeline says: totals, one row a kernel, one a direction of copies, the longest gaps and why they are there.
 */
#include <stdlib.h>

#include "profile/profile.h"

static double us(int64_t ns)
{
    return (double)ns / 1e3;
}

const char *stitch__copy_name(int direction)
{
    static const char *const names[STITCH__TRACE_DIRECTIONS] = {"unknown copy", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                                "AtoD",         "DtoA", "DtoD", "HtoH", "PtoP", "fill"};
    return direction >= 0 && direction < STITCH__TRACE_DIRECTIONS ? names[direction] : names[0];
}

/* ---- kernels ---- */

typedef struct row {
    stitch_trace_kernel k;
    int64_t total, least, most, gaps;
    uint64_t timed;
    const stitch__event *longest;
    bool seen;
} row;

static bool same_sizes(const stitch__event *a, const stitch__event *b)
{
    return memcmp(a->grid, b->grid, sizeof(a->grid)) == 0 && memcmp(a->block, b->block, sizeof(a->block)) == 0 &&
           a->static_shared == b->static_shared && a->dynamic_shared == b->dynamic_shared &&
           a->registers == b->registers;
}

static void add_launch(row *r, const stitch__event *e, int64_t gap)
{
    int64_t time = e->timed ? e->end - e->start : 0;
    if (!r->longest) {
        r->k.step = e->step;
        r->longest = e;
    }
    r->k.count++;
    r->k.varied |= !same_sizes(r->longest, e);
    if (r->k.step != e->step)
        r->k.step = -1;
    if (!e->timed)
        return;
    if (!r->timed || time > r->most)
        r->longest = e;
    r->most = !r->timed || time > r->most ? time : r->most;
    r->least = !r->timed || time < r->least ? time : r->least;
    r->total += time;
    r->gaps += gap;
    r->timed++;
}

static void finish_row(const stitch__timeline *t, row *r, int64_t all)
{
    stitch_trace_kernel *k = &r->k;
    const stitch__event *e = r->longest;
    stitch__occupancy o = stitch__occupancy_of(&t->sm, e);
    k->struct_size = sizeof(*k);
    k->name = t->names[e->name].text;
    k->symbol = t->names[e->name].symbol;
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
}

static int by_total(const void *pa, const void *pb)
{
    const row *a = pa, *b = pb;
    if (a->total != b->total)
        return a->total > b->total ? -1 : 1;
    return strcmp(a->k.symbol, b->k.symbol);
}

/* ---- device order: kernels' gaps, the longest gaps ---- */

typedef struct gap {
    int64_t start, end;
    const stitch__event *before, *after;
} gap;

/* Keeps the longest. */
static void add_gap(gap *gaps, size_t *count, const gap *g)
{
    size_t at = *count;
    while (at > 0 && gaps[at - 1].end - gaps[at - 1].start < g->end - g->start)
        at--;
    if (at == STITCH__TRACE_GAPS)
        return;
    if (*count < STITCH__TRACE_GAPS)
        ++*count;
    memmove(&gaps[at + 1], &gaps[at], (*count - at - 1) * sizeof(*gaps));
    gaps[at] = *g;
}

static int make_rows(const stitch__timeline *t, stitch__analysis *a, gap *gaps, size_t *gap_count)
{
    row *rows = stitch__calloc(t->arena.ctx, t->name_count ? t->name_count : 1, sizeof(*rows));
    const stitch__event *last = NULL; /* the one that ends last so far */
    size_t count = 0;
    int64_t all = 0;
    if (!rows)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (!(STITCH__TRACE_ON_DEVICE >> e->kind & 1))
            continue;
        int64_t idle = 0;
        if (e->timed && last && e->start > last->end) {
            gap g = {last->end, e->start, last, e};
            add_gap(gaps, gap_count, &g);
            idle = e->start - last->end;
        }
        if (e->kind == STITCH_TRACE_KERNEL)
            add_launch(&rows[e->name], e, idle);
        if (e->timed && (!last || e->end > last->end))
            last = e;
    }
    for (size_t i = 0; i < t->name_count; i++) {
        if (rows[i].k.count)
            rows[count++] = rows[i];
    }
    for (size_t i = 0; i < count; i++)
        all += rows[i].total;
    for (size_t i = 0; i < count; i++)
        finish_row(t, &rows[i], all);
    if (count)
        qsort(rows, count, sizeof(*rows), by_total);
    a->kernels = stitch__calloc(t->arena.ctx, count ? count : 1, sizeof(*a->kernels));
    for (size_t i = 0; a->kernels && i < count; i++)
        a->kernels[i] = rows[i].k;
    a->kernel_count = a->kernels ? count : 0;
    stitch_free(rows);
    return a->kernels ? STITCH_OK : STITCH_E_NOMEM;
}

/* ---- copies ---- */

static void make_copies(const stitch__timeline *t, stitch__analysis *a)
{
    stitch_trace_copy all[STITCH__TRACE_DIRECTIONS];
    uint64_t timed_bytes[STITCH__TRACE_DIRECTIONS] = {0};
    memset(all, 0, sizeof(all));
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (e->kind != STITCH_TRACE_COPY && e->kind != STITCH_TRACE_FILL)
            continue;
        int d = e->detail < STITCH__TRACE_DIRECTIONS ? e->detail : 0;
        all[d].count++;
        all[d].bytes += e->bytes;
        all[d].pageable += e->pageable;
        if (e->timed) {
            all[d].total_us += us(e->end - e->start);
            timed_bytes[d] += e->bytes;
        }
    }
    for (int d = 0; d < STITCH__TRACE_DIRECTIONS; d++) {
        if (!all[d].count)
            continue;
        all[d].struct_size = sizeof(all[d]);
        all[d].name = stitch__copy_name(d);
        all[d].gb_per_s = all[d].total_us > 0 ? (double)timed_bytes[d] / all[d].total_us / 1e3 : 0;
        size_t at = a->copy_count++;
        for (; at > 0 && a->copies[at - 1].total_us < all[d].total_us; at--)
            a->copies[at] = a->copies[at - 1];
        a->copies[at] = all[d];
    }
}

/* ---- why the device was idle ---- */

typedef struct causes {
    stitch__spans sync, calls, either; /* host times */
    bool known;
} causes;

static void causes_free(causes *c)
{
    stitch__spans_free(&c->sync);
    stitch__spans_free(&c->calls);
    stitch__spans_free(&c->either);
}

static int causes_make(const stitch__timeline *t, causes *c)
{
    const stitch__event_filter waits = {STITCH__TRACE_BIT(SYNC) | STITCH__TRACE_CALLS, 0, 0, true};
    const stitch__event_filter calls = {STITCH__TRACE_CALLS, 0, 0, false};
    memset(c, 0, sizeof(*c));
    c->known = (t->kinds & (STITCH__TRACE_BIT(DRIVER) | STITCH__TRACE_BIT(RUNTIME))) != 0;
    if (stitch__spans_of(t, &waits, &c->sync) != STITCH_OK || stitch__spans_of(t, &calls, &c->calls) != STITCH_OK ||
        stitch__spans_union(t->arena.ctx, &c->sync, &c->calls, &c->either) != STITCH_OK)
        return STITCH_E_NOMEM;
    return STITCH_OK;
}

/* The call with the most time in a gap. Calls are in the order of their start. */
static const char *main_call(const stitch__timeline *t, const gap *g)
{
    const char *name = "";
    int64_t most = 0;
    for (size_t i = 0; i < t->count && t->events[i].timed && t->events[i].start < g->end; i++) {
        const stitch__event *e = &t->events[i];
        if (!(STITCH__TRACE_CALLS >> e->kind & 1) || e->end <= g->start)
            continue;
        int64_t common = (e->end < g->end ? e->end : g->end) - (e->start > g->start ? e->start : g->start);
        if (common > most) {
            most = common;
            name = t->names[e->name].text;
        }
    }
    return name;
}

static void make_gaps(const stitch__timeline *t, const causes *c, const gap *gaps, size_t count, stitch__analysis *a)
{
    a->gap_count = count;
    for (size_t i = 0; i < count; i++) {
        stitch_trace_gap *out = &a->gaps[i];
        stitch__span span = {gaps[i].start, gaps[i].end};
        stitch__spans one = {1, &span};
        int64_t sync = stitch__spans_common(&one, &c->sync);
        int64_t call = stitch__spans_common(&one, &c->either) - sync;
        int64_t host = span.end - span.start - sync - call;
        out->struct_size = sizeof(*out);
        out->start_us = us(span.start);
        out->end_us = us(span.end);
        out->before = t->names[gaps[i].before->name].text;
        out->after = t->names[gaps[i].after->name].text;
        out->call = main_call(t, &gaps[i]);
        out->cause = !c->known ? "unknown" : host >= sync && host >= call ? "host" : sync >= call ? "sync" : "call";
    }
}

/* ---- totals ---- */

static void count_events(const stitch__timeline *t, stitch_trace_summary *s)
{
    enum { MANY = 256 };
    struct {
        uint32_t device, context, stream;
    } streams[MANY];
    uint32_t devices = 0;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        s->kernels += e->kind == STITCH_TRACE_KERNEL;
        s->copies += e->kind == STITCH_TRACE_COPY;
        s->fills += e->kind == STITCH_TRACE_FILL;
        s->copy_bytes += e->kind == STITCH_TRACE_COPY ? e->bytes : 0;
        s->graph_launches += e->kind == STITCH_TRACE_GRAPH_LAUNCH;
        s->syncs += e->kind == STITCH_TRACE_SYNC && e->detail != STITCH__SYNC_STREAM_WAIT;
        s->calls += (STITCH__TRACE_CALLS >> e->kind & 1) ? e->calls : 0;
        if (!(STITCH__TRACE_ON_DEVICE >> e->kind & 1))
            continue;
        s->graph_nodes += e->graph_node != 0;
        size_t k = 0;
        while (k < s->streams &&
               (streams[k].device != e->device || streams[k].context != e->context || streams[k].stream != e->stream))
            k++;
        if (k < s->streams || k == MANY)
            continue;
        bool seen = false;
        for (size_t j = 0; j < s->streams; j++)
            seen |= streams[j].device == e->device;
        devices += !seen;
        streams[k].device = e->device;
        streams[k].context = e->context;
        streams[k].stream = e->stream;
        s->streams++;
    }
    s->devices = devices;
}

static int sum_host(const stitch__timeline *t, const causes *c, const stitch__spans *gaps, stitch_trace_summary *s)
{
    const stitch__event_filter sync = {STITCH__TRACE_BIT(SYNC), 0, 0, true};
    stitch__spans waited;
    s->has_calls = c->known;
    if (stitch__spans_of(t, &sync, &waited) != STITCH_OK)
        return STITCH_E_NOMEM;
    s->sync_us = us(stitch__spans_length(&waited));
    stitch__spans_free(&waited);
    s->call_us = us(stitch__spans_length(&c->calls));
    if (!c->known)
        return STITCH_OK;
    int64_t in_sync = stitch__spans_common(gaps, &c->sync), in_any = stitch__spans_common(gaps, &c->either);
    s->idle_sync_us = us(in_sync);
    s->idle_call_us = us(in_any - in_sync);
    s->idle_host_us = us(stitch__spans_length(gaps) - in_any);
    return STITCH_OK;
}

static int sum_device(const stitch__timeline *t, const causes *c, stitch_trace_summary *s)
{
    const stitch__event_filter kernels = {STITCH__TRACE_BIT(KERNEL), 0, 0, false};
    const stitch__event_filter copies = {STITCH__TRACE_BIT(COPY) | STITCH__TRACE_BIT(FILL), 0, 0, false};
    stitch__spans k = {0}, m = {0}, all = {0}, gaps = {0};
    int rc = STITCH_E_NOMEM;
    if (stitch__spans_of(t, &kernels, &k) != STITCH_OK || stitch__spans_of(t, &copies, &m) != STITCH_OK ||
        stitch__spans_union(t->arena.ctx, &k, &m, &all) != STITCH_OK ||
        stitch__spans_gaps(t->arena.ctx, &all, &gaps) != STITCH_OK)
        goto out;
    s->kernel_us = us(stitch__spans_length(&k));
    s->copy_us = us(stitch__spans_length(&m));
    s->overlap_us = us(stitch__spans_common(&k, &m));
    s->busy_us = us(stitch__spans_length(&all));
    if (all.count) {
        int64_t first = all.list[0].start;
        s->span_us = us(all.list[all.count - 1].end - first);
        s->lead_us = first > 0 ? us(first) : 0;
    }
    s->idle_us = us(stitch__spans_length(&gaps));
    s->idle_share = s->span_us > 0 ? s->idle_us / s->span_us : 0;
    s->gaps = gaps.count;
    for (size_t i = 0; i < gaps.count; i++) {
        int64_t length = gaps.list[i].end - gaps.list[i].start;
        if (us(length) > s->longest_gap_us)
            s->longest_gap_us = us(length);
        if (length > STITCH__TRACE_SHORT_GAP_NS)
            continue;
        s->short_gaps++;
        s->short_gap_us += us(length);
    }
    rc = sum_host(t, c, &gaps, s);
out:
    stitch__spans_free(&k);
    stitch__spans_free(&m);
    stitch__spans_free(&all);
    stitch__spans_free(&gaps);
    return rc;
}

int stitch__analyse(const stitch__timeline *t, stitch__analysis *out)
{
    gap gaps[STITCH__TRACE_GAPS];
    size_t gap_count = 0;
    causes c;
    memset(out, 0, sizeof(*out));
    stitch_trace_summary *s = &out->summary;
    s->struct_size = sizeof(*s);
    s->records = t->count;
    s->dropped = t->dropped;
    s->incomplete = t->incomplete;
    s->unknown = t->unknown;
    s->region_us = us(t->length);
    count_events(t, s);
    int rc = causes_make(t, &c);
    if (rc == STITCH_OK)
        rc = sum_device(t, &c, s);
    if (rc == STITCH_OK)
        rc = make_rows(t, out, gaps, &gap_count);
    if (rc == STITCH_OK) {
        make_copies(t, out);
        make_gaps(t, &c, gaps, gap_count, out);
    }
    causes_free(&c);
    if (rc)
        stitch__analysis_free(out);
    return rc;
}

void stitch__analysis_free(stitch__analysis *a)
{
    stitch__zero_free(a->kernels);
    memset(a, 0, sizeof(*a));
}
