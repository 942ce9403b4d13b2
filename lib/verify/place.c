/* SPDX-License-Identifier: MIT
 *
 * Where the program under test runs: in this process, or in a worker.
 */
#include "program/program.h"
#include "verify/verify.h"

bool stitch__wants_worker(const stitch__verify *v)
{
    if (!v->dev || v->options.where == STITCH_VERIFY_HERE)
        return false;
    return v->options.where == STITCH_VERIFY_WORKER || !v->dev->info.simulated;
}

bool stitch__needs_host(const stitch__verify *v, const stitch_program *program)
{
    return v->options.op_count && stitch__doc_calls_host(&program->doc);
}

static int open_here(stitch__verify *v, stitch_error **err)
{
    stitch__runner_options options = {v->options.ops, v->options.op_count, {v->first, v->again}, v->stream};
    int rc = stitch__runner_open(v->task, v->program, v->dev, &options, &v->runner, err);
    if (rc)
        return rc;
    v->candidate = stitch__runner_candidate(v->runner);
    return stitch__report_set(v->report, &v->report->where, v->candidate.ops->where, 200, err);
}

/* The same weights as the reference has; stage prepare draws the inputs. */
static int fill(stitch__verify *v, stitch_error **err)
{
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_WEIGHTS, 0);
    return v->candidate.ops->fill_weights(v->candidate.self, &v->scope, seed, err);
}

static int take_program(stitch__verify *v, stitch_error **err)
{
    int rc = v->worker ? STITCH_OK : stitch__worker_acquire(v->ctx, &v->scope, NULL, &v->worker, err);
    if (rc)
        return rc;
    v->report->isolated = true; /* from here on a worker has seen the program */
    return stitch__worker_open(v->worker, &v->scope, v->task, v->program, &v->candidate, err);
}

/* How outputs come from the worker. Through the host's memory is slower, and on a real device a sign that something is
 * not as it should be. */
static int say_how_outputs_come(stitch__verify *v, stitch_error **err)
{
    const char *unshared = stitch__worker_unshared(v->worker);
    char text[300];
    int rc;

    snprintf(text, sizeof(text), "%s%s",
             unshared ? "through the host's memory: " : "in device memory that both processes map",
             unshared ? unshared : "");
    rc = stitch__report_set(v->report, &v->report->outputs, text, sizeof(text), err);
    if (!rc && unshared && !v->dev->info.simulated)
        rc = stitch__report_note(v->report, err, "outputs came back from the worker %s", text);
    return rc;
}

static int open_worker(stitch__verify *v, stitch_error **err)
{
    char where[300];
    int rc = take_program(v, err);

    /* One that idled may have died meanwhile, which is not the program's doing: one more. */
    if (rc == STITCH_E_IO && v->worker && stitch__worker_lost(v->worker)) {
        stitch__worker_release(v->worker, false);
        v->worker = NULL;
        rc = take_program(v, err);
    }
    if (rc)
        return rc;
    snprintf(where, sizeof(where), "%s (%.255s)", v->candidate.ops->where, stitch__worker_sandbox(v->worker));
    rc = stitch__report_set(v->report, &v->report->where, where, sizeof(where), err);
    if (!rc)
        rc = say_how_outputs_come(v, err);
    return rc ? rc : fill(v, err);
}

int stitch__candidate_fill(stitch__verify *v, const stitch__candidate *c, const stitch__scope *scope,
                           stitch_error **err)
{
    int rc = c->ops->fill_weights(c->self, scope, stitch__seed_derive(v->options.seed, STITCH__SEED_WEIGHTS, 0), err);

    return rc ? rc
              : c->ops->fill_inputs(c->self, scope, stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0), NULL,
                                    err);
}

int stitch__candidate_afresh(stitch__verify *v, const stitch__candidate *c, const stitch__scope *scope, int *code,
                             stitch_error **why, stitch_error **err)
{
    const stitch__load how = {.poison = -1};
    stitch__prepared facts;
    int rc = c->ops->load(c->self, scope, &how, code, why, err);

    return rc || *code ? rc : c->ops->prepare(c->self, scope, &facts, code, why, err);
}

int stitch__candidate_begin(stitch__verify *v, const stitch__candidate *c, int *code, stitch_error **why,
                            stitch_error **err)
{
    int rc = stitch__candidate_fill(v, c, &v->scope, err);
    return rc ? rc : stitch__candidate_afresh(v, c, &v->scope, code, why, err);
}

int stitch__candidate_room(const stitch__verify *v, const stitch__candidate *c, uint32_t *room, stitch_error **err)
{
    stitch_error *why = NULL;
    uint64_t bytes = 0, runs;
    int rc;

    *room = 0;
    for (size_t i = 0; i < v->count; i++)
        bytes += v->infos[i].role == STITCH_TENSOR_OUTPUT ? v->infos[i].bytes : 0;
    runs = bytes ? STITCH__KEPT_BYTES / bytes : STITCH__BLOCK;
    runs = runs < STITCH__BLOCK ? runs : STITCH__BLOCK;
    /* Where inputs never change, what an earlier run of a block has left is the answer, in memory that the program may
     * find. */
    if (runs < 2 || !c->ops->keep || v->inputs_fixed)
        return STITCH_OK;
    rc = c->ops->keep(c->self, &v->scope, (uint32_t)runs, &why);
    if (rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT || rc == STITCH_E_IO) { /* IO: it is lost */
        stitch__err_hand_on(err, &why);
        return rc;
    }
    *room = rc ? 0 : (uint32_t)runs;
    stitch_error_free(why);
    return STITCH_OK;
}

int stitch__own_room(stitch__verify *v, stitch_error **err)
{
    int rc = v->room_known ? STITCH_OK : stitch__candidate_room(v, &v->candidate, &v->room, err);
    v->room_known = true;
    return rc;
}

uint64_t stitch__flush_bytes(const stitch__device *dev)
{
    uint64_t twice = 2 * (uint64_t)dev->info.l2_bytes, least = 128u << 20;
    return twice > least ? twice : least;
}

/* There is none, and the options leave it to us. Once a worker has had the program there is no way back: one that makes
 * its worker fail must not get into this process by that. */
static bool can_do_without(const stitch__verify *v, int rc)
{
    return v->options.where == STITCH_VERIFY_AUTO && !v->report->isolated &&
           (rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_NOT_FOUND || rc == STITCH_E_IO);
}

/* What the simulator found nothing in may run in this process, and the report says so; nothing else may, unless the
 * host says that it trusts it. */
static int do_without(stitch__verify *v, int rc, const stitch_error *why, stitch_error **err)
{
    const char *text = why ? stitch_error_message(why) : stitch_status_text(rc);

    if (v->report->stages[STITCH_STAGE_SIMULATE].status != STITCH_STAGE_PASSED)
        return stitch__err(v->ctx, err, rc,
                           "there is no worker (%s), and the program has not passed the simulator: set "
                           "stitch_verify_options.where to STITCH_VERIFY_HERE to run it in this process, if you trust "
                           "it",
                           text);
    rc = stitch__report_note(v->report, err,
                             "the program, which passed the simulator, ran in the host's process: there is no worker "
                             "(%s)",
                             text);
    return rc ? rc : open_here(v, err);
}

int stitch__candidate_open(stitch__verify *v, stitch_error **err)
{
    stitch_error *why = NULL;
    int rc;

    if (!stitch__wants_worker(v))
        return open_here(v, err);
    if (stitch__needs_host(v, v->program))
        return stitch__err(v->ctx, err, STITCH_E_UNSUPPORTED,
                           "the program calls operators of the host, which a worker cannot: set "
                           "stitch_verify_options.where to STITCH_VERIFY_HERE to run it in this process, if you trust "
                           "it");
    rc = open_worker(v, &why);
    if (can_do_without(v, rc))
        rc = do_without(v, rc, why, err);
    else if (rc)
        stitch__err_hand_on(err, &why);
    stitch_error_free(why);
    return rc;
}
