/* SPDX-License-Identifier: MIT
 *
 * Waiting for a program that may never end, and telling its failures from the environment's.
 */
#include "runner/runner.h"

/* How long a candidate that outlives the deadline may still take before its memory is given up. */
#define GRACE_MS 2000

bool stitch__is_candidates(int code)
{
    switch (code) {
    case STITCH_E_CANCELLED:
    case STITCH_E_NO_DEVICE:
    case STITCH_E_NO_LIBRARY:
    case STITCH_E_INTERNAL:
    case STITCH_E_IO:
    case STITCH_OK: return false;
    default: return true;
    }
}

static void wait_grace(stitch__device *dev, CUstream stream, const char *what, bool *abandoned)
{
    int64_t until = stitch__now_ns() + (int64_t)GRACE_MS * 1000000;
    while (dev->drv->StreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        if (stitch__now_ns() > until) {
            *abandoned = true;
            stitch__log(dev->ctx, STITCH_LOG_ERROR,
                        "the device still runs the candidate (%s): its memory is given up, and the context may block "
                        "until the process ends",
                        what);
            return;
        }
        stitch__sleep_ms(5);
    }
}

int stitch__wait_candidate(stitch__device *dev, CUstream stream, const stitch__scope *scope, const char *what,
                           bool *abandoned, int *code, stitch_error **why, stitch_error **err)
{
    stitch_error *wait = NULL;
    int rc = stitch__stream_wait(dev, stream, scope, what, &wait);

    *code = rc;
    if (rc == STITCH_E_TIMEOUT || rc == STITCH_E_CANCELLED)
        wait_grace(dev, stream, what, abandoned);
    if (rc == STITCH_E_TIMEOUT)
        stitch__err_prefix(&wait, "the program did not end in time: ");
    if (stitch__is_candidates(rc))
        rc = STITCH_OK;
    if (*code)
        stitch__err_hand_on(rc ? err : why, &wait);
    stitch_error_free(wait);
    return rc;
}
