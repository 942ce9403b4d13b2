/* SPDX-License-Identifier: MIT
 *
 * Device memory of a verification. Inputs and weights exist once; each computation (the candidate's first and second
 * run, the reference, every baseline) has outputs and states of its own, so that none can find another's answer in
 * them.
 */
#include "verify/verify.h"

static bool owned_by_set(int role)
{
    return role == STITCH_TENSOR_OUTPUT || role == STITCH_TENSOR_STATE;
}

static int dtype_of(const stitch__verify *v, const stitch__oracle *by, size_t index)
{
    return by && v->infos[index].role == STITCH_TENSOR_OUTPUT ? stitch__oracle_dtype(by, index) : v->infos[index].dtype;
}

static uint64_t bytes_of(const stitch__verify *v, const stitch__oracle *by, size_t index)
{
    return v->infos[index].elements * stitch_dtype_size(dtype_of(v, by, index));
}

size_t stitch__output_count(const stitch__verify *v)
{
    size_t count = 0;
    for (size_t i = 0; i < v->count; i++)
        count += v->infos[i].role == STITCH_TENSOR_OUTPUT;
    return count;
}

int stitch__set_make(stitch__verify *v, const stitch__oracle *by, const char *suffix, CUdeviceptr **out,
                     stitch_error **err)
{
    CUdeviceptr *set = stitch__calloc(v->ctx, v->count ? v->count : 1, sizeof(*set));
    char name[128];
    int rc = STITCH_OK;

    *out = set;
    if (!set)
        return stitch__err_nomem(v->ctx, err);
    for (size_t i = 0; !rc && i < v->count; i++) {
        if (!owned_by_set(v->infos[i].role)) {
            set[i] = v->first ? v->first[i] : 0;
            continue;
        }
        snprintf(name, sizeof(name), "%.100s%s", v->infos[i].name, suffix);
        rc = stitch__mem_alloc(v->dev, (size_t)bytes_of(v, by, i), name, &set[i], err);
    }
    return rc;
}

void stitch__set_free(stitch__verify *v, CUdeviceptr *set)
{
    for (size_t i = 0; set && !stitch__abandoned(v) && i < v->count; i++)
        if (owned_by_set(v->infos[i].role))
            stitch__mem_free(v->dev, set[i]);
    stitch_free(set);
}

int stitch__set_bound(stitch__verify *v, stitch__oracle *o, const CUdeviceptr *set, stitch_error **err)
{
    stitch_bound_tensor *bound = stitch__calloc(v->ctx, v->count ? v->count : 1, sizeof(*bound));
    int rc;

    if (!bound)
        return stitch__err_nomem(v->ctx, err);
    for (size_t i = 0; i < v->count; i++) {
        bound[i].info = v->infos[i];
        bound[i].ptr = set[i];
    }
    rc = stitch__oracle_prepare(o, v->stream, bound, v->count, err);
    if (!rc)
        rc = stitch__stream_wait(v->dev, v->stream, &v->scope, "preparing the reference", err);
    stitch_free(bound);
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int open_shared(stitch__verify *v, stitch_error **err)
{
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_WEIGHTS, 0);
    int rc = STITCH_OK;

    for (size_t i = 0; !rc && i < v->count; i++) {
        if (owned_by_set(v->infos[i].role))
            continue;
        rc = stitch__mem_alloc(v->dev, (size_t)v->infos[i].bytes, v->infos[i].name, &v->first[i], err);
        if (!rc && v->infos[i].role == STITCH_TENSOR_WEIGHT)
            rc = stitch__task_fill(v->task, v->dev, v->stream, i, seed, NULL, v->first[i], err);
    }
    return rc;
}

static void describe_reference(const stitch__verify *v, char *out, size_t size)
{
    static const char *const kinds[] = {"none", "callback", "stitched program", "recorded tensors"};
    const stitch__compute *c = &v->task->reference;
    const char *dtype = c->output_dtype ? stitch_dtype_name(c->output_dtype) : "as declared";
    if (c->program)
        snprintf(out, size, "%s %s, outputs %s", kinds[c->kind], stitch_program_hash(c->program), dtype);
    else
        snprintf(out, size, "%s, outputs %s", kinds[c->kind], c->tensors ? "as recorded" : dtype);
}

int stitch__sets_open(stitch__verify *v, stitch_error **err)
{
    char reference[160];
    CUdeviceptr *made = NULL;
    int rc;

    if (v->sets_open)
        return STITCH_OK;
    bool compiled = stitch__warm_join(v);
    rc = stitch__scope_check(&v->scope, "compiling the reference and the baselines", err);
    if (!rc && !compiled) /* as good as: their threads have milliseconds for their clock */
        rc = stitch__err(v->ctx, err, STITCH_E_TIMEOUT, "the reference and the baselines were not compiled in time");
    if (!rc) /* whoever asks for them from here on does not look at the clock */
        rc = stitch__runner_warm(v->dev, &v->scope, err);
    if (!rc)
        rc = stitch__compare_warm(v->dev, &v->scope, err);
    if (rc)
        return rc;
    v->sets_open = true; /* also after a failure: stitch__sets_close() tidies up */
    v->hashes = stitch__calloc(v->ctx, v->count ? v->count : 1, sizeof(*v->hashes));
    v->hashes_after = stitch__calloc(v->ctx, v->count ? v->count : 1, sizeof(*v->hashes_after));
    if (!v->hashes || !v->hashes_after)
        return stitch__err_nomem(v->ctx, err);
    rc = stitch__cu_check(v->dev, v->dev->drv->StreamCreate(&v->stream, CU_STREAM_NON_BLOCKING), err,
                          "creating a stream");
    if (!rc)
        rc = stitch__comparator_open(&v->comparator, v->dev, STITCH__ROWS * stitch__output_count(v), err);
    if (!rc)
        rc = stitch__hasher_open(&v->hasher, v->dev, v->stream, STITCH__ROWS * v->count, err);
    if (!rc) {
        rc = stitch__set_make(v, NULL, "", &made, err);
        v->first = made;
    }
    if (!rc)
        rc = open_shared(v, err);
    if (!rc)
        rc = stitch__set_make(v, NULL, " (second run)", &v->again, err);
    if (!rc)
        rc = stitch__oracle_open(v->task, &v->task->reference, v->dev, v->options.ops, v->options.op_count, &v->oracle,
                                 err);
    if (!rc)
        rc = stitch__set_make(v, v->oracle, " (reference)", &v->want, err);
    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == STITCH_TENSOR_OUTPUT)
            v->report->tensors[i].want_dtype = stitch__oracle_dtype(v->oracle, i);
    if (!rc)
        rc = stitch__fill_inputs(v, stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0), NULL,
                                 err); /* callbacks may look */
    if (!rc)
        rc = stitch__clear_states(v, v->want, err);
    if (!rc)
        rc = stitch__set_bound(v, v->oracle, v->want, err);
    if (!rc)
        rc = stitch__budget_open(v, err);
    if (!rc) {
        describe_reference(v, reference, sizeof(reference));
        rc = stitch__report_set(v->report, &v->report->reference, reference, sizeof(reference), err);
    }
    return rc;
}

bool stitch__abandoned(const stitch__verify *v)
{
    return v->runner && stitch__runner_abandoned(v->runner);
}

void stitch__sets_close(stitch__verify *v)
{
    bool abandoned = stitch__abandoned(v);

    if (v->sets_open)
        stitch__budget_close(v);
    if (v->sets_open && !abandoned) {
        stitch__comparator_close(&v->comparator);
        stitch__hasher_close(&v->hasher);
        stitch__oracle_close(v->oracle); /* unloading a module waits for the device, too */
    }
    if (v->sets_open) {
        stitch__set_free(v, v->want);
        stitch__set_free(v, v->again);
        for (size_t i = 0; v->first && !abandoned && i < v->count; i++)
            if (!owned_by_set(v->infos[i].role))
                stitch__mem_free(v->dev, v->first[i]);
        stitch__set_free(v, v->first);
    }
    if (v->candidate.ops)
        v->candidate.ops->close(v->candidate.self);
    v->candidate = (stitch__candidate){NULL, NULL};
    v->runner = NULL;
    stitch__worker_release(v->worker, true);
    v->worker = NULL;
    if (v->stream && !abandoned)
        v->dev->drv->StreamDestroy(v->stream);
    stitch__ahead_close(v);
    stitch_free(v->hashes);
    stitch_free(v->hashes_after);
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

int stitch__fill_inputs(stitch__verify *v, uint64_t seed, const stitch__variant *variant, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == STITCH_TENSOR_INPUT)
            rc = stitch__task_fill(v->task, v->dev, v->stream, i, seed, variant, v->first[i], err);
    return rc;
}

static int set_bytes(stitch__verify *v, const CUdeviceptr *set, const stitch__oracle *by, int role, int byte,
                     stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == role)
            rc = stitch__cu_checkf(
                v->dev, v->dev->drv->MemsetD8Async(set[i], (unsigned char)byte, (size_t)bytes_of(v, by, i), v->stream),
                err, "filling %s", v->infos[i].name);
    return rc;
}

int stitch__clear_states(stitch__verify *v, const CUdeviceptr *set, stitch_error **err)
{
    return set_bytes(v, set, NULL, STITCH_TENSOR_STATE, 0, err);
}

int stitch__poison(stitch__verify *v, const CUdeviceptr *set, const stitch__oracle *by, int byte, stitch_error **err)
{
    return set_bytes(v, set, by, STITCH_TENSOR_OUTPUT, byte, err);
}

static stitch__compared compared(const stitch__verify *v, size_t i, const CUdeviceptr *got,
                                 const stitch__oracle *got_by, const CUdeviceptr *again)
{
    return (stitch__compared){
        .name = v->infos[i].name,
        .got = got[i],
        .again = again ? again[i] : 0,
        .want = v->want[i],
        .got_dtype = dtype_of(v, got_by, i),
        .want_dtype = dtype_of(v, v->oracle, i),
        .count = v->infos[i].elements,
        .atol = v->task->atol,
        .rtol = stitch__dtype_rtol(v->infos[i].dtype, v->task->rtol),
    };
}

int stitch__compare_set(stitch__verify *v, const CUdeviceptr *got, const stitch__oracle *got_by,
                        const CUdeviceptr *again, stitch__trial_output *outputs, stitch_error **err)
{
    size_t k = 0;
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < v->count; i++) {
        if (v->infos[i].role != STITCH_TENSOR_OUTPUT)
            continue;
        stitch__compared what = compared(v, i, got, got_by, again);
        outputs[k] = (stitch__trial_output){.tensor = i};
        rc = stitch__compare(&v->comparator, v->stream, &v->scope, &what, &outputs[k].c, err);
        if (!rc && outputs[k].c.mismatches) {
            outputs[k].located = true;
            rc = stitch__compare_locate(&v->comparator, v->stream, &v->scope, &v->infos[i], got[i], what.got_dtype,
                                        v->want[i], what.want_dtype, what.atol, what.rtol, &outputs[k].where, err);
        }
        k++;
    }
    return rc;
}

int stitch__compare_set_enqueue(stitch__verify *v, const CUdeviceptr *got, const stitch__oracle *got_by, size_t row,
                                stitch_error **err)
{
    size_t place = row * stitch__output_count(v);
    int rc = STITCH_OK;
    for (size_t i = 0; !rc && i < v->count; i++) {
        if (v->infos[i].role != STITCH_TENSOR_OUTPUT)
            continue;
        stitch__compared what = compared(v, i, got, got_by, NULL);
        rc = stitch__compare_enqueue(&v->comparator, v->stream, &what, place++, err);
    }
    return rc;
}

int stitch__compare_rows(stitch__verify *v, size_t rows, stitch__comparison *out, stitch_error **err)
{
    return stitch__compare_fetch(&v->comparator, v->stream, &v->scope, rows * stitch__output_count(v), out, err);
}
