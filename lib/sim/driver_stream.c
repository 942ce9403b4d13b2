/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: streams and events.
 *
 * Work runs when it is submitted, so that a stream is always idle between calls and an event is complete once it is
 * recorded. Times between events are those of the host's clock and say how long the simulation took: they are no times
 * of a GPU and must not be shown as such.
 */
#include "sim/driver.h"

typedef struct event {
    stitch__drv_object obj;
    unsigned flags;
    bool recorded;
    int64_t time_ns;
    stitch__drv_capture *capture; /* counted; the event was last recorded in a capturing stream */
    stitch__drv_nodes nodes;
} event;

/* ---- entering ---------------------------------------------------------------------------------------------------- */

stitch__drv_context *stitch__drv_stream_context(stitch__drv_stream *stream)
{
    return stream->obj.ctx;
}

CUresult stitch__drv_stream_enter(CUstream handle, stitch__drv_stream **out)
{
    *out = NULL;
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        stitch__drv_context *ctx;
        CUresult r = stitch__drv_enter(&ctx);
        if (!r)
            *out = &ctx->legacy;
        return r;
    }
    CUresult r;
    *out = DRV_ENTER(STREAM, handle, &r);
    return r;
}

void stitch__drv_stream_leave(stitch__drv_stream *stream)
{
    stitch__drv_context *ctx = stream->obj.ctx;
    if (stream == &ctx->legacy)
        stitch__drv_leave(ctx);
    else
        stitch__drv_object_leave(stream);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void destroy_stream(stitch__drv_object *object)
{
    stitch__drv_stream *s = (stitch__drv_stream *)object;
    stitch__drv_nodes_clear(&s->tail);
    stitch_free(s->tail_handles);
    stitch_free(s->tail_edges);
}

CUresult CUDAAPI SIM(cuStreamCreateWithPriority)(CUstream *phStream, unsigned int flags, int priority)
{
    if (!phStream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    stitch__drv_stream *s = stitch__drv_new(sizeof(*s), STITCH__DRV_STREAM, ctx, destroy_stream);
    if (s) {
        s->flags = flags;
        s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
        s->id = stitch__drv_next_id();
        *phStream = DRV_HANDLE(CUstream, s);
    } else {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuStreamCreate)(CUstream *phStream, unsigned int Flags)
{
    return SIM(cuStreamCreateWithPriority)(phStream, Flags, 0);
}

CUresult CUDAAPI SIM(cuStreamDestroy_v2)(CUstream hStream)
{
    stitch__drv_stream *s;
    if (!hStream || hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    if (s->capture) { /* nobody can end the capture any more */
        stitch__drv_capture *capture = stitch__drv_capture_ref(s->capture);
        capture->invalid = true;
        if (capture->streams[0] == s) {
            stitch__drv_retire(capture->graph);
            stitch__drv_capture_end(capture);
        }
        stitch__drv_capture_unref(capture);
    }
    stitch__drv_retire(s);
    stitch__drv_stream_leave(s);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuStreamDestroy)(CUstream hStream)
{
    return SIM(cuStreamDestroy_v2)(hStream);
}

/* Waiting for a stream and asking whether it is done: it always is, unless it captures. */
static CUresult wait_for(CUstream handle)
{
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(handle, &s);
    if (r)
        return r;
    if (s->capture)
        r = stitch__drv_capture_break(s);
    else if (s == &stitch__drv_stream_context(s)->legacy)
        r = stitch__drv_capture_legacy(stitch__drv_stream_context(s));
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuStreamSynchronize)(CUstream hStream)
{
    return wait_for(hStream);
}

CUresult CUDAAPI SIM(cuStreamQuery)(CUstream hStream)
{
    return wait_for(hStream);
}

CUresult CUDAAPI SIM(cuStreamGetCtx)(CUstream hStream, CUcontext *pctx)
{
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    *pctx = DRV_HANDLE(CUcontext, stitch__drv_stream_context(s));
    stitch__drv_stream_leave(s);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuStreamGetPriority)(CUstream hStream, int *priority)
{
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    *priority = s->priority;
    stitch__drv_stream_leave(s);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuStreamGetFlags)(CUstream hStream, unsigned int *flags)
{
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    *flags = s->flags;
    stitch__drv_stream_leave(s);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuStreamGetId)(CUstream hStream, unsigned long long *streamId)
{
    if (!streamId)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    *streamId = s->id;
    stitch__drv_stream_leave(s);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuLaunchHostFunc)(CUstream hStream, CUhostFn fn, void *userData)
{
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_HOST, .host = {fn, userData}};
    r = stitch__drv_submit(s, &op, NULL);
    stitch__drv_stream_leave(s);
    return r;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void forget_capture(event *e)
{
    stitch__drv_capture_unref(e->capture);
    e->capture = NULL;
    stitch__drv_nodes_clear(&e->nodes);
}

static void destroy_event(stitch__drv_object *object)
{
    forget_capture((event *)object);
}

/* The event with its context locked. */
static CUresult event_enter(CUevent handle, event **out)
{
    CUresult r;
    *out = DRV_ENTER(EVENT, handle, &r);
    return r;
}

CUresult CUDAAPI SIM(cuEventCreate)(CUevent *phEvent, unsigned int Flags)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    if (!phEvent || (Flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    event *e = stitch__drv_new(sizeof(*e), STITCH__DRV_EVENT, ctx, destroy_event);
    if (e) {
        e->flags = Flags;
        *phEvent = DRV_HANDLE(CUevent, e);
    } else {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuEventDestroy_v2)(CUevent hEvent)
{
    event *e;
    CUresult r = event_enter(hEvent, &e);
    if (r)
        return r;
    stitch__drv_retire(e);
    stitch__drv_object_leave(e);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuEventDestroy)(CUevent hEvent)
{
    return SIM(cuEventDestroy_v2)(hEvent);
}

CUresult CUDAAPI SIM(cuEventRecordWithFlags)(CUevent hEvent, CUstream hStream, unsigned int flags)
{
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    stitch__drv_context *ctx = stitch__drv_stream_context(s);
    event *e = DRV_FIND(event, EVENT, hEvent);
    if (!e || e->obj.ctx != ctx) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else if (!s->capture) {
        r = s == &ctx->legacy ? stitch__drv_capture_legacy(ctx) : CUDA_SUCCESS;
        if (!r) {
            forget_capture(e);
            e->recorded = true;
            e->time_ns = stitch__now_ns();
        }
    } else if (s->capture->invalid) {
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (flags) { /* an event record node: not simulated */
        r = stitch__drv_capture_break(s);
    } else {
        stitch__drv_capture *capture = stitch__drv_capture_ref(s->capture);
        forget_capture(e);
        e->recorded = false;
        e->capture = capture;
        r = stitch__drv_nodes_set(&e->nodes, s->tail.items, s->tail.count);
    }
    stitch__drv_unref(e);
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuEventRecord)(CUevent hEvent, CUstream hStream)
{
    return SIM(cuEventRecordWithFlags)(hEvent, hStream, 0);
}

CUresult CUDAAPI SIM(cuStreamWaitEvent)(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    if (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    stitch__drv_context *ctx = stitch__drv_stream_context(s);
    event *e = DRV_FIND(event, EVENT, hEvent);
    if (!e)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (s->capture && Flags) /* an event wait node: not simulated */
        r = stitch__drv_capture_break(s);
    else if (e->obj.ctx != ctx) /* what it waits for is done; a capture stays within its context */
        r = s->capture ? stitch__drv_capture_break(s) : CUDA_SUCCESS;
    else if (e->capture)
        r = e->capture->ended ? CUDA_ERROR_CAPTURED_EVENT : stitch__drv_capture_join(s, e->capture, &e->nodes);
    else if (s->capture && e->recorded) {
        stitch__drv_capture_break(s);
        r = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    stitch__drv_unref(e);
    stitch__drv_stream_leave(s);
    return r;
}

static CUresult event_done(CUevent handle)
{
    event *e;
    CUresult r = event_enter(handle, &e);
    if (r)
        return r;
    r = stitch__drv_capture_unsafe();
    if (!r && e->capture) {
        e->capture->invalid = true;
        r = CUDA_ERROR_CAPTURED_EVENT;
    }
    stitch__drv_object_leave(e);
    return r;
}

CUresult CUDAAPI SIM(cuEventQuery)(CUevent hEvent)
{
    return event_done(hEvent);
}

CUresult CUDAAPI SIM(cuEventSynchronize)(CUevent hEvent)
{
    return event_done(hEvent);
}

/* Host time between the calls that recorded the events; never 0, so that nobody divides by it. */
CUresult CUDAAPI SIM(cuEventElapsedTime)(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    event *start;
    if (!pMilliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = event_enter(hStart, &start);
    if (r)
        return r;
    event *end = DRV_FIND(event, EVENT, hEnd);
    if (!end || end->obj.ctx != start->obj.ctx || !start->recorded || !end->recorded ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)) {
        r = CUDA_ERROR_INVALID_HANDLE;
    } else {
        int64_t ns = end->time_ns - start->time_ns;
        *pMilliseconds = (float)(ns ? ns : 1) * 1e-6f;
    }
    stitch__drv_unref(end);
    stitch__drv_object_leave(start);
    return r;
}

#if CUDA_VERSION >= 12080
CUresult CUDAAPI SIM(cuEventElapsedTime_v2)(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
    return SIM(cuEventElapsedTime)(pMilliseconds, hStart, hEnd);
}
#endif
