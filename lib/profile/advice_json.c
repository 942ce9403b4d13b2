/* SPDX-License-Identifier: MIT
 *
 * Verdicts and advice as JSON (docs/profile.md).
 */
#include <math.h>

#include "profile/rules.h"

/* A writer that remembers that something failed, so that members can be put one after the other. */
typedef struct writer {
    bool failed;
} writer;

/* null: not known. Six digits: more would be noise. */
static json_t *number(double v)
{
    if (!isfinite(v) || v <= 0)
        return json_null();
    double unit = pow(10, floor(log10(v)) - 5), rounded = round(v / unit) * unit;
    return json_real(isfinite(rounded) && rounded > 0 ? rounded : v);
}

static json_t *text(const char *s)
{
    char name[STITCH__NAME_BYTES];
    return json_string(stitch__utf8_valid(s, strlen(s)) ? s : stitch__short_name(s, name, sizeof(name)));
}

static json_t *index_of(int32_t i)
{
    return i >= 0 ? json_integer(i) : json_null();
}

static void put_verdict(writer *w, json_t *o, const stitch__verdict *v)
{
    stitch__json_put(&w->failed, o, "bound", text(stitch__bound_class_name(v->bound)));
    stitch__json_put(&w->failed, o, "because", text(v->because));
    stitch__json_put(&w->failed, o, "limit_us", number(v->limit_us));
    stitch__json_put(&w->failed, o, "reached", number(v->reached));
    stitch__json_put(&w->failed, o, "intensity", number(v->intensity));
    stitch__json_put(&w->failed, o, "gb_per_s", number(v->gb_s));
    stitch__json_put(&w->failed, o, "tflops", number(v->tflops));
}

static json_t *kernel_json(writer *w, const stitch__facts *f, const stitch__run_figures *run,
                           const stitch__kernel_fact *k, const stitch__verdict *v)
{
    json_t *o = json_object();
    stitch__figures g;
    stitch__figures_of(f, run, k, &g);
    stitch__json_put(&w->failed, o, "name", text(k->name));
    stitch__json_put(&w->failed, o, "step", index_of(k->step));
    stitch__json_put(&w->failed, o, "launches",
                     json_integer((json_int_t)(k->launches > INT64_MAX ? INT64_MAX : k->launches)));
    stitch__json_put(&w->failed, o, "time_us", number(g.time_us));
    stitch__json_put(&w->failed, o, "share", number(g.share));
    put_verdict(w, o, v);
    return o;
}

static json_t *advice_json(writer *w, const stitch__advice *a)
{
    json_t *o = json_object();
    stitch__json_put(&w->failed, o, "rule", text(a->rule));
    stitch__json_put(&w->failed, o, "kernel", index_of(a->kernel));
    stitch__json_put(&w->failed, o, "step", index_of(a->step));
    stitch__json_put(&w->failed, o, "file", *a->file ? text(a->file) : json_null());
    stitch__json_put(&w->failed, o, "line", a->line ? json_integer(a->line) : json_null());
    stitch__json_put(&w->failed, o, "source", *a->source ? text(a->source) : json_null());
    stitch__json_put(&w->failed, o, "problem", text(a->problem));
    stitch__json_put(&w->failed, o, "evidence", text(a->evidence));
    stitch__json_put(&w->failed, o, "action", text(a->action));
    stitch__json_put(&w->failed, o, "gain_us", number(a->gain_us));
    stitch__json_put(&w->failed, o, "gain_share", number(a->gain_share));
    return o;
}

int stitch__advice_write_json(const stitch__facts *f, const stitch__advices *a, stitch__buf *out)
{
    writer w = {false};
    stitch__run_figures run;
    json_t *root = json_object(), *verdict = json_object(), *kernels = json_array(), *advice = json_array();
    char *dump = NULL;
    stitch__figures_of_run(f, &run);
    put_verdict(&w, verdict, &a->run);
    for (size_t i = 0; i < a->kernel_count && i < f->kernel_count; i++)
        stitch__json_push(&w.failed, kernels, kernel_json(&w, f, &run, &f->kernels[i], &a->kernels[i]));
    for (size_t i = 0; i < a->count; i++)
        stitch__json_push(&w.failed, advice, advice_json(&w, &a->list[i]));
    stitch__json_put(&w.failed, root, "verdict", verdict);
    stitch__json_put(&w.failed, root, "kernels", kernels);
    stitch__json_put(&w.failed, root, "advice", advice);
    if (!w.failed)
        dump = stitch__json_dump(out->ctx, root, 0);
    json_decref(root);
    if (!dump) {
        out->failed = true;
        return STITCH_E_NOMEM;
    }
    stitch__buf_puts(out, dump);
    stitch_free(dump);
    return out->failed ? STITCH_E_NOMEM : STITCH_OK;
}
