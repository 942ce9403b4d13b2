/* SPDX-License-Identifier: MIT
 *
 * Plays every trick of the table (tricks.c) and its honest twin on the verifier: the trick must be caught at the stage
 * and for the reason that the table names, the twin must pass. Each row has a process of its own, for some cost theirs.
 *
 * usage: adversarial [--markdown] [--worker | --here] [ROW...]
 *
 * Prints TAP, or a table. The device is STITCH_TEST_DEVICE, else "auto"; programs run where the library's default is,
 * in a worker, or in this process.
 */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tricks.h"
#include "verify_tasks.h"

enum { ROW_SECONDS = 240 };

typedef struct outcome {
    enum { OK, NOT_OK, SKIPPED } status;
    char caught[300], twin[100], why[300], device[100];
    char report[6000]; /* of what went otherwise */
} outcome;

typedef struct verdict {
    stitch_report_summary s;
    char stage[20], message[2000], text[6000], *json, *feedback;
    int64_t runs, warmup, checked; /* timed runs, warm-up runs, runs of stage correct */
    size_t majors;
} verdict;

static int where = STITCH_VERIFY_AUTO;

/* ---- one verification -------------------------------------------------------------------------------------------- */

static stitch_verify_options options_of(const trick *t)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.profile = STITCH_PROFILE_NEVER;
    o.trials = 2;
    o.iterations = t->limit == LIMIT_TIME || t->limit == LIMIT_AFTER || t->outcome == NOT_FASTER ? 60 : 12;
    o.warmup = 2;
    o.timeout_ms = t->timeout_ms;
    o.where = where;
    return o;
}

static json_t *member(const json_t *v, const char *a, const char *b)
{
    v = json_object_get(v, a);
    return json_object_get(v, b);
}

static void take_json(verdict *v)
{
    json_t *root = json_loads(v->json, 0, NULL), *findings = member(root, "exploit", "findings"), *f;
    size_t i;

    CHECK(root != NULL);
    v->runs = json_integer_value(json_object_get(member(root, "time", "candidate"), "runs"));
    v->warmup = json_integer_value(member(root, "time", "warmup"));
    v->checked = 2 * (int64_t)(json_array_size(member(root, "correct", "trials")) +
                               json_array_size(member(root, "correct", "robust")));
    v->majors = 0;
    json_array_foreach(findings, i, f)
    {
        v->majors += strcmp(json_string_value(json_object_get(f, "severity")), "major") == 0;
        CHECK(*json_string_value(json_object_get(f, "evidence")));
        CHECK(*json_string_value(json_object_get(f, "advice")));
    }
    json_decref(root);
}

/* No line that the candidate's text could have made says that it passed. */
static void check_lines(const verdict *v)
{
    const char *texts[] = {v->text, v->feedback};
    for (size_t k = 0; k < 2 && v->s.failed_stage; k++)
        for (const char *line = texts[k]; *line; line += strcspn(line, "\n"), line += *line == '\n')
            if (strncmp(line, "PASSED", 6) == 0 || strncmp(line, "SYSTEM", 6) == 0)
                FAIL("a line of the report is the candidate's: %.*s", (int)strcspn(line, "\n"), line);
    if (v->s.failed_stage) {
        CHECK(strncmp(v->text, "FAILED at", 9) == 0);
        CHECK(strncmp(v->feedback, "Verification failed in stage", 28) == 0);
        CHECK_INT(v->s.timed, 0);
        CHECK(v->s.speedup == 0);
    }
}

static verdict judge(const trick *t, const trick_task *task, const char *source, const char *plan)
{
    verdict v = {.s = STITCH_REPORT_SUMMARY_INIT};
    stitch_verify_options o = options_of(t);
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_task *made = make_task(task->head, task->oracle, task->plan, NULL);
    const char *message = "";

    if (task->baseline) {
        stitch_program *baseline = NULL;
        CHECK_OK(stitch_program_parse(ctx, task->baseline, task->plan, NULL, &baseline, &err));
        CHECK_OK(stitch_task_add_baseline_program(made, "plain", STITCH_PRECISION_F32, baseline, &err));
    }
    if (stitch_program_parse(ctx, source, plan, NULL, &p, &err)) /* what a host does with a reply that is no program */
        CHECK_OK(stitch_report_new_format_failure(ctx, err, &r, &err));
    else
        CHECK_OK(stitch_verify_program(ctx, made, p, &o, &r, &err));
    CHECK_INT(stitch_report_summary_get(r, &v.s), 0);
    if (v.s.failed_stage)
        CHECK_INT(stitch_report_stage(r, v.s.failed_stage, NULL, NULL, &message), 0);
    snprintf(v.stage, sizeof(v.stage), "%s", v.s.failed_stage ? stitch_stage_name(v.s.failed_stage) : "none");
    snprintf(v.message, sizeof(v.message), "%s", message);
    snprintf(v.text, sizeof(v.text), "%s", stitch_report_text(r));
    v.json = strdup(stitch_report_json(r));
    CHECK_OK(stitch_report_feedback(r, 0, &v.feedback, &err));
    take_json(&v);
    check_lines(&v);
    stitch_report_free(r);
    stitch_program_free(p);
    stitch_task_free(made);
    return v;
}

static void drop(verdict *v)
{
    free(v->json);
    stitch_free(v->feedback);
}

/* ---- what must come out ------------------------------------------------------------------------------------------ */

/* The alternative of `words` that is in the text; NULL: none. */
static const char *found(const char *text, const char *words, size_t *len)
{
    while (words) {
        char one[100];
        *len = strcspn(words, "|");
        snprintf(one, sizeof(one), "%.*s", (int)*len, words);
        if (strstr(text, one))
            return words;
        words = words[*len] ? words + *len + 1 : NULL;
    }
    return NULL;
}

/* The source with the number of runs that it waits for. */
static char *with_limit(const trick *t, const verdict *twin)
{
    const char *at = strstr(t->source, "LIMIT");
    /* Since the module was loaded last: the runs until the end of timing, and one of those after. */
    int64_t limit = t->limit == LIMIT_CORRECT ? twin->checked
                    : t->limit == LIMIT_TIME  ? 40
                                              : twin->warmup + twin->runs + 1;
    char *out;
    if (t->limit == LIMIT_NONE || !at)
        return strdup(t->source);
    size_t size = strlen(t->source) + 24;
    out = malloc(size);
    snprintf(out, size, "%.*s%" PRId64 "%s", (int)(at - t->source), t->source, limit, at + 5);
    return out;
}

static void check_twin(const trick *t, const verdict *v, outcome *o)
{
    snprintf(o->twin, sizeof(o->twin), "%s", v->s.failed_stage ? "REJECTED" : v->majors ? "VOIDED" : "passed");
    if (v->s.failed_stage || !v->s.correct || v->majors || (v->s.degenerate && !t->odd_twin) ||
        (!device.simulated && !v->s.timed)) {
        o->status = NOT_OK;
        snprintf(o->why, sizeof(o->why), "the honest twin does not pass");
        snprintf(o->report, sizeof(o->report), "%s", v->text);
    }
}

static void check_trick(const trick *t, const verdict *v, const verdict *twin, outcome *o)
{
    bool early = device.simulated && t->sim_stage;
    int stage = early ? t->sim_stage : t->stage;
    const char *words = early ? t->sim_words : t->words, *at;
    size_t len = 0;
    bool good = false;

    switch (t->outcome) {
    case REJECTED:
        at = found(v->message, words, &len);
        good = v->s.failed_stage == stage && at && v->majors <= 1 && (stage == STITCH_STAGE_EXPLOIT) <= v->majors;
        snprintf(o->caught, sizeof(o->caught), "%s: %.*s", v->stage, (int)(len ? len : strcspn(v->message, "\n") % 80),
                 len && at ? at : v->message);
        break;
    case REPORTED:
        at = found(v->json, words, &len);
        good = !v->s.failed_stage && at && !v->majors;
        snprintf(o->caught, sizeof(o->caught), "reported: %.*s", (int)len, at ? at : "");
        break;
    case DEGENERATE:
        at = found(v->text, words, &len);
        good = !v->s.failed_stage && v->s.degenerate && v->s.speedup == 0 && at && strstr(v->text, "DEGENERATE TASK");
        snprintf(o->caught, sizeof(o->caught), "admission: the task is degenerate, nothing counts");
        break;
    case NOT_FASTER:
        good = !v->s.failed_stage && v->s.timed && v->s.median_us >= 0.9 * twin->s.median_us;
        snprintf(o->caught, sizeof(o->caught), "time: %.2f us beside %.2f us of the twin", v->s.median_us,
                 twin->s.median_us);
        break;
    default:
        good = !v->s.failed_stage && v->s.timed && v->runs == options_of(t).iterations && v->runs == twin->runs;
        snprintf(o->caught, sizeof(o->caught), "time: %" PRId64 " runs as asked", v->runs);
    }
    if (!good) {
        o->status = NOT_OK;
        snprintf(o->why, sizeof(o->why), "expected %s: %s", t->outcome ? "a report" : stitch_stage_name(stage),
                 words ? words : "");
        snprintf(o->report, sizeof(o->report), "%s", v->text);
    }
}

static void play(const trick *t, outcome *o)
{
    const trick_task *twin_task = t->twin_task ? t->twin_task : t->task;
    verdict twin, v;
    char *source;

    need_device();
    snprintf(o->device, sizeof(o->device), "%s", device.name);
    if (device.simulated && t->where == REAL)
        SKIP("its effect needs a real GPU");
    twin = judge(t, twin_task, t->twin_source ? t->twin_source : t->source, t->twin_plan ? t->twin_plan : t->plan);
    check_twin(t, &twin, o);
    if (!device.simulated && t->where == GUARDS && !twin.s.isolated)
        SKIP("needs the guard pages that a worker has");
    if (o->status == OK) {
        source = with_limit(t, &twin);
        v = judge(t, t->task, source, t->plan);
        check_trick(t, &v, &twin, o);
        free(source);
        drop(&v);
    }
    if (o->status == OK && t->where == WORKER && (device.simulated || twin.s.isolated)) {
        drop(&twin); /* this process and its context are as they were */
        twin = judge(t, twin_task, t->twin_source ? t->twin_source : t->source, t->plan);
        check_twin(t, &twin, o);
    }
    drop(&twin);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static void child(const trick *t, int fd)
{
    static outcome o;
    int jumped = setjmp(check__out);
    if (jumped == 0) {
        play(t, &o);
        stitch_context_free(ctx);
    } else {
        o.status = jumped == 2 ? SKIPPED : NOT_OK;
        snprintf(o.why, sizeof(o.why), "%s", jumped == 2 ? check__skip : "see above");
    }
    fflush(stdout);
    if (write(fd, &o, sizeof(o)) != (ssize_t)sizeof(o))
        _exit(2);
    _exit(0); /* a program that hangs on the device must not keep the process */
}

static void run_row(const trick *t, outcome *o)
{
    int ends[2], status;
    size_t got = 0;
    pid_t pid;

    memset(o, 0, sizeof(*o));
    fflush(stdout);
    if (pipe(ends) || (pid = fork()) < 0) {
        o->status = NOT_OK;
        snprintf(o->why, sizeof(o->why), "no process");
        return;
    }
    if (pid == 0) {
        close(ends[0]);
        alarm(ROW_SECONDS);
        child(t, ends[1]);
    }
    close(ends[1]);
    for (ssize_t n; got < sizeof(*o) && (n = read(ends[0], (char *)o + got, sizeof(*o) - got)) > 0;)
        got += (size_t)n;
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (got < sizeof(*o)) {
        memset(o, 0, sizeof(*o));
        o->status = NOT_OK;
        snprintf(o->why, sizeof(o->why), "its process ended with status 0x%x", (unsigned)status);
    }
}

static void print_lines(const char *text)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        printf("#   %.*s\n", (int)strcspn(text, "\n"), text);
}

static bool wanted(int row, int argc, char **argv)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            continue;
        any = true;
        if (atoi(argv[i]) == row)
            return true;
    }
    return !any;
}

int main(int argc, char **argv)
{
    static outcome o;
    bool markdown = false;
    size_t number = 0, failed = 0, skipped = 0, count = 0;

    for (int i = 1; i < argc; i++) {
        markdown |= strcmp(argv[i], "--markdown") == 0;
        where = strcmp(argv[i], "--worker") == 0 ? STITCH_VERIFY_WORKER
                : strcmp(argv[i], "--here") == 0 ? STITCH_VERIFY_HERE
                                                 : where;
    }
    for (size_t i = 0; i < trick_count; i++)
        count += wanted(tricks[i].row, argc, argv);
    if (markdown)
        printf("| row | trick | caught by | honest twin |\n| --- | --- | --- | --- |\n");
    else
        printf("1..%zu\n", count);
    for (size_t i = 0; i < trick_count; i++) {
        const trick *t = &tricks[i];
        if (!wanted(t->row, argc, argv))
            continue;
        run_row(t, &o);
        failed += o.status == NOT_OK;
        skipped += o.status == SKIPPED;
        if (markdown)
            printf("| %d | %s | %s%s | %s |\n", t->row, t->name,
                   o.status == OK        ? ""
                   : o.status == SKIPPED ? "not run: "
                                         : "**NOT CAUGHT** ",
                   o.status == OK ? o.caught : o.why, *o.twin ? o.twin : "-");
        else
            printf("%sok %zu - row %d: %s; caught by %s; twin %s%s%s\n", o.status == NOT_OK ? "not " : "", ++number,
                   t->row, t->name, *o.caught ? o.caught : "-", *o.twin ? o.twin : "-",
                   o.status == SKIPPED ? " # SKIP " : "", o.status == SKIPPED ? o.why : "");
        if (o.status == NOT_OK && !markdown) {
            printf("# %s\n", o.why);
            print_lines(o.report);
        }
        fflush(stdout);
    }
    for (size_t i = 0; markdown && i < impossible_count; i++)
        if (wanted(impossibles[i].row, argc, argv))
            printf("| %d | %s | cannot be written as a program: %s | - |\n", impossibles[i].row, impossibles[i].trick,
                   impossibles[i].why);
    if (markdown)
        printf("\n%zu programs on %s: %zu caught, %zu not run, %zu failed.\n", count, *o.device ? o.device : "?",
               count - failed - skipped, skipped, failed);
    return failed != 0;
}
