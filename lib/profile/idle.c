/* SPDX-License-Identifier: MIT
 *
 * When the device did nothing, and why. Until the host begins to launch what ends a gap, the host is the reason, by
 * what it does; so is the launching call itself. What is left of the gap is the device's own: between the nodes of a
 * graph and between launches made ahead, whatever the host does meanwhile.
 */
#include <stdlib.h>

#include "profile/profile.h"

/* A call that launches, by the number that it and the device's records share. */
typedef struct call {
    uint32_t correlation;
    int64_t start, end;
} call;

typedef struct calls {
    size_t count;
    call *list; /* stitch_free() */
} calls;

static int by_correlation(const void *pa, const void *pb)
{
    const call *a = pa, *b = pb;
    if (a->correlation != b->correlation)
        return a->correlation < b->correlation ? -1 : 1;
    return (a->start > b->start) - (a->start < b->start);
}

static int make_calls(const stitch__timeline *t, calls *out)
{
    out->count = 0;
    out->list = stitch__calloc(t->arena.ctx, t->count + 1, sizeof(*out->list));
    if (!out->list)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (STITCH__TRACE_CALLS >> e->kind & 1 && e->timed && e->correlation)
            out->list[out->count++] = (call){e->correlation, e->start, e->end};
    }
    qsort(out->list, out->count, sizeof(*out->list), by_correlation);
    return STITCH_OK;
}

/* NULL: it is not known. */
static const call *launch_of(const calls *c, const stitch__event *e)
{
    size_t from = 0, to = c->count;
    while (from < to) { /* the first one: of a call of the runtime and the driver's within, the outer */
        size_t middle = from + (to - from) / 2;
        if (c->list[middle].correlation < e->correlation)
            from = middle + 1;
        else
            to = middle;
    }
    return from < c->count && c->list[from].correlation == e->correlation ? &c->list[from] : NULL;
}

static int64_t within(const stitch__gap *g, int64_t at)
{
    return at < g->start ? g->start : at > g->end ? g->end : at;
}

static int make_gaps(const stitch__timeline *t, const calls *c, stitch__idle *out)
{
    const stitch__event *last = NULL; /* the one that ends last so far */
    out->gaps = stitch__calloc(t->arena.ctx, t->count + 1, sizeof(*out->gaps));
    if (!out->gaps)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (!(STITCH__TRACE_ON_DEVICE >> e->kind & 1) || !e->timed || e->end <= e->start)
            continue;
        if (last && e->start > last->end) {
            stitch__gap *g = &out->gaps[out->count++];
            const call *launch = launch_of(c, e);
            *g = (stitch__gap){last->end, e->start, e->start, e->start, last, e};
            if (launch) {
                g->launching = within(g, launch->start);
                g->launched = within(g, launch->end);
            }
        }
        if (!last || e->end > last->end)
            last = e;
    }
    return STITCH_OK;
}

/* `before`: of gaps of `length` in all, the parts before the calls that launch what ends them. */
static stitch__idle_causes split(const stitch__idle *i, const stitch__spans *before, int64_t length, int64_t launching,
                                 int64_t after)
{
    int64_t in_calls = stitch__spans_common(before, &i->either);
    stitch__idle_causes c = {.sync = stitch__spans_common(before, &i->sync), .device = after};
    c.call = in_calls - c.sync + launching;
    c.host = length - in_calls - launching - after;
    return c;
}

static int sum_causes(const stitch__timeline *t, stitch__idle *i)
{
    stitch__spans before = {0, stitch__calloc(t->arena.ctx, i->count + 1, sizeof(*before.list))};
    int64_t length = 0, launching = 0, after = 0;
    if (!before.list)
        return STITCH_E_NOMEM;
    for (size_t k = 0; k < i->count; k++) {
        const stitch__gap *g = &i->gaps[k];
        if (g->launching > g->start)
            before.list[before.count++] = (stitch__span){g->start, g->launching};
        length += g->end - g->start;
        launching += g->launched - g->launching;
        after += g->end - g->launched;
    }
    i->all = split(i, &before, length, launching, after);
    stitch__spans_free(&before);
    return STITCH_OK;
}

int stitch__idle_of(const stitch__timeline *t, stitch__idle *out)
{
    const stitch__event_filter waits = {STITCH__TRACE_BIT(SYNC) | STITCH__TRACE_CALLS, true};
    const stitch__event_filter any = {STITCH__TRACE_CALLS, false};
    calls launches = {0};
    int rc = make_calls(t, &launches);
    memset(out, 0, sizeof(*out));
    out->known = (t->kinds & (STITCH__TRACE_BIT(DRIVER) | STITCH__TRACE_BIT(RUNTIME))) != 0;
    if (!rc)
        rc = make_gaps(t, &launches, out);
    if (!rc)
        rc = stitch__spans_of(t, &waits, &out->sync);
    if (!rc)
        rc = stitch__spans_of(t, &any, &out->calls);
    if (!rc)
        rc = stitch__spans_union(t->arena.ctx, &out->sync, &out->calls, &out->either);
    if (!rc)
        rc = sum_causes(t, out);
    stitch_free(launches.list);
    if (rc)
        stitch__idle_free(out);
    return rc;
}

void stitch__idle_free(stitch__idle *i)
{
    stitch__zero_free(i->gaps);
    stitch__spans_free(&i->sync);
    stitch__spans_free(&i->calls);
    stitch__spans_free(&i->either);
    memset(i, 0, sizeof(*i));
}

stitch__idle_causes stitch__idle_causes_of(const stitch__idle *i, const stitch__gap *g)
{
    stitch__span span = {g->start, g->launching};
    const stitch__spans before = {1, &span};
    return split(i, &before, g->end - g->start, g->launched - g->launching, g->end - g->launched);
}
