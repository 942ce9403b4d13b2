/* SPDX-License-Identifier: MIT
 *
 * Ceilings of a device: from its rates, from a file in the cache folder, or measured (measure.c).
 *
 * The file is JSON. It is there for speed alone: one that is missing, damaged, of another device, driver or version of
 * the measurement, or that says what cannot be is measured again.
 */
#include "profile/ceilings.h"

#include <math.h>
#include <stdio.h>

#include "profile/measure.h"
#include <stitch/task.h>

enum { VERSION = 1, MAX_BYTES = 65536 }; /* of the measurement, and so of the file */

void stitch__ceilings_estimate(const stitch__device *dev, stitch__ceilings *out)
{
    const stitch__arch_rates *r = stitch__arch_rates_of(dev->info.compute_major, dev->info.compute_minor);
    double tera = (double)dev->info.multiprocessors * (double)dev->info.clock_khz * 1e3 / 1e12;
    memset(out, 0, sizeof(*out));
    out->dram_gb_s = stitch__device_bandwidth(dev) / 1e9;
    if (!r)
        return;
    out->f32_tflops = r->f32 * tera;
    out->tf32_tflops = r->tf32 * tera;
    out->f16_tflops = out->bf16_tflops = r->f16 * tera;
    out->f8_tflops = r->f8 * tera;
}

double stitch__ceilings_matrix(const stitch__ceilings *c, int precision)
{
    double most = c->f32_tflops;
    switch (precision) {
    case STITCH_PRECISION_ANY: most = fmax(most, c->f8_tflops);                        /* fallthrough */
    case STITCH_PRECISION_F16: most = fmax(most, fmax(c->f16_tflops, c->bf16_tflops)); /* fallthrough */
    case STITCH_PRECISION_TF32: most = fmax(most, c->tf32_tflops);                     /* fallthrough */
    case STITCH_PRECISION_F32: return most;
    default: return 0;
    }
}

/* ---- the file ---- */

typedef struct figure {
    const char *key;
    size_t offset;
    bool matrix; /* needs cuBLASLt */
} figure;

static const figure figures[] = {
    {"dram_gb_s", offsetof(stitch__ceilings, dram_gb_s), false},
    {"f32_tflops", offsetof(stitch__ceilings, f32_tflops), true},
    {"tf32_tflops", offsetof(stitch__ceilings, tf32_tflops), true},
    {"f16_tflops", offsetof(stitch__ceilings, f16_tflops), true},
    {"bf16_tflops", offsetof(stitch__ceilings, bf16_tflops), true},
    {"f8_tflops", offsetof(stitch__ceilings, f8_tflops), true},
    {"launch_us", offsetof(stitch__ceilings, launch_us), false},
    {"graph_node_us", offsetof(stitch__ceilings, graph_node_us), false},
};

static double *value_of(stitch__ceilings *c, const figure *f)
{
    return (double *)(void *)((char *)c + f->offset);
}

/* NULL: there is no cache folder, or no memory. */
char *stitch__ceilings_path(stitch_context *ctx, const stitch__device *dev)
{
    const char *cache = stitch__context_options(ctx)->cache_dir;
    const int32_t numbers[] = {VERSION, dev->info.driver_version, dev->info.multiprocessors, dev->info.clock_khz};
    char hex[65], name[80];
    stitch__sha256 h;
    if (!*cache)
        return NULL;
    stitch__sha256_init(&h);
    stitch__sha256_string(&h, dev->info.name);
    stitch__sha256_update(&h, numbers, sizeof(numbers));
    stitch__sha256_hex(&h, hex);
    snprintf(name, sizeof(name), "ceilings/%.40s.json", hex);
    return stitch__path_join(ctx, cache, name);
}

static bool is_of(const json_t *doc, const stitch__device *dev)
{
    const char *name = json_string_value(json_object_get(doc, "device"));
    return json_integer_value(json_object_get(doc, "stitch_ceilings")) == VERSION && name &&
           strcmp(name, dev->info.name) == 0 &&
           json_integer_value(json_object_get(doc, "driver")) == dev->info.driver_version;
}

/* *matrix: products were measured. */
static bool read_figures(const json_t *doc, stitch__ceilings *out, bool *matrix)
{
    *matrix = json_is_true(json_object_get(doc, "matrix"));
    for (size_t i = 0; i < STITCH__COUNT(figures); i++) {
        const json_t *v = json_object_get(doc, figures[i].key);
        if (!json_is_number(v) || !(json_number_value(v) >= 0) || json_number_value(v) > 1e7)
            return false;
        *value_of(out, &figures[i]) = json_number_value(v);
    }
    out->measured = true;
    return out->dram_gb_s > 0;
}

/* What is in the file, unless cuBLASLt has come since. */
static bool load(stitch_context *ctx, const stitch__device *dev, const char *path, stitch__ceilings *out)
{
    char *text = NULL, *library = NULL;
    json_t *doc = NULL;
    stitch__ceilings c = {0};
    bool matrix = false, good = false;
    size_t len = 0;
    if (stitch__path_exists(path) && stitch__file_read(ctx, path, MAX_BYTES, &text, &len, NULL) == STITCH_OK &&
        stitch__json_parse(ctx, text, len, MAX_BYTES, "ceilings", &doc, NULL) == STITCH_OK)
        good = is_of(doc, dev) && read_figures(doc, &c, &matrix);
    if (good && !matrix)
        good = (library = stitch__cublaslt_find(ctx)) == NULL;
    if (good)
        *out = c;
    stitch_free(library);
    json_decref(doc);
    stitch_free(text);
    return good;
}

static void store(stitch_context *ctx, const stitch__device *dev, const char *path, stitch__ceilings *c, bool matrix)
{
    char *folder = stitch__strdup(ctx, path), *text = NULL;
    json_t *doc = json_pack("{s:i, s:s, s:i, s:b}", "stitch_ceilings", VERSION, "device", dev->info.name, "driver",
                            dev->info.driver_version, "matrix", matrix);
    stitch_error *why = NULL;
    bool complete = doc != NULL;
    for (size_t i = 0; i < STITCH__COUNT(figures) && complete; i++)
        complete = json_object_set_new(doc, figures[i].key, json_real(*value_of(c, &figures[i]))) == 0;
    if (complete)
        text = stitch__json_dump(ctx, doc, 2);
    if (folder && text) {
        *strrchr(folder, '/') = '\0';
        if (stitch__mkdirs(ctx, folder, &why) || stitch__file_write(ctx, path, text, strlen(text), &why))
            stitch__log(ctx, STITCH_LOG_WARN, "the device's ceilings are not kept: %s", stitch_error_message(why));
    }
    stitch_error_free(why);
    json_decref(doc);
    stitch_free(folder);
    stitch_free(text);
}

bool stitch__ceilings_kept(stitch_context *ctx, const stitch__device *dev)
{
    char *path = dev->info.simulated ? NULL : stitch__ceilings_path(ctx, dev);
    stitch__ceilings c;
    bool kept = dev->info.simulated || (path && load(ctx, dev, path, &c));
    stitch_free(path);
    return kept;
}

int stitch__ceilings_get(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope, stitch__ceilings *out,
                         stitch_error **err)
{
    bool matrix = false;
    stitch__ceilings_estimate(dev, out);
    if (dev->info.simulated)
        return STITCH_OK;
    char *path = stitch__ceilings_path(ctx, dev);
    int rc = STITCH_OK;
    if (!path || !load(ctx, dev, path, out)) {
        rc = stitch__measure(dev, scope, out, &matrix, err);
        if (rc == STITCH_OK && path && out->measured)
            store(ctx, dev, path, out, matrix);
    }
    stitch_free(path);
    return rc;
}
