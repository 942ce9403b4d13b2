/* SPDX-License-Identifier: MIT
 *
 * Steps whose kernel only moves or converts data, by its machine code.
 */
#include "profile/facts.h"
#include "program/program.h"
#include "task/task.h"
#include "verify/scan.h"

/* What a kernel does with integers cannot be told from what it does with indices. */
static bool floats_only(const stitch__doc *doc, const stitch__kernel_step *k)
{
    for (size_t i = 0; i < k->arg_count; i++) {
        const stitch__arg *a = &k->args[i];
        const stitch__ref *ref = a->kind == STITCH__ARG_POINTER      ? &a->ref
                                 : a->kind == STITCH__ARG_TENSOR_MAP ? &a->map->buffer
                                                                     : NULL;
        if (ref && ref->tensor >= 0 && !stitch__dtype_is_float(doc->tensors[ref->tensor].dtype))
            return false;
    }
    return true;
}

static bool computes(const stitch__scan *scan, const char *kernel)
{
    for (size_t i = 0; i < scan->function_count; i++) {
        const stitch__scan_function *f = &scan->functions[i];
        if (f->kernel && f->name && strcmp(f->name, kernel) == 0)
            return scan->from_ptx || f->computing > 0 || !f->instructions;
    }
    return true;
}

int stitch__scan_moves(stitch_context *ctx, const stitch_program *program, const stitch_image *image,
                       stitch__facts *facts, stitch_error **err)
{
    stitch__scan *scan = NULL;
    int rc = image ? stitch__scan_image(ctx, image, NULL, NULL, &scan, NULL) : STITCH_E_NOT_FOUND;

    if (rc == STITCH_E_NOMEM)
        return stitch__err_nomem(ctx, err);
    for (size_t i = 0; rc == STITCH_OK && i < facts->step_count; i++) {
        size_t at = i;
        const stitch__step *step = stitch__steps_leaf(&program->doc.run, &at);
        if (step && step->kind == STITCH__STEP_KERNEL && floats_only(&program->doc, step->u.kernel))
            facts->steps[i].moves_only = !computes(scan, step->u.kernel->name);
    }
    stitch__scan_free(scan);
    return STITCH_OK;
}
