/* SPDX-License-Identifier: MIT
 *
 * Models behind a folder: requests are written as files, and something (a person, another program) writes the answers.
 */
#include <stdio.h>

#include "model/model.h"

enum { POLL_MS = 100, MAX_REPLY = 16 << 20 };

static const char end_mark[] = "<!-- end -->";

typedef struct relay_model {
    stitch_model base;
    char *folder;
    int64_t next; /* number of the next request's files */
} relay_model;

static char *file_name(const relay_model *m, int64_t number, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof(name), "%04" PRId64 ".%s", number, suffix);
    return stitch__path_join(m->base.ctx, m->folder, name);
}

static int write_request(relay_model *m, const stitch__call *call, int64_t number, stitch_error **err)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const stitch_context *ctx = m->base.ctx;
    json_t *messages = json_array(), *doc;
    char *path = NULL, *text = NULL;
    stitch__buf md;
    int rc = STITCH_OK;

    stitch__buf_init(&md, ctx);
    for (size_t i = 0; i < call->request->message_count; i++) {
        const stitch_message *msg = &call->request->messages[i];
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", roles[msg->role], "content", msg->content));
        stitch__buf_printf(&md, "<!-- %s -->\n\n%s\n\n", roles[msg->role], msg->content);
    }
    doc = json_pack("{s:s, s:I, s:s, s:o}", "label", call->label, "number", (json_int_t)call->number, "fingerprint", call->fingerprint, "messages",
                    messages);
    text = doc ? stitch__json_dump(ctx, doc, 2) : NULL;
    json_decref(doc);
    if (!text || md.failed) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    /* The .md file first: whoever waits for the .json finds both. */
    if (!(path = file_name(m, number, "request.md"))) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if ((rc = stitch__file_write(ctx, path, md.data ? md.data : "", md.len, err)) != STITCH_OK)
        goto out;
    stitch_free(path);
    path = file_name(m, number, "request.json");
    rc = path ? stitch__file_write(ctx, path, text, strlen(text), err) : stitch__err_nomem(ctx, err);
out:
    stitch__buf_free(&md);
    stitch_free(path);
    stitch_free(text);
    return rc;
}

static int read_json(stitch__call *call, const stitch_context *ctx, const char *path, const char *text, size_t len)
{
    json_t *doc = NULL;
    const char *content = NULL, *reasoning = NULL;
    int64_t in = -1, out = -1;
    stitch__jpath usage_at = {NULL, "usage", 0};
    int rc = stitch__json_parse(ctx, text, len, MAX_REPLY, path, &doc, &call->error);
    if (rc)
        return rc;
    const json_t *usage = json_object_get(doc, "usage");
    if ((rc = stitch__json_string(ctx, doc, NULL, "content", true, &content, &call->error)) == STITCH_OK &&
        (rc = stitch__json_string(ctx, doc, NULL, "reasoning", false, &reasoning, &call->error)) == STITCH_OK && usage &&
        (rc = stitch__json_int(ctx, usage, &usage_at, "prompt_tokens", false, -1, INT64_MAX, &in, &call->error)) == STITCH_OK)
        rc = stitch__json_int(ctx, usage, &usage_at, "completion_tokens", false, -1, INT64_MAX, &out, &call->error);
    if (rc)
        stitch__err_prefix(&call->error, "%s: ", path);
    else if ((rc = stitch_reply_set(call->reply, content, reasoning, in, out)) != STITCH_OK)
        stitch__err_nomem(ctx, &call->error);
    json_decref(doc);
    return rc;
}

/* Half-written files are told from whole ones by their end: JSON that parses, Markdown that ends with the mark. *complete says which it is. */
static int try_answer(relay_model *m, stitch__call *call, int64_t number, bool *complete)
{
    const stitch_context *ctx = m->base.ctx;
    char *json_path = file_name(m, number, "reply.json"), *md_path = file_name(m, number, "reply.md"), *text = NULL;
    size_t len = 0;
    int rc = STITCH_OK;

    *complete = false;
    if (!json_path || !md_path) {
        rc = stitch__err_nomem(ctx, &call->error);
    } else if (stitch__path_exists(json_path)) {
        if ((rc = stitch__file_read(ctx, json_path, MAX_REPLY, &text, &len, &call->error)) == STITCH_OK) {
            json_t *doc = json_loadb(text, len, 0, NULL);
            *complete = doc != NULL;
            json_decref(doc);
            if (*complete)
                rc = read_json(call, ctx, json_path, text, len);
        }
    } else if (stitch__path_exists(md_path)) {
        if ((rc = stitch__file_read(ctx, md_path, MAX_REPLY, &text, &len, &call->error)) == STITCH_OK) {
            while (len && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
                len--;
            size_t mark = sizeof(end_mark) - 1;
            *complete = len >= mark && memcmp(text + len - mark, end_mark, mark) == 0 && (len == mark || text[len - mark - 1] == '\n');
            if (*complete && memchr(text, 0, len)) {
                rc = stitch__err(ctx, &call->error, STITCH_E_FORMAT, "%s holds a NUL character", md_path);
            } else if (*complete) {
                text[len - mark] = 0;
                if (stitch_reply_set(call->reply, text, NULL, -1, -1) != STITCH_OK)
                    rc = stitch__err_nomem(ctx, &call->error);
            }
        }
    }
    stitch_free(json_path);
    stitch_free(md_path);
    stitch_free(text);
    return rc;
}

static void relay_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    relay_model *m = (relay_model *)base;
    int64_t first = m->next, began = stitch__now_ns();

    /* All requests are out before the first answer is awaited. */
    for (size_t i = 0; i < count; i++) {
        calls[i].status = stitch__reply_new(base->ctx, &calls[i].reply, &calls[i].error);
        if (calls[i].status == STITCH_OK)
            calls[i].status = write_request(m, &calls[i], m->next, &calls[i].error);
        m->next++;
    }
    for (size_t i = 0; i < count; i++) {
        stitch__call *c = &calls[i];
        stitch__scope scope = stitch__scope_make(base->ctx, c->request->cancel, c->request->timeout_ms);
        bool complete = false;
        while (c->status == STITCH_OK && !complete) {
            c->status = try_answer(m, c, first + (int64_t)i, &complete);
            if (c->status == STITCH_OK && !complete)
                c->status = stitch__scope_sleep(&scope, POLL_MS, "the wait for a reply file", &c->error);
        }
        if (c->status != STITCH_OK) {
            stitch_reply_free(c->reply);
            c->reply = NULL;
            continue;
        }
        c->reply->milliseconds = (double)(stitch__now_ns() - began) / 1e6;
        if (c->request->on_token)
            c->request->on_token(c->index, 0, stitch_reply_text(c->reply), strlen(stitch_reply_text(c->reply)), c->request->userdata);
    }
}

static void relay_destroy(stitch_model *base)
{
    stitch_free(((relay_model *)base)->folder);
}

static const stitch__model_kind relay_kind = {"relay", relay_complete, relay_destroy, true};

int stitch_model_new_relay(stitch_context *ctx, const char *folder, stitch_model **out, stitch_error **err)
{
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_relay: out must not be NULL");
    *out = NULL;
    if (!ctx || !folder || !*folder)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_relay: context and folder must not be NULL");
    if ((rc = stitch__mkdirs(ctx, folder, err)) != STITCH_OK)
        return rc;
    relay_model *m = stitch__model_alloc(ctx, &relay_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    m->folder = stitch__strdup(ctx, folder);
    if (!m->folder) {
        stitch_model_free(&m->base);
        return stitch__err_nomem(ctx, err);
    }
    /* Earlier exchanges in the folder stay as they are: numbers go on after them. */
    for (m->next = 1;; m->next++) {
        char *path = file_name(m, m->next, "request.json");
        bool taken = path && stitch__path_exists(path);
        stitch_free(path);
        if (!taken)
            break;
    }
    *out = &m->base;
    return STITCH_OK;
}
