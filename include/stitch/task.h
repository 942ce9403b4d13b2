/* SPDX-License-Identifier: MIT
 *
 * Tasks: what must be computed, on which data, how exactly, and against what it is measured.
 * The file format is described in docs/task-format.md. Every value can also be set by calls.
 */
#ifndef STITCH_TASK_H
#define STITCH_TASK_H

#include <stitch/program.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @since 0.1.0 */
typedef struct stitch_task stitch_task;

/** How the elements of a tensor are drawn. X(name, text). a and b as the comment says. @since 0.1.0 */
#define STITCH_DIST_LIST(X)                                                                                            \
    X(NORMAL, "normal")       /* mean a, standard deviation b (0, 1 if both are 0) */                                  \
    X(UNIFORM, "uniform")     /* [a, b) (0, 1 if both are 0) */                                                        \
    X(CONSTANT, "constant")   /* a */                                                                                  \
    X(RANDINT, "randint")     /* integers in [a, b) */                                                                 \
    X(BERNOULLI, "bernoulli") /* 1 with probability a, else 0 */                                                       \
    X(TRIL, "tril")           /* 1 on and below the diagonal of the last two dims, else 0 */                           \
    X(ARANGE, "arange")       /* a + b * index (0, 1 if both are 0) */

typedef enum stitch_dist_kind {
    STITCH_DIST_NONE = 0,
#define STITCH_DIST_ENUM(name, text) STITCH_DIST_##name,
    STITCH_DIST_LIST(STITCH_DIST_ENUM)
#undef STITCH_DIST_ENUM
} stitch_dist_kind;

/** @since 0.1.0 */
typedef struct stitch_dist {
    int32_t kind;
    int32_t reserved;
    double a, b;
} stitch_dist;

/** The least precise arithmetic a candidate may use inside. Stated next to every speed-up. @since 0.1.0 */
typedef enum stitch_precision {
    STITCH_PRECISION_ANY = 0,  /**< only the tolerance decides */
    STITCH_PRECISION_F32 = 1,  /**< no TF32, no half precision */
    STITCH_PRECISION_TF32 = 2, /**< TF32 products, no half precision */
    STITCH_PRECISION_F16 = 3,  /**< half and bfloat16 products with float32 accumulation */
} stitch_precision;

/** A tensor handed to a reference callback. */
typedef struct stitch_bound_tensor {
    stitch_tensor_info info;
    stitch_device_ptr ptr; /**< device memory of info.bytes */
} stitch_bound_tensor;

/**
 * The reference: enqueues on `stream` what writes every output from inputs and weights. `tensors` holds all tensors of
 * the interface in its order; outputs have the dtype that was agreed in the setter. Called from the thread that
 * verifies, with the device's context current; may synchronise the stream. Returns 0, a status, STITCH_READY
 * or STITCH_AGAIN.
 * @since 0.1.0
 */
typedef int (*stitch_reference_fn)(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count,
                                   void *userdata);

/** Returned by a stitch_reference_fn that has looked up what it needs and enqueued nothing yet: it is called again
 * right away, with the same arguments, to compute. A baseline's time starts between the two calls. @since 0.1.0 */
#define STITCH_READY 2
/** Returned by a stitch_reference_fn that has enqueued the computation, but not yet the copies of its results to where
 * the outputs are wanted: it is called once more right away, for these, with the same arguments. A baseline's time ends
 * between the two calls. @since 0.1.0 */
#define STITCH_AGAIN 1

/** For callbacks that compute on the host, on simulated devices too: copies the first `bytes` of a tensor that the
 * callback got, after what was enqueued on `stream` before; waits. STITCH_E_INVALID: the tensor has fewer bytes.
 * @since 0.1.0 */
STITCH_API int stitch_bound_tensor_read(stitch_context *ctx, stitch_stream stream, const stitch_bound_tensor *tensor,
                                        void *out, uint64_t bytes, stitch_error **err);
/** The other way: fills the first `bytes` of the tensor. @since 0.1.0 */
STITCH_API int stitch_bound_tensor_write(stitch_context *ctx, stitch_stream stream, const stitch_bound_tensor *tensor,
                                         const void *data, uint64_t bytes, stitch_error **err);

/** @since 0.1.0 */
STITCH_API int stitch_task_new(stitch_context *ctx, const char *name, stitch_task **out, stitch_error **err);
/** Paths in the file are relative to it. */
STITCH_API int stitch_task_load(stitch_context *ctx, const char *path, stitch_task **out, stitch_error **err);
/** base: the file or folder that relative paths start from; NULL: paths are refused. */
STITCH_API int stitch_task_parse(stitch_context *ctx, const char *json, const char *base, stitch_task **out,
                                 stitch_error **err);
STITCH_API void stitch_task_free(stitch_task *t);

STITCH_API const char *stitch_task_name(const stitch_task *t);
/** Hex SHA-256 of everything that defines the task, referenced files included. */
STITCH_API int stitch_task_hash(stitch_task *t, char hex[65], stitch_error **err);
/** The dims and tensors; valid until the next change of the task. */
STITCH_API const stitch_interface *stitch_task_interface(const stitch_task *t);

STITCH_API int stitch_task_set_dim(stitch_task *t, const char *name, int64_t value, stitch_error **err);
/** A smaller value of a dim for simulation and quick checks. */
STITCH_API int stitch_task_set_reduced_dim(stitch_task *t, const char *name, int64_t value, stitch_error **err);
/** Makes the reduced dims the current ones (1) or goes back (0). STITCH_E_STATE if there are none. */
STITCH_API int stitch_task_use_reduced(stitch_task *t, int reduced, stitch_error **err);
STITCH_API int stitch_task_is_reduced(const stitch_task *t);
/** dist NULL: a normal distribution for inputs and weights of floating type, none for integers (they need one, or data,
 * before the task is used); ignored for outputs; states start as zeros. */
STITCH_API int stitch_task_add_tensor(stitch_task *t, int role, const char *name, int dtype, size_t rank,
                                      const char *const *shape, const stitch_dist *dist, stitch_error **err);
/** Values of a weight or a recorded input, copied from host memory; replaces its distribution. */
STITCH_API int stitch_task_set_data(stitch_task *t, const char *name, const void *data, uint64_t bytes,
                                    stitch_error **err);
/** Weights by name from a safetensors file: its header is read now, its data when it is needed. Every weight without
 * data must be in it, with its dtype and shape. */
STITCH_API int stitch_task_set_weights_file(stitch_task *t, const char *path, stitch_error **err);
/** |got - want| <= atol + rtol * |want|, for every element of every output; for integers and booleans <= atol. Elements
 * of half precision or less may also be what a value within that is rounded to. */
STITCH_API int stitch_task_set_tolerance(stitch_task *t, double atol, double rtol, stitch_error **err);
STITCH_API int stitch_task_set_precision(stitch_task *t, int precision, stitch_error **err);
/** Floating-point operations that one computation needs at the least, as an expression over the dims ("2*M*N*K"): a
 * median time that would need more than the device's peak rate for the task's precision is refused. @since 0.1.0 */
STITCH_API int stitch_task_set_flops(stitch_task *t, const char *flops, stitch_error **err);
/** Text for the planner and the coder: what it computes, and its PyTorch (or other) source. NULL leaves one unchanged.
 */
STITCH_API int stitch_task_set_text(stitch_task *t, const char *description, const char *source, stitch_error **err);
STITCH_API void stitch_task_tolerance(const stitch_task *t, double *atol, double *rtol);
STITCH_API int stitch_task_precision(const stitch_task *t);
STITCH_API const char *stitch_task_description(const stitch_task *t); /**< never NULL */
STITCH_API const char *stitch_task_source(const stitch_task *t);      /**< never NULL */

/** Exactly one reference. output_dtype: of the reference's outputs of floating type (STITCH_DTYPE_F64 for an oracle);
 *  NONE: as the task declares them. @since 0.1.0 */
STITCH_API int stitch_task_set_reference_fn(stitch_task *t, stitch_reference_fn fn, void *userdata, int output_dtype,
                                            stitch_error **err);
/** The task takes the program over on success. */
STITCH_API int stitch_task_set_reference_program(stitch_task *t, stitch_program *p, int output_dtype,
                                                 stitch_error **err);
/** Recorded inputs, outputs (and weights where given) from a safetensors file. */
STITCH_API int stitch_task_set_reference_tensors(stitch_task *t, const char *path, stitch_error **err);

/** What speed-ups are measured against, in order; the first is the main one. `precision` (stitch_precision) is what it
 * computes with. Without a baseline the reference is used. @since 0.1.0 */
STITCH_API int stitch_task_add_baseline_fn(stitch_task *t, const char *name, int precision, stitch_reference_fn fn,
                                           void *userdata, stitch_error **err);
STITCH_API int stitch_task_add_baseline_program(stitch_task *t, const char *name, int precision, stitch_program *p,
                                                stitch_error **err);
STITCH_API size_t stitch_task_baseline_count(const stitch_task *t);
STITCH_API int stitch_task_baseline(const stitch_task *t, size_t index, const char **name, int *precision);

#ifdef __cplusplus
}
#endif
#endif
