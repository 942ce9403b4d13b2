/* SPDX-License-Identifier: MIT
 *
 * Profiles: what a stretch of GPU work spends its time on and what to do about it, without a language model. A
 * timeline, hardware counters of each kernel and stalls by source line, taken in process with CUPTI, become verdicts
 * (bound by memory, arithmetic, latency, launches, copies or the host; how far from the limit) and advice, most gain
 * first.
 *
 * A verification profiles the program that it verified (stitch_report_profile()); a task's reference can be profiled
 * before any program exists, for the plan; and so can any work of the host's own:
 *
 *     static int step(void *userdata) { my_engine_step(userdata); return 0; }
 *     ...
 *     if (stitch_profile_region(ctx, step, engine, NULL, &profile, &err) == STITCH_OK)
 *         stitch_profile_text(profile, 0, &text, &err);
 *     stitch_profile_free(profile);
 *
 * Counters and samples need a permission on many systems (root, CAP_SYS_ADMIN, or the driver's option
 * NVreg_RestrictProfilingToAdminUsers=0). What may not be measured, or cannot because another tool holds CUPTI, is
 * missing from the profile, and the profile says why. docs/profile.md says what each figure means.
 */
#ifndef STITCH_PROFILE_H
#define STITCH_PROFILE_H

#include <stitch/task.h>
#include <stitch/verify.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Immutable; may be read from several threads. @since 0.1.0 */
typedef struct stitch_profile stitch_profile;

/**
 * The work to profile, in the device's primary context, from the thread that profiles: called about ten times for
 * timeline and counters (more often where options.metrics need it), and for samples until 20 ms have passed (once at
 * least, 2,000 times at most). It must do the
 * same work each time and need not wait for the device. Returns 0, or anything else to give up.
 * @since 0.1.0
 */
typedef int (*stitch_region_fn)(void *userdata);

typedef struct stitch_profile_options {
    size_t struct_size;
    int32_t profile; /**< stitch_verify_profile: how much */
    int32_t reserved;
    const char *const *metrics; /**< more of CUPTI's metrics by name, at most 64 */
    size_t metric_count;
    /** Compiled images that the region runs kernels of, for stalls by source line; their sources (NUL-terminated) may
     * be NULL, one by one or all. */
    const stitch_image *const *images;
    const char *const *sources;
    size_t image_count;
    const stitch_cancel *cancel;
    int64_t timeout_ms; /**< of the whole call; 0: 2 min */
} stitch_profile_options;

#define STITCH_PROFILE_OPTIONS_INIT                                                                                    \
    {                                                                                                                  \
        sizeof(stitch_profile_options), 0, 0, NULL, 0, NULL, NULL, 0, NULL, 0                                          \
    }

STITCH_API int stitch_profile_options_init(stitch_profile_options *options, size_t struct_size);

/**
 * Profiles work of the host's own. Kernels that are launched as graphs appear in the timeline; work with graphs has no
 * counters, and once it was profiled, this process has no samples any more. While counters are taken, kernels run one
 * after the other: one that waits for another kernel, for another process or for the host must not be profiled so
 * (STITCH_PROFILE_TIMELINE takes none). Launches of this process cost more afterwards (docs/profile.md).
 * STITCH_E_UNSUPPORTED: the device is simulated, or there is no timeline to be had; STITCH_E_CANCELLED: the function
 * gave up, or the call was cancelled. STITCH_E_TIMEOUT: also where the work hangs; after that, or a cancellation, it
 * may be that this process can neither profile nor trace any more, which the message says then.
 * @since 0.1.0
 */
STITCH_API int stitch_profile_region(stitch_context *ctx, stitch_region_fn fn, void *userdata,
                                     const stitch_profile_options *options, stitch_profile **out, stitch_error **err);

/**
 * Profiles what a task is measured against: its first baseline, or its reference where it has none. What stitch_plan()
 * wants to know of it is stitch_profile_text(), as trace_summary. A simulated device has nothing to tell:
 * STITCH_E_UNSUPPORTED. @since 0.1.0
 */
STITCH_API int stitch_profile_task(stitch_context *ctx, stitch_task *task, const stitch_profile_options *options,
                                   stitch_profile **out, stitch_error **err);

STITCH_API void stitch_profile_free(stitch_profile *profile);

/** Of the program that was verified, where its stage profile passed; else NULL. Owned by the report. @since 0.1.0 */
STITCH_API const stitch_profile *stitch_report_profile(const stitch_report *report);

/** Everything, as JSON (docs/profile.md). Owned by the profile. @since 0.1.0 */
STITCH_API const char *stitch_profile_json(const stitch_profile *profile);
/** Verdict, kernels and advice, the decisive fact first, at most max_bytes (0: no limit). *text is released with
 *  stitch_free(). @since 0.1.0 */
STITCH_API int stitch_profile_text(const stitch_profile *profile, size_t max_bytes, char **text, stitch_error **err);

/** What bounds the run, or a kernel. Strings are the profile's. @since 0.1.0 */
typedef struct stitch_profile_verdict {
    size_t struct_size;
    const char *bound;   /**< "memory", "compute", "latency", "launch", "copy", "host", "unknown" */
    const char *because; /**< with its figures */
    double time_us;      /**< of the run, or of all launches of the kernel in one run */
    double limit_us;     /**< what the ceiling allows; 0: not known */
    double reached;      /**< limit_us / time, 0 to 1; 0: not known */
    const char *name;    /**< of the kernel; "" for the run */
} stitch_profile_verdict;

#define STITCH_PROFILE_VERDICT_INIT                                                                                    \
    {                                                                                                                  \
        sizeof(stitch_profile_verdict), NULL, NULL, 0, 0, 0, NULL                                                      \
    }

STITCH_API size_t stitch_profile_kernel_count(const stitch_profile *profile);
/** Of a kernel (most time first), or of the run: index SIZE_MAX. STITCH_E_NOT_FOUND past the end. @since 0.1.0 */
STITCH_API int stitch_profile_verdict_get(const stitch_profile *profile, size_t index, stitch_profile_verdict *verdict);

/** A piece of advice. Strings are the profile's. @since 0.1.0 */
typedef struct stitch_profile_advice {
    size_t struct_size;
    const char *rule;   /**< its id in docs/profile.md: "uncoalesced" */
    const char *kernel; /**< name; "" for the run as a whole */
    const char *problem, *evidence, *action;
    const char *file; /**< "" where no line is meant */
    uint32_t line;
    int32_t step;      /**< of the launch plan; -1 */
    double gain_us;    /**< what a run can gain at the most; 0: not known */
    double gain_share; /**< of the run's time, 0 to 1 */
} stitch_profile_advice;

#define STITCH_PROFILE_ADVICE_INIT                                                                                     \
    {                                                                                                                  \
        sizeof(stitch_profile_advice), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0                                  \
    }

STITCH_API size_t stitch_profile_advice_count(const stitch_profile *profile);
/** Most gain first. STITCH_E_NOT_FOUND past the end. @since 0.1.0 */
STITCH_API int stitch_profile_advice_get(const stitch_profile *profile, size_t index, stitch_profile_advice *advice);

#ifdef __cplusplus
}
#endif
#endif
