/* SPDX-License-Identifier: MIT
 *
 * Arguments of kernels and operators: pointers, typed scalars, tensor maps.
 */
#include <math.h>
#include <stdio.h>

#include "program/program.h"

enum { MAX_ARGS = 512 };

static int parse_tensor_map(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__arg *out)
{
    static const char *const keys[] = {"buffer", "shape", "strides", "box", "swizzle", NULL};
    static const char *const swizzles[] = {"none", "32B", "64B", "128B"};
    stitch__tensor_map *m = stitch__arena_alloc(&p->doc->arena, sizeof(*m));
    size_t count = 0;
    const char *word = "none";
    if (!m)
        return stitch__err_nomem(p->ctx, p->err);
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    STITCH__TRY(stitch__parse_member_ref(p, v, at, "buffer", true, &m->buffer));
    const json_t *shape = json_object_get(v, "shape"), *box = json_object_get(v, "box"),
                 *strides = json_object_get(v, "strides");
    stitch__jpath shape_at = {at, "shape", 0}, box_at = {at, "box", 0}, strides_at = {at, "strides", 0},
                  swizzle_at = {at, "swizzle", 0};
    if (!shape || !box)
        return stitch__json_err(p->ctx, at, p->err, "'%s' is missing", shape ? "box" : "shape");
    STITCH__TRY(stitch__parse_exprs(p, shape, &shape_at, 5, m->shape, &m->rank));
    STITCH__TRY(stitch__parse_exprs(p, box, &box_at, 5, m->box, &count));
    if (count != m->rank)
        return stitch__json_err(p->ctx, &box_at, p->err, "%zu extents, but shape has %zu", count, m->rank);
    if (strides) {
        STITCH__TRY(stitch__parse_exprs(p, strides, &strides_at, 5, m->strides, &count));
        if (count != m->rank && count + 1 != m->rank)
            return stitch__json_err(p->ctx, &strides_at, p->err,
                                    "%zu strides, but shape has %zu extents; the innermost stride (1) may be left out",
                                    count, m->rank);
    }
    STITCH__TRY(stitch__json_string(p->ctx, v, at, "swizzle", false, &word, p->err));
    while (m->swizzle < (int32_t)STITCH__COUNT(swizzles) && strcmp(swizzles[m->swizzle], word) != 0)
        m->swizzle++;
    if (m->swizzle == (int32_t)STITCH__COUNT(swizzles))
        return stitch__json_err(p->ctx, &swizzle_at, p->err, "'%.32s' is not known; there are none, 32B, 64B, 128B",
                                word);
    out->kind = STITCH__ARG_TENSOR_MAP;
    out->map = m;
    return STITCH_OK;
}

static int parse_scalar(stitch__parser *p, const char *key, const json_t *v, const stitch__jpath *at, stitch__arg *out)
{
    static const char *const names[] = {
#define NAME(name, text, bytes) text,
        STITCH__SCALAR_LIST(NAME)
#undef NAME
            "tensor_map"};
    stitch__jpath here = {at, key, 0};
    int32_t type = 0;
    while (type < STITCH__SCALAR_COUNT && strcmp(names[type], key) != 0)
        type++;
    if (type == STITCH__SCALAR_COUNT) {
        const char *near = stitch__nearest(key, names, STITCH__COUNT(names));
        return stitch__json_err(p->ctx, at, p->err, "unknown type '%.32s' of a scalar; %s%s%s", key,
                                near ? "did you mean '" : "", near ? near : "",
                                near ? "'?" : "there are i32 u32 i64 u64 f32 f64 f16 bf16, and tensor_map");
    }
    out->kind = STITCH__ARG_SCALAR;
    out->scalar = type;
    if (!json_is_real(v))
        return stitch__parse_expr(p, v, &here, &out->expr);
    out->real = json_real_value(v);
    if (!stitch__scalar_is_float(type))
        return stitch__json_err(p->ctx, &here, p->err, "%g has a fraction or an exponent, but the type is an integer",
                                out->real);
    return STITCH_OK;
}

static int parse_arg(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__arg *out)
{
    out->ref.tensor = -1;
    if (json_is_string(v)) {
        out->kind = STITCH__ARG_POINTER;
        return stitch__parse_ref(p, v, at, &out->ref);
    }
    if (!json_is_object(v) || json_object_size(v) != 1)
        return stitch__json_err(
            p->ctx, at, p->err,
            "expected a pointer \"name + offset\", a scalar {\"i32\": ...} or {\"tensor_map\": {...}}, found %s%s",
            stitch__json_type(v), json_is_number(v) ? "; give its type, as in {\"i32\": 1}" : "");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        stitch__jpath here = {at, key, 0};
        return strcmp(key, "tensor_map") == 0 ? parse_tensor_map(p, value, &here, out)
                                              : parse_scalar(p, key, value, at, out);
    }
    return STITCH_E_INTERNAL; /* not reached: the object has one member */
}

int stitch__parse_args(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__arg **out, size_t *count)
{
    if (!json_is_array(v))
        return stitch__json_err(p->ctx, at, p->err, "expected a list of arguments, found %s", stitch__json_type(v));
    size_t n = json_array_size(v);
    if (n > MAX_ARGS)
        return stitch__json_err(p->ctx, at, p->err, "%zu arguments, the limit is %d", n, MAX_ARGS);
    *out = stitch__arena_array(&p->doc->arena, n, sizeof(**out));
    if (!*out)
        return stitch__err_nomem(p->ctx, p->err);
    for (size_t i = 0; i < n; i++) {
        stitch__jpath here = {at, NULL, i};
        STITCH__TRY(parse_arg(p, json_array_get(v, i), &here, &(*out)[i]));
    }
    *count = n;
    return STITCH_OK;
}
