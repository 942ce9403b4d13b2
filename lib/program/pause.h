/* SPDX-License-Identifier: MIT
 *
 * A break in a run.
 */
#ifndef STITCH_LIB_PROGRAM_PAUSE_H
#define STITCH_LIB_PROGRAM_PAUSE_H

#include <stddef.h>

/* A break in a plain run. Once the device has been given at least so many kernels, copies and fills, fn is called; what
 * it returns, if not 0, ends the run and is its result. There is no break within steps that have dependencies. */
typedef struct stitch__pause {
    size_t after;
    int (*fn)(void *userdata);
    void *userdata;
} stitch__pause;

#endif
