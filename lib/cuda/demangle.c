/* SPDX-License-Identifier: MIT
 *
 * A demangler for the names of kernels: the part of the Itanium C++ ABI that NVRTC produces for `__global__` functions.
 * It exists for the parameter types, which machine code does not have. What it does not understand (expressions that
 * depend on template parameters, decltype, member pointers ...) it gives up on, so that its answers are never wrong.
 */
#include <stdio.h>

#include "cuda/internal.h"

enum { MAX_DEPTH = 64, MAX_TEXT = 512, MAX_LIST = 1024 };

typedef struct type {
    const char *text; /* NULL: cannot be written down */
    int kind;         /* stitch_param_kind */
    int dtype;
    uint32_t size; /* 0: unknown */
    bool is_const; /* of the type itself, not of what it points to */
    bool tensor_map;
    bool is_void;
    const struct type *pointee;
    const struct list *pack; /* a parameter pack */
    bool expansion;          /* Dp: `pack` is to be spliced in */
} type;

typedef struct list {
    const type **items;
    size_t count, cap;
} list;

typedef struct state {
    stitch__arena *arena;
    const char *at;
    int depth;
    bool failed, nomem;
    list subs; /* S_, S0_, ... */
    list args; /* T_, T0_, ...: template arguments of the function */
    bool last_is_template;
    const char *base; /* of the name that was parsed last: without its template arguments */
} state;

static const type *parse_type(state *s);

/* ---- building blocks ---- */

static void *give_up(state *s)
{
    s->failed = true;
    return NULL;
}

static void *out_of_memory(state *s)
{
    s->nomem = true;
    return give_up(s);
}

static type *make(state *s, const char *text, int kind, int dtype, uint32_t size)
{
    type *t = stitch__arena_alloc(s->arena, sizeof(*t));
    if (!t)
        return out_of_memory(s);
    *t = (type){.text = text, .kind = kind, .dtype = dtype, .size = size};
    return t;
}

static bool append(state *s, list *l, const type *t)
{
    if (!t || l->count >= MAX_LIST) {
        give_up(s);
        return false;
    }
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        const type **items = stitch__arena_array(s->arena, cap, sizeof(*items));
        if (!items) {
            out_of_memory(s);
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
static const char *join(state *s, const char *a, const char *b, const char *c)
{
    if (!a || !b || !c)
        return NULL;
    size_t la = strlen(a), lb = strlen(b), lc = strlen(c);
    if (la + lb + lc > MAX_TEXT)
        return NULL;
    char *out = stitch__arena_alloc(s->arena, la + lb + lc + 1);
    if (!out)
        return out_of_memory(s);
    memcpy(out, a, la);
    memcpy(out + la, b, lb);
    memcpy(out + la + lb, c, lc + 1);
    return out;
}

static bool eat(state *s, char c)
{
    if (*s->at != c)
        return false;
    s->at++;
    return true;
}

/* "_" is 0, "0_" is 1, "Z_" is 36 (base 36), or base 10 for template parameters. -1: malformed. */
static int sequence(state *s, int base)
{
    int n = 0, digits = 0;
    for (; *s->at && *s->at != '_'; s->at++, digits++) {
        char c = *s->at;
        int d = c >= '0' && c <= '9' ? c - '0' : base == 36 && c >= 'A' && c <= 'Z' ? c - 'A' + 10 : -1;
        if (d < 0 || digits > 3)
            return -1;
        n = n * base + d;
    }
    if (!eat(s, '_'))
        return -1;
    return digits ? n + 1 : 0;
}

static const char *source_name(state *s)
{
    size_t n = 0;
    for (int digits = 0; *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (++digits > 4)
            return give_up(s);
        n = n * 10 + (size_t)(*s->at - '0');
    }
    if (n == 0 || memchr(s->at, '\0', n))
        return give_up(s);
    const char *text = s->at;
    s->at += n;
    if (n >= 11 && memcmp(text, "_GLOBAL__N_", 11) == 0)
        return "(anonymous namespace)";
    const char *copy = stitch__arena_strndup(s->arena, text, n);
    return copy ? copy : out_of_memory(s);
}

/* ---- names ---- */

/* A class or an enumeration: which of the two cannot be seen, except for known names. */
static const type *named(state *s, const char *text, bool is_template)
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
        type *t = make(s, strcmp(text, "CUtensorMap_st") == 0 ? "CUtensorMap" : text, known[i].kind, known[i].dtype,
                       known[i].size);
        if (t)
            t->tensor_map = known[i].size == 128;
        return t;
    }
    return make(s, text, is_template ? STITCH_PARAM_STRUCT : STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
}

/* L <type> <value> E: an integer, bool or enumerator. */
static const type *literal(state *s)
{
    const char *sign = "";
    bool is_bool = *s->at == 'b';
    bool builtin = *s->at >= 'a' && *s->at <= 'z';
    if (*s->at == '_') /* L_Z...E: a function or an object */
        return give_up(s);
    const type *t = parse_type(s);
    if (!t)
        return NULL;
    if (eat(s, 'n'))
        sign = "-";
    size_t digits = strspn(s->at, "0123456789");
    if (digits == 0 || digits > 20 || s->at[digits] != 'E')
        return give_up(s); /* floating-point values and the like */
    const char *value = stitch__arena_strndup(s->arena, s->at, digits);
    if (!value)
        return out_of_memory(s);
    s->at += digits + 1;
    const char *text = is_bool ? (strcmp(value, "0") == 0 ? "false" : "true") : join(s, sign, value, "");
    if (!builtin) {
        const char *cast = join(s, "(", t->text, ")");
        text = join(s, cast, text, "");
    }
    return make(s, text, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
}

/* Up to and with the E. */
static bool template_args(state *s, list *out)
{
    while (!s->failed && !eat(s, 'E')) {
        const type *t = NULL;
        if (eat(s, 'L')) {
            t = literal(s);
        } else if (*s->at == 'X') {
            s->at++;
            if (*s->at != 'T') /* anything but a template parameter is an expression */
                return give_up(s) != NULL;
            t = parse_type(s);
            if (!eat(s, 'E'))
                return give_up(s) != NULL;
        } else if (eat(s, 'J')) {
            list *pack = stitch__arena_alloc(s->arena, sizeof(*pack));
            type *holder = make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
            if (!pack || !holder)
                return out_of_memory(s) != NULL;
            if (++s->depth > MAX_DEPTH || !template_args(s, pack))
                return give_up(s) != NULL;
            s->depth--;
            holder->pack = pack;
            t = holder;
        } else {
            t = parse_type(s);
        }
        if (!append(s, out, t))
            return false;
    }
    return !s->failed;
}

static const char *args_text(state *s, const list *args)
{
    const char *text = "<", *comma = "";
    for (size_t i = 0; i < args->count; i++) {
        const list *pack = args->items[i]->pack;
        for (size_t k = 0; k < (pack ? pack->count : 1); k++) {
            const type *t = pack ? pack->items[k] : args->items[i];
            text = join(s, text, comma, t->text ? t->text : NULL);
            comma = ", ";
        }
    }
    return join(s, text, ">", "");
}

/* I args E behind the name `text`; `into` receives the arguments where the caller wants them. */
static const type *instance(state *s, const char *text, list *into)
{
    list args = {0};
    s->base = text;
    if (!template_args(s, &args))
        return NULL;
    s->last_is_template = true;
    if (into)
        *into = args;
    return named(s, join(s, text, args_text(s, &args), ""), true);
}

/* S_ and its like, after the S. "St" is answered by the callers. */
static const type *substitution(state *s)
{
    int index = sequence(s, 36);
    if (index < 0 || (size_t)index >= s->subs.count)
        return give_up(s);
    return s->subs.items[index];
}

static bool name_starts(const state *s)
{
    return (*s->at >= '0' && *s->at <= '9') || (*s->at == 'L' && s->at[1] >= '0' && s->at[1] <= '9');
}

static const char *unqualified(state *s)
{
    if (*s->at == 'L') /* internal linkage */
        s->at++;
    return source_name(s);
}

/* After the N. `into`: see instance(). */
static const type *nested(state *s, list *into)
{
    const type *prefix = NULL;
    if (*s->at == 'K' || *s->at == 'V' || *s->at == 'r' || *s->at == 'R' || *s->at == 'O')
        return give_up(s); /* member functions */
    while (!s->failed && !eat(s, 'E')) {
        bool add = true;
        if (*s->at == 'S' && s->at[1] == 't') {
            s->at += 2;
            prefix = make(s, "std", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
            add = false;
        } else if (*s->at == 'S' && !prefix) {
            s->at++;
            prefix = substitution(s);
            add = false;
        } else if (*s->at == 'I' && prefix) {
            s->at++;
            prefix = instance(s, prefix->text, into);
        } else if (name_starts(s)) {
            const char *name = unqualified(s);
            s->last_is_template = false;
            prefix = named(s, prefix ? join(s, prefix->text, "::", name) : name, false);
            s->base = prefix ? prefix->text : NULL;
        } else {
            return give_up(s);
        }
        if (!prefix)
            return give_up(s);
        if (add && *s->at != 'E' && !append(s, &s->subs, prefix))
            return NULL;
    }
    return s->failed ? NULL : prefix;
}

/* A name that is not nested, for a type or the function. */
static const type *unscoped(state *s, list *into)
{
    const char *name, *scope = NULL;
    const type *t;
    if (*s->at == 'S' && s->at[1] == 't') {
        s->at += 2;
        scope = "std::";
    }
    if (!name_starts(s) || !(name = unqualified(s)))
        return give_up(s);
    if (scope)
        name = join(s, scope, name, "");
    s->last_is_template = false;
    s->base = name;
    t = named(s, name, false);
    if (t && eat(s, 'I')) {
        if (!append(s, &s->subs, t))
            return NULL;
        t = instance(s, name, into);
    }
    return t;
}

/* ---- types ---- */

static const type *builtin(state *s)
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
        return make(s, types[i].name, STITCH_PARAM_SCALAR, types[i].dtype, types[i].size);
    }
    if (*s->at == 'v') {
        s->at++;
        type *t = make(s, "void", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
        if (t)
            t->is_void = true;
        return t;
    }
    return give_up(s);
}

static const type *pointer_to(state *s, const type *to, const char *mark)
{
    bool star = to->text && to->text[0] && to->text[strlen(to->text) - 1] == '*';
    type *t = make(s, join(s, to->text, star ? "" : " ", mark), STITCH_PARAM_POINTER, STITCH_DTYPE_NONE, 8);
    if (!t)
        return NULL;
    t->pointee = to;
    if (to->kind == STITCH_PARAM_SCALAR)
        t->dtype = to->dtype;
    return t;
}

static const type *qualified(state *s)
{
    bool is_const = false, is_volatile = false;
    while (*s->at == 'r' || *s->at == 'V' || *s->at == 'K') {
        is_const = is_const || *s->at == 'K';
        is_volatile = is_volatile || *s->at == 'V';
        s->at++;
    }
    const type *of = parse_type(s);
    if (!of)
        return NULL;
    type *t = make(s, NULL, of->kind, of->dtype, of->size);
    if (!t)
        return NULL;
    *t = *of;
    const char *words = is_const && is_volatile ? "const volatile"
                        : is_const              ? "const"
                        : is_volatile           ? "volatile"
                                                : "__restrict__";
    t->text = of->kind == STITCH_PARAM_POINTER ? join(s, of->text, words, "") : join(s, words, " ", of->text);
    t->is_const = is_const;
    return t;
}

static const type *template_param(state *s)
{
    int index = sequence(s, 10);
    if (index < 0 || (size_t)index >= s->args.count || *s->at == 'I')
        return give_up(s);
    const type *of = s->args.items[index];
    type *t = make(s, of->text, of->kind, of->dtype, of->size);
    if (t)
        *t = *of; /* a substitution of its own, even where it stands for the same type */
    return t;
}

static const type *function_type(state *s)
{
    eat(s, 'Y');
    while (!s->failed && !eat(s, 'E'))
        parse_type(s);
    return s->failed ? NULL : make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
}

static const type *array_type(state *s)
{
    s->at += strspn(s->at, "0123456789");
    if (!eat(s, '_') || !parse_type(s))
        return give_up(s);
    return make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
}

/* D codes: half precision types and pack expansions; the rest is not understood. */
static const type *d_type(state *s, bool *substitutable)
{
    *substitutable = false;
    if (strncmp(s->at, "Dp", 2) == 0) {
        s->at += 2;
        *substitutable = true;
        if (*s->at != 'T')
            return give_up(s); /* patterns other than a plain pack */
        const type *pack = parse_type(s);
        if (!pack || !pack->pack)
            return give_up(s);
        type *t = make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
        if (t) {
            t->pack = pack->pack;
            t->expansion = true;
        }
        return t;
    }
    if (strncmp(s->at, "DF16_", 5) == 0) {
        s->at += 5;
        return make(s, "_Float16", STITCH_PARAM_SCALAR, STITCH_DTYPE_F16, 2);
    }
    if (strncmp(s->at, "DF16b", 5) == 0) {
        s->at += 5;
        return make(s, "__bf16", STITCH_PARAM_SCALAR, STITCH_DTYPE_BF16, 2);
    }
    return give_up(s);
}

static const type *parse_type_inner(state *s)
{
    const type *t = NULL;
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
        const type *to = parse_type(s);
        t = to ? pointer_to(s, to, mark) : NULL;
        break;
    }
    case 'T':
        s->at++;
        t = template_param(s);
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
        t = nested(s, NULL);
        break;
    case 'D': t = d_type(s, &substitutable); break;
    case 'S':
        if (s->at[1] == 't') {
            t = unscoped(s, NULL);
            break;
        }
        s->at++;
        t = substitution(s);
        if (t && eat(s, 'I'))
            t = instance(s, t->text, NULL);
        else
            substitutable = false;
        break;
    default:
        if (name_starts(s)) {
            t = unscoped(s, NULL);
        } else {
            t = builtin(s);
            substitutable = false;
        }
    }
    if (!t || s->failed)
        return give_up(s);
    if (substitutable && !append(s, &s->subs, t))
        return NULL;
    return t;
}

static const type *parse_type(state *s)
{
    if (s->failed || ++s->depth > MAX_DEPTH)
        return give_up(s);
    const type *t = parse_type_inner(s);
    s->depth--;
    return t;
}

/* ---- the whole name ---- */

static void to_param(const type *t, stitch_param_info *p)
{
    *p = (stitch_param_info)STITCH_PARAM_INFO_INIT;
    p->kind = t->kind;
    p->dtype = t->dtype;
    p->is_const = t->kind == STITCH_PARAM_POINTER && t->pointee && t->pointee->is_const;
    p->is_tensor_map = t->tensor_map;
    p->size = t->size;
    p->type = t->text ? t->text : "";
}

static bool parse_params(state *s, list *params)
{
    bool only_void = false;
    while (!s->failed && *s->at && *s->at != '.') {
        const type *t = parse_type(s);
        if (!t)
            return false;
        only_void = only_void || t->is_void;
        for (size_t i = 0; t->expansion && i < t->pack->count; i++) {
            if (!append(s, params, t->pack->items[i]))
                return false;
        }
        if (!t->expansion && !append(s, params, t))
            return false;
    }
    if (only_void) {
        if (params->count != 1)
            return give_up(s) != NULL;
        params->count = 0;
    }
    return !s->failed;
}

int stitch__demangle(stitch__arena *arena, const char *symbol, stitch__demangled *out)
{
    state s = {.arena = arena, .at = symbol};
    list params = {0};
    *out = (stitch__demangled){0};
    out->name = stitch__arena_strdup(arena, symbol);
    if (!out->name)
        return STITCH_E_NOMEM;
    if (strncmp(symbol, "_Z", 2) != 0) {
        out->base = out->name;
        return STITCH_OK;
    }
    s.at += 2;
    const type *name = NULL;
    if (eat(&s, 'N'))
        name = nested(&s, &s.args);
    else
        name = unscoped(&s, &s.args);
    if (s.nomem)
        return STITCH_E_NOMEM;
    if (!name || s.failed || !name->text)
        return STITCH_OK;
    bool is_template = s.last_is_template;
    out->name = stitch__arena_strdup(arena, name->text);
    out->base = stitch__arena_strdup(arena, s.base ? s.base : name->text);
    if (!out->name || !out->base)
        return STITCH_E_NOMEM;
    out->is_template = is_template;
    if (is_template)
        parse_type(&s); /* templates carry their return type */
    bool understood = !s.failed && *s.at && parse_params(&s, &params);
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
