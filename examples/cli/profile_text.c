/* SPDX-License-Identifier: MIT
 *
 * A profile for people: verdict, kernels, the lines that matter, advice. It prints what docs/profile.md describes.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { LINES = 12, KERNELS = 32, NAME = 34 };

static double real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key)); /* 0: not known */
}

static long long whole(const json_t *object, const char *key)
{
    return (long long)real(object, key);
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static double metric(const json_t *kernel, const char *key)
{
    return real(json_object_get(kernel, "metrics"), key);
}

static bool known(const json_t *object, const char *key)
{
    return json_is_number(json_object_get(object, key));
}

static double share_or_unknown(const json_t *object, const char *key)
{
    return known(object, key) ? real(object, key) : -1;
}

/* A counter in per cent. CUPTI's of a multiprocessor's pipes leave out the time in which it had no block. */
static double counted_share(const json_t *kernel, const char *key, bool while_active)
{
    const json_t *metrics = json_object_get(kernel, "metrics");
    double active = while_active && known(metrics, "sm_active_pct") ? real(metrics, "sm_active_pct") / 100 : 1;

    return known(metrics, key) ? active * real(metrics, key) / 100 : -1;
}

/* Of what the verdict compares with, where that is known. */
static double dram_share(const json_t *facts, const json_t *kernel, const json_t *verdict)
{
    double ceiling = real(json_object_get(facts, "ceilings"), "dram_gb_s"), share;

    if (!known(verdict, "gb_per_s") || ceiling <= 0)
        return counted_share(kernel, "dram_pct", false);
    share = real(verdict, "gb_per_s") / ceiling;
    return share < 1 ? share : 1;
}

static void put_time(double us)
{
    if (us <= 0)
        printf("%10s", "-");
    else if (us < 1e3)
        printf("%7.2f us", us);
    else
        printf("%7.2f ms", us / 1e3);
}

/* A share below 0 is not known; 0 is a value. */
static void put_percent(double share, int width)
{
    if (share >= 0)
        printf("  %*.0f %%", width, 100 * share);
    else
        printf("  %*s", width + 2, "-");
}

/* "name (run[2])": a long name is cut, its place is not. */
static void put_name(const json_t *kernel, const json_t *steps)
{
    char both[NAME + 1], place[NAME / 2] = "";
    const char *name = text(kernel, "name");
    json_t *step = json_array_get(steps, (size_t)whole(kernel, "step"));
    size_t room;

    if (*text(step, "place"))
        snprintf(place, sizeof(place), " (%.*s)", NAME / 2 - 5, text(step, "place"));
    room = NAME - strlen(place);
    if (strlen(name) > room)
        snprintf(both, sizeof(both), "%.*s..%s", (int)room - 2, name, place);
    else
        snprintf(both, sizeof(both), "%s%s", name, place);
    printf("  %-*s", NAME, both);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void put_timed(const json_t *facts, const json_t *verdicts)
{
    json_t *kernel, *kernels = json_object_get(facts, "kernels");
    size_t i;

    printf("\n  share      time      x  %-*s  bound    reached  DRAM  tensor  issue  occup.  registers\n", NAME,
           "kernel");
    json_array_foreach(kernels, i, kernel)
    {
        const json_t *verdict = json_array_get(verdicts, i);
        if (i == KERNELS)
            break;
        printf(" %5.1f %%", 100 * real(kernel, "share"));
        put_time(real(kernel, "time_us"));
        printf("  %5lld", whole(kernel, "launches"));
        put_name(kernel, json_object_get(facts, "steps"));
        printf("  %-8s", text(verdict, "bound"));
        put_percent(share_or_unknown(verdict, "reached"), 4);
        put_percent(dram_share(facts, kernel, verdict), 2);
        put_percent(counted_share(kernel, "tensor_active_pct", true), 4);
        put_percent(counted_share(kernel, "issue_pct", false), 3);
        put_percent(share_or_unknown(kernel, "occupancy"), 4);
        printf("  %9lld\n", whole(kernel, "registers"));
    }
}

/* What the simulator counts, a launch. */
static void put_counted(const json_t *facts, const json_t *verdicts)
{
    json_t *kernel, *kernels = json_object_get(facts, "kernels");
    double all = 0;
    size_t i;

    json_array_foreach(kernels, i, kernel) all += metric(kernel, "inst") * real(kernel, "launches");
    printf(
        "\n instr.      x  %-*s  bound     warp inst.  global sectors  x ideal  shared wavefr.  x ideal  blocks run\n",
        NAME, "kernel");
    json_array_foreach(kernels, i, kernel)
    {
        double sectors = metric(kernel, "global_sectors"), shared = metric(kernel, "shared_wavefronts"),
               ideal = metric(kernel, "global_ideal_sectors"), ideal_shared = metric(kernel, "shared_ideal_wavefronts");
        if (i == KERNELS)
            break;
        printf(" %4.0f %%  %5lld", all > 0 ? 100 * metric(kernel, "inst") * real(kernel, "launches") / all : 0,
               whole(kernel, "launches"));
        put_name(kernel, json_object_get(facts, "steps"));
        printf("  %-8s  %10.0f  %14.0f  %7.2f  %14.0f  %7.2f  %8.0f %%\n", text(json_array_get(verdicts, i), "bound"),
               metric(kernel, "inst"), sectors, ideal > 0 ? sectors / ideal : 1, shared,
               ideal_shared > 0 ? shared / ideal_shared : 1, 100 * real(kernel, "counted"));
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

typedef struct line {
    const json_t *kernel, *line;
    double share; /* of the samples or instructions of all kernels, weighted by their time */
} line;

static int by_share(const void *a, const void *b)
{
    const line *x = a, *y = b;
    return x->share < y->share ? 1 : x->share > y->share ? -1 : 0;
}

/* A line's weight: its share of the kernel's samples times the kernel's share of the run; counted: its instructions. */
static double weight(const json_t *kernel, const json_t *l, bool counted)
{
    double samples = real(kernel, "samples");

    if (counted)
        return real(l, "instructions") * real(kernel, "launches");
    return samples > 0 ? real(l, "samples") / samples * real(kernel, "share") : 0;
}

static void put_line(const line *l, double all, bool counted)
{
    json_t *reason, *reasons = json_object_get(l->line, "reasons");
    size_t i;

    printf(" %5.1f %%  %s:%lld  %s", 100 * l->share / all, text(l->line, "file"), whole(l->line, "line"),
           text(l->kernel, "name"));
    json_array_foreach(reasons, i, reason)
    {
        if (i < 3)
            printf("%s %s %.0f %%", i ? "," : " :", text(reason, "name"),
                   100 * real(reason, "samples") / real(l->line, "samples"));
    }
    if (counted && real(l->line, "sectors") > 1.05 * real(l->line, "ideal_sectors"))
        printf(" : %.2f x the sectors that it needs", real(l->line, "sectors") / real(l->line, "ideal_sectors"));
    if (counted && real(l->line, "wavefronts") > 1.05 * real(l->line, "ideal_wavefronts"))
        printf(" : %.2f x the wavefronts that it needs",
               real(l->line, "wavefronts") / real(l->line, "ideal_wavefronts"));
    if (*text(l->line, "text"))
        printf("\n          | %s", text(l->line, "text"));
    putchar('\n');
}

static void put_lines(const json_t *facts, bool counted)
{
    json_t *kernel, *l, *kernels = json_object_get(facts, "kernels");
    size_t count = 0, at = 0, i, k;
    double all = counted ? 0 : 1;
    line *list;

    json_array_foreach(kernels, i, kernel) count += json_array_size(json_object_get(kernel, "lines"));
    list = count ? calloc(count, sizeof(*list)) : NULL;
    if (!list)
        return;
    json_array_foreach(kernels, i, kernel)
    {
        if (counted)
            all += metric(kernel, "inst") * real(kernel, "launches");
        json_array_foreach(json_object_get(kernel, "lines"), k, l) list[at++] =
            (line){kernel, l, weight(kernel, l, counted)};
    }
    qsort(list, count, sizeof(*list), by_share);
    if (list[0].share > 0 && all > 0)
        printf("\n%s\n",
               counted ? "Lines with the most instructions" : "Lines that warps wait at (of the run's kernel time)");
    for (i = 0; i < count && i < LINES && list[i].share > 0 && all > 0; i++)
        put_line(&list[i], all, counted);
    free(list);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void put_advice(const json_t *advice, const json_t *kernels)
{
    json_t *a;
    size_t i;

    if (json_array_size(advice))
        printf("\nAdvice (gains are upper bounds)\n");
    json_array_foreach(advice, i, a)
    {
        json_t *kernel = json_object_get(a, "kernel");
        printf("%3zu. [%s] %s%s%s", i + 1, text(a, "rule"),
               json_is_integer(kernel) ? text(json_array_get(kernels, (size_t)json_integer_value(kernel)), "name") : "",
               json_is_integer(kernel) ? ": " : "", text(a, "problem"));
        if (real(a, "gain_us") > 0)
            printf(" Up to %.2f us, %.0f %% of the run.", real(a, "gain_us"), 100 * real(a, "gain_share"));
        printf("\n     %s.\n", text(a, "evidence"));
        if (*text(a, "file"))
            printf("     %s:%lld | %s\n", text(a, "file"), whole(a, "line"), text(a, "source"));
        printf("     Do: %s\n", text(a, "action"));
    }
}

static void put_missing(const json_t *facts)
{
    static const char *const parts[][2] = {
        {"no_timeline", "times"}, {"no_counters", "counters"}, {"no_samples", "stalls by line"}};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (*text(facts, parts[i][0]))
            printf("\nNot measured: %s (%s)\n", parts[i][1], text(facts, parts[i][0]));
    if (json_array_size(json_object_get(facts, "kernels")) > KERNELS)
        printf("\nOnly the first %d kernels are listed; --json has all.\n", KERNELS);
}

static void put_extra(const json_t *facts)
{
    json_t *names = json_object_get(facts, "extra_names"), *kernel, *name;
    size_t i, k;

    if (!json_array_size(names))
        return;
    printf("\nMetrics asked for, a launch\n");
    json_array_foreach(json_object_get(facts, "kernels"), i, kernel)
    {
        printf("  %s\n", text(kernel, "name"));
        json_array_foreach(names, k, name)
        {
            const json_t *value = json_array_get(json_object_get(kernel, "extra"), k);
            if (json_is_number(value))
                printf("    %-72s %.6g\n", json_string_value(name), json_number_value(value));
            else
                printf("    %-72s not known\n", json_string_value(name));
        }
    }
}

void cli_print_profile(const json_t *profile)
{
    const json_t *facts = json_object_get(profile, "facts"), *advice = json_object_get(profile, "advice"),
                 *verdict = json_object_get(advice, "verdict"), *verdicts = json_object_get(advice, "kernels"),
                 *run = json_object_get(facts, "run");
    bool counted = strcmp(text(facts, "source"), "simulator") == 0;

    if (strcmp(text(verdict, "bound"), "unknown") == 0)
        printf("what bounds it is not known: %s\n", text(verdict, "because"));
    else
        printf("%s-bound: %s\n", text(verdict, "bound"), text(verdict, "because"));
    printf("%s (%s), %lld multiprocessors", text(facts, "device"), text(facts, "arch"),
           whole(facts, "multiprocessors"));
    if (real(run, "busy_us") > 0)
        printf("; a run: %.2f us, busy %.2f us, %lld launches%s",
               real(run, "wall_us") > 0 ? real(run, "wall_us") : real(run, "busy_us") + real(run, "idle_us"),
               real(run, "busy_us"), whole(run, "launches"),
               json_is_true(json_object_get(run, "graph")) ? " in a graph" : "");
    putchar('\n');
    if (json_array_size(json_object_get(facts, "kernels")))
        (counted ? put_counted : put_timed)(facts, verdicts);
    put_lines(facts, counted);
    put_extra(facts);
    put_advice(json_object_get(advice, "advice"), json_object_get(facts, "kernels"));
    put_missing(facts);
}
