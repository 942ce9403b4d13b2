/* SPDX-License-Identifier: MIT
 *
 * What holds for facts that were read, whatever was written: unit tests and the fuzz target use it.
 */
#ifndef STITCH_TESTS_FACTS_CHECK_H
#define STITCH_TESTS_FACTS_CHECK_H

#include <math.h>

#include "profile/facts.h"

static bool facts_text_ok(const char *s)
{
    size_t len = s ? strnlen(s, STITCH__FACTS_TEXT + 1) : STITCH__FACTS_TEXT + 1;
    if (len > STITCH__FACTS_TEXT || !stitch__utf8_valid(s, len))
        return false;
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    }
    return true;
}

static bool facts_share_ok(double v)
{
    return v >= 0 && v <= 1;
}

static bool facts_number_ok(double v)
{
    return v >= 0 && v <= 1e15;
}

static bool facts_metric_ok(double v)
{
    return isnan(v) || facts_number_ok(v);
}

static bool facts_line_ok(const stitch__line_fact *l)
{
    if (!facts_text_ok(l->file) || !facts_text_ok(l->text) || l->reason_count > STITCH__FACTS_REASONS ||
        l->ideal_sectors > l->sectors || l->ideal_wavefronts > l->wavefronts || l->line > INT32_MAX ||
        l->samples > 1000000000000000 || l->instructions > 1000000000000000 || l->requests > 1000000000000000 ||
        l->sectors > 1000000000000000 || l->wavefronts > 1000000000000000)
        return false;
    for (size_t i = 0; i < l->reason_count; i++) {
        if (!facts_text_ok(l->reasons[i].name) || l->reasons[i].samples > 1000000000000000)
            return false;
    }
    return true;
}

static bool facts_kernel_ok(const stitch__facts *f, const stitch__kernel_fact *k)
{
    bool ok = facts_text_ok(k->name) && facts_text_ok(k->symbol) && facts_text_ok(k->limiter) && k->step >= -1 &&
              k->step < (int64_t)f->step_count && facts_share_ok(k->share) && facts_share_ok(k->occupancy) &&
              facts_share_ok(k->counted) && facts_number_ok(k->time_us) && facts_number_ok(k->gap_us) &&
              facts_number_ok(k->waves) && k->grid[0] <= INT32_MAX && k->grid[1] <= 65535 && k->grid[2] <= 65535 &&
              k->block[0] <= 1024 && k->block[1] <= 1024 && k->block[2] <= 64 && k->registers <= 255 &&
              k->static_shared <= 1u << 28 && k->dynamic_shared <= 1u << 28 && k->local <= 1u << 28 &&
              k->launches <= 1000000000000000 && k->samples <= 1000000000000000 && k->line_count <= STITCH__FACTS_LINES;
    for (int i = 0; i < STITCH__METRICS; i++)
        ok &= facts_metric_ok(k->metric[i]);
    for (size_t i = 0; i < STITCH__FACTS_EXTRA; i++)
        ok &= i < f->extra_count ? facts_metric_ok(k->extra[i]) : isnan(k->extra[i]) != 0;
    for (size_t i = 0; ok && i < k->line_count; i++)
        ok = facts_line_ok(&k->lines[i]);
    return ok;
}

static bool facts_ok(const stitch__facts *f)
{
    const stitch__ceilings *c = &f->ceilings;
    const double numbers[] = {c->dram_gb_s,    c->f32_tflops,  c->tf32_tflops,   c->f16_tflops, c->bf16_tflops,
                              c->f8_tflops,    c->launch_us,   c->graph_node_us, f->wall_us,    f->busy_us,
                              f->idle_us,      f->sync_us,     f->host_us,       f->copy_us,    f->overlap_us,
                              f->slow_call_us, f->host_copy_us};
    bool ok = facts_text_ok(f->source) && facts_text_ok(f->slow_call) && facts_text_ok(f->device) &&
              facts_text_ok(f->arch) && facts_text_ok(f->no_timeline) && facts_text_ok(f->no_counters) &&
              facts_text_ok(f->no_samples) && f->multiprocessors <= 65535 && f->precision >= -1 && f->precision <= 3 &&
              f->kernel_count <= STITCH__FACTS_KERNELS && f->step_count <= STITCH__FACTS_STEPS &&
              f->extra_count <= STITCH__FACTS_EXTRA && f->launches <= 1000000000000000;
    for (size_t i = 0; i < STITCH__COUNT(numbers); i++)
        ok &= facts_number_ok(numbers[i]);
    for (size_t i = 0; ok && i < f->step_count; i++) {
        const stitch__step_fact *s = &f->steps[i];
        ok = facts_text_ok(s->place) && facts_text_ok(s->kind) && facts_text_ok(s->name) && facts_text_ok(s->between) &&
             s->next >= -1 && s->next < (int64_t)f->step_count && s->next != (int64_t)i;
    }
    for (size_t i = 0; ok && i < f->extra_count; i++)
        ok = facts_text_ok(f->extra_names[i]);
    for (size_t i = 0; ok && i < f->kernel_count; i++)
        ok = facts_kernel_ok(f, &f->kernels[i]);
    return ok;
}

#endif
