/* SPDX-License-Identifier: MIT
 *
 * Fenced blocks of a model's reply. Replies are untrusted: nothing but the two blocks is ever interpreted.
 */
#include "agent/agent.h"

typedef struct line {
    const char *text;
    size_t len;
} line;

static bool next_line(const char **p, line *out)
{
    if (!**p)
        return false;
    out->text = *p;
    out->len = strcspn(*p, "\n");
    *p += out->len + ((*p)[out->len] == '\n');
    if (out->len && out->text[out->len - 1] == '\r')
        out->len--;
    return true;
}

/* Number of backticks that open or close a block at the start of a line (after up to three spaces); 0: none. */
static size_t fence_of(const line *l, const char **info, size_t *info_len)
{
    size_t i = 0;
    while (i < l->len && i < 3 && l->text[i] == ' ')
        i++;
    size_t ticks = 0;
    while (i + ticks < l->len && l->text[i + ticks] == '`')
        ticks++;
    if (ticks < 3)
        return 0;
    const char *start = l->text + i + ticks, *end = l->text + l->len;
    while (start < end && (*start == ' ' || *start == '\t'))
        start++;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (memchr(start, '`', (size_t)(end - start)))
        return 0; /* inline code */
    *info = start;
    *info_len = (size_t)(end - start);
    return ticks;
}

typedef enum block_kind { BLOCK_OTHER, BLOCK_CUDA, BLOCK_CPP, BLOCK_JSON } block_kind;

static block_kind kind_of(const char *info, size_t len)
{
    static const struct {
        const char *word;
        block_kind kind;
    } words[] = {
        {"cuda", BLOCK_CUDA}, {"cu", BLOCK_CUDA}, {"cpp", BLOCK_CPP},
        {"c++", BLOCK_CPP},   {"c", BLOCK_CPP},   {"json", BLOCK_JSON},
    };
    size_t word = 0;
    while (word < len && info[word] != ' ' && info[word] != '\t' && info[word] != '{' && info[word] != ',')
        word++;
    for (size_t i = 0; i < STITCH__COUNT(words); i++) {
        if (strlen(words[i].word) == word && strncasecmp(words[i].word, info, word) == 0)
            return words[i].kind;
    }
    return BLOCK_OTHER;
}

void stitch__blocks_free(stitch__blocks *b)
{
    stitch__zero_free(b->cuda);
    stitch__zero_free(b->json);
    stitch__zero_free(b->notes);
}

static int take_block(const stitch_context *ctx, char **slot, const char *kind, const char *text, size_t len,
                      stitch_error **err)
{
    if (*slot)
        return stitch__err_native(ctx, err, STITCH_E_REPLY, STITCH_DOMAIN_REPLY, 0,
                                  "the reply holds more than one ```%s block; it must hold exactly one", kind);
    *slot = stitch__strndup(ctx, text, len);
    return *slot ? STITCH_OK : stitch__err_nomem(ctx, err);
}

int stitch__reply_split(const stitch_context *ctx, const char *text, stitch__blocks *out, stitch_error **err)
{
    stitch__blocks b = {NULL, NULL, NULL};
    char *cpp = NULL;
    stitch__buf notes;
    line l;
    int rc = STITCH_OK;

    memset(out, 0, sizeof(*out));
    stitch__buf_init(&notes, ctx);
    for (const char *p = text; next_line(&p, &l);) {
        const char *info;
        size_t info_len, ticks = fence_of(&l, &info, &info_len);
        if (!ticks) {
            stitch__buf_append(&notes, l.text, l.len);
            stitch__buf_putc(&notes, '\n');
            continue;
        }
        block_kind kind = kind_of(info, info_len);
        const char *body = p;
        size_t body_len = 0;
        bool closed = false;
        while (!closed && next_line(&p, &l)) {
            const char *tail;
            size_t tail_len, close = fence_of(&l, &tail, &tail_len);
            closed = close >= ticks && tail_len == 0;
            if (closed)
                body_len = (size_t)(l.text - body);
        }
        if (!closed) {
            rc = stitch__err_native(ctx, err, STITCH_E_REPLY, STITCH_DOMAIN_REPLY, 0,
                                    "the ```%.*s block is not closed: the reply was cut off",
                                    (int)(info_len < 16 ? info_len : 16), info);
            goto out;
        }
        if (kind == BLOCK_CUDA)
            rc = take_block(ctx, &b.cuda, "cuda", body, body_len, err);
        else if (kind == BLOCK_JSON)
            rc = take_block(ctx, &b.json, "json", body, body_len, err);
        else if (kind == BLOCK_CPP && !cpp)
            rc = take_block(ctx, &cpp, "cpp", body, body_len, err);
        if (rc)
            goto out;
    }
    if (!b.cuda && cpp) { /* CUDA under another common name */
        b.cuda = cpp;
        cpp = NULL;
    }
    b.notes = stitch__buf_take(&notes, NULL);
    if (!b.notes) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    *out = b;
    memset(&b, 0, sizeof(b));
out:
    stitch_free(cpp);
    stitch__blocks_free(&b);
    stitch__buf_free(&notes);
    return rc;
}
