/* SPDX-License-Identifier: MIT
 *
 * See fake_cupti.h.
 */
#include "fake_cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

fake_cupti fake_cupti_state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { NEWER = 32, LONGEST = 512, WAITING = 65536 }; /* NEWER: bytes of fields that the library does not know */

typedef union slot {
    unsigned char bytes[LONGEST];
    stitch__cupti_record record;
    uint64_t align;
} slot;

static slot *waiting;
static size_t waiting_count, waiting_room;

#define ENTER(function)                                                                                                \
    do {                                                                                                               \
        __atomic_add_fetch(&fake_cupti_state.calls[FAKE_##function], 1, __ATOMIC_RELAXED);                             \
        if (fake_cupti_state.fail[FAKE_##function])                                                                    \
            return fake_cupti_state.fail[FAKE_##function];                                                             \
    } while (0)

static size_t size_of(int kind)
{
    size_t size = 16;
    switch (kind) {
    case STITCH__CUPTI_KIND_KERNEL:
    case STITCH__CUPTI_KIND_CONCURRENT_KERNEL: size = sizeof(stitch__cupti_kernel); break;
    case STITCH__CUPTI_KIND_MEMCPY: size = sizeof(stitch__cupti_memcpy); break;
    case STITCH__CUPTI_KIND_MEMCPY2: size = sizeof(stitch__cupti_memcpy_peer); break;
    case STITCH__CUPTI_KIND_MEMSET: size = sizeof(stitch__cupti_memset); break;
    case STITCH__CUPTI_KIND_DRIVER:
    case STITCH__CUPTI_KIND_RUNTIME: size = sizeof(stitch__cupti_api); break;
    case STITCH__CUPTI_KIND_SYNCHRONIZATION: size = sizeof(stitch__cupti_sync); break;
    default: break;
    }
    return (size + NEWER + 7) / 8 * 8;
}

/* ---- records ---- */

void fake_cupti_add(const void *record)
{
    int kind = ((const stitch__cupti_record *)record)->kind;
    pthread_mutex_lock(&lock);
    if (waiting_count == waiting_room && waiting_room < WAITING) { /* small: checking allocators fill all of it */
        size_t room = waiting_room ? 2 * waiting_room : 64;
        slot *more = realloc(waiting, room * sizeof(*more));
        waiting = more ? more : waiting;
        waiting_room = more ? room : waiting_room;
    }
    if (waiting_count < waiting_room) {
        memset(&waiting[waiting_count], 0xa5, sizeof(*waiting));
        memcpy(&waiting[waiting_count++], record, size_of(kind) - NEWER);
    }
    pthread_mutex_unlock(&lock);
}

stitch__cupti_kernel fake_cupti_kernel(const char *name, uint64_t start, uint64_t end, uint32_t correlation)
{
    stitch__cupti_kernel k = {.kind = STITCH__CUPTI_KIND_CONCURRENT_KERNEL, .name = name, .start = start, .end = end};
    k.correlation = correlation;
    k.stream = 7;
    k.context = 1;
    k.registers = 32;
    for (int i = 0; i < 3; i++)
        k.grid[i] = k.block[i] = i ? 1 : 128;
    return k;
}

void fake_cupti_add_kernel(const char *name, uint64_t start, uint64_t end, uint32_t correlation)
{
    const stitch__cupti_kernel k = fake_cupti_kernel(name, start, end, correlation);
    fake_cupti_add(&k);
}

void fake_cupti_add_call(int kind, uint32_t callback, uint64_t start, uint64_t end, uint32_t thread,
                         uint32_t correlation)
{
    stitch__cupti_api a = {kind, callback, start, end, 1, thread, correlation, 0};
    fake_cupti_add(&a);
}

static size_t fill(uint8_t *buffer, size_t size, const slot *records, size_t count, size_t *taken)
{
    size_t used = 0;
    for (*taken = 0; *taken < count; ++*taken) {
        size_t need = size_of(records[*taken].record.kind);
        if (used + need > size ||
            (fake_cupti_state.records_per_buffer && *taken == fake_cupti_state.records_per_buffer))
            break;
        memcpy(buffer + used, &records[*taken], need);
        used += need;
    }
    return used;
}

void fake_cupti_deliver(void)
{
    pthread_mutex_lock(&lock);
    slot *records = waiting;
    size_t count = waiting_count;
    waiting = NULL;
    waiting_count = waiting_room = 0;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0, taken = 0; i < count; i += taken) {
        uint8_t *buffer = NULL;
        size_t size = 0, most = 0;
        if (!fake_cupti_state.request)
            break;
        fake_cupti_state.request(&buffer, &size, &most);
        if (!buffer) {
            fake_cupti_state.refused++;
            break;
        }
        size_t used = fill(buffer, size, records + i, count - i, &taken);
        used = used > fake_cupti_state.cut ? used - fake_cupti_state.cut : 0;
        fake_cupti_state.complete(NULL, 0, buffer, size, used);
    }
    free(records);
}

/* ---- functions ---- */

static int get_version(uint32_t *version)
{
    ENTER(GetVersion);
    *version = fake_cupti_state.version;
    return STITCH__CUPTI_OK;
}

static int get_result_string(int result, const char **text)
{
    ENTER(GetResultString);
    *text = "CUPTI_ERROR";
    return STITCH__CUPTI_OK;
}

static int get_error_message(int result, const char **text)
{
    ENTER(GetErrorMessage);
    *text = "the fake failed";
    return STITCH__CUPTI_OK;
}

static int subscribe(void **subscriber, stitch__cupti_callback callback, void *userdata)
{
    ENTER(Subscribe);
    if (fake_cupti_state.holder || fake_cupti_state.subscribed || !callback)
        return STITCH__CUPTI_MULTIPLE_SUBSCRIBERS;
    fake_cupti_state.subscribed = true;
    *subscriber = &fake_cupti_state;
    return STITCH__CUPTI_OK;
}

static int subscribe_named(void **subscriber, stitch__cupti_callback callback, void *userdata,
                           stitch__cupti_subscriber_params *params)
{
    ENTER(SubscribeNamed);
    int result = subscribe(subscriber, callback, userdata);
    if (result && fake_cupti_state.holder)
        strncpy(params->holder, fake_cupti_state.holder, params->holder_size);
    return result;
}

static int unsubscribe(void *subscriber)
{
    ENTER(Unsubscribe);
    if (!fake_cupti_state.subscribed || subscriber != &fake_cupti_state)
        return 1;
    fake_cupti_state.subscribed = false;
    return STITCH__CUPTI_OK;
}

static int finalize(void)
{
    ENTER(Finalize);
    if (fake_cupti_state.subscribed)
        return 1;
    for (int i = 0; i < 64; i++)
        if (fake_cupti_state.enabled[i])
            return 1;
    fake_cupti_state.unloads++;
    return STITCH__CUPTI_OK;
}

static int get_timestamp(uint64_t *timestamp)
{
    ENTER(GetTimestamp);
    *timestamp = __atomic_add_fetch(&fake_cupti_state.now, 10, __ATOMIC_RELAXED);
    return STITCH__CUPTI_OK;
}

static int get_callback_name(int domain, uint32_t id, const char **name)
{
    static const char *const names[] = {"cuLaunchKernel", "cuStreamSynchronize", "cuStreamQuery", "cuGraphLaunch",
                                        "cuMemAlloc"};
    ENTER(GetCallbackName);
    *name = fake_cupti_state.null_names ? NULL : id < STITCH__COUNT(names) ? names[id] : "cuOther";
    return STITCH__CUPTI_OK;
}

static int activity_enable(int kind)
{
    __atomic_add_fetch(&fake_cupti_state.calls[FAKE_ActivityEnable], 1, __ATOMIC_RELAXED);
    if (fake_cupti_state.fail[FAKE_ActivityEnable] &&
        (!fake_cupti_state.fail_kind || fake_cupti_state.fail_kind == kind))
        return fake_cupti_state.fail[FAKE_ActivityEnable];
    fake_cupti_state.enabled[kind & 63]++;
    return STITCH__CUPTI_OK;
}

static int activity_disable(int kind)
{
    ENTER(ActivityDisable);
    fake_cupti_state.enabled[kind & 63]--;
    return STITCH__CUPTI_OK;
}

static int activity_register(stitch__cupti_request_fn request, stitch__cupti_complete_fn complete)
{
    ENTER(ActivityRegisterCallbacks);
    fake_cupti_state.request = request;
    fake_cupti_state.complete = complete;
    return STITCH__CUPTI_OK;
}

static int activity_flush(uint32_t flags)
{
    ENTER(ActivityFlushAll);
    fake_cupti_deliver();
    return STITCH__CUPTI_OK;
}

static int activity_next(uint8_t *buffer, size_t valid, stitch__cupti_record **record)
{
    ENTER(ActivityGetNextRecord);
    uint8_t *at = (uint8_t *)*record;
    if (fake_cupti_state.bad_step == 1)
        at = buffer + valid + 4096;
    else if (fake_cupti_state.bad_step == 2 && at)
        return STITCH__CUPTI_OK;
    else
        at = at ? at + size_of((*record)->kind) : buffer;
    if (fake_cupti_state.bad_step == 3)
        at++;
    if (fake_cupti_state.bad_step == 0 && at >= buffer + valid)
        return 12; /* no more records */
    *record = (stitch__cupti_record *)(void *)at;
    if (fake_cupti_state.bad_step == 0 && (size_t)(buffer + valid - at) >= 4 && (*record)->kind == 0)
        return STITCH__CUPTI_INVALID_KIND;
    return STITCH__CUPTI_OK;
}

static int activity_dropped(CUcontext context, uint32_t stream, size_t *dropped)
{
    ENTER(ActivityGetNumDroppedRecords);
    *dropped = fake_cupti_state.dropped;
    fake_cupti_state.dropped = 0;
    return STITCH__CUPTI_OK;
}

#define PROC(function)                                                                                                 \
    do {                                                                                                               \
        __typeof__(&function) pointer = function;                                                                      \
        memcpy(&address, &pointer, sizeof(address));                                                                   \
    } while (0)

void *fake_cupti_get_proc(const char *symbol, void *userdata)
{
    void *address = NULL;
    if (strcmp(symbol, "cuptiGetVersion") == 0)
        PROC(get_version);
    else if (strcmp(symbol, "cuptiGetResultString") == 0)
        PROC(get_result_string);
    else if (strcmp(symbol, "cuptiGetErrorMessage") == 0)
        PROC(get_error_message);
    else if (strcmp(symbol, "cuptiSubscribe") == 0)
        PROC(subscribe);
    else if (strcmp(symbol, "cuptiSubscribe_v2") == 0 && !fake_cupti_state.unnamed)
        PROC(subscribe_named);
    else if (strcmp(symbol, "cuptiUnsubscribe") == 0)
        PROC(unsubscribe);
    else if (strcmp(symbol, "cuptiFinalize") == 0 && !fake_cupti_state.lasting)
        PROC(finalize);
    else if (strcmp(symbol, "cuptiGetTimestamp") == 0)
        PROC(get_timestamp);
    else if (strcmp(symbol, "cuptiGetCallbackName") == 0)
        PROC(get_callback_name);
    else if (strcmp(symbol, "cuptiActivityEnable") == 0)
        PROC(activity_enable);
    else if (strcmp(symbol, "cuptiActivityDisable") == 0)
        PROC(activity_disable);
    else if (strcmp(symbol, "cuptiActivityRegisterCallbacks") == 0)
        PROC(activity_register);
    else if (strcmp(symbol, "cuptiActivityFlushAll") == 0)
        PROC(activity_flush);
    else if (strcmp(symbol, "cuptiActivityGetNextRecord") == 0)
        PROC(activity_next);
    else if (strcmp(symbol, "cuptiActivityGetNumDroppedRecords") == 0)
        PROC(activity_dropped);
    return address;
}

void fake_cupti_reset(void)
{
    stitch__cupti_request_fn request = fake_cupti_state.request;
    stitch__cupti_complete_fn complete = fake_cupti_state.complete;
    memset(&fake_cupti_state, 0, sizeof(fake_cupti_state));
    fake_cupti_state.version = 130001;
    fake_cupti_state.now = 1000000;
    fake_cupti_state.request = request;
    fake_cupti_state.complete = complete;
    fake_cupti_deliver();
    fake_cupti_state.request = NULL;
    fake_cupti_state.complete = NULL;
}
