/* SPDX-License-Identifier: MIT
 *
 * Models that are a function of the host.
 */
#include "model/model.h"

typedef struct host_model {
    stitch_model base;
    stitch_model_fn fn;
    void *userdata;
} host_model;

static void host_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    host_model *m = (host_model *)base;
    for (size_t i = 0; i < count; i++) {
        stitch__call *c = &calls[i];
        int64_t began = stitch__now_ns();
        c->status = stitch__scope_check(&(stitch__scope){base->ctx, c->request->cancel, 0}, "the request to the model", &c->error);
        if (c->status == STITCH_OK)
            c->status = stitch__reply_new(base->ctx, &c->reply, &c->error);
        if (c->status != STITCH_OK)
            continue;
        c->status = m->fn(c->request, c->reply, m->userdata);
        if (c->status == STITCH_OK && !c->reply->text)
            c->status = stitch__err(base->ctx, &c->error, STITCH_E_REPLY, "the host's model set no reply");
        else if (c->status != STITCH_OK)
            stitch__err(base->ctx, &c->error, c->status, "the host's model failed: %s", stitch_status_text(c->status));
        if (c->status != STITCH_OK) {
            stitch_reply_free(c->reply);
            c->reply = NULL;
        } else {
            c->reply->milliseconds = (double)(stitch__now_ns() - began) / 1e6;
        }
    }
}

static void host_destroy(stitch_model *base)
{
    (void)base;
}

static const stitch__model_kind host_kind = {"host", host_complete, host_destroy, true};

int stitch_model_new_host(stitch_context *ctx, stitch_model_fn fn, void *userdata, stitch_model **out, stitch_error **err)
{
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_host: out must not be NULL");
    *out = NULL;
    if (!ctx || !fn)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_host: context and function must not be NULL");
    host_model *m = stitch__model_alloc(ctx, &host_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    m->fn = fn;
    m->userdata = userdata;
    *out = &m->base;
    return STITCH_OK;
}
