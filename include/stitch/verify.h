/* SPDX-License-Identifier: MIT
 *
 * Verification: is a candidate right, how fast is it, and what should be done next about it.
 */
#ifndef STITCH_VERIFY_H
#define STITCH_VERIFY_H

#include <stitch/task.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The result of one verification. Immutable; may be read from several threads. @since 0.1.0 */
typedef struct stitch_report stitch_report;

/** Stages in order. X(NAME, text). @since 0.1.0 */
#define STITCH_STAGE_LIST(X)                                                                                           \
    X(FORMAT, "format")                                                                                                \
    X(VALIDATE, "validate")                                                                                            \
    X(COMPILE, "compile")                                                                                              \
    X(SIMULATE, "simulate") X(LOAD, "load") X(PREPARE, "prepare") X(CORRECT, "correct") X(EXPLOIT, "exploit")          \
        X(TIME, "time") X(PROFILE, "profile")

typedef enum stitch_stage {
    STITCH_STAGE_NONE = 0,
#define STITCH_STAGE_ENUM(name, text) STITCH_STAGE_##name,
    STITCH_STAGE_LIST(STITCH_STAGE_ENUM)
#undef STITCH_STAGE_ENUM
        STITCH_STAGE_COUNT
} stitch_stage;

/** "compile", ...; "none" for STITCH_STAGE_NONE and unknown values. @since 0.1.0 */
STITCH_API const char *stitch_stage_name(int stage);

typedef enum stitch_stage_status {
    STITCH_STAGE_NOT_RUN = 0, /**< an earlier stage failed, or it was not asked for */
    STITCH_STAGE_PASSED = 1,
    STITCH_STAGE_FAILED = 2,
    STITCH_STAGE_SKIPPED = 3, /**< could not be done here; the message says why */
} stitch_stage_status;

/** Progress: a stage begins (done 0 of total), advances, ends. Called from the thread that verifies. @since 0.1.0 */
typedef void (*stitch_stage_fn)(int stage, int status, int64_t done, int64_t total, void *userdata);

/** Where the program runs while it is verified. @since 0.1.0 */
typedef enum stitch_verify_where {
    /** In a worker process. In this one where the device is simulated (which a program cannot harm), and where there is
     * no worker to be had and the program has passed the simulator (the report's notes say so then). What may run in
     * this process only (operators of the host), or has not passed, is STITCH_E_UNSUPPORTED, or why there is no worker.
     * It is compiled in a process of its own on any device, and without one; in this one only where no other can be
     * had, which the notes say, too. */
    STITCH_VERIFY_AUTO = 0,
    STITCH_VERIFY_HERE = 1,   /**< in this process, compiled there, too: for programs that are trusted */
    STITCH_VERIFY_WORKER = 2, /**< in a worker process, or not at all */
} stitch_verify_where;

/** Whether a program is checked by the simulator before it runs on a GPU. @since 0.1.0 */
typedef enum stitch_verify_simulate {
    /** At the task's reduced dims (not where it has none), for up to 20 s. Its results are compared, too, where the
     * reference is a program. A simulated device checks every program, at whatever dims it is run. */
    STITCH_SIMULATE_AUTO = 0,
    STITCH_SIMULATE_NEVER = 1,
} stitch_verify_simulate;

/** How much of a right program is profiled after it was timed. @since 0.1.0 */
typedef enum stitch_verify_profile {
    /** Timeline, a few hardware counters of each kernel, stalls by source line: about a second. A simulated device
     * counts what it can instead. */
    STITCH_PROFILE_AUTO = 0,
    STITCH_PROFILE_FULL = 1,     /**< the same with all counters that the advice knows */
    STITCH_PROFILE_TIMELINE = 2, /**< the timeline alone: milliseconds */
    STITCH_PROFILE_NEVER = 3,
} stitch_verify_profile;

typedef struct stitch_verify_options {
    size_t struct_size;
    int32_t trials;     /**< correctness trials with fresh inputs; 0: 5, 2 on a simulated device */
    int32_t warmup;     /**< runs before timing; 0: 10 */
    int32_t iterations; /**< timed runs of candidate and main baseline each; 0: 100 */
    int32_t last_stage; /**< stop after this stage; 0: all */
    /** Seed of all inputs and weights, to repeat a report. 0: a fresh one from the system, written into the report. */
    uint64_t seed;
    /** Bytes written between timed runs so that nothing is left in L2. 0: 2 x L2, at least 128 MiB; UINT64_MAX: no
     * flush. */
    uint64_t flush_bytes;
    /** Wall time of timed runs, from the end of the warm-up; fewer are made (at least 10) when it runs out; 0: 60 s. */
    int64_t time_budget_ms;
    const stitch_op *ops; /**< host operators that the program may use */
    size_t op_count;
    stitch_stage_fn on_stage;
    void *userdata;
    const stitch_cancel *cancel;
    int64_t timeout_ms; /**< of the whole call; 0: 10 min */
    int32_t where;      /**< stitch_verify_where */
    int32_t simulate;   /**< stitch_verify_simulate */
    int32_t profile;    /**< stitch_verify_profile */
    int32_t reserved;
    /** More of CUPTI's metrics by name, of each kernel ("lts__t_sectors.sum"); at most 64. Those that the device does
     * not offer are null in the report. */
    const char *const *metrics;
    size_t metric_count;
} stitch_verify_options;

#define STITCH_VERIFY_OPTIONS_INIT                                                                                     \
    {                                                                                                                  \
        sizeof(stitch_verify_options), 0, 0, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, 0          \
    }

STITCH_API int stitch_verify_options_init(stitch_verify_options *options, size_t struct_size);

/**
 * Verifies a program, in the calling thread; other threads only compile ahead and start a worker. On a simulated device
 * the task's reduced dims are used where it has them, and are left again; verifications and admissions that share a
 * context take turns there, and other runs in it should wait for them, too. Without any device, the stages up to compile
 * can be asked for (last_stage). STITCH_OK means that there is a report, whatever it says of the program; other
 * statuses mean that verification itself could not be done (no device, cancelled, the reference fails, ...).
 *
 * The program's source is compiled in a process of its own, unless options.where is HERE, for at most half of
 * timeout_ms. One that the compiler does not survive (STITCH_E_COMPILE) or end with in time (STITCH_E_TIMEOUT) has
 * failed stage compile. Compiled code that the program's file came with (docs/program-file.md) is dropped from it: what
 * is judged is made of the source. References, baselines and the library's own kernels are compiled here: for them the
 * call waits until its deadline or cancellation and no longer, while NVRTC, which cannot be interrupted, goes on.
 *
 * In a worker (docs/worker.md) the program can fault, hang or die, and this process and its CUDA context go on as
 * before. Here, the CUDA context of the process is lost after a report with status STITCH_E_FAULT whose summary says
 * isolated = 0 (a simulated device goes on). A program that still runs when the deadline passes has failed with
 * STITCH_E_TIMEOUT, unless other verifications had the device for more than half of the time: then the call has. If it
 * has not ended two seconds later, the memory that it may still use is given up, for whatever waits for the device would
 * wait for ever.
 * @since 0.1.0
 */
STITCH_API int stitch_verify_program(stitch_context *ctx, stitch_task *task, stitch_program *program,
                                     const stitch_verify_options *options, stitch_report **out, stitch_error **err);
STITCH_API void stitch_report_free(stitch_report *r);

/** A report for a candidate that is no program: stage format failed with this error (copied). @since 0.1.0 */
STITCH_API int stitch_report_new_format_failure(stitch_context *ctx, const stitch_error *why, stitch_report **out,
                                                stitch_error **err);

/** The figures of a report. Times in microseconds, 0 where not measured. @since 0.1.0 */
typedef struct stitch_report_summary {
    size_t struct_size;
    int32_t failed_stage;                /**< stitch_stage; NONE: all that ran passed */
    int32_t status;                      /**< why it failed: STITCH_E_*; STITCH_OK */
    int32_t correct;                     /**< 1: the correct stage passed; the result counts if none failed */
    int32_t timed;                       /**< 1: the time stage passed */
    double max_abs_error, max_rel_error; /**< over all outputs of the trials with declared inputs, as the next three */
    double mean_abs_error;
    uint64_t elements, mismatches;     /**< elements compared, and those beyond the tolerance */
    double median_us, low_us, high_us; /**< of the candidate: median, 5th and 95th percentile of the timed runs */
    double baseline_us, baseline_low_us, baseline_high_us; /**< of the main baseline, interleaved in the same run */
    double speedup;                                        /**< baseline_us / median_us; 0: not measured */
    double prepare_us;
    uint64_t workspace_bytes;
    uint64_t launches;
    uint64_t seed;
    /** 1: the task cannot tell a right program from a cheap answer (the report says why), so that a verdict on it means
     *  nothing; speedup is 0 then. */
    int32_t degenerate;
    int32_t isolated; /**< 1: the program ran in a worker, so that whatever it did has not hurt this process */
    double speedup_low, speedup_high; /**< 95 % bootstrap interval of the speed-up */
    /** How long the device works in one run of the candidate: the union of its kernels, copies and fills, recorded by
     *  CUPTI after the timed runs. What is left of median_us is spent idle. 0: not measured (the report says why). */
    double busy_us;
} stitch_report_summary;

#define STITCH_REPORT_SUMMARY_INIT                                                                                     \
    {                                                                                                                  \
        sizeof(stitch_report_summary), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0       \
    }

STITCH_API int stitch_report_summary_get(const stitch_report *r, stitch_report_summary *out);
/** Status of a stage (stitch_stage_status), how long it took, and its message ("" if there is nothing to say). */
STITCH_API int stitch_report_stage(const stitch_report *r, int stage, int *status, double *milliseconds,
                                   const char **message);
/** Everything, as JSON (docs/report-format.md). Owned by the report. */
STITCH_API const char *stitch_report_json(const stitch_report *r);
/** For people: a few lines. Owned by the report. */
STITCH_API const char *stitch_report_text(const stitch_report *r);
/** For a model: the decisive fact first, at most max_bytes (0: 8 KiB; less than 256 count as 256). *text is released
 *  with stitch_free(). */
STITCH_API int stitch_report_feedback(const stitch_report *r, size_t max_bytes, char **text, stitch_error **err);
/** Identifies what the feedback says apart from measured figures (stages, statuses, diagnostics). Owned by the report.
 */
STITCH_API const char *stitch_report_fingerprint(const stitch_report *r);

/* ---- admission of tasks ------------------------------------------------------------------------------------------ */

/** Whether a task can tell a right program from a cheap answer. Immutable; may be read from several threads.
 *  @since 0.1.0 */
typedef struct stitch_admission stitch_admission;

typedef struct stitch_admit_options {
    size_t struct_size;
    uint64_t seed; /**< of all contents, to repeat a result; 0: a fresh one from the system */
    /** An output must move by more than this many times the tolerance from draw to draw (integers: once). 0: 10. */
    double spread_factor;
    /** Bound on the runs of the reference, at least 4; 0: 8 + the number of inputs. Weights that the rest does not
     *  suffice for are drawn again in groups. What looks degenerate is asked again in 2 more runs (up to 32 where
     *  it may do so by chance: a few elements, or one value everywhere). A run of a task with states is three steps. */
    int32_t max_runs;
    int32_t reserved;
    const stitch_op *ops; /**< host operators that the reference may use */
    size_t op_count;
    const stitch_cancel *cancel;
    int64_t timeout_ms; /**< of the whole call; 0: 10 min */
} stitch_admit_options;

#define STITCH_ADMIT_OPTIONS_INIT                                                                                      \
    {                                                                                                                  \
        sizeof(stitch_admit_options), 0, 0, 0, 0, NULL, 0, NULL, 0                                                     \
    }

STITCH_API int stitch_admit_options_init(stitch_admit_options *options, size_t struct_size);

/**
 * Runs the task's reference (nothing else) on the context's device, in the calling thread, and asks which wrong answers
 * the task's tolerance would take for right: zeros, means, the output for other inputs, the inputs themselves, the
 * right elements in another order; how far outputs move from draw to draw; whether every input and weight matters;
 * whether the reference is deterministic and finite (docs/task-format.md, "Degenerate tasks"). On a simulated device
 * the task's reduced dims are used where it has them, and are left again. STITCH_OK means that there is a result,
 * whatever it says of the task; other statuses that the reference could not be measured (it fails, no device, no
 * memory for three times the outputs, deadline). *out is released with stitch_admission_free() before the context.
 * @since 0.1.0
 */
STITCH_API int stitch_task_admit(stitch_context *ctx, stitch_task *task, const stitch_admit_options *options,
                                 stitch_admission **out, stitch_error **err);
STITCH_API void stitch_admission_free(stitch_admission *a);

/** 1: a correctness verdict on this task means nothing, for every output has an answer that costs nothing and passes,
 *  or the reference is none. @since 0.1.0 */
STITCH_API int stitch_admission_degenerate(const stitch_admission *a);
/** Why it is degenerate, and what would cure it: a sentence each, "" if it is not. Owned by the admission. */
STITCH_API const char *stitch_admission_reason(const stitch_admission *a);
STITCH_API const char *stitch_admission_cure(const stitch_admission *a);
/** Every measurement, as JSON (docs/task-format.md). Owned by the admission. */
STITCH_API const char *stitch_admission_json(const stitch_admission *a);
/** For people. Owned by the admission. */
STITCH_API const char *stitch_admission_text(const stitch_admission *a);

#ifdef __cplusplus
}
#endif
#endif
