/* SPDX-License-Identifier: MIT
 *
 * CUPTI's activity records into events. Each is read through the oldest layout that has the fields; what does not lie
 * within the buffer, or is of an unknown kind, is counted and left alone.
 */
#include "profile/profile.h"

static const char *const sync_names[] = {"unknown", "event", "stream waits for event", "stream", "context"};

static size_t record_size(int kind)
{
    switch (kind) {
    case STITCH__CUPTI_KIND_KERNEL:
    case STITCH__CUPTI_KIND_CONCURRENT_KERNEL: return sizeof(stitch__cupti_kernel);
    case STITCH__CUPTI_KIND_MEMCPY: return sizeof(stitch__cupti_memcpy);
    case STITCH__CUPTI_KIND_MEMCPY2: return sizeof(stitch__cupti_memcpy_peer);
    case STITCH__CUPTI_KIND_MEMSET: return sizeof(stitch__cupti_memset);
    case STITCH__CUPTI_KIND_DRIVER:
    case STITCH__CUPTI_KIND_RUNTIME: return sizeof(stitch__cupti_api);
    case STITCH__CUPTI_KIND_SYNCHRONIZATION: return sizeof(stitch__cupti_sync);
    default: return 0;
    }
}

/* Times since the trace began. False: the record is of something that was over before. */
static bool set_times(const stitch__record_reader *r, stitch__event *e, uint64_t start, uint64_t end)
{
    e->timed = start != 0 && end >= start && end <= INT64_MAX;
    if (!e->timed)
        return true;
    e->start = (int64_t)start - (int64_t)r->began;
    e->end = (int64_t)end - (int64_t)r->began;
    if (e->end < 0)
        return false;
    if (e->start < 0) /* the two clocks are compared to within a microsecond or so */
        e->start = 0;
    return true;
}

static bool read_kernel(stitch__record_reader *r, const stitch__cupti_kernel *k, stitch__event *e)
{
    e->kind = STITCH_TRACE_KERNEL;
    e->device = k->device;
    e->context = k->context;
    e->stream = k->stream;
    e->correlation = k->correlation;
    e->graph = k->graph;
    e->graph_node = k->graph_node;
    e->registers = k->registers;
    e->local = k->local_per_thread;
    e->static_shared = k->static_shared > 0 ? (uint32_t)k->static_shared : 0;
    e->dynamic_shared = k->dynamic_shared > 0 ? (uint32_t)k->dynamic_shared : 0;
    for (int i = 0; i < 3; i++) {
        e->grid[i] = k->grid[i] > 0 ? (uint32_t)k->grid[i] : 0;
        e->block[i] = k->block[i] > 0 ? (uint32_t)k->block[i] : 0;
    }
    return set_times(r, e, k->start, k->end);
}

/* Copies within a device and copies between devices differ behind their first fields. */
static bool read_memcpy(stitch__record_reader *r, const stitch__cupti_memcpy *m, stitch__event *e)
{
    e->kind = STITCH_TRACE_COPY;
    e->detail = m->copy_kind < STITCH__TRACE_DIRECTIONS - 1 ? m->copy_kind : 0;
    e->pageable = m->src_kind == 1 || m->dst_kind == 1;
    e->bytes = m->bytes;
    e->device = m->device;
    e->context = m->context;
    e->stream = m->stream;
    if (m->kind == STITCH__CUPTI_KIND_MEMCPY2) {
        const stitch__cupti_memcpy_peer *p = (const stitch__cupti_memcpy_peer *)m;
        e->correlation = p->correlation;
        e->graph = p->graph;
        e->graph_node = p->graph_node;
    } else {
        e->correlation = m->correlation;
        e->graph = m->graph;
        e->graph_node = m->graph_node;
    }
    return set_times(r, e, m->start, m->end);
}

static bool read_memset(stitch__record_reader *r, const stitch__cupti_memset *m, stitch__event *e)
{
    e->kind = STITCH_TRACE_FILL;
    e->detail = STITCH__TRACE_DIRECTIONS - 1;
    e->bytes = m->bytes;
    e->device = m->device;
    e->context = m->context;
    e->stream = m->stream;
    e->correlation = m->correlation;
    e->graph = m->graph;
    e->graph_node = m->graph_node;
    return set_times(r, e, m->start, m->end);
}

/* Calls get their names when the trace has ended: asking CUPTI for them from within its callback, with our own lock
 * held, is asking for a deadlock. Until then they are numbers. */
static bool call_number(stitch__record_reader *r, int domain, uint32_t id, uint32_t *name)
{
    uint32_t *known = id < STITCH__COUNT(r->calls[0]) ? &r->calls[domain][id] : NULL;
    char number[48];
    if (known && *known) {
        *name = *known - 1;
        return true;
    }
    snprintf(number, sizeof(number), "%s call %" PRIu32, domain ? "runtime" : "driver", id);
    if (stitch__timeline_name(r->timeline, number, false, name) != STITCH_OK)
        return false;
    if (known)
        *known = *name + 1;
    return true;
}

int stitch__records_name_calls(stitch__record_reader *r)
{
    static const int domains[2] = {STITCH__CUPTI_DOMAIN_DRIVER, STITCH__CUPTI_DOMAIN_RUNTIME};
    stitch__timeline *t = r->timeline;
    uint32_t *names = stitch__calloc(t->arena.ctx, t->name_count + 1, sizeof(*names));
    size_t count = t->name_count;
    int rc = names ? STITCH_OK : STITCH_E_NOMEM;
    for (uint32_t i = 0; rc == STITCH_OK && i < count; i++)
        names[i] = i;
    for (int d = 0; d < 2; d++) {
        for (uint32_t id = 0; id < STITCH__COUNT(r->calls[0]) && rc == STITCH_OK; id++) {
            const char *text = NULL;
            if (r->calls[d][id] && r->cupti->GetCallbackName(domains[d], id, &text) == STITCH__CUPTI_OK && text)
                rc = stitch__timeline_name(t, text, false, &names[r->calls[d][id] - 1]);
        }
    }
    for (size_t i = 0; i < t->count && rc == STITCH_OK; i++) {
        stitch__event *e = &t->events[i];
        if (!(STITCH__TRACE_CALLS >> e->kind & 1))
            continue;
        e->name = names[e->name];
        if (strstr(t->names[e->name].symbol, "GraphLaunch"))
            e->kind = STITCH_TRACE_GRAPH_LAUNCH;
        r->graphs |= e->kind == STITCH_TRACE_GRAPH_LAUNCH;
    }
    stitch_free(names);
    return rc;
}

static bool read_call(stitch__record_reader *r, const stitch__cupti_api *a, stitch__event *e)
{
    e->kind = a->kind == STITCH__CUPTI_KIND_DRIVER ? STITCH_TRACE_DRIVER : STITCH_TRACE_RUNTIME;
    e->thread = a->thread;
    e->correlation = a->correlation;
    e->result = (int32_t)a->result;
    return set_times(r, e, a->start, a->end);
}

static bool read_sync(stitch__record_reader *r, const stitch__cupti_sync *s, stitch__event *e)
{
    e->kind = STITCH_TRACE_SYNC;
    e->detail = s->type >= 0 && s->type < (int)STITCH__COUNT(sync_names) ? (uint8_t)s->type : 0;
    e->context = s->context;
    e->stream = s->stream == UINT32_MAX ? 0 : s->stream;
    e->correlation = s->correlation;
    return set_times(r, e, s->start, s->end);
}

static void read_one(stitch__record_reader *r, const stitch__cupti_record *record)
{
    stitch__timeline *t = r->timeline;
    stitch__event e = {.calls = 1, .step = -1};
    bool inside, named;
    switch (record->kind) {
    case STITCH__CUPTI_KIND_KERNEL:
    case STITCH__CUPTI_KIND_CONCURRENT_KERNEL: inside = read_kernel(r, (const void *)record, &e); break;
    case STITCH__CUPTI_KIND_MEMCPY:
    case STITCH__CUPTI_KIND_MEMCPY2: inside = read_memcpy(r, (const void *)record, &e); break;
    case STITCH__CUPTI_KIND_MEMSET: inside = read_memset(r, (const void *)record, &e); break;
    case STITCH__CUPTI_KIND_DRIVER:
    case STITCH__CUPTI_KIND_RUNTIME: inside = read_call(r, (const void *)record, &e); break;
    default: inside = read_sync(r, (const void *)record, &e); break;
    }
    if (!inside)
        return;
    r->graphs |= e.graph || e.graph_node;
    if (!e.timed)
        t->incomplete++;
    if (!e.timed && !(STITCH__TRACE_ON_DEVICE >> e.kind & 1))
        return; /* a call that has not returned, the one to end the trace among them */
    if (t->count >= t->max_events) {
        t->dropped++;
        return;
    }
    if (e.kind == STITCH_TRACE_KERNEL)
        named = stitch__timeline_name(t, ((const stitch__cupti_kernel *)record)->name, true, &e.name) == STITCH_OK;
    else if (STITCH__TRACE_CALLS >> e.kind & 1)
        named = call_number(r, record->kind == STITCH__CUPTI_KIND_RUNTIME,
                            ((const stitch__cupti_api *)record)->callback, &e.name);
    else
        named =
            stitch__timeline_name(t, e.kind == STITCH_TRACE_SYNC ? sync_names[e.detail] : stitch__copy_name(e.detail),
                                  false, &e.name) == STITCH_OK;
    if (!named) {
        t->dropped++;
        return;
    }
    stitch__timeline_add(t, &e);
}

void stitch__records_read(stitch__record_reader *r, uint8_t *buffer, size_t valid)
{
    stitch__cupti_record *record = NULL;
    const uint8_t *after = buffer; /* where the next record may start */
    while (valid && r->cupti->ActivityGetNextRecord(buffer, valid, &record) == STITCH__CUPTI_OK) {
        const uint8_t *at = (const uint8_t *)record;
        size_t left = record && at >= after && at < buffer + valid ? valid - (size_t)(at - buffer) : 0;
        if (left < sizeof(*record) || (uintptr_t)at % 8 != 0 || left < record_size(record->kind)) {
            r->timeline->incomplete++;
            return;
        }
        size_t size = record_size(record->kind);
        after = at + (size ? size : sizeof(*record));
        if (size)
            read_one(r, record);
        else
            r->timeline->unknown++;
    }
}
