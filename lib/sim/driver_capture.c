/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: stream capture. The rules are those of the CUDA Driver API's documentation; what a rule forbids
 * returns its error and spoils the capture, so that a program that captures here does on a GPU too.
 */
#include "sim/driver.h"

/* ---- sets of nodes ----------------------------------------------------------------------------------------------- */

void stitch__drv_nodes_clear(stitch__drv_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        stitch__drv_unref(nodes->items[i]);
    stitch_free(nodes->items);
    *nodes = (stitch__drv_nodes){0};
}

CUresult stitch__drv_nodes_add(stitch__drv_nodes *dst, stitch__drv_node *item)
{
    for (size_t i = 0; i < dst->count; i++) {
        if (dst->items[i] == item)
            return CUDA_SUCCESS;
    }
    if (stitch__grow(NULL, &dst->items, &dst->cap, dst->count + 1, sizeof(*dst->items)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    dst->items[dst->count++] = stitch__drv_ref(item);
    return CUDA_SUCCESS;
}

CUresult stitch__drv_nodes_set(stitch__drv_nodes *dst, stitch__drv_node *const *items, size_t count)
{
    stitch__drv_nodes fresh = {0};
    for (size_t i = 0; i < count; i++) {
        CUresult r = stitch__drv_nodes_add(&fresh, items[i]);
        if (r) {
            stitch__drv_nodes_clear(&fresh);
            return r;
        }
    }
    stitch__drv_nodes_clear(dst);
    *dst = fresh;
    return CUDA_SUCCESS;
}

/* ---- lifetime of a capture --------------------------------------------------------------------------------------- */

stitch__drv_capture *stitch__drv_capture_ref(stitch__drv_capture *capture)
{
    atomic_fetch_add(&capture->refs, 1);
    return capture;
}

void stitch__drv_capture_unref(stitch__drv_capture *capture)
{
    if (!capture || atomic_fetch_sub(&capture->refs, 1) != 1)
        return;
    stitch__drv_unref(capture->graph);
    stitch_free(capture->streams);
    stitch_free(capture);
}

static CUresult add_stream(stitch__drv_capture *capture, stitch__drv_stream *stream)
{
    if (stitch__grow(NULL, &capture->streams, &capture->stream_cap, capture->stream_count + 1,
                     sizeof(*capture->streams)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->streams[capture->stream_count++] = stitch__drv_ref(stream);
    stream->capture = stitch__drv_capture_ref(capture);
    if (!(stream->flags & CU_STREAM_NON_BLOCKING))
        capture->blocking = true;
    return CUDA_SUCCESS;
}

void stitch__drv_capture_end(stitch__drv_capture *capture)
{
    stitch__drv_capture_ref(capture);
    stitch__drv_state_lock();
    for (stitch__drv_capture **at = stitch__drv_captures(); *at; at = &(*at)->next) {
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    }
    stitch__drv_state_unlock();
    capture->ended = true;
    size_t count = capture->stream_count;
    capture->stream_count = 0;
    for (size_t i = 0; i < count; i++) {
        stitch__drv_stream *s = capture->streams[i];
        stitch__drv_nodes_clear(&s->tail);
        stitch__drv_capture_unref(s->capture);
        s->capture = NULL;
        stitch__drv_unref(s);
    }
    stitch__drv_capture_unref(capture);
}

void stitch__drv_capture_end_all(stitch__drv_context *ctx)
{
    for (;;) {
        stitch__drv_state_lock();
        stitch__drv_capture *c = *stitch__drv_captures();
        while (c && c->ctx != ctx)
            c = c->next;
        if (c)
            stitch__drv_capture_ref(c);
        stitch__drv_state_unlock();
        if (!c)
            return;
        stitch__drv_retire(c->graph);
        stitch__drv_capture_end(c);
        stitch__drv_capture_unref(c);
    }
}

CUresult CUDAAPI SIM(cuStreamBeginCapture_v2)(CUstream hStream, CUstreamCaptureMode mode)
{
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL && mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
        mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    stitch__drv_context *ctx = stitch__drv_stream_context(s);
    stitch__drv_capture *capture = NULL;
    if (s == &ctx->legacy)
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (s->capture)
        r = CUDA_ERROR_ILLEGAL_STATE;
    else if (!(capture = stitch__calloc(NULL, 1, sizeof(*capture))))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (!r) {
        atomic_init(&capture->refs, 1);
        capture->id = stitch__drv_next_id();
        capture->mode = mode;
        capture->thread = pthread_self();
        capture->ctx = ctx;
        stitch__drv_graph *graph = stitch__drv_graph_new();
        r = graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        if (graph)
            capture->graph = stitch__drv_ref(graph);
        if (!r)
            r = add_stream(capture, s);
        if (!r) {
            stitch__drv_state_lock();
            capture->next = *stitch__drv_captures();
            *stitch__drv_captures() = capture;
            stitch__drv_state_unlock();
        } else if (graph) {
            stitch__drv_retire(graph);
        }
        stitch__drv_capture_unref(capture); /* the stream has it */
    }
    stitch__drv_stream_leave(s);
    return r;
}

/* The index of a node; that of none for one that somebody took out of the graph meanwhile. */
static size_t place_of(const stitch__drv_graph *g, const stitch__drv_node *n)
{
    return n->graph == g ? n->index : g->count;
}

/* Whether everything that the other streams captured leads to the end of the first one. Graph lock held. */
static CUresult check_joined(const stitch__drv_capture *capture)
{
    const stitch__drv_graph *g = capture->graph;
    bool *reached = stitch__calloc(NULL, g->count + 1, sizeof(*reached));
    if (!reached)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const stitch__drv_nodes *tail = &capture->streams[0]->tail;
    for (size_t i = 0; i < tail->count; i++)
        reached[place_of(g, tail->items[i])] = true;
    for (size_t i = g->count; i > 0; i--) { /* a captured node depends on older ones only */
        const stitch__drv_nodes *deps = &g->nodes[i - 1]->deps;
        for (size_t d = 0; reached[i - 1] && d < deps->count; d++)
            reached[deps->items[d]->index] = true;
    }
    CUresult r = CUDA_SUCCESS;
    for (size_t s = 1; s < capture->stream_count; s++) {
        const stitch__drv_nodes *other = &capture->streams[s]->tail;
        for (size_t i = 0; i < other->count; i++) {
            if (!reached[place_of(g, other->items[i])])
                r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
    }
    stitch_free(reached);
    return r;
}

CUresult CUDAAPI SIM(cuStreamEndCapture)(CUstream hStream, CUgraph *phGraph)
{
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = NULL;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    stitch__drv_capture *capture = s->capture;
    if (!capture)
        r = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->streams[0] != s)
        r = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
        r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (r) {
        stitch__drv_stream_leave(s);
        return r;
    }
    stitch__drv_capture_ref(capture);
    pthread_mutex_lock(stitch__drv_graph_lock());
    r = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : check_joined(capture);
    pthread_mutex_unlock(stitch__drv_graph_lock());
    stitch__drv_capture_end(capture);
    if (r)
        stitch__drv_retire(capture->graph);
    else
        *phGraph = DRV_HANDLE(CUgraph, capture->graph);
    stitch__drv_capture_unref(capture);
    stitch__drv_stream_leave(s);
    return r;
}

/* ---- work in a capture ------------------------------------------------------------------------------------------- */

CUresult stitch__drv_capture_break(stitch__drv_stream *stream)
{
    stream->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult stitch__drv_capture_add(stitch__drv_stream *stream, stitch__drv_op *op)
{
    stitch__drv_capture *capture = stream->capture;
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stitch__drv_node *node;
    pthread_mutex_lock(stitch__drv_graph_lock());
    CUresult r = stitch__drv_graph_add(capture->graph, op, stream->tail.items, stream->tail.count, &node);
    pthread_mutex_unlock(stitch__drv_graph_lock());
    if (!r)
        r = stitch__drv_nodes_set(&stream->tail, &node, 1);
    if (r)
        capture->invalid = true;
    return r;
}

CUresult stitch__drv_capture_join(stitch__drv_stream *stream, stitch__drv_capture *capture,
                                  const stitch__drv_nodes *nodes)
{
    stitch__drv_context *ctx = stitch__drv_stream_context(stream);
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == &ctx->legacy) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = true;
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    CUresult r = stream->capture ? CUDA_SUCCESS : add_stream(capture, stream);
    for (size_t i = 0; i < nodes->count && !r; i++)
        r = stitch__drv_nodes_add(&stream->tail, nodes->items[i]);
    if (r)
        capture->invalid = true;
    return r;
}

/* ---- what captures forbid ---------------------------------------------------------------------------------------- */

CUresult stitch__drv_capture_legacy(const stitch__drv_context *ctx)
{
    CUresult r = CUDA_SUCCESS;
    stitch__drv_state_lock();
    for (stitch__drv_capture *c = *stitch__drv_captures(); c; c = c->next) {
        if (c->ctx == ctx && c->blocking) {
            c->invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    stitch__drv_state_unlock();
    return r;
}

CUresult stitch__drv_capture_unsafe(void)
{
    CUstreamCaptureMode mode = stitch__drv_this_thread()->capture_mode;
    CUresult r = CUDA_SUCCESS;
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return r;
    stitch__drv_state_lock();
    for (stitch__drv_capture *c = *stitch__drv_captures(); c; c = c->next) {
        bool own = pthread_equal(c->thread, pthread_self()) && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool everyone = c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (own || everyone) {
            c->invalid = true;
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    stitch__drv_state_unlock();
    return r;
}

CUresult CUDAAPI SIM(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode *mode)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!mode || (*mode != CU_STREAM_CAPTURE_MODE_GLOBAL && *mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                  *mode != CU_STREAM_CAPTURE_MODE_RELAXED))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_thread *t = stitch__drv_this_thread();
    CUstreamCaptureMode old = t->capture_mode;
    t->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

static CUstreamCaptureStatus status_of(const stitch__drv_stream *s)
{
    if (!s->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult CUDAAPI SIM(cuStreamIsCapturing)(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    if (!captureStatus)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    if (s == &stitch__drv_stream_context(s)->legacy)
        r = stitch__drv_capture_legacy(stitch__drv_stream_context(s));
    *captureStatus = status_of(s);
    stitch__drv_stream_leave(s);
    return r;
}

/* The arrays stay valid until the stream's next call. */
static CUresult publish_tail(stitch__drv_stream *s)
{
    stitch_free(s->tail_handles);
    stitch_free(s->tail_edges);
    s->tail_handles = stitch__calloc(NULL, s->tail.count + 1, sizeof(*s->tail_handles));
    s->tail_edges = stitch__calloc(NULL, s->tail.count + 1, sizeof(*s->tail_edges));
    if (!s->tail_handles || !s->tail_edges)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < s->tail.count; i++)
        s->tail_handles[i] = DRV_HANDLE(CUgraphNode, s->tail.items[i]);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuStreamGetCaptureInfo_v3)(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                                cuuint64_t *id_out, CUgraph *graph_out,
                                                const CUgraphNode **dependencies_out,
                                                const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out)
{
    if (!captureStatus_out)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(hStream, &s);
    if (r)
        return r;
    *captureStatus_out = status_of(s);
    if (*captureStatus_out == CU_STREAM_CAPTURE_STATUS_ACTIVE && (dependencies_out || edgeData_out))
        r = publish_tail(s);
    if (!r && *captureStatus_out == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id_out)
            *id_out = s->capture->id;
        if (graph_out)
            *graph_out = DRV_HANDLE(CUgraph, s->capture->graph);
        if (dependencies_out)
            *dependencies_out = s->tail_handles;
        if (edgeData_out)
            *edgeData_out = s->tail_edges;
        if (numDependencies_out)
            *numDependencies_out = s->tail.count;
    }
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuStreamGetCaptureInfo_v2)(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                                cuuint64_t *id_out, CUgraph *graph_out,
                                                const CUgraphNode **dependencies_out, size_t *numDependencies_out)
{
    return SIM(cuStreamGetCaptureInfo_v3)(hStream, captureStatus_out, id_out, graph_out, dependencies_out, NULL,
                                          numDependencies_out);
}
