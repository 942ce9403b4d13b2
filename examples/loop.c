/* SPDX-License-Identifier: MIT
 *
 * The whole loop in 40 lines: plan, code, verify, until stitch_next() says stop. The best program is saved.
 * usage: loop TASK.json MODEL TARGET-SPEEDUP PROGRAM.stitch      (MODEL as for `stitch run`)
 */
#include <stdio.h>
#include <stdlib.h>
#include <stitch/stitch.h>

#define TRY(call) if ((call) != STITCH_OK) goto out

int main(int argc, char **argv)
{
    enum { MAX = 15 };
    stitch_context *ctx = NULL;
    stitch_task *task = NULL;
    stitch_model *model = NULL;
    stitch_plan_doc *plan = NULL;
    stitch_error *err = NULL;
    stitch_attempt attempts[MAX];
    stitch_candidate *candidates[MAX] = {NULL};
    stitch_report *reports[MAX] = {NULL};
    stitch_policy policy = STITCH_POLICY_INIT;
    stitch_decision d = STITCH_DECISION_INIT;
    int n = 0, plans = 0, failed = 1;
    if (argc != 5)
        return fprintf(stderr, "usage: loop TASK.json MODEL TARGET-SPEEDUP PROGRAM.stitch\n"), 2;
    policy.target_speedup = atof(argv[3]);
    TRY(stitch_context_new(&ctx, NULL, &err));
    TRY(stitch_task_load(ctx, argv[1], &task, &err));
    TRY(stitch_model_open(ctx, argv[2], &model, &err));
    TRY(stitch_context_set_model(ctx, STITCH_ROLE_CODER, model, &err));
    for (;;) {
        TRY(stitch_next(attempts, (size_t)n, plans, &policy, &d, &err));
        if (d.action == STITCH_ACTION_STOP)
            break;
        if (d.action == STITCH_ACTION_PLAN || d.action == STITCH_ACTION_REPLAN) {
            stitch_plan_options o = STITCH_PLAN_OPTIONS_INIT;
            stitch_plan_doc *next = NULL;
            o.previous = plan, o.attempts = attempts, o.attempt_count = (size_t)n;
            o.reports = (const stitch_report *const *)reports;
            TRY(stitch_plan(ctx, task, &o, &next, &err));
            stitch_plan_free(plan);
            plan = next, plans++;
            continue;
        }
        stitch_code_options o = STITCH_CODE_OPTIONS_INIT;
        o.action = d.action, o.plan = plan, o.subtask = d.subtask;
        o.previous = d.base >= 0 ? candidates[d.base] : NULL, o.report = d.base >= 0 ? reports[d.base] : NULL;
        TRY(stitch_code(ctx, task, &o, 1, &candidates[n], &err));
        TRY(stitch_verify(ctx, task, candidates[n], NULL, &reports[n], &err));
        attempts[n] = (stitch_attempt)STITCH_ATTEMPT_INIT;
        attempts[n].action = d.action, attempts[n].base = d.base, attempts[n].plan = plans - 1;
        stitch_attempt_from_report(&attempts[n], reports[n]);
        printf("attempt %d (%s)\n%s\n", n + 1, stitch_action_name(d.action), stitch_report_text(reports[n]));
        n++;
    }
    failed = d.best < 0;
    if (!failed)
        TRY(stitch_program_save(stitch_candidate_program(candidates[d.best]), argv[4], &err));
out:
    if (err)
        fprintf(stderr, "%s: %s\n", stitch_status_name(stitch_error_code(err)), stitch_error_message(err));
    failed |= err != NULL;
    for (int i = 0; i < MAX; i++)
        stitch_candidate_free(candidates[i]), stitch_report_free(reports[i]);
    stitch_error_free(err);
    stitch_plan_free(plan);
    stitch_task_free(task);
    if (ctx)
        stitch_context_set_model(ctx, STITCH_ROLE_CODER, NULL, NULL);
    stitch_model_free(model);
    stitch_context_free(ctx);
    return failed;
}
