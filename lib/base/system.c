/* SPDX-License-Identifier: MIT
 *
 * Clock, randomness, files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

int64_t stitch__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void stitch__sleep_ms(int64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

int stitch__random(const stitch_context *ctx, void *data, size_t len, stitch_error **err)
{
    char *p = data;
    while (len) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stitch__err_errno(ctx, err, STITCH_E_IO, "no random numbers from the system");
        p += n;
        len -= (size_t)n;
    }
    return STITCH_OK;
}

static int read_all(const stitch_context *ctx, int fd, const char *path, uint64_t limit, char **data, size_t *len,
                    stitch_error **err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return stitch__err_errno(ctx, err, STITCH_E_IO, "%s", path);
    if (!S_ISREG(st.st_mode))
        return stitch__err(ctx, err, STITCH_E_IO, "%s: not a regular file", path);
    if ((uint64_t)st.st_size > limit)
        return stitch__err(ctx, err, STITCH_E_LIMIT, "%s: %" PRIu64 " bytes, the limit is %" PRIu64, path,
                           (uint64_t)st.st_size, limit);
    size_t size = (size_t)st.st_size, got = 0;
    char *buffer = stitch__alloc(ctx, size + 1);
    if (!buffer)
        return stitch__err_nomem(ctx, err);
    while (got < size) {
        ssize_t n = read(fd, buffer + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            stitch_free(buffer);
            return stitch__err_errno(ctx, err, STITCH_E_IO, "%s", path);
        }
        if (n == 0)
            break; /* it was cut while we read */
        got += (size_t)n;
    }
    buffer[got] = 0;
    *data = buffer;
    *len = got;
    return STITCH_OK;
}

int stitch__file_read(const stitch_context *ctx, const char *path, uint64_t limit, char **data, size_t *len,
                      stitch_error **err)
{
    *data = NULL;
    *len = 0;
    /* O_NONBLOCK: a fifo must not hang us before it is refused */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return stitch__err_errno(ctx, err, errno == ENOENT ? STITCH_E_NOT_FOUND : STITCH_E_IO, "%s", path);
    int rc = read_all(ctx, fd, path, limit ? limit : UINT64_C(1) << 30, data, len, err);
    close(fd);
    return rc;
}

static int write_fd(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* What is there already and no regular file must not be replaced by one: /dev/null is written to, the rest is refused
 * (a pipe could block for ever, or raise SIGPIPE in the host). */
static int write_special(const stitch_context *ctx, const char *path, mode_t mode, const void *data, size_t len,
                         stitch_error **err)
{
    int rc = STITCH_OK;
    if (!S_ISCHR(mode))
        return stitch__err(ctx, err, STITCH_E_IO, "%s: cannot be written: not a regular file", path);
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", path);
    if (write_fd(fd, data, len) != 0)
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", path);
    close(fd);
    return rc;
}

int stitch__file_write(const stitch_context *ctx, const char *path, const void *data, size_t len, stitch_error **err)
{
    uint64_t unique = 0;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return write_special(ctx, path, st.st_mode, data, len, err);
    int rc = stitch__random(ctx, &unique, sizeof(unique), err), fd = -1;
    stitch__buf temp;
    if (rc)
        return rc;
    stitch__buf_init(&temp, ctx);
    stitch__buf_printf(&temp, "%s.%016" PRIx64 ".tmp", path, unique);
    if (temp.failed) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    fd = open(temp.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", path);
        goto out;
    }
    int failed = write_fd(fd, data, len);
    if (close(fd) != 0 || failed || rename(temp.data, path) != 0) {
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be written", path);
        unlink(temp.data);
    }
out:
    stitch__buf_free(&temp);
    return rc;
}

int stitch__mkdirs(const stitch_context *ctx, const char *path, stitch_error **err)
{
    char *copy = stitch__strdup(ctx, path);
    int rc = STITCH_OK;
    if (!copy)
        return stitch__err_nomem(ctx, err);
    for (char *p = copy + (*copy == '/'); rc == STITCH_OK; p++) {
        char c = *p;
        if (c != '/' && c != 0)
            continue;
        *p = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be made", copy);
        *p = c;
        if (!c)
            break;
    }
    struct stat st;
    if (rc == STITCH_OK && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))) {
        errno = ENOTDIR;
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "%s: cannot be made", path);
    }
    stitch_free(copy);
    return rc;
}

bool stitch__path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

char *stitch__path_join(const stitch_context *ctx, const char *folder, const char *name)
{
    stitch__buf b;
    size_t n = strlen(folder);
    stitch__buf_init(&b, ctx);
    stitch__buf_printf(&b, "%s%s%s", folder, n && folder[n - 1] != '/' ? "/" : "", name);
    return stitch__buf_take(&b, NULL);
}

char *stitch__path_beside(const stitch_context *ctx, const char *base_file, const char *path)
{
    const char *slash = base_file ? strrchr(base_file, '/') : NULL;
    if (*path == '/' || !slash)
        return stitch__strdup(ctx, path);
    char *folder = stitch__strndup(ctx, base_file, (size_t)(slash - base_file) + 1);
    char *joined = folder ? stitch__path_join(ctx, folder, path) : NULL;
    stitch_free(folder);
    return joined;
}
