/* SPDX-License-Identifier: MIT
 *
 * Models over HTTP against a scripted server: good answers, bad answers, storms, deadlines, cancellation, secrets.
 */
#include <pthread.h>

#include "check.h"
#include "model_fixture.h"

TEST(whole_reply)
{
    BEGIN({.head = OK_JSON, .body = WHOLE("hi \\u00e9")});
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    f.options.stream = -1;
    f.options.price_in = 1;
    f.options.price_out = 2;
    start(&f);
    r.max_tokens = 77;
    r.temperature = 0;
    CHECK_OK(stitch_model_complete(f.model, &r, &reply, &err));
    CHECK_STR(stitch_reply_text(reply), "hi \xc3\xa9");
    CHECK_STR(stitch_reply_finish(reply), "stop");
    CHECK_STR(stitch_reply_model(reply), "m-1");
    CHECK_INT(stitch_reply_tokens_in(reply), 12);
    CHECK_INT(stitch_reply_tokens_out(reply), 34);
    CHECK_NEAR(stitch_reply_cost(reply), (12 + 2 * 34) / 1e6, 1e-12);
    stitch_reply_free(reply);
    const char *sent = http_server_request(f.server, 0);
    CHECK_HAS(sent, "POST /v1/chat/completions HTTP/1.1");
    CHECK_HAS(sent, "Authorization: Bearer sk-very-secret");
    CHECK_HAS(sent, "\"model\":\"test-model\"");
    CHECK_HAS(sent, "\"max_tokens\":77");
    CHECK_HAS(sent, "\"temperature\":0");
    CHECK_HAS(sent, "{\"role\":\"user\",\"content\":\"hello \\\"you\\\"\\n\"}");
    CHECK(strstr(sent, "\"stream\"") == NULL);
    finish(&f);
}

static void collect(size_t index, int reasoning, const char *text, size_t len, void *userdata)
{
    char *to = userdata;
    (void)index;
    snprintf(to + strlen(to), 256 - strlen(to), "%s%.*s|", reasoning ? "r:" : "", (int)len, text);
}

TEST(streamed_reply)
{
    BEGIN({.head = OK_SSE,
           .body = ": comment\r\n\r\ndata: "
                   "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"hmm\"}}]}\r\n\r\n" DELTA(
                       "a") DELTA("\\u00e9b") "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
                                              "data: "
                                              "{\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}"
                                              "\n\ndata: [DONE]\n\n",
           .chunk = 3});
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    char seen[256] = "";
    start(&f);
    r.on_token = collect;
    r.userdata = seen;
    CHECK_OK(stitch_model_complete(f.model, &r, &reply, &err));
    CHECK_STR(stitch_reply_text(reply), "a\xc3\xa9"
                                        "b");
    CHECK_STR(stitch_reply_reasoning(reply), "hmm");
    CHECK_STR(stitch_reply_finish(reply), "length");
    CHECK_HAS(stitch_reply_notice(reply), "cut off");
    CHECK_INT(stitch_reply_tokens_out(reply), 6);
    CHECK_STR(seen, "r:hmm|a|\xc3\xa9"
                    "b|");
    stitch_reply_free(reply);
    CHECK_HAS(http_server_request(f.server, 0), "\"stream\":true");
    finish(&f);
}

TEST(thinking_inside_the_text)
{
    BEGIN({.head = OK_JSON, .body = WHOLE("<think>\\nfirst</think>\\n\\nanswer")});
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    start(&f);
    CHECK_OK(stitch_model_complete(f.model, &r, &reply, &err));
    CHECK_STR(stitch_reply_text(reply), "answer");
    CHECK_STR(stitch_reply_reasoning(reply), "\nfirst");
    stitch_reply_free(reply);
    finish(&f);
}

TEST(content_as_parts)
{
    BEGIN({.head = OK_JSON,
           .body = "{\"choices\":[{\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"x\"},{"
                   "\"text\":\"b\"}]}}]}"});
    start(&f);
    expect_text(&f, "ab");
    finish(&f);
}

TEST(retries_storms)
{
    BEGIN({.head = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0.1",
           .body = "{\"error\":{\"message\":\"slow down\"}}"},
          {.head = "HTTP/1.1 500 Oops", .body = "<html>"}, {.head = NULL}, {.head = OK_SSE, .body = DELTA("half")},
          {.head = OK_SSE, .body = DELTA("whole") STOP});
    f.options.max_retries = 5;
    start(&f);
    expect_text(&f, "whole");
    CHECK_INT(http_server_connections(f.server), 5);
    finish(&f);
}

TEST(honours_retry_after)
{
    BEGIN({.head = "HTTP/1.1 503 Busy\r\nRetry-After: 2"}, {.head = OK_JSON, .body = WHOLE("x")});
    f.options.max_retries = 1;
    start(&f);
    int64_t began = stitch__now_ns();
    expect_text(&f, "x");
    CHECK((stitch__now_ns() - began) / 1000000 >= 2000);
    finish(&f);
}

TEST(gives_up)
{
    BEGIN({.head = "HTTP/1.1 500 Oops", .body = "broken"});
    f.options.max_retries = 2;
    start(&f);
    expect_error(&f, STITCH_E_HTTP, "after 3 tries");
    CHECK_INT(http_server_connections(f.server), 3);
    finish(&f);
}

TEST(does_not_wait_past_the_deadline)
{
    BEGIN({.head = "HTTP/1.1 429 Wait\r\nRetry-After: 3600", .body = "{\"error\":\"later\"}"});
    f.options.max_retries = 3;
    start(&f);
    int64_t began = stitch__now_ns();
    expect_error(&f, STITCH_E_HTTP, "no time left");
    CHECK((stitch__now_ns() - began) / 1000000 < 3000);
    finish(&f);
}

TEST(refused_key)
{
    BEGIN({.head = "HTTP/1.1 401 No", .body = "{\"error\":{\"message\":\"bad key sk-very-secret-0123456789 given\"}}"});
    f.options.max_retries = 5;
    start(&f);
    expect_error(&f, STITCH_E_AUTH, "is the key right");
    CHECK_INT(http_server_connections(f.server), 1);
    finish(&f);
}

TEST(secret_in_a_stream_error)
{
    BEGIN({.head = OK_SSE, .body = "data: {\"error\":{\"message\":\"sk-very-secret-0123456789\"}}\n\n"});
    start(&f);
    expect_error(&f, STITCH_E_HTTP, "reports: [key]");
    finish(&f);
}

TEST(options_that_are_refused)
{
    BEGIN({.head = "HTTP/1.1 400 Bad",
           .body = "{\"error\":{\"message\":\"Unsupported parameter: max_tokens; use max_completion_tokens\"}}"},
          {.head = "HTTP/1.1 400 Bad", .body = "{\"error\":{\"message\":\"temperature is not supported\"}}"},
          {.head = "HTTP/1.1 422 Bad", .body = "{\"detail\":\"response_format: unknown\"}"},
          {.head = "HTTP/1.1 400 Bad", .body = "{\"message\":\"stream_options: unknown field\"}"},
          {.head = OK_JSON, .body = WHOLE("fine")});
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    start(&f);
    r.max_tokens = 10;
    r.temperature = 0.5;
    r.json_schema = "{\"type\":\"object\"}";
    CHECK_OK(stitch_model_complete(f.model, &r, &reply, &err));
    CHECK_STR(stitch_reply_text(reply), "fine");
    stitch_reply_free(reply);
    CHECK_HAS(http_server_request(f.server, 0), "\"response_format\"");
    const char *last = http_server_request(f.server, 4);
    CHECK_HAS(last, "\"max_completion_tokens\":10");
    CHECK(!strstr(last, "temperature") && !strstr(last, "response_format") && !strstr(last, "stream_options"));
    finish(&f);
}

TEST(bad_answers)
{
    static const char nul[] = "{\"choices\":[{\"message\":{\"content\":\"a\\u0000b\"}}]}";
    static const struct {
        http_answer answer;
        int status;
        const char *part;
    } cases[] = {
        {{.head = OK_JSON, .body = ""}, STITCH_E_HTTP, "line 1"},
        {{.head = OK_JSON, .body = "{\"choices\":"}, STITCH_E_HTTP, "the endpoint's answer"},
        {{.head = OK_JSON, .body = "[1]"}, STITCH_E_HTTP, "is a list"},
        {{.head = OK_JSON, .body = "{\"choices\":[]}"}, STITCH_E_HTTP, "choices[0].message"},
        {{.head = OK_JSON, .body = "{\"choices\":3}"}, STITCH_E_HTTP, "choices[0].message"},
        {{.head = OK_JSON, .body = "{\"error\":{\"message\":\"overloaded\"}}"}, STITCH_E_HTTP, "overloaded"},
        {{.head = OK_JSON, .body = "\x00\x01\xff\xfe", .body_len = 4}, STITCH_E_HTTP, "the endpoint's answer"},
        {{.head = OK_JSON, .body = "{\"choices\":[{\"message\":{\"content\":NaN}}]}"},
         STITCH_E_HTTP,
         "the endpoint's answer"},
        {{.head = OK_JSON, .body = nul}, STITCH_E_HTTP, ""},
        {{.head = "HTTP/1.1 200 OK\r\nContent-Type: text/html", .body = "<html>login</html>"},
         STITCH_E_HTTP,
         "a page instead of JSON"},
        {{.head = OK_SSE, .body = DELTA("a")}, STITCH_E_HTTP, "ended before"},
        {{.head = OK_SSE, .body = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]"},
         STITCH_E_HTTP,
         "ended before"},
        {{.head = OK_SSE, .body = "data: nonsense\n\n"}, STITCH_E_HTTP, "the endpoint's answer"},
        {{.head = OK_SSE, .body = ""}, STITCH_E_HTTP, "ended before"},
        {{.head = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/", .body = ""}, STITCH_E_HTTP, "302"},
        {{.head = "garbage", .body = "x"}, STITCH_E_HTTP, "127.0.0.1"},
        {{.head = "HTTP/1.1 404 Not Found", .body = "no\x1b[31m such model\x07"}, STITCH_E_HTTP, "no?[31m such model?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        prepare(&f, &cases[i].answer, 1);
        start(&f);
        expect_error(&f, cases[i].status, cases[i].part);
        finish(&f);
    }
}

TEST(deep_json)
{
    static char deep[4096];
    static http_answer a = {.head = OK_JSON, .body = deep};
    memset(deep, '[', sizeof(deep) - 1);
    fixture f;
    prepare(&f, &a, 1);
    start(&f);
    expect_error(&f, STITCH_E_LIMIT, "nested deeper");
    finish(&f);
}

TEST(endless_streams)
{
    static const http_answer cases[] = {
        {.head = OK_SSE,
         .body = DELTA("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
         .repeat_body = -1},
        {.head = OK_SSE, .body = "data: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", .repeat_body = -1},
        {.head = OK_JSON,
         .body = "                                                                ",
         .repeat_body = -1},
        {.head = "HTTP/1.1 200 OK\r\nX: 1", .body = NULL},
    };
    for (size_t i = 0; i < 3; i++) {
        fixture f;
        prepare(&f, &cases[i], 1);
        f.options.max_reply_bytes = 100000;
        start(&f);
        expect_error(&f, STITCH_E_LIMIT, "longer than");
        finish(&f);
    }
}

TEST(endless_headers)
{
    static char head[200000] = "HTTP/1.1 200 OK";
    static http_answer a = {.head = head, .body = "x"};
    for (size_t n = strlen(head); n + 40 < sizeof(head); n = strlen(head + n) + n)
        strcpy(head + n, "\r\nX-Filler: aaaaaaaaaaaaaaaaaaa");
    fixture f;
    prepare(&f, &a, 1);
    start(&f);
    expect_error(&f, STITCH_E_LIMIT, "headers");
    finish(&f);
}

TEST(silence_ends)
{
    BEGIN({.head = OK_SSE, .body = DELTA("a"), .linger_ms = 20000});
    f.options.idle_timeout_ms = 300;
    start(&f);
    int64_t began = stitch__now_ns();
    expect_error(&f, STITCH_E_TIMEOUT, "nothing arrived");
    CHECK((stitch__now_ns() - began) / 1000000 < 3000);
    finish(&f);
}

TEST(slow_but_steady_meets_the_deadline)
{
    BEGIN({.head = OK_SSE, .body = DELTA("a"), .chunk = 1, .delay_ms = 50, .repeat_body = 100});
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    start(&f);
    r.timeout_ms = 400;
    int64_t began = stitch__now_ns();
    CHECK_ERR(stitch_model_complete(f.model, &r, &reply, &err), STITCH_E_TIMEOUT, "deadline");
    CHECK((stitch__now_ns() - began) / 1000000 < 2000);
    finish(&f);
}

static void *cancel_soon(void *token)
{
    stitch__sleep_ms(200);
    stitch_cancel_trigger(token);
    return NULL;
}

TEST(cancel_from_another_thread)
{
    BEGIN({.head = OK_SSE, .body = DELTA("a"), .linger_ms = 20000});
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    stitch_cancel *token = NULL;
    pthread_t thread;
    start(&f);
    CHECK_INT(stitch_cancel_new(&token), STITCH_OK);
    r.cancel = token;
    pthread_create(&thread, NULL, cancel_soon, token);
    int64_t began = stitch__now_ns();
    CHECK_ERR(stitch_model_complete(f.model, &r, &reply, &err), STITCH_E_CANCELLED, "cancelled");
    CHECK((stitch__now_ns() - began) / 1000000 < 1500);
    pthread_join(thread, NULL);
    stitch_cancel_free(token);
    finish(&f);
}

TEST(eight_at_once)
{
    BEGIN({.head = OK_SSE, .body = DELTA("a") DELTA("b") STOP, .chunk = 16, .delay_ms = 20});
    enum { N = 8 };
    stitch_request requests[N];
    stitch_reply *replies[N];
    stitch_error *errors[N] = {NULL};
    int statuses[N];
    start(&f);
    for (int i = 0; i < N; i++)
        requests[i] = request();
    CHECK_INT(stitch_model_complete_many(f.model, requests, N, statuses, replies, errors), STITCH_OK);
    for (int i = 0; i < N; i++) {
        CHECK_INT(statuses[i], STITCH_OK);
        CHECK_STR(stitch_reply_text(replies[i]), "ab");
        stitch_reply_free(replies[i]);
    }
    CHECK(http_server_peak(f.server) > 4);
    finish(&f);
}

TEST(one_of_several_fails)
{
    BEGIN({.head = "HTTP/1.1 404 No", .body = "no"}, {.head = OK_JSON, .body = WHOLE("y")});
    stitch_request requests[2] = {request(), request()};
    stitch_reply *replies[2];
    int statuses[2];
    f.options.max_concurrent = 1;
    start(&f);
    CHECK_INT(stitch_model_complete_many(f.model, requests, 2, statuses, replies, NULL), STITCH_E_HTTP);
    CHECK_INT(statuses[0], STITCH_E_HTTP);
    CHECK_INT(statuses[1], STITCH_OK);
    CHECK(replies[0] == NULL);
    stitch_reply_free(replies[1]);
    finish(&f);
}

TEST(budget_is_kept)
{
    BEGIN({.head = OK_JSON, .body = WHOLE("y")});
    stitch_error *err = NULL;
    stitch_budget *budget = NULL;
    int64_t tokens, requests;
    double cost;
    start(&f);
    CHECK_OK(stitch_budget_new(f.ctx, 50, 0, &budget, &err));
    stitch_model_set_budget(f.model, budget);
    expect_text(&f, "y");
    expect_text(&f, "y");
    stitch_budget_used(budget, &tokens, &cost, &requests);
    CHECK_INT(tokens, 92);
    CHECK_INT(requests, 2);
    expect_error(&f, STITCH_E_BUDGET, "92 used");
    CHECK_INT(http_server_connections(f.server), 2);
    stitch_model_set_budget(f.model, NULL);
    stitch_budget_free(budget);
    finish(&f);
}

TEST(nobody_listens)
{
    BEGIN({.head = OK_JSON});
    start(&f);
    http_server_stop(f.server);
    f.server = http_server_start(answers, 1);
    expect_error(&f, STITCH_E_HTTP, "127.0.0.1");
    finish(&f);
}

TEST(bad_options)
{
    BEGIN({.head = OK_JSON});
    stitch_error *err = NULL;
    stitch_model *model = NULL;
    stitch_http_options o = STITCH_HTTP_OPTIONS_INIT;
    CHECK_ERR(stitch_model_new_http(f.ctx, &o, &model, &err), STITCH_E_INVALID, "required");
    o = f.options;
    o.base_url = "file:///etc/passwd";
    CHECK_ERR(stitch_model_new_http(f.ctx, &o, &model, &err), STITCH_E_INVALID, "http://");
    o = f.options;
    o.api_key = "a\r\nX: y";
    CHECK_ERR(stitch_model_new_http(f.ctx, &o, &model, &err), STITCH_E_INVALID, "line break");
    o = f.options;
    o.extra_body = "[1]";
    CHECK_ERR(stitch_model_new_http(f.ctx, &o, &model, &err), STITCH_E_FORMAT, "extra_body");
    o = f.options;
    o.idle_timeout_ms = -1;
    CHECK_ERR(stitch_model_new_http(f.ctx, &o, &model, &err), STITCH_E_INVALID, "negative");
    CHECK(model == NULL);
    finish(&f);
}

TEST_MAIN(RUN(whole_reply), RUN(streamed_reply), RUN(thinking_inside_the_text), RUN(content_as_parts),
          RUN(retries_storms), RUN(honours_retry_after), RUN(gives_up), RUN(does_not_wait_past_the_deadline),
          RUN(refused_key), RUN(secret_in_a_stream_error), RUN(options_that_are_refused), RUN(bad_answers),
          RUN(deep_json), RUN(endless_streams), RUN(endless_headers), RUN(silence_ends),
          RUN(slow_but_steady_meets_the_deadline), RUN(cancel_from_another_thread), RUN(eight_at_once),
          RUN(one_of_several_fails), RUN(budget_is_kept), RUN(nobody_listens), RUN(bad_options))
