/* SPDX-License-Identifier: MIT
 *
 * The context, options structs, cancellation and deadlines.
 */
#include <stdlib.h>

#include "base/context_private.h"

enum { MAX_TAIL = 4096 }; /* more than all fields that later versions may add */

int stitch__options_init(void *options, size_t size, size_t newest)
{
    if (!options || size < sizeof(size_t) || size > newest)
        return STITCH_E_INVALID;
    memset(options, 0, size);
    memcpy(options, &size, sizeof(size));
    return STITCH_OK;
}

int stitch__options_copy(const stitch_context *ctx, void *dst, size_t size, const void *src, const char *what,
                         stitch_error **err)
{
    size_t given;
    if (!src)
        return STITCH_OK;
    memcpy(&given, src, sizeof(given));
    if (given < sizeof(size_t))
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "%s: struct_size is %zu; initialise the struct with its _INIT macro or _init()", what,
                           given);
    if (given > size + MAX_TAIL) /* not a struct of ours: reading on to look for a non-zero byte would leave it */
        return stitch__err(
            ctx, err, STITCH_E_INVALID,
            "%s: struct_size is %zu, which is no size of this struct; initialise it with its _INIT macro or _init()",
            what, given);
    const unsigned char *bytes = src;
    for (size_t i = size; i < given; i++) {
        if (bytes[i])
            return stitch__err(
                ctx, err, STITCH_E_INVALID,
                "%s: the caller was built for a newer library and sets a field that this one does not know (byte %zu)",
                what, i);
    }
    memset(dst, 0, size);
    memcpy(dst, src, given < size ? given : size);
    memcpy(dst, &size, sizeof(size));
    return STITCH_OK;
}

int stitch_context_options_init(stitch_context_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_context_options));
}

/* auto | none | cuda:N | sim:sm_NN[a|f] */
static bool device_valid(const char *s)
{
    if (strcmp(s, "auto") == 0 || strcmp(s, "none") == 0)
        return true;
    bool sim = strncmp(s, "sim:sm_", 7) == 0;
    if (!sim && strncmp(s, "cuda:", 5) != 0)
        return false;
    const char *digits = s + (sim ? 7 : 5);
    size_t n = strspn(digits, "0123456789");
    const char *tail = digits + n;
    if (n == 0 || n > 4)
        return false;
    return !*tail || (sim && (*tail == 'a' || *tail == 'f') && !tail[1]);
}

static char *default_cache_dir(const stitch_context *ctx)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"STITCH_CACHE_DIR", NULL}, {"XDG_CACHE_HOME", "stitch"}, {"HOME", ".cache/stitch"}};
    for (size_t i = 0; i < STITCH__COUNT(places); i++) {
        const char *root = getenv(places[i].variable);
        if (root && (*root || i == 0))
            return places[i].below ? stitch__path_join(ctx, root, places[i].below) : stitch__strdup(ctx, root);
    }
    return stitch__strdup(ctx, "");
}

/* Checks what the caller gave and copies it: until then the context owns no strings. */
static int resolve(stitch_context *ctx, const stitch_context_options *given, stitch_error **err)
{
    stitch_context_options *o = &ctx->options;
    const char *device = given->device ? given->device : "auto";
    if (!device_valid(device))
        return stitch__err(NULL, err, STITCH_E_INVALID, "device '%s' is not known: use auto, none, cuda:N or sim:sm_NN",
                           device);
    if (given->log_level < STITCH_LOG_NONE || given->log_level > STITCH_LOG_DEBUG)
        return stitch__err(NULL, err, STITCH_E_INVALID, "log_level %d is not known: it goes from 0 to %d",
                           given->log_level, STITCH_LOG_DEBUG);
    o->log = given->log;
    o->log_userdata = given->log_userdata;
    o->log_level = given->log_level ? given->log_level : STITCH_LOG_WARN;
    o->cache_limit_bytes = given->cache_limit_bytes ? given->cache_limit_bytes : UINT64_C(1) << 30;
    o->get_proc = given->get_proc;
    o->get_proc_userdata = given->get_proc_userdata;
    o->device = stitch__strdup(ctx, device);
    o->cache_dir = given->cache_dir ? stitch__strdup(ctx, given->cache_dir) : default_cache_dir(ctx);
    o->cuda_path = stitch__strdup(ctx, given->cuda_path);
    if (!o->device || !o->cache_dir || (given->cuda_path && !o->cuda_path))
        return stitch__err_nomem(NULL, err);
    return STITCH_OK;
}

static int take_allocator(stitch_allocator *copy, const stitch_allocator *given, stitch_error **err)
{
    int rc = stitch__options_copy(NULL, copy, sizeof(*copy), given, "stitch_allocator", err);
    if (rc)
        return rc;
    if (!copy->alloc != !copy->realloc || !copy->alloc != !copy->free)
        return stitch__err(NULL, err, STITCH_E_INVALID,
                           "stitch_allocator: set alloc, realloc and free, or none of them");
    return STITCH_OK;
}

static int init_lock(stitch_context *ctx)
{
    pthread_mutexattr_t attr;
    int rc = pthread_mutexattr_init(&attr);
    if (rc)
        return rc;
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    rc = pthread_mutex_init(&ctx->lock, &attr);
    pthread_mutexattr_destroy(&attr);
    return rc;
}

int stitch_context_new(stitch_context **out, const stitch_context_options *options, stitch_error **err)
{
    stitch_context_options given = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context first = {.options = STITCH_CONTEXT_OPTIONS_INIT}; /* carries the allocator to the first allocation */
    stitch_context *ctx;
    int rc;

    if (!out)
        return stitch__err(NULL, err, STITCH_E_INVALID, "stitch_context_new: out must not be NULL");
    *out = NULL;
    if (options &&
        (rc = stitch__options_copy(NULL, &given, sizeof(given), options, "stitch_context_options", err)) != STITCH_OK)
        return rc;
    if (given.allocator) {
        if ((rc = take_allocator(&first.allocator, given.allocator, err)) != STITCH_OK)
            return rc;
        if (first.allocator.alloc)
            first.options.allocator = &first.allocator;
    }
    ctx = stitch__calloc(&first, 1, sizeof(*ctx));
    if (!ctx)
        return stitch__err_nomem(NULL, err);
    ctx->options.struct_size = sizeof(ctx->options);
    ctx->allocator = first.allocator;
    ctx->options.allocator = first.options.allocator ? &ctx->allocator : NULL;
    if (init_lock(ctx) != 0) {
        stitch_free(ctx);
        return stitch__err_nomem(NULL, err);
    }
    if ((rc = resolve(ctx, &given, err)) != STITCH_OK) {
        stitch_context_free(ctx);
        return rc;
    }
    *out = ctx;
    return STITCH_OK;
}

void stitch_context_free(stitch_context *ctx)
{
    if (!ctx)
        return;
    for (int i = STITCH__SLOT_COUNT - 1; i >= 0; i--) {
        if (ctx->slots[i].state && ctx->slots[i].destroy)
            ctx->slots[i].destroy(ctx->slots[i].state);
    }
    stitch_free((void *)(uintptr_t)ctx->options.device);
    stitch_free((void *)(uintptr_t)ctx->options.cache_dir);
    stitch_free((void *)(uintptr_t)ctx->options.cuda_path);
    pthread_mutex_destroy(&ctx->lock);
    stitch_free(ctx);
}

const stitch_context_options *stitch__context_options(const stitch_context *ctx)
{
    return &ctx->options;
}

int stitch__context_slot(stitch_context *ctx, enum stitch__slot slot, stitch__slot_make make,
                         void (*destroy)(void *state), void **state, stitch_error **err)
{
    int rc = STITCH_OK;
    pthread_mutex_lock(&ctx->lock);
    if (!ctx->slots[slot].state) {
        void *made = NULL;
        rc = make(ctx, &made, err);
        if (rc == STITCH_OK) {
            ctx->slots[slot].state = made;
            ctx->slots[slot].destroy = destroy;
        }
    }
    *state = ctx->slots[slot].state;
    pthread_mutex_unlock(&ctx->lock);
    return rc;
}

void *stitch__context_slot_peek(stitch_context *ctx, enum stitch__slot slot)
{
    pthread_mutex_lock(&ctx->lock);
    void *state = ctx->slots[slot].state;
    pthread_mutex_unlock(&ctx->lock);
    return state;
}

/* ---- cancellation and deadlines ---- */

int stitch_cancel_new(stitch_cancel **out)
{
    if (!out)
        return STITCH_E_INVALID;
    *out = stitch__calloc(NULL, 1, sizeof(**out));
    return *out ? STITCH_OK : STITCH_E_NOMEM;
}

void stitch_cancel_trigger(stitch_cancel *c)
{
    if (c)
        atomic_store(&c->triggered, 1);
}

void stitch_cancel_reset(stitch_cancel *c)
{
    if (c)
        atomic_store(&c->triggered, 0);
}

bool stitch_cancel_triggered(const stitch_cancel *c)
{
    return c && atomic_load(&((stitch_cancel *)(uintptr_t)c)->triggered) != 0;
}

void stitch_cancel_free(stitch_cancel *c)
{
    stitch_free(c);
}

void stitch_context_cancel(stitch_context *ctx)
{
    if (ctx)
        stitch_cancel_trigger(&ctx->cancel);
}

void stitch_context_cancel_reset(stitch_context *ctx)
{
    if (ctx)
        stitch_cancel_reset(&ctx->cancel);
}

const stitch_cancel *stitch__context_token(const stitch_context *ctx)
{
    return ctx ? &ctx->cancel : NULL;
}

stitch__scope stitch__scope_make(stitch_context *ctx, const stitch_cancel *cancel, int64_t timeout_ms)
{
    stitch__scope s = {ctx, cancel, 0};
    if (timeout_ms > 0) {
        int64_t now = stitch__now_ns();
        s.deadline_ns = timeout_ms > (INT64_MAX - now) / 1000000 ? INT64_MAX : now + timeout_ms * 1000000;
    }
    return s;
}

bool stitch__scope_ended(const stitch__scope *s)
{
    return stitch_cancel_triggered(s->cancel) || (s->ctx && stitch_cancel_triggered(&s->ctx->cancel)) ||
           (s->deadline_ns && stitch__now_ns() >= s->deadline_ns);
}

int stitch__scope_check(const stitch__scope *s, const char *what, stitch_error **err)
{
    if (stitch_cancel_triggered(s->cancel) || (s->ctx && stitch_cancel_triggered(&s->ctx->cancel)))
        return stitch__err(s->ctx, err, STITCH_E_CANCELLED, "%s was cancelled", what);
    if (s->deadline_ns && stitch__now_ns() >= s->deadline_ns)
        return stitch__err(s->ctx, err, STITCH_E_TIMEOUT, "%s did not end before its deadline", what);
    return STITCH_OK;
}

int64_t stitch__scope_left_ms(const stitch__scope *s, int64_t limit)
{
    if (!s->deadline_ns)
        return limit > 0 ? limit : 0;
    int64_t left = (s->deadline_ns - stitch__now_ns()) / 1000000;
    left = left > 0 ? left : 0;
    return left < limit ? left : limit > 0 ? limit : 0;
}

int64_t stitch__scope_timeout_ms(const stitch__scope *s)
{
    int64_t left = stitch__scope_left_ms(s, INT64_MAX);
    return left > 1 ? left : 1;
}

int stitch__scope_sleep(const stitch__scope *s, int64_t ms, const char *what, stitch_error **err)
{
    enum { SLICE_MS = 5 }; /* how late a cancellation may be noticed */
    int64_t now = stitch__now_ns();
    int64_t end = ms > (INT64_MAX - now) / 1000000 ? INT64_MAX : now + (ms > 0 ? ms : 0) * 1000000;
    for (;;) {
        int rc = stitch__scope_check(s, what, err);
        int64_t left = end - stitch__now_ns();
        if (rc || left <= 0)
            return rc;
        stitch__sleep_ms(left / 1000000 < SLICE_MS ? left / 1000000 + 1 : SLICE_MS);
    }
}
