/* SPDX-License-Identifier: MIT
 *
 * Random PTX programs: made from a seed, printed as PTX, and run by a plain evaluator in C that is built on the
 * reference of each instruction. A program is a list of statements over four register files; control flow is
 * structured, so that the evaluator needs no branches: it runs statement by statement, all threads each.
 */
#ifndef STITCH_TESTS_FUZZ_PTX_PROGRAM_H
#define STITCH_TESTS_FUZZ_PTX_PROGRAM_H

#include "instructions.h"

enum {
    PROG_H = 8,                                /* 16-bit registers */
    PROG_R = 12,                               /* 32-bit */
    PROG_D = 8,                                /* 64-bit */
    PROG_P = 4,                                /* predicates */
    PROG_WORDS = PROG_H + PROG_R + PROG_D + 1, /* of input and of output a thread: the last is the predicates */
    PROG_THREADS = 128,                        /* a block */
    PROG_BLOCKS = 2,
    PROG_MAX_DEPTH = 3,
};

typedef enum stmt_kind {
    STMT_INSTR,     /* dst = instr(src...), under a predicate if pred >= 0 */
    STMT_PREDICATE, /* pred = pred op pred, or a comparison through STMT_INSTR's value: and, or, xor, not */
    STMT_TEST,      /* pred = (r[a] & mask) == value */
    STMT_IF,        /* body and other: statements that follow, by count */
    STMT_LOOP,      /* body `count` times, or (r[a] & 3) times when `count` is 0 */
    STMT_SHUFFLE,   /* from here on: by whole warps, never inside IF or LOOP */
    STMT_VOTE,
    STMT_MATCH,
    STMT_REDUX,
    STMT_SHARED, /* write r[a] to shared memory, barrier, read another thread's, barrier */
    STMT_ATOMIC, /* red on a shared word by all threads of the block, then read it */
    STMT_LOCAL,  /* local array: store r[a] at a data-dependent index, load at another */
    STMT_PACK,   /* moves between register widths */
} stmt_kind;

typedef struct stmt {
    uint8_t kind, dst, a, b, c, mode;
    int8_t pred; /* -1: none */
    bool negated;
    bool removed; /* by the reducer; the evaluator and the printer skip it (with its body) */
    uint16_t instr;
    uint16_t body, other; /* number of statements that follow and belong to it (nested ones included) */
    uint32_t value;
} stmt;

typedef struct program {
    stmt *at;
    size_t count, capacity;
    const instr *list;
    size_t list_count;
    uint64_t seed;
    bool plain;  /* as in program_options */
    bool failed; /* out of memory */
} program;

typedef struct program_options {
    unsigned length;  /* top-level statements, about */
    bool approximate; /* use the special functions that the simulator reproduces exactly */
    bool plain;       /* print results as they are: a compiler may merge statements, see ptx_program.c */
    const bool *skip; /* by place in the list, may be NULL: instructions not to use */
} program_options;

/* Which instructions of the list a program may use. */
bool program_uses(const instr *in, const program_options *options);
void program_make(program *p, uint64_t seed, const instr *list, size_t list_count, const program_options *options);
void program_free(program *p);
/* Inputs: words[block * threads + thread][PROG_WORDS]. */
void program_inputs(const program *p, uint64_t *words);
/* Runs it in place on those words, which become the outputs. */
void program_evaluate(const program *p, uint64_t *words);

/* A growing string. */
typedef struct prog_text {
    char *at;
    size_t length, capacity;
    bool failed;
} prog_text;
void prog_begin(prog_text *t, unsigned arch);                           /* .version, .target */
void program_print(const program *p, prog_text *t, const char *kernel); /* kernel(.u64 in, .u64 out, .u32 n) */

#endif
