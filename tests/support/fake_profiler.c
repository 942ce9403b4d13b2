/* SPDX-License-Identifier: MIT
 *
 * See fake_profiler.h.
 */
#include "fake_profiler.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_profiler fake_profiler_state;
static fake_profiler *const f = &fake_profiler_state;

enum { LATE_MS = 5000 };
enum { INVALID = STITCH__CUPTI_INVALID_PARAMETER, NAMES = 256, DATA_HEADER = 64, CONFIG_BYTES = 4096 };
static const char config_mark[] = "a fake config image", data_mark[] = "a fake counter data image";

typedef struct host {
    size_t count;
    bool checked; /* it knows what the device has */
    char names[NAMES][160];
} host;

#define ENTER(function, params, last)                                                                                  \
    do {                                                                                                               \
        f->calls[FAKE_PROFILER_##function]++;                                                                          \
        if (f->fail[FAKE_PROFILER_##function] && f->calls[FAKE_PROFILER_##function] > f->fail_after)                   \
            return f->fail[FAKE_PROFILER_##function];                                                                  \
        if ((params)->priv || (params)->size != offsetof(__typeof__(*(params)), last) + sizeof((params)->last))        \
            return INVALID;                                                                                            \
    } while (0)

static bool matches(const char *name, const char *part)
{
    return part && strstr(name, part);
}

/* Says that one function has been called, and waits for the other one. */
static void meet(atomic_bool *here, const atomic_bool *there)
{
    atomic_store(here, true);
    if (!f->meets)
        return;
    for (int ms = 0; ms < LATE_MS && !atomic_load(there); ms++)
        stitch__sleep_ms(1);
    if (!atomic_load(there))
        atomic_fetch_add(&f->missed, 1);
}

/* ---- the device ---- */

static int profiler_initialize(stitch__cupti_profiler_init *p)
{
    ENTER(ProfilerInitialize, p, priv);
    return STITCH__CUPTI_OK;
}

static int device_supported(stitch__cupti_device_supported *p)
{
    ENTER(ProfilerDeviceSupported, p, api);
    if (p->api != STITCH__CUPTI_API_RANGE_PROFILING)
        return INVALID;
    memcpy(&p->supported, f->level, sizeof(f->level));
    return STITCH__CUPTI_OK;
}

static int chip_name(stitch__cupti_chip_name *p)
{
    ENTER(DeviceGetChipName, p, name);
    p->name = f->chip;
    return STITCH__CUPTI_OK;
}

static int availability(stitch__cupti_availability *p)
{
    ENTER(ProfilerGetCounterAvailability, p, image);
    if (!p->context || (p->image && p->image_size < f->availability))
        return INVALID;
    p->image_size = f->availability;
    if (p->image)
        memset(p->image, 7, f->availability);
    return STITCH__CUPTI_OK;
}

/* ---- the host object ---- */

static int host_initialize(stitch__cupti_host_init *p)
{
    ENTER(ProfilerHostInitialize, p, host);
    if (!p->chip || strcmp(p->chip, "GH100") != 0)
        return STITCH__CUPTI_INVALID_CHIP;
    p->host = calloc(1, sizeof(host));
    if (!p->host)
        return STITCH__CUPTI_OUT_OF_MEMORY;
    ((host *)p->host)->checked = p->availability != NULL;
    f->hosts++;
    return STITCH__CUPTI_OK;
}

static int host_deinitialize(stitch__cupti_host_deinit *p)
{
    if (p->host) { /* even where it is told to fail: a leak would be the fake's */
        free(p->host);
        f->hosts--;
    }
    ENTER(ProfilerHostDeinitialize, p, host);
    return STITCH__CUPTI_OK;
}

static int metric_properties(stitch__cupti_metric_properties *p)
{
    ENTER(ProfilerHostGetMetricProperties, p, type);
    if (!p->host || !strstr(p->metric, "__") || matches(p->metric, f->without))
        return STITCH__CUPTI_INVALID_METRIC;
    p->unit = "unit";
    return STITCH__CUPTI_OK;
}

static int add_metrics(stitch__cupti_add_metrics *p)
{
    host *h = p->host;
    ENTER(ProfilerHostConfigAddMetrics, p, count);
    for (size_t i = 0; i < p->count; i++) {
        if (!strchr(p->metrics[i], '.') || matches(p->metrics[i], f->without) ||
            matches(p->metrics[i], f->uncollectable) || (h->checked && matches(p->metrics[i], f->unavailable)))
            return INVALID;
    }
    for (size_t i = 0; i < p->count && h->count < NAMES; i++)
        snprintf(h->names[h->count++], sizeof(h->names[0]), "%s", p->metrics[i]);
    return STITCH__CUPTI_OK;
}

static int config_size(stitch__cupti_config_size *p)
{
    ENTER(ProfilerHostGetConfigImageSize, p, config_size);
    p->config_size = CONFIG_BYTES + ((const host *)p->host)->count;
    return STITCH__CUPTI_OK;
}

static int config_image(stitch__cupti_config_image *p)
{
    const host *h = p->host;
    ENTER(ProfilerHostGetConfigImage, p, config);
    if (p->config_size != CONFIG_BYTES + h->count)
        return INVALID;
    memset(p->config, 1, p->config_size);
    memcpy(p->config, config_mark, sizeof(config_mark));
    for (size_t i = 0; i < h->count; i++) {
        p->config[CONFIG_BYTES + i] = (uint8_t)fake_profiler_value(h->names[i], 0);
        if (matches(h->names[i], f->unavailable) || matches(h->names[i], f->refused))
            p->config[sizeof(config_mark)] = 2;
    }
    return STITCH__CUPTI_OK;
}

static int num_passes(stitch__cupti_passes *p)
{
    ENTER(ProfilerHostGetNumOfPasses, p, passes);
    if (memcmp(p->config, config_mark, sizeof(config_mark)) != 0)
        return INVALID;
    p->passes = (p->config_size - CONFIG_BYTES + 9) / 10;
    return STITCH__CUPTI_OK;
}

double fake_profiler_value(const char *metric, size_t launch)
{
    double sum = 0;
    for (const char *c = metric; *c; c++)
        sum = sum * 7 + *c - 40;
    return fmod(fabs(sum), 1e6) + 1e7 * (double)(launch + 1);
}

static size_t launch_of(size_t range)
{
    return f->backwards ? f->launches - 1 - range : range;
}

static int evaluate(stitch__cupti_evaluate *p)
{
    const host *h = p->host;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    f->takes_signals = !sigismember(&blocked, SIGUSR1);
    meet(&f->evaluating, &f->disabling);
    ENTER(ProfilerHostEvaluateToGpuValues, p, values);
    if (memcmp(p->data, data_mark, sizeof(data_mark)) != 0)
        return INVALID;
    for (size_t i = 0; i < p->count; i++) {
        bool added = false;
        for (size_t k = 0; k < h->count; k++)
            added = added || strcmp(h->names[k], p->metrics[i]) == 0;
        if (!added || matches(p->metrics[i], f->unevaluable))
            return STITCH__CUPTI_INVALID_METRIC;
        p->values[i] = matches(p->metrics[i], f->infinite) ? (double)INFINITY
                                                           : fake_profiler_value(p->metrics[i], launch_of(p->range));
    }
    return STITCH__CUPTI_OK;
}

/* ---- the range profiler ---- */

static int range_enable(stitch__cupti_range_enable *p)
{
    ENTER(RangeProfilerEnable, p, profiler);
    if (f->profilers || !p->context)
        return STITCH__CUPTI_OLD_PROFILER;
    f->profilers++;
    f->sized = false;
    p->profiler = f;
    return STITCH__CUPTI_OK;
}

static int range_disable(stitch__cupti_range_object *p)
{
    meet(&f->disabling, &f->evaluating);
    f->profilers--;
    f->started = false;
    f->data = NULL;
    ENTER(RangeProfilerDisable, p, profiler);
    return p->profiler == f ? STITCH__CUPTI_OK : INVALID;
}

static int data_size(stitch__cupti_data_size *p)
{
    ENTER(RangeProfilerGetCounterDataSize, p, data_size);
    if (p->profiler != f || p->max_nodes < p->max_ranges || !p->count)
        return INVALID;
    p->data_size = DATA_HEADER + p->max_ranges;
    f->sized = true;
    return STITCH__CUPTI_OK;
}

static int data_initialize(stitch__cupti_data_init *p)
{
    ENTER(RangeProfilerCounterDataImageInitialize, p, data);
    if (!f->sized) /* the real one crashes */
        return INVALID;
    memset(p->data, 0, p->data_size);
    memcpy(p->data, data_mark, sizeof(data_mark));
    return p->profiler == f ? STITCH__CUPTI_OK : INVALID;
}

static int set_config(stitch__cupti_range_config *p)
{
    ENTER(RangeProfilerSetConfig, p, target_nesting);
    if (p->profiler != f || memcmp(p->config, config_mark, sizeof(config_mark)) != 0 ||
        memcmp(p->data, data_mark, sizeof(data_mark)) != 0 || p->data_size != DATA_HEADER + p->max_ranges ||
        p->range != STITCH__CUPTI_AUTO_RANGE ||
        p->replay != (f->repeats ? STITCH__CUPTI_USER_REPLAY : STITCH__CUPTI_KERNEL_REPLAY) || p->nesting_levels != 1 ||
        p->min_nesting != 1 || p->target_nesting != 1)
        return INVALID;
    if (p->config[sizeof(config_mark)] == 2)
        return STITCH__CUPTI_NOT_SUPPORTED;
    f->data = p->data;
    f->max_ranges = p->max_ranges;
    f->launches = f->dropped = f->stops = 0;
    return STITCH__CUPTI_OK;
}

static int range_start(stitch__cupti_range_object *p)
{
    ENTER(RangeProfilerStart, p, profiler);
    if (p->profiler != f || !f->data || f->started)
        return INVALID;
    f->started = true;
    f->now = 0;
    return STITCH__CUPTI_OK;
}

static int range_stop(stitch__cupti_range_stop *p)
{
    bool ran = f->started;
    f->started = false;
    ENTER(RangeProfilerStop, p, complete);
    p->complete = ++f->stops >= f->passes && !f->incomplete;
    return ran && p->profiler == f ? STITCH__CUPTI_OK : INVALID;
}

static int range_decode(stitch__cupti_range_decode *p)
{
    ENTER(RangeProfilerDecodeData, p, dropped);
    if (p->profiler != f || f->started)
        return INVALID;
    p->dropped = f->dropped;
    return STITCH__CUPTI_OK;
}

static int data_info(stitch__cupti_data_info *p)
{
    ENTER(RangeProfilerGetCounterDataInfo, p, ranges);
    if (p->data != f->data)
        return INVALID;
    p->ranges = f->launches + f->extra_ranges;
    return STITCH__CUPTI_OK;
}

static int range_info(stitch__cupti_range_info *p)
{
    static char name[32];
    ENTER(RangeProfilerCounterDataGetRangeInfo, p, name);
    if (p->data != f->data || !p->delimiter)
        return INVALID;
    snprintf(name, sizeof(name), "%zu", launch_of(p->range));
    p->name = f->range_name ? (*f->range_name ? f->range_name : NULL) : name;
    return STITCH__CUPTI_OK;
}

void fake_profiler_launch(size_t count)
{
    if (!f->started)
        return;
    size_t room = f->max_ranges - f->now, taken = count < room ? count : room;
    f->now += taken;
    f->launches = f->now > f->launches ? f->now : f->launches;
    f->dropped += count - taken;
}

void *fake_profiler_get_proc(const char *symbol, void *userdata)
{
#define PROC(member, function)                                                                                         \
    do {                                                                                                               \
        __typeof__(&function) pointer = function;                                                                      \
        if (strcmp(symbol, names[FAKE_PROFILER_##member]) == 0 && !f->absent[FAKE_PROFILER_##member])                  \
            memcpy(&address, &pointer, sizeof(address));                                                               \
    } while (0)
    static const char *const names[] = {
#define X(need, member, symbol, params) symbol,
#include "cuda/cupti_profiler_functions.def"
#undef X
    };
    void *address = NULL;
    PROC(ProfilerInitialize, profiler_initialize);
    PROC(ProfilerDeviceSupported, device_supported);
    PROC(DeviceGetChipName, chip_name);
    PROC(ProfilerGetCounterAvailability, availability);
    PROC(ProfilerHostInitialize, host_initialize);
    PROC(ProfilerHostDeinitialize, host_deinitialize);
    PROC(ProfilerHostGetMetricProperties, metric_properties);
    PROC(ProfilerHostConfigAddMetrics, add_metrics);
    PROC(ProfilerHostGetConfigImageSize, config_size);
    PROC(ProfilerHostGetConfigImage, config_image);
    PROC(ProfilerHostGetNumOfPasses, num_passes);
    PROC(ProfilerHostEvaluateToGpuValues, evaluate);
    PROC(RangeProfilerEnable, range_enable);
    PROC(RangeProfilerDisable, range_disable);
    PROC(RangeProfilerSetConfig, set_config);
    PROC(RangeProfilerStart, range_start);
    PROC(RangeProfilerStop, range_stop);
    PROC(RangeProfilerDecodeData, range_decode);
    PROC(RangeProfilerGetCounterDataSize, data_size);
    PROC(RangeProfilerCounterDataImageInitialize, data_initialize);
    PROC(RangeProfilerGetCounterDataInfo, data_info);
    PROC(RangeProfilerCounterDataGetRangeInfo, range_info);
    return address ? address : fake_cupti_get_proc(symbol, userdata);
}

void fake_profiler_reset(void)
{
    memset(f, 0, sizeof(*f));
    f->chip = "GH100";
    f->availability = 100;
    for (size_t i = 0; i < STITCH__COUNT(f->level); i++)
        f->level[i] = STITCH__CUPTI_LEVEL_SUPPORTED;
    fake_cupti_reset();
}
