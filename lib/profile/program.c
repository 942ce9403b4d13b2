/* SPDX-License-Identifier: MIT
 *
 * What a run of a stitched program launches, in order: the same walk as the executor's encoding, without a device.
 */
#include "profile/profile.h"
#include "program/executor.h"

typedef struct walk {
    stitch_executor *x;
    stitch__expected *list;
    size_t count, cap;
} walk;

static int add(walk *w, int kind, size_t step, const char *symbol, stitch_error **err)
{
    if (stitch__grow(w->x->ctx, &w->list, &w->cap, w->count + 1, sizeof(*w->list)) != STITCH_OK)
        return stitch__err_nomem(w->x->ctx, err);
    w->list[w->count++] = (stitch__expected){kind, (int32_t)step, symbol};
    return STITCH_OK;
}

static int add_kernel(walk *w, const stitch__step *step, size_t leaf, stitch_error **err)
{
    stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
    size_t index;
    if (stitch_image_find(w->x->image, step->u.kernel->name, &index) != STITCH_OK ||
        stitch_image_kernel(w->x->image, index, &info) != STITCH_OK)
        return stitch__err(w->x->ctx, err, STITCH_E_INTERNAL, "%s: kernel %s is not in the image", step->place,
                           step->u.kernel->name);
    return add(w, STITCH_TRACE_KERNEL, leaf, info.symbol, err);
}

/* Copies and fills of nothing are left out of a run. */
static int add_move(walk *w, const stitch__step *step, size_t leaf, stitch_error **err)
{
    bool copy = step->kind == STITCH__STEP_COPY;
    stitch__range range;
    int64_t count;
    if (!stitch__eval_ref(&w->x->session, step, copy ? "copy.from" : "fill.buffer",
                          copy ? &step->u.copy->from : &step->u.fill->buffer, &range) ||
        !stitch__eval_count(&w->x->session, step, copy ? step->u.copy->count : step->u.fill->count, &range, &count))
        return stitch__encode_failed(w->x, err);
    return count ? add(w, copy ? STITCH_TRACE_COPY : STITCH_TRACE_FILL, leaf, NULL, err) : STITCH_OK;
}

/* Steps of a list that are no loops, loops' own ones included. */
static size_t leaves(const stitch__steps *list)
{
    size_t n = 0;
    for (size_t i = 0; i < list->count; i++)
        n += list->items[i].kind == STITCH__STEP_REPEAT ? leaves(&list->items[i].u.repeat->steps) : 1;
    return n;
}

static int walk_list(walk *w, const stitch__steps *list, size_t leaf, stitch_error **err);

static int walk_step(walk *w, const stitch__step *step, size_t leaf, stitch_error **err)
{
    int64_t count;
    int rc = STITCH_OK;
    switch (step->kind) {
    case STITCH__STEP_KERNEL: return add_kernel(w, step, leaf, err);
    case STITCH__STEP_COPY:
    case STITCH__STEP_FILL: return add_move(w, step, leaf, err);
    case STITCH__STEP_REPEAT: break;
    default: return add(w, STITCH__EXPECTED_PRODUCT, leaf, NULL, err);
    }
    const stitch__repeat_step *r = step->u.repeat;
    if (!stitch__eval(&w->x->session, step, "repeat.count", r->count, &count))
        return stitch__encode_failed(w->x, err);
    for (int64_t i = 0; i < count && rc == STITCH_OK; i++) {
        stitch__loop_set(&w->x->session, r->symbol, i);
        rc = walk_list(w, &r->steps, leaf, err);
    }
    stitch__loop_clear(&w->x->session, r->symbol);
    return rc;
}

static int walk_list(walk *w, const stitch__steps *list, size_t leaf, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++) {
        size_t at = list->graph ? list->order[i] : i, before = leaf;
        for (size_t k = 0; k < at; k++) /* in the order of the text, whatever the order of launches */
            before += list->items[k].kind == STITCH__STEP_REPEAT ? leaves(&list->items[k].u.repeat->steps) : 1;
        rc = walk_step(w, &list->items[at], before, err);
    }
    return rc;
}

int stitch__expected_of(stitch_executor *x, stitch__expected **out, size_t *count, stitch_error **err)
{
    walk w = {.x = x};
    *out = NULL;
    *count = 0;
    if (!x->current)
        return stitch__err(x->ctx, err, STITCH_E_STATE, "the executor has not been prepared");
    int rc = stitch__plan_session(x, x->current, err);
    if (rc == STITCH_OK)
        rc = walk_list(&w, &x->doc->run, 0, err);
    if (rc) {
        stitch_free(w.list);
        return rc;
    }
    *out = w.list;
    *count = w.count;
    return STITCH_OK;
}

int stitch_trace_attribute(stitch_trace *trace, stitch_executor *executor, uint64_t runs, stitch_error **err)
{
    stitch__expected *expected = NULL;
    uint64_t renamed;
    size_t count;
    int rc;

    if (!trace || !executor || !runs)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "stitch_trace_attribute: needs a trace, an executor and a number of runs");
    if (!stitch__trace_finished(trace))
        return stitch__err(NULL, err, STITCH_E_STATE, "stitch_trace_attribute: the trace has not ended");
    rc = stitch__expected_of(executor, &expected, &count, err);
    if (rc)
        return rc;
    rc = stitch__attribute(stitch__trace_timeline(trace), expected, count, runs, &renamed);
    stitch_free(expected);
    if (rc == STITCH_E_NOT_FOUND)
        return stitch__err(executor->ctx, err, rc,
                           "the trace does not have the records of %" PRIu64 " runs of the program", runs);
    return rc ? stitch__err_nomem(executor->ctx, err) : stitch__trace_analyse(trace, err);
}
