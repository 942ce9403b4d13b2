/* SPDX-License-Identifier: MIT
 *
 * Programs as one self-contained file, a JSON object:
 *
 *     {"stitch_program_file": 1, "hash": hex SHA-256 of source and plan, "plan": {...}, "source": "...",
 *      "interface": {"dims": {...}, "tensors": [...]},          only if the program was validated
 *      "images": [{"code": CODE, "helpers": CODE}]}             CODE: {"sha256": hex, "data": base64, "meta": {...}}
 *
 * Loading takes nothing on trust: limits, hashes, the form of every part, then validation and the kernels' signatures.
 */
#include "cuda/cuda.h"
#include "program/program.h"

enum { MAX_IMAGES = 64 };

/* ---- saving ---- */

static json_t *code_json(const stitch_context *ctx, const stitch_image *image)
{
    size_t size;
    char hex[65];
    const void *data = stitch_image_data(image, &size);
    char *text = stitch__base64_encode(ctx, data, size);
    json_t *meta = stitch__image_meta(image), *code = json_object();
    stitch__sha256_of(data, size, hex);
    bool ok = text && meta && code && json_object_set_new(code, "sha256", json_string(hex)) == 0 &&
              json_object_set_new(code, "data", json_string(text)) == 0 && json_object_set(code, "meta", meta) == 0;
    json_decref(meta);
    stitch_free(text);
    if (ok)
        return code;
    json_decref(code);
    return NULL;
}

static json_t *images_json(const stitch_program *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->compiled_count && list; i++) {
        json_t *entry = json_object();
        bool ok = entry && json_object_set_new(entry, "code", code_json(p->ctx, p->compiled[i].image)) == 0 &&
                  (!p->compiled[i].helpers ||
                   json_object_set_new(entry, "helpers", code_json(p->ctx, p->compiled[i].helpers)) == 0);
        ok = json_array_append_new(list, entry) == 0 && ok;
        if (!ok) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

int stitch_program_save_memory(const stitch_program *p, void **data, size_t *size, stitch_error **err)
{
    json_error_t e;
    if (!p || !data || !size)
        return stitch__err(p ? p->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_program_save_memory: program, data and size must not be NULL");
    *data = NULL;
    *size = 0;
    json_t *root = json_object();
    bool ok = root && json_object_set_new(root, "stitch_program_file", json_integer(1)) == 0 &&
              json_object_set_new(root, "hash", json_string(p->hash)) == 0 &&
              json_object_set_new(root, "plan", json_loads(p->json, 0, &e)) == 0 &&
              json_object_set_new(root, "source", json_string(p->source)) == 0 &&
              (!p->iface || json_object_set_new(root, "interface", stitch__interface_json(p->iface)) == 0) &&
              json_object_set_new(root, "images", images_json(p)) == 0;
    char *text = ok ? stitch__json_dump(p->ctx, root, 1) : NULL;
    json_decref(root);
    if (!text)
        return stitch__err_nomem(p->ctx, err);
    *data = text;
    *size = strlen(text);
    return STITCH_OK;
}

int stitch_program_save(const stitch_program *p, const char *path, stitch_error **err)
{
    void *data = NULL;
    size_t size = 0;
    if (!p || !path)
        return stitch__err(p ? p->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_program_save: program and path must not be NULL");
    int rc = stitch_program_save_memory(p, &data, &size, err);
    if (rc == STITCH_OK)
        rc = stitch__file_write(p->ctx, path, data, size, err);
    stitch_free(data);
    return rc;
}

/* ---- loading ---- */

static int load_code(stitch_context *ctx, const json_t *v, const stitch__jpath *at, stitch_image **out,
                     stitch_error **err)
{
    static const char *const keys[] = {"sha256", "data", "meta", NULL};
    const char *hex, *text;
    char actual[65];
    void *data = NULL;
    size_t size = 0;
    stitch_error *why = NULL;
    int rc = stitch__json_keys(ctx, v, at, keys, err);
    if (rc || (rc = stitch__json_string(ctx, v, at, "sha256", true, &hex, err)) != STITCH_OK ||
        (rc = stitch__json_string(ctx, v, at, "data", true, &text, err)) != STITCH_OK)
        return rc;
    const json_t *meta = json_object_get(v, "meta");
    if (!json_is_object(meta))
        return stitch__json_err(ctx, at, err, "'meta' must be an object");
    rc = stitch__base64_decode(ctx, text, json_string_length(json_object_get(v, "data")), &data, &size);
    if (rc)
        return rc == STITCH_E_NOMEM ? stitch__err_nomem(ctx, err)
                                    : stitch__json_err(ctx, at, err, "'data' is not base64");
    stitch__sha256_of(data, size, actual);
    if (strcmp(actual, hex) != 0)
        rc = stitch__json_err(ctx, at, err,
                              "the code does not have the stated hash: the file is damaged or was changed");
    else if ((rc = stitch__image_restore(ctx, data, size, meta, out, &why)) == STITCH_E_NOMEM)
        stitch__err_nomem(ctx, err);
    else if (rc)
        rc = stitch__json_err(ctx, at, err, "%s", stitch_error_message(why));
    stitch_error_free(why);
    stitch_free(data);
    return rc;
}

static int load_images(stitch_program *p, const json_t *list, stitch_error **err)
{
    static const char *const keys[] = {"code", "helpers", NULL};
    stitch__jpath at = {NULL, "images", 0};
    if (!json_is_array(list) || json_array_size(list) > MAX_IMAGES)
        return stitch__json_err(p->ctx, &at, err, "expected a list of at most %d images, found %s", MAX_IMAGES,
                                stitch__json_type(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        stitch__jpath here = {&at, NULL, i}, code_at = {&here, "code", 0}, helpers_at = {&here, "helpers", 0};
        stitch_image *image = NULL, *helpers = NULL;
        int rc = stitch__json_keys(p->ctx, entry, &here, keys, err);
        if (rc || (rc = load_code(p->ctx, json_object_get(entry, "code"), &code_at, &image, err)) != STITCH_OK)
            return rc;
        if (json_object_get(entry, "helpers") &&
            (rc = load_code(p->ctx, json_object_get(entry, "helpers"), &helpers_at, &helpers, err)) != STITCH_OK) {
            stitch_image_free(image);
            return rc;
        }
        if (stitch__program_compiled(p, stitch_image_arch(image), stitch_image_is_ptx(image) != 0)) {
            rc = stitch__json_err(p->ctx, &here, err, "a second image for %.32s", stitch_image_arch(image));
            stitch_image_free(image);
            stitch_image_free(helpers);
            return rc;
        }
        if (helpers && strcmp(stitch_image_arch(image), stitch_image_arch(helpers)) != 0) {
            rc = stitch__json_err(p->ctx, &here, err, "code and helpers are for different architectures");
            stitch_image_free(image);
            stitch_image_free(helpers);
            return rc;
        }
        if ((rc = stitch__program_keep(p, image, helpers, err)) != STITCH_OK)
            return rc;
        p->compiled[p->compiled_count - 1].brought = true; /* a second one was refused */
    }
    return STITCH_OK;
}

/* The plan's own limit, which a document from a model has to keep too. */
static int check_plan_size(stitch_context *ctx, const json_t *plan, const stitch__limits *limits, stitch_error **err)
{
    stitch__jpath at = {NULL, "plan", 0};
    if (!json_is_object(plan))
        return stitch__json_err(ctx, &at, err, "expected an object, found %s", stitch__json_type(plan));
    char *text = stitch__json_dump(ctx, plan, 0);
    if (!text)
        return stitch__err_nomem(ctx, err);
    size_t size = strlen(text);
    stitch_free(text);
    if (size > limits->json_bytes)
        return stitch__err(ctx, err, STITCH_E_LIMIT, "plan: %zu bytes, the limit is %" PRIu64, size,
                           limits->json_bytes);
    return STITCH_OK;
}

static int load_root(stitch_context *ctx, const json_t *root, const stitch__limits *limits, stitch_program **out,
                     stitch_error **err)
{
    static const char *const keys[] = {"stitch_program_file", "hash", "plan", "source", "interface", "images", NULL};
    const char *hash, *source;
    int64_t version;
    stitch_interface *iface = NULL;
    int rc;
    if (json_object_get(root, "stitch_task") || json_object_get(root, "stitch"))
        return stitch__err(ctx, err, STITCH_E_FORMAT, "this is %s, and not a saved program",
                           json_object_get(root, "stitch") ? "a launch plan, which goes with a source" : "a task");
    rc = stitch__json_keys(ctx, root, NULL, keys, err);
    if (rc || (rc = stitch__json_int(ctx, root, NULL, "stitch_program_file", true, INT64_MIN, INT64_MAX, &version,
                                     err)) != STITCH_OK)
        return rc;
    if (version != 1)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                           "the program file has version %" PRId64 ", this library reads version 1", version);
    if ((rc = stitch__json_string(ctx, root, NULL, "hash", true, &hash, err)) != STITCH_OK ||
        (rc = stitch__json_string(ctx, root, NULL, "source", true, &source, err)) != STITCH_OK)
        return rc;
    const json_t *plan = json_object_get(root, "plan"), *interface = json_object_get(root, "interface");
    if ((rc = check_plan_size(ctx, plan, limits, err)) != STITCH_OK ||
        (rc = stitch__program_from_json(ctx, source, plan, limits, out, err)) != STITCH_OK)
        return rc;
    if (strcmp((*out)->hash, hash) != 0)
        return stitch__err(ctx, err, STITCH_E_FORMAT,
                           "hash: source and plan do not have the stated hash: the file is damaged or was changed");
    if (interface) {
        stitch__jpath at = {NULL, "interface", 0};
        rc = stitch__interface_parse(ctx, interface, &at, &iface, err);
        if (rc == STITCH_OK)
            rc = stitch_program_validate(*out, iface, NULL, err);
        stitch_interface_free(iface);
        if (rc)
            return rc;
    }
    if ((rc = load_images(*out, json_object_get(root, "images"), err)) != STITCH_OK)
        return rc;
    for (size_t i = 0; i < (*out)->compiled_count && rc == STITCH_OK; i++)
        rc = stitch__program_signatures(*out, (*out)->compiled[i].image, err);
    return rc;
}

int stitch_program_load_memory(stitch_context *ctx, const void *data, size_t size, const stitch_program_limits *limits,
                               stitch_program **out, stitch_error **err)
{
    stitch__limits l;
    json_t *root = NULL;
    if (out)
        *out = NULL;
    if (!ctx || !data || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_program_load_memory: context, data and out must not be NULL");
    int rc = stitch__limits_resolve(ctx, limits, &l, err);
    if (rc == STITCH_OK)
        rc = stitch__json_parse(ctx, data, size, l.file_bytes, "the program file", &root, err);
    if (rc == STITCH_OK)
        rc = load_root(ctx, root, &l, out, err);
    json_decref(root);
    if (rc) {
        stitch_program_free(*out);
        *out = NULL;
        stitch__err_domain(err, STITCH_DOMAIN_PROGRAM);
    }
    return rc;
}

int stitch_program_load(stitch_context *ctx, const char *path, const stitch_program_limits *limits,
                        stitch_program **out, stitch_error **err)
{
    stitch__limits l;
    char *data = NULL;
    size_t size = 0;
    if (out)
        *out = NULL;
    if (!ctx || !path || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_program_load: context, path and out must not be NULL");
    int rc = stitch__limits_resolve(ctx, limits, &l, err);
    if (rc == STITCH_OK)
        rc = stitch__file_read(ctx, path, l.file_bytes, &data, &size, err);
    if (rc)
        return rc;
    rc = stitch_program_load_memory(ctx, data, size, limits, out, err);
    if (rc)
        stitch__err_prefix(err, "%.512s: ", path);
    stitch_free(data);
    return rc;
}
