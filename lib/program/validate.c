/* SPDX-License-Identifier: MIT
 *
 * Validation without a device: resolves, evaluates and walks the launch plan, every launch of every loop.
 */
#include <stdlib.h>

#include "program/program.h"

/* Greatest dynamic shared memory of a block, by compute capability (CUDA C++ Programming Guide, technical
 * specifications). */
static const stitch__arch_limits arches[] = {
    {"sm_70", 70, 98304, false, false},  {"sm_72", 72, 98304, false, false},  {"sm_75", 75, 65536, false, false},
    {"sm_80", 80, 166912, false, false}, {"sm_86", 86, 101376, false, false}, {"sm_87", 87, 166912, false, false},
    {"sm_88", 88, 101376, false, false}, {"sm_89", 89, 101376, false, true},  {"sm_90", 90, 232448, true, true},
    {"sm_100", 100, 232448, true, true}, {"sm_101", 101, 232448, true, true}, {"sm_103", 103, 232448, true, true},
    {"sm_110", 110, 232448, true, true}, {"sm_120", 120, 101376, true, true}, {"sm_121", 121, 101376, true, true},
};

int stitch__arch_limits_get(const stitch_context *ctx, const char *arch, stitch__arch_limits *out, stitch_error **err)
{
    char *end = NULL;
    *out = (stitch__arch_limits){"any architecture", 0, 232448, true, true};
    if (!arch)
        return STITCH_OK;
    long number = strncmp(arch, "sm_", 3) == 0 && arch[3] >= '1' && arch[3] <= '9' ? strtol(arch + 3, &end, 10) : 0;
    if (number < 10 || number > 999 || (*end && strcmp(end, "a") != 0 && strcmp(end, "f") != 0))
        return stitch__err(ctx, err, STITCH_E_INVALID, "'%.32s' is no architecture; expected one like sm_90a", arch);
    for (size_t i = 0; i < STITCH__COUNT(arches); i++) {
        if (arches[i].number == number) {
            *out = arches[i];
            return STITCH_OK;
        }
    }
    if (number < arches[0].number)
        return stitch__err(ctx, err, STITCH_E_UNSUPPORTED, "%.32s is not supported: the oldest architecture is sm_70",
                           arch);
    out->number = (int32_t)number; /* newer than this library: the largest limits */
    return STITCH_OK;
}

static void walk(stitch__check *c, const stitch__steps *list);

static void walk_repeat(stitch__check *c, stitch__step *step)
{
    stitch__repeat_step *r = step->u.repeat;
    int64_t count;
    if (!stitch__eval(&c->s, step, "repeat.count", r->count, &count)) {
        step->checked_epoch = c->s.env.epoch;
        return;
    }
    if (count < 0) {
        stitch__finding(c->s.findings, "%s.repeat.count: is %" PRId64 ", but must not be negative", step->place, count);
        step->checked_epoch = c->s.env.epoch;
        return;
    }
    for (int64_t i = 0; i < count && !c->stop; i++) {
        if (++c->iterations > c->limits->launches) {
            stitch__finding(c->s.findings, "%s.repeat: all loops together go round more than %" PRIu64 " times",
                            step->place, c->limits->launches);
            c->stop = true;
            break;
        }
        stitch__loop_set(&c->s, r->symbol, i);
        walk(c, &r->steps);
    }
    stitch__loop_clear(&c->s, r->symbol);
}

/* A step that depends on no loop variable is checked once, and one with a finding is not checked again: its next rounds
 * would say the same. */
static void walk_step(stitch__check *c, stitch__step *step)
{
    bool known = step->checked_epoch == c->s.env.epoch;
    size_t before = c->s.findings->count;
    if (step->kind == STITCH__STEP_REPEAT) {
        if (!known)
            walk_repeat(c, step);
        return;
    }
    if (++c->launches > c->limits->launches) {
        stitch__finding(c->s.findings, "%s: with its loops the program makes more than %" PRIu64 " launches",
                        step->place, c->limits->launches);
        c->stop = true;
        return;
    }
    if (known)
        return;
    c->s.loop_used = false;
    stitch__check_step(c, step);
    if (!c->s.loop_used || c->s.findings->count > before)
        step->checked_epoch = c->s.env.epoch;
}

static void walk(stitch__check *c, const stitch__steps *list)
{
    for (size_t i = 0; i < list->count && !c->stop; i++) {
        walk_step(c, &list->items[i]);
        if (c->s.nomem || c->s.findings->count > STITCH__MAX_FINDINGS)
            c->stop = true;
    }
}

static int validate(stitch__doc *doc, const stitch_interface *iface, const char *arch, const stitch__limits *limits,
                    bool resolve, stitch_error **err)
{
    stitch__findings f;
    stitch__check c = {.limits = limits};
    int rc = stitch__arch_limits_get(doc->ctx, arch, &c.arch, err);
    if (rc)
        return rc;
    stitch__findings_init(&f, doc->ctx);
    for (size_t i = 0; i < iface->tensor_count; i++) {
        if (iface->tensors[i].problem)
            stitch__finding(&f, "tensor %s of the task: %s", iface->tensors[i].name, iface->tensors[i].problem);
    }
    if ((resolve && (rc = stitch__resolve(doc, iface, &f, err)) != STITCH_OK) ||
        (rc = stitch__session_begin(&c.s, doc, iface, &f, err)) != STITCH_OK)
        goto out;
    if (c.s.workspace_bytes > limits->workspace_bytes)
        stitch__finding(&f, "buffers: all together have %" PRIu64 " bytes, the limit is %" PRIu64, c.s.workspace_bytes,
                        limits->workspace_bytes);
    if (!doc->run.count)
        stitch__finding(&f, "run: there are no steps");
    walk(&c, &doc->prepare);
    c.launches = c.iterations = 0;
    c.stop = false;
    walk(&c, &doc->run);
    if (c.s.nomem)
        rc = stitch__err_nomem(doc->ctx, err);
    if (rc == STITCH_OK)
        rc = stitch__check_access(doc, &f, err);
    if (rc == STITCH_OK)
        rc = stitch__findings_end(&f, STITCH_E_VALIDATE, err);
out:
    stitch__session_end(&c.s);
    stitch__buf_free(&f.text);
    return rc;
}

int stitch__doc_validate(stitch__doc *doc, const stitch_interface *iface, const char *arch,
                         const stitch__limits *limits, stitch_error **err)
{
    return validate(doc, iface, arch, limits, true, err);
}

int stitch__doc_revalidate(stitch__doc *doc, const stitch_interface *iface, const char *arch,
                           const stitch__limits *limits, stitch_error **err)
{
    return validate(doc, iface, arch, limits, false, err);
}

const stitch__step *stitch__steps_leaf(const stitch__steps *list, size_t *index)
{
    for (size_t i = 0; i < list->count; i++) {
        const stitch__step *step = &list->items[i];
        if (step->kind == STITCH__STEP_REPEAT) {
            step = stitch__steps_leaf(&step->u.repeat->steps, index);
            if (step)
                return step;
        } else if ((*index)-- == 0) {
            *index = 0;
            return step;
        }
    }
    return NULL;
}
