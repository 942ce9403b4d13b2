/* SPDX-License-Identifier: MIT
 *
 * Safetensors files: 8 bytes header length (little endian), a JSON header, then the data of all tensors back to back.
 * Files come from strangers: every length, range and type is checked before anything is believed.
 */
#include "task/task.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_LIMIT (16u << 20) /* some 100,000 tensors; the format allows 100 MB, which no real file needs */

static const struct {
    const char *name;
    int dtype; /* NONE: known to the format, not to this library */
    unsigned bytes;
} dtypes[] = {
    {"F64", STITCH_DTYPE_F64, 8},      {"F32", STITCH_DTYPE_F32, 4},        {"F16", STITCH_DTYPE_F16, 2},
    {"BF16", STITCH_DTYPE_BF16, 2},    {"F8_E4M3", STITCH_DTYPE_F8E4M3, 1}, {"F8_E5M2", STITCH_DTYPE_F8E5M2, 1},
    {"I64", STITCH_DTYPE_I64, 8},      {"I32", STITCH_DTYPE_I32, 4},        {"I16", STITCH_DTYPE_I16, 2},
    {"I8", STITCH_DTYPE_I8, 1},        {"U8", STITCH_DTYPE_U8, 1},          {"BOOL", STITCH_DTYPE_BOOL, 1},
    {"U16", STITCH_DTYPE_NONE, 2},     {"U32", STITCH_DTYPE_NONE, 4},       {"U64", STITCH_DTYPE_NONE, 8},
    {"F8_E8M0", STITCH_DTYPE_NONE, 1},
};

/* ---- header ------------------------------------------------------------------------------------------------------ */

static int parse_shape(const stitch_context *ctx, const json_t *v, const stitch__jpath *at, stitch__st_tensor *t,
                       uint64_t *elements, stitch_error **err)
{
    stitch__jpath shape_at = {at, "shape", 0};
    const json_t *shape = json_object_get(v, "shape");

    if (!json_is_array(shape))
        return stitch__json_err(ctx, &shape_at, err, "must be an array of integers, got %s", stitch__json_type(shape));
    t->rank = json_array_size(shape);
    if (t->rank > STITCH_MAX_RANK)
        return stitch__json_err(ctx, &shape_at, err, "has %zu dimensions, at most %d are supported", t->rank,
                                STITCH_MAX_RANK);
    *elements = 1;
    for (size_t k = 0; k < t->rank; k++) {
        stitch__jpath dim_at = {&shape_at, NULL, k};
        const json_t *dim = json_array_get(shape, k);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return stitch__json_err(ctx, &dim_at, err, "must be an integer of at least 0");
        t->shape[k] = json_integer_value(dim);
        if (__builtin_mul_overflow(*elements, (uint64_t)t->shape[k], elements))
            return stitch__json_err(ctx, &shape_at, err, "the product of the dimensions is too large");
    }
    return STITCH_OK;
}

static int parse_tensor(stitch__safetensors *st, const char *name, const json_t *v, stitch__st_tensor *t,
                        stitch_error **err)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets", NULL};
    const stitch_context *ctx = st->ctx;
    stitch__jpath at = {NULL, name, 0}, dtype_at = {&at, "dtype", 0}, offsets_at = {&at, "data_offsets", 0};
    const char *dtype = NULL;
    const json_t *offsets;
    uint64_t elements = 0, data_bytes = st->file_bytes - st->data_start, begin, end;
    size_t i;
    int rc = stitch__json_keys(ctx, v, &at, keys, err);

    if (!rc)
        rc = stitch__json_string(ctx, v, &at, "dtype", true, &dtype, err);
    if (rc)
        return rc;
    for (i = 0; i < STITCH__COUNT(dtypes) && strcmp(dtypes[i].name, dtype) != 0; i++)
        ;
    if (i == STITCH__COUNT(dtypes))
        return stitch__json_err(ctx, &dtype_at, err, "unknown dtype \"%.40s\"", dtype);
    t->dtype = dtypes[i].dtype;
    rc = parse_shape(ctx, v, &at, t, &elements, err);
    if (rc)
        return rc;
    offsets = json_object_get(v, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return stitch__json_err(ctx, &offsets_at, err, "must be two integers");
    if (json_integer_value(json_array_get(offsets, 0)) < 0 ||
        json_integer_value(json_array_get(offsets, 1)) < json_integer_value(json_array_get(offsets, 0)))
        return stitch__json_err(ctx, &offsets_at, err, "must be [begin, end] with 0 <= begin <= end");
    begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
    end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
    if (end > data_bytes)
        return stitch__json_err(ctx, &offsets_at, err,
                                "ends at %" PRIu64 ", but the file has %" PRIu64 " bytes of data", end, data_bytes);
    if (__builtin_mul_overflow(elements, (uint64_t)dtypes[i].bytes, &elements) || end - begin != elements)
        return stitch__json_err(ctx, &offsets_at, err,
                                "is %" PRIu64 " bytes long, but dtype and shape do not make that many", end - begin);
    t->offset = st->data_start + begin;
    t->bytes = end - begin;
    return STITCH_OK;
}

static int by_offset(const void *a, const void *b)
{
    const stitch__st_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const stitch__st_tensor *)a)->name, ((const stitch__st_tensor *)b)->name);
}

/* The format demands that the data has neither gaps nor overlaps: whatever lies there would be hidden from readers. */
static int check_ranges(stitch__safetensors *st, stitch_error **err)
{
    uint64_t next = st->data_start;
    qsort(st->tensors, st->count, sizeof(*st->tensors), by_offset);
    for (size_t i = 0; i < st->count; i++) {
        const stitch__st_tensor *t = &st->tensors[i];
        stitch__jpath at = {NULL, t->name, 0};
        if (t->offset != next)
            return stitch__json_err(st->ctx, &at, err,
                                    "its data %s (it starts at %" PRIu64 ", the one before ends at %" PRIu64 ")",
                                    t->offset < next ? "overlaps another tensor" : "leaves a gap before it",
                                    t->offset - st->data_start, next - st->data_start);
        next += t->bytes;
    }
    if (next != st->file_bytes)
        return stitch__err(st->ctx, err, STITCH_E_FORMAT, "%" PRIu64 " bytes of data belong to no tensor",
                           st->file_bytes - next);
    qsort(st->tensors, st->count, sizeof(*st->tensors), by_name);
    return STITCH_OK;
}

int stitch__safetensors_parse(stitch__safetensors *st, const char *header, size_t len, stitch_error **err)
{
    json_t *root = NULL;
    const char *name;
    json_t *v;
    size_t count, used = 0, text = 0;
    int rc = stitch__json_parse(st->ctx, header, len, HEADER_LIMIT, "header", &root, err);

    if (rc)
        return rc;
    if (!json_is_object(root)) {
        rc =
            stitch__err(st->ctx, err, STITCH_E_FORMAT, "the header must be an object, got %s", stitch__json_type(root));
        goto out;
    }
    count = json_object_size(root);
    json_object_foreach(root, name, v) text += strlen(name) + 1;
    st->tensors = stitch__calloc(st->ctx, count ? count : 1, sizeof(*st->tensors));
    st->names = stitch__alloc(st->ctx, text ? text : 1);
    if (!st->tensors || !st->names) {
        rc = stitch__err_nomem(st->ctx, err);
        goto out;
    }
    json_object_foreach(root, name, v)
    {
        stitch__st_tensor *t = &st->tensors[st->count];
        if (strcmp(name, "__metadata__") == 0)
            continue;
        size_t size = strlen(name) + 1;
        t->name = memcpy(st->names + used, name, size);
        used += size;
        rc = parse_tensor(st, name, v, t, err);
        if (rc)
            goto out;
        st->count++;
    }
    rc = check_ranges(st, err);
out:
    json_decref(root);
    return rc;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* All `bytes` or an error. */
static int read_at(const stitch_context *ctx, int fd, const char *path, uint64_t offset, void *data, size_t bytes,
                   stitch_error **err)
{
    char *to = data;
    while (bytes) {
        ssize_t got = pread(fd, to, bytes < (1u << 30) ? bytes : (1u << 30), (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return stitch__err_errno(ctx, err, STITCH_E_IO, "cannot read %s", path);
        if (got == 0)
            return stitch__err(ctx, err, STITCH_E_IO, "%s ends early: it was changed since it was opened", path);
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return STITCH_OK;
}

static int read_header(stitch__safetensors *st, stitch_error **err)
{
    uint8_t size[8];
    uint64_t len = 0;
    char *header;
    int rc;

    if (st->file_bytes < 10) /* a length and "{}" */
        return stitch__err(st->ctx, err, STITCH_E_FORMAT, "%" PRIu64 " bytes are too few for a safetensors file",
                           st->file_bytes);
    rc = read_at(st->ctx, st->fd, st->path, 0, size, sizeof(size), err);
    if (rc)
        return rc;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | size[i];
    if (len > st->file_bytes - 8)
        return stitch__err(st->ctx, err, STITCH_E_FORMAT,
                           "its first 8 bytes give a header of %" PRIu64 " bytes, but the file has %" PRIu64
                           ": truncated, or no safetensors file",
                           len, st->file_bytes);
    if (len > HEADER_LIMIT)
        return stitch__err(st->ctx, err, STITCH_E_LIMIT, "its header has %" PRIu64 " bytes, the limit is %u", len,
                           HEADER_LIMIT);
    st->data_start = 8 + len;
    header = stitch__alloc(st->ctx, (size_t)len + 1);
    if (!header)
        return stitch__err_nomem(st->ctx, err);
    rc = read_at(st->ctx, st->fd, st->path, 8, header, (size_t)len, err);
    header[len] = 0;
    if (!rc)
        rc = stitch__safetensors_parse(st, header, (size_t)len, err);
    stitch_free(header);
    return rc;
}

int stitch__safetensors_open(const stitch_context *ctx, const char *path, stitch__safetensors **out, stitch_error **err)
{
    stitch__safetensors *st = stitch__calloc(ctx, 1, sizeof(*st));
    struct stat info;
    int rc = STITCH_OK;

    *out = NULL;
    if (!st)
        return stitch__err_nomem(ctx, err);
    st->ctx = ctx;
    st->fd = -1;
    st->path = stitch__strdup(ctx, path);
    if (!st->path) {
        rc = stitch__err_nomem(ctx, err);
        goto out;
    }
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    st->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (st->fd < 0) {
        rc = stitch__err_errno(ctx, err, errno == ENOENT ? STITCH_E_NOT_FOUND : STITCH_E_IO,
                               "cannot open tensor file %s", path);
        goto out;
    }
    if (fstat(st->fd, &info)) {
        rc = stitch__err_errno(ctx, err, STITCH_E_IO, "cannot examine tensor file %s", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        rc = stitch__err(ctx, err, STITCH_E_FORMAT, "tensor file %s is no regular file", path);
        goto out;
    }
    st->file_bytes = (uint64_t)info.st_size;
    rc = read_header(st, err);
    if (rc)
        stitch__err_prefix(err, "tensor file %s: ", path);
out:
    if (rc)
        stitch__safetensors_close(st);
    else
        *out = st;
    return rc;
}

void stitch__safetensors_close(stitch__safetensors *st)
{
    if (!st)
        return;
    if (st->fd >= 0)
        close(st->fd);
    stitch_free(st->tensors);
    stitch_free(st->names);
    stitch_free(st->path);
    stitch_free(st);
}

int stitch__safetensors_read(const stitch__safetensors *st, const stitch__st_tensor *t, uint64_t offset, void *data,
                             size_t bytes, stitch_error **err)
{
    if (offset > t->bytes || bytes > t->bytes - offset)
        return stitch__err(st->ctx, err, STITCH_E_INVALID, "range outside of tensor %s in %s", t->name, st->path);
    return read_at(st->ctx, st->fd, st->path, t->offset + offset, data, bytes, err);
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

const stitch__st_tensor *stitch__safetensors_find(const stitch__safetensors *st, const char *name)
{
    stitch__st_tensor key = {.name = name};
    return st->count ? bsearch(&key, st->tensors, st->count, sizeof(key), by_name) : NULL;
}

static void print_shape(char *out, size_t size, const int64_t *shape, size_t rank)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (size_t k = 0; k < rank && used < size; k++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, k ? "," : "", shape[k]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

int stitch__safetensors_match(const stitch__safetensors *st, const stitch_tensor_info *info, const char *role,
                              bool any_float, const stitch__st_tensor **out, stitch_error **err)
{
    const stitch__st_tensor *t = stitch__safetensors_find(st, info->name);
    bool same;

    if (out)
        *out = NULL;
    if (!t)
        return stitch__err(st->ctx, err, STITCH_E_NOT_FOUND, "%s %s is not in tensor file %s", role, info->name,
                           st->path);
    same = t->dtype == info->dtype || (t->dtype == STITCH_DTYPE_F32 && info->dtype == STITCH_DTYPE_TF32) ||
           (any_float && stitch__dtype_is_float(t->dtype) && stitch__dtype_is_float(info->dtype));
    if (!same)
        return stitch__err(st->ctx, err, STITCH_E_INVALID, "%s %s has dtype %s, but %s in tensor file %s", role,
                           info->name, stitch_dtype_name(info->dtype),
                           t->dtype ? stitch_dtype_name(t->dtype) : "one that is not supported", st->path);
    if (t->rank != info->rank || memcmp(t->shape, info->shape, t->rank * sizeof(*t->shape)) != 0) {
        char want[200], got[200];
        print_shape(want, sizeof(want), info->shape, info->rank);
        print_shape(got, sizeof(got), t->shape, t->rank);
        return stitch__err(st->ctx, err, STITCH_E_INVALID, "%s %s has shape %s, but %s in tensor file %s", role,
                           info->name, want, got, st->path);
    }
    if (out)
        *out = t;
    return STITCH_OK;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *safetensors_dtype(int dtype)
{
    for (size_t i = 0; i < STITCH__COUNT(dtypes); i++)
        if (dtypes[i].dtype == (dtype == STITCH_DTYPE_TF32 ? STITCH_DTYPE_F32 : dtype) && dtype != STITCH_DTYPE_NONE)
            return dtypes[i].name;
    return NULL;
}

int stitch__safetensors_write(const stitch_context *ctx, const char *path, const stitch_tensor_info *infos,
                              const void *const *data, size_t count, stitch_error **err)
{
    stitch__buf b;
    uint64_t at = 0, len;
    char *all;
    size_t size;
    int rc;

    stitch__buf_init(&b, ctx);
    stitch__buf_append(&b, "\0\0\0\0\0\0\0\0{", 9);
    for (size_t i = 0; i < count; i++) {
        char shape[200];
        const char *dtype = safetensors_dtype(infos[i].dtype);
        if (!dtype || !stitch__name_valid(infos[i].name)) {
            stitch__buf_free(&b);
            return stitch__err(ctx, err, STITCH_E_INVALID, "tensor %zu has no dtype or name that can be written", i);
        }
        print_shape(shape, sizeof(shape), infos[i].shape, infos[i].rank);
        stitch__buf_printf(&b, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                           i ? "," : "", infos[i].name, dtype, shape, at, at + infos[i].bytes);
        at += infos[i].bytes;
    }
    stitch__buf_putc(&b, '}');
    while (!b.failed && b.len % 8)
        stitch__buf_putc(&b, ' ');
    len = b.failed ? 0 : b.len - 8;
    for (size_t i = 0; i < count; i++)
        stitch__buf_append(&b, data[i], (size_t)infos[i].bytes);
    all = stitch__buf_take(&b, &size);
    if (!all)
        return stitch__err_nomem(ctx, err);
    for (int i = 0; i < 8; i++)
        all[i] = (char)(len >> (8 * i));
    rc = stitch__file_write(ctx, path, all, size, err);
    stitch_free(all);
    return rc;
}
