/* SPDX-License-Identifier: MIT
 *
 * PC sampling against a CUPTI that has no GPU: what samples become, each error in each function, odd records, no
 * memory. Nothing may crash, leak, or stay switched on.
 */
#include "check.h"
#include "meter.h"
#include "cupti_sampling_layout.h"
#include "fake_cupti.h"
#include "line_table.h"
#include "profile/exclusive.h"
#include "profile/hits.h"
#include "profile/sampling.h"

static meter memory = {.refuse_at = -1};
static stitch_context *ctx;
static stitch_error *err;
static stitch__cupti cupti;
static stitch__sampling *sampling;
static stitch__facts *facts;

/* ---- a CUPTI that samples ---- */

enum { REASONS = 6, MAX_RECORDS = 16384 };
static const char *const reason_names[REASONS] = {
    "smsp__pcsamp_warps_issue_stalled_long_scoreboard", "smsp__pcsamp_warps_issue_stalled_long_scoreboard_not_issued",
    "smsp__pcsamp_warps_issue_stalled_barrier",         "smsp__pcsamp_warps_issue_stalled_barrier_not_issued",
    "smsp__pcsamp_warps_issue_stalled_selected",        "something_else"};

typedef struct sample {
    uint64_t crc, offset;
    const char *name;
    uint32_t stalls[REASONS];
    uint32_t symbol; /* 0: a CUPTI that does not say */
} sample;

static struct {
    bool enabled, started, no_reasons, odd_count, odd_stalls, odd_pointer, endless, full;
    int empty_calls; /* GetData returns nothing so many times */
    size_t most;     /* records a call; 0: as many as there is room for */
    uint64_t dropped;
    sample list[MAX_RECORDS];
    size_t count, next, late; /* late: into the configured buffer when sampling is disabled */
    uint32_t period;
    stitch__pcs_data *given;
} fake;

#define FAILS(function)                                                                                                \
    do {                                                                                                               \
        fake_cupti_state.calls[FAKE_##function]++;                                                                     \
        if (fake_cupti_state.fail[FAKE_##function])                                                                    \
            return fake_cupti_state.fail[FAKE_##function];                                                             \
    } while (0)

static int a_context;

static bool right_context(CUcontext c)
{
    return c == (CUcontext)(void *)&a_context;
}

static int pcs_enable(stitch__pcs_context *p)
{
    FAILS(PcsEnable);
    if (!right_context(p->ctx) || fake.enabled || !fake_cupti_state.subscribed)
        return 1;
    fake.enabled = true;
    return 0;
}

/* Like the real one's, names are CUPTI's own for as long as the process lives: to free them is an error. */
static char *kept_names[16];

static char *kept_name(const char *name)
{
    size_t i = 0;
    while (kept_names[i] && strcmp(kept_names[i], name) != 0)
        i++;
    CHECK(i + 1 < STITCH__COUNT(kept_names));
    if (!kept_names[i])
        kept_names[i] = strdup(name);
    return kept_names[i];
}

static void write_record(stitch__pcs_record *r, const sample *s)
{
    size_t n = 0;
    r->crc = s->crc;
    r->offset = s->offset;
    r->function = s->symbol;
    r->name = s->name ? kept_name(s->name) : NULL;
    for (uint32_t i = 0; i < REASONS; i++)
        if (s->stalls[i])
            r->stalls[n++] = (stitch__pcs_stall){100 + i, s->stalls[i]};
    r->stall_count = n;
}

static int pcs_disable(stitch__pcs_context *p)
{
    FAILS(PcsDisable);
    if (!right_context(p->ctx) || !fake.enabled)
        return 1;
    fake.enabled = false;
    for (size_t i = 0; fake.given && i < fake.late && i < fake.given->room; i++) {
        write_record(&fake.given->records[i], &fake.list[i]);
        fake.given->count = i + 1;
    }
    fake.given = NULL;
    return 0;
}

static int pcs_start(stitch__pcs_context *p)
{
    FAILS(PcsStart);
    if (!right_context(p->ctx) || !fake.enabled || fake.started || !fake.given)
        return 1;
    fake.started = true;
    return 0;
}

static int pcs_stop(stitch__pcs_context *p)
{
    FAILS(PcsStop);
    if (!fake.started)
        return 1;
    fake.started = false;
    fake.next = 0;
    return 0;
}

static int pcs_get_data(stitch__pcs_get_data *p)
{
    FAILS(PcsGetData);
    stitch__pcs_data *d = p->data;
    size_t room = fake.most && fake.most < d->room ? fake.most : d->room;
    if (p->size != sizeof(*p) || d->size != sizeof(*d) || d->records[0].size != sizeof(d->records[0]))
        return 1;
    d->buffer_full = fake.full;
    if (fake.full)
        return STITCH__CUPTI_OUT_OF_MEMORY;
    d->count = 0;
    d->dropped = fake.dropped; /* since the last call */
    fake.dropped = 0;
    if (fake.empty_calls > 0) {
        fake.empty_calls--;
        return 0;
    }
    while (d->count < room && (fake.next < fake.count || fake.endless)) {
        write_record(&d->records[d->count++], &fake.list[fake.endless ? 0 : fake.next++]);
        if (fake.endless)
            break;
    }
    d->remaining = fake.count - fake.next;
    if (fake.odd_count)
        d->count = d->room + 1;
    if (fake.odd_stalls)
        d->records[0].stall_count = REASONS + 1;
    if (fake.odd_pointer)
        d->records[0].stalls++;
    return 0;
}

static int pcs_count(stitch__pcs_reason_count *p)
{
    FAILS(PcsGetNumReasons);
    *p->count = fake.no_reasons ? 0 : REASONS;
    return 0;
}

static int pcs_reasons(stitch__pcs_reasons *p)
{
    FAILS(PcsGetReasons);
    for (size_t i = 0; i < p->count; i++) {
        p->indices[i] = (uint32_t)(100 + i);
        strncpy(p->names[i], reason_names[i], STITCH__PCS_REASON_NAME);
    }
    return 0;
}

static int pcs_set(stitch__pcs_attributes *p)
{
    FAILS(PcsSetAttributes);
    for (size_t i = 0; i < p->count; i++) {
        if (p->list[i].type == STITCH__PCS_HARDWARE_BUFFER)
            return 27; /* the rest must come to pass all the same */
        if (p->list[i].type == STITCH__PCS_PERIOD)
            fake.period = p->list[i].value.number;
        if (p->list[i].type == STITCH__PCS_DATA_BUFFER)
            fake.given = p->list[i].value.buffer;
        if (p->list[i].type == STITCH__PCS_REASONS && p->list[i].value.reasons.count != REASONS)
            return 1;
    }
    return 0;
}

static int cubin_crc(stitch__cubin_crc *p)
{
    const unsigned char *bytes = p->cubin;
    FAILS(GetCubinCrc);
    for (size_t i = 0; i < p->cubin_size; i++)
        p->crc = p->crc * 31 + bytes[i];
    return 0;
}

static bool without; /* this CUPTI cannot sample */

static void *get_proc(const char *symbol, void *userdata)
{
    static const struct {
        const char *symbol;
        int (*f)(void *);
    } mine[] = {
#define MINE(symbol, f) {symbol, (int (*)(void *))(void (*)(void))f}
        MINE("cuptiPCSamplingEnable", pcs_enable),
        MINE("cuptiPCSamplingDisable", pcs_disable),
        MINE("cuptiPCSamplingStart", pcs_start),
        MINE("cuptiPCSamplingStop", pcs_stop),
        MINE("cuptiPCSamplingGetData", pcs_get_data),
        MINE("cuptiPCSamplingGetNumStallReasons", pcs_count),
        MINE("cuptiPCSamplingGetStallReasons", pcs_reasons),
        MINE("cuptiPCSamplingSetConfigurationAttribute", pcs_set),
        MINE("cuptiGetCubinCrc", cubin_crc),
    };
    void *address = fake_cupti_get_proc(symbol, userdata);
    for (size_t i = 0; i < STITCH__COUNT(mine) && !without; i++)
        if (strcmp(symbol, mine[i].symbol) == 0)
            memcpy(&address, &mine[i].f, sizeof(address));
    return address;
}

/* ---- a device ---- */

static CUresult sync_result, push_result;
static int entered;

static CUresult push(CUcontext c)
{
    entered += push_result == CUDA_SUCCESS;
    return push_result;
}

static CUresult pop(CUcontext *c)
{
    entered--;
    *c = NULL;
    return CUDA_SUCCESS;
}

static int events;

static CUresult event_create(CUevent *out, unsigned flags)
{
    *out = (CUevent)(void *)&events;
    events++;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent e)
{
    events--;
    return CUDA_SUCCESS;
}

static CUresult record_context(CUcontext c, CUevent e)
{
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent e)
{
    return sync_result;
}

static CUresult error_text(CUresult result, const char **text)
{
    *text = "CUDA_ERROR";
    return CUDA_SUCCESS;
}

static const stitch__driver driver = {.CtxPushCurrent = push,
                                      .CtxPopCurrent = pop,
                                      .CtxRecordEvent = record_context,
                                      .EventCreate = event_create,
                                      .EventDestroy = event_destroy,
                                      .EventQuery = event_query,
                                      .GetErrorName = error_text,
                                      .GetErrorString = error_text};
static stitch__device device;

/* ---- modules ---- */

static const line_row kernel_rows[] = {{0, 1, 1, 0},   {16, 2, 1, 0}, {32, 3, 1, 0}, {48, 77, 2, 3},
                                       {64, 90, 2, 0}, {80, 4, 1, 0}, {96, 0, 0, 0}};
static const line_row other_rows[] = {{0, 3, 1, 0}, {64, 5, 1, 0}, {4096, 0, 0, 0}};
static const line_kernel first_kernels[] = {{"kernel", kernel_rows, STITCH__COUNT(kernel_rows), "kernel$callee", 80},
                                            {"second", other_rows, 3, NULL, 0}};
static const line_kernel second_kernels[] = {{"kernel", other_rows, 3, NULL, 0}};
static const char *const files[] = {"program.cu", "helper.h", NULL};
static const char first_source[] = "line one\n\t line two \nline\x1b[1m three\nline four\n";
static const char second_source[] = "\n\nthree of the other\n";
static line_cubin cubins[2];
static stitch__sampled_module modules[2];

static uint64_t crc_of(int module)
{
    stitch__cubin_crc p = {sizeof(p), cubins[module].size, cubins[module].data, 0};
    fake_cupti_state.fail[FAKE_GetCubinCrc] = 0;
    CHECK_INT(cubin_crc(&p), 0);
    return p.crc;
}

static bool with_symbols;

/* What CUPTI says in place of the name. */
static uint32_t symbol_of(int module, const char *name)
{
    static const char *const first[] = {"", "kernel", "kernel$callee", "second"};
    for (uint32_t i = 1; with_symbols && module == 0 && name && i < STITCH__COUNT(first); i++)
        if (strcmp(first[i], name) == 0)
            return i;
    return with_symbols && module == 1 ? 1 : 0;
}

static void add(int module, const char *name, uint64_t offset, uint32_t scoreboard, uint32_t scoreboard_idle,
                uint32_t barrier, uint32_t selected)
{
    CHECK(fake.count < MAX_RECORDS);
    fake.list[fake.count++] = (sample){module < 0 ? 12345 : crc_of(module),
                                       offset,
                                       name,
                                       {scoreboard, scoreboard_idle, barrier, 0, selected, 0},
                                       symbol_of(module, name)};
}

static void close_all(void)
{
    stitch__sampling_close(sampling);
    sampling = NULL;
    stitch__facts_free(facts);
    facts = NULL;
    stitch_error_free(err);
    err = NULL;
}

static void begin_fresh(void)
{
    static const stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &memory};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.device = "none";
    o.allocator = &allocator;
    memory.refuse_at = -1;
    close_all();
    fake_cupti_reset();
    memset(&fake, 0, sizeof(fake));
    without = with_symbols = false;
    sync_result = push_result = CUDA_SUCCESS;
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
    device = (stitch__device){.ctx = ctx, .drv = &driver, .context = (CUcontext)(void *)&a_context};
    make_line_cubin(&cubins[0], first_kernels, 2, files, 2, true, true);
    make_line_cubin(&cubins[1], second_kernels, 1, files, 2, true, true);
    for (int i = 0; i < 2; i++)
        modules[i] = (stitch__sampled_module){cubins[i].data, cubins[i].size, i ? second_source : first_source};
    CHECK_OK(stitch__cupti_bind(ctx, get_proc, NULL, "the fake", &cupti, &err));
}

static int open_sampling(void)
{
    return stitch__sampling_open(ctx, &device, &cupti, modules, 2, 0, NULL, &sampling, &err);
}

static void new_facts(void)
{
    static const char *const symbols[] = {"kernel", "second", "another", "kernel"};
    CHECK_OK(stitch__facts_new(ctx, &facts, &err));
    for (size_t i = 0; i < STITCH__COUNT(symbols); i++) {
        stitch__kernel_fact *k = stitch__facts_add_kernel(facts);
        CHECK(k);
        k->symbol = stitch__facts_text(facts, symbols[i]);
    }
}

static void add_work(void)
{
    add(0, "kernel", 16, 30, 70, 0, 5);
    add(0, "kernel", 24, 0, 0, 3, 0);
    add(0, "kernel", 48, 1, 0, 200, 0); /* a header's line, called from line 3 */
    add(0, "kernel", 64, 0, 0, 0, 9);   /* a header's line, called from nowhere */
    add(0, "kernel$callee", 0, 2, 0, 0, 0);
    add(0, "second", 64, 0, 0, 4, 0);
    add(0, "kernel", 4000, 0, 0, 0, 1); /* past the table */
    add(1, "kernel", 0, 11, 0, 0, 0);
    add(-1, "kernel", 16, 1000, 0, 0, 0); /* a library's of the same name */
    add(-1, "flush", 0, 500, 0, 0, 0);
    add(0, "unheard_of", 0, 40, 0, 0, 0);
    add(0, NULL, 0, 60, 0, 0, 0);
}

static void check_line(const stitch__kernel_fact *k, size_t i, const char *file, uint32_t line, const char *text,
                       uint64_t samples, const char *reason, uint64_t of_reason)
{
    CHECK(i < k->line_count);
    CHECK_STR(k->lines[i].file, file);
    CHECK_INT(k->lines[i].line, line);
    CHECK_STR(k->lines[i].text, text);
    CHECK_INT(k->lines[i].samples, samples);
    CHECK(k->lines[i].reason_count > 0);
    CHECK_STR(k->lines[i].reasons[0].name, reason);
    CHECK_INT(k->lines[i].reasons[0].samples, of_reason);
}

static void check_work(uint64_t times)
{
    new_facts();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    for (int i = 0; i < 4; i += 3) { /* two steps with one kernel */
        const stitch__kernel_fact *k = &facts->kernels[i];
        CHECK_INT(k->samples, 332 * times);
        CHECK_INT(k->line_count, 6);
        check_line(k, 0, "program.cu", 3, "line?[1m three", 201 * times, "barrier", 200 * times);
        check_line(k, 1, "program.cu", 2, "line two", 108 * times, "long_scoreboard", 100 * times);
        CHECK_INT(k->lines[1].reason_count, 3);
        CHECK_STR(k->lines[1].reasons[1].name, "selected");
        CHECK_STR(k->lines[1].reasons[2].name, "barrier");
        check_line(k, 2, "program.cu", 3, "three of the other", 11 * times, "long_scoreboard", 11 * times);
        check_line(k, 3, "helper.h", 90, "", 9 * times, "selected", 9 * times);
        check_line(k, 4, "program.cu", 4, "line four", 2 * times, "long_scoreboard", 2 * times);
        check_line(k, 5, "", 0, "", 1 * times, "selected", 1 * times);
    }
    CHECK_INT(facts->kernels[1].samples, 4 * times);
    check_line(&facts->kernels[1], 0, "program.cu", 5, "", 4 * times, "barrier", 4 * times);
    CHECK_INT(facts->kernels[2].samples, 0);
    CHECK_INT(facts->kernels[2].line_count, 0);
    CHECK_INT(stitch__sampling_total(sampling), (336 + 1600) * times);
}

/* Nothing is on, and sampling can be done. */
static void check_quiet(void)
{
    close_all();
    CHECK(!fake.enabled && !fake.started && !fake_cupti_state.subscribed);
    CHECK_INT(entered, 0);
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    add_work();
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    check_work(1);
    close_all();
    CHECK(!fake.enabled && !fake.started && !fake_cupti_state.subscribed);
}

/* ---- what works ---- */

TEST(lines_and_reasons)
{
    for (int variant = 0; variant < 8; variant++) {
        begin_fresh();
        with_symbols = variant & 1;
        fake.most = variant & 2 ? 1 : 0;
        fake.empty_calls = variant & 4 ? 3 : 0;
        fake.dropped = 21;
        CHECK_OK(open_sampling());
        CHECK_INT(fake.period, 14);
        CHECK_OK(stitch__sampling_start(sampling, &err));
        CHECK_ERR(stitch__sampling_start(sampling, &err), STITCH_E_STATE, "already");
        add_work();
        CHECK_OK(stitch__sampling_stop(sampling, &err));
        CHECK_ERR(stitch__sampling_stop(sampling, &err), STITCH_E_STATE, "not being sampled");
        CHECK_INT(stitch__sampling_dropped(sampling), 21);
        check_work(1);
        stitch__facts_free(facts);
        fake.empty_calls = 0;
        CHECK_OK(stitch__sampling_start(sampling, &err)); /* once more */
        CHECK_OK(stitch__sampling_stop(sampling, &err));
        check_work(2);
        fake.late = 5;
        close_all();
        CHECK(!fake.enabled && !fake_cupti_state.subscribed);
        CHECK_INT(entered, 0);
    }
    check_quiet();
}

/* A name that is left from a function that was unloaded. */
TEST(names_of_others)
{
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    with_symbols = true;
    add(0, "kernel", 16, 1, 0, 0, 0);
    add(0, "second", 0, 10, 0, 0, 0);
    with_symbols = false;
    fake.list[0].name = "second";
    fake.list[1].name = "long_gone";
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    new_facts();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    CHECK_INT(facts->kernels[0].samples, 1);
    CHECK_INT(facts->kernels[0].lines[0].line, 2);
    CHECK_INT(facts->kernels[1].samples, 10);
    close_all();
    check_quiet();
}

TEST(nothing_is_sampled)
{
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    new_facts();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    CHECK_INT(facts->kernels[0].samples + facts->kernels[0].line_count, 0);
    CHECK_INT(stitch__sampling_total(sampling), 0);
    begin_fresh();
    CHECK_OK(stitch__sampling_open(ctx, &device, &cupti, NULL, 0, 5, NULL, &sampling, &err)); /* no modules */
    CHECK_INT(fake.period, 5);
    CHECK_OK(stitch__sampling_start(sampling, &err));
    add_work();
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    CHECK_INT(stitch__sampling_total(sampling), 336 + 1600);
    check_quiet();
    stitch__sampling_close(NULL);
}

TEST(lists_end_at_their_limits)
{
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    for (uint32_t i = 0; i < 10000; i++)
        add(0, "second", i % 4000, 1, 0, i % 3, i % 5);
    for (uint32_t r = 0; r < REASONS; r++)
        fake.list[0].stalls[r] = r ? 1000 + r : 5000;
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    new_facts();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    CHECK_INT(facts->kernels[1].line_count, 2);
    CHECK_INT(facts->kernels[1].samples, stitch__sampling_total(sampling));
    CHECK_STR(facts->kernels[1].lines[1].reasons[0].name, "long_scoreboard");
    CHECK_INT(facts->kernels[1].lines[1].reason_count, 4);
    CHECK_STR(facts->kernels[1].lines[1].reasons[3].name, "something_else");
    close_all();
    check_quiet();
}

TEST(more_lines_than_are_kept)
{
    enum { LINES = 60 };
    line_row rows[LINES + 1];
    const line_kernel wide = {"kernel", rows, LINES + 1, NULL, 0};
    begin_fresh();
    for (uint32_t i = 0; i <= LINES; i++)
        rows[i] = (line_row){i * 16, i + 1, 1, 0};
    make_line_cubin(&cubins[0], &wide, 1, files, 2, true, true);
    modules[0] = (stitch__sampled_module){cubins[0].data, cubins[0].size, NULL};
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    for (uint32_t i = 0; i < LINES; i++)
        add(0, "kernel", i * 16, 1 + i * 7 % LINES, 0, 0, 0);
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    new_facts();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    const stitch__kernel_fact *k = &facts->kernels[0];
    CHECK_INT(k->line_count, STITCH__FACTS_LINES);
    CHECK_INT(k->samples, LINES * (LINES + 1) / 2);
    for (size_t i = 0; i < k->line_count; i++)
        CHECK_INT(k->lines[i].samples, LINES - i);
    CHECK_STR(k->lines[0].text, "");
    check_quiet();
}

/* ---- what is refused ---- */

/* Templates make symbols that are longer than facts keep: their samples are theirs all the same. */
TEST(symbols_that_are_cut)
{
    static const char *const reasons[] = {"wait"}, *const sources[] = {NULL};
    char name[1200], other[1200];
    stitch__hits hits = {.count = 0};
    stitch__kernel_fact *k;

    memset(name, 'k', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    memcpy(other, name, sizeof(name));
    other[100] = 'q'; /* within what is kept */
    const stitch__hit list[] = {{name, "program.cu", 0, 7, 0, true, 5}, {other, "program.cu", 0, 9, 0, true, 3}};
    for (size_t i = 0; i < STITCH__COUNT(list); i++)
        CHECK_INT(stitch__hits_add(ctx, &hits, &list[i]), STITCH_OK);
    stitch__hits_sort(&hits);
    CHECK_OK(stitch__facts_new(ctx, &facts, &err));
    k = stitch__facts_add_kernel(facts);
    CHECK(k != NULL);
    k->symbol = stitch__facts_text(facts, name);
    CHECK(strlen(k->symbol) == STITCH__FACTS_TEXT && stitch__facts_kept(k->symbol, name));
    CHECK(!stitch__facts_kept(k->symbol, other) && !stitch__facts_kept(k->symbol, k->symbol + 1));
    CHECK(!stitch__facts_kept("k...", "k") && stitch__facts_kept("k...", "k..."));
    CHECK_INT(stitch__hits_fill(&hits, reasons, 1, sources, facts, k), STITCH_OK);
    CHECK_INT(k->samples, 5);
    CHECK(k->line_count == 1 && k->lines[0].line == 7);
    stitch_free(hits.list);
    stitch__facts_free(facts);
    facts = NULL;
}

TEST(refusals)
{
    stitch__sampling *second = NULL;
    begin_fresh();
    CHECK_ERR(stitch__sampling_open(ctx, &device, &cupti, modules, 2, 4, NULL, &sampling, &err), STITCH_E_INVALID,
              "2^4");
    CHECK_ERR(stitch__sampling_open(ctx, &device, &cupti, modules, 2, 32, NULL, &sampling, &err), STITCH_E_INVALID,
              "2^32");
    device.info.simulated = 1;
    CHECK_ERR(open_sampling(), STITCH_E_UNSUPPORTED, "simulated");
    device.info.simulated = 0;
    cubins[1].data[0] = 'x';
    CHECK_ERR(open_sampling(), STITCH_E_FORMAT, "module 1");
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_ERR(stitch__sampling_open(ctx, &device, &cupti, modules, 2, 0, NULL, &second, &err), STITCH_E_BUSY,
              "already");
    CHECK(!second);
    begin_fresh();
    fake_cupti_state.holder = "CUPTI for Kineto";
    CHECK_ERR(open_sampling(), STITCH_E_BUSY, "(CUPTI for Kineto)");
    CHECK_INT(fake_cupti_state.calls[FAKE_PcsEnable], 0);
    begin_fresh();
    fake.no_reasons = true;
    CHECK_ERR(open_sampling(), STITCH_E_UNSUPPORTED, "0 stall reasons");
    begin_fresh();
    without = true;
    CHECK_OK(stitch__cupti_bind(ctx, get_proc, NULL, "libcupti.so.99", &cupti, &err));
    CHECK_ERR(open_sampling(), STITCH_E_UNSUPPORTED, "libcupti.so.99");
    without = false;
    begin_fresh();
    fake_cupti_state.fail[FAKE_PcsEnable] = 35;
    CHECK_ERR(open_sampling(), STITCH_E_UNSUPPORTED, "NVreg_RestrictProfilingToAdminUsers=0");
    fake_cupti_state.fail[FAKE_PcsEnable] = 26;
    CHECK_ERR(open_sampling(), STITCH_E_BUSY, "DCGM");
    check_quiet();
}

TEST(odd_data)
{
    for (int bad = 0; bad < 4; bad++) {
        begin_fresh();
        CHECK_OK(open_sampling());
        CHECK_OK(stitch__sampling_start(sampling, &err));
        fake.odd_count = bad == 0;
        fake.odd_stalls = bad == 1;
        fake.odd_pointer = bad == 2;
        fake.full = bad == 3;
        fake.list[fake.count++] = (sample){crc_of(0), 0, NULL, {1}};
        if (bad == 3)
            CHECK_ERR(stitch__sampling_stop(sampling, &err), STITCH_E_LIMIT, "longer period");
        else
            CHECK_ERR(stitch__sampling_stop(sampling, &err), STITCH_E_UNSUPPORTED, "not known");
        new_facts();
        CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
        CHECK_INT(facts->kernels[0].samples, 0);
        close_all();
        check_quiet();
    }
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    add(0, "kernel", 0, 1, 0, 0, 0);
    fake.endless = true;
    CHECK_OK(stitch__sampling_stop(sampling, &err)); /* ends */
    check_quiet();
}

/* ---- every error in every function ---- */

static int whole(stitch_error **e)
{
    int rc = stitch__sampling_open(ctx, &device, &cupti, modules, 2, 0, NULL, &sampling, e);
    if (rc == STITCH_OK)
        rc = stitch__sampling_start(sampling, e);
    if (rc == STITCH_OK)
        rc = stitch__sampling_stop(sampling, e);
    return rc;
}

TEST(every_error_in_every_function)
{
    static const int codes[] = {1, 7, 8, 14, 15, 26, 27, 35, 38, 39, 40, 41, 45, 999, -77};
    static const int mine[] = {FAKE_PcsEnable,        FAKE_PcsStart,       FAKE_PcsStop,          FAKE_PcsGetData,
                               FAKE_PcsGetNumReasons, FAKE_PcsGetReasons,  FAKE_PcsSetAttributes, FAKE_GetCubinCrc,
                               FAKE_SubscribeNamed,   FAKE_GetResultString};
    for (size_t f = 0; f < STITCH__COUNT(mine); f++) {
        for (size_t c = 0; c < STITCH__COUNT(codes); c++) {
            begin_fresh();
            add_work();
            fake_cupti_state.fail[mine[f]] = codes[c];
            int rc = whole(&err);
            CHECK((rc == STITCH_OK) == (mine[f] == FAKE_GetResultString));
            CHECK((rc == STITCH_OK) == !err);
            CHECK(!err || *stitch_error_message(err));
            if (mine[f] == FAKE_PcsStop)
                fake.started = false; /* what the real one may do as well */
            if (sampling) {
                new_facts();
                CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
            }
            fake.late = 3;
            close_all();
            CHECK(!fake.enabled && !fake.started && !fake_cupti_state.subscribed);
            check_quiet();
        }
    }
}

TEST(what_cannot_be_disabled)
{
    begin_fresh();
    add_work();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    CHECK_OK(stitch__sampling_stop(sampling, &err));
    fake_cupti_state.fail[FAKE_PcsDisable] = 999;
    stitch__pcs_data *given = fake.given;
    close_all();
    CHECK(!fake_cupti_state.subscribed);
    given->records[given->room - 1].stalls[0].samples = 1; /* its threads still have the buffer */
    fake.enabled = false;
    check_quiet();
}

TEST(closed_while_it_runs)
{
    begin_fresh();
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    add_work();
    close_all();
    check_quiet();
}

TEST(the_device_fails)
{
    begin_fresh();
    push_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_ERR(open_sampling(), STITCH_E_FAULT, "lost");
    push_result = CUDA_SUCCESS;
    CHECK_OK(open_sampling());
    CHECK_OK(stitch__sampling_start(sampling, &err));
    add_work();
    sync_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    CHECK_ERR(stitch__sampling_stop(sampling, &err), STITCH_E_FAULT, "the sampled work");
    CHECK(!fake.started);
    push_result = CUDA_ERROR_ILLEGAL_ADDRESS;
    close_all();
    check_quiet();
}

/* ---- memory ---- */

TEST(no_memory)
{
    begin_fresh();
    int64_t live = memory.live, from = memory.calls;
    add_work();
    CHECK_OK(whole(&err));
    new_facts();
    CHECK_OK(stitch__sampling_fill(sampling, facts, &err));
    int64_t needed = memory.calls - from;
    close_all();
    CHECK_INT(memory.live, live);
    CHECK(needed > 20);
    for (int64_t i = 0; i < needed; i++) {
        fake.late = 4;
        memory.refuse_at = memory.calls + i;
        int rc = whole(&err);
        if (rc == STITCH_OK && stitch__facts_new(ctx, &facts, NULL) == STITCH_OK) {
            stitch__kernel_fact *k = stitch__facts_add_kernel(facts);
            if (k)
                k->symbol = "kernel";
            int filled = stitch__sampling_fill(sampling, facts, NULL);
            CHECK(filled == STITCH_OK || filled == STITCH_E_NOMEM);
        }
        memory.refuse_at = -1;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        close_all();
        CHECK_INT(memory.live, live);
        CHECK(!fake.enabled && !fake.started && !fake_cupti_state.subscribed);
    }
    check_quiet();
}

TEST(a_hundred_sessions_leak_nothing)
{
    begin_fresh();
    add_work();
    int64_t live = memory.live;
    for (int i = 0; i < 100; i++) {
        CHECK_OK(whole(&err));
        check_work(1);
        close_all();
        CHECK_INT(memory.live, live);
    }
    check_quiet();
}

/* The last one, for it is remembered for the whole process: names would be those of other kernels from then on. */
TEST(after_a_graph_was_traced)
{
    begin_fresh();
    stitch__exclusive_note_graph();
    CHECK_ERR(open_sampling(), STITCH_E_UNSUPPORTED, "graphs were traced");
    CHECK(!sampling);
    CHECK_INT(fake_cupti_state.calls[FAKE_PcsEnable], 0);
    CHECK_OK(stitch__exclusive_claim(ctx, "a test", &err)); /* nothing is held */
    stitch__exclusive_release();
}

static const check_test tests[] = {RUN(lines_and_reasons),
                                   RUN(names_of_others),
                                   RUN(nothing_is_sampled),
                                   RUN(lists_end_at_their_limits),
                                   RUN(more_lines_than_are_kept),
                                   RUN(symbols_that_are_cut),
                                   RUN(refusals),
                                   RUN(odd_data),
                                   RUN(every_error_in_every_function),
                                   RUN(what_cannot_be_disabled),
                                   RUN(closed_while_it_runs),
                                   RUN(the_device_fails),
                                   RUN(no_memory),
                                   RUN(a_hundred_sessions_leak_nothing),
                                   RUN(after_a_graph_was_traced)};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    close_all();
    stitch_context_free(ctx);
    for (size_t i = 0; i < STITCH__COUNT(kept_names); i++)
        free(kept_names[i]);
    return rc;
}
