/* SPDX-License-Identifier: MIT
 *
 * PC sampling. CUPTI decodes the hardware's samples on threads of its own and hands out a record an instruction, with
 * the numbers of samples by stall reason. A record names its function and the checksum of its cubin: what is of none of
 * the given modules (other libraries, kernels of the driver) is counted and nothing else.
 *
 * - Subscribe first, as traces do: it is the one call that says who else uses CUPTI in this process, and keeps traces
 *   and samples apart.
 * - CUPTI has a buffer of ours from its configuration until sampling is disabled. Where disabling fails, the buffer is
 *   kept for good, for its threads may write to it.
 * - Functions are known by their cubin's checksum and their number in it. Their names are of no use for that: CUPTI
 *   keeps names by address, and gives that of an unloaded function to one that is loaded to the same place. Its header
 *   says that they are the caller's to free(), but later records, also those of traces, come with the same pointers:
 *   they are left alone. There is one for each function.
 * - Stopping and disabling wait for the device. Where it does not get done with its work, both are left undone.
 */
#include "profile/sampling.h"

#include "profile/exclusive.h"
#include "profile/hits.h"
#include "profile/lines.h"

enum {
    PERIOD = 14,
    PERIOD_MIN = 5,
    PERIOD_MAX = 31,
    RECORDS = 4096,     /* a call */
    REASONS_MAX = 1024, /* some 40 today */
    CALLS_MAX = 1024,
    NAP_MS = 2,
    NAPS = 5, /* until samples are there; CUPTI's threads have been told to finish by then */
};
#define HARDWARE_BYTES ((size_t)256 << 20) /* CUPTI takes half a gigabyte of device memory otherwise */

typedef struct module {
    uint64_t crc;
    stitch__lines *lines;
} module;

/* What CUPTI writes records to. Not the context's memory: see above. */
typedef struct buffer {
    struct buffer *next;
    stitch__pcs_data data;
    stitch__pcs_record records[RECORDS];
    stitch__pcs_stall stalls[];
} buffer;

struct stitch__sampling {
    stitch_context *ctx;
    stitch__device *dev;
    const stitch__cupti *cupti;
    const stitch__scope *scope;
    stitch__arena arena;
    void *subscriber;
    bool claimed, enabled, running;
    module *modules;
    const char **sources; /* of the modules */
    size_t module_count;
    size_t reason_count; /* CUPTI's */
    uint32_t *indices;   /* CUPTI's numbers of them */
    uint32_t *reasons;   /* and what they are to us: indices into names */
    const char **names;
    size_t name_count;
    buffer *given, *data; /* CUPTI has the first one all the time */
    stitch__hits hits;    /* sorted whenever sampling is stopped */
    uint64_t total, dropped, unknown;
};

/* Buffers that CUPTI never gave back. */
static _Atomic(buffer *) abandoned;

static int check(const stitch__sampling *s, int result, const char *what, stitch_error **err)
{
    return stitch__cupti_check(s->ctx, s->cupti, result, what, NULL, err);
}

static stitch__pcs_context context_of(const stitch__sampling *s)
{
    return (stitch__pcs_context){sizeof(stitch__pcs_context), NULL, s->dev->context};
}

/* ---- buffers ---- */

static buffer *buffer_new(size_t reasons)
{
    buffer *b = stitch__calloc(NULL, 1, sizeof(*b) + RECORDS * reasons * sizeof(stitch__pcs_stall));
    for (size_t i = 0; b && i < RECORDS; i++) {
        b->records[i].size = sizeof(b->records[i]);
        b->records[i].stalls = b->stalls + i * reasons;
        b->records[i].stall_count = reasons;
    }
    if (b)
        b->data = (stitch__pcs_data){.size = sizeof(b->data), .room = RECORDS, .records = b->records};
    return b;
}

static void abandon(buffer *b)
{
    b->next = atomic_load(&abandoned);
    while (!atomic_compare_exchange_weak(&abandoned, &b->next, b))
        ;
}

/* ---- opening ---- */

static int add_modules(stitch__sampling *s, const stitch__sampled_module *modules, size_t count, stitch_error **err)
{
    s->modules = stitch__arena_array(&s->arena, count + 1, sizeof(*s->modules));
    s->sources = stitch__arena_array(&s->arena, count + 1, sizeof(*s->sources));
    if (!s->modules || !s->sources)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; i < count; i++) {
        stitch__cubin_crc crc = {sizeof(crc), modules[i].cubin_size, modules[i].cubin, 0};
        const char *why;
        int rc = stitch__lines_read(s->ctx, modules[i].cubin, modules[i].cubin_size, &s->modules[i].lines, &why);
        if (rc == STITCH_E_NOMEM)
            return stitch__err_nomem(s->ctx, err);
        if (rc)
            return stitch__err(s->ctx, err, rc, "module %zu of those to be sampled is no cubin: %s", i, why);
        s->module_count++;
        s->sources[i] = modules[i].source;
        rc = check(s, s->cupti->GetCubinCrc(&crc), "cuptiGetCubinCrc", err);
        if (rc)
            return rc;
        s->modules[i].crc = crc.crc;
    }
    return STITCH_OK;
}

/* "smsp__pcsamp_warps_issue_stalled_barrier_not_issued" -> "barrier": samples of a cycle in which the scheduler issued
 * nothing are counted apart from the others, and the cause is the same. */
static int add_reason(stitch__sampling *s, const char *name, uint32_t *out)
{
    static const char prefix[] = "smsp__pcsamp_warps_issue_stalled_", suffix[] = "_not_issued";
    size_t len = strnlen(name, STITCH__PCS_REASON_NAME), tail = sizeof(suffix) - 1;
    if (len > sizeof(prefix) - 1 && strncmp(name, prefix, sizeof(prefix) - 1) == 0) {
        name += sizeof(prefix) - 1;
        len -= sizeof(prefix) - 1;
    }
    if (len > tail && strncmp(name + len - tail, suffix, tail) == 0)
        len -= tail;
    for (*out = 0; *out < s->name_count; ++*out) {
        if (strlen(s->names[*out]) == len && memcmp(s->names[*out], name, len) == 0)
            return STITCH_OK;
    }
    s->names[*out] = stitch__arena_strndup(&s->arena, name, len);
    if (!s->names[*out])
        return STITCH_E_NOMEM;
    s->name_count++;
    return STITCH_OK;
}

static int read_reasons(stitch__sampling *s, stitch_error **err)
{
    size_t count = 0;
    stitch__pcs_reason_count number = {sizeof(number), NULL, s->dev->context, &count};
    int rc = check(s, s->cupti->PcsGetNumReasons(&number), "cuptiPCSamplingGetNumStallReasons", err);
    if (rc)
        return rc;
    if (count == 0 || count > REASONS_MAX)
        return stitch__err(s->ctx, err, STITCH_E_UNSUPPORTED, "CUPTI offers %zu stall reasons on this device", count);
    char *text = stitch__arena_array(&s->arena, count, STITCH__PCS_REASON_NAME);
    char **names = stitch__arena_array(&s->arena, count, sizeof(*names));
    s->indices = stitch__arena_array(&s->arena, count, sizeof(*s->indices));
    s->reasons = stitch__arena_array(&s->arena, count, sizeof(*s->reasons));
    s->names = stitch__arena_array(&s->arena, count, sizeof(*s->names));
    if (!text || !names || !s->indices || !s->reasons || !s->names)
        return stitch__err_nomem(s->ctx, err);
    for (size_t i = 0; i < count; i++)
        names[i] = text + i * STITCH__PCS_REASON_NAME;
    stitch__pcs_reasons all = {sizeof(all), NULL, s->dev->context, count, s->indices, names};
    rc = check(s, s->cupti->PcsGetReasons(&all), "cuptiPCSamplingGetStallReasons", err);
    for (size_t i = 0; i < count && rc == STITCH_OK; i++) {
        if (add_reason(s, text + i * STITCH__PCS_REASON_NAME, &s->reasons[i]))
            rc = stitch__err_nomem(s->ctx, err);
    }
    s->reason_count = count;
    return rc;
}

static int configure(stitch__sampling *s, int period, stitch_error **err)
{
    stitch__pcs_attribute room = {STITCH__PCS_HARDWARE_BUFFER, 0, {.size = HARDWARE_BYTES}};
    stitch__pcs_attribute list[] = {
        {STITCH__PCS_MODE, 0, {.number = STITCH__PCS_CONTINUOUS}},
        {STITCH__PCS_PERIOD, 0, {.number = (uint32_t)period}},
        {STITCH__PCS_START_STOP, 0, {.number = 1}},
        {STITCH__PCS_DATA_BUFFER, 0, {.buffer = &s->given->data}},
        {STITCH__PCS_FORMAT, 0, {.number = STITCH__PCS_PARSED}},
        {STITCH__PCS_REASONS, 0, {.reasons = {s->reason_count, s->indices}}},
    };
    stitch__pcs_attributes first = {sizeof(first), NULL, s->dev->context, 1, &room};
    stitch__pcs_attributes all = {sizeof(all), NULL, s->dev->context, STITCH__COUNT(list), list};
    s->cupti->PcsSetAttributes(&first); /* more memory does as well */
    return check(s, s->cupti->PcsSetAttributes(&all), "cuptiPCSamplingSetConfigurationAttribute", err);
}

static int attach(stitch__sampling *s, int period, stitch_error **err)
{
    stitch__pcs_context p = context_of(s);
    stitch__cupti_open_profiler(s->ctx, s->cupti, NULL); /* where that fails, CUPTI says what it lacks */
    int rc = stitch__exclusive_subscribe(s->ctx, s->cupti, &s->subscriber, err);
    if (rc == STITCH_OK)
        rc = check(s, s->cupti->PcsEnable(&p), "cuptiPCSamplingEnable", err);
    if (rc)
        return rc;
    s->enabled = true;
    rc = read_reasons(s, err);
    if (rc)
        return rc;
    s->given = buffer_new(s->reason_count);
    s->data = buffer_new(s->reason_count);
    if (!s->given || !s->data)
        return stitch__err_nomem(s->ctx, err);
    return configure(s, period, err);
}

static int refuse(stitch_context *ctx, const stitch__device *dev, const stitch__cupti *cupti, int period,
                  stitch_error **err)
{
    if (period < PERIOD_MIN || period > PERIOD_MAX)
        return stitch__err(ctx, err, STITCH_E_INVALID, "a sampling period of 2^%d cycles; %d to %d are possible",
                           period, PERIOD_MIN, PERIOD_MAX);
    if (dev->info.simulated)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "the device is simulated, and CUPTI samples real GPUs only");
    if (!cupti->PcsEnable || !cupti->PcsDisable || !cupti->PcsStart || !cupti->PcsStop || !cupti->PcsGetData ||
        !cupti->PcsGetNumReasons || !cupti->PcsGetReasons || !cupti->PcsSetAttributes || !cupti->GetCubinCrc)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "CUPTI (%s) has no PC sampling", cupti->path);
    return STITCH_OK;
}

int stitch__sampling_open(stitch_context *ctx, stitch__device *dev, const stitch__cupti *cupti,
                          const stitch__sampled_module *modules, size_t count, int period, const stitch__scope *scope,
                          stitch__sampling **out, stitch_error **err)
{
    *out = NULL;
    period = period ? period : PERIOD;
    int rc = refuse(ctx, dev, cupti, period, err);
    if (rc)
        return rc;
    stitch__sampling *s = stitch__calloc(ctx, 1, sizeof(*s));
    if (!s)
        return stitch__err_nomem(ctx, err);
    s->ctx = ctx;
    s->arena.ctx = ctx;
    s->dev = dev;
    s->cupti = cupti;
    s->scope = scope;
    rc = stitch__exclusive_claim(ctx, "PC sampling", err);
    s->claimed = rc == STITCH_OK;
    if (rc == STITCH_OK && stitch__exclusive_graph_traced())
        rc = stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                         "CUPTI cannot tell kernels of this process apart any more, because graphs were traced in it "
                         "before: profile in a new process, or in a worker");
    if (rc == STITCH_OK)
        rc = add_modules(s, modules, count, err);
    if (rc == STITCH_OK)
        rc = stitch__device_enter(dev, err);
    if (rc == STITCH_OK) {
        rc = attach(s, period, err);
        stitch__device_leave(dev);
    }
    if (rc)
        stitch__sampling_close(s);
    else
        *out = s;
    return rc;
}

/* ---- samples ---- */

int stitch__sampling_start(stitch__sampling *s, stitch_error **err)
{
    stitch__pcs_context p = context_of(s);
    if (s->running)
        return stitch__err(s->ctx, err, STITCH_E_STATE, "stalls are being sampled already");
    int rc = stitch__device_enter(s->dev, err);
    if (rc)
        return rc;
    rc = check(s, s->cupti->PcsStart(&p), "cuptiPCSamplingStart", err);
    s->running = rc == STITCH_OK;
    stitch__device_leave(s->dev);
    return rc;
}

static bool known_layout(const stitch__sampling *s, const stitch__pcs_data *d)
{
    for (size_t i = 0; d->count <= RECORDS && i < d->count; i++) {
        if (d->records[i].stall_count > s->reason_count ||
            d->records[i].stalls != s->data->stalls + i * s->reason_count)
            return false;
    }
    return d->count <= RECORDS && d->records == s->data->records;
}

static uint32_t reason_of(const stitch__sampling *s, uint32_t index)
{
    for (size_t i = 0; i < s->reason_count; i++) {
        if (s->indices[i] == index)
            return s->reasons[i];
    }
    return UINT32_MAX;
}

static int add_record(stitch__sampling *s, const stitch__pcs_record *r)
{
    stitch__place place;
    size_t m = 0;
    for (size_t i = 0; i < r->stall_count; i++)
        s->total += r->stalls[i].samples;
    while (m < s->module_count && s->modules[m].crc != r->crc)
        m++;
    if (m == s->module_count ||
        !stitch__lines_find(s->modules[m].lines, r->function, r->name ? r->name : "", r->offset, &place) ||
        !place.kernel)
        return STITCH_OK;
    for (size_t i = 0; i < r->stall_count; i++) {
        stitch__hit h = {place.kernel, place.file,          (uint32_t)m, place.line, reason_of(s, r->stalls[i].reason),
                         place.source, r->stalls[i].samples};
        if (h.samples && stitch__hits_add(s->ctx, &s->hits, &h))
            return STITCH_E_NOMEM;
    }
    return STITCH_OK;
}

/* One call; *more: there may be others. */
static int fetch(stitch__sampling *s, bool *more, stitch_error **err)
{
    stitch__pcs_data *d = &s->data->data;
    stitch__pcs_get_data get = {sizeof(get), NULL, s->dev->context, d};
    for (size_t i = 0; i < RECORDS; i++)
        s->data->records[i].stall_count = s->reason_count;
    d->count = d->remaining = 0;
    d->dropped = d->other_kernels = 0;
    d->buffer_full = 0;
    int result = s->cupti->PcsGetData(&get);
    if (result == STITCH__CUPTI_OUT_OF_MEMORY && d->buffer_full)
        return stitch__err_native(s->ctx, err, STITCH_E_LIMIT, STITCH_DOMAIN_CUPTI, result,
                                  "cuptiPCSamplingGetData: the hardware's buffer for samples is full; sample a shorter "
                                  "region, or with a longer period");
    int rc = check(s, result, "cuptiPCSamplingGetData", err);
    if (rc)
        return rc;
    if (!known_layout(s, d))
        return stitch__err(s->ctx, err, STITCH_E_UNSUPPORTED,
                           "this CUPTI (%s) lays records of PC sampling out in a way that is not known",
                           s->cupti->path);
    for (size_t i = 0; i < d->count && rc == STITCH_OK; i++)
        rc = add_record(s, &d->records[i]);
    s->dropped += d->dropped; /* since the last call */
    s->unknown += d->other_kernels;
    *more = d->count || d->remaining;
    return rc ? stitch__err_nomem(s->ctx, err) : STITCH_OK;
}

static int fetch_all(stitch__sampling *s, stitch_error **err)
{
    bool more = true, any = false;
    int rc = STITCH_OK, naps = 0;
    for (int calls = 0; calls < CALLS_MAX && rc == STITCH_OK; calls++) {
        rc = fetch(s, &more, err);
        if (rc || (!more && (any || naps == NAPS)))
            break;
        any |= more;
        if (!s->data->data.remaining) {
            stitch__sleep_ms(NAP_MS);
            naps++;
        }
    }
    return rc;
}

static int stop(stitch__sampling *s, stitch_error **err)
{
    stitch__pcs_context p = context_of(s);
    int rc = stitch__context_wait(s->dev, s->scope, "the sampled work", err);
    if (rc == STITCH_E_TIMEOUT || rc == STITCH_E_CANCELLED)
        return rc; /* end() stops, if that can be done */
    s->running = false;
    int stopped = check(s, s->cupti->PcsStop(&p), "cuptiPCSamplingStop", rc ? NULL : err);
    rc = rc ? rc : stopped;
    if (rc == STITCH_OK)
        rc = fetch_all(s, err);
    stitch__hits_sort(&s->hits);
    return rc;
}

int stitch__sampling_stop(stitch__sampling *s, stitch_error **err)
{
    if (!s->running)
        return stitch__err(s->ctx, err, STITCH_E_STATE, "stalls are not being sampled");
    int rc = stitch__device_enter(s->dev, err);
    if (rc)
        return rc;
    rc = stop(s, err);
    stitch__device_leave(s->dev);
    return rc;
}

/* ---- what was found ---- */

int stitch__sampling_fill(const stitch__sampling *s, stitch__facts *f, stitch_error **err)
{
    int rc = STITCH_OK;
    for (size_t i = 0; i < f->kernel_count && rc == STITCH_OK; i++)
        rc = stitch__hits_fill(&s->hits, s->names, s->name_count, s->sources, f, &f->kernels[i]);
    return rc ? stitch__err_nomem(s->ctx, err) : STITCH_OK;
}

uint64_t stitch__sampling_total(const stitch__sampling *s)
{
    return s->total;
}

uint64_t stitch__sampling_dropped(const stitch__sampling *s)
{
    return s->dropped;
}

uint64_t stitch__sampling_unknown(const stitch__sampling *s)
{
    return s->unknown;
}

/* ---- closing ---- */

static void detach(stitch__sampling *s)
{
    stitch__pcs_context p = context_of(s);
    stitch_error *why = NULL;
    bool entered = stitch__device_enter(s->dev, NULL) == STITCH_OK;
    if (s->running)
        s->cupti->PcsStop(&p);
    s->running = false;
    if (check(s, s->cupti->PcsDisable(&p), "cuptiPCSamplingDisable", &why)) {
        stitch__log(s->ctx, STITCH_LOG_WARN, "PC sampling stays on: %s", stitch_error_message(why));
        stitch_error_free(why);
        if (s->given)
            abandon(s->given);
    } else {
        stitch_free(s->given);
    }
    s->given = NULL;
    s->enabled = false;
    if (entered)
        stitch__device_leave(s->dev);
}

/* For good. */
static void leave(stitch__sampling *s)
{
    abandon(s->given);
    s->given = NULL;
    s->subscriber = NULL;
    s->claimed = s->enabled = s->running = false;
    stitch__exclusive_leave(s->ctx);
}

void stitch__sampling_end(stitch__sampling *s)
{
    if (s->running && !stitch__context_rests(s->dev))
        leave(s);
    if (s->enabled)
        detach(s);
    if (s->subscriber)
        s->cupti->Unsubscribe(s->subscriber);
    s->subscriber = NULL;
    if (s->claimed)
        stitch__exclusive_release();
    s->claimed = false;
}

void stitch__sampling_close(stitch__sampling *s)
{
    if (!s)
        return;
    stitch__sampling_end(s);
    for (size_t i = 0; i < s->module_count; i++)
        stitch__lines_free(s->modules[i].lines);
    stitch_free(s->given);
    stitch_free(s->data);
    stitch_free(s->hits.list);
    stitch__arena_free(&s->arena);
    stitch_free(s);
}
