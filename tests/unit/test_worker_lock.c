/* SPDX-License-Identifier: MIT
 *
 * The lock of a device between processes of a user: who keeps whom away, and what is no lock.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "descriptors.h"
#include "worker/worker.h"

static stitch_context *ctx;
static stitch_error *err;
static char lock_folder[64];

static stitch__device *open_locks(void)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch__device *dev = NULL;

    snprintf(lock_folder, sizeof(lock_folder), "/tmp/stitch-lock-test-XXXXXX");
    CHECK(mkdtemp(lock_folder) != NULL);
    CHECK_INT(setenv("XDG_RUNTIME_DIR", lock_folder, 1), 0);
    options.device = "sim:sm_90";
    options.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    return dev;
}

static void close_locks(void)
{
    char command[128];

    stitch_context_free(ctx);
    CHECK_INT(unsetenv("XDG_RUNTIME_DIR"), 0);
    snprintf(command, sizeof(command), "rm -rf %s", lock_folder);
    CHECK_INT(system(command), 0);
}

static bool take_lock(stitch__device *dev, bool exclusive, stitch__gpu_lock *lock)
{
    stitch__scope soon = stitch__scope_make(ctx, NULL, 50);
    int rc = stitch__gpu_lock_take(dev, &soon, exclusive, lock, NULL, &err);

    CHECK(rc == STITCH_OK || rc == STITCH_E_TIMEOUT);
    CHECK((rc == STITCH_OK) == (lock->fd >= 0));
    CHECK(rc == STITCH_OK || lock->gate < 0);
    stitch_error_free(err);
    err = NULL;
    return rc == STITCH_OK;
}

/* One that times is alone; others may use the device together. Who gives up leaves nothing behind. */
TEST(one_timing_at_a_time)
{
    stitch__gpu_lock first, second, third;
    int before = count_descriptors();
    stitch__device *dev = open_locks();

    for (int i = 0; i < 2; i++) {
        CHECK(take_lock(dev, false, &first));
        CHECK(take_lock(dev, false, &second));
        CHECK(!take_lock(dev, true, &third));
        stitch__gpu_lock_release(&first);
        CHECK(!take_lock(dev, true, &third));
        stitch__gpu_lock_release(&second);
        CHECK(take_lock(dev, true, &first));
        CHECK(!take_lock(dev, true, &second));
        CHECK(!take_lock(dev, false, &second));
        stitch__gpu_lock_release(&first);
        stitch__gpu_lock_release(&first); /* not held any more */
    }
    close_locks();
    CHECK_INT(count_descriptors(), before);
}

typedef struct waiting {
    stitch__device *dev;
    atomic_bool over;
} waiting;

static void *wait_for_it(void *arg)
{
    waiting *w = arg;
    stitch__scope scope = stitch__scope_make(ctx, NULL, 5000);
    stitch__gpu_lock lock;

    if (stitch__gpu_lock_take(w->dev, &scope, true, &lock, NULL, NULL) == STITCH_OK)
        stitch__gpu_lock_release(&lock);
    atomic_store(&w->over, true);
    return NULL;
}

/* Those that come and go cannot keep a timing out for ever: while one waits, nobody else comes in. */
TEST(nobody_passes_who_waits)
{
    stitch__gpu_lock first, second;
    waiting w = {.dev = open_locks()};
    pthread_t thread;
    bool passed = true;

    CHECK(take_lock(w.dev, false, &first));
    CHECK_INT(pthread_create(&thread, NULL, wait_for_it, &w), 0);
    while (passed && !atomic_load(&w.over)) {
        passed = take_lock(w.dev, false, &second);
        stitch__gpu_lock_release(&second);
    }
    stitch__gpu_lock_release(&first);
    pthread_join(thread, NULL);
    close_locks();
    CHECK(!passed);
}

/* What somebody has put in the place of a lock is none, and is left as it is. */
TEST(files_that_are_no_locks)
{
    char path[PATH_MAX], victim[PATH_MAX + 16], *why = NULL;
    stitch__gpu_lock lock;
    stitch__device *dev = open_locks();
    stitch__scope soon = stitch__scope_make(ctx, NULL, 10000);
    struct stat st;

    CHECK(take_lock(dev, true, &lock));
    snprintf(victim, sizeof(victim), "/proc/self/fd/%d", lock.fd);
    ssize_t n = readlink(victim, path, sizeof(path) - 1);
    CHECK(n > 0);
    path[n] = 0;
    CHECK(strncmp(path, lock_folder, strlen(lock_folder)) == 0 && stat(path, &st) == 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    stitch__gpu_lock_release(&lock);
    snprintf(victim, sizeof(victim), "%s.victim", path);
    for (int kind = 0; kind < 3; kind++) {
        CHECK_INT(unlink(path), 0);
        CHECK_INT(kind == 0 ? symlink(victim, path) : kind == 1 ? mkfifo(path, 0600) : symlink("/dev/null", path), 0);
        for (int exclusive = 0; exclusive < 2; exclusive++) {
            CHECK_OK(stitch__gpu_lock_take(dev, &soon, exclusive, &lock, &why, &err));
            CHECK(lock.fd < 0 && lock.gate < 0);
            CHECK_HAS(why, "can be written");
            stitch_free(why);
        }
    }
    CHECK(access(victim, F_OK) != 0);
    close_locks();
}

/* A child that the host has forked while the lock was held has its descriptors, too. */
TEST(a_lock_does_not_outlive_its_holder_in_a_forked_child)
{
    stitch__gpu_lock lock, next;
    stitch__scope scope;
    stitch__device *dev = open_locks();
    int hold[2];
    pid_t child;

    scope = stitch__scope_make(ctx, NULL, 2000);
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &lock, NULL, &err));
    CHECK(lock.fd >= 0);
    CHECK_INT(pipe(hold), 0);
    child = fork();
    if (child == 0) {
        char byte;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) < 0);
    }
    CHECK(child > 0);
    stitch__gpu_lock_release(&lock);
    CHECK_OK(stitch__gpu_lock_take(dev, &scope, true, &next, NULL, &err));
    stitch__gpu_lock_release(&next);
    close(hold[0]);
    close(hold[1]);
    CHECK(waitpid(child, NULL, 0) == child);
    close_locks();
}

TEST_MAIN(RUN(one_timing_at_a_time), RUN(nobody_passes_who_waits), RUN(files_that_are_no_locks),
          RUN(a_lock_does_not_outlive_its_holder_in_a_forked_child))
