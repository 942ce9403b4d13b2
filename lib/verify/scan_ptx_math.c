/* SPDX-License-Identifier: MIT
 *
 * What an instruction of PTX computes with, by its text.
 */
#include "verify/scan_ptx.h"

/* The modifiers of "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32" that are types, at most `max`. */
static size_t types_of(stitch__ptx_token op, int *out, size_t max)
{
    static const struct {
        const char *text;
        uint8_t type;
    } types[] = {{"f64", STITCH__SCAN_F64},
                 {"f32", STITCH__SCAN_F32},
                 {"f32x2", STITCH__SCAN_F32},
                 {"tf32", STITCH__SCAN_TF32},
                 {"f16", STITCH__SCAN_F16},
                 {"f16x2", STITCH__SCAN_F16},
                 {"bf16", STITCH__SCAN_BF16},
                 {"bf16x2", STITCH__SCAN_BF16},
                 {"e4m3", STITCH__SCAN_E4M3},
                 {"e4m3x2", STITCH__SCAN_E4M3},
                 {"e4m3x4", STITCH__SCAN_E4M3},
                 {"e5m2", STITCH__SCAN_E5M2},
                 {"e5m2x2", STITCH__SCAN_E5M2},
                 {"e5m2x4", STITCH__SCAN_E5M2},
                 {"e3m2", STITCH__SCAN_NARROW_FLOAT},
                 {"e3m2x2", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m3", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m3x2", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m1", STITCH__SCAN_NARROW_FLOAT},
                 {"e2m1x2", STITCH__SCAN_NARROW_FLOAT},
                 {"s8", STITCH__SCAN_INT8},
                 {"u8", STITCH__SCAN_INT8},
                 {"s4", STITCH__SCAN_INT4},
                 {"u4", STITCH__SCAN_INT4},
                 {"b1", STITCH__SCAN_BIT},
                 {"s16", STITCH__SCAN_INT32},
                 {"u16", STITCH__SCAN_INT32},
                 {"s32", STITCH__SCAN_INT32},
                 {"u32", STITCH__SCAN_INT32},
                 {"s64", STITCH__SCAN_INT32},
                 {"u64", STITCH__SCAN_INT32},
                 {"kind::tf32", STITCH__SCAN_TF32},
                 {"kind::f16", STITCH__SCAN_F16},
                 {"kind::i8", STITCH__SCAN_INT8},
                 {"kind::f8f6f4", STITCH__SCAN_E4M3},
                 {"kind::mxf8f6f4", STITCH__SCAN_E4M3},
                 {"kind::mxf4", STITCH__SCAN_NARROW_FLOAT},
                 {"kind::mxf4nvf4", STITCH__SCAN_NARROW_FLOAT}};
    size_t count = 0;
    const char *p = op.s, *end = op.s + op.len;
    while (p < end && count < max) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        stitch__ptx_token word = {p, (size_t)((dot ? dot : end) - p)};
        for (size_t i = 0; i < STITCH__COUNT(types); i++) {
            if (stitch__ptx_is(word, types[i].text)) {
                out[count++] = types[i].type;
                break;
            }
        }
        p = dot ? dot + 1 : end;
    }
    return count;
}

static bool has(stitch__ptx_token op, const char *modifier)
{
    size_t n = strlen(modifier);
    for (const char *p = memchr(op.s, '.', op.len); p; p = memchr(p, '.', (size_t)(op.s + op.len - p))) {
        p++;
        size_t left = (size_t)(op.s + op.len - p);
        if (left >= n && memcmp(p, modifier, n) == 0 && (left == n || p[n] == '.'))
            return true;
    }
    return false;
}

stitch__ptx_token stitch__ptx_stem(stitch__ptx_token op)
{
    const char *dot = memchr(op.s, '.', op.len);
    return (stitch__ptx_token){op.s, dot ? (size_t)(dot - op.s) : op.len};
}

static bool is_half(int type)
{
    return type == STITCH__SCAN_F16 || type == STITCH__SCAN_BF16;
}

static void products(stitch__ptx_token op, stitch__sass *s)
{
    int t[8];
    size_t n = types_of(op, t, STITCH__COUNT(t));
    s->kind = STITCH__SCAN_TENSOR;
    s->a = s->b = s->acc = STITCH__SCAN_UNKNOWN;
    if (stitch__ptx_starts(op, "tcgen05.mma")) {
        if (n)
            s->a = s->b = t[0];
    } else if (n == 2 && stitch__ptx_starts(op, "wmma.mma")) { /* d and c: of f16 matrices */
        s->acc = t[0];
        s->a = s->b = STITCH__SCAN_F16;
    } else if (n >= 3) { /* d, a, b */
        s->acc = t[0];
        s->a = t[1];
        s->b = t[2];
    }
}

static void conversion(stitch__ptx_token op, stitch__sass *s)
{
    int t[4];
    if (types_of(op, t, 4) < 2)
        return;
    bool small =
        t[0] == STITCH__SCAN_TF32 || is_half(t[0]) || (t[0] >= STITCH__SCAN_E4M3 && t[0] <= STITCH__SCAN_NARROW_FLOAT);
    bool same_or_smaller =
        t[0] == t[1] || (is_half(t[0]) && t[1] >= STITCH__SCAN_E4M3 && t[1] <= STITCH__SCAN_NARROW_FLOAT);
    if (small && !same_or_smaller) {
        s->kind = STITCH__SCAN_CONVERT;
        s->a = t[0];
        s->b = t[1];
    }
}

static bool stores_global(stitch__ptx_token op)
{
    stitch__ptx_token name = stitch__ptx_stem(op);
    if (stitch__ptx_is(name, "st"))
        return !has(op, "shared") && !has(op, "local") && !has(op, "param") && !has(op, "async") &&
               !has(op, "shared::cta") && !has(op, "shared::cluster");
    if (stitch__ptx_is(name, "red") || stitch__ptx_is(name, "atom"))
        return !has(op, "shared") && !has(op, "shared::cta") && !has(op, "shared::cluster");
    if (stitch__ptx_is(name, "sust") || stitch__ptx_is(name, "sured"))
        return true;
    if (stitch__ptx_starts(op, "wmma.store"))
        return !has(op, "shared") && !has(op, "shared::cta");
    if (stitch__ptx_is(name, "multimem"))
        return !stitch__ptx_starts(op, "multimem.ld_reduce");
    if (stitch__ptx_starts(op, "cp.reduce.async.bulk"))
        return has(op, "global");
    const char *global = stitch__ptx_starts(op, "cp.async.bulk") ? memmem(op.s, op.len, ".global", 7) : NULL;
    const char *shared = global ? memmem(op.s, op.len, ".shared::", 9) : NULL;
    return global && !has(op, "prefetch") && shared && global < shared; /* the destination comes first */
}

static void store(stitch__ptx_token op, stitch__sass *s)
{
    int t[4];
    size_t n = stitch__ptx_is(stitch__ptx_stem(op), "st") ? 0 : types_of(op, t, 4);
    s->kind = STITCH__SCAN_STORE;
    s->acc = n && is_half(t[n - 1]) ? t[n - 1] : 0;
}

static void dot(stitch__sass *s)
{
    s->kind = STITCH__SCAN_DOT;
    s->a = s->b = STITCH__SCAN_INT8;
    s->acc = STITCH__SCAN_INT32;
}

/* "call (ret), %rd1, (params), prototype;": what is called is an address, and not a name. */
static bool calls_register(const stitch__ptx_statement *st, size_t op)
{
    size_t i = op + 1;

    if (i < st->count && stitch__ptx_is(st->t[i], "(")) {
        while (i < st->count && !stitch__ptx_is(st->t[i], ")"))
            i++;
        i += 2;
    }
    return i < st->count && *st->t[i].s == '%';
}

/* What an instruction is; its operands matter for special registers and calls only. */
void stitch__ptx_classify(const stitch__ptx_statement *st, size_t first, stitch__sass *s)
{
    static const char *const arithmetic[] = {"add", "sub", "mul", "fma", "mad", "ex2", "tanh", "div", "rcp", "sqrt"};
    stitch__ptx_token op = st->t[first], name = stitch__ptx_stem(op);
    memset(s, 0, sizeof(*s));
    memcpy(s->name, name.s, name.len < sizeof(s->name) - 1 ? name.len : sizeof(s->name) - 1);
    if (stitch__ptx_is(name, "mma") || stitch__ptx_starts(op, "wmma.mma") ||
        stitch__ptx_starts(op, "wgmma.mma_async") || stitch__ptx_starts(op, "tcgen05.mma"))
        products(op, s);
    else if (stitch__ptx_is(name, "dp4a") || stitch__ptx_is(name, "dp2a"))
        dot(s);
    else if (stitch__ptx_is(name, "cvt"))
        conversion(op, s);
    else if (stitch__ptx_is(name, "call") && calls_register(st, first))
        s->kind = STITCH__SCAN_CALL;
    else if (stores_global(op))
        store(op, s);
    else if ((stitch__ptx_is(name, "st") || stitch__ptx_is(name, "ld")) && has(op, "local"))
        s->kind = STITCH__SCAN_LOCAL;
    else if (stitch__ptx_is(name, "trap") || stitch__ptx_is(name, "brkpt"))
        s->kind = STITCH__SCAN_TRAP;
    for (size_t i = first + 1; i < st->count; i++) {
        if (stitch__ptx_starts(st->t[i], "%clock") || stitch__ptx_starts(st->t[i], "%globaltimer"))
            s->kind = STITCH__SCAN_CLOCK;
        else if (stitch__ptx_is(st->t[i], "%gridid"))
            s->kind = STITCH__SCAN_LAUNCH;
    }
    for (size_t i = 0; i < STITCH__COUNT(arithmetic) && s->kind == STITCH__SCAN_PLAIN; i++) {
        int t[4];
        size_t n = stitch__ptx_is(name, arithmetic[i]) ? types_of(op, t, 4) : 0;
        if (n && is_half(t[n - 1]) && is_half(t[0])) {
            s->kind = STITCH__SCAN_HALF;
            s->a = t[0];
        }
    }
    if (s->kind == STITCH__SCAN_PLAIN &&
        (has(op, "approx") || stitch__ptx_is(name, "sin") || stitch__ptx_is(name, "cos"))) {
        s->kind = STITCH__SCAN_APPROX;
        s->a = STITCH__SCAN_F32;
    }
}
