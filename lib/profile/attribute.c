/* SPDX-License-Identifier: MIT
 *
 * Device records of a program's runs onto its steps, by the order of the launches.
 */
#include "profile/profile.h"

/* What a step may launch. The driver copies and fills with kernels of its own where that is faster. */
static bool may_be(const stitch__expected *x, const stitch__event *e)
{
    return x->kind == STITCH__EXPECTED_PRODUCT || e->kind == x->kind || e->kind == STITCH_TRACE_KERNEL;
}

/* Records a step. A run of products gets its records in equal parts where that works out: a library launches as many
 * for each; otherwise all go to the first. */
typedef struct matcher {
    const stitch__timeline *t;
    const uint32_t *order; /* device events in launch order */
    size_t count;
    const stitch__expected *steps;
    size_t step_count;
} matcher;

static bool is_kernel_of(const matcher *m, size_t at, const stitch__expected *x)
{
    const stitch__event *e = &m->t->events[m->order[at]];
    return e->kind == x->kind &&
           (x->kind != STITCH_TRACE_KERNEL || strcmp(m->t->names[e->name].symbol, x->symbol) == 0);
}

/* One run from event *at; steps[] gets the step's index of each event. */
static bool match_run(const matcher *m, size_t *at, bool last_run, uint32_t *steps)
{
    size_t i = *at;
    for (size_t s = 0; s < m->step_count;) {
        if (m->steps[s].kind != STITCH__EXPECTED_PRODUCT) {
            if (i == m->count || !may_be(&m->steps[s], &m->t->events[m->order[i]]))
                return false;
            steps[i++] = (uint32_t)s++;
            continue;
        }
        size_t products = s, first = i;
        while (products < m->step_count && m->steps[products].kind == STITCH__EXPECTED_PRODUCT)
            products++;
        size_t n = products - s;
        /* The step behind them: of this run, or the first of the next; a program of products alone is split evenly. */
        const stitch__expected *next = products < m->step_count                                    ? &m->steps[products]
                                       : !last_run && m->steps[0].kind != STITCH__EXPECTED_PRODUCT ? &m->steps[0]
                                                                                                   : NULL;
        while (i < m->count && (i - first < n || !next || !is_kernel_of(m, i, next)))
            i++;
        size_t each = (i - first) % n ? 0 : (i - first) / n;
        if (i - first < n)
            return false;
        for (size_t k = first; k < i; k++)
            steps[k] = (uint32_t)(s + (each ? (k - first) / each : 0));
        s = products;
    }
    *at = i;
    return true;
}

/* Products at both ends of a run cannot be told apart by what follows: every run has as many records. */
static bool match_even(const matcher *m, uint64_t runs, uint32_t *steps)
{
    matcher one = *m;
    if (m->count % runs)
        return false;
    one.count = m->count / runs;
    for (uint64_t r = 0; r < runs; r++) {
        size_t at = 0;
        one.order = m->order + r * one.count;
        if (!match_run(&one, &at, true, steps + r * one.count) || at != one.count)
            return false;
    }
    return true;
}

static bool match_greedy(const matcher *m, uint64_t runs, uint32_t *steps)
{
    size_t at = 0;
    for (uint64_t r = 0; r < runs; r++) {
        if (!match_run(m, &at, r + 1 == runs, steps))
            return false;
    }
    return at == m->count;
}

/* Steps with dependencies may run in another order than they are listed in: where the names of every run are those of
 * the steps, only in another order, the names decide. */
static bool match_names(const matcher *m, uint64_t runs, uint32_t *steps, bool *used)
{
    enum { MOST = 4096 }; /* of a quadratic search */
    if (m->count != m->step_count * runs || m->step_count > MOST)
        return false;
    for (uint64_t r = 0; r < runs; r++) {
        memset(used, 0, m->step_count * sizeof(*used));
        for (size_t i = 0; i < m->step_count; i++) {
            size_t at = r * m->step_count + i, s = i; /* in order most of the time */
            for (size_t tried = 0; used[s] || !is_kernel_of(m, at, &m->steps[s]); tried++) {
                if (tried == m->step_count)
                    return false;
                s = (s + 1) % m->step_count;
            }
            used[s] = true;
            steps[at] = (uint32_t)s;
        }
    }
    return true;
}

static int rename_kernel(stitch__timeline *t, stitch__event *e, const char *symbol, uint64_t *renamed)
{
    uint32_t name;
    if (strcmp(t->names[e->name].symbol, symbol) == 0)
        return STITCH_OK;
    if (stitch__timeline_name(t, symbol, true, &name) != STITCH_OK)
        return STITCH_E_NOMEM;
    e->name = name;
    (*renamed)++;
    return STITCH_OK;
}

int stitch__attribute(stitch__timeline *t, const stitch__expected *steps, size_t count, uint64_t runs,
                      uint64_t *renamed)
{
    int rc = STITCH_E_NOT_FOUND;
    *renamed = 0;
    if (!count || !runs || t->dropped)
        return STITCH_E_NOT_FOUND;
    uint32_t *order = stitch__calloc(t->arena.ctx, t->count ? t->count : 1, sizeof(*order));
    uint32_t *found = stitch__calloc(t->arena.ctx, t->count ? t->count : 1, sizeof(*found));
    bool *used = stitch__calloc(t->arena.ctx, count, sizeof(*used));
    matcher m = {t, order, 0, steps, count};
    if (!order || !found || !used) {
        rc = STITCH_E_NOMEM;
        goto out;
    }
    for (size_t i = 0; i < t->count; i++) { /* one stream: the order of starts is the order of launches */
        if (!(STITCH__TRACE_ON_DEVICE >> t->events[i].kind & 1))
            continue;
        if (!t->events[i].timed)
            goto out;
        order[m.count++] = (uint32_t)i;
    }
    if (!match_names(&m, runs, found, used) && !match_even(&m, runs, found) && !match_greedy(&m, runs, found))
        goto out;
    rc = STITCH_OK;
    for (size_t i = 0; i < m.count && rc == STITCH_OK; i++) {
        stitch__event *e = &t->events[order[i]];
        const stitch__expected *x = &steps[found[i]];
        e->step = x->step;
        if (x->kind == STITCH_TRACE_KERNEL && x->symbol)
            rc = rename_kernel(t, e, x->symbol, renamed);
    }
    if (rc == STITCH_OK)
        rc = stitch__timeline_finish(t); /* texts of new names */
out:
    stitch_free(order);
    stitch_free(found);
    stitch_free(used);
    return rc;
}
