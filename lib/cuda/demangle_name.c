/* SPDX-License-Identifier: MIT
 *
 * Names of functions and types: nested ones, instances of templates, and what is local to a function, lambdas above
 * all.
 */
#include <stdio.h>

#include "cuda/demangle.h"

static const char *source_name(stitch__dm_state *s)
{
    size_t n = 0;
    for (int digits = 0; *s->at >= '0' && *s->at <= '9'; s->at++) {
        if (++digits > 4)
            return stitch__dm_give_up(s);
        n = n * 10 + (size_t)(*s->at - '0');
    }
    if (n == 0 || memchr(s->at, '\0', n))
        return stitch__dm_give_up(s);
    const char *text = s->at;
    s->at += n;
    if (n >= 11 && memcmp(text, "_GLOBAL__N_", 11) == 0)
        return "(anonymous namespace)";
    const char *copy = stitch__arena_strndup(s->arena, text, n);
    return copy ? copy : stitch__dm_out_of_memory(s);
}

static const char *function(stitch__dm_state *s, bool with_params);

/* L <type> <value> E: an integer, bool or enumerator. */
static const stitch__dm_type *literal(stitch__dm_state *s)
{
    const char *sign = "";
    bool is_bool = *s->at == 'b';
    bool builtin = *s->at >= 'a' && *s->at <= 'z';
    const stitch__dm_type *t = stitch__dm_parse_type(s);
    if (!t)
        return NULL;
    if (stitch__dm_eat(s, 'n'))
        sign = "-";
    size_t digits = strspn(s->at, "0123456789");
    if (digits == 0 || digits > 20 || s->at[digits] != 'E')
        return stitch__dm_give_up(s); /* floating-point values and the like */
    const char *value = stitch__arena_strndup(s->arena, s->at, digits);
    if (!value)
        return stitch__dm_out_of_memory(s);
    s->at += digits + 1;
    const char *text = is_bool ? (strcmp(value, "0") == 0 ? "false" : "true") : stitch__dm_join(s, sign, value, "");
    if (!builtin) {
        const char *cast = stitch__dm_join(s, "(", t->text, ")");
        text = stitch__dm_join(s, cast, text, "");
    }
    return stitch__dm_make(s, text, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
}

/* Up to and with the E. */
static bool template_args(stitch__dm_state *s, stitch__dm_list *out)
{
    while (!s->failed && !stitch__dm_eat(s, 'E')) {
        const stitch__dm_type *t = NULL;
        if (strncmp(s->at, "L_Z", 3) == 0) {
            s->at += 3;
            t = stitch__dm_make(s, function(s, false), STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
        } else if (strncmp(s->at, "XadL_Z", 6) == 0) {
            s->at += 6;
            t = stitch__dm_make(s, stitch__dm_join(s, "&", function(s, false), ""), STITCH_PARAM_UNKNOWN,
                                STITCH_DTYPE_NONE, 0);
            if (!stitch__dm_eat(s, 'E'))
                return stitch__dm_give_up(s) != NULL;
        } else if (stitch__dm_eat(s, 'L')) {
            t = literal(s);
        } else if (*s->at == 'X') {
            s->at++;
            if (*s->at != 'T') /* anything but a template parameter is an expression */
                return stitch__dm_give_up(s) != NULL;
            t = stitch__dm_parse_type(s);
            if (!stitch__dm_eat(s, 'E'))
                return stitch__dm_give_up(s) != NULL;
        } else if (stitch__dm_eat(s, 'J')) {
            stitch__dm_list *pack = stitch__arena_alloc(s->arena, sizeof(*pack));
            stitch__dm_type *holder = stitch__dm_make(s, NULL, STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
            if (!pack || !holder)
                return stitch__dm_out_of_memory(s) != NULL;
            if (++s->depth > STITCH__DM_DEPTH || !template_args(s, pack))
                return stitch__dm_give_up(s) != NULL;
            s->depth--;
            holder->pack = pack;
            t = holder;
        } else {
            t = stitch__dm_parse_type(s);
        }
        if (!stitch__dm_append(s, out, t))
            return false;
    }
    return !s->failed;
}

static const char *args_text(stitch__dm_state *s, const stitch__dm_list *args)
{
    const char *text = "<", *comma = "";
    for (size_t i = 0; i < args->count; i++) {
        const stitch__dm_list *pack = args->items[i]->pack;
        for (size_t k = 0; k < (pack ? pack->count : 1); k++) {
            const stitch__dm_type *t = pack ? pack->items[k] : args->items[i];
            text = stitch__dm_join(s, text, comma, t->text);
            comma = ", ";
        }
    }
    return stitch__dm_join(s, text, ">", "");
}

/* I args E behind the name `text`; `into` receives the arguments where the caller wants them. */
const stitch__dm_type *stitch__dm_instance(stitch__dm_state *s, const char *text, stitch__dm_list *into)
{
    stitch__dm_list args = {0};
    if (!template_args(s, &args))
        return NULL;
    s->base = text;
    s->last_is_template = true;
    if (into)
        *into = args;
    return stitch__dm_named(s, stitch__dm_join(s, text, args_text(s, &args), ""), true);
}

/* In terms of another function's template arguments. */
static const stitch__dm_type *parse_again(stitch__dm_state *s, const stitch__dm_type *t)
{
    const char *at = s->at;
    size_t count = s->subs.count;
    if (!t->from)
        return stitch__dm_give_up(s);
    s->at = t->from;
    t = stitch__dm_parse_type(s);
    s->at = at;
    s->subs.count = count;
    return t;
}

const stitch__dm_type *stitch__dm_substitution(stitch__dm_state *s)
{
    static const struct {
        char code;
        const char *name;
    } known[] = {{'a', "std::allocator"}, {'b', "std::basic_string"}, {'s', "std::string"},
                 {'i', "std::istream"},   {'o', "std::ostream"},      {'d', "std::iostream"}};
    const stitch__dm_type *t;
    int index;
    for (size_t i = 0; i < STITCH__COUNT(known); i++) {
        if (stitch__dm_eat(s, known[i].code))
            return stitch__dm_named(s, known[i].name, false);
    }
    index = stitch__dm_sequence(s, 36);
    if (index < 0 || (size_t)index >= s->subs.count)
        return stitch__dm_give_up(s);
    t = s->subs.items[index];
    s->depends |= t->depends;
    return t->depends && t->function != s->function ? parse_again(s, t) : t;
}

bool stitch__dm_name_starts(const stitch__dm_state *s)
{
    return (*s->at >= '0' && *s->at <= '9') || (*s->at == 'L' && s->at[1] >= '0' && s->at[1] <= '9');
}

static const char *unqualified(stitch__dm_state *s)
{
    if (*s->at == 'L') /* internal linkage */
        s->at++;
    return source_name(s);
}

/* ---- functions, and what is local to them ---- */

/* Two letters; NULL: no operator. */
static const char *operator_name(stitch__dm_state *s)
{
    static const struct {
        char code[3];
        const char *name;
    } operators[] = {
        {"cl", "()"},  {"ix", "[]"},   {"eq", "=="},      {"ne", "!="},  {"lt", "<"},   {"gt", ">"},  {"le", "<="},
        {"ge", ">="},  {"ss", "<=>"},  {"pl", "+"},       {"mi", "-"},   {"ml", "*"},   {"dv", "/"},  {"rm", "%"},
        {"an", "&"},   {"or", "|"},    {"eo", "^"},       {"ls", "<<"},  {"rs", ">>"},  {"aa", "&&"}, {"oo", "||"},
        {"nt", "!"},   {"co", "~"},    {"ng", "-"},       {"ps", "+"},   {"de", "*"},   {"ad", "&"},  {"pp", "++"},
        {"mm", "--"},  {"aS", "="},    {"pL", "+="},      {"mI", "-="},  {"mL", "*="},  {"dV", "/="}, {"rM", "%="},
        {"aN", "&="},  {"oR", "|="},   {"eO", "^="},      {"lS", "<<="}, {"rS", ">>="}, {"cm", ","},  {"pt", "->"},
        {"pm", "->*"}, {"nw", " new"}, {"dl", " delete"},
    };
    for (size_t i = 0; i < STITCH__COUNT(operators); i++) {
        if (strncmp(s->at, operators[i].code, 2) != 0)
            continue;
        s->at += 2;
        return stitch__dm_join(s, "operator", operators[i].name, "");
    }
    return NULL;
}

/* "{lambda(float)#1}", "{unnamed type#1}"; after the U. */
static const char *unnamed(stitch__dm_state *s)
{
    stitch__dm_list params = {0};
    const char *text = "{unnamed type";
    char number[16];
    int n;
    if (stitch__dm_eat(s, 'l')) {
        const bool in_lambda = s->in_lambda, depends = s->depends;
        const int outside = s->function;
        s->in_lambda = true;
        s->function = ++s->functions;
        if (!stitch__dm_params(s, false, &params))
            return NULL;
        s->in_lambda = in_lambda;
        s->function = outside;
        s->depends = depends;
        text = stitch__dm_join(s, "{lambda", stitch__dm_params_text(s, &params), "");
    } else if (!stitch__dm_eat(s, 't')) {
        return stitch__dm_give_up(s);
    }
    n = stitch__dm_sequence(s, 10);
    if (n < 0)
        return stitch__dm_give_up(s);
    snprintf(number, sizeof(number), "#%d}", n + 1);
    return stitch__dm_join(s, text, number, "");
}

/* A whole function ("f<int>(float) const"; without parameters "f<int>"), or an object; up to and with its E. */
static const char *function(stitch__dm_state *s, bool with_params)
{
    const stitch__dm_list outer = s->args;
    const bool in_lambda = s->in_lambda, depends = s->depends;
    const int outside = s->function;
    const stitch__dm_type *name;
    stitch__dm_list params = {0};
    const char *text;
    bool is_const, is_object;
    s->args = (stitch__dm_list){0};
    s->function = ++s->functions;
    s->in_lambda = s->last_is_template = s->last_is_const = false;
    if (++s->depth > STITCH__DM_DEPTH)
        return stitch__dm_give_up(s);
    if (stitch__dm_eat(s, 'N'))
        name = stitch__dm_nested(s, &s->args);
    else if (stitch__dm_eat(s, 'Z'))
        name = stitch__dm_local(s, &s->args);
    else
        name = stitch__dm_unscoped(s, &s->args);
    is_const = s->last_is_const;
    is_object = name && *s->at == 'E';
    if (name && !is_object && s->last_is_template) /* templates carry their return type */
        stitch__dm_parse_type(s);
    if (!name || s->failed || !stitch__dm_params(s, false, &params))
        return stitch__dm_give_up(s);
    text = is_object || !with_params
               ? name->text
               : stitch__dm_join(s, name->text, stitch__dm_params_text(s, &params), is_const ? " const" : "");
    s->args = outer;
    s->function = outside;
    s->in_lambda = in_lambda;
    s->depends = depends;
    s->depth--;
    return text;
}

/* _0, or __10_: which of several of the same name in a function. */
static void skip_discriminator(stitch__dm_state *s)
{
    if (s->at[0] == '_' && s->at[1] >= '0' && s->at[1] <= '9') {
        s->at += 2;
    } else if (s->at[0] == '_' && s->at[1] == '_') {
        size_t digits = strspn(s->at + 2, "0123456789");
        if (digits && s->at[2 + digits] == '_')
            s->at += 3 + digits;
    }
}

const stitch__dm_type *stitch__dm_local(stitch__dm_state *s, stitch__dm_list *into)
{
    const char *scope = function(s, true);
    const stitch__dm_type *entity = NULL;
    if (!scope)
        return stitch__dm_give_up(s);
    s->last_is_template = s->last_is_const = false;
    if (stitch__dm_eat(s, 'N'))
        entity = stitch__dm_nested(s, into);
    else
        entity = stitch__dm_unscoped(s, into);
    if (!entity)
        return NULL;
    skip_discriminator(s);
    return stitch__dm_named(s, stitch__dm_join(s, scope, "::", entity->text), s->last_is_template);
}

/* ---- nested and other names ---- */

/* Members: K and its like come before what they belong to. */
static bool member_qualifiers(stitch__dm_state *s)
{
    bool is_const = false;
    for (; *s->at == 'r' || *s->at == 'V' || *s->at == 'K'; s->at++)
        is_const |= *s->at == 'K';
    if (*s->at == 'R' || *s->at == 'O')
        s->at++;
    return is_const;
}

/* The next part of a nested name, without what comes before it; NULL: it is none that is understood. */
static const char *part(stitch__dm_state *s, const char *last)
{
    if (stitch__dm_name_starts(s))
        return unqualified(s);
    if (stitch__dm_eat(s, 'U'))
        return unnamed(s);
    if (last && (*s->at == 'C' || *s->at == 'D') && s->at[1] >= '0' && s->at[1] <= '5') {
        bool destroys = *s->at == 'D';
        s->at += 2;
        return destroys ? stitch__dm_join(s, "~", last, "") : last;
    }
    return operator_name(s);
}

/* Part of a name: it cannot be parsed again. */
static bool add_prefix(stitch__dm_state *s, const stitch__dm_type *prefix)
{
    stitch__dm_type *own = stitch__dm_make(s, NULL, 0, 0, 0);
    if (!own)
        return false;
    *own = *prefix;
    own->depends = s->depends;
    own->function = s->function;
    own->from = NULL;
    return stitch__dm_append(s, &s->subs, own);
}

const stitch__dm_type *stitch__dm_nested(stitch__dm_state *s, stitch__dm_list *into)
{
    const stitch__dm_type *prefix = NULL;
    const char *last = NULL; /* the part before, without template arguments */
    bool is_const = member_qualifiers(s), is_template = false;
    while (!s->failed && !stitch__dm_eat(s, 'E')) {
        bool add = true;
        if (*s->at == 'S' && s->at[1] == 't') {
            s->at += 2;
            prefix = stitch__dm_make(s, "std", STITCH_PARAM_UNKNOWN, STITCH_DTYPE_NONE, 0);
            add = is_template = false;
        } else if (*s->at == 'S' && !prefix) {
            s->at++;
            prefix = stitch__dm_substitution(s);
            add = is_template = false;
        } else if (*s->at == 'T' && !prefix) {
            s->at++;
            prefix = stitch__dm_template_param(s);
        } else if (*s->at == 'I' && prefix) {
            s->at++;
            prefix = stitch__dm_instance(s, prefix->text, into);
            is_template = true;
        } else if (prefix && stitch__dm_eat(s, 'M')) { /* a lambda that initialises it follows */
            add = false;
        } else {
            last = part(s, last);
            if (!last)
                return stitch__dm_give_up(s);
            is_template = false;
            prefix = stitch__dm_named(s, prefix ? stitch__dm_join(s, prefix->text, "::", last) : last, false);
            s->base = prefix ? prefix->text : NULL;
        }
        if (!prefix)
            return stitch__dm_give_up(s);
        if (add && *s->at != 'E' && !add_prefix(s, prefix))
            return NULL;
    }
    s->last_is_template = is_template;
    s->last_is_const = is_const;
    return s->failed ? NULL : prefix;
}

const stitch__dm_type *stitch__dm_unscoped(stitch__dm_state *s, stitch__dm_list *into)
{
    const char *name, *scope = NULL;
    const stitch__dm_type *t;
    if (*s->at == 'S' && s->at[1] == 't') {
        s->at += 2;
        scope = "std::";
    }
    name = part(s, NULL);
    if (!name)
        return stitch__dm_give_up(s);
    if (scope)
        name = stitch__dm_join(s, scope, name, "");
    s->last_is_template = s->last_is_const = false;
    s->base = name;
    t = stitch__dm_named(s, name, false);
    if (t && stitch__dm_eat(s, 'I')) {
        if (!stitch__dm_append(s, &s->subs, t))
            return NULL;
        t = stitch__dm_instance(s, name, into);
    }
    return t;
}
