/* SPDX-License-Identifier: MIT
 *
 * Facts from a stranger: any text is either facts within their bounds, which are written and read again as they are, or
 * an error. Advice can be made of whatever was read, keeps its own bounds, and does not depend on when it was made.
 */
#include <stdlib.h>

#include "../support/facts_check.h"
#include "profile/advice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *text_of(const stitch__facts *f, size_t *len)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    if (stitch__facts_write(f, &b) != STITCH_OK)
        abort();
    return stitch__buf_take(&b, len);
}

static bool share_ok(double v)
{
    return v >= 0 && v <= 1;
}

static bool figure_ok(double v)
{
    return isfinite(v) && v >= 0;
}

static bool text_ok(const char *s)
{
    return s && stitch__utf8_valid(s, strlen(s));
}

static bool verdict_ok(const stitch__verdict *v)
{
    return v->bound >= 0 && v->bound < STITCH__BOUND_CLASSES && share_ok(v->reached) && figure_ok(v->limit_us) &&
           figure_ok(v->intensity) && figure_ok(v->gb_s) && figure_ok(v->tflops) && text_ok(v->because);
}

static bool advice_ok(const stitch__facts *f, const stitch__advice *x)
{
    return text_ok(x->rule) && *x->rule && text_ok(x->problem) && *x->problem && text_ok(x->evidence) &&
           text_ok(x->action) && *x->action && text_ok(x->file) && text_ok(x->source) && x->kernel >= -1 &&
           x->kernel < (int64_t)f->kernel_count && x->step >= -1 && x->step < (int64_t)f->step_count &&
           share_ok(x->gain_share) && figure_ok(x->gain_us);
}

static bool advices_ok(const stitch__facts *f, const stitch__advices *a)
{
    bool ok = verdict_ok(&a->run) && a->kernel_count == f->kernel_count;
    for (size_t i = 0; ok && i < a->kernel_count; i++)
        ok = verdict_ok(&a->kernels[i]);
    for (size_t i = 0; ok && i < a->count; i++)
        ok = advice_ok(f, &a->list[i]);
    return ok;
}

static char *json_of(const stitch__facts *f, const stitch__advices *a)
{
    stitch__buf b;
    json_t *read;
    char *text;

    stitch__buf_init(&b, NULL);
    if (stitch__advice_write_json(f, a, &b) != STITCH_OK || !(text = stitch__buf_take(&b, NULL)))
        abort();
    read = json_loads(text, 0, NULL);
    if (!json_is_object(read))
        abort();
    json_decref(read);
    return text;
}

static void check_text(const stitch__facts *f, const stitch__advices *a, size_t most)
{
    stitch__buf b;
    size_t len;
    char *text;

    stitch__buf_init(&b, NULL);
    stitch__advice_write_text(f, a, most, &b);
    text = stitch__buf_take(&b, &len);
    if (!text || len > (most ? most : 65536) || !stitch__utf8_valid(text, len))
        abort();
    stitch_free(text);
}

static void check_advice(const stitch__facts *f)
{
    static const size_t budgets[] = {0, 1, 80, 400, 2000};
    stitch__advices first, second;
    char *json, *again;

    if (stitch__advise(NULL, f, &first) != STITCH_OK || stitch__advise(NULL, f, &second) != STITCH_OK)
        abort();
    if (!advices_ok(f, &first))
        abort();
    for (size_t i = 0; i < STITCH__COUNT(budgets); i++)
        check_text(f, &first, budgets[i]);
    json = json_of(f, &first);
    again = json_of(f, &second);
    if (strcmp(json, again) != 0)
        abort();
    stitch_free(json);
    stitch_free(again);
    stitch__advices_free(&first);
    stitch__advices_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stitch__facts *f, *again;
    stitch_error *err = NULL;
    size_t len, again_len;

    int rc = stitch__facts_read(NULL, (const char *)data, size, &f, &err);
    if (rc) {
        if ((rc != STITCH_E_FORMAT && rc != STITCH_E_LIMIT) || f || !*stitch_error_message(err))
            abort();
        stitch_error_free(err);
        return 0;
    }
    if (!facts_ok(f))
        abort();
    check_advice(f);
    char *text = text_of(f, &len);
    if (!text || stitch__facts_read(NULL, text, len, &again, &err) != STITCH_OK)
        abort();
    char *text_again = text_of(again, &again_len);
    if (!text_again || again_len != len || memcmp(text, text_again, len) != 0)
        abort();
    stitch_free(text);
    stitch_free(text_again);
    stitch__facts_free(f);
    stitch__facts_free(again);
    return 0;
}
