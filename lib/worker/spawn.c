/* SPDX-License-Identifier: MIT
 *
 * The worker as a process: finding its executable, starting it with next to nothing, ending it, learning how it ended.
 *
 * No signal handlers and no SIGCHLD: a library in somebody's process reaps its own child by its descriptor (pidfd) or
 * its number, and copes with a host that ignores SIGCHLD or reaps every child itself. There is no PR_SET_PDEATHSIG
 * either: the kernel sends that when the *thread* that started the child ends. A worker ends when its socket closes.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/protocol.h"

enum {
    WORDS_BYTES = 16384, /* of stderr: what is written beyond is lost, and blocks nobody */
    FIRST_FD = 10,       /* descriptors from here cannot be among those that the child gets */
};

/* ---- finding ----------------------------------------------------------------------------------------------------- */

static bool usable(const char *path, const struct stat *beside)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || access(path, X_OK) != 0)
        return false;
    /* The process trusts the library's owner already, but not what another user put near it. */
    return !beside || st.st_uid == beside->st_uid || st.st_uid == 0;
}

/* Nor what somebody could put there in place of what is there now. */
static bool folder_usable(const char *path, const struct stat *beside)
{
    struct stat st;
    return stat(path, &st) == 0 && (st.st_uid == beside->st_uid || st.st_uid == 0) && !(st.st_mode & S_IWOTH);
}

/* In the folder of the library, and in those above it in lib, libexec and bin: build trees and installations. */
static char *find_beside(const stitch_context *ctx)
{
    static const char here = 0; /* an address in the library, or in the executable that it is linked into */
    static const char *const below[] = {"", "/lib", "/libexec", "/bin"};
    char real[PATH_MAX], path[PATH_MAX];
    struct stat st;
    Dl_info info;

    if (dladdr(&here, &info) == 0 || !info.dli_fname)
        return NULL;
    if (!realpath(info.dli_fname[0] == '/' ? info.dli_fname : "/proc/self/exe", real) || stat(real, &st) != 0)
        return NULL;
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(real, '/');
        if (!slash)
            break;
        *slash = '\0';
        for (size_t i = 0; i < STITCH__COUNT(below); i++) {
            size_t folder = (size_t)snprintf(path, sizeof(path), "%s%s", real, below[i]);
            if (folder + sizeof("/stitch-worker") > sizeof(path) || !folder_usable(folder ? path : "/", &st))
                continue;
            snprintf(path + folder, sizeof(path) - folder, "/stitch-worker");
            if (usable(path, &st))
                return stitch__strdup(ctx, path);
        }
    }
    return NULL;
}

int stitch__worker_find(const stitch_context *ctx, const char *given, char **path, stitch_error **err)
{
    const char *named = given ? given : getenv("STITCH_WORKER");

    *path = NULL;
    if (named && *named) {
        if (!usable(named, NULL))
            return stitch__err(ctx, err, STITCH_E_NOT_FOUND, "%s%s is no executable file",
                               given ? "" : "STITCH_WORKER: ", named);
        *path = stitch__strdup(ctx, named);
        return *path ? STITCH_OK : stitch__err_nomem(ctx, err);
    }
    *path = find_beside(ctx);
    if (!*path)
        return stitch__err(ctx, err, STITCH_E_NOT_FOUND,
                           "there is no stitch-worker near the library; install it, or name it in STITCH_WORKER");
    return STITCH_OK;
}

/* ---- environment ------------------------------------------------------------------------------------------------- */

/* What the loader, the CUDA libraries and the math libraries need to be found and to behave as in the parent. */
static const char *const kept[] = {
    "PATH",         "LD_LIBRARY_PATH", "VIRTUAL_ENV",      "CONDA_PREFIX", "STITCH_CUDA_DRIVER",
    "STITCH_NVRTC", "STITCH_CUBLASLT", "STITCH_CUDA_PATH", "STITCH_BLAS",  "OMP_NUM_THREADS",
    "TMPDIR",       "ASAN_OPTIONS",    "UBSAN_OPTIONS",    "LSAN_OPTIONS", "OPENBLAS_NUM_THREADS",
    "STITCH_CUPTI", "MKL_NUM_THREADS"};
static const char *const kept_prefixes[] = {"CUDA_", "CUBLAS", "CUBLASLT_", "NVIDIA_"};
static const char *const secret[] = {"KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL"};

static bool keep(const char *entry, char *const *extra)
{
    size_t len = strcspn(entry, "=");
    char name[64];

    if (!entry[len] || len >= sizeof(name) || strlen(entry) > 8192)
        return false;
    memcpy(name, entry, len);
    name[len] = 0;
    for (size_t i = 0; i < STITCH__COUNT(secret); i++)
        if (strstr(name, secret[i]))
            return false;
    for (size_t i = 0; extra && extra[i]; i++)
        if (strncmp(extra[i], entry, len + 1) == 0)
            return false;
    if (strcmp(name, "CUDA_CACHE_DISABLE") == 0)
        return false;
    for (size_t i = 0; i < STITCH__COUNT(kept); i++)
        if (strcmp(name, kept[i]) == 0)
            return true;
    for (size_t i = 0; i < STITCH__COUNT(kept_prefixes); i++)
        if (strncmp(name, kept_prefixes[i], strlen(kept_prefixes[i])) == 0)
            return true;
    return false;
}

char **stitch__worker_environment(stitch__arena *arena, char *const *from, char *const *extra)
{
    size_t count = 0, more = 0, used = 0;
    while (from && from[count])
        count++;
    while (extra && extra[more])
        more++;
    char **env = stitch__arena_array(arena, count + more + 2, sizeof(*env));
    if (!env)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (keep(from[i], extra) && !(env[used++] = stitch__arena_strdup(arena, from[i])))
            return NULL;
    for (size_t i = 0; i < more; i++)
        env[used++] = extra[i];
    /* The driver's cache of its own compilations lies in the home folder; a worker brings machine code. */
    env[used] = stitch__arena_strdup(arena, "CUDA_CACHE_DISABLE=1");
    return env[used] ? env : NULL;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

extern char **environ;

/* Moves a descriptor out of the way of those that the child gets. */
static int move_up(int fd)
{
    int moved;
    if (fd < 0 || fd >= FIRST_FD)
        return fd;
    moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
    close(fd);
    return moved;
}

static int make_words(void)
{
    int fd = memfd_create("stitch-stderr", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, WORDS_BYTES) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)) {
        close(fd);
        return -1;
    }
    return move_up(fd);
}

static int spawn(const char *path, char *const *env, int socket, int words, pid_t *pid)
{
    char *const argv[] = {(char *)(uintptr_t) "stitch-worker", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int failed = posix_spawn_file_actions_init(&actions);

    if (failed)
        return failed;
    failed = posix_spawnattr_init(&attributes);
    if (failed) {
        posix_spawn_file_actions_destroy(&actions);
        return failed;
    }
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    failed = posix_spawnattr_setsigmask(&attributes, &none);
    if (!failed)
        failed = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!failed) /* a session of its own: no terminal, no Ctrl-C of the host's */
        failed =
            posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!failed) /* device printf ends here */
        failed = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (!failed)
        failed = words >= 0 ? posix_spawn_file_actions_adddup2(&actions, words, 2)
                            : posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(&actions, socket, STITCH__WORKER_FD);
#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 34))
    if (!failed) /* the worker does so too, at once, but then the host's descriptors have been in its hands */
        failed = posix_spawn_file_actions_addclosefrom_np(&actions, STITCH__WORKER_FD + 1);
#endif
    if (!failed)
        failed = posix_spawn(pid, path, &actions, &attributes, argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

int stitch__process_start(const stitch_context *ctx, const char *path, char *const *extra, stitch__process *p,
                          int *socket, stitch_error **err)
{
    stitch__arena arena = {.ctx = ctx};
    int pair[2] = {-1, -1}, failed, rc = STITCH_OK;
    char **env = stitch__worker_environment(&arena, environ, extra);

    memset(p, 0, sizeof(*p));
    p->pidfd = p->words = -1;
    p->ended = true;
    *socket = -1;
    if (!env) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "a socket pair for a worker");
        goto out;
    }
    pair[0] = move_up(pair[0]);
    pair[1] = move_up(pair[1]);
    p->words = make_words();
    failed = pair[0] < 0 || pair[1] < 0 ? errno : spawn(path, env, pair[1], p->words, &p->pid);
    if (failed) {
        errno = failed;
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "starting %s", path);
        goto out;
    }
    p->ended = false;
    p->pidfd = move_up((int)syscall(SYS_pidfd_open, p->pid, 0)); /* close-on-exec always */
    *socket = pair[0];
    pair[0] = -1;
out:
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    if (rc)
        stitch__process_clear(p);
    stitch__arena_free(&arena);
    return rc;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

void stitch__process_kill(stitch__process *p)
{
    if (stitch__process_ended(p, 0))
        return;
    if (p->pidfd >= 0)
        (void)syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
    else /* not reaped, as was seen just now: the number is still its own */
        (void)kill(p->pid, SIGKILL);
}

#define OWN_P_PIDFD ((idtype_t)3) /* P_PIDFD: Linux 5.4; older headers lack the name */

/* Its status, if it has ended: 1; 0 if it lives; -1 if somebody else took the status. By its descriptor where there is
 * one: once the host has reaped it, its number may be that of another child of the host. */
static int take_status(stitch__process *p)
{
    siginfo_t info;
    int got;

    memset(&info, 0, sizeof(info));
    got = p->pidfd >= 0 ? waitid(OWN_P_PIDFD, (id_t)p->pidfd, &info, WEXITED | WNOHANG) : -1;
    if (p->pidfd < 0 || (got < 0 && errno == EINVAL))
        got = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG);
    if (got < 0)
        return errno == ECHILD ? -1 : 0;
    if (!info.si_pid)
        return 0;
    p->signalled = info.si_code != CLD_EXITED;
    p->status = info.si_status;
    return 1;
}

/* Reaps it if it has ended. */
static bool reap(stitch__process *p)
{
    int got = take_status(p);
    if (got > 0) {
        p->ended = p->known = true;
    } else if (got < 0) {
        /* The host reaps every child, or ignores SIGCHLD: how it ended is lost. Only the descriptor tells when. */
        struct pollfd ready = {p->pidfd, POLLIN, 0};
        p->ended = p->pidfd < 0 || poll(&ready, 1, 0) > 0;
    }
    return p->ended;
}

bool stitch__process_ended(stitch__process *p, int64_t wait_ms)
{
    int64_t until = stitch__now_ns() + wait_ms * 1000000;
    for (;;) {
        if (p->ended || reap(p))
            return true;
        int64_t left = (until - stitch__now_ns()) / 1000000;
        if (left <= 0)
            return false;
        struct pollfd ready = {p->pidfd, POLLIN, 0};
        if (p->pidfd < 0 || poll(&ready, 1, (int)(left < INT_MAX ? left : INT_MAX)) < 0)
            stitch__sleep_ms(1);
    }
}

void stitch__process_end_text(const stitch__process *p, char *out, size_t size)
{
    static const struct {
        int number;
        const char *text;
    } names[] = {{SIGILL, " (illegal instruction)"}, {SIGABRT, " (aborted)"}, {SIGBUS, " (bus error)"},
                 {SIGFPE, " (arithmetic)"},          {SIGKILL, " (killed)"},  {SIGSEGV, " (segmentation fault)"},
                 {SIGSYS, " (refused call)"},        {SIGTERM, " (ended)"}};
    const char *name = "";

    if (!p->ended || !p->known) {
        snprintf(out, size, "in a way that is not known");
    } else if (p->signalled) {
        for (size_t i = 0; i < STITCH__COUNT(names); i++)
            if (names[i].number == p->status)
                name = names[i].text;
        snprintf(out, size, "by signal %d%s", p->status, name);
    } else {
        snprintf(out, size, "with exit code %d", p->status);
    }
}

void stitch__process_words(const stitch__process *p, stitch__buf *out)
{
    char text[WORDS_BYTES];
    ssize_t n = p->words >= 0 ? pread(p->words, text, sizeof(text), 0) : 0;
    size_t len = 0;
    while (len < (size_t)(n > 0 ? n : 0) && text[len])
        len++;
    stitch__buf_puts_clean(out, text, len, sizeof(text));
}

void stitch__process_clear(stitch__process *p)
{
    if (p->pidfd >= 0)
        close(p->pidfd);
    if (p->words >= 0)
        close(p->words);
    p->pidfd = p->words = -1;
}
