/* SPDX-License-Identifier: MIT
 *
 * Verifications at the same time, and after one another, on simulated devices: what one program does is nothing to the
 * verdicts on others, and deadlines and cancellations end its kernels in every stage. Needs NVRTC.
 */
#include <pthread.h>
#include <time.h>

#include "base/base.h"
#include "check.h"
#include "cuda/cuda.h"
#include <stitch/stitch.h>

enum { N = 256, ROUNDS = 6 };

/* y = 2 x; `k` is one integer from 0 to 7, `b` a buffer of one integer. */
#define HEAD "extern \"C\" __global__ void k(const float *x, const int *k, int *b, float *y) {\n int i = threadIdx.x;\n"
#define FLAG "extern \"C\" __global__ void set(int *b) { *b = 1; }\n"
static const char right[] = FLAG HEAD " y[i] = x[i] + x[i] + 0 * (b[0] + k[0]);\n}\n";
static const char past_the_end[] = FLAG HEAD " y[i + 1] = 2 * x[i] + 0 * (b[0] + k[0]);\n}\n";
static const char wrong[] = FLAG HEAD " y[i] = 3 * x[i] + 0 * (b[0] + k[0]);\n}\n";
static const char racing[] =
    FLAG HEAD " __shared__ float s[256]; s[i] = x[i];\n y[i] = x[i] + s[i ^ 64] + 0 * (b[0] + k[0]);\n}\n";
static const char sometimes[] = FLAG HEAD " y[k[0] == 3 ? i + (1 << 28) : i] = 2 * x[i] + 0 * b[0];\n}\n";
static const char waits[] = FLAG HEAD " while (*(volatile int *)b != 1) { }\n y[i] = 2 * x[i] + 0 * k[0];\n}\n";
static const char endless[] = FLAG HEAD " while (*(volatile int *)b != 2) { }\n y[i] = 2 * x[i] + 0 * k[0];\n}\n";
static const char endless_sometimes[] =
    FLAG HEAD " while (k[0] == 3 && *(volatile int *)b != 2) { }\n y[i] = 2 * x[i];\n}\n";
static const char indexes[] = FLAG HEAD " y[b[0] == 1 ? i : i + (1 << 28)] = 2 * x[i] + 0 * k[0];\n}\n";
static const char plan[] =
    "{\"stitch\": 1, \"buffers\": {\"b\": {\"dtype\": \"i32\", \"shape\": [1]}}, \"run\": ["
    "{\"kernel\": \"set\", \"grid\": [1], \"block\": [1], \"args\": [\"b\"]},"
    "{\"kernel\": \"k\", \"grid\": [1], \"block\": [256], \"args\": [\"x\", \"k\", \"b\", \"y\"]}]}";

static stitch_context *new_context(void)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;

    o.device = "sim:sm_90a";
    return stitch_context_new(&ctx, &o, NULL) == STITCH_OK ? ctx : NULL;
}

static stitch_program *parse(stitch_context *ctx, const char *source)
{
    stitch_program *p = NULL;
    return stitch_program_parse(ctx, source, plan, NULL, &p, NULL) == STITCH_OK ? p : NULL;
}

static stitch_task *new_task(stitch_context *ctx)
{
    const char *n = "256", *one = "1";
    const stitch_dist dist = {STITCH_DIST_RANDINT, 0, 0, 8};
    stitch_program *reference = parse(ctx, right);
    stitch_task *t = NULL;
    int rc = stitch_task_new(ctx, "double", &t, NULL);

    if (!rc)
        rc = stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, &n, NULL, NULL);
    if (!rc)
        rc = stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "k", STITCH_DTYPE_I32, 1, &one, &dist, NULL);
    if (!rc)
        rc = stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, &n, NULL, NULL);
    if (!rc)
        rc = stitch_task_set_reference_program(t, reference, STITCH_DTYPE_NONE, NULL);
    if (rc) {
        stitch_task_free(t);
        stitch_program_free(reference);
        return NULL;
    }
    return t;
}

typedef struct verdict {
    int rc, stage, status, correct;
    double ms;
    char message[400];
} verdict;

static verdict judge(stitch_context *ctx, const char *source, uint64_t seed, const stitch_cancel *cancel, int64_t ms)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_task *task = new_task(ctx);
    stitch_program *program = parse(ctx, source);
    stitch_report *report = NULL;
    stitch_error *err = NULL;
    verdict v = {.rc = STITCH_E_INTERNAL};
    int64_t start = stitch__now_ns();

    o.last_stage = STITCH_STAGE_EXPLOIT;
    o.seed = seed;
    o.cancel = cancel;
    o.timeout_ms = ms;
    if (task && program)
        v.rc = stitch_verify_program(ctx, task, program, &o, &report, &err);
    v.ms = (double)(stitch__now_ns() - start) / 1e6;
    if (report && !stitch_report_summary_get(report, &s)) {
        const char *text = "";
        v.stage = s.failed_stage, v.status = s.status, v.correct = s.correct;
        (void)stitch_report_stage(report, s.failed_stage, NULL, NULL, &text);
        snprintf(v.message, sizeof(v.message), "%s", text);
    }
    if (err)
        snprintf(v.message, sizeof(v.message), "%s", stitch_error_message(err));
    stitch_error_free(err);
    stitch_report_free(report);
    stitch_program_free(program);
    stitch_task_free(task);
    return v;
}

static void need_compiler(void)
{
    stitch_context *ctx = new_context();
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *image = NULL;
    int rc = ctx ? stitch_compile(ctx, "__global__ void k() {}", &o, &image, NULL) : STITCH_E_NOMEM;

    stitch_image_free(image);
    stitch_context_free(ctx);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP("there is no NVRTC");
    if (rc == STITCH_E_UNSUPPORTED)
        SKIP("there is no simulator in this build");
    CHECK_INT(rc, STITCH_OK);
}

/* ---- at the same time -------------------------------------------------------------------------------------------- */

static const struct {
    const char *source;
    int stage;
    const char *says;
} programs[] = {
    {right, STITCH_STAGE_NONE, ""},
    {past_the_end, STITCH_STAGE_SIMULATE, "access outside of every buffer"},
    {wrong, STITCH_STAGE_CORRECT, ""},
    {racing, STITCH_STAGE_SIMULATE, "shared variable s"},
};

typedef struct work {
    stitch_context *ctx;
    int first, bad;
    verdict v; /* the first that is not as it should be */
} work;

static void *verify_all(void *arg)
{
    work *w = arg;

    for (size_t i = 0; i < ROUNDS * STITCH__COUNT(programs); i++) {
        size_t n = (i + (size_t)w->first) % STITCH__COUNT(programs);
        verdict v = judge(w->ctx, programs[n].source, 0, NULL, 0);
        bool good = !v.rc && v.stage == programs[n].stage && strstr(v.message, programs[n].says);
        if (!good && !w->bad++)
            w->v = v;
    }
    return NULL;
}

static void at_the_same_time(bool shared)
{
    stitch_context *ctx[2];
    pthread_t threads[2];
    work w[2];

    need_compiler();
    ctx[0] = new_context();
    ctx[1] = shared ? ctx[0] : new_context();
    for (int i = 0; i < 2; i++) {
        w[i] = (work){.ctx = ctx[i], .first = i};
        CHECK_INT(pthread_create(&threads[i], NULL, verify_all, &w[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    stitch_context_free(ctx[0]);
    if (!shared)
        stitch_context_free(ctx[1]);
    for (int i = 0; i < 2; i++)
        if (w[i].bad)
            FAIL("%d verdicts, the first: %s, stage %s, %s", w[i].bad, stitch_status_name(w[i].v.rc),
                 stitch_stage_name(w[i].v.stage), w[i].v.message);
}

TEST(two_contexts_in_two_threads)
{
    at_the_same_time(false);
}

TEST(one_context_in_two_threads)
{
    at_the_same_time(true);
}

static void need_simulator(void)
{
    stitch_context *ctx = new_context();
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    int rc = stitch_device_query(ctx, &info, NULL);

    stitch_context_free(ctx);
    if (rc == STITCH_E_UNSUPPORTED)
        SKIP("there is no simulator in this build");
}

TEST(many_contexts)
{
    stitch_context *ctx[70];
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;

    need_simulator();
    for (int again = 0; again < 2; again++) { /* all of them are given back */
        int open = 0;
        for (size_t i = 0; i < STITCH__COUNT(ctx); i++) {
            ctx[i] = new_context();
            open += stitch_device_query(ctx[i], &info, NULL) == STITCH_OK;
        }
        for (size_t i = 0; i < STITCH__COUNT(ctx); i++)
            stitch_context_free(ctx[i]);
        CHECK_INT(open, STITCH__COUNT(ctx));
    }
}

TEST(too_many_contexts)
{
    stitch_context *ctx[100];
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    stitch_error *err = NULL;
    int rc = STITCH_OK;
    size_t n = 0;

    need_simulator();
    while (n < STITCH__COUNT(ctx) && !rc) {
        ctx[n] = new_context();
        rc = stitch_device_query(ctx[n++], &info, &err);
    }
    for (size_t i = 0; i < n; i++)
        stitch_context_free(ctx[i]);
    CHECK_INT(rc, STITCH_E_NOMEM);
    CHECK_HAS(stitch_error_message(err), "no room for one more simulated device");
    stitch_error_free(err);
}

/* ---- faults and programs that do not end ------------------------------------------------------------------------- */

/* Stage simulate has other contents than the trial in which it faults. */
TEST(a_fault_is_over_with_its_verification)
{
    stitch_context *ctx;
    verdict v = {0};

    need_compiler();
    ctx = new_context();
    for (uint64_t seed = 1; seed < 100 && !(v.stage == STITCH_STAGE_CORRECT && v.status == STITCH_E_FAULT); seed++)
        v = judge(ctx, sometimes, seed, NULL, 0);
    verdict after = judge(ctx, right, 0, NULL, 0);
    stitch_context_free(ctx);
    CHECK_INT(v.status, STITCH_E_FAULT);
    CHECK_HAS(v.message, "CUDA_ERROR_ILLEGAL_ADDRESS");
    CHECK(!strstr(v.message, "process"));
    if (after.rc || after.stage)
        FAIL("%s: %s", stitch_status_name(after.rc), after.message);
}

/* Each step is left out once; what waits for it then waits for ever, or writes where nothing is. */
TEST(steps_that_cannot_be_left_out)
{
    const char *const sources[] = {waits, indexes};
    stitch_context *ctx;

    need_compiler();
    ctx = new_context();
    for (size_t i = 0; i < STITCH__COUNT(sources); i++) {
        verdict v = judge(ctx, sources[i], 0, NULL, 60000);
        if (v.rc || v.stage || !v.correct) {
            stitch_context_free(ctx);
            FAIL("program %zu: %s, stage %s: %s", i, stitch_status_name(v.rc), stitch_stage_name(v.stage), v.message);
        }
    }
    stitch_context_free(ctx);
}

/* To the driver a kernel that the deadline ends has faulted; that is not what became of the program. */
TEST(an_endless_kernel_is_no_fault)
{
    stitch_context *ctx;
    verdict v = {0};

    need_compiler();
    ctx = new_context();
    for (uint64_t seed = 1; seed < 100 && v.stage != STITCH_STAGE_CORRECT; seed++)
        v = judge(ctx, endless_sometimes, seed, NULL, 700);
    stitch_context_free(ctx);
    CHECK_INT(v.rc, STITCH_OK);
    CHECK_INT(v.stage, STITCH_STAGE_CORRECT);
    CHECK_INT(v.status, STITCH_E_TIMEOUT);
    CHECK(!strstr(v.message, "CUDA_ERROR"));
}

typedef struct trigger {
    stitch_context *ctx;
    stitch_cancel *cancel; /* NULL: through the context */
} trigger;

static void *cancel_soon(void *arg)
{
    const struct timespec wait = {0, 300000000};
    trigger *t = arg;

    nanosleep(&wait, NULL);
    if (t->cancel)
        stitch_cancel_trigger(t->cancel);
    else
        stitch_context_cancel(t->ctx);
    return NULL;
}

TEST(an_endless_kernel_is_ended)
{
    need_compiler();
    for (int through_context = 0; through_context < 2; through_context++) {
        trigger t = {new_context(), NULL};
        pthread_t thread;
        stitch_cancel *cancel = NULL;
        CHECK_INT(stitch_cancel_new(&cancel), STITCH_OK);
        t.cancel = through_context ? NULL : cancel;
        CHECK_INT(pthread_create(&thread, NULL, cancel_soon, &t), 0);
        verdict v = judge(t.ctx, endless, 0, cancel, 60000);
        pthread_join(thread, NULL);
        stitch_context_free(t.ctx);
        stitch_cancel_free(cancel);
        CHECK_INT(v.rc, STITCH_E_CANCELLED);
        CHECK(!strstr(v.message, "in time"));
        CHECK(v.ms < 10000);
    }
    stitch_context *ctx = new_context();
    verdict v = judge(ctx, endless, 0, NULL, 1500);
    stitch_context_free(ctx);
    CHECK_INT(v.rc, STITCH_OK);
    CHECK_INT(v.status, STITCH_E_TIMEOUT);
    CHECK(v.ms < 10000);
}

/* A run of the host's own: what the stream ends with. */
static CUresult run_alone(stitch_context *ctx, const char *source)
{
    const char *const names[] = {"x", "k", "y"};
    const stitch_executor_options o = STITCH_EXECUTOR_OPTIONS_INIT;
    stitch_executor *x = NULL;
    stitch__device *dev = NULL;
    stitch_error *err = NULL;
    CUdeviceptr at[STITCH__COUNT(names)] = {0};
    stitch_task *task = new_task(ctx);
    stitch_program *program = parse(ctx, source);

    CHECK_OK(stitch_program_validate(program, stitch_task_interface(task), NULL, &err));
    CHECK_OK(stitch_executor_new(ctx, program, &o, &x, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    for (size_t i = 0; i < STITCH__COUNT(names); i++) {
        CHECK_OK(stitch__mem_alloc(dev, N * sizeof(float), names[i], &at[i], &err));
        CHECK_INT(dev->drv->MemsetD8Async(at[i], 0, N * sizeof(float), NULL), CUDA_SUCCESS);
        CHECK_OK(stitch_executor_bind_name(x, names[i], at[i], names[i][0] == 'k' ? 4 : N * sizeof(float), &err));
    }
    CHECK_OK(stitch_executor_prepare(x, NULL, &err));
    (void)stitch_executor_run(x, NULL, NULL);
    CUresult result = dev->drv->StreamSynchronize(NULL);
    for (size_t i = 0; i < STITCH__COUNT(names); i++)
        stitch__mem_free(dev, at[i]);
    stitch__device_leave(dev);
    stitch_executor_free(x);
    stitch_program_free(program);
    stitch_task_free(task);
    return result;
}

/* Runs of the host's own have no deadline and no token, but their context has. */
TEST(an_endless_run_is_ended)
{
    pthread_t thread;

    need_compiler();
    trigger t = {new_context(), NULL};
    CHECK_INT(pthread_create(&thread, NULL, cancel_soon, &t), 0);
    int64_t start = stitch__now_ns();
    CUresult result = run_alone(t.ctx, endless);
    int64_t ms = (stitch__now_ns() - start) / 1000000;
    pthread_join(thread, NULL);
    stitch_context_free(t.ctx);
    CHECK_INT(result, CUDA_ERROR_LAUNCH_TIMEOUT);
    CHECK(ms < 10000);
}

/* Nor is the deadline of a verification theirs, which was before them on the same device. */
TEST(a_run_after_a_deadline)
{
    stitch_context *ctx;

    need_compiler();
    ctx = new_context();
    int64_t end = stitch__now_ns() + 500000000;
    (void)judge(ctx, right, 0, NULL, 500);
    while (stitch__now_ns() <= end)
        stitch__sleep_ms(10);
    CUresult result = run_alone(ctx, right);
    stitch_context_free(ctx);
    CHECK_INT(result, CUDA_SUCCESS);
}

static void *judge_soon(void *arg)
{
    work *w = arg;

    w->v = judge(w->ctx, right, 0, NULL, 300);
    return NULL;
}

/* One thread at a time verifies on a simulated device. */
TEST(it_waits_for_its_turn)
{
    pthread_t thread;
    stitch__device *dev = NULL;
    stitch_error *err = NULL;
    stitch_context *ctx;

    need_compiler();
    ctx = new_context();
    stitch__scope scope = stitch__scope_make(ctx, NULL, 60000);
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_turn(dev, &scope, &err));
    work w = {.ctx = ctx};
    CHECK_INT(pthread_create(&thread, NULL, judge_soon, &w), 0);
    pthread_join(thread, NULL);
    stitch__device_turn_end(dev);
    verdict after = judge(ctx, right, 0, NULL, 0);
    stitch_context_free(ctx);
    CHECK_INT(w.v.rc, STITCH_E_TIMEOUT);
    CHECK_HAS(w.v.message, "waiting for another verification");
    CHECK(!after.rc && after.correct);
}

TEST_MAIN(RUN(two_contexts_in_two_threads), RUN(one_context_in_two_threads), RUN(many_contexts), RUN(too_many_contexts),
          RUN(a_fault_is_over_with_its_verification), RUN(steps_that_cannot_be_left_out),
          RUN(an_endless_kernel_is_no_fault), RUN(an_endless_kernel_is_ended), RUN(an_endless_run_is_ended),
          RUN(a_run_after_a_deadline), RUN(it_waits_for_its_turn))
