/* SPDX-License-Identifier: MIT
 *
 * Private interface of the simulator's core: PTX text in, kernels run on the CPU, with checks and counters. The driver
 * layer (driver*.c) makes the CUDA Driver API out of it; memory.h is the memory that both share.
 *
 * A module is loaded once and never changes afterwards, except for the addresses of its variables, which the driver
 * layer binds before the first launch. It may be launched from several threads at once.
 */
#ifndef STITCH_LIB_SIM_H
#define STITCH_LIB_SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <stitch/base.h>
#include <stitch/context.h>

#include "base/base.h"
#include "sim/memory.h"

/* ---- generic addresses: the windows below STITCH__SIM_GLOBAL_BASE ------------------------------------------------ */

#define STITCH__SIM_LOCAL_WINDOW  UINT64_C(0x100000000) /* + offset in the thread's local memory */
#define STITCH__SIM_SHARED_WINDOW UINT64_C(0x200000000) /* + (rank of the block in its cluster << 24) + offset */
#define STITCH__SIM_PARAM_WINDOW  UINT64_C(0x300000000) /* + offset in the kernel's parameters */
#define STITCH__SIM_FUNC_WINDOW   UINT64_C(0x400000000) /* + 16 * index of a function: what its address is */
#define STITCH__SIM_SHARED_START  1024u /* the first shared byte of a block; the hardware keeps those before it */
#define STITCH__SIM_SHARED_MAX    (227u * 1024u) /* bytes a block can have */
#define STITCH__SIM_PARAM_MAX     32764u

/* What %reserved_smem_offset_1 gives: the bytes from here to the first shared one of a block are cooperative groups'.
 */
#define STITCH__SIM_SHARED_RESERVED 64u

/* ---- modules ----------------------------------------------------------------------------------------------------- */

typedef struct stitch__sim_module stitch__sim_module;
typedef struct stitch__sim_function stitch__sim_function;

/* Loads PTX text (length `len`, need not end in NUL). `name` is used in messages ("candidate.cu"), may be NULL.
 * Malformed text: STITCH_E_COMPILE, "PTX line 12: ...". A function that contains an instruction that the simulator
 * does not run does not make loading fail: launching it does (stitch__sim_function_info.refusal says why). */
int stitch__sim_module_load(stitch__sim_module **out, const stitch_context *ctx, const char *ptx, size_t len,
                            const char *name, stitch_error **err);
void stitch__sim_module_free(stitch__sim_module *m);

typedef struct stitch__sim_param {
    const char *name;
    uint32_t offset, size, align;
    bool is_pointer; /* declared .ptr */
} stitch__sim_param;

typedef struct stitch__sim_function_info {
    const char *name;    /* mangled, as in the PTX */
    const char *refusal; /* NULL, or why the function cannot be launched: "PTX line 8 (k.cu:3): ... is not supported" */
    uint32_t static_shared;       /* bytes */
    uint32_t local;               /* bytes a thread */
    uint32_t registers;           /* an estimate: 32-bit registers live at once */
    uint32_t max_threads;         /* .maxntid / .reqntid, else 1024 */
    uint32_t required_block[3];   /* .reqntid; 0 if not given */
    uint32_t required_cluster[3]; /* .reqnctapercluster; 0 if not given */
    uint32_t max_cluster;         /* .maxclusterrank; 0 if not given */
    uint32_t min_blocks;          /* .minnctapersm; 0 if not given */
    uint32_t instructions;        /* static count */
    uint32_t param_count, param_bytes;
    const stitch__sim_param *params;
    bool dynamic_shared; /* uses an extern shared array */
    bool grid_sync;      /* reads %envreg1/2: a cooperative kernel that calls grid.sync() */
} stitch__sim_function_info;

/* Kernels (.entry) of a module, in the order of the text. */
size_t stitch__sim_module_function_count(const stitch__sim_module *m);
const stitch__sim_function *stitch__sim_module_function(const stitch__sim_module *m, size_t index);
const stitch__sim_function *stitch__sim_module_find(const stitch__sim_module *m, const char *name); /* NULL if none */
const stitch__sim_function_info *stitch__sim_function_info_get(const stitch__sim_function *f);

/* Module-scope variables in .global and .const memory. */
typedef struct stitch__sim_variable {
    const char *name;
    uint64_t size, align;
    bool constant;    /* .const: not writable by kernels */
    bool initialised; /* has an initialiser, or is zero by definition: .global and .const variables always are */
} stitch__sim_variable;

size_t stitch__sim_module_variable_count(const stitch__sim_module *m);
const stitch__sim_variable *stitch__sim_module_variable(const stitch__sim_module *m, size_t index);
/* Tells the module where variable `index` lies. All variables must be bound before stitch__sim_module_init() and before
 * the first launch. */
void stitch__sim_module_bind(stitch__sim_module *m, size_t index, uint64_t address);
/* Writes the initial contents of variable `index` (its `size` bytes) to `out`, addresses of others filled in. */
void stitch__sim_module_init(const stitch__sim_module *m, size_t index, void *out);

/* ---- what a checker says ----------------------------------------------------------------------------------------- */

/* X(NAME, word, text) */
#define STITCH__SIM_FAULT_LIST(X)                                                                                      \
    X(NONE, "none", "no fault")                                                                                        \
    X(OUT_OF_BOUNDS, "out_of_bounds", "access outside of every buffer")                                                \
    X(USE_AFTER_FREE, "use_after_free", "access to memory that was freed")                                             \
    X(BLOCK_ENDED, "block_ended", "access to the shared memory of a block that has ended")                             \
    X(MISALIGNED, "misaligned", "address is not a multiple of the access size")                                        \
    X(READ_ONLY, "read_only", "store to constant memory")                                                              \
    X(UNINITIALISED, "uninitialised", "read of memory that nothing wrote")                                             \
    X(SHARED_RACE, "shared_race", "two threads access shared memory with no barrier between")                          \
    X(GLOBAL_RACE, "global_race", "two threads access global memory with no barrier between")                          \
    X(BARRIER_DIVERGENCE, "barrier_divergence", "threads of a warp wait at different barriers")                        \
    X(BARRIER_MISUSE, "barrier_misuse", "barrier used with a wrong thread count or number")                            \
    X(ASYNC_NOT_WAITED, "async_not_waited", "asynchronous work is used or left with no wait for it")                   \
    X(MISSING_FENCE, "missing_fence", "asynchronous work begins with no fence behind what it uses")                    \
    X(INACTIVE_LANE, "inactive_lane", "warp instruction names a lane that does not take part")                         \
    X(DEADLOCK, "deadlock", "threads wait for something that never happens")                                           \
    X(BUDGET, "budget", "the instruction budget is spent")                                                             \
    X(TRAP, "trap", "trap instruction")                                                                                \
    X(ASSERT, "assert", "a device assertion failed")                                                                   \
    X(ILLEGAL, "illegal", "instruction with operands that the hardware refuses")                                       \
    X(STACK, "stack", "calls nest too deeply")

typedef enum stitch__sim_fault {
#define STITCH__SIM_FAULT_ENUM(name, word, text) STITCH__SIM_##name,
    STITCH__SIM_FAULT_LIST(STITCH__SIM_FAULT_ENUM)
#undef STITCH__SIM_FAULT_ENUM
        STITCH__SIM_FAULT_COUNT
} stitch__sim_fault;

const char *stitch__sim_fault_name(int fault); /* the word */

/* A source position; `inlined_at` leads outwards to the kernel. Owned by the module. */
typedef struct stitch__sim_place {
    const char *file; /* NULL where the PTX has no .loc */
    uint32_t line, column;
    uint32_t ptx_line;
    const char *function; /* of an inlined function; may be NULL */
    const struct stitch__sim_place *inlined_at;
} stitch__sim_place;

typedef enum stitch__sim_space {
    STITCH__SIM_GENERIC,
    STITCH__SIM_GLOBAL,
    STITCH__SIM_SHARED,
    STITCH__SIM_LOCAL,
    STITCH__SIM_CONST,
    STITCH__SIM_PARAM
} stitch__sim_space;

typedef struct stitch__sim_access {
    const stitch__sim_place *place; /* may be NULL */
    uint32_t block[3], thread[3];
    bool write, atomic;
    bool
        unknown; /* another thread than that of the other side, but not known which: block and thread are not its own */
} stitch__sim_access;

/* One finding. Findings with the same kind and places are counted once, the first one is kept. */
typedef struct stitch__sim_report {
    stitch__sim_fault kind;
    stitch__sim_space space;
    uint64_t address;
    uint32_t size;             /* bytes of the access */
    int64_t distance;          /* out of bounds: bytes past the end of the buffer, or negative: before its start */
    uint64_t offset;           /* of the first wrong byte in the buffer, where it lies in one */
    uint64_t buffer_size;      /* 0 if no buffer is known */
    char buffer[64];           /* "" if unknown; "shared variable s" for shared memory */
    stitch__sim_access first;  /* the access that was wrong, or that completed a race */
    stitch__sim_access second; /* the other side of a race, or what began an asynchronous operation */
    bool has_second;
    uint64_t count;   /* how often it happened, lanes counted singly */
    char detail[160]; /* more words, may be "" */
} stitch__sim_report;

/* One paragraph of plain English, for a person or a model to act on. `kernel` is the name to print. */
void stitch__sim_report_text(stitch__buf *out, const stitch__sim_report *r, const char *kernel);

/* ---- counters ---------------------------------------------------------------------------------------------------- */

/* Per source line of one kernel, summed over the executed blocks. A request is one warp's memory instruction. */
typedef struct stitch__sim_line_counters {
    const stitch__sim_place *place; /* innermost; NULL collects what has no line */
    uint64_t instructions;          /* warp instructions */
    uint64_t lanes;                 /* of which lanes were active: lanes / instructions is the efficiency of 32 */
    uint64_t flops;                 /* fma counts 2, mma its full product */
    uint64_t branches, divergent;   /* conditional branches, those whose warp split */
    uint64_t global_requests, global_sectors, global_ideal_sectors, global_bytes; /* 32-byte sectors; bytes asked for */
    uint64_t shared_requests, shared_wavefronts, shared_ideal_wavefronts, shared_bytes;
    uint64_t local_requests, local_bytes;
    uint64_t atomics, atomic_collisions; /* lanes; those that hit an address that another lane of the warp hits too */
} stitch__sim_line_counters;

typedef enum stitch__sim_class {
    STITCH__SIM_CLASS_INT,
    STITCH__SIM_CLASS_FP32,
    STITCH__SIM_CLASS_FP16, /* also bf16, fp8 conversions */
    STITCH__SIM_CLASS_FP64,
    STITCH__SIM_CLASS_SFU,
    STITCH__SIM_CLASS_MMA,
    STITCH__SIM_CLASS_CONVERT,
    STITCH__SIM_CLASS_MOVE,
    STITCH__SIM_CLASS_CONTROL,
    STITCH__SIM_CLASS_GLOBAL,
    STITCH__SIM_CLASS_SHARED,
    STITCH__SIM_CLASS_LOCAL,
    STITCH__SIM_CLASS_ATOMIC,
    STITCH__SIM_CLASS_ASYNC,
    STITCH__SIM_CLASS_WARP, /* shuffles, votes, matches, reductions */
    STITCH__SIM_CLASS_BARRIER,
    STITCH__SIM_CLASS_COUNT
} stitch__sim_class;

typedef struct stitch__sim_counters {
    stitch__sim_line_counters total;       /* place is NULL */
    uint64_t mix[STITCH__SIM_CLASS_COUNT]; /* warp instructions by class */
    uint64_t blocks_run, blocks_total;
    uint64_t barriers;
    size_t line_count;
    stitch__sim_line_counters *lines; /* sorted by file, line */
} stitch__sim_counters;

/* ---- launches ---------------------------------------------------------------------------------------------------- */

enum {
    STITCH__SIM_CHECK_BOUNDS = 1, /* out of bounds, use after free, misaligned, read only: always found; switched off,
                                   * the launch stops at the first one, as the hardware does */
    STITCH__SIM_CHECK_INIT = 2,
    STITCH__SIM_CHECK_SHARED_RACE = 4,
    STITCH__SIM_CHECK_GLOBAL_RACE = 8,
    STITCH__SIM_CHECK_SYNC = 16, /* barriers, lanes, asynchronous copies */
    STITCH__SIM_CHECK_ALL = 31,
    STITCH__SIM_COUNT = 32 /* fill the counters */
};

typedef struct stitch__sim_launch {
    const stitch__sim_function *function;
    uint32_t grid[3], block[3];
    uint32_t cluster[3];     /* 0: 1, or what the kernel requires */
    uint32_t dynamic_shared; /* bytes */
    const void *params;      /* param_bytes of the function's parameters, laid out as in stitch__sim_param */
    size_t param_bytes;
    bool cooperative; /* all blocks are resident at once and may wait for each other through grid.sync() */
    stitch__sim_memory *memory;

    uint32_t flags;              /* STITCH__SIM_CHECK_*, STITCH__SIM_COUNT */
    uint64_t instruction_budget; /* warp instructions a block; 0: 2^34 */
    uint32_t threads;       /* host threads; 0: as many as there are cores. Kernels whose blocks communicate use one */
    uint64_t seed;          /* order of blocks, choice of sampled ones */
    uint32_t sample_blocks; /* 0: all; else at most this many: the first, the last, and random others */
    uint32_t max_reports;   /* different findings to keep; 0: 64 */
    bool mma_fast;          /* matrix products by plain FMA chains, not the hardware's fused sum */
    const stitch_cancel *cancel;     /* may be NULL */
    const stitch_cancel *cancel_too; /* another one that ends it; may be NULL */
    int64_t deadline_ns;             /* stitch__now_ns() clock; 0: none */
    uint32_t sm_count;               /* what %nsmid says; 0: 132 */
    /* Output of printf and of failed assertions, in the order of the blocks. May be NULL. Called from one thread at a
     * time. */
    void (*print)(void *userdata, const char *text, size_t len);
    void *userdata;
} stitch__sim_launch;

typedef struct stitch__sim_result {
    stitch__sim_fault
        fault; /* the first finding that ends a kernel on hardware too (bounds, trap, assert, ...), else NONE */
    size_t report_count;
    stitch__sim_report *reports; /* in a fixed order: by kind, then place */
    uint64_t reports_dropped;    /* different findings beyond max_reports */
    stitch__sim_counters counters;
    uint64_t warp_instructions, lane_instructions;
} stitch__sim_result;

/* Runs a kernel to its end. Findings are no failure of the call: it returns STITCH_OK and `out` tells. Failures:
 * STITCH_E_INVALID (sizes, block or grid out of range, unbound variables), STITCH_E_UNSUPPORTED (the function's
 * refusal), STITCH_E_NOMEM, STITCH_E_CANCELLED, STITCH_E_TIMEOUT. `out` is zeroed first and always may be passed to
 * stitch__sim_result_clear(). After an access out of bounds the lanes concerned read zero or store nothing, and the
 * kernel goes on, so that one run finds all errors; `fault` tells what hardware would have done. */
int stitch__sim_launch_run(const stitch__sim_launch *launch, stitch__sim_result *out, stitch_error **err);
void stitch__sim_result_clear(stitch__sim_result *r);

/* ---- tensor maps: what cuTensorMapEncodeTiled of the driver layer writes into the 128 bytes of a CUtensorMap ----- */

#define STITCH__SIM_TENSOR_MAP_MAGIC UINT64_C(0x70616d7469747330)

typedef struct stitch__sim_tensor_map {
    uint64_t magic;
    uint64_t address;       /* device address */
    uint32_t extent[5];     /* elements, innermost first; each at most 2^32 - 1 stored minus one */
    uint8_t rank;           /* 1 .. 5 */
    uint8_t elem_size;      /* bytes */
    uint8_t swizzle;        /* 0 none, 1: 32 B, 2: 64 B, 3: 128 B (CUtensorMapSwizzle) */
    uint8_t fill_nan;       /* CUtensorMapFloatOOBfill */
    uint64_t stride[4];     /* bytes, of dimensions 1 .. rank-1 */
    uint16_t box[5];        /* elements */
    uint8_t elem_stride[5]; /* 1 .. 8 */
    uint8_t dtype;          /* CUtensorMapDataType */
    uint32_t interleave;    /* CUtensorMapInterleave; only 0 is run */
    uint8_t pad[128 - 8 - 8 - 20 - 4 - 32 - 10 - 5 - 1 - 4 - 4];
} stitch__sim_tensor_map;

#endif
