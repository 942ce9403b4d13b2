/* SPDX-License-Identifier: MIT
 *
 * Form of launch plans: good ones, and a table of mistakes with the messages they get.
 */
#include "check.h"
#include "program/program.h"

static stitch_context *new_context(void)
{
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.cache_dir = "";
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    return ctx;
}

#define PLAN(steps) "{\"stitch\": 1, \"run\": [" steps "]}"

TEST(good)
{
    static const char *const cases[] = {
        PLAN(""),
        "{\"stitch\": 1, \"let\": {\"M\": \"B*T\", \"two\": 2}, \"buffers\": {\"h\": {\"dtype\": \"f16\", \"shape\": "
        "[\"M\", 4]}}, \"prepare\": [], \"run\": []}",
        PLAN("{\"kernel\": \"k\", \"grid\": [1], \"block\": [256], \"args\": []}"),
        PLAN("{\"kernel\": \"ns::k<256, __half, (int)sizeof(float), 1.5f>\", \"grid\": [1, \"B\", 3], \"block\": [32, "
             "4], \"shared\": 1024, \"cluster\": [2], "
             "\"cooperative\": true, \"pdl\": false, \"args\": [\"x\", \"ln_1.weight + t*C\", {\"i32\": \"C\"}, "
             "{\"u32\": 1}, {\"i64\": 2}, {\"u64\": 3}, {\"f32\": 1e-5}, "
             "{\"f64\": 1}, {\"f16\": 0.5}, {\"bf16\": \"C\"}, {\"tensor_map\": {\"buffer\": \"a\", \"shape\": [\"M\", "
             "64], \"box\": [8, 64], \"strides\": [\"C\"], "
             "\"swizzle\": \"128B\"}}]}"),
        PLAN("{\"gemm\": {\"a\": \"h\", \"b\": \"w\", \"c\": \"y\", \"m\": \"M\", \"n\": \"4*C\", \"k\": \"C\", "
             "\"trans_b\": true, \"bias\": \"b\", \"epilogue\": \"gelu\", "
             "\"compute\": \"f32\"}}"),
        PLAN("{\"gemm\": {\"a\": \"h + 3\", \"b\": \"w\", \"c\": \"y\", \"d\": \"r\", \"m\": 1, \"n\": 2, \"k\": 3, "
             "\"trans_a\": true, \"lda\": 8, \"ldb\": 8, \"ldc\": 8, "
             "\"ldd\": 8, \"batch\": 2, \"stride_a\": 1, \"stride_b\": 1, \"stride_c\": 1, \"stride_d\": 1, \"alpha\": "
             "0.5, \"beta\": 1, \"compute\": \"f64\"}}"),
        PLAN("{\"copy\": {\"from\": \"a\", \"to\": \"b\", \"count\": \"M*C\"}}, {\"copy\": {\"from\": \"a\", \"to\": "
             "\"b+4\"}}, "
             "{\"fill\": {\"buffer\": \"y\", \"value\": 0, \"count\": \"M\"}}, {\"fill\": {\"buffer\": \"y\", "
             "\"value\": -1.5}}"),
        PLAN("{\"repeat\": {\"var\": \"t\", \"count\": \"T\", \"steps\": [{\"repeat\": {\"var\": \"l\", \"count\": 2, "
             "\"steps\": []}}]}}"),
        PLAN("{\"op\": {\"name\": \"engine.rope\", \"args\": [\"x\", {\"f32\": 1.0}], \"attrs\": {\"theta\": 10000, "
             "\"list\": [1, {}]}}}"),
        PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 0}, \"id\": \"a\"}, {\"fill\": {\"buffer\": \"z\", \"value\": "
             "0}, \"after\": [\"a\"]}"),
    };
    stitch_context *ctx = new_context();
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_program *p, *again;
        stitch_error *err = NULL;
        int rc = stitch_program_parse(ctx, "source", cases[i], NULL, &p, &err);
        if (rc)
            FAIL("case %zu: %s", i, stitch_error_message(err));
        /* the normalised text means the same program */
        CHECK_OK(stitch_program_parse(ctx, "source", stitch_program_json(p), NULL, &again, &err));
        CHECK_STR(stitch_program_hash(again), stitch_program_hash(p));
        CHECK_STR(stitch_program_json(again), stitch_program_json(p));
        CHECK(stitch_program_interface(p) == NULL);
        CHECK_INT(strlen(stitch_program_hash(p)), 64);
        stitch_program_free(again);
        stitch_program_free(p);
    }
    stitch_program_free(NULL);
    stitch_context_free(ctx);
}

#define KERNEL(more) PLAN("{\"kernel\": \"k\", \"grid\": [1], \"block\": [32], \"args\": []" more "}")
#define ARG(arg)     PLAN("{\"kernel\": \"k\", \"grid\": [1], \"block\": [32], \"args\": [" arg "]}")
#define GEMM(more)   PLAN("{\"gemm\": {\"a\": \"a\", \"b\": \"b\", \"c\": \"c\", \"m\": 1, \"n\": 1, \"k\": 1" more "}}")
#define BUFFER(b)    "{\"stitch\": 1, \"buffers\": {\"h\": " b "}, \"run\": []}"

static const struct {
    const char *json;
    int code;
    const char *part;
} bad[] = {
    {"", STITCH_E_FORMAT, "the launch plan, line 1"},
    {"[]", STITCH_E_FORMAT, "expected an object, found a list"},
    {"{\"stitch\": 1}", STITCH_E_FORMAT, "'run' is missing"},
    {"{\"run\": []}", STITCH_E_FORMAT, "'stitch' is missing"},
    {"{\"stitch\": 2, \"run\": []}", STITCH_E_UNSUPPORTED,
     "stitch: the launch plan has version 2, this library reads version 1"},
    {"{\"stitch\": \"1\", \"run\": []}", STITCH_E_FORMAT, "stitch: expected an integer, found a string"},
    {"{\"stitch\": 1, \"run\": [], \"bufers\": {}}", STITCH_E_FORMAT, "unknown key 'bufers'; did you mean 'buffers'?"},
    {"{\"stitch\": 1, \"run\": [], \"run\": []}", STITCH_E_FORMAT, "duplicate"},
    {"{\"stitch\": 1, \"run\": {}}", STITCH_E_FORMAT, "run: expected a list of steps, found an object"},
    {"{\"stitch\": 1, \"run\": [], \"prepare\": null}", STITCH_E_FORMAT,
     "prepare: expected a list of steps, found null"},
    {"{\"stitch\": 1, \"run\": []} x", STITCH_E_FORMAT, "the launch plan, line 1"},
    {"{\"stitch\": 1, \"run\": [], \"let\": []}", STITCH_E_FORMAT, "let: expected an object, found a list"},
    {"{\"stitch\": 1, \"run\": [], \"let\": {\"M\": 1.5}}", STITCH_E_FORMAT,
     "let.M: expected an integer or an expression in a string, found a number"},
    {"{\"stitch\": 1, \"run\": [], \"let\": {\"M\": \"B*\"}}", STITCH_E_FORMAT, "let.M: \"B*\", column 3"},
    {"{\"stitch\": 1, \"run\": [], \"let\": {\"M N\": 1}}", STITCH_E_FORMAT, "let.M N: names have letters"},
    {BUFFER("3"), STITCH_E_FORMAT, "buffers.h: expected an object, found an integer"},
    {BUFFER("{\"shape\": [1]}"), STITCH_E_FORMAT, "buffers.h: 'dtype' is missing"},
    {BUFFER("{\"dtype\": \"f16\"}"), STITCH_E_FORMAT, "buffers.h: 'shape' is missing"},
    {BUFFER("{\"dtype\": \"half\", \"shape\": [1]}"), STITCH_E_FORMAT,
     "buffers.h.dtype: 'half' is not known; there are f64 f32 tf32 f16"},
    {BUFFER("{\"dtype\": \"f16\", \"shape\": []}"), STITCH_E_FORMAT,
     "buffers.h.shape: expected 1 to 8 expressions, found 0"},
    {BUFFER("{\"dtype\": \"f16\", \"shape\": [1,1,1,1,1,1,1,1,1]}"), STITCH_E_FORMAT,
     "buffers.h.shape: expected 1 to 8 expressions, found 9"},
    {BUFFER("{\"dtype\": \"f16\", \"shape\": [true]}"), STITCH_E_FORMAT,
     "buffers.h.shape[0]: expected an integer or an expression in a string, found a boolean"},
    {BUFFER("{\"dtype\": \"f16\", \"shape\": [1], \"keep\": 1}"), STITCH_E_FORMAT,
     "buffers.h.keep: expected true or false"},
    {BUFFER("{\"dtype\": \"f16\", \"shape\": [1], \"size\": 1}"), STITCH_E_FORMAT, "buffers.h: unknown key 'size'"},
    {PLAN("3"), STITCH_E_FORMAT, "run[0]: expected a step, an object; found an integer"},
    {PLAN("{}"), STITCH_E_FORMAT, "run[0]: a step has one of the keys kernel, gemm, conv, copy, fill, repeat, op"},
    {PLAN("{\"kernal\": \"k\"}"), STITCH_E_FORMAT, "run[0]: unknown key 'kernal'; did you mean 'kernel'?"},
    {PLAN("{\"kernel\": \"k\", \"gemm\": {}}"), STITCH_E_FORMAT, "run[0]: one step has both 'kernel' and 'gemm'"},
    {PLAN("{\"kernel\": 7, \"grid\": [1], \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "run[0].kernel: expected a string, found an integer"},
    {PLAN("{\"kernel\": \"k<<<1,2>>>\", \"grid\": [1], \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "is no kernel name"},
    {PLAN("{\"kernel\": \"k<2\", \"grid\": [1], \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "run[0].kernel: \"k<2\" is no kernel name"},
    {PLAN("{\"kernel\": \"k; int x\", \"grid\": [1], \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "is no kernel name"},
    {PLAN("{\"kernel\": \"k\", \"block\": [1], \"args\": []}"), STITCH_E_FORMAT, "run[0]: 'grid' is missing"},
    {PLAN("{\"kernel\": \"k\", \"grid\": 1, \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "run[0].grid: expected a list of 1 to 3 expressions, found an integer"},
    {PLAN("{\"kernel\": \"k\", \"grid\": [1,1,1,1], \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "run[0].grid: expected 1 to 3 expressions, found 4"},
    {PLAN("{\"kernel\": \"k\", \"grid\": [\"M/\"], \"block\": [1], \"args\": []}"), STITCH_E_FORMAT,
     "run[0].grid[0]: \"M/\", column 3"},
    {PLAN("{\"kernel\": \"k\", \"grid\": [1], \"block\": [1]}"), STITCH_E_FORMAT, "run[0]: 'args' is missing"},
    {KERNEL(", \"smem\": 3"), STITCH_E_FORMAT, "run[0]: unknown key 'smem'"},
    {KERNEL(", \"share\": 3"), STITCH_E_FORMAT, "run[0]: unknown key 'share'; did you mean 'shared'?"},
    {KERNEL(", \"shared\": 3.5"), STITCH_E_FORMAT, "run[0].shared: expected an integer"},
    {KERNEL(", \"cooperative\": \"yes\""), STITCH_E_FORMAT,
     "run[0].cooperative: expected true or false, found a string"},
    {KERNEL(", \"cluster\": []"), STITCH_E_FORMAT, "run[0].cluster: expected 1 to 3 expressions, found 0"},
    {KERNEL(", \"id\": 3"), STITCH_E_FORMAT, "run[0].id: expected a string"},
    {KERNEL(", \"id\": \"a b\""), STITCH_E_FORMAT, "run[0].id: \"a b\" is no name"},
    {KERNEL(", \"after\": \"a\""), STITCH_E_FORMAT, "run[0].after: expected a list of at most 256 ids, found a string"},
    {KERNEL(", \"after\": [1]"), STITCH_E_FORMAT, "run[0].after[0]: expected the id of a step, found an integer"},
    {ARG("1"), STITCH_E_FORMAT,
     "run[0].args[0]: expected a pointer \"name + offset\", a scalar {\"i32\": ...} or {\"tensor_map\": {...}}, found "
     "an integer; give its type"},
    {ARG("null"), STITCH_E_FORMAT, "run[0].args[0]: expected a pointer"},
    {ARG("{}"), STITCH_E_FORMAT, "run[0].args[0]: expected a pointer"},
    {ARG("{\"i32\": 1, \"f32\": 1}"), STITCH_E_FORMAT, "run[0].args[0]: expected a pointer"},
    {ARG("{\"int\": 1}"), STITCH_E_FORMAT, "run[0].args[0]: unknown type 'int' of a scalar"},
    {ARG("{\"float\": 1}"), STITCH_E_FORMAT, "there are i32 u32 i64 u64 f32 f64 f16 bf16, and tensor_map"},
    {ARG("{\"i32\": 1.5}"), STITCH_E_FORMAT,
     "run[0].args[0].i32: 1.5 has a fraction or an exponent, but the type is an integer"},
    {ARG("{\"i32\": \"C*\"}"), STITCH_E_FORMAT, "run[0].args[0].i32: \"C*\", column 3"},
    {ARG("{\"f32\": \"1.0/C\"}"), STITCH_E_FORMAT, "run[0].args[0].f32: \"1.0/C\", column 2: expressions are integers"},
    {ARG("{\"f32\": true}"), STITCH_E_FORMAT,
     "run[0].args[0].f32: expected an integer or an expression in a string, found a boolean"},
    {ARG("\"x - 3\""), STITCH_E_FORMAT, "run[0].args[0]: \"x - 3\": expected '+' and an offset after the name"},
    {ARG("\"x +\""), STITCH_E_FORMAT, "run[0].args[0]: offset \"\", column 1"},
    {ARG("\"&x\""), STITCH_E_FORMAT, "run[0].args[0]: \"&x\": expected \"name\" or \"name + offset\""},
    {ARG("\"x[3]\""), STITCH_E_FORMAT, "run[0].args[0]: \"x[3]\""},
    {ARG("\"\""), STITCH_E_FORMAT, "run[0].args[0]: \"\""},
    {ARG("{\"tensor_map\": {\"buffer\": \"a\", \"shape\": [1]}}"), STITCH_E_FORMAT,
     "run[0].args[0].tensor_map: 'box' is missing"},
    {ARG("{\"tensor_map\": {\"buffer\": \"a\", \"shape\": [1, 1], \"box\": [1]}}"), STITCH_E_FORMAT,
     "run[0].args[0].tensor_map.box: 1 extents, but shape has 2"},
    {ARG("{\"tensor_map\": {\"buffer\": \"a\", \"shape\": [1, 1, 1], \"box\": [1, 1, 1], \"strides\": [1]}}"),
     STITCH_E_FORMAT, "run[0].args[0].tensor_map.strides: 1 strides, but shape has 3 extents"},
    {ARG("{\"tensor_map\": {\"buffer\": \"a\", \"shape\": [1], \"box\": [1], \"swizzle\": \"16B\"}}"), STITCH_E_FORMAT,
     "run[0].args[0].tensor_map.swizzle: '16B' is not known; there are none, 32B, 64B, 128B"},
    {PLAN("{\"gemm\": {\"a\": \"a\", \"b\": \"b\", \"c\": \"c\", \"n\": 1, \"k\": 1}}"), STITCH_E_FORMAT,
     "run[0].gemm: 'm' is missing"},
    {GEMM(", \"transb\": true"), STITCH_E_FORMAT, "run[0].gemm: unknown key 'transb'; did you mean 'trans_b'?"},
    {GEMM(", \"epilogue\": \"silu\""), STITCH_E_FORMAT,
     "run[0].gemm.epilogue: 'silu' is not known; there are none, relu, gelu"},
    {GEMM(", \"compute\": \"bf16\""), STITCH_E_FORMAT,
     "run[0].gemm.compute: 'bf16' is not known; there are f32, tf32, f16, f64"},
    {GEMM(", \"alpha\": \"x\""), STITCH_E_FORMAT, "run[0].gemm.alpha: expected a number, found a string"},
    {GEMM(", \"d\": \"r\""), STITCH_E_FORMAT, "run[0].gemm: 'd' is given but beta is 0"},
    {GEMM(", \"ldd\": 4"), STITCH_E_FORMAT, "run[0].gemm: 'ldd' is given without 'd'"},
    {GEMM(", \"stride_a\": 4"), STITCH_E_FORMAT, "run[0].gemm: strides are given without 'batch'"},
    {GEMM(", \"m\": 4"), STITCH_E_FORMAT, "duplicate"},
    {PLAN("{\"gemm\": []}"), STITCH_E_FORMAT, "run[0].gemm: expected an object, found a list"},
    {PLAN("{\"gemm\": {}, \"grid\": [1]}"), STITCH_E_FORMAT, "run[0]: unknown key 'grid'"},
    {PLAN("{\"copy\": {\"from\": \"a\"}}"), STITCH_E_FORMAT, "run[0].copy: 'to' is missing"},
    {PLAN("{\"copy\": {\"src\": \"a\", \"to\": \"b\"}}"), STITCH_E_FORMAT, "run[0].copy: unknown key 'src'"},
    {PLAN("{\"fill\": {\"buffer\": \"a\", \"value\": \"0\"}}"), STITCH_E_FORMAT,
     "run[0].fill.value: expected a number, found a string"},
    {PLAN("{\"repeat\": {\"count\": 2, \"steps\": []}}"), STITCH_E_FORMAT, "run[0].repeat: 'var' is missing"},
    {PLAN("{\"repeat\": {\"var\": \"t\", \"count\": 2, \"steps\": [{\"fill\": {\"buffer\": \"a\"}}]}}"),
     STITCH_E_FORMAT, "run[0].repeat.steps[0].fill: 'value' is missing"},
    {PLAN("{\"op\": {\"name\": \"a b\", \"args\": []}}"), STITCH_E_FORMAT,
     "run[0].op.name: \"a b\" is no name of an operator"},
    {PLAN("{\"op\": {\"name\": \"f\", \"args\": [], \"attrs\": []}}"), STITCH_E_FORMAT,
     "run[0].op.attrs: expected an object, found a list"},
    {PLAN("{\"op\": {\"name\": \"f\", \"args\": [{\"tensor_map\": {\"buffer\": \"a\", \"shape\": [1], \"box\": "
          "[1]}}]}}"),
     STITCH_E_FORMAT, "run[0].op.args[0]: operators take pointers and scalars, no tensor maps"},
    {PLAN("{\"conv\": {\"x\": \"x\", \"w\": \"w\"}}"), STITCH_E_FORMAT, "run[0].conv: 'y' is missing"},
    {PLAN("{\"conv\": {\"x\": \"x\", \"w\": \"w\", \"y\": \"y\", \"strid\": [1]}}"), STITCH_E_FORMAT,
     "run[0].conv: unknown key 'strid'; did you mean 'stride'?"},
    {PLAN("{\"conv\": {\"x\": \"x\", \"w\": \"w\", \"y\": \"y\", \"bias\": \"b\", \"stride\": [1,1], \"pad\": [1,1], "
          "\"dilation\": [1,1], \"groups\": 1, \"layout\": \"nchw\", "
          "\"epilogue\": \"relu\", \"compute\": \"tf32\", \"transposed\": true}}"),
     STITCH_E_UNSUPPORTED, "run[0].conv: conv needs cuDNN: not in this version"},
};

TEST(mistakes)
{
    stitch_context *ctx = new_context();
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        stitch_program *p;
        stitch_error *err = NULL;
        int rc = stitch_program_parse(ctx, "", bad[i].json, NULL, &p, &err);
        if (rc != bad[i].code || !strstr(stitch_error_message(err), bad[i].part) || p)
            FAIL("%s:\n# %s \"%s\"\n# expected \"%s\"", bad[i].json, stitch_status_name(rc), stitch_error_message(err),
                 bad[i].part);
        CHECK_INT(stitch_error_code(err), rc);
        stitch_error_free(err);
    }
    stitch_context_free(ctx);
}

/* A plan with `count` times a step. */
static char *many(const char *head, const char *step, size_t count, const char *tail)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, head);
    for (size_t i = 0; i < count; i++)
        stitch__buf_printf(&b, "%s%s", i && head[strlen(head) - 1] == '[' ? "," : "", step);
    stitch__buf_puts(&b, tail);
    return stitch__buf_take(&b, NULL);
}

TEST(limits)
{
    stitch_context *ctx = new_context();
    stitch_program *p;
    stitch_error *err = NULL;
    stitch_program_limits l = STITCH_PROGRAM_LIMITS_INIT;
    l.steps = 10;
    l.json_bytes = 100000;
    l.source_bytes = 10;
    char *ten = many("{\"stitch\": 1, \"run\": [", "{\"fill\": {\"buffer\": \"y\", \"value\": 0}}", 10, "]}");
    char *eleven = many("{\"stitch\": 1, \"run\": [", "{\"fill\": {\"buffer\": \"y\", \"value\": 0}}", 11, "]}");
    char *nested =
        many("{\"stitch\": 1, \"run\": ", "[{\"repeat\": {\"var\": \"t\", \"count\": 1, \"steps\": ", 30, "");
    char *large = many("{\"stitch\": 1, \"run\": []}", " ", 200000, "");
    CHECK_OK(stitch_program_parse(ctx, "0123456789", ten, &l, &p, &err));
    stitch_program_free(p);
    CHECK_ERR(stitch_program_parse(ctx, "", eleven, &l, &p, &err), STITCH_E_LIMIT,
              "the launch plan has more than 10 steps");
    CHECK_ERR(stitch_program_parse(ctx, "", nested, &l, &p, &err), STITCH_E_LIMIT, "nested deeper");
    CHECK_ERR(stitch_program_parse(ctx, "", large, &l, &p, &err), STITCH_E_LIMIT, "the limit is 100000");
    CHECK_ERR(stitch_program_parse(ctx, "01234567890", ten, &l, &p, &err), STITCH_E_LIMIT,
              "the source has 11 bytes, the limit is 10");
    CHECK_ERR(stitch_program_parse(ctx, "\xff", ten, &l, &p, &err), STITCH_E_FORMAT, "the source is not valid UTF-8");
    CHECK_ERR(stitch_program_parse(ctx, NULL, ten, NULL, &p, &err), STITCH_E_INVALID, "must not be NULL");
    CHECK_ERR(stitch_program_parse(ctx, "", ten, NULL, NULL, &err), STITCH_E_INVALID, "out must not be NULL");
    l.struct_size = 3;
    CHECK_ERR(stitch_program_parse(ctx, "", ten, &l, &p, &err), STITCH_E_INVALID, "struct_size is 3");
    CHECK_INT(stitch_program_limits_init(&l, sizeof(l)), STITCH_OK);
    CHECK_INT(l.struct_size, sizeof(l));
    stitch_free(ten);
    stitch_free(eleven);
    stitch_free(nested);
    stitch_free(large);
    stitch_context_free(ctx);
}

TEST(hash_covers_both_parts)
{
    static const char *const json[] = {PLAN(""), PLAN("{\"fill\": {\"buffer\": \"y\", \"value\": 0}}")};
    stitch_context *ctx = new_context();
    stitch_error *err = NULL;
    stitch_program *p[3];
    CHECK_OK(stitch_program_parse(ctx, "a", json[0], NULL, &p[0], &err));
    CHECK_OK(stitch_program_parse(ctx, "b", json[0], NULL, &p[1], &err));
    CHECK_OK(stitch_program_parse(ctx, "a", json[1], NULL, &p[2], &err));
    CHECK(strcmp(stitch_program_hash(p[0]), stitch_program_hash(p[1])) != 0);
    CHECK(strcmp(stitch_program_hash(p[0]), stitch_program_hash(p[2])) != 0);
    CHECK_STR(stitch_program_source(p[1]), "b");
    for (int i = 0; i < 3; i++)
        stitch_program_free(p[i]);
    stitch_context_free(ctx);
}

/* Every key that the JSON Schema in docs/ has is one that the parser knows. */
static void check_keys(stitch_context *ctx, const json_t *object, const char *kind)
{
    const char *key;
    json_t *value;
    CHECK(json_object_size(json_object_get(object, "properties")) > 0);
    json_object_foreach(json_object_get(object, "properties"), key, value)
    {
        char text[256];
        stitch_program *p = NULL;
        stitch_error *err = NULL;
        if (!kind)
            snprintf(text, sizeof(text), "{\"%s\": false}", key);
        else if (strcmp(kind, "kernel") == 0)
            snprintf(text, sizeof(text), "{\"stitch\": 1, \"run\": [{%s\"%s\": false}]}",
                     strcmp(key, "kernel") ? "\"kernel\": \"k\", " : "", key);
        else
            snprintf(text, sizeof(text), "{\"stitch\": 1, \"run\": [{\"%s\": {\"%s\": false}}]}", kind, key);
        CHECK(stitch_program_parse(ctx, "", text, NULL, &p, &err) != STITCH_OK);
        if (strstr(stitch_error_message(err), "unknown key"))
            FAIL("%s: %s", text, stitch_error_message(err));
        stitch_error_free(err);
    }
}

TEST(schema_and_parser_agree)
{
    static const char *const kinds[] = {"kernel", "gemm", "conv", "copy", "fill", "repeat", "op"};
    stitch_context *ctx = new_context();
    json_error_t e;
    json_t *schema = json_load_file(STITCH_TEST_DATA "/../../../docs/program.schema.json", 0, &e);
    CHECK(schema);
    check_keys(ctx, schema, NULL);
    const json_t *steps = json_object_get(json_object_get(json_object_get(schema, "$defs"), "step"), "oneOf");
    CHECK_INT(json_array_size(steps), STITCH__COUNT(kinds));
    for (size_t i = 0; i < STITCH__COUNT(kinds); i++) {
        const json_t *step = json_array_get(steps, i),
                     *body = json_object_get(json_object_get(step, "properties"), kinds[i]);
        CHECK(body);
        check_keys(ctx, i ? body : step, kinds[i]);
    }
    json_decref(schema);
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(good), RUN(mistakes), RUN(limits), RUN(hash_covers_both_parts), RUN(schema_and_parser_agree))
