/* SPDX-License-Identifier: MIT
 *
 * stitch run: the loop. examples/loop.c is the same without options and output.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

enum { REFERENCE_BYTES = 4000 }; /* of the profile that a plan begins with */

/* One history for stitch_next() and stitch_plan(): attempts, with the candidates and reports they came from. */
typedef struct history {
    stitch_attempt *attempts;
    stitch_candidate **candidates;
    stitch_report **reports;
    size_t count, capacity;
    int32_t best; /* of the last decision */
} history;

typedef struct run {
    cli *c;
    stitch_task *task;
    stitch_plan_doc *plan;
    int32_t plans;
    history h;
    stitch_policy policy;
    stitch_model *models[4];
    stitch_budget *budget;
    bool simulated;
    stitch_profile *reference; /* of what the task is measured against; NULL: there is none */
    bool reference_tried;
    json_t *plan_list; /* of the report; with --html */
} run;

static void history_free(history *h)
{
    for (size_t i = 0; i < h->count; i++) {
        stitch_candidate_free(h->candidates[i]);
        stitch_report_free(h->reports[i]);
    }
    free(h->attempts);
    free(h->candidates);
    free(h->reports);
}

/* Room for all attempts is made before the first, so that nothing can be lost later. */
static bool history_reserve(history *h, size_t capacity)
{
    h->attempts = calloc(capacity, sizeof(*h->attempts));
    h->candidates = calloc(capacity, sizeof(*h->candidates));
    h->reports = calloc(capacity, sizeof(*h->reports));
    h->capacity = capacity;
    h->best = -1;
    return h->attempts && h->candidates && h->reports;
}

/* A plan or a program could not be had: a prompt or a reply that is too long is no input of the caller's. */
static int model_failed(cli *c, const char *what, int status, stitch_error *err)
{
    int code = cli_fail(c, what, status, err);
    return status == STITCH_E_LIMIT ? EXIT_MODEL : code;
}

/* Who answers through files has to know where. */
static void say_where_to_answer(const run *r, const char *spec)
{
    const char *relay = strstr(spec, "relay:");
    if (relay && (relay == spec || relay[-1] == ','))
        cli_say(r->c, "replies are awaited in %s: NNNN.request.md says how to answer", relay + strlen("relay:"));
}

static int open_model(run *r, int role, const char *spec)
{
    stitch_error *err = NULL;
    stitch_model *model = NULL, *outer = NULL;
    int rc = stitch_model_open(r->c->ctx, spec, &model, &err);
    if (rc == STITCH_OK && r->c->o.record) {
        rc = stitch_model_new_record(r->c->ctx, model, r->c->o.record, &outer, &err);
        if (rc)
            stitch_model_free(model);
        model = outer;
    }
    if (rc)
        return cli_fail(r->c, "model", rc, err);
    say_where_to_answer(r, spec);
    r->models[role] = model;
    stitch_model_set_budget(model, r->budget);
    rc = stitch_context_set_model(r->c->ctx, role, model, &err);
    return rc ? cli_fail(r->c, "model", rc, err) : 0;
}

static void count_tokens(run *r)
{
    int64_t tokens = 0, requests = 0;
    double cost = 0;
    stitch_budget_used(r->budget, &tokens, &cost, &requests);
    r->c->tokens = tokens;
    r->c->characters = 0;
}

/* What the plan begins with: once a run. A run goes on without it. */
static void profile_reference(run *r)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_error *err = NULL;

    if (r->reference_tried || r->simulated || r->c->o.no_profile)
        return;
    r->reference_tried = true;
    o.cancel = r->c->cancel;
    snprintf(r->c->what, sizeof(r->c->what), "profile of what the task is measured against");
    cli_live(r->c);
    if (stitch_profile_task(r->c->ctx, r->task, &o, &r->reference, &err) != STITCH_OK)
        cli_say(r->c, "note: the plan has no profile: %s", stitch_error_message(err));
    stitch_error_free(err);
}

/* What a model wrote stays in the line that says whose it is: no line of it looks like one of ours. */
static void say_plan(cli *c, int number, const stitch_plan_doc *plan)
{
    char *line = strdup(stitch_plan_strategy(plan));
    for (char *p = line; p && *p; p++)
        if (*p == '\n' || *p == '\t')
            *p = ' ';
    cli_say(c, "plan %d: %zu sub-tasks. %s", number, stitch_plan_subtask_count(plan), line ? line : "");
    free(line);
}

static int make_plan(run *r)
{
    stitch_plan_options o = STITCH_PLAN_OPTIONS_INIT;
    stitch_plan_doc *plan = NULL;
    stitch_error *err = NULL;
    char *text = NULL;

    profile_reference(r);
    if (r->reference)
        stitch_profile_text(r->reference, REFERENCE_BYTES, &text, NULL);
    o.trace_summary = text;
    o.previous = r->plan;
    o.attempts = r->h.attempts;
    o.reports = (const stitch_report *const *)r->h.reports;
    o.attempt_count = r->h.count;
    o.on_token = cli_on_token;
    o.userdata = r->c;
    o.cancel = r->c->cancel;
    snprintf(r->c->what, sizeof(r->c->what), "%s", r->plan ? "replan" : "plan");
    cli_live(r->c);
    int rc = stitch_plan(r->c->ctx, r->task, &o, &plan, &err);
    stitch_free(text);
    count_tokens(r);
    if (rc)
        return model_failed(r->c, "plan", rc, err);
    stitch_plan_free(r->plan);
    r->plan = plan;
    r->plans++;
    r->policy.subtasks = (int32_t)stitch_plan_subtask_count(plan);
    say_plan(r->c, r->plans, plan);
    if (r->plan_list)
        json_array_append_new(r->plan_list, json_loads(stitch_plan_json(plan), 0, NULL));
    cli_emit(r->c, json_pack("{s:s, s:i, s:o}", "event", "plan", "number", (int)r->plans, "plan",
                             json_loads(stitch_plan_json(plan), 0, NULL)));
    return 0;
}

static void keep_file(cli *c, int number, const char *what, const char *text)
{
    char path[4096];
    if (snprintf(path, sizeof(path), "%s/%02d.%s", c->o.attempts_dir, number, what) >= (int)sizeof(path))
        return;
    FILE *f = fopen(path, "wb");
    bool written = f && fwrite(text, 1, strlen(text), f) == strlen(text);
    if ((f && fclose(f) != 0) || !written) /* a full disk may show only here */
        cli_say(c, "%s: %s", path, strerror(errno));
}

static void announce(run *r, const stitch_attempt *a, const stitch_candidate *candidate, const stitch_report *report)
{
    cli *c = r->c;
    int number = (int)r->h.count;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    const char *message = "", *notice = stitch_candidate_notice(candidate);

    stitch_report_summary_get(report, &s);
    if (a->failed_stage)
        stitch_report_stage(report, a->failed_stage, NULL, NULL, &message);
    if (*notice)
        cli_say(c, "attempt %d: note: %s", number, notice);
    if (a->failed_stage)
        cli_say(c, "attempt %d (%s): failed in stage %s: %s", number, stitch_action_name(a->action),
                stitch_stage_name(a->failed_stage), message);
    else if (a->speedup > 0)
        cli_say(c, "attempt %d (%s): correct, %.1f us, %.2fx", number, stitch_action_name(a->action), a->median_us,
                a->speedup);
    else
        cli_say(c, "attempt %d (%s): correct, not timed", number, stitch_action_name(a->action));
    cli_emit(c, json_pack("{s:s, s:i, s:s, s:i, s:i, s:s, s:o}", "event", "attempt", "number", number, "action",
                          stitch_action_name(a->action), "plan", (int)a->plan + 1, "base", (int)a->base + 1, "notice",
                          notice, "report", json_loads(stitch_report_json(report), 0, NULL)));
    if (c->o.attempts_dir) {
        keep_file(c, number, "reply.md", stitch_candidate_reply(candidate));
        keep_file(c, number, "report.json", stitch_report_json(report));
        if (stitch_candidate_program(candidate)) {
            keep_file(c, number, "cu", stitch_program_source(stitch_candidate_program(candidate)));
            keep_file(c, number, "plan.json", stitch_program_json(stitch_candidate_program(candidate)));
        }
    }
}

/* Verifies one candidate and adds it to the history, which owns it from then on. */
static int try_candidate(run *r, const stitch_decision *d, stitch_candidate *candidate)
{
    cli *c = r->c;
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report *report = NULL;
    stitch_error *err = NULL;
    stitch_attempt a = STITCH_ATTEMPT_INIT;

    o.trials = (int32_t)c->o.trials;
    o.iterations = (int32_t)c->o.iterations;
    o.seed = c->o.seed;
    o.on_stage = cli_on_stage;
    o.userdata = c;
    o.cancel = c->cancel;
    o.where = c->o.where;
    o.profile = c->o.no_profile ? STITCH_PROFILE_NEVER : r->simulated ? STITCH_PROFILE_AUTO : STITCH_PROFILE_FULL;
    int rc = stitch_verify(c->ctx, r->task, candidate, &o, &report, &err);
    if (rc) {
        stitch_candidate_free(candidate);
        return cli_fail(c, "verify", rc, err);
    }
    a.action = d->action;
    a.base = d->base;
    a.subtask = d->subtask;
    a.plan = r->plans - 1;
    stitch_attempt_from_report(&a, report);
    size_t i = r->h.count++;
    r->h.attempts[i] = a;
    r->h.candidates[i] = candidate;
    r->h.reports[i] = report;
    if (a.correct && a.speedup > c->best)
        c->best = a.speedup;
    announce(r, &a, candidate, report);
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_report_summary_get(report, &s);
    if (s.status == STITCH_E_FAULT && !s.isolated && !cli_simulated(c)) {
        cli_say(c, "the device code faulted: this process has lost its CUDA context, the run ends here");
        return EXIT_ENVIRONMENT;
    }
    return 0;
}

static int write_code(run *r, const stitch_decision *d)
{
    cli *c = r->c;
    enum { MAX_AT_ONCE = 64 };
    stitch_candidate *candidates[MAX_AT_ONCE] = {NULL};
    stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
    stitch_error *err = NULL;
    size_t count = c->o.candidates > 0 ? (size_t)c->o.candidates : 1;
    int code = 0;

    if (count > r->h.capacity - r->h.count)
        count = r->h.capacity - r->h.count;
    o.action = d->action;
    o.subtask = d->subtask;
    o.plan = r->plan;
    if (d->base >= 0 && d->action != STITCH_ACTION_DRAFT) {
        o.previous = r->h.candidates[d->base];
        o.report = r->h.reports[d->base];
    }
    if (d->best >= 0) {
        o.best = r->h.candidates[d->best];
        o.best_report = r->h.reports[d->best];
    }
    o.on_token = cli_on_token;
    o.userdata = c;
    o.cancel = c->cancel;
    c->attempt = (int)r->h.count + 1;
    snprintf(c->what, sizeof(c->what), "%s", stitch_action_name(d->action));
    cli_live(c);
    int rc = stitch_code(c->ctx, r->task, &o, count, candidates, &err);
    count_tokens(r);
    if (rc)
        return model_failed(c, "code", rc, err);
    for (size_t i = 0; i < count; i++) {
        if (!candidates[i])
            continue;
        if (code == 0)
            code = try_candidate(r, d, candidates[i]);
        else
            stitch_candidate_free(candidates[i]);
    }
    return code;
}

static int loop(run *r)
{
    cli *c = r->c;
    for (;;) {
        stitch_decision d = STITCH_DECISION_INIT;
        stitch_error *err = NULL;
        int rc = stitch_next(r->h.attempts, r->h.count, r->plans, &r->policy, &d, &err), code;
        if (rc)
            return cli_fail(c, "next", rc, err);
        r->h.best = d.best;
        if (c->o.verbose)
            cli_say(c, "next: %s (%s)", stitch_action_name(d.action), d.reason);
        if (d.action == STITCH_ACTION_STOP) {
            cli_say(c, "stopped: %s", d.reason);
            return 0;
        }
        if (d.action == STITCH_ACTION_PLAN || d.action == STITCH_ACTION_REPLAN)
            code = make_plan(r);
        else
            code = write_code(r, &d);
        if (code)
            return code;
    }
}

/* TASK-NAME.stitch in the current folder, whatever the task file calls itself. */
static void default_path(const stitch_task *task, char *out, size_t size)
{
    snprintf(out, size, "%s.stitch", stitch_task_name(task));
    for (char *c = out; *c; c++) {
        if (*c == '/' || *c == '\\' || (unsigned char)*c < 0x20 || (c == out && (*c == '.' || *c == '-')))
            *c = '_';
    }
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static json_t *attempt_json(const run *r, size_t i)
{
    const stitch_attempt *a = &r->h.attempts[i];
    stitch_candidate *candidate = r->h.candidates[i];
    json_t *out = cli_html_attempt(stitch_candidate_program(candidate), r->h.reports[i]);

    json_object_set_new(out, "action", json_string(stitch_action_name(a->action)));
    json_object_set_new(out, "base", json_integer(a->base));
    json_object_set_new(out, "plan", json_integer(a->plan));
    json_object_set_new(out, "subtask", json_integer(a->subtask));
    json_object_set_new(out, "notice", cli_html_text(stitch_candidate_notice(candidate)));
    json_object_set_new(out, "notes", cli_html_text(stitch_candidate_notes(candidate)));
    json_object_set_new(out, "tokens", json_integer((json_int_t)stitch_candidate_tokens(candidate)));
    if (!stitch_candidate_program(candidate))
        json_object_set_new(out, "reply", cli_html_text(stitch_candidate_reply(candidate)));
    return out;
}

/* First without a timeline: for that the best program runs in this process, and whatever it does then, the report is
 * there. */
static int write_report(run *r, int64_t tokens, double cost)
{
    cli *c = r->c;
    json_t *data = cli_html_begin(c, r->task), *attempts = json_array();
    stitch_trace *trace = NULL;
    stitch_error *err = NULL;
    int code;

    for (size_t i = 0; i < r->h.count; i++)
        json_array_append_new(attempts, attempt_json(r, i));
    json_object_set_new(data, "attempts", json_incref(attempts));
    json_object_set_new(data, "best", json_integer(r->h.best));
    json_object_set(data, "plans", r->plan_list);
    json_object_set_new(data, "tokens", json_integer((json_int_t)tokens));
    json_object_set_new(data, "cost", json_real(cost));
    json_object_set_new(data, "seconds", json_real((double)(cli_now_ns() - c->started_ns) / 1e9));
    if (r->reference)
        json_object_set_new(data, "reference", json_loads(stitch_profile_json(r->reference), 0, NULL));
    code = cli_html_write(c, data, c->o.html);
    if (!code)
        cli_say(c, "wrote %s", c->o.html);
    if (!code && r->h.best >= 0 && !r->simulated && !c->o.no_profile) {
        stitch_program *best = stitch_candidate_program(r->h.candidates[r->h.best]);
        int rc = cli_trace_program(c, best, &trace, &err);
        if (rc == STITCH_OK) {
            json_object_set_new(json_array_get(attempts, (size_t)r->h.best), "trace", cli_html_trace(trace));
            code = cli_html_write(c, data, c->o.html);
        } else {
            cli_say(c, "note: the report has no timeline: %s",
                    err ? stitch_error_message(err) : stitch_status_text(rc));
        }
    }
    stitch_error_free(err);
    stitch_trace_free(trace);
    json_decref(attempts);
    json_decref(data);
    return code;
}

/* Also after a failure: what was reached must not be lost. */
static int finish(run *r, int code)
{
    cli *c = r->c;
    stitch_decision d = STITCH_DECISION_INIT;
    char name[512];
    const char *path = c->o.out;
    int64_t tokens = 0, requests = 0;
    double cost = 0;

    if (r->plans > 0 && stitch_next(r->h.attempts, r->h.count, r->plans, &r->policy, &d, NULL) == STITCH_OK)
        r->h.best = d.best;
    stitch_budget_used(r->budget, &tokens, &cost, &requests);
    double speedup = 0, median = 0;
    if (r->h.best >= 0) {
        stitch_error *err = NULL;
        speedup = r->h.attempts[r->h.best].speedup;
        median = r->h.attempts[r->h.best].median_us;
        if (!path) {
            default_path(r->task, name, sizeof(name)); /* names have at most 255 bytes */
            path = name;
        }
        stitch_program *best = stitch_candidate_program(r->h.candidates[r->h.best]);
        /* On the simulator it was verified at the task's reduced dims: the file carries the full ones. */
        int rc = stitch_program_validate(best, stitch_task_interface(r->task), NULL, &err);
        if (rc == STITCH_OK)
            rc = stitch_program_save(best, path, &err);
        if (rc)
            code = cli_fail(c, "save", rc, err);
        else
            cli_say(c, "%s\nsaved attempt %d as %s", stitch_report_text(r->h.reports[r->h.best]), (int)r->h.best + 1,
                    path);
    } else {
        cli_say(c, "no correct program in %zu attempts", r->h.count);
    }
    if (c->o.html) {
        int written = write_report(r, tokens, cost);
        code = code ? code : written;
    }
    if (code == 0 && (r->h.best < 0 || (c->o.target > 0 && median > 0 && speedup < c->o.target)))
        code = EXIT_NOT_CORRECT;
    cli_emit(c,
             json_pack("{s:s, s:i, s:i, s:f, s:f, s:I, s:f, s:s?, s:i}", "event", "result", "attempts", (int)r->h.count,
                       "best", (int)r->h.best + 1, "speedup", speedup, "median_us", median, "tokens",
                       (json_int_t)tokens, "cost", cost, "saved", r->h.best >= 0 ? path : NULL, "exit", code));
    return code;
}

int cli_run(cli *c)
{
    run r = {.c = c, .policy = STITCH_POLICY_INIT};
    stitch_error *err = NULL;
    int code, rc;

    r.policy.max_attempts = c->o.attempts ? (int32_t)c->o.attempts : 15;
    r.policy.max_plans = (int32_t)c->o.plans;
    r.policy.target_speedup = c->o.target;
    c->attempts = r.policy.max_attempts;
    if (c->o.attempts_dir &&
        ((mkdir(c->o.attempts_dir, 0777) != 0 && errno != EEXIST) || access(c->o.attempts_dir, W_OK | X_OK) != 0)) {
        fprintf(stderr, "stitch: %s: %s\n", c->o.attempts_dir, strerror(errno));
        return EXIT_USAGE;
    }
    if (!history_reserve(&r.h, (size_t)r.policy.max_attempts)) {
        code = cli_fail(c, "run", STITCH_E_NOMEM, NULL);
        goto out;
    }
    if ((rc = stitch_budget_new(c->ctx, c->o.budget_tokens, c->o.budget_cost, &r.budget, &err)) != STITCH_OK) {
        code = cli_fail(c, "budget", rc, err);
        goto out;
    }
    if ((code = cli_load_task(c, &r.task)) != 0)
        goto out;
    r.simulated = cli_simulated(c);
    r.plan_list = c->o.html ? json_array() : NULL;
    for (int role = 0; role < 4; role++) {
        if (c->o.models[role] && (code = open_model(&r, role, c->o.models[role])) != 0)
            goto out;
    }
    code = finish(&r, loop(&r));
out:
    history_free(&r.h);
    stitch_plan_free(r.plan);
    stitch_profile_free(r.reference);
    json_decref(r.plan_list);
    for (int role = 0; role < 4; role++) {
        stitch_context_set_model(c->ctx, role, NULL, NULL);
        stitch_model_free(r.models[role]);
    }
    stitch_budget_free(r.budget);
    cli_free_task(c, r.task);
    return code;
}
