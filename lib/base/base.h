/* SPDX-License-Identifier: MIT
 *
 * Private interface of the base module. Depends on nothing but libc and jansson.
 */
#ifndef STITCH_LIB_BASE_H
#define STITCH_LIB_BASE_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <jansson.h>

#include <stitch/base.h>
#include <stitch/context.h>

#define STITCH__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define STITCH__COUNT(array)      (sizeof(array) / sizeof((array)[0]))

/* ---- context.c ------------------------------------------------------------------------------------------------ */

/* Modules above base hang their per-context state here; the slots are freed in reverse order with the context. */
enum stitch__slot {
    STITCH__SLOT_CUDA,
    STITCH__SLOT_CLOCKS,
    STITCH__SLOT_PROFILE,
    STITCH__SLOT_TASK,
    STITCH__SLOT_RUNNER,
    STITCH__SLOT_VERIFY,
    STITCH__SLOT_ADMISSION,
    STITCH__SLOT_MODEL,
    STITCH__SLOT_AGENT,
    STITCH__SLOT_WORKER,
    STITCH__SLOT_COUNT
};

struct stitch_cancel {
    atomic_int triggered;
};

const stitch_context_options *stitch__context_options(const stitch_context *ctx); /* resolved, never NULL */

/* The state in a slot; made with `make` under the context's lock when it is empty. */
typedef int (*stitch__slot_make)(stitch_context *ctx, void **state, stitch_error **err);
int stitch__context_slot(stitch_context *ctx, enum stitch__slot slot, stitch__slot_make make,
                         void (*destroy)(void *state), void **state, stitch_error **err);
void *stitch__context_slot_peek(stitch_context *ctx, enum stitch__slot slot); /* NULL when empty */

/* Copies a caller's options struct into `dst` (size bytes of the newest layout, all zero where the caller's is
 * shorter); leaves `dst` as it is when the caller gave none. Refuses a struct that is too small to hold its size, or
 * that has unknown non-zero fields at its end. */
int stitch__options_copy(const stitch_context *ctx, void *dst, size_t size, const void *src, const char *what,
                         stitch_error **err);
/* Body of the exported _init() functions: zeroes `size` bytes, sets struct_size. */
int stitch__options_init(void *options, size_t size, size_t newest);

/* A call in progress: what can end it early. */
typedef struct stitch__scope {
    stitch_context *ctx;
    const stitch_cancel *cancel; /* may be NULL */
    int64_t deadline_ns;         /* stitch__now_ns() clock; 0: none */
} stitch__scope;

stitch__scope stitch__scope_make(stitch_context *ctx, const stitch_cancel *cancel, int64_t timeout_ms); /* <= 0: none */
/* STITCH_OK, or STITCH_E_CANCELLED / STITCH_E_TIMEOUT with a message that names `what`. */
int stitch__scope_check(const stitch__scope *scope, const char *what, stitch_error **err);
bool stitch__scope_ended(const stitch__scope *scope);
/* What stitch_context_cancel() triggers. */
const stitch_cancel *stitch__context_token(const stitch_context *ctx);
int stitch__scope_sleep(const stitch__scope *scope, int64_t ms, const char *what, stitch_error **err);
/* Milliseconds left, at most `limit`; never negative. */
int64_t stitch__scope_left_ms(const stitch__scope *scope, int64_t limit);
/* The same without a limit for options of which 0 would be none: at least 1. */
int64_t stitch__scope_timeout_ms(const stitch__scope *scope);

/* ---- memory.c: every block remembers its allocator, so that stitch_free() needs no context --------------------- */

void *stitch__alloc(const stitch_context *ctx, size_t size);                /* ctx may be NULL: malloc */
void *stitch__calloc(const stitch_context *ctx, size_t count, size_t size); /* overflow-checked, zeroed */
void *stitch__realloc(const stitch_context *ctx, void *ptr, size_t size);   /* ptr may be NULL; keeps ptr on failure */
char *stitch__strdup(const stitch_context *ctx, const char *s);             /* NULL for NULL */
char *stitch__strndup(const stitch_context *ctx, const char *s, size_t len);
/* Makes room for `need` elements in *array (capacity *cap, doubling). 0 or STITCH_E_NOMEM. */
int stitch__grow(const stitch_context *ctx, void *array_ptr, size_t *cap, size_t need, size_t elem_size);
#define stitch__zero_free(ptr) (stitch_free(ptr), (ptr) = NULL)

/* Many small blocks with one owner. A zeroed arena with ctx set is empty and valid. */
typedef struct stitch__arena {
    const stitch_context *ctx;
    struct stitch__arena_block *blocks;
} stitch__arena;

void *stitch__arena_alloc(stitch__arena *a, size_t size); /* zeroed, 16-byte aligned; NULL on failure */
void *stitch__arena_array(stitch__arena *a, size_t count, size_t size);
char *stitch__arena_strdup(stitch__arena *a, const char *s);
char *stitch__arena_strndup(stitch__arena *a, const char *s, size_t len);
STITCH__PRINTF(2, 3) char *stitch__arena_printf(stitch__arena *a, const char *fmt, ...);
void stitch__arena_free(stitch__arena *a);

/* ---- error.c --------------------------------------------------------------------------------------------------- */

/* Writes *err (if err is not NULL) and returns `code`, so that failures read `return stitch__err(...)`. */
STITCH__PRINTF(4, 5) int stitch__err(const stitch_context *ctx, stitch_error **err, int code, const char *fmt, ...);
STITCH__PRINTF(6, 7)
int stitch__err_native(const stitch_context *ctx, stitch_error **err, int code, int domain, int64_t native,
                       const char *fmt, ...);
int stitch__err_nomem(const stitch_context *ctx, stitch_error **err);
/* errno as domain SYSTEM. */
STITCH__PRINTF(4, 5)
int stitch__err_errno(const stitch_context *ctx, stitch_error **err, int code, const char *fmt, ...);
/* Sets the domain of *err where it is NONE; does nothing for NULL. */
void stitch__err_domain(stitch_error **err, int domain);
/* Hands an error on: it becomes *err in place of what was there, or is released if err is NULL; *from is NULL then. */
void stitch__err_hand_on(stitch_error **err, stitch_error **from);
/* Puts text in front of the message of *err. Does nothing for NULL. */
STITCH__PRINTF(2, 3) void stitch__err_prefix(stitch_error **err, const char *fmt, ...);
/* Replaces the details; truncates at 1 MiB. */
void stitch__err_details(stitch_error **err, const char *text);

/* ---- log.c ----------------------------------------------------------------------------------------------------- */

STITCH__PRINTF(3, 4) void stitch__log(const stitch_context *ctx, int level, const char *fmt, ...);

/* ---- format.c: numbers in text are the same whatever locale the host has set ----------------------------------- */

/* As vsnprintf(), snprintf() and strtod() are in the C locale. For every number that is not an integer. */
int stitch__vformat(char *out, size_t size, const char *fmt, va_list ap);
STITCH__PRINTF(3, 4) int stitch__format(char *out, size_t size, const char *fmt, ...);
double stitch__read_double(const char *text, char **end);

/* ---- buf.c: growing text; a failed allocation sticks and is reported once at the end --------------------------- */

typedef struct stitch__buf {
    const stitch_context *ctx;
    char *data; /* NUL-terminated when not NULL */
    size_t len, cap;
    bool failed;
} stitch__buf;

void stitch__buf_init(stitch__buf *b, const stitch_context *ctx);
void stitch__buf_append(stitch__buf *b, const void *data, size_t len);
void stitch__buf_puts(stitch__buf *b, const char *s);
void stitch__buf_putc(stitch__buf *b, char c);
STITCH__PRINTF(2, 3) void stitch__buf_printf(stitch__buf *b, const char *fmt, ...);
void stitch__buf_vprintf(stitch__buf *b, const char *fmt, va_list ap);
void stitch__buf_truncate(stitch__buf *b, size_t len);
/* The text (never NULL on success, released with stitch_free) and its length; empties the buffer. NULL when failed. */
char *stitch__buf_take(stitch__buf *b, size_t *len);
void stitch__buf_free(stitch__buf *b);

/* ---- text.c: strings, UTF-8, base64, hashes -------------------------------------------------------------------- */

bool stitch__utf8_valid(const char *s, size_t len);
/* short_name.c: the name of a kernel in `size` bytes (at least 4): one line, valid UTF-8. A C++ name that is longer
 * loses its namespaces first, and then its end. Returns `out`. */
const char *stitch__short_name(const char *name, char *out, size_t size);
/* The path of a source file that device code names: "?" if it has other characters than those that paths of sources
 * have, for code can call a file what it likes. */
const char *stitch__source_path(const char *path);
/* Appends `s` with control characters other than \n and \t, and invalid UTF-8, replaced; stops at max bytes and says
 * how many were left out. For untrusted text on its way into prompts, logs and reports. */
void stitch__buf_puts_clean(stitch__buf *b, const char *s, size_t len, size_t max);
bool stitch__name_valid(const char *s); /* [A-Za-z_][A-Za-z0-9_.]*, at most 255 bytes: tensors, dims, buffers */
/* The candidate closest to `name` by edit distance, if close enough to suggest; else NULL. */
const char *stitch__nearest(const char *name, const char *const *candidates, size_t count);
char *stitch__base64_encode(const stitch_context *ctx, const void *data, size_t len);
int stitch__base64_decode(const stitch_context *ctx, const char *text, size_t len, void **data,
                          size_t *out_len); /* 0, FORMAT, NOMEM */

#define STITCH__SHA256_SIZE 32
typedef struct stitch__sha256 {
    uint32_t state[8];
    uint64_t total;
    uint8_t block[64];
} stitch__sha256;
void stitch__sha256_init(stitch__sha256 *h);
void stitch__sha256_update(stitch__sha256 *h, const void *data, size_t len);
/* Length-prefixed string, so that ("ab","c") and ("a","bc") differ. NULL counts as an own value. */
void stitch__sha256_string(stitch__sha256 *h, const char *s);
void stitch__sha256_final(stitch__sha256 *h, uint8_t out[STITCH__SHA256_SIZE]);
void stitch__sha256_hex(stitch__sha256 *h, char out[65]);
void stitch__sha256_of(const void *data, size_t len, char hex[65]);

/* ---- system.c: clock, files, randomness ------------------------------------------------------------------------ */

int64_t stitch__now_ns(void); /* monotonic */
void stitch__sleep_ms(int64_t ms);
int stitch__random(const stitch_context *ctx, void *data, size_t len, stitch_error **err); /* from the system */
/* Whole file, NUL-terminated past its end. limit 0: 1 GiB. Refuses what is no regular file. */
int stitch__file_read(const stitch_context *ctx, const char *path, uint64_t limit, char **data, size_t *len,
                      stitch_error **err);
/* Temporary file in the same folder, then rename: readers see the old or the new content, never a part. A character
 * device is written to; other special files are refused. */
int stitch__file_write(const stitch_context *ctx, const char *path, const void *data, size_t len, stitch_error **err);
int stitch__mkdirs(const stitch_context *ctx, const char *path, stitch_error **err);
bool stitch__path_exists(const char *path);
/* `path` itself if absolute, else joined to the folder part of `base_file` (which may be NULL). */
char *stitch__path_beside(const stitch_context *ctx, const char *base_file, const char *path);
char *stitch__path_join(const stitch_context *ctx, const char *folder, const char *name);

/* ---- json.c: reading documents with errors that name the place, and writing them -------------------------------- */

typedef struct stitch__jpath {
    const struct stitch__jpath *up; /* NULL at the root */
    const char *key;                /* NULL: an array index */
    size_t index;
} stitch__jpath;

/* Rejects duplicate keys, NUL in strings, more than `limit` bytes (0: 64 MiB) or 2 Mi values, depth over 64, bytes
 * after the end. `what` names the document in errors ("task file x.json"). */
int stitch__json_parse(const stitch_context *ctx, const char *text, size_t len, size_t limit, const char *what,
                       json_t **out, stitch_error **err);
/* STITCH_E_FORMAT with "run[3].gemm.m: " in front. */
STITCH__PRINTF(4, 5)
int stitch__json_err(const stitch_context *ctx, const stitch__jpath *at, stitch_error **err, const char *fmt, ...);
void stitch__jpath_print(const stitch__jpath *at, char *out, size_t size);
const char *stitch__json_type(const json_t *v); /* "an object", "a string", ... */
/* Every key of `obj` must be in the NULL-terminated list; the error suggests the nearest. Also checks that obj is an
 * object. */
int stitch__json_keys(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *const *allowed,
                      stitch_error **err);
/* Typed members. A missing member leaves *out as it is when `required` is false. */
int stitch__json_string(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                        bool required, const char **out, stitch_error **err);
int stitch__json_int(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                     bool required, int64_t min, int64_t max, int64_t *out, stitch_error **err);
int stitch__json_number(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                        bool required, double *out, stitch_error **err);
int stitch__json_bool(const stitch_context *ctx, const json_t *obj, const stitch__jpath *at, const char *key,
                      bool required, bool *out, stitch_error **err);
/* Writers that add one member after the other: *failed is set where `value` (whose reference is taken over) is NULL or
 * there is no memory, and never cleared. */
void stitch__json_put(bool *failed, json_t *object, const char *key, json_t *value);
void stitch__json_push(bool *failed, json_t *array, json_t *value);
/* Text of a JSON value (indent 0: compact), keys in insertion order; released with stitch_free. NULL: out of memory. */
char *stitch__json_dump(const stitch_context *ctx, const json_t *v, int indent);

#endif
