/* SPDX-License-Identifier: MIT
 *
 * Facts: strings, the table of metrics, JSON both ways, documents that are wrong, every failing allocation.
 */
#include "check.h"
#include "meter.h"
#include "facts_check.h"

static stitch_error *err;

static stitch__facts *new_facts(void)
{
    stitch__facts *f;
    CHECK_OK(stitch__facts_new(NULL, &f, &err));
    return f;
}

/* Every member has a value of its own; nothing is out of bounds. */
static stitch__facts *full_facts(void)
{
    stitch__facts *f = new_facts();
    double n = 1;
    f->source = "cupti";
    f->device = "NVIDIA H200";
    f->arch = "sm_90a";
    f->multiprocessors = 132;
    f->library_steps = true;
    f->precision = 2;
    f->ceilings = (stitch__ceilings){true, 4100, 60, 400, 800, 810, 1600, 2.5, 1.5};
    for (double *d = &f->wall_us; d <= &f->host_copy_us; d++)
        *d = 100.125 + n++;
    f->slow_call = "cuMemAlloc_v2";
    f->copy_bytes = 11;
    f->host_copy_bytes = 12;
    f->launches = 13;
    f->copies = 14;
    f->fills = 15;
    f->pageable_copies = 16;
    f->graph = true;
    f->kernels_left_out = 17;
    f->no_timeline = "no timeline";
    f->no_counters = "no counters";
    f->no_samples = "no samples";
    f->extra_count = 2;
    f->extra_names[0] = "sm__cycles_elapsed.max";
    f->extra_names[1] = "sm__warps_launched.sum";
    f->steps = stitch__calloc(NULL, 2, sizeof(*f->steps));
    CHECK(f->steps != NULL);
    f->step_count = 2;
    f->steps[0] = (stitch__step_fact){"run[0]", "kernel", "ln<256>", 1, "h", 4096, 8192, false};
    f->steps[1] = (stitch__step_fact){"run[1].repeat.steps[0]", "copy", "", -1, "", 0, 0, true};
    for (int i = 0; i < 2; i++) {
        stitch__kernel_fact *k = stitch__facts_add_kernel(f);
        CHECK(k != NULL);
        if (i)
            break; /* the second has nothing */
        k->name = "ln<256>";
        k->symbol = "_Z2lnILi256EEvPKf";
        k->step = 1;
        k->library = true;
        k->launches = 3;
        k->time_us = 1.1;
        k->share = 0.7;
        k->gap_us = 1.3;
        for (uint32_t d = 0; d < 3; d++) {
            k->grid[d] = 20 + d;
            k->block[d] = 30 + d;
        }
        k->registers = 40;
        k->static_shared = 41;
        k->dynamic_shared = 42;
        k->local = 43;
        k->occupancy = 0.625;
        k->waves = 2.25;
        k->limiter = "registers";
        k->counted = 0.5;
        for (int m = 0; m < STITCH__METRICS; m++)
            k->metric[m] = m % 5 == 4 ? NAN : m / 3.0; /* the first is a 0 that is known */
        k->extra[1] = 6;
        k->samples = 44;
        k->line_count = 1;
        k->lines[0] = (stitch__line_fact){
            .file = "program.cu", .line = 12, .text = "y[i] = x[\"\\\"];", .samples = 50, .reason_count = 2};
        k->lines[0].reasons[0] = (stitch__reason){"long_scoreboard", 30};
        k->lines[0].reasons[1] = (stitch__reason){"barrier", 20};
        for (uint64_t *c = &k->lines[0].instructions, v = 60; c <= &k->lines[0].ideal_wavefronts; c++, v++)
            *c = v;
        k->lines[0].ideal_sectors = 1;
        k->lines[0].ideal_wavefronts = 2;
    }
    return f;
}

static char *written(const stitch__facts *f)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    CHECK_INT(stitch__facts_write(f, &b), STITCH_OK);
    return stitch__buf_take(&b, NULL);
}

static stitch__facts *read_text(const char *text)
{
    stitch__facts *f;
    CHECK_OK(stitch__facts_read(NULL, text, strlen(text), &f, &err));
    CHECK(facts_ok(f));
    return f;
}

static void check_same_kernel(const stitch__kernel_fact *a, const stitch__kernel_fact *b)
{
    CHECK_STR(a->name, b->name);
    CHECK_STR(a->symbol, b->symbol);
    CHECK_STR(a->limiter, b->limiter);
    CHECK_INT(a->step, b->step);
    CHECK_INT(a->library, b->library);
    CHECK(a->launches == b->launches && a->time_us == b->time_us && a->share == b->share && a->gap_us == b->gap_us);
    CHECK(memcmp(a->grid, b->grid, sizeof(a->grid)) == 0 && memcmp(a->block, b->block, sizeof(a->block)) == 0);
    CHECK(a->registers == b->registers && a->static_shared == b->static_shared && a->local == b->local);
    CHECK(a->dynamic_shared == b->dynamic_shared && a->occupancy == b->occupancy && a->waves == b->waves);
    CHECK(a->counted == b->counted && a->samples == b->samples && a->line_count == b->line_count);
    for (int i = 0; i < STITCH__METRICS; i++)
        CHECK(isnan(a->metric[i]) ? isnan(b->metric[i]) : a->metric[i] == b->metric[i]);
    for (int i = 0; i < STITCH__FACTS_EXTRA; i++)
        CHECK(isnan(a->extra[i]) ? isnan(b->extra[i]) : a->extra[i] == b->extra[i]);
    for (size_t i = 0; i < a->line_count; i++) {
        const stitch__line_fact *x = &a->lines[i], *y = &b->lines[i];
        CHECK_STR(x->file, y->file);
        CHECK_STR(x->text, y->text);
        CHECK(x->line == y->line && x->samples == y->samples && x->reason_count == y->reason_count);
        for (size_t r = 0; r < x->reason_count; r++) {
            CHECK_STR(x->reasons[r].name, y->reasons[r].name);
            CHECK(x->reasons[r].samples == y->reasons[r].samples);
        }
        CHECK(x->instructions == y->instructions && x->requests == y->requests && x->sectors == y->sectors);
        CHECK(x->ideal_sectors == y->ideal_sectors && x->wavefronts == y->wavefronts);
        CHECK(x->ideal_wavefronts == y->ideal_wavefronts);
    }
}

static void check_same(const stitch__facts *a, const stitch__facts *b)
{
    CHECK_STR(a->source, b->source);
    CHECK_STR(a->device, b->device);
    CHECK_STR(a->arch, b->arch);
    CHECK_STR(a->no_timeline, b->no_timeline);
    CHECK_STR(a->no_counters, b->no_counters);
    CHECK_STR(a->no_samples, b->no_samples);
    CHECK_INT(a->multiprocessors, b->multiprocessors);
    CHECK_INT(a->library_steps, b->library_steps);
    CHECK_INT(a->precision, b->precision);
    CHECK_INT(a->ceilings.measured, b->ceilings.measured);
    for (size_t i = 0; i < 8; i++)
        CHECK((&a->ceilings.dram_gb_s)[i] == (&b->ceilings.dram_gb_s)[i]);
    for (size_t i = 0; i < 7; i++)
        CHECK((&a->wall_us)[i] == (&b->wall_us)[i]);
    for (size_t i = 0; i < 6; i++)
        CHECK((&a->copy_bytes)[i] == (&b->copy_bytes)[i]);
    CHECK_INT(a->graph, b->graph);
    CHECK_INT(a->kernels_left_out, b->kernels_left_out);
    CHECK_INT(a->extra_count, b->extra_count);
    for (size_t i = 0; i < a->extra_count; i++)
        CHECK_STR(a->extra_names[i], b->extra_names[i]);
    CHECK_INT(a->step_count, b->step_count);
    for (size_t i = 0; i < a->step_count; i++) {
        const stitch__step_fact *x = &a->steps[i], *y = &b->steps[i];
        CHECK_STR(x->place, y->place);
        CHECK_STR(x->kind, y->kind);
        CHECK_STR(x->name, y->name);
        CHECK_STR(x->between, y->between);
        CHECK(x->next == y->next && x->between_bytes == y->between_bytes && x->bytes == y->bytes &&
              x->moves_only == y->moves_only);
    }
    CHECK_INT(a->kernel_count, b->kernel_count);
    for (size_t i = 0; i < a->kernel_count; i++)
        check_same_kernel(&a->kernels[i], &b->kernels[i]);
}

/* ---- what every use of them relies on ---- */

TEST(metrics_have_keys)
{
    for (int i = 0; i < STITCH__METRICS; i++) {
        const stitch__metric_info *m = stitch__metric_info_of(i);
        CHECK(m && *m->key && *m->unit && m->set >= STITCH__METRIC_CHEAP && m->set <= STITCH__METRIC_COUNTED);
        CHECK((m->cupti == NULL) == (m->set == STITCH__METRIC_COUNTED));
        CHECK_INT(stitch__metric_find(m->key), i); /* so no two are the same */
    }
    CHECK_STR(stitch__metric_info_of(STITCH__METRIC_GLOBAL_SECTORS)->key, "global_sectors");
    CHECK(!stitch__metric_info_of(-1) && !stitch__metric_info_of(STITCH__METRICS));
    CHECK_INT(stitch__metric_find("nothing"), -1);
    CHECK_INT(stitch__metric_find(NULL), -1);
}

TEST(new_facts_know_nothing)
{
    stitch__facts *f = new_facts();
    CHECK(facts_ok(f));
    CHECK_STR(f->source, "");
    CHECK_INT(f->precision, -1);
    stitch__kernel_fact *k = stitch__facts_add_kernel(f);
    CHECK(k && isnan(k->metric[0]) && isnan(k->extra[STITCH__FACTS_EXTRA - 1]));
    CHECK_INT(k->step, -1);
    CHECK(facts_ok(f));
    for (int i = 1; i < STITCH__FACTS_KERNELS; i++)
        CHECK(stitch__facts_add_kernel(f) != NULL);
    CHECK(!stitch__facts_add_kernel(f) && !stitch__facts_add_kernel(f));
    CHECK_INT(f->kernel_count, STITCH__FACTS_KERNELS);
    CHECK_INT(f->kernels_left_out, 2);
    stitch__facts_free(f);
    stitch__facts_free(NULL);
}

TEST(strings_are_cleaned_and_cut)
{
    stitch__facts *f = new_facts();
    char text[STITCH__FACTS_TEXT + 10];
    CHECK_STR(stitch__facts_text(f, NULL), "");
    CHECK_STR(stitch__facts_text(f, ""), "");
    CHECK_STR(stitch__facts_text(f, "x\xc3\xa4y"), "x\xc3\xa4y");
    CHECK_STR(stitch__facts_text(f, "a\nb\tc\rd\x1b[2Je\xff\xc2\x9b f"), "a b c?d?[2Je?? f");
    for (size_t shift = 0; shift < 3; shift++) { /* a character of three bytes at every place of the cut */
        memset(text, 'a', sizeof(text));
        text[sizeof(text) - 1] = 0;
        for (size_t i = shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        const char *cut = stitch__facts_text(f, text);
        CHECK(facts_text_ok(cut) && strlen(cut) > STITCH__FACTS_TEXT - 6);
        CHECK(!strchr(cut, '?') && strcmp(cut + strlen(cut) - 3, "...") == 0);
    }
    memset(text, 'b', sizeof(text));
    text[STITCH__FACTS_TEXT] = 0;
    CHECK_STR(stitch__facts_text(f, text), text);
    memset(text, 0x80, sizeof(text)); /* no character begins anywhere */
    text[sizeof(text) - 1] = 0;
    CHECK(facts_text_ok(stitch__facts_text(f, text)));
    stitch__facts_free(f);
}

/* ---- JSON ---- */

TEST(what_was_written_is_read)
{
    stitch__facts *f = full_facts();
    CHECK(facts_ok(f));
    char *text = written(f), *again;
    stitch__facts *g = read_text(text);
    check_same(f, g);
    again = written(g);
    CHECK_STR(again, text);
    stitch_free(again);
    stitch_free(text);
    stitch__facts_free(f);
    stitch__facts_free(g);

    f = new_facts();
    text = written(f);
    g = read_text(text);
    check_same(f, g);
    stitch_free(text);
    stitch__facts_free(f);
    stitch__facts_free(g);
}

TEST(what_cannot_be_written_is_left_out)
{
    stitch__facts *f = full_facts();
    f->device = "bad \xff UTF-8";
    f->wall_us = INFINITY;
    f->busy_us = -3;
    f->kernels[0].time_us = NAN;
    f->kernels[0].metric[0] = INFINITY;
    f->launches = UINT64_MAX;
    char *text = written(f);
    stitch__facts *g = read_text(text);
    CHECK_STR(g->device, "bad ? UTF-8");
    CHECK_NEAR(g->wall_us, 0, 0);
    CHECK_NEAR(g->busy_us, 0, 0);
    CHECK_NEAR(g->kernels[0].time_us, 0, 0);
    CHECK(isnan(g->kernels[0].metric[0]));
    CHECK_INT(g->launches, 1000000000000000);
    stitch_free(text);
    stitch__facts_free(f);
    stitch__facts_free(g);
}

TEST(numbers_stay_in_bounds)
{
    stitch__facts *f = read_text(
        "{\"stitch_facts\": 1, \"multiprocessors\": 1e300, \"precision\": \"double\", \"news\": [1],"
        "\"run\": {\"busy_us\": -1, \"idle_us\": 1e300, \"launches\": -5, \"copies\": 9223372036854775807, \"fills\": "
        "2.9},"
        "\"steps\": [{\"place\": \"run[0]\", \"next\": 0}, {\"next\": 2}, {\"next\": -7}, {\"next\": 1.0}, {\"next\": "
        "3}],"
        "\"kernels\": [{\"share\": 7, \"occupancy\": -0.5, \"step\": 5, \"grid\": [1e10, 1e10, 1e10], \"block\": [-1, "
        "2048, 65, 9], \"registers\": 1000, \"local\": 4294967296, \"metrics\": {\"time_ns\": -1, \"dram_pct\": 0, "
        "\"inst\": 1e300, \"l1_hit_pct\": \"5\", \"more\": 3}, \"extra\": [1, 2], \"lines\": [{\"line\": 4294967296, "
        "\"sectors\": 5, \"ideal_sectors\": 9}]}, {\"step\": 4}]}");
    const stitch__kernel_fact *k = &f->kernels[0];
    CHECK_INT(f->multiprocessors, 65535);
    CHECK_INT(f->precision, -1);
    CHECK_NEAR(f->busy_us, 0, 0);
    CHECK_NEAR(f->idle_us, 1e12, 0);
    CHECK_INT(f->launches, 0);
    CHECK_INT(f->copies, 1000000000000000);
    CHECK_INT(f->fills, 2);
    CHECK_INT(f->step_count, 5);
    CHECK_INT(f->steps[0].next, -1); /* itself */
    CHECK_INT(f->steps[1].next, 2);
    CHECK_INT(f->steps[2].next, -1);
    CHECK_INT(f->steps[3].next, -1); /* no integer */
    CHECK_INT(f->steps[4].next, 3);
    CHECK_INT(f->kernel_count, 2);
    CHECK_NEAR(k->share, 1, 0);
    CHECK_NEAR(k->occupancy, 0, 0);
    CHECK_INT(k->step, -1);
    CHECK_INT(f->kernels[1].step, 4);
    CHECK_INT(k->grid[0], INT32_MAX);
    CHECK_INT(k->grid[2], 65535);
    CHECK_INT(k->block[0], 0);
    CHECK_INT(k->block[1], 1024);
    CHECK_INT(k->block[2], 64);
    CHECK_INT(k->registers, 255);
    CHECK_INT(k->local, 1 << 28);
    CHECK(isnan(k->metric[STITCH__METRIC_TIME]) && k->metric[STITCH__METRIC_DRAM_SHARE] == 0);
    CHECK(k->metric[STITCH__METRIC_INST] == 1e15 && isnan(k->metric[STITCH__METRIC_L1_HIT]));
    CHECK(isnan(k->extra[0])); /* it has no name */
    CHECK_INT(k->lines[0].line, INT32_MAX);
    CHECK_INT(k->lines[0].ideal_sectors, 5);
    stitch__facts_free(f);
}

TEST(lists_end_at_their_limits)
{
    static const char *const lists[] = {"\"kernels\":[", "\"steps\":[", "\"extra_names\":["};
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, "{\"stitch_facts\":1");
    for (size_t i = 0; i < STITCH__COUNT(lists); i++) {
        stitch__buf_printf(&b, ",%s", lists[i]);
        for (int n = 0; n < 3000; n++)
            stitch__buf_printf(&b, "%s%s", n ? "," : "", i == 2 ? "\"m\"" : "{\"step\":511,\"next\":512}");
        stitch__buf_putc(&b, ']');
    }
    stitch__buf_puts(&b, ",\"kernels_left_out\":3}");
    stitch__facts *f = read_text(b.data);
    CHECK_INT(f->kernel_count, STITCH__FACTS_KERNELS);
    CHECK_INT(f->kernels_left_out, 3 + 3000 - STITCH__FACTS_KERNELS);
    CHECK_INT(f->step_count, STITCH__FACTS_STEPS);
    CHECK_INT(f->extra_count, STITCH__FACTS_EXTRA);
    CHECK_INT(f->kernels[0].step, 511);
    CHECK_INT(f->steps[0].next, -1);
    stitch__facts_free(f);
    stitch__buf_truncate(&b, 0);
    stitch__buf_puts(&b, "{\"stitch_facts\":1,\"kernels\":[{\"lines\":[");
    for (int n = 0; n < 100; n++) {
        stitch__buf_printf(&b, "%s{\"line\":%d,\"reasons\":[", n ? "," : "", n + 1);
        for (int r = 0; r < 20; r++)
            stitch__buf_printf(&b, "%s{\"name\":\"r%d\"}", r ? "," : "", r);
        stitch__buf_puts(&b, "]}");
    }
    stitch__buf_puts(&b, "]}]}");
    f = read_text(b.data);
    CHECK_INT(f->kernels[0].line_count, STITCH__FACTS_LINES);
    CHECK_INT(f->kernels[0].lines[23].line, 24);
    CHECK_INT(f->kernels[0].lines[23].reason_count, STITCH__FACTS_REASONS);
    CHECK_STR(f->kernels[0].lines[23].reasons[5].name, "r5");
    stitch__facts_free(f);
    stitch__buf_free(&b);
}

TEST(strings_of_strangers)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, "{\"stitch_facts\":1,\"device\":\"a\\nb\\u001b[31m\\u0085\",\"kernels\":[{\"name\":\"");
    for (int i = 0; i < 100000; i++)
        stitch__buf_puts(&b, "x");
    stitch__buf_puts(&b, "\"}]}");
    stitch__facts *f = read_text(b.data);
    CHECK_STR(f->device, "a b?[31m?");
    CHECK_INT(strlen(f->kernels[0].name), STITCH__FACTS_TEXT);
    stitch__facts_free(f);
    stitch__buf_free(&b);
}

TEST(what_is_no_such_object)
{
    static const char *const texts[] = {"",
                                        "nonsense",
                                        "[]",
                                        "1",
                                        "\"stitch_facts\"",
                                        "{}",
                                        "{\"stitch_facts\": 2}",
                                        "{\"stitch_facts\": \"1\"}",
                                        "{\"stitch_facts\": 1.0}",
                                        "{\"stitch_facts\": 1",
                                        "{\"stitch_facts\": 1} {}",
                                        "{\"stitch_facts\": 1, \"stitch_facts\": 1}",
                                        "{\"stitch_facts\": 1, \"device\": \"\\u0000\"}",
                                        "{\"stitch_facts\": 1, \"device\": \"\xff\"}",
                                        "{\"stitch_facts\": 1, \"run\": {\"busy_us\": NaN}}",
                                        "{\"stitch_facts\": 1, \"run\": {\"busy_us\": 1e999}}"};
    stitch__facts *f;
    for (size_t i = 0; i < STITCH__COUNT(texts); i++) {
        CHECK_ERR(stitch__facts_read(NULL, texts[i], strlen(texts[i]), &f, &err), STITCH_E_FORMAT, "the facts");
        CHECK(f == NULL);
    }
    size_t len = STITCH__FACTS_JSON + 1;
    char *large = stitch__alloc(NULL, len);
    CHECK(large != NULL);
    memset(large, ' ', len);
    CHECK_ERR(stitch__facts_read(NULL, large, len, &f, &err), STITCH_E_LIMIT, "the facts");
    memset(large, '[', len);
    CHECK_ERR(stitch__facts_read(NULL, large, len - 1, &f, &err), STITCH_E_LIMIT, "nested");
    stitch_free(large);
}

/* ---- every member missing, and of every other type ---- */

static size_t variants; /* documents tried */

static void try_document(const json_t *root)
{
    char *text = stitch__json_dump(NULL, root, 0);
    CHECK(text != NULL);
    stitch__facts *f = read_text(text), *g;
    char *again = written(f);
    g = read_text(again);
    check_same(f, g);
    stitch__facts_free(f);
    stitch__facts_free(g);
    stitch_free(again);
    stitch_free(text);
    variants++;
}

static json_t *wrong_value(int i)
{
    switch (i) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_string("text");
    case 3: return json_integer(INT64_MIN);
    case 4: return json_integer(INT64_MAX);
    case 5: return json_real(-1e308);
    case 6: return json_real(1e308);
    case 7: return json_array();
    case 8: return json_object();
    case 9: return json_pack("[[[{s:i}]],{},i]", "a", 1, 2);
    default: return json_pack("{s:{s:[i]},s:s}", "lines", "kernels", 1, "name", "x");
    }
}

enum { WRONG_VALUES = 11 };

static void try_members(const json_t *root, json_t *value);

static void try_member(const json_t *root, json_t *object, const char *key)
{
    json_t *old = json_incref(json_object_get(object, key));
    json_object_del(object, key);
    try_document(root);
    for (int i = 0; i < WRONG_VALUES; i++) {
        json_object_set_new(object, key, wrong_value(i));
        try_document(root);
    }
    json_object_set_new(object, key, old);
    try_members(root, old);
}

static void try_members(const json_t *root, json_t *value)
{
    char keys[80][40];
    size_t count = 0;
    const char *key;
    json_t *member;
    json_object_foreach(value, key, member)
    {
        CHECK(count < STITCH__COUNT(keys) && strlen(key) < sizeof(keys[0]));
        snprintf(keys[count++], sizeof(keys[0]), "%s", key);
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i], "stitch_facts") != 0)
            try_member(root, value, keys[i]);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *old = json_incref(json_array_get(value, i));
        for (int k = 0; k < WRONG_VALUES; k++) {
            json_array_set_new(value, i, wrong_value(k));
            try_document(root);
        }
        json_array_set_new(value, i, old);
        try_members(root, old);
    }
}

TEST(every_member_missing_or_of_another_type)
{
    stitch__facts *f = full_facts();
    char *text = written(f);
    json_t *root;
    CHECK_OK(stitch__json_parse(NULL, text, strlen(text), 0, "test", &root, &err));
    variants = 0;
    try_members(root, root);
    CHECK(variants > 1500);
    char *after = stitch__json_dump(NULL, root, 0);
    stitch__facts *g = read_text(after);
    check_same(f, g); /* everything was put back */
    stitch__facts_free(g);
    stitch_free(after);
    json_decref(root);
    stitch_free(text);
    stitch__facts_free(f);
}

TEST(every_prefix_is_refused)
{
    stitch__facts *f = full_facts(), *g;
    char *text = written(f);
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        char *part = malloc(i + 1); /* without anything behind it */
        memcpy(part, text, i);
        CHECK_ERR(stitch__facts_read(NULL, part, i, &g, &err), STITCH_E_FORMAT, "the facts");
        free(part);
    }
    stitch_free(text);
    stitch__facts_free(f);
}

/* ---- memory ---- */

TEST(every_allocation_fails)
{
    stitch__facts *f = full_facts();
    char *text = written(f);
    bool done = false;
    stitch__facts_free(f);
    for (int64_t n = 0; !done; n++) {
        meter m = {0, -1, 0};
        stitch_allocator a = {sizeof(a), meter_alloc, meter_realloc, meter_free, &m};
        stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
        stitch_context *ctx;
        stitch__facts *g = NULL;
        stitch__buf b;
        o.cache_dir = "";
        o.device = "none";
        o.allocator = &a;
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
        stitch__buf_init(&b, ctx);
        m.calls = 0;
        m.refuse_at = n;
        int rc = stitch__facts_read(ctx, text, strlen(text), &g, &err);
        if (rc == STITCH_OK)
            rc = stitch__facts_write(g, &b);
        m.refuse_at = -1;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        CHECK(rc == STITCH_OK ? strcmp(b.data, text) == 0 : m.calls > n);
        done = rc == STITCH_OK && m.calls <= n;
        stitch_error_free(err);
        err = NULL;
        stitch__facts_free(g);
        stitch__buf_free(&b);
        stitch_context_free(ctx);
        CHECK_INT(m.live, 0);
        CHECK(n < 1000);
    }
    stitch_free(text);
}

TEST_MAIN(RUN(metrics_have_keys), RUN(new_facts_know_nothing), RUN(strings_are_cleaned_and_cut),
          RUN(what_was_written_is_read), RUN(what_cannot_be_written_is_left_out), RUN(numbers_stay_in_bounds),
          RUN(lists_end_at_their_limits), RUN(strings_of_strangers), RUN(what_is_no_such_object),
          RUN(every_member_missing_or_of_another_type), RUN(every_prefix_is_refused), RUN(every_allocation_fails))
