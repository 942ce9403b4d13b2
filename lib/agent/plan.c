/* SPDX-License-Identifier: MIT
 *
 * Plans: parse, ask for one.
 */
#include "agent/agent.h"

enum { MAX_SUBTASKS = 64, MAX_TEXT = 16384 };

extern const char stitch__schema_plan_schema[];

/* Cleaned: a model wrote it, and hosts print it. */
static int read_text(const stitch_context *ctx, stitch__arena *arena, const json_t *obj, const stitch__jpath *at,
                     const char *key, const char **out, stitch_error **err)
{
    const char *text = NULL;
    stitch__buf b;
    int rc = stitch__json_string(ctx, obj, at, key, true, &text, err);
    if (rc)
        return rc;
    if (strlen(text) > MAX_TEXT) {
        stitch__jpath here = {at, key, 0};
        return stitch__json_err(ctx, &here, err, "longer than %d bytes", MAX_TEXT);
    }
    stitch__buf_init(&b, ctx);
    stitch__buf_puts(&b, "");
    stitch__buf_puts_clean(&b, text, strlen(text), MAX_TEXT);
    char *clean = stitch__buf_take(&b, NULL);
    *out = clean ? stitch__arena_strdup(arena, clean) : NULL;
    stitch_free(clean);
    return *out ? STITCH_OK : stitch__err_nomem(ctx, err);
}

static int check_after(const stitch_context *ctx, const json_t *list, const stitch_plan_doc *plan, size_t before,
                       const stitch__jpath *at, stitch_error **err)
{
    if (!list)
        return STITCH_OK;
    if (!json_is_array(list))
        return stitch__json_err(ctx, at, err, "expected a list of sub-task ids, found %s", stitch__json_type(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        stitch__jpath here = {at, NULL, i};
        const char *id = json_string_value(json_array_get(list, i));
        if (!id)
            return stitch__json_err(ctx, &here, err, "expected a sub-task id, found %s",
                                    stitch__json_type(json_array_get(list, i)));
        bool found = false;
        for (size_t k = 0; k < before && !found; k++)
            found = strcmp(plan->subtasks[k].id, id) == 0;
        if (!found)
            return stitch__json_err(ctx, &here, err, "'%s' is no earlier sub-task", id);
    }
    return STITCH_OK;
}

static int parse_subtask(const stitch_context *ctx, stitch_plan_doc *plan, size_t index, const json_t *obj,
                         const stitch__jpath *at, stitch_error **err)
{
    static const char *const keys[] = {"id", "level", "title", "goal", "after", NULL};
    stitch__subtask *s = &plan->subtasks[index];
    stitch__jpath after_at = {at, "after", 0}, level_at = {at, "level", 0}, id_at = {at, "id", 0};
    int rc;

    if ((rc = stitch__json_keys(ctx, obj, at, keys, err)) != STITCH_OK ||
        (rc = read_text(ctx, &plan->arena, obj, at, "id", &s->id, err)) != STITCH_OK ||
        (rc = read_text(ctx, &plan->arena, obj, at, "level", &s->level, err)) != STITCH_OK ||
        (rc = read_text(ctx, &plan->arena, obj, at, "title", &s->title, err)) != STITCH_OK ||
        (rc = read_text(ctx, &plan->arena, obj, at, "goal", &s->goal, err)) != STITCH_OK)
        return rc;
    if (strcmp(s->level, "system") != 0 && strcmp(s->level, "kernel") != 0)
        return stitch__json_err(ctx, &level_at, err, "expected \"system\" or \"kernel\"");
    if (!*s->id)
        return stitch__json_err(ctx, &id_at, err, "must not be empty");
    for (size_t i = 0; i < index; i++) {
        if (strcmp(plan->subtasks[i].id, s->id) == 0)
            return stitch__json_err(ctx, &id_at, err, "used twice");
    }
    return check_after(ctx, json_object_get(obj, "after"), plan, index, &after_at, err);
}

static int parse_into(const stitch_context *ctx, stitch_plan_doc *plan, const json_t *doc, stitch_error **err)
{
    static const char *const keys[] = {"stitch_plan", "strategy", "bottlenecks", "subtasks", NULL};
    stitch__jpath root_list = {NULL, "bottlenecks", 0}, root_tasks = {NULL, "subtasks", 0};
    int64_t version;
    int rc;

    if ((rc = stitch__json_keys(ctx, doc, NULL, keys, err)) != STITCH_OK ||
        (rc = stitch__json_int(ctx, doc, NULL, "stitch_plan", true, 1, 1, &version, err)) != STITCH_OK ||
        (rc = read_text(ctx, &plan->arena, doc, NULL, "strategy", &plan->strategy, err)) != STITCH_OK)
        return rc;
    const json_t *bottlenecks = json_object_get(doc, "bottlenecks"), *tasks = json_object_get(doc, "subtasks");
    if (bottlenecks && !json_is_array(bottlenecks))
        return stitch__json_err(ctx, &root_list, err, "expected a list of texts, found %s",
                                stitch__json_type(bottlenecks));
    for (size_t i = 0; i < json_array_size(bottlenecks); i++) {
        stitch__jpath here = {&root_list, NULL, i};
        if (!json_is_string(json_array_get(bottlenecks, i)))
            return stitch__json_err(ctx, &here, err, "expected a text, found %s",
                                    stitch__json_type(json_array_get(bottlenecks, i)));
    }
    if (!json_is_array(tasks) || json_array_size(tasks) == 0 || json_array_size(tasks) > MAX_SUBTASKS)
        return stitch__json_err(ctx, &root_tasks, err, "expected a list of 1 to %d sub-tasks", MAX_SUBTASKS);
    plan->subtasks = stitch__arena_array(&plan->arena, json_array_size(tasks), sizeof(*plan->subtasks));
    if (!plan->subtasks)
        return stitch__err_nomem(ctx, err);
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        stitch__jpath here = {&root_tasks, NULL, i};
        if ((rc = parse_subtask(ctx, plan, i, json_array_get(tasks, i), &here, err)) != STITCH_OK)
            return rc;
        plan->subtask_count = i + 1;
    }
    return STITCH_OK;
}

int stitch_plan_parse(stitch_context *ctx, const char *json, stitch_plan_doc **out, stitch_error **err)
{
    stitch_plan_doc *plan = NULL;
    json_t *doc = NULL;
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_plan_parse: out must not be NULL");
    *out = NULL;
    if (!ctx || !json)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_plan_parse: context and json must not be NULL");
    if ((rc = stitch__json_parse(ctx, json, strlen(json), 1u << 20, "plan", &doc, err)) != STITCH_OK)
        return rc;
    plan = stitch__calloc(ctx, 1, sizeof(*plan));
    if (!plan) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    plan->arena.ctx = ctx;
    if ((rc = parse_into(ctx, plan, doc, err)) != STITCH_OK) {
        stitch__err_domain(err, STITCH_DOMAIN_REPLY);
        goto out;
    }
    plan->json = stitch__json_dump(ctx, doc, 2);
    if (!plan->json) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    *out = plan;
    plan = NULL;
out:
    json_decref(doc);
    stitch_plan_free(plan);
    return rc;
}

void stitch_plan_free(stitch_plan_doc *plan)
{
    if (!plan)
        return;
    stitch__arena_free(&plan->arena);
    stitch_free(plan->json);
    stitch_free(plan);
}

const char *stitch_plan_json(const stitch_plan_doc *plan)
{
    return plan ? plan->json : NULL;
}

const char *stitch_plan_strategy(const stitch_plan_doc *plan)
{
    return plan ? plan->strategy : NULL;
}

size_t stitch_plan_subtask_count(const stitch_plan_doc *plan)
{
    return plan ? plan->subtask_count : 0;
}

int stitch_plan_subtask(const stitch_plan_doc *plan, size_t index, const char **id, const char **level,
                        const char **title, const char **goal)
{
    if (!plan || index >= plan->subtask_count)
        return STITCH_E_INVALID;
    const stitch__subtask *s = &plan->subtasks[index];
    if (id)
        *id = s->id;
    if (level)
        *level = s->level;
    if (title)
        *title = s->title;
    if (goal)
        *goal = s->goal;
    return STITCH_OK;
}

/* A plan comes as one ```json block, or (structured output) as nothing but the JSON. */
static int read_plan(stitch_context *ctx, const stitch_reply *reply, void *state, const char **instruction,
                     stitch_error **err)
{
    stitch_plan_doc **plan = state;
    const char *text = stitch_reply_text(reply);
    stitch__blocks blocks = {NULL, NULL, NULL};
    int rc;

    *instruction = "Answer again with exactly one ```json block in the form that was asked for, and nothing else.";
    const char *start = text + strspn(text, " \t\r\n");
    if (*start == '{')
        return stitch_plan_parse(ctx, start, plan, err);
    if ((rc = stitch__reply_split(ctx, text, &blocks, err)) != STITCH_OK)
        return rc;
    if (blocks.json)
        rc = stitch_plan_parse(ctx, blocks.json, plan, err);
    else
        rc = stitch__err_native(ctx, err, STITCH_E_REPLY, STITCH_DOMAIN_REPLY, 0,
                                "the reply holds no ```json block with the plan");
    stitch__blocks_free(&blocks);
    return rc;
}

int stitch_plan_options_init(stitch_plan_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_plan_options));
}

int stitch_plan(stitch_context *ctx, stitch_task *task, const stitch_plan_options *options, stitch_plan_doc **out,
                stitch_error **err)
{
    stitch_plan_options o = STITCH_PLAN_OPTIONS_INIT;
    char *interface = NULL, *device = NULL, *device_stable = NULL, *history = NULL, *history_stable = NULL,
         *prompt = NULL;
    char fingerprint[65];
    stitch_plan_doc *plan = NULL;
    stitch__answer answer = {.state = &plan};
    stitch__ask ask = {NULL, "plan", NULL, fingerprint, stitch__schema_plan_schema, 2, NULL, NULL, NULL, 0, read_plan};
    int rc;

    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_plan: out must not be NULL");
    *out = NULL;
    if (!ctx || !task)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_plan: context and task must not be NULL");
    if (options && (rc = stitch__options_copy(ctx, &o, sizeof(o), options, "stitch_plan_options", err)) != STITCH_OK)
        return rc;
    if (o.attempt_count && !o.attempts)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_plan: attempts must not be NULL when attempt_count is not 0");
    if ((rc = stitch__attempts_check(ctx, o.attempts, o.attempt_count, err)) != STITCH_OK)
        return rc;
    if ((rc = stitch__agent_model(ctx, STITCH_ROLE_PLANNER, &ask.model, err)) != STITCH_OK ||
        (rc = stitch__prompt_interface(ctx, task, &interface, err)) != STITCH_OK ||
        (rc = stitch__prompt_device(ctx, &device, &device_stable, err)) != STITCH_OK ||
        (rc = stitch__prompt_history(ctx, o.attempts, o.reports, o.attempt_count, &history, &history_stable, err)) !=
            STITCH_OK)
        goto out;
    stitch__var vars[] = {
        {"task_name", stitch_task_name(task), NULL},
        {"task_description", stitch_task_description(task), NULL},
        {"task_interface", interface, NULL},
        {"task_source", stitch_task_source(task), NULL},
        {"device", device, device_stable},
        {"trace", o.trace_summary, ""}, /* measured: a recording is good with it and without */
        {"previous_plan", stitch_plan_json(o.previous), NULL},
        {"history", history, history_stable},
    };
    if ((rc = stitch__prompt_render(ctx, "plan", vars, STITCH__COUNT(vars), &prompt, fingerprint, err)) != STITCH_OK)
        goto out;
    ask.prompt = prompt;
    ask.on_token = o.on_token;
    ask.userdata = o.userdata;
    ask.cancel = o.cancel;
    ask.timeout_ms = o.timeout_ms;
    if ((rc = stitch__ask_many(ctx, &ask, &answer, 1, err)) != STITCH_OK)
        goto out;
    rc = answer.status;
    if (rc == STITCH_OK) {
        if (answer.notice)
            stitch__log(ctx, STITCH_LOG_WARN, "plan: %s", answer.notice);
        *out = plan;
        plan = NULL;
    } else { /* whatever is wrong with it, the reply is what cannot be used */
        rc = stitch__err_native(ctx, err, STITCH_E_REPLY, STITCH_DOMAIN_REPLY, 0,
                                "the plan cannot be read after %d repairs: %s", answer.repairs,
                                stitch_error_message(answer.error));
    }
out:
    stitch_plan_free(plan);
    stitch__answer_clear(&answer);
    stitch_free(interface);
    stitch_free(device);
    stitch_free(device_stable);
    stitch_free(history);
    stitch_free(history_stable);
    stitch_free(prompt);
    return rc;
}
