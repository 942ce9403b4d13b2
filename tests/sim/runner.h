/* SPDX-License-Identifier: MIT
 *
 * Runs PTX kernels (in, out, n) through a CUDA driver given as a function that finds its entry points: the simulator's,
 * or the real one. For tests and tools; one context, one stream, everything synchronous.
 */
#ifndef STITCH_TESTS_SIM_RUNNER_H
#define STITCH_TESTS_SIM_RUNNER_H

#include <cuda.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *runner_find(const char *symbol, void *userdata);

typedef struct runner {
    CUresult (*Init)(unsigned);
    CUresult (*DeviceGet)(CUdevice *, int);
    CUresult (*DeviceGetName)(char *, int, CUdevice);
    CUresult (*DeviceGetAttribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*DriverGetVersion)(int *);
    CUresult (*PrimaryRetain)(CUcontext *, CUdevice);
    CUresult (*PrimaryRelease)(CUdevice);
    CUresult (*SetCurrent)(CUcontext);
    CUresult (*Synchronize)(void);
    CUresult (*LoadData)(CUmodule *, const void *, unsigned, CUjit_option *, void **);
    CUresult (*Unload)(CUmodule);
    CUresult (*GetFunction)(CUfunction *, CUmodule, const char *);
    CUresult (*Alloc)(CUdeviceptr *, size_t);
    CUresult (*Free)(CUdeviceptr);
    CUresult (*HtoD)(CUdeviceptr, const void *, size_t);
    CUresult (*DtoH)(void *, CUdeviceptr, size_t);
    CUresult (*Launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                       void **, void **);
    CUresult (*ErrorName)(CUresult, const char **);
    CUdevice device;
    char name[96];
    int driver_version, arch; /* arch: 90 for sm_90 */
    bool unoptimized;         /* runner_load asks the driver's compiler for level 0 */
    char error[8192];
} runner;

__attribute__((unused)) static bool runner_fail(runner *r, const char *what, CUresult code)
{
    const char *name = "?";
    size_t used = strlen(r->error);
    if (r->ErrorName)
        r->ErrorName(code, &name);
    snprintf(r->error + used, sizeof(r->error) - used, "%s%s: %s (%d)", used ? "\n" : "", what, name, (int)code);
    return false;
}

__attribute__((unused)) static bool runner_open(runner *r, runner_find *find, void *userdata)
{
    memset(r, 0, sizeof(*r));
    struct {
        void *at;
        const char *symbol;
    } wanted[] = {
        {&r->Init, "cuInit"},
        {&r->DeviceGet, "cuDeviceGet"},
        {&r->DeviceGetName, "cuDeviceGetName"},
        {&r->DeviceGetAttribute, "cuDeviceGetAttribute"},
        {&r->DriverGetVersion, "cuDriverGetVersion"},
        {&r->PrimaryRetain, "cuDevicePrimaryCtxRetain"},
        {&r->PrimaryRelease, "cuDevicePrimaryCtxRelease_v2"},
        {&r->SetCurrent, "cuCtxSetCurrent"},
        {&r->Synchronize, "cuCtxSynchronize"},
        {&r->LoadData, "cuModuleLoadDataEx"},
        {&r->Unload, "cuModuleUnload"},
        {&r->GetFunction, "cuModuleGetFunction"},
        {&r->Alloc, "cuMemAlloc_v2"},
        {&r->Free, "cuMemFree_v2"},
        {&r->HtoD, "cuMemcpyHtoD_v2"},
        {&r->DtoH, "cuMemcpyDtoH_v2"},
        {&r->Launch, "cuLaunchKernel"},
        {&r->ErrorName, "cuGetErrorName"},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *f = find(wanted[i].symbol, userdata);
        if (!f) {
            snprintf(r->error, sizeof(r->error), "the driver has no %s", wanted[i].symbol);
            return false;
        }
        memcpy(wanted[i].at, &f, sizeof(f));
    }
    CUcontext context;
    CUresult e;
    int major = 0, minor = 0;
    if ((e = r->Init(0)) || (e = r->DeviceGet(&r->device, 0)) ||
        (e = r->DeviceGetName(r->name, sizeof(r->name), r->device)) || (e = r->PrimaryRetain(&context, r->device)) ||
        (e = r->SetCurrent(context)))
        return runner_fail(r, "opening the device", e);
    r->DriverGetVersion(&r->driver_version);
    r->DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, r->device);
    r->DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, r->device);
    r->arch = major * 10 + minor;
    return true;
}

__attribute__((unused)) static void runner_close(runner *r)
{
    r->PrimaryRelease(r->device);
}

__attribute__((unused)) static bool runner_load(runner *r, const char *ptx, CUmodule *out)
{
    r->error[0] = 0;
    CUjit_option options[3] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_OPTIMIZATION_LEVEL};
    void *values[3] = {r->error, (void *)(uintptr_t)(sizeof(r->error) - 200), NULL};
    CUresult e = r->LoadData(out, ptx, r->unoptimized ? 3 : 2, options, values);
    return e ? runner_fail(r, "loading PTX", e) : true;
}

/* kernel(in, out, n) with `blocks` x `threads`; copies `in_size` bytes in and `out_size` bytes in and out. */
__attribute__((unused)) static bool runner_run(runner *r, CUmodule module, const char *kernel, unsigned blocks,
                                               unsigned threads, const void *in, size_t in_size, void *out,
                                               size_t out_size, uint32_t n)
{
    CUfunction f;
    CUdeviceptr d_in = 0, d_out = 0;
    CUresult e;
    void *params[3] = {&d_in, &d_out, &n};
    const char *step = "finding the kernel";
    r->error[0] = 0;
    if ((e = r->GetFunction(&f, module, kernel)))
        goto out;
    step = "memory";
    if ((e = r->Alloc(&d_in, in_size)) || (e = r->Alloc(&d_out, out_size)) || (e = r->HtoD(d_in, in, in_size)) ||
        (e = r->HtoD(d_out, out, out_size)))
        goto out;
    step = kernel;
    if ((e = r->Launch(f, blocks, 1, 1, threads, 1, 1, 0, NULL, params, NULL)) || (e = r->Synchronize()))
        goto out;
    step = "reading back";
    e = r->DtoH(out, d_out, out_size);
out:
    if (d_in)
        r->Free(d_in);
    if (d_out)
        r->Free(d_out);
    return e ? runner_fail(r, step, e) : true;
}

/* For the real driver: a runner_find on dlopen's handle. NULL handle: no driver here. */
__attribute__((unused)) static void *runner_dlsym(const char *symbol, void *handle)
{
    return dlsym(handle, symbol);
}

__attribute__((unused)) static void *runner_dlopen(void)
{
    const char *name = getenv("STITCH_CUDA_DRIVER");
    return dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

#endif
