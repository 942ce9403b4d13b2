/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: tensor maps. The 128 bytes hold stitch__sim_tensor_map, which the interpreter reads; they mean
 * nothing to a GPU. The checks are those that the CUDA Driver API's documentation lists for cuTensorMapEncodeTiled.
 */
#include "sim/driver.h"

_Static_assert(sizeof(stitch__sim_tensor_map) == sizeof(CUtensorMap), "a tensor map has 128 bytes");

/* Bytes of an element; 0 for a type that is not simulated (the packed 4-bit and 6-bit ones of sm_100). */
static unsigned element_size(CUtensorMapDataType type)
{
    switch ((int)type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ: return 4;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    default: return 0;
    }
}

static bool is_float(CUtensorMapDataType type)
{
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

CUresult CUDAAPI SIM(cuTensorMapEncodeTiled)(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                             cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
                                             const cuuint64_t *globalStrides, const cuuint32_t *boxDim,
                                             const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
                                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
                                             CUtensorMapFloatOOBfill oobFill)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    bool has = stitch__drv_context_chip(ctx)->tensor_maps;
    stitch__drv_leave(ctx);
    unsigned elem = element_size(tensorDataType);
    if (!has || !elem || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || (unsigned)swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t address = (uintptr_t)globalAddress;
    if (!tensorMap || (uintptr_t)tensorMap % 64 || tensorRank < 1 || tensorRank > 5 || !address || address % 16 ||
        !globalDim || (tensorRank > 1 && !globalStrides) || !boxDim || !elementStrides ||
        (unsigned)l2Promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        (unsigned)oobFill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA || (oobFill && !is_float(tensorDataType)))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__sim_tensor_map map = {
        .magic = STITCH__SIM_TENSOR_MAP_MAGIC,
        .address = address,
        .rank = (uint8_t)tensorRank,
        .elem_size = (uint8_t)elem,
        .swizzle = (uint8_t)swizzle,
        .fill_nan = (uint8_t)oobFill,
        .dtype = (uint8_t)tensorDataType,
        .interleave = (uint32_t)interleave,
    };
    for (unsigned i = 0; i < tensorRank; i++) {
        if (!globalDim[i] || globalDim[i] > (UINT64_C(1) << 32) || !boxDim[i] || boxDim[i] > 256 ||
            !elementStrides[i] || elementStrides[i] > 8)
            return CUDA_ERROR_INVALID_VALUE;
        map.extent[i] = (uint32_t)(globalDim[i] - 1);
        map.box[i] = (uint16_t)boxDim[i];
        map.elem_stride[i] = (uint8_t)elementStrides[i];
    }
    for (unsigned i = 0; i + 1 < tensorRank; i++) {
        if (globalStrides[i] % 16 || globalStrides[i] >= (UINT64_C(1) << 40))
            return CUDA_ERROR_INVALID_VALUE;
        map.stride[i] = globalStrides[i];
    }
    /* A row of the box is a multiple of 16 bytes, and fits the
     * swizzle. */
    uint64_t row = (uint64_t)boxDim[0] * elem;
    if (row % 16 || (swizzle && row > UINT64_C(16) << swizzle))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(tensorMap, &map, sizeof(map));
    return CUDA_SUCCESS;
}
