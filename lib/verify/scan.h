/* SPDX-License-Identifier: MIT
 *
 * Static evidence about what device code computes with: the arithmetic of machine code (or PTX), products of the plan,
 * module variables; and the verdict of a task's precision policy on it. docs/precision.md says what the policy means.
 */
#ifndef STITCH_LIB_VERIFY_SCAN_H
#define STITCH_LIB_VERIFY_SCAN_H

#include "base/base.h"
#include <stitch/program.h>
#include <stitch/task.h>

/* What numbers are held in while they are computed with. */
/* clang-format off */
#define STITCH__SCAN_TYPE_LIST(X)                                                                                      \
    X(F64, "f64")                                                                                                      \
    X(F32, "f32")                                                                                                      \
    X(TF32, "tf32")                                                                                                    \
    X(F16, "f16")                                                                                                      \
    X(BF16, "bf16")                                                                                                    \
    X(E4M3, "e4m3")                                                                                                    \
    X(E5M2, "e5m2")                                                                                                    \
    X(NARROW_FLOAT, "fp6/fp4")                                                                                         \
    X(INT32, "int32")                                                                                                  \
    X(INT8, "int8")                                                                                                    \
    X(INT4, "int4")                                                                                                    \
    X(BIT, "bit")                                                                                                      \
    X(UNDECIDED, "f16/bf16/tf32") /* the descriptor of a tcgen05 product says which; the instruction does not */       \
    X(UNKNOWN, "?")
/* clang-format on */

typedef enum stitch__scan_type {
    STITCH__SCAN_NONE,
#define STITCH__SCAN_TYPE_ENUM(name, text) STITCH__SCAN_##name,
    STITCH__SCAN_TYPE_LIST(STITCH__SCAN_TYPE_ENUM)
#undef STITCH__SCAN_TYPE_ENUM
} stitch__scan_type;

/* clang-format off */
#define STITCH__SCAN_KIND_LIST(X)                                                                                      \
    X(TENSOR, "tensor product")        /* a, b: operands; acc: accumulator */                                          \
    X(DOT, "integer dot product")      /* of the four bytes in a register; a, b, acc as above */                       \
    X(HALF, "half arithmetic")         /* a: the type that results are rounded to */                                   \
    X(CONVERT, "conversion")           /* to a, which holds less than b */                                             \
    X(WIDEN, "widening")               /* to a, from b, exact */                                                       \
    X(APPROX, "approximate function")  /* the special function unit, in float32 */                                     \
    X(STORE, "store to global memory") /* reductions, atomics and bulk copies too, and generic stores */               \
    X(LOCAL, "local memory")                                                                                           \
    X(CLOCK, "clock")                                                                                                  \
    X(LAUNCH, "number of the launch")  /* seen in PTX only: machine code loads it like a parameter */                  \
    X(TRAP, "trap")                                                                                                    \
    X(CALL, "indirect call") /* to another section: its effects are not this function's own */
/* clang-format on */

typedef enum stitch__scan_kind {
    STITCH__SCAN_PLAIN, /* of no interest here */
#define STITCH__SCAN_KIND_ENUM(name, text) STITCH__SCAN_##name,
    STITCH__SCAN_KIND_LIST(STITCH__SCAN_KIND_ENUM)
#undef STITCH__SCAN_KIND_ENUM
        STITCH__SCAN_NOT_KNOWN, /* an instruction that the table does not have */
} stitch__scan_kind;

const char *stitch__scan_type_name(int type); /* "f16"; "" for NONE */
const char *stitch__scan_kind_name(int kind);

/* ---- scan_sass.c: one instruction of machine code ---- */

typedef struct stitch__sass {
    int kind;      /* stitch__scan_kind */
    int a, b, acc; /* stitch__scan_type */
    char name[32]; /* "HMMA", "MUFU.EX2"; "op 0x1ff" where not known */
} stitch__sass;

/* Whether it may make new numbers of floating-point ones: conversions and moves do not, nor does what counts indices.
 */
bool stitch__sass_computes(const stitch__sass *s);

/* Whether the table holds for sm_<number>. */
bool stitch__sass_arch_known(int number);
void stitch__sass_decode(int arch, uint64_t low, uint64_t high, stitch__sass *out);

/* ---- what was found ---- */

/* Instructions of one kind, name and types in one function. */
typedef struct stitch__scan_op {
    int kind, a, b, acc;
    const char *name;
    uint64_t count;
    uint64_t at; /* of the first: bytes into the function's code; in PTX its line */
    bool ptx;    /* found in PTX */
} stitch__scan_op;

typedef struct stitch__scan_function {
    const char *symbol, *name; /* name: as the plan has it, where it is a kernel */
    bool kernel, used;         /* used: the plan launches it; functions that are no kernels count as used */
    uint64_t instructions, unknown, computing; /* see stitch__sass_computes(); machine code only */
    stitch__scan_op *ops;
    size_t op_count, op_cap;
} stitch__scan_function;

typedef enum stitch__scan_access {
    STITCH__SCAN_UNSEEN,    /* nobody looked: there is no PTX */
    STITCH__SCAN_READ_ONLY, /* nothing writes it */
    STITCH__SCAN_ESCAPES,   /* its address goes where it cannot be followed */
    STITCH__SCAN_WRITTEN,
} stitch__scan_access;

typedef struct stitch__scan_global {
    const char *name;
    uint64_t bytes;
    bool initialised, managed;
    bool declared, mentioned; /* by PTX: for the whole module; by anything else in it */
    int access;               /* stitch__scan_access */
} stitch__scan_global;

typedef struct stitch__scan_gemm {
    const char *place; /* "run[2]" */
    int a, b, acc;
} stitch__scan_gemm;

typedef enum stitch__scan_about {
    STITCH__SCAN_ABOUT_PRECISION, /* the policy */
    STITCH__SCAN_ABOUT_GLOBAL,    /* a module variable */
    STITCH__SCAN_ABOUT_CODE,      /* clocks, calls, what is not known */
} stitch__scan_about;

typedef struct stitch__scan_finding {
    int about; /* stitch__scan_about */
    bool major;
    const char *kernel;   /* "" where it is about the module or a product */
    const char *what;     /* "tensor product of tf32 with tf32, accumulated in f32" */
    const char *evidence; /* "HMMA at 0x1230 (16 of them); the task's precision is f32" */
} stitch__scan_finding;

typedef struct stitch__scan {
    stitch_context *ctx;
    stitch__arena arena; /* everything below */
    const char *arch;
    bool from_ptx; /* the functions were read from PTX: there is no machine code, or it is of an unknown architecture */
    stitch__scan_function *functions;
    size_t function_count, function_cap;
    stitch__scan_global *globals;
    size_t global_count, global_cap, globals_left_out;
    const char **calls; /* functions outside the module that it calls: vprintf, malloc, __assertfail */
    size_t call_count, call_cap;
    stitch__scan_gemm *gemms;
    size_t gemm_count, gemm_cap;
    stitch__scan_finding *findings;
    size_t finding_count, finding_cap;
    size_t majors;
} stitch__scan;

enum { STITCH__SCAN_MAX_GLOBALS = 8192, STITCH__SCAN_MAX_CALLS = 64 };

/* Where PTX comes from, if it is needed. */
typedef struct stitch__scan_source {
    int (*ptx)(void *self, const char *arch, const stitch_image **out, stitch_error **err);
    void *self;
} stitch__scan_source;

/* Reads the program's code for the image's architecture, its products and its module variables, and judges them by the
 * task's precision (task NULL: only facts). `image` is the program's, from stitch_program_compile(). Where machine
 * code does not tell enough (module variables, tcgen05 products, inline PTX, an unknown architecture) the source's PTX
 * comes from `from`; NULL: it is compiled here. */
int stitch__scan_program(stitch_context *ctx, stitch_program *program, const stitch_image *image,
                         const stitch_task *task, const stitch__scan_source *from, stitch__scan **out,
                         stitch_error **err);
/* The same for an image alone, without products; ptx (may be NULL) is its source's PTX. Every kernel counts as used. */
int stitch__scan_image(stitch_context *ctx, const stitch_image *image, const stitch_image *ptx, const stitch_task *task,
                       stitch__scan **out, stitch_error **err);
/* Marks the steps of the facts whose kernels only move or convert: that have pointers to floating-point tensors alone,
 * and machine code without arithmetic on such numbers. Code that cannot be read computes. 0 or STITCH_E_NOMEM. */
struct stitch__facts;
int stitch__scan_moves(stitch_context *ctx, const stitch_program *program, const stitch_image *image,
                       struct stitch__facts *facts, stitch_error **err);
void stitch__scan_free(stitch__scan *scan);
json_t *stitch__scan_json(const stitch__scan *scan); /* NULL: out of memory */
/* Lines for people: "kernel k: tensor product of f16 with f16, accumulated in f32 (HMMA, 16)". NULL: out of memory;
 * released with stitch_free(). */
char *stitch__scan_text(const stitch__scan *scan);

/* ---- between the files of the scan ---- */

/* Safe on any bytes. 0, STITCH_E_FORMAT with *why, or STITCH_E_NOMEM. */
int stitch__scan_cubin(stitch__scan *scan, const void *data, size_t size, const char **why);
/* Functions (where `functions`) and what the module does with its variables. */
int stitch__scan_ptx(stitch__scan *scan, const char *text, size_t len, bool functions, const char **why);
/* Appends what the policy says about the facts. */
int stitch__scan_judge(stitch__scan *scan, const stitch_task *task);

/* 0 or STITCH_E_NOMEM, all of them. */
int stitch__scan_add_function(stitch__scan *scan, const char *symbol, size_t len, bool kernel,
                              stitch__scan_function **out);
int stitch__scan_add_op(stitch__scan *scan, stitch__scan_function *f, const stitch__sass *s, uint64_t at, bool ptx);
int stitch__scan_add_call(stitch__scan *scan, const char *name, size_t len);
int stitch__scan_add_global(stitch__scan *scan, const char *name, size_t len, uint64_t bytes, bool initialised,
                            bool managed);

#endif
