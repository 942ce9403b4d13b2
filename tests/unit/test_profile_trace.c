/* SPDX-License-Identifier: MIT
 *
 * Traces against a CUPTI that fails in every way it can: each error in each function, damaged buffers, buffers that
 * come late or belong to others, several threads, no memory. Nothing may crash, leak, or stay switched on.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "base/base.h"
#include "check.h"
#include "cupti_layout.h"
#include "fake_cupti.h"
#include "profile/exclusive.h"
#include "profile/profile.h"

typedef struct meter {
    int64_t calls, refuse_at, live;
} meter;

static pthread_mutex_t meter_lock = PTHREAD_MUTEX_INITIALIZER;
static meter memory = {0, -1, 0};
static stitch_context *ctx;
static stitch_error *err;
static stitch__cupti cupti;
static stitch_trace *trace;
static const stitch_trace_options defaults = STITCH_TRACE_OPTIONS_INIT;

static void *meter_alloc(size_t size, void *userdata)
{
    pthread_mutex_lock(&meter_lock);
    void *ptr = memory.calls++ == memory.refuse_at ? NULL : malloc(size);
    memory.live += ptr != NULL;
    pthread_mutex_unlock(&meter_lock);
    return ptr;
}

static void *meter_realloc(void *ptr, size_t size, void *userdata)
{
    pthread_mutex_lock(&meter_lock);
    void *out = memory.calls++ == memory.refuse_at ? NULL : realloc(ptr, size);
    pthread_mutex_unlock(&meter_lock);
    return out;
}

static void meter_free(void *ptr, void *userdata)
{
    pthread_mutex_lock(&meter_lock);
    memory.live--;
    pthread_mutex_unlock(&meter_lock);
    free(ptr);
}

static void begin_fresh(void)
{
    static const stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, NULL};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.device = "none";
    o.allocator = &allocator;
    stitch_trace_free(trace);
    trace = NULL;
    stitch_error_free(err);
    err = NULL;
    memory.refuse_at = -1;
    fake_cupti_reset();
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
    CHECK_OK(stitch__cupti_bind(ctx, fake_cupti_get_proc, NULL, "the fake", &cupti, &err));
}

static int begin(void)
{
    return stitch__trace_start(ctx, &cupti, NULL, &defaults, &trace, &err);
}

static void add_work(void)
{
    stitch__cupti_memcpy c = {.kind = STITCH__CUPTI_KIND_MEMCPY, .copy_kind = 1, .src_kind = 1, .bytes = 4096};
    stitch__cupti_memcpy_peer p = {.kind = STITCH__CUPTI_KIND_MEMCPY2, .copy_kind = 10, .dst_kind = 1, .bytes = 8192};
    stitch__cupti_memset m = {.kind = STITCH__CUPTI_KIND_MEMSET, .bytes = 64, .graph_node = 9, .graph = 3};
    stitch__cupti_sync s = {STITCH__CUPTI_KIND_SYNCHRONIZATION, 3, 1009000, 1010000, 4, 1, 7, 0};
    c.start = 1003000;
    c.end = 1004000;
    p.start = 1004000;
    p.end = 1005000;
    p.correlation = 77;
    m.start = 1006000;
    m.end = 1006500;
    fake_cupti_add_kernel("_Z4axpyfPKfPf", 1001000, 1003000, 1);
    fake_cupti_add(&c);
    fake_cupti_add(&p);
    fake_cupti_add(&m);
    fake_cupti_add(&s);
    fake_cupti_add_call(STITCH__CUPTI_KIND_DRIVER, 0, 1000500, 1000600, 5, 1);
    fake_cupti_add_call(STITCH__CUPTI_KIND_DRIVER, 3, 1005500, 1005600, 5, 2);
    fake_cupti_add_call(STITCH__CUPTI_KIND_RUNTIME, 77, 1005500, 1005700, 6, 3);
}

/* Whether their records fit into the trace or not. The first test: it is remembered for the whole process. */
TEST(graphs_are_remembered)
{
    stitch__cupti_memset m = {.kind = STITCH__CUPTI_KIND_MEMSET, .bytes = 64, .graph_node = 9, .graph = 3};
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    begin_fresh();
    o.max_records = 1;
    for (int graph = 0; graph < 2; graph++) {
        CHECK(!stitch__exclusive_graph_traced());
        CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err));
        fake_cupti_add_kernel("a", 1001000, 1002000, 1);
        m.start = 1003000;
        m.end = 1004000;
        m.graph = graph ? 3 : 0;
        m.graph_node = graph ? 9 : 0;
        fake_cupti_add(&m);
        CHECK_OK(stitch_trace_end(trace, &err));
        CHECK_INT(stitch__trace_timeline(trace)->count, 1);
        stitch_trace_free(trace);
        trace = NULL;
    }
    CHECK(stitch__exclusive_graph_traced());
}

/* No record kind is on, nobody is subscribed, no buffer is out, and a trace can be made. */
static void check_quiet(void)
{
    for (int i = 0; i < 64; i++)
        CHECK_INT(fake_cupti_state.enabled[i], 0);
    CHECK(!fake_cupti_state.subscribed);
    CHECK_INT(stitch__trace_buffers(), 0);
    begin_fresh();
    CHECK_OK(begin());
    add_work();
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_INT(stitch_trace_count(trace), 8);
    stitch_trace_free(trace);
    trace = NULL;
    CHECK(!fake_cupti_state.subscribed);
}

/* ---- what works ---- */

TEST(records_and_results)
{
    stitch_trace_record r = STITCH_TRACE_RECORD_INIT;
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    stitch_trace_kernel k = STITCH_TRACE_KERNEL_INIT;
    stitch_trace_copy c = STITCH_TRACE_COPY_INIT;
    stitch_trace_gap g = STITCH_TRACE_GAP_INIT;
    char *json, *text;
    begin_fresh();
    CHECK_OK(begin());
    CHECK_INT(fake_cupti_state.enabled[STITCH__CUPTI_KIND_CONCURRENT_KERNEL], 1);
    CHECK_INT(fake_cupti_state.enabled[STITCH__CUPTI_KIND_KERNEL], 0);
    CHECK_INT(fake_cupti_state.enabled[51], 0); /* GRAPH_TRACE */
    add_work();
    CHECK_INT(stitch_trace_count(trace), 0);
    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_E_STATE);
    CHECK_ERR(stitch_trace_json(trace, &json, &err), STITCH_E_STATE, "end the trace first");
    CHECK_ERR(stitch_trace_text(trace, 0, &text, &err), STITCH_E_STATE, "end the trace first");
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_ERR(stitch_trace_end(trace, &err), STITCH_E_STATE, "already");
    CHECK_INT(stitch_trace_count(trace), 8);
    CHECK_INT(stitch_trace_record_get(trace, 8, &r), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_trace_record_get(trace, 0, NULL), STITCH_E_INVALID);
    CHECK_INT(stitch_trace_record_get(trace, 0, &r), STITCH_OK);
    CHECK_INT(r.kind, STITCH_TRACE_DRIVER);
    CHECK_STR(r.name, "cuLaunchKernel");
    CHECK_INT(stitch_trace_record_get(trace, 1, &r), STITCH_OK);
    CHECK_INT(r.kind, STITCH_TRACE_KERNEL);
    CHECK_STR(r.name, "axpy");
    CHECK_STR(r.symbol, "_Z4axpyfPKfPf");
    CHECK_NEAR(r.end_us - r.start_us, 2, 1e-9);
    CHECK_INT(r.grid[0], 128);
    CHECK_INT(r.registers, 32);
    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
    CHECK_INT(s.kernels, 1);
    CHECK_INT(s.copies, 2);
    CHECK_INT(s.copy_bytes, 4096 + 8192);
    CHECK_INT(s.fills, 1);
    CHECK_INT(s.graph_nodes, 1);
    CHECK_INT(s.graph_launches, 1);
    CHECK_INT(s.calls, 3);
    CHECK_INT(s.syncs, 1);
    CHECK_INT(s.has_calls, 1);
    CHECK_NEAR(s.busy_us, 4.5, 1e-9);
    CHECK_INT(s.dropped + s.incomplete + s.unknown, 0);
    CHECK_INT(stitch_trace_kernel_count(trace), 1);
    CHECK_INT(stitch_trace_kernel_get(trace, 0, &k), STITCH_OK);
    CHECK_STR(k.name, "axpy");
    CHECK_INT(stitch_trace_kernel_get(trace, 1, &k), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_trace_copy_count(trace), 3);
    uint64_t pageable = 0;
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(stitch_trace_copy_get(trace, i, &c), STITCH_OK);
        pageable += c.pageable;
    }
    CHECK_INT(pageable, 2); /* of one the source, of the other where it goes */
    CHECK_INT(stitch_trace_gap_count(trace), 1);
    CHECK_INT(stitch_trace_gap_get(trace, 0, &g), STITCH_OK);
    CHECK_STR(g.after, "fill");
    CHECK_OK(stitch_trace_json(trace, &json, &err));
    CHECK_HAS(json, "\"axpy\"");
    stitch_free(json);
    CHECK_OK(stitch_trace_text(trace, 4000, &text, &err));
    CHECK_HAS(text, "axpy");
    stitch_free(text);
    stitch_trace_free(trace);
    trace = NULL;
    check_quiet();
}

TEST(struct_sizes)
{
    struct {
        stitch_trace_record r;
        char tail[16];
    } newer;
    struct {
        size_t struct_size;
        int32_t kind, result;
    } older = {sizeof(older), -1, -1};
    begin_fresh();
    CHECK_OK(begin());
    add_work();
    CHECK_OK(stitch_trace_end(trace, &err));
    memset(&newer, 0xff, sizeof(newer));
    newer.r.struct_size = sizeof(newer);
    CHECK_INT(stitch_trace_record_get(trace, 1, &newer.r), STITCH_OK);
    CHECK_INT(newer.r.struct_size, sizeof(newer));
    CHECK_INT(newer.tail[15], -1); /* left alone */
    CHECK_INT(stitch_trace_record_get(trace, 1, (stitch_trace_record *)(void *)&older), STITCH_OK);
    CHECK_INT(older.kind, STITCH_TRACE_KERNEL);
    older.struct_size = 3;
    CHECK_INT(stitch_trace_record_get(trace, 1, (stitch_trace_record *)(void *)&older), STITCH_E_INVALID);
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    stitch_trace *other;
    o.flags = 1u << 30;
    CHECK_ERR(stitch__trace_start(ctx, &cupti, NULL, &o, &other, &err), STITCH_E_INVALID, "unknown bits");
    CHECK(!other);
    CHECK_ERR(stitch_trace_begin(ctx, NULL, NULL, &err), STITCH_E_INVALID, "out must not be NULL");
    CHECK_ERR(stitch_trace_begin(ctx, NULL, &other, &err), STITCH_E_NO_DEVICE, "none");
    CHECK_ERR(stitch_trace_end(NULL, &err), STITCH_E_INVALID, "NULL");
    stitch_trace_free(NULL);
}

TEST(flags_leave_kinds_out)
{
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    begin_fresh();
    o.flags = STITCH_TRACE_NO_SYNC | STITCH_TRACE_NO_DRIVER | STITCH_TRACE_NO_RUNTIME;
    o.max_records = 2;
    CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err));
    CHECK_INT(fake_cupti_state.calls[FAKE_ActivityEnable], 4);
    CHECK_INT(fake_cupti_state.enabled[STITCH__CUPTI_KIND_DRIVER], 0);
    fake_cupti_add_kernel("a", 1001000, 1002000, 1);
    fake_cupti_add_kernel("b", 1001500, 1004000, 2);
    fake_cupti_add_kernel("c", 1005000, 1006000, 3);
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_OK(stitch_trace_summary_get(trace, &s));
    CHECK_NEAR(s.busy_us, 3, 1e-9);
    CHECK_INT(s.kernels, 2);
    CHECK_INT(s.dropped, 1);
    CHECK_INT(stitch__trace_timeline(trace)->count, 2);
}

/* Asked for, CUPTI goes with the trace, when nobody uses it any more, and comes back with the next one. */
TEST(cupti_goes_with_a_trace)
{
    static const int in_the_way[] = {FAKE_ActivityDisable, FAKE_ActivityFlushAll, FAKE_Unsubscribe};
    stitch_trace_options o = STITCH_TRACE_OPTIONS_INIT;

    begin_fresh();
    CHECK_OK(begin());
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_INT(fake_cupti_state.calls[FAKE_Finalize], 0);
    o.flags = STITCH_TRACE_UNLOAD;
    for (int i = 1; i <= 3; i++) {
        stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
        stitch_trace_free(trace);
        CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err));
        add_work();
        CHECK_OK(stitch_trace_end(trace, &err));
        CHECK_INT(fake_cupti_state.unloads, i);
        CHECK_OK(stitch_trace_summary_get(trace, &s));
        CHECK_INT(s.records, 8);
    }
    /* One that is given up, or that CUPTI does not let go of, leaves it where it is. */
    stitch_trace_free(trace);
    CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err));
    stitch_trace_free(trace);
    trace = NULL;
    CHECK_INT(fake_cupti_state.calls[FAKE_Finalize], 3);
    for (size_t i = 0; i < STITCH__COUNT(in_the_way); i++) {
        begin_fresh();
        CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err));
        fake_cupti_state.fail[in_the_way[i]] = 999;
        CHECK_ERR(stitch_trace_end(trace, &err), STITCH_E_LIBRARY, "the fake failed");
        CHECK_INT(fake_cupti_state.calls[FAKE_Finalize], 0);
        stitch_trace_free(trace);
        trace = NULL;
        fake_cupti_reset();
    }
    begin_fresh();
    CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err));
    add_work();
    fake_cupti_state.fail[FAKE_Finalize] = 999;
    CHECK_ERR(stitch_trace_end(trace, &err), STITCH_E_LIBRARY, "cuptiFinalize");
    stitch_trace_free(trace);
    trace = NULL;
    check_quiet();
    o.flags |= STITCH_TRACE_NO_WAIT;
    CHECK_ERR(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err), STITCH_E_INVALID, "STITCH_TRACE_NO_WAIT");
    o.flags = STITCH_TRACE_UNLOAD;
    begin_fresh();
    fake_cupti_state.lasting = true;
    CHECK_OK(stitch__cupti_bind(ctx, fake_cupti_get_proc, NULL, "libcupti.so.13", &cupti, &err));
    CHECK_ERR(stitch__trace_start(ctx, &cupti, NULL, &o, &trace, &err), STITCH_E_UNSUPPORTED, "taken out of a process");
    begin_fresh();
}

/* ---- what others do ---- */

TEST(another_tool_holds_cupti)
{
    begin_fresh();
    fake_cupti_state.holder = "CUPTI for \x1b[31mKineto";
    CHECK_INT(begin(), STITCH_E_BUSY);
    CHECK_HAS(stitch_error_message(err), "(CUPTI for ?[31mKineto)");
    CHECK_HAS(stitch_error_message(err), "torch.profiler");
    CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_CUPTI);
    CHECK_INT(stitch_error_native(err), 39);
    CHECK(!trace);
    for (int f = 0; f < FAKE_CUPTI_FUNCTIONS; f++) /* nothing of it was touched */
        CHECK(f == FAKE_GetVersion || f == FAKE_GetResultString || f == FAKE_Subscribe || f == FAKE_SubscribeNamed ||
              !fake_cupti_state.calls[f]);
    check_quiet();
    fake_cupti_state.unnamed = true;
    fake_cupti_state.holder = "?";
    CHECK_OK(stitch__cupti_bind(ctx, fake_cupti_get_proc, NULL, "the fake", &cupti, &err));
    CHECK(!cupti.SubscribeNamed);
    CHECK_ERR(begin(), STITCH_E_BUSY, "cuptiSubscribe: another tool traces");
    fake_cupti_state.holder = NULL;
    CHECK_OK(begin());
    CHECK_OK(stitch_trace_end(trace, &err));
    check_quiet();
}

TEST(a_cupti_that_needs_a_driver)
{
    stitch__cupti other;
    begin_fresh();
    fake_cupti_state.fail[FAKE_GetVersion] = fake_cupti_state.fail[FAKE_GetResultString] = STITCH__CUPTI_UNKNOWN;
    CHECK_INT(stitch__cupti_bind(ctx, fake_cupti_get_proc, NULL, "the fake", &other, &err), STITCH_E_LIBRARY);
    CHECK_HAS(stitch_error_message(err), "CUPTI (the fake) did not start: no driver");
    CHECK_INT(stitch_error_native(err), 999);
    check_quiet();
}

TEST(one_trace_a_process)
{
    stitch_trace *second;
    begin_fresh();
    CHECK_OK(begin());
    CHECK_ERR(stitch__trace_start(ctx, &cupti, NULL, &defaults, &second, &err), STITCH_E_BUSY, "already");
    CHECK(!second);
    CHECK_INT(fake_cupti_state.calls[FAKE_SubscribeNamed], 1);
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_OK(stitch__trace_start(ctx, &cupti, NULL, &defaults, &second, &err)); /* the ended one may still be read */
    stitch_trace_free(second);                                                  /* ends it */
    check_quiet();
}

TEST(versions)
{
    stitch__cupti old;
    begin_fresh();
    fake_cupti_state.version = 21;
    CHECK_ERR(stitch__cupti_bind(ctx, fake_cupti_get_proc, NULL, "libcupti.so.12", &old, &err), STITCH_E_NO_LIBRARY,
              "too old");
    fake_cupti_state.version = 130000;
    CHECK_OK(stitch__cupti_bind(ctx, fake_cupti_get_proc, NULL, "libcupti.so.13", &cupti, &err));
    CHECK_ERR(begin(), STITCH_E_NO_LIBRARY, "13.0 Update 1");
    CHECK_INT(fake_cupti_state.calls[FAKE_SubscribeNamed], 0);
    check_quiet();
}

/* ---- every error in every function ---- */

static const int codes[] = {1,  2,  3,  7,  8,  9,  11, 12, 13, 14, 15, 21, 23, 26,  27,
                            33, 34, 35, 36, 38, 39, 40, 41, 42, 43, 44, 45, 46, 999, -77};

TEST(every_error_in_every_function)
{
    for (int f = 0; f < FAKE_CUPTI_FUNCTIONS; f++) {
        for (size_t c = 0; c < STITCH__COUNT(codes); c++) {
            for (int when = 0; when < 2; when++) { /* from the start, or once the trace runs */
                begin_fresh();
                if (!when)
                    fake_cupti_state.fail[f] = codes[c];
                int rc = begin();
                if (rc) {
                    CHECK(!trace && err && *stitch_error_message(err));
                    CHECK(f != FAKE_ActivityDisable && f != FAKE_Unsubscribe);
                } else {
                    fake_cupti_state.fail[f] = codes[c];
                    add_work();
                    rc = stitch_trace_end(trace, &err);
                    CHECK((rc == STITCH_OK) == !err);
                    CHECK(rc == STITCH_OK || *stitch_error_message(err));
                    CHECK(!rc == (f != FAKE_ActivityDisable && f != FAKE_ActivityFlushAll && f != FAKE_Unsubscribe));
                    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
                    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
                    CHECK_INT(s.records, f == FAKE_ActivityFlushAll || f == FAKE_ActivityGetNextRecord ? 0 : 8);
                }
                if (f != FAKE_ActivityDisable)
                    for (int i = 0; i < 64; i++)
                        CHECK_INT(fake_cupti_state.enabled[i], 0);
                if (f != FAKE_Unsubscribe)
                    CHECK(!fake_cupti_state.subscribed);
                stitch_trace_free(trace);
                trace = NULL;
                fake_cupti_reset(); /* what a failed flush left comes late */
                check_quiet();
            }
        }
    }
}

TEST(advice)
{
    static const struct {
        int code, status;
        const char *text;
    } all[] = {{35, STITCH_E_UNSUPPORTED, "NVreg_RestrictProfilingToAdminUsers=0"},
               {40, STITCH_E_UNSUPPORTED, "hypervisor"},
               {26, STITCH_E_BUSY, "DCGM"},
               {15, STITCH_E_LIBRARY, "newer driver"},
               {8, STITCH_E_NOMEM, "memory"},
               {41, STITCH_E_UNSUPPORTED, "confidential"},
               {999, STITCH_E_LIBRARY, "the fake failed"}};
    for (size_t i = 0; i < STITCH__COUNT(all); i++) {
        begin_fresh();
        fake_cupti_state.fail[FAKE_ActivityEnable] = all[i].code;
        CHECK_ERR(begin(), all[i].status, all[i].text);
        check_quiet();
    }
}

TEST(a_kind_that_is_not_there)
{
    static const int optional[] = {STITCH__CUPTI_KIND_MEMCPY2, STITCH__CUPTI_KIND_SYNCHRONIZATION,
                                   STITCH__CUPTI_KIND_DRIVER, STITCH__CUPTI_KIND_RUNTIME};
    static const int needed[] = {STITCH__CUPTI_KIND_CONCURRENT_KERNEL, STITCH__CUPTI_KIND_MEMCPY,
                                 STITCH__CUPTI_KIND_MEMSET};
    for (size_t i = 0; i < STITCH__COUNT(optional); i++) {
        begin_fresh();
        fake_cupti_state.fail[FAKE_ActivityEnable] = STITCH__CUPTI_NOT_COMPATIBLE;
        fake_cupti_state.fail_kind = optional[i];
        CHECK_OK(begin());
        CHECK_OK(stitch_trace_end(trace, &err));
        check_quiet();
    }
    for (size_t i = 0; i < STITCH__COUNT(needed); i++) {
        begin_fresh();
        fake_cupti_state.fail[FAKE_ActivityEnable] = STITCH__CUPTI_NOT_COMPATIBLE;
        fake_cupti_state.fail_kind = needed[i];
        CHECK_ERR(begin(), STITCH_E_UNSUPPORTED, "cuptiActivityEnable");
        check_quiet();
    }
}

/* ---- buffers ---- */

static void end_with(stitch_trace_summary *s)
{
    *s = (stitch_trace_summary)STITCH_TRACE_SUMMARY_INIT;
    CHECK_OK(stitch_trace_end(trace, &err));
    CHECK_INT(stitch_trace_summary_get(trace, s), STITCH_OK);
}

TEST(odd_records)
{
    struct {
        int32_t kind, rest[3];
    } unknown = {900, {1, 2, 3}};
    stitch_trace_record r = STITCH_TRACE_RECORD_INIT;
    stitch_trace_summary s;
    stitch__cupti_kernel nonsense = {.kind = STITCH__CUPTI_KIND_KERNEL, .start = 1001000, .end = 1002000};
    begin_fresh();
    CHECK_OK(begin());
    fake_cupti_add(&unknown);
    unknown.kind = -5;
    fake_cupti_add(&unknown);
    fake_cupti_add_kernel(NULL, 1001000, 1002000, 1);
    fake_cupti_add_kernel("no_times", 0, 0, 2);
    fake_cupti_add_kernel("no_end", 1001000, 0, 3);
    fake_cupti_add_kernel("backwards", 1002000, 1001000, 4);
    fake_cupti_add_kernel("before_the_trace", 100, 200, 5);
    fake_cupti_add_kernel("another_clock", UINT64_MAX - 10, UINT64_MAX - 5, 6);
    nonsense.grid[0] = -1;
    nonsense.static_shared = -7;
    fake_cupti_add(&nonsense);
    fake_cupti_add_call(STITCH__CUPTI_KIND_DRIVER, 0, 1001000, 0, 1, 1); /* has not returned */
    fake_cupti_add_call(STITCH__CUPTI_KIND_DRIVER, UINT32_MAX, 1001000, 1002000, 1, 1);
    fake_cupti_state.null_names = true;
    fake_cupti_add_call(STITCH__CUPTI_KIND_RUNTIME, 12345678, 1003000, 1004000, 1, 1);
    end_with(&s);
    CHECK_INT(s.unknown, 2);
    CHECK_INT(s.kernels, 6);
    CHECK_INT(s.incomplete, 5);
    CHECK_INT(s.calls, 2);
    CHECK_NEAR(s.busy_us, 1, 1e-9);
    CHECK_INT(stitch_trace_record_get(trace, s.records - 1, &r), STITCH_OK);
    CHECK_NEAR(r.start_us, -1, 0);
    check_quiet();
}

TEST(buffers_of_odd_sizes)
{
    stitch_trace_summary s;
    for (size_t cut = 1; cut < 400; cut++) {
        begin_fresh();
        fake_cupti_state.cut = cut;
        fake_cupti_state.records_per_buffer = cut % 3;
        CHECK_OK(begin());
        for (int i = 0; i < 6; i++)
            fake_cupti_add_kernel("k", 1001000, 1002000, 1);
        end_with(&s);
        CHECK(s.kernels <= 6);
        CHECK(cut <= 32 || s.kernels < 6);
        CHECK_INT(stitch__trace_buffers(), 0);
    }
    for (int bad = 1; bad <= 3; bad++) {
        begin_fresh();
        fake_cupti_state.bad_step = bad;
        CHECK_OK(begin());
        add_work();
        end_with(&s);
        CHECK(s.records <= 1);
        CHECK(s.incomplete > 0);
        fake_cupti_state.bad_step = 0;
    }
    check_quiet();
}

TEST(dropped_records)
{
    stitch_trace_summary s;
    begin_fresh();
    fake_cupti_state.dropped = 1000; /* from before */
    CHECK_OK(begin());
    fake_cupti_state.dropped += 5; /* to those that nobody has asked for yet */
    add_work();
    end_with(&s);
    CHECK_INT(s.dropped, 5);
    check_quiet();
}

TEST(buffers_that_come_late_or_are_not_ours)
{
    uint8_t *late = NULL, *between = NULL, foreign[256] = {0};
    size_t size, most;
    stitch_trace_summary s;
    begin_fresh();
    CHECK_OK(begin());
    fake_cupti_state.request(&late, &size, &most);
    CHECK(late && size >= 65536 && most == 0 && (uintptr_t)late % 8 == 0);
    fake_cupti_state.complete(NULL, 0, foreign, sizeof(foreign), sizeof(foreign));
    fake_cupti_state.complete(NULL, 0, NULL, 0, 0);
    add_work();
    end_with(&s);
    CHECK_INT(s.records, 8);
    CHECK_INT(stitch__trace_buffers(), 1);
    stitch__cupti_complete_fn complete = fake_cupti_state.complete;
    stitch__cupti_request_fn request = fake_cupti_state.request;
    request(&between, &size, &most); /* no trace runs: answered all the same */
    CHECK(between);
    memset(late, 0, size);
    complete(NULL, 0, late, size, size * 4);
    complete(NULL, 0, between, size, 0);
    complete(NULL, 0, foreign, sizeof(foreign), 64);
    CHECK_INT(stitch__trace_buffers(), 0);
    check_quiet();
}

/* Buffers are nobody's memory in particular: the library's own function for it stands in (see the build file). */
void *__real_stitch__alloc(const stitch_context *c, size_t size);
void *__wrap_stitch__alloc(const stitch_context *c, size_t size);
static _Atomic bool no_buffers;

void *__wrap_stitch__alloc(const stitch_context *c, size_t size)
{
    return no_buffers && !c && size >= 65536 ? NULL : __real_stitch__alloc(c, size);
}

/* CUPTI before 12.9 can crash where it gets no buffer: one is kept for that. */
TEST(memory_runs_out_for_buffers)
{
    uint8_t *first = NULL, *second = NULL;
    size_t size, most;
    stitch_trace_summary s;
    begin_fresh();
    no_buffers = true;
    CHECK_ERR(begin(), STITCH_E_NOMEM, "memory"); /* not even that one */
    no_buffers = false;
    CHECK_OK(begin());
    no_buffers = true;
    fake_cupti_state.request(&first, &size, &most);
    CHECK(first && size >= 65536);
    fake_cupti_state.request(&second, &size, &most);
    CHECK(!second && size == 0);
    no_buffers = false;
    fake_cupti_state.complete(NULL, 0, first, 65536, 0);
    add_work();
    end_with(&s);
    CHECK_INT(s.records, 8);
    CHECK_INT(s.dropped, 1); /* a buffer, whatever would have been in it */
    CHECK_INT(stitch__trace_buffers(), 0);
    check_quiet();
}

/* ---- threads ---- */

static void *work_thread(void *arg)
{
    for (int i = 0; i < 200; i++) {
        fake_cupti_add_kernel("k", 1001000 + (uint64_t)i, 1001500 + (uint64_t)i, 1);
        if (i % 10 == 0)
            fake_cupti_deliver();
    }
    return NULL;
}

static void *end_thread(void *arg)
{
    int *rc = arg;
    *rc = stitch_trace_end(trace, NULL);
    return NULL;
}

TEST(threads_share_a_trace)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS], ender;
    stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
    int rc = -1;
    begin_fresh();
    CHECK_OK(begin());
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, work_thread, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(pthread_create(&ender, NULL, end_thread, &rc), 0);
    pthread_join(ender, NULL);
    CHECK_INT(rc, STITCH_OK);
    CHECK_INT(stitch_trace_summary_get(trace, &s), STITCH_OK);
    CHECK_INT(s.kernels, THREADS * 200);
    check_quiet();
}

static atomic_int won;

static void *racing_thread(void *arg)
{
    stitch_trace *mine = NULL;
    pthread_barrier_t *barrier = arg;
    pthread_barrier_wait(barrier);
    int rc = stitch__trace_start(ctx, &cupti, NULL, &defaults, &mine, NULL);
    if (rc == STITCH_OK)
        atomic_fetch_add(&won, 1);
    pthread_barrier_wait(barrier);
    stitch_trace_free(mine);
    return NULL;
}

TEST(threads_race_for_a_trace)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    begin_fresh();
    for (int round = 0; round < 20; round++) {
        atomic_store(&won, 0);
        CHECK_INT(pthread_barrier_init(&barrier, NULL, THREADS), 0);
        for (int i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&threads[i], NULL, racing_thread, &barrier), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
        CHECK_INT(atomic_load(&won), 1);
    }
    check_quiet();
}

/* Buffers come back while the trace ends. */
static atomic_bool over;

static void *flood_thread(void *arg)
{
    stitch__cupti_request_fn request = fake_cupti_state.request;
    stitch__cupti_complete_fn complete = fake_cupti_state.complete;
    stitch__cupti_api a = {STITCH__CUPTI_KIND_DRIVER, 0, 1001000, 1002000, 1, 1, 1, 0};
    while (!atomic_load(&over)) {
        uint8_t *buffer = NULL;
        size_t size, most;
        request(&buffer, &size, &most);
        if (buffer) {
            memset(buffer, 0, 256);
            memcpy(buffer, &a, sizeof(a));
            complete(NULL, 0, buffer, size, 72);
        }
    }
    return NULL;
}

TEST(buffers_come_back_while_traces_come_and_go)
{
    pthread_t thread;
    begin_fresh();
    CHECK_OK(begin());
    atomic_store(&over, false);
    CHECK_INT(pthread_create(&thread, NULL, flood_thread, NULL), 0);
    for (int i = 0; i < 200; i++) {
        int rc = stitch_trace_end(trace, &err);
        stitch_trace_free(trace);
        trace = NULL;
        if (rc == STITCH_OK)
            rc = begin();
        if (rc != STITCH_OK)
            break;
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    CHECK(trace && !err);
    CHECK_OK(stitch_trace_end(trace, &err));
    check_quiet();
}

/* ---- memory ---- */

static int whole_trace(stitch_error **e)
{
    char *json = NULL, *text = NULL;
    fake_cupti_state.now = 1000000;
    int rc = stitch__trace_start(ctx, &cupti, NULL, &defaults, &trace, e);
    if (rc)
        return rc;
    add_work();
    fake_cupti_deliver();
    add_work();
    rc = stitch_trace_end(trace, e);
    if (rc == STITCH_OK)
        rc = stitch_trace_json(trace, &json, e);
    if (rc == STITCH_OK)
        rc = stitch_trace_text(trace, 0, &text, e);
    if (rc == STITCH_OK) {
        stitch_trace_summary s = STITCH_TRACE_SUMMARY_INIT;
        if (stitch_trace_summary_get(trace, &s) != STITCH_OK || s.records + s.dropped != 16)
            rc = STITCH_E_INTERNAL; /* a record is either there or counted as dropped */
    }
    stitch_free(json);
    stitch_free(text);
    stitch_trace_free(trace);
    trace = NULL;
    return rc;
}

TEST(no_memory)
{
    begin_fresh();
    int64_t live = memory.live, from = memory.calls;
    CHECK_OK(whole_trace(&err));
    int64_t needed = memory.calls - from;
    CHECK_INT(memory.live, live);
    CHECK(needed > 10);
    for (int64_t i = 0; i < needed; i++) {
        memory.refuse_at = memory.calls + i;
        int rc = whole_trace(&err);
        memory.refuse_at = -1;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        stitch_error_free(err);
        err = NULL;
        CHECK_INT(memory.live, live);
        CHECK_INT(stitch__trace_buffers(), 0);
        CHECK(!fake_cupti_state.subscribed);
        fake_cupti_reset();
    }
    check_quiet();
}

TEST(a_thousand_traces_leak_nothing)
{
    begin_fresh();
    CHECK_OK(whole_trace(&err));
    int64_t live = memory.live;
    for (int i = 0; i < 1000; i++)
        CHECK_OK(whole_trace(&err));
    CHECK_INT(memory.live, live);
    check_quiet();
}

/* ---- the real library ---- */

TEST(the_real_library_answers)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("CUPTI opens a library with RTLD_DEEPBIND, which AddressSanitizer does not allow");
#else
    const stitch__cupti *real;
    begin_fresh();
    int rc = stitch__cupti_get(ctx, &real, &err);
    if (rc == STITCH_E_NO_LIBRARY || (rc == STITCH_E_LIBRARY && !dlopen("libcuda.so.1", RTLD_LAZY)))
        SKIP(stitch_error_message(err)); /* later versions of it do not even start without a driver */
    CHECK_OK(rc);
    rc = stitch__trace_start(ctx, real, NULL, &defaults, &trace, &err);
    if (rc) { /* no driver here */
        CHECK(!trace);
        CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_CUPTI);
    } else {
        CHECK_OK(stitch_trace_end(trace, &err));
    }
    CHECK_INT(stitch__trace_buffers(), 0);
#endif
}

TEST(no_library)
{
#ifdef __SANITIZE_ADDRESS__
    SKIP("CUPTI is refused under AddressSanitizer before it is looked for");
#else
    stitch_context *other = NULL;
    const stitch__cupti *real;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    begin_fresh();
    o.device = "none";
    setenv("STITCH_CUPTI", "/nowhere/libcupti.so", 1);
    CHECK_OK(stitch_context_new(&other, &o, &err));
    CHECK_ERR(stitch__cupti_get(other, &real, &err), STITCH_E_NO_LIBRARY, "STITCH_CUPTI=/nowhere/libcupti.so");
    CHECK(!real);
    unsetenv("STITCH_CUPTI");
    stitch_context_free(other);
#endif
}

TEST(kind_names)
{
    CHECK_STR(stitch_trace_kind_name(STITCH_TRACE_KERNEL), "kernel");
    CHECK_STR(stitch_trace_kind_name(STITCH_TRACE_GRAPH_LAUNCH), "graph_launch");
    CHECK_STR(stitch_trace_kind_name(-1), "unknown");
    stitch_trace_options o;
    CHECK_INT(stitch_trace_options_init(&o, sizeof(o)), STITCH_OK);
    CHECK_INT(o.struct_size, sizeof(o));
}

TEST_MAIN(RUN(graphs_are_remembered), RUN(records_and_results), RUN(struct_sizes), RUN(flags_leave_kinds_out),
          RUN(cupti_goes_with_a_trace), RUN(another_tool_holds_cupti), RUN(a_cupti_that_needs_a_driver),
          RUN(one_trace_a_process), RUN(versions), RUN(every_error_in_every_function), RUN(advice),
          RUN(a_kind_that_is_not_there), RUN(odd_records), RUN(buffers_of_odd_sizes), RUN(dropped_records),
          RUN(buffers_that_come_late_or_are_not_ours), RUN(memory_runs_out_for_buffers), RUN(threads_share_a_trace),
          RUN(threads_race_for_a_trace), RUN(buffers_come_back_while_traces_come_and_go), RUN(no_memory),
          RUN(a_thousand_traces_leak_nothing), RUN(the_real_library_answers), RUN(no_library), RUN(kind_names))
