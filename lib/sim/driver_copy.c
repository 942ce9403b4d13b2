/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: copies and fills. All of them become one of two operations, see driver_op.c.
 */
#include "sim/driver.h"

static CUresult submit_copy(const CUDA_MEMCPY3D *c, CUstream stream)
{
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(stream, &s);
    if (r)
        return r;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_COPY, .copy = *c};
    r = stitch__drv_submit(s, &op, NULL);
    stitch__drv_stream_leave(s);
    return r;
}

static CUDA_MEMCPY3D linear(CUmemorytype dst_type, uint64_t dst, CUmemorytype src_type, uint64_t src, size_t bytes)
{
    CUDA_MEMCPY3D c = {
        .srcMemoryType = src_type, .dstMemoryType = dst_type, .WidthInBytes = bytes, .Height = 1, .Depth = 1};
    if (src_type == CU_MEMORYTYPE_HOST)
        c.srcHost = (const void *)(uintptr_t)src;
    else
        c.srcDevice = src;
    if (dst_type == CU_MEMORYTYPE_HOST)
        c.dstHost = (void *)(uintptr_t)dst;
    else
        c.dstDevice = dst;
    return c;
}

CUresult CUDAAPI SIM(cuMemcpyAsync)(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    CUDA_MEMCPY3D c = linear(CU_MEMORYTYPE_UNIFIED, dst, CU_MEMORYTYPE_UNIFIED, src, ByteCount);
    return submit_copy(&c, hStream);
}

CUresult CUDAAPI SIM(cuMemcpyHtoDAsync_v2)(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                           CUstream hStream)
{
    CUDA_MEMCPY3D c = linear(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_HOST, (uintptr_t)srcHost, ByteCount);
    return submit_copy(&c, hStream);
}

CUresult CUDAAPI SIM(cuMemcpyDtoHAsync_v2)(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    CUDA_MEMCPY3D c = linear(CU_MEMORYTYPE_HOST, (uintptr_t)dstHost, CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount);
    return submit_copy(&c, hStream);
}

CUresult CUDAAPI SIM(cuMemcpyDtoDAsync_v2)(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                           CUstream hStream)
{
    CUDA_MEMCPY3D c = linear(CU_MEMORYTYPE_DEVICE, dstDevice, CU_MEMORYTYPE_DEVICE, srcDevice, ByteCount);
    return submit_copy(&c, hStream);
}

CUresult CUDAAPI SIM(cuMemcpy)(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)
{
    return SIM(cuMemcpyAsync)(dst, src, ByteCount, NULL);
}

CUresult CUDAAPI SIM(cuMemcpyHtoD_v2)(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
    return SIM(cuMemcpyHtoDAsync_v2)(dstDevice, srcHost, ByteCount, NULL);
}

CUresult CUDAAPI SIM(cuMemcpyDtoH_v2)(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
    return SIM(cuMemcpyDtoHAsync_v2)(dstHost, srcDevice, ByteCount, NULL);
}

CUresult CUDAAPI SIM(cuMemcpyDtoD_v2)(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount)
{
    return SIM(cuMemcpyDtoDAsync_v2)(dstDevice, srcDevice, ByteCount, NULL);
}

CUresult CUDAAPI SIM(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    return pCopy ? submit_copy(pCopy, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI SIM(cuMemcpy3D_v2)(const CUDA_MEMCPY3D *pCopy)
{
    return SIM(cuMemcpy3DAsync_v2)(pCopy, NULL);
}

CUresult CUDAAPI SIM(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    if (!pCopy)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D c = {
        .srcXInBytes = pCopy->srcXInBytes,
        .srcY = pCopy->srcY,
        .srcMemoryType = pCopy->srcMemoryType,
        .srcHost = pCopy->srcHost,
        .srcDevice = pCopy->srcDevice,
        .srcPitch = pCopy->srcPitch,
        .dstXInBytes = pCopy->dstXInBytes,
        .dstY = pCopy->dstY,
        .dstMemoryType = pCopy->dstMemoryType,
        .dstHost = pCopy->dstHost,
        .dstDevice = pCopy->dstDevice,
        .dstPitch = pCopy->dstPitch,
        .WidthInBytes = pCopy->WidthInBytes,
        .Height = pCopy->Height,
        .Depth = 1,
    };
    return submit_copy(&c, hStream);
}

CUresult CUDAAPI SIM(cuMemcpy2D_v2)(const CUDA_MEMCPY2D *pCopy)
{
    return SIM(cuMemcpy2DAsync_v2)(pCopy, NULL);
}

CUresult CUDAAPI SIM(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D *pCopy)
{
    return SIM(cuMemcpy2DAsync_v2)(pCopy, NULL);
}

/* ---- fills ------------------------------------------------------------------------------------------------------- */

static CUresult submit_fill(CUdeviceptr dst, size_t pitch, unsigned value, unsigned elem, size_t width, size_t height,
                            CUstream stream)
{
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(stream, &s);
    if (r)
        return r;
    stitch__drv_op op = {
        .kind = STITCH__DRV_OP_FILL,
        .fill = {.dst = dst, .pitch = pitch, .value = value, .elementSize = elem, .width = width, .height = height},
    };
    r = stitch__drv_submit(s, &op, NULL);
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuMemsetD8Async)(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
    return submit_fill(dstDevice, 0, uc, 1, N, 1, hStream);
}

CUresult CUDAAPI SIM(cuMemsetD16Async)(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream)
{
    return submit_fill(dstDevice, 0, us, 2, N, 1, hStream);
}

CUresult CUDAAPI SIM(cuMemsetD32Async)(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
    return submit_fill(dstDevice, 0, ui, 4, N, 1, hStream);
}

CUresult CUDAAPI SIM(cuMemsetD8_v2)(CUdeviceptr dstDevice, unsigned char uc, size_t N)
{
    return submit_fill(dstDevice, 0, uc, 1, N, 1, NULL);
}

CUresult CUDAAPI SIM(cuMemsetD16_v2)(CUdeviceptr dstDevice, unsigned short us, size_t N)
{
    return submit_fill(dstDevice, 0, us, 2, N, 1, NULL);
}

CUresult CUDAAPI SIM(cuMemsetD32_v2)(CUdeviceptr dstDevice, unsigned int ui, size_t N)
{
    return submit_fill(dstDevice, 0, ui, 4, N, 1, NULL);
}

CUresult CUDAAPI SIM(cuMemsetD2D8Async)(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                        size_t Height, CUstream hStream)
{
    return submit_fill(dstDevice, dstPitch, uc, 1, Width, Height, hStream);
}

CUresult CUDAAPI SIM(cuMemsetD2D16Async)(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                         size_t Height, CUstream hStream)
{
    return submit_fill(dstDevice, dstPitch, us, 2, Width, Height, hStream);
}

CUresult CUDAAPI SIM(cuMemsetD2D32Async)(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                         size_t Height, CUstream hStream)
{
    return submit_fill(dstDevice, dstPitch, ui, 4, Width, Height, hStream);
}

CUresult CUDAAPI SIM(cuMemsetD2D8_v2)(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                      size_t Height)
{
    return submit_fill(dstDevice, dstPitch, uc, 1, Width, Height, NULL);
}

CUresult CUDAAPI SIM(cuMemsetD2D16_v2)(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                       size_t Height)
{
    return submit_fill(dstDevice, dstPitch, us, 2, Width, Height, NULL);
}

CUresult CUDAAPI SIM(cuMemsetD2D32_v2)(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                       size_t Height)
{
    return submit_fill(dstDevice, dstPitch, ui, 4, Width, Height, NULL);
}
