/* SPDX-License-Identifier: MIT
 *
 * For tests that need a device, real or simulated: opens one or skips the test with the reason.
 */
#ifndef STITCH_TESTS_DEVICE_H
#define STITCH_TESTS_DEVICE_H

#include "base/base.h"
#include "check.h"
#include "cuda/cuda.h"

static stitch_context *ctx;
static stitch_device_info device; /* of the context */
static stitch_error *err;

/* The context of the whole program; STITCH_TEST_DEVICE names another device than "auto". */
__attribute__((unused)) static void need_device(void)
{
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    int rc;

    device.struct_size = sizeof(device);
    options.device = getenv("STITCH_TEST_DEVICE");
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, &options, &err));
    rc = stitch_device_query(ctx, &device, &err);
    if (rc == STITCH_E_NO_DEVICE || rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
    /* The library's own kernels are compiled like everything else. */
    const stitch__nvrtc *nvrtc;
    rc = stitch__nvrtc_get(ctx, &nvrtc, &err);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
}

__attribute__((unused)) static void need_real_device(void)
{
    need_device();
    if (device.simulated)
        SKIP("needs a real GPU");
}

#endif
