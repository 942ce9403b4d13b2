/* SPDX-License-Identifier: MIT
 *
 * A program in a worker: sending it there, and the candidate's operations over the wire; those about memory for
 * outputs are in outputs.c.
 */
#include <unistd.h>

#include "worker/client.h"

enum {
    CLOSE_MS = 1000,
    READ_CHUNK = 4 << 20,
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void stitch__worker_close(stitch__worker *w)
{
    /* What one that idles has, its process was told to keep. */
    bool keep = w->dev && !w->lost && (!w->open || stitch__buffers_spare(w));
    const stitch__request q = {.op = STITCH__OP_WORKER_CLOSE, .keep_buffers = keep};

    if (w->open && !w->lost) {
        stitch__scope scope = stitch__scope_make(NULL, NULL, CLOSE_MS);
        int64_t start = 0;
        keep = stitch__worker_send(w, &scope, &q, -1, NULL, &start, NULL) == STITCH_OK && keep;
        w->closing = w->lost ? 0 : start;
    }
    w->open = false;
    stitch__outputs_close(w, keep);
    stitch__zero_free(w->infos);
    w->count = 0;
}

void stitch__worker_settle(stitch__worker *w)
{
    static const stitch__request q = {.op = STITCH__OP_WORKER_CLOSE};
    stitch__scope scope = stitch__scope_make(NULL, NULL, CLOSE_MS);
    int64_t start = w->closing;
    stitch__reply r;

    w->closing = 0;
    if (start && !w->lost && stitch__worker_receive(w, &scope, &q, start, NULL, &r, NULL) && !w->lost)
        stitch__worker_lose(w, "it could not close a program");
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

static int start(stitch__worker *w, const stitch__scope *scope, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_START, .share_bytes = w->share_bytes};
    stitch__reply r;
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

static int worker_timed_run(void *self, const stitch__scope *scope, const stitch__run *run, stitch__took *took,
                            int *code, stitch_error **why, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_TIMED_RUN, .run = *run};
    const stitch__blame blame = {code, why};
    stitch__reply r;
    int rc = stitch__worker_call(self, scope, &q, -1, &blame, &r, err);
    *took = rc || *code ? (stitch__took){0} : r.took[0];
    return rc;
}

static int worker_run_block(void *self, const stitch__scope *scope, const stitch__run_block *block, stitch__took *took,
                            uint64_t *hashes, int *code, stitch_error **why, stitch_error **err)
{
    const stitch__request q = {.op = STITCH__OP_WORKER_RUN_BLOCK, .block = *block};
    const stitch__blame blame = {code, why};
    stitch__worker *w = self;
    stitch__reply r;
    int rc = stitch__worker_call(w, scope, &q, -1, &blame, &r, err);

    if (rc || *code)
        return rc;
    if (r.hash_count != block->count * w->count)
        return wrong_hashes(w, r.hash_count, block->count * w->count, err);
    memcpy(took, r.took, block->count * sizeof(*took));
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

int stitch__worker_open_beside(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope, stitch_task *task,
                               stitch_program *program, stitch__candidate *out, stitch_error **err)
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
        .run_block = worker_run_block,
        .keep = stitch__outputs_keep,
        .profile = worker_profile,
        .fetch = stitch__outputs_fetch,
        .inspect = worker_inspect,
        .close = worker_close,
    };
    int rc;

    memset(out, 0, sizeof(*out));
    if (!w->lost && stitch__buffers_foreign(w, beside))
        w->open = true; /* it has to give them back */
    stitch__worker_close(w);
    w->used = true;
    rc = stitch__device_enter(w->dev, err);
    if (rc)
        return rc;
    w->iface = task->iface;
    rc = stitch__task_infos(w->ctx, task, &w->infos, &w->count, err);
    if (!rc)
        rc = send_program(w, scope, task, program, err);
    for (size_t i = 0; !rc && i < w->count; i++)
        rc = send_data(w, scope, task, i, err);
    if (!rc)
        rc = stitch__outputs_share(w, beside, scope, err);
    if (!rc)
        rc = stitch__outputs_stage(w, err);
    if (!rc)
        rc = start(w, scope, err);
    stitch__device_leave(w->dev);
    if (rc)
        stitch__worker_close(w);
    else
        *out = (stitch__candidate){&ops, w};
    return rc;
}

int stitch__worker_open(stitch__worker *w, const stitch__scope *scope, stitch_task *task, stitch_program *program,
                        stitch__candidate *out, stitch_error **err)
{
    return stitch__worker_open_beside(w, NULL, scope, task, program, out, err);
}
