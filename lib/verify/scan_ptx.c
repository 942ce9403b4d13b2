/* SPDX-License-Identifier: MIT
 *
 * What PTX computes with, by the text of its instructions, and what it does with module variables.
 *
 * Statements end with ';', '{' or '}'; comments and strings are no statements. Where a variable's address goes is
 * followed through the names of registers and parameters, whatever the order of statements: what is said to be read
 * only is never written through an address that the code itself makes.
 */
#include <stdlib.h>

#include "verify/scan.h"

enum { MAX_TOKENS = 256, MAX_PASSES = 16, MAX_FOLLOWED = 64 };

typedef struct token {
    const char *s;
    size_t len;
} token;

typedef struct statement {
    token t[MAX_TOKENS]; /* what comes after that is left out, and `cut` */
    size_t count;
    bool cut;
    char end; /* ';', '{', '}', or 0 at the end of the text */
    int line;
} statement;

typedef struct text {
    const char *at, *end;
    int line;
} text;

/* A register or parameter that may hold addresses of variables, one bit for each. */
typedef struct holder {
    token function, name; /* function: len 0 for names of the whole module */
    uint64_t mask;
} holder;

typedef struct reader {
    stitch__scan *scan;
    token function;           /* that the text is in */
    stitch__scan_function *f; /* NULL: not wanted, or outside of functions */
    holder *holders;          /* open addressing, a power of two */
    size_t holder_count, holder_cap;
    bool changed, nomem;
    uint64_t written, escaped;
} reader;

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%' || c == '.';
}

/* ---- statements ---- */

static void skip_blank(text *x)
{
    while (x->at < x->end) {
        const char *p = x->at, *stop = NULL;
        if (*p == '/' && p + 1 < x->end && p[1] == '/')
            stop = memchr(p, '\n', (size_t)(x->end - p));
        else if (*p == '/' && p + 1 < x->end && p[1] == '*')
            stop = memmem(p + 2, (size_t)(x->end - p - 2), "*/", 2);
        else if (*p != ' ' && (*p < '\t' || *p > '\r'))
            return;
        else
            stop = p + 1;
        if (!stop)
            stop = x->end;
        else if (*p == '/' && p[1] == '*')
            stop += 2;
        for (; x->at < stop; x->at++)
            x->line += *x->at == '\n';
    }
}

static token next(text *x)
{
    skip_blank(x);
    token t = {x->at, 0};
    if (x->at == x->end)
        return t;
    if (*x->at == '"') {
        const char *quote = memchr(x->at + 1, '"', (size_t)(x->end - x->at - 1));
        for (const char *stop = quote ? quote + 1 : x->end; x->at < stop; x->at++)
            x->line += *x->at == '\n';
    } else if (!is_word(*x->at)) {
        x->at++;
    } else {
        /* "::" belongs to a word, ':' ends a label */
        while (x->at < x->end && (is_word(*x->at) || (*x->at == ':' && x->end - x->at > 2 && x->at[1] == ':')))
            x->at += *x->at == ':' ? 2 : 1;
    }
    t.len = (size_t)(x->at - t.s);
    return t;
}

static bool is(token t, const char *word)
{
    return t.len == strlen(word) && memcmp(t.s, word, t.len) == 0;
}

static bool same(token a, token b)
{
    return a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
}

static bool starts(token t, const char *word)
{
    return t.len >= strlen(word) && memcmp(t.s, word, strlen(word)) == 0;
}

/* A '{' within a statement is a vector and ends none: it comes after an operand has begun. */
static bool next_statement(text *x, statement *st)
{
    unsigned depth = 0;
    st->count = 0;
    st->cut = false;
    st->end = 0;
    for (;;) {
        token t = next(x);
        if (t.len == 0)
            return st->count > 0;
        if (st->count == 0)
            st->line = x->line;
        bool directive = st->count > 0 && *st->t[0].s == '.';
        if (is(t, ";") || (is(t, "}") && depth == 0) || (is(t, "{") && (st->count == 0 || directive) && depth == 0)) {
            /* ".global .b8 x[2] = {1, 2};" */
            if (is(t, "{") && directive && is(st->t[st->count - 1], "=")) {
                depth++;
            } else {
                st->end = *t.s;
                return true;
            }
        } else if (is(t, "{")) {
            depth++;
        } else if (is(t, "}")) {
            depth--;
        } else if (is(t, ":") && st->count == 1) { /* a label */
            st->count = 0;
            continue;
        } else if (st->count == 1 && (is(st->t[0], ".loc") || is(st->t[0], ".file") || is(st->t[0], ".version") ||
                                      is(st->t[0], ".target") || is(st->t[0], ".address_size"))) {
            /* directives that a line end ends */
            const char *nl = memchr(t.s, '\n', (size_t)(x->end - t.s));
            x->at = nl ? nl : x->end;
            st->count = 0;
            continue;
        }
        if (st->count < MAX_TOKENS)
            st->t[st->count++] = t;
        else
            st->cut = true;
    }
}

/* ---- arithmetic ---- */

/* The modifiers of "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" that are types, at most `max`. */
static size_t types_of(token op, int *out, size_t max)
{
    static const struct {
        const char *text;
        uint8_t type;
    } types[] = {{"f64", STITCH__SCAN_F64},
                 {"f32", STITCH__SCAN_F32},
                 {"f32x2", STITCH__SCAN_F32},
                 {"tf32", STITCH__SCAN_TF32},
                 {"f16", STITCH__SCAN_F16},
                 {"f16x2", STITCH__SCAN_F16},
                 {"bf16", STITCH__SCAN_BF16},
                 {"bf16x2", STITCH__SCAN_BF16},
                 {"e4m3", STITCH__SCAN_E4M3},
                 {"e4m3x2", STITCH__SCAN_E4M3},
                 {"e4m3x4", STITCH__SCAN_E4M3},
                 {"e5m2", STITCH__SCAN_E5M2},
                 {"e5m2x2", STITCH__SCAN_E5M2},
                 {"e5m2x4", STITCH__SCAN_E5M2},
                 {"e3m2", STITCH__SCAN_NARROW_FLOAT},
                 {"e3m2x2", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m3", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m3x2", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m1", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m1x2", STITCH__SCAN_NARROW_FLOAT},
                 {"s8", STITCH__SCAN_INT8},
                 {"u8", STITCH__SCAN_INT8},
                 {"s4", STITCH__SCAN_INT4},
                 {"u4", STITCH__SCAN_INT4},
                 {"b1", STITCH__SCAN_BIT},
                 {"s16", STITCH__SCAN_INT32},
                 {"u16", STITCH__SCAN_INT32},
                 {"s32", STITCH__SCAN_INT32},
                 {"u32", STITCH__SCAN_INT32},
                 {"s64", STITCH__SCAN_INT32},
                 {"u64", STITCH__SCAN_INT32},
                 {"kind::tf32", STITCH__SCAN_TF32},
                 {"kind::f16", STITCH__SCAN_F16},
                 {"kind::i8", STITCH__SCAN_INT8},
                 {"kind::f8f6f4", STITCH__SCAN_E4M3},
                 {"kind::mxf8f6f4", STITCH__SCAN_E4M3},
                 {"kind::mxf4", STITCH__SCAN_NARROW_FLOAT},
                 {"kind::mxf4nvf4", STITCH__SCAN_NARROW_FLOAT}};
    size_t count = 0;
    const char *p = op.s, *end = op.s + op.len;
    while (p < end && count < max) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        token word = {p, (size_t)((dot ? dot : end) - p)};
        for (size_t i = 0; i < STITCH__COUNT(types); i++) {
            if (is(word, types[i].text)) {
                out[count++] = types[i].type;
                break;
            }
        }
        p = dot ? dot + 1 : end;
    }
    return count;
}

static bool has(token op, const char *modifier)
{
    size_t n = strlen(modifier);
    for (const char *p = memchr(op.s, '.', op.len); p; p = memchr(p, '.', (size_t)(op.s + op.len - p))) {
        p++;
        size_t left = (size_t)(op.s + op.len - p);
        if (left >= n && memcmp(p, modifier, n) == 0 && (left == n || p[n] == '.'))
            return true;
    }
    return false;
}

/* The name up to the first '.'. */
static token stem(token op)
{
    const char *dot = memchr(op.s, '.', op.len);
    return (token){op.s, dot ? (size_t)(dot - op.s) : op.len};
}

static bool is_half(int type)
{
    return type == STITCH__SCAN_F16 || type == STITCH__SCAN_BF16;
}

static void products(token op, stitch__sass *s)
{
    int t[8];
    size_t n = types_of(op, t, STITCH__COUNT(t));
    s->kind = STITCH__SCAN_TENSOR;
    s->a = s->b = s->acc = STITCH__SCAN_UNKNOWN;
    if (starts(op, "tcgen05.mma")) {
        if (n)
            s->a = s->b = t[0];
    } else if (n == 2 && starts(op, "wmma.mma")) { /* d and c: of f16 matrices */
        s->acc = t[0];
        s->a = s->b = STITCH__SCAN_F16;
    } else if (n >= 3) { /* d, a, b */
        s->acc = t[0];
        s->a = t[1];
        s->b = t[2];
    }
}

static void conversion(token op, stitch__sass *s)
{
    int t[4];
    if (types_of(op, t, 4) < 2)
        return;
    bool small =
        t[0] == STITCH__SCAN_TF32 || is_half(t[0]) || (t[0] >= STITCH__SCAN_E4M3 && t[0] <= STITCH__SCAN_NARROW_FLOAT);
    bool same_or_smaller =
        t[0] == t[1] || (is_half(t[0]) && t[1] >= STITCH__SCAN_E4M3 && t[1] <= STITCH__SCAN_NARROW_FLOAT);
    if (small && !same_or_smaller) {
        s->kind = STITCH__SCAN_CONVERT;
        s->a = t[0];
        s->b = t[1];
    }
}

static bool stores_global(token op)
{
    token name = stem(op);
    if (is(name, "st"))
        return !has(op, "shared") && !has(op, "local") && !has(op, "param") && !has(op, "async") &&
               !has(op, "shared::cta") && !has(op, "shared::cluster");
    if (is(name, "red") || is(name, "atom"))
        return !has(op, "shared") && !has(op, "shared::cta") && !has(op, "shared::cluster");
    if (is(name, "sust") || is(name, "sured"))
        return true;
    if (is(name, "multimem"))
        return !starts(op, "multimem.ld_reduce");
    if (starts(op, "cp.reduce.async.bulk"))
        return has(op, "global");
    const char *global = starts(op, "cp.async.bulk") ? memmem(op.s, op.len, ".global", 7) : NULL;
    const char *shared = global ? memmem(op.s, op.len, ".shared::", 9) : NULL;
    return global && !has(op, "prefetch") && shared && global < shared; /* the destination comes first */
}

static void store(token op, stitch__sass *s)
{
    int t[4];
    size_t n = is(stem(op), "st") ? 0 : types_of(op, t, 4);
    s->kind = STITCH__SCAN_STORE;
    s->acc = n && is_half(t[n - 1]) ? t[n - 1] : 0;
}

/* What an instruction is; its operands matter for special registers only. */
static void classify(const statement *st, size_t first, stitch__sass *s)
{
    static const char *const arithmetic[] = {"add", "sub", "mul", "fma", "mad", "ex2", "tanh", "div", "rcp", "sqrt"};
    token op = st->t[first], name = stem(op);
    memset(s, 0, sizeof(*s));
    memcpy(s->name, name.s, name.len < sizeof(s->name) - 1 ? name.len : sizeof(s->name) - 1);
    if (is(name, "mma") || starts(op, "wmma.mma") || starts(op, "wgmma.mma_async") || starts(op, "tcgen05.mma"))
        products(op, s);
    else if (is(name, "cvt"))
        conversion(op, s);
    else if (stores_global(op))
        store(op, s);
    else if ((is(name, "st") || is(name, "ld")) && has(op, "local"))
        s->kind = STITCH__SCAN_LOCAL;
    else if (is(name, "trap") || is(name, "brkpt"))
        s->kind = STITCH__SCAN_TRAP;
    for (size_t i = first + 1; i < st->count; i++) {
        if (starts(st->t[i], "%clock") || starts(st->t[i], "%globaltimer"))
            s->kind = STITCH__SCAN_CLOCK;
    }
    for (size_t i = 0; i < STITCH__COUNT(arithmetic) && s->kind == STITCH__SCAN_PLAIN; i++) {
        int t[4];
        size_t n = is(name, arithmetic[i]) ? types_of(op, t, 4) : 0;
        if (n && is_half(t[n - 1]) && is_half(t[0])) {
            s->kind = STITCH__SCAN_HALF;
            s->a = t[0];
        }
    }
    if (s->kind == STITCH__SCAN_PLAIN && (has(op, "approx") || is(name, "sin") || is(name, "cos"))) {
        s->kind = STITCH__SCAN_APPROX;
        s->a = STITCH__SCAN_F32;
    }
}

/* ---- where addresses go ---- */

static size_t hash(token a, token b)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < a.len; i++)
        h = (h ^ (unsigned char)a.s[i]) * 1099511628211u;
    h = (h ^ 255) * 1099511628211u;
    for (size_t i = 0; i < b.len; i++)
        h = (h ^ (unsigned char)b.s[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

static holder *slot_of(holder *list, size_t cap, token function, token name)
{
    size_t i = hash(function, name) & (cap - 1);
    while (list[i].name.s && !(same(list[i].name, name) && same(list[i].function, function)))
        i = (i + 1) & (cap - 1);
    return &list[i];
}

static bool grow(reader *r)
{
    size_t cap = r->holder_cap ? r->holder_cap * 2 : 256;
    holder *list = stitch__calloc(r->scan->ctx, cap, sizeof(*list));
    if (!list)
        return false;
    for (size_t i = 0; i < r->holder_cap; i++) {
        if (r->holders[i].name.s)
            *slot_of(list, cap, r->holders[i].function, r->holders[i].name) = r->holders[i];
    }
    stitch_free(r->holders);
    r->holders = list;
    r->holder_cap = cap;
    return true;
}

static uint64_t mask_of(const reader *r, token function, token name)
{
    bool variable = *name.s != '%' && is_word(*name.s); /* registers are many, and looked up below */
    for (size_t i = 0; variable && i < r->scan->global_count && i < MAX_FOLLOWED; i++) {
        if (is(name, r->scan->globals[i].name))
            return (uint64_t)1 << i;
    }
    return r->holder_cap ? slot_of(r->holders, r->holder_cap, function, name)->mask : 0;
}

static void hold(reader *r, token function, token name, uint64_t mask)
{
    if (!mask || r->nomem || name.len == 0)
        return;
    if (2 * r->holder_count >= r->holder_cap && !grow(r)) {
        r->nomem = true;
        return;
    }
    holder *h = slot_of(r->holders, r->holder_cap, function, name);
    if (!h->name.s) {
        *h = (holder){function, name, 0};
        r->holder_count++;
    }
    r->changed = r->changed || (mask & ~h->mask);
    h->mask |= mask;
}

/* Masks of the operands of a statement: of what is in the n-th bracket, and of what is in none. */
static uint64_t operands(const reader *r, const statement *st, size_t from, int bracket)
{
    uint64_t mask = 0;
    int seen = 0;
    bool in = false;
    for (size_t i = from; i < st->count; i++) {
        if (is(st->t[i], "[")) {
            in = true;
            seen++;
        } else if (is(st->t[i], "]")) {
            in = false;
        } else if (bracket == 0 ? !in : in && (bracket < 0 || seen == bracket)) {
            mask |= mask_of(r, r->function, st->t[i]);
        }
    }
    return mask;
}

/* "call (ret), f, (param0, param1), proto;": arguments become f's parameters, which compilers call f_param_0, ... */
static void follow_call(reader *r, const statement *st, size_t op)
{
    size_t i = op + 1, argument = 0;
    if (i < st->count && is(st->t[i], "(")) {
        while (i < st->count && !is(st->t[i], ")"))
            i++;
        i += 2;
    }
    token callee = i < st->count ? st->t[i] : (token){"", 0};
    /* Neither writes what it is given: a format and its values, the texts of an assertion. */
    bool reads = is(callee, "vprintf") || is(callee, "__assertfail");
    for (i++; i < st->count; i++) {
        uint64_t mask = mask_of(r, r->function, st->t[i]);
        if (is(st->t[i], "(") || is(st->t[i], ")") || is(st->t[i], ","))
            continue;
        char name[300];
        int n = snprintf(name, sizeof(name), "%.*s_param_%zu", (int)(callee.len < 256 ? callee.len : 256), callee.s,
                         argument++);
        if (!mask || reads)
            continue;
        char *kept = *callee.s == '%' ? NULL : stitch__arena_strndup(&r->scan->arena, name, (size_t)n);
        if (kept &&
            mask_of(r, callee, (token){kept, (size_t)n}) != (mask | mask_of(r, callee, (token){kept, (size_t)n})))
            hold(r, callee, (token){kept, (size_t)n}, mask);
        stitch__scan_function *known = NULL;
        for (size_t k = 0; k < r->scan->function_count && !known; k++) {
            const char *symbol = r->scan->functions[k].symbol;
            if (strlen(symbol) == callee.len && memcmp(symbol, callee.s, callee.len) == 0)
                known = &r->scan->functions[k];
        }
        if (!known || !kept)
            r->escaped |= mask;
    }
}

static void follow(reader *r, const statement *st, size_t first)
{
    token op = st->t[first], name = stem(op);
    size_t args = first + 1;
    if (st->cut) {
        r->escaped |= operands(r, st, args, 0) | operands(r, st, args, -1);
    } else if (is(name, "call")) {
        follow_call(r, st, first);
    } else if (starts(op, "st.param") && st->count > args + 1) {
        uint64_t mask = operands(r, st, args, 0);
        if (starts(st->t[args + 1], "func_retval"))
            r->escaped |= mask;
        /* What it holds follows from registers, so that it is no change of its own: it is declared anew for each call.
         */
        bool changed = r->changed;
        hold(r, r->function, st->t[args + 1], mask);
        r->changed = changed;
    } else if (starts(op, "ld.param")) {
        for (size_t i = args; i < st->count && !is(st->t[i], "["); i++) {
            if (is_word(*st->t[i].s))
                hold(r, r->function, st->t[i], operands(r, st, args, 1));
        }
    } else if (is(name, "ld") || is(name, "ldu") || is(name, "prefetch") || is(name, "prefetchu") ||
               is(name, "ldmatrix") || is(name, "tex")) {
        return; /* reading is what is allowed */
    } else if (is(name, "st") || is(name, "red") || is(name, "atom")) {
        r->written |= operands(r, st, args, 1);
        r->escaped |= operands(r, st, args, 0);
    } else if (is(name, "cp")) {
        r->written |= operands(r, st, args, 1);
        r->escaped |= operands(r, st, args, 0);
    } else {
        /* Arithmetic on addresses: the first operand, or the first vector, gets what the others have. */
        uint64_t mask = operands(r, st, args, 0);
        r->escaped |= operands(r, st, args, -1);
        bool vector = args < st->count && is(st->t[args], "{");
        for (size_t i = args; i < st->count && mask; i++) {
            if (is_word(*st->t[i].s))
                hold(r, r->function, st->t[i], mask);
            if (vector ? is(st->t[i], "}") : is(st->t[i], ","))
                break;
        }
    }
}

/* ".param .b64 param0;" in a function's body: an argument of the next call, under a name that all calls use. */
static void forget(reader *r, const statement *st)
{
    for (size_t i = 1; i < st->count && r->holder_cap; i++)
        slot_of(r->holders, r->holder_cap, r->function, st->t[i])->mask = 0;
}

/* A variable's initialiser may hold addresses of others. */
static void follow_initialiser(reader *r, const statement *st)
{
    bool value = false;
    for (size_t i = 0; i < st->count; i++) {
        if (value)
            r->escaped |= mask_of(r, (token){"", 0}, st->t[i]);
        value = value || is(st->t[i], "=");
    }
    if (st->cut) /* a table of numbers, unless it is not */
        for (size_t i = MAX_TOKENS - 8; i < st->count; i++)
            r->escaped |= !strchr("0123456789,-{}", *st->t[i].s) ? ~(uint64_t)0 : 0;
}

/* ---- the whole text ---- */

static bool in_list(const statement *st, const char *word, size_t *at)
{
    for (size_t i = 0; i < st->count; i++) {
        if (is(st->t[i], word)) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* ".visible .entry name(...)" or ".func (.param .b32 func_retval0) name(...)". */
static bool function_name(const statement *st, token *name, bool *kernel)
{
    size_t at;
    *kernel = in_list(st, ".entry", &at);
    if (!*kernel && !in_list(st, ".func", &at))
        return false;
    if (++at < st->count && is(st->t[at], "(")) {
        while (at < st->count && !is(st->t[at], ")"))
            at++;
        at++;
    }
    if (at >= st->count || !is_word(*st->t[at].s))
        return false;
    *name = st->t[at];
    return true;
}

static int take(reader *r, const statement *st)
{
    size_t first = 0;
    stitch__sass s;
    if (st->count && is(st->t[0], "@")) /* "@!%p1 op" */
        first = st->count > 1 && is(st->t[1], "!") ? 3 : 2;
    if (first >= st->count || *st->t[first].s == '.' || !is_word(*st->t[first].s))
        return STITCH_OK;
    classify(st, first, &s);
    r->f->instructions++;
    return s.kind == STITCH__SCAN_PLAIN ? STITCH_OK : stitch__scan_add_op(r->scan, r->f, &s, (uint64_t)st->line, true);
}

/* One pass. With `taking`, instructions are counted; otherwise addresses are followed. */
static int pass(reader *r, const char *start, size_t len, statement *st, bool taking)
{
    text x = {start, start + len, 1};
    unsigned depth = 0;
    int rc = STITCH_OK;
    r->function = (token){"", 0};
    r->f = NULL;
    while (rc == STITCH_OK && !r->nomem && next_statement(&x, st)) {
        token name;
        bool kernel;
        if (depth == 0 && function_name(st, &name, &kernel)) {
            r->function = st->end == '{' ? name : (token){"", 0};
            if (taking && st->end == '{')
                rc = stitch__scan_add_function(r->scan, name.s, name.len, kernel, &r->f);
            else if (taking && in_list(st, ".extern", &(size_t){0}))
                rc = stitch__scan_add_call(r->scan, name.s, name.len); /* declared only: it is elsewhere */
        } else if (depth == 0 && !taking && in_list(st, "=", &(size_t){0})) {
            follow_initialiser(r, st);
        } else if (depth > 0 && st->count && taking && r->f) {
            rc = take(r, st);
        } else if (depth > 0 && st->count && !taking) {
            size_t first = is(st->t[0], "@") ? (st->count > 1 && is(st->t[1], "!") ? 3 : 2) : 0;
            if (is(st->t[0], ".param"))
                forget(r, st);
            else if (first < st->count && *st->t[first].s != '.')
                follow(r, st, first);
        }
        if (st->end == '{')
            depth++;
        else if (st->end == '}' && depth && --depth == 0)
            r->f = NULL;
    }
    return r->nomem ? STITCH_E_NOMEM : rc;
}

static void conclude(reader *r, bool settled)
{
    for (size_t i = 0; i < r->scan->global_count; i++) {
        stitch__scan_global *g = &r->scan->globals[i];
        uint64_t bit = i < MAX_FOLLOWED ? (uint64_t)1 << i : 0;
        if (r->written & bit)
            g->access = STITCH__SCAN_WRITTEN;
        else
            g->access = !bit || !settled || (r->escaped & bit) ? STITCH__SCAN_ESCAPES : STITCH__SCAN_READ_ONLY;
    }
}

/* Variables of a module that there is no machine code of. */
static int take_globals(stitch__scan *scan, const char *start, size_t len, statement *st)
{
    text x = {start, start + len, 1};
    unsigned depth = 0;
    int rc = STITCH_OK;
    while (rc == STITCH_OK && next_statement(&x, st)) {
        size_t at, bracket = 0;
        if (depth == 0 && st->count && in_list(st, ".global", &at) && !in_list(st, ".extern", &at)) {
            size_t last = 0;
            for (size_t i = 0; i < st->count && !is(st->t[i], "=") && !is(st->t[i], "["); i++) {
                if (is_word(*st->t[i].s) && *st->t[i].s != '.')
                    last = i;
                bracket = i + 1;
            }
            token bytes = bracket + 1 < st->count && is(st->t[bracket], "[") ? st->t[bracket + 1] : (token){"0", 1};
            bool initialised = in_list(st, "=", &at), managed = in_list(st, ".managed", &at);
            if (last)
                rc = stitch__scan_add_global(scan, st->t[last].s, st->t[last].len,
                                             bytes.len < 12 ? strtoull(bytes.s, NULL, 10) : 0, initialised, managed);
        }
        if (st->end == '{')
            depth++;
        else if (st->end == '}' && depth)
            depth--;
    }
    return rc;
}

int stitch__scan_ptx(stitch__scan *scan, const char *start, size_t len, bool functions, const char **why)
{
    reader r = {.scan = scan};
    statement *st = stitch__alloc(scan->ctx, sizeof(*st));
    int rc = st ? STITCH_OK : STITCH_E_NOMEM, passes = 0;
    *why = "";
    if (rc == STITCH_OK && !memmem(start, len, ".version", 8)) {
        *why = "it has no .version: it is no PTX";
        rc = STITCH_E_FORMAT;
    }
    if (rc == STITCH_OK && functions)
        rc = take_globals(scan, start, len, st);
    if (rc == STITCH_OK && functions)
        rc = pass(&r, start, len, st, true);
    if (scan->global_count) {
        do {
            r.changed = false;
            if (rc == STITCH_OK)
                rc = pass(&r, start, len, st, false);
        } while (rc == STITCH_OK && r.changed && ++passes < MAX_PASSES);
        if (rc == STITCH_OK)
            conclude(&r, !r.changed);
    }
    stitch_free(r.holders);
    stitch_free(st);
    return rc;
}
