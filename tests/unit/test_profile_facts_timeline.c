/* SPDX-License-Identifier: MIT
 *
 * Timelines as facts, on records made by hand: rows of kernels by step, figures of one run of several.
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

static void fill(uint64_t runs)
{
    CHECK_INT(stitch__timeline_finish(&t), STITCH_OK);
    CHECK_INT(stitch__analyse(&t, &a), STITCH_OK);
    CHECK_OK(stitch__facts_timeline(f, &t, &a, runs, &err));
    CHECK(facts_ok(f));
}

TEST(nothing)
{
    start();
    fill(1);
    CHECK_INT(f->kernel_count, 0);
    CHECK_STR(f->no_timeline, "nothing ran on the device");
    CHECK_STR(f->source, "cupti");
    CHECK_INT(f->multiprocessors, 132);
    CHECK(!f->graph);
    CHECK_ERR(stitch__facts_timeline(f, &t, &a, 0, &err), STITCH_E_INVALID, "no runs");
    start();
    fill(7);
    CHECK_NEAR(f->idle_us, 0, 0);
}

/* Three runs of ln, product (two kernels), ln, with 50 us between the runs. */
static void three_runs(void)
{
    static const char *const kinds[] = {"kernel", "gemm", "kernel"};
    start();
    make_steps(kinds, 3);
    for (int64_t r = 0; r < 3; r++) {
        int64_t at = r * 100000;
        kernel("ln", 0, at, at + 10000);
        kernel("lt_main", 1, at + 12000, at + 30000)->registers = 168;
        kernel("lt_tail", 1, at + 30000, at + 32000);
        kernel("ln", 2, at + 37000, at + 50000 - r * 1000)->dynamic_shared = r ? 0 : 512;
    }
}

TEST(rows_by_step)
{
    three_runs();
    fill(3);
    CHECK_INT(f->kernel_count, 4);
    CHECK_STR(f->no_timeline, "");
    const stitch__kernel_fact *k = f->kernels;
    CHECK_STR(k[0].name, "lt_main");
    CHECK_INT(k[0].step, 1);
    CHECK(k[0].library);
    CHECK_INT(k[0].launches, 1);
    CHECK_NEAR(k[0].time_us, 18, 1e-9);
    CHECK_NEAR(k[0].gap_us, 2, 1e-9);
    CHECK_NEAR(k[0].share, 54.0 / 126, 1e-9);
    CHECK_STR(k[0].limiter, "registers");
    CHECK_NEAR(k[0].occupancy, 0.125, 1e-9);
    CHECK_NEAR(k[0].waves, 1, 1e-9);
    CHECK_STR(k[1].name, "ln");
    CHECK_INT(k[1].step, 2);
    CHECK(!k[1].library);
    CHECK_NEAR(k[1].time_us, 12, 1e-9);
    CHECK_NEAR(k[1].gap_us, 5, 1e-9);
    CHECK_INT(k[1].dynamic_shared, 512); /* the longest launch's */
    CHECK_STR(k[2].name, "ln");
    CHECK_INT(k[2].step, 0);
    CHECK_NEAR(k[2].time_us, 10, 1e-9);
    CHECK_NEAR(k[2].gap_us, 0, 0); /* the first of a run */
    CHECK_INT(k[2].grid[0], 132);
    CHECK_INT(k[2].block[0], 256);
    CHECK_INT(k[2].registers, 32);
    CHECK_STR(k[3].name, "lt_tail");
    CHECK_NEAR(k[3].gap_us, 0, 0);
    CHECK_NEAR(k[0].share + k[1].share + k[2].share + k[3].share, 1, 1e-9);
    CHECK_INT(f->launches, 4);
    CHECK_NEAR(f->busy_us, 42, 1e-9); /* of 43, 42 and 41 */
    CHECK_NEAR(f->idle_us, 7, 1e-9);
    CHECK_INT(f->copies + f->fills + f->copy_bytes, 0);
}

TEST(idle_time_within_runs)
{
    three_runs();
    /* run 0: the host waits from 8 to 11 us, calls from 11 to 11.5, does its own until 12; between runs it waits */
    add(STITCH_TRACE_SYNC, "stream", 8000, 11000);
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 11000, 11500);
    add(STITCH_TRACE_SYNC, "stream", 51000, 99000);
    /* in runs 1 and 2 it is in a call all the time */
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 100000, 250000);
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 32000, 37000);
    fill(3);
    CHECK_NEAR(f->idle_us, 7, 1e-9);
    CHECK_NEAR(f->sync_us, 1 / 3.0, 1e-9);
    CHECK_NEAR(f->host_us, 0.5 / 3, 1e-9);
    three_runs();
    t.kinds = STITCH__TRACE_ON_DEVICE; /* calls were not recorded: nothing is known of the host */
    fill(3);
    CHECK_NEAR(f->idle_us, 7, 1e-9);
    CHECK_NEAR(f->sync_us, 0, 0);
    CHECK_NEAR(f->host_us, 0, 0);
    three_runs();
    fill(1); /* as one run the gaps between them count */
    CHECK_NEAR(f->idle_us, 21 + 50 + 51, 1e-9);
    CHECK_INT(f->kernels[2].launches, 3);
    CHECK_NEAR(f->kernels[2].gap_us, (50 + 51) / 3.0, 1e-9);
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
    fill(1);
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
    fill(1);
    CHECK_NEAR(f->idle_us, 8, 1e-9);
    CHECK_NEAR(f->sync_us, 3, 1e-9);
    CHECK_NEAR(f->host_us, 2, 1e-9);
}

TEST(runs_that_cannot_be_told_apart)
{
    three_runs();
    kernel("one_more", -1, 400000, 401000);
    fill(3);
    CHECK_INT(f->kernel_count, 5);
    CHECK_NEAR(f->idle_us, 0, 0);
    CHECK_NEAR(f->kernels[0].gap_us, 0, 0);
    CHECK_NEAR(f->kernels[0].time_us, 18, 1e-9);
    CHECK_INT(f->kernels[4].launches, 1); /* at least one, as it is there */
    CHECK_INT(f->launches, 4);
    three_runs();
    for (int i = 0; i < 3; i++)
        kernel("untimed", 2, 0, 0)->timed = false;
    fill(3);
    CHECK_NEAR(f->idle_us, 0, 0);
    CHECK_INT(f->kernel_count, 5);
    CHECK_NEAR(f->kernels[4].time_us, 0, 0);
    CHECK_INT(f->kernels[4].launches, 1);
    three_runs();
    t.dropped = 4;
    fill(3);
    CHECK_NEAR(f->idle_us, 0, 0);
    CHECK_HAS(f->no_timeline, "dropped");
}

TEST(without_steps)
{
    static const char *const one[] = {"op"};
    three_runs();
    stitch_free(f->steps);
    f->steps = NULL;
    f->step_count = 0;
    fill(3);
    CHECK_INT(f->kernel_count, 3); /* both ln are one row */
    CHECK_STR(f->kernels[0].name, "ln");
    CHECK_INT(f->kernels[0].launches, 2);
    CHECK_NEAR(f->kernels[0].time_us, 11, 1e-9);
    CHECK_NEAR(f->kernels[0].gap_us, 2.5, 1e-9);
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(f->kernels[i].step, -1);
        CHECK(!f->kernels[i].library);
    }
    start();
    make_steps(one, 1);
    kernel("inside", 0, 0, 1000);
    kernel("inside", 1, 1000, 2000); /* past the steps that are there */
    fill(1);
    CHECK_INT(f->kernel_count, 2);
    CHECK_INT(f->kernels[0].step + f->kernels[1].step, -1);
    CHECK(f->kernels[0].library != f->kernels[1].library);
    static const char *const kinds[] = {"gemm", "op", "copy", "fill", "kernel"};
    start();
    make_steps(kinds, 5);
    for (int i = 0; i < 5; i++)
        kernel("k", i, 1000 * i, 1000 * i + 500);
    fill(1);
    /* What the driver copies and fills with is no kernel of the program. */
    CHECK_INT(f->kernel_count, 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_INT(f->kernels[i].library, f->kernels[i].step < 2);
    CHECK_INT(f->launches, 3);
    CHECK_INT(f->copies, 1);
    CHECK_INT(f->fills, 1);
    CHECK_NEAR(f->copy_us, 1, 1e-9);
}

TEST(copies_and_graphs)
{
    start();
    for (int64_t r = 0; r < 2; r++) {
        int64_t at = r * 100000;
        stitch__event *e = add(STITCH_TRACE_COPY, "HtoD", at, at + 10000);
        e->bytes = 1000;
        e->pageable = true;
        add(STITCH_TRACE_COPY, "DtoH", at + 2000, at + 6000)->bytes = 500;
        t.events[t.count - 1].detail = 2;
        add(STITCH_TRACE_COPY, "DtoD", at + 10000, at + 13000)->bytes = 4000;
        t.events[t.count - 1].detail = 8;
        add(STITCH_TRACE_FILL, "fill", at + 13000, at + 14000)->bytes = 99;
        kernel("k", -1, at + 14000, at + 20000);
    }
    fill(2);
    CHECK_NEAR(f->copy_us, 14, 1e-9);
    CHECK_NEAR(f->host_copy_us, 14, 1e-9); /* both directions at once: no more than all copies */
    CHECK_INT(f->copy_bytes, 5500);
    CHECK_INT(f->host_copy_bytes, 1500);
    CHECK_INT(f->copies, 3);
    CHECK_INT(f->fills, 1);
    CHECK_INT(f->launches, 1);
    CHECK_INT(f->pageable_copies, 1);
    CHECK_NEAR(f->busy_us, 20, 1e-9);
    CHECK(!f->graph);
    for (int calls = 0; calls < 3; calls++) {
        start();
        for (int64_t r = 0; r < 2; r++) {
            kernel("k", -1, r * 10000, r * 10000 + 1000)->graph_node = 5;
            kernel("m", -1, r * 10000 + 1000, r * 10000 + 2000)->graph_node = 6;
            if (calls)
                add(STITCH_TRACE_GRAPH_LAUNCH, "cuGraphLaunch", r * 10000 - 500, r * 10000);
        }
        if (calls == 2) /* and one launch beside the graph */
            t.events[0].graph_node = 0;
        t.kinds = calls ? ~0u : STITCH__TRACE_ON_DEVICE;
        fill(2);
        CHECK_INT(f->graph, calls < 2);
    }
}

TEST(more_kernels_than_are_kept)
{
    char name[32];
    start();
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "k%d", i);
        kernel(name, -1, i * 10000, i * 10000 + 1000 + i);
    }
    fill(1);
    CHECK_INT(f->kernel_count, STITCH__FACTS_KERNELS);
    CHECK_INT(f->kernels_left_out, 300 - STITCH__FACTS_KERNELS);
    CHECK_STR(f->kernels[0].name, "k299");
    CHECK_STR(f->kernels[STITCH__FACTS_KERNELS - 1].name, "k44"); /* the shortest are left out */
    CHECK_INT(f->launches, 300);
}

/* Runs of a random program, against sums by hand. */
TEST(random_runs_match_a_sum)
{
    uint32_t seed = 7;
    for (int round = 0; round < 50; round++) {
        enum { MOST = 20 };
        int64_t at = 0, idle = 0, busy = 0, times[MOST] = {0}, gaps[MOST] = {0};
        char name[32];
        start();
        int runs = 1 + round % 5, steps = 1 + (int)(seed >> 9) % MOST;
        for (int r = 0; r < runs; r++) {
            for (int s = 0; s < steps; s++) {
                seed = seed * 1664525u + 1013904223u;
                int64_t gap = seed >> 30 ? (seed >> 12) % 3000 : 0, time = 1 + (seed >> 5) % 5000;
                at += gap;
                snprintf(name, sizeof(name), "k%d", s);
                kernel(name, -1, at, at + time);
                at += time;
                busy += time;
                times[s] += time;
                idle += s ? gap : 0;
                gaps[s] += s ? gap : 0;
            }
        }
        fill((uint64_t)runs);
        CHECK_NEAR(f->busy_us * 1e3 * runs, busy, 1e-3);
        CHECK_NEAR(f->idle_us * 1e3 * runs, idle, 1e-3);
        CHECK_INT(f->kernel_count, steps);
        for (int i = 0; i < steps; i++) {
            const stitch__kernel_fact *k = &f->kernels[i];
            int s = atoi(k->name + 1);
            CHECK_NEAR(k->time_us * 1e3 * runs, times[s], 1e-3);
            CHECK_NEAR(k->gap_us * 1e3 * runs, gaps[s], 1e-3);
            CHECK(!i || k->time_us <= k[-1].time_us);
            CHECK_INT(k->launches, 1);
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
    three_runs();
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
            rc = stitch__facts_timeline(g, &t, &a, 3, &err);
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

TEST_MAIN(RUN(nothing), RUN(rows_by_step), RUN(idle_time_within_runs), RUN(idle_time_after_launches),
          RUN(runs_that_cannot_be_told_apart), RUN(without_steps), RUN(copies_and_graphs),
          RUN(more_kernels_than_are_kept), RUN(random_runs_match_a_sum), RUN(every_allocation_fails))
