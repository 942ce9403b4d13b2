/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: attributes of functions, occupancy.
 *
 * The number of registers is the core's estimate from the PTX: only a real compiler knows it. It is used where a number
 * is asked for, never to refuse a launch.
 */
#include "sim/driver.h"

/* The function of a handle (a kernel's handle too) with its context locked. */
static CUresult function_enter(const void *handle, stitch__drv_function **out)
{
    CUresult r;
    *out = DRV_ENTER(FUNCTION, handle, &r);
    return r;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* What a compiler could use at most for a block of `threads`, and for as many blocks as the source asks for. */
static int registers_of(const stitch__drv_function *f, int threads)
{
    int n = most((int)f->info->registers, 16);
    int blocks = most((int)f->info->min_blocks, 1);
    int bound =
        f->info->max_threads && f->info->max_threads < STITCH__DRV_MAX_THREADS ? (int)f->info->max_threads : threads;
    int room = STITCH__DRV_REGISTERS / (most(bound, STITCH__DRV_WARP) * blocks);
    return least(least((n + 7) / 8 * 8, most(room / 8 * 8, 16)), 255);
}

CUresult CUDAAPI SIM(cuFuncGetAttribute)(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    stitch__drv_function *f;
    if (!pi)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(hfunc, &f);
    if (r)
        return r;
    const stitch__drv_chip *chip = stitch__drv_context_chip(f->obj.ctx);
    const stitch__sim_function_info *info = f->info;
    switch ((int)attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *pi = least(info->max_threads ? (int)info->max_threads : STITCH__DRV_MAX_THREADS, STITCH__DRV_MAX_THREADS);
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *pi = (int)info->static_shared; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *pi = 0; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *pi = (int)info->local; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *pi = registers_of(f, STITCH__DRV_WARP); break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *pi = f->module->target; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *pi = chip->major * 10 + chip->minor; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *pi = 0; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *pi = f->max_dynamic_shared; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *pi = f->carveout; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *pi = f->required_cluster[0] != 0; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: *pi = (int)f->required_cluster[0]; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: *pi = (int)f->required_cluster[1]; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: *pi = (int)f->required_cluster[2]; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *pi = f->non_portable_cluster; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: *pi = f->cluster_policy; break;
    default: r = CUDA_ERROR_INVALID_VALUE; break;
    }
    stitch__drv_object_leave(f);
    return r;
}

/* A cluster size that the source gives cannot be changed, and one that it does not can be set before a launch. */
static CUresult set_required(stitch__drv_function *f, int dim, int value)
{
    if (f->info->required_cluster[0])
        return CUDA_ERROR_NOT_PERMITTED;
    if (value < 0)
        return CUDA_ERROR_INVALID_VALUE;
    f->required_cluster[dim] = (uint32_t)value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuFuncSetAttribute)(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    stitch__drv_function *f;
    CUresult r = function_enter(hfunc, &f);
    if (r)
        return r;
    const stitch__drv_chip *chip = stitch__drv_context_chip(f->obj.ctx);
    switch ((int)attrib) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > chip->shared_optin - (int)least((int)f->info->static_shared, chip->shared_optin))
            r = CUDA_ERROR_INVALID_VALUE;
        else
            f->max_dynamic_shared = value;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100)
            r = CUDA_ERROR_INVALID_VALUE;
        else
            f->carveout = value;
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: f->non_portable_cluster = value != 0; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
            r = CUDA_ERROR_INVALID_VALUE;
        else
            f->cluster_policy = value;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: r = set_required(f, 0, value); break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: r = set_required(f, 1, value); break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: r = set_required(f, 2, value); break;
    default: r = CUDA_ERROR_INVALID_VALUE; break;
    }
    stitch__drv_object_leave(f);
    return r;
}

CUresult CUDAAPI SIM(cuFuncSetCacheConfig)(CUfunction hfunc, CUfunc_cache config)
{
    stitch__drv_function *f;
    CUresult r = function_enter(hfunc, &f);
    if (r)
        return r;
    stitch__drv_object_leave(f);
    return (int)config < 0 || config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuFuncGetName)(const char **name, CUfunction hfunc)
{
    stitch__drv_function *f;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(hfunc, &f);
    if (r)
        return r;
    *name = f->info->name;
    stitch__drv_object_leave(f);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuFuncGetModule)(CUmodule *hmod, CUfunction hfunc)
{
    stitch__drv_function *f;
    if (!hmod)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(hfunc, &f);
    if (r)
        return r;
    *hmod = DRV_HANDLE(CUmodule, f->module);
    stitch__drv_object_leave(f);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuFuncGetParamInfo)(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    stitch__drv_function *f;
    if (!paramOffset)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(func, &f);
    if (r)
        return r;
    if (paramIndex < f->info->param_count) {
        *paramOffset = f->info->params[paramIndex].offset;
        if (paramSize)
            *paramSize = f->info->params[paramIndex].size;
    } else {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    stitch__drv_object_leave(f);
    return r;
}

CUresult CUDAAPI SIM(cuFuncLoad)(CUfunction function)
{
    stitch__drv_function *f;
    CUresult r = function_enter(function, &f);
    if (!r)
        stitch__drv_object_leave(f);
    return r;
}

/* ---- occupancy --------------------------------------------------------------------------------------------------- */

int stitch__drv_occupancy(const stitch__drv_function *f, int threads, size_t dynamic_shared, bool registers)
{
    const stitch__drv_chip *chip = stitch__drv_context_chip(f->obj.ctx);
    int warps = (threads + STITCH__DRV_WARP - 1) / STITCH__DRV_WARP;
    if (warps < 1 || threads > STITCH__DRV_MAX_THREADS || dynamic_shared > (size_t)chip->shared_optin)
        return 0;
    int blocks = least(chip->blocks_sm, chip->threads_sm / (warps * STITCH__DRV_WARP));
    int shared = (int)f->info->static_shared + (int)dynamic_shared;
    if (shared > chip->shared_optin)
        return 0;
    shared = (shared + STITCH__DRV_SHARED_RESERVED + 127) / 128 * 128; /* allocated in units of 128 bytes */
    blocks = least(blocks, chip->shared_sm / shared);
    if (registers) {
        /* A warp gets registers in units of 256; warps are spread over four schedulers. */
        int a_warp = (registers_of(f, threads) * STITCH__DRV_WARP + 255) / 256 * 256;
        blocks = least(blocks, STITCH__DRV_REGISTERS / a_warp / 4 * 4 / warps);
    }
    return blocks;
}

CUresult CUDAAPI SIM(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *numBlocks, CUfunction func,
                                                                           int blockSize, size_t dynamicSMemSize,
                                                                           unsigned int flags)
{
    stitch__drv_function *f;
    if (!numBlocks || blockSize <= 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(func, &f);
    if (r)
        return r;
    *numBlocks = stitch__drv_occupancy(f, blockSize, dynamicSMemSize, true);
    stitch__drv_object_leave(f);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *numBlocks, CUfunction func, int blockSize,
                                                                  size_t dynamicSMemSize)
{
    return SIM(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

static int config_threads(const CUlaunchConfig *c)
{
    uint64_t n = (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ;
    bool sane =
        c->blockDimX <= STITCH__DRV_MAX_THREADS && c->blockDimY <= STITCH__DRV_MAX_THREADS && c->blockDimZ <= 64;
    return sane && n <= STITCH__DRV_MAX_THREADS ? (int)n : 0;
}

CUresult CUDAAPI SIM(cuOccupancyMaxPotentialClusterSize)(int *clusterSize, CUfunction func,
                                                         const CUlaunchConfig *config)
{
    stitch__drv_function *f;
    if (!clusterSize || !config || !config_threads(config))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(func, &f);
    if (r)
        return r;
    *clusterSize = 0;
    if (!stitch__drv_context_chip(f->obj.ctx)->clusters)
        r = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    else if (stitch__drv_occupancy(f, config_threads(config), config->sharedMemBytes, true))
        *clusterSize = f->non_portable_cluster ? STITCH__DRV_CLUSTER_MAX : STITCH__DRV_CLUSTER_PORTABLE;
    stitch__drv_object_leave(f);
    return r;
}

/* Clusters lie within a group of multiprocessors. Chips differ in how many a group has left: 16 is assumed for all. */
CUresult CUDAAPI SIM(cuOccupancyMaxActiveClusters)(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
    stitch__drv_function *f;
    if (!numClusters || !config || !config_threads(config) || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = function_enter(func, &f);
    if (r)
        return r;
    uint32_t given[3] = {0, 0, 0}, c[3];
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            given[0] = config->attrs[i].value.clusterDim.x;
            given[1] = config->attrs[i].value.clusterDim.y;
            given[2] = config->attrs[i].value.clusterDim.z;
        }
    }
    stitch__drv_cluster(f, given, c);
    uint64_t size = (uint64_t)c[0] * c[1] * c[2];
    bool sane = c[0] <= STITCH__DRV_CLUSTER_MAX && c[1] <= STITCH__DRV_CLUSTER_MAX && c[2] <= STITCH__DRV_CLUSTER_MAX;
    const stitch__drv_chip *chip = stitch__drv_context_chip(f->obj.ctx);
    if (!chip->clusters || !sane || size > STITCH__DRV_CLUSTER_MAX)
        r = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    else
        *numClusters =
            chip->sms / 16 *
            (16 * stitch__drv_occupancy(f, config_threads(config), config->sharedMemBytes, true) / (int)size);
    stitch__drv_object_leave(f);
    return r;
}
