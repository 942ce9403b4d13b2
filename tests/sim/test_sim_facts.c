/* SPDX-License-Identifier: MIT
 *
 * The simulator's counters as facts: kernels that waste sectors, wavefronts and branches, beside ones that do not, run
 * as a program on a simulated device. What each must count follows from its source.
 */
#include <math.h>

#include "check.h"
#include "cuda/cuda.h"
#include "profile/advice.h"
#include "program/executor.h"
#include "sim/sim_ext.h"

#include <stitch/task.h>

/* 64 x 64: 4 blocks of 1024 threads, 128 warps, each with one load and one store of global memory. */
#define SOURCE                                                                                                         \
    "#include <cuda_fp16.h>\n"                                                                                         \
    "__global__ void naive(const float *x, float *y, int n)\n"                                                         \
    "{\n"                                                                                                              \
    "    int r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;\n"                                  \
    "    float v = x[r * n + c];\n"                                                                                    \
    "    y[c * n + r] = v; // line 6\n"                                                                                \
    "}\n"                                                                                                              \
    "template <int pad> __global__ void tiled(const float *x, float *y, int n)\n"                                      \
    "{\n"                                                                                                              \
    "    __shared__ float tile[32][32 + pad];\n"                                                                       \
    "    int r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;\n"                                  \
    "    tile[threadIdx.y][threadIdx.x] = x[r * n + c];\n"                                                             \
    "    __syncthreads();\n"                                                                                           \
    "    r = blockIdx.x * 32 + threadIdx.y, c = blockIdx.y * 32 + threadIdx.x;\n"                                      \
    "    float v = tile[threadIdx.x][threadIdx.y]; // line 15\n"                                                       \
    "    y[r * n + c] = v;\n"                                                                                          \
    "}\n"                                                                                                              \
    "__global__ void odd(float *y)\n"                                                                                  \
    "{\n"                                                                                                              \
    "    __half h = __float2half(y[threadIdx.x]);\n"                                                                   \
    "    for (int i = 0; i < threadIdx.x % 4; i++)\n"                                                                  \
    "        h = __hadd(h, __hmul(h, h));\n"                                                                           \
    "    atomicAdd(&y[threadIdx.x / 2], __half2float(h));\n"                                                           \
    "}\n"                                                                                                              \
    "#include <mma.h>\n"                                                                                               \
    "__global__ void product(float *y)\n"                                                                              \
    "{\n"                                                                                                              \
    "    using namespace nvcuda::wmma;\n"                                                                              \
    "    fragment<matrix_a, 16, 16, 16, __half, row_major> a;\n"                                                       \
    "    fragment<matrix_b, 16, 16, 16, __half, col_major> b;\n"                                                       \
    "    fragment<accumulator, 16, 16, 16, float> c;\n"                                                                \
    "    fill_fragment(a, __float2half(1.f));\n"                                                                       \
    "    fill_fragment(b, __float2half(2.f));\n"                                                                       \
    "    fill_fragment(c, 0.f);\n"                                                                                     \
    "    mma_sync(c, a, b, c);\n"                                                                                      \
    "    mma_sync(c, a, b, c);\n"                                                                                      \
    "    store_matrix_sync(y, c, 64, mem_row_major);\n"                                                                \
    "}\n"                                                                                                              \
    "__global__ void matmul(const float *x, float *y, int n)\n"                                                        \
    "{\n"                                                                                                              \
    "    int r = blockIdx.y * 32 + threadIdx.y, c = blockIdx.x * 32 + threadIdx.x;\n"                                  \
    "    float s = 0;\n"                                                                                               \
    "    for (int k = 0; k < n; k++)\n"                                                                                \
    "        s += x[r * n + k] * x[k * n + c];\n"                                                                      \
    "    y[r * n + c] = s;\n"                                                                                          \
    "}\n"                                                                                                              \
    "__global__ void spilled(const float *x, float *y)\n"                                                              \
    "{\n"                                                                                                              \
    "    float a[64];\n"                                                                                               \
    "    for (int i = 0; i < 64; i++)\n"                                                                               \
    "        a[i] = x[i];\n"                                                                                           \
    "    y[threadIdx.x] = a[(int)x[threadIdx.x] & 63];\n"                                                              \
    "}\n"

#define KERNEL(name, args)                                                                                             \
    "{\"kernel\": \"" name "\", \"grid\": [2, 2], \"block\": [32, 32], \"args\": [" args ", {\"i32\": 64}]}"
#define PLAN(run)     "{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f32\", \"shape\": [64, 64]}}, \"run\": [" run "]}"
#define ODD           "{\"kernel\": \"odd\", \"grid\": [1], \"block\": [64], \"args\": [\"y\"]}"
#define THREE(kernel) "{\"repeat\": {\"var\": \"i\", \"count\": 3, \"steps\": [" kernel "]}}"

static stitch_error *err;
static stitch_context *ctx;
static stitch_program *program;
static stitch_executor *x;
static stitch__device *dev;
static stitch__sim_reports *reports;
static stitch__facts *f;

static void release_reports(void)
{
    stitch__sim_free_reports_fn release;
    memcpy(&release, &dev->drv->sim_free_reports, sizeof(release));
    release(reports);
    reports = NULL;
}

static void take_reports(void)
{
    stitch__sim_take_reports_fn take;
    memcpy(&take, &dev->drv->sim_take_reports, sizeof(take));
    CHECK_INT(take(&reports), CUDA_SUCCESS);
}

static void finish(void)
{
    stitch__facts_free(f);
    stitch_executor_free(x);
    stitch_program_free(program);
    if (dev) {
        release_reports();
        stitch__device_leave(dev);
    }
    stitch_context_free(ctx);
    f = NULL;
    x = NULL;
    program = NULL;
    dev = NULL;
    ctx = NULL;
}

static CUdeviceptr memory(uint64_t bytes)
{
    CUdeviceptr ptr;
    CHECK_OK(stitch__mem_alloc(dev, bytes, "tensor", &ptr, &err));
    CHECK_INT(dev->drv->MemsetD8Async(ptr, 0, bytes, NULL), CUDA_SUCCESS);
    return ptr;
}

static void load(const char *plan)
{
    static const char *const shape[] = {"64", "64"};
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_interface *i;
    finish();
    options.device = "sim:sm_90";
    options.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch_program_parse(ctx, SOURCE, plan, NULL, &program, &err));
    CHECK_OK(stitch_interface_new(ctx, &i, &err));
    CHECK_OK(stitch_interface_add_tensor(i, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 2, shape, &err));
    CHECK_OK(stitch_interface_add_tensor(i, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 2, shape, &err));
    CHECK_OK(stitch_program_validate(program, i, "sm_90", &err));
    stitch_interface_free(i);
    CHECK_OK(stitch_executor_new(ctx, program, NULL, &x, &err));
    CHECK_OK(stitch_executor_bind_name(x, "x", memory(16384), 16384, &err));
    CHECK_OK(stitch_executor_bind_name(x, "y", memory(16384), 16384, &err));
    CHECK_OK(stitch_executor_prepare(x, NULL, &err));
}

static void run(uint32_t flags, uint32_t sample_blocks, uint64_t runs)
{
    stitch__sim_set_options_fn set;
    const stitch__sim_options options = {.flags = flags, .sample_blocks = sample_blocks, .seed = 1};
    memcpy(&set, &dev->drv->sim_set_options, sizeof(set));
    CHECK_INT(set(&options), CUDA_SUCCESS);
    release_reports();
    take_reports(); /* of what ran before */
    release_reports();
    for (uint64_t i = 0; i < runs; i++)
        CHECK_OK(stitch_executor_run(x, NULL, &err));
    CHECK_INT(dev->drv->StreamSynchronize(NULL), CUDA_SUCCESS);
    take_reports();
    stitch__facts_free(f);
    f = NULL;
    CHECK_OK(stitch__facts_new(ctx, &f, &err));
}

static const stitch__kernel_fact *kernel(const char *name)
{
    for (size_t i = 0; i < f->kernel_count; i++) {
        if (strcmp(f->kernels[i].name, name) == 0)
            return &f->kernels[i];
    }
    FAIL("there is no kernel %s", name);
}

static double metric(const stitch__kernel_fact *k, const char *key)
{
    int m = stitch__metric_find(key);
    CHECK(m >= 0);
    return k->metric[m];
}

static void show(const stitch__kernel_fact *k)
{
    for (size_t i = 0; i < k->line_count && i < 4; i++) {
        const stitch__line_fact *l = &k->lines[i];
        printf("# %s: %s:%u: %" PRIu64 " instructions, %" PRIu64 " requests, %" PRIu64 " sectors (%" PRIu64
               "), %" PRIu64 " wavefronts (%" PRIu64 "): %s\n",
               k->name, l->file, l->line, l->instructions, l->requests, l->sectors, l->ideal_sectors, l->wavefronts,
               l->ideal_wavefronts, l->text);
    }
}

/* What all three transposes have in common. */
static void check_transpose(const stitch__kernel_fact *k)
{
    show(k);
    CHECK_INT(k->grid[0] * k->grid[1] * k->grid[2], 4);
    CHECK_INT(k->block[0] * k->block[1] * k->block[2], 1024);
    CHECK_NEAR(k->counted, 1, 0);
    CHECK_NEAR(metric(k, "global_requests"), 256, 0);
    CHECK_NEAR(metric(k, "global_ideal_sectors"), 1024, 0);
    CHECK_NEAR(metric(k, "global_bytes"), 32768, 0);
    CHECK_NEAR(metric(k, "local_requests"), 0, 0);
    CHECK_NEAR(metric(k, "atomics"), 0, 0);
    CHECK_NEAR(metric(k, "mma_inst"), 0, 0);
    CHECK_NEAR(metric(k, "divergent_branches"), 0, 0);
    CHECK(metric(k, "inst") > 128 * 10 && metric(k, "thread_inst") == 32 * metric(k, "inst"));
    CHECK(isnan(metric(k, "time_ns")) && isnan(metric(k, "dram_pct"))); /* no simulator knows */
    CHECK(k->time_us == 0 && k->share == 0);
    for (size_t i = 0; i < k->line_count; i++)
        CHECK_STR(k->lines[i].file, "program.cu");
}

TEST(sectors_and_wavefronts)
{
    load(PLAN(KERNEL("naive", "\"x\", \"h\"") ", " KERNEL("tiled<1>", "\"h\", \"y\"") ", " KERNEL("tiled<0>",
                                                                                                  "\"x\", \"y\"")));
    run(STITCH__SIM_COUNT, 0, 2);
    CHECK_OK(stitch__facts_steps(f, program, &err));
    CHECK_OK(stitch__facts_sim(f, reports, x->image, stitch_program_source(program), 2, &err));
    CHECK_STR(f->source, "simulator");
    CHECK_STR(f->no_counters, "");
    CHECK_INT(f->kernel_count, 3);
    CHECK_INT(f->launches, 3);

    const stitch__kernel_fact *k = kernel("naive");
    check_transpose(k);
    CHECK_STR(k->symbol, "_Z5naivePKfPfi");
    CHECK_INT(k->step, 0);
    CHECK_INT(k->launches, 1);
    CHECK_NEAR(metric(k, "global_sectors"), 128 * 4 + 128 * 32, 0);
    CHECK_NEAR(metric(k, "shared_wavefronts"), 0, 0);
    CHECK_INT(k->lines[0].line, 6);
    CHECK_STR(k->lines[0].text, "y[c * n + r] = v; // line 6");
    CHECK_INT(k->lines[0].requests, 128);
    CHECK_INT(k->lines[0].sectors, 32 * 128);
    CHECK_INT(k->lines[0].ideal_sectors, 4 * 128);

    k = kernel("tiled<1>");
    check_transpose(k);
    CHECK_INT(k->step, 1);
    CHECK_NEAR(metric(k, "global_sectors"), 1024, 0);
    CHECK_NEAR(metric(k, "shared_wavefronts"), 256, 0);
    CHECK_NEAR(metric(k, "shared_ideal_wavefronts"), 256, 0);
    for (size_t i = 0; i < k->line_count; i++) {
        CHECK_INT(k->lines[i].sectors, k->lines[i].ideal_sectors);
        CHECK_INT(k->lines[i].wavefronts, k->lines[i].ideal_wavefronts);
        CHECK(!i || k->lines[i].instructions <= k->lines[i - 1].instructions); /* nothing else to order them by */
    }

    k = kernel("tiled<0>");
    check_transpose(k);
    CHECK_INT(k->step, 2);
    CHECK_NEAR(metric(k, "global_sectors"), 1024, 0);
    CHECK_NEAR(metric(k, "shared_wavefronts"), 128 + 128 * 32, 0);
    CHECK_NEAR(metric(k, "shared_ideal_wavefronts"), 256, 0);
    CHECK_INT(k->lines[0].line, 15);
    CHECK_STR(k->lines[0].text, "float v = tile[threadIdx.x][threadIdx.y]; // line 15");
    CHECK_INT(k->lines[0].wavefronts, 32 * 128);
    CHECK_INT(k->lines[0].ideal_wavefronts, 128);
    CHECK_HAS(f->kernels[0].name, "tiled"); /* the most instructions */
    CHECK_STR(f->kernels[2].name, "naive");
    finish();
}

TEST(means_of_launches)
{
    load(PLAN(THREE(KERNEL("naive", "\"x\", \"y\"")) ", " KERNEL("naive", "\"x\", \"y\"")));
    run(STITCH__SIM_COUNT, 0, 5);
    CHECK_OK(stitch__facts_steps(f, program, &err));
    CHECK_OK(stitch__facts_sim(f, reports, NULL, NULL, 5, &err));
    CHECK_INT(f->kernel_count, 1);
    const stitch__kernel_fact *k = &f->kernels[0];
    check_transpose(k);
    CHECK_STR(k->name, "naive"); /* demangled */
    CHECK_INT(k->step, -1);      /* of two */
    CHECK_INT(k->launches, 4);
    CHECK_INT(f->launches, 4);
    CHECK_NEAR(metric(k, "global_sectors"), 4608, 0);
    CHECK_INT(k->lines[0].line, 6);
    CHECK_INT(k->lines[0].sectors, 4096);
    CHECK_STR(k->lines[0].text, ""); /* no source was given */
    stitch__facts_free(f);
    f = NULL;
    CHECK_OK(stitch__facts_new(ctx, &f, &err)); /* a source that ends before the line */
    CHECK_OK(stitch__facts_sim(f, reports, NULL, "short\n\n", 5, &err));
    CHECK_STR(f->kernels[0].lines[0].text, "");
    CHECK_ERR(stitch__facts_sim(f, reports, NULL, NULL, 0, &err), STITCH_E_INVALID, "no runs");
    finish();
}

TEST(headers_divergence_and_atomics)
{
    load(PLAN(ODD));
    run(STITCH__SIM_COUNT, 0, 1);
    CHECK_OK(stitch__facts_steps(f, program, &err));
    CHECK_OK(stitch__facts_sim(f, reports, x->image, SOURCE, 1, &err));
    const stitch__kernel_fact *k = kernel("odd");
    show(k);
    CHECK_INT(k->step, 0);
    CHECK(metric(k, "branches") > 0 && metric(k, "divergent_branches") > 0);
    CHECK(metric(k, "divergent_branches") <= metric(k, "branches"));
    CHECK_NEAR(metric(k, "atomics"), 64, 0);
    CHECK_NEAR(metric(k, "atomic_collisions"), 32, 0); /* two lanes an address: one of them waits */
    CHECK(metric(k, "thread_inst") < 32 * metric(k, "inst"));
    CHECK(metric(k, "flops") > 0);
    bool loop = false;
    CHECK(k->line_count > 3);
    for (size_t i = 0; i < k->line_count; i++) {
        CHECK_STR(k->lines[i].file, "program.cu"); /* the header's functions count where they are called */
        loop |= k->lines[i].line == 22 && k->lines[i].instructions > 0;
        for (size_t n = 0; n < i; n++)
            CHECK(k->lines[n].line != k->lines[i].line);
    }
    CHECK(loop);
    finish();
}

TEST(products_and_local_memory)
{
    load(PLAN("{\"kernel\": \"product\", \"grid\": [2], \"block\": [32], \"args\": [\"y\"]}, {\"kernel\": \"spilled\", "
              "\"grid\": [1], \"block\": [32], \"args\": [\"x\", \"y\"]}"));
    run(STITCH__SIM_COUNT, 0, 1);
    CHECK_OK(stitch__facts_steps(f, program, &err));
    CHECK_OK(stitch__facts_sim(f, reports, x->image, SOURCE, 1, &err));
    const stitch__kernel_fact *k = kernel("product");
    show(k);
    CHECK(metric(k, "mma_inst") >= 4);
    CHECK_NEAR(metric(k, "flops"), 2.0 * 2 * 2 * 16 * 16 * 16, 0);
    CHECK_NEAR(metric(k, "local_requests"), 0, 0);
    k = kernel("spilled");
    show(k);
    printf("# spilled: %g local requests\n", metric(k, "local_requests"));
    CHECK(metric(k, "local_requests") >= 17); /* 64 values, four a store, and one load */
    CHECK_NEAR(metric(k, "mma_inst"), 0, 0);
    finish();
}

TEST(a_sample_of_the_blocks)
{
    load(PLAN(KERNEL("naive", "\"x\", \"y\"")));
    run(STITCH__SIM_COUNT, 2, 1);
    CHECK_OK(stitch__facts_sim(f, reports, x->image, SOURCE, 1, &err));
    CHECK_NEAR(f->kernels[0].counted, 0.5, 0);
    CHECK_NEAR(metric(&f->kernels[0], "global_sectors"), 2304, 0); /* as counted */
    CHECK_NEAR(metric(&f->kernels[0], "global_requests"), 128, 0);
    CHECK_INT(f->kernels[0].lines[0].sectors, 2048);
    finish();
}

TEST(nothing_was_counted)
{
    load(PLAN(KERNEL("naive", "\"x\", \"y\"")));
    run(STITCH__SIM_CHECK_ALL, 0, 1);
    CHECK_OK(stitch__facts_sim(f, reports, x->image, SOURCE, 1, &err));
    CHECK_INT(f->kernel_count, 1);
    CHECK_INT(f->kernels[0].launches, 1);
    CHECK_NEAR(f->kernels[0].counted, 0, 0);
    CHECK(isnan(metric(&f->kernels[0], "inst")));
    CHECK_INT(f->kernels[0].line_count, 0);
    finish();
}

/* More lines than are kept: those with waste stay, and so do some that only cost instructions. */
TEST(lines_that_are_kept)
{
    enum { LINES = 60 };
    stitch__sim_place places[LINES];
    stitch__sim_line_counters lines[LINES];
    memset(places, 0, sizeof(places));
    memset(lines, 0, sizeof(lines));
    for (uint32_t i = 0; i < LINES; i++) {
        places[i].file = "/tmp/work/program.cu";
        places[i].line = i + 1;
        lines[i].place = &places[i];
        lines[i].instructions = 1000 + i;
        lines[i].global_sectors = i < 20 ? 100 + i : 7;
        lines[i].global_ideal_sectors = 7;
        lines[i].shared_wavefronts = i == 3 ? 500 : 0;
    }
    stitch__sim_kernel_report k = {
        .kernel = "k", .launches = 1, .counters = {.total = {.instructions = 1}, .line_count = LINES, .lines = lines}};
    stitch__sim_reports r = {.count = 1, .kernels = &k, .incomplete = true};
    CHECK_OK(stitch__facts_new(NULL, &f, &err));
    CHECK_OK(stitch__facts_sim(f, &r, NULL, NULL, 1, &err));
    CHECK_HAS(f->no_counters, "memory ran out");
    const stitch__kernel_fact *got = &f->kernels[0];
    CHECK_STR(got->name, "k");
    CHECK_INT(got->line_count, STITCH__FACTS_LINES);
    CHECK_INT(got->lines[0].line, 4);
    CHECK_INT(got->lines[1].line, 20);
    CHECK_INT(got->lines[15].line, 6);
    CHECK_INT(got->lines[16].line, 60); /* no waste, but the most instructions */
    CHECK_INT(got->lines[23].line, 53);
    CHECK_STR(got->lines[23].file, "program.cu");
    finish();
}

/* The advice that counts alone give, with its line. */
static void check_advice(const stitch__advices *a, const char *rule, const char *name, const char *source)
{
    for (size_t i = 0; i < a->count; i++) {
        const stitch__advice *v = &a->list[i];
        if (strcmp(v->rule, rule) != 0 || strcmp(f->kernels[v->kernel].name, name) != 0)
            continue;
        printf("# %s of %s, %s:%u: %s\n", rule, name, v->file, v->line, v->evidence);
        CHECK_STR(v->source, source);
        CHECK(v->gain_us == 0); /* nothing was timed */
        return;
    }
    FAIL("no %s of %s", rule, name);
}

static void advise(const char *plan, stitch__advices *a)
{
    load(plan);
    run(STITCH__SIM_COUNT, 0, 1);
    CHECK_OK(stitch__facts_sim(f, reports, x->image, stitch_program_source(program), 1, &err));
    f->precision = STITCH_PRECISION_TF32;
    CHECK_INT(stitch__advise(ctx, f, a), STITCH_OK);
}

TEST(advice_by_counts)
{
    stitch__advices a;
    advise(PLAN(KERNEL("naive", "\"x\", \"h\"") ", " KERNEL("tiled<1>", "\"h\", \"y\"") ", " KERNEL("tiled<0>",
                                                                                                    "\"x\", \"y\"")),
           &a);
    check_advice(&a, "uncoalesced", "naive", "y[c * n + r] = v; // line 6");
    check_advice(&a, "bank_conflicts", "tiled<0>", "float v = tile[threadIdx.x][threadIdx.y]; // line 15");
    CHECK_INT(a.count, 2); /* nothing about tiled<1> */
    stitch__advices_free(&a);

    advise(PLAN(KERNEL("matmul", "\"x\", \"y\"")), &a);
    check_advice(&a, "tensor_unused", "matmul", "s += x[r * n + k] * x[k * n + c];");
    check_advice(&a, "cache_bound", "matmul", "s += x[r * n + k] * x[k * n + c];");
    CHECK_INT(a.count, 2);
    stitch__advices_free(&a);

    advise(PLAN(ODD), &a);
    check_advice(&a, "atomic_contention", "odd", "atomicAdd(&y[threadIdx.x / 2], __half2float(h));");
    check_advice(&a, "divergence", "odd", "");
    stitch__advices_free(&a);

    advise(PLAN("{\"kernel\": \"spilled\", \"grid\": [1], \"block\": [64], \"args\": [\"x\", \"y\"]}"), &a);
    check_advice(&a, "spills", "spilled", "");
    stitch__advices_free(&a);
    finish();
}

TEST_MAIN(RUN(sectors_and_wavefronts), RUN(means_of_launches), RUN(headers_divergence_and_atomics),
          RUN(products_and_local_memory), RUN(a_sample_of_the_blocks), RUN(nothing_was_counted), RUN(advice_by_counts),
          RUN(lines_that_are_kept))
