/* SPDX-License-Identifier: MIT
 *
 * Steps of a launch plan, but for the arguments of kernels and for products.
 */
#include <math.h>
#include <stdio.h>

#include "program/program.h"

enum { MAX_AFTER = 256, MAX_NAME = 512, MAX_ATTRS = 64 << 10 };

static const char *const kinds[] = {"kernel", "gemm", "copy", "fill", "repeat", "op", "conv"};

static void *arena_zeroed(stitch__parser *p, size_t size, int *rc)
{
    void *ptr = stitch__arena_alloc(&p->doc->arena, size);
    *rc = ptr ? STITCH_OK : stitch__err_nomem(p->ctx, p->err);
    return ptr;
}

/* A kernel or template instance: "ln<256, __half>", "ns::f". What the compiler makes of it is its own business, but it
 * must be one name and no more. */
static bool kernel_name_valid(const char *s)
{
    size_t len = strlen(s), angle = 0;
    if (!len || len > MAX_NAME ||
        !((s[0] >= 'a' && s[0] <= 'z') || (s[0] >= 'A' && s[0] <= 'Z') || s[0] == '_' || s[0] == ':'))
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
        if (c == '<' && i && s[i - 1] != '<')
            angle++;
        else if (c == '>' && angle)
            angle--;
        else if (!word && !(angle && strchr(" ,*&-+()'.", c)))
            return false;
    }
    return angle == 0 && (s[len - 1] != ':');
}

static int parse_kernel(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    static const char *const keys[] = {"kernel",      "grid", "block", "shared", "args", "cluster",
                                       "cooperative", "pdl",  "id",    "after",  NULL};
    int rc;
    stitch__kernel_step *k = arena_zeroed(p, sizeof(*k), &rc);
    const char *name;
    if (!k)
        return rc;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "kernel", true, &name, p->err));
    if (!kernel_name_valid(name)) {
        stitch__jpath here = {at, "kernel", 0};
        return stitch__json_err(p->ctx, &here, p->err,
                                "\"%.80s\" is no kernel name; expected \"name\" or \"name<256, float>\"", name);
    }
    struct {
        const char *key;
        stitch__expr **list;
        size_t *rank;
        bool required;
    } sizes[] = {{"grid", k->grid, &k->grid_rank, true},
                 {"block", k->block, &k->block_rank, true},
                 {"cluster", k->cluster, &k->cluster_rank, false}};
    for (size_t i = 0; i < STITCH__COUNT(sizes); i++) {
        const json_t *list = json_object_get(v, sizes[i].key);
        stitch__jpath here = {at, sizes[i].key, 0};
        if (list)
            STITCH__TRY(stitch__parse_exprs(p, list, &here, 3, sizes[i].list, sizes[i].rank));
        else if (sizes[i].required)
            return stitch__json_err(p->ctx, at, p->err, "'%s' is missing", sizes[i].key);
    }
    STITCH__TRY(stitch__parse_member_expr(p, v, at, "shared", false, &k->shared));
    STITCH__TRY(stitch__json_bool(p->ctx, v, at, "cooperative", false, &k->cooperative, p->err));
    STITCH__TRY(stitch__json_bool(p->ctx, v, at, "pdl", false, &k->pdl, p->err));
    const json_t *args = json_object_get(v, "args");
    stitch__jpath args_at = {at, "args", 0};
    if (!args)
        return stitch__json_err(p->ctx, at, p->err, "'args' is missing; a kernel without parameters has []");
    STITCH__TRY(stitch__parse_args(p, args, &args_at, &k->args, &k->arg_count));
    k->name = stitch__arena_strdup(&p->doc->arena, name);
    out->kind = STITCH__STEP_KERNEL;
    out->u.kernel = k;
    return k->name ? STITCH_OK : stitch__err_nomem(p->ctx, p->err);
}

static int parse_copy(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    static const char *const keys[] = {"from", "to", "count", NULL};
    int rc;
    stitch__copy_step *c = arena_zeroed(p, sizeof(*c), &rc);
    if (!c)
        return rc;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "from", true, &c->from));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "to", true, &c->to));
    STITCH__TRY(stitch__parse_member_expr(p, v, at, "count", false, &c->count));
    out->kind = STITCH__STEP_COPY;
    out->u.copy = c;
    return STITCH_OK;
}

static int parse_fill(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    static const char *const keys[] = {"buffer", "value", "count", NULL};
    int rc;
    stitch__fill_step *f = arena_zeroed(p, sizeof(*f), &rc);
    if (!f)
        return rc;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "buffer", true, &f->buffer));
    STITCH__TRY(stitch__json_number(p->ctx, v, at, "value", true, &f->value, p->err));
    const json_t *value = json_object_get(v, "value");
    f->is_real = json_is_real(value);
    f->integer = f->is_real ? 0 : json_integer_value(value);
    STITCH__TRY(stitch__parse_member_expr(p, v, at, "count", false, &f->count));
    out->kind = STITCH__STEP_FILL;
    out->u.fill = f;
    return STITCH_OK;
}

static int parse_repeat(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    static const char *const keys[] = {"var", "count", "steps", NULL};
    int rc;
    stitch__repeat_step *r = arena_zeroed(p, sizeof(*r), &rc);
    const char *var;
    if (!r)
        return rc;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "var", true, &var, p->err));
    if (!stitch__name_valid(var)) {
        stitch__jpath here = {at, "var", 0};
        return stitch__json_err(p->ctx, &here, p->err, "\"%.64s\" is no name", var);
    }
    STITCH__TRY(stitch__parse_member_expr(p, v, at, "count", true, &r->count));
    const json_t *steps = json_object_get(v, "steps");
    stitch__jpath steps_at = {at, "steps", 0};
    if (!steps)
        return stitch__json_err(p->ctx, at, p->err, "'steps' is missing");
    STITCH__TRY(stitch__parse_steps(p, steps, &steps_at, &r->steps));
    r->symbol = stitch__symbol(&p->doc->symbols, var, strlen(var));
    if (r->symbol < 0)
        return stitch__err_nomem(p->ctx, p->err);
    r->var = p->doc->symbols.names[r->symbol];
    out->kind = STITCH__STEP_REPEAT;
    out->u.repeat = r;
    return STITCH_OK;
}

static int parse_op(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    static const char *const keys[] = {"name", "args", "attrs", NULL};
    int rc;
    stitch__op_step *o = arena_zeroed(p, sizeof(*o), &rc);
    const char *name;
    if (!o)
        return rc;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "name", true, &name, p->err));
    if (!stitch__name_valid(name)) {
        stitch__jpath here = {at, "name", 0};
        return stitch__json_err(p->ctx, &here, p->err, "\"%.64s\" is no name of an operator", name);
    }
    const json_t *args = json_object_get(v, "args"), *attrs = json_object_get(v, "attrs");
    stitch__jpath args_at = {at, "args", 0}, attrs_at = {at, "attrs", 0};
    if (!args)
        return stitch__json_err(p->ctx, at, p->err, "'args' is missing");
    STITCH__TRY(stitch__parse_args(p, args, &args_at, &o->args, &o->arg_count));
    for (size_t i = 0; i < o->arg_count; i++) {
        stitch__jpath here = {&args_at, NULL, i};
        if (o->args[i].kind == STITCH__ARG_TENSOR_MAP)
            return stitch__json_err(p->ctx, &here, p->err, "operators take pointers and scalars, no tensor maps");
    }
    if (attrs && !json_is_object(attrs))
        return stitch__json_err(p->ctx, &attrs_at, p->err, "expected an object, found %s", stitch__json_type(attrs));
    char *text = attrs ? stitch__json_dump(p->ctx, attrs, 0) : stitch__strdup(p->ctx, "{}");
    o->attrs = text ? stitch__arena_strdup(&p->doc->arena, text) : NULL;
    bool large = text && strlen(text) > MAX_ATTRS;
    stitch_free(text);
    if (large)
        return stitch__json_err(p->ctx, &attrs_at, p->err, "more than %d bytes", MAX_ATTRS);
    o->name = stitch__arena_strdup(&p->doc->arena, name);
    out->kind = STITCH__STEP_OP;
    out->u.op = o;
    return o->attrs && o->name ? STITCH_OK : stitch__err_nomem(p->ctx, p->err);
}

/* Convolutions are read, so that mistakes in them are found, and then refused: nothing here runs them. */
static int parse_conv(stitch__parser *p, const json_t *v, const stitch__jpath *at)
{
    static const char *const keys[] = {"x",       "w",        "y",       "bias",       "stride",
                                       "pad",     "dilation", "groups",  "layout",     "epilogue",
                                       "compute", "shape_x",  "shape_y", "transposed", NULL};
    static const char *const lists[] = {"stride", "pad", "dilation", "shape_x", "shape_y"};
    stitch__ref ref;
    stitch__expr *exprs[STITCH_MAX_RANK];
    bool transposed;
    const char *word;
    size_t count;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "x", true, &ref));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "w", true, &ref));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "y", true, &ref));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "bias", false, &ref));
    STITCH__TRY(stitch__parse_member_expr(p, v, at, "groups", false, &exprs[0]));
    for (size_t i = 0; i < STITCH__COUNT(lists); i++) {
        const json_t *list = json_object_get(v, lists[i]);
        stitch__jpath here = {at, lists[i], 0};
        if (list)
            STITCH__TRY(stitch__parse_exprs(p, list, &here, STITCH_MAX_RANK, exprs, &count));
    }
    STITCH__TRY(stitch__json_bool(p->ctx, v, at, "transposed", false, &transposed, p->err));
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "layout", false, &word, p->err));
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "epilogue", false, &word, p->err));
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "compute", false, &word, p->err));
    char place[256];
    stitch__jpath_print(at, place, sizeof(place));
    return stitch__err(
        p->ctx, p->err, STITCH_E_UNSUPPORTED,
        "%s: conv needs cuDNN: not in this version; write the convolution as a kernel, or as im2col and a gemm", place);
}

static int parse_after(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "id", false, &out->id, p->err));
    if (out->id) {
        if (!stitch__name_valid(out->id)) {
            stitch__jpath here = {at, "id", 0};
            return stitch__json_err(p->ctx, &here, p->err, "\"%.64s\" is no name", out->id);
        }
        out->id = stitch__arena_strdup(&p->doc->arena, out->id);
        if (!out->id)
            return stitch__err_nomem(p->ctx, p->err);
    }
    const json_t *after = json_object_get(v, "after");
    stitch__jpath after_at = {at, "after", 0};
    if (!after)
        return STITCH_OK;
    size_t n = json_array_size(after);
    if (!json_is_array(after) || n > MAX_AFTER)
        return stitch__json_err(p->ctx, &after_at, p->err, "expected a list of at most %d ids, found %s", MAX_AFTER,
                                stitch__json_type(after));
    out->has_after = true;
    out->after = stitch__arena_array(&p->doc->arena, n, sizeof(*out->after));
    out->after_index = stitch__arena_array(&p->doc->arena, n, sizeof(*out->after_index));
    if (!out->after || !out->after_index)
        return stitch__err_nomem(p->ctx, p->err);
    for (size_t i = 0; i < n; i++) {
        const char *id = json_string_value(json_array_get(after, i));
        stitch__jpath here = {&after_at, NULL, i};
        if (!id)
            return stitch__json_err(p->ctx, &here, p->err, "expected the id of a step, found %s",
                                    stitch__json_type(json_array_get(after, i)));
        if (!(out->after[i] = stitch__arena_strdup(&p->doc->arena, id)))
            return stitch__err_nomem(p->ctx, p->err);
        out->after_count++;
    }
    return STITCH_OK;
}

static int unknown_kind(stitch__parser *p, const json_t *v, const stitch__jpath *at)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        const char *near = stitch__nearest(key, kinds, STITCH__COUNT(kinds));
        if (near)
            return stitch__json_err(p->ctx, at, p->err, "unknown key '%.64s'; did you mean '%s'?", key, near);
    }
    return stitch__json_err(p->ctx, at, p->err,
                            "a step has one of the keys kernel, gemm, conv, copy, fill, repeat, op");
}

static int parse_step(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    const char *kind = NULL;
    char place[512];
    if (!json_is_object(v))
        return stitch__json_err(p->ctx, at, p->err, "expected a step, an object; found %s", stitch__json_type(v));
    if (++p->doc->step_count > p->limits->steps)
        return stitch__err(p->ctx, p->err, STITCH_E_LIMIT, "the launch plan has more than %" PRIu64 " steps",
                           p->limits->steps);
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        if (!json_object_get(v, kinds[i]))
            continue;
        if (kind)
            return stitch__json_err(p->ctx, at, p->err, "one step has both '%s' and '%s'", kind, kinds[i]);
        kind = kinds[i];
    }
    if (!kind)
        return unknown_kind(p, v, at);
    stitch__jpath_print(at, place, sizeof(place));
    out->place = stitch__arena_strdup(&p->doc->arena, place);
    if (!out->place)
        return stitch__err_nomem(p->ctx, p->err);
    STITCH__TRY(parse_after(p, v, at, out));
    if (strcmp(kind, "kernel") == 0)
        return parse_kernel(p, v, at, out);
    const char *keys[] = {kind, "id", "after", NULL};
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    stitch__jpath here = {at, kind, 0};
    const json_t *body = json_object_get(v, kind);
    switch (kind[0]) {
    case 'g': return stitch__parse_gemm(p, body, &here, out);
    case 'f': return parse_fill(p, body, &here, out);
    case 'r': return parse_repeat(p, body, &here, out);
    case 'o': return parse_op(p, body, &here, out);
    default: return strcmp(kind, "copy") == 0 ? parse_copy(p, body, &here, out) : parse_conv(p, body, &here);
    }
}

int stitch__parse_steps(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__steps *out)
{
    if (!json_is_array(v))
        return stitch__json_err(p->ctx, at, p->err, "expected a list of steps, found %s", stitch__json_type(v));
    size_t n = json_array_size(v);
    if (n > p->limits->steps)
        return stitch__err(p->ctx, p->err, STITCH_E_LIMIT, "the launch plan has more than %" PRIu64 " steps",
                           p->limits->steps);
    out->items = stitch__arena_array(&p->doc->arena, n, sizeof(*out->items));
    if (!out->items)
        return stitch__err_nomem(p->ctx, p->err);
    for (size_t i = 0; i < n; i++) {
        stitch__jpath here = {at, NULL, i};
        STITCH__TRY(parse_step(p, json_array_get(v, i), &here, &out->items[i]));
        out->graph |= out->items[i].has_after;
        out->count++;
    }
    return STITCH_OK;
}
