/* SPDX-License-Identifier: MIT
 *
 * The scan of machine code and PTX. What comes out must be printable as JSON, whatever the bytes were.
 */
#include <stdlib.h>

#include "verify/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int finish(stitch__scan *scan, int rc)
{
    json_t *j = rc == STITCH_OK ? stitch__scan_json(scan) : NULL;
    char *text = j ? stitch__scan_text(scan) : NULL;
    int bad = rc == STITCH_OK ? !j || !text : rc != STITCH_E_FORMAT;
    for (size_t i = 0; i < scan->function_count; i++)
        bad |= scan->functions[i].unknown > scan->functions[i].instructions;
    stitch_free(text);
    json_decref(j);
    stitch_free(scan->functions);
    stitch_free(scan->globals);
    stitch_free(scan->calls);
    stitch__arena_free(&scan->arena);
    return bad;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__scan old = {.arch = "sm_90a"}, new = {.arch = "sm_120"}, text = {.arch = "sm_90", .from_ptx = true};
    const char *why;
    int bad = finish(&old, stitch__scan_cubin(&old, data, size, &why));
    bad |= finish(&new, stitch__scan_cubin(&new, data, size, &why));
    bad |= finish(&text, stitch__scan_ptx(&text, (const char *)data, size, true, &why));
    if (bad)
        abort();
    return 0;
}
