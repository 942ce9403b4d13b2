/* SPDX-License-Identifier: MIT
 *
 * Decoding of asynchronous copies and mbarriers. Addresses become one 64-bit register each: global addresses, or shared
 * ones as offsets with the rank of the block in front.
 */
#include "sim/alu.h"
#include "sim/exec.h"
#include "sim/parse.h"

uint32_t ptx_address64(ptx_parser *p, const ptx_operand *o, stitch__sim_space space)
{
    if (!o || o->kind != PTX_O_ADDR || o->count < 1) {
        ptx_refuse(p, "needs an address in brackets");
        return 0;
    }
    ptx_operand base = p->sub[o->first];
    int64_t imm = base.imm;
    uint32_t r;
    base.imm = 0;
    if (base.kind == PTX_O_REG && base.bank == STITCH__BANK_32) {
        r = ptx_vreg(p, STITCH__BANK_64);
        if (!ptx_emit_alu(p, STITCH__ALU_ZX32_64, r, base.reg | STITCH__OPD_REG, 0, 0))
            return 0;
    } else if (base.kind == PTX_O_SYM && base.symbol->kind == PTX_SYM_PARAM) {
        r = ptx_const(p, STITCH__SIM_PARAM_WINDOW + base.symbol->index, true);
    } else if (base.kind == PTX_O_SYM && base.symbol->kind == PTX_SYM_SHARED) {
        r = ptx_src(p, &base, STITCH__U64, 64);
        imm += space == STITCH__SIM_SHARED ? 0 : (int64_t)STITCH__SIM_SHARED_WINDOW;
    } else {
        r = ptx_src(p, &base, STITCH__U64, 64);
    }
    if (imm && !ptx_refused(p)) {
        uint32_t t = ptx_vreg(p, STITCH__BANK_64);
        if (!ptx_emit_alu(p, STITCH__ALU_ADD64, t, r, ptx_const(p, (uint64_t)imm, true), 0))
            return 0;
        r = t;
    }
    return r;
}

static stitch__instr *emit_fn(ptx_parser *p, stitch__exec_fn fn, stitch__sim_class cls, const uint32_t o[5],
                              uint8_t ndef)
{
    stitch__instr *in = ptx_emit_fn(p, fn, cls);
    if (in)
        ptx_operands(in, ndef, o, 5);
    return in;
}

static void cache_hints(ptx_parser *p)
{
    ptx_mod(p, "L2::cache_hint");
    while (ptx_mod_prefix(p, "L2::", NULL)) {
    }
}

static bool dec_cp_async(ptx_parser *p)
{
    uint32_t o[5] = {0};
    if (ptx_mod(p, "commit_group")) {
        return emit_fn(p, stitch__exec_cpasync_commit, STITCH__SIM_CLASS_ASYNC, o, 0) || ptx_refused(p);
    }
    bool all = ptx_mod(p, "wait_all");
    if (all || ptx_mod(p, "wait_group")) {
        if (!all && (p->operand_count != 1 || p->operands[0].kind != PTX_O_INT))
            return ptx_refuse(p, "needs a constant");
        stitch__instr *in = emit_fn(p, stitch__exec_cpasync_wait, STITCH__SIM_CLASS_ASYNC, o, 0);
        if (in) {
            in->imm = all ? 0 : (int64_t)(p->operands[0].value > 1000 ? 1000 : p->operands[0].value);
            in->sub = all;
        }
        return in || ptx_refused(p);
    }
    if (ptx_mod(p, "mbarrier")) {
        ptx_mod(p, "arrive");
        bool noinc = ptx_mod(p, "noinc");
        stitch__sim_space space = ptx_space(p);
        ptx_mod(p, "b64");
        o[0] = ptx_address64(p, ptx_arg(p, 0), space);
        stitch__instr *in = emit_fn(p, stitch__exec_cpasync_mbar, STITCH__SIM_CLASS_ASYNC, o, 0);
        if (in) {
            in->sub = noinc;
            in->space = (uint8_t)space;
        }
        return in || ptx_refused(p);
    }
    ptx_mod(p, "ca");
    ptx_mod(p, "cg");
    cache_hints(p);
    if (!(ptx_mod(p, "shared") || ptx_mod(p, "shared::cta")) || !ptx_mod(p, "global") || p->operand_count < 3 ||
        p->operands[2].kind != PTX_O_INT)
        return ptx_refuse(p, "is not supported in this form");
    uint64_t size = p->operands[2].value;
    if (size != 4 && size != 8 && size != 16)
        return ptx_refuse(p, "copies 4, 8 or 16 bytes");
    o[0] = ptx_address64(p, &p->operands[0], STITCH__SIM_SHARED);
    o[1] = ptx_address64(p, &p->operands[1], STITCH__SIM_GLOBAL);
    if (p->operand_count > 3) { /* a source size, a predicate that ignores the source, or a cache policy */
        const ptx_operand *e = &p->operands[3];
        if (e->kind == PTX_O_REG && e->bank == STITCH__BANK_PRED)
            o[3] = ptx_src_pred(p, e);
        else if (!(e->kind == PTX_O_REG && e->bank == STITCH__BANK_64))
            o[2] = ptx_src(p, e, STITCH__U32, 32);
    }
    stitch__instr *in = emit_fn(p, stitch__exec_cpasync, STITCH__SIM_CLASS_ASYNC, o, 0);
    if (!in)
        return ptx_refused(p);
    in->size = (uint8_t)size;
    in->space = STITCH__SIM_GLOBAL;
    ptx_note_access(p, STITCH__SIM_SHARED, (uint32_t)size, false);
    ptx_note_access(p, STITCH__SIM_GLOBAL, (uint32_t)size, false);
    return true;
}

static int reduction(ptx_parser *p)
{
    static const char *const words[] = {"add", "min", "max", "and", "or", "xor", "", "", "inc", "dec"};
    for (int i = 0; i < 10; i++)
        if (words[i][0] && ptx_mod(p, words[i]))
            return i;
    return -1;
}

static bool dec_tensor(ptx_parser *p, bool reduce)
{
    static const char *const dims[] = {"1d", "2d", "3d", "4d", "5d"};
    stitch__bulk k = {0};
    uint32_t o[5] = {0};
    for (uint8_t i = 0; i < 5; i++)
        if (ptx_mod(p, dims[i]))
            k.rank = i + 1;
    ptx_mod(p, "tile");
    if (!k.rank)
        return ptx_refuse(p, "is not supported in this form");
    bool load = p->mod_count > 0 && (ptx_mod(p, "mbarrier::complete_tx::bytes"));
    bool store = !load && ptx_mod(p, "bulk_group");
    if (!load && !store)
        return ptx_refuse(p, "is not supported in this form");
    k.kind = load ? STITCH__FLIGHT_LOAD : STITCH__FLIGHT_STORE;
    k.multicast = ptx_mod(p, "multicast::cluster");
    ptx_mod(p, "shared::cluster");
    ptx_mod(p, "shared::cta");
    ptx_mod(p, "global");
    cache_hints(p);
    if (reduce) {
        int op = reduction(p);
        if (op < 0)
            return ptx_refuse(p, "is not supported with this operation");
        k.reduce = true;
        k.redop = (uint8_t)op;
    }
    const ptx_operand *map = ptx_arg(p, load ? 1 : 0), *data = ptx_arg(p, load ? 0 : 1);
    if (!map || !data || map->kind != PTX_O_ADDR || map->count != 2 || p->sub[map->first + 1].kind != PTX_O_VEC ||
        p->sub[map->first + 1].count != k.rank)
        return ptx_refuse(p, "needs a tensor map and its coordinates");
    uint32_t coord[5];
    const ptx_operand *c = &p->sub[map->first + 1];
    for (uint32_t i = 0; i < k.rank; i++)
        coord[i] = ptx_src(p, &p->sub[c->first + i], STITCH__S32, 32);
    o[0] = ptx_address64(p, data, STITCH__SIM_SHARED);
    o[1] = ptx_address64(p, map, STITCH__SIM_GENERIC);
    if (load) {
        o[3] = ptx_address64(p, ptx_arg(p, 2), STITCH__SIM_SHARED);
        if (k.multicast)
            o[4] = ptx_src(p, ptx_arg(p, 3), STITCH__U16, 16);
    }
    stitch__bulk *keep = stitch__arena_alloc(&p->m->arena, sizeof(*keep));
    stitch__instr *in = keep ? emit_fn(p, stitch__exec_bulk, STITCH__SIM_CLASS_ASYNC, o, 0) : NULL;
    uint32_t *more = in ? ptx_more(p, in, k.rank) : NULL;
    if (!more)
        return ptx_refused(p) && !p->failed;
    memcpy(more, coord, k.rank * sizeof(uint32_t));
    *keep = k;
    in->data = keep;
    in->space = STITCH__SIM_GLOBAL;
    ptx_note_access(p, STITCH__SIM_SHARED, 4, false);
    return true;
}

static bool dec_bulk(ptx_parser *p, bool reduce)
{
    stitch__bulk k = {0};
    uint32_t o[5] = {0};
    if (ptx_mod(p, "commit_group"))
        return emit_fn(p, stitch__exec_bulk_commit, STITCH__SIM_CLASS_ASYNC, o, 0) || ptx_refused(p);
    if (ptx_mod(p, "wait_group")) {
        ptx_mod(p, "read");
        if (p->operand_count != 1 || p->operands[0].kind != PTX_O_INT)
            return ptx_refuse(p, "needs a constant");
        stitch__instr *in = emit_fn(p, stitch__exec_bulk_wait, STITCH__SIM_CLASS_ASYNC, o, 0);
        if (in)
            in->imm = (int64_t)(p->operands[0].value > 1000 ? 1000 : p->operands[0].value);
        return in || ptx_refused(p);
    }
    if (ptx_mod(p, "prefetch"))
        return ptx_dec_hint(p, 0);
    if (ptx_mod(p, "tensor"))
        return dec_tensor(p, reduce);
    bool mbarrier = ptx_mod(p, "mbarrier::complete_tx::bytes"), group = !mbarrier && ptx_mod(p, "bulk_group");
    k.multicast = ptx_mod(p, "multicast::cluster");
    cache_hints(p);
    ptx_mod(p, "noftz");
    if (reduce) {
        int op = reduction(p);
        stitch__num t = ptx_type(p);
        if (op < 0 || t == STITCH__NUM_NONE)
            return ptx_refuse(p, "is not supported with this operation");
        k.reduce = true;
        k.redop = (uint8_t)op;
        k.rednum = (uint8_t)t;
    }
    bool global = ptx_mod(p, "global"), cta = ptx_mod(p, "shared::cta"), cluster = ptx_mod(p, "shared::cluster");
    if ((!mbarrier && !group) || p->operand_count < (mbarrier ? 4u : 3u))
        return ptx_refuse(p, "is not supported in this form");
    if (mbarrier && global)
        k.kind = STITCH__FLIGHT_LOAD;
    else if (group && global && cta)
        k.kind = STITCH__FLIGHT_STORE;
    else if (mbarrier && cta && cluster)
        k.kind = STITCH__FLIGHT_SHARED;
    else
        return ptx_refuse(p, "is not supported in this form");
    if (k.reduce && k.kind == STITCH__FLIGHT_LOAD)
        return ptx_refuse(p, "is not supported in this form");
    bool store = k.kind == STITCH__FLIGHT_STORE;
    o[0] = ptx_address64(p, &p->operands[store ? 1 : 0], STITCH__SIM_SHARED);
    o[1] = ptx_address64(p, &p->operands[store ? 0 : 1],
                         k.kind == STITCH__FLIGHT_SHARED ? STITCH__SIM_SHARED : STITCH__SIM_GLOBAL);
    o[2] = ptx_src(p, &p->operands[2], STITCH__U32, 32);
    if (mbarrier)
        o[3] = ptx_address64(p, &p->operands[3], STITCH__SIM_SHARED);
    if (k.multicast)
        o[4] = ptx_src(p, ptx_arg(p, 4), STITCH__U16, 16);
    stitch__bulk *keep = stitch__arena_alloc(&p->m->arena, sizeof(*keep));
    stitch__instr *in = keep ? emit_fn(p, stitch__exec_bulk, STITCH__SIM_CLASS_ASYNC, o, 0) : NULL;
    if (!in)
        return ptx_refused(p) && !p->failed;
    *keep = k;
    in->data = keep;
    in->space = STITCH__SIM_GLOBAL;
    ptx_note_access(p, STITCH__SIM_SHARED, 4, false);
    return true;
}

bool ptx_dec_cp(ptx_parser *p, int op)
{
    bool reduce = ptx_mod(p, "reduce");
    if (!ptx_mod(p, "async"))
        return ptx_refuse(p, "is not supported");
    if (ptx_mod(p, "bulk"))
        return dec_bulk(p, reduce);
    return reduce ? ptx_refuse(p, "is not supported") : dec_cp_async(p);
}

/* ---- mbarriers --------------------------------------------------------------------------------------------------- */

static void order_mods(ptx_parser *p)
{
    static const char *const words[] = {"release", "acquire", "relaxed", "cta", "cluster", "b64"};
    for (size_t i = 0; i < STITCH__COUNT(words); i++)
        ptx_mod(p, words[i]);
}

static bool dec_mbar_wait(ptx_parser *p)
{
    uint32_t o[5] = {0};
    bool parity = ptx_mod(p, "parity");
    order_mods(p);
    stitch__sim_space space = ptx_space(p);
    if (p->operand_count < 3)
        return ptx_refuse(p, "is not supported in this form");
    o[0] = ptx_dst(p, &p->operands[0], 1);
    o[1] = ptx_address64(p, &p->operands[1], space);
    o[2] = ptx_src(p, &p->operands[2], parity ? STITCH__U32 : STITCH__U64, parity ? 32 : 64);
    stitch__instr *in = emit_fn(p, stitch__exec_mbar_test, STITCH__SIM_CLASS_BARRIER, o, 1);
    if (in) {
        in->sub = parity;
        in->space = (uint8_t)space;
    }
    return in || ptx_refused(p);
}

static bool dec_mbar_arrive(ptx_parser *p, uint8_t kind)
{
    uint32_t o[5] = {0};
    ptx_mod(p, "noComplete");
    if (ptx_mod(p, "expect_tx"))
        kind = STITCH__MBAR_EXPECT_ARRIVE;
    order_mods(p);
    stitch__sim_space space = ptx_space(p);
    uint32_t at = 0;
    bool value = kind == STITCH__MBAR_ARRIVE || kind == STITCH__MBAR_EXPECT_ARRIVE || kind == STITCH__MBAR_DROP;
    if (value && p->operand_count > 0 && p->operands[0].kind != PTX_O_ADDR) {
        if (p->operands[0].kind != PTX_O_SINK)
            o[0] = ptx_dst(p, &p->operands[0], 64);
        at = 1;
    }
    o[1] = ptx_address64(p, ptx_arg(p, at), space);
    if (at + 1 < p->operand_count)
        o[2] = ptx_src(p, &p->operands[at + 1], STITCH__U32, 32);
    else
        o[2] = ptx_const(p, 1, false);
    stitch__instr *in = emit_fn(p, stitch__exec_mbar_arrive, STITCH__SIM_CLASS_BARRIER, o, 1);
    if (in) {
        in->sub = kind;
        in->space = (uint8_t)space;
    }
    return in || ptx_refused(p);
}

bool ptx_dec_mbarrier(ptx_parser *p, int op)
{
    uint32_t o[5] = {0};
    if (ptx_mod(p, "test_wait") || ptx_mod(p, "try_wait"))
        return dec_mbar_wait(p);
    if (ptx_mod(p, "arrive"))
        return dec_mbar_arrive(p, STITCH__MBAR_ARRIVE);
    if (ptx_mod(p, "arrive_drop"))
        return dec_mbar_arrive(p, STITCH__MBAR_DROP);
    if (ptx_mod(p, "expect_tx"))
        return dec_mbar_arrive(p, STITCH__MBAR_EXPECT);
    if (ptx_mod(p, "complete_tx"))
        return dec_mbar_arrive(p, STITCH__MBAR_COMPLETE);
    if (ptx_mod(p, "pending_count")) {
        ptx_mod(p, "b64");
        o[0] = ptx_dst(p, ptx_arg(p, 0), 32);
        o[1] = ptx_src(p, ptx_arg(p, 1), STITCH__U64, 64);
        return emit_fn(p, stitch__exec_mbar_pending, STITCH__SIM_CLASS_BARRIER, o, 1) || ptx_refused(p);
    }
    bool init = ptx_mod(p, "init");
    if (!init && !ptx_mod(p, "inval"))
        return ptx_refuse(p, "is not supported");
    order_mods(p);
    stitch__sim_space space = ptx_space(p);
    o[1] = ptx_address64(p, ptx_arg(p, 0), space);
    if (init)
        o[2] = ptx_src(p, ptx_arg(p, 1), STITCH__U32, 32);
    stitch__instr *in =
        emit_fn(p, init ? stitch__exec_mbar_init : stitch__exec_mbar_inval, STITCH__SIM_CLASS_BARRIER, o, 0);
    if (in)
        in->space = (uint8_t)space;
    return in || ptx_refused(p);
}
