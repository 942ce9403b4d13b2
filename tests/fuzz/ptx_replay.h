/* SPDX-License-Identifier: MIT
 *
 * Differences that ptx_diff printed, run again.
 */
#ifndef STITCH_TESTS_FUZZ_PTX_REPLAY_H
#define STITCH_TESTS_FUZZ_PTX_REPLAY_H

#include "ptx_program.h"
#include "runner.h"

/* The name of an input or output word of a thread: %h0 .. %p, at most 7 characters. Returns `buffer`. */
const char *replay_register(unsigned word, char buffer[8]);

/* Runs every kernel of a file of differences in the simulator, and on the GPU if there is one (`gpu` may be NULL).
 * Prints a line each and a summary. 0: the simulator gives what the GPU gave, 1: it does not everywhere, 2: the file
 * cannot be read, or a kernel not run. */
int replay(const char *path, runner *sim, runner *gpu);

#endif
