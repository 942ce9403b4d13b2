/* SPDX-License-Identifier: MIT
 *
 * Hardware counters against arithmetic: kernels whose bytes, instructions, sectors, wavefronts and matrix instructions
 * are known. What replaying costs and leaves behind.
 */
#include <math.h>

#include "device.h"
#include "cupti_device.h"
#include "counter_kernels.h"
#include "profile/counters.h"
#include "profile/metric_plan.h"
#include "profile/profile.h"

static stitch__device *dev;
static const stitch__cupti *cupti;
static counter_work work;
static stitch__counters *counters;
static stitch_trace *trace;
/* The work is repeated for each pass; or each kernel is replayed, which takes longer, and the longer the more memory
 * there is. Room for more launches takes longer, too. */
enum { ROOM = 12 };
static const stitch__counters_options cheap = {STITCH__METRIC_CHEAP, NULL, 0, ROOM, true};
static const stitch__counters_options full = {STITCH__METRIC_FULL, NULL, 0, ROOM, true};
static const stitch__counters_options cheap_replayed = {STITCH__METRIC_CHEAP, NULL, 0, ROOM, false};
static const stitch__counters_options full_replayed = {STITCH__METRIC_FULL, NULL, 0, ROOM, false};
enum { FEW_FLOATS = 1 << 20 };

#define CHECK_CU(call) CHECK_INT(call, CUDA_SUCCESS)

static void need_counters(void)
{
    static bool asked;
    stitch__counters_close(counters); /* what a failed test left */
    stitch_trace_free(trace);
    counters = NULL;
    trace = NULL;
    cupti = need_cupti_library();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    if (asked)
        return;
    int rc = stitch__counters_open(ctx, dev, cupti, &cheap, &counters, &err);
    if (rc == STITCH_OK)
        rc = stitch__counters_start(counters, &err);
    stitch__counters_close(counters);
    counters = NULL;
    if (rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_BUSY || rc == STITCH_E_NO_LIBRARY) {
        stitch__device_leave(dev);
        SKIP(stitch_error_message(err));
    }
    CHECK_OK(rc);
    asked = true;
}

/* The device is entered afterwards. */
static void open_work(size_t floats)
{
    need_counters();
    if (work.floats != floats) {
        if (work.dev)
            counter_work_close(&work);
        CHECK_OK(counter_work_open(ctx, dev, floats, &work, &err));
    }
}

static void begin(const stitch__counters_options *o)
{
    CHECK_OK(stitch__counters_open(ctx, dev, cupti, o, &counters, &err));
    CHECK_OK(stitch__counters_start(counters, &err));
}

/* After the launches: whether they are to be made once more. */
static bool again(void)
{
    bool more = false;
    CHECK_OK(stitch__counters_again(counters, &more, &err));
    return more;
}

static void end(size_t launches)
{
    CHECK_OK(stitch__counters_stop(counters, &err));
    CHECK_INT(stitch__counters_count(counters), launches);
    CHECK_INT(stitch__counters_dropped(counters), 0);
}

static void close_work(void)
{
    stitch__counters_close(counters);
    counters = NULL;
    stitch__device_leave(dev);
}

static double value(int metric, size_t launch)
{
    double metrics[STITCH__METRICS];
    stitch__counters_get(counters, launch, metrics, NULL);
    return metrics[metric];
}

#define VALUE(name, launch) value(STITCH__METRIC_##name, launch)

static void print_all(const char *const *names, size_t count)
{
    double metrics[STITCH__METRICS];
    printf("# %zu passes, not offered: %s\n", stitch__counters_passes(counters), stitch__counters_missing(counters));
    for (int m = 0; m < STITCH__METRICS; m++) {
        const stitch__metric_info *info = stitch__metric_info_of(m);
        if (!info->cupti)
            continue;
        printf("# %-24s %-10s", info->key, info->unit);
        for (size_t i = 0; i < count; i++) {
            stitch__counters_get(counters, i, metrics, NULL);
            printf(" %14.8g", metrics[m]);
        }
        printf("\n");
    }
    printf("# in the columns:");
    for (size_t i = 0; i < count; i++)
        printf(" %s", names[i]);
    printf("\n");
}

/* ---- known kernels ---- */

TEST(bytes_of_an_addition)
{
    int l2 = 0;
    need_counters();
    CHECK_CU(dev->drv->DeviceGetAttribute(&l2, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, dev->ordinal));
    /* Far above twice L2: what L2 holds back of the writes at the end is a small share. */
    size_t n = ((size_t)(l2 > 0 ? l2 : 64 << 20) * 32 / 12 + 1023) / 1024 * 1024;
    stitch__device_leave(dev);
    open_work(n);
    begin(&full);
    do {
        CHECK_CU(launch_add(&work, n));
        CHECK_CU(launch_add(&work, n));
    } while (again());
    end(2);
    double bytes = 12.0 * (double)n, warps = (double)n / 32;
    printf("# L2 %d MiB, %zu floats an array: dram_bytes %.0f, %.2f %% of what is read and written\n", l2 >> 20, n,
           VALUE(DRAM_BYTES, 0), 100 * VALUE(DRAM_BYTES, 0) / bytes);
    static const char *const names[] = {"add", "add"};
    print_all(names, 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_NEAR(VALUE(DRAM_BYTES, i), bytes, 0.05 * bytes);
        CHECK_NEAR(VALUE(DRAM_READ, i) + VALUE(DRAM_WRITE, i), bytes, 0.05 * bytes);
        CHECK_NEAR(VALUE(DRAM_READ, i), 2 * bytes / 3, 0.08 * bytes);
        CHECK_NEAR(VALUE(LOAD_REQUESTS, i), 2 * warps, 0);
        CHECK_NEAR(VALUE(LOAD_SECTORS, i), 8 * warps, 0);
        CHECK_NEAR(VALUE(STORE_REQUESTS, i), warps, 0);
        CHECK_NEAR(VALUE(STORE_SECTORS, i), 4 * warps, 0);
        CHECK(VALUE(DRAM_SHARE, i) > 50 && VALUE(DRAM_SHARE, i) <= 101);
        CHECK(VALUE(TIME, i) > bytes / 20000 && VALUE(TIME, i) < bytes / 50); /* 20 TB/s, 50 GB/s */
        CHECK_NEAR(VALUE(TENSOR_INST, i), 0, 0);
        CHECK_NEAR(VALUE(LOCAL_LOADS, i) + VALUE(LOCAL_STORES, i), 0, 0);
    }
    CHECK_NEAR(VALUE(INST, 0), VALUE(INST, 1), 0);
    close_work();
    counter_work_close(&work);
    memset(&work, 0, sizeof(work));
}

TEST(instructions)
{
    enum { LAUNCHES = 12, N = 100 }; /* more than nine: the order of launches is one of numbers */
    CUstream other;
    open_work(SIX_FLOATS);
    CHECK_CU(dev->drv->StreamCreate(&other, CU_STREAM_NON_BLOCKING));
    begin(&full);
    do {
        for (unsigned i = 0; i < LAUNCHES; i++)
            CHECK_CU(launch_fused(&work, 16 * (i + 1), i % 2 ? other : work.stream, N));
    } while (again());
    end(LAUNCHES);
    double inst = VALUE(INST, 0);
    printf("# inst %.0f, thread_inst %.0f, ffma %.0f of %d, fadd %.0f, fmul %.0f\n", inst, VALUE(THREAD_INST, 0),
           VALUE(FFMA, 0), 16 * COUNTER_BLOCK * 8 * N, VALUE(FADD, 0), VALUE(FMUL, 0));
    CHECK(inst > 16.0 * COUNTER_BLOCK / 32 * 8 * N);
    for (size_t i = 0; i < LAUNCHES; i++) {
        double times = (double)(i + 1);
        CHECK_NEAR(VALUE(FFMA, i), times * 16 * COUNTER_BLOCK * 8 * N, 0);
        CHECK_NEAR(VALUE(INST, i), times * inst, 0);
        CHECK_NEAR(VALUE(THREAD_INST, i), times * VALUE(THREAD_INST, 0), 0);
        CHECK(VALUE(THREAD_INST, i) > 8 * VALUE(INST, i) && VALUE(THREAD_INST, i) <= 32 * VALUE(INST, i));
    }
    dev->drv->StreamDestroy(other);
    close_work();
}

TEST(sectors_of_requests)
{
    enum { GRID = 1024 };
    const double warps = GRID * COUNTER_BLOCK / 32.0;
    open_work(SIX_FLOATS);
    begin(&cheap);
    do {
        CHECK_CU(launch_gather(&work, GRID, 1));
        CHECK_CU(launch_gather(&work, GRID, 32));
        CHECK_CU(launch_gather(&work, GRID, 2));
    } while (again());
    end(3);
    printf("# sectors a request: %.3f of neighbours, %.3f of strides of 128 bytes, %.3f of 8 bytes\n",
           VALUE(LOAD_SECTORS, 0) / VALUE(LOAD_REQUESTS, 0), VALUE(LOAD_SECTORS, 1) / VALUE(LOAD_REQUESTS, 1),
           VALUE(LOAD_SECTORS, 2) / VALUE(LOAD_REQUESTS, 2));
    for (size_t i = 0; i < 3; i++)
        CHECK_NEAR(VALUE(LOAD_REQUESTS, i), warps, 0);
    CHECK_NEAR(VALUE(LOAD_SECTORS, 0), 4 * warps, 0);
    CHECK_NEAR(VALUE(LOAD_SECTORS, 1), 32 * warps, 0);
    CHECK_NEAR(VALUE(LOAD_SECTORS, 2), 8 * warps, 0);
    CHECK(isnan(VALUE(THREAD_INST, 0))); /* not of this set */
    close_work();
}

TEST(bank_conflicts)
{
    enum { GRID = 256, N = 128 };
    const double loads = GRID * COUNTER_BLOCK / 32.0 * N;
    open_work(SIX_FLOATS);
    begin(&full);
    do {
        CHECK_CU(launch_shared_read(&work, GRID, 1, N));
        CHECK_CU(launch_shared_read(&work, GRID, 32, N));
    } while (again());
    end(2);
    printf(
        "# %.0f loads of shared memory: %.0f wavefronts and %.0f conflicts without, %.0f and %.0f with 32-fold ones\n",
        loads, VALUE(SHARED_LOAD_WAVEFRONTS, 0), VALUE(SHARED_LOAD_CONFLICTS, 0), VALUE(SHARED_LOAD_WAVEFRONTS, 1),
        VALUE(SHARED_LOAD_CONFLICTS, 1));
    CHECK_NEAR(VALUE(SHARED_LOAD_WAVEFRONTS, 0), loads, 0.05 * loads);
    CHECK(VALUE(SHARED_LOAD_CONFLICTS, 0) < 0.05 * loads);
    CHECK_NEAR(VALUE(SHARED_LOAD_WAVEFRONTS, 1), 32 * loads, 0.05 * 32 * loads);
    CHECK_NEAR(VALUE(SHARED_LOAD_CONFLICTS, 1), 31 * loads, 0.05 * 31 * loads);
    close_work();
}

TEST(matrix_instructions)
{
    enum { GRID = 264, N = 1000 };
    const double warps = GRID * COUNTER_BLOCK / 32.0;
    open_work(SIX_FLOATS);
    begin(&cheap);
    do {
        CHECK_CU(launch_matrix(&work, GRID, N));
        CHECK_CU(launch_fused(&work, GRID, work.stream, N));
    } while (again());
    end(2);
    printf("# tensor_inst %.0f of %.0f, active %.2f %%; without matrix instructions %.0f, %.2f %%\n",
           VALUE(TENSOR_INST, 0), warps * N, VALUE(TENSOR_ACTIVE, 0), VALUE(TENSOR_INST, 1), VALUE(TENSOR_ACTIVE, 1));
    double each = VALUE(TENSOR_INST, 0) / (warps * N); /* one, or two of half the size */
    CHECK(each == 1 || each == 2);
    CHECK(VALUE(TENSOR_ACTIVE, 0) > 5);
    CHECK_NEAR(VALUE(TENSOR_INST, 1), 0, 0);
    CHECK(VALUE(TENSOR_ACTIVE, 1) < 1);
    close_work();
}

/* What metrics.def has the full set read from other counters than the default one: the same values from both. Counts
 * are equal, shares of cycles those of two runs. */
enum { SEVEN = SIX + 1, OTHERS = 16, ALTERNATIVES = 2 };

static void count_seven(const stitch__counters_options *o)
{
    begin(o);
    do {
        CHECK_CU(launch_six(&work));
        CHECK_CU(launch_special(&work, 1024, 1000));
    } while (again());
    end(SEVEN);
}

/* The names after the one with the star; how many. */
static size_t plain_names(const char *text, char (*names)[STITCH__METRIC_NAME + 1])
{
    size_t count = 0;
    for (const char *at = strchr(text, '|'); at && count < ALTERNATIVES; at = strchr(at + 1, '|'))
        snprintf(names[count++], sizeof(*names), "%.*s", (int)strcspn(at + 1, "|"), at + 1);
    return count;
}

TEST(other_counters_of_the_full_set)
{
    static char names[OTHERS * ALTERNATIVES][STITCH__METRIC_NAME + 1];
    static double from[SEVEN][STITCH__METRICS], plain[STITCH__FACTS_EXTRA];
    const char *list[OTHERS * ALTERNATIVES];
    struct {
        int metric;
        size_t first, count;
    } others[OTHERS];
    size_t other_count = 0, name_count = 0;
    for (int m = 0; m < STITCH__METRICS; m++) {
        const stitch__metric_info *info = stitch__metric_info_of(m);
        if (!info->cupti || *info->cupti != '*')
            continue;
        CHECK(other_count < OTHERS);
        others[other_count].metric = m;
        others[other_count].first = name_count;
        others[other_count].count = plain_names(info->cupti, names + name_count);
        name_count += others[other_count++].count;
    }
    CHECK(other_count >= 4);
    for (size_t i = 0; i < name_count; i++)
        list[i] = names[i];
    open_work(SIX_FLOATS);
    count_seven(&full);
    printf("# full set: %zu passes, not offered: %s\n", stitch__counters_passes(counters),
           stitch__counters_missing(counters));
    for (size_t i = 0; i < SEVEN; i++)
        stitch__counters_get(counters, i, from[i], NULL);
    stitch__counters_close(counters);
    stitch__counters_options o = {STITCH__METRIC_CHEAP, list, name_count, ROOM, true};
    count_seven(&o);
    int differ = 0;
    for (size_t i = 0; i < SEVEN; i++) {
        double metrics[STITCH__METRICS];
        stitch__counters_get(counters, i, metrics, plain);
        for (size_t k = 0; k < other_count; k++) {
            const stitch__metric_info *info = stitch__metric_info_of(others[k].metric);
            const double a = from[i][others[k].metric];
            size_t n = others[k].first, after = n + others[k].count;
            while (n + 1 < after && isnan(plain[n])) /* a name that this chip does not have */
                n++;
            double most = strcmp(info->unit, "%") == 0 ? 0.5 + 0.05 * plain[n] : 0;
            bool same = fabs(a - plain[n]) <= most;
            printf("# %-12s %-22s %16.8g, %16.8g as %s%s\n", i < SIX ? six_names[i] : "special", info->key, a, plain[n],
                   names[n], same ? "" : ": DIFFERS");
            differ += !same;
        }
    }
    CHECK_INT(differ, 0);
    CHECK(from[SIX][STITCH__METRIC_XU_SHARE] > 5 && from[SIX][STITCH__METRIC_ALU_SHARE] > 5);
    CHECK(from[1][STITCH__METRIC_FMA_SHARE] > 20);
    close_work();
}

/* ---- what replaying leaves ---- */

TEST(memory_is_as_after_one_run)
{
    enum { GRID = 64, INTS = GRID * COUNTER_BLOCK, LAUNCHES = 3 };
    static int got[INTS];
    open_work(FEW_FLOATS);
    CHECK_CU(dev->drv->MemsetD8Async(work.y, 0, sizeof(got), work.stream));
    CHECK_CU(dev->drv->StreamSynchronize(work.stream));
    begin(&full_replayed);
    CHECK(stitch__counters_passes(counters) > 1);
    for (int i = 0; i < LAUNCHES; i++)
        CHECK_CU(launch_increment(&work, GRID));
    end(LAUNCHES);
    CHECK_CU(dev->drv->MemcpyDtoH(got, work.y, sizeof(got)));
    for (int i = 0; i < INTS; i++)
        CHECK_INT(got[i], LAUNCHES);
    close_work();
}

TEST(launches_of_a_graph)
{
    enum { GRID = 64, INTS = GRID * COUNTER_BLOCK };
    static int got[INTS];
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraph graph;
    CUgraphExec exec;
    open_work(FEW_FLOATS);
    CHECK_CU(dev->drv->MemsetD8Async(work.y, 0, sizeof(got), work.stream));
    CHECK_CU(dev->drv->StreamBeginCapture(work.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_CU(launch_increment(&work, GRID));
    CHECK_CU(dev->drv->StreamEndCapture(work.stream, &graph));
    CHECK_CU(dev->drv->GraphInstantiateWithParams(&exec, graph, &params));
    CHECK_CU(dev->drv->GraphDestroy(graph));
    CHECK_CU(dev->drv->StreamSynchronize(work.stream));
    begin(&cheap_replayed);
    CHECK_CU(dev->drv->GraphLaunch(exec, work.stream));
    CHECK_OK(stitch__counters_stop(counters, &err));
    printf("# a graph of one kernel: %zu launches measured, %zu dropped\n", stitch__counters_count(counters),
           stitch__counters_dropped(counters));
    CHECK(stitch__counters_count(counters) <= 1);
    CHECK_CU(dev->drv->MemcpyDtoH(got, work.y, sizeof(got)));
    for (int i = 0; i < INTS; i++)
        CHECK_INT(got[i], 1);
    dev->drv->GraphExecDestroy(exec);
    close_work();
}

static double ms_since(int64_t start)
{
    return (double)(stitch__now_ns() - start) / 1e6;
}

/* So often in each pass. */
static void count_fused(const stitch__counters_options *o, int launches)
{
    begin(o);
    int64_t start = stitch__now_ns();
    do {
        for (int i = 0; i < launches; i++)
            CHECK_CU(launch_fused(&work, 4, work.stream, 1));
    } while (again());
    double ms = ms_since(start);
    CHECK_OK(stitch__counters_stop(counters, &err));
    printf("# %d launches, room for %zu, %s: %zu measured, %zu dropped, %.1f ms\n", launches, o->max_kernels,
           o->repeats ? "repeated" : "replayed", stitch__counters_count(counters), stitch__counters_dropped(counters),
           ms);
    CHECK_INT(stitch__counters_count(counters), (size_t)launches < o->max_kernels ? (size_t)launches : o->max_kernels);
    for (size_t i = 1; i < stitch__counters_count(counters); i++)
        CHECK_NEAR(VALUE(INST, i), VALUE(INST, 0), 0);
    stitch__counters_close(counters);
    counters = NULL;
}

TEST(counts_of_launches)
{
    static const stitch__counters_options hundred = {STITCH__METRIC_CHEAP, NULL, 0, 100, true},
                                          few = {STITCH__METRIC_CHEAP, NULL, 0, 4, true},
                                          few_replayed = {STITCH__METRIC_CHEAP, NULL, 0, 4, false};
    open_work(FEW_FLOATS);
    begin(&cheap_replayed);
    end(0);
    CHECK_OK(stitch__counters_start(counters, &err)); /* the same object again */
    CHECK_CU(launch_fused(&work, 4, work.stream, 1));
    end(1);
    stitch__counters_close(counters);
    counters = NULL;
    count_fused(&hundred, 100);
    count_fused(&few, 4);
    count_fused(&few, 104); /* what launches cost that have no room */
    count_fused(&few_replayed, 6);
    close_work();
}

/* So a plan need not ask, which takes a tenth of a second. */
TEST(a_whole_device_has_what_its_chip_has)
{
    stitch__metric_plan with, without;
    need_counters();
    if (strstr(dev->info.name, " MIG ")) {
        stitch__device_leave(dev);
        SKIP("a part of a device");
    }
    stitch__cupti_chip_name chip = {STITCH__CUPTI_CHIP_NAME_SIZE, NULL, (size_t)dev->ordinal};
    stitch__cupti_availability a = {STITCH__CUPTI_AVAILABILITY_SIZE, NULL, dev->context};
    CHECK_INT(cupti->DeviceGetChipName(&chip), STITCH__CUPTI_OK);
    CHECK_INT(cupti->ProfilerGetCounterAvailability(&a), STITCH__CUPTI_OK);
    a.image = calloc(1, a.image_size + 1);
    CHECK(a.image);
    CHECK_INT(cupti->ProfilerGetCounterAvailability(&a), STITCH__CUPTI_OK);
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, chip.name, a.image, STITCH__METRIC_FULL, NULL, 0, &with, &err));
    CHECK_OK(stitch__metric_plan_make(ctx, cupti, chip.name, NULL, STITCH__METRIC_FULL, NULL, 0, &without, &err));
    bool same = with.config_size == without.config_size && memcmp(with.config, without.config, with.config_size) == 0;
    printf("# %s: %zu and %zu metrics, %zu and %zu passes, plans of %zu and %zu bytes, %s\n", chip.name,
           with.name_count, without.name_count, with.passes, without.passes, with.config_size, without.config_size,
           same ? "the same" : "not the same");
    CHECK_INT(with.name_count, without.name_count);
    CHECK_INT(with.passes, without.passes);
    CHECK_STR(with.missing, without.missing);
    stitch__metric_plan_free(&with);
    stitch__metric_plan_free(&without);
    free(a.image);
    stitch__device_leave(dev);
}

TEST(extra_metrics)
{
    static const char *const names[] = {"sm__cycles_elapsed.max", "no_such__metric.sum", "smsp__inst_executed.sum",
                                        "gpc__cycles_elapsed.avg.per_second"};
    static const stitch__counters_options o = {STITCH__METRIC_CHEAP, names, 4, 1, true};
    double metrics[STITCH__METRICS], extra[4];
    open_work(SIX_FLOATS);
    begin(&o);
    do {
        CHECK_CU(launch_fused(&work, 264, work.stream, 1000));
    } while (again());
    end(1);
    stitch__counters_get(counters, 0, metrics, extra);
    printf("# %zu passes; cycles %.0f, clock %.0f MHz\n", stitch__counters_passes(counters), extra[0], extra[3] / 1e6);
    CHECK_HAS(stitch__counters_missing(counters), "no_such__metric.sum");
    CHECK(isnan(extra[1]));
    CHECK_NEAR(extra[2], metrics[STITCH__METRIC_INST], 0);
    CHECK(extra[0] > 8000);
    CHECK(extra[3] > 1e8 && extra[3] < 1e10);
    close_work();
}

/* ---- beside traces ---- */

TEST(counters_and_traces_take_turns)
{
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    open_work(SIX_FLOATS);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch_trace_begin(ctx, NULL, &trace, &err));
        CHECK_OK(stitch__counters_open(ctx, dev, cupti, &cheap, &counters, &err));
        CHECK_ERR(stitch__counters_start(counters, &err), STITCH_E_BUSY, "a trace");
        CHECK_CU(launch_fused(&work, 4, work.stream, 1));
        CHECK_OK(stitch_trace_end(trace, &err));
        CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
        CHECK_INT(s.kernels, 1);
        stitch_trace_free(trace);
        trace = NULL;
        CHECK_OK(stitch__counters_start(counters, &err));
        CHECK_ERR(stitch_trace_begin(ctx, NULL, &trace, &err), STITCH_E_BUSY, "hardware counters");
        do {
            CHECK_CU(launch_fused(&work, 4, work.stream, 1));
        } while (again());
        end(1);
        CHECK(VALUE(INST, 0) > 0);
        stitch__counters_close(counters);
        counters = NULL;
    }
    close_work();
}

/* ---- cost, leaks ---- */

/* inst: of each kernel. */
static void time_six(const char *what, const stitch__counters_options *o, double *inst)
{
    stitch__counters_options exact = *o;
    const int rounds = o->repeats ? 2 : 1;
    exact.max_kernels = SIX;
    for (int round = 0; round < rounds; round++) {
        int64_t start = stitch__now_ns();
        CHECK_OK(stitch__counters_open(ctx, dev, cupti, &exact, &counters, &err));
        double opened = ms_since(start);
        CHECK_OK(stitch__counters_start(counters, &err));
        double started = ms_since(start);
        do {
            CHECK_CU(launch_six(&work));
        } while (again());
        double launched = ms_since(start);
        end(SIX);
        double stopped = ms_since(start);
        if (round + 1 == rounds && o->repeats)
            print_all(six_names, SIX);
        for (size_t i = 0; i < SIX; i++)
            inst[i] = VALUE(INST, i);
        int64_t at = stitch__now_ns();
        stitch__counters_close(counters);
        counters = NULL;
        printf("# six kernels, %s, round %d: open %.1f, start %.1f, launches %.1f, stop %.1f, close %.1f ms; all %.1f "
               "ms\n",
               what, round, opened, started - opened, launched - started, stopped - launched, ms_since(at),
               stopped + ms_since(at));
        CHECK(stopped < 10000);
    }
}

TEST(six_kernels)
{
    double repeated[SIX], replayed[SIX];
    open_work(SIX_FLOATS);
    int64_t start = stitch__now_ns();
    CHECK_CU(launch_six(&work));
    CHECK_CU(dev->drv->StreamSynchronize(work.stream));
    printf("# six kernels, not counted: %.2f ms\n", ms_since(start));
    time_six("cheap set, repeated", &cheap, repeated);
    time_six("full set, repeated", &full, repeated);
    time_six("cheap set, replayed", &cheap_replayed, replayed);
    for (size_t i = 0; i < SIX; i++)
        CHECK_NEAR(replayed[i], repeated[i], 0);
    close_work();
}

TEST(ten_sessions_leak_nothing)
{
    size_t before = 0, after = 0, total = 0;
    open_work(SIX_FLOATS);
    for (int i = 0; i < 12; i++) {
        begin(i % 2 ? &full : &cheap);
        do {
            CHECK_CU(launch_six(&work));
        } while (again());
        end(SIX);
        stitch__counters_close(counters);
        counters = NULL;
        CHECK_CU(dev->drv->MemGetInfo(i == 1 ? &before : &after, &total));
    }
    printf("# device memory free after 2 sessions %zu, after 12 %zu bytes\n", before, after);
    CHECK(after + (4 << 20) >= before);
    close_work();
}

TEST_MAIN(RUN(six_kernels), RUN(instructions), RUN(sectors_of_requests), RUN(bank_conflicts), RUN(matrix_instructions),
          RUN(other_counters_of_the_full_set), RUN(memory_is_as_after_one_run), RUN(launches_of_a_graph),
          RUN(counts_of_launches), RUN(a_whole_device_has_what_its_chip_has), RUN(extra_metrics),
          RUN(counters_and_traces_take_turns), RUN(ten_sessions_leak_nothing), RUN(bytes_of_an_addition))
