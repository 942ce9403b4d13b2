/* SPDX-License-Identifier: MIT
 *
 * Decoding of loads, stores, atomics and cache hints.
 */
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

static stitch__sim_class memory_class(stitch__sim_space space)
{
    switch (space) {
    case STITCH__SIM_SHARED: return STITCH__SIM_CLASS_SHARED;
    case STITCH__SIM_LOCAL: return STITCH__SIM_CLASS_LOCAL;
    case STITCH__SIM_PARAM:
    case STITCH__SIM_CONST: return STITCH__SIM_CLASS_MOVE;
    default: return STITCH__SIM_CLASS_GLOBAL;
    }
}

/* Cache operators, eviction priorities, prefetch sizes and the like say nothing about the result. */
static void hints(ptx_parser *p)
{
    static const char *const words[] = {
        "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified", "weak", "L2::cache_hint", "noftz"};
    for (size_t i = 0; i < STITCH__COUNT(words); i++)
        ptx_mod(p, words[i]);
    while (ptx_mod_prefix(p, "L1::", NULL) || ptx_mod_prefix(p, "L2::", NULL)) {
    }
}

/* Whether the access synchronises: volatile, relaxed, acquire, release. Takes these and the scope. */
static bool ordering(ptx_parser *p)
{
    static const char *const words[] = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"};
    static const char *const scopes[] = {"cta", "cluster", "gpu", "sys"};
    bool any = false;
    for (size_t i = 0; i < STITCH__COUNT(words); i++)
        any |= ptx_mod(p, words[i]);
    for (size_t i = 0; i < STITCH__COUNT(scopes); i++)
        ptx_mod(p, scopes[i]);
    return any;
}

/* Whether the access releases: what the thread did before is ordered before it. Kept in instr.bytes_mask. */
static bool releases(const ptx_parser *p)
{
    for (uint32_t i = 0; i < p->mod_count; i++)
        if (ptx_word(&p->mods[i], "release") || ptx_word(&p->mods[i], "acq_rel"))
            return true;
    return false;
}

bool ptx_dec_ldst(ptx_parser *p, int op)
{
    bool load = op == OP4('l', 'd', 0, 0);
    bool release = releases(p);
    bool talks = ordering(p);
    hints(p);
    stitch__sim_space space = ptx_space(p);
    uint32_t vec = ptx_mod(p, "v2") ? 2 : ptx_mod(p, "v4") ? 4 : 1;
    stitch__num t = ptx_type(p);
    if (t == STITCH__NUM_NONE)
        return ptx_refuse(p, "is not supported for this type");
    uint32_t bits = ptx_num_bits(t), bank = 0;
    if (p->operand_count < 2 || p->operand_count > 3)
        return ptx_refuse(p, "has a wrong number of operands");
    const ptx_operand *address = &p->operands[load ? 0 + 1 : 0], *data = &p->operands[load ? 0 : 1];
    if (vec > 1 && (data->kind != PTX_O_VEC || data->count != vec))
        return ptx_refuse(p, "has a vector of another size");
    uint32_t v[4] = {0};
    for (uint32_t i = 0; i < vec; i++) {
        const ptx_operand *o = data->kind == PTX_O_VEC ? &p->sub[data->first + i] : data;
        uint32_t rbits = o->kind == PTX_O_REG && o->bank == STITCH__BANK_64 ? 64
                         : bits == 64                                       ? 64
                         : bits < 16                                        ? 16
                                                                            : bits;
        if (load && o->kind == PTX_O_SINK)
            continue;
        if (bank && bank != rbits && (bank == 64 || rbits == 64))
            return ptx_refuse(p, "mixes registers of different sizes");
        bank = rbits;
        if (bits == 64 && rbits != 64)
            return ptx_refuse(p, "has a register that is too small");
        v[i] = load ? ptx_dst(p, o, rbits) : ptx_src(p, o, t, rbits);
    }
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    uint32_t at = load ? 4 : 0;
    in->op = load ? STITCH__OP_LOAD : STITCH__OP_STORE;
    in->u.fn = load ? stitch__exec_load : stitch__exec_store;
    in->space = (uint8_t)space;
    in->cls = (uint8_t)memory_class(space);
    in->size = (uint8_t)(bits / 8);
    in->vec = (uint8_t)vec;
    in->ndef = load ? 4 : 0;
    in->nops = 5;
    in->flags |= (uint8_t)((ptx_num_signed(t) ? STITCH__IN_SIGNED : 0) | (talks ? STITCH__IN_VOLATILE : 0) |
                           (bank == 64 && bits < 64 ? STITCH__IN_WIDE : 0));
    in->bytes_mask = load ? p->bytes_mask : release;
    memcpy(&in->o[load ? 0 : 1], v, sizeof(v));
    if (!ptx_address(p, address, in, at, space))
        return !p->failed;
    ptx_note_access(p, space, bits / 8, talks);
    return !p->failed;
}

static int atom_op(ptx_parser *p)
{
    static const char *const words[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};
    for (int i = 0; i < 10; i++)
        if (ptx_mod(p, words[i]))
            return i;
    return -1;
}

bool ptx_dec_atom(ptx_parser *p, int red)
{
    if (ptx_mod(p, "async"))
        return ptx_refuse(p, "is not supported");
    bool release = releases(p);
    ordering(p);
    hints(p);
    stitch__sim_space space = ptx_space(p);
    int op = atom_op(p);
    uint32_t vec = ptx_mod(p, "v2") ? 2 : ptx_mod(p, "v4") ? 4 : 1;
    stitch__num t = ptx_type(p);
    if (op < 0 || t == STITCH__NUM_NONE || ptx_num_bits(t) < 16 ||
        (space != STITCH__SIM_GENERIC && space != STITCH__SIM_GLOBAL && space != STITCH__SIM_SHARED))
        return ptx_refuse(p, "is not supported in this form");
    if (ptx_num_float(t) && op != STITCH__ATOM_ADD && op != STITCH__ATOM_MIN && op != STITCH__ATOM_MAX &&
        op != STITCH__ATOM_EXCH)
        return ptx_refuse(p, "is not supported for this type");
    if (vec > 1 && !red)
        return ptx_refuse(p, "is not supported for vectors");
    uint32_t at = red ? 0 : 1, bits = ptx_num_bits(t), want = at + 2 + (op == STITCH__ATOM_CAS);
    if (p->operand_count != want && p->operand_count != want + 1)
        return ptx_refuse(p, "has a wrong number of operands");
    uint32_t v[4] = {0}, c = 0;
    const ptx_operand *data = &p->operands[at + 1];
    if (vec > 1 && (data->kind != PTX_O_VEC || data->count != vec))
        return ptx_refuse(p, "has a vector of another size");
    for (uint32_t i = 0; i < vec; i++)
        v[i] = ptx_src(p, vec > 1 ? &p->sub[data->first + i] : data, t, bits);
    if (op == STITCH__ATOM_CAS)
        c = ptx_src(p, &p->operands[at + 2], t, bits);
    uint32_t d = red ? 0 : ptx_dst(p, &p->operands[0], bits);
    if (!red && p->operands[0].kind == PTX_O_SINK)
        d = 0;
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_atom, STITCH__SIM_CLASS_ATOMIC);
    if (!in)
        return !p->failed;
    in->space = (uint8_t)space;
    in->size = (uint8_t)(bits / 8);
    in->vec = (uint8_t)vec;
    in->sub = (uint8_t)op;
    in->sub2 = (uint8_t)t;
    in->flags |= STITCH__IN_VOLATILE;
    in->bytes_mask = release;
    in->ndef = 1;
    in->nops = 4;
    in->o[0] = d;
    in->o[2] = v[0];
    in->o[3] = c;
    if (vec > 1) {
        uint32_t *more = ptx_more(p, in, vec - 1);
        if (!more)
            return false;
        memcpy(more, &v[1], (vec - 1) * sizeof(uint32_t));
    }
    in->flops = ptx_num_float(t) && op == STITCH__ATOM_ADD ? vec : 0;
    uint8_t sub2 = in->sub2;
    if (!ptx_address(p, &p->operands[at], in, 1, space))
        return !p->failed;
    p->code[p->code_count - 1].sub2 = sub2;
    ptx_note_access(p, space, bits / 8, true);
    return !p->failed;
}

/* kind 0: no effect on results; 1: createpolicy, whose result nothing here reads; 2: as 0, without operands to check.
 */
bool ptx_dec_hint(ptx_parser *p, int kind)
{
    p->mod_used = (UINT64_C(1) << p->mod_count) - 1;
    if (kind == 1) {
        const ptx_operand *o = ptx_arg(p, 0);
        uint32_t d = ptx_dst(p, o, 64), zero = ptx_const(p, 0, true);
        if (ptx_refused(p))
            return !p->failed;
        stitch__instr *in = ptx_emit(p);
        if (!in)
            return false;
        in->op = STITCH__OP_MOV64;
        PTX_OPERANDS(in, 1, d, zero);
        in->cls = STITCH__SIM_CLASS_MOVE;
        return true;
    }
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_FN;
    in->u.fn = stitch__exec_nop;
    in->cls = STITCH__SIM_CLASS_CONTROL;
    return true;
}
