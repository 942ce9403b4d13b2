/* SPDX-License-Identifier: MIT
 *
 * Not a test of the suite: injects many random faults into workers while this process works on the same device, and
 * counts lost reports and damage. Prints a table; the exit code is 0 if there was neither and, on a real GPU, no worker
 * was too slow; 77 if there is nothing to run on; 75 if time was up before all were injected, with nothing wrong.
 *
 * usage: fault_campaign [COUNT [SEED [JOBS [SECONDS [FILE]]]]]
 *
 * Default: 1000 faults, seed 1, one job, until all are done. SECONDS (0: no end) ends it earlier, with what was
 * injected by then. FILE keeps what was found out, and the next run adds to it until COUNT are done, with other random
 * numbers; after that, or on another device, it starts anew. STITCH_TEST_DEVICE names the device, or several
 * ("cuda:0,cuda:1") that jobs take in turn. Jobs are processes that share the faults, each with its own work on the
 * device and workers of its own. Before several start, one injects the first few alone: only there the time to a fresh
 * worker means something, for contexts of a device are made one after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "descriptors.h"
#include "verify_tasks.h"
#include "worker/worker.h"

enum {
    N = 4099,
    HANG_MS = 100, /* the deadline of a program that hangs; any will do */
    LONG_MS = 60000,
    PINGS = 2000,
    ALONE = 24,       /* faults before several jobs start */
    GONE_MS = 3000,   /* for the last workers to be gone */
    LEFT_MIB = 256,   /* of device memory: what a driver may keep for itself */
    TIME_WAS_UP = 75, /* exit codes */
    NOTHING_TO_RUN = 77,
};

#define MOST_PING_US  1000 /* median of an empty request */
#define MOST_FRESH_MS 500  /* median time to a fresh worker after a fault */

/* WANT_STOPPED: as a fault, or at its deadline, which is hardware's choice. WANT_SURVIVED: right, or as a fault. */
typedef enum want { WANT_FAULT, WANT_TIMEOUT, WANT_RIGHT, WANT_FAILURE, WANT_KILLED, WANT_STOPPED, WANT_SURVIVED } want;

#define GOOD "y[i] = a[i] * x[i] + b[i]; "

static struct kind {
    const char *name, *body, *before; /* before: device code in front of the kernel */
    want want;
    bool not_simulated; /* the simulator refuses it */
    bool skip;          /* it does not compile here */
    stitch_program *program;
} kinds[] = {
    {.name = "illegal address, write", .body = GOOD "if (i == 3) *(volatile float *)0x10 = 1;"},
    {.name = "illegal address, read", .body = GOOD "y[i] += ((const volatile float *)y)[i + (1ll << 40)];"},
    {.name = "far past an output", .body = GOOD "y[i + (1ll << 36)] = 1;"},
    {.name = "misaligned address", .body = GOOD "*(volatile int *)((char *)y + 4 * i + 1) = 1;"},
    {.name = "trap", .body = GOOD "if (i == 77) __trap();"},
    {.name = "assert",
     .body = GOOD "if (i == 5) __assertfail(\"no\", \"program.cu\", 1, \"k\", 1);",
     .before =
         "extern \"C\" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);\n"},
    {.name = "null function", .body = GOOD "if (i == 5) ((void (*)())(x[0] > 1e30f ? 8 : 0))();", .want = WANT_STOPPED},
    {.name = "stack overflow",
     .body = GOOD "if (i == 0) y[i] = deep(1 << 24, x);",
     .before = "__device__ __noinline__ float deep(int n, const float *x)\n{\n    volatile float pad[64];\n"
               "    pad[n % 64] = x[n % 64];\n    return n ? deep(n - 1, x) + pad[(n + 1) % 64] : 0;\n}\n",
     .want = WANT_FAILURE},
    {.name = "endless kernel", .body = "y[i] = 0; while (((volatile float *)y)[i] == 0) { }", .want = WANT_TIMEOUT},
    {.name = "barrier that hangs",
     .body = "__shared__ volatile int go; go = 0; __syncthreads(); while (!go) { } y[i] = 1;",
     .want = WANT_TIMEOUT},
    {.name = "heap until it is empty",
     .not_simulated = true,
     .body = GOOD "for (int k = 0; k < 100; k++) { char *p = (char *)malloc(1 << 20); if (p) p[i % 99] = 1; }",
     .want = WANT_RIGHT},
    {.name = "printf flood",
     .body = GOOD "for (int k = 0; k < 50; k++) printf(\"flood %d %d\\n\", i, k);",
     .want = WANT_SURVIVED}, /* 1 in 65 on an H200 with five other processes ended with CUDA_ERROR_LAUNCH_FAILED */
    {.name = "killed at a random time",
     .body = GOOD "for (volatile int k = 0; k < 20000; k++) { }",
     .want = WANT_KILLED},
    {.name = "no fault", .body = GOOD, .want = WANT_RIGHT},
};

static stitch__device *dev;
static uint64_t state;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double now_ms(void)
{
    return (double)stitch__now_ns() / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(double *values, size_t count, double q)
{
    qsort(values, count, sizeof(*values), by_value);
    return count ? values[(size_t)(q * (double)(count - 1))] : 0;
}

/* What a job found out; goes through a pipe as it is. */
static struct result {
    struct {
        int count, reported, as_wanted;
        double worst_ms, sum_ms;
        char example[160];
    } kinds[STITCH__COUNT(kinds)];
    size_t fresh_count, alone_count;
    double fresh_ms[10000], alone_ms[10000];  /* acquiring a worker after one was lost; the same, by one job alone */
    double acquire_ms, inject_ms, release_ms; /* spent on each, altogether */
    double ping_us, ping_high_us, seconds;
    long own_runs, own_wrong;
    long left_processes, left_descriptors, left_mib; /* worst of all jobs, after their last worker */
    char device[200], sandbox[200];
    int runs, jobs; /* of this program; most jobs at once */
    bool ran;
} result;

static bool alone;    /* no other job is at work */
static double end_ms; /* when to stop; 0: not before all is done */

/* ---- this process's own work ------------------------------------------------------------------------------------- */

static atomic_bool stop;
static atomic_long own_runs, own_wrong;

/* Fills memory on the device, copies it and compares, over and over, in a stream of its own. */
static void *own_work(void *unused)
{
    enum { BYTES = 1 << 20 };
    static unsigned char host[BYTES];
    CUdeviceptr a = 0, b = 0;
    CUstream stream = NULL;
    bool good = stitch__device_enter(dev, NULL) == STITCH_OK &&
                dev->drv->StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
                dev->drv->MemAlloc(&a, BYTES) == CUDA_SUCCESS && dev->drv->MemAlloc(&b, BYTES) == CUDA_SUCCESS;
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    stitch_dist dist = {.kind = STITCH_DIST_NORMAL};
    float first = 0;

    (void)unused;
    info.name = "own";
    info.dtype = STITCH_DTYPE_F32;
    info.rank = 1;
    info.elements = BYTES / 4;
    info.shape[0] = BYTES / 4;
    info.bytes = BYTES;
    while (good && !atomic_load(&stop)) {
        /* A kernel with a known result: the generator of the library, always with the same seed. */
        good = dev->drv->MemsetD8Async(a, 0xff, BYTES, stream) == CUDA_SUCCESS &&
               stitch__generate_device(dev, stream, &info, &dist, 1, 42, 0, a, NULL) == STITCH_OK &&
               dev->drv->MemcpyDtoDAsync(b, a, BYTES, stream) == CUDA_SUCCESS &&
               dev->drv->StreamSynchronize(stream) == CUDA_SUCCESS &&
               dev->drv->MemcpyDtoH(host, b, BYTES) == CUDA_SUCCESS;
        float now[2];
        memcpy(now, host, sizeof(now));
        if (atomic_load(&own_runs) == 0)
            first = now[1];
        if (!good || now[1] != first || now[0] == now[1])
            atomic_fetch_add(&own_wrong, 1);
        atomic_fetch_add(&own_runs, 1);
        /* It shares the CPU with a simulated device's workers, a real device's time with theirs and other jobs'. */
        usleep(dev->info.simulated ? 20000 : 2000);
    }
    if (!good)
        atomic_fetch_add(&own_wrong, 1);
    stitch__mem_free(dev, a);
    stitch__mem_free(dev, b);
    if (stream)
        dev->drv->StreamDestroy(stream);
    stitch__device_leave(dev);
    return NULL;
}

/* ---- one fault --------------------------------------------------------------------------------------------------- */

typedef struct killer {
    int pid;
    unsigned delay_us;
} killer;

static void *kill_later(void *argument)
{
    killer *k = argument;
    usleep(k->delay_us);
    kill(k->pid, SIGKILL);
    return NULL;
}

static float expected[N];

static int run_one(stitch__worker *w, stitch_task *t, struct kind *k, bool *right, int *code, stitch_error **why)
{
    const stitch__load load = {0xaa};
    const stitch__run run = {0, 0xff, -1, 0, 0};
    stitch__scope scope = stitch__scope_make(ctx, NULL, LONG_MS);
    stitch__prepared prepared;
    stitch__candidate c = {0};
    CUdeviceptr into[4] = {0};
    static float y[N];
    int rc = stitch__worker_open(w, &scope, t, k->program, &c, &err);

    *code = STITCH_OK;
    if (!rc)
        rc = stitch__mem_alloc(dev, sizeof(y), "y", &into[3], &err);
    if (!rc)
        rc = c.ops->load(c.self, &scope, &load, code, why, &err);
    if (!rc && !*code)
        rc = c.ops->fill_weights(c.self, &scope, 11, &err);
    if (!rc && !*code)
        rc = c.ops->fill_inputs(c.self, &scope, 12, NULL, &err);
    if (!rc && !*code)
        rc = c.ops->prepare(c.self, &scope, &prepared, code, why, &err);
    if (k->want == WANT_TIMEOUT || k->want == WANT_STOPPED)
        scope = stitch__scope_make(ctx, NULL, HANG_MS);
    if (k->want == WANT_FAILURE)
        scope = stitch__scope_make(ctx, NULL, 5 * HANG_MS);
    if (!rc && !*code)
        rc = c.ops->run(c.self, &scope, &run, code, why, &err);
    if (!rc && !*code)
        rc = c.ops->fetch(c.self, &scope, 0, into, NULL, &err);
    if (!rc && !*code) {
        CHECK_INT(dev->drv->MemcpyDtoH(y, into[3], sizeof(y)), 0);
        *right = memcmp(y, expected, sizeof(y)) == 0;
    }
    if (c.ops)
        c.ops->close(c.self);
    stitch__mem_free(dev, into[3]);
    return rc;
}

static void inject(stitch_task *t, struct kind *k)
{
    stitch__scope scope = stitch__scope_make(ctx, NULL, LONG_MS);
    static bool after_fault;
    stitch__worker *w = NULL;
    stitch_error *why = NULL;
    pthread_t thread;
    killer job;
    bool right = false, killing = false;
    int code = STITCH_OK;
    double start = now_ms(), begun;

    int rc = stitch__worker_acquire(ctx, &scope, NULL, &w, &err);
    begun = now_ms();
    result.acquire_ms += begun - start;
    if (after_fault && !rc && alone && result.alone_count < STITCH__COUNT(result.alone_ms))
        result.alone_ms[result.alone_count++] = begun - start;
    else if (after_fault && !rc && result.fresh_count < STITCH__COUNT(result.fresh_ms))
        result.fresh_ms[result.fresh_count++] = begun - start;
    if (!rc) {
        if (k->want == WANT_KILLED) {
            job = (killer){stitch__worker_pid(w), (unsigned)(next() % 60000)};
            killing = pthread_create(&thread, NULL, kill_later, &job) == 0;
        }
        rc = run_one(w, t, k, &right, &code, &why);
        if (killing)
            pthread_join(thread, NULL); /* until then nobody reaps it: the number is still its own */
    }
    double ms = now_ms() - begun;
    result.inject_ms += ms;
    bool reported = code ? *stitch_error_message(why) : rc ? *stitch_error_message(err) : true;
    bool good = k->want == WANT_FAULT     ? code == STITCH_E_FAULT
                : k->want == WANT_TIMEOUT ? code == STITCH_E_TIMEOUT || (dev->info.simulated && code)
                : k->want == WANT_RIGHT   ? (!rc && !code && right) || (k->not_simulated && dev->info.simulated && code)
                : k->want == WANT_FAILURE ? !rc && code
                : k->want == WANT_STOPPED ? code == STITCH_E_FAULT || code == STITCH_E_TIMEOUT
                : k->want == WANT_SURVIVED ? code == STITCH_E_FAULT || (!rc && !code && right)
                                           : code == STITCH_E_FAULT || rc == STITCH_E_IO || (!rc && !code && right);
    size_t at = (size_t)(k - kinds);
    result.kinds[at].count++;
    result.kinds[at].reported += reported && w;
    result.kinds[at].as_wanted += good;
    result.kinds[at].sum_ms += ms;
    result.kinds[at].worst_ms = ms > result.kinds[at].worst_ms ? ms : result.kinds[at].worst_ms;
    if (!good || !*result.kinds[at].example)
        snprintf(result.kinds[at].example, sizeof(result.kinds[at].example), "%.120s",
                 code    ? stitch_error_message(why)
                 : rc    ? stitch_error_message(err)
                 : right ? ""
                         : "wrong results");
    if (!good && result.kinds[at].as_wanted + 5 > result.kinds[at].count)
        fprintf(stderr, "unexpected, %s: rc %d, code %d: %s\n", k->name, rc, code, result.kinds[at].example);
    after_fault = w && stitch__worker_lost(w);
    stitch_error_free(why);
    stitch_error_free(err);
    err = NULL;
    /* A process that was killed after its answer dies for some time yet, and would be the next one's. */
    begun = now_ms();
    stitch__worker_release(w, !killing);
    result.release_ms += now_ms() - begun;
}

/* ---- what must not be left --------------------------------------------------------------------------------------- */

/* Once a worker idles again and those that were lost are gone: free memory of the device and open descriptors. */
static void look(size_t *free_bytes, int *descriptors, int most_descriptors, size_t least_free)
{
    double until = now_ms() + GONE_MS;
    do { /* acquiring one reaps those that have ended */
        stitch__scope scope = stitch__scope_make(ctx, NULL, LONG_MS);
        stitch__worker *w = NULL;
        size_t total;
        CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
        stitch__worker_release(w, true);
        *descriptors = count_descriptors();
        CHECK_INT(dev->drv->MemGetInfo(free_bytes, &total), 0);
        if (*descriptors <= most_descriptors && *free_bytes >= least_free)
            return;
        usleep(50000);
    } while (now_ms() < until);
}

/* ---- the campaign ------------------------------------------------------------------------------------------------ */

static void compile_kinds(stitch_task *t)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    options.arch = device.arch;
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        struct kind *k = &kinds[i];
        char source[3000];
        snprintf(source, sizeof(source), "%s" VECTOR_KERNEL("float", "%s"), k->before ? k->before : "", k->body);
        CHECK_OK(stitch_program_parse(ctx, source, VECTOR_PLAN, NULL, &k->program, &err));
        CHECK_OK(stitch_program_validate(k->program, stitch_task_interface(t), device.arch, &err));
        if (stitch_program_compile(k->program, &options, NULL, &err)) {
            printf("left out, does not compile: %s: %.300s\n", k->name, stitch_error_message(err));
            k->skip = true;
        }
    }
}

static void take_expected(stitch_task *t, bool check)
{
    stitch__runner_options options = {0};
    stitch__scope scope = stitch__scope_make(ctx, NULL, LONG_MS);
    const stitch__load load = {-1};
    const stitch__run run = {0, 0xff, -1, 0, 0};
    stitch__prepared prepared;
    stitch__runner *r = NULL;
    stitch_error *why = NULL;
    float y[N];
    int code;

    CHECK_OK(stitch__runner_open(t, kinds[STITCH__COUNT(kinds) - 1].program, dev, &options, &r, &err));
    stitch__candidate c = stitch__runner_candidate(r);
    CHECK_OK(c.ops->load(c.self, &scope, &load, &code, &why, &err));
    CHECK_OK(c.ops->fill_weights(c.self, &scope, 11, &err));
    CHECK_OK(c.ops->fill_inputs(c.self, &scope, 12, NULL, &err));
    CHECK_OK(c.ops->prepare(c.self, &scope, &prepared, &code, &why, &err));
    CHECK_OK(c.ops->run(c.self, &scope, &run, &code, &why, &err));
    CHECK_INT(code, STITCH_OK);
    CHECK_INT(dev->drv->MemcpyDtoH(y, stitch__runner_set(r, 0)[3], sizeof(y)), 0);
    if (check)
        CHECK(memcmp(y, expected, sizeof(y)) == 0);
    memcpy(expected, y, sizeof(y));
    c.ops->close(c.self);
}

static void measure_pings(void)
{
    static double us[PINGS];
    stitch__scope scope = stitch__scope_make(ctx, NULL, LONG_MS);
    stitch__worker *w = NULL;
    CHECK_OK(stitch__worker_acquire(ctx, &scope, NULL, &w, &err));
    for (int i = 0; i < PINGS; i++) {
        int64_t start = stitch__now_ns();
        CHECK_OK(stitch__worker_ping(w, &scope, &err));
        us[i] = (double)(stitch__now_ns() - start) / 1000;
    }
    result.ping_us = quantile(us, PINGS, 0.5);
    result.ping_high_us = quantile(us, PINGS, 0.99);
    snprintf(result.sandbox, sizeof(result.sandbox), "%s", stitch__worker_sandbox(w));
    stitch__worker_release(w, true);
}

static void campaign(long count)
{
    stitch_task *t = vector_task();
    pthread_t thread;
    size_t free_before, free_after;
    int open_before, open_after;

    compile_kinds(t);
    take_expected(t, false);
    if (alone)
        measure_pings();
    look(&free_before, &open_before, 1 << 20, 0);
    CHECK_INT(pthread_create(&thread, NULL, own_work, NULL), 0);
    double start = now_ms();
    for (long i = 0; i < count && (end_ms <= 0 || now_ms() < end_ms);) {
        struct kind *k = &kinds[next() % STITCH__COUNT(kinds)];
        if (k->skip)
            continue;
        inject(t, k);
        i++;
    }
    result.seconds = (now_ms() - start) / 1000;
    take_expected(t, true);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    result.own_runs = atomic_load(&own_runs);
    result.own_wrong = atomic_load(&own_wrong);
    /* Memory of the device says something only while nobody else allocates there. */
    size_t least = alone && !dev->info.simulated && free_before > (size_t)LEFT_MIB << 20
                       ? free_before - ((size_t)LEFT_MIB << 20)
                       : 0;
    look(&free_after, &open_after, open_before, least);
    result.left_descriptors = open_after - open_before;
    if (least)
        result.left_mib = (long)(((int64_t)free_before - (int64_t)free_after) / (1 << 20));
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++)
        stitch_program_free(kinds[i].program);
    stitch_task_free(t);
    result.ran = true;
}

/* The device of job `number`, of a list; the name is for this process. */
static void choose_device(int number)
{
    const char *list = getenv("STITCH_TEST_DEVICE");
    int names = 1;
    char one[100];

    if (!list)
        return;
    for (const char *c = list; *c; c++)
        names += *c == ',';
    for (number %= names; number > 0; number--)
        list = strchr(list, ',') + 1;
    snprintf(one, sizeof(one), "%.*s", (int)strcspn(list, ","), list);
    CHECK_INT(setenv("STITCH_TEST_DEVICE", one, 1), 0);
}

/* 0, 1: a check failed; 77: skipped. */
static int job(int number, long count, unsigned long long seed)
{
    volatile int rc = 1;
    int how = setjmp(check__out);
    siginfo_t info;

    state = seed * 0x9e3779b97f4a7c15u + 1;
    if (how == 0) {
        choose_device(number);
        need_device();
        snprintf(result.device, sizeof(result.device), "%s%s", device.simulated ? "simulated " : "", device.name);
        CHECK_OK(stitch__device_get(ctx, &dev, &err));
        CHECK_OK(stitch__device_enter(dev, &err));
        campaign(count);
        stitch__device_leave(dev);
        rc = 0;
    } else if (how == 2) {
        fprintf(stderr, "skipped: %s\n", check__skip);
        rc = NOTHING_TO_RUN;
    }
    stitch_context_free(ctx);
    result.left_processes = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
    return rc;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static void merge(struct result *all, const struct result *one)
{
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        bool odd = one->kinds[i].as_wanted < one->kinds[i].count;
        all->kinds[i].count += one->kinds[i].count;
        all->kinds[i].reported += one->kinds[i].reported;
        all->kinds[i].as_wanted += one->kinds[i].as_wanted;
        all->kinds[i].sum_ms += one->kinds[i].sum_ms;
        if (one->kinds[i].worst_ms > all->kinds[i].worst_ms)
            all->kinds[i].worst_ms = one->kinds[i].worst_ms;
        if (odd || !*all->kinds[i].example)
            memcpy(all->kinds[i].example, one->kinds[i].example, sizeof(all->kinds[i].example));
    }
    for (size_t i = 0; i < one->fresh_count && all->fresh_count < STITCH__COUNT(all->fresh_ms); i++)
        all->fresh_ms[all->fresh_count++] = one->fresh_ms[i];
    for (size_t i = 0; i < one->alone_count && all->alone_count < STITCH__COUNT(all->alone_ms); i++)
        all->alone_ms[all->alone_count++] = one->alone_ms[i];
    all->acquire_ms += one->acquire_ms;
    all->inject_ms += one->inject_ms;
    all->release_ms += one->release_ms;
#define WORST(member) all->member = one->member > all->member ? one->member : all->member
    WORST(ping_us);
    WORST(ping_high_us);
    WORST(left_processes);
    WORST(left_descriptors);
    WORST(left_mib);
    WORST(jobs);
#undef WORST
    all->own_runs += one->own_runs;
    all->own_wrong += one->own_wrong;
    memcpy(all->device, one->device, sizeof(all->device));
    if (*one->sandbox)
        memcpy(all->sandbox, one->sandbox, sizeof(all->sandbox));
    all->ran |= one->ran;
}

static long injected(const struct result *r)
{
    long total = 0;
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++)
        total += r->kinds[i].count;
    return total;
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

static bool write_all(int fd, const void *data, size_t size)
{
    size_t put = 0;
    while (put < size) {
        ssize_t n = write(fd, (const char *)data + put, size - put);
        if (n <= 0)
            return false;
        put += (size_t)n;
    }
    return true;
}

/* In processes that have not touched the driver yet. Returns the worst exit code; what they found out goes to *all. */
static int run_jobs(long count, unsigned long long seed, int jobs, struct result *all)
{
    enum { MAX_JOBS = 32 };
    int fds[MAX_JOBS], worst = 0, begun = 0;
    pid_t pids[MAX_JOBS];
    double most = 0;

    fflush(NULL);
    memset(&result, 0, sizeof(result)); /* jobs inherit it */
    alone = jobs == 1;
    for (; begun < jobs && begun < MAX_JOBS; begun++) {
        int ends[2];
        long share = count / jobs + (begun < count % jobs);
        if (pipe(ends) != 0)
            break;
        pids[begun] = fork();
        if (pids[begun] == 0) {
            close(ends[0]);
            for (int i = 0; i < begun; i++)
                close(fds[i]);
            int rc = job(begun, share, seed + 1000 * (unsigned long long)begun);
            result.jobs = jobs;
            (void)write_all(ends[1], &result, sizeof(result));
            fflush(NULL);
            _exit(rc);
        }
        close(ends[1]);
        fds[begun] = ends[0];
        if (pids[begun] < 0) {
            close(ends[0]);
            break;
        }
    }
    for (int i = 0; i < begun; i++) {
        int status = 0;
        bool whole = read_all(fds[i], &result, sizeof(result)) && result.ran;
        if (whole) {
            merge(all, &result);
            most = result.seconds > most ? result.seconds : most;
        }
        close(fds[i]);
        waitpid(pids[i], &status, 0);
        int rc = !WIFEXITED(status) || (!whole && !WEXITSTATUS(status)) ? 1 : WEXITSTATUS(status);
        worst = rc > worst ? rc : worst;
    }
    all->seconds += most;
    return begun ? worst : 1;
}

/* One alone, unless an earlier run had that; then several. */
static int run_all(long count, unsigned long long seed, int jobs, long done_alone, struct result *all)
{
    long first = jobs > 1 && count > ALONE && done_alone < ALONE / 2 ? ALONE : jobs > 1 ? 0 : count;
    int rc = first ? run_jobs(first, seed, 1, all) : 0;

    if (rc || first == count || (end_ms > 0 && now_ms() >= end_ms))
        return rc;
    return run_jobs(count - first, seed + 7, jobs, all);
}

/* ---- what earlier runs found ------------------------------------------------------------------------------------- */

/* Of this very program, on the same device, and not all that are wanted yet; else *all stays empty. */
static void load_kept(const char *path, long count, struct result *all)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char more;

    if (fd < 0)
        return;
    if (!read_all(fd, all, sizeof(*all)) || read(fd, &more, 1) != 0 || !all->ran || injected(all) >= count)
        memset(all, 0, sizeof(*all));
    close(fd);
}

static void keep(const char *path, const struct result *all)
{
    char fresh[4096];
    int fd = -1;

    if ((size_t)snprintf(fresh, sizeof(fresh), "%s.new", path) < sizeof(fresh))
        fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write_all(fd, all, sizeof(*all));
    good = fd >= 0 && close(fd) == 0 && good;
    if (!good || rename(fresh, path) != 0)
        fprintf(stderr, "%s cannot be written: the next run starts anew\n", path);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* 0 if nothing was lost, unexpected, left or slow. */
static int print_result(struct result *r, long wanted)
{
    bool simulated = strncmp(r->device, "simulated ", 10) == 0;
    long total = injected(r), reported = 0, as_wanted = 0;

    printf("%s\nworker: %s\nempty request: median %.1f us (at most %d), 99 %%: %.1f us\n", r->device, r->sandbox,
           r->ping_us, MOST_PING_US, r->ping_high_us);
    printf("\n| fault | injected | reported | as expected | mean time | slowest | example "
           "|\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        reported += r->kinds[i].reported;
        as_wanted += r->kinds[i].as_wanted;
        if (r->kinds[i].count)
            printf("| %s | %d | %d | %d | %.1f ms | %.1f ms | %s |\n", kinds[i].name, r->kinds[i].count,
                   r->kinds[i].reported, r->kinds[i].as_wanted, r->kinds[i].sum_ms / r->kinds[i].count,
                   r->kinds[i].worst_ms, r->kinds[i].example);
    }
    printf("\n%ld injected (%ld wanted) in %.1f s, %d run%s, at most %d at once: %ld reports lost, %ld not as "
           "expected\n",
           total, wanted, r->seconds, r->runs, r->runs == 1 ? "" : "s", r->jobs, total - reported, total - as_wanted);
    double fresh = quantile(r->alone_ms, r->alone_count, 0.5);
    printf("fresh worker after a fault, one job alone: median %.1f ms (at most %d), 99 %%: %.1f ms, of %zu\n", fresh,
           MOST_FRESH_MS, quantile(r->alone_ms, r->alone_count, 0.99), r->alone_count);
    if (r->fresh_count)
        printf("fresh worker after a fault, beside other jobs: median %.1f ms, 99 %%: %.1f ms, of %zu\n",
               quantile(r->fresh_ms, r->fresh_count, 0.5), quantile(r->fresh_ms, r->fresh_count, 0.99), r->fresh_count);
    if (total)
        printf("time of a fault: waiting for a worker %.1f ms, the program in it %.1f ms, giving it back %.1f ms\n",
               r->acquire_ms / (double)total, r->inject_ms / (double)total, r->release_ms / (double)total);
    if (getenv("CUDA_DEVICE_MAX_CONNECTIONS"))
        printf("the last run had CUDA_DEVICE_MAX_CONNECTIONS=%s\n", getenv("CUDA_DEVICE_MAX_CONNECTIONS"));
    printf("own work meanwhile: %ld runs, %ld wrong\n", r->own_runs, r->own_wrong);
    printf("left behind: %ld processes, %ld descriptors, %ld MiB of device memory (at most %d)\n", r->left_processes,
           r->left_descriptors > 0 ? r->left_descriptors : 0, r->left_mib > 0 ? r->left_mib : 0, LEFT_MIB);
    bool quick = simulated || (r->ping_us <= MOST_PING_US && fresh <= MOST_FRESH_MS);
    bool clean = !r->left_processes && r->left_descriptors <= 0 && r->left_mib <= LEFT_MIB;
    return total && total == reported && total == as_wanted && r->own_wrong == 0 && quick && clean ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct result all;
    long count = argc > 1 ? atol(argv[1]) : 1000;
    unsigned long long seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    int jobs = argc > 3 ? atoi(argv[3]) : 1, rc;
    double seconds = argc > 4 ? atof(argv[4]) : 0;
    const char *file = argc > 5 ? argv[5] : NULL;
    static struct result kept;

    setvbuf(stdout, NULL, _IOLBF, 0);
    jobs = jobs < 1 ? 1 : jobs;
    end_ms = seconds > 0 ? now_ms() + seconds * 1000 : 0;
    if (file)
        load_kept(file, count, &kept);
    rc = run_all(count - injected(&kept), seed + 1000000ull * (unsigned long long)kept.runs, jobs,
                 (long)kept.alone_count, &all);
    if (rc == NOTHING_TO_RUN)
        return rc;
    if (kept.ran && strcmp(kept.device, all.device) == 0) {
        int runs = kept.runs;
        double before = kept.seconds;
        merge(&all, &kept);
        all.seconds += before;
        all.runs = runs;
    }
    all.runs++;
    int judged = print_result(&all, count);
    /* A failure is kept, too: nothing that a later run does makes it good. */
    if (file && all.ran)
        keep(file, &all);
    return rc ? rc : judged ? judged : injected(&all) < count ? TIME_WAS_UP : 0;
}
