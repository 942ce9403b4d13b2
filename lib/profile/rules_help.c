/* SPDX-License-Identifier: MIT
 *
 * What rules ask of lines and steps, and words that several use.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "profile/rules.h"

#include <stitch/task.h>

void stitch__say(char out[STITCH__EVIDENCE_BYTES], const char *fmt, ...)
{
    size_t len = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    stitch__vformat(out + len, STITCH__EVIDENCE_BYTES - len, fmt, ap);
    va_end(ap);
}

double stitch__metric_of(const stitch__kernel_fact *k, int which)
{
    return stitch__measured(k->metric[which]);
}

size_t stitch__lines_of(const stitch__kernel_fact *k)
{
    return k->line_count < STITCH__FACTS_LINES ? k->line_count : STITCH__FACTS_LINES;
}

uint64_t stitch__line_samples(const stitch__line_fact *line, const char *reason)
{
    for (size_t i = 0; i < line->reason_count && i < STITCH__FACTS_REASONS; i++) {
        if (line->reasons[i].name && strcmp(line->reasons[i].name, reason) == 0)
            return line->reasons[i].samples;
    }
    return 0;
}

const stitch__line_fact *stitch__waiting_line(const stitch__kernel_fact *k, const char *reason, const char *other)
{
    const stitch__line_fact *worst = NULL;
    double most = 0;
    for (size_t i = 0; i < stitch__lines_of(k); i++) {
        const stitch__line_fact *l = &k->lines[i];
        double samples = (double)stitch__line_samples(l, reason) + (double)stitch__line_samples(l, other);
        if (l->line && samples > most) {
            most = samples;
            worst = l;
        }
    }
    return worst;
}

static double over(uint64_t value, uint64_t ideal)
{
    return value > ideal ? (double)(value - ideal) : 0;
}

static double line_weight(const stitch__line_fact *l, char what)
{
    return what == 'g'   ? over(l->sectors, l->ideal_sectors)
           : what == 's' ? over(l->wavefronts, l->ideal_wavefronts)
                         : (double)(l->samples ? l->samples : l->instructions);
}

const stitch__line_fact *stitch__heaviest_line(const stitch__kernel_fact *k, char what)
{
    const stitch__line_fact *worst = NULL;
    double most = 0;
    for (size_t i = 0; i < stitch__lines_of(k); i++) {
        double weight = line_weight(&k->lines[i], what);
        if (k->lines[i].line && weight > most) {
            most = weight;
            worst = &k->lines[i];
        }
    }
    return worst;
}

double stitch__line_share(const stitch__kernel_fact *k, const stitch__line_fact *line)
{
    double all = 0;
    for (size_t i = 0; i < stitch__lines_of(k); i++)
        all += line_weight(&k->lines[i], 'w');
    all = line->samples ? fmax(all, (double)k->samples) : all;
    return all > 0 && (!line->samples || all >= STITCH__SAMPLES_FROM) ? line_weight(line, 'w') / all : NAN;
}

/* The text begins with a literal number and nothing else of a factor: "2.0f;" */
static bool literal(const char *text)
{
    size_t n = strspn(text, "0123456789.f");
    return n > 0 && strchr(" ;)*+-/,", text[n]) != NULL;
}

bool stitch__sums_products(const char *text)
{
    const char *add = strstr(text, "+="), *star = add ? strchr(add, '*') : NULL, *left, *right, *end;
    const char *fma = strstr(text, "fma"), *open = fma ? strchr(fma, '(') : NULL;
    if (open) {
        left = open + 1;
        end = strchr(left, ',');
        if (!end || !strchr(end + 1, ','))
            return false;
        right = end + 1;
    } else if (star) {
        left = add + 2;
        end = star;
        right = star + 1;
    } else {
        return false;
    }
    left += strspn(left, " ");
    right += strspn(right, " ");
    while (end > left && end[-1] == ' ')
        end--;
    return end > left && *right && !memchr(left, ';', (size_t)(end - left)) && !literal(left) && !literal(right) &&
           strncmp(left, right, (size_t)(end - left)) != 0;
}

/* "red" or "atom" of PTX: a word, and a dot and a qualifier after it. */
static bool is_ptx_atomic(const char *text, const char *at, const char *after)
{
    static const char *const qualifiers[] = {"global", "shared", "relaxed", "release", "acq",     "async",
                                             "gpu",    "cta",    "sys",     "add",     "cluster", "noftz"};
    bool word = at > text && (at[-1] == '_' || isalnum((unsigned char)at[-1]));
    if (word && !(at - text > 1 && at[-2] == '\\')) /* "\tred." */
        return false;
    for (size_t i = 0; i < STITCH__COUNT(qualifiers); i++) {
        if (strncmp(after, qualifiers[i], strlen(qualifiers[i])) == 0)
            return true;
    }
    return false;
}

bool stitch__is_atomic(const char *text)
{
    static const char *const ptx[] = {"red.", "atom."};
    const char *comment = strstr(text, "//"), *at = strstr(text, "atomic");
    if (at && (!comment || at < comment))
        return true;
    for (size_t i = 0; i < STITCH__COUNT(ptx); i++) {
        for (at = strstr(text, ptx[i]); at && (!comment || at < comment); at = strstr(at + 1, ptx[i])) {
            if (is_ptx_atomic(text, at, at + strlen(ptx[i])))
                return true;
        }
    }
    return false;
}

const stitch__line_fact *stitch__product_line(const stitch__kernel_fact *k, double *share)
{
    const stitch__line_fact *line = stitch__heaviest_line(k, 'w');
    *share = line ? stitch__line_share(k, line) : NAN;
    return line && stitch__sums_products(line->text) && *share >= STITCH__WAIT_FROM ? line : NULL;
}

const stitch__step_fact *stitch__step_of(const stitch__facts *f, int32_t step)
{
    return step >= 0 && (size_t)step < f->step_count ? &f->steps[step] : NULL;
}

/* Products of a library read their operands from memory, and a host's operator is what it is. */
int32_t stitch__fusable_next(const stitch__facts *f, int32_t at)
{
    const stitch__step_fact *step = stitch__step_of(f, at), *next = step ? stitch__step_of(f, step->next) : NULL;
    if (!next || step->next <= at || strcmp(step->kind, "op") == 0 || strcmp(next->kind, "op") == 0 ||
        strcmp(next->kind, "gemm") == 0)
        return -1;
    return step->next;
}

const char *stitch__step_name(const stitch__step_fact *step)
{
    return *step->name ? step->name : step->kind;
}

double stitch__step_time(const stitch__subject *s, int32_t step, double *launches)
{
    double time = NAN;
    *launches = 1;
    for (size_t i = 0; i < s->f->kernel_count; i++) {
        const stitch__kernel_fact *k = &s->f->kernels[i];
        if (k->step != step)
            continue;
        *launches = (double)(k->launches ? k->launches : 1);
        time = stitch__or(time, 0) + s->figures[i].total_us + stitch__or(stitch__measured(k->gap_us), 0) * *launches;
    }
    return time;
}

stitch__figure_text stitch__count(double value)
{
    static const char units[] = " kMGTP";
    stitch__figure_text t;
    double rest = stitch__or(value, 0);
    size_t unit = 0;
    for (; rest >= (unit ? 1e3 : 1e4) && unit + 2 < sizeof(units); unit++)
        rest /= 1e3;
    if (unit && rest < 1e3)
        stitch__format(t.s, sizeof(t.s), "%.3g %c", rest, units[unit]);
    else
        stitch__format(t.s, sizeof(t.s), "%.4g", stitch__or(value, 0));
    return t;
}

stitch__figure_text stitch__time(double us)
{
    stitch__figure_text t;
    if (us < 1e3)
        stitch__format(t.s, sizeof(t.s), "%.2f us", us);
    else if (us < 1e6)
        stitch__format(t.s, sizeof(t.s), "%.2f ms", us / 1e3);
    else
        stitch__format(t.s, sizeof(t.s), "%.2f s", us / 1e6);
    return t;
}

stitch__figure_text stitch__level(const char *part, double share)
{
    stitch__figure_text t;
    if (strcmp(part, "issue slots") == 0)
        stitch__format(t.s, sizeof(t.s), "%.0f %% of the issue slots are taken", 100 * share);
    else
        stitch__format(t.s, sizeof(t.s), "%s at %.0f %% of %s peak", part, 100 * share,
                       strcmp(part, "tensor cores") == 0 ? "their" : "its");
    return t;
}

const char *stitch__limiter_hint(const char *limiter)
{
    static const char *const what[][2] = {
        {"registers",
         "Registers limit it: __launch_bounds__(threads, blocks), fewer values alive at once, less unrolling."},
        {"shared memory", "Shared memory limits it: smaller tiles, fewer stages, or reuse of one buffer."},
        {"blocks", "The number of blocks a multiprocessor limits it: use larger blocks."},
        {"warps", "The block size limits it: take one that divides the warps of a multiprocessor."},
    };
    for (size_t i = 0; i < STITCH__COUNT(what); i++) {
        if (strcmp(what[i][0], limiter) == 0)
            return what[i][1];
    }
    return "";
}

const char *stitch__products_hint(int precision)
{
    return precision == STITCH_PRECISION_TF32  ? "The policy allows TF32 products."
           : precision == STITCH_PRECISION_F16 ? "The policy allows half products with float32 accumulation."
           : precision == STITCH_PRECISION_ANY ? "The policy allows any products within the tolerance."
                                               : "Whether TF32 or half products are precise enough is not known here.";
}
