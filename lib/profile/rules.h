/* SPDX-License-Identifier: MIT
 *
 * What the files of the advice share: figures derived from the facts (verdict.c), and what a rule is (rules.def).
 *
 * The condition of a rule is a function that says whether the facts show its problem. It gives evidence (the figures),
 * part (of the kernel's time: what could be gained if the problem were gone altogether, so an upper bound) or gain_us,
 * and a line where one is known. NAN compares as false: a condition on a figure that is not known does not hold, so
 * that conditions are written as what must be known to be true.
 *
 * Sources: [BPG] CUDA C++ Best Practices Guide, [PG] CUDA C++ Programming Guide, [NCU] Nsight Compute's documentation
 * (kernel profiling guide: metrics, stall reasons) and the conditions of its rules.
 */
#ifndef STITCH_LIB_PROFILE_RULES_H
#define STITCH_LIB_PROFILE_RULES_H

#include <math.h>

#include "profile/advice.h"

enum { STITCH__EVIDENCE_BYTES = 640, STITCH__BECAUSE_BYTES = 256 };

/* From this share of a ceiling on it is taken for what bounds a kernel, and from the second on for reached. They are
 * those of Nsight Compute's speed-of-light rule: below 60 % of both memory and compute it speaks of latency, above 80 %
 * of high throughput, where only less work helps. */
#define STITCH__BOUND_FROM   0.60
#define STITCH__REACHED_FROM 0.80

/* An empty kernel takes 1.2 to 1.6 us on the device by CUPTI's timestamps (H200): what takes hardly longer has no time
 * of its own to gain. */
#define STITCH__EMPTY_KERNEL_US 1.5
#define STITCH__SHORT_KERNEL_US 2.5

/* A wait, or a line, with less than a fifth of the samples has less to give than the noise of a run. */
#define STITCH__WAIT_FROM 0.20

#define STITCH__WARP         32.0 /* lanes */
#define STITCH__SECTOR_BYTES 32.0

/* Fewer samples than this say nothing about reasons: with 32 a share of 30 % has a standard error of 8 %. */
#define STITCH__SAMPLES_FROM 32

/* ---- verdict.c -------------------------------------------------------------------------------------------------- */

/* Shares are 0 to 1. NAN: not known. What comes out of here is finite or NAN whatever the facts hold. */
typedef struct stitch__figures {
    double time_us;  /* of a launch */
    double total_us; /* of all launches of a run */
    double share;    /* of the time of all kernels */
    double blocks, threads, multiprocessors;
    double active; /* of the multiprocessors' time: they have a block */
    /* How busy a part of the device is, over the whole time of the kernel. */
    double dram, l2, l1, fma, alu, xu, fp64, tensor, issue;
    double memory, compute;                 /* the busiest of either side */
    const char *memory_part, *compute_part; /* its name; "" */
    double reached;                         /* the greater of both */
    double dram_bytes, flops, gb_s, tflops, intensity;
    double tensor_inst; /* of any kind */
    /* Accesses to global memory of a launch. ideal: the sectors that the bytes asked for need. */
    double load_requests, load_sectors, store_requests, store_sectors, requests, sectors, ideal;
    double load_asked, store_asked;          /* bytes asked for, a sector */
    double shared_wavefronts, shared_wasted; /* wasted: more than the bytes asked for need */
    double local_requests;
    double lanes; /* of 32, that do something in an instruction */
    double occupancy, achieved_occupancy;
} stitch__figures;

/* What of the run the rules ask for. */
typedef struct stitch__run_figures {
    double time_us;    /* of the run: its wall time, or else as far as the timeline goes; 0: not known */
    double kernels_us; /* sum of the kernels' times; 0: not known */
    double idle_us;    /* of the device, as it is undisturbed */
    /* Parts of it: the host waits, is in no CUDA call, in the one that takes most, in others and launches. */
    double sync_us, host_us, slow_call_us, launch_us;
    double copy_us, host_copy_us; /* copies and fills with no kernel beside them: those within the device, and others */
    double kernel_us;             /* mean of a launch */
} stitch__run_figures;

/* A number that was measured: finite and not negative; otherwise NAN. */
double stitch__measured(double value);
/* The value, or `otherwise` for NAN. */
double stitch__or(double value, double otherwise);
/* a / b where b is positive and the result is measured(); otherwise NAN. */
double stitch__ratio(double a, double b);
double stitch__at_most_1(double share); /* NAN stays */
/* The greater one; NAN only if both are. */
double stitch__most(double a, double b);

void stitch__figures_of_run(const stitch__facts *f, stitch__run_figures *out);
void stitch__figures_of(const stitch__facts *f, const stitch__run_figures *run, const stitch__kernel_fact *k,
                        stitch__figures *out);
/* Whether all parts of the device were counted that bound most kernels; the default counters leave L1 and the pipes
 * out. */
bool stitch__all_counted(const stitch__figures *g);

typedef struct stitch__judged {
    int bound;
    double limit_us, reached, intensity, gb_s, tflops;
    char because[STITCH__BECAUSE_BYTES];
} stitch__judged;

void stitch__judge_kernel(const stitch__facts *f, const stitch__kernel_fact *k, const stitch__figures *g,
                          stitch__judged *out);
/* kernels, figures: one each kernel of the facts. */
void stitch__judge_run(const stitch__facts *f, const stitch__run_figures *run, const stitch__figures *figures,
                       const stitch__judged *kernels, stitch__judged *out);

/* ---- stalls.c --------------------------------------------------------------------------------------------------- */

/* Share of the time of stalled warps that they wait for this reason, of the samples or of the counters; NAN: nothing
 * known. */
double stitch__stall_share(const stitch__kernel_fact *k, const char *reason);
/* The reason with the greatest share; "" if nothing is known. */
const char *stitch__stall_most(const stitch__kernel_fact *k, double *share);
/* What to do about it, and what it means; "" for what is not known. */
const char *stitch__stall_hint(const char *reason, const char **meaning);

/* ---- rules_help.c ----------------------------------------------------------------------------------------------- */

/* Appends to the evidence or the action of a finding, cut where that is full. */
STITCH__PRINTF(2, 3) void stitch__say(char out[STITCH__EVIDENCE_BYTES], const char *fmt, ...);
double stitch__metric_of(const stitch__kernel_fact *k, int which); /* measured() */
size_t stitch__lines_of(const stitch__kernel_fact *k);
/* Samples of a line for a reason. */
uint64_t stitch__line_samples(const stitch__line_fact *line, const char *reason);
/* The line with the most samples for one of two reasons; NULL: none. */
const stitch__line_fact *stitch__waiting_line(const stitch__kernel_fact *k, const char *reason, const char *other);
/* The line with the most wasted sectors 'g', wasted wavefronts 's', or samples 'w' (instructions, where there are
 * none); NULL: none. */
const stitch__line_fact *stitch__heaviest_line(const stitch__kernel_fact *k, char what);
/* Part of the samples (or instructions) of a kernel that a line has; NAN: too few to say. */
double stitch__line_share(const stitch__kernel_fact *k, const stitch__line_fact *line);
/* "acc += a[i] * b[j]", not "s += d * d" nor "x += 2 * y": what a tensor core does. Reads text, so a hint only. */
bool stitch__sums_products(const char *text);
/* "atomicAdd(p, v)", "red.global.add.f32": not "shared.x", not "nonatomic". Reads text, so a hint only. */
bool stitch__is_atomic(const char *text);
/* The hottest line, if it has a good part of the samples (or instructions) and sums products; NULL: it does not. */
const stitch__line_fact *stitch__product_line(const stitch__kernel_fact *k, double *share);

typedef struct stitch__figure_text {
    char s[96];
} stitch__figure_text;

stitch__figure_text stitch__count(double value); /* "3970", "8.59 G" */
stitch__figure_text stitch__time(double us);     /* "3.20 us", "7.40 ms", "1.25 s" */
/* How busy a part of the device (stitch__figures.memory_part, compute_part) is: "tensor cores at 72 % of their peak" */
stitch__figure_text stitch__level(const char *part, double share);
/* What to do about an occupancy that this limits; "" for what is not known. */
const char *stitch__limiter_hint(const char *limiter);
/* Which products a task's precision (stitch_precision; -1: not known) allows. */
const char *stitch__products_hint(int precision);

/* ---- rules.def, rules.c, rules_memory.c, rules_compute.c, rules_run.c ------------------------------------------- */

/* What a rule looks at. */
typedef struct stitch__subject {
    const stitch__facts *f;
    const stitch__run_figures *run;
    int run_bound; /* stitch__bound_class */
    /* Rules about kernels only. */
    const stitch__kernel_fact *k;
    const stitch__figures *g;
    const stitch__judged *v;
    const stitch__figures *figures; /* of all kernels */
    /* Rules about steps only: the first of a chain of steps that hand a buffer on, index into f->steps. */
    int32_t step;
} stitch__subject;

/* What a rule says. */
typedef struct stitch__finding {
    char evidence[STITCH__EVIDENCE_BYTES];
    char action[STITCH__EVIDENCE_BYTES]; /* goes after the rule's own action; "" */
    double part;    /* rules about kernels: the part of the kernel's time that can be gained at the most, 0 to 1 */
    double gain_us; /* the others: of a run */
    const stitch__line_fact *line; /* NULL */
} stitch__finding;

enum { STITCH__RULE_KERNEL, STITCH__RULE_STEPS, STITCH__RULE_RUN };
enum {
    STITCH__RULE_LIBRARY = 1, /* said of kernels of a library, too */
    STITCH__RULE_INFORMS = 2, /* said even if there is next to nothing to gain */
    STITCH__RULE_GOES = 4,    /* the kernel could be gone altogether, and what starting it takes with it */
};

typedef struct stitch__rule {
    const char *id;
    int about;                                                       /* STITCH__RULE_KERNEL, ... */
    int flags;                                                       /* STITCH__RULE_LIBRARY, ... */
    bool (*applies)(const stitch__subject *s, stitch__finding *out); /* fills `out`, zeroed before */
    const char *when, *problem, *action, *hides;                     /* see rules.def */
} stitch__rule;

#define RULE(id, about, flags, when, problem, action, hides)                                                           \
    bool stitch__rule_##id(const stitch__subject *s, stitch__finding *out);
#include "profile/rules.def"
#undef RULE

const stitch__rule *stitch__rules(size_t *count);

const stitch__step_fact *stitch__step_of(const stitch__facts *f, int32_t step); /* NULL: no such step */
const char *stitch__step_name(const stitch__step_fact *step);
/* The step after `step` that could be one kernel with it; -1: none. It always comes later. */
int32_t stitch__fusable_next(const stitch__facts *f, int32_t step);
/* Of a step's kernels and the gaps before them, in a run; NAN: not known. launches: of its kernel. */
double stitch__step_time(const stitch__subject *s, int32_t step, double *launches);

enum { STITCH__NAME_BYTES = 72 }; /* for stitch__short_name() */

#endif
