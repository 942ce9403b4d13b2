/* SPDX-License-Identifier: MIT
 *
 * Launching hash.cu: has something changed that may only be read?
 */
#include "runner/runner.h"

extern const char stitch__runner_hash[];

static int kernels_get(stitch__device *dev, const stitch__scope *scope, const stitch__kernels **out, stitch_error **err)
{
    static const char *const names[] = {"stitch_hash"};
    const char *const parts[] = {stitch__task_convert, stitch__runner_hash};
    return stitch__kernels_get(dev, scope, STITCH__SLOT_RUNNER, parts, STITCH__COUNT(parts), names,
                               STITCH__COUNT(names), out, err);
}

int stitch__hash_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err)
{
    const stitch__kernels *kernels;
    return kernels_get(dev, scope, &kernels, err);
}

int stitch__runner_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err)
{
    int rc = stitch__generate_warm(dev, scope, err);
    return rc ? rc : stitch__hash_warm(dev, scope, err);
}

int stitch__hasher_open(stitch__hasher *h, stitch__device *dev, CUstream stream, size_t count, stitch_error **err)
{
    const stitch__kernels *kernels;
    size_t places = count ? count : 1;
    int rc = kernels_get(dev, NULL, &kernels, err);

    h->dev = dev;
    if (!rc)
        rc = stitch__mem_alloc(dev, places * sizeof(uint64_t), "hashes", &h->hashes, err);
    /* Places of tensors that are not hashed are read with the others. */
    if (!rc)
        rc = stitch__hash_clear(h, stream, 0, places, err);
    if (rc)
        stitch__hasher_close(h);
    return rc;
}

void stitch__hasher_close(stitch__hasher *h)
{
    if (h->dev)
        stitch__mem_free(h->dev, h->hashes);
    memset(h, 0, sizeof(*h));
}

int stitch__hash_clear(stitch__hasher *h, CUstream stream, size_t first, size_t count, stitch_error **err)
{
    CUdeviceptr at = h->hashes + first * sizeof(uint64_t);
    return count
               ? stitch__cu_check(h->dev, h->dev->drv->MemsetD32Async(at, 0, 2 * count, stream), err, "clearing hashes")
               : STITCH_OK;
}

int stitch__hash_enqueue(stitch__hasher *h, CUstream stream, CUdeviceptr data, CUdeviceptr copy, uint64_t bytes,
                         uint64_t seed, size_t slot, stitch_error **err)
{
    const stitch__kernels *kernels;
    stitch__device *dev = h->dev;
    CUdeviceptr out = h->hashes + slot * sizeof(uint64_t);
    void *args[] = {&data, &copy, &bytes, &seed, &out};
    int rc = kernels_get(dev, NULL, &kernels, err);

    return rc ? rc
              : stitch__cu_check(dev,
                                 dev->drv->LaunchKernel(kernels->kernels[0], stitch__kernels_grid(dev, bytes / 8 + 1),
                                                        1, 1, 256, 1, 1, 0, stream, args, NULL),
                                 err, "launching a hash");
}

int stitch__hash_tensor_row(stitch__hasher *h, CUstream stream, const stitch__hash_row *row, stitch_error **err)
{
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < row->count; i++)
        if (row->roles >> row->infos[i].role & 1)
            rc = stitch__hash_enqueue(h, stream, row->at[i], row->copies ? row->copies[i] : 0, row->infos[i].bytes,
                                      row->seed, row->first + i, err);
    return rc;
}

int stitch__hash_fetch(stitch__hasher *h, CUstream stream, const stitch__scope *scope, const char *what, size_t count,
                       uint64_t *out, stitch_error **err)
{
    stitch__device *dev = h->dev;
    int rc = stitch__stream_wait(dev, stream, scope, what, err);
    if (!rc && count)
        rc = stitch__cu_check(dev, dev->drv->MemcpyDtoH(out, h->hashes, count * sizeof(*out)), err, "reading hashes");
    return rc;
}
