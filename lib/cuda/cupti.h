/* SPDX-License-Identifier: MIT
 *
 * The part of CUPTI that the library uses, declared here so that building needs no cupti.h. CUPTI fills the newest
 * layout of its own version, whatever its header says, and appends fields at the end of records: each record is read
 * through the oldest layout (12.0) that has the fields. tests/support/cupti_layout.h compares all of it with the
 * real header where there is one.
 */
#ifndef STITCH_LIB_CUDA_CUPTI_H
#define STITCH_LIB_CUDA_CUPTI_H

#include <cuda.h>

#include "base/base.h"
#include "cuda/cupti_profiler.h"
#include "cuda/cupti_sampling.h"

/* ---- results: the ones that have an advice of their own ---- */

enum {
    STITCH__CUPTI_OK = 0,
    STITCH__CUPTI_INVALID_PARAMETER = 1,
    STITCH__CUPTI_OUT_OF_MEMORY = 8,
    STITCH__CUPTI_NOT_COMPATIBLE = 14,
    STITCH__CUPTI_NOT_INITIALIZED = 15,
    STITCH__CUPTI_INVALID_METRIC = 17,
    STITCH__CUPTI_INVALID_KIND = 21,
    STITCH__CUPTI_HARDWARE_BUSY = 26,
    STITCH__CUPTI_NOT_SUPPORTED = 27,
    STITCH__CUPTI_VIRTUALIZED = 33,
    STITCH__CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    STITCH__CUPTI_OLD_PROFILER = 36,
    STITCH__CUPTI_LEGACY_PROFILER = 38,
    STITCH__CUPTI_MULTIPLE_SUBSCRIBERS = 39,
    STITCH__CUPTI_VIRTUALIZED_PRIVILEGES = 40,
    STITCH__CUPTI_CONFIDENTIAL_COMPUTING = 41,
    STITCH__CUPTI_WSL = 45,
    STITCH__CUPTI_INVALID_CHIP = 46,
    STITCH__CUPTI_UNKNOWN = 999,
};

/* ---- activity records ---- */

enum {
    STITCH__CUPTI_KIND_MEMCPY = 1,
    STITCH__CUPTI_KIND_MEMSET = 2,
    STITCH__CUPTI_KIND_KERNEL = 3, /* serialises kernels: never switched on, but read */
    STITCH__CUPTI_KIND_DRIVER = 4,
    STITCH__CUPTI_KIND_RUNTIME = 5,
    STITCH__CUPTI_KIND_CONCURRENT_KERNEL = 10,
    STITCH__CUPTI_KIND_MEMCPY2 = 22, /* between devices */
    STITCH__CUPTI_KIND_SYNCHRONIZATION = 38,
};

enum { STITCH__CUPTI_DOMAIN_DRIVER = 1, STITCH__CUPTI_DOMAIN_RUNTIME = 2 };
enum { STITCH__CUPTI_FLUSH_FORCED = 1 };

typedef struct stitch__cupti_record {
    int32_t kind;
} stitch__cupti_record;

typedef struct stitch__cupti_kernel {
    int32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    int32_t global_cache[2];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared, dynamic_shared;
    uint32_t local_per_thread, local_total;
    uint32_t correlation;
    int64_t grid_id;
    const char *name;
    void *reserved;
    uint64_t queued, submitted;
    uint8_t launch_type, carveout_requested, carveout, padding;
    uint32_t shared_executed;
    uint64_t graph_node;
    int32_t shared_limit;
    uint32_t graph;
} stitch__cupti_kernel;

typedef struct stitch__cupti_memcpy {
    int32_t kind;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation, runtime_correlation, padding;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} stitch__cupti_memcpy;

typedef struct stitch__cupti_memcpy_peer {
    int32_t kind;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, src_device, src_context, dst_device, dst_context, correlation;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} stitch__cupti_memcpy_peer;

typedef struct stitch__cupti_memset {
    int32_t kind;
    uint32_t value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory_kind;
    uint32_t padding;
    void *reserved;
    uint64_t graph_node;
    uint32_t graph;
} stitch__cupti_memset;

typedef struct stitch__cupti_api {
    int32_t kind;
    uint32_t callback;
    uint64_t start, end;
    uint32_t process, thread, correlation, result;
} stitch__cupti_api;

typedef struct stitch__cupti_sync {
    int32_t kind;
    int32_t type;
    uint64_t start, end;
    uint32_t correlation, context, stream, event;
} stitch__cupti_sync;

/* ---- functions ---- */

typedef struct stitch__cupti_subscriber_params {
    size_t struct_size;
    const char *name;
    char *holder;
    size_t holder_size;
} stitch__cupti_subscriber_params; /* 13.0's layout: newer ones append */

enum { STITCH__CUPTI_HOLDER_SIZE = 64 };

typedef void (*stitch__cupti_callback)(void *userdata, int domain, uint32_t id, const void *data);
typedef void (*stitch__cupti_request_fn)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*stitch__cupti_complete_fn)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                          size_t valid);

/* Members are named like the functions without the cupti prefix. Results are CUptiResult values. */
typedef struct stitch__cupti {
#define X(need, member, symbol, params) int(*member) params;
#include "cuda/cupti_functions.def"
#include "cuda/cupti_profiler_functions.def"
#undef X
    uint32_t version; /* CUPTI_API_VERSION: 22 is 12.4, 130001 is 13.0 Update 1 */
    const char *path;
} stitch__cupti;

/* Opened by the first call; thread-safe. STITCH_E_NO_LIBRARY lists what was tried and what to install. */
int stitch__cupti_get(stitch_context *ctx, const stitch__cupti **out, stitch_error **err);
/* Fills a table from any source of addresses, and asks the library for its version. */
int stitch__cupti_bind(const stitch_context *ctx, stitch_get_proc_fn get_proc, void *userdata, const char *where,
                       stitch__cupti *out, stitch_error **err);
/* Turns a CUptiResult into a status with an advice. `holder`: who holds CUPTI, "" or NULL where that is not known. */
int stitch__cupti_check(const stitch_context *ctx, const stitch__cupti *cupti, int result, const char *what,
                        const char *holder, stitch_error **err);

/* Opens what CUPTI's profiling needs and would not find by itself (cupti_profiler.c), and says whether this CUPTI has
 * the range profiler. STITCH_E_NO_LIBRARY, or STITCH_E_UNSUPPORTED under AddressSanitizer. */
int stitch__cupti_open_profiler(const stitch_context *ctx, const stitch__cupti *cupti, stitch_error **err);
/* Whether what profiling needs lies beside the library at this path, without opening anything; also true where the path
 * does not tell. */
bool stitch__cupti_complete(const char *library);

#endif
