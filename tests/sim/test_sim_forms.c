/* SPDX-License-Identifier: MIT
 *
 * Forms of instructions and special registers that are rare in compiled code: reserved shared memory
 * (data/cg_tile.ptx), matrix products of f64 that name their rounding.
 */
#include "check.h"

#include "sim/sim.h"

#include <math.h>

enum { BUFFER = 1 << 16 };

static stitch_error *err;

/* One launch of `kernel(in, out)`: `in` and `out` of BUFFER bytes, all of `in` written. */
typedef struct rig {
    stitch__sim_module *m;
    stitch__sim_memory *mem;
    stitch__sim_alloc *in, *out;
    stitch__sim_result r;
    uint32_t threads;
} rig;

static void open_text(rig *t, const char *ptx)
{
    memset(t, 0, sizeof(*t));
    t->threads = 1;
    CHECK_OK(stitch__sim_module_load(&t->m, NULL, ptx, strlen(ptx), "test", &err));
    CHECK_OK(stitch__sim_memory_new(&t->mem, &err));
    CHECK_OK(stitch__sim_memory_alloc(t->mem, BUFFER, 0, "in", &t->in, &err));
    CHECK_OK(stitch__sim_memory_alloc(t->mem, BUFFER, 0, "out", &t->out, &err));
    memset(t->in->host, 0, BUFFER);
    stitch__sim_memory_mark(t->in, 0, BUFFER, true);
}

static void close_rig(rig *t)
{
    stitch__sim_result_clear(&t->r);
    stitch__sim_memory_free(t->mem);
    stitch__sim_module_free(t->m);
}

static void launch(rig *t, const char *name, uint32_t grid, uint32_t block)
{
    uint64_t params[2] = {t->in->base, t->out->base};
    stitch__sim_launch l = {.function = stitch__sim_module_find(t->m, name),
                            .grid = {grid, 1, 1},
                            .block = {block, 1, 1},
                            .memory = t->mem,
                            .flags = STITCH__SIM_CHECK_ALL,
                            .threads = t->threads,
                            .instruction_budget = 2000000,
                            .params = (uint8_t *)params,
                            .param_bytes = sizeof(params)};
    CHECK(l.function);
    stitch__sim_result_clear(&t->r);
    CHECK_OK(stitch__sim_launch_run(&l, &t->r, &err));
}

static void launch_clean(rig *t, const char *name, uint32_t grid, uint32_t block)
{
    launch(t, name, grid, block);
    if (t->r.report_count) {
        const stitch__sim_report *r = t->r.reports;
        const stitch__sim_place *first = r->first.place, *second = r->second.place;
        FAIL("%s: PTX lines %u and %u: finding %d in %s: %s", name, first ? first->ptx_line : 0,
             second ? second->ptx_line : 0, (int)r->kind, r->buffer, r->detail);
    }
    CHECK_INT(t->r.fault, STITCH__SIM_NONE);
}

/* ---- reserved shared memory -------------------------------------------------------------------------------------- */

TEST(groups_of_several_warps)
{
    enum { GRID = 7, BLOCK = 384 };
    char *ptx;
    size_t length;
    rig t;
    CHECK_OK(stitch__file_read(NULL, STITCH_TEST_DATA "/cg_tile.ptx", 0, &ptx, &length, &err));
    open_text(&t, ptx);
    stitch_free(ptx);
    int32_t *in = (int32_t *)(void *)t.in->host;
    const int32_t *out = (const int32_t *)(const void *)t.out->host;
    for (int i = 0; i < GRID * BLOCK; i++)
        in[i] = i * i % 1009 - 300;
    for (t.threads = 1; t.threads <= 2; t.threads++) {
        memset(t.out->host, 0, BUFFER);
        launch_clean(&t, "tile_sums", GRID, BLOCK);
        for (int i = 0; i < GRID * BLOCK / 128; i++) {
            int32_t sum = 0;
            for (int k = 0; k < 128; k++)
                sum += in[i * 128 + k];
            CHECK_INT(out[2 * i], sum);
            CHECK_INT(out[2 * i + 1], in[i * 128 + 5]);
        }
    }
    close_rig(&t);
}

#define HEAD ".version 8.7\n.target sm_90\n.address_size 64\n"

/* The kernel's first shared byte comes after what is reserved; only kernels that ask where it lies may go there. */
TEST(reserved_shared_memory_has_ends)
{
    static const struct {
        const char *start; /* the address, in %r0 */
        bool fine;
    } cases[] = {
        {"mov.u32 %r0, %reserved_smem_offset_1;", true},
        {"mov.u32 %r0, %reserved_smem_offset_1; add.u32 %r0, %r0, 284;", true},
        {"mov.u32 %r0, %reserved_smem_offset_1; sub.u32 %r0, %r0, 4;", false},
        {"mov.u32 %r0, %reserved_smem_offset_1; add.u32 %r0, %r0, 1024;", false},
        {"mov.u32 %r0, 64;", false},
        {"mov.u32 %r0, x; sub.u32 %r0, %r0, 4;", false},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        char text[1024];
        rig t;
        snprintf(text, sizeof(text),
                 HEAD ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .b32 %%r<3>; .reg .b64 %%a;\n"
                      ".shared .align 4 .b32 x;\n%s\nst.shared.u32 [%%r0], 42;\nld.shared.u32 %%r1, [%%r0];\n"
                      "st.shared.u32 [x], 7;\nld.shared.u32 %%r2, [x];\nadd.u32 %%r1, %%r1, %%r2;\n"
                      "ld.param.u64 %%a, [out];\nst.global.u32 [%%a], %%r1;\nret;\n}\n",
                 cases[i].start);
        open_text(&t, text);
        if (cases[i].fine) {
            launch_clean(&t, "k", 1, 1);
            CHECK_INT(*(const int32_t *)(const void *)t.out->host, 49);
        } else {
            launch(&t, "k", 1, 1);
            CHECK_INT(t.r.fault, STITCH__SIM_OUT_OF_BOUNDS);
        }
        close_rig(&t);
    }
}

/* ---- matrix products of f64 -------------------------------------------------------------------------------------- */

static void f64_kernel(char *text, size_t size, const char *product)
{
    snprintf(text, size,
             HEAD
             ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n.reg .b32 %%t; .reg .b64 %%a, %%b, %%o, %%i;\n"
             ".reg .f64 %%x, %%y, %%c<2>;\nld.param.u64 %%a, [in];\nld.param.u64 %%o, [out];\n"
             "mov.u32 %%t, %%tid.x;\nmul.wide.u32 %%i, %%t, 8;\nadd.u64 %%a, %%a, %%i;\n"
             "ld.global.f64 %%x, [%%a];\nld.global.f64 %%y, [%%a+256];\nmov.f64 %%c0, 0d3FF0000000000000;\n"
             "mov.f64 %%c1, 0dBFE0000000000000;\n%s {%%c0, %%c1}, {%%x}, {%%y}, {%%c0, %%c1};\n"
             "mul.wide.u32 %%i, %%t, 16;\nadd.u64 %%o, %%o, %%i;\nst.global.v2.f64 [%%o], {%%c0, %%c1};\nret;\n}\n",
             product);
}

TEST(double_products_name_their_rounding)
{
    static const char *const forms[] = {"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
                                        "mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64",
                                        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64",
                                        "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64"};
    double first[64];
    for (size_t f = 0; f < STITCH__COUNT(forms); f++) {
        char text[2048];
        rig t;
        f64_kernel(text, sizeof(text), forms[f]);
        open_text(&t, text);
        double *in = (double *)(void *)t.in->host;
        const double *out = (const double *)(const void *)t.out->host;
        for (int i = 0; i < 64; i++)
            in[i] = (i * 5 % 13 - 6) / 3.0;
        launch_clean(&t, "k", 1, 32);
        if (f >= 2) { /* which element a register holds is not defined: only that .rn is what there is */
            if (f == 2)
                memcpy(first, out, sizeof(first));
            CHECK(!memcmp(first, out, sizeof(first)) && first[0] != first[1]);
            close_rig(&t);
            continue;
        }
        /* A[m][k] is lane 4 m + k's, B[k][n] lane 4 n + k's, C[m][n] and C[m][n + 1] those of lane 4 m + n / 2. */
        for (int m = 0; m < 8; m++) {
            for (int n = 0; n < 8; n++) {
                double want = n % 2 ? -0.5 : 1;
                for (int k = 0; k < 4; k++)
                    want = fma(in[4 * m + k], in[32 + 4 * n + k], want);
                if (out[8 * m + n] != want)
                    FAIL("%s: row %d, column %d: got %g, expected %g", forms[f], m, n, out[8 * m + n], want);
            }
        }
        close_rig(&t);
    }
    static const char *const other[] = {"mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64",
                                        "wmma.mma.sync.aligned.row.col.m8n8k4.rp.f64.f64.f64.f64"};
    for (size_t f = 0; f < STITCH__COUNT(other); f++) {
        char text[2048];
        rig t;
        f64_kernel(text, sizeof(text), other[f]);
        open_text(&t, text);
        CHECK(stitch__sim_function_info_get(stitch__sim_module_find(t.m, "k"))->refusal != NULL);
        close_rig(&t);
    }
}

TEST_MAIN(RUN(groups_of_several_warps), RUN(reserved_shared_memory_has_ends), RUN(double_products_name_their_rounding))
