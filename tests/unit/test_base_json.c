/* SPDX-License-Identifier: MIT
 *
 * Reading JSON documents: places in errors, limits, bad input.
 */
#include <stdio.h>

#include "base/base.h"
#include "check.h"

static json_t *parse(const char *text)
{
    stitch_error *err = NULL;
    json_t *doc = NULL;
    CHECK_OK(stitch__json_parse(NULL, text, strlen(text), 0, "doc", &doc, &err));
    return doc;
}

static void refuses(const char *text, size_t len, size_t limit, int status, const char *part)
{
    stitch_error *err = NULL;
    json_t *doc = NULL;
    CHECK_ERR(stitch__json_parse(NULL, text, len, limit, "doc", &doc, &err), status, part);
    CHECK(doc == NULL);
}

TEST(bad_documents)
{
    char deep[200];
    refuses("", 0, 0, STITCH_E_FORMAT, "doc, line 1");
    refuses("{\"a\":1,\n\"a\":2}", 14, 0, STITCH_E_FORMAT, "line 2");
    refuses("{} x", 4, 0, STITCH_E_FORMAT, "doc");
    refuses("[1,]", 4, 0, STITCH_E_FORMAT, "doc");
    refuses("[NaN]", 5, 0, STITCH_E_FORMAT, "doc");
    refuses("[1e999]", 7, 0, STITCH_E_FORMAT, "doc");
    refuses("[99999999999999999999]", 22, 0, STITCH_E_FORMAT, "doc");
    refuses("[\"\xff\"]", 5, 0, STITCH_E_FORMAT, "doc");
    refuses("[\"\\u0000\"]", 10, 0, STITCH_E_FORMAT, "doc");
    refuses("[1]", 3, 2, STITCH_E_LIMIT, "the limit is 2");
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    refuses(deep, 200, 0, STITCH_E_LIMIT, "nested deeper than 64");
    json_decref(parse("[[[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"]]]"));
}

TEST(many_values)
{
    enum { SIZE = 8 << 20 };
    char *text = malloc(SIZE);
    CHECK(text != NULL);
    memset(text, '[', 1);
    for (size_t i = 1; i < SIZE; i += 3) /* [[],[],... */
        memcpy(text + i, "[],", SIZE - i < 3 ? SIZE - i : 3);
    refuses(text, SIZE, 0, STITCH_E_LIMIT, "more than 2097152 values");
    memset(text, ',', SIZE); /* counted outside strings only */
    memcpy(text, "[\"", 2);
    memcpy(text + SIZE - 2, "\"]", 2);
    stitch_error *err = NULL;
    json_t *doc = NULL;
    CHECK_OK(stitch__json_parse(NULL, text, SIZE, 0, "doc", &doc, &err));
    json_decref(doc);
    free(text);
}

TEST(cut_documents)
{
    static const char whole[] =
        "{\"run\":[{\"gemm\":{\"m\":\"B*T\",\"alpha\":-1.5e3}},[true,false,null,\"\\u00e9\\n\"]]}";
    for (size_t n = 0; n < strlen(whole); n++)
        refuses(whole, n, 0, STITCH_E_FORMAT, "doc, line 1 column");
    json_decref(parse(whole));
}

TEST(places)
{
    stitch__jpath run = {NULL, "run", 0}, third = {&run, NULL, 3}, gemm = {&third, "gemm", 0}, m = {&gemm, "m", 0};
    stitch__jpath deep[200];
    char out[256], small[8];
    stitch__jpath_print(&m, out, sizeof(out));
    CHECK_STR(out, "run[3].gemm.m");
    stitch__jpath_print(NULL, out, sizeof(out));
    CHECK_STR(out, "");
    stitch__jpath_print(&m, small, sizeof(small));
    CHECK_STR(small, "run[3].");
    for (size_t i = 0; i < STITCH__COUNT(deep); i++)
        deep[i] = (stitch__jpath){i ? &deep[i - 1] : NULL, "a_rather_long_key", 0};
    stitch__jpath_print(&deep[199], out, sizeof(out));
    CHECK_INT(strlen(out), sizeof(out) - 1);
}

TEST(typed_members)
{
    stitch_error *err = NULL;
    json_t *doc = parse("{\"s\":\"x\",\"i\":5,\"n\":1.5,\"b\":true,\"l\":[1]}");
    stitch__jpath run = {NULL, "run", 0}, third = {&run, NULL, 3}, gemm = {&third, "gemm", 0};
    const char *s = "kept";
    int64_t i = 7;
    double n = 0;
    bool b = false;
    CHECK_OK(stitch__json_string(NULL, doc, &gemm, "s", true, &s, &err));
    CHECK_STR(s, "x");
    CHECK_OK(stitch__json_int(NULL, doc, &gemm, "i", true, 0, 10, &i, &err));
    CHECK_INT(i, 5);
    CHECK_OK(stitch__json_number(NULL, doc, &gemm, "n", true, &n, &err));
    CHECK_OK(stitch__json_number(NULL, doc, &gemm, "i", true, &n, &err));
    CHECK_NEAR(n, 5, 0);
    CHECK_OK(stitch__json_bool(NULL, doc, &gemm, "b", true, &b, &err));
    CHECK(b);
    s = "kept";
    CHECK_OK(stitch__json_string(NULL, doc, &gemm, "missing", false, &s, &err));
    CHECK_STR(s, "kept");
    CHECK_ERR(stitch__json_string(NULL, doc, &gemm, "missing", true, &s, &err), STITCH_E_FORMAT,
              "run[3].gemm: 'missing' is missing");
    CHECK_ERR(stitch__json_string(NULL, doc, &gemm, "l", true, &s, &err), STITCH_E_FORMAT,
              "run[3].gemm.l: expected a string, found a list");
    CHECK_ERR(stitch__json_int(NULL, doc, &gemm, "n", true, 0, 9, &i, &err), STITCH_E_FORMAT,
              "expected an integer, found a number");
    CHECK_ERR(stitch__json_int(NULL, doc, &gemm, "i", true, 6, 9, &i, &err), STITCH_E_FORMAT,
              "5 is not between 6 and 9");
    CHECK_ERR(stitch__json_number(NULL, doc, &gemm, "s", true, &n, &err), STITCH_E_FORMAT, "expected a number");
    CHECK_ERR(stitch__json_bool(NULL, doc, &gemm, "i", true, &b, &err), STITCH_E_FORMAT, "expected true or false");
    json_decref(doc);
}

TEST(unknown_keys)
{
    static const char *const keys[] = {"kernel", "grid", "block", NULL};
    stitch_error *err = NULL;
    json_t *doc = parse("{\"kernel\":1,\"gird\":2}"), *list = parse("[]");
    CHECK_ERR(stitch__json_keys(NULL, doc, NULL, keys, &err), STITCH_E_FORMAT,
              "unknown key 'gird'; did you mean 'grid'?");
    CHECK_ERR(stitch__json_keys(NULL, list, NULL, keys, &err), STITCH_E_FORMAT, "expected an object, found a list");
    CHECK_ERR(stitch__json_keys(NULL, NULL, NULL, keys, &err), STITCH_E_FORMAT, "found nothing");
    json_object_del(doc, "gird");
    CHECK_OK(stitch__json_keys(NULL, doc, NULL, keys, &err));
    json_decref(doc);
    json_decref(list);
}

TEST(dumps)
{
    json_t *doc = parse("{\"b\":[1,2.5],\"a\":\"\\u00e9\\n\"}");
    char *text = stitch__json_dump(NULL, doc, 0);
    CHECK_STR(text, "{\"b\":[1,2.5],\"a\":\"\xc3\xa9\\n\"}");
    stitch_free(text);
    text = stitch__json_dump(NULL, doc, 2);
    CHECK_HAS(text, "{\n  \"b\": [\n    1,");
    stitch_free(text);
    json_decref(doc);
    doc = json_string("alone");
    text = stitch__json_dump(NULL, doc, 0);
    CHECK_STR(text, "\"alone\"");
    stitch_free(text);
    json_decref(doc);
}

TEST_MAIN(RUN(bad_documents), RUN(many_values), RUN(cut_documents), RUN(places), RUN(typed_members), RUN(unknown_keys),
          RUN(dumps))
