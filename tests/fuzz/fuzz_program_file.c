/* SPDX-License-Identifier: MIT
 *
 * Saved programs: any bytes either load, and then can be saved and loaded again, or are refused with a message.
 */
#include <stdlib.h>

#include "base/base.h"
#include <stitch/program.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch_context *ctx = NULL;
    stitch_program *p = NULL, *back = NULL;
    stitch_error *err = NULL;
    void *file = NULL;
    size_t bytes;

    if (stitch_context_new(&ctx, NULL, NULL))
        abort();
    int rc = stitch_program_load_memory(ctx, data, size, NULL, &p, &err);
    if ((rc == STITCH_OK) != (p != NULL) || (rc && (!*stitch_error_message(err) || stitch_error_code(err) != rc)))
        abort();
    if (p) {
        if (stitch_program_save_memory(p, &file, &bytes, NULL) ||
            stitch_program_load_memory(ctx, file, bytes, NULL, &back, NULL))
            abort();
        stitch_free(file);
    }
    stitch_program_free(back);
    stitch_program_free(p);
    stitch_error_free(err);
    stitch_context_free(ctx);
    return 0;
}
