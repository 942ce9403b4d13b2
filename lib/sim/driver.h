/* SPDX-License-Identifier: MIT
 *
 * Private interface of the driver layer (driver*.c): the CUDA Driver API on top of the interpreter of sim.h and the
 * memory of memory.h. "drv" names mean this layer; nothing outside of it includes this header except for
 * stitch__sim_get_proc().
 *
 * How it works
 * - Handles are not pointers. Each is a number that is never used twice, looked up in one table (driver_state.c), so
 *   that a stale, foreign or made-up handle is answered with an error code.
 * - Work runs at once, in the thread that submits it, in the order of the calls: a legal schedule of any streams and
 *   events. A stream that captures collects the same operations as graph nodes instead.
 * - A context has one lock, held while work runs in it. Order of locks: graph executable, context, graphs, state.
 * - A device fault is returned by the calls that follow, as on hardware, until the context is destroyed or reset.
 */
#ifndef STITCH_LIB_SIM_DRIVER_H
#define STITCH_LIB_SIM_DRIVER_H

#include <pthread.h>

/* Declares the older versions of functions too, and the names with which a driver exports them. */
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

#include "base/base.h"
#include "sim/sim.h"
#include "sim/sim_ext.h"

/* The driver functions are compiled twice: with internal names for libstitch, whose function table comes from
 * stitch__sim_get_proc(), and with the driver's own, exported names for libstitch-sim.so. */
#ifdef STITCH_SIM_EXPORT
#define SIM(name)  name
#define SIM_EXPORT __attribute__((visibility("default")))
#else
#define SIM(name) stitch__sim_##name
#define SIM_EXPORT
#endif

#define X(name)           SIM_EXPORT __typeof__(name) SIM(name);
#define X_EXT(name, type) SIM_EXPORT __typeof__(*(type)0) SIM(name);
#include "sim/driver_symbols.def"
#undef X
#undef X_EXT

/* The function of a name as the driver exports it ("cuMemAlloc_v2", "stitchSimGemm"); NULL if there is none.
 * `userdata` is not used: the signature is that of stitch_context_options.get_proc. */
void *stitch__sim_get_proc(const char *symbol, void *userdata);

/* ---- objects and handles (driver_state.c) ------------------------------------------------------------------------ */

typedef enum stitch__drv_kind {
    STITCH__DRV_CONTEXT = 1,
    STITCH__DRV_STREAM,
    STITCH__DRV_EVENT,
    STITCH__DRV_MODULE,
    STITCH__DRV_FUNCTION,
    STITCH__DRV_LIBRARY,
    STITCH__DRV_GRAPH,
    STITCH__DRV_NODE,
    STITCH__DRV_EXEC,
    STITCH__DRV_BACKING, /* physical memory of cuMemCreate */
    STITCH__DRV_MAPPING, /* of it at an address */
    STITCH__DRV_HOST,    /* page-locked or registered host memory */
} stitch__drv_kind;

typedef struct stitch__drv_context stitch__drv_context;

typedef struct stitch__drv_object {
    stitch__drv_kind kind;
    atomic_uint refs;
    uint64_t handle;
    stitch__drv_context *ctx;                           /* counted; NULL for contexts and for what belongs to none */
    void (*destroy)(struct stitch__drv_object *object); /* frees what the object owns, not the object */
    struct stitch__drv_object *next;                    /* in the table */
} stitch__drv_object;

/* Makes a zeroed object of `size` bytes, whose first member is a stitch__drv_object, with one reference for the table
 * and a handle. NULL: out of memory. */
void *stitch__drv_new(size_t size, stitch__drv_kind kind, stitch__drv_context *ctx,
                      void (*destroy)(stitch__drv_object *object));
/* The object of a handle with a reference for the caller; NULL if it is not a live object of that kind. */
void *stitch__drv_find(uint64_t handle, stitch__drv_kind kind);
void *stitch__drv_ref(void *object);
void stitch__drv_unref(void *object); /* NULL is ignored */
/* Takes the object out of the table and drops the table's reference: its handle is invalid from now on. False if it was
 * out already. */
bool stitch__drv_retire(void *object);
/* Retires everything that belongs to a context. */
void stitch__drv_retire_all(stitch__drv_context *ctx);
/* An object of a kind for which `match` (called under the state's lock) says yes, with a reference for the caller. With
 * several the oldest. NULL: none. */
void *stitch__drv_find_if(stitch__drv_kind kind, bool (*match)(const stitch__drv_object *object, const void *arg),
                          const void *arg);

#define DRV_HANDLE(type, object)     ((type)(uintptr_t)((stitch__drv_object *)(object))->handle)
#define DRV_FIND(type, kind, handle) ((type *)stitch__drv_find((uint64_t)(uintptr_t)(handle), STITCH__DRV_##kind))

/* ---- devices (driver_device.c) ----------------------------------------------------------------------------------- */

typedef struct stitch__drv_chip {
    const char *name;
    int major, minor;
    int sms, clock_khz, memory_clock_khz, bus_bits;
    uint64_t memory;
    int l2, l2_persisting;
    int shared_sm, shared_optin; /* bytes a multiprocessor, a block */
    int threads_sm, blocks_sm;
    bool clusters, tensor_maps;
} stitch__drv_chip;

int stitch__drv_chip_count(void);
const stitch__drv_chip *stitch__drv_chip_get(int ordinal); /* NULL if there is none */

enum {
    STITCH__DRV_WARP = 32,
    STITCH__DRV_MAX_THREADS = 1024,
    STITCH__DRV_REGISTERS = 65536, /* a multiprocessor, and a block */
    STITCH__DRV_SHARED = 49152,    /* bytes a block may have without opting in */
    STITCH__DRV_SHARED_RESERVED = 1024,
    STITCH__DRV_CLUSTER_PORTABLE = 8,
    STITCH__DRV_CLUSTER_MAX = 16,
    STITCH__DRV_GRANULARITY = 2 << 20, /* of the virtual memory calls */
};

/* ---- contexts (driver_context.c) --------------------------------------------------------------------------------- */

typedef struct stitch__drv_stream stitch__drv_stream;
typedef struct stitch__drv_node stitch__drv_node;
typedef struct stitch__drv_function stitch__drv_function;

enum { STITCH__DRV_LIMITS = 10 };

/* A capture sequence. Counted by the streams in it and by the events recorded in it. */
typedef struct stitch__drv_capture {
    atomic_uint refs;
    uint64_t id;
    struct stitch__drv_graph *graph; /* counted */
    CUstreamCaptureMode mode;
    pthread_t thread;
    stitch__drv_context *ctx;     /* not counted: its streams end the capture before they go */
    stitch__drv_stream **streams; /* counted; the first one began the capture */
    size_t stream_count, stream_cap;
    atomic_bool blocking; /* one of them synchronises with the legacy stream */
    atomic_bool invalid;  /* used in a way that a capture does not allow */
    bool ended;
    struct stitch__drv_capture *next; /* in the state's list of captures going on */
} stitch__drv_capture;

typedef struct stitch__drv_nodes {
    stitch__drv_node **items; /* counted */
    size_t count, cap;
} stitch__drv_nodes;

struct stitch__drv_stream {
    stitch__drv_object obj;
    unsigned flags;
    int priority;
    uint64_t id;
    stitch__drv_capture *capture; /* counted; NULL while not capturing */
    stitch__drv_nodes tail;       /* what the next captured operation depends on */
    CUgraphNode *tail_handles;    /* the same for cuStreamGetCaptureInfo */
    CUgraphEdgeData *tail_edges;
};

struct stitch__drv_context {
    stitch__drv_object obj;
    pthread_mutex_t lock;
    int device;
    unsigned flags;
    bool primary, dead;
    int slot; /* which range of device addresses it has */
    CUresult sticky;
    stitch__sim_memory *mem;
    uint64_t backing_bytes;    /* of cuMemCreate */
    uint64_t memory;           /* bytes that can be allocated: the device's, or what the host can spare */
    stitch__drv_stream legacy; /* stream 0; not in the table, lives and dies with the context */
    size_t limits[STITCH__DRV_LIMITS];
    stitch__sim_options options;
    stitch__sim_reports *reports; /* collected so far; NULL: nothing yet */
    bool reports_lost;            /* memory ran out while they were collected */
    uint64_t launches;
};

const stitch__drv_chip *stitch__drv_context_chip(const stitch__drv_context *ctx);
/* Of `memory`, what is not allocated. */
uint64_t stitch__drv_memory_left(const stitch__drv_context *ctx);

/* The calling thread's context, counted and locked, ready for work. The
 * error otherwise: not initialised, no context, destroyed, failed. */
CUresult stitch__drv_enter(stitch__drv_context **out);
/* The same without the test for a failed context. */
CUresult stitch__drv_enter_failed(stitch__drv_context **out);
/* Locks a context that the caller has counted. */
CUresult stitch__drv_lock(stitch__drv_context *ctx);
void stitch__drv_leave(stitch__drv_context *ctx); /* unlocks, drops the reference */
/* The object of a handle with a reference for the caller and its context locked; NULL with the error: not initialised,
 * no such object, destroyed, failed. */
void *stitch__drv_object_enter(uint64_t handle, stitch__drv_kind kind, CUresult *result);
#define DRV_ENTER(kind, handle, result)                                                                                \
    stitch__drv_object_enter((uint64_t)(uintptr_t)(handle), STITCH__DRV_##kind, result)
void stitch__drv_object_leave(void *object); /* unlocks, drops the reference */
/* CUDA_SUCCESS, or that cuInit was not called, or that a host function of a stream calls back. */
CUresult stitch__drv_ready(void);

/* ---- the process-wide state (driver_state.c) --------------------------------------------------------------------- */

enum {
    STITCH__DRV_STACK = 64,
    STITCH__DRV_SLOTS = 80, /* of 1 TiB each: executables and their heaps may lie from 85 TiB on */
};

/* What belongs to a thread: the stack of current contexts (handles), whether it runs a host function of a stream, and
 * how strictly captures bind it. */
typedef struct stitch__drv_thread {
    uint64_t stack[STITCH__DRV_STACK];
    int depth;
    bool in_callback;
    CUstreamCaptureMode capture_mode;
} stitch__drv_thread;

stitch__drv_thread *stitch__drv_this_thread(void);
void stitch__drv_state_lock(void);
void stitch__drv_state_unlock(void);
/* Primary context of a device: the place of its pointer and of its retain count, under the state's lock. */
stitch__drv_context **stitch__drv_primary(int device, unsigned **retained, unsigned **flags);
bool stitch__drv_initialised(bool set);
int stitch__drv_slot_take(void); /* -1: none free */
void stitch__drv_slot_give(int slot);
uint64_t stitch__drv_next_id(void);
stitch__drv_capture **stitch__drv_captures(void); /* list, under the state's lock */
pthread_mutex_t *stitch__drv_graph_lock(void);

/* ---- operations: what streams run and graphs hold (driver_op.c) -------------------------------------------------- */

typedef enum stitch__drv_op_kind {
    STITCH__DRV_OP_EMPTY,
    STITCH__DRV_OP_KERNEL,
    STITCH__DRV_OP_COPY,
    STITCH__DRV_OP_FILL,
    STITCH__DRV_OP_HOST,
    STITCH__DRV_OP_GEMM,
} stitch__drv_op_kind;

typedef struct stitch__drv_kernel_op {
    stitch__drv_function *function; /* counted */
    uint32_t grid[3], block[3], cluster[3], shared;
    bool cooperative;
    int priority;
    uint8_t *params; /* owned, laid out as the function wants them */
    size_t param_bytes;
    void **pointers; /* owned, one for each parameter, into params */
} stitch__drv_kernel_op;

typedef struct stitch__drv_op {
    stitch__drv_op_kind kind;
    union {
        stitch__drv_kernel_op kernel;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_HOST_NODE_PARAMS host;
        stitch__sim_gemm_args gemm;
    };
} stitch__drv_op;

CUresult stitch__drv_op_copy(stitch__drv_op *dst, const stitch__drv_op *src);
void stitch__drv_op_clear(stitch__drv_op *op);
/* Whether its arguments are right, as far as that is known before it runs. Context locked. */
CUresult stitch__drv_op_check(stitch__drv_context *ctx, const stitch__drv_op *op);
/* Checks and runs. Context locked; it is unlocked while a host function runs. `err` (may be NULL): words for a gemm. */
CUresult stitch__drv_op_run(stitch__drv_context *ctx, const stitch__drv_op *op, stitch_error **err);
/* Runs it now, or adds it to the graph that the stream captures. Takes over what `op` owns. */
CUresult stitch__drv_submit(stitch__drv_stream *stream, stitch__drv_op *op, stitch_error **err);

/* Whether an address lies in the range that belongs to devices, whatever is there. */
bool stitch__drv_is_device(uint64_t address);

/* ---- streams and captures (driver_stream.c, driver_capture.c) ---------------------------------------------------- */

/* The stream of a handle, with its context locked. Null streams need a current context. */
CUresult stitch__drv_stream_enter(CUstream handle, stitch__drv_stream **out);
void stitch__drv_stream_leave(stitch__drv_stream *stream);
stitch__drv_context *stitch__drv_stream_context(stitch__drv_stream *stream);
/* Refuses work in the legacy stream while it would have to wait for a capturing one. */
CUresult stitch__drv_capture_legacy(const stitch__drv_context *ctx);
/* Refuses calls that might wait for work of a stream, or that are not part of a capture, as the capture modes say. */
CUresult stitch__drv_capture_unsafe(void);
CUresult stitch__drv_capture_add(stitch__drv_stream *stream, stitch__drv_op *op);
/* A call that a capturing stream does not allow: the capture fails when it is ended. */
CUresult stitch__drv_capture_break(stitch__drv_stream *stream);
/* Takes a stream into a capture, or makes it wait for nodes of its own capture. */
CUresult stitch__drv_capture_join(stitch__drv_stream *stream, stitch__drv_capture *capture,
                                  const stitch__drv_nodes *nodes);
/* Takes the streams out of a capture and the capture off the list. */
void stitch__drv_capture_end(stitch__drv_capture *capture);
void stitch__drv_capture_end_all(stitch__drv_context *ctx);
stitch__drv_capture *stitch__drv_capture_ref(stitch__drv_capture *capture);
void stitch__drv_capture_unref(stitch__drv_capture *capture);
CUresult stitch__drv_nodes_set(stitch__drv_nodes *dst, stitch__drv_node *const *items, size_t count);
CUresult stitch__drv_nodes_add(stitch__drv_nodes *dst, stitch__drv_node *item); /* once */
void stitch__drv_nodes_clear(stitch__drv_nodes *nodes);

/* ---- modules, functions, launches (driver_module.c, driver_launch.c) --------------------------------------------- */

typedef struct stitch__drv_module {
    stitch__drv_object obj;
    stitch__sim_module *core;
    size_t function_count, variable_count;
    stitch__drv_function **functions; /* not counted: the functions count the module */
    uint64_t *addresses;              /* of the variables */
    int target;                       /* of .target: 90 */
} stitch__drv_module;

struct stitch__drv_function {
    stitch__drv_object obj;
    stitch__drv_module *module; /* counted */
    const stitch__sim_function *core;
    const stitch__sim_function_info *info;
    int max_dynamic_shared, carveout, cluster_policy;
    bool non_portable_cluster;
    uint32_t required_cluster[3];
};

/* Blocks that fit on a multiprocessor; 0 if not one does. How many registers a real compiler would use is not known:
 * `registers` counts with the core's estimate, otherwise they are no limit. */
int stitch__drv_occupancy(const stitch__drv_function *f, int threads, size_t dynamic_shared, bool registers);
/* The cluster that a launch has: given, or required by the kernel, or of one block. */
void stitch__drv_cluster(const stitch__drv_function *f, const uint32_t given[3], uint32_t cluster[3]);
/* Launch parameters from the two ways in which a caller can give them. */
CUresult stitch__drv_kernel_params(stitch__drv_kernel_op *op, void **params, void **extra);
CUresult stitch__drv_kernel_check(stitch__drv_context *ctx, const stitch__drv_kernel_op *op);
CUresult stitch__drv_kernel_run(stitch__drv_context *ctx, const stitch__drv_kernel_op *op);
/* A finding, or words about a failure, of something that is no launch that ran. `f` NULL: of no kernel (a product). */
void stitch__drv_report(stitch__drv_context *ctx, stitch__drv_function *f, const stitch__sim_report *finding,
                        CUresult error, const char *message);
void stitch__drv_report_launch(stitch__drv_context *ctx, const stitch__drv_kernel_op *op,
                               const stitch__sim_result *result, CUresult error, const char *message);
void stitch__drv_reports_free(stitch__sim_reports *reports);

/* ---- graphs (driver_graph.c, driver_graph_exec.c) ---------------------------------------------------------------- */

typedef struct stitch__drv_graph stitch__drv_graph;

struct stitch__drv_node {
    stitch__drv_object obj;
    stitch__drv_graph *graph; /* not counted; NULL once the node is out of it */
    size_t index;             /* in graph->nodes */
    stitch__drv_op op;
    stitch__drv_nodes deps; /* not counted here: the graph's nodes live together */
};

struct stitch__drv_graph {
    stitch__drv_object obj;
    stitch__drv_node **nodes; /* counted, in order of creation */
    size_t count, cap;
};

stitch__drv_graph *stitch__drv_graph_new(void);
/* Adds a node, and takes over what `op` owns on success. Graph lock held. */
CUresult stitch__drv_graph_add(stitch__drv_graph *graph, stitch__drv_op *op, stitch__drv_node *const *deps,
                               size_t count, stitch__drv_node **out);
/* An operation from the parameters of a node; `ctx` is the one that it is checked against. */
CUresult stitch__drv_op_kernel(stitch__drv_op *op, const CUDA_KERNEL_NODE_PARAMS_v2 *params);
CUresult stitch__drv_op_check_in(CUcontext ctx, const stitch__drv_op *op);

#endif
