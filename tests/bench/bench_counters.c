/* SPDX-License-Identifier: MIT
 *
 * What hardware counters cost, and their values for comparison with another tool (counters_vs_ncu.py). Usage:
 *
 * bench_counters [time [ROUNDS]]
 *     six kernels: milliseconds of each part and in each of CUPTI's functions, for the cheap and the full set, with the
 *     work repeated for each pass and with each kernel replayed
 * bench_counters plan CHIP [ROUNDS]
 *     the part of it that needs no GPU, of a chip by CUPTI's name ("GH100")
 * bench_counters names SET
 *     CUPTI's names of what a set ("cheap", "full") has on this device, a line each
 * bench_counters values SET
 *     the six kernels after a warm-up: lines "kernel<TAB>metric<TAB>value", in which the metric is one of these names
 *     or a sum or difference of them ("a-b+c"), and "# ms N": from opening to the last value, which is the first time
 *     in a process; "# again N": the median of five times after that, "# extra N": their sum
 * bench_counters run
 *     launches the same and counts nothing
 *
 * Exits with 77 where there is no GPU, no CUPTI, or no right to count.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "counter_kernels.h"
#include "profile/counters.h"
#include "profile/metric_plan.h"
#include "timed_cupti.h"

enum { MAX_ROUNDS = 200, AGAIN = 5 };
enum { OPEN, START, LAUNCH, STOP, CLOSE, ALL, PARTS };

static stitch_context *ctx;
static stitch__device *dev;
static const stitch__cupti *cupti;
static counter_work work;

static void check(int rc, const char *what, stitch_error *err)
{
    bool absent = rc == STITCH_E_NO_DEVICE || rc == STITCH_E_NO_LIBRARY || rc == STITCH_E_UNSUPPORTED;
    if (rc == STITCH_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, stitch_error_message(err));
    exit(absent ? 77 : 1);
}

static void cu(CUresult rc, const char *what)
{
    if (rc != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, (int)rc);
        exit(1);
    }
}

static void six(void)
{
    cu(launch_six(&work), "launch");
    cu(dev->drv->StreamSynchronize(work.stream), "wait");
}

static void count_six(stitch__counters *c)
{
    stitch_error *err = NULL;
    bool more = false;
    do {
        six();
        check(stitch__counters_again(c, &more, &err), "again", err);
    } while (more);
}

static void set_up(void)
{
    stitch_error *err = NULL;
    check(stitch_context_new(&ctx, NULL, &err), "context", err);
    check(stitch__device_get(ctx, &dev, &err), "device", err);
    if (dev->info.simulated) {
        fprintf(stderr, "the device is simulated\n");
        exit(77);
    }
    check(stitch__device_enter(dev, &err), "enter", err);
    check(counter_work_open(ctx, dev, SIX_FLOATS, &work, &err), "kernels", err);
    six();
}

static int set_of(const char *name)
{
    if (name && strcmp(name, "full") == 0)
        return STITCH__METRIC_FULL;
    if (name && strcmp(name, "cheap") == 0)
        return STITCH__METRIC_CHEAP;
    fprintf(stderr, "the set is \"cheap\" or \"full\"\n");
    exit(2);
}

/* ---- names and values ---- */

typedef char metric_text[480];

static char names[STITCH__FACTS_EXTRA][160];
static const char *name_list[STITCH__FACTS_EXTRA];
static size_t name_count;
static metric_text references[STITCH__METRICS];

/* Takes the next alternative of *at that is not for the full set alone; false at the end. */
static bool next_alternative(const char **at, metric_text out)
{
    while (**at) {
        size_t len = strcspn(*at, "|");
        bool starred = **at == '*';
        snprintf(out, sizeof(metric_text), "%.*s", (int)len, *at);
        *at += len + ((*at)[len] == '|');
        if (!starred)
            return true;
    }
    return false;
}

/* The same for the names in one. */
static bool next_name(const char **at, char *out, size_t size)
{
    *at += strspn(*at, "+-");
    size_t len = strcspn(*at, "+-");
    snprintf(out, size, "%.*s", (int)len, *at);
    *at += len;
    return len > 0;
}

static void list_names(const char *text)
{
    char name[sizeof(names[0])];
    while (next_name(&text, name, sizeof(name))) {
        size_t i = 0;
        while (i < name_count && strcmp(names[i], name) != 0)
            i++;
        if (i == name_count && name_count < STITCH__FACTS_EXTRA) {
            memcpy(names[i], name, sizeof(name));
            name_list[i] = names[i];
            name_count++;
        }
    }
}

static bool is_missing(const stitch__counters *c, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = stitch__counters_missing(c); (at = strstr(at, name)); at += len) {
        if (at[len] == '\0' || at[len] == ',')
            return true;
    }
    return false;
}

static bool all_there(const stitch__counters *c, const char *text)
{
    char name[sizeof(names[0])];
    while (next_name(&text, name, sizeof(name))) {
        if (is_missing(c, name))
            return false;
    }
    return true;
}

/* Every name that a metric of a set could be made of, but for what is for the full set alone. */
static void list_all(int set)
{
    metric_text text;
    for (int m = 0; m < STITCH__METRICS; m++) {
        const stitch__metric_info *info = stitch__metric_info_of(m);
        const char *at = info->cupti && info->set <= set ? info->cupti : "";
        while (next_alternative(&at, text))
            list_names(text);
    }
}

/* What each metric of a set is in CUPTI's names, whichever counters it is read from in this set: the first alternative
 * in metrics.def that is for all sets and that this device has. Then `names` has those in use. */
static void find_references(int set)
{
    stitch__counters_options o = {.set = STITCH__METRIC_CHEAP, .extra = name_list, .max_kernels = 1};
    stitch_error *err = NULL;
    stitch__counters *c = NULL;
    metric_text text;
    list_all(set);
    o.extra_count = name_count;
    check(stitch__counters_open(ctx, dev, cupti, &o, &c, &err), "open", err);
    name_count = 0;
    for (int m = 0; m < STITCH__METRICS; m++) {
        const stitch__metric_info *info = stitch__metric_info_of(m);
        const char *at = info->cupti && info->set <= set ? info->cupti : "";
        while (!*references[m] && next_alternative(&at, text)) {
            if (all_there(c, text))
                memcpy(references[m], text, sizeof(text));
        }
    }
    stitch__counters_close(c);
    for (int m = 0; m < STITCH__METRICS; m++)
        list_names(references[m]);
}

/* Milliseconds. */
static double collect(const stitch__counters_options *o, stitch__counters **c)
{
    stitch_error *err = NULL;
    int64_t start = stitch__now_ns();
    check(stitch__cupti_get(ctx, &cupti, &err), "CUPTI", err);
    check(stitch__counters_open(ctx, dev, cupti, o, c, &err), "open", err);
    check(stitch__counters_start(*c, &err), "start", err);
    count_six(*c);
    check(stitch__counters_stop(*c, &err), "stop", err);
    return (double)(stitch__now_ns() - start) / 1e6;
}

static void print_names(const char *set_name)
{
    stitch_error *err = NULL;
    check(stitch__cupti_get(ctx, &cupti, &err), "CUPTI", err);
    find_references(set_of(set_name));
    for (size_t i = 0; i < name_count; i++)
        printf("%s\n", names[i]);
}

static int by_value(const void *a, const void *b)
{
    double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

static void print_values(const char *set_name)
{
    double metrics[STITCH__METRICS];
    stitch__counters_options o = {.set = set_of(set_name), .max_kernels = SIX, .repeats = true};
    stitch__counters *c = NULL;
    double ms = collect(&o, &c), again[AGAIN], extra = 0;
    for (int i = 0; i < AGAIN; i++) {
        stitch__counters *other = NULL;
        again[i] = collect(&o, &other);
        extra += again[i];
        stitch__counters_close(other);
    }
    qsort(again, AGAIN, sizeof(again[0]), by_value);
    find_references(o.set);
    for (size_t i = 0; i < stitch__counters_count(c) && i < SIX; i++) {
        stitch__counters_get(c, i, metrics, NULL);
        for (int m = 0; m < STITCH__METRICS; m++) {
            if (*references[m] && !isnan(metrics[m]))
                printf("%s\t%s\t%.17g\n", six_names[i], references[m], metrics[m]);
        }
    }
    printf("# ms %.3f\n# again %.3f\n# extra %.3f\n# passes %zu\n", ms, again[AGAIN / 2], extra,
           stitch__counters_passes(c));
    stitch__counters_close(c);
}

/* ---- times ---- */

static void open_timed(void)
{
    static stitch__cupti table;
    const stitch__cupti *plain;
    stitch_error *err = NULL;
    check(stitch__cupti_get(ctx, &plain, &err), "CUPTI", err);
    table = timed_cupti(plain);
    cupti = &table;
}

static void lap(int64_t *from, double *ms)
{
    int64_t now = stitch__now_ns();
    *ms = (double)(now - *from) / 1e6;
    *from = now;
}

static void times(const char *set_name, bool repeats, size_t rounds)
{
    static double ms[PARTS][MAX_ROUNDS];
    static const char *const parts[PARTS] = {"open", "start", "launches", "stop", "close", "all"};
    stitch__counters_options o = {.set = set_of(set_name), .max_kernels = SIX, .repeats = repeats};
    stitch_error *err = NULL;
    size_t passes = 0, count = 0;
    for (size_t r = 0; r < rounds; r++) {
        stitch__counters *c = NULL;
        int64_t at = stitch__now_ns(), start = at;
        if (!cupti)
            open_timed();
        clear_calls();
        check(stitch__counters_open(ctx, dev, cupti, &o, &c, &err), "open", err);
        lap(&at, &ms[OPEN][r]);
        check(stitch__counters_start(c, &err), "start", err);
        lap(&at, &ms[START][r]);
        count_six(c);
        lap(&at, &ms[LAUNCH][r]);
        check(stitch__counters_stop(c, &err), "stop", err);
        lap(&at, &ms[STOP][r]);
        passes = stitch__counters_passes(c);
        count = stitch__counters_count(c);
        stitch__counters_close(c);
        lap(&at, &ms[CLOSE][r]);
        ms[ALL][r] = (double)(at - start) / 1e6;
        if (r == 0 || r + 1 == rounds)
            print_calls(r ? "last round" : "first round");
    }
    printf("%s set, %zu passes, %zu of %d kernels, %s\n", set_name, passes, count, SIX,
           repeats ? "work repeated" : "kernels replayed");
    for (int p = 0; p < PARTS; p++) {
        double first = ms[p][0];
        qsort(ms[p], rounds, sizeof(ms[p][0]), by_value);
        printf("  %-10s first %9.2f ms, median %9.2f ms (%.2f to %.2f)\n", parts[p], first, ms[p][rounds / 2], ms[p][0],
               ms[p][rounds - 1]);
    }
}

static void plan_times(const char *chip, const char *set_name, size_t rounds)
{
    static double ms[MAX_ROUNDS];
    stitch_error *err = NULL;
    size_t size = 0, names_used = 0;
    for (size_t r = 0; r < rounds; r++) {
        stitch__metric_plan plan;
        int64_t at = stitch__now_ns();
        check(stitch__metric_plan_make(ctx, cupti, chip, NULL, set_of(set_name), NULL, 0, &plan, &err), "plan", err);
        size = plan.config_size;
        names_used = plan.name_count;
        stitch__metric_plan_free(&plan);
        lap(&at, &ms[r]);
        if (r == 0 || r + 1 == rounds)
            print_calls(r ? "last round" : "first round");
        clear_calls();
    }
    double first = ms[0];
    qsort(ms, rounds, sizeof(ms[0]), by_value);
    printf("%s set on %s: %zu names, a config image of %zu bytes; first %.2f ms, median %.2f ms (%.2f to %.2f)\n",
           set_name, chip, names_used, size, first, ms[rounds / 2], ms[0], ms[rounds - 1]);
}

/* Needs no GPU. */
static int plan_main(const char *chip, size_t rounds)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_error *err = NULL;
    o.device = "none";
    check(stitch_context_new(&ctx, &o, &err), "context", err);
    open_timed();
    int64_t at = stitch__now_ns();
    double ms = 0;
    check(stitch__cupti_open_profiler(ctx, cupti, &err), "CUPTI", err);
    lap(&at, &ms);
    printf("opening CUPTI's host part: %.2f ms\n", ms);
    plan_times(chip, "cheap", rounds);
    plan_times(chip, "full", rounds);
    stitch_context_free(ctx);
    return 0;
}

static size_t rounds_of(const char *text)
{
    int asked = text ? atoi(text) : 10;
    return asked < 1 ? 1 : asked > MAX_ROUNDS ? MAX_ROUNDS : (size_t)asked;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "time";
    if (strcmp(mode, "plan") == 0)
        return plan_main(argc > 2 ? argv[2] : "GH100", rounds_of(argc > 3 ? argv[3] : NULL));
    size_t rounds = rounds_of(argc > 2 ? argv[2] : NULL);
    set_up();
    if (strcmp(mode, "run") == 0) {
        six();
    } else if (strcmp(mode, "names") == 0) {
        print_names(argc > 2 ? argv[2] : NULL);
    } else if (strcmp(mode, "values") == 0) {
        print_values(argc > 2 ? argv[2] : NULL);
    } else if (strcmp(mode, "time") == 0) {
        int64_t start = stitch__now_ns();
        six();
        printf("%s, driver %d; six kernels, not counted: %.2f ms\n", dev->info.name, dev->info.driver_version,
               (double)(stitch__now_ns() - start) / 1e6);
        for (int repeats = 1; repeats >= 0; repeats--) {
            times("cheap", repeats, rounds);
            times("full", repeats, rounds);
        }
    } else {
        fprintf(stderr, "usage: bench_counters [time [ROUNDS] | plan CHIP [ROUNDS] | names SET | values SET | run]\n");
        return 2;
    }
    counter_work_close(&work);
    stitch__device_leave(dev);
    stitch_context_free(ctx);
    return 0;
}
