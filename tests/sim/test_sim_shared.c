/* SPDX-License-Identifier: MIT
 *
 * libstitch-sim.so as other programs use it: opened with dlopen(), functions found with dlsym() by the driver's names.
 */
#include <dlfcn.h>

#include "driver_test.h"

static void *library;

static void *from_library(const char *name)
{
    void *address = dlsym(library, name);
    if (!address)
        FAIL("%s", dlerror());
    return address;
}

TEST(every_function_is_exported)
{
    library = dlopen(STITCH_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        FAIL("%s", dlerror());
#define X(name)                                                                                                        \
    do {                                                                                                               \
        void *address = from_library(#name);                                                                           \
        memcpy(&cu.name, &address, sizeof(address));                                                                   \
    } while (0);
#define X_EXT(name, type) X(name)
#include "sim/driver_symbols.def"
#undef X
#undef X_EXT
}

TEST(nothing_else_is)
{
    CHECK(dlsym(library, "stitch__sim_get_proc") == NULL);
    CHECK(dlsym(library, "stitch_free") == NULL);
}

TEST(a_kernel_runs)
{
    begin();
    enum { N = 300 };
    float a[N], c[N];
    for (int i = 0; i < N; i++)
        a[i] = (float)i;
    CUdeviceptr pa = device_floats(a, N), pc = device_floats(NULL, N);
    OK(launch_add(NULL, pa, pa, pc, N));
    OK(cu.cuMemcpyDtoH_v2(c, pc, sizeof(c)));
    for (int i = 0; i < N; i++)
        CHECK_NEAR(c[i], 2 * i, 0);
}

TEST(it_is_not_the_simulator_inside_of_this_program)
{
    int (*init)(unsigned) = NULL;
    void *inside = stitch__sim_get_proc("cuInit", NULL);
    memcpy(&init, &inside, sizeof(init));
    CHECK((void *)(uintptr_t)cu.cuInit != inside);
    CHECK_INT(init(0), 0);
}

TEST(finish)
{
    end_all();
    CHECK_INT(dlclose(library), 0);
}

TEST_MAIN(RUN(every_function_is_exported), RUN(nothing_else_is), RUN(a_kernel_runs),
          RUN(it_is_not_the_simulator_inside_of_this_program), RUN(finish))
