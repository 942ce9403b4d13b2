/* SPDX-License-Identifier: MIT
 *
 * Findings: kept once a kind and pair of places, counted, and put into words.
 */
#include "sim/exec.h"
#include "sim/job.h"

static const struct {
    const char *name, *text;
} faults[] = {
#define FAULT(name, word, text) {word, text},
    STITCH__SIM_FAULT_LIST(FAULT)
#undef FAULT
};

const char *stitch__sim_fault_name(int fault)
{
    return fault >= 0 && fault < STITCH__SIM_FAULT_COUNT ? faults[fault].name : "unknown";
}

static const char *fault_text(int fault)
{
    return fault >= 0 && fault < STITCH__SIM_FAULT_COUNT ? faults[fault].text : "unknown";
}

static bool ends_kernel(stitch__sim_fault k)
{
    switch (k) {
    case STITCH__SIM_OUT_OF_BOUNDS:
    case STITCH__SIM_USE_AFTER_FREE:
    case STITCH__SIM_MISALIGNED:
    case STITCH__SIM_READ_ONLY:
    case STITCH__SIM_DEADLOCK:
    case STITCH__SIM_BUDGET:
    case STITCH__SIM_TRAP:
    case STITCH__SIM_ASSERT:
    case STITCH__SIM_ILLEGAL:
    case STITCH__SIM_STACK: return true;
    default: return false;
    }
}

static void thread_id(const stitch__exec *x, uint32_t warp, uint32_t lane, uint32_t out[3])
{
    uint32_t t = warp * 32 + lane, bx = x->launch->block[0], by = x->launch->block[1];
    out[0] = t % bx;
    out[1] = t / bx % by;
    out[2] = t / bx / by;
}

static const stitch__sim_place *place_of(const stitch__exec *x, const stitch__instr *in)
{
    return in && in->place ? &x->frame->f->module->places[in->place] : NULL;
}

/* In the order of blocks, then of threads in them. */
static bool comes_before(const stitch__sim_access *a, const stitch__sim_access *b)
{
    for (int i = 2; i >= 0; i--)
        if (a->block[i] != b->block[i])
            return a->block[i] < b->block[i];
    for (int i = 2; i >= 0; i--)
        if (a->thread[i] != b->thread[i])
            return a->thread[i] < b->thread[i];
    return false;
}

/* Of several with the same places the first thread's stays, whichever host thread gets to its block first. */
static void keep(stitch__exec *x, const stitch__sim_report *r)
{
    stitch__job *j = x->job;
    uint64_t h = (uint64_t)r->kind * 31 + (uintptr_t)r->first.place / 8 * 7 + (uintptr_t)r->second.place / 8 * 13;
    pthread_mutex_lock(&j->lock);
    if (j->fault == STITCH__SIM_NONE && ends_kernel(r->kind))
        j->fault = r->kind;
    if (!(x->launch->flags & STITCH__SIM_CHECK_BOUNDS) && ends_kernel(r->kind)) {
        j->stop = true;
        x->kill = true;
    }
    stitch__kept_report **b = &j->reports[h & 255], *k = *b;
    while (k && !(k->r.kind == r->kind && k->r.first.place == r->first.place && k->r.second.place == r->second.place &&
                  strcmp(k->r.buffer, r->buffer) == 0))
        k = k->next;
    if (k) {
        uint64_t count = k->r.count + 1;
        if (comes_before(&r->first, &k->r.first))
            k->r = *r;
        k->r.count = count;
    } else if (j->report_count >= j->report_limit) {
        j->dropped++;
    } else {
        k = stitch__calloc(j->ctx, 1, sizeof(*k));
        if (k) {
            k->r = *r;
            k->r.count = 1;
            k->next = *b;
            *b = k;
            j->report_count++;
        } else {
            j->rc = STITCH_E_NOMEM;
        }
    }
    pthread_mutex_unlock(&j->lock);
}

static void fill(stitch__exec *x, stitch__sim_report *r, stitch__sim_fault kind, const stitch__instr *in, uint32_t lane,
                 stitch__sim_space space, uint64_t address, uint32_t size, bool write)
{
    memset(r, 0, sizeof(*r));
    r->kind = kind;
    r->space = space;
    r->address = address;
    r->size = size;
    r->first.place = place_of(x, in);
    r->first.write = write || (in && in->op == STITCH__OP_STORE);
    r->first.atomic = in && in->cls == STITCH__SIM_CLASS_ATOMIC; /* not volatile reads and writes */
    memcpy(r->first.block, x->block->id, sizeof(r->first.block));
    thread_id(x, x->warp->index, lane, r->first.thread);
}

static void name_alloc(stitch__sim_report *r, const stitch__sim_alloc *a)
{
    if (a->name[0])
        snprintf(r->buffer, sizeof(r->buffer), "%s", a->name);
    else
        snprintf(r->buffer, sizeof(r->buffer), "allocation %" PRIu64, a->serial);
    r->buffer_size = a->size;
}

/* "s" of "_ZZ6kernelPfE1s": the name in the source of a variable that is local to a function. */
static const char *plain_name(const char *name)
{
    const char *e = strncmp(name, "_ZZ", 3) == 0 ? strrchr(name, 'E') : NULL;
    if (!e || e[1] < '1' || e[1] > '9')
        return name;
    char *rest;
    unsigned long n = strtoul(e + 1, &rest, 10);
    return strlen(rest) == n ? rest : name;
}

/* The shared variable that an offset lies in, or comes before it. */
static void name_shared(const stitch__exec *x, stitch__sim_report *r, uint64_t address)
{
    const stitch__sim_function *f = x->job->f;
    uint32_t offset = (uint32_t)address & 0xffffff, end = STITCH__SIM_SHARED_START + f->info.static_shared;
    const stitch__shared_var *best = NULL, *dynamic = NULL;
    for (size_t i = 0; i < f->shared_count; i++) {
        const stitch__shared_var *v = f->shared[i];
        if (v->dynamic)
            dynamic = v;
        else if (v->offset <= offset && (!best || v->offset > best->offset))
            best = v;
    }
    if (f->reserved_smem && offset < STITCH__SIM_SHARED_START) {
        snprintf(r->buffer, sizeof(r->buffer), "reserved shared memory");
        r->buffer_size = STITCH__SIM_SHARED_START - STITCH__SIM_SHARED_RESERVED;
        r->offset = offset - STITCH__SIM_SHARED_RESERVED;
        r->distance = (int64_t)offset - STITCH__SIM_SHARED_START;
    } else if (dynamic && offset >= end) {
        uint32_t start = (end + f->dynamic_align - 1) / f->dynamic_align * f->dynamic_align;
        snprintf(r->buffer, sizeof(r->buffer), "dynamic shared array %s", plain_name(dynamic->name));
        r->buffer_size = x->launch->dynamic_shared;
        r->offset = offset - start;
        r->distance = (int64_t)offset - start - x->launch->dynamic_shared;
    } else if (best) {
        snprintf(r->buffer, sizeof(r->buffer), "shared variable %s", plain_name(best->name));
        r->buffer_size = best->size;
        r->offset = offset - best->offset;
        r->distance = (int64_t)offset - (int64_t)(best->offset + best->size);
    } else {
        snprintf(r->buffer, sizeof(r->buffer), "shared memory");
        r->buffer_size = x->block->shared_end - STITCH__SIM_SHARED_START;
        r->distance = (int64_t)offset - x->block->shared_end;
        r->offset = offset - STITCH__SIM_SHARED_START;
    }
}

void stitch__report(stitch__exec *x, stitch__sim_fault kind, const stitch__instr *in, uint32_t lane,
                    stitch__sim_space space, uint64_t address, uint32_t size, const char *fmt, ...)
{
    stitch__sim_report r;
    va_list ap;
    fill(x, &r, kind, in, lane, space, address, size, false);
    va_start(ap, fmt);
    vsnprintf(r.detail, sizeof(r.detail), fmt, ap);
    va_end(ap);
    if (kind == STITCH__SIM_MISALIGNED && space != STITCH__SIM_SHARED && space != STITCH__SIM_LOCAL) {
        stitch__sim_alloc *a = stitch__sim_memory_find(x->launch->memory, address);
        if (a) {
            name_alloc(&r, a);
            r.offset = address - a->base;
        }
    }
    if (kind == STITCH__SIM_MISALIGNED && space == STITCH__SIM_SHARED)
        name_shared(x, &r, address);
    keep(x, &r);
}

void stitch__report_bounds(stitch__exec *x, const stitch__instr *in, uint32_t lane, stitch__sim_space space,
                           uint64_t address, uint32_t size, bool write, stitch__sim_alloc *a, stitch__sim_fault kind)
{
    stitch__sim_report r;
    fill(x, &r, kind, in, lane, space, address, size, write);
    if (space == STITCH__SIM_SHARED) {
        name_shared(x, &r, address);
    } else if (space == STITCH__SIM_LOCAL) {
        snprintf(r.buffer, sizeof(r.buffer), "local memory");
        r.buffer_size = x->warp->local_size;
        r.offset = address;
        r.distance = (int64_t)(address - x->warp->local_size);
    } else if (space == STITCH__SIM_PARAM) {
        snprintf(r.buffer, sizeof(r.buffer), "kernel parameters");
        r.buffer_size = x->launch->param_bytes;
    } else if (a) {
        name_alloc(&r, a);
        r.offset = address - a->base;
        r.distance = (int64_t)(r.offset + size) - (int64_t)a->size;
        if (r.distance > 0 && r.offset < a->size)
            r.distance = 0; /* begins inside and runs over the end */
    } else if (address < 4096) {
        snprintf(r.detail, sizeof(r.detail), "the pointer is null");
    } else {
        stitch__sim_alloc *below = NULL, *above = NULL;
        stitch__sim_memory_around(x->launch->memory, address, &below, &above);
        uint64_t past = below ? address - (below->base + below->size) : UINT64_MAX,
                 before = above ? above->base - address : UINT64_MAX;
        const stitch__sim_alloc *near = past <= before ? below : above;
        if (near && (past <= before ? past : before) < (UINT64_C(1) << 32)) {
            name_alloc(&r, near);
            r.distance = past <= before ? (int64_t)past : -(int64_t)before;
            if (near->freed)
                r.kind = STITCH__SIM_OUT_OF_BOUNDS;
        } else {
            snprintf(r.detail, sizeof(r.detail), "the address is near no buffer");
        }
    }
    keep(x, &r);
}

void stitch__report_race(stitch__exec *x, stitch__sim_fault kind, const stitch__instr *in, uint32_t lane, bool write,
                         stitch__sim_space space, uint64_t address, uint32_t size, stitch__sim_alloc *a,
                         uint64_t other_key, uint32_t other_pc, bool other_write)
{
    stitch__sim_report r;
    fill(x, &r, kind, in, lane, space, address, size, write);
    if (a) {
        name_alloc(&r, a);
        r.offset = address - a->base;
    } else {
        name_shared(x, &r, address);
    }
    r.distance = 0;
    r.has_second = true;
    r.second.write = other_write;
    const stitch__sim_function *f = x->frame->f;
    if (other_pc < f->code_count && f->code[other_pc].place)
        r.second.place = &f->module->places[f->code[other_pc].place];
    uint32_t seq = (uint32_t)(other_key >> STITCH__KEY_BLOCK_SHIFT);
    stitch__job_block_id(x->job, seq, r.second.block);
    uint32_t warp = (uint32_t)(other_key >> STITCH__KEY_WARP_SHIFT) & 31;
    thread_id(x, warp, (uint32_t)(other_key >> STITCH__KEY_LANE_SHIFT) & 31, r.second.thread);
    r.second.atomic = other_key & STITCH__KEY_ATOMIC;
    /* The record keeps the last of several readers; if that is this thread itself, it does not say who the others are.
     */
    r.second.unknown = kind != STITCH__SIM_MISSING_FENCE &&
                       memcmp(r.second.block, r.first.block, sizeof(r.first.block)) == 0 &&
                       memcmp(r.second.thread, r.first.thread, sizeof(r.first.thread)) == 0;
    if (r.second.unknown)
        snprintf(r.detail, sizeof(r.detail), "the other thread is in %s",
                 other_key & STITCH__KEY_MULTIBLOCK  ? "another block"
                 : other_key & STITCH__KEY_MULTIWARP ? "another warp of the block"
                                                     : "the same warp: __syncwarp() would order them");
    else if (seq == x->block->seq && warp == x->warp->index && kind != STITCH__SIM_MISSING_FENCE)
        snprintf(r.detail, sizeof(r.detail), "both threads are in one warp: __syncwarp() would order them");
    keep(x, &r);
}

void stitch__report_unwaited(stitch__exec *x, const stitch__instr *in, uint32_t lane, bool write, uint64_t address,
                             uint32_t size, const stitch__pending *copy, const char *detail)
{
    stitch__sim_report r;
    fill(x, &r, STITCH__SIM_ASYNC_NOT_WAITED, in, lane, STITCH__SIM_SHARED, address, size, write);
    if (size)
        name_shared(x, &r, address);
    r.distance = 0;
    r.has_second = true;
    r.second.write = true;
    r.second.place = copy->in->place ? &copy->f->module->places[copy->in->place] : NULL;
    memcpy(r.second.block, copy->block->id, sizeof(r.second.block));
    thread_id(x, copy->warp, copy->lane, r.second.thread);
    snprintf(r.detail, sizeof(r.detail), "%s", detail);
    keep(x, &r);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void put_place(stitch__buf *out, const stitch__sim_place *p)
{
    if (!p)
        return;
    if (!p->file) {
        stitch__buf_printf(out, "PTX line %" PRIu32, p->ptx_line);
        return;
    }
    const char *slash = strrchr(p->file, '/');
    stitch__buf_printf(out, "%s:%" PRIu32, stitch__source_path(slash ? slash + 1 : p->file), p->line);
    for (const stitch__sim_place *q = p->inlined_at; q && q->file; q = q->inlined_at) {
        slash = strrchr(q->file, '/');
        stitch__buf_printf(out, ", inlined at %s:%" PRIu32, stitch__source_path(slash ? slash + 1 : q->file), q->line);
    }
}

static void put_who(stitch__buf *out, const stitch__sim_access *a)
{
    if (a->unknown) {
        stitch__buf_puts(out, "another thread");
        return;
    }
    stitch__buf_printf(out,
                       "thread (%" PRIu32 ",%" PRIu32 ",%" PRIu32 ") of block (%" PRIu32 ",%" PRIu32 ",%" PRIu32 ")",
                       a->thread[0], a->thread[1], a->thread[2], a->block[0], a->block[1], a->block[2]);
}

static void put_buffer(stitch__buf *out, const stitch__sim_report *r)
{
    static const char *const spaces[] = {"generic", "global", "shared", "local", "constant", "parameter"};
    if (r->buffer[0]) {
        stitch__buf_printf(out, " %s (%" PRIu64 " bytes)", r->buffer, r->buffer_size);
        return;
    }
    stitch__buf_printf(out, " %s address 0x%" PRIx64, spaces[r->space <= STITCH__SIM_PARAM ? r->space : 0], r->address);
}

void stitch__sim_report_text(stitch__buf *out, const stitch__sim_report *r, const char *kernel)
{
    bool memory = (r->kind <= STITCH__SIM_GLOBAL_RACE && r->kind != STITCH__SIM_NONE) ||
                  ((r->kind == STITCH__SIM_ASYNC_NOT_WAITED || r->kind == STITCH__SIM_MISSING_FENCE) && r->buffer[0]);
    stitch__buf_printf(out, "%s in kernel %s", fault_text(r->kind), kernel ? kernel : "?");
    if (r->first.place) {
        stitch__buf_puts(out, " at ");
        put_place(out, r->first.place);
    }
    stitch__buf_puts(out, ": ");
    put_who(out, &r->first);
    if (memory) {
        stitch__buf_printf(out, " %s %" PRIu32 " bytes of", r->first.write ? "writes" : "reads", r->size);
        put_buffer(out, r);
        if (r->kind == STITCH__SIM_OUT_OF_BOUNDS && r->buffer[0]) {
            if (r->distance == 0 && r->offset == 0)
                stitch__buf_puts(out, ", directly behind its end");
            else if (r->distance < 0)
                stitch__buf_printf(out, ", %" PRId64 " bytes before its start", -r->distance);
            else if (r->distance == 0 && r->offset + r->size > r->buffer_size && r->offset < r->buffer_size)
                stitch__buf_printf(out, ", from byte %" PRIu64 " over its end", r->offset);
            else
                stitch__buf_printf(out, ", %" PRId64 " bytes past its end", r->distance);
        } else if (r->buffer[0]) {
            stitch__buf_printf(out, " at byte %" PRIu64, r->offset);
        }
    }
    if (r->has_second) {
        stitch__buf_puts(out, "; ");
        put_who(out, &r->second);
        bool async = r->kind == STITCH__SIM_ASYNC_NOT_WAITED;
        stitch__buf_puts(out, async               ? (r->buffer[0] ? " began it" : " began the product")
                              : r->second.unknown ? " read it too, and this one"
                              : r->second.write   ? " wrote it"
                                                  : " read it");
        if (r->second.place) {
            stitch__buf_puts(out, " at ");
            put_place(out, r->second.place);
        }
        if (!async)
            stitch__buf_puts(out, r->kind == STITCH__SIM_MISSING_FENCE ? " with no fence.proxy.async since"
                                                                       : " with no barrier between");
    }
    if (r->detail[0])
        stitch__buf_printf(out, " (%s)", r->detail);
    if (r->count > 1)
        stitch__buf_printf(out, "; %" PRIu64 " times", r->count);
    stitch__buf_puts(out, ".");
}
