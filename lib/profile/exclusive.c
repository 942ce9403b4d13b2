/* SPDX-License-Identifier: MIT
 *
 * See exclusive.h.
 */
#include <pthread.h>

#include "profile/exclusive.h"

/* One a process, as CUPTI is. */
static struct {
    pthread_mutex_t lock;
    const char *holder; /* NULL: nobody */
    bool left;          /* the holder is gone and did not release it */
    bool graph_traced;
} hold = {PTHREAD_MUTEX_INITIALIZER, NULL, false, false};

int stitch__exclusive_claim(const stitch_context *ctx, const char *what, stitch_error **err)
{
    pthread_mutex_lock(&hold.lock);
    const char *holder = hold.holder;
    bool left = hold.left;
    if (!holder)
        hold.holder = what;
    pthread_mutex_unlock(&hold.lock);
    if (left)
        return stitch__err(
            ctx, err, STITCH_E_BUSY,
            "CUPTI is still used by %s that could not be ended, because the device did not get done with "
            "its work: only a new process can trace or profile again",
            holder);
    if (holder)
        return stitch__err(ctx, err, STITCH_E_BUSY,
                           "%s runs in this process already, and CUPTI serves one user at a time: end it first",
                           holder);
    return STITCH_OK;
}

void stitch__exclusive_release(void)
{
    pthread_mutex_lock(&hold.lock);
    hold.holder = NULL;
    hold.left = false;
    pthread_mutex_unlock(&hold.lock);
}

void stitch__exclusive_leave(const stitch_context *ctx)
{
    pthread_mutex_lock(&hold.lock);
    hold.left = true;
    const char *holder = hold.holder;
    pthread_mutex_unlock(&hold.lock);
    stitch__log(
        ctx, STITCH_LOG_ERROR,
        "the device does not get done with its work: %s is left as it is, and this process can neither trace nor "
        "profile any more",
        holder);
}

bool stitch__exclusive_left(void)
{
    pthread_mutex_lock(&hold.lock);
    bool left = hold.left;
    pthread_mutex_unlock(&hold.lock);
    return left;
}

void stitch__exclusive_note_graph(void)
{
    pthread_mutex_lock(&hold.lock);
    hold.graph_traced = true;
    pthread_mutex_unlock(&hold.lock);
}

bool stitch__exclusive_graph_traced(void)
{
    pthread_mutex_lock(&hold.lock);
    bool traced = hold.graph_traced;
    pthread_mutex_unlock(&hold.lock);
    return traced;
}

/* A subscriber must have one; no callback is enabled. */
static void on_callback(void *userdata, int domain, uint32_t id, const void *data)
{
}

int stitch__exclusive_subscribe(const stitch_context *ctx, const stitch__cupti *cupti, void **subscriber,
                                stitch_error **err)
{
    char holder[STITCH__CUPTI_HOLDER_SIZE + 1] = "";
    const char *call = "cuptiSubscribe_v2";
    int result;
    if (cupti->SubscribeNamed) {
        stitch__cupti_subscriber_params params = {sizeof(params), "libstitch", holder, STITCH__CUPTI_HOLDER_SIZE};
        result = cupti->SubscribeNamed(subscriber, on_callback, NULL, &params);
    } else {
        call = "cuptiSubscribe";
        result = cupti->Subscribe(subscriber, on_callback, NULL);
    }
    holder[STITCH__CUPTI_HOLDER_SIZE] = '\0';
    if (result != STITCH__CUPTI_OK)
        *subscriber = NULL;
    return stitch__cupti_check(ctx, cupti, result, call, holder, err);
}
