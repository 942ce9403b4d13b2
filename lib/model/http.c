/* SPDX-License-Identifier: MIT
 *
 * OpenAI-compatible endpoints through libcurl: options, and the loop over the requests in flight.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "model/http.h"

enum {
    DEFAULT_RETRIES = 5,
    DEFAULT_CONCURRENT = 8,
    DEFAULT_CONNECT_MS = 15000,
    DEFAULT_IDLE_MS = 120000,
    DEFAULT_TOTAL_MS = 1800000,
    DEFAULT_REPLY_BYTES = 16 << 20,
    MAX_REPLY_BYTES = 1 << 30,
    MAX_TIME_MS = 24 * 24 * 3600 * 1000, /* 24 days: curl counts in longs, which may have 32 bits */
    MAX_KEY = 8192,
    FIRST_BACKOFF_MS = 500,
    POLL_MS = 20, /* how late a cancellation may be noticed */
};

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

/* Older versions of libcurl must be initialised by one thread only, and then stay. */
static void curl_start_once(void)
{
    if (!(curl_version_info(CURLVERSION_NOW)->features & STITCH__CURL_THREADSAFE))
        curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* ---- the loop over all calls ---- */

static void start_waiting(stitch__http_model *m, stitch__transfer *transfers, size_t count, CURLM *multi)
{
    size_t running = 0;
    for (size_t i = 0; i < count; i++)
        running += transfers[i].phase == STITCH__PHASE_RUNNING;
    for (size_t i = 0; i < count && running < (size_t)m->o.max_concurrent; i++) {
        stitch__transfer *t = &transfers[i];
        if (t->phase != STITCH__PHASE_WAITING || stitch__now_ns() < t->start_at_ns)
            continue;
        if (!t->tries && !t->adaptations &&
            t->call->request->timeout_ms <= 0) /* the model's limit: while it is in line no time is lost */
            t->scope = stitch__scope_make(m->base.ctx, t->call->request->cancel, m->o.total_timeout_ms);
        int rc = stitch__transfer_start(t, multi);
        if (rc)
            stitch__transfer_finish(t, rc);
        else
            running++;
    }
}

static void run_all(stitch__http_model *m, stitch__transfer *transfers, size_t count, CURLM *multi)
{
    for (size_t open = count; open;) {
        int still, left;
        start_waiting(m, transfers, count, multi);
        curl_multi_perform(multi, &still);
        for (CURLMsg *msg; (msg = curl_multi_info_read(multi, &left));) {
            stitch__transfer *t = NULL;
            if (msg->msg != CURLMSG_DONE)
                continue;
            CURLcode result = msg->data.result;
            curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            stitch__transfer_ended(t, result);
        }
        size_t running = 0;
        bool soon = false;
        open = 0;
        for (size_t i = 0; i < count; i++) {
            stitch__transfer_check(&transfers[i]);
            open += transfers[i].phase != STITCH__PHASE_DONE;
            running += transfers[i].phase == STITCH__PHASE_RUNNING;
            soon |= transfers[i].phase == STITCH__PHASE_WAITING && stitch__now_ns() >= transfers[i].start_at_ns;
        }
        if (open && !(soon && running < (size_t)m->o.max_concurrent))
            curl_multi_poll(multi, NULL, 0, POLL_MS, NULL);
    }
}

static void http_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    stitch__http_model *m = (stitch__http_model *)base;
    stitch__transfer *transfers = stitch__calloc(base->ctx, count, sizeof(*transfers));
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
        transfers[i].scope = stitch__scope_make(base->ctx, r->cancel, r->timeout_ms);
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
    stitch__http_model *m = (stitch__http_model *)base;
    if (m->key)
        explicit_bzero(m->key, strlen(m->key));
    stitch_free(m->key);
    stitch_free(m->url);
    stitch_free(m->shown_url);
    stitch_free(m->ca_file);
    stitch_free(m->ca_folder);
    stitch_free((void *)(uintptr_t)m->o.model);
    json_decref(m->extra);
    if (m->curl_started)
        curl_global_cleanup();
}

static const stitch__model_kind http_kind = {"http", http_complete, http_destroy, false};

void stitch__http_set_backoff(stitch_model *model, int64_t first_ms)
{
    if (model->kind == &http_kind)
        ((stitch__http_model *)model)->first_backoff_ms = first_ms;
}

static int64_t time_or(int64_t given, int64_t otherwise)
{
    return given == 0 ? otherwise : given < MAX_TIME_MS ? given : MAX_TIME_MS;
}

static int set_defaults(stitch__http_model *m, const stitch_http_options *given, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    stitch_http_options *o = &m->o;

    if (!given->base_url || !given->model || !*given->model)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_http_options: base_url and model are required");
    if (!stitch__utf8_valid(given->model, strlen(given->model)))
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_http_options: model is not valid UTF-8");
    if (given->connect_timeout_ms < 0 || given->idle_timeout_ms < 0 || given->total_timeout_ms < 0 ||
        given->max_tokens < 0 || given->max_concurrent < 0 || !(given->price_in >= 0) || !(given->price_out >= 0) ||
        isinf(given->price_in) || isinf(given->price_out))
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_http_options: limits, time-outs and prices must be numbers that are not negative");
    if (!(given->temperature <= 1e6) || given->max_reply_bytes > MAX_REPLY_BYTES)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_http_options: the temperature is no usable number, or max_reply_bytes is over %d",
                           MAX_REPLY_BYTES);
    *o = *given;
    o->base_url = o->model = o->api_key = o->api_key_env = o->extra_body = NULL;
    o->max_retries = given->max_retries == 0 ? DEFAULT_RETRIES : given->max_retries < 0 ? 0 : given->max_retries;
    o->max_concurrent = given->max_concurrent ? given->max_concurrent : DEFAULT_CONCURRENT;
    o->connect_timeout_ms = time_or(given->connect_timeout_ms, DEFAULT_CONNECT_MS);
    o->idle_timeout_ms = time_or(given->idle_timeout_ms, DEFAULT_IDLE_MS);
    o->total_timeout_ms = time_or(given->total_timeout_ms, DEFAULT_TOTAL_MS);
    o->max_reply_bytes = given->max_reply_bytes ? given->max_reply_bytes : DEFAULT_REPLY_BYTES;
    m->first_backoff_ms = FIRST_BACKOFF_MS;
    m->features = (stitch__chat_features){.stream = given->stream >= 0,
                                          .usage_option = true,
                                          .json_schema = given->structured >= 0,
                                          .temperature = true,
                                          .system_role = true};
    return STITCH_OK;
}

/* A part of a URL as an own string; *out stays NULL where there is none. */
static int url_part(stitch__http_model *m, CURLU *u, CURLUPart part, char **out)
{
    char *text = NULL;
    if (curl_url_get(u, part, &text, 0) != CURLUE_OK || !text)
        return STITCH_OK;
    *out = stitch__strdup(m->base.ctx, text);
    curl_free(text);
    return *out ? STITCH_OK : STITCH_E_NOMEM;
}

static bool is_loopback(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0;
}

/* base_url with /chat/completions behind its path, and before its query (which some gateways need). */
static int make_url(stitch__http_model *m, const char *base_url, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    CURLU *u = curl_url();
    char *scheme = NULL, *host = NULL, *path = NULL, *user = NULL, *fragment = NULL;
    stitch__buf longer;
    int rc = STITCH_OK;

    stitch__buf_init(&longer, ctx);
    if (!u) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if (strncasecmp(base_url, "https://", 8) != 0 && strncasecmp(base_url, "http://", 7) != 0) {
        rc = stitch__err(ctx, err, STITCH_E_INVALID, "base_url does not start with http:// or https://");
        goto out;
    }
    if (curl_url_set(u, CURLUPART_URL, base_url, 0) != CURLUE_OK) {
        rc = stitch__err(ctx, err, STITCH_E_INVALID, "base_url is no URL: write https://HOST/v1");
        goto out;
    }
    if (url_part(m, u, CURLUPART_SCHEME, &scheme) || url_part(m, u, CURLUPART_HOST, &host) ||
        url_part(m, u, CURLUPART_PATH, &path) || url_part(m, u, CURLUPART_USER, &user) ||
        url_part(m, u, CURLUPART_FRAGMENT, &fragment)) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if (user || fragment) {
        rc = stitch__err(ctx, err, STITCH_E_INVALID, "base_url must hold no %s",
                         user ? "user or password: set a key instead" : "'#'");
        goto out;
    }
    for (size_t n = path ? strlen(path) : 0; n && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    stitch__buf_printf(&longer, "%s/chat/completions", path ? path : "");
    if (longer.failed || curl_url_set(u, CURLUPART_PATH, longer.data, 0) != CURLUE_OK ||
        url_part(m, u, CURLUPART_URL, &m->url) || !m->url || curl_url_set(u, CURLUPART_QUERY, NULL, 0) != CURLUE_OK ||
        url_part(m, u, CURLUPART_URL, &m->shown_url) || !m->shown_url) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if (m->key && strcasecmp(scheme, "http") == 0 && !is_loopback(host))
        stitch__log(ctx, STITCH_LOG_WARN, "%s: the key travels without encryption; use https", m->shown_url);
out:
    curl_url_cleanup(u);
    stitch__buf_free(&longer);
    stitch_free(scheme);
    stitch_free(host);
    stitch_free(path);
    stitch_free(user);
    stitch_free(fragment);
    return rc;
}

static int find_key(stitch__http_model *m, const stitch_http_options *o, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    const char *key = o->api_key;

    if (!key)
        key = getenv(o->api_key_env ? o->api_key_env : "STITCH_API_KEY");
    if (!key && !o->api_key_env)
        key = getenv("OPENAI_API_KEY");
    if (!key || !*key)
        return STITCH_OK;
    size_t len = strlen(key);
    if (len > MAX_KEY)
        return stitch__err(ctx, err, STITCH_E_INVALID, "the API key is longer than %d bytes", MAX_KEY);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)key[i] <= ' ' || key[i] == 0x7f)
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "the API key holds white space, a line break or a control character at byte %zu", i);
    }
    m->key = stitch__strdup(ctx, key);
    return m->key ? STITCH_OK : stitch__err_nomem(ctx, err);
}

/* The variables that the curl program reads; libcurl itself only knows those for proxies. */
static int find_authorities(stitch__http_model *m, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    const char *file = getenv("CURL_CA_BUNDLE"), *folder = NULL;

    if (!file || !*file) {
        file = getenv("SSL_CERT_FILE");
        folder = getenv("SSL_CERT_DIR");
    }
    if (file && *file && !(m->ca_file = stitch__strdup(ctx, file)))
        return stitch__err_nomem(ctx, err);
    if (folder && *folder && !(m->ca_folder = stitch__strdup(ctx, folder)))
        return stitch__err_nomem(ctx, err);
    return STITCH_OK;
}

static int parse_extra(stitch__http_model *m, const char *text, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    int rc = stitch__json_parse(ctx, text, strlen(text), 1u << 20, "extra_body", &m->extra, err);
    if (rc)
        return rc;
    if (!json_is_object(m->extra))
        return stitch__err(ctx, err, STITCH_E_FORMAT, "extra_body: expected an object, found %s",
                           stitch__json_type(m->extra));
    if (json_object_get(m->extra, "messages"))
        return stitch__err(ctx, err, STITCH_E_INVALID, "extra_body must not replace the messages");
    return STITCH_OK;
}

static int start_curl(stitch__http_model *m, stitch_error **err)
{
    const char *why;
    if (!stitch__curl_open(&why))
        return stitch__err(
            m->base.ctx, err, STITCH_E_NO_LIBRARY,
            "models over HTTP need libcurl, which was not found: %s. Install it (Debian package libcurl4)", why);
    pthread_once(&curl_once, curl_start_once);
    if (!(curl_version_info(CURLVERSION_NOW)->features & STITCH__CURL_THREADSAFE))
        return STITCH_OK;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) /* counted; safe from any thread */
        return stitch__err(m->base.ctx, err, STITCH_E_LIBRARY, "libcurl cannot be initialised");
    m->curl_started = true;
    return STITCH_OK;
}

int stitch_http_options_init(stitch_http_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_http_options));
}

int stitch_model_new_http(stitch_context *ctx, const stitch_http_options *options, stitch_model **out,
                          stitch_error **err)
{
    stitch_http_options given = STITCH_HTTP_OPTIONS_INIT;
    stitch__http_model *m = NULL;
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_http: out must not be NULL");
    *out = NULL;
    if (!ctx || !options)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_http: context and options must not be NULL");
    if ((rc = stitch__options_copy(ctx, &given, sizeof(given), options, "stitch_http_options", err)) != STITCH_OK)
        return rc;
    m = stitch__model_alloc(ctx, &http_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    if ((rc = start_curl(m, err)) != STITCH_OK || (rc = set_defaults(m, &given, err)) != STITCH_OK ||
        (rc = stitch__random(ctx, &m->random, sizeof(m->random), err)) != STITCH_OK ||
        (rc = find_key(m, &given, err)) != STITCH_OK || (rc = make_url(m, given.base_url, err)) != STITCH_OK ||
        (rc = find_authorities(m, err)) != STITCH_OK)
        goto out;
    if (given.extra_body && (rc = parse_extra(m, given.extra_body, err)) != STITCH_OK)
        goto out;
    m->o.model = stitch__strdup(ctx, given.model);
    if (!m->o.model)
        rc = stitch__err_nomem(ctx, err);
out:
    if (rc == STITCH_OK)
        *out = &m->base;
    else
        stitch_model_free(&m->base);
    return rc;
}
