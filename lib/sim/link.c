/* SPDX-License-Identifier: MIT
 *
 * What is settled once all functions of a module are known: callees, the layout of shared memory, constants; and the
 * queries about modules.
 */
#include "sim/exec.h"

uint32_t stitch__sim_resolve(const stitch__sim_module *m, uint32_t callee)
{
    const stitch__sim_function *f = m->functions[callee];
    for (size_t i = 0; !f->has_body && i < m->function_count; i++)
        if (m->functions[i]->has_body && strcmp(m->functions[i]->name, f->name) == 0)
            return (uint32_t)i;
    return callee;
}

/* Marks everything that `f` may call. */
static void reach(const stitch__sim_module *m, uint32_t f, uint8_t *seen, uint32_t *stack)
{
    uint32_t top = 0;
    stack[top++] = f;
    seen[f] = 1;
    while (top) {
        const stitch__sim_function *g = m->functions[stack[--top]];
        for (uint32_t i = 0; g->calls_pointer && i < m->function_count; i++) {
            uint32_t c = m->functions[i]->address_taken ? stitch__sim_resolve(m, i) : f;
            if (!seen[c]) {
                seen[c] = 1;
                stack[top++] = c;
            }
        }
        for (size_t i = 0; i < g->callee_count; i++) {
            uint32_t c = stitch__sim_resolve(m, g->callees[i]);
            if (!seen[c]) {
                seen[c] = 1;
                stack[top++] = c;
            }
        }
    }
}

static bool uses(const stitch__sim_function *f, const stitch__shared_var *v)
{
    for (size_t i = 0; i < f->shared_count; i++)
        if (f->shared[i] == v)
            return true;
    return false;
}

static uint32_t place_var(stitch__shared_var *v, uint32_t at)
{
    uint32_t align = v->align ? v->align : 1;
    at = (at + align - 1) / align * align;
    v->offset = at;
    return v->size > (1u << 24) - at ? 1u << 24 : at + (uint32_t)v->size;
}

/* Variables that several functions use get one place for all of them; the others lie where their kernel has room. */
static void layout_shared(stitch__sim_module *m, uint8_t *seen, uint32_t *stack)
{
    uint32_t common = STITCH__SIM_SHARED_START, dynamic = 0, align = 16;
    bool helper_dynamic = false;
    for (size_t i = 0; i < m->shared_count; i++) {
        uint32_t users = 0;
        bool helper = false;
        for (size_t k = 0; k < m->function_count; k++)
            if (uses(m->functions[k], m->shared[i])) {
                users++;
                helper |= !m->functions[k]->entry;
            }
        m->shared[i]->offset = 0;
        if (m->shared[i]->dynamic)
            helper_dynamic |= helper;
        else if (users > 1 || helper)
            common = place_var(m->shared[i], common);
    }
    /* Variables declared in device functions: one place each as well. */
    for (size_t k = 0; k < m->function_count; k++)
        for (size_t i = 0; !m->functions[k]->entry && i < m->functions[k]->shared_count; i++)
            if (!m->functions[k]->shared[i]->dynamic && !m->functions[k]->shared[i]->offset)
                common = place_var(m->functions[k]->shared[i], common);
    for (size_t k = 0; k < m->function_count; k++) {
        stitch__sim_function *f = m->functions[k];
        if (!f->entry)
            continue;
        memset(seen, 0, m->function_count);
        reach(m, (uint32_t)k, seen, stack);
        uint32_t end = STITCH__SIM_SHARED_START;
        for (size_t g = 0; g < m->function_count; g++)
            for (size_t i = 0; seen[g] && i < m->functions[g]->shared_count; i++) {
                const stitch__shared_var *v = m->functions[g]->shared[i];
                if (v->offset && !v->dynamic && v->offset + v->size > end)
                    end = v->offset + (uint32_t)v->size;
                f->info.dynamic_shared |= v->dynamic;
                if (v->dynamic && v->align > f->dynamic_align)
                    f->dynamic_align = v->align;
            }
        for (size_t i = 0; i < f->shared_count; i++)
            if (!f->shared[i]->dynamic && !f->shared[i]->offset)
                end = place_var(f->shared[i], end);
        f->info.static_shared = end - STITCH__SIM_SHARED_START;
        if (end > dynamic)
            dynamic = end;
        if (f->dynamic_align < 16)
            f->dynamic_align = 16;
        if (f->dynamic_align > align)
            align = f->dynamic_align;
        for (size_t g = 0; g < m->function_count; g++)
            if (seen[g]) {
                const stitch__sim_function *h = m->functions[g];
                f->may_talk |= h->may_talk;
                f->prints |= h->prints;
                if (h->shared_min < f->shared_min)
                    f->shared_min = h->shared_min;
                if (h->global_min < f->global_min)
                    f->global_min = h->global_min;
                if (h->sreg_at[STITCH__SREG_ENVREG1] || h->sreg_at[STITCH__SREG_ENVREG2])
                    f->info.grid_sync = true;
                f->reserved_smem |= h->sreg_at[STITCH__SREG_RESERVED_SMEM_1] != 0;
                if (g != k && h->info.refusal && !f->info.refusal)
                    f->info.refusal = h->info.refusal;
                if (!h->has_body && !f->info.refusal) {
                    char *text = stitch__arena_printf(&m->arena, "function %s is called but not defined", h->name);
                    f->info.refusal = text ? text : "a function is called but not defined";
                }
            }
    }
    if (!helper_dynamic)
        return;
    for (size_t k = 0; k < m->function_count; k++) { /* a device function needs the same place in every kernel */
        m->functions[k]->dynamic_align = align;
        if (m->functions[k]->entry && m->functions[k]->info.dynamic_shared)
            m->functions[k]->info.static_shared = dynamic - STITCH__SIM_SHARED_START;
    }
}

enum { MAX_CLUSTER = 16 }; /* blocks, with the non-portable size */

static int build_constants(stitch__sim_function *f)
{
    const stitch_context *ctx = f->module->ctx;
    size_t set = (f->const_bytes + 63) & ~(size_t)63;
    bool ranked = false;
    for (size_t i = 0; i < f->const_count; i++)
        ranked |= f->consts[i].kind == 1;
    /* In a cluster every block's shared memory has its own addresses. */
    f->const_stride = ranked ? set : 0;
    uint32_t ranks = ranked ? MAX_CLUSTER : 1;
    f->const_block = stitch__calloc(ctx, ranks, set + 128);
    if (!f->const_block)
        return STITCH_E_NOMEM;
    f->const_data = (uint8_t *)(((uintptr_t)f->const_block + 63) & ~(uintptr_t)63);
    uint32_t end = STITCH__SIM_SHARED_START + f->info.static_shared;
    if (!f->entry) { /* that of any kernel which has dynamic shared memory: layout_shared() made them agree */
        for (size_t i = 0; i < f->module->function_count; i++)
            if (f->module->functions[i]->entry && f->module->functions[i]->info.dynamic_shared)
                end = STITCH__SIM_SHARED_START + f->module->functions[i]->info.static_shared;
    }
    for (size_t i = 0; i < f->const_count; i++) {
        stitch__const *c = &f->consts[i];
        uint64_t v = c->value;
        if (c->kind == 1) {
            const stitch__shared_var *s = (const stitch__shared_var *)(uintptr_t)c->value;
            uint32_t align = f->dynamic_align < 16 ? 16 : f->dynamic_align;
            v = (s->dynamic ? (end + align - 1) / align * align : s->offset) + (uint64_t)(int64_t)(int32_t)c->ref;
        } else if (c->kind == 2) {
            v = f->module->variables[c->ref].address + c->value;
        }
        for (uint32_t rank = 0; rank < ranks; rank++) {
            uint8_t *to = f->const_data + rank * set + c->at;
            uint64_t mine = v + (c->kind == 1 ? (uint64_t)rank << 24 : 0);
            for (int k = 0; k < 32; k++)
                memcpy(to + (c->wide ? 8 : 4) * k, &mine, c->wide ? 8 : 4);
        }
    }
    return STITCH_OK;
}

/* Puts the addresses of bound variables into constants. */
static void relocate(stitch__sim_function *f)
{
    for (size_t i = 0; f->const_data && i < f->const_count; i++) {
        const stitch__const *c = &f->consts[i];
        uint64_t v = c->kind == 2 ? f->module->variables[c->ref].address + c->value : 0;
        for (uint32_t rank = 0; c->kind == 2 && rank < (f->const_stride ? MAX_CLUSTER : 1u); rank++)
            for (int k = 0; k < 32; k++)
                memcpy(f->const_data + rank * f->const_stride + c->at + 8 * k, &v, 8);
    }
}

int stitch__sim_module_link(stitch__sim_module *m)
{
    uint8_t *seen = stitch__calloc(m->ctx, m->function_count + 1, 1);
    uint32_t *stack = stitch__calloc(m->ctx, m->function_count + 1, sizeof(uint32_t));
    int rc = seen && stack ? STITCH_OK : STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        layout_shared(m, seen, stack);
        for (size_t i = 0; rc == STITCH_OK && i < m->function_count; i++) {
            stitch__sim_function *f = m->functions[i];
            f->info.local = f->local_bytes;
            for (uint32_t k = 0; f->has_body && !f->info.refusal && k < f->code_count; k++) {
                stitch__call *c = f->code[k].op == STITCH__OP_CALL ? f->code[k].data : NULL;
                if (c && c->callee != UINT32_MAX)
                    c->callee = stitch__sim_resolve(m, c->callee);
            }
            if (f->has_body && !f->info.refusal)
                rc = build_constants(f);
        }
    }
    stitch_free(seen);
    stitch_free(stack);
    return rc;
}

size_t stitch__sim_module_function_count(const stitch__sim_module *m)
{
    return m->entry_count;
}

const stitch__sim_function *stitch__sim_module_function(const stitch__sim_module *m, size_t index)
{
    return index < m->entry_count ? m->entries[index] : NULL;
}

const stitch__sim_function *stitch__sim_module_find(const stitch__sim_module *m, const char *name)
{
    for (size_t i = 0; i < m->entry_count; i++)
        if (strcmp(m->entries[i]->name, name) == 0)
            return m->entries[i];
    return NULL;
}

const stitch__sim_function_info *stitch__sim_function_info_get(const stitch__sim_function *f)
{
    return &f->info;
}

size_t stitch__sim_module_variable_count(const stitch__sim_module *m)
{
    return m->variable_count;
}

const stitch__sim_variable *stitch__sim_module_variable(const stitch__sim_module *m, size_t index)
{
    return index < m->variable_count ? &m->variables[index].info : NULL;
}

void stitch__sim_module_bind(stitch__sim_module *m, size_t index, uint64_t address)
{
    if (index >= m->variable_count)
        return;
    m->variables[index].address = address;
    m->variables[index].bound = true;
    bool all = true;
    for (size_t i = 0; i < m->variable_count; i++)
        all &= m->variables[i].bound;
    for (size_t i = 0; all && i < m->function_count; i++)
        relocate(m->functions[i]);
}

void stitch__sim_module_init(const stitch__sim_module *m, size_t index, void *out)
{
    if (index >= m->variable_count)
        return;
    const stitch__sim_var_data *v = &m->variables[index];
    memset(out, 0, v->info.size);
    if (v->init)
        memcpy(out, v->init, v->init_len);
    for (size_t i = 0; i < m->reloc_count; i++) {
        const stitch__reloc *r = &m->relocs[i];
        if (r->function != UINT32_MAX || r->constant != index)
            continue;
        uint64_t address = m->variables[r->variable].address + r->addend;
        memcpy((uint8_t *)out + r->offset, &address, r->size);
    }
}
