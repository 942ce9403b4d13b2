/* SPDX-License-Identifier: MIT
 *
 * PTX as statements, for those who look for something in it.
 */
#ifndef STITCH_LIB_VERIFY_SCAN_PTX_H
#define STITCH_LIB_VERIFY_SCAN_PTX_H

#include "verify/scan.h"

enum { STITCH__PTX_TOKENS = 1024 }; /* the largest wgmma has 300 */

typedef struct stitch__ptx_token {
    const char *s;
    size_t len;
} stitch__ptx_token;

typedef struct stitch__ptx_statement {
    stitch__ptx_token t[STITCH__PTX_TOKENS]; /* what comes after that is left out, and `cut` */
    size_t count;
    bool cut, words_cut; /* words_cut: that is more than numbers */
    char end;            /* ';', '{', '}', or 0 at the end of the text */
    unsigned depth;      /* blocks that it is in */
    int line;
} stitch__ptx_statement;

typedef struct stitch__ptx_text {
    const char *at, *end;
    int line;
    unsigned depth; /* of what comes next */
} stitch__ptx_text;

static inline bool stitch__ptx_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
           c == '%' || c == '.';
}

static inline bool stitch__ptx_is(stitch__ptx_token t, const char *word)
{
    return t.len == strlen(word) && memcmp(t.s, word, t.len) == 0;
}

static inline bool stitch__ptx_starts(stitch__ptx_token t, const char *word)
{
    return t.len >= strlen(word) && memcmp(t.s, word, strlen(word)) == 0;
}

/* scan_ptx_text.c: statements end with ';', '{' or '}'; comments and strings are none. False: there are no more. */
bool stitch__ptx_next(stitch__ptx_text *x, stitch__ptx_statement *st);

stitch__ptx_token stitch__ptx_stem(stitch__ptx_token op); /* the name up to the first '.' */
/* scan_ptx_math.c: what a statement computes with; `first`: of its tokens, the instruction. */
void stitch__ptx_classify(const stitch__ptx_statement *st, size_t first, stitch__sass *s);

#endif
