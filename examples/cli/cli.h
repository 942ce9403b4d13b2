/* SPDX-License-Identifier: MIT
 *
 * The stitch command line: options, output and what the commands share. It uses nothing but the public API.
 */
#ifndef STITCH_CLI_H
#define STITCH_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>
#include <stitch/stitch.h>

/* Exit codes; `stitch --help` prints them. */
enum {
    EXIT_OK = 0,          /* done; for run and verify: the program is correct (and the target reached) */
    EXIT_NOT_CORRECT = 1, /* no correct program, the target was missed; for admit: the task is degenerate */
    EXIT_USAGE = 2,       /* bad arguments or bad input files */
    EXIT_ENVIRONMENT = 3, /* no device, missing library, device fault */
    EXIT_MODEL = 4,       /* the model failed: endpoint, budget, recording */
    EXIT_CANCELLED = 130, /* interrupted */
};

typedef struct cli_options {
    const char *command;
    /* every command */
    const char *device, *cache_dir;
    bool json, quiet, verbose;
    /* inputs */
    const char *task, *program, *reply, *source, *plan_file;
    const char *arch, *out;
    /* for tasks that are Python files */
    const char *python, *precision, *cast, *set[64];
    size_t set_count;
    double tolerance;
    /* run */
    const char *models[4]; /* by stitch_role */
    const char *record;
    const char *attempts_dir;
    long attempts, candidates, plans, trials, iterations, runs;
    long long budget_tokens;
    double budget_cost, target;
    unsigned long long seed;
    int where; /* stitch_verify_where */
    /* profiles */
    const char *html, *trace, *metrics[64];
    size_t metric_count;
    bool full, no_profile;
} cli_options;

/* A task that Python makes. What Python reads and fills; bindings/python/stitch/_command.py has the same struct. */
typedef struct cli_loading {
    stitch_context *ctx;
    const char *path;
    const char *options; /* a JSON object: what of tolerance, precision, cast and set (["NAME=VALUE", ...]) was given */
    void (*say)(void *cli, const char *line); /* a line for people */
    void *cli;
    int32_t timed; /* baselines will be timed: what torch.compile has to do for them is done now */
    int32_t reserved;
    stitch_task *task;   /* made, until unload() */
    char message[4096];  /* of a failure, as those of stitch_error */
    char details[16384]; /* also what the reference raised later */
} cli_loading;

/* The Python process that the command line runs in; the same there. */
typedef struct cli_host {
    uint64_t size; /* of cli_loading */
    int (*load)(cli_loading *loading);
    void (*unload)(cli_loading *loading);
} cli_host;

typedef struct cli {
    cli_options o;
    const cli_host *host; /* NULL: a program of its own */
    cli_loading *loading; /* the task in use, if Python made it */
    stitch_context *ctx;
    stitch_cancel *cancel;
    bool terminal;  /* stderr is a terminal: live line */
    bool line_open; /* the live line has text */
    int64_t started_ns;
    /* what the live line shows */
    int attempt, attempts;
    char what[64];
    size_t characters; /* of the reply that is arriving */
    int64_t tokens;
    double best;
} cli;

/* command.c */
int cli_command(cli *c);  /* what was parsed, as the whole of a process does it; the exit code */
void cli_signals(cli *c); /* signals end the call in progress from here on */

/* python.c */
int cli_start_python(cli *c, char **argv); /* the same command in a Python process; the exit code */

/* options.c: 0, or an exit code with the message printed. Help and version are printed by it and give -1. */
int cli_parse(cli_options *o, int argc, char **argv);
bool cli_needs_python(const cli_options *o); /* the task is a PyTorch module */

/* ui.c */
int64_t cli_now_ns(void);
void cli_live(cli *c);  /* redraws the live line */
void cli_clear(cli *c); /* takes it away before other output */
void cli_say(cli *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))); /* a line for people, on stderr unless quiet */
void cli_emit(cli *c, json_t *event);      /* --json: a line on stdout; takes the reference */
int cli_fail(cli *c, const char *what, int status, stitch_error *err); /* prints, frees err, gives the exit code */
int cli_fail_text(cli *c, const char *what, int status, const char *message, const char *details);
void cli_on_token(size_t request, int reasoning, const char *text, size_t len, void *userdata);
void cli_on_stage(int stage, int status, int64_t done, int64_t total, void *userdata);
/* malloc; NULL with errno set, EINVAL where it is no regular file, EILSEQ where it holds a NUL: cli_why() in words. */
char *cli_read_file(const char *path);
const char *cli_why(int number);

int cli_flush(int code); /* of stdout; the exit code, and a message if it could not be written */
/* Whether a file (regular: no pipe, no device) can be written, before anybody works for what goes into it: 0 or an exit
 * code, message printed. */
int cli_check_file(cli *c, const char *option, const char *path, bool regular);
int cli_write_file(cli *c, const char *path, const char *text, size_t len); /* 0 or an exit code, message printed */

/* inputs.c: 0 or an exit code with the message printed */
int cli_load_task(cli *c, stitch_task **task);
void cli_free_task(cli *c, stitch_task *task);
int cli_load_program(cli *c, stitch_program **program);
bool cli_has_program(const cli *c);
bool cli_simulated(cli *c); /* also where there is no device at all */

/* traced.c: one run of a program that was verified, in this process, with zeros and small numbers as its inputs.
 * STITCH_OK or a status with *err. */
int cli_trace_program(cli *c, stitch_program *program, stitch_trace **trace, stitch_error **err);

/* profile_text.c: a stitch_profile_json() for people, on stdout */
void cli_print_profile(const json_t *profile);

/* html.c: the data of a report, which cli_html_write() makes a page of. Objects are the caller's; NULL: no memory. */
json_t *cli_html_begin(cli *c, const stitch_task *task);
json_t *cli_html_attempt(stitch_program *program, const stitch_report *report); /* program: NULL, there is none */
json_t *cli_html_trace(const stitch_trace *trace);
json_t *cli_html_text(const char *text);                          /* a JSON string of whatever bytes come */
int cli_html_write(cli *c, const json_t *data, const char *path); /* 0 or an exit code, message printed */

int cli_run(cli *c);
int cli_verify(cli *c);
int cli_profile(cli *c);
int cli_admit(cli *c);
int cli_compile(cli *c);
int cli_doctor(cli *c);

#endif
