/* SPDX-License-Identifier: MIT
 *
 * Stage correct: trials with fresh inputs against the reference.
 */
#include "verify/verify.h"

/* One run of the candidate on the inputs that are there. */
static int run_candidate(stitch__verify *v, int set, int *code, stitch_error **why, stitch_error **err)
{
    const stitch__run run = stitch__run_of_set(set);
    return stitch__candidate_run(v, &v->scope, &run, 1, set ? v->again : v->first, code, why, err);
}

/* The candidate wrote to what it may only read. */
static int check_unchanged(stitch__verify *v, stitch__trial *t, stitch_error **err)
{
    size_t changed;
    int rc = stitch__find_changed(v, true, &changed, err);
    stitch__buf b;

    if (rc || changed == SIZE_MAX)
        return rc;
    stitch__buf_init(&b, v->ctx);
    stitch__buf_printf(&b, "the program changed its %s %s, which it may only read",
                       v->infos[changed].role == STITCH_TENSOR_WEIGHT ? "weight" : "input", v->infos[changed].name);
    t->note = stitch__buf_take(&b, NULL);
    return t->note ? STITCH_OK : stitch__err_nomem(v->ctx, err);
}

/* What passes is never worse than what does not, whatever their figures are. */
static bool is_worse(const stitch__trial_output *now, const stitch__trial_output *kept)
{
    bool passes = stitch__output_passes(now);

    if (passes != stitch__output_passes(kept))
        return !passes;
    return now->c.mismatches > kept->c.mismatches || now->c.unwritten > kept->c.unwritten ||
           (now->c.mismatches == kept->c.mismatches && now->c.worst_key > kept->c.worst_key);
}

/* Figures of a later step of the same trial (tasks with states), or of a second run: the worse one stays. */
static void keep_worse(stitch__trial_output *kept, const stitch__trial_output *now, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (is_worse(&now[k], &kept[k]))
            kept[k] = now[k];
}

/* The measure is run where it may matter, and once for the report. */
static bool needs_budget(const stitch__verify *v, const stitch__trial *t, const stitch__trial_output *outputs)
{
    bool needed = t == v->report->trials || (!t->strict && stitch__budget_exact(v));
    for (size_t k = 0; k < t->output_count; k++)
        needed |= outputs[k].c.mismatches > 0;
    return needed;
}

/* Where the second run left other bits it is judged, too: a program may be off in every other run only. */
static int judge_second(stitch__verify *v, const stitch__trial *t, stitch__trial_output *outputs, stitch_error **err)
{
    size_t count = t->output_count;
    stitch__trial_output *second;
    bool differ = false;
    int rc;

    for (size_t k = 0; k < count; k++)
        differ |= outputs[k].c.differ > 0;
    if (!differ)
        return STITCH_OK;
    second = stitch__calloc(v->ctx, count, sizeof(*second));
    if (!second)
        return stitch__err_nomem(v->ctx, err);
    rc = stitch__compare_set(v, v->again, NULL, NULL, second, err);
    for (size_t k = 0; !rc && k < count; k++) {
        second[k].second_run = true;
        second[k].c.differ = outputs[k].c.differ;
    }
    if (!rc && needs_budget(v, t, second))
        rc = stitch__budget_apply(v, second, err);
    if (!rc)
        keep_worse(outputs, second, count);
    stitch_free(second);
    return rc;
}

/* One step: candidate twice, reference once, comparison. */
static int step(stitch__verify *v, stitch__trial *t, uint64_t seed, const stitch__variant *variant,
                stitch__trial_output *outputs, int *code, stitch_error **why, stitch_error **err)
{
    int rc = stitch__draw_inputs(v, seed, variant, err);

    if (!rc)
        rc = stitch__hash_tensors(v, true, err);
    if (!rc)
        rc = run_candidate(v, 0, code, why, err);
    if (!rc && !*code)
        rc = run_candidate(v, 1, code, why, err);
    if (!rc && !*code)
        rc = check_unchanged(v, t, err);
    if (rc || *code || t->note)
        return rc;
    rc = stitch__oracle_run(v->oracle, v->stream, err);
    if (!rc)
        rc = stitch__stream_wait(v->dev, v->stream, &v->scope, "running the reference", err);
    if (!rc)
        rc = stitch__compare_set(v, v->first, NULL, v->again, outputs, err);
    if (!rc && needs_budget(v, t, outputs))
        rc = stitch__budget_apply(v, outputs, err);
    if (!rc)
        rc = judge_second(v, t, outputs, err);
    return rc;
}

/* Several steps where there are states that live from run to run. */
static int run_trial(stitch__verify *v, stitch__trial *t, const stitch__variant *variant, int *code, stitch_error **why,
                     stitch_error **err)
{
    int steps = v->has_states ? 3 : 1, rc;
    stitch__trial_output *now = stitch__calloc(v->ctx, t->output_count ? t->output_count : 1, sizeof(*now));

    *code = STITCH_OK;
    if (!now)
        return stitch__err_nomem(v->ctx, err);
    rc = v->candidate.ops->clear_states(v->candidate.self, &v->scope, 0, err);
    if (!rc)
        rc = v->candidate.ops->clear_states(v->candidate.self, &v->scope, 1, err);
    if (!rc)
        rc = stitch__clear_states(v, v->want, err);
    for (int s = 0; !rc && !*code && !t->note && s < steps; s++) {
        uint64_t seed = s ? stitch__seed_derive(t->seed, STITCH__SEED_TRIAL, (uint64_t)s) : t->seed;
        rc = step(v, t, seed, variant, now, code, why, err);
        if (s == 0)
            memcpy(t->outputs, now, t->output_count * sizeof(*now));
        else
            keep_worse(t->outputs, now, t->output_count);
    }
    stitch_free(now);
    t->ran = !rc && !*code;
    t->passed = t->ran && !t->note;
    for (size_t k = 0; k < t->output_count; k++) {
        t->passed = t->passed && stitch__output_passes(&t->outputs[k]);
        if (t->strict && t->outputs[k].c.differ)
            v->report->repeatable = false;
    }
    return rc;
}

/* A trial beyond the declared inputs decides where the measure has the task's precision and copes with these inputs. */
static bool decides(const stitch__verify *v, const stitch__trial *t)
{
    bool yes = stitch__budget_exact(v) && t->ran && !t->note;
    for (size_t k = 0; k < t->output_count; k++)
        yes = yes && t->outputs[k].budgeted && !t->outputs[k].own_unusable;
    return yes;
}

/* The runs of trials that come next, as many as can be made ahead of their turn. variants NULL: inputs as declared. */
static int run_ahead(stitch__verify *v, const uint64_t *seeds, const stitch__variant *const *variants, size_t count,
                     int *code, stitch_error **why, stitch_error **err)
{
    stitch__block_run runs[STITCH__BLOCK];
    size_t most = stitch__ahead_most(v) / 2;

    count = count < most ? count : most;
    for (size_t k = 0; k < 2 * count; k++) {
        runs[k] = (stitch__block_run){.run = stitch__run_of_set(k % 2), .variant = variants ? variants[k / 2] : NULL};
        runs[k].run.draw = k % 2 == 0;
        runs[k].run.seed = k % 2 == 0 ? seeds[k / 2] : 0;
        runs[k].does = k % 2 ? STITCH__RUN_INPUTS : 0;
    }
    return stitch__ahead_make(v, runs, (uint32_t)(2 * count), code, why, err);
}

/* Other magnitudes and distributions than the task declares. */
static int robust_trials(stitch__verify *v, int *code, stitch_error **why, stitch_error **err)
{
    static const stitch_dist sparse = {.kind = STITCH_DIST_BERNOULLI, .a = 0.05},
                             same = {.kind = STITCH_DIST_CONSTANT, .a = 1}, one_hot = {.kind = STITCH__DIST_ONE_HOT},
                             cancelling = {.kind = STITCH__DIST_CANCELLING, .a = 1024, .b = 1};
    static const struct {
        const char *kind;
        stitch__variant variant;
    } kinds[] = {{"large (64 times the declared magnitude)", {.scale = 64}},
                 {"small (1/64 of the declared magnitude)", {.scale = 1.0 / 64}},
                 {"sparse (5 % ones, else zeros)", {.dist = &sparse}},
                 {"constant (all ones)", {.dist = &same}},
                 {"one-hot (a single one in each row)", {.dist = &one_hot}},
                 {"cancelling (+1024 and -1024 in turn, plus normal noise)", {.dist = &cancelling}}};
    const stitch__variant *variants[STITCH__COUNT(kinds)];
    uint64_t seeds[STITCH__COUNT(kinds)];
    int rc = stitch__own_room(v, err);

    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        variants[i] = &kinds[i].variant;
        seeds[i] = stitch__seed_derive(v->options.seed, STITCH__SEED_ROBUST, i);
    }
    for (size_t i = 0; !rc && !*code && i < STITCH__COUNT(kinds); i++) {
        stitch__trial *t = stitch__report_add_trial(v->report, kinds[i].kind, false, stitch__output_count(v));
        if (!t)
            return stitch__err_nomem(v->ctx, err);
        t->seed = seeds[i];
        if (!stitch__ahead_left(v))
            rc = run_ahead(v, seeds + i, variants + i, STITCH__COUNT(kinds) - i, code, why, err);
        if (!rc && !*code)
            rc = run_trial(v, t, variants[i], code, why, err);
        t->strict = !rc && !*code && decides(v, t);
    }
    return rc;
}

static uint64_t trial_seed(const stitch__verify *v, int i)
{
    return stitch__seed_derive(v->options.seed, STITCH__SEED_TRIAL, (uint64_t)i);
}

/* Trials with inputs as the task declares them. The first is alone: a program that is wrong shows it there. */
static int declared_trials(stitch__verify *v, int trials, int *code, stitch_error **why, stitch_error **err)
{
    int rc = STITCH_OK;

    for (int i = 0; !rc && !*code && i < trials; i++) {
        stitch__trial *t = stitch__report_add_trial(v->report, "declared", true, stitch__output_count(v));
        uint64_t seeds[STITCH__BLOCK];
        size_t left = (size_t)(trials - i) < STITCH__BLOCK ? (size_t)(trials - i) : STITCH__BLOCK;
        if (!t)
            return stitch__err_nomem(v->ctx, err);
        t->seed = trial_seed(v, i);
        for (size_t k = 0; k < left; k++)
            seeds[k] = trial_seed(v, i + (int)k);
        if (i > 0 && !stitch__report_failed_trial(v->report) && !stitch__ahead_left(v)) {
            rc = stitch__own_room(v, err);
            if (!rc)
                rc = run_ahead(v, seeds, NULL, left, code, why, err);
        }
        if (!rc && !*code)
            rc = run_trial(v, t, NULL, code, why, err);
        stitch__stage_progress(v, STITCH_STAGE_CORRECT, i + 1, trials);
    }
    return rc;
}

/* The stage's message: the first failing trial in a line. */
static int failure_message(stitch__verify *v, stitch_error **why)
{
    const stitch__trial *t = stitch__report_failed_trial(v->report);
    const stitch__trial_output *wrong;
    stitch__buf b;
    char *text;
    int rc;

    stitch__buf_init(&b, v->ctx);
    if (t->note) {
        stitch__buf_puts(&b, t->note);
    } else if ((wrong = stitch__first_wrong(t->outputs, t->output_count))) {
        if (!t->declared)
            stitch__buf_printf(&b, "with %s inputs, ", t->kind);
        else if (t > v->report->trials)
            stitch__buf_printf(&b, "wrong in trial %td and not before: ", t - v->report->trials + 1);
        if (wrong->second_run)
            stitch__buf_puts(&b, "in a second run on the same inputs, ");
        stitch__describe_comparison(&b, v->report, wrong);
    }
    text = stitch__buf_take(&b, NULL);
    if (!text)
        return stitch__err_nomem(v->ctx, why);
    rc = stitch__err(v->ctx, why, STITCH_E_VALIDATE, "%s", text);
    stitch_free(text);
    return rc;
}

int stitch__stage_correct(stitch__verify *v, stitch_error **err)
{
    int trials = v->inputs_fixed ? 1 : v->options.trials, code = STITCH_OK, rc = STITCH_OK;
    stitch_error *why = NULL;

    if (v->inputs_fixed && v->options.trials > 1)
        rc = stitch__report_note(v->report, err, "the inputs are fixed, so that one trial says what more could say");
    if (!rc)
        rc = declared_trials(v, trials, &code, &why, err);
    /* A program that is wrong already teaches nothing more. */
    if (!rc && !code && v->has_float_inputs && !stitch__report_failed_trial(v->report) && !v->dev->info.simulated)
        rc = robust_trials(v, &code, &why, err);
    if (rc) {
        stitch_error_free(why);
        return rc;
    }
    if (!code && stitch__report_failed_trial(v->report))
        code = failure_message(v, &why);
    if (!code) {
        rc = v->candidate.ops->inspect(v->candidate.self, &v->scope, &code, &why, err);
        if (rc)
            return rc;
    }
    return stitch__stage_judge(v, STITCH_STAGE_CORRECT, code, &why, err);
}
