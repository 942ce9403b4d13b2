/* SPDX-License-Identifier: MIT
 *
 * A model over HTTP and the scripted server behind it, for tests. The key must not turn up in logs or errors.
 */
#ifndef STITCH_TESTS_MODEL_FIXTURE_H
#define STITCH_TESTS_MODEL_FIXTURE_H

#include <pthread.h>

#include "check.h"
#include "http_server.h"
#include "model/model.h"

#define CHECK_UNUSED __attribute__((unused))

#define OK_JSON "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close"
#define OK_SSE  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close"
#define WHOLE(text)                                                                                                    \
    "{\"model\":\"m-1\",\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"" text                         \
    "\"},\"finish_reason\":\"stop\"}],"                                                                                \
    "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":34}}"
#define DELTA(text) "data: {\"choices\":[{\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define STOP        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
static const char secret[] = "sk-very-secret-0123456789";

typedef struct fixture {
    stitch_context *ctx;
    http_server *server;
    stitch_model *model;
    stitch_http_options options;
    char url[64], log[16384];
} fixture;

CHECK_UNUSED static void on_log(int level, const char *message, void *userdata)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* models of several threads log at once */
    fixture *f = userdata;
    pthread_mutex_lock(&lock);
    size_t used = strlen(f->log);
    snprintf(f->log + used, sizeof(f->log) - used, "%d %s\n", level, message);
    pthread_mutex_unlock(&lock);
}

/* Options may be changed in between: start() makes the model. */
CHECK_UNUSED static void prepare(fixture *f, const http_answer *answers, size_t count)
{
    stitch_error *err = NULL;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    /* No proxy of the surroundings comes between. */
    static const char *const proxies[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof(proxies) / sizeof(proxies[0]); i++)
        unsetenv(proxies[i]);
    memset(f, 0, sizeof(*f));
    o.log = on_log;
    o.log_userdata = f;
    o.log_level = STITCH_LOG_DEBUG;
    CHECK_OK(stitch_context_new(&f->ctx, &o, &err));
    f->server = http_server_start(answers, count);
    snprintf(f->url, sizeof(f->url), "http://127.0.0.1:%d/v1", http_server_port(f->server));
    f->options = (stitch_http_options)STITCH_HTTP_OPTIONS_INIT;
    f->options.base_url = f->url;
    f->options.model = "test-model";
    f->options.api_key = secret;
    f->options.max_retries = -1;
}

CHECK_UNUSED static void start(fixture *f)
{
    stitch_error *err = NULL;
    CHECK_OK(stitch_model_new_http(f->ctx, &f->options, &f->model, &err));
    stitch__http_set_backoff(f->model, 20);
}

CHECK_UNUSED static void finish(fixture *f)
{
    CHECK(strstr(f->log, secret) == NULL);
    stitch_model_free(f->model);
    http_server_stop(f->server);
    stitch_context_free(f->ctx);
}

static const stitch_message hello[] = {{STITCH_MESSAGE_SYSTEM, 0, "be brief"},
                                       {STITCH_MESSAGE_USER, 0, "hello \"you\"\n"}};

CHECK_UNUSED static stitch_request request(void)
{
    stitch_request r = STITCH_REQUEST_INIT;
    r.messages = hello;
    r.message_count = 2;
    r.timeout_ms = 20000;
    return r;
}

CHECK_UNUSED static void expect_text(fixture *f, const char *want)
{
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    CHECK_OK(stitch_model_complete(f->model, &r, &reply, &err));
    CHECK_STR(stitch_reply_text(reply), want);
    stitch_reply_free(reply);
}

CHECK_UNUSED static void expect_error(fixture *f, int status, const char *part)
{
    stitch_error *err = NULL;
    stitch_reply *reply = NULL;
    stitch_request r = request();
    int rc = stitch_model_complete(f->model, &r, &reply, &err);
    CHECK(strstr(stitch_error_message(err), secret) == NULL && strstr(stitch_error_details(err), secret) == NULL);
    CHECK(reply == NULL);
    CHECK_ERR(rc, status, part);
}

#define BEGIN(...)                                                                                                     \
    static const http_answer answers[] = {__VA_ARGS__};                                                                \
    fixture f;                                                                                                         \
    prepare(&f, answers, sizeof(answers) / sizeof(answers[0]))

#endif
