/* SPDX-License-Identifier: MIT
 *
 * Matrix products of a launch plan.
 */
#include "program/program.h"

static const char *const keys[] = {
    "a",   "b",   "c",   "m",     "n",        "k",        "trans_a",  "trans_b",  "bias",  "epilogue", "compute", "lda",
    "ldb", "ldc", "ldd", "batch", "stride_a", "stride_b", "stride_c", "stride_d", "alpha", "beta",     "d",       NULL};

/* The index of a word, `fallback` if the member is missing. */
static int parse_word(stitch__parser *p, const json_t *v, const stitch__jpath *at, const char *key,
                      const char *const *words, size_t count, const char *list, size_t fallback, size_t *out)
{
    const char *word = NULL;
    stitch__jpath here = {at, key, 0};
    STITCH__TRY(stitch__json_string(p->ctx, v, at, key, false, &word, p->err));
    *out = fallback;
    for (size_t i = 0; word && i < count; i++) {
        if (strcmp(word, words[i]) == 0) {
            *out = i;
            return STITCH_OK;
        }
    }
    return word ? stitch__json_err(p->ctx, &here, p->err, "'%.32s' is not known; there are %s", word, list) : STITCH_OK;
}

static int parse_modes(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__gemm_step *g)
{
    static const char *const epilogues[] = {"none", "relu", "gelu"};
    static const char *const computes[] = {"f32", "tf32", "f16", "f64"};
    static const int32_t compute_types[] = {STITCH_DTYPE_F32, STITCH_DTYPE_TF32, STITCH_DTYPE_F16, STITCH_DTYPE_F64,
                                            STITCH_DTYPE_NONE};
    size_t word;
    STITCH__TRY(parse_word(p, v, at, "epilogue", epilogues, STITCH__COUNT(epilogues), "none, relu, gelu", 0, &word));
    g->epilogue = (int32_t)word;
    STITCH__TRY(parse_word(p, v, at, "compute", computes, STITCH__COUNT(computes), "f32, tf32, f16, f64",
                           STITCH__COUNT(computes), &word));
    g->compute = compute_types[word];
    STITCH__TRY(stitch__json_bool(p->ctx, v, at, "trans_a", false, &g->trans_a, p->err));
    STITCH__TRY(stitch__json_bool(p->ctx, v, at, "trans_b", false, &g->trans_b, p->err));
    STITCH__TRY(stitch__json_number(p->ctx, v, at, "alpha", false, &g->alpha, p->err));
    return stitch__json_number(p->ctx, v, at, "beta", false, &g->beta, p->err);
}

int stitch__parse_gemm(stitch__parser *p, const json_t *v, const stitch__jpath *at, stitch__step *out)
{
    stitch__gemm_step *g = stitch__arena_alloc(&p->doc->arena, sizeof(*g));
    if (!g)
        return stitch__err_nomem(p->ctx, p->err);
    g->alpha = 1;
    STITCH__TRY(stitch__json_keys(p->ctx, v, at, keys, p->err));
    struct {
        const char *key;
        stitch__ref *ref;
        bool required;
    } refs[] = {
        {"a", &g->a, true}, {"b", &g->b, true}, {"c", &g->c, true}, {"d", &g->d, false}, {"bias", &g->bias, false}};
    for (size_t i = 0; i < STITCH__COUNT(refs); i++)
        STITCH__TRY(stitch__parse_member_ref(p, v, at, refs[i].key, refs[i].required, refs[i].ref));
    struct {
        const char *key;
        stitch__expr **expr;
        bool required;
    } exprs[] = {
        {"m", &g->m, true},
        {"n", &g->n, true},
        {"k", &g->k, true},
        {"lda", &g->lda, false},
        {"ldb", &g->ldb, false},
        {"ldc", &g->ldc, false},
        {"ldd", &g->ldd, false},
        {"batch", &g->batch, false},
        {"stride_a", &g->stride_a, false},
        {"stride_b", &g->stride_b, false},
        {"stride_c", &g->stride_c, false},
        {"stride_d", &g->stride_d, false},
    };
    for (size_t i = 0; i < STITCH__COUNT(exprs); i++)
        STITCH__TRY(stitch__parse_member_expr(p, v, at, exprs[i].key, exprs[i].required, exprs[i].expr));
    STITCH__TRY(parse_modes(p, v, at, g));
    if (g->d.name && g->beta == 0)
        return stitch__json_err(p->ctx, at, p->err,
                                "'d' is given but beta is 0: it would not be read; set beta, or leave d out");
    if (!g->d.name && (g->ldd || g->stride_d))
        return stitch__json_err(p->ctx, at, p->err, "'%s' is given without 'd'", g->ldd ? "ldd" : "stride_d");
    if (!g->batch && (g->stride_a || g->stride_b || g->stride_c || g->stride_d))
        return stitch__json_err(p->ctx, at, p->err, "strides are given without 'batch'");
    out->kind = STITCH__STEP_GEMM;
    out->u.gemm = g;
    return STITCH_OK;
}
