/* SPDX-License-Identifier: MIT
 *
 * Machine code and PTX, and the mangled names in them.
 */
#include <stdlib.h>

#include "cuda/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int check(stitch__arena *arena, int rc, const stitch__entries *entries)
{
    if (rc != STITCH_OK)
        return rc == STITCH_E_FORMAT && entries->count == 0 ? 0 : -1;
    for (size_t i = 0; i < entries->count; i++) {
        stitch__demangled d;
        if (stitch__demangle(arena, entries->list[i].symbol, &d) != STITCH_OK || !d.name)
            return -1;
        for (size_t p = 0; p < entries->list[i].param_count; p++) {
            if (entries->list[i].params[p].size == 0)
                return -1;
        }
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__arena arena = {0};
    stitch__entries entries;
    stitch__demangled d;
    const char *why;
    char symbol[256] = "_Z1k";
    int bad = check(&arena, stitch__cubin_parse(&arena, data, size, &entries, &why), &entries);
    bad |= check(&arena, stitch__ptx_parse(&arena, (const char *)data, size, &entries, &why), &entries);
    size_t n = size < 200 ? size : 200;
    memcpy(symbol + 4, data, n);
    symbol[4 + n] = '\0';
    bad |= stitch__demangle(&arena, symbol, &d) != STITCH_OK;
    stitch__arena_free(&arena);
    if (bad)
        abort();
    return 0;
}
