/* SPDX-License-Identifier: MIT
 *
 * Verdicts and advice as text. Each piece has a value; where not all fit, the least valuable ones are left out and
 * counted, and an advice is shortened before it is left out.
 */
#include <math.h>
#include <stdio.h>

#include "profile/rules.h"

enum {
    MOST_BYTES = 65536, /* as for a trace's text */
    KERNEL_ROWS = 24,
    ADVICE_ROWS = 24,
    LEFT_OUT_BYTES = 80, /* kept for the last line */
};

enum { HEAD, DEVICE, KERNELS, ADVICE, MISSING, SECTIONS };
static const char *const titles[SECTIONS] = {"", "", "Kernels:\n", "Advice (gains are upper bounds):\n", ""};

enum { FORMS = 3 };

/* Parts of the pool of text. */
typedef struct piece {
    size_t forms, at[FORMS], len[FORMS]; /* longest first */
    int section;
    int value; /* smaller: worth more */
    bool chosen;
    size_t form; /* of the chosen one */
} piece;

typedef struct writer {
    const stitch__facts *f;
    const stitch__advices *a;
    stitch__run_figures run;
    stitch__buf pool;
    size_t count;
    piece pieces[KERNEL_ROWS + ADVICE_ROWS + 4];
    size_t kernels, advice; /* of the pieces */
} writer;

static piece *begin(writer *w, int section, int value)
{
    piece *p = &w->pieces[w->count++];
    memset(p, 0, sizeof(*p));
    p->section = section;
    p->value = value;
    p->at[0] = w->pool.len;
    return p;
}

/* Of a form; the next one begins. */
static void end(writer *w, piece *p)
{
    p->len[p->forms] = w->pool.len - p->at[p->forms];
    if (++p->forms < FORMS)
        p->at[p->forms] = w->pool.len;
}

static void put_gain(stitch__buf *b, const stitch__advice *a)
{
    if (a->gain_us <= 0)
        return;
    stitch__buf_printf(b, ", up to %s (%.0f %% of the run)", stitch__time(a->gain_us).s, 100 * a->gain_share);
}

/* "transpose<32> (run[2])" */
static void put_subject(writer *w, const stitch__advice *a)
{
    char name[STITCH__NAME_BYTES];
    const char *place = a->step >= 0 && (size_t)a->step < w->f->step_count ? w->f->steps[a->step].place : "";
    if (a->kernel >= 0 && (size_t)a->kernel < w->f->kernel_count)
        stitch__buf_puts(&w->pool, stitch__short_name(w->f->kernels[a->kernel].name, name, sizeof(name)));
    else
        stitch__buf_puts(&w->pool, a->step >= 0 ? "steps from" : "the run");
    if (*place)
        stitch__buf_printf(&w->pool, a->kernel >= 0 ? " (%s)" : " %s", stitch__short_name(place, name, sizeof(name)));
}

/* ---- pieces ---- */

static void write_head(writer *w)
{
    const stitch__verdict *v = &w->a->run;
    piece *p = begin(w, HEAD, 0);
    if (v->bound == STITCH__BOUND_UNKNOWN)
        stitch__buf_printf(&w->pool, "What bounds it is not known: %s.", v->because);
    else
        stitch__buf_printf(&w->pool, "%c%s-bound: %s.", stitch__bound_class_name(v->bound)[0] & ~0x20,
                           stitch__bound_class_name(v->bound) + 1, v->because);
    if (w->a->count) {
        const stitch__advice *a = &w->a->list[0];
        stitch__buf_printf(&w->pool, " %s: %s", a->gain_us > 0 ? "Most to gain" : "First", a->rule);
        if (a->kernel >= 0 || a->step >= 0) {
            stitch__buf_puts(&w->pool, " in ");
            put_subject(w, a);
        }
        put_gain(&w->pool, a);
        stitch__buf_putc(&w->pool, '.');
    }
    stitch__buf_putc(&w->pool, '\n');
    end(w, p);
}

static void write_device(writer *w)
{
    const stitch__facts *f = w->f;
    const stitch__ceilings *c = &f->ceilings;
    char name[STITCH__NAME_BYTES];
    piece *p = begin(w, DEVICE, 18);
    stitch__buf_printf(&w->pool, "Device: %s",
                       *f->device ? stitch__short_name(f->device, name, sizeof(name)) : "not known");
    if (*f->arch)
        stitch__buf_printf(&w->pool, " (%s)", stitch__short_name(f->arch, name, sizeof(name)));
    if (f->multiprocessors)
        stitch__buf_printf(&w->pool, ", %" PRIu32 " multiprocessors", f->multiprocessors);
    double dram = stitch__measured(c->dram_gb_s), f32 = stitch__measured(c->f32_tflops);
    if (dram > 0)
        stitch__buf_printf(&w->pool, "; %s ceilings: DRAM %.0f GB/s", c->measured ? "measured" : "estimated", dram);
    if (dram > 0 && f32 > 0)
        stitch__buf_printf(&w->pool, ", float32 %.0f TFLOP/s", f32);
    if (w->run.time_us > 0) {
        stitch__buf_printf(&w->pool, "; run %s, idle %s", stitch__time(w->run.time_us).s,
                           stitch__time(w->run.idle_us).s);
    }
    stitch__buf_puts(&w->pool, ".\n");
    end(w, p);
}

static void put_share(stitch__buf *b, const char *name, double share)
{
    if (!isnan(share))
        stitch__buf_printf(b, ", %s %.0f %%", name, 100 * share);
}

static void write_kernel(writer *w, size_t i)
{
    const stitch__kernel_fact *k = &w->f->kernels[i];
    const stitch__verdict *v = &w->a->kernels[i];
    stitch__figures g;
    char name[STITCH__NAME_BYTES];
    piece *p = begin(w, KERNELS, 15 + 10 * (int)w->kernels++);
    stitch__buf *b = &w->pool;
    stitch__figures_of(w->f, &w->run, k, &g);
    stitch__buf_puts(b, "- ");
    if (!isnan(g.share))
        stitch__buf_printf(b, "%.1f %%: ", 100 * g.share);
    stitch__buf_printf(b, "%" PRIu64 " x ", k->launches);
    if (!isnan(g.time_us))
        stitch__buf_printf(b, "%s ", stitch__time(g.time_us).s);
    stitch__buf_puts(b, stitch__short_name(k->name, name, sizeof(name)));
    if (k->step >= 0 && (size_t)k->step < w->f->step_count)
        stitch__buf_printf(b, " (%s)", stitch__short_name(w->f->steps[k->step].place, name, sizeof(name)));
    stitch__buf_printf(b, "%s: %s", k->library ? " of a library" : "",
                       v->bound == STITCH__BOUND_UNKNOWN ? "what bounds it is not known"
                                                         : stitch__bound_class_name(v->bound));
    if (v->bound != STITCH__BOUND_UNKNOWN)
        stitch__buf_puts(b, "-bound");
    if (v->reached > 0)
        stitch__buf_printf(b, ", at %.0f %% of the nearest limit%s", 100 * v->reached,
                           stitch__all_counted(&g) ? "" : " that was counted");
    put_share(b, "DRAM", g.dram);
    put_share(b, "L2", g.l2);
    put_share(b, "L1", g.l1);
    put_share(b, "float32", g.fma);
    put_share(b, "tensor", g.tensor);
    put_share(b, "issue", g.issue);
    put_share(b, "occupancy", g.occupancy);
    if (v->gb_s > 0)
        stitch__buf_printf(b, ", %.0f GB/s", v->gb_s);
    if (v->tflops > 0)
        stitch__buf_printf(b, ", %.3g TFLOP/s", v->tflops);
    stitch__buf_putc(b, '\n');
    end(w, p);
}

static void put_place(stitch__buf *b, const stitch__advice *a)
{
    char name[STITCH__NAME_BYTES];
    stitch__buf_printf(b, "%s:%" PRIu32, *a->file ? stitch__short_name(a->file, name, sizeof(name)) : "line", a->line);
}

/* "1. [uncoalesced] transpose (run[1]), up to 12.00 us (10 % of the run)" */
static void put_title(writer *w, size_t i)
{
    stitch__buf_printf(&w->pool, "%zu. [%s] ", i + 1, w->a->list[i].rule);
    put_subject(w, &w->a->list[i]);
    put_gain(&w->pool, &w->a->list[i]);
}

static void write_advice(writer *w, size_t i)
{
    const stitch__advice *a = &w->a->list[i];
    stitch__buf *b = &w->pool;
    piece *p = begin(w, ADVICE, 10 + 10 * (int)w->advice++);
    put_title(w, i);
    stitch__buf_printf(b, ": %s\n   Evidence: %s.\n", a->problem, a->evidence);
    if (a->line) {
        stitch__buf_puts(b, "   At ");
        put_place(b, a);
        stitch__buf_printf(b, "%s%s\n", *a->source ? ": " : "", a->source);
    }
    stitch__buf_printf(b, "   Do: %s\n", a->action);
    end(w, p);
    for (int with_action = 1; with_action >= 0; with_action--) {
        put_title(w, i);
        if (a->line) {
            stitch__buf_puts(b, ", at ");
            put_place(b, a);
        }
        stitch__buf_putc(b, '\n');
        if (with_action)
            stitch__buf_printf(b, "   Do: %s\n", a->action);
        end(w, p);
    }
}

static void write_missing(writer *w)
{
    const char *const what[] = {"times", "counters", "stall reasons"};
    const char *const why[] = {w->f->no_timeline, w->f->no_counters, w->f->no_samples};
    bool any = false;
    piece *p = begin(w, MISSING, 12);
    for (size_t i = 0; i < STITCH__COUNT(what); i++) {
        if (!*why[i])
            continue;
        stitch__buf_printf(&w->pool, "%s%s (", any ? "; " : "Not measured: ", what[i]);
        stitch__buf_puts_clean(&w->pool, why[i], strlen(why[i]), STITCH__FACTS_TEXT);
        stitch__buf_putc(&w->pool, ')');
        any = true;
    }
    if (any)
        stitch__buf_puts(&w->pool, ".\n");
    if (w->f->kernels_left_out)
        stitch__buf_printf(&w->pool, "%zu more kernels were not looked at.\n", w->f->kernels_left_out);
    end(w, p);
}

/* ---- what fits ---- */

static void choose(writer *w, size_t max)
{
    bool open[SECTIONS] = {false};
    size_t used = 0;
    for (size_t n = 0; n < w->count; n++) {
        piece *best = NULL;
        for (size_t i = 0; i < w->count; i++) {
            piece *p = &w->pieces[i];
            if (p->value >= 0 && (!best || p->value < best->value))
                best = p;
        }
        size_t title = open[best->section] ? 0 : strlen(titles[best->section]);
        best->value = -1; /* seen */
        for (size_t form = 0; form < best->forms && !best->chosen; form++) {
            best->chosen = used + title + best->len[form] <= max;
            best->form = form;
        }
        if (!best->chosen)
            continue;
        open[best->section] = true;
        used += title + best->len[best->form];
    }
}

static size_t everything(const writer *w)
{
    size_t len = strlen(titles[ADVICE]) + strlen(titles[KERNELS]);
    for (size_t i = 0; i < w->count; i++)
        len += w->pieces[i].len[0];
    return len;
}

/* The first line alone, cut at a character. */
static void write_cut(const writer *w, size_t max, stitch__buf *out)
{
    const piece *head = &w->pieces[0];
    const char *text = w->pool.data + head->at[0];
    size_t len = head->len[0] < max ? head->len[0] : max;
    while (len > 0 && len < head->len[0] && ((unsigned char)text[len] & 0xc0) == 0x80)
        len--;
    stitch__buf_append(out, text, len);
}

static void write_chosen(writer *w, stitch__buf *out, bool all)
{
    size_t kernels = w->a->kernel_count - w->kernels, advice = w->a->count - w->advice, shortened = 0;
    int section = HEAD;
    for (size_t i = 0; i < w->count; i++) {
        const piece *p = &w->pieces[i];
        kernels += p->section == KERNELS && !p->chosen;
        advice += p->section == ADVICE && !p->chosen;
        shortened += p->chosen && p->form > 0;
        if (!p->chosen)
            continue;
        if (p->section != section)
            stitch__buf_puts(out, titles[p->section]);
        section = p->section;
        stitch__buf_append(out, w->pool.data + p->at[p->form], p->len[p->form]);
    }
    if (kernels + advice + shortened || !all)
        stitch__buf_printf(out, "Left out: kernels: %zu, advice: %zu, shortened advice: %zu.\n", kernels, advice,
                           shortened);
}

void stitch__advice_write_text(const stitch__facts *f, const stitch__advices *a, size_t max_bytes, stitch__buf *out)
{
    size_t max = max_bytes && max_bytes < MOST_BYTES ? max_bytes : MOST_BYTES;
    writer w;
    memset(&w, 0, sizeof(w));
    w.f = f;
    w.a = a;
    stitch__figures_of_run(f, &w.run);
    stitch__buf_init(&w.pool, out->ctx);
    write_head(&w);
    write_device(&w);
    for (size_t i = 0; i < a->kernel_count && i < f->kernel_count && i < KERNEL_ROWS; i++)
        write_kernel(&w, i);
    for (size_t i = 0; i < a->count && i < ADVICE_ROWS; i++)
        write_advice(&w, i);
    write_missing(&w);
    if (w.pool.failed) {
        out->failed = true;
    } else if (max < w.pieces[0].len[0] + LEFT_OUT_BYTES) {
        write_cut(&w, max, out);
    } else {
        bool all = everything(&w) + LEFT_OUT_BYTES <= max;
        choose(&w, max - LEFT_OUT_BYTES);
        write_chosen(&w, out, all);
    }
    stitch__buf_free(&w.pool);
}
