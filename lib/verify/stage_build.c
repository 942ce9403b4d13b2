/* SPDX-License-Identifier: MIT
 *
 * Stages validate, compile, load and prepare.
 */
#include "verify/verify.h"

#include "program/program.h"

int stitch__stage_validate(stitch__verify *v, stitch_error **err)
{
    stitch_error *why = NULL;
    int rc = stitch_program_validate(v->program, v->task->iface, v->dev ? v->dev->info.arch : NULL, &why);

    if (rc && *stitch_error_details(why)) {
        int set = stitch__report_set(v->report, &v->report->findings, stitch_error_details(why), 16384, err);
        if (set) {
            stitch_error_free(why);
            return set;
        }
    }
    return stitch__stage_judge(v, STITCH_STAGE_VALIDATE, rc, &why, err);
}

/* ---- compile ----------------------------------------------------------------------------------------------------- */

static int take_kernels(stitch__verify *v, const stitch_image *image, stitch_error **err)
{
    stitch_report *r = v->report;
    size_t count = stitch_image_kernel_count(image);

    r->kernels = stitch__calloc(v->ctx, count ? count : 1, sizeof(*r->kernels));
    if (!r->kernels)
        return stitch__err_nomem(v->ctx, err);
    for (size_t i = 0; i < count; i++) {
        stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
        stitch__kernel_row *row = &r->kernels[r->kernel_count];
        int rc;
        if (stitch_image_kernel(image, i, &info))
            continue;
        rc = stitch__report_set(r, &row->name, info.name, 240, err);
        if (rc)
            return rc;
        row->registers = info.registers;
        row->static_shared = info.static_shared;
        row->local = info.local;
        row->spill_stores = info.spill_stores;
        row->spill_loads = info.spill_loads;
        row->max_threads = info.max_threads;
        r->kernel_count++;
    }
    r->compile_cached = stitch_image_cached(image) != 0;
    return STITCH_OK;
}

static int take_diagnostics(stitch__verify *v, const stitch_image *image, stitch_error **err)
{
    for (size_t i = 0; i < stitch_image_diagnostic_count(image); i++) {
        stitch_diagnostic d = STITCH_DIAGNOSTIC_INIT;
        int rc = stitch_image_diagnostic(image, i, &d);
        if (!rc)
            rc = stitch__report_add_diag(v->report, &d, stitch_program_source(v->program), err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

/* What is judged, on the device, on the simulator and by the scan, is made of the source whose hash is reported. */
static int forget_brought(stitch__verify *v, stitch_error **err)
{
    size_t count = stitch__program_forget_brought(v->program);

    return count ? stitch__report_note(v->report, err,
                                       "the program came with compiled code (%zu image%s), which may be of another "
                                       "source: it was dropped, and what ran was compiled from the program's source",
                                       count, count > 1 ? "s" : "")
                 : STITCH_OK;
}

int stitch__stage_compile(stitch__verify *v, stitch_error **err)
{
    const char *arch = v->dev ? v->dev->info.arch : "sm_90"; /* without a device: something that many have */
    stitch_error *why = NULL;
    int rc, taken = forget_brought(v, err);

    if (!taken)
        taken = stitch__candidate_compile(v, arch, false, &v->image, &rc, &why, err);
    if (taken)
        return taken;
    if (v->image) {
        taken = take_diagnostics(v, v->image, err);
        if (!taken && rc != STITCH_E_COMPILE)
            taken = take_kernels(v, v->image, err);
    }
    if (!taken && rc && rc != STITCH_E_COMPILE && *stitch_error_details(why))
        taken = stitch__report_set(v->report, &v->report->findings, stitch_error_details(why), 16384, err);
    if (taken) {
        stitch_error_free(why);
        return taken;
    }
    return stitch__stage_judge(v, STITCH_STAGE_COMPILE, rc, &why, err);
}

/* ---- load, prepare ----------------------------------------------------------------------------------------------- */

int stitch__stage_load(stitch__verify *v, stitch_error **err)
{
    const stitch__load how = {.poison = STITCH__POISON_A};
    stitch_error *why = NULL;
    int code = STITCH_OK, rc = stitch__sets_open(v, err);

    if (!rc)
        rc = stitch__candidate_open(v, err);
    if (!rc)
        rc = v->candidate.ops->load(v->candidate.self, &v->scope, &how, &code, &why, err);
    return rc ? rc : stitch__stage_judge(v, STITCH_STAGE_LOAD, code, &why, err);
}

int stitch__stage_prepare(stitch__verify *v, stitch_error **err)
{
    const stitch__candidate *c = &v->candidate;
    stitch__prepared facts;
    stitch_error *why = NULL;
    size_t changed = SIZE_MAX;
    int code = STITCH_OK;
    int rc = stitch__draw_inputs(v, stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0), NULL, err);

    if (!rc)
        rc = c->ops->clear_states(c->self, &v->scope, 0, err);
    if (!rc)
        rc = stitch__poison(v, v->first, NULL, STITCH__POISON_A, err);
    if (!rc)
        rc = stitch__hash_tensors(v, true, err);
    if (!rc)
        rc = c->ops->prepare(c->self, &v->scope, &facts, &code, &why, err);
    if (rc)
        return rc;
    v->report->prepare_us = facts.us;
    v->report->workspace_bytes = facts.workspace_bytes;
    v->report->library_workspace_bytes = facts.library_workspace_bytes;
    v->report->launches = facts.launches;
    v->report->prepare_launches = facts.prepare_launches;
    if (!code) {
        rc = stitch__find_changed(v, true, &changed, err);
        if (rc)
            return rc;
    }
    if (changed != SIZE_MAX)
        code = stitch__err(v->ctx, &why, STITCH_E_VALIDATE, "prepare changed %s %s, which it may only read",
                           v->infos[changed].role == STITCH_TENSOR_WEIGHT ? "weight" : "input", v->infos[changed].name);
    return stitch__stage_judge(v, STITCH_STAGE_PREPARE, code, &why, err);
}
