/* SPDX-License-Identifier: MIT
 *
 * What tests of a compiler in a process of its own share: contexts that are looked after, and sources that are good,
 * end NVRTC, or keep it busy.
 */
#ifndef STITCH_TESTS_COMPILER_CHECK_H
#define STITCH_TESTS_COMPILER_CHECK_H

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "check.h"
#include "meter.h"
#include "cuda/internal.h"

enum { SOON_MS = 60000 };

static stitch_context *ctx;
static stitch_error *err;
static meter memory = {.refuse_at = -1};
static char cache[] = "/tmp/stitch-compiler-test-XXXXXX";

static void set_up_with(const char *device, bool cached)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};

    if (cached && strstr(cache, "XXXXXX") && !mkdtemp(cache))
        FAIL("no temporary folder");
    options.device = device;
    options.cache_dir = cached ? cache : "";
    options.allocator = &allocator;
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
}

static bool has_children(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void tear_down(void)
{
    stitch_context_free(ctx);
    ctx = NULL;
    CHECK(!has_children());
    CHECK_INT(memory.live, 0);
}

/* Without NVRTC there is nothing to compile with. */
static void need_compiler(void)
{
    const stitch__nvrtc *nvrtc;
    char version[32];

    set_up_with("none", false);
    int rc = stitch__nvrtc_get(ctx, &nvrtc, &err);
    if (rc == STITCH_E_NO_LIBRARY) {
        stitch_context_free(ctx);
        SKIP(stitch_error_message(err));
    }
    CHECK_OK(rc);
    snprintf(version, sizeof(version), "%d.%d", nvrtc->major, nvrtc->minor);
    CHECK_INT(setenv("CUDA_STITCH_TEST_NVRTC", version, 1), 0); /* what a lying worker says that it has */
    tear_down();
}

static int count_threads(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *d; folder && (d = readdir(folder));)
        count += *d->d_name != '.';
    if (folder)
        closedir(folder);
    return count;
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

#define TEMPLATES(depth)                                                                                               \
    "template <int N> struct T { T<N - 1> a; T<N - 1> b; __device__ float g() { return a.g() + b.g(); } };\n"          \
    "template <> struct T<0> { float v; __device__ float g() { return v; } };\n"                                       \
    "__global__ void k(float *y) { T<" #depth "> t; y[0] = t.g(); }\n"

#define GOOD "__global__ void k(float *y) { y[threadIdx.x] *= 2; }\n"

/* Each macro doubles the one before. */
static char *with_macros(int levels)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, "#define U0 -\n");
    for (int i = 1; i <= levels; i++)
        stitch__buf_printf(&b, "#define U%d U%d U%d\n", i, i - 1, i - 1);
    stitch__buf_printf(&b, "__global__ void k(float *y) { y[0] = U%d y[1]; }\n", levels);
    return stitch__buf_take(&b, NULL);
}

#endif
