/* SPDX-License-Identifier: MIT
 *
 * Encoding: the steps of a list become launches on a stream, which may be capturing.
 */
#include <stdio.h>

#include "program/executor.h"

enum { MAX_GRAPH_STEPS = 1024 }; /* of a list with dependencies; longer ones run in order */

int stitch__encode_failed(stitch_executor *x, stitch_error **err)
{
    bool nomem = x->session.nomem;
    x->session.nomem = false; /* the next try may find memory */
    int rc = stitch__findings_end(&x->findings, STITCH_E_VALIDATE, nomem ? NULL : err);
    if (nomem)
        return stitch__err_nomem(x->ctx, err);
    return rc ? rc : stitch__err(x->ctx, err, STITCH_E_INTERNAL, "a step cannot be evaluated");
}

CUdeviceptr stitch__encode_address(const stitch_executor *x, const stitch__exec_plan *plan, const stitch__range *r)
{
    const stitch__tensor *t = &x->doc->tensors[r->tensor];
    CUdeviceptr base = t->buffer >= 0 ? plan->buffers[t->buffer] : x->bound[r->tensor];
    return base + r->offset * stitch_dtype_size(t->dtype);
}

/* ---- kernels ---- */

static CUtensorMapDataType map_type(int dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F64: return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case STITCH_DTYPE_F32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case STITCH_DTYPE_TF32: return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    case STITCH_DTYPE_F16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case STITCH_DTYPE_BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case STITCH_DTYPE_I64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case STITCH_DTYPE_I32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case STITCH_DTYPE_I16: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    }
}

static int encode_map(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, const char *field,
                      const stitch__tensor_map *map, CUtensorMap *out, stitch_error **err)
{
    stitch__map_values v;
    cuuint64_t shape[5], strides[5];
    cuuint32_t box[5], ones[5];
    size_t n = map->rank;

    if (!x->dev->drv->TensorMapEncodeTiled)
        return stitch__err(x->ctx, err, STITCH_E_UNSUPPORTED, "%s: this driver has no tensor maps", step->place);
    if (!stitch__eval_map(&x->session, step, field, map, &v))
        return stitch__encode_failed(x, err);
    int dtype = x->doc->tensors[v.buffer.tensor].dtype;
    for (size_t i = 0; i < n; i++) { /* the driver wants the innermost first */
        shape[i] = (cuuint64_t)v.shape[n - 1 - i];
        box[i] = (cuuint32_t)v.box[n - 1 - i];
        ones[i] = 1;
        if (i + 1 < n)
            strides[i] = (cuuint64_t)v.strides[n - 2 - i] * stitch_dtype_size(dtype);
    }
    CUresult r = x->dev->drv->TensorMapEncodeTiled(
        out, map_type(dtype), (cuuint32_t)n, (void *)(uintptr_t)stitch__encode_address(x, plan, &v.buffer), shape,
        strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)map->swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return stitch__cu_checkf(x->dev, r, err, "cuTensorMapEncodeTiled (%s.%s)", step->place, field);
}

static int encode_arg(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, size_t index,
                      const stitch__arg *arg, stitch__arg_value *out, stitch_error **err)
{
    char field[32], why[96] = "";
    stitch__range range;
    int64_t integer = 0;

    snprintf(field, sizeof(field), "args[%zu]", index);
    if (arg->kind == STITCH__ARG_TENSOR_MAP)
        return encode_map(x, plan, step, field, arg->map, (CUtensorMap *)out->bytes, err);
    if (arg->kind == STITCH__ARG_POINTER) {
        if (!stitch__eval_ref(&x->session, step, field, &arg->ref, &range))
            return stitch__encode_failed(x, err);
        CUdeviceptr address = stitch__encode_address(x, plan, &range);
        memcpy(out->bytes, &address, sizeof(address));
        return STITCH_OK;
    }
    if (arg->expr && !stitch__eval(&x->session, step, field, arg->expr, &integer))
        return stitch__encode_failed(x, err);
    if (!stitch__scalar_encode(arg->scalar, integer, arg->real, arg->expr == NULL, out->bytes, why))
        return stitch__err(x->ctx, err, STITCH_E_VALIDATE, "%s.%s: %s", step->place, field, why);
    return STITCH_OK;
}

static int encode_kernel(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                         stitch_error **err)
{
    const stitch__kernel_step *k = step->u.kernel;
    const stitch__driver *drv = x->dev->drv;
    stitch__kernel_values v;
    size_t index;
    int rc;

    if (!stitch__eval_kernel(&x->session, step, &v))
        return stitch__encode_failed(x, err);
    if (stitch_image_find(x->image, k->name, &index) != STITCH_OK)
        return stitch__err(x->ctx, err, STITCH_E_INTERNAL, "%s: kernel %s is not in the image", step->place, k->name);
    for (size_t i = 0; i < k->arg_count; i++) {
        if ((rc = encode_arg(x, plan, step, i, &k->args[i], &x->arg_values[i], err)) != STITCH_OK)
            return rc;
        x->arg_pointers[i] = x->arg_values[i].bytes;
    }
    CUfunction f = x->module.kernels[index];
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config = {
        .gridDimX = (unsigned)v.grid[0],
        .gridDimY = (unsigned)v.grid[1],
        .gridDimZ = (unsigned)v.grid[2],
        .blockDimX = (unsigned)v.block[0],
        .blockDimY = (unsigned)v.block[1],
        .blockDimZ = (unsigned)v.block[2],
        .sharedMemBytes = (unsigned)v.shared,
        .hStream = stream,
        .attrs = attributes,
    };
    memset(attributes, 0, sizeof(attributes));
    if (k->cluster_rank) {
        CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        a->value.clusterDim.x = (unsigned)v.cluster[0];
        a->value.clusterDim.y = (unsigned)v.cluster[1];
        a->value.clusterDim.z = (unsigned)v.cluster[2];
        if (v.cluster[0] * v.cluster[1] * v.cluster[2] >
            8) { /* what every device of the kind can do without being asked */
            CUresult r = drv->FuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
            if ((rc = stitch__cu_checkf(x->dev, r, err, "%s: a cluster of more than 8 blocks", step->place)) !=
                STITCH_OK)
                return rc;
        }
    }
    if (k->cooperative) {
        CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        a->value.cooperative = 1;
    }
    if (k->pdl) {
        CUlaunchAttribute *a = &attributes[config.numAttrs++];
        a->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        a->value.programmaticStreamSerializationAllowed = 1;
    }
    x->encoded++;
    return stitch__cu_checkf(x->dev, drv->LaunchKernelEx(&config, f, x->arg_pointers, NULL), err, "%s: launch of %s",
                             step->place, k->name);
}

/* ---- copies, fills, operators ---- */

static int encode_copy(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                       stitch_error **err)
{
    const stitch__copy_step *c = step->u.copy;
    stitch__range from, to;
    int64_t count;

    if (!stitch__eval_ref(&x->session, step, "copy.from", &c->from, &from) ||
        !stitch__eval_ref(&x->session, step, "copy.to", &c->to, &to) ||
        !stitch__eval_count(&x->session, step, c->count, &from, &count))
        return stitch__encode_failed(x, err);
    if (!count) /* the driver takes no empty nodes into a graph */
        return STITCH_OK;
    size_t bytes = (size_t)count * stitch_dtype_size(x->doc->tensors[from.tensor].dtype);
    CUresult r = x->dev->drv->MemcpyDtoDAsync(stitch__encode_address(x, plan, &to),
                                              stitch__encode_address(x, plan, &from), bytes, stream);
    x->encoded++;
    return stitch__cu_checkf(x->dev, r, err, "%s: copy", step->place);
}

/* The bits of a fill's value. */
static bool fill_bits(int dtype, const stitch__fill_step *f, uint64_t *bits)
{
    double real = f->is_real ? f->value : (double)f->integer;
    float narrow = (float)real;
    uint32_t word;
    switch (dtype) {
    case STITCH_DTYPE_F64: memcpy(bits, &real, 8); return true;
    case STITCH_DTYPE_F32:
    case STITCH_DTYPE_TF32:
        memcpy(&word, &narrow, 4);
        *bits = word;
        return true;
    case STITCH_DTYPE_F16: *bits = stitch__f16_bits(real); return true;
    case STITCH_DTYPE_BF16: *bits = stitch__bf16_bits(real); return true;
    case STITCH_DTYPE_F8E4M3:
    case STITCH_DTYPE_F8E5M2: *bits = 0; return real == 0;
    case STITCH_DTYPE_BOOL: *bits = real != 0; return true;
    default: *bits = f->is_real ? (uint64_t)(int64_t)real : (uint64_t)f->integer; return true;
    }
}

static int encode_fill(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                       stitch_error **err)
{
    const stitch__fill_step *f = step->u.fill;
    const stitch__driver *drv = x->dev->drv;
    stitch__range range;
    int64_t count;
    uint64_t bits;
    CUresult r;

    if (!stitch__eval_ref(&x->session, step, "fill.buffer", &f->buffer, &range) ||
        !stitch__eval_count(&x->session, step, f->count, &range, &count))
        return stitch__encode_failed(x, err);
    if (!count)
        return STITCH_OK;
    int dtype = x->doc->tensors[range.tensor].dtype;
    if (!fill_bits(dtype, f, &bits))
        return stitch__err(x->ctx, err, STITCH_E_UNSUPPORTED, "%s.fill.value: only 0 can be filled into %s",
                           step->place, stitch_dtype_name(dtype));
    CUdeviceptr at = stitch__encode_address(x, plan, &range);
    x->encoded++;
    switch (stitch_dtype_size(dtype)) {
    case 1: r = drv->MemsetD8Async(at, (unsigned char)bits, (size_t)count, stream); break;
    case 2: r = drv->MemsetD16Async(at, (unsigned short)bits, (size_t)count, stream); break;
    case 4: r = drv->MemsetD32Async(at, (unsigned)bits, (size_t)count, stream); break;
    default:
        if (bits >> 32 == (bits & UINT32_MAX)) {
            r = drv->MemsetD32Async(at, (unsigned)bits, (size_t)count * 2, stream);
        } else {
            void *args[] = {&at, &bits, &count};
            unsigned blocks = count < 1024 * 256 ? (unsigned)((count + 255) / 256) : 1024;
            r = drv->LaunchKernel(x->helpers.kernels[x->helper_fill], blocks, 1, 1, 256, 1, 1, 0, stream, args, NULL);
        }
    }
    return stitch__cu_checkf(x->dev, r, err, "%s: fill", step->place);
}

static int encode_op(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                     stitch_error **err)
{
    const stitch__op_step *o = step->u.op;
    const stitch_op *op = NULL;
    stitch_op_arg *args = (stitch_op_arg *)(void *)x->arg_values; /* room for the step with the most arguments */
    char field[32];

    for (size_t i = 0; i < x->op_count && !op; i++)
        op = strcmp(x->ops[i].name, o->name) == 0 ? &x->ops[i] : NULL;
    if (!op)
        return stitch__err(x->ctx, err, STITCH_E_NOT_FOUND, "%s: the host registered no operator '%s'", step->place,
                           o->name);
    for (size_t i = 0; i < o->arg_count; i++) {
        const stitch__arg *a = &o->args[i];
        stitch__range range;
        memset(&args[i], 0, sizeof(args[i]));
        snprintf(field, sizeof(field), "args[%zu]", i);
        if (a->kind == STITCH__ARG_POINTER) {
            if (!stitch__eval_ref(&x->session, step, field, &a->ref, &range))
                return stitch__encode_failed(x, err);
            const stitch__tensor *t = &x->doc->tensors[range.tensor];
            args[i].ptr = stitch__encode_address(x, plan, &range);
            args[i].dtype = t->dtype;
            args[i].is_pointer = 1;
            args[i].bytes = (t->elements - range.offset) * stitch_dtype_size(t->dtype);
        } else {
            args[i].dtype = stitch__scalar_dtype(a->scalar);
            args[i].real = a->real;
            if (a->expr && !stitch__eval(&x->session, step, field, a->expr, &args[i].integer))
                return stitch__encode_failed(x, err);
            if (a->expr)
                args[i].real = (double)args[i].integer;
        }
    }
    x->encoded++;
    x->operators++;
    int rc = op->fn(stream, args, o->arg_count, o->attrs ? o->attrs : "{}", op->userdata);
    return rc ? stitch__err(x->ctx, err, rc < 0 ? rc : STITCH_E_INTERNAL, "%s: the host's operator '%s' failed: %s",
                            step->place, o->name, stitch_status_text(rc))
              : STITCH_OK;
}

/* ---- lists ---- */

/* Operators of the host may have launched nothing and are not counted. */
static int pause_here(stitch_executor *x)
{
    const stitch__pause *p = x->pause;
    if (!p || x->in_graph || x->encoded - x->operators < p->after)
        return STITCH_OK;
    x->pause = NULL;
    return p->fn(p->userdata);
}

static int encode_step(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                       size_t lane, stitch_error **err)
{
    int64_t count;
    int rc = STITCH_OK;

    if (step == x->skip)
        return STITCH_OK;
    if ((rc = pause_here(x)) != STITCH_OK)
        return rc;
    switch (step->kind) {
    case STITCH__STEP_KERNEL: return encode_kernel(x, plan, step, stream, err);
    case STITCH__STEP_GEMM: return stitch__encode_gemm(x, plan, step, stream, lane, err);
    case STITCH__STEP_COPY: return encode_copy(x, plan, step, stream, err);
    case STITCH__STEP_FILL: return encode_fill(x, plan, step, stream, err);
    case STITCH__STEP_OP: return encode_op(x, plan, step, stream, err);
    default: break;
    }
    const stitch__repeat_step *r = step->u.repeat;
    if (!stitch__eval(&x->session, step, "repeat.count", r->count, &count))
        return stitch__encode_failed(x, err);
    for (int64_t i = 0; i < count && rc == STITCH_OK; i++) {
        stitch__loop_set(&x->session, r->symbol, i);
        rc = stitch__encode_steps(x, plan, &r->steps, stream, lane, err);
    }
    stitch__loop_clear(&x->session, r->symbol);
    return rc;
}

/* Where the steps of a list with dependencies go. */
typedef struct lanes {
    uint32_t last[STITCH__MAX_LANES]; /* the last step of each lane, + 1; 0: it has none */
    uint32_t lane_of[MAX_GRAPH_STEPS];
    size_t count, next;
} lanes;

/* The lane of a step that this one waits for, if nothing else has continued there; else a free one; else the next. */
static size_t pick_lane(lanes *l, const stitch__step *step)
{
    for (size_t e = 0; e < step->after_count; e++) {
        uint32_t lane = l->lane_of[step->after_index[e]];
        if (l->last[lane] == step->after_index[e] + 1)
            return lane;
    }
    for (size_t k = 0; k < l->count; k++) {
        if (!l->last[k])
            return k;
    }
    return l->next++ % l->count;
}

static int encode_in_lane(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, uint32_t index,
                          CUstream stream, lanes *l, stitch_error **err)
{
    const stitch__driver *drv = x->dev->drv;
    CUevent *done = x->events + 1;
    size_t mine = pick_lane(l, step);
    CUstream s = mine == 0 ? stream : x->lanes[mine];
    CUresult r = mine && !l->last[mine] ? drv->StreamWaitEvent(s, x->events[0], 0) : CUDA_SUCCESS;
    int rc;

    for (size_t e = 0; e < step->after_count && r == CUDA_SUCCESS; e++) {
        if (l->lane_of[step->after_index[e]] != mine)
            r = drv->StreamWaitEvent(s, done[step->after_index[e]], 0);
    }
    if ((rc = stitch__cu_checkf(x->dev, r, err, "%s: cuStreamWaitEvent", step->place)) != STITCH_OK)
        return rc;
    rc = encode_step(x, plan, step, s, mine, err);
    /* Also after a failure: what the lane has got must be waited for. */
    r = drv->EventRecord(done[index], s);
    if (rc == STITCH_OK)
        rc = stitch__cu_checkf(x->dev, r, err, "%s: cuEventRecord", step->place);
    l->last[mine] = index + 1;
    l->lane_of[index] = (uint32_t)mine;
    return rc;
}

/* A list with dependencies: steps go to lanes; events carry the edges from lane to lane. Everything joins the stream
 * again at the end, also after a failure: no work of the program may go on where the host does not know of it. */
static int encode_graph(stitch_executor *x, const stitch__exec_plan *plan, const stitch__steps *list, CUstream stream,
                        stitch_error **err)
{
    const stitch__driver *drv = x->dev->drv;
    lanes l;
    int rc = stitch__cu_check(x->dev, drv->EventRecord(x->events[0], stream), err, "cuEventRecord");

    memset(&l, 0, sizeof(l));
    l.count = x->lane_count;
    for (size_t k = 0; k < list->count && rc == STITCH_OK; k++)
        rc = encode_in_lane(x, plan, &list->items[list->order[k]], list->order[k], stream, &l, err);
    for (size_t k = 1; k < l.count; k++) {
        CUresult r = l.last[k] ? drv->StreamWaitEvent(stream, x->events[l.last[k]], 0) : CUDA_SUCCESS;
        if (rc == STITCH_OK)
            rc = stitch__cu_check(x->dev, r, err, "cuStreamWaitEvent");
    }
    return rc;
}

int stitch__encode_steps(stitch_executor *x, const stitch__exec_plan *plan, const stitch__steps *list, CUstream stream,
                         size_t lane, stitch_error **err)
{
    if (list->graph && !x->in_graph && list->count < x->event_count) {
        x->in_graph = true; /* lists inside share the events and lanes: they run in order, in their step's lane */
        int rc = encode_graph(x, plan, list, stream, err);
        x->in_graph = false;
        return rc;
    }
    for (size_t i = 0; i < list->count; i++) {
        int rc = encode_step(x, plan, &list->items[list->graph ? list->order[i] : i], stream, lane, err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

/* ---- set-up ---- */

/* The longest list with dependencies (up to what encode_graph() takes; longer ones run in order), and the most
 * arguments. */
static void measure(const stitch__steps *list, size_t *steps, size_t *args)
{
    if (list->graph && list->count <= MAX_GRAPH_STEPS && list->count > *steps)
        *steps = list->count;
    for (size_t i = 0; i < list->count; i++) {
        const stitch__step *s = &list->items[i];
        size_t n = s->kind == STITCH__STEP_KERNEL ? s->u.kernel->arg_count
                   : s->kind == STITCH__STEP_OP   ? s->u.op->arg_count
                                                  : 0;
        *args = n > *args ? n : *args;
        if (s->kind == STITCH__STEP_REPEAT)
            measure(&s->u.repeat->steps, steps, args);
    }
}

int stitch__encode_setup(stitch_executor *x, stitch_error **err)
{
    const stitch__driver *drv = x->dev->drv;
    stitch__device *dev = x->dev;
    size_t steps = 0, args = 0;
    int rc = STITCH_OK;

    measure(&x->doc->prepare, &steps, &args);
    measure(&x->doc->run, &steps, &args);
    STITCH__CU(drv->StreamCreate(&x->capture, CU_STREAM_NON_BLOCKING));
    STITCH__CU(drv->EventCreate(&x->earlier, CU_EVENT_DISABLE_TIMING));
    x->lane_count = steps ? STITCH__MAX_LANES : 1;
    for (size_t i = 1; i < x->lane_count; i++)
        STITCH__CU(drv->StreamCreate(&x->lanes[i], CU_STREAM_NON_BLOCKING));
    x->arg_pointers = stitch__calloc(x->ctx, args + 1, sizeof(*x->arg_pointers));
    /* aligned by hand: tensor maps want 64 bytes */
    char *values = stitch__calloc(x->ctx, args + 2, sizeof(stitch__arg_value));
    x->arg_block = values;
    x->arg_values = values ? (stitch__arg_value *)(((uintptr_t)values + 63) & ~(uintptr_t)63) : NULL;
    if (steps)
        x->events = stitch__calloc(x->ctx, steps + 1, sizeof(*x->events));
    if (!x->arg_pointers || !x->arg_values || (steps && !x->events)) {
        rc = stitch__err_nomem(x->ctx, err);
        goto out;
    }
    for (size_t i = 0; steps && i < steps + 1; i++) {
        STITCH__CU(drv->EventCreate(&x->events[i], CU_EVENT_DISABLE_TIMING));
        x->event_count = i + 1;
    }
out:
    return rc;
}

void stitch__encode_teardown(stitch_executor *x)
{
    const stitch__driver *drv = x->dev->drv;
    for (size_t i = 0; i < x->event_count; i++)
        drv->EventDestroy(x->events[i]);
    for (size_t i = 1; i < x->lane_count; i++) {
        if (x->lanes[i])
            drv->StreamDestroy(x->lanes[i]);
    }
    if (x->earlier)
        drv->EventDestroy(x->earlier);
    if (x->capture)
        drv->StreamDestroy(x->capture);
    stitch_free(x->events);
    stitch_free(x->arg_pointers);
    stitch_free(x->arg_block);
}
