/* SPDX-License-Identifier: MIT
 *
 * Line tables: made by hand, made by the compiler (and compared with what CUPTI says of them), and damaged.
 */
#include <dlfcn.h>

#include "check.h"
#include "cuda/internal.h"
#include "cupti_sampling_layout.h"
#include "line_table.h"
#include "profile/lines.h"
#include <stitch/compile.h>

static stitch_context *ctx;
static stitch_error *err;
static line_cubin cubin;
static stitch__lines *lines;

static const line_row first_rows[] = {{0, 10, 1, 0},   {16, 12, 1, 0},  {64, 13, 1, 0},  {64, 5, 1, 3}, {80, 900, 2, 3},
                                      {96, 901, 3, 5}, {112, 14, 1, 0}, {128, 30, 2, 0}, {144, 0, 0, 0}};
static const line_row second_rows[] = {{0, 20, 1, 0}, {48, 17, 1, 0}, {70000, 1000000, 1, 0}, {70016, 0, 0, 0}};
static const line_kernel kernels[] = {{"first", first_rows, STITCH__COUNT(first_rows), "first$callee", 112},
                                      {"second", second_rows, STITCH__COUNT(second_rows), NULL, 0},
                                      {"no_table", NULL, 0, NULL, 0}};
static const char *const files[] = {"program.cu", "include/helpers.h", "cuda_fp16.hpp", NULL};

static stitch__place at(const char *function, uint64_t offset)
{
    stitch__place p;
    CHECK(stitch__lines_find(lines, 0, function, offset, &p));
    return p;
}

static void check_place(const char *function, uint64_t offset, const char *kernel, const char *file, uint32_t line,
                        bool source)
{
    stitch__place p = at(function, offset);
    CHECK_STR(p.kernel, kernel);
    CHECK_STR(p.file, file);
    CHECK_INT(p.line, line);
    CHECK_INT(p.source, source);
}

static void read_lines(const void *data, size_t size)
{
    const char *why = NULL;
    stitch__lines_free(lines);
    lines = NULL;
    CHECK_INT(stitch__lines_read(NULL, data, size, &lines, &why), STITCH_OK);
    CHECK(lines);
}

TEST(rows_and_inlined_functions)
{
    stitch__place p;
    for (unsigned variant = 0; variant < 16; variant++) {
        make_line_cubin(&cubin, kernels, 3, files, variant & 8 ? 4 : 2 + (variant & 1), variant & 2, variant & 4);
        read_lines(cubin.data, cubin.size);
        check_place("first", 0, "first", "program.cu", 10, true);
        check_place("first", 15, "first", "program.cu", 10, true);
        check_place("first", 16, "first", "program.cu", 12, true);
        check_place("first", 63, "first", "program.cu", 12, true);
        check_place("first", 64, "first", "program.cu", 5, true);  /* the innermost one, in the source itself */
        check_place("first", 80, "first", "program.cu", 13, true); /* a header's: where it was called */
        check_place("first", 96, "first", "program.cu", 13, true); /* two headers deep */
        check_place("first", 112, "first", "program.cu", 14, true);
        check_place("first", 128, "first", "helpers.h", 30, false); /* called from nowhere */
        check_place("first", 144, "first", "", 0, false);           /* past the end */
        check_place("first$callee", 0, "first", "program.cu", 14, true);
        check_place("first$callee", 16, "first", "helpers.h", 30, false);
        check_place("second", 47, "second", "program.cu", 20, true);
        check_place("second", 48, "second", "program.cu", 17, true);
        check_place("second", 70000, "second", "program.cu", 1000000, true);
        check_place("second", UINT64_MAX, "second", "", 0, false);
        check_place("no_table", 0, "no_table", "", 0, false);
        CHECK(!stitch__lines_find(lines, 0, "third", 0, &p));
        CHECK(stitch__lines_find(lines, 3, "first", 48, &p)); /* the number counts */
        CHECK_STR(p.kernel, "second");
        CHECK_INT(p.line, 17);
        CHECK(stitch__lines_find(lines, 2, "", 0, &p));
        CHECK_STR(p.kernel, "first");
        CHECK_INT(p.line, 14);
        CHECK(stitch__lines_find(lines, 1000, "first", 16, &p)); /* unless it is of nothing */
        CHECK_INT(p.line, 12);
        CHECK(!stitch__lines_find(lines, 0, "", 0, &p));
    }
}

TEST(the_source_of_other_compilers)
{
    static const char *const other[] = {"a.h", "b.cu", NULL};
    static const line_row rows[] = {{0, 7, 2, 0}, {16, 3, 1, 0}, {32, 0, 0, 0}};
    static const line_kernel one[] = {{"k", rows, 3, NULL, 0}};
    make_line_cubin(&cubin, one, 1, other, 2, false, true);
    read_lines(cubin.data, cubin.size);
    check_place("k", 0, "k", "b.cu", 7, false);
    check_place("k", 16, "k", "a.h", 3, true); /* the first file, where none has the library's own name */
}

TEST(what_is_no_cubin)
{
    const char *why;
    stitch__lines_free(lines);
    for (size_t i = 0; i < 3; i++) {
        make_line_cubin(&cubin, kernels, 3, files, 2, false, true);
        if (i == 0)
            cubin.data[0] = 'x';
        if (i == 1)
            cubin.data[18] = 62; /* x86-64 */
        CHECK_INT(stitch__lines_read(NULL, cubin.data, i == 2 ? 63 : cubin.size, &lines, &why), STITCH_E_FORMAT);
        CHECK(!lines && *why);
    }
}

static size_t allowed; /* bytes */

static void *take_alloc(size_t size, void *userdata)
{
    if (size > allowed)
        return NULL;
    allowed -= size;
    return malloc(size);
}

static void *take_realloc(void *ptr, size_t size, void *userdata)
{
    return realloc(ptr, size);
}

static void take_free(void *ptr, void *userdata)
{
    free(ptr);
}

/* Symbols that all have the same long name cost its length once, and so do bytes without an end. */
TEST(many_functions_of_one_long_name)
{
    static const stitch_allocator allocator = {sizeof(allocator), take_alloc, take_realloc, take_free, NULL};
    enum { SYMBOLS = 1 << 12, NAME = 1 << 18, TABLE = 64 + 4 * 64, STRINGS = TABLE + SYMBOLS * 24 };
    unsigned char *data = calloc(1, STRINGS + NAME);
    line_cubin head = {.size = 0};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *metered = NULL;
    stitch__lines *l = NULL;
    const char *why;
    stitch__place p;
    CHECK(data);
    allowed = 1 << 22; /* a hundredth of what a copy for each would take */
    o.device = "none";
    o.cache_dir = "";
    o.allocator = &allocator;
    CHECK_OK(stitch_context_new(&metered, &o, &err));
    memcpy(head.data, "\177ELF\2\1\1", 7);
    lt_set(&head, 18, 190, 2);
    lt_set(&head, 40, 64, 8);
    lt_set(&head, 58, 64, 2);
    lt_set(&head, 60, 4, 2);
    lt_set(&head, 62, 3, 2);
    lt_section(&head, 1, 0, 2, TABLE, SYMBOLS * 24, 3, 0, 24);
    lt_section(&head, 3, 0, 3, STRINGS, NAME, 0, 0, 0);
    memcpy(data, head.data, TABLE);
    for (size_t i = 0; i < SYMBOLS; i++) {
        data[TABLE + i * 24 + 4] = 0x12;
        data[TABLE + i * 24 + 5] = STITCH__ELF_ENTRY;
        data[TABLE + i * 24 + 6] = 2;
    }
    memset(data + STRINGS, 'n', NAME);
    for (int ended = 1; ended >= 0; ended--) {
        data[STRINGS + NAME - 1] = ended ? 0 : 'n';
        CHECK_INT(stitch__lines_read(metered, data, STRINGS + NAME, &l, &why), STITCH_OK);
        CHECK(stitch__lines_find(l, SYMBOLS - 1, "", 0, &p));
        stitch__lines_free(l);
        /* Who has a copy for each takes no such file. */
        stitch__arena arena = {.ctx = metered};
        stitch__entries entries = {0};
        CHECK_INT(stitch__cubin_parse(&arena, data, STRINGS + NAME, &entries, &why), STITCH_E_FORMAT);
        CHECK_STR(why, ended ? "its kernels' names are longer than the file" : "a kernel has no name or no section");
        stitch__arena_free(&arena);
    }
    stitch_context_free(metered);
    free(data);
}

static void read_any(const void *data, size_t size)
{
    static const char *const names[] = {"first", "first$callee", "second", "one", "two", "no_table"};
    const char *why;
    stitch__place p;
    stitch__lines_free(lines);
    lines = NULL;
    int rc = stitch__lines_read(NULL, data, size, &lines, &why);
    CHECK(rc == STITCH_OK || (rc == STITCH_E_FORMAT && *why));
    for (size_t i = 0; lines && i < STITCH__COUNT(names); i++)
        for (uint64_t offset = 0; offset < 2048; offset += 16)
            if (stitch__lines_find(lines, (uint32_t)(offset / 64), names[i], offset, &p))
                CHECK(p.file && (p.line || !*p.file));
}

TEST(damage)
{
    uint64_t random = 0x9e3779b97f4a7c15;
    line_cubin good;
    unsigned char *tight;
    make_line_cubin(&good, kernels, 3, files, 2, true, true);
    for (size_t i = 0; i < good.table_size; i++) { /* every byte of the table */
        for (unsigned bit = 0; bit < 9; bit++) {
            cubin = good;
            cubin.data[good.table + i] = bit < 8 ? cubin.data[good.table + i] ^ (unsigned char)(1u << bit) : 0xff;
            read_any(cubin.data, cubin.size);
        }
    }
    for (size_t size = 0; size <= good.size; size += size < 4096 ? 61 : 3) {
        CHECK((tight = malloc(size ? size : 1)) != NULL);
        memcpy(tight, good.data, size);
        read_any(tight, size);
        free(tight);
    }
    for (int round = 0; round < 20000; round++) {
        cubin = good;
        for (int n = 0; n < 1 + round % 5; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t place = (size_t)(random >> 33) % (round % 2 ? good.size : 1200);
            cubin.data[place] = (unsigned char)(random >> 24);
        }
        read_any(cubin.data, cubin.size);
    }
}

/* ---- real ones ---- */

static const char source[] = "#include <cooperative_groups.h>\n"                                               /* 1 */
                             "#include <cuda_fp16.h>\n"                                                        /* 2 */
                             "__device__ __noinline__ float far_away(float x, int n) {\n"                      /* 3 */
                             "    for (int i = 0; i < n; i++) x = x * x + 0.5f;\n"                             /* 4 */
                             "    return x; }\n"                                                               /* 5 */
                             "__device__ __forceinline__ float near_by(const float *p) {\n"                    /* 6 */
                             "    return p[0] * p[1]; }\n"                                                     /* 7 */
                             "extern \"C\" __global__ void one(const float *x, float *y) {\n"                  /* 8 */
                             "    y[threadIdx.x] = near_by(x + threadIdx.x); }\n"                              /* 9 */
                             "extern \"C\" __global__ void two(const float *x, float *y, const __half *h) {\n" /* 10 */
                             "    cooperative_groups::thread_block b = cooperative_groups::this_thread_block();\n"
                             "    float v = near_by(x + threadIdx.x);\n"                      /* 12 */
                             "    b.sync();\n"                                                /* 13 */
                             "    y[threadIdx.x] = far_away(v, 7) + __half2float(h[0]); }\n"; /* 14 */

static stitch_image *compile(const char *arch)
{
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    stitch_context_options c = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_image *image = NULL;
    c.device = "none";
    c.cache_dir = "";
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, &c, &err));
    o.arch = arch;
    int rc = stitch_compile(ctx, source, &o, &image, &err);
    if (rc == STITCH_E_NO_LIBRARY)
        SKIP(stitch_error_message(err));
    CHECK_OK(rc);
    return image;
}

TEST(what_the_compiler_makes)
{
    static const char *const archs[] = {"sm_80", "sm_90a", "sm_120"};
    for (size_t a = 0; a < STITCH__COUNT(archs); a++) {
        stitch_image *image = compile(archs[a]);
        size_t size;
        const void *data = stitch_image_data(image, &size);
        bool seen[16] = {false};
        read_lines(data, size);
        for (uint64_t offset = 0; offset < 4096; offset += 16) {
            stitch__place p = at("two", offset), q = at("one", offset);
            if (p.line) {
                CHECK_STR(p.file, "program.cu");
                CHECK(p.source && p.line <= 14);
                seen[p.line] = true;
            }
            CHECK(q.line == 0 || (q.line >= 7 && q.line <= 9));
        }
        CHECK(seen[4] && seen[7] && seen[13] && seen[14]); /* 13: the barrier is a header's */
        stitch_image_free(image);
    }
}

/* CUPTI names the innermost place. Where that is in the source, it is the same. */
TEST(cupti_says_the_same)
{
#if defined(__SANITIZE_ADDRESS__) || !__has_include(<cupti_pcsampling.h>)
    SKIP("CUPTI is not here, or not possible under AddressSanitizer");
#else
    CUptiResult (*correlate)(CUpti_GetSassToSourceCorrelationParams *);
    const stitch__cupti *cupti;
    stitch_image *image = compile("sm_90a");
    size_t size, same = 0, outside = 0;
    const void *data = stitch_image_data(image, &size);
    if (stitch__cupti_get(ctx, &cupti, &err) != STITCH_OK)
        SKIP(stitch_error_message(err));
    void *library = dlopen(cupti->path, RTLD_NOW), *symbol = dlsym(library, "cuptiGetSassToSourceCorrelation");
    memcpy(&correlate, &symbol, sizeof(symbol));
    CHECK(symbol);
    read_lines(data, size);
    for (int k = 0; k < 2; k++) {
        for (uint64_t offset = 0; offset < 4096; offset += 16) {
            CUpti_GetSassToSourceCorrelationParams p = {.size = CUpti_GetSassToSourceCorrelationParamsSize};
            p.cubin = data;
            p.cubinSize = size;
            p.functionName = k ? "two" : "one";
            p.pcOffset = offset;
            stitch__place mine = at(p.functionName, offset);
            if (!mine.line)
                break; /* past the end CUPTI goes on with the next function's lines */
            CHECK_INT(correlate(&p), 0);
            if (!p.fileName || strcmp(p.fileName, "program.cu") == 0) {
                if (mine.line != p.lineNumber)
                    FAIL("%s + 0x%" PRIx64 ": line %u, CUPTI says %u", p.functionName, offset, mine.line, p.lineNumber);
                same += p.lineNumber != 0;
            } else {
                CHECK(mine.source && mine.line);
                outside++;
            }
            free(p.fileName);
            free(p.dirName);
        }
    }
    printf("# %zu places the same, %zu in headers\n", same, outside);
    CHECK(same > 20 && outside > 0);
    stitch_image_free(image);
#endif
}

TEST(damage_to_real_ones)
{
    stitch_image *image = compile("sm_90a");
    size_t size;
    const unsigned char *data = stitch_image_data(image, &size);
    uint64_t random = 42;
    unsigned char *copy = malloc(size);
    CHECK(copy);
    for (int round = 0; round < 2000; round++) {
        memcpy(copy, data, size);
        for (int n = 0; n < 1 + round % 7; n++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            copy[(size_t)(random >> 20) % (round % 2 ? size : 4096 < size ? 4096 : size)] = (unsigned char)random;
        }
        read_any(copy, size);
    }
    free(copy);
    stitch_image_free(image);
}

TEST(text_of_lines)
{
    static const char text[] = "one\n  two \t\r\n\n\tfour";
    const char *at_line;
    size_t len;
    CHECK(stitch__lines_text(text, 1, &at_line, &len) && len == 3 && memcmp(at_line, "one", 3) == 0);
    CHECK(stitch__lines_text(text, 2, &at_line, &len) && len == 3 && memcmp(at_line, "two", 3) == 0);
    CHECK(stitch__lines_text(text, 3, &at_line, &len) && len == 0);
    CHECK(stitch__lines_text(text, 4, &at_line, &len) && len == 4 && memcmp(at_line, "four", 4) == 0);
    CHECK(!stitch__lines_text(text, 5, &at_line, &len));
    CHECK(!stitch__lines_text(text, 0, &at_line, &len));
    CHECK(!stitch__lines_text(NULL, 1, &at_line, &len));
}

static int finish(int rc)
{
    stitch__lines_free(lines);
    stitch_error_free(err);
    stitch_context_free(ctx);
    return rc;
}

static const check_test tests[] = {RUN(rows_and_inlined_functions),
                                   RUN(the_source_of_other_compilers),
                                   RUN(what_is_no_cubin),
                                   RUN(damage),
                                   RUN(many_functions_of_one_long_name),
                                   RUN(what_the_compiler_makes),
                                   RUN(cupti_says_the_same),
                                   RUN(damage_to_real_ones),
                                   RUN(text_of_lines)};

int main(int argc, char **argv)
{
    return finish(check__main(argc, argv, tests, STITCH__COUNT(tests)));
}
