/* SPDX-License-Identifier: MIT
 *
 * Admission of tasks: runs the reference a few times on different contents, measures, and keeps the result with the
 * task. The candidate has no part in it.
 */
#include "verify/admission.h"

#include <math.h>
#include <stdio.h>

/* Evaluations of the reference: the first draw twice and two others; for weights; beside them one for each input. */
#define BASIC_RUNS  4
#define WEIGHT_RUNS 4
/* Purpose of the derived seed of a task's admission within a verification. */
#define SEED_ADMISSION 63

/* ---- the calls --------------------------------------------------------------------------------------------------- */

int stitch_admit_options_init(stitch_admit_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_admit_options));
}

void stitch_admission_free(stitch_admission *a)
{
    if (!a)
        return;
    for (size_t k = 0; k < a->output_count; k++) {
        stitch_free(a->outputs[k].name);
        stitch_free(a->outputs[k].answers);
    }
    for (size_t k = 0; k < a->input_count; k++) {
        stitch_free(a->inputs[k].name);
        stitch_free(a->inputs[k].changed);
    }
    for (size_t i = 0; i < a->warning_count; i++)
        stitch_free(a->warnings[i]);
    void *const owned[] = {a->outputs, a->inputs, a->warnings, a->task_name, a->device_name,
                           a->reason,  a->cure,   a->json,     a->text};
    for (size_t i = 0; i < STITCH__COUNT(owned); i++)
        stitch_free(owned[i]);
    stitch_free(a);
}

static int resolve_options(stitch_context *ctx, stitch_task *task, stitch_admit_options *o, stitch_error **err)
{
    size_t inputs = 0;
    int rc = STITCH_OK;

    if (o->max_runs < 0 || (o->max_runs && o->max_runs < BASIC_RUNS))
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_admit_options: max_runs is %d; admission needs at least %d runs of the reference",
                           (int)o->max_runs, BASIC_RUNS);
    if (!(o->spread_factor >= 0) || isinf(o->spread_factor))
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_admit_options: spread_factor must be a positive number or 0");
    for (size_t i = 0; i < stitch_interface_tensor_count(task->iface); i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        inputs += stitch_interface_tensor(task->iface, i, &info) == STITCH_OK && info.role == STITCH_TENSOR_INPUT;
    }
    if (!o->max_runs)
        o->max_runs = BASIC_RUNS + WEIGHT_RUNS + (int32_t)inputs;
    if (o->spread_factor == 0)
        o->spread_factor = 10;
    if (o->timeout_ms <= 0)
        o->timeout_ms = 600000;
    if (!o->seed)
        rc = stitch__random(ctx, &o->seed, sizeof(o->seed), err);
    if (!o->seed)
        o->seed = 1;
    return rc;
}

static int admission_new(const stitch__admit *s, const stitch_admit_options *o, stitch_admission **out,
                         stitch_error **err)
{
    stitch_admission *a = stitch__calloc(s->ctx, 1, sizeof(*a));
    *out = a;
    if (!a)
        return stitch__err_nomem(s->ctx, err);
    a->ctx = s->ctx;
    a->seed = o->seed;
    a->factor = o->spread_factor;
    a->max_runs = o->max_runs;
    a->atol = s->task->atol;
    a->rtol = s->task->rtol;
    a->reduced = s->task->reduced;
    a->simulated = s->dev->info.simulated != 0;
    a->draws = 1;
    a->steps = 1;
    a->redrawn = "nothing";
    a->task_name = stitch__strdup(s->ctx, s->task->name);
    a->device_name = stitch__strdup(s->ctx, s->dev->info.name);
    return a->task_name && a->device_name ? STITCH_OK : stitch__err_nomem(s->ctx, err);
}

/* Measures and judges; options are resolved, the device is entered, the task is checked. */
static int admit(stitch_task *task, stitch__device *dev, const stitch_admit_options *o, const stitch__scope *scope,
                 stitch_admission **out, stitch_error **err)
{
    stitch__admit s = {.ctx = task->ctx, .task = task, .dev = dev, .scope = *scope};
    int rc = admission_new(&s, o, &s.a, err);

    if (!rc)
        rc = stitch__admit_open(&s, o->ops, o->op_count, err);
    if (!rc)
        rc = stitch__admit_measure(&s, err);
    stitch__admit_close(&s);
    if (!rc)
        rc = stitch__admission_judge(s.a, err);
    if (!rc) {
        json_t *root = stitch__admission_to_json(s.a);
        s.a->json = root ? stitch__json_dump(s.ctx, root, 2) : NULL;
        s.a->text = stitch__admission_to_text(s.a);
        json_decref(root);
        if (!s.a->json || !s.a->text)
            rc = stitch__err_nomem(s.ctx, err);
    }
    if (rc) {
        stitch_admission_free(s.a);
        s.a = NULL;
        stitch__err_prefix(err, "admission of task %s: ", task->name);
    }
    *out = s.a;
    return rc;
}

int stitch_task_admit(stitch_context *ctx, stitch_task *task, const stitch_admit_options *options,
                      stitch_admission **out, stitch_error **err)
{
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    stitch__device *dev = NULL;
    stitch__scope scope;
    bool reduced_here = false;
    int rc;

    if (out)
        *out = NULL;
    if (!ctx || !task || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_task_admit: needs a context, a task and room for the result");
    rc = stitch__options_copy(ctx, &o, sizeof(o), options, "stitch_admit_options", err);
    if (!rc)
        rc = resolve_options(ctx, task, &o, err);
    if (!rc)
        rc = stitch__task_check(task, err);
    if (!rc)
        rc = stitch__device_get(ctx, &dev, err);
    scope = stitch__scope_make(ctx, o.cancel, o.timeout_ms);
    if (!rc)
        rc = stitch__device_turn(dev, &scope, err);
    if (rc)
        return rc;
    if (dev->info.simulated && !task->reduced && stitch__task_has_reduced(task))
        reduced_here = stitch_task_use_reduced(task, 1, NULL) == STITCH_OK; /* not with recorded data */
    rc = stitch__device_enter(dev, err);
    if (!rc) {
        stitch__device_limit(dev, &scope);
        rc = admit(task, dev, &o, &scope, out, err);
        if (rc == STITCH_E_FAULT && dev->info.simulated && stitch__scope_ended(&scope)) {
            char what[300]; /* names have at most 255 bytes */
            snprintf(what, sizeof(what), "admission of task %s", task->name);
            rc = stitch__scope_check(&scope, what, err); /* which the driver takes for a fault */
        }
        stitch__device_recover(dev);
        stitch__device_limit(dev, NULL);
        stitch__device_leave(dev);
    }
    if (reduced_here)
        (void)stitch_task_use_reduced(task, 0, NULL); /* was so before; can only fail for lack of memory */
    stitch__device_turn_end(dev);
    return rc;
}

static void destroy(void *admission)
{
    stitch_admission_free(admission);
}

int stitch__admission_get(stitch__verify *v, const stitch_admission **out, stitch_error **err)
{
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    stitch__task_cache *cache = &v->task->admission;
    stitch_admission *made = NULL;
    char hash[65], key[sizeof(cache->key)];
    int rc = stitch_task_hash(v->task, hash, err);

    *out = NULL;
    if (rc)
        return rc;
    snprintf(key, sizeof(key), "%s%s", hash, v->task->reduced ? " reduced" : "");
    if (cache->value && strcmp(cache->key, key) == 0) {
        *out = cache->value;
        return STITCH_OK;
    }
    (void)stitch__warm_join(v); /* a thread may still compile the reference */
    rc = stitch__scope_check(&v->scope, "compiling the reference", err);
    if (rc)
        return rc;
    o.ops = v->options.ops;
    o.op_count = v->options.op_count;
    o.seed = stitch__seed_derive(v->options.seed, SEED_ADMISSION, 0);
    rc = resolve_options(v->ctx, v->task, &o, err);
    if (!rc)
        rc = admit(v->task, v->dev, &o, &v->scope, &made, err);
    if (rc)
        return rc;
    stitch__task_cache_clear(cache);
    memcpy(cache->key, key, sizeof(key));
    cache->value = made;
    cache->destroy = destroy;
    *out = made;
    return STITCH_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

int stitch_admission_degenerate(const stitch_admission *a)
{
    return a && a->degenerate;
}

const char *stitch_admission_reason(const stitch_admission *a)
{
    return a ? a->reason : "";
}

const char *stitch_admission_cure(const stitch_admission *a)
{
    return a ? a->cure : "";
}

const char *stitch_admission_json(const stitch_admission *a)
{
    return a ? a->json : "";
}

const char *stitch_admission_text(const stitch_admission *a)
{
    return a ? a->text : "";
}
