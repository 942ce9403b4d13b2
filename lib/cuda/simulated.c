/* SPDX-License-Identifier: MIT
 *
 * What a simulated device has and a real one has not: an end to kernels that take too long, a way back from a fault,
 * and checkers, which belong to a context and not to those who use it.
 */
#include "cuda/internal.h"
#include "sim/sim_ext.h"

void stitch__device_limit(const stitch__device *dev, const stitch__scope *scope)
{
    stitch__sim_get_options_fn get;
    stitch__sim_set_options_fn set;
    stitch__sim_options options;

    memcpy(&get, &dev->drv->sim_get_options, sizeof(get));
    memcpy(&set, &dev->drv->sim_set_options, sizeof(set));
    if (!get || !set || get(&options) != CUDA_SUCCESS)
        return;
    options.cancel = scope ? scope->cancel : NULL;
    /* A context that others have, too, may outlive this one. */
    options.cancel_too = scope || dev->alone ? stitch__context_token(dev->ctx) : NULL;
    options.deadline_ns = scope ? scope->deadline_ns : 0;
    (void)set(&options);
}

void stitch__device_recover(const stitch__device *dev)
{
    stitch__sim_recover_fn recover;

    memcpy(&recover, &dev->drv->sim_recover, sizeof(recover));
    if (recover)
        (void)recover();
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

typedef struct stitch__turns {
    pthread_mutex_t lock;
    pthread_t owner;
    unsigned held; /* how often the owner has it; 0: nobody has */
} stitch__turns;

/* Made with the device, before threads can share it. */
int stitch__turns_make(stitch__device *dev, stitch_error **err)
{
    stitch__turns *t = dev->info.simulated ? stitch__calloc(dev->ctx, 1, sizeof(*t)) : NULL;

    if (!dev->info.simulated)
        return STITCH_OK;
    if (!t || pthread_mutex_init(&t->lock, NULL) != 0) {
        stitch_free(t);
        return stitch__err_nomem(dev->ctx, err);
    }
    dev->turns = t;
    return STITCH_OK;
}

void stitch__turns_free(stitch__device *dev)
{
    if (dev->turns)
        pthread_mutex_destroy(&dev->turns->lock);
    stitch__zero_free(dev->turns);
}

static bool take(stitch__turns *t)
{
    bool got;

    pthread_mutex_lock(&t->lock);
    got = !t->held || pthread_equal(t->owner, pthread_self());
    if (got) {
        t->owner = pthread_self();
        t->held++;
    }
    pthread_mutex_unlock(&t->lock);
    return got;
}

int stitch__device_turn(stitch__device *dev, const stitch__scope *scope, stitch_error **err)
{
    enum { RETRY_MS = 1 };

    while (dev->turns && !take(dev->turns)) {
        int rc = stitch__scope_sleep(scope, RETRY_MS, "waiting for another verification on this simulated device", err);
        if (rc)
            return rc;
    }
    return STITCH_OK;
}

void stitch__device_turn_end(stitch__device *dev)
{
    if (!dev->turns)
        return;
    pthread_mutex_lock(&dev->turns->lock);
    dev->turns->held--;
    pthread_mutex_unlock(&dev->turns->lock);
}
