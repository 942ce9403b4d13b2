/* SPDX-License-Identifier: MIT
 *
 * Compiling with the real NVRTC, which needs no GPU. Skipped where there is none.
 */
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "check.h"
#include "cuda/elf.h"
#include "cuda/internal.h"

static stitch_context *new_context(void)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    const stitch__nvrtc *nvrtc;
    o.device = "none";
    o.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    if (stitch__nvrtc_get(ctx, &nvrtc, &err) == STITCH_E_NO_LIBRARY) {
        stitch_error_free(err);
        stitch_context_free(ctx);
        SKIP("NVRTC is not installed");
    }
    CHECK(err == NULL);
    return ctx;
}

static int compile(stitch_context *ctx, const char *source, const char *arch, const char *const *names, size_t count,
                   int ptx, stitch_image **image, stitch_error **err)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = arch;
    o.names = names;
    o.name_count = count;
    o.ptx = ptx;
    return stitch_compile(ctx, source, &o, image, err);
}

static const char several[] =
    "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda.h>\n"
    "struct P { int a; float b[3]; };\n"
    "template <int N, typename T> __global__ void __launch_bounds__(256) ln(const T *__restrict__ x, T *y, int n)\n"
    "{ __shared__ float s[N]; s[threadIdx.x] = float(x[threadIdx.x]); __syncthreads(); y[threadIdx.x] = "
    "T(s[(threadIdx.x + 1) % N]); }\n"
    "extern \"C\" __global__ void ec(float *a, const float *b, int n, P p)\n"
    "{ volatile float q[200]; for (int i = 0; i < n; i++) q[i % 200] = b[i]; a[0] = q[n % 200] + p.a; }\n"
    "namespace k { __global__ void plain(const __nv_bfloat16 *a, const __grid_constant__ CUtensorMap m, bool q, size_t "
    "n) {} }\n";

static void check_several(const stitch_image *image, bool ptx)
{
    stitch_kernel_info k = STITCH_KERNEL_INFO_INIT;
    stitch_param_info p = STITCH_PARAM_INFO_INIT;
    size_t index;
    CHECK_INT(stitch_image_kernel_count(image), 3);
    CHECK_INT(stitch_image_kernel(image, 0, &k), STITCH_OK);
    CHECK_STR(k.name, "ln<256,__half>");
    CHECK_STR(k.symbol, "_Z2lnILi256E6__halfEvPKT0_PS1_i");
    CHECK_INT(k.static_shared, 1024);
    CHECK_INT(k.max_threads, 256);
    CHECK_INT(k.param_count, 3);
    CHECK_INT(stitch_image_param(image, 0, 0, &p), STITCH_OK);
    CHECK_STR(p.type, "const __half *");
    CHECK_INT(p.kind, STITCH_PARAM_POINTER);
    CHECK_INT(p.dtype, STITCH_DTYPE_F16);
    CHECK_INT(p.is_const, 1);
    CHECK_INT(stitch_image_param(image, 0, 2, &p), STITCH_OK);
    CHECK_INT(p.kind, STITCH_PARAM_SCALAR);
    CHECK_INT(p.offset, 16);
    CHECK_INT(p.size, 4);
    CHECK_INT(stitch_image_param(image, 0, 3, &p), STITCH_E_NOT_FOUND);
    /* extern "C": only the places are known. */
    CHECK_INT(stitch_image_find(image, "ec", &index), STITCH_OK);
    CHECK_INT(stitch_image_kernel(image, index, &k), STITCH_OK);
    CHECK_INT(k.param_count, 4);
    CHECK_INT(k.max_threads, -1);
    CHECK_INT(stitch_image_param(image, index, 3, &p), STITCH_OK);
    CHECK_INT(p.kind, STITCH_PARAM_UNKNOWN);
    CHECK_INT(p.offset, 20);
    CHECK_INT(p.size, 16);
    CHECK_STR(p.type, "");
    if (!ptx)
        CHECK(k.local >= 800 && k.registers > 0 && k.spill_stores == 0);
    else
        CHECK(k.local == -1 && k.registers == -1);
    /* Not asked for, but there. */
    CHECK_INT(stitch_image_find(image, "k::plain", &index), STITCH_OK);
    CHECK_INT(stitch_image_param(image, index, 1, &p), STITCH_OK);
    CHECK_INT(p.is_tensor_map, 1);
    CHECK(p.offset >= 8 && p.offset % 16 == 0); /* in machine code the block begins at an odd place */
    CHECK_INT(p.size, 128);
    CHECK_INT(stitch_image_find(image, "ln<256, __half>", &index), STITCH_OK);
    CHECK_INT(stitch_image_find(image, "ln", &index), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_image_find(image, "plain", &index), STITCH_E_NOT_FOUND);
}

TEST(kernels_and_their_parameters)
{
    static const char *const names[] = {"ln<256,__half>", "ec"};
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch_image *image = NULL;
        CHECK_OK(compile(ctx, several, "sm_90a", names, 2, ptx, &image, &err));
        size_t size = 0;
        const char *data = stitch_image_data(image, &size);
        CHECK(size > 0 && data != NULL && data[size] == '\0');
        CHECK_INT(stitch_image_is_ptx(image), ptx);
        CHECK_STR(stitch_image_arch(image), "sm_90a");
        CHECK_INT(stitch_image_cached(image), 0);
        CHECK(stitch_image_milliseconds(image) > 0);
        CHECK(!strstr(stitch_image_log(image), "ptxas info"));
        check_several(image, ptx);
        stitch_image_free(image);
    }
    stitch_context_free(ctx);
}

TEST(saved_and_restored)
{
    static const char *const names[] = {"ln<256,__half>", "ec"};
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch_image *image = NULL, *copy = NULL;
        size_t size;
        CHECK_OK(compile(ctx, several, "sm_90a", names, 2, ptx, &image, &err));
        json_t *meta = stitch__image_meta(image);
        CHECK(meta != NULL);
        const void *data = stitch_image_data(image, &size);
        CHECK_OK(stitch__image_restore(ctx, data, size, meta, &copy, &err));
        check_several(copy, ptx);
        stitch_image *again = stitch__image_ref(copy);
        stitch_image_free(copy);
        check_several(again, ptx);
        stitch_image_free(again);
        /* A description that does not belong to the code. */
        json_t *kernel = json_array_get(json_object_get(meta, "kernels"), 0);
        json_object_set_new(kernel, "symbol", json_string("_Z5otherPf"));
        CHECK_ERR(stitch__image_restore(ctx, data, size, meta, &copy, &err), STITCH_E_FORMAT,
                  "no kernel with the symbol");
        json_object_del(kernel, "symbol");
        CHECK_ERR(stitch__image_restore(ctx, data, size, meta, &copy, &err), STITCH_E_FORMAT, "symbol");
        json_object_set_new(meta, "arch", json_string("sm_huge"));
        CHECK_ERR(stitch__image_restore(ctx, data, size, meta, &copy, &err), STITCH_E_FORMAT, "arch");
        CHECK_ERR(stitch__image_restore(ctx, "garbage", 7, meta, &copy, &err), STITCH_E_FORMAT, "");
        CHECK(copy == NULL);
        json_decref(meta);
        stitch_image_free(image);
    }
    stitch_context_free(ctx);
}

static void expect_error(stitch_context *ctx, const char *source, const char *const *names, size_t count, int line,
                         const char *part)
{
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    stitch_diagnostic d = STITCH_DIAGNOSTIC_INIT;
    size_t size = 1;
    CHECK_ERR(compile(ctx, source, "sm_90a", names, count, 0, &image, &err), STITCH_E_COMPILE, "does not compile");
    CHECK(image != NULL);
    CHECK(stitch_image_data(image, &size) == NULL && size == 0);
    CHECK(stitch_image_diagnostic_count(image) > 0);
    for (size_t i = 0; i < stitch_image_diagnostic_count(image); i++) {
        CHECK_INT(stitch_image_diagnostic(image, i, &d), STITCH_OK);
        if (d.severity == STITCH_SEVERITY_ERROR && strstr(d.message, part)) {
            CHECK_INT(d.line, line);
            CHECK_STR(d.file, "program.cu");
            stitch_image_free(image);
            return;
        }
    }
    FAIL("no message contains \"%s\": %s", part, stitch_image_log(image));
}

TEST(errors_have_lines)
{
    static const char *const unknown[] = {"k", "nope"}, *const no_kernel[] = {"f"}, *const bad_args[] = {"t<2>"};
    stitch_context *ctx = new_context();
    expect_error(ctx, "__global__ void k(float *x)\n{\n    x[0] = undefined_thing;\n}\n", NULL, 0, 3,
                 "undefined_thing");
    expect_error(ctx, "__global__ void k(float *x)\n{\n    asm volatile(\"foo.bar %0;\" : \"=f\"(x[0]));\n}\n", NULL, 0,
                 3, "Not a name of any known instruction");
    expect_error(ctx, "__global__ void k(float *x) {}\n", unknown, 2, 0,
                 "a kernel \"nope\", which the source does not define");
    expect_error(ctx, "template <int N> __global__ void t(float *x)\n{ static_assert(N > 3, \"N is too small\"); }\n",
                 bad_args, 1, 2, "\"N is too small\"; detected during instantiation");
    expect_error(ctx, "__device__ float f(float x) { return x; }\n__global__ void k(float *x) { x[0] = f(x[1]); }",
                 no_kernel, 1, 0, "a kernel \"f\", which is no __global__ function");
    expect_error(ctx, "float host(float x) { return x; }\n", NULL, 0, 1, "not allowed in JIT mode. Write __device__");
    expect_error(
        ctx,
        "__global__ void k(float *x) { __shared__ float s[100000]; s[threadIdx.x] = 1; __syncthreads(); x[0] = s[3]; }",
        NULL, 0, 0, "400000 bytes of static shared memory");
    expect_error(ctx, "__device__ float f(float);\n__global__ void k(float *x) { x[0] = f(x[0]); }", NULL, 0, 0,
                 "Unresolved extern");
    expect_error(ctx, "\n#include \"/proc/self/environ\"\n", NULL, 0, 2, "is not allowed");
    expect_error(ctx, "#include <no_such_header.h>\n", NULL, 0, 1, "no_such_header.h");
    expect_error(ctx, "\n# 7 \"another.cu\"\n", NULL, 0, 2, "a line marker is not allowed");
    expect_error(ctx, "__device__ const char *t = __TIME__;\n", NULL, 0, 1, "when it is compiled");
    expect_error(ctx, "\n__device__ const char *t = __DATE__;\n", NULL, 0, 2, "when it is compiled");
    stitch_context_free(ctx);
}

/* Where literals and comments end is not for the check to decide: each of these hides a directive from one that takes
 * them for something else than the compiler does. */
TEST(directives_that_hide)
{
    static const char *const before[] = {
        "#define X R\\\n\"(\" /*)\"\n",
        "#define X 0'\u00e9 /*'\n",
        "#define X 1e+'a /*'\n*/*\n",
        "#define X 1.'5 /*'\n*/*\n",
        "#define X R\"a b(\" /*)a b\"\n",
        "#define X \"a\"R\"(\" /*)\"\n*/*\n",
        "#define X 'a'R\"(\" /*)\"\n*/*\n",
        "#define X 1R\"(\" /*)\"\n*/*\n",
        "#define H __has_include\n#if H(<x/*>)\n#endif\n",
        "/* */",
        "\ufeff",
        "/\\\n* \" */ ",
    };
    static const char *const hidden[] = {"#include \"/proc/self/environ\"\n",
                                         "%:include </proc/self/environ>\n",
                                         "#in\\\nclude \"../../secret\"\n",
                                         "#line 7 \"PASSED\"\n",
                                         "# 7 \"PASSED\"\n",
                                         "#embed </proc/self/environ>\n"};
    stitch_context *ctx = new_context();
    for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++) {
        for (size_t k = 0; k < sizeof(hidden) / sizeof(*hidden); k++) {
            char source[300];
            stitch_image *image = NULL;
            stitch_error *err = NULL;
            snprintf(source, sizeof(source), "%s%s/* */__global__ void k() {}\n", before[i], hidden[k]);
            CHECK_ERR(compile(ctx, source, "sm_90a", NULL, 0, 0, &image, &err), STITCH_E_COMPILE, "is not allowed");
            stitch_image_free(image);
        }
    }
    stitch_context_free(ctx);
}

TEST(time_in_pieces)
{
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    expect_error(ctx, "#define P(a, b) a##b\n__device__ const char *t = P(__TI, ME__);\n", NULL, 0, 2,
                 "when it is compiled");
    expect_error(ctx, "__device__ const char *t = __TI\\\nME__;\n", NULL, 0, 2, "when it is compiled");
    expect_error(ctx, "#define P(a, b, c, d, e) a##b##c##d##e\n__device__ const char *t = P(_, _D, AT, E_, _);\n", NULL,
                 0, 2, "when it is compiled");
    expect_error(ctx, "#define X __TI##ME__\n__device__ const char *t = X;\n", NULL, 0, 1, "when it is compiled");
    expect_error(ctx, "#define J(a, b) a##_##b\n__device__ const char *t = J(J(, TIME), );\n", NULL, 0, 2,
                 "when it is compiled");
    if (compile(ctx,
                "#define JOIN(a, b) a##_##b\n#define TIMES 1\n/*\n# 1. Load a tile, at 12 o'clock\n*/\n"
                "__global__ void JOIN(load, T)(float *D, int E) { D[1'000 * E] = 1e+3f + 0x1p-3f + TIMES; }\n",
                "sm_90a", NULL, 0, 0, &image, &err))
        FAIL("%s", stitch_error_message(err));
    stitch_image_free(image);
    stitch_context_free(ctx);
}

TEST(headers_of_habit)
{
    static const char source[] =
        "#include <stdint.h>\n#include <cstdint>\n#include <stddef.h>\n#include <cstddef>\n#include <math.h>\n#include "
        "<cmath>\n"
        "#include <float.h>\n#include <cfloat>\n#include <limits.h>\n#include <climits>\n#include <stdio.h>\n#include "
        "<stdlib.h>\n"
        "#include <string.h>\n#include <assert.h>\n#include <cuda_runtime.h>\n#include <cuda.h>\n#include "
        "<type_traits>\n"
        "#include <algorithm>\n#include <limits>\n#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n"
        "__global__ void k(uint32_t *x, int64_t n, std::uint8_t b, size_t m, float *y)\n{\n"
        "    static_assert(std::is_same<int, int>::value && sizeof(int64_t) == 8, \"\");\n"
        "    x[0] = (uint32_t)(INT_MAX + UINT32_MAX) + std::max(3u, x[1]);\n"
        "    y[0] = FLT_EPSILON * (float)M_PI - (y[3] < INFINITY) + std::numeric_limits<float>::max() + fabsf(y[1]) + "
        "std::sqrt(y[2]);\n"
        "    assert(n > 0);\n    printf(\"%f\", y[0]);\n    memcpy(x + 2, x + 4, 8);\n}\n";
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    int rc = compile(ctx, source, "sm_90a", NULL, 0, 0, &image, &err);
    if (rc)
        FAIL("%s\n%s", stitch_error_message(err), stitch_image_log(image));
    if (stitch_image_diagnostic_count(image) > 0)
        FAIL("%s", stitch_image_log(image));
    stitch_image_free(image);
    stitch_context_free(ctx);
}

TEST(cuda_headers)
{
    static const char source[] =
        "#include <mma.h>\n#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n"
        "#include <cuda_fp8.h>\n#include <cuda/barrier>\n#include <cuda/pipeline>\n"
        "#include <cub/block/block_reduce.cuh>\n"
        "__global__ void k(float *x)\n{\n    using R = cub::BlockReduce<float, 128>;\n"
        "    __shared__ typename R::TempStorage t;\n    float s = R(t).Sum(x[threadIdx.x]);\n"
        "    if (threadIdx.x == 0) x[0] = s;\n}\n";
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    stitch__cuda *cuda;
    CHECK_OK(stitch__cuda_state(ctx, &cuda, &err));
    if (!cuda->includes[0] || !cuda->includes[1]) {
        stitch_context_free(ctx);
        SKIP("CUDA's headers are not installed");
    }
    bool crt = false; /* a wheel of its own */
    for (size_t i = 0; cuda->includes[i]; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/crt/mma.h", cuda->includes[i]);
        crt = crt || access(path, R_OK) == 0;
    }
    int rc = compile(ctx, crt ? source : source + strlen("#include <mma.h>\n"), "sm_90a", NULL, 0, 0, &image, &err);
    if (rc)
        FAIL("%s\n%.3000s", stitch_error_message(err), stitch_image_log(image));
    stitch_image_free(image);
    stitch_context_free(ctx);
}

TEST(bad_arguments)
{
    static const char *const injected[] = {"k\n#include \"/etc/passwd\""}, *const empty[] = {""},
                             *const flags[] = {"--bogus"};
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    CHECK_ERR(stitch_compile(NULL, "", NULL, &image, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_compile(ctx, NULL, NULL, &image, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_compile(ctx, "", NULL, NULL, &err), STITCH_E_INVALID, "NULL");
    CHECK_ERR(stitch_compile(ctx, "", NULL, &image, &err), STITCH_E_NO_DEVICE, "no arch is given");
    CHECK_ERR(compile(ctx, "", "sm_9", NULL, 0, 0, &image, &err), STITCH_E_INVALID, "sm_9");
    CHECK_ERR(compile(ctx, "", "sm_35", NULL, 0, 0, &image, &err), STITCH_E_UNSUPPORTED, "sm_35");
    CHECK_ERR(compile(ctx, "", "sm_90", injected, 1, 0, &image, &err), STITCH_E_INVALID, "names[0]");
    CHECK_ERR(compile(ctx, "", "sm_90", empty, 1, 0, &image, &err), STITCH_E_INVALID, "names[0]");
    CHECK_ERR(compile(ctx, "", "sm_90", NULL, 1, 0, &image, &err), STITCH_E_INVALID, "NULL");
    o.arch = "sm_90";
    o.max_source_bytes = 10;
    CHECK_ERR(stitch_compile(ctx, "__global__ void k() {}", &o, &image, &err), STITCH_E_LIMIT, "max_source_bytes");
    o.max_source_bytes = 0;
    o.flags = flags;
    o.flag_count = 1;
    CHECK_ERR(stitch_compile(ctx, "__global__ void k() {}", &o, &image, &err), STITCH_E_INVALID, "--bogus");
    CHECK(image == NULL);
    o.flag_count = 0;
    stitch_context_cancel(ctx);
    CHECK_ERR(stitch_compile(ctx, "__global__ void k() {}", &o, &image, &err), STITCH_E_CANCELLED, "");
    stitch_context_cancel_reset(ctx);
    CHECK_OK(stitch_compile(ctx, "", &o, &image, &err)); /* nothing in it */
    CHECK_INT(stitch_image_kernel_count(image), 0);
    stitch_image_free(image);
    CHECK_INT(stitch_image_diagnostic_count(NULL), 0);
    CHECK_STR(stitch_image_log(NULL), "");
    stitch_image_free(NULL);
    stitch_context_free(ctx);
}

/* ---- several threads ---- */

typedef struct worker {
    stitch_context *ctx;
    int index, rc, bad;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < 3 && w->rc == STITCH_OK; i++) {
        char source[200];
        stitch_image *image = NULL;
        size_t found;
        bool broken = i == 1;
        snprintf(source, sizeof(source), "__global__ void k%d_%d(float *x) { x[0] = %d%s; }", w->index, i, w->index,
                 broken ? " +" : "");
        int rc = compile(w->ctx, source, "sm_80", NULL, 0, i == 2, &image, NULL);
        snprintf(source, sizeof(source), "k%d_%d", w->index, i);
        if (rc != (broken ? STITCH_E_COMPILE : STITCH_OK))
            w->rc = rc ? rc : STITCH_E_INTERNAL;
        else if (!broken && stitch_image_find(image, source, &found) != STITCH_OK)
            w->bad = 1;
        stitch_image_free(image);
    }
    return NULL;
}

TEST(threads)
{
    enum { N = 6 };
    stitch_context *ctx = new_context();
    worker w[N];
    pthread_t t[N];
    for (int i = 0; i < N; i++) {
        w[i] = (worker){ctx, i, STITCH_OK, 0};
        CHECK_INT(pthread_create(&t[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < N; i++) {
        CHECK_INT(w[i].rc, STITCH_OK);
        CHECK_INT(w[i].bad, 0);
    }
    stitch_context_free(ctx);
}

/* Every prefix of an image and changes all over it: refused or read, never more than that. */
TEST(damaged_images)
{
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch_image *image = NULL;
        stitch__entries entries;
        const char *why;
        size_t size, refused = 0;
        CHECK_OK(compile(ctx, several, "sm_90a", NULL, 0, ptx, &image, &err));
        const char *data = stitch_image_data(image, &size);
        for (size_t i = 0; i < size; i += i < 256 ? 1 : 37) {
            char *part = malloc(i ? i : 1); /* of exact size, so that a sanitizer sees a read past it */
            CHECK(part != NULL);
            memcpy(part, data, i);
            stitch__arena arena = {0};
            int rc = ptx ? stitch__ptx_parse(&arena, part, i, &entries, &why)
                         : stitch__cubin_parse(&arena, part, i, &entries, &why);
            CHECK(rc == STITCH_OK || rc == STITCH_E_FORMAT);
            refused += rc != STITCH_OK;
            stitch__arena_free(&arena);
            free(part);
        }
        CHECK(refused > 0);
        char *copy = malloc(size);
        CHECK(copy != NULL);
        uint32_t random = 1;
        for (int i = 0; i < 3000; i++) {
            memcpy(copy, data, size);
            for (int k = 0; k < 4; k++) {
                random = random * 1664525u + 1013904223u;
                copy[(random >> 8) % size] = (char)(random >> (i % 3 ? 24 : 4));
            }
            stitch__arena arena = {0};
            int rc = ptx ? stitch__ptx_parse(&arena, copy, size, &entries, &why)
                         : stitch__cubin_parse(&arena, copy, size, &entries, &why);
            CHECK(rc == STITCH_OK || rc == STITCH_E_FORMAT);
            stitch__arena_free(&arena);
        }
        free(copy);
        stitch_image_free(image);
    }
    stitch_context_free(ctx);
}

/* A section table in which `count` entries are that of the section with this name, behind the file's own. */
static char *with_repeats(const char *data, size_t size, const char *section, unsigned count, size_t *total)
{
    stitch__section names, s;
    stitch__elf e;
    char *file;

    CHECK(stitch__elf_open(&e, data, size, &names) == NULL);
    *total = size + (e.shnum + (size_t)count) * e.shentsize;
    file = malloc(*total);
    CHECK(file != NULL);
    memcpy(file, data, size);
    memcpy(file + size, data + e.shoff, (size_t)e.shnum * e.shentsize);
    for (uint32_t i = 0; i < e.shnum; i++) {
        const char *header = data + e.shoff + (size_t)i * e.shentsize;
        CHECK(stitch__elf_section(&e, i, &s));
        for (unsigned k = 0; strcmp(stitch__elf_string(&e, &names, s.name), section) == 0 && k < count; k++)
            memcpy(file + size + (e.shnum + (size_t)k) * e.shentsize, header, e.shentsize);
    }
    for (int i = 0; i < 8; i++)
        file[40 + i] = (char)((uint64_t)size >> 8 * i);
    file[60] = (char)(e.shnum + count);
    file[61] = (char)((e.shnum + count) >> 8);
    return file;
}

/* Each section is read, and a small file can have many that are one large one. */
TEST(sections_that_overlap)
{
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    stitch__entries entries;
    const char *why = "";
    size_t size, total;

    CHECK_OK(compile(ctx, several, "sm_90a", NULL, 0, false, &image, &err));
    const char *data = stitch_image_data(image, &size);
    for (unsigned count = 1; count <= 60000; count += 59999) {
        stitch__arena arena = {0};
        char *file = with_repeats(data, size, ".nv.info", count, &total);
        int rc = stitch__cubin_parse(&arena, file, total, &entries, &why);
        CHECK_INT(rc, count == 1 ? STITCH_OK : STITCH_E_FORMAT);
        if (rc)
            CHECK_HAS(why, "overlap");
        stitch__arena_free(&arena);
        free(file);
    }
    stitch_image_free(image);
    stitch_context_free(ctx);
}

TEST(large_parameters_and_clusters)
{
    static const char source[] =
        "struct B { char c[8000]; };\n__global__ void big(B b, int n, float *p) { p[0] = b.c[n]; }\n"
        "__global__ void __cluster_dims__(2, 1, 1) cl(int n, float *p) { p[0] = n; }\n"
        "struct __align__(64) Map { long long v[16]; };\n"
        "__global__ void aligned(const __grid_constant__ Map m, float *p) { p[threadIdx.x] = m.v[threadIdx.x]; }\n"
        "__shared__ float both[64];\n__device__ __noinline__ float f(int i) { return both[i]; }\n"
        "__global__ void a(float *p) { both[threadIdx.x] = 1; __syncthreads(); p[0] = f(3); }\n";
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    for (int ptx = 0; ptx < 2; ptx++) {
        stitch_image *image = NULL;
        stitch_param_info p = STITCH_PARAM_INFO_INIT;
        stitch_kernel_info k = STITCH_KERNEL_INFO_INIT;
        size_t index;
        CHECK_OK(compile(ctx, source, "sm_90", NULL, 0, ptx, &image, &err));
        CHECK_INT(stitch_image_find(image, "big", &index), STITCH_OK);
        CHECK_INT(stitch_image_param(image, index, 0, &p), STITCH_OK);
        CHECK_INT(p.size, 8000);
        CHECK_INT(stitch_image_param(image, index, 2, &p), STITCH_OK);
        CHECK_INT(p.offset, 8008);
        CHECK_STR(p.type, "float *");
        CHECK_INT(stitch_image_find(image, "cl", &index), STITCH_OK);
        CHECK_INT(stitch_image_find(image, "aligned", &index), STITCH_OK);
        CHECK_INT(stitch_image_param(image, index, 0, &p), STITCH_OK);
        CHECK_INT(p.size, 128);
        CHECK_INT(stitch_image_param(image, index, 1, &p), STITCH_OK);
        CHECK_INT(p.size, 8);
        CHECK_INT(stitch_image_find(image, "a", &index), STITCH_OK);
        CHECK_INT(stitch_image_kernel(image, index, &k), STITCH_OK);
        CHECK(k.static_shared == 256 || (ptx && k.static_shared == -1));
        stitch_image_free(image);
    }
    stitch_context_free(ctx);
}

TEST(spills)
{
    static const char source[] =
        "__global__ void __launch_bounds__(1024) k(float *x)\n{\n    float r[200];\n    for (int i = 0; i < 200; i++) "
        "r[i] = x[i];\n"
        "    for (int j = 0; j < 50; j++)\n        for (int i = 0; i < 200; i++) r[i] = r[i] * r[(i + 1) % 200] + j;\n"
        "    for (int i = 0; i < 200; i++) x[i] = r[i];\n}\n";
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_image *image = NULL;
    stitch_kernel_info k = STITCH_KERNEL_INFO_INIT;
    CHECK_OK(compile(ctx, source, "sm_90a", NULL, 0, 0, &image, &err));
    CHECK_INT(stitch_image_kernel(image, 0, &k), STITCH_OK);
    CHECK_STR(k.name, "k");
    CHECK(k.registers > 16 && k.registers <= 64 && k.local > 0 && k.spill_stores > 0 && k.spill_loads > 0);
    CHECK_INT(k.max_threads, 1024);
    stitch_image_free(image);
    stitch_context_free(ctx);
}

/* ---- memory that runs out ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

typedef struct counter {
    pthread_mutex_t lock;
    long left; /* allocations until one fails; then all do */
    long live;
} counter;

static bool spend(counter *c)
{
    pthread_mutex_lock(&c->lock);
    bool there = c->left-- > 0;
    c->live += there;
    pthread_mutex_unlock(&c->lock);
    return there;
}

static void *some_alloc(size_t size, void *userdata)
{
    return spend(userdata) ? malloc(size) : NULL;
}

static void *some_realloc(void *ptr, size_t size, void *userdata)
{
    counter *c = userdata;
    if (!spend(c))
        return NULL;
    c->live--;
    return realloc(ptr, size);
}

static void some_free(void *ptr, void *userdata)
{
    counter *c = userdata;
    pthread_mutex_lock(&c->lock);
    c->live--;
    pthread_mutex_unlock(&c->lock);
    free(ptr);
}

/* Returns whether everything went well with that many allocations. */
static bool with_allocations(long count, const char *source, const char *cache, int want)
{
    counter c = {.left = count};
    stitch_allocator allocator = {sizeof(allocator), some_alloc, some_realloc, some_free, &c};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    char *json = NULL;
    pthread_mutex_init(&c.lock, NULL);
    o.device = "none";
    o.cache_dir = cache;
    o.allocator = &allocator;
    int rc = stitch_context_new(&ctx, &o, &err);
    if (rc == STITCH_OK)
        rc = compile(ctx, source, "sm_80", NULL, 0, 1, &image, &err);
    bool done = rc == want;
    if (done && want == STITCH_OK)
        CHECK_INT(stitch_image_kernel_count(image), 1);
    if (!done && rc != STITCH_E_NOMEM && rc != STITCH_E_NO_LIBRARY)
        FAIL("after %ld allocations: %s: %s", count, stitch_status_name(rc), stitch_error_message(err));
    if (ctx && count % 16 == 0)
        stitch_doctor(ctx, &json, NULL);
    stitch_free(json);
    stitch_error_free(err);
    stitch_image_free(image);
    stitch_context_free(ctx);
    CHECK_INT(c.live, 0);
    pthread_mutex_destroy(&c.lock);
    return done;
}

TEST(allocations_that_fail)
{
    char folder[] = "/tmp/stitch-alloc-XXXXXX";
    stitch_context_free(new_context());
    CHECK(mkdtemp(folder) != NULL);
    const struct {
        const char *source, *cache;
        int want;
    } rows[] = {{"__global__ void k(float *x) { x[0] = 1; }", "", STITCH_OK},
                {"__global__ void k(float *x) { x[0] = y; }", "", STITCH_E_COMPILE},
                {"#include \"/etc/passwd\"", "", STITCH_E_COMPILE},
                {"__global__ void k(float *x) { x[0] = 1; }", folder, STITCH_OK}};
    CHECK(with_allocations(LONG_MAX, rows[0].source, folder, STITCH_OK)); /* fills the cache */
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        long n = 0;
        while (!with_allocations(n, rows[i].source, rows[i].cache, rows[i].want) && n < 5000)
            n++;
        CHECK(n > 10 && n < 5000);
    }
    CHECK_INT(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t signals, compiled;

static void count_signal(int number, siginfo_t *info, void *unused)
{
    signals += number == SIGINT && info->si_pid == getpid();
}

static void *send_signals(void *unused)
{
    for (int i = 0; i < 2000 && !compiled; i++) {
        const struct timespec wait = {0, 2000000};
        kill(getpid(), SIGINT);
        nanosleep(&wait, NULL);
    }
    return NULL;
}

static void *keep_signals(void *kept)
{
    struct sigaction action;
    *(bool *)kept = stitch__signals_keep();
    if (*(bool *)kept)
        *(bool *)kept = sigaction(SIGINT, NULL, &action) == 0 && sigaction(SIGINT, &action, NULL) != 0;
    return NULL;
}

/* NVRTC's own handler would end this process. */
TEST(signals_stay_the_hosts)
{
    const struct sigaction counts = {.sa_sigaction = count_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction before, after[2];
    stitch_context *ctx = new_context();
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    pthread_t thread;
    bool kept = false;
    int rc;

    CHECK_INT(pthread_create(&thread, NULL, keep_signals, &kept), 0);
    pthread_join(thread, NULL);
    if (!kept) {
        stitch_context_free(ctx);
        SKIP("the system has no seccomp");
    }
    CHECK_INT(sigaction(SIGINT, &counts, &before), 0);
    CHECK_INT(sigaction(SIGTERM, &counts, NULL), 0);
    CHECK_INT(pthread_create(&thread, NULL, send_signals, NULL), 0);
    rc = compile(ctx, several, "sm_90", (const char *[]){"ln<256, __half>"}, 1, 0, &image, &err);
    compiled = 1;
    pthread_join(thread, NULL);
    CHECK_INT(sigaction(SIGINT, &before, &after[0]), 0);
    CHECK_INT(sigaction(SIGTERM, &before, &after[1]), 0);
    stitch_image_free(image);
    stitch_context_free(ctx);
    CHECK_INT(rc, STITCH_OK);
    CHECK(signals > 1);
    for (int i = 0; i < 2; i++)
        CHECK(after[i].sa_sigaction == count_signal && after[i].sa_flags & SA_SIGINFO);
}

TEST_MAIN(RUN(kernels_and_their_parameters), RUN(saved_and_restored), RUN(errors_have_lines), RUN(directives_that_hide),
          RUN(time_in_pieces), RUN(headers_of_habit), RUN(cuda_headers), RUN(bad_arguments), RUN(threads),
          RUN(damaged_images), RUN(sections_that_overlap), RUN(large_parameters_and_clusters), RUN(spills),
          RUN(allocations_that_fail), RUN(signals_stay_the_hosts))
