/* SPDX-License-Identifier: MIT
 *
 * One call over HTTP: a try is started, its end judged, and another one made where that is worth while.
 */
#include <stdio.h>
#include <strings.h>

#include "model/http.h"

enum {
    MAX_BACKOFF_MS = 30000,
    MAX_ADAPTATIONS = 8, /* parameters left out for one call */
    SHOWN_BODY = 120,    /* bytes of a body that is no reply */
};

/* ---- start ---- */

static struct curl_slist *add_header(struct curl_slist *list, const char *text, bool *ok)
{
    struct curl_slist *longer = *ok ? curl_slist_append(list, text) : NULL;
    *ok = longer != NULL;
    return longer ? longer : list;
}

static int make_headers(stitch__transfer *t)
{
    bool ok = true;
    t->headers = add_header(t->headers, "Content-Type: application/json", &ok);
    t->headers = add_header(
        t->headers, t->sent.stream ? "Accept: text/event-stream, application/json" : "Accept: application/json", &ok);
    t->headers = add_header(t->headers, "Expect:", &ok);
    if (t->m->key) {
        stitch__buf b;
        stitch__buf_init(&b, t->m->base.ctx);
        stitch__buf_printf(&b, "Authorization: Bearer %s", t->m->key);
        if (b.failed)
            ok = false;
        else
            t->headers = add_header(t->headers, b.data, &ok);
        if (b.data)
            explicit_bzero(b.data, b.len);
        stitch__buf_free(&b);
    }
    return ok ? STITCH_OK : STITCH_E_NOMEM;
}

static CURLcode set_options(stitch__transfer *t)
{
    const stitch__http_model *m = t->m;
    CURL *e = t->easy;
    CURLcode bad = 0;

    bad |= curl_easy_setopt(e, CURLOPT_URL, m->url);
    bad |= curl_easy_setopt(e, CURLOPT_POSTFIELDS, t->body);
    bad |= curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->body));
    bad |= curl_easy_setopt(e, CURLOPT_HTTPHEADER, t->headers);
    bad |= curl_easy_setopt(e, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* no key for the proxy of a tunnel */
    bad |= curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, stitch__http_on_body);
    bad |= curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
    bad |= curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, stitch__http_on_header);
    bad |= curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
    bad |= curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, stitch__http_on_progress);
    bad |= curl_easy_setopt(e, CURLOPT_XFERINFODATA, t);
    bad |= curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
    bad |= curl_easy_setopt(e, CURLOPT_ERRORBUFFER, t->curl_text);
    bad |= curl_easy_setopt(e, CURLOPT_PRIVATE, t);
    bad |= curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)m->o.connect_timeout_ms);
    bad |= curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    bad |= curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L); /* the key must not travel to another host */
    bad |= curl_easy_setopt(e, CURLOPT_USERAGENT, "libstitch");
    curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, ""); /* libcurl may have been built without any */
#if LIBCURL_VERSION_NUM >= 0x075500
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    bad |= curl_easy_setopt(e, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (m->ca_file)
        bad |= curl_easy_setopt(e, CURLOPT_CAINFO, m->ca_file);
    if (m->ca_folder)
        curl_easy_setopt(e, CURLOPT_CAPATH, m->ca_folder); /* not every TLS library has it */
    return bad;
}

int stitch__transfer_start(stitch__transfer *t, CURLM *multi)
{
    stitch__http_model *m = t->m;
    const stitch_request *r = t->call->request;
    const stitch_context *ctx = m->base.ctx;

    if (t->tries == 0) {
        int rc = stitch__call_begin(&m->base, t->call);
        if (rc)
            return rc;
    }
    stitch_error_free(t->call->error);
    t->call->error = NULL;
    t->failed = 0;
    t->kind = STITCH__BODY_UNKNOWN;
    t->header_bytes = 0;
    t->body_bytes = 0;
    t->uploaded = 0;
    t->retry_after_ms = -1;
    t->curl_text[0] = t->content_type[0] = t->location[0] = 0;
    t->sent = m->features;
    t->settings = (stitch__chat_settings){m->o.model,
                                          m->extra,
                                          r->max_tokens > 0 ? r->max_tokens : m->o.max_tokens,
                                          r->temperature >= 0    ? r->temperature
                                          : m->o.temperature > 0 ? m->o.temperature
                                                                 : -1,
                                          m->o.structured > 0,
                                          m->o.stream > 0};
    stitch__sse_init(&t->sse, ctx, (size_t)m->o.max_reply_bytes + (1u << 20), stitch__http_on_event, t);
    stitch__chat_init(&t->chat, ctx, (size_t)m->o.max_reply_bytes, m->key, r, t->call->index);
    stitch__buf_init(&t->raw, ctx);
    t->body = stitch__chat_body(ctx, r, &t->settings, &t->sent);
    t->easy = curl_easy_init();
    if (!t->body || !t->easy || make_headers(t) != STITCH_OK || set_options(t) != CURLE_OK ||
        curl_multi_add_handle(multi, t->easy) != CURLM_OK)
        return stitch__err_nomem(ctx, &t->call->error);
    t->multi = multi;
    t->began_ns = t->last_byte_ns = stitch__now_ns();
    t->tries++;
    t->phase = STITCH__PHASE_RUNNING;
    stitch__log(ctx, STITCH_LOG_DEBUG, "POST %s: %s #%" PRId64 ", try %d, %zu bytes", m->shown_url, t->call->label,
                t->call->number, t->tries, strlen(t->body));
    return STITCH_OK;
}

/* ---- end ---- */

static void leave(stitch__transfer *t)
{
    if (!t->multi)
        return;
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(t->easy, CURLOPT_QUICK_EXIT, 1L); /* does not wait for a name server that does not answer */
#endif
    curl_multi_remove_handle(t->multi, t->easy);
    t->multi = NULL;
}

static void try_free(stitch__transfer *t)
{
    leave(t);
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

void stitch__transfer_finish(stitch__transfer *t, int status)
{
    stitch__call *call = t->call;
    const char *key = t->m->key;

    /* Every text was cleaned where it came in; this is the net below. */
    if (status && key && strlen(key) >= STITCH__SECRET_MIN_ERROR &&
        (strstr(stitch_error_message(call->error), key) || strstr(stitch_error_details(call->error), key)))
        stitch__err_native(t->m->base.ctx, &call->error, status, STITCH_DOMAIN_HTTP, 0,
                           "%s reports an error whose text repeats the API key; it is not shown", t->m->shown_url);
    if (status)
        stitch__call_failed(call, status);
    t->phase = STITCH__PHASE_DONE;
    try_free(t);
}

/* A broken reply was paid for all the same, but nobody said how much. */
static void count_broken_reply(stitch__transfer *t)
{
    const stitch_request *r = t->call->request;
    uint64_t received = t->chat.text.len + t->chat.reasoning.len + t->chat.held.len;
    if (!received)
        return;
    int64_t in = t->chat.tokens_in, out = t->chat.tokens_out;
    in = in >= 0 ? in : stitch__budget_estimate(stitch__messages_bytes(r->messages, r->message_count));
    out = out >= 0 ? out : stitch__budget_estimate(received);
    stitch__budget_add(t->m->base.budget, in + out,
                       ((double)in * t->m->o.price_in + (double)out * t->m->o.price_out) / 1e6, 0);
}

static void try_again(stitch__transfer *t, int64_t wait_ms)
{
    if (t->chat.pieces)
        stitch__call_piece(t->call, -1, "");
    try_free(t);
    t->start_at_ns = stitch__now_ns() + wait_ms * 1000000;
    t->phase = STITCH__PHASE_WAITING;
}

static void retry_or_finish(stitch__transfer *t, int status)
{
    stitch__http_model *m = t->m;

    count_broken_reply(t);
    if (t->tries > m->o.max_retries) {
        if (m->o.max_retries > 0)
            stitch__err_prefix(&t->call->error, "after %d tries: ", t->tries);
        stitch__transfer_finish(t, status);
        return;
    }
    int64_t wait = stitch__retry_pause_ms(t->tries, m->first_backoff_ms, MAX_BACKOFF_MS, t->retry_after_ms, &m->random);
    if (wait > stitch__scope_left_ms(&t->scope, INT64_MAX / 2000000)) {
        stitch__err_prefix(&t->call->error, "after %d tries, no time left for another one in %.1f s: ", t->tries,
                           (double)wait / 1000);
        stitch__transfer_finish(t, status);
        return;
    }
    if (stitch__budget_check(m->base.budget, m->base.ctx, NULL) != STITCH_OK) {
        stitch__err_prefix(&t->call->error, "after %d tries, the budget is spent: ", t->tries);
        stitch__transfer_finish(t, status);
        return;
    }
    stitch__log(m->base.ctx, STITCH_LOG_INFO, "%s; trying again in %.1f s", stitch_error_message(t->call->error),
                (double)wait / 1000);
    try_again(t, wait);
}

/* An answer with an error status. */
static void refused(stitch__transfer *t, long code)
{
    stitch__http_model *m = t->m;
    const stitch_context *ctx = m->base.ctx;
    stitch__refusal r;
    stitch__buf text, target;

    stitch__buf_init(&text, ctx);
    stitch__buf_init(&target, ctx);
    stitch__refusal_read(&r, &text, t->raw.data ? t->raw.data : "", t->raw.len, m->key);
    if (text.failed) {
        stitch__transfer_finish(t, stitch__err_nomem(ctx, &t->call->error));
        goto out;
    }
    const char *said = text.len ? text.data : "(no text)";
    if ((code == 400 || code == 422) && t->adaptations < MAX_ADAPTATIONS &&
        stitch__chat_adapt(&m->features, &t->sent, t->call->request, &t->settings, &r, said)) {
        stitch__log(ctx, STITCH_LOG_INFO, "%s refuses a parameter (%s); going on without it", m->shown_url, said);
        t->adaptations++;
        t->tries--;
        try_again(t, 0);
        goto out;
    }
    const char *hint = "";
    int status = STITCH_E_HTTP;
    if (code == 401 || code == 403) {
        status = STITCH_E_AUTH;
        hint = m->key ? " (is the key right?)" : " (no key is set: STITCH_API_KEY or OPENAI_API_KEY)";
    } else if (code == 404) {
        hint = " (does base_url end in /v1, or whatever comes before /chat/completions? does the model exist?)";
    } else if (code >= 300 && code < 400) {
        size_t path = strcspn(t->location, "?#"); /* queries carry tokens */
        stitch__buf_puts(&target, " (redirects are not followed; set base_url to where it leads: ");
        stitch__secret_append(&target, t->location, path, m->key, STITCH__SECRET_MIN_ERROR);
        stitch__buf_putc(&target, ')');
        hint = target.failed ? "" : target.data;
    }
    if (strstr(r.code, "context_length"))
        status = STITCH_E_LIMIT;
    stitch__err_native(ctx, &t->call->error, status, STITCH_DOMAIN_HTTP, code, "%s answers %ld: %s%s", m->shown_url,
                       code, said, hint);
    if (stitch__retry_status(code) && !(r.structured && code == 429 && strstr(r.code, "quota")))
        retry_or_finish(t, status);
    else
        stitch__transfer_finish(t, status);
out:
    stitch__buf_free(&text);
    stitch__buf_free(&target);
}

/* A successful answer that is no JSON at all, usually a login or error page. */
static bool is_foreign(const stitch__transfer *t)
{
    const char *p = t->raw.data ? t->raw.data : "";
    p += strspn(p, " \t\r\n");
    return t->kind == STITCH__BODY_WHOLE && *p == '<';
}

static void answered(stitch__transfer *t)
{
    stitch__http_model *m = t->m;
    const stitch_context *ctx = m->base.ctx;
    stitch_reply *reply = NULL;
    int rc = stitch__http_body_end(t);

    if (rc && is_foreign(t)) {
        stitch__buf begin;
        stitch__buf_init(&begin, ctx);
        stitch__secret_append(&begin, t->raw.data, t->raw.len < 4096 ? t->raw.len : 4096, m->key,
                              STITCH__SECRET_MIN_ERROR);
        stitch__err_native(ctx, &t->call->error, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 200,
                           "%s answers with a page instead of JSON (is base_url right?): %.*s", m->shown_url,
                           (int)(begin.len < SHOWN_BODY ? begin.len : SHOWN_BODY), begin.data ? begin.data : "");
        stitch__buf_free(&begin);
        stitch__transfer_finish(t, STITCH_E_HTTP);
        return;
    }
    if (rc == STITCH_OK)
        rc = stitch__chat_reply(&t->chat, &reply, &t->call->error);
    if (rc == STITCH_E_HTTP && (!t->chat.refused || stitch__retry_refusal(&t->chat.refusal))) {
        retry_or_finish(t, rc);
    } else if (rc) {
        stitch__transfer_finish(t, rc);
    } else {
        reply->milliseconds = (double)(stitch__now_ns() - t->began_ns) / 1e6;
        if (reply->tokens_in > 0)
            reply->cost += (double)reply->tokens_in * m->o.price_in / 1e6;
        if (reply->tokens_out > 0)
            reply->cost += (double)reply->tokens_out * m->o.price_out / 1e6;
        t->call->reply = reply;
        stitch__call_answered(&m->base, t->call);
        stitch__transfer_finish(t, STITCH_OK);
    }
}

static void broke(stitch__transfer *t, CURLcode result)
{
    stitch__http_model *m = t->m;
    bool hopeless = result == CURLE_URL_MALFORMAT || result == CURLE_UNSUPPORTED_PROTOCOL ||
                    result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE;
    int status = result == CURLE_OPERATION_TIMEDOUT ? STITCH_E_TIMEOUT : STITCH_E_HTTP;

    stitch__err_native(m->base.ctx, &t->call->error, status, STITCH_DOMAIN_CURL, result, "%s: %s", m->shown_url,
                       *t->curl_text ? t->curl_text : curl_easy_strerror(result));
    if (hopeless)
        stitch__transfer_finish(t, status);
    else
        retry_or_finish(t, status);
}

void stitch__transfer_ended(stitch__transfer *t, CURLcode result)
{
    long code = 0;

    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    leave(t);
    if (t->failed == STITCH_E_HTTP && (!t->chat.refused || stitch__retry_refusal(&t->chat.refusal)))
        retry_or_finish(t, t->failed); /* an error object or garbage inside a stream */
    else if (t->failed)
        stitch__transfer_finish(t, t->failed);
    else if (result == CURLE_OUT_OF_MEMORY || t->raw.failed)
        stitch__transfer_finish(t, stitch__err_nomem(t->m->base.ctx, &t->call->error));
    else if ((code >= 300 && code < 600) &&
             (result == CURLE_OK || t->raw.len)) /* the end of an error page matters to nobody */
        refused(t, code);
    else if (result != CURLE_OK && !(t->kind == STITCH__BODY_STREAM && t->chat.done))
        broke(t, result);
    else if (code >= 200 && code < 300)
        answered(t);
    else
        refused(t, code);
}

/* ---- time ---- */

void stitch__transfer_check(stitch__transfer *t)
{
    stitch__http_model *m = t->m;

    if (t->phase == STITCH__PHASE_DONE)
        return;
    if (stitch__scope_ended(&t->scope)) {
        stitch_error *before = t->call->error; /* why there was a second try */
        t->call->error = NULL;
        int rc = stitch__scope_check(&t->scope, "the request to the model", &t->call->error);
        if (before && rc)
            stitch__err_details(&t->call->error, stitch_error_message(before));
        stitch_error_free(before);
        count_broken_reply(t);
        stitch__transfer_finish(t, rc ? rc : STITCH_E_CANCELLED);
        return;
    }
    if (t->phase != STITCH__PHASE_RUNNING)
        return;
    bool complete = t->kind == STITCH__BODY_STREAM && t->chat.done;
    if (complete && t->chat.last_seen) { /* some servers keep the connection open after the last event */
        stitch__transfer_ended(t, CURLE_OK);
        return;
    }
    /* Nothing can be expected of a reply in one piece until it is ready: only the deadline limits that. */
    bool idle = stitch__now_ns() - t->last_byte_ns > m->o.idle_timeout_ms * 1000000;
    if (!idle || (!t->sent.stream && !t->header_bytes))
        return;
    if (complete) {
        stitch__transfer_ended(t, CURLE_OK);
        return;
    }
    stitch__err_native(m->base.ctx, &t->call->error, STITCH_E_TIMEOUT, STITCH_DOMAIN_HTTP, 0,
                       "%s: nothing arrived for %.1f s", m->shown_url, (double)m->o.idle_timeout_ms / 1000);
    leave(t);
    retry_or_finish(t, STITCH_E_TIMEOUT);
}
