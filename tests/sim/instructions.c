/* SPDX-License-Identifier: MIT
 *
 * The list of scalar instructions: see instructions.h. Floating-point operations and conversions are enumerated from
 * what stitch__arith_lanes() accepts, so that nothing supported goes untested; instructions_integer.c lists the rest.
 */
#include "instructions_list.h"
#include "reference.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *const instr_type_name[STITCH__NUM_COUNT] = {
    [STITCH__U8] = "u8",         [STITCH__S8] = "s8",         [STITCH__U16] = "u16",   [STITCH__S16] = "s16",
    [STITCH__U32] = "u32",       [STITCH__S32] = "s32",       [STITCH__U64] = "u64",   [STITCH__S64] = "s64",
    [STITCH__F16] = "f16",       [STITCH__BF16] = "bf16",     [STITCH__F32] = "f32",   [STITCH__F64] = "f64",
    [STITCH__F16X2] = "f16x2",   [STITCH__BF16X2] = "bf16x2", [STITCH__TF32] = "tf32", [STITCH__E4M3X2] = "e4m3x2",
    [STITCH__E5M2X2] = "e5m2x2",
};
static const char *const round_name[] = {".rn", ".rz", ".rm", ".rp", ".rna"};
static const char *const integer_round_name[] = {".rni", ".rzi", ".rmi", ".rpi"};

instr *instr_add(instr_items *l)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 512;
        instr *items = realloc(l->items, capacity * sizeof(*items));
        if (!items) {
            l->failed = true;
            return NULL;
        }
        l->items = items;
        l->capacity = capacity;
    }
    instr *in = &l->items[l->count++];
    memset(in, 0, sizeof(*in));
    return in;
}

unsigned instr_width(unsigned type)
{
    switch (type) {
    case STITCH__U64:
    case STITCH__S64:
    case STITCH__F64: return 64;
    case STITCH__U8:
    case STITCH__S8:
    case STITCH__U16:
    case STITCH__S16:
    case STITCH__F16:
    case STITCH__BF16:
    case STITCH__E4M3X2:
    case STITCH__E5M2X2: return 16;
    default: return 32;
    }
}

static unsigned element(unsigned type)
{
    return type == STITCH__F16X2 ? STITCH__F16 : type == STITCH__BF16X2 ? STITCH__BF16 : type;
}

/* ---- floating point -------------------------------------------------------------------------------------------- */

static bool ref_float(const instr *in, const uint64_t *x, uint64_t *out)
{
    stitch__arith_op one = in->u.op;
    one.type = (uint8_t)element(one.type);
    if (one.type == in->u.op.type)
        return ref_arith(&one, x[0], x[1], x[2], out);
    uint64_t lo, hi;
    if (!ref_arith(&one, x[0] & 0xffff, x[1] & 0xffff, x[2] & 0xffff, &lo) ||
        !ref_arith(&one, x[0] >> 16 & 0xffff, x[1] >> 16 & 0xffff, x[2] >> 16 & 0xffff, &hi))
        return false;
    *out = hi << 16 | lo;
    return true;
}

static void add_float(instr_items *l, const stitch__arith_op *op)
{
    static const struct {
        const char *name;
        uint8_t inputs;
        bool rounded, approximate;
    } ops[STITCH__FOP_COUNT] = {
        [STITCH__ADD] = {"add", 2, true, false},
        [STITCH__SUB] = {"sub", 2, true, false},
        [STITCH__MUL] = {"mul", 2, true, false},
        [STITCH__FMA] = {"fma", 3, true, false},
        [STITCH__DIV] = {"div", 2, true, false},
        [STITCH__DIV_APPROX] = {"div.approx", 2, false, true},
        [STITCH__DIV_FULL] = {"div.full", 2, false, true},
        [STITCH__RCP] = {"rcp", 1, true, false},
        [STITCH__RCP_APPROX] = {"rcp.approx", 1, false, true},
        [STITCH__SQRT] = {"sqrt", 1, true, false},
        [STITCH__SQRT_APPROX] = {"sqrt.approx", 1, false, true},
        [STITCH__RSQRT_APPROX] = {"rsqrt.approx", 1, false, true},
        [STITCH__EX2_APPROX] = {"ex2.approx", 1, false, true},
        [STITCH__LG2_APPROX] = {"lg2.approx", 1, false, true},
        [STITCH__SIN_APPROX] = {"sin.approx", 1, false, true},
        [STITCH__COS_APPROX] = {"cos.approx", 1, false, true},
        [STITCH__TANH_APPROX] = {"tanh.approx", 1, false, true},
        [STITCH__MIN] = {"min", 2, false, false},
        [STITCH__MAX] = {"max", 2, false, false},
        [STITCH__NEG] = {"neg", 1, false, false},
        [STITCH__ABS] = {"abs", 1, false, false},
        [STITCH__COPYSIGN] = {"copysign", 2, false, false},
    };
    if (!stitch__arith_lanes(op))
        return;
    instr *in = instr_add(l);
    if (!in)
        return;
    const char *text = ops[op->op].name;
    snprintf(in->name, sizeof(in->name), "%s%s%s%s%s%s%s.%s", text, ops[op->op].rounded ? round_name[op->round] : "",
             op->flags & STITCH__FTZ ? ".ftz" : "", op->flags & STITCH__SAT ? ".sat" : "",
             op->flags & STITCH__RELU ? ".relu" : "", op->flags & STITCH__NAN ? ".NaN" : "",
             op->flags & STITCH__XORSIGN_ABS ? ".xorsign.abs" : "", instr_type_name[op->type]);
    in->inputs = ops[op->op].inputs;
    snprintf(in->code, sizeof(in->code), "%s %%d, %%a%s%s;", in->name, in->inputs > 1 ? ", %b" : "",
             in->inputs > 2 ? ", %c" : "");
    in->dst = op->type;
    for (int k = 0; k < in->inputs; k++)
        in->src[k] = op->type;
    in->u.op = *op;
    if (ops[op->op].approximate)
        in->flags |= INSTR_APPROXIMATE;
    if (op->type == STITCH__F64 && in->inputs > 1)
        in->flags |= INSTR_UNKNOWN_NAN;
    if (op->op == STITCH__NEG || op->op == STITCH__ABS)
        in->flags |= INSTR_CONTEXT;
    in->ref = ref_float;
}

static void add_floats(instr_items *l)
{
    static const uint8_t types[] = {STITCH__F32, STITCH__F64, STITCH__F16, STITCH__F16X2, STITCH__BF16, STITCH__BF16X2};
    for (unsigned t = 0; t < sizeof(types); t++)
        for (unsigned o = 0; o < STITCH__FOP_COUNT; o++)
            for (unsigned round = STITCH__RN; round <= STITCH__RP; round++)
                for (unsigned flags = 0; flags < 32; flags++)
                    add_float(l, &(stitch__arith_op){(uint8_t)o, types[t], (uint8_t)round, (uint8_t)flags, 0});
}

/* ---- conversions ----------------------------------------------------------------------------------------------- */

static bool ref_cvt(const instr *in, const uint64_t *x, uint64_t *out)
{
    stitch__arith_cvt one = in->u.cvt;
    if (one.dst != STITCH__F16X2 && one.dst != STITCH__BF16X2)
        return ref_convert(&one, x[0], out);
    if (one.src != STITCH__F32)
        return false;
    uint64_t hi, lo;
    one.dst = (uint8_t)element(one.dst);
    if (!ref_convert(&one, x[0], &hi) || !ref_convert(&one, x[1], &lo))
        return false;
    *out = hi << 16 | lo;
    return true;
}

static bool widens(const stitch__arith_cvt *c)
{
    static const uint8_t rank[STITCH__NUM_COUNT] = {
        [STITCH__F16] = 1, [STITCH__BF16] = 1, [STITCH__F32] = 2, [STITCH__F64] = 3};
    return rank[c->src] && rank[c->dst] && (rank[c->dst] > rank[c->src] || c->dst == c->src);
}

static void add_cvt(instr_items *l, const stitch__arith_cvt *c)
{
    bool float_dst = c->dst > STITCH__S64, float_src = c->src > STITCH__S64;
    if (!stitch__arith_lanes_cvt(c))
        return;
    instr *in = instr_add(l);
    if (!in)
        return;
    const char *round = "";
    if (c->integer)
        round = integer_round_name[c->round];
    else if (float_dst && !widens(c))
        round = round_name[c->round];
    bool fp8 =
        c->src == STITCH__E4M3X2 || c->src == STITCH__E5M2X2 || c->dst == STITCH__E4M3X2 || c->dst == STITCH__E5M2X2;
    /* The order of modifiers that PTX wants: .rn.satfinite.relu for fp8 and tf32, .rn.relu.satfinite never occurs. */
    snprintf(in->name, sizeof(in->name), "cvt%s%s%s%s%s.%s.%s", round, c->flags & STITCH__FTZ ? ".ftz" : "",
             c->flags & STITCH__SATFINITE ? ".satfinite" : "", c->flags & STITCH__RELU ? ".relu" : "",
             c->flags & STITCH__SAT ? ".sat" : "", instr_type_name[c->dst], instr_type_name[c->src]);
    bool two = c->src == STITCH__F32 && (c->dst == STITCH__F16X2 || c->dst == STITCH__BF16X2 || (fp8 && float_src));
    in->inputs = two ? 2 : 1;
    snprintf(in->code, sizeof(in->code), "%s %%d, %%a%s;", in->name, two ? ", %b" : "");
    in->dst = c->dst;
    in->src[0] = c->src;
    in->src[1] = two ? c->src : 0;
    in->u.cvt = *c;
    in->ref = ref_cvt;
}

/* What stitch__arith_lanes_cvt() offers beyond PTX 8.7 for sm_90, or beyond what ptxas accepts. */
static bool beyond(const stitch__arith_cvt *c)
{
    bool half = c->dst == STITCH__F16 || c->dst == STITCH__BF16;
    bool pair = c->dst == STITCH__F16X2 || c->dst == STITCH__BF16X2;
    if ((half || pair) && c->src == STITCH__F32 && c->flags & (STITCH__RELU | STITCH__SATFINITE) &&
        c->round != STITCH__RN && c->round != STITCH__RZ)
        return true;
    if (pair && c->src == STITCH__F32 && c->round != STITCH__RN && c->round != STITCH__RZ)
        return true;
    if (c->dst == STITCH__F64 && c->src == STITCH__F64 && !c->integer && !(c->flags & STITCH__SAT))
        return true; /* a move */
    if (c->dst == c->src && !c->integer && !c->flags && c->dst > STITCH__S64)
        return true;
    return c->dst == STITCH__TF32 && c->flags & STITCH__SATFINITE && c->round != STITCH__RNA; /* sm_100 */
}

static void add_cvts(instr_items *l)
{
    for (unsigned dst = 1; dst < STITCH__NUM_COUNT; dst++)
        for (unsigned src = 1; src < STITCH__NUM_COUNT; src++)
            for (unsigned n = 0; n < 5 * 64 * 2; n++) {
                stitch__arith_cvt c = {(uint8_t)dst, (uint8_t)src, (uint8_t)(n % 5), (uint8_t)(n / 5 % 64), n / 320};
                if (!beyond(&c))
                    add_cvt(l, &c);
            }
}

instr *instr_list(size_t *count)
{
    instr_items l = {0};
    add_floats(&l);
    add_cvts(&l);
    instr_add_integers(&l);
    if (l.failed) {
        free(l.items);
        return NULL;
    }
    *count = l.count;
    return l.items;
}

/* ---- inputs and kernels ---------------------------------------------------------------------------------------- */

uint64_t instr_input(const instr *in, size_t index_in_list, unsigned sample, unsigned k)
{
    bool two;
    if (k >= in->inputs)
        return 0;
    unsigned type = in->src[k], one = element(type);
    uint64_t state = ((uint64_t)index_in_list << 32 | (uint64_t)sample << 2 | k) * 0x9e3779b97f4a7c15u, v;
    v = ref_pattern(one, &state);
    if (one != type)
        v |= ref_pattern(one, &state) << 16;
    if (type == STITCH__U32 && k > 0 && (sample & 3) && instr_takes_position(in, &two))
        v = two ? ref_random(&state) & 0x3f3f : ref_random(&state) % 70; /* a shift, position or width */
    if (instr_width(type) < 64)
        v &= (1ull << instr_width(type)) - 1;
    if (k == 1 && in->flags & INSTR_DIVIDES && v == 0)
        v = 1;
    /* The one signed quotient that does not fit is not specified either. */
    return v;
}

typedef struct text {
    char *at;
    size_t length, capacity;
    bool failed;
} text;

__attribute__((format(printf, 2, 3))) static void print(text *t, const char *fmt, ...)
{
    va_list ap;
    if (t->failed)
        return;
    for (int tries = 0; tries < 2; tries++) {
        va_start(ap, fmt);
        int n = vsnprintf(t->at ? t->at + t->length : NULL, t->capacity - t->length, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < t->capacity - t->length) {
            t->length += (size_t)n;
            return;
        }
        size_t capacity = 2 * t->capacity + (size_t)(n > 0 ? n : 0) + 4096;
        char *more = n >= 0 ? realloc(t->at, capacity) : NULL;
        if (!more)
            break;
        t->at = more;
        t->capacity = capacity;
    }
    t->failed = true;
}

static void print_code(text *t, const char *code)
{
    for (; *code; code++) {
        if (code[0] == '%' && code[1]) {
            print(t, "%%r%c", code[1]);
            code++;
        } else {
            print(t, "%c", *code);
        }
    }
}

char *instr_kernels(const instr *items, size_t count, unsigned arch)
{
    text t = {0};
    print(&t, ".version 8.7\n.target sm_%u\n.address_size 64\n", arch);
    for (size_t i = 0; i < count; i++) {
        const instr *in = &items[i];
        print(&t, ".visible .entry k%zu(.param .u64 in, .param .u64 out, .param .u32 n)\n{\n", i);
        print(
            &t,
            ".reg .pred %%rp, %%rq; .reg .b32 %%rt, %%ru, %%rv, %%rx; .reg .b64 %%rw, %%ri, %%ro, %%r0, %%r1, %%r2;\n");
        print(&t, ".reg .b%u %%rd;", instr_width(in->dst));
        for (unsigned k = 0; k < in->inputs; k++)
            print(&t, " .reg .b%u %%r%c;", instr_width(in->src[k]), 'a' + (int)k);
        print(&t, "\nmov.u32 %%rt, %%ctaid.x; mov.u32 %%ru, %%ntid.x; mov.u32 %%rv, %%tid.x; mad.lo.u32 %%rt, %%rt, "
                  "%%ru, %%rv;\n"
                  "ld.param.u32 %%ru, [n]; setp.ge.u32 %%rq, %%rt, %%ru; @%%rq bra DONE;\n"
                  "ld.param.u64 %%ri, [in]; cvta.to.global.u64 %%ri, %%ri; ld.param.u64 %%ro, [out]; "
                  "cvta.to.global.u64 %%ro, %%ro;\n"
                  "mul.wide.u32 %%rw, %%rt, 24; add.s64 %%ri, %%ri, %%rw; mul.wide.u32 %%rw, %%rt, 8; add.s64 %%ro, "
                  "%%ro, %%rw;\n");
        for (unsigned k = 0; k < in->inputs; k++) {
            unsigned width = instr_width(in->src[k]);
            print(&t, "ld.global.u64 %%r%u, [%%ri+%u]; ", k, 8 * k);
            if (width == 64)
                print(&t, "mov.b64 %%r%c, %%r%u;\n", 'a' + (int)k, k);
            else
                print(&t, "cvt.u%u.u64 %%r%c, %%r%u;\n", width, 'a' + (int)k, k);
        }
        print_code(&t, in->code);
        if (instr_width(in->dst) == 64)
            print(&t, "\nst.global.u64 [%%ro], %%rd;\n");
        else
            print(&t, "\ncvt.u64.u%u %%rw, %%rd; st.global.u64 [%%ro], %%rw;\n", instr_width(in->dst));
        print(&t, "DONE:\nret;\n}\n");
    }
    if (t.failed) {
        free(t.at);
        return NULL;
    }
    return t.at;
}
