/* SPDX-License-Identifier: MIT
 *
 * What a device reaches: a copy, products of cuBLASLt, launches of an empty kernel in a stream and in a graph. All in
 * one block of memory and one stream. Each figure is the median of several runs.
 */
#include "profile/measure.h"

#include <stdlib.h>

enum {
    RUNS = 9,
    CANDIDATES = 4,
    LAUNCHES = 200,
    COPY_THREADS = 256,
    PRODUCT_US = 20000, /* devices that would take longer get smaller products */
    N_MIN = 1024,
};
#define BLOCK_BYTES     ((uint64_t)512 << 20)
#define LEAST_BYTES     ((uint64_t)64 << 20) /* less is in the cache, and says nothing */
#define WORKSPACE_BYTES ((uint64_t)32 << 20)
#define PART_NS         250000000 /* of one figure: devices that are slow get fewer runs */

static const char source[] =
    "extern \"C\" __global__ void copy(const float4 *__restrict__ x, float4 *__restrict__ y, unsigned n)\n"
    "{\n"
    "#pragma unroll 4\n"
    "  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i]; }\n"
    /* Numbers of magnitude 1/2 to 1: products of zeros take less power, so that clocks would be higher than in use. */
    "extern \"C\" __global__ void fill(unsigned *x, unsigned n, unsigned keep, unsigned set)\n"
    "{ for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {\n"
    "    unsigned h = i * 2654435761u; h ^= h >> 15; h *= 2246822519u; h ^= h >> 13; x[i] = h & keep | set; } }\n"
    "extern \"C\" __global__ void nothing() {}\n";

enum { COPY, FILL, NOTHING, KERNELS };
static const char *const kernel_names[KERNELS] = {"copy", "fill", "nothing"};

typedef struct rig {
    stitch__device *dev;
    const stitch__scope *scope;
    stitch__module module;
    CUfunction kernels[KERNELS];
    CUstream stream;
    CUevent begin, end;
    CUdeviceptr block;
    uint64_t bytes;
} rig;

/* ---- the rig ---- */

static int load_kernels(rig *r, stitch_error **err)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *image = NULL;
    o.names = kernel_names;
    o.name_count = KERNELS;
    int rc = stitch_compile(r->dev->ctx, source, &o, &image, err);
    if (rc == STITCH_OK)
        rc = stitch__module_load(r->dev, image, &r->module, err);
    for (size_t i = 0; i < KERNELS && rc == STITCH_OK; i++) {
        size_t at;
        rc = stitch_image_find(image, kernel_names[i], &at);
        if (rc == STITCH_OK)
            r->kernels[i] = r->module.kernels[at];
        else
            rc = stitch__err(r->dev->ctx, err, STITCH_E_INTERNAL, "kernel %s is not in its own image", kernel_names[i]);
    }
    stitch_image_free(image);
    return rc;
}

static int open_rig(rig *r, stitch_error **err)
{
    stitch__device *dev = r->dev;
    size_t free_bytes = 0, total = 0;
    int rc = load_kernels(r, err);
    if (rc)
        return rc;
    STITCH__CU(dev->drv->StreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
    STITCH__CU(dev->drv->EventCreate(&r->begin, CU_EVENT_DEFAULT));
    STITCH__CU(dev->drv->EventCreate(&r->end, CU_EVENT_DEFAULT));
    STITCH__CU(dev->drv->MemGetInfo(&free_bytes, &total));
    r->bytes = free_bytes / 4 < BLOCK_BYTES ? free_bytes / 4 & ~UINT64_C(0xfffff) : BLOCK_BYTES;
    if (r->bytes < LEAST_BYTES)
        return stitch__err(dev->ctx, err, STITCH_E_NOMEM, "too little device memory is free (%zu bytes)", free_bytes);
    rc = stitch__mem_alloc(dev, r->bytes, "ceilings", &r->block, err);
out:
    return rc;
}

static void close_rig(rig *r)
{
    const stitch__driver *drv = r->dev->drv;
    if (r->stream)
        drv->StreamSynchronize(r->stream);
    stitch__mem_free(r->dev, r->block);
    if (r->begin)
        drv->EventDestroy(r->begin);
    if (r->end)
        drv->EventDestroy(r->end);
    if (r->stream)
        drv->StreamDestroy(r->stream);
    stitch__module_unload(&r->module);
}

/* Something that is put into the rig's stream. */
typedef int (*work_fn)(rig *r, void *userdata, stitch_error **err);

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds that the work takes: the median of some runs after a first one. */
static int time_work(rig *r, work_fn work, void *userdata, int runs, double *out, stitch_error **err)
{
    stitch__device *dev = r->dev;
    double us[RUNS];
    int64_t start = stitch__now_ns();
    int rc = STITCH_OK, n = 0;
    for (int i = 0; i <= runs; i++) {
        float ms = 0;
        STITCH__CU(dev->drv->EventRecord(r->begin, r->stream));
        if ((rc = work(r, userdata, err)) != STITCH_OK)
            goto out;
        STITCH__CU(dev->drv->EventRecord(r->end, r->stream));
        if ((rc = stitch__stream_wait(dev, r->stream, r->scope, "measuring the device", err)) != STITCH_OK)
            goto out;
        STITCH__CU(dev->drv->EventElapsedTime(&ms, r->begin, r->end));
        if (i > 0)
            us[n++] = ms * 1e3;
        if (n && stitch__now_ns() - start > PART_NS)
            break;
    }
    qsort(us, (size_t)n, sizeof(us[0]), compare);
    *out = us[n / 2];
out:
    return rc;
}

/* ---- memory ---- */

static unsigned blocks_of(const rig *r)
{
    return (unsigned)r->dev->info.multiprocessors * 16;
}

static int launch(rig *r, int kernel, unsigned grid, unsigned block, void **args, stitch_error **err)
{
    return stitch__cu_checkf(
        r->dev, r->dev->drv->LaunchKernel(r->kernels[kernel], grid, 1, 1, block, 1, 1, 0, r->stream, args, NULL), err,
        "cuLaunchKernel of %s", kernel_names[kernel]);
}

static int copy_once(rig *r, void *userdata, stitch_error **err)
{
    CUdeviceptr from = r->block, to = r->block + r->bytes / 2;
    unsigned n = (unsigned)(r->bytes / 32);
    void *args[] = {&from, &to, &n};
    return launch(r, COPY, blocks_of(r), COPY_THREADS, args, err);
}

static int fill(rig *r, uint32_t keep, uint32_t set, stitch_error **err)
{
    CUdeviceptr at = r->block;
    unsigned n = (unsigned)(r->bytes / 4);
    void *args[] = {&at, &n, &keep, &set};
    return launch(r, FILL, blocks_of(r), COPY_THREADS, args, err);
}

static int measure_copy(rig *r, stitch__ceilings *c, stitch_error **err)
{
    double us = 0;
    int rc = fill(r, 0x807fffff, 0x3f000000, err);
    if (rc == STITCH_OK)
        rc = time_work(r, copy_once, NULL, RUNS, &us, err);
    if (rc == STITCH_OK && us > 0) {
        c->dram_gb_s = (double)r->bytes / us / 1e3;
        c->measured = true;
    }
    return rc;
}

/* ---- launches ---- */

static int launch_many(rig *r, void *userdata, stitch_error **err)
{
    int rc = STITCH_OK;
    for (int i = 0; i < LAUNCHES && rc == STITCH_OK; i++)
        rc = launch(r, NOTHING, 1, 32, NULL, err);
    return rc;
}

static int launch_graph(rig *r, void *userdata, stitch_error **err)
{
    CUgraphExec *graph = userdata;
    return stitch__cu_check(r->dev, r->dev->drv->GraphLaunch(*graph, r->stream), err, "cuGraphLaunch");
}

static int make_graph(rig *r, CUgraphExec *out, stitch_error **err)
{
    const stitch__driver *drv = r->dev->drv;
    CUDA_GRAPH_INSTANTIATE_PARAMS params;
    CUgraph graph = NULL;
    int rc = stitch__cu_check(r->dev, drv->StreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), err,
                              "cuStreamBeginCapture");
    if (rc)
        return rc;
    rc = launch_many(r, NULL, err);
    CUresult ended = drv->StreamEndCapture(r->stream, &graph); /* in any case */
    rc = rc ? rc : stitch__cu_check(r->dev, ended, err, "cuStreamEndCapture");
    memset(&params, 0, sizeof(params));
    if (rc == STITCH_OK)
        rc = stitch__cu_check(r->dev, drv->GraphInstantiateWithParams(out, graph, &params), err,
                              "cuGraphInstantiateWithParams");
    if (ended == CUDA_SUCCESS && graph)
        drv->GraphDestroy(graph);
    return rc;
}

static int measure_launches(rig *r, stitch__ceilings *c, stitch_error **err)
{
    CUgraphExec graph = NULL;
    double us = 0;
    int rc = time_work(r, launch_many, NULL, RUNS, &us, err);
    if (rc == STITCH_OK)
        c->launch_us = us / LAUNCHES;
    if (rc == STITCH_OK)
        rc = make_graph(r, &graph, err);
    if (rc == STITCH_OK)
        rc = time_work(r, launch_graph, &graph, RUNS, &us, err);
    if (rc == STITCH_OK)
        c->graph_node_us = us / LAUNCHES;
    if (graph)
        r->dev->drv->GraphExecDestroy(graph);
    return rc;
}

/* ---- products ---- */

/* d = a^T b, n x n each, columns first: the form that all types have. */
typedef struct product {
    cublasComputeType_t compute;
    cudaDataType_t in, out;
    uint64_t in_bytes, out_bytes;
    int64_t n;
    uint32_t keep, set; /* see fill() */
    size_t figure;      /* offset in stitch__ceilings */
} product;

/* Sizes take a few milliseconds at the most on a fast device, and fit into the block. */
static const product products[] = {
    {CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_16F, 2, 2, 8192, 0x83ff83ff, 0x38003800,
     offsetof(stitch__ceilings, f16_tflops)},
    {CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF, 2, 2, 8192, 0x807f807f, 0x3f003f00,
     offsetof(stitch__ceilings, bf16_tflops)},
    {CUBLAS_COMPUTE_32F, CUDA_R_8F_E4M3, CUDA_R_16BF, 1, 2, 8192, 0x87878787, 0x30303030,
     offsetof(stitch__ceilings, f8_tflops)},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, 4, 4, 6144, 0x807fffff, 0x3f000000,
     offsetof(stitch__ceilings, tf32_tflops)},
    {CUBLAS_COMPUTE_32F_PEDANTIC, CUDA_R_32F, CUDA_R_32F, 4, 4, 4096, 0x807fffff, 0x3f000000,
     offsetof(stitch__ceilings, f32_tflops)},
};

typedef struct lt {
    const stitch__cublaslt *lib;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t in, out;
    cublasLtMatmulAlgo_t algo;
    CUdeviceptr workspace;
    size_t workspace_bytes; /* of the algorithm */
    CUdeviceptr a, b, d;
} lt;

static int lt_check(rig *r, const lt *t, cublasStatus_t s, const char *what, stitch_error **err)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return STITCH_OK;
    return stitch__err_native(r->dev->ctx, err,
                              s == CUBLAS_STATUS_NOT_SUPPORTED ? STITCH_E_UNSUPPORTED : STITCH_E_LIBRARY,
                              STITCH_DOMAIN_CUBLASLT, s, "%s: %s", what, t->lib->GetStatusName(s));
}

static int multiply(rig *r, void *userdata, stitch_error **err)
{
    lt *t = userdata;
    float one = 1, zero = 0;
    void *d = (void *)(uintptr_t)t->d;
    cublasStatus_t s = t->lib->Matmul(t->handle, t->desc, &one, (const void *)(uintptr_t)t->a, t->in,
                                      (const void *)(uintptr_t)t->b, t->in, &zero, d, t->out, d, t->out, &t->algo,
                                      (void *)(uintptr_t)t->workspace, t->workspace_bytes, (cudaStream_t)r->stream);
    return lt_check(r, t, s, "cublasLtMatmul", err);
}

static cublasStatus_t describe(lt *t, const product *p, int64_t n)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const int8_t fast = p->in_bytes == 1; /* fp8: sums in the tensor cores, as programs that want its speed have them */
    cublasStatus_t s = t->lib->MatmulDescCreate(&t->desc, p->compute, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS && fast)
        s = t->lib->MatmulDescSetAttribute(t->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = t->lib->MatmulDescSetAttribute(t->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = t->lib->MatrixLayoutCreate(&t->in, p->in, (uint64_t)n, (uint64_t)n, n);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = t->lib->MatrixLayoutCreate(&t->out, p->out, (uint64_t)n, (uint64_t)n, n);
    return s;
}

static void undescribe(lt *t)
{
    if (t->in)
        t->lib->MatrixLayoutDestroy(t->in);
    if (t->out)
        t->lib->MatrixLayoutDestroy(t->out);
    if (t->desc)
        t->lib->MatmulDescDestroy(t->desc);
    t->in = t->out = NULL;
    t->desc = NULL;
}

static cublasStatus_t candidates(lt *t, cublasLtMatmulHeuristicResult_t *list, int *count)
{
    const size_t room = WORKSPACE_BYTES;
    cublasLtMatmulPreference_t pref = NULL;
    cublasStatus_t s = t->lib->MatmulPreferenceCreate(&pref);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = t->lib->MatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = t->lib->MatmulAlgoGetHeuristic(t->handle, t->desc, t->in, t->in, t->out, t->out, pref, CANDIDATES, list,
                                           count);
    if (pref)
        t->lib->MatmulPreferenceDestroy(pref);
    return s;
}

/* The algorithm that is fastest in one run becomes that of `t`. */
static int choose(rig *r, lt *t, stitch_error **err)
{
    cublasLtMatmulHeuristicResult_t list[CANDIDATES];
    int count = 0, best = -1;
    double best_us = 0, us = 0;
    memset(list, 0, sizeof(list));
    int rc = lt_check(r, t, candidates(t, list, &count), "cublasLtMatmulAlgoGetHeuristic", err);
    for (int i = 0; i < count && rc == STITCH_OK; i++) {
        if (list[i].state != CUBLAS_STATUS_SUCCESS)
            continue;
        t->algo = list[i].algo;
        t->workspace_bytes = list[i].workspaceSize;
        rc = time_work(r, multiply, t, 1, &us, err);
        if (rc == STITCH_OK && (best < 0 || us < best_us)) {
            best = i;
            best_us = us;
        }
    }
    if (rc)
        return rc;
    if (best < 0)
        return stitch__err(r->dev->ctx, err, STITCH_E_UNSUPPORTED, "cuBLASLt has no algorithm");
    t->algo = list[best].algo;
    t->workspace_bytes = list[best].workspaceSize;
    return STITCH_OK;
}

/* *tflops: an estimate before, what was measured afterwards. */
static int measure_product(rig *r, lt *t, const product *p, double *tflops, stitch_error **err)
{
    int64_t n = p->n;
    double us = 0;
    while (n > N_MIN && *tflops > 0 &&
           2.0 * (double)(n * n) * (double)n > *tflops * 1e6 * PRODUCT_US) /* by what is estimated */
        n /= 2;
    uint64_t elements = (uint64_t)(n * n);
    if (elements * (2 * p->in_bytes + p->out_bytes) > r->bytes)
        return stitch__err(r->dev->ctx, err, STITCH_E_NOMEM, "too little device memory is free");
    t->a = r->block;
    t->b = t->a + elements * p->in_bytes;
    t->d = t->b + elements * p->in_bytes;
    int rc = fill(r, p->keep, p->set, err);
    if (rc == STITCH_OK)
        rc = lt_check(r, t, describe(t, p, n), "cublasLt descriptors", err);
    if (rc == STITCH_OK)
        rc = choose(r, t, err);
    if (rc == STITCH_OK)
        rc = time_work(r, multiply, t, RUNS, &us, err);
    if (rc == STITCH_OK && us > 0)
        *tflops = 2.0 * (double)elements * (double)n / us / 1e6;
    undescribe(t);
    return rc;
}

/* The rest would fail too, or must not be done. */
static bool is_final(int rc)
{
    return rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT || rc == STITCH_E_FAULT;
}

/* A type that cannot be measured keeps its estimate: older devices have no fp8. */
static int measure_products(rig *r, stitch__ceilings *c, bool *matrix, stitch_error **err)
{
    lt t = {0};
    int rc = stitch__cublaslt_get(r->dev->ctx, &t.lib, err);
    if (rc)
        return rc;
    rc = lt_check(r, &t, t.lib->Create(&t.handle), "cublasLtCreate", err);
    if (rc)
        t.handle = NULL;
    else
        rc = stitch__mem_alloc(r->dev, WORKSPACE_BYTES, "cuBLASLt workspace", &t.workspace, err);
    for (size_t i = 0; i < STITCH__COUNT(products) && rc == STITCH_OK; i++) {
        stitch_error *why = NULL;
        double *figure = (double *)(void *)((char *)c + products[i].figure);
        int failed = measure_product(r, &t, &products[i], figure, &why);
        if (is_final(failed)) {
            stitch__err_hand_on(err, &why);
            rc = failed;
        } else if (failed) {
            stitch__log(r->dev->ctx, STITCH_LOG_DEBUG, "a ceiling stays estimated: %s", stitch_error_message(why));
            stitch_error_free(why);
        } else {
            *matrix = true;
        }
    }
    if (r->stream)
        r->dev->drv->StreamSynchronize(r->stream);
    stitch__mem_free(r->dev, t.workspace);
    if (t.handle)
        t.lib->Destroy(t.handle);
    return rc;
}

int stitch__measure(stitch__device *dev, const stitch__scope *scope, stitch__ceilings *c, bool *matrix,
                    stitch_error **err)
{
    rig r = {.dev = dev, .scope = scope};
    stitch_error *why = NULL;
    *matrix = false;
    int rc = scope ? stitch__scope_check(scope, "measuring the device", &why) : STITCH_OK;
    if (rc == STITCH_OK)
        rc = stitch__device_enter(dev, &why);
    if (rc == STITCH_OK) {
        rc = open_rig(&r, &why);
        if (rc == STITCH_OK)
            rc = measure_copy(&r, c, &why);
        if (rc == STITCH_OK)
            rc = measure_launches(&r, c, &why);
        if (rc == STITCH_OK)
            rc = measure_products(&r, c, matrix, &why);
        close_rig(&r);
        stitch__device_leave(dev);
    }
    if (is_final(rc)) {
        stitch__err_hand_on(err, &why);
        return rc;
    }
    if (rc)
        stitch__log(dev->ctx, STITCH_LOG_INFO, "not all ceilings of the device were measured: %s",
                    stitch_error_message(why));
    stitch_error_free(why);
    return STITCH_OK;
}
