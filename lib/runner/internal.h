/* SPDX-License-Identifier: MIT
 *
 * What the files of the runner share: runner.c runs the candidate, observe.c watches it run.
 */
#ifndef STITCH_LIB_RUNNER_INTERNAL_H
#define STITCH_LIB_RUNNER_INTERNAL_H

#include "profile/profile.h"
#include "program/executor.h"
#include "runner/runner.h"

/* Where loading does not say: as most loads do, so that a program cannot tell timed runs by it. */
#define STITCH__LEFTOVER 0xff

struct stitch__runner {
    stitch_task *task;
    stitch_program *program;
    stitch__device *dev;
    stitch_context *ctx;
    stitch_op *ops;
    size_t op_count;
    size_t count; /* tensors of the interface */
    stitch_tensor_info *infos;
    CUstream stream;
    bool own_stream, own_memory, abandoned, has_states;
    CUdeviceptr *sets[STITCH__SETS];
    bool *lent[STITCH__SETS]; /* of a set's memory: the caller's */
    CUdeviceptr *moved;       /* copies of the inputs, made when they are first wanted, */
    CUdeviceptr *places;      /* in the caller's memory for them; 0, or NULL: in the runner's */
    CUdeviceptr flush;
    uint64_t flush_bytes;
    CUevent start, stop;
    stitch__hasher hasher;
    unsigned char leftover; /* what workspace is filled with before each run */
    bool has_fixed;         /* there are inputs that are the same in every run */
    bool watched;           /* whether run changes what prepare wrote, */
    bool timed;             /* and runs have been timed since the program was loaded */
    /* What hashes of prepared buffers begin with, and what they come to after `prepare`, a place a buffer. */
    uint64_t key, *prepared;
    size_t prepared_count;
    stitch_executor *executor;
};

/* runner.c */
int stitch__runner_clear_states(void *self, const stitch__scope *scope, int set, stitch_error **err);
/* Events, and memory for the flush that the run asks for. */
int stitch__runner_open_timing(stitch__runner *r, const stitch__run *run, stitch_error **err);
/* Everything before the launch: patterns, copies of the inputs, bindings. */
int stitch__runner_ready(stitch__runner *r, const stitch__run *run, int *code, stitch_error **why, stitch_error **err);
int stitch__runner_enqueue(stitch__runner *r, const stitch__run *run, stitch_error **why);

/* watch.c: after everything of a timed run is enqueued: stitch__took.least_us. Whatever goes wrong is left to waiting.
 */
double stitch__runner_watch(stitch__runner *r, const stitch__scope *scope);

/* workspace.c */
/* Fills the workspace that prepare did not write, before a run. */
int stitch__runner_forget(stitch__runner *r, stitch_error **err);
/* Takes down what prepare wrote, and whether it is still there: where there are inputs that never change at any time,
 * else once runs have been timed, for what a program keeps there shows first in what it does with it. */
int stitch__runner_remember(stitch__runner *r, const stitch__scope *scope, stitch_error **err);
int stitch__runner_recall(stitch__runner *r, const stitch__scope *scope, int *code, stitch_error **why,
                          stitch_error **err);

/* observe.c: stitch__candidate_ops.profile */
int stitch__runner_profile(void *self, const stitch__scope *scope, const stitch__run *run,
                           const stitch__collect_options *options, stitch__facts **out, int *code, stitch_error **why,
                           stitch_error **err);

#endif
