/* SPDX-License-Identifier: MIT
 *
 * Tasks that are PyTorch modules: the same command in one Python process.
 *
 * The reference of such a task and its baselines are Python code, called between timed runs with pointers into device
 * memory. So what runs in Python is not the reference but the command: the helper process opens stitch-cli.so, which is
 * this command line once more, calls its main function with the same arguments, and adds one thing to it, a function
 * that makes a task of a Python file. Options, output and exit codes are therefore the same, for it is the same code;
 * nothing crosses from process to process but the exit code.
 *
 * This process stays, and waits: it knows what a Python that cannot be used, a file that ends its process, or a crash
 * of PyTorch mean for a command, which Python's exit status does not tell. The helper has our streams and our process
 * group, so that a terminal's signals reach it by themselves; the kernel ends it when we end.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

#ifndef CLI_MODULE_FOLDER
#define CLI_MODULE_FOLDER "." /* where stitch-cli.so is installed, from the folder of the program */
#endif

#define NAME_ANOTHER "name one that has PyTorch and the stitch package with --python or STITCH_PYTHON"

/* What the helper tells, in this order, each at most once: it has begun; why it cannot go on, to the end; its command
 * has ended, and the exit code. 'x' instead comes from before Python: errno. */
enum { TOLD_BEGUN = 'b', TOLD_FAILURE = 'e', TOLD_EXIT = 'c', TOLD_NO_EXEC = 'x', TOLD_LIMIT = 4096 };

/* For Python 2, too, which can be what there is. The folder that is current is taken from the path: modules of that
 * name in it are not meant. SIGINT was held back until somebody could take it. */
static const char begin[] =
    "import os, sys\n"
    "fd, package, module = int(sys.argv[1]), sys.argv[2], sys.argv[3]\n"
    "def fail(text):\n"
    "    os.write(fd, ('e' + text).encode('utf-8', 'replace')[:4000])\n"
    "    os._exit(2)\n"
    "try:\n"
    "    os.write(fd, b'b')\n"
    "    if sys.version_info < (3, 9):\n"
    "        fail('%s is Python %d.%d; libstitch needs Python 3.9 or later' % ((sys.executable,) + "
    "sys.version_info[:2]))\n"
    "    import signal\n"
    "    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])\n"
    "    os.set_inheritable(fd, False)\n"
    "    sys.path[:] = [folder for folder in sys.path if folder]\n"
    "    try:\n"
    "        if package:\n"
    "            import importlib.util\n"
    "            spec = importlib.util.spec_from_file_location('stitch', package + '/__init__.py', "
    "submodule_search_locations=[package])\n"
    "            sys.modules['stitch'] = importlib.util.module_from_spec(spec)\n"
    "            spec.loader.exec_module(sys.modules['stitch'])\n"
    "        from stitch._command import Command\n"
    "        command = Command(module)\n"
    "    except (ImportError, OSError) as e:\n"
    "        fail('libstitch\\'s Python package cannot be used by %s: %s\\ninstall it there (pip install . in its "
    "sources), or " NAME_ANOTHER "' % (sys.executable, e))\n"
    "    code = command.run(['stitch'] + sys.argv[4:])\n"
    "    os.write(fd, b'c' + bytes([code]))\n"
    "except KeyboardInterrupt:\n"
    "    os._exit(130)\n"
    "sys.exit(code)\n";

/* Signal handlers have no other way to reach these. */
static volatile sig_atomic_t helper, interrupts;

/* What a terminal sends, the helper gets as well; what another process sends, only who it was sent to. */
static void relay(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    interrupts++;
    if (helper > 0 && (info->si_code <= 0 || interrupts > 2))
        kill((pid_t)helper, interrupts > 2 ? SIGKILL : number);
}

/* ---- what is needed ---------------------------------------------------------------------------------------------- */

typedef struct places {
    char python[PATH_MAX];
    char module[PATH_MAX];  /* stitch-cli.so */
    char package[PATH_MAX]; /* folder of the Python package that belongs to this program; "": the one that Python has */
    char library[PATH_MAX]; /* libstitch.so of this program; "": it is part of it */
} places;

static bool join(char *out, const char *folder, const char *rest)
{
    return snprintf(out, PATH_MAX, "%s/%s", folder, rest) < PATH_MAX;
}

static bool runnable(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* As a shell finds a program. */
static bool find_program(const char *name, char *out)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/'))
        return snprintf(out, PATH_MAX, "%s", name) < PATH_MAX && runnable(out);
    for (path = path ? path : "/usr/local/bin:/usr/bin:/bin"; *path;) {
        size_t length = strcspn(path, ":");
        if (length && snprintf(out, PATH_MAX, "%.*s/%s", (int)length, path, name) < PATH_MAX && runnable(out))
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

/* The folder above; false at the root. */
static bool up(char *folder)
{
    char *slash = strrchr(folder, '/');

    if (slash)
        *slash = 0;
    return slash && *folder;
}

/* In a wheel the program is in the package's folder lib; in a checkout, somewhere in a build folder. */
static void find_package(const char *program_folder, char *out)
{
    char folder[PATH_MAX], marker[PATH_MAX];
    int levels = 0;

    snprintf(folder, sizeof(folder), "%s", program_folder);
    if (up(folder) && join(marker, folder, "_command.py") && access(marker, R_OK) == 0) {
        snprintf(out, PATH_MAX, "%s", folder);
        return;
    }
    do {
        if (join(out, folder, "bindings/python/stitch") && join(marker, out, "_command.py") &&
            access(marker, R_OK) == 0)
            return;
    } while (++levels < 4 && up(folder));
    *out = 0;
}

static void find_library(char *out)
{
    const char *(*function)(void) = stitch_version_string;
    const char *name;
    void *address;
    Dl_info info = {0};

    memcpy(&address, &function, sizeof(address)); /* ISO C has no cast for it */
    if (!dladdr(address, &info) || !info.dli_fname || !realpath(info.dli_fname, out))
        *out = 0;
    name = strrchr(out, '/');
    if (!name || strncmp(name, "/libstitch.so", 13) != 0)
        *out = 0;
}

static int missing(cli *c, const char *what, const char *name, const char *advice)
{
    char message[PATH_MAX + 512];

    snprintf(message, sizeof(message), "a task in a Python file needs %s%s%s; %s", what, *name ? " " : "", name,
             advice);
    return cli_fail_text(c, "task", STITCH_E_NOT_FOUND, message, "");
}

static int find_all(cli *c, places *p)
{
    char folder[PATH_MAX];
    const char *env = getenv("STITCH_PYTHON"), *name = c->o.python ? c->o.python : env && *env ? env : "python3";
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);

    folder[length > 0 ? length : 0] = 0;
    up(folder);
    if ((!join(p->module, folder, "stitch-cli.so") || access(p->module, R_OK) != 0) &&
        (!join(p->module, folder, CLI_MODULE_FOLDER "/stitch-cli.so") || access(p->module, R_OK) != 0))
        return missing(c, "stitch-cli.so, which is neither beside this program nor at", p->module,
                       "put it beside this program, or install both again");
    find_package(folder, p->package);
    find_library(p->library);
    if (!find_program(name, p->python))
        return missing(c, "Python, and there is no program", name, NAME_ANOTHER);
    return 0;
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static void become_python(const places *p, char **arguments, int tell, pid_t parent)
{
    unsigned char failure[1 + sizeof(int)] = {TOLD_NO_EXEC};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent) {
        fcntl(tell, F_SETFD, 0);
        if (*p->library)
            setenv("STITCH_LIBRARY", p->library, 0);
        execv(p->python, arguments);
    }
    memcpy(failure + 1, &errno, sizeof(int));
    if (write(tell, failure, sizeof(failure)) < 0)
        _exit(126);
    _exit(127);
}

/* argv: of this program, argv[0] included. */
static int start(const places *p, char **argv, int tell, pid_t *pid)
{
    char fd[16];
    size_t count = 0, used = 0;
    char **arguments;
    pid_t parent = getpid();

    while (argv[count])
        count++;
    if (!(arguments = calloc(count + 7, sizeof(*arguments))))
        return ENOMEM;
    snprintf(fd, sizeof(fd), "%d", tell);
    const char *first[] = {p->python, "-c", begin, fd, p->package, p->module};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        arguments[used++] = (char *)(uintptr_t)first[i]; /* execv() changes none */
    for (size_t i = 1; i < count; i++)
        arguments[used++] = argv[i];
    if ((*pid = fork()) == 0)
        become_python(p, arguments, tell, parent);
    free(arguments);
    return *pid < 0 ? errno : 0;
}

/* What became of it: the exit code, or what to say. */
static int result(cli *c, const places *p, int status, char *told, size_t length)
{
    char message[PATH_MAX + 512];
    size_t at = 0;
    bool begun = length > 0 && told[0] == TOLD_BEGUN;
    int number = 0;

    told[length] = 0;
    at += begun;
    if (at + 1 < length && told[at] == TOLD_EXIT)
        return (unsigned char)told[at + 1];
    if (interrupts || (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)))
        return EXIT_CANCELLED;
    if (at + 1 < length && told[at] == TOLD_FAILURE) {
        char *details = strchr(told + at, '\n');
        if (details)
            *details++ = 0;
        return cli_fail_text(c, "task", STITCH_E_NOT_FOUND, told + at + 1, details ? details : "");
    }
    if (at + sizeof(number) < length && told[at] == TOLD_NO_EXEC) {
        memcpy(&number, told + at + 1, sizeof(number));
        snprintf(message, sizeof(message), "%s cannot be started: %s; " NAME_ANOTHER, p->python, strerror(number));
        return cli_fail_text(c, "task", STITCH_E_NOT_FOUND, message, "");
    }
    if (!begun) {
        snprintf(message, sizeof(message), "%s is no Python 3; " NAME_ANOTHER, p->python);
        return cli_fail_text(c, "task", STITCH_E_NOT_FOUND, message, "");
    }
    number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    snprintf(message, sizeof(message),
             "%s ended with %s %d before the command did: %s or PyTorch, which run in it, have ended it", p->python,
             WIFSIGNALED(status) ? "signal" : "exit status", number, c->o.task);
    return cli_fail_text(c, "task", STITCH_E_STATE, message, "");
}

int cli_start_python(cli *c, char **argv)
{
    places *p = calloc(1, sizeof(*p));
    struct sigaction action = {.sa_sigaction = relay, .sa_flags = SA_SIGINFO | SA_RESTART};
    char told[TOLD_LIMIT + 1];
    sigset_t both, before;
    ssize_t length = 0;
    int code = 0, failure, ends[2] = {-1, -1}, status = 0;
    pid_t pid = -1;

    if (!p)
        return cli_fail(c, "task", STITCH_E_NOMEM, NULL);
    if (access(c->o.task, R_OK) != 0) { /* before Python takes its time to say so */
        char message[PATH_MAX];
        const char *why = errno == ENOENT ? NULL : strerror(errno);
        snprintf(message, sizeof(message), why ? "%s cannot be read: %s" : "there is no file %s", c->o.task, why);
        code = cli_fail_text(c, "task", STITCH_E_NOT_FOUND, message, "");
        goto out;
    }
    if ((code = find_all(c, p)) != 0)
        goto out;
    sigemptyset(&action.sa_mask);
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    failure = pipe2(ends, O_CLOEXEC) ? errno : 0;
    /* Python lets them through once it can take them. */
    sigprocmask(SIG_BLOCK, &both, &before);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!failure)
        failure = start(p, argv, ends[1], &pid);
    helper = pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (failure) {
        code = cli_fail_text(c, "task", STITCH_E_STATE, "no process can be started for Python", strerror(failure));
        goto out;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    helper = -1;
    /* All that it wrote is there. Not to the end of the file: a process that it left behind may hold the other end. */
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    length = read(ends[0], told, TOLD_LIMIT);
    code = result(c, p, status, told, length > 0 ? (size_t)length : 0);
out:
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    free(p);
    return code;
}
