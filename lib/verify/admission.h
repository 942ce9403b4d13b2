/* SPDX-License-Identifier: MIT
 *
 * Private interface of admission: can a task's tolerance tell a right answer from a cheap one? What is measured about
 * the reference, and the verdict on it.
 */
#ifndef STITCH_LIB_VERIFY_ADMISSION_H
#define STITCH_LIB_VERIFY_ADMISSION_H

#include "verify/verify.h"

/* Over three draws, as a multiple of the tolerance of each element. Made by admission.cu; the layouts must agree. */
typedef struct stitch__spread {
    uint64_t elements, finite, over_tolerance, over_factor;
    double sum_change, sum_ratio, max_ratio; /* over elements that are finite in all draws */
} stitch__spread;

typedef enum stitch__answer_kind {
    STITCH__ANSWER_ZEROS,
    STITCH__ANSWER_MEAN,        /* of another draw's output */
    STITCH__ANSWER_COLUMN_MEAN, /* of another draw's output, for each index of the last dim */
    STITCH__ANSWER_FIRST,       /* element of another draw's output, everywhere */
    STITCH__ANSWER_OTHER_DRAW,
    STITCH__ANSWER_INPUT,
    /* From here on made of the right answer itself, so that they cost it. */
    STITCH__ANSWER_OWN_MEAN,
    STITCH__ANSWER_OWN_FIRST,
    STITCH__ANSWER_REVERSED,
    STITCH__ANSWER_HALVES,
    STITCH__ANSWER_SHIFT,
} stitch__answer_kind;

/* One wrong answer to one output, and how much of it the tolerance takes for right. */
typedef struct stitch__answer {
    stitch__answer_kind kind;
    size_t which; /* INPUT: index of the tensor; SHIFT: axis */
    char name[300];
    stitch__comparison c;
} stitch__answer;

typedef struct stitch__admission_output {
    char *name;
    size_t tensor; /* index in the interface */
    int dtype, want_dtype;
    size_t rank;
    int64_t shape[STITCH_MAX_RANK];
    uint64_t elements;
    stitch__comparison repeat; /* second run of the reference on the same inputs, against the first one */
    double factor;             /* how many tolerances a change must have: 1 for integers, where each change counts */
    stitch__spread spread;
    double mean_abs; /* of its finite elements */
    size_t answer_count, answer_cap;
    stitch__answer *answers;
} stitch__admission_output;

typedef enum stitch__redraw {
    STITCH__REDRAW_FIXED,    /* data, recorded, or a distribution without chance */
    STITCH__REDRAW_SAME,     /* drawn again, it has the same contents */
    STITCH__REDRAW_ALONE,    /* drawn again, all else kept */
    STITCH__REDRAW_TOGETHER, /* drawn again with others of its group */
    STITCH__REDRAW_LEFT_OUT, /* the bound on runs was reached */
} stitch__redraw;

/* What changes when an input or a weight is drawn again. */
typedef struct stitch__admission_input {
    char *name;
    size_t tensor;
    int role;
    stitch__redraw redraw;
    uint64_t *changed; /* elements beyond the tolerance, one count for each output; NULL unless ALONE or TOGETHER */
    bool matters;      /* some element of some output changed (ALONE: because of it) */
    int times;         /* drawn again */
} stitch__admission_input;

struct stitch_admission {
    stitch_context *ctx;
    char *task_name, *device_name;
    bool simulated, reduced;
    uint64_t seed;
    double atol, rtol, factor;
    int runs, max_runs, draws,
        steps;           /* draws: different contents that the outputs were compared over; 1: all is fixed */
    const char *redrawn; /* "inputs", "weights", "nothing": what the draws differ in */
    size_t output_count;
    stitch__admission_output *outputs;
    size_t input_count;
    stitch__admission_input *inputs;

    bool degenerate;
    char *reason, *cure; /* "" if admitted */
    size_t warning_count, warning_cap;
    char **warnings;
    char *json, *text;
};

/* A task while its reference is measured. */
typedef struct stitch__admit {
    stitch_context *ctx;
    stitch_task *task;
    stitch__device *dev; /* entered */
    stitch__scope scope;
    stitch_admission *a;
    size_t count;
    stitch_tensor_info *infos; /* strings are the task's */
    bool *drawn, *redrawn;     /* by chance at all; drawn again in this evaluation */
    uint64_t *hashes, *hashes_now;
    uint64_t base_seed, weights_seed, draws;
    bool weights_dirty; /* not those of weights_seed */
    int retries;        /* evaluations that may still be spent on inputs that seem not to matter */
    int retried;        /* and those that were; the bound on runs leaves them out */
    bool abandoned;     /* the device still runs the reference: its memory cannot be released */

    CUstream stream;
    stitch__comparator comparator;
    stitch__hasher hasher;
    stitch__oracle *oracle;
    /* One pointer for each tensor: inputs, weights, states and what the reference writes to (also room for a cheap
     * answer in the task's dtype); outputs of the first draw and of another one. */
    CUdeviceptr *run, *first, *other;
    CUdeviceptr sums, counts, means; /* of columns */
    CUdeviceptr partials;            /* of stitch__spread */
    unsigned grid;
} stitch__admit;

/* Purposes of derived seeds; those of verify.h begin at 1. */
enum {
    STITCH__ADMIT_SEED_BASE = 64,
    STITCH__ADMIT_SEED_WEIGHTS,
    STITCH__ADMIT_SEED_OTHER,
    STITCH__ADMIT_SEED_STEP,
    STITCH__ADMIT_SEED_HASH,
};

uint64_t stitch__admit_want_bytes(const stitch__admission_output *o); /* of what the reference writes */
/* admission_open.c: the reference and its memory; fills in what a->outputs and a->inputs say of it. Close also after a
 * failure. */
int stitch__admit_open(stitch__admit *s, const stitch_op *ops, size_t op_count, stitch_error **err);
int stitch__admit_measure(stitch__admit *s, stitch_error **err); /* admission_measure.c */
void stitch__admit_close(stitch__admit *s);

/* admission_answers.c: the device's part */
int stitch__admit_room(stitch__admit *s, stitch_error **err); /* for means and spreads */
void stitch__admit_room_free(stitch__admit *s);
/* The spread of an output over s->first, s->other and s->run. */
int stitch__admit_spread(stitch__admit *s, stitch__admission_output *o, stitch_error **err);
/* Compares every cheap answer with s->first; overwrites s->run of that output. */
int stitch__admit_answers(stitch__admit *s, stitch__admission_output *o, stitch_error **err);
/* The same for those that passed so far, on a later draw in s->first and the inputs: the worse result stays. */
int stitch__admit_confirm(stitch__admit *s, stitch__admission_output *o, stitch_error **err);
bool stitch__answer_is_free(stitch__answer_kind kind);
bool stitch__answer_passes(const stitch__answer *r); /* all elements within the tolerance */

/* admission_verdict.c: degenerate, reason, cure and warnings from the measurements */
/* Outputs of a few elements in all, or with one value everywhere, may be the same in two draws by chance (a flag, a
 * class): what looks cheap there, or like an input that does not matter, is asked more often. */
bool stitch__admission_by_chance(const stitch_admission *a);
int stitch__admission_judge(stitch_admission *a, stitch_error **err);

/* admission_report.c */
json_t *stitch__admission_to_json(const stitch_admission *a); /* a new reference; NULL: no memory */
char *stitch__admission_to_text(const stitch_admission *a);   /* NULL: no memory */

/* admission.c */
/* The admission of the task that is being verified: measured by the first call for a task as it is (hash, full or
 * reduced dims), kept with the task until it changes or is freed. The device must be entered. Any status but STITCH_OK
 * means that the reference could not be measured (it fails, no memory, deadline). */
int stitch__admission_get(stitch__verify *v, const stitch_admission **out, stitch_error **err);

#endif
