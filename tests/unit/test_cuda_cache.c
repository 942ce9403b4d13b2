/* SPDX-License-Identifier: MIT
 *
 * The compile cache: hits, damage, several threads and processes, the size limit.
 */
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cuda/internal.h"

static char folder[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void cleanup(void)
{
    if (folder[0])
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    folder[0] = '\0';
}

static stitch_context *new_context(uint64_t limit)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    const stitch__nvrtc *nvrtc;
    if (!folder[0]) {
        snprintf(folder, sizeof(folder), "/tmp/stitch-cache-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
    }
    o.device = "none";
    o.cache_dir = folder;
    o.cache_limit_bytes = limit;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    if (stitch__nvrtc_get(ctx, &nvrtc, &err) == STITCH_E_NO_LIBRARY) {
        stitch_error_free(err);
        stitch_context_free(ctx);
        cleanup();
        SKIP("NVRTC is not installed");
    }
    return ctx;
}

/* 0: compiled, 1: from the cache, negative: failed. */
static int compile(stitch_context *ctx, int variant, stitch_image **out)
{
    static const char *const names[] = {"k<3>"};
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    char source[200];
    stitch_image *image = NULL;
    o.arch = "sm_80";
    o.names = names;
    o.name_count = 1;
    snprintf(source, sizeof(source), "template <int N> __global__ void k(float *x) { x[N] = %d; }", variant);
    int rc = stitch_compile(ctx, source, &o, &image, NULL);
    int cached = stitch_image_cached(image);
    size_t index;
    if (rc == STITCH_OK && stitch_image_find(image, "k<3>", &index) != STITCH_OK)
        rc = STITCH_E_NOT_FOUND;
    if (out)
        *out = image;
    else
        stitch_image_free(image);
    return rc ? rc : cached;
}

typedef struct files {
    char path[64][512];
    size_t count;
    uint64_t bytes;
} files;

static files listed;

static int list_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    if (type == FTW_F && listed.count < 64) {
        snprintf(listed.path[listed.count++], sizeof(listed.path[0]), "%s", path);
        listed.bytes += (uint64_t)st->st_size;
    }
    return 0;
}

static const files *list(void)
{
    memset(&listed, 0, sizeof(listed));
    nftw(folder, list_one, 16, FTW_PHYS);
    return &listed;
}

TEST(hit_is_the_same_image_and_fast)
{
    stitch_context *ctx = new_context(0);
    stitch_image *first, *second;
    size_t size1, size2;
    CHECK_INT(compile(ctx, 1, &first), 0);
    CHECK_INT(list()->count, 1);
    stitch_context *other = new_context(0);
    CHECK_INT(compile(other, 1, &second), 1);
    const void *a = stitch_image_data(first, &size1), *b = stitch_image_data(second, &size2);
    CHECK(size1 == size2 && memcmp(a, b, size1) == 0);
    stitch_kernel_info k1 = STITCH_KERNEL_INFO_INIT, k2 = STITCH_KERNEL_INFO_INIT;
    CHECK_INT(stitch_image_kernel(first, 0, &k1), STITCH_OK);
    CHECK_INT(stitch_image_kernel(second, 0, &k2), STITCH_OK);
    CHECK_STR(k2.name, "k<3>");
    CHECK_STR(k2.symbol, k1.symbol);
    CHECK_INT(k2.registers, k1.registers);
    CHECK_INT(k2.static_shared, k1.static_shared);
    CHECK_INT(k2.spill_stores, k1.spill_stores);
    CHECK_INT(stitch_image_diagnostic_count(second), stitch_image_diagnostic_count(first));
    CHECK_STR(stitch_image_log(second), stitch_image_log(first));
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        stitch_image *image;
        CHECK_INT(compile(other, 1, &image), 1);
        if (stitch_image_milliseconds(image) < best)
            best = stitch_image_milliseconds(image);
        stitch_image_free(image);
    }
    CHECK(best < 5);
    stitch_image_free(first);
    stitch_image_free(second);
    stitch_context_free(other);
    stitch_context_free(ctx);
    cleanup();
}

TEST(everything_counts_for_the_key)
{
    static const char *const flag[] = {"-use_fast_math"}, *const include[] = {"-I/tmp"}, *const names[] = {"k"};
    static const char source[] = "__global__ void k(float *x) { x[0] = x[1] / x[2]; }";
    stitch_context *ctx = new_context(0);
    stitch_compile_options base = STITCH_COMPILE_OPTIONS_INIT;
    base.arch = "sm_80";
    stitch_compile_options rows[6] = {base, base, base, base, base, base};
    rows[1].arch = "sm_90";
    rows[2].ptx = 1;
    rows[3].flags = flag;
    rows[3].flag_count = 1;
    rows[4].names = names;
    rows[4].name_count = 1;
    rows[5].no_cache = 1;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
            stitch_image *image = NULL;
            stitch_error *err = NULL;
            CHECK_OK(stitch_compile(ctx, source, &rows[i], &image, &err));
            CHECK_INT(stitch_image_cached(image), round == 1 && i != 5);
            stitch_image_free(image);
        }
    }
    base.flags = include; /* brings in files that the key does not know */
    base.flag_count = 1;
    for (int round = 0; round < 2; round++) {
        stitch_image *image = NULL;
        stitch_error *err = NULL;
        CHECK_OK(stitch_compile(ctx, source, &base, &image, &err));
        CHECK_INT(stitch_image_cached(image), 0);
        stitch_image_free(image);
    }
    CHECK_INT(list()->count, 5);
    stitch_context_free(ctx);
    cleanup();
}

TEST(failures_are_not_kept)
{
    stitch_context *ctx = new_context(0);
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = "sm_80";
    for (int i = 0; i < 2; i++) {
        stitch_image *image = NULL;
        CHECK_INT(stitch_compile(ctx, "__global__ void k() { oops }", &o, &image, NULL), STITCH_E_COMPILE);
        CHECK_INT(stitch_image_cached(image), 0);
        stitch_image_free(image);
    }
    CHECK_INT(list()->count, 0);
    stitch_context_free(ctx);
    cleanup();
}

static void damage(const char *path, long at, int how)
{
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL);
    if (how < 0) {
        CHECK_INT(ftruncate(fileno(file), at), 0);
    } else {
        CHECK_INT(fseek(file, at, SEEK_SET), 0);
        int c = fgetc(file);
        CHECK_INT(fseek(file, at, SEEK_SET), 0);
        fputc(c ^ how, file);
    }
    fclose(file);
}

/* Wherever a file is damaged: it is a miss, the file is replaced, and the next call is a hit. */
TEST(damaged_files)
{
    stitch_context *ctx = new_context(0);
    CHECK_INT(compile(ctx, 1, NULL), 0);
    long size = (long)list()->bytes;
    char path[512];
    snprintf(path, sizeof(path), "%s", listed.path[0]);
    const struct {
        long at;
        int how;
    } rows[] = {{0, 1},        {10, 1}, {75, 1}, {80, 0x80}, {90, 1},  {100, 1},       {200, 4},      {size / 2, 8},
                {size - 1, 1}, {0, -1}, {8, -1}, {96, -1},   {97, -1}, {size / 2, -1}, {size - 1, -1}};
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        damage(path, rows[i].at, rows[i].how);
        CHECK_INT(compile(ctx, 1, NULL), 0);
        CHECK_INT(list()->count, 1);
        CHECK_INT(compile(ctx, 1, NULL), 1);
    }
    /* A whole file under another one's name. */
    CHECK_INT(compile(ctx, 2, NULL), 0);
    CHECK_INT(list()->count, 2);
    CHECK_INT(rename(listed.path[0], listed.path[1]), 0);
    CHECK(compile(ctx, 1, NULL) + compile(ctx, 2, NULL) == 0);
    stitch_context_free(ctx);
    cleanup();
}

TEST(folders_that_cannot_be_used)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = new_context(0), *other = NULL;
    stitch_error *err = NULL;
    char path[128];
    snprintf(path, sizeof(path), "%s/file", folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    o.device = "none";
    o.cache_dir = path; /* no folder */
    CHECK_OK(stitch_context_new(&other, &o, &err));
    CHECK_INT(compile(other, 1, NULL), 0);
    CHECK_INT(compile(other, 1, NULL), 0);
    stitch_context_free(other);
    stitch_context_free(ctx);
    cleanup();
}

TEST(oldest_go_first)
{
    stitch_context *ctx = new_context(0);
    CHECK_INT(compile(ctx, 1, NULL), 0);
    uint64_t one = list()->bytes;
    stitch_context_free(ctx);
    ctx = new_context(one * 4 + one / 2); /* room for four */
    for (int i = 2; i <= 4; i++) {
        usleep(20000);
        CHECK_INT(compile(ctx, i, NULL), 0);
    }
    CHECK_INT(list()->count, 4);
    usleep(20000);
    CHECK_INT(compile(ctx, 1, NULL), 1); /* used again: 2 is the oldest now */
    usleep(20000);
    CHECK_INT(compile(ctx, 5, NULL), 0);
    CHECK(list()->bytes <= one * 4 + one / 2);
    CHECK_INT(compile(ctx, 1, NULL), 1);
    CHECK_INT(compile(ctx, 5, NULL), 1);
    CHECK_INT(compile(ctx, 2, NULL), 0);
    /* What a killed process left. */
    char path[600];
    list();
    snprintf(path, sizeof(path), "%s.0123456789abcdef.tmp", listed.path[0]);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    CHECK_INT(utimensat(AT_FDCWD, path, old, 0), 0);
    stitch__cache_trim(ctx, UINT64_MAX);
    CHECK(access(path, F_OK) != 0);
    stitch__cache_trim(ctx, 0);
    CHECK_INT(list()->count, 0);
    stitch_context_free(ctx);
    cleanup();
}

/* ---- several at once ---- */

typedef struct worker {
    stitch_context *ctx;
    int failed;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 12; i++)
        w->failed += compile(w->ctx, i % 4, NULL) < 0;
    return NULL;
}

TEST(threads_share_a_folder)
{
    stitch_context *ctx = new_context(0);
    worker w[4];
    pthread_t t[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){ctx, 0};
        CHECK_INT(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        CHECK_INT(w[i].failed, 0);
    }
    CHECK_INT(list()->count, 4);
    stitch_context_free(ctx);
    cleanup();
}

/* The limit is so small that each process deletes what another one is about to read. */
TEST(processes_share_a_folder)
{
    pid_t children[3];
    stitch_context_free(new_context(0)); /* makes the folder, or skips */
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
            stitch_context *ctx = NULL;
            int failed = 0;
            o.device = "none";
            o.cache_dir = folder;
            o.cache_limit_bytes = 15000;
            failed += stitch_context_new(&ctx, &o, NULL) != STITCH_OK;
            for (int k = 0; !failed && k < 30; k++)
                failed += compile(ctx, k % 5, NULL) < 0;
            stitch_context_free(ctx);
            _exit(failed ? 1 : 0);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status = -1;
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        CHECK_INT(status, 0);
    }
    for (size_t i = 0; i < list()->count; i++)
        CHECK(strstr(listed.path[i], ".img") != NULL);
    cleanup();
}

TEST_MAIN(RUN(hit_is_the_same_image_and_fast), RUN(everything_counts_for_the_key), RUN(failures_are_not_kept),
          RUN(damaged_files), RUN(folders_that_cannot_be_used), RUN(oldest_go_first), RUN(threads_share_a_folder),
          RUN(processes_share_a_folder))
