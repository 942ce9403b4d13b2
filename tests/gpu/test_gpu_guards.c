/* SPDX-License-Identifier: MIT
 *
 * Guarded memory: writes around a buffer are seen, those inside are not, and everything is given back.
 */
#include "device.h"

#include "cuda/guards.h"

static stitch__device *dev;

static void need_guards(void)
{
    need_device();
    CHECK_OK(stitch__device_get(ctx, &dev, &err));
    CHECK_OK(stitch__device_enter(dev, &err));
    if (!stitch__guards_enable(dev))
        SKIP("the driver has no virtual memory calls");
}

static CUdeviceptr take(size_t bytes, const char *name)
{
    CUdeviceptr ptr = 0;
    CHECK_OK(stitch__mem_alloc(dev, bytes, name, &ptr, &err));
    return ptr;
}

static void write_byte(CUdeviceptr at)
{
    unsigned char byte = 1;
    CHECK_INT(dev->drv->MemcpyHtoD(at, &byte, 1), CUDA_SUCCESS);
}

static char *look_at(bool whole)
{
    static char text[2000];
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    CHECK_OK(stitch__guards_check(dev, whole, &b, &err));
    snprintf(text, sizeof(text), "%s", b.data ? b.data : "");
    stitch__buf_free(&b);
    return text;
}

static char *look(void)
{
    return look_at(false);
}

TEST(inside_is_fine)
{
    need_guards();
    static const size_t sizes[] = {1, 255, 256, 257, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1};
    for (size_t i = 0; i < STITCH__COUNT(sizes); i++) {
        CUdeviceptr ptr = take(sizes[i], "x");
        CHECK_INT(ptr % 256, 0);
        CHECK_INT(dev->drv->MemsetD8Async(ptr, 0, sizes[i], NULL), CUDA_SUCCESS);
        CHECK_INT(dev->drv->StreamSynchronize(NULL), CUDA_SUCCESS);
        CHECK_STR(look(), "");
        stitch__mem_free(dev, ptr);
    }
    CHECK_STR(look(), "");
}

TEST(writes_around_a_buffer)
{
    need_guards();
    CUdeviceptr x = take(1000, "x"), y = take(1000, "y");
    write_byte(x + 1000);
    CHECK_HAS(look(), "x: 1 bytes behind it were written, the nearest 1 past its end");
    CHECK_STR(look(), ""); /* what is found once is not found again */
    write_byte(x + 1000);
    write_byte(x - 4);
    write_byte(x - 9);
    CHECK_HAS(look(), "x: 2 bytes in front of it were written, the nearest 4 before its start, 1 bytes behind it");
    write_byte(x - 4);
    write_byte(y + 1010);
    CHECK_HAS(look(), "; y: 1 bytes behind it were written, the nearest 11 past its end");
    stitch__mem_free(dev, x);
    stitch__mem_free(dev, y);
    CHECK_STR(look(), "");
}

/* A page is larger than what is always looked at. */
TEST(all_of_a_page_in_front)
{
    need_guards();
    CUdeviceptr x = take(1000, "x");
    CHECK_STR(look_at(true), "");
    write_byte(x - (1 << 20));
    CHECK_STR(look(), "");
    CHECK_HAS(look_at(true), "x: 1 bytes in front of it were written, the nearest 1048576 before its start");
    CHECK_STR(look_at(true), "");
    stitch__mem_free(dev, x);
}

/* For the next program: what the last one left in it and around it is gone. */
TEST(a_buffer_that_serves_again)
{
    unsigned char bytes[1000], nothing[1000] = {0};
    need_guards();
    CUdeviceptr x = take(sizeof(bytes), "x");
    CHECK_INT(dev->drv->MemsetD8Async(x, 0x33, sizeof(bytes), NULL), CUDA_SUCCESS);
    write_byte(x + sizeof(bytes));
    write_byte(x - 1);
    CHECK_OK(stitch__guards_renew(dev, x, "y", &err));
    CHECK_STR(look(), "");
    CHECK_INT(dev->drv->MemcpyDtoH(bytes, x, sizeof(bytes)), CUDA_SUCCESS);
    CHECK(memcmp(bytes, nothing, sizeof(bytes)) == 0);
    write_byte(x + sizeof(bytes));
    CHECK_HAS(look(), "y: 1 bytes behind it were written");
    CHECK_ERR(stitch__guards_renew(dev, x + 256, "z", &err), STITCH_E_INTERNAL, "z is not guarded");
    stitch__mem_free(dev, x);
}

TEST(memory_is_given_back)
{
    size_t free_before = 0, free_after = 0, total = 0;
    need_guards();
    stitch__mem_free(dev, take(100, "first"));
    CHECK_INT(dev->drv->MemGetInfo(&free_before, &total), CUDA_SUCCESS);
    for (int i = 0; i < 300; i++)
        stitch__mem_free(dev, take((size_t)i * 1000 + 1, "x"));
    CHECK_INT(dev->drv->MemGetInfo(&free_after, &total), CUDA_SUCCESS);
    CHECK(free_after + (64u << 20) > free_before);
}

TEST(too_much)
{
    CUdeviceptr ptr = 1;
    need_guards();
    CHECK_INT(stitch__mem_alloc(dev, SIZE_MAX / 2, "huge", &ptr, &err), STITCH_E_NOMEM);
    CHECK_INT(ptr, 0);
    stitch_error_free(err);
    err = NULL;
    CHECK_INT(stitch__mem_alloc(dev, (size_t)1 << 45, "huge", &ptr, &err), STITCH_E_NOMEM);
    CHECK_HAS(stitch_error_message(err), "huge");
    stitch_error_free(err);
    err = NULL;
    CHECK_STR(look(), "");
}

TEST_MAIN(RUN(inside_is_fine), RUN(writes_around_a_buffer), RUN(all_of_a_page_in_front),
          RUN(a_buffer_that_serves_again), RUN(memory_is_given_back), RUN(too_much))
