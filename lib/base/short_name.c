/* SPDX-License-Identifier: MIT
 *
 * Names of kernels where there is little room: without namespaces, and of what is local to a function only its name.
 */
#include "base/base.h"

enum { ROOM = 1024, DEEPEST = 32 };

typedef struct shortener {
    const char *at;
    char out[ROOM];
    size_t len;
    int depth;
} shortener;

static void put(shortener *s, char c)
{
    if (s->len < sizeof(s->out))
        s->out[s->len++] = c;
}

static bool skip(shortener *s, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(s->at, text, n) != 0)
        return false;
    s->at += n;
    return true;
}

/* After "::": what came before goes, but for the function, or the functor, that a lambda ("{...}") is local to. */
static void drop_scope(shortener *s, size_t from, size_t *keep)
{
    bool local = *s->at == '{' || strncmp(s->at, "operator", 8) == 0;
    if (local && *keep == from) {
        size_t n = 0;
        while (from + n < s->len && s->out[from + n] != '(' && s->out[from + n] != '<')
            n++;
        s->len = from + n;
        put(s, ':');
        put(s, ':');
        *keep = s->len;
    } else {
        s->len = *keep;
    }
}

/* Names, up to a bracket that was not opened here. */
static void shorten(shortener *s)
{
    size_t from = s->len, keep = from; /* where the name at hand begins; what of it stays */
    while (*s->at && s->depth < DEEPEST) {
        char c = *s->at;
        if (strchr(">)}]", c))
            return;
        if (skip(s, "(anonymous namespace)::") || skip(s, " const::")) {
            if (c == ' ')
                drop_scope(s, from, &keep);
            continue;
        }
        if (skip(s, "::")) {
            drop_scope(s, from, &keep);
            continue;
        }
        put(s, *s->at++);
        if (strchr("<({[", c)) {
            s->depth++;
            shorten(s);
            s->depth--;
            if (*s->at)
                put(s, *s->at++);
        } else if (strchr(", &*", c)) {
            from = keep = s->len;
        }
    }
}

const char *stitch__short_name(const char *name, char *out, size_t size)
{
    shortener s = {.at = name};
    size_t len = strlen(name), most = size - 1;
    bool valid = stitch__utf8_valid(name, len), cut;
    if (len > most) {
        shorten(&s);
        if (!*s.at && s.len < sizeof(s.out)) { /* else it is no such name */
            name = s.out;
            len = s.len;
        }
    }
    cut = len > most;
    if (cut) {
        len = most - 3;
        while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80)
            len--;
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        out[i] = c < 0x20 || c == 0x7f || (c >= 0x80 && !valid) ? '?' : name[i];
    }
    memcpy(out + len, cut ? "..." : "", cut ? 4 : 1);
    return out;
}
