/* SPDX-License-Identifier: MIT
 *
 * An admission as JSON (docs/task-format.md, "Degenerate tasks") and as text for people.
 */
#include "verify/admission.h"

#include <math.h>
#include <stdio.h>

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

static json_t *share(uint64_t part, uint64_t of)
{
    return json_real(of ? (double)part / (double)of : 0);
}

static double worst(const stitch__comparison *c)
{
    return c->worst_key > 0 ? c->worst_key : 0;
}

static json_t *repeat_json(bool *failed, const stitch__admission_output *o)
{
    json_t *row = json_object();
    stitch__json_put(failed, row, "within_tolerance", json_boolean(!o->repeat.mismatches));
    stitch__json_put(failed, row, "bitwise", json_boolean(!o->repeat.differ));
    stitch__json_put(failed, row, "worst_over_tolerance", number(worst(&o->repeat)));
    stitch__json_put(failed, row, "unwritten", json_integer((json_int_t)o->repeat.unwritten));
    return row;
}

static json_t *spread_json(bool *failed, const stitch__admission_output *o)
{
    const stitch__spread *s = &o->spread;
    json_t *row = json_object();
    stitch__json_put(failed, row, "share_over_tolerance", share(s->over_tolerance, s->elements));
    stitch__json_put(failed, row, "share_over_factor", share(s->over_factor, s->elements));
    stitch__json_put(failed, row, "factor", number(o->factor));
    stitch__json_put(failed, row, "mean_over_tolerance", number(s->finite ? s->sum_ratio / (double)s->finite : 0));
    stitch__json_put(failed, row, "max_over_tolerance", number(s->max_ratio));
    stitch__json_put(failed, row, "mean_change", number(s->finite ? s->sum_change / (double)s->finite : 0));
    return row;
}

static json_t *answers_json(bool *failed, const stitch__admission_output *o)
{
    json_t *list = json_array();
    for (size_t i = 0; i < o->answer_count; i++) {
        const stitch__answer *r = &o->answers[i];
        json_t *row = json_object();
        stitch__json_put(failed, row, "answer", json_string(r->name));
        stitch__json_put(failed, row, "free", json_boolean(stitch__answer_is_free(r->kind)));
        stitch__json_put(failed, row, "passes", json_boolean(stitch__answer_passes(r)));
        stitch__json_put(failed, row, "share_right", share(r->c.elements - r->c.mismatches, r->c.elements));
        stitch__json_put(failed, row, "worst_over_tolerance", number(worst(&r->c)));
        stitch__json_push(failed, list, row);
    }
    return list;
}

static json_t *outputs_json(bool *failed, const stitch_admission *a)
{
    json_t *list = json_array();
    for (size_t k = 0; k < a->output_count; k++) {
        const stitch__admission_output *o = &a->outputs[k];
        json_t *row = json_object();
        stitch__json_put(failed, row, "name", json_string(o->name));
        stitch__json_put(failed, row, "dtype", json_string(stitch_dtype_name(o->dtype)));
        stitch__json_put(failed, row, "reference_dtype", json_string(stitch_dtype_name(o->want_dtype)));
        stitch__json_put(failed, row, "elements", json_integer((json_int_t)o->elements));
        stitch__json_put(failed, row, "nan", json_integer((json_int_t)o->repeat.nan_got));
        stitch__json_put(failed, row, "inf", json_integer((json_int_t)o->repeat.inf_got));
        stitch__json_put(failed, row, "mean_abs", number(o->mean_abs));
        stitch__json_put(failed, row, "repeat", repeat_json(failed, o));
        stitch__json_put(failed, row, "spread", a->draws > 1 ? spread_json(failed, o) : json_null());
        stitch__json_put(failed, row, "answers", answers_json(failed, o));
        stitch__json_push(failed, list, row);
    }
    return list;
}

static const char *redraw_name(stitch__redraw redraw)
{
    static const char *const names[] = {"fixed", "same contents", "alone", "with others", "left out"};
    return names[redraw];
}

/* Whether it matters: of a tensor that was drawn again with others, a change says nothing. */
static json_t *matters_json(const stitch__admission_input *in)
{
    bool known = in->redraw == STITCH__REDRAW_ALONE || (in->redraw == STITCH__REDRAW_TOGETHER && !in->matters);
    return known ? json_boolean(in->matters) : json_null();
}

static json_t *inputs_json(bool *failed, const stitch_admission *a)
{
    json_t *list = json_array();
    for (size_t k = 0; k < a->input_count; k++) {
        const stitch__admission_input *in = &a->inputs[k];
        json_t *row = json_object(), *changed = json_object();
        stitch__json_put(failed, row, "name", json_string(in->name));
        stitch__json_put(failed, row, "role", json_string(in->role == STITCH_TENSOR_WEIGHT ? "weight" : "input"));
        stitch__json_put(failed, row, "redrawn", json_string(redraw_name(in->redraw)));
        stitch__json_put(failed, row, "times", json_integer(in->times));
        stitch__json_put(failed, row, "matters", matters_json(in));
        for (size_t i = 0; in->changed && i < a->output_count; i++)
            stitch__json_put(failed, changed, a->outputs[i].name, share(in->changed[i], a->outputs[i].elements));
        stitch__json_put(failed, row, "share_changed", changed);
        stitch__json_push(failed, list, row);
    }
    return list;
}

json_t *stitch__admission_to_json(const stitch_admission *a)
{
    json_t *root = json_object(), *tolerance = json_object(), *warnings = json_array();
    char seed[24];
    bool failed = false;

    snprintf(seed, sizeof(seed), "0x%016" PRIx64, a->seed);
    stitch__json_put(&failed, root, "stitch_admission", json_integer(1));
    stitch__json_put(&failed, root, "task", json_string(a->task_name));
    stitch__json_put(&failed, root, "verdict", json_string(a->degenerate ? "degenerate" : "admitted"));
    stitch__json_put(&failed, root, "reason", json_string(a->reason));
    stitch__json_put(&failed, root, "cure", json_string(a->cure));
    for (size_t i = 0; i < a->warning_count; i++)
        stitch__json_push(&failed, warnings, json_string(a->warnings[i]));
    stitch__json_put(&failed, root, "warnings", warnings);
    stitch__json_put(&failed, root, "device", json_string(a->device_name));
    stitch__json_put(&failed, root, "simulated", json_boolean(a->simulated));
    stitch__json_put(&failed, root, "reduced_dims", json_boolean(a->reduced));
    stitch__json_put(&failed, root, "seed", json_string(seed));
    stitch__json_put(&failed, tolerance, "atol", number(a->atol));
    stitch__json_put(&failed, tolerance, "rtol", number(a->rtol));
    stitch__json_put(&failed, root, "tolerance", tolerance);
    stitch__json_put(&failed, root, "runs", json_integer(a->runs));
    stitch__json_put(&failed, root, "draws", json_integer(a->draws));
    stitch__json_put(&failed, root, "redrawn", json_string(a->redrawn));
    stitch__json_put(&failed, root, "steps", json_integer(a->steps));
    stitch__json_put(&failed, root, "outputs", outputs_json(&failed, a));
    stitch__json_put(&failed, root, "inputs", inputs_json(&failed, a));
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static double percent(uint64_t part, uint64_t of)
{
    return of ? 100 * (double)part / (double)of : 0;
}

static void put_output(stitch__buf *b, const stitch_admission *a, const stitch__admission_output *o)
{
    stitch__buf_printf(b, "output %s, %s[", o->name, stitch_dtype_name(o->dtype));
    for (size_t k = 0; k < o->rank; k++)
        stitch__buf_printf(b, "%s%" PRId64, k ? ", " : "", o->shape[k]);
    stitch__buf_printf(b, "]: mean magnitude %.3g", o->mean_abs);
    if (a->draws > 1)
        stitch__buf_printf(b, ", changes by %.3g times the tolerance from draw to draw; %.3g %% of it by more than %g",
                           o->spread.finite ? o->spread.sum_ratio / (double)o->spread.finite : 0,
                           percent(o->spread.over_factor, o->spread.elements), o->factor);
    stitch__buf_putc(b, '\n');
    for (size_t i = 0; i < o->answer_count; i++) {
        const stitch__answer *r = &o->answers[i];
        stitch__buf_printf(b, "  %-7s %6.2f %% right, worst %9.3g times the tolerance: %s%s\n",
                           stitch__answer_passes(r) ? "passes" : "fails",
                           percent(r->c.elements - r->c.mismatches, r->c.elements), worst(&r->c), r->name,
                           stitch__answer_is_free(r->kind) ? "" : " (made of the right answer)");
    }
}

static void put_input(stitch__buf *b, const stitch_admission *a, const stitch__admission_input *in)
{
    stitch__buf_printf(b, "%s %s: ", in->role == STITCH_TENSOR_WEIGHT ? "weight" : "input", in->name);
    if (!in->changed) {
        stitch__buf_printf(b, "not drawn again (%s)\n", redraw_name(in->redraw));
        return;
    }
    stitch__buf_printf(b, "drawn again %s, changes", redraw_name(in->redraw));
    for (size_t i = 0; i < a->output_count; i++)
        stitch__buf_printf(b, "%s %.3g %% of %s", i ? "," : "", percent(in->changed[i], a->outputs[i].elements),
                           a->outputs[i].name);
    stitch__buf_putc(b, '\n');
}

char *stitch__admission_to_text(const stitch_admission *a)
{
    stitch__buf b;

    stitch__buf_init(&b, a->ctx);
    if (a->degenerate)
        stitch__buf_printf(&b, "DEGENERATE: %s\ncure: %s\n", a->reason, a->cure);
    else
        stitch__buf_puts(&b, "ADMITTED: no cheap answer passes\n");
    stitch__buf_printf(&b, "task %s%s on %s, %d runs of the reference, tolerance atol %g + rtol %g * |want|\n",
                       a->task_name, a->reduced ? " at its reduced dims" : "", a->device_name, a->runs, a->atol,
                       a->rtol);
    for (size_t k = 0; k < a->output_count; k++)
        put_output(&b, a, &a->outputs[k]);
    for (size_t k = 0; k < a->input_count; k++)
        put_input(&b, a, &a->inputs[k]);
    for (size_t i = 0; i < a->warning_count; i++)
        stitch__buf_printf(&b, "warning: %s\n", a->warnings[i]);
    return stitch__buf_take(&b, NULL);
}
