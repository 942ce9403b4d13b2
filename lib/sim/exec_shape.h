/* SPDX-License-Identifier: MIT
 *
 * Shapes: how the addresses of a warp's 32 lanes lie to each other. Most instructions of a kernel access memory in the
 * same few shapes over and over, so what follows from one (is it a row, what does it touch, how many banks collide) is
 * found once. Compiled with the main loop for each processor.
 */
#include "sim/exec_fast.h"

static inline bool same_shape32(const stitch__shape *s, const uint32_t *p)
{
    uint32_t bad = 0, first = p[0];
    EACH_LANE bad |= (p[i] - first) ^ s->rel[i];
    return bad == 0;
}

static inline bool same_shape64(const stitch__shape *s, const uint64_t *p)
{
    uint64_t bad = 0, first = p[0];
    EACH_LANE bad |= (p[i] - first) ^ s->rel64[i];
    return bad == 0;
}

/* Everything about a shape whose rel64 is there. */
static inline void shape_classify(stitch__shape *s)
{
    uint64_t line = 0, half = 0, stride = s->rel64[1], bits = 0;
    int64_t low = 0, high = 0;
    EACH_LANE
    {
        int64_t v = (int64_t)s->rel64[i];
        s->rel[i] = (uint32_t)s->rel64[i];
        bits |= s->rel64[i];
        line |= s->rel64[i] - (uint64_t)(unsigned)i * stride;
        half |= s->rel64[i] - s->rel64[i & 16] - (uint64_t)(unsigned)(i & 15) * stride;
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    s->low = low;
    s->high = high;
    s->bits = (uint32_t)bits;
    s->stride = stride < STITCH__SHAPE_NONE ? (uint32_t)stride : STITCH__SHAPE_NONE;
    s->line = line == 0;
    s->half = half == 0;
    s->shared_key = s->global_key = UINT32_MAX;
}

/* Another shape than the last one at this place: one that is known, a new one, or one that is not worth keeping. */
static __attribute__((noinline)) stitch__shape *shape_find(stitch__exec *x, uint32_t pc, stitch__shape *s)
{
    stitch__shapes *known = x->shapes;
    shape_classify(s);
    for (uint32_t i = 0; i < known->count; i++) {
        stitch__shape *k = &known->shape[i];
        if (k->rel[1] == s->rel[1] && k->rel[16] == s->rel[16] && k->rel[31] == s->rel[31] &&
            memcmp(k->rel64, s->rel64, sizeof(k->rel64)) == 0) {
            x->fc->shape[pc] = k;
            return k;
        }
    }
    if (known->count == STITCH__SHAPES || (!s->line && !s->half && known->irregular == STITCH__SHAPES / 2))
        return s;
    known->irregular += !s->line && !s->half;
    stitch__shape *k = &known->shape[known->count++];
    *k = *s;
    x->fc->shape[pc] = k;
    return k;
}

static inline stitch__shape *shape32(stitch__exec *x, uint32_t pc, const uint32_t *p, stitch__shape *scratch)
{
    stitch__shape *s = x->fc->shape[pc];
    if (s && same_shape32(s, p))
        return s;
    EACH_LANE scratch->rel64[i] = (uint64_t)(int64_t)(int32_t)(p[i] - p[0]);
    return shape_find(x, pc, scratch);
}

static inline stitch__shape *shape64(stitch__exec *x, uint32_t pc, const uint64_t *p, stitch__shape *scratch)
{
    stitch__shape *s = x->fc->shape[pc];
    if (s && same_shape64(s, p))
        return s;
    EACH_LANE scratch->rel64[i] = p[i] - p[0];
    return shape_find(x, pc, scratch);
}

/* All lanes one after the other, all at one place, half-warps one after the other (rows of 16 in a tile), half-warps
 * at one place each. */
static inline bool shape_linear(const stitch__shape *s, uint32_t step)
{
    return s->line && s->stride == step;
}

static inline bool shape_equal(const stitch__shape *s)
{
    return s->line && s->stride == 0;
}

static inline bool shape_rows(const stitch__shape *s, uint32_t step)
{
    return s->half && s->stride == step;
}

static inline bool shape_two(const stitch__shape *s)
{
    return s->half && s->stride == 0;
}

/* Hardly two lanes in one line. */
static inline bool shape_wide(const stitch__shape *s)
{
    return s->high - s->low >= 2048;
}

/* Counters of an access. They depend on the shape and on where its first byte lies in a bank or sector. */
static inline void count_shared_shape(stitch__mem_count *c, stitch__shape *s, uint32_t first, uint32_t step)
{
    uint32_t key = step << 8 | (first & 3);
    if (s->shared_key != key) {
        stitch__mem_count one = {0};
        uint32_t a[32];
        EACH_LANE a[i] = first + s->rel[i];
        count_shared(&one, a, step);
        s->shared_units = (uint32_t)one.units;
        s->shared_key = key;
    }
    c->units += s->shared_units;
    c->ideal += step > 4 ? step / 4 : 1;
    c->requests++;
    c->bytes += 32 * step;
}

static inline void count_global_shape(stitch__mem_count *c, stitch__shape *s, uint64_t first, uint32_t step)
{
    uint32_t key = step << 8 | (uint32_t)(first & 31);
    if (s->global_key != key) {
        stitch__mem_count one = {0};
        uint64_t a[32];
        EACH_LANE a[i] = first + s->rel64[i];
        count_global(&one, a, step);
        s->global_units = (uint32_t)one.units;
        s->global_ideal = (uint32_t)one.ideal;
        s->global_key = key;
    }
    c->units += s->global_units;
    c->ideal += s->global_ideal;
    c->requests++;
    c->bytes += 32 * step;
}
