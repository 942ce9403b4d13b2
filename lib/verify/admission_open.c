/* SPDX-License-Identifier: MIT
 *
 * What an admission measures on: tensors, memory, the reference.
 */
#include "verify/admission.h"

/* Runs of a task with states: what they hold shows in the outputs of later runs only. */
#define STATE_STEPS 3

/* Whether another seed gives other contents, as far as the task's declaration says. */
static bool drawn_by_chance(const stitch_task *t, size_t index, const stitch_tensor_info *info)
{
    const stitch__safetensors *recorded = t->reference.kind == STITCH__COMPUTE_TENSORS ? t->reference.tensors : NULL;
    int kind = t->tensors[index].dist.kind;

    if ((info->role != STITCH_TENSOR_INPUT && info->role != STITCH_TENSOR_WEIGHT) || t->tensors[index].data)
        return false;
    if (recorded) /* its outputs are recorded, too: nothing can change them */
        return false;
    if (info->role == STITCH_TENSOR_WEIGHT && t->weights)
        return false;
    return kind == STITCH_DIST_NORMAL || kind == STITCH_DIST_UNIFORM || kind == STITCH_DIST_RANDINT ||
           kind == STITCH_DIST_BERNOULLI;
}

static int take_output(stitch__admit *s, size_t index, stitch_error **err)
{
    const stitch_tensor_info *info = &s->infos[index];
    stitch__admission_output *o = &s->a->outputs[s->a->output_count];

    o->name = stitch__strdup(s->ctx, info->name);
    if (!o->name)
        return stitch__err_nomem(s->ctx, err);
    s->a->output_count++;
    o->tensor = index;
    o->dtype = info->dtype;
    o->want_dtype = stitch__oracle_dtype(s->oracle, index);
    o->rank = info->rank;
    memcpy(o->shape, info->shape, sizeof(o->shape));
    o->elements = info->elements;
    o->factor = stitch__dtype_is_float(info->dtype) ? s->a->factor : 1;
    return STITCH_OK;
}

static int take_input(stitch__admit *s, size_t index, stitch_error **err)
{
    stitch__admission_input *in = &s->a->inputs[s->a->input_count];

    in->name = stitch__strdup(s->ctx, s->infos[index].name);
    if (!in->name)
        return stitch__err_nomem(s->ctx, err);
    s->a->input_count++;
    in->tensor = index;
    in->role = s->infos[index].role;
    s->drawn[index] = drawn_by_chance(s->task, index, &s->infos[index]);
    in->redraw = s->drawn[index] ? STITCH__REDRAW_LEFT_OUT : STITCH__REDRAW_FIXED;
    return STITCH_OK;
}

static int take_tensors(stitch__admit *s, stitch_error **err)
{
    size_t room = s->count ? s->count : 1;
    int rc = STITCH_OK;

    s->a->outputs = stitch__calloc(s->ctx, room, sizeof(*s->a->outputs));
    s->a->inputs = stitch__calloc(s->ctx, room, sizeof(*s->a->inputs));
    if (!s->a->outputs || !s->a->inputs)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; !rc && i < s->count; i++) {
        if (s->infos[i].role == STITCH_TENSOR_OUTPUT)
            rc = take_output(s, i, err);
        else if (s->infos[i].role == STITCH_TENSOR_STATE)
            s->a->steps = STATE_STEPS;
        else
            rc = take_input(s, i, err);
    }
    return rc;
}

static int take_infos(stitch__admit *s, stitch_error **err)
{
    size_t room;
    s->count = stitch_interface_tensor_count(s->task->iface);
    room = s->count ? s->count : 1;
    s->infos = stitch__calloc(s->ctx, room, sizeof(*s->infos));
    s->drawn = stitch__calloc(s->ctx, room, sizeof(*s->drawn));
    s->redrawn = stitch__calloc(s->ctx, room, sizeof(*s->redrawn));
    s->hashes = stitch__calloc(s->ctx, room, sizeof(*s->hashes));
    s->hashes_now = stitch__calloc(s->ctx, room, sizeof(*s->hashes_now));
    s->run = stitch__calloc(s->ctx, room, sizeof(*s->run));
    s->first = stitch__calloc(s->ctx, room, sizeof(*s->first));
    s->other = stitch__calloc(s->ctx, room, sizeof(*s->other));
    if (!s->infos || !s->drawn || !s->redrawn || !s->hashes || !s->hashes_now || !s->run || !s->first || !s->other)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; i < s->count; i++) {
        s->infos[i].struct_size = sizeof(s->infos[i]);
        int rc = stitch_interface_tensor(s->task->iface, i, &s->infos[i]);
        if (rc)
            return stitch__err(s->ctx, err, rc, "tensor %zu of the task cannot be read", i);
    }
    return STITCH_OK;
}

uint64_t stitch__admit_want_bytes(const stitch__admission_output *o)
{
    return o->elements * stitch_dtype_size(o->want_dtype);
}

static int take_memory(stitch__admit *s, stitch_error **err)
{
    int rc = STITCH_OK;
    char name[160];

    for (size_t i = 0; !rc && i < s->count; i++)
        if (s->infos[i].role != STITCH_TENSOR_OUTPUT)
            rc = stitch__mem_alloc(s->dev, (size_t)s->infos[i].bytes, s->infos[i].name, &s->run[i], err);
    for (size_t k = 0; !rc && k < s->a->output_count; k++) {
        const stitch__admission_output *o = &s->a->outputs[k];
        uint64_t want = stitch__admit_want_bytes(o), own = s->infos[o->tensor].bytes;
        snprintf(name, sizeof(name), "%.100s (reference)", o->name);
        rc = stitch__mem_alloc(s->dev, (size_t)(want > own ? want : own), name, &s->run[o->tensor], err);
        snprintf(name, sizeof(name), "%.100s (first draw)", o->name);
        if (!rc)
            rc = stitch__mem_alloc(s->dev, (size_t)want, name, &s->first[o->tensor], err);
        snprintf(name, sizeof(name), "%.100s (another draw)", o->name);
        if (!rc)
            rc = stitch__mem_alloc(s->dev, (size_t)want, name, &s->other[o->tensor], err);
    }
    return rc ? rc : stitch__admit_room(s, err);
}

int stitch__admit_open(stitch__admit *s, const stitch_op *ops, size_t op_count, stitch_error **err)
{
    int rc = take_infos(s, err);

    s->base_seed = stitch__seed_derive(s->a->seed, STITCH__ADMIT_SEED_BASE, 0);
    s->weights_seed = stitch__seed_derive(s->a->seed, STITCH__ADMIT_SEED_WEIGHTS, 0);
    if (!rc)
        rc = stitch__cu_check(s->dev, s->dev->drv->StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING), err,
                              "creating a stream");
    if (!rc) /* whoever asks for them from here on does not look at the clock */
        rc = stitch__runner_warm(s->dev, &s->scope, err);
    if (!rc)
        rc = stitch__compare_warm(s->dev, &s->scope, err);
    if (!rc)
        rc = stitch__comparator_open(&s->comparator, s->dev, 1, err);
    if (!rc)
        rc = stitch__hasher_open(&s->hasher, s->dev, s->stream, s->count, err);
    if (!rc)
        rc = stitch__oracle_open(s->task, &s->task->reference, s->dev, ops, op_count, &s->oracle, err);
    if (!rc)
        rc = take_tensors(s, err);
    return rc ? rc : take_memory(s, err);
}

void stitch__admit_close(stitch__admit *s)
{
    if (!s->abandoned) {
        stitch__oracle_close(s->oracle);
        stitch__comparator_close(&s->comparator);
        stitch__hasher_close(&s->hasher);
        stitch__admit_room_free(s);
        for (size_t i = 0; s->run && s->first && s->other && i < s->count; i++) {
            stitch__mem_free(s->dev, s->run[i]);
            stitch__mem_free(s->dev, s->first[i]);
            stitch__mem_free(s->dev, s->other[i]);
        }
        if (s->stream)
            s->dev->drv->StreamDestroy(s->stream);
    }
    void *const owned[] = {s->infos, s->drawn, s->redrawn, s->hashes, s->hashes_now, s->run, s->first, s->other};
    for (size_t i = 0; i < STITCH__COUNT(owned); i++)
        stitch_free(owned[i]);
}
