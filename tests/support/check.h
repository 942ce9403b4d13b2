/* SPDX-License-Identifier: MIT
 *
 * Test programs in the Test Anything Protocol. A program is a list of tests and TEST_MAIN:
 *
 *     TEST(adds) { CHECK_INT(1 + 1, 2); }
 *     TEST_MAIN(RUN(adds))
 *
 * A failed CHECK reports its place and ends its test; the others still run. SKIP("reason") ends a test as skipped.
 */
#ifndef STITCH_TESTS_CHECK_H
#define STITCH_TESTS_CHECK_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

static jmp_buf check__out;
static char check__skip[256];

__attribute__((noreturn, format(printf, 3, 4), unused)) static void check__fail(const char *file, int line,
                                                                                const char *fmt, ...)
{
    va_list ap;
    printf("# %s:%d: ", file, line);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    longjmp(check__out, 1);
}

__attribute__((noreturn, unused)) static void check__skipped(const char *why)
{
    snprintf(check__skip, sizeof(check__skip), "%s", why);
    longjmp(check__out, 2);
}

#define TEST(name) static void test_##name(void)
#define RUN(name)                                                                                                      \
    {                                                                                                                  \
#name, test_##name                                                                                             \
    }
#define SKIP(why) check__skipped(why)
#define FAIL(...) check__fail(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond))                                                                                                   \
            FAIL("not true: %s", #cond);                                                                               \
    } while (0)
#define CHECK_INT(got, want)                                                                                           \
    do {                                                                                                               \
        int64_t check_got = (int64_t)(got), check_want = (int64_t)(want);                                              \
        if (check_got != check_want)                                                                                   \
            FAIL("%s: got %" PRId64 ", expected %" PRId64, #got, check_got, check_want);                               \
    } while (0)
#define CHECK_STR(got, want)                                                                                           \
    do {                                                                                                               \
        const char *check_got = (got), *check_want = (want);                                                           \
        if (!check_got || strcmp(check_got, check_want) != 0)                                                          \
            FAIL("%s: got \"%s\", expected \"%s\"", #got, check_got ? check_got : "(null)", check_want);               \
    } while (0)
/* `part` occurs in the text. */
#define CHECK_HAS(text, part)                                                                                          \
    do {                                                                                                               \
        const char *check_text = (text), *check_part = (part);                                                         \
        if (!check_text || !strstr(check_text, check_part))                                                            \
            FAIL("%s: \"%s\" does not contain \"%s\"", #text, check_text ? check_text : "(null)", check_part);         \
    } while (0)
#define CHECK_NEAR(got, want, tolerance)                                                                               \
    do {                                                                                                               \
        double check_got = (got), check_want = (want);                                                                 \
        double check_diff = check_got - check_want;                                                                    \
        if (!(check_diff <= (tolerance) && -check_diff <= (tolerance)))                                                \
            FAIL("%s: got %.17g, expected %.17g", #got, check_got, check_want);                                        \
    } while (0)
/* The call succeeds; its error is printed otherwise. Needs a `stitch_error *err` in scope. */
#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        int check_rc = (call);                                                                                         \
        if (check_rc != 0)                                                                                             \
            FAIL("%s: %s: %s", #call, stitch_status_name(check_rc), stitch_error_message(err));                        \
    } while (0)
/* The call fails with `code` and a message that contains `part`. Frees the error. */
#define CHECK_ERR(call, code, part)                                                                                    \
    do {                                                                                                               \
        int check_rc = (call);                                                                                         \
        if (check_rc != (code))                                                                                        \
            FAIL("%s: got %s (%s), expected %s", #call, stitch_status_name(check_rc), stitch_error_message(err),       \
                 stitch_status_name(code));                                                                            \
        CHECK_HAS(stitch_error_message(err), part);                                                                    \
        stitch_error_free(err);                                                                                        \
        err = NULL;                                                                                                    \
    } while (0)

__attribute__((unused)) static int check__main(int argc, char **argv, const check_test *tests, int count)
{
    volatile int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("1..%d\n", count);
    for (volatile int i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0) {
            printf("ok %d - %s # SKIP not asked for\n", i + 1, tests[i].name);
            continue;
        }
        int how = setjmp(check__out);
        if (how == 0) {
            tests[i].run();
            printf("ok %d - %s\n", i + 1, tests[i].name);
        } else if (how == 2) {
            printf("ok %d - %s # SKIP %s\n", i + 1, tests[i].name, check__skip);
        } else {
            printf("not ok %d - %s\n", i + 1, tests[i].name);
            failed++;
        }
    }
    return failed ? 1 : 0;
}

#define TEST_MAIN(...)                                                                                                 \
    int main(int argc, char **argv)                                                                                    \
    {                                                                                                                  \
        static const check_test tests[] = {__VA_ARGS__};                                                               \
        return check__main(argc, argv, tests, (int)(sizeof(tests) / sizeof(tests[0])));                                \
    }

#endif
