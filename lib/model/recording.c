/* SPDX-License-Identifier: MIT
 *
 * Recordings: JSON Lines, one exchange a line (docs/recordings.md).
 */
#include <stdlib.h>

#include "model/model.h"

void stitch__recording_free(stitch__recording *r)
{
    for (size_t i = 0; i < r->count; i++) {
        stitch__recorded *e = &r->entries[i];
        char **texts[] = {&e->label, &e->fingerprint, &e->text, &e->reasoning, &e->finish, &e->model};
        for (size_t k = 0; k < STITCH__COUNT(texts); k++)
            stitch_free(*texts[k]);
    }
    stitch_free(r->entries);
    memset(r, 0, sizeof(*r));
}

static int copy_text(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                     bool required, char **out, stitch_error **err)
{
    const char *text = "";
    int rc = stitch__json_string(ctx, obj, at, key, required, &text, err);
    if (rc)
        return rc;
    *out = stitch__strdup(ctx, text);
    return *out ? STITCH_OK : stitch__err_nomem(ctx, err);
}

static int parse_entry(const stitch_context *ctx, const json_t *doc, stitch__recorded *e, stitch_error **err)
{
    static const char *const keys[] = {"label", "number", "fingerprint", "model", "ms", "request", "reply", NULL};
    static const char *const reply_keys[] = {"content", "reasoning", "finish", "tokens_in", "tokens_out", "cost", NULL};
    stitch__jpath reply_at = {NULL, "reply", 0};
    int rc;

    e->tokens_in = e->tokens_out = -1;
    if ((rc = stitch__json_keys(ctx, doc, NULL, keys, err)) != STITCH_OK ||
        (rc = copy_text(ctx, doc, NULL, "label", true, &e->label, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, doc, NULL, "number", true, 1, INT64_MAX, &e->number, err)) != STITCH_OK ||
        (json_object_get(doc, "fingerprint") &&
         (rc = copy_text(ctx, doc, NULL, "fingerprint", true, &e->fingerprint, err)) != STITCH_OK) ||
        (rc = copy_text(ctx, doc, NULL, "model", false, &e->model, err)) != STITCH_OK ||
        (rc = stitch__json_number(ctx, doc, NULL, "ms", false, &e->milliseconds, err)) != STITCH_OK)
        return rc;
    const json_t *reply = json_object_get(doc, "reply");
    if ((rc = stitch__json_keys(ctx, reply, &reply_at, reply_keys, err)) != STITCH_OK ||
        (rc = copy_text(ctx, reply, &reply_at, "content", true, &e->text, err)) != STITCH_OK ||
        (rc = copy_text(ctx, reply, &reply_at, "reasoning", false, &e->reasoning, err)) != STITCH_OK ||
        (rc = copy_text(ctx, reply, &reply_at, "finish", false, &e->finish, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, reply, &reply_at, "tokens_in", false, -1, INT64_MAX, &e->tokens_in, err)) !=
            STITCH_OK ||
        (rc = stitch__json_int(ctx, reply, &reply_at, "tokens_out", false, -1, INT64_MAX, &e->tokens_out, err)) !=
            STITCH_OK ||
        (rc = stitch__json_number(ctx, reply, &reply_at, "cost", false, &e->cost, err)) != STITCH_OK)
        return rc;
    if (!(e->cost >= 0 && e->cost < 1e12))
        return stitch__json_err(ctx, &reply_at, err, "cost: %g is no amount", e->cost);
    return STITCH_OK;
}

static int by_key(const void *a, const void *b)
{
    const stitch__recorded *x = *(const stitch__recorded *const *)a, *y = *(const stitch__recorded *const *)b;
    int order = strcmp(x->label, y->label);
    return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

/* Two entries for one request would make the answer depend on chance. */
static int check_unique(stitch__recording *r, stitch_error **err)
{
    int rc = STITCH_OK;
    const stitch__recorded **sorted = stitch__calloc(r->ctx, r->count ? r->count : 1, sizeof(*sorted));
    if (!sorted)
        return stitch__err_nomem(r->ctx, err);
    for (size_t i = 0; i < r->count; i++)
        sorted[i] = &r->entries[i];
    qsort(sorted, r->count, sizeof(*sorted), by_key);
    for (size_t i = 1; i < r->count && rc == STITCH_OK; i++) {
        const stitch__recorded *a = sorted[i - 1], *b = sorted[i];
        if (by_key(&a, &b) == 0)
            rc = stitch__err(r->ctx, err, STITCH_E_FORMAT, "lines %zu and %zu are both '%.200s' #%" PRId64,
                             a->line < b->line ? a->line : b->line, a->line < b->line ? b->line : a->line, a->label,
                             a->number);
    }
    stitch_free(sorted);
    return rc;
}

static int parse_line(stitch__recording *r, const char *text, size_t len, size_t line, const char *what, bool last,
                      stitch_error **err)
{
    json_t *doc = NULL;
    int rc = stitch__json_parse(r->ctx, text, len, 0, what, &doc, err);
    if (rc == STITCH_E_FORMAT && last) { /* a killed run may leave half a last line */
        r->cut = true;
        return STITCH_OK;
    }
    if (rc == STITCH_OK && stitch__grow(r->ctx, &r->entries, &r->capacity, r->count + 1, sizeof(*r->entries)))
        rc = stitch__err_nomem(r->ctx, err);
    if (rc == STITCH_OK) {
        stitch__recorded *e = &r->entries[r->count++];
        memset(e, 0, sizeof(*e));
        e->line = line;
        rc = parse_entry(r->ctx, doc, e, err);
    }
    json_decref(doc);
    return rc;
}

int stitch__recording_parse(const stitch_context *ctx, const char *text, size_t len, const char *what,
                            stitch__recording *out, stitch_error **err)
{
    stitch_error *why = NULL;
    size_t line = 0;
    int rc = STITCH_OK;

    memset(out, 0, sizeof(*out));
    out->ctx = ctx;
    for (size_t at = 0; at < len && rc == STITCH_OK;) {
        const char *start = text + at, *end = memchr(start, '\n', len - at);
        size_t n = end ? (size_t)(end - start) : len - at;
        at += end ? n + 1 : n;
        line++;
        if (strspn(start, " \t\r") < n) {
            rc = parse_line(out, start, n, line, what, !end, &why);
            if (rc)
                stitch__err_prefix(&why, "%s, entry on line %zu: ", what, line);
        }
        if (rc == STITCH_OK && !out->cut) {
            out->whole_bytes = at;
            out->unterminated = !end;
        }
    }
    if (rc == STITCH_OK && (rc = check_unique(out, &why)) != STITCH_OK)
        stitch__err_prefix(&why, "%s: ", what);
    if (rc) {
        stitch__recording_free(out);
        if (err) {
            stitch_error_free(*err);
            *err = why;
            why = NULL;
        }
    }
    stitch_error_free(why); /* of a line that was cut off */
    return rc;
}

char *stitch__recording_line(const stitch_context *ctx, const stitch__call *call, const stitch_reply *r)
{
    const stitch_request *request = call->request;
    json_t *messages = stitch__messages_json(request->messages, request->message_count);
    json_t *reply = json_pack("{s:s, s:s, s:s, s:I, s:I, s:f}", "content", stitch_reply_text(r), "reasoning",
                              stitch_reply_reasoning(r), "finish", stitch_reply_finish(r), "tokens_in",
                              (json_int_t)r->tokens_in, "tokens_out", (json_int_t)r->tokens_out, "cost", r->cost);
    json_t *doc = NULL;
    char *text = NULL;
    stitch__buf b;

    if (messages && reply) /* takes both over, also when it fails */
        doc = json_pack("{s:s, s:I, s:s, s:s, s:f, s:{s:o}, s:o}", "label", call->label, "number",
                        (json_int_t)call->number, "fingerprint", call->fingerprint, "model", stitch_reply_model(r),
                        "ms", stitch_reply_milliseconds(r), "request", "messages", messages, "reply", reply);
    else
        json_decref(messages), json_decref(reply);
    text = doc ? stitch__json_dump(ctx, doc, 0) : NULL;
    json_decref(doc);
    stitch__buf_init(&b, ctx);
    if (text)
        stitch__buf_printf(&b, "%s\n", text);
    else
        b.failed = true;
    stitch_free(text);
    return stitch__buf_take(&b, NULL);
}
