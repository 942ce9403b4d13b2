/* SPDX-License-Identifier: MIT
 *
 * Chat completions: whatever an endpoint sends is either a reply of valid text or an error with a message, and neither
 * holds the key. The first byte of the input chooses: a whole reply, a stream of events, or the body of a refusal.
 */
#include <stdlib.h>

#include "model/model.h"

#define KEY "sk-key-of-the-test"
enum { LIMIT = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text)
{
    if (!text || !stitch__utf8_valid(text, strlen(text)) || strstr(text, KEY))
        abort();
}

static void check_error(int rc, stitch_error *err)
{
    if (rc != STITCH_E_HTTP && rc != STITCH_E_LIMIT)
        abort();
    if (!*stitch_error_message(err))
        abort();
    check_text(stitch_error_message(err));
    check_text(stitch_error_details(err));
}

static void on_piece(size_t index, int reasoning, const char *text, size_t len, void *userdata)
{
    size_t *total = userdata;
    if (index != 3 || reasoning < 0 || reasoning > 1 || len == 0)
        abort();
    for (size_t i = 0; i < len; i++)
        if (!text[i])
            abort();
    *total += len;
}

static int on_event(const char *data, size_t len, void *userdata)
{
    return stitch__chat_chunk(userdata, data, len, NULL);
}

static void reply(const char *bytes, size_t size, bool stream)
{
    stitch_error *err = NULL;
    stitch_reply *r = NULL;
    stitch_request request = STITCH_REQUEST_INIT;
    stitch__chat c;
    stitch__sse s;
    size_t total = 0;
    int rc;

    request.on_token = on_piece;
    request.userdata = &total;
    stitch__chat_init(&c, NULL, LIMIT, KEY, &request, 3);
    stitch__sse_init(&s, NULL, LIMIT, on_event, &c);
    if (!stream) {
        rc = stitch__chat_whole(&c, bytes, size, &err);
    } else if ((rc = stitch__sse_feed(&s, bytes, size, &err)) == STITCH_OK) {
        rc = stitch__sse_finish(&s, &err);
    }
    if (rc == STITCH_OK)
        rc = stitch__chat_reply(&c, &r, &err);
    if (total > LIMIT)
        abort();
    if (rc == STITCH_OK) {
        check_text(stitch_reply_text(r));
        check_text(stitch_reply_reasoning(r));
        check_text(stitch_reply_finish(r));
        check_text(stitch_reply_model(r));
        if (strlen(stitch_reply_text(r)) + strlen(stitch_reply_reasoning(r)) > total)
            abort();
        if (stitch_reply_tokens_in(r) < -1 || stitch_reply_tokens_out(r) < -1)
            abort();
    } else if (err || !stream) { /* on_event drops its errors */
        check_error(rc, err);
    }
    stitch_reply_free(r);
    stitch_error_free(err);
    stitch__sse_free(&s);
    stitch__chat_free(&c);
}

static void refusal(const char *bytes, size_t size)
{
    stitch__refusal r;
    stitch__buf text;
    const stitch__chat_features sent = {true, true, true, true, true, STITCH__LIMIT_MAX_TOKENS};
    const stitch__chat_settings settings = {"m", NULL, 1, 1, false, false};
    stitch__chat_features now = sent;
    const stitch_message message = {STITCH_MESSAGE_USER, 0, "q"};
    stitch_request request = STITCH_REQUEST_INIT;

    request.messages = &message;
    request.message_count = 1;
    request.json_schema = "{}";
    stitch__buf_init(&text, NULL);
    stitch__refusal_read(&r, &text, bytes, size, KEY);
    if (text.data) {
        check_text(text.data);
        bool changed = stitch__chat_adapt(&now, &sent, &request, &settings, &r, text.data);
        if (changed != (now.stream != sent.stream || now.usage_option != sent.usage_option ||
                        now.json_schema != sent.json_schema || now.temperature != sent.temperature ||
                        now.system_role != sent.system_role || now.limit_name != sent.limit_name))
            abort();
    }
    stitch__buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *bytes = (const char *)data + 1;
    if (data[0] % 4 == 2)
        refusal(bytes, size - 1);
    else
        reply(bytes, size - 1, data[0] % 4 != 1);
    return 0;
}
