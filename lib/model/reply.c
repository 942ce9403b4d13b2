/* SPDX-License-Identifier: MIT
 *
 * What a model answered: texts, counts, notices.
 */
#include "model/model.h"

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

int stitch__reply_new(const stitch_context *ctx, stitch_reply **out, stitch_error **err)
{
    stitch_reply *r = stitch__calloc(ctx, 1, sizeof(*r));
    *out = r;
    if (!r)
        return stitch__err_nomem(ctx, err);
    r->ctx = ctx;
    r->tokens_in = r->tokens_out = -1;
    return STITCH_OK;
}

void stitch_reply_free(stitch_reply *r)
{
    if (!r)
        return;
    stitch_free(r->text);
    stitch_free(r->reasoning);
    stitch_free(r->finish);
    stitch_free(r->notice);
    stitch_free(r->model);
    stitch_free(r);
}

int stitch__reply_text_set(stitch_reply *reply, char **slot, const char *text, size_t len)
{
    char *copy = stitch__strndup(reply->ctx, text, len);
    if (!copy)
        return STITCH_E_NOMEM;
    stitch_free(*slot);
    *slot = copy;
    return STITCH_OK;
}

int stitch__reply_notice_add(stitch_reply *reply, const char *text)
{
    stitch__buf b;
    stitch__buf_init(&b, reply->ctx);
    stitch__buf_printf(&b, "%s%s%s", text_or_empty(reply->notice), reply->notice ? "\n" : "", text);
    char *joined = stitch__buf_take(&b, NULL);
    if (!joined)
        return STITCH_E_NOMEM;
    stitch_free(reply->notice);
    reply->notice = joined;
    return STITCH_OK;
}

int stitch_reply_set(stitch_reply *reply, const char *text, const char *reasoning, int64_t tokens_in,
                     int64_t tokens_out)
{
    if (!reply || !text || !stitch__utf8_valid(text, strlen(text)) ||
        (reasoning && !stitch__utf8_valid(reasoning, strlen(reasoning))))
        return STITCH_E_INVALID;
    int rc = stitch__reply_text_set(reply, &reply->text, text, strlen(text));
    if (rc == STITCH_OK && reasoning)
        rc = stitch__reply_text_set(reply, &reply->reasoning, reasoning, strlen(reasoning));
    reply->tokens_in = tokens_in < 0 ? -1 : tokens_in;
    reply->tokens_out = tokens_out < 0 ? -1 : tokens_out;
    return rc;
}

const char *stitch_reply_text(const stitch_reply *r)
{
    return r ? text_or_empty(r->text) : "";
}

const char *stitch_reply_reasoning(const stitch_reply *r)
{
    return r ? text_or_empty(r->reasoning) : "";
}

const char *stitch_reply_finish(const stitch_reply *r)
{
    return r ? text_or_empty(r->finish) : "";
}

const char *stitch_reply_notice(const stitch_reply *r)
{
    return r ? text_or_empty(r->notice) : "";
}

const char *stitch_reply_model(const stitch_reply *r)
{
    return r ? text_or_empty(r->model) : "";
}

int64_t stitch_reply_tokens_in(const stitch_reply *r)
{
    return r ? r->tokens_in : -1;
}

int64_t stitch_reply_tokens_out(const stitch_reply *r)
{
    return r ? r->tokens_out : -1;
}

double stitch_reply_cost(const stitch_reply *r)
{
    return r ? r->cost : 0;
}

double stitch_reply_milliseconds(const stitch_reply *r)
{
    return r ? r->milliseconds : 0;
}
