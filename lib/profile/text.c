/* SPDX-License-Identifier: MIT
 *
 * A trace as text: one line a fact, the decisive one first, whole lines up to a number of bytes.
 */
#include "profile/profile.h"
#include "profile/rules.h"

enum { MOST_BYTES = 65536, NAME_BYTES = 96, KERNEL_ROWS = 24 };

typedef struct writer {
    stitch__buf *out;
    size_t max;
    bool full;
} writer;

/* Adds a line if all of it fits. Returns false where it does not; nothing is added any more then. */
STITCH__PRINTF(2, 3) static bool line(writer *w, const char *fmt, ...)
{
    size_t before = w->out->len;
    va_list ap;
    if (w->full)
        return false;
    va_start(ap, fmt);
    stitch__buf_vprintf(w->out, fmt, ap);
    va_end(ap);
    stitch__buf_putc(w->out, '\n');
    w->full = w->out->len > w->max;
    if (w->full)
        stitch__buf_truncate(w->out, before);
    return !w->full;
}

typedef struct text {
    char s[128];
} text;

static text bytes_text(uint64_t bytes)
{
    text t;
    if (bytes < 10000)
        stitch__format(t.s, sizeof(t.s), "%" PRIu64 " B", bytes);
    else if (bytes < 10000000)
        stitch__format(t.s, sizeof(t.s), "%.1f kB", (double)bytes / 1e3);
    else if (bytes < UINT64_C(10000000000))
        stitch__format(t.s, sizeof(t.s), "%.1f MB", (double)bytes / 1e6);
    else
        stitch__format(t.s, sizeof(t.s), "%.1f GB", (double)bytes / 1e9);
    return t;
}

static text name_text(const char *name)
{
    text t;
    stitch__short_name(name, t.s, NAME_BYTES + 4);
    return t;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* ---- the decisive fact ---- */

/* Idle time in which the host had done its part. */
static double own_idle(const stitch_trace_summary *s)
{
    double rest = s->idle_us - s->idle_sync_us - s->idle_call_us - s->idle_host_us;
    return s->has_calls && rest > 0 ? rest : 0;
}

static void write_idle(writer *w, const stitch_trace_summary *s)
{
    const char *why = "the host is in no CUDA call: the program itself is what the GPU waits for";
    double most = s->idle_host_us, device = own_idle(s);
    if (s->idle_sync_us > most) {
        most = s->idle_sync_us;
        why = "the host is still in a call that waits for the GPU: each wait costs a round trip";
    }
    if (s->idle_call_us > most) {
        most = s->idle_call_us;
        why = "the host is in CUDA calls: launching, allocating and loading take longer than the work";
    }
    if (device > most) {
        most = device;
        why = "what comes next has been launched already: it waits for other work, or is the next node of a graph";
    }
    if (s->short_gap_us > 0.6 * s->idle_us)
        line(w,
             "Launch-bound: the GPU is idle for %.1f %% of %s, in %" PRIu64
             " gaps of %.2f us each between pieces of work of %.2f us each%s.",
             100 * s->idle_share, stitch__time(s->span_us).s, s->short_gaps, s->short_gap_us / (double)s->short_gaps,
             s->busy_us / (double)(s->gaps + 1), s->graph_nodes ? "" : "; a CUDA graph or fewer, larger kernels help");
    else if (s->has_calls)
        line(w, "The GPU is idle for %.1f %% of %s; for %.0f %% of that, %s.", 100 * s->idle_share,
             stitch__time(s->span_us).s, percent(most, s->idle_us), why);
    else
        line(w, "The GPU is idle for %.1f %% of %s.", 100 * s->idle_share, stitch__time(s->span_us).s);
}

static void write_verdict(writer *w, const stitch__analysis *a)
{
    const stitch_trace_summary *s = &a->summary;
    if (s->kernels + s->copies + s->fills == 0) {
        line(w, "No GPU work was recorded.");
        return;
    }
    if (s->idle_share >= 0.25) {
        write_idle(w, s);
    } else if (s->copy_us - s->overlap_us > 0.5 * s->busy_us && a->copy_count) {
        const stitch_trace_copy *c = &a->copies[0];
        line(w, "Copies alone take %.1f %% of the GPU's busy time, most of it %s: %s at %.1f GB/s%s.",
             percent(s->copy_us - s->overlap_us, s->busy_us), c->name, bytes_text(c->bytes).s, c->gb_per_s,
             c->pageable ? " with host memory that is not pinned" : "");
    } else if (a->kernel_count) {
        const stitch_trace_kernel *k = &a->kernels[0];
        line(w, "Kernel %s takes %.1f %% of the kernel time: %" PRIu64 " launches, mean %s.", name_text(k->name).s,
             100 * k->share, k->count, stitch__time(k->mean_us).s);
    } else {
        line(w, "Copies and fills alone were recorded.");
    }
}

/* ---- tables ---- */

static void write_totals(writer *w, const stitch_trace_summary *s)
{
    if (s->dropped)
        line(w, "%" PRIu64 " records are missing: counts and times are too low.", s->dropped);
    if (s->kernels + s->copies + s->fills)
        line(w,
             "GPU: busy %s of %s on %" PRIu32 " stream%s; kernels: %" PRIu64 ", %s; copies and fills: %" PRIu64
             ", %s, %.1f %% of it beside kernels.",
             stitch__time(s->busy_us).s, stitch__time(s->span_us).s, s->streams, s->streams == 1 ? "" : "s", s->kernels,
             stitch__time(s->kernel_us).s, s->copies + s->fills, stitch__time(s->copy_us).s,
             percent(s->overlap_us, s->copy_us));
    if (s->graph_launches || s->graph_nodes)
        line(w, "Graphs: %" PRIu64 " launches, %" PRIu64 " nodes ran.", s->graph_launches, s->graph_nodes);
}

static void write_kernel(writer *w, const stitch_trace_kernel *k)
{
    char occupancy[96] = "", step[32] = "", shared[64] = "", local[48] = "";
    if (k->occupancy > 0)
        stitch__format(occupancy, sizeof(occupancy), ", occupancy %.0f %%%s%s, %.2f waves", 100 * k->occupancy,
                       *k->limiter ? " by " : "", k->limiter, k->waves);
    if (k->step >= 0)
        snprintf(step, sizeof(step), " (step %" PRId32 ")", k->step);
    if (k->static_shared || k->dynamic_shared)
        snprintf(shared, sizeof(shared), ", %" PRIu32 "+%" PRIu32 " B shared", k->static_shared, k->dynamic_shared);
    if (k->local)
        snprintf(local, sizeof(local), ", %" PRIu32 " B local", k->local);
    line(w,
         "- %5.1f %%  %s = %" PRIu64 " x %s  %s%s: grid %" PRIu32 "x%" PRIu32 "x%" PRIu32 ", block %" PRIu32 "x%" PRIu32
         "x%" PRIu32 "%s, %" PRIu32 " registers%s%s%s",
         100 * k->share, stitch__time(k->total_us).s, k->count, stitch__time(k->mean_us).s, name_text(k->name).s, step,
         k->grid[0], k->grid[1], k->grid[2], k->block[0], k->block[1], k->block[2], k->varied ? " (varies)" : "",
         k->registers, shared, local, occupancy);
}

static void write_kernels(writer *w, const stitch__analysis *a, size_t from, size_t to)
{
    for (size_t i = from; i < to && i < a->kernel_count; i++)
        write_kernel(w, &a->kernels[i]);
    if (to >= KERNEL_ROWS && a->kernel_count > to)
        line(w, "- %zu more kernels", a->kernel_count - to);
}

static void write_host(writer *w, const stitch_trace_summary *s)
{
    if (s->idle_us > 0 && s->has_calls)
        line(w,
             "Idle %s: %s while the host waits, %s in other CUDA calls, %s in none, %s with the next work launched "
             "already; longest gap %s.",
             stitch__time(s->idle_us).s, stitch__time(s->idle_sync_us).s, stitch__time(s->idle_call_us).s,
             stitch__time(s->idle_host_us).s, stitch__time(own_idle(s)).s, stitch__time(s->longest_gap_us).s);
    if (s->calls)
        line(w, "Host: %" PRIu64 " CUDA calls, %s in them; %" PRIu64 " synchronisations, %s in them.", s->calls,
             stitch__time(s->call_us).s, s->syncs, stitch__time(s->sync_us).s);
}

static void write_copies(writer *w, const stitch__analysis *a)
{
    for (size_t i = 0; i < a->copy_count; i++) {
        const stitch_trace_copy *c = &a->copies[i];
        char pageable[64] = "";
        if (c->pageable)
            snprintf(pageable, sizeof(pageable), ", %" PRIu64 " with host memory that is not pinned", c->pageable);
        line(w, "- %s: %" PRIu64 " x, %s, %s, %.1f GB/s%s", c->name, c->count, bytes_text(c->bytes).s,
             stitch__time(c->total_us).s, c->gb_per_s, pageable);
    }
}

static void write_gaps(writer *w, const stitch__analysis *a)
{
    for (size_t i = 0; i < a->gap_count && i < 5; i++) {
        const stitch_trace_gap *g = &a->gaps[i];
        const char *cause = strcmp(g->cause, "sync") == 0     ? ", the host waits"
                            : strcmp(g->cause, "call") == 0   ? ", the host is in CUDA calls"
                            : strcmp(g->cause, "host") == 0   ? ", the host is in no CUDA call"
                            : strcmp(g->cause, "device") == 0 ? ", what comes next has been launched already"
                                                              : "";
        line(w, "- gap of %s between %s and %s%s%s%s%s", stitch__time(g->end_us - g->start_us).s,
             name_text(g->before).s, name_text(g->after).s, cause, *g->call ? " (" : "", g->call,
             *g->call ? " in it)" : "");
    }
}

void stitch__trace_write_text(const stitch__analysis *a, size_t max_bytes, stitch__buf *out)
{
    enum { FIRST = 5 };
    writer w = {out, max_bytes && max_bytes < MOST_BYTES ? max_bytes : MOST_BYTES, false};
    write_verdict(&w, a);
    write_totals(&w, &a->summary);
    write_kernels(&w, a, 0, FIRST);
    write_copies(&w, a);
    write_host(&w, &a->summary);
    write_gaps(&w, a);
    if (a->kernel_count > FIRST) {
        line(&w, "More kernels:");
        write_kernels(&w, a, FIRST, KERNEL_ROWS);
    }
    if (a->summary.incomplete || a->summary.unknown)
        line(&w, "%" PRIu64 " records without times, %" PRIu64 " of unknown kinds.", a->summary.incomplete,
             a->summary.unknown);
}
