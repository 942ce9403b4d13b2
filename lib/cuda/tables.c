/* SPDX-License-Identifier: MIT
 *
 * Function tables of the driver, NVRTC, cuBLASLt and CUPTI, filled by name from whatever the loader opened, from a
 * host's get_proc, or from the simulator.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "cuda/internal.h"

#ifdef STITCH_WITH_SIM
void *stitch__sim_get_proc(const char *symbol, void *userdata); /* lib/sim/driver.h, which wants other macros set */
#endif

enum { OPTIONAL = 0, REQUIRED = 1 };

typedef struct entry {
    int need;
    size_t offset;
    const char *symbol;
} entry;

#define X(need, member, symbol, prototype) {need, offsetof(TABLE, member), symbol},

#define TABLE stitch__driver
static const entry driver_entries[] = {
#include "cuda/driver_functions.def"
    {OPTIONAL, offsetof(stitch__driver, sim_set_options), "stitchSimSetOptions"},
    {OPTIONAL, offsetof(stitch__driver, sim_get_options), "stitchSimGetOptions"},
    {OPTIONAL, offsetof(stitch__driver, sim_take_reports), "stitchSimTakeReports"},
    {OPTIONAL, offsetof(stitch__driver, sim_free_reports), "stitchSimFreeReports"},
    {OPTIONAL, offsetof(stitch__driver, sim_name_allocation), "stitchSimNameAllocation"},
    {OPTIONAL, offsetof(stitch__driver, sim_mark_memory), "stitchSimMarkMemory"},
    {OPTIONAL, offsetof(stitch__driver, sim_find_device), "stitchSimFindDevice"},
    {OPTIONAL, offsetof(stitch__driver, sim_gemm), "stitchSimGemm"},
    {OPTIONAL, offsetof(stitch__driver, sim_context_new), "stitchSimContextNew"},
    {OPTIONAL, offsetof(stitch__driver, sim_context_free), "stitchSimContextFree"},
    {OPTIONAL, offsetof(stitch__driver, sim_recover), "stitchSimRecover"},
};
#undef TABLE
#define TABLE stitch__nvrtc
static const entry nvrtc_entries[] = {
#include "cuda/nvrtc_functions.def"
};
#undef TABLE
#define TABLE stitch__cublaslt
static const entry cublaslt_entries[] = {
#include "cuda/cublaslt_functions.def"
};
#undef TABLE
#define TABLE stitch__cupti
static const entry cupti_entries[] = {
#include "cuda/cupti_functions.def"
#include "cuda/cupti_profiler_functions.def"
};
#undef TABLE
#undef X

static void *from_handle(const char *symbol, void *userdata)
{
    return dlsym(userdata, symbol);
}

/* Function pointers are read and written as object pointers: POSIX makes them of one size and representation. */
static int bind(const stitch_context *ctx, const entry *entries, size_t count, void *table, stitch_get_proc_fn get_proc,
                void *userdata, const char *what, const char *where, stitch_error **err)
{
    stitch__buf missing;
    int rc = STITCH_OK;
    stitch__buf_init(&missing, ctx);
    for (size_t i = 0; i < count; i++) {
        void *address = get_proc(entries[i].symbol, userdata);
        memcpy((char *)table + entries[i].offset, &address, sizeof(address));
        if (!address && entries[i].need == REQUIRED)
            stitch__buf_printf(&missing, "%s%s", missing.len ? ", " : "", entries[i].symbol);
    }
    if (missing.failed)
        rc = stitch__err_nomem(ctx, err);
    else if (missing.len)
        rc = stitch__err(ctx, err, STITCH_E_NO_LIBRARY,
                         "%s from %s lacks %s; it is too old: CUDA 12.4 (driver R550) or newer is needed", what, where,
                         missing.data);
    stitch__buf_free(&missing);
    return rc;
}

int stitch__driver_bind(const stitch_context *ctx, stitch_get_proc_fn get_proc, void *userdata, const char *where,
                        stitch__driver *out, stitch_error **err)
{
    memset(out, 0, sizeof(*out));
    return bind(ctx, driver_entries, STITCH__COUNT(driver_entries), out, get_proc, userdata, "the driver", where, err);
}

bool stitch__sim_available(void)
{
#ifdef STITCH_WITH_SIM
    return true;
#else
    return false;
#endif
}

static int bind_sim(stitch__cuda *cuda, stitch_error **err)
{
#ifdef STITCH_WITH_SIM
    cuda->driver_path = "the simulator";
    cuda->simulator = true;
    return stitch__driver_bind(cuda->ctx, stitch__sim_get_proc, NULL, cuda->driver_path, &cuda->driver, err);
#else
    return stitch__err(cuda->ctx, err, STITCH_E_UNSUPPORTED,
                       "this library was built without the simulator (meson option sim)");
#endif
}

/* cuInit and at least one device. */
static int driver_start(stitch__cuda *cuda, stitch_error **err)
{
    int count = 0;
    CUresult result = cuda->driver.Init(0);
    if (result == CUDA_SUCCESS)
        result = cuda->driver.DeviceGetCount(&count);
    if (result != CUDA_SUCCESS) {
        const char *name = NULL, *text = NULL;
        cuda->driver.GetErrorName(result, &name);
        cuda->driver.GetErrorString(result, &text);
        return stitch__err_native(
            cuda->ctx, err, STITCH_E_NO_DEVICE, STITCH_DOMAIN_DRIVER, result,
            "the driver (%s) does not start: %s (%s); check with nvidia-smi that the GPU works and that the driver's "
            "kernel module has the version of libcuda",
            cuda->driver_path, name ? name : "?", text ? text : "?");
    }
    if (count < 1)
        return stitch__err(cuda->ctx, err, STITCH_E_NO_DEVICE,
                           "the driver (%s) sees no GPU; is CUDA_VISIBLE_DEVICES empty?", cuda->driver_path);
    return STITCH_OK;
}

static int open_real(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err)
{
    void *handle = NULL;
    char *path = NULL;
    int rc = stitch__library_open(cuda->ctx, &stitch__library_driver, &handle, &path, tried, err);
    if (rc)
        return rc;
    cuda->driver_path = stitch__arena_strdup(&cuda->arena, path);
    stitch_free(path);
    if (!cuda->driver_path)
        return stitch__err_nomem(cuda->ctx, err);
    rc = stitch__driver_bind(cuda->ctx, from_handle, handle, cuda->driver_path, &cuda->driver, err);
    return rc ? rc : driver_start(cuda, err);
}

int stitch__driver_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err)
{
    const stitch_context_options *o = stitch__context_options(cuda->ctx);
    stitch_error *why = NULL;
    int rc;
    if (cuda->driver_ready)
        return STITCH_OK;
    cuda->simulator = false;
    if (strcmp(o->device, "none") == 0)
        return stitch__err(
            cuda->ctx, err, STITCH_E_NO_DEVICE,
            "the context was made with device \"none\"; use \"auto\", \"cuda:N\" or \"sim:sm_90\" to run device code");
    if (o->get_proc) {
        cuda->driver_path = "the host's get_proc";
        rc = stitch__driver_bind(cuda->ctx, o->get_proc, o->get_proc_userdata, cuda->driver_path, &cuda->driver, err);
        if (rc == STITCH_OK)
            rc = driver_start(cuda, err);
    } else if (strncmp(o->device, "sim:", 4) == 0) {
        rc = bind_sim(cuda, err);
        if (rc == STITCH_OK)
            rc = driver_start(cuda, err);
    } else if (strcmp(o->device, "auto") == 0) {
        rc = open_real(cuda, tried, &why);
        if (rc && rc != STITCH_E_NOMEM && stitch__sim_available()) {
            stitch__log(cuda->ctx, STITCH_LOG_INFO, "no GPU is used, the simulator stands in: %s",
                        stitch_error_message(why));
            rc = bind_sim(cuda, err);
            if (rc == STITCH_OK)
                rc = driver_start(cuda, err);
        } else if (rc) {
            int code = rc == STITCH_E_NO_LIBRARY ? STITCH_E_NO_DEVICE : rc;
            rc = stitch__err_native(cuda->ctx, err, code, stitch_error_domain(why), stitch_error_native(why),
                                    "no GPU can be used: %s", stitch_error_message(why));
            stitch__err_details(err, stitch_error_details(why));
        }
    } else {
        rc = open_real(cuda, tried, err);
    }
    stitch_error_free(why);
    cuda->driver_ready = rc == STITCH_OK;
    return rc;
}

int stitch__nvrtc_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err)
{
    void *handle = NULL;
    char *path = NULL;
    stitch__nvrtc *n = &cuda->nvrtc;
    if (cuda->nvrtc_ready)
        return STITCH_OK;
    int rc = stitch__library_open(cuda->ctx, &stitch__library_nvrtc, &handle, &path, tried, err);
    if (rc)
        return rc;
    n->path = stitch__arena_strdup(&cuda->arena, path);
    stitch_free(path);
    if (!n->path)
        return stitch__err_nomem(cuda->ctx, err);
    rc = bind(cuda->ctx, nvrtc_entries, STITCH__COUNT(nvrtc_entries), n, from_handle, handle, "NVRTC", n->path, err);
    if (rc)
        return rc;
    nvrtcResult result = n->Version(&n->major, &n->minor);
    if (result != NVRTC_SUCCESS)
        return stitch__err_native(cuda->ctx, err, STITCH_E_LIBRARY, STITCH_DOMAIN_NVRTC, result,
                                  "NVRTC (%s) does not tell its version: %s", n->path, n->GetErrorString(result));
    if (n->major < 12 || (n->major == 12 && n->minor < 4))
        return stitch__err(cuda->ctx, err, STITCH_E_NO_LIBRARY, "NVRTC %d.%d (%s) is too old: %s", n->major, n->minor,
                           n->path, stitch__library_nvrtc.install);
    cuda->includes = stitch__include_folders(cuda->ctx, &cuda->arena, n->path);
    if (!cuda->includes)
        return stitch__err_nomem(cuda->ctx, err);
    if (!cuda->includes[0])
        stitch__log(cuda->ctx, STITCH_LOG_WARN,
                    "no CUDA headers (cuda_fp16.h) were found beside NVRTC (%s) or in a toolkit: device code that "
                    "includes them does not "
                    "compile",
                    n->path);
    cuda->nvrtc_ready = true;
    return STITCH_OK;
}

int stitch__cublaslt_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err)
{
    void *handle = NULL;
    char *path = NULL;
    stitch__cublaslt *l = &cuda->cublaslt;
    if (cuda->cublaslt_ready)
        return STITCH_OK;
    int rc = stitch__library_open(cuda->ctx, &stitch__library_cublaslt, &handle, &path, tried, err);
    if (rc)
        return rc;
    l->path = stitch__arena_strdup(&cuda->arena, path);
    stitch_free(path);
    if (!l->path)
        return stitch__err_nomem(cuda->ctx, err);
    rc = bind(cuda->ctx, cublaslt_entries, STITCH__COUNT(cublaslt_entries), l, from_handle, handle, "cuBLASLt", l->path,
              err);
    if (rc)
        return rc;
    l->version = l->GetVersion();
    cuda->cublaslt_ready = true;
    return STITCH_OK;
}

int stitch__cupti_bind(const stitch_context *ctx, stitch_get_proc_fn get_proc, void *userdata, const char *where,
                       stitch__cupti *out, stitch_error **err)
{
    enum { OLDEST = 22 }; /* 12.4 */
    int rc;
    memset(out, 0, sizeof(*out));
    out->path = where;
    rc = bind(ctx, cupti_entries, STITCH__COUNT(cupti_entries), out, get_proc, userdata, "CUPTI", where, err);
    if (rc)
        return rc;
    int result = out->GetVersion(&out->version);
    if (result == STITCH__CUPTI_UNKNOWN) /* 13.0 needs no driver for this; 13.5 does, and cannot even name its errors */
        return stitch__err_native(ctx, err, STITCH_E_LIBRARY, STITCH_DOMAIN_CUPTI, result,
                                  "CUPTI (%s) did not start: no driver is installed, or one that is too old for it",
                                  where);
    if (result != STITCH__CUPTI_OK)
        return stitch__cupti_check(ctx, out, result, "cuptiGetVersion", NULL, err);
    if (out->version < OLDEST)
        return stitch__err(ctx, err, STITCH_E_NO_LIBRARY, "CUPTI (%s) is too old (API version %" PRIu32 "): %s", where,
                           out->version, stitch__library_cupti.install);
    return STITCH_OK;
}

/* The CUPTI that the process has loaded (PyTorch does): a second one, of another version, could not work beside it. */
static void *cupti_in_process(const stitch_context *ctx, char **path)
{
    const stitch__library *library = &stitch__library_cupti;
    const char *override = getenv(library->variable);
    Dl_info info;
    if (override && *override)
        return NULL;
    for (size_t i = 0; library->names[i]; i++) {
        void *handle = dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        void *address = handle ? dlsym(handle, "cuptiGetVersion") : NULL;
        if (!address)
            continue;
        *path = stitch__strdup(ctx, dladdr(address, &info) && info.dli_fname ? info.dli_fname : library->names[i]);
        return handle;
    }
    return NULL;
}

int stitch__cupti_open(stitch__cuda *cuda, stitch__buf *tried, stitch_error **err)
{
    char *path = NULL;
    if (cuda->cupti_ready)
        return STITCH_OK;
#ifdef __SANITIZE_ADDRESS__
    return stitch__err(cuda->ctx, err, STITCH_E_UNSUPPORTED,
                       "CUPTI opens a library with RTLD_DEEPBIND, which ends a process under AddressSanitizer");
#endif
    void *handle = cupti_in_process(cuda->ctx, &path);
    int rc = handle ? STITCH_OK : stitch__library_open(cuda->ctx, &stitch__library_cupti, &handle, &path, tried, err);
    if (rc)
        return rc;
    char *where = stitch__arena_strdup(&cuda->arena, path);
    stitch_free(path);
    if (!where)
        return stitch__err_nomem(cuda->ctx, err);
    rc = stitch__cupti_bind(cuda->ctx, from_handle, handle, where, &cuda->cupti, err);
    cuda->cupti_ready = rc == STITCH_OK;
    return rc;
}
