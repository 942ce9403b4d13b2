/* SPDX-License-Identifier: MIT
 *
 * Reading and judging profiles, for the tests that make them.
 */
#ifndef STITCH_TESTS_PROFILE_CHECK_H
#define STITCH_TESTS_PROFILE_CHECK_H

#include <math.h>

#include "device.h"
#include "json_path.h"
#include "profile_programs.h"
#include <stitch/profile.h>

static void print_lines(const char *text)
{
    for (const char *line = text; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n'))
        printf("#   %.*s\n", (int)strcspn(line, "\n"), line);
}

static void print_profile(const char *what, const stitch_profile *p)
{
    char *text = NULL;
    CHECK_OK(stitch_profile_text(p, 0, &text, &err));
    printf("# %s:\n", what);
    print_lines(text);
    stitch_free(text);
}

/* A member of the profile's JSON by path "facts.kernels.0.step"; NULL: there is none. Kept until the next call. */
static const json_t *profile_at(const stitch_profile *p, const char *path)
{
    static json_t *root;
    return json_at(&root, stitch_profile_json(p), path);
}

/* A string member; "" if it is missing, as in facts. */
static const char *said(const stitch_profile *p, const char *path)
{
    const char *s = json_string_value(profile_at(p, path));
    return s ? s : "";
}

static stitch_profile_verdict verdict_of_run(const stitch_profile *p)
{
    stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
    CHECK_INT(stitch_profile_verdict_get(p, SIZE_MAX, &v), STITCH_OK);
    return v;
}

/* The first advice of a rule; false: there is none. */
static bool find_advice(const stitch_profile *p, const char *rule, stitch_profile_advice *out)
{
    for (size_t i = 0; i < stitch_profile_advice_count(p); i++) {
        *out = (stitch_profile_advice)STITCH_PROFILE_ADVICE_INIT;
        CHECK_INT(stitch_profile_advice_get(p, i, out), STITCH_OK);
        if (strcmp(out->rule, rule) == 0)
            return true;
    }
    return false;
}

/* " a b " has a word. */
static bool has_word(const char *words, const char *word)
{
    char spaced[64];
    snprintf(spaced, sizeof(spaced), " %s ", word);
    return strstr(words, spaced) != NULL;
}

static unsigned line_of(const char *source, const char *part)
{
    const char *at = strstr(source, part);
    unsigned line = 1;
    if (!at)
        FAIL("\"%s\" is not in the source", part);
    for (const char *c = source; c < at; c++)
        line += *c == '\n';
    return line;
}

/* Gains are upper bounds of real times: not more than the kernel's own, and not more than the run's. */
static void check_gains(const char *what, const stitch_profile *p)
{
    double run = verdict_of_run(p).time_us, before = INFINITY;
    CHECK(run > 0);
    for (size_t i = 0; i < stitch_profile_advice_count(p); i++) {
        stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
        double time = 0;
        CHECK_INT(stitch_profile_advice_get(p, i, &a), STITCH_OK);
        for (size_t k = 0; k < stitch_profile_kernel_count(p); k++) {
            stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
            CHECK_INT(stitch_profile_verdict_get(p, k, &v), STITCH_OK);
            if (strcmp(v.name, a.kernel) == 0)
                time += v.time_us;
        }
        if (a.gain_us > run * (1 + 1e-9) || (*a.kernel && a.gain_us > time * (1 + 1e-9)))
            FAIL("%s: %s gains %.2f us of a kernel of %.2f us in a run of %.2f us", what, a.rule, a.gain_us, time, run);
        if (a.gain_us > before)
            FAIL("%s: %s gains more than what comes before it", what, a.rule);
        CHECK(*a.problem && *a.evidence && a.gain_us >= 0 && a.gain_share >= 0 && a.gain_share <= 1);
        before = a.gain_us;
    }
}

static void check_diagnosis(const diagnosis *d, const char *source, const stitch_profile *p)
{
    stitch_profile_verdict run = verdict_of_run(p);
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    char words[512];

    if (!has_word(d->bounds, run.bound))
        FAIL("%s: bound by %s (%s), not by%s", d->what, run.bound, run.because, d->bounds);
    snprintf(words, sizeof(words), "%s", d->must);
    for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest));)
        if (!find_advice(p, word, &a))
            FAIL("%s: no advice %s", d->what, word);
    for (size_t i = 0; i < stitch_profile_advice_count(p); i++) {
        CHECK_INT(stitch_profile_advice_get(p, i, &a), STITCH_OK);
        if (has_word(d->must_not, a.rule) || (d->only && !has_word(d->only, a.rule)))
            FAIL("%s: advice %s, which is wrong: %s", d->what, a.rule, a.evidence);
    }
    if (d->line_rule) {
        if (!find_advice(p, d->line_rule, &a))
            FAIL("%s: no advice %s", d->what, d->line_rule);
        bool lines = !*said(p, "facts.no_samples"); /* in a process that has traced graphs there are none */
        if (lines && a.line != line_of(source, d->line_part))
            FAIL("%s: %s names line %u of \"%s\", not %u", d->what, d->line_rule, a.line, a.file,
                 line_of(source, d->line_part));
        if (lines)
            CHECK_HAS(a.file, "program.cu");
    }
    check_gains(d->what, p);
}

/* Counters or samples that this system does not give are no fault of the diagnosis. */
static void need_all_parts(const stitch_profile *p)
{
    static const char *const parts[] = {"facts.no_timeline", "facts.no_counters", "facts.no_samples"};
    char why[200];
    for (size_t i = 0; i < STITCH__COUNT(parts); i++) {
        snprintf(why, sizeof(why), "%s: %.160s", parts[i], said(p, parts[i]));
        if (strstr(why, "permission") || strstr(why, "privilege"))
            SKIP(why);
        if (strstr(why, "graphs were traced in it before") ||
            strncmp(said(p, parts[i]), "not offered by this device", 26) == 0)
            continue;
        if (*said(p, parts[i]))
            FAIL("%s", why);
    }
}

#endif
