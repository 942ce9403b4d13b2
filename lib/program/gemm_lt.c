/* SPDX-License-Identifier: MIT
 *
 * Products on cuBLASLt: descriptors, and the choice of an algorithm.
 *
 * A row-major product c[m,n] = a[m,k] b[k,n] is the column-major product of the transposed matrices with the operands
 * swapped, so that a bias over the columns n is cuBLASLt's bias over rows. The heuristics' first choices are timed on
 * the real shapes once; the winner is kept in the cache folder under everything that decides it.
 */
#include <stdio.h>

#include "program/executor.h"

enum { CANDIDATES = 8, MAX_RUNS = 20 };
#define TUNE_NS_PER_CANDIDATE 2000000 /* about 2 ms of runs for each */

static int lt_check(const stitch_executor *x, cublasStatus_t s, stitch_error **err, const char *place, const char *what)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return STITCH_OK;
    int code = s == CUBLAS_STATUS_ALLOC_FAILED    ? STITCH_E_NOMEM
               : s == CUBLAS_STATUS_NOT_SUPPORTED ? STITCH_E_UNSUPPORTED
                                                  : STITCH_E_LIBRARY;
    return stitch__err_native(x->ctx, err, code, STITCH_DOMAIN_CUBLASLT, s, "%s.gemm: %s: %s", place, what,
                              x->lt->GetStatusName(s));
}

int stitch__lt_open(stitch_executor *x, stitch_error **err)
{
    int rc;
    if (!x->lt && (rc = stitch__cublaslt_get(x->ctx, &x->lt, err)) != STITCH_OK)
        return rc;
    if (!x->lt_handle) {
        cublasStatus_t s = x->lt->Create(&x->lt_handle);
        if (s != CUBLAS_STATUS_SUCCESS) {
            x->lt_handle = NULL;
            return lt_check(x, s, err, "run", "cublasLtCreate");
        }
    }
    for (size_t l = 0; l < x->lane_count; l++) {
        if (!x->lt_workspace[l] &&
            (rc = stitch__mem_alloc(x->dev, x->options.library_workspace_bytes, "cuBLASLt workspace",
                                    &x->lt_workspace[l], err)) != STITCH_OK)
            return rc;
    }
    return STITCH_OK;
}

static void entry_free(stitch_executor *x, stitch__gemm_entry *e)
{
    cublasLtMatrixLayout_t layouts[] = {e->a, e->b, e->c, e->d};
    for (size_t i = 0; i < STITCH__COUNT(layouts); i++) {
        if (layouts[i])
            x->lt->MatrixLayoutDestroy(layouts[i]);
    }
    if (e->desc)
        x->lt->MatmulDescDestroy(e->desc);
}

void stitch__gemm_teardown(stitch_executor *x)
{
    for (size_t i = 0; i < x->gemm_count; i++)
        entry_free(x, &x->gemms[i]);
    stitch_free(x->gemms);
    for (size_t l = 0; l < STITCH__MAX_LANES; l++)
        stitch__mem_free(x->dev, x->lt_workspace[l]);
    if (x->lt_handle)
        x->lt->Destroy(x->lt_handle);
}

/* ---- descriptors ---- */

static cudaDataType_t data_type(int dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F64: return CUDA_R_64F;
    case STITCH_DTYPE_F16: return CUDA_R_16F;
    case STITCH_DTYPE_BF16: return CUDA_R_16BF;
    case STITCH_DTYPE_F8E4M3: return CUDA_R_8F_E4M3;
    case STITCH_DTYPE_F8E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
    }
}

static cublasStatus_t make_layout(stitch_executor *x, cublasLtMatrixLayout_t *out, int dtype, int64_t rows,
                                  int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    cublasStatus_t s = x->lt->MatrixLayoutCreate(out, data_type(dtype), (uint64_t)rows, (uint64_t)cols, ld);
    if (s == CUBLAS_STATUS_SUCCESS && batch > 1) {
        s = x->lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
        if (s == CUBLAS_STATUS_SUCCESS)
            s = x->lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                sizeof(stride));
    }
    return s;
}

static cublasStatus_t make_desc(stitch_executor *x, stitch__gemm_entry *e)
{
    const stitch__gemm_key *k = &e->key;
    const stitch__cublaslt *lt = x->lt;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    cudaDataType_t scale = CUDA_R_32F;
    cublasOperation_t op_a = k->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = k->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;

    e->alpha.f32 = (float)k->alpha;
    e->beta.f32 = (float)k->beta;
    if (k->compute == STITCH_DTYPE_F64) {
        compute = CUBLAS_COMPUTE_64F;
        scale = CUDA_R_64F;
        e->alpha.f64 = k->alpha;
        e->beta.f64 = k->beta;
    } else if (k->compute == STITCH_DTYPE_TF32) {
        compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    } else if (k->compute == STITCH_DTYPE_F16) {
        compute = CUBLAS_COMPUTE_16F;
        scale = CUDA_R_16F;
        e->alpha.f16 = stitch__f16_bits(k->alpha);
        e->beta.f16 = stitch__f16_bits(k->beta);
    }
    cublasStatus_t s = lt->MatmulDescCreate(&e->desc, compute, scale);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b));
    static const cublasLtEpilogue_t epilogues[3][2] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
                                                       {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS},
                                                       {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS}};
    cublasLtEpilogue_t epilogue = epilogues[k->epilogue][k->has_bias != 0];
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (s == CUBLAS_STATUS_SUCCESS && k->has_bias) {
        int32_t type = data_type(k->bias_type);
        s = lt->MatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type));
    }
    return s;
}

static cublasStatus_t set_bias(stitch_executor *x, stitch__gemm_entry *e, CUdeviceptr bias)
{
    const void *p = (const void *)(uintptr_t)bias;
    return e->key.has_bias ? x->lt->MatmulDescSetAttribute(e->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p, sizeof(p))
                           : CUBLAS_STATUS_SUCCESS;
}

static int describe(stitch_executor *x, stitch__gemm_entry *e, const char *place, stitch_error **err)
{
    const stitch__gemm_key *k = &e->key;
    cublasStatus_t s = make_desc(x, e);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(x, &e->a, k->b_type, k->trans_b ? k->k : k->n, k->trans_b ? k->n : k->k, k->ldb, k->batch,
                        k->stride_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(x, &e->b, k->a_type, k->trans_a ? k->m : k->k, k->trans_a ? k->k : k->m, k->lda, k->batch,
                        k->stride_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(x, &e->c, k->d_type, k->n, k->m, k->ldd, k->batch, k->stride_d);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = make_layout(x, &e->d, k->c_type, k->n, k->m, k->ldc, k->batch, k->stride_c);
    return lt_check(x, s, err, place, "cublasLt descriptors");
}

/* ---- algorithms ---- */

static int candidates(stitch_executor *x, stitch__gemm_entry *e, const char *place,
                      cublasLtMatmulHeuristicResult_t *out, int *count, stitch_error **err)
{
    const stitch__cublaslt *lt = x->lt;
    const stitch__gemm_key *k = &e->key;
    cublasLtMatmulPreference_t pref = NULL;
    size_t workspace = (size_t)x->options.library_workspace_bytes;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t bytes;
    } aligns[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, k->b_align},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, k->a_align},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, k->d_align},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, k->c_align}};

    *count = 0;
    cublasStatus_t s = lt->MatmulPreferenceCreate(&pref);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                             sizeof(workspace));
    for (size_t i = 0; i < STITCH__COUNT(aligns) && s == CUBLAS_STATUS_SUCCESS; i++)
        s = lt->MatmulPreferenceSetAttribute(pref, aligns[i].attribute, &aligns[i].bytes, sizeof(aligns[i].bytes));
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulAlgoGetHeuristic(x->lt_handle, e->desc, e->a, e->b, e->c, e->d, pref, CANDIDATES, out, count);
    if (pref)
        lt->MatmulPreferenceDestroy(pref);
    int usable = 0; /* the library marks results that do not run */
    for (int i = 0; s == CUBLAS_STATUS_SUCCESS && i < *count; i++) {
        if (out[i].state == CUBLAS_STATUS_SUCCESS)
            out[usable++] = out[i];
    }
    *count = usable;
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || (s == CUBLAS_STATUS_SUCCESS && *count == 0))
        return stitch__err_native(
            x->ctx, err, STITCH_E_UNSUPPORTED, STITCH_DOMAIN_CUBLASLT, s,
            "%s.gemm: cuBLASLt has no algorithm for %s x %s -> %s, computed in %s, with these sizes and strides", place,
            stitch_dtype_name(k->a_type), stitch_dtype_name(k->b_type), stitch_dtype_name(k->c_type),
            stitch_dtype_name(k->compute));
    return lt_check(x, s, err, place, "cublasLtMatmulAlgoGetHeuristic");
}

int stitch__lt_run(stitch_executor *x, stitch__gemm_entry *e, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d,
                   CUdeviceptr c, CUdeviceptr bias, CUstream stream, CUdeviceptr workspace, const char *place,
                   stitch_error **err)
{
    cublasStatus_t s = set_bias(x, e, bias);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = x->lt->Matmul(x->lt_handle, e->desc, &e->alpha, (const void *)(uintptr_t)b, e->a,
                          (const void *)(uintptr_t)a, e->b, &e->beta, (const void *)(uintptr_t)d, e->c,
                          (void *)(uintptr_t)c, e->d, &e->algo, (void *)(uintptr_t)workspace, e->workspace,
                          (cudaStream_t)stream);
    return lt_check(x, s, err, place, "cublasLtMatmul");
}

/* ---- choices kept on disk ---- */

typedef struct saved_choice {
    char magic[8];
    cublasLtMatmulAlgo_t algo;
    uint64_t workspace;
} saved_choice;

static const char choice_magic[8] = "stchgm1";

static char *choice_path(const stitch_executor *x, const stitch__gemm_key *key)
{
    const char *cache = stitch__context_options(x->ctx)->cache_dir;
    uint64_t workspace = x->options.library_workspace_bytes, version = x->lt->version;
    char hex[65], name[80];
    stitch__sha256 h;
    if (!*cache)
        return NULL;
    stitch__sha256_init(&h);
    stitch__sha256_string(&h, x->dev->info.name);
    stitch__sha256_update(&h, &version, sizeof(version));
    stitch__sha256_update(&h, &workspace, sizeof(workspace));
    stitch__sha256_update(&h, key, sizeof(*key));
    stitch__sha256_hex(&h, hex);
    snprintf(name, sizeof(name), "gemm/%.40s", hex);
    return stitch__path_join(x->ctx, cache, name);
}

static bool choice_load(stitch_executor *x, stitch__gemm_entry *e, const cublasLtMatmulHeuristicResult_t *list,
                        int count)
{
    char *path = choice_path(x, &e->key), *data = NULL;
    size_t len = 0;
    saved_choice c;
    bool found = false;
    if (path && stitch__file_read(x->ctx, path, sizeof(c), &data, &len, NULL) == STITCH_OK && len == sizeof(c)) {
        memcpy(&c, data, sizeof(c));
        /* Only what the heuristics offer today is taken: a damaged file must not reach the library. */
        for (int i = 0; i < count && memcmp(c.magic, choice_magic, sizeof(c.magic)) == 0 && !found; i++) {
            found = memcmp(&c.algo, &list[i].algo, sizeof(c.algo)) == 0;
            if (found) {
                e->algo = list[i].algo;
                e->workspace = list[i].workspaceSize;
            }
        }
    }
    stitch_free(data);
    stitch_free(path);
    return found;
}

static void choice_save(stitch_executor *x, const stitch__gemm_entry *e)
{
    char *path = choice_path(x, &e->key), *folder = path ? stitch__strdup(x->ctx, path) : NULL;
    saved_choice c;
    if (folder) {
        *strrchr(folder, '/') = 0;
        memset(&c, 0, sizeof(c));
        memcpy(c.magic, choice_magic, sizeof(c.magic));
        c.algo = e->algo;
        c.workspace = e->workspace;
        /* Best effort: without it, the next process chooses again. */
        if (stitch__mkdirs(x->ctx, folder, NULL) == STITCH_OK)
            stitch__file_write(x->ctx, path, &c, sizeof(c), NULL);
    }
    stitch_free(folder);
    stitch_free(path);
}

/* ---- tuning ---- */

/* Microseconds of one run with the entry's algorithm; < 0 where it does not run. Fails where waiting does: cancelled,
 * or the device is lost. */
static int time_algorithm(stitch_executor *x, stitch__gemm_entry *e, const CUdeviceptr p[5], CUevent begin, CUevent end,
                          const char *place, double *out, stitch_error **err)
{
    const stitch__driver *drv = x->dev->drv;
    stitch__scope scope = stitch__scope_make(x->ctx, NULL, 0);
    float ms = 0;
    int runs = 1, rc;
    double best = -1;

    *out = -1;
    for (int round = 0; round < 3; round++) { /* the first round warms up and sets the number of runs */
        if (drv->EventRecord(begin, x->capture) != CUDA_SUCCESS)
            return STITCH_OK;
        for (int i = 0; i < runs; i++) {
            if (stitch__lt_run(x, e, p[0], p[1], p[2], p[3], p[4], x->capture, x->lt_workspace[0], place, NULL) !=
                STITCH_OK)
                return STITCH_OK;
        }
        CUresult r = drv->EventRecord(end, x->capture);
        if ((rc = stitch__stream_wait(x->dev, x->capture, &scope, "choosing an algorithm for a product", err)) !=
            STITCH_OK)
            return rc;
        if (r != CUDA_SUCCESS || drv->EventElapsedTime(&ms, begin, end) != CUDA_SUCCESS)
            return STITCH_OK;
        double us = ms * 1000.0 / runs;
        if (round && (best < 0 || us < best))
            best = us;
        double fit = us > 0 ? TUNE_NS_PER_CANDIDATE / 2000.0 / us : MAX_RUNS;
        runs = fit > MAX_RUNS ? MAX_RUNS : fit < 1 ? 1 : (int)fit;
    }
    *out = best;
    return STITCH_OK;
}

/* Gives the entry the fastest algorithm of the list. Results go to scratch memory, so that tuning changes nothing that
 * the host or a run can see. Without events or memory the first choice stays. */
static int tune(stitch_executor *x, stitch__gemm_entry *e, const char *place,
                const cublasLtMatmulHeuristicResult_t *list, int count, CUdeviceptr a, CUdeviceptr b, CUdeviceptr bias,
                CUdeviceptr d, stitch_error **err)
{
    const stitch__gemm_key *k = &e->key;
    const stitch__driver *drv = x->dev->drv;
    CUdeviceptr scratch = 0;
    CUevent begin = NULL, end = NULL;
    int best = 0, rc = STITCH_OK;
    double best_us = -1, us;
    size_t bytes =
        (size_t)stitch__matrix_extent(k->m, k->n, k->ldc, k->batch, k->stride_c) * stitch_dtype_size(k->c_type);

    if (count < 2 || drv->EventCreate(&begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        drv->EventCreate(&end, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
        stitch__mem_alloc(x->dev, bytes, "scratch for choosing an algorithm", &scratch, NULL) != STITCH_OK)
        goto out;
    const CUdeviceptr p[5] = {a, b, d ? d : scratch, scratch, bias};
    for (int i = 0; i < count; i++) {
        e->algo = list[i].algo;
        e->workspace = list[i].workspaceSize;
        if ((rc = time_algorithm(x, e, p, begin, end, place, &us, err)) != STITCH_OK)
            goto out;
        if (us >= 0 && (best_us < 0 || us < best_us)) {
            best_us = us;
            best = i;
        }
    }
    stitch__log(x->ctx, STITCH_LOG_DEBUG, "%s.gemm: algorithm %d of %d, %.1f us", place, best + 1, count, best_us);
out:
    e->algo = list[best].algo;
    e->workspace = list[best].workspaceSize;
    if (best_us >= 0 && rc == STITCH_OK)
        choice_save(x, e);
    stitch__mem_free(x->dev, scratch);
    if (begin)
        drv->EventDestroy(begin);
    if (end)
        drv->EventDestroy(end);
    return rc;
}

int stitch__lt_entry(stitch_executor *x, const stitch__gemm_key *key, const char *place, CUdeviceptr a, CUdeviceptr b,
                     CUdeviceptr bias, CUdeviceptr d, stitch__gemm_entry **out, stitch_error **err)
{
    cublasLtMatmulHeuristicResult_t list[CANDIDATES];
    stitch__gemm_entry e;
    int count, rc;

    for (size_t i = 0; i < x->gemm_count; i++) {
        if (memcmp(&x->gemms[i].key, key, sizeof(*key)) == 0) {
            *out = &x->gemms[i];
            return STITCH_OK;
        }
    }
    if (stitch__grow(x->ctx, &x->gemms, &x->gemm_capacity, x->gemm_count + 1, sizeof(*x->gemms)) != STITCH_OK)
        return stitch__err_nomem(x->ctx, err);
    memset(&e, 0, sizeof(e));
    memset(list, 0, sizeof(list));
    e.key = *key;
    if ((rc = describe(x, &e, place, err)) != STITCH_OK ||
        (rc = candidates(x, &e, place, list, &count, err)) != STITCH_OK)
        goto failed;
    e.algo = list[0].algo;
    e.workspace = list[0].workspaceSize;
    if (!x->options.no_tuning && !x->gemm_frozen && !choice_load(x, &e, list, count) &&
        (rc = tune(x, &e, place, list, count, a, b, bias, d, err)) != STITCH_OK)
        goto failed;
    x->gemms[x->gemm_count] = e;
    *out = &x->gemms[x->gemm_count++];
    return STITCH_OK;
failed:
    entry_free(x, &e);
    return rc;
}
