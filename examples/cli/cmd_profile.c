/* SPDX-License-Identifier: MIT
 *
 * stitch profile: what bounds a program, or what a task is measured against, and what to change.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void print(cli *c, const stitch_profile *profile)
{
    json_t *value = json_loads(stitch_profile_json(profile), 0, NULL);

    cli_clear(c);
    if (c->o.json) {
        cli_emit(c, value);
        return;
    }
    cli_print_profile(value);
    json_decref(value);
}

static int profile_task(cli *c, stitch_task *task)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch_profile *profile = NULL;
    stitch_error *err = NULL;
    int code = 0, rc;

    o.profile = c->o.full ? STITCH_PROFILE_FULL : STITCH_PROFILE_AUTO;
    o.metrics = c->o.metrics;
    o.metric_count = c->o.metric_count;
    o.cancel = c->cancel;
    snprintf(c->what, sizeof(c->what), "profile of what the task is measured against");
    cli_live(c);
    if ((rc = stitch_profile_task(c->ctx, task, &o, &profile, &err)) != STITCH_OK)
        return cli_fail(c, "profile", rc, err);
    print(c, profile);
    if (c->o.html) {
        json_t *data = cli_html_begin(c, task);
        json_object_set_new(data, "reference", json_loads(stitch_profile_json(profile), 0, NULL));
        code = cli_html_write(c, data, c->o.html);
        json_decref(data);
    }
    stitch_profile_free(profile);
    return code;
}

static int write_trace(cli *c, const stitch_trace *trace)
{
    stitch_error *err = NULL;
    char *json = NULL;
    int code, rc = stitch_trace_json(trace, &json, &err);

    if (rc)
        return cli_fail(c, "trace", rc, err);
    code = cli_write_file(c, c->o.trace, json, strlen(json));
    stitch_free(json);
    return code;
}

static int write_report(cli *c, stitch_task *task, stitch_program *program, const stitch_report *report,
                        const stitch_trace *trace)
{
    json_t *data = cli_html_begin(c, task), *attempt = cli_html_attempt(program, report);
    int code;

    if (trace)
        json_object_set_new(attempt, "trace", cli_html_trace(trace));
    json_object_set_new(data, "attempts", json_pack("[o]", attempt));
    json_object_set_new(data, "best", json_integer(0));
    code = cli_html_write(c, data, c->o.html);
    json_decref(data);
    return code;
}

/* Both files show the same run. */
static int write_files(cli *c, stitch_task *task, stitch_program *program, const stitch_report *report)
{
    stitch_trace *trace = NULL;
    stitch_error *err = NULL;
    int code = 0, written = 0, rc = STITCH_OK;

    if (c->o.trace || (c->o.html && !cli_simulated(c)))
        rc = cli_trace_program(c, program, &trace, &err);
    if (rc && c->o.trace) {
        code = cli_fail(c, "trace", rc, err);
        err = NULL;
    } else if (rc) {
        cli_say(c, "note: the report has no timeline: %s", err ? stitch_error_message(err) : stitch_status_text(rc));
    } else if (c->o.trace) {
        code = write_trace(c, trace);
    }
    if (c->o.html)
        written = write_report(c, task, program, report, trace);
    stitch_error_free(err);
    stitch_trace_free(trace);
    return code ? code : written;
}

static int profile_program(cli *c, stitch_task *task, stitch_program *program)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_report *report = NULL;
    stitch_error *err = NULL;
    const char *why = "";
    int code = 0, rc;

    o.trials = (int32_t)c->o.trials;
    o.iterations = (int32_t)c->o.iterations;
    o.seed = c->o.seed;
    o.on_stage = cli_on_stage;
    o.userdata = c;
    o.cancel = c->cancel;
    o.where = c->o.where;
    o.profile = c->o.full ? STITCH_PROFILE_FULL : STITCH_PROFILE_AUTO;
    o.metrics = c->o.metrics;
    o.metric_count = c->o.metric_count;
    if ((rc = stitch_verify_program(c->ctx, task, program, &o, &report, &err)) != STITCH_OK)
        return cli_fail(c, "verify", rc, err);
    cli_clear(c);
    stitch_report_summary_get(report, &s);
    if (stitch_report_profile(report)) {
        print(c, stitch_report_profile(report));
        code = write_files(c, task, program, report);
    } else if (s.failed_stage != STITCH_STAGE_NONE) {
        fputs(stitch_report_text(report), stderr); /* what is wrong is not worth a profile */
        if (c->o.json)
            cli_emit(c, json_loads(stitch_report_json(report), 0, NULL));
        code = s.status == STITCH_E_FAULT && !s.isolated ? EXIT_ENVIRONMENT : EXIT_NOT_CORRECT;
    } else {
        stitch_report_stage(report, STITCH_STAGE_PROFILE, NULL, NULL, &why);
        fprintf(stderr, "stitch: the program is correct, and cannot be profiled here: %s\n", why);
        code = EXIT_ENVIRONMENT;
    }
    stitch_report_free(report);
    return code;
}

int cli_profile(cli *c)
{
    stitch_task *task = NULL;
    stitch_program *program = NULL;
    int code = cli_load_task(c, &task);

    if (!code && cli_has_program(c))
        code = cli_load_program(c, &program);
    if (!code)
        code = program ? profile_program(c, task, program) : profile_task(c, task);
    stitch_program_free(program);
    cli_free_task(c, task);
    return code;
}
