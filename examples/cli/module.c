/* SPDX-License-Identifier: MIT
 *
 * The command line as a library for a Python process (python.c starts it, bindings/python/stitch/_command.py is it):
 * the same options, output and exit codes, with tasks that Python makes of PyTorch modules.
 */
#include <unistd.h>

#include "cli.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int stitch_cli_main(int argc, char **argv, const cli_host *host);

/* The exit code. Python checks nothing of what it was built with, so that is done here. */
EXPORT int stitch_cli_main(int argc, char **argv, const cli_host *host)
{
    cli c = {.host = host, .started_ns = cli_now_ns(), .terminal = isatty(STDERR_FILENO)};
    int code;

    if (host->size != sizeof(cli_loading) || stitch_version() >> 8 != STITCH_VERSION_NUM >> 8) {
        fprintf(stderr, "stitch: the command line is version %d.%d, but libstitch's Python package has version %s\n",
                STITCH_VERSION_MAJOR, STITCH_VERSION_MINOR, stitch_version_string());
        return EXIT_USAGE;
    }
    code = cli_parse(&c.o, argc, argv);
    if (code)
        code = code < 0 ? EXIT_OK : code;
    else
        code = cli_command(&c);
    return cli_flush(code); /* before the exit code is known to anybody */
}
