/* SPDX-License-Identifier: MIT
 *
 * A candidate in a worker process, on a real or a simulated device: the same bits as in this process, and whatever
 * happens to the worker, this process and its own work on the device go on.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stitch/model.h>

#include "descriptors.h"
#include "verify_tasks.h"
#include "worker/client.h"

enum { COUNT = 3, N = 4099 };

static stitch__device *dev;
/* The build folder may have been carried to another machine (tests/gpu.sh). */
static const char *test_worker(void)
{
    const char *path = getenv("STITCH_TEST_WORKER");
    return path && *path ? path : STITCH_TEST_WORKER;
}

static void need_worker(void)
{
    need_device();
    CHECK_INT(unsetenv("CUDA_STITCH_TEST_WORKER"), 0);
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
}

static stitch__scope scope_of(int64_t ms)
{
    return stitch__scope_make(ctx, NULL, ms);
}

/* Compiled and checked, as a verification has it when it opens a worker. */
static stitch_program *make_program(stitch_task *t, const char *body)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    stitch_program *p = NULL;
    char source[2000];
    snprintf(source, sizeof(source), VECTOR_KERNEL("float", "%s"), body);
    options.arch = device.arch;
    CHECK_OK(stitch_program_parse(ctx, source, VECTOR_PLAN, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, stitch_task_interface(t), device.arch, &err));
    CHECK_OK(stitch_program_compile(p, &options, NULL, &err));
    return p;
}

static const char good[] = "y[i] = a[i] * x[i] + b[i];";

/* ---- a candidate, wherever it is --------------------------------------------------------------------------------- */

typedef struct results {
    uint64_t hashes[2][4];
    float y[2][N];
    stitch__prepared prepared;
    stitch__took took;
} results;

/* Everything that a verification does, in its order; *code ends it. */
static int drive(stitch__candidate c, const stitch__scope *scope, results *out, int *code, stitch_error **why)
{
    static const stitch__variant large = {.scale = 64};
    const stitch__load load = {0xaa};
    CUdeviceptr into[4] = {0};
    int rc = STITCH_OK;

    memset(out, 0, sizeof(*out));
    *code = STITCH_OK;
    CHECK_OK(stitch__mem_alloc(dev, sizeof(out->y[0]), "y of the verifier", &into[3], &err));
#define DO(call)                                                                                                       \
    if (!rc && !*code)                                                                                                 \
    rc = (call)
    DO(c.ops->load(c.self, scope, &load, code, why, &err));
    DO(c.ops->fill_weights(c.self, scope, 11, &err));
    DO(c.ops->fill_inputs(c.self, scope, 12, NULL, &err));
    DO(c.ops->hash(c.self, scope, 99, true, out->hashes[0], &err));
    DO(c.ops->clear_states(c.self, scope, 0, &err));
    DO(c.ops->prepare(c.self, scope, &out->prepared, code, why, &err));
    for (int set = 0; set < 2; set++) {
        stitch__run run = {set, 0xff, -1, set, 0};
        if (set)
            DO(c.ops->fill_inputs(c.self, scope, 13, &large, &err));
        DO(c.ops->run(c.self, scope, &run, code, why, &err));
        DO(c.ops->fetch(c.self, scope, set, into, NULL, &err));
        if (!rc && !*code)
            CHECK_INT(dev->drv->MemcpyDtoH(out->y[set], into[3], sizeof(out->y[0])), 0);
    }
    DO(c.ops->hash(c.self, scope, 99, true, out->hashes[1], &err));
    DO(c.ops->inspect(c.self, scope, code, why, &err));
    if (!device.simulated) {
        stitch__run run = {0, 0xff, -1, 0, 64 << 20};
        DO(c.ops->timed_run(c.self, scope, &run, &out->took, code, why, &err));
    }
#undef DO
    stitch__mem_free(dev, into[3]);
    return rc;
}

static results in_process(stitch_task *t, stitch_program *p)
{
    stitch__runner_options options = {0};
    stitch__scope scope = scope_of(60000);
    stitch__runner *r = NULL;
    stitch_error *why = NULL;
    results out;
    int code;

    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__runner_open(t, p, dev, &options, &r, &err));
    CHECK_OK(drive(stitch__runner_candidate(r), &scope, &out, &code, &why));
    CHECK_INT(code, STITCH_OK);
    stitch__runner_close(r);
    stitch__device_leave(dev);
    return out;
}

/* `fail`: the program is expected to; its failure comes back in *code and *why. */
static results in_worker(stitch__worker *w, stitch_task *t, stitch_program *p, int64_t ms, int *code,
                         stitch_error **why)
{
    stitch__scope scope = scope_of(ms);
    stitch__candidate c;
    results out;

    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__worker_open(w, &scope, t, p, &c, &err));
    CHECK_OK(drive(c, &scope, &out, code, why));
    c.ops->close(c.self);
    stitch__device_leave(dev);
    return out;
}

static bool same_results(const results *a, const results *b)
{
    return memcmp(a->hashes, b->hashes, sizeof(a->hashes)) == 0 && memcmp(a->y, b->y, sizeof(a->y)) == 0 &&
           a->prepared.launches == b->prepared.launches && a->prepared.steps == b->prepared.steps &&
           a->prepared.workspace_bytes == b->prepared.workspace_bytes;
}

TEST(the_same_bits_as_in_this_process)
{
    stitch_error *why = NULL;
    stitch__worker *w = NULL;
    results here, there;
    int code;

    need_worker();
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    stitch__scope scope = scope_of(60000);
    here = in_process(t, p);
    CHECK(here.hashes[0][0] && here.y[0][0] != here.y[1][0]);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    printf("# %s\n", stitch__worker_sandbox(w));
    int own = getpriority(PRIO_PROCESS, 0);
    CHECK_INT(getpriority(PRIO_PROCESS, (id_t)stitch__worker_pid(w)),
              own < 14 ? own + 5 : 19); /* the host goes first */
    for (int i = 0; i < 3; i++) {       /* one program after the other in the same process */
        there = in_worker(w, t, p, 60000, &code, &why);
        CHECK_INT(code, STITCH_OK);
        CHECK(same_results(&here, &there));
        CHECK(device.simulated || there.took.us > 0);
    }
    int pid = stitch__worker_pid(w);
    stitch__worker_release(w, true);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    CHECK_INT(stitch__worker_pid(w), pid);
    stitch__worker_release(w, true);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* Data that is set, recorded or in a file of weights goes to the worker, too. */
TEST(data_of_tensors)
{
    stitch_error *why = NULL;
    stitch__worker *w = NULL;
    results here, there;
    float *x = malloc(N * sizeof(*x));
    char path[] = "/tmp/stitch-test-XXXXXX";
    int code, fd;

    need_worker();
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    stitch__scope scope = scope_of(60000);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 17) - 8;
    CHECK_OK(stitch_task_set_data(t, "x", x, N * sizeof(*x), &err));
    stitch_tensor_info infos[2];
    for (size_t i = 0; i < 2; i++) {
        infos[i].struct_size = sizeof(infos[i]);
        CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 1 + i, &infos[i]), 0);
    }
    CHECK((fd = mkstemp(path)) >= 0);
    close(fd);
    const void *const data[2] = {x, x};
    CHECK_OK(stitch__safetensors_write(ctx, path, infos, data, 2, &err));
    CHECK_OK(stitch_task_set_weights_file(t, path, &err));
    here = in_process(t, p);
    CHECK(here.y[0][1] == x[1] * x[1] + x[1]);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    there = in_worker(w, t, p, 60000, &code, &why);
    CHECK_INT(code, STITCH_OK);
    CHECK(same_results(&here, &there));
    stitch__worker_release(w, true);
    unlink(path);
    free(x);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* Each run of a block leaves what the same run alone leaves, and the hash that was taken when it ended: in both sets,
 * with inputs at either place, and with a state that every run must find cleared. */
TEST(runs_in_a_block)
{
    enum { RUNS = 4 };
    static const char head[] =
        "\"name\":\"sums\",\"dims\":{\"N\":4099},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
        "\"weights\":[{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"states\":[{\"name\":\"b\",\"dtype\":"
        "\"f32\",\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]";
    static const uint64_t seeds[RUNS] = {21, 22, 23, 24};
    stitch__run run = STITCH__RUN_INIT;
    stitch__run_block block = {.count = RUNS};
    const stitch__load load = {-1};
    static float alone[RUNS][N], kept[N];
    uint64_t hashes[RUNS * 4] = {0}, own[4];
    stitch__hasher hasher = {0};
    stitch__prepared prepared;
    stitch__candidate c;
    stitch__worker *w = NULL;
    stitch_error *why = NULL;
    CUdeviceptr into[4] = {0};
    stitch__took took[RUNS];
    double sum = 0, seen = 0;
    int code = 0;

    need_worker();
    stitch_task *t = make_task(head, VECTOR_KERNEL("double", "y[i] = a[i] * x[i];"), VECTOR_PLAN, NULL);
    stitch_program *p = make_program(t, "((float *)b)[i] += x[i]; y[i] = a[i] * b[i];");
    stitch__scope scope = scope_of(60000);
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, sizeof(kept), "y", &into[3], &err));
    CHECK_OK(stitch__hasher_open(&hasher, dev, NULL, 4, &err));
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    CHECK_OK(stitch__worker_open(w, &scope, t, p, &c, &err));
    CHECK_OK(c.ops->load(c.self, &scope, &load, &code, &why, &err));
    CHECK_OK(c.ops->fill_weights(c.self, &scope, 11, &err));
    CHECK_OK(c.ops->fill_inputs(c.self, &scope, 12, NULL, &err));
    CHECK_OK(c.ops->prepare(c.self, &scope, &prepared, &code, &why, &err));
    CHECK_INT(code, STITCH_OK);
    run.draw = 1;
    run.poison = 0xff;
    run.flush_bytes = device.simulated ? 0 : 64 << 20;
    for (int k = 0; k < RUNS; k++) {
        run.seed = seeds[k];
        block.runs[k] = (stitch__block_run){.run = run, .key = 5 + (uint64_t)k};
        block.runs[k].does = STITCH__RUN_TIMED | STITCH__RUN_KEPT;
        CHECK_OK(c.ops->timed_run(c.self, &scope, &run, &took[k], &code, &why, &err));
        CHECK_OK(c.ops->fetch(c.self, &scope, 0, into, NULL, &err));
        CHECK_INT(dev->drv->MemcpyDtoH(alone[k], into[3], sizeof(kept)), 0);
    }
    CHECK(memcmp(alone[0], alone[1], sizeof(kept)) != 0);
    CHECK_ERR(c.ops->run_block(c.self, &scope, &block, took, hashes, &code, &why, &err), STITCH_E_STATE,
              "room for the outputs of 0 runs, not of 4");
    CHECK_OK(c.ops->keep(c.self, &scope, RUNS, &err));
    for (int round = 0; round < 5; round++) {
        for (int k = 0; k < RUNS; k++) {
            block.runs[k].run.set = round & 1;
            block.runs[k].run.moved = round >> 1 & 1;
        }
        CHECK_OK(c.ops->run_block(c.self, &scope, &block, took, hashes, &code, &why, &err));
        CHECK_INT(code, STITCH_OK);
        for (int k = 0; k < RUNS; k++) {
            CHECK_OK(c.ops->fetch(c.self, &scope, STITCH__SETS + k, into, NULL, &err));
            CHECK_INT(dev->drv->MemcpyDtoH(kept, into[3], sizeof(kept)), 0);
            CHECK(memcmp(alone[k], kept, sizeof(kept)) == 0);
            CHECK(took[k].us >= 0 && (device.simulated || took[k].us > 0));
            CHECK_OK(stitch__hash_clear(&hasher, NULL, 0, 4, &err));
            CHECK_OK(stitch__hash_enqueue(&hasher, NULL, into[3], 0, sizeof(kept), block.runs[k].key, 3, &err));
            CHECK_OK(stitch__hash_fetch(&hasher, NULL, &scope, "hashing", 4, own, &err));
            CHECK(own[3] && own[3] == hashes[4 * k + 3]);
            CHECK(!hashes[4 * k] && !hashes[4 * k + 1] && !hashes[4 * k + 2]);
            sum += took[k].us;
            seen += took[k].least_us;
        }
    }
    printf("# %.2f us a run, at least %.2f us by the host's clock\n", sum / (5 * RUNS), seen / (5 * RUNS));
    stitch__hasher_close(&hasher);
    c.ops->close(c.self);
    stitch__worker_release(w, true);
    stitch__mem_free(dev, into[3]);
    stitch__device_leave(dev);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* With test workers of its own, which lie in this way; NULL: they do not. */
static void context_of_workers(const char *lie)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;

    CHECK_INT(setenv("STITCH_WORKER", test_worker(), 1), 0);
    CHECK_INT(lie ? setenv("CUDA_STITCH_TEST_WORKER", lie, 1) : unsetenv("CUDA_STITCH_TEST_WORKER"), 0);
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
}

/* A right program, but for what it left of an earlier run not being that any more. */
TEST(a_kept_output_that_changed)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_worker();
    o.where = STITCH_VERIFY_WORKER;
    o.profile = STITCH_PROFILE_NEVER;
    stitch_context *before = ctx;
    for (int lie = 1; lie >= 0; lie--) {
        context_of_workers(lie ? "other-hashes" : NULL);
        stitch_task *t = vector_task();
        stitch_report *r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        CHECK_INT(s.failed_stage, lie ? STITCH_STAGE_CORRECT : STITCH_STAGE_NONE);
        if (lie)
            CHECK_HAS(stitch_report_text(r), "output y of a run was written to after it had ended");
        else
            printf("# speed-up against itself %.3f\n", s.speedup);
        stitch_report_free(r);
        stitch_task_free(t);
        stitch_context_free(ctx);
    }
    ctx = before;
    CHECK_INT(unsetenv("STITCH_WORKER"), 0);
}

/* A program that takes some 60 us by the host's clock, too, whatever events say. */
TEST(times_that_are_too_short)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_worker();
    if (device.simulated)
        SKIP("needs times");
    o.where = STITCH_VERIFY_WORKER;
    o.profile = STITCH_PROFILE_NEVER;
    stitch_context *before = ctx;
    for (int lie = 1; lie >= 0; lie--) {
        context_of_workers(lie ? "shorter-times" : NULL);
        stitch_task *t = vector_task();
        stitch_report *r = verify(
            t, VECTOR_KERNEL("float", "for (int k = 0; k < 60; k++) __nanosleep(1000); y[i] = a[i] * x[i] + b[i];"),
            VECTOR_PLAN, &o);
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        CHECK_INT(s.failed_stage, lie ? STITCH_STAGE_TIME : STITCH_STAGE_NONE);
        printf("# %.1f us by events; the host's clock has %.1f us more\n", s.median_us,
               json_number_value(report_at(r, "time.clock_excess_us")));
        if (lie)
            CHECK_HAS(stitch_report_text(r), "the program changes the times of events");
        stitch_report_free(r);
        stitch_task_free(t);
        stitch_context_free(ctx);
    }
    ctx = before;
    CHECK_INT(unsetenv("STITCH_WORKER"), 0);
}

/* What the program does in the second run of the second trial, which is made in a block. */
TEST(a_later_run_of_a_block)
{
    static const struct {
        const char *deed, *says;
        int stage;
    } rows[] = {{"((float *)x)[i] += 1", "changed its input x", STITCH_STAGE_CORRECT},
                {"((float *)a)[i] += 1", "changed its weight a", STITCH_STAGE_CORRECT},
                {"y[i] += 1", "output y:", STITCH_STAGE_CORRECT},
                {"y[i] = ((float *)0)[i]", "", STITCH_STAGE_CORRECT},
                {"if (i == 0) y[-1] = 0", "outside of its buffers", STITCH_STAGE_CORRECT}};
    static const char plan[] =
        "{\"stitch\":1,\"run\":[{\"kernel\":\"count\",\"grid\":[1],\"block\":[1],\"args\":[]}," VECTOR_STEP "]}";
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;

    need_worker();
    o.where = STITCH_VERIFY_WORKER;
    o.profile = STITCH_PROFILE_NEVER;
    stitch_task *t = vector_task();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        char source[600];

        if (device.simulated && i == 4)
            continue; /* which has no guards */
        snprintf(source, sizeof(source), "__device__ int runs;\n__global__ void count() { runs++; }\n%s",
                 VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i]; if (runs == 4) { DEED; }"));
        char *deed = strstr(source, "DEED");
        CHECK(deed && strlen(source) + strlen(rows[i].deed) < sizeof(source));
        memmove(deed + strlen(rows[i].deed), deed + 4, strlen(deed + 4) + 1);
        memcpy(deed, rows[i].deed, strlen(rows[i].deed));
        stitch_report *r = verify(t, source, plan, &o);
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        CHECK_INT(s.failed_stage, rows[i].stage);
        CHECK_HAS(stitch_report_text(r), rows[i].says);
        stitch_report_free(r);
    }
    stitch_task_free(t);
}

/* Outputs larger than the memory that they come through. */
TEST(large_outputs)
{
    static const char *const one[] = {"1"}, *const big[] = {"4 * N"}, *const three[] = {"3"};
    static const char plan[] =
        "{\"stitch\":1,\"run\":[{\"fill\":{\"buffer\":\"y\",\"value\":7}},{\"fill\":{\"buffer\":\"z\",\"value\":5}}]}";
    stitch_dist range = {.kind = STITCH_DIST_RANDINT, .a = 0, .b = 9};
    const stitch__load load = {-1};
    const stitch__run run = {0, 0xff, -1, 0, 0};
    stitch__prepared prepared;
    stitch_error *why = NULL;
    stitch__worker *w = NULL;
    stitch__candidate c;
    CUdeviceptr into[3] = {0};
    stitch_program *p = NULL;
    stitch_task *t = NULL;
    uint64_t bytes = 4 * 9000001ull;
    int code;

    need_worker();
    stitch__scope scope = scope_of(60000);
    CHECK_OK(stitch_task_new(ctx, "large", &t, &err));
    CHECK_OK(stitch_task_set_dim(t, "N", 9000001, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_U8, 1, one, &range, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_U8, 1, big, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "z", STITCH_DTYPE_I32, 1, three, NULL, &err));
    CHECK_OK(stitch_program_parse(ctx, "__global__ void unused() {}", plan, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, stitch_task_interface(t), device.arch, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, bytes, "y", &into[1], &err));
    CHECK_OK(stitch__mem_alloc(dev, 12, "z", &into[2], &err));
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    CHECK_OK(stitch__worker_open(w, &scope, t, p, &c, &err));
    CHECK_OK(c.ops->load(c.self, &scope, &load, &code, &why, &err));
    CHECK_INT(code, STITCH_OK);
    CHECK_OK(c.ops->fill_inputs(c.self, &scope, 1, NULL, &err));
    CHECK_OK(c.ops->prepare(c.self, &scope, &prepared, &code, &why, &err));
    CHECK_INT(code, STITCH_OK);
    CHECK_OK(c.ops->run(c.self, &scope, &run, &code, &why, &err));
    CHECK_INT(code, STITCH_OK);
    int64_t start = stitch__now_ns();
    CHECK_OK(c.ops->fetch(c.self, &scope, 0, into, NULL, &err));
    printf("# %.1f MB of outputs in %.1f ms\n", (double)bytes / 1e6, (double)(stitch__now_ns() - start) / 1e6);
    unsigned char *y = malloc(bytes);
    int32_t z[3];
    CHECK_INT(dev->drv->MemcpyDtoH(y, into[1], bytes), 0);
    CHECK_INT(dev->drv->MemcpyDtoH(z, into[2], sizeof(z)), 0);
    for (uint64_t i = 0; i < bytes; i++)
        if (y[i] != 7)
            FAIL("byte %" PRIu64 " is %d", i, y[i]);
    CHECK(z[0] == 5 && z[1] == 5 && z[2] == 5);
    free(y);
    c.ops->close(c.self);
    stitch__worker_release(w, true);
    stitch__mem_free(dev, into[1]);
    stitch__mem_free(dev, into[2]);
    stitch__device_leave(dev);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Every fault ends its worker; the report comes, the next worker works, and nothing piles up. */
TEST(faults_in_a_row)
{
    static const char *const bodies[] = {
        "y[i] = a[i] * x[i] + b[i]; if (i == 3) *(volatile float *)0x10 = 1;",
        "y[i] = a[i] * x[i] + b[i]; if (i == 3) __trap();",
        "y[i] = a[i] * x[i] + b[i]; y[i + (1 << 26)] = 1;",
    };
    const char *text = getenv("STITCH_TEST_FAULTS");
    int faults, after_first = 0, code;
    stitch__worker *w = NULL;
    stitch_program *bad[STITCH__COUNT(bodies)];

    need_worker();
    faults = text ? atoi(text) : device.simulated ? 200 : 12;
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    results here = in_process(t, p);
    for (size_t i = 0; i < STITCH__COUNT(bodies); i++)
        bad[i] = make_program(t, bodies[i]);
    int64_t start = stitch__now_ns();
    for (int i = 0; i < faults; i++) {
        stitch__scope scope = scope_of(60000);
        stitch_error *why = NULL;
        CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
        (void)in_worker(w, t, bad[(size_t)i % STITCH__COUNT(bad)], 60000, &code, &why);
        CHECK_INT(code, STITCH_E_FAULT);
        CHECK(*stitch_error_message(why) && !strstr(stitch_error_message(why), "this process"));
        stitch_error_free(why);
        CHECK(stitch__worker_lost(w));
        stitch__worker_release(w, true);
        if (i == 1)
            after_first = count_descriptors();
    }
    printf("# %d faults, %.1f ms each\n", faults, (double)(stitch__now_ns() - start) / 1e6 / faults);
    /* Processes that were killed a moment ago may still be waited for; one left by every fault would be many more. */
    CHECK(faults < 2 || count_descriptors() <= after_first + (faults < 40 ? faults / 2 : 20));
    stitch__scope scope = scope_of(60000);
    stitch_error *why = NULL;
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    results there = in_worker(w, t, p, 60000, &code, &why);
    CHECK_INT(code, STITCH_OK);
    CHECK(same_results(&here, &there));
    results again = in_process(t, p);
    CHECK(same_results(&here, &again));
    stitch__worker_release(w, true);
    for (size_t i = 0; i < STITCH__COUNT(bad); i++)
        stitch_program_free(bad[i]);
    stitch_program_free(p);
    stitch_task_free(t);
}

TEST(an_endless_kernel)
{
    stitch__worker *w = NULL;
    stitch_error *why = NULL;
    int code;

    need_worker();
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, "y[i] = 0; while (((volatile float *)y)[i] == 0) { }");
    stitch__scope scope = scope_of(60000);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    int64_t start = stitch__now_ns();
    (void)in_worker(w, t, p, 1500, &code, &why);
    CHECK(stitch__now_ns() - start < 4000 * 1000000ll);
    if (code == STITCH_E_FAULT) /* the simulator's budget may be spent before */
        CHECK(device.simulated);
    else
        CHECK_INT(code, STITCH_E_TIMEOUT);
    CHECK_HAS(stitch_error_message(why), "program");
    CHECK(stitch__worker_lost(w));
    stitch_error_free(why);
    stitch__worker_release(w, true);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* It is dead when this returns, and left for the library to reap: what it shares could be read for some time yet. */
static void kill_and_wait(int pid)
{
    siginfo_t info;
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK_INT(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

/* Killed from outside at every step. */
TEST(killed_at_any_point)
{
    stitch_error *why = NULL;
    const stitch__load load = {-1};
    const stitch__run run = {0, 0xff, -1, 0, 0};
    stitch__prepared prepared;
    uint64_t hashes[4];
    CUdeviceptr into[4] = {0};
    int code = 0, rc;

    need_worker();
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, N * 4, "y", &into[3], &err));
    for (int step = 0; step < 9; step++) {
        stitch__scope scope = scope_of(30000);
        stitch__worker *w = NULL;
        stitch__candidate c = {0};
        code = STITCH_OK;
        CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
#define AT(number, call)                                                                                               \
    if (step == number)                                                                                                \
        kill_and_wait(stitch__worker_pid(w));                                                                          \
    if (step >= number)                                                                                                \
        rc = (call);
        AT(0, stitch__worker_ping(w, &scope, &err))
        AT(1, stitch__worker_open(w, &scope, t, p, &c, &err))
        AT(2, c.ops->load(c.self, &scope, &load, &code, &why, &err))
        AT(3, c.ops->fill_weights(c.self, &scope, 1, &err))
        AT(4, c.ops->fill_inputs(c.self, &scope, 1, NULL, &err))
        AT(5, c.ops->prepare(c.self, &scope, &prepared, &code, &why, &err))
        AT(6, c.ops->run(c.self, &scope, &run, &code, &why, &err))
        AT(7, c.ops->hash(c.self, &scope, 1, true, hashes, &err))
        AT(8, c.ops->fetch(c.self, &scope, 0, into, NULL, &err))
#undef AT
        bool candidates = step == 2 || step == 5 || step == 6;
        CHECK_INT(rc, candidates ? STITCH_OK : STITCH_E_IO);
        CHECK_INT(code, candidates ? STITCH_E_FAULT : STITCH_OK);
        CHECK_HAS(stitch_error_message(candidates ? why : err), "died by signal 9 (killed) while");
        stitch_error_free(err);
        stitch_error_free(why);
        err = why = NULL;
        if (c.ops)
            c.ops->close(c.self);
        stitch__worker_release(w, true);
    }
    stitch__mem_free(dev, into[3]);
    stitch__device_leave(dev);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* ---- confinement ------------------------------------------------------------------------------------------------- */

/* One of the same user that has no more privileges than a worker: other workers are such. */
static pid_t another_process(void)
{
    int ready[2];
    char c;
    CHECK_INT(pipe(ready), 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
        struct __user_cap_data_struct none[2] = {{0}};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (syscall(SYS_capset, &head, none) == 0 && write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]);
    CHECK_INT(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

/* rlimits everywhere: as docs/worker.md says, or less where this process has less. */
static void expected_limits(char *out, size_t size)
{
    static const struct {
        const char *name;
        int which;
        rlim_t most;
    } all[] = {{"core", RLIMIT_CORE, 0}, {"files", RLIMIT_FSIZE, 1 << 30}, {"descriptors", RLIMIT_NOFILE, 4096}};
    int nice = getpriority(PRIO_PROCESS, 0) + 5;
    size_t at = 0;

    for (size_t i = 0; i < STITCH__COUNT(all); i++) {
        struct rlimit own;
        CHECK_INT(getrlimit(all[i].which, &own), 0);
        at += (size_t)snprintf(out + at, size - at, "%s %lld, ", all[i].name,
                               (long long)(own.rlim_max < all[i].most ? own.rlim_max : all[i].most));
    }
    snprintf(out + at, size - at, "capabilities none, new ones never, dumpable 0, nice %d, session its own",
             nice < 19 ? nice : 19);
}

static void ask(stitch__worker *w, const char *question, const char *want)
{
    stitch__scope scope = scope_of(30000);
    char *answer = NULL;
    CHECK_OK(stitch__worker_probe(w, &scope, question, &answer, &err));
    printf("# %.60s: %.200s\n", question, answer);
    CHECK_STR(answer, want);
    stitch_free(answer);
}

TEST(confined)
{
    stitch__scope scope = scope_of(60000);
    stitch__worker *w = NULL;
    char question[300], *answer = NULL;

    need_worker();
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &(stitch__worker_options){.executable = test_worker()}, &w, &err));
    const char *sandbox = stitch__worker_sandbox(w);
    printf("# %s\n", sandbox);
    CHECK_HAS(sandbox, "no privileges, rlimits");
    expected_limits(question, sizeof(question));
    ask(w, "limits", question);
    if (strstr(sandbox, "landlock ") && !strstr(sandbox, "no landlock")) {
        ask(w, "write /tmp/stitch-worker-was-here", "refused");
        ask(w, "write /dev/shm/stitch-worker-was-here", "refused");
        ask(w, "read /etc/passwd", "refused");
        snprintf(question, sizeof(question), "read /proc/%d/environ", (int)getpid());
        ask(w, question, "refused");
        ask(w, "write /dev/null", "allowed");
        /* Names of its threads, and what is beside them; nothing of the process as a whole, nor of another one. */
        ask(w, "write /proc/thread-self/comm", "allowed");
        ask(w, "write /proc/self/comm", "refused");
        ask(w, "write /proc/self/mem", "refused");
        ask(w, "write /proc/self/oom_score_adj", "refused");
        ask(w, "write /proc/self/timerslack_ns", "refused");
        snprintf(question, sizeof(question), "write /proc/%d/task/%d/comm", (int)getpid(), (int)getpid());
        ask(w, question, "refused");
        if (geteuid() != 0) {
            ask(w, "write /proc/thread-self/mem", "refused");
            ask(w, "write /proc/thread-self/oom_score_adj", "refused");
        }
    }
    if (strstr(sandbox, "seccomp") && !strstr(sandbox, "no seccomp")) {
        ask(w, "socket", "refused");
        ask(w, "dump", "refused");
        ask(w, "type", "refused");
        ask(w, "clone3", "failed: Function not implemented"); /* libc then takes another one, which is looked at */
        const char *const changes[] = {"renice", "processors", "pages"};
        pid_t other = another_process();
        for (size_t i = 0; i < STITCH__COUNT(changes); i++) {
            snprintf(question, sizeof(question), "%s %d", changes[i], (int)other);
            ask(w, question, "refused");
        }
        CHECK_INT(kill(other, SIGKILL), 0);
        CHECK_INT(waitpid(other, NULL, 0), other);
        ask(w, "processors 0", "allowed");
        ask(w, "pages 0", "allowed");
        ask(w, "fork", "refused");
        ask(w, "exec", "refused");
        ask(w, "madvise 100", "refused"); /* MADV_HWPOISON, MADV_SOFT_OFFLINE, MADV_DONTNEED */
        ask(w, "madvise 101", "refused");
        ask(w, "madvise 4", "allowed");
        ask(w, "ioctl 88", "refused"); /* types of file systems: 'X', 'f', Btrfs, F2FS */
        ask(w, "ioctl 102", "refused");
        ask(w, "ioctl 148", "refused");
        ask(w, "ioctl 245", "refused");
        ask(w, "ioctl 70", "failed: Inappropriate ioctl for device"); /* the driver's get through */
        snprintf(question, sizeof(question), "kill %d", (int)getpid());
        ask(w, question, "refused");
        ask(w, "ipc memory", "refused");
        ask(w, "ipc semaphores", "refused");
        ask(w, "ipc messages", "refused");
        ask(w, "ipc queue", "refused");
        int shared = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600); /* none: this process may not either */
        snprintf(question, sizeof(question), "attach %d", shared);
        if (shared >= 0)
            ask(w, question, "refused");
        if (shared >= 0)
            CHECK_INT(shmctl(shared, IPC_RMID, NULL), 0);
    }
    CHECK_OK(stitch__worker_probe(w, &scope, "descriptors", &answer, &err));
    printf("# descriptors: %s\n", answer);
    if (device.simulated)
        CHECK_STR(answer, "0 1 2 3 ");
    stitch_free(answer);
    CHECK_OK(stitch__worker_probe(w, &scope, "print", &answer, &err)); /* blocks nobody */
    stitch_free(answer);
    CHECK_OK(stitch__worker_ping(w, &scope, &err));
    bool in_part = strstr(sandbox, "no landlock") || strstr(sandbox, "no seccomp");
    stitch__worker_release(w, false);
    if (in_part)
        SKIP("the kernel confines it in part only");
}

/* A verifier that has gone wrong is refused, and the worker goes on. */
TEST(requests_that_do_not_fit)
{
    enum { Y = 3, BYTES = 4099 * 4 };
    static const struct {
        stitch__request q;
        int code;
        const char *words;
    } rows[] = {
        {{.op = STITCH__OP_WORKER_FETCH, .tensor = 99}, STITCH_E_INVALID, "no tensor 99"},
        {{.op = STITCH__OP_WORKER_FETCH, .tensor = 0, .bytes = 4}, STITCH_E_INVALID, "no output"},
        {{.op = STITCH__OP_WORKER_FETCH, .tensor = Y, .offset = BYTES + 1}, STITCH_E_INVALID, "beyond the end"},
        {{.op = STITCH__OP_WORKER_FETCH, .tensor = Y, .offset = BYTES - 4, .bytes = 8}, STITCH_E_INVALID, "beyond"},
        {{.op = STITCH__OP_WORKER_FETCH, .tensor = Y, .bytes = 4, .at = INT64_C(1) << 40}, STITCH_E_INVALID, "beyond"},
        {{.op = STITCH__OP_WORKER_FETCH, .tensor = Y, .bytes = BYTES, .at = 1 << 20},
         STITCH_E_INVALID,
         "shared memory"},
        {{.op = STITCH__OP_WORKER_DATA, .tensor = 0}, STITCH_E_STATE, "too late"},
        {{.op = STITCH__OP_WORKER_START}, STITCH_E_STATE, "has been started"},
        {{.op = STITCH__OP_WORKER_HELLO}, STITCH_E_STATE, "greeted twice"},
    };
    stitch__scope scope = scope_of(60000);
    stitch__worker *w = NULL;
    stitch__candidate c;

    need_worker();
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__worker_open(w, &scope, t, p, &c, &err));
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch__request q = rows[i].q;
        stitch__reply r;
        if (q.op == STITCH__OP_WORKER_HELLO)
            q.device = q.cache_dir = q.cuda_path = q.text = "";
        CHECK_ERR(stitch__worker_call(w, &scope, &q, -1, NULL, &r, &err), rows[i].code, rows[i].words);
    }
    CHECK_OK(stitch__worker_ping(w, &scope, &err));
    c.ops->close(c.self);
    stitch__device_leave(dev);
    stitch__worker_release(w, false);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* The real worker answers no probes. */
TEST(no_probes_outside_of_tests)
{
    stitch__scope scope = scope_of(60000);
    stitch__worker *w = NULL;
    char *answer = NULL;

    need_worker();
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    CHECK_ERR(stitch__worker_probe(w, &scope, "fork", &answer, &err), STITCH_E_UNSUPPORTED, "no probes");
    CHECK_OK(stitch__worker_ping(w, &scope, &err));
    stitch__worker_release(w, true);
}

/* A key in the environment and in a model's options is nowhere in the worker. */
TEST(no_secrets)
{
    static const char key[] = "sk-Wq7pZr3T-not-for-workers-9";
    stitch_http_options options = STITCH_HTTP_OPTIONS_INIT;
    stitch__scope scope = scope_of(60000);
    stitch__worker *w = NULL;
    stitch_model *model = NULL;
    stitch_error *why = NULL;
    char question[200] = "find ", *answer = NULL;
    size_t len = strlen(question);
    int code;

    need_worker();
    CHECK_INT(setenv("OPENAI_API_KEY", key, 1), 0);
    CHECK_INT(setenv("STITCH_TEST_PASSWORD", key, 1), 0);
    options.base_url = "http://127.0.0.1:9/v1";
    options.model = "m";
    options.api_key = key;
    int rc = stitch_model_new_http(ctx, &options, &model, &err);
    CHECK(rc == STITCH_OK || rc == STITCH_E_UNSUPPORTED); /* built without HTTP */
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &(stitch__worker_options){test_worker(), false, true}, &w, &err));
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    (void)in_worker(w, t, p, 60000, &code, &why);
    CHECK_INT(code, STITCH_OK);
    for (size_t i = 0; key[i]; i++)
        question[len++] = (char)(key[i] + 1);
    question[len] = 0;
    ask(w, question, "not found");
    /* The search does find what is there. */
    snprintf(question, sizeof(question), "find ");
    len = strlen(question);
    for (const char *c = "flood %d"; *c; c++)
        question[len++] = (char)(*c + 1);
    question[len] = 0;
    ask(w, question, "found");
    CHECK_OK(stitch__worker_probe(w, &scope, "environment", &answer, &err));
    CHECK(!strstr(answer, "sk-") && !strstr(answer, "PASSWORD"));
    stitch_free(answer);
    stitch__worker_release(w, false);
    stitch_model_free(model);
    unsetenv("OPENAI_API_KEY");
    unsetenv("STITCH_TEST_PASSWORD");
    stitch_program_free(p);
    stitch_task_free(t);
}

/* A worker whose verifier dies without a word ends, too. */
TEST(orphans_end)
{
    int pipes[2], status;
    pid_t pid, worker = 0;

    need_worker();
    CHECK(pipe(pipes) == 0);
    fflush(stdout);
    if (!device.simulated)
        SKIP("a forked CUDA context is of no use");
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
        stitch_context *own = NULL;
        stitch__worker *w = NULL;
        options.device = "sim:sm_90";
        if (stitch_context_new(&own, &options, NULL))
            _exit(1);
        stitch__scope scope = stitch__scope_make(own, NULL, 60000);
        if (stitch__worker_acquire(own, &scope, NULL, &w, NULL))
            _exit(2);
        worker = stitch__worker_pid(w);
        if (write(pipes[1], &worker, sizeof(worker)) != sizeof(worker))
            _exit(3);
        raise(SIGKILL);
    }
    close(pipes[1]);
    CHECK(read(pipes[0], &worker, sizeof(worker)) == sizeof(worker));
    close(pipes[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(worker > 1);
    for (int i = 0; i < 500 && kill(worker, 0) == 0; i++) { /* a zombie that nobody reaps counts as ended */
        char path[64], line[256] = "";
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)worker);
        FILE *f = fopen(path, "r");
        bool zombie = f && fgets(line, sizeof(line), f) && strstr(line, ") Z");
        if (f)
            fclose(f);
        if (zombie)
            return;
        usleep(10000);
        if (i == 499)
            FAIL("worker %d outlives its verifier", (int)worker);
    }
}

/* ---- lock -------------------------------------------------------------------------------------------------------- */

TEST(one_timing_at_a_time)
{
    stitch__gpu_lock first = STITCH__GPU_LOCK_INIT, second = STITCH__GPU_LOCK_INIT, third = STITCH__GPU_LOCK_INIT;
    char folder[] = "/tmp/stitch-test-XXXXXX", *why = NULL, command[100];

    need_worker();
    stitch__scope scope = scope_of(30000), brief = scope_of(50);
    CHECK(mkdtemp(folder));
    CHECK_INT(setenv("XDG_RUNTIME_DIR", folder, 1), 0);
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &first, &why, &err));
    CHECK(first.fd >= 0 && !why);
    CHECK_ERR(stitch__gpu_lock_take(dev, &brief, true, &second, &why, &err), STITCH_E_TIMEOUT, "another process");
    brief = scope_of(50);
    CHECK_ERR(stitch__gpu_lock_take(dev, &brief, false, &second, &why, &err), STITCH_E_TIMEOUT, "another process");
    CHECK_INT(second.fd, -1);
    stitch__gpu_lock_release(&first);
    stitch__gpu_lock_release(&first);
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, false, &second, &why, &err));
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, false, &third, &why, &err));
    brief = scope_of(50);
    CHECK_ERR(stitch__gpu_lock_take(dev, &brief, true, &first, &why, &err), STITCH_E_TIMEOUT, "another process");
    CHECK_INT(first.fd, -1);
    CHECK_INT(first.gate, -1);
    stitch__gpu_lock_release(&third);
    if (device.simulated) { /* one who never ends holds a timing up for 10 s; newcomers are kept away all the same */
        CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &first, &why, &err));
        CHECK_HAS(why, "10 s");
        CHECK(first.fd == -1 && first.gate >= 0);
        stitch_free(why);
        brief = scope_of(50);
        CHECK_ERR(stitch__gpu_lock_take(dev, &brief, false, &third, NULL, &err), STITCH_E_TIMEOUT, "another process");
        stitch__gpu_lock_release(&first);
        CHECK_OK(stitch__gpu_lock_take(dev, &scope, false, &third, NULL, &err));
        stitch__gpu_lock_release(&third);
    }
    stitch__gpu_lock_release(&second);
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &first, &why, &err));
    CHECK(first.fd >= 0 && !why);
    stitch__gpu_lock_release(&first);
    unsetenv("XDG_RUNTIME_DIR");
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK_INT(system(command), 0);
}

static int never_called(stitch_stream stream, const stitch_op_arg *args, size_t count, const char *attrs,
                        void *userdata)
{
    return STITCH_E_INTERNAL;
}

/* The host offers an operator; the program does not call it, and goes wherever others go. */
static stitch_report *verified(int where, int stage, int64_t timeout_ms, int want)
{
    static const stitch_op op = {.name = "custom", .fn = never_called};
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_task *t = vector_task();
    stitch_program *p = make_program(t, good);
    stitch_report *r = NULL;

    o.where = where;
    o.last_stage = stage;
    o.timeout_ms = timeout_ms;
    o.ops = &op;
    o.op_count = 1;
    int rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
    if (rc != want)
        FAIL("status %d: %s", rc, stitch_error_message(err));
    stitch_program_free(p);
    stitch_task_free(t);
    return r;
}

/* A report says how outputs came from the worker; on a device that shares memory, not through the host. */
TEST(reports_how_outputs_came)
{
    need_worker();
    stitch_report *r = verified(STITCH_VERIFY_WORKER, STITCH_STAGE_LOAD, 60000, STITCH_OK);
    CHECK_HAS(json_string_value(report_at(r, "environment.program_ran")), "worker");
    const char *text = json_string_value(report_at(r, "environment.outputs"));
    printf("# outputs came %s\n", text);
    if (device.simulated)
        CHECK_STR(text, "through the host's memory: the device is simulated");
    else
        CHECK((strcmp(text, "in device memory that both processes map") == 0) ==
              !strstr(stitch_report_text(r), "note: outputs came back"));
    stitch_report_free(r);
    r = verified(STITCH_VERIFY_HERE, STITCH_STAGE_LOAD, 60000, STITCH_OK);
    CHECK(json_is_null(report_at(r, "environment.outputs")));
    stitch_report_free(r);
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

static int compile_apart(void *unused, const stitch__scope *scope, const stitch__rtc_input *in, stitch__rtc *out,
                         stitch_error **e)
{
    const stitch__worker_options options = {.executable = test_worker()};
    bool missing;
    (void)unused;
    return stitch__worker_compile(ctx, scope, &options, in, out, &missing, e);
}

/* Milliseconds; the code is kept in *image. */
static double time_compile(int number, bool apart, stitch_image **image)
{
    static const stitch__compiler by = {compile_apart, NULL};
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    char source[2000];
    int64_t start = stitch__now_ns();

    snprintf(source, sizeof(source), VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + %d;"), number);
    options.no_cache = 1;
    CHECK_OK(stitch__compile_by(ctx, source, &options, apart ? &by : NULL, image, &err));
    return (double)(stitch__now_ns() - start) / 1e6;
}

/* The source is compiled in a process that has opened no device, to the same bits, and in about the same time. */
TEST(a_compiler_has_no_device)
{
    const stitch__worker_options options = {.executable = test_worker(), .role = STITCH__WORKER_COMPILER};
    stitch__scope scope = scope_of(60000);
    double here = 0, there = 0, first = 0;
    stitch__worker *w = NULL;
    char path[64], line[512];

    need_worker();
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    snprintf(path, sizeof(path), "/proc/%d/maps", stitch__worker_pid(w));
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof(line), maps))
        CHECK(!strstr(line, "libcuda.so") && !strstr(line, "/dev/nvidia"));
    if (maps)
        fclose(maps);
    for (int fd = 0; fd < 256; fd++) { /* whoever is not root may not look */
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", stitch__worker_pid(w), fd);
        ssize_t n = readlink(path, line, sizeof(line) - 1);
        line[n > 0 ? n : 0] = 0;
        CHECK(!strstr(line, "/dev/nvidia"));
    }
    stitch__worker_release(w, true);
    for (int i = 0; i < 20; i++) {
        stitch_image *one = NULL, *other = NULL;
        double a = time_compile(i, true, &one), b = time_compile(i, false, &other);
        size_t size, other_size;
        const void *code = stitch_image_data(one, &size), *other_code = stitch_image_data(other, &other_size);
        CHECK(size == other_size && memcmp(code, other_code, size) == 0);
        stitch_image_free(one);
        stitch_image_free(other);
        first = i ? first : a;
        there += i ? a / 19 : 0;
        here += i ? b / 19 : 0;
    }
    printf("# compiled in a process of its own in %.1f ms (first %.1f), here in %.1f ms\n", there, first, here);
}

/* A verification does not use the device while another one times there. */
TEST(waits_for_a_timing)
{
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    char *why = NULL;

    need_worker();
    if (device.simulated)
        SKIP("nothing is timed on a simulated device");
    stitch__scope scope = scope_of(30000);
    stitch_report_free(verified(STITCH_VERIFY_WORKER, STITCH_STAGE_CORRECT, 60000, STITCH_OK));
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &lock, &why, &err));
    if (why)
        SKIP("the lock's file cannot be written");
    CHECK(verified(STITCH_VERIFY_WORKER, STITCH_STAGE_CORRECT, 1500, STITCH_E_TIMEOUT) == NULL);
    CHECK_HAS(stitch_error_message(err), "times on this device");
    stitch_error_free(err);
    err = NULL;
    stitch_report_free(verified(STITCH_VERIFY_WORKER, STITCH_STAGE_COMPILE, 60000, STITCH_OK));
    stitch__gpu_lock_release(&lock);
    stitch_report_free(verified(STITCH_VERIFY_WORKER, STITCH_STAGE_TIME, 60000, STITCH_OK));
}

TEST(nothing_is_left)
{
    siginfo_t info;
    if (!ctx)
        SKIP("no device");
    stitch_context_free(ctx);
    ctx = NULL;
    CHECK(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0);
}

TEST_MAIN(RUN(the_same_bits_as_in_this_process), RUN(data_of_tensors), RUN(runs_in_a_block),
          RUN(a_later_run_of_a_block), RUN(a_kept_output_that_changed), RUN(times_that_are_too_short),
          RUN(large_outputs), RUN(faults_in_a_row), RUN(an_endless_kernel), RUN(killed_at_any_point), RUN(confined),
          RUN(requests_that_do_not_fit), RUN(no_probes_outside_of_tests), RUN(no_secrets), RUN(orphans_end),
          RUN(one_timing_at_a_time), RUN(reports_how_outputs_came), RUN(a_compiler_has_no_device),
          RUN(waits_for_a_timing), RUN(nothing_is_left))
