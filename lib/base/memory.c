/* SPDX-License-Identifier: MIT
 *
 * Memory through the context's allocator, arenas, growing arrays.
 */
#include <stdlib.h>

#include "base/base.h"
#include "base/context_private.h"

/* In front of every block: who frees it. Blocks may outlive their context (errors do), so the functions are copied.
 * Its size is a multiple of the strictest alignment, so that what follows is aligned for any type. */
typedef union header {
    struct {
        void *(*realloc)(void *ptr, size_t size, void *userdata);
        void (*free)(void *ptr, void *userdata);
        void *userdata;
    } by;
    max_align_t align;
} header;

static const stitch_allocator *allocator_of(const stitch_context *ctx)
{
    return ctx && ctx->options.allocator ? ctx->options.allocator : NULL;
}

void *stitch__alloc(const stitch_context *ctx, size_t size)
{
    const stitch_allocator *a = allocator_of(ctx);
    if (size > SIZE_MAX - sizeof(header))
        return NULL;
    header *h = a ? a->alloc(size + sizeof(header), a->userdata) : malloc(size + sizeof(header));
    if (!h)
        return NULL;
    h->by.realloc = a ? a->realloc : NULL;
    h->by.free = a ? a->free : NULL;
    h->by.userdata = a ? a->userdata : NULL;
    return h + 1;
}

void *stitch__calloc(const stitch_context *ctx, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    void *ptr = stitch__alloc(ctx, count * size);
    if (ptr)
        memset(ptr, 0, count * size);
    return ptr;
}

void *stitch__realloc(const stitch_context *ctx, void *ptr, size_t size)
{
    if (!ptr)
        return stitch__alloc(ctx, size);
    if (size > SIZE_MAX - sizeof(header))
        return NULL;
    header *h = (header *)ptr - 1;
    h = h->by.realloc ? h->by.realloc(h, size + sizeof(header), h->by.userdata) : realloc(h, size + sizeof(header));
    return h ? h + 1 : NULL;
}

void stitch_free(void *ptr)
{
    if (!ptr)
        return;
    header *h = (header *)ptr - 1;
    if (h->by.free)
        h->by.free(h, h->by.userdata);
    else
        free(h);
}

char *stitch__strndup(const stitch_context *ctx, const char *s, size_t len)
{
    char *copy = len < SIZE_MAX ? stitch__alloc(ctx, len + 1) : NULL;
    if (copy) {
        if (len)
            memcpy(copy, s, len);
        copy[len] = 0;
    }
    return copy;
}

char *stitch__strdup(const stitch_context *ctx, const char *s)
{
    return s ? stitch__strndup(ctx, s, strlen(s)) : NULL;
}

int stitch__grow(const stitch_context *ctx, void *array_ptr, size_t *cap, size_t need, size_t elem_size)
{
    void *array;
    memcpy(&array, array_ptr, sizeof(array)); /* a pointer of any object type */
    if (need <= *cap)
        return STITCH_OK;
    size_t next = *cap ? *cap : 8;
    while (next < need) {
        if (next > SIZE_MAX / 2)
            return STITCH_E_NOMEM;
        next *= 2;
    }
    if (next > SIZE_MAX / elem_size)
        return STITCH_E_NOMEM;
    array = stitch__realloc(ctx, array, next * elem_size);
    if (!array)
        return STITCH_E_NOMEM;
    memcpy(array_ptr, &array, sizeof(array));
    *cap = next;
    return STITCH_OK;
}

/* ---- arenas ---- */

enum { ARENA_BLOCK = 4096, ARENA_ALIGN = 16 };

struct stitch__arena_block {
    struct stitch__arena_block *next;
    size_t used, size;
    max_align_t data[];
};

void *stitch__arena_alloc(stitch__arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    struct stitch__arena_block *b = a->blocks;
    if (!b || b->size - b->used < size) {
        size_t room = size > ARENA_BLOCK ? size : ARENA_BLOCK;
        struct stitch__arena_block *fresh = stitch__alloc(a->ctx, sizeof(*fresh) + room);
        if (!fresh)
            return NULL;
        fresh->used = 0;
        fresh->size = room;
        if (b && room > ARENA_BLOCK) { /* a large block goes behind, so that the rest of the current one stays usable */
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            a->blocks = fresh;
        }
        b = fresh;
    }
    void *ptr = (char *)b->data + b->used;
    b->used += size;
    memset(ptr, 0, size);
    return ptr;
}

void *stitch__arena_array(stitch__arena *a, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size)
        return NULL;
    return stitch__arena_alloc(a, count * size);
}

char *stitch__arena_strndup(stitch__arena *a, const char *s, size_t len)
{
    char *copy = len < SIZE_MAX ? stitch__arena_alloc(a, len + 1) : NULL;
    if (copy && len)
        memcpy(copy, s, len);
    return copy;
}

char *stitch__arena_strdup(stitch__arena *a, const char *s)
{
    return s ? stitch__arena_strndup(a, s, strlen(s)) : NULL;
}

char *stitch__arena_printf(stitch__arena *a, const char *fmt, ...)
{
    stitch__buf b;
    va_list ap;
    stitch__buf_init(&b, a->ctx);
    va_start(ap, fmt);
    stitch__buf_vprintf(&b, fmt, ap);
    va_end(ap);
    char *copy = b.failed ? NULL : stitch__arena_strndup(a, b.data ? b.data : "", b.len);
    stitch__buf_free(&b);
    return copy;
}

void stitch__arena_free(stitch__arena *a)
{
    while (a->blocks) {
        struct stitch__arena_block *next = a->blocks->next;
        stitch_free(a->blocks);
        a->blocks = next;
    }
}
