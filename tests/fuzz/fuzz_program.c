/* SPDX-License-Identifier: MIT
 *
 * Launch plans: any text either parses or is refused with a message, and what parses can be validated, saved and
 * loaded.
 */
#include <stdlib.h>

#include "base/base.h"
#include <stitch/program.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Names that the corpus uses. */
static stitch_interface *make_interface(stitch_context *ctx)
{
    static const struct {
        const char *name;
        int64_t value;
    } dims[] = {{"B", 4}, {"T", 8}, {"C", 64}, {"H", 8}, {"L", 2}};
    static const struct {
        const char *name;
        int role, dtype;
    } tensors[] = {{"x", STITCH_TENSOR_INPUT, STITCH_DTYPE_F32},   {"w", STITCH_TENSOR_WEIGHT, STITCH_DTYPE_F32},
                   {"wh", STITCH_TENSOR_WEIGHT, STITCH_DTYPE_F16}, {"b", STITCH_TENSOR_WEIGHT, STITCH_DTYPE_F32},
                   {"s", STITCH_TENSOR_STATE, STITCH_DTYPE_F32},   {"y", STITCH_TENSOR_OUTPUT, STITCH_DTYPE_F32}};
    static const char *const shape[] = {"B*T", "C"};
    stitch_interface *i = NULL;
    if (stitch_interface_new(ctx, &i, NULL))
        abort();
    for (size_t k = 0; k < STITCH__COUNT(dims); k++) {
        if (stitch_interface_set_dim(i, dims[k].name, dims[k].value, NULL))
            abort();
    }
    for (size_t k = 0; k < STITCH__COUNT(tensors); k++) {
        if (stitch_interface_add_tensor(i, tensors[k].role, tensors[k].name, tensors[k].dtype, 2, shape, NULL))
            abort();
    }
    return i;
}

static void round_trip(stitch_context *ctx, const stitch_program *p)
{
    stitch_program *back = NULL;
    void *file = NULL;
    size_t size;
    if (stitch_program_save_memory(p, &file, &size, NULL) ||
        stitch_program_load_memory(ctx, file, size, NULL, &back, NULL))
        abort();
    if (strcmp(stitch_program_hash(p), stitch_program_hash(back)) != 0)
        abort();
    stitch_program_free(back);
    stitch_free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch_context *ctx = NULL;
    stitch_program *p = NULL;
    stitch_error *err = NULL;
    char *text = malloc(size + 1);
    int rc;

    if (!text || stitch_context_new(&ctx, NULL, NULL))
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    rc = stitch_program_parse(ctx, "__global__ void k() {}", text, NULL, &p, &err);
    if ((rc == STITCH_OK) != (p != NULL) || (rc && (!*stitch_error_message(err) || stitch_error_code(err) != rc)))
        abort();
    if (p) {
        stitch_interface *i = make_interface(ctx);
        rc = stitch_program_validate(p, i, "sm_90a", &err);
        if (rc && (!*stitch_error_message(err) || stitch_error_code(err) != rc))
            abort();
        round_trip(ctx, p); /* with or without an interface */
        stitch_interface_free(i);
    }
    stitch_program_free(p);
    stitch_error_free(err);
    stitch_context_free(ctx);
    free(text);
    return 0;
}
