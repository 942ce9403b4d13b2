/* SPDX-License-Identifier: MIT
 *
 * Verification of right and wrong candidates: each is judged at the expected stage for the expected reason.
 */
#include <math.h>
#include <unistd.h>

#include "verify_tasks.h"

static stitch_verify_options few(void)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.trials = 2;
    o.iterations = 12;
    o.warmup = 2;
    o.seed = 42;
    o.flush_bytes = 1 << 20;
    return o;
}

static const char *message_of(const stitch_report *r, int stage)
{
    const char *message = "";
    CHECK_INT(stitch_report_stage(r, stage, NULL, NULL, &message), 0);
    return message;
}

static int status_of(const stitch_report *r, int stage)
{
    int status = -1;
    CHECK_INT(stitch_report_stage(r, stage, &status, NULL, NULL), 0);
    return status;
}

TEST(a_right_candidate)
{
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_verify_options o = few();
    need_device();
    stitch_task *t = vector_task();
    stitch_report *r = verify(t, VECTOR_KERNEL("float", "y[i] = fmaf(a[i], x[i], b[i]);"), VECTOR_PLAN, &o);

    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(s.correct, 1);
    CHECK(s.max_abs_error < 1e-5 && s.max_abs_error > 0);
    CHECK_INT(s.elements, 2 * 4099);
    CHECK_INT(s.mismatches, 0);
    CHECK_INT(s.launches, 1);
    CHECK(s.seed == 42);
    if (device.simulated) {
        CHECK_INT(status_of(r, STITCH_STAGE_SIMULATE), STITCH_STAGE_PASSED);
        CHECK_INT(status_of(r, STITCH_STAGE_TIME), STITCH_STAGE_SKIPPED);
        CHECK_HAS(message_of(r, STITCH_STAGE_TIME), "the simulator reports no times");
        CHECK_INT(s.timed, 0);
    } else {
        CHECK_INT(status_of(r, STITCH_STAGE_SIMULATE), STITCH_STAGE_SKIPPED);
        CHECK_INT(s.timed, 1);
        CHECK(s.median_us > 0 && s.low_us <= s.median_us && s.median_us <= s.high_us);
        CHECK(s.baseline_us > 0 && s.speedup > 0.2 && s.speedup < 5);
        CHECK_INT(json_integer_value(report_at(r, "time.candidate.runs")), 12);
        CHECK_INT(json_integer_value(report_at(r, "time.candidate.checked_runs_passed")),
                  json_integer_value(report_at(r, "time.candidate.checked_runs")));
        CHECK(json_integer_value(report_at(r, "time.candidate.checked_runs")) >= 2);
        if (json_is_null(report_at(r, "time.candidate.busy_us"))) {
            const char *note = json_string_value(report_at(r, "time.candidate.busy_note"));
            CHECK(note && *note);
            printf("# no busy time: %s\n", note);
            CHECK(s.busy_us == 0 && json_is_null(report_at(r, "time.candidate.idle_share")));
        } else {
            double idle = json_number_value(report_at(r, "time.candidate.idle_share"));
            printf("# busy %.2f us of %.2f us\n", s.busy_us, s.median_us);
            CHECK(s.busy_us > 0 && s.busy_us < 2 * s.median_us);
            CHECK(idle >= 0 && idle < 1);
        }
        CHECK_STR(json_string_value(report_at(r, "time.baselines.0.name")), "plain");
        CHECK_STR(json_string_value(report_at(r, "time.baselines.0.precision")), "f32");
        CHECK_INT(json_array_size(report_at(r, "correct.robust")), 6);
    }
    CHECK_INT(json_integer_value(report_at(r, "correct.kernelbench.passed")), 2);
    CHECK(json_is_true(report_at(r, "correct.bitwise_repeatable")));
    CHECK_STR(json_string_value(report_at(r, "task.tensors.0.data")), "normal(0, 1)");
    CHECK_STR(json_string_value(report_at(r, "task.tensors.3.reference_dtype")), "f64");
    CHECK_INT(strlen(json_string_value(report_at(r, "task.sha256"))), 64);
    CHECK_INT(strlen(json_string_value(report_at(r, "program.sha256"))), 64);
    CHECK(json_integer_value(report_at(r, "program.kernels.0.registers")) != 0);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(wrong_candidates)
{
    static const struct {
        const char *what, *source, *plan;
        int stage, status;
        const char *message;
        const char *finding; /* of the simulator, where it notices first */
    } rows[] = {
        {"one element off", VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + (i == 1234 ? 0.01f : 0.0f);"),
         VECTOR_PLAN, STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "output y: 1 of 4099 elements are wrong"},
        {"its place", VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + (i == 1234 ? 0.01f : 0.0f);"), VECTOR_PLAN,
         STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "first wrong y[1234]"},
        {"writes nothing", VECTOR_KERNEL("float", "if (n < 0) y[i] = x[i];"), VECTOR_PLAN, STITCH_STAGE_CORRECT,
         STITCH_E_VALIDATE, "none of its 4099 elements was written"},
        {"writes a part", VECTOR_KERNEL("float", "if (i < 4096) y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN,
         STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "3 were never written, the first is y[4096]"},
        {"NaN", VECTOR_KERNEL("float", "y[i] = i == 7 ? sqrtf(-1.0f - fabsf(x[i])) : a[i] * x[i] + b[i];"), VECTOR_PLAN,
         STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "1 are NaN where the reference has 0"},
        {"infinity", VECTOR_KERNEL("float", "y[i] = i == 7 ? 1e30f * 1e30f : a[i] * x[i] + b[i];"), VECTOR_PLAN,
         STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "1 are infinite where the reference has 0"},
        {"adds to what is there", VECTOR_KERNEL("float", "y[i] += a[i] * x[i] + b[i];"), VECTOR_PLAN,
         STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "output y: 4099 of 4099",
         "read of memory that nothing wrote: read of 4 bytes by thread (0,0,0) of block (0,0,0), buffer y"},
        {"zeros", VECTOR_KERNEL("float", "y[i] = 0;"), VECTOR_PLAN, STITCH_STAGE_CORRECT, STITCH_E_VALIDATE,
         "elements are wrong"},
        {"writes its input",
         VECTOR_KERNEL("float",
                       "y[i] = a[i] * x[i] + b[i]; __threadfence(); if (i == 5) *(float *)(x + i) = x[i] + 1;"),
         VECTOR_PLAN, STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "changed its input x", "changed its input x"},
        {"writes its weight",
         VECTOR_KERNEL("float",
                       "y[i] = a[i] * x[i] + b[i]; __threadfence(); if (i == 5) *(float *)(b + i) = b[i] + 1;"),
         VECTOR_PLAN, STITCH_STAGE_CORRECT, STITCH_E_VALIDATE, "changed its weight b", "changed its weight b"},
        {"does not compile", VECTOR_KERNEL("float", "y[i] = undefined_name;"), VECTOR_PLAN, STITCH_STAGE_COMPILE,
         STITCH_E_COMPILE, ""},
        {"an argument too few", VECTOR_KERNEL("float", "y[i] = x[i];"),
         "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[1],\"args\":[\"x\",\"a\",\"b\",\"y\"]}]}",
         STITCH_STAGE_COMPILE, STITCH_E_VALIDATE, "k"},
        {"no such buffer", VECTOR_KERNEL("float", "y[i] = x[i];"),
         "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[1],\"args\":[\"q\",\"a\",\"b\",\"y\",{"
         "\"i32\":1}]}]}",
         STITCH_STAGE_VALIDATE, STITCH_E_VALIDATE, "q"},
        {"output that nothing writes", VECTOR_KERNEL("float", "y[i] = x[i];"),
         "{\"stitch\":1,\"buffers\":{\"h\":{\"dtype\":\"f32\",\"shape\":[\"N\"]}},\"run\":[{\"kernel\":\"k\",\"grid\":["
         "1],\"block\":[1],"
         "\"args\":[\"x\",\"a\",\"b\",\"h\",{\"i32\":1}]}]}",
         STITCH_STAGE_VALIDATE, STITCH_E_VALIDATE, "y"},
        {"no such kernel", VECTOR_KERNEL("float", "y[i] = x[i];"),
         "{\"stitch\":1,\"run\":[{\"kernel\":\"kk\",\"grid\":[1],\"block\":[1],\"args\":" VECTOR_ARGS "}]}",
         STITCH_STAGE_COMPILE, 0, "kk"},
    };
    stitch_verify_options o = few();
    need_device();
    stitch_task *t = vector_task();

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        stitch_report *r = verify(t, rows[i].source, rows[i].plan, &o);
        char *feedback = NULL;
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        bool found = device.simulated && rows[i].finding;
        int stage = found ? STITCH_STAGE_SIMULATE : rows[i].stage;
        const char *expected = found ? rows[i].finding : rows[i].message;
        if (s.failed_stage != stage || (rows[i].status && s.status != rows[i].status))
            FAIL("%s: failed at %s with %s\n%s", rows[i].what, stitch_stage_name(s.failed_stage),
                 stitch_status_name(s.status), stitch_report_text(r));
        if (!strstr(message_of(r, stage), expected))
            FAIL("%s: \"%s\" does not say \"%s\"", rows[i].what, message_of(r, stage), expected);
        CHECK_INT(s.correct, 0);
        CHECK_INT(s.timed, 0);
        CHECK_INT(status_of(r, STITCH_STAGE_TIME), STITCH_STAGE_NOT_RUN);
        CHECK_OK(stitch_report_feedback(r, 0, &feedback, &err));
        CHECK_HAS(feedback, "Verification failed in stage");
        if (rows[i].stage == STITCH_STAGE_COMPILE && rows[i].status == STITCH_E_COMPILE) {
            CHECK_HAS(feedback, "undefined_name");
            CHECK_HAS(feedback, "y[i] = undefined_name;"); /* the source line */
        }
        stitch_free(feedback);
        stitch_report_free(r);
    }
    stitch_task_free(t);
}

/* ---- rows: layer norm and softmax -------------------------------------------------------------------------------- */

#define ROWS_HEAD(name)                                                                                                \
    "\"name\":\"" name "\",\"dims\":{\"M\":24,\"C\":96},\"reduced_dims\":{\"M\":6},"                                   \
    "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"M\",\"C\"]}],"                                         \
    "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"M\",\"C\"]}],\"tolerance\":{\"atol\":1e-5,\"rtol\":"  \
    "1e-4}"
#define ROWS_PLAN                                                                                                      \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[32],\"args\":[\"x\",\"y\",{\"i32\":\"C\"}]}" \
    "]}"
#define ROWS_KERNEL(real, body)                                                                                        \
    "__device__ " real " all(" real " v) { for (int s = 16; s; s /= 2) v += __shfl_xor_sync(~0u, v, s); return v; }\n" \
    "__global__ void k(const float *x, " real " *y, int c)\n{\n"                                                       \
    "    x += (size_t)blockIdx.x * c;\n    y += (size_t)blockIdx.x * c;\n" body "}\n"
#define NORM(real)                                                                                                     \
    ROWS_KERNEL(real, real                                                                                             \
                " s = 0, q = 0;\n for (int i = threadIdx.x; i < c; i += 32) s += x[i];\n" real                         \
                " m = all(s) / c;\n for (int i = threadIdx.x; i < c; i += 32) q += (x[i] - m) * (x[i] - m);\n" real    \
                " r = 1 / sqrt(all(q) / c + (" real ")1e-5);\n"                                                        \
                " for (int i = threadIdx.x; i < c; i += 32) y[i] = (x[i] - m) * r;\n")
#define SOFTMAX(real, shift)                                                                                           \
    ROWS_KERNEL(real, real " m = " shift ", s = 0;\n for (int i = 0; i < c; i++) m = m > x[i] ? m : x[i];\n"           \
                           "if (" shift " == 0) m = 0;\n"                                                              \
                           " for (int i = threadIdx.x; i < c; i += 32) s += exp(x[i] - m);\n s = all(s);\n"            \
                           " for (int i = threadIdx.x; i < c; i += 32) y[i] = exp(x[i] - m) / s;\n")

TEST(layer_norm)
{
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_device();
    stitch_task *t = make_task(ROWS_HEAD("norm"), NORM("double"), ROWS_PLAN, NULL);
    stitch_report *r = verify(t, NORM("float"), ROWS_PLAN, &o);

    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(s.correct, 1);
    CHECK_INT(json_is_true(report_at(r, "task.reduced_dims")), device.simulated);
    CHECK_INT(json_integer_value(report_at(r, "task.dims.M")), device.simulated ? 6 : 24);
    CHECK_INT(stitch_task_is_reduced(t), 0); /* as it was */
    if (!device.simulated)                   /* without a baseline the reference is it */
        CHECK_STR(json_string_value(report_at(r, "time.baselines.0.name")), "the reference");
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(softmax_without_the_maximum)
{
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_device();
    stitch_task *t = make_task(ROWS_HEAD("softmax"), SOFTMAX("double", "-1e300"), ROWS_PLAN, NULL);
    stitch_report *r = verify(t, SOFTMAX("float", "-1e30f"), ROWS_PLAN, &o);

    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    if (!device.simulated)
        CHECK(json_is_true(report_at(r, "correct.robust.0.passed")));
    stitch_report_free(r);
    r = verify(t, SOFTMAX("float", "0"), ROWS_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.correct, 1); /* on the declared inputs */
    if (!device.simulated) {
        char *feedback = NULL;
        CHECK(json_is_false(report_at(r, "correct.robust.0.passed"))); /* exp overflows for large ones */
        CHECK_OK(stitch_report_feedback(r, 0, &feedback, &err));
        CHECK_HAS(feedback, "Not counted yet: with large");
        stitch_free(feedback);
    }
    stitch_report_free(r);
    stitch_task_free(t);
}

/* ---- states, callbacks, recorded tensors ------------------------------------------------------------------------- */

TEST(states_live_from_run_to_run)
{
    static const char head[] =
        "\"name\":\"sum\",\"dims\":{\"N\":100},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
        "\"states\":[{\"name\":\"s\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":"
        "\"f32\",\"shape\":[\"N\"]}]";
    static const char plan[] = "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[128],\"args\":[\"x\","
                               "\"s\",\"y\",{\"i32\":\"N\"}]}]}";
#define SUM(real, body)                                                                                                \
    "__global__ void k(const float *x, float *s, " real " *y, int n) { int i = threadIdx.x; if (i < n) { " body " } }"
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_device();
    stitch_task *t = make_task(head, SUM("double", "s[i] += x[i]; y[i] = s[i];"), plan, NULL);
    stitch_report *r = verify(t, SUM("float", "s[i] += x[i]; y[i] = s[i];"), plan, &o);

    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    stitch_report_free(r);
    r = verify(t, SUM("float", "s[i] = x[i]; y[i] = s[i];"), plan, &o); /* right for the first run alone */
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    stitch_report_free(r);
    stitch_task_free(t);
}

typedef struct callback_data {
    stitch__device *dev;
    int calls, fail;
} callback_data;

static int vector_reference(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    callback_data *data = userdata;
    const stitch__driver *drv = data->dev->drv;
    size_t n = (size_t)tensors[0].info.elements;
    float *in = malloc(3 * n * sizeof(*in));
    double *out = malloc(n * sizeof(*out));
    int rc = data->fail;

    data->calls++;
    if (count != 4 || strcmp(tensors[3].info.name, "y") != 0 || tensors[3].info.dtype != STITCH_DTYPE_F64 ||
        tensors[3].info.bytes != n * 8)
        rc = STITCH_E_INTERNAL;
    drv->StreamSynchronize(stream);
    for (size_t k = 0; !rc && k < 3; k++)
        rc = drv->MemcpyDtoH(in + k * n, tensors[k].ptr, n * sizeof(*in)) ? STITCH_E_DRIVER : 0;
    for (size_t i = 0; !rc && i < n; i++)
        out[i] = (double)in[n + i] * in[i] + in[2 * n + i];
    if (!rc)
        rc = drv->MemcpyHtoD(tensors[3].ptr, out, n * sizeof(*out)) ? STITCH_E_DRIVER : 0;
    free(in);
    free(out);
    return rc;
}

static stitch_task *callback_task(callback_data *data)
{
    stitch_task *t = NULL;
    CHECK_OK(stitch__device_get(ctx, &data->dev, &err));
    CHECK_OK(stitch_task_parse(ctx, "{\"stitch_task\":1," VECTOR_HEAD "}", NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_fn(t, vector_reference, data, STITCH_DTYPE_F64, &err));
    return t;
}

/* The same through the library's own copies, in three calls: the inputs, the values, their way to the output. */
static int part_reference(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    callback_data *data = userdata;
    static double kept[1 << 14];
    static float in[3][1 << 14];
    size_t n = (size_t)tensors[0].info.elements;
    int rc = n <= STITCH__COUNT(kept) ? 0 : STITCH_E_LIMIT;

    switch (data->calls++ % 3) {
    case 0:
        for (size_t k = 0; !rc && k < 3; k++)
            rc = stitch_bound_tensor_read(ctx, stream, &tensors[k], in[k], tensors[k].info.bytes, NULL);
        return rc ? rc : STITCH_READY;
    case 1:
        for (size_t i = 0; i < n; i++)
            kept[i] = (double)in[1][i] * in[0][i] + in[2][i];
        return STITCH_AGAIN;
    default: return stitch_bound_tensor_write(ctx, stream, &tensors[3], kept, tensors[3].info.bytes, NULL);
    }
}

static int reads_too_much(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    char byte;
    if (stitch_bound_tensor_read(ctx, stream, NULL, &byte, 1, NULL) != STITCH_E_INVALID)
        return STITCH_E_INTERNAL;
    return stitch_bound_tensor_read(ctx, stream, &tensors[0], &byte, tensors[0].info.bytes + 1, NULL);
}

static int never_ready(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    return STITCH_READY;
}

static int never_done(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    return STITCH_AGAIN;
}

TEST(callback_in_parts)
{
    callback_data data = {NULL, 0, 0};
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_task *t = NULL;
    need_device();

    o.last_stage = STITCH_STAGE_CORRECT;
    CHECK_OK(stitch_task_parse(ctx, "{\"stitch_task\":1," VECTOR_HEAD "}", NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_fn(t, part_reference, &data, STITCH_DTYPE_F64, &err));
    r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.correct, 1);
    CHECK(data.calls > 0 && data.calls % 3 == 0);
    stitch_report_free(r);
    r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] - b[i];"), VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.correct, 0);
    stitch_report_free(r);
    stitch_task_free(t);

    static const struct {
        stitch_reference_fn fn;
        int status;
        const char *text;
    } bad[] = {{reads_too_much, STITCH_E_INVALID, "callback"},
               {never_done, STITCH_E_STATE, "returned 1"},
               {never_ready, STITCH_E_STATE, "returned 2"}};
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        r = NULL;
        CHECK_OK(stitch_task_parse(ctx, "{\"stitch_task\":1," VECTOR_HEAD "}", NULL, &t, &err));
        CHECK_OK(stitch_task_set_reference_fn(t, bad[i].fn, NULL, STITCH_DTYPE_F64, &err));
        CHECK_OK(stitch_program_parse(ctx, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, NULL, &p,
                                      &err));
        CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), bad[i].status, bad[i].text);
        CHECK(r == NULL);
        stitch_program_free(p);
        stitch_task_free(t);
    }
}

TEST(callback_reference)
{
    callback_data data = {NULL, 0, 0};
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    need_device();
    stitch_task *t = callback_task(&data);

    o.last_stage = STITCH_STAGE_CORRECT;
    r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(s.correct, 1);
    CHECK(data.calls >= 2);
    CHECK_INT(status_of(r, STITCH_STAGE_TIME), STITCH_STAGE_NOT_RUN); /* not asked for */
    stitch_report_free(r);
    CHECK_OK(
        stitch_program_parse(ctx, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, NULL, &p, &err));
    data.fail = 77;
    CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), STITCH_E_STATE, "returned 77");
    CHECK(r == NULL);
    data.fail = STITCH_E_NOMEM;
    CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), STITCH_E_NOMEM, "callback");
    stitch_program_free(p);
    stitch_task_free(t);
}

TEST(recorded_tensors)
{
    enum { COUNT = 50 };
    static const char document[] = "{\"stitch_task\":1,\"name\":\"recorded\",\"dims\":{\"N\":50},\"inputs\":[{\"name\":"
                                   "\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
                                   "\"weights\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"outputs\":[{"
                                   "\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]}";
    static const char plan[] = "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[64],\"args\":[\"x\","
                               "\"w\",\"y\",{\"i32\":\"N\"}]}]}";
#define SCALE(body)                                                                                                    \
    "__global__ void k(const float *x, const float *w, float *y, int n) { int i = threadIdx.x; if (i < n) y[i] "       \
    "= " body "; }"
    float x[COUNT], w[COUNT];
    double y[COUNT];
    stitch_tensor_info infos[3] = {STITCH_TENSOR_INFO_INIT, STITCH_TENSOR_INFO_INIT, STITCH_TENSOR_INFO_INIT};
    const void *data[3] = {x, w, y};
    static const char *const names[3] = {"x", "w", "y"};
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_task *t = NULL;
    stitch_report *r;
    char path[64];

    need_device();
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i - 20;
        w[i] = 0.5f + (float)i;
        y[i] = (double)x[i] * w[i];
    }
    for (int k = 0; k < 3; k++) {
        infos[k].name = names[k];
        infos[k].dtype = k == 2 ? STITCH_DTYPE_F64 : STITCH_DTYPE_F32;
        infos[k].rank = 1;
        infos[k].shape[0] = COUNT;
        infos[k].elements = COUNT;
        infos[k].bytes = COUNT * stitch_dtype_size(infos[k].dtype);
    }
    snprintf(path, sizeof(path), "/tmp/stitch-recorded-%ld", (long)getpid());
    CHECK_OK(stitch__safetensors_write(ctx, path, infos, data, 3, &err));
    CHECK_OK(stitch_task_parse(ctx, document, NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_tensors(t, path, &err));
    unlink(path); /* it stays open */
    r = verify(t, SCALE("x[i] * w[i]"), plan, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK_INT(json_array_size(report_at(r, "correct.trials")), 1);
    CHECK_STR(json_string_value(report_at(r, "task.tensors.0.data")), "recorded");
    CHECK_NEAR(s.speedup, 0, 0); /* a recording is nothing to be faster than */
    if (!device.simulated)
        CHECK_HAS(stitch_report_text(r), "no speed-up");
    stitch_report_free(r);
    r = verify(t, SCALE("x[i] + w[i]"), plan, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    stitch_report_free(r);
    stitch_task_free(t);
}

/* ---- repeating, ending early ------------------------------------------------------------------------------------- */

TEST(a_seed_repeats_everything)
{
    stitch_verify_options o = few();
    need_device();
    stitch_task *t = vector_task();
    stitch_report *a, *b;
    json_t *first;
    char fingerprint[65];

    o.last_stage = STITCH_STAGE_CORRECT;
    a = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + (i == 9);"), VECTOR_PLAN, &o);
    first = json_deep_copy(report_at(a, "correct"));
    strcpy(fingerprint, stitch_report_fingerprint(a));
    b = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + (i == 9);"), VECTOR_PLAN, &o);
    CHECK(json_equal(first, report_at(b, "correct")));
    stitch_report_free(b);
    o.seed = 43;
    b = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + (i == 9);"), VECTOR_PLAN, &o);
    CHECK(!json_equal(first, report_at(b, "correct")));
    CHECK_STR(stitch_report_fingerprint(b), fingerprint); /* says the same of the program */
    stitch_report_free(b);
    o.seed = 0;
    b = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    CHECK_INT(stitch_report_summary_get(b, &s), 0);
    CHECK(s.seed != 0);
    stitch_report_free(b);
    stitch_report_free(a);
    json_decref(first);
    stitch_task_free(t);
}

static void cancel_in_correct(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    if (stage == STITCH_STAGE_CORRECT && done == 1)
        stitch_cancel_trigger(userdata);
}

TEST(can_be_cancelled)
{
    stitch_verify_options o = few();
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_cancel *cancel = NULL;
    need_device();
    stitch_task *t = vector_task();

    CHECK_INT(stitch_cancel_new(&cancel), 0);
    CHECK_OK(
        stitch_program_parse(ctx, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, NULL, &p, &err));
    o.cancel = cancel;
    o.userdata = cancel;
    o.trials = 1000;
    o.on_stage = cancel_in_correct;
    CHECK_ERR(stitch_verify_program(ctx, t, p, &o, &r, &err), STITCH_E_CANCELLED, "");
    CHECK(r == NULL);
    stitch_cancel_reset(cancel);
    o.trials = 1;
    o.on_stage = NULL;
    CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err)); /* everything is usable afterwards */
    stitch_report_free(r);
    stitch_cancel_free(cancel);
    stitch_program_free(p);
    stitch_task_free(t);
}

TEST(a_task_without_a_reference)
{
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_task *t = NULL;
    need_device();
    CHECK_OK(stitch_task_parse(ctx, "{\"stitch_task\":1," VECTOR_HEAD "}", NULL, &t, &err));
    CHECK_OK(stitch_program_parse(ctx, VECTOR_KERNEL("float", "y[i] = 0;"), VECTOR_PLAN, NULL, &p, &err));
    CHECK_ERR(stitch_verify_program(ctx, t, p, NULL, &r, &err), STITCH_E_STATE, "no reference");
    stitch_program_free(p);
    stitch_task_free(t);
}

TEST(without_a_device)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *none = NULL, *before = ctx;
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_task *t;
    int rc;

    options.device = "none";
    CHECK_OK(stitch_context_new(&none, &options, &err));
    ctx = none;
    t = vector_task();
    o.last_stage = STITCH_STAGE_COMPILE;
    CHECK_OK(stitch_program_parse(ctx, VECTOR_KERNEL("float", "y[i] = nothing;"), VECTOR_PLAN, NULL, &p, &err));
    rc = stitch_verify_program(ctx, t, p, &o, &r, &err);
    ctx = before;
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err)); /* no NVRTC */
    CHECK_OK(rc);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_COMPILE);
    stitch_report_free(r);
    stitch_program_free(p);
    CHECK_OK(
        stitch_program_parse(none, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, NULL, &p, &err));
    CHECK_OK(stitch_verify_program(none, t, p, &o, &r, &err));
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    CHECK_INT(s.correct, 0);
    CHECK_HAS(stitch_report_text(r), "correctness was not tested");
    stitch_report_free(r);
    o.last_stage = STITCH_STAGE_NONE;
    CHECK_ERR(stitch_verify_program(none, t, p, &o, &r, &err), STITCH_E_NO_DEVICE, "the program is valid and compiles");
    stitch_program_free(p);
    stitch_task_free(t);
    stitch_context_free(none);
}

/* ---- what only real hardware shows ------------------------------------------------------------------------------- */

TEST(wrong_only_when_timed)
{
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_real_device();
    stitch_task *t = vector_task();
    stitch_report *r = verify(t,
                              "__device__ int calls;\n" VECTOR_KERNEL(
                                  "float", "y[i] = calls / 4099 > 18 ? 0 : a[i] * x[i] + b[i]; atomicAdd(&calls, 1);"),
                              VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    /* Which of the later runs shows it first is a matter of how many there are. */
    CHECK(s.failed_stage == STITCH_STAGE_EXPLOIT || s.failed_stage == STITCH_STAGE_TIME);
    CHECK_INT(s.correct, 1);
    CHECK_INT(s.timed, 0);
    CHECK_NEAR(s.speedup, 0, 0);
    stitch_report_free(r);
    stitch_task_free(t);
}

/* -1 is what outputs are filled with before a run, and a result like any other. */
TEST(results_that_look_like_the_filling)
{
    static const char head[] =
        "\"name\":\"sign\",\"dims\":{\"N\":4099},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
        "\"weights\":[{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[\"N\"]},{\"name\":\"b\",\"dtype\":\"f32\","
        "\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"i32\",\"shape\":[\"N\"]}],"
        "\"tolerance\":{\"atol\":0,\"rtol\":0}";
    static const char sign[] = VECTOR_KERNEL("int", "y[i] = x[i] + 0 * (a[i] + b[i]) > 0 ? 1 : -1;");
    static const char half[] = VECTOR_KERNEL("int", "if (i % 2) y[i] = x[i] + 0 * (a[i] + b[i]) > 0 ? 1 : -1;");
    static const char odd[] = VECTOR_KERNEL("int", "y[i] = i % 2 || x[i] + 0 * (a[i] + b[i]) <= 0 ? -1 : 1;");
    static const char in_two[] = VECTOR_KERNEL(
        "int",
        "if (i % 2 == 0) y[i] = x[i] + 0 * (a[i] + b[i]) > 0 ? 1 : -1;") "__global__ void ones(int *y, int n)\n{\n    "
                                                                         "int i = 2 * (blockIdx.x * blockDim.x + "
                                                                         "threadIdx.x) + 1;\n"
                                                                         "    if (i < n)\n        y[i] = -1;\n}\n";
    static const char two_steps[] =
        "{\"stitch\":1,\"run\":[" VECTOR_STEP ",{\"kernel\":\"ones\",\"grid\":[\"ceil_div(N, 512)\"],"
        "\"block\":[256],\"args\":[\"y\",{\"i32\":\"N\"}]}]}";
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_report *r;
    stitch_task *t;

    need_device();
    t = make_task(head, sign, VECTOR_PLAN, sign);
    r = verify(t, sign, VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("%s", stitch_report_text(r));
    CHECK_INT(s.correct, 1);
    stitch_report_free(r);
    r = verify(t, half, VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    CHECK_INT(json_integer_value(report_at(r, "correct.trials.0.outputs.0.unwritten")), 2050);
    stitch_report_free(r);
    stitch_task_free(t);
    /* A step that writes nothing but what the filling looks like is needed all the same. */
    t = make_task(head, odd, VECTOR_PLAN, odd);
    r = verify(t, in_two, two_steps, &o);
    if (status_of(r, STITCH_STAGE_EXPLOIT) != STITCH_STAGE_PASSED)
        FAIL("%s", stitch_report_text(r));
    CHECK_INT(json_integer_value(report_at(r, "exploit.steps_left_out_in_turn")), 2);
    CHECK_INT(json_integer_value(report_at(r, "exploit.dead_steps")), 0);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(not_repeatable)
{
    stitch_verify_options o = few();
    need_real_device();
    stitch_task *t = vector_task();
    stitch_report *r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i] + (float)(clock64() & 7) * 1e-6f;"),
                              VECTOR_PLAN, &o);
    CHECK_INT(status_of(r, STITCH_STAGE_CORRECT), STITCH_STAGE_PASSED);
    CHECK(json_is_false(report_at(r, "correct.bitwise_repeatable")));
    stitch_report_free(r);
    stitch_task_free(t);
}

#define SLEEP(us)                                                                                                      \
    "long long until; asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(until)); until += " us "ll * 1000; "         \
    "for (long long now = 0; now < until;) asm volatile(\"mov.u64 %0, %globaltimer;\" : \"=l\"(now)); "

/* A counter that `prepare` clears and each run sets back, in a step of its own. Without that step no later run is
 * right, which is the doing of the check that leaves it out, and must not be the program's failure. */
TEST(a_counter_that_each_run_sets_back)
{
    static const char source[] =
        "__global__ void k(const float *x, const float *a, const float *b, float *y, const int *counter, int n)\n{\n"
        "    __shared__ int first;\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (threadIdx.x == 0)\n        first = atomicAdd((int *)counter, 1) < (int)gridDim.x;\n"
        "    __syncthreads();\n"
        "    if (first && i < n)\n        y[i] = a[i] * x[i] + b[i];\n}\n"
        "__global__ void back(const int *counter)\n{\n    *(int *)counter = 0;\n}\n";
    static const char plan[] = "{\"stitch\":1,\"buffers\":{\"counter\":{\"dtype\":\"i32\",\"shape\":[1]}},"
                               "\"prepare\":[{\"fill\":{\"buffer\":\"counter\",\"value\":0}}],"
                               "\"run\":[{\"kernel\":\"k\",\"grid\":[\"ceil_div(N, 256)\"],\"block\":[256],"
                               "\"args\":[\"x\",\"a\",\"b\",\"y\",\"counter\",{\"i32\":\"N\"}]},"
                               "{\"kernel\":\"back\",\"grid\":[1],\"block\":[1],\"args\":[\"counter\"]}]}";
    need_device();
    stitch_task *t = vector_task();
    for (int where = STITCH_VERIFY_HERE; where <= STITCH_VERIFY_WORKER; where++) {
        stitch_verify_options o = few();
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        o.where = where;
        o.profile = STITCH_PROFILE_NEVER;
        stitch_report *r = verify(t, source, plan, &o);
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        if (s.failed_stage)
            FAIL("failed: %s", stitch_report_text(r));
        CHECK_INT(s.isolated, where == STITCH_VERIFY_WORKER);
        CHECK_INT(json_integer_value(report_at(r, "exploit.steps_left_out_in_turn")), 2);
        stitch_report_free(r);
    }
    stitch_task_free(t);
}

TEST(a_slow_candidate)
{
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_real_device();
    stitch_task *t = vector_task();
    stitch_report *r = verify(t, VECTOR_KERNEL("float", SLEEP("3000") "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    if (s.failed_stage)
        FAIL("failed: %s", stitch_report_text(r));
    CHECK(s.median_us > 2900 && s.median_us < 4000);
    CHECK(s.speedup > 0 && s.speedup < 0.1);
    stitch_report_free(r);
    o.iterations = 1000;
    o.time_budget_ms = 200;
    r = verify(t, VECTOR_KERNEL("float", SLEEP("3000") "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    int64_t runs = json_integer_value(report_at(r, "time.candidate.runs"));
    CHECK(runs >= 10 && runs < 100);
    CHECK_HAS(stitch_report_text(r), "its time budget of 200 ms was spent");
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(a_candidate_that_outlives_the_deadline)
{
    stitch_verify_options o = few();
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_real_device();
    stitch_task *t = vector_task();

    stitch_report_free(
        verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o)); /* compile the rest */
    o.timeout_ms = 4000;
    stitch_report *r =
        verify(t, VECTOR_KERNEL("float", SLEEP("5000000") "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_CORRECT);
    CHECK_INT(s.status, STITCH_E_TIMEOUT);
    CHECK_HAS(message_of(r, STITCH_STAGE_CORRECT), "the program did not end in time");
    stitch_report_free(r);
    r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o); /* the device is free again */
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    stitch_report_free(r);
    stitch_task_free(t);
}

TEST(against_itself)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    need_real_device();
    stitch_task *t = vector_task();
    stitch_report *r =
        verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o); /* the baseline's source */
    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_NEAR(s.speedup, 1, 0.1);
    stitch_report_free(r);
    stitch_task_free(t);
}

/* ---- what only the simulator shows ------------------------------------------------------------------------------- */

TEST(findings_of_the_simulator)
{
    static const struct {
        const char *body, *message;
    } rows[] = {
        {"y[i] = a[i] * x[i + 1] + b[i];", "past its end"},
        {"y[i + 1 - 1] = a[i] * x[i] + b[i]; if (i == n - 1) y[n] = 0;", "past its end"},
        {"y[i] = a[i] * x[i] + b[i]; y[0] = i;", "two threads access global memory"},
    };
    stitch_verify_options o = few();
    need_device();
    if (!device.simulated)
        SKIP("needs the simulator");
    stitch_task *t = vector_task();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        char source[1000];
        snprintf(source, sizeof(source), VECTOR_KERNEL("float", "%s"), rows[i].body);
        stitch_report *r = verify(t, source, VECTOR_PLAN, &o);
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        if (s.failed_stage != STITCH_STAGE_SIMULATE)
            FAIL("%s: %s", rows[i].body, stitch_report_text(r));
        CHECK_HAS(message_of(r, STITCH_STAGE_SIMULATE), rows[i].message);
        CHECK_HAS(message_of(r, STITCH_STAGE_SIMULATE), "kernel k at program.cu:5");
        stitch_report_free(r);
    }
    stitch_task_free(t);
}

TEST_MAIN(RUN(a_right_candidate), RUN(wrong_candidates), RUN(layer_norm), RUN(softmax_without_the_maximum),
          RUN(states_live_from_run_to_run), RUN(callback_reference), RUN(callback_in_parts), RUN(recorded_tensors),
          RUN(a_seed_repeats_everything), RUN(can_be_cancelled), RUN(a_task_without_a_reference), RUN(without_a_device),
          RUN(wrong_only_when_timed), RUN(results_that_look_like_the_filling), RUN(not_repeatable),
          RUN(a_counter_that_each_run_sets_back), RUN(a_slow_candidate), RUN(a_candidate_that_outlives_the_deadline),
          RUN(against_itself), RUN(findings_of_the_simulator))
