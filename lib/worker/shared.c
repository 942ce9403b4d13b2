/* SPDX-License-Identifier: MIT
 *
 * Memory files that two processes share.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/protocol.h"

int stitch__memory_make(const stitch_context *ctx, const char *what, uint64_t bytes, int *fd, stitch_error **err)
{
    *fd = -1;
    if (bytes > INT64_MAX / 2)
        return stitch__err(ctx, err, STITCH_E_LIMIT, "%s: %" PRIu64 " bytes of shared memory", what, bytes);
    int made = memfd_create("stitch", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return stitch__err_errno(ctx, err, STITCH_E_IO, "%s: no shared memory", what);
    /* Reserved at once: a page that cannot be had later would be a SIGBUS. */
    int failed = bytes ? posix_fallocate(made, 0, (off_t)bytes) : 0;
    if (failed || fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        errno = failed ? failed : errno;
        int code = errno == ENOSPC || errno == ENOMEM ? STITCH_E_NOMEM : STITCH_E_IO;
        stitch__err_errno(ctx, err, code, "%s: %" PRIu64 " bytes of shared memory", what, bytes);
        close(made);
        return code;
    }
    *fd = made;
    return STITCH_OK;
}

int stitch__memory_freeze(const stitch_context *ctx, int fd, const char *what, stitch_error **err)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) != 0)
        return stitch__err_errno(ctx, err, STITCH_E_IO, "%s: sealing shared memory", what);
    return STITCH_OK;
}

int stitch__memory_write(const stitch_context *ctx, int fd, uint64_t at, const void *data, size_t bytes,
                         const char *what, stitch_error **err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stitch__err_errno(ctx, err, STITCH_E_IO, "%s: writing shared memory", what);
        done += (size_t)n;
    }
    return STITCH_OK;
}

int stitch__memory_map(const stitch_context *ctx, int fd, uint64_t bytes, bool writable, const char *what, void **out,
                       stitch_error **err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    *out = NULL;
    if (seals < 0 || fstat(fd, &st) != 0 || !(seals & F_SEAL_SHRINK) || (!writable && !(seals & F_SEAL_WRITE)))
        return stitch__err(ctx, err, STITCH_E_FORMAT, "%s: what came is no sealed memory file", what);
    if ((uint64_t)st.st_size != bytes || bytes > SIZE_MAX / 2)
        return stitch__err(ctx, err, STITCH_E_FORMAT, "%s: %" PRIu64 " bytes were announced, %" PRIu64 " came", what,
                           bytes, (uint64_t)st.st_size);
    if (!bytes)
        return STITCH_OK;
    void *ptr = mmap(NULL, (size_t)bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                     writable ? MAP_SHARED : MAP_PRIVATE, fd, 0);
    if (ptr == MAP_FAILED)
        return stitch__err_errno(ctx, err, errno == ENOMEM ? STITCH_E_NOMEM : STITCH_E_IO, "%s: mapping shared memory",
                                 what);
    *out = ptr;
    return STITCH_OK;
}

void stitch__memory_unmap(void *ptr, uint64_t bytes)
{
    if (ptr)
        munmap(ptr, (size_t)bytes);
}
