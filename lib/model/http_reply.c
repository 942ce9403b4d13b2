/* SPDX-License-Identifier: MIT
 *
 * Chat completions of OpenAI-compatible endpoints: replies, whole or in chunks. Text passes through three stages: the
 * key is blotted out, a leading <think> block is told from the answer, and the rest is kept and handed to the caller.
 */
#include <stdio.h>

#include "model/model.h"

enum { MAX_PART_DEPTH = 8 };

static const char think_open[] = "<think>", think_close[] = "</think>";

void stitch__chat_init(stitch__chat *c, const stitch_context *ctx, size_t limit, const char *secret,
                       const stitch_request *request, size_t index)
{
    memset(c, 0, sizeof(*c));
    c->ctx = ctx;
    c->limit = limit;
    c->secret = secret;
    c->request = request;
    c->index = index;
    c->tokens_in = c->tokens_out = -1;
    stitch__buf_init(&c->text, ctx);
    stitch__buf_init(&c->reasoning, ctx);
    stitch__buf_init(&c->clean, ctx);
    stitch__buf_init(&c->held, ctx);
    stitch__secret_filter_init(&c->filters[0], secret);
    stitch__secret_filter_init(&c->filters[1], secret);
}

void stitch__chat_free(stitch__chat *c)
{
    stitch__buf_free(&c->text);
    stitch__buf_free(&c->reasoning);
    stitch__buf_free(&c->clean);
    stitch__buf_free(&c->held);
}

/* ---- text ---- */

static int keep(stitch__chat *c, bool reasoning, const char *text, size_t len, stitch_error **err)
{
    stitch__buf *to = reasoning ? &c->reasoning : &c->text;
    if (!len)
        return STITCH_OK;
    if (c->text.len + c->reasoning.len + len > c->limit)
        return stitch__err_native(c->ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                                  "the reply is longer than %zu bytes", c->limit);
    stitch__buf_append(to, text, len);
    if (to->failed)
        return stitch__err_nomem(c->ctx, err);
    if (c->request && c->request->on_token) {
        c->pieces = true;
        c->request->on_token(c->index, reasoning, text, len, c->request->userdata);
    }
    return STITCH_OK;
}

/* Bytes at the end of the text that could begin the mark. */
static size_t partial_mark(const char *text, size_t len, const char *mark)
{
    size_t n = strlen(mark) - 1;
    for (n = n < len ? n : len; n; n--) {
        if (memcmp(text + len - n, mark, n) == 0)
            return n;
    }
    return 0;
}

/* Takes from the beginning of the held text what can be decided. At the end of the reply everything can be. */
static int decide(stitch__chat *c, bool at_end, stitch_error **err)
{
    const char *text = c->held.data ? c->held.data : "";
    size_t len = c->held.len, at = 0;
    int rc = STITCH_OK;

    if (c->think == STITCH__THINK_START) {
        size_t space = 0, n = sizeof(think_open) - 1;
        while (space < len && strchr(" \t\r\n", text[space]))
            space++;
        size_t left = len - space, same = left < n ? left : n;
        if (memcmp(text + space, think_open, same) != 0) {
            c->think = STITCH__THINK_NONE;
        } else if (left >= n) {
            c->think = STITCH__THINK_INSIDE;
            at = space + n;
        } else if (at_end) {
            c->think = STITCH__THINK_NONE;
        } else {
            return STITCH_OK;
        }
    }
    if (c->think == STITCH__THINK_INSIDE) {
        const char *close = memmem(text + at, len - at, think_close, sizeof(think_close) - 1);
        size_t end = close    ? (size_t)(close - text)
                     : at_end ? len
                              : len - partial_mark(text + at, len - at, think_close);
        rc = keep(c, true, text + at, end - at, err);
        at = end;
        if (close) {
            c->think = STITCH__THINK_AFTER;
            at += sizeof(think_close) - 1;
        }
    }
    if (c->think == STITCH__THINK_AFTER) {
        while (at < len && strchr(" \t\r\n", text[at]))
            at++;
        if (at < len)
            c->think = STITCH__THINK_NONE;
    }
    if (c->think == STITCH__THINK_NONE) {
        if (rc == STITCH_OK)
            rc = keep(c, false, text + at, len - at, err);
        at = len;
    }
    if (at) { /* what stays is shorter than a mark, so this is cheap */
        memmove(c->held.data, c->held.data + at, len - at);
        stitch__buf_truncate(&c->held, len - at);
    }
    return rc;
}

static int pass(stitch__chat *c, bool reasoning, bool at_end, stitch_error **err)
{
    int rc;
    if (c->clean.failed)
        return stitch__err_nomem(c->ctx, err);
    const char *text = c->clean.data ? c->clean.data : "";
    if (reasoning || (c->think == STITCH__THINK_NONE && !c->held.len)) {
        rc = keep(c, reasoning, text, c->clean.len, err);
    } else {
        if (c->held.len + c->clean.len > c->limit + sizeof(think_close)) /* endless white space */
            return stitch__err_native(c->ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                                      "the reply is longer than %zu bytes", c->limit);
        stitch__buf_append(&c->held, text, c->clean.len);
        rc = c->held.failed ? stitch__err_nomem(c->ctx, err) : decide(c, at_end, err);
    }
    stitch__buf_truncate(&c->clean, 0);
    return rc;
}

static int add_text(stitch__chat *c, bool reasoning, const char *text, size_t len, stitch_error **err)
{
    stitch__secret_filter_feed(&c->filters[reasoning], &c->clean, text, len);
    return pass(c, reasoning, false, err);
}

/* A string, or a list of parts that are strings or objects: {"text"}, {"type": "thinking", "thinking": [parts]}. */
static int add_value(stitch__chat *c, bool reasoning, const json_t *v, int depth, stitch_error **err)
{
    if (!v || json_is_null(v))
        return STITCH_OK;
    if (json_is_string(v))
        return add_text(c, reasoning, json_string_value(v), json_string_length(v), err);
    if (!json_is_array(v) || depth == MAX_PART_DEPTH)
        return stitch__err_native(c->ctx, err, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 0,
                                  "the endpoint's answer has %s where text belongs", stitch__json_type(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *part = json_array_get(v, i);
        const json_t *thinking = json_object_get(part, "thinking");
        int rc = STITCH_OK;
        if (json_is_string(part))
            rc = add_value(c, reasoning, part, depth + 1, err);
        else if (thinking)
            rc = add_value(c, true, thinking, depth + 1, err);
        else
            rc = add_value(c, reasoning, json_object_get(part, "text"), depth + 1, err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

/* ---- documents ---- */

static int64_t token_count(const json_t *v)
{
    double n = json_number_value(v);
    return json_is_number(v) && n >= 0 && n < 1e15 ? (int64_t)n : -1;
}

static void copy_clean(stitch__chat *c, char *to, size_t size, const json_t *v)
{
    stitch__buf b;
    if (!json_is_string(v))
        return;
    stitch__buf_init(&b, c->ctx);
    stitch__secret_append(&b, json_string_value(v), json_string_length(v), c->secret, STITCH__SECRET_MIN_ERROR);
    size_t n = b.data ? strlen(b.data) : 0;
    n = n < size ? n : size - 1;
    while (n && !stitch__utf8_valid(b.data, n))
        n--;
    memcpy(to, n ? b.data : "", n);
    to[n] = 0;
    stitch__buf_free(&b);
}

/* What chunks and whole replies share: message or delta, finish reason, usage, model. */
static int take(stitch__chat *c, const json_t *doc, const char *member, stitch_error **err)
{
    static const char *const thinking[] = {"reasoning_content", "reasoning"};
    const json_t *choice = json_array_get(json_object_get(doc, "choices"), 0);
    const json_t *message = json_object_get(choice, member), *usage = json_object_get(doc, "usage");
    const json_t *content = json_object_get(message, "content"), *finish = json_object_get(choice, "finish_reason");
    int rc;

    for (size_t i = 0; i < STITCH__COUNT(thinking); i++) {
        const json_t *v = json_object_get(message, thinking[i]);
        if (json_is_string(v) || json_is_array(v)) { /* servers that send both send the same text twice */
            if ((rc = add_value(c, true, v, 0, err)) != STITCH_OK)
                return rc;
            break;
        }
    }
    if (!content || json_is_null(content))
        content = json_object_get(message, "refusal");
    if ((rc = add_value(c, false, content, 0, err)) != STITCH_OK)
        return rc;
    if (json_is_string(finish)) {
        copy_clean(c, c->finish, sizeof(c->finish), finish);
        c->done = true;
    }
    copy_clean(c, c->model, sizeof(c->model), json_object_get(doc, "model"));
    int64_t in = token_count(json_object_get(usage, "prompt_tokens"));
    int64_t out = token_count(json_object_get(usage, "completion_tokens"));
    c->tokens_in = in >= 0 ? in : c->tokens_in;
    c->tokens_out = out >= 0 ? out : c->tokens_out;
    return STITCH_OK;
}

static int refuse(stitch__chat *c, const char *json, size_t len, stitch_error **err)
{
    stitch__buf text;
    stitch__buf_init(&text, c->ctx);
    stitch__refusal_read(&c->refusal, &text, json, len, c->secret);
    c->refused = true;
    int rc = text.failed ? stitch__err_nomem(c->ctx, err)
                         : stitch__err_native(c->ctx, err, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, c->refusal.status,
                                              "the endpoint reports: %s", text.len ? text.data : "an error");
    stitch__buf_free(&text);
    return rc;
}

static int parse(stitch__chat *c, const char *json, size_t len, json_t **doc, stitch_error **err)
{
    stitch_error *why = NULL;
    int rc = stitch__json_parse(c->ctx, json, len, c->limit + (1u << 20), "the endpoint's answer", doc, &why);
    if (rc) {
        /* The parser quotes what it stumbles over. That may be anything, a cut-off key too. */
        const char *message = stitch_error_message(why), *near = strstr(message, " near ");
        int shown = near ? (int)(near - message) : (int)strlen(message);
        rc = stitch__err_native(c->ctx, err, rc == STITCH_E_FORMAT ? STITCH_E_HTTP : rc, STITCH_DOMAIN_HTTP, 0, "%.*s",
                                shown, message);
        stitch_error_free(why);
        return rc;
    }
    const json_t *error = json_object_get(*doc, "error");
    if (error && !json_is_null(error))
        rc = refuse(c, json, len, err);
    else if (!json_is_object(*doc))
        rc = stitch__err_native(c->ctx, err, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 0,
                                "the endpoint's answer is %s, not an object", stitch__json_type(*doc));
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
        c->done = c->last_seen = true;
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
        rc = stitch__err_native(c->ctx, err, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 0,
                                "the endpoint's answer has no choices[0].message");
    else
        rc = take(c, doc, "message", err);
    c->done = rc == STITCH_OK;
    json_decref(doc);
    return rc;
}

/* ---- the reply ---- */

int stitch__chat_reply(stitch__chat *c, stitch_reply **out, stitch_error **err)
{
    stitch_reply *r = NULL;
    int rc;

    *out = NULL;
    for (int reasoning = 1; reasoning >= 0; reasoning--) {
        stitch__secret_filter_end(&c->filters[reasoning], &c->clean);
        if ((rc = pass(c, reasoning, true, err)) != STITCH_OK)
            return rc;
    }
    const char *text = c->text.data ? c->text.data : "", *reasoning = c->reasoning.data ? c->reasoning.data : "";
    size_t thought = c->reasoning.len;
    /* Templates that open the block in the prompt leave only its end in the reply. */
    const char *close = thought ? NULL : strstr(text, think_close), *open = close ? strstr(text, think_open) : NULL;
    if (close && (!open || open > close)) {
        reasoning = text;
        thought = (size_t)(close - text);
        text = close + sizeof(think_close) - 1;
        text += strspn(text, " \t\r\n");
    }
    if ((rc = stitch__reply_new(c->ctx, &r, err)) != STITCH_OK)
        return rc;
    rc = stitch__reply_text_set(r, &r->text, text, strlen(text));
    if (rc == STITCH_OK && thought)
        rc = stitch__reply_text_set(r, &r->reasoning, reasoning, thought);
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
