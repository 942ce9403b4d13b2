/* SPDX-License-Identifier: MIT
 *
 * The part of CUPTI's profiling interfaces that the library uses: the host API (which metrics a chip has, how many
 * passes they take, values from raw counters) and the range profiler. Declared here so that building needs no CUPTI
 * header (the host API's is no C). The layouts are those of 12.6 Update 2, the first with a range profiler; later
 * versions append. tests/support/cupti_profiler_layout.h compares all of it with the real headers where there are
 * some.
 */
#ifndef STITCH_LIB_CUDA_CUPTI_PROFILER_H
#define STITCH_LIB_CUDA_CUPTI_PROFILER_H

#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

/* The size of a struct as CUPTI wants it: without the padding behind its last field. */
#define STITCH__CUPTI_SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

enum { STITCH__CUPTI_TYPE_RANGE_PROFILER = 0 };
enum { STITCH__CUPTI_AUTO_RANGE = 1, STITCH__CUPTI_USER_REPLAY = 1, STITCH__CUPTI_KERNEL_REPLAY = 2 };
enum { STITCH__CUPTI_API_RANGE_PROFILING = 0 };
enum {
    STITCH__CUPTI_LEVEL_UNKNOWN,
    STITCH__CUPTI_LEVEL_UNSUPPORTED,
    STITCH__CUPTI_LEVEL_DISABLED,
    STITCH__CUPTI_LEVEL_SUPPORTED
};

/* In all of these: size is STITCH__CUPTI_SIZE() of the last field, priv is NULL. */

/* ---- the device ---- */

typedef struct stitch__cupti_profiler_init {
    size_t size;
    void *priv;
} stitch__cupti_profiler_init;
#define STITCH__CUPTI_PROFILER_INIT_SIZE STITCH__CUPTI_SIZE(stitch__cupti_profiler_init, priv)

typedef struct stitch__cupti_device_supported {
    size_t size;
    void *priv;
    CUdevice device;
    int supported, architecture, sli, vgpu, confidential, mining, wsl; /* out: STITCH__CUPTI_LEVEL_... */
    int api;                                                           /* in */
} stitch__cupti_device_supported;
#define STITCH__CUPTI_DEVICE_SUPPORTED_SIZE STITCH__CUPTI_SIZE(stitch__cupti_device_supported, api)

typedef struct stitch__cupti_chip_name {
    size_t size;
    void *priv;
    size_t device;
    const char *name; /* out */
} stitch__cupti_chip_name;
#define STITCH__CUPTI_CHIP_NAME_SIZE STITCH__CUPTI_SIZE(stitch__cupti_chip_name, name)

typedef struct stitch__cupti_availability {
    size_t size;
    void *priv;
    CUcontext context;
    size_t image_size; /* in, out; out alone where image is NULL */
    uint8_t *image;
} stitch__cupti_availability;
#define STITCH__CUPTI_AVAILABILITY_SIZE STITCH__CUPTI_SIZE(stitch__cupti_availability, image)

/* ---- the host API ---- */

typedef struct stitch__cupti_host_init {
    size_t size;
    void *priv;
    int type;
    const char *chip;
    const uint8_t *availability;
    void *host; /* out */
} stitch__cupti_host_init;
#define STITCH__CUPTI_HOST_INIT_SIZE STITCH__CUPTI_SIZE(stitch__cupti_host_init, host)

typedef struct stitch__cupti_host_deinit {
    size_t size;
    void *priv;
    void *host;
} stitch__cupti_host_deinit;
#define STITCH__CUPTI_HOST_DEINIT_SIZE STITCH__CUPTI_SIZE(stitch__cupti_host_deinit, host)

typedef struct stitch__cupti_metric_properties {
    size_t size;
    void *priv;
    void *host;
    const char *metric;
    const char *description, *unit, *dimension; /* out */
    int type;                                   /* out */
} stitch__cupti_metric_properties;
#define STITCH__CUPTI_METRIC_PROPERTIES_SIZE STITCH__CUPTI_SIZE(stitch__cupti_metric_properties, type)

typedef struct stitch__cupti_add_metrics {
    size_t size;
    void *priv;
    void *host;
    const char **metrics;
    size_t count;
} stitch__cupti_add_metrics;
#define STITCH__CUPTI_ADD_METRICS_SIZE STITCH__CUPTI_SIZE(stitch__cupti_add_metrics, count)

typedef struct stitch__cupti_config_size {
    size_t size;
    void *priv;
    void *host;
    size_t config_size; /* out */
} stitch__cupti_config_size;
#define STITCH__CUPTI_CONFIG_SIZE_SIZE STITCH__CUPTI_SIZE(stitch__cupti_config_size, config_size)

typedef struct stitch__cupti_config_image {
    size_t size;
    void *priv;
    void *host;
    size_t config_size;
    uint8_t *config;
} stitch__cupti_config_image;
#define STITCH__CUPTI_CONFIG_IMAGE_SIZE STITCH__CUPTI_SIZE(stitch__cupti_config_image, config)

typedef struct stitch__cupti_passes {
    size_t size;
    void *priv;
    size_t config_size;
    uint8_t *config;
    size_t passes; /* out */
} stitch__cupti_passes;
#define STITCH__CUPTI_PASSES_SIZE STITCH__CUPTI_SIZE(stitch__cupti_passes, passes)

typedef struct stitch__cupti_evaluate {
    size_t size;
    void *priv;
    void *host;
    const uint8_t *data;
    size_t data_size;
    size_t range;
    const char **metrics;
    size_t count;
    double *values; /* out */
} stitch__cupti_evaluate;
#define STITCH__CUPTI_EVALUATE_SIZE STITCH__CUPTI_SIZE(stitch__cupti_evaluate, values)

/* ---- the range profiler ---- */

typedef struct stitch__cupti_range_enable {
    size_t size;
    void *priv;
    CUcontext context;
    void *profiler; /* out */
} stitch__cupti_range_enable;
#define STITCH__CUPTI_RANGE_ENABLE_SIZE STITCH__CUPTI_SIZE(stitch__cupti_range_enable, profiler)

/* Disable and start have the same parameters. */
typedef struct stitch__cupti_range_object {
    size_t size;
    void *priv;
    void *profiler;
} stitch__cupti_range_object;
#define STITCH__CUPTI_RANGE_OBJECT_SIZE STITCH__CUPTI_SIZE(stitch__cupti_range_object, profiler)

typedef struct stitch__cupti_range_stop {
    size_t size;
    void *priv;
    void *profiler;
    size_t pass, nesting; /* out */
    uint8_t complete;     /* out: every pass was submitted */
} stitch__cupti_range_stop;
#define STITCH__CUPTI_RANGE_STOP_SIZE STITCH__CUPTI_SIZE(stitch__cupti_range_stop, complete)

typedef struct stitch__cupti_range_config {
    size_t size;
    void *priv;
    void *profiler;
    size_t config_size;
    const uint8_t *config;
    size_t data_size;
    uint8_t *data;
    int range, replay;
    size_t max_ranges;
    uint16_t nesting_levels, min_nesting;
    size_t pass;
    uint16_t target_nesting;
} stitch__cupti_range_config;
#define STITCH__CUPTI_RANGE_CONFIG_SIZE STITCH__CUPTI_SIZE(stitch__cupti_range_config, target_nesting)

typedef struct stitch__cupti_data_size {
    size_t size;
    void *priv;
    void *profiler;
    const char **metrics;
    size_t count;
    size_t max_ranges;
    uint32_t max_nodes;
    size_t data_size; /* out */
} stitch__cupti_data_size;
#define STITCH__CUPTI_DATA_SIZE_SIZE STITCH__CUPTI_SIZE(stitch__cupti_data_size, data_size)

typedef struct stitch__cupti_data_init {
    size_t size;
    void *priv;
    void *profiler;
    size_t data_size;
    uint8_t *data;
} stitch__cupti_data_init;
#define STITCH__CUPTI_DATA_INIT_SIZE STITCH__CUPTI_SIZE(stitch__cupti_data_init, data)

typedef struct stitch__cupti_range_decode {
    size_t size;
    void *priv;
    void *profiler;
    size_t dropped; /* out */
} stitch__cupti_range_decode;
#define STITCH__CUPTI_RANGE_DECODE_SIZE STITCH__CUPTI_SIZE(stitch__cupti_range_decode, dropped)

typedef struct stitch__cupti_data_info {
    size_t size;
    void *priv;
    const uint8_t *data;
    size_t data_size;
    size_t ranges; /* out */
} stitch__cupti_data_info;
#define STITCH__CUPTI_DATA_INFO_SIZE STITCH__CUPTI_SIZE(stitch__cupti_data_info, ranges)

typedef struct stitch__cupti_range_info {
    size_t size;
    void *priv;
    const uint8_t *data;
    size_t data_size;
    size_t range;
    const char *delimiter;
    const char *name; /* out */
} stitch__cupti_range_info;
#define STITCH__CUPTI_RANGE_INFO_SIZE STITCH__CUPTI_SIZE(stitch__cupti_range_info, name)

#endif
