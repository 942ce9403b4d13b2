/* SPDX-License-Identifier: MIT
 *
 * The data of a task's tensors, on the host and on the device.
 */
#include "task/task.h"

#include <math.h>

#include "task/convert.h"
#include "task/draw.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "device code and header disagree")
SAME(DT_F64, STITCH_DTYPE_F64);
SAME(DT_F8E5M2, STITCH_DTYPE_F8E5M2);
SAME(DT_I64, STITCH_DTYPE_I64);
SAME(DT_BOOL, STITCH_DTYPE_BOOL);
SAME(DIST_NORMAL, STITCH_DIST_NORMAL);
SAME(DIST_RANDINT, STITCH_DIST_RANDINT);
SAME(DIST_ARANGE, STITCH_DIST_ARANGE);
SAME(DIST_ONE_HOT, STITCH__DIST_ONE_HOT);
SAME(DIST_CANCELLING, STITCH__DIST_CANCELLING);

extern const char stitch__task_draw[];
extern const char stitch__task_generate[];

uint64_t stitch__seed_derive(uint64_t master, uint64_t purpose, uint64_t n)
{
    uint32_t c[4] = {(uint32_t)n, (uint32_t)(n >> 32), (uint32_t)purpose, (uint32_t)(purpose >> 32)};
    stitch_philox(c, (uint32_t)master, (uint32_t)(master >> 32));
    return (uint64_t)c[1] << 32 | c[0];
}

/* The extents that tril needs. */
static void last_dims(const stitch_tensor_info *info, uint64_t *rows, uint64_t *cols)
{
    *rows = info->rank >= 2 ? (uint64_t)info->shape[info->rank - 2] : 1;
    *cols = info->rank >= 1 ? (uint64_t)info->shape[info->rank - 1] : 1;
}

int stitch__generate_host(const stitch_context *ctx, const stitch_tensor_info *info, const stitch_dist *dist,
                          double scale, uint64_t seed, uint32_t tensor, uint64_t index, uint64_t count, void *out,
                          stitch_error **err)
{
    stitch_dist d = stitch__dist_resolve(*dist);
    uint64_t rows, cols;

    if (index > info->elements || count > info->elements - index)
        return stitch__err(ctx, err, STITCH_E_INVALID, "elements %" PRIu64 " to %" PRIu64 " are not in tensor %s",
                           index, index + count, info->name);
    last_dims(info, &rows, &cols);
    for (uint64_t k = 0; k < count; k++) {
        uint64_t i = index + k;
        uint32_t c[4];
        stitch_words(seed, tensor, i / 2, c);
        stitch_store(out, k, info->dtype, stitch_value(c, i, d.kind, d.a, d.b, rows, cols) * scale);
    }
    return STITCH_OK;
}

static int kernels_get(stitch__device *dev, const stitch__scope *scope, const stitch__kernels **out, stitch_error **err)
{
    static const char *const names[] = {"stitch_generate"};
    const char *const parts[] = {stitch__task_convert, stitch__task_draw, stitch__task_generate};
    return stitch__kernels_get(dev, scope, STITCH__SLOT_TASK, parts, STITCH__COUNT(parts), names, STITCH__COUNT(names),
                               out, err);
}

int stitch__generate_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err)
{
    const stitch__kernels *kernels;
    return kernels_get(dev, scope, &kernels, err);
}

int stitch__generate_device(stitch__device *dev, CUstream stream, const stitch_tensor_info *info,
                            const stitch_dist *dist, double scale, uint64_t seed, uint32_t tensor, CUdeviceptr out,
                            stitch_error **err)
{
    const stitch__kernels *kernels;
    stitch_dist d = stitch__dist_resolve(*dist);
    uint64_t rows, cols, count = info->elements;
    int kind = d.kind, dtype = info->dtype;
    int rc = kernels_get(dev, NULL, &kernels, err);

    if (rc)
        return rc;
    last_dims(info, &rows, &cols);
    void *args[] = {&out, &count, &dtype, &kind, &d.a, &d.b, &scale, &seed, &tensor, &rows, &cols};
    return stitch__cu_checkf(dev,
                             dev->drv->LaunchKernel(kernels->kernels[0], stitch__kernels_grid(dev, count / 2 + 1), 1, 1,
                                                    256, 1, 1, 0, stream, args, NULL),
                             err, "launching the generator of tensor %s", info->name);
}

/* Copies from pageable memory are staged before the call returns, so that the buffer is free again; only the copy in
 * stream order is safe beside kernels on a stream that does not wait for the default one. */
int stitch__upload(stitch__device *dev, CUstream stream, const stitch__safetensors *st, const stitch__st_tensor *t,
                   CUdeviceptr ptr, stitch_error **err)
{
    const uint64_t chunk = 16u << 20;
    size_t size = (size_t)(t->bytes < chunk ? t->bytes : chunk);
    char *data = stitch__alloc(dev->ctx, size ? size : 1);
    int rc = STITCH_OK;

    if (!data)
        return stitch__err_nomem(dev->ctx, err);
    for (uint64_t at = 0; !rc && at < t->bytes; at += size) {
        size_t part = t->bytes - at < size ? (size_t)(t->bytes - at) : size;
        rc = stitch__safetensors_read(st, t, at, data, part, err);
        if (!rc)
            rc = stitch__cu_checkf(dev, dev->drv->MemcpyHtoDAsync(ptr + at, data, part, stream), err,
                                   "copying tensor %s to the device", t->name);
    }
    stitch_free(data);
    return rc;
}

static int fill_recorded(const stitch__safetensors *st, stitch__device *dev, CUstream stream,
                         const stitch_tensor_info *info, const char *role, CUdeviceptr ptr, stitch_error **err)
{
    const stitch__st_tensor *t;
    int rc = stitch__safetensors_match(st, info, role, false, &t, err);
    return rc ? rc : stitch__upload(dev, stream, st, t, ptr, err);
}

int stitch__task_fill(const stitch_task *t, stitch__device *dev, CUstream stream, size_t index, uint64_t seed,
                      const stitch__variant *variant, CUdeviceptr ptr, stitch_error **err)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    const stitch__safetensors *recorded = t->reference.kind == STITCH__COMPUTE_TENSORS ? t->reference.tensors : NULL;
    const stitch__task_tensor *tensor = &t->tensors[index];
    double scale = 1;
    stitch_dist dist = tensor->dist;
    int rc = stitch_interface_tensor(t->iface, index, &info);

    if (rc)
        return stitch__err(t->ctx, err, rc, "the task has no tensor %zu", index);
    if (info.role == STITCH_TENSOR_OUTPUT || info.role == STITCH_TENSOR_STATE)
        return stitch__cu_checkf(dev, dev->drv->MemsetD8Async(ptr, 0, (size_t)info.bytes, stream), err,
                                 "clearing tensor %s", info.name);
    if (tensor->data) {
        if (tensor->data_bytes != info.bytes)
            return stitch__err(t->ctx, err, STITCH_E_STATE,
                               "tensor %s has %" PRIu64 " bytes at these dims, its data %" PRIu64, info.name,
                               info.bytes, tensor->data_bytes);
        return stitch__cu_checkf(dev, dev->drv->MemcpyHtoDAsync(ptr, tensor->data, (size_t)info.bytes, stream), err,
                                 "copying tensor %s to the device", info.name);
    }
    if (recorded && info.role == STITCH_TENSOR_INPUT)
        return fill_recorded(recorded, dev, stream, &info, "input", ptr, err);
    if (recorded && stitch__safetensors_find(recorded, info.name))
        return fill_recorded(recorded, dev, stream, &info, "weight", ptr, err);
    if (t->weights && info.role == STITCH_TENSOR_WEIGHT)
        return fill_recorded(t->weights, dev, stream, &info, "weight", ptr, err);
    if (dist.kind == STITCH_DIST_NONE)
        return stitch__err(t->ctx, err, STITCH_E_STATE, "tensor %s has neither data nor a distribution", info.name);
    if (variant && stitch__dtype_is_float(info.dtype) &&
        (dist.kind == STITCH_DIST_NORMAL || dist.kind == STITCH_DIST_UNIFORM)) {
        if (variant->dist)
            dist = *variant->dist;
        if (variant->scale != 0)
            scale = variant->scale;
    }
    return stitch__generate_device(dev, stream, &info, &dist, scale, seed, (uint32_t)index, ptr, err);
}
