/* SPDX-License-Identifier: MIT
 *
 * Small tasks with references, and candidates for them, for the tests of verify.
 */
#ifndef STITCH_TESTS_VERIFY_TASKS_H
#define STITCH_TESTS_VERIFY_TASKS_H

#include "device.h"
#include "json_path.h"
#include "verify/verify.h"

/* A C string as the inside of a JSON string. */
static char *json_text(const char *s)
{
    json_t *v = json_string(s);
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    json_decref(v);
    return text;
}

/* A task from its head (dims, tensors, tolerance), a reference in float64 and a baseline (NULL: none). */
static stitch_task *make_task(const char *head, const char *source, const char *plan, const char *baseline)
{
    stitch_task *t = NULL;
    char *quoted = json_text(source), *quoted_baseline = json_text(baseline ? baseline : "");
    size_t size = strlen(head) + strlen(quoted) + strlen(quoted_baseline) + 2 * strlen(plan) + 400;
    char *text = malloc(size);
    snprintf(
        text, size,
        "{\"stitch_task\":1,%s,\"reference\":{\"program\":{\"source\":{\"text\":%s},\"plan\":%s},\"outputs\":\"f64\"}%"
        "s%s%s%s%s}",
        head, quoted, plan,
        baseline ? ",\"baselines\":[{\"name\":\"plain\",\"precision\":\"f32\",\"program\":{\"source\":{\"text\":" : "",
        baseline ? quoted_baseline : "", baseline ? "},\"plan\":" : "", baseline ? plan : "", baseline ? "}}]" : "");
    CHECK_OK(stitch_task_parse(ctx, text, NULL, &t, &err));
    free(text);
    free(quoted);
    free(quoted_baseline);
    return t;
}

/* ---- y = a * x + b ----------------------------------------------------------------------------------------------- */

#define VECTOR_ARGS "[\"x\", \"a\", \"b\", \"y\", {\"i32\": \"N\"}]"
#define VECTOR_STEP "{\"kernel\":\"k\",\"grid\":[\"ceil_div(N, 256)\"],\"block\":[256],\"args\":" VECTOR_ARGS "}"
#define VECTOR_PLAN "{\"stitch\":1,\"run\":[" VECTOR_STEP "]}"
#define VECTOR_KERNEL(out, body)                                                                                       \
    "__global__ void k(const float *x, const float *a, const float *b, " out " *y, int n)\n{\n"                        \
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) {\n        " body "\n    }\n}\n"
#define VECTOR_HEAD                                                                                                    \
    "\"name\":\"vector\",\"dims\":{\"N\":4099},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"     \
    "\"weights\":[{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[\"N\"]},{\"name\":\"b\",\"dtype\":\"f32\",\"shape\":["  \
    "\"N\"]}],"                                                                                                        \
    "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"tolerance\":{\"atol\":1e-4,\"rtol\":1e-4},"  \
    "\"precision\":\"f32\""

__attribute__((unused)) static stitch_task *vector_task(void)
{
    return make_task(VECTOR_HEAD, VECTOR_KERNEL("double", "y[i] = (double)a[i] * x[i] + b[i];"), VECTOR_PLAN,
                     VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"));
}

__attribute__((unused)) static stitch_report *verify(stitch_task *t, const char *source, const char *plan,
                                                     const stitch_verify_options *options)
{
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    CHECK_OK(stitch_program_parse(ctx, source, plan, NULL, &p, &err));
    CHECK_OK(stitch_verify_program(ctx, t, p, options, &r, &err));
    stitch_program_free(p);
    return r;
}

/* A member of the report's JSON by path "correct.trials.0.seed"; the report's copy is kept until the next call. */
__attribute__((unused)) static const json_t *report_at(const stitch_report *r, const char *path)
{
    static json_t *root;
    const json_t *v = json_at(&root, stitch_report_json(r), path);

    if (!v)
        FAIL("the report has no such member");
    return v;
}

#endif
