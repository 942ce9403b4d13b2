/* SPDX-License-Identifier: MIT
 *
 * Traces: activities, as CUPTI records them. The order matters and comes from what CUPTI's versions do:
 * - Subscribe first. One tool a process can hold CUPTI, and this is the only call that says so; without it, the buffers
 *   of another tool would be taken from it. The subscription ends with the trace: torch.profiler, which subscribes
 * once, would otherwise never get one.
 * - CONCURRENT_KERNEL, not KERNEL (serialises, no times in graphs) and never GRAPH_TRACE (has crashed).
 * - No cuptiFinalize unless the host asks for it, though nothing else takes back what CUPTI adds to launches once it
 *   was used: where a graph is launched between the end of a trace and that call, its next launch can fault, and the
 *   host's context is lost.
 * - A buffer request is answered even where memory has run out, from a spare one: CUPTI before 12.9 can crash without.
 */
#include <pthread.h>

#include "profile/exclusive.h"
#include "profile/profile.h"

enum {
    BUFFER_BYTES = 1 << 20,
    VERSION_HANGS = 130000, /* CUDA 13.0 before its Update 1: switching CONCURRENT_KERNEL off can hang */
    KINDS = 7,
    TIMEOUT_MS = 60000,
};

typedef struct buffer {
    struct buffer *next;
    void *padding;
    uint8_t data[];
} buffer;

struct stitch_trace {
    stitch_context *ctx;
    const stitch__cupti *cupti;
    stitch__device *dev;  /* NULL: none to wait for */
    pthread_mutex_t lock; /* guards reader and timeline while the trace runs: CUPTI returns buffers on any thread */
    stitch__record_reader reader;
    stitch__timeline timeline;
    stitch__analysis analysis;
    bool analysed, ended;
    uint32_t flags;
    const stitch_cancel *cancel;
    int64_t timeout_ms;
    void *subscriber;
    int32_t kinds[KINDS]; /* that were switched on */
    size_t kind_count;
};

/* CUPTI's buffer callbacks are functions without a pointer of their user, and stay registered for good: this is the one
 * registration of the process. Buffers are kept track of because one may come back late, or may be of another tool's.
 */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t idle;
    stitch_trace *owner; /* the trace that is claimed; NULL: none */
    bool listening;      /* it takes records */
    size_t readers;      /* callbacks that read a buffer into the owner */
    buffer *out;         /* with CUPTI */
    buffer *spare;       /* for when memory runs out */
} hub = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, false, 0, NULL, NULL};

/* ---- CUPTI's callbacks ---- */

/* Buffers outlive traces and contexts: they are not the context's. */
static buffer *buffer_new(void)
{
    return stitch__alloc(NULL, sizeof(buffer) + BUFFER_BYTES);
}

static void on_request(uint8_t **data, size_t *size, size_t *max_records)
{
    buffer *b = buffer_new();
    *data = NULL;
    *size = 0;
    *max_records = 0;
    pthread_mutex_lock(&hub.lock);
    if (!b) {
        b = hub.spare;
        hub.spare = NULL;
    }
    if (b) {
        b->next = hub.out;
        hub.out = b;
        *data = b->data;
        *size = BUFFER_BYTES;
    } else if (hub.owner) {
        hub.owner->reader.lost_buffers++;
    }
    pthread_mutex_unlock(&hub.lock);
}

static void on_complete(CUcontext context, uint32_t stream, uint8_t *data, size_t size, size_t valid)
{
    stitch_trace *trace;
    buffer *b, **at;
    pthread_mutex_lock(&hub.lock);
    for (at = &hub.out; *at && (*at)->data != data; at = &(*at)->next)
        ;
    b = *at;
    if (b)
        *at = b->next;
    trace = b && hub.listening ? hub.owner : NULL;
    hub.readers += trace != NULL;
    pthread_mutex_unlock(&hub.lock);
    if (!b)
        return; /* another tool's, from before its callbacks were replaced: not ours to read or to free */
    if (trace) {
        pthread_mutex_lock(&trace->lock);
        stitch__records_read(&trace->reader, data, valid < BUFFER_BYTES ? valid : BUFFER_BYTES);
        pthread_mutex_unlock(&trace->lock);
        pthread_mutex_lock(&hub.lock);
        if (--hub.readers == 0)
            pthread_cond_broadcast(&hub.idle);
        pthread_mutex_unlock(&hub.lock);
    }
    stitch_free(b);
}

size_t stitch__trace_buffers(void)
{
    size_t n = 0;
    pthread_mutex_lock(&hub.lock);
    for (const buffer *b = hub.out; b; b = b->next)
        n++;
    pthread_mutex_unlock(&hub.lock);
    return n;
}

static int claim(stitch_trace *trace, stitch_error **err)
{
    buffer *spare = buffer_new();
    if (!spare)
        return stitch__err_nomem(trace->ctx, err);
    int rc = stitch__exclusive_claim(trace->ctx, "a trace", err);
    if (rc == STITCH_OK) {
        pthread_mutex_lock(&hub.lock);
        hub.owner = trace;
        if (!hub.spare) {
            hub.spare = spare;
            spare = NULL;
        }
        pthread_mutex_unlock(&hub.lock);
    }
    stitch_free(spare);
    return rc;
}

static void listen(bool on)
{
    pthread_mutex_lock(&hub.lock);
    hub.listening = on;
    while (!on && hub.readers)
        pthread_cond_wait(&hub.idle, &hub.lock);
    pthread_mutex_unlock(&hub.lock);
}

static void release(void)
{
    buffer *spare;
    pthread_mutex_lock(&hub.lock);
    spare = hub.spare;
    hub.spare = NULL;
    hub.owner = NULL;
    pthread_mutex_unlock(&hub.lock);
    stitch_free(spare);
    stitch__exclusive_release();
}

/* ---- beginning ---- */

static int enable(stitch_trace *trace, int kind, bool needed, stitch_error **err)
{
    stitch_error *why = NULL;
    int result = trace->cupti->ActivityEnable(kind);
    if (result == STITCH__CUPTI_OK) {
        trace->kinds[trace->kind_count++] = kind;
        return STITCH_OK;
    }
    if (needed)
        return stitch__cupti_check(trace->ctx, trace->cupti, result, "cuptiActivityEnable", NULL, err);
    stitch__cupti_check(trace->ctx, trace->cupti, result, "cuptiActivityEnable", NULL, &why);
    stitch__log(trace->ctx, STITCH_LOG_WARN, "the trace goes without records of kind %d: %s", kind,
                stitch_error_message(why));
    stitch_error_free(why);
    return STITCH_OK;
}

static int enable_kinds(stitch_trace *trace, stitch_error **err)
{
    static const struct {
        int kind;
        uint32_t without;
        bool needed;
        uint32_t bit;
    } all[KINDS] = {
        {STITCH__CUPTI_KIND_CONCURRENT_KERNEL, 0, true, STITCH__TRACE_BIT(KERNEL)},
        {STITCH__CUPTI_KIND_MEMCPY, 0, true, STITCH__TRACE_BIT(COPY)},
        {STITCH__CUPTI_KIND_MEMSET, 0, true, STITCH__TRACE_BIT(FILL)},
        {STITCH__CUPTI_KIND_MEMCPY2, 0, false, 0},
        {STITCH__CUPTI_KIND_SYNCHRONIZATION, STITCH_TRACE_NO_SYNC, false, STITCH__TRACE_BIT(SYNC)},
        {STITCH__CUPTI_KIND_DRIVER, STITCH_TRACE_NO_DRIVER, false, STITCH__TRACE_BIT(DRIVER)},
        {STITCH__CUPTI_KIND_RUNTIME, STITCH_TRACE_NO_RUNTIME, false, STITCH__TRACE_BIT(RUNTIME)},
    };
    for (size_t i = 0; i < KINDS; i++) {
        size_t before = trace->kind_count;
        if (trace->flags & all[i].without)
            continue;
        int rc = enable(trace, all[i].kind, all[i].needed, err);
        if (rc)
            return rc;
        if (trace->kind_count > before)
            trace->timeline.kinds |= all[i].bit;
    }
    return STITCH_OK;
}

/* The first failure goes into *err, later ones are the same trouble. */
static void note(stitch_trace *trace, int *rc, int result, const char *what, stitch_error **err)
{
    if (result == STITCH__CUPTI_OK)
        return;
    int code = stitch__cupti_check(trace->ctx, trace->cupti, result, what, NULL, *rc ? NULL : err);
    *rc = *rc ? *rc : code;
}

static void count_dropped(stitch_trace *trace)
{
    size_t dropped = 0;
    if (trace->cupti->ActivityGetNumDroppedRecords(NULL, 0, &dropped) == STITCH__CUPTI_OK) {
        pthread_mutex_lock(&trace->lock);
        trace->timeline.dropped += dropped;
        pthread_mutex_unlock(&trace->lock);
    }
}

/* Switches off what was switched on, has the buffers back, lets go of CUPTI. Whatever fails, the rest is done, but for
 * unloading. */
static int detach(stitch_trace *trace, bool unload, stitch_error **err)
{
    const stitch__cupti *cupti = trace->cupti;
    int rc = STITCH_OK;
    for (size_t i = trace->kind_count; i-- > 0;)
        note(trace, &rc, cupti->ActivityDisable(trace->kinds[i]), "cuptiActivityDisable", err);
    if (trace->kind_count)
        note(trace, &rc, cupti->ActivityFlushAll(STITCH__CUPTI_FLUSH_FORCED), "cuptiActivityFlushAll", err);
    trace->kind_count = 0;
    if (trace->subscriber) {
        count_dropped(trace);
        note(trace, &rc, cupti->Unsubscribe(trace->subscriber), "cuptiUnsubscribe", err);
    }
    trace->subscriber = NULL;
    listen(false);
    if (!rc && unload)
        note(trace, &rc, cupti->Finalize(), "cuptiFinalize", err);
    if (trace->reader.graphs) /* before others can claim CUPTI */
        stitch__exclusive_note_graph();
    release();
    return rc;
}

static int attach(stitch_trace *trace, stitch_error **err)
{
    const stitch__cupti *cupti = trace->cupti;
    size_t earlier = 0;
    int rc = stitch__exclusive_subscribe(trace->ctx, cupti, &trace->subscriber, err);
    if (rc)
        return rc;
    note(trace, &rc, cupti->GetTimestamp(&trace->reader.began), "cuptiGetTimestamp", err);
    if (trace->reader.began > INT64_MAX) /* nonsense, but times are subtracted */
        trace->reader.began = 0;
    if (!rc)
        note(trace, &rc, cupti->ActivityRegisterCallbacks(on_request, on_complete), "cuptiActivityRegisterCallbacks",
             err);
    if (rc)
        return rc;
    cupti->ActivityGetNumDroppedRecords(NULL, 0, &earlier); /* asking empties the count */
    listen(true);
    return enable_kinds(trace, err);
}

static void read_limits(stitch__device *dev, stitch__sm *sm)
{
    static const CUdevice_attribute which[] = {
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
    };
    int values[STITCH__COUNT(which)];
    for (size_t i = 0; i < STITCH__COUNT(which); i++) {
        if (dev->drv->DeviceGetAttribute(&values[i], which[i], dev->ordinal) != CUDA_SUCCESS)
            values[i] = 0;
    }
    *sm = (stitch__sm){values[0], values[1], values[2], values[3], values[4], values[5]};
}

static stitch_trace *trace_new(stitch_context *ctx)
{
    stitch_trace *trace = stitch__calloc(ctx, 1, sizeof(*trace));
    if (trace && pthread_mutex_init(&trace->lock, NULL) != 0)
        stitch__zero_free(trace);
    return trace;
}

static void trace_destroy(stitch_trace *trace)
{
    stitch__analysis_free(&trace->analysis);
    stitch__timeline_free(&trace->timeline);
    pthread_mutex_destroy(&trace->lock);
    stitch_free(trace);
}

int stitch__trace_start(stitch_context *ctx, const stitch__cupti *cupti, stitch__device *dev,
                        const stitch_trace_options *options, stitch_trace **out, stitch_error **err)
{
    enum {
        UNLOAD = STITCH_TRACE_UNLOAD,
        NO_WAIT = STITCH_TRACE_NO_WAIT,
        FLAGS = STITCH_TRACE_NO_SYNC | STITCH_TRACE_NO_DRIVER | STITCH_TRACE_NO_RUNTIME | NO_WAIT | UNLOAD
    };
    *out = NULL;
    if (options->flags & ~(uint32_t)FLAGS)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_trace_begin: flags has unknown bits (0x%" PRIx32 ")",
                           options->flags);
    if ((options->flags & (UNLOAD | NO_WAIT)) == (UNLOAD | NO_WAIT))
        return stitch__err(
            ctx, err, STITCH_E_INVALID,
            "stitch_trace_begin: STITCH_TRACE_UNLOAD needs the wait that STITCH_TRACE_NO_WAIT leaves out");
    if (options->flags & UNLOAD && !cupti->Finalize)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "this CUPTI (%s) cannot be taken out of a process",
                           cupti->path ? cupti->path : "");
    if (cupti->version == VERSION_HANGS)
        return stitch__err(ctx, err, STITCH_E_NO_LIBRARY,
                           "CUPTI of CUDA 13.0 (%s) can hang when a trace ends; use the one of CUDA 13.0 Update 1 or "
                           "newer, or of 12.4 to 12.9 (cuda_path or STITCH_CUPTI)",
                           cupti->path);
    stitch_trace *trace = trace_new(ctx);
    if (!trace)
        return stitch__err_nomem(ctx, err);
    trace->ctx = ctx;
    trace->cupti = cupti;
    trace->dev = dev;
    trace->flags = options->flags;
    trace->cancel = options->cancel;
    trace->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS;
    stitch__timeline_init(&trace->timeline, ctx);
    if (options->max_records)
        trace->timeline.max_events = options->max_records;
    if (dev)
        read_limits(dev, &trace->timeline.sm);
    trace->reader.cupti = cupti;
    trace->reader.timeline = &trace->timeline;
    int rc = claim(trace, err);
    if (rc) {
        trace_destroy(trace);
        return rc;
    }
    rc = attach(trace, err);
    if (rc) {
        detach(trace, false, NULL);
        trace_destroy(trace);
        return rc;
    }
    *out = trace;
    return STITCH_OK;
}

int stitch_trace_options_init(stitch_trace_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(*options));
}

/* The device and CUPTI that a trace of the context needs. */
static int open_parts(stitch_context *ctx, stitch__device **dev, const stitch__cupti **cupti, stitch_error **err)
{
    int rc = stitch__device_get(ctx, dev, err);
    if (rc)
        return rc;
    if ((*dev)->info.simulated)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                           "the device is simulated, and CUPTI traces real GPUs only; use a machine with a GPU and the "
                           "device \"auto\" or \"cuda:0\"");
    return stitch__cupti_get(ctx, cupti, err);
}

int stitch_trace_begin(stitch_context *ctx, const stitch_trace_options *options, stitch_trace **out, stitch_error **err)
{
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    const stitch__cupti *cupti;
    stitch__device *dev;
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_trace_begin: out must not be NULL");
    *out = NULL;
    int rc = stitch__options_copy(ctx, &o, sizeof(o), options, "stitch_trace_options", err);
    if (rc == STITCH_OK)
        rc = open_parts(ctx, &dev, &cupti, err);
    return rc ? rc : stitch__trace_start(ctx, cupti, dev, &o, out, err);
}

/* ---- ending ---- */

/* Ends the recording; the timeline is finished afterwards, whatever the result. scope: of the wait for the device;
 * NULL: there is none. */
static int stop(stitch_trace *trace, const stitch__scope *scope, stitch_error **err)
{
    uint64_t now = 0;
    int rc = STITCH_OK;
    if (scope && trace->dev && !(trace->flags & STITCH_TRACE_NO_WAIT))
        rc = stitch__context_wait(trace->dev, scope, "the device's work at the end of a trace", err);
    if (trace->cupti->GetTimestamp(&now) == STITCH__CUPTI_OK && now > trace->reader.began)
        trace->timeline.length = (int64_t)(now - trace->reader.began);
    int gone = detach(trace, !rc && scope && trace->flags & STITCH_TRACE_UNLOAD, rc ? NULL : err);
    rc = rc ? rc : gone;
    trace->ended = true;
    trace->timeline.dropped += trace->reader.lost_buffers;
    int finished = stitch__records_name_calls(&trace->reader);
    if (trace->reader.graphs) /* again: of launches it is known now */
        stitch__exclusive_note_graph();
    if (!finished && stitch__timeline_finish(&trace->timeline) == STITCH_OK)
        return rc;
    stitch__timeline_free(&trace->timeline); /* without names nothing of it can be shown */
    return rc ? rc : stitch__err_nomem(trace->ctx, err);
}

int stitch__trace_analyse(stitch_trace *trace, stitch_error **err)
{
    stitch__analysis_free(&trace->analysis);
    trace->analysed = stitch__analyse(&trace->timeline, &trace->analysis) == STITCH_OK;
    return trace->analysed ? STITCH_OK : stitch__err_nomem(trace->ctx, err);
}

int stitch__trace_end(stitch_trace *trace, const stitch__scope *scope, stitch_error **err)
{
    int rc = stop(trace, scope, err);
    int analysed = stitch__trace_analyse(trace, rc ? NULL : err);
    return rc ? rc : analysed;
}

int stitch_trace_end(stitch_trace *trace, stitch_error **err)
{
    if (!trace)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_trace_end: the trace must not be NULL");
    if (trace->ended)
        return stitch__err(trace->ctx, err, STITCH_E_STATE, "stitch_trace_end: the trace has ended already");
    const stitch__scope scope = stitch__scope_make(trace->ctx, trace->cancel, trace->timeout_ms);
    int rc = stitch__trace_end(trace, &scope, err);
    if (rc == STITCH_E_TIMEOUT)
        return stitch__err(trace->ctx, err, rc,
                           "stitch_trace_end: the device did not get done with its work within %.3g s, and the trace "
                           "lacks what was not done; allow more (stitch_trace_options.timeout_ms), or do not wait "
                           "(STITCH_TRACE_NO_WAIT)",
                           (double)trace->timeout_ms / 1e3);
    return rc;
}

void stitch_trace_free(stitch_trace *trace)
{
    if (!trace)
        return;
    if (!trace->ended)
        stop(trace, NULL, NULL);
    trace_destroy(trace);
}

stitch__timeline *stitch__trace_timeline(stitch_trace *trace)
{
    return trace->ended ? &trace->timeline : NULL;
}

const stitch__analysis *stitch__trace_analysis(const stitch_trace *trace)
{
    return trace && trace->analysed ? &trace->analysis : NULL;
}

const stitch__timeline *stitch__trace_finished(const stitch_trace *trace)
{
    return trace && trace->analysed ? &trace->timeline : NULL;
}
