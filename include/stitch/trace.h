/* SPDX-License-Identifier: MIT
 *
 * The system timeline: what the GPU and the CUDA calls of this process did between two points, and what follows from
 * it. Needs a real GPU and CUPTI 12.4 or newer (a toolkit, or the wheel nvidia-cuda-cupti).
 *
 *     stitch_trace *trace;
 *     if (stitch_trace_begin(ctx, NULL, &trace, &err) == STITCH_OK) {
 *         ... any work of this process, on any thread ...
 *         stitch_trace_end(trace, &err);
 *         stitch_trace_text(trace, 2000, &text, &err);
 *     }
 *     stitch_trace_free(trace);
 *
 * One trace a process runs at a time: CUPTI knows one subscriber, and its buffer callbacks carry no pointer of their
 * user. The library keeps one process-wide registration for them; it holds nothing between traces. Where another tool
 * has CUPTI (an active PyTorch profiler, nsys, ncu, cuda-gdb, compute-sanitizer), stitch_trace_begin() says so, returns
 * STITCH_E_BUSY and changes nothing. The other way round, such a tool cannot start while a trace runs.
 *
 * Cost (H200, CUDA 13.0): nothing before the first trace of a process; 0.7 to 0.9 microseconds a kernel launch while a
 * trace runs, and for a graph half a microsecond a kernel. CUPTI stays loaded afterwards, without a subscriber and with
 * every record kind switched off; a launch still took 3.6 instead of 3.0 microseconds then, for the rest of the
 * process. `tests/bench/bench_trace` measures all of it, and what beginning and ending take.
 */
#ifndef STITCH_TRACE_H
#define STITCH_TRACE_H

#include <stitch/context.h>
#include <stitch/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @since 0.1.0 */
typedef struct stitch_trace stitch_trace;

/** Kinds of records: X(name, text). @since 0.1.0 */
#define STITCH_TRACE_KIND_LIST(X)                                                                                      \
    X(KERNEL, "kernel")                                                                                                \
    X(COPY, "copy")                                                                                                    \
    X(FILL, "fill") X(SYNC, "sync") X(DRIVER, "driver") X(RUNTIME, "runtime") X(GRAPH_LAUNCH, "graph_launch")

/**
 * KERNEL, COPY and FILL happened on the device; the others on a host thread: SYNC is time in which CUDA made the host
 * wait, DRIVER and RUNTIME are calls of the two APIs, GRAPH_LAUNCH is a call of either that launched a graph. Nodes of
 * graphs are KERNEL, COPY and FILL records with a graph_node. @since 0.1.0
 */
typedef enum stitch_trace_kind {
#define STITCH_TRACE_KIND_ENUM(name, text) STITCH_TRACE_##name,
    STITCH_TRACE_KIND_LIST(STITCH_TRACE_KIND_ENUM)
#undef STITCH_TRACE_KIND_ENUM
} stitch_trace_kind;

/** "kernel", "copy", ...; "unknown" for a value that is none. @since 0.1.0 */
STITCH_API const char *stitch_trace_kind_name(int kind);

/** stitch_trace_options.flags. @since 0.1.0 */
#define STITCH_TRACE_NO_SYNC    1u /**< no SYNC records */
#define STITCH_TRACE_NO_DRIVER  2u /**< no calls of the driver API */
#define STITCH_TRACE_NO_RUNTIME 4u /**< no calls of the runtime API */
#define STITCH_TRACE_NO_WAIT                                                                                           \
    8u /**< stitch_trace_end() does not wait for the device: work that is not done then is not in the trace */
/** stitch_trace_end() takes CUPTI out of the process (cuptiFinalize()), so that launches cost what they did before; the
 * next trace or profile loads it into it again. Only where no other thread launches a graph or uses CUPTI from the
 * start of that call to its end: the next launch of such a graph can fail, and take the context with it. Not with
 * NO_WAIT, and it is left out where the wait fails. @since 0.1.0 */
#define STITCH_TRACE_UNLOAD 16u

/** @since 0.1.0 */
typedef struct stitch_trace_options {
    size_t struct_size;
    uint32_t flags; /**< STITCH_TRACE_NO_*, STITCH_TRACE_UNLOAD */
    uint32_t reserved;
    uint64_t max_records;        /**< what comes after so many is counted as dropped; 0: 1 Mi (about 130 MB) */
    const stitch_cancel *cancel; /**< ends the wait of stitch_trace_end(); outlives the trace's recording */
    int64_t timeout_ms;          /**< of that wait; 0: 1 min */
} stitch_trace_options;

#define STITCH_TRACE_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(stitch_trace_options), 0, 0, 0, NULL, 0                                                                 \
    }

STITCH_API int stitch_trace_options_init(stitch_trace_options *options, size_t struct_size);

/**
 * Starts to record the GPU work of the whole process. The first call loads CUPTI: the one that the process has already
 * loaded, if there is one. STITCH_E_BUSY: a trace runs already, hardware counters are being collected, or another tool
 * holds CUPTI. STITCH_E_NO_LIBRARY: no CUPTI, or one that must not be used (older than 12.4, or 13.0 without its first
 * update, which can hang). STITCH_E_UNSUPPORTED: the device is simulated, or may not be traced here. Options may be
 * NULL. @since 0.1.0
 */
STITCH_API int stitch_trace_begin(stitch_context *ctx, const stitch_trace_options *options, stitch_trace **out,
                                  stitch_error **err);

/**
 * Waits until the context's device has done its work, but not longer than stitch_trace_options.timeout_ms (with a
 * driver older than 12.5 docs/trace.md has an exception), stops recording and evaluates the records. Not while a stream
 * is being captured. May be called from another thread than begin. On failure the trace has ended and has what was
 * recorded; after STITCH_E_FAULT, STITCH_E_TIMEOUT and STITCH_E_CANCELLED too. STITCH_E_STATE: it has ended already.
 * @since 0.1.0
 */
STITCH_API int stitch_trace_end(stitch_trace *trace, stitch_error **err);

/** Ends a trace that runs, without waiting for the device. */
STITCH_API void stitch_trace_free(stitch_trace *trace);

/**
 * One record. Strings stay valid as long as the trace, are UTF-8 without control characters, and never NULL. Times are
 * microseconds since begin; start and end are -1 where CUPTI could not tell. @since 0.1.0
 */
typedef struct stitch_trace_record {
    size_t struct_size;
    int32_t kind;       /**< stitch_trace_kind */
    int32_t result;     /**< calls: what they returned */
    const char *name;   /**< kernel: demangled, without parameters; copy: "HtoD"; sync: "stream"; call: its name */
    const char *symbol; /**< kernel: the name in the machine code; otherwise "" */
    double start_us, end_us;
    uint32_t device;      /**< ordinal; of calls: 0 */
    uint32_t context;     /**< CUPTI's number */
    uint32_t stream;      /**< CUPTI's number */
    uint32_t thread;      /**< calls: CUPTI's number of the host thread */
    uint32_t correlation; /**< the same for a call and the device work that it launched */
    uint32_t calls;       /**< calls: consecutive queries that wait for the same thing are one record; otherwise 1 */
    uint32_t graph;       /**< graph that launched the work; 0: none */
    int32_t step;         /**< step of a stitched program, where that is known; -1 */
    uint64_t graph_node;  /**< node of the graph; 0: none */
    uint64_t bytes;       /**< copies and fills */
    uint32_t grid[3], block[3];
    uint32_t registers;                     /**< a thread */
    uint32_t static_shared, dynamic_shared; /**< bytes a block */
    uint32_t local;                         /**< bytes of local memory a thread: spills and arrays */
} stitch_trace_record;

#define STITCH_TRACE_RECORD_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(stitch_trace_record), 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, \
            0, 0                                                                                                       \
    }

/** Number of records; 0 before the end of the trace. @since 0.1.0 */
STITCH_API size_t stitch_trace_count(const stitch_trace *trace);
/** In the order of their start; those without times come last. STITCH_E_NOT_FOUND past the end. @since 0.1.0 */
STITCH_API int stitch_trace_record_get(const stitch_trace *trace, size_t index, stitch_trace_record *record);

/**
 * The whole trace in numbers. Device times are unions: two kernels that run at once count once. With several devices,
 * "idle" means that none of them worked. @since 0.1.0
 */
typedef struct stitch_trace_summary {
    size_t struct_size;
    uint64_t records;
    uint64_t dropped;    /**< records that are missing: then counts and times are too low */
    uint64_t incomplete; /**< records without times (they count, but not in times), and calls that had not returned */
    uint64_t unknown;    /**< records of kinds that this version does not know */
    double region_us;    /**< from begin to end */
    double span_us;      /**< from the start of the first device work to the end of the last */
    double busy_us;      /**< device time of anything in the span */
    double idle_us;      /**< span_us - busy_us */
    double idle_share;   /**< idle_us / span_us, 0 to 1 */
    double kernel_us;    /**< device time of kernels */
    double copy_us;      /**< device time of copies and fills */
    double overlap_us;   /**< device time of both at once */
    double lead_us;      /**< from begin to the start of the first device work */
    uint64_t kernels, copies, fills;
    uint64_t copy_bytes; /**< of copies, fills not included */
    uint64_t graph_launches, graph_nodes;
    uint64_t gaps;       /**< times that the device was idle within the span */
    uint64_t short_gaps; /**< ... for at most 20 microseconds: what launching costs */
    double short_gap_us; /**< sum of the short ones */
    double longest_gap_us;
    double idle_sync_us; /**< of idle_us, up to the launch of what ends it: the host was in a call that waits for the
                              device */
    double idle_call_us; /**< ... the host was in other CUDA calls, the launch among them */
    double idle_host_us; /**< ... the host was in no CUDA call: in the program itself. What is left of idle_us is the
                              device's own: what came next had been launched */
    uint64_t syncs;
    double sync_us; /**< time in which some host thread waited */
    uint64_t calls;
    double call_us; /**< time in which some host thread was in a CUDA call */
    uint32_t devices, streams;
    int32_t has_calls; /**< 1: calls were recorded, so that the idle_* times mean something */
    int32_t reserved;
} stitch_trace_summary;

#define STITCH_TRACE_SUMMARY_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(stitch_trace_summary), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0, 0, 0                                                                                        \
    }

/** STITCH_E_STATE before the end of the trace. @since 0.1.0 */
STITCH_API int stitch_trace_summary_get(const stitch_trace *trace, stitch_trace_summary *summary);

/** All launches of one kernel. Sizes are those of its longest launch. @since 0.1.0 */
typedef struct stitch_trace_kernel {
    size_t struct_size;
    const char *name, *symbol;
    uint64_t count; /**< launches */
    double total_us, mean_us, min_us, max_us;
    double share;         /**< of the sum of all kernels' times, 0 to 1 */
    double gap_before_us; /**< idle device time right before its launches, in all */
    uint32_t grid[3], block[3];
    uint32_t registers, static_shared, dynamic_shared, local;
    double occupancy;    /**< warps that fit on a multiprocessor at once / the most that it holds; 0: not known */
    double waves;        /**< blocks of the grid / blocks that the device holds at once; 0: not known */
    const char *limiter; /**< of the occupancy: "warps", "blocks", "registers", "shared memory"; "": none */
    int32_t varied;      /**< 1: not all launches have the same sizes */
    int32_t step;        /**< step of a stitched program, where all launches are of one; -1 */
} stitch_trace_kernel;

#define STITCH_TRACE_KERNEL_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(stitch_trace_kernel), NULL, NULL, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0}, {0, 0, 0}, 0, 0, 0, 0, 0, 0, NULL, 0, \
            0                                                                                                          \
    }

STITCH_API size_t stitch_trace_kernel_count(const stitch_trace *trace);
/** The one with the most time first. STITCH_E_NOT_FOUND past the end. @since 0.1.0 */
STITCH_API int stitch_trace_kernel_get(const stitch_trace *trace, size_t index, stitch_trace_kernel *kernel);

/** All copies of one direction, or all fills ("fill"). @since 0.1.0 */
typedef struct stitch_trace_copy {
    size_t struct_size;
    const char *name; /**< "HtoD", "DtoH", "DtoD", ... */
    uint64_t count, bytes;
    double total_us;
    double gb_per_s;   /**< bytes / total_us; 0 without times */
    uint64_t pageable; /**< copies from or to host memory that is not pinned: they are slow and block the host */
} stitch_trace_copy;

#define STITCH_TRACE_COPY_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(stitch_trace_copy), NULL, 0, 0, 0, 0, 0                                                                 \
    }

STITCH_API size_t stitch_trace_copy_count(const stitch_trace *trace);
/** The one with the most time first. STITCH_E_NOT_FOUND past the end. @since 0.1.0 */
STITCH_API int stitch_trace_copy_get(const stitch_trace *trace, size_t index, stitch_trace_copy *copy);

/** A time in which the device was idle. @since 0.1.0 */
typedef struct stitch_trace_gap {
    size_t struct_size;
    double start_us, end_us;
    const char *before, *after; /**< names of the device work around it */
    const char *cause; /**< most of it: "sync", "call", "host" (in no CUDA call), "device" (what came next had been
                            launched), "unknown" (no calls recorded) */
    const char *call;  /**< the CUDA call with the most of it before what came next was launched, or "" */
} stitch_trace_gap;

#define STITCH_TRACE_GAP_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(stitch_trace_gap), 0, 0, NULL, NULL, NULL, NULL                                                         \
    }

/** The longest gaps, at most 16. @since 0.1.0 */
STITCH_API size_t stitch_trace_gap_count(const stitch_trace *trace);
STITCH_API int stitch_trace_gap_get(const stitch_trace *trace, size_t index, stitch_trace_gap *gap);

/**
 * The trace in the format that Perfetto (ui.perfetto.dev) and chrome://tracing open. Released with stitch_free().
 * STITCH_E_STATE before the end of the trace. @since 0.1.0
 */
STITCH_API int stitch_trace_json(const stitch_trace *trace, char **json, stitch_error **err);

/**
 * What matters, as text for people and language models: one line a fact, the decisive one first, whole lines up to
 * max_bytes (0: everything, at most 64 KiB). Released with stitch_free(). STITCH_E_STATE before the end of the trace.
 * @since 0.1.0
 */
STITCH_API int stitch_trace_text(const stitch_trace *trace, size_t max_bytes, char **text, stitch_error **err);

/**
 * Gives the records of kernels, copies and fills the steps of a program's launch plan, where the trace is one of `runs`
 * runs of it and of nothing else on the device. Their number and order decide, not their names, which can be stale in
 * CUPTI before 13.4: kernels get the names that the program gives them. The executor is prepared with the dims of those
 * runs. STITCH_E_NOT_FOUND: the records are not those of such runs; then nothing is changed. STITCH_E_STATE: the trace
 * has not ended, or the executor is not prepared. Pointers to the trace's results are invalid afterwards. @since 0.1.0
 */
STITCH_API int stitch_trace_attribute(stitch_trace *trace, stitch_executor *executor, uint64_t runs,
                                      stitch_error **err);

#ifdef __cplusplus
}
#endif
#endif
