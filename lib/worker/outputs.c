/* SPDX-License-Identifier: MIT
 *
 * Memory for what a program in a worker writes: device memory that both processes map, or else host memory that outputs
 * are fetched through; room for the outputs of a block of runs; how outputs get out of reach of the worker.
 */
#include <unistd.h>

#include "worker/client.h"

enum {
    CHUNK = 16 << 20, /* of outputs on their way: two are in flight */
    PINNED_FROM = 4 << 20,
};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void close_shared(stitch__worker *w, bool keep)
{
    for (int set = 0; set < STITCH__SETS; set++)
        stitch__zero_free(w->places[set]);
    w->kept = 0;
    if ((!w->stream && !w->buffer_count) || stitch__device_enter(w->dev, NULL) != STITCH_OK)
        return;
    /* Copies that are on their way must not find the memory gone. */
    if (w->stream)
        w->dev->drv->StreamSynchronize(w->stream);
    if (w->reader)
        w->dev->drv->StreamSynchronize(w->reader);
    w->reader = NULL;
    stitch__buffers_release(w, keep);
    if (!keep && w->stream) {
        w->dev->drv->StreamDestroy(w->stream);
        w->stream = NULL;
    }
    stitch__device_leave(w->dev);
}

void stitch__outputs_close(stitch__worker *w, bool keep)
{
    close_shared(w, keep);
    stitch__zero_free(w->kept_offsets);
    if (w->pinned && stitch__device_enter(w->dev, NULL) == STITCH_OK) {
        w->dev->drv->MemFreeHost(w->staging);
        stitch__device_leave(w->dev);
    } else if (!w->pinned) {
        stitch_free(w->staging);
    }
    w->staging = NULL;
    w->pinned = false;
    if (w->share >= 0)
        close(w->share);
    w->share = -1;
    w->share_bytes = 0;
    stitch__zero_free(w->unshared);
}

const char *stitch__worker_unshared(const stitch__worker *w)
{
    return w->unshared;
}

static int fetch_outputs(stitch__worker *w, const char *why, stitch_error **err)
{
    for (int set = 0; set < STITCH__SETS; set++)
        stitch__zero_free(w->places[set]);
    w->unshared = stitch__strdup(w->ctx, why);
    return w->unshared ? STITCH_OK : stitch__err_nomem(w->ctx, err);
}

static int make_stream(stitch__worker *w)
{
    if (!w->stream && w->dev->drv->StreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        w->stream = NULL;
    return w->stream ? STITCH_OK : STITCH_E_UNSUPPORTED;
}

/* Place `set` of a tensor; *out stays 0 where it has none. */
static int share_place(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope, int set, size_t i,
                       CUdeviceptr *out, stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_PLACE, .tensor = i, .bytes = w->infos[i].bytes, .set = set};
    CUdeviceptr *theirs = beside ? beside->places[1 - set] : NULL;

    if (theirs && theirs[i])
        return stitch__buffer_borrow(w, scope, beside, theirs[i], &q, out, err);
    return stitch__buffer_share(w, scope, &q, out, err);
}

/* Copies of moved inputs are made only where they are small (stitch__block_moved()). */
static bool has_place(const stitch__worker *w, int set, size_t i, uint64_t input_bytes)
{
    return w->infos[i].role == STITCH_TENSOR_OUTPUT ||
           (w->infos[i].role == STITCH_TENSOR_INPUT && (set == 0 || input_bytes <= STITCH__KEPT_BYTES));
}

/* Outputs in device memory that both processes map: what the program writes is here without a copy through the host.
 * Inputs, too, so that another worker can have the same places, which are worth some per cent to short programs. Where
 * that cannot be done, all outputs are fetched. Only a worker that is lost is an error. */
int stitch__outputs_share(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope, stitch_error **err)
{
    stitch_error *why = NULL;
    uint64_t input_bytes = 0;
    int rc;

    if (w->dev->info.simulated)
        return fetch_outputs(w, "the device is simulated", err);
    for (size_t i = 0; i < w->count; i++)
        input_bytes += w->infos[i].role == STITCH_TENSOR_INPUT ? w->infos[i].bytes : 0;
    rc = make_stream(w);
    for (int set = 0; !rc && set < STITCH__SETS; set++) {
        w->places[set] = stitch__calloc(w->ctx, w->count + 1, sizeof(**w->places));
        if (!w->places[set])
            return stitch__err_nomem(w->ctx, err);
        for (size_t i = 0; !rc && i < w->count; i++)
            if (has_place(w, set, i, input_bytes))
                rc = share_place(w, beside, scope, set, i, &w->places[set][i], &why);
    }
    if (!rc)
        return STITCH_OK;
    if (w->lost || rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT) {
        stitch__err_hand_on(err, &why);
        return rc;
    }
    rc = fetch_outputs(w, why ? stitch_error_message(why) : stitch_status_text(rc), err);
    stitch_error_free(why);
    return rc;
}

bool stitch__worker_apart(const stitch__worker *w, const stitch__worker *other)
{
    for (int set = 0; set < STITCH__SETS; set++)
        for (size_t i = 0; w->places[set] && other->places[set] && i < w->count && i < other->count; i++)
            if (w->places[set][i] && w->places[set][i] == other->places[set][i])
                return false;
    return true;
}

/* Memory that outputs come through, where they are not shared. The worker can write whatever it likes into it, and at
 * any time: it is read once, by a call and not through a mapping, and what was read is what is compared. */
int stitch__outputs_stage(stitch__worker *w, stitch_error **err)
{
    uint64_t total = 0;
    int rc;

    for (size_t i = 0; !w->places[0] && i < w->count && total < 2u * CHUNK; i++)
        if (w->infos[i].role == STITCH_TENSOR_OUTPUT)
            total += w->infos[i].bytes < 2u * CHUNK ? w->infos[i].bytes : 2u * CHUNK;
    w->share_bytes = total < 2u * CHUNK ? (total + 4095) / 4096 * 4096 * 2 : 2u * CHUNK;
    if (w->share_bytes > 2u * CHUNK)
        w->share_bytes = 2u * CHUNK;
    rc = w->share_bytes ? stitch__memory_make(w->ctx, "outputs", w->share_bytes, &w->share, err) : STITCH_OK;
    if (rc)
        return rc;
    size_t half = (size_t)w->share_bytes / 2;
    if (half >= PINNED_FROM && !w->dev->info.simulated &&
        w->dev->drv->MemHostAlloc(&w->staging, half, 0) == CUDA_SUCCESS)
        w->pinned = true;
    else
        w->staging = stitch__alloc(w->ctx, half + 1);
    return w->staging ? STITCH_OK : stitch__err_nomem(w->ctx, err);
}

int stitch__outputs_keep(void *self, const stitch__scope *scope, uint32_t count, stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_KEEP, .kept = count};
    stitch__worker *w = self;
    stitch__reply r;

    if (w->kept_offsets)
        return stitch__err(w->ctx, err, STITCH_E_STATE, "there is room for outputs already");
    w->kept_offsets = stitch__calloc(w->ctx, w->count + 1, sizeof(*w->kept_offsets));
    if (!w->kept_offsets)
        return stitch__err_nomem(w->ctx, err);
    w->kept_bytes = stitch__kept_layout(w->iface, w->kept_offsets);
    if (!w->places[0])
        return stitch__worker_call(w, scope, &q, -1, NULL, &r, err);
    q.bytes = w->kept_bytes * count;
    return q.bytes ? stitch__buffer_share(w, scope, &q, &w->kept, err)
                   : stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "no memory can be shared");
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

/* The next piece of an output; false: there is none. */
static bool next_piece(const stitch__worker *w, stitch__request *q, unsigned number)
{
    uint64_t half = w->share_bytes / 2;

    q->offset += q->bytes;
    while (q->tensor < w->count &&
           (w->infos[q->tensor].role != STITCH_TENSOR_OUTPUT || q->offset >= w->infos[q->tensor].bytes)) {
        q->tensor++;
        q->offset = 0;
    }
    if (q->tensor >= w->count)
        return false;
    uint64_t left = w->infos[q->tensor].bytes - q->offset;
    q->bytes = left < half ? left : half;
    q->at = number % 2 ? half : 0;
    return true;
}

static int store_piece(stitch__worker *w, const stitch__request *q, const CUdeviceptr *into, stitch_error **err)
{
    const char *name = w->infos[q->tensor].name;

    for (uint64_t done = 0; done < q->bytes;) {
        ssize_t n = pread(w->share, (char *)w->staging + done, (size_t)(q->bytes - done), (off_t)(q->at + done));
        if (n <= 0)
            return stitch__err_errno(w->ctx, err, STITCH_E_IO, "reading output %s of a worker", name);
        done += (uint64_t)n;
    }
    return stitch__cu_checkf(w->dev, w->dev->drv->MemcpyHtoD(into[q->tensor] + q->offset, w->staging, (size_t)q->bytes),
                             err, "copying output %s of a worker to the device", name);
}

/* Output `i` of a set, or of run set - STITCH__SETS of a block. */
static CUdeviceptr written_at(const stitch__worker *w, int set, size_t i)
{
    if (set < STITCH__SETS)
        return w->places[set][i];
    return w->kept + (CUdeviceptr)(set - STITCH__SETS) * w->kept_bytes + w->kept_offsets[i];
}

/* What the program wrote, from memory that it can still write to into memory that it cannot. */
static int copy_outputs(stitch__worker *w, const stitch__scope *scope, int set, const CUdeviceptr *into,
                        CUstream stream, stitch_error **err)
{
    const stitch__driver *drv = w->dev->drv;
    int rc = stitch__worker_alive(w, scope, STITCH__OP_WORKER_FETCH, err);

    for (size_t i = 0; !rc && i < w->count; i++)
        if (w->infos[i].role == STITCH_TENSOR_OUTPUT && w->infos[i].bytes)
            rc = stitch__cu_checkf(w->dev,
                                   drv->MemcpyDtoDAsync(into[i], written_at(w, set, i), (size_t)w->infos[i].bytes,
                                                        stream ? stream : w->stream),
                                   err, "copying output %s of a worker", w->infos[i].name);
    if (stream)
        w->reader = stream;
    if (rc || stream)
        return rc;
    rc = stitch__stream_wait(w->dev, w->stream, scope, "copying outputs of a worker", err);
    return rc ? rc : stitch__worker_alive(w, scope, STITCH__OP_WORKER_FETCH, err);
}

/* While one piece goes to the device here, the worker brings the next one. */
int stitch__outputs_fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                          stitch_error **err)
{
    stitch__worker *w = self;
    stitch__request q = {.op = STITCH__OP_WORKER_FETCH, .set = set}, next = q;
    stitch__reply r;
    int64_t begun = 0, begun_next = 0;
    unsigned number = 0;
    if (w->places[0])
        return copy_outputs(w, scope, set, into, stream, err);
    bool more = next_piece(w, &q, number++);
    int rc = more ? stitch__worker_send(w, scope, &q, -1, NULL, &begun, err) : STITCH_OK;

    while (!rc && more) {
        rc = stitch__worker_receive(w, scope, &q, begun, NULL, &r, err);
        next = q;
        more = !rc && next_piece(w, &next, number++);
        if (more)
            rc = stitch__worker_send(w, scope, &next, -1, NULL, &begun_next, err);
        if (rc)
            break;
        rc = store_piece(w, &q, into, err);
        if (rc && more) /* nobody would take the answer that is on its way */
            (void)stitch__worker_receive(w, scope, &next, begun_next, NULL, &r, NULL);
        q = next;
        begun = begun_next;
    }
    return rc;
}
