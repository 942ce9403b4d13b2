/* SPDX-License-Identifier: MIT
 *
 * Facts: their memory, and the strings in them.
 */
#include <math.h>

#include "profile/facts.h"

int stitch__facts_new(const stitch_context *ctx, stitch__facts **out, stitch_error **err)
{
    stitch__facts *f = stitch__calloc(ctx, 1, sizeof(*f));
    *out = f;
    if (!f)
        return stitch__err_nomem(ctx, err);
    f->arena.ctx = ctx;
    f->source = f->device = f->arch = f->slow_call = "";
    f->no_timeline = f->no_counters = f->no_samples = "";
    f->precision = -1;
    return STITCH_OK;
}

void stitch__facts_free(stitch__facts *f)
{
    if (!f)
        return;
    stitch_free(f->kernels);
    stitch_free(f->steps);
    stitch__arena_free(&f->arena);
    stitch_free(f);
}

static void nothing_known(stitch__kernel_fact *k)
{
    memset(k, 0, sizeof(*k));
    k->name = k->symbol = k->limiter = "";
    k->step = -1;
    for (size_t i = 0; i < STITCH__METRICS; i++)
        k->metric[i] = NAN;
    for (size_t i = 0; i < STITCH__FACTS_EXTRA; i++)
        k->extra[i] = NAN;
    for (size_t i = 0; i < STITCH__FACTS_LINES; i++) {
        k->lines[i].file = k->lines[i].text = "";
        for (size_t r = 0; r < STITCH__FACTS_REASONS; r++)
            k->lines[i].reasons[r].name = "";
    }
}

stitch__kernel_fact *stitch__facts_add_kernel(stitch__facts *f)
{
    if (f->kernel_count == STITCH__FACTS_KERNELS) {
        f->kernels_left_out++;
        return NULL;
    }
    if (stitch__grow(f->arena.ctx, &f->kernels, &f->kernel_cap, f->kernel_count + 1, sizeof(*f->kernels)))
        return NULL;
    stitch__kernel_fact *k = &f->kernels[f->kernel_count++];
    nothing_known(k);
    return k;
}

/* ---- strings ---- */

static const char cut[] = "...";

/* Bytes of the characters that fit into `max`. */
static size_t whole_characters(const char *text, size_t max)
{
    size_t n = max;
    while (n > 0 && max - n < 3 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

const char *stitch__facts_text(stitch__facts *f, const char *text)
{
    size_t len = text ? strnlen(text, STITCH__FACTS_TEXT + 1) : 0;
    bool too_long = len > STITCH__FACTS_TEXT;
    stitch__buf b;
    if (!len)
        return "";
    if (too_long)
        len = whole_characters(text, STITCH__FACTS_TEXT - (sizeof(cut) - 1));
    stitch__buf_init(&b, f->arena.ctx);
    stitch__buf_puts_clean(&b, text, len, len);
    if (too_long)
        stitch__buf_puts(&b, cut);
    for (size_t i = 0; !b.failed && i < b.len; i++) { /* one line, so that no string can begin another */
        if (b.data[i] == '\n' || b.data[i] == '\t')
            b.data[i] = ' ';
    }
    const char *copy = b.failed ? NULL : stitch__arena_strndup(&f->arena, b.data, b.len);
    stitch__buf_free(&b);
    return copy ? copy : "";
}

bool stitch__facts_kept(const char *kept, const char *text)
{
    size_t len = strlen(kept), tail = sizeof(cut) - 1;

    if (strcmp(kept, text) == 0)
        return true;
    return len > tail && strlen(text) > len && strcmp(kept + len - tail, cut) == 0 &&
           strncmp(kept, text, len - tail) == 0;
}
