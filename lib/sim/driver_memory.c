/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: device allocations, page-locked host memory, what is known about a pointer.
 *
 * Registered host memory (cuMemHostRegister) is accepted for copies, but kernels cannot see it: the interpreter needs
 * readable bytes behind every buffer, which only memory of our own has.
 */
#include <sys/mman.h>

#include "sim/driver.h"

/* ---- device memory ----------------------------------------------------------------------------------------------- */

uint64_t stitch__drv_memory_left(const stitch__drv_context *ctx)
{
    uint64_t used = stitch__sim_memory_used(ctx->mem) + ctx->backing_bytes;
    return used < ctx->memory ? ctx->memory - used : 0;
}

static CUresult alloc_locked(stitch__drv_context *ctx, CUdeviceptr *dptr, size_t size)
{
    stitch__sim_alloc *a;
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > stitch__drv_memory_left(ctx) || stitch__sim_memory_alloc(ctx->mem, size, 0, "", &a, NULL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *dptr = a->base;
    return CUDA_SUCCESS;
}

static CUresult free_locked(stitch__drv_context *ctx, CUdeviceptr dptr)
{
    stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, dptr);
    if (!stitch__sim_memory_owned(ctx->mem, dptr) || a->managed)
        return CUDA_ERROR_INVALID_VALUE;
    return stitch__sim_memory_release(ctx->mem, dptr, NULL) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuMemAlloc_v2)(CUdeviceptr *dptr, size_t bytesize)
{
    if (!dptr)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = stitch__drv_capture_unsafe();
    if (!r)
        r = alloc_locked(ctx, dptr, bytesize);
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuMemFree_v2)(CUdeviceptr dptr)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = stitch__drv_capture_unsafe();
    if (!r && dptr)
        r = free_locked(ctx, dptr);
    stitch__drv_leave(ctx);
    return r;
}

/* Allocation nodes of graphs are not simulated. */
CUresult CUDAAPI SIM(cuMemAllocAsync)(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    stitch__drv_stream *s;
    if (!dptr)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    r = s->capture ? CUDA_ERROR_NOT_SUPPORTED : alloc_locked(stitch__drv_stream_context(s), dptr, bytesize);
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuMemFreeAsync)(CUdeviceptr dptr, CUstream hStream)
{
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    if (s->capture)
        r = CUDA_ERROR_NOT_SUPPORTED;
    else if (dptr)
        r = free_locked(stitch__drv_stream_context(s), dptr);
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuMemGetInfo_v2)(size_t *free_bytes, size_t *total)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    if (free_bytes)
        *free_bytes = (size_t)stitch__drv_memory_left(ctx);
    if (total)
        *total = (size_t)stitch__drv_context_chip(ctx)->memory;
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuMemGetAddressRange_v2)(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    const stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, dptr);
    if (!a || a->freed) {
        r = CUDA_ERROR_NOT_FOUND;
    } else {
        if (pbase)
            *pbase = a->base;
        if (psize)
            *psize = (size_t)a->size;
    }
    stitch__drv_leave(ctx);
    return r;
}

/* ---- host memory ------------------------------------------------------------------------------------------------- */

typedef struct host_block {
    stitch__drv_object obj;
    void *ptr;
    size_t size, mapped; /* mapped 0: registered, the caller's memory */
} host_block;

static void destroy_host(stitch__drv_object *object)
{
    host_block *h = (host_block *)object;
    if (h->mapped)
        munmap(h->ptr, h->mapped);
}

static bool holds(const stitch__drv_object *object, const void *ptr)
{
    const host_block *h = (const host_block *)object;
    return (uintptr_t)ptr - (uintptr_t)h->ptr < h->size;
}

static CUresult host_alloc(stitch__drv_context *ctx, void **pp, size_t size)
{
    enum { PAGE = 4096, SLACK = 64 };
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > SIZE_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    host_block *h = stitch__drv_new(sizeof(*h), STITCH__DRV_HOST, ctx, destroy_host);
    if (!h)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t mapped = (size + SLACK + PAGE - 1) / PAGE * PAGE;
    stitch__sim_alloc *a;
    void *ptr = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr != MAP_FAILED) {
        h->ptr = ptr;
        h->mapped = mapped;
    }
    if (ptr == MAP_FAILED || stitch__sim_memory_map_host(ctx->mem, ptr, size, "page-locked host memory", &a, NULL)) {
        stitch__drv_retire(h);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stitch__drv_state_lock(); /* the size is what makes it visible to holds() */
    h->size = size;
    stitch__drv_state_unlock();
    *pp = ptr;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuMemHostAlloc)(void **pp, size_t bytesize, unsigned int Flags)
{
    const unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!pp || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = stitch__drv_capture_unsafe();
    if (!r)
        r = host_alloc(ctx, pp, bytesize);
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuMemAllocHost_v2)(void **pp, size_t bytesize)
{
    return SIM(cuMemHostAlloc)(pp, bytesize, 0);
}

/* Takes the block at `ptr` out of its context, whichever that is. */
static CUresult host_drop(void *ptr, bool registered, CUresult missing)
{
    stitch__drv_context *current;
    CUresult r = stitch__drv_enter(&current);
    if (r)
        return r;
    stitch__drv_leave(current);
    host_block *h = ptr ? stitch__drv_find_if(STITCH__DRV_HOST, holds, ptr) : NULL;
    if (!h || h->ptr != ptr || registered != (h->mapped == 0)) {
        stitch__drv_unref(h);
        return missing;
    }
    r = stitch__drv_lock(h->obj.ctx);
    if (!r) {
        if (!registered)
            stitch__sim_memory_release(h->obj.ctx->mem, (uintptr_t)ptr, NULL);
        stitch__drv_retire(h);
        pthread_mutex_unlock(&h->obj.ctx->lock);
    }
    stitch__drv_unref(h);
    return r;
}

CUresult CUDAAPI SIM(cuMemFreeHost)(void *p)
{
    return host_drop(p, false, CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI SIM(cuMemHostRegister_v2)(void *p, size_t bytesize, unsigned int Flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    if (!p || !bytesize || (Flags & ~known) || stitch__drv_is_device((uintptr_t)p))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    host_block *other = stitch__drv_find_if(STITCH__DRV_HOST, holds, p);
    if (other) {
        stitch__drv_unref(other);
        r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else {
        host_block *h = stitch__drv_new(sizeof(*h), STITCH__DRV_HOST, ctx, destroy_host);
        if (h) {
            stitch__drv_state_lock();
            h->ptr = p;
            h->size = bytesize;
            stitch__drv_state_unlock();
        } else {
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuMemHostUnregister)(void *p)
{
    return host_drop(p, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult CUDAAPI SIM(cuMemHostGetDevicePointer_v2)(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    if (!pdptr || Flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    const stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, (uintptr_t)p);
    if (a && !a->freed && !stitch__drv_is_device((uintptr_t)p))
        *pdptr = (uintptr_t)p;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    stitch__drv_leave(ctx);
    return r;
}

/* ---- pointers ---------------------------------------------------------------------------------------------------- */

static CUresult attribute_of(const stitch__drv_context *ctx, const stitch__sim_alloc *a, CUdeviceptr ptr,
                             CUpointer_attribute attribute, void *data)
{
    bool device = stitch__drv_is_device(a->base);
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = DRV_HANDLE(CUcontext, ctx); break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = ptr; break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (device)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)ptr;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = a->serial; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)data = false; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = ctx->device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = a->base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = (size_t)a->size; break;
    case CU_POINTER_ATTRIBUTE_MAPPED: *(bool *)data = true; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuPointerGetAttribute)(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    const stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, ptr);
    r = a && !a->freed ? attribute_of(ctx, a, ptr, attribute, data) : CUDA_ERROR_INVALID_VALUE;
    stitch__drv_leave(ctx);
    return r;
}

static size_t attribute_size(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return 4;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED: return 1;
    default: return 8;
    }
}

/* What a pointer does not have reads as zero, and so does everything about a pointer that nobody knows. */
CUresult CUDAAPI SIM(cuPointerGetAttributes)(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                             CUdeviceptr ptr)
{
    if (numAttributes == 0 || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    const stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, ptr);
    for (unsigned i = 0; i < numAttributes && !r; i++) {
        if (!data[i])
            r = CUDA_ERROR_INVALID_VALUE;
        else if (!a || a->freed || attribute_of(ctx, a, ptr, attributes[i], data[i]))
            memset(data[i], 0, attribute_size(attributes[i]));
    }
    stitch__drv_leave(ctx);
    return r;
}
