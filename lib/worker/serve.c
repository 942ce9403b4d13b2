/* SPDX-License-Identifier: MIT
 *
 * The worker's side: takes a task's interface and a program, runs it as it is told, answers.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stitch/version.h>

#include "cuda/cupti.h"
#include "cuda/guards.h"
#include "worker/protocol.h"

typedef struct server {
    stitch__channel channel;
    const stitch__worker_hooks *hooks;
    stitch_context *ctx;
    stitch__device *dev;
    bool entered;
    CUstream stream;
    stitch__buf sandbox; /* what confines this process */
    /* of the program at hand */
    stitch_task *task;
    stitch_program *program;
    stitch__runner *runner;
    stitch__candidate candidate;
    CUdeviceptr *outputs[STITCH__SETS]; /* memory that the verifier gave for them, until the runner has it */
    /* Room for the outputs of `kept` runs: kept_bytes for each, tensor i of it at kept_offsets[i]. */
    uint32_t kept;
    CUdeviceptr kept_memory;
    uint64_t kept_bytes, *kept_offsets;
    void *share;
    uint64_t share_bytes;
    bool registered, lost;
} server;

/* A request as it is answered. */
typedef struct exchange {
    const stitch__request *q;
    int memory; /* that came with it, -1: none */
    stitch__reply reply;
    stitch__buf text;
    uint64_t *hashes;
    int code;
    stitch_error *why, *err;
} exchange;

/* ---- a program --------------------------------------------------------------------------------------------------- */

static void free_kept(server *s)
{
    if (s->kept_memory)
        stitch__mem_free(s->dev, s->kept_memory);
    s->kept_memory = 0;
    stitch__zero_free(s->kept_offsets);
    s->kept = 0;
}

static void close_program(server *s)
{
    if (s->registered)
        s->dev->drv->MemHostUnregister(s->share);
    s->registered = false;
    stitch__runner_close(s->runner);
    s->runner = NULL;
    for (int set = 0; set < STITCH__SETS; set++) {
        for (size_t i = 0; s->outputs[set] && i < stitch_interface_tensor_count(s->task->iface); i++)
            stitch__mem_free(s->dev, s->outputs[set][i]);
        stitch__zero_free(s->outputs[set]);
    }
    free_kept(s);
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
static int load_program(server *s, const void *data, size_t size, stitch_error **err)
{
    stitch_program_limits limits = STITCH_PROGRAM_LIMITS_INIT;
    int rc;

    limits.source_bytes = limits.json_bytes = limits.file_bytes = limits.workspace_bytes = INT64_MAX;
    limits.steps = limits.launches = UINT32_MAX;
    rc = stitch_program_load_memory(s->ctx, data, size, &limits, &s->program, err);
    return rc ? rc : stitch_program_validate(s->program, s->task->iface, s->dev->info.arch, err);
}

static int do_open(server *s, exchange *x)
{
    uint64_t bytes = x->q->task_bytes + x->q->program_bytes;
    void *data = NULL;
    int rc;

    close_program(s);
    rc = stitch__memory_map(s->ctx, x->memory, bytes, false, "the program", &data, &x->err);
    if (!rc && !data)
        rc = stitch__err(s->ctx, &x->err, STITCH_E_FORMAT, "the program is empty");
    if (!rc)
        rc = stitch__worker_task_decode(s->ctx, data, (size_t)x->q->task_bytes, &s->task, &x->err);
    if (!rc)
        rc = load_program(s, (const char *)data + x->q->task_bytes, (size_t)x->q->program_bytes, &x->err);
    stitch__memory_unmap(data, bytes);
    if (rc)
        close_program(s);
    return rc;
}

static int tensor_info(server *s, uint64_t index, stitch_tensor_info *info, stitch_error **err)
{
    info->struct_size = sizeof(*info);
    if (!s->task || index > SIZE_MAX || stitch_interface_tensor(s->task->iface, (size_t)index, info))
        return stitch__err(s->ctx, err, STITCH_E_INVALID, "there is no tensor %" PRIu64, index);
    return STITCH_OK;
}

static int do_data(server *s, exchange *x)
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

/* Memory of the verifier for an output, which it then reads without any copy through the host. */
static int do_output(server *s, exchange *x)
{
    const stitch__request *q = x->q;
    stitch_tensor_info info;
    int rc = tensor_info(s, q->tensor, &info, &x->err);

    if (rc)
        return rc;
    if (info.role != STITCH_TENSOR_OUTPUT || q->bytes != info.bytes || s->runner || x->memory < 0)
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID,
                           "%s is no output of %" PRIu64 " bytes, or it comes too late", info.name, q->bytes);
    if (!s->outputs[q->set])
        s->outputs[q->set] =
            stitch__calloc(s->ctx, stitch_interface_tensor_count(s->task->iface) + 1, sizeof(CUdeviceptr));
    if (!s->outputs[q->set])
        return stitch__err_nomem(s->ctx, &x->err);
    if (s->outputs[q->set][q->tensor])
        return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "there is memory for %s already", info.name);
    return stitch__guards_import(s->dev, x->memory, (size_t)info.bytes, info.name, &s->outputs[q->set][q->tensor],
                                 &x->err);
}

static int do_start(server *s, exchange *x)
{
    stitch__runner_options options = {.stream = s->stream, .outputs = {s->outputs[0], s->outputs[1]}};
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

static int do_hash(server *s, exchange *x, const stitch__scope *scope)
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

static CUdeviceptr kept_at(const server *s, uint32_t run, size_t tensor)
{
    return s->kept_memory + run * s->kept_bytes + s->kept_offsets[tensor];
}

static int do_fetch(server *s, exchange *x)
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
static int do_keep(server *s, exchange *x)
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
    if (!bytes || (q->bytes && (q->bytes != bytes || x->memory < 0)))
        return stitch__err(s->ctx, &x->err, STITCH_E_INVALID,
                           "the outputs of %u runs take %" PRIu64 " bytes, not %" PRIu64, q->kept, bytes, q->bytes);
    rc = q->bytes ? stitch__guards_import(s->dev, x->memory, (size_t)bytes, "kept outputs", &s->kept_memory, &x->err)
                  : stitch__mem_alloc(s->dev, (size_t)bytes, "kept outputs", &s->kept_memory, &x->err);
    s->kept = rc ? 0 : q->kept;
    return rc;
}

static int do_timed_block(server *s, exchange *x, const stitch__scope *scope)
{
    const stitch__timed_block *b = &x->q->block;
    size_t tensors = stitch_interface_tensor_count(s->task->iface);
    CUdeviceptr *into = stitch__calloc(s->ctx, tensors + 1, sizeof(*into));
    stitch__run run = b->run;
    int rc = STITCH_OK;

    x->hashes = stitch__calloc(s->ctx, b->count * tensors + 1, sizeof(*x->hashes));
    if (!into || !x->hashes)
        rc = stitch__err_nomem(s->ctx, &x->err);
    else if (b->count > s->kept)
        rc = stitch__err(s->ctx, &x->err, STITCH_E_STATE, "there is room for the outputs of %u runs, not of %u",
                         s->kept, b->count);
    for (uint32_t k = 0; !rc && !x->code && k < b->count; k++) {
        run.seed = b->seeds[k];
        rc =
            s->candidate.ops->timed_run(s->candidate.self, scope, &run, &x->reply.times[k], &x->code, &x->why, &x->err);
        for (size_t i = 0; i < tensors; i++)
            into[i] = kept_at(s, k, i);
        if (!rc && !x->code)
            rc = stitch__runner_keep(s->runner, scope, run.set, into, b->keys[k], x->hashes + k * tensors, &x->err);
    }
    stitch_free(into);
    if (!rc && s->hooks && s->hooks->hashes)
        s->hooks->hashes(x->hashes, b->count * tensors);
    x->reply.time_count = b->count;
    x->reply.hash_count = b->count * tensors;
    return rc;
}

/* The names in a request, in a copy of its text that lasts until the answer is written. */
static int split_names(server *s, exchange *x, const char **names, size_t *count)
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
static int put_facts(server *s, exchange *x, stitch__facts *f)
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

static int do_profile(server *s, exchange *x, const stitch__scope *scope)
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

static int do_candidate(server *s, exchange *x)
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
        return ops->timed_run(self, &scope, &q->run, &x->reply.us, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_KEEP: return do_keep(s, x);
    case STITCH__OP_WORKER_TIMED_BLOCK: return do_timed_block(s, x, &scope);
    case STITCH__OP_WORKER_PROFILE: return do_profile(s, x, &scope);
    case STITCH__OP_WORKER_INSPECT: return ops->inspect(self, &scope, &x->code, &x->why, &x->err);
    case STITCH__OP_WORKER_FETCH: return do_fetch(s, x);
    default: return stitch__err(s->ctx, &x->err, STITCH_E_UNSUPPORTED, "request %d is not known", q->op);
    }
}

static int handle(server *s, exchange *x)
{
    switch (x->q->op) {
    case STITCH__OP_WORKER_PING: return STITCH_OK;
    case STITCH__OP_WORKER_OPEN: return do_open(s, x);
    case STITCH__OP_WORKER_DATA: return do_data(s, x);
    case STITCH__OP_WORKER_OUTPUT: return do_output(s, x);
    case STITCH__OP_WORKER_START: return do_start(s, x);
    case STITCH__OP_WORKER_CLOSE: close_program(s); return STITCH_OK;
    case STITCH__OP_WORKER_HELLO: return stitch__err(s->ctx, &x->err, STITCH_E_STATE, "greeted twice");
    case STITCH__OP_WORKER_PROBE:
        if (!s->hooks || !s->hooks->probe)
            return stitch__err(s->ctx, &x->err, STITCH_E_UNSUPPORTED, "this worker answers no probes");
        s->hooks->probe(x->q->text, &x->text);
        x->reply.text = x->text.data ? x->text.data : "";
        return STITCH_OK;
    default: return do_candidate(s, x);
    }
}

/* ---- answering --------------------------------------------------------------------------------------------------- */

/* The advice of lib/cuda is for a process that lost its own context; here that is the worker's loss. */
static char *without_advice(const stitch_context *ctx, const char *message)
{
    static const char advice[] = "; the GPU context of this process is lost, only a new process can use the GPU again";
    const char *at = strstr(message, advice);
    stitch__buf b;

    stitch__buf_init(&b, ctx);
    stitch__buf_append(&b, message, at ? (size_t)(at - message) : strlen(message));
    if (at)
        stitch__buf_puts(&b, at + sizeof(advice) - 1);
    return stitch__buf_take(&b, NULL);
}

static int send_reply(server *s, exchange *x, int rc, int64_t start)
{
    stitch_error *from = rc ? x->err : x->code ? x->why : NULL;
    char *message = from ? without_advice(s->ctx, stitch_error_message(from)) : NULL;
    stitch__buf b;
    int sent;

    x->reply.op = x->q->op;
    x->reply.rc = rc;
    x->reply.code = rc ? STITCH_OK : x->code;
    x->reply.domain = from ? stitch_error_domain(from) : STITCH_DOMAIN_NONE;
    x->reply.native = from ? stitch_error_native(from) : 0;
    x->reply.message = message;
    x->reply.details = from ? stitch_error_details(from) : NULL;
    x->reply.busy_ns = (uint64_t)(stitch__now_ns() - start);
    stitch__buf_init(&b, s->ctx);
    stitch__reply_encode(&x->reply, x->hashes, &b);
    sent = stitch__channel_send(&s->channel, NULL, x->q->op, &b, -1, "answering", NULL);
    stitch__buf_free(&b);
    stitch_free(message);
    stitch_free(x->hashes);
    stitch__buf_free(&x->text);
    stitch_error_free(x->why);
    stitch_error_free(x->err);
    if (x->memory >= 0)
        close(x->memory);
    return sent;
}

static int answer(server *s, int op, int memory)
{
    stitch__request q;
    exchange x = {.q = &q, .memory = memory};
    int64_t start = stitch__now_ns();
    int rc;

    stitch__buf_init(&x.text, s->ctx);
    rc = stitch__request_decode(op, s->channel.payload, s->channel.bytes, &q, &x.err);
    if (!rc)
        rc = handle(s, &x);
    /* After a fault, or while the device still runs the program, this process is of no more use. */
    s->lost = rc == STITCH_E_FAULT || x.code == STITCH_E_FAULT || (s->runner && stitch__runner_abandoned(s->runner));
    return send_reply(s, &x, rc, start);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* The verifier is gone: so is this process, whatever it is doing. */
static void *watch(void *unused)
{
    struct pollfd p = {STITCH__WORKER_FD, POLLRDHUP, 0};
    (void)unused;
    while (poll(&p, 1, -1) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static int start_watch(server *s, stitch_error **err)
{
    pthread_attr_t attributes;
    pthread_t thread;
    int failed = pthread_attr_init(&attributes);

    if (!failed) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        failed = pthread_create(&thread, &attributes, watch, NULL);
        pthread_attr_destroy(&attributes);
    }
    return failed ? stitch__err(s->ctx, err, STITCH_E_IO, "no thread to watch the verifier: error %d", failed)
                  : STITCH_OK;
}

static void add_folder_of(stitch__buf *b, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (slash && slash > path)
        stitch__buf_printf(b, "%.*s\n", (int)(slash - path), path);
}

/* Of a library that may be a link to another folder's, and is opened later than the others. */
static void add_folders_of(stitch__buf *b, const char *path)
{
    char *real = path && *path ? realpath(path, NULL) : NULL;
    add_folder_of(b, path);
    add_folder_of(b, real);
    free(real);
}

/* What the CUDA libraries and the compiler may still have to read. */
static void readable_folders(server *s, const stitch__request *q, stitch__buf *b)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    char *driver = stitch__driver_find(s->ctx);
    stitch__buf found;

    if (*q->cache_dir)
        stitch__buf_printf(b, "%s\n", q->cache_dir);
    if (*q->cuda_path)
        stitch__buf_printf(b, "%s\n", q->cuda_path);
    while (path && *path) {
        size_t len = strcspn(path, ":");
        stitch__buf_printf(b, "%.*s\n", (int)len, path);
        path += len + (path[len] == ':');
    }
    add_folder_of(b, driver);
    stitch_free(driver);
    add_folder_of(b, getenv("STITCH_CUDA_DRIVER"));
    add_folder_of(b, getenv("STITCH_NVRTC"));
    add_folder_of(b, getenv("STITCH_CUBLASLT"));
    add_folders_of(b, getenv("STITCH_CUPTI")); /* opened only when it is asked for: nothing of it is there before */
    stitch__buf_init(&found, s->ctx);
    stitch__toolkit_folders(s->ctx, false, &found);
    stitch__toolkit_folders(s->ctx, true, &found);
    for (const char *line = found.data; line && *line;) {
        size_t len = strcspn(line, "\n");
        const char *python = strstr(line, "/lib/python3");
        /* Wheels are looked for with a pattern, which lists the folders above them, too. */
        if (python && python < line + len)
            stitch__buf_printf(b, "%.*s/lib\n", (int)(python - line), line);
        else
            stitch__buf_printf(b, "%.*s\n", (int)len, line);
        line += len + (line[len] == '\n');
    }
    stitch__buf_free(&found);
}

static int open_device(server *s, stitch_error **err)
{
    stitch__device *dev;
    int rc = stitch__device_get(s->ctx, &s->dev, err), least = 0, greatest = 0;

    if (!rc)
        rc = stitch__device_enter(s->dev, err);
    if (rc)
        return rc;
    s->entered = true;
    dev = s->dev;
    /* The caller's own work goes first where the device schedules by priority. */
    if (dev->drv->StreamCreateWithPriority && dev->drv->CtxGetStreamPriorityRange &&
        dev->drv->CtxGetStreamPriorityRange(&least, &greatest) == CUDA_SUCCESS)
        STITCH__CU(dev->drv->StreamCreateWithPriority(&s->stream, CU_STREAM_NON_BLOCKING, least));
    else
        STITCH__CU(dev->drv->StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    /* The library's own kernels: compiled and loaded before anything of a stranger's is here. */
    rc = stitch__generate_warm(dev);
    if (!rc)
        rc = stitch__hash_warm(dev);
    if (rc)
        rc = stitch__err(s->ctx, err, rc, "the library's own kernels cannot be compiled or loaded in a worker");
out:
    return rc;
}

static int open_all(server *s, const stitch__request *q, stitch_error **err)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch__buf folders;
    int rc;

    if (q->protocol != STITCH__WORKER_PROTOCOL)
        return stitch__err(NULL, err, STITCH_E_UNSUPPORTED, "the worker speaks protocol %d, the library %" PRIu32,
                           STITCH__WORKER_PROTOCOL, q->protocol);
    options.device = q->device;
    options.cache_dir = q->cache_dir;
    options.cuda_path = *q->cuda_path ? q->cuda_path : NULL;
    rc = stitch_context_new(&s->ctx, &options, err);
    if (rc)
        return rc;
    stitch__buf_init(&folders, s->ctx);
    readable_folders(s, q, &folders);
    if (folders.failed)
        rc = stitch__err_nomem(s->ctx, err);
    if (!rc && q->sandbox == STITCH__SANDBOX_FULL)
        stitch__sandbox_files(folders.data ? folders.data : "", &s->sandbox);
    if (!rc)
        rc = open_device(s, err);
    /* The simulator knows the bounds of every buffer by itself. */
    if (!rc && !s->dev->info.simulated && !stitch__guards_enable(s->dev))
        stitch__buf_puts(&s->sandbox, s->sandbox.len ? ", no guarded memory" : "no guarded memory");
    if (!rc && q->sandbox == STITCH__SANDBOX_LATE) {
        stitch__sandbox_files(folders.data ? folders.data : "", &s->sandbox);
        stitch__buf_puts(&s->sandbox, " (one thread)");
    }
    if (!rc)
        rc = start_watch(s, err);
    if (!rc && q->sandbox != STITCH__SANDBOX_NONE)
        stitch__sandbox_calls(&s->sandbox);
    stitch__buf_free(&folders);
    return rc;
}

static int greet(server *s)
{
    stitch__request q;
    exchange x = {.q = &q, .memory = -1};
    int64_t start = stitch__now_ns();
    CUuuid uuid;
    int op, rc = stitch__channel_receive(&s->channel, NULL, &op, NULL, "greeting", NULL);

    if (rc)
        return rc;
    rc = stitch__request_decode(op, s->channel.payload, s->channel.bytes, &q, &x.err);
    if (!rc)
        rc = open_all(s, &q, &x.err);
    if (!rc) {
        x.reply.protocol = STITCH__WORKER_PROTOCOL;
        x.reply.pid = (uint32_t)getpid();
        x.reply.version = stitch_version_string();
        x.reply.arch = s->dev->info.arch;
        x.reply.name = s->dev->info.name;
        x.reply.sandbox = s->sandbox.data ? s->sandbox.data : "";
        if (s->dev->drv->DeviceGetUuid && s->dev->drv->DeviceGetUuid(&uuid, s->dev->ordinal) == CUDA_SUCCESS)
            memcpy(x.reply.uuid, uuid.bytes, sizeof(x.reply.uuid));
    }
    int sent = send_reply(s, &x, rc, start);
    return rc ? rc : sent;
}

/* What a profile begins with, and mostly while nobody waits for it yet: a fifth of a second. Switches nothing on. */
static void open_profiling(server *s)
{
    const stitch__cupti *cupti;
    if (!s->dev->info.simulated && stitch__cupti_get(s->ctx, &cupti, NULL) == STITCH_OK)
        (void)stitch__cupti_open_profiler(s->ctx, cupti, NULL); /* the profile says if it cannot be had */
}

static void close_all(server *s)
{
    close_program(s);
    if (s->stream)
        s->dev->drv->StreamDestroy(s->stream);
    if (s->entered)
        stitch__device_leave(s->dev);
    stitch__channel_close(&s->channel);
    stitch__buf_free(&s->sandbox);
    stitch_context_free(s->ctx);
}

int stitch__worker_main(const stitch__worker_hooks *hooks)
{
    server s = {.channel = {.fd = STITCH__WORKER_FD, .server = true}, .hooks = hooks};
    int kind = 0, op, memory, rc;
    socklen_t len = sizeof(kind);

    if (getsockopt(STITCH__WORKER_FD, SOL_SOCKET, SO_TYPE, &kind, &len) != 0 || kind != SOCK_STREAM)
        return 2; /* started by hand */
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, STITCH__WORKER_FD + 1, ~0u, 0);
#endif
    stitch__sandbox_limits(&s.sandbox);
    (void)setpriority(PRIO_PROCESS, 0, 5);
    rc = greet(&s);
    if (!rc && getenv(STITCH__WORKER_COUNTS))
        open_profiling(&s);
    while (!rc && !s.lost) {
        rc = stitch__channel_receive(&s.channel, NULL, &op, &memory, "waiting for a request", NULL);
        if (!rc)
            rc = answer(&s, op, memory);
    }
    if (s.lost)
        _exit(0); /* tidying up would ask a driver that no longer answers */
    close_all(&s);
    return 0;
}
