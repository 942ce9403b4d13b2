/* SPDX-License-Identifier: MIT
 *
 * Prompt templates and the blocks of a reply.
 */
#include "agent/agent.h"
#include "check.h"

static const stitch__var vars[] = {{"name", "N", NULL},
                                   {"empty", "", NULL},
                                   {"null", NULL, NULL},
                                   {"figure", "12.5 us", "(figure)"},
                                   {"nasty", "{{name}}", NULL}};

static void renders(const char *text, bool stable, const char *want)
{
    stitch_error *err = NULL;
    char *out = NULL;
    CHECK_OK(stitch__template_render(NULL, "t", text, vars, STITCH__COUNT(vars), stable, &out, &err));
    CHECK_STR(out, want);
    stitch_free(out);
}

TEST(variables_and_sections)
{
    renders("a {{name}} b", false, "a N b");
    renders("{{#name}}x{{/name}}{{#empty}}y{{/empty}}{{#null}}z{{/null}}", false, "x");
    renders("{{#name}}1{{#empty}}2{{#name}}3{{/name}}{{/empty}}4{{/name}}", false, "14");
    renders("{{figure}}", false, "12.5 us");
    renders("{{figure}}", true, "(figure)");
    renders("{{nasty}}", false, "{{name}}"); /* values are not scanned again */
    renders("", false, "");
    renders("{ {name} }", false, "{ {name} }");
}

TEST(template_errors_name_the_line)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a\n{{nmae}}", "line 2: unknown variable {{nmae}}"},
        {"{{name", "not closed"},
        {"{{#name}}", "section is not closed"},
        {"{{/name}}", "without its beginning"},
        {"{{#name}}{{/empty}}", "without"},
        {"{{}}", "unknown variable"},
    };
    stitch_error *err = NULL;
    char *out = NULL;
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        CHECK_ERR(stitch__template_render(NULL, "t", cases[i].text, vars, STITCH__COUNT(vars), false, &out, &err),
                  STITCH_E_FORMAT, cases[i].message);
        CHECK(out == NULL);
    }
}

static stitch__blocks split(const char *text)
{
    stitch_error *err = NULL;
    stitch__blocks b;
    CHECK_OK(stitch__reply_split(NULL, text, &b, &err));
    return b;
}

TEST(finds_the_blocks)
{
    stitch__blocks b = split("Plan.\n```cuda\nint x;\n```\nthen\n```json\n{}\n```\nend");
    CHECK_STR(b.cuda, "int x;\n");
    CHECK_STR(b.json, "{}\n");
    CHECK_STR(b.notes, "Plan.\nthen\nend\n");
    stitch__blocks_free(&b);
    b = split("~~~~\n````CUDA title=x\r\na ``` b\r\n```\nc\n````\n  ```json\n[1]\n  ```");
    CHECK_STR(b.cuda, "a ``` b\r\n```\nc\n");
    CHECK_STR(b.json, "[1]\n");
    stitch__blocks_free(&b);
    b = split("no blocks `inline` ```not a fence``` here");
    CHECK(!b.cuda && !b.json);
    stitch__blocks_free(&b);
    b = split("```text\n```cuda\n```\n");
    CHECK(!b.cuda);
    stitch__blocks_free(&b);
    b = split("```cpp\nint y;\n```\n```json\n{}\n```");
    CHECK_STR(b.cuda, "int y;\n");
    stitch__blocks_free(&b);
    b = split("```cpp\nint y;\n```\n```cuda\nint z;\n```");
    CHECK_STR(b.cuda, "int z;\n");
    stitch__blocks_free(&b);
    b = split("");
    CHECK_STR(b.notes, "");
    stitch__blocks_free(&b);
}

TEST(refuses_bad_replies)
{
    stitch_error *err = NULL;
    stitch__blocks b;
    CHECK_ERR(stitch__reply_split(NULL, "```cuda\nint x;\n", &b, &err), STITCH_E_REPLY, "cut off");
    CHECK_ERR(stitch__reply_split(NULL, "```cuda\nx\n```\n```cuda\ny\n```\n", &b, &err), STITCH_E_REPLY,
              "more than one ```cuda");
    CHECK_ERR(stitch__reply_split(NULL, "```json\nx\n```\n```json\ny\n```\n", &b, &err), STITCH_E_REPLY,
              "more than one ```json");
    CHECK(!b.cuda && !b.json && !b.notes);
}

TEST_MAIN(RUN(variables_and_sections), RUN(template_errors_name_the_line), RUN(finds_the_blocks),
          RUN(refuses_bad_replies))
