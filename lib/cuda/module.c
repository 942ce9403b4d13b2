/* SPDX-License-Identifier: MIT
 *
 * Images on the device.
 */
#include <stdlib.h>

#include "cuda/internal.h"

enum { LOG_BYTES = 16 << 10, PLAIN_DYNAMIC_SHARED = 48 << 10 };

/* At load, for every kernel: as much dynamic shared memory as the device has left over, and clusters of more than eight
 * blocks. Both are permissions that cost nothing until a launch uses them; a launch that asks for more still fails. */
static int opt_in(stitch__device *dev, CUfunction f, const char *name, stitch_error **err)
{
    int fixed = 0;
    CUresult result = dev->drv->FuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
    if (result != CUDA_SUCCESS)
        return stitch__cu_checkf(dev, result, err, "cuFuncGetAttribute of %s", name);
    int64_t left = (int64_t)dev->info.shared_bytes_per_block_optin - fixed;
    if (left > PLAIN_DYNAMIC_SHARED) {
        result = dev->drv->FuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)left);
        if (result != CUDA_SUCCESS)
            return stitch__cu_checkf(dev, result, err, "cuFuncSetAttribute of %s (%lld bytes of dynamic shared memory)",
                                     name, (long long)left);
    }
    if (dev->clusters) /* refused by what does not know it: then 8 is the limit */
        dev->drv->FuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    return STITCH_OK;
}

static int load_failed(stitch__device *dev, const stitch_image *image, CUresult result, const char *log,
                       stitch_error **err)
{
    const char *advice = "";
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE ||
        result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
        advice = "; was it compiled for another architecture, or by an NVRTC that is newer than the driver?";
    int rc = stitch__cu_checkf(dev, result, err, "loading a module for %s on %s (driver %d.%d)%s%.*s%s", image->arch,
                               dev->info.arch, dev->info.driver_version / 1000, dev->info.driver_version % 1000 / 10,
                               log[0] ? ": " : "", (int)strcspn(log, "\n"), log, advice);
    stitch__err_details(err, log);
    return rc;
}

int stitch__module_load(stitch__device *dev, const stitch_image *image, stitch__module *out, stitch_error **err)
{
    stitch__module m = {.dev = dev};
    char *log = NULL;
    int rc;
    memset(out, 0, sizeof(*out));
    if (!image || !image->data)
        return stitch__err(dev->ctx, err, STITCH_E_STATE, "the image has no code: its compilation failed");
    log = stitch__calloc(dev->ctx, 1, LOG_BYTES);
    m.kernels = stitch__calloc(dev->ctx, image->kernel_count + 1, sizeof(*m.kernels));
    if (!log || !m.kernels) {
        stitch_free(log);
        stitch_free(m.kernels);
        return stitch__err_nomem(dev->ctx, err);
    }
    if ((rc = stitch__device_enter(dev, err)) != STITCH_OK) {
        stitch_free(log);
        stitch_free(m.kernels);
        return rc;
    }
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(LOG_BYTES - 1)};
    CUresult result = dev->drv->ModuleLoadDataEx(&m.handle, image->data, 2, options, values);
    if (result != CUDA_SUCCESS) {
        m.handle = NULL;
        rc = load_failed(dev, image, result, log, err);
        goto out;
    }
    for (size_t i = 0; i < image->kernel_count && rc == STITCH_OK; i++) {
        const stitch_kernel_info *k = &image->kernels[i].info;
        result = dev->drv->ModuleGetFunction(&m.kernels[i], m.handle, k->symbol);
        rc = stitch__cu_checkf(dev, result, err, "cuModuleGetFunction of %s", k->name);
        if (rc == STITCH_OK)
            rc = opt_in(dev, m.kernels[i], k->name, err);
    }
    m.kernel_count = image->kernel_count;
out:
    stitch__device_leave(dev);
    stitch_free(log);
    if (rc)
        stitch__module_unload(&m);
    else
        *out = m;
    return rc;
}

void stitch__module_unload(stitch__module *module)
{
    if (!module || !module->dev)
        return;
    if (module->handle && stitch__device_enter(module->dev, NULL) == STITCH_OK) {
        module->dev->drv->ModuleUnload(module->handle);
        stitch__device_leave(module->dev);
    }
    stitch_free(module->kernels);
    memset(module, 0, sizeof(*module));
}
