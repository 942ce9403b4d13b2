/* SPDX-License-Identifier: MIT
 *
 * The list of scalar instructions, continued: integers, bits, comparisons and selections with their references in C.
 */
#include "instructions_list.h"
#include "reference.h"

#include <stdarg.h>
#include <stdio.h>

enum kind {
    I_ADD,
    I_SUB,
    I_MUL_LO,
    I_MUL_HI,
    I_MUL_WIDE,
    I_MAD_LO,
    I_MAD_HI,
    I_MAD_WIDE,
    I_ADD_SAT,
    I_SUB_SAT,
    I_MUL24_LO,
    I_SAD,
    I_DIV,
    I_REM,
    I_ABS,
    I_NEG,
    I_MIN,
    I_MAX,
    I_POPC,
    I_CLZ,
    I_BFIND,
    I_BFIND_SHIFT,
    I_BREV,
    I_BFE,
    I_BFI,
    I_AND,
    I_OR,
    I_XOR,
    I_NOT,
    I_CNOT,
    I_SHL,
    I_SHR,
    I_SHF_L_CLAMP,
    I_SHF_L_WRAP,
    I_SHF_R_CLAMP,
    I_SHF_R_WRAP,
    I_LOP3,
    I_PRMT,
    I_BMSK_CLAMP,
    I_BMSK_WRAP,
    I_SZEXT_CLAMP,
    I_SZEXT_WRAP,
    I_DP4A,
    I_DP2A_LO,
    I_DP2A_HI,
    I_CARRY,  /* add.cc, addc */
    I_BORROW, /* sub.cc, subc */
    I_SETP,
    I_SET,
    I_SELP,
    I_SLCT,
    I_TESTP,
};

static uint64_t sign_extend(uint64_t v, unsigned bits)
{
    return (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
}

static uint64_t bit_field_insert(uint64_t a, uint64_t b, unsigned pos, unsigned len, unsigned bits)
{
    for (unsigned i = 0; i < len && pos + i < bits; i++)
        b = (b & ~(1ull << (pos + i))) | (a >> i & 1) << (pos + i);
    return b;
}

static uint64_t bit_field_extract(uint64_t a, unsigned pos, unsigned len, unsigned bits, bool is_signed)
{
    unsigned last = pos + len - 1 < bits - 1 && len ? pos + len - 1 : bits - 1;
    uint64_t fill = !is_signed || len == 0 ? 0 : a >> last & 1, r = 0;
    for (unsigned i = 0; i < bits; i++)
        r |= (i < len && pos + i < bits ? a >> (pos + i) & 1 : fill) << i;
    return r;
}

static uint64_t permute(uint32_t a, uint32_t b, uint32_t c, unsigned mode)
{
    uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    static const uint8_t tables[6][4][4] = {
        {{3, 2, 1, 0}, {4, 3, 2, 1}, {5, 4, 3, 2}, {6, 5, 4, 3}}, /* f4e */
        {{5, 6, 7, 0}, {6, 7, 0, 1}, {7, 0, 1, 2}, {0, 1, 2, 3}}, /* b4e */
        {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}, /* rc8 */
        {{3, 2, 1, 0}, {3, 2, 1, 1}, {3, 2, 2, 2}, {3, 3, 3, 3}}, /* ecl */
        {{0, 0, 0, 0}, {1, 1, 1, 0}, {2, 2, 1, 0}, {3, 2, 1, 0}}, /* ecr */
        {{1, 0, 1, 0}, {3, 2, 3, 2}, {1, 0, 1, 0}, {3, 2, 3, 2}}, /* rc16 */
    };
    for (unsigned i = 0; i < 4; i++) {
        unsigned selector = mode ? tables[mode - 1][c & 3][3 - i] : c >> (4 * i) & 15;
        uint32_t byte = bytes >> (8 * (selector & 7)) & 255;
        if (selector & 8)
            byte = byte & 0x80 ? 0xff : 0;
        r |= byte << (8 * i);
    }
    return r;
}

static bool compare(unsigned cmp, bool less, bool equal, bool nan)
{
    switch (cmp) {
    case STITCH__EQ: return !nan && equal;
    case STITCH__NE: return !nan && !equal;
    case STITCH__LT: return !nan && less;
    case STITCH__LE: return !nan && (less || equal);
    case STITCH__GT: return !nan && !less && !equal;
    case STITCH__GE: return !nan && !less;
    case STITCH__EQU: return nan || equal;
    case STITCH__NEU: return nan || !equal;
    case STITCH__LTU: return nan || less;
    case STITCH__LEU: return nan || less || equal;
    case STITCH__GTU: return nan || (!less && !equal);
    case STITCH__GEU: return nan || !less;
    case STITCH__NUM: return !nan;
    default: return nan;
    }
}

static bool compare_bits(unsigned type, unsigned cmp, bool ftz, uint64_t a, uint64_t b)
{
    const float_format *f = ref_format(type);
    if (!f) {
        __int128 x = ref_load_int(type, a), y = ref_load_int(type, b);
        return compare(cmp, x < y, x == y, false);
    }
    ref_value x = ref_decode(f, ftz ? ref_flush(f, a) : a), y = ref_decode(f, ftz ? ref_flush(f, b) : b);
    quad u = x.kind == REF_INF ? (x.negative ? -ref_pow2(2000) : ref_pow2(2000)) : x.v;
    quad v = y.kind == REF_INF ? (y.negative ? -ref_pow2(2000) : ref_pow2(2000)) : y.v;
    return compare(cmp, u < v, u == v, x.kind == REF_NAN || y.kind == REF_NAN);
}

static uint64_t dot(const instr *in, uint32_t a, uint32_t b, uint32_t c)
{
    bool as = in->u.integer.extra & 1, bs = in->u.integer.extra & 2;
    int64_t sum = 0;
    for (int i = 0; i < (in->u.integer.kind == I_DP4A ? 4 : 2); i++) {
        int64_t x, y;
        if (in->u.integer.kind == I_DP4A) {
            x = as ? (int64_t)(int8_t)(a >> 8 * i) : (int64_t)(uint8_t)(a >> 8 * i);
            y = bs ? (int64_t)(int8_t)(b >> 8 * i) : (int64_t)(uint8_t)(b >> 8 * i);
        } else {
            int at = 8 * i + (in->u.integer.kind == I_DP2A_HI ? 16 : 0);
            x = as ? (int64_t)(int16_t)(a >> 16 * i) : (int64_t)(uint16_t)(a >> 16 * i);
            y = bs ? (int64_t)(int8_t)(b >> at) : (int64_t)(uint8_t)(b >> at);
        }
        sum += x * y;
    }
    return (uint32_t)(sum + (int64_t)c);
}

static bool ref_bits_and_masks(const instr *in, const uint64_t *x, unsigned bits, uint64_t *out)
{
    uint64_t a = x[0], b = x[1], c = x[2];
    bool is_signed = ref_is_int(in->u.integer.type) && ref_int_signed(in->u.integer.type);
    switch (in->u.integer.kind) {
    case I_POPC: *out = (uint64_t)__builtin_popcountll(a); break;
    case I_CLZ: *out = a ? (uint64_t)__builtin_clzll(a) - (64 - bits) : bits; break;
    case I_BFIND:
    case I_BFIND_SHIFT: {
        uint64_t v = is_signed && a >> (bits - 1) ? ~a & (bits == 64 ? ~0ull : (1ull << bits) - 1) : a;
        uint64_t at = v ? 63 - (uint64_t)__builtin_clzll(v) : 0xffffffff;
        *out = v && in->u.integer.kind == I_BFIND_SHIFT ? bits - 1 - at : at;
        break;
    }
    case I_BREV:
        *out = 0;
        for (unsigned i = 0; i < bits; i++)
            *out |= (a >> i & 1) << (bits - 1 - i);
        break;
    case I_BFE: /* PTX masks position and length; code compiled for the 64-bit form does not */
        *out = bits == 64 ? bit_field_extract(a, b < 256 ? b : 255, c < 256 ? c : 255, bits, is_signed)
                          : bit_field_extract(a, b & 255, c & 255, bits, is_signed);
        break;
    case I_BFI: *out = bit_field_insert(a, b, c & 255, c >> 8 & 255, bits); break;
    case I_AND: *out = a & b; break;
    case I_OR: *out = a | b; break;
    case I_XOR: *out = a ^ b; break;
    case I_NOT: *out = ~a; break;
    case I_CNOT: *out = a == 0; break;
    case I_SHL: *out = b >= bits ? 0 : a << b; break;
    case I_SHR:
        if (is_signed)
            *out = (uint64_t)((int64_t)sign_extend(a, bits) >> (b >= bits ? bits - 1 : b));
        else
            *out = b >= bits ? 0 : a >> b;
        break;
    case I_SHF_L_CLAMP:
    case I_SHF_L_WRAP: {
        uint64_t n = in->u.integer.kind == I_SHF_L_WRAP ? c & 31 : c > 32 ? 32 : c;
        *out = n == 32 ? a : (b << 32 | a) >> (32 - n);
        break;
    }
    case I_SHF_R_CLAMP:
    case I_SHF_R_WRAP: {
        uint64_t n = in->u.integer.kind == I_SHF_R_WRAP ? c & 31 : c > 32 ? 32 : c;
        *out = (b << 32 | a) >> n;
        break;
    }
    case I_LOP3:
        *out = 0;
        for (unsigned i = 0; i < 32; i++) {
            unsigned row = (unsigned)((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1));
            *out |= (uint64_t)(in->u.integer.immediate >> row & 1) << i;
        }
        break;
    case I_PRMT: *out = permute((uint32_t)a, (uint32_t)b, (uint32_t)c, in->u.integer.extra); break;
    case I_BMSK_CLAMP:
    case I_BMSK_WRAP: {
        bool wrap = in->u.integer.kind == I_BMSK_WRAP;
        uint64_t start = wrap ? a & 31 : a > 32 ? 32 : a, width = wrap ? b & 31 : b > 32 ? 32 : b;
        *out = ((1ull << width) - 1) << start;
        break;
    }
    case I_SZEXT_CLAMP:
    case I_SZEXT_WRAP: {
        uint64_t n = in->u.integer.kind == I_SZEXT_WRAP ? b & 31 : b > 32 ? 32 : b;
        uint64_t v = a & ((1ull << n) - 1);
        *out = is_signed && n && v >> (n - 1) & 1 ? v | ~((1ull << n) - 1) : v;
        break;
    }
    default: return false;
    }
    return true;
}

static bool ref_integer(const instr *in, const uint64_t *x, uint64_t *out)
{
    unsigned type = in->u.integer.type, kind = in->u.integer.kind, bits = instr_width(type);
    uint64_t mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    if (ref_bits_and_masks(in, x, bits, out)) {
        *out &= instr_width(in->dst) == 64 ? ~0ull : (1ull << instr_width(in->dst)) - 1;
        return true;
    }
    __int128 a = 0, b = 0, c = 0, r;
    if (ref_is_int(type)) {
        a = ref_load_int(type, x[0]);
        b = ref_load_int(type, x[1]);
        c = ref_load_int(type, x[2]);
    }
    uint64_t wide = bits == 32 ? ~0ull : 0xffffffff;
    switch (kind) {
    case I_ADD: r = a + b; break;
    case I_SUB: r = a - b; break;
    case I_MUL_LO: r = (__int128)((unsigned __int128)a * (unsigned __int128)b); break;
    case I_MUL_HI:
        if (bits == 64 && !ref_int_signed(type)) {
            *out = (uint64_t)((unsigned __int128)x[0] * x[1] >> 64);
            return true;
        }
        r = a * b >> bits;
        break;
    case I_MUL_WIDE: *out = (uint64_t)(a * b) & wide; return true;
    case I_MAD_LO: r = (__int128)((unsigned __int128)a * (unsigned __int128)b + (unsigned __int128)c); break;
    case I_MAD_HI:
        if (bits == 64 && !ref_int_signed(type)) {
            *out = (uint64_t)((unsigned __int128)x[0] * x[1] >> 64) + x[2];
            return true;
        }
        r = (a * b >> bits) + c;
        break;
    case I_MAD_WIDE: *out = ((uint64_t)(a * b) + x[2]) & wide; return true;
    case I_ADD_SAT: r = ref_clamp(type, a + b); break;
    case I_SUB_SAT: r = ref_clamp(type, a - b); break;
    case I_MUL24_LO: {
        int64_t p = ref_int_signed(type) ? (int64_t)sign_extend(x[0], 24) * (int64_t)sign_extend(x[1], 24)
                                         : (int64_t)((x[0] & 0xffffff) * (x[1] & 0xffffff));
        r = p;
        break;
    }
    case I_SAD: r = c + (a < b ? b - a : a - b); break;
    case I_DIV: r = b ? a / b : 0; break;
    case I_REM: r = b ? a % b : 0; break;
    case I_ABS: r = a < 0 ? -a : a; break;
    case I_NEG: r = -a; break;
    case I_MIN: r = a < b ? a : b; break;
    case I_MAX: r = a > b ? a : b; break;
    case I_DP4A:
    case I_DP2A_LO:
    case I_DP2A_HI: *out = dot(in, (uint32_t)x[0], (uint32_t)x[1], (uint32_t)x[2]); return true;
    case I_CARRY: *out = x[0] + x[1]; return true;
    case I_BORROW: *out = x[0] - x[1]; return true;
    case I_SETP: *out = compare_bits(type, in->u.integer.extra, in->u.integer.immediate & 1, x[0], x[1]); return true;
    case I_SET: {
        bool yes = compare_bits(type, in->u.integer.extra, in->u.integer.immediate & 1, x[0], x[1]);
        *out = in->dst == STITCH__F32 ? (yes ? 0x3f800000 : 0) : yes ? 0xffffffff : 0;
        return true;
    }
    case I_SELP: *out = (x[2] & 1 ? x[0] : x[1]) & mask; return true;
    case I_SLCT: {
        if (in->src[2] == STITCH__F32) {
            uint64_t z = in->u.integer.immediate & 1 ? ref_flush(&REF_F32, x[2]) : x[2];
            *out = compare_bits(STITCH__F32, STITCH__GE, false, z, 0) ? x[0] : x[1];
        } else {
            *out = (int32_t)x[2] >= 0 ? x[0] : x[1];
        }
        *out &= mask;
        return true;
    }
    case I_TESTP: {
        ref_value v = ref_decode(ref_format(type), x[0]);
        const float_format *f = ref_format(type);
        bool tiny = v.kind == REF_FINITE && v.v != 0 && (v.v < 0 ? -v.v : v.v) < ref_pow2(f->emin);
        bool answers[] = {v.kind == REF_FINITE,
                          v.kind == REF_INF,
                          v.kind != REF_NAN,
                          v.kind == REF_NAN,
                          v.kind == REF_FINITE && !tiny, /* zero too, on the hardware */
                          tiny};
        *out = answers[in->u.integer.extra];
        return true;
    }
    default: return false;
    }
    *out = (uint64_t)r & mask;
    return true;
}

__attribute__((format(printf, 8, 9))) static void put(instr_items *l, unsigned kind, unsigned type, unsigned dst,
                                                      unsigned s0, unsigned s1, unsigned s2, const char *fmt, ...)
{
    instr *in = instr_add(l);
    if (!in)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(in->name, sizeof(in->name), fmt, ap);
    va_end(ap);
    in->dst = (uint8_t)dst;
    in->src[0] = (uint8_t)s0;
    in->src[1] = (uint8_t)s1;
    in->src[2] = (uint8_t)s2;
    in->inputs = s2 ? 3 : s1 ? 2 : 1;
    in->ref = ref_integer;
    in->u.integer.kind = (uint8_t)kind;
    in->u.integer.type = (uint8_t)type;
    snprintf(in->code, sizeof(in->code), "%s %%d, %%a%s%s;", in->name, in->inputs > 1 ? ", %b" : "",
             in->inputs > 2 ? ", %c" : "");
}

static instr *last(instr_items *l)
{
    static instr none;
    return l->failed || !l->count ? &none : &l->items[l->count - 1];
}

static void add_arithmetic(instr_items *l)
{
    static const uint8_t types[] = {STITCH__U16, STITCH__S16, STITCH__U32, STITCH__S32, STITCH__U64, STITCH__S64};
    for (unsigned i = 0; i < sizeof(types); i++) {
        unsigned t = types[i], bits = instr_width(t);
        bool is_signed = ref_int_signed(t);
        unsigned twice = bits == 16 ? (is_signed ? STITCH__S32 : STITCH__U32) : is_signed ? STITCH__S64 : STITCH__U64;
        const char *n = instr_type_name[t];
        put(l, I_ADD, t, t, t, t, 0, "add.%s", n);
        put(l, I_SUB, t, t, t, t, 0, "sub.%s", n);
        put(l, I_MUL_LO, t, t, t, t, 0, "mul.lo.%s", n);
        put(l, I_MUL_HI, t, t, t, t, 0, "mul.hi.%s", n);
        put(l, I_MAD_LO, t, t, t, t, t, "mad.lo.%s", n);
        put(l, I_MAD_HI, t, t, t, t, t, "mad.hi.%s", n);
        put(l, I_SAD, t, t, t, t, t, "sad.%s", n);
        put(l, I_DIV, t, t, t, t, 0, "div.%s", n);
        last(l)->flags |= INSTR_DIVIDES;
        put(l, I_REM, t, t, t, t, 0, "rem.%s", n);
        last(l)->flags |= INSTR_DIVIDES;
        put(l, I_MIN, t, t, t, t, 0, "min.%s", n);
        put(l, I_MAX, t, t, t, t, 0, "max.%s", n);
        if (bits < 64) {
            put(l, I_MUL_WIDE, t, twice, t, t, 0, "mul.wide.%s", n);
            put(l, I_MAD_WIDE, t, twice, t, t, twice, "mad.wide.%s", n);
        }
        if (is_signed) {
            put(l, I_ABS, t, t, t, 0, 0, "abs.%s", n);
            put(l, I_NEG, t, t, t, 0, 0, "neg.%s", n);
        }
        put(l, I_SHR, t, t, t, STITCH__U32, 0, "shr.%s", n);
        if (bits == 32)
            put(l, I_MUL24_LO, t, t, t, t, 0, "mul24.lo.%s", n);
        if (bits > 16) {
            put(l, I_BFE, t, t, t, STITCH__U32, STITCH__U32, "bfe.%s", n);
            put(l, I_BFIND, t, STITCH__U32, t, 0, 0, "bfind.%s", n);
            put(l, I_BFIND_SHIFT, t, STITCH__U32, t, 0, 0, "bfind.shiftamt.%s", n);
        }
    }
    put(l, I_ADD_SAT, STITCH__S32, STITCH__S32, STITCH__S32, STITCH__S32, 0, "add.sat.s32");
    put(l, I_SUB_SAT, STITCH__S32, STITCH__S32, STITCH__S32, STITCH__S32, 0, "sub.sat.s32");
    for (unsigned e = 0; e < 4; e++) {
        const char *x = e & 1 ? "s32" : "u32", *y = e & 2 ? "s32" : "u32";
        put(l, I_DP4A, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, "dp4a.%s.%s", x, y);
        last(l)->u.integer.extra = (uint8_t)e;
        put(l, I_DP2A_LO, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, "dp2a.lo.%s.%s", x, y);
        last(l)->u.integer.extra = (uint8_t)e;
        put(l, I_DP2A_HI, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, "dp2a.hi.%s.%s", x, y);
        last(l)->u.integer.extra = (uint8_t)e;
    }
    /* 64-bit sums out of two 32-bit ones, through the carry */
    put(l, I_CARRY, STITCH__U64, STITCH__U64, STITCH__U64, STITCH__U64, 0, "add.cc.u32 + addc.u32");
    snprintf(last(l)->code, sizeof(last(l)->code),
             "mov.b64 {%%t, %%u}, %%a; mov.b64 {%%v, %%x}, %%b; add.cc.u32 %%t, %%t, %%v; addc.u32 %%u, %%u, %%x; "
             "mov.b64 %%d, {%%t, %%u};");
    put(l, I_BORROW, STITCH__U64, STITCH__U64, STITCH__U64, STITCH__U64, 0, "sub.cc.u32 + subc.u32");
    snprintf(last(l)->code, sizeof(last(l)->code),
             "mov.b64 {%%t, %%u}, %%a; mov.b64 {%%v, %%x}, %%b; sub.cc.u32 %%t, %%t, %%v; subc.u32 %%u, %%u, %%x; "
             "mov.b64 %%d, {%%t, %%u};");
}

static void add_logic(instr_items *l)
{
    static const uint8_t types[] = {STITCH__U16, STITCH__U32, STITCH__U64};
    for (unsigned i = 0; i < 3; i++) {
        unsigned t = types[i], bits = instr_width(t);
        put(l, I_AND, t, t, t, t, 0, "and.b%u", bits);
        put(l, I_OR, t, t, t, t, 0, "or.b%u", bits);
        put(l, I_XOR, t, t, t, t, 0, "xor.b%u", bits);
        put(l, I_NOT, t, t, t, 0, 0, "not.b%u", bits);
        put(l, I_CNOT, t, t, t, 0, 0, "cnot.b%u", bits);
        put(l, I_SHL, t, t, t, STITCH__U32, 0, "shl.b%u", bits);
        put(l, I_SHR, t, t, t, STITCH__U32, 0, "shr.b%u", bits);
        put(l, I_SELP, t, t, t, t, STITCH__U32, "selp.b%u", bits);
        snprintf(last(l)->code, sizeof(last(l)->code),
                 "and.b32 %%t, %%c, 1; setp.ne.u32 %%p, %%t, 0; selp.b%u %%d, %%a, %%b, %%p;", bits);
        put(l, I_SLCT, t, t, t, t, STITCH__S32, "slct.b%u.s32", bits);
        put(l, I_SLCT, t, t, t, t, STITCH__F32, "slct.b%u.f32", bits);
        put(l, I_SLCT, t, t, t, t, STITCH__F32, "slct.ftz.b%u.f32", bits);
        last(l)->u.integer.immediate = 1;
        if (bits == 16)
            continue;
        put(l, I_POPC, t, STITCH__U32, t, 0, 0, "popc.b%u", bits);
        put(l, I_CLZ, t, STITCH__U32, t, 0, 0, "clz.b%u", bits);
        put(l, I_BREV, t, t, t, 0, 0, "brev.b%u", bits);
        put(l, I_BFI, t, t, t, t, STITCH__U32, "bfi.b%u", bits);
        snprintf(last(l)->code, sizeof(last(l)->code),
                 "and.b32 %%t, %%c, 255; shr.u32 %%u, %%c, 8; and.b32 %%u, %%u, 255; bfi.b%u %%d, %%a, %%b, %%t, %%u;",
                 bits);
    }
    static const char *const shf[] = {"l.clamp", "l.wrap", "r.clamp", "r.wrap"};
    for (unsigned i = 0; i < 4; i++)
        put(l, I_SHF_L_CLAMP + i, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, "shf.%s.b32",
            shf[i]);
    static const uint8_t luts[] = {0x80, 0xfe, 0x96, 0xe8, 0xca, 0x1b, 0x55, 0x00};
    for (unsigned i = 0; i < sizeof(luts); i++) {
        put(l, I_LOP3, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, "lop3.b32 0x%02x", luts[i]);
        snprintf(last(l)->code, sizeof(last(l)->code), "lop3.b32 %%d, %%a, %%b, %%c, 0x%02x;", luts[i]);
        last(l)->u.integer.immediate = luts[i];
    }
    static const char *const prmt[] = {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"};
    for (unsigned i = 0; i < 7; i++) {
        put(l, I_PRMT, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, "prmt.b32%s", prmt[i]);
        last(l)->u.integer.extra = (uint8_t)i;
    }
    for (unsigned wrap = 0; wrap < 2; wrap++) {
        const char *mode = wrap ? "wrap" : "clamp";
        put(l, I_BMSK_CLAMP + wrap, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, 0, "bmsk.%s.b32", mode);
        put(l, I_SZEXT_CLAMP + wrap, STITCH__U32, STITCH__U32, STITCH__U32, STITCH__U32, 0, "szext.%s.u32", mode);
        put(l, I_SZEXT_CLAMP + wrap, STITCH__S32, STITCH__S32, STITCH__S32, STITCH__U32, 0, "szext.%s.s32", mode);
    }
}

static void add_comparisons(instr_items *l)
{
    static const uint8_t types[] = {STITCH__U16, STITCH__S16, STITCH__U32,  STITCH__S32, STITCH__U64,
                                    STITCH__S64, STITCH__F16, STITCH__BF16, STITCH__F32, STITCH__F64};
    static const char *const names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                        "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
    static const char *const unsigned_names[] = {"eq", "ne", "lo", "ls", "hi", "hs"};
    static const char *const tests[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
    for (unsigned i = 0; i < sizeof(types); i++) {
        unsigned t = types[i];
        for (unsigned cmp = 0; cmp < STITCH__CMP_COUNT; cmp++) {
            for (unsigned ftz = 0; ftz < 2; ftz++) {
                if (!stitch__arith_lanes_cmp((stitch__num)t, (stitch__cmp)cmp, ftz))
                    continue;
                bool other = (t == STITCH__U32 || t == STITCH__U64) && cmp >= STITCH__LT;
                put(l, I_SETP, t, STITCH__U32, t, t, 0, "setp.%s%s.%s", other ? unsigned_names[cmp] : names[cmp],
                    ftz ? ".ftz" : "", instr_type_name[t]);
                instr *in = last(l);
                in->u.integer.extra = (uint8_t)cmp;
                in->u.integer.immediate = ftz;
                snprintf(in->code, sizeof(in->code), "%s %%p, %%a, %%b; selp.u32 %%d, 1, 0, %%p;", in->name);
                if (t == STITCH__F16 || t == STITCH__BF16)
                    continue;
                for (unsigned d = 0; d < 2; d++) {
                    put(l, I_SET, t, d ? STITCH__F32 : STITCH__U32, t, t, 0, "set.%s%s.%s.%s", names[cmp],
                        ftz ? ".ftz" : "", d ? "f32" : "u32", instr_type_name[t]);
                    last(l)->u.integer.extra = (uint8_t)cmp;
                    last(l)->u.integer.immediate = ftz;
                    if (d || instr_width(t) == 16)
                        last(l)->flags |= INSTR_CONTEXT;
                }
            }
        }
    }
    for (unsigned t = STITCH__F32; t <= STITCH__F64; t++) {
        for (unsigned k = 0; k < 6; k++) {
            put(l, I_TESTP, t, STITCH__U32, t, 0, 0, "testp.%s.%s", tests[k], instr_type_name[t]);
            last(l)->u.integer.extra = (uint8_t)k;
            snprintf(last(l)->code, sizeof(last(l)->code), "%s %%p, %%a; selp.u32 %%d, 1, 0, %%p;", last(l)->name);
        }
    }
}

void instr_add_integers(instr_items *l)
{
    add_arithmetic(l);
    add_logic(l);
    add_comparisons(l);
}

bool instr_takes_position(const instr *in, bool *two)
{
    unsigned kind = in->u.integer.kind;
    *two = kind == I_BFI;
    return in->ref == ref_integer && kind >= I_BFE && kind <= I_SZEXT_WRAP && kind != I_LOP3 && kind != I_AND &&
           kind != I_OR && kind != I_XOR;
}
