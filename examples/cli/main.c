/* SPDX-License-Identifier: MIT
 *
 * stitch: the command line.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Signal handlers have no other way to reach it. */
static stitch_cancel *on_signal;

static void handle_signal(int number)
{
    stitch_cancel_trigger(on_signal);
    signal(number, SIG_DFL); /* the second one ends the process */
}

static void on_log(int level, const char *message, void *userdata)
{
    cli *c = userdata;
    cli_clear(c);
    fprintf(stderr, "%s%s\n", level <= STITCH_LOG_WARN ? "stitch: " : "  ", message);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(cli *);
    } commands[] = {{"run", cli_run},     {"verify", cli_verify},   {"profile", cli_profile},
                    {"admit", cli_admit}, {"compile", cli_compile}, {"doctor", cli_doctor}};
    cli c = {0};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_error *err = NULL;
    int code = cli_parse(&c.o, argc, argv), rc;

    if (code)
        return code < 0 ? EXIT_OK : code;
    c.started_ns = cli_now_ns();
    c.terminal = isatty(STDERR_FILENO);
    if ((rc = stitch_cancel_new(&c.cancel)) != STITCH_OK)
        return cli_fail(&c, "start", rc, NULL);
    on_signal = c.cancel;
    signal(SIGINT, handle_signal);
    signal(SIGTERM, handle_signal);
    o.device = c.o.device;
    o.cache_dir = c.o.cache_dir;
    o.log = on_log;
    o.log_userdata = &c;
    o.log_level = c.o.verbose ? STITCH_LOG_DEBUG : c.o.quiet ? STITCH_LOG_ERROR : STITCH_LOG_WARN;
    if ((rc = stitch_context_new(&c.ctx, &o, &err)) != STITCH_OK) {
        code = cli_fail(&c, "start", rc, err);
    } else {
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
            if (strcmp(commands[i].name, c.o.command) == 0)
                code = commands[i].run(&c);
        }
        cli_clear(&c);
    }
    stitch_context_free(c.ctx);
    stitch_cancel_free(c.cancel);
    return code;
}
