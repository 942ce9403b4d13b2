/* SPDX-License-Identifier: MIT
 *
 * Private interface of the runner module: a program under test, on device memory of its own.
 *
 * Verification talks to a stitch__candidate. There are two: the runner itself, in this process, and a worker process
 * (lib/worker) that holds a runner and does what it is told over a socket. Neither sees what the reference computes.
 *
 * Two kinds of failure are kept apart. What the candidate is to blame for (a fault, wrong arguments, too much memory,
 * no end before the deadline) goes to *code and *why, and the function returns STITCH_OK; anything else that keeps
 * verification from going on is the returned status, with *err.
 */
#ifndef STITCH_LIB_RUNNER_H
#define STITCH_LIB_RUNNER_H

#include "base/base.h"
#include "cuda/cuda.h"
#include "profile/collect.h"
#include "task/task.h"

/* ---- candidate: what the stages of a verification drive ---- */

typedef struct stitch__load {
    int32_t poison; /* byte that the workspace is filled with before `prepare`; -1: it is left as it comes */
} stitch__load;

typedef struct stitch__prepared {
    double us; /* wall time of `prepare` */
    uint64_t workspace_bytes, library_workspace_bytes, launches, prepare_launches;
    uint64_t steps; /* steps of `run` as written, those in repeats included: what stitch__run.skip can name */
} stitch__prepared;

/* Of outputs of several runs, or of copies of inputs, for each program. */
#define STITCH__KEPT_BYTES (256u << 20)

enum {
    STITCH__SETS = 2,   /* outputs and states exist twice: for the first and for the second run on the same inputs */
    STITCH__BLOCK = 16, /* most runs in one call */
};

typedef struct stitch__run {
    int32_t set;    /* whose outputs and states: 0 or 1 */
    int32_t poison; /* byte that the outputs are filled with before; -1: left as they are */
    int32_t skip;   /* step of `run` that is left out; -1: none. Runs without a graph */
    int32_t moved;  /* 1: with the inputs at other addresses (the hash is still of those at the usual ones) */
    uint64_t
        flush_bytes; /* timed and profiled runs: written after the last write to the inputs, to empty the L2 cache */
    int32_t draw;    /* timed runs and those of a block: 1: new contents of the inputs from `seed`, and cleared states,
                        before it; with `moved` at the other addresses only. Timed runs of a task with states make one
                        more step before the one that is timed, on contents from stitch__seed_before() */
    uint64_t seed;
} stitch__run;

/* Of the inputs of the step before a timed one. Not those of the timed step: with the same ones a program could make
 * that step's answer in the step before, and keep it in a state. */
static inline uint64_t stitch__seed_before(uint64_t seed)
{
    return stitch__seed_derive(seed, 1, 0);
}

#define STITCH__RUN_INIT                                                                                               \
    {                                                                                                                  \
        0, -1, -1, 0, 0, 0, 0                                                                                          \
    }

/* What a run of a block does besides running. */
enum {
    STITCH__RUN_TIMED = 1,  /* as timed_run() */
    STITCH__RUN_KEPT = 2,   /* its outputs are copied before the next run begins, and hashed */
    STITCH__RUN_INPUTS = 4, /* inputs and weights are hashed after it */
    STITCH__RUN_FLAGS = 7,
};

typedef struct stitch__block_run {
    stitch__run run;                /* with draw: new contents of the inputs, and cleared states, before it */
    uint32_t does;                  /* STITCH__RUN_* */
    uint64_t key;                   /* of its hashes */
    const stitch__variant *variant; /* of what draw gives, unless it is timed; NULL: as the task declares */
} stitch__block_run;

/* A timed run by two clocks. Device code can reach the memory of events, but not the host's clock. */
typedef struct stitch__took {
    double us;       /* between two events; 0: it was not timed */
    double least_us; /* it ran at least so long: the host found the first event behind it, and so much later that the
                        stream had not come to its end. 0: the host cannot tell */
} stitch__took;

/* Runs in a row. Whatever the program may only read, and what it wrote, is hashed with a key that it cannot know while
 * it runs: later runs could write to the copies of earlier ones, but not unseen. */
typedef struct stitch__run_block {
    uint32_t count; /* 1 to STITCH__BLOCK; those that are kept no more than there is room for */
    stitch__block_run runs[STITCH__BLOCK];
} stitch__run_block;

typedef struct stitch__candidate_ops {
    const char *where; /* "in this process", "in a worker" */
    /* Compiles (or takes the image that the program carries), loads the module and makes an executor; a second call
     * starts again with a fresh module. */
    int (*load)(void *self, const stitch__scope *scope, const stitch__load *how, int *code, stitch_error **why,
                stitch_error **err);
    /* Binds everything and runs `prepare`; weights and inputs must have been filled. */
    int (*prepare)(void *self, const stitch__scope *scope, stitch__prepared *out, int *code, stitch_error **why,
                   stitch_error **err);
    /* New contents of the weights, or of the inputs: the same bits as stitch__task_fill() gives everywhere. */
    int (*fill_weights)(void *self, const stitch__scope *scope, uint64_t seed, stitch_error **err);
    int (*fill_inputs)(void *self, const stitch__scope *scope, uint64_t seed, const stitch__variant *variant,
                       stitch_error **err);
    int (*clear_states)(void *self, const stitch__scope *scope, int set, stitch_error **err);
    /* Hashes (hash.c) of weights, and of inputs if asked for: one a tensor of the interface, 0 for others. */
    int (*hash)(void *self, const stitch__scope *scope, uint64_t seed, bool inputs, uint64_t *out, stitch_error **err);
    /* One run; it has ended on return. */
    int (*run)(void *self, const stitch__scope *scope, const stitch__run *run, int *code, stitch_error **why,
               stitch_error **err);
    /* The same between two events, and watched. With run->draw everything that a timed run needs is one call, which for
     * a worker is one round trip. */
    int (*timed_run)(void *self, const stitch__scope *scope, const stitch__run *run, stitch__took *took, int *code,
                     stitch_error **why, stitch_error **err);
    /* Several runs in one call, where a call takes long beside a run (a change between the GPU contexts of two
     * processes). took[k]: of run k, zeros for one that is not timed; one that is kept can then be fetched as set
     * STITCH__SETS + k. hashes: a row for each run, one a tensor of the interface, 0 for those that are not hashed.
     * NULL: there is nothing to gain. */
    int (*run_block)(void *self, const stitch__scope *scope, const stitch__run_block *block, stitch__took *took,
                     uint64_t *hashes, int *code, stitch_error **why, stitch_error **err);
    /* Makes room for the outputs of runs 0 to count - 1 of a block. Without room for them (STITCH_E_UNSUPPORTED) runs
     * cannot be kept, and run(), timed_run() and fetch() serve. NULL with run_block. */
    int (*keep)(void *self, const stitch__scope *scope, uint32_t count, stitch_error **err);
    /* What there is to see of a run, by CUPTI or by the simulator's counters. The facts have no ceilings, no names of
     * devices and no steps' texts that the verifier could not make itself; what could not be had is named in them.
     * CUPTI is off before and after, but the process is not what it was: nothing should be timed in it any more. */
    int (*profile)(void *self, const stitch__scope *scope, const stitch__run *run,
                   const stitch__collect_options *options, stitch__facts **out, int *code, stitch_error **why,
                   stitch_error **err);
    /* Brings the outputs of a set to the verifier's device memory (a pointer a tensor); nothing to do where they are
     * there already. `stream` NULL: on return nothing that the program does can change them any more. Otherwise that
     * may be only after what comes next on this stream, which outlives the candidate, and the program must not run
     * before it. */
    int (*fetch)(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                 stitch_error **err);
    /* Where its memory is guarded (cuda/guards.h): has it written outside of its buffers? */
    int (*inspect)(void *self, const stitch__scope *scope, int *code, stitch_error **why, stitch_error **err);
    void (*close)(void *self);
} stitch__candidate_ops;

typedef struct stitch__candidate {
    const stitch__candidate_ops *ops;
    void *self;
} stitch__candidate;

/* ---- runner.c: the candidate in this process ---- */

typedef struct stitch__runner stitch__runner;

typedef struct stitch__runner_options {
    const stitch_op *ops; /* host operators */
    size_t op_count;
    /* Device memory of the caller, a pointer a tensor: inputs and weights (the same in both) and each set's outputs and
     * states. NULL: memory of the runner's own. */
    const CUdeviceptr *sets[STITCH__SETS];
    CUstream stream; /* of the caller; NULL: one of the runner's own */
    /* Where sets are NULL: memory of the caller, a pointer a tensor, for the outputs of either set, for inputs ([0])
     * and for the copies of moved ones ([1]); 0: the runner allocates. NULL: all of them. */
    const CUdeviceptr *places[STITCH__SETS];
} stitch__runner_options;

/* Task (at its current dims) and program must outlive the runner. The device is entered whenever one of these is
 * called. */
int stitch__runner_open(stitch_task *task, stitch_program *program, stitch__device *dev,
                        const stitch__runner_options *options, stitch__runner **out, stitch_error **err);
void stitch__runner_close(stitch__runner *r);
stitch__candidate stitch__runner_candidate(stitch__runner *r); /* its close() closes the runner */
/* Memory of a set, for those who put outputs elsewhere. */
const CUdeviceptr *stitch__runner_set(const stitch__runner *r, int set);
/* stitch__candidate_ops.run_block; outputs of run k go to the places from into[k * tensors] on. */
int stitch__runner_block(stitch__runner *r, const stitch__scope *scope, const stitch__run_block *block,
                         const CUdeviceptr *into, stitch__took *took, uint64_t *hashes, int *code, stitch_error **why,
                         stitch_error **err);
/* The device still runs the candidate although its time is over: nothing that it may use can be released. */
bool stitch__runner_abandoned(const stitch__runner *r);

/* Waits for what the candidate does on `stream`; *code tells how it went. A deadline that passes while it runs is its
 * failure; *abandoned is set if it has not ended two seconds later. */
int stitch__wait_candidate(stitch__device *dev, CUstream stream, const stitch__scope *scope, const char *what,
                           bool *abandoned, int *code, stitch_error **why, stitch_error **err);
/* A status of a call that runs the program or does what it demands: its failure, and not the environment's? */
bool stitch__is_candidates(int code);

/* ---- hash.c: hashes of device memory ---- */

typedef struct stitch__hasher {
    stitch__device *dev;
    CUdeviceptr hashes;
} stitch__hasher;

/* With `count` places. */
int stitch__hasher_open(stitch__hasher *h, stitch__device *dev, CUstream stream, size_t count, stitch_error **err);
void stitch__hasher_close(stitch__hasher *h);
/* Enqueues clearing of `count` places from `first` on: a place must be clear before a hash is put into it. */
int stitch__hash_clear(stitch__hasher *h, CUstream stream, size_t first, size_t count, stitch_error **err);
/* Enqueues the hash of `bytes` into place `slot`; what is hashed goes to `copy` as well (0: to nowhere). */
int stitch__hash_enqueue(stitch__hasher *h, CUstream stream, CUdeviceptr data, CUdeviceptr copy, uint64_t bytes,
                         uint64_t seed, size_t slot, stitch_error **err);

/* Tensors of an interface, of which those that have one of `roles` (1 << stitch_tensor_role) are hashed: tensor i,
 * which is at[i], into place `first` + i; what is hashed goes to copies[i] as well (NULL: to nowhere). */
typedef struct stitch__hash_row {
    const stitch_tensor_info *infos;
    size_t count;
    const CUdeviceptr *at, *copies;
    unsigned roles;
    uint64_t seed;
    size_t first;
} stitch__hash_row;

int stitch__hash_tensor_row(stitch__hasher *h, CUstream stream, const stitch__hash_row *row, stitch_error **err);
/* The first `count` places, those that nothing was enqueued for since opening as 0; waits for the stream. */
int stitch__hash_fetch(stitch__hasher *h, CUstream stream, const stitch__scope *scope, const char *what, size_t count,
                       uint64_t *out, stitch_error **err);
/* Compiles and loads the kernel, before the scope ends. */
int stitch__hash_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err);
/* All kernels of the library that runners need: those that fill and that hash. To be called before a runner or a hasher
 * is opened, which compiles what is missing without a look at the clock. */
int stitch__runner_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err);

#endif
