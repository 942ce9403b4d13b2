/* SPDX-License-Identifier: MIT
 *
 * What the files that make the list of instructions share.
 */
#ifndef STITCH_TESTS_SIM_INSTRUCTIONS_LIST_H
#define STITCH_TESTS_SIM_INSTRUCTIONS_LIST_H

#include "instructions.h"

typedef struct instr_items {
    instr *items;
    size_t count, capacity;
    bool failed; /* out of memory */
} instr_items;

extern const char *const instr_type_name[STITCH__NUM_COUNT]; /* "u8" ... */

/* A zeroed entry at the end; NULL: out of memory. */
instr *instr_add(instr_items *l);
void instr_add_integers(instr_items *l);

/* Whether the 32-bit operands after the first are shift amounts, positions or widths; `two`: both in one operand. */
bool instr_takes_position(const instr *in, bool *two);

#endif
