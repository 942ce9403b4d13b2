/* SPDX-License-Identifier: MIT
 *
 * What the tests of the simulated driver share: the function table, a fresh context, the module of data/driver.ptx.
 */
#ifndef STITCH_TESTS_DRIVER_TEST_H
#define STITCH_TESTS_DRIVER_TEST_H

#include "check.h"
#include "sim/driver.h"

/* Members are the driver's names: cu.cuMemAlloc_v2(...). */
static struct {
#define X(name)           __typeof__(&name) name;
#define X_EXT(name, type) type name;
#include "sim/driver_symbols.def"
#undef X
#undef X_EXT
} cu;

__attribute__((unused)) static void load_table(void)
{
#define X(name)                                                                                                        \
    do {                                                                                                               \
        void *address = stitch__sim_get_proc(#name, NULL);                                                             \
        if (!address)                                                                                                  \
            FAIL("no %s", #name);                                                                                      \
        memcpy(&cu.name, &address, sizeof(address));                                                                   \
    } while (0);
#define X_EXT(name, type) X(name)
#include "sim/driver_symbols.def"
#undef X
#undef X_EXT
}

#define CU(call, want)                                                                                                 \
    do {                                                                                                               \
        CUresult cu_got = (call);                                                                                      \
        const char *cu_name = NULL;                                                                                    \
        if (cu_got != (want)) {                                                                                        \
            cu.cuGetErrorName(cu_got, &cu_name);                                                                       \
            FAIL("%s: got %d (%s), expected %s", #call, (int)cu_got, cu_name ? cu_name : "?", #want);                  \
        }                                                                                                              \
    } while (0)
#define OK(call) CU(call, CUDA_SUCCESS)

static char *ptx;
static CUcontext context;
static CUmodule module;

/* A context of its own for a test, with the module loaded. What an earlier test left, after a failure too, is
 * destroyed. */
__attribute__((unused)) static void begin(void)
{
    stitch_error *err = NULL;
    size_t length;
    if (!cu.cuInit)
        load_table();
    OK(cu.cuInit(0));
    if (!ptx)
        CHECK_OK(stitch__file_read(NULL, STITCH_TEST_DATA "/driver.ptx", 0, &ptx, &length, &err));
    CUcontext left;
    while (cu.cuCtxPopCurrent_v2(&left) == CUDA_SUCCESS) {
    }
    if (context)
        cu.cuCtxDestroy_v2(context);
    context = NULL;
    OK(cu.cuCtxCreate_v2(&context, 0, 0));
    OK(cu.cuModuleLoadData(&module, ptx));
}

__attribute__((unused)) static void end_all(void)
{
    if (context)
        cu.cuCtxDestroy_v2(context);
    context = NULL;
    stitch_free(ptx);
    ptx = NULL;
}

__attribute__((unused)) static CUfunction function(const char *name)
{
    CUfunction f = NULL;
    OK(cu.cuModuleGetFunction(&f, module, name));
    return f;
}

__attribute__((unused)) static CUdeviceptr device_floats(const float *values, int n)
{
    CUdeviceptr p;
    OK(cu.cuMemAlloc_v2(&p, (size_t)n * 4));
    if (values)
        OK(cu.cuMemcpyHtoD_v2(p, values, (size_t)n * 4));
    return p;
}

/* c = a + b over n elements in blocks of 128. */
__attribute__((unused)) static CUresult launch_add(CUstream stream, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, int n)
{
    void *args[] = {&a, &b, &c, &n};
    return cu.cuLaunchKernel(function("vec_add"), ((unsigned)n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, args, NULL);
}

#endif
