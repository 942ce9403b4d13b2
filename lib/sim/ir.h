/* SPDX-License-Identifier: MIT
 *
 * The decoded form of PTX that the interpreter runs, and what the parser, the decoder and the flow pass share.
 *
 * A register is one 32-lane array in a warp's frame: 64-bit registers of 256 bytes first, then 32-bit ones of 128
 * (types narrower than 32 bits sit in these, zero-extended), then predicates, each one 32-bit lane mask. While a
 * function is decoded, an operand is STITCH__OPD_x | number; stitch__sim_flow() turns it into a byte offset, with bit
 * 31 set if it counts from the function's constants instead of the frame.
 */
#ifndef STITCH_LIB_SIM_IR_H
#define STITCH_LIB_SIM_IR_H

#include "sim/arith.h"
#include "sim/sim.h"

#define STITCH__OPD_KIND     0xe0000000u
#define STITCH__OPD_NONE     0x00000000u
#define STITCH__OPD_REG      0x20000000u /* virtual register number */
#define STITCH__OPD_CONST    0x40000000u /* index in function->consts */
#define STITCH__OPD_SREG     0x60000000u /* enum stitch__sreg */
#define STITCH__OPD_INDEX    0x1fffffffu
#define STITCH__OFFSET_CONST 0x80000000u /* after stitch__sim_flow() */

/* Special registers that are a value of the warp, set when a frame begins. */
#define STITCH__SREG_LIST(X)                                                                                           \
    X(TID_X, "%tid.x")                                                                                                 \
    X(TID_Y, "%tid.y")                                                                                                 \
    X(TID_Z, "%tid.z") X(NTID_X, "%ntid.x") X(NTID_Y, "%ntid.y") X(NTID_Z, "%ntid.z") X(CTAID_X, "%ctaid.x")           \
        X(CTAID_Y, "%ctaid.y") X(CTAID_Z, "%ctaid.z") X(NCTAID_X, "%nctaid.x") X(NCTAID_Y, "%nctaid.y") X(             \
            NCTAID_Z, "%nctaid.z") X(LANEID, "%laneid") X(WARPID, "%warpid") X(NWARPID, "%nwarpid") X(SMID, "%smid")   \
            X(NSMID, "%nsmid") X(GRIDID, "%gridid") X(LANEMASK_EQ, "%lanemask_eq") X(LANEMASK_LE, "%lanemask_le")      \
                X(LANEMASK_LT, "%lanemask_lt") X(LANEMASK_GE, "%lanemask_ge") X(LANEMASK_GT, "%lanemask_gt") X(        \
                    CLUSTERID_X, "%clusterid.x") X(CLUSTERID_Y, "%clusterid.y") X(CLUSTERID_Z, "%clusterid.z")         \
                    X(NCLUSTERID_X, "%nclusterid.x") X(NCLUSTERID_Y, "%nclusterid.y") X(NCLUSTERID_Z, "%nclusterid.z") \
                        X(CLUSTER_CTAID_X, "%cluster_ctaid.x") X(CLUSTER_CTAID_Y, "%cluster_ctaid.y")                  \
                            X(CLUSTER_CTAID_Z, "%cluster_ctaid.z") X(CLUSTER_NCTAID_X, "%cluster_nctaid.x")            \
                                X(CLUSTER_NCTAID_Y, "%cluster_nctaid.y") X(CLUSTER_NCTAID_Z, "%cluster_nctaid.z")      \
                                    X(CLUSTER_CTARANK, "%cluster_ctarank") X(CLUSTER_NCTARANK, "%cluster_nctarank")    \
                                        X(DYNAMIC_SMEM, "%dynamic_smem_size") X(TOTAL_SMEM, "%total_smem_size")        \
                                            X(ENVREG1, "%envreg1") X(ENVREG2, "%envreg2")                              \
                                                X(CLUSTER_EXPLICIT, "%is_explicit_cluster")                            \
                                                    X(RESERVED_SMEM_1, "%reserved_smem_offset_1")

typedef enum stitch__sreg {
#define STITCH__SREG_ENUM(name, text) STITCH__SREG_##name,
    STITCH__SREG_LIST(STITCH__SREG_ENUM)
#undef STITCH__SREG_ENUM
        STITCH__SREG_COUNT,
    /* read when executed, not fixed for the warp */
    STITCH__SREG_CLOCK = STITCH__SREG_COUNT,
    STITCH__SREG_CLOCK_HI,
    STITCH__SREG_CLOCK64,
    STITCH__SREG_GLOBALTIMER,
    STITCH__SREG_GLOBALTIMER_LO,
    STITCH__SREG_GLOBALTIMER_HI
} stitch__sreg;

/* What the main loop does with an instruction. */
typedef enum stitch__opcode {
    STITCH__OP_BLOCK, /* start of a basic block: count, merge, check the budget */
    STITCH__OP_LANES, /* o[0] = lanes(o[1], o[2], o[3]) */
    STITCH__OP_MOV32,
    STITCH__OP_MOV64,
    STITCH__OP_SETP, /* o[0] | o[1] = cmp(o[2], o[3]) op o[4] */
    STITCH__OP_SELP32,
    STITCH__OP_SELP64,
    STITCH__OP_PRED, /* predicate logic */
    STITCH__OP_BRA,  /* guard decides; target */
    STITCH__OP_LOAD,
    STITCH__OP_STORE,
    STITCH__OP_RET,
    STITCH__OP_EXIT,
    STITCH__OP_CALL, /* fn runs */
    STITCH__OP_BRX,  /* indexed branch: x = table of targets */
    STITCH__OP_FN    /* fn does it */
} stitch__opcode;

struct stitch__exec;
typedef struct stitch__instr stitch__instr;
/* Runs an instruction for the lanes of `mask` (never empty). One of STITCH__RUN_*. */
typedef int (*stitch__exec_fn)(struct stitch__exec *x, const stitch__instr *in, uint32_t mask);

enum {
    STITCH__RUN_NEXT = 0, /* go on with the next instruction */
    STITCH__RUN_PARK,     /* the split waits at this instruction for other lanes: run other splits */
    STITCH__RUN_RETRY,    /* the warp waits; run this instruction again later */
    STITCH__RUN_WAIT,     /* the warp waits at a barrier; go on behind this instruction when released */
    STITCH__RUN_KILL,     /* the block ends here */
    STITCH__RUN_FRAME     /* a frame was pushed or popped: reload */
};

/* Predicate logic of STITCH__OP_PRED and of setp's combination. */
enum { STITCH__BOOL_NONE, STITCH__BOOL_AND, STITCH__BOOL_OR, STITCH__BOOL_XOR, STITCH__BOOL_NOT, STITCH__BOOL_MOV };

#define STITCH__MAX_INLINE 5

struct stitch__instr {
    uint8_t op;     /* stitch__opcode */
    uint8_t flags;  /* STITCH__IN_* */
    uint8_t ndef;   /* of the operands (o[], then more[]), the first ndef are written */
    uint8_t nops;   /* operands in o[] */
    uint16_t nmore; /* operands in more[] */
    uint8_t cls;    /* stitch__sim_class */
    uint8_t space;  /* of a memory access: stitch__sim_space */
    uint32_t guard; /* predicate operand, or 0 */
    uint32_t o[STITCH__MAX_INLINE];
    union {
        stitch__lanes_fn lanes;
        stitch__cmp_fn cmp;
        stitch__exec_fn fn;
    } u;
    uint8_t size; /* bytes of an element in memory */
    uint8_t vec;  /* elements: 1, 2, 4, 8 */
    uint8_t sub;  /* what fn wants to tell variants apart */
    uint8_t sub2;
    uint32_t flops;      /* of one lane */
    int64_t imm;         /* address offset, branch target, ... */
    uint32_t *more;      /* further operands; owned by the function's arena */
    void *data;          /* further decoded facts; owned by the function's arena */
    uint32_t place;      /* index in module->places; 0: none */
    uint32_t slot;       /* number among the memory instructions of the function, for counters and caches */
    uint32_t line;       /* PTX line */
    uint32_t bytes_mask; /* .pragma "used_bytes_mask": bit i: byte i of the access is used; 0: all */
};

enum {
    STITCH__IN_GUARD_NOT = 1,
    STITCH__IN_SIGNED = 2,    /* load: sign-extend */
    STITCH__IN_VOLATILE = 4,  /* volatile, relaxed, acquire, release, atomic: takes part in synchronisation */
    STITCH__IN_WIDE = 8,      /* load: destination registers are 64 bits wide; store: sources are */
    STITCH__IN_ADDR64 = 16,   /* the address operand is a 64-bit register */
    STITCH__IN_PRED_NOT = 32, /* setp/selp: the predicate operand is negated */
    STITCH__IN_UNI = 64,
    STITCH__IN_NOT_A = 128
};

typedef struct stitch__vreg_range {
    uint32_t first, count;
    uint8_t bank; /* 0: 32 bit, 1: 64 bit, 2: predicate */
    uint8_t num;  /* stitch__num of the declared type */
} stitch__vreg_range;

enum { STITCH__BANK_32, STITCH__BANK_64, STITCH__BANK_PRED };

typedef struct stitch__reloc {
    uint32_t function,
        constant;      /* constant of a function, or initialiser: function == UINT32_MAX, constant = variable */
    uint32_t variable; /* whose address */
    uint64_t addend;
    uint32_t offset; /* in the initialiser */
    uint8_t size;
    uint8_t shift; /* mask() selections of an address are not run */
} stitch__reloc;

typedef struct stitch__shared_var {
    const char *name;
    uint64_t size;
    uint32_t align, offset; /* offset from the block's window */
    bool dynamic;
} stitch__shared_var;

/* A local-space or parameter-space name in a body. */
typedef struct stitch__sim_callee_param {
    uint32_t offset, size;
} stitch__sim_callee_param;

typedef struct stitch__const {
    uint64_t value;
    uint32_t at; /* byte offset in const_data */
    uint8_t wide;
    uint8_t kind; /* 0 value, 1 shared variable, 2 module variable */
    uint32_t ref;
} stitch__const;

struct stitch__sim_function {
    stitch__sim_module *module;
    uint32_t index;
    bool entry, has_body, has_spin; /* has_spin: talks to other blocks, see stitch__sim_flow() */
    stitch__sim_function_info info;
    char *name;
    stitch__sim_param *params; /* of entries: kernel parameters; else of the function: returns first */
    uint32_t return_count;
    uint32_t param_area; /* bytes of the parameter scratch: incoming and outgoing */
    uint32_t local_bytes;
    stitch__instr *code;
    uint32_t code_count;
    uint32_t block_count; /* basic blocks; OP_BLOCK instructions carry their number in `slot` */
    uint32_t mem_count;   /* memory instructions */
    stitch__const *consts;
    size_t const_count, const_cap;
    uint8_t
        *const_data; /* 64-byte aligned lane arrays; one set a rank where a shared variable's address is among them */
    size_t const_stride; /* from one rank's set to the next; 0: all ranks use one */
    void *const_block;
    size_t const_bytes;
    uint32_t frame_bytes, base32;         /* base32: registers at smaller offsets are 64 bits wide */
    uint32_t sreg_at[STITCH__SREG_COUNT]; /* frame offset + 1; 0: not used */
    uint32_t pred_true;                   /* frame offset of a predicate that is always true */
    stitch__vreg_range *ranges;
    size_t range_count, range_cap;
    uint32_t vreg_count;
    stitch__shared_var **shared; /* used by this function */
    size_t shared_count, shared_cap;
    uint32_t shared_min, global_min; /* smallest access in bytes, for the race record */
    uint32_t dynamic_align;          /* of extern shared arrays */
    uint32_t product_regs;           /* registers that products.c follows */
    uint32_t cc;                     /* virtual register of the carry flag, an operand; 0: none */
    bool address_taken;              /* may be called through a pointer from anywhere */
    bool calls_pointer;
    bool prints;        /* calls vprintf: its blocks run in order */
    bool may_talk;      /* atomics, volatile, fences on global memory */
    bool reserved_smem; /* of entries: shared memory from STITCH__SIM_SHARED_RESERVED on is used */
    uint32_t *callees;
    size_t callee_count, callee_cap;
    size_t instr_total;
};

typedef struct stitch__sim_var_data {
    stitch__sim_variable info;
    uint64_t address;
    bool bound;
    uint8_t *init; /* init_len bytes, the rest is zero */
    uint64_t init_len;
} stitch__sim_var_data;

struct stitch__sim_module {
    const stitch_context *ctx;
    stitch__arena arena;
    char *name;
    stitch__sim_function **functions; /* all, entries and others */
    size_t function_count, function_cap;
    stitch__sim_function **entries;
    size_t entry_count, entry_cap;
    stitch__sim_var_data *variables;
    size_t variable_count, variable_cap;
    stitch__shared_var **shared; /* module scope */
    size_t shared_count, shared_cap;
    stitch__reloc *relocs;
    size_t reloc_count, reloc_cap;
    stitch__sim_place *places;
    size_t place_count, place_cap;
    uint32_t version, arch; /* 90 = 9.0, 80 = sm_80 */
};

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Basic blocks, layout, register slots, final operand offsets. Sets info.refusal where the body cannot be run. */
int stitch__sim_flow(stitch__sim_function *f, stitch_error **err);
/* Notes in front of what touches registers of wgmma: products.c. STITCH_OK or STITCH_E_NOMEM. */
int stitch__sim_product_notes(stitch__sim_function *f);
/* Once all functions are known: shared-memory layout, callees, final constants. STITCH_OK or STITCH_E_NOMEM. */
int stitch__sim_module_link(stitch__sim_module *m);
/* The function with a body that a declaration stands for. */
uint32_t stitch__sim_resolve(const stitch__sim_module *m, uint32_t callee);

#endif
