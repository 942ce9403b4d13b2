/* SPDX-License-Identifier: MIT
 *
 * Which steps need device code of the library's own, and its compilation.
 */
#include "program/program.h"

extern const char stitch__program_helpers[];

static int dtype_of(const stitch__doc *doc, const stitch__ref *ref)
{
    int dtype = ref->name && ref->tensor >= 0 ? doc->tensors[ref->tensor].dtype : STITCH_DTYPE_NONE;
    return dtype == STITCH_DTYPE_TF32 ? STITCH_DTYPE_F32 : dtype;
}

/* After cublasLtMatmul's table of supported types: C and D of one type; bias of D's type, except float8; float64 and
 * half-precision sums have no epilogue. */
bool stitch__gemm_fuses(const stitch__doc *doc, const stitch__gemm_step *g)
{
    int a = dtype_of(doc, &g->a), c = dtype_of(doc, &g->c), d = dtype_of(doc, &g->d), bias = dtype_of(doc, &g->bias);
    bool wants = g->bias.name || g->epilogue != STITCH__EPILOGUE_NONE;
    if (g->beta != 0 && d != STITCH_DTYPE_NONE && d != c)
        return false;
    if (!wants)
        return true;
    if (c == STITCH_DTYPE_F64 || g->compute == STITCH_DTYPE_F16 || stitch_dtype_size(a) == 1)
        return false;
    /* Half operands with a float32 result take a float32 bias, and so on: the bias goes with the result. */
    return bias == STITCH_DTYPE_NONE || (bias == c && (a == c || c == STITCH_DTYPE_F32));
}

static bool steps_need(const stitch__doc *doc, const stitch__steps *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const stitch__step *s = &list->items[i];
        if (s->kind == STITCH__STEP_GEMM && !stitch__gemm_fuses(doc, s->u.gemm))
            return true;
        if (s->kind == STITCH__STEP_FILL && s->u.fill->buffer.tensor >= 0 &&
            stitch_dtype_size(doc->tensors[s->u.fill->buffer.tensor].dtype) == 8)
            return true;
        if (s->kind == STITCH__STEP_REPEAT && steps_need(doc, &s->u.repeat->steps))
            return true;
    }
    return false;
}

bool stitch__needs_helpers(const stitch__doc *doc)
{
    return steps_need(doc, &doc->prepare) || steps_need(doc, &doc->run);
}

int stitch__compile_helpers(stitch_context *ctx, const char *arch, bool ptx, bool no_cache, stitch_image **out,
                            stitch_error **err)
{
    static const char *const names[] = {"stitch_epilogue", "stitch_fill64"};
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = arch;
    o.names = names;
    o.name_count = STITCH__COUNT(names);
    o.ptx = ptx;
    o.no_cache = no_cache;
    int rc = stitch_compile(ctx, stitch__program_helpers, &o, out, err);
    if (rc) {
        stitch_image_free(*out);
        *out = NULL;
        stitch__err_prefix(err, "helper kernels: ");
    }
    return rc;
}
