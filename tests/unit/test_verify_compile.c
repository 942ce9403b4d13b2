/* SPDX-License-Identifier: MIT
 *
 * Stage compile of a verification: what ends the compiler's process, or keeps it busy, is a verdict on the program, and
 * only where there is no such process is anything compiled in this one.
 */
#include <pthread.h>

#include "compiler_check.h"
#include "verify/verify.h"

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
    printf("# %.0f ms: %.200s\n", v.ms, v.text);
    CHECK_INT(v.rc, STITCH_E_TIMEOUT);
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

static int no_reference(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    double y[32] = {0};
    (void)userdata;
    return count == 1 ? stitch_bound_tensor_write(ctx, stream, tensors, y, tensors->info.bytes, NULL) : -1;
}

/* A verification, of a program that is in the cache, or an admission, where nothing else is in it. */
static int with_deadline(bool admits, int64_t timeout_ms, char *why, size_t size)
{
    static const char *const shape[] = {"N"};
    stitch_compile_options co = STITCH_COMPILE_OPTIONS_INIT;
    stitch_verify_options vo = STITCH_VERIFY_OPTIONS_INIT;
    stitch_admit_options ao = STITCH_ADMIT_OPTIONS_INIT;
    stitch_admission *a = NULL;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_error *e = NULL;
    stitch_task *t = NULL;
    char before[sizeof(cache)], command[100];

    memcpy(before, cache, sizeof(cache));
    snprintf(cache, sizeof(cache), "/tmp/stitch-compiler-test-XXXXXX");
    set_up_with("sim:sm_90", true);
    CHECK_OK(stitch_task_new(ctx, "t", &t, &err));
    CHECK_OK(stitch_task_set_dim(t, "N", 32, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_set_reference_fn(t, no_reference, NULL, STITCH_DTYPE_F64, &err));
    CHECK_OK(stitch_program_parse(ctx, GOOD, plan, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, stitch_task_interface(t), NULL, &err));
    CHECK_OK(stitch_program_compile(p, &co, NULL, &err));
    vo.timeout_ms = ao.timeout_ms = timeout_ms;
    vo.where = STITCH_VERIFY_HERE;
    int rc = admits ? stitch_task_admit(ctx, t, &ao, &a, &e) : stitch_verify_program(ctx, t, p, &vo, &r, &e);
    snprintf(why, size, "%s", stitch_error_message(e));
    stitch_error_free(e);
    stitch_admission_free(a);
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(t);
    tear_down();
    snprintf(command, sizeof(command), "rm -rf %s", cache);
    memcpy(cache, before, sizeof(cache));
    CHECK_INT(system(command), 0);
    return rc;
}

/* That another kernel than the first one is compiled when a deadline ends. */
TEST(all_kernels_of_an_admission)
{
    char why[600] = "";
    int rc = STITCH_E_TIMEOUT;

    need_compiler();
    for (int64_t ms = 32;
         rc == STITCH_E_TIMEOUT && !strstr(why, "kernel stitch_hash") && !strstr(why, "kernel stitch_compare");
         ms += ms / 8) {
        rc = with_deadline(true, ms, why, sizeof(why));
        printf("# %lld ms: %s: %s\n", (long long)ms, stitch_status_name(rc), why);
    }
    CHECK_INT(rc, STITCH_E_TIMEOUT);
}

/* The clock is looked at while they are compiled, too: some deadline ends in there. */
TEST(the_kernels_of_the_library)
{
    need_compiler();
    for (int admits = 0; admits < 2; admits++) {
        char why[600] = "";
        int rc = STITCH_E_TIMEOUT;
        for (int64_t ms = 8; rc == STITCH_E_TIMEOUT && !strstr(why, "the library's own kernel"); ms += ms / 4) {
            rc = with_deadline(admits, ms, why, sizeof(why));
            printf("# %lld ms: %s: %s\n", (long long)ms, stitch_status_name(rc), why);
        }
        CHECK_INT(rc, STITCH_E_TIMEOUT);
    }
}

TEST_MAIN(RUN(verdicts), RUN(there_is_none), RUN(no_way_back), RUN(a_reference_that_takes_long),
          RUN(the_kernels_of_the_library), RUN(all_kernels_of_an_admission), RUN(two_threads))
