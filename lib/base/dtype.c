/* SPDX-License-Identifier: MIT
 *
 * Element types.
 */
#include "base/base.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {{NULL, 0},
#define ENTRY(name, text, bytes) {text, bytes},
              STITCH_DTYPE_LIST(ENTRY)
#undef ENTRY
};

size_t stitch_dtype_size(int dtype)
{
    return dtype > 0 && (size_t)dtype < STITCH__COUNT(dtypes) ? dtypes[dtype].size : 0;
}

const char *stitch_dtype_name(int dtype)
{
    return dtype > 0 && (size_t)dtype < STITCH__COUNT(dtypes) ? dtypes[dtype].name : NULL;
}

int stitch_dtype_parse(const char *name)
{
    for (size_t i = 1; name && i < STITCH__COUNT(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0)
            return (int)i;
    }
    return STITCH_DTYPE_NONE;
}
