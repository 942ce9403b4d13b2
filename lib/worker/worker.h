/* SPDX-License-Identifier: MIT
 *
 * Private interface of the worker module: a process of its own that holds a runner (lib/runner) and does what a
 * verifier tells it. docs/worker.md says what runs where.
 *
 * The verifier keeps the reference, the expected outputs, the comparison and the baselines. The worker has the program,
 * the inputs and what the program makes of them. Whatever it answers is data from a stranger.
 */
#ifndef STITCH_LIB_WORKER_H
#define STITCH_LIB_WORKER_H

#include "base/base.h"
#include "cuda/cuda.h"
#include "runner/runner.h"
#include "task/task.h"

/* ---- client.c, pool.c: the verifier's side ----------------------------------------------------------------------- */

typedef struct stitch__worker stitch__worker;

/* What a worker is for. Those that idle are kept apart by it: what one has been through shows in the times of the next.
 */
typedef enum stitch__worker_role {
    STITCH__WORKER_CANDIDATE,
    STITCH__WORKER_BASELINE, /* only baselines run in it, never a candidate */
    /* CUPTI is loaded in it, and it keeps the privilege to count, where the host has that. Serves once: CUPTI does not
     * tell kernels apart for long. */
    STITCH__WORKER_PROFILER,
    /* Compiles sources of strangers, and opens no device: a context without one can have it, too. */
    STITCH__WORKER_COMPILER,
} stitch__worker_role;

typedef struct stitch__worker_options {
    const char *executable; /* NULL: $STITCH_WORKER, else the one beside the library */
    bool no_sandbox;        /* for debugging a worker */
    bool fresh;             /* not one that has done something already */
    int role;               /* stitch__worker_role */
} stitch__worker_options;

/* One that idles, or a new one on the same device as the context's. Waits until it is ready; the scope ends that.
 * STITCH_E_UNSUPPORTED: the context's driver is the host's own (get_proc), which another process cannot call;
 * STITCH_E_NOT_FOUND: there is no stitch-worker; STITCH_E_IO: it does not start. options may be NULL. */
int stitch__worker_acquire(stitch_context *ctx, const stitch__scope *scope, const stitch__worker_options *options,
                           stitch__worker **out, stitch_error **err);
/* Starts one in the background, for whoever acquires it next with default options but for the role, unless one idles.
 * Does not wait, and leaves every trouble to that call. */
void stitch__worker_ahead(stitch_context *ctx, int role);
/* Compiles in one of role COMPILER (options: NULL, or which; its role is not looked at). *missing: none could be had,
 * and nobody has seen the source. Otherwise STITCH_E_COMPILE: the process did not survive the source, or gave no proper
 * answer; STITCH_E_TIMEOUT, STITCH_E_CANCELLED: it was ended because the scope was. */
int stitch__worker_compile(stitch_context *ctx, const stitch__scope *scope, const stitch__worker_options *options,
                           const stitch__rtc_input *in, stitch__rtc *out, bool *missing, stitch_error **err);
/* Sends program (with the images that it carries) and task (interface at its current dims, distributions, data of
 * inputs and weights; nothing of its reference). Both must outlive the candidate; the candidate's close() ends the
 * session and keeps the worker. Its operations may be called after an error too: they then return one. */
int stitch__worker_open(stitch__worker *w, const stitch__scope *scope, stitch_task *task, stitch_program *program,
                        stitch__candidate *out, stitch_error **err);
/* The same on the memory for inputs and outputs of `beside` (NULL: of its own), which has a program of the same task
 * and must keep it for as long: each place of a tensor is the other place there. Where that has none, of its own. */
int stitch__worker_open_beside(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope, stitch_task *task,
                               stitch_program *program, stitch__candidate *out, stitch_error **err);
/* No tensor has the same place in both, so that in a set neither finds what the other wrote. */
bool stitch__worker_apart(const stitch__worker *w, const stitch__worker *other);
/* What the program of `w` has borrowed of `lender` is still there. */
bool stitch__worker_stands(const stitch__worker *w, const stitch__worker *lender);
/* Why outputs of the program at hand come back through the host's memory; NULL: they lie in device memory that both
 * processes map. */
const char *stitch__worker_unshared(const stitch__worker *w);
/* Keeps it for the next caller if it is sound and `reusable`; else ends it and starts another one in the background if
 * it was lost. NULL is ignored. */
void stitch__worker_release(stitch__worker *w, bool reusable);

/* An empty request: what a round trip costs. */
int stitch__worker_ping(stitch__worker *w, const stitch__scope *scope, stitch_error **err);
/* What confines it: "landlock 5, seccomp, rlimits". Cleaned text of the worker. */
const char *stitch__worker_sandbox(const stitch__worker *w);
int stitch__worker_pid(const stitch__worker *w);
/* Nothing can be asked of it any more. */
bool stitch__worker_lost(const stitch__worker *w);
/* The same program in this worker and in another one (lib/verify/control.c). It says something about the two for as
 * long as they live, so it is kept here; runs 0: nothing yet. */
typedef struct stitch__control {
    int peer;                 /* process of the other one */
    char task[65];            /* hash of the task whose main baseline it was */
    double here_us, there_us; /* medians in this worker and in the other one */
    int runs;                 /* in each */
} stitch__control;
stitch__control *stitch__worker_control(stitch__worker *w);
/* A question that only a test's worker answers (hooks below). *answer is released with stitch_free(). */
int stitch__worker_probe(stitch__worker *w, const stitch__scope *scope, const char *question, char **answer,
                         stitch_error **err);

/* ---- lock.c: one timing at a time on a device, and nothing beside it, between processes -------------------------- */

typedef struct stitch__gpu_lock {
    int fd, gate; /* -1: not held; the gate is held with an exclusive one */
} stitch__gpu_lock;

#define STITCH__GPU_LOCK_INIT                                                                                          \
    {                                                                                                                  \
        -1, -1                                                                                                         \
    }

/* An advisory lock of this user's processes, named by the device's UUID, in $XDG_RUNTIME_DIR or in the context's cache
 * folder. Exclusive for timing; shared for whatever else uses the device and would disturb it. A thread holds one at a
 * time: another one, even a shared one beside a shared one, could wait for itself. `*why` (may be NULL; released with
 * stitch_free()) says why others were not kept away where STITCH_OK comes with lock->fd -1: no folder can be written,
 * or those who share the device (exclusive: for 10 s), or a timing (shared: for two minutes), did not end. */
int stitch__gpu_lock_take(stitch__device *dev, const stitch__scope *scope, bool exclusive, stitch__gpu_lock *lock,
                          char **why, stitch_error **err);
void stitch__gpu_lock_release(stitch__gpu_lock *lock);

/* ---- serve.c: the worker's side ---------------------------------------------------------------------------------- */

/* For tests. */
typedef struct stitch__worker_hooks {
    /* Answers stitch__worker_probe(); NULL in the real worker, which refuses the question. */
    void (*probe)(const char *question, stitch__buf *answer);
    /* Changes the hashes of kept outputs before they are sent; NULL: nobody does. */
    void (*hashes)(uint64_t *hashes, size_t count);
    /* Changes the times of a block's runs before they are sent; NULL: nobody does. */
    void (*times)(stitch__took *took, size_t count);
} stitch__worker_hooks;

/* The worker's main(): serves on descriptor STITCH__WORKER_FD until the other side is gone. Returns the exit code. */
int stitch__worker_main(const stitch__worker_hooks *hooks);

#define STITCH__WORKER_FD 3

#endif
