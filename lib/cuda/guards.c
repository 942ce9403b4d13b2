/* SPDX-License-Identifier: MIT
 *
 * Guarded device memory, on the driver's virtual memory calls.
 */
#include "cuda/guards.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum {
    ALIGNMENT = 256,
    PATTERN = 0xa5,
    FRONT = 64 << 10, /* bytes in front of a buffer that are always looked at: all of a page takes long */
};

typedef struct guarded {
    CUdeviceptr reserved, mapped, ptr; /* pages reserved, of them mapped, and the buffer in those */
    CUdeviceptr wanted;                /* where they are to be reserved; 0: anywhere */
    size_t reserved_bytes, mapped_bytes, bytes;
    CUmemGenericAllocationHandle handle;
    char name[64];
} guarded;

struct stitch__guards {
    pthread_mutex_t lock;
    size_t page;
    CUmemAllocationProp properties;
    guarded *list;
    size_t count, cap;
};

bool stitch__guards_enable(stitch__device *dev)
{
    const stitch__driver *drv = dev->drv;
    struct stitch__guards *g;

    if (dev->guards)
        return true;
    if (!drv->MemAddressReserve || !drv->MemAddressFree || !drv->MemCreate || !drv->MemRelease || !drv->MemMap ||
        !drv->MemUnmap || !drv->MemSetAccess || !drv->MemGetAllocationGranularity)
        return false;
    g = stitch__calloc(dev->ctx, 1, sizeof(*g));
    if (!g)
        return false;
    g->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    g->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    g->properties.location.id = dev->ordinal;
    if (drv->MemGetAllocationGranularity(&g->page, &g->properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
        !g->page || g->page % ALIGNMENT || pthread_mutex_init(&g->lock, NULL) != 0) {
        stitch_free(g);
        return false;
    }
    dev->guards = g;
    return true;
}

static void unmap(stitch__device *dev, const guarded *b)
{
    const stitch__driver *drv = dev->drv;
    if (b->handle) {
        if (b->mapped)
            drv->MemUnmap(b->mapped, b->mapped_bytes); /* fails where mapping failed */
        drv->MemRelease(b->handle);
    }
    if (b->reserved)
        drv->MemAddressFree(b->reserved, b->reserved_bytes);
}

/* Where a buffer of so many bytes lies in its pages. */
static size_t buffer_room(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t round_up(size_t bytes, size_t page)
{
    return (bytes + page - 1) / page * page;
}

/* b->handle: memory that is there already, or 0. */
static CUresult map(stitch__device *dev, guarded *b)
{
    const stitch__driver *drv = dev->drv;
    CUmemAccessDesc access = {dev->guards->properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult r = drv->MemAddressReserve(&b->reserved, b->reserved_bytes, 0, b->wanted, 0);

    if (r != CUDA_SUCCESS)
        return r;
    b->mapped = b->reserved + dev->guards->page;
    if (!b->handle)
        r = drv->MemCreate(&b->handle, b->mapped_bytes, &dev->guards->properties, 0);
    if (r != CUDA_SUCCESS) {
        b->handle = 0;
        return r;
    }
    r = drv->MemMap(b->mapped, b->mapped_bytes, 0, b->handle, 0);
    if (r != CUDA_SUCCESS) {
        drv->MemRelease(b->handle);
        b->handle = 0;
        return r;
    }
    return drv->MemSetAccess(b->mapped, b->mapped_bytes, &access, 1);
}

static size_t front_bytes(const guarded *b, bool whole)
{
    size_t front = (size_t)(b->ptr - b->mapped);
    return whole || front < FRONT ? front : FRONT;
}

/* On the default stream and waited for: the program's streams do not wait for it. */
static CUresult fill_around(stitch__device *dev, const guarded *b)
{
    const stitch__driver *drv = dev->drv;
    CUdeviceptr end = b->ptr + b->bytes, mapped_end = b->mapped + b->mapped_bytes;
    CUresult r = CUDA_SUCCESS;
    size_t front = front_bytes(b, true);
    if (front)
        r = drv->MemsetD8Async(b->ptr - front, PATTERN, front, NULL);
    if (r == CUDA_SUCCESS && mapped_end > end)
        r = drv->MemsetD8Async(end, PATTERN, (size_t)(mapped_end - end), NULL);
    return r == CUDA_SUCCESS ? drv->StreamSynchronize(NULL) : r;
}

/* `handle`: memory to use, which becomes the buffer's in any case; 0: new memory. `wanted`: the addresses, if they are
 * free; 0: any. */
static CUresult make(stitch__device *dev, size_t bytes, const char *name, CUmemGenericAllocationHandle handle,
                     CUdeviceptr wanted, CUdeviceptr *out)
{
    struct stitch__guards *g = dev->guards;
    size_t room = buffer_room(bytes);
    guarded b = {.bytes = bytes, .handle = handle, .wanted = wanted};
    CUresult r;

    *out = 0;
    if (bytes > SIZE_MAX / 4) {
        unmap(dev, &b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    b.mapped_bytes = round_up(room, g->page);
    b.reserved_bytes = b.mapped_bytes + 2 * g->page;
    snprintf(b.name, sizeof(b.name), "%s", name ? name : "a buffer");
    r = map(dev, &b);
    if (r == CUDA_SUCCESS) {
        b.ptr = b.mapped + b.mapped_bytes - room;
        r = fill_around(dev, &b);
    }
    if (r == CUDA_SUCCESS) {
        pthread_mutex_lock(&g->lock);
        if (stitch__grow(dev->ctx, &g->list, &g->cap, g->count + 1, sizeof(*g->list)) == STITCH_OK)
            g->list[g->count++] = b;
        else
            r = CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&g->lock);
    }
    if (r != CUDA_SUCCESS) {
        unmap(dev, &b);
        return r;
    }
    *out = b.ptr;
    return CUDA_SUCCESS;
}

CUresult stitch__guards_alloc(stitch__device *dev, size_t bytes, const char *name, CUdeviceptr *out)
{
    return make(dev, bytes, name, 0, 0, out);
}

int stitch__guards_import(stitch__device *dev, int fd, size_t bytes, const char *name, CUdeviceptr wanted,
                          CUdeviceptr *out, stitch_error **err)
{
    CUmemGenericAllocationHandle handle = 0;
    CUresult r;

    *out = 0;
    if (!dev->guards || !dev->drv->MemImportFromShareableHandle)
        return stitch__err(dev->ctx, err, STITCH_E_UNSUPPORTED, "this device cannot take over memory for %s", name);
    r = dev->drv->MemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (r == CUDA_SUCCESS)
        r = make(dev, bytes ? bytes : 1, name, handle, wanted, out);
    return stitch__cu_checkf(dev, r, err, "taking over memory for %s", name);
}

int stitch__guards_renew(stitch__device *dev, CUdeviceptr ptr, const char *name, stitch_error **err)
{
    struct stitch__guards *g = dev->guards;
    guarded b = {0};

    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; !b.ptr && i < g->count; i++) {
        if (g->list[i].ptr == ptr) {
            snprintf(g->list[i].name, sizeof(g->list[i].name), "%s", name);
            b = g->list[i];
        }
    }
    pthread_mutex_unlock(&g->lock);
    if (!b.ptr)
        return stitch__err(dev->ctx, err, STITCH_E_INTERNAL, "the memory for %s is not guarded", name);
    CUresult r = dev->drv->MemsetD8Async(b.ptr, 0, b.bytes, NULL);
    return stitch__cu_checkf(dev, r == CUDA_SUCCESS ? fill_around(dev, &b) : r, err, "clearing the memory for %s",
                             name);
}

bool stitch__guards_free(stitch__device *dev, CUdeviceptr ptr)
{
    struct stitch__guards *g = dev->guards;
    guarded b = {0};
    bool found = false;

    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; !found && i < g->count; i++) {
        if (g->list[i].ptr == ptr) {
            b = g->list[i];
            g->list[i] = g->list[--g->count];
            found = true;
        }
    }
    pthread_mutex_unlock(&g->lock);
    if (found)
        unmap(dev, &b);
    return found;
}

void stitch__guards_close(stitch__device *dev)
{
    if (!dev->guards)
        return;
    stitch_free(dev->guards->list);
    pthread_mutex_destroy(&dev->guards->lock);
    stitch__zero_free(dev->guards);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

/* Nearly always: eight bytes at a time. */
static bool untouched(const unsigned char *data, size_t bytes)
{
    uint64_t pattern, word, differ = 0;
    size_t i = 0;

    memset(&pattern, PATTERN, sizeof(pattern));
    for (; i + sizeof(word) <= bytes; i += sizeof(word)) {
        memcpy(&word, data + i, sizeof(word));
        differ |= word ^ pattern;
    }
    for (; i < bytes; i++)
        differ |= data[i] ^ PATTERN;
    return !differ;
}

/* Counts what differs from the pattern in `bytes` bytes at `at`; *nearest: its least distance from the buffer. */
static int look(stitch__device *dev, CUdeviceptr at, size_t bytes, bool in_front, size_t *count, size_t *nearest,
                stitch_error **err)
{
    unsigned char *data = stitch__alloc(dev->ctx, bytes + 1);
    int rc;

    *count = *nearest = 0;
    if (!data)
        return stitch__err_nomem(dev->ctx, err);
    rc = stitch__cu_check(dev, bytes ? dev->drv->MemcpyDtoH(data, at, bytes) : CUDA_SUCCESS, err,
                          "reading around a buffer");
    if (rc || untouched(data, bytes))
        goto out;
    for (size_t i = 0; i < bytes; i++) {
        size_t distance = in_front ? bytes - i : i + 1;
        if (data[i] == PATTERN)
            continue;
        *nearest = !*count || distance < *nearest ? distance : *nearest;
        ++*count;
    }
out:
    stitch_free(data);
    return rc;
}

static int check_one(stitch__device *dev, const guarded *b, bool whole, size_t *buffers, stitch__buf *found,
                     stitch_error **err)
{
    CUdeviceptr end = b->ptr + b->bytes;
    size_t before, near_before, behind = 0, near_behind = 0, front = front_bytes(b, whole);
    int rc = look(dev, b->ptr - front, front, true, &before, &near_before, err);

    if (!rc)
        rc = look(dev, end, (size_t)(b->mapped + b->mapped_bytes - end), false, &behind, &near_behind, err);
    if (rc || (!before && !behind))
        return rc;
    rc = stitch__cu_check(dev, fill_around(dev, b), err, "filling what is around a buffer");
    if (rc)
        return rc;
    if (++*buffers > 8)
        return STITCH_OK;
    stitch__buf_printf(found, "%s%s: ", found->len ? "; " : "", b->name);
    if (before)
        stitch__buf_printf(found, "%zu bytes in front of it were written, the nearest %zu before its start", before,
                           near_before);
    if (behind)
        stitch__buf_printf(found, "%s%zu bytes behind it were written, the nearest %zu past its end",
                           before ? ", " : "", behind, near_behind);
    return STITCH_OK;
}

int stitch__guards_check(stitch__device *dev, bool whole, stitch__buf *found, stitch_error **err)
{
    struct stitch__guards *g = dev->guards;
    size_t buffers = 0;
    int rc = STITCH_OK;

    if (!g)
        return STITCH_OK;
    pthread_mutex_lock(&g->lock);
    for (size_t i = 0; !rc && i < g->count; i++)
        rc = check_one(dev, &g->list[i], whole, &buffers, found, err);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- for another process ----------------------------------------------------------------------------------------- */

void stitch__export_close(stitch__device *dev, stitch__export *e)
{
    const stitch__driver *drv = dev->drv;

    if (e->mapped)
        drv->MemUnmap(e->mapped, e->mapped_bytes);
    if (e->handle)
        drv->MemRelease(e->handle);
    if (e->reserved)
        drv->MemAddressFree(e->reserved, e->reserved_bytes);
    if (e->fd >= 0)
        close(e->fd);
    *e = (stitch__export){.fd = -1};
}

/* The other side maps the same pages with the same rule (make()), so that the buffer is at the same place in them. */
bool stitch__export_make(stitch__device *dev, size_t bytes, CUstream stream, stitch__export *out)
{
    const stitch__driver *drv = dev->drv;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t room = buffer_room(bytes ? bytes : 1), page = 0;
    bool made = false;

    *out = (stitch__export){.fd = -1};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = dev->ordinal;
    access.location = properties.location;
    if (dev->info.simulated || bytes > SIZE_MAX / 4 || !drv->MemAddressReserve || !drv->MemAddressFree ||
        !drv->MemCreate || !drv->MemRelease || !drv->MemMap || !drv->MemUnmap || !drv->MemSetAccess ||
        !drv->MemGetAllocationGranularity || !drv->MemExportToShareableHandle)
        return false;
    if (drv->MemGetAllocationGranularity(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS || !page)
        return false;
    out->mapped_bytes = round_up(room, page);
    out->reserved_bytes = out->mapped_bytes + 2 * page;
    if (drv->MemAddressReserve(&out->reserved, out->reserved_bytes, 0, 0, 0) != CUDA_SUCCESS)
        out->reserved = 0;
    else if (drv->MemCreate(&out->handle, out->mapped_bytes, &properties, 0) != CUDA_SUCCESS)
        out->handle = 0;
    else if (drv->MemMap(out->reserved + page, out->mapped_bytes, 0, out->handle, 0) == CUDA_SUCCESS) {
        out->mapped = out->reserved + page;
        out->ptr = out->mapped + out->mapped_bytes - room;
        made = drv->MemSetAccess(out->mapped, out->mapped_bytes, &access, 1) == CUDA_SUCCESS &&
               drv->MemsetD8Async(out->mapped, 0, out->mapped_bytes, stream) == CUDA_SUCCESS &&
               drv->StreamSynchronize(stream) == CUDA_SUCCESS &&
               drv->MemExportToShareableHandle(&out->fd, out->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
                   CUDA_SUCCESS;
    }
    if (!made)
        stitch__export_close(dev, out);
    return made;
}
