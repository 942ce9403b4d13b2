/* SPDX-License-Identifier: MIT
 *
 * The simulator's arithmetic against the reference in reference.h: every operation, type, rounding and modifier on
 * corner cases and random bit patterns; conversions of 16-bit types on all inputs; the vector code of both compilations
 * against each other.
 */
#include "check.h"
#include "reference.h"
#include "sim/arith_lanes_select.h"

static const char *const op_names[] = {
    "add",         "sub",  "mul",         "fma",          "div",        "div.approx", "div.full",   "rcp",
    "rcp.approx",  "sqrt", "sqrt.approx", "rsqrt.approx", "ex2.approx", "lg2.approx", "sin.approx", "cos.approx",
    "tanh.approx", "min",  "max",         "neg",          "abs",        "copysign"};
static const char *const type_names[] = {"none",   "u8",    "s8",   "u16",    "s16",    "u32",   "s32",
                                         "u64",    "s64",   "f16",  "bf16",   "f32",    "f64",   "f16x2",
                                         "bf16x2", "f32x2", "tf32", "e4m3x2", "e5m2x2", "u16x2", "s16x2"};

static bool is_wide(unsigned type)
{
    return type == STITCH__F64 || type == STITCH__U64 || type == STITCH__S64;
}

static unsigned element_type(unsigned type)
{
    return type == STITCH__F16X2 ? STITCH__F16 : type == STITCH__BF16X2 ? STITCH__BF16 : type;
}

/* Runs fn on `rounds` x 32 patterns and compares; pairs element by element. Returns comparisons made. */
static long compare_op(const stitch__arith_op *op, stitch__lanes_fn fn, int rounds)
{
    uint64_t state = 1000u * op->op + 100u * op->type + 10u * op->round + op->flags;
    stitch__arith_op one = *op;
    one.type = (uint8_t)element_type(op->type);
    bool pair = one.type != op->type, wide = is_wide(op->type);
    long made = 0;
    for (int r = 0; r < rounds; r++) {
        uint64_t in[3][STITCH__LANES], wide_out[STITCH__LANES];
        uint32_t narrow[3][STITCH__LANES], out[STITCH__LANES];
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < STITCH__LANES; i++) {
                in[k][i] = ref_pattern(one.type, &state);
                if (pair)
                    in[k][i] |= ref_pattern(one.type, &state) << 16;
                else if (ref_bits(ref_format(one.type)) == 16)
                    in[k][i] |= ref_random(&state) << 16 & 0xffff0000; /* must be ignored */
                narrow[k][i] = (uint32_t)in[k][i];
            }
        }
        if (wide)
            fn(wide_out, in[0], in[1], in[2]);
        else
            fn(out, narrow[0], narrow[1], narrow[2]);
        for (int i = 0; i < STITCH__LANES; i++) {
            uint64_t got = wide ? wide_out[i] : out[i];
            for (int half = 0; half <= pair; half++) {
                int shift = 16 * half;
                uint64_t mask = ref_bits(ref_format(one.type)) == 16 ? 0xffff : ~0ull, want;
                uint64_t a = in[0][i] >> shift & mask, b = in[1][i] >> shift & mask, c = in[2][i] >> shift & mask;
                if (!wide && mask != 0xffff) {
                    a = (uint32_t)a;
                    b = (uint32_t)b;
                    c = (uint32_t)c;
                }
                if (!ref_arith(&one, a, b, c, &want))
                    return -1;
                uint64_t part = pair ? got >> shift & 0xffff : got;
                if (part != want)
                    FAIL("%s.%s round %d flags %d of %" PRIx64 ", %" PRIx64 ", %" PRIx64 ": got %" PRIx64
                         ", expected %" PRIx64,
                         op_names[op->op], type_names[op->type], op->round, op->flags, a, b, c, part, want);
                made++;
            }
        }
    }
    return made;
}

static void all_ops(unsigned type, int rounds, int at_least)
{
    int ops = 0, unknown = 0;
    for (unsigned o = 0; o < STITCH__FOP_COUNT; o++) {
        for (unsigned round = STITCH__RN; round <= STITCH__RNA; round++) {
            for (unsigned flags = 0; flags < 128; flags++) {
                stitch__arith_op op = {(uint8_t)o, (uint8_t)type, (uint8_t)round, (uint8_t)flags, 0};
                stitch__lanes_fn fn = stitch__arith_lanes(&op);
                if (!fn)
                    continue;
                bool slow = o == STITCH__FMA || o == STITCH__SQRT;
                if (compare_op(&op, fn, slow ? rounds / 2 : rounds) < 0)
                    unknown++;
                else
                    ops++;
            }
        }
    }
    CHECK(ops >= at_least);
    printf("# %s: %d forms compared, %d are approximations\n", type_names[type], ops, unknown);
}

TEST(f32_every_rounding)
{
    all_ops(STITCH__F32, 300, 100);
}

TEST(f64_every_rounding)
{
    all_ops(STITCH__F64, 60, 30);
}

TEST(f16_every_modifier)
{
    all_ops(STITCH__F16, 200, 36);
    all_ops(STITCH__F16X2, 100, 36);
}

TEST(bf16_every_modifier)
{
    all_ops(STITCH__BF16, 200, 15);
    all_ops(STITCH__BF16X2, 100, 15);
}

/* Sums that cancel, and products whose error is far below: where a second rounding or a lost residual would show. */
TEST(directed_sums_near_cancellation)
{
    uint64_t state = 42;
    for (int n = 0; n < 60000; n++) {
        uint32_t a = (uint32_t)ref_pattern(STITCH__F32, &state), b = (uint32_t)ref_pattern(STITCH__F32, &state);
        uint32_t p = (uint32_t)ref_fma(&REF_F32, a, b, 0, true, STITCH__RN),
                 c = (p ^ 0x80000000u) + (uint32_t)(ref_random(&state) % 3) - 1;
        for (unsigned round = STITCH__RN; round <= STITCH__RP; round++) {
            stitch__arith_op op = {STITCH__FMA, STITCH__F32, (uint8_t)round, 0, 0};
            uint64_t want = ref_fma(&REF_F32, a, b, c, false, (stitch__round)round),
                     got = stitch__arith_eval(&op, a, b, c);
            if (got != want)
                FAIL("fma round %u of %x, %x, %x: got %" PRIx64 ", expected %" PRIx64, round, a, b, c, got, want);
        }
    }
}

static void compare_cvt(const stitch__arith_cvt *cvt, uint64_t x)
{
    uint64_t want;
    CHECK(ref_convert(cvt, x, &want));
    uint64_t got = stitch__arith_eval_cvt(cvt, x, 0);
    if (got != want)
        FAIL("cvt.%s.%s round %d flags %d integer %d of %" PRIx64 ": got %" PRIx64 ", expected %" PRIx64,
             type_names[cvt->dst], type_names[cvt->src], cvt->round, cvt->flags, cvt->integer, x, got, want);
}

/* .ftz: results that are nearly the smallest normal number, in every rounding. */
TEST(flushing_near_the_smallest_number)
{
    static const uint8_t ops[] = {STITCH__MUL, STITCH__FMA, STITCH__DIV, STITCH__RCP};
    uint64_t state = 77;
    int least = 0, flushed = 0;
    for (int i = 0; i < 200000; i++) {
        uint8_t op = ops[i & 3], round = (uint8_t)(i >> 2 & 3), half = i % 5 == 0 && op == STITCH__FMA;
        stitch__arith_op spec = {op, half ? STITCH__F16 : STITCH__F32, half ? STITCH__RN : round, STITCH__FTZ, 0};
        uint64_t a = ref_random(&state), b, c = 0, want = 0, r = ref_random(&state);
        if (half) { /* a product of a few units in the last place, and a sum that is 2^-14 less some of it */
            a = 0x8400 | (a & 0x3ff);
            b = 0x1000 | (r & 0xfff);
            c = 0x0400 + (r >> 16) % 3;
        } else if (op == STITCH__RCP) {
            a = 0x7e800000 + a % 5 + (a & 0x100000000) / 2;
            b = 0;
        } else if (op == STITCH__DIV) { /* 2^-126 (1 + m) over 1 + m + a little */
            uint64_t m = a & 0x7fff00, d = r % 4;
            b = 0x3f800000 | (m + d) | (r & 0x80000000);
            a = 0x00800000 | (m + (r >> 8) % 3);
        } else { /* a number and nearly 2^-126 over it */
            float f, g;
            uint32_t bits = 0x1f800000 | (uint32_t)(a & 0x7fffff);
            memcpy(&f, &bits, 4);
            g = (float)(0x1p-126 / f);
            memcpy(&bits, &g, 4);
            a = 0x1f800000 | (a & 0x7fffff);
            b = (bits + r % 5 - 2) | (r & 0x80000000);
            c = op == STITCH__FMA && r & 0x200 ? 0x80000000 : 0;
        }
        CHECK(ref_arith(&spec, a, b, c, &want));
        uint64_t got = stitch__arith_eval(&spec, a, b, c), m = got & (half ? 0x7fff : 0x7fffffff);
        if (got != want)
            FAIL("op %d rounding %d of %" PRIx64 ", %" PRIx64 ", %" PRIx64 ": got %" PRIx64 ", expected %" PRIx64, op,
                 round, a, b, c, got, want);
        least += m == (half ? 0x400u : 0x800000u);
        flushed += m == 0;
    }
    printf("# %d results are the smallest number, %d are flushed\n", least, flushed);
    CHECK(least > 10000 && flushed > 10000);
}

TEST(every_scalar_conversion)
{
    int forms = 0;
    for (unsigned dst = 1; dst < STITCH__NUM_COUNT; dst++) {
        for (unsigned src = 1; src < STITCH__NUM_COUNT; src++) {
            for (unsigned n = 0; n < 5 * 128 * 2; n++) {
                stitch__arith_cvt cvt = {(uint8_t)dst, (uint8_t)src, (uint8_t)(n % 5), (uint8_t)(n / 5 % 128), n / 640};
                uint64_t state = n + 77 * dst + 999 * src, ignored;
                if (!stitch__arith_lanes_cvt(&cvt) || !ref_convert(&cvt, 0, &ignored))
                    continue;
                for (int i = 0; i < 600; i++)
                    compare_cvt(&cvt, ref_pattern(src, &state));
                forms++;
            }
        }
    }
    CHECK(forms > 500);
    printf("# %d conversions\n", forms);
}

TEST(all_half_inputs_convert)
{
    static const uint8_t types[] = {STITCH__F16, STITCH__BF16};
    for (int t = 0; t < 2; t++) {
        for (uint32_t h = 0; h < 0x10000; h++) {
            compare_cvt(&(stitch__arith_cvt){STITCH__F32, types[t], 0, 0, false}, h);
            compare_cvt(&(stitch__arith_cvt){STITCH__F64, types[t], 0, 0, false}, h);
            for (unsigned round = STITCH__RN; round <= STITCH__RP; round++)
                compare_cvt(&(stitch__arith_cvt){STITCH__S32, types[t], (uint8_t)round, 0, true}, h);
        }
    }
}

/* Ties and their neighbours for every f16 and bf16 result. */
TEST(all_half_results_round)
{
    for (uint32_t h = 0; h < 0x8000; h++) {
        for (int bf = 0; bf < 2; bf++) {
            unsigned type = bf ? STITCH__BF16 : STITCH__F16;
            uint32_t x = bf ? h << 16 : stitch__f32_from_f16((uint16_t)h), step = bf ? 0x8000 : 0x1000;
            if (!bf && h < 0x400) /* subnormal: half a unit is 2^-25 */
                x = (uint32_t)ref_round(&REF_F32, ((quad)h + 0.5Q) * ref_pow2(-24), false, STITCH__RN) - step;
            for (int d = -1; d <= 1; d++) {
                for (unsigned n = 0; n < 8; n++) {
                    stitch__arith_cvt cvt = {(uint8_t)type, STITCH__F32, (uint8_t)(n & 3), 0, false};
                    compare_cvt(&cvt, ((x + step + (uint32_t)d) & 0x7fffffff) | (n & 4 ? 0x80000000u : 0));
                }
            }
        }
    }
}

TEST(pairs_convert_like_their_halves)
{
    static const uint8_t pairs[2] = {STITCH__F16X2, STITCH__BF16X2}, halves[2] = {STITCH__F16, STITCH__BF16};
    uint64_t state = 5;
    for (int t = 0; t < 2; t++) {
        for (unsigned n = 0; n < 4 * 128; n++) {
            stitch__arith_cvt two = {pairs[t], STITCH__F32, (uint8_t)(n & 3), (uint8_t)(n >> 2), false}, one = two;
            one.dst = halves[t];
            if (!stitch__arith_lanes_cvt(&two))
                continue;
            for (int i = 0; i < 2000; i++) {
                uint64_t a = ref_pattern(STITCH__F32, &state), b = ref_pattern(STITCH__F32, &state), hi, lo;
                CHECK(ref_convert(&one, a, &hi) && ref_convert(&one, b, &lo));
                CHECK_INT(stitch__arith_eval_cvt(&two, a, b), hi << 16 | lo);
            }
        }
    }
}

/* fp8 by search: the nearest of all 256 values, ties to the even code, the largest number beyond the range. */
static uint32_t nearest_fp8(double v, bool e5)
{
    uint32_t best = 0, max = e5 ? 0x7b : 0x7e;
    double best_d = INFINITY, a = fabs(v), top = e5 ? 57344 : 448;
    a = a > top ? top : a;
    for (uint32_t c = 0; c <= max; c++) {
        int e = (int)(c >> (e5 ? 2 : 3)), m = (int)(c & (e5 ? 3 : 7)), unit = e5 ? 4 : 8, bias = e5 ? 15 : 7;
        double d = fabs(a - ldexp(e ? unit + m : m, (e ? e : 1) - bias - (e5 ? 2 : 3)));
        if (d < best_d || (d == best_d && !(c & 1))) {
            best = c;
            best_d = d;
        }
    }
    return best | (signbit(v) ? 0x80 : 0);
}

TEST(fp8_converts)
{
    uint64_t state = 9;
    for (int e5 = 0; e5 < 2; e5++) {
        stitch__num format = e5 ? STITCH__E5M2X2 : STITCH__E4M3X2;
        for (int i = 0; i < 20000; i++) {
            uint32_t x = (uint32_t)ref_pattern(STITCH__F32, &state);
            if (i & 1) /* the range that matters */
                x = (x & 0x807fffff) | (uint32_t)(100 + ref_random(&state) % 48) << 23;
            if (i & 2)
                x &= 0xfff80000; /* ties */
            float f;
            memcpy(&f, &x, 4);
            uint32_t want = f != f ? 0x7f : isinf(f) ? (e5 ? 0x7bu : 0x7eu) | (x >> 31 << 7) : nearest_fp8(f, e5);
            CHECK_INT(stitch__fp8_from_f32(x, format, false), want);
            CHECK_INT(stitch__fp8_from_f32(x, format, true), f != f ? 0x7f : want & 0x80 ? 0 : want);
            stitch__arith_cvt cvt = {(uint8_t)format, STITCH__F32, STITCH__RN, STITCH__SATFINITE, false};
            CHECK_INT(stitch__arith_eval_cvt(&cvt, x, 0x3f800000), want << 8 | (e5 ? 0x3c : 0x38));
        }
        for (uint32_t c = 0; c < 256; c++) { /* there and back */
            uint32_t h = stitch__f16_from_fp8((uint8_t)c, format), f = stitch__f32_from_f16((uint16_t)h);
            bool nan = e5 ? (c & 0x7f) > 0x7c : (c & 0x7f) == 0x7f, inf = e5 && (c & 0x7f) == 0x7c;
            CHECK_INT((h & 0x7fff) > 0x7c00, nan);
            if (!nan && !inf)
                CHECK_INT(stitch__fp8_from_f32(f, format, false), c);
        }
    }
}

TEST(tf32_converts)
{
    uint64_t state = 11;
    for (int i = 0; i < 100000; i++) {
        uint32_t x = (uint32_t)ref_pattern(STITCH__F32, &state);
        if (i & 1)
            x = (x & ~0x1fffu) | (0xfff + (uint32_t)(ref_random(&state) % 3)); /* around ties */
        uint32_t a = x & 0x7fffffff, s = x & 0x80000000, base = a & ~0x1fffu, rest = a & 0x1fff;
        stitch__arith_cvt rna = {STITCH__TF32, STITCH__F32, STITCH__RNA, 0, false}, rn = rna, rz = rna;
        rn.round = STITCH__RN;
        rz.round = STITCH__RZ;
        bool finite = a<0x7f800000, nan = a> 0x7f800000, odd = base >> 13 & 1;
        CHECK_INT(stitch__arith_eval_cvt(&rna, x, 0), s | (base + (finite && rest >= 0x1000 ? 0x2000 : 0)));
        CHECK_INT(stitch__arith_eval_cvt(&rn, x, 0),
                  nan ? 0x7fffe000 : s | (base + (rest > 0x1000 || (rest == 0x1000 && odd) ? 0x2000 : 0)));
        CHECK_INT(stitch__arith_eval_cvt(&rz, x, 0), nan ? 0x7fffe000 : s | base);
    }
}

static int truth(unsigned cmp, bool less, bool equal, bool nan)
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

TEST(comparisons)
{
    static const uint8_t types[] = {STITCH__U16, STITCH__S16,  STITCH__U32, STITCH__S32, STITCH__U64,   STITCH__S64,
                                    STITCH__F16, STITCH__BF16, STITCH__F32, STITCH__F64, STITCH__F16X2, STITCH__BF16X2};
    uint64_t state = 3;
    for (size_t t = 0; t < sizeof(types); t++) {
        for (unsigned cmp = 0; cmp < STITCH__CMP_COUNT; cmp++) {
            unsigned element = element_type(types[t]);
            const float_format *f = ref_format(element);
            for (int ftz = 0; ftz < 2; ftz++) {
                stitch__cmp_fn fn = stitch__arith_lanes_cmp((stitch__num)types[t], (stitch__cmp)cmp, ftz);
                bool has = f ? !ftz || types[t] == STITCH__F32 || element == STITCH__F16 : !ftz && cmp <= STITCH__GE;
                CHECK_INT(fn != NULL, has);
                for (int n = 0; fn && n < 40; n++) {
                    uint64_t a[STITCH__LANES], b[STITCH__LANES];
                    uint32_t a32[STITCH__LANES], b32[STITCH__LANES], hi = 0;
                    for (int i = 0; i < STITCH__LANES; i++) {
                        a[i] = ref_pattern(element, &state);
                        b[i] = ref_random(&state) & 3 ? ref_pattern(element, &state) : a[i];
                        if (types[t] != element) {
                            a[i] |= ref_pattern(element, &state) << 16;
                            b[i] |= ref_pattern(element, &state) << 16;
                        }
                        a32[i] = (uint32_t)a[i];
                        b32[i] = (uint32_t)b[i];
                    }
                    uint32_t mask = is_wide(types[t]) ? fn(a, b, &hi) : fn(a32, b32, &hi);
                    for (int i = 0; i < STITCH__LANES * (types[t] != element ? 2 : 1); i++) {
                        int lane = i % STITCH__LANES, shift = i / STITCH__LANES * 16;
                        uint64_t x = a[lane] >> shift, y = b[lane] >> shift;
                        bool less, equal, nan = false;
                        if (f) {
                            x &= ref_bits(f) == 64 ? ~0ull : (1ull << ref_bits(f)) - 1;
                            y &= ref_bits(f) == 64 ? ~0ull : (1ull << ref_bits(f)) - 1;
                            ref_value p = ref_decode(f, ftz ? ref_flush(f, x) : x),
                                      q = ref_decode(f, ftz ? ref_flush(f, y) : y);
                            quad big = ref_pow2(2000);
                            quad u = p.kind == REF_INF ? (p.negative ? -big : big) : p.v,
                                 v = q.kind == REF_INF ? (q.negative ? -big : big) : q.v;
                            nan = p.kind == REF_NAN || q.kind == REF_NAN;
                            less = u < v;
                            equal = u == v;
                        } else {
                            less = ref_load_int(element, x) < ref_load_int(element, y);
                            equal = ref_load_int(element, x) == ref_load_int(element, y);
                        }
                        uint32_t got = (shift ? hi : mask) >> lane & 1;
                        if ((int)got != truth(cmp, less, equal, nan))
                            FAIL("%s compare %u of %" PRIx64 ", %" PRIx64 ": got %u", type_names[types[t]], cmp, x, y,
                                 got);
                    }
                }
            }
        }
    }
}

TEST(testp_classifies)
{
    static const uint32_t f[] = {0,          0x80000000, 1,          0x007fffff, 0x00800000,
                                 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffffffff};
    static const int expect[6] = {0x03f, 0x0c0, 0x0ff, 0x300, 0x033, 0x00c}; /* bit i: f[i] */
    uint32_t lanes[STITCH__LANES] = {0};
    uint64_t wide[STITCH__LANES] = {0};
    static const uint64_t d[] = {0,
                                 1ull << 63,
                                 1,
                                 0x000fffffffffffffu,
                                 0x0010000000000000u,
                                 0x7fefffffffffffffu,
                                 0x7ff0000000000000u,
                                 0xfff0000000000000u,
                                 0x7ff0000000000001u,
                                 ~0ull};
    memcpy(lanes, f, sizeof(f));
    memcpy(wide, d, sizeof(d));
    for (int t = 0; t < 6; t++) {
        CHECK_INT(stitch__arith_testp(STITCH__F32, (stitch__testp)t, lanes) & 0x3ff, expect[t]);
        CHECK_INT(stitch__arith_testp(STITCH__F64, (stitch__testp)t, wide) & 0x3ff, expect[t]);
    }
}

TEST(combinations_that_ptx_lacks_are_refused)
{
    CHECK(!stitch__arith_lanes(&(stitch__arith_op){STITCH__ADD, STITCH__F64, STITCH__RN, STITCH__FTZ, 0}));
    CHECK(!stitch__arith_lanes(&(stitch__arith_op){STITCH__ADD, STITCH__F16, STITCH__RZ, 0, 0}));
    CHECK(!stitch__arith_lanes(&(stitch__arith_op){STITCH__ADD, STITCH__S32, STITCH__RN, 0, 0}));
    CHECK(!stitch__arith_lanes(&(stitch__arith_op){STITCH__DIV, STITCH__BF16, STITCH__RN, 0, 0}));
    CHECK(!stitch__arith_lanes(&(stitch__arith_op){STITCH__FOP_COUNT, STITCH__F32, STITCH__RN, 0, 0}));
    CHECK(!stitch__arith_lanes(&(stitch__arith_op){STITCH__ADD, 200, STITCH__RN, 0, 0}));
    CHECK(!stitch__arith_lanes_cvt(&(stitch__arith_cvt){STITCH__S32, STITCH__F32, STITCH__RN, 0, false}));
    CHECK(!stitch__arith_lanes_cvt(&(stitch__arith_cvt){STITCH__NUM_NONE, STITCH__F32, STITCH__RN, 0, false}));
    CHECK(!stitch__arith_lanes_cvt(&(stitch__arith_cvt){200, 201, STITCH__RN, 0, false}));
    CHECK(!stitch__arith_lanes_cmp(STITCH__F32, STITCH__CMP_COUNT, false));
    CHECK(!stitch__arith_lanes_cmp(STITCH__NUM_COUNT, STITCH__EQ, false));
}

/* Both compilations of the vector code, in place and not, on the same inputs. */
TEST(vector_code_agrees_with_plain_code)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        SKIP("this processor has no AVX2 and FMA");
    uint64_t state = 21;
    for (unsigned n = 0; n < STITCH__FOP_COUNT * STITCH__NUM_COUNT * 5 * 128; n++) {
        stitch__arith_op op = {(uint8_t)(n % STITCH__FOP_COUNT), (uint8_t)(n / STITCH__FOP_COUNT % STITCH__NUM_COUNT),
                               (uint8_t)(n / STITCH__FOP_COUNT / STITCH__NUM_COUNT % 5),
                               (uint8_t)(n / STITCH__FOP_COUNT / STITCH__NUM_COUNT / 5), 0};
        stitch__lanes_fn plain = stitch__arith_select_generic(&op), vector = stitch__arith_select_avx2(&op);
        CHECK_INT(plain != NULL, vector != NULL);
        for (int r = 0; plain && r < 40; r++) {
            uint64_t in[3][STITCH__LANES], out[2][STITCH__LANES];
            for (int k = 0; k < 3; k++) {
                for (int i = 0; i < STITCH__LANES; i++) {
                    in[k][i] = ref_pattern(element_type(op.type), &state);
                    if (!is_wide(op.type)) /* two lanes a word */
                        in[k][i] |= ref_pattern(op.type == STITCH__F32 ? STITCH__F32 : element_type(op.type), &state)
                                    << 32;
                }
            }
            memset(out, 0, sizeof(out));
            plain(out[0], in[0], in[1], in[2]);
            vector(out[1], in[0], in[1], in[2]);
            CHECK(memcmp(out[0], out[1], sizeof(out[0])) == 0);
            vector(in[1], in[0], in[1], in[2]); /* in place */
            CHECK(memcmp(out[1], in[1], is_wide(op.type) ? 256 : 128) == 0);
        }
    }
#else
    SKIP("the vector code is for x86-64");
#endif
}

TEST_MAIN(RUN(f32_every_rounding), RUN(f64_every_rounding), RUN(f16_every_modifier), RUN(bf16_every_modifier),
          RUN(directed_sums_near_cancellation), RUN(flushing_near_the_smallest_number), RUN(every_scalar_conversion),
          RUN(all_half_inputs_convert), RUN(all_half_results_round), RUN(pairs_convert_like_their_halves),
          RUN(fp8_converts), RUN(tf32_converts), RUN(comparisons), RUN(testp_classifies),
          RUN(combinations_that_ptx_lacks_are_refused), RUN(vector_code_agrees_with_plain_code))
