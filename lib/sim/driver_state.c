/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: everything that belongs to the process or to a thread and not to a context.
 *
 * The library has no global state elsewhere. A driver cannot do without: cuInit() takes no handle, the current context
 * is a property of the calling thread, primary contexts are shared by all that retain them, and handles must be checked
 * without trusting the caller. All of it is in `state` and `this_thread`, and nowhere else in lib/sim.
 */
#include "sim/driver.h"

enum { BUCKETS = 1024, DEVICES_MAX = 16 };

static struct {
    pthread_mutex_t lock;
    pthread_mutex_t graph_lock;
    bool initialised;
    uint64_t next_handle, next_id;
    stitch__drv_object *buckets[BUCKETS];
    struct {
        stitch__drv_context *ctx;
        unsigned retained, flags;
    } primary[DEVICES_MAX];
    bool slots[STITCH__DRV_SLOTS];
    stitch__drv_capture *captures;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .graph_lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local stitch__drv_thread this_thread;

stitch__drv_thread *stitch__drv_this_thread(void)
{
    return &this_thread;
}

void stitch__drv_state_lock(void)
{
    pthread_mutex_lock(&state.lock);
}

void stitch__drv_state_unlock(void)
{
    pthread_mutex_unlock(&state.lock);
}

pthread_mutex_t *stitch__drv_graph_lock(void)
{
    return &state.graph_lock;
}

stitch__drv_context **stitch__drv_primary(int device, unsigned **retained, unsigned **flags)
{
    *retained = &state.primary[device].retained;
    *flags = &state.primary[device].flags;
    return &state.primary[device].ctx;
}

stitch__drv_capture **stitch__drv_captures(void)
{
    return &state.captures;
}

bool stitch__drv_initialised(bool set)
{
    stitch__drv_state_lock();
    state.initialised = state.initialised || set;
    bool yes = state.initialised;
    stitch__drv_state_unlock();
    return yes;
}

int stitch__drv_slot_take(void)
{
    int slot = -1;
    stitch__drv_state_lock();
    for (int i = 0; i < STITCH__DRV_SLOTS && slot < 0; i++) {
        if (!state.slots[i])
            slot = i;
    }
    if (slot >= 0)
        state.slots[slot] = true;
    stitch__drv_state_unlock();
    return slot;
}

void stitch__drv_slot_give(int slot)
{
    stitch__drv_state_lock();
    state.slots[slot] = false;
    stitch__drv_state_unlock();
}

uint64_t stitch__drv_next_id(void)
{
    stitch__drv_state_lock();
    uint64_t id = ++state.next_id;
    stitch__drv_state_unlock();
    return id;
}

/* ---- objects and handles ----------------------------------------------------------------------------------------- */

/* Handles look like no pointer and no small number: 0x51 in the upper byte of 48 bits, then a count in steps of 16. */
#define HANDLE_BASE UINT64_C(0x510000000000)

static stitch__drv_object **bucket(uint64_t handle)
{
    return &state.buckets[handle / 16 % BUCKETS];
}

void *stitch__drv_new(size_t size, stitch__drv_kind kind, stitch__drv_context *ctx,
                      void (*destroy)(stitch__drv_object *object))
{
    stitch__drv_object *o = stitch__calloc(NULL, 1, size);
    if (!o)
        return NULL;
    o->kind = kind;
    atomic_init(&o->refs, 1);
    o->ctx = ctx ? stitch__drv_ref(ctx) : NULL;
    o->destroy = destroy;
    stitch__drv_state_lock();
    o->handle = HANDLE_BASE + 16 * ++state.next_handle;
    o->next = *bucket(o->handle);
    *bucket(o->handle) = o;
    stitch__drv_state_unlock();
    return o;
}

void *stitch__drv_find(uint64_t handle, stitch__drv_kind kind)
{
    stitch__drv_state_lock();
    stitch__drv_object *o = *bucket(handle);
    while (o && o->handle != handle)
        o = o->next;
    if (o && o->kind != kind)
        o = NULL;
    if (o)
        atomic_fetch_add(&o->refs, 1);
    stitch__drv_state_unlock();
    return o;
}

void *stitch__drv_ref(void *object)
{
    stitch__drv_object *o = object;
    atomic_fetch_add(&o->refs, 1);
    return o;
}

void stitch__drv_unref(void *object)
{
    stitch__drv_object *o = object;
    if (!o || atomic_fetch_sub(&o->refs, 1) != 1)
        return;
    stitch__drv_object *ctx = (stitch__drv_object *)o->ctx;
    if (o->destroy)
        o->destroy(o);
    stitch_free(o);
    stitch__drv_unref(ctx);
}

static bool unlink_object(stitch__drv_object *o)
{
    for (stitch__drv_object **at = bucket(o->handle); *at; at = &(*at)->next) {
        if (*at == o) {
            *at = o->next;
            o->next = NULL;
            return true;
        }
    }
    return false;
}

bool stitch__drv_retire(void *object)
{
    stitch__drv_state_lock();
    bool was = unlink_object(object);
    stitch__drv_state_unlock();
    if (was)
        stitch__drv_unref(object);
    return was;
}

void stitch__drv_retire_all(stitch__drv_context *ctx)
{
    stitch__drv_object *gone = NULL;
    stitch__drv_state_lock();
    for (size_t i = 0; i < BUCKETS; i++) {
        for (stitch__drv_object **at = &state.buckets[i]; *at;) {
            stitch__drv_object *o = *at;
            if (o->ctx != ctx) {
                at = &o->next;
                continue;
            }
            *at = o->next;
            o->next = gone;
            gone = o;
        }
    }
    stitch__drv_state_unlock();
    while (gone) {
        stitch__drv_object *next = gone->next;
        gone->next = NULL;
        stitch__drv_unref(gone);
        gone = next;
    }
}

void *stitch__drv_find_if(stitch__drv_kind kind, bool (*match)(const stitch__drv_object *object, const void *arg),
                          const void *arg)
{
    stitch__drv_object *found = NULL;
    stitch__drv_state_lock();
    for (size_t i = 0; i < BUCKETS; i++) {
        for (stitch__drv_object *o = state.buckets[i]; o; o = o->next) {
            if (o->kind == kind && (!found || o->handle < found->handle) && match(o, arg))
                found = o;
        }
    }
    if (found)
        atomic_fetch_add(&found->refs, 1);
    stitch__drv_state_unlock();
    return found;
}

/* ---- start and lookup -------------------------------------------------------------------------------------------- */

CUresult CUDAAPI SIM(cuInit)(unsigned int Flags)
{
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_initialised(true);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuDriverGetVersion)(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* Function pointers do not convert to void * in ISO C; POSIX says that they do. */
void *stitch__sim_get_proc(const char *symbol, void *userdata)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } symbols[] = {
#define X(name)           {#name, (void (*)(void))SIM(name)},
#define X_EXT(name, type) X(name)
#include "sim/driver_symbols.def"
#undef X
#undef X_EXT
    };
    for (size_t i = 0; symbol && i < STITCH__COUNT(symbols); i++) {
        if (strcmp(symbols[i].name, symbol) == 0)
            return (void *)(uintptr_t)symbols[i].function;
    }
    return NULL;
}

/* The newest version that this driver has and that a program made for `cudaVersion` may be given: versions differ in
 * their prototypes, so a newer one must not be handed to an older program. */
static void *newest(const char *symbol, int version)
{
    static const struct {
        const char *name;
        int since[5]; /* [i]: the CUDA version that introduced _v<i>; 0: no such version */
    } versioned[] = {
        {"cuCtxCreate", {0, 0, 3020, 11040, 12050}},
        {"cuGraphAddDependencies", {0, 0, 12030}},
        {"cuGraphGetEdges", {0, 0, 12030}},
        {"cuGraphNodeGetDependencies", {0, 0, 12030}},
        {"cuStreamGetCaptureInfo", {0, 0, 11030, 12030}},
        {"cuEventElapsedTime", {0, 0, 12080}},
        {"cuGraphExecUpdate", {0, 0, 12000}},
        {"cuGraphAddKernelNode", {0, 0, 12000}},
        {"cuGraphKernelNodeGetParams", {0, 0, 12000}},
        {"cuGraphKernelNodeSetParams", {0, 0, 12000}},
        {"cuGraphExecKernelNodeSetParams", {0, 0, 12000}},
    };
    char name[96];
    const int *since = NULL;
    for (size_t i = 0; i < STITCH__COUNT(versioned); i++) {
        if (strcmp(versioned[i].name, symbol) == 0)
            since = versioned[i].since;
    }
    for (int v = 4; v >= 2; v--) {
        if (since && (since[v] == 0 || since[v] > version))
            continue;
        snprintf(name, sizeof(name), "%.80s_v%d", symbol, v);
        void *found = stitch__sim_get_proc(name, NULL);
        if (found)
            return found;
    }
    if (strcmp(symbol, "cuGraphInstantiate") == 0 && version >= 12000)
        return stitch__sim_get_proc("cuGraphInstantiateWithFlags", NULL);
    return stitch__sim_get_proc(symbol, NULL);
}

CUresult CUDAAPI SIM(cuGetProcAddress_v2)(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                                          CUdriverProcAddressQueryResult *symbolStatus)
{
    if (!symbol || !pfn || (flags & ~(cuuint64_t)3) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = newest(symbol, cudaVersion);
    if (symbolStatus)
        *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI SIM(cuGetProcAddress)(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    return SIM(cuGetProcAddress_v2)(symbol, pfn, cudaVersion, flags, NULL);
}
