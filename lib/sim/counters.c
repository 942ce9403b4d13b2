/* SPDX-License-Identifier: MIT
 *
 * Counters of host threads, summed by source line.
 */
#include "sim/exec.h"
#include "sim/job.h"

static void add_memory(stitch__sim_line_counters *c, const stitch__instr *in, const stitch__mem_count *m)
{
    if (in->space == STITCH__SIM_SHARED) {
        c->shared_requests += m->requests;
        c->shared_wavefronts += m->units;
        c->shared_ideal_wavefronts += m->ideal;
        c->shared_bytes += m->bytes;
    } else if (in->space == STITCH__SIM_LOCAL) {
        c->local_requests += m->requests;
        c->local_bytes += m->bytes;
    } else if (in->space != STITCH__SIM_PARAM) {
        c->global_requests += m->requests;
        c->global_sectors += m->units;
        c->global_ideal_sectors += m->ideal;
        c->global_bytes += m->bytes;
    }
    c->atomics += m->atomics;
    c->atomic_collisions += m->collisions;
}

static void add_line(stitch__sim_line_counters *a, const stitch__sim_line_counters *b)
{
    a->instructions += b->instructions;
    a->lanes += b->lanes;
    a->flops += b->flops;
    a->branches += b->branches;
    a->divergent += b->divergent;
    a->global_requests += b->global_requests;
    a->global_sectors += b->global_sectors;
    a->global_ideal_sectors += b->global_ideal_sectors;
    a->global_bytes += b->global_bytes;
    a->shared_requests += b->shared_requests;
    a->shared_wavefronts += b->shared_wavefronts;
    a->shared_ideal_wavefronts += b->shared_ideal_wavefronts;
    a->shared_bytes += b->shared_bytes;
    a->local_requests += b->local_requests;
    a->local_bytes += b->local_bytes;
    a->atomics += b->atomics;
    a->atomic_collisions += b->atomic_collisions;
}

static int compare_lines(const void *a, const void *b)
{
    const stitch__sim_place *x = ((const stitch__sim_line_counters *)a)->place,
                            *y = ((const stitch__sim_line_counters *)b)->place;
    if (!x || !y)
        return (x != NULL) - (y != NULL);
    int c = strcmp(x->file ? x->file : "", y->file ? y->file : "");
    if (c)
        return c;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return x->ptx_line < y->ptx_line ? -1 : x->ptx_line > y->ptx_line;
}

static bool same_line(const stitch__sim_place *a, const stitch__sim_place *b)
{
    if (a == b)
        return true;
    return a && b && a->file && b->file && a->line == b->line && strcmp(a->file, b->file) == 0;
}

static void add_instruction(stitch__sim_counters *out, stitch__sim_line_counters *line, const stitch__instr *in,
                            uint64_t entered, uint64_t lanes, const stitch__fn_count *c, uint32_t pc)
{
    line->instructions += entered;
    line->lanes += lanes;
    line->flops += lanes * in->flops;
    out->mix[in->cls] += entered;
    if ((in->op == STITCH__OP_BRA && in->guard) || in->op == STITCH__OP_BRX) {
        line->branches += entered;
        line->divergent += c->divergent[pc];
    }
    add_memory(line, in, &c->mem[pc]);
}

int stitch__counters_merge(stitch__job *j, const stitch__exec *x, uint32_t threads)
{
    const stitch__sim_module *m = j->f->module;
    stitch__sim_counters *out = &j->out->counters;
    stitch__sim_line_counters *lines = stitch__calloc(j->ctx, m->place_count + 1, sizeof(*lines));
    if (!lines)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < m->place_count; i++)
        lines[i].place = i ? &m->places[i] : NULL;
    for (size_t fi = 0; fi < m->function_count; fi++) {
        const stitch__sim_function *f = m->functions[fi];
        for (uint32_t t = 0; t < threads; t++) {
            const stitch__fn_count *c = &x[t].counts[fi];
            uint32_t block = 0;
            for (uint32_t pc = 0; c->entered && pc < f->code_count; pc++) {
                const stitch__instr *in = &f->code[pc];
                if (in->op == STITCH__OP_BLOCK)
                    block = in->slot;
                else if (c->entered[block] && !(in->op == STITCH__OP_FN && in->u.fn == stitch__exec_product_note))
                    add_instruction(out, &lines[in->place], in, c->entered[block], c->lanes[block], c, pc);
            }
        }
    }
    qsort(lines, m->place_count, sizeof(*lines), compare_lines);
    size_t n = 0;
    for (size_t i = 0; i < m->place_count; i++) {
        if (!lines[i].instructions)
            continue;
        add_line(&out->total, &lines[i]);
        if (n && same_line(lines[n - 1].place, lines[i].place))
            add_line(&lines[n - 1], &lines[i]);
        else
            lines[n++] = lines[i];
    }
    out->lines = lines;
    out->line_count = n;
    return STITCH_OK;
}
