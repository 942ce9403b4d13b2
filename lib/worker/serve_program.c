/* SPDX-License-Identifier: MIT
 *
 * What a worker does about the program at hand: takes it and its data, runs it, keeps and hands over its outputs,
 * profiles it.
 */
#include "cuda/guards.h"
#include "worker/serve.h"

/* ---- a program --------------------------------------------------------------------------------------------------- */

static void free_kept(stitch__server *s)
{
    if (s->kept_memory && !s->kept_shared)
        stitch__mem_free(s->dev, s->kept_memory);
    s->kept_memory = 0;
    stitch__zero_free(s->kept_offsets);
    s->kept = 0;
}

static void release_buffers(stitch__server *s, bool keep)
{
    for (size_t i = 0; i < s->buffer_count; i++) {
        s->buffers[i].used = false;
        if (!keep && s->buffers[i].ptr)
            stitch__mem_free(s->dev, s->buffers[i].ptr);
    }
    if (keep)
        return;
    stitch__zero_free(s->buffers);
    s->buffer_count = s->buffer_cap = 0;
}

void stitch__serve_close_program(stitch__server *s, bool keep_buffers)
{
    if (s->registered)
        s->dev->drv->MemHostUnregister(s->share);
    s->registered = false;
    stitch__runner_close(s->runner);
    s->runner = NULL;
    for (int set = 0; set < STITCH__SETS; set++)
        stitch__zero_free(s->places[set]);
    free_kept(s);
    release_buffers(s, keep_buffers);
    memset(&s->candidate, 0, sizeof(s->candidate));
    stitch__memory_unmap(s->share, s->share_bytes);
    s->share = NULL;
    s->share_bytes = 0;
    stitch_program_free(s->program);
    s->program = NULL;
    stitch_task_free(s->task);
    s->task = NULL;
}

/* The verifier has checked it against its own limits. */
static int load_program(stitch__server *s, const void *data, size_t size, stitch_error **err)
{
    stitch_program_limits limits = STITCH_PROGRAM_LIMITS_INIT;
    int rc;

    limits.source_bytes = limits.json_bytes = limits.file_bytes = limits.workspace_bytes = INT64_MAX;
    limits.steps = limits.launches = UINT32_MAX;
    rc = stitch_program_load_memory(s->ctx, data, size, &limits, &s->program, err);
    return rc ? rc : stitch_program_validate(s->program, s->task->iface, s->dev->info.arch, err);
}

static int do_open(stitch__server *s, stitch__exchange *x)
{
    uint64_t bytes = x->q->task_bytes + x->q->program_bytes;
    void *data = NULL;
    int rc;

    stitch__serve_close_program(s, true);
    rc = stitch__memory_map(s->ctx, x->memory, bytes, false, "the program", &data, &x->err);
    if (!rc && !data)
        rc = stitch__err(s->ctx, &x->err, STITCH_E_FORMAT, "the program is empty");
    if (!rc)
        rc = stitch__worker_task_decode(s->ctx, data, (size_t)x->q->task_bytes, &s->task, &x->err);
    if (!rc)
        rc = load_program(s, (const char *)data + x->q->task_bytes, (size_t)x->q->program_bytes, &x->err);
    stitch__memory_unmap(data, bytes);
    if (rc)
        stitch__serve_close_program(s, true);
    return rc;
}

static int tensor_info(stitch__server *s, uint64_t index, stitch_tensor_info *info, stitch_error **err)
{
    info->struct_size = sizeof(*info);
    if (!s->task || index > SIZE_MAX || stitch_interface_tensor(s->task->iface, (size_t)index, info))
        return stitch__err(s->ctx, err, STITCH_E_INVALID, "there is no tensor %" PRIu64, index);
    return STITCH_OK;
}

static int do_data(stitch__server *s, stitch__exchange *x)
{
    stitch_tensor_info info;
    void *data = NULL;
    int rc = tensor_info(s, x->q->tensor, &info, &x->err);

    if (!rc && s->runner)
        rc = stitch__err(s->ctx, &x->err, STITCH_E_STATE, "data of %s comes too late", info.name);
    if (!rc)
        rc = stitch__memory_map(s->ctx, x->memory, x->q->bytes, false, info.name, &data, &x->err);
    if (!rc)
        rc = stitch_task_set_data(s->task, info.name, data ? data : "", x->q->bytes, &x->err);
    stitch__memory_unmap(data, x->q->bytes);
    return rc;
}

/* A buffer in device memory of the verifier's: the one behind the descriptor that came, or one that a program before
 * this one had. What that left in it is cleared. */
static int take_buffer(stitch__server *s, stitch__exchange *x, uint64_t bytes, const char *name, CUdeviceptr *out)
{
    const stitch__request *q = x->q;
    stitch__mapped *b;
    int rc;

    if (stitch__grow(s->ctx, &s->buffers, &s->buffer_cap, q->buffer + (size_t)1, sizeof(*s->buffers)))
        return stitch__err_nomem(s->ctx, &x->err);
    for (; s->buffer_count <= q->buffer; s->buffer_count++)
        s->buffers[s->buffer_count] = (stitch__mapped){.ptr = 0};
    b = &s->buffers[q->buffer];
    if (x->memory < 0 ? !b->ptr || b->used || b->bytes != bytes : b->ptr != 0)
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID,
                           "buffer %u for %s is in use, of another size, or there is none", q->buffer, name);
    if (x->memory < 0)
        rc = stitch__guards_renew(s->dev, b->ptr, name, &x->err);
    else
        rc = stitch__guards_import(s->dev, x->memory, (size_t)bytes, name, (CUdeviceptr)q->wanted, &b->ptr, &x->err);
    if (rc)
        return rc;
    b->bytes = bytes;
    b->used = true;
    *out = b->ptr;
    return STITCH_OK;
}

/* Memory of the verifier's for an output, which it then reads without any copy through the host, or for an input. */
static int do_place(stitch__server *s, stitch__exchange *x)
{
    const stitch__request *q = x->q;
    stitch_tensor_info info;
    int rc = tensor_info(s, q->tensor, &info, &x->err);

    if (rc)
        return rc;
    if ((info.role != STITCH_TENSOR_OUTPUT && info.role != STITCH_TENSOR_INPUT) || q->bytes != info.bytes || s->runner)
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID,
                           "%s is no output or input of %" PRIu64 " bytes, or it comes too late", info.name, q->bytes);
    if (!s->places[q->set])
        s->places[q->set] =
            stitch__calloc(s->ctx, stitch_interface_tensor_count(s->task->iface) + 1, sizeof(CUdeviceptr));
    if (!s->places[q->set])
        return stitch__err_nomem(s->ctx, &x->err);
    if (s->places[q->set][q->tensor])
        return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "there is memory for %s already", info.name);
    return take_buffer(s, x, info.bytes, info.name, &s->places[q->set][q->tensor]);
}

static int do_start(stitch__server *s, stitch__exchange *x)
{
    stitch__runner_options options = {.stream = s->stream, .places = {s->places[0], s->places[1]}};
    int rc;

    if (!s->program || s->runner)
        return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "there is no program to start, or it has been started");
    rc = x->q->share_bytes
             ? stitch__memory_map(s->ctx, x->memory, x->q->share_bytes, true, "the outputs", &s->share, &x->err)
             : STITCH_OK;
    if (rc)
        return rc;
    s->share_bytes = x->q->share_bytes;
    /* Pinned memory is copied to at full speed; worth its time only for large outputs. */
    if (s->share_bytes >= 4u << 20 && !s->dev->info.simulated && s->dev->drv->MemHostRegister &&
        s->dev->drv->MemHostUnregister)
        s->registered = s->dev->drv->MemHostRegister(s->share, (size_t)s->share_bytes, 0) == CUDA_SUCCESS;
    if (s->dev->drv->CtxSetLimit) /* no part of L2 is set aside for what a program wants to find again */
        (void)s->dev->drv->CtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0);
    rc = stitch__runner_open(s->task, s->program, s->dev, &options, &s->runner, &x->err);
    if (!rc)
        s->candidate = stitch__runner_candidate(s->runner);
    return rc;
}

/* ---- what a candidate does --------------------------------------------------------------------------------------- */

static int do_hash(stitch__server *s, stitch__exchange *x, const stitch__scope *scope)
{
    size_t count = stitch_interface_tensor_count(s->task->iface);
    int rc;

    x->hashes = stitch__calloc(s->ctx, count + 1, sizeof(*x->hashes));
    if (!x->hashes)
        return stitch__err_nomem(s->ctx, &x->err);
    rc = s->candidate.ops->hash(s->candidate.self, scope, x->q->seed, x->q->inputs, x->hashes, &x->err);
    x->reply.hash_count = rc ? 0 : count;
    return rc;
}

static CUdeviceptr kept_at(const stitch__server *s, uint32_t run, size_t tensor)
{
    return s->kept_memory + run * s->kept_bytes + s->kept_offsets[tensor];
}

static int do_fetch(stitch__server *s, stitch__exchange *x)
{
    const stitch__request *q = x->q;
    stitch_tensor_info info;
    int rc = tensor_info(s, q->tensor, &info, &x->err);

    if (rc)
        return rc;
    if (info.role != STITCH_TENSOR_OUTPUT && info.role != STITCH_TENSOR_STATE)
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID, "%s is no output", info.name);
    if (q->offset > info.bytes || q->bytes > info.bytes - q->offset || q->at > s->share_bytes ||
        q->bytes > s->share_bytes - q->at)
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID, "bytes beyond the end of %s, or of the shared memory",
                           info.name);
    if (!q->bytes)
        return STITCH_OK;
    if (q->set >= STITCH__SETS + (int)s->kept)
        return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "no run has left its %s there", info.name);
    CUdeviceptr from = q->set < STITCH__SETS ? stitch__runner_set(s->runner, q->set)[q->tensor]
                                             : kept_at(s, (uint32_t)(q->set - STITCH__SETS), (size_t)q->tensor);
    return stitch__cu_checkf(s->dev,
                             s->dev->drv->MemcpyDtoH((char *)s->share + q->at, from + q->offset, (size_t)q->bytes),
                             &x->err, "copying output %s", info.name);
}

/* Room for the outputs of so many runs: memory of the verifier's, or of this process where that cannot be shared. */
static int do_keep(stitch__server *s, stitch__exchange *x)
{
    const stitch__request *q = x->q;
    int rc;

    free_kept(s);
    s->kept_offsets =
        stitch__calloc(s->ctx, stitch_interface_tensor_count(s->task->iface) + 1, sizeof(*s->kept_offsets));
    if (!s->kept_offsets)
        return stitch__err_nomem(s->ctx, &x->err);
    s->kept_bytes = stitch__kept_layout(s->task->iface, s->kept_offsets);
    uint64_t bytes = s->kept_bytes * q->kept;
    if (!bytes || (q->bytes && q->bytes != bytes))
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID,
                           "the outputs of %u runs take %" PRIu64 " bytes, not %" PRIu64, q->kept, bytes, q->bytes);
    s->kept_shared = q->bytes > 0;
    rc = s->kept_shared ? take_buffer(s, x, bytes, "kept outputs", &s->kept_memory)
                        : stitch__mem_alloc(s->dev, (size_t)bytes, "kept outputs", &s->kept_memory, &x->err);
    s->kept = rc ? 0 : q->kept;
    return rc;
}

static int do_run_block(stitch__server *s, stitch__exchange *x, const stitch__scope *scope)
{
    const stitch__run_block *b = &x->q->block;
    size_t tensors = stitch_interface_tensor_count(s->task->iface), rows = b->count * tensors;
    CUdeviceptr *into = stitch__calloc(s->ctx, rows + 1, sizeof(*into));
    uint32_t kept = 0;
    int rc = STITCH_OK;

    x->hashes = stitch__calloc(s->ctx, rows + 1, sizeof(*x->hashes));
    for (uint32_t k = 0; k < b->count; k++)
        if (b->runs[k].does & STITCH__RUN_KEPT)
            kept = k + 1;
    if (!into || !x->hashes)
        rc = stitch__err_nomem(s->ctx, &x->err);
    else if (kept > s->kept)
        rc = stitch__err(s->ctx, &x->err, STITCH_E_STATE, "there is room for the outputs of %u runs, not of %u",
                         s->kept, kept);
    for (uint32_t k = 0; !rc && k < kept; k++)
        for (size_t i = 0; i < tensors; i++)
            into[k * tensors + i] = kept_at(s, k, i);
    if (!rc)
        rc = stitch__runner_block(s->runner, scope, b, into, x->reply.took, x->hashes, &x->code, &x->why, &x->err);
    stitch_free(into);
    if (!rc && !x->code && s->hooks && s->hooks->hashes)
        s->hooks->hashes(x->hashes, rows);
    if (!rc && !x->code && s->hooks && s->hooks->times)
        s->hooks->times(x->reply.took, b->count);
    x->reply.run_count = b->count;
    x->reply.hash_count = rows;
    return rc;
}

/* The names in a request, in a copy of its text that lasts until the answer is written. */
static int split_names(stitch__server *s, stitch__exchange *x, const char **names, size_t *count)
{
    char *at;

    *count = 0;
    stitch__buf_puts(&x->text, x->q->text);
    stitch__buf_putc(&x->text, 0);
    if (x->text.failed)
        return stitch__err_nomem(s->ctx, &x->err);
    for (at = x->text.data; *at;) {
        size_t len = strcspn(at, ",");
        bool last = !at[len];
        if (*count == STITCH__FACTS_EXTRA)
            return stitch__err(s->ctx, &x->err, STITCH_E_LIMIT, "more than %d metrics were asked for",
                               STITCH__FACTS_EXTRA);
        at[len] = 0;
        names[(*count)++] = at;
        at += len + (last ? 0 : 1);
    }
    return STITCH_OK;
}

/* What does not fit into a message goes without its last lines of source, which matter least, then without its last
 * kernels. */
static int put_facts(stitch__server *s, stitch__exchange *x, stitch__facts *f)
{
    size_t lines = STITCH__FACTS_LINES;

    for (;;) {
        stitch__buf_truncate(&x->text, 0);
        if (stitch__facts_write(f, &x->text) != STITCH_OK)
            return stitch__err_nomem(s->ctx, &x->err);
        if (x->text.len <= STITCH__WORKER_MAX_FACTS)
            break;
        if (!lines && !f->kernel_count)
            return stitch__err(s->ctx, &x->err, STITCH_E_LIMIT, "the profile is too large for a message");
        if (!lines) {
            f->kernels_left_out += f->kernel_count - f->kernel_count / 2;
            f->kernel_count /= 2;
        }
        lines /= 2;
        for (size_t i = 0; i < f->kernel_count; i++)
            if (f->kernels[i].line_count > lines)
                f->kernels[i].line_count = lines;
    }
    x->reply.text = x->text.data ? x->text.data : "";
    return STITCH_OK;
}

static int do_profile(stitch__server *s, stitch__exchange *x, const stitch__scope *scope)
{
    const char *names[STITCH__FACTS_EXTRA];
    stitch__collect_options options = {.parts = x->q->parts, .set = (int)x->q->metrics, .extra = names};
    stitch__facts *f = NULL;
    int rc = split_names(s, x, names, &options.extra_count);

    if (!rc)
        rc = s->candidate.ops->profile(s->candidate.self, scope, &x->q->run, &options, &f, &x->code, &x->why, &x->err);
    if (!rc && !x->code)
        rc = put_facts(s, x, f);
    stitch__facts_free(f);
    return rc;
}

static int do_candidate(stitch__server *s, stitch__exchange *x)
{
    const stitch__scope scope = {.ctx = s->ctx}; /* the verifier keeps the time */
    const stitch__request *q = x->q;
    const stitch__candidate_ops *ops = s->candidate.ops;
    void *self = s->candidate.self;
    stitch__variant variant = {.scale = q->scale, .dist = q->dist.kind ? &q->dist : NULL};

    if (!ops)
        return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "no program has been started");
    switch (q->op) {
    case STITCH__OP_WORKER_LOAD: return ops->load(self, &scope, &q->load, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_PREPARE: return ops->prepare(self, &scope, &x->reply.prepared, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_FILL_WEIGHTS: return ops->fill_weights(self, &scope, q->seed, &x->err);
    case STITCH__OP_WORKER_FILL_INPUTS:
        return ops->fill_inputs(self, &scope, q->seed, q->has_variant ? &variant : NULL, &x->err);
    case STITCH__OP_WORKER_CLEAR_STATES: return ops->clear_states(self, &scope, q->set, &x->err);
    case STITCH__OP_WORKER_HASH: return do_hash(s, x, &scope);
    case STITCH__OP_WORKER_RUN: return ops->run(self, &scope, &q->run, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_TIMED_RUN:
        return ops->timed_run(self, &scope, &q->run, x->reply.took, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_KEEP: return do_keep(s, x);
    case STITCH__OP_WORKER_RUN_BLOCK: return do_run_block(s, x, &scope);
    case STITCH__OP_WORKER_PROFILE: return do_profile(s, x, &scope);
    case STITCH__OP_WORKER_INSPECT: return ops->inspect(self, &scope, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_FETCH: return do_fetch(s, x);
    default: return stitch__err(s->ctx, &x->err, STITCH_E_UNSUPPORTED, "request %d is not known", q->op);
    }
}

int stitch__serve_program(stitch__server *s, stitch__exchange *x)
{
    switch (x->q->op) {
    case STITCH__OP_WORKER_OPEN: return do_open(s, x);
    case STITCH__OP_WORKER_DATA: return do_data(s, x);
    case STITCH__OP_WORKER_PLACE: return do_place(s, x);
    case STITCH__OP_WORKER_START: return do_start(s, x);
    case STITCH__OP_WORKER_CLOSE: stitch__serve_close_program(s, x->q->keep_buffers); return STITCH_OK;
    default: return do_candidate(s, x);
    }
}
