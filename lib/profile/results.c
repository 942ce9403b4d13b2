/* SPDX-License-Identifier: MIT
 *
 * What users read from a trace that has ended.
 */
#include "profile/profile.h"
#include "program/program.h"

const char *stitch_trace_kind_name(int kind)
{
    switch (kind) {
#define STITCH_TRACE_KIND_CASE(name, text)                                                                             \
    case STITCH_TRACE_##name: return text;
        STITCH_TRACE_KIND_LIST(STITCH_TRACE_KIND_CASE)
#undef STITCH_TRACE_KIND_CASE
    default: return "unknown";
    }
}

size_t stitch_trace_count(const stitch_trace *trace)
{
    const stitch__timeline *t = stitch__trace_finished(trace);
    return t ? t->count : 0;
}

int stitch_trace_record_get(const stitch_trace *trace, size_t index, stitch_trace_record *record)
{
    const stitch__timeline *t = stitch__trace_finished(trace);
    if (!record)
        return STITCH_E_INVALID;
    if (!t || index >= t->count)
        return STITCH_E_NOT_FOUND;
    const stitch__event *e = &t->events[index];
    const stitch__name *n = &t->names[e->name];
    stitch_trace_record r = {
        .struct_size = sizeof(r),
        .kind = e->kind,
        .result = e->result,
        .name = n->text,
        .symbol = n->kernel ? n->symbol : "",
        .start_us = e->timed ? (double)e->start / 1e3 : -1,
        .end_us = e->timed ? (double)e->end / 1e3 : -1,
        .device = e->device,
        .context = e->context,
        .stream = e->stream,
        .thread = e->thread,
        .correlation = e->correlation,
        .calls = e->calls,
        .graph = e->graph,
        .step = e->step,
        .graph_node = e->graph_node,
        .bytes = e->bytes,
        .registers = e->registers,
        .static_shared = e->static_shared,
        .dynamic_shared = e->dynamic_shared,
        .local = e->local,
    };
    memcpy(r.grid, e->grid, sizeof(r.grid));
    memcpy(r.block, e->block, sizeof(r.block));
    return stitch__out_struct(record, &r, sizeof(r));
}

int stitch_trace_summary_get(const stitch_trace *trace, stitch_trace_summary *summary)
{
    const stitch__analysis *a = stitch__trace_analysis(trace);
    if (!trace || !summary)
        return STITCH_E_INVALID;
    return a ? stitch__out_struct(summary, &a->summary, sizeof(a->summary)) : STITCH_E_STATE;
}

#define ACCESSORS(what, type, list, n)                                                                                 \
    size_t stitch_trace_##what##_count(const stitch_trace *trace)                                                      \
    {                                                                                                                  \
        const stitch__analysis *a = stitch__trace_analysis(trace);                                                     \
        return a ? a->n : 0;                                                                                           \
    }                                                                                                                  \
    int stitch_trace_##what##_get(const stitch_trace *trace, size_t index, type *out)                                  \
    {                                                                                                                  \
        const stitch__analysis *a = stitch__trace_analysis(trace);                                                     \
        if (!out)                                                                                                      \
            return STITCH_E_INVALID;                                                                                   \
        if (!a || index >= a->n)                                                                                       \
            return STITCH_E_NOT_FOUND;                                                                                 \
        return stitch__out_struct(out, &a->list[index], sizeof(a->list[index]));                                       \
    }

ACCESSORS(kernel, stitch_trace_kernel, kernels, kernel_count)
ACCESSORS(copy, stitch_trace_copy, copies, copy_count)
ACCESSORS(gap, stitch_trace_gap, gaps, gap_count)

static int not_ended(const stitch_trace *trace, const char *call, stitch_error **err)
{
    if (!trace)
        return stitch__err(NULL, err, STITCH_E_INVALID, "%s: the trace must not be NULL", call);
    return stitch__err(NULL, err, STITCH_E_STATE, "%s: end the trace first (stitch_trace_end())", call);
}

int stitch_trace_json(const stitch_trace *trace, char **json, stitch_error **err)
{
    const stitch__timeline *t = stitch__trace_finished(trace);
    stitch__buf out;
    if (!json)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_trace_json: json must not be NULL");
    *json = NULL;
    if (!t)
        return not_ended(trace, "stitch_trace_json", err);
    stitch__buf_init(&out, t->arena.ctx);
    if (stitch__trace_write_json(t, &out) == STITCH_OK)
        *json = stitch__buf_take(&out, NULL);
    stitch__buf_free(&out);
    return *json ? STITCH_OK : stitch__err_nomem(t->arena.ctx, err);
}

int stitch_trace_text(const stitch_trace *trace, size_t max_bytes, char **text, stitch_error **err)
{
    const stitch__timeline *t = stitch__trace_finished(trace);
    stitch__buf out;
    if (!text)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_trace_text: text must not be NULL");
    *text = NULL;
    if (!t)
        return not_ended(trace, "stitch_trace_text", err);
    stitch__buf_init(&out, t->arena.ctx);
    stitch__trace_write_text(stitch__trace_analysis(trace), max_bytes, &out);
    *text = stitch__buf_take(&out, NULL);
    return *text ? STITCH_OK : stitch__err_nomem(t->arena.ctx, err);
}
