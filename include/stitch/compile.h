/* SPDX-License-Identifier: MIT
 *
 * CUDA C++ source to device code with NVRTC, through a cache on disk.
 */
#ifndef STITCH_COMPILE_H
#define STITCH_COMPILE_H

#include <stitch/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Compiled device code of one architecture, with what the compiler said about it. Immutable; may be read from several
 * threads. @since 0.1.0 */
typedef struct stitch_image stitch_image;

typedef enum stitch_severity {
    STITCH_SEVERITY_NOTE = 0,
    STITCH_SEVERITY_WARNING = 1,
    STITCH_SEVERITY_ERROR = 2,
} stitch_severity;

/** One message of the compiler. line and column count from 1; 0: unknown. @since 0.1.0 */
typedef struct stitch_diagnostic {
    size_t struct_size;
    int32_t severity;
    int32_t line, column;
    int32_t reserved;
    const char *file; /**< "program.cu" for the source that was given */
    const char *message;
} stitch_diagnostic;

#define STITCH_DIAGNOSTIC_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(stitch_diagnostic), 0, 0, 0, 0, NULL, NULL                                                              \
    }

typedef enum stitch_param_kind {
    STITCH_PARAM_UNKNOWN = 0, /**< only the size is known (extern "C" kernels) */
    STITCH_PARAM_POINTER = 1, /**< `dtype` is the element type where it is known */
    STITCH_PARAM_SCALAR = 2,  /**< `dtype` is its type; 4-byte unsigned integers are I32 and so on */
    STITCH_PARAM_STRUCT = 3,  /**< passed by value: a tensor map, for example */
} stitch_param_kind;

/** One kernel parameter. @since 0.1.0 */
typedef struct stitch_param_info {
    size_t struct_size;
    int32_t kind;
    int32_t dtype;    /**< stitch_dtype; NONE where unknown */
    int32_t is_const; /**< pointer to const */
    int32_t is_tensor_map;
    /** Bytes in the parameter block. The offset is for display: pass parameters one by one (kernelParams), because the
     *  packed layout of over-aligned parameters depends on the architecture. */
    uint64_t offset, size;
    const char *type; /**< "const float *", as the source has it where known, else "" */
} stitch_param_info;

#define STITCH_PARAM_INFO_INIT                                                                                         \
    {                                                                                                                  \
        sizeof(stitch_param_info), 0, 0, 0, 0, 0, 0, NULL                                                              \
    }

/** One `__global__` function (or template instance) of an image. Counts are bytes. -1: not known. @since 0.1.0 */
typedef struct stitch_kernel_info {
    size_t struct_size;
    const char *name;   /**< as asked for: "layernorm<256>" */
    const char *symbol; /**< in the module: "_Z9layernormILi256EEvPKf" */
    int64_t registers;
    int64_t static_shared;
    int64_t local; /**< stack frame and spills, a thread */
    int64_t spill_stores, spill_loads;
    int64_t max_threads; /**< from __launch_bounds__; -1: the device's limit */
    size_t param_count;
} stitch_kernel_info;

#define STITCH_KERNEL_INFO_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(stitch_kernel_info), NULL, NULL, 0, 0, 0, 0, 0, 0, 0                                                    \
    }

typedef struct stitch_compile_options {
    size_t struct_size;
    /** "sm_90a", ...; NULL: the device of the context. Compiles without any GPU when given. */
    const char *arch;
    /** Kernels the caller will ask for: "layernorm", "ln<256,__half>". Templates are instantiated by being named. */
    const char *const *names;
    size_t name_count;
    /** More NVRTC options, after the library's own (-std=c++17, -lineinfo, include folders ...). */
    const char *const *flags;
    size_t flag_count;
    /** 1: neither read nor write the cache. */
    int32_t no_cache;
    /** 1: PTX instead of machine code (always so for a simulated device). */
    int32_t ptx;
    /** The call ends when either says so. NVRTC itself cannot be interrupted: its thread then goes on by itself, with
     *  the memory that it uses, until it is done or the process ends; exit() waits up to five seconds for it. */
    const stitch_cancel *cancel;
    int64_t timeout_ms;        /**< 0: none */
    uint64_t max_source_bytes; /**< 0: 4 MiB */
} stitch_compile_options;

#define STITCH_COMPILE_OPTIONS_INIT                                                                                    \
    {                                                                                                                  \
        sizeof(stitch_compile_options), NULL, NULL, 0, NULL, 0, 0, 0, NULL, 0, 0                                       \
    }

STITCH_API int stitch_compile_options_init(stitch_compile_options *options, size_t struct_size);

/**
 * Compiles `source`. Thread-safe: several compilations may run at once. On STITCH_E_COMPILE *out is set too: it holds
 * the diagnostics and no code. A name in `names` that the source does not define is such an error.
 *
 * NVRTC runs in this process. A source can be made to crash it (macros that multiply, for example), and it takes the
 * process along: stitch_verify_program() compiles sources of strangers elsewhere.
 *
 * Headers: CUDA's own (cuda_fp16.h, mma.h, cooperative_groups.h, cub/..., cuda/std/...) from the toolkit or the wheels
 * that NVRTC belongs to, and small stand-ins for host headers that device code includes out of habit (stdint.h, math.h,
 * cuda_runtime.h, type_traits, ...; cuda.h brings CUtensorMap). Files by absolute path, by "..", from the current
 * folder or by a macro's name are refused: the log of such an include would show their text.
 *
 * Cache: the key is made of everything that decides the result. Failed compilations are not kept. A flag that brings in
 * files (-I, --pre-include, ...) switches the cache off for the call. @since 0.1.0
 */
STITCH_API int stitch_compile(stitch_context *ctx, const char *source, const stitch_compile_options *options,
                              stitch_image **out, stitch_error **err);
STITCH_API void stitch_image_free(stitch_image *image);

/** Machine code (ELF) or PTX (NUL-terminated, the NUL not counted); NULL and 0 when compilation failed. */
STITCH_API const void *stitch_image_data(const stitch_image *image, size_t *size);
STITCH_API const char *stitch_image_arch(const stitch_image *image);
STITCH_API int stitch_image_is_ptx(const stitch_image *image);
/** 1 if it came from the cache. */
STITCH_API int stitch_image_cached(const stitch_image *image);
/** Wall time of the call that made it, the cache look-up included. */
STITCH_API double stitch_image_milliseconds(const stitch_image *image);
/** The compiler's log, without ptxas's resource lines (they are in stitch_kernel_info); at most 256 KiB. Never NULL. */
STITCH_API const char *stitch_image_log(const stitch_image *image);
STITCH_API size_t stitch_image_diagnostic_count(const stitch_image *image);
STITCH_API int stitch_image_diagnostic(const stitch_image *image, size_t index, stitch_diagnostic *out);
STITCH_API size_t stitch_image_kernel_count(const stitch_image *image);
STITCH_API int stitch_image_kernel(const stitch_image *image, size_t index, stitch_kernel_info *out);
/** By the name asked for, or by the plain name of a kernel that is no template. STITCH_E_NOT_FOUND. */
STITCH_API int stitch_image_find(const stitch_image *image, const char *name, size_t *index);
STITCH_API int stitch_image_param(const stitch_image *image, size_t kernel, size_t param, stitch_param_info *out);

#ifdef __cplusplus
}
#endif
#endif
