/* SPDX-License-Identifier: MIT
 *
 * The device's part of admission: cheap answers are made and compared, means and spreads are taken (admission.cu).
 */
#include "verify/admission.h"

#include <stdio.h>

extern const char stitch__verify_admission[];

_Static_assert(sizeof(stitch__spread) == 7 * 8, "admission.cu has the same struct");

enum { KERNEL_ANSWER, KERNEL_SUMS, KERNEL_MEANS, KERNEL_SPREAD };
enum { MAP_COPY, MAP_MODULO, MAP_ROTATE, MAP_REVERSE }; /* as in admission.cu */

/* Threads that sum columns, and the widest output whose columns are looked at. */
#define SUM_THREADS 65536u
#define MOST_COLS   (1u << 22)

static int kernels_get(stitch__device *dev, const stitch__scope *scope, const stitch__kernels **out, stitch_error **err)
{
    static const char *const names[] = {"stitch_answer", "stitch_column_sums", "stitch_column_means",
                                        "stitch_spread_of"};
    const char *const parts[] = {stitch__task_convert, stitch__verify_admission};
    return stitch__kernels_get(dev, scope, STITCH__SLOT_ADMISSION, parts, STITCH__COUNT(parts), names,
                               STITCH__COUNT(names), out, err);
}

static int launch(stitch__admit *s, int kernel, uint64_t threads, void **args, const char *what, stitch_error **err)
{
    const stitch__kernels *kernels;
    int rc = kernels_get(s->dev, &s->scope, &kernels, err);
    if (rc)
        return rc;
    return stitch__cu_checkf(s->dev,
                             s->dev->drv->LaunchKernel(kernels->kernels[kernel], stitch__kernels_grid(s->dev, threads),
                                                       1, 1, 256, 1, 1, 0, s->stream, args, NULL),
                             err, "launching the %s", what);
}

static uint64_t columns(const stitch__admission_output *o)
{
    return o->rank ? (uint64_t)o->shape[o->rank - 1] : 1;
}

static uint64_t chunks_for(uint64_t cols)
{
    return cols >= SUM_THREADS ? 1 : SUM_THREADS / cols;
}

int stitch__admit_room(stitch__admit *s, stitch_error **err)
{
    uint64_t most = 1, threads;
    int rc;

    for (size_t k = 0; k < s->a->output_count; k++) {
        uint64_t cols = columns(&s->a->outputs[k]);
        most = cols > most && cols <= MOST_COLS ? cols : most;
    }
    threads = most > SUM_THREADS ? most : SUM_THREADS;
    s->grid = stitch__kernels_grid(s->dev, UINT64_MAX);
    rc = stitch__mem_alloc(s->dev, threads * sizeof(double), "sums of columns", &s->sums, err);
    if (!rc)
        rc = stitch__mem_alloc(s->dev, threads * sizeof(uint64_t), "counts of columns", &s->counts, err);
    if (!rc)
        rc = stitch__mem_alloc(s->dev, most * sizeof(double), "means of columns", &s->means, err);
    if (!rc)
        rc = stitch__mem_alloc(s->dev, s->grid * sizeof(stitch__spread), "partial spreads", &s->partials, err);
    return rc;
}

void stitch__admit_room_free(stitch__admit *s)
{
    stitch__mem_free(s->dev, s->sums);
    stitch__mem_free(s->dev, s->counts);
    stitch__mem_free(s->dev, s->means);
    stitch__mem_free(s->dev, s->partials);
}

int stitch__admit_spread(stitch__admit *s, stitch__admission_output *o, stitch_error **err)
{
    uint64_t count = o->elements;
    int dtype = o->want_dtype;
    double atol = s->a->atol, rtol = stitch__dtype_rtol(o->dtype, s->a->rtol), factor = o->factor;
    CUdeviceptr *first = &s->first[o->tensor], *other = &s->other[o->tensor], *run = &s->run[o->tensor];
    void *args[] = {first, other, run, &dtype, &count, &atol, &rtol, &factor, &s->partials};
    unsigned grid = stitch__kernels_grid(s->dev, count);
    stitch__spread *partials = stitch__calloc(s->ctx, grid, sizeof(*partials));
    int rc;

    if (!partials)
        return stitch__err_nomem(s->ctx, err);
    rc = launch(s, KERNEL_SPREAD, count, args, "spread over draws", err);
    if (!rc)
        rc = stitch__stream_wait(s->dev, s->stream, &s->scope, "measuring the spread over draws", err);
    if (!rc)
        rc = stitch__cu_check(s->dev, s->dev->drv->MemcpyDtoH(partials, s->partials, grid * sizeof(*partials)), err,
                              "reading the spread over draws");
    for (unsigned i = 0; !rc && i < grid; i++) {
        const stitch__spread *p = &partials[i];
        o->spread.elements += p->elements;
        o->spread.finite += p->finite;
        o->spread.over_tolerance += p->over_tolerance;
        o->spread.over_factor += p->over_factor;
        o->spread.sum_change += p->sum_change;
        o->spread.sum_ratio += p->sum_ratio;
        o->spread.max_ratio = p->max_ratio > o->spread.max_ratio ? p->max_ratio : o->spread.max_ratio;
    }
    stitch_free(partials);
    return rc;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

bool stitch__answer_is_free(stitch__answer_kind kind)
{
    return kind < STITCH__ANSWER_OWN_MEAN;
}

bool stitch__answer_passes(const stitch__answer *r)
{
    return r->c.elements && !r->c.mismatches;
}

/* Writes the means of the columns of an output (cols 1: of all elements) to s->means. */
static int take_means(stitch__admit *s, const stitch__admission_output *o, CUdeviceptr of, uint64_t cols,
                      stitch_error **err)
{
    uint64_t rows = o->elements / cols, chunks = chunks_for(cols);
    int dtype = o->want_dtype, rc;
    void *sum_args[] = {&of, &dtype, &rows, &cols, &chunks, &s->sums, &s->counts};
    void *mean_args[] = {&s->sums, &s->counts, &cols, &chunks, &s->means};

    rc = launch(s, KERNEL_SUMS, cols * chunks, sum_args, "sums of columns", err);
    return rc ? rc : launch(s, KERNEL_MEANS, cols, mean_args, "means of columns", err);
}

/* What an answer is made of: element i is element map(i) of `from`. */
typedef struct recipe {
    CUdeviceptr from; /* 0: zeros */
    int dtype, map;
    uint64_t a, b;
} recipe;

static int recipe_of(stitch__admit *s, const stitch__admission_output *o, stitch__answer_kind kind, size_t which,
                     recipe *out, stitch_error **err)
{
    const recipe means = {.from = s->means, .dtype = STITCH_DTYPE_F64, .map = MAP_MODULO, .a = 1};
    CUdeviceptr first = s->first[o->tensor], other = s->other[o->tensor];
    recipe r = {.from = kind < STITCH__ANSWER_OWN_MEAN ? other : first, .dtype = o->want_dtype};
    int rc = STITCH_OK;

    switch (kind) {
    case STITCH__ANSWER_ZEROS: r.from = 0; break;
    case STITCH__ANSWER_MEAN:
    case STITCH__ANSWER_OWN_MEAN:
        rc = take_means(s, o, r.from, 1, err);
        r = means;
        break;
    case STITCH__ANSWER_COLUMN_MEAN:
        rc = take_means(s, o, other, columns(o), err);
        r = means;
        r.a = columns(o);
        break;
    case STITCH__ANSWER_FIRST:
    case STITCH__ANSWER_OWN_FIRST:
        r.map = MAP_MODULO;
        r.a = 1;
        break;
    case STITCH__ANSWER_OTHER_DRAW: r.map = MAP_COPY; break;
    case STITCH__ANSWER_INPUT:
        r.from = s->run[which];
        r.dtype = s->infos[which].dtype;
        r.map = MAP_COPY;
        break;
    case STITCH__ANSWER_REVERSED: r.map = MAP_REVERSE; break;
    case STITCH__ANSWER_HALVES:
        r.map = MAP_ROTATE;
        r.a = o->elements;
        r.b = o->elements / 2;
        break;
    case STITCH__ANSWER_SHIFT:
        r.map = MAP_ROTATE;
        r.b = 1;
        for (size_t k = which + 1; k < o->rank; k++)
            r.b *= (uint64_t)o->shape[k];
        r.a = r.b * (uint64_t)o->shape[which];
        break;
    }
    *out = r;
    return rc;
}

/* Makes the answer in s->run, in the task's dtype, and compares it with s->first. */
static int compare_answer(stitch__admit *s, const stitch__admission_output *o, const stitch__answer *answer,
                          stitch__comparison *c, stitch_error **err)
{
    CUdeviceptr out = s->run[o->tensor];
    uint64_t count = o->elements;
    int size = (int)stitch_dtype_size(o->dtype), dtype = o->dtype;
    recipe r;
    void *args[] = {&out, &dtype, &size, &r.from, &r.dtype, &count, &r.map, &r.a, &r.b};
    int rc = recipe_of(s, o, answer->kind, answer->which, &r, err);

    if (rc)
        return rc;
    if (r.from)
        rc = launch(s, KERNEL_ANSWER, count, args, "cheap answer", err);
    else
        rc = stitch__cu_check(s->dev, s->dev->drv->MemsetD8Async(out, 0, (size_t)(count * (uint64_t)size), s->stream),
                              err, "clearing the cheap answer");
    const stitch__compared what = {o->name,
                                   out,
                                   0,
                                   s->first[o->tensor],
                                   o->dtype,
                                   o->want_dtype,
                                   count,
                                   s->a->atol,
                                   stitch__dtype_rtol(o->dtype, s->a->rtol)};
    return rc ? rc : stitch__compare(&s->comparator, s->stream, &s->scope, &what, c, err);
}

static int try_answer(stitch__admit *s, stitch__admission_output *o, stitch__answer_kind kind, size_t which,
                      const char *name, stitch_error **err)
{
    stitch__answer *made;
    int rc;

    if (stitch__grow(s->ctx, &o->answers, &o->answer_cap, o->answer_count + 1, sizeof(*o->answers)))
        return stitch__err_nomem(s->ctx, err);
    made = &o->answers[o->answer_count];
    memset(made, 0, sizeof(*made));
    made->kind = kind;
    made->which = which;
    snprintf(made->name, sizeof(made->name), "%s", name);
    rc = compare_answer(s, o, made, &made->c, err);
    if (!rc)
        o->answer_count++;
    return rc;
}

/* What can be written down without the present inputs. */
static int try_constants(stitch__admit *s, stitch__admission_output *o, stitch_error **err)
{
    int rc = try_answer(s, o, STITCH__ANSWER_ZEROS, 0, "zeros", err);

    if (rc || s->a->draws < 2)
        return rc;
    rc = try_answer(s, o, STITCH__ANSWER_MEAN, 0, "the mean of another draw", err);
    /* With a single row the mean of a column is the draw itself. */
    if (!rc && columns(o) < o->elements && columns(o) <= MOST_COLS)
        rc = try_answer(s, o, STITCH__ANSWER_COLUMN_MEAN, 0,
                        "the mean of another draw for each index of the last dimension", err);
    if (!rc)
        rc = try_answer(s, o, STITCH__ANSWER_FIRST, 0, "the first element of another draw everywhere", err);
    if (!rc)
        rc = try_answer(s, o, STITCH__ANSWER_OTHER_DRAW, 0, "the output of another draw", err);
    return rc;
}

/* Inputs with as many elements: a copy (or a reshape) of them. */
static int try_inputs(stitch__admit *s, stitch__admission_output *o, stitch_error **err)
{
    char name[300];
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < s->count; i++) {
        if (s->infos[i].role != STITCH_TENSOR_INPUT || s->infos[i].elements != o->elements)
            continue;
        snprintf(name, sizeof(name), "the input %.255s", s->infos[i].name);
        rc = try_answer(s, o, STITCH__ANSWER_INPUT, i, name, err);
    }
    return rc;
}

/* Made of the right answer. Of a single element all of these are the answer. */
static int try_own(stitch__admit *s, stitch__admission_output *o, stitch_error **err)
{
    char name[64];
    int rc;

    if (o->elements < 2)
        return STITCH_OK;
    rc = try_answer(s, o, STITCH__ANSWER_OWN_MEAN, 0, "its own mean", err);
    if (!rc)
        rc = try_answer(s, o, STITCH__ANSWER_OWN_FIRST, 0, "its own first element everywhere", err);
    /* Where all elements are the same, their order has nothing to say. */
    if (rc || stitch__answer_passes(&o->answers[o->answer_count - 1]))
        return rc;
    rc = try_answer(s, o, STITCH__ANSWER_REVERSED, 0, "its own elements in reverse order", err);
    if (!rc)
        rc = try_answer(s, o, STITCH__ANSWER_HALVES, 0, "its own halves swapped", err);
    for (size_t axis = 0; !rc && axis < o->rank; axis++) {
        if (o->shape[axis] < 2)
            continue;
        snprintf(name, sizeof(name), "its own elements shifted by one along axis %zu", axis);
        rc = try_answer(s, o, STITCH__ANSWER_SHIFT, axis, name, err);
    }
    return rc;
}

int stitch__admit_answers(stitch__admit *s, stitch__admission_output *o, stitch_error **err)
{
    int rc = try_constants(s, o, err);

    if (!rc)
        o->mean_abs = o->answers[0].c.finite ? o->answers[0].c.sum_abs / (double)o->answers[0].c.finite : 0;
    if (!rc)
        rc = try_inputs(s, o, err);
    return rc ? rc : try_own(s, o, err);
}

int stitch__admit_confirm(stitch__admit *s, stitch__admission_output *o, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < o->answer_count; i++) {
        stitch__comparison now, *kept = &o->answers[i].c;
        if (!stitch__answer_passes(&o->answers[i]))
            continue;
        rc = compare_answer(s, o, &o->answers[i], &now, err);
        if (!rc && (now.mismatches || now.worst_key > kept->worst_key))
            *kept = now;
    }
    return rc;
}
