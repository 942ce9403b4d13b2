/* SPDX-License-Identifier: MIT
 *
 * See metric_plan.h. CUPTI takes a list of metrics as a whole or not at all, and what it refuses differs from version
 * to version (a name that the chip lacks, one that the device at hand has no counters for): what fails together is
 * tried name by name, and the rest goes on without.
 */
#include <math.h>

#include "profile/metric_plan.h"

/* ---- CUPTI's host object ---- */

static void host_close(stitch__metric_plan *p, void *host)
{
    stitch__cupti_host_deinit d = {STITCH__CUPTI_HOST_DEINIT_SIZE, NULL, host};
    if (host)
        p->cupti->ProfilerHostDeinitialize(&d);
}

static int host_open(stitch__metric_plan *p, void **host)
{
    stitch__cupti_host_init i = {STITCH__CUPTI_HOST_INIT_SIZE, NULL};
    i.type = STITCH__CUPTI_TYPE_RANGE_PROFILER;
    i.chip = p->chip;
    i.availability = p->availability;
    int result = p->cupti->ProfilerHostInitialize(&i);
    *host = result == STITCH__CUPTI_OK ? i.host : NULL;
    return result;
}

/* What CUPTI says where it is asked for something that is not there. */
static bool refuses(int result)
{
    return result == STITCH__CUPTI_INVALID_METRIC || result == STITCH__CUPTI_INVALID_PARAMETER ||
           result == STITCH__CUPTI_NOT_COMPATIBLE || result == STITCH__CUPTI_NOT_SUPPORTED;
}

static int open_host(stitch__metric_plan *p, stitch_error **err)
{
    int result = host_open(p, &p->host);
    if (result == STITCH__CUPTI_INVALID_CHIP || result == STITCH__CUPTI_INVALID_PARAMETER)
        return stitch__err_native(
            p->ctx, err, STITCH_E_UNSUPPORTED, STITCH_DOMAIN_CUPTI, result,
            "CUPTI (%s) has no hardware counters for the chip %s; use the CUPTI of a newer toolkit "
            "(cuda_path or STITCH_CUPTI)",
            p->cupti->path ? p->cupti->path : "", p->chip);
    return stitch__cupti_check(p->ctx, p->cupti, result, "cuptiProfilerHostInitialize", NULL, err);
}

static int offered(stitch__metric_plan *p, const char *name, bool *yes, stitch_error **err)
{
    stitch__cupti_metric_properties q = {STITCH__CUPTI_METRIC_PROPERTIES_SIZE, NULL, p->host, name};
    int result = p->cupti->ProfilerHostGetMetricProperties(&q);
    *yes = result == STITCH__CUPTI_OK;
    if (refuses(result))
        return STITCH_OK;
    return stitch__cupti_check(p->ctx, p->cupti, result, "cuptiProfilerHostGetMetricProperties", NULL, err);
}

/* ---- which names ---- */

/* A name that has been looked at: whether it can be used does not change any more, but for `refused`. */
static int known(stitch__metric_plan *p, const char *name, size_t len, size_t *at, stitch_error **err)
{
    bool yes;
    for (*at = 0; *at < p->known_count; ++*at) {
        if (strlen(p->known[*at]) == len && memcmp(p->known[*at], name, len) == 0)
            return STITCH_OK;
    }
    p->known[*at] = stitch__arena_strndup(&p->arena, name, len);
    if (!p->known[*at])
        return stitch__err_nomem(p->ctx, err);
    int rc = offered(p, p->known[*at], &yes, err);
    if (rc == STITCH_OK) {
        p->refused[*at] = !yes;
        p->known_count++;
    }
    return rc;
}

static size_t use(stitch__metric_plan *p, const char *name)
{
    for (size_t i = 0; i < p->name_count; i++) {
        if (p->names[i] == name)
            return i;
    }
    p->names[p->name_count] = name;
    return p->name_count++;
}

/* One alternative: text[0] to text[end - 1]. *out is empty where the chip lacks one of its names. */
static int choose_one(stitch__metric_plan *p, const char *text, size_t end, stitch__metric_sum *out, stitch_error **err)
{
    const char *names[STITCH__METRIC_TERMS];
    size_t count = 0;
    bool minus = false, all = true;
    memset(out, 0, sizeof(*out));
    for (size_t at = 0, len; at < end; at += len + 1) {
        size_t which;
        len = strcspn(text + at, "+-|");
        if (count == STITCH__METRIC_TERMS || len == 0)
            return stitch__err(p->ctx, err, STITCH_E_INTERNAL, "metrics.def: \"%s\" is no sum of metrics", text);
        int rc = known(p, text + at, len, &which, err);
        if (rc)
            return rc;
        all = all && !p->refused[which];
        names[count] = p->known[which];
        out->minus[count++] = minus;
        minus = text[at + len] == '-';
    }
    for (size_t i = 0; all && i < count; i++)
        out->name[i] = use(p, names[i]);
    out->count = all ? count : 0;
    return STITCH_OK;
}

/* The first alternative of this set whose names are all there. */
static int choose(stitch__metric_plan *p, int set, const char *text, stitch__metric_sum *out, stitch_error **err)
{
    size_t end;
    int rc = STITCH_OK;
    for (out->count = 0; *text && rc == STITCH_OK && out->count == 0; text += end + (text[end] != '\0')) {
        bool full_only = *text == '*';
        text += full_only;
        end = strcspn(text, "|");
        if (!full_only || (set == STITCH__METRIC_FULL && !p->plain))
            rc = choose_one(p, text, end, out, err);
    }
    return rc;
}

/* Everything that is asked for, as far as it is there. Those of the full set come first: see in_order(). */
static int choose_all(stitch__metric_plan *p, int set, const char *const *extra, stitch_error **err)
{
    static const int sets[] = {STITCH__METRIC_FULL, STITCH__METRIC_CHEAP};
    int rc = STITCH_OK;
    p->name_count = 0;
    for (int i = 0; i < STITCH__METRICS * (int)STITCH__COUNT(sets) && rc == STITCH_OK; i++) {
        const int m = i % STITCH__METRICS, wanted = sets[i / STITCH__METRICS];
        const stitch__metric_info *info = stitch__metric_info_of(m);
        if (info->cupti && info->set == wanted && wanted <= set)
            rc = choose(p, set, info->cupti, &p->metrics[m], err);
    }
    for (size_t i = 0; i < p->extra_count && rc == STITCH_OK; i++) {
        size_t at;
        rc = known(p, extra[i], strlen(extra[i]), &at, err);
        if (rc == STITCH_OK)
            p->extra[i] = p->refused[at] ? SIZE_MAX : use(p, p->known[at]);
    }
    if (rc == STITCH_OK && p->name_count == 0)
        rc = stitch__err(p->ctx, err, STITCH_E_UNSUPPORTED, "the chip %s offers none of the metrics", p->chip);
    return rc;
}

static int list_missing(stitch__metric_plan *p, int set, const char *const *extra, stitch_error **err)
{
    stitch__buf b;
    stitch__buf_init(&b, p->ctx);
    for (int i = 0; i < STITCH__METRICS; i++) {
        const stitch__metric_info *info = stitch__metric_info_of(i);
        if (info->cupti && info->set <= set && p->metrics[i].count == 0)
            stitch__buf_printf(&b, "%s%s", b.len ? ", " : "", info->key);
    }
    for (size_t i = 0; i < p->extra_count; i++) {
        if (p->extra[i] == SIZE_MAX)
            stitch__buf_printf(&b, "%s%s", b.len ? ", " : "", extra[i]);
    }
    p->missing = b.failed ? NULL : stitch__arena_strdup(&p->arena, b.data ? b.data : "");
    stitch__buf_free(&b);
    return p->missing ? STITCH_OK : stitch__err_nomem(p->ctx, err);
}

/* ---- the configuration ---- */

/* CUPTI gives counters to passes in the order of the metrics. It finds fewest passes for the full set, and in a third
 * of the time, if reasons to wait come first, which need most room on a multiprocessor, and last what fits in there
 * beside them. (The default set stays as it is: in this order it takes a third pass on some chips.) */
static int place(const char *name)
{
    if (strstr(name, "_issue_stalled_"))
        return 0;
    return strncmp(name, "TPC.", 4) == 0 || (strncmp(name, "sm", 2) == 0 && !strstr(name, "__sass_")) ? 2 : 1;
}

static const char **in_order(stitch__metric_plan *p, int set)
{
    size_t count = 0;
    if (set != STITCH__METRIC_FULL)
        return p->names;
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < p->name_count; i++) {
            if (place(p->names[i]) == k)
                p->ordered[count++] = p->names[i];
        }
    }
    return p->ordered;
}

static int add(stitch__metric_plan *p, void *host, const char **names, size_t count)
{
    stitch__cupti_add_metrics a = {STITCH__CUPTI_ADD_METRICS_SIZE, NULL, host, names, count};
    return p->cupti->ProfilerHostConfigAddMetrics(&a);
}

/* Whether a single metric can be collected; the object is not used again, because it would keep the metric. */
static int try_alone(stitch__metric_plan *p, const char **name, bool *yes, stitch_error **err)
{
    void *host = NULL;
    int result = host_open(p, &host);
    if (result != STITCH__CUPTI_OK)
        return stitch__cupti_check(p->ctx, p->cupti, result, "cuptiProfilerHostInitialize", NULL, err);
    stitch__cupti_config_size s = {STITCH__CUPTI_CONFIG_SIZE_SIZE, NULL, host};
    result = add(p, host, name, 1);
    if (result == STITCH__CUPTI_OK)
        result = p->cupti->ProfilerHostGetConfigImageSize(&s);
    host_close(p, host);
    *yes = result == STITCH__CUPTI_OK;
    return result == STITCH__CUPTI_OUT_OF_MEMORY ? stitch__err_nomem(p->ctx, err) : STITCH_OK;
}

/* Marks the names that fail on their own. */
static int find_refused(stitch__metric_plan *p, bool *any, stitch_error **err)
{
    *any = false;
    for (size_t i = 0; i < p->known_count; i++) {
        bool yes = true;
        int rc = p->refused[i] ? STITCH_OK : try_alone(p, &p->known[i], &yes, err);
        if (rc)
            return rc;
        *any = *any || !yes;
        p->refused[i] = p->refused[i] || !yes;
    }
    return STITCH_OK;
}

/* Ends: every further round has a name less. */
static int add_all(stitch__metric_plan *p, int set, const char *const *extra, stitch_error **err)
{
    for (;;) {
        bool any = false;
        int rc = choose_all(p, set, extra, err);
        if (rc)
            return rc;
        int result = add(p, p->host, in_order(p, set), p->name_count);
        if (refuses(result)) {
            rc = find_refused(p, &any, err);
            if (rc)
                return rc;
        }
        if (!any)
            return stitch__cupti_check(p->ctx, p->cupti, result, "cuptiProfilerHostConfigAddMetrics", NULL, err);
        host_close(p, p->host); /* it may have kept some */
        p->host = NULL;
        rc = open_host(p, err);
        if (rc)
            return rc;
    }
}

static int configure(stitch__metric_plan *p, stitch_error **err)
{
    stitch__cupti_config_size s = {STITCH__CUPTI_CONFIG_SIZE_SIZE, NULL, p->host};
    int rc = stitch__cupti_check(p->ctx, p->cupti, p->cupti->ProfilerHostGetConfigImageSize(&s),
                                 "cuptiProfilerHostGetConfigImageSize", NULL, err);
    if (rc)
        return rc;
    p->config_size = s.config_size;
    p->config = stitch__calloc(NULL, 1, s.config_size ? s.config_size : 1); /* CUPTI may have to keep it */
    if (!p->config)
        return stitch__err_nomem(p->ctx, err);
    stitch__cupti_config_image g = {STITCH__CUPTI_CONFIG_IMAGE_SIZE, NULL, p->host, p->config_size, p->config};
    rc = stitch__cupti_check(p->ctx, p->cupti, p->cupti->ProfilerHostGetConfigImage(&g),
                             "cuptiProfilerHostGetConfigImage", NULL, err);
    if (rc)
        return rc;
    stitch__cupti_passes n = {STITCH__CUPTI_PASSES_SIZE, NULL, p->config_size, p->config, 0};
    rc = stitch__cupti_check(p->ctx, p->cupti, p->cupti->ProfilerHostGetNumOfPasses(&n),
                             "cuptiProfilerHostGetNumOfPasses", NULL, err);
    p->passes = n.passes;
    return rc;
}

/* ---- making, evaluating ---- */

static int check_request(const stitch_context *ctx, int set, const char *const *extra, size_t count, stitch_error **err)
{
    if (set != STITCH__METRIC_CHEAP && set != STITCH__METRIC_FULL)
        return stitch__err(ctx, err, STITCH_E_INVALID, "counters: %d is no set of metrics", set);
    if (count > STITCH__FACTS_EXTRA || (count && !extra))
        return stitch__err(ctx, err, STITCH_E_INVALID, "counters: at most %d extra metrics can be collected, not %zu",
                           STITCH__FACTS_EXTRA, count);
    for (size_t i = 0; i < count; i++) {
        if (!stitch__metric_name_ok(extra[i]))
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "counters: extra metric %zu has no name of a metric; CUPTI's look like "
                               "\"dram__bytes_read.sum\"",
                               i);
    }
    return STITCH_OK;
}

/* Names that metrics.def could use at most. */
static size_t most_names(size_t extra_count)
{
    size_t n = extra_count;
    for (int i = 0; i < STITCH__METRICS; i++) {
        for (const char *at = stitch__metric_info_of(i)->cupti; at; at = strpbrk(at, "+-|*")) {
            at += strspn(at, "+-|*");
            n++;
        }
    }
    return n;
}

static int make(const stitch_context *ctx, const stitch__cupti *cupti, const char *chip, const uint8_t *availability,
                int set, bool plain, const char *const *extra, size_t extra_count, stitch__metric_plan *out,
                stitch_error **err)
{
    memset(out, 0, sizeof(*out));
    int rc = check_request(ctx, set, extra, extra_count, err);
    if (rc)
        return rc;
    const size_t most = most_names(extra_count);
    out->ctx = ctx;
    out->arena.ctx = ctx;
    out->cupti = cupti;
    out->availability = availability;
    out->plain = plain;
    out->extra_count = extra_count;
    out->chip = stitch__arena_strdup(&out->arena, chip);
    out->names = stitch__arena_array(&out->arena, most, sizeof(*out->names));
    out->ordered = stitch__arena_array(&out->arena, most, sizeof(*out->ordered));
    out->known = stitch__arena_array(&out->arena, most, sizeof(*out->known));
    out->refused = stitch__arena_array(&out->arena, most, sizeof(*out->refused));
    out->values = stitch__arena_array(&out->arena, most, sizeof(*out->values));
    rc = out->chip && out->names && out->ordered && out->known && out->refused && out->values
             ? STITCH_OK
             : stitch__err_nomem(ctx, err);
    if (rc == STITCH_OK)
        rc = open_host(out, err);
    if (rc == STITCH_OK)
        rc = add_all(out, set, extra, err);
    if (rc == STITCH_OK)
        rc = list_missing(out, set, extra, err);
    if (rc == STITCH_OK)
        rc = configure(out, err);
    if (rc)
        stitch__metric_plan_free(out);
    return rc;
}

int stitch__metric_plan_make(const stitch_context *ctx, const stitch__cupti *cupti, const char *chip,
                             const uint8_t *availability, int set, const char *const *extra, size_t extra_count,
                             stitch__metric_plan *out, stitch_error **err)
{
    return make(ctx, cupti, chip, availability, set, false, extra, extra_count, out, err);
}

int stitch__metric_plan_make_plain(const stitch_context *ctx, const stitch__cupti *cupti, const char *chip,
                                   const uint8_t *availability, int set, const char *const *extra, size_t extra_count,
                                   stitch__metric_plan *out, stitch_error **err)
{
    return make(ctx, cupti, chip, availability, set, true, extra, extra_count, out, err);
}

static double sum_of(const stitch__metric_sum *s, const double *values)
{
    double sum = 0;
    if (s->count == 0)
        return NAN;
    for (size_t i = 0; i < s->count; i++)
        sum += s->minus[i] ? -values[s->name[i]] : values[s->name[i]];
    if (!isfinite(sum))
        return NAN;
    return sum < 0 ? 0 : sum; /* a difference of two passes; nothing else is negative */
}

int stitch__metric_plan_evaluate(stitch__metric_plan *plan, const uint8_t *data, size_t data_size, size_t range,
                                 double *metrics, double *extra, stitch_error **err)
{
    stitch__cupti_evaluate e = {STITCH__CUPTI_EVALUATE_SIZE, NULL, plan->host, data, data_size, range};
    for (size_t i = 0; i < plan->name_count; i++)
        plan->values[i] = NAN;
    e.metrics = plan->names;
    e.count = plan->name_count;
    e.values = plan->values;
    int result = plan->cupti->ProfilerHostEvaluateToGpuValues(&e);
    bool any = result == STITCH__CUPTI_OK;
    for (size_t i = 0; result != STITCH__CUPTI_OK && i < plan->name_count; i++) { /* all but those that cannot be had */
        e.metrics = &plan->names[i];
        e.count = 1;
        e.values = &plan->values[i];
        if (plan->cupti->ProfilerHostEvaluateToGpuValues(&e) == STITCH__CUPTI_OK)
            any = true;
        else
            plan->values[i] = NAN;
    }
    for (int i = 0; i < STITCH__METRICS; i++)
        metrics[i] = sum_of(&plan->metrics[i], plan->values);
    for (size_t i = 0; i < plan->extra_count; i++) {
        double v = plan->extra[i] == SIZE_MAX ? NAN : plan->values[plan->extra[i]];
        extra[i] = isfinite(v) ? v : NAN;
    }
    return any ? STITCH_OK
               : stitch__cupti_check(plan->ctx, plan->cupti, result, "cuptiProfilerHostEvaluateToGpuValues", NULL, err);
}

void stitch__metric_plan_free(stitch__metric_plan *plan)
{
    if (plan->host)
        host_close(plan, plan->host);
    stitch_free(plan->config);
    stitch__arena_free(&plan->arena);
    memset(plan, 0, sizeof(*plan));
}
