/* SPDX-License-Identifier: MIT
 *
 * Plans: reading good and bad ones.
 */
#include "agent/agent.h"
#include "check.h"

static const char good[] = "{\"stitch_plan\":1,\"strategy\":\"fuse\",\"bottlenecks\":[\"bytes\"],\"subtasks\":["
                           "{\"id\":\"a\",\"level\":\"system\",\"title\":\"t\",\"goal\":\"g\",\"after\":[]},"
                           "{\"id\":\"b\",\"level\":\"kernel\",\"title\":\"u\",\"goal\":\"h\",\"after\":[\"a\"]}]}";

static stitch_context *context(void)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    return ctx;
}

TEST(reads_a_plan)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_plan_doc *plan = NULL;
    const char *id, *level, *title, *goal;
    CHECK_OK(stitch_plan_parse(ctx, good, &plan, &err));
    CHECK_STR(stitch_plan_strategy(plan), "fuse");
    CHECK_INT(stitch_plan_subtask_count(plan), 2);
    CHECK_OK(stitch_plan_subtask(plan, 1, &id, &level, &title, &goal));
    CHECK_STR(id, "b");
    CHECK_STR(level, "kernel");
    CHECK_STR(title, "u");
    CHECK_STR(goal, "h");
    CHECK_INT(stitch_plan_subtask(plan, 2, &id, NULL, NULL, NULL), STITCH_E_INVALID);
    /* What it prints, it reads. */
    stitch_plan_doc *again = NULL;
    CHECK_OK(stitch_plan_parse(ctx, stitch_plan_json(plan), &again, &err));
    CHECK_STR(stitch_plan_json(again), stitch_plan_json(plan));
    stitch_plan_free(again);
    stitch_plan_free(plan);
    stitch_plan_free(NULL);
    stitch_context_free(ctx);
}

TEST(refuses_bad_plans)
{
#define TASK(id, level, after)                                                                                         \
    "{\"id\":\"" id "\",\"level\":\"" level "\",\"title\":\"t\",\"goal\":\"g\",\"after\":" after "}"
#define PLAN(tasks) "{\"stitch_plan\":1,\"strategy\":\"s\",\"bottlenecks\":[],\"subtasks\":[" tasks "]}"
    static const struct {
        const char *text, *message;
        int status;
    } cases[] = {
        {"", "plan, line 1", STITCH_E_FORMAT},
        {"[]", "expected an object, found a list", STITCH_E_FORMAT},
        {"{\"stitch_plan\":2,\"strategy\":\"s\",\"subtasks\":[]}", "stitch_plan: 2 is not", STITCH_E_FORMAT},
        {"{\"stitch_plan\":1,\"subtasks\":[]}", "'strategy' is missing", STITCH_E_FORMAT},
        {"{\"stitch_plan\":1,\"strategy\":\"s\",\"sub_tasks\":[]}", "did you mean 'subtasks'", STITCH_E_FORMAT},
        {PLAN(""), "subtasks: expected a list of 1", STITCH_E_FORMAT},
        {PLAN("3"), "subtasks[0]: expected an object, found an integer", STITCH_E_FORMAT},
        {PLAN(TASK("a", "grid", "[]")), "subtasks[0].level", STITCH_E_FORMAT},
        {PLAN(TASK("", "kernel", "[]")), "subtasks[0].id: must not be empty", STITCH_E_FORMAT},
        {PLAN(TASK("a", "kernel", "[]") "," TASK("a", "kernel", "[]")), "subtasks[1].id: used twice", STITCH_E_FORMAT},
        {PLAN(TASK("a", "kernel", "[\"b\"]")), "subtasks[0].after[0]: 'b' is no earlier", STITCH_E_FORMAT},
        {PLAN(TASK("a", "kernel", "\"b\"")), "subtasks[0].after: expected a list", STITCH_E_FORMAT},
        {"{\"stitch_plan\":1,\"strategy\":\"s\",\"bottlenecks\":[1],\"subtasks\":[]}",
         "bottlenecks[0]: expected a text", STITCH_E_FORMAT},
    };
    stitch_context *ctx = context();
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        stitch_plan_doc *plan = NULL;
        CHECK_ERR(stitch_plan_parse(ctx, cases[i].text, &plan, &err), cases[i].status, cases[i].message);
        CHECK(plan == NULL);
    }
    stitch_context_free(ctx);
}

TEST(prompts_can_be_overridden)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    CHECK_HAS(stitch_context_prompt(ctx, "plan"), "{{task_name}}");
    CHECK_OK(stitch_context_set_prompt(ctx, "plan", "short", &err));
    CHECK_STR(stitch_context_prompt(ctx, "plan"), "short");
    CHECK_OK(stitch_context_set_prompt(ctx, "plan", NULL, &err));
    CHECK_HAS(stitch_context_prompt(ctx, "plan"), "{{task_name}}");
    CHECK_ERR(stitch_context_set_prompt(ctx, "plna", "x", &err), STITCH_E_NOT_FOUND, "plna");
    CHECK_ERR(stitch_context_set_prompt(ctx, "plan", "\xff", &err), STITCH_E_FORMAT, "UTF-8");
    CHECK(stitch_context_prompt(ctx, "plna") == NULL);
    CHECK_ERR(stitch_context_set_model(ctx, 9, NULL, &err), STITCH_E_INVALID, "no role");
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(reads_a_plan), RUN(refuses_bad_plans), RUN(prompts_can_be_overridden))
