/* SPDX-License-Identifier: MIT
 *
 * Admission: honest tasks are admitted, degenerate ones are not and the reason is the right one, legitimate oddities
 * (constant, sparse, integer, single-element outputs) are not called degenerate.
 */
#include "device.h"
#include "meter.h"
#include "verify/admission.h"

#include <math.h>
#include <unistd.h>

/* ---- tasks whose reference is one kernel ------------------------------------------------------------------------- */

#define TENSOR(name, dtype, shape) "{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":[" shape "]}"
#define TENSOR_OF(name, dtype, shape, dist)                                                                            \
    "{\"name\":\"" name "\",\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"dist\":" dist "}"
#define X_N                   TENSOR("x", "f32", "\"N\"")
#define Y_N                   TENSOR("y", "f32", "\"N\"")
#define TOLERANCE(atol, rtol) ",\"tolerance\":{\"atol\":" #atol ",\"rtol\":" #rtol "}"
#define KERNEL(parameters, body)                                                                                       \
    "__global__ void k(" parameters ", int n)\n{\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"                \
    "    if (i < n) {\n        " body "\n    }\n}\n"
#define XY "const float *x, double *y"

/* `head`: members of the task after name and dims; `args`: of the kernel, which gets N beside them. */
static stitch_task *task_of(const char *dims, const char *head, const char *source, const char *args)
{
    stitch_task *t = NULL;
    json_t *quoted = json_string(source);
    char *text = json_dumps(quoted, JSON_ENCODE_ANY);
    char *document = malloc(strlen(dims) + strlen(head) + strlen(text) + strlen(args) + 400);

    sprintf(document,
            "{\"stitch_task\":1,\"name\":\"t\",\"dims\":{%s},%s,\"reference\":{\"outputs\":\"f64\",\"program\":{"
            "\"source\":{\"text\":%s},\"plan\":{\"stitch\":1,\"run\":[{\"kernel\":\"k\",\"grid\":[\"ceil_div(N, 128)\"]"
            ",\"block\":[128],\"args\":[%s,{\"i32\":\"N\"}]}]}}}}",
            dims, head, text, args);
    CHECK_OK(stitch_task_parse(ctx, document, NULL, &t, &err));
    free(document);
    free(text);
    json_decref(quoted);
    return t;
}

static stitch_admission *admitted; /* the last one */
static json_t *result;             /* its JSON */

static void forget(void)
{
    stitch_admission_free(admitted);
    admitted = NULL;
    json_decref(result);
    result = NULL;
}

static void admit_with(stitch_task *t, const stitch_admit_options *o)
{
    forget();
    CHECK_OK(stitch_task_admit(ctx, t, o, &admitted, &err));
    result = json_loads(stitch_admission_json(admitted), 0, NULL);
    CHECK(json_is_object(result));
}

/* Admits and frees the task. */
static void admit(stitch_task *t)
{
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    o.seed = 7;
    admit_with(t, &o);
    stitch_task_free(t);
}

static const json_t *named(const char *list, const char *key, const char *name)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(result, list), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, key)), name) == 0)
            return row;
    }
    return NULL;
}

/* An answer to an output; NULL if it was not tried. */
static const json_t *answer(const char *output, const char *name)
{
    const json_t *row, *o = named("outputs", "name", output);
    size_t i;
    json_array_foreach(json_object_get(o, "answers"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "answer")), name) == 0)
            return row;
    }
    return NULL;
}

static double right(const char *output, const char *name)
{
    const json_t *row = answer(output, name);
    if (!row)
        FAIL("answer %s was not tried for %s", name, output);
    return json_number_value(json_object_get(row, "share_right"));
}

static const char *warnings(void)
{
    static char text[4096];
    const json_t *row;
    size_t i;
    text[0] = 0;
    json_array_foreach(json_object_get(result, "warnings"), i, row)
    {
        strncat(text, json_string_value(row), sizeof(text) - strlen(text) - 2);
        strcat(text, "\n");
    }
    return text;
}

#define CHECK_ADMITTED()                                                                                               \
    do {                                                                                                               \
        if (stitch_admission_degenerate(admitted))                                                                     \
            FAIL("called degenerate:\n%s", stitch_admission_text(admitted));                                           \
        CHECK_STR(stitch_admission_reason(admitted), "");                                                              \
        CHECK_STR(stitch_admission_cure(admitted), "");                                                                \
        CHECK_STR(json_string_value(json_object_get(result, "verdict")), "admitted");                                  \
    } while (0)
#define CHECK_DEGENERATE(why, how)                                                                                     \
    do {                                                                                                               \
        if (!stitch_admission_degenerate(admitted))                                                                    \
            FAIL("not called degenerate:\n%s", stitch_admission_text(admitted));                                       \
        CHECK_HAS(stitch_admission_reason(admitted), why);                                                             \
        CHECK_HAS(stitch_admission_cure(admitted), how);                                                               \
        CHECK_STR(json_string_value(json_object_get(result, "verdict")), "degenerate");                                \
        CHECK_HAS(stitch_admission_text(admitted), "DEGENERATE: ");                                                    \
    } while (0)

/* ---- honest tasks ------------------------------------------------------------------------------------------------ */

TEST(honest)
{
    need_device();
    admit(task_of(
        "\"N\":4099",
        "\"inputs\":[" X_N
        "],\"weights\":[" TENSOR("a", "f32", "\"N\"") "," TENSOR("b", "f32", "\"N\"") "],"
                                                                                      "\"outputs\":[" Y_N "]",
        KERNEL("const float *x, const float *a, const float *b, double *y", "y[i] = (double)a[i] * x[i] + b[i];"),
        "\"x\",\"a\",\"b\",\"y\""));
    CHECK_ADMITTED();
    CHECK_STR(warnings(), "");
    CHECK(right("y", "zeros") < 0.01);
    CHECK(right("y", "the mean of another draw") < 0.01);
    CHECK(right("y", "the output of another draw") < 0.02);
    CHECK(right("y", "the first element of another draw everywhere") < 0.01);
    CHECK(right("y", "the input x") < 0.01);
    CHECK(right("y", "its own elements in reverse order") < 0.01);
    CHECK(right("y", "its own halves swapped") < 0.01);
    CHECK(right("y", "its own elements shifted by one along axis 0") < 0.01);
    /* One row: the mean of each column would be the output itself. */
    CHECK(!answer("y", "the mean of another draw for each index of the last dimension"));
    const json_t *y = named("outputs", "name", "y"), *spread = json_object_get(y, "spread");
    CHECK(json_is_true(json_object_get(json_object_get(y, "repeat"), "bitwise")));
    CHECK(json_number_value(json_object_get(spread, "share_over_factor")) > 0.99);
    CHECK(json_number_value(json_object_get(spread, "mean_over_tolerance")) > 1000);
    CHECK_INT(json_integer_value(json_object_get(result, "runs")), 4 + 1 + 2);
    CHECK_INT(json_integer_value(json_object_get(result, "draws")), 3);
    CHECK_STR(json_string_value(json_object_get(result, "redrawn")), "inputs");
    for (size_t i = 0; i < 3; i++) {
        const json_t *in = json_array_get(json_object_get(result, "inputs"), i);
        CHECK_STR(json_string_value(json_object_get(in, "redrawn")), "alone");
        CHECK(json_is_true(json_object_get(in, "matters")));
        CHECK(json_number_value(json_object_get(json_object_get(in, "share_changed"), "y")) > 0.98);
    }
    CHECK_HAS(stitch_admission_text(admitted), "ADMITTED");
    forget();
}

TEST(the_examples)
{
    static const char *const names[] = {"swiglu_mlp", "lstm_stack", "gpt_block"};
    const char *folder = getenv("STITCH_EXAMPLES");
    char path[4096];
    need_device();
    if (!folder)
        folder = STITCH_EXAMPLES;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        stitch_task *t = NULL;
        stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
        o.max_runs = 4; /* the reference of the last one takes long on a simulator */
        snprintf(path, sizeof(path), "%s/tasks/%s/task.json", folder, names[i]);
        CHECK_OK(stitch_task_load(ctx, path, &t, &err));
        admit_with(t, &o);
        CHECK_ADMITTED();
        CHECK_INT(stitch_task_is_reduced(t), 0);
        CHECK_INT(json_is_true(json_object_get(result, "reduced_dims")), device.simulated);
        CHECK(right("y", "the output of another draw") < 0.05);
        stitch_task_free(t);
    }
    forget();
}

/* ---- degenerate tasks -------------------------------------------------------------------------------------------- */

TEST(zeros_pass_as_softmax)
{
    need_device();
    admit(task_of("\"N\":4,\"C\":4096",
                  "\"inputs\":[" TENSOR("x", "f32", "\"N\",\"C\"") "],\"outputs\":[" TENSOR(
                      "y", "f32", "\"N\",\"C\"") "]" TOLERANCE(2e-2, 1e-4),
                  KERNEL(XY, "double s = 0; for (int c = 0; c < 4096; c++) s += exp((double)x[i * 4096 + c]);\n"
                             "for (int c = 0; c < 4096; c++) y[i * 4096 + c] = exp((double)x[i * 4096 + c]) / s;"),
                  "\"x\",\"y\""));
    CHECK_DEGENERATE("zeros pass as output y (all 16384 elements", "lower atol to 1e-05");
    CHECK(right("y", "zeros") == 1);
    forget();
}

TEST(a_mean_that_hardly_moves)
{
    need_device();
    admit(task_of("\"N\":64,\"C\":1024",
                  "\"inputs\":[" TENSOR("x", "f32", "\"N\",\"C\"") "],\"outputs\":[" Y_N "]" TOLERANCE(0.3, 0),
                  KERNEL(XY, "double s = 0; for (int c = 0; c < 1024; c++) s += x[i * 1024 + c]; y[i] = 1 + s / 1024;"),
                  "\"x\",\"y\""));
    CHECK_DEGENERATE("the mean of another draw passes as output y", "lower atol to 0.001");
    CHECK(right("y", "zeros") == 0);
    CHECK(right("y", "the mean of another draw") == 1);
    forget();
}

/* No cheap answer passes, but a program that is half wrong would. */
TEST(spread_below_ten_tolerances)
{
    need_device();
    admit(task_of("\"N\":3000",
                  "\"inputs\":[" TENSOR_OF("x", "f32", "\"N\"", "{\"uniform\":[-1,1]}") "],\"outputs\":[" Y_N
                                                                                        "]" TOLERANCE(1e-3, 0),
                  KERNEL(XY, "y[i] = 0.004 * x[i];"), "\"x\",\"y\""));
    CHECK_DEGENERATE("no element of output y changes by more than 10 times the tolerance over 3 draws of the inputs",
                     "spreads about");
    CHECK_HAS(stitch_admission_cure(admitted), "lower atol to 0.0001");
    CHECK(right("y", "zeros") > 0.2 && right("y", "zeros") < 0.3);
    forget();
}

TEST(the_input_passes)
{
    need_device();
    admit(task_of("\"N\":2000", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]",
                  KERNEL(XY, "y[i] = x[i] + 1e-6 * sin(3 * (double)x[i]);"), "\"x\",\"y\""));
    /* The difference is as small as float32 rounds: no tolerance helps. */
    CHECK_DEGENERATE("the input x passes as output y", "scale what the task adds so that y differs from the input x");
    CHECK(!strstr(stitch_admission_cure(admitted), "atol"));
    admit(task_of("\"N\":2000", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]" TOLERANCE(1e-3, 1e-3),
                  KERNEL(XY, "y[i] = x[i] + 1e-4 * sin(3 * (double)x[i]);"), "\"x\",\"y\""));
    CHECK_DEGENERATE("the input x passes as output y", "lower atol to 1e-06 and rtol to 1e-06, or scale");
    /* A reshape costs nothing either; the dtype may differ. */
    admit(task_of("\"N\":512",
                  "\"inputs\":[" TENSOR_OF("x", "i32", "\"N\",2",
                                           "{\"randint\":[0,100]}") "],\"outputs\":[" TENSOR("y", "f16", "2,\"N\"") "]",
                  KERNEL("const int *x, double *y", "y[2 * i] = x[2 * i]; y[2 * i + 1] = x[2 * i + 1];"),
                  "\"x\",\"y\""));
    CHECK_DEGENERATE("the input x passes as output y", "a copy of the input x");
    forget();
}

TEST(exactly_zero)
{
    need_device();
    admit(task_of("\"N\":1000", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]",
                  KERNEL(XY, "y[i] = x[i] > 1e6f ? x[i] : 0;"), "\"x\",\"y\""));
    CHECK_DEGENERATE("zeros pass as output y (all 1000 elements, the worst at 0 of the tolerance)",
                     "y is exactly zero: draw inputs for which it is not");
    forget();
}

TEST(independent_of_the_inputs)
{
    need_device();
    admit(task_of("\"N\":1000",
                  "\"inputs\":[" X_N "],\"weights\":[" TENSOR("w", "f32", "\"N\"") "],\"outputs\":[" Y_N "]",
                  KERNEL("const float *x, const float *w, double *y", "y[i] = x[i] < 1e9f ? 2 * (double)w[i] : 0;"),
                  "\"x\",\"w\",\"y\""));
    CHECK_DEGENERATE("the output of another draw passes as output y", "y is the same whatever the inputs are");
    CHECK_HAS(warnings(), "input x does not matter");
    CHECK(!strstr(warnings(), "weight w"));
    forget();
}

TEST(constant_argmax)
{
    need_device();
    admit(task_of(
        "\"N\":256",
        "\"inputs\":[" TENSOR_OF("x", "f32", "\"N\",16", "{\"constant\":1}") "],\"outputs\":[" TENSOR("y", "i64",
                                                                                                      "\"N\"") "]",
        KERNEL(
            "const float *x, long long *y",
            "int best = 0; for (int c = 1; c < 16; c++) if (x[i * 16 + c] > x[i * 16 + best]) best = c; y[i] = best;"),
        "\"x\",\"y\""));
    CHECK_DEGENERATE("zeros pass as output y", "y is exactly zero");
    CHECK_INT(json_integer_value(json_object_get(result, "draws")), 1);
    CHECK_STR(json_string_value(json_object_get(result, "redrawn")), "nothing");
    CHECK(json_is_null(json_object_get(named("outputs", "name", "y"), "spread")));
    CHECK_HAS(warnings(), "the same in every draw");
    CHECK_STR(json_string_value(json_object_get(named("inputs", "name", "x"), "redrawn")), "fixed");
    forget();
}

TEST(not_finite)
{
    need_device();
    admit(task_of("\"N\":300", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]",
                  KERNEL(XY, "y[i] = sqrt(-1.0 - x[i] * x[i]);"), "\"x\",\"y\""));
    CHECK_DEGENERATE("every element of every output of the reference is NaN or infinite", "of a magnitude");
    CHECK_INT(json_integer_value(json_object_get(named("outputs", "name", "y"), "nan")), 300);
    /* Half of it: reported, no more. */
    admit(task_of("\"N\":300", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]", KERNEL(XY, "y[i] = sqrt((double)x[i]);"),
                  "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK_HAS(warnings(), "elements of the reference are NaN, 0 are infinite");
    forget();
}

/* ---- outputs that are odd, but legitimate ------------------------------------------------------------------------ */

TEST(integers_and_booleans)
{
    need_device();
    admit(task_of(
        "\"N\":256", "\"inputs\":[" TENSOR("x", "f32", "\"N\",16") "],\"outputs\":[" TENSOR("y", "i32", "\"N\"") "]",
        KERNEL(
            "const float *x, int *y",
            "int best = 0; for (int c = 1; c < 16; c++) if (x[i * 16 + c] > x[i * 16 + best]) best = c; y[i] = best;"),
        "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK_STR(warnings(), "");
    CHECK(right("y", "zeros") > 0.01 && right("y", "zeros") < 0.2);
    CHECK_NEAR(json_number_value(json_object_get(json_object_get(named("outputs", "name", "y"), "spread"), "factor")),
               1, 0);
    /* Half of the elements agree by chance; ten times this tolerance no boolean can move, but one step is all. */
    admit(task_of("\"N\":500", "\"inputs\":[" X_N "],\"outputs\":[" TENSOR("y", "bool", "\"N\"") "]" TOLERANCE(0.5, 0),
                  KERNEL("const float *x, bool *y", "y[i] = x[i] > 0;"), "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK(right("y", "zeros") > 0.4 && right("y", "zeros") < 0.6);
    /* Sparse: nearly all zeros, and a program that only writes zeros is still found. */
    admit(task_of("\"N\":2000", "\"inputs\":[" X_N "],\"outputs\":[" TENSOR("y", "bool", "\"N\"") "]",
                  KERNEL("const float *x, bool *y", "y[i] = x[i] > 2.7f;"), "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK_HAS(warnings(), "output y: zeros would be wrong in");
    /* Doubles cannot tell these apart. */
    admit(task_of("\"N\":500",
                  "\"inputs\":[" TENSOR_OF("x", "i64", "\"N\"", "{\"randint\":[0,1000]}") "],\"outputs\":[" TENSOR(
                      "y", "i64", "\"N\"") "]" TOLERANCE(0, 0),
                  KERNEL("const long long *x, long long *y", "y[i] = x[i] + 9007199254740993ll;"), "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK(right("y", "the output of another draw") < 0.05);
    CHECK(right("y", "the input x") == 0);
    forget();
}

TEST(one_value_for_all)
{
    need_device();
    /* A sum, everywhere: one element is as good as another, but none is cheap. */
    admit(task_of("\"N\":256", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]",
                  KERNEL(XY, "double s = 0; for (int c = 0; c < n; c++) s += x[c]; y[i] = s;"), "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK_HAS(warnings(), "all elements of a draw are the same within the tolerance; their order is not tested");
    CHECK(right("y", "its own first element everywhere") == 1);
    CHECK(!answer("y", "its own elements in reverse order"));
    /* A single one, whose mean and first element are itself. */
    admit(task_of("\"N\":1", "\"inputs\":[" TENSOR("x", "f32", "300") "],\"outputs\":[" TENSOR("y", "f32", "") "]",
                  KERNEL(XY, "double s = 0; for (int c = 0; c < 300; c++) s += x[c]; y[i] = s;"), "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK_STR(warnings(), "");
    CHECK(!answer("y", "its own mean"));
    CHECK(right("y", "the mean of another draw") == 0);
    /* The same in every row. */
    admit(task_of("\"N\":64",
                  "\"inputs\":[" TENSOR("x", "f32", "32") "],\"outputs\":[" TENSOR("y", "f32", "\"N\",32") "]",
                  KERNEL(XY, "for (int c = 0; c < 32; c++) y[i * 32 + c] = 2 * (double)x[c];"), "\"x\",\"y\""));
    CHECK_ADMITTED();
    CHECK_HAS(warnings(), "its own elements shifted by one along axis 0 would pass");
    CHECK(!strstr(warnings(), "axis 1"));
    CHECK(right("y", "the mean of another draw for each index of the last dimension") < 0.1);
    forget();
}

/* Single flags and classes are the same in two draws every other time; that must not pass for degenerate, and a flag
 * that never changes must. */
TEST(chance)
{
    static const char head[] = "\"inputs\":[" TENSOR("x", "f32", "300") "," TENSOR(
        "z", "f32", "300") "],\"outputs\":[" TENSOR("y", "bool", "\"N\"") "]";
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    need_device();
    stitch_task *t = task_of("\"N\":1", head,
                             KERNEL("const float *x, const float *z, bool *y",
                                    "float s = 0; for (int c = 0; c < 300; c++) s += x[c] + z[c]; y[i] = s > 0;"),
                             "\"x\",\"z\",\"y\"");
    for (o.seed = 1; o.seed <= 12; o.seed++) {
        admit_with(t, &o);
        CHECK_ADMITTED();
        CHECK(!strstr(warnings(), "does not matter"));
        CHECK(!strstr(warnings(), "output y"));
        CHECK(json_integer_value(json_object_get(result, "runs")) <= 4 + 2 + 32);
    }
    stitch_task_free(t);
    /* One flag in many places is still one flag. */
    t = task_of("\"N\":1000", head,
                KERNEL("const float *x, const float *z, bool *y",
                       "float s = 0; for (int c = 0; c < 300; c++) s += x[c] + z[c]; y[i] = s > 0;"),
                "\"x\",\"z\",\"y\"");
    for (o.seed = 1; o.seed <= 6; o.seed++) {
        admit_with(t, &o);
        CHECK_ADMITTED();
        CHECK(!strstr(warnings(), "does not matter"));
        CHECK_HAS(warnings(), "all elements of a draw are the same");
    }
    stitch_task_free(t);
    admit(task_of("\"N\":1", head, KERNEL("const float *x, const float *z, bool *y", "y[i] = x[0] + z[0] < 1e9f;"),
                  "\"x\",\"z\",\"y\""));
    CHECK_DEGENERATE("the mean of another draw passes as output y", "y is the same whatever the inputs are");
    CHECK_HAS(warnings(), "input x may not matter: drawn again 9 times");
    CHECK_HAS(warnings(), "input z may not matter");
    CHECK_INT(json_integer_value(json_object_get(result, "runs")), 4 + 2 + 32);
    forget();
}

TEST(several_outputs)
{
    static const char two[] = "\"inputs\":[" X_N "],\"outputs\":[" Y_N "," TENSOR("z", "f32", "\"N\"") "]";
    need_device();
    admit(task_of("\"N\":500", two,
                  KERNEL("const float *x, double *y, double *z", "y[i] = 0; z[i] = 3 * (double)x[i];"),
                  "\"x\",\"y\",\"z\""));
    CHECK_ADMITTED();
    CHECK_HAS(warnings(), "output y: zeros pass, so that only the other outputs tell right from wrong");
    /* Each by another answer. */
    admit(task_of("\"N\":500", two, KERNEL("const float *x, double *y, double *z", "y[i] = 0; z[i] = x[i];"),
                  "\"x\",\"y\",\"z\""));
    CHECK_DEGENERATE("zeros pass as output y", "y is exactly zero");
    CHECK_HAS(stitch_admission_reason(admitted), "the input x passes as output z");
    forget();
}

TEST(inputs_that_do_not_matter)
{
    need_device();
    admit(task_of(
        "\"N\":500",
        "\"inputs\":[" X_N "," TENSOR("m", "f32", "\"N\"") "," TENSOR_OF(
            "c", "i32", "\"N\"", "{\"randint\":[3,4]}") "],\"outputs\":[" Y_N "]",
        KERNEL("const float *x, const float *m, const int *c, double *y", "y[i] = c[i] * (double)x[i] + 1e-9 * m[i];"),
        "\"x\",\"m\",\"c\",\"y\""));
    CHECK_ADMITTED();
    CHECK_HAS(warnings(), "input m does not matter");
    CHECK(json_is_true(json_object_get(named("inputs", "name", "x"), "matters")));
    CHECK(json_is_false(json_object_get(named("inputs", "name", "m"), "matters")));
    /* Drawn from one number: nothing can be said of it. */
    CHECK_STR(json_string_value(json_object_get(named("inputs", "name", "c"), "redrawn")), "same contents");
    CHECK(json_is_null(json_object_get(named("inputs", "name", "c"), "matters")));
    CHECK(!strstr(warnings(), "input c"));
    forget();
}

/* More weights than runs: in groups; what a group does not change, none of its members changes. */
TEST(weights_in_groups)
{
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    need_device();
    stitch_task *t = task_of(
        "\"N\":300",
        "\"inputs\":[" X_N "],\"weights\":[" TENSOR("a", "f32", "\"N\"") "," TENSOR("b", "f32", "\"N\"") "," TENSOR(
            "c", "f32", "\"N\"") "," TENSOR("d", "f32", "\"N\"") "],\"outputs\":[" Y_N "]",
        KERNEL("const float *x, const float *a, const float *b, const float *c, const float *d, double *y",
               "y[i] = x[i] + (double)a[i] + (c[i] < 1e9f && b[i] < 1e9f && d[i] < 1e9f ? 0 : 1);"),
        "\"x\",\"a\",\"b\",\"c\",\"d\",\"y\"");
    o.seed = 3;
    o.max_runs = 4 + 1 + 2;
    admit_with(t, &o);
    CHECK_ADMITTED();
    CHECK_INT(json_integer_value(json_object_get(result, "runs")), 7);
    CHECK_STR(json_string_value(json_object_get(named("inputs", "name", "a"), "redrawn")), "with others");
    CHECK(json_is_null(json_object_get(named("inputs", "name", "a"), "matters")));
    CHECK(json_is_null(json_object_get(named("inputs", "name", "b"), "matters")));
    CHECK(json_is_false(json_object_get(named("inputs", "name", "c"), "matters")));
    CHECK(json_is_false(json_object_get(named("inputs", "name", "d"), "matters")));
    o.max_runs = 4;
    admit_with(t, &o);
    CHECK_INT(json_integer_value(json_object_get(result, "runs")), 4);
    CHECK_STR(json_string_value(json_object_get(named("inputs", "name", "x"), "redrawn")), "left out");
    CHECK_HAS(warnings(), "5 inputs or weights were not drawn again");
    o.max_runs = 0;
    admit_with(t, &o);
    CHECK(json_is_true(json_object_get(named("inputs", "name", "a"), "matters")));
    CHECK(json_is_false(json_object_get(named("inputs", "name", "b"), "matters")));
    /* Each evaluation left the others' contents as they were: x alone, a alone. */
    CHECK_NEAR(json_number_value(json_object_get(json_object_get(named("inputs", "name", "x"), "share_changed"), "y")),
               1, 0.02);
    stitch_task_free(t);
    forget();
}

TEST(fixed_inputs_drawn_weights)
{
    need_device();
    admit(task_of("\"N\":400",
                  "\"inputs\":[" TENSOR_OF("x", "f32", "\"N\"", "\"arange\"") "],\"weights\":[" TENSOR(
                      "w", "f32", "\"N\"") "],\"outputs\":[" Y_N "]",
                  KERNEL("const float *x, const float *w, double *y", "y[i] = (x[i] + 1) * (double)w[i];"),
                  "\"x\",\"w\",\"y\""));
    CHECK_ADMITTED();
    CHECK_STR(json_string_value(json_object_get(result, "redrawn")), "weights");
    CHECK(right("y", "the output of another draw") < 0.05);
    forget();
}

/* The first run gives the zeros that the state starts with; what matters shows in the runs after it. */
TEST(states)
{
    need_device();
    stitch_task *t =
        task_of("\"N\":400", "\"inputs\":[" X_N "],\"states\":[" TENSOR("s", "f32", "\"N\"") "],\"outputs\":[" Y_N "]",
                KERNEL("const float *x, float *s, double *y", "y[i] = s[i]; s[i] = 2 * x[i];"), "\"x\",\"s\",\"y\"");
    admit(t);
    CHECK_ADMITTED();
    CHECK_INT(json_integer_value(json_object_get(result, "steps")), 3);
    CHECK(right("y", "zeros") < 0.05);
    CHECK(json_is_true(json_object_get(named("inputs", "name", "x"), "matters")));
    forget();
}

/* ---- references of the host -------------------------------------------------------------------------------------- */

typedef struct callback {
    int calls, fail_at, status;
    bool writes, changes; /* from call to call */
    int64_t sleep_ms;
} callback;

static int run_callback(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    callback *c = userdata;
    stitch__device *dev;

    if (++c->calls == c->fail_at)
        return c->status;
    if (c->sleep_ms)
        stitch__sleep_ms(c->sleep_ms);
    if (!c->writes)
        return 0;
    if (stitch__device_get(ctx, &dev, NULL))
        return STITCH_E_NO_DEVICE;
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].info.role != STITCH_TENSOR_OUTPUT)
            continue;
        if (dev->drv->MemcpyDtoDAsync(tensors[i].ptr, tensors[0].ptr, tensors[i].info.bytes, (CUstream)stream) ||
            (c->changes && dev->drv->MemsetD32Async(tensors[i].ptr, 0x3f800000u + (unsigned)c->calls * 0x10000, 16,
                                                    (CUstream)stream)))
            return STITCH_E_DRIVER;
    }
    return 0;
}

/* y = x by a callback; x is twice as long, so that it is no cheap answer. */
static stitch_task *callback_task_in(stitch_context *in, callback *c)
{
    stitch_task *t = NULL;
    CHECK_OK(stitch_task_parse(in,
                               "{\"stitch_task\":1,\"name\":\"host\",\"dims\":{\"N\":80},\"inputs\":[{\"name\":\"x\","
                               "\"dtype\":\"f32\",\"shape\":[\"2*N\"]}],\"outputs\":[" Y_N "]}",
                               NULL, &t, &err));
    CHECK_OK(stitch_task_set_reference_fn(t, run_callback, c, 0, &err));
    return t;
}

static stitch_task *callback_task(callback *c)
{
    return callback_task_in(ctx, c);
}

TEST(references_that_are_none)
{
    callback good = {.writes = true}, nothing = {0}, unsteady = {.writes = true, .changes = true};
    need_device();
    admit(callback_task(&good));
    CHECK_ADMITTED();
    CHECK_INT(good.calls, 5);
    admit(callback_task(&nothing));
    CHECK_DEGENERATE("the reference leaves 80 of 80 elements of output y as they were", "write every element");
    admit(callback_task(&unsteady));
    CHECK_DEGENERATE("the reference is not deterministic: run twice on the same inputs, 16 of 80 elements of output y",
                     "take out what changes");
    forget();
}

TEST(references_that_fail)
{
    stitch_admission *a = (void *)&a;
    need_device();
    for (int at = 1; at <= 5; at++) {
        callback c = {.writes = true, .fail_at = at, .status = STITCH_E_IO};
        stitch_task *t = callback_task(&c);
        CHECK_ERR(stitch_task_admit(ctx, t, NULL, &a, &err), STITCH_E_IO,
                  "admission of task host: the callback of the reference failed");
        CHECK(a == NULL);
        CHECK_INT(c.calls, at);
        stitch_task_free(t);
    }
    callback odd = {.fail_at = 1, .status = 12345};
    stitch_task *t = callback_task(&odd);
    CHECK_ERR(stitch_task_admit(ctx, t, NULL, &a, &err), STITCH_E_STATE, "returned 12345");
    stitch_task_free(t);
    /* A program that does not compile. */
    t = task_of("\"N\":8", "\"inputs\":[" X_N "],\"outputs\":[" Y_N "]", KERNEL(XY, "y[i] = nonsense;"), "\"x\",\"y\"");
    CHECK_ERR(stitch_task_admit(ctx, t, NULL, &a, &err), STITCH_E_COMPILE, "admission of task t: ");
    stitch_task_free(t);
    /* No reference at all. */
    CHECK_OK(stitch_task_parse(ctx, "{\"stitch_task\":1,\"name\":\"none\",\"dims\":{\"N\":8},\"outputs\":[" Y_N "]}",
                               NULL, &t, &err));
    CHECK_ERR(stitch_task_admit(ctx, t, NULL, &a, &err), STITCH_E_STATE, "has no reference");
    stitch_task_free(t);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

TEST(arguments)
{
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    callback c = {.writes = true};
    stitch_admission *a = NULL;
    stitch_cancel *cancel = NULL;
    need_device();
    stitch_task *t = callback_task(&c);
    CHECK_ERR(stitch_task_admit(NULL, t, NULL, &a, &err), STITCH_E_INVALID, "needs a context");
    CHECK_ERR(stitch_task_admit(ctx, NULL, NULL, &a, &err), STITCH_E_INVALID, "needs a context, a task");
    CHECK_ERR(stitch_task_admit(ctx, t, NULL, NULL, &err), STITCH_E_INVALID, "room for the result");
    o.max_runs = 3;
    CHECK_ERR(stitch_task_admit(ctx, t, &o, &a, &err), STITCH_E_INVALID, "max_runs is 3");
    o.max_runs = -1;
    CHECK_ERR(stitch_task_admit(ctx, t, &o, &a, &err), STITCH_E_INVALID, "max_runs is -1");
    o.max_runs = 0;
    o.spread_factor = NAN;
    CHECK_ERR(stitch_task_admit(ctx, t, &o, &a, &err), STITCH_E_INVALID, "spread_factor");
    CHECK_INT(stitch_admit_options_init(&o, sizeof(o)), STITCH_OK);
    CHECK_INT(o.struct_size, sizeof(o));
    CHECK_OK(stitch_cancel_new(&cancel));
    stitch_cancel_trigger(cancel);
    o.cancel = cancel;
    CHECK_ERR(stitch_task_admit(ctx, t, &o, &a, &err), STITCH_E_CANCELLED, "admission of task host");
    CHECK(a == NULL);
    o.cancel = NULL;
    o.timeout_ms = 20;
    c.sleep_ms = 30;
    c.calls = 0;
    CHECK_ERR(stitch_task_admit(ctx, t, &o, &a, &err), STITCH_E_TIMEOUT, "admission of task host");
    CHECK(a == NULL);
    CHECK(c.calls <= 1);
    stitch_cancel_free(cancel);
    stitch_task_free(t);
    CHECK_INT(stitch_admission_degenerate(NULL), 0);
    CHECK_STR(stitch_admission_json(NULL), "");
    CHECK_STR(stitch_admission_text(NULL), "");
    CHECK_STR(stitch_admission_reason(NULL), "");
    CHECK_STR(stitch_admission_cure(NULL), "");
    stitch_admission_free(NULL);
}

TEST(a_seed_repeats_it)
{
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    callback c = {.writes = true};
    need_device();
    stitch_task *t = callback_task(&c);
    o.seed = 11;
    admit_with(t, &o);
    char *first = strdup(stitch_admission_json(admitted));
    admit_with(t, &o);
    CHECK_STR(stitch_admission_json(admitted), first);
    o.seed = 12;
    admit_with(t, &o);
    CHECK(strcmp(stitch_admission_json(admitted), first) != 0);
    /* Without one, a fresh one each time. */
    o.seed = 0;
    admit_with(t, &o);
    const char *seed = json_string_value(json_object_get(result, "seed"));
    CHECK(seed && strlen(seed) == 18 && strcmp(seed, "0x000000000000000b") != 0);
    free(first);
    stitch_task_free(t);
    forget();
}

/* Verifications of one task share the result, until the task changes. */
TEST(kept_with_the_task)
{
    callback c = {.writes = true};
    const stitch_admission *first = NULL, *a = NULL;
    need_device();
    stitch__verify v = {.ctx = ctx, .task = callback_task(&c), .scope = stitch__scope_make(ctx, NULL, 60000)};
    v.options.seed = 5;
    CHECK_OK(stitch__device_get(ctx, &v.dev, &err));
    CHECK_OK(stitch__device_enter(v.dev, &err));
    CHECK_OK(stitch__admission_get(&v, &first, &err));
    CHECK_INT(c.calls, 5);
    CHECK_INT(stitch_admission_degenerate(first), 0);
    v.options.seed = 6;
    CHECK_OK(stitch__admission_get(&v, &a, &err));
    CHECK(a == first);
    CHECK_INT(c.calls, 5);
    CHECK_OK(stitch_task_set_tolerance(v.task, 100, 0, &err));
    CHECK_OK(stitch__admission_get(&v, &a, &err));
    CHECK_INT(c.calls, 5 + 5 + 2); /* what looks degenerate is asked again */
    CHECK_INT(stitch_admission_degenerate(a), 1);
    CHECK_HAS(stitch_admission_reason(a), "zeros pass");
    CHECK_OK(stitch_task_set_reduced_dim(v.task, "N", 70, &err));
    CHECK_OK(stitch_task_use_reduced(v.task, 1, &err));
    CHECK_OK(stitch__admission_get(&v, &a, &err));
    CHECK_INT(c.calls, 5 + 2 * 7);
    CHECK_HAS(stitch_admission_reason(a), "all 70 elements");
    /* A failure is not kept. */
    CHECK_OK(stitch_task_set_tolerance(v.task, 1e-4, 0, &err));
    c.fail_at = c.calls + 1;
    c.status = STITCH_E_IO;
    CHECK_ERR(stitch__admission_get(&v, &a, &err), STITCH_E_IO, "callback of the reference failed");
    CHECK(a == NULL);
    CHECK_OK(stitch__admission_get(&v, &a, &err));
    CHECK_INT(stitch_admission_degenerate(a), 0);
    stitch__device_leave(v.dev);
    stitch_task_free(v.task);
}

/* ---- no memory --------------------------------------------------------------------------------------------------- */

/* Every allocation of an admission fails in turn: an error, nothing left behind on either side. */
TEST(without_memory)
{
    meter m = {.refuse_at = -1};
    stitch_allocator allocator = STITCH_ALLOCATOR_INIT;
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_admit_options o = STITCH_ADMIT_OPTIONS_INIT;
    stitch_context *own = NULL;
    stitch_admission *a = NULL;
    stitch__device *dev = NULL;
    callback c = {.writes = true};
    size_t free_before = 0, free_after = 0, total = 0;

    need_device();
    allocator.alloc = meter_alloc;
    allocator.realloc = meter_realloc;
    allocator.free = meter_free;
    allocator.userdata = &m;
    options.allocator = &allocator;
    options.device = getenv("STITCH_TEST_DEVICE");
    CHECK_OK(stitch_context_new(&own, &options, &err));
    stitch_task *t = callback_task_in(own, &c);
    o.seed = 4;
    CHECK_OK(stitch_task_admit(own, t, &o, &a, &err)); /* opens and compiles what later calls find */
    stitch_admission_free(a);
    CHECK_OK(stitch__device_get(own, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_INT(dev->drv->MemGetInfo(&free_before, &total), CUDA_SUCCESS);
    int64_t live = m.live, refused = 0;
    int rc = STITCH_E_NOMEM;
    for (int64_t n = 0; rc; n++) {
        m.refuse_at = m.calls + n;
        rc = stitch_task_admit(own, t, &o, &a, &err);
        m.refuse_at = -1;
        if (rc && (rc != STITCH_E_NOMEM || a))
            FAIL("allocation %d: %s: %s", (int)n, stitch_status_name(rc), stitch_error_message(err));
        stitch_error_free(err);
        err = NULL;
        refused += rc != STITCH_OK;
        if (rc && m.live != live)
            FAIL("allocation %d: %d blocks are left", (int)n, (int)(m.live - live));
    }
    CHECK(refused > 30);
    stitch_admission_free(a);
    CHECK_INT(m.live, live);
    CHECK_INT(dev->drv->MemGetInfo(&free_after, &total), CUDA_SUCCESS);
    if (device.simulated) /* a GPU has other users */
        CHECK_INT(free_after, free_before);
    stitch__device_leave(dev);
    stitch_task_free(t);
    stitch_context_free(own);
    CHECK_INT(m.live, 0);
}

TEST_MAIN(RUN(honest), RUN(the_examples), RUN(zeros_pass_as_softmax), RUN(a_mean_that_hardly_moves),
          RUN(spread_below_ten_tolerances), RUN(the_input_passes), RUN(exactly_zero), RUN(independent_of_the_inputs),
          RUN(constant_argmax), RUN(not_finite), RUN(integers_and_booleans), RUN(one_value_for_all), RUN(chance),
          RUN(several_outputs), RUN(inputs_that_do_not_matter), RUN(weights_in_groups), RUN(fixed_inputs_drawn_weights),
          RUN(states), RUN(references_that_are_none), RUN(references_that_fail), RUN(arguments), RUN(a_seed_repeats_it),
          RUN(kept_with_the_task), RUN(without_memory))
