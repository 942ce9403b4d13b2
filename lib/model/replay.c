/* SPDX-License-Identifier: MIT
 *
 * Models that answer from a recording, and models that make one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "model/model.h"

/* ---- replay ---- */

typedef struct replay_model {
    stitch_model base;
    stitch__recording recording;
    char *path;
    bool strict;
} replay_model;

static int missing(const replay_model *m, const stitch__call *call, stitch_error **err)
{
    stitch__buf have;
    stitch__buf_init(&have, m->base.ctx);
    for (size_t i = 0; i < m->recording.count; i++) {
        if (have.len > 400) {
            stitch__buf_puts(&have, ", ...");
            break;
        }
        stitch__buf_printf(&have, "%s%s #%" PRId64, i ? ", " : "", m->recording.entries[i].label, m->recording.entries[i].number);
    }
    stitch__err(m->base.ctx, err, STITCH_E_REPLAY, "%s has no reply for %s #%" PRId64 "%s; it has: %s", m->path, call->label, call->number,
                m->recording.cut ? " (its last line is incomplete)" : "", have.data ? have.data : "nothing");
    stitch__buf_free(&have);
    return STITCH_E_REPLAY;
}

static int answer(replay_model *m, stitch__call *call)
{
    const stitch_context *ctx = m->base.ctx;
    const stitch__recorded *e = NULL;
    char notice[256];
    stitch_reply *r;
    int rc = stitch__scope_check(&(stitch__scope){m->base.ctx, call->request->cancel, 0}, "the request to the model", &call->error);

    if (rc)
        return rc;
    for (size_t i = 0; i < m->recording.count && !e; i++) {
        if (m->recording.entries[i].number == call->number && strcmp(m->recording.entries[i].label, call->label) == 0)
            e = &m->recording.entries[i];
    }
    if (!e)
        return missing(m, call, &call->error);
    bool same = strcmp(e->fingerprint, call->fingerprint) == 0;
    snprintf(notice, sizeof(notice), "the prompt of %.64s #%" PRId64 " differs from the recorded one", call->label, call->number);
    if (!same && m->strict)
        return stitch__err(ctx, &call->error, STITCH_E_REPLAY, "%s: %s", m->path, notice);
    if ((rc = stitch__reply_new(ctx, &r, &call->error)) != STITCH_OK)
        return rc;
    rc = stitch_reply_set(r, e->text, *e->reasoning ? e->reasoning : NULL, e->tokens_in, e->tokens_out);
    if (rc == STITCH_OK)
        rc = stitch__reply_text_set(r, &r->finish, e->finish, strlen(e->finish));
    if (rc == STITCH_OK)
        rc = stitch__reply_text_set(r, &r->model, e->model, strlen(e->model));
    if (rc == STITCH_OK && !same)
        rc = stitch__reply_notice_add(r, notice);
    if (rc) {
        stitch_reply_free(r);
        return stitch__err_nomem(ctx, &call->error);
    }
    r->milliseconds = e->milliseconds;
    if (call->request->on_token)
        call->request->on_token(call->index, 0, stitch_reply_text(r), strlen(stitch_reply_text(r)), call->request->userdata);
    call->reply = r;
    return STITCH_OK;
}

static void replay_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++)
        calls[i].status = answer((replay_model *)base, &calls[i]);
}

static void replay_destroy(stitch_model *base)
{
    replay_model *m = (replay_model *)base;
    stitch__recording_free(&m->recording);
    stitch_free(m->path);
}

static const stitch__model_kind replay_kind = {"replay", replay_complete, replay_destroy, true};

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

/* ---- record ---- */

typedef struct record_model {
    stitch_model base;
    stitch_model *inner;
    char *path;
    int fd;
} record_model;

/* One write a line, so that a killed run leaves whole lines (but for the one that is being written). */
static void append(record_model *m, const stitch__call *call)
{
    char *line = stitch__recording_line(m->base.ctx, call);
    size_t len = line ? strlen(line) : 0, done = 0;
    while (done < len) {
        ssize_t n = write(m->fd, line + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        done += (size_t)n;
    }
    if (!line || done < len) /* the reply is worth more than its record: it is passed on all the same */
        stitch__log(m->base.ctx, STITCH_LOG_WARN, "%s: the exchange could not be recorded", m->path);
    stitch_free(line);
}

static void record_complete(stitch_model *base, stitch__call *calls, size_t count)
{
    record_model *m = (record_model *)base;
    stitch_request *requests = stitch__calloc(base->ctx, count, sizeof(*requests));
    stitch_reply **replies = stitch__calloc(base->ctx, count, sizeof(*replies));
    stitch_error **errors = stitch__calloc(base->ctx, count, sizeof(*errors));
    int *statuses = stitch__calloc(base->ctx, count, sizeof(*statuses));

    if (!requests || !replies || !errors || !statuses) {
        for (size_t i = 0; i < count; i++)
            calls[i].status = stitch__err_nomem(base->ctx, &calls[i].error);
        goto out;
    }
    for (size_t i = 0; i < count; i++) {
        requests[i] = *calls[i].request;
        requests[i].fingerprint = calls[i].fingerprint;
    }
    m->inner->budget = base->budget;
    stitch_model_complete_many(m->inner, requests, count, statuses, replies, errors);
    for (size_t i = 0; i < count; i++) {
        calls[i].status = statuses[i];
        calls[i].reply = replies[i];
        calls[i].error = errors[i];
        if (replies[i])
            append(m, &calls[i]);
    }
out:
    stitch_free(requests);
    stitch_free(replies);
    stitch_free(errors);
    stitch_free(statuses);
}

static void record_destroy(stitch_model *base)
{
    record_model *m = (record_model *)base;
    stitch_model_free(m->inner);
    if (m->fd >= 0)
        close(m->fd);
    stitch_free(m->path);
}

static const stitch__model_kind record_kind = {"record", record_complete, record_destroy, false};

int stitch_model_new_record(stitch_context *ctx, stitch_model *inner, const char *path, stitch_model **out, stitch_error **err)
{
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_record: out must not be NULL");
    *out = NULL;
    if (!ctx || !inner || !path)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_record: context, model and path must not be NULL");
    record_model *m = stitch__model_alloc(ctx, &record_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    m->path = stitch__strdup(ctx, path);
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!m->path || m->fd < 0) {
        int rc = m->path ? stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", path) : stitch__err_nomem(ctx, err);
        stitch_model_free(&m->base);
        return rc;
    }
    m->inner = inner;
    *out = &m->base;
    return STITCH_OK;
}
