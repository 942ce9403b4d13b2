/* SPDX-License-Identifier: MIT
 *
 * Who waits for whom, in PTX that a GPU would hang on or that a compiler does not write: warpgroups that do not meet,
 * groups of lanes, words for the threads of a race. tests/gpu/planted has the errors that CUDA C++ can express.
 */
#include "check.h"

#include "sim/sim.h"

static stitch_error *err;

#define HEAD                                                                                                           \
    ".version 8.0\n.target sm_90a\n.address_size 64\n"                                                                 \
    ".visible .entry k(.param .u64 out)\n{\n"                                                                          \
    ".reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .b64 %rd<8>;\n.reg .pred %p<8>;\n"                                     \
    ".shared .align 128 .b8 s[4096];\n"                                                                                \
    "ld.param.u64 %rd1, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd1, %rd1, %rd2;\n"         \
    "mov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r2, %r2, %r3;\n"

/* Operands that lie at the start of s; both descriptors are the same. */
#define PRODUCT                                                                                                        \
    "mov.u32 %r9, s;\nshr.u32 %r9, %r9, 4;\ncvt.u64.u32 %rd4, %r9;\nor.b64 %rd4, %rd4, 68720001024;\n"                 \
    "setp.eq.u32 %p7, %r1, %r1;\n"                                                                                     \
    "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0, %f1, %f2, %f3}, %rd4, %rd4, %p7, 1, 1;\n"
#define CLEAR                                                                                                          \
    "mov.f32 %f0, 0f00000000;\nmov.f32 %f1, 0f00000000;\nmov.f32 %f2, 0f00000000;\nmov.f32 %f3, 0f00000000;\n"         \
    "mov.u32 %r8, 0;\nst.shared.u32 [%r2], %r8;\nst.shared.u32 [%r2+512], %r8;\nst.shared.u32 [%r2+1024], %r8;\n"      \
    "st.shared.u32 [%r2+1536], %r8;\nst.shared.u32 [%r2+2048], %r8;\nfence.proxy.async;\nbar.sync 0;\n"
#define WAIT "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"

/* Runs `ptx` with one block of `threads` and puts its findings into words; returns how many of `kind` there are. */
static size_t run(const char *ptx, uint32_t threads, stitch__sim_fault kind, uint32_t values[128], stitch__buf *words)
{
    stitch__sim_module *m = NULL;
    stitch__sim_memory *mem = NULL;
    stitch__sim_alloc *a;
    stitch__sim_result r;
    size_t n = 0;
    CHECK_OK(stitch__sim_module_load(&m, NULL, ptx, strlen(ptx), "test", &err));
    CHECK_OK(stitch__sim_memory_new(&mem, &err));
    CHECK_OK(stitch__sim_memory_alloc(mem, 512, 0, "out", &a, &err));
    stitch__sim_launch l = {.function = stitch__sim_module_find(m, "k"),
                            .grid = {1, 1, 1},
                            .block = {threads, 1, 1},
                            .memory = mem,
                            .flags = STITCH__SIM_CHECK_ALL,
                            .threads = 1,
                            .instruction_budget = 200000,
                            .params = &a->base,
                            .param_bytes = 8};
    CHECK_OK(stitch__sim_launch_run(&l, &r, &err));
    for (size_t i = 0; i < r.report_count; i++) {
        n += r.reports[i].kind == kind;
        stitch__sim_report_text(words, &r.reports[i], "k");
        stitch__buf_putc(words, '\n');
    }
    if (values)
        memcpy(values, a->host, 512);
    stitch__sim_result_clear(&r);
    stitch__sim_memory_free(mem);
    stitch__sim_module_free(m);
    return n;
}

static void finds(const char *ptx, uint32_t threads, stitch__sim_fault kind, const char *word)
{
    stitch__buf words = {0};
    size_t n = run(ptx, threads, kind, NULL, &words);
    if (kind == STITCH__SIM_NONE ? words.len != 0 : !n || !strstr(words.data, word))
        FAIL("expected %s, \"%s\": got %s", stitch__sim_fault_name(kind), word, words.len ? words.data : "nothing");
    stitch__buf_free(&words);
}

TEST(warpgroups_meet)
{
    finds(HEAD CLEAR "wgmma.fence.sync.aligned;\n" PRODUCT WAIT "st.global.f32 [%rd1], %f0;\nret;\n}\n", 128,
          STITCH__SIM_NONE, "");
    /* The last warp goes to a barrier that the others cannot come to. */
    finds(HEAD CLEAR "wgmma.fence.sync.aligned;\nsetp.ge.u32 %p1, %r1, 96;\n@%p1 bra OTHER;\n" PRODUCT WAIT
                     "OTHER:\nbar.sync 0;\nst.global.f32 [%rd1], %f0;\nret;\n}\n",
          128, STITCH__SIM_DEADLOCK, "of its warpgroup have not begun");
}

TEST(products_need_a_fence_and_a_wait)
{
    finds(HEAD CLEAR PRODUCT WAIT "st.global.f32 [%rd1], %f0;\nret;\n}\n", 128, STITCH__SIM_MISSING_FENCE,
          "no wgmma.fence before the first");
    finds(HEAD CLEAR "wgmma.fence.sync.aligned;\n" PRODUCT
                     "wgmma.wait_group.sync.aligned 0;\nst.global.f32 [%rd1], %f0;\nret;\n}\n",
          128, STITCH__SIM_ASYNC_NOT_WAITED, "reads an accumulator"); /* never committed */
    finds(HEAD CLEAR "wgmma.fence.sync.aligned;\n" PRODUCT "wgmma.commit_group.sync.aligned;\nmov.f32 %f9, %f0;\n"
                     "wgmma.wait_group.sync.aligned 0;\nst.global.f32 [%rd1], %f9;\nret;\n}\n",
          128, STITCH__SIM_NONE, ""); /* a move is no use */
    finds(HEAD CLEAR "wgmma.fence.sync.aligned;\n" PRODUCT "wgmma.commit_group.sync.aligned;\nmov.f32 %f9, %f0;\n"
                     "st.global.f32 [%rd1], %f9;\nwgmma.wait_group.sync.aligned 0;\nret;\n}\n",
          128, STITCH__SIM_ASYNC_NOT_WAITED, "PTX line"); /* what was moved is one */
}

TEST(groups_of_lanes)
{
    stitch__buf words = {0};
    uint32_t values[128];
    /* Lanes by their number modulo 4 add up their numbers; odd ones arrive after a loop. */
    static const char sums[] = HEAD "and.b32 %r4, %r1, 3;\nmov.u32 %r5, 0x11111111;\nshl.b32 %r5, %r5, %r4;\n"
                                    "and.b32 %r6, %r1, 1;\nsetp.eq.u32 %p1, %r6, 0;\n@%p1 bra MEET;\nmov.u32 %r7, 0;\n"
                                    "LOOP:\nadd.u32 %r7, %r7, 1;\nsetp.lt.u32 %p2, %r7, %r1;\n@%p2 bra LOOP;\n"
                                    "MEET:\nredux.sync.add.u32 %r8, %r1, %r5;\nst.global.u32 [%rd1], %r8;\nret;\n}\n";
    CHECK_INT(run(sums, 32, STITCH__SIM_NONE, values, &words), 0);
    CHECK_INT(words.len, 0);
    for (uint32_t i = 0; i < 32; i++)
        CHECK_INT(values[i], 8 * (i % 4) + 4 * 28);
    /* Lane 0 names lane 1, which waits at a barrier of the block for it. */
    finds(HEAD "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra END;\nmov.u32 %r4, 3;\nbar.warp.sync %r4;\n"
               "END:\nbar.sync 0;\nret;\n}\n",
          32, STITCH__SIM_INACTIVE_LANE, "never come");
    stitch__buf_free(&words);
}

TEST(a_thread_does_not_race_with_itself)
{
    /* Lane l reads what l ^ 1 reads too, then writes it: the record knows of itself only. */
    finds(HEAD "mov.u32 %r4, 7;\nst.shared.u32 [%r2], %r4;\nbar.sync 0;\nxor.b32 %r5, %r3, 4;\nmov.u32 %r6, s;\n"
               "add.u32 %r5, %r5, %r6;\nld.shared.u32 %r7, [%r5];\nld.shared.u32 %r8, [%r2];\n"
               "st.shared.u32 [%r2], %r7;\nret;\n}\n",
          32, STITCH__SIM_SHARED_RACE, "another thread read it too");
    finds(HEAD "mov.u32 %r4, 7;\nst.shared.u32 [%r2], %r4;\nbar.sync 0;\nxor.b32 %r5, %r3, 4;\nmov.u32 %r6, s;\n"
               "add.u32 %r5, %r5, %r6;\nld.shared.u32 %r7, [%r5];\nbar.warp.sync 0xffffffff;\n"
               "ld.shared.u32 %r8, [%r2];\nst.shared.u32 [%r2], %r7;\nret;\n}\n",
          32, STITCH__SIM_NONE, "");
}

TEST_MAIN(RUN(warpgroups_meet), RUN(products_need_a_fence_and_a_wait), RUN(groups_of_lanes),
          RUN(a_thread_does_not_race_with_itself))
