/* SPDX-License-Identifier: MIT
 *
 * Private interface of the task module: what a task holds, generation of its data, and the one interface to whatever
 * computes its outputs (callback, stitched program, recorded tensors).
 */
#ifndef STITCH_LIB_TASK_H
#define STITCH_LIB_TASK_H

#include "base/base.h"
#include "cuda/cuda.h"
#include <stitch/task.h>

#define STITCH__TASK_MAX_TENSORS   4096
#define STITCH__TASK_MAX_DIMS      256
#define STITCH__TASK_MAX_BASELINES 64

/* ---- safetensors.c: reading tensor files from strangers --------------------------------------------------------- */

typedef struct stitch__st_tensor {
    const char *name;
    int dtype; /* stitch_dtype */
    size_t rank;
    int64_t shape[STITCH_MAX_RANK];
    uint64_t offset, bytes; /* in the file */
} stitch__st_tensor;

/* An open file. The data is read with pread into caller's memory and never mapped: a file that shrinks while it is used
 * then is an error and no SIGBUS in the host's process. */
typedef struct stitch__safetensors {
    const stitch_context *ctx;
    char *path;
    int fd;
    uint64_t file_bytes, data_start;
    size_t count;
    stitch__st_tensor *tensors; /* sorted by name */
    char *names;
} stitch__safetensors;

int stitch__safetensors_open(const stitch_context *ctx, const char *path, stitch__safetensors **out,
                             stitch_error **err);
void stitch__safetensors_close(stitch__safetensors *st);
/* Header text of `file_bytes` long file -> tensors. For tests and fuzzing without files. */
int stitch__safetensors_parse(stitch__safetensors *st, const char *header, size_t len, stitch_error **err);
const stitch__st_tensor *stitch__safetensors_find(const stitch__safetensors *st, const char *name); /* NULL: none */
int stitch__safetensors_read(const stitch__safetensors *st, const stitch__st_tensor *t, uint64_t offset, void *data,
                             size_t bytes, stitch_error **err);
/* The name is there with that dtype and shape. `any_float`: another floating dtype will do. `role` ("weight") is for
 * messages. */
int stitch__safetensors_match(const stitch__safetensors *st, const stitch_tensor_info *info, const char *role,
                              bool any_float, const stitch__st_tensor **out, stitch_error **err);
/* Writes a file; for tests and for recording tensors. */
int stitch__safetensors_write(const stitch_context *ctx, const char *path, const stitch_tensor_info *infos,
                              const void *const *data, size_t count, stitch_error **err);

/* ---- task.c ----------------------------------------------------------------------------------------------------- */

typedef enum stitch__compute_kind {
    STITCH__COMPUTE_NONE,
    STITCH__COMPUTE_FN,
    STITCH__COMPUTE_PROGRAM,
    STITCH__COMPUTE_TENSORS,
} stitch__compute_kind;

/* Something that computes the outputs: the reference, or a baseline. */
typedef struct stitch__compute {
    stitch__compute_kind kind;
    char *name; /* of a baseline; NULL for the reference */
    int precision;
    int output_dtype; /* of floating outputs; NONE: as declared */
    stitch_reference_fn fn;
    void *userdata;
    stitch_program *program;
    stitch__safetensors *tensors;
} stitch__compute;

typedef struct stitch__task_dim {
    char *name;
    int64_t value, reduced; /* reduced 0: none */
} stitch__task_dim;

typedef struct stitch__task_tensor {
    stitch_dist dist; /* kind NONE: none given */
    void *data;       /* from stitch_task_set_data(), or NULL */
    uint64_t data_bytes;
} stitch__task_tensor;

/* What a module above keeps with a task: valid while the key says so, freed with the task. */
typedef struct stitch__task_cache {
    char key[96];
    void *value;
    void (*destroy)(void *value);
} stitch__task_cache;

void stitch__task_cache_clear(stitch__task_cache *c);

struct stitch_task {
    stitch_context *ctx;
    char *name, *description, *source;
    stitch__task_dim *dims;
    size_t dim_count, dim_cap;
    stitch_interface *iface;      /* at the current dims */
    stitch__task_tensor *tensors; /* one for each tensor of the interface */
    size_t tensor_cap;
    bool reduced;
    double atol, rtol;
    int precision;
    char *flops; /* floating-point operations of one computation: an expression over the dims; NULL: not stated */
    stitch__safetensors *weights;
    stitch__compute reference;
    stitch__compute *baselines;
    size_t baseline_count, baseline_cap;
    char hash[65];                /* "" when something changed since */
    stitch__task_cache admission; /* of lib/verify; the key holds the hash */
};

/* dist.c: names and checks of distributions */
int stitch__dist_parse(const char *name); /* STITCH_DIST_NONE if there is none */
/* a and b with the defaults of stitch/task.h filled in. */
stitch_dist stitch__dist_resolve(stitch_dist dist);
int stitch__dist_check(const stitch_context *ctx, const stitch_dist *dist, int dtype, size_t rank, const char *tensor,
                       stitch_error **err);
/* "normal(0, 1)" */
void stitch__dist_print(const stitch_dist *dist, char *out, size_t size);
bool stitch__dtype_is_float(int dtype);
/* Of an output of this dtype: a relative tolerance is for values that are rounded, and an index may be large. */
static inline double stitch__dtype_rtol(int dtype, double rtol)
{
    return stitch__dtype_is_float(dtype) ? rtol : 0;
}

/* A new interface like the task's own at the given dims; `output_dtype` replaces floating dtypes of outputs (NONE:
 * none). */
int stitch__task_interface(const stitch_task *t, bool reduced, int output_dtype, stitch_interface **out,
                           stitch_error **err);
/* One a tensor of the interface, at its present dims; strings are the interface's. *out is released with stitch_free(),
 * also after a failure. */
int stitch__task_infos(const stitch_context *ctx, const stitch_task *t, stitch_tensor_info **out, size_t *count,
                       stitch_error **err);
bool stitch__task_has_reduced(const stitch_task *t);
/* Everything a verification needs is there: an output, a reference, data or a distribution for every input and weight.
 */
int stitch__task_check(const stitch_task *t, stitch_error **err);
/* True if no input depends on the seed (all of them are recorded). */
bool stitch__task_inputs_fixed(const stitch_task *t);
/* True if a run may find something in its inputs that it has seen before: there are none that depend on the seed, or
 * some that do not. */
bool stitch__task_has_fixed(const stitch_task *t);
bool stitch__task_input_fixed(const stitch_task *t, size_t tensor);
const char *stitch__precision_name(int precision);
int stitch__precision_parse(const char *name); /* -1 if there is none */

/* ---- generate.c ------------------------------------------------------------------------------------------------- */

/* Kinds that no task can declare: one element of each row of the last axis is 1, the others 0; +a and -a in turn along
 * the elements, plus normal noise of standard deviation b. */
enum { STITCH__DIST_ONE_HOT = 100, STITCH__DIST_CANCELLING };

/* How the data of a trial differs from what the task declares. Only tensors of floating type are changed. */
typedef struct stitch__variant {
    double scale;            /* multiplies normal and uniform values; 0: 1 */
    const stitch_dist *dist; /* instead of normal and uniform; NULL: none */
} stitch__variant;

/* Element `index` onwards of a tensor, on the host: the same bits as the device. `out` holds `count` elements. */
int stitch__generate_host(const stitch_context *ctx, const stitch_tensor_info *info, const stitch_dist *dist,
                          double scale, uint64_t seed, uint32_t tensor, uint64_t index, uint64_t count, void *out,
                          stitch_error **err);
/* The same on the device: enqueues a kernel on `stream`. */
int stitch__generate_device(stitch__device *dev, CUstream stream, const stitch_tensor_info *info,
                            const stitch_dist *dist, double scale, uint64_t seed, uint32_t tensor, CUdeviceptr out,
                            stitch_error **err);
/* Compiles and loads the kernel, before the scope ends. */
int stitch__generate_warm(stitch__device *dev, const stitch__scope *scope, stitch_error **err);
/* Fills tensor `index` of the task: set data, recorded tensors, weights file, or its distribution, in this order;
 * states and outputs become zeros. Everything is in order of `stream`. */
int stitch__task_fill(const stitch_task *t, stitch__device *dev, CUstream stream, size_t index, uint64_t seed,
                      const stitch__variant *variant, CUdeviceptr ptr, stitch_error **err);
/* Copies a tensor of a file to the device in stream order; the host's part is done on return. */
int stitch__upload(stitch__device *dev, CUstream stream, const stitch__safetensors *st, const stitch__st_tensor *t,
                   CUdeviceptr ptr, stitch_error **err);
/* Seed number `n` of a purpose, derived from the master seed. */
uint64_t stitch__seed_derive(uint64_t master, uint64_t purpose, uint64_t n);

/* ---- kernels.c: the library's own device code -------------------------------------------------------------------- */

/* Kernels `names` of one source text (`parts` put together, after a preamble that makes convert.h and draw.h device
 * code), compiled and loaded by the first call and kept in `slot`. kernels[i] belongs to names[i]. The scope (NULL:
 * none) ends waiting for the compiler, and for another thread that has it. */
typedef struct stitch__kernels {
    CUfunction kernels[8];
} stitch__kernels;

int stitch__kernels_get(stitch__device *dev, const stitch__scope *scope, enum stitch__slot slot,
                        const char *const *parts, size_t part_count, const char *const *names, size_t name_count,
                        const stitch__kernels **out, stitch_error **err);
/* A grid for `threads` blocks of 256 threads that loop over the rest. */
unsigned stitch__kernels_grid(const stitch__device *dev, uint64_t threads);

/* The device code that converts elements of every dtype to and from double (convert.h). */
extern const char stitch__task_convert[];

/* ---- reference.c: whatever computes the outputs ------------------------------------------------------------------ */

typedef struct stitch__oracle stitch__oracle;

/* Validates, compiles and loads what is needed at the task's current dims. The task must outlive the oracle. */
int stitch__oracle_open(stitch_task *t, const stitch__compute *what, stitch__device *dev, const stitch_op *ops,
                        size_t op_count, stitch__oracle **out, stitch_error **err);
/* Dtype in which tensor `index` (an output) is written. */
int stitch__oracle_dtype(const stitch__oracle *o, size_t index);
/* Binds all tensors of the interface, in its order, and enqueues what must happen once the weights are there. */
int stitch__oracle_prepare(stitch__oracle *o, CUstream stream, const stitch_bound_tensor *tensors, size_t count,
                           stitch_error **err);
/* Enqueues one computation with the bound tensors. */
int stitch__oracle_run(stitch__oracle *o, CUstream stream, stitch_error **err);
/* The same in parts, for those who time the second: *more says whether stitch__oracle_finish() has something to do. */
int stitch__oracle_ready(stitch__oracle *o, CUstream stream, stitch_error **err);
int stitch__oracle_begin(stitch__oracle *o, CUstream stream, bool *more, stitch_error **err);
int stitch__oracle_finish(stitch__oracle *o, CUstream stream, stitch_error **err);
/* What runs it, where it is a program; else NULL. */
stitch_executor *stitch__oracle_executor(const stitch__oracle *o);
void stitch__oracle_close(stitch__oracle *o);

#endif
