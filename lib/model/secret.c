/* SPDX-License-Identifier: MIT
 *
 * Keeping a key out of texts that a server sends: servers like to quote a wrong key, and a hostile one may return it to
 * have it recorded.
 */
#include "model/model.h"

void stitch__secret_append(stitch__buf *out, const char *text, size_t len, const char *secret, size_t min)
{
    size_t n = secret ? strlen(secret) : 0;
    if (n < min || n == 0) {
        stitch__buf_append(out, text, len);
        return;
    }
    while (len) {
        const char *hit = memmem(text, len, secret, n);
        size_t before = hit ? (size_t)(hit - text) : len;
        stitch__buf_append(out, text, before);
        text += before;
        len -= before;
        if (hit) {
            stitch__buf_puts(out, STITCH__SECRET_MASK);
            text += n;
            len -= n;
        }
    }
}

void stitch__secret_filter_init(stitch__secret_filter *f, const char *secret)
{
    f->secret = secret && strlen(secret) >= STITCH__SECRET_MIN_REPLY ? secret : NULL;
    f->matched = 0;
}

void stitch__secret_filter_feed(stitch__secret_filter *f, stitch__buf *out, const char *text, size_t len)
{
    if (!f->secret) {
        stitch__buf_append(out, text, len);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        while (f->matched && text[i] != f->secret[f->matched]) {
            /* The longest end of what is held back that could still begin the secret stays. */
            size_t keep = f->matched - 1;
            while (keep && memcmp(f->secret, f->secret + f->matched - keep, keep) != 0)
                keep--;
            stitch__buf_append(out, f->secret, f->matched - keep);
            f->matched = keep;
        }
        if (text[i] != f->secret[f->matched])
            stitch__buf_putc(out, text[i]);
        else if (!f->secret[++f->matched]) {
            stitch__buf_puts(out, STITCH__SECRET_MASK);
            f->matched = 0;
        }
    }
}

void stitch__secret_filter_end(stitch__secret_filter *f, stitch__buf *out)
{
    if (f->matched)
        stitch__buf_append(out, f->secret, f->matched);
    f->matched = 0;
}
