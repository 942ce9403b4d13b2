/* SPDX-License-Identifier: MIT
 *
 * The part of a task that a worker may know: dims, tensors, distributions. Rebuilt there with the public calls, so that
 * the same seed gives the same bits. Its tolerance, its reference and what that computed stay where they are.
 */
#include <math.h>

#include "worker/protocol.h"

enum { MAX_NAME = 255, MAX_EXPR = 1 << 16 };

void stitch__worker_task_encode(const stitch_task *t, stitch__buf *out)
{
    size_t dims = stitch_interface_dim_count(t->iface), tensors = stitch_interface_tensor_count(t->iface);

    stitch__put_text(out, t->name);
    stitch__put_u32(out, (uint32_t)dims);
    for (size_t i = 0; i < dims; i++) {
        const char *name = "";
        int64_t value = 0;
        (void)stitch_interface_dim(t->iface, i, &name, &value);
        stitch__put_text(out, name);
        stitch__put_u64(out, (uint64_t)value);
    }
    stitch__put_u32(out, (uint32_t)tensors);
    for (size_t i = 0; i < tensors; i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        const stitch_dist *dist = &t->tensors[i].dist;
        if (stitch_interface_tensor(t->iface, i, &info))
            out->failed = true;
        stitch__put_u32(out, (uint32_t)info.role);
        stitch__put_text(out, info.name);
        stitch__put_u32(out, (uint32_t)info.dtype);
        stitch__put_u32(out, (uint32_t)info.rank);
        for (size_t k = 0; k < info.rank; k++)
            stitch__put_text(out, info.shape_expr[k]);
        stitch__put_u32(out, (uint32_t)dist->kind);
        stitch__put_f64(out, dist->a);
        stitch__put_f64(out, dist->b);
    }
}

static int decode_tensor(stitch__reader *r, stitch_task *t, stitch_error **err)
{
    const char *shape[STITCH_MAX_RANK];
    stitch_dist dist = {0};
    int role = (int)stitch__get_u32(r);
    const char *name = stitch__get_text(r, MAX_NAME);
    int dtype = (int)stitch__get_u32(r);
    size_t rank = stitch__get_u32(r);

    if (rank > STITCH_MAX_RANK)
        r->failed = true;
    for (size_t k = 0; k < rank && !r->failed; k++)
        shape[k] = stitch__get_text(r, MAX_EXPR);
    dist.kind = (int32_t)stitch__get_u32(r);
    dist.a = stitch__get_f64(r);
    dist.b = stitch__get_f64(r);
    if (r->failed)
        return stitch__err(t->ctx, err, STITCH_E_FORMAT, "the description of a tensor is cut");
    return stitch_task_add_tensor(t, role, name, dtype, rank, shape, dist.kind ? &dist : NULL, err);
}

int stitch__worker_task_decode(stitch_context *ctx, const void *data, size_t len, stitch_task **out, stitch_error **err)
{
    stitch__reader r = {.data = data, .len = len};
    const char *name = stitch__get_text(&r, MAX_NAME);
    uint32_t count = stitch__get_u32(&r);
    stitch_task *t = NULL;
    int rc;

    *out = NULL;
    rc = r.failed ? stitch__err(ctx, err, STITCH_E_FORMAT, "the description of the task is cut")
                  : stitch_task_new(ctx, name, &t, err);
    for (uint32_t i = 0; !rc && i < count; i++) {
        const char *dim = stitch__get_text(&r, MAX_NAME);
        int64_t value = (int64_t)stitch__get_u64(&r);
        rc = r.failed ? stitch__err(ctx, err, STITCH_E_FORMAT, "the description of a dim is cut")
                      : stitch_task_set_dim(t, dim, value, err);
    }
    count = rc ? 0 : stitch__get_u32(&r);
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = decode_tensor(&r, t, err);
    if (!rc && (r.failed || r.at != r.len))
        rc = stitch__err(ctx, err, STITCH_E_FORMAT, "the description of the task is cut, or longer than it should be");
    if (rc)
        stitch_task_free(t);
    else
        *out = t;
    return rc;
}

/* The same order as in stitch__task_fill(). */
int stitch__worker_task_data(const stitch_task *t, size_t index, stitch__tensor_data *out, stitch_error **err)
{
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    const stitch__safetensors *recorded = t->reference.kind == STITCH__COMPUTE_TENSORS ? t->reference.tensors : NULL;
    int rc = stitch_interface_tensor(t->iface, index, &info);

    memset(out, 0, sizeof(*out));
    if (rc)
        return stitch__err(t->ctx, err, rc, "the task has no tensor %zu", index);
    if (info.role != STITCH_TENSOR_INPUT && info.role != STITCH_TENSOR_WEIGHT)
        return STITCH_OK;
    if (t->tensors[index].data) {
        out->memory = t->tensors[index].data;
        out->bytes = t->tensors[index].data_bytes;
        return STITCH_OK;
    }
    if (recorded && (info.role == STITCH_TENSOR_INPUT || stitch__safetensors_find(recorded, info.name)))
        out->file = recorded;
    else if (t->weights && info.role == STITCH_TENSOR_WEIGHT)
        out->file = t->weights;
    if (!out->file)
        return STITCH_OK;
    rc = stitch__safetensors_match(out->file, &info, info.role == STITCH_TENSOR_WEIGHT ? "weight" : "input", false,
                                   &out->entry, err);
    out->bytes = rc ? 0 : out->entry->bytes;
    return rc;
}

uint64_t stitch__kept_layout(const stitch_interface *iface, uint64_t *offsets)
{
    uint64_t at = 256; /* as memory comes from the driver; a run without outputs takes some, too */

    for (size_t i = 0; i < stitch_interface_tensor_count(iface); i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        offsets[i] = 0;
        if (stitch_interface_tensor(iface, i, &info) || info.role != STITCH_TENSOR_OUTPUT)
            continue;
        if (info.bytes > UINT64_MAX / 64 - at)
            return 0;
        offsets[i] = at;
        at += (info.bytes + 255) / 256 * 256;
    }
    return at;
}
