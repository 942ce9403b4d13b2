/* SPDX-License-Identifier: MIT
 *
 * What PTX computes with, by the text of its instructions, and what it does with module variables.
 *
 * Where a variable's address goes is followed through the names of registers and parameters, whatever the order of
 * statements: what is said to be read only is never written through an address that the code itself makes. A register
 * that holds one holds it as it is, plus something that is no address; whatever else is made of it, or decided by it,
 * has it escape.
 */
#include <stdlib.h>

#include "verify/scan_ptx.h"

enum { MAX_PASSES = 16, FOLLOWED = 64 /* at a time */, MOST_FOLLOWED = 256 };

/* A register or parameter that may hold addresses of variables, one bit for each of those that are followed. */
typedef struct holder {
    stitch__ptx_token function, name; /* function: len 0 for names of the whole module */
    uint64_t mask;
} holder;

typedef struct reader {
    stitch__scan *scan;
    stitch__ptx_token function; /* that the text is in */
    stitch__scan_function *f;   /* NULL: not wanted, or outside of functions */
    holder *holders;            /* open addressing, a power of two */
    size_t holder_count, holder_cap;
    holder *variables; /* all of them: the mask is the index + 1 */
    size_t variable_cap;
    stitch__scan_global *followed[FOLLOWED]; /* at the moment */
    size_t followed_count;
    bool changed, nomem;
    uint64_t written, escaped;
} reader;

static bool same(stitch__ptx_token a, stitch__ptx_token b)
{
    return a.len == b.len && memcmp(a.s, b.s, a.len) == 0;
}

/* ---- where addresses go ---- */

static size_t hash(stitch__ptx_token a, stitch__ptx_token b)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < a.len; i++)
        h = (h ^ (unsigned char)a.s[i]) * 1099511628211u;
    h = (h ^ 255) * 1099511628211u;
    for (size_t i = 0; i < b.len; i++)
        h = (h ^ (unsigned char)b.s[i]) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

static holder *slot_of(holder *list, size_t cap, stitch__ptx_token function, stitch__ptx_token name)
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

static uint64_t mask_of(const reader *r, stitch__ptx_token function, stitch__ptx_token name)
{
    bool variable = *name.s != '%' && stitch__ptx_is_word(*name.s); /* registers are many, and looked up below */
    for (size_t i = 0; variable && i < r->followed_count; i++) {
        if (stitch__ptx_is(name, r->followed[i]->name))
            return (uint64_t)1 << i;
    }
    return r->holder_cap ? slot_of(r->holders, r->holder_cap, function, name)->mask : 0;
}

static void hold(reader *r, stitch__ptx_token function, stitch__ptx_token name, uint64_t mask)
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
static uint64_t operands(const reader *r, const stitch__ptx_statement *st, size_t from, int bracket)
{
    uint64_t mask = 0;
    int seen = 0;
    bool in = false;
    for (size_t i = from; i < st->count; i++) {
        if (stitch__ptx_is(st->t[i], "[")) {
            in = true;
            seen++;
        } else if (stitch__ptx_is(st->t[i], "]")) {
            in = false;
        } else if (bracket == 0 ? !in : in && (bracket < 0 || seen == bracket)) {
            mask |= mask_of(r, r->function, st->t[i]);
        }
    }
    return mask;
}

/* "call (ret), f, (param0, param1), proto;": arguments become f's parameters, which compilers call f_param_0, ... */
static void follow_call(reader *r, const stitch__ptx_statement *st, size_t op)
{
    size_t i = op + 1, argument = 0;
    if (i < st->count && stitch__ptx_is(st->t[i], "(")) {
        while (i < st->count && !stitch__ptx_is(st->t[i], ")"))
            i++;
        i += 2;
    }
    stitch__ptx_token callee = i < st->count ? st->t[i] : (stitch__ptx_token){"", 0};
    if (*callee.s == '%') /* code in a variable */
        r->escaped |= mask_of(r, r->function, callee);
    /* Neither writes what it is given: a format and its values, the texts of an assertion. */
    bool reads = stitch__ptx_is(callee, "vprintf") || stitch__ptx_is(callee, "__assertfail");
    for (i++; i < st->count; i++) {
        uint64_t mask = mask_of(r, r->function, st->t[i]);
        if (stitch__ptx_is(st->t[i], "(") || stitch__ptx_is(st->t[i], ")") || stitch__ptx_is(st->t[i], ","))
            continue;
        char name[300];
        int n = snprintf(name, sizeof(name), "%.*s_param_%zu", (int)(callee.len < 256 ? callee.len : 256), callee.s,
                         argument++);
        if (!mask || reads)
            continue;
        char *kept = *callee.s == '%' ? NULL : stitch__arena_strndup(&r->scan->arena, name, (size_t)n);
        if (kept && mask_of(r, callee, (stitch__ptx_token){kept, (size_t)n}) !=
                        (mask | mask_of(r, callee, (stitch__ptx_token){kept, (size_t)n})))
            hold(r, callee, (stitch__ptx_token){kept, (size_t)n}, mask);
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

/* Masks of the operands of arithmetic: of what is assigned, in `made`, and of each of the first three others. */
static uint64_t separate(const reader *r, const stitch__ptx_statement *st, size_t args, uint64_t made[3])
{
    uint64_t mask = 0;
    size_t operand = 0, depth = 0;
    memset(made, 0, 3 * sizeof(*made));
    for (size_t i = args; i < st->count; i++) {
        depth += stitch__ptx_is(st->t[i], "{");
        depth -= depth && stitch__ptx_is(st->t[i], "}");
        if (!depth && stitch__ptx_is(st->t[i], ","))
            operand++;
        else if (operand) {
            uint64_t one = mask_of(r, r->function, st->t[i]);
            made[operand < 3 ? operand - 1 : 2] |= one;
            mask |= one;
        }
    }
    return mask;
}

/* What arithmetic makes of addresses. */
static uint64_t compute(reader *r, const stitch__ptx_statement *st, size_t first, stitch__ptx_token name)
{
    bool whole = first + 1 < st->count && !stitch__ptx_is(st->t[first + 1], "{");
    uint64_t of[3], mask = separate(r, st, first + 1, of);
    if (whole && (stitch__ptx_is(name, "mov") || stitch__ptx_is(name, "cvta") || stitch__ptx_is(name, "selp") ||
                  (stitch__ptx_is(name, "sub") && !of[1]) || (stitch__ptx_is(name, "mad") && !of[0] && !of[1]) ||
                  ((stitch__ptx_is(name, "add") || stitch__ptx_is(name, "or")) && !(of[0] && of[1]))))
        return mask;
    /* How far one is from the other, or whether it is behind it. */
    if (of[0] == of[1] && (stitch__ptx_is(name, "sub") || stitch__ptx_is(name, "setp")))
        return 0;
    r->escaped |= mask;
    return 0;
}

static void follow(reader *r, const stitch__ptx_statement *st, size_t first)
{
    stitch__ptx_token op = st->t[first], name = stitch__ptx_stem(op);
    size_t args = first + 1;
    if (st->cut) {
        r->escaped = ~(uint64_t)0;
    } else if (stitch__ptx_is(name, "call")) {
        follow_call(r, st, first);
    } else if (stitch__ptx_starts(op, "st.param") && st->count > args + 1) {
        uint64_t mask = operands(r, st, args, 0);
        if (stitch__ptx_starts(st->t[args + 1], "func_retval"))
            r->escaped |= mask;
        /* What it holds follows from registers, so that it is no change of its own: it is declared anew for each call.
         */
        bool changed = r->changed;
        hold(r, r->function, st->t[args + 1], mask);
        r->changed = changed;
    } else if (stitch__ptx_starts(op, "ld.param")) {
        for (size_t i = args; i < st->count && !stitch__ptx_is(st->t[i], "["); i++) {
            if (stitch__ptx_is_word(*st->t[i].s))
                hold(r, r->function, st->t[i], operands(r, st, args, 1));
        }
    } else if (stitch__ptx_is(name, "ld") || stitch__ptx_is(name, "ldu") || stitch__ptx_is(name, "prefetch") ||
               stitch__ptx_is(name, "prefetchu") || stitch__ptx_is(name, "ldmatrix") || stitch__ptx_is(name, "tex")) {
        return; /* reading is what is allowed */
    } else if (stitch__ptx_is(name, "st") || stitch__ptx_is(name, "red") || stitch__ptx_is(name, "atom")) {
        r->written |= operands(r, st, args, 1);
        r->escaped |= operands(r, st, args, 0);
    } else if (stitch__ptx_is(name, "cp")) {
        r->written |= operands(r, st, args, 1);
        r->escaped |= operands(r, st, args, 0);
    } else {
        /* Arithmetic on addresses: the first operand, or the first vector, gets what the others have. */
        uint64_t mask = compute(r, st, first, name);
        r->escaped |= operands(r, st, args, -1);
        bool vector = args < st->count && stitch__ptx_is(st->t[args], "{");
        for (size_t i = args; i < st->count && mask; i++) {
            if (stitch__ptx_is_word(*st->t[i].s))
                hold(r, r->function, st->t[i], mask);
            if (vector ? stitch__ptx_is(st->t[i], "}") : stitch__ptx_is(st->t[i], ","))
                break;
        }
    }
}

/* ".param .b64 param0;" in a function's body: an argument of the next call, under a name that all calls use. */
static void forget(reader *r, const stitch__ptx_statement *st)
{
    for (size_t i = 1; i < st->count && r->holder_cap; i++)
        slot_of(r->holders, r->holder_cap, r->function, st->t[i])->mask = 0;
}

/* A variable's initialiser may hold addresses of others. */
static void follow_initialiser(reader *r, const stitch__ptx_statement *st)
{
    bool value = false;
    for (size_t i = 0; i < st->count; i++) {
        if (value)
            r->escaped |= mask_of(r, (stitch__ptx_token){"", 0}, st->t[i]);
        value = value || stitch__ptx_is(st->t[i], "=");
    }
    if (st->words_cut) /* it is no table of numbers */
        r->escaped = ~(uint64_t)0;
}

/* ---- the whole text ---- */

static bool in_list(const stitch__ptx_statement *st, const char *word, size_t *at)
{
    for (size_t i = 0; i < st->count; i++) {
        if (stitch__ptx_is(st->t[i], word)) {
            *at = i;
            return true;
        }
    }
    return false;
}

/* ".visible .entry name(...)" or ".func (.param .b32 func_retval0) name(...)". */
static bool function_name(const stitch__ptx_statement *st, stitch__ptx_token *name, bool *kernel)
{
    size_t at;
    *kernel = in_list(st, ".entry", &at);
    if (!*kernel && !in_list(st, ".func", &at))
        return false;
    if (++at < st->count && stitch__ptx_is(st->t[at], "(")) {
        while (at < st->count && !stitch__ptx_is(st->t[at], ")"))
            at++;
        at++;
    }
    if (at >= st->count || !stitch__ptx_is_word(*st->t[at].s))
        return false;
    *name = st->t[at];
    return true;
}

static int take(reader *r, const stitch__ptx_statement *st)
{
    size_t first = 0;
    stitch__sass s;
    if (st->count && stitch__ptx_is(st->t[0], "@")) /* "@!%p1 op" */
        first = st->count > 1 && stitch__ptx_is(st->t[1], "!") ? 3 : 2;
    if (first >= st->count || *st->t[first].s == '.' || !stitch__ptx_is_word(*st->t[first].s))
        return STITCH_OK;
    stitch__ptx_classify(st, first, &s);
    r->f->instructions++;
    return s.kind == STITCH__SCAN_PLAIN ? STITCH_OK : stitch__scan_add_op(r->scan, r->f, &s, (uint64_t)st->line, true);
}

/* One pass. With `taking`, instructions are counted; otherwise addresses are followed. */
static int pass(reader *r, const char *start, size_t len, stitch__ptx_statement *st, bool taking)
{
    stitch__ptx_text x = {start, start + len, 1, 0};
    int rc = STITCH_OK;
    r->function = (stitch__ptx_token){"", 0};
    r->f = NULL;
    while (rc == STITCH_OK && !r->nomem && stitch__ptx_next(&x, st)) {
        stitch__ptx_token name;
        bool kernel;
        if (st->depth == 0 && function_name(st, &name, &kernel)) {
            r->function = st->end == '{' ? name : (stitch__ptx_token){"", 0};
            if (taking && st->end == '{')
                rc = stitch__scan_add_function(r->scan, name.s, name.len, kernel, &r->f);
            else if (taking && in_list(st, ".extern", &(size_t){0}))
                rc = stitch__scan_add_call(r->scan, name.s, name.len); /* declared only: it is elsewhere */
        } else if (st->depth == 0 && !taking && in_list(st, "=", &(size_t){0})) {
            follow_initialiser(r, st);
        } else if (st->depth > 0 && st->count && taking && r->f) {
            rc = take(r, st);
        } else if (st->depth > 0 && st->count && !taking) {
            size_t first = stitch__ptx_is(st->t[0], "@") ? (st->count > 1 && stitch__ptx_is(st->t[1], "!") ? 3 : 2) : 0;
            if (stitch__ptx_is(st->t[0], ".param"))
                forget(r, st);
            else if (first < st->count && *st->t[first].s != '.')
                follow(r, st, first);
        }
        if (st->end == '}' && st->depth == 1)
            r->f = NULL;
    }
    return r->nomem ? STITCH_E_NOMEM : rc;
}

static void conclude(reader *r, bool settled)
{
    for (size_t i = 0; i < r->followed_count; i++) {
        stitch__scan_global *g = r->followed[i];
        uint64_t bit = (uint64_t)1 << i;
        if (r->written & bit)
            g->access = STITCH__SCAN_WRITTEN;
        else
            g->access = !settled || (r->escaped & bit) || !g->declared ? STITCH__SCAN_ESCAPES : STITCH__SCAN_READ_ONLY;
    }
}

/* What the text says about variables: headers of CUDA's declare hundreds that nothing uses. One that a function
 * declares for itself has another name in machine code, so that what is done with it goes unseen. */
static void see_variables(reader *r, const stitch__ptx_statement *st)
{
    bool in_function = st->depth > 0, said = in_function;
    for (size_t i = 0; i < st->count; i++) {
        size_t index = (size_t)slot_of(r->variables, r->variable_cap, (stitch__ptx_token){"", 0}, st->t[i])->mask;
        if (index && said)
            r->scan->globals[index - 1].mentioned = true;
        else if (index)
            r->scan->globals[index - 1].declared = true;
        said = said || stitch__ptx_is(st->t[i], "=");
    }
    /* Not of names in sections for debuggers. */
    said = st->words_cut && (in_function ? *st->t[0].s != '.' : said);
    for (size_t i = 0; said && i < r->scan->global_count; i++)
        r->scan->globals[i].mentioned = true;
}

static int find_variables(reader *r, const char *start, size_t len, stitch__ptx_statement *st)
{
    stitch__ptx_text x = {start, start + len, 1, 0};
    for (r->variable_cap = 16; r->variable_cap < 2 * r->scan->global_count;)
        r->variable_cap *= 2;
    r->variables = stitch__calloc(r->scan->ctx, r->variable_cap, sizeof(*r->variables));
    if (!r->variables)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < r->scan->global_count; i++) {
        const stitch__scan_global *g = &r->scan->globals[i];
        holder h = {{"", 0}, {g->name, strlen(g->name)}, i + 1};
        *slot_of(r->variables, r->variable_cap, h.function, h.name) = h;
    }
    while (stitch__ptx_next(&x, st)) {
        stitch__ptx_token name;
        bool kernel;
        if (st->depth || !function_name(st, &name, &kernel))
            see_variables(r, st);
    }
    return STITCH_OK;
}

/* Variables of a module that there is no machine code of. */
static int take_variables(stitch__scan *scan, const char *start, size_t len, stitch__ptx_statement *st)
{
    stitch__ptx_text x = {start, start + len, 1, 0};
    int rc = STITCH_OK;
    while (rc == STITCH_OK && stitch__ptx_next(&x, st)) {
        size_t at, bracket = 0;
        stitch__ptx_token name;
        bool kernel;
        bool own =
            st->depth > 0 && st->count && (stitch__ptx_is(st->t[0], ".global") || stitch__ptx_is(st->t[0], ".const"));
        bool module = st->depth == 0 && st->count && (in_list(st, ".global", &at) || in_list(st, ".const", &at));
        if (own || (module && !in_list(st, ".extern", &at) &&
                    !function_name(st, &name, &kernel))) { /* of a function, or of all of them */
            size_t last = 0;
            for (size_t i = 0; i < st->count && !stitch__ptx_is(st->t[i], "=") && !stitch__ptx_is(st->t[i], "["); i++) {
                if (stitch__ptx_is_word(*st->t[i].s) && *st->t[i].s != '.')
                    last = i;
                bracket = i + 1;
            }
            stitch__ptx_token bytes = bracket + 1 < st->count && stitch__ptx_is(st->t[bracket], "[")
                                          ? st->t[bracket + 1]
                                          : (stitch__ptx_token){"0", 1};
            bool initialised = in_list(st, "=", &at), managed = in_list(st, ".managed", &at);
            if (last)
                rc = stitch__scan_add_global(scan, st->t[last].s, st->t[last].len,
                                             bytes.len < 12 ? strtoull(bytes.s, NULL, 10) : 0, initialised, managed);
        }
    }
    return rc;
}

static int follow_some(reader *r, const char *start, size_t len, stitch__ptx_statement *st)
{
    int rc, passes = 0;
    stitch__zero_free(r->holders);
    r->holder_count = r->holder_cap = 0;
    r->written = r->escaped = 0;
    do {
        r->changed = false;
        rc = pass(r, start, len, st, false);
    } while (rc == STITCH_OK && r->changed && ++passes < MAX_PASSES);
    if (rc == STITCH_OK)
        conclude(r, !r->changed);
    r->followed_count = 0;
    return rc;
}

static int follow_all(reader *r, const char *start, size_t len, stitch__ptx_statement *st)
{
    size_t said = 0;
    int rc = find_variables(r, start, len, st);
    for (size_t i = 0; rc == STITCH_OK && i < r->scan->global_count; i++) {
        stitch__scan_global *g = &r->scan->globals[i];
        if (g->mentioned && said++ < MOST_FOLLOWED)
            r->followed[r->followed_count++] = g;
        else
            g->access = g->declared && !g->mentioned ? STITCH__SCAN_READ_ONLY : STITCH__SCAN_ESCAPES;
        if (r->followed_count == FOLLOWED)
            rc = follow_some(r, start, len, st);
    }
    return rc || !r->followed_count ? rc : follow_some(r, start, len, st);
}

int stitch__scan_ptx(stitch__scan *scan, const char *start, size_t len, bool functions, const char **why)
{
    reader r = {.scan = scan};
    stitch__ptx_statement *st = stitch__alloc(scan->ctx, sizeof(*st));
    int rc = st ? STITCH_OK : STITCH_E_NOMEM;
    *why = "";
    if (rc == STITCH_OK && !memmem(start, len, ".version", 8)) {
        *why = "it has no .version: it is no PTX";
        rc = STITCH_E_FORMAT;
    }
    if (rc == STITCH_OK && functions)
        rc = take_variables(scan, start, len, st);
    if (rc == STITCH_OK && functions)
        rc = pass(&r, start, len, st, true);
    if (rc == STITCH_OK && scan->global_count)
        rc = follow_all(&r, start, len, st);
    stitch_free(r.variables);
    stitch_free(r.holders);
    stitch_free(st);
    return rc;
}
