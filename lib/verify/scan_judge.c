/* SPDX-License-Identifier: MIT
 *
 * What a task's precision policy says about the facts of a scan. The rules are those of docs/precision.md.
 */
#include "task/task.h"
#include "verify/scan.h"

typedef struct judge {
    stitch__scan *scan;
    int precision;
    bool f16, bf16, fp8, int8; /* dtypes that the task's own tensors have */
    bool fixed;                /* there are inputs that are the same in every run */
    int about;                 /* stitch__scan_about: of what is found next */
    int rc;
} judge;

static const char *policy(const judge *j)
{
    static const char *const names[] = {"any", "f32", "tf32", "f16"};
    return j->precision >= 0 && j->precision < 4 ? names[j->precision] : "?";
}

/* Texts are the arena's; NULL: out of memory. */
static void find(judge *j, bool major, const char *kernel, const char *what, const char *evidence)
{
    stitch__scan *s = j->scan;
    if (!kernel || !what || !evidence ||
        stitch__grow(s->ctx, &s->findings, &s->finding_cap, s->finding_count + 1, sizeof(*s->findings))) {
        j->rc = STITCH_E_NOMEM;
        return;
    }
    s->findings[s->finding_count++] = (stitch__scan_finding){j->about, major, kernel, what, evidence};
    s->majors += major;
}

static bool narrow(int type)
{
    return type >= STITCH__SCAN_E4M3 && type <= STITCH__SCAN_NARROW_FLOAT;
}

/* Whether the task's own tensors hold this type: computing with what is given is no loss. */
static bool own(const judge *j, int type)
{
    switch (type) {
    case STITCH__SCAN_F16: return j->f16;
    case STITCH__SCAN_BF16: return j->bf16;
    case STITCH__SCAN_UNDECIDED: return j->f16 && j->bf16;
    case STITCH__SCAN_E4M3:
    case STITCH__SCAN_E5M2: return j->fp8;
    case STITCH__SCAN_INT8: return j->int8;
    default: return false;
    }
}

/* Whether products of this type are within the policy. */
static bool allowed(const judge *j, int type)
{
    if (j->precision == STITCH_PRECISION_ANY || own(j, type))
        return true;
    switch (type) {
    case STITCH__SCAN_F64:
    case STITCH__SCAN_F32: return true;
    case STITCH__SCAN_TF32: return j->precision != STITCH_PRECISION_F32;
    case STITCH__SCAN_F16:
    case STITCH__SCAN_BF16:
    case STITCH__SCAN_UNDECIDED: return j->precision == STITCH_PRECISION_F16;
    default: return false;
    }
}

static void product(judge *j, const char *kernel, int a, int b, int acc, const char *evidence)
{
    const char *what =
        stitch__arena_printf(&j->scan->arena, "product of %s and %s with %s accumulation", stitch__scan_type_name(a),
                             stitch__scan_type_name(b), stitch__scan_type_name(acc));
    if (!allowed(j, a) || !allowed(j, b))
        find(j, true, kernel, what, evidence);
    else if (acc == STITCH__SCAN_F16 && j->precision != STITCH_PRECISION_ANY)
        find(j, !j->f16, kernel, what, evidence);
}

static void judge_op(judge *j, const stitch__scan_function *f, const stitch__scan_op *o)
{
    stitch__arena *arena = &j->scan->arena;
    const char *evidence =
        stitch__arena_printf(arena, "%s at %s%" PRIu64 ", %" PRIu64 " of them; the task's precision is %s", o->name,
                             o->ptx ? "PTX line " : "byte ", o->at, o->count, policy(j));
    bool strict = j->precision != STITCH_PRECISION_ANY;
    const char *type = stitch__scan_type_name(o->a);
    j->about = o->kind == STITCH__SCAN_CLOCK || o->kind == STITCH__SCAN_LAUNCH || o->kind == STITCH__SCAN_NOT_KNOWN ||
                       (o->kind == STITCH__SCAN_CALL && o->ptx)
                   ? STITCH__SCAN_ABOUT_CODE
                   : STITCH__SCAN_ABOUT_PRECISION;
    switch (o->kind) {
    case STITCH__SCAN_TENSOR:
    case STITCH__SCAN_DOT: product(j, f->name, o->a, o->b, o->acc, evidence); break;
    case STITCH__SCAN_HALF:
        if (strict)
            find(j, j->precision != STITCH_PRECISION_F16 && !own(j, o->a), f->name,
                 stitch__arena_printf(arena, "arithmetic in %s", type), evidence);
        break;
    case STITCH__SCAN_CONVERT:
        if (strict && !own(j, o->a) && (narrow(o->a) || !allowed(j, o->a)))
            find(j, narrow(o->a), f->name, stitch__arena_printf(arena, "values are rounded to %s", type), evidence);
        break;
    case STITCH__SCAN_STORE:
        if (strict && o->acc)
            find(j, j->precision != STITCH_PRECISION_F16 && !own(j, o->acc), f->name,
                 stitch__arena_printf(arena, "sums in memory in %s", stitch__scan_type_name(o->acc)), evidence);
        break;
    case STITCH__SCAN_CLOCK: find(j, false, f->name, "it reads a clock", evidence); break;
    case STITCH__SCAN_LAUNCH:
        find(j, true, f->name, "it reads the number of its launch, which counts its runs", evidence);
        break;
    case STITCH__SCAN_CALL:
        if (o->ptx)
            find(j, false, f->name, "it calls code by its address, which may be no function of the program", evidence);
        break;
    case STITCH__SCAN_NOT_KNOWN:
        find(j, false, f->name,
             stitch__arena_printf(arena, "%" PRIu64 " of %" PRIu64 " instructions are not known", f->unknown,
                                  f->instructions),
             evidence);
        break;
    default: break;
    }
}

static void judge_function(judge *j, const stitch__scan_function *f)
{
    bool effect = false;
    for (size_t i = 0; i < f->op_count; i++) {
        int kind = f->ops[i].kind;
        effect = effect || kind == STITCH__SCAN_STORE || kind == STITCH__SCAN_CALL || kind == STITCH__SCAN_NOT_KNOWN;
        judge_op(j, f, &f->ops[i]);
    }
    j->about = STITCH__SCAN_ABOUT_CODE;
    if (f->kernel && !effect && !(j->scan->from_ptx && j->scan->function_count > 1))
        find(j, false, f->name, "it stores nothing to global memory",
             stitch__arena_printf(&j->scan->arena, "none of its %" PRIu64 " instructions does", f->instructions));
}

static void judge_module(judge *j)
{
    stitch__arena *arena = &j->scan->arena;
    j->about = STITCH__SCAN_ABOUT_GLOBAL;
    for (size_t i = 0; i < j->scan->global_count; i++) {
        const stitch__scan_global *g = &j->scan->globals[i];
        const char *evidence =
            stitch__arena_printf(arena, "%.200s, %" PRIu64 " bytes%s%s", g->name, g->bytes,
                                 g->initialised ? ", initialised" : "", g->managed ? ", managed memory" : "");
        if (g->access == STITCH__SCAN_WRITTEN)
            find(j, true, "", "it writes a module variable, which lives on from run to run", evidence);
        else if (g->access != STITCH__SCAN_READ_ONLY)
            find(j, true, "", "it has a module variable that is not seen to be read only", evidence);
    }
    if (j->scan->globals_left_out)
        find(j, true, "", "it has more module variables than are looked at",
             stitch__arena_printf(arena, "%zu, and %zu more", j->scan->global_count, j->scan->globals_left_out));
    j->about = STITCH__SCAN_ABOUT_CODE;
    for (size_t i = 0; i < j->scan->call_count; i++) {
        const char *c = j->scan->calls[i];
        const char *what = strcmp(c, "malloc") == 0 || strcmp(c, "free") == 0 ? "it allocates memory on the device"
                           : strcmp(c, "vprintf") == 0                        ? "it prints"
                           : strcmp(c, "__assertfail") == 0                   ? NULL
                                                            : "it calls a function of the device runtime";
        /* Memory of the device's heap is where it was in later runs, and in later loads of the module. */
        if (what && j->fixed && strcmp(c, "malloc") == 0)
            find(j, true, "", "it allocates memory on the device, where it could keep an answer", c);
        else if (what)
            find(j, false, "", what, c);
    }
}

static void read_task(judge *j, const stitch_task *task)
{
    size_t count = stitch_interface_tensor_count(task->iface);
    j->precision = task->precision;
    j->fixed = task->reference.kind != STITCH__COMPUTE_NONE && stitch__task_has_fixed(task); /* else nothing runs */
    for (size_t i = 0; i < count; i++) {
        stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
        if (stitch_interface_tensor(task->iface, i, &info))
            continue;
        j->f16 = j->f16 || info.dtype == STITCH_DTYPE_F16;
        j->bf16 = j->bf16 || info.dtype == STITCH_DTYPE_BF16;
        j->fp8 = j->fp8 || info.dtype == STITCH_DTYPE_F8E4M3 || info.dtype == STITCH_DTYPE_F8E5M2;
        j->int8 = j->int8 || info.dtype == STITCH_DTYPE_I8;
    }
}

/* Code that is called by its address can be that of a kernel which the plan does not launch. */
static bool reaches_all(const stitch__scan *scan)
{
    for (size_t i = 0; i < scan->function_count; i++)
        for (size_t k = 0; scan->functions[i].used && k < scan->functions[i].op_count; k++)
            if (scan->functions[i].ops[k].kind == STITCH__SCAN_CALL)
                return true;
    return false;
}

int stitch__scan_judge(stitch__scan *scan, const stitch_task *task)
{
    judge j = {.scan = scan};
    if (!task)
        return STITCH_OK;
    read_task(&j, task);
    bool all = reaches_all(scan);
    for (size_t i = 0; i < scan->function_count && j.rc == STITCH_OK; i++) {
        if (scan->functions[i].used || all)
            judge_function(&j, &scan->functions[i]);
    }
    j.about = STITCH__SCAN_ABOUT_PRECISION;
    for (size_t i = 0; i < scan->gemm_count && j.rc == STITCH_OK; i++) {
        const stitch__scan_gemm *g = &scan->gemms[i];
        product(&j, "", g->a, g->b, g->acc,
                stitch__arena_printf(&scan->arena, "cuBLASLt product %s; the task's precision is %s", g->place,
                                     policy(&j)));
    }
    judge_module(&j);
    return j.rc;
}
