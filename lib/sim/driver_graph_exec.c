/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: executable graphs. One is a copy of a graph's operations in an order in which they may run; it does
 * not change when its graph does, and lives on without it.
 */
#include "sim/driver.h"

typedef struct step {
    uint64_t node; /* handle of the node that it came from */
    stitch__drv_op op;
    size_t *deps; /* positions, in the graph's order of nodes */
    size_t dep_count;
} step;

typedef struct exec {
    stitch__drv_object obj;
    pthread_mutex_t lock; /* of the operations, while they run or are changed */
    unsigned long long flags;
    step *steps; /* in the graph's order of nodes */
    size_t count;
    size_t *order; /* positions in `steps`, every one after those that it depends on */
} exec;

static void clear_steps(step *steps, size_t count, size_t *order)
{
    for (size_t i = 0; steps && i < count; i++) {
        stitch__drv_op_clear(&steps[i].op);
        stitch_free(steps[i].deps);
    }
    stitch_free(steps);
    stitch_free(order);
}

static void destroy_exec(stitch__drv_object *object)
{
    exec *e = (exec *)object;
    clear_steps(e->steps, e->count, e->order);
    pthread_mutex_destroy(&e->lock);
}

/* ---- instantiation ----------------------------------------------------------------------------------------------- */

static CUresult copy_steps(const stitch__drv_graph *g, step **out)
{
    step *steps = *out = stitch__calloc(NULL, g->count + 1, sizeof(*steps));
    CUresult r = steps ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->count && !r; i++) {
        const stitch__drv_node *n = g->nodes[i];
        steps[i].node = n->obj.handle;
        steps[i].deps = stitch__calloc(NULL, n->deps.count + 1, sizeof(*steps[i].deps));
        if (!steps[i].deps)
            return CUDA_ERROR_OUT_OF_MEMORY;
        for (size_t d = 0; d < n->deps.count; d++)
            steps[i].deps[steps[i].dep_count++] = n->deps.items[d]->index;
        r = stitch__drv_op_copy(&steps[i].op, &n->op);
    }
    return r;
}

/* Sorts by dependencies; of what is free to run the oldest node comes first. Fails on a cycle, with *stuck in it. */
static CUresult sort_steps(const step *steps, size_t count, size_t **out, size_t *stuck)
{
    size_t *order = *out = stitch__calloc(NULL, count + 1, sizeof(*order));
    bool *done = stitch__calloc(NULL, count + 1, sizeof(*done));
    CUresult r = order && done ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    /* Captured graphs are sorted already, so that one round does it; each round places at least one step. */
    for (size_t placed = 0; placed < count && !r;) {
        size_t before = placed;
        for (size_t i = 0; i < count; i++) {
            bool ready = !done[i];
            for (size_t d = 0; d < steps[i].dep_count && ready; d++)
                ready = done[steps[i].deps[d]];
            if (ready) {
                done[i] = true;
                order[placed++] = i;
            } else if (!done[i]) {
                *stuck = i;
            }
        }
        if (placed == before)
            r = CUDA_ERROR_INVALID_VALUE;
    }
    stitch_free(done);
    return r;
}

/* Graph lock is taken in here. */
static CUresult read_graph(CUgraph graph, step **steps, size_t *count, size_t **order, CUgraphNode *error_node)
{
    stitch__drv_graph *g = DRV_FIND(stitch__drv_graph, GRAPH, graph);
    if (!g)
        return CUDA_ERROR_INVALID_VALUE;
    size_t stuck = 0;
    pthread_mutex_lock(stitch__drv_graph_lock());
    *count = g->count;
    CUresult r = copy_steps(g, steps);
    if (!r)
        r = sort_steps(*steps, *count, order, &stuck);
    if (r == CUDA_ERROR_INVALID_VALUE && error_node)
        *error_node = DRV_HANDLE(CUgraphNode, g->nodes[stuck]);
    pthread_mutex_unlock(stitch__drv_graph_lock());
    stitch__drv_unref(g);
    return r;
}

static CUresult instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags, CUgraphNode *error_node)
{
    const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    if (flags & ~known)
        return flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    step *steps = NULL;
    size_t count = 0, *order = NULL;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    r = read_graph(graph, &steps, &count, &order, error_node);
    exec *e = r ? NULL : stitch__drv_new(sizeof(*e), STITCH__DRV_EXEC, ctx, destroy_exec);
    if (e) {
        pthread_mutex_init(&e->lock, NULL);
        e->flags = flags;
        e->steps = steps;
        e->count = count;
        e->order = order;
        *out = DRV_HANDLE(CUgraphExec, e);
    } else {
        clear_steps(steps, count, order);
        r = r ? r : CUDA_ERROR_OUT_OF_MEMORY;
    }
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(cuGraphInstantiateWithFlags)(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    return instantiate(phGraphExec, hGraph, flags, NULL);
}

CUresult CUDAAPI SIM(cuGraphInstantiateWithParams)(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    if (!instantiateParams)
        return CUDA_ERROR_INVALID_VALUE;
    instantiateParams->hErrNode_out = NULL;
    CUresult r = instantiate(phGraphExec, hGraph, instantiateParams->flags, &instantiateParams->hErrNode_out);
    instantiateParams->result_out = !r                                ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                    : instantiateParams->hErrNode_out ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                                      : CUDA_GRAPH_INSTANTIATE_ERROR;
    return r;
}

/* ---- use --------------------------------------------------------------------------------------------------------- */

static CUresult exec_enter(CUgraphExec handle, exec **out)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    *out = DRV_FIND(exec, EXEC, handle);
    if (!*out)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&(*out)->lock);
    return CUDA_SUCCESS;
}

static void exec_leave(exec *e)
{
    pthread_mutex_unlock(&e->lock);
    stitch__drv_unref(e);
}

CUresult CUDAAPI SIM(cuGraphExecDestroy)(CUgraphExec hGraphExec)
{
    exec *e;
    CUresult r = exec_enter(hGraphExec, &e);
    if (r)
        return r;
    if (!stitch__drv_retire(e))
        r = CUDA_ERROR_INVALID_VALUE;
    exec_leave(e);
    return r;
}

CUresult CUDAAPI SIM(cuGraphExecGetFlags)(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    exec *e;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = exec_enter(hGraphExec, &e);
    if (r)
        return r;
    *flags = e->flags;
    exec_leave(e);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphUpload)(CUgraphExec hGraphExec, CUstream hStream)
{
    exec *e;
    stitch__drv_stream *s;
    CUresult r = exec_enter(hGraphExec, &e);
    if (r)
        return r;
    r = stitch__drv_stream_enter(hStream, &s);
    if (!r) {
        r = s->capture ? stitch__drv_capture_break(s) : CUDA_SUCCESS;
        stitch__drv_stream_leave(s);
    }
    exec_leave(e);
    return r;
}

/* A launch in a capturing stream would become a child graph, which is not simulated. */
CUresult CUDAAPI SIM(cuGraphLaunch)(CUgraphExec hGraphExec, CUstream hStream)
{
    exec *e;
    stitch__drv_stream *s;
    CUresult r = exec_enter(hGraphExec, &e);
    if (r)
        return r;
    r = stitch__drv_stream_enter(hStream, &s);
    if (r) {
        exec_leave(e);
        return r;
    }
    stitch__drv_context *ctx = stitch__drv_stream_context(s);
    if (s->capture)
        r = stitch__drv_capture_break(s);
    else if (s == &ctx->legacy)
        r = stitch__drv_capture_legacy(ctx);
    /* A fault inside shows in the calls that follow, like that of a kernel in a stream. */
    for (size_t i = 0; i < e->count && !r && !ctx->sticky; i++)
        r = stitch__drv_op_run(ctx, &e->steps[e->order[i]].op, NULL);
    stitch__drv_stream_leave(s);
    exec_leave(e);
    return r;
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* Whether an executable's operation may become `to`: kind and place stay, values may change. */
static CUgraphExecUpdateResult compare(const stitch__drv_op *from, const stitch__drv_op *to)
{
    if (from->kind != to->kind)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (from->kind == STITCH__DRV_OP_KERNEL) {
        const stitch__drv_kernel_op *a = &from->kernel, *b = &to->kernel;
        if (a->function->obj.ctx != b->function->obj.ctx)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        if (a->cooperative != b->cooperative || memcmp(a->cluster, b->cluster, sizeof(a->cluster)) != 0)
            return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }
    if (from->kind == STITCH__DRV_OP_COPY &&
        (from->copy.srcMemoryType != to->copy.srcMemoryType || from->copy.dstMemoryType != to->copy.dstMemoryType))
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    if (from->kind == STITCH__DRV_OP_FILL && (from->fill.height > 1) != (to->fill.height > 1))
        return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static bool same_deps(const step *a, const step *b)
{
    if (a->dep_count != b->dep_count)
        return false;
    for (size_t i = 0; i < a->dep_count; i++) {
        bool found = false;
        for (size_t j = 0; j < b->dep_count && !found; j++)
            found = a->deps[i] == b->deps[j];
        if (!found)
            return false;
    }
    return true;
}

/* Nodes are paired in the order of their creation. Nothing changes if one does not fit. */
CUresult CUDAAPI SIM(cuGraphExecUpdate_v2)(CUgraphExec hGraphExec, CUgraph hGraph,
                                           CUgraphExecUpdateResultInfo *resultInfo)
{
    exec *e;
    if (!resultInfo)
        return CUDA_ERROR_INVALID_VALUE;
    *resultInfo = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult r = exec_enter(hGraphExec, &e);
    if (r)
        return r;
    step *steps = NULL;
    size_t count = 0, *order = NULL, at = 0;
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    r = read_graph(hGraph, &steps, &count, &order, NULL);
    if (!r && count != e->count)
        result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (; !r && !result && at < count; at++) {
        result = compare(&e->steps[at].op, &steps[at].op);
        if (!result && !same_deps(&e->steps[at], &steps[at]))
            result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (result)
            resultInfo->errorNode = (CUgraphNode)(uintptr_t)steps[at].node;
    }
    if (!r && !result) {
        for (size_t i = 0; i < count; i++) { /* later changes name the nodes of the first graph */
            stitch__drv_op op = e->steps[i].op;
            e->steps[i].op = steps[i].op;
            steps[i].op = op;
        }
    }
    clear_steps(steps, count, order);
    if (!r)
        resultInfo->result = result;
    exec_leave(e);
    return r ? r : result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS;
}

/* Replaces the operation of one node; clears `op` in any case. */
static CUresult set_params(CUgraphExec handle, CUgraphNode node, stitch__drv_op *op, CUcontext ctx)
{
    exec *e;
    CUresult r = stitch__drv_op_check_in(ctx, op);
    if (!r)
        r = exec_enter(handle, &e);
    if (!r) {
        step *s = NULL;
        for (size_t i = 0; i < e->count && !s; i++) {
            if (e->steps[i].node == (uint64_t)(uintptr_t)node)
                s = &e->steps[i];
        }
        if (s && op->kind == STITCH__DRV_OP_KERNEL && s->op.kind == STITCH__DRV_OP_KERNEL) {
            memcpy(op->kernel.cluster, s->op.kernel.cluster, sizeof(op->kernel.cluster)); /* attributes stay */
            op->kernel.cooperative = s->op.kernel.cooperative;
            op->kernel.priority = s->op.kernel.priority;
        }
        if (!s || compare(&s->op, op)) {
            r = CUDA_ERROR_INVALID_VALUE;
        } else {
            stitch__drv_op old = s->op;
            s->op = *op;
            *op = old;
        }
        exec_leave(e);
    }
    stitch__drv_op_clear(op);
    return r;
}

CUresult CUDAAPI SIM(cuGraphExecKernelNodeSetParams_v2)(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                        const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    stitch__drv_op op;
    CUresult r = stitch__drv_ready();
    if (!r)
        r = nodeParams ? stitch__drv_op_kernel(&op, nodeParams) : CUDA_ERROR_INVALID_VALUE;
    return r ? r : set_params(hGraphExec, hNode, &op, NULL);
}

CUresult CUDAAPI SIM(cuGraphExecMemcpyNodeSetParams)(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                     const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (!copyParams)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_COPY, .copy = *copyParams};
    return set_params(hGraphExec, hNode, &op, ctx);
}

CUresult CUDAAPI SIM(cuGraphExecMemsetNodeSetParams)(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                     const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    if (!memsetParams)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_FILL, .fill = *memsetParams};
    return set_params(hGraphExec, hNode, &op, ctx);
}

CUresult CUDAAPI SIM(cuGraphExecHostNodeSetParams)(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_HOST, .host = *nodeParams};
    return set_params(hGraphExec, hNode, &op, NULL);
}
