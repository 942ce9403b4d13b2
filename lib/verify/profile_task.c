/* SPDX-License-Identifier: MIT
 *
 * Profile of what a task is measured against, before there is any program: what the plan begins with.
 */
#include "program/executor.h"
#include "verify/scan.h"
#include "verify/verify.h"

typedef struct subject {
    stitch_context *ctx;
    stitch_task *task;
    stitch__device *dev;
    const stitch__scope *scope;
    stitch__oracle *oracle;
    CUstream stream;
    size_t count;
    stitch_bound_tensor *tensors;
    CUdeviceptr flush; /* what is written to empty the L2 cache */
    size_t flush_bytes;
    stitch_error *why;          /* of a run */
    const stitch__pause *pause; /* of the run in progress */
    bool abandoned;             /* the device still works on it */
} subject;

static int make_tensor(subject *s, size_t i, uint64_t seed, stitch_error **err)
{
    stitch_tensor_info *info = &s->tensors[i].info;
    CUdeviceptr ptr = 0;
    int rc;

    info->struct_size = sizeof(*info);
    rc = stitch_interface_tensor(s->task->iface, i, info);
    if (rc)
        return stitch__err(s->ctx, err, rc, "tensor %zu of the task cannot be read", i);
    if (info->role == STITCH_TENSOR_OUTPUT)
        info->dtype = stitch__oracle_dtype(s->oracle, i);
    info->bytes = info->elements * stitch_dtype_size(info->dtype);
    rc = stitch__mem_alloc(s->dev, (size_t)info->bytes, info->name, &ptr, err);
    s->tensors[i].ptr = ptr;
    if (!rc && (info->role == STITCH_TENSOR_INPUT || info->role == STITCH_TENSOR_WEIGHT))
        rc = stitch__task_fill(s->task, s->dev, s->stream, i, seed, NULL, ptr, err);
    else if (!rc && info->bytes)
        rc = stitch__cu_check(s->dev, s->dev->drv->MemsetD8Async(ptr, 0, (size_t)info->bytes, s->stream), err,
                              "clearing a tensor");
    return rc;
}

static int open_subject(subject *s, stitch_error **err)
{
    const stitch_task *t = s->task;
    const stitch__compute *what = t->baseline_count ? &t->baselines[0] : &t->reference;
    stitch__device *dev = s->dev;
    uint64_t seed = 0;
    int rc = stitch__random(s->ctx, &seed, sizeof(seed), err);

    if (!rc && what->kind == STITCH__COMPUTE_TENSORS)
        rc = stitch__err(s->ctx, err, STITCH_E_UNSUPPORTED,
                         "the task has neither a baseline nor a reference that runs: there is nothing to profile");
    if (!rc) /* who fills tensors does not look at the clock */
        rc = stitch__generate_warm(dev, s->scope, err);
    if (!rc)
        rc = stitch__oracle_open(s->task, what, dev, NULL, 0, &s->oracle, err);
    if (rc)
        return rc;
    STITCH__CU(dev->drv->StreamCreate(&s->stream, CU_STREAM_NON_BLOCKING));
    s->count = stitch_interface_tensor_count(t->iface);
    s->tensors = stitch__calloc(s->ctx, s->count + 1, sizeof(*s->tensors));
    if (!s->tensors)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; !rc && i < s->count; i++)
        rc = make_tensor(s, i, seed, err);
    s->flush_bytes = (size_t)stitch__flush_bytes(dev);
    if (!rc)
        rc = stitch__mem_alloc(dev, s->flush_bytes, "cache flush", &s->flush, err);
    if (!rc)
        rc = stitch__oracle_prepare(s->oracle, s->stream, s->tensors, s->count, err);
    if (!rc)
        rc = stitch__stream_wait(dev, s->stream, s->scope, "preparing the baseline", err);
out:
    return rc;
}

static void close_subject(subject *s)
{
    if (!s->abandoned) { /* all of these wait for the device */
        stitch__oracle_close(s->oracle);
        for (size_t i = 0; s->tensors && i < s->count; i++)
            stitch__mem_free(s->dev, (CUdeviceptr)s->tensors[i].ptr);
        stitch__mem_free(s->dev, s->flush);
        if (s->stream)
            s->dev->drv->StreamDestroy(s->stream);
    }
    stitch_free(s->tensors);
    stitch_error_free(s->why);
}

/* As before a timed run: cleared states and an empty L2. */
static int before_subject(void *userdata)
{
    subject *s = userdata;
    stitch__device *dev = s->dev;
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < s->count; i++)
        if (s->tensors[i].info.role == STITCH_TENSOR_STATE && s->tensors[i].info.bytes)
            rc = stitch__cu_check(
                dev,
                dev->drv->MemsetD8Async((CUdeviceptr)s->tensors[i].ptr, 0, (size_t)s->tensors[i].info.bytes, s->stream),
                &s->why, "clearing a state");
    if (!rc)
        rc = stitch__cu_check(dev, dev->drv->MemsetD8Async(s->flush, 0x5a, s->flush_bytes, s->stream), &s->why,
                              "emptying the L2 cache");
    return rc ? rc : stitch__stream_wait(dev, s->stream, s->scope, "profiling the baseline", &s->why);
}

/* What the device has been given so far is done before the pause. */
static int pause_subject(void *userdata)
{
    subject *s = userdata;
    int rc = stitch__stream_wait(s->dev, s->stream, s->scope, "profiling the baseline", &s->why);
    return rc ? rc : s->pause->fn(s->pause->userdata);
}

static int run_subject(void *userdata, bool plain, const stitch__pause *pause)
{
    subject *s = userdata;
    stitch_executor *x = plain ? stitch__oracle_executor(s->oracle) : NULL;
    const stitch__pause waiting = {.after = pause ? pause->after : 0, .fn = pause_subject, .userdata = s};
    s->pause = pause;
    int rc = x ? stitch__executor_run_plain(x, (stitch_stream)s->stream, pause ? &waiting : NULL, &s->why)
               : stitch__oracle_run(s->oracle, s->stream, &s->why);

    return rc ? rc : stitch__stream_wait(s->dev, s->stream, s->scope, "profiling the baseline", &s->why);
}

/* Of a program: CUPTI's names of kernels can be stale, the order of its launches is not. */
static int take_steps(subject *s, stitch__facts *f, stitch__expected **expected, size_t *count, stitch_error **err)
{
    stitch_executor *x = stitch__oracle_executor(s->oracle);
    int rc = x ? stitch__expected_of(x, expected, count, err) : STITCH_OK;
    if (!rc && x)
        rc = stitch__facts_steps(f, x->program, err);
    return rc || !x ? rc : stitch__scan_moves(s->ctx, x->program, x->image, f, err);
}

static int profile_subject(subject *s, const stitch__collect_options *what, stitch_profile **out, stitch_error **err)
{
    stitch__region region = {.before = before_subject, .run = run_subject, .userdata = s};
    stitch__expected *expected = NULL;
    stitch__facts *f = NULL;
    int rc = open_subject(s, err);

    if (!rc)
        rc = stitch__facts_new(s->ctx, &f, err);
    if (!rc)
        rc = take_steps(s, f, &expected, &region.expected_count, err);
    region.expected = expected;
    if (!rc) {
        f->precision = s->task->precision;
        rc = stitch__profile_collect(s->ctx, s->dev, s->scope, &region, what, f, err);
    }
    if (rc && s->why)
        stitch__err_hand_on(err, &s->why);
    if (!rc) {
        rc = stitch__profile_make(s->ctx, s->dev, s->scope, f, out, err);
        f = NULL;
    }
    stitch__facts_free(f);
    stitch_free(expected);
    return rc;
}

int stitch_profile_task(stitch_context *ctx, stitch_task *task, const stitch_profile_options *options,
                        stitch_profile **out, stitch_error **err)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch__collect_options what;
    subject s = {.ctx = ctx, .task = task};
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    char *unlocked = NULL; /* why there was no lock */
    stitch__scope scope;
    int rc;

    if (out)
        *out = NULL;
    if (!ctx || !task || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_profile_task: needs a context, a task and room for the profile");
    rc = stitch__profile_options_resolve(ctx, options, &o, &what, err);
    if (!rc && !what.parts)
        rc = stitch__err(ctx, err, STITCH_E_INVALID, "stitch_profile_task: profile is STITCH_PROFILE_NEVER");
    if (!rc)
        rc = stitch__task_check(task, err);
    if (!rc)
        rc = stitch__device_get(ctx, &s.dev, err);
    if (!rc && s.dev->info.simulated)
        rc = stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "the device is simulated: it has no time to profile");
    if (!rc)
        rc = stitch__device_enter(s.dev, err);
    if (rc)
        return rc;
    scope = stitch__scope_make(ctx, o.cancel, o.timeout_ms);
    s.scope = &scope;
    rc = stitch__gpu_lock_take(s.dev, &scope, true, &lock, &unlocked, err);
    if (!rc && unlocked)
        stitch__log(ctx, STITCH_LOG_WARN, "while a task was profiled, others on this GPU were not kept away: %s",
                    unlocked);
    if (!rc)
        rc = profile_subject(&s, &what, out, err);
    s.abandoned = (rc == STITCH_E_TIMEOUT || rc == STITCH_E_CANCELLED) && !stitch__context_rests(s.dev);
    stitch__profile_explain(rc, &o, err);
    close_subject(&s);
    stitch__gpu_lock_release(&lock);
    stitch_free(unlocked);
    stitch__device_leave(s.dev);
    return rc;
}
