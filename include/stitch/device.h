/* SPDX-License-Identifier: MIT
 *
 * The device of a context, and what of NVIDIA's software was found.
 */
#ifndef STITCH_DEVICE_H
#define STITCH_DEVICE_H

#include <stitch/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Facts about an opened device. Strings stay valid as long as the context. @since 0.1.0 */
typedef struct stitch_device_info {
    size_t struct_size;
    const char *name; /**< "NVIDIA H200" */
    const char *arch; /**< what device code is compiled for: "sm_90a" */
    int32_t ordinal;  /**< of the driver */
    int32_t compute_major, compute_minor;
    int32_t simulated;      /**< 1: lib/sim stands in for the driver */
    int32_t driver_version; /**< 13000 is 13.0 */
    int32_t multiprocessors;
    int32_t max_threads_per_block;
    int32_t clock_khz, memory_clock_khz;
    uint64_t memory_bytes;
    uint64_t l2_bytes;
    uint64_t shared_bytes_per_block;       /**< without opting in */
    uint64_t shared_bytes_per_block_optin; /**< greatest dynamic shared memory of a block */
    uint64_t shared_bytes_per_multiprocessor;
} stitch_device_info;

#define STITCH_DEVICE_INFO_INIT                                                                                        \
    {                                                                                                                  \
        sizeof(stitch_device_info), NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                               \
    }

/** Opens the device of the context if that has not happened yet. STITCH_E_NO_DEVICE says why there is none.
 * @since 0.1.0 */
STITCH_API int stitch_device_query(stitch_context *ctx, stitch_device_info *info, stitch_error **err);

/**
 * Looks at everything the library can use (driver, devices, NVRTC, cuBLASLt, cuDNN, CUPTI, simulator, HTTP, cache
 * folder): what was found where, in which version, what works and what is missing with what to do. Never fails because
 * something is missing. *json is released with stitch_free(): {"ok": bool, "items": [{"name", "status":
 * "ok|missing|broken|unused", "version", "path", "detail", "tried": []}]}. @since 0.1.0
 */
STITCH_API int stitch_doctor(stitch_context *ctx, char **json, stitch_error **err);

#ifdef __cplusplus
}
#endif
#endif
