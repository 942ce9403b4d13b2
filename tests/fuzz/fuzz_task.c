/* SPDX-License-Identifier: MIT
 *
 * Task documents: any text either is a task that can be asked about, or an error with a message.
 */
#include <stdlib.h>

#include "base/base.h"
#include "task/task.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch_context *ctx = NULL;
    stitch_task *t = NULL;
    stitch_error *err = NULL;
    char *text = malloc(size + 1), hash[65];
    int rc;

    if (!text || stitch_context_new(&ctx, NULL, NULL))
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    rc = stitch_task_parse(ctx, text, NULL, &t, &err);
    if ((rc == STITCH_OK) != (t != NULL) || (rc != STITCH_OK && !*stitch_error_message(err)))
        abort();
    if (t) {
        if (stitch_interface_tensor_count(stitch_task_interface(t)) == 0 || stitch_task_hash(t, hash, NULL))
            abort();
        if (stitch__task_has_reduced(t) && stitch_task_use_reduced(t, 1, NULL) == STITCH_OK &&
            stitch_task_use_reduced(t, 0, NULL))
            abort();
    }
    stitch_task_free(t);
    stitch_error_free(err);
    stitch_context_free(ctx);
    free(text);
    return 0;
}
