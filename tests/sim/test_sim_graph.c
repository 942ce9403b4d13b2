/* SPDX-License-Identifier: MIT
 *
 * The simulated driver through its function table: stream capture, graphs and their updates, matrix products.
 */
#include <pthread.h>

#include "driver_test.h"

enum { N = 256 };

static CUstream stream(unsigned flags)
{
    CUstream s;
    OK(cu.cuStreamCreate(&s, flags));
    return s;
}

static CUevent event(void)
{
    CUevent e;
    OK(cu.cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    return e;
}

static CUdeviceptr ones(void)
{
    CUdeviceptr p = device_floats(NULL, N);
    OK(cu.cuMemsetD32_v2(p, 0x3f800000, N));
    return p;
}

static float first(CUdeviceptr p)
{
    float f = -1;
    OK(cu.cuMemcpyDtoH_v2(&f, p, 4));
    return f;
}

static CUgraphExec instantiate(CUgraph g)
{
    CUgraphExec x = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    OK(cu.cuGraphInstantiateWithParams(&x, g, &params));
    CHECK_INT(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
    return x;
}

static size_t node_count(CUgraph g)
{
    size_t n = 0;
    OK(cu.cuGraphGetNodes(g, NULL, &n));
    return n;
}

static size_t edge_count(CUgraph g)
{
    size_t n = 0;
    OK(cu.cuGraphGetEdges_v2(g, NULL, NULL, NULL, &n));
    return n;
}

static void CUDA_CB count_up(void *arg)
{
    ++*(int *)arg;
}

TEST(capture_and_replay)
{
    begin();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = ones(), b = ones(), c = device_floats(NULL, N), d = device_floats(NULL, N);
    CUgraph g;
    CUstreamCaptureStatus status;
    int calls = 0;
    OK(cu.cuStreamIsCapturing(s, &status));
    CHECK_INT(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
    OK(cu.cuStreamIsCapturing(s, &status));
    CHECK_INT(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cu.cuMemsetD32Async(c, 0, N, s));
    OK(launch_add(s, a, b, c, N));
    OK(cu.cuMemcpyDtoDAsync_v2(d, c, N * 4, s));
    OK(cu.cuLaunchHostFunc(s, count_up, &calls));
    OK(launch_add(s, c, d, d, N));
    const CUgraphNode *deps;
    size_t dep_count;
    CUgraph going;
    OK(cu.cuStreamGetCaptureInfo_v2(s, &status, NULL, &going, &deps, &dep_count));
    CHECK_INT(dep_count, 1);
    CUgraphNodeType type;
    OK(cu.cuGraphNodeGetType(deps[0], &type));
    CHECK_INT(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cu.cuStreamEndCapture(s, &g));
    CHECK(g == going);
    CHECK_INT(calls, 0); /* nothing ran */
    CHECK_INT(node_count(g), 5);
    CHECK_INT(edge_count(g), 4);
    CUgraphNode nodes[6];
    size_t room = 6;
    OK(cu.cuGraphGetNodes(g, nodes, &room));
    CHECK(room == 5 && nodes[5] == NULL);
    static const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_KERNEL,
                                            CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_HOST,
                                            CU_GRAPH_NODE_TYPE_KERNEL};
    for (int i = 0; i < 5; i++) {
        OK(cu.cuGraphNodeGetType(nodes[i], &type));
        CHECK_INT(type, types[i]);
    }
    CUgraphExec x = instantiate(g);
    OK(cu.cuGraphDestroy(g)); /* the executable does not need it */
    CU(cu.cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuGraphNodeGetType(nodes[0], &type), CUDA_ERROR_INVALID_VALUE);
    for (int i = 1; i <= 3; i++) {
        OK(cu.cuGraphLaunch(x, s));
        CHECK_INT(calls, i);
        CHECK_NEAR(first(d), 4, 0);
    }
    OK(cu.cuGraphUpload(x, s));
    OK(cu.cuGraphExecDestroy(x));
    CU(cu.cuGraphLaunch(x, s), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_ILLEGAL_STATE);
    CU(cu.cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU(cu.cuStreamBeginCapture_v2(s, (CUstreamCaptureMode)9), CUDA_ERROR_INVALID_VALUE);
}

TEST(fork_and_join)
{
    begin();
    CUstream s = stream(CU_STREAM_NON_BLOCKING), t = stream(CU_STREAM_NON_BLOCKING);
    CUevent fork = event(), join = event();
    CUdeviceptr a = ones(), b = device_floats(NULL, N), c = device_floats(NULL, N);
    CUgraph g;
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(cu.cuEventRecord(fork, s));
    OK(cu.cuStreamWaitEvent(t, fork, 0));
    OK(launch_add(s, a, a, b, N));
    OK(launch_add(t, a, a, c, N));
    OK(cu.cuEventRecord(join, t));
    OK(cu.cuStreamWaitEvent(s, join, 0));
    OK(launch_add(s, b, c, a, N));
    CU(cu.cuStreamEndCapture(t, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    OK(cu.cuStreamEndCapture(s, &g));
    CHECK_INT(node_count(g), 3);
    CHECK_INT(edge_count(g), 2);
    CUgraphNode roots[3];
    size_t n = 3;
    OK(cu.cuGraphGetRootNodes(g, roots, &n));
    CHECK_INT(n, 2);
    OK(cu.cuGraphLaunch(instantiate(g), s));
    CHECK_NEAR(first(a), 4, 0);
    OK(cu.cuStreamSynchronize(t)); /* the capture let it go */
    CU(cu.cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
    OK(cu.cuEventRecord(join, t));
    OK(cu.cuEventQuery(join));
}

/* What a capture forbids, and that a spoilt one leaves its streams usable. */
TEST(spoilt_captures)
{
    begin();
    CUstream s = stream(CU_STREAM_NON_BLOCKING), t = stream(CU_STREAM_NON_BLOCKING), blocking = stream(0);
    CUevent e = event(), outside = event();
    CUdeviceptr a = ones(), p;
    CUgraph g = (CUgraph)e;
    CUstreamCaptureStatus status;

    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED)); /* unjoined work */
    OK(cu.cuEventRecord(e, s));
    OK(cu.cuStreamWaitEvent(t, e, 0));
    OK(launch_add(t, a, a, a, N));
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(g == NULL);

    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED)); /* waiting for what only records */
    CU(cu.cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cu.cuStreamIsCapturing(s, &status));
    CHECK_INT(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CU(launch_add(s, a, a, a, N), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cu.cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED)); /* the legacy stream would wait */
    CU(launch_add(NULL, a, a, a, N), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CU(cu.cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_add(NULL, a, a, a, N)); /* but not for a stream that does not block */
    OK(cu.cuStreamEndCapture(s, &g));
    OK(cu.cuGraphDestroy(g));

    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL)); /* unsafe calls */
    CU(cu.cuMemAlloc_v2(&p, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuMemAlloc_v2(&p, 4));
    OK(cu.cuStreamEndCapture(s, &g));
    OK(cu.cuGraphDestroy(g));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
    CHECK_INT(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cu.cuMemAlloc_v2(&p, 4)); /* the thread said that it knows */
    OK(cu.cuThreadExchangeStreamCaptureMode(&mode));
    CU(cu.cuMemFree_v2(p), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cu.cuEventRecord(outside, t)); /* events of work that is not captured, and of another capture */
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    CU(cu.cuStreamWaitEvent(s, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuStreamBeginCapture_v2(t, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.cuEventRecord(e, s));
    CU(cu.cuStreamWaitEvent(t, e, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CU(cu.cuStreamEndCapture(t, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED)); /* bad arguments spoil nothing */
    CU(cu.cuMemsetD8Async(a, 0, N * 4 + 1, s), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuStreamDestroy_v2(s)); /* the capture goes with it */
    OK(launch_add(t, a, a, a, N));
    OK(cu.cuStreamBeginCapture_v2(t, CU_STREAM_CAPTURE_MODE_RELAXED)); /* and this one with the context */
    OK(cu.cuEventRecord(e, t));
    OK(cu.cuStreamWaitEvent(blocking, e, 0));
    OK(launch_add(blocking, a, a, a, N));
}

static void *end_elsewhere(void *arg)
{
    CUgraph g;
    cu.cuCtxPushCurrent_v2(context);
    return (void *)(uintptr_t)cu.cuStreamEndCapture((CUstream)arg, &g);
}

static void *allocate_elsewhere(void *arg)
{
    CUdeviceptr p;
    cu.cuCtxPushCurrent_v2(context);
    return (void *)(uintptr_t)cu.cuMemAlloc_v2(&p, 4);
}

static CUresult in_thread(void *(*run)(void *), void *arg)
{
    pthread_t t;
    void *result;
    CHECK_INT(pthread_create(&t, NULL, run, arg), 0);
    pthread_join(t, &result);
    return (CUresult)(uintptr_t)result;
}

TEST(capture_and_threads)
{
    begin();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    CUgraph g;
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(in_thread(allocate_elsewhere, NULL));
    CU(in_thread(end_elsewhere, s), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    OK(cu.cuStreamEndCapture(s, &g));
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU(in_thread(allocate_elsewhere, NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CU(cu.cuStreamEndCapture(s, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(in_thread(end_elsewhere, s));
}

static CUDA_KERNEL_NODE_PARAMS add_params(void **args)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = function("vec_add"),
                                     .gridDimX = 2,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = 128,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = args};
}

static CUDA_MEMCPY3D copy_params(CUdeviceptr dst, CUdeviceptr src)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = dst,
                           .WidthInBytes = N * 4,
                           .Height = 1,
                           .Depth = 1};
}

TEST(graphs_by_hand)
{
    begin();
    CUdeviceptr a = ones(), b = device_floats(NULL, N), c = device_floats(NULL, N);
    int n = N, calls = 0;
    void *args[] = {&a, &b, &c, &n};
    CUgraph g;
    CUgraphNode set, add, copy, host, empty;
    OK(cu.cuGraphCreate(&g, 0));
    CUDA_KERNEL_NODE_PARAMS k = add_params(args), got;
    OK(cu.cuGraphAddKernelNode_v2(&add, g, NULL, 0, &k));
    CUDA_MEMSET_NODE_PARAMS m = {.dst = b, .value = 0x40000000, .elementSize = 4, .width = N, .height = 1}, got_m;
    OK(cu.cuGraphAddMemsetNode(&set, g, NULL, 0, &m, context));
    OK(cu.cuGraphAddDependencies(g, &set, &add, 1)); /* against the order of creation */
    CU(cu.cuGraphAddDependencies(g, &set, &add, 1), CUDA_ERROR_INVALID_VALUE);
    CUDA_MEMCPY3D d = copy_params(a, c), got_d;
    OK(cu.cuGraphAddMemcpyNode(&copy, g, &add, 1, &d, context));
    CUDA_HOST_NODE_PARAMS h = {count_up, &calls}, got_h;
    CUgraphNode both[] = {copy, set}, twice[] = {copy, copy};
    OK(cu.cuGraphAddHostNode(&host, g, both, 2, &h));
    CU(cu.cuGraphAddEmptyNode(&empty, g, twice, 2), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuGraphAddEmptyNode(&empty, g, &host, 1));
    CHECK_INT(node_count(g), 5);

    OK(cu.cuGraphKernelNodeGetParams_v2(add, &got));
    CHECK(got.func == k.func && got.gridDimX == 2 && *(CUdeviceptr *)got.kernelParams[2] == c);
    OK(cu.cuGraphMemsetNodeGetParams(set, &got_m));
    CHECK(got_m.dst == b && got_m.width == N);
    OK(cu.cuGraphMemcpyNodeGetParams(copy, &got_d));
    CHECK(got_d.dstDevice == a);
    OK(cu.cuGraphHostNodeGetParams(host, &got_h));
    CHECK(got_h.fn == count_up);
    CU(cu.cuGraphHostNodeGetParams(copy, &got_h), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode from[8], to[8], deps[4];
    size_t edges = 8, count = 4;
    OK(cu.cuGraphGetEdges(g, from, to, &edges));
    CHECK(edges == 5 && from[0] == set && to[0] == add);
    OK(cu.cuGraphNodeGetDependencies(host, deps, &count));
    CHECK(count == 2 && deps[0] == copy && deps[1] == set);

    CUgraphExec x = instantiate(g);
    OK(cu.cuGraphLaunch(x, NULL)); /* 1 + 2, copied to a */
    CHECK_NEAR(first(a), 3, 0);
    OK(cu.cuGraphLaunch(x, NULL));
    CHECK_NEAR(first(a), 5, 0);
    CHECK_INT(calls, 2);

    CUgraph clone;
    OK(cu.cuGraphClone(&clone, g));
    CHECK(node_count(clone) == 5 && edge_count(clone) == 5);
    OK(cu.cuGraphDestroy(clone));
    OK(cu.cuGraphDestroyNode(set));
    CHECK(node_count(g) == 4 && edge_count(g) == 3);
    CU(cu.cuGraphDestroyNode(set), CUDA_ERROR_INVALID_VALUE);

    /* a cycle, and other things that cannot be */
    OK(cu.cuGraphAddDependencies(g, &empty, &add, 1));
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraphExec bad;
    CU(cu.cuGraphInstantiateWithParams(&bad, g, &params), CUDA_ERROR_INVALID_VALUE);
    CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE && params.hErrNode_out && !bad);
    CU(cu.cuGraphAddDependencies(g, &add, &add, 1), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuGraphAddEmptyNode(&empty, (CUgraph)x, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    k.blockDimX = 4096;
    CU(cu.cuGraphAddKernelNode_v2(&add, g, NULL, 0, &k), CUDA_ERROR_INVALID_VALUE);
    k.func = NULL;
    CU(cu.cuGraphAddKernelNode_v2(&add, g, NULL, 0, &k), CUDA_ERROR_INVALID_HANDLE);
    m.width = N + 1;
    CU(cu.cuGraphAddMemsetNode(&set, g, NULL, 0, &m, context), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuGraphAddMemsetNode(&set, g, NULL, 0, &m, NULL), CUDA_ERROR_INVALID_CONTEXT);
    h.fn = NULL;
    CU(cu.cuGraphAddHostNode(&host, g, NULL, 0, &h), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuGraphInstantiateWithFlags(&bad, g, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    OK(cu.cuGraphDestroy(g));
}

TEST(changing_nodes)
{
    begin();
    CUdeviceptr a = ones(), b = ones(), c = device_floats(NULL, N), d = device_floats(NULL, N);
    int n = N;
    void *args[] = {&a, &b, &c, &n}, *other[] = {&c, &c, &d, &n};
    CUgraph g;
    CUgraphNode add, copy;
    OK(cu.cuGraphCreate(&g, 0));
    CUDA_KERNEL_NODE_PARAMS k = add_params(args);
    OK(cu.cuGraphAddKernelNode_v2(&add, g, NULL, 0, &k));
    CUDA_MEMCPY3D m = copy_params(b, c);
    OK(cu.cuGraphAddMemcpyNode(&copy, g, &add, 1, &m, context));
    CUgraphExec x = instantiate(g);
    OK(cu.cuGraphLaunch(x, NULL));
    CHECK_NEAR(first(b), 2, 0);
    k.kernelParams = other;
    OK(cu.cuGraphExecKernelNodeSetParams_v2(x, add, &k)); /* d = c + c */
    m = copy_params(a, d);
    OK(cu.cuGraphExecMemcpyNodeSetParams(x, copy, &m, context));
    OK(cu.cuGraphLaunch(x, NULL));
    CHECK_NEAR(first(a), 4, 0);
    CUgraphExec y = instantiate(g); /* the graph itself is as it was: c = a + b */
    OK(cu.cuGraphLaunch(y, NULL));
    CHECK_NEAR(first(c), 6, 0);
    CU(cu.cuGraphExecMemcpyNodeSetParams(x, add, &m, context), CUDA_ERROR_INVALID_VALUE);
    m.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    CU(cu.cuGraphExecMemcpyNodeSetParams(x, copy, &m, context), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuGraphExecKernelNodeSetParams_v2(x, (CUgraphNode)g, &k), CUDA_ERROR_INVALID_VALUE);
    k.func = function("traps");
    k.kernelParams = NULL;
    OK(cu.cuGraphKernelNodeSetParams_v2(add, &k));
    CUkernelNodeAttrValue v = {.cooperative = 1}, got;
    OK(cu.cuGraphKernelNodeSetAttribute(add, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &v));
    OK(cu.cuGraphKernelNodeGetAttribute(add, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got));
    CHECK_INT(got.cooperative, 1);
    OK(cu.cuGraphKernelNodeGetAttribute(add, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &got));
    CHECK_INT(got.clusterDim.x, 1);
    CU(cu.cuGraphKernelNodeGetAttribute(copy, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got), CUDA_ERROR_INVALID_VALUE);
    /* a fault in a graph shows in what follows */
    CUgraphExec z = instantiate(g);
    OK(cu.cuGraphLaunch(z, NULL));
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

/* out = in + in, then in the same graph out2 = out, captured with other pointers. */
static CUgraph captured(CUstream s, CUdeviceptr in, CUdeviceptr out, CUdeviceptr out2, int kind)
{
    CUgraph g;
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(launch_add(s, in, in, out, N));
    if (kind == 1)
        OK(launch_add(s, in, in, out, N));
    else if (kind == 2)
        OK(cu.cuMemsetD32Async(out2, 0, N, s));
    else
        OK(cu.cuMemcpyDtoDAsync_v2(out2, out, N * 4, s));
    OK(cu.cuStreamEndCapture(s, &g));
    return g;
}

TEST(whole_graph_updates)
{
    begin();
    CUstream s = stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr a = ones(), b = ones(), c = device_floats(NULL, N), d = device_floats(NULL, N);
    OK(cu.cuMemsetD32_v2(b, 0x41200000, N)); /* 10 */
    CUgraph g = captured(s, a, c, d, 0);
    CUgraphExec x = instantiate(g);
    OK(cu.cuGraphLaunch(x, s));
    CHECK_NEAR(first(d), 2, 0);
    CUgraphExecUpdateResultInfo info;
    CUgraph changed = captured(s, b, d, c, 0);
    OK(cu.cuGraphExecUpdate_v2(x, changed, &info));
    CHECK_INT(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(cu.cuGraphDestroy(changed));
    OK(cu.cuGraphLaunch(x, s));
    CHECK_NEAR(first(c), 20, 0);

    CUgraph kernels = captured(s, a, c, d, 1), fills = captured(s, a, c, d, 2), empty;
    CU(cu.cuGraphExecUpdate_v2(x, kernels, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED && info.errorNode);
    CU(cu.cuGraphExecUpdate_v2(x, fills, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_INT(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    OK(cu.cuGraphCreate(&empty, 0));
    CU(cu.cuGraphExecUpdate_v2(x, empty, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_INT(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CUgraphNode nodes[2];
    size_t two = 2;
    OK(cu.cuGraphClone(&changed, g)); /* the same nodes without the edge: a new node in place of the old */
    OK(cu.cuGraphGetNodes(changed, nodes, &two));
    OK(cu.cuGraphDestroyNode(nodes[1]));
    CUDA_MEMCPY3D m = copy_params(d, c);
    OK(cu.cuGraphAddMemcpyNode(&nodes[1], changed, NULL, 0, &m, context));
    CU(cu.cuGraphExecUpdate_v2(x, changed, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_INT(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(cu.cuGraphLaunch(x, s)); /* unchanged by all that */
    CHECK_NEAR(first(c), 20, 0);
    CU(cu.cuGraphExecUpdate_v2(x, (CUgraph)x, &info), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuGraphExecUpdate_v2(x, g, NULL), CUDA_ERROR_INVALID_VALUE);
    /* graphs without an owner must not leak or fault: begin() destroys the context, not the graphs */
    OK(cu.cuGraphDestroy(g));
    OK(cu.cuGraphDestroy(kernels));
    OK(cu.cuGraphDestroy(fills));
    OK(cu.cuGraphDestroy(empty));
    OK(cu.cuGraphDestroy(changed));
}

TEST(matrix_products)
{
    begin();
    const float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1};
    float c[4];
    CUdeviceptr pa = device_floats(a, 6), pb = device_floats(b, 6), pc = device_floats(NULL, 4);
    CUstream s = stream(0);
    stitch__sim_gemm_args args = {.m = 2,
                                  .n = 2,
                                  .k = 3,
                                  .a = {pa, STITCH_DTYPE_F32, 0, 0},
                                  .b = {pb, STITCH_DTYPE_F32, 0, 0},
                                  .c = {pc, STITCH_DTYPE_F32, 0, 0},
                                  .alpha = 1};
    stitch_error *err = NULL;
    OK(cu.stitchSimGemm(&args, s, &err));
    OK(cu.cuMemcpyDtoH_v2(c, pc, 16));
    CHECK(c[0] == 4 && c[1] == 5 && c[2] == 10 && c[3] == 11);

    CUgraph g;
    CUgraphNode node;
    CUgraphNodeType type;
    size_t one = 1;
    args.alpha = 2;
    OK(cu.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cu.stitchSimGemm(&args, s, NULL));
    OK(cu.cuStreamEndCapture(s, &g));
    OK(cu.cuGraphGetNodes(g, &node, &one));
    OK(cu.cuGraphNodeGetType(node, &type));
    CHECK_INT(type, CU_GRAPH_NODE_TYPE_HOST);
    OK(cu.cuGraphLaunch(instantiate(g), s));
    OK(cu.cuGraphDestroy(g));
    OK(cu.cuMemcpyDtoH_v2(c, pc, 16));
    CHECK(c[0] == 8 && c[3] == 22);

    args.m = 0;
    CU(cu.stitchSimGemm(&args, s, &err), CUDA_ERROR_INVALID_VALUE);
    CHECK_HAS(stitch_error_message(err), "m 0");
    CU(cu.stitchSimGemm(NULL, s, &err), CUDA_ERROR_INVALID_VALUE);
    args.m = 3;
    OK(cu.stitchSimNameAllocation(pa, "activations"));
    OK(cu.stitchSimGemm(&args, s, &err));
    CHECK_HAS(stitch_error_message(err), "activations");
    stitch_error_free(err);
    CU(cu.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    stitch__sim_reports *r;
    OK(cu.stitchSimTakeReports(&r));
    CHECK_INT(r->count, 1);
    CHECK_STR(r->kernels[0].kernel, "gemm");
    CHECK_STR(r->kernels[0].reports[0].buffer, "activations");
    cu.stitchSimFreeReports(r);
}

/* Launches and changes of one executable from several threads. */
static CUgraphExec shared_exec;
static CUgraphNode shared_node;

static void *launch_often(void *arg)
{
    uintptr_t failures = 0;
    cu.cuCtxPushCurrent_v2(context);
    for (int i = 0; i < 100; i++)
        failures += cu.cuGraphLaunch(shared_exec, NULL) != CUDA_SUCCESS;
    return (void *)failures;
}

static void *change_often(void *arg)
{
    uintptr_t failures = 0;
    cu.cuCtxPushCurrent_v2(context);
    for (int i = 0; i < 100; i++)
        failures += cu.cuGraphExecKernelNodeSetParams_v2(shared_exec, shared_node, arg) != CUDA_SUCCESS;
    return (void *)failures;
}

TEST(threads)
{
    begin();
    CUdeviceptr a = ones(), b = device_floats(NULL, N);
    int n = N;
    void *args[] = {&a, &a, &b, &n};
    CUDA_KERNEL_NODE_PARAMS k = add_params(args);
    CUgraph g;
    OK(cu.cuGraphCreate(&g, 0));
    OK(cu.cuGraphAddKernelNode_v2(&shared_node, g, NULL, 0, &k));
    shared_exec = instantiate(g);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&t[i], NULL, i % 2 ? change_often : launch_often, &k), 0);
    uintptr_t failures = 0;
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(t[i], &result);
        failures += (uintptr_t)result;
    }
    CHECK_INT(failures, 0);
    CHECK_NEAR(first(b), 2, 0);
    OK(cu.cuGraphDestroy(g));
}

TEST(finish)
{
    end_all();
}

TEST_MAIN(RUN(capture_and_replay), RUN(fork_and_join), RUN(spoilt_captures), RUN(capture_and_threads),
          RUN(graphs_by_hand), RUN(changing_nodes), RUN(whole_graph_updates), RUN(matrix_products), RUN(threads),
          RUN(finish))
