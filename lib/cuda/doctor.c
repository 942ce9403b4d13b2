/* SPDX-License-Identifier: MIT
 *
 * stitch_doctor(): what the library can use on this machine, and what to do about what it cannot.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/internal.h"
#include "model/model.h"

typedef struct report {
    stitch__cuda *cuda;
    json_t *items;
    bool nomem;
} report;

/* Takes texts that may be NULL or empty; what is empty is left out. */
static void item(report *r, const char *name, const char *status, const char *version, const char *path,
                 const char *detail, const stitch__buf *tried)
{
    json_t *j = json_object(), *list = json_array();
    int failed = !j || !list;
    failed |= json_object_set_new(j, "name", json_string(name));
    failed |= json_object_set_new(j, "status", json_string(status));
    failed |= json_object_set_new(j, "version", json_string(version ? version : ""));
    failed |= json_object_set_new(j, "path", json_string_nocheck(path ? path : ""));
    failed |= json_object_set_new(j, "detail", json_string_nocheck(detail ? detail : ""));
    for (const char *at = tried && tried->data ? tried->data : ""; *at;) {
        size_t len = strcspn(at, "\n");
        if (len)
            failed |= json_array_append_new(list, json_stringn_nocheck(at, len));
        at += len + (at[len] == '\n');
    }
    failed |= json_object_set_new(j, "tried", list);
    failed |= json_array_append_new(r->items, j);
    r->nomem = r->nomem || failed;
}

static bool check_driver(report *r)
{
    stitch__buf tried;
    stitch_error *err = NULL;
    char version[32] = "";
    stitch__cuda *cuda = r->cuda;
    stitch__buf_init(&tried, cuda->ctx);
    pthread_mutex_lock(&cuda->lock);
    int rc = stitch__driver_open(cuda, &tried, &err);
    pthread_mutex_unlock(&cuda->lock);
    int number = 0;
    bool simulated = rc == STITCH_OK && cuda->driver.sim_set_options;
    if (rc == STITCH_OK && cuda->driver.DriverGetVersion(&number) == CUDA_SUCCESS)
        snprintf(version, sizeof(version), "%d.%d", number / 1000, number % 1000 / 10);
    if (rc == STITCH_OK && !simulated)
        item(r, "driver", "ok", version, cuda->driver_path, "", &tried);
    else if (rc == STITCH_OK)
        item(r, "driver", tried.len ? "missing" : "unused", "", "", "the simulator stands in for a GPU", &tried);
    else if (strcmp(stitch__context_options(cuda->ctx)->device, "none") == 0)
        item(r, "driver", "unused", "", "", stitch_error_message(err), NULL);
    else
        item(r, "driver",
             rc == STITCH_E_NO_DEVICE && stitch_error_domain(err) == STITCH_DOMAIN_DRIVER ? "broken" : "missing", "",
             "", stitch_error_message(err), &tried);
    stitch_error_free(err);
    stitch__buf_free(&tried);
    return rc == STITCH_OK;
}

static bool check_device(report *r, bool driver)
{
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    stitch_error *err = NULL;
    char detail[400];
    if (!driver) {
        item(r, "device", "missing", "", "", "there is no driver", NULL);
        return false;
    }
    int rc = stitch_device_query(r->cuda->ctx, &info, &err);
    if (rc == STITCH_OK) {
        stitch__format(
            detail, sizeof(detail), "%s%.200s, %d multiprocessors, %.1f GiB, %llu KiB of shared memory a block",
            info.simulated ? "simulated " : "", info.name, info.multiprocessors, (double)info.memory_bytes / (1 << 30),
            (unsigned long long)(info.shared_bytes_per_block_optin >> 10));
        item(r, "device", "ok", info.arch, "", detail, NULL);
    } else {
        item(r, "device", "broken", "", "", stitch_error_message(err), NULL);
    }
    stitch_error_free(err);
    return rc == STITCH_OK;
}

/* Compiles a kernel that uses a CUDA header: builtins, headers and code generation all take part. */
static bool try_compile(report *r, char detail[600])
{
    static const char source[] =
        "#include <cuda_fp16.h>\n"
        "__global__ void probe(__half *x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[0]); }\n";
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    o.arch = "sm_80";
    o.no_cache = 1;
    int rc = stitch_compile(r->cuda->ctx, source, &o, &image, &err);
    if (rc == STITCH_OK)
        snprintf(detail, 600, "compiled a kernel in %.0f ms", stitch_image_milliseconds(image));
    else
        snprintf(detail, 600, "%.500s", stitch_error_message(err));
    stitch_image_free(image);
    stitch_error_free(err);
    return rc == STITCH_OK;
}

static bool include_has(const stitch__cuda *cuda, const char *name)
{
    bool found = false;
    for (size_t i = 0; cuda->includes[i] && !found; i++) {
        char *path = stitch__path_join(cuda->ctx, cuda->includes[i], name);
        found = path && access(path, R_OK) == 0;
        stitch_free(path);
    }
    return found;
}

const char *stitch__headers_advice(const stitch__cuda *cuda)
{
    bool wheels13 = cuda->nvrtc.major >= 13; /* CUDA 12's have names of their own, and keep crt/ with the compiler */
    if (!cuda->includes[0])
        return wheels13 ? "no folder with cuda_fp16.h: install the toolkit's headers or the wheels "
                          "nvidia-cuda-runtime, nvidia-cuda-cccl and nvidia-cuda-crt"
                        : "no folder with cuda_fp16.h: install the toolkit's headers or the wheels "
                          "nvidia-cuda-runtime-cu12, nvidia-cuda-cccl-cu12 and nvidia-cuda-nvcc-cu12";
    if (!include_has(cuda, "cuda/std/cstdint"))
        return wheels13 ? "libcu++ (cuda/std) is missing: wheel nvidia-cuda-cccl"
                        : "libcu++ (cuda/std) is missing: wheel nvidia-cuda-cccl-cu12";
    if (!include_has(cuda, "crt/mma.h"))
        return wheels13 ? "crt/mma.h (for mma.h) is missing: wheel nvidia-cuda-crt"
                        : "crt/mma.h (for mma.h) is missing: wheel nvidia-cuda-nvcc-cu12";
    return "";
}

static bool check_nvrtc(report *r)
{
    stitch__cuda *cuda = r->cuda;
    stitch__buf tried;
    stitch_error *err = NULL;
    char version[32] = "", detail[600] = "";
    bool works = false;
    stitch__buf_init(&tried, cuda->ctx);
    pthread_mutex_lock(&cuda->lock);
    int rc = stitch__nvrtc_open(cuda, &tried, &err);
    pthread_mutex_unlock(&cuda->lock);
    if (rc == STITCH_OK) {
        snprintf(version, sizeof(version), "%d.%d", cuda->nvrtc.major, cuda->nvrtc.minor);
        works = try_compile(r, detail);
        item(r, "nvrtc", works ? "ok" : "broken", version, cuda->nvrtc.path, detail, &tried);
        bool headers = cuda->includes[0] != NULL;
        item(r, "headers", headers ? "ok" : "missing", "", headers ? cuda->includes[0] : "",
             stitch__headers_advice(cuda), NULL);
    } else {
        item(r, "nvrtc", "missing", "", "", stitch_error_message(err), &tried);
        item(r, "headers", "unused", "", "", "they are looked for beside NVRTC", NULL);
    }
    stitch_error_free(err);
    stitch__buf_free(&tried);
    return works;
}

static void check_cublaslt(report *r)
{
    stitch__cuda *cuda = r->cuda;
    stitch__buf tried;
    stitch_error *err = NULL;
    char version[48] = "";
    stitch__buf_init(&tried, cuda->ctx);
    pthread_mutex_lock(&cuda->lock);
    int rc = stitch__cublaslt_open(cuda, &tried, &err);
    pthread_mutex_unlock(&cuda->lock);
    size_t v = cuda->cublaslt.version;
    if (rc == STITCH_OK)
        snprintf(version, sizeof(version), "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    item(r, "cublaslt", rc == STITCH_OK ? "ok" : "missing", version, rc == STITCH_OK ? cuda->cublaslt.path : "",
         rc == STITCH_OK ? "" : stitch_error_message(err), &tried);
    stitch_error_free(err);
    stitch__buf_free(&tried);
}

/* Libraries that are not opened here: where they are. `use`: what for. */
static void check_file(report *r, const char *name, const stitch__library *library, const char *use)
{
    stitch__buf tried;
    stitch__buf_init(&tried, r->cuda->ctx);
    char *path = stitch__library_find(r->cuda->ctx, library, &tried);
    item(r, name, path ? "unused" : "missing", "", path, path ? use : library->install, &tried);
    stitch_free(path);
    stitch__buf_free(&tried);
}

/* CUPTI is opened by whoever uses it and not here: it stays in the process. */
static void check_cupti(report *r)
{
    static const char use[] =
        "found; opened when something is traced or profiled (stitch_trace_begin(), stage profile, stitch profile)";
    const stitch__library *library = &stitch__library_cupti;
    stitch__buf tried, detail;

    stitch__buf_init(&tried, r->cuda->ctx);
    stitch__buf_init(&detail, r->cuda->ctx);
    char *path = stitch__library_find(r->cuda->ctx, library, &tried);
    stitch__buf_puts(&detail, path ? use : library->install);
    if (path && !stitch__cupti_complete(path))
        stitch__buf_puts(&detail, "; libnvperf_host.so, which hardware counters and samples need, is not beside it: "
                                  "install all of CUPTI");
    item(r, "cupti", path ? "unused" : "missing", "", path, detail.data, &tried);
    r->nomem = r->nomem || detail.failed;
    stitch_free(path);
    stitch__buf_free(&detail);
    stitch__buf_free(&tried);
}

static void check_http(report *r)
{
    const char *why, *version = stitch__curl_open(&why);
    item(r, "http", version ? "ok" : "unused", version ? version : "", "", why, NULL);
}

static void check_cache(report *r)
{
    const stitch_context_options *o = stitch__context_options(r->cuda->ctx);
    stitch_error *err = NULL;
    if (!*o->cache_dir) {
        item(r, "cache", "unused", "", "", "nothing is kept on disk", NULL);
    } else if (stitch__mkdirs(r->cuda->ctx, o->cache_dir, &err) != STITCH_OK) {
        item(r, "cache", "broken", "", o->cache_dir, stitch_error_message(err), NULL);
    } else {
        bool writable = access(o->cache_dir, W_OK) == 0;
        item(r, "cache", writable ? "ok" : "broken", "", o->cache_dir, writable ? "" : "the folder cannot be written",
             NULL);
    }
    stitch_error_free(err);
}

int stitch_doctor(stitch_context *ctx, char **json, stitch_error **err)
{
    report r = {0};
    if (json)
        *json = NULL;
    if (!ctx || !json)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_doctor: ctx and json must not be NULL");
    int rc = stitch__cuda_state(ctx, &r.cuda, err);
    if (rc)
        return rc;
    r.items = json_array();
    if (!r.items)
        return stitch__err_nomem(ctx, err);
    bool device = check_device(&r, check_driver(&r));
    bool nvrtc = check_nvrtc(&r);
    check_cublaslt(&r);
    check_file(&r, "cudnn", &stitch__library_cudnn, "found; no part of this version uses it");
    check_cupti(&r);
    item(&r, "simulator", stitch__sim_available() ? "ok" : "missing", "", "",
         stitch__sim_available() ? "device \"sim:sm_90\"" : "this library was built without it", NULL);
    check_http(&r);
    check_cache(&r);
    json_t *root = json_pack("{s:b, s:O}", "ok", device && nvrtc, "items", r.items);
    if (root && !r.nomem)
        *json = stitch__json_dump(ctx, root, 2);
    json_decref(root);
    json_decref(r.items);
    return *json ? STITCH_OK : stitch__err_nomem(ctx, err);
}
