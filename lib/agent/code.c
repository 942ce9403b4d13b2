/* SPDX-License-Identifier: MIT
 *
 * stitch_code(): has the coder write or revise a program.
 */
#include "agent/agent.h"

/* What is kept of one answer's tries: a repair may send only the block that was wrong. */
typedef struct draft {
    stitch_candidate *candidate;
    char *cuda, *json;
} draft;

static void keep(char **slot, char **block)
{
    if (*block) {
        stitch_free(*slot);
        *slot = *block;
        *block = NULL;
    }
}

static int read_program(stitch_context *ctx, const stitch_reply *reply, void *state, const char **instruction,
                        stitch_error **err)
{
    draft *d = state;
    stitch__blocks blocks = {NULL, NULL, NULL};
    stitch_program *program = NULL;
    int rc;

    *instruction = "Answer again with the whole program: exactly one ```cuda block and exactly one ```json block.";
    if ((rc = stitch__reply_split(ctx, stitch_reply_text(reply), &blocks, err)) != STITCH_OK)
        return rc;
    keep(&d->cuda, &blocks.cuda);
    keep(&d->json, &blocks.json);
    if (!d->cuda || !d->json) {
        *instruction = d->cuda   ? "Send the missing ```json block alone; the ```cuda block is kept."
                       : d->json ? "Send the missing ```cuda block alone; the ```json block is kept."
                                 : *instruction;
        rc = stitch__err_native(ctx, err, STITCH_E_REPLY, STITCH_DOMAIN_REPLY, 0, "the reply holds no ```%s block",
                                d->cuda ? "json" : "cuda");
        goto out;
    }
    if ((rc = stitch_program_parse(ctx, d->cuda, d->json, NULL, &program, err)) != STITCH_OK) {
        *instruction = "Send the corrected ```json block alone; the ```cuda block is kept. (Send both blocks if the "
                       "code has to change.)";
        goto out;
    }
    d->candidate->program = program;
    d->candidate->notes = blocks.notes;
    blocks.notes = NULL;
out:
    stitch__blocks_free(&blocks);
    return rc;
}

typedef struct code_texts {
    char *interface, *device, *device_stable, *previous, *best, *feedback, *best_feedback, *subtask, *joined;
} code_texts;

static void texts_free(code_texts *t)
{
    stitch_free(t->interface);
    stitch_free(t->device);
    stitch_free(t->device_stable);
    stitch_free(t->previous);
    stitch_free(t->best);
    stitch_free(t->feedback);
    stitch_free(t->best_feedback);
    stitch_free(t->subtask);
    stitch_free(t->joined);
}

static char *printed(stitch_context *ctx, const char *fmt, ...) STITCH__PRINTF(2, 3);
static char *printed(stitch_context *ctx, const char *fmt, ...)
{
    stitch__buf b;
    va_list ap;
    stitch__buf_init(&b, ctx);
    va_start(ap, fmt);
    stitch__buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return stitch__buf_take(&b, NULL);
}

static int gather(stitch_context *ctx, stitch_task *task, const stitch_code_options *o, code_texts *t,
                  stitch_error **err)
{
    int rc;

    if ((rc = stitch__prompt_interface(ctx, task, &t->interface, err)) != STITCH_OK ||
        (rc = stitch__prompt_device(ctx, &t->device, &t->device_stable, err)) != STITCH_OK)
        return rc;
    if (o->previous && (rc = stitch__prompt_program(ctx, o->previous, &t->previous, err)) != STITCH_OK)
        return rc;
    if (o->report && (rc = stitch_report_feedback(o->report, 0, &t->feedback, err)) != STITCH_OK)
        return rc;
    if (o->best && o->best != o->previous) {
        if ((rc = stitch__prompt_program(ctx, o->best, &t->joined, err)) != STITCH_OK)
            return rc;
        if (o->best_report && (rc = stitch_report_feedback(o->best_report, 2048, &t->best_feedback, err)) != STITCH_OK)
            return rc;
        t->best = printed(ctx, "%s\n%s", t->joined, t->best_feedback ? t->best_feedback : "");
        if (!t->best)
            return stitch__err_nomem(ctx, err);
    }
    if (o->subtask >= 0) {
        const char *id, *level, *title, *goal;
        if (stitch_plan_subtask(o->plan, (size_t)o->subtask, &id, &level, &title, &goal) != STITCH_OK)
            return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_code: the plan has no sub-task %d", o->subtask);
        t->subtask = printed(ctx, "%s (%s level): %s\nGoal: %s", id, level, title, goal);
        if (!t->subtask)
            return stitch__err_nomem(ctx, err);
    }
    return STITCH_OK;
}

static int check_options(stitch_context *ctx, const stitch_code_options *o, const char **prompt, const char **label,
                         stitch_error **err)
{
    static const struct {
        int action;
        const char *prompt, *label;
        bool revises;
    } kinds[] = {
        {STITCH_ACTION_DRAFT, "code_draft", "code:draft", false},
        {STITCH_ACTION_REPAIR_COMPILE, "code_repair_compile", "code:repair_compile", true},
        {STITCH_ACTION_REPAIR_CORRECTNESS, "code_repair_correctness", "code:repair_correctness", true},
        {STITCH_ACTION_OPTIMISE, "code_optimise", "code:optimise", true},
    };
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        if (kinds[i].action != o->action)
            continue;
        if (kinds[i].revises && (!o->previous || !o->report))
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "stitch_code: action %s needs the previous candidate and its report",
                               stitch_action_name(o->action));
        *prompt = kinds[i].prompt;
        *label = kinds[i].label;
        return STITCH_OK;
    }
    return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_code: action %s writes no code",
                       stitch_action_name(o->action));
}

int stitch_code_options_init(stitch_code_options *options, size_t struct_size)
{
    int rc = stitch__options_init(options, struct_size, sizeof(stitch_code_options));
    if (rc == STITCH_OK)
        options->subtask = -1;
    return rc;
}

/* Turns answers into candidates; NULL where the model failed, which is not an error as long as others are there. */
static void collect(stitch_context *ctx, stitch__answer *answers, draft *drafts, size_t count, stitch_candidate **out)
{
    for (size_t i = 0; i < count; i++) {
        stitch_candidate *c = drafts[i].candidate;
        if (!c->program && !answers[i].unread) {
            stitch__log(ctx, STITCH_LOG_WARN, "code: no candidate %zu of %zu: %s", i + 1, count,
                        answers[i].error ? stitch_error_message(answers[i].error)
                                         : stitch_status_text(answers[i].status));
            continue;
        }
        c->reply = answers[i].text;
        c->notice = answers[i].notice;
        c->format_repairs = answers[i].repairs;
        c->tokens = answers[i].tokens;
        answers[i].text = answers[i].notice = NULL;
        if (!c->program) {
            c->format_error = answers[i].error;
            answers[i].error = NULL;
        }
        out[i] = c;
        drafts[i].candidate = NULL;
    }
}

/* Asks for the candidates with a finished prompt. */
static int ask_for(stitch_context *ctx, const stitch__ask *ask, size_t count, stitch_candidate **out,
                   stitch_error **err)
{
    stitch__answer *answers = stitch__calloc(ctx, count, sizeof(*answers));
    draft *drafts = stitch__calloc(ctx, count, sizeof(*drafts));
    int rc = answers && drafts ? STITCH_OK : stitch__err_nomem(ctx, err);

    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        answers[i].state = &drafts[i];
        drafts[i].candidate = stitch__calloc(ctx, 1, sizeof(stitch_candidate));
        if (!drafts[i].candidate)
            rc = stitch__err_nomem(ctx, err);
    }
    if (rc == STITCH_OK && (rc = stitch__ask_many(ctx, ask, answers, count, err)) == STITCH_OK)
        collect(ctx, answers, drafts, count, out);
    for (size_t i = 0; i < count; i++) {
        if (answers)
            stitch__answer_clear(&answers[i]);
        if (drafts) {
            stitch_candidate_free(drafts[i].candidate);
            stitch_free(drafts[i].cuda);
            stitch_free(drafts[i].json);
        }
    }
    stitch_free(answers);
    stitch_free(drafts);
    return rc;
}

int stitch_code(stitch_context *ctx, stitch_task *task, const stitch_code_options *options, size_t count,
                stitch_candidate **out, stitch_error **err)
{
    enum { MAX_CANDIDATES = 256 };
    stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
    code_texts t = {0};
    char *prompt = NULL, fingerprint[65];
    const char *prompt_name = NULL, *label = NULL;
    int rc;

    if (!ctx || !task || !out || count == 0 || count > MAX_CANDIDATES)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_code: context, task and out must not be NULL, count must be 1 to %d",
                           MAX_CANDIDATES);
    memset(out, 0, count * sizeof(*out));
    if (options && (rc = stitch__options_copy(ctx, &o, sizeof(o), options, "stitch_code_options", err)) != STITCH_OK)
        return rc;
    if (o.max_format_repairs < -1 || o.max_format_repairs > STITCH__MAX_REPAIRS)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_code: max_format_repairs must be -1 to %d",
                           STITCH__MAX_REPAIRS);
    o.action = o.action ? o.action : STITCH_ACTION_DRAFT;
    stitch__ask ask = {NULL,         NULL,        NULL,
                       fingerprint,  NULL,        o.max_format_repairs == 0 ? 2 : o.max_format_repairs,
                       o.on_token,   o.userdata,  o.cancel,
                       o.timeout_ms, read_program};
    if ((rc = check_options(ctx, &o, &prompt_name, &label, err)) != STITCH_OK ||
        (rc = stitch__agent_model(ctx, STITCH_ROLE_CODER, &ask.model, err)) != STITCH_OK ||
        (rc = gather(ctx, task, &o, &t, err)) != STITCH_OK)
        goto out;
    stitch__var vars[] = {
        {"task_name", stitch_task_name(task), NULL},
        {"task_description", stitch_task_description(task), NULL},
        {"task_interface", t.interface, NULL},
        {"task_source", stitch_task_source(task), NULL},
        {"device", t.device, t.device_stable},
        {"plan", stitch_plan_json(o.plan), NULL},
        {"subtask", t.subtask, NULL},
        {"previous", t.previous, NULL},
        {"feedback", t.feedback, o.report ? stitch_report_fingerprint(o.report) : NULL},
        {"best", t.best, t.joined},
        {"notes", o.notes, NULL},
        {"program_format", stitch__prompt_docs_program_format, NULL},
    };
    if ((rc = stitch__prompt_render(ctx, prompt_name, vars, STITCH__COUNT(vars), &prompt, fingerprint, err)) !=
        STITCH_OK)
        goto out;
    ask.label = label;
    ask.prompt = prompt;
    rc = ask_for(ctx, &ask, count, out, err);
out:
    stitch_free(prompt);
    texts_free(&t);
    return rc;
}
