/* SPDX-License-Identifier: MIT
 *
 * stitch: the command line as a program.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Parsing reorders arguments and cuts some in pieces: a Python process gets them as they were. */
static char **copy_arguments(int argc, char **argv)
{
    char **copy = calloc((size_t)argc + 1, sizeof(*copy));

    for (int i = 0; copy && i < argc; i++) {
        if (!(copy[i] = strdup(argv[i])))
            return NULL; /* the process ends */
    }
    return copy;
}

/* Whoever starts us without them does not want what we write there to land in the next file that is opened. */
static void open_standard(void)
{
    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            return;
    }
}

int main(int argc, char **argv)
{
    open_standard();

    cli c = {.started_ns = cli_now_ns(), .terminal = isatty(STDERR_FILENO)};
    char **copy = copy_arguments(argc, argv);
    int code = copy ? cli_parse(&c.o, argc, argv) : cli_fail(&c, "start", STITCH_E_NOMEM, NULL);

    if (code)
        code = code < 0 ? EXIT_OK : code;
    else
        code = cli_needs_python(&c.o) ? cli_start_python(&c, copy) : cli_command(&c);
    for (int i = 0; copy && i < argc; i++)
        free(copy[i]);
    free(copy);
    return cli_flush(code);
}
