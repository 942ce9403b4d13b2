/* SPDX-License-Identifier: MIT
 *
 * Programs whose problem is known, and what a profile of each has to say on a large GPU.
 */
#ifndef STITCH_TESTS_PROFILE_PROGRAMS_H
#define STITCH_TESTS_PROFILE_PROGRAMS_H

#include <stddef.h>

/* What a diagnosis must be. Lists are words with blanks around. */
typedef struct diagnosis {
    const char *what;
    const char *bounds;    /* of the run, one of these */
    const char *must;      /* rules */
    const char *must_not;  /* rules */
    const char *only;      /* no other rules than these; NULL: any */
    const char *line_rule; /* whose advice names the line with line_part; NULL: no line is meant */
    const char *line_part;
} diagnosis;

typedef struct example {
    const char *head, *reference, *source, *plan;
    diagnosis d;
} example;

#define TENSOR(name, shape) "{\"name\":\"" name "\",\"dtype\":\"f32\",\"shape\":[" shape "]}"
#define HEAD(name, dims, inputs, output, precision, atol)                                                              \
    "\"name\":\"" name "\",\"dims\":{" dims "},\"inputs\":[" inputs "],\"outputs\":[" output                           \
    "],\"precision\":\"" precision "\",\"tolerance\":{\"atol\":" atol ",\"rtol\":1e-3}"
#define RUN_OF(steps) "{\"stitch\":1,\"run\":[" steps "]}"
#define KERNEL_STEP(name, grid, block, args)                                                                           \
    "{\"kernel\":\"" name "\",\"grid\":[" grid "],\"block\":[" block "],\"args\":[" args "]}"

#define MATMUL(real)                                                                                                   \
    "extern \"C\" __global__ void matmul(const float *a, const float *b, " real " *c, int n)\n{\n"                     \
    "    int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;\n"                               \
    "    " real " sum = 0;\n"                                                                                          \
    "    for (int k = 0; k < n; k++)\n"                                                                                \
    "        sum += (" real ")a[row * n + k] * b[k * n + col];\n"                                                      \
    "    c[row * n + col] = sum;\n}\n"

static const example matmul = {
    HEAD("matmul", "\"N\":2048", TENSOR("a", "\"N\",\"N\"") "," TENSOR("b", "\"N\",\"N\""), TENSOR("c", "\"N\",\"N\""),
         "tf32", "1e-1"),
    MATMUL("double"),
    MATMUL("float"),
    RUN_OF(KERNEL_STEP("matmul", "\"N/32\",\"N/8\"", "32,8", "\"a\",\"b\",\"c\",{\"i32\":\"N\"}")),
    {"a naive matmul", " memory latency ", "tensor_unused",
     " uncoalesced bank_conflicts spills memory_bound_near_limit launch_bound many_small_kernels host_bound "
     "redundant_copies conversions small_grid fp64_bound ",
     NULL, "tensor_unused", "sum += "}};

#define TRANSPOSE(real)                                                                                                \
    "extern \"C\" __global__ void turn(const float *x, " real " *y, int n)\n{\n"                                       \
    "    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;\n"                                   \
    "    y[(size_t)c * n + r] = x[(size_t)r * n + c];\n}\n"

static const example transpose = {
    HEAD("transpose", "\"N\":4096", TENSOR("x", "\"N\",\"N\""), TENSOR("y", "\"N\",\"N\""), "f32", "1e-5"),
    TRANSPOSE("double"),
    TRANSPOSE("float"),
    RUN_OF(KERNEL_STEP("turn", "\"N/32\",\"N/8\"", "32,8", "\"x\",\"y\",{\"i32\":\"N\"}")),
    {"an uncoalesced transpose", " memory latency ", "uncoalesced",
     " bank_conflicts tensor_unused memory_bound_near_limit spills launch_bound many_small_kernels host_bound "
     "redundant_copies small_grid ",
     NULL, "uncoalesced", "y[(size_t)c"}};

#define CONFLICTS(real)                                                                                                \
    "extern \"C\" __global__ void rows(const float *x, " real " *y)\n{\n"                                              \
    "    __shared__ float tile[32 * 32];\n"                                                                            \
    "    for (int i = threadIdx.x; i < 1024; i += 256)\n"                                                              \
    "        tile[i] = x[blockIdx.x * 1024 + i];\n"                                                                    \
    "    __syncthreads();\n"                                                                                           \
    "    const float *row = tile + threadIdx.x % 32 * 32;\n"                                                           \
    "    " real " sum = 0;\n"                                                                                          \
    "    for (int r = 0; r < 8; r++)\n"                                                                                \
    "        for (int k = 0; k < 32; k++)\n"                                                                           \
    "            sum = sum * (" real ")0.5 + row[(k ^ r ^ (threadIdx.x / 32)) % 32];\n"                                \
    "    y[blockIdx.x * 256 + threadIdx.x] = sum;\n}\n"

static const example conflicts = {
    HEAD("conflicts", "\"B\":4096", TENSOR("x", "\"B\",1024"), TENSOR("y", "\"B\",256"), "f32", "1e-4"),
    CONFLICTS("double"),
    CONFLICTS("float"),
    RUN_OF(KERNEL_STEP("rows", "\"B\"", "256", "\"x\",\"y\"")),
    {"a bank-conflicted kernel", " memory ", "bank_conflicts",
     " uncoalesced tensor_unused memory_bound_near_limit spills launch_bound many_small_kernels host_bound "
     "redundant_copies small_grid ",
     NULL, "bank_conflicts", "sum = sum * "}};

#define CHAIN(real)                                                                                                    \
    "extern \"C\" __global__ void first(const float *x, " real " *y, int n)\n{\n"                                      \
    "    int i = blockIdx.x * 256 + threadIdx.x;\n    if (i < n) y[i] = x[i];\n}\n"                                    \
    "extern \"C\" __global__ void next(const float *x, " real " *y, int n)\n{\n"                                       \
    "    int i = blockIdx.x * 256 + threadIdx.x;\n    if (i < n) y[i] = y[i] * (" real ")0.5 + x[i];\n}\n"
#define CHAIN_ARGS "\"x\",\"y\",{\"i32\":\"N\"}"

static const example chain = {
    HEAD("chain", "\"N\":50000", TENSOR("x", "\"N\""), TENSOR("y", "\"N\""), "f32", "1e-4"),
    CHAIN("double"),
    CHAIN("float"),
    RUN_OF(KERNEL_STEP("first", "\"ceil_div(N, 256)\"", "256",
                       CHAIN_ARGS) ",{\"repeat\":{\"var\":\"i\",\"count\":31,"
                                   "\"steps\":[" KERNEL_STEP("next", "\"ceil_div(N, 256)\"", "256", CHAIN_ARGS) "]}}"),
    /* A program runs as a graph: its launches cost the host nothing. */
    {"a chain of 32 tiny kernels", " launch ", "many_small_kernels",
     " launch_bound uncoalesced bank_conflicts tensor_unused memory_bound_near_limit spills host_bound "
     "redundant_copies ",
     NULL, NULL, NULL}};

#define SCALE(real)                                                                                                    \
    "extern \"C\" __global__ void scale(const float *x, " real " *y, int n)\n{\n"                                      \
    "    int i = blockIdx.x * 256 + threadIdx.x;\n    if (i < n) y[i] = x[i] * 2;\n}\n"
#define SCALE_STEP(from)    KERNEL_STEP("scale", "\"ceil_div(N, 256)\"", "256", "\"" from "\",\"y\",{\"i32\":\"N\"}")
#define COPY_STEP(from, to) "{\"copy\":{\"from\":\"" from "\",\"to\":\"" to "\"}}"
#define BUFFER(name)        "\"" name "\":{\"dtype\":\"f32\",\"shape\":[\"N\"]}"

static const example copies = {
    HEAD("copies", "\"N\":16777216", TENSOR("x", "\"N\""), TENSOR("y", "\"N\""), "f32", "1e-5"),
    SCALE("double"),
    SCALE("float"),
    "{\"stitch\":1,\"buffers\":{" BUFFER("t") "," BUFFER("u") "," BUFFER("v") "},\"run\":[" COPY_STEP(
        "x", "t") "," COPY_STEP("t", "u") "," COPY_STEP("u", "v") "," SCALE_STEP("v") "]}",
    {"a copy-bound program", " copy ", "redundant_copies",
     " host_copies uncoalesced bank_conflicts tensor_unused spills launch_bound many_small_kernels host_bound "
     "small_grid ",
     NULL, NULL, NULL}};

#define TUNED_REFERENCE                                                                                                \
    "extern \"C\" __global__ void scale4(const float *x, double *y, int n)\n{\n"                                       \
    "    for (int k = 0; k < 4; k++) {\n        int i = blockIdx.x * 1024 + k * 256 + threadIdx.x;\n"                  \
    "        if (i < n) y[i] = x[i] * 2.0;\n    }\n}\n"
#define TUNED                                                                                                          \
    "extern \"C\" __global__ void scale4(const float *x, float *y, int n)\n{\n"                                        \
    "    int i = blockIdx.x * 256 + threadIdx.x;\n"                                                                    \
    "    if (4 * i >= n) return;\n"                                                                                    \
    "    float4 v = ((const float4 *)x)[i];\n"                                                                         \
    "    ((float4 *)y)[i] = make_float4(v.x * 2, v.y * 2, v.z * 2, v.w * 2);\n}\n"

static const example tuned = {
    HEAD("tuned", "\"N\":33554432", TENSOR("x", "\"N\""), TENSOR("y", "\"N\""), "f32", "1e-5"),
    TUNED_REFERENCE,
    TUNED,
    RUN_OF(KERNEL_STEP("scale4", "\"ceil_div(N, 1024)\"", "256", "\"x\",\"y\",{\"i32\":\"N\"}")),
    {"a tuned kernel", " memory ", "", "", " memory_bound_near_limit ", NULL, NULL}};

#endif
