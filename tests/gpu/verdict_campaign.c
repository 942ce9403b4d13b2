/* SPDX-License-Identifier: MIT
 *
 * Not a test of the suite: verifies right and slightly wrong programs many times, each time with a fresh secret seed,
 * and counts false verdicts; on a real GPU it also measures what a worker costs a verification, and the speed-up of
 * programs against themselves. Prints a Markdown section; the exit code is 0 if no figure is missed, 77 if there is
 * nothing to run on, 75 if time was up before all was done, with no false verdict.
 *
 * usage: verdict_campaign [COUNT [REPEATS [JOBS [SECONDS]]]]
 *        verdict_campaign --environment       what it runs on, as a table
 *
 * Default: 200 of each program, 20 of each measurement (0: none), by one job. Jobs are processes that share the
 * verdicts; measurements are made by one alone. SECONDS (0: no end) ends the verdicts earlier, with what was verified
 * by then. STITCH_TEST_DEVICE names the device.
 */
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verify_tasks.h"

#define MOST_COST 1.5  /* median time of a verification in a worker, as a multiple of one here */
#define PAIRS     5    /* of workers that measure a program against itself */
#define MOST_BIAS 0.02 /* of the speed-up of a program against itself */

enum { MAX_REPEATS = 1000, MAX_FALSE_SHOWN = 20, MAX_JOBS = 64, TIME_WAS_UP = 75, NOTHING_TO_RUN = 77 };

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* To nearest even bfloat16, without any half arithmetic that the precision policy would refuse. */
#define ROUNDED                                                                                                        \
    "__device__ float rounded(float v)\n{\n    unsigned u = __float_as_uint(v);\n"                                     \
    "    return __uint_as_float((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u);\n}\n"

/* Element `i` of every 100,000 is off by three tolerances of `t`. */
#define NUDGE(t, y, i) "if ((" i ") % 100000 == 77) " y " += 3 * (" t "f + " t "f * fabsf(" y "));"

#define ROWS_PLAN                                                                                                      \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[32],\"args\":[\"x\",\"y\",{\"i32\":\"C\"}]}" \
    "]}"
#define NORM(real, root, put)                                                                                          \
    ROUNDED "__device__ " real " all(" real                                                                            \
            " v) { for (int s = 16; s; s /= 2) v += __shfl_xor_sync(~0u, v, s); return v; }\n"                         \
            "__global__ void k(const float *x, " real " *y, int c)\n{\n    size_t row = (size_t)blockIdx.x * c;\n    " \
            "x += row;\n    y += row;\n    " real                                                                      \
            " s = 0, q = 0;\n    for (int i = threadIdx.x; i < c; i += 32) s += x[i];\n    " real                      \
            " m = all(s) / c;\n    for (int i = threadIdx.x; i < c; i += 32) q += (x[i] - m) * (x[i] - m);\n    " real \
            " r = " root ";\n    for (int i = threadIdx.x; i < c; i += 32) {\n        " put "\n    }\n}\n"
#define ROOT      "rsqrtf(all(q) / c + 1e-5f)"
#define NORM_BASE NORM("float", "1 / sqrtf(all(q) / c + 1e-5f)", "y[i] = (x[i] - m) * r;")

#define PRODUCT_PLAN                                                                                                   \
    "{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[\"N\"],\"args\":[\"x\",\"w\",\"y\",{"        \
    "\"i32\":\"N\"},{\"i32\":\"K\"}]}]}"
/* `parts` sums of every so manieth term each. */
#define PRODUCT(real, parts, end, term, put)                                                                           \
    ROUNDED "__global__ void k(const float *x, const float *w, " real " *y, int n, int k)\n{\n"                        \
            "    int m = blockIdx.x, c = threadIdx.x;\n    " real " s[" parts "] = {0};\n    for (int i = 0; i < " end \
            "; i++) {\n        " real " u = x[m * k + i], v = w[i * n + c];\n        s[i % " parts "] += " term        \
            ";\n    }\n    for (int i = 1; i < " parts "; i++) s[0] += s[i];\n    y[m * n + c] = s[0];\n    " put      \
            "\n}\n"

typedef struct subject {
    const char *name, *head, *plan, *oracle, *baseline, *right;
    struct {
        const char *what, *source;
    } wrong[3];
} subject;

#define RIGHT_VECTOR  VECTOR_KERNEL("float", "y[i] = fmaf(a[i], x[i], b[i]);")
#define RIGHT_NORM    NORM("float", ROOT, "y[i] = (x[i] - m) * r;")
#define RIGHT_PRODUCT PRODUCT("float", "4", "k", "u * v", "")

static const subject subjects[] = {
    {"vector",
     "\"name\":\"vector\",\"dims\":{\"N\":1048579},\"reduced_dims\":{\"N\":4099},"
     "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
     "\"weights\":[{\"name\":\"a\",\"dtype\":\"f32\",\"shape\":[\"N\"]},"
     "{\"name\":\"b\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
     "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
     "\"tolerance\":{\"atol\":1e-5,\"rtol\":1e-5},\"precision\":\"f32\",\"flops\":\"2*N\"",
     VECTOR_PLAN,
     VECTOR_KERNEL("double", "y[i] = (double)a[i] * x[i] + b[i];"),
     VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"),
     RIGHT_VECTOR,
     {{"one element in 100,000 off by 3 tolerances",
       VECTOR_KERNEL("float", "y[i] = fmaf(a[i], x[i], b[i]); " NUDGE("1e-5", "y[i]", "i"))},
      {"result rounded to bfloat16", ROUNDED VECTOR_KERNEL("float", "y[i] = rounded(fmaf(a[i], x[i], b[i]));")}}},
    {"layer norm",
     "\"name\":\"norm\",\"dims\":{\"M\":1024,\"C\":768},\"reduced_dims\":{\"M\":6,\"C\":96},"
     "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"M\",\"C\"]}],"
     "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"M\",\"C\"]}],"
     "\"tolerance\":{\"atol\":3e-4,\"rtol\":3e-4},\"precision\":\"f32\"",
     ROWS_PLAN,
     NORM("double", "1 / sqrt(all(q) / c + 1e-5)", "y[i] = (x[i] - m) * r;"),
     NORM_BASE,
     RIGHT_NORM,
     {{"one element in 100,000 off by 3 tolerances",
       NORM("float", ROOT, "y[i] = (x[i] - m) * r; " NUDGE("3e-4", "y[i]", "row + i"))},
      {"result rounded to bfloat16", NORM("float", ROOT, "y[i] = rounded((x[i] - m) * r);")}}},
    {"matrix product",
     "\"name\":\"product\",\"dims\":{\"M\":256,\"N\":256,\"K\":1024},\"reduced_dims\":{\"M\":8,\"N\":32,\"K\":64},"
     "\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[\"M\",\"K\"]}],"
     "\"weights\":[{\"name\":\"w\",\"dtype\":\"f32\",\"shape\":[\"K\",\"N\"],\"dist\":{\"normal\":[0,0.05]}}],"
     "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"M\",\"N\"]}],"
     "\"tolerance\":{\"atol\":1e-4,\"rtol\":1e-4},\"precision\":\"f32\",\"flops\":\"2*M*N*K\"",
     PRODUCT_PLAN,
     PRODUCT("double", "1", "k", "u * v", ""),
     PRODUCT("float", "1", "k", "u * v", ""),
     RIGHT_PRODUCT,
     {{"one of K terms left out", PRODUCT("float", "4", "k - 1", "u * v", "")},
      {"factors rounded to bfloat16", PRODUCT("float", "4", "k", "rounded(u) * rounded(v)", "")},
      {"one element in 100,000 off by 3 tolerances",
       PRODUCT("float", "4", "k", "u * v", NUDGE("1e-4", "y[m * n + c]", "m * n + c"))}}},
};

static const char *const places[] = {"in this process", "in a worker"};

static stitch_program *parsed(const char *source, const char *plan)
{
    stitch_program *p = NULL;
    CHECK_OK(stitch_program_parse(ctx, source, plan, NULL, &p, &err));
    return p;
}

static stitch_verify_options options_of(bool worker, int iterations)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT; /* seed 0: a fresh one from the system */
    o.where = worker ? STITCH_VERIFY_WORKER : STITCH_VERIFY_HERE;
    o.last_stage = device.simulated ? STITCH_STAGE_EXPLOIT : STITCH_STAGE_TIME;
    o.profile = STITCH_PROFILE_NEVER;
    o.simulate = STITCH_SIMULATE_NEVER; /* it refuses the wrong programs before the device has had them */
    o.iterations = iterations;
    return o;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Nearest rank; sorts. */
static double quantile(double *values, int count, double q)
{
    int rank = (int)ceil(q * count);
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return count ? values[rank > 1 ? rank - 1 : 0] : 0;
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

enum { SUBJECTS = STITCH__COUNT(subjects), RIGHT = 3 };

/* What a job found out; goes through a pipe as it is. */
typedef struct verdicts {
    struct {
        int tried, bad; /* verifications, and false verdicts */
    } of[SUBJECTS][4];  /* wrong programs, and RIGHT */
    double ms[2][2];    /* of wrong and right ones, here and in a worker */
    int timed[2][2];
    double excess_us; /* that a right one's runs took more at least, by the host's clock, than by events */
    char text[MAX_FALSE_SHOWN][400]; /* of false verdicts */
    int shown;
    char device[200];
    bool simulated, ran;
} verdicts;

static verdicts found;
static double end_ms; /* when to stop; 0: when all is done */

static double now_ms(void)
{
    return (double)stitch__now_ns() / 1e6;
}

static void note_clock(const stitch_report *r)
{
    double us = json_number_value(report_at(r, "time.clock_excess_us"));
    found.excess_us = us > found.excess_us ? us : found.excess_us;
}

/* One verification: is its verdict the right one, at the stage that decides about results? */
static bool judge(const subject *s, stitch_task *t, stitch_program *p, const char *wrong, bool worker)
{
    stitch_verify_options o = options_of(worker, 20);
    stitch_report_summary sum = STITCH_REPORT_SUMMARY_INIT;
    stitch_report *r = NULL;
    const char *message = "";
    double start = now_ms();
    bool good;
    int rc = stitch_verify_program(ctx, t, p, &o, &r, &err);

    found.ms[!wrong][worker] += now_ms() - start;
    found.timed[!wrong][worker]++;
    if (!rc)
        CHECK_INT(stitch_report_summary_get(r, &sum), 0);
    if (!rc && sum.failed_stage)
        CHECK_INT(stitch_report_stage(r, sum.failed_stage, NULL, NULL, &message), 0);
    good = !rc && (bool)sum.isolated == worker && !sum.degenerate &&
           (wrong ? sum.failed_stage == STITCH_STAGE_CORRECT && sum.status == STITCH_E_VALIDATE && !sum.correct
                  : !sum.failed_stage && sum.correct && (device.simulated || sum.timed));
    if (!rc && !wrong && sum.timed)
        note_clock(r);
    if (!good && found.shown < MAX_FALSE_SHOWN)
        snprintf(found.text[found.shown++], sizeof(found.text[0]), "%s, %s, %s, seed 0x%016" PRIx64 ": %s%s%.200s",
                 s->name, wrong ? wrong : "right", places[worker], sum.seed,
                 rc                 ? "no report: "
                 : sum.failed_stage ? stitch_stage_name(sum.failed_stage)
                 : sum.degenerate   ? "degenerate"
                                    : "accepted",
                 *message ? ": " : "", rc ? stitch_error_message(err) : message);
    stitch_error_free(err);
    err = NULL;
    stitch_report_free(r);
    return good;
}

static int kinds_of(const subject *s)
{
    int kinds = 0;
    while (kinds < RIGHT && s->wrong[kinds].source)
        kinds++;
    return kinds;
}

/* Right, wrong, right, wrong ... of all tasks in turn; two verifications here, two in a worker; the kinds of error in
 * turn. */
static void count_verdicts(int from, int to)
{
    stitch_task *tasks[SUBJECTS];
    stitch_program *programs[SUBJECTS][RIGHT + 1] = {{NULL}};

    for (size_t n = 0; n < SUBJECTS; n++) {
        const subject *s = &subjects[n];
        tasks[n] = make_task(s->head, s->oracle, s->plan, s->baseline); /* admitted once */
        programs[n][RIGHT] = parsed(s->right, s->plan);
        for (int k = 0; k < kinds_of(s); k++)
            programs[n][k] = parsed(s->wrong[k].source, s->plan);
    }
    for (int i = from; i < to; i++)
        for (size_t n = 0; n < SUBJECTS; n++) {
            int k = i / 2 % kinds_of(&subjects[n]); /* each kind at both places */
            if (end_ms > 0 && now_ms() >= end_ms)
                continue;
            found.of[n][RIGHT].tried++;
            found.of[n][RIGHT].bad += !judge(&subjects[n], tasks[n], programs[n][RIGHT], NULL, i % 2);
            found.of[n][k].tried++;
            found.of[n][k].bad += !judge(&subjects[n], tasks[n], programs[n][k], subjects[n].wrong[k].what, i % 2);
        }
    for (size_t n = 0; n < SUBJECTS; n++) {
        for (int k = 0; k <= RIGHT; k++)
            stitch_program_free(programs[n][k]);
        stitch_task_free(tasks[n]);
    }
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static void merge(verdicts *all, const verdicts *one)
{
    for (size_t n = 0; n < SUBJECTS; n++)
        for (int k = 0; k <= RIGHT; k++) {
            all->of[n][k].tried += one->of[n][k].tried;
            all->of[n][k].bad += one->of[n][k].bad;
        }
    for (int i = 0; i < 4; i++) {
        all->ms[i / 2][i % 2] += one->ms[i / 2][i % 2];
        all->timed[i / 2][i % 2] += one->timed[i / 2][i % 2];
    }
    all->excess_us = one->excess_us > all->excess_us ? one->excess_us : all->excess_us;
    for (int i = 0; i < one->shown && all->shown < MAX_FALSE_SHOWN; i++)
        memcpy(all->text[all->shown++], one->text[i], sizeof(one->text[i]));
    memcpy(all->device, one->device, sizeof(all->device));
    all->simulated = one->simulated;
    all->ran = true;
}

static int job(int from, int to)
{
    volatile int rc = 1;
    int how = setjmp(check__out);

    if (how == 0) {
        need_device();
        snprintf(found.device, sizeof(found.device), "%s", device.name);
        found.simulated = device.simulated;
        count_verdicts(from, to);
        found.ran = true;
        rc = 0;
    } else if (how == 2) {
        printf("skipped: %s\n", check__skip);
        rc = NOTHING_TO_RUN;
    }
    stitch_context_free(ctx);
    return rc;
}

static bool read_all(int fd, void *data, size_t size)
{
    size_t got = 0;
    while (got < size) {
        ssize_t n = read(fd, (char *)data + got, size - got);
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

/* In processes that have not touched the driver yet. Returns the worst exit code. */
static int run_jobs(int count, int jobs, verdicts *all)
{
    int fds[MAX_JOBS], worst = 0, begun = 0;
    pid_t pids[MAX_JOBS], parent = getpid();

    fflush(stdout);
    for (; begun < jobs && begun < MAX_JOBS; begun++) {
        int ends[2];
        if (pipe(ends) != 0)
            break;
        pids[begun] = fork();
        if (pids[begun] == 0) {
            if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
                _exit(2);
            for (int i = 0; i < begun; i++)
                close(fds[i]);
            close(ends[0]);
            int rc = job((int)((long)count * begun / jobs), (int)((long)count * (begun + 1) / jobs));
            fflush(stdout);
            _exit(write(ends[1], &found, sizeof(found)) == (ssize_t)sizeof(found) ? rc : 1);
        }
        close(ends[1]);
        fds[begun] = ends[0];
        if (pids[begun] < 0) {
            close(ends[0]);
            break;
        }
    }
    for (int i = 0; i < begun; i++) {
        verdicts one;
        int status = 0;
        bool whole = read_all(fds[i], &one, sizeof(one)) && one.ran;
        if (whole)
            merge(all, &one);
        close(fds[i]);
        waitpid(pids[i], &status, 0);
        int rc = !WIFEXITED(status) || (!whole && !WEXITSTATUS(status)) ? 1 : WEXITSTATUS(status);
        worst = rc > worst ? rc : worst;
    }
    return begun == jobs ? worst : 1;
}

static void put_excess(const verdicts *v)
{
    printf(
        "By the host's clock a run took at most %.1f us more than by events, as far as the host can tell (medians of "
        "verifications; more than 2 us are refused).\n\n",
        v->excess_us);
}

/* false: a false verdict. *missing: verifications that were not reached. */
static bool report_verdicts(const verdicts *v, int count, int *missing)
{
    int tried[2] = {0}, bad[2] = {0};

    printf(
        "### False verdicts\n\nEvery verification has a fresh secret seed; one half runs in this process, the other in "
        "a worker. A wrong program must be\nrefused by its results (stage `correct`), a right one must pass all "
        "stages%s.\n\n",
        v->simulated ? " through `exploit` (the simulator reports no times)" : " through `time`");
    printf("| task | program | verifications | false verdicts |\n| --- | --- | --- | --- |\n");
    for (size_t n = 0; n < SUBJECTS; n++)
        for (int i = 0; i <= kinds_of(&subjects[n]); i++) {
            int k = i ? i - 1 : RIGHT;
            printf("| %s | %s | %d | %d |\n", subjects[n].name, i ? subjects[n].wrong[k].what : "right",
                   v->of[n][k].tried, v->of[n][k].bad);
            tried[!i] += v->of[n][k].tried;
            bad[!i] += v->of[n][k].bad;
        }
    printf("\n%d right programs, %d of them rejected; %d wrong ones, %d of them accepted or refused for another "
           "reason.\n\n",
           tried[1], bad[1], tried[0], bad[0]);
    for (int i = 0; i < 4; i++)
        if (v->timed[i / 2][i % 2])
            printf("%s%s, %s: %.0f ms", i ? "; " : "Mean time of a verification: ", i / 2 ? "right" : "wrong",
                   places[i % 2], v->ms[i / 2][i % 2] / v->timed[i / 2][i % 2]);
    printf(".\n\n");
    if (!v->simulated)
        put_excess(v);
    for (int i = 0; i < v->shown; i++)
        printf("- %s\n", v->text[i]);
    if (v->shown)
        printf("\n");
    *missing = 2 * count * (int)SUBJECTS - tried[0] - tried[1];
    if (*missing)
        printf("**Time was up**: %d verifications were not reached.\n\n", *missing);
    return bad[0] + bad[1] == 0;
}

/* ---- what a worker costs ----------------------------------------------------------------------------------------- */

/* Milliseconds of the whole call for a correct small candidate, parsing included. `number`: of a candidate that nobody
 * has seen before, down to its PTX (by which NVRTC keeps code on disk, where it may); 0: one that is compiled already.
 */
static double cost_of(stitch_task *t, int number, bool worker, int iterations)
{
    stitch_verify_options o = options_of(worker, iterations);
    stitch_report_summary sum = STITCH_REPORT_SUMMARY_INIT;
    stitch_report *r = NULL;
    char source[1000];
    double ms;

    snprintf(source, sizeof(source), VECTOR_KERNEL("float", "y[i] = fmaf(a[i], x[i], b[i]); if (n == -%d) y[i] = 0;"),
             number ? (int)getpid() % 1000000 * 1000 + number : 1);
    int64_t start = stitch__now_ns();
    stitch_program *p = parsed(source, VECTOR_PLAN);
    CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err));
    ms = (double)(stitch__now_ns() - start) / 1e6;
    CHECK_INT(stitch_report_summary_get(r, &sum), 0);
    if (!sum.timed || (bool)sum.isolated != worker)
        FAIL("a correct candidate: %s", stitch_report_text(r));
    stitch_report_free(r);
    stitch_program_free(p);
    return ms;
}

/* A row: each in turn here and in a worker. Returns the ratio of the medians. */
static double cost_row(stitch_task *t, const char *what, bool fresh, int iterations, int repeats)
{
    static double ms[2][MAX_REPEATS];
    static int number;
    double median[2], high[2], ratio;

    for (int i = -1; i < repeats; i++) /* the first of each compiles, or starts a worker */
        for (int worker = 0; worker < 2; worker++) {
            double took = cost_of(t, fresh ? ++number : 0, worker, iterations);
            if (i >= 0)
                ms[worker][i] = took;
        }
    for (int w = 0; w < 2; w++) {
        median[w] = quantile(ms[w], repeats, 0.5);
        high[w] = quantile(ms[w], repeats, 0.95);
    }
    ratio = median[0] > 0 ? median[1] / median[0] : INFINITY;
    printf("| %s | %.1f ms (%.1f) | %.1f ms (%.1f) | %.2f | ", what, median[0], high[0], median[1], high[1], ratio);
    return ratio;
}

/* The loop has a new candidate each time; one that is compiled already, timed a few times, is the least favourable. */
static bool report_cost(int repeats)
{
    stitch_task *t = vector_task();
    double ratio;

    printf("### What a worker costs\n\nVerification of a correct small candidate (vector, N = 4099) from its source to "
           "its verdict, without a profile, %d times each in turn\nafter one that is not counted: median (95 %%).\n\n",
           repeats);
    printf("| | in this process | in a worker | ratio of medians | required |\n| --- | --- | --- | --- | --- |\n");
    ratio = cost_row(t, "a new candidate, 100 timed runs", true, 100, repeats);
    printf("at most %.1f |\n", MOST_COST);
    (void)cost_row(t, "one that is compiled already, 20 timed runs", false, 20, repeats);
    printf("|\n\n");
    stitch_task_free(t);
    return ratio <= MOST_COST;
}

/* ---- against itself ---------------------------------------------------------------------------------------------- */

/* What the verifications of a subject against itself gave. */
typedef struct itself {
    double ratios[MAX_REPEATS], us;
    int count, covered;
} itself;

static void verify_itself(const subject *s, bool worker, int repeats, itself *sum)
{
    stitch_task *t = make_task(s->head, s->oracle, s->plan, s->right);
    stitch_program *p = parsed(s->right, s->plan);

    for (int i = 0; i < repeats && sum->count < MAX_REPEATS; i++) {
        stitch_verify_options o = options_of(worker, 0);
        stitch_report_summary one = STITCH_REPORT_SUMMARY_INIT;
        stitch_report *r = NULL;
        CHECK_OK(stitch_verify_program(ctx, t, p, &o, &r, &err));
        CHECK_INT(stitch_report_summary_get(r, &one), 0);
        if (!one.timed || (bool)one.isolated != worker || one.speedup <= 0)
            FAIL("a correct candidate: %s", stitch_report_text(r));
        sum->ratios[sum->count++] = one.speedup;
        sum->us += one.median_us;
        note_clock(r);
        sum->covered += one.speedup_low <= 1 && one.speedup_high >= 1;
        stitch_report_free(r);
    }
    stitch_program_free(p);
    stitch_task_free(t);
}

/* Workers keep what sets them apart for as long as they live: several pairs, each of a context of its own. */
static bool against_itself(const subject *s, bool worker, int repeats)
{
    static itself sum;
    stitch_context *before = ctx;
    double middle, low, high;

    memset(&sum, 0, sizeof(sum));
    for (int pair = 0; pair < PAIRS; pair++) {
        int share = repeats * (pair + 1) / PAIRS - repeats * pair / PAIRS;
        if (worker) {
            ctx = NULL;
            need_device();
        }
        verify_itself(s, worker, share, &sum);
        if (worker)
            stitch_context_free(ctx);
        ctx = before;
    }
    middle = quantile(sum.ratios, sum.count, 0.5);
    low = quantile(sum.ratios, sum.count, 0.05);
    high = quantile(sum.ratios, sum.count, 0.95);
    printf("| %s | %s | %.1f us | %.4f | %.4f | %.4f | %d of %d |\n", s->name, places[worker], sum.us / sum.count,
           middle, low, high, sum.covered, sum.count);
    fflush(stdout);
    return !worker || fabs(middle - 1) <= MOST_BIAS; /* in this process outputs lie apart, for as long as it lives */
}

static bool report_itself(int repeats)
{
    bool good = true;
    printf("### A program against itself\n\nBaseline and candidate are the same program: in workers the median "
           "speed-up of "
           "%d verifications must be 1.00 ± %.2f. 100 timed\nruns each; those in workers by %d pairs of them. In this "
           "process both sides share inputs, but not the places of their outputs.\n\n",
           repeats, MOST_BIAS, PAIRS);
    printf("| task | candidate runs | median time | median speed-up | 5 %% | 95 %% | its 95 %% interval holds 1 |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < STITCH__COUNT(subjects); i++)
        for (int worker = 0; worker < 2; worker++)
            good &= against_itself(&subjects[i], worker, repeats);
    printf("\n");
    put_excess(&found);
    return good;
}

/* ---- what it runs on --------------------------------------------------------------------------------------------- */

static void environment(void)
{
    stitch_task *t = vector_task();
    stitch_verify_options o = options_of(true, 0);
    stitch_report *r;

    o.last_stage = STITCH_STAGE_CORRECT;
    r = verify(t, VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];"), VECTOR_PLAN, &o);
    json_t *env = json_deep_copy(report_at(r, "environment"));
    const char *driver = json_string_value(json_object_get(env, "driver"));
    printf("| | |\n| --- | --- |\n| device | %s%s, %s |\n", device.simulated ? "simulated: " : "", device.name,
           device.arch);
    if (!device.simulated)
        printf("| CUDA version of the driver | %s |\n", driver);
    printf("| NVRTC | %s |\n", json_string_value(json_object_get(env, "nvrtc")));
    printf("| libstitch | %s |\n", json_string_value(json_object_get(env, "library")));
    printf("| programs in a worker run | %s |\n", json_string_value(json_object_get(env, "program_ran")));
    json_decref(env);
    stitch_report_free(r);
    stitch_task_free(t);
}

/* Verdicts first, by processes of their own; then, in this one, what must be measured alone. */
static int campaign(int count, int repeats, int jobs)
{
    static verdicts all;
    const char *missed[3];
    double start = now_ms();
    int n = 0, missing = 0, rc = run_jobs(count, jobs, &all);

    if (rc == NOTHING_TO_RUN)
        return rc;
    printf("%d of each program, on %s%s, by %d at once, in %.0f s.\n\n", count, all.simulated ? "simulated " : "",
           all.device, jobs, (now_ms() - start) / 1000);
    if (!report_verdicts(&all, count, &missing))
        missed[n++] = "false verdicts";
    fflush(stdout);
    if (all.simulated) {
        printf("Times are not measured on a simulated device.\n\n");
    } else if (repeats && all.ran) {
        need_device();
        if (!report_cost(repeats))
            missed[n++] = "the cost of a worker";
        if (!report_itself(repeats))
            missed[n++] = "a program against itself";
    }
    printf("%s", n ? "**MISSED**: " : rc ? "A job ended badly." : missing ? "" : "Every figure is met.");
    for (int i = 0; i < n; i++)
        printf("%s%s", i ? ", " : "", missed[i]);
    printf("\n");
    return rc ? rc : n ? 1 : missing ? TIME_WAS_UP : 0;
}

int main(int argc, char **argv)
{
    const volatile bool ask = argc > 1 && strcmp(argv[1], "--environment") == 0;
    int count = argc > 1 && !ask ? atoi(argv[1]) : 200, repeats = argc > 2 ? atoi(argv[2]) : 20;
    int jobs = argc > 3 ? atoi(argv[3]) : 1;
    double seconds = argc > 4 ? atof(argv[4]) : 0;
    volatile int rc = 1;
    int how = setjmp(check__out);

    if (count < 1 || repeats < 0 || repeats > MAX_REPEATS || jobs < 1 || jobs > MAX_JOBS) {
        fprintf(stderr,
                "usage: verdict_campaign [COUNT [REPEATS [JOBS [SECONDS]]]] | --environment   (REPEATS: at most %d, "
                "JOBS: at most %d)\n",
                MAX_REPEATS, MAX_JOBS);
        return 2;
    }
    end_ms = seconds > 0 ? now_ms() + seconds * 1000 : 0;
    if (how == 0 && ask) {
        need_device();
        environment();
        rc = 0;
    } else if (how == 0) {
        rc = campaign(count, repeats, jobs);
    } else if (how == 2) {
        printf("skipped: %s\n", check__skip);
        rc = NOTHING_TO_RUN;
    }
    stitch_context_free(ctx);
    return rc;
}
