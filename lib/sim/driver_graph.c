/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: graphs, their nodes and edges. One lock covers the structure of all graphs, so that threads that
 * use the same graph at once, which CUDA forbids, get some order instead of a crash.
 *
 * A matrix product of the simulator (stitchSimGemm) that was captured is a node that calls itself a host node.
 */
#include "sim/driver.h"

/* ---- structure --------------------------------------------------------------------------------------------------- */

static void lock_graphs(void)
{
    pthread_mutex_lock(stitch__drv_graph_lock());
}

static void unlock_graphs(void)
{
    pthread_mutex_unlock(stitch__drv_graph_lock());
}

static void destroy_node(stitch__drv_object *object)
{
    stitch__drv_node *n = (stitch__drv_node *)object;
    stitch__drv_op_clear(&n->op);
    stitch_free(n->deps.items);
}

static void destroy_graph(stitch__drv_object *object)
{
    stitch__drv_graph *g = (stitch__drv_graph *)object;
    for (size_t i = 0; i < g->count; i++) {
        g->nodes[i]->graph = NULL;
        g->nodes[i]->deps.count = 0;
        stitch__drv_retire(g->nodes[i]);
        stitch__drv_unref(g->nodes[i]);
    }
    stitch_free(g->nodes);
}

stitch__drv_graph *stitch__drv_graph_new(void)
{
    return stitch__drv_new(sizeof(stitch__drv_graph), STITCH__DRV_GRAPH, NULL, destroy_graph);
}

static bool depends_on(const stitch__drv_node *node, const stitch__drv_node *dep)
{
    for (size_t i = 0; i < node->deps.count; i++) {
        if (node->deps.items[i] == dep)
            return true;
    }
    return false;
}

static CUresult add_edge(stitch__drv_node *node, stitch__drv_node *dep)
{
    if (stitch__grow(NULL, &node->deps.items, &node->deps.cap, node->deps.count + 1, sizeof(*node->deps.items)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->deps.items[node->deps.count++] = dep;
    return CUDA_SUCCESS;
}

CUresult stitch__drv_graph_add(stitch__drv_graph *graph, stitch__drv_op *op, stitch__drv_node *const *deps,
                               size_t count, stitch__drv_node **out)
{
    *out = NULL;
    if (stitch__grow(NULL, &graph->nodes, &graph->cap, graph->count + 1, sizeof(*graph->nodes)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    stitch__drv_node *n = stitch__drv_new(sizeof(*n), STITCH__DRV_NODE, NULL, destroy_node);
    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < count && !r; i++) {
        if (deps[i]->graph != graph || depends_on(n, deps[i]))
            r = CUDA_ERROR_INVALID_VALUE;
        else
            r = add_edge(n, deps[i]);
    }
    if (r) {
        stitch__drv_retire(n);
        return r;
    }
    n->graph = graph;
    n->index = graph->count;
    n->op = *op;
    *op = (stitch__drv_op){.kind = STITCH__DRV_OP_EMPTY};
    graph->nodes[graph->count++] = stitch__drv_ref(n);
    *out = n;
    return CUDA_SUCCESS;
}

static CUgraphNodeType op_type(const stitch__drv_op *op)
{
    switch (op->kind) {
    case STITCH__DRV_OP_KERNEL: return CU_GRAPH_NODE_TYPE_KERNEL;
    case STITCH__DRV_OP_COPY: return CU_GRAPH_NODE_TYPE_MEMCPY;
    case STITCH__DRV_OP_FILL: return CU_GRAPH_NODE_TYPE_MEMSET;
    case STITCH__DRV_OP_HOST:
    case STITCH__DRV_OP_GEMM: return CU_GRAPH_NODE_TYPE_HOST;
    case STITCH__DRV_OP_EMPTY: break;
    }
    return CU_GRAPH_NODE_TYPE_EMPTY;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

CUresult CUDAAPI SIM(cuGraphCreate)(CUgraph *phGraph, unsigned int flags)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_graph *g = stitch__drv_graph_new();
    if (!g)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *phGraph = DRV_HANDLE(CUgraph, g);
    return CUDA_SUCCESS;
}

/* Finds a graph and takes the lock. */
static CUresult graph_enter(CUgraph handle, stitch__drv_graph **out)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    *out = DRV_FIND(stitch__drv_graph, GRAPH, handle);
    if (!*out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_graphs();
    return CUDA_SUCCESS;
}

static void graph_leave(stitch__drv_graph *g)
{
    unlock_graphs();
    stitch__drv_unref(g);
}

/* Finds a node that is in a graph and takes the lock. */
static CUresult node_enter(CUgraphNode handle, stitch__drv_node **out)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    *out = DRV_FIND(stitch__drv_node, NODE, handle);
    if (!*out)
        return CUDA_ERROR_INVALID_VALUE;
    lock_graphs();
    return CUDA_SUCCESS;
}

static void node_leave(stitch__drv_node *n)
{
    unlock_graphs();
    stitch__drv_unref(n);
}

CUresult CUDAAPI SIM(cuGraphDestroy)(CUgraph hGraph)
{
    stitch__drv_graph *g;
    CUresult r = graph_enter(hGraph, &g);
    if (r)
        return r;
    if (!stitch__drv_retire(g))
        r = CUDA_ERROR_INVALID_VALUE;
    graph_leave(g);
    return r;
}

CUresult CUDAAPI SIM(cuGraphClone)(CUgraph *phGraphClone, CUgraph originalGraph)
{
    stitch__drv_graph *g;
    if (!phGraphClone)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = graph_enter(originalGraph, &g);
    if (r)
        return r;
    stitch__drv_graph *copy = stitch__drv_graph_new();
    r = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < g->count && !r; i++) {
        stitch__drv_op op;
        stitch__drv_node *n;
        r = stitch__drv_op_copy(&op, &g->nodes[i]->op);
        if (!r)
            r = stitch__drv_graph_add(copy, &op, NULL, 0, &n);
        stitch__drv_op_clear(&op);
    }
    for (size_t i = 0; i < g->count && !r; i++) {
        for (size_t d = 0; d < g->nodes[i]->deps.count && !r; d++)
            r = add_edge(copy->nodes[i], copy->nodes[g->nodes[i]->deps.items[d]->index]);
    }
    if (!r)
        *phGraphClone = DRV_HANDLE(CUgraph, copy);
    else if (copy)
        stitch__drv_retire(copy);
    graph_leave(g);
    return r;
}

/* ---- adding nodes ------------------------------------------------------------------------------------------------ */

CUresult stitch__drv_op_kernel(stitch__drv_op *op, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    *op = (stitch__drv_op){
        .kind = STITCH__DRV_OP_KERNEL,
        .kernel = {.function =
                       stitch__drv_find((uintptr_t)(p->func ? (void *)p->func : (void *)p->kern), STITCH__DRV_FUNCTION),
                   .grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                   .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                   .shared = p->sharedMemBytes},
    };
    CUresult r = op->kernel.function ? stitch__drv_kernel_params(&op->kernel, p->kernelParams, p->extra)
                                     : CUDA_ERROR_INVALID_HANDLE;
    if (r)
        stitch__drv_op_clear(op);
    return r;
}

CUresult stitch__drv_op_check_in(CUcontext handle, const stitch__drv_op *op)
{
    stitch__drv_context *ctx;
    CUresult r;
    if (op->kind == STITCH__DRV_OP_KERNEL)
        ctx = stitch__drv_ref(op->kernel.function->obj.ctx);
    else if (op->kind == STITCH__DRV_OP_COPY || op->kind == STITCH__DRV_OP_FILL)
        ctx = DRV_FIND(stitch__drv_context, CONTEXT, handle);
    else
        return op->kind == STITCH__DRV_OP_HOST && !op->host.fn ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    r = stitch__drv_lock(ctx);
    if (r) {
        stitch__drv_unref(ctx);
        return r;
    }
    r = ctx->sticky ? ctx->sticky : stitch__drv_op_check(ctx, op);
    stitch__drv_leave(ctx);
    return r;
}

/* Checks the operation and adds it; clears it in any case. */
static CUresult add_node(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count, stitch__drv_op *op,
                         CUcontext ctx)
{
    stitch__drv_nodes nodes = {0};
    stitch__drv_graph *g;
    CUresult r = out && (deps || !count) ? stitch__drv_op_check_in(ctx, op) : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !r; i++) {
        stitch__drv_node *n = DRV_FIND(stitch__drv_node, NODE, deps[i]);
        size_t before = nodes.count;
        r = n ? stitch__drv_nodes_add(&nodes, n) : CUDA_ERROR_INVALID_VALUE;
        if (!r && nodes.count == before) /* named twice */
            r = CUDA_ERROR_INVALID_VALUE;
        stitch__drv_unref(n);
    }
    if (!r)
        r = graph_enter(graph, &g);
    if (!r) {
        stitch__drv_node *n;
        r = stitch__drv_graph_add(g, op, nodes.items, nodes.count, &n);
        if (!r)
            *out = DRV_HANDLE(CUgraphNode, n);
        graph_leave(g);
    }
    stitch__drv_nodes_clear(&nodes);
    stitch__drv_op_clear(op);
    return r;
}

CUresult CUDAAPI SIM(cuGraphAddKernelNode_v2)(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                              size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    stitch__drv_op op;
    CUresult r = stitch__drv_ready();
    if (!r)
        r = nodeParams ? stitch__drv_op_kernel(&op, nodeParams) : CUDA_ERROR_INVALID_VALUE;
    return r ? r : add_node(phGraphNode, hGraph, dependencies, numDependencies, &op, NULL);
}

CUresult CUDAAPI SIM(cuGraphAddMemcpyNode)(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                           size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    if (!copyParams)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_COPY, .copy = *copyParams};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, &op, ctx);
}

CUresult CUDAAPI SIM(cuGraphAddMemsetNode)(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                           size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                           CUcontext ctx)
{
    if (!memsetParams)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_FILL, .fill = *memsetParams};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, &op, ctx);
}

CUresult CUDAAPI SIM(cuGraphAddHostNode)(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                         size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_HOST, .host = *nodeParams};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, &op, NULL);
}

CUresult CUDAAPI SIM(cuGraphAddEmptyNode)(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                          size_t numDependencies)
{
    stitch__drv_op op = {.kind = STITCH__DRV_OP_EMPTY};
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, &op, NULL);
}

/* ---- edges ------------------------------------------------------------------------------------------------------- */

/* Programmatic edges (type 1) are as good as full ones here: a kernel ends before the next one starts. */
CUresult CUDAAPI SIM(cuGraphAddDependencies_v2)(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                                const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    stitch__drv_graph *g;
    if (numDependencies && (!from || !to))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; edgeData && i < numDependencies; i++) {
        if (edgeData[i].type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
            return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult r = graph_enter(hGraph, &g);
    if (r)
        return r;
    for (size_t i = 0; i < numDependencies && !r; i++) {
        stitch__drv_node *a = DRV_FIND(stitch__drv_node, NODE, from[i]);
        stitch__drv_node *b = DRV_FIND(stitch__drv_node, NODE, to[i]);
        if (!a || !b || a == b || a->graph != g || b->graph != g || depends_on(b, a))
            r = CUDA_ERROR_INVALID_VALUE;
        else
            r = add_edge(b, a);
        stitch__drv_unref(a);
        stitch__drv_unref(b);
    }
    graph_leave(g);
    return r;
}

CUresult CUDAAPI SIM(cuGraphAddDependencies)(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                             size_t numDependencies)
{
    return SIM(cuGraphAddDependencies_v2)(hGraph, from, to, NULL, numDependencies);
}

CUresult CUDAAPI SIM(cuGraphDestroyNode)(CUgraphNode hNode)
{
    stitch__drv_node *n;
    CUresult r = node_enter(hNode, &n);
    if (r)
        return r;
    stitch__drv_graph *g = n->graph;
    if (!g) {
        r = CUDA_ERROR_INVALID_VALUE;
    } else {
        memmove(&g->nodes[n->index], &g->nodes[n->index + 1], (g->count - n->index - 1) * sizeof(*g->nodes));
        g->count--;
        for (size_t i = 0; i < g->count; i++) {
            stitch__drv_nodes *deps = &g->nodes[i]->deps;
            g->nodes[i]->index = i;
            for (size_t d = 0; d < deps->count; d++) {
                if (deps->items[d] == n)
                    deps->items[d--] = deps->items[--deps->count];
            }
        }
        n->graph = NULL;
        n->deps.count = 0;
        stitch__drv_retire(n);
        stitch__drv_unref(n); /* the graph's hold */
    }
    node_leave(n);
    return r;
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

/* Lists are asked for in two calls: with NULL for their length, then with room. What room is left is filled with NULL.
 */
static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count, bool roots)
{
    stitch__drv_graph *g;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = graph_enter(graph, &g);
    if (r)
        return r;
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++) {
        if (roots && g->nodes[i]->deps.count)
            continue;
        if (nodes && n < *count)
            nodes[n] = DRV_HANDLE(CUgraphNode, g->nodes[i]);
        n++;
    }
    for (size_t i = n; nodes && i < *count; i++)
        nodes[i] = NULL;
    if (!nodes || n < *count)
        *count = n;
    graph_leave(g);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphGetNodes)(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    return list_nodes(hGraph, nodes, numNodes, false);
}

CUresult CUDAAPI SIM(cuGraphGetRootNodes)(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    return list_nodes(hGraph, rootNodes, numRootNodes, true);
}

CUresult CUDAAPI SIM(cuGraphGetEdges_v2)(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edgeData,
                                         size_t *numEdges)
{
    stitch__drv_graph *g;
    if (!numEdges || !from != !to || (edgeData && !from))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = graph_enter(hGraph, &g);
    if (r)
        return r;
    size_t n = 0;
    for (size_t i = 0; i < g->count; i++) {
        for (size_t d = 0; d < g->nodes[i]->deps.count; d++, n++) {
            if (from && n < *numEdges) {
                from[n] = DRV_HANDLE(CUgraphNode, g->nodes[i]->deps.items[d]);
                to[n] = DRV_HANDLE(CUgraphNode, g->nodes[i]);
                if (edgeData)
                    memset(&edgeData[n], 0, sizeof(edgeData[n]));
            }
        }
    }
    if (!from || n < *numEdges)
        *numEdges = n;
    graph_leave(g);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphGetEdges)(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges)
{
    return SIM(cuGraphGetEdges_v2)(hGraph, from, to, NULL, numEdges);
}

CUresult CUDAAPI SIM(cuGraphNodeGetDependencies_v2)(CUgraphNode hNode, CUgraphNode *dependencies,
                                                    CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    stitch__drv_node *n;
    if (!numDependencies || (edgeData && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, &n);
    if (r)
        return r;
    for (size_t i = 0; dependencies && i < n->deps.count && i < *numDependencies; i++) {
        dependencies[i] = DRV_HANDLE(CUgraphNode, n->deps.items[i]);
        if (edgeData)
            memset(&edgeData[i], 0, sizeof(edgeData[i]));
    }
    if (!dependencies || n->deps.count < *numDependencies)
        *numDependencies = n->deps.count;
    node_leave(n);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphNodeGetDependencies)(CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies)
{
    return SIM(cuGraphNodeGetDependencies_v2)(hNode, dependencies, NULL, numDependencies);
}

CUresult CUDAAPI SIM(cuGraphNodeGetType)(CUgraphNode hNode, CUgraphNodeType *type)
{
    stitch__drv_node *n;
    if (!type)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, &n);
    if (r)
        return r;
    *type = op_type(&n->op);
    node_leave(n);
    return CUDA_SUCCESS;
}
