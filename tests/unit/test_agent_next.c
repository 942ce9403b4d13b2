/* SPDX-License-Identifier: MIT
 *
 * stitch_next() over histories.
 */
#include <math.h>

#include "agent/agent.h"
#include "check.h"

enum { MAX = 32 };

typedef struct history {
    stitch_attempt a[MAX];
    size_t n;
    int32_t plans;
} history;

static void add(history *h, int action, int stage, double us)
{
    stitch_attempt a = STITCH_ATTEMPT_INIT;
    a.action = action;
    a.plan = h->plans - 1;
    a.failed_stage = stage;
    a.correct = stage == STITCH_STAGE_NONE || stage > STITCH_STAGE_CORRECT;
    a.median_us = us;
    a.speedup = us > 0 ? 1000 / us : 0;
    h->a[h->n++] = a;
}

static stitch_decision next(const history *h, const stitch_policy *p)
{
    stitch_error *err = NULL;
    stitch_decision d = STITCH_DECISION_INIT;
    CHECK_OK(stitch_next(h->a, h->n, h->plans, p, &d, &err));
    return d;
}

TEST(plans_then_drafts)
{
    history h = {.plans = 0};
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_PLAN);
    h.plans = 1;
    stitch_decision d = next(&h, NULL);
    CHECK_INT(d.action, STITCH_ACTION_DRAFT);
    CHECK_INT(d.base, -1);
    CHECK_INT(d.best, -1);
}

TEST(repairs_by_stage)
{
    static const struct {
        int stage, action;
    } cases[] = {
        {STITCH_STAGE_FORMAT, STITCH_ACTION_REPAIR_COMPILE},
        {STITCH_STAGE_VALIDATE, STITCH_ACTION_REPAIR_COMPILE},
        {STITCH_STAGE_COMPILE, STITCH_ACTION_REPAIR_COMPILE},
        {STITCH_STAGE_SIMULATE, STITCH_ACTION_REPAIR_CORRECTNESS},
        {STITCH_STAGE_LOAD, STITCH_ACTION_REPAIR_CORRECTNESS},
        {STITCH_STAGE_CORRECT, STITCH_ACTION_REPAIR_CORRECTNESS},
        {STITCH_STAGE_EXPLOIT, STITCH_ACTION_REPAIR_CORRECTNESS},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        history h = {.plans = 1};
        add(&h, STITCH_ACTION_DRAFT, cases[i].stage, 0);
        stitch_decision d = next(&h, NULL);
        CHECK_INT(d.action, cases[i].action);
        CHECK_INT(d.base, 0);
        CHECK_HAS(d.reason, stitch_stage_name(cases[i].stage));
    }
}

TEST(optimises_the_best)
{
    history h = {.plans = 1};
    stitch_policy p = STITCH_POLICY_INIT;
    p.subtasks = 2;
    add(&h, STITCH_ACTION_DRAFT, 0, 100);
    stitch_decision d = next(&h, &p);
    CHECK_INT(d.action, STITCH_ACTION_OPTIMISE);
    CHECK_INT(d.base, 0);
    CHECK_INT(d.subtask, 0);
    add(&h, STITCH_ACTION_OPTIMISE, 0, 200); /* slower */
    d = next(&h, &p);
    CHECK_INT(d.action, STITCH_ACTION_OPTIMISE);
    CHECK_INT(d.base, 0);
    CHECK_INT(d.best, 0);
    CHECK_INT(d.subtask, 1);
    add(&h, STITCH_ACTION_OPTIMISE, 0, 50);
    d = next(&h, &p);
    CHECK_INT(d.base, 2);
    CHECK_INT(d.best, 2);
    CHECK_INT(d.subtask, 0);
}

TEST(replans_after_failures)
{
    history h = {.plans = 1};
    for (int i = 0; i < 3; i++) {
        CHECK(next(&h, NULL).action != STITCH_ACTION_REPLAN);
        add(&h, i ? STITCH_ACTION_REPAIR_COMPILE : STITCH_ACTION_DRAFT, STITCH_STAGE_COMPILE, 0);
    }
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_REPLAN);
    h.plans = 2;
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_DRAFT);
    add(&h, STITCH_ACTION_DRAFT, STITCH_STAGE_COMPILE, 0);
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_REPAIR_COMPILE);
}

TEST(replans_after_stagnation)
{
    history h = {.plans = 1};
    add(&h, STITCH_ACTION_DRAFT, 0, 100);
    add(&h, STITCH_ACTION_OPTIMISE, 0, 99.5); /* below the gain that counts, still the best */
    add(&h, STITCH_ACTION_OPTIMISE, 0, 101);
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_OPTIMISE);
    CHECK_INT(next(&h, NULL).base, 1);
    add(&h, STITCH_ACTION_OPTIMISE, 0, 99.6);
    stitch_decision d = next(&h, NULL);
    CHECK_INT(d.action, STITCH_ACTION_REPLAN);
    CHECK_INT(d.best, 1);
    h.plans = 2;
    d = next(&h, NULL);
    CHECK_INT(d.action, STITCH_ACTION_DRAFT);
    CHECK_INT(d.best, 1);
}

TEST(small_steps_do_not_hide_stagnation)
{
    /* 1 % a time never counts as a gain, however long it goes on. */
    history h = {.plans = 1};
    double us = 100;
    add(&h, STITCH_ACTION_DRAFT, 0, us);
    for (int i = 0; i < 3; i++)
        add(&h, STITCH_ACTION_OPTIMISE, 0, us *= 0.99);
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_REPLAN);
}

TEST(stops_at_target)
{
    history h = {.plans = 1};
    stitch_policy p = STITCH_POLICY_INIT;
    p.target_speedup = 10;
    add(&h, STITCH_ACTION_DRAFT, 0, 101);
    CHECK_INT(next(&h, &p).action, STITCH_ACTION_OPTIMISE);
    add(&h, STITCH_ACTION_OPTIMISE, 0, 99);
    stitch_decision d = next(&h, &p);
    CHECK_INT(d.action, STITCH_ACTION_STOP);
    CHECK_INT(d.best, 1);
    h.a[1].speedup = 10; /* to the point */
    CHECK_INT(next(&h, &p).action, STITCH_ACTION_STOP);
}

TEST(stops_at_budget)
{
    history h = {.plans = 1};
    for (int i = 0; i < 15; i++) {
        CHECK(next(&h, NULL).action != STITCH_ACTION_STOP);
        add(&h, STITCH_ACTION_OPTIMISE, 0, 100.0 / (i + 1));
    }
    CHECK_INT(next(&h, NULL).action, STITCH_ACTION_STOP);
    CHECK_HAS(next(&h, NULL).reason, "15");
    stitch_policy p = STITCH_POLICY_INIT;
    p.max_attempts = 16;
    CHECK_INT(next(&h, &p).action, STITCH_ACTION_OPTIMISE);
}

TEST(without_plans_left)
{
    stitch_policy p = STITCH_POLICY_INIT;
    p.max_plans = 1;
    history failing = {.plans = 1};
    for (int i = 0; i < 3; i++)
        add(&failing, STITCH_ACTION_DRAFT, STITCH_STAGE_CORRECT, 0);
    CHECK_INT(next(&failing, &p).action, STITCH_ACTION_DRAFT);
    add(&failing, STITCH_ACTION_DRAFT, STITCH_STAGE_CORRECT, 0);
    CHECK_INT(next(&failing, &p).action, STITCH_ACTION_REPAIR_CORRECTNESS);

    history best = {.plans = 1};
    add(&best, STITCH_ACTION_DRAFT, 0, 100);
    for (int i = 0; i < 3; i++)
        add(&best, STITCH_ACTION_OPTIMISE, STITCH_STAGE_CORRECT, 0);
    stitch_decision d = next(&best, &p);
    CHECK_INT(d.action, STITCH_ACTION_OPTIMISE);
    CHECK_INT(d.base, 0);
    for (int i = 4; i < 6; i++) { /* what was made of that is repaired as well */
        add(&best, STITCH_ACTION_OPTIMISE, STITCH_STAGE_CORRECT, 0);
        CHECK_INT(next(&best, &p).action, STITCH_ACTION_REPAIR_CORRECTNESS);
    }
    add(&best, STITCH_ACTION_REPAIR_CORRECTNESS, STITCH_STAGE_CORRECT, 0);
    CHECK_INT(next(&best, &p).action, STITCH_ACTION_OPTIMISE);

    history stalled = {.plans = 1};
    for (int i = 0; i < 4; i++)
        add(&stalled, STITCH_ACTION_OPTIMISE, 0, 100);
    CHECK_INT(next(&stalled, &p).action, STITCH_ACTION_STOP);
}

TEST(stops_where_nothing_is_timed)
{
    history h = {.plans = 1};
    add(&h, STITCH_ACTION_DRAFT, STITCH_STAGE_CORRECT, 0);
    add(&h, STITCH_ACTION_REPAIR_CORRECTNESS, 0, 0);
    stitch_decision d = next(&h, NULL);
    CHECK_INT(d.action, STITCH_ACTION_STOP);
    CHECK_INT(d.best, 1);
    CHECK_HAS(d.reason, "not timed");
}

/* Only those count that come in a row; and what was not found right has failed, in whatever stage it was left. */
TEST(failures_in_a_row)
{
    history h = {.plans = 1}, unknown = {.plans = 1};

    for (int i = 0; i < 5; i++) {
        add(&h, STITCH_ACTION_OPTIMISE, i % 2 ? STITCH_STAGE_NONE : STITCH_STAGE_CORRECT, 100 - i);
        CHECK_INT(next(&h, NULL).action, i % 2 ? STITCH_ACTION_OPTIMISE : STITCH_ACTION_REPAIR_CORRECTNESS);
    }
    add(&unknown, STITCH_ACTION_DRAFT, STITCH_STAGE_NONE, 100);
    unknown.a[0].correct = 0;
    stitch_decision d = next(&unknown, NULL);
    CHECK_INT(d.action, STITCH_ACTION_REPAIR_CORRECTNESS);
    CHECK_INT(d.best, -1);
}

TEST(always_ends)
{
    /* Whatever the outcomes are, the loop ends within the budget and never asks for a base that is not there. */
    uint32_t seed = 1;
    for (int trial = 0; trial < 2000; trial++) {
        history h = {.plans = 0};
        int steps = 0;
        for (;; steps++) {
            CHECK(steps < 64);
            stitch_decision d = next(&h, NULL);
            if (d.action == STITCH_ACTION_STOP)
                break;
            if (d.action == STITCH_ACTION_PLAN || d.action == STITCH_ACTION_REPLAN) {
                h.plans++;
                continue;
            }
            CHECK(d.base < (int32_t)h.n);
            if (d.action != STITCH_ACTION_DRAFT)
                CHECK(d.base >= 0);
            seed = seed * 1664525u + 1013904223u;
            static const int stages[] = {0, STITCH_STAGE_FORMAT, STITCH_STAGE_COMPILE, STITCH_STAGE_CORRECT, 0, 0};
            add(&h, d.action, stages[(seed >> 16) % 6], 50 + (seed >> 20) % 100);
        }
        CHECK(h.n <= 15);
        CHECK(h.plans <= 3);
    }
}

TEST(refuses_bad_input)
{
    stitch_error *err = NULL;
    stitch_decision d = STITCH_DECISION_INIT;
    stitch_attempt a = STITCH_ATTEMPT_INIT;
    stitch_policy p = STITCH_POLICY_INIT;
    CHECK_ERR(stitch_next(NULL, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_next(NULL, 0, 1, NULL, NULL, &err), STITCH_E_INVALID, "NULL");
    a.plan = 1;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "plan 1");
    a.plan = 0;
    a.failed_stage = 99;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "no stage");
    a.failed_stage = STITCH_STAGE_COUNT;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "no stage");
    a.failed_stage = -1;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "no stage");
    a.failed_stage = 0;
    a.speedup = NAN;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "speed-up");
    a.speedup = 0;
    a.median_us = NAN;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "speed-up");
    a.median_us = 0;
    a.speedup = -1;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "speed-up");
    a.speedup = 0;
    a.struct_size = 3;
    CHECK_ERR(stitch_next(&a, 1, 1, NULL, &d, &err), STITCH_E_INVALID, "struct_size");
    p.max_attempts = -1;
    CHECK_ERR(stitch_next(NULL, 0, 1, &p, &d, &err), STITCH_E_INVALID, "negative");
}

TEST_MAIN(RUN(plans_then_drafts), RUN(repairs_by_stage), RUN(optimises_the_best), RUN(replans_after_failures),
          RUN(replans_after_stagnation), RUN(small_steps_do_not_hide_stagnation), RUN(stops_at_target),
          RUN(stops_at_budget), RUN(without_plans_left), RUN(stops_where_nothing_is_timed), RUN(failures_in_a_row),
          RUN(always_ends), RUN(refuses_bad_input))
