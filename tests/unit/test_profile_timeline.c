/* SPDX-License-Identifier: MIT
 *
 * What a timeline says, on records made by hand: order, unions, gaps and their causes, tables, steps, output.
 */
#include "base/base.h"
#include "check.h"
#include "profile/profile.h"

static stitch_error *err;
static stitch__timeline t;
static stitch__analysis a;

static void start(void)
{
    stitch__analysis_free(&a);
    stitch__timeline_free(&t);
    stitch__timeline_init(&t, NULL);
    t.kinds = ~0u;
    t.length = 1000000;
}

static stitch__event *last(void)
{
    return &t.events[t.count - 1];
}

static stitch__event *add(int kind, const char *name, int64_t from, int64_t to)
{
    stitch__event e = {.start = from, .end = to, .calls = 1, .step = -1, .timed = true};
    e.kind = (uint8_t)kind;
    CHECK_INT(stitch__timeline_name(&t, name, kind == STITCH_TRACE_KERNEL, &e.name), STITCH_OK);
    if (kind == STITCH_TRACE_COPY)
        e.detail = 1;
    if (kind == STITCH_TRACE_FILL)
        e.detail = STITCH__TRACE_DIRECTIONS - 1;
    stitch__timeline_add(&t, &e);
    return last();
}

static stitch__event *kernel(const char *name, int64_t from, int64_t to)
{
    stitch__event *e = add(STITCH_TRACE_KERNEL, name, from, to);
    for (int i = 0; i < 3; i++)
        e->grid[i] = e->block[i] = 1;
    e->grid[0] = 64;
    e->block[0] = 256;
    e->registers = 32;
    e->stream = 7;
    return e;
}

static void analyse(void)
{
    CHECK_INT(stitch__timeline_finish(&t), STITCH_OK);
    CHECK_INT(stitch__analyse(&t, &a), STITCH_OK);
}

static char *text_of(size_t max)
{
    static char text[70000];
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__trace_write_text(&a, max, &b);
    CHECK(!b.failed && b.len < sizeof(text));
    memcpy(text, b.data ? b.data : "", b.len + (b.data != NULL));
    if (!b.data)
        text[0] = '\0';
    stitch__buf_free(&b);
    return text;
}

/* ---- times ---- */

TEST(nothing)
{
    start();
    analyse();
    CHECK_INT(a.summary.records, 0);
    CHECK_NEAR(a.summary.busy_us, 0, 0);
    CHECK_NEAR(a.summary.idle_share, 0, 0);
    CHECK_INT(a.kernel_count, 0);
    CHECK_INT(a.gap_count, 0);
    CHECK_STR(text_of(0), "No GPU work was recorded.\n");
}

TEST(unions)
{
    start();
    kernel("b", 3000, 5000); /* overlaps a, and lies around c */
    kernel("a", 1000, 4000);
    kernel("c", 3500, 3600);
    kernel("d", 5000, 6000); /* touches */
    kernel("e", 9000, 10000);
    analyse();
    CHECK_NEAR(a.summary.busy_us, 6, 1e-9);
    CHECK_NEAR(a.summary.span_us, 9, 1e-9);
    CHECK_NEAR(a.summary.idle_us, 3, 1e-9);
    CHECK_NEAR(a.summary.idle_share, 1.0 / 3, 1e-9);
    CHECK_NEAR(a.summary.lead_us, 1, 1e-9);
    CHECK_INT(a.summary.gaps, 1);
    CHECK_INT(a.summary.short_gaps, 1);
    CHECK_NEAR(a.summary.short_gap_us, 3, 1e-9);
    CHECK_NEAR(a.summary.longest_gap_us, 3, 1e-9);
    CHECK_INT(a.gap_count, 1);
    CHECK_STR(a.gaps[0].before, "d");
    CHECK_STR(a.gaps[0].after, "e");
    CHECK_STR(t.names[t.events[0].name].text, "a");
    CHECK_STR(t.names[t.events[1].name].text, "b");
}

TEST(many_random_unions_match_a_raster)
{
    enum { CELLS = 4000, EVENTS = 300 };
    static bool kernels[CELLS], copies[CELLS];
    uint32_t seed = 1;
    for (int round = 0; round < 20; round++) {
        start();
        memset(kernels, 0, sizeof(kernels));
        memset(copies, 0, sizeof(copies));
        int first = CELLS, end = 0;
        for (int i = 0; i < EVENTS; i++) {
            seed = seed * 1664525u + 1013904223u;
            int from = (int)(seed >> 8) % (CELLS - 40), len = (int)(seed >> 4) % (round < 10 ? 12 : 40);
            bool copy = (seed >> 30 & 1) != 0;
            if (copy)
                add(STITCH_TRACE_COPY, "HtoD", from, from + len);
            else
                kernel("k", from, from + len);
            for (int c = from; c < from + len; c++)
                (copy ? copies : kernels)[c] = true;
            if (len) {
                first = from < first ? from : first;
                end = from + len > end ? from + len : end;
            }
        }
        int busy = 0, both = 0, k = 0;
        for (int c = 0; c < CELLS; c++) {
            busy += kernels[c] || copies[c];
            both += kernels[c] && copies[c];
            k += kernels[c];
        }
        analyse();
        CHECK_NEAR(a.summary.busy_us * 1e3, busy, 1e-6);
        CHECK_NEAR(a.summary.overlap_us * 1e3, both, 1e-6);
        CHECK_NEAR(a.summary.kernel_us * 1e3, k, 1e-6);
        CHECK_NEAR(a.summary.span_us * 1e3, end - first, 1e-6);
        CHECK_NEAR(a.summary.idle_us * 1e3, end - first - busy, 1e-6);
        CHECK_INT(a.summary.kernels + a.summary.copies, EVENTS);
    }
}

/* ---- why the device is idle ---- */

TEST(causes_of_idle_time)
{
    start();
    kernel("a", 0, 10000);
    kernel("b", 110000, 120000); /* 100 us: 60 in none, 30 in cuMemAlloc, 10 waiting */
    kernel("c", 420000, 430000); /* 300 us: all of it in cuStreamSynchronize */
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 50000, 80000)->thread = 1;
    add(STITCH_TRACE_SYNC, "stream", 100000, 115000);
    add(STITCH_TRACE_DRIVER, "cuStreamSynchronize", 120000, 440000)->thread = 2;
    add(STITCH_TRACE_GRAPH_LAUNCH, "cuGraphLaunch", 440000, 441000)->thread = 2;
    analyse();
    CHECK_NEAR(a.summary.idle_us, 400, 1e-9);
    CHECK_NEAR(a.summary.idle_host_us, 60, 1e-9);
    CHECK_NEAR(a.summary.idle_call_us, 30, 1e-9);
    CHECK_NEAR(a.summary.idle_sync_us, 310, 1e-9);
    CHECK_INT(a.summary.calls, 3);
    CHECK_NEAR(a.summary.call_us, 351, 1e-9);
    CHECK_INT(a.summary.syncs, 1);
    CHECK_NEAR(a.summary.sync_us, 15, 1e-9);
    CHECK_INT(a.summary.graph_launches, 1);
    CHECK_INT(a.gap_count, 2);
    CHECK_STR(a.gaps[0].cause, "sync");
    CHECK_STR(a.gaps[0].call, "cuStreamSynchronize");
    CHECK_STR(a.gaps[0].after, "c");
    CHECK_STR(a.gaps[1].cause, "host");
    CHECK_STR(a.gaps[1].call, "cuMemAlloc_v2");
    CHECK_HAS(text_of(0), "The GPU is idle for 93.0 % of 430.00 us; for 78 % of that, the host is still in a call");
    t.kinds = STITCH__TRACE_ON_DEVICE;
    stitch__analysis_free(&a);
    CHECK_INT(stitch__analyse(&t, &a), STITCH_OK);
    CHECK_INT(a.summary.has_calls, 0);
    CHECK_STR(a.gaps[0].cause, "unknown");
}

/* Once the next piece of work has been launched, its gap is the device's own, whatever the host does. */
TEST(idle_time_after_launches)
{
    start();
    for (int i = 0; i < 3; i++) { /* nodes of a graph */
        stitch__event *e = kernel("node", 10000 + i * 3000, 11000 + i * 3000);
        e->graph_node = 3 + (uint64_t)i;
        e->correlation = 77;
    }
    kernel("k", 60000, 61000)->correlation = 78;
    add(STITCH_TRACE_GRAPH_LAUNCH, "cuGraphLaunch", 5000, 6000)->correlation = 77;
    add(STITCH_TRACE_DRIVER, "cuStreamSynchronize", 6500, 19000)->correlation = 79;
    /* 43 us: 2 waiting, 1 in no call, 35 in the call that launches, which loads something first, 5 after it */
    add(STITCH_TRACE_RUNTIME, "cudaLaunchKernel", 20000, 55000)->correlation = 78;
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 54000, 54900)->correlation = 78;
    analyse();
    CHECK_NEAR(a.summary.idle_us, 47, 1e-9);
    CHECK_NEAR(a.summary.idle_sync_us, 2, 1e-9);
    CHECK_NEAR(a.summary.idle_host_us, 1, 1e-9);
    CHECK_NEAR(a.summary.idle_call_us, 35, 1e-9);
    CHECK_INT(a.gap_count, 3);
    CHECK_STR(a.gaps[0].cause, "call");
    CHECK_STR(a.gaps[0].call, "cudaLaunchKernel");
    CHECK_STR(a.gaps[1].cause, "device");
    CHECK_STR(a.gaps[1].call, "");
    CHECK_HAS(text_of(0), "9.00 us with the next work launched already");
    CHECK_HAS(text_of(0), "between node and node, what comes next has been launched already\n");
    /* Long ones: two launches ahead on streams that wait for each other. */
    start();
    for (int i = 0; i < 3; i++) {
        kernel("k", i * 40000, i * 40000 + 10000)->correlation = (uint32_t)i + 1;
        add(STITCH_TRACE_DRIVER, "cuLaunchKernel", i * 100 - 1000, i * 100 - 950)->correlation = (uint32_t)i + 1;
    }
    analyse();
    CHECK_NEAR(a.summary.idle_us, 60, 1e-9);
    CHECK_NEAR(a.summary.idle_sync_us + a.summary.idle_call_us + a.summary.idle_host_us, 0, 0);
    CHECK_HAS(text_of(0), "for 100 % of that, what comes next has been launched already: it waits for other work");
}

TEST(queries_join)
{
    start();
    kernel("a", 0, 500000);
    for (int i = 0; i < 1000; i++) {
        add(STITCH_TRACE_DRIVER, "cuStreamQuery", 1000 + i * 400, 1200 + i * 400)->thread = 5;
        if (i % 100 == 0)
            add(STITCH_TRACE_DRIVER, "cuEventQuery", 1050 + i * 400, 1060 + i * 400)->thread = 6;
    }
    add(STITCH_TRACE_DRIVER, "cuMemAlloc_v2", 500000, 501000)->thread = 5;
    add(STITCH_TRACE_DRIVER, "cuStreamQuery", 502000, 503000)->thread = 5;
    add(STITCH_TRACE_DRIVER, "cuStreamQuery", 9000000, 9000100)->thread = 5; /* too late to be the same wait */
    analyse();
    CHECK_INT(t.count, 1 + 1 + 1 + 1 + 1 + 1);
    CHECK_INT(a.summary.calls, 1000 + 10 + 3);
    CHECK_INT(t.events[1].calls, 1000);
    CHECK_INT(t.events[1].start, 1000);
    CHECK_INT(t.events[1].end, 1200 + 999 * 400);
    CHECK_INT(t.events[2].calls, 10);
}

TEST(launch_bound_chain)
{
    start();
    for (int i = 0; i < 100; i++)
        kernel(i % 2 ? "odd" : "even", i * 5000, i * 5000 + 2000);
    analyse();
    CHECK_INT(a.summary.gaps, 99);
    CHECK_INT(a.summary.short_gaps, 99);
    CHECK_NEAR(a.summary.short_gap_us, 297, 1e-6);
    CHECK_INT(a.gap_count, STITCH__TRACE_GAPS);
    CHECK_NEAR(a.kernels[0].gap_before_us + a.kernels[1].gap_before_us, 297, 1e-6);
    CHECK_HAS(text_of(0), "Launch-bound: the GPU is idle for 59.8 % of 497.00 us, in 99 gaps of 3.00 us each");
}

TEST(copies_dominate)
{
    start();
    kernel("k", 0, 10000);
    for (int i = 0; i < 4; i++) {
        stitch__event *e = add(STITCH_TRACE_COPY, "HtoD", 10000 + i * 100000, 110000 + i * 100000);
        e->bytes = 2000000;
        e->pageable = i < 3;
    }
    stitch__event *fill = add(STITCH_TRACE_FILL, "fill", 410000, 411000);
    fill->bytes = 4096;
    stitch__event *untimed = add(STITCH_TRACE_COPY, "HtoD", 0, 0);
    untimed->timed = false;
    untimed->bytes = 1000000000;
    analyse();
    CHECK_INT(a.copy_count, 2);
    CHECK_STR(a.copies[0].name, "HtoD");
    CHECK_INT(a.copies[0].count, 5);
    CHECK_INT(a.copies[0].pageable, 3);
    CHECK_INT(a.copies[0].bytes, 1008000000);
    CHECK_NEAR(a.copies[0].gb_per_s, 20, 1e-9);
    CHECK_STR(a.copies[1].name, "fill");
    CHECK_INT(a.summary.copy_bytes, 1008000000);
    CHECK_HAS(text_of(0), "Copies alone take 97.6 % of the GPU's busy time, most of it HtoD");
    CHECK_HAS(text_of(0), "at 20.0 GB/s with host memory that is not pinned.");
}

/* ---- kernels ---- */

TEST(kernel_table)
{
    start();
    t.sm = (stitch__sm){132, 2048, 32, 65536, 233472, 1024};
    kernel("_ZN1n9layernormILi256EEEvPKfPfi", 0, 3000);
    kernel("_ZN1n9layernormILi256EEEvPKfPfi", 3000, 10000)->dynamic_shared = 1024;
    kernel("gemm", 10000, 100000)->grid[0] = 1320;
    last()->registers = 168;
    kernel("gemm", 0, 0)->timed = false;
    analyse();
    CHECK_INT(a.kernel_count, 2);
    CHECK_STR(a.kernels[0].name, "gemm");
    CHECK_INT(a.kernels[0].count, 2);
    CHECK_NEAR(a.kernels[0].share, 0.9, 1e-9);
    CHECK_NEAR(a.kernels[0].mean_us, 90, 1e-9);
    CHECK_INT(a.kernels[0].varied, 1);
    CHECK_INT(a.kernels[0].grid[0], 1320);
    CHECK_NEAR(a.kernels[0].occupancy, 8.0 / 64, 1e-9); /* 168 registers: 12 warps, 1 block of 8 */
    CHECK_STR(a.kernels[0].limiter, "registers");
    CHECK_NEAR(a.kernels[0].waves, 10, 1e-9);
    CHECK_STR(a.kernels[1].name, "n::layernorm<256>");
    CHECK_STR(a.kernels[1].symbol, "_ZN1n9layernormILi256EEEvPKfPfi");
    CHECK_NEAR(a.kernels[1].total_us, 10, 1e-9);
    CHECK_NEAR(a.kernels[1].min_us, 3, 1e-9);
    CHECK_NEAR(a.kernels[1].max_us, 7, 1e-9);
    CHECK_INT(a.kernels[1].dynamic_shared, 1024);
    CHECK_NEAR(a.kernels[1].occupancy, 1, 1e-9);
    CHECK_STR(a.kernels[1].limiter, "");
    CHECK_HAS(text_of(0), "Kernel gemm takes 90.0 % of the kernel time: 2 launches, mean 90.00 us.");
}

TEST(occupancy)
{
    const stitch__sm h100 = {132, 2048, 32, 65536, 233472, 1024}, none = {0};
    stitch__event k = {.grid = {132, 1, 1}, .block = {1024, 1, 1}, .registers = 64};
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 0.5, 1e-9);
    CHECK_STR(stitch__occupancy_of(&h100, &k).limiter, "registers");
    k.registers = 32;
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 1, 1e-9);
    k.dynamic_shared = 200 * 1024;
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 0.5, 1e-9);
    CHECK_STR(stitch__occupancy_of(&h100, &k).limiter, "shared memory");
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).waves, 1, 1e-9);
    k.dynamic_shared = 0;
    k.block[0] = 32;
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 0.5, 1e-9);
    CHECK_STR(stitch__occupancy_of(&h100, &k).limiter, "blocks");
    k.block[0] = 33; /* two warps a block, half of one idle */
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 1, 1e-9);
    k.block[0] = 768; /* 24 warps: two blocks of them are 48 of 64 */
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 0.75, 1e-9);
    CHECK_STR(stitch__occupancy_of(&h100, &k).limiter, "warps");
    CHECK_NEAR(stitch__occupancy_of(&none, &k).share, 0, 0);
    k.dynamic_shared = UINT32_MAX; /* nonsense is "not known" */
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 0, 0);
    k.block[0] = 0;
    CHECK_NEAR(stitch__occupancy_of(&h100, &k).share, 0, 0);
}

/* ---- names ---- */

TEST(names)
{
    uint32_t x, y;
    char name[32];
    start();
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "k%d", i);
        CHECK_INT(stitch__timeline_name(&t, name, true, &x), STITCH_OK);
        CHECK_INT(x, i);
    }
    CHECK_INT(stitch__timeline_name(&t, "k1234", true, &x), STITCH_OK);
    CHECK_INT(x, 1234);
    CHECK_INT(stitch__timeline_name(&t, "k1234", false, &y), STITCH_OK);
    CHECK_INT(y, 5000);
    CHECK_INT(stitch__timeline_name(&t, NULL, true, &y), STITCH_OK);
    CHECK_INT(stitch__timeline_name(&t, "", true, &x), STITCH_OK);
    CHECK_INT(x, y);
}

TEST(hostile_names_are_harmless)
{
    static char longest[200000];
    json_t *root = NULL;
    stitch__buf out;
    memset(longest, 'N', sizeof(longest) - 1);
    start();
    kernel("a\"b\\c\x1b[31m\n\xff\xc3\x28</script>", 0, 1000);
    kernel(longest, 1000, 2000);
    kernel("_ZNNNNNNNNNNNNNNNNNNNNIIIIIIIIIIII", 2000, 3000);
    kernel("\xe2\x82\xac\xe2\x82\xac", 3000, 4000);
    kernel("", 4000, 5000);
    analyse();
    stitch__buf_init(&out, NULL);
    CHECK_INT(stitch__trace_write_json(&t, &out), STITCH_OK);
    CHECK_OK(stitch__json_parse(NULL, out.data, out.len, 0, "trace", &root, &err));
    json_decref(root);
    CHECK(!strstr(out.data, "\x1b"));
    CHECK(out.len < 20000);
    stitch__buf_free(&out);
    const char *text = text_of(0);
    CHECK(stitch__utf8_valid(text, strlen(text)));
    CHECK(!strchr(text, '\x1b'));
    CHECK_HAS(text, "(no name)");
    CHECK(strlen(text) < 3000);
    for (size_t i = 0; i < a.kernel_count; i++) {
        CHECK(strlen(a.kernels[i].name) < STITCH__TRACE_NAME_MAX + 64);
        CHECK(!strchr(a.kernels[i].name, '\n'));
    }
}

/* ---- output ---- */

TEST(text_keeps_its_budget)
{
    char name[64];
    start();
    t.sm = (stitch__sm){132, 2048, 32, 65536, 233472, 1024};
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "kernel_with_a_long_name_number_%d", i);
        kernel(name, i * 100000, i * 100000 + 90000 + i);
    }
    add(STITCH_TRACE_COPY, "HtoD", 20000000, 20001000)->bytes = 100;
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 0, 5000);
    analyse();
    for (size_t max = 1; max < 6000; max += 7) {
        const char *text = text_of(max);
        size_t len = strlen(text);
        CHECK(len <= max);
        CHECK(len == 0 || text[len - 1] == '\n');
    }
    CHECK_HAS(text_of(200), "Kernel kernel_with_a_long_name_number_199 takes");
    CHECK_HAS(text_of(0), "- 176 more kernels");
}

static size_t count_in(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

TEST(perfetto_json)
{
    json_t *root = NULL;
    stitch__buf out;
    start();
    t.sm = (stitch__sm){132, 2048, 32, 65536, 233472, 1024};
    kernel("a", 1000, 3000)->correlation = 11;
    kernel("b", 2000, 5000)->correlation = 12; /* overlaps in its stream: another lane */
    kernel("c", 6000, 7000)->graph = 4;
    last()->graph_node = 1ull << 40;
    last()->correlation = 11; /* means nothing: no arrow */
    last()->step = 2;
    add(STITCH_TRACE_COPY, "HtoD", 3000, 4000)->bytes = 4096;
    add(STITCH_TRACE_RUNTIME, "cudaLaunchKernel", 400, 1000)->correlation = 11; /* around the one that launches */
    last()->thread = 4000000000u;
    add(STITCH_TRACE_DRIVER, "cuLaunchKernel", 500, 900)->correlation = 11;
    last()->thread = 4000000000u;
    add(STITCH_TRACE_DRIVER, "cuStreamSynchronize", 910, 7000)->correlation = 13; /* launches nothing */
    last()->thread = 4000000000u;
    add(STITCH_TRACE_SYNC, "context", 900, 7000);
    kernel("untimed", 0, 0)->timed = false;
    analyse();
    stitch__buf_init(&out, NULL);
    CHECK_INT(stitch__trace_write_json(&t, &out), STITCH_OK);
    CHECK_OK(stitch__json_parse(NULL, out.data, out.len, 0, "trace", &root, &err));
    json_t *events = json_object_get(root, "traceEvents"), *e;
    size_t i, slices = 0;
    int inner = 0;
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph"));
        CHECK(ph && json_object_get(e, "pid") && json_object_get(e, "tid"));
        if (strcmp(ph, "s") == 0 || strcmp(ph, "f") == 0) { /* "b" was launched by no call that is here */
            CHECK_INT(json_integer_value(json_object_get(e, "id")), 1);
            CHECK_NEAR(json_number_value(json_object_get(e, "ts")), *ph == 's' ? 0.5 : 1, 1e-9);
            CHECK(*ph == 'f' || json_integer_value(json_object_get(e, "tid")) == inner);
        }
        if (strcmp(ph, "X") != 0)
            continue;
        slices++;
        CHECK(json_number_value(json_object_get(e, "dur")) >= 0);
        if (strcmp(json_string_value(json_object_get(e, "name")), "cuLaunchKernel") == 0)
            inner = (int)json_integer_value(json_object_get(e, "tid"));
        if (strcmp(json_string_value(json_object_get(e, "name")), "a") == 0) {
            CHECK_NEAR(json_number_value(json_object_get(e, "ts")), 1, 1e-9);
            CHECK_NEAR(json_number_value(json_object_get(e, "dur")), 2, 1e-9);
            CHECK_INT(json_integer_value(json_object_get(json_object_get(e, "args"), "registers")), 32);
        }
    }
    CHECK_INT(slices, 1 + 8);
    CHECK_INT(count_in(out.data, "\"ph\":\"s\""), 1);
    CHECK_INT(count_in(out.data, "\"ph\":\"f\""), 1);
    CHECK_INT(count_in(out.data, "\"name\":\"host\""), 1);
    CHECK_HAS(out.data, "\"name\":\"context 0, stream 7 (2)\"");
    CHECK_HAS(out.data, "\"name\":\"thread 4000000000\"");
    CHECK_HAS(out.data, "\"step\":2");
    json_decref(root);
    stitch__buf_free(&out);
}

static int by_track(const void *pa, const void *pb)
{
    const double *one = pa, *other = pb;
    for (int i = 0; i < 3; i++) {
        if (one[i] != other[i])
            return one[i] < other[i] ? -1 : 1;
    }
    return 0;
}

/* Slices of a track that overlap are not drawn, or in the wrong place: branches of a graph, threads that wait. */
TEST(perfetto_slices_do_not_overlap)
{
    enum { MANY = 400 };
    static double slices[3 * MANY + 200][4]; /* process, track, start, end */
    json_t *root = NULL, *e;
    stitch__buf out;
    size_t i, count = 0;

    start();
    srand(7);
    for (int k = 0; k < MANY; k++) {
        int64_t at = rand() % 20000;
        kernel("k", at, at + rand() % 3000)->stream = (uint32_t)(k % 2);
        add(STITCH_TRACE_SYNC, "stream", at, at + rand() % 3000)->thread = (uint32_t)k;
        add(STITCH_TRACE_DRIVER, "cuLaunchKernel", at, at + rand() % 90)->thread = (uint32_t)(k % 3);
    }
    for (int k = 0; k < 130; k++) /* as many as run at once */
        kernel("branch", 30000, 40000)->stream = 9;
    analyse();
    stitch__buf_init(&out, NULL);
    CHECK_INT(stitch__trace_write_json(&t, &out), STITCH_OK);
    CHECK_OK(stitch__json_parse(NULL, out.data, out.len, 0, "trace", &root, &err));
    json_array_foreach(json_object_get(root, "traceEvents"), i, e)
    {
        double ts = json_number_value(json_object_get(e, "ts"));
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0)
            continue;
        CHECK(count < STITCH__COUNT(slices));
        slices[count][0] = json_number_value(json_object_get(e, "pid"));
        slices[count][1] = json_number_value(json_object_get(e, "tid"));
        slices[count][2] = ts;
        slices[count++][3] = ts + json_number_value(json_object_get(e, "dur"));
    }
    CHECK(count > 3 * MANY / 2);
    qsort(slices, count, sizeof(*slices), by_track);
    for (i = 1; i < count; i++)
        if (slices[i][0] == slices[i - 1][0] && slices[i][1] == slices[i - 1][1])
            CHECK(slices[i][2] > slices[i - 1][3] - 1e-6);
    json_decref(root);
    stitch__buf_free(&out);
}

TEST(limit_of_records)
{
    start();
    t.max_events = 10;
    stitch__event e = {.timed = true, .end = 1, .step = -1, .calls = 1};
    CHECK_INT(stitch__timeline_name(&t, "k", true, &e.name), STITCH_OK);
    for (int i = 0; i < 25; i++)
        stitch__timeline_add(&t, &e);
    CHECK_INT(t.count, 10);
    CHECK_INT(t.dropped, 15);
    analyse();
    CHECK_HAS(text_of(0), "15 records are missing: counts and times are too low.");
}

/* ---- steps of a program ---- */

static const stitch__expected three[] = {
    {STITCH_TRACE_KERNEL, 0, "first"}, {STITCH_TRACE_FILL, 1, NULL}, {STITCH_TRACE_KERNEL, 2, "second"}};

static uint64_t renamed;

static int attribute(const stitch__expected *steps, size_t count, uint64_t runs)
{
    CHECK_INT(stitch__timeline_finish(&t), STITCH_OK);
    return stitch__attribute(&t, steps, count, runs, &renamed);
}

TEST(steps_by_order)
{
    start();
    for (int r = 0; r < 3; r++) {
        kernel(r == 1 ? "of_an_unloaded_module" : "first", r * 1000, r * 1000 + 100);
        add(STITCH_TRACE_FILL, "fill", r * 1000 + 200, r * 1000 + 300);
        kernel("second", r * 1000 + 400, r * 1000 + 500);
    }
    CHECK_INT(attribute(three, 3, 3), STITCH_OK);
    CHECK_INT(renamed, 1);
    for (size_t i = 0; i < t.count; i++)
        CHECK_INT(t.events[i].step, i % 3);
    CHECK_INT(stitch__analyse(&t, &a), STITCH_OK);
    CHECK_INT(a.kernel_count, 2);
    CHECK_INT(a.kernels[0].count, 3);
    CHECK_INT(a.kernels[0].step + a.kernels[1].step, 2);
}

TEST(steps_that_do_not_fit)
{
    start();
    kernel("first", 0, 100);
    kernel("second", 200, 300);
    CHECK_INT(attribute(three, 3, 1), STITCH_E_NOT_FOUND);
    CHECK_INT(t.events[0].step, -1);
    CHECK_INT(attribute(three, 3, 0), STITCH_E_NOT_FOUND);
    CHECK_INT(attribute(three, 0, 1), STITCH_E_NOT_FOUND);
    add(STITCH_TRACE_FILL, "fill", 100, 150);
    t.dropped = 1;
    CHECK_INT(attribute(three, 3, 1), STITCH_E_NOT_FOUND);
    t.dropped = 0;
    CHECK_INT(attribute(three, 3, 1), STITCH_OK);
    CHECK_INT(attribute(three, 3, 2), STITCH_E_NOT_FOUND);
}

TEST(steps_out_of_order_go_by_name)
{
    static const stitch__expected dag[] = {
        {STITCH_TRACE_KERNEL, 0, "left"}, {STITCH_TRACE_KERNEL, 1, "right"}, {STITCH_TRACE_KERNEL, 2, "join"}};
    start();
    for (int r = 0; r < 2; r++) {
        kernel(r ? "left" : "right", r * 1000, r * 1000 + 100);
        kernel(r ? "right" : "left", r * 1000 + 50, r * 1000 + 150);
        kernel("join", r * 1000 + 200, r * 1000 + 300);
    }
    CHECK_INT(attribute(dag, 3, 2), STITCH_OK);
    CHECK_INT(renamed, 0);
    CHECK_INT(t.events[0].step, 1);
    CHECK_INT(t.events[1].step, 0);
    CHECK_INT(t.events[3].step, 0);
    CHECK_INT(t.events[5].step, 2);
}

TEST(steps_with_products)
{
    static const stitch__expected plan[] = {{STITCH_TRACE_KERNEL, 0, "pack"},
                                            {STITCH__EXPECTED_PRODUCT, 1, NULL},
                                            {STITCH__EXPECTED_PRODUCT, 2, NULL},
                                            {STITCH_TRACE_KERNEL, 3, "act"},
                                            {STITCH__EXPECTED_PRODUCT, 4, NULL}};
    static const char *const run[] = {"pack", "cutlass_a", "splitk_a", "cutlass_b", "splitk_b", "act", "cutlass_c"};
    static const int want[] = {0, 1, 1, 2, 2, 3, 4};
    start();
    for (int r = 0; r < 4; r++) {
        for (int i = 0; i < 7; i++)
            kernel(run[i], r * 10000 + i * 1000, r * 10000 + i * 1000 + 900);
    }
    CHECK_INT(attribute(plan, 5, 4), STITCH_OK);
    for (size_t i = 0; i < t.count; i++)
        CHECK_INT(t.events[i].step, want[i % 7]);
    CHECK_INT(renamed, 0);
}

TEST_MAIN(RUN(nothing), RUN(unions), RUN(many_random_unions_match_a_raster), RUN(causes_of_idle_time),
          RUN(idle_time_after_launches), RUN(queries_join), RUN(launch_bound_chain), RUN(copies_dominate),
          RUN(kernel_table), RUN(occupancy), RUN(names), RUN(hostile_names_are_harmless), RUN(text_keeps_its_budget),
          RUN(perfetto_json), RUN(perfetto_slices_do_not_overlap), RUN(limit_of_records), RUN(steps_by_order),
          RUN(steps_that_do_not_fit), RUN(steps_out_of_order_go_by_name), RUN(steps_with_products))
