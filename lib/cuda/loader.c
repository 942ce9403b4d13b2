/* SPDX-License-Identifier: MIT
 *
 * Finding and opening NVIDIA's shared libraries. Order: the override variable, the context's cuda_path, the system's
 * loader, fixed folders, toolkits, Python wheels. Every place that was tried is written down, because "not found" alone
 * helps nobody.
 */
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cuda/internal.h"

static const char *const driver_names[] = {"libcuda.so.1", NULL};
/* Never a toolkit's folder: its stubs/libcuda.so answers every call with an error. */
static const char *const driver_folders[] = {
    "/usr/lib/wsl/lib",           "/usr/local/nvidia/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu", "/run/opengl-driver/lib",  NULL};
static const char *const nvrtc_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
static const char *const cublaslt_names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
static const char *const cudnn_names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
static const char *const cupti_names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so", NULL};

const stitch__library stitch__library_driver = {
    "the NVIDIA driver",
    "STITCH_CUDA_DRIVER",
    driver_names,
    driver_folders,
    false,
    "install the NVIDIA driver (R550 or newer) on a machine with an NVIDIA GPU; in a "
    "container, start it with the NVIDIA container toolkit (--gpus all)"};
const stitch__library stitch__library_nvrtc = {
    "NVRTC",
    "STITCH_NVRTC",
    nvrtc_names,
    NULL,
    true,
    "install a CUDA toolkit 12.4 or newer (Debian package cuda-nvrtc-13-0) or the Python wheels "
    "nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-crt (for CUDA 12 nvidia-cuda-nvrtc-cu12, "
    "nvidia-cuda-runtime-cu12 and nvidia-cuda-nvcc-cu12), or set cuda_path or STITCH_NVRTC"};
const stitch__library stitch__library_cublaslt = {
    "cuBLASLt",
    "STITCH_CUBLASLT",
    cublaslt_names,
    NULL,
    true,
    "install a CUDA toolkit 12.4 or newer (Debian package libcublas-13-0) or the Python wheel "
    "nvidia-cublas, or set cuda_path or STITCH_CUBLASLT"};
const stitch__library stitch__library_cudnn = {
    "cuDNN", "STITCH_CUDNN", cudnn_names,
    NULL,    true,           "install cuDNN 9 (Debian package libcudnn9-cuda-13, Python wheel nvidia-cudnn-cu13)"};
const stitch__library stitch__library_cupti = {
    "CUPTI",
    "STITCH_CUPTI",
    cupti_names,
    NULL,
    true,
    "install a CUDA toolkit 12.4 or newer (Debian package cuda-cupti-13-0) or the Python wheel "
    "nvidia-cuda-cupti"};

/* ---- lists of folders ---- */

typedef struct folders {
    stitch__arena arena;
    char **list;
    size_t count, cap;
    bool failed;
} folders;

static void folders_free(folders *f)
{
    stitch_free(f->list);
    stitch__arena_free(&f->arena);
    memset(f, 0, sizeof(*f));
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Adds a folder that exists and is not on the list yet (under any name). */
STITCH__PRINTF(2, 3) static void folders_add(folders *f, const char *fmt, ...)
{
    char path[PATH_MAX], real[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    if (n <= 0 || (size_t)n >= sizeof(path) || !realpath(path, real) || !is_folder(real))
        return;
    for (size_t i = 0; i < f->count; i++) {
        if (strcmp(f->list[i], real) == 0)
            return;
    }
    char *copy = stitch__arena_strdup(&f->arena, real);
    if (!copy || stitch__grow(f->arena.ctx, &f->list, &f->cap, f->count + 1, sizeof(*f->list)) != STITCH_OK) {
        f->failed = true;
        return;
    }
    f->list[f->count++] = copy;
}

/* Matches in the order of the names, or the reverse of it: newer versions first. */
static void folders_glob(folders *f, const char *pattern, bool reverse)
{
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++)
            folders_add(f, "%s", g.gl_pathv[reverse ? g.gl_pathc - 1 - i : i]);
    }
    globfree(&g);
}

static const char *set_env(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The folder above the one that an executable on PATH really lies in. */
static void add_root_of(folders *roots, const char *program)
{
    const char *path = set_env("PATH");
    for (const char *at = path; at && *at;) {
        size_t len = strcspn(at, ":");
        char file[PATH_MAX], real[PATH_MAX];
        if (len > 0 && (size_t)snprintf(file, sizeof(file), "%.*s/%s", (int)len, at, program) < sizeof(file) &&
            access(file, X_OK) == 0 && realpath(file, real)) {
            for (int up = 0; up < 2; up++) {
                char *slash = strrchr(real, '/');
                if (slash)
                    *slash = '\0';
            }
            if (*real)
                folders_add(roots, "%s", real);
            return;
        }
        at += len + (at[len] == ':');
    }
}

static const char *target_name(void)
{
    struct utsname u;
    if (uname(&u) == 0 && strcmp(u.machine, "aarch64") == 0)
        return "sbsa-linux";
    return "x86_64-linux";
}

/* lib or include folders of one toolkit root. */
static void add_root(folders *out, const char *root, bool include)
{
    if (include) {
        folders_add(out, "%s/include", root);
        folders_add(out, "%s/targets/%s/include", root, target_name());
        return;
    }
    folders_add(out, "%s/lib64", root);
    folders_add(out, "%s/lib", root);
    folders_add(out, "%s/targets/%s/lib", root, target_name());
    folders_add(out, "%s/extras/CUPTI/lib64", root);
}

static void add_toolkits(folders *out, bool include)
{
    folders roots = {.arena = {.ctx = out->arena.ctx}};
    const char *home = set_env("CUDA_HOME"), *path = set_env("CUDA_PATH");
    if (home)
        folders_add(&roots, "%s", home);
    if (path)
        folders_add(&roots, "%s", path);
    folders_add(&roots, "/usr/local/cuda");
    folders_glob(&roots, "/usr/local/cuda-*", true);
    folders_add(&roots, "/opt/cuda");
    add_root_of(&roots, "nvcc");
    for (size_t i = 0; i < roots.count; i++)
        add_root(out, roots.list[i], include);
    folders_free(&roots);
}

static void add_site(folders *sites, const char *root, const char *below)
{
    char pattern[PATH_MAX];
    if (root && (size_t)snprintf(pattern, sizeof(pattern), "%s/%s", root, below) < sizeof(pattern))
        folders_glob(sites, pattern, true);
}

char *stitch__venv_beside(const stitch_context *ctx, const char *file)
{
    char real[PATH_MAX], path[PATH_MAX];
    struct stat of_file, of_venv, config;
    if (!file || file[0] != '/' || !realpath(file, real) || stat(real, &of_file) != 0)
        return NULL; /* a relative path would mean another place after a chdir() */
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(real, '/');
        if (!slash)
            return NULL;
        *slash = '\0';
    }
    if ((size_t)snprintf(path, sizeof(path), "%s/venv/pyvenv.cfg", real) >= sizeof(path) || stat(path, &config) != 0)
        return NULL;
    path[strlen(path) - strlen("/pyvenv.cfg")] = '\0';
    /* The process trusts the library's owner already, but not what another user put beside it. The path becomes a
     * pattern. */
    if (lstat(path, &of_venv) != 0 || of_venv.st_uid != of_file.st_uid || strpbrk(path, "*?[\\"))
        return NULL;
    return stitch__strdup(ctx, path);
}

char *stitch__site_beside(const stitch_context *ctx, const char *file)
{
    static const char package[] = "/stitch/lib/";
    char real[PATH_MAX], path[PATH_MAX];
    struct stat of_file, of_wheels;
    if (!file || file[0] != '/' || !realpath(file, real) || stat(real, &of_file) != 0)
        return NULL;
    char *slash = strrchr(real, '/');
    size_t site = (size_t)(slash + 1 - real);
    if (site < sizeof(package) || strncmp(slash + 2 - sizeof(package), package, sizeof(package) - 1) != 0)
        return NULL;
    site -= sizeof(package) - 1;
    real[site] = '\0';
    if ((size_t)snprintf(path, sizeof(path), "%s/stitch/__init__.py", real) >= sizeof(path) || access(path, F_OK) != 0)
        return NULL;
    /* As above; system packages may lie beside one of a user. */
    snprintf(path, sizeof(path), "%.*s/nvidia", (int)site, real);
    if (lstat(path, &of_wheels) != 0 || (of_wheels.st_uid != of_file.st_uid && of_wheels.st_uid != 0) ||
        strpbrk(real, "*?[\\"))
        return NULL;
    return stitch__strdup(ctx, real);
}

/* The file that this code was loaded from. */
static const char *own_file(void)
{
    static const char here = 0; /* an address in the library, or in the executable that it is linked into */
    Dl_info info;
    if (dladdr(&here, &info) == 0)
        return NULL;
    /* An executable's own name is what it was called by. */
    return info.dli_fname && info.dli_fname[0] == '/' ? info.dli_fname : "/proc/self/exe";
}

static void add_own_site(folders *sites)
{
    char *site = stitch__site_beside(sites->arena.ctx, own_file());
    if (site)
        folders_add(sites, "%s", site);
    stitch_free(site);
}

static void add_own_venv(folders *sites, const char *below)
{
    char *venv = stitch__venv_beside(sites->arena.ctx, own_file());
    add_site(sites, venv, below);
    stitch_free(venv);
}

static void add_wheels(folders *out, bool include)
{
    static const char site_packages[] = "lib/python3*/site-packages";
    folders sites = {.arena = {.ctx = out->arena.ctx}}, roots = {.arena = {.ctx = out->arena.ctx}};
    add_own_site(&sites);
    add_site(&sites, set_env("VIRTUAL_ENV"), site_packages);
    add_site(&sites, set_env("CONDA_PREFIX"), site_packages);
    add_own_venv(&sites, site_packages);
    add_root_of(&roots, "python3");
    for (size_t i = 0; i < roots.count; i++)
        add_site(&sites, roots.list[i], site_packages);
    if (set_env("HOME"))
        add_site(&sites, set_env("HOME"), ".local/lib/python3*/site-packages");
    add_site(&sites, "/usr/local", "lib/python3*/dist-packages");
    add_site(&sites, "/usr/local", site_packages);
    add_site(&sites, "/usr", "lib/python3/dist-packages");
    for (size_t i = 0; i < sites.count; i++) {
        char pattern[PATH_MAX];
        if ((size_t)snprintf(pattern, sizeof(pattern), "%s/nvidia/*/%s", sites.list[i], include ? "include" : "lib") <
            sizeof(pattern))
            folders_glob(out, pattern, false);
    }
    if (set_env("CONDA_PREFIX"))
        add_root(out, set_env("CONDA_PREFIX"), include);
    folders_free(&sites);
    folders_free(&roots);
}

void stitch__toolkit_folders(const stitch_context *ctx, bool include, stitch__buf *out)
{
    folders f = {.arena = {.ctx = ctx}};
    add_toolkits(&f, include);
    add_wheels(&f, include);
    for (size_t i = 0; i < f.count; i++)
        stitch__buf_printf(out, "%s\n", f.list[i]);
    folders_free(&f);
}

/* ---- opening ---- */

STITCH__PRINTF(2, 3) static void note(stitch__buf *tried, const char *fmt, ...)
{
    va_list ap;
    if (!tried)
        return;
    va_start(ap, fmt);
    stitch__buf_vprintf(tried, fmt, ap);
    va_end(ap);
    stitch__buf_putc(tried, '\n');
}

static char *loaded_path(const stitch_context *ctx, void *handle, const char *fallback)
{
    struct link_map *map = NULL;
    char real[PATH_MAX];
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
        fallback = map->l_name;
    return stitch__strdup(ctx, fallback[0] == '/' && realpath(fallback, real) ? real : fallback);
}

/* NVRTC opens libnvrtc-builtins by its bare name and has no run path, so from a folder that the system's loader does
 * not know it fails (error 7). Having it open already, from the same folder and thus of the same version, prevents
 * that. */
static void open_siblings(const char *path, stitch__buf *tried)
{
    char pattern[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!slash || strncmp(name, "libnvrtc.so", 11) != 0)
        return;
    if ((size_t)snprintf(pattern, sizeof(pattern), "%.*s/libnvrtc-builtins.so.*.*", (int)(slash - path), path) >=
        sizeof(pattern))
        return;
    glob_t g = {0};
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            if (strstr(g.gl_pathv[i], ".alt."))
                continue;
            if (!dlopen(g.gl_pathv[i], RTLD_NOW | RTLD_LOCAL))
                note(tried, "%s: %s", g.gl_pathv[i], dlerror());
        }
    }
    globfree(&g);
}

static void *open_path(const char *path, stitch__buf *tried)
{
    char real[PATH_MAX];
    if (realpath(path, real))
        open_siblings(real, tried);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        note(tried, "%s: %s", path, why ? why : "cannot be opened");
    }
    return handle;
}

/* The first of the names in a folder that can be opened (or, `probe`, that exists). */
static void *open_in(const char *folder, const stitch__library *library, bool probe, stitch__buf *tried,
                     char found[PATH_MAX])
{
    bool any = false;
    for (size_t i = 0; library->names[i]; i++) {
        if ((size_t)snprintf(found, PATH_MAX, "%s/%s", folder, library->names[i]) >= PATH_MAX ||
            access(found, R_OK) != 0)
            continue;
        any = true;
        void *handle = probe ? found : open_path(found, tried);
        if (handle)
            return handle;
    }
    if (!any)
        note(tried, "%s: no %s", folder, library->names[0]);
    return NULL;
}

static void *open_list(const folders *f, const stitch__library *library, bool probe, stitch__buf *tried,
                       char found[PATH_MAX])
{
    void *handle = NULL;
    for (size_t i = 0; !handle && i < f->count; i++)
        handle = open_in(f->list[i], library, probe, tried, found);
    return handle;
}

static void *open_system(const stitch__library *library, bool probe, stitch__buf *tried, char found[PATH_MAX])
{
    for (size_t i = 0; library->names[i]; i++) {
        void *handle = dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL | (probe ? RTLD_NOLOAD : 0));
        if (handle) {
            snprintf(found, PATH_MAX, "%s", library->names[i]);
            return handle;
        }
        const char *why = dlerror();
        if (!probe)
            note(tried, "the system's loader: %s", why ? why : library->names[i]);
    }
    return NULL;
}

/* Roughly what the system's loader searches, for a look without opening. */
static void add_system(folders *f)
{
    const char *path = set_env("LD_LIBRARY_PATH");
    for (const char *at = path; at && *at;) {
        size_t len = strcspn(at, ":");
        if (len > 0)
            folders_add(f, "%.*s", (int)len, at);
        at += len + (at[len] == ':');
    }
    folders_add(f, "/usr/lib/x86_64-linux-gnu");
    folders_add(f, "/usr/lib/aarch64-linux-gnu");
    folders_add(f, "/usr/lib64");
    folders_add(f, "/usr/local/lib");
}

static void *search(const stitch_context *ctx, const stitch__library *library, bool probe, stitch__buf *tried,
                    char found[PATH_MAX])
{
    const char *cuda_path = ctx ? stitch__context_options(ctx)->cuda_path : NULL;
    void *handle = NULL;
    folders f = {.arena = {.ctx = ctx}};
    if (!cuda_path)
        cuda_path = set_env("STITCH_CUDA_PATH");
    if (library->toolkit && cuda_path) {
        if (!is_folder(cuda_path))
            note(tried, "%s: no such folder (cuda_path)", cuda_path);
        add_root(&f, cuda_path, false);
        handle = open_list(&f, library, probe, tried, found);
        folders_free(&f);
        f.arena.ctx = ctx;
    }
    if (!handle)
        handle = open_system(library, probe, tried, found);
    if (!handle) {
        for (size_t i = 0; library->folders && library->folders[i]; i++)
            folders_add(&f, "%s", library->folders[i]);
        if (probe)
            add_system(&f);
        if (library->toolkit) {
            add_toolkits(&f, false);
            add_wheels(&f, false);
        }
        handle = open_list(&f, library, probe, tried, found);
    }
    folders_free(&f);
    return handle;
}

int stitch__library_open(const stitch_context *ctx, const stitch__library *library, void **handle, char **path,
                         stitch__buf *tried, stitch_error **err)
{
    char found[PATH_MAX] = "";
    stitch__buf own;
    int rc = STITCH_OK;
    *handle = NULL;
    *path = NULL;
    stitch__buf_init(&own, ctx);
    const char *override = set_env(library->variable);
    if (override) {
        snprintf(found, sizeof(found), "%s", override);
        *handle = open_path(override, &own);
        if (!*handle)
            rc = stitch__err(ctx, err, STITCH_E_NO_LIBRARY,
                             "%s cannot be opened from %s=%s; correct or unset the variable", library->what,
                             library->variable, override);
    } else {
        *handle = search(ctx, library, false, &own, found);
        if (!*handle)
            rc = stitch__err(ctx, err, STITCH_E_NO_LIBRARY, "%s (%s) was not found in any place that was tried; %s",
                             library->what, library->names[0], library->install);
    }
    if (*handle) {
        *path = loaded_path(ctx, *handle, found);
        if (!*path)
            rc = stitch__err_nomem(ctx, err);
        else
            open_siblings(*path, &own); /* found by the system's loader */
    } else {
        stitch__err_details(err, own.data ? own.data : "");
    }
    if (tried && own.data)
        stitch__buf_append(tried, own.data, own.len);
    stitch__buf_free(&own);
    return rc;
}

char *stitch__library_find(const stitch_context *ctx, const stitch__library *library, stitch__buf *tried)
{
    char found[PATH_MAX] = "";
    const char *override = set_env(library->variable);
    if (override) {
        if (access(override, R_OK) == 0)
            return stitch__strdup(ctx, override);
        note(tried, "%s (from %s): no such file", override, library->variable);
        return NULL;
    }
    void *handle = search(ctx, library, true, tried, found);
    if (!handle)
        return NULL;
    return found[0] == '/' ? stitch__strdup(ctx, found) : loaded_path(ctx, handle, found);
}

char *stitch__driver_find(const stitch_context *ctx)
{
    return stitch__library_find(ctx, &stitch__library_driver, NULL);
}

char *stitch__nvrtc_find(const stitch_context *ctx)
{
    return stitch__library_find(ctx, &stitch__library_nvrtc, NULL);
}

char *stitch__cublaslt_find(const stitch_context *ctx)
{
    return stitch__library_find(ctx, &stitch__library_cublaslt, NULL);
}

char *stitch__cupti_find(const stitch_context *ctx)
{
    return stitch__library_find(ctx, &stitch__library_cupti, NULL);
}

/* ---- headers ---- */

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return (size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) < sizeof(path) && access(path, R_OK) == 0;
}

char *const *stitch__include_folders(const stitch_context *ctx, stitch__arena *arena, const char *path)
{
    folders all = {.arena = {.ctx = ctx}}, use = {.arena = {.ctx = ctx}};
    const char *cuda_path = ctx ? stitch__context_options(ctx)->cuda_path : NULL;
    const char *slash = path ? strrchr(path, '/') : NULL;
    char **out = NULL;
    if (!cuda_path)
        cuda_path = set_env("STITCH_CUDA_PATH");
    if (cuda_path)
        add_root(&all, cuda_path, true);
    if (slash && *path == '/') { /* the headers of the same toolkit, or of the wheels beside NVRTC's */
        char pattern[PATH_MAX];
        folders_add(&all, "%.*s/../include", (int)(slash - path), path);
        folders_add(&all, "%.*s/../../../include", (int)(slash - path), path);
        if ((size_t)snprintf(pattern, sizeof(pattern), "%.*s/../../cu*/include", (int)(slash - path), path) <
            sizeof(pattern))
            folders_glob(&all, pattern, false);
    }
    add_toolkits(&all, true);
    add_wheels(&all, true);
    folders_add(&all, "/usr/include");
    /* One folder with the types' headers and one with libcu++, of one toolkit where possible; no third one, lest
     * versions get mixed. */
    for (size_t i = 0; i < all.count; i++) {
        if (use.count == 0 && has_file(all.list[i], "cuda_fp16.h"))
            folders_add(&use, "%s", all.list[i]);
    }
    bool cxx = false;
    for (int pass = 0; pass < 2 && !cxx; pass++) {
        for (size_t i = 0; i < all.count && !cxx; i++) {
            if (pass == 0 && (use.count == 0 || strcmp(all.list[i], use.list[0]) != 0))
                continue;
            char cccl[PATH_MAX];
            cxx = true;
            if ((size_t)snprintf(cccl, sizeof(cccl), "%s/cccl", all.list[i]) < sizeof(cccl) &&
                has_file(cccl, "cuda/std/cstdint"))
                folders_add(&use, "%s", cccl);
            else if (has_file(all.list[i], "cuda/std/cstdint"))
                folders_add(&use, "%s", all.list[i]);
            else
                cxx = false;
        }
    }
    /* Wheels keep crt/ (which mma.h needs) apart, in the compiler's one. */
    bool crt = use.count > 0 && has_file(use.list[0], "crt/mma.h");
    for (size_t i = 0; i < all.count && !crt; i++) {
        crt = has_file(all.list[i], "crt/mma.h") && !has_file(all.list[i], "cuda_fp16.h");
        if (crt)
            folders_add(&use, "%s", all.list[i]);
    }
    out = stitch__arena_array(arena, use.count + 1, sizeof(*out));
    for (size_t i = 0; out && i < use.count; i++) {
        if (!(out[i] = stitch__arena_strdup(arena, use.list[i])))
            out = NULL;
    }
    folders_free(&all);
    folders_free(&use);
    return out;
}
