/* SPDX-License-Identifier: MIT
 *
 * The generator's kernel gives the bits of the host's generator, for every dtype and distribution.
 */
#include "device.h"
#include "task/task.h"

static int fetch(stitch__device *dev, const stitch_tensor_info *info, const stitch_dist *dist, double scale,
                 uint64_t seed, uint32_t tensor, void *out)
{
    CUdeviceptr ptr = 0;
    int rc = stitch__device_enter(dev, &err);
    if (rc)
        return rc;
    rc = stitch__mem_alloc(dev, (size_t)info->bytes, info->name, &ptr, &err);
    if (!rc)
        rc = stitch__generate_device(dev, NULL, info, dist, scale, seed, tensor, ptr, &err);
    if (!rc)
        rc = stitch__stream_wait(dev, NULL, NULL, "generating", &err);
    if (!rc)
        rc = stitch__cu_check(dev, dev->drv->MemcpyDtoH(out, ptr, (size_t)info->bytes), &err, "reading");
    stitch__mem_free(dev, ptr);
    stitch__device_leave(dev);
    return rc;
}

static void compare(int dtype, stitch_dist dist, uint64_t elements, double scale)
{
    stitch__device *dev;
    stitch_tensor_info info = STITCH_TENSOR_INFO_INIT;
    char *device_data, *host_data, name[96];
    size_t size = stitch_dtype_size(dtype);

    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    info.name = "x";
    info.dtype = dtype;
    info.rank = 2;
    info.shape[0] = elements % 7 == 0 ? 7 : 1;
    info.shape[1] = (int64_t)elements / info.shape[0];
    info.elements = elements;
    info.bytes = elements * size;
    device_data = calloc(1, info.bytes + 1);
    host_data = calloc(1, info.bytes + 1);
    CHECK_OK(fetch(dev, &info, &dist, scale, 0x123456789abcdef0u, 3, device_data));
    CHECK_OK(stitch__generate_host(ctx, &info, &dist, scale, 0x123456789abcdef0u, 3, 0, elements, host_data, &err));
    stitch__dist_print(&dist, name, sizeof(name));
    for (uint64_t i = 0; i < elements; i++)
        if (memcmp(device_data + i * size, host_data + i * size, size) != 0)
            FAIL("%s, %s: element %llu differs", stitch_dtype_name(dtype), name, (unsigned long long)i);
    free(device_data);
    free(host_data);
}

static const stitch_dist dists[] = {
    {.kind = STITCH_DIST_NORMAL},
    {.kind = STITCH_DIST_NORMAL, .a = 3, .b = 100},
    {.kind = STITCH_DIST_UNIFORM, .a = -2, .b = 5},
    {.kind = STITCH_DIST_CONSTANT, .a = 0.1},
    {.kind = STITCH_DIST_RANDINT, .a = -5, .b = 100},
    {.kind = STITCH_DIST_BERNOULLI, .a = 0.3},
    {.kind = STITCH_DIST_TRIL},
    {.kind = STITCH_DIST_ARANGE, .a = -3, .b = 0.5},
};

TEST(same_bits_as_the_host)
{
    need_device();
    for (int dtype = STITCH_DTYPE_F64; dtype <= STITCH_DTYPE_BOOL; dtype++)
        for (size_t k = 0; k < sizeof(dists) / sizeof(dists[0]); k++)
            compare(dtype, dists[k], 2058, 1);
}

TEST(every_length)
{
    need_device();
    for (uint64_t n = 1; n < 20; n++)
        compare(STITCH_DTYPE_F32, dists[0], n, 1);
    compare(STITCH_DTYPE_F32, dists[0], 1023, 64);
    compare(STITCH_DTYPE_F16, dists[0], 511, 1e6); /* overflows to infinity on both sides */
}

TEST(many_elements)
{
    need_real_device();
    compare(STITCH_DTYPE_F32, dists[0], 7 * 1000003, 1);
    compare(STITCH_DTYPE_BF16, dists[2], 7 * 1000003, 1);
}

TEST(task_tensors)
{
    stitch_task *t = NULL;
    stitch__device *dev;
    CUdeviceptr ptr = 0;
    float data[4] = {1, 2, 3, 4}, got[4] = {0};
    int32_t ints[4];

    need_device();
    CHECK_OK(stitch_task_parse(ctx,
                               "{\"stitch_task\":1,\"name\":\"t\",\"dims\":{\"N\":4},\"inputs\":[{\"name\":\"x\","
                               "\"dtype\":\"f32\",\"shape\":[\"N\"]},"
                               "{\"name\":\"i\",\"dtype\":\"i32\",\"shape\":[\"N\"]}],\"states\":[{\"name\":\"s\","
                               "\"dtype\":\"f32\",\"shape\":[\"N\"]}],"
                               "\"outputs\":[{\"name\":\"y\",\"dtype\":\"f32\",\"shape\":[\"N\"]}]}",
                               NULL, &t, &err));
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    CHECK_OK(stitch__mem_alloc(dev, 16, "x", &ptr, &err));
    CHECK_OK(stitch_task_set_data(t, "x", data, sizeof(data), &err));
    CHECK_OK(stitch__task_fill(t, dev, NULL, 0, 1, NULL, ptr, &err));
    CHECK_OK(stitch__stream_wait(dev, NULL, NULL, "filling", &err));
    CHECK_INT(dev->drv->MemcpyDtoH(got, ptr, 16), 0);
    CHECK(memcmp(got, data, 16) == 0);
    CHECK_OK(stitch__task_fill(t, dev, NULL, 2, 1, NULL, ptr, &err)); /* states start as zeros */
    CHECK_OK(stitch__stream_wait(dev, NULL, NULL, "filling", &err));
    CHECK_INT(dev->drv->MemcpyDtoH(ints, ptr, 16), 0);
    for (int k = 0; k < 4; k++)
        CHECK_INT(ints[k], 0);
    CHECK_ERR(stitch__task_fill(t, dev, NULL, 1, 1, NULL, ptr, &err), STITCH_E_STATE,
              "neither data nor a distribution");
    CHECK_OK(stitch_task_set_dim(t, "N", 2, &err));
    CHECK_ERR(stitch__task_fill(t, dev, NULL, 0, 1, NULL, ptr, &err), STITCH_E_STATE, "8 bytes at these dims");
    stitch__mem_free(dev, ptr);
    stitch__device_leave(dev);
    stitch_task_free(t);
}

TEST_MAIN(RUN(same_bits_as_the_host), RUN(every_length), RUN(many_elements), RUN(task_tensors))
