/* SPDX-License-Identifier: MIT
 *
 * Recordings: JSON Lines, one exchange a line (docs/recordings.md).
 */
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

static int copy_text(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key, bool required, char **out,
                     stitch_error **err)
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
    static const char *const reply_keys[] = {"content", "reasoning", "finish", "tokens_in", "tokens_out", NULL};
    stitch__jpath reply_at = {NULL, "reply", 0};
    int rc;

    e->tokens_in = e->tokens_out = -1;
    if ((rc = stitch__json_keys(ctx, doc, NULL, keys, err)) != STITCH_OK ||
        (rc = copy_text(ctx, doc, NULL, "label", true, &e->label, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, doc, NULL, "number", true, 1, INT64_MAX, &e->number, err)) != STITCH_OK ||
        (rc = copy_text(ctx, doc, NULL, "fingerprint", true, &e->fingerprint, err)) != STITCH_OK ||
        (rc = copy_text(ctx, doc, NULL, "model", false, &e->model, err)) != STITCH_OK ||
        (rc = stitch__json_number(ctx, doc, NULL, "ms", false, &e->milliseconds, err)) != STITCH_OK)
        return rc;
    const json_t *reply = json_object_get(doc, "reply");
    if ((rc = stitch__json_keys(ctx, reply, &reply_at, reply_keys, err)) != STITCH_OK ||
        (rc = copy_text(ctx, reply, &reply_at, "content", true, &e->text, err)) != STITCH_OK ||
        (rc = copy_text(ctx, reply, &reply_at, "reasoning", false, &e->reasoning, err)) != STITCH_OK ||
        (rc = copy_text(ctx, reply, &reply_at, "finish", false, &e->finish, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, reply, &reply_at, "tokens_in", false, -1, INT64_MAX, &e->tokens_in, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, reply, &reply_at, "tokens_out", false, -1, INT64_MAX, &e->tokens_out, err)) != STITCH_OK)
        return rc;
    return STITCH_OK;
}

int stitch__recording_parse(const stitch_context *ctx, const char *text, size_t len, const char *what, stitch__recording *out, stitch_error **err)
{
    size_t line = 0;
    int rc = STITCH_OK;

    memset(out, 0, sizeof(*out));
    out->ctx = ctx;
    for (size_t at = 0; at < len && rc == STITCH_OK;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - (text + at)) : len - at;
        const char *start = text + at;
        at += n + 1;
        line++;
        if (strspn(start, " \t\r") >= n)
            continue;
        json_t *doc = NULL;
        stitch_error *why = NULL;
        rc = stitch__json_parse(ctx, start, n, 0, what, &doc, &why);
        if (rc && !end && rc == STITCH_E_FORMAT) { /* a killed run may leave half a last line */
            stitch_error_free(why);
            out->cut = true;
            rc = STITCH_OK;
            break;
        }
        if (rc == STITCH_OK) {
            rc = stitch__grow(ctx, &out->entries, &out->capacity, out->count + 1, sizeof(*out->entries)) ? stitch__err_nomem(ctx, &why) : STITCH_OK;
            if (rc == STITCH_OK) {
                memset(&out->entries[out->count], 0, sizeof(*out->entries));
                rc = parse_entry(ctx, doc, &out->entries[out->count++], &why);
            }
            json_decref(doc);
        }
        if (rc) {
            stitch__err_prefix(&why, "%s, entry on line %zu: ", what, line);
            if (err) {
                stitch_error_free(*err);
                *err = why;
            } else {
                stitch_error_free(why);
            }
        }
    }
    if (rc)
        stitch__recording_free(out);
    return rc;
}

char *stitch__recording_line(const stitch_context *ctx, const stitch__call *call)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const stitch_reply *r = call->reply;
    json_t *messages = json_array();
    stitch__buf b;
    int bad = 0;

    for (size_t i = 0; i < call->request->message_count; i++)
        bad |= json_array_append_new(messages, json_pack("{s:s, s:s}", "role", roles[call->request->messages[i].role], "content",
                                                         call->request->messages[i].content));
    json_t *doc = json_pack("{s:s, s:I, s:s, s:s, s:f, s:{s:o}, s:{s:s, s:s, s:s, s:I, s:I}}", "label", call->label, "number",
                            (json_int_t)call->number, "fingerprint", call->fingerprint, "model", stitch_reply_model(r), "ms",
                            stitch_reply_milliseconds(r), "request", "messages", messages, "reply", "content", stitch_reply_text(r), "reasoning",
                            stitch_reply_reasoning(r), "finish", stitch_reply_finish(r), "tokens_in", (json_int_t)r->tokens_in, "tokens_out",
                            (json_int_t)r->tokens_out);
    char *text = doc && !bad ? stitch__json_dump(ctx, doc, 0) : NULL;
    json_decref(doc);
    stitch__buf_init(&b, ctx);
    if (text)
        stitch__buf_printf(&b, "%s\n", text);
    else
        b.failed = true;
    stitch_free(text);
    return stitch__buf_take(&b, NULL);
}
