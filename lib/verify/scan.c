/* SPDX-License-Identifier: MIT
 *
 * The scan of a program: its image, its PTX where that is needed, its products.
 */
#include <stdio.h>

#include "cuda/cuda.h"
#include "program/program.h"
#include "verify/scan.h"

/* ---- collecting ---- */

/* Names from hostile files go into reports: no more than printable ASCII, which is what names in PTX are made of. NULL:
 * out of memory. */
static const char *keep_name(stitch__scan *scan, const char *name, size_t len, size_t max)
{
    char *kept = stitch__arena_strndup(&scan->arena, name, len < max ? len : max);
    for (char *p = kept; p && *p; p++)
        *p = *p > ' ' && *p < 0x7f ? *p : '?';
    return kept;
}

int stitch__scan_add_function(stitch__scan *scan, const char *symbol, size_t len, bool kernel,
                              stitch__scan_function **out)
{
    int rc = stitch__grow(scan->ctx, &scan->functions, &scan->function_cap, scan->function_count + 1,
                          sizeof(*scan->functions));
    if (rc)
        return rc;
    stitch__scan_function *f = &scan->functions[scan->function_count];
    memset(f, 0, sizeof(*f));
    f->symbol = f->name = keep_name(scan, symbol, len, 4096);
    f->kernel = kernel;
    f->used = true;
    if (!f->symbol)
        return STITCH_E_NOMEM;
    scan->function_count++;
    *out = f;
    return STITCH_OK;
}

int stitch__scan_add_op(stitch__scan *scan, stitch__scan_function *f, const stitch__sass *s, uint64_t at, bool ptx)
{
    for (size_t i = 0; i < f->op_count; i++) {
        stitch__scan_op *o = &f->ops[i];
        if (o->kind != s->kind || o->ptx != ptx)
            continue;
        /* Of those not known the first stands for all: there can be thousands of them in hostile code. */
        if (s->kind == STITCH__SCAN_NOT_KNOWN ||
            (o->a == s->a && o->b == s->b && o->acc == s->acc && strcmp(o->name, s->name) == 0)) {
            o->count++;
            return STITCH_OK;
        }
    }
    if (f->op_count == f->op_cap) {
        size_t cap = f->op_cap ? 2 * f->op_cap : 8;
        stitch__scan_op *ops = stitch__arena_array(&scan->arena, cap, sizeof(*ops));
        if (!ops)
            return STITCH_E_NOMEM;
        if (f->op_count)
            memcpy(ops, f->ops, f->op_count * sizeof(*ops));
        f->ops = ops;
        f->op_cap = cap;
    }
    const char *name = stitch__arena_strdup(&scan->arena, s->name);
    if (!name)
        return STITCH_E_NOMEM;
    f->ops[f->op_count++] = (stitch__scan_op){s->kind, s->a, s->b, s->acc, name, 1, at, ptx};
    return STITCH_OK;
}

int stitch__scan_add_call(stitch__scan *scan, const char *name, size_t len)
{
    for (size_t i = 0; i < scan->call_count; i++) {
        if (strlen(scan->calls[i]) == len && memcmp(scan->calls[i], name, len) == 0)
            return STITCH_OK;
    }
    if (scan->call_count >= STITCH__SCAN_MAX_CALLS)
        return STITCH_OK;
    if (stitch__grow(scan->ctx, &scan->calls, &scan->call_cap, scan->call_count + 1, sizeof(*scan->calls)))
        return STITCH_E_NOMEM;
    scan->calls[scan->call_count] = keep_name(scan, name, len, 200);
    return scan->calls[scan->call_count] ? (scan->call_count++, STITCH_OK) : STITCH_E_NOMEM;
}

static stitch__scan_global *find_global(const stitch__scan *scan, const char *name, size_t len)
{
    for (size_t i = 0; i < scan->global_count; i++) {
        if (strncmp(scan->globals[i].name, name, len) == 0 && scan->globals[i].name[len] == '\0')
            return &scan->globals[i];
    }
    return NULL;
}

int stitch__scan_add_global(stitch__scan *scan, const char *name, size_t len, uint64_t bytes, bool initialised,
                            bool managed)
{
    if (find_global(scan, name, len))
        return STITCH_OK;
    if (scan->global_count >= STITCH__SCAN_MAX_GLOBALS) {
        scan->globals_left_out++;
        return STITCH_OK;
    }
    if (stitch__grow(scan->ctx, &scan->globals, &scan->global_cap, scan->global_count + 1, sizeof(*scan->globals)))
        return STITCH_E_NOMEM;
    stitch__scan_global *g = &scan->globals[scan->global_count];
    *g = (stitch__scan_global){
        keep_name(scan, name, len, 4096), bytes, initialised, managed, false, false, STITCH__SCAN_UNSEEN};
    if (!g->name)
        return STITCH_E_NOMEM;
    scan->global_count++;
    return STITCH_OK;
}

/* ---- reading ---- */

static int new_scan(stitch_context *ctx, const stitch_image *image, stitch__scan **out, stitch_error **err)
{
    stitch__scan *scan = stitch__calloc(ctx, 1, sizeof(*scan));
    if (!scan)
        return stitch__err_nomem(ctx, err);
    scan->ctx = ctx;
    scan->arena.ctx = ctx;
    scan->arch = stitch__arena_strdup(&scan->arena, stitch_image_arch(image));
    if (!scan->arch) {
        stitch__scan_free(scan);
        return stitch__err_nomem(ctx, err);
    }
    *out = scan;
    return STITCH_OK;
}

void stitch__scan_free(stitch__scan *scan)
{
    if (!scan)
        return;
    stitch_free(scan->functions);
    stitch_free(scan->globals);
    stitch_free(scan->calls);
    stitch_free(scan->gemms);
    stitch_free(scan->findings);
    stitch__arena_free(&scan->arena);
    stitch_free(scan);
}

static bool machine_code(const stitch_image *image)
{
    int number = 0;
    return !stitch_image_is_ptx(image) && sscanf(stitch_image_arch(image), "sm_%d", &number) == 1 &&
           stitch__sass_arch_known(number);
}

static int unreadable(stitch__scan *scan, int rc, const char *what, const char *why, stitch_error **err)
{
    return rc == STITCH_E_NOMEM
               ? stitch__err_nomem(scan->ctx, err)
               : stitch__err(scan->ctx, err, rc, "the %s of a program cannot be scanned: %s", what, why);
}

static int read_image(stitch__scan *scan, const stitch_image *image, stitch_error **err)
{
    size_t size;
    const char *data = stitch_image_data(image, &size), *why = "";
    if (!data)
        return stitch__err(scan->ctx, err, STITCH_E_INVALID, "there is no code to scan: compilation failed");
    scan->from_ptx = !machine_code(image);
    int rc = STITCH_OK;
    if (stitch_image_is_ptx(image))
        rc = stitch__scan_ptx(scan, data, size, true, &why);
    else if (!scan->from_ptx)
        rc = stitch__scan_cubin(scan, data, size, &why);
    return rc ? unreadable(scan, rc, stitch_image_is_ptx(image) ? "PTX" : "machine code", why, err) : STITCH_OK;
}

/* Whether a source may have PTX of its own: it says so, or what it says is put together by the preprocessor. */
static bool has_inline_ptx(const char *source)
{
    static const char *const signs[] = {"asm", "ptx", "##", "%:%:", "\\\n", "\\\r"};
    for (size_t i = 0; i < STITCH__COUNT(signs); i++) {
        if (strstr(source, signs[i]))
            return true;
    }
    return false;
}

/* Whether the PTX of the same source would tell more than its machine code. source "": not known. */
static bool needs_ptx(const stitch__scan *scan, const stitch_image *image, const char *source)
{
    if (stitch_image_is_ptx(image))
        return false;
    if (scan->from_ptx || scan->global_count || has_inline_ptx(source))
        return true;
    for (size_t i = 0; i < scan->function_count; i++) {
        if (scan->functions[i].unknown)
            return true;
        for (size_t k = 0; k < scan->functions[i].op_count; k++) {
            if (scan->functions[i].ops[k].a == STITCH__SCAN_UNDECIDED ||
                scan->functions[i].ops[k].kind == STITCH__SCAN_CALL)
                return true;
        }
    }
    return false;
}

static stitch__scan_function *find_function(const stitch__scan *scan, const char *symbol)
{
    for (size_t i = 0; i < scan->function_count; i++) {
        if (strcmp(scan->functions[i].symbol, symbol) == 0)
            return &scan->functions[i];
    }
    return NULL;
}

/* tcgen05 products: the instruction has its kind in PTX only. Taken over where a function has one kind of them. */
static void decide_types(stitch__scan *scan, const stitch__scan *ptx)
{
    for (size_t i = 0; i < scan->function_count; i++) {
        stitch__scan_function *f = &scan->functions[i];
        const stitch__scan_function *other = find_function(ptx, f->symbol);
        int type = 0;
        for (size_t k = 0; other && k < other->op_count; k++) {
            const stitch__scan_op *o = &other->ops[k];
            bool half = o->kind == STITCH__SCAN_TENSOR && strcmp(o->name, "tcgen05") == 0 &&
                        (o->a == STITCH__SCAN_F16 || o->a == STITCH__SCAN_TF32);
            if (half)
                type = type && type != o->a ? STITCH__SCAN_UNDECIDED : o->a;
        }
        for (size_t k = 0; type && k < f->op_count; k++) {
            if (f->ops[k].a == STITCH__SCAN_UNDECIDED)
                f->ops[k].a = f->ops[k].b = type;
        }
    }
}

/* A function with instructions that are not known also gets what its PTX has, and that of functions whose machine code
 * may be part of it. */
static int fill_gaps(stitch__scan *scan, const stitch__scan *ptx)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < scan->function_count; i++) {
        stitch__scan_function *f = &scan->functions[i];
        for (size_t k = 0; f->unknown && k < ptx->function_count; k++) {
            const stitch__scan_function *from = &ptx->functions[k];
            if (strcmp(from->symbol, f->symbol) != 0 && find_function(scan, from->symbol))
                continue;
            for (size_t o = 0; o < from->op_count && rc == STITCH_OK; o++) {
                stitch__sass s = {from->ops[o].kind, from->ops[o].a, from->ops[o].b, from->ops[o].acc, ""};
                snprintf(s.name, sizeof(s.name), "%s", from->ops[o].name);
                rc = stitch__scan_add_op(scan, f, &s, from->ops[o].at, true);
            }
        }
    }
    return rc;
}

/* Machine code looks the same for calls of the device runtime and of what an address leads to, and for parameters and
 * the number of the launch. */
static int take_hidden(stitch__scan *scan, const stitch__scan *ptx)
{
    int rc = STITCH_OK;

    for (size_t i = 0; i < ptx->function_count; i++) {
        stitch__scan_function *f = find_function(scan, ptx->functions[i].symbol);
        for (size_t k = 0; k < ptx->functions[i].op_count && rc == STITCH_OK; k++) {
            const stitch__scan_op *o = &ptx->functions[i].ops[k];
            stitch__sass s = {.kind = o->kind};
            if ((o->kind != STITCH__SCAN_CALL && o->kind != STITCH__SCAN_LAUNCH) || !scan->function_count)
                continue;
            snprintf(s.name, sizeof(s.name), "%s", o->name);
            rc = stitch__scan_add_op(scan, f ? f : &scan->functions[0], &s, o->at, true);
        }
    }
    return rc;
}

static int read_ptx(stitch__scan *scan, const stitch_image *ptx, stitch_error **err)
{
    size_t size;
    const char *why = "", *text = stitch_image_data(ptx, &size);
    stitch__scan *other = NULL;
    int rc;
    if (!text)
        return STITCH_OK;
    if (scan->from_ptx) {
        rc = stitch__scan_ptx(scan, text, size, true, &why);
        return rc ? unreadable(scan, rc, "PTX", why, err) : STITCH_OK;
    }
    if ((rc = new_scan(scan->ctx, ptx, &other, err)) != STITCH_OK)
        return rc;
    /* Functions are read first: a call to one of them can be followed. */
    for (size_t i = 0; i < scan->global_count && rc == STITCH_OK; i++) {
        const stitch__scan_global *g = &scan->globals[i];
        rc = stitch__scan_add_global(other, g->name, strlen(g->name), g->bytes, g->initialised, g->managed);
    }
    if (rc == STITCH_OK)
        rc = stitch__scan_ptx(other, text, size, true, &why);
    if (rc == STITCH_OK)
        rc = fill_gaps(scan, other);
    if (rc == STITCH_OK)
        rc = take_hidden(scan, other);
    if (rc == STITCH_OK) {
        decide_types(scan, other);
        for (size_t i = 0; i < scan->global_count; i++) {
            const stitch__scan_global *g = find_global(other, scan->globals[i].name, strlen(scan->globals[i].name));
            scan->globals[i].access = g ? g->access : STITCH__SCAN_ESCAPES;
        }
    }
    stitch__scan_free(other);
    return rc ? unreadable(scan, rc, "PTX", why, err) : STITCH_OK;
}

/* ---- the plan ---- */

static int scan_type(int dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_F64: return STITCH__SCAN_F64;
    case STITCH_DTYPE_F32: return STITCH__SCAN_F32;
    case STITCH_DTYPE_TF32: return STITCH__SCAN_TF32;
    case STITCH_DTYPE_F16: return STITCH__SCAN_F16;
    case STITCH_DTYPE_BF16: return STITCH__SCAN_BF16;
    case STITCH_DTYPE_F8E4M3: return STITCH__SCAN_E4M3;
    case STITCH_DTYPE_F8E5M2: return STITCH__SCAN_E5M2;
    default: return STITCH__SCAN_UNKNOWN;
    }
}

static int ref_dtype(const stitch__doc *doc, const stitch__ref *ref)
{
    int dtype = ref->tensor >= 0 && (size_t)ref->tensor < doc->tensor_count ? doc->tensors[ref->tensor].dtype : 0;
    return scan_type(dtype == STITCH_DTYPE_TF32 ? STITCH_DTYPE_F32 : dtype); /* held as float32 */
}

/* As lib/program/gemm.c asks cuBLASLt for it. */
static int add_gemm(stitch__scan *scan, const stitch__doc *doc, const stitch__step *step)
{
    const stitch__gemm_step *g = step->u.gemm;
    int rc = stitch__grow(scan->ctx, &scan->gemms, &scan->gemm_cap, scan->gemm_count + 1, sizeof(*scan->gemms));
    if (rc)
        return rc;
    int a = ref_dtype(doc, &g->a), b = ref_dtype(doc, &g->b), compute = scan_type(g->compute);
    if (!g->compute)
        compute = a == STITCH__SCAN_F64 ? STITCH__SCAN_F64 : STITCH__SCAN_F32;
    int acc = compute == STITCH__SCAN_TF32 ? STITCH__SCAN_F32 : compute;
    if (compute == STITCH__SCAN_TF32) { /* float32 operands are rounded on their way */
        a = a == STITCH__SCAN_F32 ? STITCH__SCAN_TF32 : a;
        b = b == STITCH__SCAN_F32 ? STITCH__SCAN_TF32 : b;
    }
    const char *place = stitch__arena_strdup(&scan->arena, step->place ? step->place : "");
    scan->gemms[scan->gemm_count] = (stitch__scan_gemm){place, a, b, acc};
    return place ? (scan->gemm_count++, STITCH_OK) : STITCH_E_NOMEM;
}

static int walk_steps(stitch__scan *scan, const stitch__doc *doc, const stitch_image *image, const stitch__steps *steps)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < steps->count && rc == STITCH_OK; i++) {
        const stitch__step *step = &steps->items[i];
        size_t index;
        if (step->kind == STITCH__STEP_REPEAT) { /* nesting is limited where plans are parsed */
            rc = walk_steps(scan, doc, image, &step->u.repeat->steps);
        } else if (step->kind == STITCH__STEP_GEMM) {
            rc = add_gemm(scan, doc, step);
        } else if (step->kind == STITCH__STEP_KERNEL &&
                   stitch_image_find(image, step->u.kernel->name, &index) == STITCH_OK) {
            stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
            stitch_image_kernel(image, index, &info);
            for (size_t k = 0; k < scan->function_count; k++) {
                stitch__scan_function *f = &scan->functions[k];
                if (f->kernel && strcmp(f->symbol, info.symbol) == 0) {
                    f->used = true;
                    f->name = stitch__arena_strdup(&scan->arena, step->u.kernel->name);
                    rc = f->name ? STITCH_OK : STITCH_E_NOMEM;
                }
            }
        }
    }
    return rc;
}

static int read_plan(stitch__scan *scan, const stitch__doc *doc, const stitch_image *image, stitch_error **err)
{
    for (size_t i = 0; i < scan->function_count; i++)
        scan->functions[i].used = !scan->functions[i].kernel;
    int rc = walk_steps(scan, doc, image, &doc->prepare);
    if (rc == STITCH_OK)
        rc = walk_steps(scan, doc, image, &doc->run);
    return rc ? stitch__err_nomem(scan->ctx, err) : STITCH_OK;
}

/* Symbols for people, where no step names the kernel. */
static int name_functions(stitch__scan *scan, const stitch_image *image)
{
    for (size_t i = 0; i < stitch_image_kernel_count(image); i++) {
        stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
        if (stitch_image_kernel(image, i, &info))
            continue;
        for (size_t k = 0; k < scan->function_count; k++) {
            stitch__scan_function *f = &scan->functions[k];
            if (f->name == f->symbol && strcmp(f->symbol, info.symbol) == 0 &&
                !(f->name = stitch__arena_strdup(&scan->arena, info.name)))
                return STITCH_E_NOMEM;
        }
    }
    return STITCH_OK;
}

/* ---- the two ways in ---- */

static int compile_ptx(stitch_context *ctx, stitch_program *program, const char *arch, stitch_image **out,
                       stitch_error **err)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    const char **names = NULL;
    int rc = stitch__kernel_names(&program->doc, &names, &o.name_count, err);
    o.names = names;
    o.arch = arch;
    o.ptx = 1;
    if (rc == STITCH_OK)
        rc = stitch_compile(ctx, stitch_program_source(program), &o, out, err);
    if (rc)
        stitch__err_prefix(err, "PTX for the scan: ");
    stitch_free(names);
    return rc;
}

int stitch__scan_image(stitch_context *ctx, const stitch_image *image, const stitch_image *ptx, const stitch_task *task,
                       stitch__scan **out, stitch_error **err)
{
    stitch__scan *scan = NULL;
    *out = NULL;
    int rc = new_scan(ctx, image, &scan, err);
    if (rc == STITCH_OK)
        rc = read_image(scan, image, err);
    if (rc == STITCH_OK && ptx && needs_ptx(scan, image, ""))
        rc = read_ptx(scan, ptx, err);
    if (rc == STITCH_OK && (name_functions(scan, image) || stitch__scan_judge(scan, task)))
        rc = stitch__err_nomem(ctx, err);
    if (rc)
        stitch__scan_free(scan);
    else
        *out = scan;
    return rc;
}

int stitch__scan_program(stitch_context *ctx, stitch_program *program, const stitch_image *image,
                         const stitch_task *task, const stitch__scan_source *from, stitch__scan **out,
                         stitch_error **err)
{
    stitch__scan *scan = NULL;
    stitch_image *made = NULL;
    const stitch_image *ptx = NULL;
    *out = NULL;
    int rc = new_scan(ctx, image, &scan, err);
    if (rc == STITCH_OK)
        rc = read_image(scan, image, err);
    if (rc == STITCH_OK && needs_ptx(scan, image, stitch_program_source(program))) {
        rc = from ? from->ptx(from->self, scan->arch, &ptx, err) : compile_ptx(ctx, program, scan->arch, &made, err);
        if (rc == STITCH_OK)
            ptx = from ? ptx : made;
        if (rc == STITCH_OK)
            rc = read_ptx(scan, ptx, err);
    }
    if (rc == STITCH_OK)
        rc = read_plan(scan, &program->doc, image, err);
    if (rc == STITCH_OK && (name_functions(scan, image) || stitch__scan_judge(scan, task)))
        rc = stitch__err_nomem(ctx, err);
    stitch_image_free(made);
    if (rc)
        stitch__scan_free(scan);
    else
        *out = scan;
    return rc;
}
