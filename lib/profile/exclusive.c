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
    bool graph_traced;
} hold = {PTHREAD_MUTEX_INITIALIZER, NULL, false};

int stitch__exclusive_claim(const stitch_context *ctx, const char *what, stitch_error **err)
{
    pthread_mutex_lock(&hold.lock);
    const char *holder = hold.holder;
    if (!holder)
        hold.holder = what;
    pthread_mutex_unlock(&hold.lock);
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
    pthread_mutex_unlock(&hold.lock);
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
