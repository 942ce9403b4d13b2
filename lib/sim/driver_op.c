/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: the operations that streams run and graphs hold.
 */
#include "sim/driver.h"

/* ---- lifetime ---------------------------------------------------------------------------------------------------- */

void stitch__drv_op_clear(stitch__drv_op *op)
{
    if (op->kind == STITCH__DRV_OP_KERNEL) {
        stitch__drv_unref(op->kernel.function);
        stitch_free(op->kernel.params);
        stitch_free(op->kernel.pointers);
    }
    *op = (stitch__drv_op){.kind = STITCH__DRV_OP_EMPTY};
}

CUresult stitch__drv_op_copy(stitch__drv_op *dst, const stitch__drv_op *src)
{
    *dst = *src;
    if (src->kind != STITCH__DRV_OP_KERNEL)
        return CUDA_SUCCESS;
    stitch__drv_ref(dst->kernel.function);
    dst->kernel.params = NULL;
    dst->kernel.pointers = NULL;
    CUresult r = stitch__drv_kernel_params(&dst->kernel, src->kernel.pointers, NULL);
    if (r)
        stitch__drv_op_clear(dst);
    return r;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* One side of a copy. Row (y, z) starts at start + (z * slice + y) * pitch. */
typedef struct side {
    bool device;
    uint64_t start;
    size_t pitch, slice;
} side;

static CUresult make_side(side *s, CUmemorytype type, const void *host, CUdeviceptr device, size_t x, size_t y,
                          size_t z, size_t lod, size_t pitch, size_t height, const CUDA_MEMCPY3D *c)
{
    switch ((int)type) {
    case CU_MEMORYTYPE_HOST: s->start = (uintptr_t)host; break;
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED: s->start = device; break;
    default: return type == CU_MEMORYTYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    }
    s->device = type == CU_MEMORYTYPE_DEVICE || (type == CU_MEMORYTYPE_UNIFIED && stitch__drv_is_device(device));
    if (lod || !s->start || (type == CU_MEMORYTYPE_HOST && stitch__drv_is_device(s->start)))
        return CUDA_ERROR_INVALID_VALUE;
    s->pitch = pitch ? pitch : x + c->WidthInBytes;
    s->slice = height ? height : y + c->Height;
    if (s->pitch < c->WidthInBytes || s->pitch - c->WidthInBytes < x || s->slice < c->Height ||
        s->slice - c->Height < y)
        return CUDA_ERROR_INVALID_VALUE;
    /* The address behind the last byte must not overflow; then nothing in between does. */
    uint64_t rows, bytes, end;
    if (__builtin_mul_overflow((uint64_t)z + c->Depth, (uint64_t)s->slice, &rows) ||
        __builtin_mul_overflow(rows, (uint64_t)s->pitch, &bytes) || __builtin_add_overflow(bytes, s->start, &end))
        return CUDA_ERROR_INVALID_VALUE;
    s->start += ((uint64_t)z * s->slice + y) * s->pitch + x;
    return CUDA_SUCCESS;
}

static CUresult copy_sides(const CUDA_MEMCPY3D *c, side *src, side *dst)
{
    CUresult r = make_side(src, c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ, c->srcLOD,
                           c->srcPitch, c->srcHeight, c);
    if (r)
        return r;
    return make_side(dst, c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ, c->dstLOD,
                     c->dstPitch, c->dstHeight, c);
}

static bool copy_empty(const CUDA_MEMCPY3D *c)
{
    return c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0;
}

/* Rows that follow each other without gaps on both sides are one piece. */
static void copy_pieces(const CUDA_MEMCPY3D *c, const side *src, const side *dst, size_t *rows, size_t *slices,
                        size_t *bytes)
{
    *rows = c->Height;
    *slices = c->Depth;
    *bytes = c->WidthInBytes;
    if (src->pitch == *bytes && dst->pitch == *bytes) {
        *bytes *= *rows;
        *rows = 1;
    }
}

static uint64_t row_of(const side *s, size_t y, size_t z)
{
    return s->start + ((uint64_t)z * s->slice + y) * s->pitch;
}

static CUresult copy_check(stitch__drv_context *ctx, const CUDA_MEMCPY3D *c)
{
    side src, dst;
    size_t rows, slices, bytes;
    if (copy_empty(c))
        return CUDA_SUCCESS;
    CUresult r = copy_sides(c, &src, &dst);
    if (r)
        return r;
    copy_pieces(c, &src, &dst, &rows, &slices, &bytes);
    for (size_t z = 0; z < slices; z++) {
        for (size_t y = 0; y < rows; y++) {
            if ((src.device && !stitch__sim_memory_live(ctx->mem, row_of(&src, y, z), bytes)) ||
                (dst.device && !stitch__sim_memory_live(ctx->mem, row_of(&dst, y, z), bytes)))
                return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

static void copy_run(stitch__drv_context *ctx, const CUDA_MEMCPY3D *c)
{
    side src, dst;
    size_t rows, slices, bytes;
    if (copy_empty(c) || copy_sides(c, &src, &dst))
        return;
    copy_pieces(c, &src, &dst, &rows, &slices, &bytes);
    for (size_t z = 0; z < slices; z++) {
        for (size_t y = 0; y < rows; y++) {
            uint64_t from = row_of(&src, y, z), to = row_of(&dst, y, z);
            if (src.device && dst.device)
                stitch__sim_memory_move(ctx->mem, to, ctx->mem, from, bytes);
            else if (src.device)
                stitch__sim_memory_load(ctx->mem, from, (void *)(uintptr_t)to, bytes);
            else if (dst.device)
                stitch__sim_memory_store(ctx->mem, to, (const void *)(uintptr_t)from, bytes);
            else
                memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
        }
    }
}

/* ---- fills ------------------------------------------------------------------------------------------------------- */

static CUresult fill_check(stitch__drv_context *ctx, const CUDA_MEMSET_NODE_PARAMS *f)
{
    if ((f->elementSize != 1 && f->elementSize != 2 && f->elementSize != 4) || f->dst % f->elementSize)
        return CUDA_ERROR_INVALID_VALUE;
    if (f->width == 0 || f->height == 0)
        return CUDA_SUCCESS;
    uint64_t bytes, rows, end;
    if (__builtin_mul_overflow((uint64_t)f->width, (uint64_t)f->elementSize, &bytes) ||
        (f->height > 1 && (f->pitch < bytes || f->pitch % f->elementSize)) ||
        __builtin_mul_overflow((uint64_t)f->height - 1, (uint64_t)f->pitch, &rows) ||
        __builtin_add_overflow(rows, f->dst, &end) || __builtin_add_overflow(end, bytes, &end))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t y = 0; y < f->height; y++) {
        if (!stitch__sim_memory_live(ctx->mem, f->dst + y * f->pitch, bytes))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static void fill_run(stitch__drv_context *ctx, const CUDA_MEMSET_NODE_PARAMS *f)
{
    for (size_t y = 0; y < f->height; y++)
        stitch__sim_memory_fill(ctx->mem, f->dst + y * f->pitch, f->value, f->elementSize, f->width);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static CUresult gemm_run(stitch__drv_context *ctx, const stitch__sim_gemm_args *args, stitch_error **err)
{
    stitch__sim_report finding;
    bool found = false;
    stitch_error *own = NULL;
    CUresult r = CUDA_SUCCESS;
    const stitch__sim_options *o = &ctx->options;
    const stitch__sim_limit limit = {o->cancel, o->cancel_too, o->deadline_ns};
    int rc = stitch__sim_gemm(args, ctx->mem, &limit, &finding, &found, &own);
    switch (rc) {
    case STITCH_OK: break;
    case STITCH_E_FAULT: r = CUDA_ERROR_ILLEGAL_ADDRESS; break;
    case STITCH_E_NOMEM: r = CUDA_ERROR_OUT_OF_MEMORY; break;
    case STITCH_E_CANCELLED:
    case STITCH_E_TIMEOUT: r = CUDA_ERROR_LAUNCH_TIMEOUT; break;
    case STITCH_E_UNSUPPORTED: r = CUDA_ERROR_NOT_SUPPORTED; break;
    default: r = CUDA_ERROR_INVALID_VALUE; break;
    }
    bool wanted = found && (finding.kind != STITCH__SIM_UNINITIALISED || (ctx->options.flags & STITCH__SIM_CHECK_INIT));
    if (wanted || r)
        stitch__drv_report(ctx, NULL, wanted ? &finding : NULL, r, rc ? stitch_error_message(own) : "");
    if (rc == STITCH_E_FAULT) {
        if (!ctx->options.keep_going)
            ctx->sticky = r;
        r = CUDA_SUCCESS; /* as for kernels: the calls that follow tell */
    }
    if (err && own) {
        stitch_error_free(*err);
        *err = own;
        own = NULL;
    }
    stitch_error_free(own);
    return r;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The context is unlocked meanwhile: the function may wait for a thread that uses it. It must not use the driver
 * itself, which real drivers refuse too. */
static CUresult host_run(stitch__drv_context *ctx, const CUDA_HOST_NODE_PARAMS *host)
{
    stitch__drv_thread *t = stitch__drv_this_thread();
    pthread_mutex_unlock(&ctx->lock);
    t->in_callback = true;
    host->fn(host->userData);
    t->in_callback = false;
    pthread_mutex_lock(&ctx->lock);
    return ctx->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

CUresult stitch__drv_op_check(stitch__drv_context *ctx, const stitch__drv_op *op)
{
    switch (op->kind) {
    case STITCH__DRV_OP_KERNEL: return stitch__drv_kernel_check(ctx, &op->kernel);
    case STITCH__DRV_OP_COPY: return copy_check(ctx, &op->copy);
    case STITCH__DRV_OP_FILL: return fill_check(ctx, &op->fill);
    case STITCH__DRV_OP_HOST: return op->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case STITCH__DRV_OP_EMPTY:
    case STITCH__DRV_OP_GEMM: break;
    }
    return CUDA_SUCCESS;
}

CUresult stitch__drv_op_run(stitch__drv_context *ctx, const stitch__drv_op *op, stitch_error **err)
{
    CUresult r = stitch__drv_op_check(ctx, op);
    if (r)
        return r;
    switch (op->kind) {
    case STITCH__DRV_OP_KERNEL: return stitch__drv_kernel_run(ctx, &op->kernel);
    case STITCH__DRV_OP_COPY: copy_run(ctx, &op->copy); break;
    case STITCH__DRV_OP_FILL: fill_run(ctx, &op->fill); break;
    case STITCH__DRV_OP_HOST: return host_run(ctx, &op->host);
    case STITCH__DRV_OP_GEMM: return gemm_run(ctx, &op->gemm, err);
    case STITCH__DRV_OP_EMPTY: break;
    }
    return CUDA_SUCCESS;
}

CUresult stitch__drv_submit(stitch__drv_stream *stream, stitch__drv_op *op, stitch_error **err)
{
    stitch__drv_context *ctx = stitch__drv_stream_context(stream);
    CUresult r;
    if (stream->capture) {
        r = stitch__drv_op_check(ctx, op);
        if (!r)
            r = stitch__drv_capture_add(stream, op);
    } else {
        r = stream == &ctx->legacy ? stitch__drv_capture_legacy(ctx) : CUDA_SUCCESS;
        if (!r)
            r = stitch__drv_op_run(ctx, op, err);
    }
    stitch__drv_op_clear(op);
    return r;
}
