/* SPDX-License-Identifier: MIT
 *
 * What device code computes with: kernels of each kind and their honest twins, compiled with the real NVRTC (no GPU)
 * for several architectures, and judged by each precision policy. Skipped where there is no NVRTC.
 */
#include "check.h"
#include "cuda/cuda.h"
#include "profile/facts.h"
#include "program_fixture.h"
#include "task/task.h"
#include "verify/scan.h"

static const char *const archs[] = {"sm_80", "sm_89", "sm_90", "sm_120"};

static stitch_context *open_context(void)
{
    stitch_context *ctx = new_context(NULL);
    const stitch__nvrtc *nvrtc;
    stitch_error *err = NULL;
    if (stitch__nvrtc_get(ctx, &nvrtc, &err) != STITCH_OK) {
        stitch_error_free(err);
        stitch_context_free(ctx);
        SKIP("NVRTC is not installed");
    }
    return ctx;
}

/* NULL: NVRTC does not know the architecture. */
static stitch_image *compile(stitch_context *ctx, const char *source, const char *arch, int ptx)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    o.arch = arch;
    o.ptx = ptx;
    int rc = stitch_compile(ctx, source, &o, &image, &err);
    if (rc == STITCH_E_UNSUPPORTED) {
        printf("# %s\n", stitch_error_message(err));
        stitch_error_free(err);
        return NULL;
    }
    if (rc == STITCH_E_COMPILE)
        printf("# %s\n", stitch_error_details(err));
    CHECK_OK(rc);
    return image;
}

static stitch_task *new_task(stitch_context *ctx, int precision, const char *dtype)
{
    stitch_task *task = NULL;
    stitch_interface *iface;
    stitch_error *err = NULL;
    char text[200];
    snprintf(text, sizeof(text), "N=64; input x %s N; output y f32 N", dtype);
    iface = new_interface(ctx, text);
    CHECK_OK(stitch_task_new(ctx, "scan", &task, &err));
    stitch_interface_free(task->iface);
    task->iface = iface;
    CHECK_OK(stitch_task_set_precision(task, precision, &err));
    return task;
}

static stitch__scan *scan_source(stitch_context *ctx, const char *source, const char *arch, int ptx, int precision,
                                 const char *dtype)
{
    stitch_error *err = NULL;
    stitch__scan *scan = NULL;
    stitch_image *image = compile(ctx, source, arch, ptx), *text = image ? compile(ctx, source, arch, 1) : NULL;
    stitch_task *task = new_task(ctx, precision, dtype);
    if (image)
        CHECK_OK(stitch__scan_image(ctx, image, text, task, &scan, &err));
    stitch_image_free(image);
    stitch_image_free(text);
    stitch_task_free(task);
    return scan;
}

static bool finding(const stitch__scan *scan, bool major, const char *what)
{
    for (size_t i = 0; i < scan->finding_count; i++) {
        if (scan->findings[i].major == major && strstr(scan->findings[i].what, what))
            return true;
    }
    return false;
}

static uint64_t count(const stitch__scan *scan, int kind, int a)
{
    uint64_t n = 0;
    for (size_t i = 0; i < scan->function_count; i++) {
        for (size_t k = 0; k < scan->functions[i].op_count; k++) {
            const stitch__scan_op *o = &scan->functions[i].ops[k];
            n += o->kind == kind && (!a || o->a == a) ? o->count : 0;
        }
    }
    return n;
}

static void show(const stitch__scan *scan)
{
    json_t *j = stitch__scan_json(scan);
    char *text = j ? stitch__json_dump(NULL, j, 0) : NULL;
    printf("# %s\n", text ? text : "(no JSON)");
    stitch_free(text);
    json_decref(j);
}

/* What a policy says about a kernel; major NULL: no major finding. */
typedef struct rule {
    int precision;
    const char *dtype; /* of the task's tensors; NULL ends a list */
    const char *major;
} rule;

static void check_rules(stitch_context *ctx, const stitch_image *image, const stitch_image *text, const rule *rules)
{
    stitch_error *err = NULL;
    for (const rule *r = rules; r->dtype; r++) {
        stitch_task *task = new_task(ctx, r->precision, r->dtype);
        stitch__scan *scan;
        CHECK_OK(stitch__scan_image(ctx, image, text, task, &scan, &err));
        bool ok = r->major ? finding(scan, true, r->major) : scan->majors == 0;
        bool known = count(scan, STITCH__SCAN_NOT_KNOWN, 0) == 0;
        if (!ok || !known)
            show(scan);
        if (!ok)
            FAIL("%s, %s, rule %zu: expected %s", scan->arch, scan->from_ptx ? "PTX" : "machine code",
                 (size_t)(r - rules), r->major ? r->major : "no major finding");
        if (!known)
            FAIL("%s: there are instructions that the table does not have", scan->arch);
        stitch__scan_free(scan);
        stitch_task_free(task);
    }
}

/* From machine code and from PTX. False: NVRTC does not know the architecture. */
static bool expect_on(const char *source, const char *arch, const rule *rules)
{
    stitch_context *ctx = open_context();
    stitch_image *image = compile(ctx, source, arch, 0), *text = image ? compile(ctx, source, arch, 1) : NULL;
    bool known = text != NULL;
    if (known) {
        check_rules(ctx, image, text, rules);
        check_rules(ctx, text, NULL, rules);
    }
    stitch_image_free(image);
    stitch_image_free(text);
    stitch_context_free(ctx);
    return known;
}

#define RULES(...) ((const rule[]){__VA_ARGS__, {0, NULL, NULL}})

static void expect(const char *source, const rule *rules)
{
    size_t seen = 0;
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
        seen += expect_on(source, archs[i], rules);
    CHECK(seen >= 3);
}

enum {
    ANY = STITCH_PRECISION_ANY,
    F32 = STITCH_PRECISION_F32,
    TF32 = STITCH_PRECISION_TF32,
    F16 = STITCH_PRECISION_F16
};

static const char plain_f32[] =
    "extern \"C\" __global__ void k(const float *x, const float *w, float *y, int n) {\n"
    "  __shared__ float s[256]; float acc = 0;\n"
    "  for (int i = threadIdx.x; i < n; i += 256) acc += x[i] * w[i];\n"
    "  s[threadIdx.x] = acc * expf(acc) / (1.f + tanhf(acc)); __syncthreads();\n"
    "  for (int o = 128; o; o /= 2) { if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o]; __syncthreads(); }\n"
    "  if (threadIdx.x == 0) atomicAdd(y, sqrtf(s[0]) + sinf(s[0])); }\n";

static const char tensor_tf32[] =
    "extern \"C\" __global__ void k(float *y, const unsigned *x) { float c[4] = {0, 0, 0, 0};\n"
    "  asm volatile(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
    "{%0,%1,%2,%3};\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]),"
    " \"r\"(x[3]), \"r\"(x[4]), \"r\"(x[5]));\n"
    "  for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = c[i]; }\n";

#define TENSOR_HALF(type)                                                                                              \
    "extern \"C\" __global__ void k(float *y, const unsigned *x) { float c[4] = {0, 0, 0, 0};\n"                       \
    "  asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                            \
    ".f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"                                                                        \
    "{%0,%1,%2,%3};\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(x[0]), \"r\"(x[1]), "           \
    "\"r\"(x[2]),"                                                                                                     \
    " \"r\"(x[3]), \"r\"(x[4]), \"r\"(x[5]));\n"                                                                       \
    "  for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = c[i]; }\n"

static const char tensor_f16[] = TENSOR_HALF("f16"), tensor_bf16[] = TENSOR_HALF("bf16");

static const char tensor_f16_f16[] =
    "extern \"C\" __global__ void k(unsigned *y, const unsigned *x) { unsigned c[2] = {0, 0};\n"
    "  asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%3,%4,%5},{%6,%7},{%0,%1};\""
    " : \"+r\"(c[0]), \"+r\"(c[1]) : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(x[4]), \"r\"(x[5]));\n"
    "  y[threadIdx.x * 2] = c[0]; y[threadIdx.x * 2 + 1] = c[1]; }\n";

static const char half_math[] = "#include <cuda_fp16.h>\n"
                                "extern \"C\" __global__ void k(float *y, const float *x) {\n"
                                "  __half2 a = __float22half2_rn(((const float2 *)x)[threadIdx.x]);\n"
                                "  a = __hfma2(a, a, a); ((float2 *)y)[threadIdx.x] = __half22float2(a); }\n";

static const char half_storage[] = "#include <cuda_fp16.h>\n"
                                   "extern \"C\" __global__ void k(float *y, const float *x, __half *cache) {\n"
                                   "  __half a = __float2half(x[threadIdx.x]); cache[threadIdx.x] = a;\n"
                                   "  y[threadIdx.x] = __half2float(a) * 2.5f + x[threadIdx.x]; }\n";

static const char half_reads[] = "#include <cuda_fp16.h>\n"
                                 "extern \"C\" __global__ void k(float *y, const __half *x) {\n"
                                 "  float s = 0; for (int i = 0; i < 8; i++) s = fmaf(__half2float(x[i]), 1.5f, s);\n"
                                 "  y[threadIdx.x] = s; }\n";

static const char bf16_math[] =
    "#include <cuda_bf16.h>\n"
    "extern \"C\" __global__ void k(__nv_bfloat162 *y, const __nv_bfloat162 *x) {\n"
    "  y[threadIdx.x] = __hfma2(x[threadIdx.x], x[threadIdx.x + 1], x[threadIdx.x + 2]); }\n";

static const char doubles[] = "extern \"C\" __global__ void k(double *y, const double *x) {\n"
                              "  y[threadIdx.x] = sin(x[threadIdx.x]) / sqrt(x[1]) + exp(x[2]) * (float)x[3]; }\n";

static const char half_atomics[] =
    "#include <cuda_fp16.h>\n"
    "extern \"C\" __global__ void k(__half2 *y, const __half2 *x) { atomicAdd(y + threadIdx.x, x[threadIdx.x]); }\n";

TEST(float32_is_clean)
{
    expect(plain_f32, RULES({F32, "f32", NULL}, {F16, "f32", NULL}));
    expect(doubles, RULES({F32, "f64", NULL}));
}

TEST(tf32_products)
{
    expect(tensor_tf32, RULES({F32, "f32", "product of tf32 and tf32 with f32 accumulation"}, {TF32, "f32", NULL},
                              {F16, "f32", NULL}, {ANY, "f32", NULL}));
}

/* The task's own tensors are half: products of what is given lose nothing. Of another half type they do. */
TEST(half_products)
{
    expect(tensor_f16, RULES({F32, "f32", "product of f16 and f16 with f32 accumulation"},
                             {TF32, "f32", "product of f16 and f16 with f32 accumulation"}, {F16, "f32", NULL},
                             {F32, "f16", NULL}));
    expect(tensor_bf16, RULES({TF32, "f32", "product of bf16 and bf16 with f32 accumulation"},
                              {F32, "f16", "product of bf16 and bf16"}, {F16, "f32", NULL}, {F32, "bf16", NULL}));
    expect(tensor_f16_f16,
           RULES({F16, "f32", "product of f16 and f16 with f16 accumulation"}, {F16, "f16", NULL}, {ANY, "f32", NULL}));
}

TEST(half_arithmetic)
{
    expect(half_math, RULES({F32, "f32", "arithmetic in f16"}, {TF32, "f32", "arithmetic in f16"}, {F16, "f32", NULL},
                            {F32, "f16", NULL}));
    expect(bf16_math, RULES({F32, "f32", "arithmetic in bf16"}, {F32, "bf16", NULL}));
    expect(half_atomics, RULES({F32, "f32", "sums in memory in f16"}, {F32, "f16", NULL}));
    expect(half_reads, RULES({F32, "f32", NULL}));
}

TEST(half_storage_is_minor)
{
    stitch_context *ctx = open_context();
    expect(half_storage, RULES({F32, "f32", NULL}));
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch__scan *scan = scan_source(ctx, half_storage, "sm_90", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan && finding(scan, false, "values are rounded to f16"));
        stitch__scan_free(scan);
        scan = scan_source(ctx, half_storage, "sm_90", ptx, STITCH_PRECISION_F32, "f16");
        CHECK(scan && !finding(scan, false, "values are rounded"));
        stitch__scan_free(scan);
    }
    stitch_context_free(ctx);
}

/* ---- architectures with products of their own ---- */

#define WGMMA(name, k, types, tail)                                                                                    \
    static const char name[] =                                                                                         \
        "extern \"C\" __global__ void k(float *y, unsigned long long a, unsigned long long b) { float c[4] = {};\n"    \
        "  asm volatile(\"wgmma.fence.sync.aligned;\\n\"\n"                                                            \
        "    \"wgmma.mma_async.sync.aligned.m64n8k" k ".f32." types " {%0,%1,%2,%3},%4,%5,1," tail ";\\n\"\n"          \
        "    \"wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;\" : \"+f\"(c[0]), \"+f\"(c[1]),"    \
        " \"+f\"(c[2]), \"+f\"(c[3]) : \"l\"(a), \"l\"(b));\n"                                                         \
        "  for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = c[i]; }\n"

WGMMA(wgmma_tf32, "8", "tf32.tf32", "1,1");
WGMMA(wgmma_bf16, "16", "bf16.bf16", "1,1,0,0");
WGMMA(wgmma_fp8, "32", "e4m3.e5m2", "1,1");

TEST(hopper_products)
{
    if (!expect_on(wgmma_tf32, "sm_90a",
                   RULES({F32, "f32", "product of tf32 and tf32 with f32 accumulation"}, {TF32, "f32", NULL})))
        SKIP("this NVRTC does not know sm_90a");
    expect_on(wgmma_bf16, "sm_90a",
              RULES({TF32, "f32", "product of bf16 and bf16 with f32 accumulation"}, {F16, "f32", NULL}));
    expect_on(wgmma_fp8, "sm_90a",
              RULES({F16, "f32", "product of e4m3 and e5m2 with f32 accumulation"}, {ANY, "f32", NULL}));
}

static const char fp8_products[] =
    "extern \"C\" __global__ void k(float *y, const unsigned *x) { float c[4] = {0, 0, 0, 0};\n"
    "  asm volatile(\"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},"
    "{%0,%1,%2,%3};\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]),"
    " \"r\"(x[3]), \"r\"(x[4]), \"r\"(x[5]));\n"
    "  for (int i = 0; i < 4; i++) y[threadIdx.x * 4 + i] = c[i]; }\n";

TEST(ada_products)
{
    const rule *rules = RULES({F16, "f32", "product of e4m3 and e4m3 with f32 accumulation"}, {F32, "f8e4m3", NULL});
    if (!expect_on(fp8_products, "sm_89", rules))
        SKIP("this NVRTC does not know sm_89");
    expect_on(fp8_products, "sm_120", rules);
}

#define TCGEN05(name, kind)                                                                                            \
    static const char name[] =                                                                                         \
        "extern \"C\" __global__ void k(float *y, unsigned d, unsigned long long a, unsigned long long b, unsigned i)" \
        " {\n  asm volatile(\"{.reg .pred p; setp.ne.u32 p, %3, 0;\\n\"\n"                                             \
        "    \"tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, p;}\" :: \"r\"(d), \"l\"(a), \"l\"(b),"       \
        " \"r\"(i));\n  y[threadIdx.x] = 1; }\n"

TCGEN05(tcgen05_tf32, "tf32");
TCGEN05(tcgen05_f16, "f16");
TCGEN05(tcgen05_fp8, "f8f6f4");

/* What the machine code does not say, the PTX does. */
TEST(blackwell_products)
{
    if (!expect_on(tcgen05_tf32, "sm_100a", RULES({F32, "f32", "product of tf32 and tf32"}, {TF32, "f32", NULL})))
        SKIP("this NVRTC does not know sm_100a");
    expect_on(tcgen05_f16, "sm_100a", RULES({TF32, "f32", "product of f16 and f16"}, {F16, "f32", NULL}));
    expect_on(tcgen05_fp8, "sm_100a", RULES({F16, "f32", "product of e4m3 and e4m3"}));
}

/* ---- module variables and other effects ---- */

static const char counter[] = "__device__ int calls;\n"
                              "extern \"C\" __global__ void k(int *y) { y[0] = atomicAdd(&calls, 1); }\n";
static const char through_pointer[] =
    "__device__ float cache[64];\n"
    "__device__ __noinline__ void put(float *p, float v) { p[threadIdx.x] = v; }\n"
    "extern \"C\" __global__ void k(float *y) { put(y[1] > 0 ? cache : y, 3); y[0] = cache[5]; }\n";
static const char hidden_pointer[] = "__device__ float cache[64];\n"
                                     "extern \"C\" __global__ void k(float **y) { y[threadIdx.x] = cache; }\n";
static const char table[] = "__device__ const float lut[4] = {1, 2, 4, 8};\n__constant__ float scale[2] = {1, 3};\n"
                            "__device__ __noinline__ float get(const float *p, int i) { return p[i & 3]; }\n"
                            "extern \"C\" __global__ void k(float *y, int i) {\n"
                            "  static constexpr float other[5] = {1, 3, 5, 7, 11};\n"
                            "  y[threadIdx.x] = lut[i & 3] + other[i % 5] * scale[i & 1] + get(lut, i); }\n";
static const char prints[] = "extern \"C\" __global__ void k(float *y, int i) {\n"
                             "  if (i == 7) printf(\"%d\\n\", i);\n"
                             "  int *p = (int *)malloc(8); *p = i; y[0] = *p; free(p); y[1] = clock64(); }\n";
static const char decoy[] = "extern \"C\" __global__ void k(float *y, int i) {\n"
                            "  __shared__ float s[32]; s[threadIdx.x] = i; __syncthreads();\n"
                            "  if (s[(threadIdx.x + 1) % 32] == 12345.f) asm volatile(\"nanosleep.u32 5;\"); }\n";

/* Each is one that a reader of the text could take for a table that is only read. */
static const char constant[] =
    "__constant__ int calls = 1;\nextern \"C\" __global__ void k(int *y) { int *p = (int *)&calls; "
    "asm volatile(\"\" : \"+l\"(p)); y[0] = calls; *p = y[1]; }\n";
static const char behind_a_line[] =
    "__device__ const int calls = 1;\nextern \"C\" __global__ void k(int *y) { y[0] = *(const volatile int *)&calls; "
    "asm volatile(\".loc 1 5 0 st.global.u32 [calls], %0;\" : : \"r\"(y[1])); }\n";
#define BITS(how)                                                                                                      \
    "__device__ const int calls = 1;\nextern \"C\" __global__ void k(int *y) {\n"                                      \
    "  unsigned long long a = (unsigned long long)&calls, p = 0;\n"                                                    \
    "  y[0] = *(const volatile int *)&calls;\n  for (int i = 0; i < 64; i++) asm volatile(\"{.reg .pred t; .reg .u64 " \
    "u; " how " }\" : \"+l\"(p) : \"l\"(a), \"r\"(i), \"l\"(1ull << i));\n  *(int *)p = y[1]; }\n"
static const char bit_by_bit[] = BITS("shr.u64 u, %1, %2; and.b64 u, u, 1; setp.ne.u64 t, u, 0; @t or.b64 %0, %0, %3;");
static const char by_search[] = BITS("sub.u64 u, -1, %3; setp.gt.u64 t, %1, u; @t add.u64 %0, %0, %3;");
static const char against_zero[] = BITS("sub.u64 u, %1, %3; setp.gt.s64 t, u, 0; @t add.u64 %0, %0, %3;");
static const char by_window[] = BITS("sub.u64 u, %1, %3; isspacep.shared t, u; @t add.u64 %0, %0, %3;");
static const char twice_itself[] =
    "__device__ const int calls = 1;\nextern \"C\" __global__ void k(int *y) { y[0] = *(const volatile int *)&calls; "
    "asm volatile(\"{.reg .u64 a, b; mov.u64 a, calls; add.u64 b, a, a; sub.u64 b, b, a; st.global.u32 [b], %0;}\" : : "
    "\"r\"(y[1])); }\n";
/* 600 numbers, and then an address. */
#define TEN(x) x x x x x x x x x x
#define SIXTY  TEN("0, 0, 0, 0, 0, 0, ")
static const char long_table[] = "__device__ int calls;\n__device__ int *const list[601] = {" TEN(
    SIXTY) "&calls};\nextern \"C\" __global__ void k(int *y, int i) { *list[i] = y[1]; }\n";
/* They declare hundreds of constants for themselves. */
static const char headers[] =
    "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n#include <cuda/std/limits>\n"
    "extern \"C\" __global__ void k(float *y) {\n"
    "  auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());\n"
    "  float m = cooperative_groups::reduce(warp, y[threadIdx.x], cooperative_groups::plus<float>());\n"
    "  y[threadIdx.x] = fmaxf(m, -cuda::std::numeric_limits<float>::infinity()); }\n";
static const char walks[] =
    "__device__ const float steps[1000] = {1, 2, 3};\n__constant__ float scale[300] = {3, 2, 1};\n"
    "__device__ __noinline__ float at(const float *p, int i) { return p[i]; }\n"
    "extern \"C\" __global__ void k(float *y, int n) {\n  float s = sinf(y[1]) + at(steps, n);\n"
    "  for (float v : scale) s += v * y[threadIdx.x];\n"
    "#pragma unroll 1\n  for (const float *p = steps; p < steps + n; p += 2) s += *p;\n"
    "  const float *p = steps; while (p != steps + 1000 && *p != s) ++p;\n  y[threadIdx.x] = s + (p - steps); }\n";

TEST(module_variables)
{
    expect(counter, RULES({ANY, "f32", "writes a module variable"}));
    expect(through_pointer, RULES({ANY, "f32", "module variable"}));
    expect(hidden_pointer, RULES({ANY, "f32", "not seen to be read only"}));
    expect(table, RULES({F32, "f32", NULL}));
    expect(constant, RULES({ANY, "f32", "writes a module variable"}));
    expect(behind_a_line, RULES({ANY, "f32", "writes a module variable"}));
    expect(bit_by_bit, RULES({ANY, "f32", "not seen to be read only"}));
    expect(by_search, RULES({ANY, "f32", "not seen to be read only"}));
    expect(against_zero, RULES({ANY, "f32", "not seen to be read only"}));
    expect(by_window, RULES({ANY, "f32", "not seen to be read only"}));
    expect(twice_itself, RULES({ANY, "f32", "not seen to be read only"}));
    expect(long_table, RULES({ANY, "f32", "not seen to be read only"}));
    CHECK(expect_on(headers, "sm_90a", RULES({F32, "f32", NULL})));
    expect(walks, RULES({F32, "f32", NULL}));
}

static const char bytes4[] = "__global__ void k(const int *x, float *y) { y[threadIdx.x] = __dp4a(x[0], x[1], x[2]); }";
/* Code that is reached through its address: a kernel that no plan launches, and a table of numbers. */
static const char unlaunched[] =
    "__global__ void other(const float *x, float *y)\n{\n    float c[4] = {0, 0, 0, 0};\n"
    "    unsigned a = __float_as_uint(x[threadIdx.x]);\n"
    "    asm(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, \"\n"
    "        \"{%0,%1,%2,%3};\" : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(a));\n"
    "    y[threadIdx.x] = c[0];\n}\n"
    "__global__ void k(const float *x, float *y)\n{\n    unsigned long long f;\n"
    "    asm volatile(\"mov.u64 %0, _Z5otherPKfPf;\" : \"=l\"(f));\n    ((void (*)(const float *, float *))f)(x, "
    "y);\n}\n";
static const char numbers[] = "__device__ const unsigned long long code[2] = {1, 2};\n"
                              "__global__ void k(const float *x, float *y) { y[0] = ((float (*)(float))code)(x[0]); }";
static const char pointers[] =
    "typedef float (*f)(float);\n__device__ __noinline__ float up(float x) { return x + 1; }\n"
    "__device__ __noinline__ float twice(float x) { return x * 2; }\n__device__ const f both[2] = {up, twice};\n"
    "__global__ void k(const float *x, float *y) { int i = threadIdx.x; y[i] = both[i & 1](x[i]); }";
/* A variable of a function has another name in machine code. */
static const char own_variable[] =
    "__global__ void k(const float *x, float *y)\n{\n    asm volatile(\"{.global .u32 calls; .reg .u32 a; "
    "ld.global.u32 a, [calls]; add.u32 a, a, 1; st.global.u32 [calls], a;}\");\n    y[0] = x[0];\n}\n";

TEST(integer_products)
{
    expect(bytes4, RULES({F32, "f32", "product of int8"}, {F32, "i8", NULL}, {ANY, "f32", NULL}));
}

TEST(code_by_its_address)
{
    expect(numbers, RULES({ANY, "f32", "not seen to be read only"}));
    expect(own_variable, RULES({ANY, "f32", "module variable"}));
    expect(pointers, RULES({F32, "f32", NULL}));
    stitch_context *ctx = open_context();
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch__scan *scan = scan_source(ctx, pointers, "sm_80", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan && finding(scan, false, "it calls code by its address"));
        stitch__scan_free(scan);
        scan = scan_source(ctx, prints, "sm_80", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan && !finding(scan, false, "it calls code by its address"));
        stitch__scan_free(scan);
    }
    stitch_context_free(ctx);
}

TEST(other_effects)
{
    stitch_context *ctx = open_context();
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch__scan *scan = scan_source(ctx, prints, "sm_80", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan);
        CHECK_INT(scan->majors, 0);
        CHECK(finding(scan, false, "it prints"));
        CHECK(finding(scan, false, "it allocates memory on the device"));
        CHECK(finding(scan, false, "it reads a clock"));
        stitch__scan_free(scan);
        scan = scan_source(ctx, decoy, "sm_80", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan && finding(scan, false, "it stores nothing to global memory"));
        stitch__scan_free(scan);
        scan = scan_source(ctx, plain_f32, "sm_80", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan && scan->finding_count == 0);
        CHECK(count(scan, STITCH__SCAN_STORE, 0) > 0);
        CHECK(count(scan, STITCH__SCAN_APPROX, STITCH__SCAN_F32) > 0);
        stitch__scan_free(scan);
    }
    stitch_context_free(ctx);
}

/* Words in comments and strings are no instructions. */
TEST(ptx_text)
{
    static const char text[] =
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        "/* mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {a},{b},{c},{d}; */\n"
        ".file 1 \"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32.cu\"\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<4>; // fma.rn.f16x2 %r0,%r1,%r2,%r3;\n"
        ".loc 1 2 3\nmov.u32 %r1, 5;\nX: @!%p1 bra X;\n.pragma \"add.f16 a,b;\";\nret;\n}\n";
    stitch_context *ctx = new_context(NULL);
    stitch__scan scan = {.ctx = ctx, .arena = {.ctx = ctx}, .arch = "sm_80"};
    const char *why;
    CHECK_INT(stitch__scan_ptx(&scan, text, sizeof(text) - 1, true, &why), STITCH_OK);
    CHECK_INT(scan.function_count, 1);
    CHECK_STR(scan.functions[0].symbol, "k");
    CHECK_INT(scan.functions[0].instructions, 3);
    CHECK_INT(scan.functions[0].op_count, 0);
    CHECK_INT(stitch__scan_ptx(&scan, "nothing", 7, true, &why), STITCH_E_FORMAT);
    stitch_free(scan.functions);
    stitch__arena_free(&scan.arena);
    stitch_context_free(ctx);
}

/* More variables than are listed, and more than are followed. */
TEST(many_variables)
{
    enum { MANY = STITCH__SCAN_MAX_GLOBALS + 100, SAID = 1000 };
    stitch_context *ctx = new_context(NULL);
    stitch_task *task = new_task(ctx, F32, "f32");
    stitch_error *err = NULL;
    const char *why = NULL;
    stitch__buf b;
    size_t unseen = 0;
    for (int many = 0; many < 2; many++) {
        stitch__scan scan = {.ctx = ctx, .arena = {.ctx = ctx}, .arch = "sm_90a", .from_ptx = true};
        stitch__buf_init(&b, ctx);
        stitch__buf_puts(&b, ".version 8.8\n");
        for (int i = 0; i < (many ? MANY : SAID); i++)
            stitch__buf_printf(&b, ".global .u32 v%d;\n", i);
        stitch__buf_puts(&b, ".entry k() {\n");
        for (int i = 0; !many && i < SAID; i++)
            stitch__buf_printf(&b, "ld.global.u32 %%r1, [v%d];\n", i);
        stitch__buf_puts(&b, "ret;\n}\n");
        CHECK_OK(stitch__scan_ptx(&scan, b.data, b.len, true, &why));
        CHECK_OK(stitch__scan_judge(&scan, task));
        for (size_t i = 0; i < scan.global_count; i++)
            unseen += scan.globals[i].access != STITCH__SCAN_READ_ONLY;
        CHECK_INT(unseen > 0, !many);
        CHECK_INT(finding(&scan, true, "not seen to be read only"), !many);
        CHECK_INT(finding(&scan, true, "more module variables"), many);
        CHECK_INT(scan.globals_left_out, many ? 100 : 0);
        unseen = 0;
        stitch__buf_free(&b);
        stitch_free(scan.functions);
        stitch_free(scan.globals);
        stitch_free(scan.findings);
        stitch__arena_free(&scan.arena);
    }
    stitch_task_free(task);
    stitch_context_free(ctx);
}

TEST(unknown_instructions)
{
    stitch__sass s;
    stitch__sass_decode(90, 0xfff, 0, &s);
    CHECK_INT(s.kind, STITCH__SCAN_NOT_KNOWN);
    CHECK_STR(s.name, "op 0xfff");
    stitch__sass_decode(90, 0x00006000050878a4u, 0, &s); /* with a constant of its own: known from its siblings */
    CHECK_INT(s.kind, STITCH__SCAN_PLAIN);
    CHECK_STR(s.name, "UIMAD");
    /* The same opcode is HFMA2.MMA before sm_100 and an integer addition from it on. */
    stitch__sass_decode(80, 0x0000000005097235u, 0x010fc60000000007u, &s);
    CHECK_INT(s.kind, STITCH__SCAN_HALF);
    stitch__sass_decode(120, 0x00000006080a7235u, 0x001fcc00078e0200u, &s);
    CHECK_INT(s.kind, STITCH__SCAN_PLAIN);
    CHECK(!stitch__sass_arch_known(75));
    CHECK(stitch__sass_arch_known(90));
}

/* ---- programs ---- */

/* Majors of a program that launches k alone. */
static size_t majors_of_k(stitch_context *ctx, const char *source)
{
    static const char json[] = "{\"stitch\": 1, \"run\": [{\"kernel\": \"k\", \"grid\": [1], \"block\": [32], "
                               "\"args\": [\"x\", \"y\"]}]}";
    stitch_interface *iface = new_interface(ctx, "N=64; input x f32 N; output y f32 N");
    stitch_task *task = new_task(ctx, STITCH_PRECISION_F32, "f32");
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    const stitch_image *image;
    stitch_program *p = NULL;
    stitch__scan *scan;
    stitch_error *err = NULL;

    o.arch = "sm_90";
    CHECK_OK(stitch_program_parse(ctx, source, json, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, iface, "sm_90", &err));
    CHECK_OK(stitch_program_compile(p, &o, &image, &err));
    CHECK_OK(stitch__scan_program(ctx, p, image, task, NULL, &scan, &err));
    size_t majors = scan->majors;
    stitch__scan_free(scan);
    stitch_task_free(task);
    stitch_program_free(p);
    stitch_interface_free(iface);
    return majors;
}

/* A kernel that no plan launches does not count, unless an address may lead to it. */
TEST(kernels_that_are_not_launched)
{
    stitch_context *ctx = open_context();
    char *idle = strdup(unlaunched), *call = strstr(idle, "((void (*)");

    CHECK_INT(majors_of_k(ctx, unlaunched), 1);
    memcpy(call, "y[0] = f; }\n", 13);
    CHECK_INT(majors_of_k(ctx, idle), 0);
    free(idle);
    stitch_context_free(ctx);
}

/* Machine code has it like a parameter: the PTX of sources with PTX of their own is read, too. */
TEST(the_number_of_a_launch)
{
    static const char head[] = "#define PIECES(a, b) a##b\nextern \"C\" __global__ void k(const float *x, float *y) "
                               "{\n  unsigned long long g = 0; ",
                      tail[] = "\n  y[threadIdx.x] = g > 100000 ? 0 : x[threadIdx.x]; }\n";
    static const struct {
        const char *body;
        size_t majors;
    } cases[] = {
        {"asm volatile(\"mov.u64 %0, %%gridid;\" : \"=l\"(g));", 1},
        {"PIECES(as, m)(\"mov.u64 %0, %%gri\" \"did;\" : \"=l\"(g));", 1},
        {"as\\\nm(\"mov.u64 %0, %%gridid;\" : \"=l\"(g));", 1},
        {"unsigned s; asm volatile(\"mov.u32 %0, %%nsmid;\" : \"=r\"(s)); g = s;", 0},
        {"asm volatile(\"{.reg .u64 %%gridids; mov.u64 %%gridids, 1; mov.u64 %0, %%gridids;}\" : \"=l\"(g));", 0},
    };
    stitch_context *ctx = open_context();
    char source[600];

    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        snprintf(source, sizeof(source), "%s%s%s", head, cases[i].body, tail);
        CHECK_INT(majors_of_k(ctx, source), cases[i].majors);
    }
    for (int ptx = 0; ptx < 2; ptx++) {
        snprintf(source, sizeof(source), "%s%s%s", head, cases[0].body, tail);
        stitch__scan *scan = scan_source(ctx, source, "sm_90", ptx, STITCH_PRECISION_F32, "f32");
        CHECK(scan && finding(scan, true, "it reads the number of its launch") == (ptx != 0));
        stitch__scan_free(scan);
    }
    stitch_context_free(ctx);
}

TEST(products_of_a_plan)
{
    stitch_context *ctx = open_context();
    stitch_error *err = NULL;
    stitch_program *p = NULL;
    stitch_interface *iface = new_interface(ctx, "N=64; input x f32 N,N; input h f16 N,N; output y f32 N,N");
    static const char json[] =
        "{\"stitch\": 1, \"buffers\": {\"t\": {\"dtype\": \"f32\", \"shape\": [\"N\", \"N\"]}},"
        " \"run\": [{\"gemm\": {\"a\": \"x\", \"b\": \"x\", \"c\": \"t\", \"m\": \"N\", \"n\": \"N\", \"k\": \"N\","
        " \"compute\": \"tf32\"}},"
        " {\"gemm\": {\"a\": \"h\", \"b\": \"h\", \"c\": \"t\", \"m\": \"N\", \"n\": \"N\", \"k\": \"N\"}},"
        " {\"kernel\": \"copy\", \"grid\": [\"N\"], \"block\": [64], \"args\": [\"t\", \"y\"]}]}";
    static const char source[] =
        "__device__ int unused;\n"
        "__global__ void copy(const float *x, float *y) { y[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * 64 + "
        "threadIdx.x]; }\n"
        "__global__ void spare(int *y) { y[0] = unused++; }\n";
    CHECK_OK(stitch_program_parse(ctx, source, json, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, iface, "sm_90", &err));
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    const stitch_image *image;
    o.arch = "sm_90";
    CHECK_OK(stitch_program_compile(p, &o, &image, &err));
    stitch_task *task = new_task(ctx, STITCH_PRECISION_F32, "f32");
    stitch__scan *scan;
    CHECK_OK(stitch__scan_program(ctx, p, image, task, NULL, &scan, &err));
    CHECK_INT(scan->gemm_count, 2);
    CHECK_INT(scan->function_count, 2);
    CHECK(finding(scan, true, "product of tf32 and tf32 with f32 accumulation"));
    CHECK(finding(scan, true, "product of f16 and f16 with f32 accumulation"));
    CHECK(finding(scan, true, "writes a module variable"));
    for (size_t i = 0; i < scan->function_count; i++)
        CHECK_INT(scan->functions[i].used, strcmp(scan->functions[i].name, "copy") == 0);
    char *text = stitch__scan_text(scan);
    CHECK_HAS(text, "cuBLASLt product of f16 and f16 with f32 accumulation");
    stitch_free(text);
    json_t *j = stitch__scan_json(scan);
    CHECK(j && json_array_size(json_object_get(j, "findings")) == scan->finding_count);
    CHECK_STR(json_string_value(json_object_get(j, "from")), "machine code");
    json_decref(j);
    stitch__scan_free(scan);
    stitch_task_free(task);
    stitch_program_free(p);
    stitch_interface_free(iface);
    stitch_context_free(ctx);
}

/* Kernels that move and convert, and ones that do a little more, for each architecture. */
TEST(moves_of_a_plan)
{
    static const char source[] =
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
        "#define K(name, in, out) __global__ void name(const in *x, out *y, int n)\n"
        "#define I int i = blockIdx.x * 64 + threadIdx.x; if (i < n)\n"
        "K(narrow, float, __half) { I y[i] = __float2half(x[i]); }\n"
        "K(widen, __half, float) { I y[i] = __half2float(x[i]); }\n"
        "K(brain, float, __nv_bfloat16) { I y[i] = __float2bfloat16(x[i]); }\n"
        "K(turn, float, float)\n{\n    __shared__ float t[8][9];\n"
        "    t[threadIdx.x / 8][threadIdx.x % 8] = x[blockIdx.x * n + threadIdx.x / 8 * 64 + threadIdx.x % 8];\n"
        "    __syncthreads();\n    y[threadIdx.x] = t[threadIdx.x % 8][threadIdx.x / 8];\n}\n"
        "K(count, int, int) { I y[i] = x[i]; }\n"
        "K(twice, float, __half) { I y[i] = __float2half(x[i] * 2); }\n"
        "K(positive, float, float) { I y[i] = fmaxf(x[i], 0); }\n"
        "K(add, __half, __half) { I y[i] = __hadd(x[i], x[i + 1]); }\n"
        "K(sum, float, float) { I atomicAdd(y, x[i]); }\n";
    static const struct {
        const char *name, *from, *to;
        bool moves;
    } want[] = {{"narrow", "x", "h", true}, {"widen", "h", "y", true},     {"brain", "x", "b", true},
                {"turn", "x", "y", true},   {"count", "c", "d", false},    {"twice", "x", "h", false},
                {"add", "h", "h", false},   {"positive", "x", "y", false}, {"sum", "x", "y", false}};
    char json[4096];
    size_t len = (size_t)snprintf(json, sizeof(json),
                                  "{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f16\", \"shape\": [\"N\"]},"
                                  " \"b\": {\"dtype\": \"bf16\", \"shape\": [\"N\"]},"
                                  " \"d\": {\"dtype\": \"i32\", \"shape\": [\"N\"]}}, \"run\": [");
    for (size_t i = 0; i < STITCH__COUNT(want); i++)
        len += (size_t)snprintf(json + len, sizeof(json) - len,
                                "{\"kernel\": \"%s\", \"grid\": [1], \"block\": [64], \"args\": [\"%s\", \"%s\","
                                " {\"i32\": \"N\"}]}%s",
                                want[i].name, want[i].from, want[i].to, i + 1 < STITCH__COUNT(want) ? ", " : "]}");
    for (size_t a = 0; a < STITCH__COUNT(archs); a++) {
        stitch_context *ctx = open_context();
        stitch_error *err = NULL;
        stitch_program *p = NULL;
        stitch__facts *facts;
        const stitch_image *image;
        stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
        stitch_interface *iface = new_interface(ctx, "N=64; input x f32 N; input c i32 N; output y f32 N");
        o.arch = archs[a];
        CHECK_OK(stitch_program_parse(ctx, source, json, NULL, &p, &err));
        CHECK_OK(stitch_program_validate(p, iface, archs[a], &err));
        CHECK_OK(stitch_program_compile(p, &o, &image, &err));
        CHECK_OK(stitch__facts_new(ctx, &facts, &err));
        CHECK_OK(stitch__facts_steps(facts, p, &err));
        CHECK_OK(stitch__scan_moves(ctx, p, image, facts, &err));
        CHECK_INT(facts->step_count, STITCH__COUNT(want));
        for (size_t i = 0; i < STITCH__COUNT(want); i++) {
            if (facts->steps[i].moves_only != want[i].moves)
                FAIL("%s: %s %s", archs[a], want[i].name, want[i].moves ? "computes" : "only moves");
        }
        CHECK_OK(stitch__scan_moves(ctx, p, NULL, facts, &err)); /* nothing is known then, and nothing changes */
        stitch__facts_free(facts);
        stitch_program_free(p);
        stitch_interface_free(iface);
        stitch_context_free(ctx);
    }
}

TEST_MAIN(RUN(float32_is_clean), RUN(tf32_products), RUN(half_products), RUN(half_arithmetic),
          RUN(half_storage_is_minor), RUN(hopper_products), RUN(ada_products), RUN(blackwell_products),
          RUN(module_variables), RUN(integer_products), RUN(code_by_its_address), RUN(other_effects), RUN(ptx_text),
          RUN(many_variables), RUN(unknown_instructions), RUN(kernels_that_are_not_launched),
          RUN(the_number_of_a_launch), RUN(products_of_a_plan), RUN(moves_of_a_plan))
