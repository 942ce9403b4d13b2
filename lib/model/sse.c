/* SPDX-License-Identifier: MIT
 *
 * Server-sent events (WHATWG HTML, 9.2.6), as far as chat streams need them: the data of each event.
 */
#include "model/model.h"

void stitch__sse_init(stitch__sse *s, const stitch_context *ctx, size_t limit, stitch__sse_event event, void *userdata)
{
    memset(s, 0, sizeof(*s));
    stitch__buf_init(&s->line, ctx);
    stitch__buf_init(&s->data, ctx);
    s->limit = limit;
    s->event = event;
    s->userdata = userdata;
}

void stitch__sse_free(stitch__sse *s)
{
    stitch__buf_free(&s->line);
    stitch__buf_free(&s->data);
}

static int dispatch(stitch__sse *s)
{
    int rc = STITCH_OK;
    if (s->has_data)
        rc = s->event(s->data.data ? s->data.data : "", s->data.len, s->userdata);
    stitch__buf_truncate(&s->data, 0);
    s->has_data = false;
    return rc;
}

static int take_line(stitch__sse *s)
{
    const char *line = s->line.data ? s->line.data : "";
    size_t len = s->line.len;
    if (!s->started && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        len -= 3;
    }
    s->started = true;
    int rc = STITCH_OK;
    if (len == 0) {
        rc = dispatch(s);
    } else if (len >= 4 && memcmp(line, "data", 4) == 0 && (len == 4 || line[4] == ':')) {
        size_t skip = len == 4 ? 4 : len > 5 && line[5] == ' ' ? 6 : 5;
        if (s->has_data)
            stitch__buf_putc(&s->data, '\n');
        stitch__buf_append(&s->data, line + skip, len - skip);
        s->has_data = true;
    } /* comments and other fields carry nothing for us */
    stitch__buf_truncate(&s->line, 0);
    return rc;
}

int stitch__sse_feed(stitch__sse *s, const char *bytes, size_t len, stitch_error **err)
{
    const stitch_context *ctx = s->line.ctx;
    for (size_t i = 0; i < len;) {
        if (s->after_cr && bytes[i] == '\n') { /* the second half of CRLF */
            s->after_cr = false;
            i++;
            continue;
        }
        s->after_cr = false;
        size_t n = 0;
        while (i + n < len && bytes[i + n] != '\n' && bytes[i + n] != '\r')
            n++;
        stitch__buf_append(&s->line, bytes + i, n);
        if (s->line.failed || s->data.failed)
            return stitch__err_nomem(ctx, err);
        if (s->line.len + s->data.len > s->limit)
            return stitch__err_native(ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_HTTP, 0,
                                      "an event of the stream is longer than %zu bytes", s->limit);
        i += n;
        if (i < len) {
            s->after_cr = bytes[i] == '\r';
            i++;
            int rc = take_line(s);
            if (rc)
                return rc;
            if (s->data.failed)
                return stitch__err_nomem(ctx, err);
        }
    }
    return STITCH_OK;
}

int stitch__sse_finish(stitch__sse *s, stitch_error **err)
{
    int rc = STITCH_OK;
    if (s->line.len) /* half a line counts only if it is whole after all; the receiver decides */
        rc = take_line(s);
    if (rc == STITCH_OK && s->has_data) {
        const char *data = s->data.data ? s->data.data : "";
        json_t *doc = json_loadb(data, s->data.len, 0, NULL);
        bool whole = doc || strcmp(data, "[DONE]") == 0;
        json_decref(doc);
        if (whole)
            rc = dispatch(s);
    }
    if (rc == STITCH_OK && (s->line.failed || s->data.failed))
        rc = stitch__err_nomem(s->line.ctx, err);
    return rc;
}
