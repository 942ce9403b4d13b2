/* SPDX-License-Identifier: MIT
 *
 * How fast nothing can be. A time below the bound is refused, so that everything that could make an honest program
 * faster than a naive bound is left out of it: what the L2 cache can hold, inputs that need not be read, units that the
 * precision policy does not rule out.
 */
#include "verify/verify.h"

#include "program/program.h"

enum {
    PROBES = 12,
    GRANULE = 256,  /* bytes that are altered in a probe */
    ALTERED = 0x3c, /* every byte of a granule: a small finite number in every floating dtype */
};

/* A type that the task's own tensors have is within every policy (docs/precision.md). */
static int least_precision(const stitch__verify *v)
{
    int least = v->task->precision;
    for (size_t i = 0; i < v->count && least != STITCH_PRECISION_ANY; i++) {
        int dtype = v->infos[i].dtype;
        if (dtype == STITCH_DTYPE_F16 || dtype == STITCH_DTYPE_BF16)
            least = STITCH_PRECISION_F16;
        else if (dtype == STITCH_DTYPE_F8E4M3 || dtype == STITCH_DTYPE_F8E5M2 || dtype == STITCH_DTYPE_I8)
            least = STITCH_PRECISION_ANY;
    }
    return least;
}

/* At the fastest rate that the policy allows; what no architecture is known for gets no bound from operations. */
static double flops_per_cycle(const stitch__verify *v)
{
    const stitch__arch_rates *rates = stitch__arch_rates_of(v->dev->info.compute_major, v->dev->info.compute_minor);
    if (!rates)
        return 0;
    switch (least_precision(v)) {
    case STITCH_PRECISION_F32: return rates->f32;
    case STITCH_PRECISION_TF32: return rates->limit_tf32;
    case STITCH_PRECISION_F16: return rates->limit_f16;
    default: return rates->limit_any;
    }
}

/* What has to cross the memory's pins: an L2 cache that was not flushed may hold inputs, and any may keep outputs. */
static void set_times(const stitch__verify *v, uint64_t in, uint64_t out, stitch__bound *b)
{
    uint64_t l2 = v->dev->info.l2_bytes, all = in + out, kept;
    double rate = stitch__device_bandwidth(v->dev);

    kept = v->report->flush_bytes >= l2 && out < l2 ? out : l2;
    b->memory_bytes = all > kept ? all - kept : 0;
    b->memory_us = rate > 0 ? (double)b->memory_bytes / rate * 1e6 : 0;
    b->bytes_us = rate > 0 ? (double)b->bytes / rate * 1e6 : 0;
    b->weights_us = rate > 0 ? (double)b->weight_bytes / rate * 1e6 : 0;
    b->us = b->memory_us > b->flops_us ? b->memory_us : b->flops_us;
}

static uint64_t bytes_of_role(const stitch__verify *v, int role)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < v->count; i++)
        if (v->infos[i].role == role)
            bytes += v->infos[i].bytes;
    return bytes;
}

void stitch__lower_bound(const stitch__verify *v, stitch__bound *out)
{
    uint64_t inputs = bytes_of_role(v, STITCH_TENSOR_INPUT), outputs = bytes_of_role(v, STITCH_TENSOR_OUTPUT);
    double rate = flops_per_cycle(v) * v->dev->info.multiprocessors * (double)v->dev->info.clock_khz * 1e3;
    int64_t flops = 0;

    memset(out, 0, sizeof(*out));
    out->bytes = inputs + outputs;
    out->weight_bytes = bytes_of_role(v, STITCH_TENSOR_WEIGHT);
    if (v->task->flops && stitch__interface_evaluate(v->task->iface, v->task->flops, &flops, NULL) == STITCH_OK)
        out->flops = (double)flops;
    out->flops_us = rate > 0 ? out->flops / rate * 1e6 : 0;
    set_times(v, inputs, outputs, out);
}

/* ---- what must be read ------------------------------------------------------------------------------------------- */

/* Runs the reference on the inputs that are there; hashes of its outputs. */
static int hash_outputs(stitch__verify *v, uint64_t *hashes, stitch_error **err)
{
    uint64_t seed = stitch__seed_derive(v->options.seed, STITCH__SEED_HASH, 1);
    int rc = stitch__clear_states(v, v->want, err);

    if (!rc)
        rc = stitch__oracle_run(v->oracle, v->stream, err);
    if (!rc)
        rc = stitch__hash_clear(&v->hasher, v->stream, 0, v->count, err);
    for (size_t i = 0; !rc && i < v->count; i++)
        if (v->infos[i].role == STITCH_TENSOR_OUTPUT)
            rc = stitch__hash_enqueue(&v->hasher, v->stream, v->want[i], 0,
                                      v->infos[i].elements * stitch_dtype_size(stitch__oracle_dtype(v->oracle, i)),
                                      seed, i, err);
    return rc ? rc
              : stitch__hash_fetch(&v->hasher, v->stream, &v->scope, "running the reference", v->count, hashes, err);
}

static int outputs_change(stitch__verify *v, bool *change, stitch_error **err)
{
    int rc = hash_outputs(v, v->hashes_after, err);
    *change = false;
    for (size_t i = 0; !rc && i < v->count; i++)
        *change |= v->infos[i].role == STITCH_TENSOR_OUTPUT && v->hashes[i] != v->hashes_after[i];
    return rc;
}

/* Whether the outputs change with one granule of an input. */
static int probe(stitch__verify *v, size_t input, uint64_t at, bool *change, stitch_error **err)
{
    const stitch__driver *drv = v->dev->drv;
    CUdeviceptr ptr = v->first[input] + at;
    unsigned char kept[GRANULE];
    int rc = stitch__cu_check(v->dev, drv->MemcpyDtoH(kept, ptr, GRANULE), err, "reading a part of an input");

    *change = false;
    if (!rc)
        rc = stitch__cu_check(v->dev, drv->MemsetD8Async(ptr, ALTERED, GRANULE, v->stream), err,
                              "altering a part of an input");
    if (!rc)
        rc = outputs_change(v, change, err);
    if (!rc)
        rc = stitch__cu_check(v->dev, drv->MemcpyHtoD(ptr, kept, GRANULE), err, "restoring a part of an input");
    return rc;
}

/* An input is needed if the outputs change with each of a few of its granules. Integers may be indices, which no
 * reference has to check: they are left alone. */
static int is_needed(stitch__verify *v, size_t input, bool *needed, stitch_error **err)
{
    const stitch_tensor_info *info = &v->infos[input];
    int rc = STITCH_OK;

    *needed = stitch__dtype_is_float(info->dtype) && info->bytes >= (uint64_t)PROBES * GRANULE;
    for (uint64_t k = 0; !rc && *needed && k < PROBES; k++) {
        rc = stitch__scope_check(&v->scope, "looking for what must be read", err);
        if (rc)
            break;
        uint64_t place = stitch__seed_derive(v->options.seed, STITCH__SEED_BOUND, input * PROBES + k);
        rc = probe(v, input, place % (info->bytes / GRANULE) * GRANULE, needed, err);
    }
    return rc;
}

int stitch__bound_confirm(stitch__verify *v, stitch__bound *b, stitch_error **err)
{
    uint64_t inputs = 0;
    bool changes = true;
    int rc = stitch__fill_inputs(v, stitch__seed_derive(v->options.seed, STITCH__SEED_PREPARE, 0), NULL, err);

    if (!rc)
        rc = hash_outputs(v, v->hashes, err);
    if (!rc)
        rc = outputs_change(v, &changes, err);
    /* A reference that is not the same twice shows nothing. */
    for (size_t i = 0; !rc && !changes && i < v->count; i++) {
        bool needed = false;
        if (v->infos[i].role != STITCH_TENSOR_INPUT)
            continue;
        rc = is_needed(v, i, &needed, err);
        inputs += needed ? v->infos[i].bytes : 0;
    }
    if (!rc)
        set_times(v, inputs, bytes_of_role(v, STITCH_TENSOR_OUTPUT), b);
    return rc;
}
