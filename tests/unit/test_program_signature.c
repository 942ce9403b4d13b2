/* SPDX-License-Identifier: MIT
 *
 * Kernel steps against the signatures that NVRTC reports. Needs the compiler, no GPU.
 */
#include "program_fixture.h"

#define IFACE "B=4 T=8 C=64; input x f32 B,T,C; weight w f32 C,C; output y f32 B,T,C"

static const char source[] =
    "#include <cuda_fp16.h>\n"
    "__global__ void row_norm(const float *x, const float *w, float *y, int rows) { y[0] = x[0] + w[0] + rows; }\n"
    "__global__ void half_out(const float *x, __half *h) { h[0] = __float2half(x[0]); }\n"
    "__global__ void half_in(const __half *h, float *y) { y[0] = __half2float(h[0]); }\n"
    "__global__ void reads(const float *h, const float *g) { if (h[0] == g[0]) __trap(); }\n"
    "__global__ void changes(float *h) { h[0] += 1; }\n"
    "__global__ void scalars(int a, unsigned b, long long c, unsigned long long d, float e, double f, __half g, size_t "
    "s, float *y) { y[0] = a + b + c + d + e + f + s + __half2float(g); }\n"
    "__global__ void bytes(const unsigned char *p, const void *q, const unsigned short *h, float *y) { y[0] = p[0] + "
    "h[0] + *(const char *)q; }\n"
    "template <int N, class V> __global__ void many(const V *x, float *y) { y[0] = N + float(x[0]); }\n"
    "extern \"C\" __global__ void plain(const float *x, float *y, int n) { y[0] = x[0] + n; }\n"
    "__global__ void __launch_bounds__(128) bounded(float *y) { y[0] = 1; }\n"
    "__global__ void shared_user(float *y) { __shared__ float s[8192]; extern __shared__ float d[]; s[threadIdx.x] = "
    "d[threadIdx.x]; __syncthreads(); y[0] = s[0]; }\n";

#define PLAN(run)                                                                                                      \
    "{\"stitch\": 1, \"let\": {\"M\": \"B*T\"}, \"buffers\": {\"h\": {\"dtype\": \"f16\", \"shape\": [\"M\", "         \
    "\"C\"]}, \"g\": {\"dtype\": \"f32\", \"shape\": [\"M\", \"C\"]}, "                                                \
    "\"i\": {\"dtype\": \"i32\", \"shape\": [\"M\"]}, \"q\": {\"dtype\": \"i64\", \"shape\": [\"M\"]}}, \"run\": "     \
    "[" run "]}"
#define K(name, args)        "{\"kernel\": \"" name "\", \"grid\": [1], \"block\": [32], \"args\": [" args "]}"
#define KX(name, args, more) "{\"kernel\": \"" name "\", \"grid\": [1], \"args\": [" args "], " more "}"

static const struct {
    const char *json;
    const char *part; /* NULL: fits */
} cases[] = {
    {PLAN(K("row_norm", "\"x\", \"w\", \"y\", {\"i32\": \"M\"}")), NULL},
    {PLAN(K("row_norm", "\"x\", \"w\", \"y\"")),
     "run[0].kernel row_norm: args has 3 arguments, but row_norm has 4 parameters"},
    {PLAN(K("row_norm", "\"x\", \"w\", \"y\", {\"i64\": \"M\"}")),
     "args[3] is a scalar {\"i64\"} of 8 bytes, but parameter 3 of row_norm is `int`"},
    {PLAN(K("row_norm", "\"x\", \"w\", \"y\", {\"f32\": 1}")),
     "args[3] is a scalar {\"f32\"} of 4 bytes, but parameter 3 of row_norm is `int`"},
    {PLAN(K("row_norm", "\"x\", \"w\", {\"i64\": 0}, {\"i32\": 1}") ", " K("changes", "\"y\"")),
     "args[2] is a scalar {\"i64\"} of 8 bytes, but parameter 2 of row_norm is `float *`"},
    {PLAN(K("row_norm", "\"x\", \"w\", \"y\", \"x\"")),
     "args[3] is input x (f32), but parameter 3 of row_norm is `int`"},
    {PLAN(K("row_norm", "\"x\", \"w\", \"h\", {\"i32\": 1}") ", " K("changes", "\"y\"")),
     "run[0].kernel row_norm: args[2] is buffer h (f16), but parameter 2 of row_norm is `float *`"},
    {PLAN(K("half_out", "\"x\", \"g\"") ", " K("changes", "\"y\"")),
     "args[1] is buffer g (f32), but parameter 1 of half_out is `__half *`"},
    {PLAN(K("half_out", "\"x\", \"h\"") ", " K("half_in", "\"h\", \"y\"")), NULL},
    {PLAN(K("scalars", "{\"i32\": 1}, {\"u32\": 1}, {\"i64\": 1}, {\"u64\": 1}, {\"f32\": 1}, {\"f64\": 1}, {\"f16\": "
                       "1}, {\"u64\": 1}, \"y\"")),
     NULL},
    {PLAN(K("scalars", "{\"u32\": 1}, {\"i32\": 1}, {\"u64\": 1}, {\"i64\": 1}, {\"f32\": 1}, {\"f64\": 1}, {\"f16\": "
                       "1}, {\"i64\": 1}, \"y\"")),
     NULL},
    {PLAN(K("scalars", "{\"i32\": 1}, {\"u32\": 1}, {\"i64\": 1}, {\"f64\": 1}, {\"f32\": 1}, {\"f64\": 1}, {\"f16\": "
                       "1}, {\"u64\": 1}, \"y\"")),
     "args[3] is a scalar {\"f64\"} of 8 bytes, but parameter 3"},
    {PLAN(K("scalars", "{\"i32\": 1}, {\"u32\": 1}, {\"i64\": 1}, {\"u64\": 1}, {\"i32\": 1}, {\"f64\": 1}, {\"f16\": "
                       "1}, {\"u64\": 1}, \"y\"")),
     "args[4] is a scalar {\"i32\"} of 4 bytes, but parameter 4"},
    /* bytes may be anything, 16-bit integers may be the bits of a half */
    {PLAN(K("half_out", "\"x\", \"h\"") ", " K("bytes", "\"x\", \"x\", \"h\", \"y\"")), NULL},
    {PLAN(K("bytes", "\"x\", \"x\", \"x\", \"y\"")), "args[2] is input x (f32), but parameter 2 of bytes is `"},
    {PLAN(K("many<3, float>", "\"x\", \"y\"") ", " K("half_out", "\"x\", \"h\"") ", " K("many<2, __half>",
                                                                                        "\"h\", \"y\"")),
     NULL},
    {PLAN(K("many<3, __half>", "\"x\", \"y\"")),
     "run[0].kernel many<3, __half>: args[0] is input x (f32), but parameter 0 of many<3, __half> is `"},
    {PLAN(K("plain", "\"x\", \"y\", {\"i32\": 1}")), NULL},
    {PLAN(K("plain", "\"x\", \"y\", {\"i64\": 1}")),
     "args[2] is a scalar {\"i64\"} of 8 bytes, but parameter 2 of plain is"},
    {PLAN(K("plain", "\"x\", {\"i32\": 1}, {\"i32\": 1}") ", " K("changes", "\"y\"")),
     "args[1] is a scalar {\"i32\"} of 4 bytes, but parameter 1 of plain is"},
    /* what const tells */
    {PLAN(K("reads", "\"y\", \"x\"")), "run[0].kernel reads: args: reads output y before anything has written it"},
    {PLAN(K("reads", "\"x\", \"g\"") ", " K("changes", "\"y\"")),
     "run[0].kernel reads: args: reads buffer g before anything has written it"},
    {PLAN(K("changes", "\"g\"") ", " K("reads", "\"x\", \"g\"") ", " K("changes", "\"y\"")), NULL},
    {PLAN("{\"kernel\": \"changes\", \"grid\": [1], \"block\": [32], \"args\": [\"g\"], \"id\": \"a\"}, " KX(
         "reads", "\"g\", \"x\"",
         "\"block\": [32], \"after\": [\"a\"]") ", " KX("reads", "\"x\", \"g\"",
                                                        "\"block\": [32], \"after\": [\"a\"]") ", " KX("changes",
                                                                                                       "\"y\"",
                                                                                                       "\"block\": "
                                                                                                       "[32], "
                                                                                                       "\"after\": "
                                                                                                       "[]")),
     NULL},
    {PLAN(KX("changes", "\"g\"", "\"block\": [32], \"after\": []") ", " KX(
         "changes", "\"g\"", "\"block\": [32], \"after\": []") ", " KX("changes", "\"y\"", "\"block\": [32]")),
     "run[0] and run[1] use g with no order between them"},
    /* what the launch asks for */
    {PLAN(KX("bounded", "\"y\"", "\"block\": [128]")), NULL},
    {PLAN(KX("bounded", "\"y\"", "\"block\": [129]")),
     "block has 129 threads, but the kernel's __launch_bounds__ allow 128"},
    {PLAN(KX("shared_user", "\"y\"", "\"block\": [128], \"shared\": 199680")), NULL},
    {PLAN(KX("shared_user", "\"y\"", "\"block\": [128], \"shared\": 199684")),
     "shared is 199684 bytes; with 32768 bytes of static shared memory that is more than the limit of 232448"},
};

static void need_compiler(stitch_context *ctx)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_image *image = NULL;
    stitch_error *err = NULL;
    o.arch = "sm_90a";
    int rc = stitch_compile(ctx, "__global__ void k() {}", &o, &image, &err);
    stitch_image_free(image);
    if (rc) {
        char why[256];
        snprintf(why, sizeof(why), "%s", stitch_error_message(err));
        stitch_error_free(err);
        stitch_context_free(ctx);
        SKIP(why);
    }
}

TEST(signatures)
{
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    options.device = "none";
    CHECK_OK(stitch_context_new(&ctx, &options, &err)); /* with the compile cache: most cases share their kernels */
    need_compiler(ctx);
    stitch_interface *i = new_interface(ctx, IFACE);
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = "sm_90a";
    for (size_t k = 0; k < STITCH__COUNT(cases); k++) {
        stitch_program *p;
        const stitch_image *image;
        CHECK_OK(stitch_program_parse(ctx, source, cases[k].json, NULL, &p, &err));
        CHECK_OK(stitch_program_validate(p, i, "sm_90a", &err));
        int rc = stitch_program_compile(p, &o, &image, &err);
        CHECK(image);
        if (!cases[k].part && rc)
            FAIL("case %zu: %s\n# %s\n# %s", k, stitch_error_message(err), cases[k].json, stitch_image_log(image));
        if (cases[k].part && (rc != STITCH_E_VALIDATE || !strstr(stitch_error_message(err), cases[k].part)))
            FAIL("case %zu: got %s \"%s\",\n# expected \"%s\"\n# %s", k, stitch_status_name(rc),
                 stitch_error_message(err), cases[k].part, cases[k].json);
        stitch_error_free(err);
        err = NULL;
        stitch_program_free(p);
    }
    stitch_interface_free(i);
    stitch_context_free(ctx);
}

TEST(compile_errors)
{
    stitch_context *ctx = new_context(NULL);
    stitch_error *err = NULL;
    stitch_program *p;
    const stitch_image *image;
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    need_compiler(ctx);
    o.arch = "sm_90a";
    CHECK_OK(stitch_program_parse(ctx, "__global__ void k(float *y) {\n    y[0] = z;\n}\n", PLAN(K("k", "\"y\"")), NULL,
                                  &p, &err));
    CHECK_INT(stitch_program_compile(p, &o, &image, &err), STITCH_E_COMPILE);
    CHECK(image);
    stitch_diagnostic d = STITCH_DIAGNOSTIC_INIT;
    CHECK_INT(stitch_image_diagnostic(image, 0, &d), STITCH_OK);
    CHECK_INT(d.line, 2);
    CHECK_INT(stitch_program_compile(p, &o, NULL, &err), STITCH_E_COMPILE);
    stitch_program_free(p);
    CHECK_OK(stitch_program_parse(ctx, "__global__ void k(float *y) {}\n", PLAN(K("kk", "\"y\"")), NULL, &p, &err));
    CHECK_INT(stitch_program_compile(p, &o, &image, &err), STITCH_E_COMPILE);
    stitch_program_free(p);
    /* without an interface: counts and kinds only */
    CHECK_OK(stitch_program_parse(ctx, "__global__ void k(float *y) {}\n", PLAN(K("k", "\"whatever\", {\"i32\": 1}")),
                                  NULL, &p, &err));
    CHECK_ERR(stitch_program_compile(p, &o, &image, &err), STITCH_E_VALIDATE,
              "args has 2 arguments, but k has 1 parameters");
    stitch_program_free(p);
    CHECK_OK(
        stitch_program_parse(ctx, "__global__ void k(float *y) {}\n", PLAN(K("k", "\"whatever\"")), NULL, &p, &err));
    CHECK_OK(stitch_program_compile(p, &o, &image, &err));
    CHECK_STR(stitch_image_arch(image), "sm_90a");
    stitch_program_free(p);
    CHECK_ERR(stitch_program_compile(NULL, &o, &image, &err), STITCH_E_INVALID, "must not be NULL");
    stitch_context_free(ctx);
}

/* The recorded reply fits its own kernels. */
TEST(real_reply)
{
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    options.device = "none";
    CHECK_OK(stitch_context_new(&ctx, &options, &err));
    need_compiler(ctx);
    stitch_interface *i = new_interface(ctx, GPT_BLOCK);
    char *code = read_data("gpt_block_reply.cu"), *json = read_data("gpt_block_reply.json");
    stitch_program *p;
    const stitch_image *image;
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = "sm_90a";
    CHECK_OK(stitch_program_parse(ctx, code, json, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, i, "sm_90a", &err));
    CHECK_OK(stitch_program_compile(p, &o, &image, &err));
    CHECK_INT(stitch_image_kernel_count(image), 3);
    CHECK_OK(stitch_program_validate(p, i, "sm_90a", &err)); /* again, with what const says */
    stitch_program_free(p);
    stitch_free(code);
    stitch_free(json);
    stitch_interface_free(i);
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(signatures), RUN(compile_errors), RUN(real_reply))
