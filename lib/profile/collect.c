/* SPDX-License-Identifier: MIT
 *
 * What is observed of a region, in this order: samples, timeline, counters. Each switches its part of CUPTI off again
 * before the next begins, for they exclude each other.
 */
#include "profile/collect.h"
#include "profile/counters.h"
#include "profile/launches.h"

enum {
    TRACED_RUNS = 3, /* after one that is not counted: it does what CUPTI does only once */
    SLOW_NS = 1000000000,
    SAMPLED_NS = 20000000, /* of work: some thousand samples a multiprocessor at the default period */
    SAMPLED_RUNS = 2000,
};

typedef struct collector {
    stitch_context *ctx;
    stitch__device *dev;
    const stitch__scope *scope;
    const stitch__region *region;
    const stitch__collect_options *options;
    const stitch__cupti *cupti;
    stitch__facts *f;
    stitch_trace *traces[TRACED_RUNS];
    double busy_us[TRACED_RUNS];
    size_t trace_count;
    stitch__sampling *sampling;
    int64_t run_ns; /* of the last traced run */
} collector;

/* Whether a part is only missing, and the rest goes on. */
static bool only_missing(int rc)
{
    return rc != STITCH_OK && rc != STITCH_E_NOMEM && rc != STITCH_E_CANCELLED && rc != STITCH_E_TIMEOUT &&
           rc != STITCH_E_FAULT;
}

/* After rc of a part: names in *missing why it is not there, or hands the error on. */
static int settle(collector *c, int rc, const char **missing, stitch_error **why, stitch_error **err)
{
    if (only_missing(rc)) {
        *missing = stitch__facts_text(c->f, *why ? stitch_error_message(*why) : stitch_status_text(rc));
        stitch_error_free(*why);
        *why = NULL;
        return STITCH_OK;
    }
    stitch__err_hand_on(err, why);
    return rc;
}

/* *stop: what a callback returned, if that ends the collection. */
static int run_paused(collector *c, bool plain, const stitch__pause *pause, int *stop, stitch_error **err)
{
    const stitch__region *r = c->region;
    int rc = stitch__scope_check(c->scope, "profiling", err);
    if (!rc)
        *stop = r->run(r->userdata, plain, pause);
    return rc;
}

static int run_once(collector *c, bool plain, int *stop, stitch_error **err)
{
    return run_paused(c, plain, NULL, stop, err);
}

static int before(collector *c, int *stop, stitch_error **err)
{
    const stitch__region *r = c->region;
    int rc = stitch__scope_check(c->scope, "profiling", err);
    if (!rc && r->before)
        *stop = r->before(r->userdata);
    return rc;
}

/* ---- timeline ---------------------------------------------------------------------------------------------------- */

/* One run under a trace of its own. */
static int trace_run(collector *c, bool plain, stitch_trace **out, int *stop, stitch_error **err)
{
    stitch_trace_options options = STITCH_TRACE_OPTIONS_INIT;
    uint64_t renamed;
    int64_t start;
    int rc = before(c, stop, err);

    *out = NULL;
    if (rc || *stop)
        return rc;
    options.flags = c->region->trace_flags;
    rc = stitch_trace_begin(c->ctx, &options, out, err);
    if (rc)
        return rc;
    start = stitch__now_ns();
    rc = run_once(c, plain, stop, err);
    c->run_ns = stitch__now_ns() - start;
    if (!rc && !*stop)
        rc = stitch__trace_end(*out, c->scope, err);
    if (!rc && !*stop && c->region->expected_count &&
        stitch__attribute(stitch__trace_timeline(*out), c->region->expected, c->region->expected_count, 1, &renamed) ==
            STITCH_OK)
        rc = stitch__trace_analyse(*out, err);
    if (rc || *stop) {
        stitch_trace_free(*out);
        *out = NULL;
    }
    return rc;
}

static double busy_of(stitch_trace *trace)
{
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    return stitch_trace_summary_get(trace, &s) == STITCH_OK ? s.busy_us : 0;
}

/* The run whose device time is the median. */
static size_t middle_run(const collector *c)
{
    size_t best = 0;
    for (size_t i = 0; i < c->trace_count; i++) {
        size_t below = 0, same = 0;
        for (size_t k = 0; k < c->trace_count; k++) {
            below += c->busy_us[k] < c->busy_us[i];
            same += c->busy_us[k] == c->busy_us[i];
        }
        if (below <= (c->trace_count - 1) / 2 && below + same > (c->trace_count - 1) / 2)
            best = i;
    }
    return best;
}

static int take_timeline(collector *c, int *stop, stitch_error **err)
{
    stitch_trace *first = NULL, *middle;
    int rc = trace_run(c, false, &first, stop, err);
    size_t runs = c->run_ns > SLOW_NS ? 1 : TRACED_RUNS;

    stitch_trace_free(first);
    while (!rc && !*stop && c->trace_count < runs) {
        rc = trace_run(c, false, &c->traces[c->trace_count], stop, err);
        if (rc || *stop)
            break;
        c->busy_us[c->trace_count] = busy_of(c->traces[c->trace_count]);
        c->trace_count++;
    }
    if (rc || *stop)
        return rc;
    middle = c->traces[middle_run(c)];
    if (stitch__trace_timeline(middle)->dropped)
        return stitch__err(c->ctx, err, STITCH_E_LIMIT, "a run has more records than a trace holds");
    return stitch__facts_timeline(c->f, stitch__trace_finished(middle), stitch__trace_analysis(middle), err);
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

/* Adds a launch to the means of its kernel: of launches that weigh `before` together. */
static void add_values(double *mean, const double *values, size_t count, double before, double weight)
{
    for (size_t i = 0; i < count; i++)
        mean[i] = before > 0 ? mean[i] + (values[i] - mean[i]) * weight / (before + weight) : values[i];
}

static int put_counters(collector *c, const stitch__counters *counters, const stitch__launches *l, stitch_error **err)
{
    double metrics[STITCH__METRICS], extra[STITCH__FACTS_EXTRA];
    double *seen = stitch__calloc(c->ctx, c->f->kernel_count + 1, sizeof(*seen));

    if (!seen)
        return stitch__err_nomem(c->ctx, err);
    for (size_t i = 0; i < l->counted; i++) {
        const stitch__launch *at = &l->list[i];
        if (!(at->weight > 0))
            continue;
        stitch__kernel_fact *fact = &c->f->kernels[at->row];
        stitch__counters_get(counters, i, metrics, extra);
        add_values(fact->metric, metrics, STITCH__METRICS, seen[at->row], at->weight);
        add_values(fact->extra, extra, c->options->extra_count, seen[at->row], at->weight);
        seen[at->row] += at->weight;
    }
    stitch_free(seen);
    return STITCH_OK;
}

/* Says which launches and which metrics have no counters. */
static int say_left_out(collector *c, const stitch__counters *counters, const stitch__launches *l, stitch_error **err)
{
    const char *missing = stitch__counters_missing(counters);
    stitch__buf b;
    stitch__buf_init(&b, c->ctx);
    if (l->wanted < l->of)
        stitch__buf_printf(&b, "of all but %zu of %zu launches", l->wanted, l->of);
    if (*missing)
        stitch__buf_printf(&b, "%snot offered by this device: %s", b.len ? "; " : "", missing);
    int rc = b.failed ? stitch__err_nomem(c->ctx, err) : STITCH_OK;
    c->f->no_counters = stitch__facts_text(c->f, b.len ? b.data : "");
    stitch__buf_free(&b);
    return rc;
}

/* Of a program the runs before were a graph, which may copy with other kernels. */
static bool same_launches(const collector *c, size_t count)
{
    for (size_t i = 0; i < c->trace_count && !c->region->expected_count; i++) {
        stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
        if (stitch_trace_summary_get(c->traces[i], &s) == STITCH_OK && s.kernels != count)
            return false;
    }
    return true;
}

/* The rest of a run goes uncounted. */
typedef struct counting {
    stitch__counters *counters;
    stitch_error *why;
    int rc;
} counting;

static int pause_counting(void *userdata)
{
    counting *p = userdata;
    p->rc = stitch__counters_pause(p->counters, &p->why);
    return STITCH_OK;
}

/* given: to the device, when the last launch is there whose counters are wanted; 0: that is the last of all. */
static int count_run(collector *c, stitch__counters *counters, size_t given, int *stop, stitch_error **err)
{
    counting p = {.counters = counters};
    const stitch__pause pause = {given, pause_counting, &p};
    stitch_error *why = NULL;
    bool more = false;
    int ended, rc = before(c, stop, err);

    if (!rc && !*stop)
        rc = stitch__counters_start(counters, err);
    if (rc || *stop)
        return rc;
    do {
        rc = run_paused(c, true, given ? &pause : NULL, stop, err);
        if (!rc && !*stop && p.rc) {
            rc = p.rc;
            stitch__err_hand_on(err, &p.why);
        }
        if (!rc && !*stop)
            rc = stitch__counters_again(counters, &more, err);
        if (!rc && !*stop && more)
            rc = before(c, stop, err);
    } while (!rc && !*stop && more);
    ended = *stop ? STITCH_OK : stitch__counters_stop(counters, &why); /* close() ends it after a failure */
    if (!rc && ended) {
        rc = ended;
        stitch__err_hand_on(err, &why);
    }
    stitch_error_free(why);
    stitch_error_free(p.why);
    return rc;
}

/* Plans the counters for the launches that are looked at, and takes them. */
static int count_launches(collector *c, const stitch__launches *l, stitch__counters **counters, int *stop,
                          stitch_error **err)
{
    const bool all = l->counted == l->count;
    stitch__counters_options options = {.set = c->options->set,
                                        .extra = c->options->extra,
                                        .extra_count = c->options->extra_count,
                                        .max_kernels = l->counted + all, /* one too many is to be seen */
                                        .repeats = true,
                                        .scope = c->scope};
    bool *wanted = stitch__calloc(c->ctx, options.max_kernels, sizeof(*wanted));
    int rc;

    if (!wanted)
        return stitch__err_nomem(c->ctx, err);
    for (size_t i = 0; i < l->counted; i++)
        wanted[i] = l->list[i].weight > 0;
    options.wanted = wanted;
    rc = stitch__counters_open(c->ctx, c->dev, c->cupti, &options, counters, err);
    if (!rc)
        rc = count_run(c, *counters, all ? 0 : l->list[l->counted - 1].given, stop, err);
    if (!rc && !*stop && stitch__counters_count(*counters) != l->counted)
        rc = stitch__err(
            c->ctx, err, STITCH_E_UNSUPPORTED,
            "counters came for %zu launches and the timeline has %zu: other work of this process, or graphs, "
            "are among them",
            stitch__counters_count(*counters), l->counted);
    stitch_free(wanted);
    return rc;
}

/* CUPTI counts no kernel of a graph, and fails at some. */
static bool has_graphs(const stitch__timeline *t)
{
    for (size_t i = 0; i < t->count; i++) {
        const stitch__event *e = &t->events[i];
        if (e->kind == STITCH_TRACE_GRAPH_LAUNCH || (e->kind == STITCH_TRACE_KERNEL && e->graph_node))
            return true;
    }
    return false;
}

static int take_counters(collector *c, int *stop, stitch_error **err)
{
    stitch__counters *counters = NULL;
    stitch_trace *plain = NULL;
    const stitch__timeline *t;
    stitch__launches l = {0};
    int rc = STITCH_OK;

    if (!c->f->kernel_count)
        return stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED, "no kernels were seen in the timeline");
    if (c->region->expected_count) /* a program's runs before were graphs; other work has the one form */
        rc = trace_run(c, true, &plain, stop, err);
    if (rc || *stop)
        return rc;
    t = stitch__trace_finished(plain ? plain : c->traces[middle_run(c)]);
    if (stitch__launches_of(c->f, t, &l))
        rc = stitch__err_nomem(c->ctx, err);
    if (!rc && has_graphs(t))
        rc = stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED,
                         "the work launches graphs, and CUPTI counts no kernels in them: run it without graphs, as "
                         "launches on streams (a verified program is profiled like that)");
    if (!rc && !same_launches(c, l.count))
        rc = stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED, "the work does not launch as many kernels each time");
    if (!rc && !l.counted)
        rc = stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED, "no kernel of the timeline is among the first launches");
    if (!rc)
        rc = count_launches(c, &l, &counters, stop, err);
    if (!rc && !*stop) {
        for (size_t i = 0; i < c->options->extra_count; i++)
            c->f->extra_names[i] = stitch__facts_text(c->f, c->options->extra[i]);
        c->f->extra_count = c->options->extra_count;
        rc = put_counters(c, counters, &l, err);
        if (!rc)
            rc = say_left_out(c, counters, &l, err);
    }
    stitch__counters_close(counters);
    stitch_free(l.list);
    stitch_trace_free(plain);
    return rc;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

/* Before anything is traced: see stitch__exclusive_graph_traced(). */
static int take_samples(collector *c, int *stop, stitch_error **err)
{
    int64_t start;
    int rc = stitch__sampling_open(c->ctx, c->dev, c->cupti, c->region->modules, c->region->module_count, 0, c->scope,
                                   &c->sampling, err);

    if (!rc)
        rc = before(c, stop, err);
    if (!rc && !*stop)
        rc = stitch__sampling_start(c->sampling, err);
    start = stitch__now_ns();
    for (int i = 0; !rc && !*stop && i < SAMPLED_RUNS && (!i || stitch__now_ns() - start < SAMPLED_NS); i++)
        rc = run_once(c, false, stop, err);
    if (!rc && !*stop)
        rc = stitch__sampling_stop(c->sampling, err);
    if (!rc && !*stop && !stitch__sampling_total(c->sampling))
        rc = stitch__sampling_unknown(c->sampling)
                 ? stitch__err(
                       c->ctx, err, STITCH_E_UNSUPPORTED,
                       "CUPTI cannot tell kernels of this process apart: another tool may have traced graphs in it")
                 : stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED, "nothing was sampled: the kernels are too short");
    if (c->sampling)
        stitch__sampling_end(c->sampling);
    if (rc) {
        stitch__sampling_close(c->sampling);
        c->sampling = NULL;
    }
    return rc;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

int stitch__collect(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope, const stitch__region *region,
                    const stitch__collect_options *options, stitch__facts *f, stitch_error **err)
{
    collector c = {.ctx = ctx, .dev = dev, .scope = scope, .region = region, .options = options, .f = f};
    const struct {
        uint32_t part;
        const char *name;
        int (*take)(collector *, int *, stitch_error **);
        const char **missing;
    } parts[] = {
        {STITCH__PART_SAMPLES, "samples", take_samples, &f->no_samples},
        {STITCH__PART_TIMELINE, "the timeline", take_timeline, &f->no_timeline},
        {STITCH__PART_COUNTERS, "counters", take_counters, &f->no_counters},
    };
    stitch_error *why = NULL;
    int stop = 0, opened = stitch__cupti_get(ctx, &c.cupti, &why);
    /* CUPTI may wait for it in its own calls. */
    int rc = opened ? STITCH_OK : stitch__context_wait(dev, scope, "the work before the profile", err);

    f->source = "cupti";
    for (size_t i = 0; !rc && !stop && i < STITCH__COUNT(parts); i++) {
        if (!(options->parts & parts[i].part)) {
            *parts[i].missing = "it was not asked for";
        } else if (opened) {
            *parts[i].missing = stitch__facts_text(f, why ? stitch_error_message(why) : stitch_status_text(opened));
        } else {
            int64_t start = stitch__now_ns();
            rc = parts[i].take(&c, &stop, &why);
            stitch__log(ctx, STITCH_LOG_DEBUG, "profile: %s took %.1f ms", parts[i].name,
                        (double)(stitch__now_ns() - start) / 1e6);
            rc = settle(&c, rc, parts[i].missing, &why, err);
        }
    }
    stitch_error_free(why);
    if (!rc && !stop && c.sampling) /* the rows of kernels are there now */
        rc = stitch__sampling_fill(c.sampling, f, err);
    stitch__sampling_close(c.sampling);
    for (size_t i = 0; i < c.trace_count; i++)
        stitch_trace_free(c.traces[i]);
    return rc ? rc : stop;
}
