/* SPDX-License-Identifier: MIT
 *
 * A program in a worker: sending it there, and the candidate's operations over the wire.
 */
#include <unistd.h>

#include "worker/client.h"

enum {
    CHUNK = 16 << 20, /* of outputs on their way: two are in flight */
    PINNED_FROM = 4 << 20,
    CLOSE_MS = 1000,
    READ_CHUNK = 4 << 20,
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_exports(stitch__worker *w)
{
    if (!w->exports[0] && !w->stream)
        return;
    bool entered = stitch__device_enter(w->dev, NULL) == STITCH_OK;
    if (entered && w->stream) /* copies that are on their way must not find the memory gone */
        w->dev->drv->StreamSynchronize(w->stream);
    for (int set = 0; set < STITCH__SETS; set++) {
        for (size_t i = 0; entered && w->exports[set] && i < w->count; i++)
            stitch__export_close(w->dev, &w->exports[set][i]);
        stitch__zero_free(w->exports[set]);
    }
    if (entered)
        stitch__export_close(w->dev, &w->kept);
    if (entered && w->copied)
        w->dev->drv->EventDestroy(w->copied);
    if (entered && w->stream)
        w->dev->drv->StreamDestroy(w->stream);
    w->copied = NULL;
    w->stream = NULL;
    if (entered)
        stitch__device_leave(w->dev);
}

void stitch__worker_close(stitch__worker *w)
{
    static const stitch__request q = {.op = STITCH__OP_WORKER_CLOSE};

    if (w->open && !w->lost) {
        stitch__scope scope = stitch__scope_make(NULL, NULL, CLOSE_MS);
        stitch__reply r;
        (void)stitch__worker_call(w, &scope, &q, -1, NULL, &r, NULL);
    }
    w->open = false;
    close_exports(w);
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
    stitch__zero_free(w->infos);
    stitch__zero_free(w->unshared);
    w->count = 0;
}

const char *stitch__worker_unshared(const stitch__worker *w)
{
    return w->unshared;
}

static int take_infos(stitch__worker *w, const stitch_task *task, stitch_error **err)
{
    w->iface = task->iface;
    w->count = stitch_interface_tensor_count(task->iface);
    w->infos = stitch__calloc(w->ctx, w->count + 1, sizeof(*w->infos));
    if (!w->infos)
        return stitch__err_nomem(w->ctx, err);
    for (size_t i = 0; i < w->count; i++) {
        w->infos[i].struct_size = sizeof(w->infos[i]);
        int rc = stitch_interface_tensor(task->iface, i, &w->infos[i]);
        if (rc)
            return stitch__err(w->ctx, err, rc, "tensor %zu of the task cannot be read", i);
    }
    return STITCH_OK;
}

/* Task and program in one memory file that nobody can change any more. */
static int send_program(stitch__worker *w, const stitch__scope *scope, const stitch_task *task,
                        const stitch_program *program, stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_OPEN};
    stitch__reply r;
    stitch__buf b;
    void *file = NULL;
    size_t size = 0;
    int memory = -1, rc = stitch_program_save_memory(program, &file, &size, err);

    stitch__buf_init(&b, w->ctx);
    stitch__worker_task_encode(task, &b);
    if (!rc && b.failed)
        rc = stitch__err_nomem(w->ctx, err);
    q.task_bytes = b.len;
    q.program_bytes = size;
    if (!rc)
        rc = stitch__memory_make(w->ctx, "the program", q.task_bytes + q.program_bytes, &memory, err);
    if (!rc)
        rc = stitch__memory_write(w->ctx, memory, 0, b.data, b.len, "the program", err);
    if (!rc)
        rc = stitch__memory_write(w->ctx, memory, b.len, file, size, "the program", err);
    if (!rc)
        rc = stitch__memory_freeze(w->ctx, memory, "the program", err);
    if (!rc) {
        rc = stitch__worker_call(w, scope, &q, memory, NULL, &r, err);
        w->open = true; /* also after a failure: closing tidies up */
    }
    if (memory >= 0)
        close(memory);
    stitch__buf_free(&b);
    stitch_free(file);
    return rc;
}

static int copy_file(stitch__worker *w, const stitch__scope *scope, const stitch__tensor_data *d, int memory,
                     const char *name, stitch_error **err)
{
    size_t most = d->bytes < READ_CHUNK ? (size_t)d->bytes : READ_CHUNK;
    char *data = stitch__alloc(w->ctx, most + 1);
    int rc = data ? STITCH_OK : stitch__err_nomem(w->ctx, err);

    for (uint64_t at = 0; !rc && at < d->bytes; at += most) {
        size_t part = d->bytes - at < most ? (size_t)(d->bytes - at) : most;
        rc = stitch__scope_check(scope, "sending tensors to a worker", err);
        if (!rc)
            rc = stitch__safetensors_read(d->file, d->entry, at, data, part, err);
        if (!rc)
            rc = stitch__memory_write(w->ctx, memory, at, data, part, name, err);
    }
    stitch_free(data);
    return rc;
}

/* One tensor after the other, so that no more than one is there twice. */
static int send_data(stitch__worker *w, const stitch__scope *scope, const stitch_task *task, size_t index,
                     stitch_error **err)
{
    const char *name = w->infos[index].name;
    stitch__request q = {.op = STITCH__OP_WORKER_DATA, .tensor = index};
    stitch__tensor_data d;
    stitch__reply r;
    int memory = -1, rc = stitch__worker_task_data(task, index, &d, err);

    if (rc || (!d.memory && !d.file))
        return rc;
    q.bytes = d.bytes;
    rc = stitch__memory_make(w->ctx, name, d.bytes, &memory, err);
    if (!rc && d.memory)
        rc = stitch__memory_write(w->ctx, memory, 0, d.memory, (size_t)d.bytes, name, err);
    else if (!rc)
        rc = copy_file(w, scope, &d, memory, name, err);
    if (!rc)
        rc = stitch__memory_freeze(w->ctx, memory, name, err);
    if (!rc)
        rc = stitch__worker_call(w, scope, &q, memory, NULL, &r, err);
    if (memory >= 0)
        close(memory);
    return rc;
}

static int send_output(stitch__worker *w, const stitch__scope *scope, int set, size_t index, stitch_error **err)
{
    stitch__export *e = &w->exports[set][index];
    stitch__request q = {.op = STITCH__OP_WORKER_OUTPUT, .tensor = index, .bytes = w->infos[index].bytes, .set = set};
    stitch__reply r;
    int rc;

    if (!stitch__export_make(w->dev, (size_t)w->infos[index].bytes, w->stream, e))
        return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "no memory can be shared");
    rc = stitch__worker_call(w, scope, &q, e->fd, NULL, &r, err);
    close(e->fd);
    e->fd = -1;
    return rc;
}

static int fetch_outputs(stitch__worker *w, const char *why, stitch_error **err)
{
    close_exports(w);
    w->unshared = stitch__strdup(w->ctx, why);
    return w->unshared ? STITCH_OK : stitch__err_nomem(w->ctx, err);
}

/* Outputs in device memory that both processes map: what the program writes is here without a copy through the host.
 * Where that cannot be done, all of them are fetched. Only a worker that is lost is an error. */
static int share_outputs(stitch__worker *w, const stitch__scope *scope, stitch_error **err)
{
    stitch_error *why = NULL;
    int rc = STITCH_OK;

    if (w->dev->info.simulated)
        return fetch_outputs(w, "the device is simulated", err);
    if (w->dev->drv->StreamCreate(&w->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        w->stream = NULL;
        rc = STITCH_E_UNSUPPORTED;
    } else if (w->dev->drv->EventCreate(&w->copied, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        w->copied = NULL;
        rc = STITCH_E_UNSUPPORTED;
    }
    for (int set = 0; !rc && set < STITCH__SETS; set++) {
        w->exports[set] = stitch__calloc(w->ctx, w->count + 1, sizeof(**w->exports));
        if (!w->exports[set])
            return stitch__err_nomem(w->ctx, err);
        for (size_t i = 0; i < w->count; i++)
            w->exports[set][i].fd = -1;
        for (size_t i = 0; !rc && i < w->count; i++)
            if (w->infos[i].role == STITCH_TENSOR_OUTPUT)
                rc = send_output(w, scope, set, i, &why);
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

/* Memory that outputs come through, where they are not shared. The worker can write whatever it likes into it, and at
 * any time: it is read once, by a call and not through a mapping, and what was read is what is compared. */
static int start(stitch__worker *w, const stitch__scope *scope, stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_START};
    stitch__reply r;
    uint64_t total = 0;
    int rc;

    for (size_t i = 0; !w->stream && i < w->count && total < 2u * CHUNK; i++)
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
    if (!w->staging)
        return stitch__err_nomem(w->ctx, err);
    q.share_bytes = w->share_bytes;
    return stitch__worker_call(w, scope, &q, w->share, NULL, &r, err);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static int worker_load(void *self, const stitch__scope *scope, const stitch__load *how, int *code, stitch_error **why,
                       stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_LOAD, .load = *how};
    const stitch__blame blame = {code, why};
    stitch__reply r;
    return stitch__worker_call(self, scope, &q, -1, &blame, &r, err);
}

static int worker_prepare(void *self, const stitch__scope *scope, stitch__prepared *out, int *code, stitch_error **why,
                          stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_PREPARE};
    const stitch__blame blame = {code, why};
    stitch__reply r;
    int rc = stitch__worker_call(self, scope, &q, -1, &blame, &r, err);
    memset(out, 0, sizeof(*out));
    if (!rc && !*code)
        *out = r.prepared;
    return rc;
}

static int worker_fill_weights(void *self, const stitch__scope *scope, uint64_t seed, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_FILL_WEIGHTS, .seed = seed};
    stitch__reply r;
    return stitch__worker_call(self, scope, &q, -1, NULL, &r, err);
}

static int worker_fill_inputs(void *self, const stitch__scope *scope, uint64_t seed, const stitch__variant *variant,
                              stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_FILL_INPUTS, .seed = seed, .has_variant = variant != NULL};
    stitch__reply r;
    if (variant) {
        q.scale = variant->scale;
        if (variant->dist)
            q.dist = *variant->dist;
    }
    return stitch__worker_call(self, scope, &q, -1, NULL, &r, err);
}

static int worker_clear_states(void *self, const stitch__scope *scope, int set, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_CLEAR_STATES, .set = set};
    const stitch__worker *w = self;
    stitch__reply r;

    for (size_t i = 0; i < w->count; i++)
        if (w->infos[i].role == STITCH_TENSOR_STATE)
            return stitch__worker_call(self, scope, &q, -1, NULL, &r, err);
    return STITCH_OK; /* not worth a round trip */
}

static int wrong_hashes(stitch__worker *w, size_t sent, size_t wanted, stitch_error **err)
{
    stitch__worker_lose(w, "it sent a wrong number of hashes");
    return stitch__err(w->ctx, err, STITCH_E_IO, "the worker sent %zu hashes for %zu tensors", sent, wanted);
}

static int worker_hash(void *self, const stitch__scope *scope, uint64_t seed, bool inputs, uint64_t *out,
                       stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_HASH, .seed = seed, .inputs = inputs};
    stitch__worker *w = self;
    stitch__reply r;
    int rc = stitch__worker_call(w, scope, &q, -1, NULL, &r, err);

    if (!rc && r.hash_count != w->count)
        return wrong_hashes(w, r.hash_count, w->count, err);
    for (size_t i = 0; !rc && i < w->count; i++)
        out[i] = stitch__reply_hash(&r, w->channel.payload, i);
    return rc;
}

static int worker_run(void *self, const stitch__scope *scope, const stitch__run *run, int *code, stitch_error **why,
                      stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_RUN, .run = *run};
    const stitch__blame blame = {code, why};
    stitch__reply r;
    return stitch__worker_call(self, scope, &q, -1, &blame, &r, err);
}

static int worker_timed_run(void *self, const stitch__scope *scope, const stitch__run *run, double *us, int *code,
                            stitch_error **why, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_TIMED_RUN, .run = *run};
    const stitch__blame blame = {code, why};
    stitch__reply r;
    int rc = stitch__worker_call(self, scope, &q, -1, &blame, &r, err);
    *us = rc || *code ? 0 : r.us;
    return rc;
}

static int worker_keep(void *self, const stitch__scope *scope, uint32_t count, stitch_error **err)
{
    stitch__request q = {.op = STITCH__OP_WORKER_KEEP, .kept = count};
    stitch__worker *w = self;
    stitch__reply r;
    int rc;

    if (w->kept_offsets)
        return stitch__err(w->ctx, err, STITCH_E_STATE, "there is room for outputs already");
    w->kept_offsets = stitch__calloc(w->ctx, w->count + 1, sizeof(*w->kept_offsets));
    if (!w->kept_offsets)
        return stitch__err_nomem(w->ctx, err);
    w->kept_bytes = stitch__kept_layout(w->iface, w->kept_offsets);
    if (w->stream) {
        q.bytes = w->kept_bytes * count;
        if (!q.bytes || !stitch__export_make(w->dev, (size_t)q.bytes, w->stream, &w->kept))
            return stitch__err(w->ctx, err, STITCH_E_UNSUPPORTED, "no memory can be shared");
    }
    rc = stitch__worker_call(w, scope, &q, w->kept.fd, NULL, &r, err);
    if (w->kept.fd >= 0)
        close(w->kept.fd);
    w->kept.fd = -1;
    return rc;
}

static int worker_timed_block(void *self, const stitch__scope *scope, const stitch__timed_block *block, double *us,
                              uint64_t *hashes, int *code, stitch_error **why, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_TIMED_BLOCK, .block = *block};
    const stitch__blame blame = {code, why};
    stitch__worker *w = self;
    stitch__reply r;
    int rc = stitch__worker_call(w, scope, &q, -1, &blame, &r, err);

    if (rc || *code)
        return rc;
    if (r.hash_count != block->count * w->count)
        return wrong_hashes(w, r.hash_count, block->count * w->count, err);
    memcpy(us, r.times, block->count * sizeof(*us));
    for (size_t i = 0; i < r.hash_count; i++)
        hashes[i] = stitch__reply_hash(&r, w->channel.payload, i);
    return STITCH_OK;
}

/* The facts are a stranger's: read with bounds (facts_json.c), and nothing is decided by them. */
static int worker_profile(void *self, const stitch__scope *scope, const stitch__run *run,
                          const stitch__collect_options *options, stitch__facts **out, int *code, stitch_error **why,
                          stitch_error **err)
{
    stitch__request q = {
        .op = STITCH__OP_WORKER_PROFILE, .run = *run, .parts = options->parts, .metrics = (uint32_t)options->set};
    const stitch__blame blame = {code, why};
    stitch__worker *w = self;
    stitch__reply r;
    stitch__buf names;
    int64_t start;
    int rc;

    *out = NULL;
    stitch__buf_init(&names, w->ctx);
    for (size_t i = 0; i < options->extra_count; i++)
        stitch__buf_printf(&names, "%s%s", i ? "," : "", options->extra[i]);
    if (names.failed) {
        rc = stitch__err_nomem(w->ctx, err);
        goto out;
    }
    q.text = names.data;
    start = stitch__now_ns();
    rc = stitch__worker_call(w, scope, &q, -1, &blame, &r, err);
    if (rc || *code)
        goto out;
    rc = stitch__facts_read(w->ctx, r.text, strlen(r.text), out, why);
    if (!rc && (*out)->busy_us * 1e3 > (double)(stitch__now_ns() - start))
        rc = stitch__err(w->ctx, why, STITCH_E_FORMAT, "it measured more time than has passed");
    if (rc == STITCH_E_NOMEM) {
        stitch__err_hand_on(err, why);
    } else if (rc) { /* no honest worker sends that */
        stitch__worker_lose(w, "its profile is none");
        stitch__err_prefix(why, "the worker broke the protocol while profiling the program: ");
        stitch__facts_free(*out);
        *out = NULL;
        *code = STITCH_E_FAULT;
        rc = STITCH_OK;
    }
out:
    stitch__buf_free(&names);
    return rc;
}

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
        return w->exports[set][i].ptr;
    return w->kept.ptr + (CUdeviceptr)(set - STITCH__SETS) * w->kept_bytes + w->kept_offsets[i];
}

/* What the program wrote, from memory that it can still write to into memory that it cannot. */
static int copy_outputs(stitch__worker *w, const stitch__scope *scope, int set, const CUdeviceptr *into,
                        CUstream stream, stitch_error **err)
{
    const stitch__driver *drv = w->dev->drv;
    int rc = stitch__worker_alive(w, scope, STITCH__OP_WORKER_FETCH, err);

    for (size_t i = 0; !rc && i < w->count; i++)
        if (w->infos[i].role == STITCH_TENSOR_OUTPUT && w->infos[i].bytes)
            rc = stitch__cu_checkf(
                w->dev, drv->MemcpyDtoDAsync(into[i], written_at(w, set, i), (size_t)w->infos[i].bytes, w->stream), err,
                "copying output %s of a worker", w->infos[i].name);
    if (rc)
        return rc;
    if (!stream) {
        rc = stitch__stream_wait(w->dev, w->stream, scope, "copying outputs of a worker", err);
        return rc ? rc : stitch__worker_alive(w, scope, STITCH__OP_WORKER_FETCH, err);
    }
    rc = stitch__cu_check(w->dev, drv->EventRecord(w->copied, w->stream), err, "copying outputs of a worker");
    return rc ? rc
              : stitch__cu_check(w->dev, drv->StreamWaitEvent(stream, w->copied, 0), err,
                                 "copying outputs of a worker");
}

/* While one piece goes to the device here, the worker brings the next one. */
static int worker_fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                        stitch_error **err)
{
    stitch__worker *w = self;
    stitch__request q = {.op = STITCH__OP_WORKER_FETCH, .set = set}, next = q;
    stitch__reply r;
    int64_t begun = 0, begun_next = 0;
    unsigned number = 0;
    if (w->stream)
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

static int worker_inspect(void *self, const stitch__scope *scope, int *code, stitch_error **why, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_INSPECT};
    const stitch__blame blame = {code, why};
    stitch__reply r;
    return stitch__worker_call(self, scope, &q, -1, &blame, &r, err);
}

static void worker_close(void *self)
{
    stitch__worker_close(self);
}

int stitch__worker_open(stitch__worker *w, const stitch__scope *scope, stitch_task *task, stitch_program *program,
                        stitch__candidate *out, stitch_error **err)
{
    static const stitch__candidate_ops ops = {
        .where = "in a worker",
        .load = worker_load,
        .prepare = worker_prepare,
        .fill_weights = worker_fill_weights,
        .fill_inputs = worker_fill_inputs,
        .clear_states = worker_clear_states,
        .hash = worker_hash,
        .run = worker_run,
        .timed_run = worker_timed_run,
        .keep = worker_keep,
        .timed_block = worker_timed_block,
        .profile = worker_profile,
        .fetch = worker_fetch,
        .inspect = worker_inspect,
        .close = worker_close,
    };
    int rc;

    memset(out, 0, sizeof(*out));
    stitch__worker_close(w);
    w->used = true;
    rc = stitch__device_enter(w->dev, err);
    if (rc)
        return rc;
    rc = take_infos(w, task, err);
    if (!rc)
        rc = send_program(w, scope, task, program, err);
    for (size_t i = 0; !rc && i < w->count; i++)
        rc = send_data(w, scope, task, i, err);
    if (!rc)
        rc = share_outputs(w, scope, err);
    if (!rc)
        rc = start(w, scope, err);
    stitch__device_leave(w->dev);
    if (rc)
        stitch__worker_close(w);
    else
        *out = (stitch__candidate){&ops, w};
    return rc;
}
