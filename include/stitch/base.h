/* SPDX-License-Identifier: MIT
 *
 * Status codes, errors, allocators, logging, cancellation, element types: what every other header uses.
 *
 * Conventions of the whole API
 * - Functions that can fail return an int: 0 (STITCH_OK) or a negative STITCH_E_* code. Results come back through
 *   out-parameters, which are set to NULL or zero on failure.
 * - `stitch_error **err` is always last and may be NULL. If it is not NULL, *err must be NULL or an error from an
 *   earlier call (which is then freed and replaced). It is written on failure only. The caller owns it.
 * - Options structs start with `size_t struct_size`. Zero means default in every field. Initialise them with the
 *   matching _INIT macro, or with the exported _init() function from other languages.
 * - Handles belong to one thread at a time. Different handles of one context may be used from different threads at
 *   once. stitch_cancel_trigger() may be called from any thread and from a signal handler.
 * - Memory that the library hands out as a `char *` or `void *` result is released with stitch_free(), handles with
 *   their own _free() function. `const char *` results stay owned by the handle they were asked from.
 * - Every _free() function accepts NULL.
 */
#ifndef STITCH_BASE_H
#define STITCH_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define STITCH_API
#elif defined(__GNUC__) || defined(__clang__)
#define STITCH_API __attribute__((visibility("default")))
#else
#define STITCH_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Every status: X(name, value, text). @since 0.1.0 */
#define STITCH_STATUS_LIST(X)                                                                                          \
    X(OK, 0, "success")                                                                                                \
    X(E_INVALID, -1, "invalid argument")                                                                               \
    X(E_NOMEM, -2, "out of memory")                                                                                    \
    X(E_NOT_FOUND, -3, "not found")                                                                                    \
    X(E_UNSUPPORTED, -4, "not supported")                                                                              \
    X(E_IO, -5, "input/output error")                                                                                  \
    X(E_FORMAT, -6, "malformed document")                                                                              \
    X(E_LIMIT, -7, "a limit was exceeded")                                                                             \
    X(E_CANCELLED, -8, "cancelled")                                                                                    \
    X(E_TIMEOUT, -9, "deadline exceeded")                                                                              \
    X(E_BUSY, -10, "resource is in use")                                                                               \
    X(E_NO_DEVICE, -11, "no usable device")                                                                            \
    X(E_NO_LIBRARY, -12, "a required library is missing")                                                              \
    X(E_DRIVER, -13, "the GPU driver reported an error")                                                               \
    X(E_LIBRARY, -14, "a GPU library reported an error")                                                               \
    X(E_COMPILE, -15, "the device code does not compile")                                                              \
    X(E_VALIDATE, -16, "the program is not valid for its task")                                                        \
    X(E_FAULT, -17, "the device code faulted; the context is lost")                                                    \
    X(E_HTTP, -18, "the HTTP exchange failed")                                                                         \
    X(E_AUTH, -19, "the endpoint refused the credentials")                                                             \
    X(E_BUDGET, -20, "the token or cost budget is spent")                                                              \
    X(E_REPLY, -21, "the model's reply cannot be used")                                                                \
    X(E_REPLAY, -22, "the recording has no matching reply")                                                            \
    X(E_STATE, -23, "called in the wrong order")                                                                       \
    X(E_INTERNAL, -24, "internal error")

/** Status codes. @since 0.1.0 */
typedef enum stitch_status {
#define STITCH_STATUS_ENUM(name, value, text) STITCH_##name = (value),
    STITCH_STATUS_LIST(STITCH_STATUS_ENUM)
#undef STITCH_STATUS_ENUM
} stitch_status;

/** "STITCH_E_INVALID" for -1 and so on; "STITCH_E_UNKNOWN" for a value that is none. @since 0.1.0 */
STITCH_API const char *stitch_status_name(int status);
/** A short English text for a status. @since 0.1.0 */
STITCH_API const char *stitch_status_text(int status);

/** Where a native error code comes from. @since 0.1.0 */
#define STITCH_DOMAIN_LIST(X)                                                                                          \
    X(NONE, "stitch")                                                                                                  \
    X(SYSTEM, "system") X(JSON, "json") X(CURL, "curl") X(HTTP, "http") X(DRIVER, "driver") X(NVRTC, "nvrtc")          \
        X(CUBLASLT, "cublaslt") X(CUDNN, "cudnn") X(CUPTI, "cupti") X(SQLITE, "sqlite") X(TASK, "task")                \
            X(PROGRAM, "program") X(REPLY, "reply") X(SIM, "sim")

typedef enum stitch_domain {
#define STITCH_DOMAIN_ENUM(name, text) STITCH_DOMAIN_##name,
    STITCH_DOMAIN_LIST(STITCH_DOMAIN_ENUM)
#undef STITCH_DOMAIN_ENUM
} stitch_domain;

/** "driver", "json", ...; "unknown" for a value that is none. @since 0.1.0 */
STITCH_API const char *stitch_domain_name(int domain);

/** A failure: code, domain, native code, a one-line message, optional details (a compile log, say). @since 0.1.0 */
typedef struct stitch_error stitch_error;

/** STITCH_E_*; STITCH_OK for NULL. */
STITCH_API int stitch_error_code(const stitch_error *e);
/** stitch_domain. */
STITCH_API int stitch_error_domain(const stitch_error *e);
/** errno, CUresult, HTTP status, ...; 0 if there is none. */
STITCH_API int64_t stitch_error_native(const stitch_error *e);
/** One line: what was wrong, where, and what to do. Never NULL. */
STITCH_API const char *stitch_error_message(const stitch_error *e);
/** Longer text or "". Never NULL. */
STITCH_API const char *stitch_error_details(const stitch_error *e);
STITCH_API void stitch_error_free(stitch_error *e);

/** Releases memory that a function of this library returned and whose documentation says so. @since 0.1.0 */
STITCH_API void stitch_free(void *ptr);

/**
 * Memory functions of a context. They are called from whichever thread works with the context, must be thread-safe,
 * and must return memory aligned for any type. @since 0.1.0
 */
typedef struct stitch_allocator {
    size_t struct_size;
    void *(*alloc)(size_t size, void *userdata);              /**< NULL on failure */
    void *(*realloc)(void *ptr, size_t size, void *userdata); /**< ptr is never NULL, size never 0 */
    void (*free)(void *ptr, void *userdata);                  /**< ptr is never NULL */
    void *userdata;
} stitch_allocator;

#define STITCH_ALLOCATOR_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(stitch_allocator), NULL, NULL, NULL, NULL                                                               \
    }

typedef enum stitch_log_level {
    STITCH_LOG_NONE = 0,
    STITCH_LOG_ERROR = 1,
    STITCH_LOG_WARN = 2,
    STITCH_LOG_INFO = 3,
    STITCH_LOG_DEBUG = 4,
} stitch_log_level;

/** Receives one formatted line without a newline. Called from the thread that works with the context. @since 0.1.0 */
typedef void (*stitch_log_fn)(int level, const char *message, void *userdata);

/** A flag that stops blocking calls from another thread. @since 0.1.0 */
typedef struct stitch_cancel stitch_cancel;

STITCH_API int stitch_cancel_new(stitch_cancel **out);
/** Lock-free; safe from any thread and from signal handlers. Calls in progress return STITCH_E_CANCELLED soon. */
STITCH_API void stitch_cancel_trigger(stitch_cancel *c);
/** Makes the token usable again. Not while a call uses it. */
STITCH_API void stitch_cancel_reset(stitch_cancel *c);
STITCH_API bool stitch_cancel_triggered(const stitch_cancel *c);
STITCH_API void stitch_cancel_free(stitch_cancel *c);

/** Element types: X(name, text, bytes). tf32 is stored as f32. @since 0.1.0 */
#define STITCH_DTYPE_LIST(X)                                                                                           \
    X(F64, "f64", 8)                                                                                                   \
    X(F32, "f32", 4) X(TF32, "tf32", 4) X(F16, "f16", 2) X(BF16, "bf16", 2) X(F8E4M3, "f8e4m3", 1)                     \
        X(F8E5M2, "f8e5m2", 1) X(I64, "i64", 8) X(I32, "i32", 4) X(I16, "i16", 2) X(I8, "i8", 1) X(U8, "u8", 1)        \
            X(BOOL, "bool", 1)

typedef enum stitch_dtype {
    STITCH_DTYPE_NONE = 0,
#define STITCH_DTYPE_ENUM(name, text, bytes) STITCH_DTYPE_##name,
    STITCH_DTYPE_LIST(STITCH_DTYPE_ENUM)
#undef STITCH_DTYPE_ENUM
} stitch_dtype;

/** Bytes of one element; 0 for a value that is no dtype. @since 0.1.0 */
STITCH_API size_t stitch_dtype_size(int dtype);
/** "f32", ...; NULL for a value that is no dtype. @since 0.1.0 */
STITCH_API const char *stitch_dtype_name(int dtype);
/** The dtype of a name; STITCH_DTYPE_NONE if there is none. @since 0.1.0 */
STITCH_API int stitch_dtype_parse(const char *name);

/** Greatest number of dimensions of a tensor. @since 0.1.0 */
#define STITCH_MAX_RANK 8

#ifdef __cplusplus
}
#endif
#endif
