/* SPDX-License-Identifier: MIT
 *
 * Errors, options, cancellation, memory, text, hashes, files.
 */
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stitch/version.h>

#include "base/base.h"
#include "check.h"
#include "task/task.h"

TEST(statuses_have_names)
{
    CHECK_STR(stitch_status_name(0), "STITCH_OK");
    CHECK_STR(stitch_status_name(STITCH_E_REPLY), "STITCH_E_REPLY");
    CHECK_STR(stitch_status_name(-999), "STITCH_E_UNKNOWN");
    CHECK_STR(stitch_status_text(STITCH_E_TIMEOUT), "deadline exceeded");
    CHECK_STR(stitch_domain_name(STITCH_DOMAIN_NVRTC), "nvrtc");
    CHECK_STR(stitch_domain_name(999), "unknown");
    CHECK_STR(stitch_domain_name(-1), "unknown");
    CHECK_INT(stitch_version(), STITCH_VERSION_NUM);
    CHECK_STR(stitch_version_string(), STITCH_VERSION_STRING);
}

TEST(errors_are_owned_and_replaced)
{
    stitch_error *err = NULL;
    CHECK_INT(stitch__err_native(NULL, &err, STITCH_E_DRIVER, STITCH_DOMAIN_DRIVER, 700, "launch of %s\nfailed", "k"),
              STITCH_E_DRIVER);
    CHECK_STR(stitch_error_message(err), "launch of k failed"); /* one line */
    CHECK_INT(stitch_error_native(err), 700);
    CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_DRIVER);
    stitch__err_details(&err, "log");
    stitch__err_prefix(&err, "run[%d]: ", 2);
    CHECK_STR(stitch_error_message(err), "run[2]: launch of k failed");
    CHECK_STR(stitch_error_details(err), "log");
    /* The new message may be made of the old one. */
    stitch__err(NULL, &err, STITCH_E_IO, "again: %s", stitch_error_message(err));
    CHECK_STR(stitch_error_message(err), "again: run[2]: launch of k failed");
    CHECK_STR(stitch_error_details(err), "");
    CHECK_INT(stitch__err_nomem(NULL, &err), STITCH_E_NOMEM);
    CHECK_STR(stitch_error_message(err), "out of memory");
    stitch__err_prefix(&err, "x");
    stitch__err_details(&err, "x");
    stitch_error_free(err);
    stitch_error_free(NULL);
    CHECK_INT(stitch_error_code(NULL), STITCH_OK);
    CHECK_STR(stitch_error_message(NULL), "");
    CHECK_INT(stitch__err(NULL, NULL, STITCH_E_IO, "nobody listens"), STITCH_E_IO);
}

TEST(messages_are_one_line_of_utf8)
{
    stitch_error *err = NULL;
    char longest[5000], prefix[5000];
    stitch__err(NULL, &err, STITCH_E_REPLY, "a\xff%s\r\n\x1b[2J\xc2\x9b", "\xc3\xa9\xc3");
    CHECK_STR(stitch_error_message(err), "a?\xc3\xa9?   [2J?");
    stitch__err_prefix(&err, "line\nbreak: ");
    CHECK_STR(stitch_error_message(err), "line break: a?\xc3\xa9?   [2J?");
    memset(longest, 'm', sizeof(longest));
    longest[sizeof(longest) - 1] = 0;
    memset(prefix, 'p', sizeof(prefix));
    prefix[sizeof(prefix) - 1] = 0;
    stitch__err(NULL, &err, STITCH_E_IO, "%s", longest);
    size_t len = strlen(stitch_error_message(err));
    CHECK(len > 1000 && len < sizeof(longest));
    stitch__err_prefix(&err, "%s", prefix);
    CHECK(stitch_error_message(err)[0] == 'p');
    CHECK(strlen(stitch_error_message(err)) > len);
    char *huge = malloc((3 << 20) + 1);
    CHECK(huge != NULL);
    memset(huge, 'd', 3 << 20);
    huge[3 << 20] = 0;
    stitch__err_details(&err, huge);
    CHECK_INT(strlen(stitch_error_details(err)), 1 << 20);
    free(huge);
    stitch__err_domain(&err, STITCH_DOMAIN_TASK);
    stitch__err_domain(&err, STITCH_DOMAIN_JSON); /* only where there is none yet */
    CHECK_INT(stitch_error_domain(err), STITCH_DOMAIN_TASK);
    stitch__err_domain(NULL, STITCH_DOMAIN_JSON);
    stitch_error_free(err);
}

TEST(options_are_checked)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    static const char *const bad[] = {
        "gpu", "cuda:", "cuda:x", "cuda:1a", "sim:", "sim:sm_", "sim:sm_90b", "sim:90", "cuda:99999", ""};
    static const char *const good[] = {"auto", "none", "cuda:0", "cuda:15", "sim:sm_90", "sim:sm_90a", "sim:sm_100f"};
    for (size_t i = 0; i < STITCH__COUNT(bad); i++) {
        o.device = bad[i];
        CHECK_ERR(stitch_context_new(&ctx, &o, &err), STITCH_E_INVALID, "is not known");
        CHECK(ctx == NULL);
    }
    for (size_t i = 0; i < STITCH__COUNT(good); i++) {
        o.device = good[i];
        CHECK_OK(stitch_context_new(&ctx, &o, &err));
        stitch_context_free(ctx);
    }
    o.log_level = 9;
    CHECK_ERR(stitch_context_new(&ctx, &o, &err), STITCH_E_INVALID, "log_level");
    o.log_level = 0;
    o.struct_size = 0;
    CHECK_ERR(stitch_context_new(&ctx, &o, &err), STITCH_E_INVALID, "struct_size");
    o.struct_size = (size_t)1 << 40; /* not initialised */
    CHECK_ERR(stitch_context_new(&ctx, &o, &err), STITCH_E_INVALID, "no size of this struct");
    CHECK_ERR(stitch_context_new(NULL, NULL, &err), STITCH_E_INVALID, "NULL");
    stitch_context_free(NULL);
    CHECK_INT(stitch_context_options_init(&o, sizeof(o) + 1), STITCH_E_INVALID);
    CHECK_INT(stitch_context_options_init(&o, sizeof(o)), STITCH_OK);
    CHECK_INT(o.struct_size, sizeof(o));
}

TEST(older_and_newer_callers)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    struct {
        stitch_context_options o;
        uint64_t more;
    } newer = {STITCH_CONTEXT_OPTIONS_INIT, 0};
    newer.o.struct_size = sizeof(newer);
    CHECK_OK(stitch_context_new(&ctx, &newer.o, &err));
    stitch_context_free(ctx);
    newer.more = 1;
    CHECK_ERR(stitch_context_new(&ctx, &newer.o, &err), STITCH_E_INVALID, "newer library");
    newer.o.struct_size = offsetof(stitch_context_options, cache_dir); /* a caller that knew only `device` */
    newer.o.device = "none";
    newer.o.cache_dir = (const char *)1;
    CHECK_OK(stitch_context_new(&ctx, &newer.o, &err));
    CHECK_STR(stitch__context_options(ctx)->device, "none");
    stitch_context_free(ctx);
}

static void cache_dir_is(const char *given, const char *want)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    o.cache_dir = given;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    char got[256];
    snprintf(got, sizeof(got), "%s", stitch__context_options(ctx)->cache_dir);
    stitch_context_free(ctx);
    CHECK_STR(got, want);
}

TEST(defaults)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    const stitch_context_options *o = stitch__context_options(ctx);
    CHECK_STR(o->device, "auto");
    CHECK_INT(o->log_level, STITCH_LOG_WARN);
    CHECK_INT(o->cache_limit_bytes, INT64_C(1) << 30);
    CHECK(o->cuda_path == NULL && o->allocator == NULL);
    stitch_context_free(ctx);

    setenv("HOME", "/home/u", 1);
    setenv("XDG_CACHE_HOME", "/xdg/", 1);
    setenv("STITCH_CACHE_DIR", "/own", 1);
    cache_dir_is("given", "given");
    cache_dir_is("", "");
    cache_dir_is(NULL, "/own");
    setenv("STITCH_CACHE_DIR", "", 1); /* nothing is kept */
    cache_dir_is(NULL, "");
    unsetenv("STITCH_CACHE_DIR");
    cache_dir_is(NULL, "/xdg/stitch");
    setenv("XDG_CACHE_HOME", "", 1);
    cache_dir_is(NULL, "/home/u/.cache/stitch");
    unsetenv("HOME");
    cache_dir_is(NULL, "");
}

static void *trigger(void *token)
{
    stitch__sleep_ms(50);
    stitch_cancel_trigger(token);
    return NULL;
}

TEST(cancellation_and_deadlines)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    stitch_cancel *token = NULL;
    pthread_t thread;
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_INT(stitch_cancel_new(&token), STITCH_OK);
    stitch__scope s = stitch__scope_make(ctx, token, 0);
    CHECK_OK(stitch__scope_check(&s, "x", &err));
    CHECK_INT(stitch__scope_left_ms(&s, 123), 123);
    pthread_create(&thread, NULL, trigger, token);
    int64_t began = stitch__now_ns();
    CHECK_ERR(stitch__scope_sleep(&s, 10000, "the sleep", &err), STITCH_E_CANCELLED, "the sleep was cancelled");
    CHECK((stitch__now_ns() - began) / 1000000 < 2000);
    pthread_join(thread, NULL);
    CHECK(stitch_cancel_triggered(token));
    stitch_cancel_reset(token);
    CHECK(!stitch__scope_ended(&s));
    stitch_context_cancel(ctx);
    CHECK_ERR(stitch__scope_check(&s, "x", &err), STITCH_E_CANCELLED, "x was cancelled");
    stitch_context_cancel_reset(ctx);
    s = stitch__scope_make(ctx, NULL, 30);
    CHECK(stitch__scope_left_ms(&s, 1000) <= 30);
    CHECK_ERR(stitch__scope_sleep(&s, 10000, "it", &err), STITCH_E_TIMEOUT, "deadline");
    CHECK_INT(stitch__scope_left_ms(&s, 1000), 0);
    CHECK_ERR(stitch__scope_sleep(&s, INT64_MAX, "it", &err), STITCH_E_TIMEOUT, "deadline");
    s = stitch__scope_make(ctx, NULL, INT64_MAX);
    CHECK_OK(stitch__scope_sleep(&s, INT64_MIN, "it", &err));
    CHECK(!stitch__scope_ended(&s));
    CHECK_INT(stitch__scope_left_ms(&s, -5), 0);
    stitch_cancel_free(token);
    stitch_cancel_free(NULL);
    stitch_cancel_trigger(NULL);
    CHECK(!stitch_cancel_triggered(NULL));
    stitch_context_free(ctx);
}

static int made;

static int make_state(stitch_context *ctx, void **state, stitch_error **err)
{
    *state = stitch__alloc(ctx, 10);
    made++;
    return *state ? STITCH_OK : stitch__err_nomem(ctx, err);
}

static int make_higher(stitch_context *ctx, void **state, stitch_error **err)
{
    void *lower;
    int rc = stitch__context_slot(ctx, STITCH__SLOT_CUDA, make_state, stitch_free, &lower, err);
    return rc ? rc : make_state(ctx, state, err);
}

TEST(slots_are_made_once)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    void *a, *b;
    made = 0;
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK(stitch__context_slot_peek(ctx, STITCH__SLOT_TASK) == NULL);
    CHECK_OK(stitch__context_slot(ctx, STITCH__SLOT_TASK, make_higher, stitch_free, &a, &err));
    CHECK_OK(stitch__context_slot(ctx, STITCH__SLOT_TASK, make_higher, stitch_free, &b, &err));
    CHECK(a == b && stitch__context_slot_peek(ctx, STITCH__SLOT_TASK) == a);
    CHECK_INT(made, 2);
    stitch_context_free(ctx);
}

static char freed[8];

static void note_task(void *state)
{
    strcat(freed, "T");
    stitch_free(state);
}

static void note_agent(void *state)
{
    strcat(freed, "A");
    stitch_free(state);
}

static int make_nothing(stitch_context *ctx, void **state, stitch_error **err)
{
    (void)state;
    return stitch__err(ctx, err, STITCH_E_NO_DEVICE, "there is none");
}

TEST(slots_are_freed_in_reverse)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    void *state;
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_ERR(stitch__context_slot(ctx, STITCH__SLOT_CUDA, make_nothing, note_task, &state, &err), STITCH_E_NO_DEVICE,
              "none");
    CHECK(state == NULL && stitch__context_slot_peek(ctx, STITCH__SLOT_CUDA) == NULL);
    CHECK_OK(stitch__context_slot(ctx, STITCH__SLOT_AGENT, make_state, note_agent, &state, &err));
    CHECK_OK(stitch__context_slot(ctx, STITCH__SLOT_TASK, make_state, note_task, &state, &err));
    freed[0] = 0;
    stitch_context_free(ctx);
    CHECK_STR(freed, "AT");
}

typedef struct racer {
    stitch_context *ctx;
    void *seen[STITCH__SLOT_COUNT];
} racer;

static void *race(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < STITCH__SLOT_COUNT; i++) {
        if (stitch__context_slot(r->ctx, (enum stitch__slot)i, make_state, stitch_free, &r->seen[i], NULL) != STITCH_OK)
            r->seen[i] = NULL;
    }
    return NULL;
}

TEST(slots_are_made_once_for_all_threads)
{
    enum { THREADS = 4 };
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    pthread_t threads[THREADS];
    racer racers[THREADS];
    made = 0;
    CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    for (int i = 0; i < THREADS; i++) {
        racers[i].ctx = ctx;
        CHECK_INT(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(made, STITCH__SLOT_COUNT);
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < STITCH__SLOT_COUNT; k++)
            CHECK(racers[i].seen[k] && racers[i].seen[k] == racers[0].seen[k]);
    }
    stitch_context_free(ctx);
}

static void on_log(int level, const char *message, void *userdata)
{
    snprintf(userdata, 64, "%d:%s", level, message);
}

TEST(log_lines_cannot_be_forged)
{
    stitch_error *err = NULL;
    stitch_context *ctx = NULL;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    char seen[64] = "";
    o.log = on_log;
    o.log_userdata = seen;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    stitch__log(ctx, STITCH_LOG_INFO, "quiet");
    CHECK_STR(seen, "");
    stitch__log(ctx, STITCH_LOG_WARN, "a\n%s", "b\x1b[0m");
    CHECK_STR(seen, "2:a b [0m");
    stitch__log(NULL, STITCH_LOG_ERROR, "nobody");
    stitch_context_free(ctx);
}

TEST(memory)
{
    uint64_t *array = NULL;
    size_t cap = 0;
    CHECK(stitch__calloc(NULL, SIZE_MAX / 2, 4) == NULL);
    CHECK(stitch__alloc(NULL, SIZE_MAX) == NULL);
    CHECK_INT(stitch__grow(NULL, &array, &cap, SIZE_MAX / 4, 8), STITCH_E_NOMEM);
    for (size_t i = 0; i < 1000; i++) {
        CHECK_INT(stitch__grow(NULL, &array, &cap, i + 1, sizeof(*array)), STITCH_OK);
        array[i] = i;
    }
    CHECK_INT(array[999], 999);
    CHECK_INT((uintptr_t)array % 16, 0);
    stitch_free(array);
    stitch_free(NULL);

    stitch__arena a = {NULL, NULL};
    for (size_t i = 0; i < 2000; i++) {
        unsigned char *p = stitch__arena_alloc(&a, i);
        CHECK(p && (uintptr_t)p % 16 == 0);
        for (size_t k = 0; k < i; k++)
            CHECK(p[k] == 0);
        memset(p, 0xff, i);
    }
    CHECK(stitch__arena_array(&a, SIZE_MAX / 4, 8) == NULL);
    CHECK_STR(stitch__arena_printf(&a, "%d-%s", 7, "x"), "7-x");
    CHECK_STR(stitch__arena_strndup(&a, "abc", 2), "ab");
    stitch__arena_free(&a);
    stitch__arena_free(&a);
}

TEST(buffers)
{
    stitch__buf b;
    size_t len;
    stitch__buf_init(&b, NULL);
    char *text = stitch__buf_take(&b, &len);
    CHECK_STR(text, "");
    stitch_free(text);
    for (int i = 0; i < 300; i++)
        stitch__buf_printf(&b, "%d,", i);
    stitch__buf_printf(&b, "%0300d", 1);
    stitch__buf_truncate(&b, 4);
    stitch__buf_append(&b, "\0x", 2);
    text = stitch__buf_take(&b, &len);
    CHECK_INT(len, 6);
    CHECK(memcmp(text, "0,1,\0x", 7) == 0);
    stitch_free(text);
    b.failed = true;
    stitch__buf_puts(&b, "lost");
    CHECK(stitch__buf_take(&b, NULL) == NULL);
    stitch__buf_free(&b);
}

TEST(untrusted_text)
{
    static const struct {
        const char *in;
        size_t max;
        const char *out;
    } cases[] = {
        {"plain\n\ttext", 100, "plain\n\ttext"},
        {"\x1b[31m", 100, "?[31m"},
        {"a\xff\xc3", 100, "a??"},
        {"\xc3\xa9\xe2\x82\xac", 100, "\xc3\xa9\xe2\x82\xac"},
        {"\xc0\x80", 100, "??"},
        {"\xed\xa0\x80", 100, "???"},
        {"abcdef", 3, "abc... (3 bytes left out)"},
        {"ab\xc3\xa9", 3, "ab... (2 bytes left out)"},
        {"\x7f", 10, "?"},
        {"a\u2028b\u2029c", 100, "a?b?c"},               /* lines for some */
        {"\u202etxt\u202c\u200b\ufeff", 100, "?txt???"}, /* the direction of text, nothing to be seen */
        {"\U000e0050\U000e007f", 100, "??"},             /* letters for language models alone */
        {"\u2027\u202f\u4e2d\U0001f600\u00e9", 100, "\u2027\u202f\u4e2d\U0001f600\u00e9"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        stitch__buf b;
        stitch__buf_init(&b, NULL);
        stitch__buf_puts_clean(&b, cases[i].in, strlen(cases[i].in), cases[i].max);
        CHECK_STR(b.data, cases[i].out);
        stitch__buf_free(&b);
    }
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts_clean(&b, "\xc2\x9b\x31m\xc2\xa0\0", 7, 100);
    CHECK_STR(b.data, "?1m\xc2\xa0?");
    stitch__buf_free(&b);
    CHECK_STR(stitch__source_path("/usr/include/c++/a-b_1.hpp"), "/usr/include/c++/a-b_1.hpp");
    CHECK_STR(stitch__source_path("PASSED: all is well"), "?");
    CHECK(stitch__utf8_valid("\xf0\x9f\x98\x80", 4));
    CHECK(!stitch__utf8_valid("\xf0\x9f\x98", 3));
    CHECK(!stitch__utf8_valid("\xf4\x90\x80\x80", 4));
    CHECK(stitch__name_valid("ln_1.weight") && stitch__name_valid("_"));
    CHECK(!stitch__name_valid("") && !stitch__name_valid(NULL) && !stitch__name_valid("1a") &&
          !stitch__name_valid(".a") && !stitch__name_valid("a b"));
}

TEST(suggestions)
{
    static const char *const words[] = {"kernel", "gemm", "copy", "repeat"};
    CHECK_STR(stitch__nearest("kernal", words, 4), "kernel");
    CHECK_STR(stitch__nearest("gmem", words, 4), "gemm");
    CHECK_STR(stitch__nearest("repaet", words, 4), "repeat");
    CHECK(stitch__nearest("zzzzzz", words, 4) == NULL);
    CHECK(stitch__nearest("", words, 0) == NULL);
}

TEST(short_names)
{
    static const struct {
        const char *name, *out; /* in 40 bytes */
    } rows[] = {
        {"", ""},
        {"k", "k"},
        {"a_name_of_exactly_thirty_nine_charactersX", "a_name_of_exactly_thirty_nine_charac..."},
        {"a::short<b::one>", "a::short<b::one>"}, /* fits as it is */
        {"at::native::elementwise_kernel<128, at::Foo>", "elementwise_kernel<128, Foo>"},
        {"at::native::(anonymous namespace)::layer_norm_kernel<float>", "layer_norm_kernel<float>"},
        {"n::k<n::F(n::Base &, n::Type)::{lambda()#2}::operator()() const::{lambda(n::f)#1}>", "k<F::{lambda(f)#1}>"},
        {"n::k<n::F<n::G<int>>(int)::{lambda()#2}, std::array<char *, 2>>", "k<F::{lambda()#2}, array<char *, 2>>"},
        {"n::sum<float>::operator()(n::Iterator &)::{lambda(float, float)#1}", "sum::{lambda(float, float)#1}"},
        {"n::k<const n::some::type *, unsigned int, m::other &>", "k<const type *, unsigned int, other &>"},
        {"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn..."},
        {"a::kernel_with_a_name_that_is_too_long_for_it<int>", "kernel_with_a_name_that_is_too_long_..."},
        {"broken::a<b::c(d::e{f::g[h::i>>>>>>>>>>>>>>>", "broken::a<b::c(d::e{f::g[h::i>>>>>>>..."},
        {"xxcaf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_",
         "xxcaf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf\xc3\xa9_caf..."}, /* between characters */
        {"bad\xff\n", "bad??"},
    };
    char out[40], deep[4000];
    for (size_t i = 0; i < STITCH__COUNT(rows); i++)
        CHECK_STR(stitch__short_name(rows[i].name, out, sizeof(out)), rows[i].out);
    memset(deep, '<', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    CHECK_INT(strlen(stitch__short_name(deep, out, sizeof(out))), sizeof(out) - 1);
}

TEST(base64)
{
    static const char *const pairs[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foobar", "Zm9vYmFy"}}; /* RFC 4648 */
    static const char *const bad[] = {"Zg", "Zg=", "Z===", "====", "Zm9v!mFy", "Zg==Zg==", "Zm=v"};
    void *data;
    size_t len;
    for (size_t i = 0; i < STITCH__COUNT(pairs); i++) {
        char *text = stitch__base64_encode(NULL, pairs[i][0], strlen(pairs[i][0]));
        CHECK_STR(text, pairs[i][1]);
        CHECK_INT(stitch__base64_decode(NULL, text, strlen(text), &data, &len), STITCH_OK);
        CHECK_INT(len, strlen(pairs[i][0]));
        CHECK(memcmp(data, pairs[i][0], len) == 0);
        stitch_free(text);
        stitch_free(data);
    }
    for (size_t i = 0; i < STITCH__COUNT(bad); i++)
        CHECK_INT(stitch__base64_decode(NULL, bad[i], strlen(bad[i]), &data, &len), STITCH_E_FORMAT);
}

TEST(sha256)
{
    char hex[65], again[65];
    stitch__sha256_of("abc", 3, hex); /* FIPS 180-4 examples */
    CHECK_STR(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    stitch__sha256_of("", 0, hex);
    CHECK_STR(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    stitch__sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, hex);
    CHECK_STR(hex, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static char million[1000000];
    memset(million, 'a', sizeof(million));
    stitch__sha256_of(million, sizeof(million), hex);
    CHECK_STR(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    for (size_t piece = 1; piece < 200; piece += 13) {
        stitch__sha256 h;
        stitch__sha256_init(&h);
        for (size_t at = 0; at < 1000; at += piece)
            stitch__sha256_update(&h, million, 1000 - at < piece ? 1000 - at : piece);
        stitch__sha256_hex(&h, again);
        stitch__sha256_of(million, 1000, hex);
        CHECK_STR(again, hex);
    }
}

TEST(dtypes)
{
    for (int d = STITCH_DTYPE_F64; d <= STITCH_DTYPE_BOOL; d++) {
        CHECK(stitch_dtype_size(d) > 0);
        CHECK_INT(stitch_dtype_parse(stitch_dtype_name(d)), d);
    }
    CHECK_INT(stitch_dtype_size(STITCH_DTYPE_NONE), 0);
    CHECK_INT(stitch_dtype_size(99), 0);
    CHECK(stitch_dtype_name(0) == NULL && stitch_dtype_name(-1) == NULL);
    CHECK_INT(stitch_dtype_parse("float"), STITCH_DTYPE_NONE);
    CHECK_INT(stitch_dtype_parse(NULL), STITCH_DTYPE_NONE);
}

TEST(files)
{
    stitch_error *err = NULL;
    char folder[] = "/tmp/stitch-test-XXXXXX", path[128], *data;
    size_t len;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/a/b/c", folder);
    CHECK_OK(stitch__mkdirs(NULL, path, &err));
    CHECK_OK(stitch__mkdirs(NULL, path, &err));
    char *file = stitch__path_join(NULL, path, "f");
    CHECK_OK(stitch__file_write(NULL, file, "x\0y", 3, &err));
    CHECK_OK(stitch__file_read(NULL, file, 0, &data, &len, &err));
    CHECK_INT(len, 3);
    CHECK(memcmp(data, "x\0y", 4) == 0);
    stitch_free(data);
    CHECK_ERR(stitch__file_read(NULL, file, 2, &data, &len, &err), STITCH_E_LIMIT, "the limit is 2");
    CHECK_ERR(stitch__file_read(NULL, "/nonexistent/x", 0, &data, &len, &err), STITCH_E_NOT_FOUND, "/nonexistent/x");
    CHECK_ERR(stitch__file_read(NULL, "/dev/zero", 0, &data, &len, &err), STITCH_E_IO, "not a regular file");
    CHECK_ERR(stitch__file_write(NULL, "/nonexistent/x", "", 0, &err), STITCH_E_IO, "cannot be written");
    CHECK_ERR(stitch__mkdirs(NULL, "/dev/null/x", &err), STITCH_E_IO, "cannot be made");
    char *beside = stitch__path_beside(NULL, "/a/b.json", "c.cu");
    CHECK_STR(beside, "/a/c.cu");
    stitch_free(beside);
    beside = stitch__path_beside(NULL, "b.json", "c.cu");
    CHECK_STR(beside, "c.cu");
    stitch_free(beside);
    beside = stitch__path_beside(NULL, "/a/b", "/c");
    CHECK_STR(beside, "/c");
    stitch_free(beside);
    CHECK_ERR(stitch__mkdirs(NULL, file, &err), STITCH_E_IO, "cannot be made"); /* a file is in the way */
    CHECK(stitch__path_exists(file) && !stitch__path_exists("/nonexistent/x"));
    unlink(file);
    CHECK_OK(stitch__file_write(NULL, file, NULL, 0, &err));
    CHECK_OK(stitch__file_read(NULL, file, 0, &data, &len, &err));
    CHECK_INT(len, 0);
    CHECK_STR(data, "");
    stitch_free(data);
    unlink(file);
    stitch_free(file);
    for (size_t n = strlen(path); n > strlen(folder); n -= 2) {
        path[n] = 0;
        CHECK_INT(rmdir(path), 0); /* empty: no temporary file was left */
    }
    CHECK_INT(rmdir(folder), 0);
}

TEST(special_files_are_not_replaced)
{
    stitch_error *err = NULL;
    char folder[] = "/tmp/stitch-test-XXXXXX", path[64], *data;
    struct stat st;
    size_t len;
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(stitch__file_write(NULL, "/dev/null", "x", 1, &err));
    CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    CHECK_ERR(stitch__file_write(NULL, folder, "x", 1, &err), STITCH_E_IO, "not a regular file");
    snprintf(path, sizeof(path), "%s/fifo", folder);
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_ERR(stitch__file_write(NULL, path, "x", 1, &err), STITCH_E_IO, "not a regular file");
    CHECK_ERR(stitch__file_read(NULL, path, 0, &data, &len, &err), STITCH_E_IO,
              "not a regular file"); /* does not hang */
    unlink(path);
    CHECK_ERR(stitch__file_read(NULL, folder, 0, &data, &len, &err), STITCH_E_IO, "not a regular file");
    rmdir(folder);
}

enum { PAGE = 40000, WRITES = 60 };

static void *write_often(void *path)
{
    char *text = malloc(PAGE);
    for (int i = 0; text && i < WRITES; i++) {
        memset(text, 'a' + i % 26, PAGE);
        if (stitch__file_write(NULL, path, text, PAGE, NULL) != STITCH_OK)
            break;
    }
    free(text);
    return NULL;
}

TEST(readers_see_whole_files)
{
    stitch_error *err = NULL;
    char folder[] = "/tmp/stitch-test-XXXXXX", path[64], *data;
    pthread_t writers[2];
    size_t len;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/f", folder);
    CHECK_OK(stitch__file_write(NULL, path, "", 0, &err));
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&writers[i], NULL, write_often, path), 0);
    for (int i = 0; i < 300; i++) {
        CHECK_OK(stitch__file_read(NULL, path, 0, &data, &len, &err));
        if (len) {
            CHECK_INT(len, PAGE);
            CHECK(memcmp(data, data + 1, PAGE - 1) == 0); /* one writer's text, from end to end */
        }
        stitch_free(data);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    unlink(path);
    CHECK_INT(rmdir(folder), 0);
}

/* A locale with decimal commas, made here: few machines have one. false: not even the tool for it. */
static bool use_commas(const char *folder)
{
    char command[400];

    snprintf(
        command, sizeof(command),
        "printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \"\"\\ngrouping -1\\nEND LC_NUMERIC\\n' > %s/def && "
        "localedef --no-archive -c -i %s/def %s/commas >%s/said 2>&1",
        folder, folder, folder, folder);
    (void)!system(command); /* it warns, and its status says so */
    return setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_NUMERIC, "commas") != NULL;
}

TEST(numbers_have_points_whatever_the_locale)
{
    char folder[] = "/tmp/stitch-test-XXXXXX", command[64], own[32], text[32];
    stitch_dist dist = {.kind = STITCH_DIST_NORMAL, .a = 0.5, .b = 1.25};
    stitch_error *err = NULL;
    stitch__buf b;
    char *end;

    CHECK(mkdtemp(folder) != NULL);
    bool commas = use_commas(folder);
    snprintf(own, sizeof(own), "%.1f", 1.5);
    stitch__buf_init(&b, NULL);
    stitch__buf_printf(&b, "{\"ts\":%.3f}", 1.5);
    stitch__err(NULL, &err, STITCH_E_IO, "after %g s", 0.25);
    stitch__dist_print(&dist, text, sizeof(text));
    double read = stitch__read_double("2.5e1,", &end);
    bool restored = strcmp(localeconv()->decimal_point, commas ? "," : ".") == 0;
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK_INT(system(command), 0);
    CHECK_STR(b.data, "{\"ts\":1.500}");
    CHECK_STR(stitch_error_message(err), "after 0.25 s");
    CHECK_STR(text, "normal(0.5, 1.25)");
    CHECK(read == 25 && *end == ',');
    CHECK(restored);
    stitch__buf_free(&b);
    stitch_error_free(err);
    if (!commas)
        SKIP("no locale with decimal commas could be made (localedef)");
    CHECK_STR(own, "1,5");
}

TEST(random_bytes)
{
    stitch_error *err = NULL;
    unsigned char a[1000] = {0}, b[1000] = {0};
    size_t zeros = 0;
    CHECK_OK(stitch__random(NULL, a, sizeof(a), &err));
    CHECK_OK(stitch__random(NULL, b, sizeof(b), &err));
    CHECK(memcmp(a, b, sizeof(a)) != 0);
    for (size_t i = 0; i < sizeof(a); i++)
        zeros += a[i] == 0;
    CHECK(zeros < 50);
    CHECK_OK(stitch__random(NULL, a, 0, &err));
}

TEST_MAIN(RUN(statuses_have_names), RUN(errors_are_owned_and_replaced), RUN(messages_are_one_line_of_utf8),
          RUN(options_are_checked), RUN(older_and_newer_callers), RUN(defaults), RUN(cancellation_and_deadlines),
          RUN(slots_are_made_once), RUN(slots_are_freed_in_reverse), RUN(slots_are_made_once_for_all_threads),
          RUN(log_lines_cannot_be_forged), RUN(memory), RUN(buffers), RUN(untrusted_text), RUN(suggestions),
          RUN(short_names), RUN(base64), RUN(sha256), RUN(dtypes), RUN(files), RUN(special_files_are_not_replaced),
          RUN(readers_see_whole_files), RUN(numbers_have_points_whatever_the_locale), RUN(random_bytes))
