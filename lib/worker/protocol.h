/* SPDX-License-Identifier: MIT
 *
 * Private to the worker module: messages, the channel that carries them, the process at its other end.
 */
#ifndef STITCH_LIB_WORKER_PROTOCOL_H
#define STITCH_LIB_WORKER_PROTOCOL_H

#include <sys/types.h>

#include "worker/worker.h"

enum {
    STITCH__WORKER_PROTOCOL = 8,
    STITCH__WORKER_MAX_PAYLOAD = 1 << 20, /* larger things go through shared memory */
    STITCH__WORKER_MAX_MESSAGE = 4096,    /* of an error's text */
    STITCH__WORKER_MAX_DETAILS = 65536,
    STITCH__WORKER_MAX_FACTS = 3 << 18,   /* of a profile, as JSON */
    STITCH__WORKER_MAX_METRICS = 1 << 14, /* of the names of metrics that are asked for */
    STITCH__WORKER_MAX_LOG = 4 << 20,     /* of a compilation */
    STITCH__WORKER_MAX_CODE = 128 << 20,  /* of everything that a compilation gives */
    STITCH__WORKER_CODE_INSIDE = 3 << 18, /* of it, in the reply itself */
    STITCH__WORKER_BUFFERS = STITCH__SETS * STITCH__TASK_MAX_TENSORS + 1, /* of shared device memory */
    STITCH__WORKER_KEY = 32,
    STITCH__FRAME_BYTES = 64,
};

/* ---- wire.c: numbers and texts in a message, little-endian ------------------------------------------------------- */

typedef struct stitch__reader {
    const uint8_t *data;
    size_t len, at;
    bool failed; /* sticks: what is read after it is 0 or "" */
} stitch__reader;

void stitch__put_u32(stitch__buf *b, uint32_t v);
void stitch__put_u64(stitch__buf *b, uint64_t v);
void stitch__put_f64(stitch__buf *b, double v);
void stitch__put_text(stitch__buf *b, const char *s); /* NULL: "" */
uint32_t stitch__get_u32(stitch__reader *r);
uint64_t stitch__get_u64(stitch__reader *r);
double stitch__get_f64(stitch__reader *r);
/* 0 or 1, anything else fails. */
bool stitch__get_bool(stitch__reader *r);
/* NUL-terminated inside the message, at most `max` bytes. */
const char *stitch__get_text(stitch__reader *r, size_t max);

void stitch__hmac_sha256(const uint8_t key[STITCH__WORKER_KEY], const void *head, size_t head_len, const void *data,
                         size_t len, uint8_t out[STITCH__SHA256_SIZE]);
bool stitch__same_bytes(const void *a, const void *b, size_t len); /* in constant time */

/* ---- message.c --------------------------------------------------------------------------------------------------- */

/* What the verifier asks. Every request has exactly one reply of the same type. */
#define STITCH__WORKER_REQUESTS(X)                                                                                     \
    X(HELLO, "starting")                                                                                               \
    X(PING, "answering a ping")                                                                                        \
    X(OPEN, "taking the program")                                                                                      \
    X(DATA, "taking a tensor's data")                                                                                  \
    X(START, "allocating tensors")                                                                                     \
    X(LOAD, "loading the program")                                                                                     \
    X(PREPARE, "preparing the program")                                                                                \
    X(FILL_WEIGHTS, "filling weights")                                                                                 \
    X(FILL_INPUTS, "filling inputs")                                                                                   \
    X(CLEAR_STATES, "clearing states")                                                                                 \
    X(HASH, "hashing inputs and weights")                                                                              \
    X(RUN, "running the program")                                                                                      \
    X(TIMED_RUN, "timing the program")                                                                                 \
    X(KEEP, "making room for outputs")                                                                                 \
    X(RUN_BLOCK, "running the program")                                                                                \
    X(INSPECT, "looking around the program's memory")                                                                  \
    X(FETCH, "copying outputs")                                                                                        \
    X(CLOSE, "closing the program")                                                                                    \
    X(PROBE, "answering a probe")                                                                                      \
    X(PROFILE, "profiling the program")                                                                                \
    X(PLACE, "sharing the memory of a tensor")                                                                         \
    X(COMPILE, "compiling")                                                                                            \
    X(CODE, "handing over compiled code")

typedef enum stitch__worker_op {
    STITCH__OP_NONE,
#define STITCH__OP_ENUM(name, text) STITCH__OP_WORKER_##name,
    STITCH__WORKER_REQUESTS(STITCH__OP_ENUM)
#undef STITCH__OP_ENUM
        STITCH__OP_WORKER_COUNT
} stitch__worker_op;

const char *stitch__worker_op_text(int op); /* "running the program" */

enum {
    STITCH__SANDBOX_NONE,
    STITCH__SANDBOX_LATE, /* Landlock once the device is open: then only for the thread that serves */
    STITCH__SANDBOX_FULL,
};

/* Pieces of what a compilation gives, in the order in which they follow each other. */
enum { STITCH__PIECE_LOG, STITCH__PIECE_PTX, STITCH__PIECE_CUBIN, STITCH__PIECE_SYMBOLS, STITCH__PIECES };

/* Only the members of a request's type travel. Texts point into the message. */
typedef struct stitch__request {
    int op;
    /* HELLO */
    uint8_t key[STITCH__WORKER_KEY];
    uint32_t protocol, sandbox, role;
    const char *device, *cache_dir, *cuda_path;
    /* OPEN: one memory file, the task's bytes and then the program's */
    uint64_t task_bytes, program_bytes;
    /* DATA, PLACE, FETCH; PLACE: device memory for an output of `set`, or for an input (set 1: moved); FETCH: `bytes`
     * from `offset` of the tensor to `at` of the shared memory; set STITCH__SETS + k is what run k of a block left */
    uint64_t tensor, offset, bytes, at;
    /* PLACE, KEEP with `bytes`: number of the buffer in shared device memory; a descriptor comes with a new one */
    uint32_t buffer;
    uint64_t wanted;   /* PLACE: address for it, if that is free there; 0: any */
    bool keep_buffers; /* CLOSE: for the next program; else they all go */
    /* START: size of the shared memory file; 0: none is sent */
    uint64_t share_bytes;
    stitch__load load;
    /* FILL_*, HASH */
    uint64_t seed;
    bool has_variant, inputs;
    double scale;
    stitch_dist dist; /* kind NONE: none */
    /* CLEAR_STATES, PLACE, FETCH */
    int32_t set;
    stitch__run run;
    stitch__run_block block; /* its variants point into: */
    stitch__variant variants[STITCH__BLOCK];
    stitch_dist dists[STITCH__BLOCK];
    uint32_t kept; /* KEEP: for so many runs, in `bytes` of shared device memory; 0: in memory of the worker's own */
    /* PROFILE: parts and set as in stitch__collect_options; `text` has the names of more metrics, joined by commas */
    uint32_t parts, metrics;
    const char *text; /* PROBE, PROFILE; HELLO: folders that a compiler may read, a line each */
    /* COMPILE: `bytes` of a memory file (compiler.c), and the time of the processor that it may take; CODE: `bytes` of
     * one that the answer is to be written to */
    uint32_t seconds;
} stitch__request;

typedef struct stitch__reply {
    int op;
    int32_t rc, code; /* the call's status; the candidate's */
    int32_t domain;
    int64_t native;
    const char *message, *details; /* of whichever failed */
    uint64_t busy_ns;              /* the worker's time for the request */
    /* HELLO */
    uint32_t protocol, pid, nvrtc_major, nvrtc_minor; /* nvrtc: of a compiler */
    uint8_t uuid[16];
    const char *version, *arch, *name, *sandbox;
    /* PREPARE */
    stitch__prepared prepared;
    /* HASH; RUN_BLOCK: for each run as many as there are tensors */
    size_t hash_count;
    uint64_t hashes_at; /* offset in the message */
    /* RUN_BLOCK */
    uint32_t run_count;
    stitch__took took[STITCH__BLOCK]; /* TIMED_RUN: the first */
    const char *text;                 /* PROBE, PROFILE: the facts as JSON */
    /* COMPILE */
    uint32_t result, rtc_call; /* as in stitch__rtc */
    uint64_t pieces[STITCH__PIECES];
    const void *compiled; /* all pieces, in the message; NULL: they are fetched by CODE */
} stitch__reply;

void stitch__request_encode(const stitch__request *q, stitch__buf *out);
/* STITCH_E_FORMAT with what is wrong. */
int stitch__request_decode(int op, const void *data, size_t len, stitch__request *out, stitch_error **err);
/* `hashes`: reply->hash_count of them. */
void stitch__reply_encode(const stitch__reply *r, const uint64_t *hashes, stitch__buf *out);
/* Checks form and ranges: statuses, finite times, UTF-8 is left to whoever prints it. */
int stitch__reply_decode(int op, const void *data, size_t len, stitch__reply *out, stitch_error **err);
/* The bytes of all pieces of a compilation. */
uint64_t stitch__reply_code_bytes(const stitch__reply *r);
/* Hash number i of a decoded reply. */
uint64_t stitch__reply_hash(const stitch__reply *r, const void *data, size_t i);

/* task.c: the part of a task that the worker may know */
void stitch__worker_task_encode(const stitch_task *t, stitch__buf *out);
int stitch__worker_task_decode(stitch_context *ctx, const void *data, size_t len, stitch_task **out,
                               stitch_error **err);
/* Where the outputs of a run are kept: offsets[i] of tensor i. Returns the bytes that a run takes; 0: more than there
 * can be. */
uint64_t stitch__kept_layout(const stitch_interface *iface, uint64_t *offsets);
/* Where the data of tensor `index` comes from, if it is not drawn: host memory, or a tensor of a file. */
typedef struct stitch__tensor_data {
    const void *memory;
    const stitch__safetensors *file;
    const stitch__st_tensor *entry;
    uint64_t bytes;
} stitch__tensor_data;
/* STITCH_OK with bytes 0 and no source: nothing to send. */
int stitch__worker_task_data(const stitch_task *t, size_t index, stitch__tensor_data *out, stitch_error **err);

/* compiler.c: what NVRTC is given, as bytes. Decoded texts point into the data, the arrays are the arena's. */
void stitch__rtc_input_encode(const stitch__rtc_input *in, stitch__buf *out);
int stitch__rtc_input_decode(stitch__arena *arena, const void *data, size_t len, stitch__rtc_input *out,
                             stitch_error **err);

/* ---- channel.c: frames over a stream socket ---------------------------------------------------------------------- */

typedef struct stitch__frame {
    uint32_t op, bytes;
    uint64_t sequence;
    uint8_t mac[STITCH__SHA256_SIZE];
} stitch__frame;

/* The 64 bytes before a payload. `reply` is part of them, so that a request cannot be played back as a reply. */
void stitch__frame_encode(const stitch__frame *f, bool reply, uint8_t out[STITCH__FRAME_BYTES]);
int stitch__frame_decode(const uint8_t data[STITCH__FRAME_BYTES], bool reply, stitch__frame *out, stitch_error **err);

typedef struct stitch__channel {
    int fd; /* -1: closed */
    bool server;
    bool keyed;
    uint8_t key[STITCH__WORKER_KEY];
    uint64_t sequence; /* of the request in progress */
    uint8_t *payload;  /* of the last message received */
    size_t bytes, cap;
    stitch_context *ctx;
} stitch__channel;

/* Sends a message; `memory` (-1: none) is a descriptor that goes with it. STITCH_E_IO: the other side is gone. */
int stitch__channel_send(stitch__channel *c, const stitch__scope *scope, int op, const stitch__buf *payload, int memory,
                         const char *what, stitch_error **err);
/* Receives one. The verifier (!server) takes exactly the reply to its last request and never a descriptor; the server
 * takes at most one descriptor (*memory, -1: none). STITCH_E_FORMAT: it is no proper message. STITCH_E_IO with native
 * 0: the other side has closed. */
int stitch__channel_receive(stitch__channel *c, const stitch__scope *scope, int *op, int *memory, const char *what,
                            stitch_error **err);
void stitch__channel_close(stitch__channel *c);

/* ---- shared.c: memory files -------------------------------------------------------------------------------------- */

/* A memory file of a fixed size: sealed against shrinking and growing, so that no peer can turn an access of ours into
 * a SIGBUS. `bytes` are reserved at once. */
int stitch__memory_make(const stitch_context *ctx, const char *what, uint64_t bytes, int *fd, stitch_error **err);
/* No more writes to it, by anybody. */
int stitch__memory_freeze(const stitch_context *ctx, int fd, const char *what, stitch_error **err);
int stitch__memory_write(const stitch_context *ctx, int fd, uint64_t at, const void *data, size_t bytes,
                         const char *what, stitch_error **err);
/* Maps a file that came from somebody else after a look at its size and its seals. bytes 0: *out is NULL. */
int stitch__memory_map(const stitch_context *ctx, int fd, uint64_t bytes, bool writable, const char *what, void **out,
                       stitch_error **err);
void stitch__memory_unmap(void *ptr, uint64_t bytes);

/* ---- spawn.c: the process ---------------------------------------------------------------------------------------- */

typedef struct stitch__process {
    pid_t pid;
    int pidfd;  /* -1: the kernel has none */
    int words;  /* memory file that its stderr goes to, -1: none */
    bool ended; /* reaped (or somebody else reaped it) */
    bool known; /* how it ended: */
    bool signalled;
    int status; /* number of the signal, or the exit code */
} stitch__process;

/* The executable, released with stitch_free(). */
int stitch__worker_find(const stitch_context *ctx, const char *given, char **path, stitch_error **err);
/* `extra`: variables ("NAME=value", up to a NULL) besides those of this process that a worker may have. */
int stitch__process_start(const stitch_context *ctx, const char *path, char *const *extra, stitch__process *p,
                          int *socket, stitch_error **err);
void stitch__process_kill(stitch__process *p);
/* Whether it has ended, waiting for at most that long. */
bool stitch__process_ended(stitch__process *p, int64_t wait_ms);
/* "by signal 11 (segmentation fault)", "with exit code 1"; what it wrote to stderr goes to `words`. */
void stitch__process_end_text(const stitch__process *p, char *out, size_t size);
void stitch__process_words(const stitch__process *p, stitch__buf *out);
void stitch__process_clear(stitch__process *p); /* closes descriptors */
/* The environment that a worker gets from `from` and `extra`; in the arena, but for extra's strings. */
char **stitch__worker_environment(stitch__arena *arena, char *const *from, char *const *extra);

/* ---- sandbox.c: in the worker ------------------------------------------------------------------------------------ */

/* In the environment of a worker that may keep the privilege that hardware counters need. */
#define STITCH__WORKER_COUNTS "STITCH_WORKER_COUNTS"

/* Limits of the process: at its start. */
void stitch__sandbox_limits(stitch__buf *applied);
/* Further ones of a compiler: memory, and that others survive it where the machine's memory ends. *memory: its limit.
 */
void stitch__sandbox_compiler(stitch__buf *applied, uint64_t *memory);
/* Whether so much of `memory` has been taken since then that the next compilation could lack it. */
bool stitch__sandbox_spent(uint64_t memory);
/* The processor's time that this process may take from now on; then the kernel ends it. */
void stitch__sandbox_seconds(uint32_t seconds);
/* No writing but to device files, no reading but of system folders and `folders` (a line each; missing ones are
 * ignored), no network; for this thread and those that it starts. `applied` gets "landlock 5" or why not. Without
 * `device`, a GPU's device files and what tells of other processes and of the machine are out of reach, too. */
void stitch__sandbox_files(const char *folders, bool device, stitch__buf *applied);
/* No sockets, no processes, no tracing, no mounts, ...; for all threads. */
void stitch__sandbox_calls(stitch__buf *applied);

#endif
