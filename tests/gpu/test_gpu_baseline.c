/* SPDX-License-Identifier: MIT
 *
 * Baselines in workers on a real GPU: one that is lost while it is timed is not the candidate's failure, nor this
 * process's.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include "verify_tasks.h"

/* The child that was started last; 0: there is none. */
static pid_t youngest_child(void)
{
    unsigned long long last = 0;
    pid_t found = 0;
    DIR *folder = opendir("/proc");

    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300], line[1000], *at;
        unsigned long long started;
        int parent;
        FILE *f;
        snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        if (atoi(entry->d_name) <= 0 || !(f = fopen(path, "r")))
            continue;
        /* "pid (name) state parent ...": the 22nd field is the time of its start */
        at = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
        fclose(f);
        if (at &&
            sscanf(at, ") %*c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &parent,
                   &started) == 2 &&
            parent == getpid() && started >= last) {
            last = started;
            found = (pid_t)atoi(entry->d_name);
        }
    }
    if (folder)
        closedir(folder);
    return found;
}

static int killed;

static void kill_baseline(int stage, int status, int64_t done, int64_t total, void *userdata)
{
    if (stage != STITCH_STAGE_TIME || done < 20 || done == total || killed)
        return;
    killed = youngest_child(); /* the candidate's is older */
    if (killed <= 0 || kill(killed, SIGKILL) != 0)
        killed = -1;
}

/* A program that faults when it has run forty times. */
#define COUNTED                                                                                                        \
    "__global__ void count(const int *calls) { ++*(int *)calls; }\n__global__ void k(const float *x, const float *a, " \
    "const float *b, float *y, const int *calls, int n)\n{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"      \
    "    if (*calls > 40) __trap();\n    if (i < n) y[i] = a[i] * x[i] + b[i];\n}\n"
#define COUNTED_PLAN                                                                                                   \
    "{\"stitch\":1,\"buffers\":{\"calls\":{\"dtype\":\"i32\",\"shape\":[1]}},\"prepare\":[{\"fill\":{"                 \
    "\"buffer\":\"calls\",\"value\":0}}],\"run\":[{\"kernel\":\"count\",\"grid\":[1],\"block\":[1],\"args\":["         \
    "\"calls\"]},{\"kernel\":\"k\",\"grid\":[\"ceil_div(N, 256)\"],\"block\":[256],\"args\":[\"x\",\"a\",\"b\","       \
    "\"y\",\"calls\",{\"i32\":\"N\"}]}]}"

#define CANDIDATE VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + b[i];")

static stitch_task *plain_task(void)
{
    return make_task(VECTOR_HEAD, VECTOR_KERNEL("double", "y[i] = (double)a[i] * x[i] + b[i];"), VECTOR_PLAN, NULL);
}

static void add_baseline(stitch_task *t, const char *name, const char *source, const char *plan)
{
    stitch_program *p = NULL;
    CHECK_OK(stitch_program_parse(ctx, source, plan, NULL, &p, &err));
    CHECK_OK(stitch_task_add_baseline_program(t, name, STITCH_PRECISION_F32, p, &err));
}

static stitch_verify_options in_worker(void)
{
    stitch_verify_options o = STITCH_VERIFY_OPTIONS_INIT;
    o.where = STITCH_VERIFY_WORKER;
    o.profile = STITCH_PROFILE_NEVER;
    return o;
}

/* One with no workers yet. */
static void new_context(void)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    options.device = getenv("STITCH_TEST_DEVICE");
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
}

static void check_this_process(void)
{
    stitch__device *mine;
    CHECK_OK(stitch__device_get(ctx, &mine, &err));
    CHECK_OK(stitch__device_enter(mine, &err));
    CHECK_INT(mine->drv->StreamSynchronize(NULL), 0);
    stitch__device_leave(mine);
}

/* The baseline in both workers: what it takes more in the candidate's is taken off, and measured once for both. */
static void check_control(stitch_report *r, double *first)
{
    double here = json_number_value(report_at(r, "time.control.candidate_worker_us")),
           there = json_number_value(report_at(r, "time.control.baseline_worker_us")),
           off = json_number_value(report_at(r, "time.control.taken_off_us"));

    printf("# the baseline takes %.3f us in the candidate's worker, %.3f in its own; taken off: %.3f\n", here, there,
           off);
    CHECK_INT(json_integer_value(report_at(r, "time.control.runs")), 64);
    CHECK(here > 1 && here < 50 && there > 1 && there < 50);
    if (fabs(here - there) <= 0.05 * there)
        CHECK_NEAR(off, here - there, 1e-6);
    else
        CHECK(off == 0 && report_at(r, "time.control_note") != NULL);
    if (*first != 0)
        CHECK_NEAR(here, *first, 1e-9);
    *first = here;
}

static void check_lost(stitch_report *r)
{
    stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
    const char *note = strstr(stitch_report_text(r), "baseline lost could not be measured");

    CHECK_INT(stitch_report_summary_get(r, &s), 0);
    CHECK_INT(s.failed_stage, STITCH_STAGE_NONE);
    CHECK(s.timed && s.speedup == 0 && s.median_us > 0);
    CHECK(note != NULL);
    CHECK_INT(json_integer_value(report_at(r, "time.candidate.runs")), 100);
    CHECK_INT(json_integer_value(report_at(r, "time.candidate.checked_runs_passed")), 100);
    CHECK_INT(json_integer_value(report_at(r, "time.baselines.0.runs")), 0);
    if (note)
        printf("# %.*s\n", (int)strcspn(note, "\n"), note);
    stitch_report_free(r);
}

/* A baseline that faults in its worker, or whose worker dies, is left out; what it had measured does not count. The
 * candidate has its verdict, and this process its context. */
TEST(a_baseline_that_is_lost)
{
    need_device();
    if (device.simulated)
        SKIP("needs times");
    stitch_context *before = ctx;
    for (int how = 0; how < 2; how++) {
        stitch_verify_options o = in_worker();
        stitch_task *t = plain_task();

        new_context();
        if (how) /* the candidate's worker first */
            stitch_report_free(verify(t, CANDIDATE, VECTOR_PLAN, &o));
        add_baseline(t, "lost", how ? CANDIDATE : COUNTED, how ? VECTOR_PLAN : COUNTED_PLAN);
        o.on_stage = how ? kill_baseline : NULL;
        check_lost(verify(t, CANDIDATE, VECTOR_PLAN, &o));
        CHECK((how != 0) == (killed > 0));
        if (!how) /* once more, with a worker for it that has had time to start */
            check_lost(verify(t, CANDIDATE, VECTOR_PLAN, &o));
        stitch_task_free(t);
        stitch_context_free(ctx);
    }
    ctx = before;
    check_this_process();
}

/* Where a worker for it idles, it is opened while the candidate compiles: whatever becomes of either, the next
 * verification finds what it needs. */
TEST(a_baseline_that_is_opened_early)
{
    static const char wrong[] = VECTOR_KERNEL("float", "y[i] = a[i] * x[i];");
    static const char broken[] = VECTOR_KERNEL("float", "y[i] = a[i] * x[i] + ;");
    static const struct {
        const char *source;
        int failed;
    } rows[] = {{CANDIDATE "// 1\n", STITCH_STAGE_NONE}, {broken, STITCH_STAGE_COMPILE},
                {CANDIDATE "// 2\n", STITCH_STAGE_NONE}, {wrong, STITCH_STAGE_CORRECT},
                {CANDIDATE "// 3\n", STITCH_STAGE_NONE}, {CANDIDATE "// 3\n", STITCH_STAGE_NONE}};

    need_device();
    if (device.simulated)
        SKIP("needs times");
    stitch_context *before = ctx;
    new_context();
    stitch_task *t = plain_task();
    double control = 0;
    add_baseline(t, "the same", CANDIDATE, VECTOR_PLAN);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch_report_summary s = STITCH_REPORT_SUMMARY_INIT;
        stitch_verify_options o = in_worker();
        stitch_report *r = verify(t, rows[i].source, VECTOR_PLAN, &o);
        CHECK_INT(stitch_report_summary_get(r, &s), 0);
        CHECK_INT(s.failed_stage, rows[i].failed);
        if (rows[i].failed == STITCH_STAGE_NONE) {
            CHECK(s.speedup > 0.5 && s.speedup < 2);
            CHECK_INT(json_integer_value(report_at(r, "time.baselines.0.runs")), 100);
            check_control(r, &control);
        }
        stitch_report_free(r);
    }
    stitch_task_free(t);
    stitch_context_free(ctx);
    ctx = before;
    check_this_process();
}

TEST_MAIN(RUN(a_baseline_that_is_lost), RUN(a_baseline_that_is_opened_early))
