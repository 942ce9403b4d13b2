/* SPDX-License-Identifier: MIT
 *
 * The compile log: messages, places, resource lines; and what the source scan refuses.
 */
#include "check.h"
#include "cuda/internal.h"

typedef struct parsed {
    stitch__arena arena;
    stitch__diagnostics d;
    stitch__usages u;
} parsed;

static void parse(parsed *p, const char *log, const char *ptx)
{
    memset(p, 0, sizeof(*p));
    CHECK_INT(stitch__diagnostics_parse(&p->arena, log, strlen(log), ptx, ptx ? strlen(ptx) : 0, &p->d, &p->u),
              STITCH_OK);
}

static void done(parsed *p)
{
    stitch_free(p->u.list);
    stitch__arena_free(&p->arena);
}

static void check_message(const parsed *p, size_t index, int severity, int line, int column, const char *file,
                          const char *message)
{
    CHECK(index < p->d.count);
    const stitch_diagnostic *d = &p->d.list[index];
    CHECK_INT(d->severity, severity);
    CHECK_INT(d->line, line);
    CHECK_INT(d->column, column);
    CHECK_STR(d->file, file);
    CHECK_STR(d->message, message);
}

TEST(errors_with_places)
{
    parsed p;
    parse(&p,
          "program.cu(4): error: a value of type \"const char *\" cannot be used to initialize an entity of type "
          "\"int\"\n"
          "    int y = \"abc\";\n"
          "            ^\n\n"
          "program.cu(6): warning #177-D: variable \"s\" was declared but never referenced\n"
          "    __shared__ int s[3]\n"
          "                   ^\n\n"
          "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n\n"
          "/opt/cuda/include/x.h(52): catastrophic error: cannot open source file \"info.h\"\n"
          "  #include \"info.h\"\n"
          "                   ^\n\n"
          "2 errors detected in the compilation of \"program.cu\".\n"
          "Compilation terminated.\n",
          NULL);
    CHECK_INT(p.d.count, 3);
    CHECK_INT(p.d.errors, 2);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 4, 11, "program.cu",
                  "a value of type \"const char *\" cannot be used to initialize an entity of type \"int\"");
    check_message(&p, 1, STITCH_SEVERITY_WARNING, 6, 18, "program.cu",
                  "variable \"s\" was declared but never referenced");
    check_message(&p, 2, STITCH_SEVERITY_ERROR, 52, 18, "/opt/cuda/include/x.h", "cannot open source file \"info.h\"");
    done(&p);
}

TEST(continuation_lines)
{
    parsed p;
    parse(&p,
          "program.cu(1): error: expression must have class type but it has type \"float\"\n"
          "  template<typename T> struct A { T f(T x){ return x.foo; } };\n"
          "                                                   ^\n"
          "          detected during instantiation of \"T A<T>::f(T) [with T=float]\" at line 3\n\n"
          "At end of source: error: expected a \"}\"\n"
          "program.cu(1): note #3196-D: to match this \"{\"\n"
          "  __global__ void k(float*x){ /* abc\n"
          "                            ^\n",
          NULL);
    CHECK_INT(p.d.count, 3);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 1, 50, "program.cu",
                  "expression must have class type but it has type \"float\"; detected during instantiation of \"T "
                  "A<T>::f(T) [with T=float]\" "
                  "at line 3");
    check_message(&p, 1, STITCH_SEVERITY_ERROR, 0, 0, "program.cu", "expected a \"}\"");
    check_message(&p, 2, STITCH_SEVERITY_NOTE, 1, 27, "program.cu", "to match this \"{\"");
    done(&p);
}

/* Where the instantiation came from is printed under the last note, and belongs to the error: recorded logs. */
TEST(context_below_notes)
{
    static const char message[] = "static assertion failed with \"N is too small\"; detected during instantiation of "
                                  "\"void t<N>(float *) [with N=2]\"";
    parsed p;
    parse(&p, /* NVRTC 12 and 13.0 */
          "program.cu(2): error: static assertion failed with \"N is too small\"\n"
          "  { static_assert(N > 3, \"N is too small\"); }\n"
          "    ^\n"
          "          detected during instantiation of \"void t<N>(float *) [with N=2]\" \n\n"
          "1 error detected in the compilation of \"program.cu\".\n",
          NULL);
    CHECK_INT(p.d.count, 1);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 2, 3, "program.cu", message);
    done(&p);
    parse(&p, /* NVRTC 13.5 */
          "program.cu(2): error: static assertion failed with \"N is too small\"\n"
          "  { static_assert(N > 3, \"N is too small\"); }\n"
          "    ^\n"
          "program.cu(2): note #3453-D: the final comparison was 2 > 3\n"
          "  { static_assert(N > 3, \"N is too small\"); }\n"
          "                    ^\n"
          "          detected during instantiation of \"void t<N>(float *) [with N=2]\" \n\n"
          "1 error detected in the compilation of \"program.cu\".\n",
          NULL);
    CHECK_INT(p.d.count, 2);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 2, 3, "program.cu", message);
    check_message(&p, 1, STITCH_SEVERITY_NOTE, 2, 19, "program.cu", "the final comparison was 2 > 3");
    done(&p);
    parse(&p, /* NVRTC 13.5: several steps, then a message of its own */
          "program.cu(2): error: static assertion failed with \"N is too small\"\n"
          "  { static_assert(N > 3, \"N is too small\"); x[0] = undefined_q; }\n"
          "    ^\n"
          "program.cu(2): note #3453-D: the final comparison was 2 > 3\n"
          "  { static_assert(N > 3, \"N is too small\"); x[0] = undefined_q; }\n"
          "                    ^\n"
          "          detected during:\n"
          "            instantiation of \"void u<N>(float *) [with N=2]\" at line 3\n"
          "            instantiation of \"void v<N>(float *) [with N=2]\" at line 4\n\n"
          "program.cu(3): warning #177-D: variable \"unused\" was declared but never referenced\n"
          "  { int unused; }\n"
          "        ^\n\n",
          NULL);
    CHECK_INT(p.d.count, 3);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 2, 3, "program.cu",
                  "static assertion failed with \"N is too small\"; detected during:; instantiation of \"void "
                  "u<N>(float *) [with N=2]\" at line 3; instantiation of \"void v<N>(float *) [with N=2]\" at line 4");
    check_message(&p, 1, STITCH_SEVERITY_NOTE, 2, 19, "program.cu", "the final comparison was 2 > 3");
    check_message(&p, 2, STITCH_SEVERITY_WARNING, 3, 7, "program.cu",
                  "variable \"unused\" was declared but never referenced");
    done(&p);
}

/* Two notes, and a line about the types in front of the quoted source: every version prints this. */
TEST(overloads_that_do_not_match)
{
    parsed p;
    parse(&p,
          "program.cu(3): error: no instance of overloaded function \"f\" matches the argument list\n"
          "            argument types are: (float *, int)\n"
          "  template <class T> __global__ void t(T *x) { f(x, 1); }\n"
          "                                               ^\n"
          "program.cu(2): note #3322-D: number of parameters of function \"f(int *, float, char)\" does not match the "
          "call\n"
          "  __device__ void f(int *, float, char);\n"
          "                  ^\n"
          "program.cu(1): note #3327-D: candidate function template \"f(T, T)\" failed deduction\n"
          "  template <class T> __device__ void f(T, T);\n"
          "                                     ^\n"
          "          detected during instantiation of \"void t(T *) [with T=float]\" at line 4\n\n",
          NULL);
    CHECK_INT(p.d.count, 3);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 3, 46, "program.cu",
                  "no instance of overloaded function \"f\" matches the argument list; argument types are: (float *, "
                  "int); detected during instantiation of \"void t(T *) [with T=float]\" at line 4");
    check_message(&p, 1, STITCH_SEVERITY_NOTE, 2, 17, "program.cu",
                  "number of parameters of function \"f(int *, float, char)\" does not match the call");
    check_message(&p, 2, STITCH_SEVERITY_NOTE, 1, 36, "program.cu",
                  "candidate function template \"f(T, T)\" failed deduction");
    done(&p);
}

/* A note that the full list has no room for does not take the error's context with it. */
TEST(context_below_a_note_that_is_cut)
{
    stitch__buf b;
    parsed p;
    stitch__buf_init(&b, NULL);
    for (int i = 1; i <= STITCH__DIAGNOSTICS_MAX; i++)
        stitch__buf_printf(&b, "program.cu(%d): error: e\n", i);
    stitch__buf_puts(&b, "program.cu(1): note #1-D: n\n  x\n  ^\n          detected during instantiation of \"f\"\n");
    parse(&p, b.data, NULL);
    CHECK_INT(p.d.count, STITCH__DIAGNOSTICS_MAX);
    check_message(&p, STITCH__DIAGNOSTICS_MAX - 1, STITCH_SEVERITY_ERROR, STITCH__DIAGNOSTICS_MAX, 0, "program.cu",
                  "e; detected during instantiation of \"f\"");
    done(&p);
    stitch__buf_free(&b);
}

/* The option that NVRTC recommends is not one that the library sets. */
TEST(advice_is_replaced)
{
    parsed p;
    parse(&p,
          "program.cu(1): error: A function without execution space annotations (__host__/__device__/__global__) is "
          "considered a host "
          "function, and host functions are not allowed in JIT mode. Consider using -default-device flag to process "
          "unannotated functions "
          "as __device__ functions in JIT mode\n",
          NULL);
    CHECK(!strstr(p.d.list[0].message, "-default-device"));
    CHECK_HAS(p.d.list[0].message, "Write __device__");
    done(&p);
}

TEST(assembler_messages_have_source_lines)
{
    static const char ptx[] =
        ".version 9.0\n.target sm_90a\n.visible .entry _Z1kPf(\n)\n{\n\t.loc\t1 1 0\n\t.loc\t1 2 2\n\tfoo.bar %f1, "
        "%f2;\n\t.loc 2 77 1\n\tbar;\n}\n\t.file\t1 \"/tmp/program.cu\"\n\t.file 2 \"/x/other.h\"\n";
    parsed p;
    parse(&p,
          "ptxas application ptx input, line 8; error   : Not a name of any known instruction: 'foo'\n"
          "ptxas application ptx input, line 10; error   : Unknown\n"
          "ptxas fatal   : Ptx assembly aborted due to errors\n",
          ptx);
    CHECK_INT(p.d.count, 2);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 2, 0, "program.cu", "Not a name of any known instruction: 'foo'");
    check_message(&p, 1, STITCH_SEVERITY_ERROR, 2, 0, "program.cu", "Unknown"); /* inlined into line 2 */
    done(&p);
    parse(&p,
          "ptxas fatal   : Unresolved extern function '_Z1ff'\nptxas warning : odd\nnvrtc: error: unrecognized option "
          "--bogus found\n",
          NULL);
    CHECK_INT(p.d.count, 3);
    check_message(&p, 0, STITCH_SEVERITY_ERROR, 0, 0, "program.cu", "Unresolved extern function '_Z1ff'");
    check_message(&p, 1, STITCH_SEVERITY_WARNING, 0, 0, "program.cu", "odd");
    check_message(&p, 2, STITCH_SEVERITY_ERROR, 0, 0, "program.cu", "unrecognized option --bogus found");
    done(&p);
}

TEST(resource_lines)
{
    static const char log[] =
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kPf\n"
        "ptxas         .     464 bytes stack frame, 876 bytes spill stores, 880 bytes spill loads\n"
        "ptxas info    : Used 64 registers, used 1 barriers, 472 bytes cumulative stack size, 256 bytes smem, 360 "
        "bytes cmem[0]\n"
        "ptxas info    : Compile time = 51.485 ms\n"
        "ptxas info    : Function properties for _Z1ffPf\n"
        "ptxas         .     4000 bytes stack frame, 4000 bytes spill stores, 4000 bytes spill loads\n"
        "ptxas info    : Compiling entry function 'older' for 'sm_80'\n"
        "ptxas info    : Function properties for older\n"
        "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
        "ptxas info    : Used 10 registers, 360 bytes cmem[0]\n";
    parsed p;
    parse(&p, log, NULL);
    CHECK_INT(p.d.count, 0);
    CHECK_INT(p.u.count, 2);
    CHECK_STR(p.u.list[0].symbol, "_Z1kPf");
    CHECK_INT(p.u.list[0].registers, 64);
    CHECK_INT(p.u.list[0].shared, 256);
    CHECK_INT(p.u.list[0].stack, 472);
    CHECK_INT(p.u.list[0].spill_stores, 876);
    CHECK_INT(p.u.list[0].spill_loads, 880);
    CHECK_STR(p.u.list[1].symbol, "older");
    CHECK_INT(p.u.list[1].registers, 10);
    CHECK_INT(p.u.list[1].spill_loads, 16);
    done(&p);
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__log_strip(log, strlen(log), &b);
    CHECK_INT(b.len, 0);
    stitch__buf_free(&b);
}

/* Quoted source is indented, so that it cannot pass for a message. */
TEST(source_cannot_forge_messages)
{
    parsed p;
    parse(&p,
          "program.cu(1): error: real\n"
          "  // program.cu(9): error: forged\n"
          "     ^\n"
          "  ptxas error   : forged\n",
          NULL);
    CHECK_INT(p.d.count, 1);
    CHECK_INT(p.d.list[0].line, 1);
    done(&p);
}

TEST(many_messages_are_cut_but_errors_stay)
{
    stitch__buf b;
    parsed p;
    stitch__buf_init(&b, NULL);
    for (int i = 1; i <= 1000; i++)
        stitch__buf_printf(&b, "program.cu(%d): warning #1-D: w\n", i);
    for (int i = 1; i <= 150; i++)
        stitch__buf_printf(&b, "program.cu(%d): error: e\n", i);
    parse(&p, b.data, NULL);
    CHECK_INT(p.d.count, STITCH__DIAGNOSTICS_MAX);
    CHECK_INT(p.d.errors, 150);
    size_t errors = 0;
    for (size_t i = 0; i < p.d.count; i++)
        errors += p.d.list[i].severity == STITCH_SEVERITY_ERROR;
    CHECK_INT(errors, 150);
    done(&p);
    stitch__buf_free(&b);
}

TEST(odd_logs)
{
    static const char *const logs[] = {"",
                                       "\n\n\n",
                                       "(",
                                       "(1): error: x",
                                       "x(99999999999999999999): error: y\n",
                                       "program.cu(): error: z",
                                       "   ^\n",
                                       "ptxas",
                                       "ptxas info",
                                       "ptxas , line ",
                                       "error:",
                                       "At end of source: ",
                                       "ptxas application ptx input, line 99999999; error : q\n",
                                       "program.cu(3): error: \xff\xfe\x01 bytes\n"};
    for (size_t i = 0; i < STITCH__COUNT(logs); i++) {
        parsed p;
        parse(&p, logs[i], "");
        for (size_t k = 0; k < p.d.count; k++)
            CHECK(stitch__utf8_valid(p.d.list[k].message, strlen(p.d.list[k].message)));
        done(&p);
    }
}

/* ---- source scan ---- */

static size_t refusals(const char *source, char *first, size_t size)
{
    stitch__arena arena = {0};
    stitch__diagnostics d = {0};
    CHECK_INT(stitch__source_check(&arena, source, strlen(source), NULL, &d), STITCH_OK);
    snprintf(first, size, "%d: %s", d.count ? (int)d.list[0].line : 0, d.count ? d.list[0].message : "");
    size_t count = d.count;
    stitch__arena_free(&arena);
    return count;
}

TEST(includes_of_the_machines_files_are_refused)
{
    static const char *const bad[] = {
        "#include \"/proc/self/environ\"",
        "#include </etc/passwd>",
        "#include <../../etc/passwd>",
        "#include \"cuda/../../../etc/passwd\"",
        "  #  include/**/\"/etc/passwd\"",
        "#inc\\\nlude \"/etc/passwd\"",
        "%:include \"/etc/passwd\"",
        "\?\?=include \"/etc/passwd\"",
        "#define F \"/etc/passwd\"\n#include F",
        "#import \"/etc/passwd\"",
        "#include_next </etc/passwd>",
        "/\\\n* R\"( */\n#include \"/etc/passwd\"\n//)\"",
        "#if __has_include(<a/*b>)\n#endif\n#include \"/etc/passwd\"\n/* */",
        "#error don't\n#include \"/etc/passwd\"",
        "const char *s = R\"x(\n#include \"/etc/passwd\"\n)x\";",
        "auto c = '\\''; \n#include \"/etc/passwd\"",
        "int i = 1'000'000;\n#include \"/etc/passwd\" // '",
        "#include \"/etc/pass\\\nwd\"",
        "#\\\n include \"/etc/passwd\"",
        "#line 1 \"other.cu\"",
    };
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        char first[700];
        if (refusals(bad[i], first, sizeof(first)) == 0)
            FAIL("not refused: %s", bad[i]);
    }
    char first[700];
    refusals("\n\n#include \"/proc/self/environ\"\n", first, sizeof(first));
    CHECK_HAS(first, "3: #include of \"/proc/self/environ\" is not allowed");
}

/* What a reader sees and the compiler does not, or sees elsewhere. */
TEST(characters_that_deceive_are_refused)
{
    static const char *const bad[] = {
        "// tile\r#define FAST 1",
        "int a; // x\r\r y\r\n",
        "// a\u2028int b;",
        "// a\u2029int b;",
        "/* \xc2\x85 */",
        "// \u202e x",
        "// \u202a x",
        "const char *s = \"\u2066\";",
        "__device__ int \u2069i;\nint b;",
        "\n\n//\n// \r x",
    };
    static const char *const good[] = {"int a;\r\nint b;\r\n", "int a;\r\r\nint b;\r",
                                       "// \u2027 \u202f \u2065 \u206a \u00a0 \u00e9"};
    char first[700];
    for (size_t i = 0; i < STITCH__COUNT(bad); i++)
        if (refusals(bad[i], first, sizeof(first)) != 1)
            FAIL("not refused once: %zu", i);
    CHECK_HAS(first, "4: a carriage return without a line feed is not allowed");
    for (size_t i = 0; i < STITCH__COUNT(good); i++)
        if (refusals(good[i], first, sizeof(first)))
            FAIL("refused: %zu: %s", i, first);
}

/* A process that compiles sees other files than the next one does. */
TEST(questions_about_files_are_refused)
{
    static const char *const bad[] = {
        "#if __has_include(\"/etc/passwd\")\n#endif",
        "#if __has_include(</etc/passwd>)\n#endif",
        "#if __has_include_next ( </etc/passwd> )\n#endif",
        "#if __has_include(<../../etc/passwd>)\n#endif",
        "#if __has_include(\"no_header_of_cuda.h\")\n#endif",
        "#if __has_\\\ninclude(\"/etc/passwd\")\n#endif",
        "#if __has_include(M)\n#endif",
        "#define H __has_include\n#if H(\"/etc/passwd\")\n#endif",
        "#define H(x) __has_include(x)\n#if H(\"/etc/passwd\")\n#endif",
        "#define P(a, b) a##b\n#if P(__has_, include)(\"/etc/passwd\")\n#endif",
        "#define P(a, b) a##b\n#if P(__has_in, clude_next)(\"/etc/passwd\")\n#endif",
        "#define X R\\\n\"(\" /*)\"\n#if __has_include(\"/etc/passwd\")\n#endif\n/* */",
        "#define X R\\\n\"(\" /*)\"\n__device__ const char *t = __TIME__;\n/* */",
        "#ifdef __has_include\n#if __has_include(\"/etc/passwd\")\n#endif\n#endif",
        "#include <cuda/std/version>\n#if _CCCL_HAS_INCLUDE(\"/etc/passwd\")\n#endif",
        "#include <cuda/std/version>\n#define P(a, b) a##b\n#if P(_CCCL_HAS, _INCLUDE)(\"/etc/passwd\")\n#endif",
        "#if defined(x) && (__has_include(\"/etc/passwd\"))\n#endif",
    };
    static const char *const good[] = {
        "#ifdef __has_include\n#if __has_include(<cuda_fp8.h>)\n#include <cuda_fp8.h>\n#endif\n#endif",
        "#if defined(__has_include) && __has_include( <cuda/std/mdspan> ) && "
        "__has_include_next(<no/such/header.h>)\n#endif",
        "#if defined __has_include\n#endif\n#ifndef __has_include\n#endif",
        "int has = 1, _x = 2;\n/* what it has, include it */\n#if __has_builtin(f) && "
        "__has_cpp_attribute(nodiscard)\n#endif",
    };
    char first[700];
    for (size_t i = 0; i < STITCH__COUNT(bad); i++)
        if (refusals(bad[i], first, sizeof(first)) == 0)
            FAIL("not refused: %s", bad[i]);
    refusals(bad[0], first, sizeof(first));
    CHECK_HAS(first, "1: __has_include is not allowed but for CUDA's own headers");
    for (size_t i = 0; i < STITCH__COUNT(good); i++)
        if (refusals(good[i], first, sizeof(first)))
            FAIL("refused: %s: %s", good[i], first);
}

TEST(ordinary_source_passes)
{
    static const char *const good[] = {
        "#include <cuda_fp16.h>\n#include \"mma.h\"\n#include <cuda/std/type_traits>\n__global__ void k() {}\n",
        "// no #include here\n/* and no #include \"/x\" there */\n#define S(x) #x\n#define C(a, b) a##b\n",
        "const char *s = \"#include \\\"/etc/passwd\\\"\";\n",
        "__global__ void k(float *x) { asm volatile(R\"({ .reg .pred p; mov.u32 %0, 1; })\" : \"=f\"(x[0])); }\n",
        "#pragma unroll\n#if __has_include(<cuda_fp8.h>)\n#include <cuda_fp8.h>\n#endif\n",
    };
    for (size_t i = 0; i < STITCH__COUNT(good); i++) {
        char first[700];
        if (refusals(good[i], first, sizeof(first)) != 0)
            FAIL("refused: %s: %s", good[i], first);
    }
}

static char *repeat(const char *head, const char *part, int count, const char *tail)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, head);
    for (int i = 0; i < count; i++)
        stitch__buf_puts(&b, part);
    stitch__buf_puts(&b, tail);
    return stitch__buf_take(&b, NULL);
}

/* What made NVRTC overrun its stack. */
TEST(nesting_is_limited)
{
    const struct {
        const char *part;
        int count;
        const char *says;
    } rows[] = {{"(", 100000, "nested"},
                {"{", 100000, "nested"},
                {"!", 100000, "parts"},
                {"x?1:", 100000, "parts"},
                {"A<", 100000, "parts"},
                {"x+", 100000, "parts"},
                {"if (x == 5) return 3; else ", 200000, "else"}};
    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        char first[700];
        char *source = repeat("__device__ int q(int x) { return ", rows[i].part, rows[i].count, "1; }");
        CHECK(source != NULL);
        CHECK(refusals(source, first, sizeof(first)) > 0);
        CHECK_HAS(first, rows[i].says);
        stitch_free(source);
    }
    char first[700];
    char *table = repeat("__constant__ int t[] = {", "12, ", 50000, "0};");
    CHECK_INT(refusals(table, first, sizeof(first)), 0);
    stitch_free(table);
    table = repeat("", "#define A 1\n", 20000, "");
    CHECK_INT(refusals(table, first, sizeof(first)), 0);
    stitch_free(table);
}

TEST_MAIN(RUN(errors_with_places), RUN(continuation_lines), RUN(context_below_notes), RUN(overloads_that_do_not_match),
          RUN(context_below_a_note_that_is_cut), RUN(advice_is_replaced), RUN(assembler_messages_have_source_lines),
          RUN(resource_lines), RUN(source_cannot_forge_messages), RUN(many_messages_are_cut_but_errors_stay),
          RUN(odd_logs), RUN(includes_of_the_machines_files_are_refused), RUN(characters_that_deceive_are_refused),
          RUN(questions_about_files_are_refused), RUN(ordinary_source_passes), RUN(nesting_is_limited))
