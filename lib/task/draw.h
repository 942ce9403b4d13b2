/* SPDX-License-Identifier: MIT
 *
 * Random numbers by counter: what element `index` of a tensor is, as a function of (seed, tensor, index) alone.
 * Compiled into the library and, as text after convert.h, into its device code. Both must give the same bits, so a
 * product that is added to something is always a fused multiply-add written as such, and the transcendental functions
 * are made here from correctly rounded operations.
 *
 * Philox4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
 */
#ifndef STITCH__FMA
#define STITCH__FMA(a, b, c) fma(a, b, c)
#define STITCH__MUL(a, b)    ((a) * (b))
#define STITCH__SQRT(a)      sqrt(a)
#define STITCH__MULHI(a, b)  ((stitch_u64)(((unsigned __int128)(a) * (b)) >> 64))
#endif

/* stitch_dist_kind values; the host checks them against the header. */
enum { DIST_NORMAL = 1, DIST_UNIFORM, DIST_CONSTANT, DIST_RANDINT, DIST_BERNOULLI, DIST_TRIL, DIST_ARANGE };
/* Not in the header: for trials beyond what a task declares. */
enum { DIST_ONE_HOT = 100, DIST_CANCELLING };

STITCH__FN void stitch_philox(stitch_u32 c[4], stitch_u32 k0, stitch_u32 k1)
{
    for (int round = 0; round < 10; round++) {
        stitch_u64 p0 = (stitch_u64)0xD2511F53u * c[0], p1 = (stitch_u64)0xCD9E8D57u * c[2];
        stitch_u32 n0 = (stitch_u32)(p1 >> 32) ^ c[1] ^ k0, n2 = (stitch_u32)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (stitch_u32)p1;
        c[3] = (stitch_u32)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Natural logarithm of x in (0, 1], to about 1e-15. */
STITCH__FN double stitch_log(double x)
{
    stitch_u64 bits = stitch_bits_of(x);
    int exponent = (int)(bits >> 52) - 1023;
    double m = stitch_double_of((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull), s, z, p;
    if (m > 1.4142135623730951) {
        m = STITCH__MUL(m, 0.5);
        exponent++;
    }
    /* log m = 2 atanh(s) with s = (m - 1) / (m + 1), |s| <= 0.172 */
    s = (m - 1.0) / (m + 1.0);
    z = STITCH__MUL(s, s);
    p = 1.0 / 21;
    p = STITCH__FMA(p, z, 1.0 / 19);
    p = STITCH__FMA(p, z, 1.0 / 17);
    p = STITCH__FMA(p, z, 1.0 / 15);
    p = STITCH__FMA(p, z, 1.0 / 13);
    p = STITCH__FMA(p, z, 1.0 / 11);
    p = STITCH__FMA(p, z, 1.0 / 9);
    p = STITCH__FMA(p, z, 1.0 / 7);
    p = STITCH__FMA(p, z, 1.0 / 5);
    p = STITCH__FMA(p, z, 1.0 / 3);
    p = STITCH__FMA(p, z, 1.0);
    return STITCH__FMA((double)exponent, 0.6931471805599453, STITCH__MUL(STITCH__MUL(2.0, s), p));
}

/* cos (quarter 0) or sin (quarter 3: cos shifted by three quarter turns) of u turns, u in [0, 1). */
STITCH__FN double stitch_cos_turns(double u, int quarter)
{
    int k = (int)STITCH__FMA(u, 4.0, 0.5); /* nearest quarter turn */
    double t = STITCH__MUL(STITCH__FMA((double)k, -0.25, u), 6.283185307179586), z = STITCH__MUL(t, t), p;
    k = (k + quarter) & 3;
    if (k & 1) {
        p = 2.8114572543455206e-15; /* sin: sum of (-1)^n t^(2n+1) / (2n+1)!, n = 8 ... 0 */
        p = STITCH__FMA(p, z, -7.647163731819816e-13);
        p = STITCH__FMA(p, z, 1.6059043836821613e-10);
        p = STITCH__FMA(p, z, -2.505210838544172e-8);
        p = STITCH__FMA(p, z, 2.7557319223985893e-6);
        p = STITCH__FMA(p, z, -1.984126984126984e-4);
        p = STITCH__FMA(p, z, 8.333333333333333e-3);
        p = STITCH__FMA(p, z, -0.16666666666666666);
        p = STITCH__FMA(p, z, 1.0);
        p = STITCH__MUL(p, t);
        return k == 1 ? -p : p; /* cos(t + 1/4 turn) = -sin t, cos(t + 3/4 turn) = sin t */
    }
    p = 4.779477332387385e-14; /* cos: sum of (-1)^n t^2n / (2n)!, n = 8 ... 0 */
    p = STITCH__FMA(p, z, -1.1470745597729725e-11);
    p = STITCH__FMA(p, z, 2.08767569878681e-9);
    p = STITCH__FMA(p, z, -2.755731922398589e-7);
    p = STITCH__FMA(p, z, 2.48015873015873e-5);
    p = STITCH__FMA(p, z, -1.388888888888889e-3);
    p = STITCH__FMA(p, z, 0.041666666666666664);
    p = STITCH__FMA(p, z, -0.5);
    p = STITCH__FMA(p, z, 1.0);
    return k == 2 ? -p : p;
}

/* What is drawn for elements 2 * pair and 2 * pair + 1: four random words. */
STITCH__FN void stitch_words(stitch_u64 seed, stitch_u32 tensor, stitch_u64 pair, stitch_u32 c[4])
{
    c[0] = (stitch_u32)pair;
    c[1] = (stitch_u32)(pair >> 32);
    c[2] = tensor;
    c[3] = 0;
    stitch_philox(c, (stitch_u32)seed, (stitch_u32)(seed >> 32));
}

/* Element `i`, before it is rounded to its dtype. rows, cols: the last two dims (tril). */
STITCH__FN double stitch_value(const stitch_u32 c[4], stitch_u64 i, int kind, double a, double b, stitch_u64 rows,
                               stitch_u64 cols)
{
    int odd = (int)(i & 1);
    stitch_u64 word = (stitch_u64)c[2 * odd + 1] << 32 | c[2 * odd];
    double u = STITCH__MUL((double)(word >> 11), 1.1102230246251565e-16); /* [0, 1), multiples of 2^-53 */
    switch (kind) {
    case DIST_NORMAL:
    case DIST_CANCELLING: {
        /* Box and Muller; the logarithm's argument is in (0, 1]. */
        double u1 = STITCH__MUL((double)(((stitch_u64)c[1] << 32 | c[0]) >> 11) + 1.0, 1.1102230246251565e-16);
        double u2 = STITCH__MUL((double)(((stitch_u64)c[3] << 32 | c[2]) >> 11), 1.1102230246251565e-16);
        double radius = STITCH__SQRT(STITCH__MUL(-2.0, stitch_log(u1)));
        return STITCH__FMA(STITCH__MUL(radius, stitch_cos_turns(u2, odd ? 3 : 0)), b,
                           kind == DIST_CANCELLING && odd ? -a : a);
    }
    case DIST_UNIFORM: {
        double x = STITCH__FMA(u, b - a, a);
        return x < b ? x : a;
    }
    case DIST_CONSTANT: return a;
    case DIST_RANDINT:
        return (double)((stitch_i64)a + (stitch_i64)STITCH__MULHI(word, (stitch_u64)((stitch_i64)b - (stitch_i64)a)));
    case DIST_BERNOULLI: return u < a ? 1.0 : 0.0;
    case DIST_TRIL: return i % cols <= i / cols % rows ? 1.0 : 0.0;
    case DIST_ARANGE: return STITCH__FMA((double)i, b, a);
    case DIST_ONE_HOT: return i % cols == STITCH__MULHI((i / cols + 1) * 0x9e3779b97f4a7c15ull, cols) ? 1.0 : 0.0;
    default: return 0.0;
    }
}
