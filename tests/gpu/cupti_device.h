/* SPDX-License-Identifier: MIT
 *
 * For tests that use CUPTI on a device.
 */
#ifndef STITCH_TESTS_CUPTI_DEVICE_H
#define STITCH_TESTS_CUPTI_DEVICE_H

#include "cuda/cupti.h"
#include "device.h"

/* CUPTI beside a real device, or the test is skipped. */
static const stitch__cupti *need_cupti_library(void)
{
    const stitch__cupti *cupti;
    need_real_device();
#ifdef __SANITIZE_ADDRESS__
    SKIP("CUPTI opens a library with RTLD_DEEPBIND, which AddressSanitizer does not allow");
#endif
    int rc = stitch__cupti_get(ctx, &cupti, &err);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
    return cupti;
}

#endif
