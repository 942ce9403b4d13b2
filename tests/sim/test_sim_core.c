/* SPDX-License-Identifier: MIT
 *
 * The simulator's core on real PTX (data/core.ptx): results, every checker with a planted bug and its correct twin, the
 * counters, sampling, and what is refused.
 */
#include "check.h"

#include "sim/sim.h"

typedef struct rig {
    stitch__sim_module *m;
    stitch__sim_memory *mem;
    stitch__sim_launch l;
    stitch__sim_result r;
    uint8_t params[STITCH__SIM_PARAM_MAX];
    uint32_t args;
    char printed[1024];
} rig;

static stitch_error *err;

static void bind(rig *t)
{
    size_t n = stitch__sim_module_variable_count(t->m);
    stitch__sim_alloc *where[256];
    CHECK(n <= STITCH__COUNT(where));
    for (size_t i = 0; i < n; i++) {
        const stitch__sim_variable *v = stitch__sim_module_variable(t->m, i);
        CHECK_OK(stitch__sim_memory_alloc(t->mem, v->size, 0, v->name, &where[i], &err));
        stitch__sim_module_bind(t->m, i, where[i]->base);
        stitch__sim_memory_mark(where[i], 0, v->size, true);
    }
    for (size_t i = 0; i < n; i++)
        stitch__sim_module_init(t->m, i, where[i]->host);
}

static void print(void *userdata, const char *text, size_t len)
{
    rig *t = userdata;
    CHECK(len < sizeof(t->printed));
    memcpy(t->printed, text, len);
    t->printed[len] = '\0';
}

static void open_text(rig *t, const char *ptx)
{
    memset(t, 0, sizeof(*t));
    CHECK_OK(stitch__sim_module_load(&t->m, NULL, ptx, strlen(ptx), "test", &err));
    CHECK_OK(stitch__sim_memory_new(&t->mem, &err));
    bind(t);
    t->l = (stitch__sim_launch){.grid = {1, 1, 1},
                                .block = {32, 1, 1},
                                .memory = t->mem,
                                .flags = STITCH__SIM_CHECK_ALL,
                                .threads = 1,
                                .instruction_budget = 200000,
                                .print = print,
                                .userdata = t,
                                .params = t->params};
}

static char *data_file(const char *name)
{
    char path[1024], *text;
    size_t len;
    snprintf(path, sizeof(path), "%s/%s", STITCH_TEST_DATA, name);
    CHECK_OK(stitch__file_read(NULL, path, 0, &text, &len, &err));
    return text;
}

static void open_core(rig *t)
{
    char *ptx = data_file("core.ptx");
    open_text(t, ptx);
    stitch_free(ptx);
}

static void close_rig(rig *t)
{
    stitch__sim_result_clear(&t->r);
    stitch__sim_memory_free(t->mem);
    stitch__sim_module_free(t->m);
}

static void kernel(rig *t, const char *name, uint32_t grid, uint32_t block)
{
    t->l.function = stitch__sim_module_find(t->m, name);
    CHECK(t->l.function);
    t->l.param_bytes = stitch__sim_function_info_get(t->l.function)->param_bytes;
    t->l.grid[0] = grid;
    t->l.block[0] = block;
    t->l.cluster[0] = 0;
    t->args = 0;
}

static void arg(rig *t, const void *value, size_t size)
{
    const stitch__sim_function_info *i = stitch__sim_function_info_get(t->l.function);
    CHECK(t->args < i->param_count && i->params[t->args].size == size);
    memcpy(t->params + i->params[t->args++].offset, value, size);
}

static void arg_int(rig *t, int v)
{
    arg(t, &v, 4);
}

/* A buffer of `count` 4-byte elements; `fill`: written with small numbers that sums hold exactly, as float or int. */
enum { EMPTY, FLOATS, INTS, ZEROS };
static stitch__sim_alloc *arg_buffer(rig *t, const char *name, size_t count, int fill)
{
    stitch__sim_alloc *a;
    CHECK_OK(stitch__sim_memory_alloc(t->mem, count * 4, 0, name, &a, &err));
    for (size_t i = 0; i < count && fill; i++) {
        float f = (float)((i * 7 + 3) % 11) - 5;
        int32_t n = (int32_t)((i * 5 + 1) % 23);
        memset(a->host + 4 * i, 0, 4);
        if (fill == FLOATS)
            memcpy(a->host + 4 * i, &f, 4);
        else if (fill == INTS)
            memcpy(a->host + 4 * i, &n, 4);
    }
    if (fill)
        stitch__sim_memory_mark(a, 0, count * 4, true);
    arg(t, &a->base, 8);
    return a;
}

static uint16_t small_half(int v) /* f16 of an integer of at most 8 */
{
    static const uint16_t table[9] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
    return (uint16_t)(table[v < 0 ? -v : v] | (v < 0 ? 0x8000 : 0));
}

static stitch__sim_alloc *arg_halves(rig *t, size_t count)
{
    stitch__sim_alloc *a;
    CHECK_OK(stitch__sim_memory_alloc(t->mem, count * 2, 0, "halves", &a, &err));
    for (size_t i = 0; i < count; i++) {
        uint16_t h = small_half((int)((i * 7 + 3) % 11) - 5);
        memcpy(a->host + 2 * i, &h, 2);
    }
    stitch__sim_memory_mark(a, 0, count * 2, true);
    arg(t, &a->base, 8);
    return a;
}

static float f32(const stitch__sim_alloc *a, size_t i)
{
    float f;
    memcpy(&f, a->host + 4 * i, 4);
    return f;
}

static int32_t i32(const stitch__sim_alloc *a, size_t i)
{
    int32_t n;
    memcpy(&n, a->host + 4 * i, 4);
    return n;
}

static float val(size_t i)
{
    return (float)((i * 7 + 3) % 11) - 5;
}

static void run(rig *t)
{
    stitch__sim_result_clear(&t->r);
    CHECK_OK(stitch__sim_launch_run(&t->l, &t->r, &err));
}

static void dump(const rig *t)
{
    for (size_t i = 0; i < t->r.report_count; i++) {
        stitch__buf b;
        stitch__buf_init(&b, NULL);
        stitch__sim_report_text(&b, &t->r.reports[i], "kernel");
        printf("# %s\n", b.data);
        stitch__buf_free(&b);
    }
}

static void run_clean(rig *t)
{
    run(t);
    if (t->r.report_count)
        dump(t);
    CHECK_INT(t->r.report_count, 0);
    CHECK_INT(t->r.fault, STITCH__SIM_NONE);
}

/* The run finds `kind`; with `line` (the text behind "// line: " in core.cu) at that line. */
static const stitch__sim_report *run_finds(rig *t, stitch__sim_fault kind, const char *line)
{
    run(t);
    const stitch__sim_report *found = NULL;
    for (size_t i = 0; i < t->r.report_count; i++)
        if (t->r.reports[i].kind == kind)
            found = &t->r.reports[i];
    if (!found)
        dump(t);
    CHECK(found);
    if (line) {
        char *text = data_file("core.cu"), mark[64];
        snprintf(mark, sizeof(mark), "// line: %s\n", line);
        char *at = strstr(text, mark);
        uint32_t number = 1;
        CHECK(at);
        for (char *s = text; s < at; s++)
            number += *s == '\n';
        stitch_free(text);
        CHECK(found->first.place && found->first.place->file);
        CHECK_STR(found->first.place->file, "core.cu");
        CHECK_INT(found->first.place->line, number);
    }
    return found;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

TEST(elementwise)
{
    rig t;
    open_core(&t);
    kernel(&t, "vadd", 5, 200);
    arg_buffer(&t, "a", 1000, FLOATS);
    arg_buffer(&t, "b", 1000, FLOATS);
    stitch__sim_alloc *c = arg_buffer(&t, "c", 1000, EMPTY);
    arg_int(&t, 999);
    run_clean(&t);
    for (size_t i = 0; i < 999; i++)
        CHECK(f32(c, i) == 3 * val(i));
    CHECK(!stitch__sim_memory_written(c, 999 * 4, 4));
    CHECK(stitch__sim_memory_written(c, 0, 999 * 4));
    close_rig(&t);
}

TEST(tiles)
{
    rig t;
    open_core(&t);
    kernel(&t, "tile16", 4, 16);
    t.l.grid[1] = 4;
    t.l.block[1] = 16;
    arg_buffer(&t, "A", 4096, FLOATS);
    arg_buffer(&t, "B", 4096, FLOATS);
    stitch__sim_alloc *c = arg_buffer(&t, "C", 4096, EMPTY);
    arg_int(&t, 64);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        t.l.threads = threads;
        t.l.seed = threads;
        run_clean(&t);
        for (size_t i = 0; i < 4096; i += 37) {
            float w = 0;
            for (size_t k = 0; k < 64; k++)
                w += val(i / 64 * 64 + k) * val(k * 64 + i % 64);
            CHECK(f32(c, i) == w);
        }
    }
    close_rig(&t);
}

TEST(calls)
{
    static const int fib[12] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    rig t;
    open_core(&t);
    kernel(&t, "fibs", 1, 40);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 40, EMPTY);
    run_clean(&t);
    for (int i = 0; i < 40; i++)
        CHECK_INT(i32(o, (size_t)i), fib[i % 12]);
    kernel(&t, "through_pointer", 1, 32);
    o = arg_buffer(&t, "o", 32, EMPTY);
    run_clean(&t);
    for (int i = 0; i < 32; i++)
        CHECK_INT(i32(o, (size_t)i), i % 3 ? 2 * i : i + 1);
    kernel(&t, "cases", 1, 32);
    o = arg_buffer(&t, "o", 32, EMPTY);
    run_clean(&t);
    for (int i = 0; i < 32; i++) {
        const int want[8] = {7, i * 3, i + 100, i - 9, i ^ 55, i << 2, -i, 0};
        CHECK_INT(i32(o, (size_t)i), want[i % 8]);
    }
    close_rig(&t);
}

TEST(prints)
{
    rig t;
    open_core(&t);
    kernel(&t, "print", 1, 32);
    arg_int(&t, 3);
    run_clean(&t);
    CHECK_STR(t.printed, "thread 0 of block:  4.50 1099511627776 x%\nthread 1 of block:  4.50 1099511627776 x%\n");
    close_rig(&t);
}

TEST(warp_and_atomics)
{
    rig t;
    open_core(&t);
    kernel(&t, "warp_sum", 1, 32);
    arg_buffer(&t, "a", 32, FLOATS);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 32, EMPTY);
    float sum = 0;
    for (size_t i = 0; i < 32; i++)
        sum += val(i);
    run_clean(&t);
    for (size_t i = 0; i < 32; i++)
        CHECK(f32(o, i) == sum);
    kernel(&t, "histogram", 8, 96);
    stitch__sim_alloc *a = arg_buffer(&t, "a", 700, INTS);
    stitch__sim_alloc *h = arg_buffer(&t, "h", 8, ZEROS);
    arg_int(&t, 700);
    run_clean(&t);
    int want[8] = {0};
    for (size_t i = 0; i < 700; i++)
        want[i32(a, i) % 8]++;
    for (size_t i = 0; i < 8; i++)
        CHECK_INT(i32(h, i), want[i]);
    close_rig(&t);
}

/* ---- blocks that talk -------------------------------------------------------------------------------------------- */

TEST(grid_barrier)
{
    rig t;
    open_core(&t);
    kernel(&t, "grid_sum", 6, 128);
    CHECK(stitch__sim_function_info_get(t.l.function)->grid_sync);
    arg_buffer(&t, "a", 5000, FLOATS);
    arg_buffer(&t, "part", 6, EMPTY);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 1, EMPTY);
    arg_int(&t, 5000);
    t.l.cooperative = true;
    run_clean(&t);
    float sum = 0;
    for (size_t i = 0; i < 5000; i++)
        sum += val(i);
    CHECK(f32(o, 0) == sum);
    close_rig(&t);
}

TEST(last_block)
{
    rig t;
    open_core(&t);
    float sum = 0;
    for (size_t i = 0; i < 512; i++)
        sum += val(i);
    kernel(&t, "last_block", 16, 32);
    arg_buffer(&t, "a", 512, FLOATS);
    arg_buffer(&t, "part", 16, EMPTY);
    arg_buffer(&t, "count", 1, ZEROS);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 1, EMPTY);
    run_clean(&t);
    CHECK(f32(o, 0) == sum);
    kernel(&t, "last_block_no_fence", 16, 32);
    arg_buffer(&t, "a", 512, FLOATS);
    arg_buffer(&t, "part", 16, EMPTY);
    arg_buffer(&t, "count", 1, ZEROS);
    arg_buffer(&t, "o", 1, EMPTY);
    const stitch__sim_report *r = run_finds(&t, STITCH__SIM_GLOBAL_RACE, NULL);
    CHECK_STR(r->buffer, "part");
    CHECK(r->has_second && r->second.write && r->second.place);
    close_rig(&t);
}

TEST(waiting)
{
    rig t;
    open_core(&t);
    kernel(&t, "wait_for_next", 20, 32);
    arg_buffer(&t, "flag", 20, ZEROS);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 20, EMPTY);
    run_clean(&t);
    for (int i = 0; i < 20; i++)
        CHECK_INT(i32(o, (size_t)i), i);
    kernel(&t, "spin_lock", 2, 64);
    arg_buffer(&t, "lock", 1, ZEROS);
    o = arg_buffer(&t, "o", 1, ZEROS);
    run_clean(&t);
    CHECK_INT(i32(o, 0), 128);
    kernel(&t, "never_set", 1, 32);
    arg_buffer(&t, "flag", 1, ZEROS);
    run_finds(&t, STITCH__SIM_BUDGET, NULL);
    CHECK_INT(t.r.fault, STITCH__SIM_BUDGET);
    stitch__sim_result_clear(&t.r);
    t.l.instruction_budget = 0;
    t.l.deadline_ns = stitch__now_ns() + 50 * 1000 * 1000;
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_TIMEOUT, "never_set");
    close_rig(&t);
}

/* ---- checkers ---------------------------------------------------------------------------------------------------- */

TEST(out_of_bounds)
{
    rig t;
    open_core(&t);
    kernel(&t, "behind", 4, 64);
    arg_buffer(&t, "input", 257, FLOATS);
    arg_buffer(&t, "c", 256, EMPTY);
    run_clean(&t);
    kernel(&t, "behind", 4, 64);
    arg_buffer(&t, "input", 256, FLOATS);
    arg_buffer(&t, "c", 256, EMPTY);
    const stitch__sim_report *r = run_finds(&t, STITCH__SIM_OUT_OF_BOUNDS, "behind");
    CHECK_STR(r->buffer, "input");
    CHECK_INT(r->distance, 0);
    CHECK_INT(r->first.thread[0], 63);
    CHECK_INT(r->first.block[0], 3);
    CHECK_INT(r->count, 1);
    CHECK_INT(t.r.fault, STITCH__SIM_OUT_OF_BOUNDS);
    stitch__buf text;
    stitch__buf_init(&text, NULL);
    stitch__sim_report_text(&text, r, "behind");
    CHECK_HAS(text.data, "reads 4 bytes of input (1024 bytes), directly behind its end");
    stitch__buf_free(&text);
    close_rig(&t);
}

TEST(freed_and_unwritten)
{
    rig t;
    open_core(&t);
    kernel(&t, "behind", 1, 64);
    arg_buffer(&t, "input", 65, EMPTY);
    arg_buffer(&t, "c", 64, EMPTY);
    const stitch__sim_report *r = run_finds(&t, STITCH__SIM_UNINITIALISED, "behind");
    CHECK_STR(r->buffer, "input");
    CHECK_INT(r->count, 64);
    CHECK_INT(t.r.fault, STITCH__SIM_NONE); /* hardware goes on */
    kernel(&t, "behind", 1, 64);
    stitch__sim_alloc *a = arg_buffer(&t, "gone", 65, FLOATS);
    arg_buffer(&t, "c", 64, EMPTY);
    CHECK_OK(stitch__sim_memory_release(t.mem, a->base, &err));
    r = run_finds(&t, STITCH__SIM_USE_AFTER_FREE, "behind");
    CHECK_STR(r->buffer, "gone");
    close_rig(&t);
}

TEST(shared_races)
{
    rig t;
    open_core(&t);
    kernel(&t, "sum_shared", 1, 256);
    arg_buffer(&t, "a", 256, FLOATS);
    arg_buffer(&t, "o", 1, EMPTY);
    run_clean(&t);
    kernel(&t, "sum_shared_bad", 1, 256);
    arg_buffer(&t, "a", 256, FLOATS);
    arg_buffer(&t, "o", 1, EMPTY);
    const stitch__sim_report *r = run_finds(&t, STITCH__SIM_SHARED_RACE, NULL);
    CHECK_STR(r->buffer, "shared variable s");
    CHECK(r->has_second && r->second.place && strcmp(r->second.place->file, "core.cu") == 0);
    kernel(&t, "swap_in_warp", 1, 32);
    arg_buffer(&t, "o", 32, EMPTY);
    arg_int(&t, 1);
    run_clean(&t);
    t.args = 1;
    arg_int(&t, 0);
    r = run_finds(&t, STITCH__SIM_SHARED_RACE, NULL);
    CHECK_HAS(r->detail, "__syncwarp");
    kernel(&t, "half_rows", 1, 64);
    arg_halves(&t, 64);
    run_clean(&t);
    kernel(&t, "named_pair", 1, 64);
    arg_buffer(&t, "a", 32, FLOATS);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 32, EMPTY);
    run_clean(&t);
    for (size_t i = 0; i < 32; i++)
        CHECK(f32(o, i) == val(31 - i));
    close_rig(&t);
}

TEST(global_races)
{
    rig t;
    open_core(&t);
    kernel(&t, "neighbour", 4, 64);
    arg_buffer(&t, "a", 256, FLOATS);
    arg_int(&t, 256);
    arg_int(&t, 0);
    run_clean(&t);
    static const int steps[] = {64, 32, 1}; /* between blocks, between warps, within a warp */
    for (int i = 0; i < 3; i++) {
        t.args = 2;
        arg_int(&t, steps[i]);
        const stitch__sim_report *r = run_finds(&t, STITCH__SIM_GLOBAL_RACE, NULL);
        CHECK_STR(r->buffer, "a");
    }
    t.l.flags = STITCH__SIM_CHECK_ALL & ~STITCH__SIM_CHECK_GLOBAL_RACE;
    run_clean(&t);
    close_rig(&t);
}

TEST(local_memory)
{
    rig t;
    open_core(&t);
    kernel(&t, "squares", 1, 32);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 32, EMPTY);
    arg_int(&t, 16);
    run_clean(&t);
    CHECK(f32(o, 5) == 25 && f32(o, 31) == 225);
    t.args = 1;
    arg_int(&t, 15);
    CHECK_INT(run_finds(&t, STITCH__SIM_UNINITIALISED, NULL)->count, 2);
    t.args = 1;
    arg_int(&t, 17);
    CHECK_INT(run_finds(&t, STITCH__SIM_OUT_OF_BOUNDS, NULL)->space, STITCH__SIM_LOCAL);
    close_rig(&t);
}

TEST(barriers)
{
    rig t;
    open_core(&t);
    kernel(&t, "barrier_in_branches", 1, 64);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 64, EMPTY);
    run_finds(&t, STITCH__SIM_BARRIER_DIVERGENCE, NULL);
    CHECK(f32(o, 0) == 2 && f32(o, 63) == 1);
    kernel(&t, "early_return", 1, 64);
    arg_buffer(&t, "o", 64, EMPTY);
    arg_int(&t, 40);
    run_clean(&t);
    kernel(&t, "two_barriers", 1, 64);
    arg_buffer(&t, "o", 64, EMPTY);
    run_finds(&t, STITCH__SIM_DEADLOCK, NULL);
    CHECK_INT(t.r.fault, STITCH__SIM_DEADLOCK);
    close_rig(&t);
}

TEST(lanes_asserts_alignment)
{
    rig t;
    open_core(&t);
    kernel(&t, "half_of_a_shuffle", 1, 32);
    arg_buffer(&t, "a", 32, FLOATS);
    arg_buffer(&t, "o", 32, EMPTY);
    arg_int(&t, 0);
    run_clean(&t);
    t.args = 2;
    arg_int(&t, 8);
    run_finds(&t, STITCH__SIM_INACTIVE_LANE, NULL);
    kernel(&t, "asserts", 1, 32);
    arg_buffer(&t, "o", 32, EMPTY);
    CHECK_HAS(run_finds(&t, STITCH__SIM_ASSERT, NULL)->detail, "threadIdx.x < 5");
    kernel(&t, "unaligned", 1, 32);
    arg_buffer(&t, "o", 132, EMPTY);
    arg_int(&t, 0);
    run_clean(&t);
    t.args = 1;
    arg_int(&t, 1);
    CHECK(run_finds(&t, STITCH__SIM_MISALIGNED, NULL)->first.write);
    close_rig(&t);
}

/* ---- asynchronous copies and clusters ---------------------------------------------------------------------------- */

TEST(async_copies)
{
    rig t;
    open_core(&t);
    kernel(&t, "copy_async", 1, 32);
    arg_buffer(&t, "a", 256, FLOATS);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 32, EMPTY);
    arg_int(&t, 1);
    run_clean(&t);
    for (size_t i = 0; i < 32; i++)
        CHECK(f32(o, i) == val(127 - i) + val(255 - i));
    t.args = 2;
    arg_int(&t, 0);
    run_finds(&t, STITCH__SIM_ASYNC_NOT_WAITED, NULL);
    kernel(&t, "bulk", 1, 256);
    arg_buffer(&t, "a", 256, FLOATS);
    o = arg_buffer(&t, "o", 256, EMPTY);
    arg_int(&t, 1);
    run_clean(&t);
    for (size_t i = 0; i < 256; i++)
        CHECK(f32(o, i) == val(255 - i) + 1);
    t.args = 2;
    arg_int(&t, 0);
    run_finds(&t, STITCH__SIM_ASYNC_NOT_WAITED, NULL);
    close_rig(&t);
}

TEST(tensor_copies)
{
    rig t;
    open_core(&t);
    for (uint8_t swizzle = 0; swizzle <= 3; swizzle += 3) {
        kernel(&t, "tensor_tile", 1, 32);
        stitch__sim_alloc *src;
        CHECK_OK(
            stitch__sim_memory_alloc(t.mem, 40 * 64 * 4, 0, "image", &src, &err)); /* 40 rows of 64, 50 of them used */
        for (size_t i = 0; i < 40 * 64; i++) {
            float f = (float)i;
            memcpy(src->host + 4 * i, &f, 4);
        }
        stitch__sim_memory_mark(src, 0, 40 * 64 * 4, true);
        stitch__sim_tensor_map map = {.magic = STITCH__SIM_TENSOR_MAP_MAGIC,
                                      .address = src->base,
                                      .extent = {50 - 1, 40 - 1},
                                      .rank = 2,
                                      .elem_size = 4,
                                      .swizzle = swizzle,
                                      .stride = {64 * 4},
                                      .box = {32, 8},
                                      .elem_stride = {1, 1},
                                      .dtype = 7};
        arg(&t, &map, sizeof(map));
        stitch__sim_alloc *o = arg_buffer(&t, "o", 256, EMPTY);
        arg_int(&t, 30);
        arg_int(&t, -2);
        run_clean(&t);
        for (int row = 0; row < 8; row++)
            for (int col = 0; col < 32; col++) {
                bool inside = row >= 2 && col < 20;
                int at = row * 32 + col;
                if (swizzle)
                    at ^= (row & 7) << 2; /* 16-byte pieces by row */
                CHECK(f32(o, (size_t)at) == (inside ? (float)((row - 2) * 64 + 30 + col) : 0.0f));
            }
    }
    close_rig(&t);
}

TEST(clusters)
{
    rig t;
    open_core(&t);
    kernel(&t, "in_cluster", 4, 32);
    CHECK_INT(stitch__sim_function_info_get(t.l.function)->required_cluster[0], 2);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 128, EMPTY);
    run_clean(&t);
    for (int i = 0; i < 128; i++)
        CHECK(f32(o, (size_t)i) == (float)((i / 32 ^ 1) % 2 * 100 + i % 32));
    t.l.grid[0] = 3;
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_INVALID, "cluster");
    close_rig(&t);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

TEST(matrices)
{
    rig t;
    open_core(&t);
    kernel(&t, "wmma_16", 1, 32);
    arg_halves(&t, 256);
    arg_halves(&t, 256);
    stitch__sim_alloc *c = arg_buffer(&t, "c", 256, EMPTY);
    for (int fast = 0; fast < 2; fast++) {
        t.l.mma_fast = fast;
        run_clean(&t);
        for (size_t i = 0; i < 256; i++) {
            float w = 0;
            for (size_t k = 0; k < 16; k++)
                w += val(i / 16 * 16 + k) * val(i % 16 * 16 + k);
            CHECK(f32(c, i) == w);
        }
    }
    kernel(&t, "load_matrix_mma", 1, 32);
    arg_halves(&t, 256);
    arg_halves(&t, 128);
    c = arg_buffer(&t, "c", 128, EMPTY);
    run_clean(&t);
    for (size_t i = 0; i < 128; i++) {
        float w = 0;
        for (size_t k = 0; k < 16; k++)
            w += val(i / 8 * 16 + k) * val(k * 8 + i % 8);
        CHECK(f32(c, i) == w);
    }
    kernel(&t, "mma_types", 1, 32);
    c = arg_buffer(&t, "o", 320, EMPTY);
    run_clean(&t);
    for (size_t i = 0; i < 320; i++)
        CHECK(f32(c, i) == 0);
    kernel(&t, "warpgroup", 1, 128);
    arg_halves(&t, 1024);
    arg_halves(&t, 128);
    c = arg_buffer(&t, "o", 512, EMPTY);
    run_clean(&t);
    for (size_t i = 0; i < 512; i++) {
        float w = 0;
        for (size_t k = 0; k < 16; k++)
            w += val(i / 8 * 16 + k) * val(k * 8 + i % 8);
        CHECK(f32(c, i) == w);
    }
    close_rig(&t);
}

/* ---- counters and sampling --------------------------------------------------------------------------------------- */

TEST(counters)
{
    rig t;
    open_core(&t);
    kernel(&t, "vadd", 4, 256);
    arg_buffer(&t, "a", 1024, FLOATS);
    arg_buffer(&t, "b", 1024, FLOATS);
    arg_buffer(&t, "c", 1024, EMPTY);
    arg_int(&t, 1024);
    t.l.flags |= STITCH__SIM_COUNT;
    run_clean(&t);
    const stitch__sim_counters *c = &t.r.counters;
    CHECK_INT(c->blocks_run, 4);
    CHECK_INT(c->total.global_requests, 3 * 32);
    CHECK_INT(c->total.global_sectors, 3 * 32 * 4);
    CHECK_INT(c->total.global_ideal_sectors, 3 * 32 * 4);
    CHECK_INT(c->total.global_bytes, 3 * 1024 * 4);
    CHECK_INT(c->total.flops, 2 * 1024);
    CHECK_INT(c->total.instructions, t.r.warp_instructions);
    CHECK_INT(c->total.lanes, t.r.lane_instructions);
    CHECK_INT(c->total.divergent, 0);
    CHECK(c->line_count >= 2);
    kernel(&t, "tile16", 2, 16);
    t.l.grid[1] = 2;
    t.l.block[1] = 16;
    arg_buffer(&t, "A", 1024, FLOATS);
    arg_buffer(&t, "B", 1024, FLOATS);
    arg_buffer(&t, "C", 1024, EMPTY);
    arg_int(&t, 32);
    run_clean(&t);
    CHECK_INT(c->total.flops, 2 * 32 * 1024);
    CHECK_INT(c->total.shared_wavefronts, c->total.shared_ideal_wavefronts);
    CHECK_INT(c->barriers, 4 * 2 * 2);
    close_rig(&t);
}

TEST(sampling)
{
    rig t;
    open_core(&t);
    kernel(&t, "vadd", 1000, 32);
    arg_buffer(&t, "a", 32000, FLOATS);
    arg_buffer(&t, "b", 32000, FLOATS);
    stitch__sim_alloc *c = arg_buffer(&t, "c", 32000, EMPTY);
    arg_int(&t, 32000);
    t.l.sample_blocks = 10;
    t.l.seed = 7;
    run_clean(&t);
    CHECK_INT(t.r.counters.blocks_run, 10);
    CHECK_INT(t.r.counters.blocks_total, 1000);
    int ran = 0;
    for (uint64_t b = 0; b < 1000; b++)
        ran += stitch__sim_memory_written(c, b * 128, 128);
    CHECK_INT(ran, 10);
    CHECK(stitch__sim_memory_written(c, 0, 128) && stitch__sim_memory_written(c, 999 * 128, 128));
    close_rig(&t);
}

/* ---- refusals and malformed text --------------------------------------------------------------------------------- */

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"

TEST(refusals)
{
    rig t;
    open_text(&t, HEAD
              ".visible .entry good(.param .u64 p) { ret; }\n"
              ".visible .entry bad(.param .u64 p)\n{\n.reg .b32 "
              "%r<3>;\ntcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nret;\n}\n"
              ".visible .entry odd(.param .u64 p)\n{\n.reg .b32 %r<3>;\nadd.mystery.s32 %r1, %r1, %r2;\nret;\n}\n");
    kernel(&t, "good", 1, 32);
    run_clean(&t);
    kernel(&t, "bad", 1, 32);
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_UNSUPPORTED, "tcgen05.relinquish_alloc_permit");
    CHECK_HAS(stitch__sim_function_info_get(t.l.function)->refusal, "PTX line 8");
    kernel(&t, "odd", 1, 32);
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_UNSUPPORTED, ".mystery");
    kernel(&t, "good", 1, 32);
    t.l.block[0] = 1025;
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_INVALID, "1025");
    t.l.block[0] = 32;
    t.l.dynamic_shared = 300000;
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_INVALID, "shared memory");
    t.l.dynamic_shared = 0;
    t.l.param_bytes = 4;
    CHECK_ERR(stitch__sim_launch_run(&t.l, &t.r, &err), STITCH_E_INVALID, "parameters");
    close_rig(&t);
}

TEST(malformed)
{
    static const struct {
        const char *ptx, *says;
    } cases[] = {
        {"hello", "PTX line 1: a directive is expected"},
        {HEAD ".entry k(", "PTX line 4"},
        {HEAD ".entry k() { ret", "an operand is expected"},
        {HEAD ".entry k() { bra NOWHERE; }", "label 'NOWHERE' is not defined"},
        {HEAD ".entry k() { @%p1 ret; }", "a predicate register is expected"},
        {HEAD ".entry k() { .reg .b32 %r<99999999>; ret; }", "too many registers"},
        {HEAD ".global .b32 x[2] = {1, 2, 3};", "more initial values than elements"},
        {HEAD ".global .align 3 .b32 x;", "alignment 3"},
        {HEAD ".extern .global .b32 x;", "defined elsewhere"},
        {HEAD "/* no end", NULL},
        {".address_size 32", "64-bit"},
        {HEAD ".entry k() { .local .b8 big[9999999]; ret; }", "local memory"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch__sim_module *m = NULL;
        if (cases[i].says)
            CHECK_ERR(stitch__sim_module_load(&m, NULL, cases[i].ptx, strlen(cases[i].ptx), NULL, &err),
                      STITCH_E_COMPILE, cases[i].says);
        else
            CHECK_OK(stitch__sim_module_load(&m, NULL, cases[i].ptx, strlen(cases[i].ptx), NULL, &err));
        stitch__sim_module_free(m);
    }
}

/* Every prefix of real PTX is refused or taken; nothing else happens. */
TEST(truncated)
{
    char *ptx = data_file("core.ptx");
    size_t len = strlen(ptx);
    for (size_t n = 0; n < len; n += 331) {
        stitch__sim_module *m = NULL;
        int rc = stitch__sim_module_load(&m, NULL, ptx, n, NULL, &err);
        CHECK(rc == STITCH_OK || (rc == STITCH_E_COMPILE && *stitch_error_message(err)));
        stitch__sim_module_free(m);
        stitch_error_free(err);
        err = NULL;
    }
    stitch_free(ptx);
}

/* Lanes that part and meet again in a layout whose meeting point comes before the branches' blocks. */
TEST(relayout)
{
    rig t;
    open_text(&t, HEAD ".visible .entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
                       "ld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, "
                       "0;\n@%p1 bra EVEN;\nbra ODD;\n"
                       "JOIN:\nactivemask.b32 %r4;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, "
                       "%rd2;\nst.global.u32 [%rd3], %r4;\nret;\n"
                       "EVEN:\nmov.u32 %r3, 1;\nbra JOIN;\nODD:\nmov.u32 %r3, 2;\nbra JOIN;\n}\n");
    kernel(&t, "k", 1, 32);
    stitch__sim_alloc *o = arg_buffer(&t, "o", 32, EMPTY);
    run_clean(&t);
    for (size_t i = 0; i < 32; i++)
        CHECK_INT((uint32_t)i32(o, i), UINT32_MAX);
    close_rig(&t);
}

/* What a widened load reads besides is nobody's business if the pragma says which bytes are used. */
TEST(used_bytes)
{
    static const char *const body =
        ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %%r<8>; .reg .b64 %%rd<4>;\nld.param.u64 %%rd1, [p];\n%s"
        "ld.global.v4.u32 {%%r1, %%r2, %%r3, %%r4}, [%%rd1+16];\nst.global.u32 [%%rd1], %%r1;\nret;\n}\n";
    for (int masked = 0; masked < 2; masked++) {
        char text[1024] = HEAD;
        rig t;
        snprintf(text + strlen(text), sizeof(text) - strlen(text), body,
                 masked ? ".pragma \"used_bytes_mask 15\";\n" : "");
        open_text(&t, text);
        kernel(&t, "k", 1, 1);
        stitch__sim_alloc *a = arg_buffer(&t, "a", 8, EMPTY);
        stitch__sim_memory_mark(a, 16, 4, true);
        if (masked)
            run_clean(&t);
        else
            run_finds(&t, STITCH__SIM_UNINITIALISED, NULL);
        close_rig(&t);
    }
}

TEST_MAIN(RUN(elementwise), RUN(tiles), RUN(calls), RUN(prints), RUN(warp_and_atomics), RUN(grid_barrier),
          RUN(last_block), RUN(waiting), RUN(out_of_bounds), RUN(freed_and_unwritten), RUN(shared_races),
          RUN(global_races), RUN(local_memory), RUN(barriers), RUN(lanes_asserts_alignment), RUN(async_copies),
          RUN(tensor_copies), RUN(clusters), RUN(matrices), RUN(counters), RUN(sampling), RUN(refusals), RUN(malformed),
          RUN(truncated), RUN(relayout), RUN(used_bytes))
