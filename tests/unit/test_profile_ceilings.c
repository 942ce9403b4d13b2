/* SPDX-License-Identifier: MIT
 *
 * Ceilings: estimates against data sheets, the file that keeps them, and measuring on a fake device with a fake
 * cuBLASLt, with everything that can fail.
 */
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "cuda/internal.h"
#include "fake_driver.h"
#include "profile/measure.h"
#include <stitch/task.h>

static char folder[64];
static stitch_context *ctx;
static stitch_error *err;
static stitch__device *dev;
static stitch__ceilings got;

/* ---- estimates ---- */

static stitch__ceilings estimate(const char *device)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *c = NULL;
    stitch__device *d;
    stitch__ceilings out, same;
    o.device = device;
    o.cache_dir = "";
    CHECK_OK(stitch_context_new(&c, &o, &err));
    int rc = stitch__device_get(c, &d, &err);
    if (rc) {
        stitch_context_free(c);
        SKIP(stitch_error_message(err));
    }
    stitch__ceilings_estimate(d, &out);
    CHECK_OK(stitch__ceilings_get(c, d, NULL, &same, &err));
    CHECK(memcmp(&out, &same, sizeof(out)) == 0);
    CHECK(!out.measured && out.launch_us == 0);
    stitch_context_free(c);
    return out;
}

/* Within a tenth: data sheets reckon with various clocks. */
static void near(double value, double sheet)
{
    if (!(value > sheet * 0.9 && value < sheet * 1.1))
        FAIL("%g is not %g", value, sheet);
}

TEST(estimates_are_those_of_data_sheets)
{
    stitch__ceilings a100 = estimate("sim:sm_80"), h200 = estimate("sim:sm_90a"), rtx = estimate("sim:sm_120");
    near(a100.dram_gb_s, 2039);
    near(a100.f32_tflops, 19.5);
    near(a100.tf32_tflops, 156);
    near(a100.f16_tflops, 312);
    near(a100.bf16_tflops, 312);
    CHECK_NEAR(a100.f8_tflops, 0, 0);
    near(h200.dram_gb_s, 4800);
    near(h200.f32_tflops, 67);
    near(h200.tf32_tflops, 494);
    near(h200.f16_tflops, 989);
    near(h200.f8_tflops, 1979);
    near(rtx.dram_gb_s, 1792);
    near(rtx.f32_tflops, 104.8);
    near(rtx.f16_tflops, 419);
    near(rtx.f8_tflops, 838);
}

TEST(what_nobody_knows)
{
    stitch__driver none;
    stitch__ceilings c;
    stitch__device d = {.drv = &none};
    memset(&none, 0, sizeof(none));
    CHECK_OK(stitch__driver_bind(NULL, fake_get_proc, NULL, "the fake", &none, &err));
    d.info.compute_major = 77;
    d.info.multiprocessors = 100;
    d.info.clock_khz = 1000000;
    stitch__ceilings_estimate(&d, &c);
    CHECK_NEAR(c.f32_tflops + c.f16_tflops + c.dram_gb_s, 0, 0);
    CHECK(!stitch__arch_rates_of(7, 5) && stitch__arch_rates_of(8, 7) && stitch__arch_rates_of(12, 1));
}

TEST(the_fastest_unit_of_a_precision)
{
    stitch__ceilings c = {.f32_tflops = 1, .tf32_tflops = 2, .f16_tflops = 3, .bf16_tflops = 4, .f8_tflops = 5};
    CHECK_NEAR(stitch__ceilings_matrix(&c, STITCH_PRECISION_F32), 1, 0);
    CHECK_NEAR(stitch__ceilings_matrix(&c, STITCH_PRECISION_TF32), 2, 0);
    CHECK_NEAR(stitch__ceilings_matrix(&c, STITCH_PRECISION_F16), 4, 0);
    CHECK_NEAR(stitch__ceilings_matrix(&c, STITCH_PRECISION_ANY), 5, 0);
    CHECK_NEAR(stitch__ceilings_matrix(&c, -1), 0, 0);
    CHECK_NEAR(stitch__ceilings_matrix(&c, 99), 0, 0);
    c = (stitch__ceilings){.f32_tflops = 1};
    CHECK_NEAR(stitch__ceilings_matrix(&c, STITCH_PRECISION_ANY), 1, 0);
}

/* ---- a device that takes known times ---- */

static void run_nothing(void **params)
{
}

static size_t free_bytes;

/* As the fake's, but without memory: nothing here looks at it, and it is a lot. */
static CUresult mem_alloc(CUdeviceptr *out, size_t bytes)
{
    if (fake.fault)
        return fake.fault;
    if (fake.allocations_left == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake.allocations_left -= fake.allocations_left > 0;
    *out = UINT64_C(1) << 40 | (CUdeviceptr)fake.live++ << 32;
    return CUDA_SUCCESS;
}

static CUresult mem_free(CUdeviceptr ptr)
{
    fake.live--;
    return CUDA_SUCCESS;
}

static CUresult mem_info(size_t *out, size_t *total)
{
    *out = free_bytes;
    *total = (size_t)8 << 30;
    return CUDA_SUCCESS;
}

enum { COPY, FILL, NOTHING };
static const size_t sizes[3][4] = {{8, 8, 4}, {8, 4, 4, 4}, {0}};
static fake_kernel kernels[3] = {{"copy", 3, sizes[COPY], run_nothing, 128, 0},
                                 {"fill", 4, sizes[FILL], run_nothing, 64, 0},
                                 {"nothing", 0, sizes[NOTHING], run_nothing, 2.5, 0}};

static void replace_memory(stitch__driver *drv)
{
    drv->MemGetInfo = mem_info;
    drv->MemAlloc = mem_alloc;
    drv->MemFree = mem_free;
}

/* ---- a cuBLASLt ---- */

typedef enum lt_function {
    NONE,
    CREATE,
    DESC,
    ATTRIBUTE,
    LAYOUT,
    PREFERENCE,
    HEURISTIC,
    MATMUL,
    LT_FUNCTIONS
} lt_function;

static struct {
    lt_function fail;
    cublasStatus_t with;
    int live, products, algorithms;
    bool no_f8;
    cudaDataType_t type; /* of the last layout but one */
} fake_lt;

#define LT(function)                                                                                                   \
    do {                                                                                                               \
        if (fake_lt.fail == function)                                                                                  \
            return fake_lt.with;                                                                                       \
    } while (0)

static int a_thing;

static const char *lt_status(cublasStatus_t s)
{
    return "CUBLAS_STATUS";
}

static cublasStatus_t lt_make(void **out)
{
    *out = &a_thing;
    fake_lt.live++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_drop(void)
{
    fake_lt.live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_create(cublasLtHandle_t *out)
{
    LT(CREATE);
    return lt_make((void **)out);
}

static cublasStatus_t lt_destroy(cublasLtHandle_t h)
{
    return lt_drop();
}

static cublasStatus_t lt_desc(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    LT(DESC);
    return lt_make((void **)out);
}

static cublasStatus_t lt_desc_drop(cublasLtMatmulDesc_t d)
{
    return lt_drop();
}

static cublasStatus_t lt_attribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a, const void *v, size_t size)
{
    LT(ATTRIBUTE);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols,
                                int64_t ld)
{
    LT(LAYOUT);
    if (type == CUDA_R_8F_E4M3 && fake_lt.no_f8)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return lt_make((void **)out);
}

static cublasStatus_t lt_layout_drop(cublasLtMatrixLayout_t l)
{
    return lt_drop();
}

static cublasStatus_t lt_preference(cublasLtMatmulPreference_t *out)
{
    LT(PREFERENCE);
    return lt_make((void **)out);
}

static cublasStatus_t lt_preference_set(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t a,
                                        const void *v, size_t size)
{
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_preference_drop(cublasLtMatmulPreference_t p)
{
    return lt_drop();
}

/* Algorithm i takes 3, 2 or 4 times 1000 microseconds; the first one is marked as one that does not run. */
static cublasStatus_t lt_heuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                   cublasLtMatmulPreference_t p, int room, cublasLtMatmulHeuristicResult_t *list,
                                   int *count)
{
    LT(HEURISTIC);
    for (*count = 0; *count < fake_lt.algorithms && *count < room; ++*count) {
        list[*count].state = *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
        list[*count].algo.data[0] = (uint64_t)*count;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                                cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                                const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                                const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes, cudaStream_t s)
{
    static const double us[] = {1, 3000, 2000, 4000};
    LT(MATMUL);
    fake_lt.products++;
    fake.clock_us += us[algo->data[0]];
    return CUBLAS_STATUS_SUCCESS;
}

static const stitch__cublaslt library = {.GetStatusName = lt_status,
                                         .Create = lt_create,
                                         .Destroy = lt_destroy,
                                         .MatmulDescCreate = lt_desc,
                                         .MatmulDescDestroy = lt_desc_drop,
                                         .MatmulDescSetAttribute = lt_attribute,
                                         .MatrixLayoutCreate = lt_layout,
                                         .MatrixLayoutDestroy = lt_layout_drop,
                                         .MatmulPreferenceCreate = lt_preference,
                                         .MatmulPreferenceSetAttribute = lt_preference_set,
                                         .MatmulPreferenceDestroy = lt_preference_drop,
                                         .MatmulAlgoGetHeuristic = lt_heuristic,
                                         .Matmul = lt_matmul};

/* ---- a context of both ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void close_all(void)
{
    stitch_error_free(err);
    err = NULL;
    stitch_context_free(ctx);
    ctx = NULL;
    if (folder[0])
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    folder[0] = '\0';
}

static void begin_fresh(bool with_library)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    const stitch__nvrtc *nvrtc;
    stitch__cuda *cuda;
    close_all();
    setenv("STITCH_CUBLASLT", "/nonexistent/libcublasLt.so", 1);
    snprintf(folder, sizeof(folder), "/tmp/stitch-ceilings-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    fake.kernels = kernels;
    fake.kernel_count = 3;
    fake.fault = CUDA_SUCCESS;
    fake.allocations_left = -1;
    fake.busy_until_ns = 0;
    memset(&fake_lt, 0, sizeof(fake_lt));
    fake_lt.algorithms = 4;
    for (int i = 0; i < 3; i++)
        kernels[i].launches = 0;
    o.device = "cuda:0";
    o.get_proc = fake_get_proc;
    o.cache_dir = folder;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    CHECK_OK(stitch__cuda_state(ctx, &cuda, &err));
    cuda->cublaslt = library;
    cuda->cublaslt_ready = with_library;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    replace_memory(&cuda->driver);
    free_bytes = (size_t)4 << 30;
    if (stitch__nvrtc_get(ctx, &nvrtc, &err) != STITCH_OK)
        SKIP(stitch_error_message(err));
}

static int get(void)
{
    return stitch__ceilings_get(ctx, dev, NULL, &got, &err);
}

static bool is_kept(void)
{
    char *path = stitch__ceilings_path(ctx, dev);
    bool kept = path && stitch__path_exists(path);
    stitch_free(path);
    return kept;
}

static double tflops(double n, double us)
{
    return 2 * n * n * n / us / 1e6;
}

TEST(measured_once)
{
    begin_fresh(true);
    int live = fake.live;
    CHECK_OK(get());
    CHECK(got.measured);
    CHECK_NEAR(got.dram_gb_s, (512 << 20) / 128.0 / 1e3, 1e-3);
    CHECK_NEAR(got.launch_us, 2.5, 1e-3);
    CHECK_NEAR(got.graph_node_us, 2.5, 1e-3);
    CHECK_NEAR(got.f16_tflops, tflops(1024, 2000), 1e-3); /* a slow device: smaller products. The fastest algorithm */
    CHECK_NEAR(got.bf16_tflops, tflops(1024, 2000), 1e-3);
    CHECK_NEAR(got.f8_tflops, tflops(1024, 2000), 1e-3);
    CHECK_NEAR(got.tf32_tflops, tflops(768, 2000), 1e-3);
    CHECK_NEAR(got.f32_tflops, tflops(1024, 2000), 1e-3);
    CHECK_INT(fake.live, live);
    CHECK_INT(fake_lt.live, 0);
    CHECK(is_kept());
    stitch__ceilings first = got;
    int launches = kernels[COPY].launches;
    CHECK_OK(get());
    CHECK_INT(kernels[COPY].launches, launches);
    CHECK(got.measured);
    CHECK_NEAR(got.dram_gb_s, first.dram_gb_s, 1e-9);
    CHECK_NEAR(got.graph_node_us, first.graph_node_us, 1e-9);
    CHECK_NEAR(got.f32_tflops, first.f32_tflops, 1e-9);
    dev->info.driver_version++; /* another driver */
    CHECK_OK(get());
    CHECK(kernels[COPY].launches > launches);
    close_all();
}

TEST(without_a_cache_folder)
{
    begin_fresh(true);
    stitch_context_free(ctx);
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch__cuda *cuda;
    o.device = "cuda:0";
    o.get_proc = fake_get_proc;
    o.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    CHECK_OK(stitch__cuda_state(ctx, &cuda, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    replace_memory(&cuda->driver);
    CHECK_OK(get());
    CHECK(got.measured && got.launch_us > 0);
    close_all();
}

TEST(without_cublaslt)
{
    stitch__ceilings estimated;
    begin_fresh(false);
    stitch__ceilings_estimate(dev, &estimated);
    CHECK_OK(get());
    CHECK(got.measured && got.launch_us > 0);
    CHECK_NEAR(got.f16_tflops, estimated.f16_tflops, 0);
    int launches = kernels[COPY].launches;
    CHECK_OK(get());
    CHECK_INT(kernels[COPY].launches, launches);
    CHECK_NEAR(got.f16_tflops, estimated.f16_tflops, 1e-12);
    /* It has come since: measured again. */
    char *file = stitch__path_join(NULL, folder, "libcublasLt.so");
    CHECK_OK(stitch__file_write(NULL, file, "x", 1, &err));
    setenv("STITCH_CUBLASLT", file, 1);
    stitch_free(file);
    CHECK_OK(get());
    CHECK(kernels[COPY].launches > launches);
    close_all();
}

/* A type that this device has not keeps its estimate; whatever fails, the rest is measured and nothing stays. */
TEST(cublaslt_fails)
{
    stitch__ceilings estimated;
    begin_fresh(true);
    fake_lt.no_f8 = true;
    stitch__ceilings_estimate(dev, &estimated);
    CHECK_OK(get());
    CHECK_NEAR(got.f8_tflops, estimated.f8_tflops, 0);
    CHECK_NEAR(got.f16_tflops, tflops(1024, 2000), 1e-3);
    CHECK_INT(fake_lt.live, 0);
    for (int f = CREATE; f < LT_FUNCTIONS; f++) {
        for (int n = 0; n < 2; n++) {
            begin_fresh(true);
            int live = fake.live;
            fake_lt.fail = (lt_function)f;
            fake_lt.with = n ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_INTERNAL_ERROR;
            CHECK_OK(get());
            CHECK(got.measured && got.launch_us > 0);
            CHECK_NEAR(got.f16_tflops, estimated.f16_tflops, 0);
            CHECK_INT(fake_lt.live, 0);
            CHECK_INT(fake.live, live);
        }
    }
    for (int n = 0; n < 2; n++) { /* none that runs */
        begin_fresh(true);
        fake_lt.algorithms = n;
        CHECK_OK(get());
        CHECK_NEAR(got.f16_tflops, estimated.f16_tflops, 0);
        CHECK_INT(fake_lt.live, 0);
    }
    close_all();
}

TEST(the_device_fails)
{
    stitch__ceilings estimated;
    for (long n = 0; n < 12; n++) { /* memory, streams, events, ... */
        begin_fresh(true);
        stitch__ceilings_estimate(dev, &estimated);
        int live = fake.live;
        fake.allocations_left = n;
        CHECK_OK(get());
        if (!got.measured) {
            CHECK_NEAR(got.dram_gb_s, estimated.dram_gb_s, 0);
            CHECK(!is_kept());
        }
        CHECK_INT(fake.live, live);
    }
    begin_fresh(true);
    free_bytes = (size_t)400 << 20; /* a smaller block, into which not all products fit */
    CHECK_OK(get());
    CHECK_NEAR(got.dram_gb_s, (100 << 20) / 128.0 / 1e3, 1e-3);
    begin_fresh(true);
    free_bytes = (size_t)100 << 20;
    CHECK_OK(get());
    CHECK(!got.measured && !is_kept());
    begin_fresh(true);
    fake.fault = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_ERR(get(), STITCH_E_FAULT, "lost");
    fake.fault = CUDA_SUCCESS;
    close_all();
}

TEST(cancelled)
{
    begin_fresh(true);
    int live = fake.live;
    stitch__scope scope = stitch__scope_make(ctx, NULL, 1);
    stitch__sleep_ms(3);
    CHECK_ERR(stitch__ceilings_get(ctx, dev, &scope, &got, &err), STITCH_E_TIMEOUT, "measuring the device");
    fake.busy_until_ns = stitch__now_ns() + INT64_C(60000000000); /* hangs */
    scope = stitch__scope_make(ctx, NULL, 50);
    CHECK_ERR(stitch__ceilings_get(ctx, dev, &scope, &got, &err), STITCH_E_TIMEOUT, "measuring the device");
    fake.busy_until_ns = 0;
    CHECK(!is_kept());
    CHECK_INT(fake.live, live);
    close_all();
}

TEST(kept)
{
    begin_fresh(true);
    CHECK(!stitch__ceilings_kept(ctx, dev));
    CHECK_OK(get());
    CHECK(stitch__ceilings_kept(ctx, dev));
    close_all();
}

/* ---- the file ---- */

static void write_kept(const char *text)
{
    char *path = stitch__ceilings_path(ctx, dev);
    CHECK(path);
    CHECK_OK(stitch__file_write(ctx, path, text, strlen(text), &err));
    stitch_free(path);
}

TEST(files_that_are_not_good)
{
    static const char good[] = "{\"stitch_ceilings\":1,\"device\":\"fake device\",\"driver\":12040,\"matrix\":true,"
                               "\"dram_gb_s\":11,\"f32_tflops\":1,\"tf32_tflops\":2,\"f16_tflops\":3,\"bf16_tflops\":4,"
                               "\"f8_tflops\":0,\"launch_us\":5.5,\"graph_node_us\":6}";
    static const char *const changes[][2] = {
        {"\"stitch_ceilings\":1", "\"stitch_ceilings\":2"},
        {"\"stitch_ceilings\":1", "\"stitch_ceilings\":\"1\""},
        {"fake device", "another device"},
        {"\"device\":\"fake device\"", "\"device\":7"},
        {"12040", "12030"},
        {"\"dram_gb_s\":11", "\"dram_gb_s\":0"},
        {"\"dram_gb_s\":11", "\"dram_gb_s\":\"11\""},
        {"\"dram_gb_s\":11,", ""},
        {"\"f16_tflops\":3", "\"f16_tflops\":-3"},
        {"\"f16_tflops\":3", "\"f16_tflops\":1e300"},
        {"\"f16_tflops\":3", "\"f16_tflops\":null"},
        {"\"launch_us\":5.5", "\"launch_us\":[5.5]"},
        {"\"graph_node_us\":6}", "\"graph_node_us\":6"},
        {"{\"stitch", "[\"stitch"},
        {"{", ""},
    };
    begin_fresh(true);
    CHECK_OK(get()); /* makes the folder */
    write_kept(good);
    int launches = kernels[COPY].launches;
    CHECK_OK(get());
    CHECK_INT(kernels[COPY].launches, launches);
    CHECK(got.measured);
    CHECK_NEAR(got.dram_gb_s, 11, 0);
    CHECK_NEAR(got.f8_tflops, 0, 0);
    CHECK_NEAR(got.launch_us, 5.5, 0);
    for (size_t i = 0; i < STITCH__COUNT(changes); i++) {
        char text[1024];
        const char *at = strstr(good, changes[i][0]);
        CHECK(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, changes[i][1], at + strlen(changes[i][0]));
        write_kept(text);
        launches = kernels[COPY].launches;
        CHECK_OK(get());
        if (kernels[COPY].launches == launches)
            FAIL("the file was taken with %s", changes[i][1]);
        CHECK_NEAR(got.launch_us, 2.5, 1e-3);
        launches = kernels[COPY].launches;
        CHECK_OK(get()); /* it is good again */
        CHECK_INT(kernels[COPY].launches, launches);
    }
    for (size_t len = 0; len < sizeof(good) - 1; len += 7) {
        char text[1024];
        snprintf(text, sizeof(text), "%.*s", (int)len, good);
        write_kept(text);
        launches = kernels[COPY].launches;
        CHECK_OK(get());
        CHECK(kernels[COPY].launches > launches);
    }
    close_all();
}

TEST(a_folder_that_cannot_be_written)
{
    begin_fresh(true);
    char *path = stitch__path_join(NULL, folder, "ceilings");
    CHECK_OK(stitch__file_write(NULL, path, "in the way", 10, &err));
    stitch_free(path);
    CHECK_OK(get());
    CHECK(got.measured);
    close_all();
}

static const check_test tests[] = {RUN(estimates_are_those_of_data_sheets),
                                   RUN(what_nobody_knows),
                                   RUN(the_fastest_unit_of_a_precision),
                                   RUN(measured_once),
                                   RUN(without_a_cache_folder),
                                   RUN(without_cublaslt),
                                   RUN(cublaslt_fails),
                                   RUN(the_device_fails),
                                   RUN(cancelled),
                                   RUN(kept),
                                   RUN(files_that_are_not_good),
                                   RUN(a_folder_that_cannot_be_written)};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    close_all();
    return rc;
}
