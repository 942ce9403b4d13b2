/* SPDX-License-Identifier: MIT
 *
 * The control of a comparison between two processes. Where the driver's and the programs' memory lies makes one slower
 * than the other by some tenths of a microsecond, for as long as both live (up to 0.3 of 9 us on an H200). So the main
 * baseline runs in the candidate's worker, too: what it takes more there than in its own, the candidate has no part in,
 * and it is taken off the candidate's times.
 */
#include "verify/timing.h"

enum {
    BLOCKS = 8, /* each order with each choice of addresses, as when programs are timed */
    RUNS = 8,   /* of a block */
};

#define LONGEST_US 100.0 /* of a run: it would be less than a third of a per cent of more */
#define MOST_US    1.0   /* that two workers differ by; more is something else, */
#define MOST_SHARE 0.05  /* as is more than this of a run */
#define MOST_TAKEN 0.25  /* of a run of the candidate, whose times would be what was measured of the baseline */

static int run_block(stitch__timer *t, const stitch__candidate *c, size_t number, double *us, int *code,
                     stitch_error **why)
{
    stitch__run_block block = {.count = RUNS};
    const stitch__block like = {.number = number, .count = RUNS};
    stitch__took took[RUNS];
    int rc;

    for (uint32_t k = 0; k < RUNS; k++) {
        uint64_t seed = stitch__seed_derive(t->v->options.seed, STITCH__SEED_CONTROL, number * RUNS + k);
        block.runs[k].run = stitch__timed_run_of(t, &like, seed);
        block.runs[k].does = STITCH__RUN_TIMED;
    }
    rc = c->ops->run_block(c->self, &t->v->scope, &block, took, t->hashes, code, why, why);
    for (size_t k = 0; !rc && !*code && k < RUNS; k++)
        us[k] = took[k].us;
    return rc;
}

/* Both in turn, one before the other. */
static int compare(stitch__timer *t, const stitch__candidate *here, const stitch__candidate *there,
                   stitch__control *out, int *code, stitch_error **why)
{
    double us[2][BLOCKS * RUNS];
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && !*code && i < 2 * BLOCKS; i++) {
        size_t number = i / 2, side = (number + i) % 2;
        rc = run_block(t, side ? there : here, number, us[side] + number * RUNS, code, why);
    }
    if (!rc && !*code) {
        out->here_us = stitch__median(us[0], BLOCKS * RUNS);
        out->there_us = stitch__median(us[1], BLOCKS * RUNS);
        out->runs = BLOCKS * RUNS;
    }
    return rc;
}

/* The worker forgets the candidate meanwhile. */
static int measure(stitch__timer *t, stitch_program *program, stitch__control *out, int *code, stitch_error **why)
{
    stitch__verify *v = t->v;
    stitch__candidate c = {NULL, NULL};
    int rc;

    stitch__ahead_drop(v);
    v->candidate.ops->close(v->candidate.self);
    rc = stitch__worker_open(v->worker, &v->scope, v->task, program, &c, why);
    if (!rc)
        rc = stitch__candidate_begin(v, &c, code, why, why);
    if (!rc && !*code)
        rc = compare(t, &c, &t->sides[1].program, out, code, why);
    if (c.ops)
        c.ops->close(c.self);
    return rc;
}

/* In another worker, if the baseline cost that one its life, and with it the memory that both were on. check_places()
 * draws the inputs. */
static int bring_back(stitch__timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch_error *why = NULL;
    int rc = STITCH_OK;

    if (stitch__worker_lost(v->worker)) {
        stitch__err(v->ctx, &why, STITCH_E_FAULT, "it ended the worker of the candidate, where it was the control");
        rc = stitch__side_ended(v, &t->sides[1], STITCH_OK, STITCH_E_FAULT, &why, err);
        stitch__worker_release(v->worker, false);
        v->worker = NULL;
    }
    v->candidate = (stitch__candidate){NULL, NULL};
    v->room = 0;
    v->room_known = false;
    if (!rc)
        rc = stitch__candidate_open(v, err);
    t->sides[0].program = v->candidate;
    return rc;
}

/* Why there is nothing to compare, or nothing to gain by it. *us: what a run takes. */
static const char *why_not(stitch__timer *t, double *us, int *rc, stitch_error **err)
{
    const stitch__side *s = t->side_count > 1 ? &t->sides[1] : NULL;
    double block[RUNS];
    int code = STITCH_OK;

    if (!t->v->worker || !s || s->broken || !s->worker)
        return "the candidate and the main baseline do not both run in workers";
    if (t->flush_bytes == 0)
        return "the caches are not emptied";
    /* Also where the control is known: a baseline that writes around its memory has to have run before it is looked at
     * (check_places()). */
    *rc = run_block(t, &s->program, 0, block, &code, err);
    if (*rc || code)
        return "the main baseline does not run"; /* as measuring it will say */
    *us = stitch__median(block, RUNS);
    return *us > LONGEST_US ? "the main baseline takes so long that two workers make no difference" : NULL;
}

static void conclude(stitch__timer *t, const stitch__control *c)
{
    stitch_report *r = t->v->report;
    double more = c->here_us - c->there_us;

    r->control = *c;
    if (more > MOST_US || more < -MOST_US || more > MOST_SHARE * c->there_us || more < -MOST_SHARE * c->there_us)
        r->no_control = "two workers do not differ by so much: something else disturbed it";
    else
        r->candidate.taken_off_us = more;
}

int stitch__control_run(stitch__timer *t, stitch_error **err)
{
    stitch__verify *v = t->v;
    stitch__control *kept = v->worker ? stitch__worker_control(v->worker) : NULL, made = {.runs = 0};
    stitch_error *why = NULL;
    double us = 0;
    int rc = STITCH_OK, code = STITCH_OK;

    v->report->no_control = why_not(t, &us, &rc, &why);
    if (v->report->no_control) {
        if (rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT)
            stitch__err_hand_on(err, &why);
        else
            rc = STITCH_OK;
        stitch_error_free(why);
        return rc;
    }
    made.peer = stitch__worker_pid(t->sides[1].worker);
    snprintf(made.task, sizeof(made.task), "%s", v->report->task_hash);
    if (kept->runs && kept->peer == made.peer && strcmp(kept->task, made.task) == 0) {
        conclude(t, kept);
        return STITCH_OK;
    }
    rc = measure(t, (v->task->baseline_count ? v->task->baselines : &v->task->reference)->program, &made, &code, &why);
    if (!rc && !code) {
        *kept = made;
        conclude(t, kept);
    } else {
        v->report->no_control = "the main baseline does not run in the candidate's worker";
    }
    if (rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT)
        stitch__err_hand_on(err, &why);
    else
        rc = bring_back(t, err);
    stitch_error_free(why);
    return rc;
}

void stitch__control_settle(stitch__timer *t)
{
    stitch_report *r = t->v->report;
    stitch__timing *c = &r->candidate;
    double off = c->taken_off_us, most;

    if (off == 0 || !c->count)
        return;
    most = MOST_TAKEN * (c->median + off);
    if (off <= most && off >= -most)
        return;
    stitch__timing_shift(c, off);
    c->taken_off_us = 0;
    r->no_control = "it is too much of a run of the candidate";
}
