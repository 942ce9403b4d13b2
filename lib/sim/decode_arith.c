/* SPDX-License-Identifier: MIT
 *
 * Decoding of arithmetic, logic and bit instructions.
 */
#include "sim/alu.h"
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

stitch__sim_class ptx_class(stitch__num t)
{
    switch (t) {
    case STITCH__F32:
    case STITCH__F32X2: return STITCH__SIM_CLASS_FP32;
    case STITCH__F64: return STITCH__SIM_CLASS_FP64;
    case STITCH__F16:
    case STITCH__BF16:
    case STITCH__F16X2:
    case STITCH__BF16X2: return STITCH__SIM_CLASS_FP16;
    default: return STITCH__SIM_CLASS_INT;
    }
}

bool ptx_emit_lanes(ptx_parser *p, stitch__lanes_fn fn, uint32_t d, uint32_t a, uint32_t b, uint32_t c,
                    stitch__sim_class cls, uint32_t flops)
{
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_LANES;
    in->u.lanes = fn;
    PTX_OPERANDS(in, 1, d, a, b, c);
    in->cls = (uint8_t)cls;
    in->flops = flops;
    return true;
}

bool ptx_emit_alu(ptx_parser *p, stitch__alu op, uint32_t d, uint32_t a, uint32_t b, uint32_t c)
{
    return ptx_emit_lanes(p, stitch__alu_lanes(op), d, a, b, c, STITCH__SIM_CLASS_INT, 0);
}

stitch__round ptx_round(ptx_parser *p)
{
    if (ptx_mod(p, "rz"))
        return STITCH__RZ;
    if (ptx_mod(p, "rm"))
        return STITCH__RM;
    if (ptx_mod(p, "rp"))
        return STITCH__RP;
    ptx_mod(p, "rn");
    return STITCH__RN;
}

uint8_t ptx_flags(ptx_parser *p)
{
    uint8_t flags = 0;
    if (ptx_mod(p, "ftz"))
        flags |= STITCH__FTZ;
    if (ptx_mod(p, "sat"))
        flags |= STITCH__SAT;
    if (ptx_mod(p, "relu"))
        flags |= STITCH__RELU;
    if (ptx_mod(p, "NaN"))
        flags |= STITCH__NAN;
    if (ptx_mod(p, "satfinite"))
        flags |= STITCH__SATFINITE;
    if (ptx_mod(p, "xorsign")) {
        ptx_mod(p, "abs");
        flags |= STITCH__XORSIGN_ABS;
    }
    return flags;
}

static bool emit_float(ptx_parser *p, stitch__arith_op op, uint32_t args)
{
    uint32_t bits = ptx_num_bits(op.type);
    if (p->operand_count != args + 1)
        return ptx_refuse(p, "has a wrong number of operands");
    stitch__lanes_fn fn = stitch__arith_lanes(&op);
    if (!fn)
        return ptx_refuse(p, "is not supported in this combination of modifiers");
    uint32_t v[3] = {0};
    for (uint32_t i = 0; i < args && i < 3; i++)
        v[i] = ptx_src(p, &p->operands[i + 1], op.type, bits);
    uint32_t d = ptx_dst(p, &p->operands[0], bits);
    bool two = op.type == STITCH__F16X2 || op.type == STITCH__BF16X2 || op.type == STITCH__F32X2;
    bool sfu = (op.op >= STITCH__DIV_APPROX && op.op <= STITCH__TANH_APPROX) || op.op == STITCH__DIV;
    bool work = op.op <= STITCH__TANH_APPROX;
    return ptx_emit_lanes(p, fn, d, v[0], v[1], v[2], sfu ? STITCH__SIM_CLASS_SFU : ptx_class(op.type),
                          work ? (op.op == STITCH__FMA ? 2u : 1u) << two : 0);
}

static bool float_arith(ptx_parser *p, int op, stitch__num type)
{
    stitch__arith_op a = {.type = (uint8_t)type};
    a.round = (uint8_t)ptx_round(p);
    a.flags = ptx_flags(p);
    uint32_t args = 2;
    switch (op) {
    case OP4('a', 'd', 'd', 0): a.op = STITCH__ADD; break;
    case OP4('s', 'u', 'b', 0): a.op = STITCH__SUB; break;
    case OP4('m', 'u', 'l', 0): a.op = STITCH__MUL; break;
    case OP4('m', 'a', 'd', 0):
    case OP4('f', 'm', 'a', 0):
        a.op = STITCH__FMA;
        args = 3;
        break;
    case OP4('d', 'i', 'v', 0):
        a.op = ptx_mod(p, "approx") ? STITCH__DIV_APPROX : ptx_mod(p, "full") ? STITCH__DIV_FULL : STITCH__DIV;
        break;
    case OP4('m', 'i', 'n', 0): a.op = STITCH__MIN; break;
    case OP4('m', 'a', 'x', 0): a.op = STITCH__MAX; break;
    case OP4('n', 'e', 'g', 0):
        a.op = STITCH__NEG;
        args = 1;
        break;
    case OP4('a', 'b', 's', 0):
        a.op = STITCH__ABS;
        args = 1;
        break;
    default: return ptx_refuse(p, "is not supported for this type");
    }
    if ((a.op == STITCH__MIN || a.op == STITCH__MAX) && p->operand_count == 4) {
        args = 3;
        a.args = 3;
    }
    return emit_float(p, a, args);
}

static bool carry_arith(ptx_parser *p, int op, stitch__num type)
{
    bool out = ptx_mod(p, "cc");
    bool in_carry = op == OP4('a', 'd', 'd', 'c') || op == OP4('s', 'u', 'b', 'c') || op == OP4('m', 'a', 'd', 'c');
    bool mad = op == OP4('m', 'a', 'd', 0) || op == OP4('m', 'a', 'd', 'c');
    bool sub = op == OP4('s', 'u', 'b', 0) || op == OP4('s', 'u', 'b', 'c');
    bool hi = mad && ptx_mod(p, "hi");
    if (mad && !hi)
        ptx_mod(p, "lo");
    uint32_t bits = ptx_num_bits(type);
    if (bits < 32 || p->operand_count != (mad ? 4u : 3u))
        return ptx_refuse(p, "is not supported in this form");
    if (!p->f->cc)
        p->f->cc = ptx_vreg(p, STITCH__BANK_PRED);
    uint32_t v[3] = {0};
    for (uint32_t i = 1; i < p->operand_count; i++)
        v[i - 1] = ptx_src(p, &p->operands[i], type, bits);
    uint32_t d = ptx_dst(p, &p->operands[0], bits);
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_carry, STITCH__SIM_CLASS_INT);
    if (!in)
        return !p->failed;
    in->sub = (uint8_t)(mad   ? hi ? STITCH__CARRY_MADHI : STITCH__CARRY_MADLO
                        : sub ? STITCH__CARRY_SUB
                              : STITCH__CARRY_ADD);
    in->size = (uint8_t)(bits / 8);
    in->flags |= ptx_num_signed(type) ? STITCH__IN_SIGNED : 0;
    in->ndef = 2;
    in->nops = 5;
    in->o[0] = d;
    in->o[1] = out ? p->f->cc : 0;
    memcpy(&in->o[2], v, sizeof(v));
    uint32_t *more = ptx_more(p, in, 1);
    if (!more)
        return false;
    more[0] = in_carry ? p->f->cc : 0;
    return true;
}

/* Picks by type: {u16, s16, u32, s32, u64, s64}. */
static int pick(stitch__num t, const int16_t table[6])
{
    switch (t) {
    case STITCH__U16: return table[0];
    case STITCH__S16: return table[1];
    case STITCH__U32: return table[2];
    case STITCH__S32: return table[3];
    case STITCH__U64: return table[4];
    case STITCH__S64: return table[5];
    default: return -1;
    }
}
#define ALU6(a, b, c, d, e, f)                                                                                         \
    ((const int16_t[6]){STITCH__ALU_##a, STITCH__ALU_##b, STITCH__ALU_##c, STITCH__ALU_##d, STITCH__ALU_##e,           \
                        STITCH__ALU_##f})

static int int_op(ptx_parser *p, int op, stitch__num t, bool *wide)
{
    bool lo = ptx_mod(p, "lo"), hi = !lo && ptx_mod(p, "hi");
    *wide = !lo && !hi && ptx_mod(p, "wide");
    bool sat = ptx_mod(p, "sat"), relu = ptx_mod(p, "relu");
    if (sat)
        return t != STITCH__S32              ? -1
               : op == OP4('a', 'd', 'd', 0) ? STITCH__ALU_ADDS32
               : op == OP4('s', 'u', 'b', 0) ? STITCH__ALU_SUBS32
                                             : -1;
    if (relu)
        return t != STITCH__S32              ? -1
               : op == OP4('m', 'i', 'n', 0) ? STITCH__ALU_MIN_S32_RELU
               : op == OP4('m', 'a', 'x', 0) ? STITCH__ALU_MAX_S32_RELU
                                             : -1;
    if (t == STITCH__U16X2 || t == STITCH__S16X2) {
        bool s = t == STITCH__S16X2;
        return op == OP4('a', 'd', 'd', 0)   ? STITCH__ALU_ADD16X2
               : op == OP4('m', 'i', 'n', 0) ? (s ? STITCH__ALU_MIN_S16X2 : STITCH__ALU_MIN_U16X2)
               : op == OP4('m', 'a', 'x', 0) ? (s ? STITCH__ALU_MAX_S16X2 : STITCH__ALU_MAX_U16X2)
                                             : -1;
    }
    switch (op) {
    case OP4('a', 'd', 'd', 0): return pick(t, ALU6(ADD16, ADD16, ADD32, ADD32, ADD64, ADD64));
    case OP4('s', 'u', 'b', 0): return pick(t, ALU6(SUB16, SUB16, SUB32, SUB32, SUB64, SUB64));
    case OP4('m', 'u', 'l', 0):
        if (*wide)
            return pick(t, (const int16_t[6]){STITCH__ALU_MULW_U16, STITCH__ALU_MULW_S16, STITCH__ALU_MULW_U32,
                                              STITCH__ALU_MULW_S32, -1, -1});
        if (hi)
            return pick(t, ALU6(MULHI_U16, MULHI_S16, MULHI_U32, MULHI_S32, MULHI_U64, MULHI_S64));
        return lo ? pick(t, ALU6(MUL16, MUL16, MUL32, MUL32, MUL64, MUL64)) : -1;
    case OP4('m', 'a', 'd', 0):
        if (*wide)
            return pick(t, (const int16_t[6]){STITCH__ALU_MADW_U16, STITCH__ALU_MADW_S16, STITCH__ALU_MADW_U32,
                                              STITCH__ALU_MADW_S32, -1, -1});
        if (hi)
            return pick(t, ALU6(MADHI_U16, MADHI_S16, MADHI_U32, MADHI_S32, MADHI_U64, MADHI_S64));
        return lo ? pick(t, ALU6(MAD16, MAD16, MAD32, MAD32, MAD64, MAD64)) : -1;
    case OP4('m', 'u', '2', '4'):
        return t == STITCH__U32   ? (hi ? STITCH__ALU_MUL24HI_U : STITCH__ALU_MUL24LO_U)
               : t == STITCH__S32 ? (hi ? STITCH__ALU_MUL24HI_S : STITCH__ALU_MUL24LO_S)
                                  : -1;
    case OP4('m', 'a', '2', '4'):
        return hi ? -1 : t == STITCH__U32 ? STITCH__ALU_MAD24LO_U : t == STITCH__S32 ? STITCH__ALU_MAD24LO_S : -1;
    case OP4('s', 'a', 'd', 0): return pick(t, ALU6(SAD_U16, SAD_S16, SAD_U32, SAD_S32, SAD_U64, SAD_S64));
    case OP4('d', 'i', 'v', 0): return pick(t, ALU6(DIV_U16, DIV_S16, DIV_U32, DIV_S32, DIV_U64, DIV_S64));
    case OP4('r', 'e', 'm', 0): return pick(t, ALU6(REM_U16, REM_S16, REM_U32, REM_S32, REM_U64, REM_S64));
    case OP4('a', 'b', 's', 0): return pick(t, ALU6(ABS16, ABS16, ABS32, ABS32, ABS64, ABS64));
    case OP4('n', 'e', 'g', 0): return pick(t, ALU6(NEG16, NEG16, NEG32, NEG32, NEG64, NEG64));
    case OP4('m', 'i', 'n', 0): return pick(t, ALU6(MIN_U16, MIN_S16, MIN_U32, MIN_S32, MIN_U64, MIN_S64));
    case OP4('m', 'a', 'x', 0): return pick(t, ALU6(MAX_U16, MAX_S16, MAX_U32, MAX_S32, MAX_U64, MAX_S64));
    default: return -1;
    }
}

bool ptx_dec_arith(ptx_parser *p, int op)
{
    stitch__num t = ptx_type(p);
    if (t == STITCH__NUM_NONE)
        return ptx_refuse(p, "has no type that is supported");
    if (ptx_num_float(t))
        return float_arith(p, op, t);
    for (uint32_t i = 0; i < p->mod_count; i++)
        if (ptx_word(&p->mods[i], "cc"))
            return carry_arith(p, op, t);
    if (op == OP4('a', 'd', 'd', 'c') || op == OP4('s', 'u', 'b', 'c') || op == OP4('m', 'a', 'd', 'c'))
        return carry_arith(p, op, t);
    bool wide;
    int alu = int_op(p, op, t, &wide);
    if (alu < 0)
        return ptx_refuse(p, "is not supported in this combination of modifiers");
    uint32_t bits = ptx_num_bits(t), dbits = wide ? bits * 2 : bits;
    bool unary = op == OP4('a', 'b', 's', 0) || op == OP4('n', 'e', 'g', 0);
    bool ternary = op == OP4('m', 'a', 'd', 0) || op == OP4('m', 'a', '2', '4') || op == OP4('s', 'a', 'd', 0);
    uint32_t args = unary ? 1 : ternary ? 3 : 2;
    if (p->operand_count != args + 1)
        return ptx_refuse(p, "has a wrong number of operands");
    uint32_t a = ptx_src(p, &p->operands[1], t, bits);
    uint32_t b = args > 1 ? ptx_src(p, &p->operands[2], t, bits) : 0;
    uint32_t c =
        args > 2 ? ptx_src(p, &p->operands[3], wide && bits == 32 ? STITCH__U64 : STITCH__U32, dbits == 64 ? 64 : dbits)
                 : 0;
    return ptx_emit_alu(p, (stitch__alu)alu, ptx_dst(p, &p->operands[0], dbits), a, b, c);
}

/* ---- logic and shifts -------------------------------------------------------------------------------------------- */

bool ptx_emit_pred(ptx_parser *p, int what)
{
    bool unary = what == STITCH__BOOL_NOT || what == STITCH__BOOL_MOV;
    if (p->operand_count != (unary ? 2u : 3u))
        return ptx_refuse(p, "has a wrong number of operands");
    uint32_t a = ptx_src_pred(p, &p->operands[1]), b = unary ? 0 : ptx_src_pred(p, &p->operands[2]);
    uint32_t d = ptx_dst(p, &p->operands[0], 1);
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_PRED;
    in->sub = (uint8_t)what;
    PTX_OPERANDS(in, 1, d, a, b);
    in->cls = STITCH__SIM_CLASS_INT;
    return true;
}

bool ptx_dec_logic(ptx_parser *p, int op)
{
    if (op == OP4('l', 'o', 'p', '3')) {
        if (!ptx_mod(p, "b32") || p->operand_count != 5 || p->operands[4].kind != PTX_O_INT)
            return ptx_refuse(p, "is not supported in this form");
        uint32_t a = ptx_src(p, &p->operands[1], STITCH__U32, 32), b = ptx_src(p, &p->operands[2], STITCH__U32, 32);
        uint32_t c = ptx_src(p, &p->operands[3], STITCH__U32, 32), d = ptx_dst(p, &p->operands[0], 32);
        uint8_t lut = (uint8_t)p->operands[4].value;
        stitch__instr *in = ptx_emit_fn(p, stitch__exec_lop3, STITCH__SIM_CLASS_INT);
        if (!in)
            return !p->failed;
        PTX_OPERANDS(in, 1, d, a, b, c);
        in->sub = lut;
        return true;
    }
    if (ptx_mod(p, "pred")) {
        switch (op) {
        case OP4('a', 'n', 'd', 0): return ptx_emit_pred(p, STITCH__BOOL_AND);
        case OP4('o', 'r', 0, 0): return ptx_emit_pred(p, STITCH__BOOL_OR);
        case OP4('x', 'o', 'r', 0): return ptx_emit_pred(p, STITCH__BOOL_XOR);
        case OP4('n', 'o', 't', 0): return ptx_emit_pred(p, STITCH__BOOL_NOT);
        default: return ptx_refuse(p, "is not supported for predicates");
        }
    }
    stitch__num t = ptx_type(p);
    int alu = -1;
    bool shift = false, unary = false;
    switch (op) {
    case OP4('a', 'n', 'd', 0): alu = pick(t, ALU6(AND32, AND32, AND32, AND32, AND64, AND64)); break;
    case OP4('o', 'r', 0, 0): alu = pick(t, ALU6(OR32, OR32, OR32, OR32, OR64, OR64)); break;
    case OP4('x', 'o', 'r', 0): alu = pick(t, ALU6(XOR32, XOR32, XOR32, XOR32, XOR64, XOR64)); break;
    case OP4('n', 'o', 't', 0):
        alu = pick(t, ALU6(NOT16, NOT16, NOT32, NOT32, NOT64, NOT64));
        unary = true;
        break;
    case OP4('c', 'n', 'o', 't'):
        alu = pick(t, ALU6(CNOT16, CNOT16, CNOT32, CNOT32, CNOT64, CNOT64));
        unary = true;
        break;
    case OP4('s', 'h', 'l', 0):
        alu = pick(t, ALU6(SHL16, SHL16, SHL32, SHL32, SHL64, SHL64));
        shift = true;
        break;
    default:
        alu = pick(t, ALU6(SHR_U16, SHR_S16, SHR_U32, SHR_S32, SHR_U64, SHR_S64));
        shift = true;
        break;
    }
    if (alu < 0 || p->operand_count != (unary ? 2u : 3u))
        return ptx_refuse(p, "is not supported in this form");
    uint32_t bits = ptx_num_bits(t), a = ptx_src(p, &p->operands[1], t, bits);
    uint32_t b = unary ? 0 : ptx_src(p, &p->operands[2], shift ? STITCH__U32 : t, shift ? 32 : bits);
    return ptx_emit_alu(p, (stitch__alu)alu, ptx_dst(p, &p->operands[0], bits), a, b, 0);
}

/* ---- bit fields -------------------------------------------------------------------------------------------------- */

static bool bits_bfi(ptx_parser *p, stitch__num t)
{
    uint32_t bits = ptx_num_bits(t);
    if (p->operand_count != 5)
        return ptx_refuse(p, "has a wrong number of operands");
    uint32_t a = ptx_src(p, &p->operands[1], t, bits), b = ptx_src(p, &p->operands[2], t, bits);
    uint32_t c = ptx_src(p, &p->operands[3], STITCH__U32, 32), e = ptx_src(p, &p->operands[4], STITCH__U32, 32);
    uint32_t d = ptx_dst(p, &p->operands[0], bits);
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_bfi, STITCH__SIM_CLASS_INT);
    if (!in)
        return !p->failed;
    in->size = (uint8_t)(bits / 8);
    PTX_OPERANDS(in, 1, d, a, b, c, e);
    return true;
}

static int bits_op(ptx_parser *p, int op, stitch__num t, stitch__num t2, uint32_t width[4])
{
    uint32_t bits = ptx_num_bits(t);
    bool s = ptx_num_signed(t), w = bits == 64;
    width[0] = width[1] = bits;
    width[2] = width[3] = 0;
    switch (op) {
    case OP4('p', 'o', 'p', 'c'): width[0] = 32; return w ? STITCH__ALU_POPC64 : STITCH__ALU_POPC32;
    case OP4('c', 'l', 'z', 0): width[0] = 32; return w ? STITCH__ALU_CLZ64 : STITCH__ALU_CLZ32;
    case OP4('b', 'r', 'e', 'v'): return w ? STITCH__ALU_BREV64 : STITCH__ALU_BREV32;
    case OP4('b', 'f', 'n', 'd'):
        width[0] = 32;
        if (ptx_mod(p, "shiftamt"))
            return w ? (s ? STITCH__ALU_BFIND_SHIFT_S64 : STITCH__ALU_BFIND_SHIFT_U64)
                     : (s ? STITCH__ALU_BFIND_SHIFT_S32 : STITCH__ALU_BFIND_SHIFT_U32);
        return w ? (s ? STITCH__ALU_BFIND_S64 : STITCH__ALU_BFIND_U64)
                 : (s ? STITCH__ALU_BFIND_S32 : STITCH__ALU_BFIND_U32);
    case OP4('b', 'f', 'e', 0):
        width[2] = width[3] = 32;
        return w ? (s ? STITCH__ALU_BFE_S64 : STITCH__ALU_BFE_U64) : (s ? STITCH__ALU_BFE_S32 : STITCH__ALU_BFE_U32);
    case OP4('b', 'm', 's', 'k'):
        width[2] = 32;
        return ptx_mod(p, "clamp") ? STITCH__ALU_BMSK_CLAMP : ptx_mod(p, "wrap") ? STITCH__ALU_BMSK_WRAP : -1;
    case OP4('s', 'z', 'e', 'x'):
        width[2] = 32;
        return ptx_mod(p, "clamp")  ? (s ? STITCH__ALU_SZEXT_CLAMP_S32 : STITCH__ALU_SZEXT_CLAMP_U32)
               : ptx_mod(p, "wrap") ? (s ? STITCH__ALU_SZEXT_WRAP_S32 : STITCH__ALU_SZEXT_WRAP_U32)
                                    : -1;
    case OP4('f', 'n', 's', 0): width[2] = width[3] = 32; return STITCH__ALU_FNS;
    case OP4('s', 'h', 'f', 0): {
        bool l = ptx_mod(p, "l"), clamp;
        width[2] = width[3] = 32;
        if (!l && !ptx_mod(p, "r"))
            return -1;
        clamp = ptx_mod(p, "clamp");
        if (!clamp && !ptx_mod(p, "wrap"))
            return -1;
        return l ? (clamp ? STITCH__ALU_SHF_L_CLAMP : STITCH__ALU_SHF_L_WRAP)
                 : (clamp ? STITCH__ALU_SHF_R_CLAMP : STITCH__ALU_SHF_R_WRAP);
    }
    case OP4('p', 'r', 'm', 't'):
        width[2] = width[3] = 32;
        return ptx_mod(p, "f4e")    ? STITCH__ALU_PRMT_F4E
               : ptx_mod(p, "b4e")  ? STITCH__ALU_PRMT_B4E
               : ptx_mod(p, "rc8")  ? STITCH__ALU_PRMT_RC8
               : ptx_mod(p, "ecl")  ? STITCH__ALU_PRMT_ECL
               : ptx_mod(p, "ecr")  ? STITCH__ALU_PRMT_ECR
               : ptx_mod(p, "rc16") ? STITCH__ALU_PRMT_RC16
                                    : STITCH__ALU_PRMT;
    case OP4('d', 'p', '4', 'a'): width[2] = width[3] = 32; return STITCH__ALU_DP4A_UU + 2 * s + ptx_num_signed(t2);
    case OP4('d', 'p', '2', 'a'):
        width[2] = width[3] = 32;
        return (ptx_mod(p, "hi")   ? STITCH__ALU_DP2A_HI_UU
                : ptx_mod(p, "lo") ? STITCH__ALU_DP2A_LO_UU
                                   : -100) +
               2 * s + ptx_num_signed(t2);
    default: return -1;
    }
}

bool ptx_dec_bits(ptx_parser *p, int op)
{
    stitch__num t = ptx_type(p), t2 = t;
    if (op == OP4('d', 'p', '4', 'a') || op == OP4('d', 'p', '2', 'a'))
        t2 = ptx_type(p);
    if (t != STITCH__U32 && t != STITCH__S32 && t != STITCH__U64 && t != STITCH__S64)
        return ptx_refuse(p, "is not supported for this type");
    if (op == OP4('b', 'f', 'i', 0))
        return bits_bfi(p, t);
    uint32_t width[4];
    int alu = bits_op(p, op, t, t2, width);
    if (alu < 0)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t args = width[3] ? 3 : width[2] ? 2 : 1, v[3] = {0};
    if (p->operand_count != args + 1)
        return ptx_refuse(p, "has a wrong number of operands");
    for (uint32_t i = 0; i < args; i++)
        v[i] = ptx_src(p, &p->operands[i + 1], STITCH__U32, width[i + 1]);
    return ptx_emit_alu(p, (stitch__alu)alu, ptx_dst(p, &p->operands[0], width[0]), v[0], v[1], v[2]);
}

/* ---- float functions --------------------------------------------------------------------------------------------- */

bool ptx_dec_float(ptx_parser *p, int op)
{
    stitch__arith_op a = {.type = (uint8_t)ptx_type(p)};
    bool approx = ptx_mod(p, "approx");
    a.round = (uint8_t)ptx_round(p);
    a.flags = ptx_flags(p);
    uint32_t args = 1;
    switch (op) {
    case OP4('c', 'p', 's', 0):
        a.op = STITCH__COPYSIGN;
        args = 2;
        break;
    case OP4('r', 'c', 'p', 0): a.op = approx ? STITCH__RCP_APPROX : STITCH__RCP; break;
    case OP4('s', 'q', 'r', 't'): a.op = approx ? STITCH__SQRT_APPROX : STITCH__SQRT; break;
    case OP4('r', 's', 'q', 0): a.op = STITCH__RSQRT_APPROX; break;
    case OP4('e', 'x', '2', 0): a.op = STITCH__EX2_APPROX; break;
    case OP4('l', 'g', '2', 0): a.op = STITCH__LG2_APPROX; break;
    case OP4('s', 'i', 'n', 0): a.op = STITCH__SIN_APPROX; break;
    case OP4('c', 'o', 's', 0): a.op = STITCH__COS_APPROX; break;
    default: a.op = STITCH__TANH_APPROX; break;
    }
    if (!ptx_num_float(a.type))
        return ptx_refuse(p, "is not supported for this type");
    return emit_float(p, a, args);
}
