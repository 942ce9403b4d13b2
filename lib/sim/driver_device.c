/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: the devices. One for each architecture, with the limits of a common chip of that architecture
 * (limits from the CUDA C++ Programming Guide's tables of compute capabilities and the chips' data sheets). Clock
 * rates, bandwidths and sizes let arithmetic about the chip come out as for the real one; nothing here is ever
 * measured.
 */
#include <stdio.h>

#include "sim/driver.h"

/* Ordinals are stable: new chips go to the end. */
static const stitch__drv_chip chips[] = {
    {.name = "stitch simulator sm_90 (limits of H200)",
     .major = 9,
     .minor = 0,
     .sms = 132,
     .clock_khz = 1980000,
     .memory_clock_khz = 3201000,
     .bus_bits = 6144,
     .memory = UINT64_C(150109880320),
     .l2 = 62914560,
     .l2_persisting = 39321600,
     .shared_sm = 233472,
     .shared_optin = 232448,
     .threads_sm = 2048,
     .blocks_sm = 32,
     .clusters = true,
     .tensor_maps = true},
    {.name = "stitch simulator sm_80 (limits of A100)",
     .major = 8,
     .minor = 0,
     .sms = 108,
     .clock_khz = 1410000,
     .memory_clock_khz = 1593000,
     .bus_bits = 5120,
     .memory = UINT64_C(85094825984),
     .l2 = 41943040,
     .l2_persisting = 31457280,
     .shared_sm = 167936,
     .shared_optin = 166912,
     .threads_sm = 2048,
     .blocks_sm = 32},
    {.name = "stitch simulator sm_86 (limits of A10)",
     .major = 8,
     .minor = 6,
     .sms = 72,
     .clock_khz = 1695000,
     .memory_clock_khz = 6251000,
     .bus_bits = 384,
     .memory = UINT64_C(23836098560),
     .l2 = 6291456,
     .l2_persisting = 4325376,
     .shared_sm = 102400,
     .shared_optin = 101376,
     .threads_sm = 1536,
     .blocks_sm = 16},
    {.name = "stitch simulator sm_89 (limits of L40S)",
     .major = 8,
     .minor = 9,
     .sms = 142,
     .clock_khz = 2520000,
     .memory_clock_khz = 9001000,
     .bus_bits = 384,
     .memory = UINT64_C(47697362944),
     .l2 = 100663296,
     .l2_persisting = 65011712,
     .shared_sm = 102400,
     .shared_optin = 101376,
     .threads_sm = 1536,
     .blocks_sm = 24},
    {.name = "stitch simulator sm_100 (limits of B200)",
     .major = 10,
     .minor = 0,
     .sms = 148,
     .clock_khz = 1965000,
     .memory_clock_khz = 3996000,
     .bus_bits = 8192,
     .memory = UINT64_C(191503138816),
     .l2 = 132644864,
     .l2_persisting = 82903040,
     .shared_sm = 233472,
     .shared_optin = 232448,
     .threads_sm = 2048,
     .blocks_sm = 32,
     .clusters = true,
     .tensor_maps = true},
    {.name = "stitch simulator sm_120 (limits of RTX 5090)",
     .major = 12,
     .minor = 0,
     .sms = 170,
     .clock_khz = 2407000,
     .memory_clock_khz = 14001000,
     .bus_bits = 512,
     .memory = UINT64_C(33661911040),
     .l2 = 100663296,
     .l2_persisting = 62914560,
     .shared_sm = 102400,
     .shared_optin = 101376,
     .threads_sm = 1536,
     .blocks_sm = 24,
     .clusters = true,
     .tensor_maps = true},
};

int stitch__drv_chip_count(void)
{
    return (int)STITCH__COUNT(chips);
}

const stitch__drv_chip *stitch__drv_chip_get(int ordinal)
{
    return ordinal >= 0 && ordinal < stitch__drv_chip_count() ? &chips[ordinal] : NULL;
}

CUresult CUDAAPI SIM(stitchSimFindDevice)(CUdevice *device, const char *arch)
{
    if (!device || !arch)
        return CUDA_ERROR_INVALID_VALUE;
    int number = 0, used = 0;
    if (strncmp(arch, "sm_", 3) == 0)
        arch += 3;
    /* "90", with an optional a or f for the features that only this architecture or its family has */
    if (sscanf(arch, "%3d%n", &number, &used) != 1 || (arch[used] && (!strchr("af", arch[used]) || arch[used + 1])))
        return CUDA_ERROR_NO_DEVICE;
    for (int i = 0; i < stitch__drv_chip_count(); i++) {
        if (chips[i].major * 10 + chips[i].minor == number) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NO_DEVICE;
}

/* The chip of an ordinal, with the checks that every device function makes. */
static CUresult chip_of(CUdevice dev, const stitch__drv_chip **chip)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    *chip = stitch__drv_chip_get(dev);
    return *chip ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI SIM(cuDeviceGetCount)(int *count)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = stitch__drv_chip_count();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuDeviceGet)(CUdevice *device, int ordinal)
{
    const stitch__drv_chip *chip;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(ordinal, &chip);
    if (!r)
        *device = ordinal;
    return r;
}

CUresult CUDAAPI SIM(cuDeviceGetName)(char *name, int len, CUdevice dev)
{
    const stitch__drv_chip *chip;
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (!r)
        snprintf(name, (size_t)len, "%s", chip->name);
    return r;
}

CUresult CUDAAPI SIM(cuDeviceGetUuid_v2)(CUuuid *uuid, CUdevice dev)
{
    const stitch__drv_chip *chip;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (r)
        return r;
    memcpy(uuid->bytes, "stitch-sim-sm", 13);
    uuid->bytes[13] = 0;
    uuid->bytes[14] = (char)chip->major;
    uuid->bytes[15] = (char)chip->minor;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuDeviceGetUuid)(CUuuid *uuid, CUdevice dev)
{
    return SIM(cuDeviceGetUuid_v2)(uuid, dev);
}

CUresult CUDAAPI SIM(cuDeviceTotalMem_v2)(size_t *bytes, CUdevice dev)
{
    const stitch__drv_chip *chip;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (!r)
        *bytes = (size_t)chip->memory;
    return r;
}

CUresult CUDAAPI SIM(cuDeviceComputeCapability)(int *major, int *minor, CUdevice dev)
{
    const stitch__drv_chip *chip;
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (!r) {
        *major = chip->major;
        *minor = chip->minor;
    }
    return r;
}

/* Bus ff does not exist on a machine with these devices. */
CUresult CUDAAPI SIM(cuDeviceGetPCIBusId)(char *pciBusId, int len, CUdevice dev)
{
    const stitch__drv_chip *chip;
    if (!pciBusId || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (!r)
        snprintf(pciBusId, (size_t)len, "0000:FF:%02X.0", (unsigned)dev);
    return r;
}

CUresult CUDAAPI SIM(cuDeviceCanAccessPeer)(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    const stitch__drv_chip *chip;
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (!r)
        r = chip_of(peerDev, &chip);
    if (!r)
        *canAccessPeer = 0;
    return r;
}

/* What does not depend on the chip. Attributes in neither table are 0: features that are not simulated. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} common[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, STITCH__DRV_MAX_THREADS},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, STITCH__DRV_SHARED},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, STITCH__DRV_WARP},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, STITCH__DRV_REGISTERS},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 255},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, STITCH__DRV_REGISTERS},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0},
    {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, STITCH__DRV_SHARED_RESERVED},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
};

static int chip_attribute(const stitch__drv_chip *c, CUdevice dev, CUdevice_attribute attribute)
{
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return c->major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return c->minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return c->sms;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return c->clock_khz;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return c->memory_clock_khz;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return c->bus_bits;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return c->l2;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: return c->l2_persisting;
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: return 134213632;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return c->threads_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return c->blocks_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return c->shared_sm;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return c->shared_optin;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: return c->minor == 0 && c->major < 12 ? 2 : 64;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return dev;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: return c->clusters;
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: return c->tensor_maps;
    default: break;
    }
    for (size_t i = 0; i < STITCH__COUNT(common); i++) {
        if (common[i].attribute == attribute)
            return common[i].value;
    }
    return 0;
}

CUresult CUDAAPI SIM(cuDeviceGetAttribute)(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    const stitch__drv_chip *chip;
    if (!pi || (int)attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = chip_of(dev, &chip);
    if (!r)
        *pi = chip_attribute(chip, dev, attrib);
    return r;
}
