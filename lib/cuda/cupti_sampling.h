/* SPDX-License-Identifier: MIT
 *
 * What PC sampling needs of CUPTI, like cupti.h. Each parameter block begins with its size; `priv` stays NULL.
 */
#ifndef STITCH_LIB_CUDA_CUPTI_SAMPLING_H
#define STITCH_LIB_CUDA_CUPTI_SAMPLING_H

#include <cuda.h>

#include "base/base.h"

enum {
    STITCH__PCS_REASON_NAME = 128, /* bytes that CUPTI writes a reason's name into */

    STITCH__PCS_PERIOD = 1, /* attributes */
    STITCH__PCS_REASONS = 2,
    STITCH__PCS_HARDWARE_BUFFER = 4,
    STITCH__PCS_MODE = 5,
    STITCH__PCS_START_STOP = 6,
    STITCH__PCS_FORMAT = 7,
    STITCH__PCS_DATA_BUFFER = 8,

    STITCH__PCS_CONTINUOUS = 1, /* of STITCH__PCS_MODE */
    STITCH__PCS_PARSED = 1,     /* of STITCH__PCS_FORMAT */
};

typedef struct stitch__pcs_stall {
    uint32_t reason, samples;
} stitch__pcs_stall;

/* 12.4's layout. */
typedef struct stitch__pcs_record {
    size_t size;
    uint64_t crc, offset;
    uint32_t function, pad; /* its number in the cubin's symbol table */
    char *name;             /* may be of another one: sampling.c says why */
    size_t stall_count;
    stitch__pcs_stall *stalls;
    uint32_t correlation;
} stitch__pcs_record;

typedef struct stitch__pcs_data {
    size_t size;
    size_t room; /* records */
    uint64_t total, dropped;
    size_t count, remaining;
    uint64_t range;
    stitch__pcs_record *records;
    uint64_t other_kernels;
    uint8_t buffer_full;
} stitch__pcs_data;

typedef struct stitch__pcs_attribute {
    int32_t type, status;
    union {
        uint64_t data[3];
        uint32_t number;
        size_t size;
        void *buffer;
        struct {
            size_t count;
            uint32_t *list;
        } reasons;
    } value;
} stitch__pcs_attribute;

typedef struct stitch__pcs_attributes {
    size_t size;
    void *priv;
    CUcontext ctx;
    size_t count;
    stitch__pcs_attribute *list;
} stitch__pcs_attributes;

/* Of Enable, Disable, Start and Stop. */
typedef struct stitch__pcs_context {
    size_t size;
    void *priv;
    CUcontext ctx;
} stitch__pcs_context;

typedef struct stitch__pcs_get_data {
    size_t size;
    void *priv;
    CUcontext ctx;
    stitch__pcs_data *data;
} stitch__pcs_get_data;

typedef struct stitch__pcs_reason_count {
    size_t size;
    void *priv;
    CUcontext ctx;
    size_t *count;
} stitch__pcs_reason_count;

typedef struct stitch__pcs_reasons {
    size_t size;
    void *priv;
    CUcontext ctx;
    size_t count;
    uint32_t *indices;
    char **names;
} stitch__pcs_reasons;

typedef struct stitch__cubin_crc {
    size_t size;
    size_t cubin_size;
    const void *cubin;
    uint64_t crc;
} stitch__cubin_crc;

#endif
