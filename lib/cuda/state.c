/* SPDX-License-Identifier: MIT
 *
 * The cuda module's state of a context: made empty by the first use, filled as libraries and the device are asked for.
 */
#include "cuda/guards.h"
#include "cuda/internal.h"

static void state_free(void *state)
{
    stitch__cuda *cuda = state;
    stitch__guards_close(&cuda->device);
    if (cuda->device_ready)
        stitch__device_close(cuda);
    stitch__arena_free(&cuda->arena);
    pthread_mutex_destroy(&cuda->lock);
    stitch_free(cuda);
}

static int state_make(stitch_context *ctx, void **state, stitch_error **err)
{
    stitch__cuda *cuda = stitch__calloc(ctx, 1, sizeof(*cuda));
    if (!cuda)
        return stitch__err_nomem(ctx, err);
    cuda->ctx = ctx;
    cuda->arena.ctx = ctx;
    if (pthread_mutex_init(&cuda->lock, NULL) != 0) {
        stitch_free(cuda);
        return stitch__err_nomem(ctx, err);
    }
    *state = cuda;
    return STITCH_OK;
}

int stitch__cuda_state(stitch_context *ctx, stitch__cuda **out, stitch_error **err)
{
    void *state = NULL;
    *out = NULL;
    if (!ctx)
        return stitch__err(NULL, err, STITCH_E_INVALID, "the context must not be NULL");
    int rc = stitch__context_slot(ctx, STITCH__SLOT_CUDA, state_make, state_free, &state, err);
    *out = state;
    return rc;
}

typedef int open_fn(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err);

/* The state after `open` has filled the part of it whose flag is at `ready`. */
static int opened(stitch_context *ctx, size_t ready, open_fn *open, stitch__cuda **cuda, stitch_error **err)
{
    int rc = stitch__cuda_state(ctx, cuda, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&(*cuda)->lock);
    if (!*(const bool *)((const char *)*cuda + ready))
        rc = open(*cuda, NULL, err);
    pthread_mutex_unlock(&(*cuda)->lock);
    return rc;
}

static int open_device(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err)
{
    (void)tried;
    return stitch__device_open(cuda, err);
}

int stitch__device_get(stitch_context *ctx, stitch__device **out, stitch_error **err)
{
    stitch__cuda *cuda;
    int rc = opened(ctx, offsetof(stitch__cuda, device_ready), open_device, &cuda, err);
    *out = rc ? NULL : &cuda->device;
    return rc;
}

int stitch__nvrtc_get(stitch_context *ctx, const stitch__nvrtc **out, stitch_error **err)
{
    stitch__cuda *cuda;
    int rc = opened(ctx, offsetof(stitch__cuda, nvrtc_ready), stitch__nvrtc_open, &cuda, err);
    *out = rc ? NULL : &cuda->nvrtc;
    return rc;
}

int stitch__nvrtc_includes(stitch_context *ctx, stitch__buf *out, stitch_error **err)
{
    const stitch__nvrtc *nvrtc;
    stitch__cuda *cuda;
    int rc = stitch__cuda_state(ctx, &cuda, err);

    if (!rc)
        rc = stitch__nvrtc_get(ctx, &nvrtc, err);
    for (size_t i = 0; !rc && cuda->includes[i]; i++)
        stitch__buf_printf(out, "%s\n", cuda->includes[i]);
    return rc || !out->failed ? rc : stitch__err_nomem(ctx, err);
}

int stitch__cublaslt_get(stitch_context *ctx, const stitch__cublaslt **out, stitch_error **err)
{
    stitch__cuda *cuda;
    int rc = opened(ctx, offsetof(stitch__cuda, cublaslt_ready), stitch__cublaslt_open, &cuda, err);
    *out = rc ? NULL : &cuda->cublaslt;
    return rc;
}

size_t stitch__cublaslt_version(stitch_context *ctx)
{
    stitch__cuda *cuda;
    size_t version;

    if (stitch__cuda_state(ctx, &cuda, NULL))
        return 0;
    pthread_mutex_lock(&cuda->lock);
    version = cuda->cublaslt_ready ? cuda->cublaslt.version : 0;
    pthread_mutex_unlock(&cuda->lock);
    return version;
}

int stitch__cupti_get(stitch_context *ctx, const stitch__cupti **out, stitch_error **err)
{
    stitch__cuda *cuda;
    int rc = opened(ctx, offsetof(stitch__cuda, cupti_ready), stitch__cupti_open, &cuda, err);
    *out = rc ? NULL : &cuda->cupti;
    return rc;
}
