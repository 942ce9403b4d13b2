/* SPDX-License-Identifier: MIT
 *
 * Limits on tokens and cost.
 */
#include <pthread.h>

#include "model/model.h"

struct stitch_budget {
    pthread_mutex_t lock;
    int64_t max_tokens, tokens, requests;
    double max_cost, cost;
};

int stitch_budget_new(stitch_context *ctx, int64_t max_tokens, double max_cost, stitch_budget **out, stitch_error **err)
{
    if (!out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_budget_new: out must not be NULL");
    *out = NULL;
    if (!ctx || max_tokens < 0 || !(max_cost >= 0))
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_budget_new: limits must not be negative");
    stitch_budget *b = stitch__calloc(ctx, 1, sizeof(*b));
    if (!b)
        return stitch__err_nomem(ctx, err);
    if (pthread_mutex_init(&b->lock, NULL) != 0) {
        stitch_free(b);
        return stitch__err_nomem(ctx, err);
    }
    b->max_tokens = max_tokens;
    b->max_cost = max_cost;
    *out = b;
    return STITCH_OK;
}

void stitch_budget_free(stitch_budget *b)
{
    if (!b)
        return;
    pthread_mutex_destroy(&b->lock);
    stitch_free(b);
}

void stitch_budget_used(const stitch_budget *budget, int64_t *tokens, double *cost, int64_t *requests)
{
    stitch_budget *b = (stitch_budget *)(uintptr_t)budget;
    if (b)
        pthread_mutex_lock(&b->lock);
    if (tokens)
        *tokens = b ? b->tokens : 0;
    if (cost)
        *cost = b ? b->cost : 0;
    if (requests)
        *requests = b ? b->requests : 0;
    if (b)
        pthread_mutex_unlock(&b->lock);
}

int stitch__budget_check(const stitch_budget *b, const stitch_context *ctx, stitch_error **err)
{
    int64_t tokens;
    double cost;
    if (!b)
        return STITCH_OK;
    stitch_budget_used(b, &tokens, &cost, NULL);
    if (b->max_tokens && tokens >= b->max_tokens)
        return stitch__err(ctx, err, STITCH_E_BUDGET, "the budget of %" PRId64 " tokens is spent (%" PRId64 " used)",
                           b->max_tokens, tokens);
    if (b->max_cost > 0 && cost >= b->max_cost)
        return stitch__err(ctx, err, STITCH_E_BUDGET, "the budget of %g is spent (%g used)", b->max_cost, cost);
    return STITCH_OK;
}

void stitch__budget_add(stitch_budget *b, int64_t tokens, double cost, int64_t requests)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->tokens = tokens > INT64_MAX - b->tokens ? INT64_MAX : b->tokens + tokens;
    b->cost += cost;
    b->requests += requests;
    pthread_mutex_unlock(&b->lock);
}

int64_t stitch__budget_estimate(uint64_t bytes)
{
    return (int64_t)(bytes / 4 + (bytes % 4 != 0));
}
