/* SPDX-License-Identifier: MIT
 *
 * Decoding of matrix instructions. All their registers are in instr.more: results, then A, B, C, or addresses.
 */
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

typedef struct mat_type {
    const char *name;
    uint8_t num, bits;
} mat_type;

/* The next unused modifier that names an element type; NULL if there is none. */
static const mat_type *element(ptx_parser *p)
{
    static const mat_type types[] = {
        {"f16", STITCH__F16, 16}, {"bf16", STITCH__BF16, 16}, {"tf32", STITCH__TF32, 32},  {"f32", STITCH__F32, 32},
        {"f64", STITCH__F64, 64}, {"s32", STITCH__S32, 32},   {"u8", STITCH__U8, 8},       {"s8", STITCH__S8, 8},
        {"u4", STITCH__U8, 4},    {"s4", STITCH__S8, 4},      {"e4m3", STITCH__E4M3X2, 8}, {"e5m2", STITCH__E5M2X2, 8}};
    for (uint32_t i = 0; i < p->mod_count; i++)
        for (size_t k = 0; k < STITCH__COUNT(types); k++)
            if (!(p->mod_used >> i & 1) && ptx_word(&p->mods[i], types[k].name)) {
                p->mod_used |= UINT64_C(1) << i;
                return &types[k];
            }
    return NULL;
}

static bool shape(ptx_parser *p, stitch__matrix *m)
{
    ptx_token t;
    if (!ptx_mod_prefix(p, "m", &t))
        return false;
    uint32_t v[3] = {0}, n = 0;
    for (uint32_t i = 0; i < t.len; i++) {
        char c = t.text[i];
        if (c == 'm' || c == 'n' || c == 'k') {
            if (++n > 3)
                return false;
        } else if (c >= '0' && c <= '9' && n && v[n - 1] < 1000) {
            v[n - 1] = v[n - 1] * 10 + (uint32_t)(c - '0');
        } else {
            return false;
        }
    }
    m->m = (uint16_t)v[0];
    m->n = (uint16_t)v[1];
    m->k = (uint16_t)v[2];
    return n >= 2;
}

/* Registers of a fragment, braces or a single one. Appends them to list; false: refused. */
static bool fragment(ptx_parser *p, const ptx_operand *o, bool dst, uint32_t bits, uint32_t *list, uint32_t *count,
                     uint8_t *n)
{
    uint32_t items = o && o->kind == PTX_O_VEC ? o->count : 1;
    if (!o || *count + items > PTX_MAX_SUB)
        return false;
    for (uint32_t i = 0; i < items; i++) {
        const ptx_operand *e = o->kind == PTX_O_VEC ? &p->sub[o->first + i] : o;
        list[(*count)++] = dst ? ptx_dst(p, e, bits) : ptx_src(p, e, bits == 64 ? STITCH__F64 : STITCH__U32, bits);
    }
    *n = (uint8_t)items;
    return !ptx_refused(p);
}

static stitch__instr *emit(ptx_parser *p, stitch__exec_fn fn, const stitch__matrix *m, const uint32_t *list,
                           uint32_t count, uint8_t ndef)
{
    stitch__matrix *keep = stitch__arena_alloc(&p->m->arena, sizeof(*keep));
    stitch__instr *in = keep ? ptx_emit(p) : NULL;
    uint32_t *more = in ? ptx_more(p, in, count) : NULL;
    if (!more) {
        ptx_nomem(p);
        return NULL;
    }
    memcpy(more, list, count * sizeof(uint32_t));
    *keep = *m;
    in->op = STITCH__OP_FN;
    in->u.fn = fn;
    in->cls = STITCH__SIM_CLASS_MMA;
    in->ndef = ndef;
    in->data = keep;
    in->space = STITCH__SIM_SHARED;
    return in;
}

static bool dec_ldmatrix(ptx_parser *p, bool load)
{
    stitch__matrix m = {0};
    uint32_t list[8], n = 0;
    uint8_t regs = 0;
    ptx_mod(p, "sync");
    ptx_mod(p, "aligned");
    bool s = ptx_mod(p, "m8n8");
    m.count = ptx_mod(p, "x4") ? 4 : ptx_mod(p, "x2") ? 2 : 1;
    if (m.count == 1)
        ptx_mod(p, "x1");
    m.trans = ptx_mod(p, "trans");
    stitch__sim_space space = ptx_space(p);
    if (!s || !ptx_mod(p, "b16") || p->operand_count != 2)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t address = ptx_address64(p, &p->operands[load ? 1 : 0], space);
    if (!load)
        list[n++] = address;
    if (!fragment(p, &p->operands[load ? 0 : 1], load, 32, list, &n, &regs) || regs != m.count)
        return ptx_refuse(p, "has a wrong number of registers");
    if (load)
        list[n++] = address;
    stitch__instr *in = emit(p, load ? stitch__exec_ldmatrix : stitch__exec_stmatrix, &m, list, n, load ? regs : 0);
    if (!in)
        return false;
    in->space = (uint8_t)space;
    in->cls = STITCH__SIM_CLASS_SHARED;
    in->size = 16;
    ptx_note_access(p, STITCH__SIM_SHARED, 16, false);
    return true;
}

static bool dec_movmatrix(ptx_parser *p)
{
    stitch__matrix m = {0};
    uint32_t list[2];
    ptx_mod(p, "sync");
    ptx_mod(p, "aligned");
    if (!ptx_mod(p, "m8n8") || !ptx_mod(p, "trans") || !ptx_mod(p, "b16") || p->operand_count != 2)
        return ptx_refuse(p, "is not supported in this form");
    list[0] = ptx_dst(p, &p->operands[0], 32);
    list[1] = ptx_src(p, &p->operands[1], STITCH__U32, 32);
    if (ptx_refused(p))
        return !p->failed;
    return emit(p, stitch__exec_movmatrix, &m, list, 2, 1) != NULL;
}

/* Elements of one lane, and registers that hold them. */
static bool counts_fit(const stitch__matrix *m)
{
    uint32_t a = (uint32_t)m->m * m->k * m->bits_a, b = (uint32_t)m->k * m->n * m->bits_b;
    uint32_t wide_a = m->bits_a == 64 ? 64 : 32, wide_b = m->bits_b == 64 ? 64 : 32;
    uint32_t cb = m->c == STITCH__F16   ? 16
                  : m->c == STITCH__F64 ? 64
                                        : 32,
             db = m->d == STITCH__F16   ? 16
                  : m->d == STITCH__F64 ? 64
                                        : 32;
    uint32_t cn = (uint32_t)m->m * m->n * cb / 32 / (cb == 64 ? 64 : 32),
             dn = (uint32_t)m->m * m->n * db / 32 / (db == 64 ? 64 : 32);
    return a / 32 / wide_a == m->na && b / 32 / wide_b == m->nb && cn == m->nc && dn == m->nd;
}

static bool mma_supported(const stitch__mma *mma)
{
    static const uint64_t zero[16 * 256];
    uint64_t d[64 * 8] = {0};
    if (mma->m > 16 || mma->n > 8 || mma->k > STITCH__MMA_MAX_K)
        return false;
    return stitch__mma_run(mma, d, zero, zero, zero);
}

static bool dec_mma(ptx_parser *p)
{
    stitch__matrix m = {0};
    uint32_t list[PTX_MAX_SUB], n = 0;
    ptx_mod(p, "sync");
    ptx_mod(p, "aligned");
    bool known = shape(p, &m);
    bool row = ptx_mod(p, "row"), col = ptx_mod(p, "col");
    m.satfinite = ptx_mod(p, "satfinite");
    const mat_type *d = element(p), *a = element(p), *b = element(p), *c = element(p);
    if (d && d->bits == 64)
        ptx_mod(p, "rn");
    if (!known || !row || !col || !d || !a || !b || !c || p->operand_count != 4 || m.k == 0 || m.k > STITCH__MMA_MAX_K)
        return ptx_refuse(p, "is not supported in this form");
    m.a = a->num;
    m.b = b->num;
    m.c = c->num;
    m.d = d->num;
    m.bits_a = a->bits;
    m.bits_b = b->bits;
    bool f64 = d->bits == 64;
    if (!((m.m == 16 && m.n == 8) || (m.m == 8 && m.n == 8 && !(a->bits == 16))))
        return ptx_refuse(p, "is not supported in this shape");
    if (!fragment(p, &p->operands[0], true, f64 ? 64 : 32, list, &n, &m.nd) ||
        !fragment(p, &p->operands[1], false, f64 ? 64 : 32, list, &n, &m.na) ||
        !fragment(p, &p->operands[2], false, f64 ? 64 : 32, list, &n, &m.nb) ||
        !fragment(p, &p->operands[3], false, f64 ? 64 : 32, list, &n, &m.nc))
        return ptx_refuse(p, "is not supported in this form");
    stitch__mma try = {
        .m = m.m, .n = m.n, .k = m.k, .a = m.a, .b = m.b, .c = m.c, .d = m.d, .exact = true, .satfinite = m.satfinite};
    if (!counts_fit(&m) || !mma_supported(&try))
        return ptx_refuse(p, "is not supported with these types");
    stitch__instr *in = emit(p, stitch__exec_mma, &m, list, n, m.nd);
    if (!in)
        return false;
    in->flops = 2u * m.m * m.n * m.k / 32;
    return true;
}

/* ---- wmma -------------------------------------------------------------------------------------------------------- */

static bool dec_wmma(ptx_parser *p)
{
    stitch__matrix m = {0};
    uint32_t list[PTX_MAX_SUB], n = 0;
    uint8_t regs = 0;
    bool load = ptx_mod(p, "load"), store = !load && ptx_mod(p, "store"), mma = !load && !store && ptx_mod(p, "mma");
    if (load || store) {
        static const char *const which[] = {"a", "b", "c", "d"};
        for (int i = 0; i < 4; i++)
            if (ptx_mod(p, which[i]))
                m.which = (uint8_t)which[i][0];
    }
    ptx_mod(p, "sync");
    ptx_mod(p, "aligned");
    if (mma) { /* alayout, blayout in order */
        for (uint32_t i = 0, seen = 0; i < p->mod_count && seen < 2; i++)
            if (ptx_word(&p->mods[i], "row") || ptx_word(&p->mods[i], "col")) {
                *(seen++ ? &m.b_col : &m.a_col) = p->mods[i].text[0] == 'c';
                p->mod_used |= UINT64_C(1) << i;
            }
        m.satfinite = ptx_mod(p, "satfinite");
        if (!shape(p, &m))
            return ptx_refuse(p, "is not supported in this form");
        const mat_type *t[4] = {element(p), element(p), element(p), element(p)};
        if (!t[0] || !t[1])
            return ptx_refuse(p, "is not supported with these types");
        if (!t[2]) { /* f16 inputs: only D and C are named */
            m.d = t[0]->num;
            m.c = t[1]->num;
            m.a = m.b = STITCH__F16;
            m.bits_a = m.bits_b = 16;
        } else if (t[3]) {
            m.d = t[0]->num;
            m.a = t[1]->num;
            m.b = t[2]->num;
            m.c = t[3]->num;
            m.bits_a = t[1]->bits;
            m.bits_b = t[2]->bits;
        } else {
            return ptx_refuse(p, "is not supported with these types");
        }
        uint32_t bits = m.d == STITCH__F64 ? 64 : 32;
        if (bits == 64)
            ptx_mod(p, "rn");
        if (p->operand_count != 4 || !fragment(p, &p->operands[0], true, bits, list, &n, &m.nd) ||
            !fragment(p, &p->operands[1], false, bits, list, &n, &m.na) ||
            !fragment(p, &p->operands[2], false, bits, list, &n, &m.nb) ||
            !fragment(p, &p->operands[3], false, bits, list, &n, &m.nc) || m.m * m.k > 512 || m.m * m.n > 256 ||
            m.n * m.k > 512)
            return ptx_refuse(p, "is not supported in this form");
        stitch__instr *in = emit(p, stitch__exec_wmma_mma, &m, list, n, m.nd);
        if (in)
            in->flops = 2u * m.m * m.n * m.k / 32;
        return in != NULL;
    }
    m.d_col = ptx_mod(p, "col");
    if (!m.d_col && !ptx_mod(p, "row"))
        return ptx_refuse(p, "is not supported in this form");
    if (!m.which || !shape(p, &m))
        return ptx_refuse(p, "is not supported in this form");
    stitch__sim_space space = ptx_space(p);
    const mat_type *t = element(p);
    if (!t || p->operand_count < 2 || p->operand_count > 3)
        return ptx_refuse(p, "is not supported with this type");
    m.a = t->num;
    m.bits_a = t->bits;
    uint32_t bits = t->bits == 64 ? 64 : 32;
    uint32_t address = ptx_address64(p, &p->operands[load ? 1 : 0], space);
    uint32_t stride = p->operand_count == 3 ? ptx_src(p, &p->operands[2], STITCH__U32, 32) : 0;
    if (!load) {
        list[n++] = address;
        list[n++] = stride;
    }
    if (!fragment(p, &p->operands[load ? 0 : 1], load, bits, list, &n, &regs) || t->bits < 8 || m.m * m.n > 256 ||
        m.m * m.k > 512 || m.n * m.k > 512)
        return ptx_refuse(p, "is not supported in this form");
    if (load) {
        list[n++] = address;
        list[n++] = stride;
    }
    m.nd = regs;
    stitch__instr *in = emit(p, load ? stitch__exec_wmma_load : stitch__exec_wmma_store, &m, list, n, load ? regs : 0);
    if (!in)
        return false;
    in->space = (uint8_t)space;
    in->cls = space == STITCH__SIM_SHARED ? STITCH__SIM_CLASS_SHARED : STITCH__SIM_CLASS_GLOBAL;
    in->sub = p->operand_count == 3;
    ptx_note_access(p, space, t->bits / 8, false);
    return true;
}

/* ---- wgmma ------------------------------------------------------------------------------------------------------- */

static bool dec_wgmma(ptx_parser *p)
{
    stitch__matrix m = {0};
    uint32_t list[PTX_MAX_SUB], n = 0;
    uint8_t regs = 0;
    bool fence = ptx_mod(p, "fence"), commit = !fence && ptx_mod(p, "commit_group");
    if (fence || commit || ptx_mod(p, "wait_group")) {
        ptx_mod(p, "sync");
        ptx_mod(p, "aligned");
        if (!fence && !commit && (p->operand_count != 1 || p->operands[0].kind != PTX_O_INT))
            return ptx_refuse(p, "needs a constant");
        stitch__instr *sync = emit(p, stitch__exec_wgmma_sync, &m, list, 0, 0);
        if (!sync)
            return false;
        sync->sub = fence ? STITCH__WGMMA_FENCE : commit ? STITCH__WGMMA_COMMIT : STITCH__WGMMA_WAIT;
        sync->imm = fence || commit ? 0 : (int64_t)(p->operands[0].value > 1000 ? 1000 : p->operands[0].value);
        return true;
    }
    if (!ptx_mod(p, "mma_async"))
        return ptx_refuse(p, "is not supported");
    ptx_mod(p, "sync");
    ptx_mod(p, "aligned");
    m.satfinite = ptx_mod(p, "satfinite");
    bool known = shape(p, &m);
    const mat_type *d = element(p), *a = element(p), *b = element(p);
    if (!known || m.m != 64 || m.n > 256 || m.n % 8 || !d || !a || !b || p->operand_count < 4)
        return ptx_refuse(p, "is not supported in this form");
    m.d = m.c = d->num;
    m.a = a->num;
    m.b = b->num;
    m.bits_a = a->bits;
    m.bits_b = b->bits;
    m.scale_a = m.scale_b = 1;
    if (!fragment(p, &p->operands[0], true, 32, list, &n, &m.nd))
        return ptx_refuse(p, "is not supported in this form");
    if (m.nd != m.n / 8 * (m.d == STITCH__F16 ? 2 : 4) || m.k * m.bits_a != 256)
        return ptx_refuse(p, "has a wrong number of registers");
    memcpy(&list[n], list, m.nd * sizeof(uint32_t)); /* the accumulators are read, too */
    n += m.nd;
    m.a_smem = p->operands[1].kind != PTX_O_VEC;
    if (!fragment(p, &p->operands[1], false, m.a_smem ? 64 : 32, list, &n, &m.na) || (!m.a_smem && m.na != 4) ||
        !fragment(p, &p->operands[2], false, 64, list, &n, &regs))
        return ptx_refuse(p, "is not supported in this form");
    list[n++] = ptx_src_pred(p, &p->operands[3]);
    uint32_t at = 4;
    if (p->operand_count >= at + 2 && m.d != STITCH__S32) {
        m.scale_a = (uint8_t)p->operands[at].value;
        m.scale_b = (uint8_t)p->operands[at + 1].value;
        at += 2;
    }
    if (m.bits_a == 16) {
        if (m.a_smem && at < p->operand_count)
            m.trans_a = p->operands[at++].value != 0;
        if (at < p->operand_count)
            m.trans_b = p->operands[at++].value != 0;
    }
    if (at != p->operand_count)
        return ptx_refuse(p, "is not supported in this form");
    stitch__mma try = {
        .m = 16, .n = 8, .k = m.k, .a = m.a, .b = m.b, .c = m.d, .d = m.d, .exact = true, .satfinite = m.satfinite};
    if (ptx_refused(p) || !mma_supported(&try))
        return ptx_refuse(p, "is not supported with these types");
    stitch__instr *in = emit(p, stitch__exec_wgmma, &m, list, n, m.nd);
    if (!in)
        return false;
    in->flops = 2u * 16 * m.n * m.k / 32;
    ptx_note_access(p, STITCH__SIM_SHARED, 16, false);
    return true;
}

bool ptx_dec_matrix(ptx_parser *p, int op)
{
    switch (op) {
    case OP4('l', 'd', 'm', 0): return dec_ldmatrix(p, true);
    case OP4('s', 't', 'm', 0): return dec_ldmatrix(p, false);
    case OP4('m', 'o', 'v', 0): return dec_movmatrix(p);
    case OP4('m', 'm', 'a', 0): return dec_mma(p);
    case OP4('w', 'm', 'm', 0): return dec_wmma(p);
    default: return dec_wgmma(p);
    }
}
