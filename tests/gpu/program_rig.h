/* SPDX-License-Identifier: MIT
 *
 * For tests of executors: a program with memory for every tensor of its interface, filled and read back by name.
 */
#ifndef STITCH_TESTS_PROGRAM_RIG_H
#define STITCH_TESTS_PROGRAM_RIG_H

#include "device.h"
#include "program_fixture.h"

typedef struct rig {
    stitch_program *program;
    stitch_executor *x;
    stitch__device *dev;
    CUstream stream;
    size_t count;
    CUdeviceptr mem[32];
    uint64_t bytes[32];
} rig;

static size_t rig_slot(const rig *r, const char *name)
{
    size_t slot;
    CHECK_OK(stitch_executor_slot(r->x, name, &slot, &err));
    return slot;
}

/* A block of device memory filled with ones, which no test expects as a result. */
__attribute__((unused)) static CUdeviceptr rig_memory(rig *r, uint64_t bytes, const char *name)
{
    CUdeviceptr ptr;
    CHECK_OK(stitch__device_enter(r->dev, &err));
    CHECK_OK(stitch__mem_alloc(r->dev, bytes, name, &ptr, &err));
    CHECK_INT(r->dev->drv->MemsetD8Async(ptr, 0xff, bytes, r->stream), CUDA_SUCCESS);
    CHECK_INT(r->dev->drv->StreamSynchronize(r->stream), CUDA_SUCCESS);
    stitch__device_leave(r->dev);
    return ptr;
}

/* `scale`: memory for tensors as large as with the given dims times this. */
__attribute__((unused)) static void rig_open_program(rig *r, stitch_program *p, const stitch_executor_options *o,
                                                     uint64_t scale)
{
    r->program = p;
    CHECK_OK(stitch__device_get(ctx, &r->dev, &err));
    CHECK_OK(stitch_executor_new(ctx, p, o, &r->x, &err));
    CHECK_OK(stitch__device_enter(r->dev, &err));
    CHECK_INT(r->dev->drv->StreamCreate(&r->stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    stitch__device_leave(r->dev);
    const stitch_interface *i = stitch_executor_interface(r->x);
    r->count = stitch_interface_tensor_count(i);
    for (size_t k = 0; k < r->count; k++) {
        stitch_tensor_info t = STITCH_TENSOR_INFO_INIT;
        CHECK_INT(stitch_interface_tensor(i, k, &t), STITCH_OK);
        r->bytes[k] = t.bytes * scale;
        r->mem[k] = rig_memory(r, r->bytes[k], t.name);
        CHECK_OK(stitch_executor_bind(r->x, k, r->mem[k], r->bytes[k], &err));
    }
}

__attribute__((unused)) static stitch_program *rig_program(const char *iface, const char *source, const char *plan)
{
    stitch_program *p;
    stitch_interface *i = new_interface(ctx, iface);
    CHECK_OK(stitch_program_parse(ctx, source, plan, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, i, device.arch, &err));
    stitch_interface_free(i);
    return p;
}

__attribute__((unused)) static void rig_open(rig *r, const char *iface, const char *source, const char *plan,
                                             const stitch_executor_options *o)
{
    memset(r, 0, sizeof(*r));
    rig_open_program(r, rig_program(iface, source, plan), o, 1);
}

__attribute__((unused)) static void rig_close(rig *r)
{
    CHECK_OK(stitch__device_enter(r->dev, &err));
    r->dev->drv->StreamSynchronize(r->stream);
    stitch_executor_free(r->x);
    for (size_t k = 0; k < r->count; k++)
        stitch__mem_free(r->dev, r->mem[k]);
    r->dev->drv->StreamDestroy(r->stream);
    stitch__device_leave(r->dev);
    stitch_program_free(r->program);
}

__attribute__((unused)) static void rig_write(rig *r, CUdeviceptr to, const void *data, size_t bytes)
{
    CHECK_OK(stitch__device_enter(r->dev, &err));
    CHECK_INT(r->dev->drv->MemcpyHtoD(to, data, bytes), CUDA_SUCCESS);
    stitch__device_leave(r->dev);
}

__attribute__((unused)) static void rig_read(rig *r, CUdeviceptr from, void *data, size_t bytes)
{
    stitch__scope scope = stitch__scope_make(ctx, NULL, 60000);
    CHECK_OK(stitch__device_enter(r->dev, &err));
    CHECK_OK(stitch__stream_wait(r->dev, r->stream, &scope, "the test", &err));
    CHECK_INT(r->dev->drv->MemcpyDtoH(data, from, bytes), CUDA_SUCCESS);
    stitch__device_leave(r->dev);
}

__attribute__((unused)) static void rig_set(rig *r, const char *name, const void *data, size_t bytes)
{
    size_t slot = rig_slot(r, name);
    CHECK(bytes <= r->bytes[slot]);
    rig_write(r, r->mem[slot], data, bytes);
}

__attribute__((unused)) static void rig_get(rig *r, const char *name, void *data, size_t bytes)
{
    size_t slot = rig_slot(r, name);
    CHECK(bytes <= r->bytes[slot]);
    rig_read(r, r->mem[slot], data, bytes);
}

__attribute__((unused)) static void rig_run(rig *r)
{
    CHECK_OK(stitch_executor_prepare(r->x, r->stream, &err));
    CHECK_OK(stitch_executor_run(r->x, r->stream, &err));
}

/* ---- plans and kernels that several tests use ------------------------------------------------------------------- */

#define STEP(name, grid, block, args)                                                                                  \
    "{\"kernel\": \"" name "\", \"grid\": [" grid "], \"block\": [" block "], \"args\": [" args "]}"
#define PLAN(buffers, prepare, run)                                                                                    \
    "{\"stitch\": 1, \"buffers\": {" buffers "}, \"prepare\": [" prepare "], \"run\": [" run "]}"
#define F32(name, n) "\"" name "\": {\"dtype\": \"f32\", \"shape\": [" n "]}"

__attribute__((unused)) static void fill_ramp(float *v, size_t n, float first, float step)
{
    for (size_t i = 0; i < n; i++)
        v[i] = first + step * (float)i;
}

__attribute__((unused)) static const char loop_source[] =
    "__global__ void add(const float *x, float *y, int n, float f) { int i = threadIdx.x; if (i < n) y[i] += f * x[i]; "
    "}\n"
    "__global__ void set(float *y, int n, float v) { int i = threadIdx.x; if (i < n) y[i] = v; }\n";

#define SCALE_SOURCE                                                                                                   \
    "__global__ void scale(const float *x, const float *w, float *y, int n) { int i = blockIdx.x * blockDim.x + "      \
    "threadIdx.x; if (i < n) y[i] = w[0] * x[i]; }\n"
#define SCALE_PLAN                                                                                                     \
    "{\"stitch\": 1, \"run\": [" STEP("scale", "\"ceil_div(N, 64)\"", "64",                                            \
                                      "\"x\", \"w\", \"y\", {\"i32\": \"N\"}") "]}"

#endif
