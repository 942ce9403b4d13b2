/* SPDX-License-Identifier: MIT
 *
 * Executors: a program on a device, bound to memory, ready to run on the host's stream.
 */
#include "program/executor.h"

enum { DEFAULT_PLANS = 4, MAX_PLANS = 256, BIND_ALIGNMENT = 16 };
#define DEFAULT_LIBRARY_WORKSPACE (UINT64_C(32) << 20)
#define DEFAULT_MAX_WORKSPACE     (UINT64_C(64) << 30)

int stitch_executor_options_init(stitch_executor_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_executor_options));
}

/* ---- making one ---- */

static int check_dim(const stitch_executor *x, const stitch_interface *iface, const char *name, stitch_error **err)
{
    for (size_t i = 0; name && i < iface->dim_count; i++) {
        if (strcmp(iface->dims[i].name, name) == 0)
            return STITCH_OK;
    }
    return stitch__err(x->ctx, err, STITCH_E_NOT_FOUND, "the program has no dim '%.255s'", name ? name : "(null)");
}

/* The executor's own copy: its dims may change, and the caller may free his. Compiled images are shared. */
static int copy_program(stitch_executor *x, stitch_program *p, stitch_error **err)
{
    stitch_context *ctx = x->ctx;
    stitch_program_limits limits = {sizeof(limits),      p->limits.source_bytes, p->limits.json_bytes,
                                    p->limits.steps,     p->limits.launches,     p->limits.workspace_bytes,
                                    p->limits.file_bytes};
    int rc = stitch_program_parse(ctx, p->source, p->json, &limits, &x->program, err);
    if (rc)
        return rc;
    stitch_program *q = x->program;
    if ((rc = stitch__interface_copy(p->iface, &q->iface, err)) != STITCH_OK)
        return rc;
    for (size_t i = 0; i < x->options.dim_count; i++) {
        if ((rc = check_dim(x, q->iface, x->options.dim_names[i], err)) != STITCH_OK ||
            (rc = stitch_interface_set_dim(q->iface, x->options.dim_names[i], x->options.dim_values[i], err)) !=
                STITCH_OK)
            return rc;
    }
    x->doc = &q->doc;
    x->iface = q->iface;
    rc = stitch__doc_validate(x->doc, x->iface, x->dev->info.arch, &q->limits, err);
    x->dims_valid = rc == STITCH_OK;
    return rc;
}

static int load_code(stitch_executor *x, stitch_program *p, stitch_error **err)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    bool ptx = x->dev->info.simulated;
    stitch__findings f;
    int rc;

    stitch__compiled *c = stitch__program_compiled(p, x->dev->info.arch, ptx);
    if (!c) {
        o.arch = x->dev->info.arch;
        o.ptx = ptx;
        if ((rc = stitch_program_compile(p, &o, NULL, err)) != STITCH_OK)
            return rc;
        c = stitch__program_compiled(p, x->dev->info.arch, ptx);
        if (!c)
            return stitch__err(x->ctx, err, STITCH_E_INTERNAL, "the compiled code for %s is gone", x->dev->info.arch);
    }
    stitch__findings_init(&f, x->ctx);
    rc = stitch__check_signatures(x->doc, c->image, x->iface, &f, err);
    if (rc == STITCH_OK)
        rc = stitch__findings_end(&f, STITCH_E_VALIDATE, err);
    else
        stitch__findings_end(&f, rc, NULL);
    if (rc || (rc = stitch__module_load(x->dev, c->image, &x->module, err)) != STITCH_OK)
        return rc;
    x->image = stitch__image_ref(c->image);
    if (!stitch__needs_helpers(x->doc))
        return STITCH_OK;
    stitch_image *helpers = c->helpers ? stitch__image_ref(c->helpers) : NULL;
    if (!helpers && (rc = stitch__compile_helpers(x->ctx, x->dev->info.arch, ptx, false, &helpers, err)) != STITCH_OK)
        return rc;
    rc = stitch__module_load(x->dev, helpers, &x->helpers, err);
    if (rc == STITCH_OK && (stitch_image_find(helpers, "stitch_epilogue", &x->helper_epilogue) != STITCH_OK ||
                            stitch_image_find(helpers, "stitch_fill64", &x->helper_fill) != STITCH_OK))
        rc = stitch__err(x->ctx, err, STITCH_E_INTERNAL, "the helper kernels are not in their image");
    stitch_image_free(helpers);
    return rc;
}

static int copy_ops(stitch_executor *x, stitch_error **err)
{
    x->ops = stitch__calloc(x->ctx, x->options.op_count + 1, sizeof(*x->ops));
    if (!x->ops)
        return stitch__err_nomem(x->ctx, err);
    for (size_t i = 0; i < x->options.op_count; i++) {
        const stitch_op *op = &x->options.ops[i];
        if (!op->name || !op->fn)
            return stitch__err(x->ctx, err, STITCH_E_INVALID,
                               "stitch_executor_options: operator %zu has no name or no function", i);
        char *name = stitch__strdup(x->ctx, op->name);
        if (!name)
            return stitch__err_nomem(x->ctx, err);
        x->ops[x->op_count++] = (stitch_op){name, op->fn, op->userdata};
    }
    return STITCH_OK;
}

static int check_ops(const stitch_executor *x, const stitch__steps *list, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++) {
        const stitch__step *s = &list->items[i];
        bool found = s->kind != STITCH__STEP_OP;
        for (size_t k = 0; k < x->op_count && !found; k++)
            found = strcmp(x->ops[k].name, s->u.op->name) == 0;
        if (!found)
            rc = stitch__err(x->ctx, err, STITCH_E_NOT_FOUND, "%s: the host registered no operator '%s'", s->place,
                             s->u.op->name);
        else if (s->kind == STITCH__STEP_REPEAT)
            rc = check_ops(x, &s->u.repeat->steps, err);
    }
    return rc;
}

static int check_options(stitch_context *ctx, stitch_executor_options *o, stitch_error **err)
{
    if ((o->dim_count && (!o->dim_names || !o->dim_values)) || (o->op_count && !o->ops))
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_executor_options: dims and ops must not be NULL when their count is not 0");
    if (o->max_plans < 0 || o->max_plans > MAX_PLANS)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_executor_options: max_plans must be 0 to %d", MAX_PLANS);
    o->max_plans = o->max_plans ? o->max_plans : DEFAULT_PLANS;
    o->library_workspace_bytes = o->library_workspace_bytes ? o->library_workspace_bytes : DEFAULT_LIBRARY_WORKSPACE;
    o->max_workspace_bytes = o->max_workspace_bytes ? o->max_workspace_bytes : DEFAULT_MAX_WORKSPACE;
    return STITCH_OK;
}

int stitch_executor_new(stitch_context *ctx, stitch_program *p, const stitch_executor_options *options,
                        stitch_executor **out, stitch_error **err)
{
    stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    stitch_executor *x;
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_executor_new: out must not be NULL");
    *out = NULL;
    if (!ctx || !p)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_executor_new: context and program must not be NULL");
    if (options &&
        (rc = stitch__options_copy(ctx, &o, sizeof(o), options, "stitch_executor_options", err)) != STITCH_OK)
        return rc;
    if ((rc = check_options(ctx, &o, err)) != STITCH_OK)
        return rc;
    if (!p->iface)
        return stitch__err(
            ctx, err, STITCH_E_STATE,
            "the program has no interface: call stitch_program_validate() first, or load a saved program");
    x = stitch__calloc(ctx, 1, sizeof(*x));
    if (!x)
        return stitch__err_nomem(ctx, err);
    x->ctx = ctx;
    x->options = o;
    x->bind_epoch = x->weights_epoch = 1;
    x->dims_changed = true;
    x->poison = -1;
    stitch__findings_init(&x->findings, ctx);
    if ((rc = stitch__device_get(ctx, &x->dev, err)) != STITCH_OK ||
        (rc = stitch__device_enter(x->dev, err)) != STITCH_OK) {
        x->dev = NULL;
        stitch_executor_free(x);
        return rc;
    }
    if ((rc = copy_program(x, p, err)) == STITCH_OK && (rc = copy_ops(x, err)) == STITCH_OK &&
        (rc = check_ops(x, &x->doc->prepare, err)) == STITCH_OK &&
        (rc = check_ops(x, &x->doc->run, err)) == STITCH_OK && (rc = load_code(x, p, err)) == STITCH_OK &&
        (rc = stitch__encode_setup(x, err)) == STITCH_OK) {
        x->bound = stitch__calloc(ctx, x->iface->tensor_count + 1, sizeof(*x->bound));
        x->bound_bytes = stitch__calloc(ctx, x->iface->tensor_count + 1, sizeof(*x->bound_bytes));
        x->plans = stitch__calloc(ctx, (size_t)o.max_plans, sizeof(*x->plans));
        if (!x->bound || !x->bound_bytes || !x->plans)
            rc = stitch__err_nomem(ctx, err);
    }
    stitch__device_leave(x->dev);
    x->options.dim_names = NULL; /* the caller's */
    x->options.dim_values = NULL;
    x->options.ops = NULL;
    if (rc) {
        stitch_executor_free(x);
        return rc;
    }
    *out = x;
    return STITCH_OK;
}

void stitch_executor_free(stitch_executor *x)
{
    if (!x)
        return;
    bool entered = x->dev && stitch__device_enter(x->dev, NULL) == STITCH_OK;
    if (x->dev) {
        for (size_t i = 0; x->plans && i < x->plan_count; i++)
            stitch__plan_free(x, &x->plans[i]);
        stitch__gemm_teardown(x);
        stitch__encode_teardown(x);
        stitch__module_unload(&x->module);
        stitch__module_unload(&x->helpers);
    }
    if (entered)
        stitch__device_leave(x->dev);
    stitch__findings_end(&x->findings, STITCH_E_INTERNAL, NULL);
    stitch_image_free((stitch_image *)(uintptr_t)x->image);
    for (size_t i = 0; i < x->op_count; i++)
        stitch_free((char *)(uintptr_t)x->ops[i].name);
    stitch_free(x->ops);
    stitch_free(x->plans);
    stitch_free(x->bound);
    stitch_free(x->bound_bytes);
    stitch_program_free(x->program);
    stitch_free(x);
}

/* ---- binding ---- */

const stitch_interface *stitch_executor_interface(const stitch_executor *x)
{
    return x ? x->iface : NULL;
}

int stitch_executor_set_dim(stitch_executor *x, const char *name, int64_t value, stitch_error **err)
{
    if (!x || !name)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_executor_set_dim: executor and name must not be NULL");
    int rc = check_dim(x, x->iface, name, err);
    if (rc || (rc = stitch_interface_set_dim(x->iface, name, value, err)) == STITCH_E_INVALID)
        return rc;
    x->dims_changed = true; /* also when memory ran out: the sizes may be in between */
    x->dims_valid = false;
    return rc;
}

int stitch_executor_slot(const stitch_executor *x, const char *name, size_t *slot, stitch_error **err)
{
    if (!x || !name || !slot)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "stitch_executor_slot: executor, name and slot must not be NULL");
    if (stitch_interface_find(x->iface, name, slot) != STITCH_OK)
        return stitch__err(x->ctx, err, STITCH_E_NOT_FOUND, "the program has no tensor '%.255s'", name);
    return STITCH_OK;
}

int stitch_executor_bind(stitch_executor *x, size_t slot, stitch_device_ptr ptr, uint64_t bytes, stitch_error **err)
{
    if (!x || slot >= x->iface->tensor_count)
        return stitch__err(x ? x->ctx : NULL, err, STITCH_E_INVALID, "stitch_executor_bind: there is no slot %zu",
                           slot);
    const stitch__iface_tensor *t = &x->iface->tensors[slot];
    if (!ptr)
        return stitch__err(x->ctx, err, STITCH_E_INVALID, "%s: the device pointer is NULL", t->name);
    if (ptr % BIND_ALIGNMENT)
        return stitch__err(x->ctx, err, STITCH_E_INVALID,
                           "%s: the device pointer 0x%" PRIx64 " is not aligned to %d bytes", t->name, ptr,
                           BIND_ALIGNMENT);
    if (t->problem)
        return stitch__err(x->ctx, err, STITCH_E_STATE, "%s: its shape does not work out for the current dims: %s",
                           t->name, t->problem);
    if (bytes < t->bytes)
        return stitch__err(x->ctx, err, STITCH_E_INVALID, "%s: %" PRIu64 " bytes were bound, it has %" PRIu64, t->name,
                           bytes, t->bytes);
    x->bound_bytes[slot] = bytes;
    x->bind_epoch += x->bound[slot] != ptr;
    x->bound[slot] = ptr;
    /* At the same address too there may be other weights now, which `prepare` has not seen. */
    x->weights_epoch += t->role == STITCH_TENSOR_WEIGHT;
    return STITCH_OK;
}

int stitch_executor_bind_name(stitch_executor *x, const char *name, stitch_device_ptr ptr, uint64_t bytes,
                              stitch_error **err)
{
    size_t slot;
    int rc = stitch_executor_slot(x, name, &slot, err);
    return rc ? rc : stitch_executor_bind(x, slot, ptr, bytes, err);
}

static int check_bound(const stitch_executor *x, stitch_error **err)
{
    for (size_t i = 0; i < x->iface->tensor_count; i++) {
        const stitch__iface_tensor *t = &x->iface->tensors[i];
        if (!x->bound[i])
            return stitch__err(x->ctx, err, STITCH_E_STATE, "%s is not bound: call stitch_executor_bind() first",
                               t->name);
        if (x->bound_bytes[i] < t->bytes)
            return stitch__err(x->ctx, err, STITCH_E_STATE,
                               "%s: %" PRIu64 " bytes are bound, with the current dims it has %" PRIu64, t->name,
                               x->bound_bytes[i], t->bytes);
    }
    return STITCH_OK;
}

/* ---- prepare and run ---- */

/* Tuning uses the library workspace and wants the device for itself: it comes after what the stream still has to do. */
static int wait_for_earlier(stitch_executor *x, CUstream stream, stitch_error **err)
{
    const stitch__driver *drv = x->dev->drv;
    int rc = stitch__cu_check(x->dev, drv->EventRecord(x->earlier, stream), err, "cuEventRecord on the host's stream");
    return rc ? rc
              : stitch__cu_check(x->dev, drv->StreamWaitEvent(x->capture, x->earlier, 0), err, "cuStreamWaitEvent");
}

/* A new plan's workspace, before anything of the program has written to it. */
static int poison_plan(stitch_executor *x, stitch__exec_plan *p, CUstream stream, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; x->poison >= 0 && !p->weights_epoch && i < x->doc->tensor_count && rc == STITCH_OK; i++) {
        const stitch__tensor *t = &x->doc->tensors[i];
        if (t->buffer >= 0 && t->bytes)
            rc = stitch__cu_checkf(
                x->dev,
                x->dev->drv->MemsetD8Async(p->buffers[t->buffer], (unsigned char)x->poison, (size_t)t->bytes, stream),
                err, "filling buffer %s", t->name);
    }
    return rc;
}

void stitch__executor_poison(stitch_executor *x, int byte)
{
    x->poison = byte;
}

bool stitch__executor_workspace(const stitch_executor *x, size_t *at, stitch__workspace *out)
{
    while (x->current && *at < x->doc->tensor_count) {
        const stitch__tensor *t = &x->doc->tensors[(*at)++];
        if (t->buffer < 0 || !t->bytes)
            continue;
        *out = (stitch__workspace){t->name, x->current->buffers[t->buffer], t->bytes, t->prepared};
        return true;
    }
    return false;
}

static int prepare(stitch_executor *x, CUstream stream, stitch_error **err)
{
    stitch__scope scope = stitch__scope_make(x->ctx, NULL, 0);
    stitch__exec_plan *p;
    int rc = stitch__scope_check(&scope, "stitch_executor_prepare", err);

    if (rc || (rc = stitch__plan_get(x, &p, err)) != STITCH_OK || (rc = poison_plan(x, p, stream, err)) != STITCH_OK ||
        (rc = wait_for_earlier(x, stream, err)) != STITCH_OK ||
        (rc = stitch__gemm_setup(x, p, &x->doc->prepare, err)) != STITCH_OK ||
        (rc = stitch__gemm_setup(x, p, &x->doc->run, err)) != STITCH_OK)
        return rc;
    if (p->weights_epoch != x->weights_epoch) {
        x->encoded = 0;
        if ((rc = stitch__encode_steps(x, p, &x->doc->prepare, stream, 0, err)) != STITCH_OK)
            return rc;
        p->prepare_launches = x->encoded;
        p->weights_epoch = x->weights_epoch;
    }
    if (!x->options.no_graph && (!p->graph || p->bind_epoch != x->bind_epoch) &&
        (rc = stitch__plan_graph(x, p, err)) != STITCH_OK)
        return rc;
    x->current = p;
    x->dims_changed = false;
    return STITCH_OK;
}

int stitch_executor_prepare(stitch_executor *x, stitch_stream stream, stitch_error **err)
{
    int64_t began = stitch__now_ns();
    int rc;

    if (!x)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_executor_prepare: executor must not be NULL");
    if ((rc = check_bound(x, err)) != STITCH_OK || (rc = stitch__device_enter(x->dev, err)) != STITCH_OK)
        return rc;
    x->current = NULL;
    rc = prepare(x, (CUstream)stream, err);
    stitch__device_leave(x->dev);
    x->prepare_build_ms = (double)(stitch__now_ns() - began) / 1e6;
    return rc;
}

static int launch_failed(const stitch_executor *x, CUresult r, stitch_error **err)
{
    int rc = stitch__cu_check(x->dev, r, err, "cuGraphLaunch");
    if (r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        stitch__err_prefix(err, "the stream captures; set stitch_executor_options.capturable for that: ");
    return rc;
}

/* A host that captures its stream gets the launches themselves: the driver takes no graph launch there. */
static bool captures(const stitch_executor *x, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return stream && x->dev->drv->StreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static int run_plain(stitch_executor *x, stitch__exec_plan *p, CUstream stream, stitch_error **err)
{
    int rc = stitch__plan_session(x, p, err);
    x->encoded = x->operators = 0;
    x->gemm_frozen = true;
    if (rc == STITCH_OK)
        rc = stitch__encode_steps(x, p, &x->doc->run, stream, 0, err);
    x->gemm_frozen = false;
    return rc;
}

static int run(stitch_executor *x, stitch__exec_plan *p, CUstream stream, stitch_error **err)
{
    if (x->skip || x->plain)
        return run_plain(x, p, stream, err);
    if (x->options.no_graph || (x->options.capturable && captures(x, stream))) {
        int rc = run_plain(x, p, stream, err);
        p->launches = x->encoded;
        return rc;
    }
    if (p->bind_epoch != x->bind_epoch) {
        int rc = stitch__plan_graph(x, p, err);
        if (rc)
            return rc;
    }
    CUresult r = x->dev->drv->GraphLaunch(p->graph, stream);
    return r == CUDA_SUCCESS ? STITCH_OK : launch_failed(x, r, err);
}

int stitch_executor_run(stitch_executor *x, stitch_stream stream, stitch_error **err)
{
    int rc;

    if (!x)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_executor_run: executor must not be NULL");
    if (!x->current || x->dims_changed)
        return stitch__err(x->ctx, err, STITCH_E_STATE, "%s: call stitch_executor_prepare() first",
                           x->current ? "a dim has changed" : "the executor is not prepared");
    if (x->current->weights_epoch != x->weights_epoch)
        return stitch__err(x->ctx, err, STITCH_E_STATE,
                           "a weight was bound since: call stitch_executor_prepare() first");
    /* Most hosts have the context current already: asking is cheaper than a push and a pop. */
    CUcontext current = NULL;
    bool enter = x->dev->drv->CtxGetCurrent(&current) != CUDA_SUCCESS || current != x->dev->context;
    if (enter && (rc = stitch__device_enter(x->dev, err)) != STITCH_OK)
        return rc;
    rc = run(x, x->current, (CUstream)stream, err);
    if (enter)
        stitch__device_leave(x->dev);
    return rc;
}

int stitch__executor_run_plain(stitch_executor *x, stitch_stream stream, const stitch__pause *pause, stitch_error **err)
{
    x->plain = true;
    x->pause = pause;
    int rc = stitch_executor_run(x, stream, err);
    x->plain = false;
    x->pause = NULL;
    return rc;
}

int stitch__executor_run_without(stitch_executor *x, stitch_stream stream, size_t skip, stitch_error **err)
{
    x->skip = stitch__steps_leaf(&x->doc->run, &skip);
    if (!x->skip)
        return stitch__err(x->ctx, err, STITCH_E_INVALID, "the program has fewer steps than the one to leave out");
    int rc = stitch_executor_run(x, stream, err);
    x->skip = NULL;
    return rc;
}

int stitch_executor_stats_get(const stitch_executor *x, stitch_executor_stats *out)
{
    if (!x || !out)
        return STITCH_E_INVALID;
    stitch_executor_stats s = STITCH_EXECUTOR_STATS_INIT;
    if (x->current) {
        s.workspace_bytes = x->current->workspace_bytes;
        s.launches = x->current->launches;
        s.prepare_launches = x->current->prepare_launches;
    }
    for (size_t l = 0; l < STITCH__MAX_LANES; l++)
        s.library_workspace_bytes += x->lt_workspace[l] ? x->options.library_workspace_bytes : 0;
    s.graph_updates = x->graph_updates;
    s.graph_builds = x->graph_builds;
    s.prepare_build_ms = x->prepare_build_ms;
    return stitch__out_struct(out, &s, sizeof(s));
}
