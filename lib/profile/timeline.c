/* SPDX-License-Identifier: MIT
 *
 * The records of a trace in order, their names, and arithmetic on sets of times. Knows nothing of CUPTI.
 */
#include <stdlib.h>

#include "cuda/internal.h"
#include "profile/profile.h"

void stitch__timeline_init(stitch__timeline *t, const stitch_context *ctx)
{
    memset(t, 0, sizeof(*t));
    t->arena.ctx = ctx;
    t->max_events = STITCH__TRACE_MAX_EVENTS;
}

void stitch__timeline_free(stitch__timeline *t)
{
    stitch__zero_free(t->events);
    stitch__zero_free(t->names);
    stitch__zero_free(t->hash);
    t->count = t->cap = t->name_count = t->name_cap = t->hash_size = 0;
    stitch__arena_free(&t->arena);
}

/* ---- names ---- */

static uint32_t hash_of(const char *s, size_t len, bool kernel)
{
    uint32_t h = 2166136261u + kernel;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

static bool same_name(const stitch__name *n, const char *s, size_t len, bool kernel)
{
    return n->kernel == kernel && strncmp(n->symbol, s, len) == 0 && n->symbol[len] == '\0';
}

static int rehash(stitch__timeline *t)
{
    size_t size = t->hash_size ? t->hash_size * 2 : 256;
    uint32_t *hash = stitch__calloc(t->arena.ctx, size, sizeof(*hash));
    if (!hash)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->name_count; i++) {
        size_t at = hash_of(t->names[i].symbol, strlen(t->names[i].symbol), t->names[i].kernel) & (size - 1);
        while (hash[at])
            at = (at + 1) & (size - 1);
        hash[at] = (uint32_t)i + 1;
    }
    stitch_free(t->hash);
    t->hash = hash;
    t->hash_size = size;
    return STITCH_OK;
}

int stitch__timeline_name(stitch__timeline *t, const char *symbol, bool kernel, uint32_t *out)
{
    size_t len = strnlen(symbol ? symbol : "", STITCH__TRACE_SYMBOL_MAX);
    *out = 0;
    if (!symbol)
        symbol = "";
    if ((t->name_count + 1) * 2 > t->hash_size && rehash(t) != STITCH_OK)
        return STITCH_E_NOMEM;
    size_t at = hash_of(symbol, len, kernel) & (t->hash_size - 1);
    for (; t->hash[at]; at = (at + 1) & (t->hash_size - 1)) {
        if (same_name(&t->names[t->hash[at] - 1], symbol, len, kernel)) {
            *out = t->hash[at] - 1;
            return STITCH_OK;
        }
    }
    if (t->name_count >= UINT32_MAX - 1 ||
        stitch__grow(t->arena.ctx, &t->names, &t->name_cap, t->name_count + 1, sizeof(*t->names)) != STITCH_OK)
        return STITCH_E_NOMEM;
    char *copy = stitch__arena_strndup(&t->arena, symbol, len);
    if (!copy)
        return STITCH_E_NOMEM;
    stitch__name *n = &t->names[t->name_count];
    memset(n, 0, sizeof(*n));
    n->symbol = copy;
    n->kernel = kernel;
    n->polls = !kernel && strstr(copy, "Query") && (strstr(copy, "Stream") || strstr(copy, "Event"));
    n->waits = !kernel && (n->polls || strstr(copy, "Synchronize"));
    t->hash[at] = (uint32_t)++t->name_count;
    *out = (uint32_t)t->name_count - 1;
    return STITCH_OK;
}

/* One line of valid UTF-8 without control characters. */
static const char *clean(stitch__timeline *t, const char *s, size_t max)
{
    stitch__buf b;
    stitch__buf_init(&b, t->arena.ctx);
    stitch__buf_puts_clean(&b, s, strlen(s), max);
    for (size_t i = 0; i < b.len; i++) {
        if (b.data[i] == '\n' || b.data[i] == '\t')
            b.data[i] = ' ';
    }
    const char *out = b.failed ? NULL : stitch__arena_strdup(&t->arena, b.data ? b.data : "");
    stitch__buf_free(&b);
    return out;
}

static int finish_name(stitch__timeline *t, stitch__name *n)
{
    stitch__demangled d = {0};
    if (n->text)
        return STITCH_OK;
    if (n->kernel && stitch__demangle(&t->arena, n->symbol, &d) != STITCH_OK)
        return STITCH_E_NOMEM;
    const char *text = d.name ? d.name : n->symbol;
    n->text = clean(t, *text ? text : "(no name)", STITCH__TRACE_NAME_MAX);
    n->symbol = n->text ? clean(t, n->symbol, STITCH__TRACE_SYMBOL_MAX) : NULL;
    return n->text && n->symbol ? STITCH_OK : STITCH_E_NOMEM;
}

/* ---- events ---- */

void stitch__timeline_add(stitch__timeline *t, const stitch__event *e)
{
    if (t->count >= t->max_events ||
        stitch__grow(t->arena.ctx, &t->events, &t->cap, t->count + 1, sizeof(*t->events)) != STITCH_OK) {
        t->dropped++;
        return;
    }
    t->events[t->count++] = *e;
}

/* By start, the longer one first (a call before what it encloses); without times last, by launch. */
static int by_start(const void *pa, const void *pb)
{
    const stitch__event *a = pa, *b = pb;
    if (a->timed != b->timed)
        return a->timed ? -1 : 1;
    if (a->timed && a->start != b->start)
        return a->start < b->start ? -1 : 1;
    if (a->timed && a->end != b->end)
        return a->end > b->end ? -1 : 1;
    if (a->correlation != b->correlation)
        return a->correlation < b->correlation ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return (a->graph_node > b->graph_node) - (a->graph_node < b->graph_node);
}

/* A host that waits by asking again and again makes thousands of records: they become one that spans them. */
static void join_polls(stitch__timeline *t)
{
    enum { THREADS = 64 };
    const int64_t pause = 2000000; /* between two questions: longer than any sensible nap */
    struct {
        uint32_t thread;
        size_t last;
    } seen[THREADS];
    size_t seen_count = 0, kept = 0;
    for (size_t i = 0; i < t->count; i++) {
        stitch__event *e = &t->events[i];
        size_t s = 0;
        bool call = (STITCH__TRACE_CALLS >> e->kind & 1) && e->timed;
        while (call && s < seen_count && seen[s].thread != e->thread)
            s++;
        if (call && s < seen_count) {
            stitch__event *last = &t->events[seen[s].last];
            if (t->names[e->name].polls && last->name == e->name && last->kind == e->kind &&
                e->start - last->end <= pause) {
                last->end = e->end > last->end ? e->end : last->end;
                last->calls += e->calls;
                last->result = e->result;
                continue;
            }
        }
        if (call && s == seen_count && seen_count < THREADS)
            seen[seen_count++].thread = e->thread;
        if (call && s < seen_count)
            seen[s].last = kept;
        t->events[kept++] = *e;
    }
    t->count = kept;
}

int stitch__timeline_finish(stitch__timeline *t)
{
    if (t->count)
        qsort(t->events, t->count, sizeof(*t->events), by_start);
    join_polls(t);
    for (size_t i = 0; i < t->name_count; i++) {
        if (finish_name(t, &t->names[i]) != STITCH_OK)
            return STITCH_E_NOMEM;
    }
    return STITCH_OK;
}

/* ---- sets of times ---- */

static bool matches(const stitch__timeline *t, const stitch__event *e, const stitch__event_filter *f)
{
    if (!(f->kinds >> e->kind & 1))
        return false;
    if (!f->waits)
        return true;
    return e->kind == STITCH_TRACE_SYNC ? e->detail != STITCH__SYNC_STREAM_WAIT
                                        : (STITCH__TRACE_CALLS >> e->kind & 1) && t->names[e->name].waits;
}

/* Adds a time that does not start before the last one did. */
static void append(stitch__spans *s, int64_t start, int64_t end)
{
    if (end <= start)
        return;
    if (s->count && start <= s->list[s->count - 1].end) {
        if (end > s->list[s->count - 1].end)
            s->list[s->count - 1].end = end;
        return;
    }
    s->list[s->count++] = (stitch__span){start, end};
}

static int make_room(const stitch_context *ctx, stitch__spans *s, size_t count)
{
    s->count = 0;
    s->list = stitch__calloc(ctx, count ? count : 1, sizeof(*s->list));
    return s->list ? STITCH_OK : STITCH_E_NOMEM;
}

int stitch__spans_of(const stitch__timeline *t, const stitch__event_filter *f, stitch__spans *out)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += t->events[i].timed && matches(t, &t->events[i], f);
    if (make_room(t->arena.ctx, out, count) != STITCH_OK)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (e->timed && matches(t, e, f))
            append(out, e->start, e->end);
    }
    return STITCH_OK;
}

int stitch__spans_union(const stitch_context *ctx, const stitch__spans *a, const stitch__spans *b, stitch__spans *out)
{
    size_t i = 0, j = 0;
    if (make_room(ctx, out, a->count + b->count) != STITCH_OK)
        return STITCH_E_NOMEM;
    while (i < a->count || j < b->count) {
        bool first = j == b->count || (i < a->count && a->list[i].start <= b->list[j].start);
        const stitch__span *s = first ? &a->list[i++] : &b->list[j++];
        append(out, s->start, s->end);
    }
    return STITCH_OK;
}

int64_t stitch__spans_length(const stitch__spans *s)
{
    int64_t sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += s->list[i].end - s->list[i].start;
    return sum;
}

int64_t stitch__spans_common(const stitch__spans *a, const stitch__spans *b)
{
    int64_t sum = 0;
    for (size_t i = 0, j = 0; i < a->count && j < b->count;) {
        const stitch__span *x = &a->list[i], *y = &b->list[j];
        int64_t start = x->start > y->start ? x->start : y->start, end = x->end < y->end ? x->end : y->end;
        if (end > start)
            sum += end - start;
        if (x->end < y->end)
            i++;
        else
            j++;
    }
    return sum;
}

void stitch__spans_free(stitch__spans *s)
{
    stitch__zero_free(s->list);
    s->count = 0;
}
