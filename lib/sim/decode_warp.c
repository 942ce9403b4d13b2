/* SPDX-License-Identifier: MIT
 *
 * Decoding of warp-wide instructions, barriers and fences.
 */
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

static const ptx_operand *pair_of(ptx_parser *p, const ptx_operand *o)
{
    return o && o->pair >= 0 ? &p->sub[o->pair] : NULL;
}

static bool dec_shfl(ptx_parser *p)
{
    bool sync = ptx_mod(p, "sync");
    int mode = ptx_mod(p, "idx")    ? STITCH__SHFL_IDX
               : ptx_mod(p, "up")   ? STITCH__SHFL_UP
               : ptx_mod(p, "down") ? STITCH__SHFL_DOWN
               : ptx_mod(p, "bfly") ? STITCH__SHFL_BFLY
                                    : -1;
    ptx_mod(p, "b32");
    if (mode < 0 || !sync || p->operand_count != 5)
        return ptx_refuse(p, "is not supported in this form");
    const ptx_operand *q = pair_of(p, &p->operands[0]);
    uint32_t a = ptx_src(p, &p->operands[1], STITCH__U32, 32), b = ptx_src(p, &p->operands[2], STITCH__U32, 32);
    uint32_t c = ptx_src(p, &p->operands[3], STITCH__U32, 32), m = ptx_src(p, &p->operands[4], STITCH__U32, 32);
    uint32_t d = ptx_dst(p, &p->operands[0], 32), pred = q ? ptx_dst(p, q, 1) : 0;
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_shfl, STITCH__SIM_CLASS_WARP);
    uint32_t *more = in ? ptx_more(p, in, 1) : NULL;
    if (!more)
        return false;
    in->sub = (uint8_t)mode;
    PTX_OPERANDS(in, 2, d, pred, a, b, c);
    more[0] = m;
    return true;
}

static bool dec_vote(ptx_parser *p)
{
    bool sync = ptx_mod(p, "sync");
    int mode = ptx_mod(p, "all")      ? STITCH__VOTE_ALL
               : ptx_mod(p, "any")    ? STITCH__VOTE_ANY
               : ptx_mod(p, "uni")    ? STITCH__VOTE_UNI
               : ptx_mod(p, "ballot") ? STITCH__VOTE_BALLOT
                                      : -1;
    if (!ptx_mod(p, "pred"))
        ptx_mod(p, "b32");
    if (mode < 0 || !sync || p->operand_count != 3)
        return ptx_refuse(p, "is not supported in this form");
    uint32_t a = ptx_src_pred(p, &p->operands[1]), m = ptx_src(p, &p->operands[2], STITCH__U32, 32);
    uint32_t d = ptx_dst(p, &p->operands[0], mode == STITCH__VOTE_BALLOT ? 32 : 1);
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_vote, STITCH__SIM_CLASS_WARP);
    if (!in)
        return !p->failed;
    in->sub = (uint8_t)mode;
    PTX_OPERANDS(in, 1, d, a, m);
    return true;
}

static bool dec_match(ptx_parser *p)
{
    bool all = ptx_mod(p, "all"), sync = ptx_mod(p, "sync");
    if (!all)
        ptx_mod(p, "any");
    stitch__num t = ptx_type(p);
    uint32_t bits = ptx_num_bits(t);
    if (!sync || bits < 32 || p->operand_count != 3)
        return ptx_refuse(p, "is not supported in this form");
    const ptx_operand *q = pair_of(p, &p->operands[0]);
    uint32_t a = ptx_src(p, &p->operands[1], t, bits), m = ptx_src(p, &p->operands[2], STITCH__U32, 32);
    uint32_t d = ptx_dst(p, &p->operands[0], 32), pred = q ? ptx_dst(p, q, 1) : 0;
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_match, STITCH__SIM_CLASS_WARP);
    if (!in)
        return !p->failed;
    in->sub = all ? STITCH__MATCH_ALL : STITCH__MATCH_ANY;
    in->size = (uint8_t)(bits / 8);
    PTX_OPERANDS(in, 2, d, pred, a, m);
    return true;
}

static bool dec_redux(ptx_parser *p)
{
    static const char *const words[] = {"add", "min", "max", "and", "or", "xor"};
    int op = -1;
    ptx_mod(p, "sync");
    for (int i = 0; i < 6; i++)
        if (ptx_mod(p, words[i]))
            op = i;
    bool abs = ptx_mod(p, "abs"), nan = ptx_mod(p, "NaN");
    stitch__num t = ptx_type(p);
    if (op < 0 || ptx_num_bits(t) != 32 || (t != STITCH__U32 && t != STITCH__S32 && t != STITCH__F32) ||
        p->operand_count != 3 || (t == STITCH__F32 && op != STITCH__ATOM_MIN && op != STITCH__ATOM_MAX))
        return ptx_refuse(p, "is not supported in this form");
    uint32_t a = ptx_src(p, &p->operands[1], t, 32), m = ptx_src(p, &p->operands[2], STITCH__U32, 32);
    uint32_t d = ptx_dst(p, &p->operands[0], 32);
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_redux, STITCH__SIM_CLASS_WARP);
    if (!in)
        return !p->failed;
    in->sub = (uint8_t)op;
    in->sub2 = (uint8_t)t;
    in->imm = abs | nan << 1;
    PTX_OPERANDS(in, 1, d, a, m);
    return true;
}

bool ptx_dec_warp(ptx_parser *p, int op)
{
    switch (op) {
    case OP4('s', 'h', 'f', 0): return dec_shfl(p);
    case OP4('v', 'o', 't', 0): return dec_vote(p);
    case OP4('m', 'a', 't', 0): return dec_match(p);
    case OP4('r', 'e', 'd', 0): return dec_redux(p);
    case OP4('e', 'l', 'e', 0): {
        ptx_mod(p, "sync");
        if (p->operand_count != 2)
            return ptx_refuse(p, "has a wrong number of operands");
        const ptx_operand *q = pair_of(p, &p->operands[0]);
        uint32_t d = ptx_dst(p, &p->operands[0], 32), pred = q ? ptx_dst(p, q, 1) : 0;
        uint32_t m = ptx_src(p, &p->operands[1], STITCH__U32, 32);
        stitch__instr *in = ptx_emit_fn(p, stitch__exec_elect, STITCH__SIM_CLASS_WARP);
        if (!in)
            return !p->failed;
        PTX_OPERANDS(in, 2, d, pred, m);
        return true;
    }
    default: {
        ptx_mod(p, "b32");
        uint32_t d = ptx_dst(p, ptx_arg(p, 0), 32);
        stitch__instr *in = ptx_emit_fn(p, stitch__exec_activemask, STITCH__SIM_CLASS_WARP);
        if (!in)
            return !p->failed;
        PTX_OPERANDS(in, 1, d);
        return true;
    }
    }
}

static bool dec_fence(ptx_parser *p)
{
    bool wide = ptx_mod(p, "gl") || ptx_mod(p, "sys") || ptx_mod(p, "gpu") || ptx_mod(p, "cluster");
    bool cta = ptx_mod(p, "cta");
    bool proxy = ptx_mod(p, "proxy");
    if (proxy || !(wide || cta))
        p->mod_used = (UINT64_C(1) << p->mod_count) - 1; /* orders other proxies: accesses here have one proxy only */
    ptx_mod(p, "sc");
    ptx_mod(p, "acq_rel");
    ptx_mod(p, "acquire");
    ptx_mod(p, "release");
    ptx_mod_prefix(p, "sync_restrict", NULL);
    ptx_mod(p, "mbarrier_init");
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_fence, STITCH__SIM_CLASS_BARRIER);
    if (!in)
        return !p->failed;
    in->sub = wide && !proxy;
    in->sub2 = proxy;
    if (wide && !proxy)
        p->f->may_talk = true;
    return true;
}

static bool dec_cluster(ptx_parser *p)
{
    bool arrive = ptx_mod(p, "arrive"), wait = !arrive && ptx_mod(p, "wait");
    bool aligned = ptx_mod(p, "aligned");
    ptx_mod(p, "release");
    ptx_mod(p, "acquire");
    ptx_mod(p, "relaxed");
    if (!arrive && !wait)
        return ptx_refuse(p, "is not supported in this form");
    stitch__instr *in =
        ptx_emit_fn(p, arrive ? stitch__exec_cluster_arrive : stitch__exec_cluster_wait, STITCH__SIM_CLASS_BARRIER);
    if (!in)
        return false;
    in->sub2 = aligned;
    return true;
}

bool ptx_dec_barrier(ptx_parser *p, int op)
{
    if (op == OP4('f', 'e', 'n', 0) || op == OP4('m', 'e', 'm', 0))
        return dec_fence(p);
    if (ptx_mod(p, "warp")) {
        ptx_mod(p, "sync");
        uint32_t m = ptx_src(p, ptx_arg(p, 0), STITCH__U32, 32);
        stitch__instr *in = ptx_emit_fn(p, stitch__exec_barwarp, STITCH__SIM_CLASS_BARRIER);
        if (!in)
            return !p->failed;
        PTX_OPERANDS(in, 0, m);
        return true;
    }
    if (ptx_mod(p, "cluster"))
        return dec_cluster(p);
    ptx_mod(p, "cta");
    bool aligned = ptx_mod(p, "aligned") || op == OP4('b', 'a', 'r', 0);
    bool sync = ptx_mod(p, "sync"), arrive = ptx_mod(p, "arrive"), red = ptx_mod(p, "red");
    int kind = sync ? STITCH__BAR_SYNC : arrive ? STITCH__BAR_ARRIVE : -1;
    uint32_t at = 0, d = 0, pred = 0, id, count = 0, end = p->operand_count;
    if (red) {
        kind = ptx_mod(p, "popc")  ? STITCH__BAR_POPC
               : ptx_mod(p, "and") ? STITCH__BAR_AND
               : ptx_mod(p, "or")  ? STITCH__BAR_OR
                                   : -1;
        ptx_mod(p, "u32");
        ptx_mod(p, "pred");
        if (kind < 0 || p->operand_count < 3)
            return ptx_refuse(p, "is not supported in this form");
        d = ptx_dst(p, &p->operands[0], kind == STITCH__BAR_POPC ? 32 : 1);
        pred = ptx_src_pred(p, &p->operands[--end]);
        at = 1;
    }
    if (kind < 0 || end < at + 1 || end > at + 2)
        return ptx_refuse(p, "is not supported in this form");
    id = ptx_src(p, &p->operands[at], STITCH__U32, 32);
    if (end == at + 2)
        count = ptx_src(p, &p->operands[at + 1], STITCH__U32, 32);
    stitch__instr *in = ptx_emit_fn(p, stitch__exec_bar, STITCH__SIM_CLASS_BARRIER);
    if (!in)
        return !p->failed;
    in->sub = (uint8_t)kind;
    in->sub2 = aligned;
    PTX_OPERANDS(in, 1, d, id, count, pred);
    return true;
}
