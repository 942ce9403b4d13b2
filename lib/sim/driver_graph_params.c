/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: parameters and attributes of graph nodes.
 */
#include "sim/driver.h"

/* The node of a handle, if it is of a kind, with the lock of graphs. */
static CUresult node_enter(CUgraphNode handle, stitch__drv_op_kind kind, stitch__drv_node **out)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    stitch__drv_node *n = DRV_FIND(stitch__drv_node, NODE, handle);
    if (!n)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(stitch__drv_graph_lock());
    if (n->op.kind == kind) {
        *out = n;
        return CUDA_SUCCESS;
    }
    pthread_mutex_unlock(stitch__drv_graph_lock());
    stitch__drv_unref(n);
    return CUDA_ERROR_INVALID_VALUE;
}

static void node_leave(stitch__drv_node *n)
{
    pthread_mutex_unlock(stitch__drv_graph_lock());
    stitch__drv_unref(n);
}

/* The parameters point into the node and stay valid until it changes. */
CUresult CUDAAPI SIM(cuGraphKernelNodeGetParams_v2)(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    stitch__drv_node *n;
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, STITCH__DRV_OP_KERNEL, &n);
    if (r)
        return r;
    const stitch__drv_kernel_op *k = &n->op.kernel;
    *nodeParams = (CUDA_KERNEL_NODE_PARAMS){
        .func = DRV_HANDLE(CUfunction, k->function),
        .gridDimX = k->grid[0],
        .gridDimY = k->grid[1],
        .gridDimZ = k->grid[2],
        .blockDimX = k->block[0],
        .blockDimY = k->block[1],
        .blockDimZ = k->block[2],
        .sharedMemBytes = k->shared,
        .kernelParams = k->pointers,
        .ctx = DRV_HANDLE(CUcontext, k->function->obj.ctx),
    };
    node_leave(n);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphKernelNodeSetParams_v2)(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    stitch__drv_op op;
    CUresult r = stitch__drv_ready();
    if (!r)
        r = nodeParams ? stitch__drv_op_kernel(&op, nodeParams) : CUDA_ERROR_INVALID_VALUE;
    if (r)
        return r;
    stitch__drv_node *n;
    stitch__drv_op old = {.kind = STITCH__DRV_OP_EMPTY};
    r = node_enter(hNode, STITCH__DRV_OP_KERNEL, &n);
    if (!r) {
        memcpy(op.kernel.cluster, n->op.kernel.cluster, sizeof(op.kernel.cluster)); /* attributes stay */
        op.kernel.cooperative = n->op.kernel.cooperative;
        op.kernel.priority = n->op.kernel.priority;
        old = n->op;
        n->op = op;
        op = (stitch__drv_op){.kind = STITCH__DRV_OP_EMPTY};
        node_leave(n);
    }
    stitch__drv_op_clear(&op);
    stitch__drv_op_clear(&old);
    return r;
}

CUresult CUDAAPI SIM(cuGraphKernelNodeSetAttribute)(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                    const CUkernelNodeAttrValue *value)
{
    stitch__drv_node *n;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, STITCH__DRV_OP_KERNEL, &n);
    if (r)
        return r;
    stitch__drv_kernel_op *k = &n->op.kernel;
    switch ((int)attr) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: k->cooperative = value->cooperative != 0; break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: k->priority = value->priority; break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        k->cluster[0] = value->clusterDim.x;
        k->cluster[1] = value->clusterDim.y;
        k->cluster[2] = value->clusterDim.z;
        break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: break; /* hints */
    default: r = CUDA_ERROR_INVALID_VALUE; break;
    }
    node_leave(n);
    return r;
}

CUresult CUDAAPI SIM(cuGraphKernelNodeGetAttribute)(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                                    CUkernelNodeAttrValue *value_out)
{
    stitch__drv_node *n;
    if (!value_out)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, STITCH__DRV_OP_KERNEL, &n);
    if (r)
        return r;
    const stitch__drv_kernel_op *k = &n->op.kernel;
    uint32_t c[3];
    switch ((int)attr) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: value_out->cooperative = k->cooperative; break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: value_out->priority = k->priority; break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        stitch__drv_cluster(k->function, k->cluster, c);
        value_out->clusterDim.x = c[0];
        value_out->clusterDim.y = c[1];
        value_out->clusterDim.z = c[2];
        break;
    default: r = CUDA_ERROR_INVALID_VALUE; break;
    }
    node_leave(n);
    return r;
}

CUresult CUDAAPI SIM(cuGraphMemcpyNodeGetParams)(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    stitch__drv_node *n;
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, STITCH__DRV_OP_COPY, &n);
    if (r)
        return r;
    *nodeParams = n->op.copy;
    node_leave(n);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphMemsetNodeGetParams)(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    stitch__drv_node *n;
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, STITCH__DRV_OP_FILL, &n);
    if (r)
        return r;
    *nodeParams = n->op.fill;
    node_leave(n);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuGraphHostNodeGetParams)(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    stitch__drv_node *n;
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = node_enter(hNode, STITCH__DRV_OP_HOST, &n);
    if (r)
        return r;
    *nodeParams = n->op.host;
    node_leave(n);
    return CUDA_SUCCESS;
}
