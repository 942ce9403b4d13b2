/* SPDX-License-Identifier: MIT
 *
 * Types, as they stand in parameters and template arguments.
 */
#include <stdio.h>

#include "cuda/demangle.h"

/* A class or an enumeration: which of the two cannot be seen, except for known names. */
const stitch__dm_type *stitch__dm_named(stitch__dm_state *s, const char *text, bool is_template)
{
    static const struct {
        const char *name;
        int kind, dtype;
        uint32_t size;
    } known[] = {
        {"__half", STITCH_PARAM_SCALAR, STITCH_DTYPE_F16, 2},
        {"__nv_bfloat16", STITCH_PARAM_SCALAR, STITCH_DTYPE_BF16, 2},
        {"__nv_fp8_e4m3", STITCH_PARAM_SCALAR, STITCH_DTYPE_F8E4M3, 1},
        {"__nv_fp8_e5m2", STITCH_PARAM_SCALAR, STITCH_DTYPE_F8E5M2, 1},
        {"CUtensorMap_st", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 128},
        {"CUtensorMap", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 128},
        {"__half2", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 4},
        {"__nv_bfloat162", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 4},
        {"float2", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 8},
        {"float3", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 12},
        {"float4", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 16},
        {"int2", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 8},
        {"int4", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 16},
        {"uint2", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 8},
        {"uint4", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 16},
        {"dim3", STITCH_PARAM_STRUCT, STITCH_DTYPE_NONE, 12},
    };
    for (size_t i = 0; text && !is_template && i < STITCH__COUNT(known); i++) {
        if (strcmp(text, known[i].name) != 0)
            continue;
        stitch__dm_type *t = stitch__dm_make(s, strcmp(text, "CUtensorMap_st") == 0 ? "CUtensorMap" : text,
                                             known[i].kind, known[i].dtype, known[i].size);
        if (t)
            t->tensor_map = known[i].size == 128;
        return t;
    }
    return stitch__dm_make(s, text, is_template ? STITCH_PARAM_STRUCT : STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
}

/* ---- types ---- */

static const stitch__dm_type *builtin(stitch__dm_state *s)
{
    static const struct {
        char code;
        uint8_t size;
        const char *name;
        int dtype;
    } types[] = {
        {'b', 1, "bool", STITCH_DTYPE_BOOL},      {'c', 1, "char", STITCH_DTYPE_I8},
        {'a', 1, "signed char", STITCH_DTYPE_I8}, {'h', 1, "unsigned char", STITCH_DTYPE_U8},
        {'s', 2, "short", STITCH_DTYPE_I16},      {'t', 2, "unsigned short", STITCH_DTYPE_I16},
        {'i', 4, "int", STITCH_DTYPE_I32},        {'j', 4, "unsigned int", STITCH_DTYPE_I32},
        {'l', 8, "long", STITCH_DTYPE_I64},       {'m', 8, "unsigned long", STITCH_DTYPE_I64},
        {'x', 8, "long long", STITCH_DTYPE_I64},  {'y', 8, "unsigned long long", STITCH_DTYPE_I64},
        {'f', 4, "float", STITCH_DTYPE_F32},      {'d', 8, "double", STITCH_DTYPE_F64},
        {'n', 16, "__int128", STITCH_DTYPE_NONE}, {'o', 16, "unsigned __int128", STITCH_DTYPE_NONE},
        {'w', 4, "wchar_t", STITCH_DTYPE_NONE},
    };
    for (size_t i = 0; i < STITCH__COUNT(types); i++) {
        if (*s->at != types[i].code)
            continue;
        s->at++;
        return stitch__dm_make(s, types[i].name, STITCH_PARAM_SCALAR, types[i].dtype, types[i].size);
    }
    if (*s->at == 'v') {
        s->at++;
        stitch__dm_type *t = stitch__dm_make(s, "void", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
        if (t)
            t->is_void = true;
        return t;
    }
    return stitch__dm_give_up(s);
}

static const stitch__dm_type *pointer_to(stitch__dm_state *s, const stitch__dm_type *to, const char *mark)
{
    int reference = strcmp(mark, "&&") == 0 ? 2 : *mark == '&';
    if (reference && to->reference) { /* of a reference: && only if both are */
        reference = reference + to->reference == 4 ? 2 : 1;
        mark = reference == 2 ? "&&" : "&";
        to = to->pointee;
    }
    bool star = to->text && to->text[0] && to->text[strlen(to->text) - 1] == '*';
    const char *head = to->tail ? stitch__dm_join(s, to->head, mark, "") : NULL;
    const char *text =
        to->tail ? stitch__dm_join(s, head, to->tail, "") : stitch__dm_join(s, to->text, star ? "" : " ", mark);
    stitch__dm_type *t = stitch__dm_make(s, text, STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 8);
    if (!t)
        return NULL;
    t->head = head;
    t->tail = to->tail;
    t->reference = reference;
    t->pointee = to;
    if (to->kind == STITCH_PARAM_SCALAR)
        t->dtype = to->dtype;
    return t;
}

static const stitch__dm_type *qualified(stitch__dm_state *s)
{
    bool is_const = false, is_volatile = false;
    while (*s->at == 'r' || *s->at == 'V' || *s->at == 'K') {
        is_const = is_const || *s->at == 'K';
        is_volatile = is_volatile || *s->at == 'V';
        s->at++;
    }
    const stitch__dm_type *of = stitch__dm_parse_type(s);
    if (!of)
        return NULL;
    stitch__dm_type *t = stitch__dm_make(s, NULL, of->kind, of->dtype, of->size);
    if (!t)
        return NULL;
    *t = *of;
    const char *words = is_const && is_volatile ? "const volatile"
                        : is_const              ? "const"
                        : is_volatile           ? "volatile"
                                                : "__restrict__";
    t->text = of->kind == STITCH_PARAM_POINTER ? stitch__dm_join(s, of->text, words, "")
                                               : stitch__dm_join(s, words, " ", of->text);
    t->is_const = is_const;
    return t;
}

const stitch__dm_type *stitch__dm_template_param(stitch__dm_state *s)
{
    int index = stitch__dm_sequence(s, 10);
    s->depends = true;
    if (index >= 0 && s->in_lambda) {
        char text[24];
        snprintf(text, sizeof(text), "auto:%d", index + 1);
        return stitch__dm_make(s, stitch__dm_join(s, text, "", ""), STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
    }
    if (index < 0 || (size_t)index >= s->args.count || *s->at == 'I')
        return stitch__dm_give_up(s);
    const stitch__dm_type *of = s->args.items[index];
    stitch__dm_type *t = stitch__dm_make(s, of->text, of->kind, of->dtype, of->size);
    if (t)
        *t = *of; /* a substitution of its own, even where it stands for the same type */
    return t;
}

static const stitch__dm_type *function_type(stitch__dm_state *s)
{
    stitch__dm_list params = {0};
    const stitch__dm_type *result;
    stitch__dm_type *t;
    stitch__dm_eat(s, 'Y');
    result = stitch__dm_parse_type(s);
    if (!result || !stitch__dm_params(s, false, &params))
        return stitch__dm_give_up(s);
    t = stitch__dm_make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
    if (t && !result->tail) {
        const char *args = stitch__dm_params_text(s, &params);
        t->text = stitch__dm_join(s, result->text, " ", args);
        t->head = stitch__dm_join(s, result->text, " (", "");
        t->tail = stitch__dm_join(s, ")", args, "");
    }
    return t;
}

static const stitch__dm_type *array_type(stitch__dm_state *s)
{
    size_t digits = strspn(s->at, "0123456789");
    const char *count = stitch__arena_strndup(s->arena, s->at, digits);
    const stitch__dm_type *of;
    stitch__dm_type *t;
    if (!count)
        return stitch__dm_out_of_memory(s);
    s->at += digits;
    if (!stitch__dm_eat(s, '_') || !(of = stitch__dm_parse_type(s)))
        return stitch__dm_give_up(s);
    t = stitch__dm_make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
    if (t && !of->tail) {
        t->head = stitch__dm_join(s, of->text, " (", "");
        t->tail = stitch__dm_join(s, ") [", count, "]");
        t->text = stitch__dm_join(s, stitch__dm_join(s, of->text, " [", count), "]", "");
    }
    return t;
}

/* D codes: half precision types and pack expansions; the rest is not understood. */
static const stitch__dm_type *d_type(stitch__dm_state *s, bool *substitutable)
{
    *substitutable = false;
    if (strncmp(s->at, "Dp", 2) == 0) {
        s->at += 2;
        *substitutable = true;
        if (*s->at != 'T')
            return stitch__dm_give_up(s); /* patterns other than a plain pack */
        const stitch__dm_type *pack = stitch__dm_parse_type(s);
        if (!pack || !pack->pack)
            return stitch__dm_give_up(s);
        stitch__dm_type *t = stitch__dm_make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
        if (t) {
            t->pack = pack->pack;
            t->expansion = true;
        }
        return t;
    }
    if (strncmp(s->at, "Da", 2) == 0) {
        s->at += 2;
        return stitch__dm_make(s, "auto", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
    }
    if (strncmp(s->at, "Dn", 2) == 0) {
        s->at += 2;
        *substitutable = true;
        return stitch__dm_make(s, "decltype(nullptr)", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 8);
    }
    if (strncmp(s->at, "DF16_", 5) == 0) {
        s->at += 5;
        return stitch__dm_make(s, "_Float16", STITCH_PARAM_SCALAR, STITCH_DTYPE_F16, 2);
    }
    if (strncmp(s->at, "DF16b", 5) == 0) {
        s->at += 5;
        return stitch__dm_make(s, "__bf16", STITCH_PARAM_SCALAR, STITCH_DTYPE_BF16, 2);
    }
    return stitch__dm_give_up(s);
}

static const stitch__dm_type *parse_type_inner(stitch__dm_state *s)
{
    const stitch__dm_type *t = NULL;
    const char *from = s->at;
    bool substitutable = true;
    switch (*s->at) {
    case 'r':
    case 'V':
    case 'K': t = qualified(s); break;
    case 'P':
    case 'R':
    case 'O': {
        const char *mark = *s->at == 'P' ? "*" : *s->at == 'R' ? "&" : "&&";
        s->at++;
        const stitch__dm_type *to = stitch__dm_parse_type(s);
        t = to ? pointer_to(s, to, mark) : NULL;
        break;
    }
    case 'T':
        s->at++;
        t = stitch__dm_template_param(s);
        break;
    case 'A':
        s->at++;
        t = array_type(s);
        break;
    case 'F':
        s->at++;
        t = function_type(s);
        break;
    case 'N':
        s->at++;
        t = stitch__dm_nested(s, NULL);
        break;
    case 'Z':
        s->at++;
        t = stitch__dm_local(s, NULL);
        break;
    case 'D': t = d_type(s, &substitutable); break;
    case 'S':
        if (s->at[1] == 't') {
            t = stitch__dm_unscoped(s, NULL);
            break;
        }
        s->at++;
        t = stitch__dm_substitution(s);
        if (t && stitch__dm_eat(s, 'I'))
            t = stitch__dm_instance(s, t->text, NULL);
        else
            substitutable = false;
        break;
    default:
        if (stitch__dm_name_starts(s) || (*s->at == 'U' && (s->at[1] == 'l' || s->at[1] == 't'))) {
            t = stitch__dm_unscoped(s, NULL);
        } else {
            t = builtin(s);
            substitutable = false;
        }
    }
    if (!t || s->failed)
        return stitch__dm_give_up(s);
    if (substitutable) {
        stitch__dm_type *own = stitch__dm_make(s, NULL, 0, 0, 0);
        if (!own)
            return NULL;
        *own = *t;
        own->depends = s->depends;
        own->function = s->function;
        own->from = from;
        t = own;
    }
    return !substitutable || stitch__dm_append(s, &s->subs, t) ? t : NULL;
}

const stitch__dm_type *stitch__dm_parse_type(stitch__dm_state *s)
{
    bool outer = s->depends;
    if (s->failed || ++s->depth > STITCH__DM_DEPTH || ++s->types > STITCH__DM_TYPES)
        return stitch__dm_give_up(s);
    s->depends = false;
    const stitch__dm_type *t = parse_type_inner(s);
    s->depends |= outer;
    s->depth--;
    return t;
}
