/* SPDX-License-Identifier: MIT
 *
 * Private interface of the program module: expressions, the launch plan as a tree, what validation knows, the executor.
 *
 * A launch plan is parsed once into a stitch__doc, which an arena owns. Names are resolved against an interface by
 * stitch__resolve(); after that a stitch__session evaluates expressions and steps for the current dims. Validation and
 * the executor walk the same tree with the same evaluation, so that what was checked is what runs.
 */
#ifndef STITCH_LIB_PROGRAM_H
#define STITCH_LIB_PROGRAM_H

#include "base/base.h"
#include "cuda/cuda.h"
#include <stitch/program.h>

/* ---- expr.c: integer expressions -------------------------------------------------------------------------------- */

enum {
    STITCH__EXPR_MAX_LENGTH = 1024, /* bytes of text */
    STITCH__EXPR_MAX_DEPTH = 64,    /* nesting, and height of the evaluation stack */
};

/* Names with an index each: of expressions, of tensors, of steps. Lives in an arena. */
typedef struct stitch__symbols {
    stitch__arena *arena;
    const char **names;
    int32_t *table; /* open addressing, 2 * cap entries: index + 1, 0 is free */
    size_t count, cap;
} stitch__symbols;

/* The index of a name, added if it is new; -1: out of memory. */
int32_t stitch__symbol(stitch__symbols *s, const char *name, size_t len);
int32_t stitch__symbol_find(const stitch__symbols *s, const char *name, size_t len); /* -1: there is none */

typedef struct stitch__expr_op {
    uint8_t op;
    uint16_t column; /* in the text, from 1 */
    int32_t symbol;
    int64_t number;
} stitch__expr_op;

/* Postfix code. The memo holds the value for one epoch of an environment if no loop variable went into it. */
typedef struct stitch__expr {
    const char *text;
    const stitch__expr_op *code;
    size_t count;
    uint64_t memo_epoch;
    int64_t memo_value;
} stitch__expr;

enum stitch__symbol_state {
    STITCH__SYMBOL_UNKNOWN,
    STITCH__SYMBOL_FIXED,
    STITCH__SYMBOL_LOOP,
};

typedef struct stitch__symbol_value {
    int64_t value;
    int32_t state;
} stitch__symbol_value;

/* Values of the symbols. */
typedef struct stitch__env {
    const stitch_context *ctx;
    const stitch__symbols *symbols;
    stitch__symbol_value *values;
    uint64_t epoch; /* never 0; another one whenever a fixed value changes */
} stitch__env;

/* Parses text[0..len). STITCH_E_FORMAT: "column 7: expected ')'". */
int stitch__expr_parse(stitch__arena *arena, stitch__symbols *symbols, const char *text, size_t len, stitch__expr **out,
                       stitch_error **err);
int stitch__expr_constant(stitch__arena *arena, int64_t value, stitch__expr **out, stitch_error **err);
/* STITCH_E_VALIDATE: "\"C/Z\", column 2: division by zero". */
int stitch__expr_eval(stitch__expr *e, const stitch__env *env, int64_t *out, stitch_error **err);
/* The value if the expression is a single number. */
bool stitch__expr_number(const stitch__expr *e, int64_t *out);

/* ---- interface.c ------------------------------------------------------------------------------------------------ */

/* An expression over the current dims. */
int stitch__interface_evaluate(stitch_interface *i, const char *text, int64_t *out, stitch_error **err);

typedef struct stitch__iface_dim {
    const char *name;
    int32_t symbol;
    int64_t value;
} stitch__iface_dim;

typedef struct stitch__iface_tensor {
    const char *name;
    int32_t role, dtype;
    size_t rank;
    stitch__expr *shape[STITCH_MAX_RANK];
    /* For the current dims; `problem` is NULL when they are valid. */
    int64_t extent[STITCH_MAX_RANK];
    uint64_t elements, bytes;
    char *problem;
} stitch__iface_tensor;

struct stitch_interface {
    stitch_context *ctx;
    stitch__arena arena;
    stitch__symbols symbols;
    stitch__iface_dim *dims;
    size_t dim_count, dim_cap;
    stitch__iface_tensor *tensors;
    size_t tensor_count, tensor_cap;
    uint64_t epoch;
};

int stitch__interface_copy(const stitch_interface *from, stitch_interface **out, stitch_error **err);
json_t *stitch__interface_json(const stitch_interface *i); /* NULL: out of memory */
int stitch__interface_parse(stitch_context *ctx, const json_t *v, const stitch__jpath *at, stitch_interface **out,
                            stitch_error **err);
/* Elements and bytes of a shape; a message in `problem` (size bytes) and false when it is out of range. */
bool stitch__shape_size(const int64_t *extent, size_t rank, int dtype, uint64_t *elements, uint64_t *bytes,
                        char *problem, size_t size);
/* Copies a result struct into the caller's, whose struct_size says how much of it he knows. */
int stitch__out_struct(void *out, const void *full, size_t size);

/* ---- the launch plan -------------------------------------------------------------------------------------------- */

/* "name" or "name + offset". */
typedef struct stitch__ref {
    const char *name;     /* NULL: not given */
    stitch__expr *offset; /* elements; NULL: 0 */
    int32_t tensor;       /* index into doc.tensors after stitch__resolve(); -1 before */
} stitch__ref;

#define STITCH__SCALAR_LIST(X)                                                                                         \
    X(I32, "i32", 4)                                                                                                   \
    X(U32, "u32", 4)                                                                                                   \
    X(I64, "i64", 8) X(U64, "u64", 8) X(F32, "f32", 4) X(F64, "f64", 8) X(F16, "f16", 2) X(BF16, "bf16", 2)

typedef enum stitch__scalar_type {
#define STITCH__SCALAR_ENUM(name, text, bytes) STITCH__SCALAR_##name,
    STITCH__SCALAR_LIST(STITCH__SCALAR_ENUM)
#undef STITCH__SCALAR_ENUM
        STITCH__SCALAR_COUNT
} stitch__scalar_type;

const char *stitch__scalar_name(int type);
size_t stitch__scalar_size(int type);
int stitch__scalar_dtype(int type); /* stitch_dtype; unsigned ones as their signed size */
bool stitch__scalar_is_float(int type);
/* Writes the bytes of a scalar. False when the value does not fit; `why` then says so (96 bytes). */
bool stitch__scalar_encode(int type, int64_t integer, double real, bool is_real, void *out, char *why);
uint16_t stitch__f16_bits(double v); /* round to nearest even; too large: infinity */
uint16_t stitch__bf16_bits(double v);
double stitch__f16_value(uint16_t bits);

typedef struct stitch__tensor_map {
    stitch__ref buffer;
    size_t rank;
    stitch__expr *shape[5], *box[5]; /* outermost first, like every shape */
    stitch__expr *strides[5];        /* elements, outermost first; [0] NULL: dense; the innermost is 1 */
    int32_t swizzle;                 /* CUtensorMapSwizzle: 0 none, 1 32B, 2 64B, 3 128B */
} stitch__tensor_map;

typedef enum stitch__arg_kind { STITCH__ARG_POINTER, STITCH__ARG_SCALAR, STITCH__ARG_TENSOR_MAP } stitch__arg_kind;

typedef struct stitch__arg {
    int32_t kind, scalar; /* stitch__arg_kind, stitch__scalar_type */
    stitch__ref ref;
    stitch__expr *expr; /* of a scalar; NULL: `real` */
    double real;
    stitch__tensor_map *map;
    uint8_t access; /* stitch__access, refined by the signature; 0: not known */
} stitch__arg;

typedef struct stitch__kernel_step {
    const char *name;
    size_t grid_rank, block_rank, cluster_rank; /* cluster_rank 0: none */
    stitch__expr *grid[3], *block[3], *cluster[3];
    stitch__expr *shared; /* NULL: 0 */
    bool cooperative, pdl;
    stitch__arg *args;
    size_t arg_count;
} stitch__kernel_step;

enum stitch__epilogue { STITCH__EPILOGUE_NONE, STITCH__EPILOGUE_RELU, STITCH__EPILOGUE_GELU };

typedef struct stitch__gemm_step {
    stitch__ref a, b, c, d, bias;
    stitch__expr *m, *n, *k;
    stitch__expr *lda, *ldb, *ldc, *ldd;                             /* NULL: dense */
    stitch__expr *batch, *stride_a, *stride_b, *stride_c, *stride_d; /* NULL: 1, dense */
    bool trans_a, trans_b;
    double alpha, beta;
    int32_t epilogue; /* enum stitch__epilogue */
    int32_t compute;  /* stitch_dtype: F32, TF32, F16, F64; NONE: from the operands */
} stitch__gemm_step;

typedef struct stitch__copy_step {
    stitch__ref from, to;
    stitch__expr *count; /* NULL: all from `from` on */
} stitch__copy_step;

typedef struct stitch__fill_step {
    stitch__ref buffer;
    stitch__expr *count; /* NULL: all */
    double value;
    int64_t integer;
    bool is_real;
} stitch__fill_step;

typedef struct stitch__op_step {
    const char *name;
    const char *attrs; /* JSON text of an object */
    stitch__arg *args;
    size_t arg_count;
} stitch__op_step;

struct stitch__step;

typedef struct stitch__steps {
    struct stitch__step *items;
    size_t count;
    bool graph;      /* some step has `after`: edges are exactly those given */
    uint32_t *order; /* of a graph: a topological order, after stitch__resolve() */
} stitch__steps;

typedef struct stitch__repeat_step {
    const char *var;
    int32_t symbol;
    stitch__expr *count;
    stitch__steps steps;
} stitch__repeat_step;

typedef enum stitch__step_kind {
    STITCH__STEP_KERNEL,
    STITCH__STEP_GEMM,
    STITCH__STEP_COPY,
    STITCH__STEP_FILL,
    STITCH__STEP_REPEAT,
    STITCH__STEP_OP,
} stitch__step_kind;

typedef struct stitch__step {
    int32_t kind;
    const char *place; /* "run[2]" */
    const char *id;    /* NULL: none */
    const char **after;
    size_t after_count;
    bool has_after;
    uint32_t *after_index;  /* into the list, after stitch__resolve() */
    uint64_t checked_epoch; /* validation: nothing in it depends on loop variables and it has been checked; or it has
                               failed */
    union {
        stitch__kernel_step *kernel;
        stitch__gemm_step *gemm;
        stitch__copy_step *copy;
        stitch__fill_step *fill;
        stitch__repeat_step *repeat;
        stitch__op_step *op;
    } u;
} stitch__step;

typedef struct stitch__let {
    const char *name;
    int32_t symbol;
    stitch__expr *expr;
    int32_t state; /* while values are computed: 0 not yet, 1 in progress, 2 done, 3 failed */
} stitch__let;

typedef struct stitch__buffer {
    const char *name;
    int32_t dtype;
    size_t rank;
    stitch__expr *shape[STITCH_MAX_RANK];
    bool keep;
    int32_t tensor; /* index into doc.tensors after stitch__resolve() */
} stitch__buffer;

enum { STITCH__ROLE_BUFFER = 100 }; /* beside stitch_tensor_role */

/* Everything a pointer can name: the tensors of the interface (same indices), then the buffers. */
typedef struct stitch__tensor {
    const char *name;
    int32_t role, dtype;
    int32_t buffer;           /* index into doc.buffers; -1: of the interface */
    uint64_t elements, bytes; /* for the session's dims */
    bool prepared;            /* written by a prepare step */
} stitch__tensor;

typedef struct stitch__limits {
    uint64_t source_bytes, json_bytes, steps, launches, workspace_bytes, file_bytes;
} stitch__limits;

typedef struct stitch__doc {
    stitch_context *ctx;
    stitch__arena arena;
    stitch__symbols symbols;
    stitch__let *lets;
    size_t let_count;
    stitch__buffer *buffers;
    size_t buffer_count;
    stitch__steps prepare, run;
    size_t step_count;
    stitch__tensor *tensors; /* after stitch__resolve() */
    size_t tensor_count;
    uint64_t epoch;
} stitch__doc;

/* parse.c. `out` is zeroed first and may be passed to stitch__doc_free() in any case. */
int stitch__doc_parse(stitch_context *ctx, const json_t *root, const stitch__limits *limits, stitch__doc *out,
                      stitch_error **err);
void stitch__doc_free(stitch__doc *doc);
/* Whether a step of the list, or of one in it, is of a kind. */
bool stitch__steps_have(const stitch__steps *list, int kind);
bool stitch__doc_has(const stitch__doc *doc, int kind); /* prepare or run */
/* Whether a step calls an operator of the host. */
bool stitch__doc_calls_host(const stitch__doc *doc);
/* The limits with defaults filled in. */
int stitch__limits_resolve(const stitch_context *ctx, const stitch_program_limits *given, stitch__limits *out,
                           stitch_error **err);

#define STITCH__TRY(call)                                                                                              \
    do {                                                                                                               \
        int try_rc = (call);                                                                                           \
        if (try_rc != STITCH_OK)                                                                                       \
            return try_rc;                                                                                             \
    } while (0)

/* What the parsers of steps share. */
typedef struct stitch__parser {
    stitch_context *ctx;
    stitch__doc *doc;
    const stitch__limits *limits;
    stitch_error **err;
} stitch__parser;

int stitch__parse_expr(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__expr **out);
/* A member that may be missing. */
int stitch__parse_member_expr(stitch__parser *p, const json_t *obj, const stitch__jpath *at, const char *key,
                              bool required, stitch__expr **out);
int stitch__parse_member_ref(stitch__parser *p, const json_t *obj, const stitch__jpath *at, const char *key,
                             bool required, stitch__ref *out);
int stitch__parse_ref(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__ref *out);
/* A list of 1 to `max` expressions. */
int stitch__parse_exprs(stitch__parser *p, const json_t *v, const stitch__jpath *at, size_t max, stitch__expr **out,
                        size_t *count);
/* parse_steps.c */
int stitch__parse_steps(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__steps *out);
/* parse_args.c */
int stitch__parse_args(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__arg **out, size_t *count);
/* parse_gemm.c */
int stitch__parse_gemm(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out);

/* ---- findings: all that is wrong, one line each ------------------------------------------------------------------ */

enum { STITCH__MAX_FINDINGS = 100 };

typedef struct stitch__findings {
    const stitch_context *ctx;
    stitch__buf text;
    char first[1024];
    size_t count;
} stitch__findings;

void stitch__findings_init(stitch__findings *f, const stitch_context *ctx);
STITCH__PRINTF(2, 3) void stitch__finding(stitch__findings *f, const char *fmt, ...);
/* Where something is wrong: "run[3].gemm.m", "run[2].kernel layernorm: grid[0]". Returns out. */
enum { STITCH__PLACE_SIZE = 512 };
const char *stitch__place(const stitch__step *step, const char *field, char out[STITCH__PLACE_SIZE]);
/* STITCH_OK if there are none, else `code` with the first as message and all as details. Empties the list. */
int stitch__findings_end(stitch__findings *f, int code, stitch_error **err);

/* ---- resolve.c, session.c: names and values ---------------------------------------------------------------------- */

/* Resolves every name of `doc` against the interface; orders graphs. Findings only; STITCH_E_NOMEM otherwise. */
int stitch__resolve(stitch__doc *doc, const stitch_interface *iface, stitch__findings *f, stitch_error **err);

/* Values of one set of dims. */
typedef struct stitch__session {
    stitch_context *ctx;
    stitch__doc *doc;
    stitch__env env;
    stitch__findings *findings;
    bool nomem;
    bool loop_used;           /* an evaluated expression depended on a loop variable */
    uint64_t workspace_bytes; /* of all buffers that are not kept in the interface, 256-byte aligned each */
} stitch__session;

/* Needs a resolved doc; evaluates lets, shapes and sizes. Problems become findings. */
int stitch__session_begin(stitch__session *s, stitch__doc *doc, const stitch_interface *iface, stitch__findings *f,
                          stitch_error **err);
void stitch__session_end(stitch__session *s);
/* False after a finding "PLACE.FIELD: ..." */
bool stitch__eval(stitch__session *s, const stitch__step *step, const char *field, stitch__expr *e, int64_t *out);
void stitch__loop_set(stitch__session *s, int32_t symbol, int64_t value);
void stitch__loop_clear(stitch__session *s, int32_t symbol);

/* Steps with numbers in place of expressions. */
typedef struct stitch__range {
    int32_t tensor;  /* -1: not given */
    uint64_t offset; /* elements */
} stitch__range;

typedef struct stitch__kernel_values {
    int64_t grid[3], block[3], cluster[3];
    int64_t shared;
} stitch__kernel_values;

typedef struct stitch__gemm_values {
    stitch__range a, b, c, d, bias; /* d: tensor -1 when beta is 0 */
    int64_t m, n, k, lda, ldb, ldc, ldd, batch, stride_a, stride_b, stride_c, stride_d;
} stitch__gemm_values;

typedef struct stitch__map_values {
    stitch__range buffer;
    int64_t shape[5], box[5], strides[5];
} stitch__map_values;

bool stitch__eval_ref(stitch__session *s, const stitch__step *step, const char *field, const stitch__ref *ref,
                      stitch__range *out);
bool stitch__eval_kernel(stitch__session *s, const stitch__step *step, stitch__kernel_values *out);
bool stitch__eval_gemm(stitch__session *s, const stitch__step *step, stitch__gemm_values *out);
bool stitch__eval_map(stitch__session *s, const stitch__step *step, const char *field, const stitch__tensor_map *map,
                      stitch__map_values *out);
/* Count of a copy or fill; `ref` is what it starts from. */
bool stitch__eval_count(stitch__session *s, const stitch__step *step, stitch__expr *count, const stitch__range *from,
                        int64_t *out);
/* Elements from the first to the last of a matrix in a batch; 0 on overflow. */
uint64_t stitch__matrix_extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride);

/* ---- validate.c, check_steps.c, check_access.c, signature.c ------------------------------------------------------ */

typedef struct stitch__arch_limits {
    const char *name;
    int32_t number;           /* 90 */
    int64_t shared_per_block; /* with opting in */
    bool clusters, fp8;
} stitch__arch_limits;

/* NULL: the largest limits of any. STITCH_E_INVALID for what is no architecture. */
int stitch__arch_limits_get(const stitch_context *ctx, const char *arch, stitch__arch_limits *out, stitch_error **err);

typedef struct stitch__check {
    stitch__session s;
    const stitch__limits *limits;
    stitch__arch_limits arch;
    uint64_t launches, iterations;
    bool stop; /* a limit was exceeded */
} stitch__check;

void stitch__check_step(stitch__check *c, stitch__step *step);
/* Everything of stitch_program_validate() on a doc. */
int stitch__doc_validate(stitch__doc *doc, const stitch_interface *iface, const char *arch,
                         const stitch__limits *limits, stitch_error **err);
/* The same after a change of dims alone, of the interface that the doc was validated against last: names stay resolved,
 * so that nothing is added to the doc's arena however often dims change. Sizes in the doc are those of the new dims
 * afterwards, also where it fails: a session that was begun before is void. */
int stitch__doc_revalidate(stitch__doc *doc, const stitch_interface *iface, const char *arch,
                           const stitch__limits *limits, stitch_error **err);

/* Step number *index of a list as written, those of repeats one after the other in place of the repeat. NULL: there are
 * fewer, and *index is less by their number. */
const stitch__step *stitch__steps_leaf(const stitch__steps *list, size_t *index);

/* What a step does with a tensor. */
enum stitch__access {
    STITCH__READS = 1,
    STITCH__WRITES = 2,
    STITCH__TOUCHES = 4,   /* a kernel whose signature is not known yet, an operator: reads, writes, or both */
    STITCH__MAY_WRITE = 8, /* a kernel that takes it through a pointer to non-const */
};
/* Unwritten outputs, reads before writes, writes to inputs, missing edges; as far as arg->access tells. */
int stitch__check_access(stitch__doc *doc, stitch__findings *f, stitch_error **err);

/* Checks kernel steps against an image's signatures and refines arg->access. iface: what the doc is resolved against;
 * NULL if it is not: then only counts, kinds and sizes are checked. */
int stitch__check_signatures(stitch__doc *doc, const stitch_image *image, const stitch_interface *iface,
                             stitch__findings *f, stitch_error **err);
/* The names of all kernels, each once; *names is released with stitch_free. */
int stitch__kernel_names(const stitch__doc *doc, const char ***names, size_t *count, stitch_error **err);

/* ---- program.c, file.c ------------------------------------------------------------------------------------------- */

/* Device code of one architecture: the program's kernels, and the helper kernels (helpers.c) when the plan needs them.
 */
typedef struct stitch__compiled {
    stitch_image *image, *helpers;
    bool brought; /* a file had it: that it was made of the program's source is only what the file says */
} stitch__compiled;

struct stitch_program {
    stitch_context *ctx;
    char *source, *json;
    char hash[65];
    stitch__limits limits;
    stitch__doc doc;
    stitch_interface *iface; /* NULL: never validated */
    stitch__compiled *compiled;
    size_t compiled_count, compiled_cap;
    stitch_image *failed; /* diagnostics of the last compilation that failed */
};

/* From a launch plan that is JSON already. */
int stitch__program_from_json(stitch_context *ctx, const char *source, const json_t *root, const stitch__limits *limits,
                              stitch_program **out, stitch_error **err);
/* stitch_program_compile(), but for who runs NVRTC; `by` NULL: this process does. */
int stitch__program_compile_by(stitch_program *p, const stitch_compile_options *options, const stitch__compiler *by,
                               const stitch_image **image, stitch_error **err);
/* Takes both images over, also when it fails; replaces those of the same architecture. */
int stitch__program_keep(stitch_program *p, stitch_image *image, stitch_image *helpers, stitch_error **err);
int stitch__program_signatures(stitch_program *p, const stitch_image *image, stitch_error **err);
/* The compiled code for an architecture; NULL if there is none. */
stitch__compiled *stitch__program_compiled(stitch_program *p, const char *arch, bool ptx);
/* Drops what a file had, and says how many that were: the program is compiled from its source again where it is needed.
 */
size_t stitch__program_forget_brought(stitch_program *p);

/* helpers.c: device code of the library's own: what a product cannot do in its epilogue, and 8-byte fills. */
bool stitch__needs_helpers(const stitch__doc *doc);
int stitch__compile_helpers(stitch_context *ctx, const char *arch, bool ptx, bool no_cache, stitch_image **out,
                            stitch_error **err);
/* Whether cuBLASLt computes a product in one call, epilogue included; by its table of supported types. */
bool stitch__gemm_fuses(const stitch__doc *doc, const stitch__gemm_step *g);

#endif
