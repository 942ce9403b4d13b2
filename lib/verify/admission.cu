/* SPDX-License-Identifier: MIT
 *
 * Admission of tasks: cheap answers, means of outputs, and how far outputs spread from draw to draw. Compiled by the
 * library at run time, after convert.h. Every result is the same from run to run.
 */
#define INF __longlong_as_double(0x7ff0000000000000ll)

enum { MAP_COPY, MAP_MODULO, MAP_ROTATE, MAP_REVERSE };

static __device__ stitch_u64 mapped(stitch_u64 i, stitch_u64 count, int map, stitch_u64 a, stitch_u64 b)
{
    switch (map) {
    case MAP_MODULO: return i % a;
    case MAP_ROTATE: return i - i % a + (i % a + b) % a; /* blocks of a elements, each turned by b */
    case MAP_REVERSE: return count - 1 - i;
    default: return i;
    }
}

/* Elements of the same dtype keep their bits: doubles cannot hold every int64. */
static __device__ void put(void *out, stitch_u64 i, int out_dtype, const void *in, stitch_u64 j, int in_dtype, int size)
{
    if (out_dtype != in_dtype) {
        stitch_store(out, i, out_dtype, stitch_load(in, j, in_dtype));
        return;
    }
    switch (size) {
    case 8: ((stitch_u64 *)out)[i] = ((const stitch_u64 *)in)[j]; break;
    case 4: ((stitch_u32 *)out)[i] = ((const stitch_u32 *)in)[j]; break;
    case 2: ((unsigned short *)out)[i] = ((const unsigned short *)in)[j]; break;
    default: ((unsigned char *)out)[i] = ((const unsigned char *)in)[j]; break;
    }
}

extern "C" __global__ void stitch_answer(void *out, int out_dtype, int size, const void *in, int in_dtype, stitch_u64 count,
                                         int map, stitch_u64 a, stitch_u64 b)
{
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x;
    for (stitch_u64 i = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        put(out, i, out_dtype, in, mapped(i, count, map, a, b), in_dtype, size);
}

/* Sums of the finite elements of each column; `chunks` partial ones for every column. */
extern "C" __global__ void stitch_column_sums(const void *data, int dtype, stitch_u64 rows, stitch_u64 cols, stitch_u64 chunks,
                                              double *sums, stitch_u64 *counts)
{
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x;
    for (stitch_u64 t = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; t < cols * chunks; t += step) {
        double sum = 0;
        stitch_u64 finite = 0;
        for (stitch_u64 r = t / cols; r < rows; r += chunks) {
            double v = stitch_load(data, r * cols + t % cols, dtype);
            if (fabs(v) < INF) {
                sum += v;
                finite++;
            }
        }
        sums[t] = sum;
        counts[t] = finite;
    }
}

extern "C" __global__ void stitch_column_means(const double *sums, const stitch_u64 *counts, stitch_u64 cols, stitch_u64 chunks,
                                               double *means)
{
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x;
    for (stitch_u64 c = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; c < cols; c += step) {
        double sum = 0;
        stitch_u64 finite = 0;
        for (stitch_u64 k = 0; k < chunks; k++) {
            sum += sums[k * cols + c];
            finite += counts[k * cols + c];
        }
        means[c] = finite ? sum / (double)finite : 0;
    }
}

struct stitch_spread {
    stitch_u64 elements, finite, over_tolerance, over_factor;
    double sum_change, sum_ratio, max_ratio;
};

static __device__ double low(double x, double y)
{
    return y < x ? y : x;
}

static __device__ double high(double x, double y)
{
    return y > x ? y : x;
}

/* Largest minus smallest value of an element over three draws, as a multiple of its tolerance in the first one. */
static __device__ void spread(stitch_spread *s, double a, double b, double c, double atol, double rtol, double factor)
{
    bool same = (a == b && b == c) || (a != a && b != b && c != c);
    s->elements++;
    if (!(fabs(a) < INF && fabs(b) < INF && fabs(c) < INF)) {
        s->over_tolerance += !same;
        s->over_factor += !same;
        return;
    }
    double change = high(high(a, b), c) - low(low(a, b), c), tolerance = atol + rtol * fabs(a);
    double ratio = change == 0 ? 0 : tolerance > 0 ? low(change / tolerance, 1e300) : 1e300;
    s->finite++;
    s->over_tolerance += change > tolerance;
    s->over_factor += change > factor * tolerance;
    s->sum_change += change;
    s->sum_ratio += low(ratio, 1e12); /* so that a few elements without tolerance leave something of the mean */
    s->max_ratio = high(s->max_ratio, ratio);
}

static __device__ void add(stitch_spread *s, const stitch_spread *o)
{
    s->elements += o->elements;
    s->finite += o->finite;
    s->over_tolerance += o->over_tolerance;
    s->over_factor += o->over_factor;
    s->sum_change += o->sum_change;
    s->sum_ratio += o->sum_ratio;
    s->max_ratio = high(s->max_ratio, o->max_ratio);
}

extern "C" __global__ void stitch_spread_of(const void *a, const void *b, const void *c, int dtype, stitch_u64 count, double atol,
                                            double rtol, double factor, stitch_spread *partials)
{
    __shared__ stitch_spread shared[256];
    stitch_spread mine = {};
    stitch_u64 step = (stitch_u64)gridDim.x * blockDim.x;
    for (stitch_u64 i = (stitch_u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
        spread(&mine, stitch_load(a, i, dtype), stitch_load(b, i, dtype), stitch_load(c, i, dtype), atol, rtol, factor);
    shared[threadIdx.x] = mine;
    for (unsigned half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            add(&shared[threadIdx.x], &shared[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        partials[blockIdx.x] = shared[0];
}
