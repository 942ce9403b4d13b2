/* SPDX-License-Identifier: MIT
 *
 * Kernel steps against the signatures that the compiler reports: number, kinds, sizes and types of arguments, and what
 * the launch asks of the kernel. Parameters that are pointers to const tell reads from writes.
 */
#include <stdio.h>

#include "program/program.h"

typedef struct checker {
    stitch__doc *doc;
    const stitch_image *image;
    stitch__session *s; /* NULL: no values */
    int64_t shared_limit;
    stitch__findings *f;
} checker;

static size_t count_kernels(const stitch__steps *list)
{
    size_t n = 0;
    for (size_t i = 0; i < list->count; i++) {
        n += list->items[i].kind == STITCH__STEP_KERNEL;
        if (list->items[i].kind == STITCH__STEP_REPEAT)
            n += count_kernels(&list->items[i].u.repeat->steps);
    }
    return n;
}

static int add_names(const stitch__steps *list, stitch__symbols *names)
{
    for (size_t i = 0; i < list->count; i++) {
        const stitch__step *step = &list->items[i];
        if (step->kind == STITCH__STEP_KERNEL &&
            stitch__symbol(names, step->u.kernel->name, strlen(step->u.kernel->name)) < 0)
            return STITCH_E_NOMEM;
        if (step->kind == STITCH__STEP_REPEAT && add_names(&step->u.repeat->steps, names))
            return STITCH_E_NOMEM;
    }
    return STITCH_OK;
}

int stitch__kernel_names(const stitch__doc *doc, const char ***names, size_t *count, stitch_error **err)
{
    stitch__arena arena = {.ctx = doc->ctx};
    stitch__symbols unique = {.arena = &arena};
    size_t most = count_kernels(&doc->prepare) + count_kernels(&doc->run), bytes = 0;
    *names = NULL;
    *count = 0;
    if (!most)
        return STITCH_OK;
    if (add_names(&doc->prepare, &unique) == STITCH_OK && add_names(&doc->run, &unique) == STITCH_OK) {
        for (size_t i = 0; i < unique.count; i++)
            bytes += strlen(unique.names[i]) + 1;
        *names = stitch__alloc(doc->ctx, unique.count * sizeof(**names) + bytes); /* the list, and the text behind it */
    }
    if (*names) {
        char *text = (char *)(*names + unique.count);
        for (size_t i = 0; i < unique.count; i++) {
            size_t len = strlen(unique.names[i]) + 1;
            (*names)[i] = memcpy(text, unique.names[i], len);
            text += len;
        }
        *count = unique.count;
    }
    stitch__arena_free(&arena);
    return *names ? STITCH_OK : stitch__err_nomem(doc->ctx, err);
}

/* How an argument reads in a message: "buffer h (f16)", "a scalar {\"i32\"}". */
static void describe(const checker *c, const stitch__arg *a, char *out, size_t size)
{
    if (a->kind == STITCH__ARG_SCALAR) {
        snprintf(out, size, "a scalar {\"%s\"} of %zu bytes", stitch__scalar_name(a->scalar),
                 stitch__scalar_size(a->scalar));
    } else if (a->kind == STITCH__ARG_TENSOR_MAP) {
        snprintf(out, size, "a tensor map");
    } else if (a->ref.tensor < 0) {
        snprintf(out, size, "a pointer to %.80s", a->ref.name);
    } else {
        const stitch__tensor *t = &c->doc->tensors[a->ref.tensor];
        static const char *const roles[] = {"input", "weight", "output", "state"};
        snprintf(out, size, "%s %.80s (%s)", t->role == STITCH__ROLE_BUFFER ? "buffer" : roles[t->role], t->name,
                 stitch_dtype_name(t->dtype));
    }
}

static int plain(int dtype)
{
    switch (dtype) {
    case STITCH_DTYPE_TF32: return STITCH_DTYPE_F32;
    case STITCH_DTYPE_U8:
    case STITCH_DTYPE_BOOL: return STITCH_DTYPE_I8;
    default: return dtype;
    }
}

static bool is_integer(int dtype)
{
    return dtype >= STITCH_DTYPE_I64;
}

/* Whether a kernel may see elements of one type through a pointer to another: bytes may be anything, and integers of
 * the same size may stand for the bits. */
static bool pointee_fits(int tensor, int param)
{
    tensor = plain(tensor);
    param = plain(param);
    if (param == STITCH_DTYPE_NONE || param == tensor || param == STITCH_DTYPE_I8)
        return true;
    return stitch_dtype_size(tensor) == stitch_dtype_size(param) && (is_integer(param) || is_integer(tensor));
}

static bool scalar_fits(const stitch__arg *a, const stitch_param_info *p)
{
    int want = plain(p->dtype), have = stitch__scalar_dtype(a->scalar);
    if (p->size != stitch__scalar_size(a->scalar))
        return false;
    return p->kind == STITCH_PARAM_UNKNOWN || want == STITCH_DTYPE_NONE || want == have ||
           (is_integer(want) && is_integer(have));
}

static void check_arg(checker *c, const stitch__step *step, size_t index, stitch__arg *a, const stitch_param_info *p)
{
    char what[160], type[160], place[STITCH__PLACE_SIZE], field[32];
    bool ok;
    switch (a->kind) {
    case STITCH__ARG_POINTER:
        ok = p->kind == STITCH_PARAM_UNKNOWN ? p->size == 8 : p->kind == STITCH_PARAM_POINTER;
        ok = ok && (a->ref.tensor < 0 || p->kind == STITCH_PARAM_UNKNOWN ||
                    pointee_fits(c->doc->tensors[a->ref.tensor].dtype, p->dtype));
        break;
    case STITCH__ARG_SCALAR:
        ok = (p->kind == STITCH_PARAM_SCALAR || p->kind == STITCH_PARAM_UNKNOWN || p->kind == STITCH_PARAM_STRUCT) &&
             scalar_fits(a, p);
        break;
    default: ok = p->size == 128 && (p->kind == STITCH_PARAM_UNKNOWN || p->kind == STITCH_PARAM_STRUCT); break;
    }
    if (ok) {
        if (p->kind == STITCH_PARAM_POINTER)
            a->access = p->is_const ? STITCH__READS : STITCH__MAY_WRITE;
        else if (a->kind == STITCH__ARG_TENSOR_MAP)
            a->access = STITCH__TOUCHES;
        return;
    }
    describe(c, a, what, sizeof(what));
    if (p->type && *p->type)
        snprintf(type, sizeof(type), "`%.140s`", p->type);
    else
        snprintf(type, sizeof(type), "%s of %" PRIu64 " bytes",
                 p->kind == STITCH_PARAM_POINTER  ? "a pointer"
                 : p->kind == STITCH_PARAM_SCALAR ? "a scalar"
                                                  : "a value",
                 p->size);
    snprintf(field, sizeof(field), "args[%zu]", index);
    stitch__finding(c->f, "%s is %s, but parameter %zu of %.100s is %s", stitch__place(step, field, place), what, index,
                    step->u.kernel->name, type);
}

/* What the launch asks for, where it does not depend on a loop variable. */
static void check_launch(checker *c, const stitch__step *step, const stitch_kernel_info *k)
{
    stitch__kernel_values v;
    char place[STITCH__PLACE_SIZE];
    if (!c->s)
        return;
    const stitch__kernel_step *s = step->u.kernel;
    stitch__expr *const *lists[] = {s->block, &s->shared};
    size_t counts[] = {s->block_rank, s->shared ? 1 : 0};
    for (size_t l = 0; l < 2; l++) {
        for (size_t i = 0; i < counts[l]; i++) { /* loop variables have no value here */
            for (size_t o = 0; o < lists[l][i]->count; o++) {
                int32_t symbol = lists[l][i]->code[o].symbol;
                if (symbol >= 0 && c->s->env.values[symbol].state == STITCH__SYMBOL_UNKNOWN)
                    return;
            }
        }
    }
    memset(&v, 0, sizeof(v));
    int64_t threads = 1;
    for (size_t i = 0; i < s->block_rank; i++) {
        if (!stitch__eval(c->s, step, "block", s->block[i], &v.block[i]) || v.block[i] < 1 || v.block[i] > 1024)
            return;
        threads *= v.block[i];
    }
    if (s->shared && !stitch__eval(c->s, step, "shared", s->shared, &v.shared))
        return;
    if (k->max_threads > 0 && threads > k->max_threads)
        stitch__finding(c->f, "%s has %" PRId64 " threads, but the kernel's __launch_bounds__ allow %" PRId64,
                        stitch__place(step, "block", place), threads, k->max_threads);
    if (k->static_shared > 0 && v.shared > 0 && v.shared + k->static_shared > c->shared_limit)
        stitch__finding(c->f,
                        "%s is %" PRId64 " bytes; with %" PRId64
                        " bytes of static shared memory that is more than the limit of %" PRId64,
                        stitch__place(step, "shared", place), v.shared, k->static_shared, c->shared_limit);
    if (k->registers > 0 && (threads + 31) / 32 * 32 * k->registers > 65536)
        stitch__finding(c->f,
                        "%s has %" PRId64 " threads of %" PRId64
                        " registers each, more than the 65536 of a multiprocessor; use __launch_bounds__(%" PRId64
                        ") so that the compiler keeps to fewer",
                        stitch__place(step, "block", place), threads, k->registers, threads);
}

static void check_kernel(checker *c, stitch__step *step)
{
    stitch__kernel_step *k = step->u.kernel;
    stitch_kernel_info info = STITCH_KERNEL_INFO_INIT;
    char place[STITCH__PLACE_SIZE];
    size_t index;
    if (stitch_image_find(c->image, k->name, &index) || stitch_image_kernel(c->image, index, &info)) {
        stitch__finding(c->f, "%s.kernel: the compiled code has no kernel %.100s", step->place, k->name);
        return;
    }
    if (info.param_count != k->arg_count) {
        stitch__finding(c->f, "%s has %zu arguments, but %.100s has %zu parameters", stitch__place(step, "args", place),
                        k->arg_count, k->name, info.param_count);
        return;
    }
    for (size_t i = 0; i < k->arg_count; i++) {
        stitch_param_info p = STITCH_PARAM_INFO_INIT;
        if (stitch_image_param(c->image, index, i, &p) == STITCH_OK)
            check_arg(c, step, i, &k->args[i], &p);
    }
    check_launch(c, step, &info);
}

static void check_list(checker *c, const stitch__steps *list)
{
    for (size_t i = 0; i < list->count && c->f->count <= STITCH__MAX_FINDINGS; i++) {
        if (list->items[i].kind == STITCH__STEP_KERNEL)
            check_kernel(c, &list->items[i]);
        else if (list->items[i].kind == STITCH__STEP_REPEAT)
            check_list(c, &list->items[i].u.repeat->steps);
    }
}

int stitch__check_signatures(stitch__doc *doc, const stitch_image *image, const stitch_interface *iface,
                             stitch__findings *f, stitch_error **err)
{
    stitch__arch_limits limits;
    stitch__session s;
    checker c = {doc, image, NULL, 0, f};
    int rc = stitch__arch_limits_get(doc->ctx, stitch_image_arch(image), &limits, err);
    if (rc)
        return rc;
    c.shared_limit = limits.shared_per_block;
    if (iface) {
        rc = stitch__session_begin(&s, doc, iface, f, err);
        c.s = &s;
    }
    if (rc == STITCH_OK)
        check_list(&c, &doc->prepare);
    if (rc == STITCH_OK)
        check_list(&c, &doc->run);
    if (rc == STITCH_OK && iface && !f->count)
        rc = stitch__check_access(doc, f, err);
    if (iface)
        stitch__session_end(&s);
    return rc;
}
