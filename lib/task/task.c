/* SPDX-License-Identifier: MIT
 *
 * Tasks as an object: every value can be set by calls, parse.c uses the same calls.
 */
#include "program/program.h"
#include "task/task.h"

#include <math.h>

/* ---- life -------------------------------------------------------------------------------------------------------- */

int stitch_task_new(stitch_context *ctx, const char *name, stitch_task **out, stitch_error **err)
{
    int rc;
    stitch_task *t;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_task_new: out is NULL");
    *out = NULL;
    if (!ctx || !name || !*name)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_task_new: needs a context and a name");
    if (strlen(name) > 255 || !stitch__utf8_valid(name, strlen(name)))
        return stitch__err(ctx, err, STITCH_E_INVALID, "the name of a task must be UTF-8 text of at most 255 bytes");
    t = stitch__calloc(ctx, 1, sizeof(*t));
    if (!t)
        return stitch__err_nomem(ctx, err);
    t->ctx = ctx;
    t->atol = 1e-4;
    t->rtol = 1e-4;
    t->name = stitch__strdup(ctx, name);
    t->description = stitch__strdup(ctx, "");
    t->source = stitch__strdup(ctx, "");
    rc = t->name && t->description && t->source ? stitch_interface_new(ctx, &t->iface, err)
                                                : stitch__err_nomem(ctx, err);
    if (rc) {
        stitch_task_free(t);
        return rc;
    }
    *out = t;
    return STITCH_OK;
}

static void clear_compute(stitch__compute *c)
{
    stitch__zero_free(c->name);
    stitch_program_free(c->program);
    stitch__safetensors_close(c->tensors);
    memset(c, 0, sizeof(*c));
}

void stitch__task_cache_clear(stitch__task_cache *c)
{
    if (c->value && c->destroy)
        c->destroy(c->value);
    memset(c, 0, sizeof(*c));
}

void stitch_task_free(stitch_task *t)
{
    if (!t)
        return;
    stitch__task_cache_clear(&t->admission);
    for (size_t i = 0; t->iface && i < stitch_interface_tensor_count(t->iface) && t->tensors; i++)
        stitch_free(t->tensors[i].data);
    stitch_free(t->tensors);
    for (size_t i = 0; i < t->dim_count; i++)
        stitch_free(t->dims[i].name);
    stitch_free(t->dims);
    stitch_interface_free(t->iface);
    stitch__safetensors_close(t->weights);
    clear_compute(&t->reference);
    for (size_t i = 0; i < t->baseline_count; i++)
        clear_compute(&t->baselines[i]);
    stitch_free(t->baselines);
    stitch_free(t->name);
    stitch_free(t->description);
    stitch_free(t->flops);
    stitch_free(t->source);
    stitch_free(t);
}

/* ---- dims -------------------------------------------------------------------------------------------------------- */

static stitch__task_dim *find_dim(const stitch_task *t, const char *name)
{
    for (size_t i = 0; i < t->dim_count; i++)
        if (strcmp(t->dims[i].name, name) == 0)
            return &t->dims[i];
    return NULL;
}

int stitch__task_infos(const stitch_context *ctx, const stitch_task *t, stitch_tensor_info **out, size_t *count,
                       stitch_error **err)
{
    *count = stitch_interface_tensor_count(t->iface);
    *out = stitch__calloc(ctx, *count + 1, sizeof(**out));
    if (!*out)
        return stitch__err_nomem(ctx, err);
    for (size_t i = 0; i < *count; i++) {
        (*out)[i].struct_size = sizeof((*out)[i]);
        int rc = stitch_interface_tensor(t->iface, i, &(*out)[i]);
        if (rc)
            return stitch__err(ctx, err, rc, "tensor %zu of the task cannot be read", i);
    }
    return STITCH_OK;
}

bool stitch__task_has_reduced(const stitch_task *t)
{
    for (size_t i = 0; i < t->dim_count; i++)
        if (t->dims[i].reduced)
            return true;
    return false;
}

int stitch__task_interface(const stitch_task *t, bool reduced, int output_dtype, stitch_interface **out,
                           stitch_error **err)
{
    stitch_interface *made = NULL;
    size_t count = stitch_interface_tensor_count(t->iface);
    int rc = stitch_interface_new(t->ctx, &made, err);

    for (size_t i = 0; !rc && i < t->dim_count; i++) {
        const stitch__task_dim *d = &t->dims[i];
        rc = stitch_interface_set_dim(made, d->name, reduced && d->reduced ? d->reduced : d->value, err);
    }
    for (size_t i = 0; !rc && i < count; i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        (void)stitch_interface_tensor(t->iface, i, &info); /* fails for a shape that the present dims do not fit */
        int dtype = info.dtype;
        if (info.role == STITCH_TENSOR_OUTPUT && output_dtype != STITCH_DTYPE_NONE && stitch__dtype_is_float(dtype))
            dtype = output_dtype;
        rc = stitch_interface_add_tensor(made, info.role, info.name, dtype, info.rank, info.shape_expr, err);
    }
    if (rc) {
        stitch_interface_free(made);
        made = NULL;
    }
    *out = made;
    return rc;
}

/* Data that was set by value has the size of the dims of that moment. */
static int check_data_sizes(const stitch_task *t, const stitch_interface *iface, stitch_error **err)
{
    for (size_t i = 0; i < stitch_interface_tensor_count(iface); i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        if (t->tensors[i].data && !stitch_interface_tensor(iface, i, &info) && info.bytes != t->tensors[i].data_bytes)
            return stitch__err(t->ctx, err, STITCH_E_STATE,
                               "tensor %s was set to %" PRIu64 " bytes of data, but has %" PRIu64
                               " bytes at these dims",
                               info.name, t->tensors[i].data_bytes, info.bytes);
    }
    return STITCH_OK;
}

/* Rebuilds the interface, so that several dims change as one. */
static int rebuild(stitch_task *t, bool reduced, stitch_error **err)
{
    stitch_interface *made = NULL;
    int rc = stitch__task_interface(t, reduced, STITCH_DTYPE_NONE, &made, err);
    if (rc)
        return rc;
    rc = check_data_sizes(t, made, err);
    if (rc) {
        stitch_interface_free(made);
        return rc;
    }
    stitch_interface_free(t->iface);
    t->iface = made;
    t->reduced = reduced;
    return STITCH_OK;
}

int stitch_task_set_dim(stitch_task *t, const char *name, int64_t value, stitch_error **err)
{
    stitch__task_dim *d;
    int rc;

    if (!t || !name)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID, "stitch_task_set_dim: needs a task and a name");
    t->hash[0] = 0;
    d = find_dim(t, name);
    if (d) {
        if (value < 1)
            return stitch__err(t->ctx, err, STITCH_E_INVALID, "dim %s: %" PRId64 " is less than 1", name, value);
        if (d->reduced > value)
            return stitch__err(t->ctx, err, STITCH_E_INVALID,
                               "dim %s: %" PRId64 " is less than its reduced value %" PRId64, name, value, d->reduced);
        /* Dims are changed one by one, and shapes may make no sense in between: stitch__task_check() looks at the end.
         */
        rc = t->reduced && d->reduced ? STITCH_OK : stitch_interface_set_dim(t->iface, name, value, err);
        if (!rc)
            d->value = value;
        return rc;
    }
    if (t->dim_count >= STITCH__TASK_MAX_DIMS)
        return stitch__err(t->ctx, err, STITCH_E_LIMIT, "dim %s: a task has at most %d dims", name,
                           STITCH__TASK_MAX_DIMS);
    if (stitch__grow(t->ctx, &t->dims, &t->dim_cap, t->dim_count + 1, sizeof(*t->dims)))
        return stitch__err_nomem(t->ctx, err);
    char *copy = stitch__strdup(t->ctx, name);
    if (!copy)
        return stitch__err_nomem(t->ctx, err);
    rc = stitch_interface_set_dim(t->iface, name, value, err);
    if (rc) {
        stitch_free(copy);
        return rc;
    }
    t->dims[t->dim_count++] = (stitch__task_dim){.name = copy, .value = value};
    return STITCH_OK;
}

int stitch_task_set_reduced_dim(stitch_task *t, const char *name, int64_t value, stitch_error **err)
{
    stitch__task_dim *d;
    int64_t before;
    int rc = STITCH_OK;

    if (!t || !name)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_reduced_dim: needs a task and a name");
    d = find_dim(t, name);
    if (!d)
        return stitch__err(t->ctx, err, STITCH_E_NOT_FOUND, "reduced dim %s: the task has no dim of this name", name);
    if (value < 1 || value > d->value)
        return stitch__err(t->ctx, err, STITCH_E_INVALID, "reduced dim %s: %" PRId64 " is not between 1 and %" PRId64,
                           name, value, d->value);
    t->hash[0] = 0;
    before = d->reduced;
    d->reduced = value;
    if (t->reduced)
        rc = rebuild(t, true, err);
    if (rc)
        d->reduced = before;
    return rc;
}

int stitch_task_use_reduced(stitch_task *t, int reduced, stitch_error **err)
{
    if (!t)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_task_use_reduced: task is NULL");
    if ((reduced != 0) == t->reduced)
        return STITCH_OK;
    if (reduced && !stitch__task_has_reduced(t))
        return stitch__err(t->ctx, err, STITCH_E_STATE,
                           "task %s has no reduced dims; set some (\"reduced_dims\" in the file)", t->name);
    if (reduced && t->reference.kind == STITCH__COMPUTE_TENSORS)
        return stitch__err(t->ctx, err, STITCH_E_STATE,
                           "task %s: the recorded tensors of its reference have the full dims", t->name);
    return rebuild(t, reduced != 0, err);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

int stitch_task_add_tensor(stitch_task *t, int role, const char *name, int dtype, size_t rank, const char *const *shape,
                           const stitch_dist *dist, stitch_error **err)
{
    size_t count;
    stitch__task_tensor tensor = {0};
    int rc;

    if (!t || !name || (rank && !shape))
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_add_tensor: needs a task, a name and %zu shape expressions", rank);
    count = stitch_interface_tensor_count(t->iface);
    if (count >= STITCH__TASK_MAX_TENSORS)
        return stitch__err(t->ctx, err, STITCH_E_LIMIT, "tensor %s: a task has at most %d tensors", name,
                           STITCH__TASK_MAX_TENSORS);
    if (role == STITCH_TENSOR_INPUT || role == STITCH_TENSOR_WEIGHT) {
        if (dist) {
            rc = stitch__dist_check(t->ctx, dist, dtype, rank, name, err);
            if (rc)
                return rc;
            tensor.dist = stitch__dist_resolve(*dist);
        } else if (stitch__dtype_is_float(dtype)) {
            tensor.dist = stitch__dist_resolve((stitch_dist){.kind = STITCH_DIST_NORMAL});
        }
        /* Integers without a distribution stay without: what range makes sense depends on what they index. */
    }
    if (stitch__grow(t->ctx, &t->tensors, &t->tensor_cap, count + 1, sizeof(*t->tensors)))
        return stitch__err_nomem(t->ctx, err);
    rc = stitch_interface_add_tensor(t->iface, role, name, dtype, rank, shape, err);
    if (rc)
        return rc;
    t->tensors[count] = tensor;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_set_data(stitch_task *t, const char *name, const void *data, uint64_t bytes, stitch_error **err)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    size_t index;
    void *copy;

    if (!t || !name || (!data && bytes))
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_data: needs a task, a name and data");
    if (stitch_interface_find(t->iface, name, &index) || stitch_interface_tensor(t->iface, index, &info))
        return stitch__err(t->ctx, err, STITCH_E_NOT_FOUND, "the task has no tensor %s to set data of", name);
    if (info.role != STITCH_TENSOR_INPUT && info.role != STITCH_TENSOR_WEIGHT)
        return stitch__err(t->ctx, err, STITCH_E_INVALID,
                           "tensor %s is neither input nor weight: its data cannot be set", name);
    if (bytes != info.bytes)
        return stitch__err(t->ctx, err, STITCH_E_INVALID, "tensor %s has %" PRIu64 " bytes, got %" PRIu64, name,
                           info.bytes, bytes);
    if (bytes > SIZE_MAX || !(copy = stitch__alloc(t->ctx, (size_t)bytes)))
        return stitch__err_nomem(t->ctx, err);
    memcpy(copy, data, (size_t)bytes);
    stitch_free(t->tensors[index].data);
    t->tensors[index].data = copy;
    t->tensors[index].data_bytes = bytes;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_set_weights_file(stitch_task *t, const char *path, stitch_error **err)
{
    stitch__safetensors *st = NULL;
    int rc;

    if (!t || !path)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_weights_file: needs a task and a path");
    rc = stitch__safetensors_open(t->ctx, path, &st, err);
    if (rc)
        return rc;
    stitch__safetensors_close(t->weights);
    t->weights = st;
    t->hash[0] = 0;
    return STITCH_OK;
}

/* ---- plain values ------------------------------------------------------------------------------------------------ */

int stitch_task_set_tolerance(stitch_task *t, double atol, double rtol, stitch_error **err)
{
    if (!t)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_task_set_tolerance: task is NULL");
    if (!(atol >= 0) || !(rtol >= 0) || !isfinite(atol) || !isfinite(rtol))
        return stitch__err(t->ctx, err, STITCH_E_INVALID,
                           "tolerances must be finite and not negative, got atol %g and rtol %g", atol, rtol);
    t->atol = atol;
    t->rtol = rtol;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_set_flops(stitch_task *t, const char *flops, stitch_error **err)
{
    int64_t value = 0;
    char *copy;
    int rc;

    if (!t || !flops)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_flops: needs a task and an expression");
    rc = stitch__interface_evaluate(t->iface, flops, &value, err);
    if (!rc && value < 0)
        rc = stitch__err(t->ctx, err, STITCH_E_INVALID, "\"%.200s\" is %" PRId64 " operations", flops, value);
    if (rc)
        return rc;
    copy = stitch__strdup(t->ctx, flops);
    if (!copy)
        return stitch__err_nomem(t->ctx, err);
    stitch_free(t->flops);
    t->flops = copy;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_set_precision(stitch_task *t, int precision, stitch_error **err)
{
    if (!t)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_task_set_precision: task is NULL");
    if (precision < STITCH_PRECISION_ANY || precision > STITCH_PRECISION_F16)
        return stitch__err(t->ctx, err, STITCH_E_INVALID, "%d is no precision (stitch_precision)", precision);
    t->precision = precision;
    t->hash[0] = 0;
    return STITCH_OK;
}

static int set_string(stitch_task *t, char **field, const char *text, stitch_error **err)
{
    char *copy = stitch__strdup(t->ctx, text);
    if (!copy)
        return stitch__err_nomem(t->ctx, err);
    stitch_free(*field);
    *field = copy;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_set_text(stitch_task *t, const char *description, const char *source, stitch_error **err)
{
    int rc = STITCH_OK;
    if (!t)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_task_set_text: task is NULL");
    if ((description && !stitch__utf8_valid(description, strlen(description))) ||
        (source && !stitch__utf8_valid(source, strlen(source))))
        return stitch__err(
            t->ctx, err, STITCH_E_INVALID, "the %s of task %s is not UTF-8 text",
            description && !stitch__utf8_valid(description, strlen(description)) ? "description" : "source", t->name);
    if (description)
        rc = set_string(t, &t->description, description, err);
    if (!rc && source)
        rc = set_string(t, &t->source, source, err);
    return rc;
}

const char *stitch_task_name(const stitch_task *t)
{
    return t ? t->name : "";
}

const stitch_interface *stitch_task_interface(const stitch_task *t)
{
    return t ? t->iface : NULL;
}

int stitch_task_is_reduced(const stitch_task *t)
{
    return t && t->reduced;
}

void stitch_task_tolerance(const stitch_task *t, double *atol, double *rtol)
{
    if (atol)
        *atol = t ? t->atol : 0;
    if (rtol)
        *rtol = t ? t->rtol : 0;
}

int stitch_task_precision(const stitch_task *t)
{
    return t ? t->precision : STITCH_PRECISION_ANY;
}

const char *stitch_task_description(const stitch_task *t)
{
    return t ? t->description : "";
}

const char *stitch_task_source(const stitch_task *t)
{
    return t ? t->source : "";
}

/* ---- reference and baselines ------------------------------------------------------------------------------------- */

static int check_output_dtype(const stitch_task *t, int dtype, stitch_error **err)
{
    if (dtype != STITCH_DTYPE_NONE && !stitch__dtype_is_float(dtype))
        return stitch__err(t->ctx, err, STITCH_E_INVALID,
                           "the reference's output dtype must be a floating type or STITCH_DTYPE_NONE, got %d", dtype);
    return STITCH_OK;
}

static int set_reference(stitch_task *t, const stitch__compute *made, stitch_error **err)
{
    if (t->reference.kind != STITCH__COMPUTE_NONE)
        return stitch__err(t->ctx, err, STITCH_E_STATE, "task %s already has a reference; a task has exactly one",
                           t->name);
    t->reference = *made;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_set_reference_fn(stitch_task *t, stitch_reference_fn fn, void *userdata, int output_dtype,
                                 stitch_error **err)
{
    int rc;
    if (!t || !fn)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_reference_fn: needs a task and a function");
    rc = check_output_dtype(t, output_dtype, err);
    if (rc)
        return rc;
    return set_reference(
        t, &(stitch__compute){.kind = STITCH__COMPUTE_FN, .fn = fn, .userdata = userdata, .output_dtype = output_dtype},
        err);
}

int stitch_task_set_reference_program(stitch_task *t, stitch_program *p, int output_dtype, stitch_error **err)
{
    int rc;
    if (!t || !p)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_reference_program: needs a task and a program");
    rc = check_output_dtype(t, output_dtype, err);
    if (rc)
        return rc;
    return set_reference(
        t, &(stitch__compute){.kind = STITCH__COMPUTE_PROGRAM, .program = p, .output_dtype = output_dtype}, err);
}

int stitch_task_set_reference_tensors(stitch_task *t, const char *path, stitch_error **err)
{
    stitch__safetensors *st = NULL;
    int rc;

    if (!t || !path)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_set_reference_tensors: needs a task and a path");
    if (t->reduced)
        return stitch__err(t->ctx, err, STITCH_E_STATE,
                           "recorded tensors have the full dims; leave the reduced ones first");
    rc = stitch__safetensors_open(t->ctx, path, &st, err);
    if (rc)
        return rc;
    rc = set_reference(t, &(stitch__compute){.kind = STITCH__COMPUTE_TENSORS, .tensors = st}, err);
    if (rc)
        stitch__safetensors_close(st);
    return rc;
}

static int add_baseline(stitch_task *t, const char *name, int precision, stitch__compute made, stitch_error **err)
{
    if (!*name || strlen(name) > 255 || !stitch__utf8_valid(name, strlen(name)))
        return stitch__err(t->ctx, err, STITCH_E_INVALID,
                           "the name of a baseline must be UTF-8 text of 1 to 255 bytes");
    if (precision < STITCH_PRECISION_ANY || precision > STITCH_PRECISION_F16)
        return stitch__err(t->ctx, err, STITCH_E_INVALID, "baseline %s: %d is no precision (stitch_precision)", name,
                           precision);
    for (size_t i = 0; i < t->baseline_count; i++)
        if (strcmp(t->baselines[i].name, name) == 0)
            return stitch__err(t->ctx, err, STITCH_E_INVALID, "there already is a baseline \"%s\"", name);
    if (t->baseline_count >= STITCH__TASK_MAX_BASELINES)
        return stitch__err(t->ctx, err, STITCH_E_LIMIT, "a task has at most %d baselines", STITCH__TASK_MAX_BASELINES);
    if (stitch__grow(t->ctx, &t->baselines, &t->baseline_cap, t->baseline_count + 1, sizeof(*t->baselines)))
        return stitch__err_nomem(t->ctx, err);
    made.precision = precision;
    made.name = stitch__strdup(t->ctx, name);
    if (!made.name)
        return stitch__err_nomem(t->ctx, err);
    t->baselines[t->baseline_count++] = made;
    t->hash[0] = 0;
    return STITCH_OK;
}

int stitch_task_add_baseline_fn(stitch_task *t, const char *name, int precision, stitch_reference_fn fn, void *userdata,
                                stitch_error **err)
{
    if (!t || !name || !fn)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_add_baseline_fn: needs a task, a name and a function");
    return add_baseline(t, name, precision,
                        (stitch__compute){.kind = STITCH__COMPUTE_FN, .fn = fn, .userdata = userdata}, err);
}

int stitch_task_add_baseline_program(stitch_task *t, const char *name, int precision, stitch_program *p,
                                     stitch_error **err)
{
    if (!t || !name || !p)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_add_baseline_program: needs a task, a name and a program");
    return add_baseline(t, name, precision, (stitch__compute){.kind = STITCH__COMPUTE_PROGRAM, .program = p}, err);
}

size_t stitch_task_baseline_count(const stitch_task *t)
{
    return t ? t->baseline_count : 0;
}

int stitch_task_baseline(const stitch_task *t, size_t index, const char **name, int *precision)
{
    if (!t || index >= t->baseline_count)
        return STITCH_E_INVALID;
    if (name)
        *name = t->baselines[index].name;
    if (precision)
        *precision = t->baselines[index].precision;
    return STITCH_OK;
}
