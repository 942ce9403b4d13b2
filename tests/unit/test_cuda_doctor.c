/* SPDX-License-Identifier: MIT
 *
 * stitch_doctor() on machines that have nothing, something, and something broken.
 */
#include <ftw.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "cuda/cupti.h"
#include "cuda/internal.h"

static stitch_context *new_context(const char *device, const char *cache)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    o.device = device;
    o.cache_dir = cache;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    return ctx;
}

static json_t *doctor(stitch_context *ctx)
{
    char *text = NULL;
    stitch_error *err = NULL;
    CHECK_OK(stitch_doctor(ctx, &text, &err));
    json_t *root = json_loads(text, 0, NULL);
    CHECK(root != NULL);
    stitch_free(text);
    return root;
}

static const json_t *find(const json_t *root, const char *name)
{
    const json_t *items = json_object_get(root, "items");
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *j = json_array_get(items, i);
        if (strcmp(json_string_value(json_object_get(j, "name")), name) == 0)
            return j;
    }
    FAIL("there is no item %s", name);
}

static const char *text(const json_t *root, const char *name, const char *key)
{
    return json_string_value(json_object_get(find(root, name), key));
}

TEST(items_are_complete)
{
    static const char *const names[] = {"driver", "device", "nvrtc",     "headers", "cublaslt",
                                        "cudnn",  "cupti",  "simulator", "http",    "cache"};
    stitch_context *ctx = new_context("none", "");
    json_t *root = doctor(ctx);
    CHECK(json_is_false(json_object_get(root, "ok"))); /* there is no device */
    for (size_t i = 0; i < STITCH__COUNT(names); i++) {
        const char *status = text(root, names[i], "status");
        CHECK(strcmp(status, "ok") == 0 || strcmp(status, "missing") == 0 || strcmp(status, "broken") == 0 ||
              strcmp(status, "unused") == 0);
        CHECK(text(root, names[i], "version") && text(root, names[i], "path") && text(root, names[i], "detail"));
        CHECK(json_is_array(json_object_get(find(root, names[i]), "tried")));
        if (strcmp(status, "missing") == 0)
            CHECK(strlen(text(root, names[i], "detail")) > 10);
    }
    CHECK_STR(text(root, "driver", "status"), "unused");
    CHECK_STR(text(root, "cache", "status"), "unused");
    json_decref(root);
    stitch_context_free(ctx);
}

TEST(nothing_is_installed)
{
    setenv("STITCH_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
    setenv("STITCH_NVRTC", "/nowhere/libnvrtc.so", 1);
    setenv("STITCH_CUBLASLT", "/nowhere/libcublasLt.so", 1);
    setenv("STITCH_CUDNN", "/nowhere/libcudnn.so", 1);
    setenv("STITCH_CUPTI", "/nowhere/libcupti.so", 1);
    stitch_context *ctx = new_context("cuda:0", "");
    json_t *root = doctor(ctx);
    CHECK(json_is_false(json_object_get(root, "ok")));
    CHECK_STR(text(root, "driver", "status"), "missing");
    CHECK_HAS(text(root, "driver", "detail"), "STITCH_CUDA_DRIVER");
    CHECK_HAS(json_string_value(json_array_get(json_object_get(find(root, "driver"), "tried"), 0)),
              "/nowhere/libcuda.so.1");
    CHECK_STR(text(root, "nvrtc", "status"), "missing");
    CHECK_STR(text(root, "cublaslt", "status"), "missing");
    CHECK_STR(text(root, "cudnn", "status"), "missing");
    CHECK_STR(text(root, "cupti", "status"), "missing");
    CHECK_HAS(text(root, "cupti", "detail"), "nvidia-cuda-cupti");
    json_decref(root);
    stitch_context_free(ctx);
    unsetenv("STITCH_CUDA_DRIVER");
    unsetenv("STITCH_NVRTC");
    unsetenv("STITCH_CUBLASLT");
    unsetenv("STITCH_CUDNN");
    unsetenv("STITCH_CUPTI");
}

TEST(a_broken_cache_folder)
{
    stitch_context *ctx = new_context("none", "/dev/null/cache");
    json_t *root = doctor(ctx);
    CHECK_STR(text(root, "cache", "status"), "broken");
    json_decref(root);
    stitch_context_free(ctx);
}

TEST(what_is_there_is_tried_out)
{
    stitch_context *ctx = new_context("none", "");
    const stitch__nvrtc *nvrtc;
    if (stitch__nvrtc_get(ctx, &nvrtc, NULL) != STITCH_OK) {
        stitch_context_free(ctx);
        SKIP("NVRTC is not installed");
    }
    json_t *root = doctor(ctx);
    if (strcmp(text(root, "headers", "status"), "ok") == 0) {
        CHECK_STR(text(root, "nvrtc", "status"), "ok");
        CHECK_HAS(text(root, "nvrtc", "detail"), "compiled a kernel");
    } else {
        CHECK_STR(text(root, "nvrtc", "status"), "broken");
    }
    CHECK(strchr(text(root, "nvrtc", "version"), '.') != NULL);
    CHECK_INT(text(root, "nvrtc", "path")[0], '/');
    json_decref(root);
    stitch_context_free(ctx);
}

static void touch(const char *folder, const char *name)
{
    char path[400];
    stitch_error *err = NULL;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    *strrchr(path, '/') = '\0';
    CHECK_OK(stitch__mkdirs(NULL, path, &err));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

/* The wheels of CUDA 12 and 13 have other names, and crt/ moved. */
TEST(wheels_of_the_right_version)
{
    char root[] = "/tmp/stitch-wheels-XXXXXX";
    char *none[] = {NULL}, *some[] = {root, NULL};
    stitch__cuda cuda = {.includes = none};
    CHECK(mkdtemp(root) != NULL);
    cuda.nvrtc.major = 13;
    CHECK_HAS(stitch__headers_advice(&cuda), "wheels nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-cuda-crt");
    cuda.nvrtc.major = 12;
    CHECK_HAS(stitch__headers_advice(&cuda), "nvidia-cuda-runtime-cu12");
    cuda.includes = some;
    CHECK_STR(stitch__headers_advice(&cuda), "libcu++ (cuda/std) is missing: wheel nvidia-cuda-cccl-cu12");
    cuda.nvrtc.major = 13;
    CHECK_STR(stitch__headers_advice(&cuda), "libcu++ (cuda/std) is missing: wheel nvidia-cuda-cccl");
    touch(root, "cuda/std/cstdint");
    CHECK_STR(stitch__headers_advice(&cuda), "crt/mma.h (for mma.h) is missing: wheel nvidia-cuda-crt");
    cuda.nvrtc.major = 12;
    CHECK_STR(stitch__headers_advice(&cuda), "crt/mma.h (for mma.h) is missing: wheel nvidia-cuda-nvcc-cu12");
    touch(root, "crt/mma.h");
    CHECK_STR(stitch__headers_advice(&cuda), "");
    CHECK_INT(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* CUPTI is looked for and not opened: any file will do here. */
TEST(cupti_needs_a_library_beside_it)
{
    char root[] = "/tmp/stitch-cupti-XXXXXX", path[80], shortcut[80];
    CHECK(mkdtemp(root) != NULL);
    touch(root, "real/libcupti.so.13");
    snprintf(path, sizeof(path), "%s/real/libcupti.so.13", root);
    snprintf(shortcut, sizeof(shortcut), "%s/libcupti.so", root);
    CHECK_INT(symlink(path, shortcut), 0);
    setenv("STITCH_CUPTI", shortcut, 1);
    stitch_context *ctx = new_context("none", "");
    json_t *found = doctor(ctx);
    CHECK_STR(text(found, "cupti", "status"), "unused");
    CHECK_STR(text(found, "cupti", "path"), shortcut);
    CHECK_HAS(text(found, "cupti", "detail"), "stage profile");
    CHECK_HAS(text(found, "cupti", "detail"), "libnvperf_host.so");
    json_decref(found);
    touch(root, "real/libnvperf_host.so"); /* beside the file, not beside the link */
    found = doctor(ctx);
    CHECK_STR(text(found, "cupti", "status"), "unused");
    CHECK_HAS(text(found, "cupti", "detail"), "stage profile");
    CHECK(strstr(text(found, "cupti", "detail"), "libnvperf_host.so") == NULL);
    json_decref(found);
    stitch_context_free(ctx);
    unsetenv("STITCH_CUPTI");
    CHECK(stitch__cupti_complete("libcupti.so.13")); /* where the loader finds it is not known */
    CHECK_INT(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

TEST(bad_arguments)
{
    stitch_context *ctx = new_context("none", "");
    stitch_error *err = NULL;
    char *out = NULL;
    CHECK_ERR(stitch_doctor(NULL, &out, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_doctor(ctx, NULL, &err), STITCH_E_INVALID, "NULL");
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(items_are_complete), RUN(nothing_is_installed), RUN(a_broken_cache_folder),
          RUN(what_is_there_is_tried_out), RUN(wheels_of_the_right_version), RUN(cupti_needs_a_library_beside_it),
          RUN(bad_arguments))
