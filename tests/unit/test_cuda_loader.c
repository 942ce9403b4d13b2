/* SPDX-License-Identifier: MIT
 *
 * Finding libraries, filling tables, opening a device: with false paths and a driver of the test's own.
 */
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "cuda/internal.h"

/* ---- a driver ---- */

typedef struct fake {
    const char *without; /* a symbol that it lacks */
    int devices, depth, optin;
    CUresult init, query;
    int not_ready; /* StreamQuery says so this many times */
    CUcontext stack[8];
    int shared_set, retained, allocated;
} fake;

static fake *the; /* one test at a time uses it */

static CUresult f_unsupported(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult f_init(unsigned flags)
{
    return the->init;
}

static CUresult f_version(int *v)
{
    *v = 12040;
    return CUDA_SUCCESS;
}

static CUresult f_name(CUresult r, const char **s)
{
    *s = r == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}

static CUresult f_text(CUresult r, const char **s)
{
    *s = "a text";
    return CUDA_SUCCESS;
}

static CUresult f_count(int *n)
{
    *n = the->devices;
    return CUDA_SUCCESS;
}

static CUresult f_get(CUdevice *d, int i)
{
    *d = i;
    return CUDA_SUCCESS;
}

static CUresult f_device_name(char *name, int len, CUdevice d)
{
    snprintf(name, (size_t)len, "Fake %d", d);
    return CUDA_SUCCESS;
}

static CUresult f_attribute(int *v, CUdevice_attribute a, CUdevice d)
{
    switch (a) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 7; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *v = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = the->optin; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *v = 2147483647; break;
    default: *v = 0;
    }
    return CUDA_SUCCESS;
}

static CUresult f_total(size_t *bytes, CUdevice d)
{
    *bytes = (size_t)1 << 30;
    return CUDA_SUCCESS;
}

static CUresult f_retain(CUcontext *c, CUdevice d)
{
    the->retained++;
    *c = (CUcontext)(uintptr_t)(100 + d);
    return CUDA_SUCCESS;
}

static CUresult f_release(CUdevice d)
{
    the->retained--;
    return CUDA_SUCCESS;
}

static CUresult f_push(CUcontext c)
{
    if (the->depth == 8)
        return CUDA_ERROR_OUT_OF_MEMORY;
    the->stack[the->depth++] = c;
    return CUDA_SUCCESS;
}

static CUresult f_pop(CUcontext *c)
{
    *c = the->stack[--the->depth];
    return CUDA_SUCCESS;
}

static CUresult f_stream_query(CUstream s)
{
    return the->not_ready-- > 0 ? CUDA_ERROR_NOT_READY : the->query;
}

static CUresult f_alloc(CUdeviceptr *p, size_t n)
{
    if (n > 1000)
        return CUDA_ERROR_OUT_OF_MEMORY;
    the->allocated++;
    *p = 4096;
    return n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult f_free(CUdeviceptr p)
{
    the->allocated--;
    return CUDA_SUCCESS;
}

static CUresult f_mem_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = 1000;
    *total = 2000;
    return CUDA_SUCCESS;
}

static CUresult f_load(CUmodule *m, const void *image, unsigned n, CUjit_option *o, void **v)
{
    if (strstr(image, "refuse")) {
        snprintf(v[0], (size_t)(uintptr_t)v[1], "ptxas: line 1: not liked\nmore");
        return CUDA_ERROR_INVALID_PTX;
    }
    *m = (CUmodule)(uintptr_t)1;
    return CUDA_SUCCESS;
}

static CUresult f_success(void)
{
    return CUDA_SUCCESS;
}

static CUresult f_function(CUfunction *f, CUmodule m, const char *name)
{
    *f = (CUfunction)(uintptr_t)2;
    return CUDA_SUCCESS;
}

static CUresult f_function_attribute(int *v, CUfunction_attribute a, CUfunction f)
{
    *v = 1000;
    return CUDA_SUCCESS;
}

static CUresult f_set_attribute(CUfunction f, CUfunction_attribute a, int v)
{
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        the->shared_set = v;
    return CUDA_SUCCESS;
}

static void *get_proc(const char *symbol, void *userdata)
{
    static const struct {
        const char *symbol;
        void (*function)(void);
    } functions[] = {{"cuInit", (void (*)(void))f_init},
                     {"cuDriverGetVersion", (void (*)(void))f_version},
                     {"cuGetErrorName", (void (*)(void))f_name},
                     {"cuGetErrorString", (void (*)(void))f_text},
                     {"cuDeviceGetCount", (void (*)(void))f_count},
                     {"cuDeviceGet", (void (*)(void))f_get},
                     {"cuDeviceGetName", (void (*)(void))f_device_name},
                     {"cuDeviceGetAttribute", (void (*)(void))f_attribute},
                     {"cuDeviceTotalMem_v2", (void (*)(void))f_total},
                     {"cuDevicePrimaryCtxRetain", (void (*)(void))f_retain},
                     {"cuDevicePrimaryCtxRelease_v2", (void (*)(void))f_release},
                     {"cuCtxPushCurrent_v2", (void (*)(void))f_push},
                     {"cuCtxPopCurrent_v2", (void (*)(void))f_pop},
                     {"cuStreamQuery", (void (*)(void))f_stream_query},
                     {"cuMemAlloc_v2", (void (*)(void))f_alloc},
                     {"cuMemFree_v2", (void (*)(void))f_free},
                     {"cuMemGetInfo_v2", (void (*)(void))f_mem_info},
                     {"cuModuleLoadDataEx", (void (*)(void))f_load},
                     {"cuModuleUnload", (void (*)(void))f_success},
                     {"cuModuleGetFunction", (void (*)(void))f_function},
                     {"cuFuncGetAttribute", (void (*)(void))f_function_attribute},
                     {"cuFuncSetAttribute", (void (*)(void))f_set_attribute}};
    fake *f = userdata;
    void (*found)(void) = (void (*)(void))f_unsupported;
    void *address;
    if ((f->without && strcmp(symbol, f->without) == 0) || strncmp(symbol, "stitchSim", 9) == 0)
        return NULL;
    for (size_t i = 0; i < STITCH__COUNT(functions); i++) {
        if (strcmp(symbol, functions[i].symbol) == 0)
            found = functions[i].function;
    }
    memcpy(&address, &found, sizeof(address));
    return address;
}

static stitch_context *with_driver(fake *f, const char *device)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    the = f;
    o.device = device;
    o.cache_dir = "";
    o.get_proc = get_proc;
    o.get_proc_userdata = f;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    return ctx;
}

static const fake good = {.devices = 2, .optin = 232448};

/* ---- the driver's table and the device ---- */

TEST(device_facts)
{
    fake f = good;
    stitch_context *ctx = with_driver(&f, "cuda:1");
    stitch_device_info info = STITCH_DEVICE_INFO_INIT;
    stitch_error *err = NULL;
    CHECK_OK(stitch_device_query(ctx, &info, &err));
    CHECK_STR(info.name, "Fake 1");
    CHECK_INT(info.ordinal, 1);
    CHECK_INT(info.compute_major, 9);
    CHECK_INT(info.driver_version, 12040);
    CHECK_INT(info.multiprocessors, 7);
    CHECK_INT(info.shared_bytes_per_block_optin, 232448);
    CHECK_INT(info.simulated, 0);
    CHECK(strcmp(info.arch, "sm_90a") == 0);
    CHECK_INT(f.retained, 1);
    stitch_device_info short_info = {.struct_size = offsetof(stitch_device_info, arch)};
    CHECK_OK(stitch_device_query(ctx, &short_info, &err));
    CHECK(short_info.arch == NULL && strcmp(short_info.name, "Fake 1") == 0);
    CHECK_ERR(stitch_device_query(ctx, NULL, &err), STITCH_E_INVALID, "info");
    stitch_context_free(ctx);
    CHECK_INT(f.retained, 0);
    CHECK_INT(f.depth, 0);
}

TEST(driver_symbols_that_are_missing)
{
    static const struct {
        const char *symbol;
        bool needed;
    } rows[] = {
#define REQUIRED                           true
#define OPTIONAL                           false
#define X(need, member, symbol, prototype) {symbol, need},
#include "cuda/driver_functions.def"
#undef X
#undef REQUIRED
#undef OPTIONAL
    };
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        fake f = good;
        f.without = rows[i].symbol;
        stitch_context *ctx = with_driver(&f, "auto");
        stitch_error *err = NULL;
        stitch__device *dev;
        if (rows[i].needed)
            CHECK_ERR(stitch__device_get(ctx, &dev, &err), STITCH_E_NO_LIBRARY, rows[i].symbol);
        else
            CHECK_OK(stitch__device_get(ctx, &dev, &err));
        stitch_context_free(ctx);
    }
}

TEST(no_device)
{
    stitch_error *err = NULL;
    stitch__device *dev;
    fake f = good;
    f.devices = 0;
    stitch_context *ctx = with_driver(&f, "auto");
    CHECK_ERR(stitch__device_get(ctx, &dev, &err), STITCH_E_NO_DEVICE, "sees no GPU");
    stitch_context_free(ctx);
    f = good;
    f.init = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    ctx = with_driver(&f, "auto");
    CHECK_ERR(stitch__device_get(ctx, &dev, &err), STITCH_E_NO_DEVICE, "does not start");
    stitch_context_free(ctx);
    f = good;
    ctx = with_driver(&f, "cuda:2");
    CHECK_ERR(stitch__device_get(ctx, &dev, &err), STITCH_E_NO_DEVICE, "cuda:2 does not exist");
    CHECK(dev == NULL);
    stitch_context_free(ctx);
    ctx = with_driver(&f, "none");
    CHECK_ERR(stitch__device_get(ctx, &dev, &err), STITCH_E_NO_DEVICE, "\"none\"");
    stitch_context_free(ctx);
}

TEST(current_context_is_left_alone)
{
    fake f = good;
    stitch_context *ctx = with_driver(&f, "cuda:0");
    stitch_error *err = NULL;
    stitch__device *dev;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_INT(f.depth, 2);
    CHECK(f.stack[0] == dev->context);
    stitch__device_leave(dev);
    stitch__device_leave(dev);
    CHECK_INT(f.depth, 0);
    f.depth = 8;
    CHECK_ERR(stitch__device_enter(dev, &err), STITCH_E_NOMEM, "cuCtxPushCurrent");
    f.depth = 0;
    stitch_context_free(ctx);
}

TEST(results_become_statuses)
{
    fake f = good;
    stitch_context *ctx = with_driver(&f, "cuda:0");
    stitch_error *err = NULL;
    stitch__device *dev;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__cu_check(dev, CUDA_SUCCESS, &err, "x"));
    CHECK_INT(stitch__cu_check(dev, CUDA_ERROR_ILLEGAL_ADDRESS, &err, "dev->drv->StreamSynchronize(s)"),
              STITCH_E_FAULT);
    CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_DRIVER);
    CHECK_INT(stitch_error_native(err), 700);
    CHECK_HAS(stitch_error_message(err), "cuStreamSynchronize: CUDA_ERROR_FAKE (a text)");
    CHECK_HAS(stitch_error_message(err), "new process");
    CHECK_ERR(stitch__cu_check(dev, CUDA_ERROR_LAUNCH_FAILED, &err, "k"), STITCH_E_FAULT, "k: ");
    CHECK_ERR(stitch__cu_check(dev, CUDA_ERROR_OUT_OF_MEMORY, &err, "k"), STITCH_E_NOMEM, "");
    CHECK_ERR(stitch__cu_checkf(dev, CUDA_ERROR_INVALID_VALUE, &err, "step %d", 3), STITCH_E_DRIVER, "step 3");
    CHECK_INT(stitch__cu_check(NULL, CUDA_ERROR_UNKNOWN, NULL, NULL), STITCH_E_DRIVER);
    stitch_context_free(ctx);
}

TEST(waiting_for_a_stream)
{
    fake f = good;
    stitch_context *ctx = with_driver(&f, "cuda:0");
    stitch_error *err = NULL;
    stitch__device *dev;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    stitch__scope scope = stitch__scope_make(ctx, NULL, 0);
    f.not_ready = 5000; /* beyond the spinning */
    CHECK_OK(stitch__stream_wait(dev, NULL, &scope, "run", &err));
    f.not_ready = 3;
    CHECK_OK(stitch__stream_wait(dev, NULL, NULL, "run", &err));
    f.not_ready = 0;
    f.query = CUDA_ERROR_ILLEGAL_INSTRUCTION;
    CHECK_ERR(stitch__stream_wait(dev, NULL, &scope, "the run", &err), STITCH_E_FAULT, "the run");
    f.query = CUDA_SUCCESS;
    f.not_ready = 1 << 30;
    scope = stitch__scope_make(ctx, NULL, 20);
    CHECK_ERR(stitch__stream_wait(dev, NULL, &scope, "the run", &err), STITCH_E_TIMEOUT, "the run");
    scope = stitch__scope_make(ctx, NULL, 0);
    stitch_context_cancel(ctx);
    CHECK_ERR(stitch__stream_wait(dev, NULL, &scope, "the run", &err), STITCH_E_CANCELLED, "the run");
    CHECK_INT(f.depth, 0);
    stitch_context_free(ctx);
}

TEST(device_memory)
{
    fake f = good;
    stitch_context *ctx = with_driver(&f, "cuda:0");
    stitch_error *err = NULL;
    stitch__device *dev;
    CUdeviceptr p;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, 100, "x", &p, &err));
    CHECK_INT(f.allocated, 1);
    stitch__mem_free(dev, p);
    stitch__mem_free(dev, 0);
    CHECK_INT(f.allocated, 0);
    CHECK_OK(stitch__mem_alloc(dev, 0, NULL, &p, &err)); /* an empty tensor has an address */
    stitch__mem_free(dev, p);
    CHECK_ERR(stitch__mem_alloc(dev, 5000, "hidden", &p, &err), STITCH_E_NOMEM,
              "\"hidden\" (5000 bytes): 1000 of 2000");
    CHECK_INT(p, 0);
    stitch_context_free(ctx);
}

static stitch_image *ptx_image(stitch_context *ctx, const char *ptx, const char *kernels)
{
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    char text[400];
    snprintf(text, sizeof(text), "{\"arch\": \"sm_90\", \"ptx\": true, \"kernels\": [%s]}", kernels);
    json_t *meta = json_loads(text, 0, NULL);
    CHECK(meta != NULL);
    CHECK_OK(stitch__image_restore(ctx, ptx, strlen(ptx), meta, &image, &err));
    json_decref(meta);
    return image;
}

TEST(modules)
{
    fake f = good;
    stitch_context *ctx = with_driver(&f, "cuda:0");
    stitch_error *err = NULL;
    stitch__device *dev;
    stitch__module m;
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    stitch_image *image =
        ptx_image(ctx, ".version 8.0\n.entry k(.param .u64 p) { ret; }\n", "{\"name\": \"k\", \"symbol\": \"k\"}");
    CHECK_OK(stitch__module_load(dev, image, &m, &err));
    CHECK_INT(m.kernel_count, 1);
    CHECK(m.kernels[0] != NULL);
    CHECK_INT(f.shared_set, 232448 - 1000);
    stitch__module_unload(&m);
    stitch__module_unload(&m);
    stitch_image_free(image);
    image = ptx_image(ctx, ".version 8.0\n// refuse\n", "");
    CHECK_INT(stitch__module_load(dev, image, &m, &err), STITCH_E_DRIVER);
    CHECK_HAS(stitch_error_message(err), "not liked");
    CHECK_HAS(stitch_error_message(err), "newer than the driver");
    CHECK_HAS(stitch_error_details(err), "more");
    stitch_error_free(err);
    err = NULL;
    stitch_image_free(image);
    stitch_image empty = {0};
    CHECK_ERR(stitch__module_load(dev, &empty, &m, &err), STITCH_E_STATE, "no code");
    CHECK_INT(f.depth, 0);
    stitch_context_free(ctx);
}

/* The simulator through the same table: facts, code, a launch. */
TEST(simulated_device)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    stitch__device *dev;
    stitch__module m;
    CUdeviceptr p;
    float host[32];
    int n = 7;
    if (!stitch__sim_available())
        SKIP("the simulator is not built");
    o.cache_dir = "";
    o.device = "sim:sm_35";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    CHECK_ERR(stitch__device_get(ctx, &dev, &err), STITCH_E_NO_DEVICE, "does not simulate sm_35");
    stitch_context_free(ctx);
    o.device = "sim:sm_80";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_STR(dev->info.arch, "sm_80");
    CHECK_INT(dev->info.simulated, 1);
    CHECK(dev->drv->sim_name_allocation != NULL);
    stitch_image *image = ptx_image(
        ctx,
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u32 n)\n{\n"
        ".reg .b32 %r<3>; .reg .b64 %rd<5>; .reg .f32 %f<2>;\nld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n];\n"
        "cvta.to.global.u64 %rd2, %rd1; mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4;\n"
        "add.s64 %rd4, %rd2, %rd3; cvt.rn.f32.s32 %f1, %r1; st.global.f32 [%rd4], %f1; ret;\n}\n",
        "{\"name\": \"k\", \"symbol\": \"k\"}");
    CHECK_OK(stitch__module_load(dev, image, &m, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, sizeof(host), "x", &p, &err));
    void *args[] = {&p, &n};
    CHECK_INT(dev->drv->LaunchKernel(m.kernels[0], 1, 1, 1, 32, 1, 1, 100 << 10, NULL, args, NULL),
              CUDA_SUCCESS); /* opted in */
    CHECK_OK(stitch__stream_wait(dev, NULL, NULL, "k", &err));
    CHECK_INT(dev->drv->MemcpyDtoH(host, p, sizeof(host)), CUDA_SUCCESS);
    CHECK(host[0] == 7 && host[31] == 7);
    stitch__mem_free(dev, p);
    stitch__device_leave(dev);
    stitch__module_unload(&m);
    stitch_image_free(image);
    stitch_context_free(ctx);
}

/* ---- searching ---- */

static stitch_context *with_path(const char *cuda_path)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    o.device = "auto";
    o.cache_dir = "";
    o.cuda_path = cuda_path;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    return ctx;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void remove_tree(const char *root)
{
    CHECK_INT(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

TEST(overrides_are_final)
{
    stitch_error *err = NULL;
    const stitch__nvrtc *nvrtc;
    const stitch__cublaslt *lt;
    setenv("STITCH_NVRTC", "/nowhere/libnvrtc.so.99", 1);
    stitch_context *ctx = with_path(NULL);
    CHECK_INT(stitch__nvrtc_get(ctx, &nvrtc, &err), STITCH_E_NO_LIBRARY);
    CHECK_HAS(stitch_error_message(err), "STITCH_NVRTC=/nowhere/libnvrtc.so.99");
    CHECK_HAS(stitch_error_details(err), "/nowhere/libnvrtc.so.99: ");
    CHECK_HAS(stitch_error_details(err), "No such file");
    stitch_error_free(err);
    err = NULL;
    setenv("STITCH_NVRTC", "libm.so.6", 1); /* opens, but is something else */
    CHECK_ERR(stitch__nvrtc_get(ctx, &nvrtc, &err), STITCH_E_NO_LIBRARY, "nvrtcCompileProgram");
    setenv("STITCH_CUBLASLT", "libm.so.6", 1);
    CHECK_ERR(stitch__cublaslt_get(ctx, &lt, &err), STITCH_E_NO_LIBRARY, "cublasLtMatmul");
    unsetenv("STITCH_NVRTC");
    unsetenv("STITCH_CUBLASLT");
    stitch_context_free(ctx);
}

TEST(every_place_is_listed)
{
    static const char *const names[] = {"libstitch-no-such-thing.so.7", NULL};
    const stitch__library library = {"the thing", "STITCH_NO_SUCH_THING", names, NULL, true, "install the thing"};
    char root[] = "/tmp/stitch-loader-XXXXXX", path[300], wheel[300];
    stitch_error *err = NULL;
    void *handle;
    char *found;
    CHECK(mkdtemp(root) != NULL);
    snprintf(path, sizeof(path), "%s/lib64", root);
    CHECK_INT(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/lib64/%s", root, names[0]);
    write_file(path, "this is no library");
    snprintf(wheel, sizeof(wheel), "%s/lib/python3.11/site-packages/nvidia/thing/lib", root);
    CHECK_OK(stitch__mkdirs(NULL, wheel, &err));
    setenv("VIRTUAL_ENV", root, 1);
    stitch_context *ctx = with_path(root);
    CHECK_INT(stitch__library_open(ctx, &library, &handle, &found, NULL, &err), STITCH_E_NO_LIBRARY);
    CHECK_HAS(stitch_error_message(err), "the thing (libstitch-no-such-thing.so.7) was not found");
    CHECK_HAS(stitch_error_message(err), "install the thing");
    const char *tried = stitch_error_details(err);
    const char *first = strstr(tried, path), *system = strstr(tried, "the system's loader"),
               *last = strstr(tried, wheel);
    CHECK(first != NULL && system != NULL && last != NULL);
    CHECK(first < system && system < last);
    CHECK_HAS(first, "too short"); /* what the loader said */
    stitch_error_free(err);
    /* Looking without opening finds the file. */
    found = stitch__library_find(ctx, &library, NULL);
    CHECK_STR(found, path);
    stitch_free(found);
    stitch_context_free(ctx);
    unsetenv("VIRTUAL_ENV");
    remove_tree(root);
}

TEST(venv_beside_the_library)
{
    char root[] = "/tmp/stitch-venv-XXXXXX", lib[100], link[100], venv[100], path[PATH_MAX + 8], real[PATH_MAX];
    stitch_error *err = NULL;
    CHECK(mkdtemp(root) != NULL);
    CHECK(realpath(root, real) != NULL);
    snprintf(path, sizeof(path), "%s/lib", root);
    CHECK_INT(mkdir(path, 0700), 0);
    snprintf(lib, sizeof(lib), "%s/lib/libthing.so.0", root);
    write_file(lib, "");
    CHECK(stitch__venv_beside(NULL, lib) == NULL);
    snprintf(venv, sizeof(venv), "%s/venv", root);
    CHECK_OK(stitch__mkdirs(NULL, venv, &err));
    CHECK(stitch__venv_beside(NULL, lib) == NULL); /* a folder of that name is no virtual environment */
    snprintf(path, sizeof(path), "%s/pyvenv.cfg", venv);
    write_file(path, "");
    snprintf(path, sizeof(path), "%s/venv", real);
    char *found = stitch__venv_beside(NULL, lib);
    CHECK_STR(found, path);
    stitch_free(found);
    /* Where a link leads counts, not where it lies. */
    snprintf(link, sizeof(link), "%s/libthing.so", root);
    CHECK_INT(symlink(lib, link), 0);
    found = stitch__venv_beside(NULL, link);
    CHECK_STR(found, path);
    stitch_free(found);
    CHECK(stitch__venv_beside(NULL, NULL) == NULL);
    CHECK(stitch__venv_beside(NULL, "lib/libthing.so.0") == NULL);
    CHECK(stitch__venv_beside(NULL, "/libthing-that-is-not-there.so") == NULL);
    CHECK(stitch__venv_beside(NULL, "/") == NULL);
    if (geteuid() == 0) { /* another user's */
        CHECK_INT(chown(venv, 12345, (gid_t)-1), 0);
        CHECK(stitch__venv_beside(NULL, lib) == NULL);
    }
    remove_tree(root);
}

TEST(site_packages_around_the_library)
{
    char root[] = "/tmp/stitch-site-XXXXXX", real[PATH_MAX], folder[100], lib[140], path[400];
    stitch_error *err = NULL;
    CHECK(mkdtemp(root) != NULL);
    CHECK(realpath(root, real) != NULL);
    snprintf(folder, sizeof(folder), "%s/stitch/lib", root);
    CHECK_OK(stitch__mkdirs(NULL, folder, &err));
    snprintf(lib, sizeof(lib), "%s/libthing.so.0", folder);
    write_file(lib, "");
    snprintf(path, sizeof(path), "%s/nvidia", root);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK(stitch__site_beside(NULL, lib) == NULL); /* no Python package */
    snprintf(path, sizeof(path), "%s/stitch/__init__.py", root);
    write_file(path, "");
    char *found = stitch__site_beside(NULL, lib);
    CHECK_STR(found, real);
    stitch_free(found);
    snprintf(path, sizeof(path), "%s/nvidia", root);
    if (geteuid() == 0) { /* another user's */
        CHECK_INT(chown(path, 12345, (gid_t)-1), 0);
        CHECK(stitch__site_beside(NULL, lib) == NULL);
    }
    CHECK_INT(rmdir(path), 0);
    CHECK(stitch__site_beside(NULL, lib) == NULL); /* nothing there to find */
    snprintf(path, sizeof(path), "%s/stitch/libthing.so", root);
    write_file(path, "");
    CHECK(stitch__site_beside(NULL, path) == NULL); /* not in its place */
    CHECK(stitch__site_beside(NULL, NULL) == NULL);
    CHECK(stitch__site_beside(NULL, "stitch/lib/libthing.so.0") == NULL);
    CHECK(stitch__site_beside(NULL, "/libthing-that-is-not-there.so") == NULL);
    CHECK(stitch__site_beside(NULL, "/") == NULL);
    remove_tree(root);
}

TEST(headers_go_with_the_library)
{
    char root[] = "/tmp/stitch-headers-XXXXXX", path[400];
    stitch_error *err = NULL;
    stitch__arena arena = {0};
    CHECK(mkdtemp(root) != NULL);
    snprintf(path, sizeof(path), "%s/include/cccl/cuda/std", root);
    CHECK_OK(stitch__mkdirs(NULL, path, &err));
    snprintf(path, sizeof(path), "%s/lib64", root);
    CHECK_OK(stitch__mkdirs(NULL, path, &err));
    snprintf(path, sizeof(path), "%s/include/cuda_fp16.h", root);
    write_file(path, "");
    snprintf(path, sizeof(path), "%s/include/cccl/cuda/std/cstdint", root);
    write_file(path, "");
    stitch_context *ctx = with_path(NULL);
    snprintf(path, sizeof(path), "%s/lib64/libnvrtc.so.13", root);
    char *const *folders = stitch__include_folders(ctx, &arena, path);
    CHECK(folders != NULL && folders[0] != NULL && folders[1] != NULL && folders[2] == NULL);
    snprintf(path, sizeof(path), "%s/include", root);
    CHECK_STR(folders[0], path);
    CHECK_HAS(folders[1], "/include/cccl");
    stitch__arena_free(&arena);
    stitch_context_free(ctx);
    remove_tree(root);
}

TEST(architecture_names)
{
    int number;
    char suffix;
    CHECK(stitch__arch_parse("sm_90a", &number, &suffix) && number == 90 && suffix == 'a');
    CHECK(stitch__arch_parse("sm_100f", &number, &suffix) && number == 100 && suffix == 'f');
    CHECK(stitch__arch_parse("sm_80", &number, &suffix) && number == 80 && suffix == 0);
    static const char *const bad[] = {"", "sm_", "sm_9", "sm_9000", "compute_90", "sm_90b", "sm_90aa", "90", "sm_90 "};
    for (size_t i = 0; i < STITCH__COUNT(bad); i++)
        CHECK(!stitch__arch_parse(bad[i], &number, &suffix));
    CHECK(!stitch__arch_parse(NULL, &number, &suffix));
}

TEST_MAIN(RUN(device_facts), RUN(driver_symbols_that_are_missing), RUN(no_device), RUN(current_context_is_left_alone),
          RUN(results_become_statuses), RUN(waiting_for_a_stream), RUN(device_memory), RUN(modules),
          RUN(simulated_device), RUN(overrides_are_final), RUN(every_place_is_listed), RUN(venv_beside_the_library),
          RUN(site_packages_around_the_library), RUN(headers_go_with_the_library), RUN(architecture_names))
