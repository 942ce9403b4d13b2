/* SPDX-License-Identifier: MIT
 *
 * Tensor files: what is read, and that no malformed one is.
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
static char path[64];

static void need_context(void)
{
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    snprintf(path, sizeof(path), "/tmp/stitch-st-%ld.safetensors", (long)getpid());
}

/* A file of header text and `data` bytes of data; len_field UINT64_MAX: the true length. */
static void write_raw(const char *header, size_t header_len, size_t data, uint64_t len_field)
{
    FILE *f = fopen(path, "wb");
    uint64_t len = len_field == UINT64_MAX ? header_len : len_field;
    CHECK(f != NULL);
    for (int i = 0; i < 8; i++)
        fputc((int)(len >> (8 * i) & 255), f);
    fwrite(header, 1, header_len, f);
    for (size_t i = 0; i < data; i++)
        fputc((int)i, f);
    fclose(f);
}

TEST(reads_what_it_writes)
{
    float a[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
    int64_t b[2] = {-1, INT64_MAX}, b_back[2];
    stitch_tensor_info infos[2] = {STITCH_TENSOR_INFO_INIT, STITCH_TENSOR_INFO_INIT};
    const void *data[2] = {a, b};
    stitch__safetensors *st = NULL;
    const stitch__st_tensor *t;

    need_context();
    infos[0].name = "z.weight";
    infos[0].dtype = STITCH_DTYPE_F32;
    infos[0].rank = 2;
    infos[0].shape[0] = 2;
    infos[0].shape[1] = 3;
    infos[0].elements = 6;
    infos[0].bytes = sizeof(a);
    infos[1].name = "a";
    infos[1].dtype = STITCH_DTYPE_I64;
    infos[1].rank = 1;
    infos[1].shape[0] = 2;
    infos[1].elements = 2;
    infos[1].bytes = sizeof(b);
    CHECK_OK(stitch__safetensors_write(ctx, path, infos, data, 2, &err));
    CHECK_OK(stitch__safetensors_open(ctx, path, &st, &err));
    CHECK_INT(st->count, 2);
    CHECK_OK(stitch__safetensors_match(st, &infos[0], "weight", false, &t, &err));
    CHECK_OK(stitch__safetensors_read(st, t, 0, back, sizeof(back), &err));
    CHECK(memcmp(a, back, sizeof(a)) == 0);
    CHECK_OK(stitch__safetensors_read(st, t, 8, back, 4, &err));
    CHECK_NEAR(back[0], 3, 0);
    CHECK_ERR(stitch__safetensors_read(st, t, 8, back, 24, &err), STITCH_E_INVALID, "outside");
    CHECK_OK(stitch__safetensors_match(st, &infos[1], "weight", false, &t, &err));
    CHECK_OK(stitch__safetensors_read(st, t, 0, b_back, sizeof(b_back), &err));
    CHECK(memcmp(b, b_back, sizeof(b)) == 0);
    infos[0].shape[0] = 3;
    CHECK_ERR(stitch__safetensors_match(st, &infos[0], "weight", false, NULL, &err), STITCH_E_INVALID,
              "weight z.weight has shape [3,3], but [2,3]");
    infos[0].shape[0] = 2;
    infos[0].dtype = STITCH_DTYPE_F64;
    CHECK_ERR(stitch__safetensors_match(st, &infos[0], "weight", false, NULL, &err), STITCH_E_INVALID,
              "dtype f64, but f32");
    CHECK_OK(stitch__safetensors_match(st, &infos[0], "output", true, NULL, &err));
    infos[0].name = "none";
    CHECK_ERR(stitch__safetensors_match(st, &infos[0], "weight", false, NULL, &err), STITCH_E_NOT_FOUND, "none");
    /* The file shrinks while it is open: an error, no signal. */
    CHECK(truncate(path, 100) == 0);
    CHECK_ERR(stitch__safetensors_read(st, t, 0, b_back, sizeof(b_back), &err), STITCH_E_IO, "ends early");
    stitch__safetensors_close(st);
    stitch__safetensors_close(NULL);
    unlink(path);
}

TEST(accepts_unusual_files)
{
    static const struct {
        const char *header;
        size_t data, count;
    } rows[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}        ", 0, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[3],"
         "\"data_offsets\":[0,3]}}",
         3, 2},
        {"{\"a\":{\"dtype\":\"U16\",\"shape\":[2],\"data_offsets\":[3,7]},\"b\":{\"dtype\":\"I8\",\"shape\":[3],\"data_"
         "offsets\":[0,3]}}",
         7, 2},
        {"{\"\\u00e9 x\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1},
    };
    need_context();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch__safetensors *st = NULL;
        write_raw(rows[i].header, strlen(rows[i].header), rows[i].data, UINT64_MAX);
        CHECK_OK(stitch__safetensors_open(ctx, path, &st, &err));
        CHECK_INT(st->count, rows[i].count);
        stitch__safetensors_close(st);
    }
    unlink(path);
}

TEST(refuses_malformed_files)
{
    static const struct {
        const char *header;
        size_t data;
        const char *message;
    } rows[] = {
        {"[]", 0, "object"},
        {"nonsense", 0, "header"},
        {"{\"a\":5}", 0, "a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "a.shape"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "F33"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "x"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "a.shape[0]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "a.shape[0]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "a.shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,4]}}", 4, "too large"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}}", 5, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,\"4\"]}}", 4, "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "the file has 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775800,9223372036854775804]}}", 4,
         "a.data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
         "offsets\":[2,5]}}",
         5, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
         "offsets\":[0,3]}}",
         3, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_"
         "offsets\":[4,7]}}",
         7, "gap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[1,4]}}", 4, "gap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 9, "6 bytes of data belong to no tensor"},
        {"{}", 1, "belong to no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_"
         "offsets\":[0,1]}}",
         1, "a"},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "header"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}} trailing", 1, "header"},
    };
    need_context();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        stitch__safetensors *st = (stitch__safetensors *)ctx;
        write_raw(rows[i].header, strlen(rows[i].header), rows[i].data, UINT64_MAX);
        int rc = stitch__safetensors_open(ctx, path, &st, &err);
        if (rc == STITCH_OK || st)
            FAIL("row %zu is accepted: %s", i, rows[i].header);
        if (!strstr(stitch_error_message(err), rows[i].message) || !strstr(stitch_error_message(err), path))
            FAIL("row %zu: \"%s\" does not say %s", i, stitch_error_message(err), rows[i].message);
    }
    stitch_error_free(err);
    err = NULL;
    unlink(path);
}

TEST(refuses_wrong_lengths)
{
    stitch__safetensors *st = NULL;

    need_context();
    write_raw("{}", 2, 0, 3);
    CHECK_ERR(stitch__safetensors_open(ctx, path, &st, &err), STITCH_E_FORMAT, "header of 3 bytes");
    write_raw("{}", 2, 0, UINT64_MAX - 1);
    CHECK_ERR(stitch__safetensors_open(ctx, path, &st, &err), STITCH_E_FORMAT, "truncated");
    write_raw("{}", 2, 0, 0);
    CHECK(stitch__safetensors_open(ctx, path, &st, &err) == STITCH_E_FORMAT);
    write_raw("", 0, 0, 0);
    CHECK_ERR(stitch__safetensors_open(ctx, path, &st, &err), STITCH_E_FORMAT, "too few");
    /* A huge header in a sparse file: refused before it is read. */
    write_raw("{}", 2, 0, 17u << 20);
    CHECK(truncate(path, 64 << 20) == 0);
    CHECK_ERR(stitch__safetensors_open(ctx, path, &st, &err), STITCH_E_LIMIT, "limit");
    /* NUL bytes where the header should be. */
    write_raw("\0\0\0\0", 4, 0, 4);
    CHECK(stitch__safetensors_open(ctx, path, &st, &err) == STITCH_E_FORMAT);
    unlink(path);
    CHECK_ERR(stitch__safetensors_open(ctx, path, &st, &err), STITCH_E_NOT_FOUND, path);
    CHECK_ERR(stitch__safetensors_open(ctx, "/tmp", &st, &err), STITCH_E_FORMAT, "no regular file");
    CHECK_ERR(stitch__safetensors_open(ctx, "/dev/zero", &st, &err), STITCH_E_FORMAT, "no regular file");
    CHECK(mkfifo(path, 0600) == 0);
    CHECK_ERR(stitch__safetensors_open(ctx, path, &st, &err), STITCH_E_FORMAT, "no regular file");
    unlink(path);
}

TEST(every_prefix_is_refused)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":"
                                 "\"I8\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    size_t full = 8 + strlen(header) + 11;

    need_context();
    for (size_t len = 0; len < full; len++) {
        stitch__safetensors *st = NULL;
        write_raw(header, strlen(header), 11, UINT64_MAX);
        CHECK(truncate(path, (off_t)len) == 0);
        if (stitch__safetensors_open(ctx, path, &st, &err) == STITCH_OK)
            FAIL("a file cut to %zu of %zu bytes is accepted", len, full);
    }
    stitch_error_free(err);
    err = NULL;
    unlink(path);
}

TEST(weights_file_of_a_task)
{
    float w[4] = {1, 2, 3, 4};
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    const void *data[1] = {w};
    const char *const shape[] = {"N"};
    stitch_task *t = NULL;
    char before[65], after[65];

    need_context();
    info.name = "w";
    info.dtype = STITCH_DTYPE_F32;
    info.rank = 1;
    info.shape[0] = 4;
    info.elements = 4;
    info.bytes = sizeof(w);
    CHECK_OK(stitch__safetensors_write(ctx, path, &info, data, 1, &err));
    CHECK_OK(stitch_task_new(ctx, "t", &t, &err));
    CHECK_OK(stitch_task_set_dim(t, "N", 4, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_WEIGHT, "w", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_WEIGHT, "v", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_add_tensor(t, STITCH_TENSOR_OUTPUT, "y", STITCH_DTYPE_F32, 1, shape, NULL, &err));
    CHECK_OK(stitch_task_set_weights_file(t, path, &err));
    CHECK_OK(stitch_task_hash(t, before, &err));
    CHECK_ERR(stitch__task_check(t, &err), STITCH_E_NOT_FOUND, "weight v is not in tensor file");
    CHECK_OK(stitch_task_set_data(t, "v", w, sizeof(w), &err));
    CHECK_ERR(stitch__task_check(t, &err), STITCH_E_STATE, "no reference");
    w[0] = 9;
    CHECK_OK(stitch__safetensors_write(ctx, path, &info, data, 1, &err));
    CHECK_OK(stitch_task_set_weights_file(t, path, &err));
    CHECK_OK(stitch_task_hash(t, after, &err));
    CHECK(strcmp(before, after) != 0);
    stitch_task_free(t);
    unlink(path);
}

TEST_MAIN(RUN(reads_what_it_writes), RUN(accepts_unusual_files), RUN(refuses_malformed_files),
          RUN(refuses_wrong_lengths), RUN(every_prefix_is_refused), RUN(weights_file_of_a_task))
