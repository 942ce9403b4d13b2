/* SPDX-License-Identifier: MIT
 *
 * The launch plan's top level: let, buffers, prepare, run. Checks form only; names are resolve.c's business.
 */
#include <stdio.h>

#include "program/program.h"

enum { MAX_LETS = 1024, MAX_BUFFERS = 4096 };

int stitch__limits_resolve(const stitch_context *ctx, const stitch_program_limits *given, stitch__limits *out,
                           stitch_error **err)
{
    stitch_program_limits l = STITCH_PROGRAM_LIMITS_INIT;
    if (given) {
        int rc = stitch__options_copy(ctx, &l, sizeof(l), given, "stitch_program_limits", err);
        if (rc)
            return rc;
    }
    out->source_bytes = l.source_bytes ? l.source_bytes : UINT64_C(4) << 20;
    out->json_bytes = l.json_bytes ? l.json_bytes : UINT64_C(1) << 20;
    out->steps = l.steps ? l.steps : 4096;
    out->launches = l.launches ? l.launches : 100000;
    out->workspace_bytes = l.workspace_bytes ? l.workspace_bytes : UINT64_C(64) << 30;
    out->file_bytes = l.file_bytes ? l.file_bytes : UINT64_C(256) << 20;
    return STITCH_OK;
}

int stitch_program_limits_init(stitch_program_limits *limits, size_t struct_size)
{
    return stitch__options_init(limits, struct_size, sizeof(stitch_program_limits));
}

/* An error of the expression parser with the place in front. */
static int at_place(stitch__parser *p, const stitch__jpath *at, int rc, stitch_error *why)
{
    if (rc == STITCH_E_NOMEM)
        stitch__err_nomem(p->ctx, p->err);
    else if (rc)
        rc = stitch__json_err(p->ctx, at, p->err, "%s", stitch_error_message(why));
    stitch_error_free(why);
    return rc;
}

int stitch__parse_expr(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__expr **out)
{
    stitch_error *why = NULL;
    stitch__doc *d = p->doc;
    if (json_is_integer(v))
        return stitch__expr_constant(&d->arena, json_integer_value(v), out, p->err);
    if (!json_is_string(v))
        return stitch__json_err(p->ctx, at, p->err, "expected an integer or an expression in a string, found %s",
                                stitch__json_type(v));
    int rc = stitch__expr_parse(&d->arena, &d->symbols, json_string_value(v), json_string_length(v), out, &why);
    return at_place(p, at, rc, why);
}

int stitch__parse_member_expr(stitch__parser *p, const json_t *obj, const stitch__jpath *at, const char *key,
                              bool required, stitch__expr **out)
{
    const json_t *v = json_object_get(obj, key);
    stitch__jpath here = {at, key, 0};
    *out = NULL;
    if (v)
        return stitch__parse_expr(p, v, &here, out);
    return required ? stitch__json_err(p->ctx, at, p->err, "'%s' is missing", key) : STITCH_OK;
}

int stitch__parse_exprs(stitch__parser *p, const json_t *v, const stitch__jpath *at, size_t max, stitch__expr **out,
                        size_t *count)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return stitch__json_err(p->ctx, at, p->err, "expected a list of 1 to %zu expressions, found %s", max,
                                stitch__json_type(v));
    if (n < 1 || n > max)
        return stitch__json_err(p->ctx, at, p->err, "expected 1 to %zu expressions, found %zu", max, n);
    for (size_t i = 0; i < n; i++) {
        stitch__jpath here = {at, NULL, i};
        int rc = stitch__parse_expr(p, json_array_get(v, i), &here, &out[i]);
        if (rc)
            return rc;
    }
    *count = n;
    return STITCH_OK;
}

int stitch__parse_ref(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__ref *out)
{
    char name[256];
    out->tensor = -1;
    if (!json_is_string(v))
        return stitch__json_err(p->ctx, at, p->err, "expected \"name\" or \"name + offset\", found %s",
                                stitch__json_type(v));
    const char *text = json_string_value(v), *end;
    while (*text == ' ')
        text++;
    for (end = text; *end && *end != ' ' && *end != '\t' && *end != '+'; end++)
        ;
    size_t len = (size_t)(end - text);
    snprintf(name, sizeof(name), "%.*s", (int)(len < 255 ? len : 255), text);
    if (len > 255 || !stitch__name_valid(name))
        return stitch__json_err(
            p->ctx, at, p->err,
            "\"%.80s\": expected \"name\" or \"name + offset\"; a name has letters, digits, '_' and '.'",
            json_string_value(v));
    while (*end == ' ' || *end == '\t')
        end++;
    if (*end && *end != '+')
        return stitch__json_err(p->ctx, at, p->err, "\"%.80s\": expected '+' and an offset after the name",
                                json_string_value(v));
    out->name = stitch__arena_strdup(&p->doc->arena, name);
    if (!out->name)
        return stitch__err_nomem(p->ctx, p->err);
    if (!*end)
        return STITCH_OK;
    do
        end++; /* '+' and spaces: columns count from the offset's first character */
    while (*end == ' ');
    stitch_error *why = NULL;
    int rc = stitch__expr_parse(&p->doc->arena, &p->doc->symbols, end, strlen(end), &out->offset, &why);
    if (rc == STITCH_OK || rc == STITCH_E_NOMEM)
        return at_place(p, at, rc, why);
    rc = stitch__json_err(p->ctx, at, p->err, "offset %s", stitch_error_message(why));
    stitch_error_free(why);
    return rc;
}

int stitch__parse_member_ref(stitch__parser *p, const json_t *obj, const stitch__jpath *at, const char *key,
                             bool required, stitch__ref *out)
{
    const json_t *v = json_object_get(obj, key);
    stitch__jpath here = {at, key, 0};
    *out = (stitch__ref){NULL, NULL, -1};
    if (v)
        return stitch__parse_ref(p, v, &here, out);
    return required ? stitch__json_err(p->ctx, at, p->err, "'%s' is missing", key) : STITCH_OK;
}

static int parse_lets(stitch__parser *p, const json_t *v)
{
    stitch__doc *d = p->doc;
    stitch__jpath at = {NULL, "let", 0};
    const char *name;
    json_t *value;
    if (!v)
        return STITCH_OK;
    if (!json_is_object(v))
        return stitch__json_err(p->ctx, &at, p->err, "expected an object, found %s", stitch__json_type(v));
    if (json_object_size(v) > MAX_LETS)
        return stitch__json_err(p->ctx, &at, p->err, "%zu names, the limit is %d", json_object_size(v), MAX_LETS);
    d->lets = stitch__arena_array(&d->arena, json_object_size(v), sizeof(*d->lets));
    if (!d->lets)
        return stitch__err_nomem(p->ctx, p->err);
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        stitch__jpath here = {&at, name, 0};
        stitch__let *let = &d->lets[d->let_count];
        if (!stitch__name_valid(name))
            return stitch__json_err(p->ctx, &here, p->err,
                                    "names have letters, digits, '_' and '.', and start with a letter or '_'");
        int rc = stitch__parse_expr(p, value, &here, &let->expr);
        if (rc)
            return rc;
        let->symbol = stitch__symbol(&d->symbols, name, strlen(name));
        if (let->symbol < 0)
            return stitch__err_nomem(p->ctx, p->err);
        let->name = d->symbols.names[let->symbol];
        d->let_count++;
    }
    return STITCH_OK;
}

static int parse_buffer(stitch__parser *p, const char *name, const json_t *v, const stitch__jpath *at,
                        stitch__buffer *b)
{
    static const char *const keys[] = {"dtype", "shape", "keep", NULL};
    const char *dtype;
    int rc;
    if (!stitch__name_valid(name))
        return stitch__json_err(p->ctx, at, p->err,
                                "names have letters, digits, '_' and '.', and start with a letter or '_'");
    if ((rc = stitch__json_keys(p->ctx, v, at, keys, p->err)) != STITCH_OK ||
        (rc = stitch__json_string(p->ctx, v, at, "dtype", true, &dtype, p->err)) != STITCH_OK ||
        (rc = stitch__json_bool(p->ctx, v, at, "keep", false, &b->keep, p->err)) != STITCH_OK)
        return rc;
    b->dtype = stitch_dtype_parse(dtype);
    if (b->dtype == STITCH_DTYPE_NONE) {
        stitch__jpath here = {at, "dtype", 0};
        return stitch__json_err(
            p->ctx, &here, p->err,
            "'%.32s' is not known; there are f64 f32 tf32 f16 bf16 f8e4m3 f8e5m2 i64 i32 i16 i8 u8 bool", dtype);
    }
    stitch__jpath shape_at = {at, "shape", 0};
    const json_t *shape = json_object_get(v, "shape");
    if (!shape)
        return stitch__json_err(p->ctx, at, p->err, "'shape' is missing");
    if ((rc = stitch__parse_exprs(p, shape, &shape_at, STITCH_MAX_RANK, b->shape, &b->rank)) != STITCH_OK)
        return rc;
    b->tensor = -1;
    b->name = stitch__arena_strdup(&p->doc->arena, name);
    return b->name ? STITCH_OK : stitch__err_nomem(p->ctx, p->err);
}

static int parse_buffers(stitch__parser *p, const json_t *v)
{
    stitch__doc *d = p->doc;
    stitch__jpath at = {NULL, "buffers", 0};
    const char *name;
    json_t *value;
    if (!v)
        return STITCH_OK;
    if (!json_is_object(v))
        return stitch__json_err(p->ctx, &at, p->err,
                                "expected an object of {\"name\": {\"dtype\", \"shape\"}}, found %s",
                                stitch__json_type(v));
    if (json_object_size(v) > MAX_BUFFERS)
        return stitch__json_err(p->ctx, &at, p->err, "%zu buffers, the limit is %d", json_object_size(v), MAX_BUFFERS);
    d->buffers = stitch__arena_array(&d->arena, json_object_size(v), sizeof(*d->buffers));
    if (!d->buffers)
        return stitch__err_nomem(p->ctx, p->err);
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        stitch__jpath here = {&at, name, 0};
        int rc = parse_buffer(p, name, value, &here, &d->buffers[d->buffer_count]);
        if (rc)
            return rc;
        d->buffer_count++;
    }
    return STITCH_OK;
}

int stitch__doc_parse(stitch_context *ctx, const json_t *root, const stitch__limits *limits, stitch__doc *out,
                      stitch_error **err)
{
    static const char *const keys[] = {"stitch", "let", "buffers", "prepare", "run", NULL};
    stitch__parser p = {ctx, out, limits, err};
    int64_t version = 0;
    int rc;

    memset(out, 0, sizeof(*out));
    out->ctx = ctx;
    out->arena.ctx = ctx;
    out->symbols.arena = &out->arena;
    if ((rc = stitch__json_keys(ctx, root, NULL, keys, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, root, NULL, "stitch", true, INT64_MIN, INT64_MAX, &version, err)) != STITCH_OK)
        return rc;
    if (version != 1)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                           "stitch: the launch plan has version %" PRId64 ", this library reads version 1", version);
    const json_t *run = json_object_get(root, "run"), *prepare = json_object_get(root, "prepare");
    stitch__jpath run_at = {NULL, "run", 0}, prepare_at = {NULL, "prepare", 0};
    if (!run)
        return stitch__json_err(ctx, NULL, err, "'run' is missing");
    if ((rc = parse_lets(&p, json_object_get(root, "let"))) != STITCH_OK ||
        (rc = parse_buffers(&p, json_object_get(root, "buffers"))) != STITCH_OK)
        return rc;
    if (prepare && (rc = stitch__parse_steps(&p, prepare, &prepare_at, &out->prepare)) != STITCH_OK)
        return rc;
    return stitch__parse_steps(&p, run, &run_at, &out->run);
}

bool stitch__steps_have(const stitch__steps *list, int kind)
{
    for (size_t i = 0; i < list->count; i++) {
        const stitch__step *s = &list->items[i];
        if ((int)s->kind == kind || (s->kind == STITCH__STEP_REPEAT && stitch__steps_have(&s->u.repeat->steps, kind)))
            return true;
    }
    return false;
}

bool stitch__doc_has(const stitch__doc *doc, int kind)
{
    return stitch__steps_have(&doc->prepare, kind) || stitch__steps_have(&doc->run, kind);
}

bool stitch__doc_calls_host(const stitch__doc *doc)
{
    return stitch__doc_has(doc, STITCH__STEP_OP);
}

void stitch__doc_free(stitch__doc *doc)
{
    stitch__arena_free(&doc->arena);
    memset(doc, 0, sizeof(*doc));
}
