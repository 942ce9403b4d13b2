/* SPDX-License-Identifier: MIT
 *
 * What the files of the verifier's side share: a worker as it sees it.
 */
#ifndef STITCH_LIB_WORKER_CLIENT_H
#define STITCH_LIB_WORKER_CLIENT_H

#include <pthread.h>

#include "cuda/guards.h"
#include "worker/protocol.h"

typedef struct stitch__worker_pool stitch__worker_pool;

/* Device memory that the worker maps, too. */
typedef struct stitch__buffer {
    stitch__export memory; /* ptr 0: there is none of this number */
    uint64_t bytes;
    bool used;    /* by the program at hand */
    int lender;   /* process of the worker whose memory it is, which has mapped it here; 0: it is this one's */
    int64_t made; /* when the memory was: nothing else is the same for other memory at the same address */
} stitch__buffer;

struct stitch__worker {
    stitch_context *ctx;
    stitch__device *dev; /* of the verifier; NULL: a compiler, which has no program either */
    stitch__worker_pool *pool;
    char *path, *sandbox_text;
    uint32_t sandbox;
    stitch__process process;
    stitch__channel channel;
    bool greeted, used, lost;
    bool lends; /* another one has borrowed memory of it: until it is released, closing a program leaves that */
    int role;   /* stitch__worker_role */
    char *why_lost;
    stitch__control control;
    int64_t closing; /* when it was asked to close a program, and has not answered yet; 0: it has */
    /* the program at hand */
    bool open;
    const stitch_interface *iface; /* of the task */
    size_t count;
    stitch_tensor_info *infos; /* strings are the task's */
    int share;                 /* memory file that outputs come through, -1: none */
    uint64_t share_bytes;
    void *staging; /* where they are read into before they go to the device */
    bool pinned;
    /* Shared memory of outputs of a set, of inputs and (1) of moved ones, one a tensor; NULL: outputs are fetched. */
    CUdeviceptr *places[STITCH__SETS];
    CUdeviceptr kept; /* that outputs of runs of a block are copied to, as in serve_program.c */
    uint64_t kept_bytes, *kept_offsets;
    char *unshared; /* why outputs are fetched; NULL: they are not */
    /* for all programs */
    stitch__buffer *buffers;
    size_t buffer_count, buffer_cap;
    bool buffers_unsure; /* the worker may not have the ones that it should have */
    CUstream stream;     /* for copies out of them; NULL: not made yet */
    CUstream reader;     /* of the caller's, that the last copies were enqueued on; NULL: none */
};

/* ---- client.c ---- */

/* Starts the process and sends the greeting, without waiting for anything. dev: NULL for a compiler. */
int stitch__worker_start(stitch_context *ctx, stitch__device *dev, const char *path, uint32_t sandbox, int role,
                         stitch__worker **out, stitch_error **err);
/* Waits for the answer to the greeting. */
int stitch__worker_greeted(stitch__worker *w, const stitch__scope *scope, stitch_error **err);
/* Ends it at once. What is left of the process (NULL: nothing) goes to *left. */
void stitch__worker_end(stitch__worker *w, stitch__process *left);

/* Nothing can be asked of it any more. The process is killed, but not waited for. */
void stitch__worker_lose(stitch__worker *w, const char *why);

/* A request that may make the program run: what becomes of it is the program's. Others have NULL. */
typedef struct stitch__blame {
    int *code;
    stitch_error **why;
} stitch__blame;

/* A request and its reply, which is valid until the next one. Status as for the candidate's operations. */
int stitch__worker_call(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                        const stitch__blame *blame, stitch__reply *reply, stitch_error **err);
/* Its two halves, for requests that overlap with work of our own. *start: for the second. */
int stitch__worker_send(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int memory,
                        const stitch__blame *blame, int64_t *start, stitch_error **err);
int stitch__worker_receive(stitch__worker *w, const stitch__scope *scope, const stitch__request *q, int64_t start,
                           const stitch__blame *blame, stitch__reply *reply, stitch_error **err);

/* Nothing is there to be read from it: no answer that nobody asked for, and not its end. */
bool stitch__worker_quiet(const stitch__worker *w);
/* After something was taken out of memory that it shares, without a request that would tell: STITCH_OK, or what a call
 * `op` of a worker that has died returns. */
int stitch__worker_alive(stitch__worker *w, const stitch__scope *scope, int op, stitch_error **err);

/* ---- session.c ---- */

/* Forgets the program at hand, here and (if it can be asked) there. Does not wait for that. */
void stitch__worker_close(stitch__worker *w);
/* Waits until it has; the worker is lost if it does not. Whoever sends a request does that first. */
void stitch__worker_settle(stitch__worker *w);

/* ---- buffers.c ---- */

/* Memory of q->bytes for what `q` (PLACE, KEEP) is about: some that an earlier program had, else new; sends the
 * request with it. STITCH_E_UNSUPPORTED: none can be shared. */
int stitch__buffer_share(stitch__worker *w, const stitch__scope *scope, stitch__request *q, CUdeviceptr *out,
                         stitch_error **err);
/* The same in memory of another worker's, which must outlive the program: `theirs` is where it is mapped here. */
int stitch__buffer_borrow(stitch__worker *w, const stitch__scope *scope, stitch__worker *lender, CUdeviceptr theirs,
                          stitch__request *q, CUdeviceptr *out, stitch_error **err);
/* Whether what is there may be kept while no program uses it: it is little enough, or lent. */
bool stitch__buffers_spare(const stitch__worker *w);
/* Some have been borrowed of a worker other than `beside` (NULL: of any), which may serve somebody else by now. */
bool stitch__buffers_foreign(const stitch__worker *w, const stitch__worker *beside);
/* No program uses any; without `keep` they go. The device is entered. */
void stitch__buffers_release(stitch__worker *w, bool keep);

/* ---- outputs.c ---- */

/* Memory for outputs and inputs that both processes map, sent to the worker: of its own, or what `beside` has for the
 * same tensors in its other places (NULL: none). Where that cannot be done, outputs are fetched, and
 * stitch__worker_unshared() says why. Only a worker that is lost is an error. */
int stitch__outputs_share(stitch__worker *w, stitch__worker *beside, const stitch__scope *scope, stitch_error **err);
/* Makes what outputs are fetched through: w->share for the worker, w->staging. Both are empty where they are shared. */
int stitch__outputs_stage(stitch__worker *w, stitch_error **err);
/* Releases it; without `keep` also what would serve the next program. */
void stitch__outputs_close(stitch__worker *w, bool keep);
/* stitch__candidate_ops.keep and .fetch */
int stitch__outputs_keep(void *self, const stitch__scope *scope, uint32_t count, stitch_error **err);
int stitch__outputs_fetch(void *self, const stitch__scope *scope, int set, const CUdeviceptr *into, CUstream stream,
                          stitch_error **err);

#endif
