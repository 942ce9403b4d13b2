/* SPDX-License-Identifier: MIT
 *
 * From an instruction of a cubin to its line of source, by the line table (.debug_line) that the compiler's option
 * -lineinfo makes. CUPTI can do that too, but names the innermost of inlined functions, which for much of CUDA's
 * headers (barriers, half arithmetic, cooperative groups) is a line of a file that nobody wrote.
 */
#ifndef STITCH_LIB_PROFILE_LINES_H
#define STITCH_LIB_PROFILE_LINES_H

#include "base/base.h"

typedef struct stitch__lines stitch__lines;

/* Strings live as long as the lines. */
typedef struct stitch__place {
    const char *kernel; /* symbol of the kernel whose code it is; NULL: of none */
    const char *file;   /* without its folder; "" if not known */
    uint32_t line;      /* 0: not known */
    bool source;        /* of the file that was compiled, not of one that it includes */
} stitch__place;

/* Safe on any bytes; nothing of the cubin is kept. STITCH_E_FORMAT with *why: no cubin. One without a line table has
 * functions, but no lines; so does what is damaged in the table. */
int stitch__lines_read(const stitch_context *ctx, const void *cubin, size_t size, stitch__lines **out,
                       const char **why);
/* Where the instruction at `offset` bytes of a function is from: the innermost place in the compiled file, else the
 * innermost one. The function is given by its number in the cubin's symbol table; by its name where that number is of
 * none (0 always is). False: there is no such function. */
bool stitch__lines_find(const stitch__lines *lines, uint32_t symbol, const char *name, uint64_t offset,
                        stitch__place *out);
void stitch__lines_free(stitch__lines *lines);

/* Line `number` (from 1) of a text, without the blanks at both ends; false: it is not there. */
bool stitch__lines_text(const char *text, uint32_t number, const char **out, size_t *len);

#endif
