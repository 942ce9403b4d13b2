/* SPDX-License-Identifier: MIT
 *
 * A timed run by the host's clock. Events are memory that device code reaches, if it guesses where: one that moves the
 * first event's time makes its run a short one. What the host sees of the run is a lower limit of its time, and however
 * busy the host is, never more than that: when a look that found the first event behind it had ended, the run had
 * begun; when a look that found the stream busy began, it had not ended.
 */
#include "runner/internal.h"

#include <sched.h>
#include <time.h>

enum { SPIN_NS = 300000, YIELD_NS = 20000000, NAP_NS = 50000 };

typedef struct look {
    int64_t pending; /* the last look that found it not there yet began then; 0: none did */
    int64_t there;   /* the one that found it ended then */
} look;

/* Looks for the event, or for the end of all that was enqueued, until it is there or the scope is over. */
static look look_for(stitch__runner *r, const stitch__scope *scope, CUevent event)
{
    const stitch__driver *drv = r->dev->drv;
    int64_t start = stitch__now_ns(), begin = start;
    look seen = {0, 0};

    for (;; begin = stitch__now_ns()) {
        CUresult result = event ? drv->EventQuery(event) : drv->StreamQuery(r->stream);
        seen.there = stitch__now_ns();
        if (result != CUDA_ERROR_NOT_READY)
            return seen;
        seen.pending = begin;
        if (scope && stitch__scope_check(scope, "timing the program", NULL))
            return seen;
        if (begin - start < SPIN_NS)
            continue;
        if (begin - start < YIELD_NS)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
}

double stitch__runner_watch(stitch__runner *r, const stitch__scope *scope)
{
    look start = look_for(r, scope, r->start), end = look_for(r, scope, NULL);
    return end.pending > start.there ? (double)(end.pending - start.there) / 1000 : 0;
}
