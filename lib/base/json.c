/* SPDX-License-Identifier: MIT
 *
 * JSON documents with errors that name the place.
 */
#include <math.h>
#include <stdio.h>

#include "base/base.h"

enum { MAX_DEPTH = 64, MAX_VALUES = 2 << 20 };

/* What would cost our recursive readers the stack (jansson's own limit is far higher) or the process its memory (a byte
 * of "[],[],..." becomes a hundred). Returns the offset of the character that goes too far and which limit, or len. */
static size_t too_much(const char *text, size_t len, const char **limit)
{
    size_t depth = 0, values = 0;
    bool string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
        } else if (c == '"') {
            string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH) {
                *limit = "nested deeper than 64 levels";
                return i;
            }
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        } else if (c == ',' && ++values >= MAX_VALUES) {
            *limit = "more than 2097152 values";
            return i;
        }
    }
    return len;
}

int stitch__json_parse(const stitch_context *ctx, const char *text, size_t len, size_t limit, const char *what,
                       json_t **out, stitch_error **err)
{
    json_error_t e;

    *out = NULL;
    limit = limit ? limit : (size_t)64 << 20;
    if (len > limit)
        return stitch__err_native(ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_JSON, 0, "%s: %zu bytes, the limit is %zu",
                                  what, len, limit);
    const char *exceeded = NULL;
    size_t at = too_much(text, len, &exceeded);
    if (exceeded)
        return stitch__err_native(ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_JSON, 0, "%s: %s at byte %zu", what, exceeded,
                                  at);
    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!*out)
        return stitch__err_native(
            ctx, err, json_error_code(&e) == json_error_out_of_memory ? STITCH_E_NOMEM : STITCH_E_FORMAT,
            STITCH_DOMAIN_JSON, json_error_code(&e), "%s, line %d column %d: %s", what, e.line, e.column, e.text);
    return STITCH_OK;
}

void stitch__jpath_print(const stitch__jpath *at, char *out, size_t size)
{
    const stitch__jpath *parts[MAX_DEPTH];
    size_t n = 0, used = 0;
    if (!size)
        return;
    *out = 0;
    for (; at && n < MAX_DEPTH; at = at->up)
        parts[n++] = at;
    while (n && used < size) {
        const stitch__jpath *p = parts[--n];
        int k = p->key ? snprintf(out + used, size - used, "%s%.64s", used ? "." : "", p->key)
                       : snprintf(out + used, size - used, "[%zu]", p->index);
        used += k > 0 ? (size_t)k : 0;
    }
}

int stitch__json_err(const stitch_context *ctx, const stitch__jpath *at, stitch_error **err, const char *fmt, ...)
{
    char place[256], text[1024];
    va_list ap;
    va_start(ap, fmt);
    stitch__vformat(text, sizeof(text), fmt, ap);
    va_end(ap);
    stitch__jpath_print(at, place, sizeof(place));
    return stitch__err(ctx, err, STITCH_E_FORMAT, "%s%s%s", place, *place ? ": " : "", text);
}

const char *stitch__json_type(const json_t *v)
{
    if (!v)
        return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a string";
    case JSON_INTEGER: return "an integer";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a boolean";
    default: return "null";
    }
}

int stitch__json_keys(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *const *allowed,
                      stitch_error **err)
{
    const char *key;
    json_t *value;
    size_t count = 0;

    if (!json_is_object(obj))
        return stitch__json_err(ctx, at, err, "expected an object, found %s", stitch__json_type(obj));
    while (allowed[count])
        count++;
    json_object_foreach((json_t *)(uintptr_t)obj, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < count && !known; i++)
            known = strcmp(allowed[i], key) == 0;
        if (known)
            continue;
        const char *near = stitch__nearest(key, allowed, count);
        return stitch__json_err(ctx, at, err, "unknown key '%.64s'%s%s%s", key, near ? "; did you mean '" : "",
                                near ? near : "", near ? "'?" : "");
    }
    return STITCH_OK;
}

/* The member, or NULL with *rc set: STITCH_OK if it may be missing. */
static const json_t *member(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                            bool required, int *rc, stitch_error **err)
{
    const json_t *v = json_object_get(obj, key);
    *rc = STITCH_OK;
    if (!v && required)
        *rc = stitch__json_err(ctx, at, err, "'%s' is missing", key);
    return v;
}

int stitch__json_string(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                        bool required, const char **out, stitch_error **err)
{
    int rc;
    const json_t *v = member(ctx, obj, at, key, required, &rc, err);
    stitch__jpath here = {at, key, 0};
    if (!v)
        return rc;
    if (!json_is_string(v))
        return stitch__json_err(ctx, &here, err, "expected a string, found %s", stitch__json_type(v));
    *out = json_string_value(v);
    return STITCH_OK;
}

int stitch__json_int(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                     bool required, int64_t min, int64_t max, int64_t *out, stitch_error **err)
{
    int rc;
    const json_t *v = member(ctx, obj, at, key, required, &rc, err);
    stitch__jpath here = {at, key, 0};
    if (!v)
        return rc;
    if (!json_is_integer(v))
        return stitch__json_err(ctx, &here, err, "expected an integer, found %s", stitch__json_type(v));
    int64_t value = json_integer_value(v);
    if (value < min || value > max)
        return stitch__json_err(ctx, &here, err, "%" PRId64 " is not between %" PRId64 " and %" PRId64, value, min,
                                max);
    *out = value;
    return STITCH_OK;
}

int stitch__json_number(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                        bool required, double *out, stitch_error **err)
{
    int rc;
    const json_t *v = member(ctx, obj, at, key, required, &rc, err);
    stitch__jpath here = {at, key, 0};
    if (!v)
        return rc;
    if (!json_is_number(v))
        return stitch__json_err(ctx, &here, err, "expected a number, found %s", stitch__json_type(v));
    double value = json_number_value(v);
    if (!isfinite(value))
        return stitch__json_err(ctx, &here, err, "expected a finite number");
    *out = value;
    return STITCH_OK;
}

int stitch__json_bool(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                      bool required, bool *out, stitch_error **err)
{
    int rc;
    const json_t *v = member(ctx, obj, at, key, required, &rc, err);
    stitch__jpath here = {at, key, 0};
    if (!v)
        return rc;
    if (!json_is_boolean(v))
        return stitch__json_err(ctx, &here, err, "expected true or false, found %s", stitch__json_type(v));
    *out = json_is_true(v);
    return STITCH_OK;
}

static int dump_part(const char *text, size_t len, void *userdata)
{
    stitch__buf *b = userdata;
    stitch__buf_append(b, text, len);
    return b->failed ? -1 : 0;
}

void stitch__json_put(bool *failed, json_t *object, const char *key, json_t *value)
{
    if (!value || json_object_set_new(object, key, value))
        *failed = true;
}

void stitch__json_push(bool *failed, json_t *array, json_t *value)
{
    if (!value || json_array_append_new(array, value))
        *failed = true;
}

char *stitch__json_dump(const stitch_context *ctx, const json_t *v, int indent)
{
    stitch__buf b;
    stitch__buf_init(&b, ctx);
    if (json_dump_callback(v, dump_part, &b,
                           JSON_ENCODE_ANY | (indent > 0 ? JSON_INDENT((size_t)indent) : JSON_COMPACT)) != 0)
        b.failed = true;
    return stitch__buf_take(&b, NULL);
}
