/* SPDX-License-Identifier: MIT
 *
 * What a trace says in numbers: totals, one row a kernel, one a direction of copies, the longest gaps.
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

/* ---- the longest gaps ---- */

/* The call with the most time in a gap before what ends it was launched. Calls are in the order of their start. */
static const char *main_call(const stitch__timeline *t, const stitch__gap *g)
{
    const char *name = "";
    int64_t most = 0;
    for (size_t i = 0; i < t->count && t->events[i].timed && t->events[i].start < g->launched; i++) {
        const stitch__event *e = &t->events[i];
        if (!(STITCH__TRACE_CALLS >> e->kind & 1) || e->end <= g->start)
            continue;
        int64_t common = (e->end < g->launched ? e->end : g->launched) - (e->start > g->start ? e->start : g->start);
        if (common > most) {
            most = common;
            name = t->names[e->name].text;
        }
    }
    return name;
}

static const char *main_cause(const stitch__idle *idle, const stitch__gap *g)
{
    const stitch__idle_causes c = stitch__idle_causes_of(idle, g);
    if (!idle->known)
        return "unknown";
    if (c.device > c.host && c.device > c.sync && c.device > c.call)
        return "device";
    return c.host >= c.sync && c.host >= c.call ? "host" : c.sync >= c.call ? "sync" : "call";
}

static void make_gaps(const stitch__timeline *t, const stitch__idle *idle, stitch__analysis *a)
{
    const stitch__gap *longest[STITCH__TRACE_GAPS + 1]; /* one more, that falls off the end */
    for (size_t i = 0; i < idle->count; i++) {
        const stitch__gap *g = &idle->gaps[i];
        size_t at = a->gap_count;
        for (; at > 0 && longest[at - 1]->end - longest[at - 1]->start < g->end - g->start; at--)
            longest[at] = longest[at - 1];
        longest[at] = g;
        a->gap_count += a->gap_count < STITCH__TRACE_GAPS;
    }
    for (size_t i = 0; i < a->gap_count; i++) {
        const stitch__gap *g = longest[i];
        a->gaps[i] = (stitch_trace_gap){sizeof(a->gaps[i]),
                                        us(g->start),
                                        us(g->end),
                                        t->names[g->before->name].text,
                                        t->names[g->after->name].text,
                                        main_cause(idle, g),
                                        main_call(t, g)};
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

static int sum_host(const stitch__timeline *t, const stitch__idle *idle, stitch_trace_summary *s)
{
    const stitch__event_filter sync = {STITCH__TRACE_BIT(SYNC), true};
    stitch__spans waited;
    s->has_calls = idle->known;
    if (stitch__spans_of(t, &sync, &waited) != STITCH_OK)
        return STITCH_E_NOMEM;
    s->sync_us = us(stitch__spans_length(&waited));
    stitch__spans_free(&waited);
    s->call_us = us(stitch__spans_length(&idle->calls));
    if (idle->known) {
        s->idle_sync_us = us(idle->all.sync);
        s->idle_call_us = us(idle->all.call);
        s->idle_host_us = us(idle->all.host);
    }
    return STITCH_OK;
}

static int sum_device(const stitch__timeline *t, stitch_trace_summary *s)
{
    const stitch__event_filter kernels = {STITCH__TRACE_BIT(KERNEL), false};
    const stitch__event_filter copies = {STITCH__TRACE_BIT(COPY) | STITCH__TRACE_BIT(FILL), false};
    stitch__spans k = {0}, m = {0}, all = {0};
    int rc = STITCH_E_NOMEM;
    if (stitch__spans_of(t, &kernels, &k) != STITCH_OK || stitch__spans_of(t, &copies, &m) != STITCH_OK ||
        stitch__spans_union(t->arena.ctx, &k, &m, &all) != STITCH_OK)
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
    rc = STITCH_OK;
out:
    stitch__spans_free(&k);
    stitch__spans_free(&m);
    stitch__spans_free(&all);
    return rc;
}

static void sum_gaps(const stitch__idle *idle, stitch_trace_summary *s)
{
    int64_t all = 0, in_short = 0, longest = 0;
    s->gaps = idle->count;
    for (size_t i = 0; i < idle->count; i++) {
        int64_t length = idle->gaps[i].end - idle->gaps[i].start;
        bool is_short = length <= STITCH__TRACE_SHORT_GAP_NS;
        all += length;
        longest = length > longest ? length : longest;
        s->short_gaps += is_short;
        in_short += is_short ? length : 0;
    }
    s->idle_us = us(all);
    s->idle_share = s->span_us > 0 ? s->idle_us / s->span_us : 0;
    s->longest_gap_us = us(longest);
    s->short_gap_us = us(in_short);
}

int stitch__analyse(const stitch__timeline *t, stitch__analysis *out)
{
    stitch_trace_summary *s = &out->summary;
    stitch__idle idle;
    int rc = stitch__idle_of(t, &idle);
    memset(out, 0, sizeof(*out));
    if (rc)
        return rc;
    s->struct_size = sizeof(*s);
    s->records = t->count;
    s->dropped = t->dropped;
    s->incomplete = t->incomplete;
    s->unknown = t->unknown;
    s->region_us = us(t->length);
    count_events(t, s);
    rc = sum_device(t, s);
    sum_gaps(&idle, s);
    if (!rc)
        rc = sum_host(t, &idle, s);
    if (!rc)
        rc = stitch__kernel_table(t, &idle, 0, &out->kernels, &out->kernel_count);
    if (!rc) {
        make_copies(t, out);
        make_gaps(t, &idle, out);
    }
    stitch__idle_free(&idle);
    if (rc)
        stitch__analysis_free(out);
    return rc;
}

void stitch__analysis_free(stitch__analysis *a)
{
    stitch__zero_free(a->kernels);
    memset(a, 0, sizeof(*a));
}
