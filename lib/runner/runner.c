/* SPDX-License-Identifier: MIT
 *
 * The candidate in this process: device memory, an executor, runs between events.
 */
#include "cuda/guards.h"
#include "runner/internal.h"

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool owned_by_set(int role)
{
    return role == STITCH_TENSOR_OUTPUT || role == STITCH_TENSOR_STATE;
}

/* `places`: memory of the caller for outputs and inputs, or NULL. */
static int make_set(stitch__runner *r, int set, const CUdeviceptr *given, const CUdeviceptr *places, stitch_error **err)
{
    char name[128];
    int rc = STITCH_OK;

    r->sets[set] = stitch__calloc(r->ctx, r->count + 1, sizeof(**r->sets));
    r->lent[set] = stitch__calloc(r->ctx, r->count + 1, sizeof(**r->lent));
    if (!r->sets[set] || !r->lent[set])
        return stitch__err_nomem(r->ctx, err);
    if (given) {
        memcpy(r->sets[set], given, r->count * sizeof(*given));
        return STITCH_OK;
    }
    for (size_t i = 0; !rc && i < r->count; i++) {
        if (set && !owned_by_set(r->infos[i].role)) {
            r->sets[set][i] = r->sets[0][i];
            continue;
        }
        if (places && places[i] &&
            (r->infos[i].role == STITCH_TENSOR_OUTPUT || r->infos[i].role == STITCH_TENSOR_INPUT)) {
            r->sets[set][i] = places[i];
            r->lent[set][i] = true;
            continue;
        }
        snprintf(name, sizeof(name), "%.100s%s", r->infos[i].name, set ? " (second run)" : "");
        rc = stitch__mem_alloc(r->dev, (size_t)r->infos[i].bytes, name, &r->sets[set][i], err);
    }
    return rc;
}

/* For the copies of inputs. */
static int take_places(stitch__runner *r, const CUdeviceptr *places, stitch_error **err)
{
    r->places = stitch__calloc(r->ctx, r->count + 1, sizeof(*r->places));
    if (!r->places)
        return stitch__err_nomem(r->ctx, err);
    for (size_t i = 0; i < r->count; i++)
        r->places[i] = r->infos[i].role == STITCH_TENSOR_INPUT ? places[i] : 0;
    return STITCH_OK;
}

static void free_sets(stitch__runner *r)
{
    bool release = r->own_memory && !r->abandoned;
    for (int s = STITCH__SETS - 1; s >= 0; s--) {
        for (size_t i = 0; release && r->lent[s] && i < r->count; i++)
            if ((s == 0 || owned_by_set(r->infos[i].role)) && !r->lent[s][i])
                stitch__mem_free(r->dev, r->sets[s][i]);
        stitch_free(r->sets[s]);
        stitch_free(r->lent[s]);
    }
    for (size_t i = 0; r->moved && !r->abandoned && i < r->count; i++)
        if (!r->places || !r->places[i])
            stitch__mem_free(r->dev, r->moved[i]);
    stitch_free(r->places);
    stitch_free(r->moved);
    if (!r->abandoned)
        stitch__mem_free(r->dev, r->flush);
}

static int copy_ops(stitch__runner *r, const stitch__runner_options *o, stitch_error **err)
{
    r->ops = stitch__calloc(r->ctx, o->op_count + 1, sizeof(*r->ops));
    if (!r->ops)
        return stitch__err_nomem(r->ctx, err);
    if (o->op_count)
        memcpy(r->ops, o->ops, o->op_count * sizeof(*r->ops));
    r->op_count = o->op_count;
    return STITCH_OK;
}

int stitch__runner_open(stitch_task *task, stitch_program *program, stitch__device *dev,
                        const stitch__runner_options *options, stitch__runner **out, stitch_error **err)
{
    stitch__runner *r = stitch__calloc(dev->ctx, 1, sizeof(*r));
    int rc;

    *out = NULL;
    if (!r)
        return stitch__err_nomem(dev->ctx, err);
    r->task = task;
    r->program = program;
    r->dev = dev;
    r->ctx = dev->ctx;
    r->own_memory = !options->sets[0];
    r->own_stream = !options->stream;
    r->stream = options->stream;
    r->has_fixed = stitch__task_has_fixed(task);
    rc = stitch__task_infos(r->ctx, task, &r->infos, &r->count, err);
    for (size_t i = 0; !rc && i < r->count; i++)
        r->has_states |= r->infos[i].role == STITCH_TENSOR_STATE;
    if (!rc)
        rc = copy_ops(r, options, err);
    if (rc)
        goto out;
    if (r->own_stream)
        STITCH__CU(dev->drv->StreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    for (int s = 0; !rc && s < STITCH__SETS; s++)
        rc = make_set(r, s, options->sets[s], options->places[s], err);
    if (!rc && options->places[1])
        rc = take_places(r, options->places[1], err);
    if (!rc)
        rc = stitch__hasher_open(&r->hasher, dev, r->stream, STITCH__BLOCK * r->count, err);
out:
    if (rc)
        stitch__runner_close(r);
    else
        *out = r;
    return rc;
}

static void close_executor(stitch__runner *r)
{
    if (!r->abandoned) /* unloading a module waits for the device */
        stitch_executor_free(r->executor);
    r->executor = NULL;
}

void stitch__runner_close(stitch__runner *r)
{
    const stitch__driver *drv;
    if (!r)
        return;
    drv = r->dev->drv;
    close_executor(r);
    if (!r->abandoned) {
        stitch__hasher_close(&r->hasher);
        if (r->start)
            drv->EventDestroy(r->start);
        if (r->stop)
            drv->EventDestroy(r->stop);
    }
    free_sets(r);
    if (r->own_stream && r->stream && !r->abandoned)
        drv->StreamDestroy(r->stream);
    stitch_free(r->infos);
    stitch_free(r->ops);
    stitch_free(r->prepared);
    stitch_free(r);
}

const CUdeviceptr *stitch__runner_set(const stitch__runner *r, int set)
{
    return set >= 0 && set < STITCH__SETS ? r->sets[set] : NULL;
}

bool stitch__runner_abandoned(const stitch__runner *r)
{
    return r->abandoned;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

static int fill_role(stitch__runner *r, int role, uint64_t seed, const stitch__variant *variant, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < r->count; i++)
        if (r->infos[i].role == role)
            rc = stitch__task_fill(r->task, r->dev, r->stream, i, seed, variant, r->sets[0][i], err);
    return rc;
}

static int runner_fill_weights(void *self, const stitch__scope *scope, uint64_t seed, stitch_error **err)
{
    return fill_role(self, STITCH_TENSOR_WEIGHT, seed, NULL, err);
}

static int runner_fill_inputs(void *self, const stitch__scope *scope, uint64_t seed, const stitch__variant *variant,
                              stitch_error **err)
{
    return fill_role(self, STITCH_TENSOR_INPUT, seed, variant, err);
}

static int set_bytes(stitch__runner *r, int set, int role, int byte, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < r->count; i++)
        if (r->infos[i].role == role)
            rc = stitch__cu_checkf(
                r->dev,
                r->dev->drv->MemsetD8Async(r->sets[set][i], (unsigned char)byte, (size_t)r->infos[i].bytes, r->stream),
                err, "filling %s", r->infos[i].name);
    return rc;
}

static int hide(stitch__runner *r, size_t i, CUdeviceptr ptr, stitch_error **err)
{
    return ptr ? stitch__cu_checkf(
                     r->dev, r->dev->drv->MemsetD8Async(ptr, STITCH__LEFTOVER, (size_t)r->infos[i].bytes, r->stream),
                     err, "hiding %s", r->infos[i].name)
               : STITCH_OK;
}

/* What `prepare` may not see: inputs that are always the same, and copies of them. What it made of them would be right
 * in every run. */
static int hide_fixed(stitch__runner *r, stitch_error **err)
{
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < r->count; i++) {
        if (!stitch__task_input_fixed(r->task, i))
            continue;
        rc = hide(r, i, r->sets[0][i], err);
        if (!rc)
            rc = hide(r, i, r->moved && r->moved[i] ? r->moved[i] : r->places ? r->places[i] : 0, err);
    }
    return rc;
}

/* Copies are made afresh for each run. */
static int show_fixed(stitch__runner *r, stitch_error **err)
{
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < r->count; i++)
        if (stitch__task_input_fixed(r->task, i))
            rc = stitch__task_fill(r->task, r->dev, r->stream, i, 0, NULL, r->sets[0][i], err);
    return rc;
}

/* Where a set's outputs are in memory of the caller's, another program may have left its own there: an answer to the
 * very inputs of this run, too. A timed run does not find it, nor its own earlier one. */
static int wipe_other(stitch__runner *r, const stitch__run *run, stitch_error **err)
{
    int other = run->set == 0, byte = run->poison < 0 ? STITCH__LEFTOVER : run->poison, rc = STITCH_OK;

    for (size_t i = 0; !rc && r->lent[other] && i < r->count; i++)
        if (r->lent[other][i] && r->infos[i].role == STITCH_TENSOR_OUTPUT)
            rc = stitch__cu_checkf(r->dev,
                                   r->dev->drv->MemsetD8Async(r->sets[other][i], (unsigned char)byte,
                                                              (size_t)r->infos[i].bytes, r->stream),
                                   err, "clearing %s", r->infos[i].name);
    return rc;
}

int stitch__runner_clear_states(void *self, const stitch__scope *scope, int set, stitch_error **err)
{
    return set_bytes(self, set, STITCH_TENSOR_STATE, 0, err);
}

static int hash_row(stitch__runner *r, unsigned roles, const CUdeviceptr *at, const CUdeviceptr *copies, uint64_t seed,
                    size_t row, stitch_error **err)
{
    const stitch__hash_row what = {r->infos, r->count, at, copies, roles, seed, row * r->count};
    return stitch__hash_tensor_row(&r->hasher, r->stream, &what, err);
}

static int runner_hash(void *self, const stitch__scope *scope, uint64_t seed, bool inputs, uint64_t *out,
                       stitch_error **err)
{
    stitch__runner *r = self;
    unsigned roles = 1u << STITCH_TENSOR_WEIGHT | (inputs ? 1u << STITCH_TENSOR_INPUT : 0);
    int rc = stitch__hash_clear(&r->hasher, r->stream, 0, r->count, err);

    if (!rc)
        rc = hash_row(r, roles, r->sets[0], NULL, seed, 0, err);
    return rc ? rc : stitch__hash_fetch(&r->hasher, r->stream, scope, "hashing inputs and weights", r->count, out, err);
}

static int copy_outputs(stitch__runner *r, int set, const CUdeviceptr *into, stitch_error **err)
{
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < r->count; i++)
        if (r->infos[i].role == STITCH_TENSOR_OUTPUT && into[i] != r->sets[set][i])
            rc = stitch__cu_checkf(
                r->dev, r->dev->drv->MemcpyDtoDAsync(into[i], r->sets[set][i], (size_t)r->infos[i].bytes, r->stream),
                err, "copying output %s", r->infos[i].name);
    return rc;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int bind_all(stitch__runner *r, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < r->count; i++)
        rc = stitch_executor_bind(r->executor, i, r->sets[0][i], r->infos[i].bytes, err);
    return rc;
}

static int bind_run(stitch__runner *r, const stitch__run *run, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < r->count; i++) {
        bool input = r->infos[i].role == STITCH_TENSOR_INPUT;
        CUdeviceptr ptr = input && run->moved ? r->moved[i] : r->sets[run->set][i];
        if (input || owned_by_set(r->infos[i].role))
            rc = stitch_executor_bind(r->executor, i, ptr, r->infos[i].bytes, err);
    }
    return rc;
}

/* Inputs at other addresses: with new contents, or else with those that are at the usual ones. */
static int move_inputs(stitch__runner *r, const stitch__run *run, const stitch__variant *variant, stitch_error **err)
{
    int rc = STITCH_OK;
    if (!r->moved)
        r->moved = stitch__calloc(r->ctx, r->count + 1, sizeof(*r->moved));
    if (!r->moved)
        return stitch__err_nomem(r->ctx, err);
    for (size_t i = 0; !rc && i < r->count; i++) {
        if (r->infos[i].role != STITCH_TENSOR_INPUT)
            continue;
        if (!r->moved[i] && r->places)
            r->moved[i] = r->places[i];
        if (!r->moved[i])
            rc = stitch__mem_alloc(r->dev, (size_t)r->infos[i].bytes, r->infos[i].name, &r->moved[i], err);
        if (!rc && run->draw)
            rc = stitch__task_fill(r->task, r->dev, r->stream, i, run->seed, variant, r->moved[i], err);
        else if (!rc)
            rc = stitch__cu_checkf(
                r->dev, r->dev->drv->MemcpyDtoDAsync(r->moved[i], r->sets[0][i], (size_t)r->infos[i].bytes, r->stream),
                err, "copying input %s", r->infos[i].name);
    }
    return rc;
}

static int draw_inputs(stitch__runner *r, const stitch__scope *scope, const stitch__run *run,
                       const stitch__variant *variant, stitch_error **err)
{
    return run->moved ? move_inputs(r, run, variant, err) : runner_fill_inputs(r, scope, run->seed, variant, err);
}

/* What a run with run->draw begins with. */
static int draw(stitch__runner *r, const stitch__scope *scope, const stitch__run *run, const stitch__variant *variant,
                stitch_error **err)
{
    int rc = draw_inputs(r, scope, run, variant, err);
    return rc ? rc : stitch__runner_clear_states(r, scope, run->set, err);
}

static int runner_load(void *self, const stitch__scope *scope, const stitch__load *how, int *code, stitch_error **why,
                       stitch_error **err)
{
    stitch_executor_options options = STITCH_EXECUTOR_OPTIONS_INIT;
    stitch__runner *r = self;

    close_executor(r);
    options.ops = r->ops;
    options.op_count = r->op_count;
    options.max_plans = 1;
    *code = stitch_executor_new(r->ctx, r->program, &options, &r->executor, why);
    if (!*code)
        stitch__executor_poison(r->executor, how->poison);
    /* Not where the simulator watches for reads of what nothing has written: prepare need not fill a buffer. */
    r->watched = how->poison >= 0 || !r->dev->info.simulated;
    r->timed = false;
    r->leftover = how->poison < 0 ? STITCH__LEFTOVER : (unsigned char)how->poison;
    return STITCH_OK;
}

static size_t count_steps(const stitch__runner *r)
{
    size_t missing = SIZE_MAX;
    (void)stitch__steps_leaf(&r->executor->doc->run, &missing);
    return SIZE_MAX - missing;
}

static int runner_prepare(void *self, const stitch__scope *scope, stitch__prepared *out, int *code, stitch_error **why,
                          stitch_error **err)
{
    stitch_executor_stats stats = STITCH_EXECUTOR_STATS_INIT;
    stitch__runner *r = self;
    int rc = r->watched ? hide_fixed(r, err) : STITCH_OK;
    /* What came before on the stream must not count. */
    if (!rc)
        rc = stitch__stream_wait(r->dev, r->stream, scope, "filling tensors", err);
    int64_t start = stitch__now_ns();

    memset(out, 0, sizeof(*out));
    *code = STITCH_OK;
    if (rc)
        return rc;
    *code = bind_all(r, why);
    if (!*code)
        *code = stitch_executor_prepare(r->executor, (stitch_stream)r->stream, why);
    if (!*code)
        rc = stitch__wait_candidate(r->dev, r->stream, scope, "preparing the program", &r->abandoned, code, why, err);
    if (rc || *code)
        return rc;
    out->us = (double)(stitch__now_ns() - start) / 1000;
    rc = r->watched ? show_fixed(r, err) : STITCH_OK;
    if (!rc)
        rc = stitch__runner_remember(r, scope, err);
    if (rc)
        return rc;
    out->steps = count_steps(r);
    if (stitch_executor_stats_get(r->executor, &stats) == STITCH_OK) {
        out->workspace_bytes = stats.workspace_bytes;
        out->library_workspace_bytes = stats.library_workspace_bytes;
        out->launches = stats.launches;
        out->prepare_launches = stats.prepare_launches;
    }
    return STITCH_OK;
}

/* Everything before the launch. */
int stitch__runner_ready(stitch__runner *r, const stitch__run *run, int *code, stitch_error **why, stitch_error **err)
{
    int rc = STITCH_OK;

    *code = STITCH_OK;
    if (run->set < 0 || run->set >= STITCH__SETS)
        return stitch__err(r->ctx, err, STITCH_E_INTERNAL, "there is no set %d", run->set);
    if (run->poison >= 0)
        rc = set_bytes(r, run->set, STITCH_TENSOR_OUTPUT, run->poison, err);
    /* Not where a step is left out: what it wrote in the run before is to be there. */
    if (!rc && run->poison >= 0 && run->skip < 0)
        rc = stitch__runner_forget(r, err);
    if (!rc && run->moved && !run->draw)
        rc = move_inputs(r, run, NULL, err);
    if (!rc)
        *code = bind_run(r, run, why);
    return rc;
}

int stitch__runner_enqueue(stitch__runner *r, const stitch__run *run, stitch_error **why)
{
    return run->skip >= 0 ? stitch__executor_run_without(r->executor, (stitch_stream)r->stream, (size_t)run->skip, why)
                          : stitch_executor_run(r->executor, (stitch_stream)r->stream, why);
}

static int runner_run(void *self, const stitch__scope *scope, const stitch__run *run, int *code, stitch_error **why,
                      stitch_error **err)
{
    stitch__runner *r = self;
    int rc = stitch__runner_ready(r, run, code, why, err);

    if (rc || *code)
        return rc;
    *code = stitch__runner_enqueue(r, run, why);
    if (!*code)
        rc = stitch__wait_candidate(r->dev, r->stream, scope, "running the program", &r->abandoned, code, why, err);
    return rc;
}

int stitch__runner_open_timing(stitch__runner *r, const stitch__run *run, stitch_error **err)
{
    stitch__device *dev = r->dev;
    int rc = STITCH_OK;

    if (!r->start) {
        /* What earlier runs asked L2 to keep is given up; a worker's limit is 0, so that it can keep nothing. */
        if (dev->drv->CtxResetPersistingL2Cache)
            (void)dev->drv->CtxResetPersistingL2Cache();
        STITCH__CU(dev->drv->EventCreate(&r->start, CU_EVENT_DEFAULT));
    }
    if (!r->stop)
        STITCH__CU(dev->drv->EventCreate(&r->stop, CU_EVENT_DEFAULT));
    if (run->flush_bytes > r->flush_bytes) {
        stitch__mem_free(dev, r->flush);
        r->flush = 0;
        r->flush_bytes = 0;
        /* Not guarded: only the runner writes to it, and mapping so much takes long. */
        rc = stitch__cu_check(dev, dev->drv->MemAlloc(&r->flush, (size_t)run->flush_bytes), err,
                              "allocating the cache flush");
        if (!rc)
            r->flush_bytes = run->flush_bytes;
    }
out:
    return rc;
}

/* A step from states of zeros says little of the others: one with other inputs comes before the one that is timed. */
static int draw_timed(stitch__runner *r, const stitch__scope *scope, const stitch__run *run, int *code,
                      stitch_error **why, stitch_error **err)
{
    stitch__run before = *run;
    int rc;

    if (!r->has_states)
        return draw(r, scope, run, NULL, err);
    before.seed = stitch__seed_before(run->seed);
    rc = draw(r, scope, &before, NULL, err);
    if (!rc)
        rc = runner_run(r, scope, &before, code, why, err);
    return rc || *code ? rc : draw_inputs(r, scope, run, NULL, err);
}

static int runner_timed_run(void *self, const stitch__scope *scope, const stitch__run *run, stitch__took *took,
                            int *code, stitch_error **why, stitch_error **err)
{
    stitch__runner *r = self;
    stitch__device *dev = r->dev;
    float ms = 0;
    int rc = stitch__runner_open_timing(r, run, err);

    *took = (stitch__took){0};
    *code = STITCH_OK;
    r->timed = true;
    if (!rc)
        rc = wipe_other(r, run, err);
    if (!rc && run->draw)
        rc = draw_timed(r, scope, run, code, why, err);
    if (!rc && !*code)
        rc = stitch__runner_ready(r, run, code, why, err);
    if (rc || *code)
        return rc;
    /* After the last write to the inputs, so that none of them is left in L2. It also gives the host the time to
     * enqueue the run before the device gets to the first event. */
    if (run->flush_bytes)
        STITCH__CU(dev->drv->MemsetD8Async(r->flush, 0x5a, (size_t)run->flush_bytes, r->stream));
    STITCH__CU(dev->drv->EventRecord(r->start, r->stream));
    *code = stitch__runner_enqueue(r, run, why);
    /* A fault of the run may show here already: it is the run's. */
    if (!*code)
        *code = stitch__cu_check(dev, dev->drv->EventRecord(r->stop, r->stream), why, "recording the end of a run");
    if (!*code) {
        took->least_us = stitch__runner_watch(r, scope);
        rc = stitch__wait_candidate(dev, r->stream, scope, "timing the program", &r->abandoned, code, why, err);
    }
    if (rc || *code)
        goto out;
    STITCH__CU(dev->drv->EventElapsedTime(&ms, r->start, r->stop));
    took->us = (double)ms * 1000;
out:
    return rc;
}

/* What one run of a block does, but for waiting for its copies and hashes. */
static int run_in_block(stitch__runner *r, const stitch__scope *scope, const stitch__block_run *b, uint32_t number,
                        const CUdeviceptr *into, stitch__took *took, int *code, stitch_error **why, stitch_error **err)
{
    unsigned inputs = 1u << STITCH_TENSOR_INPUT | 1u << STITCH_TENSOR_WEIGHT, outputs = 1u << STITCH_TENSOR_OUTPUT;
    int rc = STITCH_OK;

    *took = (stitch__took){0};
    *code = STITCH_OK;
    if (b->does & STITCH__RUN_TIMED) {
        rc = runner_timed_run(r, scope, &b->run, took, code, why, err);
    } else {
        if (b->run.draw)
            rc = draw(r, scope, &b->run, b->variant, err);
        if (!rc)
            rc = runner_run(r, scope, &b->run, code, why, err);
    }
    if (!rc && !*code && b->does & STITCH__RUN_INPUTS)
        rc = hash_row(r, inputs, r->sets[0], NULL, b->key, number, err);
    if (!rc && !*code && b->does & STITCH__RUN_KEPT)
        rc = hash_row(r, outputs, r->sets[b->run.set], into, b->key, number, err);
    return rc;
}

int stitch__runner_block(stitch__runner *r, const stitch__scope *scope, const stitch__run_block *block,
                         const CUdeviceptr *into, stitch__took *took, uint64_t *hashes, int *code, stitch_error **why,
                         stitch_error **err)
{
    size_t places = block->count * r->count;
    int rc = stitch__hash_clear(&r->hasher, r->stream, 0, places, err);

    *code = STITCH_OK;
    for (uint32_t k = 0; !rc && !*code && k < block->count; k++)
        rc = run_in_block(r, scope, &block->runs[k], k, into + k * r->count, &took[k], code, why, err);
    return rc || *code
               ? rc
               : stitch__hash_fetch(&r->hasher, r->stream, scope, "hashing what runs left", places, hashes, err);
}

static int runner_fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                        stitch_error **err)
{
    return copy_outputs(self, set, into, err);
}

static int runner_inspect(void *self, const stitch__scope *scope, int *code, stitch_error **why, stitch_error **err)
{
    stitch__runner *r = self;
    stitch__buf found;
    int rc = stitch__stream_wait(r->dev, r->stream, scope, "looking around the program's memory", err);

    *code = STITCH_OK;
    if (rc)
        return rc;
    stitch__buf_init(&found, r->ctx);
    rc = stitch__guards_check(r->dev, r->has_fixed, &found, err);
    char *text = stitch__buf_take(&found, NULL);
    if (!rc && !text)
        rc = stitch__err_nomem(r->ctx, err);
    if (!rc && *text)
        *code = stitch__err(r->ctx, why, STITCH_E_VALIDATE, "the program wrote outside of its buffers: %s", text);
    stitch_free(text);
    return rc || *code ? rc : stitch__runner_recall(r, scope, code, why, err);
}

static void runner_close(void *self)
{
    stitch__runner_close(self);
}

stitch__candidate stitch__runner_candidate(stitch__runner *r)
{
    static const stitch__candidate_ops ops = {
        .where = "in this process",
        .load = runner_load,
        .prepare = runner_prepare,
        .fill_weights = runner_fill_weights,
        .fill_inputs = runner_fill_inputs,
        .clear_states = stitch__runner_clear_states,
        .hash = runner_hash,
        .run = runner_run,
        .timed_run = runner_timed_run,
        .profile = stitch__runner_profile,
        .fetch = runner_fetch,
        .inspect = runner_inspect,
        .close = runner_close,
    };
    return (stitch__candidate){&ops, r};
}
