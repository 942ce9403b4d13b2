/* SPDX-License-Identifier: MIT
 *
 * Expressions: values, errors with their columns, limits; interfaces, whose shapes are expressions.
 */
#include "check.h"
#include "program/program.h"

/* Evaluates `text` with B = 128, T = 512, C = 768, t = 3 (a loop variable), big = 2^62. */
static int evaluate(const char *text, int64_t *out, stitch_error **err)
{
    static const struct {
        const char *name;
        int64_t value;
        int state;
    } known[] = {{"B", 128, STITCH__SYMBOL_FIXED},
                 {"T", 512, STITCH__SYMBOL_FIXED},
                 {"C", 768, STITCH__SYMBOL_FIXED},
                 {"t", 3, STITCH__SYMBOL_LOOP},
                 {"big", INT64_C(1) << 62, STITCH__SYMBOL_FIXED},
                 {"w.x", 7, STITCH__SYMBOL_FIXED}};
    stitch__arena arena = {0};
    stitch__symbols symbols = {.arena = &arena};
    stitch__symbol_value values[64] = {{0}};
    stitch__expr *e;
    for (size_t i = 0; i < STITCH__COUNT(known); i++)
        values[stitch__symbol(&symbols, known[i].name, strlen(known[i].name))] =
            (stitch__symbol_value){known[i].value, known[i].state};
    int rc = stitch__expr_parse(&arena, &symbols, text, strlen(text), &e, err);
    stitch__env env = {NULL, &symbols, values, 1};
    if (rc == STITCH_OK)
        rc = stitch__expr_eval(e, &env, out, err);
    if (rc == STITCH_OK) { /* again, from the memo where there is one */
        int64_t again;
        rc = stitch__expr_eval(e, &env, &again, err);
        if (again != *out)
            rc = STITCH_E_INTERNAL;
    }
    stitch__arena_free(&arena);
    return rc;
}

TEST(values)
{
    static const struct {
        const char *text;
        int64_t want;
    } cases[] = {
        {"7", 7},
        {"  7  ", 7},
        {"-7", -7},
        {"--7", 7},
        {"+-+7", -7},
        {"1 + 2*3", 7},
        {"(1 + 2)*3", 9},
        {"10 - 3 - 2", 5},
        {"100/7/2", 7},
        {"-7/2", -3},
        {"-7 % 4", -3},
        {"7 % -4", 3},
        {"2*-3", -6},
        {"B*T", 65536},
        {"3*C*C", 1769472},
        {"w.x + 1", 8},
        {"ceil_div(B*T, 8)", 8192},
        {"ceil_div(7,2)", 4},
        {"ceil_div(8,2)", 4},
        {"ceil_div(0,2)", 0},
        {"align_up(C + 1, 256)", 1024},
        {"align_up(768, 256)", 768},
        {"min(B, T)", 128},
        {"max ( B , T )", 512},
        {"min(max(t, 5), 4)", 4},
        {"t*C + 1", 2305},
        {"(t + 1) * C", 3072},
        {"B < T", 1},
        {"B <= 128", 1},
        {"B > T", 0},
        {"B >= 129", 0},
        {"B == 128", 1},
        {"B != 128", 0},
        {"(B < T) * 5", 5},
        {"1 + 1 == 2", 1},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775807 - 1", INT64_MIN},
        {"big + (big - 1)", INT64_MAX},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        int64_t got = 0;
        int rc = evaluate(cases[i].text, &got, &err);
        if (rc || got != cases[i].want)
            FAIL("%s: %s %s, got %" PRId64, cases[i].text, stitch_status_name(rc), stitch_error_message(err), got);
    }
}

TEST(errors)
{
    static const struct {
        const char *text;
        int code;
        const char *part;
    } cases[] = {
        {"", STITCH_E_FORMAT, "column 1: it ends where"},
        {"  ", STITCH_E_FORMAT, "column 3: it ends where"},
        {"1 +", STITCH_E_FORMAT, "column 4: it ends where"},
        {"1 + * 2", STITCH_E_FORMAT, "column 5: expected a number, a name or '('"},
        {"(1 + 2", STITCH_E_FORMAT, "column 7: expected ')'"},
        {"1 + 2)", STITCH_E_FORMAT, "column 6: expected an operator or the end"},
        {"B T", STITCH_E_FORMAT, "column 3: expected an operator or the end"},
        {"3C", STITCH_E_FORMAT, "column 2: expected an operator after the number"},
        {"1.5*C", STITCH_E_FORMAT, "column 2: expressions are integers"},
        {"C // 2", STITCH_E_FORMAT, "column 3: use '/'"},
        {"2**3", STITCH_E_FORMAT, "column 2: there is no power operator"},
        {"B = 3", STITCH_E_FORMAT, "column 3: expected '==' or '!='"},
        {"B < T < C", STITCH_E_FORMAT, "column 7: expected an operator or the end"},
        {"min(B)", STITCH_E_FORMAT, "column 6: expected ',': functions take two arguments"},
        {"min(B, T, C)", STITCH_E_FORMAT, "column 9: expected ')': functions take two arguments"},
        {"sqrt(C, 2)", STITCH_E_FORMAT,
         "column 1: there is no such function; there are min, max, ceil_div and align_up"},
        {"B & T", STITCH_E_FORMAT, "column 3: expected an operator or the end"},
        {"99999999999999999999", STITCH_E_FORMAT, "column 1: the number does not fit into 64 bits"},
        {"C/(T - 512)", STITCH_E_VALIDATE, "column 2: division by zero"},
        {"C % 0", STITCH_E_VALIDATE, "column 3: division by zero"},
        {"big * 2", STITCH_E_VALIDATE, "column 5: the result does not fit into 64 bits"},
        {"big + big", STITCH_E_VALIDATE, "column 5: the result does not fit into 64 bits"},
        {"-big - big - 1", STITCH_E_VALIDATE, "column 12: the result does not fit into 64 bits"},
        {"(-9223372036854775807 - 1) / -1", STITCH_E_VALIDATE, "column 28: the result does not fit into 64 bits"},
        {"-(-9223372036854775807 - 1)", STITCH_E_VALIDATE, "column 1: the result does not fit into 64 bits"},
        {"align_up(9223372036854775807, 2)", STITCH_E_VALIDATE, "column 1: the result does not fit into 64 bits"},
        {"ceil_div(-1, 2)", STITCH_E_VALIDATE, "column 1: ceil_div and align_up need arguments that are not negative"},
        {"ceil_div(1, 0)", STITCH_E_VALIDATE, "column 1: division by zero"},
        {"B*TT", STITCH_E_VALIDATE, "column 3: 'TT' is not known here; did you mean 'T'?"},
        {"B*heads", STITCH_E_VALIDATE, "column 3: 'heads' is not known here; known are B, T, C, t, big, w.x"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        int64_t got = 0;
        int rc = evaluate(cases[i].text, &got, &err);
        if (rc != cases[i].code || !strstr(stitch_error_message(err), cases[i].part))
            FAIL("%s: %s \"%s\", expected %s", cases[i].text, stitch_status_name(rc), stitch_error_message(err),
                 cases[i].part);
        stitch_error_free(err);
    }
}

/* A text of `count` times `part`, with `middle` and `count` times `tail` behind it. */
static char *repeated(const char *part, size_t count, const char *middle, const char *tail)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    for (size_t i = 0; i < count; i++)
        stitch__buf_puts(&b, part);
    stitch__buf_puts(&b, middle);
    for (size_t i = 0; i < count; i++)
        stitch__buf_puts(&b, tail);
    return stitch__buf_take(&b, NULL);
}

TEST(limits)
{
    static const struct {
        const char *part, *middle, *tail;
        size_t count;
        int code;
    } cases[] = {
        {"(", "1", ")", 60, STITCH_OK},          {"(", "1", ")", 64, STITCH_E_FORMAT},
        {"(", "1", ")", 500, STITCH_E_FORMAT},   {"1+(", "1", ")", 60, STITCH_OK},
        {"1+(", "1", ")", 200, STITCH_E_FORMAT}, {"-", "1", "", 64, STITCH_OK},
        {"-", "1", "", 65, STITCH_E_FORMAT},     {"+", "1", "", 1000, STITCH_OK},
        {"1+", "1", "", 511, STITCH_OK},         {"1+", "1", "", 512, STITCH_E_LIMIT},
        {"min(1,", "1", ")", 60, STITCH_OK},     {"min(1,", "1", ")", 100, STITCH_E_FORMAT},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch_error *err = NULL;
        int64_t got;
        char *text = repeated(cases[i].part, cases[i].count, cases[i].middle, cases[i].tail);
        int rc = evaluate(text, &got, &err);
        stitch_free(text);
        if (rc != cases[i].code)
            FAIL("case %zu: %s %s", i, stitch_status_name(rc), stitch_error_message(err));
        stitch_error_free(err);
    }
}

TEST(many_names)
{
    stitch__arena arena = {0};
    stitch__symbols s = {.arena = &arena};
    char name[16];
    for (int i = 0; i < 20000; i++) {
        int len = snprintf(name, sizeof(name), "n%d", i % 10000);
        CHECK_INT(stitch__symbol(&s, name, (size_t)len), i % 10000);
    }
    CHECK_INT(s.count, 10000);
    CHECK_INT(stitch__symbol_find(&s, "n9999", 5), 9999);
    CHECK_INT(stitch__symbol_find(&s, "n99999", 6), -1);
    CHECK_INT(stitch__symbol_find(&s, "n99999", 5), 9999);
    stitch__arena_free(&arena);
}

TEST(half_precision)
{
    static const struct {
        double v;
        uint16_t f16, bf16;
    } cases[] = {
        {0.0, 0, 0},
        {-0.0, 0x8000, 0x8000},
        {1.0, 0x3c00, 0x3f80},
        {-2.0, 0xc000, 0xc000},
        {65504.0, 0x7bff, 0x4780},
        {65519.9, 0x7bff, 0x4780},
        {65520.0, 0x7c00, 0x4780},
        {1.0 + 1.0 / 2048, 0x3c00, 0x3f80}, /* ties to even */
        {1.0 + 3.0 / 2048, 0x3c02, 0x3f80},
        {1.0 + 1.0 / 256, 0x3c04, 0x3f80},
        {1.0 + 3.0 / 256, 0x3c0c, 0x3f82},
        {0x1p-14, 0x0400, 0x3880},
        {0x1p-24, 0x0001, 0x3380},
        {0x1p-25, 0x0000, 0x3300},
        {0x1.8p-25, 0x0001, 0x3340},
        {0x1.ff8p-15, 0x03ff, 0x3880},
        {0x1.ffcp-15, 0x0400, 0x3880}, /* tie, to even */
        {0x1.ffep-15, 0x0400, 0x3880}, /* rounds up into the normals */
        {0x1.fffffep127, 0x7c00, 0x7f80},
        {0x1p-133, 0x0000, 0x0001},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        if (stitch__f16_bits(cases[i].v) != cases[i].f16 || stitch__bf16_bits(cases[i].v) != cases[i].bf16)
            FAIL("%a: got %04x %04x, expected %04x %04x", cases[i].v, stitch__f16_bits(cases[i].v),
                 stitch__bf16_bits(cases[i].v), cases[i].f16, cases[i].bf16);
    }
    for (unsigned b = 0; b < 0x7c00; b++)
        CHECK_INT(stitch__f16_bits(stitch__f16_value((uint16_t)b)), b);
}

/* ---- interfaces ---- */

TEST(interface_calls)
{
    stitch_error *err = NULL;
    stitch_context *ctx;
    stitch_interface *i;
    static const char *const shape[] = {"B", "T", "C"}, *const bad[] = {"B +"}, *const unknown[] = {"Q"},
                             *const zero[] = {"B - T"};
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_OK(stitch_interface_new(ctx, &i, &err));
    CHECK_OK(stitch_interface_set_dim(i, "B", 2, &err));
    CHECK_OK(stitch_interface_set_dim(i, "T", 3, &err));
    CHECK_OK(stitch_interface_set_dim(i, "C", 5, &err));
    CHECK_OK(stitch_interface_add_tensor(i, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F16, 3, shape, &err));
    CHECK_OK(stitch_interface_add_tensor(i, STITCH_TENSOR_OUTPUT, "s", STITCH_DTYPE_F32, 0, NULL, &err));
    CHECK_ERR(stitch_interface_add_tensor(i, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F16, 3, shape, &err),
              STITCH_E_INVALID, "already a dim or tensor");
    CHECK_ERR(stitch_interface_add_tensor(i, STITCH_TENSOR_INPUT, "B", STITCH_DTYPE_F16, 3, shape, &err),
              STITCH_E_INVALID, "already a dim or tensor");
    CHECK_ERR(stitch_interface_add_tensor(i, STITCH_TENSOR_INPUT, "1x", STITCH_DTYPE_F16, 3, shape, &err),
              STITCH_E_INVALID, "tensor name '1x'");
    CHECK_ERR(stitch_interface_add_tensor(i, 9, "y", STITCH_DTYPE_F16, 3, shape, &err), STITCH_E_INVALID,
              "role 9 is not known");
    CHECK_ERR(stitch_interface_add_tensor(i, 0, "y", 99, 3, shape, &err), STITCH_E_INVALID, "dtype 99 is not known");
    CHECK_ERR(stitch_interface_add_tensor(i, 0, "y", STITCH_DTYPE_F16, 9, shape, &err), STITCH_E_INVALID, "rank 9");
    CHECK_ERR(stitch_interface_add_tensor(i, 0, "y", STITCH_DTYPE_F16, 1, bad, &err), STITCH_E_FORMAT,
              "tensor y: shape[0]: \"B +\", column 4");
    CHECK_ERR(stitch_interface_add_tensor(i, 0, "y", STITCH_DTYPE_F16, 1, unknown, &err), STITCH_E_INVALID,
              "'Q' is not known");
    CHECK_ERR(stitch_interface_add_tensor(i, 0, "y", STITCH_DTYPE_F16, 1, zero, &err), STITCH_E_INVALID,
              "shape[0] is -1");
    CHECK_ERR(stitch_interface_set_dim(i, "x", 4, &err), STITCH_E_INVALID, "already a dim or tensor");
    CHECK_ERR(stitch_interface_set_dim(i, "B", 0, &err), STITCH_E_INVALID, "dim B is 0");
    CHECK_INT(stitch_interface_tensor_count(i), 2);
    CHECK_INT(stitch_interface_dim_count(i), 3);

    stitch_tensor_info t = STITCH_TENSOR_INFO_INIT;
    CHECK_INT(stitch_interface_tensor(i, 0, &t), STITCH_OK);
    CHECK_INT(t.bytes, 60);
    CHECK_INT(t.elements, 30);
    CHECK_STR(t.shape_expr[2], "C");
    CHECK_OK(stitch_interface_set_dim(i, "B", INT64_MAX, &err)); /* a state in between may make no sense */
    CHECK_INT(stitch_interface_tensor(i, 0, &t), STITCH_E_INVALID);
    CHECK_OK(stitch_interface_set_dim(i, "B", 4, &err));
    CHECK_INT(stitch_interface_tensor(i, 0, &t), STITCH_OK);
    CHECK_INT(t.shape[0], 4);
    CHECK_INT(stitch_interface_tensor(i, 1, &t), STITCH_OK);
    CHECK_INT(t.bytes, 4);
    CHECK_INT(stitch_interface_tensor(i, 2, &t), STITCH_E_NOT_FOUND);

    size_t index;
    const char *name;
    int64_t value;
    CHECK_INT(stitch_interface_find(i, "s", &index), STITCH_OK);
    CHECK_INT(index, 1);
    CHECK_INT(stitch_interface_find(i, "q", &index), STITCH_E_NOT_FOUND);
    CHECK_INT(stitch_interface_dim(i, 1, &name, &value), STITCH_OK);
    CHECK_STR(name, "T");
    CHECK_INT(value, 3);
    CHECK_INT(stitch_interface_dim(i, 3, &name, &value), STITCH_E_NOT_FOUND);

    stitch_interface *copy, *back;
    CHECK_OK(stitch__interface_copy(i, &copy, &err));
    json_t *v = stitch__interface_json(copy);
    CHECK(v);
    CHECK_OK(stitch__interface_parse(ctx, v, NULL, &back, &err));
    json_decref(v);
    CHECK_INT(stitch_interface_tensor(back, 0, &t), STITCH_OK);
    CHECK_STR(t.name, "x");
    CHECK_INT(t.bytes, 120);
    stitch_interface_free(back);
    stitch_interface_free(copy);
    stitch_interface_free(i);
    stitch_interface_free(NULL);
    stitch_context_free(ctx);
}

TEST_MAIN(RUN(values), RUN(errors), RUN(limits), RUN(many_names), RUN(half_precision), RUN(interface_calls))
