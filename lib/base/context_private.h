/* SPDX-License-Identifier: MIT
 *
 * The context's layout; for the base module alone.
 */
#ifndef STITCH_LIB_BASE_CONTEXT_PRIVATE_H
#define STITCH_LIB_BASE_CONTEXT_PRIVATE_H

#include <pthread.h>

#include "base/base.h"

struct stitch_context {
    stitch_context_options options; /* strings and the allocator are owned; allocator NULL: malloc */
    stitch_allocator allocator;
    stitch_cancel cancel;
    pthread_mutex_t lock; /* recursive: making one slot's state may ask for a lower slot */
    struct {
        void *state;
        void (*destroy)(void *state);
    } slots[STITCH__SLOT_COUNT];
};

#endif
