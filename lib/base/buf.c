/* SPDX-License-Identifier: MIT
 *
 * Growing text.
 */
#include <stdio.h>

#include "base/base.h"

void stitch__buf_init(stitch__buf *b, const stitch_context *ctx)
{
    memset(b, 0, sizeof(*b));
    b->ctx = ctx;
}

static bool reserve(stitch__buf *b, size_t more)
{
    if (b->failed)
        return false;
    if (more > SIZE_MAX / 2 - b->len - 1 ||
        stitch__grow(b->ctx, &b->data, &b->cap, b->len + more + 1, 1) != STITCH_OK) {
        b->failed = true;
        return false;
    }
    return true;
}

void stitch__buf_append(stitch__buf *b, const void *data, size_t len)
{
    if (!reserve(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
}

void stitch__buf_puts(stitch__buf *b, const char *s)
{
    stitch__buf_append(b, s, strlen(s));
}

void stitch__buf_putc(stitch__buf *b, char c)
{
    stitch__buf_append(b, &c, 1);
}

void stitch__buf_vprintf(stitch__buf *b, const char *fmt, va_list ap)
{
    char small[256];
    va_list again;
    va_copy(again, ap);
    int n = stitch__vformat(small, sizeof(small), fmt, ap);
    if (n < 0) {
        b->failed = true;
    } else if ((size_t)n < sizeof(small)) {
        stitch__buf_append(b, small, (size_t)n);
    } else if (reserve(b, (size_t)n)) {
        stitch__vformat(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void stitch__buf_printf(stitch__buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    stitch__buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void stitch__buf_truncate(stitch__buf *b, size_t len)
{
    if (b->data && len < b->len) {
        b->len = len;
        b->data[len] = 0;
    }
}

char *stitch__buf_take(stitch__buf *b, size_t *len)
{
    char *text = NULL;
    if (len)
        *len = 0;
    if (!b->failed && reserve(b, 0)) {
        b->data[b->len] = 0;
        text = b->data;
        if (len)
            *len = b->len;
        b->data = NULL;
    }
    stitch__buf_free(b);
    return text;
}

void stitch__buf_free(stitch__buf *b)
{
    const stitch_context *ctx = b->ctx;
    stitch_free(b->data);
    memset(b, 0, sizeof(*b));
    b->ctx = ctx;
}
