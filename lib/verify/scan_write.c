/* SPDX-License-Identifier: MIT
 *
 * A scan as JSON, for reports, and as text, for people.
 */
#include "verify/scan.h"

static json_t *op_json(const stitch__scan_op *o)
{
    json_t *j = json_pack("{s:s, s:s, s:I, s:I}", "kind", stitch__scan_kind_name(o->kind), "instruction", o->name,
                          "count", (json_int_t)o->count, o->ptx ? "ptx_line" : "offset", (json_int_t)o->at);
    const char *const keys[] = {"a", "b", "accumulator"};
    const int types[] = {o->a, o->b, o->acc};
    for (size_t i = 0; j && i < 3; i++) {
        if (types[i] && json_object_set_new(j, keys[i], json_string(stitch__scan_type_name(types[i])))) {
            json_decref(j);
            return NULL;
        }
    }
    return j;
}

static json_t *functions_json(const stitch__scan *scan)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < scan->function_count; i++) {
        const stitch__scan_function *f = &scan->functions[i];
        json_t *ops = json_array(), *j = NULL;
        bool ok = ops != NULL;
        for (size_t k = 0; ok && k < f->op_count; k++)
            ok = json_array_append_new(ops, op_json(&f->ops[k])) == 0;
        if (ok)
            j = json_pack("{s:s, s:b, s:b, s:I, s:I, s:O}", "name", f->name, "kernel", (int)f->kernel, "used",
                          (int)f->used, "instructions", (json_int_t)f->instructions, "not_known",
                          (json_int_t)f->unknown, "operations", ops);
        json_decref(ops);
        if (json_array_append_new(list, j)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *globals_json(const stitch__scan *scan)
{
    static const char *const access[] = {"not looked at", "read only", "address escapes", "written"};
    json_t *list = json_array();
    for (size_t i = 0; list && i < scan->global_count; i++) {
        const stitch__scan_global *g = &scan->globals[i];
        json_t *j =
            json_pack("{s:s, s:I, s:b, s:b, s:s}", "name", g->name, "bytes", (json_int_t)g->bytes, "initialised",
                      (int)g->initialised, "managed", (int)g->managed, "access", access[g->access]);
        if (json_array_append_new(list, j)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *rest_json(const stitch__scan *scan, int what)
{
    json_t *list = json_array();
    size_t count = what == 0 ? scan->call_count : what == 1 ? scan->gemm_count : scan->finding_count;
    for (size_t i = 0; list && i < count; i++) {
        json_t *j = NULL;
        if (what == 0) {
            j = json_string(scan->calls[i]);
        } else if (what == 1) {
            const stitch__scan_gemm *g = &scan->gemms[i];
            j = json_pack("{s:s, s:s, s:s, s:s}", "step", g->place, "a", stitch__scan_type_name(g->a), "b",
                          stitch__scan_type_name(g->b), "accumulator", stitch__scan_type_name(g->acc));
        } else {
            const stitch__scan_finding *f = &scan->findings[i];
            j = json_pack("{s:s, s:s, s:s, s:s}", "severity", f->major ? "major" : "minor", "kernel", f->kernel, "what",
                          f->what, "evidence", f->evidence);
        }
        if (json_array_append_new(list, j)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

json_t *stitch__scan_json(const stitch__scan *scan)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "arch", scan->arch, "from",
                     scan->from_ptx ? "PTX" : "machine code", "functions", functions_json(scan), "globals",
                     globals_json(scan), "calls", rest_json(scan, 0), "products", rest_json(scan, 1), "findings",
                     rest_json(scan, 2));
}

char *stitch__scan_text(const stitch__scan *scan)
{
    stitch__buf b;
    stitch__buf_init(&b, scan->ctx);
    for (size_t i = 0; i < scan->function_count; i++) {
        const stitch__scan_function *f = &scan->functions[i];
        for (size_t k = 0; k < f->op_count && f->used; k++) {
            const stitch__scan_op *o = &f->ops[k];
            if (o->kind != STITCH__SCAN_TENSOR && o->kind != STITCH__SCAN_HALF && o->kind != STITCH__SCAN_CONVERT)
                continue;
            stitch__buf_printf(&b, "%s %s: %s %s %s", f->kernel ? "kernel" : "function", f->name,
                               stitch__scan_kind_name(o->kind), o->kind == STITCH__SCAN_CONVERT ? "to" : "in",
                               stitch__scan_type_name(o->a));
            if (o->kind == STITCH__SCAN_TENSOR)
                stitch__buf_printf(&b, " and %s with %s accumulation", stitch__scan_type_name(o->b),
                                   stitch__scan_type_name(o->acc));
            stitch__buf_printf(&b, " (%s, %" PRIu64 ")\n", o->name, o->count);
        }
    }
    for (size_t i = 0; i < scan->gemm_count; i++) {
        const stitch__scan_gemm *g = &scan->gemms[i];
        stitch__buf_printf(&b, "%s: cuBLASLt product of %s and %s with %s accumulation\n", g->place,
                           stitch__scan_type_name(g->a), stitch__scan_type_name(g->b), stitch__scan_type_name(g->acc));
    }
    return stitch__buf_take(&b, NULL);
}
