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

typedef struct host_call {
    stitch__call *call;
    bool pieces; /* the function handed out some itself */
} host_call;

/* The host's function knows nothing of batches: its pieces get the index of their request here. */
static void on_piece(size_t request, int reasoning, const char *text, size_t len, void *userdata)
{
    host_call *h = userdata;
    const stitch_request *r = h->call->request;
    (void)request;
    h->pieces = true;
    r->on_token(h->call->index, reasoning, text, len, r->userdata);
}

static void ask(host_model *m, stitch__call *c)
{
    const stitch_context *ctx = m->base.ctx;
    stitch_request request = *c->request;
    host_call h = {c, false};
    int64_t began = stitch__now_ns();

    if (stitch__call_begin(&m->base, c) != STITCH_OK)
        return;
    if (stitch__reply_new(ctx, &c->reply, &c->error) != STITCH_OK) {
        c->status = STITCH_E_NOMEM;
        return;
    }
    request.label = c->label;
    request.fingerprint = c->fingerprint;
    if (request.on_token) {
        request.on_token = on_piece;
        request.userdata = &h;
    }
    int rc = m->fn(&request, c->reply, m->userdata);
    if (rc > 0)
        rc = stitch__err(ctx, &c->error, STITCH_E_INTERNAL, "the host's model returned %d, which is no status", rc);
    else if (rc != STITCH_OK)
        stitch__err(ctx, &c->error, rc, "the host's model failed: %s", stitch_status_text(rc));
    else if (!c->reply->text)
        rc = stitch__err(ctx, &c->error, STITCH_E_REPLY, "the host's model set no reply");
    if (rc) {
        stitch__call_failed(c, rc);
        return;
    }
    c->reply->milliseconds = (double)(stitch__now_ns() - began) / 1e6;
    if (!h.pieces)
        stitch__call_pieces(c);
    stitch__call_answered(&m->base, c);
}

static void host_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ask((host_model *)base, &calls[i]);
}

static void host_destroy(stitch_model *base)
{
    (void)base;
}

static const stitch__model_kind host_kind = {"host", host_complete, host_destroy, false};

int stitch_model_new_host(stitch_context *ctx, stitch_model_fn fn, void *userdata, stitch_model **out,
                          stitch_error **err)
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
