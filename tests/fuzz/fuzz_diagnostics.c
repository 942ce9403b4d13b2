/* SPDX-License-Identifier: MIT
 *
 * Compile logs. The part behind a line "====" is the PTX that ptxas's line numbers refer to.
 */
#include <stdlib.h>

#include "cuda/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__arena arena = {0};
    stitch__diagnostics d = {0};
    stitch__usages u = {0};
    stitch__buf b;
    const char *text = (const char *)data, *ptx = size ? memmem(text, size, "\n====\n", 6) : NULL;
    size_t len = ptx ? (size_t)(ptx - text) : size;
    int bad = stitch__diagnostics_parse(&arena, text, len, ptx ? ptx + 6 : NULL, ptx ? size - len - 6 : 0, &d, &u) !=
              STITCH_OK;
    bad |= d.count > STITCH__DIAGNOSTICS_MAX;
    for (size_t i = 0; i < d.count; i++)
        bad |= !stitch__utf8_valid(d.list[i].message, strlen(d.list[i].message)) || d.list[i].line < 0 ||
               d.list[i].column < 0;
    stitch__buf_init(&b, NULL);
    stitch__log_strip(text, len, &b);
    bad |= b.failed || b.len > len + 1;
    stitch__buf_free(&b);
    stitch_free(u.list);
    stitch__arena_free(&arena);
    if (bad)
        abort();
    return 0;
}
