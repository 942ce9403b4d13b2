/* SPDX-License-Identifier: MIT
 *
 * Private parts of the executor: plans keyed by dims, encoding of steps, products.
 *
 * A plan belongs to one setting of the dims. It owns the workspace and the CUDA graph. Encoding walks the steps with a
 * session (program.h) and enqueues them on a stream: the caller's for `prepare`, a capturing one for `run`.
 */
#ifndef STITCH_LIB_PROGRAM_EXECUTOR_H
#define STITCH_LIB_PROGRAM_EXECUTOR_H

#include "cuda/cuda.h"
#include "program/pause.h"
#include "program/program.h"

enum {
    STITCH__MAX_LANES = 8, /* streams of a list with dependencies */
};

typedef struct stitch__exec_plan {
    int64_t *dims;        /* of the interface, in its order */
    CUdeviceptr *buffers; /* one a buffer of the doc */
    uint64_t workspace_bytes;
    CUgraphExec graph;      /* NULL: not built yet, or no graph wanted */
    uint64_t bind_epoch;    /* of the bindings in the graph */
    uint64_t weights_epoch; /* of the weights that `prepare` ran with; 0: it has not */
    uint64_t launches, prepare_launches;
    uint64_t last_used;
} stitch__exec_plan;

/* What decides how a product is computed. Zeroed before it is filled, so that it compares as bytes. */
typedef struct stitch__gemm_key {
    int32_t a_type, b_type, c_type, d_type, bias_type, compute, epilogue;
    int32_t trans_a, trans_b, has_bias;
    int64_t m, n, k, lda, ldb, ldc, ldd, batch, stride_a, stride_b, stride_c, stride_d;
    double alpha, beta;
    uint32_t a_align, b_align, c_align, d_align; /* bytes */
} stitch__gemm_key;

typedef struct stitch__gemm_entry {
    stitch__gemm_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d; /* column-major: operands swapped */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    union {
        float f32;
        double f64;
        uint16_t f16;
    } alpha, beta;
} stitch__gemm_entry;

struct stitch_executor {
    stitch_context *ctx;
    stitch__device *dev;
    stitch_program *program; /* a private copy: its interface holds the dims */
    stitch__doc *doc;
    stitch_interface *iface;
    stitch_executor_options options; /* without the pointers */
    stitch_op *ops;
    size_t op_count;
    stitch__module module, helpers;
    size_t helper_epilogue, helper_fill; /* kernels of `helpers` */
    const stitch_image *image;

    CUdeviceptr *bound; /* one a tensor of the interface */
    uint64_t *bound_bytes;
    uint64_t bind_epoch, weights_epoch;
    bool dims_changed; /* since the last prepare */
    bool dims_valid;   /* the plan was validated with the dims as they are */

    stitch__exec_plan *plans;
    size_t plan_count;
    stitch__exec_plan *current;
    uint64_t clock;
    stitch__session session; /* of `session_plan` */
    stitch__exec_plan *session_plan;
    stitch__findings findings;

    /* encoding */
    CUstream capture;                  /* lane 0 of captures, and what tuning runs on */
    CUevent earlier;                   /* the end of what the host's stream had to do before prepare */
    CUstream lanes[STITCH__MAX_LANES]; /* [0] is not used: lane 0 is the stream that is encoded to */
    size_t lane_count;                 /* 1 where no list has dependencies */
    CUevent *events;                   /* of lists with dependencies: their start, then one a step */
    size_t event_count;
    void **arg_pointers;
    void *arg_block;
    struct stitch__arg_value *arg_values; /* in arg_block, aligned; room for the step with the most arguments */
    bool in_graph;                        /* a list with dependencies is being encoded */
    uint64_t encoded;                     /* launches of the walk in progress */
    uint64_t operators;                   /* of them, calls of the host's operators */
    const stitch__step *skip;             /* left out of the walk in progress; NULL: none */
    bool plain;                           /* the run in progress is no graph */
    const struct stitch__pause *pause;    /* of the walk in progress, still to come; NULL: none */
    int poison;                           /* byte that new workspace is filled with; -1: none */

    /* products */
    const stitch__cublaslt *lt;
    cublasLtHandle_t lt_handle;
    CUdeviceptr lt_workspace[STITCH__MAX_LANES];
    stitch__gemm_entry *gemms;
    size_t gemm_count, gemm_capacity;
    bool gemm_frozen; /* no new entries: all were made by prepare */

    uint64_t graph_updates, graph_builds;
    double prepare_build_ms;
};

typedef struct stitch__arg_value {
    _Alignas(64) unsigned char bytes[128]; /* a CUtensorMap at most */
} stitch__arg_value;

/* executor.c, for verification: workspace that is made from now on is filled with `byte` before `prepare` (-1: not). */
void stitch__executor_poison(stitch_executor *x, int byte);
/* The next buffer of the plan from *at on (start with 0), which moves past it; false: there are no more, or the executor
 * is not prepared. */
typedef struct stitch__workspace {
    const char *name;
    CUdeviceptr ptr;
    uint64_t bytes;
    bool prepared; /* what `prepare` wrote there is there in every run */
} stitch__workspace;

bool stitch__executor_workspace(const stitch_executor *x, size_t *at, stitch__workspace *out);
/* A run as plain launches, whatever the options say of graphs: what counts kernels does not see graphs. `pause` may be
 * NULL. */
int stitch__executor_run_plain(stitch_executor *x, stitch_stream stream, const stitch__pause *pause,
                               stitch_error **err);
/* The same without step `skip` (stitch__steps_leaf() numbers them). */
int stitch__executor_run_without(stitch_executor *x, stitch_stream stream, size_t skip, stitch_error **err);

/* encode.c: enqueues a list on `stream`, which is lane `lane`. The device is entered and the session is the plan's. */
int stitch__encode_steps(stitch_executor *x, const stitch__exec_plan *plan, const stitch__steps *list, CUstream stream,
                         size_t lane, stitch_error **err);
/* Events and lanes that the doc's lists need. */
int stitch__encode_setup(stitch_executor *x, stitch_error **err);
void stitch__encode_teardown(stitch_executor *x);
/* Why a step cannot be evaluated. Validation has seen the same values, so this is rare. */
int stitch__encode_failed(stitch_executor *x, stitch_error **err);
CUdeviceptr stitch__encode_address(const stitch_executor *x, const stitch__exec_plan *plan, const stitch__range *r);

/* gemm.c: one product; gemm_lt.c: how cuBLASLt computes it. */
int stitch__encode_gemm(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                        size_t lane, stitch_error **err);
/* Makes (and tunes) the entries of all products of a list, so that encoding allocates nothing. Tuning waits for the
 * device; the context's cancellation ends it. */
int stitch__gemm_setup(stitch_executor *x, const stitch__exec_plan *plan, const stitch__steps *list,
                       stitch_error **err);
void stitch__gemm_teardown(stitch_executor *x);

int stitch__lt_open(stitch_executor *x, stitch_error **err);
/* The entry of a key; made, and tuned on the given operands, if there is none. */
int stitch__lt_entry(stitch_executor *x, const stitch__gemm_key *key, const char *place, CUdeviceptr a, CUdeviceptr b,
                     CUdeviceptr bias, CUdeviceptr d, stitch__gemm_entry **out, stitch_error **err);
int stitch__lt_run(stitch_executor *x, stitch__gemm_entry *e, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d,
                   CUdeviceptr c, CUdeviceptr bias, CUstream stream, CUdeviceptr workspace, const char *place,
                   stitch_error **err);

/* plan.c */
/* The plan for the interface's dims, made if there is none; least recently used ones go. */
int stitch__plan_get(stitch_executor *x, stitch__exec_plan **out, stitch_error **err);
void stitch__plan_free(stitch_executor *x, stitch__exec_plan *plan);
/* Makes the session the plan's. */
int stitch__plan_session(stitch_executor *x, stitch__exec_plan *plan, stitch_error **err);
/* Captures `run` and builds the graph, or updates it where there is one. */
int stitch__plan_graph(stitch_executor *x, stitch__exec_plan *plan, stitch_error **err);

#endif
