/* SPDX-License-Identifier: MIT
 *
 * Compiled images on disk: <cache>/images/xx/<key>.img, where the key is the hash of everything that decides what is in
 * them. A file appears by a rename, so that several processes may share the folder; one that is damaged is a miss and
 * is removed. A hit sets the file's time; when the folder outgrows its limit, the oldest files go.
 *
 * Failed compilations are not kept: they are seldom asked for twice, and some come from the machine (memory, headers).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cuda/internal.h"

/* magic, key, length of the meta text, length of the code, checksum of both: all little-endian */
enum { MAGIC_BYTES = 8, KEY_BYTES = 64, HEADER_BYTES = MAGIC_BYTES + KEY_BYTES + 24, STALE_SECONDS = 3600 };
static const char magic[MAGIC_BYTES + 1] = "STCHIMG1";
#define MAX_FILE_BYTES (UINT64_C(512) << 20)

static void put64(char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (char)(v >> (8 * i));
}

static uint64_t get64(const char *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

/* Against damage, not against malice: who can write here can run code as this user anyway. Eight bytes a step, because
 * a hit must not cost more than reading the file. */
static uint64_t checksum(const char *data, size_t len)
{
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ len;
    while (len > 0) {
        char block[8] = {0};
        size_t n = len < 8 ? len : 8;
        memcpy(block, data, n);
        h = (h ^ get64(block)) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
        data += n;
        len -= n;
    }
    return h;
}

static char *path_of(const stitch_context *ctx, const char *key, bool folder)
{
    stitch__buf b;
    stitch__buf_init(&b, ctx);
    stitch__buf_printf(&b, "%s/images/%.2s", stitch__context_options(ctx)->cache_dir, key);
    if (!folder)
        stitch__buf_printf(&b, "/%s.img", key);
    return stitch__buf_take(&b, NULL);
}

/* NULL: not a sound file. */
static stitch_image *decode(stitch_context *ctx, const char *key, const char *file, size_t len)
{
    if (len < HEADER_BYTES || memcmp(file, magic, MAGIC_BYTES) != 0 || memcmp(file + MAGIC_BYTES, key, KEY_BYTES) != 0)
        return NULL;
    const char *numbers = file + MAGIC_BYTES + KEY_BYTES, *body = file + HEADER_BYTES;
    uint64_t meta_len = get64(numbers), code_len = get64(numbers + 8), rest = len - HEADER_BYTES;
    if (meta_len > rest || code_len != rest - meta_len || get64(numbers + 16) != checksum(body, (size_t)rest))
        return NULL;
    json_t *meta = NULL;
    stitch_image *image = NULL;
    if (stitch__json_parse(ctx, body, (size_t)meta_len, 0, "cached image", &meta, NULL) == STITCH_OK)
        stitch__image_restore(ctx, body + meta_len, (size_t)code_len, meta, &image, NULL);
    json_decref(meta);
    return image;
}

stitch_image *stitch__cache_load(stitch_context *ctx, const char *key)
{
    char *path = path_of(ctx, key, false), *file = NULL;
    size_t len = 0;
    stitch_image *image = NULL;
    if (path && access(path, R_OK) == 0 &&
        stitch__file_read(ctx, path, MAX_FILE_BYTES, &file, &len, NULL) == STITCH_OK) {
        image = decode(ctx, key, file, len);
        if (image) {
            image->cached = true;
            utimensat(AT_FDCWD, path, NULL, 0); /* recently used; of no consequence where the folder is read-only */
        } else {
            stitch__log(ctx, STITCH_LOG_WARN, "the cached image %s is damaged: it is removed and compiled again", path);
            unlink(path);
        }
    }
    stitch_free(file);
    stitch_free(path);
    return image;
}

/* ---- size limit ---- */

typedef struct entry {
    char *path;
    uint64_t size;
    int64_t time;
} entry;

typedef struct entries {
    stitch__arena arena;
    entry *list;
    size_t count, cap;
    uint64_t total;
} entries;

static bool ends_in(const char *name, const char *tail)
{
    size_t n = strlen(name), t = strlen(tail);
    return n > t && strcmp(name + n - t, tail) == 0;
}

/* The files of one xx folder. What a killed process left half-written goes at once. */
static void list_folder(entries *e, const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *d;
    while (dir && (d = readdir(dir)) != NULL) {
        struct stat st;
        bool whole = ends_in(d->d_name, ".img"), part = ends_in(d->d_name, ".tmp");
        if ((!whole && !part) || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (part) {
            if (time(NULL) - st.st_mtime > STALE_SECONDS)
                unlinkat(dirfd(dir), d->d_name, 0);
            continue;
        }
        char *path = stitch__arena_printf(&e->arena, "%s/%s", folder, d->d_name);
        if (!path || stitch__grow(e->arena.ctx, &e->list, &e->cap, e->count + 1, sizeof(*e->list)) != STITCH_OK)
            break;
        e->list[e->count++] =
            (entry){path, (uint64_t)st.st_size, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
        e->total += (uint64_t)st.st_size;
    }
    if (dir)
        closedir(dir);
}

static int older(const void *a, const void *b)
{
    int64_t x = ((const entry *)a)->time, y = ((const entry *)b)->time;
    return (x > y) - (x < y);
}

void stitch__cache_trim(const stitch_context *ctx, uint64_t limit)
{
    entries e = {.arena = {.ctx = ctx}};
    char *root = stitch__path_join(ctx, stitch__context_options(ctx)->cache_dir, "images");
    for (int i = 0; root && i < 256; i++) {
        char folder[PATH_MAX];
        if ((size_t)snprintf(folder, sizeof(folder), "%s/%02x", root, (unsigned)i) < sizeof(folder))
            list_folder(&e, folder);
    }
    if (e.total > limit) {
        qsort(e.list, e.count, sizeof(*e.list), older);
        /* Down to nine tenths, so that the next file does not start this again. */
        for (size_t i = 0; i < e.count && e.total > limit / 10 * 9; i++) {
            if (unlink(e.list[i].path) == 0 || errno == ENOENT)
                e.total -= e.list[i].size;
        }
    }
    stitch_free(e.list);
    stitch__arena_free(&e.arena);
    stitch_free(root);
}

/* Looking at the whole folder is for the first file and for every sixteenth part of the limit. */
static void trim_sometimes(stitch_context *ctx, uint64_t written)
{
    stitch__cuda *cuda;
    uint64_t limit = stitch__context_options(ctx)->cache_limit_bytes;
    if (stitch__cuda_state(ctx, &cuda, NULL) != STITCH_OK)
        return;
    pthread_mutex_lock(&cuda->lock);
    cuda->cache_written += written;
    bool due = !cuda->cache_trimmed || cuda->cache_written > limit / 16;
    if (due) {
        cuda->cache_trimmed = true;
        cuda->cache_written = 0;
    }
    pthread_mutex_unlock(&cuda->lock);
    if (due)
        stitch__cache_trim(ctx, limit);
}

/* Once a context: the reason rarely changes, and there may be thousands of images. */
static void say_unwritten(stitch_context *ctx, const stitch_error *why)
{
    stitch__cuda *cuda;
    if (stitch__cuda_state(ctx, &cuda, NULL) != STITCH_OK)
        return;
    pthread_mutex_lock(&cuda->lock);
    bool said = cuda->cache_unwritten;
    cuda->cache_unwritten = true;
    pthread_mutex_unlock(&cuda->lock);
    stitch__log(ctx, said ? STITCH_LOG_DEBUG : STITCH_LOG_WARN, "the compile cache is not written: %s",
                stitch_error_message(why));
}

void stitch__cache_store(stitch_context *ctx, const char *key, const stitch_image *image)
{
    json_t *meta = stitch__image_meta(image);
    char *text = meta ? stitch__json_dump(ctx, meta, 0) : NULL;
    char *folder = path_of(ctx, key, true), *path = path_of(ctx, key, false);
    stitch_error *why = NULL;
    stitch__buf b;
    stitch__buf_init(&b, ctx);
    if (!text || !folder || !path)
        goto out;
    size_t meta_len = strlen(text);
    char header[HEADER_BYTES] = {0};
    memcpy(header, magic, MAGIC_BYTES);
    memcpy(header + MAGIC_BYTES, key, KEY_BYTES);
    put64(header + MAGIC_BYTES + KEY_BYTES, meta_len);
    put64(header + MAGIC_BYTES + KEY_BYTES + 8, image->size);
    stitch__buf_append(&b, header, sizeof(header));
    stitch__buf_append(&b, text, meta_len);
    stitch__buf_append(&b, image->data, image->size);
    if (b.failed)
        goto out;
    put64(b.data + MAGIC_BYTES + KEY_BYTES + 16, checksum(b.data + HEADER_BYTES, b.len - HEADER_BYTES));
    if (stitch__mkdirs(ctx, folder, &why) != STITCH_OK ||
        stitch__file_write(ctx, path, b.data, b.len, &why) != STITCH_OK)
        say_unwritten(ctx, why);
    else
        trim_sometimes(ctx, b.len);
out:
    stitch_error_free(why);
    stitch__buf_free(&b);
    stitch_free(folder);
    stitch_free(path);
    stitch_free(text);
    json_decref(meta);
}
