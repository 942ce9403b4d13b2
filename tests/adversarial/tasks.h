/* SPDX-License-Identifier: MIT
 *
 * The tasks that the tricks are played on: an element-wise one, a product, a softmax, an identity.
 */
#ifndef STITCH_TESTS_ADVERSARIAL_TASKS_H
#define STITCH_TESTS_ADVERSARIAL_TASKS_H

#define TENSOR(name, shape) "{\"name\":\"" name "\",\"dtype\":\"f32\",\"shape\":[" shape "]}"
#define TOLERANCE(t)        "\"tolerance\":{\"atol\":" t ",\"rtol\":" t "},\"precision\":\"f32\""

/* ---- y = a * x + b ---- */

#define VECTOR_DOC(tolerance) VECTOR_DOC_OF("4099", tolerance)
#define VECTOR_DOC_OF(n, tolerance)                                                                                    \
    "\"name\":\"vector\",\"dims\":{\"N\":" n "},\"inputs\":[" TENSOR("x", "\"N\"") "],\"weights\":[" TENSOR(           \
        "a", "\"N\"") "," TENSOR("b", "\"N\"") "],\"outputs\":[" TENSOR("y", "\"N\"") "]," tolerance
#define REDUCED_VECTOR_DOC(tolerance) "\"reduced_dims\":{\"N\":515}," VECTOR_DOC(tolerance)

#define VECTOR_ARGS        "[\"x\",\"a\",\"b\",\"y\",{\"i32\":\"N\"}]"
#define STEP(name, args)   "{\"kernel\":\"" name "\",\"grid\":[\"ceil_div(N,256)\"],\"block\":[256],\"args\":" args "}"
#define ONE(name, args)    "{\"kernel\":\"" name "\",\"grid\":[1],\"block\":[1],\"args\":" args "}"
#define BUFFER(name, type) "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[\"N\"]}"
#define PLAN(buffers, prepare, run)                                                                                    \
    "{\"stitch\":1,\"buffers\":{" buffers "},\"prepare\":[" prepare "],\"run\":[" run "]}"
#define VECTOR_PLAN PLAN("", "", STEP("k", VECTOR_ARGS))
#define VECTOR_HEAD(name, more, out)                                                                                   \
    "__global__ void " name "(const float *x, const float *a, const float *b, " out " *y, " more "int n)\n{\n"         \
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) {\n        "
#define VECTOR(body) VECTOR_HEAD("k", "", "float") body "\n    }\n}\n"
#define RIGHT        "a[i] * x[i] + b[i]"

/* ---- the same with every element in [1 + i / 8, 2 + i / 8) ---- */

#define UNIFORM(name) "{\"name\":\"" name "\",\"dtype\":\"f32\",\"shape\":[\"N\"],\"dist\":\"uniform\"}"
#define EIGHTHS(name) "{\"name\":\"" name "\",\"dtype\":\"f32\",\"shape\":[\"N\"],\"dist\":{\"arange\":[1,0.125]}}"
#define STAIRS_DOC                                                                                                     \
    "\"name\":\"stairs\",\"dims\":{\"N\":4099},\"inputs\":[" UNIFORM("x") "],\"weights\":[" UNIFORM("a") "," EIGHTHS(  \
        "b") "],\"outputs\":[" TENSOR("y", "\"N\"") "]," TOLERANCE("1e-4")

/* ---- y = x w, rows of x times columns of w ---- */

#define PRODUCT_DOC_OF(x, w, tolerance)                                                                                \
    "\"name\":\"product\",\"dims\":{\"M\":16,\"N\":32,\"K\":64},\"inputs\":[" x "],\"weights\":[" w                    \
    "],\"outputs\":[" TENSOR("y", "\"M\",\"N\"") "]," TOLERANCE(tolerance)
#define PRODUCT_DOC(tolerance) PRODUCT_DOC_OF(TENSOR("x", "\"M\",\"K\""), TENSOR("w", "\"K\",\"N\""), tolerance)
/* Of factors from 1 to 2, so that errors of one sign add up. */
#define FROM_1_TO_2(name, shape)                                                                                       \
    "{\"name\":\"" name "\",\"dtype\":\"f32\",\"shape\":[" shape "],\"dist\":{\"uniform\":[1,2]}}"
#define POSITIVE_PRODUCT_DOC PRODUCT_DOC_OF(FROM_1_TO_2("x", "\"M\",\"K\""), FROM_1_TO_2("w", "\"K\",\"N\""), "1e-4")
#define PRODUCT_STEP                                                                                                   \
    "{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[\"N\"],\"args\":[\"x\",\"w\",\"y\",{\"i32\":\"N\"},{\"i32\":\"K\"}" \
    "]}"
#define PRODUCT_PLAN PLAN("", "", PRODUCT_STEP)
#define PRODUCT(real, term, end)                                                                                       \
    "__global__ void k(const float *x, const float *w, " real " *y, int n, int k)\n{\n"                                \
    "    int m = blockIdx.x, c = threadIdx.x;\n    " real " s = 0;\n"                                                  \
    "    for (int i = 0; i < " end "; i++) {\n        float u = x[m * k + i], v = w[i * n + c];\n"                     \
    "        s += " term ";\n    }\n    y[m * n + c] = s;\n}\n"

/* ---- softmax of rows ---- */

#define ROWS_DOC(name)                                                                                                 \
    "\"name\":\"" name "\",\"dims\":{\"M\":24,\"N\":64},\"inputs\":[" TENSOR(                                          \
        "x", "\"M\",\"N\"") "],\"outputs\":[" TENSOR("y", "\"M\",\"N\"") "]," TOLERANCE("1e-5")
#define ROWS_PLAN                                                                                                      \
    PLAN("", "", "{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[1],\"args\":[\"x\",\"y\",{\"i32\":\"N\"}]}")
#define ROWS_HEAD(real)                                                                                                \
    "__global__ void k(const float *x, " real " *y, int n)\n{\n    x += blockIdx.x * n;\n    y += blockIdx.x * n;\n"
#define SOFTMAX(real, top)                                                                                             \
    ROWS_HEAD(real)                                                                                                    \
    "    " real " top = " top ", sum = 0;\n    for (int i = 0; i < n; i++) sum += exp(x[i] - top);\n"                  \
    "    for (int i = 0; i < n; i++) y[i] = exp(x[i] - top) / sum;\n}\n"
#define LARGEST(real)                                                                                                  \
    "__device__ " real " largest(const float *x, int n) { " real                                                       \
    " v = x[0]; for (int i = 1; i < n; i++) v = x[i] > v "                                                             \
    "? x[i] : v; return v; }\n"

/* ---- y = x ---- */

#define COPY_DOC(name, tolerance)                                                                                      \
    "\"name\":\"" name                                                                                                 \
    "\",\"dims\":{\"N\":4099},\"inputs\":[" TENSOR("x", "\"N\"") "],\"outputs\":[" TENSOR("y", "\"N\"") "]," tolerance
#define COPY_PLAN PLAN("", "", STEP("k", "[\"x\",\"y\",{\"i32\":\"N\"}]"))
#define COPY(real, body)                                                                                               \
    "__global__ void k(const float *x, " real " *y, int n)\n{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"   \
    "    if (i < n) {\n        " body "\n    }\n}\n"

/* ---- sums of long rows of ones ---- */

#define SUMS_DOC                                                                                                       \
    "\"name\":\"sums\",\"dims\":{\"M\":256,\"N\":262144},\"inputs\":[{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":["    \
    "\"M\",\"N\"],\"dist\":{\"constant\":1}}],\"outputs\":[" TENSOR("y", "\"M\"") "]," TOLERANCE("1e-4")
#define SUMS_PLAN                                                                                                      \
    PLAN("", "", "{\"kernel\":\"k\",\"grid\":[\"M\"],\"block\":[256],\"args\":[\"x\",\"y\",{\"i32\":\"N\"}]}")
#define SUMS(real, step)                                                                                               \
    "__global__ void k(const float *x, " real " *y, int n)\n{\n    __shared__ " real " part[256];\n    " real          \
    " s = 0;\n    x += (size_t)blockIdx.x * n;\n    for (int i = threadIdx.x; i < n; i += 256) { " step "; }\n"        \
    "    part[threadIdx.x] = s;\n    __syncthreads();\n    for (int h = 128; h; h /= 2) {\n"                           \
    "        if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h];\n        __syncthreads();\n    }\n"      \
    "    if (!threadIdx.x) y[blockIdx.x] = part[0];\n}\n"

#endif
