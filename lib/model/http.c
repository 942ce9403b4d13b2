/* SPDX-License-Identifier: MIT
 *
 * OpenAI-compatible endpoints through libcurl: several requests at once, streaming, retries, deadlines.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include <curl/curl.h>

#include "model/model.h"

enum {
    DEFAULT_RETRIES = 5,
    DEFAULT_CONCURRENT = 8,
    DEFAULT_CONNECT_MS = 15000,
    DEFAULT_IDLE_MS = 120000,
    DEFAULT_TOTAL_MS = 1800000,
    DEFAULT_REPLY_BYTES = 16 << 20,
    FIRST_BACKOFF_MS = 500,
    MAX_BACKOFF_MS = 30000,
    POLL_MS = 50, /* how late a cancellation may be noticed */
    MAX_ERROR_BODY = 64 << 10,
    MAX_HEADER_BYTES = 64 << 10,
};

typedef struct http_model {
    stitch_model base;
    stitch_http_options o; /* strings are owned */
    char *url, *key;       /* key NULL: none */
    json_t *extra;
    stitch__chat_features features;
    uint64_t random; /* of the back-off's jitter */
} http_model;

typedef enum phase { PHASE_WAITING, PHASE_RUNNING, PHASE_DONE } phase;

/* One call on its way. */
typedef struct transfer {
    http_model *m;
    stitch__call *call;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    char error_text[CURL_ERROR_SIZE];
    phase phase;
    int64_t start_at_ns; /* not before */
    int64_t began_ns, last_byte_ns;
    int64_t retry_after_ms; /* -1: the server did not say */
    int tries;
    stitch__scope scope;
    /* the answer */
    stitch__sse sse;
    stitch__chat chat;
    stitch__buf raw; /* error bodies and whole replies */
    bool is_stream;
    size_t header_bytes;
    int failed; /* status set while receiving */
    bool had_schema;
} transfer;

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void curl_start(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- receiving ---- */

/* The key must never come back: servers like to quote a wrong key in their errors. */
static void redact(const http_model *m, char *text)
{
    size_t n = m->key ? strlen(m->key) : 0;
    if (n < 4)
        return;
    for (char *p = text; (p = strstr(p, m->key)); p += n)
        memset(p, '*', n);
}

static int on_event(const char *data, size_t len, void *userdata)
{
    transfer *t = userdata;
    return stitch__chat_chunk(&t->chat, data, len, &t->call->error);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *userdata)
{
    transfer *t = userdata;
    size_t len = size * count;
    long code = 0;

    t->last_byte_ns = stitch__now_ns();
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code >= 200 && code < 300 && t->is_stream) {
        t->failed = stitch__sse_feed(&t->sse, bytes, len, &t->call->error);
        return t->failed ? 0 : len;
    }
    size_t limit = code >= 200 && code < 300 ? (size_t)t->m->o.max_reply_bytes + (1u << 20) : MAX_ERROR_BODY;
    if (t->raw.len + len > limit) {
        if (code < 200 || code >= 300) { /* the rest of an error page says nothing new */
            stitch__buf_append(&t->raw, bytes, limit - t->raw.len);
            return len;
        }
        t->failed = stitch__err_native(t->m->base.ctx, &t->call->error, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                                       "the reply is longer than %" PRIu64 " bytes", t->m->o.max_reply_bytes);
        return 0;
    }
    stitch__buf_append(&t->raw, bytes, len);
    return t->raw.failed ? 0 : len;
}

static bool header_is(const char *line, size_t len, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
        return false;
    *value = line + n + 1;
    while (**value == ' ' || **value == '\t')
        (*value)++;
    return true;
}

static size_t on_header(char *line, size_t size, size_t count, void *userdata)
{
    transfer *t = userdata;
    size_t len = size * count;
    char text[256];
    const char *value;

    t->last_byte_ns = stitch__now_ns();
    t->header_bytes += len;
    if (t->header_bytes > MAX_HEADER_BYTES) {
        t->failed = stitch__err_native(t->m->base.ctx, &t->call->error, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                                       "the headers of the answer are longer than %d bytes", MAX_HEADER_BYTES);
        return 0;
    }
    snprintf(text, sizeof(text), "%.*s", (int)(len < sizeof(text) ? len : sizeof(text) - 1), line);
    if (strncmp(text, "HTTP/", 5) == 0) { /* a new answer (after 100 Continue, a proxy's CONNECT) */
        t->is_stream = false;
        t->retry_after_ms = -1;
    } else if (header_is(text, strlen(text), "content-type", &value)) {
        t->is_stream = strncasecmp(value, "text/event-stream", 17) == 0;
    } else if (header_is(text, strlen(text), "retry-after", &value)) {
        char *end;
        double seconds = strtod(value, &end);
        if (end != value && seconds >= 0 && seconds < 1e6) {
            t->retry_after_ms = (int64_t)(seconds * 1000);
        } else {
            time_t at = curl_getdate(value, NULL);
            if (at > 0)
                t->retry_after_ms = at > time(NULL) ? (int64_t)(at - time(NULL)) * 1000 : 0;
        }
    }
    return len;
}

/* ---- one try ---- */

static void try_free(transfer *t)
{
    stitch__sse_free(&t->sse);
    stitch__chat_free(&t->chat);
    stitch__buf_free(&t->raw);
    curl_slist_free_all(t->headers);
    t->headers = NULL;
    stitch__zero_free(t->body);
    if (t->easy)
        curl_easy_cleanup(t->easy);
    t->easy = NULL;
}

static struct curl_slist *add_header(struct curl_slist *list, const char *text, bool *ok)
{
    struct curl_slist *longer = *ok ? curl_slist_append(list, text) : NULL;
    *ok = longer != NULL;
    return longer ? longer : list;
}

static int make_headers(transfer *t)
{
    bool ok = true;
    t->headers = add_header(t->headers, "Content-Type: application/json", &ok);
    t->headers = add_header(t->headers, t->m->features.stream ? "Accept: text/event-stream, application/json" : "Accept: application/json", &ok);
    t->headers = add_header(t->headers, "Expect:", &ok);
    if (t->m->key) {
        stitch__buf b;
        stitch__buf_init(&b, t->m->base.ctx);
        stitch__buf_printf(&b, "Authorization: Bearer %s", t->m->key);
        if (b.failed)
            ok = false;
        else
            t->headers = add_header(t->headers, b.data, &ok);
        stitch__buf_free(&b);
    }
    return ok ? STITCH_OK : STITCH_E_NOMEM;
}

static int try_start(transfer *t, CURLM *multi)
{
    http_model *m = t->m;
    const stitch_request *r = t->call->request;
    const stitch_context *ctx = m->base.ctx;

    stitch_error_free(t->call->error);
    t->call->error = NULL;
    t->failed = 0;
    t->is_stream = false;
    t->header_bytes = 0;
    t->retry_after_ms = -1;
    t->error_text[0] = 0;
    t->had_schema = m->features.json_schema && r->json_schema;
    stitch__sse_init(&t->sse, ctx, (size_t)m->o.max_reply_bytes + (1u << 20), on_event, t);
    stitch__chat_init(&t->chat, ctx, (size_t)m->o.max_reply_bytes, r, t->call->index);
    stitch__buf_init(&t->raw, ctx);
    t->body = stitch__chat_body(ctx, m->o.model, r, r->max_tokens > 0 ? r->max_tokens : m->o.max_tokens,
                                r->temperature >= 0 ? r->temperature : m->o.temperature > 0 ? m->o.temperature : -1, m->extra, &m->features);
    t->easy = curl_easy_init();
    if (!t->body || !t->easy || make_headers(t) != STITCH_OK)
        return stitch__err_nomem(ctx, &t->call->error);
    CURL *e = t->easy;
    curl_easy_setopt(e, CURLOPT_URL, m->url);
    curl_easy_setopt(e, CURLOPT_POSTFIELDS, t->body);
    curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->body));
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->error_text);
    curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)m->o.connect_timeout_ms);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L); /* the key must not travel to another host */
    curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "");
    curl_easy_setopt(e, CURLOPT_USERAGENT, "libstitch");
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    t->began_ns = t->last_byte_ns = stitch__now_ns();
    t->tries++;
    t->phase = PHASE_RUNNING;
    if (curl_multi_add_handle(multi, e) != CURLM_OK)
        return stitch__err_nomem(ctx, &t->call->error);
    return STITCH_OK;
}

static void finish(transfer *t, int status)
{
    t->call->status = status;
    t->phase = PHASE_DONE;
    if (status == STITCH_OK) {
        stitch_error_free(t->call->error);
        t->call->error = NULL;
    }
    try_free(t);
}

/* Exponential, with half of it random so that many clients do not come back at once; never sooner than the server asks. */
static int64_t backoff_ms(transfer *t)
{
    uint64_t *x = &t->m->random;
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17; /* xorshift64 */
    int shift = t->tries - 1 < 6 ? t->tries - 1 : 6;
    int64_t full = (int64_t)FIRST_BACKOFF_MS << shift;
    full = full < MAX_BACKOFF_MS ? full : MAX_BACKOFF_MS;
    int64_t ms = full / 2 + (int64_t)(*x % (uint64_t)(full / 2 + 1));
    return t->retry_after_ms > ms ? t->retry_after_ms : ms;
}

static void retry_or_finish(transfer *t, int status)
{
    if (t->tries > t->m->o.max_retries) {
        if (t->m->o.max_retries > 0)
            stitch__err_prefix(&t->call->error, "after %d tries: ", t->tries);
        finish(t, status);
        return;
    }
    int64_t wait = backoff_ms(t);
    if (t->scope.deadline_ns && stitch__now_ns() + wait * 1000000 >= t->scope.deadline_ns) {
        stitch__err_prefix(&t->call->error, "no time left for another try: ");
        finish(t, status);
        return;
    }
    stitch__log(t->m->base.ctx, STITCH_LOG_INFO, "%s; trying again in %.1f s", stitch_error_message(t->call->error), (double)wait / 1000);
    try_free(t);
    t->start_at_ns = stitch__now_ns() + wait * 1000000;
    t->phase = PHASE_WAITING;
}

/* ---- judging what came ---- */

static void refused(transfer *t, long code)
{
    http_model *m = t->m;
    stitch__buf text;
    int status = code == 401 || code == 403 ? STITCH_E_AUTH : STITCH_E_HTTP;

    stitch__buf_init(&text, m->base.ctx);
    stitch__chat_error_text(&text, t->raw.data ? t->raw.data : "", t->raw.len);
    if (text.data)
        redact(m, text.data);
    if ((code == 400 || code == 422) && text.data &&
        stitch__chat_degrade(&m->features, t->raw.data ? t->raw.data : "", t->had_schema, m->o.structured > 0)) {
        stitch__log(m->base.ctx, STITCH_LOG_INFO, "the endpoint refuses an option (%s); going on without it", text.data);
        stitch__buf_free(&text);
        try_free(t);
        t->start_at_ns = 0;
        t->tries--;
        t->phase = PHASE_WAITING;
        return;
    }
    stitch__err_native(m->base.ctx, &t->call->error, status, STITCH_DOMAIN_HTTP, code, "%s answers %ld: %s%s", m->url, code,
                       text.len ? text.data : "(no text)",
                       status == STITCH_E_AUTH ? (m->key ? " (is the key right?)" : " (no key is set: STITCH_API_KEY or OPENAI_API_KEY)") : "");
    stitch__buf_free(&text);
    if (code == 408 || code == 409 || code == 425 || code == 429 || code >= 500)
        retry_or_finish(t, status);
    else
        finish(t, status);
}

static void answered(transfer *t)
{
    http_model *m = t->m;
    stitch_reply *reply = NULL;
    int rc;

    if (t->is_stream) {
        rc = stitch__sse_finish(&t->sse, &t->call->error);
        if (rc == STITCH_OK && !t->chat.done)
            rc = stitch__err_native(m->base.ctx, &t->call->error, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 0, "the stream ended before the reply did");
    } else {
        rc = stitch__chat_whole(&t->chat, t->raw.data ? t->raw.data : "", t->raw.len, &t->call->error);
    }
    if (rc == STITCH_OK)
        rc = stitch__chat_reply(&t->chat, &reply, &t->call->error);
    if (rc) {
        if (rc == STITCH_E_HTTP || rc == STITCH_E_FORMAT)
            retry_or_finish(t, STITCH_E_HTTP);
        else
            finish(t, rc);
        return;
    }
    reply->milliseconds = (double)(stitch__now_ns() - t->began_ns) / 1e6;
    if (reply->tokens_in > 0)
        reply->cost += (double)reply->tokens_in * m->o.price_in / 1e6;
    if (reply->tokens_out > 0)
        reply->cost += (double)reply->tokens_out * m->o.price_out / 1e6;
    t->call->reply = reply;
    finish(t, STITCH_OK);
}

static void ended(transfer *t, CURLcode result)
{
    const stitch_context *ctx = t->m->base.ctx;
    long code = 0;

    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    if (t->call->error && t->m->key && strstr(stitch_error_message(t->call->error), t->m->key))
        stitch__err_native(ctx, &t->call->error, t->failed ? t->failed : STITCH_E_HTTP, STITCH_DOMAIN_HTTP, code,
                           "%s reports an error whose text repeats the API key; it is not shown", t->m->url);
    if (t->failed == STITCH_E_HTTP || t->failed == STITCH_E_FORMAT) { /* an error object or garbage inside a stream */
        retry_or_finish(t, STITCH_E_HTTP);
    } else if (t->failed) {
        finish(t, t->failed);
    } else if (result == CURLE_OUT_OF_MEMORY || t->raw.failed) {
        finish(t, stitch__err_nomem(ctx, &t->call->error));
    } else if (result != CURLE_OK) {
        bool hopeless = result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL || result == CURLE_PEER_FAILED_VERIFICATION ||
                        result == CURLE_SSL_CACERT_BADFILE;
        stitch__err_native(ctx, &t->call->error, STITCH_E_HTTP, STITCH_DOMAIN_CURL, result, "%s: %s", t->m->url,
                           *t->error_text ? t->error_text : curl_easy_strerror(result));
        if (hopeless)
            finish(t, STITCH_E_HTTP);
        else
            retry_or_finish(t, STITCH_E_HTTP);
    } else if (code < 200 || code >= 300) {
        refused(t, code);
    } else {
        answered(t);
    }
}

/* ---- the loop over all calls ---- */

/* Ends calls whose time is up, and drops connections on which nothing arrives. */
static void check_times(transfer *t, CURLM *multi)
{
    int64_t now = stitch__now_ns();
    int rc = t->phase == PHASE_DONE ? STITCH_OK : stitch__scope_check(&t->scope, "the request to the model", &t->call->error);
    if (rc) {
        if (t->phase == PHASE_RUNNING)
            curl_multi_remove_handle(multi, t->easy);
        finish(t, rc);
    } else if (t->phase == PHASE_RUNNING && now - t->last_byte_ns > t->m->o.idle_timeout_ms * 1000000) {
        curl_multi_remove_handle(multi, t->easy);
        stitch__err_native(t->m->base.ctx, &t->call->error, STITCH_E_TIMEOUT, STITCH_DOMAIN_HTTP, 0, "%s: nothing arrived for %.1f s", t->m->url,
                           (double)t->m->o.idle_timeout_ms / 1000);
        retry_or_finish(t, STITCH_E_TIMEOUT);
    }
}

static void run_all(http_model *m, transfer *transfers, size_t count, CURLM *multi)
{
    for (size_t open = count; open;) {
        size_t running = 0;
        for (size_t i = 0; i < count; i++)
            running += transfers[i].phase == PHASE_RUNNING;
        for (size_t i = 0; i < count; i++) {
            transfer *t = &transfers[i];
            if (t->phase == PHASE_WAITING && running < (size_t)m->o.max_concurrent && stitch__now_ns() >= t->start_at_ns) {
                int rc = try_start(t, multi);
                if (rc)
                    finish(t, rc);
                else
                    running++;
            }
        }
        int still, left;
        curl_multi_perform(multi, &still);
        for (CURLMsg *msg; (msg = curl_multi_info_read(multi, &left));) {
            transfer *t = NULL;
            if (msg->msg != CURLMSG_DONE)
                continue;
            CURLcode result = msg->data.result;
            CURL *easy = msg->easy_handle;
            curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&t);
            curl_multi_remove_handle(multi, easy);
            ended(t, result);
        }
        open = 0;
        bool soon = false;
        for (size_t i = 0; i < count; i++) {
            check_times(&transfers[i], multi);
            open += transfers[i].phase != PHASE_DONE;
            soon |= transfers[i].phase == PHASE_WAITING && stitch__now_ns() >= transfers[i].start_at_ns;
        }
        if (open && !(soon && running < (size_t)m->o.max_concurrent))
            curl_multi_poll(multi, NULL, 0, POLL_MS, NULL);
    }
}

static void http_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    http_model *m = (http_model *)base;
    transfer *transfers = stitch__calloc(base->ctx, count, sizeof(*transfers));
    CURLM *multi = curl_multi_init();

    if (!transfers || !multi) {
        for (size_t i = 0; i < count; i++)
            calls[i].status = stitch__err_nomem(base->ctx, &calls[i].error);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        const stitch_request *r = calls[i].request;
        transfers[i].m = m;
        transfers[i].call = &calls[i];
        transfers[i].scope = stitch__scope_make(base->ctx, r->cancel, r->timeout_ms > 0 ? r->timeout_ms : m->o.total_timeout_ms);
    }
    run_all(m, transfers, count, multi);
out:
    if (multi)
        curl_multi_cleanup(multi);
    stitch_free(transfers);
}

/* ---- making one ---- */

static void http_destroy(stitch_model *base)
{
    http_model *m = (http_model *)base;
    stitch_free(m->url);
    if (m->key)
        memset(m->key, 0, strlen(m->key));
    stitch_free(m->key);
    stitch_free((void *)(uintptr_t)m->o.model);
    json_decref(m->extra);
}

static const stitch__model_kind http_kind = {"http", http_complete, http_destroy, true};

static int set_defaults(http_model *m, const stitch_http_options *given, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    stitch_http_options *o = &m->o;

    if (!given->base_url || !given->model || !*given->model)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_http_options: base_url and model are required");
    if (strncmp(given->base_url, "https://", 8) != 0 && strncmp(given->base_url, "http://", 7) != 0)
        return stitch__err(ctx, err, STITCH_E_INVALID, "base_url '%.200s' does not start with http:// or https://", given->base_url);
    if (given->connect_timeout_ms < 0 || given->idle_timeout_ms < 0 || given->total_timeout_ms < 0 || given->max_tokens < 0 ||
        given->max_concurrent < 0 || !(given->price_in >= 0) || !(given->price_out >= 0))
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_http_options: limits, time-outs and prices must not be negative");
    *o = *given;
    o->base_url = o->model = o->api_key = o->api_key_env = o->extra_body = NULL;
    o->max_retries = given->max_retries == 0 ? DEFAULT_RETRIES : given->max_retries < 0 ? 0 : given->max_retries;
    o->max_concurrent = given->max_concurrent ? given->max_concurrent : DEFAULT_CONCURRENT;
    o->connect_timeout_ms = given->connect_timeout_ms ? given->connect_timeout_ms : DEFAULT_CONNECT_MS;
    o->idle_timeout_ms = given->idle_timeout_ms ? given->idle_timeout_ms : DEFAULT_IDLE_MS;
    o->total_timeout_ms = given->total_timeout_ms ? given->total_timeout_ms : DEFAULT_TOTAL_MS;
    o->max_reply_bytes = given->max_reply_bytes ? given->max_reply_bytes : DEFAULT_REPLY_BYTES;
    m->features = (stitch__chat_features){given->stream >= 0, true, given->structured >= 0, true, false};
    return STITCH_OK;
}

int stitch_http_options_init(stitch_http_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_http_options));
}

static const char *find_key(const stitch_http_options *o)
{
    if (o->api_key)
        return o->api_key;
    if (o->api_key_env)
        return getenv(o->api_key_env);
    const char *key = getenv("STITCH_API_KEY");
    return key ? key : getenv("OPENAI_API_KEY");
}

int stitch_model_new_http(stitch_context *ctx, const stitch_http_options *options, stitch_model **out, stitch_error **err)
{
    stitch_http_options given = STITCH_HTTP_OPTIONS_INIT;
    http_model *m = NULL;
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_http: out must not be NULL");
    *out = NULL;
    if (!ctx || !options)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_http: context and options must not be NULL");
    if ((rc = stitch__options_copy(ctx, &given, sizeof(given), options, "stitch_http_options", err)) != STITCH_OK)
        return rc;
    pthread_once(&curl_once, curl_start);
    m = stitch__model_alloc(ctx, &http_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    if ((rc = set_defaults(m, &given, err)) != STITCH_OK || (rc = stitch__random(ctx, &m->random, sizeof(m->random), err)) != STITCH_OK)
        goto out;
    m->random |= 1;
    const char *key = find_key(&given);
    if (key && strpbrk(key, "\r\n")) {
        rc = stitch__err(ctx, err, STITCH_E_INVALID, "the API key holds a line break");
        goto out;
    }
    m->o.model = stitch__strdup(ctx, given.model);
    m->key = key && *key ? stitch__strdup(ctx, key) : NULL;
    m->url = stitch__path_join(ctx, given.base_url, "chat/completions");
    if (!m->o.model || (key && *key && !m->key) || !m->url) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if (given.extra_body) {
        rc = stitch__json_parse(ctx, given.extra_body, strlen(given.extra_body), 1u << 20, "extra_body", &m->extra, err);
        if (rc == STITCH_OK && !json_is_object(m->extra))
            rc = stitch__err(ctx, err, STITCH_E_FORMAT, "extra_body: expected an object, found %s", stitch__json_type(m->extra));
    }
out:
    if (rc == STITCH_OK)
        *out = &m->base;
    else
        stitch_model_free(&m->base);
    return rc;
}
