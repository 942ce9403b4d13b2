/* SPDX-License-Identifier: MIT
 *
 * What all kinds of models share: labels and their numbers, budgets, replies.
 */
#include <stdio.h>

#include "model/model.h"

static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

/* ---- replies ---- */

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

int stitch_reply_set(stitch_reply *reply, const char *text, const char *reasoning, int64_t tokens_in, int64_t tokens_out)
{
    if (!reply || !text)
        return STITCH_E_INVALID;
    int rc = stitch__reply_text_set(reply, &reply->text, text, strlen(text));
    if (rc == STITCH_OK && reasoning)
        rc = stitch__reply_text_set(reply, &reply->reasoning, reasoning, strlen(reasoning));
    reply->tokens_in = tokens_in;
    reply->tokens_out = tokens_out;
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

/* ---- models ---- */

int stitch_request_init(stitch_request *request, size_t struct_size)
{
    int rc = stitch__options_init(request, struct_size, sizeof(stitch_request));
    if (rc == STITCH_OK)
        request->temperature = -1;
    return rc;
}

void *stitch__model_alloc(stitch_context *ctx, const stitch__model_kind *kind, size_t size, stitch_error **err)
{
    stitch_model *m = stitch__calloc(ctx, 1, size);
    if (!m) {
        stitch__err_nomem(ctx, err);
        return NULL;
    }
    m->ctx = ctx;
    m->kind = kind;
    return m;
}

void stitch_model_free(stitch_model *m)
{
    if (!m)
        return;
    m->kind->destroy(m);
    for (size_t i = 0; i < m->label_count; i++)
        stitch_free(m->labels[i].label);
    stitch_free(m->labels);
    stitch_free(m);
}

void stitch_model_set_budget(stitch_model *m, stitch_budget *budget)
{
    if (m)
        m->budget = budget;
}

/* The next number of a label; 0: out of memory. */
static int64_t next_number(stitch_model *m, const char *label)
{
    for (size_t i = 0; i < m->label_count; i++) {
        if (strcmp(m->labels[i].label, label) == 0)
            return ++m->labels[i].count;
    }
    if (stitch__grow(m->ctx, &m->labels, &m->label_capacity, m->label_count + 1, sizeof(*m->labels)) != STITCH_OK)
        return 0;
    char *copy = stitch__strdup(m->ctx, label);
    if (!copy)
        return 0;
    m->labels[m->label_count++] = (stitch__label_count){copy, 1};
    return 1;
}

static int check_request(const stitch_context *ctx, const stitch_request *r, stitch_error **err)
{
    if (!r->messages || r->message_count == 0)
        return stitch__err(ctx, err, STITCH_E_INVALID, "a request needs at least one message");
    for (size_t i = 0; i < r->message_count; i++) {
        const stitch_message *m = &r->messages[i];
        if (!m->content || m->role < STITCH_MESSAGE_SYSTEM || m->role > STITCH_MESSAGE_ASSISTANT)
            return stitch__err(ctx, err, STITCH_E_INVALID, "message %zu has no content or no known role", i);
        if (!stitch__utf8_valid(m->content, strlen(m->content)))
            return stitch__err(ctx, err, STITCH_E_INVALID, "message %zu is not valid UTF-8", i);
    }
    if (r->fingerprint && strlen(r->fingerprint) > 64)
        return stitch__err(ctx, err, STITCH_E_INVALID, "a fingerprint is at most 64 characters long");
    return STITCH_OK;
}

static void hash_messages(const stitch_request *r, char out[65])
{
    stitch__sha256 h;
    stitch__sha256_init(&h);
    for (size_t i = 0; i < r->message_count; i++) {
        stitch__sha256_update(&h, &r->messages[i].role, sizeof(r->messages[i].role));
        stitch__sha256_string(&h, r->messages[i].content);
    }
    stitch__sha256_hex(&h, out);
}

static int prepare_call(stitch_model *m, stitch__call *call, const stitch_request *request, stitch_request *copy, size_t index, stitch_error **err)
{
    int rc = stitch__options_copy(m->ctx, copy, sizeof(*copy), request, "stitch_request", err);
    if (rc || (rc = check_request(m->ctx, copy, err)) != STITCH_OK)
        return rc;
    call->request = copy;
    call->label = copy->label ? copy->label : "";
    call->index = index;
    call->number = next_number(m, call->label);
    if (!call->number)
        return stitch__err_nomem(m->ctx, err);
    if (copy->fingerprint)
        snprintf(call->fingerprint, sizeof(call->fingerprint), "%s", copy->fingerprint);
    else
        hash_messages(copy, call->fingerprint);
    return STITCH_OK;
}

int stitch_model_complete_many(stitch_model *m, const stitch_request *requests, size_t count, int *statuses, stitch_reply **replies,
                               stitch_error **errs)
{
    int rc = STITCH_OK;

    if (!m || (count && (!requests || !statuses || !replies)))
        return STITCH_E_INVALID;
    for (size_t i = 0; i < count; i++)
        replies[i] = NULL;
    stitch__call *calls = stitch__calloc(m->ctx, count ? count : 1, sizeof(*calls));
    stitch_request *copies = stitch__calloc(m->ctx, count ? count : 1, sizeof(*copies));
    if (!calls || !copies) {
        rc = STITCH_E_NOMEM;
        goto out;
    }
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        calls[i].status = STITCH_E_INTERNAL;
        rc = prepare_call(m, &calls[i], &requests[i], &copies[i], i, &calls[i].error);
        if (rc == STITCH_OK && m->kind->uses_budget)
            rc = stitch__budget_check(m->budget, m->ctx, &calls[i].error);
        if (rc)
            calls[i].status = rc;
    }
    if (rc == STITCH_OK) {
        m->kind->complete(m, calls, count);
        for (size_t i = 0; i < count; i++) {
            if (calls[i].reply && m->kind->uses_budget)
                stitch__budget_add(m->budget, calls[i].reply);
        }
    } else { /* nothing was sent: the first failure stands for all */
        for (size_t i = 0; i < count; i++)
            calls[i].status = calls[i].status == STITCH_E_INTERNAL ? rc : calls[i].status;
    }
out:
    for (size_t i = 0; i < count; i++) {
        statuses[i] = calls && copies ? calls[i].status : rc;
        if (calls) {
            replies[i] = calls[i].reply;
            if (errs) {
                stitch_error_free(errs[i]);
                errs[i] = calls[i].error;
            } else {
                stitch_error_free(calls[i].error);
            }
        }
    }
    for (size_t i = 0; i < count && rc == STITCH_OK; i++)
        rc = statuses[i];
    stitch_free(calls);
    stitch_free(copies);
    return rc;
}

int stitch_model_complete(stitch_model *m, const stitch_request *request, stitch_reply **out, stitch_error **err)
{
    int status = STITCH_E_INTERNAL;

    if (!out)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_model_complete: out must not be NULL");
    *out = NULL;
    if (!m || !request)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_model_complete: model and request must not be NULL");
    return stitch_model_complete_many(m, request, 1, &status, out, err);
}
