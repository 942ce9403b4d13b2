/* SPDX-License-Identifier: MIT
 *
 * Products: on cuBLASLt, or on the simulator's BLAS; with a kernel of our own for what the library's epilogue cannot
 * do.
 */
#include "program/executor.h"
#include "sim/sim_ext.h"

static int storage_type(int dtype)
{
    return dtype == STITCH_DTYPE_TF32 ? STITCH_DTYPE_F32 : dtype;
}

/* Bytes that an operand is aligned to, whatever it is bound to: buffers start at 256, bound tensors at 16. */
static uint32_t alignment(const stitch__doc *doc, const stitch__range *r)
{
    uint64_t bytes = r->offset * stitch_dtype_size(doc->tensors[r->tensor].dtype);
    uint32_t align = doc->tensors[r->tensor].buffer >= 0 ? 256 : 16;
    while (bytes % align)
        align /= 2;
    return align;
}

/* What a product needs, in numbers. */
typedef struct product {
    stitch__gemm_values v;
    stitch__gemm_key key;
    bool fused;
} product;

static bool evaluate(stitch_executor *x, const stitch__step *step, product *p)
{
    const stitch__gemm_step *g = step->u.gemm;
    const stitch__doc *doc = x->doc;
    stitch__gemm_key *k = &p->key;

    if (!stitch__eval_gemm(&x->session, step, &p->v))
        return false;
    const stitch__gemm_values *v = &p->v;
    p->fused = stitch__gemm_fuses(doc, g);
    bool has_d = g->beta != 0 && v->d.tensor >= 0;
    int c = storage_type(doc->tensors[v->c.tensor].dtype),
        d = has_d ? storage_type(doc->tensors[v->d.tensor].dtype) : c;
    bool same_d = d == c; /* otherwise the kernel of our own adds it */
    memset(k, 0, sizeof(*k));
    k->a_type = storage_type(doc->tensors[v->a.tensor].dtype);
    k->b_type = storage_type(doc->tensors[v->b.tensor].dtype);
    k->c_type = c;
    k->d_type = c;
    k->compute = g->compute ? g->compute : k->a_type == STITCH_DTYPE_F64 ? STITCH_DTYPE_F64 : STITCH_DTYPE_F32;
    k->trans_a = g->trans_a;
    k->trans_b = g->trans_b;
    k->m = v->m, k->n = v->n, k->k = v->k;
    k->lda = v->lda, k->ldb = v->ldb, k->ldc = v->ldc;
    k->ldd = has_d && same_d ? v->ldd : v->ldc;
    k->batch = v->batch;
    k->stride_a = v->stride_a, k->stride_b = v->stride_b, k->stride_c = v->stride_c;
    k->stride_d = has_d && same_d ? v->stride_d : v->stride_c;
    k->alpha = g->alpha;
    k->beta = has_d && same_d ? g->beta : 0;
    if (p->fused) {
        k->epilogue = g->epilogue;
        k->has_bias = v->bias.tensor >= 0;
        k->bias_type = k->has_bias ? storage_type(doc->tensors[v->bias.tensor].dtype) : 0;
    }
    k->a_align = alignment(doc, &v->a);
    k->b_align = alignment(doc, &v->b);
    k->c_align = alignment(doc, &v->c);
    k->d_align = has_d && same_d ? alignment(doc, &v->d) : k->c_align;
    return true;
}

static CUdeviceptr address_or_0(const stitch_executor *x, const stitch__exec_plan *plan, const stitch__range *r)
{
    return r->tensor >= 0 ? stitch__encode_address(x, plan, r) : 0;
}

/* ---- the simulator ---- */

static int run_simulated(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, const product *p,
                         CUstream stream, stitch_error **err)
{
    const stitch__gemm_step *g = step->u.gemm;
    const stitch__gemm_values *v = &p->v;
    const stitch__tensor *t = x->doc->tensors;
    stitch__sim_gemm_args a = {
        .m = v->m,
        .n = v->n,
        .k = v->k,
        .batch = v->batch,
        .a = {stitch__encode_address(x, plan, &v->a), t[v->a.tensor].dtype, v->lda, v->stride_a},
        .b = {stitch__encode_address(x, plan, &v->b), t[v->b.tensor].dtype, v->ldb, v->stride_b},
        .c = {stitch__encode_address(x, plan, &v->c), t[v->c.tensor].dtype, v->ldc, v->stride_c},
        .trans_a = g->trans_a,
        .trans_b = g->trans_b,
        .alpha = g->alpha,
        .beta = v->d.tensor >= 0 ? g->beta : 0,
        .epilogue = g->epilogue,
        .compute = g->compute,
    };
    if (a.beta != 0)
        a.d = (stitch__sim_gemm_matrix){stitch__encode_address(x, plan, &v->d), t[v->d.tensor].dtype, v->ldd,
                                        v->stride_d};
    if (v->bias.tensor >= 0)
        a.bias = (stitch__sim_gemm_matrix){stitch__encode_address(x, plan, &v->bias), t[v->bias.tensor].dtype, 0, 0};
    stitch__sim_gemm_fn gemm;
    stitch_error *why = NULL;
    memcpy(&gemm, &x->dev->drv->sim_gemm, sizeof(gemm));
    CUresult r = gemm(&a, stream, &why);
    int rc = r == CUDA_SUCCESS ? STITCH_OK
                               : stitch__cu_checkf(x->dev, r, err, "%s.gemm: %s", step->place,
                                                   why ? stitch_error_message(why) : "the simulator refuses it");
    stitch_error_free(why);
    return rc;
}

/* ---- what the library's epilogue cannot do ---- */

static int run_epilogue(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, const product *p,
                        CUstream stream, stitch_error **err)
{
    const stitch__gemm_step *g = step->u.gemm;
    const stitch__gemm_values *v = &p->v;
    const stitch__tensor *t = x->doc->tensors;
    bool adds = g->beta != 0 && v->d.tensor >= 0 && p->key.beta == 0;
    CUdeviceptr c = stitch__encode_address(x, plan, &v->c), d = adds ? stitch__encode_address(x, plan, &v->d) : 0,
                bias = address_or_0(x, plan, &v->bias);
    int c_type = t[v->c.tensor].dtype, d_type = adds ? t[v->d.tensor].dtype : 0,
        bias_type = bias ? t[v->bias.tensor].dtype : 0, act = g->epilogue;
    long long ldc = v->ldc, stride_c = v->stride_c, ldd = v->ldd, stride_d = v->stride_d, rows = v->m, cols = v->n;
    double beta = g->beta;
    void *args[] = {&c,        &c_type, &ldc,  &stride_c,  &d,    &d_type, &ldd,
                    &stride_d, &beta,   &bias, &bias_type, &rows, &cols,   &act};
    long long blocks = (rows * cols + 255) / 256;

    x->encoded++;
    for (int64_t first = 0; first < v->batch; first += 65535) { /* the limit of a grid's second dimension */
        int64_t count = v->batch - first < 65535 ? v->batch - first : 65535;
        CUresult r =
            x->dev->drv->LaunchKernel(x->helpers.kernels[x->helper_epilogue], blocks < 65536 ? (unsigned)blocks : 65536,
                                      (unsigned)count, 1, 256, 1, 1, 0, stream, args, NULL);
        int rc = stitch__cu_checkf(x->dev, r, err, "%s.gemm: launch of the epilogue", step->place);
        if (rc)
            return rc;
        c += (CUdeviceptr)(count * stride_c) * stitch_dtype_size(c_type);
        d += d ? (CUdeviceptr)(count * stride_d) * stitch_dtype_size(d_type) : 0;
    }
    return STITCH_OK;
}

static bool leaves_something(const stitch__gemm_step *g, const product *p)
{
    return !p->fused && (g->epilogue != STITCH__EPILOGUE_NONE || p->v.bias.tensor >= 0 ||
                         (g->beta != 0 && p->v.d.tensor >= 0 && p->key.beta == 0));
}

static int entry_of(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, const product *p,
                    stitch__gemm_entry **out, stitch_error **err)
{
    const stitch__gemm_values *v = &p->v;
    return stitch__lt_entry(x, &p->key, step->place, stitch__encode_address(x, plan, &v->a),
                            stitch__encode_address(x, plan, &v->b),
                            p->key.has_bias ? stitch__encode_address(x, plan, &v->bias) : 0,
                            p->key.beta != 0 ? stitch__encode_address(x, plan, &v->d) : 0, out, err);
}

int stitch__encode_gemm(stitch_executor *x, const stitch__exec_plan *plan, const stitch__step *step, CUstream stream,
                        size_t lane, stitch_error **err)
{
    stitch__gemm_entry *e = NULL;
    product p;
    int rc;

    if (!evaluate(x, step, &p))
        return stitch__encode_failed(x, err);
    x->encoded++;
    if (x->dev->drv->sim_gemm)
        return run_simulated(x, plan, step, &p, stream, err);
    if ((rc = entry_of(x, plan, step, &p, &e, err)) != STITCH_OK)
        return rc;
    CUdeviceptr c = stitch__encode_address(x, plan, &p.v.c);
    rc = stitch__lt_run(x, e, stitch__encode_address(x, plan, &p.v.a), stitch__encode_address(x, plan, &p.v.b),
                        p.key.beta != 0 ? stitch__encode_address(x, plan, &p.v.d) : c, c,
                        p.key.has_bias ? stitch__encode_address(x, plan, &p.v.bias) : 0, stream, x->lt_workspace[lane],
                        step->place, err);
    if (rc == STITCH_OK && leaves_something(step->u.gemm, &p))
        rc = run_epilogue(x, plan, step, &p, stream, err);
    return rc;
}

/* ---- set-up ---- */

/* Shapes may depend on loop variables, so loops are walked to their end; entries that exist are found again. */
static int setup_list(stitch_executor *x, const stitch__exec_plan *plan, const stitch__steps *list, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < list->count && rc == STITCH_OK; i++) {
        const stitch__step *s = &list->items[i];
        if (s->kind == STITCH__STEP_GEMM) {
            stitch__gemm_entry *e;
            product p;
            rc = evaluate(x, s, &p) ? entry_of(x, plan, s, &p, &e, err) : stitch__encode_failed(x, err);
        } else if (s->kind == STITCH__STEP_REPEAT && stitch__steps_have(&s->u.repeat->steps, STITCH__STEP_GEMM)) {
            const stitch__repeat_step *r = s->u.repeat;
            int64_t count;
            if (!stitch__eval(&x->session, s, "repeat.count", r->count, &count))
                return stitch__encode_failed(x, err);
            for (int64_t n = 0; n < count && rc == STITCH_OK; n++) {
                stitch__loop_set(&x->session, r->symbol, n);
                rc = setup_list(x, plan, &r->steps, err);
            }
            stitch__loop_clear(&x->session, r->symbol);
        }
    }
    return rc;
}

int stitch__gemm_setup(stitch_executor *x, const stitch__exec_plan *plan, const stitch__steps *list, stitch_error **err)
{
    if (x->dev->drv->sim_gemm || !stitch__steps_have(list, STITCH__STEP_GEMM))
        return STITCH_OK;
    int rc = stitch__lt_open(x, err);
    return rc ? rc : setup_list(x, plan, list, err);
}
