/* SPDX-License-Identifier: MIT
 *
 * What results of CUPTI mean and what to do about them. tables.c opens the library.
 */
#include "cuda/cupti.h"

typedef struct advice {
    int result, code;
    const char *text;
} advice;

static const advice advices[] = {
    {STITCH__CUPTI_OUT_OF_MEMORY, STITCH_E_NOMEM, "there is not enough host or device memory for its buffers"},
    {STITCH__CUPTI_NOT_COMPATIBLE, STITCH_E_UNSUPPORTED, "this CUPTI cannot do that on this device"},
    {STITCH__CUPTI_NOT_INITIALIZED, STITCH_E_LIBRARY,
     "CUPTI did not start: its version needs a newer driver, or none is installed; use the CUPTI of a toolkit that is "
     "not newer than the driver (cuda_path or STITCH_CUPTI)"},
    {STITCH__CUPTI_HARDWARE_BUSY, STITCH_E_BUSY,
     "another process holds the GPU's profiling hardware (DCGM, ncu, nsys); stop it or let it pause (dcgmi profile "
     "--pause)"},
    {STITCH__CUPTI_NOT_SUPPORTED, STITCH_E_UNSUPPORTED, "this device or driver cannot do that"},
    {STITCH__CUPTI_VIRTUALIZED, STITCH_E_UNSUPPORTED, "virtual GPUs cannot be profiled"},
    {STITCH__CUPTI_INSUFFICIENT_PRIVILEGES, STITCH_E_UNSUPPORTED,
     "this user may not profile: run as root or with CAP_SYS_ADMIN, or have the driver's option "
     "NVreg_RestrictProfilingToAdminUsers=0 set"},
    {STITCH__CUPTI_OLD_PROFILER, STITCH_E_BUSY, "another profiler has been started in this process; end it"},
    {STITCH__CUPTI_LEGACY_PROFILER, STITCH_E_BUSY, "another profiler has been started in this process; end it"},
    {STITCH__CUPTI_VIRTUALIZED_PRIVILEGES, STITCH_E_UNSUPPORTED,
     "profiling is switched off for this virtual GPU; have it enabled in the hypervisor"},
    {STITCH__CUPTI_CONFIDENTIAL_COMPUTING, STITCH_E_UNSUPPORTED,
     "GPUs in confidential computing mode cannot be profiled"},
    {STITCH__CUPTI_WSL, STITCH_E_UNSUPPORTED, "this driver cannot profile under WSL; use a newer one"},
};

int stitch__cupti_check(const stitch_context *ctx, const stitch__cupti *cupti, int result, const char *what,
                        const char *holder, stitch_error **err)
{
    const char *name = NULL, *text = NULL;
    stitch__buf clean;
    int rc;
    if (result == STITCH__CUPTI_OK)
        return STITCH_OK;
    if (cupti->GetResultString(result, &name) != STITCH__CUPTI_OK || !name)
        name = "unknown CUPTI error";
    if (result == STITCH__CUPTI_MULTIPLE_SUBSCRIBERS) {
        stitch__buf_init(&clean, ctx);
        stitch__buf_puts_clean(&clean, holder ? holder : "", holder ? strlen(holder) : 0, 200);
        rc = stitch__err_native(
            ctx, err, STITCH_E_BUSY, STITCH_DOMAIN_CUPTI, result,
            "%s: another tool traces or profiles this process%s%s%s, and CUPTI admits one at a time; end it "
            "(torch.profiler and other users of CUPTI) or start the process without it (nsys, ncu, cuda-gdb, "
            "compute-sanitizer) (%s)",
            what, clean.len ? " (" : "", clean.len && clean.data ? clean.data : "", clean.len ? ")" : "", name);
        stitch__buf_free(&clean);
        return rc;
    }
    for (size_t i = 0; i < STITCH__COUNT(advices); i++) {
        if (advices[i].result == result)
            return stitch__err_native(ctx, err, advices[i].code, STITCH_DOMAIN_CUPTI, result, "%s: %s (%s)", what,
                                      advices[i].text, name);
    }
    if (!cupti->GetErrorMessage || cupti->GetErrorMessage(result, &text) != STITCH__CUPTI_OK)
        text = NULL;
    return stitch__err_native(ctx, err, STITCH_E_LIBRARY, STITCH_DOMAIN_CUPTI, result, "%s: %s (%s)", what,
                              text ? text : "CUPTI failed", name);
}
