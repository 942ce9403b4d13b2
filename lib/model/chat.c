/* SPDX-License-Identifier: MIT
 *
 * Chat completions of OpenAI-compatible endpoints: request bodies, streamed and whole replies, error bodies.
 */
#include <math.h>
#include <stdio.h>

#include "model/model.h"

enum { MAX_ERROR_TEXT = 600 };

/* ---- request ---- */

char *stitch__chat_body(const stitch_context *ctx, const char *model, const stitch_request *request, int64_t max_tokens, double temperature,
                        const json_t *extra, const stitch__chat_features *f)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    json_t *body = json_object(), *messages = json_array(), *schema = NULL;
    int bad = 0;

    for (size_t i = 0; i < request->message_count; i++)
        bad |= json_array_append_new(messages, json_pack("{s:s, s:s}", "role", roles[request->messages[i].role], "content",
                                                         request->messages[i].content));
    bad |= json_object_set_new(body, "model", json_string(model));
    bad |= json_object_set_new(body, "messages", messages);
    if (f->stream) {
        bad |= json_object_set_new(body, "stream", json_true());
        if (f->usage_option)
            bad |= json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    }
    if (max_tokens > 0)
        bad |= json_object_set_new(body, f->completion_tokens ? "max_completion_tokens" : "max_tokens", json_integer(max_tokens));
    if (f->temperature && temperature >= 0)
        bad |= json_object_set_new(body, "temperature", json_real(temperature));
    if (f->json_schema && request->json_schema && (schema = json_loads(request->json_schema, 0, NULL)))
        bad |= json_object_set_new(body, "response_format",
                                   json_pack("{s:s, s:{s:s, s:b, s:o}}", "type", "json_schema", "json_schema", "name", "reply", "strict", 1,
                                             "schema", schema));
    if (extra)
        bad |= json_object_update(body, (json_t *)(uintptr_t)extra);
    char *text = bad ? NULL : stitch__json_dump(ctx, body, 0);
    json_decref(body);
    return text;
}

static bool mentions(const char *message, const char *word)
{
    return strstr(message, word) != NULL;
}

bool stitch__chat_degrade(stitch__chat_features *f, const char *message, bool had_schema, bool schema_required)
{
    /* Error texts differ from server to server; the parameter's name is what they share. */
    if (f->usage_option && f->stream && (mentions(message, "stream_options") || mentions(message, "include_usage"))) {
        f->usage_option = false;
        return true;
    }
    if (!f->completion_tokens && mentions(message, "max_completion_tokens")) {
        f->completion_tokens = true;
        return true;
    }
    if (f->completion_tokens && mentions(message, "max_completion_tokens")) {
        f->completion_tokens = false;
        return true;
    }
    if (f->temperature && mentions(message, "temperature")) {
        f->temperature = false;
        return true;
    }
    if (f->json_schema && had_schema && !schema_required &&
        (mentions(message, "response_format") || mentions(message, "json_schema") || mentions(message, "schema"))) {
        f->json_schema = false;
        return true;
    }
    return false;
}

/* ---- replies ---- */

void stitch__chat_init(stitch__chat *c, const stitch_context *ctx, size_t limit, const stitch_request *request, size_t index)
{
    memset(c, 0, sizeof(*c));
    c->ctx = ctx;
    c->limit = limit;
    c->request = request;
    c->index = index;
    c->tokens_in = c->tokens_out = -1;
    stitch__buf_init(&c->text, ctx);
    stitch__buf_init(&c->reasoning, ctx);
}

void stitch__chat_free(stitch__chat *c)
{
    stitch__buf_free(&c->text);
    stitch__buf_free(&c->reasoning);
}

static int add_text(stitch__chat *c, bool reasoning, const char *text, size_t len, stitch_error **err)
{
    stitch__buf *to = reasoning ? &c->reasoning : &c->text;
    if (!len)
        return STITCH_OK;
    if (c->text.len + c->reasoning.len + len > c->limit)
        return stitch__err_native(c->ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0, "the reply is longer than %zu bytes", c->limit);
    stitch__buf_append(to, text, len);
    if (to->failed)
        return stitch__err_nomem(c->ctx, err);
    if (c->request && c->request->on_token)
        c->request->on_token(c->index, reasoning, text, len, c->request->userdata);
    return STITCH_OK;
}

static int add_value(stitch__chat *c, bool reasoning, const json_t *v, stitch_error **err)
{
    if (json_is_string(v))
        return add_text(c, reasoning, json_string_value(v), json_string_length(v), err);
    for (size_t i = 0; json_is_array(v) && i < json_array_size(v); i++) { /* a list of parts */
        const json_t *part = json_array_get(v, i);
        const json_t *text = json_object_get(part, "text");
        int rc = add_value(c, reasoning, json_is_string(part) ? part : json_is_string(text) ? text : NULL, err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

static int64_t token_count(const json_t *v)
{
    double n = json_number_value(v);
    return json_is_number(v) && n >= 0 && n < 1e15 ? (int64_t)n : -1;
}

/* What chunks and whole replies share: message or delta, finish reason, usage, model. */
static int take(stitch__chat *c, const json_t *doc, const char *member, stitch_error **err)
{
    static const char *const thinking[] = {"reasoning_content", "reasoning"};
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    const json_t *message = json_object_get(choice, member), *usage = json_object_get(doc, "usage");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason")), *model = json_string_value(json_object_get(doc, "model"));
    int rc;

    for (size_t i = 0; i < STITCH__COUNT(thinking); i++) {
        const json_t *v = json_object_get(message, thinking[i]);
        if (v && !json_is_null(v)) { /* servers that send both send the same text twice */
            if ((rc = add_value(c, true, v, err)) != STITCH_OK)
                return rc;
            break;
        }
    }
    if ((rc = add_value(c, false, json_object_get(message, "content"), err)) != STITCH_OK)
        return rc;
    if (finish) {
        snprintf(c->finish, sizeof(c->finish), "%s", finish);
        c->done = true;
    }
    if (model)
        snprintf(c->model, sizeof(c->model), "%s", model);
    int64_t in = token_count(json_object_get(usage, "prompt_tokens")), out = token_count(json_object_get(usage, "completion_tokens"));
    c->tokens_in = in >= 0 ? in : c->tokens_in;
    c->tokens_out = out >= 0 ? out : c->tokens_out;
    return STITCH_OK;
}

static int parse(stitch__chat *c, const char *json, size_t len, json_t **doc, stitch_error **err)
{
    int rc = stitch__json_parse(c->ctx, json, len, c->limit + (1u << 20), "the endpoint's answer", doc, err);
    if (rc)
        return rc;
    const json_t *error = json_object_get(*doc, "error");
    if (error && !json_is_null(error)) {
        stitch__buf text;
        stitch__buf_init(&text, c->ctx);
        stitch__chat_error_text(&text, json, len);
        rc = stitch__err_native(c->ctx, err, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 0, "the endpoint reports: %s", text.data ? text.data : "an error");
        stitch__buf_free(&text);
    } else if (!json_is_object(*doc)) {
        rc = stitch__err_native(c->ctx, err, STITCH_E_FORMAT, STITCH_DOMAIN_HTTP, 0, "the endpoint's answer is %s, not an object",
                                stitch__json_type(*doc));
    }
    if (rc) {
        json_decref(*doc);
        *doc = NULL;
    }
    return rc;
}

int stitch__chat_chunk(stitch__chat *c, const char *json, size_t len, stitch_error **err)
{
    json_t *doc = NULL;
    if (len == 6 && memcmp(json, "[DONE]", 6) == 0) {
        c->done = true;
        return STITCH_OK;
    }
    int rc = parse(c, json, len, &doc, err);
    if (rc)
        return rc;
    rc = take(c, doc, "delta", err);
    json_decref(doc);
    return rc;
}

int stitch__chat_whole(stitch__chat *c, const char *json, size_t len, stitch_error **err)
{
    json_t *doc = NULL;
    int rc = parse(c, json, len, &doc, err);
    if (rc)
        return rc;
    if (!json_is_object(json_object_get(json_array_get(json_object_get(doc, "choices"), 0), "message")))
        rc = stitch__err_native(c->ctx, err, STITCH_E_FORMAT, STITCH_DOMAIN_HTTP, 0, "the endpoint's answer has no choices[0].message");
    else
        rc = take(c, doc, "message", err);
    c->done = rc == STITCH_OK;
    json_decref(doc);
    return rc;
}

int stitch__chat_reply(stitch__chat *c, stitch_reply **out, stitch_error **err)
{
    static const char open[] = "<think>", close[] = "</think>";
    const char *text = c->text.data ? c->text.data : "";
    size_t len = c->text.len;
    stitch_reply *r;
    int rc;

    if (strlen(text) != len || (c->reasoning.data && strlen(c->reasoning.data) != c->reasoning.len))
        return stitch__err_native(c->ctx, err, STITCH_E_FORMAT, STITCH_DOMAIN_HTTP, 0, "the reply holds a NUL character");
    if ((rc = stitch__reply_new(c->ctx, &r, err)) != STITCH_OK)
        return rc;
    /* Some servers leave the thinking in the text, at its beginning. */
    const char *start = text + strspn(text, " \t\r\n");
    const char *end = strncmp(start, open, sizeof(open) - 1) == 0 ? strstr(start, close) : NULL;
    if (end) {
        stitch__buf_append(&c->reasoning, start + sizeof(open) - 1, (size_t)(end - start) - (sizeof(open) - 1));
        text = end + sizeof(close) - 1;
        text += strspn(text, "\r\n");
        len = strlen(text);
    }
    rc = c->reasoning.failed ? STITCH_E_NOMEM : stitch__reply_text_set(r, &r->text, text, len);
    if (rc == STITCH_OK && c->reasoning.len)
        rc = stitch__reply_text_set(r, &r->reasoning, c->reasoning.data, c->reasoning.len);
    if (rc == STITCH_OK)
        rc = stitch__reply_text_set(r, &r->finish, c->finish, strlen(c->finish));
    if (rc == STITCH_OK)
        rc = stitch__reply_text_set(r, &r->model, c->model, strlen(c->model));
    if (rc == STITCH_OK && strcmp(c->finish, "length") == 0)
        rc = stitch__reply_notice_add(r, "the reply was cut off at its token limit");
    if (rc) {
        stitch_reply_free(r);
        return stitch__err_nomem(c->ctx, err);
    }
    r->tokens_in = c->tokens_in;
    r->tokens_out = c->tokens_out;
    *out = r;
    return STITCH_OK;
}

void stitch__chat_error_text(stitch__buf *out, const char *body, size_t len)
{
    json_t *doc = len < (1u << 20) ? json_loadb(body, len, 0, NULL) : NULL;
    const json_t *error = json_object_get(doc, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    if (!message)
        message = json_string_value(error);
    if (!message)
        message = json_string_value(json_object_get(doc, "message"));
    if (!message)
        message = json_string_value(json_object_get(doc, "detail"));
    if (message)
        stitch__buf_puts_clean(out, message, strlen(message), MAX_ERROR_TEXT);
    else
        stitch__buf_puts_clean(out, body, len, MAX_ERROR_TEXT);
    json_decref(doc);
}
