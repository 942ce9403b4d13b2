/* SPDX-License-Identifier: MIT
 *
 * Planning and coding where every allocation of the context fails in turn: an error, no crash, nothing left behind.
 */
#include <stdio.h>

#include "agent/agent.h"
#include "check.h"

#define CODE                                                                                                           \
    "Notes.\n```cuda\nextern \"C\" __global__ void k(const float *x, float *y) { y[0] = x[0]; }\n```\n"                \
    "```json\n{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[32],\"args\":[\"x\",\"y\"]}]}\n```\n"
#define PLAN                                                                                                           \
    "{\"stitch_plan\":1,\"strategy\":\"s\",\"bottlenecks\":[\"b\"],\"subtasks\":[{\"id\":\"a\",\"level\":\"kernel\","  \
    "\"title\":\"t\",\"goal\":\"g\",\"after\":[]}]}"

static const char *const answers[] = {"no plan", PLAN, "no code", "```json\n{}\n```", CODE, CODE};

typedef struct meter {
    int64_t calls, refuse_at, live;
    size_t answered;
} meter;

static void *meter_alloc(size_t size, void *userdata)
{
    meter *m = userdata;
    void *ptr = m->calls++ == m->refuse_at ? NULL : malloc(size);
    m->live += ptr != NULL;
    return ptr;
}

static void *meter_realloc(void *ptr, size_t size, void *userdata)
{
    meter *m = userdata;
    return m->calls++ == m->refuse_at ? NULL : realloc(ptr, size);
}

static void meter_free(void *ptr, void *userdata)
{
    meter *m = userdata;
    m->live--;
    free(ptr);
}

static int answer(const stitch_request *r, stitch_reply *reply, void *userdata)
{
    meter *m = userdata;
    (void)r;
    if (m->answered == STITCH__COUNT(answers))
        return STITCH_E_INTERNAL;
    return stitch_reply_set(reply, answers[m->answered++], NULL, 10, 10);
}

/* What host programs set up before; refused allocations in it are counted like the others. */
static int set_up(stitch_context *ctx, meter *m, stitch_task **task, stitch_model **model, stitch_error **err)
{
    static const char *const shape[] = {"N"};
    int rc = stitch_task_new(ctx, "copy", task, err);
    if (rc == STITCH_OK)
        rc = stitch_task_set_dim(*task, "N", 1, err);
    if (rc == STITCH_OK)
        rc = stitch_task_add_tensor(*task, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, shape, NULL, err);
    if (rc == STITCH_OK)
        rc = stitch_task_add_tensor(*task, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, err);
    if (rc == STITCH_OK)
        rc = stitch_model_new_host(ctx, answer, m, model, err);
    return rc ? rc : stitch_context_set_model(ctx, STITCH_ROLE_CODER, *model, err);
}

static int scenario(meter *m, stitch_error **err)
{
    stitch_allocator a = {sizeof(a), meter_alloc, meter_realloc, meter_free, m};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_attempt attempt = STITCH_ATTEMPT_INIT;
    stitch_plan_options po = STITCH_PLAN_OPTIONS_INIT;
    stitch_code_options co = STITCH_CODE_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_task *task = NULL;
    stitch_model *model = NULL;
    stitch_plan_doc *plan = NULL;
    stitch_candidate *c[2] = {NULL}, *next = NULL;
    stitch_report *report = NULL;

    o.allocator = &a;
    o.device = "sim:sm_90a";
    o.cache_dir = "";
    int rc = stitch_context_new(&ctx, &o, err);
    if (rc == STITCH_OK)
        rc = set_up(ctx, m, &task, &model, err);
    po.attempts = &attempt;
    po.attempt_count = 1;
    if (rc == STITCH_OK)
        rc = stitch_plan(ctx, task, &po, &plan, err);
    co.plan = plan;
    co.subtask = 0;
    co.max_format_repairs = -1;
    if (rc == STITCH_OK) /* two candidates that cannot be read */
        rc = stitch_code(ctx, task, &co, 2, c, err);
    if (rc == STITCH_OK && c[0])
        rc = stitch_verify(ctx, task, c[0], NULL, &report, err);
    co.action = STITCH_ACTION_REPAIR_COMPILE;
    co.previous = c[0];
    co.report = report;
    co.best = c[1];
    if (rc == STITCH_OK && report)
        rc = stitch_code(ctx, task, &co, 1, &next, err);
    if (rc == STITCH_OK && next && !stitch_candidate_program(next))
        rc = stitch__err_nomem(ctx, err); /* its format error says so */
    stitch_candidate_free(next);
    stitch_report_free(report);
    stitch_candidate_free(c[0]);
    stitch_candidate_free(c[1]);
    stitch_plan_free(plan);
    stitch_model_free(model);
    stitch_task_free(task);
    stitch_context_free(ctx);
    return rc;
}

TEST(each_allocation_fails_once)
{
    stitch_error *err = NULL;
    meter first = {0, -1, 0, 0};
    int rc = scenario(&first, &err);
    if (rc == STITCH_E_NO_DEVICE || rc == STITCH_E_NO_LIBRARY) {
        stitch_error_free(err);
        SKIP("needs the simulator");
    }
    CHECK_OK(rc);
    CHECK_INT(first.answered, 5);
    CHECK_INT(first.live, 0);
    CHECK(first.calls > 200);
    for (int64_t n = 0; n < first.calls; n++) {
        meter m = {0, n, 0, 0};
        rc = scenario(&m, &err);
        /* What is optional (a log line, an error's own text) may be left out. */
        if (rc != STITCH_OK && rc != STITCH_E_NOMEM)
            FAIL("call %" PRId64 " refused: %s: %s", n, stitch_status_name(rc), stitch_error_message(err));
        if (rc != STITCH_OK && !err)
            FAIL("call %" PRId64 " refused: no error", n);
        stitch_error_free(err);
        err = NULL;
        if (m.live != 0)
            FAIL("call %" PRId64 " refused: %" PRId64 " blocks are left", n, m.live);
    }
}

TEST_MAIN(RUN(each_allocation_fails_once))
