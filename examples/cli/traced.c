/* SPDX-License-Identifier: MIT
 *
 * One run of a program under a trace. The program has been verified before, for here it runs in this process. Its
 * memory comes from the driver, which is opened as libstitch opens it.
 */
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <dlfcn.h>

#include "cli.h"

enum { PIECE = 1 << 20 }; /* of what inputs are filled with, again and again */

typedef struct rig {
    CUresult (*Init)(unsigned flags);
    CUresult (*PrimaryCtxRetain)(CUcontext *ctx, CUdevice dev);
    CUresult (*PrimaryCtxRelease)(CUdevice dev);
    CUresult (*CtxSetCurrent)(CUcontext ctx);
    CUresult (*StreamCreate)(CUstream *stream, unsigned flags);
    CUresult (*StreamSynchronize)(CUstream stream);
    CUresult (*StreamDestroy)(CUstream stream);
    CUresult (*MemAlloc)(CUdeviceptr *ptr, size_t bytes);
    CUresult (*MemFree)(CUdeviceptr ptr);
    CUresult (*MemcpyHtoD)(CUdeviceptr to, const void *from, size_t bytes);
    CUresult (*MemsetD8)(CUdeviceptr to, unsigned char value, size_t bytes);
    void *library;
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr *memory;
    size_t count;
    unsigned char *piece;
    char why[160];
} rig;

static int driver_failed(rig *r, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return STITCH_OK;
    snprintf(r->why, sizeof(r->why), "%s failed with %d", what, (int)result);
    return STITCH_E_DRIVER;
}

static int open_driver(rig *r)
{
    const struct {
        const char *name;
        void *to; /* a pointer to a function */
    } wanted[] = {{"cuInit", &r->Init},
                  {"cuDevicePrimaryCtxRetain", &r->PrimaryCtxRetain},
                  {"cuDevicePrimaryCtxRelease_v2", &r->PrimaryCtxRelease},
                  {"cuCtxSetCurrent", &r->CtxSetCurrent},
                  {"cuStreamCreate", &r->StreamCreate},
                  {"cuStreamSynchronize", &r->StreamSynchronize},
                  {"cuStreamDestroy_v2", &r->StreamDestroy},
                  {"cuMemAlloc_v2", &r->MemAlloc},
                  {"cuMemFree_v2", &r->MemFree},
                  {"cuMemcpyHtoD_v2", &r->MemcpyHtoD},
                  {"cuMemsetD8_v2", &r->MemsetD8}};
    const char *path = getenv("STITCH_CUDA_DRIVER");
    int rc;

    r->library = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW);
    if (!r->library) {
        snprintf(r->why, sizeof(r->why), "the driver cannot be opened: %s", dlerror());
        return STITCH_E_NO_LIBRARY;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *found = dlsym(r->library, wanted[i].name);
        if (!found) {
            snprintf(r->why, sizeof(r->why), "the driver has no %s", wanted[i].name);
            return STITCH_E_NO_LIBRARY;
        }
        memcpy(wanted[i].to, &found, sizeof(found)); /* ISO C has no cast for it */
    }
    rc = driver_failed(r, r->Init(0), "cuInit");
    if (!rc)
        rc = driver_failed(r, r->PrimaryCtxRetain(&r->context, r->device), "cuDevicePrimaryCtxRetain");
    if (!rc)
        rc = driver_failed(r, r->CtxSetCurrent(r->context), "cuCtxSetCurrent");
    return rc ? rc : driver_failed(r, r->StreamCreate(&r->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

/* The upper bits of numbers of either sign between 1/8 and 1/4, and those of them that are drawn: zeros would flatter
 * the clocks. */
static const struct {
    int dtype;
    unsigned top, drawn;
} small[] = {{STITCH_DTYPE_F64, 0x3fc0, 0x800f},  {STITCH_DTYPE_F32, 0x3e00, 0x807f},
             {STITCH_DTYPE_TF32, 0x3e00, 0x807f}, {STITCH_DTYPE_BF16, 0x3e00, 0x807f},
             {STITCH_DTYPE_F16, 0x3000, 0x83ff},  {STITCH_DTYPE_F8E4M3, 0x20, 0x87},
             {STITCH_DTYPE_F8E5M2, 0x30, 0x83}};

/* false: no floating type. */
static bool make_piece(rig *r, int dtype)
{
    size_t size = stitch_dtype_size(dtype), kind = 0;
    uint32_t state = 2463534242u;

    while (kind < sizeof(small) / sizeof(small[0]) && small[kind].dtype != dtype)
        kind++;
    if (kind == sizeof(small) / sizeof(small[0]))
        return false;
    for (size_t at = 0; at < PIECE; at += size) {
        for (size_t i = 0; i < size; i++) {
            state = state * 1664525u + 1013904223u;
            r->piece[at + i] = (unsigned char)(state >> 24);
        }
        unsigned top = small[kind].top | (state >> 12 & small[kind].drawn);
        r->piece[at + size - 1] = (unsigned char)(size == 1 ? top : top >> 8);
        if (size > 1)
            r->piece[at + size - 2] = (unsigned char)top;
    }
    return true;
}

/* Inputs and weights of floating types get small numbers, everything else (indices, outputs, states) zeros. */
static int fill(rig *r, const stitch_tensor_info *info, CUdeviceptr to)
{
    int rc = driver_failed(r, r->MemsetD8(to, 0, (size_t)info->bytes), "cuMemsetD8");

    if (rc || (info->role != STITCH_TENSOR_INPUT && info->role != STITCH_TENSOR_WEIGHT) || !make_piece(r, info->dtype))
        return rc;
    for (uint64_t at = 0; !rc && at < info->bytes; at += PIECE) {
        uint64_t left = info->bytes - at;
        rc = driver_failed(r, r->MemcpyHtoD(to + at, r->piece, (size_t)(left < PIECE ? left : PIECE)), "cuMemcpyHtoD");
    }
    return rc;
}

static int bind(rig *r, stitch_executor *x, stitch_error **err)
{
    const stitch_interface *iface = stitch_executor_interface(x);
    size_t count = stitch_interface_tensor_count(iface);
    int rc = STITCH_OK;

    r->memory = calloc(count + 1, sizeof(*r->memory));
    r->piece = malloc(PIECE);
    if (!r->memory || !r->piece)
        return STITCH_E_NOMEM;
    for (size_t i = 0; !rc && i < count; i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        rc = stitch_interface_tensor(iface, i, &info);
        if (!rc)
            rc = driver_failed(r, r->MemAlloc(&r->memory[i], info.bytes ? (size_t)info.bytes : 1), "cuMemAlloc");
        if (rc)
            break;
        r->count = i + 1;
        rc = fill(r, &info, r->memory[i]);
        if (!rc)
            rc = stitch_executor_bind_name(x, info.name, r->memory[i], info.bytes, err);
    }
    return rc;
}

static int traced_run(cli *c, rig *r, stitch_executor *x, stitch_trace **trace, stitch_error **err)
{
    int rc = stitch_executor_prepare(x, r->stream, err), ended;

    if (!rc) /* what happens the first time only is not to be seen */
        rc = stitch_executor_run(x, r->stream, err);
    if (!rc)
        rc = driver_failed(r, r->StreamSynchronize(r->stream), "the run");
    if (!rc)
        rc = stitch_trace_begin(c->ctx, NULL, trace, err);
    if (rc)
        return rc;
    rc = stitch_executor_run(x, r->stream, err);
    if (!rc)
        rc = driver_failed(r, r->StreamSynchronize(r->stream), "the traced run");
    ended = stitch_trace_end(*trace, rc ? NULL : err);
    if (!rc && !ended) /* without steps it is a timeline all the same */
        (void)stitch_trace_attribute(*trace, x, 1, NULL);
    return rc ? rc : ended;
}

static void close_rig(rig *r)
{
    for (size_t i = 0; i < r->count; i++)
        r->MemFree(r->memory[i]);
    if (r->stream)
        r->StreamDestroy(r->stream);
    if (r->context)
        r->PrimaryCtxRelease(r->device);
    if (r->library)
        dlclose(r->library);
    free(r->memory);
    free(r->piece);
}

int cli_trace_program(cli *c, stitch_program *program, stitch_trace **trace, stitch_error **err)
{
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    stitch_executor *x = NULL;
    rig r = {0};
    int rc = stitch_device_query(c->ctx, &info, err);

    *trace = NULL;
    if (rc)
        return rc;
    if (info.simulated) /* it says why that cannot be traced */
        return stitch_trace_begin(c->ctx, NULL, trace, err);
    r.device = info.ordinal;
    snprintf(c->what, sizeof(c->what), "trace");
    cli_live(c);
    rc = open_driver(&r);
    if (!rc)
        rc = stitch_executor_new(c->ctx, program, NULL, &x, err);
    if (!rc)
        rc = bind(&r, x, err);
    if (!rc)
        rc = traced_run(c, &r, x, trace, err);
    stitch_executor_free(x);
    close_rig(&r);
    if (rc) {
        stitch_trace_free(*trace);
        *trace = NULL;
        if (*r.why)
            cli_say(c, "trace: %s", r.why);
    }
    return rc;
}
