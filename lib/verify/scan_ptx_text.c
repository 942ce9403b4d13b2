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

/* A '{' within a statement is a vector and ends none: it comes after an operand has begun. */
bool stitch__ptx_next(stitch__ptx_text *x, stitch__ptx_statement *st)
{
    unsigned depth = 0;
    st->count = 0;
    st->cut = false;
    st->end = 0;
    for (;;) {
        stitch__ptx_token t = next(x);
        if (t.len == 0)
            return st->count > 0;
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
                return true;
            }
        } else if (stitch__ptx_is(t, "{")) {
            depth++;
        } else if (stitch__ptx_is(t, "}")) {
            depth--;
        } else if (stitch__ptx_is(t, ":") && st->count == 1) { /* a label */
            st->count = 0;
            continue;
        } else if (st->count == 1 && (stitch__ptx_is(st->t[0], ".loc") || stitch__ptx_is(st->t[0], ".file") ||
                                      stitch__ptx_is(st->t[0], ".version") || stitch__ptx_is(st->t[0], ".target") ||
                                      stitch__ptx_is(st->t[0], ".address_size"))) {
            /* directives that a line end ends */
            const char *nl = memchr(t.s, '\n', (size_t)(x->end - t.s));
            x->at = nl ? nl : x->end;
            st->count = 0;
            continue;
        }
        if (st->count < STITCH__PTX_TOKENS)
            st->t[st->count++] = t;
        else
            st->cut = true;
    }
}
