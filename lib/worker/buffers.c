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
        else if (!w->buffers[i].used && !w->buffers[i].lender && w->buffers[i].bytes == bytes)
            return i;
    }
    return room;
}

/* *made becomes buffer `number`. */
static int put(stitch__worker *w, uint32_t number, stitch__buffer *made, stitch_error **err)
{
    int rc = number < STITCH__WORKER_BUFFERS
                 ? stitch__grow(w->ctx, &w->buffers, &w->buffer_cap, number + 1u, sizeof(*w->buffers))
                 : STITCH_E_LIMIT;

    if (rc == STITCH_E_NOMEM)
        return stitch__err_nomem(w->ctx, err);
    if (rc)
        return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "no more memory can be shared");
    if (number == w->buffer_count)
        w->buffer_count++;
    w->buffers[number] = *made;
    return STITCH_OK;
}

static int make(stitch__worker *w, uint32_t number, uint64_t bytes, stitch_error **err)
{
    stitch__buffer made = {.bytes = bytes, .made = stitch__now_ns()};
    int rc;

    if (bytes > SIZE_MAX || !stitch__export_make(w->dev, (size_t)bytes, w->stream, &made.memory))
        return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "no memory can be shared");
    rc = put(w, number, &made, err);
    if (rc)
        stitch__export_close(w->dev, &made.memory);
    return rc;
}

static int send(stitch__worker *w, const stitch__scope *scope, uint32_t number, stitch__request *q, CUdeviceptr *out,
                stitch_error **err)
{
    int *fd = &w->buffers[number].memory.fd, rc; /* -1: the worker has it */
    stitch__reply r;

    q->buffer = number;
    q->wanted = w->buffers[number].memory.reserved; /* the same for each worker that has this memory */
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

int stitch__buffer_share(stitch__worker *w, const stitch__scope *scope, stitch__request *q, CUdeviceptr *out,
                         stitch_error **err)
{
    uint32_t number = choose(w, q->bytes);
    int rc = STITCH_OK;

    *out = 0;
    if (number >= w->buffer_count || empty(&w->buffers[number]))
        rc = make(w, number, q->bytes, err);
    return rc ? rc : send(w, scope, number, q, out, err);
}

/* What has been borrowed before, or room for it. */
static uint32_t find_borrowed(const stitch__worker *w, const stitch__buffer *theirs, int lender)
{
    uint32_t room = (uint32_t)w->buffer_count;

    for (uint32_t i = 0; i < w->buffer_count; i++) {
        if (empty(&w->buffers[i]))
            room = i;
        else if (w->buffers[i].lender == lender && w->buffers[i].made == theirs->made && !w->buffers[i].used)
            return i;
    }
    return room;
}

int stitch__buffer_borrow(stitch__worker *w, const stitch__scope *scope, stitch__worker *lender, CUdeviceptr theirs,
                          stitch__request *q, CUdeviceptr *out, stitch_error **err)
{
    const stitch__buffer *from = NULL;
    stitch__buffer made = {.bytes = q->bytes, .lender = (int)lender->process.pid};
    uint32_t number;
    int rc = STITCH_OK;

    *out = 0;
    for (size_t i = 0; i < lender->buffer_count; i++)
        if (lender->buffers[i].memory.ptr == theirs && lender->buffers[i].bytes == q->bytes)
            from = &lender->buffers[i];
    if (!from || from->lender)
        return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "there is no memory of the other worker's to share");
    lender->lends = true;
    number = find_borrowed(w, from, made.lender);
    if (number >= w->buffer_count || empty(&w->buffers[number])) {
        made.made = from->made;
        made.memory = (stitch__export){.ptr = theirs, .reserved = from->memory.reserved, .fd = -1};
        if (w->dev->drv->MemExportToShareableHandle(&made.memory.fd, from->memory.handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
            return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "the other worker's memory cannot be shared");
        rc = put(w, number, &made, err);
        if (rc)
            close(made.memory.fd);
    }
    return rc ? rc : send(w, scope, number, q, out, err);
}

bool stitch__buffers_foreign(const stitch__worker *w, const stitch__worker *beside)
{
    for (size_t i = 0; i < w->buffer_count; i++)
        if (w->buffers[i].lender && (!beside || w->buffers[i].lender != (int)beside->process.pid))
            return true;
    return false;
}

bool stitch__worker_stands(const stitch__worker *w, const stitch__worker *lender)
{
    for (size_t i = 0; i < w->buffer_count; i++) {
        const stitch__buffer *b = &w->buffers[i], *from = NULL;
        if (!b->lender || !b->used)
            continue;
        for (size_t k = 0; !from && k < lender->buffer_count; k++)
            if (lender->buffers[k].made == b->made && lender->buffers[k].memory.ptr == b->memory.ptr)
                from = &lender->buffers[k];
        if (!from || b->lender != (int)lender->process.pid)
            return false;
    }
    return true;
}

bool stitch__buffers_spare(const stitch__worker *w)
{
    uint64_t most = w->dev->info.memory_bytes / 256, total = 0;

    for (size_t i = 0; i < w->buffer_count; i++) {
        total += w->buffers[i].lender ? w->buffers[i].bytes : w->buffers[i].memory.mapped_bytes;
        if (w->buffers[i].lender && !w->buffers[i].used)
            return false; /* nobody knows whether the other worker still has it */
    }
    return !w->buffers_unsure && (w->lends || total <= (most < SPARE_BYTES ? most : SPARE_BYTES));
}

void stitch__buffers_release(stitch__worker *w, bool keep)
{
    for (size_t i = 0; i < w->buffer_count; i++) {
        w->buffers[i].used = false;
        if (!keep && w->buffers[i].lender)
            w->buffers[i].memory = (stitch__export){.fd = -1}; /* mapped by who has lent it */
        else if (!keep)
            stitch__export_close(w->dev, &w->buffers[i].memory);
    }
    if (keep)
        return;
    stitch__zero_free(w->buffers);
    w->buffer_count = w->buffer_cap = 0;
    w->buffers_unsure = false;
}
