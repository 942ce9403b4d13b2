/* SPDX-License-Identifier: MIT
 *
 * Models that answer from a recording.
 */
#include <stdio.h>

#include "model/model.h"

typedef struct replay_model {
    stitch_model base;
    stitch__recording recording;
    char *path;
    bool strict;
} replay_model;

static int missing(const replay_model *m, const stitch__call *call, stitch_error **err)
{
    enum { MAX_LIST = 400 };
    stitch__buf have;
    stitch__buf_init(&have, m->base.ctx);
    for (size_t i = 0; i < m->recording.count; i++) {
        const stitch__recorded *e = &m->recording.entries[i];
        if (e->used)
            continue;
        if (have.len > MAX_LIST) {
            stitch__buf_puts(&have, ", ...");
            break;
        }
        stitch__buf_printf(&have, "%s%.64s #%" PRId64, have.len ? ", " : "", e->label, e->number);
    }
    stitch__err(m->base.ctx, err, STITCH_E_REPLAY, "%s has no reply for %s #%" PRId64 "%s; it still has: %s", m->path,
                *call->label ? call->label : "''", call->number,
                m->recording.cut ? " (its last line is incomplete)" : "", have.len ? have.data : "nothing");
    stitch__buf_free(&have);
    return STITCH_E_REPLAY;
}

static int fill(const stitch__recorded *e, const char *notice, stitch_reply *r)
{
    int rc = stitch_reply_set(r, e->text, *e->reasoning ? e->reasoning : NULL, e->tokens_in, e->tokens_out);
    if (rc == STITCH_OK)
        rc = stitch__reply_text_set(r, &r->finish, e->finish, strlen(e->finish));
    if (rc == STITCH_OK)
        rc = stitch__reply_text_set(r, &r->model, e->model, strlen(e->model));
    if (rc == STITCH_OK && notice)
        rc = stitch__reply_notice_add(r, notice);
    r->milliseconds = e->milliseconds;
    r->cost = e->cost;
    return rc;
}

static void answer(replay_model *m, stitch__call *call)
{
    const stitch_context *ctx = m->base.ctx;
    stitch__recorded *e = NULL;
    char notice[STITCH__MODEL_MAX_LABEL + 96];

    if (stitch__call_begin(&m->base, call) != STITCH_OK)
        return;
    for (size_t i = 0; i < m->recording.count && !e; i++) {
        if (m->recording.entries[i].number == call->number && strcmp(m->recording.entries[i].label, call->label) == 0)
            e = &m->recording.entries[i];
    }
    if (!e) {
        call->status = missing(m, call, &call->error);
        return;
    }
    bool same = !e->fingerprint || strcmp(e->fingerprint, call->fingerprint) == 0;
    snprintf(notice, sizeof(notice), "the prompt of %s #%" PRId64 " differs from the recorded one",
             *call->label ? call->label : "''", call->number);
    if (!same && m->strict) {
        call->status = stitch__err(ctx, &call->error, STITCH_E_REPLAY, "%s: %s", m->path, notice);
        return;
    }
    if (stitch__reply_new(ctx, &call->reply, &call->error) != STITCH_OK ||
        fill(e, same ? NULL : notice, call->reply) != STITCH_OK) {
        stitch__call_failed(call, stitch__err_nomem(ctx, &call->error));
        return;
    }
    e->used = true;
    stitch__call_pieces(call);
    stitch__call_answered(&m->base, call);
}

static void replay_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++)
        answer((replay_model *)base, &calls[i]);
}

static void replay_destroy(stitch_model *base)
{
    replay_model *m = (replay_model *)base;
    stitch__recording_free(&m->recording);
    stitch_free(m->path);
}

static const stitch__model_kind replay_kind = {"replay", replay_complete, replay_destroy, false};

int stitch_model_new_replay(stitch_context *ctx, const char *path, int strict, stitch_model **out, stitch_error **err)
{
    replay_model *m = NULL;
    char *text = NULL;
    size_t len;
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_replay: out must not be NULL");
    *out = NULL;
    if (!ctx || !path)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_replay: context and path must not be NULL");
    if ((rc = stitch__file_read(ctx, path, 0, &text, &len, err)) != STITCH_OK)
        return rc;
    m = stitch__model_alloc(ctx, &replay_kind, sizeof(*m), err);
    if (!m) {
        rc = STITCH_E_NOMEM;
        goto out;
    }
    m->strict = strict != 0;
    m->path = stitch__strdup(ctx, path);
    if (!m->path) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if ((rc = stitch__recording_parse(ctx, text, len, path, &m->recording, err)) != STITCH_OK)
        goto out;
    if (m->recording.cut)
        stitch__log(ctx, STITCH_LOG_WARN, "%s: the last line is incomplete and is left out", path);
    *out = &m->base;
    m = NULL;
out:
    stitch_free(text);
    stitch_model_free(m ? &m->base : NULL);
    return rc;
}
