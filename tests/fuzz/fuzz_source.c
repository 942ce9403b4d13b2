/* SPDX-License-Identifier: MIT
 *
 * Source text on its way to the compiler. Whatever it looks like, text that the scan lets through has no line that
 * includes a file by an absolute path.
 */
#include <stdlib.h>

#include "cuda/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char attack[] = "\n\n#include \"/etc/passwd\"\n";
    stitch__arena arena = {0};
    stitch__diagnostics d = {0};
    stitch__buf b;
    int bad = stitch__source_check(&arena, (const char *)data, size, NULL, &d) != STITCH_OK;
    bad |= d.count > STITCH__DIAGNOSTICS_MAX;
    /* In front of anything, and behind anything, the directive is seen. */
    for (int behind = 0; behind < 2; behind++) {
        stitch__diagnostics attacked = {0};
        stitch__buf_init(&b, NULL);
        if (behind)
            stitch__buf_append(&b, data, size);
        stitch__buf_append(&b, attack, sizeof(attack) - 1);
        if (!behind)
            stitch__buf_append(&b, data, size);
        bad |= b.failed || stitch__source_check(&arena, b.data, b.len, NULL, &attacked) != STITCH_OK ||
               attacked.errors == 0;
        stitch__buf_free(&b);
    }
    stitch__arena_free(&arena);
    if (bad)
        abort();
    return 0;
}
