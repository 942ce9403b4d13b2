/* SPDX-License-Identifier: MIT
 *
 * What must be open before CUPTI's profiling is used. CUPTI opens libnvperf_host.so by its bare name and has no run
 * path, so from a folder that the system's loader does not know it fails (CUPTI_ERROR_NOT_INITIALIZED). Having it open
 * already, from CUPTI's own folder and thus of its version, prevents that. Only profiling needs it, and it takes long:
 * its constructors write 100 MB. libnvperf_target.so, which lies beside it and takes as long, is of another interface:
 * no CUPTI opens it.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/internal.h"

/* The folder that the library really lies in, with its last slash; false: the path is of no file. */
static bool folder_of(const char *library, char out[PATH_MAX])
{
    char *slash;
    if (!library || library[0] != '/' || !realpath(library, out) || !(slash = strrchr(out, '/')))
        return false;
    slash[1] = '\0';
    return true;
}

static void *open_beside(const char *folder, const char *name)
{
    char path[PATH_MAX];
    void *handle = NULL;
    if ((size_t)snprintf(path, sizeof(path), "%s%s", folder, name) < sizeof(path))
        handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    return handle ? handle : dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

bool stitch__cupti_complete(const char *library)
{
    char folder[PATH_MAX], path[PATH_MAX];
    return !folder_of(library, folder) ||
           (size_t)snprintf(path, sizeof(path), "%slibnvperf_host.so", folder) >= sizeof(path) ||
           access(path, R_OK) == 0;
}

/* All of them are optional to CUPTI's table, and needed here. */
static const char *first_missing(const stitch__cupti *cupti)
{
#define X(need, member, symbol, params)                                                                                \
    if (!cupti->member)                                                                                                \
        return symbol;
#include "cuda/cupti_profiler_functions.def"
#undef X
    return NULL;
}

int stitch__cupti_open_profiler(const stitch_context *ctx, const stitch__cupti *cupti, stitch_error **err)
{
    char folder[PATH_MAX];
    const char *missing = first_missing(cupti);
    if (missing)
        return stitch__err(ctx, err, STITCH_E_NO_LIBRARY,
                           "CUPTI (%s) lacks %s, and hardware counters need it; use the CUPTI of CUDA 12.6 Update 2 or "
                           "newer (cuda_path or STITCH_CUPTI)",
                           cupti->path ? cupti->path : "", missing);
    if (!folder_of(cupti->path, folder))
        return STITCH_OK;
#ifdef __SANITIZE_ADDRESS__
    return stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                       "CUPTI opens a library with RTLD_DEEPBIND, which ends a process under AddressSanitizer");
#endif
    if (!open_beside(folder, "libnvperf_host.so")) {
        const char *why = dlerror();
        return stitch__err(
            ctx, err, STITCH_E_NO_LIBRARY,
            "libnvperf_host.so, which CUPTI needs for hardware counters, cannot be opened from its folder "
            "(%s): %s; install all of CUPTI",
            folder, why ? why : "not found");
    }
    return STITCH_OK;
}
