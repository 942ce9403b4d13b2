/* SPDX-License-Identifier: MIT
 *
 * Task documents (docs/task-format.md). Everything goes through the setters; this file reads JSON and names the place
 * of each error.
 */
#include "task/task.h"

#include <stdio.h>
#include <sys/stat.h>

#define TASK_BYTES           (16u << 20)
#define SOURCE_BYTES         (1u << 20)
#define PROGRAM_SOURCE_BYTES (4u << 20)
#define PROGRAM_PLAN_BYTES   (1u << 20)

typedef struct reader {
    stitch_context *ctx;
    stitch_task *task;
    const char *base; /* NULL: no files */
    bool base_is_folder;
} reader;

/* Puts the place in front of an error that a setter made. */
static int placed(const stitch__jpath *at, int rc, stitch_error **err)
{
    if (rc && rc != STITCH_E_NOMEM) {
        char place[256];
        stitch__jpath_print(at, place, sizeof(place));
        stitch__err_prefix(err, "%s: ", place);
    }
    return rc;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int resolve(reader *r, const char *path, const stitch__jpath *at, char **out, stitch_error **err)
{
    *out = NULL;
    if (!*path)
        return stitch__json_err(r->ctx, at, err, "is an empty path");
    if (!r->base)
        return stitch__json_err(
            r->ctx, at, err, "names the file %.200s, but this document may not name files (no base was given)", path);
    *out = r->base_is_folder && path[0] != '/' ? stitch__path_join(r->ctx, r->base, path)
                                               : stitch__path_beside(r->ctx, r->base, path);
    return *out ? STITCH_OK : stitch__err_nomem(r->ctx, err);
}

/* Text of a file that a document names: UTF-8 without NUL. */
static int read_text(reader *r, const char *path, uint64_t limit, const stitch__jpath *at, char **out,
                     stitch_error **err)
{
    char *full = NULL, *data = NULL;
    size_t len = 0;
    int rc = resolve(r, path, at, &full, err);

    *out = NULL;
    if (rc)
        return rc;
    rc = placed(at, stitch__file_read(r->ctx, full, limit, &data, &len, err), err);
    if (!rc && (memchr(data, 0, len) || !stitch__utf8_valid(data, len)))
        rc = stitch__json_err(r->ctx, at, err, "%.200s is not UTF-8 text", path);
    stitch_free(full);
    if (rc)
        stitch_free(data);
    else
        *out = data;
    return rc;
}

static int parse_source(reader *r, const json_t *root, stitch_error **err)
{
    static const char *const keys[] = {"file", NULL};
    const stitch__jpath at = {NULL, "source", 0}, file_at = {&at, "file", 0};
    const json_t *v = json_object_get(root, "source");
    const char *path = NULL;
    char *text = NULL;
    int rc;

    if (!v)
        return STITCH_OK;
    if (json_is_string(v))
        return placed(&at, stitch_task_set_text(r->task, NULL, json_string_value(v), err), err);
    if (!json_is_object(v))
        return stitch__json_err(r->ctx, &at, err, "must be text or {\"file\": path}, got %s", stitch__json_type(v));
    rc = stitch__json_keys(r->ctx, v, &at, keys, err);
    if (!rc)
        rc = stitch__json_string(r->ctx, v, &at, "file", true, &path, err);
    if (!rc)
        rc = read_text(r, path, SOURCE_BYTES, &file_at, &text, err);
    if (!rc)
        rc = placed(&file_at, stitch_task_set_text(r->task, NULL, text, err), err);
    stitch_free(text);
    return rc;
}

/* ---- dims and tensors -------------------------------------------------------------------------------------------- */

static int parse_dims(reader *r, const json_t *root, const char *key, stitch_error **err)
{
    const stitch__jpath at = {NULL, key, 0};
    const json_t *dims = json_object_get(root, key);
    bool reduced = strcmp(key, "reduced_dims") == 0;
    const char *name;
    json_t *v;

    if (!dims)
        return STITCH_OK;
    if (!json_is_object(dims))
        return stitch__json_err(r->ctx, &at, err, "must be an object of integers, got %s", stitch__json_type(dims));
    json_object_foreach((json_t *)dims, name, v)
    {
        const stitch__jpath dim_at = {&at, name, 0};
        int rc;
        if (!json_is_integer(v))
            return stitch__json_err(r->ctx, &dim_at, err, "must be an integer, got %s", stitch__json_type(v));
        rc = reduced ? stitch_task_set_reduced_dim(r->task, name, json_integer_value(v), err)
                     : stitch_task_set_dim(r->task, name, json_integer_value(v), err);
        if (rc)
            return placed(&dim_at, rc, err);
    }
    return STITCH_OK;
}

static int parse_dist(reader *r, const json_t *v, const stitch__jpath *at, stitch_dist *out, stitch_error **err)
{
    const char *name = json_string_value(v);
    const json_t *params = NULL;
    double values[2] = {0, 0};
    size_t count = 0;

    memset(out, 0, sizeof(*out));
    if (json_is_object(v) && json_object_size(v) == 1) {
        void *it = json_object_iter((json_t *)v);
        name = json_object_iter_key(it);
        params = json_object_iter_value(it);
    }
    if (!name)
        return stitch__json_err(r->ctx, at, err,
                                "must be a name (\"normal\") or an object with one name ({\"normal\": [0, 1]}), got %s",
                                json_is_object(v) ? "an object with another number of members" : stitch__json_type(v));
    out->kind = stitch__dist_parse(name);
    if (out->kind == STITCH_DIST_NONE)
        return stitch__json_err(
            r->ctx, at, err,
            "unknown distribution \"%.40s\"; known are normal, uniform, constant, randint, bernoulli, tril "
            "and arange",
            name);
    if (json_is_number(params)) {
        values[count++] = json_number_value(params);
    } else if (json_is_array(params) && json_array_size(params) <= 2) {
        for (size_t i = 0; i < json_array_size(params); i++) {
            const stitch__jpath list_at = {at, name, 0}, value_at = {&list_at, NULL, i};
            if (!json_is_number(json_array_get(params, i)))
                return stitch__json_err(r->ctx, &value_at, err, "must be a number, got %s",
                                        stitch__json_type(json_array_get(params, i)));
            values[count++] = json_number_value(json_array_get(params, i));
        }
    } else if (params) {
        const stitch__jpath list_at = {at, name, 0};
        return stitch__json_err(r->ctx, &list_at, err, "must be a number or an array of at most two numbers");
    }
    bool pair = out->kind == STITCH_DIST_NORMAL || out->kind == STITCH_DIST_UNIFORM ||
                out->kind == STITCH_DIST_RANDINT || out->kind == STITCH_DIST_ARANGE;
    size_t need = out->kind == STITCH_DIST_TRIL ? 0 : pair ? 2 : 1;
    bool may_lack =
        out->kind != STITCH_DIST_RANDINT && out->kind != STITCH_DIST_CONSTANT && out->kind != STITCH_DIST_BERNOULLI;
    if (count != need && !(count == 0 && may_lack))
        return stitch__json_err(r->ctx, at, err, "%s takes %zu parameter%s, got %zu", name, need, need == 1 ? "" : "s",
                                count);
    /* Written out zeros are meant, but a struct of zeros means the default. */
    if (count == 2 && values[0] == 0 && values[1] == 0)
        return stitch__json_err(r->ctx, at, err, "%s with parameters 0 and 0 is no distribution; {\"constant\": 0} is",
                                name);
    out->a = values[0];
    out->b = values[1];
    return STITCH_OK;
}

static int parse_tensor(reader *r, const json_t *v, const stitch__jpath *at, int role, stitch_error **err)
{
    static const char *const keys[] = {"name", "dtype", "shape", "dist", NULL};
    static const char *const plain_keys[] = {"name", "dtype", "shape", NULL};
    bool drawn = role == STITCH_TENSOR_INPUT || role == STITCH_TENSOR_WEIGHT;
    const stitch__jpath dtype_at = {at, "dtype", 0}, shape_at = {at, "shape", 0}, dist_at = {at, "dist", 0};
    const char *name = NULL, *dtype_name = NULL, *shape[STITCH_MAX_RANK];
    char numbers[STITCH_MAX_RANK][24];
    const json_t *list, *dist_json;
    stitch_dist dist;
    size_t rank;
    int dtype, rc = stitch__json_keys(r->ctx, v, at, drawn ? keys : plain_keys, err);

    if (!rc)
        rc = stitch__json_string(r->ctx, v, at, "name", true, &name, err);
    if (!rc)
        rc = stitch__json_string(r->ctx, v, at, "dtype", true, &dtype_name, err);
    if (rc)
        return rc;
    dtype = stitch_dtype_parse(dtype_name);
    if (dtype == STITCH_DTYPE_NONE)
        return stitch__json_err(
            r->ctx, &dtype_at, err,
            "unknown dtype \"%.40s\"; known are f64 f32 tf32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 bool",
            dtype_name);
    list = json_object_get(v, "shape");
    if (!json_is_array(list))
        return stitch__json_err(r->ctx, &shape_at, err, "must be an array of expressions, got %s",
                                stitch__json_type(list));
    rank = json_array_size(list);
    if (rank > STITCH_MAX_RANK)
        return stitch__json_err(r->ctx, &shape_at, err, "has %zu dimensions, at most %d are supported", rank,
                                STITCH_MAX_RANK);
    for (size_t k = 0; k < rank; k++) {
        const stitch__jpath dim_at = {&shape_at, NULL, k};
        const json_t *e = json_array_get(list, k);
        if (json_is_integer(e)) {
            snprintf(numbers[k], sizeof(numbers[k]), "%" JSON_INTEGER_FORMAT, json_integer_value(e));
            shape[k] = numbers[k];
        } else if (json_is_string(e)) {
            shape[k] = json_string_value(e);
        } else {
            return stitch__json_err(r->ctx, &dim_at, err, "must be an integer or an expression, got %s",
                                    stitch__json_type(e));
        }
    }
    dist_json = json_object_get(v, "dist");
    if (dist_json) {
        rc = parse_dist(r, dist_json, &dist_at, &dist, err);
        if (rc)
            return rc;
    }
    rc = stitch_task_add_tensor(r->task, role, name, dtype, rank, shape, dist_json ? &dist : NULL, err);
    return placed(at, rc, err);
}

static int parse_tensors(reader *r, const json_t *root, const char *key, int role, bool required, stitch_error **err)
{
    const stitch__jpath at = {NULL, key, 0};
    const json_t *list = json_object_get(root, key);
    int rc = STITCH_OK;

    if (!list && !required)
        return STITCH_OK;
    if (!json_is_array(list) || (required && !json_array_size(list)))
        return stitch__json_err(r->ctx, &at, err, "must be an array of %stensors, got %s",
                                required ? "at least one of the " : "",
                                json_is_array(list) ? "an empty one" : stitch__json_type(list));
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        const stitch__jpath item_at = {&at, NULL, i};
        rc = parse_tensor(r, json_array_get(list, i), &item_at, role, err);
    }
    return rc;
}

/* ---- programs, reference, baselines ------------------------------------------------------------------------------ */

/* "ref.cu", or {"text": "..."}; plans may also be the object itself. */
static int program_part(reader *r, const json_t *v, const stitch__jpath *at, uint64_t limit, bool plan, char **out,
                        stitch_error **err)
{
    static const char *const keys[] = {"text", NULL};
    const char *text = NULL;
    int rc;

    *out = NULL;
    if (json_is_string(v))
        return read_text(r, json_string_value(v), limit, at, out, err);
    if (!json_is_object(v))
        return stitch__json_err(r->ctx, at, err, "must be a path or %s, got %s",
                                plan ? "the launch plan" : "{\"text\": source}", stitch__json_type(v));
    if (plan) {
        *out = stitch__json_dump(r->ctx, v, 2);
    } else {
        rc = stitch__json_keys(r->ctx, v, at, keys, err);
        if (!rc)
            rc = stitch__json_string(r->ctx, v, at, "text", true, &text, err);
        if (rc)
            return rc;
        *out = stitch__strdup(r->ctx, text);
    }
    return *out ? STITCH_OK : stitch__err_nomem(r->ctx, err);
}

static int parse_program(reader *r, const json_t *v, const stitch__jpath *at, stitch_program **out, stitch_error **err)
{
    static const char *const keys[] = {"source", "plan", NULL};
    const stitch__jpath source_at = {at, "source", 0}, plan_at = {at, "plan", 0};
    char *path = NULL, *source = NULL, *plan = NULL;
    int rc;

    *out = NULL;
    if (json_is_string(v)) {
        rc = resolve(r, json_string_value(v), at, &path, err);
        if (!rc)
            rc = placed(at, stitch_program_load(r->ctx, path, NULL, out, err), err);
        stitch_free(path);
        return rc;
    }
    if (!json_is_object(v))
        return stitch__json_err(r->ctx, at, err,
                                "must be the path of a saved program or {\"source\": path, \"plan\": path}, got %s",
                                stitch__json_type(v));
    rc = stitch__json_keys(r->ctx, v, at, keys, err);
    if (!rc)
        rc = program_part(r, json_object_get(v, "source"), &source_at, PROGRAM_SOURCE_BYTES, false, &source, err);
    if (!rc)
        rc = program_part(r, json_object_get(v, "plan"), &plan_at, PROGRAM_PLAN_BYTES, true, &plan, err);
    if (!rc)
        rc = placed(at, stitch_program_parse(r->ctx, source, plan, NULL, out, err), err);
    stitch_free(source);
    stitch_free(plan);
    return rc;
}

static int parse_dtype(reader *r, const json_t *v, const stitch__jpath *at, int *dtype, stitch_error **err)
{
    const stitch__jpath dtype_at = {at, "outputs", 0};
    const char *name = NULL;
    int rc = stitch__json_string(r->ctx, v, at, "outputs", false, &name, err);

    *dtype = STITCH_DTYPE_NONE;
    if (rc || !name)
        return rc;
    *dtype = stitch_dtype_parse(name);
    if (!stitch__dtype_is_float(*dtype))
        return stitch__json_err(r->ctx, &dtype_at, err, "must be a floating dtype (f64), got \"%.40s\"", name);
    return STITCH_OK;
}

static int parse_reference(reader *r, const json_t *root, stitch_error **err)
{
    static const char *const program_keys[] = {"program", "outputs", NULL}, *const tensor_keys[] = {"tensors", NULL};
    const stitch__jpath at = {NULL, "reference", 0}, program_at = {&at, "program", 0}, tensors_at = {&at, "tensors", 0};
    const json_t *v = json_object_get(root, "reference");
    stitch_program *program = NULL;
    const char *path = NULL;
    char *full = NULL;
    int dtype, rc;

    if (!v)
        return STITCH_OK; /* the host sets one */
    if (json_object_get(v, "tensors")) {
        rc = stitch__json_keys(r->ctx, v, &at, tensor_keys, err);
        if (!rc)
            rc = stitch__json_string(r->ctx, v, &at, "tensors", true, &path, err);
        if (!rc)
            rc = resolve(r, path, &tensors_at, &full, err);
        if (!rc)
            rc = placed(&tensors_at, stitch_task_set_reference_tensors(r->task, full, err), err);
        stitch_free(full);
        return rc;
    }
    rc = stitch__json_keys(r->ctx, v, &at, program_keys, err);
    if (rc)
        return rc;
    if (!json_object_get(v, "program"))
        return stitch__json_err(r->ctx, &at, err, "needs \"program\" or \"tensors\"");
    rc = parse_dtype(r, v, &at, &dtype, err);
    if (!rc)
        rc = parse_program(r, json_object_get(v, "program"), &program_at, &program, err);
    if (!rc)
        rc = placed(&at, stitch_task_set_reference_program(r->task, program, dtype, err), err);
    if (rc)
        stitch_program_free(program);
    return rc;
}

static int parse_precision(reader *r, const json_t *v, const stitch__jpath *at, int *out, stitch_error **err)
{
    const stitch__jpath precision_at = {at, "precision", 0};
    const char *name = NULL;
    int rc = stitch__json_string(r->ctx, v, at, "precision", false, &name, err);

    *out = STITCH_PRECISION_ANY;
    if (rc || !name)
        return rc;
    *out = stitch__precision_parse(name);
    if (*out < 0)
        return stitch__json_err(r->ctx, &precision_at, err,
                                "must be \"any\", \"f32\", \"tf32\" or \"f16\", got \"%.40s\"", name);
    return STITCH_OK;
}

static int parse_baseline(reader *r, const json_t *v, const stitch__jpath *at, stitch_error **err)
{
    static const char *const keys[] = {"name", "precision", "program", NULL};
    const stitch__jpath program_at = {at, "program", 0};
    stitch_program *program = NULL;
    const char *name = NULL;
    int precision, rc = stitch__json_keys(r->ctx, v, at, keys, err);

    if (!rc)
        rc = stitch__json_string(r->ctx, v, at, "name", true, &name, err);
    if (!rc)
        rc = parse_precision(r, v, at, &precision, err);
    if (rc)
        return rc;
    if (!json_object_get(v, "program"))
        return stitch__json_err(r->ctx, &program_at, err, "is missing");
    rc = parse_program(r, json_object_get(v, "program"), &program_at, &program, err);
    if (!rc)
        rc = placed(at, stitch_task_add_baseline_program(r->task, name, precision, program, err), err);
    if (rc)
        stitch_program_free(program);
    return rc;
}

static int parse_baselines(reader *r, const json_t *root, stitch_error **err)
{
    const stitch__jpath at = {NULL, "baselines", 0};
    const json_t *list = json_object_get(root, "baselines");
    int rc = STITCH_OK;

    if (!list)
        return STITCH_OK;
    if (!json_is_array(list))
        return stitch__json_err(r->ctx, &at, err, "must be an array, got %s", stitch__json_type(list));
    if (json_array_size(list) > STITCH__TASK_MAX_BASELINES) /* before any of their files is read */
        return stitch__json_err(r->ctx, &at, err, "has %zu members, at most %d are allowed", json_array_size(list),
                                STITCH__TASK_MAX_BASELINES);
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        const stitch__jpath item_at = {&at, NULL, i};
        rc = parse_baseline(r, json_array_get(list, i), &item_at, err);
    }
    return rc;
}

/* ---- the document ------------------------------------------------------------------------------------------------ */

static int parse_head(reader *r, const json_t *root, stitch_error **err)
{
    static const char *const keys[] = {"stitch_task", "name",    "description",  "source",    "dims",    "reduced_dims",
                                       "inputs",      "weights", "weights_file", "states",    "outputs", "tolerance",
                                       "precision",   "flops",   "reference",    "baselines", NULL};
    const stitch__jpath name_at = {NULL, "name", 0};
    const char *name = NULL, *description = NULL;
    int64_t version = 0;
    int rc;

    if (json_object_get(root, "stitch_program_file"))
        return stitch__err(r->ctx, err, STITCH_E_FORMAT, "this is a saved program, and not a task");
    rc = stitch__json_keys(r->ctx, root, NULL, keys, err);
    if (!rc)
        rc = stitch__json_int(r->ctx, root, NULL, "stitch_task", true, 1, 1, &version, err);
    if (!rc)
        rc = stitch__json_string(r->ctx, root, NULL, "name", true, &name, err);
    if (!rc)
        rc = stitch__json_string(r->ctx, root, NULL, "description", false, &description, err);
    if (!rc)
        rc = placed(&name_at, stitch_task_new(r->ctx, name, &r->task, err), err);
    if (!rc && description)
        rc = stitch_task_set_text(r->task, description, NULL, err);
    return rc;
}

static int parse_tolerance(reader *r, const json_t *root, stitch_error **err)
{
    static const char *const keys[] = {"atol", "rtol", NULL};
    const stitch__jpath at = {NULL, "tolerance", 0};
    const json_t *v = json_object_get(root, "tolerance");
    double atol = 1e-4, rtol = 1e-4;
    int rc;

    if (!v)
        return STITCH_OK;
    rc = stitch__json_keys(r->ctx, v, &at, keys, err);
    if (!rc)
        rc = stitch__json_number(r->ctx, v, &at, "atol", false, &atol, err);
    if (!rc)
        rc = stitch__json_number(r->ctx, v, &at, "rtol", false, &rtol, err);
    return rc ? rc : placed(&at, stitch_task_set_tolerance(r->task, atol, rtol, err), err);
}

static int parse_document(reader *r, const json_t *root, stitch_error **err)
{
    const stitch__jpath weights_at = {NULL, "weights_file", 0};
    const char *weights = NULL, *flops = NULL;
    char *path = NULL;
    int precision, rc = parse_head(r, root, err);

    if (!rc)
        rc = parse_source(r, root, err);
    if (!rc && !json_object_get(root, "dims"))
        rc = stitch__json_err(r->ctx, &(stitch__jpath){NULL, "dims", 0}, err, "is missing (it may be empty: {})");
    if (!rc)
        rc = parse_dims(r, root, "dims", err);
    if (!rc)
        rc = parse_dims(r, root, "reduced_dims", err);
    if (!rc)
        rc = parse_tensors(r, root, "inputs", STITCH_TENSOR_INPUT, false, err);
    if (!rc)
        rc = parse_tensors(r, root, "weights", STITCH_TENSOR_WEIGHT, false, err);
    if (!rc)
        rc = parse_tensors(r, root, "states", STITCH_TENSOR_STATE, false, err);
    if (!rc)
        rc = parse_tensors(r, root, "outputs", STITCH_TENSOR_OUTPUT, true, err);
    if (!rc)
        rc = parse_tolerance(r, root, err);
    if (!rc)
        rc = parse_precision(r, root, NULL, &precision, err);
    if (!rc)
        rc = stitch_task_set_precision(r->task, precision, err);
    if (!rc)
        rc = stitch__json_string(r->ctx, root, NULL, "flops", false, &flops, err);
    if (!rc && flops)
        rc = placed(&(stitch__jpath){NULL, "flops", 0}, stitch_task_set_flops(r->task, flops, err), err);
    if (!rc)
        rc = stitch__json_string(r->ctx, root, NULL, "weights_file", false, &weights, err);
    if (!rc && weights) {
        rc = resolve(r, weights, &weights_at, &path, err);
        if (!rc)
            rc = placed(&weights_at, stitch_task_set_weights_file(r->task, path, err), err);
        stitch_free(path);
    }
    if (!rc)
        rc = parse_reference(r, root, err);
    if (!rc)
        rc = parse_baselines(r, root, err);
    if (!rc && stitch__task_has_reduced(r->task)) {
        stitch_interface *reduced = NULL;
        rc = placed(&(stitch__jpath){NULL, "reduced_dims", 0},
                    stitch__task_interface(r->task, true, STITCH_DTYPE_NONE, &reduced, err), err);
        stitch_interface_free(reduced);
    }
    /* A document is complete but for a reference that the host may set. */
    if (!rc && r->task->reference.kind != STITCH__COMPUTE_NONE)
        rc = stitch__task_check(r->task, err);
    return rc;
}

static int parse_text(stitch_context *ctx, const char *json, size_t len, const char *base, const char *what,
                      stitch_task **out, stitch_error **err)
{
    reader r = {.ctx = ctx, .base = base};
    json_t *root = NULL;
    struct stat info;
    int rc = stitch__json_parse(ctx, json, len, TASK_BYTES, what, &root, err);

    r.base_is_folder = base && stat(base, &info) == 0 && S_ISDIR(info.st_mode);
    if (!rc) {
        rc = parse_document(&r, root, err);
        if (rc) {
            stitch__err_prefix(err, "%s: ", what);
            stitch__err_domain(err, STITCH_DOMAIN_TASK);
        }
    }
    json_decref(root);
    if (rc)
        stitch_task_free(r.task);
    else
        *out = r.task;
    return rc;
}

int stitch_task_parse(stitch_context *ctx, const char *json, const char *base, stitch_task **out, stitch_error **err)
{
    if (out)
        *out = NULL;
    if (!ctx || !json || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_task_parse: needs a context, text and room for the result");
    return parse_text(ctx, json, strlen(json), base, "task", out, err);
}

int stitch_task_load(stitch_context *ctx, const char *path, stitch_task **out, stitch_error **err)
{
    char *text = NULL, what[300];
    size_t len = 0;
    int rc;

    if (out)
        *out = NULL;
    if (!ctx || !path || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_task_load: needs a context, a path and room for the result");
    rc = stitch__file_read(ctx, path, TASK_BYTES, &text, &len, err);
    if (rc)
        return rc;
    snprintf(what, sizeof(what), "task file %.250s", path);
    rc = parse_text(ctx, text, len, path, what, out, err);
    stitch_free(text);
    return rc;
}
