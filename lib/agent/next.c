/* SPDX-License-Identifier: MIT
 *
 * The loop's policy: a pure function from the history to the next action.
 */
#include "agent/agent.h"
#include "program/program.h"

const char *stitch_action_name(int action)
{
    switch (action) {
#define STITCH_ACTION_CASE(name, text)                                                                                 \
    case STITCH_ACTION_##name: return text;
        STITCH_ACTION_LIST(STITCH_ACTION_CASE)
#undef STITCH_ACTION_CASE
    default: return "none";
    }
}

int stitch_attempt_from_report(stitch_attempt *attempt, const stitch_report *report)
{
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    int rc;

    if (!attempt || !report || attempt->struct_size != sizeof(*attempt))
        return STITCH_E_INVALID;
    if ((rc = stitch_report_summary_get(report, &s)) != STITCH_OK)
        return rc;
    attempt->failed_stage = s.failed_stage;
    attempt->correct = s.correct;
    attempt->speedup = s.speedup;
    attempt->median_us = s.median_us;
    return STITCH_OK;
}

/* What the policy reads out of a history. */
typedef struct state {
    int32_t best;      /* fastest correct attempt; -1: none */
    int32_t failures;  /* in a row, at the end, within the current plan */
    int32_t stagnant;  /* optimisations in a row without gain, at the end, within the current plan */
    int32_t optimised; /* optimisations within the current plan, whatever came of them */
    int32_t last_good; /* last attempt of the current plan that passed; -1: none */
    int32_t in_plan;   /* attempts within the current plan */
} state;

static bool passed(const stitch_attempt *a)
{
    return a->correct && a->failed_stage == STITCH_STAGE_NONE;
}

/* Is `a` faster than `b` by more than the gain that counts? By time where both are measured, since baselines vary. */
static bool faster(const stitch_attempt *a, const stitch_attempt *b, double gain)
{
    if (a->median_us > 0 && b->median_us > 0)
        return b->median_us > a->median_us * (1 + gain);
    return a->speedup > b->speedup * (1 + gain);
}

static state read_history(const stitch_attempt *attempts, size_t count, int32_t plan, double gain)
{
    state s = {-1, 0, 0, 0, -1, 0};
    for (size_t i = 0; i < count; i++) {
        const stitch_attempt *a = &attempts[i];
        bool good = passed(a);
        bool gains = good && (s.best < 0 || faster(a, &attempts[s.best], gain));
        if (a->plan == plan) {
            s.in_plan++;
            s.failures = good ? 0 : s.failures + 1;
            s.optimised += a->action == STITCH_ACTION_OPTIMISE;
            if (gains)
                s.stagnant = 0;
            else if (good)
                s.stagnant++;
            if (good)
                s.last_good = (int32_t)i;
        }
        if (good && (s.best < 0 || faster(a, &attempts[s.best], 0)))
            s.best = (int32_t)i;
    }
    return s;
}

static bool builds(int stage)
{
    return stage != STITCH_STAGE_FORMAT && stage != STITCH_STAGE_VALIDATE && stage != STITCH_STAGE_COMPILE;
}

static void decide(stitch_decision *d, int action, int32_t base, int32_t subtask, const char *fmt, ...)
    STITCH__PRINTF(5, 6);
static void decide(stitch_decision *d, int action, int32_t base, int32_t subtask, const char *fmt, ...)
{
    va_list ap;
    d->action = action;
    d->base = base;
    d->subtask = subtask;
    va_start(ap, fmt);
    stitch__vformat(d->reason, sizeof(d->reason), fmt, ap);
    va_end(ap);
}

int stitch__attempts_check(const stitch_context *ctx, const stitch_attempt *attempts, size_t count, stitch_error **err)
{
    for (size_t i = 0; i < count; i++) {
        const stitch_attempt *a = &attempts[i];
        if (a->struct_size != sizeof(stitch_attempt)) /* of another size, the next one is not where we look for it */
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "attempt %zu: struct_size is %zu, expected %zu: use STITCH_ATTEMPT_INIT", i,
                               a->struct_size, sizeof(stitch_attempt));
        if (a->failed_stage < STITCH_STAGE_NONE || a->failed_stage >= STITCH_STAGE_COUNT)
            return stitch__err(ctx, err, STITCH_E_INVALID, "attempt %zu: %d is no stage", i, a->failed_stage);
        if (!(a->speedup >= 0) || !(a->median_us >= 0))
            return stitch__err(ctx, err, STITCH_E_INVALID, "attempt %zu: speed-up and time must be numbers >= 0", i);
    }
    return STITCH_OK;
}

static int check_history(const stitch_attempt *attempts, size_t count, int32_t plans, stitch_error **err)
{
    int rc = stitch__attempts_check(NULL, attempts, count, err);
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        int32_t plan = attempts[i].plan;
        if (plan < 0 || plan >= (plans > 0 ? plans : 1))
            rc = stitch__err(NULL, err, STITCH_E_INVALID, "attempt %zu follows plan %d, but %d plans were made", i,
                             plan, plans);
    }
    return rc;
}

static void after_failure(const stitch_attempt *attempts, size_t count, int32_t plans, const stitch_policy *p,
                          const state *s, stitch_decision *out)
{
    const stitch_attempt *last = &attempts[count - 1];
    const char *stage = stitch_stage_name(last->failed_stage ? last->failed_stage : STITCH_STAGE_CORRECT);
    if (s->failures >= p->max_repairs) {
        if (plans < p->max_plans)
            decide(out, STITCH_ACTION_REPLAN, s->best, -1, "%d failures in a row, the last in stage %s", s->failures,
                   stage);
        else if (s->best >= 0 && s->failures % p->max_repairs == 0)
            decide(out, STITCH_ACTION_OPTIMISE, s->best, -1,
                   "%d failures in a row and no plan left: back to the fastest correct program", s->failures);
        else if (s->best < 0 && s->failures % p->max_repairs == 0)
            decide(out, STITCH_ACTION_DRAFT, -1, -1, "%d failures in a row and no plan left: a fresh draft",
                   s->failures);
        else
            decide(out, builds(last->failed_stage) ? STITCH_ACTION_REPAIR_CORRECTNESS : STITCH_ACTION_REPAIR_COMPILE,
                   (int32_t)count - 1, last->subtask, "failed in stage %s", stage);
        return;
    }
    decide(out, builds(last->failed_stage) ? STITCH_ACTION_REPAIR_CORRECTNESS : STITCH_ACTION_REPAIR_COMPILE,
           (int32_t)count - 1, last->subtask, "failed in stage %s", stage);
}

static void after_success(const stitch_attempt *last, int32_t plans, const stitch_policy *p, const state *s,
                          stitch_decision *out)
{
    if (last->median_us <= 0 &&
        last->speedup <= 0) { /* the simulator reports no times: there is nothing to optimise by */
        decide(out, STITCH_ACTION_STOP, s->best, -1, "correct, and not timed here");
        return;
    }
    if (s->stagnant >= p->stagnation) {
        if (plans < p->max_plans)
            decide(out, STITCH_ACTION_REPLAN, s->best, -1, "%d attempts without a gain of %.0f %%", s->stagnant,
                   p->min_gain * 100);
        else
            decide(out, STITCH_ACTION_STOP, s->best, -1, "%d attempts without a gain of %.0f %% and no plan left",
                   s->stagnant, p->min_gain * 100);
        return;
    }
    int32_t subtask = p->subtasks > 0 ? s->optimised % p->subtasks : -1;
    decide(out, STITCH_ACTION_OPTIMISE, s->best, subtask, "correct: make it faster");
}

int stitch_next(const stitch_attempt *attempts, size_t count, int32_t plans, const stitch_policy *policy,
                stitch_decision *out, stitch_error **err)
{
    stitch_policy p = STITCH_POLICY_INIT;
    stitch_decision d = STITCH_DECISION_INIT;
    int rc;

    if (!out || (count && !attempts))
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_next: attempts and out must not be NULL");
    if (policy && (rc = stitch__options_copy(NULL, &p, sizeof(p), policy, "stitch_policy", err)) != STITCH_OK)
        return rc;
    if (p.max_attempts < 0 || p.max_repairs < 0 || p.stagnation < 0 || p.max_plans < 0 || p.subtasks < 0 ||
        !(p.target_speedup >= 0) || !(p.min_gain >= 0) || plans < 0)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "stitch_next: the policy's values and plans must not be negative");
    if ((rc = check_history(attempts, count, plans, err)) != STITCH_OK)
        return rc;
    p.max_attempts = p.max_attempts ? p.max_attempts : 15;
    p.max_repairs = p.max_repairs ? p.max_repairs : 3;
    p.stagnation = p.stagnation ? p.stagnation : 3;
    p.max_plans = p.max_plans ? p.max_plans : 3;
    p.min_gain = p.min_gain > 0 ? p.min_gain : 0.02;

    state s = read_history(attempts, count, plans - 1, p.min_gain);
    d.best = s.best;
    if (plans == 0)
        decide(&d, STITCH_ACTION_PLAN, -1, -1, "there is no plan yet");
    else if (s.best >= 0 && p.target_speedup > 0 && attempts[s.best].speedup >= p.target_speedup)
        decide(&d, STITCH_ACTION_STOP, s.best, -1, "the target of %.2fx is reached", p.target_speedup);
    else if (count >= (size_t)p.max_attempts)
        decide(&d, STITCH_ACTION_STOP, s.best, -1, "the budget of %d attempts is spent", p.max_attempts);
    else if (s.in_plan == 0)
        decide(&d, STITCH_ACTION_DRAFT, s.best, -1, count ? "a new plan" : "nothing is written yet");
    else if (!passed(&attempts[count - 1]))
        after_failure(attempts, count, plans, &p, &s, &d);
    else
        after_success(&attempts[count - 1], plans, &p, &s, &d);
    if (stitch__out_struct(out, &d, sizeof(d)) != STITCH_OK)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "stitch_next: out->struct_size is not set: use STITCH_DECISION_INIT");
    return STITCH_OK;
}
