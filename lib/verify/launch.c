/* SPDX-License-Identifier: MIT
 *
 * What a launch takes in a worker, whatever is launched: an empty kernel, timed as programs are, before the worker has
 * had any. Two processes differ by some tenths of a microsecond, each for as long as it lives (measured on an H200: the
 * same graph on the same memory, up to 0.3 us of 8.5), and short programs would owe their speed-up to that.
 */
#include <stdlib.h>

#include "verify/timing.h"

enum {
    LOADS = 3, /* the driver's memory for a graph differs a little, too */
    RUNS = LOADS * STITCH__SETS * STITCH__BLOCK,
};

#define MOST_SPREAD 0.15 /* of the median, between the quartiles: others use the device meanwhile */
#define MOST_EXCESS 1.0  /* us; more than that is something else */

static const char source[] = "extern \"C\" __global__ void nothing(float *y) {}";
static const char plan[] =
    "{\"stitch\":1,\"run\":[{\"kernel\":\"nothing\",\"grid\":[1],\"block\":[32],\"args\":[\"y\"]}]}";
static const char task_json[] =
    "{\"stitch_task\":1,\"name\":\"nothing\",\"dims\":{\"N\":1},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\","
    "\"shape\":[\"N\"]}],\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}],\"reference\":{"
    "\"program\":{\"source\":{\"text\":\"extern \\\"C\\\" __global__ void nothing(float *y) {}\"},\"plan\":%s}}}";

static int make(stitch_context *ctx, const char *arch, stitch_task **task, stitch_program **program, stitch_error **err)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    char text[sizeof(task_json) + sizeof(plan)];
    int rc;

    snprintf(text, sizeof(text), task_json, plan);
    rc = stitch_task_parse(ctx, text, NULL, task, err);
    if (!rc)
        rc = stitch_program_parse(ctx, source, plan, NULL, program, err);
    if (!rc)
        rc = stitch_program_validate(*program, (*task)->iface, arch, err);
    options.arch = arch;
    return rc ? rc : stitch_program_compile(*program, &options, NULL, err);
}

void stitch__launch_warm(stitch__device *dev)
{
    stitch_program *program = NULL;
    stitch_task *task = NULL;

    (void)make(dev->ctx, dev->info.arch, &task, &program, NULL);
    stitch_program_free(program);
    stitch_task_free(task);
}

/* A block of runs on each set of outputs, of a program that has just been loaded. */
static int time_blocks(stitch__verify *v, const stitch__candidate *c, double *us, stitch_error **err)
{
    uint64_t hashes[STITCH__BLOCK * 2]; /* of the task's two tensors */
    int rc = STITCH_OK, code = STITCH_OK;

    for (int set = 0; !rc && !code && set < STITCH__SETS; set++) {
        stitch__run_block block = {.count = STITCH__BLOCK};
        for (uint32_t k = 0; k < block.count; k++) {
            block.runs[k].run = (stitch__run)STITCH__RUN_INIT;
            block.runs[k].run.set = set;
            block.runs[k].run.poison = STITCH__POISON_A;
            block.runs[k].run.draw = 1;
            block.runs[k].run.flush_bytes = stitch__flush_bytes(v->dev);
            block.runs[k].does = STITCH__RUN_TIMED;
        }
        rc = c->ops->run_block(c->self, &v->scope, &block, us + set * STITCH__BLOCK, hashes, &code, err, err);
    }
    return rc ? rc : code;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double middle_of(double *us)
{
    qsort(us, RUNS, sizeof(*us), by_value);
    return us[RUNS * 3 / 4] - us[RUNS / 4] <= MOST_SPREAD * us[RUNS / 2] ? us[RUNS / 2] : 0;
}

int stitch__launch_measure(stitch__verify *v, stitch__worker *w, stitch_error **err)
{
    stitch__candidate c = {NULL, NULL};
    stitch_program *program = NULL;
    stitch_task *task = NULL;
    stitch_error *why = NULL;
    double us[RUNS];
    int rc, code = STITCH_OK;

    if (v->dev->info.simulated || !stitch__worker_untouched(w))
        return STITCH_OK;
    rc = make(v->ctx, v->dev->info.arch, &task, &program, &why);
    if (!rc)
        rc = stitch__worker_open(w, &v->scope, task, program, &c, &why);
    if (!rc)
        rc = stitch__candidate_fill(v, &c, &v->scope, &why);
    for (int i = 0; !rc && !code && i < LOADS; i++) {
        rc = stitch__candidate_afresh(v, &c, &v->scope, &code, &why, &why);
        if (!rc && !code)
            rc = time_blocks(v, &c, us + i * STITCH__SETS * STITCH__BLOCK, &why);
    }
    if (c.ops)
        c.ops->close(c.self);
    if (!rc && !code)
        stitch__worker_set_launch_us(w, middle_of(us));
    if (rc == STITCH_E_CANCELLED || rc == STITCH_E_TIMEOUT)
        stitch__err_hand_on(err, &why);
    else
        rc = STITCH_OK; /* it is not known then; whatever ails the worker shows with the program itself */
    stitch_error_free(why);
    stitch_program_free(program);
    stitch_task_free(task);
    return rc;
}

static stitch__worker *worker_of(const stitch__timer *t, const stitch__side *s)
{
    return s->candidate ? t->v->worker : s->worker;
}

void stitch__launch_level(stitch__timer *t)
{
    double least = 0, most = 0;

    for (size_t k = 0; k < t->side_count; k++) {
        stitch__side *s = &t->sides[k];
        double us = worker_of(t, s) ? stitch__worker_launch_us(worker_of(t, s)) : 0;
        s->timing->launch_us = us;
        if (s->broken || s->oracle)
            continue; /* in this process, or not at all */
        if (us <= 0)
            return;
        least = least > 0 && least < us ? least : us;
        most = us > most ? us : most;
    }
    if (t->flush_bytes != stitch__flush_bytes(t->v->dev) || most - least > MOST_EXCESS)
        return;
    for (size_t k = 0; k < t->side_count; k++)
        if (t->sides[k].timing->launch_us > 0)
            t->sides[k].timing->launch_excess_us = t->sides[k].timing->launch_us - least;
}
