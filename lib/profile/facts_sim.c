/* SPDX-License-Identifier: MIT
 *
 * What the simulator counted, as facts: kernels with their traffic, and the source lines that cost the most.
 */
#include <stdlib.h>

#include "cuda/internal.h"
#include "profile/facts.h"
#include "sim/sim_ext.h"

/* A line of source with everything that was inlined into it. */
typedef struct line {
    const char *file;
    uint32_t number;
    stitch__sim_line_counters sum;
} line;

typedef struct filler {
    stitch__facts *f;
    const stitch_image *image;
    uint64_t runs;
    const char *source;
    size_t line_count;
    size_t *lines; /* where each begins in the source */
    stitch__arena names;
} filler;

static double mean(uint64_t sum, uint64_t launches)
{
    return (double)sum / (double)launches;
}

/* ---- the text of a line ---- */

static int index_source(filler *x)
{
    size_t count = 1, n = 0;
    if (!x->source)
        return STITCH_OK;
    for (const char *s = x->source; *s; s++)
        count += *s == '\n';
    x->lines = stitch__calloc(x->f->arena.ctx, count, sizeof(*x->lines));
    if (!x->lines)
        return STITCH_E_NOMEM;
    n = 1;
    for (size_t i = 0; x->source[i]; i++) {
        if (x->source[i] == '\n')
            x->lines[n++] = i + 1;
    }
    x->line_count = count;
    return STITCH_OK;
}

static const char *text_of_line(const filler *x, uint32_t number)
{
    char text[STITCH__FACTS_TEXT + 2]; /* one byte more than is kept, so that the cut shows */
    if (!number || number > x->line_count)
        return "";
    const char *from = x->source + x->lines[number - 1];
    from += strspn(from, " \t");
    size_t len = strcspn(from, "\r\n");
    len = len < sizeof(text) - 1 ? len : sizeof(text) - 1;
    memcpy(text, from, len);
    text[len] = 0;
    return stitch__facts_text(x->f, text);
}

/* ---- lines ---- */

static bool is_own(const char *file)
{
    const char *base = strrchr(file, '/');
    return strcmp(base ? base + 1 : file, "program.cu") == 0;
}

/* What is inlined from a header counts where the program's source calls it: that is what its author can change. */
static line line_of(const stitch__sim_line_counters *c)
{
    const stitch__sim_place *p = c->place;
    line l = {.sum = *c};
    while (p && !(p->file && is_own(p->file)))
        p = p->inlined_at;
    if (p) {
        l.file = "program.cu"; /* the compiler puts its working folder in front */
        l.number = p->line;
    } else if (c->place && c->place->file) {
        l.file = stitch__source_path(c->place->file);
        l.number = c->place->line;
    }
    return l;
}

static int by_place(const void *pa, const void *pb)
{
    const line *a = pa, *b = pb;
    int files = strcmp(a->file, b->file);
    return files ? files : (a->number > b->number) - (a->number < b->number);
}

static void add(stitch__sim_line_counters *to, const stitch__sim_line_counters *from)
{
    to->instructions += from->instructions;
    to->global_requests += from->global_requests;
    to->global_sectors += from->global_sectors;
    to->global_ideal_sectors += from->global_ideal_sectors;
    to->shared_wavefronts += from->shared_wavefronts;
    to->shared_ideal_wavefronts += from->shared_ideal_wavefronts;
}

/* A sector and a wavefront too many cost about as much: each is a turn of the first-level cache. */
static uint64_t excess(const line *l)
{
    const stitch__sim_line_counters *c = &l->sum;
    return (c->global_sectors > c->global_ideal_sectors ? c->global_sectors - c->global_ideal_sectors : 0) +
           (c->shared_wavefronts > c->shared_ideal_wavefronts ? c->shared_wavefronts - c->shared_ideal_wavefronts : 0);
}

static int by_instructions(const void *pa, const void *pb)
{
    const line *a = pa, *b = pb;
    if (a->sum.instructions != b->sum.instructions)
        return a->sum.instructions > b->sum.instructions ? -1 : 1;
    return by_place(pa, pb);
}

static int by_excess(const void *pa, const void *pb)
{
    uint64_t a = excess(pa), b = excess(pb);
    return a != b ? (a > b ? -1 : 1) : by_instructions(pa, pb);
}

static size_t merge(line *lines, size_t count)
{
    size_t n = 0;
    qsort(lines, count, sizeof(*lines), by_place);
    for (size_t i = 0; i < count; i++) {
        if (n && by_place(&lines[n - 1], &lines[i]) == 0)
            add(&lines[n - 1].sum, &lines[i].sum);
        else
            lines[n++] = lines[i];
    }
    return n;
}

/* The lines with the most excess, and some of those with the most instructions. */
static size_t choose(line *lines, size_t count)
{
    enum { BY_EXCESS = STITCH__FACTS_LINES * 2 / 3 };
    qsort(lines, count, sizeof(*lines), by_excess);
    if (count <= STITCH__FACTS_LINES)
        return count;
    qsort(lines + BY_EXCESS, count - BY_EXCESS, sizeof(*lines), by_instructions);
    qsort(lines, STITCH__FACTS_LINES, sizeof(*lines), by_excess);
    return STITCH__FACTS_LINES;
}

static void set_line(filler *x, stitch__line_fact *to, const line *l, uint64_t launches)
{
    const stitch__sim_line_counters *c = &l->sum;
    to->file = stitch__facts_text(x->f, l->file);
    to->line = l->number;
    to->text = is_own(l->file) ? text_of_line(x, l->number) : "";
    to->instructions = stitch__facts_mean(c->instructions, launches);
    to->requests = stitch__facts_mean(c->global_requests, launches);
    to->sectors = stitch__facts_mean(c->global_sectors, launches);
    to->ideal_sectors = stitch__facts_mean(c->global_ideal_sectors, launches);
    to->wavefronts = stitch__facts_mean(c->shared_wavefronts, launches);
    to->ideal_wavefronts = stitch__facts_mean(c->shared_ideal_wavefronts, launches);
}

static int add_lines(filler *x, stitch__kernel_fact *k, const stitch__sim_kernel_report *r)
{
    line *lines = stitch__calloc(x->f->arena.ctx, r->counters.line_count + 1, sizeof(*lines));
    size_t count = 0;
    if (!lines)
        return STITCH_E_NOMEM;
    for (size_t i = 0; i < r->counters.line_count; i++) {
        line l = line_of(&r->counters.lines[i]);
        if (l.file) /* the rest has no place that anyone could look at */
            lines[count++] = l;
    }
    count = choose(lines, merge(lines, count));
    for (size_t i = 0; i < count; i++)
        set_line(x, &k->lines[i], &lines[i], r->launches);
    k->line_count = count;
    stitch_free(lines);
    return STITCH_OK;
}

/* ---- kernels ---- */

static void set_metrics(double *metric, const stitch__sim_counters *c, uint64_t launches)
{
    const stitch__sim_line_counters *t = &c->total;
    metric[STITCH__METRIC_INST] = mean(t->instructions, launches);
    metric[STITCH__METRIC_THREAD_INST] = mean(t->lanes, launches);
    metric[STITCH__METRIC_GLOBAL_REQUESTS] = mean(t->global_requests, launches);
    metric[STITCH__METRIC_GLOBAL_SECTORS] = mean(t->global_sectors, launches);
    metric[STITCH__METRIC_GLOBAL_IDEAL_SECTORS] = mean(t->global_ideal_sectors, launches);
    metric[STITCH__METRIC_GLOBAL_BYTES] = mean(t->global_bytes, launches);
    metric[STITCH__METRIC_SHARED_WAVEFRONTS] = mean(t->shared_wavefronts, launches);
    metric[STITCH__METRIC_SHARED_IDEAL_WAVEFRONTS] = mean(t->shared_ideal_wavefronts, launches);
    metric[STITCH__METRIC_LOCAL_REQUESTS] = mean(t->local_requests, launches);
    metric[STITCH__METRIC_BRANCHES] = mean(t->branches, launches);
    metric[STITCH__METRIC_DIVERGENT_BRANCHES] = mean(t->divergent, launches);
    metric[STITCH__METRIC_FLOPS] = mean(t->flops, launches);
    metric[STITCH__METRIC_MMA_INST] = mean(c->mix[STITCH__SIM_CLASS_MMA], launches);
    metric[STITCH__METRIC_ATOMICS] = mean(t->atomics, launches);
    metric[STITCH__METRIC_ATOMIC_COLLISIONS] = mean(t->atomic_collisions, launches);
}

static bool find_info(const stitch_image *image, const char *symbol, stitch_kernel_info *info)
{
    for (size_t i = 0; image && i < stitch_image_kernel_count(image); i++) {
        if (!stitch_image_kernel(image, i, info) && info->symbol && strcmp(info->symbol, symbol) == 0)
            return true;
    }
    return false;
}

static uint32_t known(int64_t v)
{
    return v > 0 && v <= INT32_MAX ? (uint32_t)v : 0;
}

/* The one step that launches a kernel of this name. */
static int32_t step_of(const stitch__facts *f, const char *name)
{
    int32_t found = -1;
    for (size_t i = 0; i < f->step_count; i++) {
        if (strcmp(f->steps[i].kind, "kernel") != 0 || strcmp(f->steps[i].name, name) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int32_t)i;
    }
    return found;
}

static int name_kernel(filler *x, stitch__kernel_fact *k, const char *symbol)
{
    stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
    stitch__demangled d = {0};
    k->symbol = stitch__facts_text(x->f, symbol);
    if (find_info(x->image, symbol, &info)) {
        k->name = stitch__facts_text(x->f, info.name);
        k->registers = known(info.registers);
        k->static_shared = known(info.static_shared);
        k->local = known(info.local);
    } else {
        if (stitch__demangle(&x->names, symbol, &d) != STITCH_OK)
            return STITCH_E_NOMEM;
        k->name = d.name ? stitch__facts_text(x->f, d.name) : k->symbol;
        k->library = x->image != NULL;
    }
    k->step = step_of(x->f, k->name);
    return STITCH_OK;
}

static int add_kernel(filler *x, const stitch__sim_kernel_report *r)
{
    const stitch__sim_counters *c = &r->counters;
    stitch__kernel_fact *k = stitch__facts_add_kernel(x->f);
    if (!k)
        return x->f->kernel_count < STITCH__FACTS_KERNELS ? STITCH_E_NOMEM : STITCH_OK;
    int rc = name_kernel(x, k, r->kernel);
    if (rc)
        return rc;
    k->launches = stitch__facts_mean(r->launches, x->runs);
    k->launches += !k->launches; /* it was launched */
    memcpy(k->grid, r->grid, sizeof(k->grid));
    memcpy(k->block, r->block, sizeof(k->block));
    if (!c->total.instructions) { /* nobody asked for it, or it did not run */
        if (r->error && *r->message)
            x->f->no_counters = stitch__facts_text(x->f, r->message);
        return STITCH_OK;
    }
    k->counted = c->blocks_total ? mean(c->blocks_run, c->blocks_total) : 0;
    set_metrics(k->metric, c, r->launches);
    return add_lines(x, k, r);
}

static int by_work(const void *pa, const void *pb)
{
    const stitch__sim_kernel_report *a = *(const stitch__sim_kernel_report *const *)pa;
    const stitch__sim_kernel_report *b = *(const stitch__sim_kernel_report *const *)pb;
    if (a->warp_instructions != b->warp_instructions)
        return a->warp_instructions > b->warp_instructions ? -1 : 1;
    return (a > b) - (a < b);
}

int stitch__facts_sim(stitch__facts *f, const stitch__sim_reports *r, const stitch_image *image, const char *source,
                      uint64_t runs, stitch_error **err)
{
    filler x = {.f = f, .image = image, .runs = runs, .source = source, .names = {.ctx = f->arena.ctx}};
    const stitch__sim_kernel_report **order;
    size_t count = 0;
    int rc;
    if (!runs)
        return stitch__err(f->arena.ctx, err, STITCH_E_INVALID, "the simulator's reports of no runs");
    order = stitch__calloc(f->arena.ctx, r->count + 1, sizeof(*order));
    rc = order ? index_source(&x) : STITCH_E_NOMEM;
    if (rc == STITCH_OK) {
        f->source = "simulator";
        for (size_t i = 0; i < r->count; i++) {
            if (r->kernels[i].launches) /* else a product, of which there is a finding */
                order[count++] = &r->kernels[i];
        }
        qsort(order, count, sizeof(*order), by_work);
        for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
            f->launches += stitch__facts_mean(order[i]->launches, runs);
            rc = add_kernel(&x, order[i]);
        }
    }
    if (r->incomplete)
        f->no_counters = "memory ran out while the simulator counted";
    stitch_free(x.lines);
    stitch_free(order);
    stitch__arena_free(&x.names);
    return rc ? stitch__err_nomem(f->arena.ctx, err) : STITCH_OK;
}
