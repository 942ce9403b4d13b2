/* SPDX-License-Identifier: MIT
 *
 * Hardware counters of kernels: CUPTI's range profiler with automatic ranges. Passes are made by replaying each kernel,
 * the one way in which CUPTI itself puts memory back in between, or by repeating the work, which is much faster.
 * metric_plan.c has the half that needs no GPU.
 *
 * - Nothing of the profiler is on but between start() and stop(): it serialises launches and is in a trace's way.
 * - A subscription goes with it, though no callback is needed: without one, counters would replay kernels in the middle
 *   of another tool's trace, and nothing would say so.
 * - The context's launches alone are measured; counters of L2 and DRAM see other contexts' traffic too.
 * - Stopping and disabling wait for the device. Where it does not get done with its work, both are left undone, and the
 *   object stays, for CUPTI has memory of it.
 */
#include <math.h>

#include "profile/counters.h"
#include "profile/exclusive.h"
#include "profile/metric_plan.h"
#include "profile/readout.h"

enum { MOST_KERNELS = 1 << 16, NESTING = 1, MOST_PASSES = 100 };

struct stitch__counters {
    stitch_context *ctx;
    stitch__device *dev;
    const stitch__cupti *cupti;
    stitch__arena arena;
    int set;
    const char *const *extra;
    size_t extra_count;
    stitch__metric_plan plan;
    uint8_t *availability; /* NULL: not asked for */
    size_t max_kernels;
    bool repeats;
    bool *wanted; /* NULL: all */
    const stitch__scope *scope;
    /* While they run. */
    bool running, claimed, started, complete, paused;
    bool failed; /* once: the plan is not kept */
    bool left;   /* with CUPTI, for good */
    void *subscriber, *profiler;
    size_t data_size, passes_made;
    uint8_t *data;
    /* Afterwards. */
    size_t count, dropped;
    double *values; /* count times STITCH__METRICS and plan.extra_count */
    struct stitch__counters *next;
};

/* Those that were left. */
static _Atomic(stitch__counters *) abandoned;

static int check(const stitch__counters *c, int result, const char *call, stitch_error **err)
{
    return stitch__cupti_check(c->ctx, c->cupti, result, call, NULL, err);
}

/* Calls that take one struct: CALL(c, RangeProfilerStart, &params, err). */
#define CALL(c, function, params, err) check(c, (c)->cupti->function(params), "cupti" #function, err)

/* ---- opening ---- */

static int check_support(const stitch__counters *c, stitch_error **err)
{
    stitch__cupti_device_supported s = {STITCH__CUPTI_DEVICE_SUPPORTED_SIZE, NULL, c->dev->ordinal};
    s.api = STITCH__CUPTI_API_RANGE_PROFILING;
    int rc = CALL(c, ProfilerDeviceSupported, &s, err);
    const struct {
        int level;
        const char *text;
    } reasons[] = {
        {s.architecture, "its architecture is too old for them"},
        {s.vgpu, "profiling is not enabled for this virtual GPU; have it enabled in the hypervisor"},
        {s.confidential, "it is in confidential computing mode"},
        {s.mining, "it is a mining processor"},
        {s.wsl, "this driver cannot profile under WSL; use a newer one"},
        {s.sli, "SLI is enabled"},
    };
    if (rc || (s.supported != STITCH__CUPTI_LEVEL_UNSUPPORTED && s.supported != STITCH__CUPTI_LEVEL_DISABLED))
        return rc;
    const char *text = "CUPTI gives no reason";
    for (size_t i = STITCH__COUNT(reasons); i-- > 0;) {
        if (reasons[i].level == STITCH__CUPTI_LEVEL_UNSUPPORTED || reasons[i].level == STITCH__CUPTI_LEVEL_DISABLED)
            text = reasons[i].text;
    }
    return stitch__err(c->ctx, err, STITCH_E_UNSUPPORTED, "the device's hardware counters cannot be used: %s", text);
}

/* Whether the device is a part of one: of MIG ("NVIDIA A100-SXM4-40GB MIG 1g.5gb") or a virtual one ("NVIDIA A40-48Q",
 * "GRID T4-2B4"). Such a part may lack counters that the chip has. */
static bool is_part(const char *name)
{
    const char *dash = strrchr(name, '-');
    size_t digits = dash ? strspn(dash + 1, "0123456789") : 0;
    return strstr(name, " MIG ") || strncmp(name, "GRID ", 5) == 0 ||
           (digits && strchr("ABCQ", dash[1 + digits]) && dash[1 + digits] && !dash[2 + digits]);
}

/* Which counters the device has for this user; nothing where CUPTI has nothing to say. Takes 80 to 125 ms on an H200.
 */
static int read_availability(stitch__counters *c, stitch_error **err)
{
    stitch__cupti_availability a = {STITCH__CUPTI_AVAILABILITY_SIZE, NULL, c->dev->context};
    int rc = CALL(c, ProfilerGetCounterAvailability, &a, err);
    if (rc || a.image_size == 0)
        return rc;
    c->availability = a.image = stitch__calloc(c->ctx, 1, a.image_size);
    return a.image ? CALL(c, ProfilerGetCounterAvailability, &a, err) : stitch__err_nomem(c->ctx, err);
}

static int make_plan(stitch__counters *c, const uint8_t *availability, bool plain, stitch__metric_plan *out,
                     stitch_error **err)
{
    stitch__cupti_chip_name chip = {STITCH__CUPTI_CHIP_NAME_SIZE, NULL, (size_t)c->dev->ordinal};
    int rc = CALL(c, DeviceGetChipName, &chip, err);
    if (rc == STITCH_OK && !chip.name)
        rc = stitch__err(c->ctx, err, STITCH_E_LIBRARY, "cuptiDeviceGetChipName gives no name");
    if (rc)
        return rc;
    if (plain)
        return stitch__metric_plan_make_plain(c->ctx, c->cupti, chip.name, availability, c->set, c->extra,
                                              c->extra_count, out, err);
    if (!availability && c->extra_count == 0 && stitch__metric_plan_take(c->ctx, c->cupti, chip.name, c->set, out))
        return STITCH_OK;
    return stitch__metric_plan_make(c->ctx, c->cupti, chip.name, availability, c->set, c->extra, c->extra_count, out,
                                    err);
}

static int open_parts(stitch__counters *c, stitch_error **err)
{
    stitch__cupti_profiler_init init = {STITCH__CUPTI_PROFILER_INIT_SIZE, NULL};
    int rc = stitch__cupti_open_profiler(c->ctx, c->cupti, err);
    if (rc == STITCH_OK)
        rc = CALL(c, ProfilerInitialize, &init, err);
    if (rc == STITCH_OK)
        rc = check_support(c, err);
    if (rc == STITCH_OK && is_part(c->dev->info.name))
        rc = read_availability(c, err);
    return rc ? rc : make_plan(c, c->availability, false, &c->plan, err);
}

static int keep_wanted(stitch__counters *c, const bool *wanted, stitch_error **err)
{
    if (!wanted)
        return STITCH_OK;
    c->wanted = stitch__calloc(c->ctx, c->max_kernels, sizeof(*wanted));
    if (!c->wanted)
        return stitch__err_nomem(c->ctx, err);
    memcpy(c->wanted, wanted, c->max_kernels * sizeof(*wanted));
    return STITCH_OK;
}

/* Names that have been checked: for another plan. */
static int keep_extra(stitch__counters *c, stitch_error **err)
{
    const char **names = stitch__arena_array(&c->arena, c->extra_count + 1, sizeof(*names));
    bool all = names != NULL;
    for (size_t i = 0; all && i < c->extra_count; i++)
        all = (names[i] = stitch__arena_strdup(&c->arena, c->extra[i])) != NULL;
    c->extra = names;
    return all ? STITCH_OK : stitch__err_nomem(c->ctx, err);
}

int stitch__counters_open(stitch_context *ctx, stitch__device *dev, const stitch__cupti *cupti,
                          const stitch__counters_options *options, stitch__counters **out, stitch_error **err)
{
    *out = NULL;
    if (dev->info.simulated)
        return stitch__err(
            ctx, err, STITCH_E_UNSUPPORTED,
            "the device is simulated and has no hardware counters; use a machine with a GPU and the device "
            "\"auto\" or \"cuda:0\"");
    if (options->max_kernels < 1 || options->max_kernels > MOST_KERNELS)
        return stitch__err(ctx, err, STITCH_E_INVALID, "counters: 1 to %d kernels can be measured at a time, not %zu",
                           MOST_KERNELS, options->max_kernels);
    stitch__counters *c = stitch__calloc(ctx, 1, sizeof(*c));
    if (!c)
        return stitch__err_nomem(ctx, err);
    c->ctx = ctx;
    c->dev = dev;
    c->cupti = cupti;
    c->arena.ctx = ctx;
    c->set = options->set;
    c->extra = options->extra;
    c->extra_count = options->extra_count;
    c->max_kernels = options->max_kernels;
    c->repeats = options->repeats;
    c->scope = options->scope;
    int rc = keep_wanted(c, options->wanted, err);
    if (rc == STITCH_OK)
        rc = stitch__device_enter(dev, err);
    if (rc == STITCH_OK) {
        rc = open_parts(c, err);
        stitch__device_leave(dev);
    }
    if (rc == STITCH_OK)
        rc = keep_extra(c, err);
    if (rc)
        stitch__counters_close(c);
    else
        *out = c;
    return rc;
}

/* ---- starting ---- */

static int make_image(stitch__counters *c, stitch_error **err)
{
    /* Asked each time, though it is always the same: CUPTI's profiler remembers by it which metrics the image is for.
     */
    stitch__cupti_data_size s = {STITCH__CUPTI_DATA_SIZE_SIZE, NULL, c->profiler, c->plan.names, c->plan.name_count};
    s.max_ranges = c->max_kernels;
    s.max_nodes = (uint32_t)c->max_kernels;
    int rc = CALL(c, RangeProfilerGetCounterDataSize, &s, err);
    if (rc)
        return rc;
    c->data_size = s.data_size;
    c->data = stitch__calloc(NULL, 1, s.data_size ? s.data_size : 1); /* not the context's: it may have to stay */
    if (!c->data)
        return stitch__err_nomem(c->ctx, err);
    stitch__cupti_data_init i = {STITCH__CUPTI_DATA_INIT_SIZE, NULL, c->profiler, c->data_size, c->data};
    return CALL(c, RangeProfilerCounterDataImageInitialize, &i, err);
}

static int configure(stitch__counters *c, stitch_error **err)
{
    stitch__cupti_range_config s = {STITCH__CUPTI_RANGE_CONFIG_SIZE, NULL, c->profiler};
    s.config = c->plan.config;
    s.config_size = c->plan.config_size;
    s.data = c->data;
    s.data_size = c->data_size;
    s.range = STITCH__CUPTI_AUTO_RANGE;
    s.replay = c->repeats ? STITCH__CUPTI_USER_REPLAY : STITCH__CUPTI_KERNEL_REPLAY;
    s.max_ranges = c->max_kernels;
    s.nesting_levels = s.min_nesting = s.target_nesting = NESTING;
    return CALL(c, RangeProfilerSetConfig, &s, err);
}

/* *refused: by CUPTI, once it has the plan. */
static int attach(stitch__counters *c, bool *refused, stitch_error **err)
{
    stitch__cupti_range_enable e = {STITCH__CUPTI_RANGE_ENABLE_SIZE, NULL, c->dev->context};
    int rc = stitch__exclusive_subscribe(c->ctx, c->cupti, &c->subscriber, err);
    if (rc == STITCH_OK)
        rc = CALL(c, RangeProfilerEnable, &e, err);
    if (rc)
        return rc;
    c->profiler = e.profiler;
    rc = make_image(c, err);
    if (rc)
        return rc;
    stitch__cupti_range_object o = {STITCH__CUPTI_RANGE_OBJECT_SIZE, NULL, c->profiler};
    rc = configure(c, err);
    if (rc == STITCH_OK)
        rc = CALL(c, RangeProfilerStart, &o, err);
    c->started = rc == STITCH_OK;
    *refused = rc == STITCH_E_LIBRARY || rc == STITCH_E_UNSUPPORTED;
    return rc;
}

/* Ends whatever attach() began. The first failure goes into *err; the rest is done all the same. */
static int detach(stitch__counters *c, stitch_error **err)
{
    int rc = STITCH_OK;
    if (c->started) {
        stitch__cupti_range_stop s = {STITCH__CUPTI_RANGE_STOP_SIZE, NULL, c->profiler};
        rc = CALL(c, RangeProfilerStop, &s, err);
    }
    if (c->profiler) {
        stitch__cupti_range_object o = {STITCH__CUPTI_RANGE_OBJECT_SIZE, NULL, c->profiler};
        int code = CALL(c, RangeProfilerDisable, &o, rc ? NULL : err);
        rc = rc ? rc : code;
    }
    if (c->subscriber) {
        int code = check(c, c->cupti->Unsubscribe(c->subscriber), "cuptiUnsubscribe", rc ? NULL : err);
        rc = rc ? rc : code;
    }
    c->subscriber = c->profiler = NULL;
    c->started = c->running = false;
    stitch__zero_free(c->data);
    return rc;
}

/* As detach(), and others may use CUPTI. rests: the device is known to; else it gets a second for that, and CUPTI is
 * left if that was not enough. */
static int release(stitch__counters *c, bool rests, stitch_error **err)
{
    if (!rests && c->profiler && !stitch__context_rests(c->dev)) {
        c->left = true;
        c->claimed = c->running = c->started = c->paused = false;
        stitch__exclusive_leave(c->ctx);
        return STITCH_OK;
    }
    int rc = detach(c, err);
    if (c->claimed)
        stitch__exclusive_release();
    c->claimed = false;
    return rc;
}

/* Whether there is another plan than the one that CUPTI refused. */
static bool replan(stitch__counters *c, const uint8_t *availability, bool plain)
{
    stitch__metric_plan plan;
    if (make_plan(c, availability, plain, &plan, NULL))
        return false;
    bool same = plan.config_size == c->plan.config_size && memcmp(plan.config, c->plan.config, plan.config_size) == 0;
    stitch__metric_plan_free(same ? &plan : &c->plan);
    if (!same)
        c->plan = plan;
    return !same;
}

/* With the counters that the device has, where that was not asked before. */
static bool plan_for_the_device(stitch__counters *c)
{
    return !c->availability && !read_availability(c, NULL) && c->availability && replan(c, c->availability, false);
}

/* Without what metrics.def has for the full set alone. */
static bool plan_plainly(stitch__counters *c)
{
    return c->set == STITCH__METRIC_FULL && !c->plan.plain && replan(c, c->plan.availability, true);
}

static int begin(stitch__counters *c, stitch_error **err)
{
    bool (*const others[])(stitch__counters *) = {plan_for_the_device, plan_plainly};
    stitch_error *why = NULL;
    bool refused = false;
    int rc = attach(c, &refused, &why);
    for (size_t i = 0; refused && i < STITCH__COUNT(others); i++) {
        detach(c, NULL);
        if (others[i](c)) {
            stitch_error_free(why);
            why = NULL;
            rc = attach(c, &refused, &why);
        }
    }
    if (rc)
        stitch__err_hand_on(err, &why);
    return rc;
}

int stitch__counters_start(stitch__counters *c, stitch_error **err)
{
    if (c->running)
        return stitch__err(c->ctx, err, STITCH_E_STATE, "the counters run already");
    stitch__zero_free(c->values);
    c->count = c->dropped = 0;
    c->passes_made = 0;
    c->complete = c->paused = false;
    int rc = stitch__exclusive_claim(c->ctx, "a collection of hardware counters", err);
    if (rc)
        return rc;
    c->claimed = true;
    rc = stitch__device_enter(c->dev, err);
    if (rc == STITCH_OK) {
        rc = begin(c, err);
        c->running = rc == STITCH_OK;
        if (rc)
            release(c, true, NULL);
        stitch__device_leave(c->dev);
    } else {
        release(c, true, NULL);
    }
    c->failed = c->failed || rc;
    return rc;
}

/* ---- stopping ---- */

/* Ends what was started last. */
static int end_pass(stitch__counters *c, stitch_error **err)
{
    stitch__cupti_range_stop s = {STITCH__CUPTI_RANGE_STOP_SIZE, NULL, c->profiler};
    int rc = stitch__context_wait(c->dev, c->scope, "the counted work", err);
    if (rc)
        return rc; /* release() stops, if that can be done */
    c->started = false;
    rc = CALL(c, RangeProfilerStop, &s, err);
    c->complete = s.complete;
    return rc;
}

int stitch__counters_pause(stitch__counters *c, stitch_error **err)
{
    if (!c->running || !c->started)
        return stitch__err(c->ctx, err, STITCH_E_STATE, "the counters do not run");
    int rc = stitch__device_enter(c->dev, err);
    if (rc)
        return rc;
    rc = end_pass(c, err);
    c->paused = rc == STITCH_OK;
    c->failed = c->failed || rc;
    stitch__device_leave(c->dev);
    return rc;
}

int stitch__counters_again(stitch__counters *c, bool *more, stitch_error **err)
{
    *more = false;
    if (!c->running || (!c->started && !c->paused))
        return stitch__err(c->ctx, err, STITCH_E_STATE, "the counters do not run");
    if (!c->repeats)
        return STITCH_OK;
    int rc = stitch__device_enter(c->dev, err);
    if (rc)
        return rc;
    rc = c->paused ? STITCH_OK : end_pass(c, err);
    c->paused = false;
    if (rc == STITCH_OK && !c->complete && ++c->passes_made < MOST_PASSES) {
        stitch__cupti_range_object o = {STITCH__CUPTI_RANGE_OBJECT_SIZE, NULL, c->profiler};
        rc = CALL(c, RangeProfilerStart, &o, err);
        c->started = *more = rc == STITCH_OK;
    }
    c->failed = c->failed || rc;
    stitch__device_leave(c->dev);
    return rc;
}

static int collect(stitch__counters *c, stitch__readout *r, stitch_error **err)
{
    stitch__cupti_range_decode d = {STITCH__CUPTI_RANGE_DECODE_SIZE, NULL, c->profiler, 0};
    int rc = c->started ? end_pass(c, err) : STITCH_OK;
    if (rc == STITCH_OK)
        rc = CALL(c, RangeProfilerDecodeData, &d, err);
    if (rc)
        return rc;
    c->dropped = d.dropped;
    return stitch__readout_open(r, &c->plan, c->data, c->data_size, c->max_kernels, c->wanted, err);
}

/* Reads the values while everything is switched off, which takes as long. */
static int end(stitch__counters *c, stitch__readout *r, stitch_error **err)
{
    stitch__readout_begin(r);
    c->data = NULL;
    int gone = release(c, true, err), rc = stitch__readout_end(r, err);
    if (rc || gone) {
        stitch_free(r->values);
        return rc ? rc : gone;
    }
    c->values = r->values;
    c->count = r->count;
    c->dropped += r->dropped;
    if (c->count && !c->complete)
        stitch__log(c->ctx, STITCH_LOG_WARN, "hardware counters: not every pass was made; some values are missing");
    return STITCH_OK;
}

int stitch__counters_stop(stitch__counters *c, stitch_error **err)
{
    stitch__readout r = {0};
    if (!c->running)
        return stitch__err(c->ctx, err, STITCH_E_STATE, "the counters do not run");
    int rc = stitch__device_enter(c->dev, err);
    bool entered = rc == STITCH_OK;
    if (entered)
        rc = collect(c, &r, err);
    if (rc == STITCH_OK) {
        rc = end(c, &r, err);
    } else {
        release(c, false, NULL);
        stitch__readout_end(&r, NULL);
    }
    if (entered)
        stitch__device_leave(c->dev);
    c->failed = c->failed || rc;
    if (rc) /* all or nothing */
        c->count = c->dropped = 0;
    return rc;
}

/* ---- results ---- */

size_t stitch__counters_count(const stitch__counters *c)
{
    return c->count;
}

size_t stitch__counters_dropped(const stitch__counters *c)
{
    return c->dropped;
}

void stitch__counters_get(const stitch__counters *c, size_t launch, double *metrics, double *extra)
{
    const size_t row = STITCH__METRICS + c->plan.extra_count;
    for (size_t i = 0; i < STITCH__METRICS; i++)
        metrics[i] = launch < c->count ? c->values[launch * row + i] : NAN;
    for (size_t i = 0; extra && i < c->plan.extra_count; i++)
        extra[i] = launch < c->count ? c->values[launch * row + STITCH__METRICS + i] : NAN;
}

size_t stitch__counters_passes(const stitch__counters *c)
{
    return c->plan.passes;
}

const char *stitch__counters_missing(const stitch__counters *c)
{
    return c->plan.missing;
}

static void abandon(stitch__counters *c)
{
    c->next = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &c->next, c))
        ;
}

void stitch__counters_close(stitch__counters *c)
{
    if (!c)
        return;
    if (c->running) {
        bool entered = stitch__device_enter(c->dev, NULL) == STITCH_OK;
        release(c, false, NULL);
        c->failed = true;
        if (entered)
            stitch__device_leave(c->dev);
    }
    stitch_free(c->wanted);
    stitch_free(c->values);
    stitch__arena_free(&c->arena);
    if (c->left) {
        abandon(c);
        return;
    }
    if (c->failed)
        stitch__metric_plan_free(&c->plan);
    else
        stitch__metric_plan_keep(c->ctx, c->set, &c->plan);
    stitch_free(c->availability);
    stitch_free(c);
}
