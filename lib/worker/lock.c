/* SPDX-License-Identifier: MIT
 *
 * One timing at a time on a device, and nothing else of libstitch's meanwhile, between processes of a user. The kernel
 * drops the lock when its holder dies.
 *
 * Two files: whoever times holds the gate and then the lock, exclusively; others pass through the gate and share the
 * lock. So those that come and go cannot keep a timing out, and one of them that never ends, because its program hangs,
 * holds a timing up for a while but not for ever: it then goes on with the gate alone, which keeps newcomers away.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/worker.h"

enum {
    RETRY_MS = 2,
    PATIENCE_MS = 10000,         /* of a timing, with those that share the device */
    SHARED_PATIENCE_MS = 120000, /* with a timing: it has a time budget, but what is timed may hang */
};

static int open_file(const stitch__device *dev, const char *folder, const char *id, const char *suffix)
{
    char path[4096];
    struct stat st;
    int fd;

    if ((size_t)snprintf(path, sizeof(path), "%s/gpu-%s%s.lock", folder, id, suffix) >= sizeof(path))
        return -1;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void device_id(const stitch__device *dev, char *out, size_t size)
{
    CUuuid uuid;
    size_t at = 0;

    if (!dev->drv->DeviceGetUuid || dev->drv->DeviceGetUuid(&uuid, dev->ordinal) != CUDA_SUCCESS) {
        snprintf(out, size, "%d", (int)dev->ordinal);
        return;
    }
    for (size_t i = 0; i < sizeof(uuid.bytes) && at + 3 < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%02x", (unsigned char)uuid.bytes[i]);
}

/* Both files in one folder, or none. */
static bool open_in(const stitch__device *dev, const char *root, const char *below, stitch__gpu_lock *lock)
{
    char folder[4096], id[40];

    if (!root || *root != '/' || (size_t)snprintf(folder, sizeof(folder), "%s%s", root, below) >= sizeof(folder) ||
        stitch__mkdirs(dev->ctx, folder, NULL) != STITCH_OK)
        return false;
    device_id(dev, id, sizeof(id));
    lock->fd = open_file(dev, folder, id, "");
    lock->gate = open_file(dev, folder, id, "-gate");
    if (lock->fd >= 0 && lock->gate >= 0)
        return true;
    stitch__gpu_lock_release(lock);
    return false;
}

/* Until the scope's end, or for `patience_ms` (0: no matter how long): then STITCH_OK with *got false. */
static int wait_lock(const stitch__device *dev, int fd, int how, int64_t patience_ms, const stitch__scope *scope,
                     bool *got, stitch_error **err)
{
    int64_t end = stitch__now_ns() + patience_ms * 1000000;

    *got = false;
    while (flock(fd, how | LOCK_NB) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return stitch__err_errno(dev->ctx, err, STITCH_E_IO, "locking the device");
        if (patience_ms && stitch__now_ns() >= end)
            return STITCH_OK;
        int rc = stitch__scope_sleep(scope, RETRY_MS, "waiting for another process that times on this device", err);
        if (rc)
            return rc;
    }
    *got = true;
    return STITCH_OK;
}

/* A process that the host has forked meanwhile has the same descriptors, and the lock is held as long as one of them is
 * open: closing ours is not enough. */
static void let_go(int *fd)
{
    if (*fd >= 0) {
        (void)flock(*fd, LOCK_UN);
        close(*fd);
    }
    *fd = -1;
}

static int say(const stitch__device *dev, const char *text, char **why, stitch_error **err)
{
    if (why)
        *why = stitch__strdup(dev->ctx, text);
    return why && !*why ? stitch__err_nomem(dev->ctx, err) : STITCH_OK;
}

static int take_exclusive(stitch__device *dev, const stitch__scope *scope, stitch__gpu_lock *lock, char **why,
                          stitch_error **err)
{
    bool got;
    int rc = wait_lock(dev, lock->gate, LOCK_EX, 0, scope, &got, err);

    if (!rc)
        rc = wait_lock(dev, lock->fd, LOCK_EX, PATIENCE_MS, scope, &got, err);
    if (rc || got)
        return rc;
    let_go(&lock->fd);
    return say(dev, "another one has kept using the device for 10 s; it may have disturbed the timing", why, err);
}

static int take_shared(stitch__device *dev, const stitch__scope *scope, stitch__gpu_lock *lock, char **why,
                       stitch_error **err)
{
    bool got;
    int rc = wait_lock(dev, lock->gate, LOCK_EX, SHARED_PATIENCE_MS, scope, &got, err);

    if (!rc && got)
        rc = wait_lock(dev, lock->fd, LOCK_SH, 0, scope, &got, err);
    let_go(&lock->gate);
    if (rc || got)
        return rc;
    let_go(&lock->fd);
    return say(dev, "another one has been timing on the device for two minutes", why, err);
}

int stitch__gpu_lock_take(stitch__device *dev, const stitch__scope *scope, bool exclusive, stitch__gpu_lock *lock,
                          char **why, stitch_error **err)
{
    int rc;

    *lock = (stitch__gpu_lock)STITCH__GPU_LOCK_INIT;
    if (why)
        *why = NULL;
    if (!open_in(dev, getenv("XDG_RUNTIME_DIR"), "/stitch", lock) &&
        !open_in(dev, stitch__context_options(dev->ctx)->cache_dir, "", lock)) {
        return say(dev,
                   "neither $XDG_RUNTIME_DIR nor the cache folder can be written: other processes on the same device "
                   "may have disturbed the timing",
                   why, err);
    }
    rc = exclusive ? take_exclusive(dev, scope, lock, why, err) : take_shared(dev, scope, lock, why, err);
    if (rc)
        stitch__gpu_lock_release(lock);
    return rc;
}

void stitch__gpu_lock_release(stitch__gpu_lock *lock)
{
    let_go(&lock->fd);
    let_go(&lock->gate);
}
