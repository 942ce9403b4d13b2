/* SPDX-License-Identifier: MIT
 *
 * What a run finds in the program's own memory: nothing of an earlier run. Contents of workspace are undefined at the
 * start of every run, and what `prepare` wrote may only be read.
 */
#include "runner/internal.h"

/* Fills what `prepare` did not write. */
int stitch__runner_forget(stitch__runner *r, stitch_error **err)
{
    stitch__workspace w;
    int rc = STITCH_OK;

    for (size_t at = 0; !rc && stitch__executor_workspace(r->executor, &at, &w);)
        if (!w.prepared)
            rc = stitch__cu_checkf(r->dev, r->dev->drv->MemsetD8Async(w.ptr, r->leftover, (size_t)w.bytes, r->stream),
                                   err, "filling buffer %s", w.name);
    return rc;
}

/* Hashes of what `prepare` wrote, one a buffer. */
static int hash_prepared(stitch__runner *r, const stitch__scope *scope, size_t count, uint64_t *out, stitch_error **err)
{
    stitch__hasher h = {.dev = NULL};
    stitch__workspace w;
    size_t slot = 0;
    int rc = stitch__hasher_open(&h, r->dev, r->stream, count, err);

    for (size_t at = 0; !rc && stitch__executor_workspace(r->executor, &at, &w);)
        if (w.prepared && slot < count) {
            rc = stitch__hash_enqueue(&h, r->stream, w.ptr, 0, w.bytes, r->key, slot, err);
            slot++;
        }
    if (!rc)
        rc = stitch__hash_fetch(&h, r->stream, scope, "hashing what prepare wrote", count, out, err);
    stitch__hasher_close(&h);
    return rc;
}

int stitch__runner_remember(stitch__runner *r, const stitch__scope *scope, stitch_error **err)
{
    stitch__workspace w;
    int rc;

    stitch__zero_free(r->prepared);
    r->prepared_count = 0;
    for (size_t at = 0; r->watched && stitch__executor_workspace(r->executor, &at, &w);)
        r->prepared_count += w.prepared;
    if (!r->prepared_count)
        return STITCH_OK;
    r->prepared = stitch__calloc(r->ctx, r->prepared_count, sizeof(*r->prepared));
    if (!r->prepared)
        return stitch__err_nomem(r->ctx, err);
    rc = stitch__random(r->ctx, &r->key, sizeof(r->key), err);
    return rc ? rc : hash_prepared(r, scope, r->prepared_count, r->prepared, err);
}

int stitch__runner_recall(stitch__runner *r, const stitch__scope *scope, int *code, stitch_error **why,
                          stitch_error **err)
{
    stitch__workspace w;
    size_t slot = 0;
    uint64_t *now;
    int rc;

    *code = STITCH_OK;
    if (!r->prepared_count || !(r->has_fixed || r->timed))
        return STITCH_OK;
    now = stitch__calloc(r->ctx, r->prepared_count, sizeof(*now));
    if (!now)
        return stitch__err_nomem(r->ctx, err);
    rc = hash_prepared(r, scope, r->prepared_count, now, err);
    for (size_t at = 0; !rc && !*code && stitch__executor_workspace(r->executor, &at, &w);) {
        if (!w.prepared)
            continue;
        if (slot < r->prepared_count && now[slot] != r->prepared[slot])
            *code = stitch__err(r->ctx, why, STITCH_E_VALIDATE,
                                "run changes buffer %s, which prepare wrote and run may only read: a later run could "
                                "find there what this one left",
                                w.name);
        slot++;
    }
    stitch_free(now);
    return rc;
}
