/* SPDX-License-Identifier: MIT
 *
 * A CBLAS for the simulator's matrix products, opened at run time: nothing links against one, and without one the
 * simulator's own loops do the work.
 */
#ifndef STITCH_LIB_SIM_BLAS_H
#define STITCH_LIB_SIM_BLAS_H

/* Values of the CBLAS interface (Netlib), with 32-bit integers. */
enum { STITCH__BLAS_ROW_MAJOR = 101, STITCH__BLAS_NO_TRANS = 111, STITCH__BLAS_TRANS = 112 };

typedef struct stitch__blas {
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double *a, int lda,
                  const double *b, int ldb, double beta, double *c, int ldc);
    const char *name; /* of the library */
} stitch__blas;

/* Opened by the first call and kept; NULL: there is none. $STITCH_BLAS names another library, "none" asks for none.
 * Thread-safe. A BLAS may start threads of its own, as its own settings say. */
const stitch__blas *stitch__sim_blas(void);

#endif
