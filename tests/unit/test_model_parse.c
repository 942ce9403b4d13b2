/* SPDX-License-Identifier: MIT
 *
 * Chat completions without a network: pieces at every boundary, thinking, keys, refusals, what is sent; pauses.
 */
#include <time.h>

#include "check.h"
#include "model/model.h"

#define KEY "sk-abcabcabd-0123"

/* ---- replies ---- */

static void gather(size_t index, int reasoning, const char *text, size_t len, void *userdata)
{
    stitch__buf *b = userdata;
    (void)index;
    stitch__buf_puts(&b[reasoning], "");
    stitch__buf_append(&b[reasoning], text, len);
}

/* Feeds `content` as a stream of chunks, cut at byte `cut` (of UTF-8 without escapes), and compares what comes out. */
static void check_split(const char *content, size_t cut, const char *want_text, const char *want_reasoning)
{
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch__chat c;
    stitch__buf pieces[2];
    stitch_request r = STITCH_REQUEST_INIT;
    const size_t len = strlen(content), at[] = {0, cut, len};

    stitch__buf_init(&pieces[0], NULL);
    stitch__buf_init(&pieces[1], NULL);
    r.on_token = gather;
    r.userdata = pieces;
    stitch__chat_init(&c, NULL, 10000, KEY, &r, 0);
    for (int i = 0; i < 2; i++) {
        char *part = stitch__strndup(NULL, content + at[i], at[i + 1] - at[i]);
        json_t *doc = json_pack("{s:[{s:{s:s}}]}", "choices", "delta", "content", part);
        char *text = stitch__json_dump(NULL, doc, 0);
        CHECK_OK(stitch__chat_chunk(&c, text, strlen(text), &err));
        stitch_free(text);
        stitch_free(part);
        json_decref(doc);
    }
    CHECK_OK(stitch__chat_chunk(&c, "[DONE]", 6, &err));
    CHECK_OK(stitch__chat_reply(&c, &reply, &err));
    CHECK_STR(stitch_reply_text(reply), want_text);
    CHECK_STR(stitch_reply_reasoning(reply), want_reasoning);
    if (strstr(content, "<think>") || !strstr(content, "</think>")) { /* pieces say the same as the whole */
        CHECK_STR(pieces[0].data ? pieces[0].data : "", want_text);
        CHECK_STR(pieces[1].data ? pieces[1].data : "", want_reasoning);
    }
    stitch_reply_free(reply);
    stitch__chat_free(&c);
    stitch__buf_free(&pieces[0]);
    stitch__buf_free(&pieces[1]);
}

TEST(splits)
{
    static const struct {
        const char *content, *text, *reasoning;
    } cases[] = {
        {"plain", "plain", ""},
        {"<think>a<b</think>\n\nanswer", "answer", "a<b"},
        {" \n<think></think>x", "x", ""},
        {"<think>cut off", "", "cut off"},
        {"<think>ends in </thin", "", "ends in </thin"},
        {"<thin", "<thin", ""},
        {"  <think", "  <think", ""},
        {"<thinking> is no mark", "<thinking> is no mark", ""},
        {"a <think>b</think>", "a <think>b</think>", ""},
        {"<think>a</think>b</think>", "b</think>", "a"},
        {"thought\n</think>\n\nanswer", "answer", "thought\n"},
        {"\n \n", "\n \n", ""},
        {"", "", ""},
        {"key " KEY " here", "key [key] here", ""},
        {"sk-abcabc" KEY KEY "sk-abc", "sk-abcabc[key][key]sk-abc", ""},
        {"sk-abcabcabcabd-0123", "sk-abcabcabcabd-0123", ""},
        {"<think>" KEY "</think>" KEY, "[key]", "[key]"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        for (size_t cut = 0; cut <= strlen(cases[i].content); cut++)
            check_split(cases[i].content, cut, cases[i].text, cases[i].reasoning);
    }
}

static int whole(const char *json, stitch_reply **reply, stitch__refusal *refusal, stitch_error **err)
{
    stitch__chat c;
    stitch__chat_init(&c, NULL, 100, KEY, NULL, 0);
    int rc = stitch__chat_whole(&c, json, strlen(json), err);
    if (rc == STITCH_OK)
        rc = stitch__chat_reply(&c, reply, err);
    if (refusal)
        *refusal = c.refusal;
    stitch__chat_free(&c);
    return rc;
}

#define MESSAGE(fields) "{\"choices\":[{\"message\":{" fields "},\"finish_reason\":\"stop\"}]}"

TEST(shapes_of_replies)
{
    static const struct {
        const char *json, *text, *reasoning;
    } cases[] = {
        {MESSAGE("\"content\":\"a\""), "a", ""},
        {MESSAGE("\"content\":null,\"reasoning\":\"r\""), "", "r"},
        {MESSAGE("\"content\":\"a\",\"reasoning_content\":\"r\",\"reasoning\":\"r\""), "a", "r"},
        {MESSAGE("\"content\":\"a\",\"reasoning_content\":null,\"reasoning\":\"r\""), "a", "r"},
        {MESSAGE("\"content\":[\"a\",{\"text\":\"b\"},{\"type\":\"image\"}]"), "ab", ""},
        {MESSAGE("\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"r\"}]},{\"text\":"
                 "\"a\"}]"),
         "a", "r"},
        {MESSAGE("\"content\":null,\"refusal\":\"I must not\""), "I must not", ""},
        {"{\"choices\":[{\"message\":{\"content\":\"a\"},\"finish_reason\":null}],\"usage\":null,\"error\":null}", "a",
         ""},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        stitch_reply *reply = NULL;
        CHECK_OK(whole(cases[i].json, &reply, NULL, &err));
        CHECK_STR(stitch_reply_text(reply), cases[i].text);
        CHECK_STR(stitch_reply_reasoning(reply), cases[i].reasoning);
        stitch_reply_free(reply);
    }
}

TEST(malformed_replies)
{
    static const struct {
        const char *json;
        int status;
        const char *part;
    } cases[] = {
        {"", STITCH_E_HTTP, "the endpoint's answer"},
        {"{\"choices\":[{\"message\":{\"content\":\"a", STITCH_E_HTTP, "the endpoint's answer"},
        {MESSAGE("\"content\":3"), STITCH_E_HTTP, "an integer where text belongs"},
        {MESSAGE("\"content\":{\"text\":\"a\"}"), STITCH_E_HTTP, "an object where text belongs"},
        {MESSAGE("\"content\":[[[[[[[[[[[\"a\"]]]]]]]]]]]"), STITCH_OK, ""}, /* lists of lists are no parts */
        {MESSAGE(
             "\"content\":[{\"thinking\":[{\"thinking\":[{\"thinking\":[{\"thinking\":[{\"thinking\":[{\"thinking\":[{"
             "\"thinking\":[{\"thinking\":[{\"thinking\":[\"a\"]}]}]}]}]}]}]}]}]}]"),
         STITCH_E_HTTP, "where text belongs"},
        {"{\"choices\":[{\"message\":[]}]}", STITCH_E_HTTP, "no choices[0].message"},
        {"{\"choices\":{\"0\":1}}", STITCH_E_HTTP, "no choices[0].message"},
        {"[]", STITCH_E_HTTP, "is a list"},
        {"\"text\"", STITCH_E_HTTP, "expected"},
        {MESSAGE("\"content\":NaN"), STITCH_E_HTTP, "the endpoint's answer"},
        {MESSAGE("\"content\":\"\xff\xfe\""), STITCH_E_HTTP, "the endpoint's answer"},
        {MESSAGE("\"content\":\"a\\u0000b\""), STITCH_E_HTTP, "the endpoint's answer"},
        {MESSAGE("\"content\":\"a\",\"content\":\"b\""), STITCH_E_HTTP, "duplicate"},
        {MESSAGE("\"content\":"
                 "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                 "aaaaaaaaaaaaa\""),
         STITCH_E_LIMIT, "longer than 100 bytes"},
        {"{\"error\":{\"message\":\"no\"}}", STITCH_E_HTTP, "reports: no"},
        {"{\"error\":\"no\"}", STITCH_E_HTTP, "reports: no"},
        {"{\"error\":{\"message\":3}}", STITCH_E_HTTP, "{\"error\":{\"message\":3}}"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        stitch_reply *reply = NULL;
        int rc = whole(cases[i].json, &reply, NULL, &err);
        stitch_reply_free(reply);
        CHECK_ERR(rc, cases[i].status, cases[i].part);
    }
}

TEST(odd_counts_are_unknown)
{
    static const char *const counts[] = {"-1", "1e300", "\"12\"", "null", "[]", "{}"};
    for (size_t i = 0; i < STITCH__COUNT(counts); i++) {
        stitch_error *err = NULL;
        stitch_reply *reply = NULL;
        char json[256];
        snprintf(json, sizeof(json),
                 "{\"choices\":[{\"message\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":%s,\"completion_"
                 "tokens\":7.0}}",
                 counts[i]);
        CHECK_OK(whole(json, &reply, NULL, &err));
        CHECK_INT(stitch_reply_tokens_in(reply), -1);
        CHECK_INT(stitch_reply_tokens_out(reply), 7);
        stitch_reply_free(reply);
    }
}

/* The parser's own message quotes the document: a key that is cut in two there must not come through either. */
TEST(no_key_in_parse_errors)
{
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    CHECK_INT(whole("{\"a\": " KEY "}", &reply, NULL, &err), STITCH_E_HTTP);
    CHECK(!strstr(stitch_error_message(err), "sk-"));
    stitch_error_free(err);
    err = NULL;
    CHECK_INT(whole("{\"a\": \"" KEY, &reply, NULL, &err), STITCH_E_HTTP);
    CHECK(!strstr(stitch_error_message(err), "sk-"));
    stitch_error_free(err);
}

static void read_refusal(const char *body, const char *secret, const char *want, stitch__refusal *r)
{
    stitch__buf text;
    stitch__buf_init(&text, NULL);
    stitch__refusal_read(r, &text, body, strlen(body), secret);
    CHECK_STR(text.data ? text.data : "", want);
    stitch__buf_free(&text);
}

TEST(refusals)
{
    stitch__refusal r;
    char body[2000], want[700];
    read_refusal("{\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":\"p\",\"code\":429}}", NULL, "m", &r);
    CHECK_STR(r.type, "t");
    CHECK_STR(r.param, "p");
    CHECK_STR(r.code, "429");
    CHECK_INT(r.status, 429);
    read_refusal("{\"object\":\"error\",\"message\":\"m\",\"code\":\"x\"}", NULL, "m", &r);
    CHECK_STR(r.code, "x");
    CHECK_INT(r.status, 0);
    read_refusal("{\"detail\":\"d\"}", NULL, "d", &r);
    read_refusal("{\"detail\":[{\"msg\":\"x\"}]}", NULL, "{\"detail\":[{\"msg\":\"x\"}]}", &r);
    read_refusal("\x1b[2Jbad\x07", NULL, "?[2Jbad?", &r);
    read_refusal("", NULL, "", &r);
    CHECK(!r.structured);
    /* A key at the place where the text is cut off leaves no half of it. */
    memset(body, 'a', 590);
    snprintf(body + 590, sizeof(body) - 590, "%s and more", KEY);
    memset(want, 'a', 590);
    snprintf(want + 590, sizeof(want) - 590, "[key] and ... (4 bytes left out)");
    read_refusal(body, KEY, want, &r);
    read_refusal("x marks EMPTY", "x", "x marks EMPTY", &r); /* placeholders are no secrets */
}

/* ---- requests ---- */

static const stitch_message talk[] = {{STITCH_MESSAGE_SYSTEM, 0, "be brief"},
                                      {STITCH_MESSAGE_USER, 0, "one"},
                                      {STITCH_MESSAGE_ASSISTANT, 0, "1"},
                                      {STITCH_MESSAGE_USER, 0, "two"}};

static stitch_request request(void)
{
    stitch_request r = STITCH_REQUEST_INIT;
    r.messages = talk;
    r.message_count = STITCH__COUNT(talk);
    r.json_schema = "{\"type\":\"object\"}";
    return r;
}

static const stitch__chat_features all = {true, true, true, true, true, STITCH__LIMIT_MAX_TOKENS};

TEST(bodies)
{
    stitch_request r = request();
    stitch__chat_settings s = {"m", NULL, 7, 0.25, false, false};
    stitch__chat_features f = all;
    char *body = stitch__chat_body(NULL, &r, &s, &f);
    CHECK_STR(
        body,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be "
        "brief\"},{\"role\":\"user\",\"content\":\"one\"},"
        "{\"role\":\"assistant\",\"content\":\"1\"},{\"role\":\"user\",\"content\":\"two\"}],\"stream\":true,"
        "\"stream_options\":{\"include_usage\":true},\"max_tokens\":7,\"temperature\":0.25,\"response_format\":{"
        "\"type\":"
        "\"json_schema\",\"json_schema\":{\"name\":\"reply\",\"strict\":true,\"schema\":{\"type\":\"object\"}}}}");
    stitch_free(body);
    json_t *extra = json_loads("{\"top_p\":1,\"stream_options\":null,\"temperature\":2}", 0, NULL);
    s.extra = extra;
    f = (stitch__chat_features){true, true, false, false, false, STITCH__LIMIT_MAX_COMPLETION_TOKENS};
    body = stitch__chat_body(NULL, &r, &s, &f);
    CHECK_STR(body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"be "
                    "brief\\n\\none\"},{\"role\":\"assistant\",\"content\":"
                    "\"1\"},{\"role\":\"user\",\"content\":\"two\"}],\"stream\":true,\"max_completion_tokens\":7,\"top_"
                    "p\":1,\"temperature\":2}");
    stitch_free(body);
    json_decref(extra);
}

static bool adapt(stitch__chat_features *now, const stitch__chat_features *sent, const stitch__chat_settings *s,
                  const char *param, const char *message)
{
    stitch__refusal refusal = {.structured = true};
    stitch_request r = request();
    snprintf(refusal.param, sizeof(refusal.param), "%s", param);
    return stitch__chat_adapt(now, sent, &r, s, &refusal, message);
}

static bool same(const stitch__chat_features *a, const stitch__chat_features *b)
{
    return a->stream == b->stream && a->usage_option == b->usage_option && a->json_schema == b->json_schema &&
           a->temperature == b->temperature && a->system_role == b->system_role && a->limit_name == b->limit_name;
}

TEST(adapts_to_refusals)
{
    static const struct {
        const char *param, *message;
        stitch__chat_features want;
    } cases[] = {
        {"max_tokens",
         "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
         {true, true, true, true, true, STITCH__LIMIT_MAX_COMPLETION_TOKENS}},
        {"temperature",
         "Unsupported value: 'temperature' does not support 0.25 with this model.",
         {true, true, true, false, true, 0}},
        {"", "Extra inputs are not permitted: stream_options", {true, false, true, true, true, 0}},
        {"", "Invalid schema for response_format 'reply'", {true, true, false, true, true, 0}},
        {"", "'stream' is not supported", {false, true, true, true, true, 0}},
        {"", "System role not supported", {true, true, true, true, false, 0}},
    };
    stitch__chat_settings s = {"m", NULL, 7, 0.25, false, false};
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch__chat_features now = all;
        CHECK(adapt(&now, &all, &s, cases[i].param, cases[i].message));
        CHECK(same(&now, &cases[i].want));
        /* Another request that had sent the same is tried again, and changes nothing any more. */
        CHECK(adapt(&now, &all, &s, cases[i].param, cases[i].message));
        CHECK(same(&now, &cases[i].want));
    }
    stitch__chat_features now = all, sent = all;
    sent.limit_name = now.limit_name = STITCH__LIMIT_MAX_COMPLETION_TOKENS;
    CHECK(adapt(&now, &sent, &s, "", "Unrecognized request argument supplied: max_completion_tokens"));
    CHECK_INT(now.limit_name, STITCH__LIMIT_NONE);
    /* Values that are wrong are the caller's to know, and so is what was never sent or must be kept. */
    now = all;
    CHECK(!adapt(&now, &all, &s, "max_tokens", "max_tokens is too large: 7000000"));
    CHECK(!adapt(&now, &all, &s, "", "This model does not exist"));
    s.schema_required = true;
    CHECK(!adapt(&now, &all, &s, "", "response_format: not supported"));
    s.stream_required = true;
    CHECK(!adapt(&now, &all, &s, "", "stream: not supported"));
    s.temperature = -1;
    CHECK(!adapt(&now, &all, &s, "temperature", "temperature: not supported"));
    s.max_tokens = 0;
    CHECK(!adapt(&now, &all, &s, "max_tokens", "max_tokens: not supported"));
    CHECK(same(&now, &all));
}

/* ---- retries ---- */

TEST(when_to_try_again)
{
    static const long yes[] = {408, 409, 425, 429, 500, 502, 503, 504, 529},
                      no[] = {0, 200, 301, 400, 401, 403, 404, 413, 422, 501};
    static const struct {
        const char *code, *type;
        int status;
        bool again;
    } objects[] = {{"rate_limit_exceeded", "", 0, true},
                   {"insufficient_quota", "", 429, false},
                   {"502", "", 502, true},
                   {"400", "", 400, false},
                   {"", "server_error", 0, true},
                   {"", "invalid_request_error", 0, false},
                   {"", "", 0, true},
                   {"context_length_exceeded", "", 0, false}};
    for (size_t i = 0; i < STITCH__COUNT(yes); i++)
        CHECK(stitch__retry_status(yes[i]));
    for (size_t i = 0; i < STITCH__COUNT(no); i++)
        CHECK(!stitch__retry_status(no[i]));
    for (size_t i = 0; i < STITCH__COUNT(objects); i++) {
        stitch__refusal r = {.status = objects[i].status};
        snprintf(r.code, sizeof(r.code), "%s", objects[i].code);
        snprintf(r.type, sizeof(r.type), "%s", objects[i].type);
        CHECK_INT(stitch__retry_refusal(&r), objects[i].again);
    }
}

TEST(retry_after)
{
    const int64_t now = 1700000000; /* Tue, 14 Nov 2023 22:13:20 GMT */
    const int64_t long_time = (int64_t)365 * 24 * 3600 * 1000;
    static const char *const nothing[] = {"", "soon", "nan", "inf", "-5", "1e3", "0x10", "5 s", "Tue, 14"};
    CHECK_INT(stitch__retry_after_ms("0", now), 0);
    CHECK_INT(stitch__retry_after_ms(" 7 ", now), 7000);
    CHECK_INT(stitch__retry_after_ms("1.25", now), 1250);
    CHECK_INT(stitch__retry_after_ms("0.00049", now), 0);
    CHECK_INT(stitch__retry_after_ms("Tue, 14 Nov 2023 22:13:50 GMT", now), 30000);
    CHECK_INT(stitch__retry_after_ms("Tuesday, 14-Nov-23 22:13:50 GMT", now), 30000);
    CHECK_INT(stitch__retry_after_ms("Tue, 14 Nov 2023 22:13:00 GMT", now), 0);
    CHECK_INT(stitch__retry_after_ms("99999999999999999999999999", now), long_time);
    CHECK_INT(stitch__retry_after_ms("Fri, 31 Dec 9999 23:59:59 GMT", now), long_time);
    for (size_t i = 0; i < STITCH__COUNT(nothing); i++)
        CHECK_INT(stitch__retry_after_ms(nothing[i], now), -1);
}

TEST(pauses)
{
    uint64_t random = 12345;
    bool differ = false;
    int64_t last = -1;
    for (int tries = 1; tries < 200; tries++) {
        int64_t full = tries > 7 ? 30000 : 500 << (tries - 1),
                ms = stitch__retry_pause_ms(tries, 500, 30000, -1, &random);
        full = full < 30000 ? full : 30000;
        CHECK(ms >= full / 2 && ms <= full);
        differ |= last >= 0 && tries > 8 && ms != last;
        last = ms;
        ms = stitch__retry_pause_ms(tries, 500, 30000, 60000, &random);
        CHECK(ms >= 60000 && ms <= 60000 + full / 8);
    }
    CHECK(differ);
    CHECK(stitch__retry_pause_ms(1, 500, 30000, INT64_MAX, &random) > 1000000000);
}

TEST_MAIN(RUN(splits), RUN(shapes_of_replies), RUN(malformed_replies), RUN(odd_counts_are_unknown),
          RUN(no_key_in_parse_errors), RUN(refusals), RUN(bodies), RUN(adapts_to_refusals), RUN(when_to_try_again),
          RUN(retry_after), RUN(pauses))
