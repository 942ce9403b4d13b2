/* SPDX-License-Identifier: MIT
 *
 * Private interface of the profile module: records of CUPTI, the timeline made of them, what it says.
 *
 * trace.c has CUPTI record activities (counters.c and sampling.c use other parts of it, and one of the three at a time:
 * exclusive.c); records.c reads its buffers. Everything else here works on a stitch__timeline and needs no GPU:
 * timeline.c (order, unions), idle.c (gaps and their causes), kernel_table.c, analysis.c (a trace in numbers),
 * occupancy.c, attribute.c and program.c (steps of a program), text.c and chrome.c (output), results.c (what users
 * read).
 */
#ifndef STITCH_LIB_PROFILE_H
#define STITCH_LIB_PROFILE_H

#include "cuda/cuda.h"
#include "cuda/cupti.h"
#include <stitch/program.h>
#include <stitch/trace.h>

/* ---- timeline.c ------------------------------------------------------------------------------------------------- */

#define STITCH__TRACE_BIT(kind) (1u << STITCH_TRACE_##kind)
#define STITCH__TRACE_ON_DEVICE (STITCH__TRACE_BIT(KERNEL) | STITCH__TRACE_BIT(COPY) | STITCH__TRACE_BIT(FILL))
#define STITCH__TRACE_CALLS     (STITCH__TRACE_BIT(DRIVER) | STITCH__TRACE_BIT(RUNTIME) | STITCH__TRACE_BIT(GRAPH_LAUNCH))

/* One record. Nanoseconds since the trace began. */
typedef struct stitch__event {
    int64_t start, end; /* where timed */
    uint64_t bytes, graph_node;
    uint32_t name; /* index into the timeline's names */
    uint32_t device, context, stream, thread, correlation, graph;
    uint32_t grid[3], block[3];
    uint32_t static_shared, dynamic_shared, local;
    uint32_t calls;
    int32_t result, step;
    uint16_t registers;
    uint8_t kind;   /* stitch_trace_kind */
    uint8_t detail; /* copies: direction (CUPTI's number); sync: type (CUPTI's number) */
    bool pageable;  /* copies: host memory that is not pinned */
    bool timed;     /* start and end are known */
} stitch__event;

typedef struct stitch__name {
    const char *symbol; /* as it came, cut */
    const char *text;   /* for people: set by stitch__timeline_finish() */
    bool kernel;
    bool waits; /* a call that waits for the device: its name says so */
    bool polls; /* a call that asks whether the device is done */
} stitch__name;

/* What one multiprocessor holds; all 0: not known. */
typedef struct stitch__sm {
    int count; /* of the device */
    int threads, blocks, registers, shared, reserved_shared;
} stitch__sm;

typedef struct stitch__timeline {
    stitch__arena arena;
    size_t count, cap;
    stitch__event *events;
    size_t name_count, name_cap, hash_size;
    stitch__name *names;
    uint32_t *hash; /* index + 1; 0: free */
    uint64_t dropped, incomplete, unknown;
    uint64_t max_events;
    int64_t length; /* ns from begin to end */
    uint32_t kinds; /* bits of what was recorded */
    stitch__sm sm;
} stitch__timeline;

enum { STITCH__SYNC_STREAM_WAIT = 2 }; /* event.detail: CUPTI's number of what no host waits for */
enum { STITCH__TRACE_MAX_EVENTS = 1 << 20, STITCH__TRACE_SYMBOL_MAX = 4096, STITCH__TRACE_NAME_MAX = 512 };

void stitch__timeline_init(stitch__timeline *t, const stitch_context *ctx); /* max_events: the default */
void stitch__timeline_free(stitch__timeline *t);
/* Index of a name, added if it is new. 0 or STITCH_E_NOMEM. Kernels and calls of the same name are different names. */
int stitch__timeline_name(stitch__timeline *t, const char *symbol, bool kernel, uint32_t *out);
/* Copies an event. Past max_events, or without memory, it is counted as dropped. */
void stitch__timeline_add(stitch__timeline *t, const stitch__event *e);
/* Sorts by start, joins repeated queries, makes names for people. Once, after the last event. 0 or STITCH_E_NOMEM. */
int stitch__timeline_finish(stitch__timeline *t);

typedef struct stitch__span {
    int64_t start, end;
} stitch__span;

/* Sorted, not empty, not touching. */
typedef struct stitch__spans {
    size_t count;
    stitch__span *list; /* stitch_free() */
} stitch__spans;

typedef struct stitch__event_filter {
    uint32_t kinds; /* bits */
    bool waits;     /* the host waits: SYNC records (but a stream that waits for an event), calls that wait or poll */
} stitch__event_filter;

/* The union of the times of matching events. The timeline is finished. 0 or STITCH_E_NOMEM. */
int stitch__spans_of(const stitch__timeline *t, const stitch__event_filter *f, stitch__spans *out);
int stitch__spans_union(const stitch_context *ctx, const stitch__spans *a, const stitch__spans *b, stitch__spans *out);
int64_t stitch__spans_length(const stitch__spans *s);
int64_t stitch__spans_common(const stitch__spans *a, const stitch__spans *b); /* length of the intersection */
void stitch__spans_free(stitch__spans *s);

/* ---- occupancy.c ------------------------------------------------------------------------------------------------ */

typedef struct stitch__occupancy {
    double share; /* 0: not known */
    int blocks;   /* a multiprocessor */
    double waves;
    const char *limiter;
} stitch__occupancy;

/* An estimate by the rules that hold from sm_80 to sm_120; clusters and carve-outs are left out of it. */
stitch__occupancy stitch__occupancy_of(const stitch__sm *sm, const stitch__event *kernel);

/* ---- idle.c ----------------------------------------------------------------------------------------------------- */

/* Nothing ran on the device. */
typedef struct stitch__gap {
    int64_t start, end;
    int64_t launching, launched; /* within: when the call that launched what ends it began, and returned; `end` where
                                    that is not known */
    const stitch__event *before, *after;
} stitch__gap;

/* Idle time by what it was for; the sum is the gaps' length. */
typedef struct stitch__idle_causes {
    int64_t sync, call, host; /* the host waited for the device; was in another call; was in none */
    int64_t device;           /* what comes next had been launched */
} stitch__idle_causes;

typedef struct stitch__idle {
    bool known; /* calls were recorded: otherwise all of it is `host` */
    size_t count;
    stitch__gap *gaps;                 /* in order */
    stitch__spans sync, calls, either; /* of the host */
    stitch__idle_causes all;
} stitch__idle;

/* Of a finished timeline, whose events it points to. 0 or STITCH_E_NOMEM. */
int stitch__idle_of(const stitch__timeline *t, stitch__idle *out);
void stitch__idle_free(stitch__idle *i);
stitch__idle_causes stitch__idle_causes_of(const stitch__idle *i, const stitch__gap *g);

/* ---- kernel_table.c --------------------------------------------------------------------------------------------- */

/* One row for all launches of a kernel, most time first; `steps`: of those in a step below it, one for each of them.
 * Others have the step that all launches are of, or -1. Strings are the timeline's. *out: stitch_free(). 0 or
 * STITCH_E_NOMEM. */
int stitch__kernel_table(const stitch__timeline *t, const stitch__idle *idle, size_t steps, stitch_trace_kernel **out,
                         size_t *count);

/* ---- analysis.c ------------------------------------------------------------------------------------------------- */

enum { STITCH__TRACE_GAPS = 16, STITCH__TRACE_DIRECTIONS = 12, STITCH__TRACE_SHORT_GAP_NS = 20000 };

typedef struct stitch__analysis {
    stitch_trace_summary summary;
    size_t kernel_count;
    stitch_trace_kernel *kernels; /* stitch_free() */
    size_t copy_count;
    stitch_trace_copy copies[STITCH__TRACE_DIRECTIONS];
    size_t gap_count;
    stitch_trace_gap gaps[STITCH__TRACE_GAPS];
} stitch__analysis;

/* The strings in the result are the timeline's. 0 or STITCH_E_NOMEM. */
int stitch__analyse(const stitch__timeline *t, stitch__analysis *out);
void stitch__analysis_free(stitch__analysis *a);
const char *stitch__copy_name(int direction); /* CUPTI's number: "HtoD" */

/* ---- attribute.c: which step of a program a device record belongs to -------------------------------------------- */

/* One step of a run, in the order of launches, loops unrolled. */
typedef struct stitch__expected {
    int32_t kind;       /* stitch_trace_kind; STITCH__EXPECTED_PRODUCT */
    int32_t step;       /* what event.step becomes */
    const char *symbol; /* kernels */
} stitch__expected;

enum { STITCH__EXPECTED_PRODUCT = 100 }; /* one or more records of any kind: a BLAS library, a host's operator */

/* Gives the events of `runs` runs of a program their steps, by the order of their launches: CUPTI's names can be stale
 * after a module was unloaded and another loaded, the order is not. A kernel that has its step gets the step's symbol.
 * Works on the finished timeline's events of one stream or graph. STITCH_E_NOT_FOUND: they do not fit (then nothing is
 * changed). *renamed: kernels whose name was another one. */
int stitch__attribute(stitch__timeline *t, const stitch__expected *steps, size_t count, uint64_t runs,
                      uint64_t *renamed);

/* program.c: what one stitch_executor_run() launches, for the dims that the executor was prepared with. `step` counts
 * the steps of the plan's run list that are no loops, in the order of the text (like stitch__steps_leaf()). The strings
 * are the executor's; *out is released with stitch_free(). */
int stitch__expected_of(stitch_executor *x, stitch__expected **out, size_t *count, stitch_error **err);

/* ---- records.c -------------------------------------------------------------------------------------------------- */

typedef struct stitch__record_reader {
    const stitch__cupti *cupti;
    stitch__timeline *timeline;
    uint64_t began;          /* CUPTI's clock, ns */
    uint64_t lost_buffers;   /* requests that could not be answered */
    bool graphs;             /* a graph was traced, whether its records were kept or not */
    uint32_t calls[2][2048]; /* name + 1 of a call by API (driver, runtime) and number */
} stitch__record_reader;

/* Adds the records of one buffer. Safe on any bytes that CUPTI's iterator accepts. */
void stitch__records_read(stitch__record_reader *r, uint8_t *buffer, size_t valid);
/* Once, after the last buffer: names instead of numbers for the calls. 0 or STITCH_E_NOMEM. */
int stitch__records_name_calls(stitch__record_reader *r);

/* ---- trace.c ---------------------------------------------------------------------------------------------------- */

/* stitch_trace_begin() with a given table, for tests. `dev` may be NULL: nothing to wait for, no occupancy. */
int stitch__trace_start(stitch_context *ctx, const stitch__cupti *cupti, stitch__device *dev,
                        const stitch_trace_options *options, stitch_trace **out, stitch_error **err);
/* stitch_trace_end() of a trace that runs, under the caller's scope instead of its own. */
int stitch__trace_end(stitch_trace *trace, const stitch__scope *scope, stitch_error **err);
/* NULL while the trace runs. */
stitch__timeline *stitch__trace_timeline(stitch_trace *trace);
/* Evaluates the timeline again, after stitch__attribute(). */
int stitch__trace_analyse(stitch_trace *trace, stitch_error **err);
const stitch__analysis *stitch__trace_analysis(const stitch_trace *trace); /* NULL before */
/* The evaluated timeline; NULL before. */
const stitch__timeline *stitch__trace_finished(const stitch_trace *trace);
/* Buffers that CUPTI has and has not given back. */
size_t stitch__trace_buffers(void);

/* ---- text.c, chrome.c ------------------------------------------------------------------------------------------- */

void stitch__trace_write_text(const stitch__analysis *a, size_t max_bytes, stitch__buf *out);
int stitch__trace_write_json(const stitch__timeline *t, stitch__buf *out); /* 0 or STITCH_E_NOMEM */

#endif
