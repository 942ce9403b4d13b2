/* SPDX-License-Identifier: MIT
 *
 * Line tables of cubins.
 */
#include <stdlib.h>

#include "profile/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"", "first", "second", "no_table"};
    stitch__lines *lines;
    const char *why;
    int rc = stitch__lines_read(NULL, data, size, &lines, &why);
    if (rc ? rc != STITCH_E_FORMAT || lines || !*why : !lines)
        abort();
    for (uint32_t i = 0; lines && i < 400; i++) {
        stitch__place p;
        if (stitch__lines_find(lines, i % 7, names[i % STITCH__COUNT(names)], (uint64_t)i * 16, &p) &&
            (!p.file || (p.line == 0 && *p.file)))
            abort();
    }
    stitch__lines_free(lines);
    return 0;
}
