/* SPDX-License-Identifier: MIT
 *
 * Whether a kernel waits for the matrix products (wgmma) that it starts. The products themselves are computed at once;
 * what is kept is which registers and which shared memory they may still use.
 *
 * Registers: a pass over a decoded function numbers those that wgmma uses, and all that are moved to or from them
 * (compilers move accumulators about freely, also where that costs no instruction in the end: a move passes on what is
 * known of a register and is no use of it). In front of the instructions that touch them it puts notes, which look at
 * what is in progress when the kernel runs. Functions without wgmma have none.
 *
 * Shared memory: for each 16 bytes the product that read them last.
 *
 * The four warps of a warpgroup make one product together, so none begins it before all four have come to it. From
 * there on each computes its part by itself, so a wait has to last until all four have, or the first of them could
 * overwrite what the others have yet to read.
 */
#include "sim/flow.h"

#include "sim/exec.h"

enum { RING = 64 };
typedef enum touch { READS, WRITES, MOVES, ACCUMULATES, MULTIPLIES } touch;

typedef struct item {
    uint32_t place;
    uint32_t reg, from; /* numbers from 1; from: of a move, 0: something else */
    uint8_t how;        /* touch */
} item;

typedef struct note {
    uint32_t count;
    bool product; /* the wgmma itself */
    item items[];
} note;

struct stitch__products {
    uint32_t issued, done, commits; /* products begun; the last one waited for; groups */
    uint32_t base;                  /* products begun before this block */
    uint32_t arrived;               /* products of this block that the warp has come to */
    uint32_t fence;                 /* products begun before the last wgmma.fence, + 1; 0: there was none */
    uint32_t last[RING];            /* of a group */
    stitch__pending who[RING];
};

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

typedef struct pass {
    stitch__sim_function *f;
    uint32_t *number; /* of a virtual register; 0: not of interest */
    uint32_t count;
    uint8_t *leader;
    note **notes; /* in front of an instruction */
    uint32_t note_count;
    item *run; /* of the note that is being filled */
    size_t run_count, run_cap;
    uint32_t run_at; /* where it goes; UINT32_MAX: none */
} pass;

static bool is_product(const stitch__instr *in)
{
    return in->op == STITCH__OP_FN && in->u.fn == stitch__exec_wgmma;
}

static bool is_move(const stitch__instr *in)
{
    return in->op == STITCH__OP_MOV32;
}

static uint32_t register_of(uint32_t o)
{
    return (o & STITCH__OPD_KIND) == STITCH__OPD_REG ? o & STITCH__OPD_INDEX : UINT32_MAX;
}

static uint32_t number_of(const pass *p, uint32_t o)
{
    uint32_t r = register_of(o);
    return r == UINT32_MAX ? 0 : p->number[r];
}

static bool add_register(pass *p, uint32_t o)
{
    uint32_t r = register_of(o);
    if (r == UINT32_MAX || p->number[r])
        return false;
    p->number[r] = ++p->count;
    return true;
}

static void number_registers(pass *p)
{
    bool more = true;
    for (uint32_t i = 0; i < p->f->code_count; i++) {
        const stitch__instr *in = &p->f->code[i];
        if (!is_product(in))
            continue;
        const stitch__matrix *m = in->data;
        for (uint32_t k = 0; k < m->nd; k++)
            add_register(p, in->more[k]);
        for (uint32_t k = 0; !m->a_smem && k < m->na; k++)
            add_register(p, in->more[2 * m->nd + k]);
    }
    while (more) {
        more = false;
        for (uint32_t i = 0; i < p->f->code_count; i++) {
            const stitch__instr *in = &p->f->code[i];
            if (!is_move(in))
                continue;
            if (number_of(p, in->o[1]))
                more |= add_register(p, in->o[0]);
            else if (number_of(p, in->o[0]))
                more |= add_register(p, in->o[1]);
        }
    }
}

static int add_item(pass *p, const stitch__instr *in, uint32_t reg, uint32_t from, touch how)
{
    int rc = stitch__grow(p->f->module->ctx, &p->run, &p->run_cap, p->run_count + 1, sizeof(*p->run));
    if (rc == STITCH_OK)
        p->run[p->run_count++] = (item){.place = in->place, .reg = reg, .from = from, .how = (uint8_t)how};
    return rc;
}

static int close_run(pass *p, bool product)
{
    if (p->run_at == UINT32_MAX)
        return STITCH_OK;
    note *n = stitch__arena_alloc(&p->f->module->arena, sizeof(*n) + p->run_count * sizeof(item));
    if (!n)
        return STITCH_E_NOMEM;
    n->count = (uint32_t)p->run_count;
    n->product = product;
    memcpy(n->items, p->run, p->run_count * sizeof(item));
    p->notes[p->run_at] = n;
    p->note_count++;
    p->run_count = 0;
    p->run_at = UINT32_MAX;
    return STITCH_OK;
}

static int add_product(pass *p, uint32_t i)
{
    const stitch__instr *in = &p->f->code[i];
    const stitch__matrix *m = in->data;
    int rc = close_run(p, false);
    p->run_at = i;
    for (uint32_t k = 0; rc == STITCH_OK && !m->a_smem && k < m->na; k++)
        if (number_of(p, in->more[2 * m->nd + k]))
            rc = add_item(p, in, number_of(p, in->more[2 * m->nd + k]), 0, MULTIPLIES);
    for (uint32_t k = 0; rc == STITCH_OK && k < m->nd; k++)
        if (number_of(p, in->more[k]))
            rc = add_item(p, in, number_of(p, in->more[k]), 0, ACCUMULATES);
    return rc ? rc : close_run(p, true);
}

/* The registers of interest of any other instruction. */
static int add_touches(pass *p, uint32_t i)
{
    const stitch__instr *in = &p->f->code[i];
    uint32_t total = (uint32_t)in->nops + in->nmore;
    bool any = false;
    for (uint32_t k = 0; k < total; k++)
        any |= number_of(p, k < in->nops ? in->o[k] : in->more[k - in->nops]) != 0;
    if (!any)
        return STITCH_OK;
    int rc = in->guard ? close_run(p, false) : STITCH_OK;
    if (p->run_at == UINT32_MAX)
        p->run_at = i;
    if (rc == STITCH_OK && is_move(in) && number_of(p, in->o[0])) {
        rc = add_item(p, in, number_of(p, in->o[0]), number_of(p, in->o[1]), MOVES);
    } else {
        for (uint32_t k = total; rc == STITCH_OK && k-- > 0;) { /* what is read first */
            uint32_t r = number_of(p, k < in->nops ? in->o[k] : in->more[k - in->nops]);
            if (r)
                rc = add_item(p, in, r, 0, k < in->ndef ? WRITES : READS);
        }
    }
    return rc == STITCH_OK && in->guard ? close_run(p, false) : rc;
}

static int find_notes(pass *p)
{
    stitch__sim_function *f = p->f;
    int rc = STITCH_OK;
    for (uint32_t i = 0; i < f->code_count; i++) {
        const stitch__instr *in = &f->code[i];
        if (in->op == STITCH__OP_BRA)
            p->leader[in->imm] = 1;
        for (int64_t k = 0; in->op == STITCH__OP_BRX && k < in->imm; k++)
            p->leader[((const uint32_t *)in->data)[k]] = 1;
    }
    p->run_at = UINT32_MAX;
    for (uint32_t i = 0; rc == STITCH_OK && i < f->code_count; i++) {
        const stitch__instr *in = &f->code[i];
        if (p->leader[i])
            rc = close_run(p, false);
        if (rc == STITCH_OK)
            rc = is_product(in) ? add_product(p, i) : add_touches(p, i);
        bool ends = in->op == STITCH__OP_BRA || in->op == STITCH__OP_BRX || in->op == STITCH__OP_RET ||
                    in->op == STITCH__OP_EXIT || in->op == STITCH__OP_CALL ||
                    (in->op == STITCH__OP_FN && in->u.fn == stitch__exec_wgmma_sync);
        if (rc == STITCH_OK && ends)
            rc = close_run(p, false);
    }
    return rc ? rc : close_run(p, false);
}

static int insert_notes(pass *p)
{
    stitch__sim_function *f = p->f;
    uint32_t *where = stitch__calloc(f->module->ctx, f->code_count + 1u, sizeof(*where)), at = 0;
    stitch__instr *code = stitch__calloc(f->module->ctx, f->code_count + p->note_count, sizeof(*code));
    if (!where || !code) {
        stitch_free(where);
        stitch_free(code);
        return STITCH_E_NOMEM;
    }
    for (uint32_t i = 0; i < f->code_count; i++) {
        const stitch__instr *in = &f->code[i];
        where[i] = at;
        if (p->notes[i])
            code[at++] = (stitch__instr){.op = STITCH__OP_FN,
                                         .flags = in->flags & STITCH__IN_GUARD_NOT,
                                         .guard = in->guard,
                                         .u.fn = stitch__exec_product_note,
                                         .cls = STITCH__SIM_CLASS_CONTROL,
                                         .place = in->place,
                                         .line = in->line,
                                         .data = p->notes[i]};
        code[at++] = *in;
    }
    where[f->code_count] = at;
    for (uint32_t i = 0; i < at; i++) {
        if (code[i].op == STITCH__OP_BRA)
            code[i].imm = where[code[i].imm];
        for (int64_t k = 0; code[i].op == STITCH__OP_BRX && k < code[i].imm; k++)
            ((uint32_t *)code[i].data)[k] = where[((uint32_t *)code[i].data)[k]];
    }
    stitch_free(where);
    stitch_free(f->code);
    f->code = code;
    f->code_count = at;
    f->product_regs = p->count;
    return STITCH_OK;
}

int stitch__sim_product_notes(stitch__sim_function *f)
{
    const stitch_context *ctx = f->module->ctx;
    pass p = {.f = f};
    uint32_t i = 0;
    while (i < f->code_count && !is_product(&f->code[i]))
        i++;
    if (i == f->code_count)
        return STITCH_OK;
    p.number = stitch__calloc(ctx, f->vreg_count + 1u, sizeof(uint32_t));
    p.leader = stitch__calloc(ctx, f->code_count + 1u, 1);
    p.notes = stitch__calloc(ctx, f->code_count + 1u, sizeof(note *));
    int rc = p.number && p.leader && p.notes ? STITCH_OK : STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        number_registers(&p);
        rc = find_notes(&p);
    }
    if (rc == STITCH_OK)
        rc = insert_notes(&p);
    stitch_free(p.number);
    stitch_free(p.leader);
    stitch_free(p.notes);
    stitch_free(p.run);
    return rc;
}

/* ---- when the kernel runs ---------------------------------------------------------------------------------------- */

static struct stitch__products *products_of(stitch__exec *x)
{
    stitch__warp *w = x->warp;
    if (!w->products && !(w->products = stitch__calloc(x->job_ctx, 1, sizeof(*w->products))))
        x->rc = STITCH_E_NOMEM;
    return w->products;
}

/* What is known of each register of a frame: the product that uses it, twice its number, odd if only as a factor; then
 * when something else wrote it: products begun before that, + 1. */
static uint32_t *registers_of(stitch__exec *x)
{
    stitch__frame *f = x->frame;
    if (!f->products && !(f->products = stitch__calloc(x->job_ctx, 2 * (f->f->product_regs + 1u), sizeof(uint32_t))))
        x->rc = STITCH_E_NOMEM;
    return f->products;
}

void stitch__products_reset(stitch__block *b)
{
    for (uint32_t i = 0; i < b->warp_count; i++)
        if (b->warps[i].products) {
            b->warps[i].products->arrived = 0;
            b->warps[i].products->base = b->warps[i].products->done = b->warps[i].products->issued;
            b->warps[i].products->fence = 0;
        }
    if (b->product_reads)
        memset(b->product_reads, 0, (b->shared_end / 16 + 1) * sizeof(*b->product_reads));
}

static void early(stitch__exec *x, const struct stitch__products *p, const item *t, uint32_t product, uint32_t lane)
{
    stitch__instr at = {.place = t->place};
    stitch__report_unwaited(x, &at, lane, t->how == WRITES, 0, 0, &p->who[product % RING],
                            t->how == WRITES ? "writes a register that wgmma still uses: wgmma.wait_group is missing"
                                             : "reads an accumulator of wgmma before wgmma.wait_group");
}

static void touch_register(stitch__exec *x, struct stitch__products *p, uint32_t *known, const item *t, uint32_t lane)
{
    uint32_t *touched = known + x->frame->f->product_regs + 1, product = known[t->reg] >> 1;
    bool busy = product > p->done, factor = known[t->reg] & 1;
    switch (t->how) {
    case MOVES:
        known[t->reg] = known[t->from];
        touched[t->reg] = touched[t->from];
        return;
    case READS:
        if (busy && !factor)
            early(x, p, t, product, lane);
        return;
    case WRITES:
        if (busy)
            early(x, p, t, product, lane);
        known[t->reg] = 0;
        touched[t->reg] = p->issued + 1;
        return;
    default: break;
    }
    if (t->how == MULTIPLIES && busy && !factor)
        early(x, p, t, product, lane);
    if (p->fence && touched[t->reg] > p->fence) {
        stitch__instr at = {.place = t->place};
        stitch__report(x, STITCH__SIM_MISSING_FENCE, &at, lane, STITCH__SIM_GENERIC, 0, 0,
                       "a register of wgmma was written since the last wgmma.fence");
    }
    touched[t->reg] = 0;
}

void stitch__products_wake(stitch__block *b)
{
    for (uint32_t i = 0; i < b->warp_count; i++)
        if (b->warps[i].state == STITCH__WARP_PRODUCT)
            b->warps[i].state = STITCH__WARP_RUN;
}

/* All warps of the running warp's warpgroup have come to product `number` (of this block, from 1), or begun it. */
static bool all_there(const stitch__exec *x, uint32_t number, bool begun)
{
    const stitch__block *b = x->block;
    for (uint32_t i = x->warp->index & ~3u; i < (x->warp->index | 3) + 1 && i < b->warp_count; i++) {
        const struct stitch__products *p = b->warps[i].products;
        if (b->warps[i].state != STITCH__WARP_DONE && (!p || (begun ? p->issued - p->base : p->arrived) < number))
            return false;
    }
    return true;
}

/* Then what they read for it lies behind the running warp, and behind whom it tells. */
static void join_group(stitch__exec *x)
{
    stitch__block *b = x->block;
    uint32_t me = x->warp->index, now = stitch__tick(b);
    for (uint32_t i = me & ~3u; i < (me | 3) + 1 && i < b->warp_count; i++)
        b->seen[me][i] = b->released[i] = now;
    b->partial = true;
    x->warp->clock = now;
}

int stitch__exec_product_note(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    const note *n = in->data;
    struct stitch__products *p = x->warp->products;
    uint32_t *known = x->frame->products, lane = (uint32_t)__builtin_ctz(mask);
    if (!n->product) {
        for (uint32_t i = 0; p && known && x->check_sync && i < n->count; i++)
            touch_register(x, p, known, &n->items[i], lane);
        return STITCH__RUN_NEXT;
    }
    p = products_of(x);
    known = registers_of(x);
    if (x->rc)
        return STITCH__RUN_KILL;
    p->arrived = p->issued - p->base + 1;
    if (!all_there(x, p->arrived, false)) {
        x->warp->state = STITCH__WARP_PRODUCT;
        x->warp->waits_at = in;
        return STITCH__RUN_RETRY;
    }
    join_group(x);
    if (!p->fence && x->check_sync)
        stitch__report(x, STITCH__SIM_MISSING_FENCE, in, lane, STITCH__SIM_GENERIC, 0, 0,
                       "no wgmma.fence before the first wgmma.mma_async");
    for (uint32_t i = 0; x->check_sync && i < n->count; i++)
        touch_register(x, p, known, &n->items[i], lane);
    p->issued++;
    stitch__products_wake(x->block);
    p->who[p->issued % RING] =
        (stitch__pending){.in = in, .f = x->frame->f, .block = x->block, .warp = x->warp->index, .lane = lane};
    for (uint32_t i = 0; i < n->count; i++) /* an accumulator stays one */
        known[n->items[i].reg] = p->issued << 1 | (n->items[i].how == MULTIPLIES);
    return STITCH__RUN_NEXT;
}

static void none_in_progress(stitch__block *b)
{
    for (uint32_t i = 0; i < b->warp_count; i++)
        if (b->warps[i].products && b->warps[i].products->done != b->warps[i].products->issued)
            return;
    b->slow &= ~STITCH__SLOW_PRODUCTS;
}

int stitch__exec_wgmma_sync(stitch__exec *x, const stitch__instr *in, uint32_t mask)
{
    struct stitch__products *p = products_of(x);
    (void)mask;
    if (!p)
        return STITCH__RUN_KILL;
    if (in->sub == STITCH__WGMMA_FENCE) {
        p->fence = p->issued + 1;
    } else if (in->sub == STITCH__WGMMA_COMMIT) {
        p->last[p->commits++ % RING] = p->issued;
    } else if (in->imm < RING && in->imm < p->commits) {
        uint32_t upto = p->last[(p->commits - 1 - (uint32_t)in->imm) % RING];
        if (upto <= p->done)
            return STITCH__RUN_NEXT;
        if (!all_there(x, upto - p->base, true)) {
            x->warp->state = STITCH__WARP_PRODUCT;
            x->warp->waits_at = in;
            return STITCH__RUN_RETRY;
        }
        p->done = upto;
        join_group(x);
        none_in_progress(x->block);
    }
    return STITCH__RUN_NEXT;
}

/* ---- shared memory ----------------------------------------------------------------------------------------------- */

enum { NUMBER_BITS = 27 };

void stitch__product_reads(stitch__exec *x, uint32_t offset)
{
    stitch__block *b = x->block;
    if (!x->warp->products || !x->check_sync || offset / 16 > b->shared_end / 16)
        return;
    if (!b->product_reads &&
        !(b->product_reads = stitch__calloc(x->job_ctx, b->shared_end / 16 + 1, sizeof(*b->product_reads)))) {
        x->rc = STITCH_E_NOMEM;
        return;
    }
    b->product_reads[offset / 16] = x->warp->index << NUMBER_BITS | x->warp->products->issued;
    b->slow |= STITCH__SLOW_PRODUCTS;
}

void stitch__product_overwrites(stitch__exec *x, const stitch__instr *in, const stitch__block *owner, uint32_t lane,
                                uint32_t offset, uint32_t size)
{
    if (!owner->product_reads || !x->check_sync)
        return;
    for (uint32_t i = offset / 16; i <= (offset + size - 1) / 16 && i <= owner->shared_end / 16; i++) {
        uint32_t e = owner->product_reads[i], product = e & ((1u << NUMBER_BITS) - 1);
        uint32_t warp = e >> NUMBER_BITS;
        const struct stitch__products *p = e ? owner->warps[warp].products : NULL;
        bool busy = p != NULL;
        for (uint32_t k = warp & ~3u; busy && k < (warp | 3) + 1 && k < owner->warp_count; k++) {
            const struct stitch__products *q = owner->warps[k].products; /* one wait by one of the four is enough */
            busy = !q || q->done - q->base < product - p->base;
        }
        if (!busy)
            continue;
        stitch__report_unwaited(x, in, lane, true, offset, size, &p->who[product % RING],
                                "wgmma may still read it: wgmma.wait_group is missing");
        return;
    }
}
