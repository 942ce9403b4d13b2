/* SPDX-License-Identifier: MIT
 *
 * The context: which device, where to log, how to allocate, where to cache, when to stop.
 */
#ifndef STITCH_CONTEXT_H
#define STITCH_CONTEXT_H

#include <stitch/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @since 0.1.0 */
typedef struct stitch_context stitch_context;

/**
 * Address of a CUDA Driver API function by its exported name ("cuMemAlloc_v2"), or NULL. Lets a host or a test supply
 * its own driver. @since 0.1.0
 */
typedef void *(*stitch_get_proc_fn)(const char *symbol, void *userdata);

/** All strings are copied. @since 0.1.0 */
typedef struct stitch_context_options {
    size_t struct_size;
    /** "auto" (default: the first GPU, otherwise the simulator), "cuda:N", "sim:sm_90" (any simulated architecture),
     *  "none". The device is opened by the first call that needs it. */
    const char *device;
    /** Folder of the compile cache. NULL: $STITCH_CACHE_DIR, else $XDG_CACHE_HOME/stitch, else ~/.cache/stitch.
     *  "": nothing is kept on disk. */
    const char *cache_dir;
    /** Oldest entries go when the cache outgrows this many bytes. 0: 1 GiB. */
    uint64_t cache_limit_bytes;
    /** Root of a CUDA toolkit to use instead of the ones that are searched for. NULL: $STITCH_CUDA_PATH, $CUDA_HOME,
     *  $CUDA_PATH, the system, Python wheels (of the environment that the library was installed into as a Python
     * package, $VIRTUAL_ENV, $CONDA_PREFIX, a virtual environment `venv` beside the folder of the library, python3 on
     * PATH, the user, the system). */
    const char *cuda_path;
    /** NULL, or no function set: malloc, realloc, free. Copied; must outlive every block, errors included. */
    const stitch_allocator *allocator;
    /** NULL: no logging. */
    stitch_log_fn log;
    void *log_userdata;
    /** stitch_log_level; 0: STITCH_LOG_WARN. */
    int32_t log_level;
    int32_t reserved;
    /** Driver functions; NULL: the system's driver or the simulator. */
    stitch_get_proc_fn get_proc;
    void *get_proc_userdata;
} stitch_context_options;

#define STITCH_CONTEXT_OPTIONS_INIT                                                                                    \
    {                                                                                                                  \
        sizeof(stitch_context_options), NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL                        \
    }

STITCH_API int stitch_context_options_init(stitch_context_options *options, size_t struct_size);

/** Cheap: opens no library and no device. options may be NULL. @since 0.1.0 */
STITCH_API int stitch_context_new(stitch_context **out, const stitch_context_options *options, stitch_error **err);
/** All handles made from the context must be freed before. */
STITCH_API void stitch_context_free(stitch_context *ctx);

/** Makes every blocking call of the context return STITCH_E_CANCELLED, from any thread, until it is reset. */
STITCH_API void stitch_context_cancel(stitch_context *ctx);
STITCH_API void stitch_context_cancel_reset(stitch_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
