/* SPDX-License-Identifier: MIT
 *
 * Device memory that a worker and its verifier both map, on the verifier's side. Mapping it takes longer than many
 * programs run, so it serves one program after the other.
 */
#include <unistd.h>

#include "worker/client.h"

/* Of a worker that idles: at most this, and at most one part in 256 of what the device has. */
#define SPARE_BYTES (128u << 20)

static bool empty(const stitch__buffer *b)
{
    return !b->memory.ptr;
}

/* One of this size that nothing uses, else room for one. STITCH__WORKER_BUFFERS: there is no more. */
static uint32_t choose(const stitch__worker *w, uint64_t bytes)
{
    uint32_t room = (uint32_t)w->buffer_count;

    for (uint32_t i = 0; i < w->buffer_count; i++) {
        if (empty(&w->buffers[i]))
            room = i;
        else if (!w->buffers[i].used && w->buffers[i].bytes == bytes)
            return i;
    }
    return room;
}

static int make(stitch__worker *w, uint32_t number, uint64_t bytes, stitch_error **err)
{
    stitch__buffer made = {.bytes = bytes};
    int rc = number < STITCH__WORKER_BUFFERS
                 ? stitch__grow(w->ctx, &w->buffers, &w->buffer_cap, number + 1u, sizeof(*w->buffers))
                 : STITCH_E_LIMIT;

    if (rc == STITCH_E_NOMEM)
        return stitch__err_nomem(w->ctx, err);
    if (rc || bytes > SIZE_MAX || !stitch__export_make(w->dev, (size_t)bytes, w->stream, &made.memory))
        return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "no memory can be shared");
    if (number == w->buffer_count)
        w->buffer_count++;
    w->buffers[number] = made;
    return STITCH_OK;
}

int stitch__buffer_share(stitch__worker *w, const stitch__scope *scope, stitch__request *q, CUdeviceptr *out,
                         stitch_error **err)
{
    uint32_t number = choose(w, q->bytes);
    stitch__reply r;
    int rc = STITCH_OK, *fd;

    *out = 0;
    if (number >= w->buffer_count || empty(&w->buffers[number]))
        rc = make(w, number, q->bytes, err);
    if (rc)
        return rc;
    fd = &w->buffers[number].memory.fd; /* -1: the worker has it */
    q->buffer = number;
    rc = stitch__worker_call(w, scope, q, *fd, NULL, &r, err);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    w->buffers[number].used = true;
    if (rc)
        w->buffers_unsure = true; /* whether it has taken that one */
    else
        *out = w->buffers[number].memory.ptr;
    return rc;
}

bool stitch__buffers_spare(stitch__worker *w)
{
    uint64_t most = w->dev->info.memory_bytes / 256, total = 0;

    for (size_t i = 0; i < w->buffer_count; i++)
        total += w->buffers[i].memory.mapped_bytes;
    return !w->buffers_unsure && total <= (most < SPARE_BYTES ? most : SPARE_BYTES);
}

void stitch__buffers_release(stitch__worker *w, bool keep)
{
    for (size_t i = 0; i < w->buffer_count; i++) {
        w->buffers[i].used = false;
        if (!keep)
            stitch__export_close(w->dev, &w->buffers[i].memory);
    }
    if (keep)
        return;
    stitch__zero_free(w->buffers);
    w->buffer_count = w->buffer_cap = 0;
    w->buffers_unsure = false;
}
