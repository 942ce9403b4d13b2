/* SPDX-License-Identifier: MIT
 *
 * stitch admit: can a task tell a right program from a cheap answer?
 */
#include "cli.h"

int cli_admit(cli *c)
{
    stitch_task *task = NULL;
    stitch_admission *admission = NULL;
    stitch_error *err = NULL;
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    int code = cli_load_task(c, &task), rc;

    if (code)
        return code;
    o.seed = c->o.seed;
    o.max_runs = (int32_t)c->o.runs;
    o.cancel = c->cancel;
    if ((rc = stitch_task_admit(c->ctx, task, &o, &admission, &err)) != STITCH_OK) {
        code = cli_fail(c, "admit", rc, err);
    } else {
        cli_clear(c);
        if (c->o.json)
            cli_emit(c, json_loads(stitch_admission_json(admission), 0, NULL));
        else
            fputs(stitch_admission_text(admission), stdout);
        code = stitch_admission_degenerate(admission) ? EXIT_NOT_CORRECT : EXIT_OK;
    }
    stitch_admission_free(admission);
    cli_free_task(c, task);
    return code;
}
