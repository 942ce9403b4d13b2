/* SPDX-License-Identifier: MIT
 *
 * Chat completions of OpenAI-compatible endpoints: what is sent, and what is left out once an endpoint refuses it.
 */
#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#include "model/model.h"

enum { MAX_ERROR_TEXT = 600, MAX_ERROR_JSON = 1 << 20 };

/* ---- request ---- */

/* Endpoints whose models know no system role get its text at the beginning of the next user message. */
static json_t *messages_without_system(const stitch_context *ctx, const stitch_request *r)
{
    json_t *list = json_array();
    stitch__buf text;
    int bad = 0;

    stitch__buf_init(&text, ctx);
    for (size_t i = 0; i < r->message_count; i++) {
        const stitch_message *m = &r->messages[i];
        bool last = i + 1 == r->message_count;
        if (m->role == STITCH_MESSAGE_ASSISTANT && text.len) { /* system text that nothing from the user follows */
            bad |= json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", text.data));
            stitch__buf_truncate(&text, 0);
        }
        if (text.len)
            stitch__buf_puts(&text, "\n\n");
        stitch__buf_puts(&text, m->content);
        if (m->role == STITCH_MESSAGE_SYSTEM && !last)
            continue;
        bad |= text.failed ||
               json_array_append_new(list, json_pack("{s:s, s:s}", "role",
                                                     m->role == STITCH_MESSAGE_ASSISTANT ? "assistant" : "user",
                                                     "content", text.data ? text.data : ""));
        stitch__buf_truncate(&text, 0);
    }
    stitch__buf_free(&text);
    if (bad) {
        json_decref(list);
        return NULL;
    }
    return list;
}

static int merge(json_t *body, const json_t *extra)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)extra, key, value)
    {
        if (json_is_null(value))
            json_object_del(body, key);
        else if (json_object_set(body, key, value) != 0)
            return -1;
    }
    return 0;
}

char *stitch__chat_body(const stitch_context *ctx, const stitch_request *request, const stitch__chat_settings *settings,
                        const stitch__chat_features *f)
{
    static const char *const limit_names[] = {"max_tokens", "max_completion_tokens"};
    json_t *body = json_object(), *schema = NULL;
    int bad = json_object_set_new(body, "model", json_string(settings->model));

    bad |= json_object_set_new(body, "messages",
                               f->system_role ? stitch__messages_json(request->messages, request->message_count)
                                              : messages_without_system(ctx, request));
    if (f->stream) {
        bad |= json_object_set_new(body, "stream", json_true());
        if (f->usage_option)
            bad |= json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
    }
    if (settings->max_tokens > 0 && f->limit_name != STITCH__LIMIT_NONE)
        bad |= json_object_set_new(body, limit_names[f->limit_name], json_integer(settings->max_tokens));
    if (f->temperature && settings->temperature >= 0)
        bad |= json_object_set_new(body, "temperature", json_real(settings->temperature));
    if (f->json_schema && request->json_schema && (schema = json_loads(request->json_schema, 0, NULL)))
        bad |= json_object_set_new(body, "response_format",
                                   json_pack("{s:s, s:{s:s, s:b, s:o}}", "type", "json_schema", "json_schema", "name",
                                             "reply", "strict", 1, "schema", schema));
    if (settings->extra)
        bad |= merge(body, settings->extra);
    char *text = bad ? NULL : stitch__json_dump(ctx, body, 0);
    json_decref(body);
    return text;
}

/* ---- refusals ---- */

static void copy_field(char *to, size_t size, const json_t *v)
{
    if (json_is_string(v))
        snprintf(to, size, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(to, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
}

static int stated_status(const json_t *v)
{
    json_int_t n = json_integer_value(v);
    return n >= 400 && n < 600 ? (int)n : 0;
}

void stitch__refusal_read(stitch__refusal *r, stitch__buf *message, const char *body, size_t len, const char *secret)
{
    json_t *doc = len <= MAX_ERROR_JSON ? json_loadb(body, len, 0, NULL) : NULL;
    const json_t *error = json_object_get(doc, "error");
    const json_t *fields = json_is_object(error) ? error : doc;
    const char *text = json_string_value(json_object_get(fields, "message"));
    stitch__buf whole;

    memset(r, 0, sizeof(*r));
    copy_field(r->code, sizeof(r->code), json_object_get(fields, "code"));
    copy_field(r->type, sizeof(r->type), json_object_get(fields, "type"));
    copy_field(r->param, sizeof(r->param), json_object_get(fields, "param"));
    r->status = stated_status(json_object_get(fields, "code"));
    if (!r->status)
        r->status = stated_status(json_object_get(fields, "status"));
    if (!text)
        text = json_string_value(error);
    if (!text)
        text = json_string_value(json_object_get(doc, "detail"));
    r->structured = text != NULL;
    /* The secret goes first: cut in two by the limit it would pass. */
    stitch__buf_init(&whole, message->ctx);
    if (text)
        stitch__secret_append(&whole, text, strlen(text), secret, STITCH__SECRET_MIN_ERROR);
    else
        stitch__secret_append(&whole, body, len, secret, STITCH__SECRET_MIN_ERROR);
    if (whole.failed)
        message->failed = true;
    else if (whole.len)
        stitch__buf_puts_clean(message, whole.data, whole.len, MAX_ERROR_TEXT);
    stitch__buf_free(&whole);
    json_decref(doc);
}

/* The name as a word of its own: "stream" is not meant by "stream_options". */
static bool names(const stitch__refusal *r, const char *message, const char *name)
{
    size_t n = strlen(name);
    if (strcmp(r->param, name) == 0)
        return true;
    for (const char *p = message; (p = strstr(p, name)); p += n) {
        bool before = p > message && (isalnum((unsigned char)p[-1]) || p[-1] == '_');
        bool after = isalnum((unsigned char)p[n]) || p[n] == '_';
        if (!before && !after)
            return true;
    }
    return false;
}

/* The parameter itself is refused, not its value ("max_tokens is too large"). Texts differ from server to server. */
static bool unsupported(const stitch__refusal *r, const char *message)
{
    static const char *const words[] = {
        "unsupported", "not support",       "unrecognized", "unknown",          "unexpected",
        "extra",       "not permitted",     "not allowed",  "deprecated",       "instead",
        "unavailable", "invalid parameter", "no longer",    "only the default", "not implemented"};
    for (size_t i = 0; i < STITCH__COUNT(words); i++) {
        if (strcasestr(message, words[i]))
            return true;
    }
    return strstr(r->code, "unsupported") != NULL || strstr(r->code, "unknown_parameter") != NULL;
}

bool stitch__chat_adapt(stitch__chat_features *now, const stitch__chat_features *sent, const stitch_request *request,
                        const stitch__chat_settings *settings, const stitch__refusal *r, const char *message)
{
    /* Another request may have taken the feature back already: what counts is what this one sent. */
    if (sent->stream && sent->usage_option &&
        (names(r, message, "stream_options") || names(r, message, "include_usage"))) {
        now->usage_option = false;
        return true;
    }
    if (settings->max_tokens > 0 && sent->limit_name == STITCH__LIMIT_MAX_TOKENS &&
        (names(r, message, "max_completion_tokens") || (names(r, message, "max_tokens") && unsupported(r, message)))) {
        if (now->limit_name == STITCH__LIMIT_MAX_TOKENS)
            now->limit_name = STITCH__LIMIT_MAX_COMPLETION_TOKENS;
        return true;
    }
    if (settings->max_tokens > 0 && sent->limit_name == STITCH__LIMIT_MAX_COMPLETION_TOKENS &&
        names(r, message, "max_completion_tokens") && unsupported(r, message)) {
        now->limit_name = STITCH__LIMIT_NONE;
        return true;
    }
    if (settings->temperature >= 0 && sent->temperature && names(r, message, "temperature")) {
        now->temperature = false;
        return true;
    }
    if (request->json_schema && sent->json_schema && !settings->schema_required &&
        (names(r, message, "response_format") || names(r, message, "json_schema") || names(r, message, "schema") ||
         names(r, message, "guided_json") || strcasestr(message, "structured output"))) {
        now->json_schema = false;
        return true;
    }
    if (sent->stream && !settings->stream_required && names(r, message, "stream") && unsupported(r, message)) {
        now->stream = false;
        return true;
    }
    if (sent->system_role && request->message_count && strcasestr(message, "role") && strcasestr(message, "system") &&
        unsupported(r, message)) {
        now->system_role = false;
        return true;
    }
    return false;
}
