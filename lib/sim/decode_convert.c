/* SPDX-License-Identifier: MIT
 *
 * Decoding of conversion, comparison and move instructions.
 */
#include "sim/alu.h"
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

/* ---- cvt --------------------------------------------------------------------------------------------------------- */

static uint32_t cvt_source(ptx_parser *p, const ptx_operand *o, stitch__num type)
{
    uint32_t bits = ptx_num_bits(type);
    if (o->kind == PTX_O_REG && o->bank == STITCH__BANK_64 && bits < 64) {
        uint32_t t = ptx_vreg(p, STITCH__BANK_32);
        if (!ptx_emit_alu(p, STITCH__ALU_LOW32, t, o->reg | STITCH__OPD_REG, 0, 0))
            return 0;
        return t;
    }
    return ptx_src(p, o, type, bits);
}

/* Integers that need no saturation are plain extensions of the source. */
static int cvt_plain(stitch__num dst, stitch__num src)
{
    uint32_t db = ptx_num_bits(dst), sb = ptx_num_bits(src), bits = db < sb ? db : sb;
    bool s = db > sb ? ptx_num_signed(src) : ptx_num_signed(dst);
    if (sb == 64)
        return db == 64 ? -1 : db == 32 ? STITCH__ALU_LOW32 : -1;
    if (db == 64)
        return sb == 32   ? (s ? STITCH__ALU_SX32_64 : STITCH__ALU_ZX32_64)
               : sb == 16 ? (s ? STITCH__ALU_SX16_64 : STITCH__ALU_ZX16_64)
                          : (s ? STITCH__ALU_SX8_64 : STITCH__ALU_ZX8_64);
    if (bits == 8)
        return s ? STITCH__ALU_SX8 : STITCH__ALU_ZX8;
    if (bits == 16)
        return s ? STITCH__ALU_SX16 : STITCH__ALU_ZX16;
    return -1;
}

static bool is_int(stitch__num t)
{
    return t >= STITCH__U8 && t <= STITCH__S64;
}

bool ptx_dec_cvt(ptx_parser *p, int op)
{
    stitch__arith_cvt c = {0};
    if (ptx_mod(p, "rni") || ptx_mod(p, "rzi") || ptx_mod(p, "rmi") || ptx_mod(p, "rpi")) {
        c.integer = true;
        for (uint32_t i = 0; i < p->mod_count; i++)
            if (p->mods[i].len == 3 && p->mods[i].text[0] == 'r' && p->mods[i].text[2] == 'i')
                c.round = p->mods[i].text[1] == 'n'   ? STITCH__RN
                          : p->mods[i].text[1] == 'z' ? STITCH__RZ
                          : p->mods[i].text[1] == 'm' ? STITCH__RM
                                                      : STITCH__RP;
    } else if (ptx_mod(p, "rna")) {
        c.round = STITCH__RNA;
    } else {
        c.round = (uint8_t)ptx_round(p);
    }
    c.flags = ptx_flags(p);
    ptx_mod(p, "pack");
    c.dst = (uint8_t)ptx_type(p);
    c.src = (uint8_t)ptx_type(p);
    if (c.dst == STITCH__NUM_NONE || c.src == STITCH__NUM_NONE)
        return ptx_refuse(p, "has a type that is not supported");
    bool two = c.src == STITCH__F32 && (c.dst == STITCH__F16X2 || c.dst == STITCH__BF16X2 || c.dst == STITCH__E4M3X2 ||
                                        c.dst == STITCH__E5M2X2);
    if (p->operand_count != (two ? 3u : 2u))
        return ptx_refuse(p, "is not supported with this number of operands");
    stitch__lanes_fn fn = NULL;
    int plain = is_int(c.dst) && is_int(c.src) && !(c.flags & STITCH__SAT) ? cvt_plain(c.dst, c.src) : -1;
    if (plain >= 0)
        fn = stitch__alu_lanes((stitch__alu)plain);
    else
        fn = stitch__arith_lanes_cvt(&c);
    if (!fn)
        return ptx_refuse(p, "is not supported in this combination of types and modifiers");
    uint32_t a = cvt_source(p, &p->operands[1], c.src), b = two ? cvt_source(p, &p->operands[2], c.src) : 0;
    uint32_t dbits = ptx_num_bits(c.dst);
    const ptx_operand *d = &p->operands[0];
    stitch__sim_class cls = STITCH__SIM_CLASS_CONVERT;
    if (d->kind == PTX_O_REG && d->bank == STITCH__BANK_64 && dbits < 64) {
        uint32_t t = ptx_vreg(p, STITCH__BANK_32);
        return ptx_emit_lanes(p, fn, t, a, b, 0, cls, 0) &&
               ptx_emit_alu(p, ptx_num_signed(c.dst) ? STITCH__ALU_SX32_64 : STITCH__ALU_ZX32_64,
                            d->reg | STITCH__OPD_REG, t, 0, 0);
    }
    return ptx_emit_lanes(p, fn, ptx_dst(p, d, dbits), a, b, 0, cls, 0);
}

/* ---- comparisons ------------------------------------------------------------------------------------------------- */

static int cmp_mod(ptx_parser *p)
{
    static const struct {
        const char *name;
        uint8_t cmp;
    } table[] = {{"eq", STITCH__EQ},   {"ne", STITCH__NE},    {"lt", STITCH__LT},   {"le", STITCH__LE},
                 {"gt", STITCH__GT},   {"ge", STITCH__GE},    {"lo", STITCH__LT},   {"ls", STITCH__LE},
                 {"hi", STITCH__GT},   {"hs", STITCH__GE},    {"equ", STITCH__EQU}, {"neu", STITCH__NEU},
                 {"ltu", STITCH__LTU}, {"leu", STITCH__LEU},  {"gtu", STITCH__GTU}, {"geu", STITCH__GEU},
                 {"num", STITCH__NUM}, {"nan", STITCH__ISNAN}};
    for (size_t i = 0; i < STITCH__COUNT(table); i++)
        if (ptx_mod(p, table[i].name))
            return table[i].cmp;
    return -1;
}

static uint8_t bool_mod(ptx_parser *p)
{
    return ptx_mod(p, "and")   ? STITCH__BOOL_AND
           : ptx_mod(p, "or")  ? STITCH__BOOL_OR
           : ptx_mod(p, "xor") ? STITCH__BOOL_XOR
                               : STITCH__BOOL_NONE;
}

static bool dec_setp(ptx_parser *p)
{
    int cmp = cmp_mod(p);
    uint8_t logic = bool_mod(p);
    bool ftz = ptx_mod(p, "ftz");
    stitch__num t = ptx_type(p);
    if (cmp < 0 || t == STITCH__NUM_NONE || p->operand_count != (logic ? 4u : 3u))
        return ptx_refuse(p, "is not supported in this form");
    stitch__cmp_fn fn = stitch__arith_lanes_cmp(t, (stitch__cmp)cmp, ftz);
    if (!fn)
        return ptx_refuse(p, "is not supported for this type");
    uint32_t bits = ptx_num_bits(t);
    uint32_t a = ptx_src(p, &p->operands[1], t, bits), b = ptx_src(p, &p->operands[2], t, bits);
    uint32_t c = logic ? ptx_src_pred(p, &p->operands[3]) : 0;
    const ptx_operand *first = &p->operands[0], *second = first->pair >= 0 ? &p->sub[first->pair] : NULL;
    uint32_t d = ptx_dst(p, first, 1), q = second ? ptx_dst(p, second, 1) : 0;
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_SETP;
    in->u.cmp = fn;
    in->sub = logic;
    in->sub2 = t == STITCH__F16X2 || t == STITCH__BF16X2;
    PTX_OPERANDS(in, 2, d, q, a, b, c);
    in->cls = (uint8_t)ptx_class(t);
    return true;
}

static bool dec_set(ptx_parser *p)
{
    int cmp = cmp_mod(p);
    uint8_t logic = bool_mod(p);
    bool ftz = ptx_mod(p, "ftz");
    stitch__num dt = ptx_type(p), t = ptx_type(p);
    if (cmp < 0 || t == STITCH__NUM_NONE || ptx_num_bits(dt) == 64 || p->operand_count != (logic ? 4u : 3u))
        return ptx_refuse(p, "is not supported in this form");
    stitch__cmp_fn fn = stitch__arith_lanes_cmp(t, (stitch__cmp)cmp, ftz);
    if (!fn)
        return ptx_refuse(p, "is not supported for this type");
    uint32_t bits = ptx_num_bits(t);
    uint32_t a = ptx_src(p, &p->operands[1], t, bits), b = ptx_src(p, &p->operands[2], t, bits);
    uint32_t c = logic ? ptx_src_pred(p, &p->operands[3]) : 0, d = ptx_dst(p, &p->operands[0], ptx_num_bits(dt));
    if (ptx_refused(p))
        return !p->failed;
    stitch__cmp_fn *keep = stitch__arena_alloc(&p->m->arena, sizeof(*keep));
    stitch__instr *in = keep ? ptx_emit(p) : NULL;
    if (!in)
        return keep ? false : ptx_nomem(p);
    *keep = fn;
    in->op = STITCH__OP_FN;
    in->u.fn = stitch__exec_set;
    in->data = keep;
    in->sub = logic;
    in->sub2 = (uint8_t)dt;
    in->vec = t == STITCH__F16X2 || t == STITCH__BF16X2 ? 2 : 1;
    PTX_OPERANDS(in, 1, d, a, b, c);
    in->cls = (uint8_t)ptx_class(t);
    return true;
}

static bool dec_selp(ptx_parser *p)
{
    stitch__num t = ptx_type(p);
    if (t == STITCH__NUM_NONE || p->operand_count != 4)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t bits = ptx_num_bits(t);
    const ptx_operand *q = &p->operands[3];
    uint32_t a = ptx_src(p, &p->operands[1], t, bits), b = ptx_src(p, &p->operands[2], t, bits);
    ptx_operand plain = *q;
    plain.negated = false;
    uint32_t c = ptx_src_pred(p, &plain), d = ptx_dst(p, &p->operands[0], bits);
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = bits == 64 ? STITCH__OP_SELP64 : STITCH__OP_SELP32;
    PTX_OPERANDS(in, 1, d, q->negated ? b : a, q->negated ? a : b, c);
    in->cls = STITCH__SIM_CLASS_MOVE;
    return true;
}

static bool dec_testp(ptx_parser *p)
{
    static const char *const names[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    int test = -1;
    for (int i = 0; i < 6; i++)
        if (ptx_mod(p, names[i]))
            test = i;
    stitch__num t = ptx_type(p);
    if (test < 0 || (t != STITCH__F32 && t != STITCH__F64) || p->operand_count != 2)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t a = ptx_src(p, &p->operands[1], t, ptx_num_bits(t)), d = ptx_dst(p, &p->operands[0], 1);
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_testp, ptx_class(t));
    if (!in)
        return !p->failed;
    in->sub = (uint8_t)test;
    in->sub2 = (uint8_t)t;
    PTX_OPERANDS(in, 1, d, a);
    return true;
}

static bool dec_slct(ptx_parser *p)
{
    bool ftz = ptx_mod(p, "ftz");
    stitch__num t = ptx_type(p), ct = ptx_type(p);
    if (t == STITCH__NUM_NONE || (ct != STITCH__S32 && ct != STITCH__F32) || (ftz && ct != STITCH__F32) ||
        p->operand_count != 4)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t bits = ptx_num_bits(t);
    uint32_t a = ptx_src(p, &p->operands[1], t, bits), b = ptx_src(p, &p->operands[2], t, bits);
    bool w = bits == 64;
    stitch__alu fn = ct == STITCH__S32 ? (w ? STITCH__ALU_CMOV64 : STITCH__ALU_CMOV32)
                     : ftz             ? (w ? STITCH__ALU_FCMOV64_FTZ : STITCH__ALU_FCMOV32_FTZ)
                                       : (w ? STITCH__ALU_FCMOV64 : STITCH__ALU_FCMOV32);
    return ptx_emit_alu(p, fn, ptx_dst(p, &p->operands[0], bits), a, b, ptx_src(p, &p->operands[3], ct, 32));
}

bool ptx_dec_compare(ptx_parser *p, int op)
{
    switch (op) {
    case OP4('s', 'e', 't', 'p'): return dec_setp(p);
    case OP4('s', 'e', 't', 0): return dec_set(p);
    case OP4('s', 'e', 'l', 'p'): return dec_selp(p);
    case OP4('t', 's', 't', 'p'): return dec_testp(p);
    default: return dec_slct(p);
    }
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

static bool emit_mov(ptx_parser *p, uint32_t d, uint32_t a, bool wide)
{
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = wide ? STITCH__OP_MOV64 : STITCH__OP_MOV32;
    PTX_OPERANDS(in, 1, d, a);
    in->cls = STITCH__SIM_CLASS_MOVE;
    return true;
}

static bool emit_fn1(ptx_parser *p, stitch__exec_fn fn, uint32_t d, uint32_t a, uint32_t b, uint8_t sub, uint8_t size,
                     int64_t imm)
{
    stitch__instr *in = ptx_emit_fn(p, fn, STITCH__SIM_CLASS_MOVE);
    if (!in)
        return !p->failed;
    PTX_OPERANDS(in, 1, d, a, b);
    in->sub = sub;
    in->size = size;
    in->imm = imm;
    return true;
}

/* mov.b64 d, {a, b} and the like. */
static bool mov_pack(ptx_parser *p, uint32_t bits)
{
    const ptx_operand *v = &p->operands[1];
    uint32_t n = v->count, each = n ? bits / n : 0, e[4];
    if ((n != 2 && n != 4) || each < 8)
        return ptx_refuse(p, "is not supported in this form");
    for (uint32_t i = 0; i < n; i++) {
        const ptx_operand *o = &p->sub[v->first + i];
        e[i] = ptx_src(p, o, STITCH__U32, each == 8 ? 16 : each);
    }
    uint32_t d = ptx_dst(p, &p->operands[0], bits);
    if (ptx_refused(p))
        return !p->failed;
    if (n == 2)
        return ptx_emit_alu(p,
                            each == 32   ? STITCH__ALU_PACK32
                            : each == 16 ? STITCH__ALU_PACK16
                                         : STITCH__ALU_PACK8,
                            d, e[0], e[1], 0);
    uint32_t lo = ptx_vreg(p, STITCH__BANK_32), hi = ptx_vreg(p, STITCH__BANK_32);
    stitch__alu half = each == 16 ? STITCH__ALU_PACK16 : STITCH__ALU_PACK8;
    return ptx_emit_alu(p, half, lo, e[0], e[1], 0) && ptx_emit_alu(p, half, hi, e[2], e[3], 0) &&
           ptx_emit_alu(p, each == 16 ? STITCH__ALU_PACK32 : STITCH__ALU_PACK16, d, lo, hi, 0);
}

static bool mov_unpack(ptx_parser *p, uint32_t bits)
{
    const ptx_operand *v = &p->operands[0];
    uint32_t n = v->count, each = n ? bits / n : 0;
    if ((n != 2 && n != 4) || each < 8)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t a = ptx_src(p, &p->operands[1], bits == 64 ? STITCH__U64 : STITCH__U32, bits);
    uint32_t whole[2] = {a, 0};
    if (bits == 64) {
        /* The source may be overwritten by the first result only if their banks agree, which they do not. */
        whole[0] = ptx_vreg(p, STITCH__BANK_32);
        whole[1] = ptx_vreg(p, STITCH__BANK_32);
        if (!ptx_emit_alu(p, STITCH__ALU_LOW32, whole[0], a, 0, 0) ||
            !ptx_emit_alu(p, STITCH__ALU_HIGH32, whole[1], a, 0, 0))
            return false;
    } else {
        whole[0] = ptx_vreg(p, STITCH__BANK_32);
        if (!emit_mov(p, whole[0], a, false))
            return false;
    }
    uint32_t sh8 = each == 8 ? ptx_const(p, 8, false) : 0;
    for (uint32_t i = 0; i < n && !ptx_refused(p); i++) {
        const ptx_operand *o = &p->sub[v->first + i];
        if (o->kind == PTX_O_SINK)
            continue;
        uint32_t from = whole[each * i / 32], shift = each * i % 32, d = ptx_dst(p, o, each == 8 ? 16 : each);
        bool ok;
        if (each == 32) {
            ok = emit_mov(p, d, from, false);
        } else if (each == 16) {
            ok = ptx_emit_alu(p, shift ? STITCH__ALU_HIGH16 : STITCH__ALU_ZX16, d, from, 0, 0);
        } else {
            ok = ptx_emit_alu(p, STITCH__ALU_BFE_U32, d, from, ptx_const(p, shift, false), sh8);
        }
        if (!ok)
            return false;
    }
    return !p->failed;
}

static bool dec_mov(ptx_parser *p)
{
    if (p->operand_count != 2)
        return ptx_refuse(p, "has a wrong number of operands");
    if (ptx_mod(p, "pred"))
        return ptx_emit_pred(p, STITCH__BOOL_MOV);
    stitch__num t = ptx_type(p);
    if (t == STITCH__NUM_NONE)
        return ptx_refuse(p, "is not supported for this type");
    uint32_t bits = ptx_num_bits(t);
    const ptx_operand *d = &p->operands[0], *a = &p->operands[1];
    if (a->kind == PTX_O_VEC)
        return mov_pack(p, bits);
    if (d->kind == PTX_O_VEC)
        return mov_unpack(p, bits);
    if (a->kind == PTX_O_SREG && a->reg >= STITCH__SREG_COUNT) {
        bool wide = a->reg == STITCH__SREG_CLOCK64 || a->reg == STITCH__SREG_GLOBALTIMER;
        return emit_fn1(p, stitch__exec_clock, ptx_dst(p, d, wide ? 64 : 32), 0, 0,
                        (uint8_t)(a->reg - STITCH__SREG_COUNT), 0, 0);
    }
    if (a->kind == PTX_O_SREG && bits == 64) {
        uint32_t dst = ptx_dst(p, d, 64);
        return ptx_emit_alu(p, STITCH__ALU_ZX32_64, dst, a->reg | STITCH__OPD_SREG, 0, 0);
    }
    if (a->kind == PTX_O_SYM && a->symbol->kind == PTX_SYM_LOCAL)
        return emit_fn1(p, stitch__exec_localaddr, ptx_dst(p, d, bits), 0, 0, 0, (uint8_t)(bits / 8),
                        (int64_t)a->symbol->index + a->imm);
    if (a->kind == PTX_O_SYM && a->symbol->kind == PTX_SYM_PARAM)
        return emit_mov(p, ptx_dst(p, d, bits), ptx_const(p, a->symbol->index + (uint64_t)a->imm, bits == 64),
                        bits == 64);
    if (a->kind == PTX_O_SYM && a->symbol->kind == PTX_SYM_FUNC && bits == 64) {
        stitch__sim_function *f = p->f;
        if (stitch__grow(p->m->ctx, &f->callees, &f->callee_cap, f->callee_count + 1, sizeof(*f->callees)))
            return ptx_nomem(p);
        f->callees[f->callee_count++] = a->symbol->index;
        p->m->functions[a->symbol->index]->address_taken = true;
        return emit_mov(p, ptx_dst(p, d, 64),
                        ptx_const(p, STITCH__SIM_FUNC_WINDOW + 16 * (uint64_t)a->symbol->index, true), true);
    }
    return emit_mov(p, ptx_dst(p, d, bits), ptx_src(p, a, t, bits), bits == 64);
}

static bool dec_cvta(ptx_parser *p)
{
    bool to = ptx_mod(p, "to");
    stitch__sim_space space = ptx_space(p);
    stitch__num t = ptx_type(p);
    if ((t != STITCH__U64 && t != STITCH__U32) || p->operand_count != 2)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t bits = ptx_num_bits(t), d = ptx_dst(p, &p->operands[0], bits), a;
    const ptx_operand *o = &p->operands[1];
    uint64_t window = space == STITCH__SIM_SHARED  ? STITCH__SIM_SHARED_WINDOW
                      : space == STITCH__SIM_LOCAL ? STITCH__SIM_LOCAL_WINDOW
                      : space == STITCH__SIM_PARAM ? STITCH__SIM_PARAM_WINDOW
                                                   : 0;
    if (o->kind == PTX_O_SYM && o->symbol->kind == PTX_SYM_LOCAL) {
        uint32_t v = ptx_vreg(p, STITCH__BANK_64);
        if (!emit_fn1(p, stitch__exec_localaddr, v, 0, 0, 0, 8, (int64_t)o->symbol->index + o->imm))
            return false;
        a = v;
    } else if (o->kind == PTX_O_SYM && o->symbol->kind == PTX_SYM_PARAM) {
        a = ptx_const(p, o->symbol->index + (uint64_t)o->imm, true);
    } else {
        a = ptx_src(p, o, t, bits);
    }
    if (!window)
        return emit_mov(p, d, a, bits == 64);
    if (bits != 64)
        return ptx_refuse(p, "is not supported for 32-bit addresses");
    return ptx_emit_alu(p, STITCH__ALU_ADD64, d, a, ptx_const(p, to ? 0 - window : window, true), 0);
}

bool ptx_dec_move(ptx_parser *p, int op)
{
    switch (op) {
    case OP4('m', 'o', 'v', 0): return dec_mov(p);
    case OP4('c', 'v', 't', 'a'): return dec_cvta(p);
    case OP4('i', 's', 's', 'p'): {
        stitch__sim_space space = ptx_space(p);
        if (p->operand_count != 2)
            return ptx_refuse(p, "has a wrong number of operands");
        return emit_fn1(p, stitch__exec_isspacep, ptx_dst(p, &p->operands[0], 1),
                        ptx_src(p, &p->operands[1], STITCH__U64, 64), 0, (uint8_t)space, 0, 0);
    }
    default: {
        stitch__sim_space space = ptx_space(p);
        stitch__num t = ptx_type(p);
        bool mapa = op == OP4('m', 'a', 'p', 'a');
        uint32_t bits = ptx_num_bits(t);
        if (p->operand_count != (mapa ? 3u : 2u) || t == STITCH__NUM_NONE)
            return ptx_refuse(p, "has a wrong number of operands");
        uint32_t a = ptx_src(p, &p->operands[1], t, bits);
        uint32_t b = mapa ? ptx_src(p, &p->operands[2], STITCH__U32, 32) : 0;
        return emit_fn1(p, mapa ? stitch__exec_mapa : stitch__exec_getctarank,
                        ptx_dst(p, &p->operands[0], mapa ? bits : 32), a, b, (uint8_t)space, (uint8_t)(bits / 8), 0);
    }
    }
}
