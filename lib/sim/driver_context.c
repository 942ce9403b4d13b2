/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: contexts, the primary context of a device, and the stack of current contexts of a thread.
 */
#include <stdio.h>
#include <unistd.h>

#include "sim/driver.h"

/* Device addresses of a context. Far from where programs and their heaps lie on 64-bit systems, so that an address says
 * whether it is a device's, and whose. */
#define SLOT_BYTES (UINT64_C(1) << 40)

const stitch__drv_chip *stitch__drv_context_chip(const stitch__drv_context *ctx)
{
    return stitch__drv_chip_get(ctx->device);
}

static void destroy_context(stitch__drv_object *object)
{
    stitch__drv_context *ctx = (stitch__drv_context *)object;
    stitch__drv_nodes_clear(&ctx->legacy.tail);
    stitch__sim_memory_free(ctx->mem);
    if (ctx->slot >= 0)
        stitch__drv_slot_give(ctx->slot);
    pthread_mutex_destroy(&ctx->lock);
}

/* Findings that nobody took go with the context: they count functions, which count the context. */
static void default_state(stitch__drv_context *ctx)
{
    stitch__drv_reports_free(ctx->reports);
    ctx->reports = NULL;
    ctx->sticky = CUDA_SUCCESS;
    ctx->options = (stitch__sim_options){.flags = STITCH__SIM_CHECK_ALL};
    memset(ctx->limits, 0, sizeof(ctx->limits));
    ctx->limits[CU_LIMIT_STACK_SIZE] = 1024;
    ctx->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    ctx->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    ctx->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

/* Half of the memory that this process may have: who fills more than that for a program takes the host's. */
static uint64_t host_memory(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *f = fopen("/sys/fs/cgroup/memory.max", "re"); /* of a container; "max" is no number */
    unsigned long long most;

    if (f && fscanf(f, "%llu", &most) == 1 && most < bytes)
        bytes = most;
    if (f)
        fclose(f);
    return bytes / 2;
}

static CUresult context_make(stitch__drv_context **out, int device, unsigned flags, bool primary)
{
    *out = NULL;
    stitch__drv_context *ctx = stitch__drv_new(sizeof(*ctx), STITCH__DRV_CONTEXT, NULL, destroy_context);
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&ctx->lock, NULL);
    ctx->device = device;
    ctx->flags = flags;
    ctx->primary = primary;
    ctx->legacy.obj.kind = STITCH__DRV_STREAM;
    ctx->legacy.obj.ctx = ctx;
    ctx->legacy.id = stitch__drv_next_id();
    default_state(ctx);
    ctx->memory = host_memory();
    if (ctx->memory > stitch__drv_context_chip(ctx)->memory)
        ctx->memory = stitch__drv_context_chip(ctx)->memory;
    ctx->slot = stitch__drv_slot_take();
    uint64_t base = STITCH__SIM_GLOBAL_BASE + (uint64_t)ctx->slot * SLOT_BYTES;
    if (ctx->slot < 0 || stitch__sim_memory_new_range(&ctx->mem, base, base + SLOT_BYTES, NULL)) {
        stitch__drv_retire(ctx);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = ctx;
    return CUDA_SUCCESS;
}

/* Destroys: takes the lock itself, retires. */
static void context_end(stitch__drv_context *ctx)
{
    stitch__drv_ref(ctx);
    pthread_mutex_lock(&ctx->lock);
    ctx->dead = true;
    stitch__drv_capture_end_all(ctx);
    stitch__drv_retire_all(ctx);
    stitch__sim_memory_reset(ctx->mem);
    default_state(ctx);
    stitch__drv_retire(ctx);
    stitch__drv_leave(ctx);
}

bool stitch__drv_is_device(uint64_t address)
{
    return address >= STITCH__SIM_GLOBAL_BASE && address < STITCH__SIM_GLOBAL_BASE + STITCH__DRV_SLOTS * SLOT_BYTES;
}

/* ---- entering ---------------------------------------------------------------------------------------------------- */

CUresult stitch__drv_ready(void)
{
    if (!stitch__drv_initialised(false))
        return CUDA_ERROR_NOT_INITIALIZED;
    return stitch__drv_this_thread()->in_callback ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult stitch__drv_lock(stitch__drv_context *ctx)
{
    pthread_mutex_lock(&ctx->lock);
    if (!ctx->dead)
        return CUDA_SUCCESS;
    pthread_mutex_unlock(&ctx->lock);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

void stitch__drv_leave(stitch__drv_context *ctx)
{
    pthread_mutex_unlock(&ctx->lock);
    stitch__drv_unref(ctx);
}

/* The thread's context, counted. */
static CUresult current(stitch__drv_context **out)
{
    *out = NULL;
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    stitch__drv_thread *t = stitch__drv_this_thread();
    if (t->depth == 0 || t->stack[t->depth - 1] == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = stitch__drv_find(t->stack[t->depth - 1], STITCH__DRV_CONTEXT);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult stitch__drv_enter_failed(stitch__drv_context **out)
{
    CUresult r = current(out);
    if (r)
        return r;
    r = stitch__drv_lock(*out);
    if (r) {
        stitch__drv_unref(*out);
        *out = NULL;
    }
    return r;
}

CUresult stitch__drv_enter(stitch__drv_context **out)
{
    CUresult r = stitch__drv_enter_failed(out);
    if (!r && (*out)->sticky) {
        r = (*out)->sticky;
        stitch__drv_leave(*out);
        *out = NULL;
    }
    return r;
}

void *stitch__drv_object_enter(uint64_t handle, stitch__drv_kind kind, CUresult *result)
{
    CUresult r = stitch__drv_ready();
    stitch__drv_object *o = r ? NULL : stitch__drv_find(handle, kind);
    if (!r)
        r = o ? stitch__drv_lock(o->ctx) : CUDA_ERROR_INVALID_HANDLE;
    if (!r && o->ctx->sticky) {
        r = o->ctx->sticky;
        pthread_mutex_unlock(&o->ctx->lock);
    }
    if (r)
        stitch__drv_unref(o);
    *result = r;
    return r ? NULL : o;
}

void stitch__drv_object_leave(void *object)
{
    stitch__drv_object *o = object;
    pthread_mutex_unlock(&o->ctx->lock);
    stitch__drv_unref(o);
}

/* ---- primary contexts -------------------------------------------------------------------------------------------- */

CUresult CUDAAPI SIM(cuDevicePrimaryCtxRetain)(CUcontext *pctx, CUdevice dev)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stitch__drv_chip_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned *retained, *flags;
    stitch__drv_context *fresh = NULL;
    for (;;) {
        stitch__drv_state_lock();
        stitch__drv_context **primary = stitch__drv_primary(dev, &retained, &flags);
        if (!*primary && fresh) {
            *primary = fresh;
            fresh = NULL;
        }
        if (*primary) {
            ++*retained;
            *pctx = DRV_HANDLE(CUcontext, *primary);
            stitch__drv_state_unlock();
            break;
        }
        unsigned wanted = *flags;
        stitch__drv_state_unlock();
        r = context_make(&fresh, dev, wanted, true);
        if (r)
            return r;
    }
    if (fresh) /* another thread was faster */
        context_end(fresh);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuDevicePrimaryCtxRelease_v2)(CUdevice dev)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!stitch__drv_chip_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned *retained, *flags;
    stitch__drv_context *last = NULL;
    stitch__drv_state_lock();
    stitch__drv_context **primary = stitch__drv_primary(dev, &retained, &flags);
    bool held = *primary && *retained > 0;
    if (held && --*retained == 0) {
        last = *primary;
        *primary = NULL;
    }
    stitch__drv_state_unlock();
    if (last)
        context_end(last);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI SIM(cuDevicePrimaryCtxRelease)(CUdevice dev)
{
    return SIM(cuDevicePrimaryCtxRelease_v2)(dev);
}

/* The context keeps its handle, and those who retained it keep their hold; what it held is gone, a fault too. */
CUresult CUDAAPI SIM(cuDevicePrimaryCtxReset_v2)(CUdevice dev)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!stitch__drv_chip_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned *retained, *flags;
    stitch__drv_state_lock();
    stitch__drv_context *ctx = *stitch__drv_primary(dev, &retained, &flags);
    if (ctx)
        stitch__drv_ref(ctx);
    stitch__drv_state_unlock();
    if (!ctx)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&ctx->lock);
    stitch__drv_capture_end_all(ctx);
    stitch__drv_retire_all(ctx);
    stitch__sim_memory_reset(ctx->mem);
    ctx->backing_bytes = 0;
    default_state(ctx);
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuDevicePrimaryCtxReset)(CUdevice dev)
{
    return SIM(cuDevicePrimaryCtxReset_v2)(dev);
}

CUresult CUDAAPI SIM(cuDevicePrimaryCtxSetFlags_v2)(CUdevice dev, unsigned int flags)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!stitch__drv_chip_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned *retained, *at;
    stitch__drv_state_lock();
    stitch__drv_primary(dev, &retained, &at);
    *at = flags; /* for the next context that is made */
    stitch__drv_state_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuDevicePrimaryCtxSetFlags)(CUdevice dev, unsigned int flags)
{
    return SIM(cuDevicePrimaryCtxSetFlags_v2)(dev, flags);
}

CUresult CUDAAPI SIM(cuDevicePrimaryCtxGetState)(CUdevice dev, unsigned int *flags, int *active)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stitch__drv_chip_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    unsigned *retained, *at;
    stitch__drv_state_lock();
    *active = *stitch__drv_primary(dev, &retained, &at) != NULL;
    *flags = *at;
    stitch__drv_state_unlock();
    return CUDA_SUCCESS;
}

/* ---- own contexts ------------------------------------------------------------------------------------------------ */

CUresult CUDAAPI SIM(cuCtxCreate_v2)(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!pctx || (flags & ~(unsigned)CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    if (!stitch__drv_chip_get(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    stitch__drv_thread *t = stitch__drv_this_thread();
    stitch__drv_context *ctx;
    if (t->depth == STITCH__DRV_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = context_make(&ctx, dev, flags, false);
    if (r)
        return r;
    t->stack[t->depth++] = ctx->obj.handle;
    *pctx = DRV_HANDLE(CUcontext, ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxCreate_v3)(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                                     unsigned int flags, CUdevice dev)
{
    if (numParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return SIM(cuCtxCreate_v2)(pctx, flags, dev);
}

#if CUDA_VERSION >= 12050
CUresult CUDAAPI SIM(cuCtxCreate_v4)(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                                     CUdevice dev)
{
    if (ctxCreateParams && ctxCreateParams->numExecAffinityParams != 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (ctxCreateParams && ctxCreateParams->cigParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    return SIM(cuCtxCreate_v2)(pctx, flags, dev);
}
#endif

CUresult CUDAAPI SIM(cuCtxDestroy_v2)(CUcontext ctx)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    stitch__drv_context *c = DRV_FIND(stitch__drv_context, CONTEXT, ctx);
    if (!c)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (c->primary) {
        stitch__drv_unref(c);
        return CUDA_ERROR_INVALID_VALUE;
    }
    /* Current in this thread: popped. Current elsewhere: that thread's calls fail with CONTEXT_IS_DESTROYED. */
    stitch__drv_thread *t = stitch__drv_this_thread();
    if (t->depth > 0 && t->stack[t->depth - 1] == c->obj.handle)
        t->depth--;
    context_end(c);
    stitch__drv_unref(c);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxDestroy)(CUcontext ctx)
{
    return SIM(cuCtxDestroy_v2)(ctx);
}

CUresult CUDAAPI SIM(stitchSimContextNew)(CUcontext *ctx, CUdevice device)
{
    CUcontext popped;
    CUresult r = SIM(cuCtxCreate_v2)(ctx, 0, device);
    return r ? r : SIM(cuCtxPopCurrent_v2)(&popped);
}

CUresult CUDAAPI SIM(stitchSimContextFree)(CUcontext ctx)
{
    return SIM(cuCtxDestroy_v2)(ctx);
}

CUresult CUDAAPI SIM(stitchSimRecover)(void)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter_failed(&ctx);
    if (r)
        return r;
    ctx->sticky = CUDA_SUCCESS;
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

/* CUDA_SUCCESS if the handle is NULL or a live context. */
static CUresult check_handle(CUcontext ctx)
{
    CUresult r = stitch__drv_ready();
    if (r || !ctx)
        return r;
    stitch__drv_context *c = DRV_FIND(stitch__drv_context, CONTEXT, ctx);
    stitch__drv_unref(c);
    return c ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI SIM(cuCtxSetCurrent)(CUcontext ctx)
{
    CUresult r = check_handle(ctx);
    if (r)
        return r;
    stitch__drv_thread *t = stitch__drv_this_thread();
    if (!ctx) {
        if (t->depth > 0)
            t->depth--;
        return CUDA_SUCCESS;
    }
    if (t->depth == 0)
        t->depth = 1;
    t->stack[t->depth - 1] = (uint64_t)(uintptr_t)ctx;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxGetCurrent)(CUcontext *pctx)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_thread *t = stitch__drv_this_thread();
    *pctx = t->depth > 0 ? (CUcontext)(uintptr_t)t->stack[t->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxPushCurrent_v2)(CUcontext ctx)
{
    CUresult r = check_handle(ctx);
    if (r)
        return r;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    stitch__drv_thread *t = stitch__drv_this_thread();
    if (t->depth == STITCH__DRV_STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    t->stack[t->depth++] = (uint64_t)(uintptr_t)ctx;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxPushCurrent)(CUcontext ctx)
{
    return SIM(cuCtxPushCurrent_v2)(ctx);
}

CUresult CUDAAPI SIM(cuCtxPopCurrent_v2)(CUcontext *pctx)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    stitch__drv_thread *t = stitch__drv_this_thread();
    if (t->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    t->depth--;
    if (pctx)
        *pctx = (CUcontext)(uintptr_t)t->stack[t->depth];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxPopCurrent)(CUcontext *pctx)
{
    return SIM(cuCtxPopCurrent_v2)(pctx);
}

/* ---- properties -------------------------------------------------------------------------------------------------- */

CUresult CUDAAPI SIM(cuCtxGetDevice)(CUdevice *device)
{
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = current(&ctx);
    if (r)
        return r;
    *device = ctx->device;
    stitch__drv_unref(ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxGetFlags)(unsigned int *flags)
{
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    *flags = ctx->flags;
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuCtxGetApiVersion)(CUcontext ctx, unsigned int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = check_handle(ctx);
    if (!r)
        *version = 3020;
    return r;
}

CUresult CUDAAPI SIM(cuCtxSynchronize)(void)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = stitch__drv_capture_unsafe();
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuCtxSetLimit)(CUlimit limit, size_t value)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    switch ((int)limit) {
    case CU_LIMIT_STACK_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: ctx->limits[limit] = value; break;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: {
        size_t most = (size_t)stitch__drv_context_chip(ctx)->l2_persisting;
        ctx->limits[limit] = value < most ? value : most;
        break;
    }
    default:
        r = (int)limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNSUPPORTED_LIMIT;
        break;
    }
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuCtxGetLimit)(size_t *pvalue, CUlimit limit)
{
    if (!pvalue)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    if ((int)limit >= 0 && limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE && limit != CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH &&
        limit != CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT)
        *pvalue = ctx->limits[limit];
    else
        r = (int)limit < 0 || limit >= CU_LIMIT_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNSUPPORTED_LIMIT;
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuCtxGetStreamPriorityRange)(int *leastPriority, int *greatestPriority)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

/* There is no cache to reset. */
CUresult CUDAAPI SIM(cuCtxResetPersistingL2Cache)(void)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (!r)
        stitch__drv_leave(ctx);
    return r;
}
