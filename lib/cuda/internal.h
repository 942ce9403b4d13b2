/* SPDX-License-Identifier: MIT
 *
 * What the files of the cuda module share with each other. Other modules use cuda.h.
 */
#ifndef STITCH_LIB_CUDA_INTERNAL_H
#define STITCH_LIB_CUDA_INTERNAL_H

#include <pthread.h>

#include "cuda/cuda.h"
#include "cuda/cupti.h"

/* ---- state.c: the module's state of a context ------------------------------------------------------------------- */

typedef struct stitch__cuda {
    stitch_context *ctx;
    pthread_mutex_t lock; /* guards the opening of everything below; what is open does not change any more */
    stitch__arena arena;  /* strings that live as long as the context */
    stitch__driver driver;
    stitch__device device;
    stitch__nvrtc nvrtc;
    stitch__cublaslt cublaslt;
    stitch__cupti cupti;
    const char *driver_path;
    char *const *includes; /* NULL-terminated: folders of CUDA's headers that go with NVRTC */
    bool driver_ready, device_ready, nvrtc_ready, cublaslt_ready, cupti_ready;
    bool simulator; /* the driver is this library's own, which nobody else in the process uses */
    uint64_t cache_written; /* bytes stored since the cache's size was looked at */
    bool cache_trimmed;     /* it was looked at once */
    bool cache_unwritten;   /* the host was told that nothing can be stored */
} stitch__cuda;

int stitch__cuda_state(stitch_context *ctx, stitch__cuda **out, stitch_error **err);

/* ---- loader.c: finding and opening a shared library ------------------------------------------------------------- */

typedef struct stitch__library {
    const char *what;           /* "NVRTC" */
    const char *variable;       /* "STITCH_NVRTC": a full path that overrides every search */
    const char *const *names;   /* NULL-terminated, the preferred one first */
    const char *const *folders; /* NULL-terminated, searched after the system's loader; may be NULL */
    bool toolkit;               /* lives in toolkits and wheels: they are searched too */
    const char *install;        /* "install ..." */
} stitch__library;

extern const stitch__library stitch__library_driver, stitch__library_nvrtc, stitch__library_cublaslt,
    stitch__library_cudnn, stitch__library_cupti;

/* Opens a library. Every place is noted in `tried`, one a line, with the loader's message where there was one; may be
 * NULL. The error (STITCH_E_NO_LIBRARY) has the same list in its details. The handle stays open for good: NVIDIA's
 * libraries keep threads and exit handlers, so they must not be unmapped. *path is released with stitch_free(). */
int stitch__library_open(const stitch_context *ctx, const stitch__library *library, void **handle, char **path,
                         stitch__buf *tried, stitch_error **err);
/* Where a library lies, without opening it; NULL: nowhere. Released with stitch_free(). */
char *stitch__library_find(const stitch_context *ctx, const stitch__library *library, stitch__buf *tried);

/* Folders of toolkits and wheels that exist, "lib" or "include" ones, best first; one a line in the buffer. */
void stitch__toolkit_folders(const stitch_context *ctx, bool include, stitch__buf *out);
/* The virtual environment `venv` beside the folder of a library (build/venv for build/lib/libstitch.so), so that what a
 * build installed there is found without VIRTUAL_ENV. NULL: there is none, it is of another user than the library, or
 * the path is relative. Released with stitch_free(). */
char *stitch__venv_beside(const stitch_context *ctx, const char *file);
/* The folder that a Python package with this library lies in (.../site-packages for .../site-packages/stitch/lib/FILE),
 * so that wheels of the same environment are found by whoever imports it. NULL: the library is in no such package, the
 * folder's `nvidia` is of another user than the library (the system's apart), or the path is relative. Released with
 * stitch_free(). */
char *stitch__site_beside(const stitch_context *ctx, const char *file);
/* Folders of CUDA's headers for the NVRTC that was opened from `path`: that toolkit's own first. NULL-terminated. */
char *const *stitch__include_folders(const stitch_context *ctx, stitch__arena *arena, const char *path);

/* ---- tables.c: the function tables ------------------------------------------------------------------------------ */

/* Each fills its table in the state; called under the state's lock. `tried` may be NULL. */
int stitch__driver_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err);
int stitch__nvrtc_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err);
int stitch__cublaslt_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err);
int stitch__cupti_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err);
/* Fills a driver table from any source of addresses. */
int stitch__driver_bind(const stitch_context *ctx, stitch_get_proc_fn get_proc, void *userdata, const char *where,
                        stitch__driver *out, stitch_error **err);
bool stitch__sim_available(void);
/* Under the state's lock: opens the driver table and the device. */
int stitch__device_open(stitch__cuda *cuda, stitch_error **err);
void stitch__device_close(stitch__cuda *cuda);
/* simulated.c: nothing on a real device. */
int stitch__turns_make(stitch__device *dev, stitch_error **err);
void stitch__turns_free(stitch__device *dev);

/* ---- signals.c -------------------------------------------------------------------------------------------------- */

/* From here on this thread, and those that it starts, change the action of no signal but real-time ones: for threads of
 * the library's own that run NVRTC. False: the system refuses it, and NVRTC has its way. */
bool stitch__signals_keep(void);

/* ---- leaving.c -------------------------------------------------------------------------------------------------- */

/* One more thread with NVRTC that exit() has to wait for, or one less. */
void stitch__leaving_waits(bool more);

/* ---- images ------------------------------------------------------------------------------------------------------ */

/* One parameter as it is found in machine code or PTX. */
typedef struct stitch__param_layout {
    uint64_t offset, size;
} stitch__param_layout;

/* One entry function as it is found in machine code or PTX; -1: not known. */
typedef struct stitch__entry {
    const char *symbol;
    int64_t registers, static_shared, local, spill_stores, spill_loads, max_threads;
    size_t param_count;
    stitch__param_layout *params;
} stitch__entry;

typedef struct stitch__entries {
    size_t count;
    stitch__entry *list;
} stitch__entries;

/* Reads the entry functions of an image. Safe on any bytes: 0, STITCH_E_FORMAT with *why, or STITCH_E_NOMEM. */
int stitch__cubin_parse(stitch__arena *arena, const void *data, size_t size, stitch__entries *out, const char **why);
int stitch__ptx_parse(stitch__arena *arena, const char *text, size_t len, stitch__entries *out, const char **why);
/* The line of `program.cu` that a line of the PTX comes from, by its .loc directives; 0: unknown. */
int stitch__ptx_source_line(const char *text, size_t len, int ptx_line);

/* ---- demangle.c -------------------------------------------------------------------------------------------------- */

typedef struct stitch__demangled {
    char *name; /* "n::layernorm<256, __half>": without return type and parameters */
    char *base; /* "n::layernorm": without the template arguments; NULL where not known */
    bool is_template;
    bool has_params; /* false: extern "C", or a name that this demangler does not understand */
    size_t param_count;
    stitch_param_info *params; /* kind, dtype, is_const, is_tensor_map, type; size where the type says it, else 0 */
} stitch__demangled;

/* Never wrong: what is not understood comes back with has_params false or as STITCH_PARAM_UNKNOWN. 0 or STITCH_E_NOMEM.
 */
int stitch__demangle(stitch__arena *arena, const char *symbol, stitch__demangled *out);

/* ---- diagnostics.c ----------------------------------------------------------------------------------------------- */

typedef struct stitch__diagnostics {
    size_t count, cap;
    stitch_diagnostic *list;
    size_t errors;
} stitch__diagnostics;

/* What ptxas says about a kernel with -v. */
typedef struct stitch__usage {
    const char *symbol;
    int64_t registers, shared, stack, spill_stores, spill_loads;
} stitch__usage;

typedef struct stitch__usages {
    size_t count, cap;
    stitch__usage *list;
} stitch__usages;

/* Reads the log of NVRTC and ptxas. `ptx` (may be NULL) maps ptxas's lines back to source lines. At most
 * STITCH__DIAGNOSTICS_MAX messages are kept, the errors before the rest. 0 or STITCH_E_NOMEM. */
#define STITCH__DIAGNOSTICS_MAX 200
int stitch__diagnostics_parse(stitch__arena *arena, const char *log, size_t len, const char *ptx, size_t ptx_len,
                              stitch__diagnostics *out, stitch__usages *usages);
int stitch__diagnostics_add(stitch__arena *arena, stitch__diagnostics *list, int severity, int line, int column,
                            const char *file, const char *message);
/* The log without ptxas's resource lines, which differ from run to run (they carry compile times). */
void stitch__log_strip(const char *log, size_t len, stitch__buf *out);

/* ---- source.c ---------------------------------------------------------------------------------------------------- */

/* Looks for what must not reach the compiler: #include of files outside CUDA's folders (a compile log shows their text)
 * and nesting that overruns its stack. Adds an error for each; `folders` is NULL-terminated. 0 or STITCH_E_NOMEM. */
int stitch__source_check(stitch__arena *arena, const char *source, size_t len, char *const *folders,
                         stitch__diagnostics *out);

/* ---- headers.c: host headers that device code includes out of habit ---------------------------------------------- */

typedef struct stitch__header {
    const char *name, *text;
} stitch__header;

extern const stitch__header stitch__headers[];
extern const size_t stitch__header_count;

/* ---- image.c ----------------------------------------------------------------------------------------------------- */

typedef struct stitch__kernel {
    stitch_kernel_info info;
    const char *base; /* name without template arguments; NULL: unknown */
    bool is_template;
    stitch_param_info *params;
} stitch__kernel;

struct stitch_image {
    atomic_int refs;
    stitch__arena arena; /* everything below, `data` too */
    char *data;          /* NUL-terminated past its end */
    size_t size;
    bool ptx, cached;
    double milliseconds;
    const char *arch, *log;
    stitch__diagnostics diagnostics;
    size_t kernel_count;
    stitch__kernel *kernels;
};

stitch_image *stitch__image_new(const stitch_context *ctx); /* NULL: out of memory */
int stitch__image_set_data(stitch_image *image, const void *data, size_t size, bool ptx);
/* Makes image->kernels from image->data: first the asked names (symbols[i] is names[i]'s), then every other entry. A
 * symbol that is no entry becomes a diagnostic. Sorts the usages. */
int stitch__image_set_kernels(stitch_image *image, const char *const *names, const char *const *symbols, size_t count,
                              stitch__usages *usages, stitch_error **err);

/* ---- cache.c ----------------------------------------------------------------------------------------------------- */

/* The cache never makes a compilation fail: a miss is NULL, a failed store is logged. `key` is 64 hex digits. */
stitch_image *stitch__cache_load(stitch_context *ctx, const char *key);
void stitch__cache_store(stitch_context *ctx, const char *key, const stitch_image *image);
/* Removes the least recently used files until the folder is within the limit. */
void stitch__cache_trim(const stitch_context *ctx, uint64_t limit);

/* ---- doctor.c ---- */

/* What is missing of CUDA's headers and which Python wheel of NVRTC's version has it; "": nothing. For an opened NVRTC.
 */
const char *stitch__headers_advice(const stitch__cuda *cuda);

/* ---- arch.c: names of architectures ------------------------------------------------------------------------------ */

/* "sm_90a" -> 90 and 'a'; false for anything else. */
bool stitch__arch_parse(const char *arch, int *number, char *suffix);

#endif
