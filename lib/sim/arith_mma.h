/* SPDX-License-Identifier: MIT
 *
 * What arith_mma.c calls of arith_mma_lanes.h, which is compiled twice.
 */
#ifndef STITCH_SIM_ARITH_MMA_H
#define STITCH_SIM_ARITH_MMA_H

#include "sim/arith.h"

enum {
    STITCH__MMA_COLUMNS = 8,           /* at a time */
    STITCH__MMA_STEP = 16,             /* products in one sum, at most */
    STITCH__MMA_FRACTION = 25,         /* bits kept below the largest exponent */
    STITCH__MMA_NO_EXPONENT = -100000, /* of zero: below all others, even twice */
};

typedef struct stitch__mma_terms {
    int32_t *significand; /* signed */
    int32_t *exponent;
    bool special; /* has NaN or Inf */
} stitch__mma_terms;

typedef struct stitch__mma_row {
    const int32_t *sa, *ea; /* a row of A */
    const int32_t *sb, *eb; /* [k][STITCH__MMA_COLUMNS] of B */
    const uint8_t *order;   /* which k to take; NULL: 0, 1, 2 ... */
    unsigned count;         /* at most STITCH__MMA_STEP */
    int up;
    bool to_odd; /* round to odd, for a further rounding; else toward zero */
    uint32_t addend[STITCH__MMA_COLUMNS];
} stitch__mma_row;

#define STITCH__MMA_LANES(suffix)                                                                                      \
    void stitch__mma_split_##suffix(stitch__mma_terms *t, unsigned type, const void *p, unsigned count);               \
    void stitch__mma_row_##suffix(const stitch__mma_row *r, uint32_t *out);                                            \
    void stitch__mma_fast_row_##suffix(float *part, const float *a, const float *b, unsigned count);                   \
    void stitch__mma_floats_##suffix(float *out, unsigned type, const void *p, unsigned count);
STITCH__MMA_LANES(generic)
STITCH__MMA_LANES(avx2)

#endif
