/* SPDX-License-Identifier: MIT
 *
 * Names, UTF-8, untrusted text, base64.
 */
#include <stdlib.h>

#include "base/base.h"

/* Length of the valid UTF-8 sequence at s (1 to 4), 0 if there is none. */
static size_t utf8_length(const unsigned char *s, size_t len)
{
    static const struct {
        unsigned char mask, lead;
        uint32_t min;
    } kinds[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t n = 1; n <= 4 && n <= len; n++) {
        if ((s[0] & kinds[n - 1].mask) != kinds[n - 1].lead)
            continue;
        uint32_t c = s[0] & (unsigned char)~kinds[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((s[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (s[i] & 0x3f);
        }
        return c < kinds[n - 1].min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0 : n;
    }
    return 0;
}

bool stitch__utf8_valid(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_length((const unsigned char *)s + i, len - i);
        if (!n)
            return false;
    }
    return true;
}

/* Characters that nobody sees, but that change what is seen around them or what a reader makes of it: separators that
 * some take for line ends, the direction of text, joiners, tags (an alphabet of its own that only language models
 * read). */
static bool invisible(const unsigned char *s, size_t n)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0xad, 0xad},     {0x61c, 0x61c},     {0x180e, 0x180e},   {0x200b, 0x200f},
                  {0x2028, 0x202e}, {0x2060, 0x206f},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
                  {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}, {0xf0000, 0x10ffff}};
    uint32_t c = s[0] & (n == 2 ? 0x1fu : n == 3 ? 0x0fu : 0x07u);

    for (size_t i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3fu);
    for (size_t i = 0; n > 1 && i < STITCH__COUNT(ranges); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

void stitch__buf_puts_clean(stitch__buf *b, const char *s, size_t len, size_t max)
{
    size_t i = 0, written = 0;
    while (i < len && written < max) {
        size_t n = utf8_length((const unsigned char *)s + i, len - i);
        unsigned char c = (unsigned char)s[i];
        if (n && written + n > max)
            break;
        bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ||
                       (n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0); /* C1: some terminals obey them */
        if (!n || control || invisible((const unsigned char *)s + i, n)) {
            n = n ? n : 1;
            stitch__buf_putc(b, '?');
        } else {
            stitch__buf_append(b, s + i, n);
        }
        i += n;
        written += n;
    }
    if (i < len)
        stitch__buf_printf(b, "... (%zu bytes left out)", len - i);
}

const char *stitch__source_path(const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-/~@";
    return path[strspn(path, plain)] ? "?" : path;
}

bool stitch__name_valid(const char *s)
{
    size_t n = 0;
    for (; s && s[n]; n++) {
        bool letter = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_';
        if (!letter && (n == 0 || !((s[n] >= '0' && s[n] <= '9') || s[n] == '.')))
            return false;
        if (n == 255)
            return false;
    }
    return n > 0;
}

/* Damerau-Levenshtein distance (adjacent swaps count once) of two short words. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    enum { MAX = 64 };
    size_t rows[3][MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= nb; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= na; i++) {
        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = last[j] + 1 < best ? last[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[nb];
}

const char *stitch__nearest(const char *name, const char *const *candidates, size_t count)
{
    size_t len = strlen(name), best = len / 3 > 1 ? len / 3 : 1;
    const char *found = NULL;
    if (len > 64)
        return NULL;
    for (size_t i = 0; i < count && candidates[i]; i++) {
        size_t n = strlen(candidates[i]);
        if (n > 64)
            continue;
        size_t d = distance(name, len, candidates[i], n);
        if (d < best || (d == best && !found)) {
            best = d;
            found = candidates[i];
        }
    }
    return found;
}

/* ---- base64 ---- */

char *stitch__base64_encode(const stitch_context *ctx, const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = data;
    if (len > SIZE_MAX / 4 * 3 - 4)
        return NULL;
    char *out = stitch__alloc(ctx, (len + 2) / 3 * 4 + 1), *p = out;
    if (!out)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t v = (uint32_t)in[i] << 16 | (n > 1 ? (uint32_t)in[i + 1] << 8 : 0) | (n > 2 ? in[i + 2] : 0);
        *p++ = digits[v >> 18];
        *p++ = digits[v >> 12 & 63];
        *p++ = n > 1 ? digits[v >> 6 & 63] : '=';
        *p++ = n > 2 ? digits[v & 63] : '=';
    }
    *p = 0;
    return out;
}

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

int stitch__base64_decode(const stitch_context *ctx, const char *text, size_t len, void **data, size_t *out_len)
{
    *data = NULL;
    *out_len = 0;
    if (len % 4)
        return STITCH_E_FORMAT;
    size_t pad = len && text[len - 1] == '=' ? 1 + (text[len - 2] == '=') : 0;
    unsigned char *out = stitch__alloc(ctx, len / 4 * 3 + 1), *p = out;
    if (!out)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < len; i += 4) {
        size_t skip = i + 4 == len ? pad : 0;
        uint32_t v = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = k >= 4 - skip ? 0 : base64_digit(text[i + k]);
            if (d < 0) {
                stitch_free(out);
                return STITCH_E_FORMAT;
            }
            v = v << 6 | (uint32_t)d;
        }
        for (size_t k = 0; k < 3 - skip; k++)
            *p++ = (unsigned char)(v >> (16 - 8 * k));
    }
    *data = out;
    *out_len = (size_t)(p - out);
    return STITCH_OK;
}
