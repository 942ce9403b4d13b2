/* SPDX-License-Identifier: MIT
 *
 * Private interface of the verify module: the report while it is made, the comparison on the device, the stages.
 */
#ifndef STITCH_LIB_VERIFY_H
#define STITCH_LIB_VERIFY_H

#include "base/base.h"
#include "cuda/cuda.h"
#include "profile/result.h"
#include "runner/runner.h"
#include "task/task.h"
#include "worker/worker.h"
#include "verify/exploit.h"
#include <stitch/verify.h>

/* What outputs are filled with before a run. 0xff.. is a NaN in every floating dtype and -1 in integers; 0x7f.. is
 * another NaN or a huge number. An element that holds the first after one run and the second after another one was not
 * written, whatever the right value is. */
#define STITCH__POISON_A 0xff
#define STITCH__POISON_B 0x7f

/* ---- compare.c --------------------------------------------------------------------------------------------------- */

/* Of an output; `integer` where both sides are int64, which doubles do not hold. */
typedef union stitch__element {
    double real;
    int64_t integer;
} stitch__element;

/* Made by compare.cu; the layouts must agree. Indices are UINT64_MAX where there is none. */
typedef struct stitch__comparison {
    uint64_t elements, mismatches;
    uint64_t first, last, worst; /* of the mismatches; worst: of all elements, by error over tolerance */
    uint64_t nan_got, nan_want, inf_got, inf_want;
    uint64_t unwritten, unwritten_first, differ; /* differ: bits that changed from run to run */
    uint64_t not_finite;                         /* mismatches with a NaN or an infinity on a side */
    double max_abs, max_rel, sum_abs,
        sum_rel; /* over elements that are finite on both sides; rel where |want| > atol */
    uint64_t finite, rel_count;
    double worst_key;
    stitch__element worst_got, worst_want, first_got, first_want;
} stitch__comparison;

typedef struct stitch__comparator {
    stitch__device *dev;
    CUdeviceptr partials, results, location;
    unsigned grid;
} stitch__comparator;

/* With places for so many results. */
int stitch__comparator_open(stitch__comparator *c, stitch__device *dev, size_t places, stitch_error **err);
void stitch__comparator_close(stitch__comparator *c);
/* What is compared: `count` elements of `got` with `want`. `again` (0: none) is the output of a second run; `got` was
 * filled with STITCH__POISON_A before its run and `again` with STITCH__POISON_B; without `again`, only wrong elements
 * that hold the pattern count as unwritten. */
typedef struct stitch__compared {
    const char *name;
    CUdeviceptr got, again, want;
    int got_dtype, want_dtype;
    uint64_t count;
    double atol, rtol;
} stitch__compared;

/* Enqueues it; the result goes to `place`. */
int stitch__compare_enqueue(stitch__comparator *c, CUstream stream, const stitch__compared *what, size_t place,
                            stitch_error **err);
/* Waits for the stream, and gives the results of the first `count` places. */
int stitch__compare_fetch(stitch__comparator *c, CUstream stream, const stitch__scope *scope, size_t count,
                          stitch__comparison *out, stitch_error **err);
/* Both. */
int stitch__compare(stitch__comparator *c, CUstream stream, const stitch__scope *scope, const stitch__compared *what,
                    stitch__comparison *out, stitch_error **err);
/* Where the mismatches of an output are. */
typedef struct stitch__location {
    uint64_t low[8], high[8]; /* along each axis; low > high where there is none */
    uint64_t stretch[64];     /* mismatches in each of 64 equal stretches of the elements in their order */
} stitch__location;

int stitch__compare_locate(stitch__comparator *c, CUstream stream, const stitch__scope *scope,
                           const stitch_tensor_info *info, CUdeviceptr got, int got_dtype, CUdeviceptr want,
                           int want_dtype, double atol, double rtol, stitch__location *out, stitch_error **err);
/* Compiles and loads the kernels, before the scope ends. */
int stitch__compare_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err);

/* ---- report.c ---------------------------------------------------------------------------------------------------- */

typedef struct stitch__diag {
    int severity, line, column;
    char *file, *message, *source_line; /* source_line: "" if unknown */
} stitch__diag;

typedef struct stitch__kernel_row {
    char *name;
    int64_t registers, static_shared, local, spill_stores, spill_loads, max_threads;
} stitch__kernel_row;

typedef struct stitch__tensor_row {
    char *name;
    int role, dtype, want_dtype; /* want_dtype: the reference's, of outputs */
    size_t rank;
    int64_t shape[STITCH_MAX_RANK];
    uint64_t bytes;
    char dist[96];
} stitch__tensor_row;

typedef struct stitch__trial_output {
    size_t tensor; /* index into the report's tensors */
    stitch__comparison c;
    bool second_run; /* of a trial, on the same inputs: it is the worse one */
    bool located;    /* where has where the mismatches are */
    stitch__location where;
    /* The error budget: what a computation at the task's own precision gets wrong on the same inputs. */
    bool budgeted;     /* it was measured */
    bool in_budget;    /* there are mismatches, but no error beyond the budget */
    bool own_unusable; /* the measure has NaN or infinity where the reference has none, or is no result at all */
    double own_max_abs, own_mean_abs;
} stitch__trial_output;

typedef struct stitch__trial {
    const char *kind; /* "declared", "large", "sparse" */
    bool strict;      /* decides; otherwise only information */
    bool declared;    /* inputs as the task declares them */
    bool ran, passed;
    uint64_t seed;
    size_t output_count;
    stitch__trial_output *outputs;
    char *note; /* NULL, or why it did not run or fails: "it changes its input x" */
} stitch__trial;

typedef struct stitch__timing {
    char *name, hash[65]; /* hash: of a baseline that is a program, else "" */
    int precision;        /* stitch_precision; -1: the reference's, stated as such */
    size_t count, cap;
    double *samples; /* microseconds, in order of measurement */
    double median, low, high, mean, smallest;
    int checks, checks_passed; /* timed iterations whose outputs were compared */
    double max_abs, max_rel;   /* in those */
    uint64_t mismatches;
    double taken_off_us; /* every sample, by the control; below 0: it was added */
} stitch__timing;

/* The least time that the task can take on the device: what must be read of the inputs and what the L2 cache cannot
 * keep of the outputs at the memory's peak rate, or the operations that the task states at the peak rate of its
 * precision. Weights are left out of the sum: `prepare` may fold or shrink them. Times in microseconds; 0: not known.
 */
typedef struct stitch__bound {
    uint64_t bytes, weight_bytes; /* of inputs and outputs; of weights */
    uint64_t memory_bytes;        /* of `bytes`, what must come from or go to memory */
    double flops;
    double bytes_us, weights_us, memory_us, flops_us;
    double us; /* the greater of memory_us and flops_us: a time below is refused */
} stitch__bound;

/* How timed runs were put together. */
typedef struct stitch__timed_blocks {
    size_t count, longest;             /* blocks of a side's runs in a row; runs of the longest */
    bool moved_inputs, second_outputs; /* some had copies of the inputs, or the second set of outputs */
    const char *alone;                 /* why no block has more than one run; NULL: some have */
} stitch__timed_blocks;

/* Clocks while the stage was measured, if they could be read. */
typedef struct stitch__clock_range {
    size_t count;
    uint32_t sm_low, sm_high, memory_low, memory_high; /* MHz */
    uint64_t reasons;                                  /* all that were active */
} stitch__clock_range;

struct stitch_report {
    stitch_context *ctx;
    struct {
        int status;
        double ms;
        char *message;
    } stages[STITCH_STAGE_COUNT];
    int failed_stage, failed_status;

    char *task_name, *task_hash, *program_hash;
    bool reduced;
    size_t dim_count;
    struct {
        char *name;
        int64_t value;
    } * dims;
    size_t tensor_count;
    stitch__tensor_row *tensors;
    double atol, rtol;
    int precision;
    char *reference; /* "callback, outputs f64" */
    uint64_t seed;

    json_t *options; /* what was asked for; NULL: it did not come to that */
    char *device_name, *device_arch, *nvrtc, *driver_release, *cublaslt; /* the last: NULL where it has no part */
    bool simulated;
    bool reaches_host; /* device code can address the host memory of its process */
    int driver_version;

    char *findings; /* lines of validate or of the simulator; "" if none */
    size_t diag_count, diag_cap;
    stitch__diag *diags;
    size_t diags_left_out;
    size_t kernel_count;
    stitch__kernel_row *kernels;
    bool compile_cached;

    double prepare_us;
    uint64_t workspace_bytes, library_workspace_bytes, launches, prepare_launches;

    size_t trial_count, trial_cap;
    stitch__trial *trials;
    bool repeatable; /* every strict trial gave the same bits twice */
    char *where;     /* the program ran: "in this process", "in a worker (landlock 4, seccomp)" */
    char *outputs;   /* how they came from there: "through the host's memory: ..."; NULL: it was in this process */
    bool isolated;   /* in a worker */
    char *budget;    /* the baseline that the error budget is measured by; NULL: none */

    stitch__exploit exploit;

    stitch__timing candidate;
    double busy_us;          /* how long the device works in a run of it; 0: not known, */
    char *busy_note;         /* because (NULL: the stage's message says it) */
    stitch_profile *profile; /* of stage profile; NULL: there is none */
    size_t baseline_count;
    stitch__timing *baselines;
    int warmup;
    uint64_t flush_bytes;
    bool l2_reset; /* of the verifier's own context */
    stitch__timed_blocks blocks;
    double clock_excess_us;           /* the least that a run takes by the host's clock, more than by events */
    bool clock_known;                 /* that has been compared */
    stitch__control control;          /* runs 0: there was none, */
    const char *no_control;           /* because; with runs: it was not used, because. NULL: it was */
    double speedup_low, speedup_high; /* against the main baseline: 95 % interval */
    stitch__bound bound;
    stitch__clock_range clocks;

    size_t note_count, note_cap;
    char **notes;

    char *json, *text;
    char fingerprint[65];
};

int stitch__report_new(stitch_context *ctx, stitch_report **out, stitch_error **err);
/* Replaces *field by cleaned text of at most `max` bytes. */
int stitch__report_set(stitch_report *r, char **field, const char *text, size_t max, stitch_error **err);
STITCH__PRINTF(3, 4) int stitch__report_note(stitch_report *r, stitch_error **err, const char *fmt, ...);
/* A stage ends. A failed one also becomes the report's failed stage if it is the first. message NULL: "". */
int stitch__report_stage_set(stitch_report *r, int stage, int status, int code, const char *message,
                             stitch_error **err);
int stitch__report_add_diag(stitch_report *r, const stitch_diagnostic *d, const char *source, stitch_error **err);
stitch__trial *stitch__report_add_trial(stitch_report *r, const char *kind, bool strict,
                                        size_t outputs); /* NULL: no memory */
/* 1 - busy time / median, at least 0; negative: not known. */
double stitch__idle_share(const stitch_report *r);
/* How many times as fast as a baseline the candidate is; 0: not known, or it does not count, for stage time did not
 * pass or the task is degenerate. */
double stitch__speedup_over(const stitch_report *r, const stitch__timing *baseline);
int stitch__timing_add(stitch_report *r, stitch__timing *t, double us, stitch_error **err);
double stitch__median(double *us, size_t count); /* sorts them; count: not 0 */
/* Median, percentiles and so on of a copy that it sorts. false: no memory. */
bool stitch__timing_finish(stitch_report *r, stitch__timing *t);
/* Adds to all samples, and to what has been made of them. */
void stitch__timing_shift(stitch__timing *t, double us);
/* JSON, text and fingerprint; the report is immutable from here on. */
int stitch__report_finish(stitch_report *r, stitch_error **err);

/* report_json.c, report_text.c, feedback.c */
char *stitch__report_to_json(const stitch_report *r); /* NULL: no memory */
char *stitch__report_to_text(const stitch_report *r);
void stitch__report_fingerprint(stitch_report *r);
const char *stitch__stage_status_name(int status);
/* The elements of an output's comparison are integers. */
bool stitch__holds_i64(const stitch__tensor_row *t);
/* What is wrong with an output, in a line: "y: 5 of 1024 elements ..." */
void stitch__describe_comparison(stitch__buf *b, const stitch_report *r, const stitch__trial_output *o);
/* The first strict trial that failed; NULL if none did. */
const stitch__trial *stitch__report_failed_trial(const stitch_report *r);

/* ---- verify.c ---------------------------------------------------------------------------------------------------- */

/* Runs of the candidate that have been made, and whose turn has not come (ahead.c). */
typedef struct stitch__ahead {
    stitch__run_block block;
    uint32_t next;                   /* whose turn it is; block.count: nobody's */
    uint64_t *hashes;                /* of what they left, a row for each */
    uint64_t *own_hashes;            /* of what was fetched of one */
    uint64_t keys;                   /* that have been used */
    uint64_t drawn;                  /* seed of the contents of v's inputs, */
    const stitch__variant *drawn_as; /* and what they are like */
} stitch__ahead;

typedef struct stitch__verify {
    stitch_context *ctx;
    stitch_task *task;
    stitch_program *program;
    stitch_verify_options options; /* defaults filled in */
    stitch__scope scope;
    stitch__device *dev;     /* NULL: there is none, */
    stitch_error *no_device; /* because */
    stitch_report *report;
    const stitch_image *image; /* of the program, owned by it */

    /* Device memory: a pointer for each tensor of the interface. All sets share inputs and weights. */
    size_t count;
    stitch_tensor_info *infos; /* strings are the task's */
    bool sets_open, has_states, inputs_fixed, has_float_inputs;
    CUstream stream;
    CUdeviceptr *first, *again; /* the candidate's two runs */
    CUdeviceptr *want;          /* the reference */
    uint64_t *hashes, *hashes_after, hashed_with;
    stitch__comparator comparator;
    stitch__hasher hasher; /* of inputs and weights as the reference has them */
    stitch__oracle *oracle;
    struct stitch__yardstick *yardstick; /* budget.c; NULL: the task has nothing to measure its own error by */

    stitch__candidate candidate; /* what runs the program; ops NULL: not open */
    uint32_t room;               /* outputs of so many runs in a row can be kept; see place.c */
    bool room_known;             /* that has been asked */
    stitch__ahead ahead;
    stitch__runner *runner; /* the same, where that is in this process */
    stitch__worker *worker; /* the process, where it is not */
    /* The process of stage profile. It is ended last: while a process with a context ends and the next one starts, the
     * driver lets others wait, those who free memory among them. */
    stitch__worker *profiler;
    struct stitch__warmer *warmer;
    bool seen_by_compiler;           /* a compiler's process has had the program's source */
    bool compiles_here;              /* there is none, as the report says */
    stitch__gpu_lock lock;           /* shared, while a stage uses the device and does not time */
    int64_t waited_ns;               /* for others who use or time on the device */
    stitch__collect_options collect; /* what stage profile is asked for */
} stitch__verify;

/* repeat.c */
int stitch__take_options(stitch__verify *v, stitch_error **err);
int stitch__take_software(stitch__verify *v, stitch_error **err); /* when everything that is opened has been */

/* Ends a stage as failed because of the program; the error is freed and cleared. */
int stitch__stage_fail(stitch__verify *v, int stage, int code, stitch_error **why, stitch_error **err);
int stitch__stage_end(stitch__verify *v, int stage, int status, const char *message, stitch_error **err);
void stitch__stage_progress(stitch__verify *v, int stage, int64_t done, int64_t total);
/* Fills in v->infos and what else follows from the task's current dims, and the report's rows. */
int stitch__take_tensors(stitch__verify *v, stitch_error **err);
/* After `rc` of such a call: ends the stage and returns STITCH_OK, or hands the error on. */
int stitch__stage_judge(stitch__verify *v, int stage, int rc, stitch_error **why, stitch_error **err);
/* stitch__gpu_lock_take(), counting what it takes. */
int stitch__share_or_time(stitch__verify *v, bool exclusive, stitch__gpu_lock *lock, char **why, stitch_error **err);

/* budget.c: how wrong the task's own precision is. */
#define STITCH__BUDGET_FACTOR 4.0
/* The baseline that serves as the measure; NULL: the task has none. */
const stitch__compute *stitch__budget_baseline(const stitch_task *t);
/* Opens it, if there is one; with the sets. */
int stitch__budget_open(stitch__verify *v, stitch_error **err);
void stitch__budget_close(stitch__verify *v);
/* True if the measure has exactly the task's precision, so that trials beyond the declared inputs can decide. */
bool stitch__budget_exact(const stitch__verify *v);
/* Measures on the inputs that are there, with v->want as the reference's outputs, and fills in outputs[]. */
int stitch__budget_apply(stitch__verify *v, stitch__trial_output *outputs, stitch_error **err);
/* An output passes: nothing is unwritten, and every error is within the tolerance or within the budget. */
bool stitch__output_passes(const stitch__trial_output *o);
/* The first output that does not pass; NULL: all do. */
const stitch__trial_output *stitch__first_wrong(const stitch__trial_output *outputs, size_t count);

/* statistics.c */
/* 95 % bootstrap interval of median(baseline) / median(candidate) over `count` pairs; the same for the same seed. */
int stitch__speedup_interval(const stitch_context *ctx, const double *baseline, const double *candidate, size_t count,
                             uint64_t seed, double *low, double *high, stitch_error **err);

/* bound.c */
/* With all inputs. */
void stitch__lower_bound(const stitch__verify *v, stitch__bound *out);
/* Before somebody is refused for it: leaves out the inputs that the reference does not show to need as a whole. Runs
 * the reference, and overwrites inputs, v->want and v->hashes. */
int stitch__bound_confirm(stitch__verify *v, stitch__bound *b, stitch_error **err);

/* baseline.c */
/* Whether a baseline can be in another process at all. */
bool stitch__baseline_apart(const stitch__verify *v, const stitch__compute *what);
/* Whether the main one will be, as far as can be told before anything has run. */
bool stitch__baseline_expected(const stitch__verify *v);
/* Opens it there; the main one on the candidate's memory for inputs and outputs (stitch__worker_open_beside()). *worker
 * is to be released also after a failure. */
int stitch__baseline_open(stitch__verify *v, const stitch__compute *what, bool main, stitch__worker **worker,
                          stitch__candidate *out, stitch_error **err);

/* warm.c: compiles in other threads what will be needed later (the library's kernels, reference, baselines). */
int stitch__warm_start(stitch__verify *v, stitch_error **err);
/* Waits for all of that. false: something was not compiled when the scope ended. */
bool stitch__warm_join(stitch__verify *v);
/* Some of that is not compiled yet: others have to wait, for NVRTC compiles one at a time. */
bool stitch__warm_compiles(const stitch__verify *v);

/* compile.c: compiles the program for an architecture, in a process of its own where the options want it and there is
 * one. *code, *why: its failure. */
int stitch__candidate_compile(stitch__verify *v, const char *arch, bool ptx, const stitch_image **image, int *code,
                              stitch_error **why, stitch_error **err);
/* Its PTX: what it has, or a compilation of that kind. `self` is a stitch__verify. */
int stitch__candidate_ptx(void *self, const char *arch, const stitch_image **image, stitch_error **err);
bool stitch__wants_compiler(const stitch__verify *v);

/* place.c: opens the candidate where the options want it. v->sets are open. */
int stitch__candidate_open(stitch__verify *v, stitch_error **err);
/* Weights and first inputs of a candidate, or of a baseline, in a worker that has just been opened. */
int stitch__candidate_fill(stitch__verify *v, const stitch__candidate *c, const stitch__scope *scope,
                           stitch_error **err);
/* A fresh module, prepared: what the program left in its own memory before is gone. */
int stitch__candidate_afresh(stitch__verify *v, const stitch__candidate *c, const stitch__scope *scope, int *code,
                             stitch_error **why, stitch_error **err);
/* Both, for one that has just been opened. */
int stitch__candidate_begin(stitch__verify *v, const stitch__candidate *c, int *code, stitch_error **why,
                            stitch_error **err);
/* Room for the outputs of several runs in a row. *room: of how many, 0: runs are made one by one, which is slower and
 * as strict. Only a worker that is lost, or a call that ended, is an error. */
int stitch__candidate_room(const stitch__verify *v, const stitch__candidate *c, uint32_t *room, stitch_error **err);
/* The same for v->candidate, once: v->room. */
int stitch__own_room(stitch__verify *v, stitch_error **err);
/* What is written to empty the L2 cache, where the options do not say. */
uint64_t stitch__flush_bytes(const stitch__device *dev);
/* Whether a worker is what the options ask for first. */
bool stitch__wants_worker(const stitch__verify *v);
/* Whether the program calls operators that the host gave: in this process, or not at all. */
bool stitch__needs_host(const stitch__verify *v, const stitch_program *program);

/* Stages: STITCH_OK when the report has the stage's result, another status when verification cannot go on. */
int stitch__stage_validate(stitch__verify *v, stitch_error **err);
int stitch__stage_compile(stitch__verify *v, stitch_error **err);
int stitch__stage_simulate(stitch__verify *v, stitch_error **err);
int stitch__stage_load(stitch__verify *v, stitch_error **err);
int stitch__stage_prepare(stitch__verify *v, stitch_error **err);
int stitch__stage_correct(stitch__verify *v, stitch_error **err);
int stitch__stage_time(stitch__verify *v, stitch_error **err);
int stitch__stage_profile(stitch__verify *v, stitch_error **err);

/* reduced.c: after stage simulate has passed, at the task's current dims and on its simulated device beside that of `v`
 * (entered, and of a context of its own): a trial as in stage correct. It may end the stage anew: failed where a result
 * is wrong, with a message where results cannot be judged. */
int stitch__reduced_try(stitch__verify *v, stitch__device *dev, const stitch__scope *scope, stitch_error **err);

/* ahead.c: runs of the candidate, and what they run on */
/* A run on a set of outputs, which hold the set's pattern before. */
stitch__run stitch__run_of_set(int set);
/* The first tensor with one of `roles` (1 << stitch_tensor_role) whose hashes differ; SIZE_MAX: none. */
size_t stitch__first_changed(const stitch__verify *v, unsigned roles, const uint64_t *before, const uint64_t *after);
/* How many can be made ahead of their turn; 0: none. */
uint32_t stitch__ahead_most(const stitch__verify *v);
/* Makes these, of which `does` and `key` are filled in (but STITCH__RUN_INPUTS), if that many can; else nothing. They
 * are taken in their order by the functions below; whatever asks for other runs drops those that are left. Variants
 * must outlive them. *code, *why: one of them failed. */
int stitch__ahead_make(stitch__verify *v, const stitch__block_run *runs, uint32_t count, int *code, stitch_error **why,
                       stitch_error **err);
bool stitch__ahead_left(const stitch__verify *v); /* some have not been taken */
void stitch__ahead_drop(stitch__verify *v);
void stitch__ahead_close(stitch__verify *v);
/* New contents of inputs, for the reference and for the candidate. */
int stitch__draw_inputs(stitch__verify *v, uint64_t seed, const stitch__variant *variant, stitch_error **err);
/* Hashes of inputs and weights (weights only) as the reference has them, into v->hashes; waits. */
int stitch__hash_tensors(stitch__verify *v, bool inputs, stitch_error **err);
/* Whether the candidate's still had those hashes after the last run; *changed: the first tensor that had not, SIZE_MAX
 * for none. */
int stitch__find_changed(stitch__verify *v, bool inputs, size_t *changed, stitch_error **err);
/* Runs it so many times in a row, and brings its outputs to `into`, out of its reach. `scope` is for running. */
int stitch__candidate_run(stitch__verify *v, const stitch__scope *scope, const stitch__run *run, int times,
                          const CUdeviceptr *into, int *code, stitch_error **why, stitch_error **err);

/* sets.c: device memory that the stages share */
int stitch__sets_open(stitch__verify *v, stitch_error **err); /* does nothing the second time */
void stitch__sets_close(stitch__verify *v);
/* Own outputs (and states) for a set, the rest shared; dtypes as `by` writes them (NULL: as declared). */
int stitch__set_make(stitch__verify *v, const stitch__oracle *by, const char *suffix, CUdeviceptr **out,
                     stitch_error **err);
void stitch__set_free(stitch__verify *v, CUdeviceptr *set);
int stitch__set_bound(stitch__verify *v, stitch__oracle *o, const CUdeviceptr *set,
                      stitch_error **err); /* prepares o */
int stitch__fill_inputs(stitch__verify *v, uint64_t seed, const stitch__variant *variant, stitch_error **err);
int stitch__clear_states(stitch__verify *v, const CUdeviceptr *set, stitch_error **err);
int stitch__poison(stitch__verify *v, const CUdeviceptr *set, const stitch__oracle *by, int byte, stitch_error **err);
/* The device still runs the candidate although its time is over: nothing that it may use can be released. */
bool stitch__abandoned(const stitch__verify *v);
/* Compares all outputs of `got` (and `again` if not NULL) with v->want into `outputs`. */
int stitch__compare_set(stitch__verify *v, const CUdeviceptr *got, const stitch__oracle *got_by,
                        const CUdeviceptr *again, stitch__trial_output *outputs, stitch_error **err);
/* The same in two halves, for several comparisons and one wait: each has a row of places, one an output. */
int stitch__compare_set_enqueue(stitch__verify *v, const CUdeviceptr *got, const stitch__oracle *got_by, size_t row,
                                stitch_error **err);
int stitch__compare_rows(stitch__verify *v, size_t rows, stitch__comparison *out, stitch_error **err);
size_t stitch__output_count(const stitch__verify *v);

/* Rows of places that v->hasher has (a place a tensor) and v->comparator (a place an output). */
enum { STITCH__ROWS = 2 * STITCH__BLOCK };

/* Purposes of derived seeds. A worker gets derived ones only: from the report's own all others follow, those of timed
 * runs that are checked in secret among them. */
enum {
    STITCH__SEED_WEIGHTS = 1,
    STITCH__SEED_TRIAL,
    STITCH__SEED_ROBUST,
    STITCH__SEED_TIMED,
    STITCH__SEED_HASH,
    STITCH__SEED_CHECK,
    STITCH__SEED_BOOTSTRAP,
    STITCH__SEED_EXPLOIT,
    STITCH__SEED_BOUND,
    STITCH__SEED_PREPARE,
    STITCH__SEED_KEPT,  /* keys, until which are used nobody in a worker has heard of */
    STITCH__SEED_AHEAD, /* likewise */
    STITCH__SEED_CONTROL,
};

#endif
