/* SPDX-License-Identifier: MIT
 *
 * Timelines as facts, on records made by hand: rows of kernels by step, figures of a run.
 */
#include "check.h"
#include "meter.h"
#include "facts_check.h"
#include "profile/profile.h"

static stitch_error *err;
static stitch__timeline t;
static stitch__analysis a;
static stitch__facts *f;

static void start(void)
{
    stitch__analysis_free(&a);
    stitch__timeline_free(&t);
    stitch__facts_free(f);
    f = NULL;
    stitch__timeline_init(&t, NULL);
    t.kinds = ~0u;
    t.length = 1000000000;
    t.sm = (stitch__sm){132, 2048, 32, 65536, 233472, 1024};
    CHECK_OK(stitch__facts_new(NULL, &f, &err));
}

static stitch__event *add(int kind, const char *name, int64_t from, int64_t to)
{
    stitch__event e = {.start = from, .end = to, .calls = 1, .step = -1, .timed = true, .kind = (uint8_t)kind};
    CHECK_INT(stitch__timeline_name(&t, name, kind == STITCH_TRACE_KERNEL, &e.name), STITCH_OK);
    if (kind == STITCH_TRACE_COPY)
        e.detail = 1;
    if (kind == STITCH_TRACE_FILL)
        e.detail = STITCH__TRACE_DIRECTIONS - 1;
    for (int i = 0; kind == STITCH_TRACE_KERNEL && i < 3; i++)
        e.grid[i] = e.block[i] = 1;
    stitch__timeline_add(&t, &e);
    return &t.events[t.count - 1];
}

static stitch__event *kernel(const char *name, int32_t step, int64_t from, int64_t to)
{
    stitch__event *e = add(STITCH_TRACE_KERNEL, name, from, to);
    e->step = step;
    e->grid[0] = 132;
    e->block[0] = 256;
    e->registers = 32;
    return e;
}

static void make_steps(const char *const *kinds, size_t count)
{
    f->steps = stitch__calloc(NULL, count, sizeof(*f->steps));
    CHECK(f->steps != NULL);
    f->step_count = count;
    for (size_t i = 0; i < count; i++)
        f->steps[i] = (stitch__step_fact){"run", kinds[i], "", -1, "", 0, false};
}

static void fill(void)
{
    CHECK_INT(stitch__timeline_finish(&t), STITCH_OK);
    CHECK_INT(stitch__analyse(&t, &a), STITCH_OK);
    CHECK_OK(stitch__facts_timeline(f, &t, &a, &err));
    CHECK(facts_ok(f));
}

TEST(nothing)
{
    start();
    fill();
    CHECK_INT(f->kernel_count, 0);
    CHECK_STR(f->no_timeline, "nothing ran on the device");
    CHECK_STR(f->source, "cupti");
    CHECK_INT(f->multiprocessors, 132);
    CHECK(!f->graph);
    CHECK_NEAR(f->idle_us, 0, 0);
}

/* Ln, product (two kernels), ln twice: as a repeat. */
static void one_run(void)
{
    static const char *const kinds[] = {"kernel", "gemm", "kernel"};
    start();
    make_steps(kinds, 3);
    kernel("ln", 0, 0, 10000);
    kernel("lt_main", 1, 12000, 30000)->registers = 168;
    kernel("lt_tail", 1, 30000, 32000);
    kernel("ln", 2, 37000, 50000)->dynamic_shared = 512;
    kernel("ln", 2, 51000, 62000);
}

TEST(rows_by_step)
{
    one_run();
    fill();
    CHECK_INT(f->kernel_count, 4);
    CHECK_STR(f->no_timeline, "");
    const stitch__kernel_fact *k = f->kernels;
    CHECK_STR(k[0].name, "ln");
    CHECK_INT(k[0].step, 2);
    CHECK(!k[0].library);
    CHECK_INT(k[0].launches, 2);
    CHECK_NEAR(k[0].time_us, 12, 1e-9);
    CHECK_NEAR(k[0].gap_us, 3, 1e-9);
    CHECK_NEAR(k[0].share, 24.0 / 54, 1e-9);
    CHECK_INT(k[0].dynamic_shared, 512); /* the longest launch's */
    CHECK_STR(k[1].name, "lt_main");
    CHECK_INT(k[1].step, 1);
    CHECK(k[1].library);
    CHECK_INT(k[1].launches, 1);
    CHECK_NEAR(k[1].time_us, 18, 1e-9);
    CHECK_NEAR(k[1].gap_us, 2, 1e-9);
    CHECK_STR(k[1].limiter, "registers");
    CHECK_NEAR(k[1].occupancy, 0.125, 1e-9);
    CHECK_NEAR(k[1].waves, 1, 1e-9);
    CHECK_STR(k[2].name, "ln");
    CHECK_INT(k[2].step, 0);
    CHECK_NEAR(k[2].time_us, 10, 1e-9);
    CHECK_NEAR(k[2].gap_us, 0, 0); /* the first */
    CHECK_INT(k[2].grid[0], 132);
    CHECK_INT(k[2].block[0], 256);
    CHECK_INT(k[2].registers, 32);
    CHECK_STR(k[3].name, "lt_tail");
    CHECK_NEAR(k[3].gap_us, 0, 0);
    CHECK_NEAR(k[0].share + k[1].share + k[2].share + k[3].share, 1, 1e-9);
    CHECK_INT(f->launches, 5);
    CHECK_NEAR(f->busy_us, 54, 1e-9);
    CHECK_NEAR(f->idle_us, 8, 1e-9);
    CHECK_INT(f->copies + f->fills + f->copy_bytes, 0);
}

TEST(idle_time)
{
    /* The host waits from 8 to 11 us, calls from 11 to 11.5, does its own until 12; waits from 31 to 33, calls. */
    one_run();
    add(STITCH_TRACE_SYNC, "stream", 8000, 11000);
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 11000, 11500);
    add(STITCH_TRACE_SYNC, "stream", 31000, 33000);
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 33000, 100000);
    fill();
    CHECK_NEAR(f->idle_us, 8, 1e-9);
    CHECK_NEAR(f->sync_us, 2, 1e-9);
    CHECK_NEAR(f->host_us, 0.5, 1e-9);
    one_run();
    t.kinds = STITCH__TRACE_ON_DEVICE; /* calls were not recorded: nothing is known of the host */
    fill();
    CHECK_NEAR(f->idle_us, 8, 1e-9);
    CHECK_NEAR(f->sync_us, 0, 0);
    CHECK_NEAR(f->host_us, 0, 0);
}

/* While the host waits for what it has launched, gaps are the device's own. */
TEST(idle_time_after_launches)
{
    start();
    for (int i = 0; i < 4; i++) { /* a graph of four nodes */
        stitch__event *e = kernel("k", -1, 10000 + i * 2000, 11000 + i * 2000);
        e->graph_node = 3 + (uint64_t)i;
        e->correlation = 77;
    }
    add(STITCH_TRACE_GRAPH_LAUNCH, "cuGraphLaunch", 5000, 6000)->correlation = 77;
    add(STITCH_TRACE_DRIVER, "cuStreamQuery", 6500, 13000)->correlation = 78;
    add(STITCH_TRACE_SYNC, "stream", 14500, 18000)->correlation = 79;
    fill();
    CHECK(f->graph);
    CHECK_NEAR(f->idle_us, 3, 1e-9);
    CHECK_NEAR(f->sync_us, 0, 0);
    CHECK_NEAR(f->host_us, 0, 0);

    /* Two launches ahead, and one after the host has waited (to 16), done its own (to 18) and launched (from 18 on). */
    start();
    kernel("k", -1, 10000, 11000)->correlation = 1;
    kernel("k", -1, 12000, 13000)->correlation = 2;
    kernel("k", -1, 20000, 21000)->correlation = 3;
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 7000, 8000)->correlation = 1;
    add(STITCH_TRACE_RUNTIME, "cudaLaunchKernel", 8200, 9500)->correlation = 2;
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 8500, 9000)->correlation = 2;
    add(STITCH_TRACE_DRIVER, "cuStreamSynchronize", 9600, 16000)->correlation = 4;
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 18000, 19000)->correlation = 3;
    add(STITCH_TRACE_DRIVER, "cuStreamSynchronize", 19100, 22000)->correlation = 5;
    fill();
    CHECK_NEAR(f->idle_us, 8, 1e-9);
    CHECK_NEAR(f->sync_us, 3, 1e-9);
    CHECK_NEAR(f->host_us, 2, 1e-9);
}

TEST(records_that_are_missing)
{
    one_run();
    kernel("untimed", 2, 0, 0)->timed = false;
    fill();
    CHECK_INT(f->kernel_count, 5);
    CHECK_STR(f->kernels[4].name, "untimed");
    CHECK_NEAR(f->kernels[4].time_us, 0, 0);
    CHECK_INT(f->kernels[4].launches, 1);
    CHECK_NEAR(f->kernels[0].time_us, 12, 1e-9);
    CHECK_HAS(f->no_timeline, "have no times");
    one_run();
    t.dropped = 4;
    fill();
    CHECK_NEAR(f->idle_us, 8, 1e-9);
    CHECK_HAS(f->no_timeline, "dropped");
}

TEST(without_steps)
{
    static const char *const one[] = {"op"};
    one_run();
    stitch_free(f->steps);
    f->steps = NULL;
    f->step_count = 0;
    fill();
    CHECK_INT(f->kernel_count, 3); /* all ln are one row */
    CHECK_STR(f->kernels[0].name, "ln");
    CHECK_INT(f->kernels[0].launches, 3);
    CHECK_NEAR(f->kernels[0].time_us, 34 / 3.0, 1e-9);
    CHECK_NEAR(f->kernels[0].gap_us, 2, 1e-9);
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(f->kernels[i].step, -1);
        CHECK(!f->kernels[i].library);
    }
    start();
    make_steps(one, 1);
    kernel("inside", 0, 0, 1000);
    kernel("inside", 1, 1000, 2000); /* past the steps that are there */
    fill();
    CHECK_INT(f->kernel_count, 2);
    CHECK_INT(f->kernels[0].step + f->kernels[1].step, -1);
    CHECK(f->kernels[0].library != f->kernels[1].library);
    static const char *const kinds[] = {"gemm", "op", "copy", "fill", "kernel"};
    start();
    make_steps(kinds, 5);
    for (int i = 0; i < 5; i++)
        kernel("k", i, 1000 * i, 1000 * i + 500);
    fill();
    /* What the driver copies and fills with is no kernel of the program. */
    CHECK_INT(f->kernel_count, 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_INT(f->kernels[i].library, f->kernels[i].step < 2);
    CHECK_INT(f->launches, 3);
    CHECK_INT(f->copies, 1);
    CHECK_INT(f->fills, 1);
    CHECK_NEAR(f->copy_us, 1, 1e-9);
}

/* Calls by what of the idle time was in them, before the launch that ended it. */
TEST(slow_calls)
{
    start();
    kernel("k", -1, 0, 10000);
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 5000, 16000); /* 6 us of the gap */
    add(STITCH_TRACE_DRIVER, "cuModuleLoadData", 16000, 19000);
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 9000, 19000)->thread = 2; /* of what comes later */
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 19000, 39000)->correlation = 7;
    kernel("k", -1, 40000, 50000)->correlation = 7;
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 42000, 48000); /* the device works */
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 51000, 53000);
    add(STITCH_TRACE_DRIVER, "cuStreamSynchronize", 53000, 70000);
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 70000, 71000)->correlation = 9;
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 71000, 79000); /* what comes next is launched already */
    kernel("k", -1, 80000, 90000)->correlation = 9;
    fill();
    CHECK_STR(f->slow_call, "cuMemAlloc_v2");
    CHECK_NEAR(f->slow_call_us, 6 + 2, 1e-9);
    start();
    t.kinds = STITCH__TRACE_BIT(KERNEL);
    kernel("k", -1, 0, 10000);
    kernel("k", -1, 40000, 50000);
    fill();
    CHECK_STR(f->slow_call, "");
    CHECK_NEAR(f->slow_call_us, 0, 1e-9);
}

/* What a host runs without a program: of PyTorch, of cuBLAS, its own. */
TEST(kernels_of_libraries_by_name)
{
    static const char *const theirs[] = {"_ZN2at6native29vectorized_elementwise_kernelILi4EEEvv",
                                         "nvjet_sm90_tst_128x64_64x8_h_bz_TNT",
                                         "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64",
                                         "ampere_sgemm_128x64_tn",
                                         "_ZN8cublasLt19splitKreduce_kernelILi32EEEvv",
                                         "_ZN5cudnn5bn_fwEv"};
    static const char *const ours[] = {"ln", "my_ampere_gemm", "_ZN7cutlass7Kernel2I6MyGemmEEvv", "step<128>",
                                       "bat::native::k"};
    start();
    for (size_t i = 0; i < STITCH__COUNT(theirs); i++)
        kernel(theirs[i], -1, 1000 * (int64_t)i, 1000 * (int64_t)i + 500);
    for (size_t i = 0; i < STITCH__COUNT(ours); i++)
        kernel(ours[i], -1, 50000 + 1000 * (int64_t)i, 50000 + 1000 * (int64_t)i + 200);
    fill();
    CHECK_INT(f->kernel_count, STITCH__COUNT(theirs) + STITCH__COUNT(ours));
    for (size_t i = 0; i < f->kernel_count; i++) {
        if (f->kernels[i].library != (f->kernels[i].time_us > 0.3))
            FAIL("%s is %s of a library", f->kernels[i].name, f->kernels[i].library ? "one" : "none");
    }
    static const char *const kinds[] = {"kernel"};
    start();
    make_steps(kinds, 1); /* a program's kernels are its own, whatever they are called */
    kernel("ampere_sgemm_128x64_tn", 0, 0, 1000);
    kernel("nvjet_sm90", 7, 1000, 2000);
    fill();
    CHECK(!f->kernels[0].library && !f->kernels[1].library);
}

TEST(copies_and_graphs)
{
    start();
    stitch__event *e = add(STITCH_TRACE_COPY, "HtoD", 0, 10000);
    e->bytes = 1000;
    e->pageable = true;
    e = add(STITCH_TRACE_COPY, "DtoH", 2000, 6000);
    e->bytes = 500;
    e->detail = 2;
    e = add(STITCH_TRACE_COPY, "DtoD", 10000, 13000);
    e->bytes = 4000;
    e->detail = 8;
    add(STITCH_TRACE_FILL, "fill", 13000, 14000)->bytes = 99;
    kernel("k", -1, 12500, 20000);
    fill();
    CHECK_NEAR(f->copy_us, 14, 1e-9);
    CHECK_NEAR(f->overlap_us, 1.5, 1e-9);
    CHECK_NEAR(f->host_copy_us, 14, 1e-9); /* both directions at once: no more than all copies */
    CHECK_INT(f->copy_bytes, 5500);
    CHECK_INT(f->host_copy_bytes, 1500);
    CHECK_INT(f->copies, 3);
    CHECK_INT(f->fills, 1);
    CHECK_INT(f->launches, 1);
    CHECK_INT(f->pageable_copies, 1);
    CHECK_NEAR(f->busy_us, 20, 1e-9);
    CHECK(!f->graph);
    for (int graphs = 0; graphs < 3; graphs++) {
        start();
        kernel("k", -1, 0, 1000)->graph_node = 5;
        kernel("m", -1, 1000, 2000)->graph_node = 6;
        for (int i = 0; i < graphs; i++)
            add(STITCH_TRACE_GRAPH_LAUNCH, "cuGraphLaunch", 100 * i, 100 * i + 50);
        t.kinds = graphs ? ~0u : STITCH__TRACE_ON_DEVICE;
        fill();
        CHECK_INT(f->graph, graphs < 2);
    }
    start();
    kernel("k", -1, 0, 1000)->graph_node = 5;
    kernel("m", -1, 1000, 2000); /* beside the graph */
    fill();
    CHECK(!f->graph);
}

TEST(more_kernels_than_are_kept)
{
    char name[32];
    start();
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "k%d", i);
        kernel(name, -1, i * 10000, i * 10000 + 1000 + i);
    }
    fill();
    CHECK_INT(f->kernel_count, STITCH__FACTS_KERNELS);
    CHECK_INT(f->kernels_left_out, 300 - STITCH__FACTS_KERNELS);
    CHECK_STR(f->kernels[0].name, "k299");
    CHECK_STR(f->kernels[STITCH__FACTS_KERNELS - 1].name, "k44"); /* the shortest are left out */
    CHECK_INT(f->launches, 300);
}

/* Random launches, against sums by hand. */
TEST(random_launches_match_a_sum)
{
    uint32_t seed = 7;
    for (int round = 0; round < 50; round++) {
        enum { MOST = 20 };
        int64_t at = 0, idle = 0, busy = 0, times[MOST] = {0}, gaps[MOST] = {0};
        int rounds = 1 + round % 5, names = 1 + (int)(seed >> 9) % MOST;
        char name[32];
        start();
        for (int i = 0; i < rounds * names; i++) {
            seed = seed * 1664525u + 1013904223u;
            int64_t gap = i && seed >> 30 ? (seed >> 12) % 3000 : 0, time = 1 + (seed >> 5) % 5000;
            at += gap;
            snprintf(name, sizeof(name), "k%d", i % names);
            kernel(name, -1, at, at + time);
            at += time;
            busy += time;
            idle += gap;
            times[i % names] += time;
            gaps[i % names] += gap;
        }
        fill();
        CHECK_NEAR(f->busy_us * 1e3, busy, 1e-3);
        CHECK_NEAR(f->idle_us * 1e3, idle, 1e-3);
        CHECK_INT(f->kernel_count, names);
        for (int i = 0; i < names; i++) {
            const stitch__kernel_fact *k = &f->kernels[i];
            int n = atoi(k->name + 1);
            CHECK_NEAR(k->time_us * 1e3 * rounds, times[n], 1e-3);
            CHECK_NEAR(k->gap_us * 1e3 * rounds, gaps[n], 1e-3);
            CHECK(!i || k->time_us <= k[-1].time_us);
            CHECK_INT(k->launches, rounds);
        }
    }
    start();
}

/* ---- memory ---- */

TEST(every_allocation_fails)
{
    meter m = {0, -1, 0};
    stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &m};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx;
    bool done = false;
    o.cache_dir = "";
    o.device = "none";
    o.allocator = &allocator;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    int64_t before = m.live;
    one_run();
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 100000, 250000);
    CHECK_INT(stitch__timeline_finish(&t), STITCH_OK);
    CHECK_INT(stitch__analyse(&t, &a), STITCH_OK);
    t.arena.ctx = ctx; /* of what is allocated from here on */
    for (int64_t n = 0; !done; n++) {
        stitch__facts *g = NULL;
        m.calls = 0;
        m.refuse_at = n;
        int rc = stitch__facts_new(ctx, &g, &err);
        if (rc == STITCH_OK)
            rc = stitch__facts_timeline(g, &t, &a, &err);
        m.refuse_at = -1;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        CHECK(rc == STITCH_OK || m.calls > n);
        done = m.calls <= n;
        CHECK(!done || g->kernel_count == 3);
        stitch_error_free(err);
        err = NULL;
        stitch__facts_free(g);
        CHECK_INT(m.live, before);
        CHECK(n < 1000);
    }
    t.arena.ctx = NULL;
    stitch_context_free(ctx);
    start();
}

TEST_MAIN(RUN(nothing), RUN(rows_by_step), RUN(idle_time), RUN(idle_time_after_launches), RUN(records_that_are_missing),
          RUN(without_steps), RUN(slow_calls), RUN(kernels_of_libraries_by_name), RUN(copies_and_graphs),
          RUN(more_kernels_than_are_kept), RUN(random_launches_match_a_sum), RUN(every_allocation_fails))
