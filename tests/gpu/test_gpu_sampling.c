/* SPDX-License-Identifier: MIT
 *
 * PC sampling of real work: the line where warps wait comes first and says for what, modules with kernels of one name
 * are told apart, kernels of others are left out, and sessions leave nothing behind.
 */
#include "device.h"
#include "profile/profile.h"
#include "profile/sampling.h"

/* hot: 6 is a chain of loads, each of which needs the one before, and nothing else does; 7 is arithmetic. barred: 19 is
 * a barrier at which all wait for one warp. */
static const char source[] = "extern \"C\" __global__ void hot(const unsigned *x, unsigned *y, int n)\n" /* 1 */
                             "{\n"                                                                       /* 2 */
                             "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n"                 /* 3 */
                             "    unsigned sum = 0;\n"                                                   /* 4 */
                             "    for (int k = 0; k < n; k++) {\n"                                       /* 5 */
                             "        i = x[i];\n"                                                       /* 6 */
                             "        sum = sum * 3 + k;\n"                                              /* 7 */
                             "    }\n"                                                                   /* 8 */
                             "    y[blockIdx.x * blockDim.x + threadIdx.x] = sum + i;\n"                 /* 9 */
                             "}\n"                                                                       /* 10 */
                             "extern \"C\" __global__ void barred(unsigned *y, int n)\n"                 /* 11 */
                             "{\n"                                                                       /* 12 */
                             "    unsigned v = threadIdx.x;\n"                                           /* 13 */
                             "    for (int k = 0; k < n; k++) {\n"                                       /* 14 */
                             "        if (threadIdx.x < 32)\n"                                           /* 15 */
                             "            for (int j = 0; j < 64; j++)\n"                                /* 16 */
                             "                v = v * 1664525u + 1013904223u + (v >> 3);\n"              /* 17 */
                             "        v += k;\n"                                                         /* 18 */
                             "        __syncthreads();\n"                                                /* 19 */
                             "    }\n"                                                                   /* 20 */
                             "    y[blockIdx.x * blockDim.x + threadIdx.x] = v;\n"                       /* 21 */
                             "}\n";
/* Another kernel of the first one's name, with its loads in line 3. */
static const char other_source[] = "extern \"C\" __global__ void hot(const unsigned *x, unsigned *y, int n)\n"
                                   "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; for (int k = 0; k < n; k++)\n"
                                   "    i = x[i ^ 1];\n"
                                   "  y[blockIdx.x * blockDim.x + threadIdx.x] = i; }\n";

enum { HOT, BARRED, OTHER, KERNELS, GRID = 1056, THREADS = 256, ELEMENTS = GRID * THREADS };

static stitch__device *dev;
static const stitch__driver *drv;
static const stitch__cupti *cupti;
static stitch_image *images[2];
static stitch__module loaded[2];
static CUfunction kernels[KERNELS];
static CUstream stream;
static CUdeviceptr x, y;
static stitch__sampling *sampling;
static stitch__facts *facts;
static int64_t spent[4]; /* open, start, stop, fill: nanoseconds */

/* What CUPTI says, on its way to the library: whether it names functions by their number in the symbol table and cubins
 * by their checksum, and whether names come with the same pointers again. */
static stitch__cupti spied;
static const char *seen[256];
static size_t seen_count, told, old_names, new_names;
static uint64_t counted, others; /* samples, and those of kernels that have no records */

static int spy(stitch__pcs_get_data *p)
{
    int result = cupti->PcsGetData(p);
    for (size_t i = 0; result == 0 && i < p->data->count && i < p->data->room; i++) {
        const stitch__pcs_record *r = &p->data->records[i];
        size_t n = 0;
        if (told++ < 6)
            printf("# record: cubin 0x%" PRIx64 ", symbol %" PRIu32 " \"%s\", offset 0x%" PRIx64 ", %zu reasons\n",
                   r->crc, r->function, r->name ? r->name : "", r->offset, r->stall_count);
        while (n < seen_count && seen[n] != r->name)
            n++;
        old_names += n < seen_count;
        new_names += n == seen_count;
        if (n == seen_count && seen_count < STITCH__COUNT(seen))
            seen[seen_count++] = r->name;
    }
    if (result == 0) {
        counted += p->data->total;
        others += p->data->other_kernels;
    }
    return result;
}

static CUfunction load(int image, const char *text, const char *name)
{
    size_t at;
    if (!images[image]) {
        CHECK_OK(stitch_compile(ctx, text, NULL, &images[image], &err));
        CHECK_OK(stitch__module_load(dev, images[image], &loaded[image], &err));
    }
    CHECK_INT(stitch_image_find(images[image], name, &at), STITCH_OK);
    return loaded[image].kernels[at];
}

static void free_found(void)
{
    stitch__sampling_close(sampling);
    stitch__facts_free(facts);
    sampling = NULL;
    facts = NULL;
}

/* The first module is there before CUPTI is opened, the second one comes later. The device is entered afterwards. */
static void open_work(void)
{
    need_real_device();
#ifdef __SANITIZE_ADDRESS__
    SKIP("CUPTI opens a library with RTLD_DEEPBIND, which AddressSanitizer does not allow");
#endif
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    drv = dev->drv;
    if (!stream) {
        unsigned *next = malloc(ELEMENTS * sizeof(*next));
        CHECK(next);
        for (unsigned i = 0; i < ELEMENTS; i++) /* far away, and the same distance for all of a warp */
            next[i] = (unsigned)((i + UINT64_C(32) * 7919) % ELEMENTS);
        kernels[HOT] = load(0, source, "hot");
        kernels[BARRED] = load(0, source, "barred");
        CHECK_INT(drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        CHECK_OK(stitch__mem_alloc(dev, ELEMENTS * 4, "x", &x, &err));
        CHECK_OK(stitch__mem_alloc(dev, ELEMENTS * 4, "y", &y, &err));
        CHECK_INT(drv->MemcpyHtoD(x, next, ELEMENTS * 4), CUDA_SUCCESS);
        free(next);
    }
    int rc = stitch__cupti_get(ctx, &cupti, &err);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
    kernels[OTHER] = load(1, other_source, "hot");
    spied = *cupti;
    spied.PcsGetData = spy;
    free_found();
}

static void close_work(void)
{
    free_found();
    stitch__device_leave(dev);
}

static void launch(int kernel, int n)
{
    void *three[] = {&x, &y, &n}, *two[] = {&y, &n};
    CHECK_INT(
        drv->LaunchKernel(kernels[kernel], GRID, 1, 1, THREADS, 1, 1, 0, stream, kernel == BARRED ? two : three, NULL),
        CUDA_SUCCESS);
}

static stitch__sampled_module module_of(int image)
{
    stitch__sampled_module m = {0};
    m.cubin = stitch_image_data(images[image], &m.cubin_size);
    m.source = image ? other_source : source;
    return m;
}

static void open_sampling(int first, int count)
{
    stitch__sampled_module modules[2] = {module_of(first), module_of(!first)};
    int64_t t = stitch__now_ns();
    int rc = stitch__sampling_open(ctx, dev, &spied, modules, (size_t)count, 0, NULL, &sampling, &err);
    if (rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_BUSY || rc == STITCH_E_NO_LIBRARY) {
        stitch__device_leave(dev);
        SKIP(stitch_error_message(err));
    }
    CHECK_OK(rc);
    spent[0] = stitch__now_ns() - t;
}

static void start(void)
{
    int64_t t = stitch__now_ns();
    CHECK_OK(stitch__sampling_start(sampling, &err));
    spent[1] = stitch__now_ns() - t;
}

static void stop_and_fill(void)
{
    static const char *const symbols[] = {"hot", "barred"};
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    int64_t t = stitch__now_ns();
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    spent[2] = stitch__now_ns() - t;
    stitch__facts_free(facts);
    CHECK_OK(stitch__facts_new(ctx, &facts, &err));
    for (int i = 0; i < 2; i++) {
        stitch__kernel_fact *k = stitch__facts_add_kernel(facts);
        CHECK(k);
        k->symbol = symbols[i];
    }
    t = stitch__now_ns();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    spent[3] = stitch__now_ns() - t;
}

static void print_found(void)
{
    printf("# CUPTI counts %" PRIu64 " samples in all, %" PRIu64
           " of kernels of the driver; names: %zu new, %zu seen\n",
           counted, others, new_names, old_names);
    for (int i = 0; i < 2; i++) {
        stitch__sampled_module m = module_of(i);
        stitch__cubin_crc crc = {sizeof(crc), m.cubin_size, m.cubin, 0};
        if (cupti->GetCubinCrc(&crc) == 0)
            printf("# module %d is cubin 0x%" PRIx64 "\n", i, crc.crc);
    }
    printf("# %" PRIu64 " samples, %" PRIu64 " dropped; open %.1f ms, start %.1f ms, stop %.1f ms, fill %.1f ms\n",
           stitch__sampling_total(sampling), stitch__sampling_dropped(sampling), (double)spent[0] / 1e6,
           (double)spent[1] / 1e6, (double)spent[2] / 1e6, (double)spent[3] / 1e6);
    for (size_t i = 0; i < facts->kernel_count; i++) {
        const stitch__kernel_fact *k = &facts->kernels[i];
        printf("# %s: %" PRIu64 " samples\n", k->symbol, k->samples);
        for (size_t l = 0; l < k->line_count && l < 5; l++) {
            printf("#   %s:%" PRIu32 " %" PRIu64 " \"%s\"", k->lines[l].file, k->lines[l].line, k->lines[l].samples,
                   k->lines[l].text);
            for (size_t r = 0; r < k->lines[l].reason_count; r++)
                printf(" %s=%" PRIu64, k->lines[l].reasons[r].name, k->lines[l].reasons[r].samples);
            printf("\n");
        }
    }
}

static uint64_t unmapped(const stitch__kernel_fact *k)
{
    uint64_t n = 0;
    for (size_t i = 0; i < k->line_count; i++)
        n += k->lines[i].line == 0 ? k->lines[i].samples : 0;
    return n;
}

TEST(the_hot_line_comes_first)
{
    open_work();
    open_sampling(0, 1);
    start();
    for (int i = 0; i < 10; i++) {
        launch(HOT, 400);
        launch(BARRED, 300);
        /* A kernel of the driver, and one of a module that was not given. */
        CHECK_INT(drv->MemsetD32Async(y, 7, ELEMENTS, stream), CUDA_SUCCESS);
        launch(OTHER, 100);
    }
    stop_and_fill();
    print_found();
    const stitch__kernel_fact *hot = &facts->kernels[0], *barred = &facts->kernels[1];
    CHECK(hot->samples > 500 && barred->samples > 500);
    CHECK_INT(hot->lines[0].line, 6);
    CHECK_STR(hot->lines[0].file, "program.cu");
    CHECK_STR(hot->lines[0].text, "i = x[i];");
    CHECK(hot->lines[0].samples * 10 > hot->samples * 5);
    CHECK_STR(hot->lines[0].reasons[0].name, "long_scoreboard");
    CHECK_INT(unmapped(hot) + unmapped(barred), 0);
    bool waits = false;
    for (size_t i = 0; i < barred->line_count && !waits; i++)
        for (size_t r = 0; r < barred->lines[i].reason_count && !waits; r++)
            waits = strcmp(barred->lines[i].reasons[r].name, "barrier") == 0 && barred->lines[i].line >= 14 &&
                    barred->lines[i].line <= 20 && barred->lines[i].reasons[r].samples * 4 > barred->samples;
    CHECK(waits);
    for (size_t i = 0; i < 2; i++)
        for (size_t l = 0; l < facts->kernels[i].line_count; l++)
            for (size_t r = 0; r < facts->kernels[i].lines[l].reason_count; r++)
                CHECK(!strstr(facts->kernels[i].lines[l].reasons[r].name, "smsp__") &&
                      !strstr(facts->kernels[i].lines[l].reasons[r].name, "_not_issued"));
    CHECK(stitch__sampling_total(sampling) > hot->samples + barred->samples); /* the other module's are counted */
    CHECK(spent[0] + spent[1] + spent[2] + spent[3] < INT64_C(1500000000));
    close_work();
}

TEST(kernels_of_one_name)
{
    for (int given = 0; given < 2; given++) {
        open_work();
        open_sampling(given, 1);
        start();
        launch(HOT, 2000);
        launch(OTHER, 2000);
        stop_and_fill();
        print_found();
        const stitch__kernel_fact *k = &facts->kernels[0];
        CHECK(k->samples > 100 && k->samples < stitch__sampling_total(sampling));
        for (size_t i = 0; i < k->line_count; i++)
            CHECK(given ? k->lines[i].line <= 4 : k->lines[i].line <= 10);
        CHECK_STR(k->lines[0].text, given ? "i = x[i ^ 1];" : "i = x[i];");
        close_work();
    }
    open_work();
    open_sampling(1, 2); /* both */
    start();
    launch(HOT, 2000);
    launch(OTHER, 2000);
    stop_and_fill();
    print_found();
    bool first = false, second = false;
    for (size_t i = 0; i < facts->kernels[0].line_count; i++) {
        first |= strcmp(facts->kernels[0].lines[i].text, "i = x[i];") == 0;
        second |= strcmp(facts->kernels[0].lines[i].text, "i = x[i ^ 1];") == 0;
    }
    CHECK(first && second);
    CHECK_INT(facts->kernels[0].samples, stitch__sampling_total(sampling));
    close_work();
}

TEST(several_regions)
{
    uint64_t before;
    open_work();
    open_sampling(0, 1);
    start();
    launch(HOT, 1000);
    stop_and_fill();
    before = facts->kernels[0].samples;
    launch(BARRED, 1000); /* between the regions */
    CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
    start();
    launch(HOT, 1000);
    stop_and_fill();
    print_found();
    CHECK(before > 50 && facts->kernels[0].samples > before);
    CHECK_INT(facts->kernels[1].samples, 0);
    close_work();
}

/* Names come from CUPTI, and are freed after every session: traces, which get them too, must not notice. */
TEST(sessions_leave_nothing)
{
    size_t free_before = 0, free_after = 0, total;
    int64_t longest = 0;
    open_work();
    for (int i = 0; i < 20; i++) {
        stitch_trace *trace = NULL;
        stitch_trace_kernel k = STITCH_TRACE_KERNEL_INIT;
        open_sampling(i & 1, 2);
        start();
        launch(HOT, 500);
        launch(BARRED, 100);
        stop_and_fill();
        CHECK(facts->kernels[0].samples > 10);
        CHECK_INT(facts->kernels[0].samples + facts->kernels[1].samples, stitch__sampling_total(sampling));
        free_found();
        int64_t all = spent[0] + spent[1] + spent[2] + spent[3];
        longest = all > longest ? all : longest;
        if (i % 5 == 0) {
            int rc = stitch_trace_begin(ctx, NULL, &trace, &err);
            if (rc == STITCH_OK) {
                launch(HOT, 10);
                CHECK_OK(stitch_trace_end(trace, &err));
                CHECK_INT(stitch_trace_kernel_get(trace, 0, &k), STITCH_OK);
                CHECK_STR(k.name, "hot");
                stitch_trace_free(trace);
            }
            stitch_error_free(err);
            err = NULL;
        }
        if (i == 3)
            CHECK_INT(drv->MemGetInfo(&free_before, &total), CUDA_SUCCESS);
    }
    CHECK_INT(drv->MemGetInfo(&free_after, &total), CUDA_SUCCESS);
    printf("# 16 sessions: %.1f MB of device memory less; longest %.1f ms\n",
           ((double)free_before - (double)free_after) / 1e6, (double)longest / 1e6);
    CHECK(free_after + (4 << 20) >= free_before);
    close_work();
}

TEST(one_at_a_time)
{
    stitch__sampled_module m;
    stitch__sampling *second;
    stitch_trace *trace;
    open_work();
    open_sampling(0, 1);
    m = module_of(0);
    CHECK_ERR(stitch__sampling_open(ctx, dev, cupti, &m, 1, 0, NULL, &second, &err), STITCH_E_BUSY, "already");
    int rc = stitch_trace_begin(ctx, NULL, &trace, &err);
    CHECK(rc == STITCH_E_BUSY || rc == STITCH_E_NO_LIBRARY); /* the latter: CUPTI of CUDA 13.0 does not trace */
    stitch_error_free(err);
    err = NULL;
    close_work();
}

/* What sampling costs the work that is sampled, and what is left of it afterwards. */
TEST(the_price)
{
    double ms[3];
    open_work();
    for (int phase = 0; phase < 3; phase++) {
        if (phase == 1) {
            open_sampling(0, 1);
            start();
        }
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
        int64_t t = stitch__now_ns();
        for (int i = 0; i < 20; i++)
            launch(HOT, 500);
        CHECK_INT(drv->StreamSynchronize(stream), CUDA_SUCCESS);
        ms[phase] = (double)(stitch__now_ns() - t) / 1e6;
        if (phase == 1) {
            stop_and_fill();
            free_found();
        }
    }
    printf("# 20 launches: %.2f ms plain, %.2f ms sampled, %.2f ms afterwards\n", ms[0], ms[1], ms[2]);
    CHECK(ms[1] < 2 * ms[0] + 5 && ms[2] < 2 * ms[0] + 5);
    close_work();
}

static const check_test tests[] = {RUN(the_hot_line_comes_first), RUN(kernels_of_one_name),
                                   RUN(several_regions),          RUN(one_at_a_time),
                                   RUN(sessions_leave_nothing),   RUN(the_price)};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    free_found();
    for (int i = 0; i < 2; i++) {
        if (dev)
            stitch__module_unload(&loaded[i]);
        stitch_image_free(images[i]);
    }
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc;
}
