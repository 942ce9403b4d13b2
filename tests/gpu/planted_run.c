/* SPDX-License-Identifier: MIT
 *
 * Runs kernels with planted errors in the simulator, for test_gpu_sanitizer.py.
 *
 * usage: planted_run ARCH < cases.json > findings.json
 *
 * A case is {"source": path, "kernel", "grid", "block", "shared", "in", "written", "out", "zero", "freed"}: the kernel
 * takes (float *out, const float *in, int n); `in` floats of input of which the first `written` hold 0, 1, 2, ...,
 * `out` floats of output, zero or never written; n is the number of inputs. The answer is an array with one object a
 * case:
 * {"kernel", "findings": [{"kind", "lines": [...], "text"}]} or {"kernel", "error"}. Exits 77 where there is no NVRTC.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/base.h"
#include "cuda/cuda.h"
#include "sim/sim.h"

static uint64_t number(const json_t *c, const char *key, uint64_t otherwise)
{
    const json_t *v = json_object_get(c, key);
    return json_is_integer(v) ? (uint64_t)json_integer_value(v) : otherwise;
}

static void add_line(json_t *lines, const stitch__sim_place *p)
{
    if (p && p->file)
        json_array_append_new(lines, json_integer((json_int_t)p->line));
}

static json_t *finding(const stitch__sim_report *r, const char *kernel)
{
    stitch__buf text = {0};
    json_t *lines = json_array();
    add_line(lines, r->first.place);
    if (r->has_second)
        add_line(lines, r->second.place);
    stitch__sim_report_text(&text, r, kernel);
    json_t *f = json_pack("{s:s, s:o, s:s}", "kind", stitch__sim_fault_name(r->kind), "lines", lines, "text",
                          text.data ? text.data : "");
    stitch__buf_free(&text);
    return f;
}

static int compile(stitch_context *ctx, const char *arch, const char *path, stitch_image **image, stitch_error **err)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    char *source;
    size_t size;
    int rc = stitch__file_read(ctx, path, 0, &source, &size, err);
    if (rc)
        return rc;
    options.arch = arch;
    options.ptx = 1;
    options.no_cache = 1;
    rc = stitch_compile(ctx, source, &options, image, err);
    stitch_free(source);
    return rc;
}

/* Gives the kernel its memory and runs it. */
static int launch(const json_t *c, const stitch__sim_function *f, stitch__sim_memory *mem, stitch__sim_result *result,
                  stitch_error **err)
{
    uint64_t in = number(c, "in", 1), written = number(c, "written", in), out = number(c, "out", 1);
    stitch__sim_alloc *a, *b;
    float *values = calloc(out > in ? out : in, sizeof(float));
    int rc = values ? STITCH_OK : STITCH_E_NOMEM;
    if (rc || (rc = stitch__sim_memory_alloc(mem, out * 4, 0, "out", &b, err)) ||
        (rc = stitch__sim_memory_alloc(mem, in * 4, 0, "in", &a, err)))
        goto out;
    if (number(c, "zero", 0))
        stitch__sim_memory_store(mem, b->base, values, out * 4);
    for (uint64_t i = 0; i < in; i++)
        values[i] = (float)i;
    stitch__sim_memory_store(mem, a->base, values, written * 4);
    struct {
        uint64_t out, in;
        int32_t n;
    } params = {b->base, a->base, (int32_t)in};
    if (number(c, "freed", 0) && (rc = stitch__sim_memory_release(mem, a->base, err)))
        goto out;
    stitch__sim_launch l = {
        .function = f,
        .grid = {(uint32_t)number(c, "grid", 1), 1, 1},
        .block = {(uint32_t)number(c, "block", 1), 1, 1},
        .dynamic_shared = (uint32_t)number(c, "shared", 0),
        .params = &params,
        .param_bytes = stitch__sim_function_info_get(f)->param_bytes,
        .memory = mem,
        .flags = STITCH__SIM_CHECK_ALL,
        .seed = 1,
    };
    rc = stitch__sim_launch_run(&l, result, err);
out:
    free(values);
    return rc;
}

static json_t *run_case(stitch_context *ctx, const char *arch, const json_t *c)
{
    const char *path = json_string_value(json_object_get(c, "source")),
               *kernel = json_string_value(json_object_get(c, "kernel"));
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    stitch__sim_module *module = NULL;
    stitch__sim_memory *mem = NULL;
    stitch__sim_result result = {0};
    json_t *answer = json_pack("{s:s?}", "kernel", kernel);
    size_t size = 0;
    int rc = path && kernel ? STITCH_OK : STITCH_E_INVALID;
    if (rc || (rc = compile(ctx, arch, path, &image, &err)) || (rc = stitch__sim_memory_new(&mem, &err)))
        goto out;
    const char *ptx = stitch_image_data(image, &size);
    if ((rc = stitch__sim_module_load(&module, ctx, ptx, size, path, &err)))
        goto out;
    const stitch__sim_function *f = stitch__sim_module_find(module, kernel);
    if (!f) {
        json_object_set_new(answer, "error", json_string("the source has no such kernel"));
        goto out;
    }
    if ((rc = launch(c, f, mem, &result, &err)))
        goto out;
    json_t *findings = json_array();
    for (size_t i = 0; i < result.report_count; i++)
        json_array_append_new(findings, finding(&result.reports[i], kernel));
    json_object_set_new(answer, "findings", findings);
out:
    if (rc)
        json_object_set_new(answer, "error", json_sprintf("%s: %s", stitch_status_name(rc), stitch_error_message(err)));
    stitch_error_free(err);
    stitch__sim_result_clear(&result);
    stitch__sim_module_free(module);
    stitch__sim_memory_free(mem);
    stitch_image_free(image);
    return answer;
}

int main(int argc, char **argv)
{
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    const stitch__nvrtc *nvrtc;
    json_error_t where;
    if (argc != 2) {
        fprintf(stderr, "usage: planted_run ARCH < cases.json\n");
        return 2;
    }
    json_t *cases = json_loadf(stdin, 0, &where), *answers = json_array();
    if (!json_is_array(cases) || stitch_context_new(&ctx, NULL, &err)) {
        fprintf(stderr, "planted_run: %s\n", json_is_array(cases) ? stitch_error_message(err) : where.text);
        return 2;
    }
    int rc = stitch__nvrtc_get(ctx, &nvrtc, &err);
    if (rc) {
        fprintf(stderr, "planted_run: %s\n", stitch_error_message(err));
    } else {
        for (size_t i = 0; i < json_array_size(cases); i++)
            json_array_append_new(answers, run_case(ctx, argv[1], json_array_get(cases, i)));
        json_dumpf(answers, stdout, JSON_INDENT(1));
        putchar('\n');
    }
    json_decref(cases);
    json_decref(answers);
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc == STITCH_E_NO_LIBRARY ? 77 : rc ? 1 : 0;
}
