/* SPDX-License-Identifier: MIT
 *
 * The candidate while somebody watches: how long the device works, and everything that a profile has. Never while it is
 * timed.
 */
#include "runner/internal.h"
#include "sim/sim_ext.h"

/* ---- busy time --------------------------------------------------------------------------------------------------- */

/* What a trace says of a run can be used. `records`: of the runs before, 0 if this is the first one. */
static bool check_records(stitch__runner *r, const stitch__busy *busy, uint64_t records, stitch_error **why)
{
    uint64_t got = busy->kernels + busy->copies + busy->fills;

    if (busy->missing)
        stitch__err(r->ctx, why, STITCH_E_UNSUPPORTED, "CUPTI lost %" PRIu64 " records of a run", busy->missing);
    else if (!got || !(busy->busy_us > 0))
        stitch__err(r->ctx, why, STITCH_E_UNSUPPORTED, "CUPTI recorded nothing of a run");
    else if (records && got != records)
        stitch__err(r->ctx, why, STITCH_E_UNSUPPORTED,
                    "CUPTI recorded %" PRIu64 " kernels, copies and fills of one run and %" PRIu64
                    " of another: other work of this process is among them",
                    records, got);
    else
        return true;
    return false;
}

/* As before a timed run: cleared states and, with `flush`, an empty L2. */
static int settle(stitch__runner *r, const stitch__scope *scope, const stitch__run *run, bool flush, const char *what,
                  stitch_error **err)
{
    int rc = stitch__runner_clear_states(r, scope, run->set, err);

    if (!rc && flush && run->flush_bytes)
        rc = stitch__cu_check(r->dev, r->dev->drv->MemsetD8Async(r->flush, 0x5a, (size_t)run->flush_bytes, r->stream),
                              err, "emptying the L2 cache");
    return rc ? rc : stitch__stream_wait(r->dev, r->stream, scope, what, err);
}

/* One run under CUPTI. false in *recorded: there is no figure, *why says why. */
static int record_run(stitch__runner *r, const stitch__scope *scope, const stitch__run *run, stitch__busy *busy,
                      bool *recorded, int *code, stitch_error **why, stitch_error **err)
{
    stitch_trace *trace = NULL;
    int rc = STITCH_OK;

    *recorded = stitch__busy_begin(r->ctx, &trace, why) == STITCH_OK;
    if (!*recorded)
        return rc;
    *code = stitch__runner_enqueue(r, run, why);
    if (!*code)
        rc = stitch__wait_candidate(r->dev, r->stream, scope, "recording the program", &r->abandoned, code, why, err);
    if (!rc && !*code)
        *recorded = stitch__busy_end(trace, busy, why) == STITCH_OK;
    stitch_trace_free(trace); /* ends it, too, without waiting for the device */
    return rc;
}

/* A trace for each run, so that nothing that comes between them is in it. The first run is not counted: it says whether
 * there are records at all, and does what CUPTI does only once. */
int stitch__runner_busy(void *self, const stitch__scope *scope, const stitch__run *run, int32_t runs, double *busy_us,
                        int *code, stitch_error **why, stitch_error **err)
{
    stitch__runner *r = self;
    stitch__busy busy = {0};
    uint64_t records = 0;
    double sum = 0;
    bool recorded = true;
    int rc;

    *busy_us = -1;
    *code = STITCH_OK;
    if (runs < 1 || runs > STITCH__BUSY_MAX_RUNS)
        return stitch__err(r->ctx, err, STITCH_E_INTERNAL, "%d runs cannot be recorded", (int)runs);
    rc = stitch__runner_open_timing(r, run, err);
    if (!rc)
        rc = stitch__runner_ready(r, run, code, why, err);
    for (int32_t i = 0; !rc && !*code && i <= runs; i++) {
        rc = settle(r, scope, run, i > 0, "recording the program", err);
        if (!rc)
            rc = record_run(r, scope, run, &busy, &recorded, code, why, err);
        if (rc || *code || !recorded || !check_records(r, &busy, records, why))
            return rc;
        records = busy.kernels + busy.copies + busy.fills;
        sum += i ? busy.busy_us : 0;
    }
    if (!rc && !*code)
        *busy_us = sum / runs;
    return rc;
}

/* ---- profile ----------------------------------------------------------------------------------------------------- */

typedef struct watched {
    stitch__runner *r;
    const stitch__scope *scope;
    const stitch__run *run;
    int rc, *code;
    stitch_error **why, **err;
} watched;

static int before_run(void *userdata)
{
    watched *w = userdata;

    return w->rc = settle(w->r, w->scope, w->run, true, "profiling the program", w->err);
}

static int watched_run(void *userdata, bool plain)
{
    watched *w = userdata;
    stitch__runner *r = w->r;

    *w->code = plain ? stitch__executor_run_plain(r->executor, (stitch_stream)r->stream, w->why)
                     : stitch__runner_enqueue(r, w->run, w->why);
    if (!*w->code)
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

/* What the simulator counts in one run. Findings are stage simulate's; here they are only taken out of the way. */
static int profile_simulated(watched *w, stitch__facts *f)
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
        (void)watched_run(w, false);
    if (!w->rc && !*w->code && take(&reports) != CUDA_SUCCESS)
        w->rc = stitch__err_nomem(w->r->ctx, w->err);
    if (!w->rc && !*w->code)
        w->rc = stitch__facts_sim(f, reports, w->r->executor->image, stitch_program_source(w->r->program), 1, w->err);
    release(reports);
    (void)set(&before);
    return w->rc;
}

int stitch__runner_profile(void *self, const stitch__scope *scope, const stitch__run *run,
                           const stitch__collect_options *options, stitch__facts **out, int *code, stitch_error **why,
                           stitch_error **err)
{
    stitch__runner *r = self;
    watched w = {r, scope, run, STITCH_OK, code, why, err};
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
        rc = stitch__runner_open_timing(r, run, err);
    if (!rc)
        rc = stitch__runner_ready(r, run, code, why, err);
    if (!rc && !*code)
        rc = r->dev->info.simulated ? profile_simulated(&w, f) : profile_on_device(&w, options, f);
    if (rc || *code)
        stitch__facts_free(f);
    else
        *out = f;
    return rc;
}
