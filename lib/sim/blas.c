/* SPDX-License-Identifier: MIT
 *
 * Opens a CBLAS, if there is one.
 */
#include "sim/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* The one library of the process: opening it per context would only count references. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static stitch__blas blas;

static bool open_one(const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    void *s = dlsym(library, "cblas_sgemm"), *d = dlsym(library, "cblas_dgemm");
    if (!s || !d) {
        dlclose(library);
        return false;
    }
    memcpy(&blas.sgemm, &s, sizeof(s));
    memcpy(&blas.dgemm, &d, sizeof(d));
    blas.name = name;
    return true;
}

static void open_any(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "libblis.so.4",
                                        "libblis.so.3",     "libcblas.so.3",  "libmkl_rt.so.2"};
    const char *chosen = getenv("STITCH_BLAS");
    if (chosen && *chosen) {
        if (strcmp(chosen, "none") != 0 && open_one(chosen))
            blas.name = "the library that STITCH_BLAS names"; /* the environment's text may not outlive us */
        return;
    }
    for (size_t i = 0; i < STITCH__COUNT(names); i++) {
        if (open_one(names[i]))
            return;
    }
}

const stitch__blas *stitch__sim_blas(void)
{
    pthread_once(&once, open_any);
    return blas.name ? &blas : NULL;
}
