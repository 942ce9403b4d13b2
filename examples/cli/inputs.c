/* SPDX-License-Identifier: MIT
 *
 * Tasks and programs that the command line names.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void say(void *userdata, const char *line)
{
    cli_say(userdata, "%s", line);
}

/* What was given for it, as JSON; NULL: no memory. */
static char *module_options(const cli_options *o)
{
    json_t *set = json_array(), *all = json_object();
    char *text = NULL;
    int failed = !set || !all;

    for (size_t i = 0; !failed && i < o->set_count; i++)
        failed = json_array_append_new(set, cli_html_text(o->set[i]));
    if (!failed && o->tolerance > 0)
        failed = json_object_set_new(all, "tolerance", json_real(o->tolerance));
    if (!failed && o->precision)
        failed = json_object_set_new(all, "precision", json_string(o->precision));
    if (!failed && o->cast)
        failed = json_object_set_new(all, "cast", json_string(o->cast));
    if (!failed && !json_object_set(all, "set", set))
        text = json_dumps(all, JSON_COMPACT);
    json_decref(set);
    json_decref(all);
    return text;
}

/* The task of a PyTorch module, from the Python process that this is. */
static int load_module(cli *c, stitch_task **task)
{
    cli_loading *l = calloc(1, sizeof(*l));
    char *options = module_options(&c->o);
    int rc, code;

    if (!l || !options) {
        free(options);
        free(l);
        return cli_fail(c, "task", STITCH_E_NOMEM, NULL);
    }
    *l = (cli_loading){.ctx = c->ctx, .path = c->o.task, .options = options, .say = say, .cli = c};
    l->timed = strcmp(c->o.command, "run") == 0 || (cli_has_program(c) && strcmp(c->o.command, "compile") != 0);
    snprintf(c->what, sizeof(c->what), "the task from its PyTorch module");
    cli_live(c);
    rc = c->host->load(l);
    l->options = NULL;
    free(options);
    cli_signals(c); /* Python had them meanwhile */
    if (rc == STITCH_OK) {
        c->loading = l;
        *task = l->task;
        return 0;
    }
    code = cli_fail_text(c, "task", rc, *l->message ? l->message : stitch_status_text(rc), l->details);
    free(l);
    /* A file that is no task is a bad input, whatever it is that PyTorch or the library cannot do with it. */
    return rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_INTERNAL ? EXIT_USAGE : code;
}

void cli_free_task(cli *c, stitch_task *task)
{
    if (task && c->loading && c->loading->task == task) {
        if (*c->loading->details) /* a failure that a report has told, without this */
            cli_say(c, "%s: %s", c->o.task, c->loading->details);
        c->host->unload(c->loading);
        free(c->loading);
        c->loading = NULL;
    } else {
        stitch_task_free(task);
    }
}

int cli_load_task(cli *c, stitch_task **task)
{
    if (c->host)
        return load_module(c, task);
    stitch_error *err = NULL;
    int rc = stitch_task_load(c->ctx, c->o.task, task, &err);
    return rc ? cli_fail(c, "task", rc, err) : 0;
}

static int no_file(cli *c, const char *path)
{
    return cli_fail_text(c, path, STITCH_E_IO, cli_why(errno), "");
}

static int from_reply(cli *c, stitch_program **program)
{
    stitch_error *err = NULL;
    stitch_candidate *candidate = NULL;
    char *text = cli_read_file(c->o.reply);
    if (!text)
        return no_file(c, c->o.reply);
    int rc = stitch_candidate_from_reply(c->ctx, text, &candidate, &err);
    free(text);
    if (rc) {
        cli_fail(c, c->o.reply, rc, err);
        return EXIT_USAGE; /* a file of the caller's, not a model that failed */
    }
    /* The candidate owns its program: take a copy of our own through its two parts. */
    stitch_program *p = stitch_candidate_program(candidate);
    rc = stitch_program_parse(c->ctx, stitch_program_source(p), stitch_program_json(p), NULL, program, &err);
    stitch_candidate_free(candidate);
    return rc ? cli_fail(c, c->o.reply, rc, err) : 0;
}

static int from_parts(cli *c, stitch_program **program)
{
    stitch_error *err = NULL;
    int rc;
    char *source = cli_read_file(c->o.source);
    if (!source)
        return no_file(c, c->o.source);
    char *plan = cli_read_file(c->o.plan_file);
    if (!plan) {
        free(source);
        return no_file(c, c->o.plan_file);
    }
    rc = stitch_program_parse(c->ctx, source, plan, NULL, program, &err);
    free(source);
    free(plan);
    return rc ? cli_fail(c, c->o.plan_file, rc, err) : 0;
}

bool cli_has_program(const cli *c)
{
    return c->o.program || c->o.reply || c->o.source;
}

bool cli_simulated(cli *c)
{
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    return stitch_device_query(c->ctx, &info, NULL) != STITCH_OK || info.simulated;
}

int cli_load_program(cli *c, stitch_program **program)
{
    stitch_error *err = NULL;
    if (c->o.reply)
        return from_reply(c, program);
    if (c->o.source)
        return from_parts(c, program);
    int rc = stitch_program_load(c->ctx, c->o.program, NULL, program, &err);
    return rc ? cli_fail(c, "program", rc, err) : 0; /* the message names the file */
}
