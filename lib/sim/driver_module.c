/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: modules from PTX, their functions and variables, libraries.
 *
 * Only PTX can be loaded: machine code is refused. A library is a module of the context that is current when it is
 * loaded, not one of every context.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sim/driver.h"

/* ---- loading ----------------------------------------------------------------------------------------------------- */

static void destroy_module(stitch__drv_object *object)
{
    stitch__drv_module *m = (stitch__drv_module *)object;
    stitch__sim_module_free(m->core);
    stitch_free(m->functions);
    stitch_free(m->addresses);
}

static void destroy_function(stitch__drv_object *object)
{
    stitch__drv_unref(((stitch__drv_function *)object)->module);
}

/* Takes a module out of its context: handles, variables. What still runs or reports keeps the rest. */
static void unload(stitch__drv_context *ctx, stitch__drv_module *m)
{
    for (size_t i = 0; i < m->function_count; i++) {
        if (m->functions[i])
            stitch__drv_retire(m->functions[i]);
    }
    for (size_t i = 0; i < m->variable_count; i++) {
        if (m->addresses[i])
            stitch__sim_memory_release(ctx->mem, m->addresses[i], NULL);
    }
    stitch__drv_retire(m);
}

/* The number of the first .target directive, and whether it names features of that architecture alone ("sm_90a"). */
static int target_of(const char *ptx, bool *exact)
{
    *exact = false;
    for (const char *p = ptx; (p = strstr(p, ".target")); p++) {
        const char *line = p;
        while (line > ptx && (line[-1] == ' ' || line[-1] == '\t'))
            line--;
        if (line > ptx && line[-1] != '\n')
            continue; /* in a comment */
        const char *sm = strstr(p, "sm_");
        const char *end = strchr(p, '\n');
        if (!sm || (end && sm > end))
            return 0;
        char *rest;
        long number = strtol(sm + 3, &rest, 10);
        *exact = *rest == 'a';
        return number > 0 && number < 1000 ? (int)number : 0;
    }
    return 0;
}

static CUresult check_image(const stitch__drv_context *ctx, const char *image, int *target, char *log, size_t size)
{
    const stitch__drv_chip *chip = stitch__drv_context_chip(ctx);
    int device = chip->major * 10 + chip->minor;
    bool exact;
    if (memcmp(image, "\177ELF", 4) == 0 || memcmp(image, "\x50\xed\x55\xba", 4) == 0) {
        snprintf(log, size, "the simulator runs PTX, this is machine code or a fat binary: compile for compute_%d",
                 device);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    *target = target_of(image, &exact);
    if (*target > device || (exact && *target != device)) {
        snprintf(log, size, "PTX for sm_%d%s does not run on sm_%d", *target, exact ? "a" : "", device);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    return CUDA_SUCCESS;
}

/* Of all of them before any takes memory of the host's. */
static bool have_room(const stitch__drv_context *ctx, const stitch__drv_module *m)
{
    uint64_t left = stitch__drv_memory_left(ctx);
    for (size_t i = 0; i < stitch__sim_module_variable_count(m->core); i++) {
        uint64_t size = stitch__sim_module_variable(m->core, i)->size;
        if (size > left)
            return false;
        left -= size;
    }
    return true;
}

static CUresult load_variables(stitch__drv_context *ctx, stitch__drv_module *m)
{
    size_t count = stitch__sim_module_variable_count(m->core);
    if (!have_room(ctx, m))
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->addresses = stitch__calloc(NULL, count + 1, sizeof(*m->addresses));
    if (!m->addresses)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->variable_count = count;
    for (size_t i = 0; i < m->variable_count; i++) {
        const stitch__sim_variable *v = stitch__sim_module_variable(m->core, i);
        stitch__sim_alloc *a;
        if (stitch__sim_memory_alloc(ctx->mem, v->size ? v->size : 1, v->align, v->name, &a, NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
        a->managed = true;
        a->readonly = v->constant;
        m->addresses[i] = a->base;
        stitch__sim_module_bind(m->core, i, a->base);
    }
    for (size_t i = 0; i < m->variable_count; i++) {
        stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, m->addresses[i]);
        if (stitch__sim_module_variable(m->core, i)->size)
            stitch__sim_module_init(m->core, i, a->host);
        stitch__sim_memory_mark(a, 0, a->size, true);
    }
    return CUDA_SUCCESS;
}

static CUresult load_functions(stitch__drv_context *ctx, stitch__drv_module *m)
{
    size_t count = stitch__sim_module_function_count(m->core);
    m->functions = stitch__calloc(NULL, count + 1, sizeof(*m->functions));
    if (!m->functions)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->function_count = count;
    for (size_t i = 0; i < m->function_count; i++) {
        stitch__drv_function *f = stitch__drv_new(sizeof(*f), STITCH__DRV_FUNCTION, ctx, destroy_function);
        if (!f)
            return CUDA_ERROR_OUT_OF_MEMORY;
        f->module = stitch__drv_ref(m);
        f->core = stitch__sim_module_function(m->core, i);
        f->info = stitch__sim_function_info_get(f->core);
        f->max_dynamic_shared =
            f->info->static_shared < STITCH__DRV_SHARED ? STITCH__DRV_SHARED - (int)f->info->static_shared : 0;
        f->carveout = -1;
        memcpy(f->required_cluster, f->info->required_cluster, sizeof(f->required_cluster));
        m->functions[i] = f;
    }
    return CUDA_SUCCESS;
}

/* `log` receives words about a failure. */
static CUresult load(stitch__drv_context *ctx, const char *image, stitch__drv_module **out, char *log, size_t size)
{
    *out = NULL;
    log[0] = '\0';
    int target = 0;
    CUresult r = check_image(ctx, image, &target, log, size);
    if (r)
        return r;
    stitch__drv_module *m = stitch__drv_new(sizeof(*m), STITCH__DRV_MODULE, ctx, destroy_module);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->target = target;
    stitch_error *err = NULL;
    int rc = stitch__sim_module_load(&m->core, NULL, image, strlen(image), NULL, &err);
    if (rc) {
        snprintf(log, size, "%s", stitch_error_message(err));
        r = rc == STITCH_E_NOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
        stitch_error_free(err);
    }
    if (!r)
        r = load_variables(ctx, m);
    if (!r)
        r = load_functions(ctx, m);
    if (r)
        unload(ctx, m);
    else
        *out = m;
    return r;
}

/* The two log buffers of the JIT options; sizes go in and out through the option's value. */
static void write_log(const char *text, unsigned count, const CUjit_option *options, void **values, CUjit_option buffer,
                      CUjit_option bytes)
{
    char *to = NULL;
    void **size = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == buffer)
            to = values[i];
        else if (options[i] == bytes)
            size = &values[i];
    }
    if (!size)
        return;
    size_t room = (unsigned)(uintptr_t)*size, len = strlen(text);
    if (!to || room == 0)
        len = 0;
    else if (len >= room)
        len = room - 1;
    if (to && room) {
        memcpy(to, text, len);
        to[len] = '\0';
    }
    *size = (void *)(uintptr_t)len;
}

CUresult CUDAAPI SIM(cuModuleLoadDataEx)(CUmodule *module, const void *image, unsigned int numOptions,
                                         CUjit_option *options, void **optionValues)
{
    if (!module || !image || (numOptions && (!options || !optionValues)))
        return CUDA_ERROR_INVALID_VALUE;
    *module = NULL;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    char log[2048] = "";
    stitch__drv_module *m = NULL;
    r = stitch__drv_capture_unsafe();
    if (!r)
        r = load(ctx, image, &m, log, sizeof(log));
    if (!r)
        *module = DRV_HANDLE(CUmodule, m);
    stitch__drv_leave(ctx);
    write_log(log, numOptions, options, optionValues, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
    write_log("", numOptions, options, optionValues, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
    return r;
}

CUresult CUDAAPI SIM(cuModuleLoadData)(CUmodule *module, const void *image)
{
    return SIM(cuModuleLoadDataEx)(module, image, 0, NULL, NULL);
}

/* The module of a handle with its context locked. */
static CUresult module_enter(CUmodule handle, stitch__drv_module **out)
{
    CUresult r;
    *out = DRV_ENTER(MODULE, handle, &r);
    return r;
}

CUresult CUDAAPI SIM(cuModuleUnload)(CUmodule hmod)
{
    stitch__drv_module *m;
    CUresult r = module_enter(hmod, &m);
    if (r)
        return r;
    unload(m->obj.ctx, m);
    stitch__drv_object_leave(m);
    return CUDA_SUCCESS;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

static CUresult find_function(const stitch__drv_module *m, const char *name, CUfunction *out)
{
    for (size_t i = 0; i < m->function_count; i++) {
        if (strcmp(m->functions[i]->info->name, name) == 0) {
            *out = DRV_HANDLE(CUfunction, m->functions[i]);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult find_global(const stitch__drv_module *m, const char *name, CUdeviceptr *dptr, size_t *bytes)
{
    for (size_t i = 0; i < m->variable_count; i++) {
        const stitch__sim_variable *v = stitch__sim_module_variable(m->core, i);
        if (strcmp(v->name, name) == 0) {
            if (dptr)
                *dptr = m->addresses[i];
            if (bytes)
                *bytes = (size_t)v->size;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI SIM(cuModuleGetFunction)(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    stitch__drv_module *m;
    if (!hfunc || !name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = module_enter(hmod, &m);
    if (r)
        return r;
    r = find_function(m, name, hfunc);
    stitch__drv_object_leave(m);
    return r;
}

CUresult CUDAAPI SIM(cuModuleGetGlobal_v2)(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    stitch__drv_module *m;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = module_enter(hmod, &m);
    if (r)
        return r;
    r = find_global(m, name, dptr, bytes);
    stitch__drv_object_leave(m);
    return r;
}

CUresult CUDAAPI SIM(cuModuleGetFunctionCount)(unsigned int *count, CUmodule mod)
{
    stitch__drv_module *m;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = module_enter(mod, &m);
    if (r)
        return r;
    *count = (unsigned)m->function_count;
    stitch__drv_object_leave(m);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuModuleEnumerateFunctions)(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    stitch__drv_module *m;
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = module_enter(mod, &m);
    if (r)
        return r;
    for (unsigned i = 0; i < numFunctions && i < m->function_count; i++)
        functions[i] = DRV_HANDLE(CUfunction, m->functions[i]);
    stitch__drv_object_leave(m);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(cuModuleGetLoadingMode)(CUmoduleLoadingMode *mode)
{
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

/* ---- libraries --------------------------------------------------------------------------------------------------- */

typedef struct library {
    stitch__drv_object obj;
    stitch__drv_module *module; /* counted */
} library;

static void destroy_library(stitch__drv_object *object)
{
    stitch__drv_unref(((library *)object)->module);
}

CUresult CUDAAPI SIM(cuLibraryLoadData)(CUlibrary *out, const void *code, CUjit_option *jitOptions,
                                        void **jitOptionsValues, unsigned int numJitOptions,
                                        CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                        unsigned int numLibraryOptions)
{
    CUmodule handle;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    CUresult r = SIM(cuModuleLoadDataEx)(&handle, code, numJitOptions, jitOptions, jitOptionsValues);
    if (r)
        return r;
    stitch__drv_module *m;
    r = module_enter(handle, &m);
    if (r)
        return r;
    library *l = stitch__drv_new(sizeof(*l), STITCH__DRV_LIBRARY, m->obj.ctx, destroy_library);
    if (l) {
        l->module = stitch__drv_ref(m);
        *out = DRV_HANDLE(CUlibrary, l);
    } else {
        unload(m->obj.ctx, m);
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    stitch__drv_object_leave(m);
    return r;
}

/* The handle of a library's module; NULL if there is no such library. */
static CUmodule library_module(CUlibrary handle)
{
    library *l = DRV_FIND(library, LIBRARY, handle);
    CUmodule m = l ? DRV_HANDLE(CUmodule, l->module) : NULL;
    stitch__drv_unref(l);
    return m;
}

CUresult CUDAAPI SIM(cuLibraryUnload)(CUlibrary handle)
{
    CUresult r = SIM(cuModuleUnload)(library_module(handle));
    library *l = r ? NULL : DRV_FIND(library, LIBRARY, handle);
    if (l)
        stitch__drv_retire(l);
    stitch__drv_unref(l);
    return r;
}

/* Kernels of libraries and functions of modules are the same objects, and so are their handles. */
CUresult CUDAAPI SIM(cuLibraryGetKernel)(CUkernel *pKernel, CUlibrary handle, const char *name)
{
    CUfunction f;
    if (!pKernel)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = SIM(cuModuleGetFunction)(&f, library_module(handle), name);
    if (!r)
        *pKernel = (CUkernel)f;
    return r;
}

CUresult CUDAAPI SIM(cuLibraryGetModule)(CUmodule *pMod, CUlibrary handle)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    *pMod = library_module(handle);
    return *pMod ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI SIM(cuLibraryGetGlobal)(CUdeviceptr *dptr, size_t *bytes, CUlibrary handle, const char *name)
{
    return SIM(cuModuleGetGlobal_v2)(dptr, bytes, library_module(handle), name);
}

CUresult CUDAAPI SIM(cuKernelGetFunction)(CUfunction *pFunc, CUkernel kernel)
{
    CUresult r = stitch__drv_ready();
    if (r)
        return r;
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_function *f = DRV_FIND(stitch__drv_function, FUNCTION, kernel);
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    *pFunc = (CUfunction)kernel;
    stitch__drv_unref(f);
    return CUDA_SUCCESS;
}
