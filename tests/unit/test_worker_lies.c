/* SPDX-License-Identifier: MIT
 *
 * Workers that die, hang, lie and flood: the verifier is told what became of the program, in time, and nothing is left.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "descriptors.h"
#include "meter.h"
#include "verify/verify.h"
#include "worker/client.h"

static stitch_context *ctx;
static stitch_error *err;
static stitch_task *task;
static stitch_program *program;

enum { SOON_MS = 10000 };

static meter memory = {.refuse_at = -1};
static int64_t refuse_after = -1; /* calls from the start of run_all() on; -1: none */
static bool refused;              /* since then */

static void set_up(void)
{
    static const char *const shape[] = {"N"};
    static const char plan[] =
        "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[32],\"args\":[\"x\",\"y\"]}]}";
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};

    options.device = "sim:sm_90";
    options.cache_dir = "";
    options.allocator = &allocator;
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    CHECK_OK(stitch_task_new(ctx, "lies", &task, &err));
    CHECK_OK(stitch_task_set_dim(task, "N", 32, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_STATE, "s", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_program_parse(ctx,
                                  "__global__ void k(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }",
                                  plan, NULL, &program, &err));
}

static void tear_down(void)
{
    stitch_program_free(program);
    stitch_task_free(task);
    stitch_context_free(ctx);
    ctx = NULL;
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* What one pass through all operations ended with. */
typedef struct outcome {
    int rc, code;
    bool lost; /* the worker, with it */
    char message[600], details[600];
    const char *step;
    double ms;
} outcome;

#define STEP(name, call)                                                                                               \
    if (!o.rc && !o.code) {                                                                                            \
        o.step = name;                                                                                                 \
        o.rc = (call);                                                                                                 \
    }

static outcome run_all(const char *mode, int64_t timeout_ms, stitch_cancel *stop)
{
    static char before[64];
    if (strcmp(mode, before) != 0) { /* one that idles, or starts in the background, would be of the mode before */
        tear_down();
        set_up();
        snprintf(before, sizeof(before), "%s", mode);
    }
    stitch__worker_options options = {.executable = STITCH_TEST_WORKER};
    stitch__scope scope = stitch__scope_make(ctx, stop, timeout_ms);
    stitch__worker *w = NULL;
    stitch__candidate c = {0};
    stitch__load load = {-1};
    stitch__run run = STITCH__RUN_INIT;
    stitch__prepared prepared;
    stitch_error *why = NULL;
    stitch__run_block block = {.count = 3};
    uint64_t hashes[3], kept[3 * 3];
    CUdeviceptr into[3] = {0};
    const stitch__collect_options collect = {.parts = STITCH__PARTS};
    stitch__facts *facts = NULL;
    stitch__device *dev;
    outcome o = {0};
    stitch__took took[3];
    int64_t start = stitch__now_ns();

    for (uint32_t k = 0; k < block.count; k++)
        block.runs[k] =
            (stitch__block_run){.run = STITCH__RUN_INIT, .does = STITCH__RUN_TIMED | STITCH__RUN_KEPT, .key = 4 + k};
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", mode, 1), 0);
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, 128, "y", &into[1], &err));
    if (refuse_after >= 0)
        memory.refuse_at = memory.calls + refuse_after;
    STEP("acquire", stitch__worker_acquire(ctx, &scope, &options, &w, &err))
    STEP("ping", stitch__worker_ping(w, &scope, &err))
    STEP("open", stitch__worker_open(w, &scope, task, program, &c, &err))
    STEP("load", c.ops->load(c.self, &scope, &load, &o.code, &why, &err))
    STEP("weights", c.ops->fill_weights(c.self, &scope, 1, &err))
    STEP("inputs", c.ops->fill_inputs(c.self, &scope, 1, NULL, &err))
    STEP("prepare", c.ops->prepare(c.self, &scope, &prepared, &o.code, &why, &err))
    STEP("states", c.ops->clear_states(c.self, &scope, 0, &err))
    STEP("hash", c.ops->hash(c.self, &scope, 1, true, hashes, &err))
    STEP("run", c.ops->run(c.self, &scope, &run, &o.code, &why, &err))
    STEP("timed", c.ops->timed_run(c.self, &scope, &run, took, &o.code, &why, &err))
    STEP("keep", c.ops->keep(c.self, &scope, 3, &err))
    STEP("block", c.ops->run_block(c.self, &scope, &block, took, kept, &o.code, &why, &err))
    STEP("profile", c.ops->profile(c.self, &scope, &run, &collect, &facts, &o.code, &why, &err))
    stitch__facts_free(facts);
    STEP("inspect", c.ops->inspect(c.self, &scope, &o.code, &why, &err))
    STEP("fetch", c.ops->fetch(c.self, &scope, 0, into, NULL, &err))
    snprintf(o.message, sizeof(o.message), "%s", stitch_error_message(o.code ? why : err));
    snprintf(o.details, sizeof(o.details), "%s", stitch_error_details(o.code ? why : err));
    o.lost = w && stitch__worker_lost(w);
    if (o.lost) /* and does not go on somewhere */
        CHECK(stitch__process_ended(&w->process, SOON_MS));
    if (o.code || o.rc) { /* and nothing that is asked after it crashes or hangs */
        int code = 0;
        stitch_error *again = NULL;
        if (c.ops && stitch__worker_lost(w)) {
            CHECK_INT(c.ops->run(c.self, &scope, &run, &code, &why, &again), STITCH_E_STATE);
            CHECK_INT(c.ops->fill_inputs(c.self, &scope, 1, NULL, &again), STITCH_E_STATE);
            CHECK_HAS(stitch_error_message(again), "no worker any more");
        }
        stitch_error_free(again);
    } else {
        o.step = "end";
    }
    o.ms = (double)(stitch__now_ns() - start) / 1e6;
    stitch_error_free(why);
    stitch_error_free(err);
    err = NULL;
    if (c.ops)
        c.ops->close(c.self);
    stitch__worker_release(w, true);
    refused = refuse_after >= 0 && memory.calls > memory.refuse_at;
    memory.refuse_at = -1;
    stitch__mem_free(dev, into[1]);
    stitch__device_leave(dev);
    return o;
}

/* As `how` ("RUN:segv") says; `step` is where it shows. code 0: an error of the call with status `rc`. */
static void expect(const char *mode, const char *step, int rc, int code, const char *message)
{
    outcome o;
    printf("# %s\n", mode);
    o = run_all(mode, SOON_MS, NULL);
    if (strcmp(o.step, step) != 0 || o.rc != rc || o.code != code || !strstr(o.message, message))
        FAIL("%s: at %s status %d, code %d, \"%s\"; expected at %s status %d, code %d, \"%s\"", mode, o.step, o.rc,
             o.code, o.message, step, rc, code, message);
    CHECK(code != STITCH_E_FAULT || o.lost);
    CHECK(o.ms < SOON_MS / 2);
}

TEST(an_honest_one)
{
    int before = count_descriptors();
    set_up();
    for (int i = 0; i < 3; i++)
        expect("NONE:nothing", "end", 0, 0, "");
    tear_down();
    CHECK(!has_children());
    CHECK_INT(count_descriptors(), before);
}

static const struct {
    const char *op, *step, *doing;
    bool candidate; /* its failure is the program's */
} steps[] = {
    {"HELLO", "acquire", "starting", false},
    {"PING", "ping", "answering a ping", false},
    {"OPEN", "open", "taking the program", false},
    {"START", "open", "allocating tensors", false},
    {"LOAD", "load", "loading the program", true},
    {"FILL_WEIGHTS", "weights", "filling weights", false},
    {"FILL_INPUTS", "inputs", "filling inputs", false},
    {"PREPARE", "prepare", "preparing the program", true},
    {"CLEAR_STATES", "states", "clearing states", false},
    {"HASH", "hash", "hashing", false},
    {"RUN", "run", "running the program", true},
    {"TIMED_RUN", "timed", "timing the program", true},
    {"KEEP", "keep", "making room for outputs", false},
    {"RUN_BLOCK", "block", "running the program", true},
    {"PROFILE", "profile", "profiling the program", true},
    {"INSPECT", "inspect", "looking around", true},
    {"FETCH", "fetch", "copying outputs", false},
};

static void at_every_step(const char *behaviour, const char *message)
{
    int before = count_descriptors();
    char mode[64];

    set_up();
    for (size_t i = 0; i < STITCH__COUNT(steps); i++) {
        snprintf(mode, sizeof(mode), "%s:%s", steps[i].op, behaviour);
        expect(mode, steps[i].step, steps[i].candidate ? 0 : STITCH_E_IO, steps[i].candidate ? STITCH_E_FAULT : 0,
               message);
    }
    tear_down();
    CHECK(!has_children());
    CHECK_INT(count_descriptors(), before);
}

TEST(it_dies_by_a_signal)
{
    at_every_step("segv", "the worker died by signal 11 (segmentation fault) while");
}

TEST(it_exits)
{
    at_every_step("exit", "the worker died with exit code 3 while");
}

TEST(it_sends_garbage)
{
    at_every_step("garbage", "broke the protocol while");
}

TEST(it_floods)
{
    at_every_step("flood", "broke the protocol while");
}

TEST(it_closes_its_connection)
{
    set_up();
    expect("RUN:close", "run", 0, STITCH_E_FAULT, "closed its connection while running the program, and was ended");
    expect("HASH:close", "hash", STITCH_E_IO, 0, "closed its connection while hashing");
    tear_down();
    CHECK(!has_children());
}

TEST(messages_that_are_none)
{
    static const struct {
        const char *behaviour, *message;
    } rows[] = {{"zeros", "no message"},
                {"truncate", "the worker died with exit code 0"},
                {"fds", "broke the protocol"},
                {"huge", "the limit is"},
                {"unsigned", "not signed"},
                {"signed-noise", "malformed"},
                {"request", "a request came instead of a reply"},
                {"replay", "came where"},
                {"other", "answered another request"},
                {"status", "malformed"},
                {"busy", "worked longer than it was waited for"},
                {"timeout", "a deadline that it does not have"}};
    int before = count_descriptors();
    char mode[64];

    set_up();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        snprintf(mode, sizeof(mode), "RUN:%s", rows[i].behaviour);
        expect(mode, "run", 0, STITCH_E_FAULT, rows[i].message);
        snprintf(mode, sizeof(mode), "HASH:%s", rows[i].behaviour);
        if (strcmp(rows[i].behaviour, "timeout") != 0)
            expect(mode, "hash", STITCH_E_IO, 0, rows[i].message);
    }
    tear_down();
    CHECK(!has_children());
    CHECK_INT(count_descriptors(), before);
}

TEST(numbers_that_cannot_be)
{
    set_up();
    expect("TIMED_RUN:late", "timed", 0, STITCH_E_FAULT, "more time than has passed");
    expect("TIMED_RUN:late-watch", "timed", 0, STITCH_E_FAULT, "more time than has passed");
    expect("TIMED_RUN:nan", "timed", 0, STITCH_E_FAULT, "malformed");
    expect("TIMED_RUN:negative", "timed", 0, STITCH_E_FAULT, "malformed");
    expect("RUN_BLOCK:late", "block", 0, STITCH_E_FAULT, "more time than has passed");
    expect("RUN_BLOCK:late-together", "block", 0, STITCH_E_FAULT, "more time than has passed");
    expect("RUN_BLOCK:nan", "block", 0, STITCH_E_FAULT, "malformed");
    expect("RUN_BLOCK:negative", "block", 0, STITCH_E_FAULT, "malformed");
    expect("RUN_BLOCK:fewer", "block", 0, STITCH_E_FAULT, "made another number of runs");
    expect("RUN_BLOCK:count", "block", STITCH_E_IO, 0, "4 hashes for 9 tensors");
    expect("PROFILE:facts", "profile", 0, STITCH_E_FAULT, "more time than has passed");
    expect("PROFILE:no-facts", "profile", 0, STITCH_E_FAULT, "broke the protocol while profiling");
    expect("PREPARE:nan", "prepare", 0, STITCH_E_FAULT, "malformed");
    expect("PREPARE:late", "prepare", 0, STITCH_E_FAULT, "more time than has passed");
    expect("HASH:blame", "hash", STITCH_E_IO, 0, "blames the program");
    expect("HASH:count", "hash", STITCH_E_IO, 0, "4 hashes for 3 tensors");
    expect("HELLO:protocol", "acquire", STITCH_E_UNSUPPORTED, 0, "install both from one build");
    expect("HELLO:version", "acquire", STITCH_E_UNSUPPORTED, 0, "install both from one build");
    expect("HELLO:arch", "acquire", STITCH_E_IO, 0, "another device");
    tear_down();
    CHECK(!has_children());
}

/* The worker's context is lost, which is the program's doing where it ran; this process's is not. */
TEST(it_loses_its_context)
{
    outcome o;

    set_up();
    for (size_t i = 0; i < STITCH__COUNT(steps); i++) {
        char mode[64];
        snprintf(mode, sizeof(mode), "%s:context", steps[i].op);
        printf("# %s\n", mode);
        o = run_all(mode, SOON_MS, NULL);
        CHECK_STR(o.step, steps[i].step);
        CHECK_INT(o.rc, steps[i].candidate ? 0 : STITCH_E_IO);
        CHECK_INT(o.code, steps[i].candidate ? STITCH_E_FAULT : 0);
        CHECK(i == 0 || o.lost); /* the first: there is none yet */
    }
    o = run_all("RUN:blame", SOON_MS, NULL);
    CHECK_INT(o.code, STITCH_E_FAULT);
    CHECK(o.lost);
    o = run_all("RUN:escape", SOON_MS, NULL);
    CHECK(o.code && !o.lost);
    tear_down();
    CHECK(!has_children());
}

TEST(texts_are_cleaned)
{
    outcome o;
    set_up();
    o = run_all("RUN:escape", SOON_MS, NULL);
    CHECK_INT(o.code, STITCH_E_DRIVER);
    CHECK_STR(o.message, "bad?[2J news?");
    CHECK_STR(o.details, "more?");
    o = run_all("RUN:words", SOON_MS, NULL);
    CHECK_HAS(o.message, "died by signal 6 (aborted) while running");
    CHECK_HAS(o.details, "last words?[31m");
    tear_down();
}

/* Replies that nobody asked for are no replies, and whoever sends them is not used again. */
TEST(more_replies_than_requests)
{
    set_up();
    expect("PREPARE:extra", "states", STITCH_E_IO, 0, "broke the protocol");
    for (int i = 0; i < 2; i++) /* the second time by another worker */
        expect("FETCH:extra", "end", 0, 0, "");
    for (int i = 0; i < 2; i++) {
        expect("CLOSE:extra", "end", 0, 0, "");
        stitch__sleep_ms(100); /* whatever it says is there by then */
    }
    tear_down();
    CHECK(!has_children());
}

TEST(deadlines)
{
    static const char *const behaviours[] = {"stall", "half"};
    char mode[64];

    set_up();
    for (size_t i = 0; i < STITCH__COUNT(steps); i++) {
        outcome o;
        snprintf(mode, sizeof(mode), "%s:%s", steps[i].op, behaviours[i % 2]);
        printf("# %s\n", mode);
        o = run_all(mode, 300, NULL);
        CHECK_STR(o.step, steps[i].step);
        CHECK_INT(o.rc, steps[i].candidate ? 0 : STITCH_E_TIMEOUT);
        CHECK_INT(o.code, steps[i].candidate ? STITCH_E_TIMEOUT : 0);
        CHECK_HAS(o.message, steps[i].doing);
        CHECK_HAS(o.message, "did not end before its deadline; the worker was killed");
        CHECK(o.ms >= 290 && o.ms < 2000);
    }
    tear_down();
    CHECK(!has_children());
}

static stitch_cancel *cancel;

static void trigger(int signal_number)
{
    stitch_cancel_trigger(cancel);
}

TEST(cancellation)
{
    outcome o;

    set_up();
    CHECK_INT(stitch_cancel_new(&cancel), 0);
    (void)signal(SIGALRM, trigger);
    alarm(1);
    o = run_all("RUN:stall", 60000, cancel);
    (void)signal(SIGALRM, SIG_DFL);
    CHECK_STR(o.step, "run");
    CHECK_INT(o.rc, STITCH_E_CANCELLED);
    CHECK(o.ms < 10000);
    o = run_all("NONE:nothing", 60000, cancel);
    CHECK_STR(o.step, "acquire");
    CHECK_INT(o.rc, STITCH_E_CANCELLED);
    stitch_cancel_free(cancel);
    tear_down();
    CHECK(!has_children());
}

/* A host that ignores SIGCHLD takes the status of every child away. */
TEST(a_host_that_ignores_its_children)
{
    set_up();
    (void)signal(SIGCHLD, SIG_IGN);
    expect("NONE:nothing", "end", 0, 0, "");
    expect("RUN:segv", "run", 0, STITCH_E_FAULT, "the worker died in a way that is not known while running");
    (void)signal(SIGCHLD, SIG_DFL);
    expect("RUN:segv", "run", 0, STITCH_E_FAULT, "signal 11");
    tear_down();
    CHECK(!has_children());
}

TEST(there_is_none)
{
    stitch__worker_options options = {.executable = "/nonexistent/stitch-worker"};
    stitch__scope scope = {0};
    stitch__worker *w = NULL;

    set_up();
    CHECK_ERR(stitch__worker_acquire(ctx, &scope, &options, &w, &err), STITCH_E_NOT_FOUND, "no executable file");
    options.executable = "/";
    CHECK_ERR(stitch__worker_acquire(ctx, &scope, &options, &w, &err), STITCH_E_NOT_FOUND, "no executable file");
    options.executable = "/bin/false";
    CHECK_ERR(stitch__worker_acquire(ctx, &scope, &options, &w, &err), STITCH_E_IO,
              "died with exit code 1 while starting");
    CHECK(!w);
    tear_down();
    CHECK(!has_children());
}

/* One that dies when it starts, once: the next one starts, and nothing is left of the first one's error. */
/* Nobody waits for one that starts ahead, and who needs one takes it. */
TEST(it_starts_ahead)
{
    stitch__scope scope;
    stitch__worker *w = NULL;
    int pid;

    CHECK_INT(setenv("STITCH_WORKER", STITCH_TEST_WORKER, 1), 0);
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "HELLO:stall", 1), 0);
    set_up();
    int64_t start = stitch__now_ns();
    stitch__worker_ahead(ctx, STITCH__WORKER_CANDIDATE);
    stitch__worker_ahead(ctx, STITCH__WORKER_CANDIDATE); /* one will do */
    CHECK((double)(stitch__now_ns() - start) / 1e6 < 1000);
    CHECK(has_children());
    scope = stitch__scope_make(ctx, NULL, 300);
    CHECK_ERR(stitch__worker_acquire(ctx, &scope, NULL, &w, &err), STITCH_E_TIMEOUT, "no worker: ");
    tear_down();
    CHECK(!has_children());
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    set_up();
    stitch__worker_ahead(ctx, STITCH__WORKER_CANDIDATE);
    scope = stitch__scope_make(ctx, NULL, SOON_MS);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    pid = stitch__worker_pid(w);
    stitch__worker_release(w, true);
    stitch__worker_ahead(ctx, STITCH__WORKER_CANDIDATE); /* it idles: no other one */
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    CHECK_INT(stitch__worker_pid(w), pid);
    stitch__worker_release(w, true);
    CHECK_INT(setenv("STITCH_WORKER", "/nowhere", 1), 0);
    stitch__worker_ahead(ctx, STITCH__WORKER_CANDIDATE); /* no trouble of its own */
    CHECK_ERR(stitch__worker_acquire(ctx, &scope, NULL, &w, &err), STITCH_E_NOT_FOUND, "/nowhere");
    CHECK_INT(unsetenv("STITCH_WORKER"), 0);
    tear_down();
    CHECK(!has_children());
}

TEST(it_starts_the_second_time)
{
    char folder[] = "/tmp/stitch-worker-test-XXXXXX", script[64], flag[64];
    stitch__worker_options options = {.executable = script};
    stitch__scope scope = {0};
    stitch__worker *w = NULL;
    FILE *f;

    CHECK(mkdtemp(folder) != NULL);
    snprintf(script, sizeof(script), "%s/worker", folder);
    snprintf(flag, sizeof(flag), "%s/flag", folder);
    CHECK((f = fopen(script, "w")) != NULL);
    fprintf(f, "#!/bin/sh\nif test -e %s; then exec %s; fi\n: > %s\nexit 7\n", flag, STITCH_TEST_WORKER, flag);
    CHECK_INT(fclose(f), 0);
    CHECK_INT(chmod(script, 0700), 0);
    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    CHECK(err == NULL);
    CHECK_OK(stitch__worker_ping(w, &scope, &err));
    CHECK_INT(access(flag, F_OK), 0);
    stitch__worker_release(w, true);
    tear_down();
    CHECK(!has_children());
    (void)unlink(flag);
    (void)unlink(script);
    (void)rmdir(folder);
}

/* Where there is no worker the host's process may do for what passed the simulator, but not for a program that has been
 * in a worker already. */
TEST(no_way_from_a_worker_into_this_process)
{
    static const stitch_op op = {.name = "custom"};
    stitch__verify v = {0};

    set_up();
    CHECK_INT(setenv("STITCH_WORKER", "/nonexistent/stitch-worker", 1), 0);
    v.ctx = ctx;
    v.task = task;
    v.program = program;
    v.scope = stitch__scope_make(ctx, NULL, SOON_MS);
    CHECK_OK(stitch__device_get(ctx, &v.dev, &err));
    CHECK_OK(stitch__device_enter(v.dev, &err));
    CHECK_OK(stitch__report_new(ctx, &v.report, &err));
    CHECK_OK(stitch__hash_warm(v.dev, NULL, &err)); /* as PTX, as long as it is known to be simulated */
    v.dev->info.simulated = 0;                      /* what is simulated needs no worker */
    v.report->stages[STITCH_STAGE_SIMULATE].status = STITCH_STAGE_PASSED;
    v.report->isolated = true;
    CHECK_ERR(stitch__candidate_open(&v, &err), STITCH_E_NOT_FOUND, "no executable file");
    CHECK(!v.runner && !v.candidate.ops);
    v.report->isolated = false;
    for (int status = STITCH_STAGE_NOT_RUN; status <= STITCH_STAGE_SKIPPED; status++) {
        if (status == STITCH_STAGE_PASSED)
            continue;
        v.report->stages[STITCH_STAGE_SIMULATE].status = status;
        CHECK_ERR(stitch__candidate_open(&v, &err), STITCH_E_NOT_FOUND, "STITCH_VERIFY_HERE");
        v.options.ops = &op; /* which this program does not call */
        v.options.op_count = 1;
        CHECK_ERR(stitch__candidate_open(&v, &err), STITCH_E_NOT_FOUND, "no executable file");
        v.options.op_count = 0;
        CHECK(!v.runner && !v.candidate.ops);
    }
    v.report->stages[STITCH_STAGE_SIMULATE].status = STITCH_STAGE_PASSED;
    CHECK_OK(stitch__candidate_open(&v, &err));
    CHECK(v.runner != NULL && !v.report->isolated);
    v.dev->info.simulated = 1;
    v.candidate.ops->close(v.candidate.self);
    stitch_report_free(v.report);
    stitch__device_leave(v.dev);
    tear_down();
    CHECK_INT(unsetenv("STITCH_WORKER"), 0);
}

/* The host's functions are the host's process's: only the host lets a program in that calls them. */
TEST(a_program_with_operators)
{
#define OP "{\"op\":{\"name\":\"custom\",\"args\":[\"x\",\"y\"]}}"
    static const char *const plans[] = {
        "{\"stitch\":1,\"run\":[" OP "]}",
        "{\"stitch\":1,\"run\":[{\"repeat\":{\"var\":\"i\",\"count\":2,\"steps\":[" OP "]}}]}",
    };
    static const stitch_op op = {.name = "custom"};

    for (size_t i = 0; i < STITCH__COUNT(plans); i++) {
        stitch__verify v = {.options = {.ops = &op, .op_count = 1}};
        set_up();
        stitch_program_free(program);
        CHECK_OK(stitch_program_parse(ctx, "", plans[i], NULL, &program, &err));
        v.ctx = ctx;
        v.task = task;
        v.program = program;
        CHECK_OK(stitch__device_get(ctx, &v.dev, &err));
        CHECK_OK(stitch__report_new(ctx, &v.report, &err));
        v.report->stages[STITCH_STAGE_SIMULATE].status = STITCH_STAGE_PASSED;
        v.dev->info.simulated = 0;
        for (int where = STITCH_VERIFY_AUTO; where <= STITCH_VERIFY_WORKER; where++) {
            v.options.where = where;
            CHECK_INT(stitch__wants_worker(&v), where != STITCH_VERIFY_HERE);
            if (where == STITCH_VERIFY_HERE)
                continue;
            CHECK_ERR(stitch__candidate_open(&v, &err), STITCH_E_UNSUPPORTED, "operators of the host");
            CHECK(!v.runner && !v.worker && !v.report->isolated);
        }
        v.dev->info.simulated = 1;
        stitch_report_free(v.report);
        tear_down();
    }
}

/* A worker that a stranger's program was in is for other strangers: the task's own programs never meet its leftovers.
 */
TEST(trusted_programs_get_clean_workers)
{
    stitch__worker_options stranger = {.executable = STITCH_TEST_WORKER}, own = stranger;
    stitch__scope scope = {0};
    stitch__worker *w = NULL, *clean = NULL;
    stitch__candidate c = {0};
    int used_pid, clean_pid;

    own.role = STITCH__WORKER_BASELINE;
    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &stranger, &w, &err));
    used_pid = stitch__worker_pid(w);
    CHECK_OK(stitch__worker_open(w, &scope, task, program, &c, &err));
    c.ops->close(c.self);
    stitch__worker_release(w, true);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &own, &clean, &err));
        CHECK(stitch__worker_pid(clean) != used_pid);
        CHECK(i == 0 || stitch__worker_pid(clean) == clean_pid);
        clean_pid = stitch__worker_pid(clean);
        CHECK_OK(stitch__worker_open(clean, &scope, task, program, &c, &err));
        c.ops->close(c.self);
        stitch__worker_release(clean, true);
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &stranger, &w, &err));
        CHECK_INT(stitch__worker_pid(w), used_pid);
        stitch__worker_release(w, true);
    }
    tear_down();
    CHECK(!has_children());
}

/* The same one has the next program although nobody has waited for it to forget the last one. */
TEST(one_program_after_another)
{
    stitch__worker_options options = {.executable = STITCH_TEST_WORKER};
    stitch__scope scope = {0};
    stitch__worker *w = NULL;
    stitch__candidate c = {0};

    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__worker_open(w, &scope, task, program, &c, &err));
        CHECK_OK(c.ops->fill_inputs(c.self, &scope, 1, NULL, &err));
        if (i != 1) /* opening closes as well */
            c.ops->close(c.self);
    }
    CHECK_OK(stitch__worker_ping(w, &scope, &err));
    int pid = stitch__worker_pid(w);
    stitch__worker_release(w, true);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    CHECK_INT(stitch__worker_pid(w), pid);
    stitch__worker_release(w, true);
    tear_down();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "CLOSE:memory", 1), 0); /* not one that could not forget it */
    set_up();
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    pid = stitch__worker_pid(w);
    CHECK_OK(stitch__worker_open(w, &scope, task, program, &c, &err));
    c.ops->close(c.self);
    stitch__worker_release(w, true);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    CHECK(stitch__worker_pid(w) != pid);
    stitch__worker_release(w, true);
    tear_down();
    CHECK(!has_children());
}

/* Device memory that it shares with its verifier stays for the next program where it is little and its own. */
TEST(memory_that_is_kept_for_the_next_program)
{
    const stitch__buffer small = {.memory = {.ptr = 256, .fd = -1, .mapped_bytes = 2 << 20}},
                         large = {.memory = {.ptr = 256, .fd = -1, .mapped_bytes = UINT64_C(1) << 40}},
                         borrowed = {.memory = {.ptr = 256, .fd = -1}, .lender = 1};
    stitch__worker_options options = {.executable = STITCH_TEST_WORKER};
    stitch__scope scope = {0};
    stitch__worker *w = NULL;
    stitch__candidate c = {0};

    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__grow(ctx, &w->buffers, &w->buffer_cap, 1, sizeof(*w->buffers)));
        w->buffers[0] = i == 0 ? small : i == 1 ? borrowed : large;
        w->buffer_count = 1;
        CHECK_OK(stitch__worker_open(w, &scope, task, program, &c, &err));
        CHECK_INT(w->buffer_count, i != 1); /* of whom it was borrowed may have gone by now */
        c.ops->close(c.self);
        CHECK_INT(w->buffer_count, i == 0);
    }
    stitch__worker_release(w, true);
    tear_down();
    CHECK(!has_children());
}

/* A profile is taken in a process that has had none. */
TEST(profilers_serve_once)
{
    stitch__worker_options options = {.executable = STITCH_TEST_WORKER, .role = STITCH__WORKER_PROFILER};
    stitch__scope scope = {0};
    stitch__worker *w = NULL;
    stitch__candidate c = {0};
    int pid = 0;

    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
        CHECK(stitch__worker_pid(w) != pid);
        pid = stitch__worker_pid(w);
        stitch__worker_release(w, true);
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
        CHECK_INT(stitch__worker_pid(w), pid); /* it has served nobody yet */
        CHECK_OK(stitch__worker_open(w, &scope, task, program, &c, &err));
        c.ops->close(c.self);
        stitch__worker_release(w, true);
    }
    tear_down();
    CHECK(!has_children());
}

/* Several threads that verify at once leave more behind than there is room for: none of a role pushes the last one of
 * another out. */
TEST(one_of_each_role_idles)
{
    static const int order[] = {STITCH__WORKER_CANDIDATE, STITCH__WORKER_CANDIDATE, STITCH__WORKER_BASELINE,
                                STITCH__WORKER_PROFILER, STITCH__WORKER_BASELINE};
    stitch__worker *w[STITCH__COUNT(order)] = {NULL};
    int pids[STITCH__COUNT(order)];
    stitch__scope scope = {0};

    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    for (size_t i = 0; i < STITCH__COUNT(order); i++) {
        stitch__worker_options o = {.executable = STITCH_TEST_WORKER, .role = order[i]};
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &o, &w[i], &err));
        pids[i] = stitch__worker_pid(w[i]);
    }
    for (size_t i = 0; i < STITCH__COUNT(order); i++)
        stitch__worker_release(w[i], true);
    for (int role = STITCH__WORKER_CANDIDATE; role <= STITCH__WORKER_PROFILER; role++) {
        stitch__worker_options o = {.executable = STITCH_TEST_WORKER, .role = role};
        bool kept = false;
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &o, &w[role], &err));
        for (size_t i = 0; i < STITCH__COUNT(order); i++)
            kept |= order[i] == role && pids[i] == stitch__worker_pid(w[role]);
        CHECK(kept);
    }
    for (int role = STITCH__WORKER_CANDIDATE; role <= STITCH__WORKER_PROFILER; role++)
        stitch__worker_release(w[role], true);
    tear_down();
    CHECK(!has_children());
}

static void on_alarm(int number)
{
    (void)number;
}

/* A host that measures itself, or has a timer: its signals say nothing about a worker. */
TEST(signals_of_the_host)
{
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    struct sigaction mine = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, before;
    stitch__worker_options options = {.executable = STITCH_TEST_WORKER};
    stitch__scope scope = {0};
    stitch__worker *w = NULL;
    int pid;

    set_up();
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "NONE:nothing", 1), 0);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
    pid = stitch__worker_pid(w);
    CHECK_INT(sigaction(SIGALRM, &mine, &before), 0);
    CHECK_INT(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (int i = 0; i < 300; i++) {
        stitch__worker_release(w, true);
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &options, &w, &err));
        CHECK_INT(stitch__worker_pid(w), pid);
    }
    for (int i = 0; i < 10000; i++) {
        CHECK(stitch__worker_quiet(w));
        CHECK_OK(stitch__worker_alive(w, &scope, STITCH__OP_WORKER_FETCH, &err));
    }
    CHECK_INT(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK_INT(sigaction(SIGALRM, &before, NULL), 0);
    CHECK_INT(kill(pid, SIGKILL), 0); /* but its own end does */
    while (stitch__worker_quiet(w))
        stitch__sleep_ms(1);
    CHECK_ERR(stitch__worker_alive(w, &scope, STITCH__OP_WORKER_FETCH, &err), STITCH_E_IO,
              "the worker died by signal 9 (killed) while copying outputs");
    CHECK(stitch__worker_lost(w));
    CHECK_ERR(stitch__worker_alive(w, &scope, STITCH__OP_WORKER_FETCH, &err), STITCH_E_STATE, "no worker any more");
    stitch__worker_release(w, true);
    tear_down();
    CHECK(!has_children());
}

static uint64_t seed_seen;

static int see_seed(void *self, const stitch__scope *scope, uint64_t seed, const stitch__variant *variant,
                    stitch_error **e)
{
    seed_seen = seed;
    return STITCH_E_CANCELLED; /* enough */
}

/* Of the report's seed a worker only learns what is derived from it. */
TEST(the_seed_stays_here)
{
    static const stitch__candidate_ops ops = {.fill_inputs = see_seed};
    stitch__verify v = {.candidate = {&ops, NULL}, .options.seed = 42};

    CHECK_INT(stitch__stage_prepare(&v, &err), STITCH_E_CANCELLED);
    CHECK(seed_seen != 0 && seed_seen != 42);
}

/* Every allocation fails in turn. */
TEST(no_memory)
{
    int before = count_descriptors();
    int64_t count = 0, harmless = 0;
    outcome o;

    for (refuse_after = 0;; refuse_after++) {
        set_up();
        o = run_all("NONE:nothing", SOON_MS, NULL);
        tear_down();
        CHECK_INT(memory.live, 0);
        if (!refused)
            break;
        count++;
        harmless += !o.rc && !o.code; /* a library was not found a second time */
        if ((o.rc || o.code) && o.rc != STITCH_E_NOMEM && o.code != STITCH_E_NOMEM)
            FAIL("allocation %" PRId64 ", at %s: status %d, code %d, \"%s\"", refuse_after, o.step, o.rc, o.code,
                 o.message);
    }
    refuse_after = -1;
    printf("# %" PRId64 " allocations, %" PRId64 " of them not needed\n", count, harmless);
    CHECK_INT(o.rc, STITCH_OK);
    CHECK(count > 10 && harmless < count);
    CHECK(!has_children());
    CHECK_INT(count_descriptors(), before);
}

TEST_MAIN(RUN(an_honest_one), RUN(it_dies_by_a_signal), RUN(it_exits), RUN(it_sends_garbage), RUN(it_floods),
          RUN(it_closes_its_connection), RUN(messages_that_are_none), RUN(numbers_that_cannot_be),
          RUN(it_loses_its_context), RUN(texts_are_cleaned), RUN(more_replies_than_requests), RUN(deadlines),
          RUN(cancellation), RUN(a_host_that_ignores_its_children), RUN(there_is_none), RUN(it_starts_ahead),
          RUN(it_starts_the_second_time), RUN(no_way_from_a_worker_into_this_process), RUN(a_program_with_operators),
          RUN(trusted_programs_get_clean_workers), RUN(one_program_after_another),
          RUN(memory_that_is_kept_for_the_next_program), RUN(profilers_serve_once), RUN(one_of_each_role_idles),
          RUN(signals_of_the_host), RUN(the_seed_stays_here), RUN(no_memory))
