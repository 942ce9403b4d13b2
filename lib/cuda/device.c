/* SPDX-License-Identifier: MIT
 *
 * The device of a context: opening it, making it current, results of driver calls, waiting, device memory.
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/guards.h"
#include "cuda/internal.h"
#include "sim/sim_ext.h"

/* ---- results ---- */

/* After these the driver answers every further call of the process with an error (measured on an H200). */
static bool is_fault(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: return true;
    default: return false;
    }
}

/* "dev->drv->MemAlloc(&p, n)" as STITCH__CU gives it -> "cuMemAlloc"; other texts stay as they are. */
static void call_name(const char *what, char *out, size_t size)
{
    const char *at = strstr(what, "drv->");
    if (at) {
        at += 5;
        snprintf(out, size, "cu%.*s", (int)strcspn(at, "("), at);
    } else {
        snprintf(out, size, "%s", what);
    }
}

int stitch__cu_check(const stitch__device *dev, CUresult result, stitch_error **err, const char *what)
{
    const char *name = NULL, *text = NULL;
    char call[512];
    if (result == CUDA_SUCCESS)
        return STITCH_OK;
    if (dev && dev->drv) {
        dev->drv->GetErrorName(result, &name);
        dev->drv->GetErrorString(result, &text);
    }
    const stitch_context *ctx = dev ? dev->ctx : NULL;
    call_name(what ? what : "a driver call", call, sizeof(call));
    int code = result == CUDA_ERROR_OUT_OF_MEMORY ? STITCH_E_NOMEM
               : is_fault(result)                 ? STITCH_E_FAULT
                                                  : STITCH_E_DRIVER;
    const char *advice = "";
    if (code == STITCH_E_FAULT && dev && dev->info.simulated)
        advice = "; the simulated device of this context has failed";
    else if (code == STITCH_E_FAULT)
        advice = "; the GPU context of this process is lost, only a new process can use the GPU again";
    else if (code == STITCH_E_NOMEM)
        advice = "; free device memory or use smaller dimensions";
    return stitch__err_native(ctx, err, code, STITCH_DOMAIN_DRIVER, result, "%s: %s (%s)%s", call,
                              name ? name : "unknown error", text ? text : "no description", advice);
}

int stitch__cu_checkf(const stitch__device *dev, CUresult result, stitch_error **err, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    if (result == CUDA_SUCCESS)
        return STITCH_OK;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return stitch__cu_check(dev, result, err, what);
}

/* ---- opening ---- */

static int64_t attribute(const stitch__device *dev, CUdevice_attribute which)
{
    int value = 0;
    return dev->drv->DeviceGetAttribute(&value, which, dev->ordinal) == CUDA_SUCCESS ? value : 0;
}

bool stitch__device_reaches_host(const stitch__device *dev)
{
    return !dev->info.simulated && attribute(dev, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS) != 0;
}

/* Which ordinal the context's device text means. */
static int pick_ordinal(stitch__cuda *cuda, const char *text, CUdevice *ordinal, stitch_error **err)
{
    CUresult (*find)(CUdevice *, const char *);
    int count = 0, index = 0;
    memcpy(&find, &cuda->driver.sim_find_device, sizeof(find));
    bool sim = strncmp(text, "sim:", 4) == 0;
    if (find && (sim || strcmp(text, "auto") == 0)) {
        const char *arch = sim ? text + 4 : "sm_90";
        if (find(ordinal, arch) == CUDA_SUCCESS)
            return STITCH_OK;
        return stitch__err(cuda->ctx, err, STITCH_E_NO_DEVICE,
                           "the simulator does not simulate %s; it does sm_80, sm_86, sm_89, sm_90, sm_100 and sm_120",
                           arch);
    }
    if (strncmp(text, "cuda:", 5) == 0)
        index = atoi(text + 5);
    CUresult result = cuda->driver.DeviceGetCount(&count);
    if (result != CUDA_SUCCESS || index >= count)
        return stitch__err(cuda->ctx, err, STITCH_E_NO_DEVICE, "device %s does not exist: the driver sees %d device(s)",
                           text, count);
    result = cuda->driver.DeviceGet(ordinal, index);
    return stitch__cu_checkf(&cuda->device, result, err, "cuDeviceGet(%d)", index);
}

/* The best architecture name for a compute capability: "sm_90a" where architecture-specific code exists and NVRTC makes
 * it; the next lower one of the same major version, whose machine code runs too, where NVRTC is older than the device.
 */
static const char *pick_arch(stitch__cuda *cuda, int major, int minor)
{
    int want = major * 10 + minor, best = want, count = 0;
    bool known = true;
    if (!cuda->nvrtc_ready && stitch__nvrtc_open(cuda, NULL, NULL) != STITCH_OK)
        goto done; /* compiling will say what is missing */
    int archs[256];
    if (cuda->nvrtc.GetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 1 || count > (int)STITCH__COUNT(archs) ||
        cuda->nvrtc.GetSupportedArchs(archs) != NVRTC_SUCCESS)
        goto done;
    known = false;
    int below = 0;
    for (int i = 0; i < count; i++) {
        known = known || archs[i] == want;
        if (archs[i] < want && archs[i] / 10 == major && archs[i] > below)
            below = archs[i];
    }
    if (!known && below)
        best = below;
done:
    return stitch__arena_printf(&cuda->arena, "sm_%d%s", best, known && best >= 90 ? "a" : "");
}

static int fill_info(stitch__cuda *cuda, const char *text, stitch_error **err)
{
    stitch__device *dev = &cuda->device;
    stitch_device_info *info = &dev->info;
    const stitch__driver *drv = dev->drv;
    char name[256] = "";
    size_t bytes = 0;
    int rc = STITCH_OK;
    info->struct_size = sizeof(*info);
    STITCH__CU(drv->DeviceGetName(name, sizeof(name), dev->ordinal));
    STITCH__CU(drv->DeviceTotalMem(&bytes, dev->ordinal));
    STITCH__CU(drv->DriverGetVersion(&info->driver_version));
    info->name = stitch__arena_strdup(&cuda->arena, name);
    info->ordinal = dev->ordinal;
    info->compute_major = (int32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    info->compute_minor = (int32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    info->simulated = drv->sim_set_options != NULL;
    info->multiprocessors = (int32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    info->max_threads_per_block = (int32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    info->clock_khz = (int32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    info->memory_clock_khz = (int32_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    info->memory_bytes = bytes;
    info->l2_bytes = (uint64_t)attribute(dev, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    info->shared_bytes_per_block = (uint64_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    info->shared_bytes_per_block_optin =
        (uint64_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    info->shared_bytes_per_multiprocessor =
        (uint64_t)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    if (info->shared_bytes_per_block_optin < info->shared_bytes_per_block)
        info->shared_bytes_per_block_optin = info->shared_bytes_per_block;
    for (int i = 0; i < 3; i++) {
        dev->max_grid[i] = (int)attribute(dev, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
        dev->max_block[i] = (int)attribute(dev, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    }
    dev->max_threads_per_sm = (int)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    dev->max_registers_per_block = (int)attribute(dev, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
    dev->cooperative = attribute(dev, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
    dev->clusters = attribute(dev, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
    int number;
    char suffix;
    if (info->simulated && strncmp(text, "sim:", 4) == 0 && stitch__arch_parse(text + 4, &number, &suffix))
        info->arch = stitch__arena_strdup(&cuda->arena, text + 4);
    else
        info->arch = pick_arch(cuda, info->compute_major, info->compute_minor);
    if (!info->name || !info->arch)
        rc = stitch__err_nomem(cuda->ctx, err);
out:
    return rc;
}

/* The primary context, which the host's other users of the device share; on the simulator, which has none, a context of
 * its own for each stitch_context: what one has the simulator check, and what faults in it, is nothing to the others.
 */
static int open_context(stitch__cuda *cuda, stitch__device *dev, stitch_error **err)
{
    stitch__sim_context_new_fn make;
    memcpy(&make, &cuda->driver.sim_context_new, sizeof(make));
    if (!cuda->simulator || !make)
        return stitch__cu_checkf(dev, cuda->driver.DevicePrimaryCtxRetain(&dev->context, dev->ordinal), err,
                                 "cuDevicePrimaryCtxRetain of device %d", dev->ordinal);
    CUresult result = make(&dev->context, dev->ordinal);
    dev->alone = result == CUDA_SUCCESS;
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return stitch__err(cuda->ctx, err, STITCH_E_NOMEM,
                           "no room for one more simulated device; free contexts that are not used any more");
    return stitch__cu_check(dev, result, err, "making a context of the simulated device");
}

void stitch__device_close(stitch__cuda *cuda)
{
    stitch__sim_context_free_fn release;
    stitch__turns_free(&cuda->device);
    memcpy(&release, &cuda->driver.sim_context_free, sizeof(release));
    /* A context that a fault has ruined answers with an error: there is nothing to do about it. */
    if (cuda->device.alone)
        release(cuda->device.context);
    else
        cuda->driver.DevicePrimaryCtxRelease(cuda->device.ordinal);
}

int stitch__device_open(stitch__cuda *cuda, stitch_error **err)
{
    const char *text = stitch__context_options(cuda->ctx)->device;
    stitch__device *dev = &cuda->device;
    int rc = stitch__driver_open(cuda, NULL, err);
    if (rc)
        return rc;
    memset(dev, 0, sizeof(*dev));
    dev->ctx = cuda->ctx;
    dev->drv = &cuda->driver;
    if ((rc = pick_ordinal(cuda, text, &dev->ordinal, err)) != STITCH_OK)
        return rc;
    if ((rc = open_context(cuda, dev, err)) != STITCH_OK)
        return rc;
    rc = fill_info(cuda, text, err);
    if (!rc)
        rc = stitch__turns_make(dev, err);
    if (rc) {
        stitch__device_close(cuda);
        return rc;
    }
    if (dev->alone && stitch__device_enter(dev, NULL) == STITCH_OK) {
        stitch__device_limit(dev, NULL);
        stitch__device_leave(dev);
    }
    cuda->device_ready = true;
    stitch__log(cuda->ctx, STITCH_LOG_INFO, "opened %s%s (%s, %d multiprocessors, driver %d.%d)",
                dev->info.simulated ? "simulated " : "", dev->info.name, dev->info.arch, dev->info.multiprocessors,
                dev->info.driver_version / 1000, dev->info.driver_version % 1000 / 10);
    return STITCH_OK;
}

int stitch_device_query(stitch_context *ctx, stitch_device_info *info, stitch_error **err)
{
    stitch__device *dev;
    size_t size;
    if (!info)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_device_query: info must not be NULL");
    size = info->struct_size;
    if (size < sizeof(size))
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_device_query: info->struct_size is %zu; use STITCH_DEVICE_INFO_INIT", size);
    int rc = stitch__device_get(ctx, &dev, err);
    if (rc)
        return rc;
    /* A caller built for a newer library gets zeroes in the fields that this one does not know. */
    memset(info, 0, size);
    memcpy(info, &dev->info, size < sizeof(dev->info) ? size : sizeof(dev->info));
    info->struct_size = size;
    return STITCH_OK;
}

/* ---- current context ---- */

int stitch__device_enter(stitch__device *dev, stitch_error **err)
{
    return stitch__cu_check(dev, dev->drv->CtxPushCurrent(dev->context), err, "cuCtxPushCurrent");
}

void stitch__device_leave(stitch__device *dev)
{
    CUcontext popped;
    dev->drv->CtxPopCurrent(&popped);
}

/* ---- waiting ---- */

enum { SPIN_NS = 50000, YIELD_NS = 300000, SLEEP_MIN_NS = 20000, SLEEP_MAX_NS = 1000000, GRACE_MS = 1000 };

/* Asks for the event, or for the stream where that is NULL, again and again. The device is entered. */
static int ask(const stitch__device *dev, CUevent event, CUstream stream, const stitch__scope *scope, const char *what,
               stitch_error **err)
{
    int64_t start = stitch__now_ns(), nap = SLEEP_MIN_NS;
    for (;;) {
        CUresult result = event ? dev->drv->EventQuery(event) : dev->drv->StreamQuery(stream);
        if (result != CUDA_ERROR_NOT_READY)
            return stitch__cu_check(dev, result, err, what);
        int rc = scope ? stitch__scope_check(scope, what, err) : STITCH_OK;
        if (rc)
            return rc;
        /* Short kernels are worth a busy wait; for long ones the CPU belongs to others. */
        int64_t waited = stitch__now_ns() - start;
        if (waited < SPIN_NS)
            continue;
        if (waited < YIELD_NS) {
            sched_yield();
            continue;
        }
        nanosleep(&(struct timespec){0, nap}, NULL);
        nap = nap * 2 < SLEEP_MAX_NS ? nap * 2 : SLEEP_MAX_NS;
    }
}

int stitch__stream_wait(stitch__device *dev, CUstream stream, const stitch__scope *scope, const char *what,
                        stitch_error **err)
{
    int rc = stitch__device_enter(dev, err);
    if (rc)
        return rc;
    rc = ask(dev, NULL, stream, scope, what, err);
    stitch__device_leave(dev);
    return rc;
}

/* The legacy stream waits for every stream of the context but those that were made not to wait for it. */
static CUresult record_all(const stitch__device *dev, CUevent event)
{
    return dev->drv->CtxRecordEvent ? dev->drv->CtxRecordEvent(dev->context, event)
                                    : dev->drv->EventRecord(event, CU_STREAM_LEGACY);
}

int stitch__context_wait(stitch__device *dev, const stitch__scope *scope, const char *what, stitch_error **err)
{
    const stitch__driver *drv = dev->drv;
    CUevent event = NULL;
    int rc = stitch__device_enter(dev, err);
    if (rc)
        return rc;
    CUresult result = drv->EventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = record_all(dev, event);
    rc = stitch__cu_check(dev, result, err, what);
    if (rc == STITCH_OK)
        rc = ask(dev, event, NULL, scope, what, err);
    if (rc == STITCH_OK && !drv->CtxRecordEvent)
        rc = stitch__cu_check(dev, drv->CtxSynchronize(), err, what);
    if (event)
        drv->EventDestroy(event); /* at once, whether it has been reached or not */
    stitch__device_leave(dev);
    return rc;
}

bool stitch__context_rests(stitch__device *dev)
{
    const stitch__scope grace = stitch__scope_make(NULL, NULL, GRACE_MS);
    return stitch__context_wait(dev, &grace, "the device", NULL) != STITCH_E_TIMEOUT;
}

/* ---- memory ---- */

int stitch__mem_alloc(stitch__device *dev, size_t bytes, const char *name, CUdeviceptr *out, stitch_error **err)
{
    CUresult (*give_name)(CUdeviceptr, const char *);
    *out = 0;
    /* The driver refuses 0 bytes, but an empty tensor is a tensor. */
    CUresult result = dev->guards ? stitch__guards_alloc(dev, bytes ? bytes : 1, name, out)
                                  : dev->drv->MemAlloc(out, bytes ? bytes : 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        size_t free_bytes = 0, total = 0;
        dev->drv->MemGetInfo(&free_bytes, &total);
        *out = 0;
        return stitch__err_native(dev->ctx, err, STITCH_E_NOMEM, STITCH_DOMAIN_DRIVER, result,
                                  "no device memory for \"%s\" (%zu bytes): %zu of %zu bytes are free",
                                  name ? name : "a buffer", bytes, free_bytes, total);
    }
    if (result != CUDA_SUCCESS) {
        *out = 0;
        return stitch__cu_checkf(dev, result, err, "cuMemAlloc of %zu bytes for \"%s\"", bytes,
                                 name ? name : "a buffer");
    }
    memcpy(&give_name, &dev->drv->sim_name_allocation, sizeof(give_name));
    if (give_name && name)
        give_name(*out, name);
    return STITCH_OK;
}

void stitch__mem_free(stitch__device *dev, CUdeviceptr ptr)
{
    if (ptr && !(dev->guards && stitch__guards_free(dev, ptr)))
        dev->drv->MemFree(ptr); /* fails when a fault has ruined the context: the memory is gone with it */
}
