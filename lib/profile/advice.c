/* SPDX-License-Identifier: MIT
 *
 * Evaluates the rules: which hold, what they can gain, which of them say the same, what comes first.
 */
#include <math.h>
#include <stdio.h>

#include "profile/rules.h"

/* Of the kernels' time; kernels with less, all of one symbol together, get no advice of their own. */
#define SHARE_FROM 0.02
/* Of the run's time: what gains less is not worth a reader's time. */
#define GAIN_FROM 0.005
/* Of a kernel's time: a rule that explains so much hides the rules that it explains. */
#define EXPLAINS_FROM 0.10

enum { A_KERNEL = 3 /* advices */, CHAINS = 3 };

typedef struct candidate {
    stitch__advice advice;
    const stitch__rule *rule;
    double order;  /* where no gain is known */
    uint32_t more; /* kernels of the same symbol that it holds for, too */
    bool gone;
} candidate;

typedef struct evaluation {
    const stitch__facts *f;
    stitch__run_figures run;
    stitch__figures *figures;
    stitch__judged *judged;
    stitch__judged run_judged;
    size_t count, cap;
    candidate *list;
    stitch__advices *out;
} evaluation;

static const char *const bounds[] = {
#define X(name, word) word,
    STITCH__BOUND_CLASS_LIST(X)
#undef X
};

const char *stitch__bound_class_name(int bound)
{
    return bound >= 0 && bound < STITCH__BOUND_CLASSES ? bounds[bound] : bounds[STITCH__BOUND_UNKNOWN];
}

/* A copy in the result's arena, on one line: names and source lines in it are somebody else's text, and may be cut. */
static const char *keep(stitch__arena *arena, const char *text)
{
    stitch__buf b;
    char *copy = NULL;
    stitch__buf_init(&b, arena->ctx);
    stitch__buf_puts_clean(&b, text, strlen(text), SIZE_MAX);
    for (size_t i = 0; i < b.len; i++)
        b.data[i] = b.data[i] == '\n' || b.data[i] == '\t' ? ' ' : b.data[i];
    if (!b.failed)
        copy = stitch__arena_strndup(arena, b.data ? b.data : "", b.len);
    stitch__buf_free(&b);
    return copy;
}

static bool keep_verdict(evaluation *e, const stitch__judged *j, stitch__verdict *out)
{
    out->bound = j->bound;
    out->limit_us = j->limit_us;
    out->reached = j->reached;
    out->intensity = j->intensity;
    out->gb_s = j->gb_s;
    out->tflops = j->tflops;
    out->because = keep(&e->out->arena, j->because);
    return out->because != NULL;
}

/* ---- findings become advice ---- */

static const char *join(evaluation *e, const char *first, const char *second)
{
    stitch__arena *arena = &e->out->arena;
    char *both = stitch__arena_printf(arena, "%s%s%s", first, *first && *second ? " " : "", second);
    return both ? keep(arena, both) : NULL;
}

static int add(evaluation *e, const stitch__rule *rule, const stitch__subject *s, const stitch__finding *found)
{
    int rc = stitch__grow(e->out->arena.ctx, &e->list, &e->cap, e->count + 1, sizeof(*e->list));
    if (rc != STITCH_OK)
        return rc;
    candidate *c = &e->list[e->count];
    stitch__advice *a = &c->advice;
    memset(c, 0, sizeof(*c));
    c->rule = rule;
    a->rule = rule->id;
    a->kernel = s->k ? (int32_t)(s->k - e->f->kernels) : -1;
    a->step = s->k ? s->k->step : s->step;
    if (a->step < 0 || (size_t)a->step >= e->f->step_count)
        a->step = -1;
    if (s->k) {
        double part = fmin(fmax(stitch__or(found->part, 0), 0), 1);
        double work = stitch__or(stitch__measured(s->k->metric[STITCH__METRIC_INST]), 1);
        a->gain_us = part * stitch__or(s->g->total_us, 0);
        c->order = part * work * (double)(s->k->launches ? s->k->launches : 1);
    } else {
        a->gain_us = stitch__or(stitch__measured(found->gain_us), 0);
    }
    a->gain_us = fmin(a->gain_us, e->run.time_us);
    a->gain_share = e->run.time_us > 0 ? a->gain_us / e->run.time_us : 0;
    a->problem = rule->problem;
    a->evidence = keep(&e->out->arena, found->evidence);
    a->action = join(e, rule->action, found->action);
    a->file = keep(&e->out->arena, found->line ? found->line->file : "");
    a->source = keep(&e->out->arena, found->line ? found->line->text : "");
    a->line = found->line ? found->line->line : 0;
    if (!a->evidence || !a->action || !a->file || !a->source)
        return STITCH_E_NOMEM;
    e->count++;
    return STITCH_OK;
}

/* " a b " has a word. */
static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word)) {
        if (at > words && at[-1] == ' ' && at[n] == ' ')
            return true;
    }
    return false;
}

/* A kernel that stays takes as long as an empty one at the least. False: nothing is left to gain. */
static bool leave_an_empty_kernel(const stitch__subject *s, const stitch__rule *rule, stitch__finding *found)
{
    if (!s->k || isnan(s->g->time_us) || (rule->flags & STITCH__RULE_GOES) || !(found->part > 0))
        return true;
    found->part = fmin(found->part, 1 - STITCH__EMPTY_KERNEL_US / s->g->time_us);
    return found->part > 0 || (rule->flags & STITCH__RULE_INFORMS);
}

/* All rules about one subject, in the order of the table; those that an earlier one explains are left out. */
static int apply(evaluation *e, const stitch__subject *s, int about)
{
    size_t count, hiding_count = 0;
    const stitch__rule *rules = stitch__rules(&count), *hiding[64];
    int rc = STITCH_OK;
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        stitch__finding found;
        bool hidden = rules[i].about != about || (s->k && s->k->library && !(rules[i].flags & STITCH__RULE_LIBRARY));
        for (size_t h = 0; h < hiding_count && !hidden; h++)
            hidden = has_word(hiding[h]->hides, rules[i].id);
        memset(&found, 0, sizeof(found));
        if (hidden || !rules[i].applies(s, &found))
            continue;
        if (!leave_an_empty_kernel(s, &rules[i], &found))
            continue;
        bool explains =
            about != STITCH__RULE_KERNEL || found.part >= EXPLAINS_FROM || (rules[i].flags & STITCH__RULE_INFORMS);
        if (explains && hiding_count < STITCH__COUNT(hiding))
            hiding[hiding_count++] = &rules[i];
        rc = add(e, &rules[i], s, &found);
    }
    return rc;
}

/* ---- order ---- */

static int by_gain(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    if (a->advice.gain_us != b->advice.gain_us)
        return a->advice.gain_us > b->advice.gain_us ? -1 : 1;
    if (a->order != b->order)
        return a->order > b->order ? -1 : 1;
    if (a->rule != b->rule)
        return a->rule < b->rule ? -1 : 1;
    return (a->advice.kernel > b->advice.kernel) - (a->advice.kernel < b->advice.kernel);
}

static void keep_best(evaluation *e, size_t from, size_t most)
{
    if (e->count - from > 1)
        qsort(e->list + from, e->count - from, sizeof(*e->list), by_gain);
    if (e->count - from > most)
        e->count = from + most;
}

/* ---- kernels ---- */

static bool same_kernel(const stitch__kernel_fact *a, const stitch__kernel_fact *b)
{
    return *a->symbol ? strcmp(a->symbol, b->symbol) == 0 : !*b->symbol && strcmp(a->name, b->name) == 0;
}

static double share_of_symbol(const evaluation *e, size_t kernel)
{
    double share = 0;
    for (size_t i = 0; i < e->f->kernel_count; i++) {
        if (same_kernel(&e->f->kernels[i], &e->f->kernels[kernel]))
            share += stitch__or(e->figures[i].share, 0);
    }
    return share;
}

static int apply_to_kernels(evaluation *e, stitch__subject *s)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < e->f->kernel_count && rc == STITCH_OK; i++) {
        size_t from = e->count;
        if (!isnan(e->figures[i].share) && share_of_symbol(e, i) < SHARE_FROM)
            continue;
        s->k = &e->f->kernels[i];
        s->g = &e->figures[i];
        s->v = &e->judged[i];
        rc = apply(e, s, STITCH__RULE_KERNEL);
        keep_best(e, from, A_KERNEL);
    }
    s->k = NULL;
    s->g = NULL;
    s->v = NULL;
    return rc;
}

/* The same rule on the same machine code in several steps is one advice. */
static int merge(evaluation *e)
{
    for (size_t i = 0; i < e->count; i++) {
        candidate *a = &e->list[i];
        if (a->gone || a->advice.kernel < 0)
            continue;
        for (size_t j = i + 1; j < e->count; j++) {
            candidate *b = &e->list[j];
            if (b->gone || b->rule != a->rule || b->advice.kernel < 0 ||
                !same_kernel(&e->f->kernels[a->advice.kernel], &e->f->kernels[b->advice.kernel]))
                continue;
            a->advice.gain_us = fmin(a->advice.gain_us + b->advice.gain_us, e->run.time_us);
            a->advice.gain_share = e->run.time_us > 0 ? a->advice.gain_us / e->run.time_us : 0;
            a->order += b->order;
            a->more++;
            b->gone = true;
        }
        if (!a->more)
            continue;
        a->advice.evidence = stitch__arena_printf(&e->out->arena, "%s (and %" PRIu32 " more steps with this kernel)",
                                                  a->advice.evidence, a->more);
        if (!a->advice.evidence)
            return STITCH_E_NOMEM;
    }
    return STITCH_OK;
}

/* ---- steps ---- */

static int apply_to_chains(evaluation *e, stitch__subject *s)
{
    size_t from = e->count, steps = e->f->step_count;
    bool *follows = NULL;
    int rc = STITCH_OK;
    if (!steps)
        return STITCH_OK;
    follows = stitch__calloc(e->out->arena.ctx, steps, sizeof(*follows));
    if (!follows)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < steps; i++) {
        int32_t next = stitch__fusable_next(e->f, (int32_t)i);
        if (next >= 0)
            follows[next] = true;
    }
    for (size_t i = 0; i < steps && rc == STITCH_OK; i++) {
        s->step = (int32_t)i;
        if (!follows[i] && stitch__fusable_next(e->f, s->step) >= 0)
            rc = apply(e, s, STITCH__RULE_STEPS);
    }
    s->step = -1;
    keep_best(e, from, CHAINS);
    stitch_free(follows);
    return rc;
}

/* ---- all of it ---- */

static int judge(evaluation *e)
{
    stitch__advices *out = e->out;
    size_t n = e->f->kernel_count;
    if (n) {
        e->figures = stitch__calloc(out->arena.ctx, n, sizeof(*e->figures));
        e->judged = stitch__calloc(out->arena.ctx, n, sizeof(*e->judged));
        out->kernels = stitch__arena_array(&out->arena, n, sizeof(*out->kernels));
        if (!e->figures || !e->judged || !out->kernels)
            return STITCH_E_NOMEM;
    }
    stitch__figures_of_run(e->f, &e->run);
    for (size_t i = 0; i < n; i++) {
        stitch__figures_of(e->f, &e->run, &e->f->kernels[i], &e->figures[i]);
        stitch__judge_kernel(e->f, &e->f->kernels[i], &e->figures[i], &e->judged[i]);
        if (!keep_verdict(e, &e->judged[i], &out->kernels[i]))
            return STITCH_E_NOMEM;
    }
    out->kernel_count = n;
    stitch__judge_run(e->f, &e->run, e->figures, e->judged, &e->run_judged);
    return keep_verdict(e, &e->run_judged, &out->run) ? STITCH_OK : STITCH_E_NOMEM;
}

static int list(evaluation *e)
{
    stitch__subject s = {e->f, &e->run, e->run_judged.bound, NULL, NULL, NULL, e->figures, -1};
    int rc = apply_to_kernels(e, &s);
    if (rc == STITCH_OK)
        rc = merge(e);
    if (rc == STITCH_OK)
        rc = apply(e, &s, STITCH__RULE_RUN);
    if (rc == STITCH_OK)
        rc = apply_to_chains(e, &s);
    if (rc != STITCH_OK || !e->count)
        return rc;
    keep_best(e, 0, SIZE_MAX);
    e->out->list = stitch__arena_array(&e->out->arena, e->count, sizeof(*e->out->list));
    if (!e->out->list)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < e->count; i++) {
        const candidate *c = &e->list[i];
        bool tiny = c->advice.gain_us > 0 && c->advice.gain_share < GAIN_FROM;
        if (!c->gone && (!tiny || (c->rule->flags & STITCH__RULE_INFORMS)))
            e->out->list[e->out->count++] = c->advice;
    }
    return STITCH_OK;
}

int stitch__advise(const stitch_context *ctx, const stitch__facts *f, stitch__advices *out)
{
    evaluation e;
    memset(&e, 0, sizeof(e));
    memset(out, 0, sizeof(*out));
    out->arena.ctx = ctx;
    e.f = f;
    e.out = out;
    int rc = judge(&e);
    if (rc == STITCH_OK)
        rc = list(&e);
    stitch_free(e.figures);
    stitch_free(e.judged);
    stitch_free(e.list);
    if (rc != STITCH_OK)
        stitch__advices_free(out);
    return rc;
}

void stitch__advices_free(stitch__advices *a)
{
    if (!a)
        return;
    stitch__arena_free(&a->arena);
    memset(a, 0, sizeof(*a));
}
