/* SPDX-License-Identifier: MIT
 *
 * Sources of strangers are compiled in a process of their own: what comes out is what this process would have made of
 * them, and whatever they do to NVRTC, or the process to us, ends with a verdict in time.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "descriptors.h"
#include "meter.h"
#include "cuda/internal.h"
#include "verify/verify.h"
#include "worker/client.h"

enum { SOON_MS = 60000 };

static stitch_context *ctx;
static stitch_error *err;
static meter memory = {.refuse_at = -1};
static char cache[] = "/tmp/stitch-compiler-test-XXXXXX";

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static void set_up_with(const char *device, bool cached)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};

    if (cached && strstr(cache, "XXXXXX") && !mkdtemp(cache))
        FAIL("no temporary folder");
    options.device = device;
    options.cache_dir = cached ? cache : "";
    options.allocator = &allocator;
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
}

/* `mode` of the test worker; NULL: the real one, with probes. */
static void set_up(const char *mode)
{
    if (mode)
        CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", mode, 1), 0);
    else
        CHECK_INT(unsetenv("CUDA_STITCH_TEST_WORKER"), 0);
    CHECK_INT(setenv("STITCH_WORKER", STITCH_TEST_WORKER, 1), 0);
    set_up_with("none", false);
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void tear_down(void)
{
    stitch_context_free(ctx);
    ctx = NULL;
    CHECK(!has_children());
    CHECK_INT(memory.live, 0);
}

/* Without NVRTC there is nothing to compile with. */
static void need_compiler(void)
{
    const stitch__nvrtc *nvrtc;
    char version[32];

    set_up_with("none", false);
    int rc = stitch__nvrtc_get(ctx, &nvrtc, &err);
    if (rc == STITCH_E_NO_LIBRARY) {
        stitch_context_free(ctx);
        SKIP(stitch_error_message(err));
    }
    CHECK_OK(rc);
    snprintf(version, sizeof(version), "%d.%d", nvrtc->major, nvrtc->minor);
    CHECK_INT(setenv("CUDA_STITCH_TEST_NVRTC", version, 1), 0); /* what a lying worker says that it has */
    tear_down();
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

typedef struct apart {
    stitch_context *ctx;
    bool missing;
    int64_t asked;
} apart;

static int run_apart(void *self, const stitch__scope *scope, const stitch__rtc_input *in, stitch__rtc *out,
                     stitch_error **e)
{
    apart *a = self;
    a->asked++;
    return stitch__worker_compile(a->ctx, scope, NULL, in, out, &a->missing, e);
}

static const char *const k_only[] = {"k"};

static int compile(const char *source, bool elsewhere, bool ptx, int64_t timeout_ms, const stitch_cancel *cancel,
                   stitch_image **image)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    apart a = {.ctx = ctx};
    const stitch__compiler by = {run_apart, &a};

    o.arch = "sm_90";
    o.ptx = ptx;
    o.names = k_only;
    o.name_count = 1;
    o.timeout_ms = timeout_ms;
    o.cancel = cancel;
    return stitch__compile_by(ctx, source, &o, elsewhere ? &by : NULL, image, &err);
}

static char *with_macros(int levels)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, "#define U0 -\n");
    for (int i = 1; i <= levels; i++)
        stitch__buf_printf(&b, "#define U%d U%d U%d\n", i, i - 1, i - 1);
    stitch__buf_printf(&b, "__global__ void k(float *y) { y[0] = U%d y[1]; }\n", levels);
    return stitch__buf_take(&b, NULL);
}

#define TEMPLATES(depth)                                                                                               \
    "template <int N> struct T { T<N - 1> a; T<N - 1> b; __device__ float g() { return a.g() + b.g(); } };\n"          \
    "template <> struct T<0> { float v; __device__ float g() { return v; } };\n"                                       \
    "__global__ void k(float *y) { T<" #depth "> t; y[0] = t.g(); }\n"

#define GOOD "__global__ void k(float *y) { y[threadIdx.x] *= 2; }\n"

static void check_same(const char *source, bool ptx)
{
    stitch_image *here = NULL, *there = NULL;
    char *message = NULL;
    int rc = compile(source, false, ptx, 0, NULL, &here);

    message = stitch__strdup(NULL, stitch_error_message(err));
    stitch_error_free(err);
    err = NULL;
    CHECK_INT(compile(source, true, ptx, 0, NULL, &there), rc);
    CHECK_STR(stitch_error_message(err), message);
    stitch_error_free(err);
    err = NULL;
    CHECK(here && there);
    CHECK_STR(stitch_image_log(there), stitch_image_log(here));
    CHECK_INT(there->size, here->size);
    CHECK(!here->size || memcmp(there->data, here->data, here->size) == 0);
    json_t *a = stitch__image_meta(here), *b = stitch__image_meta(there);
    CHECK(a && b && json_equal(a, b));
    json_decref(a);
    json_decref(b);
    stitch_free(message);
    stitch_image_free(here);
    stitch_image_free(there);
}

TEST(the_same_as_here)
{
    static const char *const sources[] = {
        GOOD,
        "#include <cuda_fp16.h>\ntemplate <class T> __global__ void k(T *y);\n"
        "template <> __global__ void k<__half>(__half *y) { *y = __float2half(1); }\n", /* k alone names no kernel */
        "__global__ void k(float *y)\n{\n    int unused = 1;\n    y[0] = undeclared;\n}\n",
        "__global__ void k(float *y) { float a[4000]; for (int i = 0; i < 4000; i++) a[i] = y[i]; y[0] = a[int(y[1])]; "
        "}\n",
        "__global__ void k(float *y) { __shared__ float s[20000]; s[threadIdx.x] = y[0]; __syncthreads(); y[0] = s[1]; "
        "}\n",
        "#include \"/etc/hostname\"\n" GOOD,
        "",
    };
    need_compiler();
    set_up(NULL);
    for (size_t i = 0; i < STITCH__COUNT(sources); i++)
        for (int ptx = 0; ptx < 2; ptx++)
            check_same(sources[i], ptx);
    tear_down();
}

/* A reply has room for 768 KiB. */
TEST(large_images)
{
    stitch__buf b;
    int before = count_descriptors();

    need_compiler();
    set_up(NULL);
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, "__device__ const char text[] = \"");
    for (int i = 0; i < 1500000; i++)
        stitch__buf_putc(&b, (char)('a' + i % 23));
    stitch__buf_puts(&b, "\";\n__global__ void k(char *y) { y[threadIdx.x] = text[threadIdx.x + (int)y[0]]; }\n");
    CHECK(!b.failed);
    check_same(b.data, false);
    check_same(b.data, true);
    stitch__buf_free(&b);
    tear_down();
    CHECK_INT(count_descriptors(), before);
}

/* The same process compiles one source after the other, until one ends it. */
TEST(it_idles_and_is_replaced)
{
    const stitch__worker_options o = {.role = STITCH__WORKER_COMPILER};
    stitch__scope scope = stitch__scope_make(NULL, NULL, SOON_MS);
    stitch_image *image = NULL;
    stitch__worker *w;
    char *bomb = with_macros(21);
    int pids[3];

    need_compiler();
    set_up(NULL);
    stitch__worker_ahead(ctx, STITCH__WORKER_COMPILER);
    for (int i = 0; i < 3; i++) {
        if (i == 2) {
            CHECK_ERR(compile(bomb, true, false, SOON_MS, NULL, &image), STITCH_E_COMPILE,
                      "did not come through this source: the worker died by signal ");
            CHECK_INT(stitch_image_diagnostic_count(image), 1);
            stitch_image_free(image);
        }
        CHECK_OK(compile(GOOD, true, false, SOON_MS, NULL, &image));
        stitch_image_free(image);
        CHECK_OK(stitch__worker_acquire(ctx, &scope, &o, &w, &err));
        pids[i] = stitch__worker_pid(w);
        stitch__worker_release(w, true);
    }
    CHECK_INT(pids[1], pids[0]);
    CHECK(pids[2] != pids[0]);
    stitch_free(bomb);
    tear_down();
}

TEST(deadlines)
{
    stitch_image *image = NULL;
    int64_t start;

    need_compiler();
    set_up(NULL);
    CHECK_OK(compile(GOOD, true, false, 0, NULL, &image)); /* it has started */
    stitch_image_free(image);
    start = stitch__now_ns();
    CHECK_ERR(compile(TEMPLATES(30), true, false, 500, NULL, &image), STITCH_E_TIMEOUT,
              "the source was not compiled in time: the compiler's process was killed after ");
    CHECK((stitch__now_ns() - start) / 1000000 < 10000);
    CHECK(image == NULL);
    tear_down();
}

static stitch_cancel *cancel;
static int victim;

static void trigger(int number)
{
    stitch_cancel_trigger(cancel);
}

static void finish(int number)
{
    (void)kill(victim, SIGKILL);
}

TEST(cancellation)
{
    stitch_image *image = NULL;

    need_compiler();
    set_up("COMPILE:stall");
    CHECK_INT(stitch_cancel_new(&cancel), 0);
    (void)signal(SIGALRM, trigger);
    alarm(1);
    CHECK_ERR(compile(GOOD, true, true, SOON_MS, cancel, &image), STITCH_E_CANCELLED, "");
    (void)signal(SIGALRM, SIG_DFL);
    stitch_cancel_free(cancel);
    tear_down();
}

TEST(it_is_killed_by_somebody)
{
    const stitch__worker_options o = {.role = STITCH__WORKER_COMPILER};
    stitch__scope scope = stitch__scope_make(NULL, NULL, SOON_MS);
    stitch_image *image = NULL;
    stitch__worker *w;

    need_compiler();
    set_up("COMPILE:stall");
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &o, &w, &err));
    victim = stitch__worker_pid(w);
    stitch__worker_release(w, true);
    (void)signal(SIGALRM, finish);
    alarm(1);
    CHECK_ERR(compile(GOOD, true, true, SOON_MS, NULL, &image), STITCH_E_COMPILE,
              "by signal 9 (killed) while compiling");
    (void)signal(SIGALRM, SIG_DFL);
    stitch_image_free(image);
    tear_down();
    set_up("NONE:nothing"); /* while it idles: another one, and nobody is to blame */
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &o, &w, &err));
    victim = stitch__worker_pid(w);
    stitch__worker_release(w, true);
    CHECK_INT(kill(victim, SIGKILL), 0);
    siginfo_t info;
    CHECK_INT(waitid(P_PID, (id_t)victim, &info, WEXITED | WNOWAIT), 0);
    CHECK_OK(compile(GOOD, true, true, SOON_MS, NULL, &image));
    stitch_image_free(image);
    tear_down();
}

/* ---- processes that lie ------------------------------------------------------------------------------------------ */

TEST(lies)
{
    static const struct {
        const char *mode;
        int rc;
        const char *message;
    } rows[] = {
        {"NONE:nothing", STITCH_OK, ""},
        {"CODE:extra", STITCH_OK, ""}, /* it comes in memory of ours; what comes after is never read */
        {"COMPILE:segv", STITCH_E_COMPILE, "died by signal 11"},
        {"COMPILE:exit", STITCH_E_COMPILE, "exit code 3 while compiling"},
        {"COMPILE:words", STITCH_E_COMPILE, "signal 6"},
        {"COMPILE:garbage", STITCH_E_COMPILE, "broke the protocol while compiling"},
        {"COMPILE:flood", STITCH_E_COMPILE, "broke the protocol while compiling"},
        {"COMPILE:close", STITCH_E_COMPILE, "closed its connection while compiling"},
        {"COMPILE:fds", STITCH_E_COMPILE, "broke the protocol"},
        {"COMPILE:unsigned", STITCH_E_COMPILE, "not signed"},
        {"COMPILE:signed-noise", STITCH_E_COMPILE, "malformed"},
        {"COMPILE:replay", STITCH_E_COMPILE, "came where"},
        {"COMPILE:other", STITCH_E_COMPILE, "answered another request"},
        {"COMPILE:busy", STITCH_E_COMPILE, "longer than it was waited for"},
        {"COMPILE:timeout", STITCH_E_COMPILE, "a deadline that it does not have"},
        {"COMPILE:blame", STITCH_E_COMPILE, ""},
        {"COMPILE:memory", STITCH_E_COMPILE, ""},
        {"COMPILE:escape", STITCH_E_COMPILE, "bad?[2J news?"},
        {"COMPILE:call", STITCH_E_COMPILE, "malformed"},
        {"COMPILE:large-log", STITCH_E_COMPILE, "malformed"},
        {"COMPILE:large-code", STITCH_E_COMPILE, "malformed"},
        {"COMPILE:overflow", STITCH_E_COMPILE, "malformed"},
        {"COMPILE:internal", STITCH_E_COMPILE, "internal error"},
        {"COMPILE:no-symbol", STITCH_E_COMPILE, "names and kernels of the answer do not fit"},
        {"COMPILE:no-end", STITCH_E_COMPILE, "names and kernels of the answer do not fit"},
        {"COMPILE:not-ptx", STITCH_E_FORMAT, "the PTX of an image cannot be read"},
        {"COMPILE:empty", STITCH_E_LIBRARY, "gave no code"},
        {"CODE:segv", STITCH_E_COMPILE, "signal 11 (segmentation fault) while handing over"},
        {"CODE:exit", STITCH_E_COMPILE, "exit code 3 while handing over"},
        {"CODE:garbage", STITCH_E_COMPILE, "broke the protocol while handing over"},
        {"CODE:memory", STITCH_E_COMPILE, ""},
        {"CODE:stall", STITCH_E_TIMEOUT, "not compiled in time"},
        {"COMPILE:half", STITCH_E_TIMEOUT, "not compiled in time"},
    };
    int before = count_descriptors();

    need_compiler();
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_image *image = NULL;
        bool waits = rows[i].rc == STITCH_E_TIMEOUT;
        printf("# %s\n", rows[i].mode);
        set_up(rows[i].mode);
        if (rows[i].rc)
            CHECK_ERR(compile(GOOD, true, true, waits ? 1500 : SOON_MS, NULL, &image), rows[i].rc, rows[i].message);
        else
            CHECK_OK(compile(GOOD, true, true, SOON_MS, NULL, &image));
        if (strcmp(rows[i].mode, "COMPILE:words") == 0)
            CHECK_HAS(stitch_image_log(image), "last words?[31m");
        stitch_image_free(image);
        tear_down();
    }
    CHECK_INT(count_descriptors(), before);
}

/* It has another NVRTC than this process: its code would be kept under the wrong key. */
TEST(another_compiler)
{
    stitch_image *image = NULL;

    need_compiler();
    CHECK_INT(setenv("CUDA_STITCH_TEST_NVRTC", "1.2", 1), 0);
    set_up("NONE:nothing");
    CHECK_ERR(compile(GOOD, true, true, SOON_MS, NULL, &image), STITCH_E_UNSUPPORTED, "has found NVRTC 1.2");
    tear_down();
}

/* Every allocation of this process fails in turn: that is its own trouble, and no verdict on the source. */
TEST(host_memory_runs_out)
{
    int64_t n;
    int rc = STITCH_E_NOMEM;

    need_compiler();
    for (n = 0; rc; n++) {
        stitch_image *image = NULL;
        set_up(n % 2 ? "CODE:extra" : "NONE:nothing"); /* both ways that code can come */
        memory.calls = 0;
        memory.refuse_at = n / 2;
        rc = compile(GOOD, true, true, SOON_MS, NULL, &image);
        bool refused = memory.calls > n / 2;
        memory.refuse_at = -1;
        if (rc && rc != STITCH_E_NOMEM && rc != STITCH_E_NO_LIBRARY)
            FAIL("allocation %" PRId64 ": %s: %s", n / 2, stitch_status_name(rc), stitch_error_message(err));
        rc = refused || n % 2 == 0 ? STITCH_E_NOMEM : rc;
        stitch_image_free(image);
        stitch_error_free(err);
        err = NULL;
        tear_down();
    }
    CHECK(n / 2 > 20);
    printf("# %" PRId64 " allocations\n", n / 2);
}

/* ---- what it may ------------------------------------------------------------------------------------------------- */

static void expect_answer(stitch__worker *w, const char *question, const char *wanted)
{
    stitch__scope scope = stitch__scope_make(NULL, NULL, SOON_MS);
    char *answer = NULL;

    CHECK_OK(stitch__worker_probe(w, &scope, question, &answer, &err));
    if (strcmp(answer, wanted) != 0)
        FAIL("%s: \"%s\" instead of \"%s\"", question, answer, wanted);
    stitch_free(answer);
}

TEST(what_it_may_not_do)
{
    static const char *const files[] = {"read /etc/passwd",
                                        "read /proc/1/status",
                                        "read /sys/kernel/mm",
                                        "read /dev/nvidiactl",
                                        "write /tmp/stitch-compiler-was-here",
                                        "write /proc/self/oom_score_adj"};
    static const char *const calls[] = {"socket", "fork", "exec", "ipc memory"};
    const stitch__worker_options o = {.role = STITCH__WORKER_COMPILER};
    stitch__scope scope = stitch__scope_make(NULL, NULL, SOON_MS);
    stitch__worker *w;
    struct rlimit limit;

    need_compiler();
    set_up(NULL);
    CHECK_OK(stitch__worker_acquire(ctx, &scope, &o, &w, &err));
    printf("# %s\n", stitch__worker_sandbox(w));
    for (size_t i = 0; strstr(stitch__worker_sandbox(w), "landlock ") && i < STITCH__COUNT(files); i++)
        if (strcmp(files[i], "read /dev/nvidiactl") != 0 || access("/dev/nvidiactl", F_OK) == 0)
            expect_answer(w, files[i], "refused");
    for (size_t i = 0; strstr(stitch__worker_sandbox(w), ", seccomp") && i < STITCH__COUNT(calls); i++)
        expect_answer(w, calls[i], "refused");
    if (prlimit(stitch__worker_pid(w), RLIMIT_AS, NULL, &limit) == 0)
        CHECK(limit.rlim_max != RLIM_INFINITY);
    stitch__worker_release(w, true);
    tear_down();
}

/* ---- in this process --------------------------------------------------------------------------------------------- */

static int count_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *d; folder && (d = readdir(folder));)
        count += *d->d_name != '.';
    if (folder)
        closedir(folder);
    return count;
}

/* NVRTC cannot be interrupted. Who waits for it can: what it still uses stays until it ends, and goes then. */
TEST(a_compilation_that_is_left_behind)
{
    stitch_image *image = NULL;
    int threads, waited = 0;

    need_compiler();
    set_up_with("none", false);
    CHECK_OK(compile(GOOD, false, false, 0, NULL, &image)); /* NVRTC's own threads, if it has some */
    stitch_image_free(image);
    threads = count_threads();
    int64_t start = stitch__now_ns();
    CHECK_ERR(compile(TEMPLATES(12), false, false, 20, NULL, &image), STITCH_E_TIMEOUT, "compiling");
    CHECK((stitch__now_ns() - start) / 1000000 < 5000);
    CHECK(image == NULL);
    CHECK(count_threads() > threads);
    tear_down();
    while (count_threads() > threads && waited++ < 10000)
        stitch__sleep_ms(10);
    CHECK_INT(count_threads(), threads);
    printf("# it ended %d ms later\n", 10 * waited);
}

/* ---- in a verification ------------------------------------------------------------------------------------------- */

static const char plan[] = "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[32],\"args\":[\"y\"]}]}";

static stitch_task *make_task(const char *reference_source)
{
    static const char *const shape[] = {"N"};
    stitch_program *reference = NULL;
    stitch_task *t = NULL;

    CHECK_OK(stitch_task_new(ctx, "compiled", &t, &err));
    CHECK_OK(stitch_task_set_dim(t, "N", 32, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_program_parse(ctx, reference_source, plan, NULL, &reference, &err));
    CHECK_OK(stitch_task_set_reference_program(t, reference, STITCH_DTYPE_F32, &err));
    return t;
}

typedef struct verdict {
    int rc, failed_stage, failed_status;
    char message[2000], text[4000], why[600], *json;
    double ms;
} verdict;

static verdict verify_against(const char *reference, int last_stage, const char *source, int where, int64_t timeout_ms)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_task *t = make_task(reference);
    verdict v = {0};
    const char *message = "";
    int64_t start = stitch__now_ns();
    stitch_error *e = NULL;

    o.where = where;
    o.timeout_ms = timeout_ms;
    o.last_stage = last_stage;
    CHECK_OK(stitch_program_parse(ctx, source, plan, NULL, &p, &e));
    v.rc = stitch_verify_program(ctx, t, p, &o, &r, &e);
    v.ms = (double)(stitch__now_ns() - start) / 1e6;
    snprintf(v.why, sizeof(v.why), "%s", stitch_error_message(e));
    if (v.rc)
        printf("# %s: %s\n", stitch_status_name(v.rc), v.why);
    if (r) {
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        v.failed_stage = s.failed_stage;
        v.failed_status = s.status;
        CHECK_INT(stitch_report_stage(r, STITCH_STAGE_COMPILE, NULL, NULL, &message), 0);
        snprintf(v.message, sizeof(v.message), "%s", message);
        snprintf(v.text, sizeof(v.text), "%s", stitch_report_text(r));
        v.json = stitch__strdup(NULL, stitch_report_json(r));
    }
    stitch_error_free(e);
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(t);
    return v;
}

static verdict verify(const char *source, int where, int64_t timeout_ms)
{
    return verify_against(GOOD, STITCH_STAGE_COMPILE, source, where, timeout_ms);
}

static void verdict_free(verdict *v)
{
    stitch__zero_free(v->json);
}

TEST(verdicts)
{
    char *bomb = with_macros(21);
    verdict v;

    need_compiler();
    CHECK_INT(setenv("STITCH_WORKER", STITCH_TEST_WORKER, 1), 0);
    CHECK_INT(unsetenv("CUDA_STITCH_TEST_WORKER"), 0);
    for (int device = 0; device < 2; device++) { /* none, and a simulated one */
        set_up_with(device ? "sim:sm_90" : "none", false);
        for (int where = STITCH_VERIFY_AUTO; where <= STITCH_VERIFY_WORKER; where += STITCH_VERIFY_WORKER) {
            v = verify(GOOD, where, SOON_MS);
            CHECK_INT(v.rc, 0);
            CHECK_INT(v.failed_stage, 0);
            CHECK(!strstr(v.json, "compiled in the host's process"));
            verdict_free(&v);
            v = verify(bomb, where, SOON_MS);
            CHECK_INT(v.rc, 0);
            CHECK_INT(v.failed_stage, STITCH_STAGE_COMPILE);
            CHECK_INT(v.failed_status, STITCH_E_COMPILE);
            CHECK_HAS(v.message, "did not come through this source");
            CHECK_HAS(v.text, "macros or templates that multiply");
            CHECK(v.ms < SOON_MS / 2);
            verdict_free(&v);
            v = verify(TEMPLATES(30), where, 4000);
            CHECK_INT(v.rc, 0);
            CHECK_INT(v.failed_stage, STITCH_STAGE_COMPILE);
            CHECK_INT(v.failed_status, STITCH_E_TIMEOUT);
            CHECK_HAS(v.message, "not compiled in time");
            printf("# %.0f ms\n", v.ms);
            CHECK(v.ms < 4000);
            verdict_free(&v);
        }
        tear_down();
    }
    stitch_free(bomb);
}

/* Without such a process: AUTO says that it compiles here, WORKER fails. What is in the cache needs none. */
TEST(there_is_none)
{
    verdict v;

    need_compiler();
    CHECK_INT(setenv("STITCH_WORKER", "/nonexistent/stitch-worker", 1), 0);
    set_up_with("sim:sm_90", true);
    v = verify(GOOD, STITCH_VERIFY_WORKER, SOON_MS);
    CHECK_INT(v.rc, STITCH_E_NOT_FOUND);
    CHECK_HAS(v.why, "no executable file");
    verdict_free(&v);
    v = verify(GOOD, STITCH_VERIFY_AUTO, SOON_MS);
    CHECK_INT(v.rc, 0);
    CHECK_INT(v.failed_stage, 0);
    CHECK_HAS(v.json, "the program was compiled in the host's process: there is no other");
    verdict_free(&v);
    v = verify(GOOD, STITCH_VERIFY_WORKER, SOON_MS);
    CHECK_INT(v.rc, 0);
    CHECK_INT(v.failed_stage, 0);
    verdict_free(&v);
    v = verify(GOOD, STITCH_VERIFY_HERE, SOON_MS);
    CHECK(v.rc == 0 && v.failed_stage == 0 && !strstr(v.json, "compiled in the host's process"));
    verdict_free(&v);
    tear_down();
}

/* Once a process has had the source, it does not get into this one by ending that. */
TEST(no_way_back)
{
    verdict v;

    need_compiler();
    CHECK_INT(setenv("STITCH_WORKER", STITCH_TEST_WORKER, 1), 0);
    CHECK_INT(setenv("CUDA_STITCH_TEST_WORKER", "COMPILE:close", 1), 0);
    set_up_with("sim:sm_90", false);
    v = verify(GOOD, STITCH_VERIFY_AUTO, SOON_MS);
    CHECK_INT(v.rc, 0);
    CHECK_INT(v.failed_stage, STITCH_STAGE_COMPILE);
    CHECK(!strstr(v.json, "compiled in the host's process"));
    verdict_free(&v);
    tear_down();
    CHECK_INT(unsetenv("CUDA_STITCH_TEST_WORKER"), 0);
}

/* The reference is compiled in this process: nobody waits for it beyond the deadline. */
TEST(a_reference_that_takes_long)
{
    static const char two[] = "__global__ void k(float *y) { y[threadIdx.x] = 2; }\n";
    int threads, waited = 0;
    verdict v;

    need_compiler();
    set_up_with("sim:sm_90", false);
    v = verify_against(GOOD, STITCH_STAGE_LOAD, two, STITCH_VERIFY_HERE, SOON_MS); /* whatever has threads has them */
    CHECK(v.rc == 0 && !v.failed_stage);
    verdict_free(&v);
    threads = count_threads();
    v = verify_against(TEMPLATES(12) "__global__ void k2(float *y) { T<12> t; y[1] = t.g(); }\n"
                                     "__global__ void k3(float *y) { T<12> t; y[2] = t.g(); }\n",
                       STITCH_STAGE_LOAD, two, STITCH_VERIFY_HERE, 1500);
    CHECK_INT(v.rc, STITCH_E_TIMEOUT);
    printf("# %.0f ms\n", v.ms);
    CHECK(v.ms < 5000);
    CHECK(count_threads() > threads); /* it is still at it */
    verdict_free(&v);
    tear_down();
    while (count_threads() > threads && waited++ < 6000)
        stitch__sleep_ms(10);
    CHECK_INT(count_threads(), threads);
}

static void *verify_some(void *failed)
{
    for (int i = 0; i < 3; i++) {
        char source[200];
        snprintf(source, sizeof(source), "__global__ void k(float *y) { y[threadIdx.x] = %d; }\n", i);
        verdict v = verify(source, STITCH_VERIFY_WORKER, SOON_MS);
        *(bool *)failed |= v.rc || v.failed_stage;
        verdict_free(&v);
    }
    return NULL;
}

TEST(two_threads)
{
    pthread_t threads[2];
    bool failed[2] = {false, false};

    need_compiler();
    CHECK_INT(setenv("STITCH_WORKER", STITCH_TEST_WORKER, 1), 0);
    set_up_with("sim:sm_90", false);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, verify_some, &failed[i]), 0);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(!failed[0] && !failed[1]);
    tear_down();
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", cache);
    CHECK_INT(system(command), 0);
}

TEST_MAIN(RUN(the_same_as_here), RUN(large_images), RUN(it_idles_and_is_replaced), RUN(deadlines), RUN(cancellation),
          RUN(it_is_killed_by_somebody), RUN(lies), RUN(another_compiler), RUN(host_memory_runs_out),
          RUN(what_it_may_not_do), RUN(a_compilation_that_is_left_behind), RUN(verdicts), RUN(there_is_none),
          RUN(no_way_back), RUN(a_reference_that_takes_long), RUN(two_threads))
