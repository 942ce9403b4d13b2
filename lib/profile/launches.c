/* SPDX-License-Identifier: MIT
 *
 * See launches.h.
 */
#include "profile/launches.h"

/* Beside 0.25 s for any, counters of a launch take about 3.5 ms with the cheap set and 10 ms with the full one (H200):
 * a millisecond and a quarter in each pass, and room for its values. */
enum {
    MOST = 64, /* what lies behind so many is not looked at; of as few launches all are */
    EACH = 16, /* of more, so many are that are the first of their kernel and grid */
};

static int by_launch(const void *a, const void *b)
{
    const stitch__event *x = ((const stitch__launch *)a)->event, *y = ((const stitch__launch *)b)->event;
    return x->correlation < y->correlation ? -1 : x->correlation > y->correlation;
}

static int by_number(const void *a, const void *b)
{
    const stitch__launch *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* 0: the same kernel in the same step with the same grid. */
static int compare_kernels(const stitch__event *x, const stitch__event *y)
{
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    int grid = memcmp(x->grid, y->grid, sizeof(x->grid));
    return grid ? grid : memcmp(x->block, y->block, sizeof(x->block));
}

static int by_kernel(const void *a, const void *b)
{
    int kernels = compare_kernels(((const stitch__launch *)a)->event, ((const stitch__launch *)b)->event);
    return kernels ? kernels : by_number(a, b);
}

static bool belongs(const stitch__kernel_fact *k, const stitch__timeline *t, const stitch__event *e)
{
    return k->step == e->step && stitch__facts_kept(k->symbol, t->names[e->name].symbol);
}

static size_t row_of(const stitch__facts *f, const stitch__timeline *t, const stitch__event *e)
{
    for (size_t k = 0; k < f->kernel_count; k++)
        if (belongs(&f->kernels[k], t, e))
            return k;
    return SIZE_MAX;
}

/* Which launches are looked at, and for how many each of them stands. */
static void choose(const stitch__facts *f, const stitch__timeline *t, stitch__launches *l)
{
    qsort(l->list, l->count, sizeof(*l->list), by_kernel);
    for (size_t first = 0, end; first < l->count; first = end) {
        size_t most = l->count <= MOST ? MOST : EACH, wanted = 0;
        size_t row = row_of(f, t, l->list[first].event);
        for (end = first; end < l->count && !compare_kernels(l->list[first].event, l->list[end].event); end++)
            wanted += wanted < most && l->list[end].number < MOST;
        if (row == SIZE_MAX)
            continue;
        for (size_t i = first; i < end; i++)
            l->list[i].row = row;
        for (size_t i = first; i < first + wanted; i++) {
            l->list[i].weight = (double)(end - first) / (double)wanted;
            if (l->counted <= l->list[i].number)
                l->counted = l->list[i].number + 1;
        }
        l->wanted += wanted;
        l->of += end - first;
    }
    qsort(l->list, l->count, sizeof(*l->list), by_number);
}

int stitch__launches_of(const stitch__facts *f, const stitch__timeline *t, stitch__launches *out)
{
    size_t kept = 0;
    memset(out, 0, sizeof(*out));
    out->list = stitch__calloc(f->arena.ctx, t->count + 1, sizeof(*out->list));
    if (!out->list)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        if (STITCH__TRACE_ON_DEVICE >> t->events[i].kind & 1)
            out->list[out->count++].event = &t->events[i];
    }
    qsort(out->list, out->count, sizeof(*out->list), by_launch);
    for (size_t i = 0; i < out->count; i++) {
        if (out->list[i].event->kind != STITCH_TRACE_KERNEL)
            continue;
        out->list[kept] = (stitch__launch){out->list[i].event, kept, i + 1, SIZE_MAX, 0};
        kept++;
    }
    out->count = kept;
    choose(f, t, out);
    return STITCH_OK;
}
