/* SPDX-License-Identifier: MIT
 *
 * Decoding of control flow: branches, calls, returns, traps.
 */
#include "sim/exec.h"
#include "sim/parse.h"

#define OP4(a, b, c, d) ((a) | (b) << 8 | (c) << 16 | (d) << 24)

static bool dec_brx(ptx_parser *p)
{
    if (!ptx_mod(p, "idx") || p->operand_count != 2 || p->operands[1].kind != PTX_O_SYM ||
        p->operands[1].symbol->kind != PTX_SYM_TABLE)
        return ptx_refuse(p, "is not supported in this form");
    ptx_mod(p, "uni");
    const ptx_table *t = &p->tables[p->operands[1].symbol->index];
    uint32_t a = ptx_src(p, &p->operands[0], STITCH__U32, 32);
    uint32_t *targets = stitch__arena_array(&p->m->arena, t->count, sizeof(uint32_t));
    if (!targets)
        return ptx_nomem(p);
    if (ptx_refused(p))
        return !p->failed;
    for (uint32_t i = 0; i < t->count; i++)
        if (!ptx_branch_fixup(p, 0, t->names[i], &targets[i]))
            return false;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = STITCH__OP_BRX;
    in->u.fn = stitch__exec_brx;
    PTX_OPERANDS(in, 0, a);
    in->data = targets;
    in->imm = t->count;
    in->cls = STITCH__SIM_CLASS_CONTROL;
    return true;
}

bool ptx_dec_control(ptx_parser *p, int op)
{
    if (op == OP4('b', 'r', 'x', 0))
        return dec_brx(p);
    bool uni = ptx_mod(p, "uni");
    uint32_t sleep = 0;
    if (op == OP4('n', 'a', 'n', 0)) {
        ptx_mod(p, "u32");
        if (p->operand_count != 1)
            return ptx_refuse(p, "has a wrong number of operands");
        sleep = ptx_src(p, &p->operands[0], STITCH__U32, 32);
    }
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->cls = STITCH__SIM_CLASS_CONTROL;
    in->flags |= uni ? STITCH__IN_UNI : 0;
    switch (op) {
    case OP4('b', 'r', 'a', 0):
        if (p->operand_count != 1 || p->operands[0].kind != PTX_O_NAME)
            return ptx_refuse(p, "needs a label");
        in->op = STITCH__OP_BRA;
        return ptx_branch_fixup(p, (uint32_t)(p->code_count - 1), p->operands[0].name, NULL);
    case OP4('r', 'e', 't', 0): in->op = STITCH__OP_RET; return true;
    case OP4('e', 'x', 'i', 't'): in->op = STITCH__OP_EXIT; return true;
    case OP4('n', 'a', 'n', 0):
        in->op = STITCH__OP_FN;
        in->u.fn = stitch__exec_nanosleep;
        PTX_OPERANDS(in, 0, sleep);
        return true;
    default: /* trap, brkpt */
        in->op = STITCH__OP_FN;
        in->u.fn = stitch__exec_trap;
        in->sub = op == OP4('b', 'r', 'k', 0);
        return true;
    }
}

/* Appends the scratch areas that a list of a call names. */
static bool call_list(ptx_parser *p, const ptx_operand *list, stitch__call *c)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const ptx_operand *o = &p->sub[list->first + i];
        if (o->kind == PTX_O_SINK)
            continue;
        if (o->kind != PTX_O_SYM || o->symbol->kind != PTX_SYM_SCRATCH)
            return false;
        c->piece[c->count].offset = o->symbol->index;
        c->piece[c->count++].size = (uint32_t)o->symbol->size;
    }
    return true;
}

bool ptx_dec_call(ptx_parser *p, int op)
{
    static const char *const builtins[] = {"", "vprintf", "__assertfail", "malloc", "free"};
    ptx_mod(p, "uni");
    uint32_t at = 0;
    const ptx_operand *returns = NULL, *args = NULL, *target;
    if (at < p->operand_count && p->operands[at].kind == PTX_O_LIST)
        returns = &p->operands[at++];
    target = ptx_arg(p, at++);
    if (!target)
        return !p->failed;
    if (at < p->operand_count && p->operands[at].kind == PTX_O_LIST)
        args = &p->operands[at++];
    uint32_t pieces = (returns ? returns->count : 0) + (args ? args->count : 0);
    stitch__call *c = stitch__arena_alloc(&p->m->arena, sizeof(*c) + pieces * sizeof(c->piece[0]));
    if (!c)
        return ptx_nomem(p);
    c->callee = UINT32_MAX;
    if (returns && !call_list(p, returns, c))
        return ptx_refuse(p, "has results that are not in parameter space");
    c->returns = c->count;
    if (args && !call_list(p, args, c))
        return ptx_refuse(p, "has arguments that are not in parameter space");
    uint32_t pointer = 0;
    stitch__sim_function *f = p->f;
    if (target->kind == PTX_O_SYM && target->symbol->kind == PTX_SYM_FUNC) {
        c->callee = target->symbol->index;
        const stitch__sim_function *g = p->m->functions[c->callee];
        for (uint8_t i = 1; i < STITCH__COUNT(builtins); i++)
            if (!g->has_body && g != f && strcmp(g->name, builtins[i]) == 0)
                c->builtin = i;
        if (!c->builtin) {
            if (stitch__grow(p->m->ctx, &f->callees, &f->callee_cap, f->callee_count + 1, sizeof(*f->callees)))
                return ptx_nomem(p);
            f->callees[f->callee_count++] = c->callee;
        }
        f->prints |= c->builtin == STITCH__BUILTIN_VPRINTF;
        if (c->builtin >= STITCH__BUILTIN_MALLOC)
            return ptx_refuse(p, "of %s is not supported: device-side allocation", g->name);
    } else if (target->kind == PTX_O_REG) {
        pointer = ptx_src(p, target, STITCH__U64, 64);
        f->calls_pointer = true;
    } else {
        return ptx_refuse(p, "has a target that is no function");
    }
    if (ptx_refused(p))
        return !p->failed;
    stitch__instr *in = ptx_emit(p);
    if (!in)
        return false;
    in->op = c->builtin ? STITCH__OP_FN : STITCH__OP_CALL;
    in->u.fn = stitch__exec_call;
    PTX_OPERANDS(in, 0, pointer);
    in->data = c;
    in->cls = STITCH__SIM_CLASS_CONTROL;
    return true;
}
