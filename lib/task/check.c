/* SPDX-License-Identifier: MIT
 *
 * Tasks as a whole: is everything there, and which hash names it.
 */
#include "task/task.h"

/* Where the data of input or weight `index` comes from is said in order of precedence by stitch__task_fill(). */
static int check_source(const stitch_task *t, size_t index, const stitch_tensor_info *info, stitch_error **err)
{
    const char *role = info->role == STITCH_TENSOR_INPUT ? "input" : "weight";
    const stitch__safetensors *recorded = t->reference.kind == STITCH__COMPUTE_TENSORS ? t->reference.tensors : NULL;

    if (t->tensors[index].data && t->tensors[index].data_bytes != info->bytes)
        return stitch__err(t->ctx, err, STITCH_E_STATE,
                           "%s %s was set to %" PRIu64 " bytes of data, but has %" PRIu64 " bytes at these dims", role,
                           info->name, t->tensors[index].data_bytes, info->bytes);
    if (t->tensors[index].data)
        return STITCH_OK;
    if (recorded && (info->role == STITCH_TENSOR_INPUT || stitch__safetensors_find(recorded, info->name)))
        return stitch__safetensors_match(recorded, info, role, false, NULL, err);
    if (t->weights && info->role == STITCH_TENSOR_WEIGHT)
        return stitch__safetensors_match(t->weights, info, role, false, NULL, err);
    if (t->tensors[index].dist.kind == STITCH_DIST_NONE)
        return stitch__err(
            t->ctx, err, STITCH_E_STATE,
            "%s %s (%s) has neither data nor a distribution: integers need one that fits what they mean, "
            "{\"randint\": [0, 10]} for example",
            role, info->name, stitch_dtype_name(info->dtype));
    return STITCH_OK;
}

int stitch__task_check(const stitch_task *t, stitch_error **err)
{
    size_t outputs = 0;
    int rc;

    for (size_t i = 0; i < stitch_interface_tensor_count(t->iface); i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        rc = stitch_interface_tensor(t->iface, i, &info);
        if (rc)
            return stitch__err(t->ctx, err, rc, "the shape of tensor %s does not work out at the present dims",
                               info.name);
        if (info.role == STITCH_TENSOR_OUTPUT) {
            outputs++;
            if (t->reference.kind == STITCH__COMPUTE_TENSORS) {
                rc = stitch__safetensors_match(t->reference.tensors, &info, "output", true, NULL, err);
                if (rc)
                    return rc;
            }
        } else if (info.role != STITCH_TENSOR_STATE) {
            rc = check_source(t, i, &info, err);
            if (rc)
                return rc;
        }
    }
    if (!outputs)
        return stitch__err(t->ctx, err, STITCH_E_STATE, "task %s has no outputs", t->name);
    if (t->reference.kind == STITCH__COMPUTE_NONE)
        return stitch__err(t->ctx, err, STITCH_E_STATE,
                           "task %s has no reference: set a callback, a program or recorded tensors", t->name);
    return STITCH_OK;
}

static bool is_input(const stitch_task *t, size_t i)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    return stitch_interface_tensor(t->iface, i, &info) == STITCH_OK && info.role == STITCH_TENSOR_INPUT;
}

bool stitch__task_input_fixed(const stitch_task *t, size_t i)
{
    int kind = t->tensors[i].dist.kind;
    return is_input(t, i) && (t->reference.kind == STITCH__COMPUTE_TENSORS || t->tensors[i].data ||
                              kind == STITCH_DIST_CONSTANT || kind == STITCH_DIST_TRIL || kind == STITCH_DIST_ARANGE);
}

bool stitch__task_inputs_fixed(const stitch_task *t)
{
    for (size_t i = 0; i < stitch_interface_tensor_count(t->iface); i++)
        if (is_input(t, i) && !stitch__task_input_fixed(t, i))
            return false;
    return true;
}

bool stitch__task_has_fixed(const stitch_task *t)
{
    for (size_t i = 0; i < stitch_interface_tensor_count(t->iface); i++)
        if (stitch__task_input_fixed(t, i))
            return true;
    return stitch__task_inputs_fixed(t);
}

/* ---- hash -------------------------------------------------------------------------------------------------------- */

static void hash_u64(stitch__sha256 *h, uint64_t v)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    stitch__sha256_update(h, bytes, sizeof(bytes));
}

static void hash_double(stitch__sha256 *h, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    hash_u64(h, bits);
}

static int hash_file(const stitch_task *t, stitch__sha256 *h, const stitch__safetensors *st, stitch_error **err)
{
    enum { CHUNK = 1 << 20 };
    char *chunk;
    int rc = STITCH_OK;

    hash_u64(h, st ? st->count : UINT64_MAX);
    if (!st)
        return STITCH_OK;
    chunk = stitch__alloc(t->ctx, CHUNK);
    if (!chunk)
        return stitch__err_nomem(t->ctx, err);
    for (size_t i = 0; !rc && i < st->count; i++) {
        const stitch__st_tensor *x = &st->tensors[i];
        stitch__sha256_string(h, x->name);
        hash_u64(h, (uint64_t)x->dtype);
        hash_u64(h, x->rank);
        for (size_t k = 0; k < x->rank; k++)
            hash_u64(h, (uint64_t)x->shape[k]);
        for (uint64_t at = 0; !rc && at < x->bytes; at += CHUNK) {
            size_t part = x->bytes - at < CHUNK ? (size_t)(x->bytes - at) : CHUNK;
            rc = stitch__safetensors_read(st, x, at, chunk, part, err);
            if (!rc)
                stitch__sha256_update(h, chunk, part);
        }
    }
    stitch_free(chunk);
    return rc;
}

static int hash_compute(const stitch_task *t, stitch__sha256 *h, const stitch__compute *c, stitch_error **err)
{
    hash_u64(h, (uint64_t)c->kind);
    stitch__sha256_string(h, c->name);
    hash_u64(h, (uint64_t)c->precision);
    hash_u64(h, (uint64_t)c->output_dtype);
    stitch__sha256_string(h, c->program ? stitch_program_hash(c->program)
                                        : NULL); /* of a callback nothing can be hashed */
    return hash_file(t, h, c->tensors, err);
}

static void hash_tensors(const stitch_task *t, stitch__sha256 *h)
{
    size_t count = stitch_interface_tensor_count(t->iface);
    hash_u64(h, count);
    for (size_t i = 0; i < count; i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        if (stitch_interface_tensor(t->iface, i, &info))
            continue;
        stitch__sha256_string(h, info.name);
        hash_u64(h, (uint64_t)info.role);
        hash_u64(h, (uint64_t)info.dtype);
        hash_u64(h, info.rank);
        for (size_t k = 0; k < info.rank; k++)
            stitch__sha256_string(h, info.shape_expr[k]);
        hash_u64(h, (uint64_t)t->tensors[i].dist.kind);
        hash_double(h, t->tensors[i].dist.a);
        hash_double(h, t->tensors[i].dist.b);
        hash_u64(h, t->tensors[i].data_bytes);
        if (t->tensors[i].data)
            stitch__sha256_update(h, t->tensors[i].data, (size_t)t->tensors[i].data_bytes);
    }
}

int stitch_task_hash(stitch_task *t, char hex[65], stitch_error **err)
{
    stitch__sha256 h;
    int rc;

    if (!t || !hex)
        return stitch__err(t ? t->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_task_hash: needs a task and room for the result");
    hex[0] = 0;
    if (!t->hash[0]) {
        stitch__sha256_init(&h);
        stitch__sha256_string(&h, "stitch task 1");
        stitch__sha256_string(&h, t->name);
        stitch__sha256_string(&h, t->description);
        stitch__sha256_string(&h, t->source);
        if (t->flops)
            stitch__sha256_string(&h, t->flops);
        hash_u64(&h, t->dim_count);
        for (size_t i = 0; i < t->dim_count; i++) {
            stitch__sha256_string(&h, t->dims[i].name);
            hash_u64(&h, (uint64_t)t->dims[i].value);
            hash_u64(&h, (uint64_t)t->dims[i].reduced);
        }
        hash_tensors(t, &h);
        hash_double(&h, t->atol);
        hash_double(&h, t->rtol);
        hash_u64(&h, (uint64_t)t->precision);
        rc = hash_file(t, &h, t->weights, err);
        if (!rc)
            rc = hash_compute(t, &h, &t->reference, err);
        hash_u64(&h, t->baseline_count);
        for (size_t i = 0; !rc && i < t->baseline_count; i++)
            rc = hash_compute(t, &h, &t->baselines[i], err);
        if (rc)
            return rc;
        stitch__sha256_hex(&h, t->hash);
    }
    memcpy(hex, t->hash, sizeof(t->hash));
    return STITCH_OK;
}
