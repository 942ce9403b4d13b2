/* SPDX-License-Identifier: MIT
 *
 * Facts as JSON, both ways (docs/profile.md). One table a structure says what its members are called and how large they
 * may be, so that what is written is read again, and what a stranger wrote stays in bounds.
 */
#include <math.h>
#include <stddef.h>

#include "profile/facts.h"
#include "task/task.h"

enum { VERSION = 1 };

typedef enum field_type { COUNT, U32, REAL, FLAG, TEXT } field_type;

typedef struct field {
    const char *key;
    size_t offset;
    field_type type;
    double max; /* of numbers */
} field;

#define F(type, of, member, max)                                                                                       \
    {                                                                                                                  \
#member, offsetof(of, member), type, max                                                                       \
    }
/* Sums over all lines of all kernels fit into 64 bits. */
#define MANY 1e15
#define US   1e12
#define RATE 1e9

static const field head_fields[] = {
    F(TEXT, stitch__facts, source, 0),        F(TEXT, stitch__facts, device, 0),
    F(TEXT, stitch__facts, arch, 0),          F(U32, stitch__facts, multiprocessors, 65535),
    F(FLAG, stitch__facts, library_steps, 0), F(COUNT, stitch__facts, kernels_left_out, MANY),
    F(TEXT, stitch__facts, no_timeline, 0),   F(TEXT, stitch__facts, no_counters, 0),
    F(TEXT, stitch__facts, no_samples, 0),
};
static const field ceiling_fields[] = {
    F(FLAG, stitch__ceilings, measured, 0),       F(REAL, stitch__ceilings, dram_gb_s, RATE),
    F(REAL, stitch__ceilings, f32_tflops, RATE),  F(REAL, stitch__ceilings, tf32_tflops, RATE),
    F(REAL, stitch__ceilings, f16_tflops, RATE),  F(REAL, stitch__ceilings, bf16_tflops, RATE),
    F(REAL, stitch__ceilings, f8_tflops, RATE),   F(REAL, stitch__ceilings, launch_us, US),
    F(REAL, stitch__ceilings, graph_node_us, US),
};
static const field run_fields[] = {
    F(REAL, stitch__facts, wall_us, US),       F(REAL, stitch__facts, busy_us, US),
    F(REAL, stitch__facts, idle_us, US),       F(REAL, stitch__facts, sync_us, US),
    F(REAL, stitch__facts, slow_call_us, US),  F(TEXT, stitch__facts, slow_call, 0),
    F(REAL, stitch__facts, host_us, US),       F(REAL, stitch__facts, copy_us, US),
    F(REAL, stitch__facts, overlap_us, US),    F(REAL, stitch__facts, host_copy_us, US),
    F(COUNT, stitch__facts, copy_bytes, MANY), F(COUNT, stitch__facts, host_copy_bytes, MANY),
    F(COUNT, stitch__facts, launches, MANY),   F(COUNT, stitch__facts, copies, MANY),
    F(COUNT, stitch__facts, fills, MANY),      F(COUNT, stitch__facts, pageable_copies, MANY),
    F(FLAG, stitch__facts, graph, 0),
};
static const field kernel_fields[] = {
    F(TEXT, stitch__kernel_fact, name, 0),
    F(TEXT, stitch__kernel_fact, symbol, 0),
    F(FLAG, stitch__kernel_fact, library, 0),
    F(COUNT, stitch__kernel_fact, launches, MANY),
    F(REAL, stitch__kernel_fact, time_us, US),
    F(REAL, stitch__kernel_fact, share, 1),
    F(REAL, stitch__kernel_fact, gap_us, US),
    F(U32, stitch__kernel_fact, registers, 255),
    F(U32, stitch__kernel_fact, static_shared, 1 << 28),
    F(U32, stitch__kernel_fact, dynamic_shared, 1 << 28),
    F(U32, stitch__kernel_fact, local, 1 << 28),
    F(REAL, stitch__kernel_fact, occupancy, 1),
    F(REAL, stitch__kernel_fact, waves, RATE),
    F(TEXT, stitch__kernel_fact, limiter, 0),
    F(REAL, stitch__kernel_fact, counted, 1),
    F(COUNT, stitch__kernel_fact, samples, MANY),
};
static const field line_fields[] = {
    F(TEXT, stitch__line_fact, file, 0),
    F(U32, stitch__line_fact, line, INT32_MAX),
    F(TEXT, stitch__line_fact, text, 0),
    F(COUNT, stitch__line_fact, samples, MANY),
    F(COUNT, stitch__line_fact, instructions, MANY),
    F(COUNT, stitch__line_fact, requests, MANY),
    F(COUNT, stitch__line_fact, sectors, MANY),
    F(COUNT, stitch__line_fact, ideal_sectors, MANY),
    F(COUNT, stitch__line_fact, wavefronts, MANY),
    F(COUNT, stitch__line_fact, ideal_wavefronts, MANY),
};
static const field reason_fields[] = {
    F(TEXT, stitch__reason, name, 0),
    F(COUNT, stitch__reason, samples, MANY),
};
static const field step_fields[] = {
    F(TEXT, stitch__step_fact, place, 0),
    F(TEXT, stitch__step_fact, kind, 0),
    F(TEXT, stitch__step_fact, name, 0),
    F(TEXT, stitch__step_fact, between, 0),
    F(COUNT, stitch__step_fact, between_bytes, MANY),
    F(COUNT, stitch__step_fact, bytes, MANY),
    F(FLAG, stitch__step_fact, moves_only, 0),
};
/* The hardware's limits: the product of three fits into 64 bits. */
static const double grid_max[3] = {INT32_MAX, 65535, 65535}, block_max[3] = {1024, 1024, 64};

/* ---- writing ---- */

typedef struct writer {
    const stitch_context *ctx;
    bool failed;
} writer;

/* What fills the facts takes strings from everywhere, and JSON is UTF-8. */
static json_t *text_json(const writer *w, const char *s)
{
    size_t len = strlen(s);
    stitch__buf b;
    if (stitch__utf8_valid(s, len))
        return json_stringn(s, len);
    stitch__buf_init(&b, w->ctx);
    stitch__buf_puts_clean(&b, s, len, len);
    json_t *v = b.failed ? NULL : json_stringn(b.data, b.len);
    stitch__buf_free(&b);
    return v;
}

static json_t *count_json(uint64_t v)
{
    return json_integer((json_int_t)(v > INT64_MAX ? INT64_MAX : v));
}

/* What is not known is left out: missing, it reads as that. */
static void put_field(writer *w, json_t *object, const void *from, const field *f)
{
    const void *m = (const char *)from + f->offset;
    double real;
    const char *s;
    switch (f->type) {
    case COUNT:
        if (*(const uint64_t *)m)
            stitch__json_put(&w->failed, object, f->key, count_json(*(const uint64_t *)m));
        break;
    case U32:
        if (*(const uint32_t *)m)
            stitch__json_put(&w->failed, object, f->key, count_json(*(const uint32_t *)m));
        break;
    case REAL:
        real = *(const double *)m;
        if (isfinite(real) && real > 0)
            stitch__json_put(&w->failed, object, f->key, json_real(real));
        break;
    case FLAG:
        if (*(const bool *)m)
            stitch__json_put(&w->failed, object, f->key, json_true());
        break;
    case TEXT:
        s = *(const char *const *)m;
        if (s && *s)
            stitch__json_put(&w->failed, object, f->key, text_json(w, s));
        break;
    }
}

static void put_fields(writer *w, json_t *object, const void *from, const field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put_field(w, object, from, &fields[i]);
}

#define PUT_FIELDS(w, object, from, fields) put_fields(w, object, from, fields, STITCH__COUNT(fields))

static json_t *size_json(writer *w, const uint32_t v[3])
{
    json_t *list = json_array();
    for (int i = 0; i < 3; i++)
        stitch__json_push(&w->failed, list, count_json(v[i]));
    return list;
}

static json_t *metrics_json(writer *w, const double *metric)
{
    json_t *all = json_object();
    for (int i = 0; i < STITCH__METRICS; i++) {
        if (isfinite(metric[i]))
            stitch__json_put(&w->failed, all, stitch__metric_info_of(i)->key, json_real(metric[i]));
    }
    return all;
}

static json_t *extra_json(writer *w, const double *extra, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        stitch__json_push(&w->failed, list, isfinite(extra[i]) ? json_real(extra[i]) : json_null());
    return list;
}

static json_t *line_json(writer *w, const stitch__line_fact *l)
{
    json_t *v = json_object(), *reasons = json_array();
    PUT_FIELDS(w, v, l, line_fields);
    for (size_t i = 0; i < l->reason_count; i++) {
        json_t *r = json_object();
        PUT_FIELDS(w, r, &l->reasons[i], reason_fields);
        stitch__json_push(&w->failed, reasons, r);
    }
    stitch__json_put(&w->failed, v, "reasons", reasons);
    return v;
}

static json_t *kernel_json(writer *w, const stitch__facts *f, const stitch__kernel_fact *k)
{
    json_t *v = json_object(), *lines = json_array();
    PUT_FIELDS(w, v, k, kernel_fields);
    stitch__json_put(&w->failed, v, "step", json_integer(k->step));
    stitch__json_put(&w->failed, v, "grid", size_json(w, k->grid));
    stitch__json_put(&w->failed, v, "block", size_json(w, k->block));
    stitch__json_put(&w->failed, v, "metrics", metrics_json(w, k->metric));
    if (f->extra_count)
        stitch__json_put(&w->failed, v, "extra", extra_json(w, k->extra, f->extra_count));
    for (size_t i = 0; i < k->line_count; i++)
        stitch__json_push(&w->failed, lines, line_json(w, &k->lines[i]));
    stitch__json_put(&w->failed, v, "lines", lines);
    return v;
}

static json_t *facts_json(writer *w, const stitch__facts *f)
{
    json_t *root = json_object(), *part;
    stitch__json_put(&w->failed, root, "stitch_facts", json_integer(VERSION));
    PUT_FIELDS(w, root, f, head_fields);
    if (f->precision >= 0)
        stitch__json_put(&w->failed, root, "precision", json_string(stitch__precision_name(f->precision)));
    stitch__json_put(&w->failed, root, "ceilings", part = json_object());
    PUT_FIELDS(w, part, &f->ceilings, ceiling_fields);
    stitch__json_put(&w->failed, root, "run", part = json_object());
    PUT_FIELDS(w, part, f, run_fields);
    stitch__json_put(&w->failed, root, "steps", part = json_array());
    for (size_t i = 0; i < f->step_count; i++) {
        json_t *s = json_object();
        PUT_FIELDS(w, s, &f->steps[i], step_fields);
        stitch__json_put(&w->failed, s, "next", json_integer(f->steps[i].next));
        stitch__json_push(&w->failed, part, s);
    }
    stitch__json_put(&w->failed, root, "extra_names", part = json_array());
    for (size_t i = 0; i < f->extra_count; i++)
        stitch__json_push(&w->failed, part, text_json(w, f->extra_names[i]));
    stitch__json_put(&w->failed, root, "kernels", part = json_array());
    for (size_t i = 0; i < f->kernel_count; i++)
        stitch__json_push(&w->failed, part, kernel_json(w, f, &f->kernels[i]));
    return root;
}

int stitch__facts_write(const stitch__facts *f, stitch__buf *out)
{
    writer w = {f->arena.ctx, false};
    json_t *root = facts_json(&w, f);
    char *text = w.failed ? NULL : stitch__json_dump(f->arena.ctx, root, 0);
    json_decref(root);
    if (text)
        stitch__buf_puts(out, text);
    stitch_free(text);
    return text && !out->failed ? STITCH_OK : STITCH_E_NOMEM;
}

/* ---- reading ---- */

typedef struct reader {
    stitch__facts *f;
    bool nomem;
} reader;

static const char *text_of(reader *r, const json_t *v)
{
    const char *s = json_string_value(v); /* NULL for what is no string */
    const char *copy = stitch__facts_text(r->f, s);
    r->nomem |= s && *s && !*copy;
    return copy;
}

/* 0 for what is no number, or below it. */
static double number_of(const json_t *v, double max)
{
    double x = json_number_value(v); /* 0 for what is none */
    return !(x > 0) ? 0 : x > max ? max : x;
}

static void take_field(reader *r, const json_t *object, void *to, const field *f)
{
    const json_t *v = json_object_get(object, f->key);
    void *m = (char *)to + f->offset;
    switch (f->type) {
    case COUNT: *(uint64_t *)m = (uint64_t)number_of(v, f->max); break;
    case U32: *(uint32_t *)m = (uint32_t)number_of(v, f->max); break;
    case REAL: *(double *)m = number_of(v, f->max); break;
    case FLAG: *(bool *)m = json_is_true(v); break;
    case TEXT: *(const char **)m = text_of(r, v); break;
    }
}

static void take_fields(reader *r, const json_t *object, void *to, const field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        take_field(r, object, to, &fields[i]);
}

#define TAKE_FIELDS(r, object, to, fields) take_fields(r, object, to, fields, STITCH__COUNT(fields))

/* An index below `count`; -1 for anything else. */
static int32_t index_of(const json_t *v, size_t count)
{
    json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;
    return i >= 0 && (uint64_t)i < count ? (int32_t)i : -1;
}

static size_t list_size(const json_t *list, size_t max)
{
    size_t n = json_array_size(list); /* 0 for what is none */
    return n < max ? n : max;
}

static void take_size(const json_t *list, const double max[3], uint32_t out[3])
{
    for (size_t i = 0; i < 3; i++)
        out[i] = (uint32_t)number_of(json_array_get(list, i), max[i]);
}

/* Of metrics 0 is a value like others. */
static double metric_of(const json_t *v)
{
    double x = json_is_number(v) ? json_number_value(v) : NAN;
    return !(x >= 0) ? NAN : x > MANY ? MANY : x;
}

static uint64_t at_most(uint64_t v, uint64_t max)
{
    return v < max ? v : max;
}

static void take_line(reader *r, const json_t *v, stitch__line_fact *l)
{
    const json_t *reasons = json_object_get(v, "reasons");
    TAKE_FIELDS(r, v, l, line_fields);
    l->ideal_sectors = at_most(l->ideal_sectors, l->sectors);
    l->ideal_wavefronts = at_most(l->ideal_wavefronts, l->wavefronts);
    l->reason_count = list_size(reasons, STITCH__FACTS_REASONS);
    for (size_t i = 0; i < l->reason_count; i++)
        TAKE_FIELDS(r, json_array_get(reasons, i), &l->reasons[i], reason_fields);
}

static void take_kernel(reader *r, const json_t *v)
{
    stitch__kernel_fact *k = stitch__facts_add_kernel(r->f);
    const json_t *metrics = json_object_get(v, "metrics"), *lines = json_object_get(v, "lines"),
                 *extra = json_object_get(v, "extra");
    if (!k) {
        r->nomem |= r->f->kernel_count < STITCH__FACTS_KERNELS;
        return;
    }
    TAKE_FIELDS(r, v, k, kernel_fields);
    k->step = index_of(json_object_get(v, "step"), r->f->step_count);
    take_size(json_object_get(v, "grid"), grid_max, k->grid);
    take_size(json_object_get(v, "block"), block_max, k->block);
    for (int i = 0; i < STITCH__METRICS; i++)
        k->metric[i] = metric_of(json_object_get(metrics, stitch__metric_info_of(i)->key));
    for (size_t i = 0; i < r->f->extra_count; i++)
        k->extra[i] = metric_of(json_array_get(extra, i));
    k->line_count = list_size(lines, STITCH__FACTS_LINES);
    for (size_t i = 0; i < k->line_count; i++)
        take_line(r, json_array_get(lines, i), &k->lines[i]);
}

static void take_steps(reader *r, const json_t *list)
{
    stitch__facts *f = r->f;
    size_t count = list_size(list, STITCH__FACTS_STEPS);
    if (!count)
        return;
    f->steps = stitch__calloc(f->arena.ctx, count, sizeof(*f->steps));
    r->nomem |= !f->steps;
    f->step_count = f->steps ? count : 0;
    for (size_t i = 0; i < f->step_count; i++) {
        const json_t *v = json_array_get(list, i);
        TAKE_FIELDS(r, v, &f->steps[i], step_fields);
        f->steps[i].next = index_of(json_object_get(v, "next"), count);
        if (f->steps[i].next == (int32_t)i)
            f->steps[i].next = -1;
    }
}

static void take_facts(reader *r, const json_t *root)
{
    stitch__facts *f = r->f;
    const json_t *list = json_object_get(root, "extra_names"), *precision = json_object_get(root, "precision");
    TAKE_FIELDS(r, root, f, head_fields);
    f->precision = json_is_string(precision) ? stitch__precision_parse(json_string_value(precision)) : -1;
    TAKE_FIELDS(r, json_object_get(root, "ceilings"), &f->ceilings, ceiling_fields);
    TAKE_FIELDS(r, json_object_get(root, "run"), f, run_fields);
    take_steps(r, json_object_get(root, "steps"));
    f->extra_count = list_size(list, STITCH__FACTS_EXTRA);
    for (size_t i = 0; i < f->extra_count; i++)
        f->extra_names[i] = text_of(r, json_array_get(list, i));
    list = json_object_get(root, "kernels");
    for (size_t i = 0; i < json_array_size(list) && !r->nomem; i++)
        take_kernel(r, json_array_get(list, i));
}

int stitch__facts_read(const stitch_context *ctx, const char *json, size_t len, stitch__facts **out, stitch_error **err)
{
    json_t *root = NULL;
    reader r = {NULL, false};
    *out = NULL;
    int rc = stitch__json_parse(ctx, json, len, STITCH__FACTS_JSON, "the facts", &root, err);
    if (rc)
        return rc;
    const json_t *version = json_object_get(root, "stitch_facts");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION) {
        rc = stitch__err(ctx, err, STITCH_E_FORMAT, "the facts: expected an object whose member \"stitch_facts\" is %d",
                         VERSION);
        goto out;
    }
    rc = stitch__facts_new(ctx, &r.f, err);
    if (rc)
        goto out;
    take_facts(&r, root);
    if (r.nomem)
        rc = stitch__err_nomem(ctx, err);
out:
    json_decref(root);
    if (rc)
        stitch__facts_free(r.f);
    else
        *out = r.f;
    return rc;
}
