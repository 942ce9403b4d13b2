/* SPDX-License-Identifier: MIT
 *
 * What the timeline of a run says, as facts: rows of kernels by step, busy and idle time, copies.
 */
#include <math.h>

#include "profile/facts.h"
#include "profile/profile.h"

/* A kernel that does a step which is a copy or a fill: the driver's ("memcpy128"), where CUPTI records such nodes of a
 * graph as what they are made of. NULL: it does not. */
static const char *moves(const stitch__facts *f, int32_t step)
{
    const char *kind = step >= 0 && (size_t)step < f->step_count ? f->steps[step].kind : "";
    return strcmp(kind, "copy") == 0 || strcmp(kind, "fill") == 0 ? kind : NULL;
}

/* Kernels that are copies count as those; how many bytes they move is not known. */
static void add_move(stitch__facts *f, const stitch_trace_kernel *k)
{
    *(strcmp(moves(f, k->step), "copy") == 0 ? &f->copies : &f->fills) += k->count;
    f->launches -= k->count;
    f->copy_us += k->total_us;
}

/* Outside of programs, by how PyTorch, cuBLAS and cuDNN name what they bring: nobody who has such a kernel in a run of
 * theirs can change its code. Templates that others instantiate (CUTLASS, CUB) are theirs. */
static bool of_a_library(const char *name)
{
    static const char *const parts[] = {"at::native::", "at_cuda_detail::", "cublas",  "cudnn",  "nvjet_",
                                        "_xmma_",       "ampere_",          "turing_", "volta_", "splitKreduce_kernel"};
    for (size_t i = 0; i < STITCH__COUNT(parts); i++) {
        const char *at = strstr(name, parts[i]);
        bool begins = at == name || (at && strchr(" <(&*,:", at[-1]));
        if (at && (begins || parts[i][0] == '_'))
            return true;
    }
    return false;
}

/* all: time of all of the program's kernels. */
static int add_kernel(stitch__facts *f, const stitch_trace_kernel *row, double all)
{
    stitch__kernel_fact *k = stitch__facts_add_kernel(f);
    if (!k)
        return f->kernel_count < STITCH__FACTS_KERNELS ? STITCH_E_NOMEM : STITCH_OK;
    k->name = stitch__facts_text(f, row->name);
    k->symbol = stitch__facts_text(f, row->symbol);
    k->step = row->step >= 0 && (size_t)row->step < f->step_count ? row->step : -1;
    k->library = k->step >= 0 ? strcmp(f->steps[k->step].kind, "kernel") != 0 /* or of the host's operator */
                              : !f->step_count && of_a_library(row->name);
    k->launches = row->count;
    k->time_us = row->mean_us;
    k->share = all > 0 ? fmin(row->total_us / all, 1) : 0;
    k->gap_us = row->gap_before_us / (double)row->count;
    memcpy(k->grid, row->grid, sizeof(k->grid));
    memcpy(k->block, row->block, sizeof(k->block));
    k->registers = row->registers;
    k->static_shared = row->static_shared;
    k->dynamic_shared = row->dynamic_shared;
    k->local = row->local;
    k->occupancy = row->occupancy;
    k->waves = row->waves;
    k->limiter = row->limiter;
    return STITCH_OK;
}

static int add_kernels(stitch__facts *f, const stitch__timeline *t, const stitch__idle *idle)
{
    stitch_trace_kernel *rows = NULL;
    size_t count = 0;
    double all = 0;
    int rc = stitch__kernel_table(t, idle, f->step_count, &rows, &count);
    for (size_t i = 0; i < count; i++)
        all += moves(f, rows[i].step) ? 0 : rows[i].total_us;
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        if (moves(f, rows[i].step))
            add_move(f, &rows[i]);
        else
            rc = add_kernel(f, &rows[i], all);
    }
    stitch_free(rows);
    return rc;
}

/* The first gap that ends after `at`; they are in order. */
static size_t gap_after(const stitch__idle *idle, int64_t at)
{
    size_t from = 0, to = idle->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (idle->gaps[middle].end <= at)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* How long the device was idle while a call lasted, before what ended the gap was launched. */
static int64_t idle_in(const stitch__idle *idle, const stitch__event *e)
{
    int64_t sum = 0;
    for (size_t i = gap_after(idle, e->start); i < idle->count && idle->gaps[i].start < e->end; i++) {
        const stitch__gap *g = &idle->gaps[i];
        int64_t from = e->start > g->start ? e->start : g->start, to = e->end < g->launching ? e->end : g->launching;
        sum += to > from ? to - from : 0;
    }
    return sum;
}

/* Launches have a price that graphs take away; of other calls it is what they do. */
static bool may_be_slow(const stitch__name *n)
{
    return !n->kernel && !n->waits && !strstr(n->symbol, "Launch");
}

static int add_slow_call(stitch__facts *f, const stitch__timeline *t, const stitch__idle *idle)
{
    int64_t *sums, most = 0;
    if (!idle->known || !idle->count)
        return STITCH_OK;
    sums = stitch__calloc(f->arena.ctx, t->name_count + 1, sizeof(*sums));
    if (!sums)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (!(STITCH__TRACE_CALLS >> e->kind & 1) || !e->timed || !may_be_slow(&t->names[e->name]))
            continue;
        sums[e->name] += idle_in(idle, e);
        if (sums[e->name] > most) {
            most = sums[e->name];
            f->slow_call = t->names[e->name].text;
        }
    }
    f->slow_call = stitch__facts_text(f, f->slow_call);
    f->slow_call_us = (double)(most < idle->all.call ? most : idle->all.call) / 1e3;
    stitch_free(sums);
    return STITCH_OK;
}

static int add_rows(stitch__facts *f, const stitch__timeline *t)
{
    stitch__idle idle;
    int rc = stitch__idle_of(t, &idle);
    if (rc)
        return rc;
    rc = add_kernels(f, t, &idle);
    if (!rc)
        rc = add_slow_call(f, t, &idle);
    stitch__idle_free(&idle);
    return rc;
}

static void add_copies(stitch__facts *f, const stitch__analysis *a)
{
    const stitch_trace_summary *s = &a->summary;
    f->copies = s->copies;
    f->fills = s->fills;
    f->copy_us = s->copy_us;
    f->overlap_us = s->overlap_us;
    f->copy_bytes = s->copy_bytes;
    for (size_t i = 0; i < a->copy_count; i++) {
        const stitch_trace_copy *c = &a->copies[i];
        f->pageable_copies += c->pageable;
        for (int d = 1; d <= 4; d++) { /* HtoD, DtoH, HtoA, AtoH */
            if (strcmp(c->name, stitch__copy_name(d)) != 0)
                continue;
            f->host_copy_bytes += c->bytes;
            f->host_copy_us += c->total_us;
        }
    }
    if (f->host_copy_us > f->copy_us) /* both directions at once: this is a sum, that a union */
        f->host_copy_us = f->copy_us;
}

static size_t count_untimed(const stitch__timeline *t)
{
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        count += (STITCH__TRACE_ON_DEVICE >> t->events[i].kind & 1) && !t->events[i].timed;
    return count;
}

int stitch__facts_timeline(stitch__facts *f, const stitch__timeline *t, const stitch__analysis *a, stitch_error **err)
{
    const stitch_trace_summary *s = &a->summary;
    uint64_t records = s->kernels + s->copies + s->fills;
    if (!*f->source)
        f->source = "cupti";
    if (!f->multiprocessors && t->sm.count > 0)
        f->multiprocessors = (uint32_t)t->sm.count;
    f->busy_us = s->busy_us;
    f->idle_us = s->idle_us;
    f->sync_us = s->idle_sync_us;
    f->host_us = s->idle_host_us;
    f->launches = s->kernels;
    f->graph = records && s->graph_nodes == records && (!s->has_calls || s->graph_launches == 1);
    add_copies(f, a);
    if (add_rows(f, t))
        return stitch__err_nomem(f->arena.ctx, err);
    if (!records)
        f->no_timeline = "nothing ran on the device";
    else if (t->dropped)
        f->no_timeline = "records of the timeline were dropped: its counts and times are too low";
    else if (count_untimed(t))
        f->no_timeline = "records of the timeline have no times: its times are too low";
    return STITCH_OK;
}
