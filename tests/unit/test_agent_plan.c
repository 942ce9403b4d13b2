/* SPDX-License-Identifier: MIT
 *
 * Plans: reading good and bad ones.
 */
#include "agent/agent.h"
#include "check.h"
#include "model/model.h"

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

/* Hosts print what a model wrote. */
TEST(texts_are_clean)
{
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_plan_doc *plan = NULL;
    const char *id, *level, *title, *goal;
    CHECK_OK(stitch_plan_parse(
        ctx,
        "{\"stitch_plan\":1,\"strategy\":\"a\\u001b[2J\\u202eb\\nc\",\"bottlenecks\":[],\"subtasks\":["
        "{\"id\":\"a\",\"level\":\"system\",\"title\":\"t\\r\",\"goal\":\"\\u009b2J\",\"after\":[]}]}",
        &plan, &err));
    CHECK_STR(stitch_plan_strategy(plan), "a?[2J?b\nc");
    CHECK_OK(stitch_plan_subtask(plan, 0, &id, &level, &title, &goal));
    CHECK_STR(title, "t?");
    CHECK_STR(goal, "?2J");
    stitch_plan_free(plan);
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
    char text[16384 + 200]; /* a model's words go on into other prompts */
    for (int more = 0; more < 2; more++) {
        stitch_error *err = NULL;
        stitch_plan_doc *plan = NULL;
        snprintf(text, sizeof(text),
                 "{\"stitch_plan\":1,\"strategy\":\"%0*d\",\"subtasks\":[" TASK("a", "kernel", "[]") "]}", 16384 + more,
                 0);
        if (more)
            CHECK_ERR(stitch_plan_parse(ctx, text, &plan, &err), STITCH_E_FORMAT, "strategy: longer than 16384 bytes");
        else
            CHECK_OK(stitch_plan_parse(ctx, text, &plan, &err));
        stitch_plan_free(plan);
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

static int plan_badly(const stitch_request *request, stitch_reply *reply, void *userdata)
{
    (void)request;
    return stitch_reply_set(reply, userdata, NULL, -1, -1);
}

/* Of a model, what is no plan is a reply that cannot be used, whatever is wrong with it. */
TEST(a_model_that_writes_no_plan)
{
    static char replies[][32] = {"no", "```json\n{\"stitch\":1}\n```\n", "```json\n{\n```\n", "```json\n"};
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_task *task = NULL;
    CHECK_OK(stitch_task_new(ctx, "t", &task, &err));
    for (size_t i = 0; i < STITCH__COUNT(replies); i++) {
        stitch_plan_doc *plan = NULL;
        stitch_model *model = NULL;
        CHECK_OK(stitch_model_new_host(ctx, plan_badly, replies[i], &model, &err));
        CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, model, &err));
        CHECK_ERR(stitch_plan(ctx, task, NULL, &plan, &err), STITCH_E_REPLY,
                  "the plan cannot be read after 2 repairs: ");
        CHECK(plan == NULL);
        CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, NULL, NULL));
        stitch_model_free(model);
    }
    stitch_task_free(task);
    stitch_context_free(ctx);
}

typedef struct seen {
    char fingerprint[65];
    bool profile; /* the prompt has it */
} seen;

static int note_request(const stitch_request *request, stitch_reply *reply, void *userdata)
{
    seen *s = userdata;
    snprintf(s->fingerprint, sizeof(s->fingerprint), "%s", request->fingerprint);
    s->profile = strstr(request->messages[request->message_count - 1].content, "memory-bound in ln") != NULL;
    return stitch_reply_set(reply, good, NULL, -1, -1);
}

/* A recording that was made where nothing could be profiled is good where something can, and the other way round. */
TEST(a_profile_is_in_the_prompt_and_not_in_its_fingerprint)
{
    static const char *const profiles[] = {NULL, "memory-bound in ln: 12 us", "memory-bound in ln: 13 us"};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    stitch_model *model = NULL;
    stitch_task *task = NULL;
    seen asked[STITCH__COUNT(profiles)];

    o.device = "sim:sm_90a";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    CHECK_OK(stitch_task_new(ctx, "t", &task, &err));
    for (size_t i = 0; i < STITCH__COUNT(profiles); i++) {
        stitch_plan_options options = STITCH_PLAN_OPTIONS_INIT;
        stitch_plan_doc *plan = NULL;
        options.trace_summary = profiles[i];
        CHECK_OK(stitch_model_new_host(ctx, note_request, &asked[i], &model, &err));
        CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_PLANNER, model, &err));
        CHECK_OK(stitch_plan(ctx, task, &options, &plan, &err));
        CHECK(asked[i].profile == (profiles[i] != NULL));
        CHECK_STR(asked[i].fingerprint, asked[0].fingerprint);
        CHECK_INT(strlen(asked[i].fingerprint), 64);
        stitch_plan_free(plan);
        CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_PLANNER, NULL, &err));
        stitch_model_free(model);
    }
    stitch_task_free(task);
    stitch_context_free(ctx);
}

static int end_early(const stitch_request *request, stitch_reply *reply, void *userdata)
{
    const char *const *finish = userdata;
    if (request->message_count > 2 && **finish != 's') /* what the model is told, too */
        CHECK_HAS(request->messages[request->message_count - 1].content, **finish == 'l' ? "token limit" : *finish);
    int rc = stitch_reply_set(reply, "", NULL, -1, -1);
    return rc ? rc : stitch__reply_text_set(reply, &reply->finish, *finish, strlen(*finish));
}

/* A reply that the endpoint ended is not merely one without a plan. */
TEST(says_how_a_reply_ended)
{
    static const char *const cases[][2] = {
        {"length", "```json block with the plan; the reply was cut off at its token limit (max_tokens)"},
        {"content_filter", "; the endpoint ended the reply with finish_reason \"content_filter\""},
    };
    stitch_error *err = NULL;
    stitch_context *ctx = context();
    stitch_task *task = NULL;
    stitch_plan_doc *plan = NULL;
    const char *finish = "";
    stitch_model *model = NULL;
    CHECK_OK(stitch_task_new(ctx, "t", &task, &err));
    CHECK_OK(stitch_model_new_host(ctx, end_early, &finish, &model, &err));
    CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, model, &err));
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        finish = cases[i][0];
        CHECK_ERR(stitch_plan(ctx, task, NULL, &plan, &err), STITCH_E_REPLY, cases[i][1]);
    }
    finish = "stop";
    CHECK_INT(stitch_plan(ctx, task, NULL, &plan, &err), STITCH_E_REPLY);
    CHECK(strstr(stitch_error_message(err), "finish_reason") == NULL);
    stitch_error_free(err);
    CHECK_OK(stitch_context_set_model(ctx, STITCH_ROLE_CODER, NULL, NULL));
    stitch_model_free(model);
    stitch_task_free(task);
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(reads_a_plan), RUN(texts_are_clean), RUN(refuses_bad_plans), RUN(prompts_can_be_overridden),
          RUN(a_profile_is_in_the_prompt_and_not_in_its_fingerprint), RUN(a_model_that_writes_no_plan),
          RUN(says_how_a_reply_ended))
