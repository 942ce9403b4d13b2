/* SPDX-License-Identifier: MIT
 *
 * Executors: every kind of step on a device, graphs of steps, changes of pointers, dims, weights and states.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "program/executor.h"
#include "program_rig.h"

/* ---- faults: first, while this process has not opened the device ------------------------------------------------- */

/* 0: as expected. */
static int fault_in_child(void)
{
    static const char source[] =
        "__global__ void bad(float *y) { if (threadIdx.x == 3) *(volatile float *)0x10 = 1; y[threadIdx.x] = 0; }\n";
    rig r;
    need_device();
    rig_open(&r, "N=64; output y f32 N", source, PLAN("", "", STEP("bad", "1", "64", "\"y\"")), NULL);
    CHECK_OK(stitch_executor_prepare(r.x, r.stream, &err));
    int rc = stitch_executor_run(r.x, r.stream, &err); /* the simulator runs at once, a GPU later */
    stitch__scope scope = stitch__scope_make(ctx, NULL, 60000);
    CHECK_OK(stitch__device_enter(r.dev, NULL));
    if (rc == STITCH_OK)
        rc = stitch__stream_wait(r.dev, r.stream, &scope, "the faulty run", &err);
    CHECK_INT(rc, STITCH_E_FAULT);
    CHECK(stitch_error_message(err)[0]);
    CHECK_INT(stitch_executor_run(r.x, r.stream, &err), STITCH_E_FAULT); /* from now on */
    stitch_executor_free(r.x);                                           /* neither hangs nor crashes */
    stitch_program_free(r.program);
    stitch_error_free(err);
    stitch_context_free(ctx);
    return 0;
}

TEST(faults_are_reported)
{
    int status;
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int how = setjmp(check__out), code = 1;
        if (how == 0)
            code = fault_in_child();
        else if (how == 2)
            code = 77;
        fflush(stdout);
        _exit(code);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no device");
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

TEST(kernel_arguments)
{
    static const char source[] = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
                                 "template <int N, class T> __global__ void all(const float *x, float *y, int a, "
                                 "unsigned b, long long c, unsigned long long d, float e, double f, __half g,\n"
                                 "                                              __nv_bfloat16 h)\n"
                                 "{\n"
                                 "    int i = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
                                 "    i = i * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x;\n"
                                 "    y[i] = x[i] + (T)((double)N + a + b + c + d + e + f + (double)__half2float(g) + "
                                 "(double)__bfloat162float(h));\n"
                                 "}\n";
    rig r;
    float x[96], y[96];
    need_device();
    rig_open(&r, "N=96; input x f32 N; output y f32 N", source,
             PLAN("", "",
                  STEP("all<7, float>", "2, \"N/32\", 2", "2, 4",
                       "\"x\", \"y\", {\"i32\": -1000}, {\"u32\": 3}, {\"i64\": \"N*2\"}, {\"u64\": 5}, {\"f32\": "
                       "0.25}, {\"f64\": 0.5}, {\"f16\": 1.5}, {\"bf16\": -3}")),
             NULL);
    fill_ramp(x, 96, -10, 0.5f);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    rig_get(&r, "y", y, sizeof(y));
    for (int i = 0; i < 96; i++)
        CHECK_NEAR(y[i], x[i] + 7 - 1000 + 3 + 192 + 5 + 0.25 + 0.5 + 1.5 - 3, 1e-4);
    rig_close(&r);
}

TEST(large_dynamic_shared_memory)
{
    static const char source[] = "extern __shared__ float s[];\n"
                                 "__global__ void reverse(const float *x, float *y, int n)\n{\n"
                                 "    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];\n"
                                 "    __syncthreads();\n"
                                 "    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];\n}\n";
    enum { N = 16384 }; /* 64 KiB */
    static float x[N], y[N];
    rig r;
    need_device();
    if (device.shared_bytes_per_block_optin < N * 4)
        SKIP("the device has less shared memory");
    rig_open(&r, "N=16384; input x f32 N; output y f32 N", source,
             "{\"stitch\": 1, \"run\": [{\"kernel\": \"reverse\", \"grid\": [1], \"block\": [256], \"shared\": "
             "\"4*N\", \"args\": [\"x\", \"y\", {\"i32\": \"N\"}]}]}",
             NULL);
    fill_ramp(x, N, 0, 1);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    rig_get(&r, "y", y, sizeof(y));
    for (int i = 0; i < N; i++)
        CHECK_NEAR(y[i], x[N - 1 - i], 0);
    rig_close(&r);
}

TEST(cooperative_launch)
{
    static const char source[] =
        "#include <cooperative_groups.h>\n"
        "__global__ void sum(const float *x, float *partial, float *y, int n)\n{\n"
        "    float v = 0;\n"
        "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];\n"
        "    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);\n"
        "    if (threadIdx.x == 0) partial[blockIdx.x] = v;\n"
        "    cooperative_groups::this_grid().sync();\n"
        "    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {\n"
        "        float t = 0;\n"
        "        for (int i = 0; i < gridDim.x; i++) t += partial[i];\n"
        "        *y = t;\n    }\n}\n";
    rig r;
    float x[1000], y;
    need_device();
    rig_open(&r, "N=1000; input x f32 N; output y f32 1", source,
             PLAN(F32("p", "8"), "",
                  "{\"kernel\": \"sum\", \"grid\": [8], \"block\": [32], \"cooperative\": true, \"args\": [\"x\", "
                  "\"p\", \"y\", {\"i32\": \"N\"}]}"),
             NULL);
    fill_ramp(x, 1000, 0, 1);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    rig_get(&r, "y", &y, sizeof(y));
    CHECK_NEAR(y, 499500, 0);
    rig_close(&r);
}

/* Blocks of a cluster write into each other's shared memory. */
static void run_cluster(const char *plan, int size)
{
    static const char source[] =
        "#include <cooperative_groups.h>\n"
        "__global__ void rotate(const float *x, float *y)\n{\n"
        "    __shared__ float s[32];\n"
        "    auto cluster = cooperative_groups::this_cluster();\n"
        "    unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();\n"
        "    cluster.sync();\n"
        "    cluster.map_shared_rank(s, next)[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];\n"
        "    cluster.sync();\n"
        "    y[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x];\n}\n";
    rig r;
    float x[32 * 32], y[32 * 32];
    rig_open(&r, "N=1024; input x f32 N; output y f32 N", source, plan, NULL);
    fill_ramp(x, 1024, 0, 1);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    rig_get(&r, "y", y, sizeof(y));
    for (int i = 0; i < 1024; i++) {
        int block = i / 32, from = block / size * size + (block + size - 1) % size;
        CHECK_NEAR(y[i], x[from * 32 + i % 32], 0);
    }
    rig_close(&r);
}

TEST(clusters)
{
    need_device();
    if (device.compute_major < 9)
        SKIP("clusters need sm_90");
    run_cluster("{\"stitch\": 1, \"run\": [{\"kernel\": \"rotate\", \"grid\": [32], \"block\": [32], \"cluster\": [4], "
                "\"args\": [\"x\", \"y\"]}]}",
                4);
    run_cluster("{\"stitch\": 1, \"run\": [{\"kernel\": \"rotate\", \"grid\": [32], \"block\": [32], \"cluster\": "
                "[16], \"args\": [\"x\", \"y\"]}]}",
                16);
}

TEST(tensor_maps)
{
    static const char source[] =
        "struct __align__(64) CUtensorMap { unsigned long long opaque[16]; };\n"
        "__global__ void tile(const __grid_constant__ CUtensorMap map, float *y)\n{\n"
        "    __shared__ __align__(128) float s[8 * 16];\n"
        "    __shared__ __align__(8) unsigned long long bar;\n"
        "    unsigned b = (unsigned)__cvta_generic_to_shared(&bar), d = (unsigned)__cvta_generic_to_shared(s);\n"
        "    if (threadIdx.x == 0) {\n"
        "        asm volatile(\"mbarrier.init.shared.b64 [%0], 1;\" :: \"r\"(b));\n"
        "        asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");\n"
        "        asm volatile(\"mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\" :: \"r\"(b), \"r\"(8 * 16 * 4) : "
        "\"memory\");\n"
        "        asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3}], [%4];\"\n"
        "                     :: \"r\"(d), \"l\"(&map), \"r\"((int)blockIdx.x * 16), \"r\"((int)blockIdx.y * 8), "
        "\"r\"(b) : \"memory\");\n"
        "    }\n"
        "    __syncthreads();\n"
        "    unsigned done = 0;\n"
        "    while (!done)\n"
        "        asm volatile(\"{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; "
        "}\" : \"=r\"(done) : \"r\"(b) : \"memory\");\n"
        "    for (int i = threadIdx.x; i < 128; i += 32) {\n"
        "        int row = blockIdx.y * 8 + i / 16, col = blockIdx.x * 16 + i % 16;\n"
        "        y[row * gridDim.x * 16 + col] = s[i];\n"
        "    }\n}\n";
    /* 24 rows of 40 columns out of rows of 48; the tiles reach 8 columns beyond the tensor */
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"kernel\": \"tile\", \"grid\": [3, 3], \"block\": [32], "
                               "\"args\": [{\"tensor_map\": {\"buffer\": \"x + 4\", "
                               "\"shape\": [24, 40], \"strides\": [48], \"box\": [8, 16]}}, \"y\"]}]}";
    static float x[24 * 48], y[24 * 48];
    rig r;
    need_device();
    if (device.compute_major < 9)
        SKIP("tensor maps need sm_90");
    rig_open(&r, "N=1152; input x f32 N; output y f32 N", source, plan, NULL);
    fill_ramp(x, 24 * 48, 1, 1);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    rig_get(&r, "y", y, sizeof(y));
    for (int row = 0; row < 24; row++) {
        for (int col = 0; col < 48; col++)
            CHECK_NEAR(y[row * 48 + col], col < 40 ? x[row * 48 + col + 4] : 0, 0);
    }
    rig_close(&r);
}

/* ---- copies, fills, loops ---------------------------------------------------------------------------------------- */

TEST(copies_and_fills)
{
    static const struct {
        const char *dtype, *value;
        size_t size;
        unsigned char bytes[8];
    } cases[] = {
        {"f64", "1.0", 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
        {"f64", "0", 8, {0}},
        {"f32", "-2.5", 4, {0, 0, 0x20, 0xc0}},
        {"tf32", "1", 4, {0, 0, 0x80, 0x3f}},
        {"f16", "1.5", 2, {0, 0x3e}},
        {"bf16", "-1", 2, {0x80, 0xbf}},
        {"f8e4m3", "0", 1, {0}},
        {"i64", "-2", 8, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
        {"i64", "81985529216486895", 8, {0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01}},
        {"i32", "-2", 4, {0xfe, 0xff, 0xff, 0xff}},
        {"i16", "-2", 2, {0xfe, 0xff}},
        {"i8", "-2", 1, {0xfe}},
        {"u8", "200", 1, {200}},
        {"bool", "1", 1, {1}},
    };
    need_device();
    for (size_t k = 0; k < STITCH__COUNT(cases); k++) {
        /* elements 1 to 9 of a buffer are filled, then copied to elements 3 to 11 of the output, whose rest is filled
         * with 0 */
        char iface[128], plan[512];
        unsigned char y[16 * 8];
        size_t size = cases[k].size;
        rig r;
        snprintf(iface, sizeof(iface), "N=16; output y %s N", cases[k].dtype);
        snprintf(plan, sizeof(plan),
                 PLAN("\"h\": {\"dtype\": \"%s\", \"shape\": [\"N\"]}", "",
                      "{\"fill\": {\"buffer\": \"y\", \"value\": 0}}, {\"fill\": {\"buffer\": \"h + 1\", \"value\": "
                      "%s, \"count\": 9}}, "
                      "{\"copy\": {\"from\": \"h + 1\", \"to\": \"y + 3\", \"count\": \"N - 7\"}}"),
                 cases[k].dtype, cases[k].value);
        rig_open(&r, iface, "", plan, NULL);
        rig_run(&r);
        rig_get(&r, "y", y, 16 * size);
        for (size_t i = 0; i < 16 * size; i++) {
            size_t element = i / size;
            if (y[i] != (element >= 3 && element < 12 ? cases[k].bytes[i % size] : 0))
                FAIL("%s %s: byte %zu is %02x", cases[k].dtype, cases[k].value, i, y[i]);
        }
        rig_close(&r);
    }
}

/* y[r] = sum over t < T, l < t of (10 t + l) x[t] with everything in a loop: offsets, scalars, counts, grid. */
TEST(loops)
{
    static const char plan[] =
        "{\"stitch\": 1, \"run\": [{\"fill\": {\"buffer\": \"y\", \"value\": 0}}, {\"repeat\": {\"var\": \"t\", "
        "\"count\": \"T\", \"steps\": ["
        "{\"repeat\": {\"var\": \"l\", \"count\": \"t\", \"steps\": [" STEP(
            "add", "1", "32", "\"x + t*C\", \"y\", {\"i32\": \"C\"}, {\"f32\": \"10*t + l\"}") "]}}]}}]}";
    rig r;
    float x[6 * 16], y[16];
    need_device();
    rig_open(&r, "T=6 C=16; input x f32 T,C; output y f32 C", loop_source, plan, NULL);
    fill_ramp(x, 96, 1, 0.125f);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    rig_get(&r, "y", y, sizeof(y));
    for (int c = 0; c < 16; c++) {
        double want = 0;
        for (int t = 0; t < 6; t++) {
            for (int l = 0; l < t; l++)
                want += (10 * t + l) * (double)x[t * 16 + c];
        }
        CHECK_NEAR(y[c], want, 1e-2);
    }
    stitch_executor_stats s = STITCH_EXECUTOR_STATS_INIT;
    CHECK_INT(stitch_executor_stats_get(r.x, &s), STITCH_OK);
    CHECK_INT(s.launches, 1 + 15);
    CHECK_INT(s.graph_builds, 1);
    rig_close(&r);
}

typedef struct paused {
    rig *r;
    int calls, rc;
    float y[16]; /* in the pause */
} paused;

static int on_pause(void *userdata)
{
    paused *p = userdata;
    p->calls++;
    rig_get(p->r, "y", p->y, sizeof(p->y)); /* waits */
    return p->rc;
}

/* A plain run that is paused does the same as one that is not, and what came before the pause is done then. */
TEST(pauses)
{
    static const char plan[] = "{\"stitch\": 1, \"run\": [{\"fill\": {\"buffer\": \"y\", \"value\": 0}}, {\"repeat\": "
                               "{\"var\": \"t\", \"count\": \"T\", \"steps\": [" STEP(
                                   "add", "1", "32", "\"x\", \"y\", {\"i32\": \"C\"}, {\"f32\": 1}") "]}}]}";
    static const size_t after[] = {0, 1, 5, 6, 7, 100}; /* of a fill and six kernels */
    rig r;
    float x[16], y[16];
    need_device();
    rig_open(&r, "T=6 C=16; input x f32 C; output y f32 C", loop_source, plan, NULL);
    fill_ramp(x, 16, 1, 0.125f);
    rig_set(&r, "x", x, sizeof(x));
    rig_run(&r);
    for (size_t i = 0; i < STITCH__COUNT(after); i++) {
        paused p = {.r = &r};
        const stitch__pause pause = {after[i], on_pause, &p};
        CHECK_OK(stitch__executor_run_plain(r.x, r.stream, i ? &pause : NULL, &err));
        rig_get(&r, "y", y, sizeof(y));
        for (int c = 0; c < 16; c++)
            CHECK_NEAR(y[c], 6 * x[c], 1e-5);
        CHECK_INT(p.calls, after[i] > 0 && after[i] < 7); /* behind the last step there is none */
        for (int c = 0; c < 16 && p.calls; c++)
            CHECK_NEAR(p.y[c], (double)(after[i] - 1) * x[c], 1e-5);
    }
    paused p = {.r = &r, .rc = 4711};
    const stitch__pause pause = {3, on_pause, &p};
    CHECK_INT(stitch__executor_run_plain(r.x, r.stream, &pause, &err), 4711);
    CHECK(!err);
    rig_get(&r, "y", y, sizeof(y));
    for (int c = 0; c < 16; c++) /* it ended there */
        CHECK_NEAR(y[c], 2 * x[c], 1e-5);
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_INT(p.calls, 1);
    rig_close(&r);
}

/* ---- graphs of steps --------------------------------------------------------------------------------------------- */

/* a, b1..b12 after a, c after all: y = sum of k * x. Then the same inside a loop, and a loop inside the graph. */
TEST(graphs_of_steps)
{
    stitch__buf b;
    rig r;
    float x[32], y[32];
    need_device();
    for (int shape = 0; shape < 3; shape++) {
        stitch__buf_init(&b, NULL);
        stitch__buf_puts(&b,
                         "{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f32\", \"shape\": [12, 32]}}, \"run\": [");
        if (shape == 1)
            stitch__buf_puts(&b, "{\"repeat\": {\"var\": \"t\", \"count\": 3, \"steps\": [");
        for (int k = 0; k < 12; k++) {
            stitch__buf_printf(&b,
                               "{\"fill\": {\"buffer\": \"h + %d\", \"value\": 0, \"count\": 32}, \"id\": \"f%d\"%s}, ",
                               32 * k, k, k ? ", \"after\": []" : "");
        }
        /* all fills touch h: one after the other */
        stitch__buf_truncate(&b, 0);
        stitch__buf_puts(&b, "{\"stitch\": 1, \"buffers\": {");
        for (int k = 0; k < 12; k++)
            stitch__buf_printf(&b, "%s\"h%d\": {\"dtype\": \"f32\", \"shape\": [32]}", k ? ", " : "", k);
        stitch__buf_puts(&b, "}, \"run\": [");
        if (shape == 1)
            stitch__buf_puts(&b, "{\"repeat\": {\"var\": \"t\", \"count\": 3, \"steps\": [");
        stitch__buf_puts(&b, "{\"fill\": {\"buffer\": \"y\", \"value\": 0}, \"id\": \"y\"}");
        for (int k = 0; k < 12; k++) {
            stitch__buf_printf(&b,
                               ", {\"kernel\": \"set\", \"grid\": [1], \"block\": [32], \"args\": [\"h%d\", {\"i32\": "
                               "32}, {\"f32\": %d}], \"id\": \"s%d\"}",
                               k, k, k);
            if (shape == 2) /* (k + x) + x as a loop */
                stitch__buf_printf(
                    &b,
                    ", {\"repeat\": {\"var\": \"t\", \"count\": 2, \"steps\": [" STEP(
                        "add", "1", "32",
                        "\"x\", \"h%d\", {\"i32\": 32}, {\"f32\": 1}") "]}, \"id\": \"a%d\", \"after\": [\"s%d\"]}",
                    k, k, k);
            else
                stitch__buf_printf(&b,
                                   ", {\"kernel\": \"add\", \"grid\": [1], \"block\": [32], \"args\": [\"x\", \"h%d\", "
                                   "{\"i32\": 32}, {\"f32\": 2}], \"id\": \"a%d\", \"after\": [\"s%d\"]}",
                                   k, k, k);
        }
        for (int k = 0; k < 12; k++) {
            stitch__buf_printf(&b,
                               ", {\"kernel\": \"add\", \"grid\": [1], \"block\": [32], \"args\": [\"h%d\", \"y\", "
                               "{\"i32\": 32}, {\"f32\": 1}], \"id\": \"c%d\", \"after\": [\"a%d\", ",
                               k, k, k);
            stitch__buf_printf(&b, k ? "\"c%d\"]}" : "\"y\"]}", k - 1);
        }
        stitch__buf_puts(&b, shape == 1 ? "]}}]}" : "]}");
        rig_open(&r, "N=32; input x f32 N; output y f32 N", loop_source, b.data, NULL);
        fill_ramp(x, 32, 1, 1);
        rig_set(&r, "x", x, sizeof(x));
        rig_run(&r);
        for (int again = 0; again < 5; again++)
            CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
        rig_get(&r, "y", y, sizeof(y));
        for (int i = 0; i < 32; i++)
            CHECK_NEAR(y[i], 66 + 24 * x[i], 0);
        rig_close(&r);
        stitch__buf_free(&b);
    }
}

/* ---- pointers, dims, weights, states ----------------------------------------------------------------------------- */

TEST(pointers_change)
{
    stitch_executor_stats s = STITCH_EXECUTOR_STATS_INIT;
    rig r;
    float x[2][100], y[100], w = 3;
    need_device();
    rig_open(&r, "N=100; input x f32 N; weight w f32 1; output y f32 N", SCALE_SOURCE, SCALE_PLAN, NULL);
    CUdeviceptr other_x = rig_memory(&r, sizeof(x[0]), "other x"), other_y = rig_memory(&r, sizeof(y), "other y");
    fill_ramp(x[0], 100, 0, 1);
    fill_ramp(x[1], 100, 500, 1);
    rig_set(&r, "x", x[0], sizeof(x[0]));
    rig_set(&r, "w", &w, sizeof(w));
    rig_write(&r, other_x, x[1], sizeof(x[1]));
    rig_run(&r);
    for (int k = 0; k < 6; k++) { /* all pairs of memory, twice */
        CHECK_OK(stitch_executor_bind_name(r.x, "x", k & 1 ? other_x : r.mem[0], sizeof(x[0]), &err));
        CHECK_OK(stitch_executor_bind_name(r.x, "y", k & 2 ? other_y : r.mem[2], sizeof(y), &err));
        CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
        rig_read(&r, k & 2 ? other_y : r.mem[2], y, sizeof(y));
        for (int i = 0; i < 100; i++)
            CHECK_NEAR(y[i], 3 * x[k & 1][i], 0);
    }
    CHECK_INT(stitch_executor_stats_get(r.x, &s), STITCH_OK);
    CHECK_INT(s.graph_builds, 1); /* updated, not built again */
    CHECK(s.graph_updates >= 5);
    uint64_t updates = s.graph_updates;
    CHECK_OK(stitch_executor_bind_name(r.x, "y", other_y - 0, sizeof(y), &err));
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_OK(stitch_executor_bind_name(r.x, "y", other_y, sizeof(y), &err)); /* the same memory: nothing to do */
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_INT(stitch_executor_stats_get(r.x, &s), STITCH_OK);
    CHECK(s.graph_updates <= updates + 1);
    CHECK_OK(stitch__device_enter(r.dev, &err));
    CHECK_INT(r.dev->drv->StreamSynchronize(r.stream), CUDA_SUCCESS);
    stitch__mem_free(r.dev, other_x);
    stitch__mem_free(r.dev, other_y);
    stitch__device_leave(r.dev);
    rig_close(&r);
}

TEST(dims_change)
{
    static const int64_t sizes[] = {100, 300, 7, 100, 300, 1000, 7, 100};
    stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    static const char *const names[] = {"N"};
    static const int64_t first[] = {64};
    static float x[1000], y[1000];
    rig r;
    float w = -2;
    need_device();
    o.dim_names = names;
    o.dim_values = first;
    o.dim_count = 1;
    o.max_plans = 2;
    memset(&r, 0, sizeof(r));
    rig_open_program(&r, rig_program("N=100; input x f32 N; weight w f32 1; output y f32 N", SCALE_SOURCE, SCALE_PLAN),
                     &o, 16);
    CHECK_INT(r.bytes[0], 64 * 4 * 16);
    fill_ramp(x, 1000, 1, 1);
    rig_set(&r, "w", &w, sizeof(w));
    for (size_t k = 0; k < STITCH__COUNT(sizes); k++) {
        size_t bytes = (size_t)sizes[k] * 4;
        CHECK_OK(stitch_executor_set_dim(r.x, "N", sizes[k], &err));
        CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_STATE, "stitch_executor_prepare()");
        memset(y, 0x7f, sizeof(y));
        rig_write(&r, r.mem[0], x, bytes);
        rig_write(&r, r.mem[2], y, sizeof(y));
        rig_run(&r);
        rig_read(&r, r.mem[2], y, sizeof(y));
        for (int i = 0; i < 1000; i++) {
            uint32_t bits;
            memcpy(&bits, &y[i], 4);
            if (i < sizes[k])
                CHECK_NEAR(y[i], -2 * x[i], 0);
            else
                CHECK_INT(bits, 0x7f7f7f7f);
        }
    }
    CHECK_OK(stitch_executor_set_dim(r.x, "N", 1 << 20, &err));
    CHECK_ERR(stitch_executor_prepare(r.x, r.stream, &err), STITCH_E_STATE, "bound");
    CHECK_ERR(stitch_executor_set_dim(r.x, "Q", 3, &err), STITCH_E_NOT_FOUND, "no dim 'Q'");
    CHECK_ERR(stitch_executor_set_dim(r.x, "N", 0, &err), STITCH_E_INVALID, "dim N is 0");
    rig_close(&r);
}

TEST(weights_are_prepared)
{
    static const char source[] =
        "__global__ void twice(const float *w, float *h) { h[threadIdx.x] = 2 * w[threadIdx.x]; }\n"
        "__global__ void mul(const float *x, const float *h, float *y) { y[threadIdx.x] = x[threadIdx.x] * "
        "h[threadIdx.x]; }\n";
    rig r;
    float x[32], y[32], w[2][32];
    need_device();
    rig_open(&r, "N=32; input x f32 N; weight w f32 N; output y f32 N", source,
             PLAN(F32("h", "\"N\""), STEP("twice", "1", "\"N\"", "\"w\", \"h\""),
                  STEP("mul", "1", "\"N\"", "\"x\", \"h\", \"y\"")),
             NULL);
    CUdeviceptr other = rig_memory(&r, sizeof(w[1]), "other w");
    fill_ramp(x, 32, 1, 1);
    fill_ramp(w[0], 32, 0, 1);
    fill_ramp(w[1], 32, 100, -1);
    rig_set(&r, "x", x, sizeof(x));
    rig_set(&r, "w", w[0], sizeof(w[0]));
    rig_write(&r, other, w[1], sizeof(w[1]));
    for (int k = 0; k < 3; k++) {
        if (k) {
            CHECK_OK(stitch_executor_bind_name(r.x, "w", k & 1 ? other : r.mem[1], sizeof(w[0]), &err));
            CHECK_ERR(stitch_executor_run(r.x, r.stream, &err), STITCH_E_STATE, "a weight was bound");
        }
        rig_run(&r);
        rig_get(&r, "y", y, sizeof(y));
        for (int i = 0; i < 32; i++)
            CHECK_NEAR(y[i], 2 * x[i] * w[k & 1][i], 0);
    }
    CHECK_OK(stitch__device_enter(r.dev, &err));
    stitch__mem_free(r.dev, other);
    stitch__device_leave(r.dev);
    rig_close(&r);
}

TEST(states_survive)
{
    static const char source[] =
        "__global__ void count(float *s, float *y) { y[threadIdx.x] = s[threadIdx.x] += 1; }\n";
    static const char plan[] = "{\"stitch\": 1, \"buffers\": {\"s\": {\"dtype\": \"f32\", \"shape\": [\"N\"], "
                               "\"keep\": true}}, \"run\": [" STEP("count", "1", "\"N\"", "\"s\", \"y\"") "]}";
    rig r;
    float zero[32] = {0}, y[32];
    need_device();
    rig_open(&r, "N=32; state s f32 N; output y f32 N", source, plan, NULL);
    rig_set(&r, "s", zero, sizeof(zero));
    rig_run(&r);
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    CHECK_OK(stitch_executor_run(r.x, r.stream, &err));
    rig_get(&r, "y", y, sizeof(y));
    CHECK_NEAR(y[31], 3, 0);
    rig_close(&r);
}

TEST(the_context_closes)
{
    stitch_error_free(err);
    err = NULL;
    stitch_context_free(ctx);
    ctx = NULL;
}

TEST_MAIN(RUN(faults_are_reported), RUN(kernel_arguments), RUN(large_dynamic_shared_memory), RUN(cooperative_launch),
          RUN(clusters), RUN(tensor_maps), RUN(copies_and_fills), RUN(loops), RUN(pauses), RUN(graphs_of_steps),
          RUN(pointers_change), RUN(dims_change), RUN(weights_are_prepared), RUN(states_survive),
          RUN(the_context_closes))
