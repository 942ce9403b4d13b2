/* SPDX-License-Identifier: MIT
 *
 * stitch_plan() and stitch_code() with a scripted model: prompts, format repairs, several candidates, failures.
 */
#include <stdio.h>

#include "agent/agent.h"
#include "check.h"

#define CUDA                                                                                                           \
    "```cuda\nextern \"C\" __global__ void k(const float *x, float *y, int n)\n{\n    int i = threadIdx.x;\n    if "   \
    "(i < n)\n        y[i] = 2 * x[i];\n}\n```\n"
#define JSON                                                                                                           \
    "```json\n{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[1],\"block\":[32],\"args\":[\"x\",\"y\",{\"i32\":"    \
    "\"N\"}]}]}\n```\n"
#define BAD_JSON "```json\n{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"gird\":[1],\"block\":[32],\"args\":[]}]}\n```\n"
#define PLAN                                                                                                           \
    "{\"stitch_plan\":1,\"strategy\":\"double "                                                                        \
    "it\",\"bottlenecks\":[],\"subtasks\":[{\"id\":\"a\",\"level\":\"kernel\",\"title\":\"t\",\"goal\":\"g\","         \
    "\"after\":[]}]}"

enum { MAX_CALLS = 16 };

/* Answers from a list; what was asked is kept. "!" and "?" fail instead. */
typedef struct script {
    const char *answers[MAX_CALLS];
    int calls;
    char *asked[MAX_CALLS], *said[MAX_CALLS]; /* the last message; the model's first */
    char label[MAX_CALLS][64];
    char fingerprint[MAX_CALLS][65];
    size_t messages[MAX_CALLS];
} script;

static int answer(const stitch_request *r, stitch_reply *reply, void *userdata)
{
    script *s = userdata;
    if (s->calls == MAX_CALLS || !s->answers[s->calls])
        return STITCH_E_INTERNAL;
    int i = s->calls++;
    s->asked[i] = strdup(r->messages[r->message_count - 1].content);
    s->said[i] = r->message_count > 2 ? strdup(r->messages[2].content) : NULL;
    s->messages[i] = r->message_count;
    snprintf(s->label[i], sizeof(s->label[i]), "%s", r->label);
    snprintf(s->fingerprint[i], sizeof(s->fingerprint[i]), "%s", r->fingerprint);
    if (strcmp(s->answers[i], "!") == 0)
        return STITCH_E_HTTP;
    if (strcmp(s->answers[i], "?") == 0)
        return STITCH_E_FORMAT;
    return stitch_reply_set(reply, s->answers[i], NULL, 100, 10);
}

static stitch_error *err;
static stitch_context *ctx;
static stitch_task *task;
static stitch_model *model;
static script s;

static void set_up(void)
{
    static const char *const shape[] = {"N"};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    memset(&s, 0, sizeof(s));
    o.device = "sim:sm_90a";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    if (stitch_device_query(ctx, &info, &err) != STITCH_OK) {
        stitch_error_free(err);
        err = NULL;
        stitch_context_free(ctx);
        SKIP("needs the simulator");
    }
    CHECK_OK(stitch_task_new(ctx, "double", &task, &err));
    CHECK_OK(stitch_task_set_dim(task, "N", 32, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(task, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_set_text(task, "y is twice x", "y = 2 * x  # {{task_name}} stays as it is", &err));
    CHECK_OK(stitch_model_new_host(ctx, answer, &s, &model, &err));
    CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, model, &err));
}

static void tear_down(void)
{
    for (int i = 0; i < s.calls; i++) {
        free(s.asked[i]);
        free(s.said[i]);
    }
    stitch_model_free(model);
    stitch_task_free(task);
    stitch_context_free(ctx);
}

TEST(a_plan)
{
    stitch_plan_doc *plan = NULL;
    set_up();
    s.answers[0] = "Thinking.\n```json\n" PLAN "\n```\n";
    CHECK_OK(stitch_plan(ctx, task, NULL, &plan, &err));
    CHECK_STR(stitch_plan_strategy(plan), "double it");
    CHECK_STR(s.label[0], "plan");
    CHECK_INT(s.messages[0], 2);
    CHECK_HAS(s.asked[0], "# Task: double");
    CHECK_HAS(s.asked[0], "y is twice x");
    CHECK_HAS(s.asked[0], "y = 2 * x  # {{task_name}} stays as it is");
    CHECK_HAS(s.asked[0], "`x` f32 [N] = [32]");
    CHECK_HAS(s.asked[0], "sm_90a");
    CHECK(!strstr(s.asked[0], "The plan so far"));
    stitch_plan_free(plan);
    tear_down();
}

TEST(a_plan_that_is_nothing_but_json_and_one_that_needs_repair)
{
    stitch_plan_doc *plan = NULL, *next = NULL;
    set_up();
    s.answers[0] = "  " PLAN;
    CHECK_OK(stitch_plan(ctx, task, NULL, &plan, &err));
    s.answers[1] = "no plan at all";
    s.answers[2] = "```json\n{\"stitch_plan\":1}\n```";
    s.answers[3] = "```json\n" PLAN "\n```";
    stitch_attempt attempt = STITCH_ATTEMPT_INIT;
    attempt.action = STITCH_ACTION_DRAFT;
    attempt.failed_stage = STITCH_STAGE_COMPILE;
    stitch_plan_options o = STITCH_PLAN_OPTIONS_INIT;
    o.previous = plan;
    o.attempts = &attempt;
    o.attempt_count = 1;
    CHECK_OK(stitch_plan(ctx, task, &o, &next, &err));
    CHECK_HAS(s.asked[1], "Attempt 1 (draft): failed in stage compile");
    CHECK_HAS(s.asked[2], "no ```json block");
    CHECK_HAS(s.asked[3], "'strategy' is missing");
    CHECK_STR(s.label[2], "plan:format");
    CHECK_INT(s.messages[2], 4);
    CHECK(strcmp(s.fingerprint[1], s.fingerprint[2]) != 0);
    stitch_plan_free(plan);
    stitch_plan_free(next);
    /* Three bad answers in a row: the reason is passed on. */
    s.answers[4] = s.answers[5] = s.answers[6] = "nothing";
    CHECK_ERR(stitch_plan(ctx, task, NULL, &plan, &err), STITCH_E_REPLY, "after 2 repairs");
    CHECK(plan == NULL);
    tear_down();
}

static int code(size_t count, stitch_candidate **out)
{
    stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
    return stitch_code(ctx, task, &o, count, out, &err);
}

TEST(a_draft)
{
    stitch_candidate *c = NULL;
    set_up();
    s.answers[0] = "Simple.\n" CUDA JSON;
    CHECK_OK(code(1, &c));
    CHECK(stitch_candidate_program(c) != NULL);
    CHECK_HAS(stitch_program_source(stitch_candidate_program(c)), "2 * x[i]");
    CHECK_STR(stitch_candidate_notes(c), "Simple.\n");
    CHECK_INT(stitch_candidate_tokens(c), 110);
    CHECK_INT(stitch_candidate_format_repairs(c), 0);
    CHECK_STR(s.label[0], "code:draft");
    CHECK_HAS(s.asked[0], "# Program format");
    stitch_candidate_free(c);
    tear_down();
}

TEST(repairs_ask_for_the_part_that_is_wrong)
{
    stitch_candidate *c = NULL;
    set_up();
    s.answers[0] = CUDA BAD_JSON;
    s.answers[1] = JSON;
    CHECK_OK(code(1, &c));
    CHECK(stitch_candidate_program(c) != NULL);
    CHECK_INT(stitch_candidate_format_repairs(c), 1);
    CHECK_INT(stitch_candidate_tokens(c), 220);
    CHECK_HAS(s.asked[1], "did you mean 'grid'");
    CHECK_HAS(s.asked[1], "```json block alone");
    stitch_candidate_free(c);
    s.answers[2] = JSON;
    s.answers[3] = CUDA;
    CHECK_OK(code(1, &c));
    CHECK(stitch_candidate_program(c) != NULL);
    CHECK_HAS(s.asked[3], "missing ```cuda block");
    stitch_candidate_free(c);
    tear_down();
}

TEST(a_repair_sees_all_tries)
{
    /* The first reply had the code, the second the launch plan alone: without the first, the third knows no kernel. */
    stitch_candidate *c = NULL;
    set_up();
    s.answers[0] = CUDA BAD_JSON;
    s.answers[1] = BAD_JSON;
    s.answers[2] = JSON;
    CHECK_OK(code(1, &c));
    CHECK(stitch_candidate_program(c) != NULL);
    CHECK_INT(s.messages[2], 6);
    CHECK_HAS(s.said[2], "2 * x[i]");
    stitch_candidate_free(c);
    tear_down();
}

TEST(a_model_that_fails_while_it_repairs)
{
    stitch_candidate *c[2] = {NULL};
    stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
    set_up();
    s.answers[0] = "nothing";
    s.answers[1] = "?"; /* the model's own failure looks like an unreadable reply */
    CHECK_ERR(code(1, c), STITCH_E_FORMAT, "host's model failed");
    CHECK(!c[0]);
    s.answers[2] = CUDA JSON;
    s.answers[3] = "nothing";
    s.answers[4] = "?";
    CHECK_OK(code(2, c));
    CHECK(stitch_candidate_program(c[0]) && !c[1]);
    stitch_candidate_free(c[0]);
    o.max_format_repairs = 17;
    CHECK_ERR(stitch_code(ctx, task, &o, 1, c, &err), STITCH_E_INVALID, "max_format_repairs");
    tear_down();
}

TEST(a_history_of_wrong_results)
{
    stitch_plan_doc *plan = NULL, *next = NULL;
    stitch_attempt attempt = STITCH_ATTEMPT_INIT;
    stitch_plan_options o = STITCH_PLAN_OPTIONS_INIT;
    set_up();
    CHECK_OK(stitch_plan_parse(ctx, PLAN, &plan, &err));
    attempt.action = STITCH_ACTION_DRAFT;
    o.previous = plan;
    o.attempts = &attempt;
    o.attempt_count = 1;
    s.answers[0] = PLAN;
    CHECK_OK(stitch_plan(ctx, task, &o, &next, &err));
    CHECK_HAS(s.asked[0], "Attempt 1 (draft): wrong results.");
    stitch_plan_free(next);
    attempt.struct_size = 8;
    CHECK_ERR(stitch_plan(ctx, task, &o, &next, &err), STITCH_E_INVALID, "STITCH_ATTEMPT_INIT");
    attempt = (stitch_attempt)STITCH_ATTEMPT_INIT;
    attempt.failed_stage = 99;
    CHECK_ERR(stitch_plan(ctx, task, &o, &next, &err), STITCH_E_INVALID, "99 is no stage");
    stitch_plan_free(plan);
    tear_down();
}

TEST(a_reply_that_never_parses_is_a_failed_attempt)
{
    stitch_candidate *c = NULL;
    stitch_report *r = NULL;
    stitch_report_summary summary = STITCH_REPORT_SUMMARY_INIT;
    set_up();
    s.answers[0] = s.answers[1] = s.answers[2] = "I cannot do that.";
    CHECK_OK(code(1, &c));
    CHECK(stitch_candidate_program(c) == NULL);
    CHECK_STR(stitch_candidate_reply(c), "I cannot do that.");
    CHECK_INT(stitch_candidate_format_repairs(c), 2);
    CHECK_OK(stitch_verify(ctx, task, c, NULL, &r, &err));
    stitch_report_summary_get(r, &summary);
    CHECK_INT(summary.failed_stage, STITCH_STAGE_FORMAT);
    /* It can be revised like any other. */
    stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
    stitch_candidate *next = NULL;
    o.action = STITCH_ACTION_REPAIR_COMPILE;
    o.previous = c;
    o.report = r;
    s.answers[3] = CUDA JSON;
    CHECK_OK(stitch_code(ctx, task, &o, 1, &next, &err));
    CHECK_HAS(s.asked[3], "I cannot do that.");
    CHECK_STR(s.label[3], "code:repair_compile");
    stitch_candidate_free(next);
    stitch_report_free(r);
    stitch_candidate_free(c);
    tear_down();
}

TEST(several_at_once)
{
    stitch_candidate *c[3] = {NULL};
    set_up();
    s.answers[0] = CUDA JSON;
    s.answers[1] = "!";
    s.answers[2] = CUDA;
    s.answers[3] = JSON; /* the repair of the third */
    CHECK_OK(code(3, c));
    CHECK(c[0] && stitch_candidate_program(c[0]));
    CHECK(c[1] == NULL);
    CHECK(c[2] && stitch_candidate_program(c[2]));
    CHECK_INT(stitch_candidate_format_repairs(c[2]), 1);
    stitch_candidate_free(c[0]);
    stitch_candidate_free(c[2]);
    s.answers[4] = s.answers[5] = "!";
    CHECK_ERR(code(2, c), STITCH_E_HTTP, "host's model failed");
    CHECK(!c[0] && !c[1]);
    tear_down();
}

TEST(wrong_calls)
{
    stitch_candidate *c = NULL;
    stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
    set_up();
    CHECK_ERR(stitch_code(ctx, task, NULL, 0, &c, &err), STITCH_E_INVALID, "count");
    CHECK_ERR(stitch_code(ctx, NULL, NULL, 1, &c, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_code(ctx, task, NULL, 257, &c, &err), STITCH_E_INVALID, "count must be 1 to 256");
    o.max_format_repairs = -2;
    CHECK_ERR(stitch_code(ctx, task, &o, 1, &c, &err), STITCH_E_INVALID, "max_format_repairs");
    o.max_format_repairs = STITCH__MAX_REPAIRS + 1;
    CHECK_ERR(stitch_code(ctx, task, &o, 1, &c, &err), STITCH_E_INVALID, "max_format_repairs");
    o.max_format_repairs = 0;
    o.action = STITCH_ACTION_OPTIMISE;
    CHECK_ERR(stitch_code(ctx, task, &o, 1, &c, &err), STITCH_E_INVALID, "needs the previous candidate");
    o.action = STITCH_ACTION_STOP;
    CHECK_ERR(stitch_code(ctx, task, &o, 1, &c, &err), STITCH_E_INVALID, "writes no code");
    o.action = STITCH_ACTION_DRAFT;
    o.subtask = 2;
    CHECK_ERR(stitch_code(ctx, task, &o, 1, &c, &err), STITCH_E_INVALID, "no sub-task 2");
    CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, NULL, &err));
    CHECK_ERR(code(1, &c), STITCH_E_STATE, "no model for the coder");
    CHECK_ERR(stitch_candidate_from_reply(ctx, "x", &c, &err), STITCH_E_REPLY, "no ```cuda block");
    CHECK_ERR(stitch_candidate_from_reply(ctx, CUDA, &c, &err), STITCH_E_REPLY, "no ```json block");
    CHECK_ERR(stitch_candidate_from_reply(ctx, CUDA BAD_JSON, &c, &err), STITCH_E_FORMAT, "gird");
    CHECK(c == NULL);
    stitch_context_cancel(ctx);
    CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, model, &err));
    CHECK_ERR(code(1, &c), STITCH_E_CANCELLED, "cancelled");
    tear_down();
}

TEST(fingerprints_ignore_figures)
{
    /* A report's figures change from run to run, what it says does not. */
    char device_a[65], device_b[65], *prompt = NULL;
    set_up();
    stitch__var vars[] = {{"error", "12.5 us", "(figure)"}, {"instruction", "x", NULL}};
    CHECK_OK(stitch__prompt_render(ctx, "format_repair", vars, 2, &prompt, device_a, &err));
    CHECK_HAS(prompt, "12.5 us");
    stitch_free(prompt);
    vars[0].value = "99 us";
    CHECK_OK(stitch__prompt_render(ctx, "format_repair", vars, 2, &prompt, device_b, &err));
    stitch_free(prompt);
    CHECK_STR(device_a, device_b);
    vars[1].value = "y";
    CHECK_OK(stitch__prompt_render(ctx, "format_repair", vars, 2, &prompt, device_b, &err));
    stitch_free(prompt);
    CHECK(strcmp(device_a, device_b) != 0);
    tear_down();
}

TEST_MAIN(RUN(a_plan), RUN(a_plan_that_is_nothing_but_json_and_one_that_needs_repair), RUN(a_draft),
          RUN(repairs_ask_for_the_part_that_is_wrong), RUN(a_repair_sees_all_tries),
          RUN(a_model_that_fails_while_it_repairs), RUN(a_history_of_wrong_results),
          RUN(a_reply_that_never_parses_is_a_failed_attempt), RUN(several_at_once), RUN(wrong_calls),
          RUN(fingerprints_ignore_figures))
