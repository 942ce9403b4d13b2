/* SPDX-License-Identifier: MIT
 *
 * Output of the stitch command line: a live line on terminals, plain lines elsewhere, JSON on request.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

int64_t cli_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void cli_clear(cli *c)
{
    if (c->line_open)
        fputs("\r\033[K", stderr);
    c->line_open = false;
}

void cli_live(cli *c)
{
    if (!c->terminal || c->o.quiet)
        return;
    fprintf(stderr, "\r\033[K");
    if (c->attempt)
        fprintf(stderr, "attempt %d/%d  ", c->attempt, c->attempts);
    fprintf(stderr, "%s  %.1f s", c->what, (double)(cli_now_ns() - c->started_ns) / 1e9);
    if (c->characters)
        fprintf(stderr, "  %zu characters", c->characters);
    if (c->tokens > 0)
        fprintf(stderr, "  %.1fk tokens", (double)c->tokens / 1e3);
    if (c->best > 0)
        fprintf(stderr, "  best %.2fx", c->best);
    fflush(stderr);
    c->line_open = true;
}

void cli_say(cli *c, const char *fmt, ...)
{
    va_list ap;
    if (c->o.quiet)
        return;
    cli_clear(c);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

void cli_emit(cli *c, json_t *event)
{
    if (c->o.json && event) {
        json_dumpf(event, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        fputc('\n', stdout);
        fflush(stdout);
    }
    json_decref(event);
}

static int exit_code(int status)
{
    switch (status) {
    case STITCH_E_CANCELLED: return EXIT_CANCELLED;
    case STITCH_E_HTTP:
    case STITCH_E_AUTH:
    case STITCH_E_BUDGET:
    case STITCH_E_TIMEOUT: /* only requests to a model have deadlines here */
    case STITCH_E_REPLY:
    case STITCH_E_REPLAY: return EXIT_MODEL;
    case STITCH_E_INVALID:
    case STITCH_E_FORMAT:
    case STITCH_E_NOT_FOUND:
    case STITCH_E_VALIDATE:
    case STITCH_E_COMPILE:
    case STITCH_E_LIMIT:
    case STITCH_E_IO: return EXIT_USAGE;
    default: return EXIT_ENVIRONMENT;
    }
}

int cli_fail_text(cli *c, const char *what, int status, const char *message, const char *details)
{
    cli_clear(c);
    fprintf(stderr, "stitch: %s: %s\n", what, message);
    if (*details && !c->o.quiet)
        fprintf(stderr, "%s%s", details, details[strlen(details) - 1] == '\n' ? "" : "\n");
    if (c->o.json)
        /* What is not UTF-8 (a path, say) is left out rather than the whole event. */
        cli_emit(c, json_pack("{s:s, s:o*, s:s, s:o*, s:o*}", "event", "error", "what", json_string(what), "status",
                              stitch_status_name(status), "message", json_string(message), "details",
                              json_string(details)));
    return exit_code(status);
}

int cli_fail(cli *c, const char *what, int status, stitch_error *err)
{
    const char *details = err ? stitch_error_details(err) : "";
    int code;

    if (c->loading && !*details)
        details = c->loading->details; /* what the task's reference raised, if it did */
    code = cli_fail_text(c, what, status, err ? stitch_error_message(err) : stitch_status_text(status), details);
    if (c->loading)
        *c->loading->details = 0;
    stitch_error_free(err);
    return code;
}

void cli_on_token(size_t request, int reasoning, const char *text, size_t len, void *userdata)
{
    cli *c = userdata;
    (void)request, (void)reasoning, (void)text;
    size_t before = c->characters / 256;
    c->characters += len;
    if (c->characters / 256 != before)
        cli_live(c);
}

void cli_on_stage(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    cli *c = userdata;
    if (total > 0)
        snprintf(c->what, sizeof(c->what), "%s %lld/%lld", stitch_stage_name(stage), (long long)done, (long long)total);
    else
        snprintf(c->what, sizeof(c->what), "%s", stitch_stage_name(stage));
    c->characters = 0;
    cli_live(c);
    if (c->o.verbose && !c->terminal && status == STITCH_STAGE_NOT_RUN && done == 0)
        cli_say(c, "  %s ...", stitch_stage_name(stage));
}

const char *cli_why(int number)
{
    return number == EINVAL ? "not a regular file" : number == EILSEQ ? "it holds a NUL byte" : strerror(number);
}

char *cli_read_file(const char *path)
{
    enum { LIMIT = 64 << 20 };
    struct stat st;
    FILE *f = NULL;
    char *data = NULL;
    int why = 0;

    /* Before it is opened: opening a pipe would wait for its other end. */
    if (stat(path, &st) != 0)
        why = errno;
    else if (!S_ISREG(st.st_mode))
        why = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (st.st_size > LIMIT)
        why = EFBIG;
    else if (!(f = fopen(path, "rb")))
        why = errno;
    else if (!(data = malloc((size_t)st.st_size + 1)))
        why = ENOMEM;
    if (data) {
        size_t n = fread(data, 1, (size_t)st.st_size, f);
        data[n] = 0;
        why = ferror(f) ? EIO : strlen(data) != n ? EILSEQ : 0; /* a text that holds a NUL is none */
    }
    if (f)
        fclose(f);
    if (why) {
        free(data);
        data = NULL;
        errno = why;
    }
    return data;
}

int cli_flush(int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "stitch: the output could not be written: %s\n", errno ? strerror(errno) : "an earlier part of it");
    return code ? code : EXIT_USAGE;
}

/* The folder of a file that is going to be written. */
static int folder_of(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return snprintf(folder, size, ".") < (int)size ? 0 : ENAMETOOLONG;
    return snprintf(folder, size, "%.*s", slash == path ? 1 : (int)(slash - path), path) < (int)size ? 0 : ENAMETOOLONG;
}

int cli_check_file(cli *c, const char *option, const char *path, bool regular)
{
    char folder[4096];
    struct stat st;
    int why = !*path ? ENOENT : folder_of(path, folder, sizeof(folder));

    if (!why && stat(path, &st) == 0)
        why = S_ISDIR(st.st_mode) ? EISDIR : regular && !S_ISREG(st.st_mode) ? EINVAL : access(path, W_OK) ? errno : 0;
    else if (!why)
        why = stat(folder, &st) || access(folder, W_OK | X_OK) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (!why)
        return 0;
    cli_clear(c);
    fprintf(stderr, "stitch: %s %s: cannot be written: %s\n", option, path, cli_why(why));
    return EXIT_USAGE;
}

int cli_write_file(cli *c, const char *path, const char *text, size_t len)
{
    FILE *f = fopen(path, "wb");
    bool written = f && fwrite(text, 1, len, f) == len;

    if ((f && fclose(f) != 0) || !written) { /* a full disk may show only here */
        cli_clear(c);
        fprintf(stderr, "stitch: %s: %s\n", path, strerror(errno));
        return EXIT_USAGE;
    }
    return 0;
}
