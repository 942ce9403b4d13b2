/* SPDX-License-Identifier: MIT
 *
 * Candidates that fault. On real hardware that costs the process its CUDA context, so each has a process of its own.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "verify_tasks.h"

static const struct {
    const char *what, *body;
} faults[] = {
    {"illegal address", "y[i] = a[i] * x[i] + b[i]; if (i == 3) *(volatile float *)0x10 = 1;"},
    {"trap", "y[i] = a[i] * x[i] + b[i]; if (i == 3) __trap();"},
};

/* In the child: 0 as expected, else a number that says what was not. */
static int verify_fault(const char *body)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    char source[1000];
    stitch_task *t = vector_task();
    int stage, want = device.simulated ? STITCH_STAGE_SIMULATE : STITCH_STAGE_CORRECT, status;

    snprintf(source, sizeof(source), VECTOR_KERNEL("float", "%s"), body);
    o.trials = 1;
    o.iterations = 10;
    o.profile = STITCH_PROFILE_NEVER;
    if (stitch_program_parse(ctx, source, VECTOR_PLAN, NULL, &p, &err))
        return 2;
    if (stitch_verify_program(ctx, t, p, &o, &r, &err)) {
        printf("# %s\n", stitch_error_message(err));
        return 3;
    }
    stitch_report_summary_get(r, &s);
    for (const char *line = stitch_report_text(r); *line; line += strcspn(line, "\n") + 1)
        printf("# %.*s\n", (int)strcspn(line, "\n"), line);
    if (s.failed_stage != want)
        return 4;
    if (!device.simulated && s.status != STITCH_E_FAULT)
        return 5;
    for (stage = want + 1; stage < STITCH_STAGE_COUNT; stage++)
        if (stitch_report_stage(r, stage, &status, NULL, NULL) || status != STITCH_STAGE_NOT_RUN)
            return 6;
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(t);
    stitch_context_free(ctx); /* must neither hang nor crash */
    return 0;
}

/* The parent never touches the device: a forked CUDA context is of no use. */
static void in_child(size_t index)
{
    int status;
    pid_t pid;
    fflush(stdout);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        int how = setjmp(check__out);
        int code = 1;
        if (how == 0) {
            need_device();
            code = verify_fault(faults[index].body);
        } else if (how == 2) {
            printf("# skipped: %s\n", check__skip);
            code = 77;
        }
        fflush(stdout);
        _exit(code);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        SKIP("no device, see above");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("%s: the child ended with status 0x%x", faults[index].what, status);
}

TEST(illegal_address)
{
    in_child(0);
}

TEST(trap)
{
    in_child(1);
}

TEST_MAIN(RUN(illegal_address), RUN(trap))
