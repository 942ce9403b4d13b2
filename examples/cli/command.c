/* SPDX-License-Identifier: MIT
 *
 * A command from its options to its exit code: in a process of its own (main.c), or in Python (module.c).
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Signal handlers have no other way to reach these. */
static stitch_cancel *on_signal;
static volatile sig_atomic_t in_python;

/* The second signal ends the process. A helper may get one twice, from its group and from the command line that it
 * works for (python.c): each counts for itself. */
static void handle_signal(int number, siginfo_t *info, void *unused)
{
    static volatile sig_atomic_t seen[2];
    int relayed = in_python && info->si_code <= 0 && info->si_pid == getppid();

    (void)unused;
    if (seen[relayed]++) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stitch_cancel_trigger(on_signal);
}

void cli_signals(cli *c)
{
    struct sigaction action = {.sa_sigaction = handle_signal, .sa_flags = SA_SIGINFO | SA_RESTART};

    sigemptyset(&action.sa_mask);
    on_signal = c->cancel;
    in_python = c->host != NULL;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void on_log(int level, const char *message, void *userdata)
{
    cli *c = userdata;
    cli_clear(c);
    fprintf(stderr, "%s%s\n", level <= STITCH_LOG_WARN ? "stitch: " : "  ", message);
}

/* A run may take hours: that its result cannot be kept is known before. */
static int check_outputs(cli *c)
{
    const bool runs = strcmp(c->o.command, "run") == 0;
    int code = c->o.out ? cli_check_file(c, "--out", c->o.out, true) : 0;

    if (!code && runs && !c->o.out && access(".", W_OK)) {
        fprintf(stderr,
                "stitch: the folder cannot be written, and no other place is given for the program: use --out\n");
        code = EXIT_USAGE;
    }
    if (!code && c->o.html)
        code = cli_check_file(c, "--html", c->o.html, false);
    if (!code && c->o.trace)
        code = cli_check_file(c, "--trace", c->o.trace, false);
    return code;
}

int cli_command(cli *c)
{
    static const struct {
        const char *name;
        int (*run)(cli *);
    } commands[] = {{"run", cli_run},     {"verify", cli_verify},   {"profile", cli_profile},
                    {"admit", cli_admit}, {"compile", cli_compile}, {"doctor", cli_doctor}};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_error *err = NULL;
    int code = 0, rc;

    if ((code = check_outputs(c)) != 0)
        return code;
    if ((rc = stitch_cancel_new(&c->cancel)) != STITCH_OK)
        return cli_fail(c, "start", rc, NULL);
    cli_signals(c);
    o.device = c->o.device;
    o.cache_dir = c->o.cache_dir;
    o.log = on_log;
    o.log_userdata = c;
    o.log_level = c->o.verbose ? STITCH_LOG_DEBUG : c->o.quiet ? STITCH_LOG_ERROR : STITCH_LOG_WARN;
    if ((rc = stitch_context_new(&c->ctx, &o, &err)) != STITCH_OK) {
        code = cli_fail(c, "start", rc, err);
    } else {
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
            if (strcmp(commands[i].name, c->o.command) == 0)
                code = commands[i].run(c);
        }
        cli_clear(c);
    }
    stitch_context_free(c->ctx);
    signal(SIGINT, SIG_DFL); /* the process may have more to do after us, and there is no token any more */
    signal(SIGTERM, SIG_DFL);
    stitch_cancel_free(c->cancel);
    return code;
}
