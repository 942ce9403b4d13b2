/* SPDX-License-Identifier: MIT
 *
 * Distributions and precisions: names, defaults, checks.
 */
#include "task/task.h"

#include <math.h>
#include <stdio.h>

static const char *const dist_names[] = {NULL,
#define NAME(name, text) text,
                                         STITCH_DIST_LIST(NAME)
#undef NAME
};

/* NULL if there is none. */
static const char *name_of(int kind)
{
    return kind > 0 && (size_t)kind < STITCH__COUNT(dist_names) ? dist_names[kind] : NULL;
}

int stitch__dist_parse(const char *name)
{
    for (size_t i = 1; i < STITCH__COUNT(dist_names); i++)
        if (strcmp(dist_names[i], name) == 0)
            return (int)i;
    return STITCH_DIST_NONE;
}

stitch_dist stitch__dist_resolve(stitch_dist dist)
{
    bool with_default =
        dist.kind == STITCH_DIST_NORMAL || dist.kind == STITCH_DIST_UNIFORM || dist.kind == STITCH_DIST_ARANGE;
    if (with_default && dist.a == 0 && dist.b == 0)
        dist.b = 1;
    return dist;
}

/* As few digits as say exactly what it is: a report is there to repeat a result from. */
static void put_number(double value, char out[32])
{
    static const int digits[] = {6, 9, 15, 17};

    for (size_t i = 0; i < STITCH__COUNT(digits); i++) {
        stitch__format(out, 32, "%.*g", digits[i], value);
        if (stitch__read_double(out, NULL) == value)
            return;
    }
}

void stitch__dist_print(const stitch_dist *dist, char *out, size_t size)
{
    stitch_dist d = stitch__dist_resolve(*dist);
    const char *name = name_of(d.kind);
    char a[32], b[32];

    put_number(d.a, a);
    put_number(d.b, b);
    if (!name)
        snprintf(out, size, "none");
    else if (d.kind == STITCH_DIST_TRIL)
        snprintf(out, size, "%s", name);
    else if (d.kind == STITCH_DIST_CONSTANT || d.kind == STITCH_DIST_BERNOULLI)
        snprintf(out, size, "%s(%s)", name, a);
    else
        snprintf(out, size, "%s(%s, %s)", name, a, b);
}

bool stitch__dtype_is_float(int dtype)
{
    return dtype >= STITCH_DTYPE_F64 && dtype <= STITCH_DTYPE_F8E5M2;
}

int stitch__dist_check(const stitch_context *ctx, const stitch_dist *dist, int dtype, size_t rank, const char *tensor,
                       stitch_error **err)
{
    const double exact = 9007199254740992.0; /* 2^53 */
    stitch_dist d = stitch__dist_resolve(*dist);
    const char *name = name_of(d.kind);

    if (!name)
        return stitch__err(ctx, err, STITCH_E_INVALID, "tensor %s: %d is no distribution (stitch_dist_kind)", tensor,
                           (int)d.kind);
    if (!isfinite(d.a) || !isfinite(d.b))
        return stitch__err(ctx, err, STITCH_E_INVALID, "tensor %s: a parameter of distribution %s is not finite",
                           tensor, name);
    switch (d.kind) {
    case STITCH_DIST_NORMAL:
        if (d.b < 0)
            return stitch__err(ctx, err, STITCH_E_INVALID, "tensor %s: the standard deviation %g of normal is negative",
                               tensor, d.b);
        break;
    case STITCH_DIST_UNIFORM:
        if (!(d.a < d.b))
            return stitch__err(ctx, err, STITCH_E_INVALID, "tensor %s: uniform needs a < b, got [%g, %g]", tensor, d.a,
                               d.b);
        break;
    case STITCH_DIST_RANDINT:
        if (d.a != floor(d.a) || d.b != floor(d.b) || fabs(d.a) > exact || fabs(d.b) > exact || !(d.a < d.b))
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "tensor %s: randint needs integers a < b (b is not drawn), got [%g, %g]", tensor, d.a,
                               d.b);
        break;
    case STITCH_DIST_BERNOULLI:
        if (d.a < 0 || d.a > 1)
            return stitch__err(ctx, err, STITCH_E_INVALID,
                               "tensor %s: the probability %g of bernoulli is not in [0, 1]", tensor, d.a);
        break;
    case STITCH_DIST_TRIL:
        if (rank < 2)
            return stitch__err(ctx, err, STITCH_E_INVALID, "tensor %s: tril needs at least two dimensions, it has %zu",
                               tensor, rank);
        break;
    default: break;
    }
    (void)dtype;
    return STITCH_OK;
}

static const char *const precision_names[] = {"any", "f32", "tf32", "f16"};

const char *stitch__precision_name(int precision)
{
    return precision >= 0 && (size_t)precision < STITCH__COUNT(precision_names) ? precision_names[precision]
                                                                                : "unknown";
}

int stitch__precision_parse(const char *name)
{
    for (size_t i = 0; i < STITCH__COUNT(precision_names); i++)
        if (strcmp(precision_names[i], name) == 0)
            return (int)i;
    return -1;
}
