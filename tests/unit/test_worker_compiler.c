/* SPDX-License-Identifier: MIT
 *
 * Sources of strangers are compiled in a process of their own: what comes out is what this process would have made of
 * them, and whatever they do to NVRTC, or the process to us, ends with a verdict in time.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler_check.h"
#include "descriptors.h"
#include "worker/client.h"

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

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

TEST_MAIN(RUN(the_same_as_here), RUN(large_images), RUN(it_idles_and_is_replaced), RUN(deadlines), RUN(cancellation),
          RUN(it_is_killed_by_somebody), RUN(lies), RUN(another_compiler), RUN(host_memory_runs_out),
          RUN(what_it_may_not_do), RUN(a_compilation_that_is_left_behind))
