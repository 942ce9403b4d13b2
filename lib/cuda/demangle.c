/* SPDX-License-Identifier: MIT
 *
 * A demangler for the names of kernels: the part of the Itanium C++ ABI that NVRTC and nvcc produce for `__global__`
 * functions. It exists for the parameter types, which machine code does not have, and for the names that people read.
 * What it does not understand (expressions that depend on template parameters, decltype, member pointers ...) it gives
 * up on, so that its answers are never wrong.
 */
#include "cuda/demangle.h"

/* ---- building blocks ---- */

void *stitch__dm_give_up(stitch__dm_state *s)
{
    s->failed = true;
    return NULL;
}

void *stitch__dm_out_of_memory(stitch__dm_state *s)
{
    s->nomem = true;
    return stitch__dm_give_up(s);
}

stitch__dm_type *stitch__dm_make(stitch__dm_state *s, const char *text, int kind, int dtype, uint32_t size)
{
    stitch__dm_type *t = stitch__arena_alloc(s->arena, sizeof(*t));
    if (!t)
        return stitch__dm_out_of_memory(s);
    *t = (stitch__dm_type){.text = text, .kind = kind, .dtype = dtype, .size = size};
    return t;
}

bool stitch__dm_append(stitch__dm_state *s, stitch__dm_list *l, const stitch__dm_type *t)
{
    if (!t || l->count >= STITCH__DM_LIST) {
        stitch__dm_give_up(s);
        return false;
    }
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        const stitch__dm_type **items = stitch__arena_array(s->arena, cap, sizeof(*items));
        if (!items) {
            stitch__dm_out_of_memory(s);
            return false;
        }
        if (l->count)
            memcpy(items, l->items, l->count * sizeof(*items));
        l->items = items;
        l->cap = cap;
    }
    l->items[l->count++] = t;
    return true;
}

/* Text of limited length: substitutions could make it grow exponentially. NULL operands give NULL. */
const char *stitch__dm_join(stitch__dm_state *s, const char *a, const char *b, const char *c)
{
    if (!a || !b || !c)
        return NULL;
    size_t la = strlen(a), lb = strlen(b), lc = strlen(c);
    if (la + lb + lc > STITCH__DM_TEXT)
        return NULL;
    s->bytes += la + lb + lc + 1;
    if (s->bytes > STITCH__DM_BYTES)
        return stitch__dm_give_up(s);
    char *out = stitch__arena_alloc(s->arena, la + lb + lc + 1);
    if (!out)
        return stitch__dm_out_of_memory(s);
    memcpy(out, a, la);
    memcpy(out + la, b, lb);
    memcpy(out + la + lb, c, lc + 1);
    return out;
}

bool stitch__dm_eat(stitch__dm_state *s, char c)
{
    if (*s->at != c)
        return false;
    s->at++;
    return true;
}

/* "_" is 0, "0_" is 1, "Z_" is 36 (base 36), or base 10 for template parameters. -1: malformed. */
int stitch__dm_sequence(stitch__dm_state *s, int base)
{
    int n = 0, digits = 0;
    for (; *s->at && *s->at != '_'; s->at++, digits++) {
        char c = *s->at;
        int d = c >= '0' && c <= '9' ? c - '0' : base == 36 && c >= 'A' && c <= 'Z' ? c - 'A' + 10 : -1;
        if (d < 0 || digits > 3)
            return -1;
        n = n * base + d;
    }
    if (!stitch__dm_eat(s, '_'))
        return -1;
    return digits ? n + 1 : 0;
}

/* ---- the whole name ---- */

static void to_param(const stitch__dm_type *t, stitch_param_info *p)
{
    *p = (stitch_param_info)STITCH_PARAM_INFO_INIT;
    p->kind = t->kind;
    p->dtype = t->dtype;
    p->is_const = t->kind == STITCH_PARAM_POINTER && t->pointee && t->pointee->is_const;
    p->is_tensor_map = t->tensor_map;
    p->size = t->size;
    p->type = t->text ? t->text : "";
}

bool stitch__dm_params(stitch__dm_state *s, bool to_end, stitch__dm_list *params)
{
    bool only_void = false;
    while (!s->failed && (to_end ? *s->at && *s->at != '.' : !stitch__dm_eat(s, 'E'))) {
        const stitch__dm_type *t = stitch__dm_parse_type(s);
        if (!t)
            return false;
        only_void = only_void || t->is_void;
        for (size_t i = 0; t->expansion && i < t->pack->count; i++) {
            if (!stitch__dm_append(s, params, t->pack->items[i]))
                return false;
        }
        if (!t->expansion && !stitch__dm_append(s, params, t))
            return false;
    }
    if (only_void) {
        if (params->count != 1)
            return stitch__dm_give_up(s) != NULL;
        params->count = 0;
    }
    return !s->failed;
}

const char *stitch__dm_params_text(stitch__dm_state *s, const stitch__dm_list *params)
{
    const char *text = "(";
    for (size_t i = 0; i < params->count; i++)
        text = stitch__dm_join(s, text, i ? ", " : "", params->items[i]->text);
    return stitch__dm_join(s, text, ")", "");
}

int stitch__demangle(stitch__arena *arena, const char *symbol, stitch__demangled *out)
{
    stitch__dm_state s = {.arena = arena, .at = symbol};
    stitch__dm_list params = {0};
    *out = (stitch__demangled){0};
    out->name = stitch__arena_strdup(arena, symbol);
    if (!out->name)
        return STITCH_E_NOMEM;
    if (strncmp(symbol, "_Z", 2) != 0) {
        out->base = out->name;
        return STITCH_OK;
    }
    s.at += 2;
    const stitch__dm_type *name = NULL;
    if (stitch__dm_eat(&s, 'N'))
        name = stitch__dm_nested(&s, &s.args);
    else if (stitch__dm_eat(&s, 'Z'))
        name = stitch__dm_local(&s, &s.args);
    else
        name = stitch__dm_unscoped(&s, &s.args);
    if (s.nomem)
        return STITCH_E_NOMEM;
    if (!name || s.failed || (!name->text && !s.base))
        return STITCH_OK;
    bool is_template = s.last_is_template;
    out->name = name->text ? stitch__arena_strdup(arena, name->text) : stitch__arena_printf(arena, "%s<...>", s.base);
    out->base = stitch__arena_strdup(arena, s.base ? s.base : name->text);
    if (!out->name || !out->base)
        return STITCH_E_NOMEM;
    out->is_template = is_template;
    if (is_template)
        stitch__dm_parse_type(&s); /* templates carry their return type */
    bool understood = !s.failed && *s.at && stitch__dm_params(&s, true, &params);
    if (s.nomem)
        return STITCH_E_NOMEM;
    if (!understood)
        return STITCH_OK;
    out->params = stitch__arena_array(arena, params.count + 1, sizeof(*out->params));
    if (!out->params)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < params.count; i++)
        to_param(params.items[i], &out->params[i]);
    out->param_count = params.count;
    out->has_params = true;
    return STITCH_OK;
}
