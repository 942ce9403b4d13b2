/* SPDX-License-Identifier: MIT
 *
 * The rule of comparison (lib/verify/compare.cu) for one element, on the host.
 */
#ifndef STITCH_TESTS_COMPARE_ONE_H
#define STITCH_TESTS_COMPARE_ONE_H

#include <math.h>
#include <stdbool.h>

/* Within the tolerance? */
static inline bool compare_one(double got, double want, double atol, double rtol)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return got == want;
    return fabs(got - want) <= atol + rtol * fabs(want);
}

#endif
