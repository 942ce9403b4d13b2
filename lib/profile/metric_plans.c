/* SPDX-License-Identifier: MIT
 *
 * Plans that a context keeps for its next collection: CUPTI takes milliseconds to make one, and it comes out the same
 * each time. One for each set: a plan with metrics by name, or for a part of a device, is made each time. A plan has
 * one user, who takes it away and brings it back if all went well.
 */
#include <pthread.h>

#include "profile/metric_plan.h"

enum { SETS = STITCH__METRIC_FULL + 1 };

typedef struct shelf {
    pthread_mutex_t lock;
    bool there[SETS];
    stitch__metric_plan plans[SETS];
} shelf;

static void forget(shelf *s)
{
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SETS; i++) {
        if (s->there[i])
            stitch__metric_plan_free(&s->plans[i]);
        s->there[i] = false;
    }
    pthread_mutex_unlock(&s->lock);
}

static int make(stitch_context *ctx, void **state, stitch_error **err)
{
    shelf *s = stitch__calloc(ctx, 1, sizeof(*s));
    if (!s)
        return stitch__err_nomem(ctx, err);
    pthread_mutex_init(&s->lock, NULL);
    *state = s;
    return STITCH_OK;
}

static void destroy(void *state)
{
    shelf *s = state;
    forget(s);
    pthread_mutex_destroy(&s->lock);
    stitch_free(s);
}

bool stitch__metric_plan_take(stitch_context *ctx, const stitch__cupti *cupti, const char *chip, int set,
                              stitch__metric_plan *out)
{
    shelf *s = stitch__context_slot_peek(ctx, STITCH__SLOT_PROFILE);
    if (!s || set < 0 || set >= SETS)
        return false;
    pthread_mutex_lock(&s->lock);
    const stitch__metric_plan *p = &s->plans[set];
    bool fits = s->there[set] && p->cupti == cupti && strcmp(p->chip, chip) == 0;
    if (fits)
        *out = *p;
    s->there[set] = s->there[set] && !fits;
    pthread_mutex_unlock(&s->lock);
    return fits;
}

void stitch__metric_plan_keep(stitch_context *ctx, int set, stitch__metric_plan *plan)
{
    void *state = NULL;
    stitch__metric_plan old = *plan;
    if (plan->host && !plan->availability && plan->extra_count == 0 && set >= 0 && set < SETS &&
        stitch__context_slot(ctx, STITCH__SLOT_PROFILE, make, destroy, &state, NULL) == STITCH_OK) {
        shelf *s = state;
        pthread_mutex_lock(&s->lock);
        if (s->there[set])
            old = s->plans[set];
        else
            memset(&old, 0, sizeof(old));
        s->plans[set] = *plan;
        s->there[set] = true;
        pthread_mutex_unlock(&s->lock);
    }
    stitch__metric_plan_free(&old);
    memset(plan, 0, sizeof(*plan));
}

void stitch__metric_plans_forget(stitch_context *ctx)
{
    shelf *s = stitch__context_slot_peek(ctx, STITCH__SLOT_PROFILE);
    if (s)
        forget(s);
}
