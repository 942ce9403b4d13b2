/* SPDX-License-Identifier: MIT
 *
 * Workers of a context. One of each role idles between verifications, ready for the next one; when one is lost, another
 * one starts in the background. More of a role exist only while several threads verify at once, and idle only while
 * they take no other role's place.
 */
#include <stdio.h>
#include <unistd.h>

#include "worker/client.h"

enum {
    START_MS = 60000, /* for a driver that wakes up its devices first */
    MAX_IDLE = 4,     /* one of each role */
    REAP_MS = 2000,   /* a killed process whose device is busy takes tens of milliseconds */
};

struct stitch__worker_pool {
    stitch_context *ctx;
    pthread_mutex_t lock;           /* guards what follows */
    stitch__worker *idle[MAX_IDLE]; /* NULL: none */
    uint32_t sandbox;               /* the strongest one that a worker could open its device in */
    stitch__process *dying;
    size_t dying_count, dying_cap;
};

static void reap(stitch__worker_pool *p, int64_t wait_ms)
{
    size_t left = 0;
    for (size_t i = 0; i < p->dying_count; i++) {
        if (stitch__process_ended(&p->dying[i], wait_ms))
            stitch__process_clear(&p->dying[i]);
        else
            p->dying[left++] = p->dying[i];
    }
    p->dying_count = left;
}

/* The pool's lock is held. */
static void discard(stitch__worker_pool *p, stitch__worker *w)
{
    stitch__process left;

    stitch__worker_end(w, &left);
    if (!stitch__process_ended(&left, 0) &&
        stitch__grow(p->ctx, &p->dying, &p->dying_cap, p->dying_count + 1, sizeof(*p->dying)) == STITCH_OK) {
        p->dying[p->dying_count++] = left; /* waited for some other time */
        return;
    }
    (void)stitch__process_ended(&left, REAP_MS);
    stitch__process_clear(&left);
}

static void free_pool(void *state)
{
    stitch__worker_pool *p = state;

    for (size_t i = 0; i < MAX_IDLE; i++)
        if (p->idle[i])
            discard(p, p->idle[i]);
    reap(p, REAP_MS);
    for (size_t i = 0; i < p->dying_count; i++) {
        stitch__log(p->ctx, STITCH_LOG_WARN, "worker process %d does not end although it was killed",
                    (int)p->dying[i].pid);
        stitch__process_clear(&p->dying[i]);
    }
    stitch_free(p->dying);
    pthread_mutex_destroy(&p->lock);
    stitch_free(p);
}

static int make_pool(stitch_context *ctx, void **state, stitch_error **err)
{
    stitch__worker_pool *p = stitch__calloc(ctx, 1, sizeof(*p));
    if (!p)
        return stitch__err_nomem(ctx, err);
    p->ctx = ctx;
    p->sandbox = STITCH__SANDBOX_FULL;
    pthread_mutex_init(&p->lock, NULL);
    *state = p;
    return STITCH_OK;
}

/* It still lives, and nothing has come from it that nobody asked for. */
static bool sound(stitch__worker *w)
{
    bool asked = !w->greeted || w->closing;
    return !w->lost && !stitch__process_ended(&w->process, 0) && (asked || stitch__worker_quiet(w));
}

static stitch__worker *take_idle(stitch__worker_pool *p, const char *path, uint32_t sandbox,
                                 const stitch__worker_options *o)
{
    stitch__worker *w = NULL;

    pthread_mutex_lock(&p->lock);
    reap(p, 0);
    for (size_t i = 0; !w && i < MAX_IDLE; i++) {
        if (!p->idle[i] || p->idle[i]->role != o->role)
            continue;
        w = p->idle[i];
        p->idle[i] = NULL;
        stitch__worker_settle(w);
        if (strcmp(w->path, path) != 0 || w->sandbox != sandbox || (o->fresh && w->used) || !sound(w)) {
            discard(p, w);
            w = NULL;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return w;
}

static void put_away(stitch__worker_pool *p, stitch__worker *w)
{
    pthread_mutex_lock(&p->lock);
    discard(p, w);
    pthread_mutex_unlock(&p->lock);
}

/* Whether to start another one after a failure. The first may be an accident; after the second the sandbox may be to
 * blame, for a driver that wants something that is not known here. */
static bool try_again(int failures, uint32_t *sandbox, int rc, bool simulated)
{
    bool opening = rc == STITCH_E_NO_DEVICE || rc == STITCH_E_NO_LIBRARY || rc == STITCH_E_DRIVER;

    if (failures == 1 && rc == STITCH_E_IO)
        return true;
    if (simulated || *sandbox != STITCH__SANDBOX_FULL || !(opening || rc == STITCH_E_IO))
        return false;
    *sandbox = STITCH__SANDBOX_LATE;
    return true;
}

static int start(stitch__worker_pool *p, stitch__device *dev, const stitch__scope *scope, const char *path,
                 uint32_t sandbox, int role, stitch__worker **out, stitch_error **err)
{
    stitch__scope own = *scope;
    int64_t most = stitch__now_ns() + (int64_t)START_MS * 1000000;
    stitch_error *why = NULL; /* of one attempt: an error that a later one makes good must not reach the caller */
    int failures = 0, rc;

    if (!own.deadline_ns || own.deadline_ns > most)
        own.deadline_ns = most;
    for (;;) {
        rc = STITCH_OK;
        if (!*out)
            rc = stitch__worker_start(p->ctx, dev, path, sandbox, role, out, &why);
        if (!rc)
            rc = stitch__worker_greeted(*out, &own, &why);
        if (!rc)
            break;
        if (*out)
            put_away(p, *out);
        *out = NULL;
        if (!try_again(++failures, &sandbox, rc, !dev || dev->info.simulated))
            break;
        stitch__log(p->ctx, STITCH_LOG_WARN, "a worker does not start (%s); trying again%s",
                    why ? stitch_error_message(why) : stitch_status_text(rc),
                    sandbox == STITCH__SANDBOX_LATE ? ", with its sandbox after its device is open" : "");
    }
    if (rc) {
        stitch__err_prefix(&why, "no worker: ");
    } else if (sandbox == STITCH__SANDBOX_LATE) { /* so it was that */
        pthread_mutex_lock(&p->lock);
        p->sandbox = sandbox;
        pthread_mutex_unlock(&p->lock);
    }
    if (rc)
        stitch__err_hand_on(err, &why);
    stitch_error_free(why);
    return rc;
}

/* What starting one needs; *dev is NULL for a compiler. *path is released with stitch_free(). */
static int look_around(stitch_context *ctx, const stitch__worker_options *o, stitch__worker_pool **pool,
                       stitch__device **dev, char **path, uint32_t *sandbox, stitch_error **err)
{
    void *state = NULL;
    int rc = STITCH_OK;

    *dev = NULL;
    if (stitch__context_options(ctx)->get_proc)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                           "the context's driver is the host's own (get_proc): no other process can use it");
    if (o->role != STITCH__WORKER_COMPILER)
        rc = stitch__device_get(ctx, dev, err);
    if (!rc)
        rc = stitch__context_slot(ctx, STITCH__SLOT_WORKER, make_pool, free_pool, &state, err);
    if (!rc)
        rc = stitch__worker_find(ctx, o->executable, path, err);
    if (rc)
        return rc;
    *pool = state;
    pthread_mutex_lock(&(*pool)->lock);
    *sandbox = o->no_sandbox ? STITCH__SANDBOX_NONE : (*pool)->sandbox;
    pthread_mutex_unlock(&(*pool)->lock);
    return STITCH_OK;
}

int stitch__worker_acquire(stitch_context *ctx, const stitch__scope *scope, const stitch__worker_options *options,
                           stitch__worker **out, stitch_error **err)
{
    static const stitch__worker_options defaults;
    const stitch__worker_options *o = options ? options : &defaults;
    stitch__worker_pool *p;
    stitch__device *dev;
    char *path = NULL;
    uint32_t sandbox;
    int rc;

    *out = NULL;
    rc = look_around(ctx, o, &p, &dev, &path, &sandbox, err);
    if (rc)
        return rc;
    *out = take_idle(p, path, sandbox, o);
    if (!*out && dev && *stitch__context_options(ctx)->cache_dir) {
        /* Into the compile cache, which a worker may only read. */
        (void)stitch__generate_warm(dev, scope, NULL);
        (void)stitch__hash_warm(dev, scope, NULL);
    }
    rc = start(p, dev, scope, path, sandbox, o->role, out, err);
    if (!rc)
        (*out)->pool = p;
    stitch_free(path);
    return rc;
}

/* To a free place, or in place of one of a role that two of those who idle have. The pool's lock is held. */
static void put_idle(stitch__worker_pool *p, stitch__worker *w)
{
    size_t at = MAX_IDLE;
    bool other = true; /* nobody of its role idles */

    for (size_t i = 0; i < MAX_IDLE; i++) {
        if (!p->idle[i])
            at = i;
        else if (p->idle[i]->role == w->role)
            other = false;
    }
    for (size_t i = 1; at == MAX_IDLE && other && i < MAX_IDLE; i++)
        for (size_t k = 0; k < i; k++)
            if (p->idle[k]->role == p->idle[i]->role)
                at = i;
    if (at == MAX_IDLE) {
        discard(p, w);
        return;
    }
    if (p->idle[at])
        discard(p, p->idle[at]);
    p->idle[at] = w;
}

void stitch__worker_release(stitch__worker *w, bool reusable)
{
    stitch__worker_pool *p;
    stitch__worker *fresh = NULL;

    if (!w)
        return;
    p = w->pool;
    bool spent = w->role == STITCH__WORKER_PROFILER && w->used; /* stitch__exclusive_graph_traced() */
    reusable = reusable && !spent;
    w->lends = false; /* who has borrowed from it is closed */
    if (!reusable)
        w->open = false; /* it ends, and with it all that it could be asked to give back */
    stitch__worker_close(w);
    if ((w->lost || spent) && w->greeted) /* the next one shall not have to wait */
        (void)stitch__worker_start(w->ctx, w->dev, w->path, w->sandbox, w->role, &fresh, NULL);
    if (fresh)
        fresh->pool = p;
    pthread_mutex_lock(&p->lock);
    reap(p, 0);
    if (!reusable || !sound(w)) {
        discard(p, w);
        w = fresh;
    }
    if (w)
        put_idle(p, w);
    pthread_mutex_unlock(&p->lock);
}

void stitch__worker_ahead(stitch_context *ctx, int role)
{
    const stitch__worker_options o = {.role = role};
    stitch__worker_pool *p;
    stitch__worker *w = NULL;
    stitch__device *dev;
    char *path = NULL;
    uint32_t sandbox;

    if (look_around(ctx, &o, &p, &dev, &path, &sandbox, NULL))
        return;
    w = take_idle(p, path, sandbox, &o);
    if (!w && stitch__worker_start(ctx, dev, path, sandbox, o.role, &w, NULL) == STITCH_OK)
        w->pool = p;
    if (w) {
        pthread_mutex_lock(&p->lock);
        put_idle(p, w);
        pthread_mutex_unlock(&p->lock);
    }
    stitch_free(path);
}
