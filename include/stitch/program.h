/* SPDX-License-Identifier: MIT
 *
 * Stitched programs: device code plus a launch plan. Parse, validate, compile, save, load, run.
 * The format is described in docs/program-format.md.
 */
#ifndef STITCH_PROGRAM_H
#define STITCH_PROGRAM_H

#include <stitch/compile.h>
#include <stitch/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a program reads and writes: dims and tensors by name. @since 0.1.0 */
typedef struct stitch_interface stitch_interface;
/** Device code, launch plan, interface and compiled images. @since 0.1.0 */
typedef struct stitch_program stitch_program;
/** A program loaded on a device for given dims: module, workspace, CUDA graph. @since 0.1.0 */
typedef struct stitch_executor stitch_executor;

/* ---- interface ------------------------------------------------------------------------------------------------- */

typedef enum stitch_tensor_role {
    STITCH_TENSOR_INPUT = 0,  /**< bound for every run; never written */
    STITCH_TENSOR_WEIGHT = 1, /**< bound once; never written; seen by `prepare` */
    STITCH_TENSOR_OUTPUT = 2, /**< written completely by every run */
    STITCH_TENSOR_STATE = 3,  /**< read and written, kept between runs */
} stitch_tensor_role;

/** One tensor: contiguous, row-major. Strings stay owned by the handle. @since 0.1.0 */
typedef struct stitch_tensor_info {
    size_t struct_size;
    const char *name;
    int32_t role;                            /**< stitch_tensor_role */
    int32_t dtype;                           /**< stitch_dtype */
    size_t rank;                             /**< 0 to STITCH_MAX_RANK */
    const char *shape_expr[STITCH_MAX_RANK]; /**< expressions over the dims */
    int64_t shape[STITCH_MAX_RANK];          /**< their values for the current dims */
    uint64_t elements, bytes;
} stitch_tensor_info;

#define STITCH_TENSOR_INFO_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(stitch_tensor_info), NULL, 0, 0, 0, {NULL}, {0}, 0, 0                                                   \
    }

STITCH_API int stitch_interface_new(stitch_context *ctx, stitch_interface **out, stitch_error **err);
STITCH_API void stitch_interface_free(stitch_interface *i);
/** Adds a dim or changes its value (>= 1). */
STITCH_API int stitch_interface_set_dim(stitch_interface *i, const char *name, int64_t value, stitch_error **err);
/** shape: `rank` expressions over dims that were added before. Names are unique over dims and tensors. */
STITCH_API int stitch_interface_add_tensor(stitch_interface *i, int role, const char *name, int dtype, size_t rank,
                                           const char *const *shape, stitch_error **err);
STITCH_API size_t stitch_interface_dim_count(const stitch_interface *i);
STITCH_API int stitch_interface_dim(const stitch_interface *i, size_t index, const char **name, int64_t *value);
STITCH_API size_t stitch_interface_tensor_count(const stitch_interface *i);
STITCH_API int stitch_interface_tensor(const stitch_interface *i, size_t index, stitch_tensor_info *out);
/** STITCH_E_NOT_FOUND if there is none. */
STITCH_API int stitch_interface_find(const stitch_interface *i, const char *name, size_t *index);

/* ---- program --------------------------------------------------------------------------------------------------- */

/** Limits for documents from strangers. 0: the default. @since 0.1.0 */
typedef struct stitch_program_limits {
    size_t struct_size;
    uint64_t source_bytes;    /**< 4 MiB */
    uint64_t json_bytes;      /**< 1 MiB */
    uint64_t steps;           /**< steps written in the document: 4096 */
    uint64_t launches;        /**< after unrolling repeats: 100,000 */
    uint64_t workspace_bytes; /**< 64 GiB */
    uint64_t file_bytes;      /**< saved programs: 256 MiB */
} stitch_program_limits;

#define STITCH_PROGRAM_LIMITS_INIT                                                                                     \
    {                                                                                                                  \
        sizeof(stitch_program_limits), 0, 0, 0, 0, 0, 0                                                                \
    }

STITCH_API int stitch_program_limits_init(stitch_program_limits *limits, size_t struct_size);

/** From the two parts that a model or a person writes. Checks the form; names and shapes are checked by validate.
 * @since 0.1.0 */
STITCH_API int stitch_program_parse(stitch_context *ctx, const char *source, const char *json,
                                    const stitch_program_limits *limits, stitch_program **out, stitch_error **err);
STITCH_API void stitch_program_free(stitch_program *p);
STITCH_API const char *stitch_program_source(const stitch_program *p);
/** The launch plan, normalised and indented. */
STITCH_API const char *stitch_program_json(const stitch_program *p);
/** Hex SHA-256 of source and launch plan. */
STITCH_API const char *stitch_program_hash(const stitch_program *p);

/** The interface it was last validated against or saved with; NULL if none. */
STITCH_API const stitch_interface *stitch_program_interface(const stitch_program *p);

/**
 * Everything that can be checked without a GPU and without compiling: names, dtypes, expressions, shapes and offsets,
 * ranges of copies and products, aliasing, buffers that are read before written, outputs that nothing writes,
 * dependencies, grid, block and shared-memory limits of `arch` (NULL: the largest limits). Keeps a copy of the
 * interface. The error's message is the first finding, its details are all of them, a line each: "run[2].kernel
 * layernorm: grid[0] is 0 ...". @since 0.1.0
 */
STITCH_API int stitch_program_validate(stitch_program *p, const stitch_interface *i, const char *arch,
                                       stitch_error **err);

/**
 * Compiles for options->arch (names are filled in by the program) and checks every kernel step against the real
 * signatures. The image is kept in the program. *image may be NULL; it stays owned by the program, is also set when the
 * status is STITCH_E_COMPILE, and is valid until the next compile of the same architecture. @since 0.1.0
 */
STITCH_API int stitch_program_compile(stitch_program *p, const stitch_compile_options *options,
                                      const stitch_image **image, stitch_error **err);

/** One self-contained file: launch plan, source, interface and the compiled images. @since 0.1.0 */
STITCH_API int stitch_program_save(const stitch_program *p, const char *path, stitch_error **err);
/** Checks everything as if it came from a stranger. */
STITCH_API int stitch_program_load(stitch_context *ctx, const char *path, const stitch_program_limits *limits,
                                   stitch_program **out, stitch_error **err);
STITCH_API int stitch_program_load_memory(stitch_context *ctx, const void *data, size_t size,
                                          const stitch_program_limits *limits, stitch_program **out,
                                          stitch_error **err);
/** The file's bytes; *data is released with stitch_free(). */
STITCH_API int stitch_program_save_memory(const stitch_program *p, void **data, size_t *size, stitch_error **err);

/* ---- executor -------------------------------------------------------------------------------------------------- */

/** A device pointer. */
typedef uint64_t stitch_device_ptr;
/** A CUstream / cudaStream_t; NULL: the default stream. */
typedef void *stitch_stream;

/** An argument of an `op` step. */
typedef struct stitch_op_arg {
    stitch_device_ptr ptr; /**< 0 for a scalar */
    int64_t integer;       /**< scalars of integer type */
    double real;           /**< scalars of floating type */
    int32_t dtype;         /**< element type of the tensor, or type of the scalar */
    int32_t is_pointer;
    uint64_t bytes; /**< from ptr to the end of its tensor */
} stitch_op_arg;

/** Enqueues the operator on `stream`. Must be capturable in a CUDA graph: no synchronisation, no allocation. `attrs` is
 * the step's JSON object as text. Called when the graph is made: while preparing, and in the run after pointers have
 * changed; where runs are plain launches (no_graph, a stream that captures) in every run. From the thread of that call,
 * with the device's context current. Returns 0 or a status. */
typedef int (*stitch_op_fn)(stitch_stream stream, const stitch_op_arg *args, size_t count, const char *attrs,
                            void *userdata);

/** A host operator under a name. @since 0.1.0 */
typedef struct stitch_op {
    const char *name;
    stitch_op_fn fn;
    void *userdata;
} stitch_op;

typedef struct stitch_executor_options {
    size_t struct_size;
    /** Values for dims of the interface, `dim_count` pairs; the others keep their value. */
    const char *const *dim_names;
    const int64_t *dim_values;
    size_t dim_count;
    const stitch_op *ops;
    size_t op_count;
    /** 1: plain launches instead of a CUDA graph (profiling, host operators that cannot be captured). */
    int32_t no_graph;
    /** How many dim settings keep their graph and workspace; 0: 4. */
    int32_t max_plans;
    /** cuBLASLt workspace, shared by all products of a stream; 0: 32 MiB. */
    uint64_t library_workspace_bytes;
    uint64_t max_workspace_bytes; /**< 0: 64 GiB */
    /** 1: products use cuBLASLt's first choice. Default: prepare times its first choices on the real shapes, once a
     * device and shape (the result is kept in the cache folder). */
    int32_t no_tuning;
    /** 1: runs may be captured by the host: on a stream that captures they enqueue their launches instead of a graph,
     * which the driver refuses there. Costs about 0.1 us a run. */
    int32_t capturable;
} stitch_executor_options;

#define STITCH_EXECUTOR_OPTIONS_INIT                                                                                   \
    {                                                                                                                  \
        sizeof(stitch_executor_options), NULL, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, 0                                      \
    }

STITCH_API int stitch_executor_options_init(stitch_executor_options *options, size_t struct_size);

/**
 * Loads the program on the context's device. Needs an interface (validate, or a saved file); compiles if no image for
 * the device is in the program. The program may be freed afterwards. @since 0.1.0
 */
STITCH_API int stitch_executor_new(stitch_context *ctx, stitch_program *p, const stitch_executor_options *options,
                                   stitch_executor **out, stitch_error **err);
/** Waits for nothing: the host makes sure that no run is in flight. */
STITCH_API void stitch_executor_free(stitch_executor *x);

/** The tensors and dims as this executor has them. */
STITCH_API const stitch_interface *stitch_executor_interface(const stitch_executor *x);
/** Changes a dim. Takes effect with the next stitch_executor_prepare(), which validates the program with the new dims.
 */
STITCH_API int stitch_executor_set_dim(stitch_executor *x, const char *name, int64_t value, stitch_error **err);

/** A tensor's slot (its index in the interface). */
STITCH_API int stitch_executor_slot(const stitch_executor *x, const char *name, size_t *slot, stitch_error **err);
/**
 * Binds device memory to a tensor: at least `bytes` (checked against the tensor's size), aligned to 16 bytes. The
 * memory stays the caller's and must live until the last run that uses it is done. Binding a weight after prepare marks
 * the executor unprepared, also at the same address: there may be other weights now.
 */
STITCH_API int stitch_executor_bind(stitch_executor *x, size_t slot, stitch_device_ptr ptr, uint64_t bytes,
                                    stitch_error **err);
STITCH_API int stitch_executor_bind_name(stitch_executor *x, const char *name, stitch_device_ptr ptr, uint64_t bytes,
                                         stitch_error **err);

/**
 * Everything that allocates: workspace, library handles and algorithms, the `prepare` steps (enqueued on `stream`), the
 * graph. All tensors must be bound; inputs and outputs may be bound to other memory later. Choosing the algorithm of a
 * product waits for the device, after what `stream` has to do already; stitch_context_cancel() ends it. With new dims
 * the least recently used plan of more than `max_plans` goes, and its memory: no run of it may be in flight. After a
 * failure the executor is unprepared; its bindings and dims stay. @since 0.1.0
 */
STITCH_API int stitch_executor_prepare(stitch_executor *x, stitch_stream stream, stitch_error **err);

/**
 * Enqueues one run on `stream` and returns. No allocation and no synchronisation by this library; after a bind of an
 * input or output the graph is updated first, not rebuilt. Runs of one executor must not overlap on the device (they
 * share the workspace): use one stream, or one executor a stream. @since 0.1.0
 */
STITCH_API int stitch_executor_run(stitch_executor *x, stitch_stream stream, stitch_error **err);

/** Facts after prepare. @since 0.1.0 */
typedef struct stitch_executor_stats {
    size_t struct_size;
    uint64_t workspace_bytes; /**< all buffers */
    uint64_t library_workspace_bytes;
    uint64_t launches; /**< kernels, products, copies, fills and ops of one run, repeats unrolled */
    uint64_t prepare_launches;
    uint64_t graph_updates, graph_builds;
    double prepare_build_ms; /**< host time of the last stitch_executor_prepare() */
} stitch_executor_stats;

#define STITCH_EXECUTOR_STATS_INIT                                                                                     \
    {                                                                                                                  \
        sizeof(stitch_executor_stats), 0, 0, 0, 0, 0, 0, 0.0                                                           \
    }

STITCH_API int stitch_executor_stats_get(const stitch_executor *x, stitch_executor_stats *out);

#ifdef __cplusplus
}
#endif
#endif
