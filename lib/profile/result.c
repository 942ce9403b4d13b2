/* SPDX-License-Identifier: MIT
 *
 * Finished profiles: made of facts, read by users.
 */
#include "profile/result.h"

#include "profile/ceilings.h"
#include "profile/exclusive.h"
#include "program/program.h"

enum { TIMEOUT_MS = 120000 };

/* ---- options ----------------------------------------------------------------------------------------------------- */

int stitch__collect_options_make(stitch_context *ctx, int32_t profile, const char *const *metrics, size_t metric_count,
                                 const char *what, stitch__collect_options *out, stitch_error **err)
{
    static const uint32_t parts[] = {STITCH__PARTS, STITCH__PARTS, STITCH__PART_TIMELINE, 0};

    if (profile < STITCH_PROFILE_AUTO || profile > STITCH_PROFILE_NEVER)
        return stitch__err(ctx, err, STITCH_E_INVALID, "%s: profile is %d; it must be 0 to %d", what, (int)profile,
                           STITCH_PROFILE_NEVER);
    if (metric_count > STITCH__FACTS_EXTRA || (metric_count && !metrics))
        return stitch__err(ctx, err, STITCH_E_INVALID, "%s: metric_count is %zu (at most %d), or metrics is NULL", what,
                           metric_count, STITCH__FACTS_EXTRA);
    for (size_t i = 0; i < metric_count; i++) {
        if (!stitch__metric_name_ok(metrics[i]))
            return stitch__err(ctx, err, STITCH_E_INVALID, "%s: metrics[%zu] is no name of a metric", what, i);
    }
    out->parts = parts[profile];
    out->set = profile == STITCH_PROFILE_FULL ? STITCH__METRIC_FULL : STITCH__METRIC_CHEAP;
    out->extra = metrics;
    out->extra_count = metric_count;
    return STITCH_OK;
}

int stitch_profile_options_init(stitch_profile_options *options, size_t struct_size)
{
    return stitch__options_init(options, struct_size, sizeof(*options));
}

int stitch__profile_options_resolve(stitch_context *ctx, const stitch_profile_options *options,
                                    stitch_profile_options *out, stitch__collect_options *collect, stitch_error **err)
{
    int rc = stitch__options_copy(ctx, out, sizeof(*out), options, "stitch_profile_options", err);

    if (!rc)
        rc = stitch__collect_options_make(ctx, out->profile, out->metrics, out->metric_count, "stitch_profile_options",
                                          collect, err);
    if (!rc && out->image_count && !out->images)
        rc =
            stitch__err(ctx, err, STITCH_E_INVALID, "stitch_profile_options: image_count is not 0, and images is NULL");
    for (size_t i = 0; !rc && i < out->image_count; i++)
        if (!out->images[i])
            rc = stitch__err(ctx, err, STITCH_E_INVALID, "stitch_profile_options: images[%zu] is NULL", i);
    if (!rc && out->timeout_ms <= 0)
        out->timeout_ms = TIMEOUT_MS;
    return rc;
}

void stitch__profile_explain(int rc, const stitch_profile_options *options, stitch_error **err)
{
    if (rc != STITCH_E_TIMEOUT && rc != STITCH_E_CANCELLED)
        return;
    if (stitch__exclusive_left())
        stitch__err_prefix(err,
                           "the device goes on working, so that CUPTI could not be given back, and only a new process "
                           "can trace or profile again: ");
    if (rc == STITCH_E_TIMEOUT)
        stitch__err_prefix(err, "there is no profile after %.3g s (stitch_profile_options.timeout_ms): ",
                           (double)options->timeout_ms / 1e3);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static int make_json(stitch_profile *p, stitch_error **err)
{
    stitch__buf b;
    int rc;

    stitch__buf_init(&b, p->ctx);
    stitch__buf_puts(&b, "{\"stitch_profile\":1,\"facts\":");
    rc = stitch__facts_write(p->facts, &b);
    stitch__buf_puts(&b, ",\"advice\":");
    if (!rc)
        rc = stitch__advice_write_json(p->facts, &p->advice, &b);
    stitch__buf_putc(&b, '}');
    p->json = stitch__buf_take(&b, NULL);
    return rc || !p->json ? stitch__err_nomem(p->ctx, err) : STITCH_OK;
}

int stitch__profile_make(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope, stitch__facts *facts,
                         stitch_profile **out, stitch_error **err)
{
    stitch_profile *p = stitch__calloc(ctx, 1, sizeof(*p));
    int rc;

    *out = NULL;
    if (!p) {
        stitch__facts_free(facts);
        return stitch__err_nomem(ctx, err);
    }
    p->ctx = ctx;
    p->facts = facts;
    facts->device = stitch__facts_text(facts, dev->info.name);
    facts->arch = stitch__facts_text(facts, dev->info.arch);
    facts->multiprocessors = (uint32_t)dev->info.multiprocessors;
    rc = stitch__ceilings_get(ctx, dev, scope, &facts->ceilings, err);
    if (!rc && stitch__advise(ctx, facts, &p->advice))
        rc = stitch__err_nomem(ctx, err);
    if (!rc)
        rc = make_json(p, err);
    if (rc)
        stitch_profile_free(p);
    else
        *out = p;
    return rc;
}

int stitch__profile_collect(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope,
                            const stitch__region *region, const stitch__collect_options *options, stitch__facts *facts,
                            stitch_error **err)
{
    int rc = stitch__collect(ctx, dev, scope, region, options, facts, err);

    if (!rc && *facts->no_timeline)
        rc = stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "nothing can be profiled here: %s", facts->no_timeline);
    return rc;
}

void stitch_profile_free(stitch_profile *p)
{
    if (!p)
        return;
    stitch__advices_free(&p->advice);
    stitch__facts_free(p->facts);
    stitch_free(p->json);
    stitch_free(p);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

const char *stitch_profile_json(const stitch_profile *p)
{
    return p ? p->json : "";
}

int stitch_profile_text(const stitch_profile *p, size_t max_bytes, char **text, stitch_error **err)
{
    stitch__buf b;

    if (text)
        *text = NULL;
    if (!p || !text)
        return stitch__err(p ? p->ctx : NULL, err, STITCH_E_INVALID,
                           "stitch_profile_text: needs a profile and room for the text");
    stitch__buf_init(&b, p->ctx);
    stitch__advice_write_text(p->facts, &p->advice, max_bytes, &b);
    *text = stitch__buf_take(&b, NULL);
    return *text ? STITCH_OK : stitch__err_nomem(p->ctx, err);
}

size_t stitch_profile_kernel_count(const stitch_profile *p)
{
    return p ? p->facts->kernel_count : 0;
}

int stitch_profile_verdict_get(const stitch_profile *p, size_t index, stitch_profile_verdict *verdict)
{
    stitch_profile_verdict v = STITCH_PROFILE_VERDICT_INIT;
    const stitch__verdict *from;
    double launches = 1; /* limits of kernels are those of a launch */

    if (!p || !verdict)
        return STITCH_E_INVALID;
    if (index != SIZE_MAX && (index >= p->facts->kernel_count || index >= p->advice.kernel_count))
        return STITCH_E_NOT_FOUND;
    if (index == SIZE_MAX) {
        from = &p->advice.run;
        v.time_us = p->facts->wall_us > 0 ? p->facts->wall_us : p->facts->busy_us + p->facts->idle_us;
        v.name = "";
    } else {
        const stitch__kernel_fact *k = &p->facts->kernels[index];
        from = &p->advice.kernels[index];
        launches = (double)k->launches;
        v.time_us = k->time_us * launches;
        v.name = k->name;
    }
    v.bound = stitch__bound_class_name(from->bound);
    v.because = from->because;
    v.limit_us = from->limit_us * launches;
    v.reached = from->reached;
    return stitch__out_struct(verdict, &v, sizeof(v));
}

size_t stitch_profile_advice_count(const stitch_profile *p)
{
    return p ? p->advice.count : 0;
}

int stitch_profile_advice_get(const stitch_profile *p, size_t index, stitch_profile_advice *advice)
{
    stitch_profile_advice a = STITCH_PROFILE_ADVICE_INIT;
    const stitch__advice *from;

    if (!p || !advice)
        return STITCH_E_INVALID;
    if (index >= p->advice.count)
        return STITCH_E_NOT_FOUND;
    from = &p->advice.list[index];
    a.rule = from->rule;
    a.kernel =
        from->kernel >= 0 && (size_t)from->kernel < p->facts->kernel_count ? p->facts->kernels[from->kernel].name : "";
    a.problem = from->problem;
    a.evidence = from->evidence;
    a.action = from->action;
    a.file = from->file;
    a.line = from->line;
    a.step = from->step;
    a.gain_us = from->gain_us;
    a.gain_share = from->gain_share;
    return stitch__out_struct(advice, &a, sizeof(a));
}
