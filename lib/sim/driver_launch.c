/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: kernel launches.
 *
 * A launch whose arguments are wrong fails at once. A kernel that faults does not make its launch fail: as on hardware
 * the calls that follow do.
 */
#include "sim/driver.h"

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* `extra` is a list of keys and values: the address of a buffer and of its size. */
static CUresult params_from_buffer(stitch__drv_kernel_op *op, void **extra)
{
    const void *data = NULL;
    const size_t *size = NULL;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            data = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            size = extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (op->param_bytes && (!data || !size || *size < op->param_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (op->param_bytes)
        memcpy(op->params, data, op->param_bytes);
    return CUDA_SUCCESS;
}

CUresult stitch__drv_kernel_params(stitch__drv_kernel_op *op, void **params, void **extra)
{
    const stitch__sim_function_info *info = op->function->info;
    op->param_bytes = info->param_bytes;
    op->params = stitch__calloc(NULL, 1, info->param_bytes + 1);
    op->pointers = stitch__calloc(NULL, info->param_count + 1, sizeof(*op->pointers));
    if (!op->params || !op->pointers)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < info->param_count; i++)
        op->pointers[i] = op->params + info->params[i].offset;
    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra)
        return params_from_buffer(op, extra);
    for (uint32_t i = 0; i < info->param_count; i++) {
        if (!params || !params[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(op->pointers[i], params[i], info->params[i].size);
    }
    return CUDA_SUCCESS;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

void stitch__drv_cluster(const stitch__drv_function *f, const uint32_t given[3], uint32_t cluster[3])
{
    const uint32_t *from = given[0] ? given : f->required_cluster;
    for (int i = 0; i < 3; i++)
        cluster[i] = from[i] ? from[i] : 1;
}

static CUresult check_cluster(const stitch__drv_context *ctx, const stitch__drv_kernel_op *op)
{
    const stitch__drv_function *f = op->function;
    uint32_t c[3];
    stitch__drv_cluster(f, op->cluster, c);
    for (int i = 0; i < 3; i++) {
        uint32_t must = f->info->required_cluster[i];
        if (c[i] > STITCH__DRV_CLUSTER_MAX || (f->info->required_cluster[0] && c[i] != (must ? must : 1)))
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    uint32_t size = c[0] * c[1] * c[2];
    if (size == 1)
        return CUDA_SUCCESS;
    uint32_t limit = f->non_portable_cluster ? STITCH__DRV_CLUSTER_MAX : STITCH__DRV_CLUSTER_PORTABLE;
    if (!stitch__drv_context_chip(ctx)->clusters || size > limit ||
        (f->info->max_cluster && size > f->info->max_cluster))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    for (int i = 0; i < 3; i++) {
        if (op->grid[i] % c[i])
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Blocks of a cooperative launch must all be resident. The number of registers is not known, so they are no limit. */
static CUresult check_cooperative(const stitch__drv_context *ctx, const stitch__drv_kernel_op *op, int threads)
{
    uint64_t blocks = (uint64_t)op->grid[0] * op->grid[1];
    uint64_t most = (uint64_t)stitch__drv_occupancy(op->function, threads, op->shared, false) *
                    (uint64_t)stitch__drv_context_chip(ctx)->sms;
    if (blocks > most || blocks * op->grid[2] > most)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return CUDA_SUCCESS;
}

CUresult stitch__drv_kernel_check(stitch__drv_context *ctx, const stitch__drv_kernel_op *op)
{
    static const uint32_t max_grid[3] = {2147483647, 65535, 65535}, max_block[3] = {1024, 1024, 64};
    stitch__drv_function *f = op->function;
    const stitch__sim_function_info *info = f->info;
    stitch__drv_object *live = stitch__drv_find(f->obj.handle, STITCH__DRV_FUNCTION);
    stitch__drv_unref(live);
    if (!live || f->obj.ctx != ctx)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < 3; i++) {
        if (!op->grid[i] || !op->block[i] || op->grid[i] > max_grid[i] || op->block[i] > max_block[i] ||
            (info->required_block[0] && op->block[i] != (info->required_block[i] ? info->required_block[i] : 1)))
            return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t threads = op->block[0] * op->block[1] * op->block[2];
    if (threads > STITCH__DRV_MAX_THREADS || (info->max_threads && threads > info->max_threads))
        return CUDA_ERROR_INVALID_VALUE;
    if (op->shared > (uint32_t)f->max_dynamic_shared)
        return CUDA_ERROR_INVALID_VALUE;
    if (info->static_shared > STITCH__DRV_SHARED)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    CUresult r = check_cluster(ctx, op);
    if (!r && op->cooperative)
        r = check_cooperative(ctx, op, (int)threads);
    if (!r && info->refusal) {
        r = CUDA_ERROR_NOT_SUPPORTED;
        stitch__drv_report(ctx, f, NULL, r, info->refusal);
    }
    return r;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* What a context answers after a fault; CUDA_SUCCESS for findings that hardware does not notice. */
static CUresult fault_result(stitch__sim_fault fault)
{
    switch (fault) {
    case STITCH__SIM_NONE:
    case STITCH__SIM_UNINITIALISED:
    case STITCH__SIM_SHARED_RACE:
    case STITCH__SIM_GLOBAL_RACE:
    case STITCH__SIM_ASYNC_NOT_WAITED:
    case STITCH__SIM_INACTIVE_LANE: return CUDA_SUCCESS;
    case STITCH__SIM_OUT_OF_BOUNDS:
    case STITCH__SIM_USE_AFTER_FREE:
    case STITCH__SIM_READ_ONLY: return CUDA_ERROR_ILLEGAL_ADDRESS;
    case STITCH__SIM_MISALIGNED: return CUDA_ERROR_MISALIGNED_ADDRESS;
    case STITCH__SIM_DEADLOCK:
    case STITCH__SIM_BUDGET: return CUDA_ERROR_LAUNCH_TIMEOUT;
    case STITCH__SIM_ASSERT: return CUDA_ERROR_ASSERT;
    case STITCH__SIM_ILLEGAL: return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case STITCH__SIM_STACK: return CUDA_ERROR_HARDWARE_STACK_ERROR;
    default: return CUDA_ERROR_LAUNCH_FAILED;
    }
}

CUresult stitch__drv_kernel_run(stitch__drv_context *ctx, const stitch__drv_kernel_op *op)
{
    const stitch__sim_options *o = &ctx->options;
    stitch__sim_launch launch = {
        .function = op->function->core,
        .grid = {op->grid[0], op->grid[1], op->grid[2]},
        .block = {op->block[0], op->block[1], op->block[2]},
        .dynamic_shared = op->shared,
        .params = op->params,
        .param_bytes = op->param_bytes,
        .cooperative = op->cooperative,
        .memory = ctx->mem,
        .flags = o->flags,
        .instruction_budget = o->instruction_budget,
        .threads = o->threads,
        .seed = o->seed,
        .sample_blocks = o->sample_blocks,
        .max_reports = o->max_reports,
        .mma_fast = o->mma_fast,
        .cancel = o->cancel,
        .cancel_too = o->cancel_too,
        .deadline_ns = o->deadline_ns,
        .sm_count = (uint32_t)stitch__drv_context_chip(ctx)->sms,
        .print = o->print,
        .userdata = o->userdata,
    };
    stitch__drv_cluster(op->function, op->cluster, launch.cluster);
    stitch__sim_result result;
    stitch_error *err = NULL;
    int rc = stitch__sim_launch_run(&launch, &result, &err);
    CUresult r = CUDA_SUCCESS, fault = CUDA_SUCCESS;
    switch (rc) {
    case STITCH_OK: fault = fault_result(result.fault); break;
    case STITCH_E_UNSUPPORTED: r = CUDA_ERROR_NOT_SUPPORTED; break;
    case STITCH_E_NOMEM: r = CUDA_ERROR_OUT_OF_MEMORY; break;
    case STITCH_E_CANCELLED:
    case STITCH_E_TIMEOUT: fault = CUDA_ERROR_LAUNCH_TIMEOUT; break;
    default: r = CUDA_ERROR_INVALID_VALUE; break;
    }
    stitch__drv_report_launch(ctx, op, &result, r ? r : fault, rc ? stitch_error_message(err) : "");
    stitch__sim_result_clear(&result);
    stitch_error_free(err);
    if (fault && !o->keep_going)
        ctx->sticky = fault;
    return r;
}

/* ---- the API ----------------------------------------------------------------------------------------------------- */

/* What a launch attribute says that this driver acts upon. Others are hints about speed; programmatic launches wait for
 * what comes before them, which is one of the orders that they allow. */
static CUresult take_attribute(stitch__drv_kernel_op *op, const CUlaunchAttribute *a)
{
    switch ((int)a->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE: op->cooperative = a->value.cooperative != 0; return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        op->cluster[0] = a->value.clusterDim.x;
        op->cluster[1] = a->value.clusterDim.y;
        op->cluster[2] = a->value.clusterDim.z;
        return op->cluster[0] && op->cluster[1] && op->cluster[2] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: op->priority = a->value.priority; return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case 11: /* CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, newer than the oldest headers */
    case 14: /* CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT */ return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED; /* events and device-updatable nodes among them */
    }
}

CUresult CUDAAPI SIM(cuLaunchKernelEx)(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    if (!config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(config->hStream, &s);
    if (r)
        return r;
    stitch__drv_op op = {
        .kind = STITCH__DRV_OP_KERNEL,
        .kernel = {.function = DRV_FIND(stitch__drv_function, FUNCTION, f),
                   .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                   .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                   .shared = config->sharedMemBytes},
    };
    if (!op.kernel.function)
        r = CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < config->numAttrs && !r; i++)
        r = take_attribute(&op.kernel, &config->attrs[i]);
    if (!r)
        r = stitch__drv_kernel_params(&op.kernel, kernelParams, extra);
    if (!r)
        r = stitch__drv_submit(s, &op, NULL);
    stitch__drv_op_clear(&op);
    stitch__drv_stream_leave(s);
    return r;
}

CUresult CUDAAPI SIM(cuLaunchKernel)(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                     unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                     unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    CUlaunchConfig config = {
        .gridDimX = gridDimX,
        .gridDimY = gridDimY,
        .gridDimZ = gridDimZ,
        .blockDimX = blockDimX,
        .blockDimY = blockDimY,
        .blockDimZ = blockDimZ,
        .sharedMemBytes = sharedMemBytes,
        .hStream = hStream,
    };
    return SIM(cuLaunchKernelEx)(&config, f, kernelParams, extra);
}

CUresult CUDAAPI SIM(cuLaunchCooperativeKernel)(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                                unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                                unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                                void **kernelParams)
{
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {.cooperative = 1}};
    CUlaunchConfig config = {
        .gridDimX = gridDimX,
        .gridDimY = gridDimY,
        .gridDimZ = gridDimZ,
        .blockDimX = blockDimX,
        .blockDimY = blockDimY,
        .blockDimZ = blockDimZ,
        .sharedMemBytes = sharedMemBytes,
        .hStream = hStream,
        .attrs = &cooperative,
        .numAttrs = 1,
    };
    return SIM(cuLaunchKernelEx)(&config, f, kernelParams, NULL);
}
