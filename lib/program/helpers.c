/* SPDX-License-Identifier: MIT
 *
 * Device code of the library's own, which is compiled and saved along with a program that needs it: the part of a
 * product that cuBLASLt cannot do in its epilogue, and fills with 8-byte patterns.
 */
#include "program/program.h"

/* Conversions are written out, so that no header has to be read. dtype numbers are those of enum helper_type. The rows
 * of t, c and d are n long and lie ld apart; a block works on one row at a time. */
static const char source[] =
    "typedef unsigned short u16; typedef unsigned int u32; typedef long long i64; typedef unsigned long long u64;\n"
    "__device__ static float load(const void *p, i64 i, int type)\n"
    "{\n"
    "    float f;\n"
    "    if (type == 0) return ((const float *)p)[i];\n"
    "    u16 h = ((const u16 *)p)[i];\n"
    "    if (type == 2) return __uint_as_float((u32)h << 16);\n"
    "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h));\n"
    "    return f;\n"
    "}\n"
    "__device__ static void store(void *p, i64 i, int type, float v)\n"
    "{\n"
    "    u16 h;\n"
    "    if (type == 0) { ((float *)p)[i] = v; return; }\n"
    "    if (type == 1) {\n"
    "        asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(v));\n"
    "    } else {\n"
    "        u32 b = __float_as_uint(v);\n"
    "        h = (b & 0x7fffffffu) > 0x7f800000u ? (u16)0x7fff : (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);\n"
    "    }\n"
    "    ((u16 *)p)[i] = h;\n"
    "}\n"
    "__device__ static float activate(float v, int epilogue)\n"
    "{\n"
    "    if (epilogue == 1) return v > 0.0f || v != v ? v : 0.0f;\n"
    "    if (epilogue == 2) return 0.5f * v * (1.0f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));\n"
    "    return v;\n"
    "}\n"
    "__device__ static double activate(double v, int epilogue)\n"
    "{\n"
    "    if (epilogue == 1) return v > 0.0 || v != v ? v : 0.0;\n"
    "    if (epilogue == 2) return 0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));\n"
    "    return v;\n"
    "}\n"
    "struct side { i64 ld, stride; int type, pad; };\n"
    "extern \"C\" __global__ void __launch_bounds__(256) stitch_epilogue(const float *t, side ts, void *c, side cs, "
    "const void *d, side ds,\n"
    "    const void *bias, int bias_type, int epilogue, float beta, i64 m, i64 n)\n"
    "{\n"
    "    i64 batch = blockIdx.z;\n"
    "    for (i64 row = blockIdx.y; row < m; row += gridDim.y) {\n"
    "        for (i64 col = blockIdx.x * 256LL + threadIdx.x; col < n; col += gridDim.x * 256LL) {\n"
    "            float v = t[batch * ts.stride + row * ts.ld + col];\n"
    "            if (d) v += beta * load(d, batch * ds.stride + row * ds.ld + col, ds.type);\n"
    "            if (bias) v += load(bias, col, bias_type);\n"
    "            store(c, batch * cs.stride + row * cs.ld + col, cs.type, activate(v, epilogue));\n"
    "        }\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(256) stitch_epilogue_f64(const double *t, side ts, double *c, side "
    "cs, const double *d,\n"
    "    side ds, const double *bias, int epilogue, double beta, i64 m, i64 n)\n"
    "{\n"
    "    i64 batch = blockIdx.z;\n"
    "    for (i64 row = blockIdx.y; row < m; row += gridDim.y) {\n"
    "        for (i64 col = blockIdx.x * 256LL + threadIdx.x; col < n; col += gridDim.x * 256LL) {\n"
    "            double v = t[batch * ts.stride + row * ts.ld + col];\n"
    "            if (d) v += beta * d[batch * ds.stride + row * ds.ld + col];\n"
    "            if (bias) v += bias[col];\n"
    "            c[batch * cs.stride + row * cs.ld + col] = activate(v, epilogue);\n"
    "        }\n"
    "    }\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(256) stitch_fill64(u64 *p, u64 value, i64 count)\n"
    "{\n"
    "    for (i64 i = blockIdx.x * 256LL + threadIdx.x; i < count; i += gridDim.x * 256LL) p[i] = value;\n"
    "}\n";

static int operand(const stitch__doc *doc, const stitch__ref *ref)
{
    int dtype = ref->tensor < 0 ? STITCH_DTYPE_NONE : doc->tensors[ref->tensor].dtype;
    return dtype == STITCH_DTYPE_TF32 ? STITCH_DTYPE_F32 : dtype;
}

/* cuBLAS documentation, "cublasLtMatmul() regular column-major and row-major types" and "8-bit floating point": C, D
 * and the bias have the type of the output; 8-bit products into f32 take a bf16 bias. Epilogues are not offered for
 * f64. */
bool stitch__gemm_fuses(const stitch__doc *doc, const stitch__gemm_step *g)
{
    int a = operand(doc, &g->a), c = operand(doc, &g->c), d = g->beta != 0 && g->d.name ? operand(doc, &g->d) : c;
    int bias = g->bias.name ? operand(doc, &g->bias) : STITCH_DTYPE_NONE;
    bool fp8 = a == STITCH_DTYPE_F8E4M3 || a == STITCH_DTYPE_F8E5M2;
    if (d != c)
        return false;
    if (a == STITCH_DTYPE_F64)
        return !bias && g->epilogue == STITCH__EPILOGUE_NONE;
    if (bias && bias != (fp8 && c == STITCH_DTYPE_F32 ? STITCH_DTYPE_BF16 : c))
        return false;
    return fp8 || c == a || c == STITCH_DTYPE_F32;
}

static bool fill_needs_kernel(const stitch__doc *doc, const stitch__fill_step *f)
{
    uint64_t bits = 0;
    if (f->buffer.tensor < 0 || stitch_dtype_size(doc->tensors[f->buffer.tensor].dtype) != 8)
        return false;
    if (doc->tensors[f->buffer.tensor].dtype == STITCH_DTYPE_F64)
        memcpy(&bits, &f->value, sizeof(bits));
    else
        bits = (uint64_t)f->integer;
    return bits >> 32 != (bits & 0xffffffff);
}

static bool needed_by(const stitch__doc *doc, const stitch__steps *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const stitch__step *s = &list->items[i];
        if ((s->kind == STITCH__STEP_GEMM && !stitch__gemm_fuses(doc, s->u.gemm)) ||
            (s->kind == STITCH__STEP_FILL && fill_needs_kernel(doc, s->u.fill)) ||
            (s->kind == STITCH__STEP_REPEAT && needed_by(doc, &s->u.repeat->steps)))
            return true;
    }
    return false;
}

bool stitch__needs_helpers(const stitch__doc *doc)
{
    return needed_by(doc, &doc->prepare) || needed_by(doc, &doc->run);
}

int stitch__compile_helpers(stitch_context *ctx, const char *arch, bool ptx, bool no_cache, stitch_image **out,
                            stitch_error **err)
{
    static const char *const names[] = {"stitch_epilogue", "stitch_epilogue_f64", "stitch_fill64"};
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = arch;
    o.ptx = ptx;
    o.no_cache = no_cache;
    o.names = names;
    o.name_count = STITCH__COUNT(names);
    int rc = stitch_compile(ctx, source, &o, out, err);
    if (rc) {
        stitch_image_free(*out);
        *out = NULL;
        stitch__err_prefix(err, "the library's own kernels: ");
    }
    return rc;
}
