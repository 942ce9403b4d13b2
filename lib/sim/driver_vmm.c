/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: virtual memory management. Physical memory (cuMemCreate) is mapped into reserved addresses
 * (cuMemMap) and becomes usable with cuMemSetAccess, not before.
 *
 * Unlike with a real driver, reservations and physical memory belong to the context that was current when they were
 * made.
 */
#include "sim/driver.h"

typedef struct physical {
    stitch__drv_object obj;
    stitch__sim_backing *memory;
    size_t size;
} physical;

typedef struct mapping {
    stitch__drv_object obj;
    physical *of; /* counted */
    CUdeviceptr address;
    size_t size;
    CUmemAccess_flags access;
} mapping;

static void destroy_physical(stitch__drv_object *object)
{
    stitch__sim_backing_unref(((physical *)object)->memory);
}

static void destroy_mapping(stitch__drv_object *object)
{
    stitch__drv_unref(((mapping *)object)->of);
}

typedef struct area {
    const stitch__drv_context *ctx;
    CUdeviceptr address;
    size_t size;
} area;

static bool touches(const stitch__drv_object *object, const void *arg)
{
    const mapping *m = (const mapping *)object;
    const area *a = arg;
    return m->obj.ctx == a->ctx && m->address < a->address + a->size && a->address < m->address + m->size;
}

static bool aligned(uint64_t value)
{
    return value % STITCH__DRV_GRANULARITY == 0;
}

static bool sane(CUdeviceptr ptr, size_t size)
{
    return ptr && size && aligned(ptr) && aligned(size) && size <= STITCH__SIM_GLOBAL_END &&
           ptr <= STITCH__SIM_GLOBAL_END - size;
}

static CUresult check_prop(const CUmemAllocationProp *prop, int device)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!stitch__drv_chip_get(prop->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    if (device >= 0 && prop->location.id != device)
        return CUDA_ERROR_INVALID_DEVICE;
    return prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CUDAAPI SIM(cuMemGetAllocationGranularity)(size_t *granularity, const CUmemAllocationProp *prop,
                                                    CUmemAllocationGranularity_flags option)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM && option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    r = check_prop(prop, -1);
    if (!r)
        *granularity = STITCH__DRV_GRANULARITY;
    return r;
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

CUresult CUDAAPI SIM(cuMemAddressReserve)(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                          unsigned long long flags)
{
    if (!ptr || !size || !aligned(size) || (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    uint64_t at, align = alignment > STITCH__DRV_GRANULARITY ? alignment : STITCH__DRV_GRANULARITY;
    if (stitch__sim_memory_reserve(ctx->mem, size, align, addr, &at, NULL))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    else
        *ptr = at;
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuMemAddressFree)(CUdeviceptr ptr, size_t size)
{
    if (!sane(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    area a = {ctx, ptr, size};
    mapping *m = stitch__drv_find_if(STITCH__DRV_MAPPING, touches, &a);
    if (m || stitch__sim_memory_unreserve(ctx->mem, ptr, size, NULL))
        r = CUDA_ERROR_INVALID_VALUE;
    stitch__drv_unref(m);
    stitch__drv_leave(ctx);
    return r;
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

CUresult CUDAAPI SIM(cuMemCreate)(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                                  unsigned long long flags)
{
    if (!handle || !size || !aligned(size) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = check_prop(prop, ctx->device);
    if (!r && size > stitch__drv_memory_left(ctx))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (!r) {
        physical *p = stitch__drv_new(sizeof(*p), STITCH__DRV_BACKING, ctx, destroy_physical);
        if (p)
            p->memory = stitch__sim_backing_new(size);
        if (p && p->memory) {
            p->size = size;
            ctx->backing_bytes += size;
            *handle = p->obj.handle;
        } else {
            r = CUDA_ERROR_OUT_OF_MEMORY;
            if (p)
                stitch__drv_retire(p);
        }
    }
    stitch__drv_leave(ctx);
    return r;
}

/* The memory itself lives on while it is mapped. */
CUresult CUDAAPI SIM(cuMemRelease)(CUmemGenericAllocationHandle handle)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    physical *p = stitch__drv_find(handle, STITCH__DRV_BACKING);
    if (p && p->obj.ctx == ctx && stitch__drv_retire(p))
        ctx->backing_bytes -= p->size;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    stitch__drv_unref(p);
    stitch__drv_leave(ctx);
    return r;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

CUresult CUDAAPI SIM(cuMemMap)(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                               unsigned long long flags)
{
    if (!sane(ptr, size) || offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    area a = {ctx, ptr, size};
    physical *p = stitch__drv_find(handle, STITCH__DRV_BACKING);
    mapping *there = stitch__drv_find_if(STITCH__DRV_MAPPING, touches, &a);
    if (!p || p->obj.ctx != ctx || size > p->size || there || !stitch__sim_memory_reserved(ctx->mem, ptr, size)) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else {
        mapping *m = stitch__drv_new(sizeof(*m), STITCH__DRV_MAPPING, ctx, destroy_mapping);
        if (m) {
            m->of = stitch__drv_ref(p);
            stitch__drv_state_lock(); /* touches() of another thread reads them */
            m->address = ptr;
            m->size = size;
            stitch__drv_state_unlock();
        } else {
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    stitch__drv_unref(there);
    stitch__drv_unref(p);
    stitch__drv_leave(ctx);
    return r;
}

static CUresult set_access(stitch__drv_context *ctx, mapping *m, CUmemAccess_flags access)
{
    stitch__sim_alloc *a;
    if (access == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        if (m->access != access)
            stitch__sim_memory_release(ctx->mem, m->address, NULL);
    } else {
        if (m->access == CU_MEM_ACCESS_FLAGS_PROT_NONE &&
            stitch__sim_memory_map(ctx->mem, m->address, m->size, m->of->memory, &a, NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
        a = stitch__sim_memory_find(ctx->mem, m->address);
        a->readonly = access == CU_MEM_ACCESS_FLAGS_PROT_READ;
    }
    m->access = access;
    return CUDA_SUCCESS;
}

/* Calls for each mapping of an area, which mappings must fill without gaps. `access` NULL: unmap. */
static CUresult for_area(stitch__drv_context *ctx, CUdeviceptr ptr, size_t size, const CUmemAccess_flags *access)
{
    for (int pass = 0; pass < 2; pass++) { /* the first looks only */
        for (CUdeviceptr at = ptr; at < ptr + size;) {
            area a = {ctx, at, 1};
            mapping *m = stitch__drv_find_if(STITCH__DRV_MAPPING, touches, &a);
            if (!m || m->address != at || m->size > ptr + size - at) {
                stitch__drv_unref(m);
                return CUDA_ERROR_INVALID_VALUE;
            }
            at += m->size;
            CUresult r = CUDA_SUCCESS;
            if (pass == 1)
                r = set_access(ctx, m, access ? *access : CU_MEM_ACCESS_FLAGS_PROT_NONE);
            if (pass == 1 && !access)
                stitch__drv_retire(m);
            stitch__drv_unref(m);
            if (r)
                return r;
        }
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuMemUnmap)(CUdeviceptr ptr, size_t size)
{
    if (!sane(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = for_area(ctx, ptr, size, NULL);
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuMemSetAccess)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    if (!sane(ptr, size) || !desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    for (size_t i = 0; i < count && !r; i++) {
        if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || !stitch__drv_chip_get(desc[i].location.id))
            r = CUDA_ERROR_INVALID_DEVICE;
        else if (desc[i].location.id != ctx->device)
            r = CUDA_ERROR_NOT_SUPPORTED; /* the devices are not peers */
        else if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
                 desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            r = CUDA_ERROR_INVALID_VALUE;
        else
            r = for_area(ctx, ptr, size, &desc[i].flags);
    }
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuMemGetAccess)(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    area a = {ctx, ptr, 1};
    mapping *m = stitch__drv_find_if(STITCH__DRV_MAPPING, touches, &a);
    if (m)
        *flags = location->id == ctx->device ? (unsigned long long)m->access : 0;
    else
        r = CUDA_ERROR_INVALID_VALUE;
    stitch__drv_unref(m);
    stitch__drv_leave(ctx);
    return r;
}
