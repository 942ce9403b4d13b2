/* SPDX-License-Identifier: MIT
 *
 * Allocators of the host: every failing allocation in turn, nothing leaked, blocks that outlive their context.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"
#include "check.h"
#include "meter.h"

static int make_slot(stitch_context *ctx, void **state, stitch_error **err)
{
    *state = stitch__alloc(ctx, 100);
    return *state ? STITCH_OK : stitch__err_nomem(ctx, err);
}

static int use_memory(stitch_context *ctx, stitch_error **err)
{
    stitch__arena arena = {ctx, NULL};
    uint32_t *array = NULL;
    size_t cap = 0;
    int rc = STITCH_E_NOMEM;
    for (size_t i = 0; i < 100; i++) {
        if (stitch__grow(ctx, &array, &cap, i + 1, sizeof(*array)) != STITCH_OK)
            goto out;
        array[i] = 7;
    }
    for (size_t i = 0; i < 8; i++) {
        if (!stitch__arena_alloc(&arena, 1000 * i) || !stitch__arena_printf(&arena, "%zu", i) ||
            !stitch__arena_strdup(&arena, "text"))
            goto out;
    }
    rc = STITCH_OK;
out:
    stitch__arena_free(&arena);
    stitch_free(array);
    return rc ? stitch__err_nomem(ctx, err) : STITCH_OK;
}

static int use_text(stitch_context *ctx, stitch_error **err)
{
    stitch__buf b;
    void *data = NULL;
    size_t len;
    char *encoded = NULL, *text;
    stitch__buf_init(&b, ctx);
    for (int i = 0; i < 200; i++)
        stitch__buf_printf(&b, "%d %s", i, "x");
    stitch__buf_printf(&b, "%0400d", 1);
    stitch__buf_puts_clean(&b, "\x1b[0m", 4, 4);
    text = stitch__buf_take(&b, &len);
    encoded = text ? stitch__base64_encode(ctx, text, len) : NULL;
    int rc = encoded ? stitch__base64_decode(ctx, encoded, strlen(encoded), &data, &len) : STITCH_E_NOMEM;
    stitch_free(text);
    stitch_free(encoded);
    stitch_free(data);
    return rc ? stitch__err_nomem(ctx, err) : STITCH_OK;
}

static int use_json(stitch_context *ctx, stitch_error **err)
{
    static const char doc[] = "{\"dims\":{\"n\":4},\"list\":[1,2.5,\"three\",null,true]}", bad[] = "{\"n\":\n1,}";
    json_t *root = NULL;
    int rc = stitch__json_parse(ctx, bad, strlen(bad), 0, "bad", &root, err);
    if (rc != STITCH_E_FORMAT || root)
        return STITCH_E_INTERNAL;
    rc = stitch__json_parse(ctx, doc, strlen(doc), 0, "doc", &root, err);
    char *text = rc ? NULL : stitch__json_dump(ctx, root, 2);
    if (rc == STITCH_OK && !text)
        rc = stitch__err_nomem(ctx, err);
    stitch_free(text);
    json_decref(root);
    return rc;
}

static int use_files(stitch_context *ctx, const char *folder, stitch_error **err)
{
    char *below = stitch__path_join(ctx, folder, "a/b"), *file = NULL, *beside = NULL, *data = NULL;
    size_t len;
    int rc = below ? stitch__mkdirs(ctx, below, err) : stitch__err_nomem(ctx, err);
    if (rc == STITCH_OK && !(file = stitch__path_join(ctx, below, "f")))
        rc = stitch__err_nomem(ctx, err);
    if (rc == STITCH_OK)
        rc = stitch__file_write(ctx, file, "content", 7, err);
    if (rc == STITCH_OK)
        rc = stitch__file_read(ctx, file, 0, &data, &len, err);
    if (rc == STITCH_OK && !(beside = stitch__path_beside(ctx, file, "g")))
        rc = stitch__err_nomem(ctx, err);
    if (file)
        unlink(file);
    stitch_free(data);
    stitch_free(beside);
    stitch_free(file);
    stitch_free(below);
    return rc;
}

/* Everything the module allocates, until the first failure. Frees what it made, but not the error. */
static int scenario(meter *m, const char *folder, stitch_error **err)
{
    stitch_allocator a = {sizeof(a), meter_alloc, meter_realloc, meter_free, m};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    void *state;
    o.allocator = &a;
    o.device = "sim:sm_90a";
    o.cuda_path = "/usr/local/cuda";
    int rc = stitch_context_new(&ctx, &o, err);
    memset(&a, 0xff, sizeof(a)); /* the context keeps a copy */
    if (rc == STITCH_OK)
        rc = stitch__context_slot(ctx, STITCH__SLOT_TASK, make_slot, stitch_free, &state, err);
    if (rc == STITCH_OK)
        rc = use_memory(ctx, err);
    if (rc == STITCH_OK)
        rc = use_text(ctx, err);
    if (rc == STITCH_OK)
        rc = use_json(ctx, err);
    if (rc == STITCH_OK)
        rc = use_files(ctx, folder, err);
    stitch_context_free(ctx);
    return rc;
}

static void fail_each(bool for_good)
{
    char folder[] = "/tmp/stitch-test-XXXXXX", path[64];
    int64_t calls = 0;
    int rc = STITCH_E_NOMEM;
    CHECK(mkdtemp(folder) != NULL);
    for (int64_t n = 0; n < 10000; n++) {
        meter m = {0, n, 0, for_good};
        stitch_error *err = NULL;
        rc = scenario(&m, folder, &err);
        calls = m.calls;
        /* An error that found no memory for its own text is the constant one, and the call goes on to say what it had
         * to say; so the loop is over only when no call was refused. */
        if (rc != STITCH_OK && rc != STITCH_E_NOMEM)
            FAIL("call %" PRId64 " refused: %s: %s", n, stitch_status_name(rc), stitch_error_message(err));
        if (rc == STITCH_E_NOMEM)
            CHECK_STR(stitch_error_message(err), "out of memory");
        stitch_error_free(err);
        if (m.live != 0)
            FAIL("call %" PRId64 " refused: %" PRId64 " blocks are left", n, m.live);
        if (m.calls <= n)
            break;
    }
    CHECK_INT(rc, STITCH_OK);
    CHECK(calls > 50);
    snprintf(path, sizeof(path), "%s/a/b", folder);
    rmdir(path);
    snprintf(path, sizeof(path), "%s/a", folder);
    rmdir(path);
    CHECK_INT(rmdir(folder), 0); /* no temporary file was left behind */
}

TEST(each_allocation_fails_once)
{
    fail_each(false);
}

TEST(each_allocation_fails_and_all_later_ones)
{
    fail_each(true);
}

TEST(errors_outlive_their_context)
{
    meter m = {0, -1, 0, false};
    stitch_allocator a = {sizeof(a), meter_alloc, meter_realloc, meter_free, &m};
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    o.allocator = &a;
    CHECK_OK(stitch_context_new(&ctx, &o, &err));
    stitch__err(ctx, &err, STITCH_E_FORMAT, "line %d", 3);
    stitch__err_details(&err, "much text");
    char *text = stitch__strdup(ctx, "kept");
    stitch_context_free(ctx);
    CHECK(m.live > 0);
    CHECK_STR(stitch_error_message(err), "line 3");
    CHECK_STR(text, "kept");
    text = stitch__realloc(NULL, text, 1000); /* by the allocator that made it */
    CHECK_STR(text, "kept");
    stitch_free(text);
    stitch_error_free(err);
    CHECK_INT(m.live, 0);
}

TEST(allocators_are_checked)
{
    meter m = {0, -1, 0, false};
    stitch_allocator a = STITCH_ALLOCATOR_INIT;
    stitch_context_options o = STITCH_CONTEXT_OPTIONS_INIT;
    stitch_context *ctx = NULL;
    stitch_error *err = NULL;
    o.allocator = &a;
    CHECK_OK(stitch_context_new(&ctx, &o, &err)); /* none of the functions: malloc */
    CHECK(stitch__context_options(ctx)->allocator == NULL);
    stitch_context_free(ctx);
    a.userdata = &m;
    for (int set = 1; set < 7; set++) { /* some, not all */
        a.alloc = set & 1 ? meter_alloc : NULL;
        a.realloc = set & 2 ? meter_realloc : NULL;
        a.free = set & 4 ? meter_free : NULL;
        CHECK_ERR(stitch_context_new(&ctx, &o, &err), STITCH_E_INVALID, "or none of them");
        CHECK(ctx == NULL);
    }
    a.struct_size = 4;
    CHECK_ERR(stitch_context_new(&ctx, &o, &err), STITCH_E_INVALID, "struct_size");
    CHECK_INT(m.calls, 0);
}

TEST_MAIN(RUN(each_allocation_fails_once), RUN(each_allocation_fails_and_all_later_ones),
          RUN(errors_outlive_their_context), RUN(allocators_are_checked))
