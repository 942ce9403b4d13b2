/* SPDX-License-Identifier: MIT
 *
 * What all kinds of models share: requests are checked, labelled and numbered, and counted against a budget.
 */
#include <stdio.h>

#include "model/model.h"

enum { MAX_PROMPT_BYTES = 64 << 20 };

int stitch_request_init(stitch_request *request, size_t struct_size)
{
    int rc = stitch__options_init(request, struct_size, sizeof(stitch_request));
    if (rc == STITCH_OK && struct_size >= offsetof(stitch_request, temperature) + sizeof(double))
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

int64_t *stitch__model_counter(stitch_model *m, const char *label)
{
    for (size_t i = 0; i < m->label_count; i++) {
        if (strcmp(m->labels[i].label, label) == 0)
            return &m->labels[i].count;
    }
    if (stitch__grow(m->ctx, &m->labels, &m->label_capacity, m->label_count + 1, sizeof(*m->labels)) != STITCH_OK)
        return NULL;
    char *copy = stitch__strdup(m->ctx, label);
    if (!copy)
        return NULL;
    m->labels[m->label_count] = (stitch__label_count){copy, 0};
    return &m->labels[m->label_count++].count;
}

/* ---- one call ---- */

int stitch__call_begin(stitch_model *m, stitch__call *call)
{
    const stitch__scope scope = {m->ctx, call->request->cancel, 0};
    int rc = stitch__scope_check(&scope, "the request to the model", &call->error);
    if (rc == STITCH_OK)
        rc = stitch__budget_check(m->budget, m->ctx, &call->error);
    call->status = rc;
    return rc;
}

void stitch__call_answered(stitch_model *m, stitch__call *call)
{
    const stitch_reply *r = call->reply;
    int64_t in = r->tokens_in, out = r->tokens_out;

    call->status = STITCH_OK;
    stitch_error_free(call->error);
    call->error = NULL;
    if (in < 0)
        in = stitch__budget_estimate(stitch__messages_bytes(call->request->messages, call->request->message_count));
    if (out < 0)
        out = stitch__budget_estimate(strlen(stitch_reply_text(r)) + strlen(stitch_reply_reasoning(r)));
    stitch__budget_add(m->budget, in > INT64_MAX - out ? INT64_MAX : in + out, r->cost, 1);
    if (call->hook)
        call->hook(call->index, call->reply, call->hook_userdata);
}

void stitch__call_failed(stitch__call *call, int status)
{
    stitch_reply_free(call->reply);
    call->reply = NULL;
    call->status = status;
}

void stitch__call_piece(const stitch__call *call, int reasoning, const char *text)
{
    const stitch_request *r = call->request;
    if (r->on_token && (*text || reasoning < 0))
        r->on_token(call->index, reasoning, text, strlen(text), r->userdata);
}

void stitch__call_pieces(const stitch__call *call)
{
    stitch__call_piece(call, 1, stitch_reply_reasoning(call->reply));
    stitch__call_piece(call, 0, stitch_reply_text(call->reply));
}

/* ---- many calls ---- */

static int check_label(const stitch_context *ctx, const char *label, stitch_error **err)
{
    size_t len = strlen(label);
    bool ok = len <= STITCH__MODEL_MAX_LABEL && stitch__utf8_valid(label, len);
    for (size_t i = 0; ok && i < len; i++)
        ok = (unsigned char)label[i] >= 0x20 && label[i] != 0x7f;
    return ok ? STITCH_OK
              : stitch__err(ctx, err, STITCH_E_INVALID,
                            "a request's label is at most %d bytes of UTF-8 without control characters",
                            STITCH__MODEL_MAX_LABEL);
}

static int check_request(const stitch_context *ctx, const stitch_request *r, stitch_error **err)
{
    uint64_t bytes = 0;
    int rc;

    if (!r->messages || r->message_count == 0)
        return stitch__err(ctx, err, STITCH_E_INVALID, "a request needs at least one message");
    for (size_t i = 0; i < r->message_count; i++) {
        const stitch_message *m = &r->messages[i];
        if (!m->content || !stitch__message_role(m->role))
            return stitch__err(ctx, err, STITCH_E_INVALID, "message %zu has no content or no known role", i);
        size_t len = strlen(m->content);
        bytes += len;
        if (bytes > MAX_PROMPT_BYTES)
            return stitch__err(ctx, err, STITCH_E_LIMIT, "the messages of a request are longer than %d bytes",
                               MAX_PROMPT_BYTES);
        if (!stitch__utf8_valid(m->content, len))
            return stitch__err(ctx, err, STITCH_E_INVALID, "message %zu is not valid UTF-8", i);
    }
    if (r->fingerprint && (strlen(r->fingerprint) > 64 || !stitch__utf8_valid(r->fingerprint, strlen(r->fingerprint))))
        return stitch__err(ctx, err, STITCH_E_INVALID, "a fingerprint is at most 64 bytes of UTF-8");
    if (r->label && (rc = check_label(ctx, r->label, err)) != STITCH_OK)
        return rc;
    if (!(r->temperature <= 1e6)) /* NaN as well */
        return stitch__err(ctx, err, STITCH_E_INVALID, "a request's temperature is no usable number");
    if (r->max_tokens < 0)
        return stitch__err(ctx, err, STITCH_E_INVALID, "a request's max_tokens must not be negative");
    if (r->json_schema) {
        json_t *schema = NULL;
        rc = stitch__json_parse(ctx, r->json_schema, strlen(r->json_schema), 0, "json_schema", &schema, err);
        if (rc == STITCH_OK && !json_is_object(schema))
            rc = stitch__err(ctx, err, STITCH_E_INVALID, "json_schema: expected an object, found %s",
                             stitch__json_type(schema));
        json_decref(schema);
        return rc;
    }
    return STITCH_OK;
}

static int prepare_call(stitch_model *m, stitch__call *call, const stitch_request *request, stitch_request *copy,
                        stitch_error **err)
{
    int rc = stitch__options_copy(m->ctx, copy, sizeof(*copy), request, "stitch_request", err);
    if (rc || (rc = check_request(m->ctx, copy, err)) != STITCH_OK)
        return rc;
    call->request = copy;
    call->label = copy->label ? copy->label : "";
    int64_t *counter = stitch__model_counter(m, call->label);
    if (!counter)
        return stitch__err_nomem(m->ctx, err);
    call->number = ++*counter;
    if (copy->fingerprint)
        snprintf(call->fingerprint, sizeof(call->fingerprint), "%s", copy->fingerprint);
    else
        stitch__messages_hash(copy->messages, copy->message_count, call->fingerprint);
    return STITCH_OK;
}

/* Requests that came to nothing use up no numbers: whoever asks again after a failure finds the same entry in a
 * recording as the run that was recorded, where the failure may not have happened. A batch of which a part succeeded
 * keeps its numbers, so that each reply stays with its request. */
static void give_numbers_back(stitch_model *m, const stitch__call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (calls[i].status == STITCH_OK)
            return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t *counter = calls[i].number ? stitch__model_counter(m, calls[i].label) : NULL;
        if (counter)
            --*counter;
    }
}

int stitch__model_complete_many(stitch_model *m, const stitch_request *requests, size_t count, int *statuses,
                                stitch_reply **replies, stitch_error **errs, stitch__reply_hook hook,
                                void *hook_userdata)
{
    int rc = STITCH_OK;
    stitch__call *calls = stitch__calloc(m->ctx, count ? count : 1, sizeof(*calls));
    stitch_request *copies = stitch__calloc(m->ctx, count ? count : 1, sizeof(*copies));

    if (!calls || !copies)
        rc = STITCH_E_NOMEM;
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        /* Callers that were compiled against an older header have smaller elements. */
        const void *at = (const char *)requests + i * requests->struct_size;
        calls[i].index = i;
        calls[i].hook = hook;
        calls[i].hook_userdata = hook_userdata;
        rc = prepare_call(m, &calls[i], at, &copies[i], &calls[i].error);
        calls[i].status = rc ? rc : STITCH_E_INTERNAL;
    }
    if (rc == STITCH_OK) {
        m->kind->complete(m, calls, count);
    } else if (calls) { /* nothing was sent: the first failure stands for all */
        for (size_t i = 0; i < count; i++)
            calls[i].status = rc;
    }
    if (calls)
        give_numbers_back(m, calls, count);
    for (size_t i = 0; i < count; i++) {
        statuses[i] = calls ? calls[i].status : rc;
        replies[i] = calls ? calls[i].reply : NULL;
        if (errs) {
            stitch_error_free(errs[i]);
            errs[i] = calls ? calls[i].error : NULL;
            if (statuses[i] && !errs[i])
                stitch__err(m->ctx, &errs[i], statuses[i], "the request to the model was not sent: %s",
                            stitch_status_text(statuses[i]));
        } else if (calls) {
            stitch_error_free(calls[i].error);
        }
    }
    for (size_t i = 0; i < count && rc == STITCH_OK; i++)
        rc = statuses[i];
    stitch_free(calls);
    stitch_free(copies);
    return rc;
}

int stitch_model_complete_many(stitch_model *m, const stitch_request *requests, size_t count, int *statuses,
                               stitch_reply **replies, stitch_error **errs)
{
    if (!m || (count && (!requests || !statuses || !replies)))
        return STITCH_E_INVALID;
    return stitch__model_complete_many(m, requests, count, statuses, replies, errs, NULL, NULL);
}

int stitch_model_complete(stitch_model *m, const stitch_request *request, stitch_reply **out, stitch_error **err)
{
    int status = STITCH_E_INTERNAL;

    if (!out)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_model_complete: out must not be NULL");
    *out = NULL;
    if (!m || !request)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_model_complete: model and request must not be NULL");
    return stitch__model_complete_many(m, request, 1, &status, out, err, NULL, NULL);
}
