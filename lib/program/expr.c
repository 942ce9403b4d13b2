/* SPDX-License-Identifier: MIT
 *
 * Integer expressions: parsed once into postfix code, evaluated with checks for overflow and division by zero.
 *
 *     expression = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
 *     sum        = product {("+" | "-") product}
 *     product    = unary {("*" | "/" | "%") unary}
 *     unary      = ["-" | "+"] unary | number | name | function "(" expression "," expression ")" | "(" expression ")"
 */
#include <stdio.h>

#include "program/program.h"

enum expr_op {
    OP_NUMBER,
    OP_SYMBOL,
    OP_NEGATE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_MOD,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_EQ,
    OP_NE,
    OP_MIN,
    OP_MAX,
    OP_CEIL_DIV,
    OP_ALIGN_UP,
};

static const char *const functions[] = {"min", "max", "ceil_div", "align_up"};

static size_t slot_of(const stitch__symbols *s, const char *name, size_t len)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)name[i]) * UINT64_C(1099511628211);
    size_t mask = 2 * s->cap - 1, slot = (size_t)(h ^ h >> 32) & mask;
    while (s->table[slot]) {
        const char *there = s->names[s->table[slot] - 1];
        if (strncmp(there, name, len) == 0 && !there[len])
            break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

int32_t stitch__symbol_find(const stitch__symbols *s, const char *name, size_t len)
{
    return s->cap ? s->table[slot_of(s, name, len)] - 1 : -1;
}

static bool grow_symbols(stitch__symbols *s)
{
    size_t cap = s->cap ? s->cap * 2 : 32; /* a power of two */
    const char **names = stitch__arena_array(s->arena, cap, sizeof(*names));
    int32_t *table = stitch__arena_array(s->arena, 2 * cap, sizeof(*table));
    if (!names || !table)
        return false;
    if (s->count)
        memcpy(names, s->names, s->count * sizeof(*names));
    s->names = names;
    s->table = table;
    s->cap = cap;
    for (size_t i = 0; i < s->count; i++)
        table[slot_of(s, names[i], strlen(names[i]))] = (int32_t)i + 1;
    return true;
}

int32_t stitch__symbol(stitch__symbols *s, const char *name, size_t len)
{
    int32_t found = stitch__symbol_find(s, name, len);
    if (found >= 0)
        return found;
    if (s->count == s->cap && !grow_symbols(s))
        return -1;
    char *copy = stitch__arena_strndup(s->arena, name, len);
    if (!copy)
        return -1;
    s->table[slot_of(s, name, len)] = (int32_t)s->count + 1;
    s->names[s->count] = copy;
    return (int32_t)s->count++;
}

typedef struct parser {
    stitch__arena *arena;
    stitch__symbols *symbols;
    const char *text;
    size_t len, pos;
    int depth;  /* of the recursion */
    int height; /* of the evaluation stack */
    stitch__expr_op *code;
    size_t count;
    stitch_error **err;
} parser;

static int fail(parser *p, size_t pos, const char *what)
{
    return stitch__err(p->arena->ctx, p->err, STITCH_E_FORMAT, "\"%.*s\", column %zu: %s",
                       (int)(p->len < 120 ? p->len : 120), p->text, pos + 1, what);
}

static void skip_space(parser *p)
{
    while (p->pos < p->len && (p->text[p->pos] == ' ' || p->text[p->pos] == '\t'))
        p->pos++;
}

static char peek(parser *p)
{
    skip_space(p);
    return p->pos < p->len ? p->text[p->pos] : 0;
}

/* The code array has room for one entry a character, which is enough: every entry comes from at least one. */
static int emit(parser *p, enum expr_op op, size_t pos, int32_t symbol, int64_t number)
{
    p->code[p->count++] = (stitch__expr_op){(uint8_t)op, (uint16_t)(pos + 1), symbol, number};
    p->height += op == OP_NUMBER || op == OP_SYMBOL ? 1 : op == OP_NEGATE ? 0 : -1;
    if (p->height > STITCH__EXPR_MAX_DEPTH)
        return fail(p, pos, "nested too deeply");
    return STITCH_OK;
}

static bool name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool name_part(char c)
{
    return name_start(c) || (c >= '0' && c <= '9') || c == '.';
}

static int comparison(parser *p);

static int number(parser *p)
{
    size_t start = p->pos;
    int64_t v = 0;
    while (p->pos < p->len && p->text[p->pos] >= '0' && p->text[p->pos] <= '9') {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, p->text[p->pos] - '0', &v))
            return fail(p, start, "the number does not fit into 64 bits");
        p->pos++;
    }
    if (p->pos < p->len && p->text[p->pos] == '.')
        return fail(p, p->pos,
                    "expressions are integers; a value with a fraction is written as a plain number, without quotes");
    if (p->pos < p->len && name_part(p->text[p->pos]))
        return fail(p, p->pos, "expected an operator after the number");
    return emit(p, OP_NUMBER, start, -1, v);
}

static int call(parser *p, size_t start, size_t len)
{
    char name[32];
    size_t f = 0;
    snprintf(name, sizeof(name), "%.*s", (int)(len < 31 ? len : 31), p->text + start);
    while (f < STITCH__COUNT(functions) && strcmp(functions[f], name) != 0)
        f++;
    if (f == STITCH__COUNT(functions))
        return fail(p, start, "there is no such function; there are min, max, ceil_div and align_up");
    p->pos++;
    int rc = comparison(p);
    if (rc)
        return rc;
    if (peek(p) != ',')
        return fail(p, p->pos, "expected ',': functions take two arguments");
    p->pos++;
    if ((rc = comparison(p)) != STITCH_OK)
        return rc;
    if (peek(p) != ')')
        return fail(p, p->pos, "expected ')': functions take two arguments");
    p->pos++;
    return emit(p, (enum expr_op)(OP_MIN + f), start, -1, 0);
}

static int primary(parser *p)
{
    char c = peek(p);
    size_t start = p->pos;
    if (c >= '0' && c <= '9')
        return number(p);
    if (c == '(') {
        p->pos++;
        int rc = comparison(p);
        if (rc)
            return rc;
        if (peek(p) != ')')
            return fail(p, p->pos, "expected ')'");
        p->pos++;
        return STITCH_OK;
    }
    if (!name_start(c))
        return fail(p, start,
                    c ? "expected a number, a name or '('" : "it ends where a number, a name or '(' is expected");
    while (p->pos < p->len && name_part(p->text[p->pos]))
        p->pos++;
    size_t len = p->pos - start;
    if (peek(p) == '(')
        return call(p, start, len);
    if (len > 255)
        return fail(p, start, "the name is longer than 255 bytes");
    int32_t symbol = stitch__symbol(p->symbols, p->text + start, len);
    return symbol < 0 ? stitch__err_nomem(p->arena->ctx, p->err) : emit(p, OP_SYMBOL, start, symbol, 0);
}

static int unary(parser *p)
{
    size_t minus[STITCH__EXPR_MAX_DEPTH], count = 0;
    for (char c = peek(p); c == '-' || c == '+'; c = peek(p)) {
        if (c == '-') {
            if (count == STITCH__COUNT(minus))
                return fail(p, p->pos, "nested too deeply");
            minus[count++] = p->pos;
        }
        p->pos++;
    }
    int rc = primary(p);
    while (rc == STITCH_OK && count)
        rc = emit(p, OP_NEGATE, minus[--count], -1, 0);
    return rc;
}

static int product(parser *p)
{
    int rc = unary(p);
    while (rc == STITCH_OK) {
        char c = peek(p);
        size_t at = p->pos;
        if (c != '*' && c != '/' && c != '%')
            break;
        p->pos++;
        if (c == '/' && p->pos < p->len && p->text[p->pos] == '/')
            return fail(p, at, "use '/' for division: it truncates");
        if (c == '*' && p->pos < p->len && p->text[p->pos] == '*')
            return fail(p, at, "there is no power operator");
        rc = unary(p);
        if (rc == STITCH_OK)
            rc = emit(p, c == '*' ? OP_MUL : c == '/' ? OP_DIV : OP_MOD, at, -1, 0);
    }
    return rc;
}

static int sum(parser *p)
{
    int rc = product(p);
    while (rc == STITCH_OK) {
        char c = peek(p);
        size_t at = p->pos;
        if (c != '+' && c != '-')
            break;
        p->pos++;
        rc = product(p);
        if (rc == STITCH_OK)
            rc = emit(p, c == '+' ? OP_ADD : OP_SUB, at, -1, 0);
    }
    return rc;
}

static int comparison(parser *p)
{
    if (p->depth == STITCH__EXPR_MAX_DEPTH)
        return fail(p, p->pos, "nested too deeply");
    p->depth++;
    int rc = sum(p);
    char c = peek(p);
    size_t at = p->pos;
    if (rc == STITCH_OK && (c == '<' || c == '>' || c == '=' || c == '!')) {
        bool equal = p->pos + 1 < p->len && p->text[p->pos + 1] == '=';
        if (!equal && (c == '=' || c == '!'))
            return fail(p, at, "expected '==' or '!='");
        p->pos += equal ? 2 : 1;
        rc = sum(p);
        if (rc == STITCH_OK)
            rc = emit(p,
                      c == '<'   ? (equal ? OP_LE : OP_LT)
                      : c == '>' ? (equal ? OP_GE : OP_GT)
                      : c == '=' ? OP_EQ
                                 : OP_NE,
                      at, -1, 0);
    }
    p->depth--;
    return rc;
}

int stitch__expr_parse(stitch__arena *arena, stitch__symbols *symbols, const char *text, size_t len, stitch__expr **out,
                       stitch_error **err)
{
    stitch__expr_op code[STITCH__EXPR_MAX_LENGTH];
    parser p = {arena, symbols, text, len, 0, 0, 0, code, 0, err};

    *out = NULL;
    if (len > STITCH__EXPR_MAX_LENGTH)
        return stitch__err(arena->ctx, err, STITCH_E_LIMIT, "the expression has %zu bytes, the limit is %d", len,
                           STITCH__EXPR_MAX_LENGTH);
    int rc = comparison(&p);
    if (rc)
        return rc;
    if (peek(&p))
        return fail(&p, p.pos, "expected an operator or the end");
    stitch__expr *e = stitch__arena_alloc(arena, sizeof(*e));
    stitch__expr_op *copy = stitch__arena_array(arena, p.count, sizeof(*copy));
    char *kept = stitch__arena_strndup(arena, text, len);
    if (!e || !copy || !kept)
        return stitch__err_nomem(arena->ctx, err);
    memcpy(copy, code, p.count * sizeof(*copy));
    e->text = kept;
    e->code = copy;
    e->count = p.count;
    *out = e;
    return STITCH_OK;
}

int stitch__expr_constant(stitch__arena *arena, int64_t value, stitch__expr **out, stitch_error **err)
{
    stitch__expr *e = stitch__arena_alloc(arena, sizeof(*e));
    stitch__expr_op *code = stitch__arena_alloc(arena, sizeof(*code));
    char *text = stitch__arena_printf(arena, "%" PRId64, value);

    *out = NULL;
    if (!e || !code || !text)
        return stitch__err_nomem(arena->ctx, err);
    *code = (stitch__expr_op){OP_NUMBER, 1, -1, value};
    e->text = text;
    e->code = code;
    e->count = 1;
    *out = e;
    return STITCH_OK;
}

bool stitch__expr_number(const stitch__expr *e, int64_t *out)
{
    if (!e || e->count != 1 || e->code[0].op != OP_NUMBER)
        return false;
    *out = e->code[0].number;
    return true;
}

static const char *divide(enum expr_op op, int64_t a, int64_t b, int64_t *r)
{
    if (b == 0)
        return "division by zero";
    if (a == INT64_MIN && b == -1)
        return "the result does not fit into 64 bits";
    switch (op) {
    case OP_DIV: *r = a / b; return NULL;
    case OP_MOD: *r = a % b; return NULL;
    default: break;
    }
    if (a < 0 || b < 0)
        return "ceil_div and align_up need arguments that are not negative";
    int64_t q = a / b + (a % b != 0);
    if (op == OP_CEIL_DIV)
        *r = q;
    else if (__builtin_mul_overflow(q, b, r))
        return "the result does not fit into 64 bits";
    return NULL;
}

/* NULL, or what is wrong. */
static const char *binary(enum expr_op op, int64_t a, int64_t b, int64_t *r)
{
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, r); break;
    case OP_LT: *r = a < b; break;
    case OP_LE: *r = a <= b; break;
    case OP_GT: *r = a > b; break;
    case OP_GE: *r = a >= b; break;
    case OP_EQ: *r = a == b; break;
    case OP_NE: *r = a != b; break;
    case OP_MIN: *r = a < b ? a : b; break;
    case OP_MAX: *r = a > b ? a : b; break;
    default: return divide(op, a, b, r);
    }
    return over ? "the result does not fit into 64 bits" : NULL;
}

/* "'Z' is not known; did you mean 'C'?" or what names there are. */
static int unknown_name(const stitch__expr *e, const stitch__expr_op *op, const stitch__env *env, stitch_error **err)
{
    const char *known[256], *name = env->symbols->names[op->symbol];
    char list[256] = "";
    size_t count = 0, used = 0;
    for (size_t i = 0; i < env->symbols->count && count < STITCH__COUNT(known); i++) {
        if (env->values[i].state != STITCH__SYMBOL_UNKNOWN)
            known[count++] = env->symbols->names[i];
    }
    for (size_t i = 0; i < count && used + strlen(known[i]) + 3 < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", known[i]);
    const char *near = stitch__nearest(name, known, count);
    if (near)
        return stitch__err(env->ctx, err, STITCH_E_VALIDATE,
                           "\"%.120s\", column %u: '%.64s' is not known here; did you mean '%.64s'?", e->text,
                           op->column, name, near);
    return stitch__err(env->ctx, err, STITCH_E_VALIDATE,
                       "\"%.120s\", column %u: '%.64s' is not known here; known are %s", e->text, op->column, name,
                       *list ? list : "no names");
}

int stitch__expr_eval(stitch__expr *e, const stitch__env *env, int64_t *out, stitch_error **err)
{
    int64_t stack[STITCH__EXPR_MAX_DEPTH + 1] = {0};
    size_t top = 0;
    bool loop = false;

    if (e->memo_epoch == env->epoch) {
        *out = e->memo_value;
        return STITCH_OK;
    }
    for (size_t i = 0; i < e->count; i++) {
        const stitch__expr_op *op = &e->code[i];
        const char *problem = NULL;
        if (op->op == OP_NUMBER) {
            stack[top++] = op->number;
        } else if (op->op == OP_SYMBOL) {
            const stitch__symbol_value *v = &env->values[op->symbol];
            if (v->state == STITCH__SYMBOL_UNKNOWN)
                return unknown_name(e, op, env, err);
            loop |= v->state == STITCH__SYMBOL_LOOP;
            stack[top++] = v->value;
        } else if (op->op == OP_NEGATE) {
            if (__builtin_sub_overflow(0, stack[top - 1], &stack[top - 1]))
                problem = "the result does not fit into 64 bits";
        } else {
            top--;
            problem = binary((enum expr_op)op->op, stack[top - 1], stack[top], &stack[top - 1]);
        }
        if (problem)
            return stitch__err(env->ctx, err, STITCH_E_VALIDATE, "\"%.120s\", column %u: %s", e->text, op->column,
                               problem);
    }
    *out = stack[0];
    if (!loop) {
        e->memo_epoch = env->epoch;
        e->memo_value = *out;
    }
    return STITCH_OK;
}
