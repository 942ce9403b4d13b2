/* SPDX-License-Identifier: MIT
 *
 * What the files of the worker's side share: serve.c is its process, serve_program.c the program that it has at hand.
 */
#ifndef STITCH_LIB_WORKER_SERVE_H
#define STITCH_LIB_WORKER_SERVE_H

#include "worker/protocol.h"

/* Device memory of the verifier's that this process has mapped. */
typedef struct stitch__mapped {
    CUdeviceptr ptr; /* 0: there is none of this number */
    uint64_t bytes;
    bool used; /* by the program at hand */
} stitch__mapped;

typedef struct stitch__server {
    stitch__channel channel;
    const stitch__worker_hooks *hooks;
    stitch_context *ctx;
    stitch__device *dev;
    bool entered;
    bool lost; /* after this answer the process is of no more use */
    CUstream stream;
    stitch__buf sandbox; /* what confines this process */
    /* of a compiler, which has no device */
    bool compiler;
    const stitch__nvrtc *nvrtc;
    uint64_t memory;  /* that it may take */
    stitch__buf code; /* what the last compilation gave, */
    bool code_waits;  /* and is to be fetched */
    /* of the program at hand */
    stitch_task *task;
    stitch_program *program;
    stitch__runner *runner;
    stitch__candidate candidate;
    CUdeviceptr *places[STITCH__SETS]; /* memory of the verifier's for outputs and inputs, as the runner takes it */
    /* Room for the outputs of `kept` runs: kept_bytes for each, tensor i of it at kept_offsets[i]. */
    uint32_t kept;
    bool kept_shared; /* in memory of the verifier's */
    CUdeviceptr kept_memory;
    uint64_t kept_bytes, *kept_offsets;
    void *share; /* memory that outputs are fetched through; registered: pinned, too */
    uint64_t share_bytes;
    bool registered;
    /* for all programs */
    stitch__mapped *buffers;
    size_t buffer_count, buffer_cap;
} stitch__server;

/* A request as it is answered. */
typedef struct stitch__exchange {
    const stitch__request *q;
    int memory; /* that came with it, -1: none */
    stitch__reply reply;
    stitch__buf text;
    uint64_t *hashes;
    int code;
    stitch_error *why, *err; /* the program's (with code), the request's */
} stitch__exchange;

/* ---- serve_compile.c ---- */

/* Any request of a compiler's but those of the process itself. */
int stitch__serve_compiler(stitch__server *s, stitch__exchange *x);
/* A first compilation, of nothing in particular: what NVRTC makes at its first use is there for the next one. */
void stitch__serve_warm_compiler(stitch__server *s);

/* ---- serve_program.c ---- */

/* Any request but those of the process itself: one that is not known is refused here. */
int stitch__serve_program(stitch__server *s, stitch__exchange *x);
/* Forgets the program at hand and everything that came for it; none: does nothing. Without `keep_buffers` the
 * verifier's memory, too. */
void stitch__serve_close_program(stitch__server *s, bool keep_buffers);

#endif
