/* SPDX-License-Identifier: MIT
 *
 * Plans of an executor: one for each setting of the dims that is in use, with its workspace and CUDA graph.
 */
#include "program/executor.h"

static void plan_release(stitch_executor *x, stitch__exec_plan *p)
{
    if (x->session_plan == p) {
        stitch__session_end(&x->session);
        x->session_plan = NULL;
    }
    if (p->graph)
        x->dev->drv->GraphExecDestroy(p->graph);
    for (size_t i = 0; p->buffers && i < x->doc->buffer_count; i++)
        stitch__mem_free(x->dev, p->buffers[i]);
    stitch_free(p->buffers);
    stitch_free(p->dims);
    memset(p, 0, sizeof(*p));
}

void stitch__plan_free(stitch_executor *x, stitch__exec_plan *plan)
{
    plan_release(x, plan);
}

static bool same_dims(const stitch_executor *x, const stitch__exec_plan *p)
{
    for (size_t i = 0; i < x->iface->dim_count; i++) {
        if (p->dims[i] != x->iface->dims[i].value)
            return false;
    }
    return true;
}

/* The doc keeps the sizes of one session at a time. */
int stitch__plan_session(stitch_executor *x, stitch__exec_plan *plan, stitch_error **err)
{
    int rc;
    if (x->session_plan == plan)
        return STITCH_OK;
    if (x->session_plan)
        stitch__session_end(&x->session);
    x->session_plan = NULL;
    rc = stitch__session_begin(&x->session, x->doc, x->iface, &x->findings, err);
    if (rc == STITCH_OK)
        rc = stitch__findings_end(&x->findings, STITCH_E_VALIDATE, err);
    if (rc) {
        stitch__findings_end(&x->findings, rc, NULL); /* of a beginning that broke off */
        stitch__session_end(&x->session);
        return rc;
    }
    x->session_plan = plan;
    return STITCH_OK;
}

/* Buffers that stand for a state of the interface live in what the host bound. */
static int allocate(stitch_executor *x, stitch__exec_plan *p, stitch_error **err)
{
    stitch__device *dev = x->dev;
    int rc;
    if (x->session.workspace_bytes > x->options.max_workspace_bytes)
        return stitch__err(x->ctx, err, STITCH_E_LIMIT,
                           "the program's buffers have %" PRIu64 " bytes, the limit is %" PRIu64,
                           x->session.workspace_bytes, x->options.max_workspace_bytes);
    p->buffers = stitch__calloc(x->ctx, x->doc->buffer_count + 1, sizeof(*p->buffers));
    if (!p->buffers)
        return stitch__err_nomem(x->ctx, err);
    for (size_t i = 0; i < x->doc->tensor_count; i++) {
        const stitch__tensor *t = &x->doc->tensors[i];
        if (t->buffer < 0)
            continue;
        if ((rc = stitch__mem_alloc(dev, (size_t)t->bytes, t->name, &p->buffers[t->buffer], err)) != STITCH_OK)
            return rc;
        p->workspace_bytes += t->bytes;
    }
    return STITCH_OK;
}

/* Makes room among at most max_plans plans; the least recently used goes. */
static stitch__exec_plan *free_place(stitch_executor *x)
{
    stitch__exec_plan *oldest = &x->plans[0];
    if (x->plan_count < (size_t)x->options.max_plans)
        return &x->plans[x->plan_count++];
    for (size_t i = 1; i < x->plan_count; i++) {
        if (x->plans[i].last_used < oldest->last_used)
            oldest = &x->plans[i];
    }
    plan_release(x, oldest);
    return oldest;
}

int stitch__plan_get(stitch_executor *x, stitch__exec_plan **out, stitch_error **err)
{
    int rc;
    for (size_t i = 0; i < x->plan_count; i++) {
        if (x->plans[i].dims && same_dims(x, &x->plans[i])) {
            *out = &x->plans[i];
            (*out)->last_used = ++x->clock;
            return stitch__plan_session(x, *out, err);
        }
    }
    if (!x->dims_valid) {
        if (x->session_plan) /* validation leaves other sizes in the doc, whatever comes of it */
            stitch__session_end(&x->session);
        x->session_plan = NULL;
        if ((rc = stitch__doc_revalidate(x->doc, x->iface, x->dev->info.arch, &x->program->limits, err)) != STITCH_OK)
            return rc;
        x->dims_valid = true;
    }
    stitch__exec_plan *p = free_place(x);
    memset(p, 0, sizeof(*p));
    p->dims = stitch__calloc(x->ctx, x->iface->dim_count + 1, sizeof(*p->dims));
    if (!p->dims)
        return stitch__err_nomem(x->ctx, err);
    for (size_t i = 0; i < x->iface->dim_count; i++)
        p->dims[i] = x->iface->dims[i].value;
    if ((rc = stitch__plan_session(x, p, err)) != STITCH_OK || (rc = allocate(x, p, err)) != STITCH_OK) {
        plan_release(x, p);
        return rc;
    }
    p->last_used = ++x->clock;
    *out = p;
    return STITCH_OK;
}

/* ---- graphs ---- */

static int capture(stitch_executor *x, stitch__exec_plan *p, CUgraph *graph, stitch_error **err)
{
    stitch__device *dev = x->dev;
    int rc = stitch__cu_check(dev, dev->drv->StreamBeginCapture(x->capture, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), err,
                              "cuStreamBeginCapture");
    if (rc)
        return rc;
    x->encoded = 0;
    x->gemm_frozen = true;
    rc = stitch__encode_steps(x, p, &x->doc->run, x->capture, 0, err);
    x->gemm_frozen = false;
    /* Ends in any case: the stream must not stay in capture. */
    CUresult r = dev->drv->StreamEndCapture(x->capture, graph);
    if (rc == STITCH_OK)
        rc = stitch__cu_check(dev, r, err, "cuStreamEndCapture");
    if (rc && r == CUDA_SUCCESS && *graph) {
        dev->drv->GraphDestroy(*graph);
        *graph = NULL;
    }
    p->launches = x->encoded;
    return rc;
}

int stitch__plan_graph(stitch_executor *x, stitch__exec_plan *p, stitch_error **err)
{
    stitch__device *dev = x->dev;
    CUgraph graph = NULL;
    int rc = stitch__plan_session(x, p, err);

    if (rc || (rc = capture(x, p, &graph, err)) != STITCH_OK)
        return rc;
    if (p->graph) {
        CUgraphExecUpdateResultInfo info;
        memset(&info, 0, sizeof(info));
        if (dev->drv->GraphExecUpdate(p->graph, graph, &info) == CUDA_SUCCESS) {
            x->graph_updates++;
            goto done;
        }
        stitch__log(x->ctx, STITCH_LOG_DEBUG, "the driver refuses to update the graph (%d): it is built again",
                    (int)info.result);
        dev->drv->GraphExecDestroy(p->graph);
        p->graph = NULL;
    }
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    memset(&params, 0, sizeof(params));
    rc = stitch__cu_check(dev, dev->drv->GraphInstantiateWithParams(&p->graph, graph, &params), err,
                          "cuGraphInstantiateWithParams");
    if (rc)
        p->graph = NULL;
    else
        x->graph_builds++;
done:
    dev->drv->GraphDestroy(graph);
    if (rc == STITCH_OK)
        p->bind_epoch = x->bind_epoch;
    return rc;
}
