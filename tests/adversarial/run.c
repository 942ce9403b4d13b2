/* SPDX-License-Identifier: MIT
 *
 * Plays every trick of the table (tricks.c) and its honest twin on the verifier: the trick must be caught at the stage
 * and for the reason that the table names, the twin must pass. Each row has a process of its own, for some cost theirs.
 *
 * usage: adversarial [--markdown] [--worker | --here] [--jobs N] [ROW...]
 *
 * Prints TAP, or a table. The device is STITCH_TEST_DEVICE, else "auto"; programs run where the library's default is,
 * in a worker, or in this process. With --jobs N rows run at once: first those whose effect is one of time, each alone,
 * then up to N of the others; what is printed is in the order of the table all the same.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tricks.h"
#include "verify_tasks.h"

enum { ROW_SECONDS = 240, MAX_JOBS = 64, WORTH_SAYING_MS = 100 };

typedef struct outcome {
    enum { OK, NOT_OK, SKIPPED } status;
    char caught[300], twin[100], why[300], device[100];
    char report[6000]; /* of what went otherwise */
    char times[500];   /* of its verifications, by stage */
} outcome;

typedef struct verdict {
    stitch_report_summary s;
    char stage[20], message[2000], text[6000], *json, *feedback;
    int64_t runs, warmup, checked; /* timed runs, warm-up runs, runs of stage correct */
    size_t majors;
    char findings[300]; /* their ids */
    char times[200];
} verdict;

static int where = STITCH_VERIFY_AUTO;

/* ---- one verification -------------------------------------------------------------------------------------------- */

static stitch_verify_options options_of(const trick *t, bool twin)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.profile = STITCH_PROFILE_NEVER;
    o.trials = 2;
    o.iterations = t->limit == LIMIT_TIME || t->limit == LIMIT_AFTER || t->outcome == NOT_FASTER ? 60 : 12;
    o.warmup = 2;
    o.time_budget_ms = t->time_budget_ms;
    o.timeout_ms = twin ? 0 : t->timeout_ms;
    o.where = where;
    return o;
}

static json_t *member(const json_t *v, const char *a, const char *b)
{
    v = json_object_get(v, a);
    return json_object_get(v, b);
}

/* What took long. */
static void take_times(verdict *v, const json_t *root)
{
    const json_t *stage;
    size_t i, at = 0;
    json_array_foreach(json_object_get(root, "stages"), i, stage)
    {
        double ms = json_number_value(json_object_get(stage, "milliseconds"));
        if (ms >= WORTH_SAYING_MS && at < sizeof(v->times))
            at += (size_t)snprintf(v->times + at, sizeof(v->times) - at, "%s%s %.1f", at ? ", " : "",
                                   json_string_value(json_object_get(stage, "stage")), ms / 1000);
    }
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
        size_t at = strlen(v->findings);
        snprintf(v->findings + at, sizeof(v->findings) - at, "%s ", json_string_value(json_object_get(f, "id")));
        v->majors += strcmp(json_string_value(json_object_get(f, "severity")), "major") == 0;
        CHECK(*json_string_value(json_object_get(f, "evidence")));
        CHECK(*json_string_value(json_object_get(f, "advice")));
    }
    take_times(v, root);
    json_decref(root);
}

/* Some take Unicode's separators of lines and paragraphs for line ends. */
static const char *next_line(const char *line)
{
    for (; *line; line++) {
        if (*line == '\n')
            return line + 1;
        if (strncmp(line, "\u2028", 3) == 0 || strncmp(line, "\u2029", 3) == 0)
            return line + 3;
    }
    return line;
}

/* No line that the candidate's text could have made says that it passed. */
static void check_lines(const verdict *v)
{
    const char *texts[] = {v->text, v->feedback};
    for (size_t k = 0; k < 2 && v->s.failed_stage; k++)
        for (const char *line = texts[k]; *line; line = next_line(line))
            if (strncmp(line, "PASSED", 6) == 0 || strncmp(line, "SYSTEM", 6) == 0)
                FAIL("a line of the report is the candidate's: %.*s", (int)strcspn(line, "\n"), line);
    if (v->s.failed_stage) {
        CHECK(strncmp(v->text, "FAILED at", 9) == 0);
        CHECK(strncmp(v->feedback, "Verification failed in stage", 28) == 0);
        CHECK_INT(v->s.timed, 0);
        CHECK(v->s.speedup == 0);
    }
}

static void add_times(outcome *o, const char *what, const verdict *v, int64_t start)
{
    size_t at = strlen(o->times);
    snprintf(o->times + at, sizeof(o->times) - at, "%s%s %.1f s (%s)", at ? ", " : "", what,
             (double)(stitch__now_ns() - start) / 1e9, v->times);
}

/* Values of the host's. */
static void set_data(stitch_task *made, const char *name)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    size_t index;

    CHECK_OK(stitch_interface_find(made->iface, name, &index));
    CHECK_OK(stitch_interface_tensor(made->iface, index, &info));
    float *data = malloc(info.bytes);
    for (uint64_t i = 0; i < info.elements; i++)
        data[i] = (float)(i * 7919 % 1009) / 500 - 1;
    CHECK_OK(stitch_task_set_data(made, name, data, info.bytes, &err));
    free(data);
}

static verdict judge(const trick *t, bool twin, const trick_task *task, const char *source, const char *plan)
{
    verdict v = {.s = STITCH_REPORT_SUMMARY_INIT};
    stitch_verify_options o = options_of(t, twin);
    stitch_program *p = NULL;
    stitch_report *r = NULL;
    stitch_task *made = make_task(task->head, task->oracle, task->plan, NULL);
    const char *message = "";

    if (task->fixed)
        set_data(made, task->fixed);
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
    size_t len = 0, twin_len = 0;
    bool good = false;

    switch (t->outcome) {
    case REJECTED:
        at = found(v->message, words, &len);
        good = v->s.failed_stage == stage && at && v->majors <= 1 && (stage == STITCH_STAGE_EXPLOIT) <= v->majors;
        snprintf(o->caught, sizeof(o->caught), "%s: %.*s", v->stage, (int)(len ? len : strcspn(v->message, "\n") % 80),
                 len && at ? at : v->message);
        break;
    case REPORTED:
    case FLAGGED:
        at = found(t->outcome == REPORTED ? v->findings : v->json, words, &len);
        good = !v->s.failed_stage && at && !v->majors &&
               !found(t->outcome == REPORTED ? twin->findings : twin->json, words, &twin_len);
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
    }
    if (!good) {
        o->status = NOT_OK;
        snprintf(o->why, sizeof(o->why), "expected %s: %s", t->outcome ? "a report" : stitch_stage_name(stage),
                 words ? words : "");
        snprintf(o->report, sizeof(o->report), "%s", v->text);
    }
}

/* It shows only where programs are timed, and others on the device would show in that. */
static bool wants_to_be_alone(const trick *t)
{
    return t->where == REAL || t->where == REAL_GUARDS;
}

static void play(const trick *t, outcome *o)
{
    const trick_task *twin_task = t->twin_task ? t->twin_task : t->task;
    int64_t start = stitch__now_ns();
    verdict twin, v;
    char *source;

    need_device();
    snprintf(o->times, sizeof(o->times), "device %.1f s", (double)(stitch__now_ns() - start) / 1e9);
    start = stitch__now_ns();
    snprintf(o->device, sizeof(o->device), "%s", device.name);
    if (device.simulated && wants_to_be_alone(t))
        SKIP("its effect needs a real GPU");
    if (where == STITCH_VERIFY_HERE && t->where == WORKER && t->stage == STITCH_STAGE_COMPILE)
        SKIP("what is compiled in this process ends it");
    twin =
        judge(t, true, twin_task, t->twin_source ? t->twin_source : t->source, t->twin_plan ? t->twin_plan : t->plan);
    check_twin(t, &twin, o);
    add_times(o, "twin", &twin, start);
    if (!device.simulated && (t->where == GUARDS || t->where == REAL_GUARDS) && !twin.s.isolated)
        SKIP("needs the guard pages that a worker has");
    if (o->status == OK) {
        source = with_limit(t, &twin);
        start = stitch__now_ns();
        v = judge(t, false, t->task, source, t->plan);
        check_trick(t, &v, &twin, o);
        add_times(o, "trick", &v, start);
        free(source);
        drop(&v);
    }
    if (o->status == OK && t->where == WORKER && (device.simulated || twin.s.isolated)) {
        drop(&twin); /* this process and its context are as they were */
        twin = judge(t, true, twin_task, t->twin_source ? t->twin_source : t->source, t->plan);
        check_twin(t, &twin, o);
    }
    drop(&twin);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

typedef struct row {
    const trick *t;
    outcome o;
    enum { WAITING, RUNNING, DONE } state;
    pid_t pid;
    int fd;     /* where its outcome comes from */
    int output; /* what it prints, until its turn; -1: at once */
    size_t got; /* of the outcome */
} row;

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

static void start_row(row *r)
{
    int ends[2];
    pid_t parent = getpid();

    r->state = RUNNING;
    r->output = memfd_create("row", MFD_CLOEXEC);
    fflush(stdout);
    if (pipe(ends) || (r->pid = fork()) < 0) {
        r->state = DONE;
        r->o.status = NOT_OK;
        snprintf(r->o.why, sizeof(r->o.why), "no process");
        return;
    }
    if (r->pid == 0) {
        /* However this program ends, its rows end, too; their workers follow. */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            _exit(2);
        close(ends[0]);
        if (r->output >= 0)
            dup2(r->output, STDOUT_FILENO);
        alarm(ROW_SECONDS);
        child(r->t, ends[1]);
    }
    close(ends[1]);
    r->fd = ends[0];
}

/* Some of its outcome, or its end. */
static void hear_row(row *r)
{
    int status = 0;
    ssize_t n = read(r->fd, (char *)&r->o + r->got, sizeof(r->o) - r->got);

    if (n < 0 && errno == EINTR)
        return;
    r->got += n > 0 ? (size_t)n : 0;
    if (n > 0 && r->got < sizeof(r->o))
        return;
    close(r->fd);
    waitpid(r->pid, &status, 0);
    r->state = DONE;
    if (r->got < sizeof(r->o)) {
        memset(&r->o, 0, sizeof(r->o));
        r->o.status = NOT_OK;
        snprintf(r->o.why, sizeof(r->o.why), "its process ended with status 0x%x%s", (unsigned)status,
                 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
    }
}

static void hear_any(row *rows, size_t count)
{
    struct pollfd ready[MAX_JOBS];
    row *of[MAX_JOBS];
    nfds_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (rows[i].state == RUNNING) {
            ready[n] = (struct pollfd){rows[i].fd, POLLIN, 0};
            of[n++] = &rows[i];
        }
    if (!n || poll(ready, n, -1) < 0) /* none: no process could be started */
        return;
    for (nfds_t i = 0; i < n; i++)
        if (ready[i].revents)
            hear_row(of[i]);
}

static void print_lines(const char *text)
{
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        printf("#   %.*s\n", (int)strcspn(text, "\n"), text);
}

/* What its process printed. */
static void print_output(row *r)
{
    char text[4096];
    ssize_t n;

    for (off_t at = 0; r->output >= 0 && (n = pread(r->output, text, sizeof(text), at)) > 0; at += n)
        fwrite(text, 1, (size_t)n, stdout);
    if (r->output >= 0)
        close(r->output);
    r->output = -1;
}

static void print_row(row *r, size_t number, bool markdown)
{
    const outcome *o = &r->o;
    const trick *t = r->t;

    print_output(r);
    if (markdown)
        printf("| %d | %s | %s%s | %s |\n", t->row, t->name,
               o->status == OK        ? ""
               : o->status == SKIPPED ? "not run: "
                                      : "**NOT CAUGHT** ",
               o->status == OK ? o->caught : o->why, *o->twin ? o->twin : "-");
    else
        printf("%sok %zu - row %d: %s; caught by %s; twin %s%s%s\n", o->status == NOT_OK ? "not " : "", number, t->row,
               t->name, *o->caught ? o->caught : "-", *o->twin ? o->twin : "-", o->status == SKIPPED ? " # SKIP " : "",
               o->status == SKIPPED ? o->why : "");
    if (o->status == NOT_OK && !markdown) {
        printf("# %s\n", o->why);
        print_lines(o->report);
    }
    if (*o->times && o->status != SKIPPED)
        fprintf(markdown ? stderr : stdout, "# row %d: %s\n", t->row, o->times);
    fflush(stdout);
}

/* Prints rows in their order, as soon as they and those before them are done. */
static void print_done(row *rows, size_t count, size_t *printed, bool markdown)
{
    for (; *printed < count && rows[*printed].state == DONE; ++*printed)
        print_row(&rows[*printed], *printed + 1, markdown);
}

static void run_rows(row *rows, size_t count, size_t jobs, bool markdown)
{
    size_t printed = 0, running = 0;

    for (size_t i = 0; jobs > 1 && i < count; i++) {
        if (!wants_to_be_alone(rows[i].t))
            continue;
        start_row(&rows[i]);
        while (rows[i].state != DONE)
            hear_any(rows, count);
        print_done(rows, count, &printed, markdown);
    }
    for (size_t next = 0; printed < count;) {
        for (; next < count && running < jobs; next++)
            if (rows[next].state == WAITING) {
                start_row(&rows[next]);
                running++;
            }
        hear_any(rows, count);
        running = 0;
        for (size_t i = 0; i < count; i++)
            running += rows[i].state == RUNNING;
        print_done(rows, count, &printed, markdown);
    }
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

typedef struct arguments {
    bool markdown;
    size_t jobs;
    int rows[100];
    size_t row_count; /* 0: all */
} arguments;

static bool read_arguments(int argc, char **argv, arguments *a)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--markdown") == 0)
            a->markdown = true;
        else if (strcmp(argv[i], "--worker") == 0)
            where = STITCH_VERIFY_WORKER;
        else if (strcmp(argv[i], "--here") == 0)
            where = STITCH_VERIFY_HERE;
        else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
            a->jobs = (size_t)atoi(argv[++i]);
        else if (atoi(argv[i]) > 0 && a->row_count < STITCH__COUNT(a->rows))
            a->rows[a->row_count++] = atoi(argv[i]);
        else
            return false;
    }
    a->jobs = a->jobs > MAX_JOBS ? MAX_JOBS : a->jobs;
    return true;
}

static bool wanted(int number, const arguments *a)
{
    for (size_t i = 0; i < a->row_count; i++)
        if (a->rows[i] == number)
            return true;
    return a->row_count == 0;
}

int main(int argc, char **argv)
{
    arguments a = {.jobs = 1};
    size_t failed = 0, skipped = 0, count = 0;
    const char *name = "?";
    row *rows = calloc(trick_count + more_trick_count, sizeof(*rows));

    if (!rows || !read_arguments(argc, argv, &a)) {
        fprintf(stderr, "usage: %s [--markdown] [--worker | --here] [--jobs N] [ROW...]\n", argv[0]);
        free(rows);
        return 2;
    }
    for (size_t i = 0; i < trick_count + more_trick_count; i++) {
        const trick *t = i < trick_count ? &tricks[i] : &more_tricks[i - trick_count];
        if (wanted(t->row, &a))
            rows[count++] = (row){.t = t, .output = -1};
    }
    if (a.markdown)
        printf("| row | trick | caught by | honest twin |\n| --- | --- | --- | --- |\n");
    else
        printf("1..%zu\n", count);
    run_rows(rows, count, a.jobs, a.markdown);
    for (size_t i = 0; i < count; i++) {
        failed += rows[i].o.status == NOT_OK;
        skipped += rows[i].o.status == SKIPPED;
        name = *rows[i].o.device ? rows[i].o.device : name;
    }
    for (size_t i = 0; a.markdown && i < impossible_count; i++)
        if (wanted(impossibles[i].row, &a))
            printf("| %d | %s | cannot be written as a program: %s | - |\n", impossibles[i].row, impossibles[i].trick,
                   impossibles[i].why);
    if (a.markdown)
        printf("\n%zu programs on %s: %zu caught, %zu not run, %zu failed.\n", count, name, count - failed - skipped,
               skipped, failed);
    free(rows);
    return failed != 0;
}
