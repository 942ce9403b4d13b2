/* SPDX-License-Identifier: MIT
 *
 * The simulated driver through its function table: modules, launches, faults and what is reported about them, threads.
 */
#include <pthread.h>

#include "driver_test.h"

TEST(modules)
{
    begin();
    CUmodule m;
    CUfunction f, list[20];
    CUdeviceptr p;
    size_t size;
    unsigned count;
    const char *name;
    int value;
    CU(cu.cuModuleGetFunction(&f, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    CU(cu.cuModuleGetFunction(&f, (CUmodule)(uintptr_t)5, "vec_add"), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuModuleGetFunction(NULL, module, "vec_add"), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuModuleGetFunctionCount(&count, module));
    CHECK_INT(count, 9);
    OK(cu.cuModuleEnumerateFunctions(list, count, module));
    OK(cu.cuFuncGetName(&name, list[0]));
    CHECK_STR(name, "vec_add");
    OK(cu.cuFuncGetModule(&m, list[0]));
    CHECK(m == module);
    OK(cu.cuModuleGetGlobal_v2(&p, &size, module, "counter"));
    CHECK_INT(size, 4);
    OK(cu.cuMemcpyDtoH_v2(&value, p, 4));
    CHECK_INT(value, 5);
    CU(cu.cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE); /* the module's */
    CU(cu.cuModuleGetGlobal_v2(&p, &size, module, "nothing"), CUDA_ERROR_NOT_FOUND);
    f = function("vec_add");
    OK(cu.cuModuleUnload(module));
    CU(cu.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuFuncGetName(&name, f), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuMemcpyDtoH_v2(&value, p, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST(images_that_do_not_load)
{
    begin();
    CUmodule m;
    char log[200] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
    CU(cu.cuModuleLoadDataEx(&m, "this is no PTX", 2, options, values), CUDA_ERROR_INVALID_PTX);
    CHECK_HAS(log, "PTX line 1");
    CHECK_INT((uintptr_t)values[1], strlen(log));
    CHECK(m == NULL);
    values[1] = (void *)(uintptr_t)8; /* what fits */
    CU(cu.cuModuleLoadDataEx(&m, "this is no PTX", 2, options, values), CUDA_ERROR_INVALID_PTX);
    CHECK_STR(log, "PTX lin");
    values[1] = (void *)(uintptr_t)sizeof(log);
    CU(cu.cuModuleLoadDataEx(&m, "\177ELF machine code", 2, options, values), CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_HAS(log, "compute_90");
    values[1] = (void *)(uintptr_t)sizeof(log);
    CU(cu.cuModuleLoadDataEx(&m, "// .target sm_50\n.version 9.0\n.target sm_100a\n.address_size 64\n", 2, options,
                             values),
       CUDA_ERROR_NO_BINARY_FOR_GPU);
    CHECK_HAS(log, "sm_100a");
    CU(cu.cuModuleLoadData(NULL, ptx), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuModuleLoadData(&m, NULL), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuModuleLoadDataEx(&m, ptx, 2, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(libraries)
{
    begin();
    CUlibrary l;
    CUkernel k;
    CUfunction f;
    CUmodule m;
    OK(cu.cuLibraryLoadData(&l, ptx, NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&k, l, "vec_add"));
    OK(cu.cuKernelGetFunction(&f, k));
    OK(cu.cuLibraryGetModule(&m, l));
    CU(cu.cuLibraryGetKernel(&k, l, "nothing"), CUDA_ERROR_NOT_FOUND);
    OK(cu.cuLibraryUnload(l));
    CU(cu.cuLibraryUnload(l), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuKernelGetFunction(&f, k), CUDA_ERROR_INVALID_HANDLE);
}

TEST(attributes)
{
    begin();
    CUfunction f = function("bounded"), add = function("vec_add");
    int v;
    size_t offset, size;
    OK(cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    CHECK_INT(v, 64);
    OK(cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add));
    CHECK_INT(v, 1024);
    OK(cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, add));
    CHECK(v >= 8 && v <= 255);
    OK(cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_PTX_VERSION, add));
    CHECK_INT(v, 80);
    OK(cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_BINARY_VERSION, add));
    CHECK_INT(v, 90);
    OK(cu.cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448));
    OK(cu.cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add));
    CHECK_INT(v, 232448);
    CU(cu.cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_NUM_REGS, 5), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuFuncSetCacheConfig(add, CU_FUNC_CACHE_PREFER_L1));
    OK(cu.cuFuncGetParamInfo(function("mixed"), 1, &offset, &size));
    CHECK(offset == 8 && size == 8);
    OK(cu.cuFuncGetParamInfo(function("mixed"), 2, &offset, &size));
    CHECK(offset == 16 && size == 2);
    CU(cu.cuFuncGetParamInfo(add, 4, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, add, 1024, 0));
    CHECK_INT(v, 2);
    OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, add, 128, 100000));
    CHECK_INT(v, 2); /* shared memory: 233472 / 101120 */
    OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, add, 32, 0));
    CHECK_INT(v, 32);
    OK(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, add, 128, 300000));
    CHECK_INT(v, 0);
    CU(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&v, add, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CUlaunchConfig config = {
        .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    OK(cu.cuOccupancyMaxPotentialClusterSize(&v, add, &config));
    CHECK_INT(v, 8);
    OK(cu.cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    OK(cu.cuOccupancyMaxPotentialClusterSize(&v, add, &config));
    CHECK_INT(v, 16);
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {4, 1, 1}}};
    config.attrs = &cluster;
    config.numAttrs = 1;
    OK(cu.cuOccupancyMaxActiveClusters(&v, add, &config));
    CHECK(v >= 100);
    cluster.value.clusterDim.x = 4000000000u;
    CU(cu.cuOccupancyMaxActiveClusters(&v, add, &config), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

TEST(kernels_compute)
{
    enum { N = 1000 };
    begin();
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)(3 * i);
    }
    CUdeviceptr pa = device_floats(a, N), pb = device_floats(b, N), pc = device_floats(NULL, N);
    OK(launch_add(NULL, pa, pb, pc, N));
    int n = N, which = 2, by = 37, value;
    void *args[] = {&pc, &n, &which};
    OK(cu.cuLaunchKernel(function("scaled"), 8, 1, 1, 128, 1, 1, 0, NULL, args, NULL)); /* times 3 */
    OK(cu.cuMemcpyDtoH_v2(c, pc, sizeof(c)));
    for (int i = 0; i < N; i++)
        CHECK_NEAR(c[i], 12 * i, 0);

    void *bump[] = {&by};
    OK(cu.cuLaunchKernel(function("bump"), 1, 1, 1, 32, 1, 1, 0, NULL, bump, NULL));
    CUdeviceptr counter;
    OK(cu.cuModuleGetGlobal_v2(&counter, NULL, module, "counter"));
    OK(cu.cuMemcpyDtoH_v2(&value, counter, 4));
    CHECK_INT(value, 42);

    void *reverse[] = {&pa};
    OK(cu.cuLaunchKernel(function("reverse"), 1, 1, 1, 256, 1, 1, 1024, NULL, reverse, NULL));
    OK(cu.cuMemcpyDtoH_v2(c, pa, 1024));
    for (int i = 0; i < 256; i++)
        CHECK_NEAR(c[i], 255 - i, 0);

    int64_t out[3];
    CUdeviceptr po;
    OK(cu.cuMemAlloc_v2(&po, 24));
    signed char p0 = -7;
    double p1 = 123456789.75;
    short p2 = -30000;
    void *mixed[] = {&p0, &p1, &p2, &po};
    OK(cu.cuLaunchKernel(function("mixed"), 1, 1, 1, 32, 1, 1, 0, NULL, mixed, NULL));
    OK(cu.cuMemcpyDtoH_v2(out, po, 24));
    CHECK(out[0] == -7 && out[1] == 123456789 && out[2] == -30000);

    /* the same through one buffer */
    struct {
        signed char a;
        double b;
        short c;
        CUdeviceptr d;
    } packed = {9, 8, 7, po};
    size_t size = sizeof(packed);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    OK(cu.cuLaunchKernel(function("mixed"), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    OK(cu.cuMemcpyDtoH_v2(out, po, 24));
    CHECK(out[0] == 9 && out[1] == 8 && out[2] == 7);
    size = 16;
    CU(cu.cuLaunchKernel(function("mixed"), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuLaunchKernel(function("mixed"), 1, 1, 1, 32, 1, 1, 0, NULL, mixed, extra), CUDA_ERROR_INVALID_VALUE);
}

TEST(launches_that_are_refused)
{
    begin();
    CUfunction add = function("vec_add"), bounded = function("bounded");
    CUdeviceptr p = device_floats(NULL, 64);
    int n = 0;
    void *args[] = {&p, &p, &p, &n}, *missing[] = {&p, &p, NULL, &n}, *one[] = {&p};
#define LAUNCH(f, gx, gy, bx, by, shared) cu.cuLaunchKernel(f, gx, gy, 1, bx, by, 1, shared, NULL, args, NULL)
    OK(LAUNCH(add, 1, 1, 32, 32, 0));
    CU(LAUNCH(add, 0, 1, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU(LAUNCH(add, 1, 65536, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU(LAUNCH(add, 0x80000000u, 1, 32, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU(LAUNCH(add, 1, 1, 1025, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU(LAUNCH(add, 1, 1, 64, 32, 0), CUDA_ERROR_INVALID_VALUE);
    CU(LAUNCH(add, 1, 1, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CU(LAUNCH(bounded, 1, 1, 65, 1, 0), CUDA_ERROR_INVALID_VALUE);
    OK(LAUNCH(add, 1, 1, 32, 1, 49152));
    CU(LAUNCH(add, 1, 1, 32, 1, 49153), CUDA_ERROR_INVALID_VALUE); /* not opted in */
    OK(cu.cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
    OK(LAUNCH(add, 1, 1, 32, 1, 65536));
    CU(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, missing, NULL), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuLaunchKernel((CUfunction)module, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, (CUstream)module, args, NULL), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuLaunchCooperativeKernel(add, 264, 1, 1, 1024, 1, 1, 0, NULL, args));
    CU(cu.cuLaunchCooperativeKernel(add, 265, 1, 1, 1024, 1, 1, 0, NULL, args),
       CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);

    CUlaunchAttribute attrs[] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {2, 1, 1}}},
                                 {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                  .value = {.programmaticStreamSerializationAllowed = 1}}};
    CUlaunchConfig config = {.gridDimX = 4,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = attrs,
                             .numAttrs = 2};
    OK(cu.cuLaunchKernelEx(&config, add, args, NULL));
    attrs[0].value.clusterDim.x = 3; /* does not divide the grid */
    CU(cu.cuLaunchKernelEx(&config, add, args, NULL), CUDA_ERROR_INVALID_VALUE);
    config.gridDimX = 32;
    attrs[0].value.clusterDim.x = 16;
    CU(cu.cuLaunchKernelEx(&config, add, args, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    OK(cu.cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
    OK(cu.cuLaunchKernelEx(&config, add, args, NULL));
    attrs[0].value.clusterDim.x = 32;
    CU(cu.cuLaunchKernelEx(&config, add, args, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    attrs[1].id = (CUlaunchAttributeID)77;
    CU(cu.cuLaunchKernelEx(&config, add, args, NULL), CUDA_ERROR_NOT_SUPPORTED);
    config.attrs = NULL;
    CU(cu.cuLaunchKernelEx(&config, add, args, NULL), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuLaunchKernelEx(NULL, add, args, NULL), CUDA_ERROR_INVALID_VALUE);

    /* no clusters before sm_90; a function stays in its context */
    CUcontext old;
    CUmodule m;
    CUfunction f;
    OK(cu.cuCtxCreate_v2(&old, 0, 1));
    CU(LAUNCH(add, 1, 1, 32, 1, 0), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuModuleLoadData(&m, ptx));
    OK(cu.cuModuleGetFunction(&f, m, "bounded"));
    OK(cu.cuMemAlloc_v2(&p, 256));
    config = (CUlaunchConfig){.gridDimX = 2,
                              .gridDimY = 1,
                              .gridDimZ = 1,
                              .blockDimX = 32,
                              .blockDimY = 1,
                              .blockDimZ = 1,
                              .attrs = attrs,
                              .numAttrs = 1};
    attrs[0].value.clusterDim.x = 2;
    CU(cu.cuLaunchKernelEx(&config, f, one, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    attrs[0].value.clusterDim.x = 1;
    OK(cu.cuLaunchKernelEx(&config, f, one, NULL));
    OK(cu.cuCtxDestroy_v2(old));
#undef LAUNCH
}

TEST(faults_stick)
{
    begin();
    CUdeviceptr p = device_floats(NULL, 100), q;
    CUstream s;
    CUcontext other;
    int n = 100;
    void *args[] = {&p, &n};
    stitch__sim_reports *reports;
    OK(cu.stitchSimNameAllocation(p, "hidden"));
    CU(cu.stitchSimNameAllocation(p - 1, "hidden"), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuStreamCreate(&s, 0));
    OK(cu.cuLaunchKernel(function("past_end"), 1, 1, 1, 32, 1, 1, 0, s, args, NULL)); /* the launch itself is fine */
    CU(cu.cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cu.cuMemAlloc_v2(&q, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cu.cuMemFree_v2(p), CUDA_ERROR_ILLEGAL_ADDRESS);
    CU(cu.cuStreamCreate(&s, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cu.stitchSimTakeReports(&reports));
    CHECK_INT(reports->count, 1);
    const stitch__sim_kernel_report *k = &reports->kernels[0];
    CHECK_STR(k->kernel, "past_end");
    CHECK(k->fault == STITCH__SIM_OUT_OF_BOUNDS && k->error == CUDA_ERROR_ILLEGAL_ADDRESS && k->launches == 1);
    CHECK_INT(k->report_count, 1);
    CHECK_INT(k->reports[0].kind, STITCH__SIM_OUT_OF_BOUNDS);
    CHECK_INT(k->reports[0].count, 32);
    CHECK(k->reports[0].first.write);
    OK(cu.cuCtxCreate_v2(&other, 0, 0)); /* other contexts are well */
    OK(cu.cuMemAlloc_v2(&q, 4));
    OK(cu.cuCtxDestroy_v2(other));
    OK(cu.cuCtxDestroy_v2(context));
    context = NULL;
    CHECK_STR(k->kernel, "past_end"); /* reports outlive what they are about */
    cu.stitchSimFreeReports(reports);
    cu.stitchSimFreeReports(NULL);
}

/* A buffer that ends where its mapping ends: the first element behind it faults. */
TEST(guarded_buffers)
{
    begin();
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc rw = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t size = 2 << 20;
    CUmemGenericAllocationHandle h;
    CUdeviceptr at, p;
    OK(cu.cuMemAddressReserve(&at, 2 * size, 0, 0, 0));
    OK(cu.cuMemCreate(&h, size, &prop, 0));
    OK(cu.cuMemMap(at, size, 0, h, 0));
    OK(cu.cuMemSetAccess(at, size, &rw, 1));
    p = at + size - 256;
    int n = 32;
    void *args[] = {&p, &n};
    OK(cu.cuLaunchKernel(function("past_end"), 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL)); /* elements 32 .. 63 */
    OK(cu.cuCtxSynchronize());
    n = 33;
    OK(cu.cuLaunchKernel(function("past_end"), 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    stitch__sim_reports *r;
    OK(cu.stitchSimTakeReports(&r));
    CHECK_INT(r->kernels[0].report_count, 1);
    CHECK_INT(r->kernels[0].reports[0].count, 1);
    cu.stitchSimFreeReports(r);
}

TEST(kinds_of_faults)
{
    begin();
    OK(cu.cuLaunchKernel(function("traps"), 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);

    begin();
    stitch__sim_options o;
    OK(cu.stitchSimGetOptions(&o));
    CHECK_INT(o.flags, STITCH__SIM_CHECK_ALL);
    o.instruction_budget = 10000;
    OK(cu.stitchSimSetOptions(&o));
    CUdeviceptr p = device_floats(NULL, 1);
    OK(cu.cuMemsetD32_v2(p, 0, 1));
    void *args[] = {&p};
    OK(cu.cuLaunchKernel(function("spins"), 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);

    begin();
    stitch_cancel *cancel;
    CHECK_INT(stitch_cancel_new(&cancel), 0);
    stitch_cancel_trigger(cancel);
    o = (stitch__sim_options){.cancel = cancel};
    OK(cu.stitchSimSetOptions(&o));
    CUdeviceptr q = device_floats(NULL, 64);
    void *bounded[] = {&q};
    OK(cu.cuLaunchKernel(function("bounded"), 1, 1, 1, 64, 1, 1, 0, NULL, bounded, NULL));
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_TIMEOUT);
    OK(cu.cuCtxDestroy_v2(context));
    context = NULL;
    stitch_cancel_free(cancel);
    o.flags = 1 << 20;
    CU(cu.stitchSimSetOptions(&o), CUDA_ERROR_INVALID_VALUE);
}

TEST(reports_are_collected_by_kernel)
{
    begin();
    stitch__sim_reports *r;
    stitch__sim_options o = {.flags = STITCH__SIM_CHECK_ALL | STITCH__SIM_COUNT, .keep_going = true};
    OK(cu.stitchSimSetOptions(&o));
    CUdeviceptr a = device_floats(NULL, 100), b = device_floats(NULL, 100), c = device_floats(NULL, 100);
    OK(cu.stitchSimNameAllocation(a, "input"));
    OK(cu.cuMemsetD32_v2(b, 0, 100));
    OK(launch_add(NULL, a, b, c, 100)); /* reads what nothing wrote: a finding, no fault */
    OK(launch_add(NULL, a, b, c, 50));
    int n = 100;
    void *args[] = {&c, &n};
    OK(cu.cuLaunchKernel(function("past_end"), 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    OK(cu.cuCtxSynchronize()); /* keep_going */
    OK(cu.stitchSimTakeReports(&r));
    CHECK(r->count == 2 && r->launches == 3 && !r->incomplete);
    CHECK_STR(r->kernels[0].kernel, "vec_add");
    CHECK(r->kernels[0].launches == 2 && r->kernels[0].first == 0 && r->kernels[0].fault == STITCH__SIM_NONE);
    CHECK_INT(r->kernels[0].report_count, 1);
    CHECK_INT(r->kernels[0].reports[0].kind, STITCH__SIM_UNINITIALISED);
    CHECK_INT(r->kernels[0].reports[0].count, 150);
    CHECK_STR(r->kernels[0].reports[0].buffer, "input");
    CHECK_INT(r->kernels[0].counters.blocks_run, 2);
    CHECK(r->kernels[0].warp_instructions > 0);
    CHECK(r->kernels[1].first == 2 && r->kernels[1].fault == STITCH__SIM_OUT_OF_BOUNDS && r->kernels[1].grid[0] == 1 &&
          r->kernels[1].block[0] == 32);
    cu.stitchSimFreeReports(r);
    OK(cu.stitchSimMarkMemory(a, 400, 1));
    OK(launch_add(NULL, a, b, c, 100));
    OK(cu.stitchSimMarkMemory(a + 40, 4, 0));
    OK(launch_add(NULL, a, b, c, 100));
    CU(cu.stitchSimMarkMemory(a + 40, 400, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cu.stitchSimTakeReports(&r));
    CHECK_INT(r->kernels[0].reports[0].count, 1);
    CHECK(r->kernels[0].first == 3 && r->launches == 5);
    cu.stitchSimFreeReports(r);
    OK(cu.stitchSimTakeReports(&r)); /* nothing new */
    CHECK_INT(r->count, 0);
    cu.stitchSimFreeReports(r);
    /* copies carry the record along */
    CUdeviceptr d = device_floats(NULL, 100);
    OK(cu.cuMemcpyDtoD_v2(d, a, 400));
    OK(launch_add(NULL, d, b, c, 100));
    OK(cu.stitchSimTakeReports(&r));
    CHECK_INT(r->kernels[0].reports[0].count, 1);
    cu.stitchSimFreeReports(r);
}

TEST(tensor_maps)
{
    begin();
    CUtensorMap map;
    CUdeviceptr p = device_floats(NULL, 1024);
    cuuint64_t dim[] = {64, 16}, stride[] = {256};
    cuuint32_t box[] = {32, 8}, step[] = {1, 1};
#define ENCODE(type, rank, base, swizzle)                                                                              \
    cu.cuTensorMapEncodeTiled(&map, type, rank, (void *)(uintptr_t)(base), dim, stride, box, step,                     \
                              CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,                 \
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    OK(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, CU_TENSOR_MAP_SWIZZLE_128B));
    stitch__sim_tensor_map t;
    memcpy(&t, &map, sizeof(t));
    CHECK(t.magic == STITCH__SIM_TENSOR_MAP_MAGIC && t.address == p && t.rank == 2 && t.elem_size == 4 &&
          t.swizzle == 3);
    CHECK(t.extent[0] == 63 && t.extent[1] == 15 && t.stride[0] == 256 && t.box[0] == 32 && t.box[1] == 8);
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p + 4, 0), CUDA_ERROR_INVALID_VALUE);
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 6, p, 0), CUDA_ERROR_INVALID_VALUE);
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 0, p, 0), CUDA_ERROR_INVALID_VALUE);
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 2, p, CU_TENSOR_MAP_SWIZZLE_128B), CUDA_ERROR_INVALID_VALUE);
    CU(ENCODE((CUtensorMapDataType)50, 2, p, 0), CUDA_ERROR_NOT_SUPPORTED);
    box[0] = 257;
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, 0), CUDA_ERROR_INVALID_VALUE);
    box[0] = 3;
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, 0), CUDA_ERROR_INVALID_VALUE);
    box[0] = 32;
    stride[0] = 24;
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, 0), CUDA_ERROR_INVALID_VALUE);
    CUcontext old;
    OK(cu.cuCtxCreate_v2(&old, 0, 1)); /* sm_80 has none */
    stride[0] = 256;
    CU(ENCODE(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cu.cuCtxDestroy_v2(old));
#undef ENCODE
}

enum { THREADS = 6, ROUNDS = 40, COUNT = 500 };

typedef struct work {
    pthread_t thread;
    int number;
    CUcontext shared; /* NULL: one of its own */
    int failures;
} work;

static void *work_run(void *arg)
{
    work *w = arg;
    CUcontext own = NULL;
    CUmodule m;
    CUfunction f;
    CUstream s;
    float values[COUNT], back[COUNT];
#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != CUDA_SUCCESS) {                                                                                  \
            w->failures++;                                                                                             \
            return NULL;                                                                                               \
        }                                                                                                              \
    } while (0)
    if (w->shared)
        MUST(cu.cuCtxPushCurrent_v2(w->shared));
    else
        MUST(cu.cuCtxCreate_v2(&own, 0, w->number % 4));
    MUST(cu.cuModuleLoadData(&m, ptx));
    MUST(cu.cuModuleGetFunction(&f, m, "vec_add"));
    MUST(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i + w->number * 1000);
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr a, b;
        int n = COUNT;
        MUST(cu.cuMemAlloc_v2(&a, sizeof(values)));
        MUST(cu.cuMemAlloc_v2(&b, sizeof(values)));
        MUST(cu.cuMemcpyHtoDAsync_v2(a, values, sizeof(values), s));
        void *args[] = {&a, &a, &b, &n};
        MUST(cu.cuLaunchKernel(f, 4, 1, 1, 128, 1, 1, 0, s, args, NULL));
        MUST(cu.cuMemcpyDtoHAsync_v2(back, b, sizeof(back), s));
        MUST(cu.cuStreamSynchronize(s));
        MUST(cu.cuMemFree_v2(a));
        MUST(cu.cuMemFree_v2(b));
        for (int i = 0; i < COUNT; i++)
            w->failures += back[i] != 2 * values[i];
    }
    MUST(cu.cuStreamDestroy_v2(s));
    MUST(cu.cuModuleUnload(m));
    if (own)
        MUST(cu.cuCtxDestroy_v2(own));
    return NULL;
#undef MUST
}

static void run_threads(CUcontext shared)
{
    work all[THREADS];
    for (int i = 0; i < THREADS; i++) {
        all[i] = (work){.number = i, .shared = shared};
        CHECK_INT(pthread_create(&all[i].thread, NULL, work_run, &all[i]), 0);
    }
    int failures = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(all[i].thread, NULL);
        failures += all[i].failures;
    }
    CHECK_INT(failures, 0);
}

TEST(threads_with_one_context)
{
    begin();
    run_threads(context);
}

TEST(threads_with_their_own)
{
    begin();
    run_threads(NULL);
}

TEST(finish)
{
    end_all();
}

TEST_MAIN(RUN(modules), RUN(images_that_do_not_load), RUN(libraries), RUN(attributes), RUN(kernels_compute),
          RUN(launches_that_are_refused), RUN(faults_stick), RUN(guarded_buffers), RUN(kinds_of_faults),
          RUN(reports_are_collected_by_kernel), RUN(tensor_maps), RUN(threads_with_one_context),
          RUN(threads_with_their_own), RUN(finish))
