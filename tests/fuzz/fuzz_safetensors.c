/* SPDX-License-Identifier: MIT
 *
 * Tensor files: what is accepted lies inside the file, without gaps and overlaps, and fits its dtypes and shapes.
 */
#include <stdlib.h>

#include "base/base.h"
#include "task/task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const stitch__safetensors *st)
{
    uint64_t total = 0;
    for (size_t i = 0; i < st->count; i++) {
        const stitch__st_tensor *t = &st->tensors[i];
        uint64_t elements = 1;
        for (size_t k = 0; k < t->rank; k++)
            elements *= (uint64_t)t->shape[k];
        if (t->rank > STITCH_MAX_RANK || t->offset < st->data_start || t->offset > st->file_bytes ||
            t->bytes > st->file_bytes - t->offset)
            abort();
        if (t->dtype && elements * stitch_dtype_size(t->dtype) != t->bytes)
            abort();
        if (stitch__safetensors_find(st, t->name) != t)
            abort();
        total += t->bytes;
    }
    if (total != st->file_bytes - st->data_start)
        abort();
}

/* The input is a whole file: 8 bytes of length, header, data. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch_context *ctx = NULL;
    stitch__safetensors st = {0};
    stitch_error *err = NULL;
    uint64_t len = 0;
    int rc;

    if (size < 8)
        return 0;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | data[i];
    /* A mutation of the header should not be lost for its length. */
    if (len > size - 8)
        len = size - 8;
    if (stitch_context_new(&ctx, NULL, NULL))
        abort();
    st.ctx = ctx;
    st.fd = -1;
    st.file_bytes = size;
    st.data_start = 8 + len;
    rc = stitch__safetensors_parse(&st, (const char *)data + 8, (size_t)len, &err);
    if (rc == STITCH_OK)
        check(&st);
    else if (!*stitch_error_message(err))
        abort();
    stitch_free(st.tensors);
    stitch_free(st.names);
    stitch_error_free(err);
    stitch_context_free(ctx);
    return 0;
}
