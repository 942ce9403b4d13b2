/* SPDX-License-Identifier: MIT
 *
 * Who compiles the program under test: a process of its own, unless the caller trusts the program. A source can make
 * NVRTC crash or run for hours; here that would be this process's end, or its thread's.
 */
#include "verify/verify.h"

#include "program/program.h"

typedef struct apart {
    stitch__verify *v;
    bool missing; /* no process could be had, and none has seen the source */
} apart;

bool stitch__wants_compiler(const stitch__verify *v)
{
    return v->options.where != STITCH_VERIFY_HERE;
}

static int run_apart(void *self, const stitch__scope *scope, const stitch__rtc_input *in, stitch__rtc *out,
                     stitch_error **err)
{
    apart *a = self;
    int rc = stitch__worker_compile(a->v->ctx, scope, NULL, in, out, &a->missing, err);

    a->v->seen_by_compiler |= !a->missing;
    return rc;
}

/* As for the program itself (place.c): there is none, and the options leave it to us. Once a process has had the source
 * there is no way back: one that ends its compiler must not get into this process by that. */
static bool can_do_without(const stitch__verify *v, const apart *a, int rc)
{
    return a->missing && v->options.where == STITCH_VERIFY_AUTO && !v->seen_by_compiler &&
           (rc == STITCH_E_UNSUPPORTED || rc == STITCH_E_NOT_FOUND || rc == STITCH_E_IO);
}

static int say_it_is_here(stitch__verify *v, const stitch_error *why, int rc, stitch_error **err)
{
    if (v->compiles_here)
        return STITCH_OK;
    v->compiles_here = true;
    return stitch__report_note(v->report, err, "the program was compiled in the host's process: there is no other (%s)",
                               why ? stitch_error_message(why) : stitch_status_text(rc));
}

/* Half of the call's time at the most: a program that compiles longer leaves too little for what comes then. */
static int64_t time_to_compile(const stitch__verify *v, bool here)
{
    int64_t left = stitch__scope_timeout_ms(&v->scope), half = v->options.timeout_ms / 2;

    if (here || left < half)
        return left;
    return half > 1 ? half : 1; /* 0 would be no limit */
}

int stitch__candidate_compile(stitch__verify *v, const char *arch, bool ptx, const stitch_image **image, int *code,
                              stitch_error **why, stitch_error **err)
{
    stitch_compile_options options = STITCH_COMPILE_OPTIONS_INIT;
    apart a = {v, false};
    const stitch__compiler by = {run_apart, &a};
    bool here = !stitch__wants_compiler(v) || v->compiles_here;
    int rc;

    options.arch = arch;
    options.ptx = ptx;
    options.cancel = v->options.cancel;
    options.timeout_ms = time_to_compile(v, here);
    *code = stitch__program_compile_by(v->program, &options, here ? NULL : &by, image, why);
    if (*code && can_do_without(v, &a, *code)) {
        rc = say_it_is_here(v, *why, *code, err);
        stitch_error_free(*why);
        *why = NULL;
        if (rc)
            return rc;
        options.timeout_ms = time_to_compile(v, true);
        *code = stitch_program_compile(v->program, &options, image, why);
    } else if (*code && (a.missing || (here && *code == STITCH_E_TIMEOUT && stitch__warm_compiles(v)))) {
        /* Which is nobody's fault but this machine's, or had no turn: the task's own programs were before it. */
        rc = *code;
        stitch__err_hand_on(err, why);
        *code = STITCH_OK;
        return rc;
    }
    return STITCH_OK;
}

int stitch__candidate_ptx(void *self, const char *arch, const stitch_image **image, stitch_error **err)
{
    stitch__verify *v = self;
    const stitch__compiled *there = stitch__program_compiled(v->program, arch, true);
    stitch_error *why = NULL;
    int code = STITCH_OK, rc;

    *image = there ? there->image : NULL;
    if (there)
        return STITCH_OK;
    rc = stitch__candidate_compile(v, arch, true, image, &code, &why, err);
    if (!rc && code)
        stitch__err_hand_on(err, &why);
    return rc ? rc : code;
}
