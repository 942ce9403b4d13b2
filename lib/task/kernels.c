/* SPDX-License-Identifier: MIT
 *
 * The library's own device code: compiled when it is first needed, through the same compile cache as everything else,
 * and kept with the context.
 */
#include "task/task.h"

#include <pthread.h>

static const char preamble[] = "#define STITCH__FN static __device__ __forceinline__\n"
                               "#define STITCH__FMA(a, b, c) __fma_rn(a, b, c)\n"
                               "#define STITCH__MUL(a, b) __dmul_rn(a, b)\n"
                               "#define STITCH__SQRT(a) __dsqrt_rn(a)\n"
                               "#define STITCH__MULHI(a, b) __umul64hi(a, b)\n";

typedef struct kernel_state {
    pthread_mutex_t lock; /* own: compiling takes long and must not hold the context's */
    bool loaded;
    stitch__module module;
    stitch__kernels kernels;
} kernel_state;

static int make_state(stitch_context *ctx, void **state, stitch_error **err)
{
    kernel_state *s = stitch__calloc(ctx, 1, sizeof(*s));
    if (!s)
        return stitch__err_nomem(ctx, err);
    pthread_mutex_init(&s->lock, NULL);
    *state = s;
    return STITCH_OK;
}

static void free_state(void *state)
{
    kernel_state *s = state;
    if (s->loaded)
        stitch__module_unload(&s->module);
    pthread_mutex_destroy(&s->lock);
    stitch_free(s);
}

enum { RETRY_MS = 2 };

static int load(kernel_state *s, stitch__device *dev, const stitch__scope *scope, const char *const *parts,
                size_t part_count, const char *const *names, size_t name_count, stitch_error **err)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *image = NULL;
    stitch__buf b;
    char *source;
    int rc;

    stitch__buf_init(&b, dev->ctx);
    stitch__buf_puts(&b, preamble);
    for (size_t i = 0; i < part_count; i++)
        stitch__buf_puts(&b, parts[i]);
    source = stitch__buf_take(&b, NULL);
    if (!source)
        return stitch__err_nomem(dev->ctx, err);
    options.names = names;
    options.name_count = name_count;
    if (scope) {
        options.cancel = scope->cancel;
        options.timeout_ms = stitch__scope_timeout_ms(scope);
    }
    rc = stitch_compile(dev->ctx, source, &options, &image, err);
    if (rc) {
        stitch__err_prefix(err, "the library's own kernel %s: ", names[0]);
        goto out;
    }
    rc = stitch__device_enter(dev, err);
    if (rc)
        goto out;
    rc = stitch__module_load(dev, image, &s->module, err);
    stitch__device_leave(dev);
    for (size_t i = 0; !rc && i < name_count; i++) {
        size_t index;
        rc = stitch_image_find(image, names[i], &index);
        if (rc || index >= s->module.kernel_count)
            rc = stitch__err(dev->ctx, err, STITCH_E_INTERNAL, "kernel %s is not in its own image", names[i]);
        else
            s->kernels.kernels[i] = s->module.kernels[index];
    }
    if (rc)
        stitch__module_unload(&s->module);
    else
        s->loaded = true;
out:
    stitch_image_free(image);
    stitch_free(source);
    return rc;
}

/* Another thread may compile, for as long as its own scope lets it. */
static int take(kernel_state *s, const stitch__scope *scope, stitch_error **err)
{
    int rc = STITCH_OK;

    if (!scope)
        return pthread_mutex_lock(&s->lock) == 0 ? STITCH_OK : STITCH_E_INTERNAL;
    while (!rc && pthread_mutex_trylock(&s->lock) != 0)
        rc = stitch__scope_sleep(scope, RETRY_MS, "waiting for the library's own kernels", err);
    return rc;
}

int stitch__kernels_get(stitch__device *dev, const stitch__scope *scope, enum stitch__slot slot,
                        const char *const *parts, size_t part_count, const char *const *names, size_t name_count,
                        const stitch__kernels **out, stitch_error **err)
{
    void *state = NULL;
    kernel_state *s;
    int rc = stitch__context_slot(dev->ctx, slot, make_state, free_state, &state, err);

    *out = NULL;
    if (rc)
        return rc;
    s = state;
    rc = take(s, scope, err);
    if (rc)
        return rc;
    if (!s->loaded)
        rc = load(s, dev, scope, parts, part_count, names, name_count, err);
    pthread_mutex_unlock(&s->lock);
    if (!rc)
        *out = &s->kernels;
    return rc;
}

unsigned stitch__kernels_grid(const stitch__device *dev, uint64_t threads)
{
    uint64_t blocks = threads / 256 + (threads % 256 != 0);
    uint64_t most = (uint64_t)(dev->info.multiprocessors > 0 ? dev->info.multiprocessors : 1) * 16;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}
