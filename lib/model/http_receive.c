/* SPDX-License-Identifier: MIT
 *
 * What arrives over HTTP: headers and bodies, within limits, streamed or whole whatever the Content-Type says.
 */
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "model/http.h"

enum {
    MAX_ERROR_BODY = 64 << 10,
    MAX_HEADER_BYTES = 64 << 10,
    STREAM_OVERHEAD = 16, /* a stream may be this much longer than the reply it carries */
    SLACK = 1 << 20,
};

/* Value of a header line, without white space around it, if it is of that name. */
static bool header_value(const char *line, size_t len, const char *name, char *to, size_t size)
{
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
        return false;
    for (line += n + 1, len -= n + 1; len && strchr(" \t", *line); line++)
        len--;
    while (len && strchr(" \t\r\n", line[len - 1]))
        len--;
    snprintf(to, size, "%.*s", (int)(len < size ? len : size - 1), line);
    return true;
}

size_t stitch__http_on_header(char *line, size_t size, size_t count, void *transfer)
{
    stitch__transfer *t = transfer;
    size_t len = size * count;
    char value[256];

    t->last_byte_ns = stitch__now_ns();
    t->header_bytes += len;
    if (t->header_bytes > MAX_HEADER_BYTES) {
        t->failed = stitch__err_native(t->m->base.ctx, &t->call->error, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                                       "the headers of the answer are longer than %d bytes", MAX_HEADER_BYTES);
        return 0;
    }
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) { /* a new answer (after 100 Continue, a proxy's CONNECT) */
        t->content_type[0] = t->location[0] = 0;
        t->retry_after_ms = -1;
    } else if (header_value(line, len, "content-type", t->content_type, sizeof(t->content_type)) ||
               header_value(line, len, "location", t->location, sizeof(t->location))) {
        return len;
    } else if (header_value(line, len, "retry-after", value, sizeof(value))) {
        t->retry_after_ms = stitch__retry_after_ms(value, (int64_t)time(NULL));
    }
    return len;
}

int stitch__http_on_progress(void *transfer, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    stitch__transfer *t = transfer;
    (void)down_total, (void)down, (void)up_total;
    if (up != t->uploaded) { /* a long prompt on a slow line is no silence */
        t->uploaded = up;
        t->last_byte_ns = stitch__now_ns();
    }
    return 0;
}

int stitch__http_on_event(const char *data, size_t len, void *transfer)
{
    stitch__transfer *t = transfer;
    return stitch__chat_chunk(&t->chat, data, len, &t->call->error);
}

/* Servers send streams as text/plain, and whole replies where a stream was asked for: the first bytes decide. */
static stitch__body_kind sniff(const stitch__transfer *t)
{
    static const char *const fields[] = {"data:", "event:", "id:", "retry:", ":"};
    const char *p = t->raw.data ? t->raw.data : "";
    size_t len = t->raw.len;
    bool possible = false;

    if (len && len < 3 && memcmp(p, "\xef\xbb\xbf", len) == 0)
        return STITCH__BODY_UNKNOWN;
    if (len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3, len -= 3;
    for (; len && strchr(" \t\r\n", *p) && *p; p++)
        len--;
    if (!len)
        return STITCH__BODY_UNKNOWN;
    if (*p == '{' || *p == '[')
        return STITCH__BODY_WHOLE;
    if (strncasecmp(t->content_type, "text/event-stream", 17) == 0)
        return STITCH__BODY_STREAM;
    for (size_t i = 0; i < STITCH__COUNT(fields); i++) {
        size_t n = strlen(fields[i]), same = n < len ? n : len;
        if (memcmp(p, fields[i], same) == 0) {
            if (same == n)
                return STITCH__BODY_STREAM;
            possible = true;
        }
    }
    return possible ? STITCH__BODY_UNKNOWN : STITCH__BODY_WHOLE;
}

static int too_long(stitch__transfer *t, const char *what, uint64_t limit)
{
    return stitch__err_native(t->m->base.ctx, &t->call->error, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                              "%s is longer than %" PRIu64 " bytes", what, limit);
}

/* A piece of a successful answer. */
static int take(stitch__transfer *t, const char *bytes, size_t len)
{
    uint64_t limit = t->m->o.max_reply_bytes;

    t->body_bytes += len;
    if (t->body_bytes > STREAM_OVERHEAD * limit + SLACK)
        return too_long(t, "the answer", STREAM_OVERHEAD * limit + SLACK);
    if (t->kind == STITCH__BODY_STREAM)
        return stitch__sse_feed(&t->sse, bytes, len, &t->call->error);
    if (t->raw.len + len > limit + SLACK)
        return too_long(t, "the reply", limit);
    stitch__buf_append(&t->raw, bytes, len);
    if (t->raw.failed)
        return stitch__err_nomem(t->m->base.ctx, &t->call->error);
    if (t->kind == STITCH__BODY_UNKNOWN && (t->kind = sniff(t)) == STITCH__BODY_STREAM) {
        int rc = stitch__sse_feed(&t->sse, t->raw.data, t->raw.len, &t->call->error);
        stitch__buf_truncate(&t->raw, 0);
        return rc;
    }
    return STITCH_OK;
}

size_t stitch__http_on_body(char *bytes, size_t size, size_t count, void *transfer)
{
    stitch__transfer *t = transfer;
    size_t len = size * count;
    long code = 0;

    t->last_byte_ns = stitch__now_ns();
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &code);
    if (code >= 200 && code < 300) {
        t->failed = take(t, bytes, len);
        return t->failed ? 0 : len;
    }
    /* The rest of a long error page says nothing new, and an endless one must end: the status is known. */
    size_t room = MAX_ERROR_BODY - t->raw.len;
    stitch__buf_append(&t->raw, bytes, len < room ? len : room);
    return len <= room ? len : 0;
}

int stitch__http_body_end(stitch__transfer *t)
{
    if (t->kind == STITCH__BODY_UNKNOWN)
        t->kind = strncasecmp(t->content_type, "text/event-stream", 17) == 0 ? STITCH__BODY_STREAM : STITCH__BODY_WHOLE;
    if (t->kind == STITCH__BODY_STREAM) {
        int rc = stitch__sse_finish(&t->sse, &t->call->error);
        if (rc == STITCH_OK && !t->chat.done)
            rc = stitch__err_native(t->m->base.ctx, &t->call->error, STITCH_E_HTTP, STITCH_DOMAIN_HTTP, 0,
                                    "the stream ended before the reply did");
        return rc;
    }
    return stitch__chat_whole(&t->chat, t->raw.data ? t->raw.data : "", t->raw.len, &t->call->error);
}
