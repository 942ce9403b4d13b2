/* SPDX-License-Identifier: MIT
 *
 * Decoding of arithmetic, logic, bit, conversion, comparison and move instructions.
 */
#include "sim/alu.h"
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

static stitch__sim_class class_of(stitch__num t)
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

static bool emit_lanes(ptx_parser *p, stitch__lanes_fn fn, uint32_t d, uint32_t a, uint32_t b, uint32_t c,
                       stitch__sim_class cls, uint32_t flops)
{
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_LANES;
    in->u.lanes = fn;
    in->ndef = 1;
    in->nops = 4;
    in->o[0] = d;
    in->o[1] = a;
    in->o[2] = b;
    in->o[3] = c;
    in->cls = (uint8_t)cls;
    in->flops = flops;
    return true;
}

static bool emit_alu(ptx_parser *p, stitch__alu op, uint32_t d, uint32_t a, uint32_t b, uint32_t c)
{
    return emit_lanes(p, stitch__alu_lanes(op), d, a, b, c, STITCH__SIM_CLASS_INT, 0);
}

static stitch__round round_mod(ptx_parser *p)
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

static uint8_t flag_mods(ptx_parser *p)
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
    return emit_lanes(p, fn, d, v[0], v[1], v[2], sfu ? STITCH__SIM_CLASS_SFU : class_of(op.type),
                      work ? (op.op == STITCH__FMA ? 2u : 1u) << two : 0);
}

static bool float_arith(ptx_parser *p, int op, stitch__num type)
{
    stitch__arith_op a = {.type = (uint8_t)type};
    a.round = (uint8_t)round_mod(p);
    a.flags = flag_mods(p);
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
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_FN;
    in->u.fn = stitch__exec_carry;
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
    in->cls = STITCH__SIM_CLASS_INT;
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
    return emit_alu(p, (stitch__alu)alu, ptx_dst(p, &p->operands[0], dbits), a, b, c);
}

/* ---- logic and shifts -------------------------------------------------------------------------------------------- */

static bool emit_pred(ptx_parser *p, int what)
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
    in->ndef = 1;
    in->nops = 3;
    in->o[0] = d;
    in->o[1] = a;
    in->o[2] = b;
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
        if (ptx_refused(p))
            return !p->failed;
        stitch__instr *in = ptx_emit(p);
        if (!in)
            return false;
        in->op = STITCH__OP_FN;
        in->u.fn = stitch__exec_lop3;
        in->ndef = 1;
        in->nops = 4;
        in->o[0] = d;
        in->o[1] = a;
        in->o[2] = b;
        in->o[3] = c;
        in->sub = lut;
        in->cls = STITCH__SIM_CLASS_INT;
        return true;
    }
    if (ptx_mod(p, "pred")) {
        switch (op) {
        case OP4('a', 'n', 'd', 0): return emit_pred(p, STITCH__BOOL_AND);
        case OP4('o', 'r', 0, 0): return emit_pred(p, STITCH__BOOL_OR);
        case OP4('x', 'o', 'r', 0): return emit_pred(p, STITCH__BOOL_XOR);
        case OP4('n', 'o', 't', 0): return emit_pred(p, STITCH__BOOL_NOT);
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
    return emit_alu(p, (stitch__alu)alu, ptx_dst(p, &p->operands[0], bits), a, b, 0);
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
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_FN;
    in->u.fn = stitch__exec_bfi;
    in->size = (uint8_t)(bits / 8);
    in->ndef = 1;
    in->nops = 5;
    in->o[0] = d;
    in->o[1] = a;
    in->o[2] = b;
    in->o[3] = c;
    in->o[4] = e;
    in->cls = STITCH__SIM_CLASS_INT;
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
    return emit_alu(p, (stitch__alu)alu, ptx_dst(p, &p->operands[0], width[0]), v[0], v[1], v[2]);
}

/* ---- float functions --------------------------------------------------------------------------------------------- */

bool ptx_dec_float(ptx_parser *p, int op)
{
    stitch__arith_op a = {.type = (uint8_t)ptx_type(p)};
    bool approx = ptx_mod(p, "approx");
    a.round = (uint8_t)round_mod(p);
    a.flags = flag_mods(p);
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

/* ---- cvt --------------------------------------------------------------------------------------------------------- */

static uint32_t cvt_source(ptx_parser *p, const ptx_operand *o, stitch__num type)
{
    uint32_t bits = ptx_num_bits(type);
    if (o->kind == PTX_O_REG && o->bank == STITCH__BANK_64 && bits < 64) {
        uint32_t t = ptx_vreg(p, STITCH__BANK_32);
        if (!emit_alu(p, STITCH__ALU_LOW32, t, o->reg | STITCH__OPD_REG, 0, 0))
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
        c.round = (uint8_t)round_mod(p);
    }
    c.flags = flag_mods(p);
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
        return emit_lanes(p, fn, t, a, b, 0, cls, 0) &&
               emit_alu(p, ptx_num_signed(c.dst) ? STITCH__ALU_SX32_64 : STITCH__ALU_ZX32_64, d->reg | STITCH__OPD_REG,
                        t, 0, 0);
    }
    return emit_lanes(p, fn, ptx_dst(p, d, dbits), a, b, 0, cls, 0);
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
    in->ndef = 2;
    in->nops = 5;
    in->o[0] = d;
    in->o[1] = q;
    in->o[2] = a;
    in->o[3] = b;
    in->o[4] = c;
    in->cls = (uint8_t)class_of(t);
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
    in->ndef = 1;
    in->nops = 4;
    in->o[0] = d;
    in->o[1] = a;
    in->o[2] = b;
    in->o[3] = c;
    in->cls = (uint8_t)class_of(t);
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
    in->ndef = 1;
    in->nops = 4;
    in->o[0] = d;
    in->o[1] = q->negated ? b : a;
    in->o[2] = q->negated ? a : b;
    in->o[3] = c;
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
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_FN;
    in->u.fn = stitch__exec_testp;
    in->sub = (uint8_t)test;
    in->sub2 = (uint8_t)t;
    in->ndef = 1;
    in->nops = 2;
    in->o[0] = d;
    in->o[1] = a;
    in->cls = (uint8_t)class_of(t);
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
    return emit_alu(p, fn, ptx_dst(p, &p->operands[0], bits), a, b, ptx_src(p, &p->operands[3], ct, 32));
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
    in->ndef = 1;
    in->nops = 2;
    in->o[0] = d;
    in->o[1] = a;
    in->cls = STITCH__SIM_CLASS_MOVE;
    return true;
}

static bool emit_fn1(ptx_parser *p, stitch__exec_fn fn, uint32_t d, uint32_t a, uint32_t b, uint8_t sub, uint8_t size,
                     int64_t imm)
{
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_FN;
    in->u.fn = fn;
    in->ndef = 1;
    in->nops = 3;
    in->o[0] = d;
    in->o[1] = a;
    in->o[2] = b;
    in->sub = sub;
    in->size = size;
    in->imm = imm;
    in->cls = STITCH__SIM_CLASS_MOVE;
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
        return emit_alu(p,
                        each == 32   ? STITCH__ALU_PACK32
                        : each == 16 ? STITCH__ALU_PACK16
                                     : STITCH__ALU_PACK8,
                        d, e[0], e[1], 0);
    uint32_t lo = ptx_vreg(p, STITCH__BANK_32), hi = ptx_vreg(p, STITCH__BANK_32);
    stitch__alu half = each == 16 ? STITCH__ALU_PACK16 : STITCH__ALU_PACK8;
    return emit_alu(p, half, lo, e[0], e[1], 0) && emit_alu(p, half, hi, e[2], e[3], 0) &&
           emit_alu(p, each == 16 ? STITCH__ALU_PACK32 : STITCH__ALU_PACK16, d, lo, hi, 0);
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
        if (!emit_alu(p, STITCH__ALU_LOW32, whole[0], a, 0, 0) || !emit_alu(p, STITCH__ALU_HIGH32, whole[1], a, 0, 0))
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
            ok = emit_alu(p, shift ? STITCH__ALU_HIGH16 : STITCH__ALU_ZX16, d, from, 0, 0);
        } else {
            ok = emit_alu(p, STITCH__ALU_BFE_U32, d, from, ptx_const(p, shift, false), sh8);
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
        return emit_pred(p, STITCH__BOOL_MOV);
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
        return emit_alu(p, STITCH__ALU_ZX32_64, dst, a->reg | STITCH__OPD_SREG, 0, 0);
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
    return emit_alu(p, STITCH__ALU_ADD64, d, a, ptx_const(p, to ? 0 - window : window, true), 0);
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
