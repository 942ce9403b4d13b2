/* SPDX-License-Identifier: MIT
 *
 * Models that pass requests on and write down what is said.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"

typedef struct record_model {
    stitch_model base;
    stitch_model *inner;
    char *path;
    int fd;
    stitch__call *calls; /* of the batch in progress */
} record_model;

/* One write a line, so that a killed run leaves whole lines. */
static int append(record_model *m, const stitch__call *call, const stitch_reply *reply)
{
    char *line = stitch__recording_line(m->base.ctx, call, reply);
    size_t len = line ? strlen(line) : 0;
    struct stat before;
    ssize_t n = -1;

    if (!line || fstat(m->fd, &before) != 0)
        goto out;
    do
        n = write(m->fd, line, len);
    while (n < 0 && errno == EINTR);
    if (n >= 0 && (size_t)n < len) { /* the disk is full: half a line would damage what follows */
        if (ftruncate(m->fd, before.st_size) != 0)
            stitch__log(m->base.ctx, STITCH_LOG_WARN, "%s: half a line was written", m->path);
        errno = ENOSPC;
        n = -1;
    }
out:
    stitch_free(line);
    return n < 0 ? STITCH_E_IO : STITCH_OK;
}

/* The reply is worth more than its record: it is passed on all the same. */
static void on_reply(size_t index, stitch_reply *reply, void *userdata)
{
    record_model *m = userdata;
    if (append(m, &m->calls[index], reply) == STITCH_OK)
        return;
    stitch__log(m->base.ctx, STITCH_LOG_WARN, "%s: the exchange could not be recorded", m->path);
    if (stitch__reply_notice_add(reply, "the exchange could not be recorded") != STITCH_OK)
        stitch__log(m->base.ctx, STITCH_LOG_WARN, "out of memory");
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
    m->calls = calls;
    m->inner->budget = base->budget;
    stitch__model_complete_many(m->inner, requests, count, statuses, replies, errors, on_reply, m);
    for (size_t i = 0; i < count; i++) {
        calls[i].status = statuses[i];
        calls[i].reply = replies[i];
        calls[i].error = errors[i];
        if (replies[i] && calls[i].hook)
            calls[i].hook(calls[i].index, replies[i], calls[i].hook_userdata);
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

static const stitch__model_kind record_kind = {"record", record_complete, record_destroy, true};

/* An earlier recording is gone on with: its numbers, and not in the middle of a line that a killed run left. */
static int go_on(record_model *m, stitch_error **err)
{
    const stitch_context *ctx = m->base.ctx;
    stitch__recording r = {NULL};
    char *text = NULL;
    size_t len = 0;
    int rc = stitch__file_read(ctx, m->path, 0, &text, &len, err);

    if (rc || (rc = stitch__recording_parse(ctx, text, len, m->path, &r, err)) != STITCH_OK)
        goto out;
    for (size_t i = 0; i < r.count; i++) {
        int64_t *counter = stitch__model_counter(&m->base, r.entries[i].label);
        if (!counter) {
            rc = stitch__err_nomem(ctx, err);
            goto out;
        }
        *counter = *counter > r.entries[i].number ? *counter : r.entries[i].number;
    }
    if (r.cut) {
        stitch__log(ctx, STITCH_LOG_WARN, "%s: the last line is incomplete and is removed", m->path);
        if (ftruncate(m->fd, (off_t)r.whole_bytes) != 0)
            rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be shortened", m->path);
    } else if (r.unterminated && write(m->fd, "\n", 1) != 1) {
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", m->path);
    }
out:
    stitch__recording_free(&r);
    stitch_free(text);
    return rc;
}

int stitch_model_new_record(stitch_context *ctx, stitch_model *inner, const char *path, stitch_model **out,
                            stitch_error **err)
{
    int rc = STITCH_OK;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_model_new_record: out must not be NULL");
    *out = NULL;
    if (!ctx || !inner || !path)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_model_new_record: context, model and path must not be NULL");
    record_model *m = stitch__model_alloc(ctx, &record_kind, sizeof(*m), err);
    if (!m)
        return STITCH_E_NOMEM;
    m->path = stitch__strdup(ctx, path);
    m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666); /* a FIFO must not block */
    if (!m->path)
        rc = stitch__err_nomem(ctx, err);
    else if (m->fd < 0)
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", path);
    else
        rc = go_on(m, err);
    if (rc) { /* the caller keeps the inner model */
        stitch_model_free(&m->base);
        return rc;
    }
    m->inner = inner;
    *out = &m->base;
    return STITCH_OK;
}
