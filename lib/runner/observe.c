/* SPDX-License-Identifier: MIT
 *
 * The candidate while somebody watches: everything that a profile has. Never while it is timed.
 */
#include "runner/internal.h"
#include "sim/sim_ext.h"
#include "verify/scan.h"

typedef struct watched {
    stitch__runner *r;
    const stitch__scope *scope;
    const stitch__run *run;
    int rc, *code;
    stitch_error **why, **err;
    const stitch__pause *pause; /* of the run in progress */
} watched;

/* As before a timed run: cleared states and an empty L2. */
static int before_run(void *userdata)
{
    watched *w = userdata;
    stitch__runner *r = w->r;
    uint64_t flush = w->run->flush_bytes;
    int rc = stitch__runner_clear_states(r, w->scope, w->run->set, w->err);

    if (!rc && flush)
        rc = stitch__cu_check(r->dev, r->dev->drv->MemsetD8Async(r->flush, 0x5a, (size_t)flush, r->stream), w->err,
                              "emptying the L2 cache");
    return w->rc = rc ? rc : stitch__stream_wait(r->dev, r->stream, w->scope, "profiling the program", w->err);
}

/* What the device has been given so far is done before the pause. */
static int pause_run(void *userdata)
{
    watched *w = userdata;
    stitch__runner *r = w->r;

    w->rc = stitch__wait_candidate(r->dev, r->stream, w->scope, "profiling the program", &r->abandoned, w->code, w->why,
                                   w->err);
    if (w->rc || *w->code)
        return STITCH_E_CANCELLED;
    return w->pause->fn(w->pause->userdata);
}

static int watched_run(void *userdata, bool plain, const stitch__pause *pause)
{
    watched *w = userdata;
    stitch__runner *r = w->r;
    const stitch__pause waiting = {.after = pause ? pause->after : 0, .fn = pause_run, .userdata = w};
    int rc;

    w->pause = pause;
    rc = plain ? stitch__executor_run_plain(r->executor, (stitch_stream)r->stream, pause ? &waiting : NULL, w->why)
               : stitch__runner_enqueue(r, w->run, w->why);
    if (w->rc || *w->code) /* in the pause */
        return 1;
    *w->code = rc;
    if (!rc)
        w->rc = stitch__wait_candidate(r->dev, r->stream, w->scope, "profiling the program", &r->abandoned, w->code,
                                       w->why, w->err);
    return w->rc || *w->code;
}

static int profile_on_device(watched *w, const stitch__collect_options *options, stitch__facts *f)
{
    stitch__runner *r = w->r;
    stitch__expected *expected = NULL;
    stitch__sampled_module module = {.source = stitch_program_source(r->program)};
    stitch__region region = {.before = before_run, .run = watched_run, .userdata = w};
    stitch_error *own = NULL;
    int rc = stitch__expected_of(r->executor, &expected, &region.expected_count, w->err);

    region.expected = expected;
    module.cubin = stitch_image_data(r->executor->image, &module.cubin_size);
    region.modules = &module;
    region.module_count = !stitch_image_is_ptx(r->executor->image);
    if (!rc)
        rc = stitch__collect(r->ctx, r->dev, w->scope, &region, options, f, &own);
    if (rc && !w->rc && !*w->code) { /* not a callback's */
        w->rc = rc;
        stitch__err_hand_on(w->err, &own);
    }
    stitch_error_free(own);
    stitch_free(expected);
    return w->rc;
}

/* CUPTI's metrics by name are none of the simulator's: their values are not known, and why is said. */
static int name_extra(const watched *w, const stitch__collect_options *options, stitch__facts *f)
{
    stitch__buf b;

    stitch__buf_init(&b, w->r->ctx);
    for (size_t i = 0; i < options->extra_count; i++) {
        f->extra_names[i] = stitch__facts_text(f, options->extra[i]);
        stitch__buf_printf(&b, "%s%s", i ? ", " : "not offered by this device: ", options->extra[i]);
    }
    f->extra_count = options->extra_count;
    f->no_counters = stitch__facts_text(f, b.data);
    int rc = b.failed ? stitch__err_nomem(w->r->ctx, w->err) : STITCH_OK;
    stitch__buf_free(&b);
    return rc;
}

/* What the simulator counts in one run. Findings are stage simulate's; here they are only taken out of the way. */
static int profile_simulated(watched *w, const stitch__collect_options *options, stitch__facts *f)
{
    const stitch__driver *drv = w->r->dev->drv;
    stitch__sim_set_options_fn set;
    stitch__sim_get_options_fn get;
    stitch__sim_take_reports_fn take;
    stitch__sim_free_reports_fn release;
    stitch__sim_options before, counting;
    stitch__sim_reports *reports = NULL;

    memcpy(&set, &drv->sim_set_options, sizeof(set));
    memcpy(&get, &drv->sim_get_options, sizeof(get));
    memcpy(&take, &drv->sim_take_reports, sizeof(take));
    memcpy(&release, &drv->sim_free_reports, sizeof(release));
    if (!set || !get || !take || !release || get(&before) != CUDA_SUCCESS)
        return w->rc = stitch__err(w->r->ctx, w->err, STITCH_E_UNSUPPORTED, "this simulator does not count");
    if (take(&reports) == CUDA_SUCCESS) /* of what came before */
        release(reports);
    reports = NULL;
    counting = before;
    counting.flags |= STITCH__SIM_COUNT;
    (void)set(&counting);
    if (!before_run(w))
        (void)watched_run(w, false, NULL);
    if (!w->rc && !*w->code && take(&reports) != CUDA_SUCCESS)
        w->rc = stitch__err_nomem(w->r->ctx, w->err);
    if (!w->rc && !*w->code)
        w->rc = stitch__facts_sim(f, reports, w->r->executor->image, stitch_program_source(w->r->program), 1, w->err);
    if (!w->rc && !*w->code)
        w->rc = name_extra(w, options, f);
    release(reports);
    (void)set(&before);
    return w->rc;
}

int stitch__runner_profile(void *self, const stitch__scope *scope, const stitch__run *run,
                           const stitch__collect_options *options, stitch__facts **out, int *code, stitch_error **why,
                           stitch_error **err)
{
    stitch__runner *r = self;
    watched w = {r, scope, run, STITCH_OK, code, why, err, NULL};
    stitch__facts *f = NULL;
    int rc;

    *out = NULL;
    *code = STITCH_OK;
    if (!r->executor)
        return stitch__err(r->ctx, err, STITCH_E_STATE, "there is no program to profile: it has not been prepared");
    rc = stitch__facts_new(r->ctx, &f, err);
    if (!rc)
        rc = stitch__facts_steps(f, r->program, err);
    if (!rc)
        rc = stitch__scan_moves(r->ctx, r->program, r->executor->image, f, err);
    if (!rc)
        rc = stitch__runner_open_timing(r, run, err);
    if (!rc)
        rc = stitch__runner_ready(r, run, code, why, err);
    if (!rc && !*code)
        rc = r->dev->info.simulated ? profile_simulated(&w, options, f) : profile_on_device(&w, options, f);
    if (rc || *code)
        stitch__facts_free(f);
    else
        *out = f;
    return rc;
}
