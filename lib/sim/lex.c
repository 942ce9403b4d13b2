/* SPDX-License-Identifier: MIT
 *
 * Tokens of PTX text.
 */
#include "sim/parse.h"

bool ptx_fail(ptx_parser *p, const char *fmt, ...)
{
    if (!p->failed) {
        va_list ap;
        p->failed = true;
        int n = snprintf(p->error, sizeof(p->error), "PTX line %" PRIu32 ": ", p->tok.line);
        va_start(ap, fmt);
        vsnprintf(p->error + n, sizeof(p->error) - (size_t)n, fmt, ap);
        va_end(ap);
    }
    p->tok.kind = PTX_EOF;
    p->pos = p->end;
    return false;
}

bool ptx_nomem(ptx_parser *p)
{
    p->nomem = true;
    return ptx_fail(p, "out of memory");
}

static bool id_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool id_char(char c)
{
    return id_start(c) || digit(c);
}

static bool skip_space(ptx_parser *p)
{
    const char *start = p->pos;
    for (;;) {
        if (p->pos >= p->end)
            break;
        char c = *p->pos;
        if (c == '\n') {
            p->line++;
            p->pos++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\0') {
            p->pos++;
        } else if (c == '/' && p->pos + 1 < p->end && p->pos[1] == '/') {
            const char *nl = memchr(p->pos, '\n', (size_t)(p->end - p->pos));
            p->pos = nl ? nl : p->end;
        } else if (c == '/' && p->pos + 1 < p->end && p->pos[1] == '*') {
            p->pos += 2;
            while (p->pos < p->end && !(p->pos[0] == '*' && p->pos + 1 < p->end && p->pos[1] == '/')) {
                if (*p->pos == '\n')
                    p->line++;
                p->pos++;
            }
            p->pos = p->pos + 2 <= p->end ? p->pos + 2 : p->end;
        } else {
            break;
        }
    }
    return p->pos != start;
}

static int hex_value(char c)
{
    if (digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool lex_bits(ptx_parser *p, ptx_token *t, int digits)
{
    uint64_t v = 0;
    for (int i = 0; i < digits; i++, p->pos++) {
        int h = p->pos < p->end ? hex_value(*p->pos) : -1;
        if (h < 0)
            return ptx_fail(p, "a float constant needs %d hexadecimal digits", digits);
        v = v << 4 | (uint64_t)h;
    }
    t->value = v;
    return true;
}

static bool lex_number(ptx_parser *p, ptx_token *t)
{
    const char *s = p->pos;
    size_t left = (size_t)(p->end - s);
    if (left > 1 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D')) {
        bool f32 = s[1] == 'f' || s[1] == 'F';
        t->kind = f32 ? PTX_F32 : PTX_F64;
        p->pos += 2;
        return lex_bits(p, t, f32 ? 8 : 16);
    }
    unsigned base = 10;
    if (left > 1 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
        base = 16;
    else if (left > 1 && s[0] == '0' && (s[1] == 'b' || s[1] == 'B'))
        base = 2;
    if (base != 10)
        p->pos += 2;
    else if (left > 1 && s[0] == '0' && digit(s[1]))
        base = 8;
    const char *first = p->pos;
    uint64_t v = 0;
    while (p->pos < p->end) {
        int h = hex_value(*p->pos);
        if (h < 0 || (unsigned)h >= (base == 8 ? 10u : base))
            break;
        v = v * base + (uint64_t)h;
        p->pos++;
    }
    if (p->pos == first)
        return ptx_fail(p, "a number has no digits");
    bool decimal = base == 10 || base == 8;
    if (decimal && p->pos < p->end &&
        ((*p->pos == '.' && p->pos + 1 < p->end && digit(p->pos[1])) || *p->pos == 'e' || *p->pos == 'E' ||
         (*p->pos == '.' && !(p->pos + 1 < p->end && id_char(p->pos[1]))))) {
        char buf[64];
        size_t n = 0;
        const char *q = s;
        while (q < p->end && n + 1 < sizeof(buf) &&
               (digit(*q) || *q == '.' || *q == 'e' || *q == 'E' ||
                ((*q == '+' || *q == '-') && (q[-1] == 'e' || q[-1] == 'E'))))
            buf[n++] = *q++;
        buf[n] = '\0';
        char *stop;
        double d = stitch__read_double(buf, &stop);
        p->pos = s + (stop - buf);
        memcpy(&t->value, &d, 8);
        t->kind = PTX_F64;
        return true;
    }
    if (p->pos < p->end && (*p->pos == 'U' || *p->pos == 'u'))
        p->pos++;
    t->kind = PTX_INT;
    t->value = v;
    return true;
}

void ptx_next(ptx_parser *p)
{
    ptx_token *t = &p->tok;
    if (p->failed) {
        t->kind = PTX_EOF;
        return;
    }
    t->glued = !skip_space(p);
    t->line = p->line;
    t->text = p->pos;
    t->len = 0;
    t->value = 0;
    if (p->pos >= p->end) {
        t->kind = PTX_EOF;
        return;
    }
    char c = *p->pos;
    if (id_start(c)) {
        p->pos++;
        while (p->pos < p->end && id_char(*p->pos))
            p->pos++;
        t->kind = PTX_ID;
    } else if (c == '.' && p->pos + 1 < p->end && id_char(p->pos[1])) {
        t->text = ++p->pos;
        for (;;) {
            while (p->pos < p->end && id_char(*p->pos))
                p->pos++;
            if (p->end - p->pos > 2 && p->pos[0] == ':' && p->pos[1] == ':' && id_char(p->pos[2]))
                p->pos += 2;
            else
                break;
        }
        t->kind = PTX_DOT;
    } else if (digit(c)) {
        if (!lex_number(p, t))
            return;
    } else if (c == '"') {
        t->text = ++p->pos;
        while (p->pos < p->end && *p->pos != '"' && *p->pos != '\n')
            p->pos++;
        if (p->pos >= p->end || *p->pos != '"') {
            ptx_fail(p, "a string does not end on its line");
            return;
        }
        t->kind = PTX_STR;
        t->len = (uint32_t)(p->pos - t->text);
        p->pos++;
        return;
    } else {
        p->pos++;
        t->kind = PTX_PUNCT;
    }
    t->len = (uint32_t)(p->pos - t->text);
}

bool ptx_accept(ptx_parser *p, char punct)
{
    if (!ptx_is(p, punct))
        return false;
    ptx_next(p);
    return true;
}

bool ptx_expect(ptx_parser *p, char punct)
{
    if (ptx_accept(p, punct))
        return true;
    if (p->tok.kind == PTX_EOF)
        return ptx_fail(p, "the text ends where '%c' is expected", punct);
    return ptx_fail(p, "'%c' expected, found '%.*s'", punct, (int)(p->tok.len > 60 ? 60 : p->tok.len), p->tok.text);
}

bool ptx_word(const ptx_token *t, const char *word)
{
    size_t n = strlen(word);
    return t->len == n && memcmp(t->text, word, n) == 0;
}

int ptx_sreg(const char *name, uint32_t len)
{
    static const char *const names[] = {
#define SREG_NAME(n, text) text,
        STITCH__SREG_LIST(SREG_NAME)
#undef SREG_NAME
            "%clock",
        "%clock_hi",
        "%clock64",
        "%globaltimer",
        "%globaltimer_lo",
        "%globaltimer_hi"};
    for (size_t i = 0; i < STITCH__COUNT(names); i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return (int)i;
    return -1;
}
