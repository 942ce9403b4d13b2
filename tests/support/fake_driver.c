/* SPDX-License-Identifier: MIT
 *
 * See fake_driver.h.
 */
#include "fake_driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

fake_driver fake = {.allocations_left = -1};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* One launch, with its own copy of the parameters. */
typedef struct launch {
    fake_kernel *kernel;
    void *params[16];
    struct launch *next;
} launch;

typedef struct stream {
    bool capturing;
    launch *first, *last;
} stream;

typedef struct event {
    double us;
} event;

#define STICKY()                                                                                                       \
    do {                                                                                                               \
        if (fake.fault)                                                                                                \
            return fake.fault;                                                                                         \
    } while (0)

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool busy(void)
{
    return fake.busy_until_ns > now_ns();
}

/* Calls that wait for the device. */
static void may_block(void)
{
    if (busy())
        fake.blocked_calls++;
}

static void count(int by)
{
    pthread_mutex_lock(&lock);
    fake.live += by;
    pthread_mutex_unlock(&lock);
}

/* ---- start, device ----------------------------------------------------------------------------------------------- */

static CUresult fake_init(unsigned flags)
{
    return CUDA_SUCCESS;
}

static CUresult fake_version(int *version)
{
    *version = 12040;
    return CUDA_SUCCESS;
}

static CUresult fake_error_name(CUresult r, const char **name)
{
    *name = "CUDA_ERROR";
    return CUDA_SUCCESS;
}

static CUresult fake_device_count(int *n)
{
    *n = 1;
    return CUDA_SUCCESS;
}

static CUresult fake_device_get(CUdevice *d, int ordinal)
{
    *d = ordinal;
    return CUDA_SUCCESS;
}

static CUresult fake_device_name(char *name, int len, CUdevice d)
{
    strncpy(name, "fake device", (size_t)len);
    return CUDA_SUCCESS;
}

static CUresult fake_attribute(int *value, CUdevice_attribute a, CUdevice d)
{
    switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 2; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 1 << 20; break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: *value = fake.reaches_host; break;
    default: *value = 1024; break;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_total_mem(size_t *bytes, CUdevice d)
{
    *bytes = (size_t)1 << 32;
    return CUDA_SUCCESS;
}

static CUresult fake_retain(CUcontext *c, CUdevice d)
{
    *c = (CUcontext)&fake;
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUdevice d)
{
    return CUDA_SUCCESS;
}

static CUresult fake_push(CUcontext c)
{
    return CUDA_SUCCESS; /* a lost context can still be made current */
}

static CUresult fake_pop(CUcontext *c)
{
    if (c)
        *c = (CUcontext)&fake;
    return CUDA_SUCCESS;
}

static CUresult fake_mem_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = 0;
    *total = (size_t)1 << 32;
    return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static CUresult fake_alloc(CUdeviceptr *out, size_t bytes)
{
    CUresult r = CUDA_SUCCESS;
    void *p;
    STICKY();
    pthread_mutex_lock(&lock);
    if (fake.allocations_left == 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (fake.allocations_left > 0)
        fake.allocations_left--;
    pthread_mutex_unlock(&lock);
    if (r)
        return r;
    p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(p, 0xcd, bytes);
    *out = (CUdeviceptr)(uintptr_t)p;
    count(1);
    return CUDA_SUCCESS;
}

static CUresult fake_free(CUdeviceptr p)
{
    may_block();
    free((void *)(uintptr_t)p); /* also in a lost context: the process' memory is what the tests look at */
    count(-1);
    return fake.fault;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    STICKY();
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_htod(CUdeviceptr to, const void *from, size_t bytes)
{
    may_block();
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes);
}

static CUresult fake_dtoh(void *to, CUdeviceptr from, size_t bytes)
{
    may_block();
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes);
}

static CUresult fake_htod_async(CUdeviceptr to, const void *from, size_t bytes, CUstream s)
{
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes);
}

static CUresult fake_dtod_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s)
{
    return copy(to, from, bytes);
}

static void note(char letter)
{
    size_t len = strlen(fake.log);
    if (len + 1 < sizeof(fake.log))
        fake.log[len] = letter;
}

static CUresult fake_set8(CUdeviceptr to, unsigned char value, size_t n, CUstream s)
{
    STICKY();
    if (fake.log_flushes && n >= fake.flush_bytes)
        note('F');
    memset((void *)(uintptr_t)to, value, n);
    return CUDA_SUCCESS;
}

static CUresult fake_set32(CUdeviceptr to, unsigned value, size_t n, CUstream s)
{
    STICKY();
    for (size_t i = 0; i < n; i++)
        ((unsigned *)(uintptr_t)to)[i] = value;
    return CUDA_SUCCESS;
}

/* ---- streams, events --------------------------------------------------------------------------------------------- */

static CUresult make(void **out, size_t size)
{
    STICKY();
    *out = calloc(1, size);
    if (!*out)
        return CUDA_ERROR_OUT_OF_MEMORY;
    count(1);
    return CUDA_SUCCESS;
}

static CUresult destroy(void *p)
{
    may_block();
    free(p);
    count(-1);
    return fake.fault;
}

static CUresult fake_stream_create(CUstream *out, unsigned flags)
{
    return make((void **)out, sizeof(stream));
}

static CUresult fake_stream_destroy(CUstream s)
{
    return destroy(s);
}

/* Work is done when it is enqueued, so there is nothing to wait for; and no test captures a stream of its own. */
static CUresult fake_wait_event(CUstream s, CUevent e, unsigned flags)
{
    (void)s, (void)e, (void)flags;
    return CUDA_SUCCESS;
}

static CUresult fake_is_capturing(CUstream s, CUstreamCaptureStatus *status)
{
    (void)s;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult fake_stream_query(CUstream s)
{
    if (busy())
        return CUDA_ERROR_NOT_READY;
    return fake.fault;
}

static CUresult fake_event_create(CUevent *out, unsigned flags)
{
    return make((void **)out, sizeof(event));
}

static CUresult fake_event_destroy(CUevent e)
{
    free(e); /* whatever is busy */
    count(-1);
    return fake.fault;
}

static CUresult fake_event_query(CUevent e)
{
    (void)e;
    return fake_stream_query(NULL);
}

static CUresult fake_context_record(CUcontext c, CUevent e)
{
    (void)c, (void)e;
    return fake.fault;
}

static CUresult fake_event_record(CUevent e, CUstream s)
{
    STICKY();
    ((event *)(void *)e)->us = fake.clock_us;
    return CUDA_SUCCESS;
}

static CUresult fake_elapsed(float *ms, CUevent from, CUevent to)
{
    STICKY();
    *ms = (float)((((event *)(void *)to)->us - ((event *)(void *)from)->us) / 1000);
    return CUDA_SUCCESS;
}

/* ---- modules, launches, graphs ----------------------------------------------------------------------------------- */

static CUresult fake_module_load(CUmodule *m, const void *image, unsigned n, CUjit_option *options, void **values)
{
    return make((void **)m, 1);
}

static CUresult fake_module_unload(CUmodule m)
{
    return destroy(m);
}

static CUresult fake_function(CUfunction *f, CUmodule m, const char *name)
{
    STICKY();
    for (size_t i = 0; i < fake.kernel_count; i++)
        if (strcmp(fake.kernels[i].name, name) == 0) {
            *f = (CUfunction)&fake.kernels[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_function_attribute(int *value, CUfunction_attribute a, CUfunction f)
{
    *value = 0;
    return CUDA_SUCCESS;
}

static CUresult fake_function_set(CUfunction f, CUfunction_attribute a, int value)
{
    return CUDA_SUCCESS;
}

static CUresult run(fake_kernel *k, void **params)
{
    STICKY();
    note(k->name[0] == 's' && strncmp(k->name, "stitch_", 7) == 0 ? k->name[7] : k->name[0]);
    pthread_mutex_lock(&lock);
    k->launches++;
    fake.clock_us += k->us;
    pthread_mutex_unlock(&lock);
    k->fn(params);
    return CUDA_SUCCESS; /* like the hardware: a fault shows in a later call */
}

static void free_launches(launch *l)
{
    while (l) {
        launch *following = l->next;
        for (size_t i = 0; i < l->kernel->param_count; i++)
            free(l->params[i]);
        free(l);
        l = following;
    }
}

static CUresult record(stream *s, fake_kernel *k, void **params)
{
    launch *l = calloc(1, sizeof(*l));
    if (!l)
        return CUDA_ERROR_OUT_OF_MEMORY;
    l->kernel = k;
    for (size_t i = 0; i < k->param_count; i++) {
        l->params[i] = malloc(k->sizes[i]);
        memcpy(l->params[i], params[i], k->sizes[i]);
    }
    if (s->last)
        s->last->next = l;
    else
        s->first = l;
    s->last = l;
    return CUDA_SUCCESS;
}

static CUresult fake_launch_ex(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    stream *s = (stream *)(void *)config->hStream;
    STICKY();
    return s && s->capturing ? record(s, (fake_kernel *)(void *)f, params) : run((fake_kernel *)(void *)f, params);
}

static CUresult fake_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, CUstream s, void **params, void **extra)
{
    CUlaunchConfig config = {.hStream = s};
    return fake_launch_ex(&config, f, params, extra);
}

static CUresult fake_synchronize(void)
{
    may_block();
    return fake.fault;
}

static CUresult fake_begin_capture(CUstream s, CUstreamCaptureMode mode)
{
    STICKY();
    ((stream *)(void *)s)->capturing = true;
    return CUDA_SUCCESS;
}

static CUresult fake_end_capture(CUstream s, CUgraph *graph)
{
    stream *st = (stream *)(void *)s;
    launch **made = NULL;
    CUresult r = make((void **)&made, sizeof(launch *));
    st->capturing = false;
    *graph = (CUgraph)made;
    if (r)
        return r;
    *made = st->first;
    st->first = st->last = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_graph_destroy(CUgraph g)
{
    free_launches(*(launch **)(void *)g);
    return destroy(g);
}

static CUresult take_over(launch **exec, CUgraph g)
{
    free_launches(*exec);
    *exec = *(launch **)(void *)g;
    *(launch **)(void *)g = NULL;
    return CUDA_SUCCESS;
}

static CUresult fake_instantiate(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult r = make((void **)out, sizeof(launch *));
    return r ? r : take_over((launch **)(void *)*out, g);
}

static CUresult fake_update(CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *info)
{
    STICKY();
    return take_over((launch **)(void *)e, g);
}

static CUresult fake_exec_destroy(CUgraphExec e)
{
    free_launches(*(launch **)(void *)e);
    return destroy(e);
}

static CUresult fake_graph_launch(CUgraphExec e, CUstream s)
{
    CUresult r = fake.fault;
    for (launch *l = *(launch **)(void *)e; l && !r; l = l->next)
        r = run(l->kernel, l->params);
    return r;
}

/* Called with any arguments; the calling convention lets it ignore them. */
static CUresult not_there(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

void *fake_get_proc(const char *symbol, void *userdata)
{
    static const struct {
        const char *symbol;
        void *fn;
    } table[] = {
        {"cuInit", (void *)fake_init},
        {"cuDriverGetVersion", (void *)fake_version},
        {"cuGetErrorName", (void *)fake_error_name},
        {"cuGetErrorString", (void *)fake_error_name},
        {"cuDeviceGetCount", (void *)fake_device_count},
        {"cuDeviceGet", (void *)fake_device_get},
        {"cuDeviceGetName", (void *)fake_device_name},
        {"cuDeviceGetAttribute", (void *)fake_attribute},
        {"cuDeviceTotalMem_v2", (void *)fake_total_mem},
        {"cuDevicePrimaryCtxRetain", (void *)fake_retain},
        {"cuDevicePrimaryCtxRelease_v2", (void *)fake_release},
        {"cuCtxPushCurrent_v2", (void *)fake_push},
        {"cuCtxPopCurrent_v2", (void *)fake_pop},
        {"cuCtxSynchronize", (void *)fake_synchronize},
        {"cuMemGetInfo_v2", (void *)fake_mem_info},
        {"cuMemAlloc_v2", (void *)fake_alloc},
        {"cuMemFree_v2", (void *)fake_free},
        {"cuMemcpyHtoD_v2", (void *)fake_htod},
        {"cuMemcpyDtoH_v2", (void *)fake_dtoh},
        {"cuMemcpyHtoDAsync_v2", (void *)fake_htod_async},
        {"cuMemcpyDtoDAsync_v2", (void *)fake_dtod_async},
        {"cuMemsetD8Async", (void *)fake_set8},
        {"cuMemsetD32Async", (void *)fake_set32},
        {"cuStreamCreate", (void *)fake_stream_create},
        {"cuStreamDestroy_v2", (void *)fake_stream_destroy},
        {"cuStreamQuery", (void *)fake_stream_query},
        {"cuStreamWaitEvent", (void *)fake_wait_event},
        {"cuStreamIsCapturing", (void *)fake_is_capturing},
        {"cuEventCreate", (void *)fake_event_create},
        {"cuEventDestroy_v2", (void *)fake_event_destroy},
        {"cuEventRecord", (void *)fake_event_record},
        {"cuEventQuery", (void *)fake_event_query},
        {"cuCtxRecordEvent", (void *)fake_context_record},
        {"cuEventElapsedTime", (void *)fake_elapsed},
        {"cuModuleLoadDataEx", (void *)fake_module_load},
        {"cuModuleUnload", (void *)fake_module_unload},
        {"cuModuleGetFunction", (void *)fake_function},
        {"cuFuncGetAttribute", (void *)fake_function_attribute},
        {"cuFuncSetAttribute", (void *)fake_function_set},
        {"cuLaunchKernel", (void *)fake_launch},
        {"cuLaunchKernelEx", (void *)fake_launch_ex},
        {"cuStreamBeginCapture_v2", (void *)fake_begin_capture},
        {"cuStreamEndCapture", (void *)fake_end_capture},
        {"cuGraphDestroy", (void *)fake_graph_destroy},
        {"cuGraphInstantiateWithParams", (void *)fake_instantiate},
        {"cuGraphExecUpdate_v2", (void *)fake_update},
        {"cuGraphExecDestroy", (void *)fake_exec_destroy},
        {"cuGraphLaunch", (void *)fake_graph_launch},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].symbol, symbol) == 0)
            return table[i].fn;
    return strncmp(symbol, "cu", 2) == 0 ? (void *)not_there : NULL; /* nothing of the simulator's */
}
