/* SPDX-License-Identifier: MIT
 *
 * Ceilings of the real device: plausible, quick the second time, nothing left of the measurement.
 */
#include <ftw.h>

#include "device.h"
#include "profile/ceilings.h"

static char folder[] = "/tmp/stitch-ceilings-XXXXXX";

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void print(const char *what, const stitch__ceilings *c)
{
    printf("# %s: copy %.0f GB/s; TFLOP/s f32 %.1f, tf32 %.1f, f16 %.1f, bf16 %.1f, f8 %.1f; launch %.2f us, node of a "
           "graph %.2f us\n",
           what, c->dram_gb_s, c->f32_tflops, c->tf32_tflops, c->f16_tflops, c->bf16_tflops, c->f8_tflops, c->launch_us,
           c->graph_node_us);
}

/* Not far above the estimate: clocks may be higher than what the driver names. */
static void check_figure(double measured, double estimated)
{
    CHECK(measured >= 0);
    if (estimated > 0)
        CHECK(measured > 0.2 * estimated && measured < 1.15 * estimated);
}

TEST(measured_and_kept)
{
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *own = NULL;
    stitch__ceilings estimated, first, second;
    stitch__device *dev;
    size_t before, after, total;
    need_real_device();
    CHECK(mkdtemp(folder));
    o.device = getenv("STITCH_TEST_DEVICE");
    o.cache_dir = folder;
    CHECK_OK(stitch_context_new(&own, &o, &err));
    CHECK_OK(stitch__device_get(own, &dev, &err));
    stitch__scope scope = stitch__scope_make(own, NULL, 60000);
    int64_t t = stitch__now_ns();
    CHECK_OK(stitch__ceilings_get(own, dev, &scope, &first, &err));
    double first_ms = (double)(stitch__now_ns() - t) / 1e6;
    t = stitch__now_ns();
    CHECK_OK(stitch__ceilings_get(own, dev, &scope, &second, &err));
    double second_ms = (double)(stitch__now_ns() - t) / 1e6;
    stitch__ceilings_estimate(dev, &estimated);
    print("estimated", &estimated);
    print("measured", &first);
    printf("# %s: %.0f ms, then %.3f ms\n", dev->info.name, first_ms, second_ms);
    CHECK(first.measured && second.measured);
    CHECK_NEAR(second.dram_gb_s, first.dram_gb_s, 1e-6);
    CHECK_NEAR(second.f16_tflops, first.f16_tflops, 1e-6);
    CHECK(second_ms < 5);
    check_figure(first.dram_gb_s, estimated.dram_gb_s);
    check_figure(first.f32_tflops, estimated.f32_tflops);
    check_figure(first.tf32_tflops, estimated.tf32_tflops);
    check_figure(first.f16_tflops, estimated.f16_tflops);
    check_figure(first.bf16_tflops, estimated.bf16_tflops);
    check_figure(first.f8_tflops, estimated.f8_tflops);
    CHECK(first.launch_us > 1 && first.launch_us < 10);
    CHECK(first.graph_node_us > 0.2 && first.graph_node_us < 10);
    if (strstr(dev->info.name, "H200")) {
        CHECK(first.dram_gb_s > 3000 && first.dram_gb_s < 4900);
        CHECK(first.f16_tflops > 400 && first.f16_tflops < 1000);
    }
    /* Once more, now that all libraries are open: only what the measurement itself takes and leaves. */
    CHECK_OK(stitch__device_enter(dev, &err));
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    CHECK_INT(dev->drv->MemGetInfo(&before, &total), CUDA_SUCCESS);
    t = stitch__now_ns();
    CHECK_OK(stitch__ceilings_get(own, dev, &scope, &second, &err));
    double again_ms = (double)(stitch__now_ns() - t) / 1e6;
    CHECK_INT(dev->drv->MemGetInfo(&after, &total), CUDA_SUCCESS);
    stitch__device_leave(dev);
    print("measured again", &second);
    printf("# %.0f ms, %.1f MB of device memory less\n", again_ms, ((double)before - (double)after) / 1e6);
    CHECK(again_ms < 2000);
    CHECK(after + (16 << 20) >= before);
    CHECK(second.dram_gb_s > 0.8 * first.dram_gb_s && second.dram_gb_s < 1.25 * first.dram_gb_s);
    CHECK(second.f16_tflops > 0.8 * first.f16_tflops && second.f16_tflops < 1.25 * first.f16_tflops);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    stitch_context_free(own);
}

static const check_test tests[] = {RUN(measured_and_kept)};

int main(int argc, char **argv)
{
    int rc = check__main(argc, argv, tests, STITCH__COUNT(tests));
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc;
}
