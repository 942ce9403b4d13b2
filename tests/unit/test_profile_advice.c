/* SPDX-License-Identifier: MIT
 *
 * Verdicts and advice of typical kernels and runs, with figures of their order on an H200; text within a budget, JSON,
 * every failing allocation, facts that make no sense.
 */
#include "advice_facts.h"
#include "meter.h"
#include "profile/rules.h"

static void advise(const stitch__facts *f, stitch__advices *a)
{
    CHECK_INT(stitch__advise(NULL, f, a), STITCH_OK);
    CHECK_INT(a->kernel_count, f->kernel_count);
}

static void release(stitch__facts *f, stitch__advices *a)
{
    stitch__advices_free(a);
    stitch__facts_free(f);
}

static char *text_of(const stitch__facts *f, const stitch__advices *a, size_t max)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__advice_write_text(f, a, max, &b);
    char *text = stitch__buf_take(&b, NULL);
    CHECK(text != NULL);
    return text;
}

static void check_text(const stitch__facts *f, const stitch__advices *a, const char *part)
{
    char *text = text_of(f, a, 0);
    CHECK_HAS(text, part);
    stitch_free(text);
}

static void one_run(stitch__facts *f)
{
    f->wall_us = f->busy_us = 0;
    for (size_t i = 0; i < f->kernel_count; i++)
        f->wall_us += f->kernels[i].time_us * (double)f->kernels[i].launches;
    f->busy_us = f->wall_us;
    for (size_t i = 0; i < f->kernel_count; i++)
        f->kernels[i].share = f->kernels[i].time_us * (double)f->kernels[i].launches / f->wall_us;
}

/* ---- kernels ---- */

/* c = a * b of 2048 x 2048 float32, one thread an element, no tiles: 17.2 GFLOP in 3.1 ms. */
static stitch__kernel_fact *naive_matmul(stitch__facts *f)
{
    stitch__kernel_fact *k = timed_kernel(f, "matmul", 3100);
    k->grid[0] = k->grid[1] = 64;
    k->block[0] = k->block[1] = 32;
    k->waves = 15.5;
    cheap_counters(k);
    METRIC(k, DRAM_SHARE) = 1.2;
    METRIC(k, DRAM_BYTES) = 6.1e7;
    METRIC(k, WARPS_ACTIVE) = 98;
    METRIC(k, ISSUE) = 36;
    METRIC(k, L1_HIT) = 92;
    add_line(k, 9, "acc += a[row * n + k] * b[k * n + col];", "lg_throttle", 2600);
    add_line(k, 12, "c[row * n + col] = acc;", "long_scoreboard", 12);
    k->lines[0].reasons[k->lines[0].reason_count++] = (stitch__reason){"long_scoreboard", 900};
    k->lines[0].samples += 900;
    k->samples += 900;
    one_run(f);
    return k;
}

static void matmul_counters(stitch__kernel_fact *k)
{
    METRIC(k, DRAM_READ) = 4.4e7;
    METRIC(k, DRAM_WRITE) = 1.7e7;
    METRIC(k, L2_SHARE) = 14;
    METRIC(k, L2_HIT) = 97;
    METRIC(k, L1_SHARE) = 94;
    METRIC(k, INST) = 1.3e9;
    METRIC(k, THREAD_INST) = 32 * 1.3e9;
    METRIC(k, FMA_SHARE) = 10;
    METRIC(k, ALU_SHARE) = 6;
    METRIC(k, XU_SHARE) = METRIC(k, FP64_SHARE) = 0;
    METRIC(k, FFMA) = 2048.0 * 2048 * 2048;
    METRIC(k, FADD) = METRIC(k, FMUL) = 0;
    METRIC(k, LOAD_REQUESTS) = 2 * METRIC(k, FFMA) / 32;
    METRIC(k, LOAD_SECTORS) = 2.5 * METRIC(k, LOAD_REQUESTS);
    METRIC(k, STORE_REQUESTS) = 131072;
    METRIC(k, STORE_SECTORS) = 524288;
    METRIC(k, LOCAL_LOADS) = METRIC(k, LOCAL_STORES) = 0;
    METRIC(k, STALL_LG) = 14;
    METRIC(k, STALL_LONG) = 6;
    METRIC(k, STALL_WAIT) = 1;
}

TEST(naive_matmul_with_all_counters)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    matmul_counters(naive_matmul(f));
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_MEMORY);
    CHECK_HAS(a.kernels[0].because, "load/store pipe of L1 and shared memory at 94 %");
    CHECK_NEAR(a.kernels[0].reached, 0.94, 1e-9);
    CHECK_NEAR(a.kernels[0].limit_us, 0.94 * 3100, 1e-6);
    CHECK_NEAR(a.kernels[0].tflops, 2 * 8.589934592e9 / 3100e6, 1e-3);
    CHECK_NEAR(a.kernels[0].intensity, 2 * 8.589934592e9 / 6.1e7, 1e-3);
    CHECK_NEAR(a.kernels[0].gb_s, 6.1e7 / 3100e3, 1e-3);
    CHECK_INT(a.run.bound, STITCH__BOUND_MEMORY);
    CHECK_STR(a.list[0].rule, "tensor_unused");
    CHECK_INT(a.list[0].line, 9);
    CHECK_HAS(a.list[0].evidence, "2048 a thread");
    CHECK(advice_of(&a, "cache_bound") != NULL);
    CHECK_INT(advice_of(&a, "cache_bound")->line, 9);
    CHECK_HAS(advice_of(&a, "cache_bound")->evidence, "0.5 multiply-adds a load");
    CHECK_INT(a.count, 2);
    stitch__advices_free(&a);
    f->precision = STITCH_PRECISION_F32;
    advise(f, &a);
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "cache_bound");
    release(f, &a);
}

/* Without the counters that would tell, the line does. */
TEST(naive_matmul_with_few_counters_and_samples)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    METRIC(naive_matmul(f), L2_SHARE) = 1;
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_LATENCY);
    CHECK_HAS(a.kernels[0].because, "far from the limits that were counted: L2 at 1 %, issue slots");
    CHECK_HAS(a.kernels[0].because, "lg_throttle");
    CHECK(a.kernels[0].tflops == 0 && a.kernels[0].intensity == 0);
    CHECK(advice_of(&a, "tensor_unused") != NULL);
    CHECK_INT(advice_of(&a, "tensor_unused")->line, 9);
    CHECK(advice_of(&a, "cache_bound") != NULL);
    CHECK_INT(advice_of(&a, "cache_bound")->line, 9);
    CHECK(advice_of(&a, "latency_bound") == NULL);
    check_text(f, &a, "at 36 % of the nearest limit that was counted, DRAM");
    release(f, &a);
}

/* 8192 x 8192 float32; writes along columns: 0.54 GB in 640 us. */
TEST(uncoalesced_transpose)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "transpose", 640);
    full_counters(k);
    METRIC(k, DRAM_BYTES) = 5.9e8;
    METRIC(k, L2_SHARE) = 82;
    METRIC(k, LOAD_REQUESTS) = METRIC(k, STORE_REQUESTS) = 2097152;
    METRIC(k, LOAD_SECTORS) = 4 * 2097152.0;
    METRIC(k, STORE_SECTORS) = 32 * 2097152.0;
    METRIC(k, STORE_ASKED) = 4;
    add_line(k, 6, "out[x * n + y] = in[y * n + x];", "long_scoreboard", 1800);
    add_line(k, 5, "if (x < n && y < n)", "wait", 40);
    one_run(f);
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_MEMORY);
    CHECK_HAS(a.kernels[0].because, "L2 at 82 %");
    CHECK_STR(a.list[0].rule, "uncoalesced");
    CHECK_INT(a.list[0].line, 6);
    CHECK_STR(a.list[0].file, "program.cu");
    CHECK_STR(a.list[0].source, "out[x * n + y] = in[y * n + x];");
    CHECK_HAS(a.list[0].evidence,
              "4.0 sectors a load request (32 bytes of each are asked for), 32.0 a store request (4 bytes");
    CHECK(a.list[0].gain_us > 300 && a.list[0].gain_us < 640);
    CHECK_INT(a.count, 1);
    check_text(f, &a, "At program.cu:6: out[x * n + y]");
    release(f, &a);
}

/* The same through tile[32][32]: coalesced, but 32 lanes read one bank. */
TEST(bank_conflicted_transpose)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "transpose", 310);
    full_counters(k);
    METRIC(k, DRAM_BYTES) = 5.4e8;
    METRIC(k, L1_SHARE) = 93;
    METRIC(k, SHARED_STORE_WAVEFRONTS) = 2.1e6;
    METRIC(k, SHARED_LOAD_WAVEFRONTS) = 67.1e6;
    METRIC(k, SHARED_LOAD_CONFLICTS) = 65e6;
    METRIC(k, STALL_SHORT) = 9;
    METRIC(k, STALL_MIO) = 12;
    add_line(k, 12, "out[y * n + x] = tile[threadIdx.x][threadIdx.y];", "short_scoreboard", 900);
    add_line(k, 8, "tile[threadIdx.y][threadIdx.x] = in[y * n + x];", "long_scoreboard", 400);
    one_run(f);
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_MEMORY);
    CHECK_STR(a.list[0].rule, "bank_conflicts");
    CHECK_INT(a.list[0].line, 12);
    CHECK_INT(a.count, 1);
    CHECK_NEAR(a.list[0].gain_us, 310 - 5.4e8 / 4100e3, 1e-6); /* what is moved takes 132 us without conflicts, too */
    release(f, &a);
}

/* A product of half matrices with wgmma: 128 blocks that stay, two warp groups each. */
TEST(tuned_product)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "gemm", 190);
    f->precision = STITCH_PRECISION_F16;
    full_counters(k);
    k->grid[0] = 132;
    k->block[0] = 384;
    k->registers = 168;
    k->dynamic_shared = 196608;
    k->occupancy = 0.1875;
    k->limiter = "shared memory";
    k->waves = 1;
    METRIC(k, WARPS_ACTIVE) = 18;
    METRIC(k, DRAM_BYTES) = 2.4e8;
    METRIC(k, TENSOR_ACTIVE) = 88;
    METRIC(k, TENSOR_INST) = 4.2e6;
    METRIC(k, ISSUE) = 9;
    METRIC(k, STALL_GMMA) = 6;
    METRIC(k, STALL_BARRIER) = 3;
    one_run(f);
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_COMPUTE);
    CHECK_HAS(a.kernels[0].because, "tensor cores at 88 %");
    CHECK(a.kernels[0].tflops == 0 && a.kernels[0].intensity == 0); /* those of tensor cores are not counted */
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "compute_bound_near_limit");
    CHECK_NEAR(a.list[0].gain_us, 0.12 * 190, 1e-6);
    release(f, &a);
}

/* A copy with float4 at what the device was measured to copy at. */
TEST(tuned_copy)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "copy", 140);
    full_counters(k);
    k->occupancy = 0.5;
    METRIC(k, DRAM_SHARE) = 84;
    METRIC(k, DRAM_BYTES) = 140 * 0.96 * 4100e3;
    METRIC(k, LOAD_SECTORS) = 16e6;
    METRIC(k, STORE_SECTORS) = 8e6;
    METRIC(k, STALL_LONG) = 30;
    one_run(f);
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_MEMORY);
    CHECK_HAS(a.kernels[0].because, "DRAM at 96 % of the 4100 GB/s that it was measured to copy at");
    CHECK_INT(a.count, 1);
    CHECK_STR(a.list[0].rule, "memory_bound_near_limit");
    check_text(f, &a, "Memory-bound: DRAM at 96 %");
    stitch__advices_free(&a);
    f->ceilings = (stitch__ceilings){0}; /* then by CUPTI's share of the peak */
    advise(f, &a);
    CHECK_HAS(a.kernels[0].because, "DRAM at 84 % of its peak");
    release(f, &a);
}

TEST(classes_of_kernels)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    timed_kernel(f, "empty", 1.9);
    timed_kernel(f, "few blocks", 50)->grid[0] = 8;
    timed_kernel(f, "unknown", 50);
    full_counters(timed_kernel(f, "waits", 50));
    f->no_counters = "another tool holds CUPTI";
    one_run(f);
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_LAUNCH);
    CHECK_INT(a.kernels[1].bound, STITCH__BOUND_LAUNCH);
    CHECK_HAS(a.kernels[1].because, "8 blocks on 132 multiprocessors");
    CHECK_INT(a.kernels[2].bound, STITCH__BOUND_UNKNOWN);
    CHECK_HAS(a.kernels[2].because, "another tool holds CUPTI");
    CHECK_INT(a.kernels[3].bound, STITCH__BOUND_LATENCY);
    CHECK(a.kernels[2].reached == 0 && a.kernels[2].limit_us == 0);
    check_text(f, &a, "Not measured: counters (another tool holds CUPTI).");
    release(f, &a);
}

/* Counted only: by operations a byte that threads ask for, against what the architecture should reach. */
TEST(roofline_of_counts)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    f->wall_us = f->busy_us = 0;
    f->source = "simulator";
    for (int i = 0; i < 3; i++) {
        stitch__kernel_fact *k = timed_kernel(f, i ? "much" : "little", 0);
        METRIC(k, FLOPS) = i ? 1e9 : 1e6;
        METRIC(k, GLOBAL_BYTES) = 8e6;
        METRIC(k, INST) = i ? 1e6 : 1e4;
        METRIC(k, MMA_INST) = i == 2 ? 1e5 : 0;
    }
    advise(f, &a);
    CHECK_INT(a.kernels[0].bound, STITCH__BOUND_MEMORY);
    CHECK_INT(a.kernels[1].bound, STITCH__BOUND_COMPUTE); /* 125 operations a byte; float32 needs 14.6 */
    CHECK_HAS(a.kernels[1].because, "125 operations for each byte that threads ask for");
    CHECK_HAS(a.kernels[1].because, "14.6");
    CHECK_HAS(a.kernels[2].because, "97.6"); /* TF32 products at 400 TFLOP/s */
    CHECK_INT(a.run.bound, STITCH__BOUND_COMPUTE);
    CHECK(a.run.limit_us == 0 && a.run.reached == 0);
    release(f, &a);
}

/* ---- runs ---- */

static void chain_of(stitch__facts *f, uint64_t count, double time_us, double idle_us)
{
    stitch__kernel_fact *k = timed_kernel(f, "step", time_us);
    k->launches = f->launches = count;
    k->gap_us = idle_us / (double)count;
    one_run(f);
    f->idle_us = idle_us;
    f->wall_us += idle_us;
}

TEST(chain_of_launches)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    chain_of(f, 64, 1.7, 160);
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_LAUNCH);
    CHECK_HAS(a.run.because, "idle for 60 % of 268.80 us, for 160.00 us of that between launches");
    CHECK_STR(a.list[0].rule, "launch_bound");
    CHECK_NEAR(a.list[0].gain_us, 160 - 63 * 1.2, 1e-6);
    check_text(f, &a, "Launch-bound: the device is idle");
    check_text(f, &a, "Most to gain: launch_bound, up to 84.40 us (31 % of the run).");
    stitch__advices_free(&a);
    f->graph = true;
    f->idle_us = 75;
    f->wall_us = 64 * 1.7 + 75;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_LAUNCH);
    CHECK_HAS(a.run.because, "between the nodes of a graph");
    CHECK_STR(a.list[0].rule, "many_small_kernels");
    release(f, &a);
}

TEST(copies_from_the_host)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    timed_kernel(f, "small", 90);
    one_run(f);
    f->copies = 3;
    f->pageable_copies = 2;
    f->host_copy_bytes = f->copy_bytes = 67108864;
    f->host_copy_us = f->copy_us = 5200;
    f->busy_us = f->wall_us = 5290;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_COPY);
    CHECK_HAS(a.run.because, "98 % of 5.29 ms");
    CHECK_HAS(a.run.because, "67.1 MB at 12.9 GB/s; 2 of them with memory that is not pinned");
    CHECK_STR(a.list[0].rule, "host_copies");
    CHECK_NEAR(a.list[0].gain_us, 5200, 1e-6);
    release(f, &a);
}

/* The next batch comes while this one is worked on, and the device is never idle: copies are not what it waits for. */
TEST(copies_beside_kernels)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    full_counters(timed_kernel(f, "work", 5200));
    one_run(f);
    f->copies = 2;
    f->host_copy_bytes = f->copy_bytes = 67108864;
    f->host_copy_us = f->overlap_us = 5000;
    f->copy_us = 5100; /* 100 of them within the device */
    f->busy_us = f->wall_us = 5300;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_LATENCY); /* that of the kernel */
    CHECK(!advice_of(&a, "host_copies"));
    CHECK(!advice_of(&a, "redundant_copies"));
    stitch__advices_free(&a);
    f->overlap_us = 2000;
    f->busy_us = f->wall_us = 5900;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_COPY);
    CHECK_HAS(a.run.because, "51 % of 5.90 ms with no kernel beside them: 67.1 MB at 13.4 GB/s");
    CHECK_HAS(advice_of(&a, "host_copies")->evidence, "take 5.00 ms, 3.00 ms of that with no kernel beside them");
    CHECK_NEAR(advice_of(&a, "host_copies")->gain_us, 3000, 1e-6);
    release(f, &a);
}

TEST(waits_of_the_host)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    chain_of(f, 10, 50, 1500);
    f->sync_us = 1300;
    f->host_us = 150;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_HOST);
    CHECK_HAS(a.run.because, "for 1.30 ms of that while the host waits");
    CHECK_STR(a.list[0].rule, "sync_bound");
    stitch__advices_free(&a);
    f->sync_us = 0;
    f->host_us = 1400;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_HOST);
    CHECK_STR(a.list[0].rule, "host_bound");
    release(f, &a);
}

TEST(mixed_run)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    stitch__kernel_fact *k = timed_kernel(f, "big", 600);
    full_counters(k);
    METRIC(k, DRAM_BYTES) = 600 * 0.9 * 4100e3;
    k = timed_kernel(f, "waits", 400);
    full_counters(k);
    k->launches = 2;
    one_run(f);
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_LATENCY); /* 800 of 1400 us */
    CHECK_HAS(a.run.because, "waits, 57 % of the kernel time: far from every limit");
    CHECK_NEAR(a.run.limit_us, 600 * 0.9 + 800 * 0.3, 1e-6);
    CHECK_NEAR(a.run.reached, (600 * 0.9 + 800 * 0.3) / 1400, 1e-9);
    CHECK_STR(a.list[0].rule, "latency_bound");
    release(f, &a);
}

static bool advised(const stitch__advices *a, const char *rule)
{
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->list[i].rule, rule) == 0)
            return true;
    return false;
}

/* Lines that are not kept have samples, too: those that are kept speak for themselves only. */
TEST(samples_beyond_the_lines)
{
    stitch__facts *f = h200(NULL);
    stitch__kernel_fact *k = timed_kernel(f, "k", 100);
    add_line(k, 7, "__syncthreads();", "barrier", 150);
    add_line(k, 9, "y[i] = x[i];", "long_scoreboard", 50);
    k->samples = 1000;
    CHECK_NEAR(stitch__stall_share(k, "barrier"), 0.15, 1e-9);
    k->samples = 100; /* which cannot be */
    CHECK_NEAR(stitch__stall_share(k, "barrier"), 0.75, 1e-9);
    stitch__facts_free(f);
}

/* Less than half a per cent of the run is not worth a reader's time, whoever's it is. */
TEST(gains_of_next_to_nothing)
{
    for (int worth = 0; worth < 2; worth++) {
        stitch__facts *f = h200(NULL);
        stitch__advices a;
        timed_kernel(f, "large", 1000);
        stitch__kernel_fact *k = timed_kernel(f, "small", worth ? 80 : 30); /* both above a kernel's own threshold */
        k->block[0] = 57;
        k->block[1] = k->block[2] = 1;
        one_run(f);
        advise(f, &a);
        CHECK(advised(&a, "partial_warps") == (worth == 1));
        release(f, &a);
    }
}

TEST(nothing_was_observed)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    f->no_timeline = "no GPU";
    f->wall_us = f->busy_us = 0;
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_UNKNOWN);
    CHECK_INT(a.count, 0);
    check_text(f, &a, "What bounds it is not known: nothing was observed: no GPU.\n");
    release(f, &a);
    CHECK_STR(stitch__bound_class_name(-1), "unknown");
    CHECK_STR(stitch__bound_class_name(STITCH__BOUND_CLASSES), "unknown");
    CHECK_STR(stitch__bound_class_name(STITCH__BOUND_HOST), "host");
}

/* ---- text and JSON ---- */

/* Something of everything. */
static stitch__facts *rich(const stitch_context *ctx)
{
    stitch__facts *f = h200(ctx);
    static const char *const names[] = {"matmul",
                                        "gr\xc3\xb6\xc3\x9f"
                                        "er<int>",
                                        "relu", "norm"};
    matmul_counters(naive_matmul(f));
    for (int i = 1; i < 4; i++) {
        stitch__kernel_fact *k = timed_kernel(f, names[i], 1000 - 100 * i);
        full_counters(k);
        k->step = i;
        METRIC(k, STORE_SECTORS) = i == 1 ? 1.6e7 : 2e6;
        METRIC(k, STORE_ASKED) = i == 1 ? 4 : 32;
        METRIC(k, STALL_BARRIER) = i == 2 ? 9 : 0;
        add_line(k, 20 + (uint32_t)i, "out[x * n + y] = in[y * n + x]; // \xc3\xa4", "long_scoreboard", 800);
    }
    add_steps(f, 4);
    f->steps[1].next = 2;
    f->steps[2].next = 3;
    f->steps[1].between = f->steps[2].between = "h";
    f->steps[1].between_bytes = f->steps[2].between_bytes = 300000000;
    one_run(f);
    f->launches = 4;
    f->copy_us = f->host_copy_us = 3000;
    f->wall_us += 3000;
    f->kernels_left_out = 3;
    f->no_samples = "not allowed";
    return f;
}

TEST(many_kernels_of_next_to_nothing)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    f->graph = true;
    f->launches = 3001;
    f->wall_us = 3700;
    f->busy_us = 3301.5;
    f->idle_us = 300;
    for (int i = 0; i < 2; i++) {
        stitch__kernel_fact *k = stitch__facts_add_kernel(f);
        CHECK(k != NULL);
        k->name = i ? "first" : "next";
        k->launches = i ? 1 : 3000;
        k->time_us = i ? 1.5 : 1.1;
    }
    advise(f, &a);
    CHECK_INT(a.run.bound, STITCH__BOUND_LAUNCH);
    CHECK_STR(a.run.because, "3001 kernels of 1.1 us each, hardly more than an empty one takes");
    CHECK_STR(a.list[0].rule, "many_small_kernels");
    CHECK_STR(
        a.list[0].evidence,
        "3001 kernels of 1.1 us each, although in a graph; of 3.70 ms, starting and ending them takes about 3.60 ms");
    stitch__advices_free(&a);
    f->kernel_count = 1; /* of one name */
    advise(f, &a);
    CHECK_STR(a.run.because, "3000 kernels of 1.1 us each, hardly more than an empty one takes");
    stitch__advices_free(&a);
    f->kernels[0].launches = f->launches = 1;
    f->wall_us = f->busy_us = 1.1;
    f->idle_us = 0;
    advise(f, &a);
    CHECK_STR(a.run.because, "one kernel of 1.1 us, hardly more than an empty one takes");
    release(f, &a);
}

TEST(text_keeps_its_budget)
{
    stitch__facts *f = rich(NULL);
    stitch__advices a;
    advise(f, &a);
    CHECK(a.count >= 5);
    char *all = text_of(f, &a, 0);
    size_t full = strlen(all);
    CHECK(!strstr(all, "Left out"));
    CHECK_HAS(all, "3 more kernels were not looked at.");
    CHECK_HAS(all, "stall reasons (not allowed)");
    CHECK_HAS(all, "- 56.4 %: 1 x 3.10 ms matmul: memory-bound, at 94 % of the nearest limit");
    CHECK_HAS(all, "1. [tensor_unused] matmul, up to ");
    for (size_t max = 1; max < full + 200; max++) {
        char *text = text_of(f, &a, max);
        size_t len = strlen(text);
        if (len > max || !stitch__utf8_valid(text, len))
            FAIL("%zu bytes of %zu: %s", len, max, text);
        size_t head = strcspn(all, "\n");
        if (strncmp(text, all, len < head ? len : head) != 0)
            FAIL("does not begin with the decisive fact: %s", text);
        if (max > head + 100 && len + 60 < full && !strstr(text, "Left out: "))
            FAIL("does not say what is missing: %s", text);
        if (max > head + 300 && !strstr(text, "1. [tensor_unused]"))
            FAIL("%zu bytes are without the first advice: %s", max, text);
        if (strstr(text, "\n5. [") && !strstr(text, "\n1. ["))
            FAIL("the most valuable goes first: %s", text);
        stitch_free(text);
    }
    stitch_free(all);
    release(f, &a);
}

TEST(long_lists_are_counted)
{
    stitch__facts *f = h200(NULL);
    stitch__advices a;
    char names[60][16];
    for (int i = 0; i < 60; i++) {
        snprintf(names[i], sizeof(names[i]), "kernel%d", i);
        timed_kernel(f, names[i], 100)->occupancy = 0.1;
    }
    one_run(f);
    advise(f, &a);
    check_text(f, &a, "Left out: kernels: 36, advice: 0, shortened advice: 0.\n"); /* 1.7 % of the time each */
    release(f, &a);
}

TEST(json_has_all)
{
    stitch__facts *f = rich(NULL);
    stitch__advices a;
    stitch__buf b;
    json_t *root = NULL;
    advise(f, &a);
    stitch__buf_init(&b, NULL);
    CHECK_INT(stitch__advice_write_json(f, &a, &b), STITCH_OK);
    CHECK_OK(stitch__json_parse(NULL, b.data, b.len, 0, "advice", &root, &err));
    json_t *verdict = json_object_get(root, "verdict"), *kernels = json_object_get(root, "kernels");
    json_t *list = json_object_get(root, "advice"), *first = json_array_get(list, 0);
    CHECK_STR(json_string_value(json_object_get(verdict, "bound")), "memory");
    CHECK_STR(json_string_value(json_object_get(verdict, "because")), a.run.because);
    CHECK_INT(json_array_size(kernels), 4);
    CHECK_STR(json_string_value(json_object_get(json_array_get(kernels, 1), "name")), f->kernels[1].name);
    CHECK_INT(json_integer_value(json_object_get(json_array_get(kernels, 1), "step")), 1);
    CHECK(json_is_null(json_object_get(json_array_get(kernels, 0), "step")));
    CHECK_NEAR(json_real_value(json_object_get(json_array_get(kernels, 0), "reached")), 0.94, 1e-9);
    CHECK_INT(json_array_size(list), a.count);
    CHECK_STR(json_string_value(json_object_get(first, "rule")), "tensor_unused");
    CHECK_INT(json_integer_value(json_object_get(first, "kernel")), 0);
    CHECK_INT(json_integer_value(json_object_get(first, "line")), 9);
    CHECK_NEAR(json_real_value(json_object_get(first, "gain_us")), a.list[0].gain_us, 0.01);
    for (size_t i = 0; i < a.count; i++) {
        json_t *o = json_array_get(list, i);
        static const char *const keys[] = {"rule",    "kernel",   "step",   "file",    "line",      "source",
                                           "problem", "evidence", "action", "gain_us", "gain_share"};
        for (size_t j = 0; j < STITCH__COUNT(keys); j++)
            CHECK(json_object_get(o, keys[j]) != NULL);
    }
    json_decref(root);
    stitch__buf_free(&b);
    release(f, &a);
}

TEST(advice_outlives_the_facts)
{
    stitch__facts *f = rich(NULL);
    stitch__advices a;
    char source[] = "y[i] = x[i];";
    f->kernels[0].lines[0].text = stitch__facts_text(f, source);
    advise(f, &a);
    stitch__facts_free(f);
    for (size_t i = 0; i < a.count; i++)
        CHECK(strlen(a.list[i].source) + strlen(a.list[i].file) + strlen(a.list[i].evidence) > 0);
    stitch__advices_free(&a);
    stitch__advices_free(&a);
    stitch__advices_free(NULL);
}

/* ---- no memory ---- */

static int everything(const stitch_context *ctx, const stitch__facts *f)
{
    stitch__advices a;
    stitch__buf text, json;
    int rc = stitch__advise(ctx, f, &a);
    stitch__buf_init(&text, ctx);
    stitch__buf_init(&json, ctx);
    if (rc == STITCH_OK) {
        stitch__advice_write_text(f, &a, 0, &text);
        rc = stitch__advice_write_json(f, &a, &json);
        CHECK(rc == STITCH_OK || json.failed);
        rc = rc == STITCH_OK && text.failed ? STITCH_E_NOMEM : rc;
    } else {
        CHECK(a.count == 0 && a.list == NULL && a.kernels == NULL);
    }
    stitch__buf_free(&text);
    stitch__buf_free(&json);
    stitch__advices_free(&a);
    return rc;
}

static void fail_each(bool for_good)
{
    stitch__facts *f = rich(NULL);
    meter m = {0, -1, 0, for_good};
    stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &m};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    o.allocator = &allocator;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    int64_t live = m.live;
    int rc = STITCH_E_NOMEM, refused = 0;
    for (int64_t n = 0; n < 10000 && rc != STITCH_OK; n++) {
        m.calls = 0;
        m.refuse_at = n;
        rc = everything(ctx, f);
        refused++;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        CHECK_INT(m.live, live);
        CHECK(rc != STITCH_OK || m.calls <= n);
    }
    CHECK_INT(rc, STITCH_OK);
    CHECK(refused > 50);
    stitch_context_free(ctx);
    stitch__facts_free(f);
}

TEST(each_allocation_fails_once)
{
    fail_each(false);
}

TEST(each_allocation_fails_and_all_later_ones)
{
    fail_each(true);
}

/* ---- facts that make no sense ---- */

static uint64_t state;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double wild_number(void)
{
    static const double values[] = {0,      -1,     1,    0.5, NAN,  INFINITY, -INFINITY, 1e308, -1e308,
                                    1e-308, 5e-324, 1e15, 100, 99.9, 1e300,    2.2,       150,   1e6};
    uint64_t r = random_bits();
    return r % 3 ? values[r / 3 % STITCH__COUNT(values)] : (double)(r % 100000) / 7;
}

static uint64_t wild_count(void)
{
    static const uint64_t values[] = {0, 1, 2, 100, UINT64_MAX, UINT64_MAX / 2, 1u << 31, 77};
    return values[random_bits() % STITCH__COUNT(values)];
}

static const char *wild_text(void)
{
    static const char *const values[] = {
        "",
        "x",
        "atomic",
        "acc += a * b",
        "fma(",
        "%s%n",
        "\xff\xfe",
        "\xc3",
        "a\nb\tc\x1b[0m",
        "registers",
        "gemm",
        "op",
        "copy",
        "a very long name that goes on and on and on and on and on and on and on and on \xc3\xa4\xc3\xa4 "
        "and on and on and on and on and on and on and on and on and on and on and on and on and on and on and on"};
    return values[random_bits() % STITCH__COUNT(values)];
}

static void wild_kernel(stitch__kernel_fact *k)
{
    static const char *const reasons[] = {"long_scoreboard", "barrier", "lg_throttle", "odd", "", "branch_resolving"};
    k->name = wild_text();
    k->symbol = wild_text();
    k->limiter = wild_text();
    k->step = (int32_t)wild_count();
    k->library = random_bits() % 4 == 0;
    k->launches = wild_count();
    k->time_us = wild_number();
    k->share = wild_number();
    k->gap_us = wild_number();
    for (int i = 0; i < 3; i++) {
        k->grid[i] = (uint32_t)wild_count();
        k->block[i] = (uint32_t)wild_count();
    }
    k->local = (uint32_t)wild_count();
    k->registers = (uint32_t)wild_count();
    k->static_shared = k->dynamic_shared = (uint32_t)wild_count();
    k->occupancy = wild_number();
    k->waves = wild_number();
    for (int i = 0; i < STITCH__METRICS; i++)
        k->metric[i] = random_bits() % 2 ? wild_number() : NAN;
    k->samples = wild_count();
    k->line_count = random_bits() % 5 ? random_bits() % 4 : SIZE_MAX;
    for (size_t i = 0; i < STITCH__FACTS_LINES; i++) {
        stitch__line_fact *l = &k->lines[i];
        *l = (stitch__line_fact){
            wild_text(),  (uint32_t)wild_count(), wild_text(),  wild_count(), 0,           {{0}}, wild_count(),
            wild_count(), wild_count(),           wild_count(), wild_count(), wild_count()};
        l->reason_count = random_bits() % 5 ? 3 : SIZE_MAX;
        for (size_t j = 0; j < 3; j++)
            l->reasons[j] = (stitch__reason){reasons[random_bits() % STITCH__COUNT(reasons)], wild_count()};
    }
}

static stitch__facts *wild_facts(size_t kernels, size_t steps)
{
    stitch__facts *f = h200(NULL);
    f->source = wild_text();
    f->device = wild_text();
    f->no_counters = wild_text();
    f->no_timeline = wild_text();
    f->multiprocessors = (uint32_t)wild_count();
    f->precision = (int32_t)wild_count();
    for (double *d = &f->ceilings.dram_gb_s; d <= &f->ceilings.graph_node_us; d++)
        *d = wild_number();
    for (double *d = &f->wall_us; d <= &f->host_copy_us; d++)
        *d = wild_number();
    for (uint64_t *n = &f->copy_bytes; n <= &f->pageable_copies; n++)
        *n = wild_count();
    f->graph = random_bits() % 2;
    f->kernels_left_out = wild_count();
    for (size_t i = 0; i < kernels; i++) {
        stitch__kernel_fact *k = stitch__facts_add_kernel(f);
        CHECK(k != NULL);
        wild_kernel(k);
    }
    if (steps) {
        f->steps = stitch__calloc(NULL, steps, sizeof(*f->steps));
        CHECK(f->steps != NULL);
        f->step_count = steps;
    }
    for (size_t i = 0; i < steps; i++)
        f->steps[i] =
            (stitch__step_fact){wild_text(), wild_text(),  wild_text(),      (int32_t)(random_bits() % (steps + 9)) - 4,
                                wild_text(), wild_count(), random_bits() % 2};
    return f;
}

static void check_verdict(const stitch__verdict *v)
{
    CHECK(v->bound >= 0 && v->bound < STITCH__BOUND_CLASSES);
    CHECK(v->reached >= 0 && v->reached <= 1);
    CHECK(isfinite(v->limit_us) && v->limit_us >= 0);
    CHECK(isfinite(v->intensity) && isfinite(v->gb_s) && isfinite(v->tflops));
    CHECK(stitch__utf8_valid(v->because, strlen(v->because)));
    if (strstr(v->because, "nan") || strstr(v->because, "inf"))
        FAIL("%s", v->because);
}

static void check_wild(const stitch__facts *f)
{
    stitch__advices a;
    stitch__buf b;
    json_t *root = NULL;
    advise(f, &a);
    check_verdict(&a.run);
    for (size_t i = 0; i < a.kernel_count; i++)
        check_verdict(&a.kernels[i]);
    for (size_t i = 0; i < a.count; i++) {
        const stitch__advice *v = &a.list[i];
        CHECK(v->kernel >= -1 && v->kernel < (int64_t)f->kernel_count);
        CHECK(v->step >= -1 && v->step < (int64_t)f->step_count);
        CHECK(isfinite(v->gain_us) && v->gain_us >= 0 && v->gain_share >= 0 && v->gain_share <= 1);
        CHECK(i == 0 || v->gain_us <= v[-1].gain_us);
        CHECK(stitch__utf8_valid(v->evidence, strlen(v->evidence)) && stitch__utf8_valid(v->source, strlen(v->source)));
        if (!*v->evidence || strstr(v->evidence, "nan") || strstr(v->evidence, "inf"))
            FAIL("%s: %s", v->rule, v->evidence);
    }
    for (size_t max = 0; max < 3000; max += 211) {
        char *text = text_of(f, &a, max);
        CHECK(stitch__utf8_valid(text, strlen(text)) && !strchr(text, '\x1b'));
        CHECK(!max || strlen(text) <= max);
        stitch_free(text);
    }
    stitch__buf_init(&b, NULL);
    CHECK_INT(stitch__advice_write_json(f, &a, &b), STITCH_OK);
    CHECK_OK(stitch__json_parse(NULL, b.data, b.len, 0, "advice", &root, &err));
    json_decref(root);
    stitch__buf_free(&b);
    stitch__advices_free(&a);
}

TEST(facts_without_sense_are_survived)
{
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        state = seed * UINT64_C(0x9e3779b97f4a7c15);
        stitch__facts *f = wild_facts(seed % 9, seed % 7);
        check_wild(f);
        stitch__facts_free(f);
    }
}

TEST(as_many_facts_as_there_can_be)
{
    state = 4711;
    stitch__facts *f = wild_facts(STITCH__FACTS_KERNELS, STITCH__FACTS_STEPS);
    check_wild(f);
    stitch__facts_free(f);
}

TEST_MAIN(RUN(naive_matmul_with_all_counters), RUN(gains_of_next_to_nothing), RUN(samples_beyond_the_lines),
          RUN(naive_matmul_with_few_counters_and_samples), RUN(uncoalesced_transpose), RUN(bank_conflicted_transpose),
          RUN(tuned_product), RUN(tuned_copy), RUN(classes_of_kernels), RUN(roofline_of_counts), RUN(chain_of_launches),
          RUN(copies_from_the_host), RUN(copies_beside_kernels), RUN(waits_of_the_host), RUN(mixed_run),
          RUN(nothing_was_observed), RUN(many_kernels_of_next_to_nothing), RUN(text_keeps_its_budget),
          RUN(long_lists_are_counted), RUN(json_has_all), RUN(advice_outlives_the_facts),
          RUN(each_allocation_fails_once), RUN(each_allocation_fails_and_all_later_ones),
          RUN(facts_without_sense_are_survived), RUN(as_many_facts_as_there_can_be))
