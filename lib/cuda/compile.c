/* SPDX-License-Identifier: MIT
 *
 * stitch_compile(): options, cache key, NVRTC, diagnostics, image.
 */
#include <sys/stat.h>

#include "cuda/internal.h"
#include <stitch/version.h>

enum { MAX_NAMES = 4096, MAX_NAME_BYTES = 1024, MAX_FLAGS = 256, DEFAULT_SOURCE_BYTES = 4 << 20 };

/* A call in progress. */
typedef struct call {
    stitch_context *ctx;
    stitch__cuda *cuda;
    const stitch__nvrtc *nvrtc;
    const stitch__compiler *by; /* NULL: a thread of this process */
    stitch__scope scope;
    stitch_compile_options o;
    const char *source;
    size_t source_len;
    bool ptx;
    stitch_image *image;
    const char **options; /* for NVRTC */
    size_t option_count;
    char key[65]; /* "": not cached */
} call;

int stitch_compile_options_init(stitch_compile_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(stitch_compile_options));
}

/* ---- arguments ---- */

static int check_lists(call *c, stitch_error **err)
{
    if (c->o.name_count > MAX_NAMES || c->o.flag_count > MAX_FLAGS)
        return stitch__err(c->ctx, err, STITCH_E_LIMIT, "stitch_compile: more than %d names or %d flags", MAX_NAMES,
                           MAX_FLAGS);
    if ((c->o.name_count && !c->o.names) || (c->o.flag_count && !c->o.flags))
        return stitch__err(c->ctx, err, STITCH_E_INVALID,
                           "stitch_compile: names or flags is NULL but its count is not 0");
    for (size_t i = 0; i < c->o.name_count; i++) {
        const char *name = c->o.names[i];
        if (!name || !*name || strlen(name) > MAX_NAME_BYTES)
            return stitch__err(c->ctx, err, STITCH_E_INVALID,
                               "stitch_compile: names[%zu] is empty or longer than %d bytes", i, MAX_NAME_BYTES);
        /* NVRTC pastes it into a pragma: a line end in it would let in any other text. */
        for (const char *p = name; *p; p++) {
            if ((unsigned char)*p < ' ' || strchr("#\"'\\;{}@`?", *p))
                return stitch__err(
                    c->ctx, err, STITCH_E_INVALID,
                    "stitch_compile: names[%zu] (\"%.60s\") has a character that no kernel name can have", i, name);
        }
    }
    for (size_t i = 0; i < c->o.flag_count; i++) {
        if (!c->o.flags[i])
            return stitch__err(c->ctx, err, STITCH_E_INVALID, "stitch_compile: flags[%zu] is NULL", i);
    }
    return STITCH_OK;
}

/* The architecture asked for or the device's; `ptx` for a simulated device. */
static int pick_arch(call *c, const char **arch, stitch_error **err)
{
    int number;
    char suffix;
    c->ptx = c->o.ptx != 0;
    *arch = c->o.arch;
    if (!c->o.arch) {
        stitch__device *dev;
        int rc = stitch__device_get(c->ctx, &dev, err);
        if (rc) {
            stitch__err_prefix(err, "no arch is given and there is no device to take it from: ");
            return rc;
        }
        *arch = dev->info.arch;
        c->ptx = c->ptx || dev->info.simulated;
    } else {
        c->ptx = c->ptx || strncmp(stitch__context_options(c->ctx)->device, "sim:", 4) == 0;
        pthread_mutex_lock(&c->cuda->lock);
        c->ptx = c->ptx || (c->cuda->device_ready && c->cuda->device.info.simulated);
        pthread_mutex_unlock(&c->cuda->lock);
    }
    if (!stitch__arch_parse(*arch, &number, &suffix))
        return stitch__err(c->ctx, err, STITCH_E_INVALID,
                           "arch \"%.40s\" is not known: it is written like sm_80 or sm_90a", *arch);
    int archs[256], count = 0;
    if (c->nvrtc->GetNumSupportedArchs(&count) != NVRTC_SUCCESS || count < 1 || count > (int)STITCH__COUNT(archs) ||
        c->nvrtc->GetSupportedArchs(archs) != NVRTC_SUCCESS)
        return STITCH_OK; /* NVRTC will say it itself */
    for (int i = 0; i < count; i++) {
        if (archs[i] == number)
            return STITCH_OK;
    }
    return stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED,
                       "NVRTC %d.%d (%s) does not compile for %s: it knows sm_%d to sm_%d", c->nvrtc->major,
                       c->nvrtc->minor, c->nvrtc->path, *arch, archs[0], archs[count - 1]);
}

/* ---- NVRTC's options ---- */

static bool has_flag(const call *c, const char *start)
{
    for (size_t i = 0; i < c->o.flag_count; i++) {
        if (strncmp(c->o.flags[i], start, strlen(start)) == 0)
            return true;
    }
    return false;
}

/* -default-device is left out on purpose: code without __device__ would compile here and not with nvcc, which the
 * exported forms of a program are for. */
static int make_options(call *c, stitch_error **err)
{
    stitch__arena *a = &c->image->arena;
    size_t folders = 0, n = 0;
    while (c->cuda->includes[folders])
        folders++;
    const char **options = stitch__arena_array(a, folders + c->o.flag_count + 8, sizeof(*options));
    if (!options)
        return stitch__err_nomem(c->ctx, err);
    options[n++] = stitch__arena_printf(a, "--gpu-architecture=%s%s", c->ptx ? "compute_" : "sm_", c->image->arch + 3);
    if (!has_flag(c, "-std") && !has_flag(c, "--std"))
        options[n++] = "-std=c++17";
    options[n++] = "-lineinfo";
    options[n++] = "--modify-stack-limit=false";
    if (!c->ptx)
        options[n++] = "--ptxas-options=-v";
    /* NVRTC 13 keeps a cache of its own in the user's home. */
    if (c->nvrtc->major >= 13 && (c->o.no_cache || !*stitch__context_options(c->ctx)->cache_dir))
        options[n++] = "--no-cache";
    for (size_t i = 0; i < folders; i++)
        options[n++] = stitch__arena_printf(a, "-I%s", c->cuda->includes[i]);
    for (size_t i = 0; i < c->o.flag_count; i++)
        options[n++] = stitch__arena_strdup(a, c->o.flags[i]);
    for (size_t i = 0; i < n; i++) {
        if (!options[i])
            return stitch__err_nomem(c->ctx, err);
    }
    c->options = options;
    c->option_count = n;
    return STITCH_OK;
}

/* ---- cache key ---- */

static void hash_file(stitch__sha256 *h, const char *path)
{
    struct stat st;
    char text[80] = "none";
    if (path && stat(path, &st) == 0)
        snprintf(text, sizeof(text), "%lld %lld.%09ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                 st.st_mtim.tv_nsec);
    stitch__sha256_string(h, path);
    stitch__sha256_string(h, text);
}

/* Everything that decides what comes out. Flags that bring in files switch the cache off: their content is not known.
 */
static void make_key(call *c)
{
    stitch__sha256 h;
    char number[32];
    c->key[0] = '\0';
    if (c->o.no_cache || !*stitch__context_options(c->ctx)->cache_dir)
        return;
    for (size_t i = 0; i < c->o.flag_count; i++) {
        const char *f = c->o.flags[i];
        if (strncmp(f, "-I", 2) == 0 || strstr(f, "include") || strstr(f, "pch") || strstr(f, "isystem") ||
            strstr(f, "options-file"))
            return;
    }
    stitch__sha256_init(&h);
    stitch__sha256_string(&h, "stitch image 1");
    stitch__sha256_string(&h, stitch_version_string());
    stitch__sha256_string(&h, c->source);
    stitch__sha256_string(&h, c->image->arch);
    snprintf(number, sizeof(number), "%zu %zu", c->option_count, c->o.name_count);
    stitch__sha256_string(&h, number);
    for (size_t i = 0; i < c->option_count; i++)
        stitch__sha256_string(&h, c->options[i]);
    for (size_t i = 0; i < c->o.name_count; i++)
        stitch__sha256_string(&h, c->o.names[i]);
    snprintf(number, sizeof(number), "%d.%d", c->nvrtc->major, c->nvrtc->minor);
    stitch__sha256_string(&h, number);
    hash_file(&h, c->nvrtc->path);
    for (size_t i = 0; c->cuda->includes[i]; i++) { /* the headers change with the toolkit, all at once */
        char *path = stitch__path_join(c->ctx, c->cuda->includes[i], i == 0 ? "cuda_fp16.h" : "cuda/std/cstdint");
        hash_file(&h, path);
        stitch_free(path);
    }
    for (size_t i = 0; i < stitch__header_count; i++) {
        stitch__sha256_string(&h, stitch__headers[i].name);
        stitch__sha256_string(&h, stitch__headers[i].text);
    }
    stitch__sha256_hex(&h, c->key);
}

/* ---- after the compiler ---- */

/* NVRTC looks names up with a piece of source of its own; its messages become ones about the name. */
static int rename_lookups(call *c)
{
    static const char marker[] = "Input name expression was: \"";
    stitch__diagnostics *d = &c->image->diagnostics;
    size_t kept = 0;
    for (size_t i = 0; i < d->count; i++) {
        stitch_diagnostic *from = &d->list[i];
        bool lookup = strcmp(from->file, "__nv_name_map") == 0;
        const char *name = lookup ? strstr(from->message, marker) : NULL;
        if (lookup) {
            from->file = "program.cu";
            from->line = from->column = 0;
        }
        if (name) {
            name += sizeof(marker) - 1;
            name += strspn(name, " ");
            bool other = strstr(from->message, "non-__global__") != NULL;
            from->message = stitch__arena_printf(
                &c->image->arena,
                other ? "the program uses a kernel \"%.*s\", which is no __global__ function"
                      : "the program uses a kernel \"%.*s\", which the source does not define, or whose "
                        "template arguments do not fit",
                (int)strcspn(name, "\""), name);
            if (!from->message)
                return STITCH_E_NOMEM;
        } else if (lookup && from->severity == STITCH_SEVERITY_ERROR &&
                   strncmp(from->message, "identifier \"", 12) == 0) {
            d->errors--; /* said better by the message that follows it */
            continue;
        }
        d->list[kept++] = *from;
    }
    d->count = kept;
    return STITCH_OK;
}

/* With -v, ptxas refuses too much shared memory without a word. */
static int explain_silence(call *c, const stitch__usages *usages)
{
    char text[600];
    bool said = false;
    for (size_t i = 0; i < usages->count; i++) {
        stitch__demangled d;
        if (usages->list[i].shared <= 48 << 10)
            continue;
        if (stitch__demangle(&c->image->arena, usages->list[i].symbol, &d) != STITCH_OK)
            return STITCH_E_NOMEM;
        snprintf(text, sizeof(text),
                 "kernel %.200s declares %lld bytes of static shared memory, more than a block can have; the limit for "
                 "static shared memory "
                 "is 49152 bytes, more needs dynamic shared memory (extern __shared__)",
                 d.name, (long long)usages->list[i].shared);
        if (stitch__diagnostics_add(&c->image->arena, &c->image->diagnostics, STITCH_SEVERITY_ERROR, 0, 0, "program.cu",
                                    text) != STITCH_OK)
            return STITCH_E_NOMEM;
        said = true;
    }
    if (said)
        return STITCH_OK;
    return stitch__diagnostics_add(&c->image->arena, &c->image->diagnostics, STITCH_SEVERITY_ERROR, 0, 0, "program.cu",
                                   "the compiler failed without saying why");
}

static int keep_log(call *c, const stitch__rtc *rtc)
{
    stitch__buf stripped, clean;
    stitch__buf_init(&stripped, c->ctx);
    stitch__buf_init(&clean, c->ctx);
    if (rtc->log)
        stitch__log_strip(rtc->log, rtc->log_len, &stripped);
    stitch__buf_puts_clean(&clean, stripped.data ? stripped.data : "", stripped.len, 256 << 10);
    bool failed = stripped.failed || clean.failed;
    if (!failed)
        c->image->log = stitch__arena_strdup(&c->image->arena, clean.data ? clean.data : "");
    stitch__buf_free(&stripped);
    stitch__buf_free(&clean);
    return failed || !c->image->log ? STITCH_E_NOMEM : STITCH_OK;
}

/* The status of a call whose image has errors. */
static int refuse(call *c, stitch_error **err)
{
    const stitch__diagnostics *d = &c->image->diagnostics;
    const stitch_diagnostic *first = NULL;
    char more[64] = "", place[300] = "";
    for (size_t i = 0; i < d->count && !first; i++) {
        if (d->list[i].severity == STITCH_SEVERITY_ERROR)
            first = &d->list[i];
    }
    if (first && first->line > 0)
        snprintf(place, sizeof(place), "%.250s:%d: ", first->file, (int)first->line);
    if (d->errors > 1)
        snprintf(more, sizeof(more), " (and %zu more error%s)", d->errors - 1, d->errors > 2 ? "s" : "");
    int rc = stitch__err(c->ctx, err, STITCH_E_COMPILE, "the device code does not compile: %s%.600s%s", place,
                         first ? first->message : "?", more);
    stitch__err_domain(err, STITCH_DOMAIN_NVRTC);
    stitch__err_details(err, c->image->log);
    return rc;
}

/* NVRTC itself failed, rather than the source. */
static int library_error(call *c, const stitch__rtc *rtc, stitch_error **err)
{
    static const char *const calls[STITCH__RTC_CALLS] = {"nvrtcCompileProgram",    "nvrtcCreateProgram",
                                                         "nvrtcAddNameExpression", "nvrtcGetLoweredName",
                                                         "nvrtcGetCUBINSize",      "nvrtcGetCUBIN"};
    const char *text = c->nvrtc->GetErrorString(rtc->result);
    int code = STITCH_E_LIBRARY;
    const char *advice = "";
    if (rtc->result == NVRTC_ERROR_OUT_OF_MEMORY)
        code = STITCH_E_NOMEM;
    else if (rtc->result == NVRTC_ERROR_INVALID_OPTION)
        code = STITCH_E_INVALID;
    else if (rtc->result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE)
        advice = "; libnvrtc-builtins of the same version must lie beside NVRTC";
    code = stitch__err_native(c->ctx, err, code, STITCH_DOMAIN_NVRTC, rtc->result, "%s (NVRTC %d.%d, %s): %s%s%.*s%s",
                              calls[rtc->call], c->nvrtc->major, c->nvrtc->minor, c->nvrtc->path, text ? text : "?",
                              rtc->log_len ? ": " : "", rtc->log ? (int)strcspn(rtc->log, "\n") : 0,
                              rtc->log ? rtc->log : "", advice);
    stitch__err_details(err, rtc->log ? rtc->log : "");
    return code;
}

static int build(call *c, const stitch__rtc *rtc, stitch__usages *usages, stitch_error **err)
{
    stitch_image *image = c->image;
    if (rtc->call != STITCH__RTC_COMPILE || (rtc->result != NVRTC_SUCCESS && rtc->result != NVRTC_ERROR_COMPILATION))
        return library_error(c, rtc, err);
    if (keep_log(c, rtc) != STITCH_OK ||
        stitch__diagnostics_parse(&image->arena, rtc->log ? rtc->log : "", rtc->log_len, rtc->ptx, rtc->ptx_len,
                                  &image->diagnostics, usages) != STITCH_OK ||
        rename_lookups(c) != STITCH_OK)
        return stitch__err_nomem(c->ctx, err);
    if (rtc->result == NVRTC_ERROR_COMPILATION) {
        if (!image->diagnostics.errors && explain_silence(c, usages) != STITCH_OK)
            return stitch__err_nomem(c->ctx, err);
        return refuse(c, err);
    }
    const char *code = c->ptx ? rtc->ptx : rtc->cubin;
    size_t size = c->ptx ? rtc->ptx_len : rtc->cubin_size;
    if (!code || !size)
        return stitch__err(c->ctx, err, STITCH_E_LIBRARY,
                           "NVRTC %d.%d (%s) compiled the program but gave no code for %s", c->nvrtc->major,
                           c->nvrtc->minor, c->nvrtc->path, image->arch);
    if (stitch__image_set_data(image, code, size, c->ptx) != STITCH_OK)
        return stitch__err_nomem(c->ctx, err);
    int rc =
        stitch__image_set_kernels(image, c->o.names, (const char *const *)rtc->symbols, c->o.name_count, usages, err);
    if (rc)
        return rc;
    if (image->diagnostics.errors) { /* a name that is no kernel */
        image->data = NULL;
        image->size = image->kernel_count = 0;
        return refuse(c, err);
    }
    return STITCH_OK;
}

/* The compiler's process did not survive the source: an error of the source as any other, though without a line. */
static int blame_source(call *c, stitch_error *why, stitch_error **err)
{
    if (stitch__diagnostics_add(&c->image->arena, &c->image->diagnostics, STITCH_SEVERITY_ERROR, 0, 0, "program.cu",
                                stitch_error_message(why)) != STITCH_OK)
        return stitch__err_nomem(c->ctx, err);
    c->image->log = stitch__arena_strdup(&c->image->arena, stitch_error_details(why));
    return c->image->log ? refuse(c, err) : stitch__err_nomem(c->ctx, err);
}

static int compile(call *c, stitch_error **err)
{
    const stitch__rtc_input in = {c->source, c->options, c->o.names, c->option_count, c->o.name_count};
    stitch__rtc rtc = {.result = NVRTC_SUCCESS};
    stitch__usages usages = {0};
    stitch_error *why = NULL;
    int rc =
        stitch__source_check(&c->image->arena, c->source, c->source_len, c->cuda->includes, &c->image->diagnostics);
    if (rc)
        return stitch__err_nomem(c->ctx, err);
    if (c->image->diagnostics.errors)
        return refuse(c, err);
    rc = c->by ? c->by->run(c->by->self, &c->scope, &in, &rtc, &why)
               : stitch__rtc_run(c->nvrtc, &c->scope, &in, &rtc, &why);
    if (rc == STITCH_E_COMPILE)
        rc = blame_source(c, why, err);
    else if (rc)
        stitch__err_hand_on(err, &why);
    stitch_error_free(why);
    if (rc == STITCH_OK)
        rc = stitch__scope_check(&c->scope, "compiling", err);
    if (rc == STITCH_OK)
        rc = build(c, &rtc, &usages, err);
    stitch_free(usages.list);
    stitch__rtc_free(&rtc);
    return rc;
}

/* From checked arguments to an image: from the cache or the compiler. */
static int run(call *c, const char *arch, stitch_error **err)
{
    c->image = stitch__image_new(c->ctx);
    if (!c->image || !(c->image->arch = stitch__arena_strdup(&c->image->arena, arch)))
        return stitch__err_nomem(c->ctx, err);
    c->image->ptx = c->ptx;
    int rc = make_options(c, err);
    if (rc)
        return rc;
    make_key(c);
    stitch_image *hit = c->key[0] ? stitch__cache_load(c->ctx, c->key) : NULL;
    if (hit) {
        stitch_image_free(c->image);
        c->image = hit;
        return STITCH_OK;
    }
    rc = compile(c, err);
    if (rc == STITCH_OK && c->key[0])
        stitch__cache_store(c->ctx, c->key, c->image);
    return rc;
}

int stitch_compile(stitch_context *ctx, const char *source, const stitch_compile_options *options, stitch_image **out,
                   stitch_error **err)
{
    return stitch__compile_by(ctx, source, options, NULL, out, err);
}

int stitch__compile_by(stitch_context *ctx, const char *source, const stitch_compile_options *options,
                       const stitch__compiler *by, stitch_image **out, stitch_error **err)
{
    call c = {.ctx = ctx, .source = source, .by = by, .o = STITCH_COMPILE_OPTIONS_INIT};
    int64_t start = stitch__now_ns();
    const char *arch = NULL;
    int rc;
    if (out)
        *out = NULL;
    if (!ctx || !source || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID, "stitch_compile: ctx, source and out must not be NULL");
    if (options &&
        (rc = stitch__options_copy(ctx, &c.o, sizeof(c.o), options, "stitch_compile_options", err)) != STITCH_OK)
        return rc;
    c.scope = stitch__scope_make(ctx, c.o.cancel, c.o.timeout_ms);
    uint64_t limit = c.o.max_source_bytes ? c.o.max_source_bytes : DEFAULT_SOURCE_BYTES;
    c.source_len = strlen(source);
    if (c.source_len > limit)
        return stitch__err(ctx, err, STITCH_E_LIMIT,
                           "the source has %zu bytes, more than max_source_bytes (%" PRIu64 ")", c.source_len, limit);
    if ((rc = check_lists(&c, err)) != STITCH_OK ||
        (rc = stitch__scope_check(&c.scope, "compiling", err)) != STITCH_OK ||
        (rc = stitch__cuda_state(ctx, &c.cuda, err)) != STITCH_OK ||
        (rc = stitch__nvrtc_get(ctx, &c.nvrtc, err)) != STITCH_OK || (rc = pick_arch(&c, &arch, err)) != STITCH_OK)
        return rc;
    rc = run(&c, arch, err);
    if (rc != STITCH_OK && rc != STITCH_E_COMPILE) {
        stitch_image_free(c.image);
        return rc;
    }
    c.image->milliseconds = (double)(stitch__now_ns() - start) / 1e6;
    *out = c.image;
    return rc;
}
