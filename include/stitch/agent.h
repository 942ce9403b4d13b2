/* SPDX-License-Identifier: MIT
 *
 * The loop's verbs: plan, code, verify, and the pure function that says which comes next.
 *
 *     stitch_plan(ctx, task, ...)              -> plan
 *     stitch_code(ctx, task, ...)              -> candidate
 *     stitch_verify(ctx, task, candidate, ...) -> report
 *     stitch_next(attempts, count, policy)     -> draft, repair, optimise, replan or stop
 *
 * The host drives the loop; examples/loop.c is one.
 */
#ifndef STITCH_AGENT_H
#define STITCH_AGENT_H

#include <stitch/model.h>
#include <stitch/verify.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A system-level strategy with sub-tasks. Immutable. @since 0.1.0 */
typedef struct stitch_plan_doc stitch_plan_doc;
/** What a model (or a host) proposes: a program, or a reply that is none. Immutable but for what verify compiles into
 * its program. @since 0.1.0 */
typedef struct stitch_candidate stitch_candidate;

typedef enum stitch_role {
    STITCH_ROLE_PLANNER = 0,
    STITCH_ROLE_CODER = 1,
    STITCH_ROLE_CRITIC = 2,
    STITCH_ROLE_JUDGE = 3,
} stitch_role;

/** The model of a role; a role without one uses the coder's. The model stays the caller's and must outlive the
 * context's use of it. @since 0.1.0 */
STITCH_API int stitch_context_set_model(stitch_context *ctx, int role, stitch_model *model, stitch_error **err);

/** Overrides a prompt template ("plan", "code_draft", ... : docs/prompts.md lists them and their variables). text NULL:
 * the built-in one again. Like stitch_context_set_model(), not while another thread plans or codes with this context.
 * @since 0.1.0 */
STITCH_API int stitch_context_set_prompt(stitch_context *ctx, const char *name, const char *text, stitch_error **err);
/** The template in force. Owned by the context. NULL: there is none of this name. @since 0.1.0 */
STITCH_API const char *stitch_context_prompt(stitch_context *ctx, const char *name);

/* ---- next ------------------------------------------------------------------------------------------------------ */

/** X(NAME, text). @since 0.1.0 */
#define STITCH_ACTION_LIST(X)                                                                                          \
    X(PLAN, "plan")                                                                                                    \
    X(DRAFT, "draft") X(REPAIR_COMPILE, "repair_compile") X(REPAIR_CORRECTNESS, "repair_correctness")                  \
        X(OPTIMISE, "optimise") X(REPLAN, "replan") X(STOP, "stop")

typedef enum stitch_action {
    STITCH_ACTION_NONE = 0,
#define STITCH_ACTION_ENUM(name, text) STITCH_ACTION_##name,
    STITCH_ACTION_LIST(STITCH_ACTION_ENUM)
#undef STITCH_ACTION_ENUM
} stitch_action;

STITCH_API const char *stitch_action_name(int action); /**< "draft", ...; "none" otherwise. @since 0.1.0 */

/** What the policy needs to know of one attempt (a coded and verified candidate). @since 0.1.0 */
typedef struct stitch_attempt {
    size_t struct_size;
    int32_t action;       /**< what it was made by: DRAFT, REPAIR_*, OPTIMISE */
    int32_t base;         /**< index of the attempt it revises; -1: none */
    int32_t plan;         /**< running number of the plan it follows, from 0 */
    int32_t subtask;      /**< sub-task it worked on; -1: the whole program */
    int32_t failed_stage; /**< stitch_stage; NONE: passed */
    int32_t correct;
    double speedup; /**< 0: not measured */
    double median_us;
} stitch_attempt;

#define STITCH_ATTEMPT_INIT                                                                                            \
    {                                                                                                                  \
        sizeof(stitch_attempt), 0, -1, 0, -1, 0, 0, 0.0, 0.0                                                           \
    }

/** Fills an attempt (made with STITCH_ATTEMPT_INIT) from a report. @since 0.1.0 */
STITCH_API int stitch_attempt_from_report(stitch_attempt *attempt, const stitch_report *report);

typedef struct stitch_policy {
    size_t struct_size;
    int32_t max_attempts; /**< 0: 15 */
    int32_t max_repairs;  /**< failures in a row before a new plan; 0: 3 */
    int32_t stagnation;   /**< optimisations in a row without gain before a new plan; 0: 3 */
    int32_t max_plans;    /**< 0: 3 */
    int32_t subtasks; /**< sub-tasks of the current plan, worked on in turn while optimising; 0: the whole program each
                         time */
    int32_t reserved;
    double target_speedup; /**< stop when reached; 0: none */
    double min_gain;       /**< what counts as a gain; 0: 0.02 (2 %) */
} stitch_policy;

#define STITCH_POLICY_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(stitch_policy), 0, 0, 0, 0, 0, 0, 0.0, 0.0                                                              \
    }

typedef struct stitch_decision {
    size_t struct_size;
    int32_t action;  /**< stitch_action */
    int32_t base;    /**< attempt to revise; -1: none */
    int32_t subtask; /**< -1: the whole program */
    int32_t best;    /**< fastest correct attempt so far; -1: none */
    char reason[160];
} stitch_decision;

#define STITCH_DECISION_INIT                                                                                           \
    {                                                                                                                  \
        sizeof(stitch_decision), 0, -1, -1, -1,                                                                        \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }

/**
 * Pure: the same history and policy give the same decision. `plans` is the number of plans made so far: with 0 the
 * answer is PLAN; after a REPLAN the host makes a plan, calls again with one more, and gets DRAFT. policy NULL: the
 * defaults. @since 0.1.0
 */
STITCH_API int stitch_next(const stitch_attempt *attempts, size_t count, int32_t plans, const stitch_policy *policy,
                           stitch_decision *out, stitch_error **err);

/* ---- plan ------------------------------------------------------------------------------------------------------ */

typedef struct stitch_plan_options {
    size_t struct_size;
    /** Earlier plan and what came of it, for a new plan: attempts and reports in order. All may be NULL / 0. */
    const stitch_plan_doc *previous;
    const stitch_attempt *attempts;
    const stitch_report *const *reports;
    size_t attempt_count;
    /** A GPU timeline of the reference as text, NULL: none. */
    const char *trace_summary;
    stitch_token_fn on_token;
    void *userdata;
    const stitch_cancel *cancel;
    int64_t timeout_ms; /**< 0: the model's */
} stitch_plan_options;

#define STITCH_PLAN_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(stitch_plan_options), NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0                                    \
    }

STITCH_API int stitch_plan_options_init(stitch_plan_options *options, size_t struct_size);

/** Has the planner write a plan. A reply that is none is sent back with the reason, a few times; if it still is none:
 * STITCH_E_REPLY. @since 0.1.0 */
STITCH_API int stitch_plan(stitch_context *ctx, stitch_task *task, const stitch_plan_options *options,
                           stitch_plan_doc **out, stitch_error **err);
/** A plan written by the host, or saved: the JSON of docs/plan-format.md. */
STITCH_API int stitch_plan_parse(stitch_context *ctx, const char *json, stitch_plan_doc **out, stitch_error **err);
STITCH_API void stitch_plan_free(stitch_plan_doc *plan);
STITCH_API const char *stitch_plan_json(const stitch_plan_doc *plan);
STITCH_API const char *stitch_plan_strategy(const stitch_plan_doc *plan);
STITCH_API size_t stitch_plan_subtask_count(const stitch_plan_doc *plan);
/** level: "system" (layouts, launches, data movement) or "kernel". Strings are the plan's. */
STITCH_API int stitch_plan_subtask(const stitch_plan_doc *plan, size_t index, const char **id, const char **level,
                                   const char **title, const char **goal);

/* ---- code ------------------------------------------------------------------------------------------------------ */

typedef struct stitch_code_options {
    size_t struct_size;
    int32_t action;                   /**< DRAFT (default), REPAIR_COMPILE, REPAIR_CORRECTNESS, OPTIMISE */
    int32_t subtask;                  /**< index into the plan; -1: the whole program (as _INIT has it) */
    const stitch_plan_doc *plan;      /**< may be NULL */
    const stitch_candidate *previous; /**< the candidate to revise; NULL when drafting */
    const stitch_report *report;      /**< what verify said of it */
    /** The fastest correct candidate and its report when it is another one; may be NULL. */
    const stitch_candidate *best;
    const stitch_report *best_report;
    const char *notes;          /**< more text for the prompt (documentation, advice); NULL: none */
    int32_t max_format_repairs; /**< at most 16; 0: 2; -1: none */
    int32_t reserved;
    stitch_token_fn on_token;
    void *userdata;
    const stitch_cancel *cancel;
    int64_t timeout_ms; /**< 0: the model's */
} stitch_code_options;

#define STITCH_CODE_OPTIONS_INIT                                                                                       \
    {                                                                                                                  \
        sizeof(stitch_code_options), 0, -1, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, 0              \
    }

STITCH_API int stitch_code_options_init(stitch_code_options *options, size_t struct_size);

/**
 * Has the coder write or revise a program, `count` candidates at once. out[i] is NULL where that one failed. A reply
 * that does not parse is sent back with the error, a few times; if it still does not parse the candidate has no program
 * and verify reports stage format. Returns STITCH_OK if there is at least one candidate. @since 0.1.0
 */
STITCH_API int stitch_code(stitch_context *ctx, stitch_task *task, const stitch_code_options *options, size_t count,
                           stitch_candidate **out, stitch_error **err);
/** From the text of a reply (one ```cuda and one ```json block). STITCH_E_REPLY with the reason, and no candidate, if
 * it does not parse. */
STITCH_API int stitch_candidate_from_reply(stitch_context *ctx, const char *text, stitch_candidate **out,
                                           stitch_error **err);
/** Takes the program over on success. */
STITCH_API int stitch_candidate_from_program(stitch_context *ctx, stitch_program *program, stitch_candidate **out,
                                             stitch_error **err);
STITCH_API void stitch_candidate_free(stitch_candidate *c);
/** NULL if the reply could not be parsed. Owned by the candidate. */
STITCH_API stitch_program *stitch_candidate_program(const stitch_candidate *c);
/** The reply as it came; "" if there was none. */
STITCH_API const char *stitch_candidate_reply(const stitch_candidate *c);
/** What the model wrote outside the two blocks. */
STITCH_API const char *stitch_candidate_notes(const stitch_candidate *c);
/** Notices from the model (a replay that does not match, ...); "" if none. */
STITCH_API const char *stitch_candidate_notice(const stitch_candidate *c);
STITCH_API int stitch_candidate_format_repairs(const stitch_candidate *c);
STITCH_API int64_t stitch_candidate_tokens(const stitch_candidate *c); /**< in and out, all repairs; -1: unknown */

/* ---- verify ---------------------------------------------------------------------------------------------------- */

/** stitch_verify_program() of the candidate's program, or a report that says why there is none. @since 0.1.0 */
STITCH_API int stitch_verify(stitch_context *ctx, stitch_task *task, stitch_candidate *candidate,
                             const stitch_verify_options *options, stitch_report **out, stitch_error **err);

#ifdef __cplusplus
}
#endif
#endif
