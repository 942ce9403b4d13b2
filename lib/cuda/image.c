/* SPDX-License-Identifier: MIT
 *
 * Images: what a compilation gave. Filled once, then immutable and counted.
 */
#include <stdlib.h>

#include "cuda/internal.h"

enum { MAX_LOG_BYTES = 256 << 10, MAX_META_KERNELS = 65536 };

stitch_image *stitch__image_new(const stitch_context *ctx)
{
    stitch_image *image = stitch__calloc(ctx, 1, sizeof(*image));
    if (!image)
        return NULL;
    atomic_init(&image->refs, 1);
    image->arena.ctx = ctx;
    image->arch = "";
    image->log = "";
    return image;
}

stitch_image *stitch__image_ref(stitch_image *image)
{
    if (image)
        atomic_fetch_add_explicit(&image->refs, 1, memory_order_relaxed);
    return image;
}

void stitch_image_free(stitch_image *image)
{
    if (!image || atomic_fetch_sub_explicit(&image->refs, 1, memory_order_acq_rel) != 1)
        return;
    stitch__arena_free(&image->arena);
    stitch_free(image);
}

int stitch__image_set_data(stitch_image *image, const void *data, size_t size, bool ptx)
{
    char *copy = size < SIZE_MAX ? stitch__arena_alloc(&image->arena, size + 1) : NULL;
    if (!copy)
        return STITCH_E_NOMEM;
    memcpy(copy, data, size);
    image->data = copy;
    image->size = size;
    image->ptx = ptx;
    return STITCH_OK;
}

/* ---- kernels ---- */

static int parse_entries(stitch_image *image, stitch__entries *entries, stitch_error **err)
{
    const char *why = "";
    int rc = image->ptx ? stitch__ptx_parse(&image->arena, image->data, image->size, entries, &why)
                        : stitch__cubin_parse(&image->arena, image->data, image->size, entries, &why);
    if (rc == STITCH_E_NOMEM)
        return stitch__err_nomem(image->arena.ctx, err);
    if (rc)
        return stitch__err(image->arena.ctx, err, rc, "the %s of an image cannot be read: %s",
                           image->ptx ? "PTX" : "machine code", why);
    return STITCH_OK;
}

static const stitch__entry *find_entry(const stitch__entries *entries, const char *symbol)
{
    for (size_t i = 0; symbol && i < entries->count; i++) {
        if (strcmp(entries->list[i].symbol, symbol) == 0)
            return &entries->list[i];
    }
    return NULL;
}

/* Types come from the mangled name, places and sizes from the code. Where the two do not agree, only the latter count.
 */
static int make_params(stitch_image *image, const stitch__entry *entry, stitch__kernel *kernel)
{
    stitch__demangled d;
    int rc = stitch__demangle(&image->arena, entry->symbol, &d);
    if (rc)
        return rc;
    kernel->base = d.base;
    kernel->is_template = d.is_template;
    if (!kernel->info.name)
        kernel->info.name = d.name;
    kernel->info.param_count = entry->param_count;
    kernel->params = stitch__arena_array(&image->arena, entry->param_count + 1, sizeof(*kernel->params));
    if (!kernel->params)
        return STITCH_E_NOMEM;
    bool agree = d.has_params && d.param_count == entry->param_count;
    for (size_t i = 0; agree && i < entry->param_count; i++)
        agree = !d.params[i].size || d.params[i].size == entry->params[i].size;
    for (size_t i = 0; i < entry->param_count; i++) {
        stitch_param_info *p = &kernel->params[i];
        *p = agree ? d.params[i] : (stitch_param_info)STITCH_PARAM_INFO_INIT;
        p->struct_size = sizeof(*p);
        p->offset = entry->params[i].offset;
        p->size = entry->params[i].size;
        if (!p->type)
            p->type = "";
    }
    return STITCH_OK;
}

/* `name` NULL: from the symbol. */
static int make_kernel(stitch_image *image, const stitch__entry *entry, const char *name, stitch__kernel *kernel)
{
    stitch_kernel_info *info = &kernel->info;
    *info = (stitch_kernel_info){.struct_size = sizeof(*info), .symbol = entry->symbol};
    info->registers = entry->registers;
    info->static_shared = entry->static_shared;
    info->local = entry->local;
    info->spill_stores = entry->spill_stores;
    info->spill_loads = entry->spill_loads;
    info->max_threads = entry->max_threads;
    if (name && !(info->name = stitch__arena_strdup(&image->arena, name)))
        return STITCH_E_NOMEM;
    return make_params(image, entry, kernel);
}

static int compare_usages(const void *a, const void *b)
{
    return strcmp(((const stitch__usage *)a)->symbol, ((const stitch__usage *)b)->symbol);
}

/* Of sorted ones: there may be many kernels. */
static void apply_usage(const stitch__usages *usages, stitch__kernel *kernel)
{
    const stitch__usage wanted = {.symbol = kernel->info.symbol};
    const stitch__usage *u = usages && usages->count
                                 ? bsearch(&wanted, usages->list, usages->count, sizeof(*usages->list), compare_usages)
                                 : NULL;
    if (!u)
        return;
    if (u->registers >= 0) /* the lines for this kernel were all there */
        kernel->info.static_shared = u->shared;
    kernel->info.spill_stores = u->spill_stores;
    kernel->info.spill_loads = u->spill_loads;
    if (u->stack > kernel->info.local)
        kernel->info.local = u->stack;
}

int stitch__image_set_kernels(stitch_image *image, const char *const *names, const char *const *symbols, size_t count,
                              stitch__usages *usages, stitch_error **err)
{
    stitch__entries entries;
    int rc = parse_entries(image, &entries, err);
    if (rc)
        return rc;
    if (usages && usages->count)
        qsort(usages->list, usages->count, sizeof(*usages->list), compare_usages);
    image->kernels = stitch__arena_array(&image->arena, count + entries.count + 1, sizeof(*image->kernels));
    bool *asked = stitch__arena_array(&image->arena, entries.count + 1, sizeof(*asked));
    if (!image->kernels || !asked)
        return stitch__err_nomem(image->arena.ctx, err);
    for (size_t i = 0; i < count; i++) {
        const stitch__entry *entry = find_entry(&entries, symbols[i]);
        if (!entry) {
            char text[700];
            snprintf(text, sizeof(text), "\"%.400s\" is no __global__ function", names[i]);
            if (stitch__diagnostics_add(&image->arena, &image->diagnostics, STITCH_SEVERITY_ERROR, 0, 0, "program.cu",
                                        text) != STITCH_OK)
                return stitch__err_nomem(image->arena.ctx, err);
            continue;
        }
        asked[entry - entries.list] = true;
        if (make_kernel(image, entry, names[i], &image->kernels[image->kernel_count]) != STITCH_OK)
            return stitch__err_nomem(image->arena.ctx, err);
        apply_usage(usages, &image->kernels[image->kernel_count++]);
    }
    for (size_t i = 0; i < entries.count; i++) {
        if (asked[i])
            continue;
        if (make_kernel(image, &entries.list[i], NULL, &image->kernels[image->kernel_count]) != STITCH_OK)
            return stitch__err_nomem(image->arena.ctx, err);
        apply_usage(usages, &image->kernels[image->kernel_count++]);
    }
    return STITCH_OK;
}

/* ---- meta ---- */

/* Parameters are not in it: they are read from the code again. */
json_t *stitch__image_meta(const stitch_image *image)
{
    json_t *kernels = json_array(), *diagnostics = json_array(), *meta = NULL;
    if (!image || !kernels || !diagnostics)
        goto out;
    for (size_t i = 0; i < image->kernel_count; i++) {
        const stitch_kernel_info *k = &image->kernels[i].info;
        json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "name", k->name, "symbol", k->symbol,
                              "registers", (json_int_t)k->registers, "static_shared", (json_int_t)k->static_shared,
                              "local", (json_int_t)k->local, "spill_stores", (json_int_t)k->spill_stores, "spill_loads",
                              (json_int_t)k->spill_loads, "max_threads", (json_int_t)k->max_threads);
        if (json_array_append_new(kernels, j) != 0)
            goto out;
    }
    for (size_t i = 0; i < image->diagnostics.count; i++) {
        const stitch_diagnostic *d = &image->diagnostics.list[i];
        json_t *j = json_pack("{s:i, s:i, s:i, s:s, s:s}", "severity", (int)d->severity, "line", (int)d->line, "column",
                              (int)d->column, "file", d->file, "message", d->message);
        if (json_array_append_new(diagnostics, j) != 0)
            goto out;
    }
    meta = json_pack("{s:s, s:b, s:s, s:O, s:O}", "arch", image->arch, "ptx", (int)image->ptx, "log", image->log,
                     "kernels", kernels, "diagnostics", diagnostics);
out:
    json_decref(kernels);
    json_decref(diagnostics);
    return meta;
}

static int apply_diagnostics(const stitch_context *ctx, stitch_image *image, const json_t *list,
                             const stitch__jpath *at, stitch_error **err)
{
    static const char *const keys[] = {"severity", "line", "column", "file", "message", NULL};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *j = json_array_get(list, i);
        stitch__jpath here = {at, NULL, i};
        int64_t severity = 0, line = 0, column = 0;
        const char *file = NULL, *message = NULL;
        int rc = stitch__json_keys(ctx, j, &here, keys, err);
        if (rc == STITCH_OK)
            rc = stitch__json_int(ctx, j, &here, "severity", true, STITCH_SEVERITY_NOTE, STITCH_SEVERITY_ERROR,
                                  &severity, err);
        if (rc == STITCH_OK)
            rc = stitch__json_int(ctx, j, &here, "line", true, 0, INT32_MAX, &line, err);
        if (rc == STITCH_OK)
            rc = stitch__json_int(ctx, j, &here, "column", true, 0, INT32_MAX, &column, err);
        if (rc == STITCH_OK)
            rc = stitch__json_string(ctx, j, &here, "file", true, &file, err);
        if (rc == STITCH_OK)
            rc = stitch__json_string(ctx, j, &here, "message", true, &message, err);
        if (rc)
            return rc;
        if (stitch__diagnostics_add(&image->arena, &image->diagnostics, (int)severity, (int)line, (int)column, file,
                                    message) != STITCH_OK)
            return stitch__err_nomem(ctx, err);
    }
    return STITCH_OK;
}

static int apply_kernel(const stitch_context *ctx, stitch_image *image, const json_t *j, const stitch__jpath *at,
                        const stitch__entries *entries, stitch__kernel *kernel, stitch_error **err)
{
    static const char *const keys[] = {
        "name", "symbol", "registers", "static_shared", "local", "spill_stores", "spill_loads", "max_threads", NULL};
    const char *name = NULL, *symbol = NULL;
    int64_t shared = -1, stores = -1, loads = -1, local = -1;
    int rc = stitch__json_keys(ctx, j, at, keys, err);
    if (rc == STITCH_OK)
        rc = stitch__json_string(ctx, j, at, "name", true, &name, err);
    if (rc == STITCH_OK)
        rc = stitch__json_string(ctx, j, at, "symbol", true, &symbol, err);
    if (rc == STITCH_OK)
        rc = stitch__json_int(ctx, j, at, "static_shared", false, -1, INT32_MAX, &shared, err);
    if (rc == STITCH_OK)
        rc = stitch__json_int(ctx, j, at, "local", false, -1, INT32_MAX, &local, err);
    if (rc == STITCH_OK)
        rc = stitch__json_int(ctx, j, at, "spill_stores", false, -1, INT32_MAX, &stores, err);
    if (rc == STITCH_OK)
        rc = stitch__json_int(ctx, j, at, "spill_loads", false, -1, INT32_MAX, &loads, err);
    if (rc)
        return rc;
    const stitch__entry *entry = find_entry(entries, symbol);
    if (!entry)
        return stitch__json_err(ctx, at, err, "the code has no kernel with the symbol \"%s\"", symbol);
    if (make_kernel(image, entry, name, kernel) != STITCH_OK)
        return stitch__err_nomem(ctx, err);
    /* What only the compiler's log told; the rest comes from the code, whatever the document says. */
    if (shared >= 0)
        kernel->info.static_shared = shared;
    if (local > kernel->info.local)
        kernel->info.local = local;
    kernel->info.spill_stores = stores;
    kernel->info.spill_loads = loads;
    return STITCH_OK;
}

static int apply_kernels(const stitch_context *ctx, stitch_image *image, const json_t *list, const stitch__jpath *at,
                         stitch_error **err)
{
    stitch__entries entries;
    size_t count = json_array_size(list);
    int rc = parse_entries(image, &entries, err);
    if (rc)
        return rc;
    if (count > MAX_META_KERNELS)
        return stitch__json_err(ctx, at, err, "there are %zu kernels, at most %d are possible", count,
                                MAX_META_KERNELS);
    image->kernels = stitch__arena_array(&image->arena, count + 1, sizeof(*image->kernels));
    if (!image->kernels)
        return stitch__err_nomem(ctx, err);
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        stitch__jpath here = {at, NULL, i};
        rc = apply_kernel(ctx, image, json_array_get(list, i), &here, &entries, &image->kernels[image->kernel_count],
                          err);
        image->kernel_count += rc == STITCH_OK;
    }
    return rc;
}

/* The meta document of an image onto an empty image whose data comes along; checks everything against the data. */
static int apply_meta(const stitch_context *ctx, stitch_image *image, const void *data, size_t size, const json_t *meta,
                      stitch_error **err)
{
    static const char *const keys[] = {"arch", "ptx", "log", "kernels", "diagnostics", NULL};
    const stitch__jpath *root = NULL;
    const char *arch = NULL, *log = "";
    bool ptx = false;
    int number;
    char suffix;
    int rc = stitch__json_keys(ctx, meta, root, keys, err);
    if (rc == STITCH_OK)
        rc = stitch__json_string(ctx, meta, root, "arch", true, &arch, err);
    if (rc == STITCH_OK)
        rc = stitch__json_bool(ctx, meta, root, "ptx", true, &ptx, err);
    if (rc == STITCH_OK)
        rc = stitch__json_string(ctx, meta, root, "log", false, &log, err);
    if (rc)
        return rc;
    stitch__jpath at_arch = {root, "arch", 0}, at_kernels = {root, "kernels", 0},
                  at_diagnostics = {root, "diagnostics", 0};
    if (!stitch__arch_parse(arch, &number, &suffix))
        return stitch__json_err(ctx, &at_arch, err, "\"%.40s\" is no architecture like sm_90a", arch);
    const json_t *kernels = json_object_get(meta, "kernels"), *diagnostics = json_object_get(meta, "diagnostics");
    if (!json_is_array(kernels))
        return stitch__json_err(ctx, &at_kernels, err, "must be an array");
    if (diagnostics && !json_is_array(diagnostics))
        return stitch__json_err(ctx, &at_diagnostics, err, "must be an array");
    if (stitch__image_set_data(image, data, size, ptx) != STITCH_OK)
        return stitch__err_nomem(ctx, err);
    if (ptx && memchr(data, '\0', size))
        return stitch__err(ctx, err, STITCH_E_FORMAT, "the PTX of an image contains a NUL byte");
    image->arch = stitch__arena_strdup(&image->arena, arch);
    image->log = stitch__arena_strndup(&image->arena, log, strnlen(log, MAX_LOG_BYTES));
    if (!image->arch || !image->log)
        return stitch__err_nomem(ctx, err);
    if ((rc = apply_kernels(ctx, image, kernels, &at_kernels, err)) != STITCH_OK)
        return rc;
    return apply_diagnostics(ctx, image, diagnostics, &at_diagnostics, err);
}

int stitch__image_restore(stitch_context *ctx, const void *data, size_t size, const json_t *meta, stitch_image **out,
                          stitch_error **err)
{
    *out = NULL;
    if (!data || size == 0 || !meta)
        return stitch__err(ctx, err, STITCH_E_FORMAT, "a compiled image has no code or no description");
    int64_t start = stitch__now_ns();
    stitch_image *image = stitch__image_new(ctx);
    if (!image)
        return stitch__err_nomem(ctx, err);
    int rc = apply_meta(ctx, image, data, size, meta, err);
    if (rc) {
        stitch_image_free(image);
        return rc;
    }
    image->milliseconds = (double)(stitch__now_ns() - start) / 1e6;
    *out = image;
    return STITCH_OK;
}

/* ---- accessors ---- */

const void *stitch_image_data(const stitch_image *image, size_t *size)
{
    if (size)
        *size = image ? image->size : 0;
    return image ? image->data : NULL;
}

const char *stitch_image_arch(const stitch_image *image)
{
    return image ? image->arch : "";
}

int stitch_image_is_ptx(const stitch_image *image)
{
    return image && image->ptx;
}

int stitch_image_cached(const stitch_image *image)
{
    return image && image->cached;
}

double stitch_image_milliseconds(const stitch_image *image)
{
    return image ? image->milliseconds : 0;
}

const char *stitch_image_log(const stitch_image *image)
{
    return image ? image->log : "";
}

size_t stitch_image_diagnostic_count(const stitch_image *image)
{
    return image ? image->diagnostics.count : 0;
}

/* Structs of an older caller get the fields that they have. */
static int copy_out(void *out, const void *from, size_t size)
{
    size_t given;
    if (!out)
        return STITCH_E_INVALID;
    memcpy(&given, out, sizeof(given));
    if (given < sizeof(given))
        return STITCH_E_INVALID;
    memset(out, 0, given);
    memcpy(out, from, given < size ? given : size);
    memcpy(out, &given, sizeof(given));
    return STITCH_OK;
}

int stitch_image_diagnostic(const stitch_image *image, size_t index, stitch_diagnostic *out)
{
    if (!image || index >= image->diagnostics.count)
        return STITCH_E_NOT_FOUND;
    return copy_out(out, &image->diagnostics.list[index], sizeof(*out));
}

size_t stitch_image_kernel_count(const stitch_image *image)
{
    return image ? image->kernel_count : 0;
}

int stitch_image_kernel(const stitch_image *image, size_t index, stitch_kernel_info *out)
{
    if (!image || index >= image->kernel_count)
        return STITCH_E_NOT_FOUND;
    return copy_out(out, &image->kernels[index].info, sizeof(*out));
}

int stitch_image_param(const stitch_image *image, size_t kernel, size_t param, stitch_param_info *out)
{
    if (!image || kernel >= image->kernel_count || param >= image->kernels[kernel].info.param_count)
        return STITCH_E_NOT_FOUND;
    return copy_out(out, &image->kernels[kernel].params[param], sizeof(*out));
}

/* Equal but for blanks. */
static bool same_name(const char *a, const char *b)
{
    for (;;) {
        while (*a == ' ' || *a == '\t')
            a++;
        while (*b == ' ' || *b == '\t')
            b++;
        if (*a != *b)
            return false;
        if (!*a)
            return true;
        a++;
        b++;
    }
}

int stitch_image_find(const stitch_image *image, const char *name, size_t *index)
{
    size_t found = 0, matches = 0;
    if (index)
        *index = 0;
    if (!image || !name || !index)
        return STITCH_E_INVALID;
    for (size_t i = 0; i < image->kernel_count; i++) {
        if (same_name(image->kernels[i].info.name, name)) {
            *index = i;
            return STITCH_OK;
        }
    }
    for (size_t i = 0; i < image->kernel_count; i++) {
        const stitch__kernel *k = &image->kernels[i];
        bool plain = !k->is_template && k->base && same_name(k->base, name);
        if (!plain && strcmp(k->info.symbol, name) != 0)
            continue;
        if (matches && strcmp(image->kernels[found].info.symbol, k->info.symbol) == 0)
            continue; /* asked for under two names */
        found = i;
        matches++;
    }
    if (matches != 1) /* overloads: the plain name does not say which */
        return STITCH_E_NOT_FOUND;
    *index = found;
    return STITCH_OK;
}
