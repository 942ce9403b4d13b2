/* SPDX-License-Identifier: MIT
 *
 * Interfaces: the dims and tensors that a program is written for.
 */
#include <stdio.h>

#include "program/program.h"

enum { MAX_DIMS = 256, MAX_TENSORS = 4096 };

/* More than any device has; keeps every later product of sizes inside 64 bits. */
#define MAX_TENSOR_BYTES (UINT64_C(1) << 46)

int stitch__out_struct(void *out, const void *full, size_t size)
{
    size_t given;
    if (!out)
        return STITCH_E_INVALID;
    memcpy(&given, out, sizeof(given));
    if (given < sizeof(size_t))
        return STITCH_E_INVALID;
    memcpy((char *)out + sizeof(size_t), (const char *)full + sizeof(size_t),
           (given < size ? given : size) - sizeof(size_t));
    return STITCH_OK;
}

bool stitch__shape_size(const int64_t *extent, size_t rank, int dtype, uint64_t *elements, uint64_t *bytes,
                        char *problem, size_t size)
{
    uint64_t n = 1;
    *elements = *bytes = 0;
    for (size_t i = 0; i < rank; i++) {
        if (extent[i] < 1) {
            snprintf(problem, size, "shape[%zu] is %" PRId64 "; every extent must be at least 1", i, extent[i]);
            return false;
        }
        if (__builtin_mul_overflow(n, (uint64_t)extent[i], &n))
            n = UINT64_MAX;
    }
    if (n > MAX_TENSOR_BYTES / stitch_dtype_size(dtype)) {
        snprintf(problem, size, "the shape has more than %" PRIu64 " bytes", MAX_TENSOR_BYTES);
        return false;
    }
    *elements = n;
    *bytes = n * stitch_dtype_size(dtype);
    return true;
}

int stitch_interface_new(stitch_context *ctx, stitch_interface **out, stitch_error **err)
{
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_interface_new: out must not be NULL");
    *out = NULL;
    if (!ctx)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_interface_new: the context must not be NULL");
    stitch_interface *i = stitch__calloc(ctx, 1, sizeof(*i));
    if (!i)
        return stitch__err_nomem(ctx, err);
    i->ctx = ctx;
    i->arena.ctx = ctx;
    i->symbols.arena = &i->arena;
    *out = i;
    return STITCH_OK;
}

void stitch_interface_free(stitch_interface *i)
{
    if (!i)
        return;
    for (size_t k = 0; k < i->tensor_count; k++)
        stitch_free(i->tensors[k].problem);
    stitch_free(i->tensors);
    stitch_free(i->dims);
    stitch__arena_free(&i->arena);
    stitch_free(i);
}

/* Values of the dims for expressions; *values is released with stitch_free. */
static int make_env(stitch_interface *i, stitch__env *env, stitch_error **err)
{
    stitch__symbol_value *values = stitch__calloc(i->ctx, i->symbols.count ? i->symbols.count : 1, sizeof(*values));
    if (!values)
        return stitch__err_nomem(i->ctx, err);
    for (size_t k = 0; k < i->dim_count; k++)
        values[i->dims[k].symbol] = (stitch__symbol_value){i->dims[k].value, STITCH__SYMBOL_FIXED};
    *env = (stitch__env){i->ctx, &i->symbols, values, ++i->epoch};
    return STITCH_OK;
}

int stitch__interface_evaluate(stitch_interface *i, const char *text, int64_t *out, stitch_error **err)
{
    stitch__arena arena = {i->ctx, NULL};
    stitch__expr *e = NULL;
    stitch__env env = {0};
    int rc = stitch__expr_parse(&arena, &i->symbols, text, strlen(text), &e, err);

    if (!rc)
        rc = make_env(i, &env, err);
    if (!rc)
        rc = stitch__expr_eval(e, &env, out, err);
    stitch_free(env.values);
    stitch__arena_free(&arena);
    return rc;
}

/* Sizes for the current dims. A shape that does not work out is remembered with the tensor: while several dims are
 * changed one by one, states in between may not make sense. */
static int measure(stitch_interface *i, stitch__iface_tensor *t, const stitch__env *env, stitch_error **err)
{
    char problem[512] = "";
    stitch_error *why = NULL;
    int rc = STITCH_OK;

    stitch__zero_free(t->problem);
    for (size_t d = 0; d < t->rank && rc == STITCH_OK; d++) {
        rc = stitch__expr_eval(t->shape[d], env, &t->extent[d], &why);
        if (rc)
            snprintf(problem, sizeof(problem), "shape[%zu]: %s", d, stitch_error_message(why));
    }
    stitch_error_free(why);
    if (rc == STITCH_E_NOMEM)
        return stitch__err_nomem(i->ctx, err);
    if (rc == STITCH_OK &&
        stitch__shape_size(t->extent, t->rank, t->dtype, &t->elements, &t->bytes, problem, sizeof(problem)))
        return STITCH_OK;
    t->elements = t->bytes = 0;
    t->problem = stitch__strdup(i->ctx, problem);
    return t->problem ? STITCH_OK : stitch__err_nomem(i->ctx, err);
}

static int measure_all(stitch_interface *i, stitch_error **err)
{
    stitch__env env = {0};
    int rc = make_env(i, &env, err);
    for (size_t k = 0; k < i->tensor_count && rc == STITCH_OK; k++)
        rc = measure(i, &i->tensors[k], &env, err);
    stitch_free(env.values);
    return rc;
}

static stitch__iface_dim *find_dim(const stitch_interface *i, const char *name)
{
    for (size_t k = 0; k < i->dim_count; k++) {
        if (strcmp(i->dims[k].name, name) == 0)
            return &i->dims[k];
    }
    return NULL;
}

static int check_name(const stitch_interface *i, const char *what, const char *name, stitch_error **err)
{
    size_t index;
    if (!name || !stitch__name_valid(name))
        return stitch__err(i->ctx, err, STITCH_E_INVALID,
                           "%s name '%.64s': names are letters, digits, '_' and '.', start with a letter or '_', and "
                           "have at most 255 bytes",
                           what, name ? name : "(null)");
    if (stitch_interface_find(i, name, &index) == STITCH_OK || (strcmp(what, "tensor") == 0 && find_dim(i, name)))
        return stitch__err(i->ctx, err, STITCH_E_INVALID, "there is already a dim or tensor named '%.64s'", name);
    return STITCH_OK;
}

int stitch_interface_set_dim(stitch_interface *i, const char *name, int64_t value, stitch_error **err)
{
    if (!i)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_interface_set_dim: the interface must not be NULL");
    int rc = check_name(i, "dim", name, err);
    if (rc)
        return rc;
    if (value < 1)
        return stitch__err(i->ctx, err, STITCH_E_INVALID, "dim %s is %" PRId64 "; dims are at least 1", name, value);
    stitch__iface_dim *dim = find_dim(i, name);
    if (dim) {
        int64_t old = dim->value;
        dim->value = value;
        if ((rc = measure_all(i, err)) != STITCH_OK) {
            dim->value = old;
            measure_all(i, NULL);
        }
        return rc;
    }
    if (i->dim_count == MAX_DIMS)
        return stitch__err(i->ctx, err, STITCH_E_LIMIT, "more than %d dims", MAX_DIMS);
    int32_t symbol = stitch__symbol(&i->symbols, name, strlen(name));
    if (symbol < 0 || stitch__grow(i->ctx, &i->dims, &i->dim_cap, i->dim_count + 1, sizeof(*i->dims)))
        return stitch__err_nomem(i->ctx, err);
    i->dims[i->dim_count++] = (stitch__iface_dim){i->symbols.names[symbol], symbol, value};
    return STITCH_OK;
}

int stitch_interface_add_tensor(stitch_interface *i, int role, const char *name, int dtype, size_t rank,
                                const char *const *shape, stitch_error **err)
{
    if (!i)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_interface_add_tensor: the interface must not be NULL");
    stitch__iface_tensor t = {.role = role, .dtype = dtype, .rank = rank};
    stitch__env env = {0};
    int rc = check_name(i, "tensor", name, err);
    if (rc)
        return rc;
    if (role < STITCH_TENSOR_INPUT || role > STITCH_TENSOR_STATE)
        return stitch__err(i->ctx, err, STITCH_E_INVALID, "tensor %s: role %d is not known", name, role);
    if (!stitch_dtype_name(dtype))
        return stitch__err(i->ctx, err, STITCH_E_INVALID, "tensor %s: dtype %d is not known", name, dtype);
    if (rank > STITCH_MAX_RANK || (rank && !shape))
        return stitch__err(i->ctx, err, STITCH_E_INVALID, "tensor %s: rank %zu; it must be at most %d, with a shape",
                           name, rank, STITCH_MAX_RANK);
    if (i->tensor_count == MAX_TENSORS)
        return stitch__err(i->ctx, err, STITCH_E_LIMIT, "more than %d tensors", MAX_TENSORS);
    for (size_t d = 0; d < rank; d++) {
        if (!shape[d])
            return stitch__err(i->ctx, err, STITCH_E_INVALID, "tensor %s: shape[%zu] is NULL", name, d);
        rc = stitch__expr_parse(&i->arena, &i->symbols, shape[d], strlen(shape[d]), &t.shape[d], err);
        if (rc) {
            stitch__err_prefix(err, "tensor %s: shape[%zu]: ", name, d);
            return rc;
        }
    }
    t.name = stitch__arena_strdup(&i->arena, name);
    if (!t.name || stitch__grow(i->ctx, &i->tensors, &i->tensor_cap, i->tensor_count + 1, sizeof(*i->tensors)))
        return stitch__err_nomem(i->ctx, err);
    if ((rc = make_env(i, &env, err)) == STITCH_OK)
        rc = measure(i, &t, &env, err);
    stitch_free(env.values);
    if (rc == STITCH_OK && t.problem) {
        rc = stitch__err(i->ctx, err, STITCH_E_INVALID, "tensor %s: %s", name, t.problem);
        stitch_free(t.problem);
    }
    if (rc == STITCH_OK)
        i->tensors[i->tensor_count++] = t;
    return rc;
}

size_t stitch_interface_dim_count(const stitch_interface *i)
{
    return i ? i->dim_count : 0;
}

int stitch_interface_dim(const stitch_interface *i, size_t index, const char **name, int64_t *value)
{
    if (name)
        *name = NULL;
    if (value)
        *value = 0;
    if (!i || index >= i->dim_count)
        return i ? STITCH_E_NOT_FOUND : STITCH_E_INVALID;
    if (name)
        *name = i->dims[index].name;
    if (value)
        *value = i->dims[index].value;
    return STITCH_OK;
}

size_t stitch_interface_tensor_count(const stitch_interface *i)
{
    return i ? i->tensor_count : 0;
}

int stitch_interface_tensor(const stitch_interface *i, size_t index, stitch_tensor_info *out)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    if (!i || !out)
        return STITCH_E_INVALID;
    if (index >= i->tensor_count)
        return STITCH_E_NOT_FOUND;
    const stitch__iface_tensor *t = &i->tensors[index];
    info.name = t->name;
    info.role = t->role;
    info.dtype = t->dtype;
    info.rank = t->rank;
    for (size_t d = 0; d < t->rank; d++) {
        info.shape_expr[d] = t->shape[d]->text;
        info.shape[d] = t->extent[d];
    }
    info.elements = t->elements;
    info.bytes = t->bytes;
    int rc = stitch__out_struct(out, &info, sizeof(info));
    return rc ? rc : t->problem ? STITCH_E_INVALID : STITCH_OK;
}

int stitch_interface_find(const stitch_interface *i, const char *name, size_t *index)
{
    if (!i || !name || !index)
        return STITCH_E_INVALID;
    *index = 0;
    for (size_t k = 0; k < i->tensor_count; k++) {
        if (strcmp(i->tensors[k].name, name) == 0) {
            *index = k;
            return STITCH_OK;
        }
    }
    return STITCH_E_NOT_FOUND;
}

int stitch__interface_copy(const stitch_interface *from, stitch_interface **out, stitch_error **err)
{
    int rc = stitch_interface_new(from->ctx, out, err);
    for (size_t k = 0; k < from->dim_count && rc == STITCH_OK; k++)
        rc = stitch_interface_set_dim(*out, from->dims[k].name, from->dims[k].value, err);
    for (size_t k = 0; k < from->tensor_count && rc == STITCH_OK; k++) {
        const stitch__iface_tensor *t = &from->tensors[k];
        const char *shape[STITCH_MAX_RANK];
        for (size_t d = 0; d < t->rank; d++)
            shape[d] = t->shape[d]->text;
        rc = stitch_interface_add_tensor(*out, t->role, t->name, t->dtype, t->rank, shape, err);
    }
    if (rc) {
        stitch_interface_free(*out);
        *out = NULL;
    }
    return rc;
}

/* ---- as JSON: {"dims": {"B": 128}, "tensors": [{"name", "role", "dtype", "shape"}]} ---- */

static const char *const role_names[] = {"input", "weight", "output", "state"};

static json_t *tensor_json(const stitch__iface_tensor *t)
{
    json_t *shape = json_array();
    for (size_t d = 0; d < t->rank && shape; d++) {
        if (json_array_append_new(shape, json_string(t->shape[d]->text))) {
            json_decref(shape);
            return NULL;
        }
    }
    return shape ? json_pack("{ss ss ss so}", "name", t->name, "role", role_names[t->role], "dtype",
                             stitch_dtype_name(t->dtype), "shape", shape)
                 : NULL;
}

json_t *stitch__interface_json(const stitch_interface *i)
{
    json_t *root = json_object(), *dims = json_object(), *tensors = json_array();
    bool ok = root && dims && tensors;
    for (size_t k = 0; k < i->dim_count && ok; k++)
        ok = json_object_set_new(dims, i->dims[k].name, json_integer(i->dims[k].value)) == 0;
    for (size_t k = 0; k < i->tensor_count && ok; k++)
        ok = json_array_append_new(tensors, tensor_json(&i->tensors[k])) == 0;
    ok = ok && json_object_set(root, "dims", dims) == 0 && json_object_set(root, "tensors", tensors) == 0;
    json_decref(dims);
    json_decref(tensors);
    if (!ok) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

static int parse_tensor(stitch_interface *i, const json_t *v, const stitch__jpath *at, stitch_error **err)
{
    static const char *const keys[] = {"name", "role", "dtype", "shape", NULL};
    const char *name, *role, *dtype, *shape[STITCH_MAX_RANK];
    size_t r = 0;
    int rc = stitch__json_keys(i->ctx, v, at, keys, err);
    if (rc || (rc = stitch__json_string(i->ctx, v, at, "name", true, &name, err)) != STITCH_OK ||
        (rc = stitch__json_string(i->ctx, v, at, "role", true, &role, err)) != STITCH_OK ||
        (rc = stitch__json_string(i->ctx, v, at, "dtype", true, &dtype, err)) != STITCH_OK)
        return rc;
    while (r < STITCH__COUNT(role_names) && strcmp(role_names[r], role) != 0)
        r++;
    if (r == STITCH__COUNT(role_names))
        return stitch__json_err(i->ctx, at, err, "role '%.32s' is not known: input, weight, output, state", role);
    if (stitch_dtype_parse(dtype) == STITCH_DTYPE_NONE)
        return stitch__json_err(i->ctx, at, err, "dtype '%.32s' is not known", dtype);
    const json_t *list = json_object_get(v, "shape");
    size_t rank = json_array_size(list);
    if (!json_is_array(list) || rank > STITCH_MAX_RANK)
        return stitch__json_err(i->ctx, at, err, "shape must be a list of at most %d expressions", STITCH_MAX_RANK);
    for (size_t d = 0; d < rank; d++) {
        shape[d] = json_string_value(json_array_get(list, d));
        if (!shape[d])
            return stitch__json_err(i->ctx, at, err, "shape[%zu] must be a string", d);
    }
    stitch_error *why = NULL;
    rc = stitch_interface_add_tensor(i, (int)r, name, stitch_dtype_parse(dtype), rank, shape, &why);
    if (rc == STITCH_E_NOMEM)
        stitch__err_nomem(i->ctx, err);
    else if (rc)
        rc = stitch__json_err(i->ctx, at, err, "%s", stitch_error_message(why));
    stitch_error_free(why);
    return rc;
}

int stitch__interface_parse(stitch_context *ctx, const json_t *v, const stitch__jpath *at, stitch_interface **out,
                            stitch_error **err)
{
    static const char *const keys[] = {"dims", "tensors", NULL};
    stitch_interface *i = NULL;
    const char *name;
    json_t *value;

    *out = NULL;
    int rc = stitch__json_keys(ctx, v, at, keys, err);
    if (rc)
        return rc;
    json_t *dims = json_object_get(v, "dims"), *tensors = json_object_get(v, "tensors");
    stitch__jpath dims_at = {at, "dims", 0}, tensors_at = {at, "tensors", 0};
    if (!json_is_object(dims))
        return stitch__json_err(ctx, &dims_at, err, "expected an object, found %s", stitch__json_type(dims));
    if (!json_is_array(tensors))
        return stitch__json_err(ctx, &tensors_at, err, "expected a list, found %s", stitch__json_type(tensors));
    if ((rc = stitch_interface_new(ctx, &i, err)) != STITCH_OK)
        return rc;
    json_object_foreach(dims, name, value)
    {
        stitch__jpath here = {&dims_at, name, 0};
        if (!json_is_integer(value) || json_integer_value(value) < 1 || !stitch__name_valid(name))
            rc = stitch__json_err(ctx, &here, err, "a dim has a plain name and an integer of at least 1");
        else
            rc = stitch_interface_set_dim(i, name, json_integer_value(value), err);
        if (rc)
            goto out;
    }
    for (size_t k = 0; k < json_array_size(tensors); k++) {
        stitch__jpath here = {&tensors_at, NULL, k};
        if ((rc = parse_tensor(i, json_array_get(tensors, k), &here, err)) != STITCH_OK)
            goto out;
    }
    *out = i;
    i = NULL;
out:
    stitch_interface_free(i);
    return rc;
}
