/* SPDX-License-Identifier: MIT
 *
 * The simulated driver through its function table: devices, contexts, memory, streams, modules, launches, threads.
 */
#include <unistd.h>

#include "driver_test.h"

TEST(not_initialised)
{
    int n;
    CUcontext c;
    load_table();
    CHECK(stitch__sim_get_proc("cuNoSuchFunction", NULL) == NULL);
    CHECK(stitch__sim_get_proc(NULL, NULL) == NULL);
    CU(cu.cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    CU(cu.cuCtxGetCurrent(&c), CUDA_ERROR_NOT_INITIALIZED);
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    CU(cu.cuInit(1), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuInit(0));
    OK(cu.cuInit(0));
    CU(cu.cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(versions)
{
    void *p;
    CUdriverProcAddressQueryResult status;
    int version = 0;
    begin();
    OK(cu.cuDriverGetVersion(&version));
    CHECK_INT(version, CUDA_VERSION);
    OK(cu.cuGetProcAddress_v2("cuMemAlloc", &p, 12040, 0, &status));
    CHECK(p == stitch__sim_get_proc("cuMemAlloc_v2", NULL) && status == CU_GET_PROC_ADDRESS_SUCCESS);
    OK(cu.cuGetProcAddress_v2("cuCtxCreate", &p, 12040, 0, NULL));
    CHECK(p == stitch__sim_get_proc("cuCtxCreate_v3", NULL)); /* _v4 has another prototype and came later */
    OK(cu.cuGetProcAddress_v2("cuGraphInstantiate", &p, 12040, 0, NULL));
    CHECK(p == stitch__sim_get_proc("cuGraphInstantiateWithFlags", NULL));
    OK(cu.cuGetProcAddress_v2("cuGraphGetEdges", &p, 12020, 0, NULL));
    CHECK(p == stitch__sim_get_proc("cuGraphGetEdges", NULL));
    CU(cu.cuGetProcAddress_v2("cuNothing", &p, 12040, 0, &status), CUDA_ERROR_NOT_FOUND);
    CHECK(!p && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    const char *text;
    OK(cu.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
    CHECK_STR(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    OK(cu.cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK_STR(text, "out of memory");
    CU(cu.cuGetErrorName((CUresult)12345, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK(!text);
}

TEST(devices)
{
    static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};
    int count;
    begin();
    OK(cu.cuDeviceGetCount(&count));
    CHECK_INT(count, STITCH__COUNT(archs));
    for (size_t i = 0; i < STITCH__COUNT(archs); i++) {
        CUdevice d, same;
        char name[100], bus[20];
        int major, minor, v;
        size_t bytes;
        OK(cu.stitchSimFindDevice(&d, archs[i]));
        OK(cu.cuDeviceGet(&same, d));
        CHECK_INT(d, same);
        OK(cu.cuDeviceGetName(name, sizeof(name), d));
        CHECK_HAS(name, archs[i]);
        OK(cu.cuDeviceComputeCapability(&major, &minor, d));
        CHECK_INT(major * 10 + minor, atoi(archs[i] + 3));
        OK(cu.cuDeviceTotalMem_v2(&bytes, d));
        CHECK(bytes > (size_t)8 << 30);
        OK(cu.cuDeviceGetPCIBusId(bus, sizeof(bus), d));
        OK(cu.cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, d));
        CHECK_INT(v, major == 8 ? (minor ? 101376 : 166912) : major == 12 ? 101376 : 232448);
        OK(cu.cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, d));
        CHECK_INT(v, major >= 9);
        OK(cu.cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, d));
        CHECK_INT(v, 32);
        OK(cu.cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, d));
        CHECK_INT(v, 0);
    }
    CUdevice d, other;
    OK(cu.stitchSimFindDevice(&d, "sm_90"));
    OK(cu.stitchSimFindDevice(&other, "sm_90a"));
    CHECK_INT(d, other);
    OK(cu.stitchSimFindDevice(&other, "90"));
    CHECK_INT(d, other);
    CU(cu.stitchSimFindDevice(&d, "sm_61"), CUDA_ERROR_NO_DEVICE);
    CU(cu.stitchSimFindDevice(&d, "sm_90z"), CUDA_ERROR_NO_DEVICE);
    CU(cu.stitchSimFindDevice(&d, "sm_"), CUDA_ERROR_NO_DEVICE);
    CU(cu.stitchSimFindDevice(&d, NULL), CUDA_ERROR_INVALID_VALUE);
    CUuuid a, b;
    OK(cu.cuDeviceGetUuid_v2(&a, 0));
    OK(cu.cuDeviceGetUuid_v2(&b, 1));
    CHECK(memcmp(&a, &b, sizeof(a)) != 0);
    int v;
    char small[4];
    CU(cu.cuDeviceGet(&d, count), CUDA_ERROR_INVALID_DEVICE);
    CU(cu.cuDeviceGet(&d, -1), CUDA_ERROR_INVALID_DEVICE);
    CU(cu.cuDeviceGetAttribute(&v, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuDeviceGetAttribute(&v, (CUdevice_attribute)100000, 0), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuDeviceGetName(small, sizeof(small), 0));
    CHECK_STR(small, "sti");
}

TEST(contexts)
{
    begin();
    CUcontext a, b, now;
    CUdevice d;
    OK(cu.cuCtxCreate_v2(&a, 0, 1));
    OK(cu.cuCtxCreate_v2(&b, 0, 2));
    OK(cu.cuCtxGetCurrent(&now));
    CHECK(now == b);
    OK(cu.cuCtxGetDevice(&d));
    CHECK_INT(d, 2);
    OK(cu.cuCtxPopCurrent_v2(&now));
    CHECK(now == b);
    OK(cu.cuCtxGetDevice(&d));
    CHECK_INT(d, 1);
    OK(cu.cuCtxPushCurrent_v2(b));
    OK(cu.cuCtxDestroy_v2(b)); /* current: popped */
    OK(cu.cuCtxGetCurrent(&now));
    CHECK(now == a);
    CU(cu.cuCtxPushCurrent_v2(b), CUDA_ERROR_INVALID_CONTEXT);
    CU(cu.cuCtxSetCurrent(b), CUDA_ERROR_INVALID_CONTEXT);
    CU(cu.cuCtxDestroy_v2(b), CUDA_ERROR_INVALID_CONTEXT);
    CU(cu.cuCtxDestroy_v2((CUcontext)(uintptr_t)0x1234), CUDA_ERROR_INVALID_CONTEXT);
    OK(cu.cuCtxSetCurrent(context));
    OK(cu.cuCtxPushCurrent_v2(context));
    OK(cu.cuCtxSetCurrent(NULL)); /* pops */
    OK(cu.cuCtxSynchronize());
    OK(cu.cuCtxDestroy_v2(a)); /* current nowhere */
    size_t v;
    OK(cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    OK(cu.cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE));
    CHECK_INT(v, 4096);
    CU(cu.cuCtxSetLimit((CUlimit)99, 1), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuCtxGetLimit(&v, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CU(cu.cuCtxCreate_v2(&a, 0, 77), CUDA_ERROR_INVALID_DEVICE);
    CU(cu.cuCtxCreate_v2(&a, 0x10000000, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(primary_context)
{
    begin();
    CUcontext a, b;
    unsigned flags;
    int active;
    OK(cu.cuDevicePrimaryCtxGetState(3, &flags, &active));
    CHECK_INT(active, 0);
    CU(cu.cuDevicePrimaryCtxRelease_v2(3), CUDA_ERROR_INVALID_CONTEXT);
    OK(cu.cuDevicePrimaryCtxRetain(&a, 3));
    OK(cu.cuDevicePrimaryCtxRetain(&b, 3));
    CHECK(a == b);
    CU(cu.cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuCtxPushCurrent_v2(a));
    CUdeviceptr p;
    CUstream s;
    OK(cu.cuMemAlloc_v2(&p, 100));
    OK(cu.cuStreamCreate(&s, 0));
    OK(cu.cuDevicePrimaryCtxReset_v2(3)); /* the handle stays, the contents go */
    CU(cu.cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuMemAlloc_v2(&p, 100));
    OK(cu.cuDevicePrimaryCtxRelease_v2(3));
    OK(cu.cuMemFree_v2(p));
    OK(cu.cuDevicePrimaryCtxRelease_v2(3));
    CU(cu.cuMemAlloc_v2(&p, 100), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cu.cuCtxPopCurrent_v2(NULL));
    CU(cu.cuDevicePrimaryCtxRetain(&a, 99), CUDA_ERROR_INVALID_DEVICE);
}

TEST(memory)
{
    begin();
    CUdeviceptr p, q, base;
    size_t size, before, after, total;
    OK(cu.cuMemGetInfo_v2(&before, &total));
    OK(cu.cuMemAlloc_v2(&p, 1000));
    OK(cu.cuMemGetInfo_v2(&after, NULL));
    CHECK_INT(before - after, 1000);
    CHECK_INT(p % 256, 0);
    OK(cu.cuMemGetAddressRange_v2(&base, &size, p + 999));
    CHECK(base == p && size == 1000);
    CU(cu.cuMemGetAddressRange_v2(&base, &size, p + 1000), CUDA_ERROR_NOT_FOUND);
    CU(cu.cuMemAlloc_v2(&q, 0), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemAlloc_v2(&q, total), CUDA_ERROR_OUT_OF_MEMORY);
    /* A program must not take all that the host has. */
    CHECK(before <= (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 2);
    CU(cu.cuMemAlloc_v2(&q, after + 1), CUDA_ERROR_OUT_OF_MEMORY);
    CU(cu.cuMemAlloc_v2(NULL, 4), CUDA_ERROR_INVALID_VALUE);
    uint8_t data[1000], back[1000];
    for (int i = 0; i < 1000; i++)
        data[i] = (uint8_t)(i * 7);
    OK(cu.cuMemcpyHtoD_v2(p, data, 1000));
    OK(cu.cuMemcpyDtoH_v2(back, p, 1000));
    CHECK(memcmp(data, back, 1000) == 0);
    CU(cu.cuMemcpyHtoD_v2(p, data, 1001), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemcpyDtoH_v2(back, p + 1, 1000), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemcpyHtoD_v2(p - 1, data, 1), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemcpyHtoD_v2(p, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemcpyDtoD_v2(p, p + 500, 501), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemcpyHtoD_v2(p, data, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemcpyHtoD_v2(p, data, 0));
    OK(cu.cuMemcpy((CUdeviceptr)(uintptr_t)back, p + 100, 50)); /* sides told by their addresses */
    CHECK(memcmp(back, data + 100, 50) == 0);
    OK(cu.cuMemcpy(p, (CUdeviceptr)(uintptr_t)back, 50));
    OK(cu.cuMemcpy(p + 200, p, 50));
    OK(cu.cuMemcpyDtoH_v2(back, p + 200, 50));
    CHECK(memcmp(back, data + 100, 50) == 0);
    OK(cu.cuMemsetD8_v2(p, 0xab, 1000));
    OK(cu.cuMemsetD16_v2(p + 2, 0x1234, 3));
    OK(cu.cuMemsetD32_v2(p + 100, 0xdeadbeef, 2));
    OK(cu.cuMemcpyDtoH_v2(back, p, 1000));
    CHECK(back[0] == 0xab && back[2] == 0x34 && back[7] == 0x12 && back[8] == 0xab && back[100] == 0xef &&
          back[107] == 0xde && back[999] == 0xab);
    CU(cu.cuMemsetD8_v2(p, 0, 1001), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemsetD32_v2(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemsetD32_v2(p, 0, SIZE_MAX / 4), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemFree_v2(p + 4), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemFree_v2(p));
    OK(cu.cuMemFree_v2(0));
    CU(cu.cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemcpyHtoD_v2(p, data, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemAllocAsync(&p, 100, NULL));
    OK(cu.cuMemFreeAsync(p, NULL));
}

/* Variables of a module count, too. */
TEST(large_variables)
{
    enum { COUNT = 40 }; /* of almost 4 GiB, which is the most that one may have */
    static char text[COUNT * 60 + 100] = ".version 8.0\n.target sm_80\n.address_size 64\n";
    size_t before, after;
    CUmodule m;

    begin();
    for (int i = 0; i < COUNT; i++)
        snprintf(text + strlen(text), 60, ".visible .global .align 8 .b8 big%d[4000000000];\n", i);
    OK(cu.cuMemGetInfo_v2(&before, NULL));
    CU(cu.cuModuleLoadData(&m, text), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cu.cuMemGetInfo_v2(&after, NULL));
    CHECK_INT(after, before);
}

TEST(rectangles)
{
    begin();
    CUdeviceptr p;
    uint8_t host[8 * 6], back[8 * 6] = {0};
    for (int i = 0; i < 48; i++)
        host[i] = (uint8_t)(i + 1);
    OK(cu.cuMemAlloc_v2(&p, 16 * 6));
    OK(cu.cuMemsetD8_v2(p, 0, 16 * 6));
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = host,
                       .srcPitch = 8,
                       .srcXInBytes = 2,
                       .srcY = 1,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = p,
                       .dstPitch = 16,
                       .dstXInBytes = 3,
                       .WidthInBytes = 5,
                       .Height = 4};
    OK(cu.cuMemcpy2D_v2(&c));
    uint8_t all[16 * 6];
    OK(cu.cuMemcpyDtoH_v2(all, p, sizeof(all)));
    for (int y = 0; y < 6; y++) {
        for (int x = 0; x < 16; x++)
            CHECK_INT(all[y * 16 + x], y < 4 && x >= 3 && x < 8 ? host[(y + 1) * 8 + x - 3 + 2] : 0);
    }
    CUDA_MEMCPY3D d = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = p,
                       .srcPitch = 16,
                       .srcHeight = 3,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back,
                       .dstPitch = 8,
                       .dstHeight = 2,
                       .WidthInBytes = 8,
                       .Height = 2,
                       .Depth = 2};
    OK(cu.cuMemcpy3D_v2(&d));
    for (int z = 0; z < 2; z++) {
        for (int y = 0; y < 2; y++)
            CHECK(memcmp(back + (z * 2 + y) * 8, all + (z * 3 + y) * 16, 8) == 0);
    }
    c.dstPitch = 4;
    CU(cu.cuMemcpy2D_v2(&c), CUDA_ERROR_INVALID_VALUE);
    c.dstPitch = 16;
    c.Height = 7; /* the last row ends behind the buffer */
    CU(cu.cuMemcpy2D_v2(&c), CUDA_ERROR_INVALID_VALUE);
    c.Height = SIZE_MAX / 2;
    CU(cu.cuMemcpy2D_v2(&c), CUDA_ERROR_INVALID_VALUE);
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    CU(cu.cuMemcpy2D_v2(&c), CUDA_ERROR_NOT_SUPPORTED);
    CU(cu.cuMemcpy2D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemsetD2D16_v2(p, 16, 0x0102, 3, 6));
    OK(cu.cuMemcpyDtoH_v2(all, p, sizeof(all)));
    CHECK(all[80] == 2 && all[85] == 1 && all[86] == 0);
    CU(cu.cuMemsetD2D8_v2(p, 16, 0, 16, 7), CUDA_ERROR_INVALID_VALUE);
}

TEST(host_memory)
{
    begin();
    void *h;
    CUdeviceptr d;
    CUmemorytype type;
    static uint8_t own[256];
    OK(cu.cuMemHostAlloc(&h, 400, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(h, 0, 400);
    OK(cu.cuMemHostGetDevicePointer_v2(&d, h, 0));
    OK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d));
    CHECK_INT(type, CU_MEMORYTYPE_HOST);
    /* a kernel writes it */
    const float one[100] = {1, 2, 3};
    CUdeviceptr a = device_floats(one, 100);
    OK(launch_add(NULL, a, a, d, 100));
    CHECK_NEAR(((float *)h)[2], 6, 0);
    OK(cu.cuMemFreeHost(h));
    CU(cu.cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemFreeHost(own), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemHostRegister_v2(own, sizeof(own), 0));
    CU(cu.cuMemHostRegister_v2(own, sizeof(own), 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CU(cu.cuMemFreeHost(own), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemHostUnregister(own));
    CU(cu.cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cu.cuMemAllocHost_v2(&h, 1)); /* left to the context's end */
    CU(cu.cuMemHostAlloc(&h, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(pointers)
{
    begin();
    CUdeviceptr p = device_floats(NULL, 10), start;
    CUcontext c;
    int device = -1;
    size_t size;
    OK(cu.cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p + 8));
    CHECK(c == context);
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                  CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *where[] = {&device, &start, &size};
    OK(cu.cuPointerGetAttributes(3, what, where, p + 8));
    CHECK(device == 0 && start == p && size == 40);
    OK(cu.cuPointerGetAttributes(3, what, where, 0x123));
    CHECK(start == 0 && size == 0);
    CU(cu.cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, 0x123), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_HOST_POINTER, p), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuPointerGetAttribute(&c, (CUpointer_attribute)1000, p), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(virtual_memory)
{
    begin();
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc rw = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}, ro = rw, no = rw;
    ro.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    no.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    size_t g;
    CUdeviceptr at;
    CUmemGenericAllocationHandle h, other;
    OK(cu.cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_INT(g, 2 << 20);
    OK(cu.cuMemAddressReserve(&at, 2 * g, 0, 0, 0));
    OK(cu.cuMemCreate(&h, g, &prop, 0));
    CU(cu.cuMemCreate(&other, g + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemMap(at, g, 0, h, 0));
    CU(cu.cuMemMap(at, g, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemMap(at + 2 * g, g, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemMap(at + g, g, 0, 0x777, 0), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemsetD8_v2(at, 1, 4), CUDA_ERROR_INVALID_VALUE); /* no access yet */
    OK(cu.cuMemSetAccess(at, g, &rw, 1));
    OK(cu.cuMemsetD32_v2(at, 0x3f800000, g / 4));
    unsigned long long access;
    OK(cu.cuMemGetAccess(&access, &prop.location, at + 5));
    CHECK_INT(access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    /* a buffer that ends with the mapping */
    CUdeviceptr end = at + g - 400;
    OK(launch_add(NULL, end, end, end, 100));
    float f;
    OK(cu.cuMemcpyDtoH_v2(&f, at + g - 4, 4));
    CHECK_NEAR(f, 2, 0);
    CU(cu.cuMemcpyDtoH_v2(&f, at + g - 3, 4), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuMemAddressFree(at, 2 * g), CUDA_ERROR_INVALID_VALUE); /* still mapped */
    /* the memory outlives its handle while mapped, and keeps its contents over a change of access */
    OK(cu.cuMemRelease(h));
    CU(cu.cuMemRelease(h), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemSetAccess(at, g, &no, 1));
    CU(cu.cuMemcpyDtoH_v2(&f, at, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemSetAccess(at, g, &ro, 1));
    OK(cu.cuMemcpyDtoH_v2(&f, at + g - 4, 4));
    CHECK_NEAR(f, 2, 0);
    OK(cu.cuMemUnmap(at, g));
    CU(cu.cuMemUnmap(at, g), CUDA_ERROR_INVALID_VALUE);
    OK(cu.cuMemAddressFree(at, 2 * g));
    CU(cu.cuMemAddressFree(at, 2 * g), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 1;
    CU(cu.cuMemCreate(&h, g, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST(streams_and_events)
{
    begin();
    CUstream s, t;
    CUevent a, b, untimed;
    CUcontext c;
    int p;
    unsigned flags;
    float ms = 0;
    OK(cu.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cu.cuStreamCreateWithPriority(&t, 0, -100));
    OK(cu.cuStreamGetPriority(t, &p));
    CHECK_INT(p, -5);
    OK(cu.cuStreamGetFlags(s, &flags));
    CHECK_INT(flags, CU_STREAM_NON_BLOCKING);
    OK(cu.cuStreamGetCtx(s, &c));
    CHECK(c == context);
    OK(cu.cuStreamQuery(NULL));
    OK(cu.cuEventCreate(&a, 0));
    OK(cu.cuEventCreate(&b, 0));
    OK(cu.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cu.cuEventQuery(a)); /* never recorded: complete */
    CU(cu.cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuEventRecord(a, s));
    OK(cu.cuStreamWaitEvent(t, a, 0));
    OK(cu.cuEventRecord(b, t));
    OK(cu.cuEventRecord(untimed, t));
    OK(cu.cuEventSynchronize(b));
    OK(cu.cuEventElapsedTime(&ms, a, b));
    CHECK(ms > 0 && ms < 10000);
    CU(cu.cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
    CUcontext other;
    OK(cu.cuCtxCreate_v2(&other, 0, 0));
    CU(cu.cuEventRecord(a, NULL), CUDA_ERROR_INVALID_HANDLE); /* of another context than the stream */
    OK(cu.cuStreamSynchronize(s));
    OK(cu.cuCtxDestroy_v2(other));
    OK(cu.cuStreamDestroy_v2(s));
    CU(cu.cuStreamDestroy_v2(s), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuStreamSynchronize(s), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuStreamDestroy_v2(NULL), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuStreamSynchronize((CUstream)a), CUDA_ERROR_INVALID_HANDLE); /* an event is no stream */
    CU(cu.cuStreamSynchronize((CUstream)(uintptr_t)0xdeadbeef), CUDA_ERROR_INVALID_HANDLE);
    OK(cu.cuEventDestroy_v2(a));
    CU(cu.cuEventQuery(a), CUDA_ERROR_INVALID_HANDLE);
    CU(cu.cuStreamCreate(&s, 99), CUDA_ERROR_INVALID_VALUE);
    CU(cu.cuEventCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

static CUresult called_back;
static void CUDA_CB host_function(void *arg)
{
    CUdeviceptr p;
    ++*(int *)arg;
    called_back = cu.cuMemAlloc_v2(&p, 4);
}

TEST(host_functions)
{
    begin();
    int n = 0;
    CUstream s;
    OK(cu.cuStreamCreate(&s, 0));
    OK(cu.cuLaunchHostFunc(s, host_function, &n));
    CHECK_INT(n, 1);
    CHECK_INT(called_back, CUDA_ERROR_NOT_PERMITTED);
    OK(cu.cuCtxSynchronize());
    CU(cu.cuLaunchHostFunc(s, NULL, &n), CUDA_ERROR_INVALID_VALUE);
}

TEST(finish)
{
    end_all();
}

TEST_MAIN(RUN(not_initialised), RUN(versions), RUN(devices), RUN(contexts), RUN(primary_context), RUN(memory),
          RUN(large_variables), RUN(rectangles), RUN(host_memory), RUN(pointers), RUN(virtual_memory),
          RUN(streams_and_events), RUN(host_functions), RUN(finish))
