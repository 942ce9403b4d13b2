/* SPDX-License-Identifier: MIT
 *
 * Private to stage time: the programs that are timed, and the blocks of runs in which that is done. time_sides.c opens
 * and runs them, time_check.c checks what their runs left, stage_time.c has the order of it all.
 */
#ifndef STITCH_LIB_VERIFY_TIMING_H
#define STITCH_LIB_VERIFY_TIMING_H

#include "verify/verify.h"

/* One side of the measurement: the candidate, or a baseline. What a program needs beside its kernels (another process,
 * guarded memory) must cost both sides the same: where the candidate is in a worker, a baseline that is a program gets
 * a worker of its own, in which no candidate has ever run. */
typedef struct stitch__side {
    stitch__timing *timing;
    CUdeviceptr *set;          /* where its outputs are compared */
    stitch__oracle *oracle;    /* of a baseline in this process; NULL: driven through `program` */
    stitch__candidate program; /* the candidate, or a baseline in a worker */
    stitch__worker *worker;    /* of that baseline */
    bool candidate;
    bool broken;      /* a baseline that failed: not measured further */
    bool taken;       /* what its run has left is in `set`, where the block is one run */
    uint32_t kept;    /* outputs of so many runs in a row have room; 0: of one, where the program wrote them */
    uint64_t *hashes; /* of those, a row of tensors for each run */
    double *least_us; /* stitch__took of each timed run, where it is driven through `program` */
    size_t least_count, least_cap;
} stitch__side;

typedef struct stitch__timer {
    stitch__verify *v;
    CUevent start, stop;
    CUdeviceptr flush;
    uint64_t flush_bytes;
    size_t side_count;
    stitch__side *sides; /* the candidate, the main baseline, others */
    stitch__trial_output *outputs;
    stitch__comparison *compared; /* STITCH__ROWS rows, one an output */
    uint64_t *hashes;             /* as many, one a tensor */
    int64_t checking_ns;          /* spent on checking outputs of timed runs */
    bool can_move;                /* inputs are small enough to be there twice */
} stitch__timer;

/* Iterations that are measured together. */
typedef struct stitch__block {
    size_t number;       /* of the block */
    size_t first, count; /* iterations; count 1: nothing need be kept */
    bool check;          /* all of them, and not only those that always are */
    bool last;           /* none follow */
    uint64_t keys[STITCH__BLOCK];
} stitch__block;

/* ---- time_sides.c ---- */

/* All sides of the task, the candidate first, with what timing needs. Close also after a failure. */
int stitch__timer_open(stitch__timer *t, stitch_error **err);
void stitch__timer_close(stitch__timer *t);
/* Room for outputs of several runs, where that is worth something. Without it, a run is a block. */
int stitch__side_room(stitch__timer *t, stitch__side *s, stitch_error **err);
int stitch__side_warm_up(stitch__timer *t, stitch__side *s, int *code, stitch_error **why, stitch_error **err);
/* Where the runs of a block find their inputs, and which set of outputs they write. */
bool stitch__block_moved(const stitch__timer *t, const stitch__block *b);
int stitch__block_set(const stitch__block *b);
/* A timed run of a block, on contents from `seed`. */
stitch__run stitch__timed_run_of(const stitch__timer *t, const stitch__block *b, uint64_t seed);
/* The timed runs of a side in a block. */
int stitch__side_run(stitch__timer *t, stitch__side *s, const stitch__block *b, int *code, stitch_error **why,
                     stitch_error **err);
/* How something that was done with a baseline ended: `code` is the program's failure, `rc` any other one; *why, which
 * is used up, has the error of either. One whose worker is gone cannot be measured, whenever that shows. */
int stitch__side_ended(stitch__verify *v, stitch__side *s, int rc, int code, stitch_error **why, stitch_error **err);
/* Of the inputs of an iteration. */
uint64_t stitch__timer_seed(const stitch__timer *t, size_t iteration);

/* ---- time_clock.c ---- */

/* A timed run of a program. */
int stitch__clock_add(stitch__timer *t, stitch__side *s, const stitch__took *took, stitch_error **err);
/* Whether the candidate's times can be true. *code, *why: they cannot. */
int stitch__clock_judge(stitch__timer *t, int *code, stitch_error **why);

/* ---- control.c ---- */

/* Between opening the sides and loading the candidate afresh: what the candidate's samples have too much by its
 * worker. Known from an earlier verification of the same task by the same two workers, or measured. */
int stitch__control_run(stitch__timer *t, stitch_error **err);
/* When all is measured: what is too much of a run of the candidate is not taken off after all. */
void stitch__control_settle(stitch__timer *t);

/* ---- time_check.c ---- */

/* Brings what the one run of a block left out of reach of the next side, where both are on the same memory: the place
 * of an output is the other place there, which a timed run clears. */
int stitch__side_take(stitch__timer *t, stitch__side *s, const stitch__block *b, stitch_error **err);
/* Whether the candidate has changed its weights, which are written once, or what lies around its memory. *code, *why:
 * it has. */
int stitch__look_around(stitch__timer *t, int *code, stitch_error **why, stitch_error **err);
/* What a block left against the reference, of the first `sides` sides: of the candidate each run, or only the first,
 * the last and a secret one of all; of baselines some. A wrong one of the candidate's is its failure. */
int stitch__block_check(stitch__timer *t, const stitch__block *b, size_t sides, int *code, stitch_error **why,
                        stitch_error **err);

#endif
