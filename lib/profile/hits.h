/* SPDX-License-Identifier: MIT
 *
 * Samples by kernel, line of source and reason, and what of them becomes facts.
 */
#ifndef STITCH_LIB_PROFILE_HITS_H
#define STITCH_LIB_PROFILE_HITS_H

#include "profile/facts.h"

/* Samples of one reason at one instruction; after sorting all of a line. */
typedef struct stitch__hit {
    const char *kernel, *file; /* one pointer for each text in a module */
    uint32_t module, line, reason;
    bool source; /* the file is the one that the module's source is of */
    uint64_t samples;
} stitch__hit;

typedef struct stitch__hits {
    size_t count, cap;
    stitch__hit *list; /* stitch_free() */
} stitch__hits;

int stitch__hits_add(const stitch_context *ctx, stitch__hits *hits, const stitch__hit *hit); /* 0 or STITCH_E_NOMEM */
/* Into the order that filling needs. */
void stitch__hits_sort(stitch__hits *hits);
/* Samples and lines of a kernel of `f`. Modules that have a kernel of that symbol each have lines of their own in it.
 * `sources`: text of each module, or NULL. 0 or STITCH_E_NOMEM. */
int stitch__hits_fill(const stitch__hits *hits, const char *const *reasons, size_t reason_count,
                      const char *const *sources, stitch__facts *f, stitch__kernel_fact *k);

#endif
