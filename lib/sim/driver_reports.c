/* SPDX-License-Identifier: MIT
 *
 * Simulated driver: what the launches of a context said, collected by kernel until somebody takes it, and the other
 * entry points of sim_ext.h that need no file of their own.
 */
#include <stdlib.h>

#include "sim/driver.h"

enum { MAX_REPORTS = 64 };

/* The public part comes first. The functions keep alive the modules that the places point into. */
typedef struct collected {
    stitch__sim_reports pub;
    stitch__drv_function **functions; /* counted; NULL: a product */
    size_t cap, function_cap;
} collected;

void stitch__drv_reports_free(stitch__sim_reports *reports)
{
    collected *c = (collected *)reports;
    if (!c)
        return;
    for (size_t i = 0; i < c->pub.count; i++) {
        stitch_free(c->pub.kernels[i].reports);
        stitch_free(c->pub.kernels[i].counters.lines);
        stitch__drv_unref(c->functions[i]);
    }
    stitch_free(c->pub.kernels);
    stitch_free(c->functions);
    stitch_free(c);
}

/* The record of a kernel, made when it is the first time; NULL: out of memory. */
static stitch__sim_kernel_report *record_of(stitch__drv_context *ctx, stitch__drv_function *f)
{
    collected *c = (collected *)ctx->reports;
    if (!c) {
        c = stitch__calloc(NULL, 1, sizeof(*c));
        if (!c) {
            ctx->reports_lost = true;
            return NULL;
        }
        ctx->reports = &c->pub;
    }
    for (size_t i = 0; i < c->pub.count; i++) {
        if (c->functions[i] == f)
            return &c->pub.kernels[i];
    }
    if (stitch__grow(NULL, &c->pub.kernels, &c->cap, c->pub.count + 1, sizeof(*c->pub.kernels)) ||
        stitch__grow(NULL, &c->functions, &c->function_cap, c->pub.count + 1, sizeof(*c->functions))) {
        ctx->reports_lost = true;
        return NULL;
    }
    size_t i = c->pub.count++;
    c->functions[i] = f ? stitch__drv_ref(f) : NULL;
    c->pub.kernels[i] = (stitch__sim_kernel_report){.kernel = f ? f->info->name : "gemm", .first = ctx->launches};
    return &c->pub.kernels[i];
}

static void add_report(stitch__drv_context *ctx, stitch__sim_kernel_report *k, const stitch__sim_report *r)
{
    for (size_t i = 0; i < k->report_count; i++) {
        stitch__sim_report *old = &k->reports[i];
        if (old->kind == r->kind && old->first.place == r->first.place && old->second.place == r->second.place &&
            (r->first.place || strcmp(old->buffer, r->buffer) == 0)) {
            old->count += r->count;
            return;
        }
    }
    size_t most = ctx->options.max_reports ? ctx->options.max_reports : MAX_REPORTS;
    stitch__sim_report *grown =
        k->report_count < most ? stitch__realloc(NULL, k->reports, (k->report_count + 1) * sizeof(*grown)) : NULL;
    if (!grown) {
        k->reports_dropped++;
        return;
    }
    k->reports = grown;
    k->reports[k->report_count++] = *r;
}

static void add_line(stitch__sim_line_counters *to, const stitch__sim_line_counters *from)
{
    to->instructions += from->instructions;
    to->lanes += from->lanes;
    to->flops += from->flops;
    to->branches += from->branches;
    to->divergent += from->divergent;
    to->global_requests += from->global_requests;
    to->global_sectors += from->global_sectors;
    to->global_ideal_sectors += from->global_ideal_sectors;
    to->global_bytes += from->global_bytes;
    to->shared_requests += from->shared_requests;
    to->shared_wavefronts += from->shared_wavefronts;
    to->shared_ideal_wavefronts += from->shared_ideal_wavefronts;
    to->shared_bytes += from->shared_bytes;
    to->local_requests += from->local_requests;
    to->local_bytes += from->local_bytes;
    to->atomics += from->atomics;
    to->atomic_collisions += from->atomic_collisions;
}

static int by_place(const void *a, const void *b)
{
    const stitch__sim_place *p = ((const stitch__sim_line_counters *)a)->place;
    const stitch__sim_place *q = ((const stitch__sim_line_counters *)b)->place;
    if (!p || !q)
        return (p != NULL) - (q != NULL);
    int files = strcmp(p->file ? p->file : "", q->file ? q->file : "");
    if (files)
        return files;
    return p->line != q->line ? (p->line > q->line) - (p->line < q->line) : (p > q) - (p < q);
}

static bool add_counters(stitch__sim_counters *to, const stitch__sim_counters *from)
{
    add_line(&to->total, &from->total);
    for (int i = 0; i < STITCH__SIM_CLASS_COUNT; i++)
        to->mix[i] += from->mix[i];
    to->blocks_run += from->blocks_run;
    to->blocks_total += from->blocks_total;
    to->barriers += from->barriers;
    size_t old = to->line_count;
    for (size_t i = 0; i < from->line_count; i++) {
        stitch__sim_line_counters *line = NULL;
        for (size_t j = 0; j < old && !line; j++) {
            if (to->lines[j].place == from->lines[i].place)
                line = &to->lines[j];
        }
        if (line) {
            add_line(line, &from->lines[i]);
            continue;
        }
        stitch__sim_line_counters *grown = stitch__realloc(NULL, to->lines, (to->line_count + 1) * sizeof(*grown));
        if (!grown)
            return false;
        to->lines = grown;
        to->lines[to->line_count++] = from->lines[i];
    }
    if (to->line_count > old)
        qsort(to->lines, to->line_count, sizeof(*to->lines), by_place);
    return true;
}

static void note_error(stitch__sim_kernel_report *k, CUresult error, const char *message)
{
    if (!error || k->error)
        return;
    k->error = error;
    snprintf(k->message, sizeof(k->message), "%s", message);
}

void stitch__drv_report(stitch__drv_context *ctx, stitch__drv_function *f, const stitch__sim_report *finding,
                        CUresult error, const char *message)
{
    stitch__sim_kernel_report *k = record_of(ctx, f);
    if (!k)
        return;
    if (finding) {
        add_report(ctx, k, finding);
        if (!k->fault && error)
            k->fault = finding->kind;
    }
    note_error(k, error, message);
}

void stitch__drv_report_launch(stitch__drv_context *ctx, const stitch__drv_kernel_op *op,
                               const stitch__sim_result *result, CUresult error, const char *message)
{
    stitch__sim_kernel_report *k = record_of(ctx, op->function);
    ctx->launches++;
    if (!k)
        return;
    k->launches++;
    memcpy(k->grid, op->grid, sizeof(k->grid));
    memcpy(k->block, op->block, sizeof(k->block));
    note_error(k, error, message);
    if (!k->fault)
        k->fault = result->fault;
    for (size_t i = 0; i < result->report_count; i++)
        add_report(ctx, k, &result->reports[i]);
    k->reports_dropped += result->reports_dropped;
    if (!add_counters(&k->counters, &result->counters))
        ctx->reports_lost = true;
    k->warp_instructions += result->warp_instructions;
    k->lane_instructions += result->lane_instructions;
}

/* ---- entry points ------------------------------------------------------------------------------------------------ */

CUresult CUDAAPI SIM(stitchSimTakeReports)(stitch__sim_reports **out)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter_failed(&ctx);
    if (r)
        return r;
    if (!ctx->reports) {
        collected *c = stitch__calloc(NULL, 1, sizeof(*c));
        ctx->reports = c ? &c->pub : NULL;
    }
    *out = ctx->reports;
    ctx->reports = NULL;
    if (*out) {
        (*out)->launches = ctx->launches;
        (*out)->incomplete = ctx->reports_lost;
        ctx->reports_lost = false;
    }
    stitch__drv_leave(ctx);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void CUDAAPI SIM(stitchSimFreeReports)(stitch__sim_reports *reports)
{
    stitch__drv_reports_free(reports);
}

CUresult CUDAAPI SIM(stitchSimSetOptions)(const stitch__sim_options *options)
{
    const uint32_t known = STITCH__SIM_CHECK_ALL | STITCH__SIM_COUNT;
    if (!options || (options->flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter_failed(&ctx);
    if (r)
        return r;
    ctx->options = *options;
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(stitchSimGetOptions)(stitch__sim_options *options)
{
    if (!options)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter_failed(&ctx);
    if (r)
        return r;
    *options = ctx->options;
    stitch__drv_leave(ctx);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI SIM(stitchSimNameAllocation)(CUdeviceptr ptr, const char *name)
{
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    int rc = stitch__sim_memory_rename(ctx->mem, ptr, name, NULL);
    stitch__drv_leave(ctx);
    return rc == STITCH_OK ? CUDA_SUCCESS : rc == STITCH_E_NOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI SIM(stitchSimMarkMemory)(CUdeviceptr ptr, size_t bytes, int written)
{
    stitch__drv_context *ctx;
    CUresult r = stitch__drv_enter(&ctx);
    if (r)
        return r;
    stitch__sim_alloc *a = stitch__sim_memory_find(ctx->mem, ptr);
    if (!a || a->freed || bytes > a->size - (ptr - a->base))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        stitch__sim_memory_mark(a, ptr - a->base, bytes, written != 0);
    stitch__drv_leave(ctx);
    return r;
}

CUresult CUDAAPI SIM(stitchSimGemm)(const stitch__sim_gemm_args *args, CUstream stream, stitch_error **err)
{
    if (!args)
        return CUDA_ERROR_INVALID_VALUE;
    stitch__drv_stream *s;
    CUresult r = stitch__drv_stream_enter(stream, &s);
    if (r)
        return r;
    stitch__drv_op op = {.kind = STITCH__DRV_OP_GEMM, .gemm = *args};
    r = stitch__drv_submit(s, &op, err);
    stitch__drv_stream_leave(s);
    return r;
}
