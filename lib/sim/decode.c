/* SPDX-License-Identifier: MIT
 *
 * From an instruction as written to IR: the table of mnemonics and what all decoders share.
 */
#include "sim/exec.h"
#include "sim/parse.h"

bool ptx_refuse(ptx_parser *p, const char *fmt, ...)
{
    stitch__sim_function *f = p->f;
    if (f->info.refusal)
        return true;
    char why[256], at[320] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    if (p->place) {
        /* File names come at the end of the text; the line is what is known now. */
        const ptx_loc *l = &p->locs[p->place];
        while (l->place_inlined)
            l = &p->locs[l->place_inlined - 1];
        snprintf(at, sizeof(at), " (source line %" PRIu32 ")", l->line);
    }
    f->info.refusal =
        stitch__arena_printf(&p->m->arena, "PTX line %" PRIu32 "%s: '%s' %s", p->instr_line, at, p->mnemonic, why);
    if (!f->info.refusal)
        ptx_nomem(p);
    return true;
}

bool ptx_refused(const ptx_parser *p)
{
    return p->f->info.refusal != NULL || p->failed;
}

stitch__instr *ptx_emit_fn(ptx_parser *p, stitch__exec_fn fn, stitch__sim_class cls)
{
    stitch__instr *in = ptx_refused(p) ? NULL : ptx_emit(p);
    if (!in)
        return NULL;
    in->op = STITCH__OP_FN;
    in->u.fn = fn;
    in->cls = (uint8_t)cls;
    return in;
}

void ptx_operands(stitch__instr *in, uint8_t defs, const uint32_t *o, size_t count)
{
    in->ndef = defs;
    in->nops = (uint8_t)count;
    memcpy(in->o, o, count * sizeof(*o));
}

bool ptx_mod(ptx_parser *p, const char *word)
{
    for (uint32_t i = 0; i < p->mod_count; i++)
        if (!(p->mod_used >> i & 1) && ptx_word(&p->mods[i], word)) {
            p->mod_used |= UINT64_C(1) << i;
            return true;
        }
    return false;
}

bool ptx_mod_prefix(ptx_parser *p, const char *prefix, ptx_token *out)
{
    size_t n = strlen(prefix);
    for (uint32_t i = 0; i < p->mod_count; i++)
        if (!(p->mod_used >> i & 1) && p->mods[i].len >= n && memcmp(p->mods[i].text, prefix, n) == 0) {
            p->mod_used |= UINT64_C(1) << i;
            if (out)
                *out = p->mods[i];
            return true;
        }
    return false;
}

stitch__num ptx_type(ptx_parser *p)
{
    static const struct {
        const char *name;
        uint8_t num;
    } types[] = {
        {"b8", STITCH__U8},       {"u8", STITCH__U8},         {"s8", STITCH__S8},         {"b16", STITCH__U16},
        {"u16", STITCH__U16},     {"s16", STITCH__S16},       {"f16", STITCH__F16},       {"bf16", STITCH__BF16},
        {"b32", STITCH__U32},     {"u32", STITCH__U32},       {"s32", STITCH__S32},       {"f32", STITCH__F32},
        {"f16x2", STITCH__F16X2}, {"bf16x2", STITCH__BF16X2}, {"b64", STITCH__U64},       {"u64", STITCH__U64},
        {"s64", STITCH__S64},     {"f64", STITCH__F64},       {"u16x2", STITCH__U16X2},   {"s16x2", STITCH__S16X2},
        {"tf32", STITCH__TF32},   {"e4m3x2", STITCH__E4M3X2}, {"e5m2x2", STITCH__E5M2X2}, {"f32x2", STITCH__F32X2}};
    for (uint32_t i = 0; i < p->mod_count; i++) {
        if (p->mod_used >> i & 1)
            continue;
        for (size_t k = 0; k < STITCH__COUNT(types); k++)
            if (ptx_word(&p->mods[i], types[k].name)) {
                p->mod_used |= UINT64_C(1) << i;
                return types[k].num;
            }
    }
    return STITCH__NUM_NONE;
}

uint32_t ptx_num_bits(stitch__num t)
{
    switch (t) {
    case STITCH__U8:
    case STITCH__S8: return 8;
    case STITCH__U16:
    case STITCH__S16:
    case STITCH__F16:
    case STITCH__BF16:
    case STITCH__E4M3X2:
    case STITCH__E5M2X2: return 16;
    case STITCH__U64:
    case STITCH__S64:
    case STITCH__F64:
    case STITCH__F32X2: return 64;
    default: return 32;
    }
}

bool ptx_num_signed(stitch__num t)
{
    return t == STITCH__S8 || t == STITCH__S16 || t == STITCH__S32 || t == STITCH__S64 || t == STITCH__S16X2;
}

bool ptx_num_float(stitch__num t)
{
    switch (t) {
    case STITCH__F16:
    case STITCH__BF16:
    case STITCH__F32:
    case STITCH__F64:
    case STITCH__F16X2:
    case STITCH__BF16X2:
    case STITCH__F32X2: return true;
    default: return false;
    }
}

uint8_t ptx_bank(uint32_t bits)
{
    return bits == 1 ? STITCH__BANK_PRED : bits == 64 ? STITCH__BANK_64 : STITCH__BANK_32;
}

const ptx_operand *ptx_arg(ptx_parser *p, uint32_t index)
{
    if (index < p->operand_count)
        return &p->operands[index];
    ptx_refuse(p, "has too few operands");
    return NULL;
}

uint32_t ptx_dst(ptx_parser *p, const ptx_operand *o, uint32_t bits)
{
    if (!o)
        return 0;
    if (o->kind == PTX_O_SINK)
        return ptx_vreg(p, ptx_bank(bits));
    if (o->kind != PTX_O_REG || o->negated) {
        ptx_refuse(p, "needs a register for its result");
        return 0;
    }
    if (o->bank != ptx_bank(bits)) {
        ptx_refuse(p, "has a result register of another size");
        return 0;
    }
    return o->reg | STITCH__OPD_REG;
}

static uint64_t immediate(const ptx_operand *o, stitch__num type)
{
    double x;
    float f;
    uint32_t bits;
    uint64_t out;
    if (type == STITCH__F32 || type == STITCH__F64) {
        if (o->kind == PTX_O_F32 && type == STITCH__F32)
            return o->value;
        if (o->kind == PTX_O_F64) {
            memcpy(&x, &o->value, 8);
        } else if (o->kind == PTX_O_F32) {
            bits = (uint32_t)o->value;
            memcpy(&f, &bits, 4);
            x = f;
        } else {
            return o->value; /* bits of a b32 or b64 operand in a typed slot */
        }
        if (type == STITCH__F64) {
            memcpy(&out, &x, 8);
            return out;
        }
        f = (float)x;
        memcpy(&bits, &f, 4);
        return bits;
    }
    if (o->kind == PTX_O_F64 && type != STITCH__U64 && type != STITCH__S64) { /* a decimal float as b32 */
        memcpy(&x, &o->value, 8);
        f = (float)x;
        memcpy(&bits, &f, 4);
        return bits;
    }
    return o->value;
}

uint32_t ptx_src(ptx_parser *p, const ptx_operand *o, stitch__num type, uint32_t bits)
{
    if (!o)
        return 0;
    switch (o->kind) {
    case PTX_O_REG:
        if (o->negated || o->imm) {
            ptx_refuse(p, "has an operand of a form that is not supported");
            return 0;
        }
        if (o->bank != ptx_bank(bits)) {
            ptx_refuse(p, "has an operand register of another size");
            return 0;
        }
        return o->reg | STITCH__OPD_REG;
    case PTX_O_SREG:
        if (o->reg >= STITCH__SREG_COUNT) {
            ptx_refuse(p, "reads a clock as an operand: move it to a register first");
            return 0;
        }
        if (bits == 64) {
            ptx_refuse(p, "has an operand register of another size");
            return 0;
        }
        return o->reg | STITCH__OPD_SREG;
    case PTX_O_INT:
    case PTX_O_F32:
    case PTX_O_F64:
        if (bits == 1) {
            ptx_refuse(p, "has a constant where a predicate is expected");
            return 0;
        }
        {
            uint64_t v = immediate(o, type);
            return ptx_const(p, bits == 16 ? (uint16_t)v : v, bits == 64);
        }
    case PTX_O_SYM:
        if (o->symbol->kind == PTX_SYM_SHARED)
            return ptx_const_ref(p, bits == 64, 1, (uint32_t)o->imm, (uint64_t)(uintptr_t)o->symbol->shared);
        if (o->symbol->kind == PTX_SYM_VAR && bits == 64)
            return ptx_const_ref(p, true, 2, o->symbol->index, (uint64_t)o->imm);
        break;
    default: break;
    }
    ptx_refuse(p, "has an operand of a form that is not supported");
    return 0;
}

uint32_t ptx_src_pred(ptx_parser *p, const ptx_operand *o)
{
    if (!o)
        return 0;
    if (o->kind == PTX_O_INT) { /* a constant predicate: 1 or 0, as inline assembly writes it */
        uint32_t t = ptx_vreg(p, STITCH__BANK_PRED);
        stitch__instr *in = ptx_emit(p);
        if (!in)
            return 0;
        in->op = STITCH__OP_PRED;
        in->sub = o->value ? STITCH__BOOL_NOT : STITCH__BOOL_MOV;
        PTX_OPERANDS(in, 1, t, STITCH__OPD_NONE); /* the false predicate */
        in->cls = STITCH__SIM_CLASS_MOVE;
        return t;
    }
    if (o->kind != PTX_O_REG || o->bank != STITCH__BANK_PRED) {
        ptx_refuse(p, "needs a predicate register");
        return 0;
    }
    if (!o->negated)
        return o->reg | STITCH__OPD_REG;
    uint32_t t = ptx_vreg(p, STITCH__BANK_PRED);
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return 0;
    in->op = STITCH__OP_PRED;
    in->sub = STITCH__BOOL_NOT;
    PTX_OPERANDS(in, 1, t, o->reg | STITCH__OPD_REG);
    in->cls = STITCH__SIM_CLASS_MOVE;
    return t;
}

uint32_t *ptx_more(ptx_parser *p, stitch__instr *in, uint32_t count)
{
    in->more = stitch__arena_array(&p->m->arena, count ? count : 1, sizeof(uint32_t));
    if (!in->more) {
        ptx_nomem(p);
        return NULL;
    }
    in->nmore = (uint16_t)count;
    return in->more;
}

void ptx_note_access(ptx_parser *p, stitch__sim_space space, uint32_t size, bool talks)
{
    stitch__sim_function *f = p->f;
    if (space == STITCH__SIM_GENERIC || space == STITCH__SIM_SHARED)
        if (size < f->shared_min)
            f->shared_min = size;
    if (space == STITCH__SIM_GENERIC || space == STITCH__SIM_GLOBAL) {
        if (size < f->global_min)
            f->global_min = size;
        if (talks)
            f->may_talk = true;
    }
}

stitch__sim_space ptx_space(ptx_parser *p)
{
    if (ptx_mod(p, "global"))
        return STITCH__SIM_GLOBAL;
    if (ptx_mod(p, "shared") || ptx_mod(p, "shared::cta") || ptx_mod(p, "shared::cluster"))
        return STITCH__SIM_SHARED;
    if (ptx_mod(p, "local"))
        return STITCH__SIM_LOCAL;
    if (ptx_mod(p, "const"))
        return STITCH__SIM_CONST;
    if (ptx_mod(p, "param") || ptx_mod(p, "param::entry") || ptx_mod(p, "param::func"))
        return STITCH__SIM_PARAM;
    return STITCH__SIM_GENERIC;
}

bool ptx_address(ptx_parser *p, const ptx_operand *o, stitch__instr *in, uint32_t at, stitch__sim_space space)
{
    if (!o || o->kind != PTX_O_ADDR || o->count < 1) {
        ptx_refuse(p, "needs an address in brackets");
        return false;
    }
    const ptx_operand *base = &p->sub[o->first];
    in->imm = base->imm;
    switch (base->kind) {
    case PTX_O_REG:
        if (base->bank == STITCH__BANK_PRED || base->negated)
            break;
        if (base->bank == STITCH__BANK_64)
            in->flags |= STITCH__IN_ADDR64;
        in->o[at] = base->reg | STITCH__OPD_REG;
        return true;
    case PTX_O_INT:
        in->flags |= STITCH__IN_ADDR64;
        in->o[at] = ptx_const(p, base->value, true);
        return true;
    case PTX_O_SYM: {
        const ptx_symbol *s = base->symbol;
        in->flags |= STITCH__IN_ADDR64;
        if (s->kind == PTX_SYM_SHARED && (space == STITCH__SIM_SHARED || space == STITCH__SIM_GENERIC)) {
            ptx_operand plain = *base;
            plain.imm = 0;
            if (space == STITCH__SIM_GENERIC)
                in->imm += (int64_t)STITCH__SIM_SHARED_WINDOW;
            in->o[at] = ptx_src(p, &plain, STITCH__U64, 64);
            return true;
        }
        if (s->kind == PTX_SYM_VAR) {
            in->o[at] = ptx_const_ref(p, true, 2, s->index, 0);
            return true;
        }
        if ((s->kind == PTX_SYM_PARAM || s->kind == PTX_SYM_SCRATCH) && space == STITCH__SIM_PARAM) {
            in->imm += s->index;
            in->o[at] = ptx_const(p, 0, true);
            in->sub2 = s->kind == PTX_SYM_SCRATCH; /* the scratch area, not the kernel's parameters */
            return true;
        }
        if (s->kind == PTX_SYM_LOCAL && (space == STITCH__SIM_LOCAL || space == STITCH__SIM_GENERIC)) {
            /* The frame's place in local memory is known only when it runs. */
            uint32_t t = ptx_vreg(p, STITCH__BANK_64);
            stitch__instr saved = *in;
            p->code_count--;
            stitch__instr *la = ptx_emit(p);
            if (!la)
                return false;
            la->op = STITCH__OP_FN;
            la->u.fn = stitch__exec_localaddr;
            la->ndef = la->nops = 1;
            la->o[0] = t;
            la->imm = (int64_t)s->index + (space == STITCH__SIM_GENERIC ? (int64_t)STITCH__SIM_LOCAL_WINDOW : 0);
            la->size = 8;
            la->cls = STITCH__SIM_CLASS_MOVE;
            stitch__instr *again = ptx_emit(p);
            if (!again)
                return false;
            *again = saved;
            again->o[at] = t;
            return true;
        }
        break;
    }
    default: break;
    }
    ptx_refuse(p, "has an address of a form that is not supported");
    return false;
}

typedef struct mnemonic {
    const char *name;
    bool (*decode)(ptx_parser *p, int op);
    int op;
} mnemonic;

/* Sorted by name. The number tells instructions of one decoder apart: the first letters packed. */
#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)
static const mnemonic mnemonics[] = {
    {"abs", ptx_dec_arith, OP4('a', 'b', 's', 0)},
    {"activemask", ptx_dec_warp, OP4('a', 'c', 't', 0)},
    {"add", ptx_dec_arith, OP4('a', 'd', 'd', 0)},
    {"addc", ptx_dec_arith, OP4('a', 'd', 'd', 'c')},
    {"and", ptx_dec_logic, OP4('a', 'n', 'd', 0)},
    {"applypriority", ptx_dec_hint, 0},
    {"atom", ptx_dec_atom, 0},
    {"bar", ptx_dec_barrier, OP4('b', 'a', 'r', 0)},
    {"barrier", ptx_dec_barrier, OP4('b', 'a', 'r', 'r')},
    {"bfe", ptx_dec_bits, OP4('b', 'f', 'e', 0)},
    {"bfi", ptx_dec_bits, OP4('b', 'f', 'i', 0)},
    {"bfind", ptx_dec_bits, OP4('b', 'f', 'n', 'd')},
    {"bmsk", ptx_dec_bits, OP4('b', 'm', 's', 'k')},
    {"bra", ptx_dec_control, OP4('b', 'r', 'a', 0)},
    {"brev", ptx_dec_bits, OP4('b', 'r', 'e', 'v')},
    {"brkpt", ptx_dec_control, OP4('b', 'r', 'k', 0)},
    {"brx", ptx_dec_control, OP4('b', 'r', 'x', 0)},
    {"call", ptx_dec_call, 0},
    {"clz", ptx_dec_bits, OP4('c', 'l', 'z', 0)},
    {"cnot", ptx_dec_logic, OP4('c', 'n', 'o', 't')},
    {"copysign", ptx_dec_float, OP4('c', 'p', 's', 0)},
    {"cos", ptx_dec_float, OP4('c', 'o', 's', 0)},
    {"cp", ptx_dec_cp, 0},
    {"createpolicy", ptx_dec_hint, 1},
    {"cvt", ptx_dec_cvt, 0},
    {"cvta", ptx_dec_move, OP4('c', 'v', 't', 'a')},
    {"discard", ptx_dec_hint, 0},
    {"div", ptx_dec_arith, OP4('d', 'i', 'v', 0)},
    {"dp2a", ptx_dec_bits, OP4('d', 'p', '2', 'a')},
    {"dp4a", ptx_dec_bits, OP4('d', 'p', '4', 'a')},
    {"elect", ptx_dec_warp, OP4('e', 'l', 'e', 0)},
    {"ex2", ptx_dec_float, OP4('e', 'x', '2', 0)},
    {"exit", ptx_dec_control, OP4('e', 'x', 'i', 't')},
    {"fence", ptx_dec_barrier, OP4('f', 'e', 'n', 0)},
    {"fma", ptx_dec_arith, OP4('f', 'm', 'a', 0)},
    {"fns", ptx_dec_bits, OP4('f', 'n', 's', 0)},
    {"getctarank", ptx_dec_move, OP4('g', 'c', 't', 'a')},
    {"griddepcontrol", ptx_dec_hint, 2},
    {"isspacep", ptx_dec_move, OP4('i', 's', 's', 'p')},
    {"ld", ptx_dec_ldst, OP4('l', 'd', 0, 0)},
    {"ldmatrix", ptx_dec_matrix, OP4('l', 'd', 'm', 0)},
    {"ldu", ptx_dec_ldst, OP4('l', 'd', 0, 0)},
    {"lg2", ptx_dec_float, OP4('l', 'g', '2', 0)},
    {"lop3", ptx_dec_logic, OP4('l', 'o', 'p', '3')},
    {"mad", ptx_dec_arith, OP4('m', 'a', 'd', 0)},
    {"mad24", ptx_dec_arith, OP4('m', 'a', '2', '4')},
    {"madc", ptx_dec_arith, OP4('m', 'a', 'd', 'c')},
    {"mapa", ptx_dec_move, OP4('m', 'a', 'p', 'a')},
    {"match", ptx_dec_warp, OP4('m', 'a', 't', 0)},
    {"max", ptx_dec_arith, OP4('m', 'a', 'x', 0)},
    {"mbarrier", ptx_dec_mbarrier, 0},
    {"membar", ptx_dec_barrier, OP4('m', 'e', 'm', 0)},
    {"min", ptx_dec_arith, OP4('m', 'i', 'n', 0)},
    {"mma", ptx_dec_matrix, OP4('m', 'm', 'a', 0)},
    {"mov", ptx_dec_move, OP4('m', 'o', 'v', 0)},
    {"movmatrix", ptx_dec_matrix, OP4('m', 'o', 'v', 0)},
    {"mul", ptx_dec_arith, OP4('m', 'u', 'l', 0)},
    {"mul24", ptx_dec_arith, OP4('m', 'u', '2', '4')},
    {"nanosleep", ptx_dec_control, OP4('n', 'a', 'n', 0)},
    {"neg", ptx_dec_arith, OP4('n', 'e', 'g', 0)},
    {"not", ptx_dec_logic, OP4('n', 'o', 't', 0)},
    {"or", ptx_dec_logic, OP4('o', 'r', 0, 0)},
    {"pmevent", ptx_dec_hint, 2},
    {"popc", ptx_dec_bits, OP4('p', 'o', 'p', 'c')},
    {"prefetch", ptx_dec_hint, 0},
    {"prefetchu", ptx_dec_hint, 0},
    {"prmt", ptx_dec_bits, OP4('p', 'r', 'm', 't')},
    {"rcp", ptx_dec_float, OP4('r', 'c', 'p', 0)},
    {"red", ptx_dec_atom, 1},
    {"redux", ptx_dec_warp, OP4('r', 'e', 'd', 0)},
    {"rem", ptx_dec_arith, OP4('r', 'e', 'm', 0)},
    {"ret", ptx_dec_control, OP4('r', 'e', 't', 0)},
    {"rsqrt", ptx_dec_float, OP4('r', 's', 'q', 0)},
    {"sad", ptx_dec_arith, OP4('s', 'a', 'd', 0)},
    {"selp", ptx_dec_compare, OP4('s', 'e', 'l', 'p')},
    {"set", ptx_dec_compare, OP4('s', 'e', 't', 0)},
    {"setmaxnreg", ptx_dec_hint, 2},
    {"setp", ptx_dec_compare, OP4('s', 'e', 't', 'p')},
    {"shf", ptx_dec_bits, OP4('s', 'h', 'f', 0)},
    {"shfl", ptx_dec_warp, OP4('s', 'h', 'f', 0)},
    {"shl", ptx_dec_logic, OP4('s', 'h', 'l', 0)},
    {"shr", ptx_dec_logic, OP4('s', 'h', 'r', 0)},
    {"sin", ptx_dec_float, OP4('s', 'i', 'n', 0)},
    {"slct", ptx_dec_compare, OP4('s', 'l', 'c', 't')},
    {"sqrt", ptx_dec_float, OP4('s', 'q', 'r', 't')},
    {"st", ptx_dec_ldst, OP4('s', 't', 0, 0)},
    {"stmatrix", ptx_dec_matrix, OP4('s', 't', 'm', 0)},
    {"sub", ptx_dec_arith, OP4('s', 'u', 'b', 0)},
    {"subc", ptx_dec_arith, OP4('s', 'u', 'b', 'c')},
    {"szext", ptx_dec_bits, OP4('s', 'z', 'e', 'x')},
    {"tanh", ptx_dec_float, OP4('t', 'a', 'n', 'h')},
    {"testp", ptx_dec_compare, OP4('t', 's', 't', 'p')},
    {"trap", ptx_dec_control, OP4('t', 'r', 'a', 'p')},
    {"vote", ptx_dec_warp, OP4('v', 'o', 't', 0)},
    {"wgmma", ptx_dec_matrix, OP4('w', 'g', 'm', 0)},
    {"wmma", ptx_dec_matrix, OP4('w', 'm', 'm', 0)},
    {"xor", ptx_dec_logic, OP4('x', 'o', 'r', 0)},
};

bool ptx_decode(ptx_parser *p)
{
    if (p->f->info.refusal)
        return !p->failed; /* the function will not run: only its syntax matters */
    size_t lo = 0, hi = STITCH__COUNT(mnemonics);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = strcmp(p->op, mnemonics[mid].name);
        if (c == 0) {
            size_t before = p->code_count;
            if (!mnemonics[mid].decode(p, mnemonics[mid].op))
                return false;
            if (p->f->info.refusal) {
                p->code_count = before;
                return !p->failed;
            }
            if (p->mod_used != (UINT64_C(1) << p->mod_count) - 1) {
                for (uint32_t i = 0; i < p->mod_count; i++)
                    if (!(p->mod_used >> i & 1))
                        return ptx_refuse(p, "is not supported: modifier .%.*s", (int)p->mods[i].len, p->mods[i].text);
            }
            return !p->failed;
        }
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return ptx_refuse(p, "is not supported");
}
