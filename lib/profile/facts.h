/* SPDX-License-Identifier: MIT
 *
 * What was observed of a program or of a region of a host's work: the one input of the advice (advice.h), whatever it
 * comes from. CUPTI's timeline, counters and samples fill it on a GPU (collect.c), the simulator's counters elsewhere.
 * It travels as JSON, from a worker process too: what is read back is data of a stranger, and facts_json.c checks it.
 */
#ifndef STITCH_LIB_PROFILE_FACTS_H
#define STITCH_LIB_PROFILE_FACTS_H

#include "base/base.h"

enum { STITCH__METRIC_CHEAP, STITCH__METRIC_FULL, STITCH__METRIC_COUNTED };

typedef enum stitch__metric {
#define X(name, key, unit, set, cupti) STITCH__METRIC_##name,
#include "profile/metrics.def"
#undef X
    STITCH__METRICS
} stitch__metric;

typedef struct stitch__metric_info {
    const char *key, *unit;
    int set;           /* STITCH__METRIC_CHEAP, ... */
    const char *cupti; /* as in metrics.def; NULL: CUPTI does not count it */
} stitch__metric_info;

const stitch__metric_info *stitch__metric_info_of(int metric); /* NULL out of range */
int stitch__metric_find(const char *key);                      /* -1: none */
/* Whether it could be one of CUPTI's names: 1 to STITCH__METRIC_NAME letters, digits, '_', '.'. */
bool stitch__metric_name_ok(const char *name);

enum {
    STITCH__FACTS_KERNELS = 256, /* what comes after is counted in kernels_left_out */
    STITCH__FACTS_LINES = 24,    /* a kernel */
    STITCH__FACTS_REASONS = 6,   /* a line */
    STITCH__FACTS_EXTRA = 64,    /* metrics asked for by CUPTI's names */
    STITCH__FACTS_STEPS = 512,
    STITCH__FACTS_TEXT = 512,  /* bytes of a string */
    STITCH__METRIC_NAME = 255, /* of CUPTI's name of a metric; the longest of CUDA 13.0 has 129 */
};

typedef struct stitch__reason {
    const char *name; /* CUPTI's, without "smsp__pcsamp_warps_issue_stalled_": "long_scoreboard" */
    uint64_t samples;
} stitch__reason;

/* A line of source that a kernel spends time in. */
typedef struct stitch__line_fact {
    const char *file; /* "" if not known */
    uint32_t line;    /* from 1; 0: not known */
    const char *text; /* of the line, without leading blanks; "" if not known */
    uint64_t samples; /* of PC sampling, all reasons; 0 where nothing was sampled */
    size_t reason_count;
    stitch__reason reasons[STITCH__FACTS_REASONS]; /* most samples first */
    /* Counted by the simulator, mean of a launch; all 0 elsewhere. */
    uint64_t instructions, requests, sectors, ideal_sectors, wavefronts, ideal_wavefronts;
} stitch__line_fact;

/* All launches of one kernel in one step of a program (or under one name, in a region that is no program). */
typedef struct stitch__kernel_fact {
    const char *name;   /* for people: "layernorm<256>" */
    const char *symbol; /* in the machine code */
    int32_t step;       /* index into steps; -1: not known */
    bool library;       /* of a library, of the driver: its author is not the reader */
    uint64_t launches;  /* in one run */
    double time_us;     /* of one launch, mean, undisturbed (timeline); 0: not known */
    double share;       /* of the sum of all kernels' times in a run, 0 to 1 */
    double gap_us;      /* idle time of the device right before it, mean; of the first launch of a run 0 */
    uint32_t grid[3], block[3];
    uint32_t registers, static_shared, dynamic_shared;
    uint32_t local;      /* bytes of local memory a thread: spills and arrays */
    double occupancy;    /* theoretical, 0 to 1; 0: not known */
    double waves;        /* blocks of the grid / blocks that the device holds at once; 0: not known */
    const char *limiter; /* of the occupancy: "registers", ...; "" */
    double counted;      /* by the simulator: blocks that it ran / blocks of the launches, below 1 where it sampled them
                            (what it counted is not scaled); 0: it did not count */
    double metric[STITCH__METRICS];    /* mean of a launch; NAN: not known */
    double extra[STITCH__FACTS_EXTRA]; /* in the order of stitch__facts.extra_names; NAN: not known */
    uint64_t samples;                  /* of PC sampling; 0: none */
    size_t line_count;
    stitch__line_fact lines[STITCH__FACTS_LINES]; /* those that matter most first */
} stitch__kernel_fact;

/* A step of a program as its launch plan has it, and the memory that it passes on. */
typedef struct stitch__step_fact {
    const char *place;   /* "run[2]" */
    const char *kind;    /* "kernel", "gemm", "copy", "fill", "op" */
    const char *name;    /* of a kernel or operator; "" */
    int32_t next;        /* a step that reads a buffer which this one alone writes and that one alone reads; -1: none */
    const char *between; /* that buffer; "" */
    uint64_t between_bytes; /* all of it */
    uint64_t bytes;         /* of a kernel step: of all tensors that it is given; 0: not known */
    bool moves_only; /* copies, fills, conversions, transposes: bytes in and out, no arithmetic that anyone asked for */
} stitch__step_fact;

/* Ceilings of the device. 0: not known. */
typedef struct stitch__ceilings {
    bool measured;     /* otherwise from the architecture's rates and clocks */
    double dram_gb_s;  /* a copy kernel's reads plus writes */
    double f32_tflops; /* no tensor cores */
    double tf32_tflops, f16_tflops, bf16_tflops, f8_tflops;
    double launch_us;     /* from kernel to kernel in a stream, empty kernels */
    double graph_node_us; /* the same in a graph */
} stitch__ceilings;

typedef struct stitch__facts {
    stitch__arena arena; /* of all strings */
    const char *source;  /* "cupti", "simulator" */
    const char *device, *arch;
    uint32_t multiprocessors;
    bool library_steps; /* some step of the program is a product or an operator: others wrote what it runs */
    int32_t precision;  /* stitch_precision of the task; -1: not known */
    stitch__ceilings ceilings;
    /* One run, from the timeline; 0 where there was none. */
    double wall_us; /* median of undisturbed timed runs, where somebody measured them */
    double busy_us; /* union of kernels, copies and fills */
    double idle_us; /* between the first and the last of them */
    /* Of the idle time before the host began to launch what ends it: while it waited for the device, and while it was
     * in no CUDA call. */
    double sync_us, host_us;
    double slow_call_us; /* ... and while it was in the one CUDA call, no launch and no wait, that took most of it */
    double copy_us;      /* copies and fills */
    double overlap_us, host_copy_us; /* of them, beside kernels, and between host and device */
    uint64_t copy_bytes, host_copy_bytes, launches, copies, fills, pageable_copies; /* launches: of kernels */
    bool graph;            /* the run was one launch of a graph */
    const char *slow_call; /* "cuMemAlloc_v2"; "" */
    size_t kernel_count, kernel_cap, kernels_left_out;
    stitch__kernel_fact *kernels; /* stitch_free(); most time first */
    size_t step_count;
    stitch__step_fact *steps; /* stitch_free() */
    size_t extra_count;
    const char *extra_names[STITCH__FACTS_EXTRA];
    /* Why a part is missing; "" where it is there. */
    const char *no_timeline, *no_counters, *no_samples;
} stitch__facts;

/* Everything "" or not known. */
int stitch__facts_new(const stitch_context *ctx, stitch__facts **out, stitch_error **err);
void stitch__facts_free(stitch__facts *f);
/* A kernel with everything not known, at the end; the pointers to earlier ones end with it. NULL: no memory, or
 * STITCH__FACTS_KERNELS are there (then it is counted as left out). */
stitch__kernel_fact *stitch__facts_add_kernel(stitch__facts *f);
/* A cleaned copy in the arena, cut at STITCH__FACTS_TEXT; "" for NULL and where there is no memory. */
const char *stitch__facts_text(stitch__facts *f, const char *text);
/* Whether `kept` may be what is kept of `text`: symbols are longer than that where templates have long names. */
bool stitch__facts_kept(const char *kept, const char *text);

/* sum / count to the nearest integer, a half up. count: not 0. */
static inline uint64_t stitch__facts_mean(uint64_t sum, uint64_t count)
{
    return sum / count + (sum % count >= count - count / 2);
}

/* facts_json.c */
enum { STITCH__FACTS_JSON = 16 << 20 }; /* bytes that are read at the most */

/* Appends the facts as one JSON object (docs/profile.md). */
int stitch__facts_write(const stitch__facts *f, stitch__buf *out); /* 0 or STITCH_E_NOMEM */
/* Reads what stitch__facts_write() wrote, or anything: unknown members are ignored, members of another type are as if
 * they were missing, strings are cleaned and cut, numbers that are negative are not known, larger ones than make sense
 * are cut (no sum over all kernels or lines overflows), shares are at most 1, indices that lead nowhere are -1, lists
 * end at their limits, an ideal is no more than what was counted. Orders are as they were given. STITCH_E_FORMAT: no
 * JSON, or not the facts of this version; STITCH_E_LIMIT: longer than STITCH__FACTS_JSON, or nested too deeply. */
int stitch__facts_read(const stitch_context *ctx, const char *json, size_t len, stitch__facts **out,
                       stitch_error **err);

/* ---- what fills them ---- */

struct stitch_program;
struct stitch__timeline;
struct stitch__analysis;
struct stitch__sim_reports;
struct stitch_image;

/* facts_program.c: steps and library_steps, of a program that was validated (with an executor: executor->program).
 * Steps are numbered like those of stitch__expected_of(); past STITCH__FACTS_STEPS they are left out. Needs no device;
 * what kernels do with a buffer is known better after the program was compiled. STITCH_E_STATE: it was not validated.
 */
int stitch__facts_steps(stitch__facts *f, const struct stitch_program *program, stitch_error **err);

/* facts_timeline.c: the rows of kernels and the figures of the timeline of one run, which is finished (and attributed,
 * where it is a program's), and its analysis. Steps come first: without them no kernel has one. */
int stitch__facts_timeline(stitch__facts *f, const struct stitch__timeline *t, const struct stitch__analysis *a,
                           stitch_error **err);

/* facts_sim.c: kernels of the simulator's reports (sim/sim_ext.h; those since reports were taken last), most work
 * first, with what was counted where STITCH__SIM_COUNT was set. `image`: names for people and sizes; NULL: symbols,
 * demangled. `source`: of "program.cu", for the text of lines; NULL: none. What is inlined from a header counts on the
 * program's line. A kernel has a step where one step alone launches its name. */
int stitch__facts_sim(stitch__facts *f, const struct stitch__sim_reports *r, const struct stitch_image *image,
                      const char *source, uint64_t runs, stitch_error **err);

#endif
