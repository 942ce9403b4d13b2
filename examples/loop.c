/* SPDX-License-Identifier: MIT
 *
 * The whole loop in 40 lines: plan, code, verify, until stitch_next() says stop.
 * usage: loop TASK.json MODEL      (MODEL as for `stitch run`)
 */
#include <stdio.h>
#include <stitch/stitch.h>

enum { MAX = 15 };

int main(int argc, char **argv)
{
    stitch_context *ctx = NULL;
    stitch_task *task = NULL;
    stitch_model *model = NULL;
    stitch_plan_doc *plan = NULL;
    stitch_error *err = NULL;
    stitch_attempt attempts[MAX];
    stitch_candidate *candidates[MAX] = {NULL};
    stitch_report *reports[MAX] = {NULL};
    stitch_decision d = STITCH_DECISION_INIT;
    int n = 0, plans = 0, rc = argc == 3 ? stitch_context_new(&ctx, NULL, &err) : STITCH_E_INVALID;

    if (!rc && !(rc = stitch_task_load(ctx, argv[1], &task, &err)) && !(rc = stitch_model_open(ctx, argv[2], &model, &err)))
        rc = stitch_context_set_model(ctx, STITCH_ROLE_CODER, model, &err);
    while (!rc && n < MAX && !(rc = stitch_next(attempts, (size_t)n, plans, NULL, &d, &err)) && d.action != STITCH_ACTION_STOP) {
        if (d.action == STITCH_ACTION_PLAN || d.action == STITCH_ACTION_REPLAN) {
            stitch_plan_free(plan);
            rc = stitch_plan(ctx, task, NULL, &plan, &err);
            plans += !rc;
            continue;
        }
        stitch_code_options code = STITCH_CODE_OPTIONS_INIT;
        code.action = d.action;
        code.plan = plan;
        code.previous = d.base >= 0 ? candidates[d.base] : NULL;
        code.report = d.base >= 0 ? reports[d.base] : NULL;
        if ((rc = stitch_code(ctx, task, &code, 1, &candidates[n], &err)) || (rc = stitch_verify(ctx, task, candidates[n], NULL, &reports[n], &err)))
            break;
        attempts[n] = (stitch_attempt)STITCH_ATTEMPT_INIT;
        attempts[n].action = d.action, attempts[n].base = d.base, attempts[n].plan = plans - 1;
        stitch_attempt_from_report(&attempts[n], reports[n]);
        printf("attempt %d (%s)\n%s\n", n + 1, stitch_action_name(d.action), stitch_report_text(reports[n]));
        n++;
    }
    if (rc)
        fprintf(stderr, "%s: %s\n", stitch_status_name(rc), err ? stitch_error_message(err) : "usage: loop TASK.json MODEL");
    for (int i = 0; i < MAX; i++)
        stitch_candidate_free(candidates[i]), stitch_report_free(reports[i]);
    stitch_error_free(err), stitch_plan_free(plan), stitch_task_free(task);
    if (ctx)
        stitch_context_set_model(ctx, STITCH_ROLE_CODER, NULL, NULL);
    stitch_model_free(model), stitch_context_free(ctx);
    return rc ? 1 : 0;
}
