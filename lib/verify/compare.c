/* SPDX-License-Identifier: MIT
 *
 * Launching compare.cu: streaming comparison of outputs.
 */
#include "verify/verify.h"

#include <math.h>

extern const char stitch__verify_compare[];

_Static_assert(sizeof(stitch__comparison) == 24 * 8, "compare.cu has the same struct");

_Static_assert(sizeof(stitch__location) == 80 * 8, "compare.cu has the same struct");

enum { KERNEL_COMPARE, KERNEL_FOLD, KERNEL_LOCATE };

static int kernels_get(stitch__device *dev, const stitch__scope *scope, const stitch__kernels **out, stitch_error **err)
{
    static const char *const names[] = {"stitch_compare", "stitch_compare_fold", "stitch_locate"};
    const char *const parts[] = {stitch__task_convert, stitch__verify_compare};
    return stitch__kernels_get(dev, scope, STITCH__SLOT_VERIFY, parts, STITCH__COUNT(parts), names,
                               STITCH__COUNT(names), out, err);
}

int stitch__compare_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err)
{
    const stitch__kernels *kernels;
    return kernels_get(dev, scope, &kernels, err);
}

int stitch__comparator_open(stitch__comparator *c, stitch__device *dev, size_t places, stitch_error **err)
{
    const stitch__kernels *kernels;
    int rc = kernels_get(dev, NULL, &kernels, err);

    c->dev = dev;
    c->grid = stitch__kernels_grid(dev, UINT64_MAX);
    if (!rc)
        rc = stitch__mem_alloc(dev, c->grid * sizeof(stitch__comparison), "partial comparisons", &c->partials, err);
    if (!rc)
        rc = stitch__mem_alloc(dev, (places + 1) * sizeof(stitch__comparison), "comparisons", &c->results, err);
    if (!rc)
        rc = stitch__mem_alloc(dev, sizeof(stitch__location), "places of wrong elements", &c->location, err);
    if (rc)
        stitch__comparator_close(c);
    return rc;
}

void stitch__comparator_close(stitch__comparator *c)
{
    if (!c->dev)
        return;
    stitch__mem_free(c->dev, c->partials);
    stitch__mem_free(c->dev, c->results);
    stitch__mem_free(c->dev, c->location);
    memset(c, 0, sizeof(*c));
}

static uint64_t poison_word(int byte, size_t size)
{
    uint64_t word = 0;
    for (size_t k = 0; k < size; k++)
        word = word << 8 | (uint64_t)byte;
    return word;
}

int stitch__compare_enqueue(stitch__comparator *c, CUstream stream, const stitch__compared *what, size_t place,
                            stitch_error **err)
{
    const stitch__kernels *kernels;
    stitch__device *dev = c->dev;
    stitch__compared w = *what;
    int size = (int)stitch_dtype_size(w.got_dtype);
    uint64_t poison_a = poison_word(STITCH__POISON_A, (size_t)size),
             poison_b = poison_word(STITCH__POISON_B, (size_t)size);
    unsigned grid = stitch__kernels_grid(dev, w.count);
    CUdeviceptr result = c->results + place * sizeof(stitch__comparison);
    void *compare_args[] = {&w.got,   &w.got_dtype, &size,   &w.again,  &w.want,   &w.want_dtype,
                            &w.count, &w.atol,      &w.rtol, &poison_a, &poison_b, &c->partials};
    void *fold_args[] = {&c->partials, &grid, &result};
    int rc = kernels_get(dev, NULL, &kernels, err);

    if (rc)
        return rc;
    rc = stitch__cu_checkf(
        dev,
        dev->drv->LaunchKernel(kernels->kernels[KERNEL_COMPARE], grid, 1, 1, 256, 1, 1, 0, stream, compare_args, NULL),
        err, "launching the comparison of %s", w.name);
    if (!rc)
        rc = stitch__cu_checkf(
            dev, dev->drv->LaunchKernel(kernels->kernels[KERNEL_FOLD], 1, 1, 1, 256, 1, 1, 0, stream, fold_args, NULL),
            err, "launching the comparison of %s", w.name);
    return rc;
}

int stitch__compare_fetch(stitch__comparator *c, CUstream stream, const stitch__scope *scope, size_t count,
                          stitch__comparison *out, stitch_error **err)
{
    stitch__device *dev = c->dev;
    int rc = stitch__stream_wait(dev, stream, scope, "comparing outputs", err);

    if (!rc && count)
        rc = stitch__cu_check(dev, dev->drv->MemcpyDtoH(out, c->results, count * sizeof(*out)), err,
                              "reading the comparison of outputs");
    return rc;
}

int stitch__compare(stitch__comparator *c, CUstream stream, const stitch__scope *scope, const stitch__compared *what,
                    stitch__comparison *out, stitch_error **err)
{
    int rc = stitch__compare_enqueue(c, stream, what, 0, err);

    memset(out, 0, sizeof(*out));
    return rc ? rc : stitch__compare_fetch(c, stream, scope, 1, out, err);
}

int stitch__compare_locate(stitch__comparator *c, CUstream stream, const stitch__scope *scope,
                           const stitch_tensor_info *info, CUdeviceptr got, int got_dtype, CUdeviceptr want,
                           int want_dtype, double atol, double rtol, stitch__location *out, stitch_error **err)
{
    struct {
        uint64_t rank, extent[8];
    } shape = {info->rank, {0}};
    const stitch__kernels *kernels;
    stitch__device *dev = c->dev;
    uint64_t count = info->elements;
    void *args[] = {&got, &got_dtype, &want, &want_dtype, &count, &atol, &rtol, &shape, &c->location};
    int rc = kernels_get(dev, NULL, &kernels, err);

    _Static_assert(STITCH_MAX_RANK == 8, "compare.cu has as many axes");
    memset(out, 0, sizeof(*out));
    memset(out->low, 0xff, sizeof(out->low));
    for (size_t k = 0; k < info->rank; k++)
        shape.extent[k] = (uint64_t)info->shape[k];
    if (!rc)
        rc = stitch__cu_check(dev, dev->drv->MemcpyHtoDAsync(c->location, out, sizeof(*out), stream), err,
                              "clearing the places of wrong elements");
    if (!rc)
        rc = stitch__cu_checkf(dev,
                               dev->drv->LaunchKernel(kernels->kernels[KERNEL_LOCATE], stitch__kernels_grid(dev, count),
                                                      1, 1, 256, 1, 1, 0, stream, args, NULL),
                               err, "looking for the wrong elements of %s", info->name);
    if (!rc)
        rc = stitch__stream_wait(dev, stream, scope, "looking for wrong elements", err);
    if (!rc)
        rc = stitch__cu_check(dev, dev->drv->MemcpyDtoH(out, c->location, sizeof(*out)), err,
                              "reading the places of wrong elements");
    return rc;
}
