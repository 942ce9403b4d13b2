/* SPDX-License-Identifier: MIT
 *
 * See hits.h.
 */
#include "profile/hits.h"

#include <stdlib.h>

#include "profile/lines.h"

int stitch__hits_add(const stitch_context *ctx, stitch__hits *hits, const stitch__hit *hit)
{
    if (stitch__grow(ctx, &hits->list, &hits->cap, hits->count + 1, sizeof(*hits->list)))
        return STITCH_E_NOMEM;
    hits->list[hits->count++] = *hit;
    return STITCH_OK;
}

static int compare_hits(const void *a, const void *b)
{
    const stitch__hit *x = a, *y = b;
    int order = strcmp(x->kernel, y->kernel);
    if (order == 0 && x->module != y->module)
        order = x->module < y->module ? -1 : 1;
    if (order == 0)
        order = strcmp(x->file, y->file);
    if (order == 0 && x->line != y->line)
        order = x->line < y->line ? -1 : 1;
    if (order == 0 && x->reason != y->reason)
        order = x->reason < y->reason ? -1 : 1;
    return order;
}

static bool same_line(const stitch__hit *a, const stitch__hit *b)
{
    return a->kernel == b->kernel && a->module == b->module && a->file == b->file && a->line == b->line;
}

void stitch__hits_sort(stitch__hits *hits)
{
    stitch__hit *list = hits->list;
    size_t n = 0;
    if (hits->count)
        qsort(list, hits->count, sizeof(*list), compare_hits);
    for (size_t i = 0; i < hits->count; i++) {
        if (n && compare_hits(&list[n - 1], &list[i]) == 0)
            list[n - 1].samples += list[i].samples;
        else
            list[n++] = list[i];
    }
    hits->count = n;
}

/* ---- facts ---- */

typedef struct run {
    size_t from, to; /* hits */
    uint64_t samples;
} run;

/* Into a list with most samples first, of which `room` are kept. */
static void keep_most(run *list, size_t *count, size_t room, run r)
{
    size_t at = *count;
    while (at > 0 && list[at - 1].samples < r.samples)
        at--;
    if (at == room)
        return;
    *count += *count < room;
    memmove(&list[at + 1], &list[at], (*count - at - 1) * sizeof(*list));
    list[at] = r;
}

static const char *copy(stitch__facts *f, const char *text, int *rc)
{
    const char *out = stitch__facts_text(f, text);
    if (*text && !*out)
        *rc = STITCH_E_NOMEM;
    return out;
}

static int fill_line(const stitch__hit *first, run r, const char *const *reasons, size_t reason_count,
                     const char *source, stitch__facts *f, stitch__line_fact *line)
{
    const char *text;
    char cut[STITCH__FACTS_TEXT + 2];
    run most[STITCH__FACTS_REASONS];
    size_t len, count = 0;
    int rc = STITCH_OK;
    line->file = copy(f, first->file, &rc);
    line->line = first->line;
    line->text = "";
    line->samples = r.samples;
    if (first->source && source && stitch__lines_text(source, first->line, &text, &len)) {
        len = len < sizeof(cut) - 1 ? len : sizeof(cut) - 1;
        memcpy(cut, text, len);
        cut[len] = '\0';
        line->text = copy(f, cut, &rc);
    }
    for (size_t i = 0; i < r.to - r.from; i++)
        keep_most(most, &count, STITCH__COUNT(most), (run){i, i + 1, first[i].samples});
    line->reason_count = count;
    for (size_t i = 0; i < count; i++) {
        uint32_t reason = first[most[i].from].reason;
        line->reasons[i].name = copy(f, reason < reason_count ? reasons[reason] : "unknown", &rc);
        line->reasons[i].samples = most[i].samples;
    }
    return rc;
}

int stitch__hits_fill(const stitch__hits *hits, const char *const *reasons, size_t reason_count,
                      const char *const *sources, stitch__facts *f, stitch__kernel_fact *k)
{
    const stitch__hit *list = hits->list;
    run most[STITCH__FACTS_LINES];
    size_t count = 0;
    int rc = STITCH_OK;
    for (size_t i = 0, to; i < hits->count; i = to) {
        run r = {i, i, 0};
        for (to = i; to < hits->count && same_line(&list[i], &list[to]); to++)
            r.samples += list[to].samples;
        r.to = to;
        if (!stitch__facts_kept(k->symbol, list[i].kernel))
            continue;
        k->samples += r.samples;
        keep_most(most, &count, STITCH__COUNT(most), r);
    }
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        const stitch__hit *first = &list[most[i].from];
        rc = fill_line(first, most[i], reasons, reason_count, sources[first->module], f, &k->lines[i]);
    }
    if (count)
        k->line_count = count;
    return rc;
}
