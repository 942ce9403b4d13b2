/* SPDX-License-Identifier: MIT
 *
 * Private interface of the cuda module: function tables of NVIDIA's libraries, the opened device, device memory.
 */
#ifndef STITCH_LIB_CUDA_H
#define STITCH_LIB_CUDA_H

#include <cuda.h>
#include <cublasLt.h>
#include <nvrtc.h>
#include <pthread.h>

#include "base/base.h"
#include <stitch/compile.h>
#include <stitch/device.h>

/* Members are named like the functions without the cu prefix: drv->MemAlloc. driver_functions.def lists them:
 *   X(REQUIRED|OPTIONAL, member, "exported name", prototype to take the type from)
 * Optional members may be NULL. */
typedef struct stitch__driver {
#define X(need, member, symbol, prototype) __typeof__(&prototype) member;
#include "cuda/driver_functions.def"
#undef X
    /* The simulator's own entry points, typed in lib/sim/sim_ext.h; NULL on a real driver. */
    void *sim_set_options, *sim_get_options, *sim_take_reports, *sim_free_reports, *sim_name_allocation,
        *sim_mark_memory, *sim_find_device, *sim_gemm, *sim_context_new, *sim_context_free, *sim_recover;
} stitch__driver;

typedef struct stitch__nvrtc {
#define X(need, member, symbol, prototype) __typeof__(&prototype) member;
#include "cuda/nvrtc_functions.def"
#undef X
    int major, minor;
    const char *path; /* of the library that was opened */
} stitch__nvrtc;

typedef struct stitch__cublaslt {
#define X(need, member, symbol, prototype) __typeof__(&prototype) member;
#include "cuda/cublaslt_functions.def"
#undef X
    size_t version;
    const char *path;
} stitch__cublaslt;

typedef struct stitch__device {
    stitch_context *ctx;
    const stitch__driver *drv;
    CUdevice ordinal;
    CUcontext context; /* the primary context, retained; on the simulator one of its own */
    stitch_device_info info;
    int max_grid[3], max_block[3];
    int max_threads_per_sm, max_registers_per_block;
    bool cooperative, clusters;
    bool alone;                    /* nobody else has `context` */
    struct stitch__guards *guards; /* guards.h; NULL: buffers are plain */
    struct stitch__turns *turns;   /* of those that check on a simulated device; NULL: a real one */
} stitch__device;

/* The device of the context; opened by the first call, closed with the context. */
int stitch__device_get(stitch_context *ctx, stitch__device **out, stitch_error **err);
/* Opened by the first call; thread-safe. The errors list what was tried and what to install. */
int stitch__nvrtc_get(stitch_context *ctx, const stitch__nvrtc **out, stitch_error **err);
int stitch__cublaslt_get(stitch_context *ctx, const stitch__cublaslt **out, stitch_error **err);
/* Of the one that is open: 130100 for 13.1.0; 0: none is. */
size_t stitch__cublaslt_version(stitch_context *ctx);
/* Where a library would be opened from, without opening it; NULL: nowhere. Released with stitch_free(). */
char *stitch__driver_find(const stitch_context *ctx);
char *stitch__nvrtc_find(const stitch_context *ctx);
char *stitch__cublaslt_find(const stitch_context *ctx);
char *stitch__cupti_find(const stitch_context *ctx);
/* Folders of toolkits and wheels that exist, "lib" or "include" ones, best first; one a line in the buffer. */
void stitch__toolkit_folders(const stitch_context *ctx, bool include, stitch__buf *out);

/* Makes the device's context current for this thread; leave() brings back what was current. They nest.
 *     int rc = stitch__device_enter(dev, err);
 *     if (rc) return rc;
 *     ...
 *     stitch__device_leave(dev); */
int stitch__device_enter(stitch__device *dev, stitch_error **err);
void stitch__device_leave(stitch__device *dev);
/* Whether device code can address all memory of its process, the host's too (HMM, ATS). */
bool stitch__device_reaches_host(const stitch__device *dev);

/* Turns a CUresult into a status: STITCH_OK, STITCH_E_NOMEM, STITCH_E_FAULT (context lost), STITCH_E_DRIVER. `what`
 * names the call and its object ("cuLaunchKernel of layernorm (run[2])"). */
int stitch__cu_check(const stitch__device *dev, CUresult result, stitch_error **err, const char *what);
STITCH__PRINTF(4, 5)
int stitch__cu_checkf(const stitch__device *dev, CUresult result, stitch_error **err, const char *fmt, ...);
/* In functions with `rc`, `dev`, `err` and an `out:` label. */
#define STITCH__CU(call)                                                                                               \
    do {                                                                                                               \
        if ((rc = stitch__cu_check(dev, (call), err, #call)) != STITCH_OK)                                             \
            goto out;                                                                                                  \
    } while (0)

/* Waits for a stream with the scope's cancellation and deadline (polls; never blocks in the driver). */
int stitch__stream_wait(stitch__device *dev, CUstream stream, const stitch__scope *scope, const char *what,
                        stitch_error **err);
/* The same for all that the device's context has been given so far, on any stream. Not while a stream is captured. With
 * a driver older than 12.5 streams that do not wait for the legacy one are waited for in the driver, without a limit.
 */
int stitch__context_wait(stitch__device *dev, const stitch__scope *scope, const char *what, stitch_error **err);
/* Whether that is done within a second, or has failed: asked before what may block while the device works, where a
 * deadline or a cancellation came before. */
bool stitch__context_rests(stitch__device *dev);

/* ---- a simulated device; on a real one these do nothing (simulated.c) ------------------------------------------- */

/* A simulated device works within the call that gives it work: nothing but its own limit ends a kernel. From here on
 * that is the scope, until the next call; NULL: what stitch_context_cancel() triggers, as from the beginning. The
 * device is entered. */
void stitch__device_limit(const stitch__device *dev, const stitch__scope *scope);
/* Ends a fault of the device, which is entered: what a real one loses with it is all there still. */
void stitch__device_recover(const stitch__device *dev);
/* What the device checks and reports belongs to its context, so those that check take turns in it. A thread that has
 * the turn already gets it at once. */
int stitch__device_turn(stitch__device *dev, const stitch__scope *scope, stitch_error **err);
void stitch__device_turn_end(stitch__device *dev); /* once for each turn */

/* Device memory; `name` goes into error messages and into the simulator's reports. The device must be entered. */
int stitch__mem_alloc(stitch__device *dev, size_t bytes, const char *name, CUdeviceptr *out, stitch_error **err);
void stitch__mem_free(stitch__device *dev, CUdeviceptr ptr); /* 0 is ignored */

/* Operations of a multiprocessor in a cycle (a multiply-add is two), without sparsity. 0: it has no unit for that. */
typedef struct stitch__arch_rates {
    double f32, tf32, f16, f8;               /* as documented; bf16 is as fast as f16 */
    double limit_tf32, limit_f16, limit_any; /* no program is faster that keeps to the precision */
} stitch__arch_rates;

const stitch__arch_rates *stitch__arch_rates_of(int major, int minor); /* NULL: not known */
/* Bytes a second that the device's memory moves at the most, by its clock and bus; 0: not known. */
double stitch__device_bandwidth(const stitch__device *dev);

/* ---- nvrtc.c, compile.c: compiling, here or elsewhere ------------------------------------------------------------ */

/* What NVRTC is given. */
typedef struct stitch__rtc_input {
    const char *source;
    const char *const *options, *const *names;
    size_t option_count, name_count;
} stitch__rtc_input;

/* The call of NVRTC that failed, where the compilation itself did not. */
enum {
    STITCH__RTC_COMPILE, /* none */
    STITCH__RTC_CREATE,
    STITCH__RTC_NAME,
    STITCH__RTC_LOWERED,
    STITCH__RTC_CUBIN_SIZE,
    STITCH__RTC_CUBIN,
    STITCH__RTC_CALLS
};

/* What it gives. */
typedef struct stitch__rtc {
    nvrtcResult result;
    int call;                /* STITCH__RTC_* */
    char *log, *ptx, *cubin; /* stitch_free(); NULL where there is none; NUL-terminated */
    size_t log_len, ptx_len, cubin_size;
    char **symbols; /* one a name, by stitch_free() as the array; NULL where there is none */
    size_t symbol_count;
} stitch__rtc;

/* Compiles on a thread of its own; returns STITCH_OK also when the source has errors (result says so). NVRTC cannot be
 * interrupted: where the scope ends first, the thread is left to itself, with copies of everything that it uses.
 * STITCH_E_NOMEM, STITCH_E_TIMEOUT, STITCH_E_CANCELLED. */
int stitch__rtc_run(const stitch__nvrtc *nvrtc, const stitch__scope *scope, const stitch__rtc_input *in,
                    stitch__rtc *out, stitch_error **err);
/* Compiles on the calling thread, which has stack for it: stitch__rtc_thread() began it. STITCH_E_NOMEM. */
int stitch__rtc_run_here(const stitch__nvrtc *nvrtc, const stitch__rtc_input *in, stitch__rtc *out);
/* Starts a thread on which NVRTC can run; it takes none of the process's signals. */
bool stitch__rtc_thread(pthread_t *thread, void *(*run)(void *), void *arg);
void stitch__rtc_free(stitch__rtc *rtc);
/* Folders of CUDA's headers that go with the NVRTC of this process, a line each. */
int stitch__nvrtc_includes(stitch_context *ctx, stitch__buf *out, stitch_error **err);

/* Who runs NVRTC in place of a thread of this process. What it gives is a stranger's data. STITCH_E_COMPILE: the
 * compiler itself did not survive the source. */
typedef struct stitch__compiler {
    int (*run)(void *self, const stitch__scope *scope, const stitch__rtc_input *in, stitch__rtc *out,
               stitch_error **err);
    void *self;
} stitch__compiler;

/* stitch_compile(), but for who runs NVRTC; `by` NULL: this process does. */
int stitch__compile_by(stitch_context *ctx, const char *source, const stitch_compile_options *options,
                       const stitch__compiler *by, stitch_image **out, stitch_error **err);

/* A module loaded from an image. */
typedef struct stitch__module {
    stitch__device *dev;
    CUmodule handle;
    size_t kernel_count;
    CUfunction *kernels; /* in the image's order; with the maximum of dynamic shared memory opted into */
} stitch__module;

int stitch__module_load(stitch__device *dev, const stitch_image *image, stitch__module *out, stitch_error **err);
void stitch__module_unload(stitch__module *module);

/* An image rebuilt from saved parts (a program file): checked, copied. `meta` is what stitch__image_meta() gave. */
json_t *stitch__image_meta(const stitch_image *image);
int stitch__image_restore(stitch_context *ctx, const void *data, size_t size, const json_t *meta, stitch_image **out,
                          stitch_error **err);
stitch_image *stitch__image_ref(stitch_image *image); /* counted; stitch_image_free() drops one */

#endif
