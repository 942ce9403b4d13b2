/* SPDX-License-Identifier: MIT
 *
 * Comparison of outputs. Compiled by the library at run time, after convert.h. Every result is the same from run to run:
 * partial results are put together in a fixed order.
 */
/* `integer` where both sides are int64, which doubles do not hold. */
union stitch_element {
    double real;
    stitch_i64 integer;
};

struct stitch_comparison {
    stitch_u64 elements, mismatches, first, last, worst, nan_got, nan_want, inf_got, inf_want, unwritten, unwritten_first, differ, not_finite;
    double max_abs, max_rel, sum_abs, sum_rel;
    stitch_u64 finite, rel_count;
    double worst_key;
    stitch_element worst_got, worst_want, first_got, first_want;
};

#define NONE 0xffffffffffffffffull
#define INF  __longlong_as_double(0x7ff0000000000000ll)

static __device__ void clear(stitch_comparison *r)
{
    r->elements = r->mismatches = r->nan_got = r->nan_want = r->inf_got = r->inf_want = r->unwritten = r->differ = r->not_finite = 0;
    r->first = r->worst = r->unwritten_first = NONE;
    r->last = 0;
    r->max_abs = r->max_rel = r->sum_abs = r->sum_rel = 0;
    r->finite = r->rel_count = 0;
    r->worst_key = -1;
    r->worst_got.integer = r->worst_want.integer = r->first_got.integer = r->first_want.integer = 0;
}

static __device__ void merge(stitch_comparison *r, const stitch_comparison *o)
{
    r->elements += o->elements;
    r->mismatches += o->mismatches;
    r->nan_got += o->nan_got;
    r->nan_want += o->nan_want;
    r->inf_got += o->inf_got;
    r->inf_want += o->inf_want;
    r->unwritten += o->unwritten;
    r->differ += o->differ;
    r->not_finite += o->not_finite;
    r->sum_abs += o->sum_abs;
    r->sum_rel += o->sum_rel;
    r->finite += o->finite;
    r->rel_count += o->rel_count;
    if (o->max_abs > r->max_abs)
        r->max_abs = o->max_abs;
    if (o->max_rel > r->max_rel)
        r->max_rel = o->max_rel;
    if (o->unwritten_first < r->unwritten_first)
        r->unwritten_first = o->unwritten_first;
    if (o->last > r->last)
        r->last = o->last;
    if (o->first < r->first) {
        r->first = o->first;
        r->first_got = o->first_got;
        r->first_want = o->first_want;
    }
    if (o->worst_key > r->worst_key || (o->worst_key == r->worst_key && o->worst < r->worst)) {
        r->worst_key = o->worst_key;
        r->worst = o->worst;
        r->worst_got = o->worst_got;
        r->worst_want = o->worst_want;
    }
}

static __device__ stitch_u64 raw(const void *data, stitch_u64 i, int size)
{
    switch (size) {
    case 8: return ((const stitch_u64 *)data)[i];
    case 4: return ((const stitch_u32 *)data)[i];
    case 2: return ((const unsigned short *)data)[i];
    default: return ((const unsigned char *)data)[i];
    }
}

static __device__ bool are_i64(int got_dtype, int want_dtype)
{
    return got_dtype == DT_I64 && want_dtype == DT_I64;
}

static __device__ stitch_element load(const void *data, stitch_u64 i, int dtype, bool i64)
{
    stitch_element e;
    if (i64)
        e.integer = ((const stitch_i64 *)data)[i];
    else
        e.real = stitch_load(data, i, dtype);
    return e;
}

/* Doubles cannot tell large neighbours of int64 apart. */
static __device__ double distance(stitch_element got, stitch_element want)
{
    stitch_u64 g = (stitch_u64)got.integer, w = (stitch_u64)want.integer;
    return (double)(got.integer > want.integer ? g - w : w - g);
}

static __device__ double rounded(double value, int dtype)
{
    stitch_u64 place;
    stitch_store(&place, 0, dtype, value);
    return stitch_load(&place, 0, dtype);
}

/* Half precision and less may hold less than the tolerance tells apart: what is rounded to it from within the tolerance
 * is as right as it can be. Rounding keeps the order. */
static __device__ bool is_right(double got, double want, double tolerance, int dtype)
{
    if (fabs(got - want) <= tolerance)
        return true;
    return dtype >= DT_F16 && dtype <= DT_F8E5M2 && got >= rounded(want - tolerance, dtype) && got <= rounded(want + tolerance, dtype);
}

/* How far an element is from what is wanted, as a multiple of the tolerance; mismatches are above 1. */
static __device__ void element(stitch_comparison *r, stitch_u64 i, stitch_element g, stitch_element w, bool i64, int dtype, double atol,
                               double rtol)
{
    double got = i64 ? (double)g.integer : g.real, want = i64 ? (double)w.integer : w.real;
    bool got_nan = got != got, want_nan = want != want, got_inf = fabs(got) == INF, want_inf = fabs(want) == INF, bad;
    double key = 0;
    r->nan_got += got_nan;
    r->nan_want += want_nan;
    r->inf_got += got_inf;
    r->inf_want += want_inf;
    if (got_nan || want_nan || got_inf || want_inf) {
        bad = !(got_nan && want_nan) && got != want;
        r->not_finite += bad;
        key = bad ? INF : 0;
    } else {
        double error = i64 ? distance(g, w) : fabs(got - want), size = fabs(want), tolerance = atol + rtol * size;
        bad = i64 ? error > tolerance : !is_right(got, want, tolerance, dtype);
        key = error == 0 ? 0 : tolerance > 0 ? error / tolerance : 1e300;
        if (!bad && key > 1)
            key = 1;
        if (bad && key <= 1)
            key = 1.0000000000000002;
        r->finite++;
        r->sum_abs += error;
        if (error > r->max_abs)
            r->max_abs = error;
        if (size > atol) {
            double relative = error / size;
            r->rel_count++;
            r->sum_rel += relative;
            if (relative > r->max_rel)
                r->max_rel = relative;
        }
    }
    r->elements++;
    if (bad) {
        r->mismatches++;
        if (r->first == NONE) {
            r->first = i;
            r->first_got = g;
            r->first_want = w;
        }
        r->last = i;
    }
    if (key > r->worst_key) {
        r->worst_key = key;
        r->worst = i;
        r->worst_got = g;
        r->worst_want = w;
    }
}

static __device__ void fold(stitch_comparison *shared, const stitch_comparison *mine, stitch_comparison *out)
{
    shared[threadIdx.x] = *mine;
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            merge(&shared[threadIdx.x], &shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        *out = shared[0];
}

extern "C" __global__ void stitch_compare(const void *got, int got_dtype, int got_size, const void *again, const void *want,
                                          int want_dtype, stitch_u64 count, double atol, double rtol, stitch_u64 poison_a,
                                          stitch_u64 poison_b, stitch_comparison *partials)
{
    __shared__ stitch_comparison shared[256];
    stitch_comparison mine;
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x;
    bool i64 = are_i64(got_dtype, want_dtype);
    clear(&mine);
    for (stitch_u64 i = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        stitch_u64 bits = raw(got, i, got_size);
        bool unwritten = bits == poison_a;
        if (again) {
            stitch_u64 bits_again = raw(again, i, got_size);
            unwritten = unwritten && bits_again == poison_b;
            mine.differ += !unwritten && bits != bits_again;
        }
        stitch_u64 before = mine.mismatches;
        element(&mine, i, load(got, i, got_dtype, i64), load(want, i, want_dtype, i64), i64, got_dtype, atol, rtol);
        /* After a single run, the pattern is also what a right result may look like: -1 of integers. */
        if (unwritten && (again || mine.mismatches > before)) {
            mine.unwritten++;
            if (mine.unwritten_first == NONE)
                mine.unwritten_first = i;
        }
    }
    fold(shared, &mine, &partials[blockIdx.x]);
}

extern "C" __global__ void stitch_compare_fold(const stitch_comparison *partials, unsigned count, stitch_comparison *out)
{
    __shared__ stitch_comparison shared[256];
    stitch_comparison mine;
    clear(&mine);
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x)
        merge(&mine, &partials[i]);
    fold(shared, &mine, out);
}

/* Where the mismatches are, for outputs that have some: their range along every axis, and how many are in each of 64
 * equal stretches of the output. Integers only, so that the order does not matter. */
struct stitch_location {
    stitch_u64 low[8], high[8], stretch[64];
};

struct stitch_shape {
    stitch_u64 rank, extent[8];
};

extern "C" __global__ void stitch_locate(const void *got, int got_dtype, const void *want, int want_dtype, stitch_u64 count,
                                         double atol, double rtol, stitch_shape shape, stitch_location *out)
{
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x;
    bool i64 = are_i64(got_dtype, want_dtype);
    for (stitch_u64 i = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        double g = stitch_load(got, i, got_dtype), w = stitch_load(want, i, want_dtype);
        double error = i64 ? distance(load(got, i, got_dtype, true), load(want, i, want_dtype, true)) : fabs(g - w);
        bool same = !i64 && (g == w || (g != g && w != w)); /* infinities, too, whose error is NaN */
        bool finite = fabs(g) < INF && fabs(w) < INF;
        double tolerance = atol + rtol * fabs(w);
        if (same || (finite && (i64 ? error <= tolerance : is_right(g, w, tolerance, got_dtype))))
            continue;
        stitch_u64 rest = i;
        for (stitch_u64 k = shape.rank; k-- > 0;) {
            stitch_u64 at = rest % shape.extent[k];
            rest /= shape.extent[k];
            atomicMin(&out->low[k], at);
            atomicMax(&out->high[k], at);
        }
        atomicAdd(&out->stretch[(stitch_u64)((double)i * 64 / (double)count) & 63], 1ull);
    }
}
