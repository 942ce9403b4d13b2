/* SPDX-License-Identifier: MIT
 *
 * Compiles ahead, in threads of their own, what a verification needs beside the candidate. The results land where the
 * normal path looks for them (program handles, the context's kernels); failures are left for the normal path to report.
 */
#include "verify/verify.h"

#include "cuda/clocks.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAX_JOBS 10

typedef struct job {
    pthread_t thread;
    stitch__device *dev;
    stitch__scope scope;
    stitch_program *program; /* NULL: the library's kernels */
    stitch_interface *iface;
    atomic_bool ended; /* and NVRTC with it: not because the scope had */
    int which; /* of the library's kernels: 0 generator, 1 comparison, 2 hash; 3: clocks; 4, 5: workers for candidate
                  and baseline, which start meanwhile: nobody waits for them here */
} job;

typedef struct stitch__warmer {
    size_t count;
    job jobs[MAX_JOBS];
} stitch__warmer;

static void *work(void *userdata)
{
    job *j = userdata;
    int rc = STITCH_OK;
    if (j->program) {
        stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
        options.arch = j->dev->info.arch;
        options.cancel = j->scope.cancel; /* whoever joins this thread shall not wait for longer */
        options.timeout_ms = stitch__scope_timeout_ms(&j->scope);
        if (stitch_program_validate(j->program, j->iface, j->dev->info.arch, NULL) == STITCH_OK)
            rc = stitch_program_compile(j->program, &options, NULL, NULL);
    } else if (j->which == 0) {
        rc = stitch__generate_warm(j->dev, &j->scope, NULL);
    } else if (j->which == 1) {
        rc = stitch__compare_warm(j->dev, &j->scope, NULL);
    } else if (j->which == 2) {
        rc = stitch__hash_warm(j->dev, &j->scope, NULL);
    } else if (j->which == 3) {
        stitch__clock_sample sample;
        (void)stitch__clocks_read(j->dev, &sample);
    } else {
        stitch__worker_ahead(j->dev->ctx, j->which == 4 ? STITCH__WORKER_CANDIDATE : STITCH__WORKER_BASELINE);
    }
    atomic_store(&j->ended, rc != STITCH_E_TIMEOUT && rc != STITCH_E_CANCELLED);
    return NULL;
}

static void start(stitch__verify *v, stitch_program *program, stitch_interface *iface, int which)
{
    stitch__warmer *w = v->warmer;
    job *j = &w->jobs[w->count];
    j->dev = v->dev;
    j->program = program;
    j->iface = iface;
    j->which = which;
    atomic_store(&j->ended, false);
    j->scope = v->scope;
    if (pthread_create(&j->thread, NULL, work, j) == 0)
        w->count++;
    else
        stitch_interface_free(iface);
}

static void start_program(stitch__verify *v, const stitch__compute *c)
{
    stitch__warmer *w = v->warmer;
    stitch_interface *iface = NULL;

    /* A handle belongs to one thread at a time. */
    if (!c->program || c->program == v->program || w->count >= MAX_JOBS)
        return;
    for (size_t i = 0; i < w->count; i++)
        if (w->jobs[i].program == c->program)
            return;
    if (stitch__task_interface(v->task, v->task->reduced, c->output_dtype, &iface, NULL) == STITCH_OK)
        start(v, c->program, iface, 0);
}

int stitch__warm_start(stitch__verify *v, stitch_error **err)
{
    v->warmer = stitch__calloc(v->ctx, 1, sizeof(*v->warmer));
    if (!v->warmer)
        return stitch__err_nomem(v->ctx, err);
    for (int which = 0; which < 6; which++)
        if (which < 4 || (which == 4 ? stitch__wants_worker(v) : stitch__baseline_expected(v)))
            start(v, NULL, NULL, which);
    start_program(v, &v->task->reference);
    for (size_t i = 0; i < v->task->baseline_count; i++)
        start_program(v, &v->task->baselines[i]);
    return STITCH_OK;
}

static bool compiles(const job *j)
{
    return (j->program || j->which < 3) && !atomic_load(&j->ended);
}

bool stitch__warm_join(stitch__verify *v)
{
    bool all = true;

    if (!v->warmer)
        return true;
    for (size_t i = 0; i < v->warmer->count; i++) {
        pthread_join(v->warmer->jobs[i].thread, NULL);
        stitch_interface_free(v->warmer->jobs[i].iface);
        all &= !compiles(&v->warmer->jobs[i]);
    }
    stitch__zero_free(v->warmer);
    return all;
}

bool stitch__warm_compiles(const stitch__verify *v)
{
    for (size_t i = 0; v->warmer && i < v->warmer->count; i++)
        if (compiles(&v->warmer->jobs[i]))
            return true;
    return false;
}
