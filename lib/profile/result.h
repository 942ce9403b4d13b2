/* SPDX-License-Identifier: MIT
 *
 * A finished profile, as users get it (include/stitch/profile.h).
 */
#ifndef STITCH_LIB_PROFILE_RESULT_H
#define STITCH_LIB_PROFILE_RESULT_H

#include "profile/advice.h"
#include "profile/collect.h"
#include <stitch/profile.h>

struct stitch_profile {
    stitch_context *ctx;
    stitch__facts *facts;
    stitch__advices advice;
    char *json;
};

/* Fills in what is known of the device and makes verdicts and advice of the facts, which become the profile's in any
 * case. Measures the device's ceilings if nobody has: see stitch__ceilings_get(). */
int stitch__profile_make(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope, stitch__facts *facts,
                         stitch_profile **out, stitch_error **err);

/* stitch__collect() for those who need a timeline at least: STITCH_E_UNSUPPORTED where none can be had. */
int stitch__profile_collect(stitch_context *ctx, stitch__device *dev, const stitch__scope *scope,
                            const stitch__region *region, const stitch__collect_options *options, stitch__facts *facts,
                            stitch_error **err);

/* Defaults filled in and checked; *collect is what the options ask for. */
int stitch__profile_options_resolve(stitch_context *ctx, const stitch_profile_options *options,
                                    stitch_profile_options *out, stitch__collect_options *collect, stitch_error **err);
/* Says in the error of a call with these options what there is to do after a timeout, and what was left behind. */
void stitch__profile_explain(int rc, const stitch_profile_options *options, stitch_error **err);
/* What `profile` (stitch_verify_profile) and a list of metrics ask for. STITCH_E_INVALID: no such value, or names that
 * are none; `what` is the options' type. */
int stitch__collect_options_make(stitch_context *ctx, int32_t profile, const char *const *metrics, size_t metric_count,
                                 const char *what, stitch__collect_options *out, stitch_error **err);

#endif
