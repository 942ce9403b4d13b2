/* SPDX-License-Identifier: MIT
 *
 * Validation: programs that are right, and tables of mistakes with the message that each one gets.
 */
#include "program_fixture.h"

#define IFACE                                                                                                          \
    "B=4 T=8 C=64; input x f32 B,T,C; weight w f32 C,C; weight wh f16 C,C; weight b f32 C; output y f32 B,T,C; state " \
    "s f32 B,C"
#define BUFFERS                                                                                                        \
    "\"h\": {\"dtype\": \"f32\", \"shape\": [\"B*T\", \"C\"]}, \"g\": {\"dtype\": \"f32\", \"shape\": [\"M\", "        \
    "\"C\"]}, \"xh\": {\"dtype\": \"f16\", \"shape\": [\"M\", \"C\"]}, "                                               \
    "\"e\": {\"dtype\": \"f8e4m3\", \"shape\": [\"M\", \"C\"]}, \"we\": {\"dtype\": \"f8e4m3\", \"shape\": [\"C\", "   \
    "\"C\"]}, \"d\": {\"dtype\": \"f64\", \"shape\": [\"M\", \"C\"]}, "                                                \
    "\"i\": {\"dtype\": \"i32\", \"shape\": [\"M\"]}, \"u\": {\"dtype\": \"u8\", \"shape\": [\"M\"]}"
#define PLAN(run) "{\"stitch\": 1, \"let\": {\"M\": \"B*T\"}, \"buffers\": {" BUFFERS "}, \"run\": [" run "]}"
#define PREPARED(prep, run)                                                                                            \
    "{\"stitch\": 1, \"let\": {\"M\": \"B*T\"}, \"buffers\": {" BUFFERS "}, \"prepare\": [" prep "], \"run\": [" run   \
    "]}"
#define K(name, args) "{\"kernel\": \"" name "\", \"grid\": [1], \"block\": [32], \"args\": [" args "]}"
#define KID(name, args, more)                                                                                          \
    "{\"kernel\": \"" name "\", \"grid\": [1], \"block\": [32], \"args\": [" args "], " more "}"
#define LAUNCH(more) "{\"kernel\": \"k\", \"args\": [\"x\", \"y\"], " more "}"
#define GEMM(more)   "{\"gemm\": {" more "}}"
#define MNK          "\"m\": \"M\", \"n\": \"C\", \"k\": \"C\""
#define WRITE_Y      K("k", "\"y\"")

typedef struct plan_case {
    const char *json, *arch;
    const char *part; /* NULL: valid */
} plan_case;

static void run_cases(const plan_case *cases, size_t count)
{
    stitch_context *ctx = new_context(NULL);
    stitch_interface *i = new_interface(ctx, IFACE);
    for (size_t k = 0; k < count; k++) {
        stitch_program *p;
        stitch_error *err = NULL;
        int rc = stitch_program_parse(ctx, "", cases[k].json, NULL, &p, &err);
        if (rc)
            FAIL("case %zu does not parse: %s", k, stitch_error_message(err));
        rc = stitch_program_validate(p, i, cases[k].arch, &err);
        if (!cases[k].part && rc)
            FAIL("case %zu: %s\n# %s", k, stitch_error_message(err), cases[k].json);
        if (cases[k].part && (rc != STITCH_E_VALIDATE || !strstr(stitch_error_message(err), cases[k].part)))
            FAIL("case %zu: got %s \"%s\",\n# expected \"%s\"\n# %s", k, stitch_status_name(rc),
                 stitch_error_message(err), cases[k].part, cases[k].json);
        CHECK((stitch_program_interface(p) != NULL) == (rc == STITCH_OK));
        if (rc)
            CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_PROGRAM);
        stitch_error_free(err);
        stitch_program_free(p);
    }
    stitch_interface_free(i);
    stitch_context_free(ctx);
}

TEST(names)
{
    static const plan_case cases[] = {
        {PLAN(WRITE_Y), NULL, NULL},
        {PLAN(K("k", "\"z\"")), NULL, "run[0].kernel k: args[0]: there is no tensor or buffer 'z'"},
        {PLAN(K("k", "\"y\", \"ww\"")), NULL,
         "run[0].kernel k: args[1]: there is no tensor or buffer 'ww'; did you mean 'w'?"},
        {PLAN(K("k", "\"y\", \"M\"")), NULL,
         "run[0].kernel k: args[1]: 'M' is a number, not a tensor; pass it as a scalar: {\"i32\": \"M\"}"},
        {PLAN(K("k", "\"y\", \"C\"")), NULL, "args[1]: 'C' is a number, not a tensor"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"wx\", \"c\": \"y\", " MNK)), NULL,
         "run[0].gemm.b: there is no tensor or buffer 'wx'"},
        {PLAN("{\"copy\": {\"from\": \"q1\", \"to\": \"y\"}}"), NULL,
         "run[0].copy.from: there is no tensor or buffer 'q1'"},
        {PLAN("{\"fill\": {\"buffer\": \"yy\", \"value\": 0}}"), NULL,
         "run[0].fill.buffer: there is no tensor or buffer 'yy'; did you mean 'y'?"},
        {PLAN("{\"op\": {\"name\": \"f\", \"args\": [\"y\", \"nope\"]}}"), NULL,
         "run[0].op.args[1]: there is no tensor or buffer 'nope'"},
        {PLAN(K("k", "\"y + N\"")), NULL,
         "run[0].kernel k: args[0]: \"N\", column 1: 'N' is not known here; did you mean"},
        {PLAN(K("k", "\"y\", {\"i32\": \"t\"}")), NULL, "args[1]: \"t\", column 1: 't' is not known here"},
        {"{\"stitch\": 1, \"buffers\": {\"x\": {\"dtype\": \"f32\", \"shape\": [1]}}, \"run\": [" WRITE_Y "]}", NULL,
         "buffers.x: the task already has a tensor of this name"},
        {"{\"stitch\": 1, \"let\": {\"C\": 3}, \"run\": [" WRITE_Y "]}", NULL,
         "let.C: the task already has a dim of this name"},
        {"{\"stitch\": 1, \"let\": {\"a\": \"b + 1\", \"b\": \"c\", \"c\": \"a\"}, \"run\": [" WRITE_Y "]}", NULL,
         "depends on itself through"},
        {"{\"stitch\": 1, \"let\": {\"a\": \"b + 1\", \"b\": \"C*2\"}, \"run\": [" K("k", "\"y + a\"") "]}", NULL,
         NULL},
        {"{\"stitch\": 1, \"let\": {\"a\": \"C/(B - 4)\"}, \"run\": [" K("k", "\"y + a\"") "]}", NULL,
         "let.a: \"C/(B - 4)\", column 2: division by zero"},
        {"{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f32\", \"shape\": [\"B - 4\"]}}, \"run\": [" WRITE_Y "]}",
         NULL, "buffers.h.shape[0] is 0; every extent must be at least 1"},
        {"{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f32\", \"shape\": [\"B*Q\"]}}, \"run\": [" WRITE_Y "]}",
         NULL, "buffers.h.shape[0]: \"B*Q\", column 3: 'Q' is not known here"},
        {"{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f32\", \"shape\": [1000000, 1000000, 1000000, 1000000]}}, "
         "\"run\": [" WRITE_Y "]}",
         NULL, "buffers.h.the shape has more than"},
        {"{\"stitch\": 1, \"buffers\": {\"h\": {\"dtype\": \"f32\", \"shape\": [\"1024*1024*1024\", 1024]}}, \"run\": "
         "[" WRITE_Y "]}",
         NULL, "buffers: all together have 4398046511104 bytes, the limit is 68719476736"},
        {"{\"stitch\": 1, \"buffers\": {\"s\": {\"dtype\": \"f32\", \"shape\": [\"B\", \"C\"], \"keep\": true}}, "
         "\"run\": [" K("k", "\"s\", \"y\"") "]}",
         NULL, NULL},
        {"{\"stitch\": 1, \"buffers\": {\"s\": {\"dtype\": \"f32\", \"shape\": [\"B\"], \"keep\": true}}, \"run\": [" K(
             "k", "\"s\", \"y\"") "]}",
         NULL, "buffers.s.shape: differs from the shape of the task's state"},
        {"{\"stitch\": 1, \"buffers\": {\"s\": {\"dtype\": \"f16\", \"shape\": [\"B\", \"C\"], \"keep\": true}}, "
         "\"run\": [" K("k", "\"s\", \"y\"") "]}",
         NULL, "buffers.s: is f16, but the task's state is f32"},
        {"{\"stitch\": 1, \"buffers\": {\"r\": {\"dtype\": \"f32\", \"shape\": [\"B\"], \"keep\": true}}, \"run\": [" K(
             "k", "\"r\", \"y\"") "]}",
         NULL, "buffers.r: \"keep\" needs a state of this name in the task, and there is none"},
        {"{\"stitch\": 1, \"buffers\": {\"y\": {\"dtype\": \"f32\", \"shape\": [\"B\"], \"keep\": true}}, \"run\": [" K(
             "k", "\"y\"") "]}",
         NULL, "buffers.y: the task has a tensor of this name that is no state"},
        {PLAN(""), NULL, "run: there are no steps"},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(launches)
{
    static const plan_case cases[] = {
        {PLAN(LAUNCH("\"grid\": [\"M\", 2, 3], \"block\": [16, 8, 8]")), NULL, NULL},
        {PLAN(LAUNCH("\"grid\": [\"M - 32\"], \"block\": [32]")), NULL,
         "run[0].kernel k: grid[0]: is 0, but must be between 1 and 2147483647"},
        {PLAN(LAUNCH("\"grid\": [1, 65536], \"block\": [32]")), NULL,
         "run[0].kernel k: grid[1]: is 65536, but must be between 1 and 65535"},
        {PLAN(LAUNCH("\"grid\": [\"3000000000\"], \"block\": [32]")), NULL, "grid[0]: is 3000000000"},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [1025]")), NULL,
         "run[0].kernel k: block[0]: is 1025, but must be between 1 and 1024"},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [1, 1, 65]")), NULL, "block[2]: is 65, but must be between 1 and 64"},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [64, 32]")), NULL,
         "run[0].kernel k: block: has 2048 threads, the limit is 1024"},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [32], \"shared\": 232448")), NULL, NULL},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [32], \"shared\": 232448")), "sm_90a", NULL},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [32], \"shared\": 232449")), "sm_90a",
         "shared: is 232449, but must be between 0 and 232448 bytes on sm_90"},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [32], \"shared\": 101377")), "sm_89",
         "shared: is 101377, but must be between 0 and 101376 bytes on sm_89"},
        {PLAN(LAUNCH("\"grid\": [1], \"block\": [32], \"shared\": -1")), NULL, "shared: is -1"},
        {PLAN(LAUNCH("\"grid\": [8], \"block\": [32], \"cluster\": [4]")), "sm_90a", NULL},
        {PLAN(LAUNCH("\"grid\": [8], \"block\": [32], \"cluster\": [4]")), "sm_89",
         "cluster: sm_89 has no clusters; they need sm_90"},
        {PLAN(LAUNCH("\"grid\": [9], \"block\": [32], \"cluster\": [4]")), NULL,
         "cluster[0]: is 4, but grid[0] is 9 and must be a multiple of it"},
        {PLAN(LAUNCH("\"grid\": [32], \"block\": [32], \"cluster\": [32]")), NULL,
         "cluster[0]: is 32, but must be between 1 and 16"},
        {PLAN(LAUNCH("\"grid\": [8, 4], \"block\": [32], \"cluster\": [8, 4]")), NULL,
         "cluster: has 32 blocks, the limit is 16"},
        {PLAN(LAUNCH("\"grid\": [8], \"block\": [32], \"pdl\": true")), "sm_80",
         "pdl: sm_80 has no programmatic launches"},
        {PLAN(K("k", "\"y\", {\"i32\": 3000000000}")), NULL, "args[1]: 3000000000 does not fit into i32"},
        {PLAN(K("k", "\"y\", {\"u32\": -1}")), NULL, "args[1]: -1 does not fit into u32"},
        {PLAN(K("k", "\"y\", {\"u32\": 4294967295}, {\"i32\": -2147483648}")), NULL, NULL},
        {PLAN(K("k", "\"y\", {\"f16\": 70000}")), NULL, "args[1]: 70000 does not fit into f16"},
        {PLAN(K("k", "\"y\", {\"f32\": 1e300}")), NULL, "args[1]: 1e+300 does not fit into f32"},
        {PLAN(K("k", "\"y + B*T*C - 1\"")), NULL, NULL},
        {PLAN(K("k", "\"y + B*T*C\"")), NULL, "args[0]: offset 2048 is outside of y, which has 2048 elements"},
        {PLAN(K("k", "\"y + 0 - 1\"")), NULL, "args[0]: offset -1 is outside of y"},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [\"M\", \"C\"], \"box\": [8, 32], "
                     "\"swizzle\": \"128B\"}}")),
         "sm_90a", NULL},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [\"M\", \"C\"], \"box\": [8, 32]}}")),
         "sm_80", "args[1]: sm_80 has no tensor maps; they need sm_90"},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [\"M\", \"C\"], \"box\": [8, 64], "
                     "\"swizzle\": \"128B\"}}")),
         NULL, "args[1]: the box is 256 bytes wide, but a swizzle of 128 bytes"},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [\"M\", \"C\"], \"box\": [8, 3]}}")), NULL,
         "the box is 12 bytes wide, but its innermost extent must be a multiple of 16 bytes"},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x + 1\", \"shape\": [4, \"C\"], \"box\": [1, 32]}}")),
         NULL, "the tensor starts at byte 4, but must start at a multiple of 16 bytes"},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [\"M + 1\", \"C\"], \"box\": [1, 32]}}")),
         NULL, "args[1]: reaches 2112 elements from element 0 on, but x has 2048"},
        {PLAN(K("k",
                "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [4, 8], \"strides\": [3], \"box\": [1, 4]}}")),
         NULL, "strides[0] is 12 bytes, but must be a multiple of 16 bytes"},
        {PLAN(K(
             "k",
             "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [4, 8], \"strides\": [16, 2], \"box\": [1, 4]}}")),
         NULL, "the innermost stride is 2, but must be 1"},
        {PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [4, 8], \"box\": [1, 512]}}")), NULL,
         "tensor_map" /* below */},
    };
    run_cases(cases, STITCH__COUNT(cases) - 1);
    static const plan_case box = {
        PLAN(K("k", "\"y\", {\"tensor_map\": {\"buffer\": \"x\", \"shape\": [4, 8], \"box\": [1, 512]}}")), NULL,
        "args[1].box[1]: is 512, the limit is 256"};
    run_cases(&box, 1);
}

TEST(products)
{
    static const plan_case cases[] = {
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", " MNK)), NULL, NULL},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"bias\": \"b\", \"d\": \"x\", \"beta\": 1, "
                   "\"epilogue\": \"gelu\", \"trans_b\": true, " MNK)),
         NULL, NULL},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": 0, \"n\": \"C\", \"k\": \"C\"")), NULL,
         "run[0].gemm.m: is 0, but must be at least 1"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": \"M\", \"n\": \"C\", \"k\": \"2*C\"")), NULL,
         "run[0].gemm.a: reaches 4096 elements from element 0 on, but x has 2048"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w + 1\", \"c\": \"y\", " MNK)), NULL,
         "run[0].gemm.b: reaches 4096 elements from element 1 on, but w has 4096"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"ldc\": 65, " MNK)), NULL,
         "run[0].gemm.c: reaches 2079 elements from element 0 on, but y has 2048"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"lda\": 63, " MNK)), NULL,
         "run[0].gemm.lda: is 63, but must be at least 64"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"bias\": \"b + 1\", " MNK)), NULL,
         "run[0].gemm.bias: reaches 64 elements from element 1 on, but b has 64"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"x\", " MNK) ", " WRITE_Y), NULL,
         "run[0].gemm.c: overlaps an operand of the product"},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"h\"}}, " GEMM(
             "\"a\": \"x\", \"b\": \"w\", \"c\": \"h + C\", \"d\": \"h\", \"beta\": 1, \"m\": \"M - 1\", \"n\": \"C\", "
             "\"k\": \"C\"") ", " WRITE_Y),
         NULL, "run[1].gemm.d: overlaps c without being the same matrix"},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"h\"}}, " GEMM(
             "\"a\": \"x\", \"b\": \"w\", \"c\": \"h\", \"beta\": 1, " MNK) ", " WRITE_Y),
         NULL, NULL},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"wh\", \"c\": \"y\", " MNK)), NULL,
         "run[0].gemm: a is f32 and b is f16; products take two operands of one type"},
        {PLAN(K("k", "\"xh\"") ", " GEMM("\"a\": \"xh\", \"b\": \"wh\", \"c\": \"y\", " MNK)), NULL, NULL},
        {PLAN(K("k", "\"xh\"") ", " GEMM("\"a\": \"xh\", \"b\": \"wh\", \"c\": \"d\", " MNK) ", " WRITE_Y), NULL,
         "run[1].gemm.c: is f64; the product of f16 operands can be stored as f16 or f32"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"xh\", " MNK) ", " WRITE_Y), NULL,
         "run[0].gemm.c: is f16; the product of f32 operands can be stored as f32"},
        {PLAN(K("k", "\"e\", \"we\"") ", " GEMM("\"a\": \"e\", \"b\": \"we\", \"c\": \"i\", \"trans_b\": true, \"m\": "
                                                "1, \"n\": 16, \"k\": 16") ", " WRITE_Y),
         NULL, "run[1].gemm.c: is i32; the product of f8e4m3 operands can be stored as f16, bf16 or f32"},
        {PLAN(K("k", "\"i\"") ", " GEMM("\"a\": \"i\", \"b\": \"i\", \"c\": \"y\", \"m\": 1, \"n\": 1, \"k\": 1")),
         NULL, "a is i32 and b is i32"},
        {PLAN(K("k", "\"d\"") ", " GEMM("\"a\": \"d\", \"b\": \"d\", \"c\": \"y\", \"m\": 1, \"n\": 1, \"k\": 1")),
         NULL, "run[1].gemm.c: is f32; the product of f64 operands can be stored as f64"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"compute\": \"f64\", " MNK)), NULL,
         "run[0].gemm.compute: is f64, but the operands are f32"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"compute\": \"f16\", " MNK)), NULL,
         "run[0].gemm.compute: f16 needs a, b and c of type f16, but a is f32"},
        {PLAN(K("k", "\"e\", \"we\"") ", " GEMM("\"a\": \"e\", \"b\": \"we\", \"c\": \"y\", \"trans_b\": true, " MNK)),
         "sm_90a", NULL},
        {PLAN(K("k", "\"e\", \"we\"") ", " GEMM("\"a\": \"e\", \"b\": \"we\", \"c\": \"y\", \"trans_b\": true, " MNK)),
         "sm_80", "run[1].gemm: sm_80 has no products of 8-bit floats; they need sm_89"},
        {PLAN(K("k", "\"e\", \"we\"") ", " GEMM("\"a\": \"e\", \"b\": \"we\", \"c\": \"y\", " MNK)), NULL,
         "products of 8-bit floats need trans_a false and trans_b true"},
        {PLAN(K("k", "\"e\", \"we\"") ", " GEMM(
             "\"a\": \"e\", \"b\": \"we\", \"c\": \"y\", \"trans_b\": true, \"m\": 4, \"n\": 16, \"k\": 24")),
         NULL, "products of 8-bit floats need n, k, lda and ldb that are multiples of 16"},
        /* batches: heads side by side in rows, dense, overlapping */
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": \"T\", \"n\": 16, \"k\": 16, \"batch\": 4, "
                   "\"lda\": \"C\", \"ldc\": \"C\", \"stride_a\": 16, \"stride_b\": 256, \"stride_c\": 16")),
         NULL, NULL},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": \"T\", \"n\": \"C\", \"k\": \"C\", \"batch\": "
                   "\"B\", \"stride_b\": 0")),
         NULL, NULL},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": \"T\", \"n\": \"C\", \"k\": \"C\", \"batch\": "
                   "\"B\", \"stride_b\": 0, \"stride_c\": \"C\"")),
         NULL, "run[0].gemm.stride_c: is 64: the batches of c overlap"},
        {PLAN(GEMM(
             "\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": \"T\", \"n\": \"C\", \"k\": \"C\", \"batch\": \"B\"")),
         NULL, "run[0].gemm.b: reaches 16384 elements from element 0 on, but w has 4096"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": \"T\", \"n\": \"C\", \"k\": \"C\", \"batch\": "
                   "\"B\", \"stride_b\": -1")),
         NULL, "run[0].gemm.stride_b: is -1, but must be at least 0"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"m\": 2147483647, \"n\": 2147483647, \"k\": 2147483647, "
                   "\"batch\": 2147483647")),
         NULL, "larger than any tensor"},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(copies_and_fills)
{
    static const plan_case cases[] = {
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"y\", \"count\": \"M*C\"}}"), NULL, NULL},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"y\"}}"), NULL, NULL},
        {PLAN("{\"copy\": {\"from\": \"x + C\", \"to\": \"y\", \"count\": \"M*C\"}}"), NULL,
         "run[0].copy.from: reaches 2048 elements from element 64 on, but x has 2048"},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"y + C\", \"count\": \"M*C\"}}"), NULL,
         "run[0].copy.to: reaches 2048 elements from element 64 on"},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"y\", \"count\": -1}}"), NULL,
         "run[0].copy.count: is -1, but must not be negative"},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"xh\"}}, " WRITE_Y), NULL,
         "run[0].copy: from is f32 and to is f16; a copy does not convert"},
        {PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 0}}, {\"copy\": {\"from\": \"y\", \"to\": \"y + 4\", "
              "\"count\": 5}}"),
         NULL, "run[1].copy: source and target overlap"},
        {PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 0}}, {\"copy\": {\"from\": \"y\", \"to\": \"y + 4\", "
              "\"count\": 4}}"),
         NULL, NULL},
        {PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 1.5}}"), NULL, NULL},
        {PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 0, \"count\": 2049}}"), NULL,
         "run[0].fill.buffer: reaches 2049 elements"},
        {PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 1e39}}"), NULL,
         "run[0].fill.value: 1e+39 cannot be stored as f32"},
        {PLAN("{\"fill\": {\"buffer\": \"i\", \"value\": 1.5}}, " WRITE_Y), NULL,
         "run[0].fill.value: 1.5 cannot be stored as i32"},
        {PLAN("{\"fill\": {\"buffer\": \"u\", \"value\": 256}}, " WRITE_Y), NULL,
         "run[0].fill.value: 256 cannot be stored as u8"},
        {PLAN("{\"fill\": {\"buffer\": \"u\", \"value\": 255}}, {\"fill\": {\"buffer\": \"d\", \"value\": "
              "1e300}}, " WRITE_Y),
         NULL, NULL},
        {PLAN("{\"fill\": {\"buffer\": \"e\", \"value\": 1}}, " WRITE_Y), NULL,
         "run[0].fill.value: 1 cannot be stored as f8e4m3"},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(loops)
{
#define LOOP(var, count, steps) "{\"repeat\": {\"var\": \"" var "\", \"count\": " count ", \"steps\": [" steps "]}}"
    static const plan_case cases[] = {
        {PLAN(LOOP("t", "\"T\"", LOOP("l", "\"t\"", K("k", "\"y + (t + l)*C\"")))), NULL, NULL},
        {PLAN(LOOP("t", "\"T + 25\"", K("k", "\"y + t*C\""))), NULL,
         "run[0].repeat.steps[0].kernel k: args[0]: offset 2048 is outside of y, which has 2048 elements"},
        {PLAN(LOOP("t", "\"M + 1\"", "{\"fill\": {\"buffer\": \"y\", \"value\": 0, \"count\": \"t*C + 1\"}}")), NULL,
         "run[0].repeat.steps[0].fill.buffer: reaches 2049 elements from element 0 on, but y has 2048 (t = 32)"},
        {PLAN(LOOP("t", "-1", WRITE_Y)), NULL, "run[0].repeat.count: is -1, but must not be negative"},
        {PLAN(LOOP("t", "0", K("k", "\"y + t*M*C\"")) ", " WRITE_Y), NULL, NULL},
        {PLAN(LOOP("C", "2", WRITE_Y)), NULL,
         "run[0].repeat.var: 'C' is already the name of a dim, a let or a loop around this one"},
        {PLAN(LOOP("M", "2", WRITE_Y)), NULL, "run[0].repeat.var: 'M' is already the name"},
        {PLAN(LOOP("t", "2", LOOP("t", "2", WRITE_Y))), NULL,
         "run[0].repeat.steps[0].repeat.var: 't' is already the name"},
        {PLAN(LOOP("t", "2", WRITE_Y) ", " LOOP("t", "2", WRITE_Y)), NULL, NULL},
        {PLAN(LOOP("t", "2", WRITE_Y) ", " K("k", "\"y + t\"")), NULL,
         "run[1].kernel k: args[0]: \"t\", column 1: 't' is not known here"},
        {PLAN(LOOP("t", "100001", WRITE_Y)), NULL, "more than 100000"},
        {PLAN(LOOP("t", "9223372036854775807", LOOP("u", "0", WRITE_Y)) ", " WRITE_Y), NULL,
         "run[0].repeat: all loops together go round more than 100000 times"},
        {PLAN(LOOP("t", "1000", LOOP("u", "1000", ""))), NULL, "go round more than 100000 times"},
        {PLAN(LOOP("t", "3", LAUNCH("\"grid\": [\"2 - t\"], \"block\": [32]"))), NULL,
         "grid[0]: is 0, but must be between 1 and 2147483647 (t = 2)"},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(reads_and_writes)
{
    static const plan_case cases[] = {
        {PLAN(K("k", "\"x\", \"h\"")), NULL, "run: no step writes the output y"},
        {PLAN(GEMM("\"a\": \"h\", \"b\": \"w\", \"c\": \"y\", " MNK)), NULL,
         "run[0].gemm: reads buffer h before anything has written it"},
        {PLAN(GEMM("\"a\": \"x\", \"b\": \"w\", \"c\": \"y\", \"beta\": 1, " MNK)), NULL,
         "run[0].gemm: reads output y before anything has written it"},
        {PLAN("{\"copy\": {\"from\": \"h\", \"to\": \"y\"}}"), NULL,
         "run[0].copy: reads buffer h before anything has written it"},
        {PLAN(K("k", "\"h\"") ", {\"copy\": {\"from\": \"h\", \"to\": \"y\"}}"), NULL, NULL},
        {PLAN("{\"copy\": {\"from\": \"h\", \"to\": \"y\"}}, " K("k", "\"h\"")), NULL, "run[0].copy: reads buffer h"},
        {PLAN("{\"fill\": {\"buffer\": \"x\", \"value\": 0}}, " WRITE_Y), NULL,
         "run[0].fill: writes the input x, which is read-only"},
        {PLAN("{\"copy\": {\"from\": \"x\", \"to\": \"w\", \"count\": 1}}, " WRITE_Y), NULL,
         "run[0].copy: writes the weight w, which is read-only"},
        {PLAN("{\"copy\": {\"from\": \"s\", \"to\": \"y\", \"count\": 1}}, {\"fill\": {\"buffer\": \"s\", \"value\": "
              "0}}"),
         NULL, NULL},
        {PREPARED("{\"copy\": {\"from\": \"w\", \"to\": \"h\", \"count\": 64}}",
                  GEMM("\"a\": \"h\", \"b\": \"w\", \"c\": \"y\", " MNK)),
         NULL, NULL},
        {PREPARED("{\"copy\": {\"from\": \"w\", \"to\": \"h\", \"count\": 64}}",
                  "{\"fill\": {\"buffer\": \"h\", \"value\": 0}}, " WRITE_Y),
         NULL, "run[0].fill: writes h, which prepare wrote; run may only read it"},
        {PREPARED(K("k", "\"x\", \"h\""), WRITE_Y), NULL,
         "prepare[0].kernel k: args: uses the input x, but prepare sees weights and buffers only"},
        {PREPARED(K("k", "\"y\""), WRITE_Y), NULL, "uses the output y, but prepare sees weights and buffers only"},
        {PREPARED(K("k", "\"s\""), WRITE_Y), NULL, "uses the state s, but prepare"},
        {PREPARED("{\"copy\": {\"from\": \"h\", \"to\": \"g\"}}", WRITE_Y), NULL,
         "prepare[0].copy: reads buffer h before anything has written it"},
        {PLAN("{\"op\": {\"name\": \"f\", \"args\": [\"x\", \"y\"]}}"), NULL, NULL},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(graphs)
{
#define FILL(buffer, more) "{\"fill\": {\"buffer\": \"" buffer "\", \"value\": 0}, " more "}"
#define ADD(more)          "{\"gemm\": {\"a\": \"h\", \"b\": \"w\", \"c\": \"y\", \"d\": \"g\", \"beta\": 1, " MNK "}, " more "}"
    static const plan_case cases[] = {
        {PLAN(FILL("h", "\"id\": \"a\", \"after\": []") ", " FILL("g", "\"id\": \"b\", \"after\": []") ", " ADD(
             "\"after\": [\"a\", \"b\"]")),
         NULL, NULL},
        {PLAN(FILL("h", "\"id\": \"a\", \"after\": []") ", " FILL("g", "\"id\": \"b\", \"after\": []") ", " ADD(
             "\"after\": [\"a\"]")),
         NULL, "run[1] and run[2] use g with no order between them: neither waits for the other through \"after\""},
        /* order in the list does not matter, edges do */
        {PLAN(ADD("\"after\": [\"a\", \"b\"]") ", " FILL("h", "\"id\": \"a\"") ", " FILL("g", "\"id\": \"b\"")), NULL,
         NULL},
        {PLAN(FILL("h", "\"id\": \"a\"") ", " FILL("h", "\"id\": \"b\", \"after\": [\"a\"]") ", " FILL(
             "h",
             "\"id\": \"c\", \"after\": [\"b\"]") ", "
                                                  "{\"copy\": {\"from\": \"h\", \"to\": \"y\"}, \"after\": [\"c\"]}"),
         NULL, NULL},
        {PLAN(FILL("h", "\"id\": \"a\"") ", " FILL("g", "\"id\": \"a\", \"after\": []") ", " WRITE_Y), NULL,
         "run[1].id: 'a' is already the id of run[0]"},
        {PLAN(FILL("h", "\"id\": \"first\"") ", " KID("k", "\"y\"", "\"after\": [\"frist\"]")), NULL,
         "run[1].after[0]: no step of this list has the id 'frist'; did you mean 'first'?"},
        {PLAN(KID("k", "\"y\"", "\"id\": \"a\", \"after\": [\"a\"]")), NULL,
         "run[0].after[0]: the step waits for itself: 'a'"},
        {PLAN(KID("k", "\"y\"", "\"id\": \"a\", \"after\": [\"b\"]") ", " KID("k", "\"x\"",
                                                                              "\"id\": \"b\", \"after\": [\"a\"]")),
         NULL, "run[0].after: the steps wait for each other in a circle"},
        /* two kernels that may both only read are left alone until their signatures are known */
        {PLAN(FILL("h", "\"id\": \"a\"") ", " KID("k", "\"h\", \"y\"", "\"after\": [\"a\"]") ", " KID(
             "k", "\"h\", \"g\"", "\"after\": [\"a\"]")),
         NULL, NULL},
        /* a graph inside a loop, a loop inside a graph */
        {PLAN("{\"repeat\": {\"var\": \"t\", \"count\": 2, \"steps\": [" FILL(
             "h", "\"id\": \"a\"") ", {\"copy\": {\"from\": \"h\", \"to\": \"y\"}, \"after\": []}]}}"),
         NULL, "run[0].repeat.steps[0] and run[0].repeat.steps[1] use h with no order"},
        {PLAN(FILL("h", "\"id\": \"a\"") ", {\"repeat\": {\"var\": \"t\", \"count\": 2, \"steps\": [{\"copy\": "
                                         "{\"from\": \"h\", \"to\": \"y\"}}]}, \"after\": []}"),
         NULL, "run[0] and run[1] use h with no order"},
        {PLAN(FILL("h", "\"id\": \"a\"") ", {\"repeat\": {\"var\": \"t\", \"count\": 2, \"steps\": [{\"copy\": "
                                         "{\"from\": \"h\", \"to\": \"y\"}}]}, \"after\": [\"a\"]}"),
         NULL, NULL},
    };
    run_cases(cases, STITCH__COUNT(cases));
}

TEST(all_findings_are_told)
{
    stitch_context *ctx = new_context(NULL);
    stitch_interface *i = new_interface(ctx, IFACE);
    stitch_program *p;
    stitch_error *err = NULL;
    CHECK_OK(stitch_program_parse(ctx, "", PLAN(LAUNCH("\"grid\": [0], \"block\": [2000]") ", " K("k", "\"zzz\"")),
                                  NULL, &p, &err));
    CHECK_INT(stitch_program_validate(p, i, NULL, &err), STITCH_E_VALIDATE);
    CHECK_HAS(stitch_error_message(err), "run[1].kernel k: args[0]"); /* names come first */
    CHECK_HAS(stitch_error_details(err), "run[0].kernel k: grid[0]: is 0");
    CHECK_HAS(stitch_error_details(err), "run[0].kernel k: block[0]: is 2000");
    CHECK_HAS(stitch_error_details(err), "\n");
    stitch_error_free(err);
    err = NULL;
    CHECK_ERR(stitch_program_validate(p, i, "sm_x", &err), STITCH_E_INVALID, "'sm_x' is no architecture");
    CHECK_ERR(stitch_program_validate(p, i, "sm_35", &err), STITCH_E_UNSUPPORTED, "the oldest architecture is sm_70");
    CHECK_ERR(stitch_program_validate(p, NULL, NULL, &err), STITCH_E_INVALID, "must not be NULL");
    stitch_program_free(p);
    stitch_interface_free(i);
    stitch_context_free(ctx);
}

/* A reply that a model gave in a trial, and the programs of the examples. */
TEST(real_programs)
{
    stitch_context *ctx = new_context(NULL);
    stitch_interface *i = new_interface(ctx, GPT_BLOCK);
    stitch_program *p;
    stitch_error *err = NULL;
    char *source = read_data("gpt_block_reply.cu"), *json = read_data("gpt_block_reply.json");
    CHECK_OK(stitch_program_parse(ctx, source, json, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, i, "sm_90a", &err));
    CHECK_OK(stitch_program_validate(p, i, NULL, &err));
    CHECK_ERR(stitch_program_validate(p, i, "sm_75", &err), STITCH_E_VALIDATE,
              "shared: is 99328, but must be between 0 and 65536 bytes on sm_75");
    CHECK_OK(stitch_interface_set_dim(i, "B", 1, &err));
    CHECK_OK(stitch_interface_set_dim(i, "T", 128, &err));
    CHECK_OK(stitch_program_validate(p, i, "sm_90a", &err));
    CHECK_OK(stitch_interface_set_dim(i, "T", 64, &err)); /* T/128 is 0 */
    CHECK_ERR(stitch_program_validate(p, i, "sm_90a", &err), STITCH_E_VALIDATE,
              "run[2].kernel attn_causal96: grid[0]: is 0");
    stitch_program_free(p);
    stitch_free(source);
    stitch_free(json);
    stitch_interface_free(i);
    stitch_context_free(ctx);
}

/* Hostile sizes end soon (well under a second; the bound leaves room for valgrind): limits cut them off. */
TEST(hostile_sizes)
{
    stitch_context *ctx = new_context(NULL);
    stitch_interface *i = new_interface(ctx, IFACE);
    stitch_program *p;
    stitch_error *err = NULL;
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b,
                     "{\"stitch\": 1, \"run\": [{\"kernel\": \"k\", \"grid\": [1], \"block\": [1], \"args\": [\"y\"");
    for (int k = 0; k < 500; k++)
        stitch__buf_printf(&b, ", {\"i32\": \"a%d + b%d + c%d + d%d + e%d\"}", k, k, k, k, k);
    stitch__buf_puts(&b, "]}]}");
    int64_t start = stitch__now_ns();
    CHECK_OK(stitch_program_parse(ctx, "", b.data, NULL, &p, &err));
    CHECK_ERR(stitch_program_validate(p, i, NULL, &err), STITCH_E_VALIDATE, "'a0' is not known here");
    stitch_program_free(p);
    stitch__buf_truncate(&b, 0);
    stitch__buf_puts(&b, "{\"stitch\": 1, \"run\": [{\"fill\": {\"buffer\": \"y\", \"value\": 0}, \"id\": \"s0\"}");
    for (int k = 1; k < 4000; k++) { /* a chain, and everything touches the same tensor */
        stitch__buf_printf(&b, ", {\"fill\": {\"buffer\": \"y\", \"value\": 0}, \"id\": \"s%d\", \"after\": [\"s%d\"]}",
                           k, k - 1);
    }
    stitch__buf_puts(&b, "]}");
    CHECK_OK(stitch_program_parse(ctx, "", b.data, NULL, &p, &err));
    CHECK_OK(stitch_program_validate(p, i, NULL, &err));
    stitch_program_free(p);
    if (stitch__now_ns() - start > INT64_C(60000000000))
        FAIL("took %g s", (double)(stitch__now_ns() - start) / 1e9);
    stitch__buf_free(&b);
    stitch_interface_free(i);
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(names), RUN(launches), RUN(products), RUN(copies_and_fills), RUN(loops), RUN(reads_and_writes),
          RUN(graphs), RUN(all_findings_are_told), RUN(real_programs), RUN(hostile_sizes))
