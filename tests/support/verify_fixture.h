/* SPDX-License-Identifier: MIT
 *
 * For tests of a verification on the fake driver: a task, y = x * w, contexts, and what a verification said and left
 * behind. A test has its own table of kernels: the rows VERIFY_KERNELS, "oracle" and its own. Needs NVRTC.
 */
#ifndef STITCH_TESTS_VERIFY_FIXTURE_H
#define STITCH_TESTS_VERIFY_FIXTURE_H

#include "base/base.h"
#include "check.h"
#include "fake_driver.h"
#include "meter.h"
#include "verify/verify.h"
#include "verify_kernels.h"

/* Allocations between on and off are no leaks. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#define LEAKS_ON_PURPOSE(on) ((on) ? __lsan_disable() : __lsan_enable())
#else
#define LEAKS_ON_PURPOSE(on) ((void)(on))
#endif

enum { N = 64 };

static stitch_context *ctx;
static stitch_error *err;
static int calls; /* of the candidate since the last reset */

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

__attribute__((unused)) static void multiply(float *y, const float *x, const float *w)
{
    for (int i = 0; i < N; i++)
        y[i] = x[i] * w[i];
}

/* In float64. */
static void run_oracle(void **params)
{
    for (int i = 0; i < VALUE(int, 3); i++)
        ((double *)PTR(2))[i] = (double)((float *)PTR(0))[i] * ((float *)PTR(1))[i];
}

__attribute__((unused)) static void run_baseline(void **params)
{
    multiply(PTR(2), PTR(0), PTR(1));
}

/* The fake driver as at its start, with these kernels; nothing was called. */
static void reset_driver(fake_kernel *kernels, const size_t (*sizes)[12], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kernels[i].sizes = sizes[i];
        kernels[i].launches = 0;
    }
    fake.kernels = kernels;
    fake.kernel_count = count;
    fake.fault = CUDA_SUCCESS;
    fake.busy_until_ns = 0;
    fake.blocked_calls = 0;
    fake.allocations_left = -1;
    fake.log_flushes = false;
    fake.flush_bytes = 1 << 20;
    memset(fake.log, 0, sizeof(fake.log));
    calls = 0;
}

/* ---- the task and its programs ----------------------------------------------------------------------------------- */

#define KERNEL(name, out)                                                                                              \
    "extern \"C\" __global__ void " name "(const float *x, const float *w, " out " *y, int n) "                        \
    "{ int i = threadIdx.x; if (i < n) y[i] = x[i] * w[i]; }"
#define PLAN(name)                                                                                                     \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"" name                                                                       \
    "\",\"grid\":[1],\"block\":[64],\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"}]}]}"

static stitch_program *program(stitch_context *c, const char *source, const char *plan)
{
    stitch_program *p = NULL;
    CHECK_OK(stitch_program_parse(c, source, plan, NULL, &p, &err));
    return p;
}

__attribute__((unused)) static stitch_program *candidate(stitch_context *c)
{
    return program(c, KERNEL("candidate", "float"), PLAN("candidate"));
}

/* Without a reference. */
static stitch_task *bare_task(stitch_context *c)
{
    static const char head[] =
        "{\"stitch_task\":1,\"name\":\"product\",\"dims\":{\"N\":64},\"inputs\":[{\"name\":\"x\","
        "\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"weights\":[{\"name\":\"w\",\"dtype\":\"f32\","
        "\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]}";
    stitch_task *t = NULL;
    CHECK_OK(stitch_task_parse(c, head, NULL, &t, &err));
    return t;
}

/* Without a baseline. */
static stitch_task *task_with_reference(stitch_context *c)
{
    stitch_task *t = bare_task(c);
    CHECK_OK(stitch_task_set_reference_program(t, program(c, KERNEL("oracle", "double"), PLAN("oracle")),
                                               STITCH_DTYPE_F64, &err));
    return t;
}

__attribute__((unused)) static stitch_task *task_with_baseline(stitch_context *c)
{
    stitch_task *t = task_with_reference(c);
    CHECK_OK(stitch_task_add_baseline_program(t, "eager", STITCH_PRECISION_F32,
                                              program(c, KERNEL("baseline", "float"), PLAN("baseline")), &err));
    return t;
}

static stitch_verify_options quick(int trials, int iterations)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.trials = trials;
    o.warmup = 1;
    o.iterations = iterations;
    o.seed = 7;
    o.flush_bytes = 1 << 20;
    o.where = STITCH_VERIFY_HERE; /* a worker has no fake driver */
    return o;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static char cache[] = "/tmp/stitch-verify-test-XXXXXX";

static stitch_context *new_context(const stitch_allocator *allocator)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *c = NULL;

    if (strstr(cache, "XXXXXX") && !mkdtemp(cache)) /* the made name may hold an X, hardly six */
        FAIL("no temporary folder");
    options.device = "cuda:0";
    options.get_proc = fake_get_proc;
    options.cache_dir = cache;
    options.allocator = allocator;
    CHECK_OK(stitch_context_new(&c, &options, &err));
    return c;
}

/* The context of the whole program, and a compiler in it, or the test is skipped. */
static void need_compiler(void)
{
    stitch_image *image = NULL;
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    int rc;

    if (!ctx)
        ctx = new_context(NULL);
    options.arch = "sm_90";
    rc = stitch_compile(ctx, "__global__ void k() {}", &options, &image, &err);
    stitch_image_free(image);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
}

/* ---- what a verification said ------------------------------------------------------------------------------------ */

enum { OF_LIBRARY = 3 }; /* device objects that a context keeps: the library's kernels */

/* The last one. */
static struct {
    stitch_report_summary s;
    char message[2000]; /* of the stage that failed */
    char text[8000], fingerprint[65], *feedback;
    json_t *json;
} got;

/* What the report says of the candidate's time; NULL: it was not timed. */
static const json_t *candidate_time(void)
{
    return json_object_get(json_object_get(got.json, "time"), "candidate");
}

/* There is a verdict, and nothing is left behind. Takes task and program. */
static void get_verdict(const stitch_verify_options *o, stitch_task *t, stitch_program *p)
{
    stitch_report *r = NULL;
    const char *why = "";
    int before = fake.live;

    CHECK_OK(stitch_verify_program(ctx, t, p, o, &r, &err));
    got.s = (stitch_report_summary)STITCH_REPORT_SUMMARY_INIT;
    CHECK_INT(stitch_report_summary_get(r, &got.s), 0);
    if (got.s.failed_stage)
        CHECK_INT(stitch_report_stage(r, got.s.failed_stage, NULL, NULL, &why), 0);
    snprintf(got.message, sizeof(got.message), "%s", why);
    snprintf(got.text, sizeof(got.text), "%s", stitch_report_text(r));
    snprintf(got.fingerprint, sizeof(got.fingerprint), "%s", stitch_report_fingerprint(r));
    stitch_free(got.feedback);
    got.feedback = NULL;
    CHECK_OK(stitch_report_feedback(r, 0, &got.feedback, &err));
    json_decref(got.json);
    got.json = json_loads(stitch_report_json(r), 0, NULL);
    CHECK(got.json != NULL);
    CHECK(json_is_null(json_object_get(candidate_time(), "busy_us")) == (candidate_time() && got.s.busy_us == 0));
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(t);
    if (fake.live > before + OF_LIBRARY)
        FAIL("%d device objects are left behind", fake.live - before);
}

/* Ends with this failure, without a verdict, and leaves nothing behind. Takes task and program. */
__attribute__((unused)) static void get_failure(const stitch_verify_options *o, stitch_task *t, stitch_program *p,
                                                int status, const char *part)
{
    stitch_report *r = NULL;
    int before = fake.live;

    CHECK_ERR(stitch_verify_program(ctx, t, p, o, &r, &err), status, part);
    CHECK(r == NULL);
    CHECK_INT(fake.live, before);
    stitch_program_free(p);
    stitch_task_free(t);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static meter memory = {.refuse_at = -1}; /* the host's, of the contexts of metered_context() */

/* From now on the n-th allocation fails; negative: none. */
__attribute__((unused)) static void refuse_memory(int64_t n)
{
    memory.calls = 0;
    memory.refuse_at = n;
}

__attribute__((unused)) static stitch_context *metered_context(void)
{
    static const stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};
    return new_context(&allocator);
}

/* Memory of the host or the device may run out: a verdict or that failure, and at most `kept` more objects of the
   device. `enough`: it did not. Takes the program. Afterwards nothing is refused. */
static int verify_short_of_memory(stitch_context *c, stitch_task *t, stitch_program *p, const stitch_verify_options *o,
                                  int kept, bool *enough)
{
    stitch_report *r = NULL;
    int64_t of_device = fake.allocations_left;
    int before = fake.live, rc = stitch_verify_program(c, t, p, o, &r, &err);
    int64_t of_host = memory.refuse_at, at = of_device >= 0 ? of_device : of_host;

    memory.refuse_at = -1;
    *enough = fake.allocations_left > 0 || memory.calls <= of_host;
    fake.allocations_left = -1;
    if (rc && (*enough || rc != STITCH_E_NOMEM))
        FAIL("allocation %" PRId64 "%s: %s: %s", at, *enough ? ", which is too late to be refused" : "",
             stitch_status_name(rc), stitch_error_message(err));
    CHECK((rc == STITCH_OK) == (r != NULL));
    if (fake.live > before + kept)
        FAIL("allocation %" PRId64 ": %d device objects are left behind", at, fake.live - before);
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_error_free(err);
    err = NULL;
    return rc;
}

/* They are all that has memory of the host. */
__attribute__((unused)) static void free_metered(stitch_context *c, stitch_task *t)
{
    stitch_task_free(t);
    stitch_context_free(c);
    CHECK_INT(memory.live, 0);
}

/* The last test of every program. */
TEST(nothing_is_left)
{
    char command[100];

    if (!ctx)
        SKIP("no context");
    stitch_free(got.feedback);
    got.feedback = NULL;
    json_decref(got.json);
    got.json = NULL;
    stitch_context_free(ctx);
    ctx = NULL;
    snprintf(command, sizeof(command), "rm -rf %s", cache);
    CHECK_INT(system(command), 0);
}

#endif
