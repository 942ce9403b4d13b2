/* SPDX-License-Identifier: MIT
 *
 * A trace as the JSON that Perfetto and chrome://tracing open. Slices of one track must not overlap there, but kernels
 * of one stream may (branches of a graph), so that a track gets further lanes where needed.
 */
#include "profile/profile.h"

enum {
    HOST = 1,
    DEVICES = 100, /* + ordinal */
    LANES = 512,   /* more than a device runs at once, or a host has threads that wait; beyond, slices do overlap */
    SYNC_TRACK = 0,
};

typedef struct track {
    uint32_t process;
    uint32_t context, id; /* stream, or host thread */
    uint32_t lane;
    bool sync;
    int64_t end; /* of the last slice */
} track;

typedef struct tracks {
    size_t count, cap;
    track *list;
} tracks;

/* Where calls were made, by their correlation: a table with more places than calls. */
typedef struct launches {
    struct {
        uint32_t correlation; /* 0: free */
        size_t track;
        int64_t start;
    } * list;
    size_t mask;
    uint64_t arrows;
} launches;

static int launches_open(launches *l, const stitch__timeline *t)
{
    size_t places = 2;
    for (size_t i = 0; i < t->count; i++)
        places += 2 * (STITCH__TRACE_CALLS >> t->events[i].kind & 1);
    for (l->mask = 1; l->mask < places; l->mask *= 2) {
    }
    l->list = stitch__calloc(t->arena.ctx, l->mask--, sizeof(*l->list));
    return l->list ? STITCH_OK : STITCH_E_NOMEM;
}

/* Of a correlation, or where it would be. */
static size_t launch_of(const launches *l, uint32_t correlation)
{
    size_t at = correlation * UINT32_C(2654435761) & l->mask;
    while (l->list[at].correlation && l->list[at].correlation != correlation)
        at = (at + 1) & l->mask;
    return at;
}

/* A JSON string. Names are clean UTF-8 already. */
static void put_string(stitch__buf *out, const char *s)
{
    stitch__buf_putc(out, '"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            stitch__buf_putc(out, '\\');
        stitch__buf_putc(out, (unsigned char)*s < 0x20 ? ' ' : *s);
    }
    stitch__buf_putc(out, '"');
}

static bool same_track(const track *a, const track *b)
{
    return a->process == b->process && a->context == b->context && a->id == b->id && a->sync == b->sync;
}

/* Index of a track that is free at the event's start; SIZE_MAX: out of memory. */
static size_t track_of(const stitch_context *ctx, tracks *all, const stitch__event *e)
{
    track want = {0};
    bool device = (STITCH__TRACE_ON_DEVICE >> e->kind & 1) != 0;
    want.process = device ? DEVICES + e->device : HOST;
    want.context = device ? e->context : 0;
    want.sync = e->kind == STITCH_TRACE_SYNC;
    want.id = device ? e->stream : want.sync ? SYNC_TRACK : e->thread;
    size_t last = SIZE_MAX;
    for (size_t i = 0; i < all->count; i++) {
        if (!same_track(&all->list[i], &want))
            continue;
        last = i;
        want.lane = all->list[i].lane + 1;
        if (all->list[i].end <= e->start)
            return i;
    }
    if (want.lane >= LANES)
        return last;
    if (stitch__grow(ctx, &all->list, &all->cap, all->count + 1, sizeof(*all->list)) != STITCH_OK)
        return SIZE_MAX;
    all->list[all->count] = want;
    return all->count++;
}

static void put_device_args(stitch__buf *out, const stitch__timeline *t, const stitch__event *e)
{
    stitch__buf_printf(out, "\"context\":%" PRIu32 ",\"stream\":%" PRIu32, e->context, e->stream);
    if (e->graph)
        stitch__buf_printf(out, ",\"graph\":%" PRIu32 ",\"graph_node\":%" PRIu64, e->graph, e->graph_node);
    if (e->step >= 0)
        stitch__buf_printf(out, ",\"step\":%" PRId32, e->step);
    if (e->kind != STITCH_TRACE_KERNEL) {
        stitch__buf_printf(out, ",\"bytes\":%" PRIu64, e->bytes);
        if (e->end > e->start)
            stitch__buf_printf(out, ",\"GB/s\":%.2f", (double)e->bytes / (double)(e->end - e->start));
        return;
    }
    stitch__occupancy o = stitch__occupancy_of(&t->sm, e);
    stitch__buf_printf(out,
                       ",\"grid\":[%" PRIu32 ",%" PRIu32 ",%" PRIu32 "],\"block\":[%" PRIu32 ",%" PRIu32 ",%" PRIu32
                       "],\"registers\":%u,\"static shared\":%" PRIu32 ",\"dynamic shared\":%" PRIu32
                       ",\"local\":%" PRIu32,
                       e->grid[0], e->grid[1], e->grid[2], e->block[0], e->block[1], e->block[2], e->registers,
                       e->static_shared, e->dynamic_shared, e->local);
    if (o.share > 0)
        stitch__buf_printf(out, ",\"occupancy\":%.3f,\"waves\":%.3f", o.share, o.waves);
    stitch__buf_puts(out, ",\"symbol\":");
    put_string(out, t->names[e->name].symbol);
}

static void put_event(stitch__buf *out, const stitch__timeline *t, const stitch__event *e, uint32_t process, size_t tid)
{
    bool device = (STITCH__TRACE_ON_DEVICE >> e->kind & 1) != 0;
    bool call = (STITCH__TRACE_CALLS >> e->kind & 1) != 0;
    double ts = (double)e->start / 1e3, dur = (double)(e->end - e->start) / 1e3;
    stitch__buf_puts(out, ",\n{\"ph\":\"X\",\"name\":");
    put_string(out, t->names[e->name].text);
    stitch__buf_printf(out,
                       ",\"cat\":\"%s\",\"pid\":%" PRIu32
                       ",\"tid\":%zu,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"correlation\":%" PRIu32,
                       stitch_trace_kind_name(e->kind), process, tid, ts, dur, e->correlation);
    if (device) {
        stitch__buf_putc(out, ',');
        put_device_args(out, t, e);
    } else if (call) {
        stitch__buf_printf(out, ",\"result\":%" PRId32 ",\"calls\":%" PRIu32, e->result, e->calls);
    }
    stitch__buf_puts(out, "}}");
}

static void put_end(stitch__buf *out, const char *end, uint64_t id, uint32_t process, size_t tid, int64_t at)
{
    stitch__buf_printf(out,
                       ",\n{\"ph\":\"%s\",\"name\":\"launch\",\"cat\":\"launch\",\"id\":%" PRIu64 ",\"pid\":%" PRIu32
                       ",\"tid\":%zu,\"ts\":%.3f%s}",
                       end, id, process, tid, (double)at / 1e3, *end == 'f' ? ",\"bp\":\"e\"" : "");
}

/* An arrow from the launch to what it launched: from the innermost call that was recorded. Nodes of graphs have none:
 * their numbers are not reliable. */
static void put_arrow(stitch__buf *out, launches *l, const tracks *all, const stitch__event *e, size_t on)
{
    if (!e->correlation || e->graph)
        return;
    size_t at = launch_of(l, e->correlation);
    if (STITCH__TRACE_CALLS >> e->kind & 1) {
        l->list[at].correlation = e->correlation;
        l->list[at].track = on;
        l->list[at].start = e->start;
    } else if ((STITCH__TRACE_ON_DEVICE >> e->kind & 1) && l->list[at].correlation) {
        size_t from = l->list[at].track;
        l->arrows++;
        put_end(out, "s", l->arrows, all->list[from].process, from + 1, l->list[at].start);
        put_end(out, "f", l->arrows, all->list[on].process, on + 1, e->start);
    }
}

static void put_name(stitch__buf *out, const char *what, uint32_t process, size_t tid, const char *name)
{
    stitch__buf_printf(out,
                       ",\n{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%zu,\"args\":{\"name\":\"%s\"}}",
                       what, process, tid, name);
}

static void put_tracks(stitch__buf *out, const tracks *all)
{
    char name[96], lane[24];
    put_name(out, "process_name", HOST, 0, "host"); /* which has the slice of the whole trace in any case */
    for (size_t i = 0; i < all->count; i++) {
        const track *r = &all->list[i];
        lane[0] = '\0';
        if (r->lane)
            snprintf(lane, sizeof(lane), " (%" PRIu32 ")", r->lane + 1);
        if (r->process != HOST)
            snprintf(name, sizeof(name), "context %" PRIu32 ", stream %" PRIu32 "%s", r->context, r->id, lane);
        else if (r->sync)
            snprintf(name, sizeof(name), "synchronisation%s", lane);
        else
            snprintf(name, sizeof(name), "thread %" PRIu32 "%s", r->id, lane);
        put_name(out, "thread_name", r->process, i + 1, name);
        bool first = r->process != HOST;
        for (size_t j = 0; j < i; j++)
            first &= all->list[j].process != r->process;
        if (!first)
            continue;
        snprintf(name, sizeof(name), "GPU %" PRIu32, r->process - DEVICES);
        put_name(out, "process_name", r->process, 0, name);
    }
}

int stitch__trace_write_json(const stitch__timeline *t, stitch__buf *out)
{
    tracks all = {0};
    launches calls = {0};
    int rc = launches_open(&calls, t);
    stitch__buf_printf(out,
                       "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"libstitch\",\"dropped\":%" PRIu64
                       ",\"incomplete\":%" PRIu64 "},\"traceEvents\":[\n"
                       "{\"ph\":\"X\",\"name\":\"trace\",\"cat\":\"trace\",\"pid\":%d,\"tid\":0,\"ts\":0,\"dur\":%.3f}",
                       t->dropped, t->incomplete, HOST, (double)t->length / 1e3);
    for (size_t i = 0; i < t->count && rc == STITCH_OK; i++) {
        const stitch__event *e = &t->events[i];
        if (!e->timed)
            continue;
        size_t at = track_of(t->arena.ctx, &all, e);
        if (at == SIZE_MAX) {
            rc = STITCH_E_NOMEM;
            break;
        }
        if (e->end > all.list[at].end)
            all.list[at].end = e->end;
        put_event(out, t, e, all.list[at].process, at + 1);
        put_arrow(out, &calls, &all, e, at);
    }
    put_tracks(out, &all);
    stitch__buf_puts(out, "\n]}\n");
    stitch_free(all.list);
    stitch_free(calls.list);
    return out->failed ? STITCH_E_NOMEM : rc;
}
