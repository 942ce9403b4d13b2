/* SPDX-License-Identifier: MIT
 *
 * Every scalar instruction that the simulator runs, as a list: its PTX, the types of its operands, and what it must
 * give according to a reference in C. The same list makes the kernels that test the simulator
 * (test_sim_instructions.c), that record a GPU's answers (tests/gpu/record_instructions.c), and random programs
 * (tests/fuzz/ptx_diff.c).
 */
#ifndef STITCH_TESTS_SIM_INSTRUCTIONS_H
#define STITCH_TESTS_SIM_INSTRUCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/arith.h"

enum {
    INSTR_MAX_INPUTS = 3,
    /* instr.flags */
    INSTR_APPROXIMATE = 1, /* C cannot say the exact result: compare with recordings */
    INSTR_UNKNOWN_NAN = 2, /* of two NaN operands, the compiler may put either first: their payloads are left out of
                              random programs */
    INSTR_CONTEXT = 8, /* compiled differently depending on what surrounds it: not used in random programs. A guarded
                          abs or neg becomes a select, which keeps a NaN's payload; ptxas 13.0 applies the second
                          half of a guarded `set` with an f32 result or 16-bit operands whatever the guard says. */
    INSTR_DIVIDES = 4, /* by b: a zero divisor gives an unspecified result and is not generated */
};

typedef struct instr instr;
/* The reference: inputs as registers hold them, zero-extended to 64 bits. False: no reference. */
typedef bool instr_ref(const instr *in, const uint64_t *x, uint64_t *out);

struct instr {
    char name[72];  /* "add.rz.ftz.f32", unique */
    char code[280]; /* PTX with %d (result), %a %b %c (inputs); %p is a predicate to use, %t and %u 32-bit, %w 64-bit
                       registers */
    uint8_t dst;    /* stitch__num: gives the width of the result */
    uint8_t src[INSTR_MAX_INPUTS];
    uint8_t inputs;
    uint8_t flags;
    instr_ref *ref;
    union {
        stitch__arith_op op;
        stitch__arith_cvt cvt;
        struct {
            uint8_t kind, type, extra;
            uint32_t immediate;
        } integer;
    } u;
};

/* The list; made once, the caller frees it. NULL: out of memory. */
instr *instr_list(size_t *count);

/* Register width in bits of a type as the kernels hold it: 16, 32 or 64. */
unsigned instr_width(unsigned type);

/* PTX text of kernels k0 .. k<count-1>, one an instruction, target sm_<arch>:
 *     .entry k<i>(.param .u64 in, .param .u64 out, .param .u32 n)
 * Thread t < n reads three 64-bit words at in + 24 t and writes a 64-bit word at out + 8 t. Freed by the caller. */
char *instr_kernels(const instr *list, size_t count, unsigned arch);

/* Input k of sample i of an instruction: corner cases first, then random patterns. */
uint64_t instr_input(const instr *in, size_t index_in_list, unsigned sample, unsigned k);

#endif
