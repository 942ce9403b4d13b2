/* SPDX-License-Identifier: MIT
 *
 * PTX as statements.
 */
#include "verify/scan_ptx.h"

static void skip_blank(stitch__ptx_text *x)
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

static stitch__ptx_token next(stitch__ptx_text *x)
{
    skip_blank(x);
    stitch__ptx_token t = {x->at, 0};
    if (x->at == x->end)
        return t;
    if (*x->at == '"') {
        const char *quote = memchr(x->at + 1, '"', (size_t)(x->end - x->at - 1));
        for (const char *stop = quote ? quote + 1 : x->end; x->at < stop; x->at++)
            x->line += *x->at == '\n';
    } else if (!stitch__ptx_is_word(*x->at)) {
        x->at++;
    } else {
        /* "::" belongs to a word, ':' ends a label */
        while (x->at < x->end &&
               (stitch__ptx_is_word(*x->at) || (*x->at == ':' && x->end - x->at > 2 && x->at[1] == ':')))
            x->at += *x->at == ':' ? 2 : 1;
    }
    t.len = (size_t)(x->at - t.s);
    return t;
}

/* Whether the next token is `word` or, with NULL, a number or a text: it is taken. */
static bool skip(stitch__ptx_text *x, const char *word)
{
    stitch__ptx_text ahead = *x;
    stitch__ptx_token t = next(&ahead);
    bool value = t.len && ((*t.s >= '0' && *t.s <= '9') || *t.s == '"');
    if (word ? !stitch__ptx_is(t, word) : !value)
        return false;
    *x = ahead;
    return true;
}

/* The rest of a directive that no ';' ends; what follows in its line is the next statement. ".loc 1 20 3, function_name
 * $L__info_string0, inlined_at 1 36 9", ".target sm_90a, debug". */
static bool skip_directive(stitch__ptx_text *x, stitch__ptx_token name)
{
    static const char *const names[] = {".loc", ".file", ".version", ".target", ".address_size"};
    bool known = false, target = stitch__ptx_is(name, ".target");
    for (size_t i = 0; i < STITCH__COUNT(names); i++)
        known = known || stitch__ptx_is(name, names[i]);
    if (!known)
        return false;
    do {
        if (target || skip(x, "function_name"))
            (void)next(x);
        (void)(skip(x, "inlined_at") || skip(x, "+"));
        while (skip(x, NULL)) {
        }
    } while (skip(x, ","));
    return true;
}

/* A '{' within a statement is a vector and ends none: it comes after an operand has begun. */
bool stitch__ptx_next(stitch__ptx_text *x, stitch__ptx_statement *st)
{
    unsigned depth = 0;
    st->count = 0;
    st->cut = st->words_cut = false;
    st->end = 0;
    st->depth = x->depth;
    for (;;) {
        stitch__ptx_token t = next(x);
        if (t.len == 0)
            return st->count > 0;
        if (st->count == 0 && skip_directive(x, t))
            continue;
        if (st->count == 0)
            st->line = x->line;
        bool directive = st->count > 0 && *st->t[0].s == '.';
        if (stitch__ptx_is(t, ";") || (stitch__ptx_is(t, "}") && depth == 0) ||
            (stitch__ptx_is(t, "{") && (st->count == 0 || directive) && depth == 0)) {
            /* ".global .b8 x[2] = {1, 2};" */
            if (stitch__ptx_is(t, "{") && directive && stitch__ptx_is(st->t[st->count - 1], "=")) {
                depth++;
            } else {
                st->end = *t.s;
                x->depth += st->end == '{';
                x->depth -= st->end == '}' && x->depth;
                return true;
            }
        } else if (stitch__ptx_is(t, "{")) {
            depth++;
        } else if (stitch__ptx_is(t, "}")) {
            depth--;
        } else if (stitch__ptx_is(t, ":") && st->count == 1) { /* a label */
            st->count = 0;
            continue;
        }
        if (st->count < STITCH__PTX_TOKENS) {
            st->t[st->count++] = t;
        } else {
            st->cut = true;
            st->words_cut |= !strchr("0123456789,-{}", *t.s);
        }
    }
}
