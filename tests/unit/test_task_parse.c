/* SPDX-License-Identifier: MIT
 *
 * Task documents and the setters: what is read, and where each error is said to be.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "check.h"
#include "task/task.h"

static stitch_context *ctx;
static stitch_error *err;

__attribute__((destructor)) static void release(void)
{
    stitch_error_free(err);
    stitch_context_free(ctx);
}

static const char good[] =
    "{\"stitch_task\": 1, \"name\": \"t\", \"description\": \"d\", \"source\": \"y = x\", \"dims\": {\"B\": 8, \"C\": "
    "64},"
    "\"reduced_dims\": {\"B\": 2},"
    "\"inputs\": [{\"name\": \"x\", \"dtype\": \"f32\", \"shape\": [\"B\", \"2*C\"], \"dist\": {\"uniform\": [-1, 1]}},"
    "{\"name\": \"idx\", \"dtype\": \"i32\", \"shape\": [\"B\"], \"dist\": {\"randint\": [0, 10]}}],"
    "\"weights\": [{\"name\": \"w.weight\", \"dtype\": \"f16\", \"shape\": [\"C\", 3]}],"
    "\"states\": [{\"name\": \"s\", \"dtype\": \"f32\", \"shape\": [\"B\"]}],"
    "\"outputs\": [{\"name\": \"y\", \"dtype\": \"bf16\", \"shape\": [\"B\", \"C/2\"]}],"
    "\"tolerance\": {\"atol\": 1e-2, \"rtol\": 0.5}, \"precision\": \"tf32\"}";

static void need_context(void)
{
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, NULL, &err));
}

TEST(reads_every_field)
{
    stitch_task *t = NULL;
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    double atol = 0, rtol = 0;

    need_context();
    CHECK_OK(stitch_task_parse(ctx, good, NULL, &t, &err));
    CHECK_STR(stitch_task_name(t), "t");
    CHECK_STR(stitch_task_description(t), "d");
    CHECK_STR(stitch_task_source(t), "y = x");
    stitch_task_tolerance(t, &atol, &rtol);
    CHECK_NEAR(atol, 1e-2, 0);
    CHECK_NEAR(rtol, 0.5, 0);
    CHECK_INT(stitch_task_precision(t), STITCH_PRECISION_TF32);
    CHECK_INT(stitch_interface_tensor_count(stitch_task_interface(t)), 5);
    CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 0, &info), 0);
    CHECK_STR(info.name, "x");
    CHECK_INT(info.shape[1], 128);
    CHECK_INT(t->tensors[0].dist.kind, STITCH_DIST_UNIFORM);
    CHECK_NEAR(t->tensors[0].dist.a, -1, 0);
    CHECK_INT(t->tensors[1].dist.kind, STITCH_DIST_RANDINT);
    CHECK_INT(t->tensors[2].dist.kind, STITCH_DIST_NORMAL); /* the default */
    CHECK_NEAR(t->tensors[2].dist.b, 1, 0);
    CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 2, &info), 0);
    CHECK_INT(info.shape[1], 3);
    CHECK_INT(info.role, STITCH_TENSOR_WEIGHT);
    CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 4, &info), 0);
    CHECK_INT(info.role, STITCH_TENSOR_OUTPUT);
    CHECK_INT(info.shape[1], 32);
    stitch_task_free(t);
}

TEST(reduced_dims_change_together)
{
    stitch_task *t = NULL;
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;

    need_context();
    CHECK_OK(stitch_task_parse(
        ctx,
        "{\"stitch_task\":1,\"name\":\"t\",\"dims\":{\"C\":64,\"H\":8},\"reduced_dims\":{\"C\":4,\"H\":2},"
        "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"C/H\"]}]}",
        NULL, &t, &err));
    CHECK_INT(stitch_task_is_reduced(t), 0);
    CHECK_OK(stitch_task_use_reduced(t, 1, &err));
    CHECK_INT(stitch_task_is_reduced(t), 1);
    CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 0, &info), 0);
    CHECK_INT(info.shape[0], 2);
    CHECK_OK(stitch_task_use_reduced(t, 1, &err));
    CHECK_OK(stitch_task_use_reduced(t, 0, &err));
    CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 0, &info), 0);
    CHECK_INT(info.shape[0], 8);
    /* One by one, with a state in between that makes no sense. */
    CHECK_OK(stitch_task_set_dim(t, "C", 5, &err));
    CHECK_OK(stitch_task_set_dim(t, "H", 5, &err));
    CHECK_INT(stitch_interface_tensor(stitch_task_interface(t), 0, &info), 0);
    CHECK_INT(info.shape[0], 1);
    CHECK_ERR(stitch_task_set_dim(t, "C", 3, &err), STITCH_E_INVALID, "less than its reduced value 4");
    CHECK_ERR(stitch_task_set_dim(t, "C", 0, &err), STITCH_E_INVALID, "dim C");
    CHECK_ERR(stitch_task_set_reduced_dim(t, "Q", 1, &err), STITCH_E_NOT_FOUND, "Q");
    CHECK_ERR(stitch_task_set_reduced_dim(t, "C", 6, &err), STITCH_E_INVALID, "between 1 and 5");
    stitch_task_free(t);
}

/* The good document with `from` replaced by `to`. */
static char *replaced(const char *from, const char *to)
{
    const char *at = strstr(good, from);
    size_t head = (size_t)(at - good);
    char *out;
    if (!at)
        FAIL("the document has no %s", from);
    out = malloc(strlen(good) + strlen(to) + 1);
    memcpy(out, good, head);
    strcpy(out + head, to);
    strcat(out, at + strlen(from));
    return out;
}

TEST(errors_name_the_place)
{
    static const struct {
        const char *from, *to, *place;
    } rows[] = {
        {"\"stitch_task\": 1", "\"stitch_task\": 2", "stitch_task"},
        {"\"stitch_task\": 1, ", "", "stitch_task"},
        {"\"name\": \"t\"", "\"name\": 3", "name"},
        {"\"name\": \"t\"", "\"name\": \"\"", "name"},
        {"\"description\"", "\"descripton\"", "description"},
        {"\"source\": \"y = x\"", "\"source\": 5", "source"},
        {"\"source\": \"y = x\"", "\"source\": {\"file\": \"x.py\"}", "source.file"},
        {"\"source\": \"y = x\"", "\"source\": {\"fil\": \"x.py\"}", "source"},
        {"\"B\": 8", "\"B\": 0", "dims.B"},
        {"\"B\": 8", "\"B\": 8.5", "dims.B"},
        {"\"B\": 8", "\"B\": \"8\"", "dims.B"},
        {"\"B\": 8", "\"2B\": 8", "dims.2B"},
        {"\"dims\"", "\"dimz\"", "dim"},
        {"{\"B\": 2}", "{\"Q\": 2}", "reduced_dims.Q"},
        {"{\"B\": 2}", "{\"B\": 9}", "reduced_dims.B"},
        {"{\"B\": 2}", "{\"C\": 1}", "reduced_dims"},
        {"\"name\": \"x\"", "\"name\": \"x y\"", "inputs[0]"},
        {"\"name\": \"idx\"", "\"name\": \"x\"", "inputs[1]"},
        {"\"dtype\": \"f32\"", "\"dtype\": \"float\"", "inputs[0].dtype"},
        {"[\"B\", \"2*C\"]", "[\"B\", \"2*Q\"]", "inputs[0]"},
        {"[\"B\", \"2*C\"]", "[\"B\", null]", "inputs[0].shape[1]"},
        {"[\"B\", \"2*C\"]", "[1,1,1,1,1,1,1,1,1]", "inputs[0].shape"},
        {"[\"B\", \"2*C\"]", "\"B\"", "inputs[0].shape"},
        {"[\"B\", \"2*C\"]", "[\"B - 8\"]", "inputs[0]"},
        {"[\"B\", \"2*C\"]", "[9000000000000000000, 9]", "inputs[0]"},
        {"{\"uniform\": [-1, 1]}", "{\"uniform\": [1, 1]}", "inputs[0]"},
        {"{\"uniform\": [-1, 1]}", "{\"uniform\": [1, 2, 3]}", "inputs[0].dist.uniform"},
        {"{\"uniform\": [-1, 1]}", "{\"uniform\": [1, \"2\"]}", "inputs[0].dist.uniform[1]"},
        {"{\"uniform\": [-1, 1]}", "{\"uniform\": 1}", "inputs[0].dist"},
        {"{\"uniform\": [-1, 1]}", "{\"unform\": [0, 1]}", "inputs[0].dist"},
        {"{\"uniform\": [-1, 1]}", "{\"uniform\": [0, 1], \"normal\": [0, 1]}", "inputs[0].dist"},
        {"{\"uniform\": [-1, 1]}", "{\"normal\": [0, 0]}", "inputs[0].dist"},
        {"{\"uniform\": [-1, 1]}", "{\"normal\": [0, -1]}", "inputs[0]"},
        {"{\"uniform\": [-1, 1]}", "{\"bernoulli\": 2}", "inputs[0]"},
        {"{\"uniform\": [-1, 1]}", "7", "inputs[0].dist"},
        {"{\"randint\": [0, 10]}", "{\"randint\": [0, 1.5]}", "inputs[1]"},
        {"{\"randint\": [0, 10]}", "\"tril\"", "inputs[1]"},
        {"{\"name\": \"s\"", "{\"dist\": \"normal\", \"name\": \"s\"", "states[0]"},
        {"\"outputs\": [{\"name\": \"y\", \"dtype\": \"bf16\", \"shape\": [\"B\", \"C/2\"]}]", "\"outputs\": []",
         "outputs"},
        {"\"atol\": 1e-2", "\"atol\": -1", "tolerance"},
        {"\"atol\": 1e-2", "\"atol\": \"x\"", "tolerance.atol"},
        {"\"precision\": \"tf32\"", "\"precision\": \"f64\"", "precision"},
        {"\"precision\": \"tf32\"", "\"flops\": 7", "flops"},
        {"\"precision\": \"tf32\"", "\"flops\": \"\"", "flops"},
        {"\"precision\": \"tf32\"", "\"flops\": \"2*B*Q\"", "flops: "},
        {"\"precision\": \"tf32\"", "\"flops\": \"B - C\"", "flops: \"B - C\" is -56 operations"},
        {"\"precision\": \"tf32\"", "\"flops\": \"9000000000000000000*B\"", "flops: "},
        {"\"precision\": \"tf32\"", "\"flops\": \"B / (C - 64)\"", "flops: "},
        {"\"precision\": \"tf32\"", "\"flops\": \"2*(B\"", "flops: "},
        {"\"precision\": \"tf32\"", "\"reference\": {}", "reference"},
        {"\"precision\": \"tf32\"", "\"reference\": 5", "reference"},
        {"\"precision\": \"tf32\"", "\"reference\": {\"tensors\": \"a\"}", "reference.tensors"},
        {"\"precision\": \"tf32\"", "\"reference\": {\"tensors\": \"a\", \"program\": \"b\"}", "reference"},
        {"\"precision\": \"tf32\"", "\"reference\": {\"program\": \"a\"}", "reference.program"},
        {"\"precision\": \"tf32\"", "\"reference\": {\"program\": \"a\", \"outputs\": \"i32\"}", "reference.outputs"},
        {"\"precision\": \"tf32\"", "\"reference\": {\"program\": {\"source\": 5, \"plan\": {}}}",
         "reference.program.source"},
        {"\"precision\": \"tf32\"", "\"reference\": {\"program\": {\"source\": {\"text\": \"\"}, \"plan\": 5}}",
         "reference.program.plan"},
        {"\"precision\": \"tf32\"",
         "\"reference\": {\"program\": {\"source\": {\"text\": \"\"}, \"plan\": {\"stitch\": 7}}}",
         "reference.program"},
        {"\"precision\": \"tf32\"", "\"baselines\": {}", "baselines"},
        {"\"precision\": \"tf32\"", "\"baselines\": [{\"name\": \"b\"}]", "baselines[0].program"},
        {"\"precision\": \"tf32\"", "\"baselines\": [{\"program\": \"x\"}]", "baselines[0]: 'name'"},
        {"\"precision\": \"tf32\"", "\"baselines\": [{\"name\": \"b\", \"precision\": \"x\", \"program\": \"x\"}]",
         "baselines[0].precision"},
        {"\"precision\": \"tf32\"", "\"weights_file\": \"w\"", "weights_file"},
        {"\"precision\": \"tf32\"}", "\"precision\": \"tf32\"", ""},
        {"\"precision\": \"tf32\"}", "\"precision\": \"tf32\"}}", ""},
        {"\"precision\": \"tf32\"", "\"name\": \"again\"", "name"},
    };
    need_context();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = replaced(rows[i].from, rows[i].to);
        stitch_task *t = (stitch_task *)ctx;
        int rc = stitch_task_parse(ctx, text, NULL, &t, &err);
        if (rc == STITCH_OK)
            FAIL("row %zu (%s) is accepted", i, rows[i].to);
        if (t)
            FAIL("row %zu: *out is not NULL after a failure", i);
        if (!strstr(stitch_error_message(err), rows[i].place))
            FAIL("row %zu: \"%s\" does not name %s", i, stitch_error_message(err), rows[i].place);
        if (strncmp(stitch_error_message(err), "task", 4) != 0)
            FAIL("row %zu: \"%s\" does not name the document", i, stitch_error_message(err));
        stitch_error_free(err);
        err = NULL;
        free(text);
    }
}

TEST(refuses_what_is_no_document)
{
    static const char *const bad[] = {"",
                                      "[]",
                                      "null",
                                      "{}",
                                      "{\"stitch_task\":1}",
                                      "\x80",
                                      "{\"stitch_task\":1e400}",
                                      "nan",
                                      "{\"stitch_task\": NaN}"};
    stitch_task *t = NULL;
    char deep[5000];

    need_context();
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (stitch_task_parse(ctx, bad[i], NULL, &t, &err) == STITCH_OK)
            FAIL("%s is accepted", bad[i]);
    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = 0;
    CHECK(stitch_task_parse(ctx, deep, NULL, &t, &err) != STITCH_OK);
    CHECK(stitch_task_parse(ctx, NULL, NULL, &t, &err) == STITCH_E_INVALID);
    CHECK(stitch_task_parse(NULL, good, NULL, &t, &err) == STITCH_E_INVALID);
    CHECK(stitch_task_load(ctx, "/nonexistent/task.json", &t, &err) != STITCH_OK);
    CHECK_HAS(stitch_error_message(err), "/nonexistent/task.json");
    CHECK(stitch_task_load(ctx, "/", &t, &err) != STITCH_OK);
    stitch_error_free(err);
    err = NULL;
}

TEST(limits_tensors)
{
    stitch__buf b;
    stitch_task *t = NULL;
    char *text;

    need_context();
    stitch__buf_init(&b, ctx);
    stitch__buf_puts(&b, "{\"stitch_task\":1,\"name\":\"t\",\"dims\":{},\"outputs\":[");
    for (int i = 0; i < 5000; i++)
        stitch__buf_printf(&b, "%s{\"name\":\"y%d\",\"dtype\":\"u8\",\"shape\":[]}", i ? "," : "", i);
    stitch__buf_puts(&b, "]}");
    text = stitch__buf_take(&b, NULL);
    CHECK_ERR(stitch_task_parse(ctx, text, NULL, &t, &err), STITCH_E_LIMIT, "outputs[4096]");
    stitch_free(text);
}

/* What a lower bound is made of: an expression over the dims, whatever they are at the time. */
TEST(operations)
{
    stitch_task *t = NULL;
    char *text = replaced("\"precision\": \"tf32\"", "\"precision\": \"tf32\", \"flops\": \"2*B*C\"");

    need_context();
    CHECK_OK(stitch_task_parse(ctx, text, NULL, &t, &err));
    CHECK_STR(t->flops, "2*B*C");
    CHECK_ERR(stitch_task_set_flops(t, "2*B*Q", &err), STITCH_E_VALIDATE, "Q");
    CHECK_ERR(stitch_task_set_flops(t, "B - C", &err), STITCH_E_INVALID, "is -56 operations");
    CHECK_ERR(stitch_task_set_flops(t, "9000000000000000000*B", &err), STITCH_E_VALIDATE, "");
    CHECK_ERR(stitch_task_set_flops(t, NULL, &err), STITCH_E_INVALID, "expression");
    CHECK_ERR(stitch_task_set_flops(NULL, "1", &err), STITCH_E_INVALID, "task");
    CHECK_STR(t->flops, "2*B*C"); /* a refused one changes nothing */
    CHECK_OK(stitch_task_set_flops(t, "0", &err));
    CHECK_STR(t->flops, "0");
    stitch_task_free(t);
    free(text);
}

TEST(setters_refuse)
{
    stitch_task *t = NULL;
    const char *const shape[] = {"N"};
    float data[4] = {0};

    need_context();
    CHECK_ERR(stitch_task_new(ctx, "", &t, &err), STITCH_E_INVALID, "name");
    CHECK_OK(stitch_task_new(ctx, "t", &t, &err));
    CHECK_OK(stitch_task_set_dim(t, "N", 4, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "x", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_ERR(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "z", STITCH_DTYPE_F32, 1, shape,
                                     &(stitch_dist){.kind = 99}, &err),
              STITCH_E_INVALID, "no distribution");
    CHECK_ERR(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "z", STITCH_DTYPE_F32, 1, NULL, NULL, &err),
              STITCH_E_INVALID, "shape");
    CHECK_ERR(stitch_task_add_tensor(t, 17, "z", STITCH_DTYPE_F32, 1, shape, NULL, &err), STITCH_E_INVALID, "z");
    CHECK_ERR(stitch_task_add_tensor(t, STITCH_TENSOR_INPUT, "z", 99, 1, shape, NULL, &err), STITCH_E_INVALID, "z");
    CHECK_ERR(stitch_task_set_data(t, "q", data, 16, &err), STITCH_E_NOT_FOUND, "q");
    CHECK_ERR(stitch_task_set_data(t, "x", data, 12, &err), STITCH_E_INVALID, "16 bytes, got 12");
    CHECK_OK(stitch_task_set_data(t, "x", data, 16, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_ERR(stitch_task_set_data(t, "y", data, 16, &err), STITCH_E_INVALID, "neither input nor weight");
    CHECK_ERR(stitch_task_set_tolerance(t, -1, 0, &err), STITCH_E_INVALID, "atol -1");
    CHECK_ERR(stitch_task_set_tolerance(t, 0, 0.0 / 0.0, &err), STITCH_E_INVALID, "finite");
    CHECK_ERR(stitch_task_set_precision(t, 4, &err), STITCH_E_INVALID, "precision");
    CHECK_ERR(stitch_task_set_text(t, "\xff", NULL, &err), STITCH_E_INVALID, "description");
    CHECK_ERR(stitch_task_use_reduced(t, 1, &err), STITCH_E_STATE, "no reduced dims");
    CHECK_ERR(stitch_task_set_reference_fn(t, NULL, NULL, 0, &err), STITCH_E_INVALID, "function");
    CHECK_ERR(stitch_task_set_reference_program(t, NULL, 0, &err), STITCH_E_INVALID, "program");
    CHECK_ERR(stitch__task_check(t, &err), STITCH_E_STATE, "no reference");
    CHECK_OK(stitch_task_set_reduced_dim(t, "N", 2, &err));
    CHECK_ERR(stitch_task_use_reduced(t, 1, &err), STITCH_E_STATE, "16 bytes of data");
    CHECK_INT(stitch_task_is_reduced(t), 0);
    stitch_task_free(t);
    stitch_task_free(NULL);
}

static int no_reference(stitch_stream stream, const stitch_bound_tensor *tensors, size_t count, void *userdata)
{
    return 0;
}

TEST(reference_is_set_once)
{
    stitch_task *t = NULL;
    const char *name = NULL;
    int precision = 0;

    need_context();
    CHECK_OK(stitch_task_parse(ctx, good, NULL, &t, &err));
    CHECK_ERR(stitch_task_set_reference_fn(t, no_reference, NULL, STITCH_DTYPE_I32, &err), STITCH_E_INVALID,
              "floating");
    CHECK_OK(stitch_task_set_reference_fn(t, no_reference, NULL, STITCH_DTYPE_F64, &err));
    CHECK_ERR(stitch_task_set_reference_fn(t, no_reference, NULL, 0, &err), STITCH_E_STATE, "exactly one");
    CHECK_OK(stitch__task_check(t, &err));
    CHECK_OK(stitch_task_add_baseline_fn(t, "b", STITCH_PRECISION_TF32, no_reference, NULL, &err));
    CHECK_ERR(stitch_task_add_baseline_fn(t, "b", STITCH_PRECISION_TF32, no_reference, NULL, &err), STITCH_E_INVALID,
              "already");
    CHECK_ERR(stitch_task_add_baseline_fn(t, "c", 9, no_reference, NULL, &err), STITCH_E_INVALID, "precision");
    CHECK_INT(stitch_task_baseline_count(t), 1);
    CHECK_INT(stitch_task_baseline(t, 0, &name, &precision), 0);
    CHECK_STR(name, "b");
    CHECK_INT(precision, STITCH_PRECISION_TF32);
    CHECK_INT(stitch_task_baseline(t, 1, &name, &precision), STITCH_E_INVALID);
    stitch_task_free(t);
}

TEST(integers_need_a_distribution)
{
    stitch_task *t = NULL;
    char *text = replaced(", \"dist\": {\"randint\": [0, 10]}", "");

    need_context();
    CHECK_OK(stitch_task_parse(ctx, text, NULL, &t, &err)); /* the host may still set data */
    CHECK_OK(stitch_task_set_reference_fn(t, no_reference, NULL, 0, &err));
    CHECK_ERR(stitch__task_check(t, &err), STITCH_E_STATE, "input idx (i32) has neither data nor a distribution");
    int32_t data[8] = {0};
    CHECK_OK(stitch_task_set_data(t, "idx", data, sizeof(data), &err));
    CHECK_OK(stitch__task_check(t, &err));
    stitch_task_free(t);
    free(text);
}

TEST(hash_covers_everything)
{
    static const struct {
        const char *from, *to;
    } rows[] = {{"\"t\"", "\"u\""},       {"\"d\"", "\"e\""},           {"y = x", "y = z"},
                {"\"B\": 8", "\"B\": 9"}, {"{\"B\": 2}", "{\"B\": 3}"}, {"\"dtype\": \"f32\"", "\"dtype\": \"f16\""},
                {"\"2*C\"", "\"C*2\""},   {"[-1, 1]", "[-1, 2]"},       {"1e-2", "2e-2"},
                {"\"tf32\"", "\"f32\""}};
    stitch_task *t = NULL;
    char first[65], other[65];

    need_context();
    CHECK_OK(stitch_task_parse(ctx, good, NULL, &t, &err));
    CHECK_OK(stitch_task_hash(t, first, &err));
    CHECK_INT(strlen(first), 64);
    CHECK_OK(stitch_task_use_reduced(t, 1, &err));
    CHECK_OK(stitch_task_hash(t, other, &err));
    CHECK_STR(other, first); /* the mode is no part of the task */
    CHECK_OK(stitch_task_set_tolerance(t, 1, 1, &err));
    CHECK_OK(stitch_task_hash(t, other, &err));
    CHECK(strcmp(other, first) != 0);
    stitch_task_free(t);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = replaced(rows[i].from, rows[i].to);
        CHECK_OK(stitch_task_parse(ctx, text, NULL, &t, &err));
        CHECK_OK(stitch_task_hash(t, other, &err));
        if (strcmp(other, first) == 0)
            FAIL("row %zu does not change the hash", i);
        stitch_task_free(t);
        free(text);
    }
}

static char folder[] = "/tmp/stitch-task-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[300];
    FILE *f;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "w");
    CHECK(f != NULL);
    fputs(text, f);
    fclose(f);
}

TEST(files_are_relative_to_the_document)
{
    stitch_task *t = NULL;
    char path[300], *text = replaced("\"source\": \"y = x\"", "\"source\": {\"file\": \"model.py\"}");

    need_context();
    CHECK(mkdtemp(folder) != NULL);
    write_file("model.py", "class Model: pass\n");
    write_file("task.json", text);
    snprintf(path, sizeof(path), "%s/task.json", folder);
    CHECK_OK(stitch_task_load(ctx, path, &t, &err));
    CHECK_STR(stitch_task_source(t), "class Model: pass\n");
    stitch_task_free(t);
    CHECK_OK(stitch_task_parse(ctx, text, folder, &t, &err)); /* a folder as base */
    stitch_task_free(t);
    CHECK_OK(stitch_task_parse(ctx, text, path, &t, &err)); /* a file as base */
    stitch_task_free(t);
    CHECK_ERR(stitch_task_parse(ctx, text, NULL, &t, &err), STITCH_E_FORMAT, "may not name files");
    snprintf(path, sizeof(path), "%s/model.py", folder);
    CHECK(truncate(path, 0) == 0);
    CHECK_OK(stitch_task_parse(ctx, text, folder, &t, &err));
    CHECK_STR(stitch_task_source(t), "");
    stitch_task_free(t);
    unlink(path);
    CHECK(stitch_task_parse(ctx, text, folder, &t, &err) != STITCH_OK);
    CHECK_HAS(stitch_error_message(err), "source.file");
    CHECK_HAS(stitch_error_message(err), "model.py");
    CHECK(mkfifo(path, 0600) == 0); /* must not hang */
    CHECK(stitch_task_parse(ctx, text, folder, &t, &err) != STITCH_OK);
    unlink(path);
    write_file("model.py", "\xff\xfe");
    CHECK(stitch_task_parse(ctx, text, folder, &t, &err) != STITCH_OK);
    CHECK_HAS(stitch_error_message(err), "UTF-8");
    stitch_error_free(err);
    err = NULL;
    unlink(path);
    snprintf(path, sizeof(path), "%s/task.json", folder);
    unlink(path);
    rmdir(folder);
    free(text);
}

/* ---- every allocation fails once --------------------------------------------------------------------------------- */

static long countdown = -1, live;

static void *count_alloc(size_t size, void *userdata)
{
    void *p;
    if (countdown == 0)
        return NULL;
    countdown -= countdown > 0;
    p = malloc(size);
    live += p != NULL;
    return p;
}

static void *count_realloc(void *ptr, size_t size, void *userdata)
{
    if (countdown == 0)
        return NULL;
    countdown -= countdown > 0;
    return realloc(ptr, size);
}

static void count_free(void *ptr, void *userdata)
{
    live--;
    free(ptr);
}

TEST(every_allocation_may_fail)
{
    stitch_allocator allocator = {sizeof(allocator), count_alloc, count_realloc, count_free, NULL};
    stitch_context_options options = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *own = NULL;
    char *text =
        replaced("\"precision\": \"tf32\"",
                 "\"reference\": {\"program\": {\"source\": {\"text\": \"__global__ void k(float *y) {}\"}, \"plan\": "
                 "{\"stitch\": 1, \"run\": [{\"kernel\": \"k\", \"grid\": [1], \"block\": [1], \"args\": [\"y\"]}]}}}");
    long n, before;
    int rc = STITCH_E_NOMEM;

    options.allocator = &allocator;
    CHECK_OK(stitch_context_new(&own, &options, &err));
    before = live;
    for (n = 0; rc != STITCH_OK && n < 100000; n++) {
        stitch_task *t = NULL;
        char hash[65];
        countdown = n;
        rc = stitch_task_parse(own, text, NULL, &t, &err);
        if (rc == STITCH_OK)
            rc = stitch_task_hash(t, hash, &err);
        countdown = -1;
        if (rc != STITCH_OK && rc != STITCH_E_NOMEM)
            FAIL("allocation %ld: %s: %s", n, stitch_status_name(rc), stitch_error_message(err));
        stitch_task_free(t);
        stitch_error_free(err);
        err = NULL;
        if (live != before)
            FAIL("allocation %ld: %ld blocks leaked", n, live - before);
    }
    CHECK_INT(rc, STITCH_OK);
    if (n < 40)
        FAIL("only %ld allocations were made", n);
    stitch_context_free(own);
    CHECK_INT(live, 0);
    free(text);
}

TEST_MAIN(RUN(reads_every_field), RUN(reduced_dims_change_together), RUN(errors_name_the_place),
          RUN(refuses_what_is_no_document), RUN(limits_tensors), RUN(operations), RUN(setters_refuse),
          RUN(reference_is_set_once), RUN(integers_need_a_distribution), RUN(hash_covers_everything),
          RUN(files_are_relative_to_the_document), RUN(every_allocation_may_fail))
