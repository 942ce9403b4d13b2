/* SPDX-License-Identifier: MIT
 *
 * What plausible kernels and runs are told: no cause that the facts do not show, nothing that cannot be done, no more
 * to gain than there is.
 */
#include "rule_facts.h"

/* erff() has a branch that nearly all warps split at, for some of its few instructions. */
TEST(warps_that_split_for_a_moment)
{
    stitch__facts *f = simulated();
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "gelu", 0);
    METRIC(k, INST) = 90056;
    METRIC(k, THREAD_INST) = 2662032;
    METRIC(k, BRANCHES) = 2048;
    METRIC(k, DIVERGENT_BRANCHES) = 2034;
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK(!advice_of(&a, "divergence"));
    stitch__advices_free(&a);
    METRIC(k, THREAD_INST) = 2400000;
    CHECK_INT(stitch__advise(NULL, f, &a), STITCH_OK);
    CHECK(advice_of(&a, "divergence") != NULL);
    CHECK_HAS(advice_of(&a, "divergence")->evidence, "2034 of 2048 branches split their warp, 26.7 of 32 lanes");
    release(f, &a);
}

/* CUPTI's shares of a multiprocessor's pipes leave out the multiprocessors that have no block. */
TEST(pipes_of_multiprocessors_without_a_block)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    k->grid[0] = 40; /* a product of few tiles */
    k->waves = 40 / 132.0;
    METRIC(k, TENSOR_ACTIVE) = 90;
    METRIC(k, TENSOR_INST) = 1e6;
    METRIC(k, FMA_SHARE) = 85;
    METRIC(k, FFMA) = METRIC(k, FADD) = METRIC(k, FMUL) = NAN;
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_LAUNCH);
    CHECK_NEAR(a.kernels[0].reached, 0.3, 1e-9); /* DRAM; tensor cores: 0.27 */
    CHECK_STR(a.list[0].rule, "small_grid");
    CHECK(!advice_of(&a, "compute_bound_near_limit"));
    stitch__advices_free(&a);
    METRIC(k, SM_ACTIVE) = 20; /* and some of them end early */
    METRIC(k, DRAM_BYTES) = 0;
    METRIC(k, ISSUE) = METRIC(k, L1_SHARE) = METRIC(k, L2_SHARE) = 5;
    advise(f, &a);
    CHECK_NEAR(a.kernels[0].reached, 0.2 * 0.9, 1e-9);
    stitch__advices_free(&a);
    k->grid[0] = 4096;
    k->waves = 3.88;
    METRIC(k, SM_ACTIVE) = 95;
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_COMPUTE);
    CHECK_NEAR(a.kernels[0].reached, 0.95 * 0.9, 1e-9);
    CHECK(advice_of(&a, "compute_bound_near_limit") != NULL);
    release(f, &a);
}

/* Lanes that do not exist do not diverge. */
TEST(blocks_of_one_thread)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    k->grid[0] = k->block[0] = 1;
    k->waves = 1 / 4224.0;
    METRIC(k, THREAD_INST) = METRIC(k, INST);
    advise(f, &a);
    CHECK_STR(a.list[0].rule, "small_grid");
    CHECK_HAS(a.list[0].evidence, "1 blocks of 1 threads on 132 multiprocessors");
    CHECK(!advice_of(&a, "divergence"));
    stitch__advices_free(&a);
    k->block[0] = 16;
    METRIC(k, THREAD_INST) = 4 * METRIC(k, INST);
    advise(f, &a);
    CHECK(advice_of(&a, "divergence") != NULL);
    CHECK_HAS(advice_of(&a, "divergence")->evidence, "4.0 of 16 lanes");
    release(f, &a);
}

/* erff() and the like are multiply-adds, and what L2 holds moves next to nothing in DRAM. */
TEST(functions_are_not_taken_for_products)
{
    static const struct {
        double adds, loads, shared, stores; /* of a thread: loads and wavefronts of a warp, bytes */
        bool said;
    } rows[] = {
        {100, 1, 0, 16, false},      /* gelu of a float4 */
        {100, 3, 0, 16, false},      /* ... and bias and residual */
        {200, 1, 0, 16, false},      /* of eight halves */
        {60, 2, 0, 4, false},        /* two functions of a float */
        {4096, 1, 0, 4, false},      /* z = z * z + c, again and again */
        {2048, 4096, 0, 4, true},    /* c[i] = sum of a * b */
        {2048, 128, 4096, 4, true},  /* through tiles of 16 x 16 */
        {8192, 32, 512, 256, true},  /* 8 x 8 results a thread */
        {16384, 32, 768, 256, true}, /* 8 x 16, halves */
        {64, 128, 0, 4, true},       /* of one row of 64 */
    };
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        stitch__kernel_fact *k = plain_kernel(f);
        double threads = 4096 * 256;
        METRIC(k, FFMA) = rows[i].adds * threads;
        METRIC(k, DRAM_BYTES) = 1e6;
        METRIC(k, LOAD_REQUESTS) = rows[i].loads * threads / 32;
        METRIC(k, LOAD_SECTORS) = 4 * METRIC(k, LOAD_REQUESTS);
        METRIC(k, SHARED_LOAD_WAVEFRONTS) = rows[i].shared * threads / 32;
        METRIC(k, STORE_SECTORS) = 2 * rows[i].stores * threads / 32; /* every other value */
        METRIC(k, STORE_ASKED) = 16;
        advise(f, &a);
        if ((advice_of(&a, "tensor_unused") != NULL) != rows[i].said)
            FAIL("row %zu: tensor_unused is %s", i, rows[i].said ? "not said" : "said");
        stitch__advices_free(&a);
        METRIC(k, FMA_SHARE) = 50; /* a root for each pair of bodies */
        METRIC(k, XU_SHARE) = 40;
        advise(f, &a);
        if (advice_of(&a, "tensor_unused"))
            FAIL("row %zu: tensor_unused is said of pairs", i);
        release(f, &a);
    }
}

/* A kernel that is near a limit cannot gain more than what is left to it. */
TEST(gains_end_at_the_limits)
{
    static const struct {
        build_fn build;
        const char *rule;
    } rows[] = {{tail_effect, "tail_effect"},     {small_grid, "small_grid"},
                {partial_warps, "partial_warps"}, {bank_conflicts, "bank_conflicts"},
                {uneven_blocks, "uneven_blocks"}, {barrier_stalls, "barrier_stalls"},
                {low_occupancy, "low_occupancy"}, {divergence, "divergence"}};
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        double dram = i >= 6 ? 0.55 : 0.75; /* bytes bound a kernel from 60 % on, whatever its lanes and warps do */
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        rows[i].build(f, true);
        METRIC(&f->kernels[0], DRAM_BYTES) = 500 * dram * 4100e3;
        if (i == 0)
            f->kernels[0].waves = 1.01;
        advise(f, &a);
        const stitch__advice *said = advice_of(&a, rows[i].rule);
        if (!said || said->gain_us > 500 * (1 - dram) + 1e-6)
            FAIL("%s at %.0f %% of DRAM: %g us of 500", rows[i].rule, 100 * dram, said ? said->gain_us : 0);
        release(f, &a);
    }
}

/* Two thirds of the issue slots, and four of five of those with multiply-adds: a chip with as many lanes as threads. */
TEST(arithmetic_is_what_a_kernel_is_for)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, ISSUE) = 68;
    METRIC(k, FMA_SHARE) = 55;
    METRIC(k, FFMA) = 0.8 * 32 * METRIC(k, INST);
    METRIC(k, DRAM_BYTES) = 1e9;
    advise(f, &a);
    CHECK(!advice_of(&a, "instruction_bound"));
    stitch__advices_free(&a);
    METRIC(k, FFMA) = 0.3 * 32 * METRIC(k, INST);
    advise(f, &a);
    CHECK(advice_of(&a, "instruction_bound") != NULL);
    release(f, &a);
}

/* Who has tiles in shared memory need not be told of them. */
TEST(tiles_that_are_there)
{
    for (int tiles = 0; tiles < 2; tiles++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        stitch__kernel_fact *k = plain_kernel(f);
        METRIC(k, L1_SHARE) = 90;
        METRIC(k, SHARED_LOAD_WAVEFRONTS) = tiles ? 4e7 : 1e5;
        add_line(k, 8, "t[y][x] = a[i];", "long_scoreboard", 300);
        add_line(k, 12, "acc += t[y][k] * u[k][x];", tiles ? "mio_throttle" : "long_scoreboard", 200);
        advise(f, &a);
        const stitch__advice *said = advice_of(&a, "cache_bound");
        CHECK(said != NULL);
        CHECK_HAS(said->action, "several results a thread in registers");
        CHECK_INT(strstr(said->action, "in shared memory") == NULL, tiles);
        CHECK_INT(strstr(said->evidence, "96 % of what goes through it is shared memory's") != NULL, tiles);
        CHECK_INT(said->line, tiles ? 12 : 8);
        release(f, &a);
    }
}

/* Few warps at work: blocks with more to do than others, or so short that starting them is what takes the time. */
TEST(why_few_warps_are_at_work)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    uneven_blocks(f, true);
    stitch__kernel_fact *k = &f->kernels[0];
    advise(f, &a);
    CHECK_HAS(advice_of(&a, "uneven_blocks")->action, "Split large pieces");
    stitch__advices_free(&a);
    METRIC(k, WARPS_ACTIVE) = 90; /* of the half of the time in which they have any */
    METRIC(k, SM_ACTIVE) = 50;
    advise(f, &a);
    CHECK_HAS(advice_of(&a, "uneven_blocks")->evidence, "45 % of the warps");
    CHECK_HAS(advice_of(&a, "uneven_blocks")->evidence, "for 50 % of the time multiprocessors have no block");
    stitch__advices_free(&a);
    METRIC(k, SM_ACTIVE) = 99;
    METRIC(k, WARPS_ACTIVE) = 50;
    k->grid[0] = 1 << 20;
    k->waves = (1 << 20) / 1056.0;
    advise(f, &a);
    CHECK_HAS(advice_of(&a, "uneven_blocks")->evidence, "a block lives for 0.2 us");
    CHECK_HAS(advice_of(&a, "uneven_blocks")->action, "give each more to do");
    release(f, &a);
}

/* Where neither samples nor the default counters tell what warps wait for, or nothing is known to be done about it. */
TEST(an_action_without_a_reason)
{
    for (int i = 0; i < 2; i++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        stitch__kernel_fact *k = timed_kernel(f, "few samples", 500);
        cheap_counters(k);
        if (i)
            add_line(k, 3, "y[i] = x[i];", "dispatch_stall", 400);
        advise(f, &a);
        CHECK_STR(a.list[0].rule, "latency_bound");
        CHECK_HAS(a.list[0].action, "Have more in flight");
        release(f, &a);
    }
}

/* A kernel that stays cannot become shorter than an empty one. */
TEST(short_kernels_have_little_to_gain)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    METRIC(k, DRAM_BYTES) = METRIC(k, ISSUE) = 0;
    k->time_us = f->wall_us = f->busy_us = 3;
    METRIC(k, TIME) = 3e3;
    METRIC(k, L1_SHARE) = METRIC(k, L2_SHARE) = METRIC(k, FMA_SHARE) = METRIC(k, ALU_SHARE) = 1;
    METRIC(k, FFMA) = METRIC(k, FADD) = METRIC(k, FMUL) = 0;
    METRIC(k, STALL_BARRIER) = 40;
    advise(f, &a);
    CHECK_NEAR(advice_of(&a, "barrier_stalls")->gain_us, 1.5, 1e-9);
    stitch__advices_free(&a);
    k->time_us = 1.4;
    advise(f, &a);
    CHECK_INT(a.count, 0);
    stitch__advices_free(&a);
    conversions(f, true); /* but it can go */
    f->kernels[1].time_us = 1.4;
    METRIC(&f->kernels[1], TIME) = 1400;
    advise(f, &a);
    CHECK_NEAR(advice_of(&a, "conversions")->gain_us, 1.4, 1e-9);
    release(f, &a);
}

/* What spills has no registers to spare for more warps, and there are 255 of them. */
TEST(registers_cannot_be_more_and_fewer)
{
    for (int all = 0; all < 2; all++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        spills(f, true);
        stitch__kernel_fact *k = &f->kernels[0];
        k->registers = all ? 255 : 64;
        k->occupancy = 0.25;
        k->limiter = "registers";
        METRIC(k, LOCAL_LOADS) = 5e6;
        advise(f, &a);
        CHECK_HAS(advice_of(&a, "spills")->action, all ? "all 255 registers" : "A larger register limit");
        CHECK_INT(strstr(advice_of(&a, "spills")->action, "larger register limit") == NULL, all);
        CHECK_HAS(advice_of(&a, "low_occupancy")->action, "fewer values alive at once");
        CHECK(!strstr(advice_of(&a, "low_occupancy")->action, "__launch_bounds__"));
        release(f, &a);
    }
}

TEST(few_warps_with_tensor_cores)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    low_occupancy(f, true);
    METRIC(&f->kernels[0], TENSOR_ACTIVE) = 30;
    METRIC(&f->kernels[0], TENSOR_INST) = 1e7;
    advise(f, &a);
    CHECK_HAS(advice_of(&a, "low_occupancy")->action, "more stages of tiles");
    CHECK(!strstr(advice_of(&a, "low_occupancy")->action, "__launch_bounds__"));
    release(f, &a);
}

/* The default counters do not know how wide accesses are. */
TEST(near_the_limit_of_memory_by_default_counters)
{
    static const struct {
        double sectors, asked;
        const char *words;
    } rows[] = {{4, NAN, NULL},
                {8, NAN, "8.0 sectors of 32 bytes: as it should be if a thread loads 8 bytes"},
                {16, NAN, "loads 16 bytes"},
                {8, 32, NULL}};
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        stitch__kernel_fact *k = plain_kernel(f);
        METRIC(k, DRAM_BYTES) = 500 * 0.93 * 4100e3;
        METRIC(k, LOAD_SECTORS) = rows[i].sectors * METRIC(k, LOAD_REQUESTS);
        METRIC(k, LOAD_ASKED) = rows[i].asked;
        advise(f, &a);
        const char *action = advice_of(&a, "memory_bound_near_limit")->action;
        if (rows[i].words)
            CHECK_HAS(action, rows[i].words);
        else
            CHECK(!strstr(action, "sectors"));
        release(f, &a);
    }
}

/* An elementwise kernel of PyTorch: it cannot be made faster, but be gone. */
TEST(what_a_kernel_of_a_library_is_told)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = plain_kernel(f);
    k->library = true;
    k->occupancy = 0.2;
    METRIC(k, DRAM_BYTES) = 500 * 0.93 * 4100e3;
    advise(f, &a);
    CHECK_INT(a.count, 1);
    CHECK_HAS(advice_of(&a, "memory_bound_near_limit")->action, "fuse it with its neighbours");
    release(f, &a);
}

TEST(atomic_operations_are_told_by_their_text)
{
    static const char *const yes[] = {"atomicAdd(&sum[0], v);",
                                      "my_atomic_max(p, v);",
                                      "gpu_atomicAdd(p, v);",
                                      "asm volatile(\"red.global.add.f32 [%0], %1;\" :: \"l\"(p), \"f\"(v));",
                                      "\"red.relaxed.gpu.global.add.f32 [%0], %1;\"",
                                      "\"{\\n\\tatom.add.u32 %0\"",
                                      "cuda::atomic_ref<int>(n).fetch_add(1);"};
    static const char *const no[] = {"",
                                     "v = shared.tile[i];",
                                     "sum += filtered.x * centered.global;",
                                     "pixel.red.x = atom.x;",
                                     "sum[i] = v; // no atomics: each its own",
                                     "red.",
                                     "y[i] = red.y;",
                                     "c.shared.add(x);"};
    for (size_t i = 0; i < STITCH__COUNT(yes); i++) {
        if (!stitch__is_atomic(yes[i]))
            FAIL("no: %s", yes[i]);
    }
    for (size_t i = 0; i < STITCH__COUNT(no); i++) {
        if (stitch__is_atomic(no[i]))
            FAIL("yes: %s", no[i]);
    }
}

/* An engine that allocates before each short kernel: a graph would not help. */
TEST(calls_are_not_taken_for_launches)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    many_launches(f, 40, 2, 400);
    f->slow_call = "cuMemAlloc_v2";
    f->slow_call_us = 380;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_HOST);
    CHECK_HAS(a.run.because, "for 380.00 us of that while the host is in cuMemAlloc_v2");
    CHECK_STR(a.list[0].rule, "slow_calls");
    CHECK_HAS(a.list[0].evidence, "the device is idle for 380.00 us while the host is in cuMemAlloc_v2");
    CHECK_NEAR(a.list[0].gain_us, 380, 1e-9);
    CHECK(!advice_of(&a, "launch_bound"));
    release(f, &a);
}

/* The steps of a recurrent layer: 6 us each, in a graph; with what is between them a third of the time is no work. */
TEST(steps_of_a_recurrent_layer)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    many_launches(f, 500, 6, 600);
    f->graph = true;
    advise(f, &a);
    CHECK(advice_of(&a, "many_small_kernels") != NULL);
    CHECK_HAS(advice_of(&a, "many_small_kernels")->evidence, "500 kernels of 6.0 us each, although in a graph");
    stitch__advices_free(&a);
    f->idle_us = 0; /* one after the other without a gap: a fifth */
    f->kernels[0].time_us = 9;
    f->busy_us = f->wall_us = 4500;
    advise(f, &a);
    CHECK(!advice_of(&a, "many_small_kernels"));
    release(f, &a);
}

TEST_MAIN(RUN(warps_that_split_for_a_moment), RUN(pipes_of_multiprocessors_without_a_block), RUN(blocks_of_one_thread),
          RUN(functions_are_not_taken_for_products), RUN(gains_end_at_the_limits),
          RUN(arithmetic_is_what_a_kernel_is_for), RUN(tiles_that_are_there), RUN(why_few_warps_are_at_work),
          RUN(an_action_without_a_reason), RUN(short_kernels_have_little_to_gain),
          RUN(registers_cannot_be_more_and_fewer), RUN(few_warps_with_tensor_cores),
          RUN(near_the_limit_of_memory_by_default_counters), RUN(what_a_kernel_of_a_library_is_told),
          RUN(atomic_operations_are_told_by_their_text), RUN(calls_are_not_taken_for_launches),
          RUN(steps_of_a_recurrent_layer))
