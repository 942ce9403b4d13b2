/* SPDX-License-Identifier: MIT
 *
 * One interface to whatever computes a task's outputs: a callback of the host, a stitched program, recorded tensors.
 */
#include "task/task.h"

struct stitch__oracle {
    stitch_task *task;
    const stitch__compute *what;
    stitch__device *dev;
    stitch_interface *iface; /* with the dtypes in which the outputs are written */
    stitch_executor *executor;
    stitch_bound_tensor *bound;
    size_t bound_count;
    bool in_parts; /* the callback looks things up in a call of its own */
    bool is_ready; /* it has done so for the next run */
};

static const char *describe(const stitch__oracle *o)
{
    return o->what->name ? o->what->name : "the reference";
}

static int open_program(stitch__oracle *o, const stitch_op *ops, size_t op_count, stitch_error **err)
{
    stitch_executor_options options = STITCH_EXECUTOR_OPTIONS_INIT;
    int rc = stitch_program_validate(o->what->program, o->iface, o->dev->info.arch, err);

    options.ops = ops;
    options.op_count = op_count;
    options.max_plans = 1;
    /* The reference need not be fast, but should be the same every time; baselines get the same tuning as the
     * candidate. */
    options.no_tuning = o->what->name == NULL;
    if (!rc)
        rc = stitch_executor_new(o->dev->ctx, o->what->program, &options, &o->executor, err);
    if (rc)
        stitch__err_prefix(err, "program of %s: ", describe(o));
    return rc;
}

/* Outputs of recorded tensors have the dtypes of the file; each must be there. */
static int open_tensors(stitch__oracle *o, stitch_error **err)
{
    for (size_t i = 0; i < stitch_interface_tensor_count(o->iface); i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        int rc = stitch_interface_tensor(o->iface, i, &info);
        if (!rc && info.role == STITCH_TENSOR_OUTPUT)
            rc = stitch__safetensors_match(o->what->tensors, &info, "output", true, NULL, err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

int stitch__oracle_open(stitch_task *t, const stitch__compute *what, stitch__device *dev, const stitch_op *ops,
                        size_t op_count, stitch__oracle **out, stitch_error **err)
{
    stitch__oracle *o = stitch__calloc(t->ctx, 1, sizeof(*o));
    int rc;

    *out = NULL;
    if (!o)
        return stitch__err_nomem(t->ctx, err);
    o->task = t;
    o->what = what;
    o->dev = dev;
    rc = stitch__task_interface(t, t->reduced, what->output_dtype, &o->iface, err);
    if (rc)
        goto out;
    switch (what->kind) {
    case STITCH__COMPUTE_FN: break;
    case STITCH__COMPUTE_PROGRAM: rc = open_program(o, ops, op_count, err); break;
    case STITCH__COMPUTE_TENSORS: rc = open_tensors(o, err); break;
    default: rc = stitch__err(t->ctx, err, STITCH_E_STATE, "task %s has no reference", t->name); break;
    }
out:
    if (rc)
        stitch__oracle_close(o);
    else
        *out = o;
    return rc;
}

int stitch__oracle_dtype(const stitch__oracle *o, size_t index)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    const stitch__st_tensor *recorded;

    if (stitch_interface_tensor(o->iface, index, &info))
        return STITCH_DTYPE_NONE;
    if (o->what->kind == STITCH__COMPUTE_TENSORS && info.role == STITCH_TENSOR_OUTPUT) {
        recorded = stitch__safetensors_find(o->what->tensors, info.name);
        return recorded ? recorded->dtype : STITCH_DTYPE_NONE;
    }
    return info.dtype;
}

int stitch__oracle_prepare(stitch__oracle *o, CUstream stream, const stitch_bound_tensor *tensors, size_t count,
                           stitch_error **err)
{
    int rc = STITCH_OK;

    if (count != stitch_interface_tensor_count(o->iface))
        return stitch__err(o->task->ctx, err, STITCH_E_INTERNAL, "%s: bound %zu of %zu tensors", describe(o), count,
                           stitch_interface_tensor_count(o->iface));
    stitch_free(o->bound);
    o->bound = stitch__calloc(o->task->ctx, count ? count : 1, sizeof(*o->bound));
    if (!o->bound)
        return stitch__err_nomem(o->task->ctx, err);
    o->bound_count = count;
    for (size_t i = 0; !rc && i < count; i++) {
        o->bound[i].ptr = tensors[i].ptr;
        o->bound[i].info.struct_size = sizeof(o->bound[i].info);
        rc = stitch_interface_tensor(o->iface, i, &o->bound[i].info);
        if (!rc && o->what->kind == STITCH__COMPUTE_PROGRAM)
            rc = stitch_executor_bind(o->executor, i, tensors[i].ptr, o->bound[i].info.bytes, err);
    }
    if (!rc && o->what->kind == STITCH__COMPUTE_PROGRAM)
        rc = stitch_executor_prepare(o->executor, (stitch_stream)stream, err);
    if (rc)
        stitch__err_prefix(err, "preparing %s: ", describe(o));
    return rc;
}

/* One call of the callback. *said is what it has returned; beside 0 and a
 * status that may be STITCH_READY or STITCH_AGAIN where the flags say so. */
static int call_fn(stitch__oracle *o, CUstream stream, bool ready, bool again, int *said, stitch_error **err)
{
    int rc = o->what->fn((stitch_stream)stream, o->bound, o->bound_count, o->what->userdata);

    *said = rc;
    if (rc == 0 || (ready && rc == STITCH_READY) || (again && rc == STITCH_AGAIN))
        return STITCH_OK;
    /* A status of ours keeps its meaning; anything else is no status. */
    if (rc > 0 || strcmp(stitch_status_name(rc), "STITCH_E_UNKNOWN") == 0)
        return stitch__err_native(o->task->ctx, err, STITCH_E_STATE, STITCH_DOMAIN_TASK, rc,
                                  "the callback of %s returned %d", describe(o), rc);
    return stitch__err(o->task->ctx, err, rc, "the callback of %s failed: %s", describe(o), stitch_status_text(rc));
}

/* The computation, and before it the looking up if that has not been done. */
static int run_fn(stitch__oracle *o, CUstream stream, bool *more, stitch_error **err)
{
    int said, rc = call_fn(o, stream, !o->is_ready, true, &said, err);

    o->is_ready = false;
    if (!rc && said == STITCH_READY) {
        o->in_parts = true;
        rc = call_fn(o, stream, false, true, &said, err);
    }
    *more = said == STITCH_AGAIN;
    return rc;
}

static int run_tensors(stitch__oracle *o, CUstream stream, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < o->bound_count; i++) {
        const stitch__st_tensor *t;
        if (o->bound[i].info.role != STITCH_TENSOR_OUTPUT)
            continue;
        t = stitch__safetensors_find(o->what->tensors, o->bound[i].info.name);
        if (!t)
            return stitch__err(o->task->ctx, err, STITCH_E_NOT_FOUND, "output %s is not recorded",
                               o->bound[i].info.name);
        rc = stitch__upload(o->dev, stream, o->what->tensors, t, o->bound[i].ptr, err);
    }
    return rc;
}

int stitch__oracle_begin(stitch__oracle *o, CUstream stream, bool *more, stitch_error **err)
{
    int rc;

    *more = false;
    if (!o->bound)
        return stitch__err(o->task->ctx, err, STITCH_E_INTERNAL, "%s is run before its tensors are bound", describe(o));
    switch (o->what->kind) {
    case STITCH__COMPUTE_FN: return run_fn(o, stream, more, err);
    case STITCH__COMPUTE_PROGRAM:
        rc = stitch_executor_run(o->executor, (stitch_stream)stream, err);
        if (rc)
            stitch__err_prefix(err, "running %s: ", describe(o));
        return rc;
    default: return run_tensors(o, stream, err);
    }
}

int stitch__oracle_ready(stitch__oracle *o, CUstream stream, stitch_error **err)
{
    int said, rc;

    if (!o->in_parts || o->is_ready)
        return STITCH_OK;
    rc = call_fn(o, stream, true, false, &said, err);
    if (!rc && said != STITCH_READY)
        rc = stitch__err(o->task->ctx, err, STITCH_E_STATE,
                         "the callback of %s was ready before it computed, but not this time", describe(o));
    o->is_ready = !rc;
    return rc;
}

int stitch__oracle_finish(stitch__oracle *o, CUstream stream, stitch_error **err)
{
    int said;
    return call_fn(o, stream, false, false, &said, err);
}

int stitch__oracle_run(stitch__oracle *o, CUstream stream, stitch_error **err)
{
    bool more;
    int rc = stitch__oracle_begin(o, stream, &more, err);
    return rc || !more ? rc : stitch__oracle_finish(o, stream, err);
}

stitch_executor *stitch__oracle_executor(const stitch__oracle *o)
{
    return o->executor;
}

void stitch__oracle_close(stitch__oracle *o)
{
    if (!o)
        return;
    stitch_executor_free(o->executor);
    stitch_interface_free(o->iface);
    stitch_free(o->bound);
    stitch_free(o);
}

/* ---- for callbacks ----------------------------------------------------------------------------------------------- */

/* What the two copies have in common: checks, and the context is current between this and stitch__device_leave(). */
static int begin_copy(const char *what, stitch_context *ctx, const stitch_bound_tensor *tensor, const void *host,
                      uint64_t bytes, stitch__device **dev, stitch_error **err)
{
    int rc;

    if (!ctx || !tensor || (!host && bytes))
        return stitch__err(ctx, err, STITCH_E_INVALID, "%s: needs a context, a tensor and host memory", what);
    if (bytes > tensor->info.bytes)
        return stitch__err(ctx, err, STITCH_E_INVALID, "%s: tensor %s has %" PRIu64 " bytes, not %" PRIu64, what,
                           tensor->info.name ? tensor->info.name : "(unnamed)", tensor->info.bytes, bytes);
    rc = stitch__device_get(ctx, dev, err);
    return rc ? rc : stitch__device_enter(*dev, err);
}

int stitch_bound_tensor_read(stitch_context *ctx, stitch_stream stream, const stitch_bound_tensor *tensor, void *out,
                             uint64_t bytes, stitch_error **err)
{
    stitch__device *dev;
    int rc = begin_copy("stitch_bound_tensor_read", ctx, tensor, out, bytes, &dev, err);

    if (rc)
        return rc;
    rc = stitch__cu_check(dev, dev->drv->StreamSynchronize((CUstream)stream), err, "cuStreamSynchronize");
    if (!rc && bytes)
        rc = stitch__cu_checkf(dev, dev->drv->MemcpyDtoH(out, tensor->ptr, (size_t)bytes), err, "reading tensor %s",
                               tensor->info.name ? tensor->info.name : "");
    stitch__device_leave(dev);
    return rc;
}

int stitch_bound_tensor_write(stitch_context *ctx, stitch_stream stream, const stitch_bound_tensor *tensor,
                              const void *data, uint64_t bytes, stitch_error **err)
{
    stitch__device *dev;
    int rc = begin_copy("stitch_bound_tensor_write", ctx, tensor, data, bytes, &dev, err);

    if (rc)
        return rc;
    if (bytes)
        rc = stitch__cu_checkf(dev, dev->drv->MemcpyHtoDAsync(tensor->ptr, data, (size_t)bytes, (CUstream)stream), err,
                               "writing tensor %s", tensor->info.name ? tensor->info.name : "");
    if (!rc) /* the host's memory is the caller's again on return */
        rc = stitch__cu_check(dev, dev->drv->StreamSynchronize((CUstream)stream), err, "cuStreamSynchronize");
    stitch__device_leave(dev);
    return rc;
}
