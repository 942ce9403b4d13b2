/* SPDX-License-Identifier: MIT
 *
 * Steps of a launch plan as facts: their order and numbering, and which two pass a buffer on that nothing else uses.
 */
#include "program_fixture.h"

#include "facts_check.h"

#define IFACE "B=4 T=8 C=64; input x f32 B,T,C; weight w f32 C,C; output y f32 B,T,C; state s f32 B,C"
#define BUFFERS                                                                                                        \
    "\"h\": {\"dtype\": \"f32\", \"shape\": [\"M\", \"C\"]}, \"g\": {\"dtype\": \"f32\", \"shape\": [\"M\", \"C\"]}, " \
    "\"big\": {\"dtype\": \"f32\", \"shape\": [3, \"M\", \"C\"]}"
#define PLAN(run) PREPARED("", run)
#define PREPARED(prep, run)                                                                                            \
    "{\"stitch\": 1, \"let\": {\"M\": \"B*T\"}, \"buffers\": {" BUFFERS "}, \"prepare\": [" prep "], \"run\": [" run   \
    "]}"
#define KID(args, more)  "{\"kernel\": \"k\", \"grid\": [1], \"block\": [32], \"args\": [" args "], " more "}"
#define K(args)          "{\"kernel\": \"k\", \"grid\": [1], \"block\": [32], \"args\": [" args "]}"
#define GEMM(a, c, more) "{\"gemm\": {\"a\": \"" a "\", \"b\": \"w\", \"c\": \"" c "\", " MNK more "}}"
#define MNK              "\"m\": \"M\", \"n\": \"C\", \"k\": \"C\""
#define COPY(from, to)   "{\"copy\": {\"from\": \"" from "\", \"to\": \"" to "\"}}"
#define FILL(buffer)     "{\"fill\": {\"buffer\": \"" buffer "\", \"value\": 0}}"
#define LOOP(n, steps)   "{\"repeat\": {\"var\": \"t\", \"count\": " n ", \"steps\": [" steps "]}}"

static stitch_error *err;
static stitch_context *ctx;
static stitch_program *program;
static stitch__facts *facts;

static void finish(void)
{
    stitch__facts_free(facts);
    stitch_program_free(program);
    stitch_context_free(ctx);
    facts = NULL;
    program = NULL;
    ctx = NULL;
}

static void parse(const char *source, const char *json)
{
    finish();
    ctx = new_context(NULL);
    CHECK_OK(stitch_program_parse(ctx, source, json, NULL, &program, &err));
    stitch_interface *i = new_interface(ctx, IFACE);
    CHECK_OK(stitch_program_validate(program, i, NULL, &err));
    stitch_interface_free(i);
    CHECK_OK(stitch__facts_new(ctx, &facts, &err));
}

static void steps_of(const char *json)
{
    parse("", json);
    CHECK_OK(stitch__facts_steps(facts, program, &err));
    CHECK(facts_ok(facts));
}

/* "0-h-2 1-g-3": all pairs. */
static const char *pairs(void)
{
    static char text[512];
    size_t len = 0;
    text[0] = 0;
    for (size_t i = 0; i < facts->step_count; i++) {
        const stitch__step_fact *s = &facts->steps[i];
        CHECK((s->next < 0) == (*s->between == 0) && (s->next < 0) == (s->between_bytes == 0));
        if (s->next >= 0)
            len +=
                (size_t)snprintf(text + len, sizeof(text) - len, "%s%zu-%s-%d", len ? " " : "", i, s->between, s->next);
    }
    return text;
}

TEST(kinds_names_and_places)
{
    steps_of(PLAN(K("\"x\", \"h\"") ", " LOOP(
        "2", COPY("h", "g") ", {\"repeat\": {\"var\": \"u\", \"count\": 1, \"steps\": [" K("\"g\"") "]}}, " FILL(
                 "big")) ", " GEMM("h", "y", "") ", {\"op\": {\"name\": \"norm\", \"args\": [\"y\"]}}"));
    static const struct {
        const char *place, *kind, *name;
        bool moves;
    } want[] = {{"run[0]", "kernel", "k", false},
                {"run[1].repeat.steps[0]", "copy", "", true},
                {"run[1].repeat.steps[1].repeat.steps[0]", "kernel", "k", false},
                {"run[1].repeat.steps[2]", "fill", "", true},
                {"run[2]", "gemm", "", false},
                {"run[3]", "op", "norm", false}};
    CHECK_INT(facts->step_count, STITCH__COUNT(want));
    CHECK(facts->library_steps);
    for (size_t i = 0; i < STITCH__COUNT(want); i++) {
        size_t at = i;
        const stitch__step *step = stitch__steps_leaf(&program->doc.run, &at);
        CHECK_STR(facts->steps[i].place, want[i].place);
        CHECK_STR(step->place, want[i].place); /* the numbering that the timeline has */
        CHECK_STR(facts->steps[i].kind, want[i].kind);
        CHECK_STR(facts->steps[i].name, want[i].name);
        CHECK_INT(facts->steps[i].moves_only, want[i].moves);
    }
    CHECK_OK(stitch__facts_steps(facts, program, &err)); /* again: in place of the old ones */
    CHECK_INT(facts->step_count, STITCH__COUNT(want));
    steps_of(PLAN(K("\"x\", \"y\", \"x\"")));
    CHECK(!facts->library_steps);
    CHECK_INT(facts->steps[0].bytes, 2 * 4 * 8 * 64 * 4); /* each tensor once */
}

TEST(not_validated)
{
    finish();
    ctx = new_context(NULL);
    CHECK_OK(stitch_program_parse(ctx, "", PLAN(K("\"y\"")), NULL, &program, &err));
    CHECK_OK(stitch__facts_new(ctx, &facts, &err));
    CHECK_ERR(stitch__facts_steps(facts, program, &err), STITCH_E_STATE, "not been validated");
    CHECK_INT(facts->step_count, 0);
    finish();
}

TEST(a_buffer_between_two_steps)
{
    static const struct {
        const char *json, *pairs;
    } cases[] = {
        {PLAN(K("\"x\", \"h\"") ", " K("\"h\", \"y\"")), "0-h-1"},
        {PLAN(GEMM("x", "h", "") ", " K("\"h\", \"y\"")), "0-h-1"},
        {PLAN(K("\"x\", \"h\"") ", " GEMM("h", "g", "") ", " COPY("g", "y")), "0-h-1 1-g-2"},
        {PLAN(FILL("h") ", " K("\"x\", \"g\"") ", " K("\"h\", \"g\", \"y\"")), "0-h-2 1-g-2"},
        /* three users */
        {PLAN(K("\"x\", \"h\"") ", " K("\"h\"") ", " K("\"h\", \"y\"")), ""},
        {PLAN(COPY("x", "h") ", " GEMM("h", "g", "") ", " K("\"h\", \"g\", \"y\"")), "1-g-2"},
        /* written twice; written and never read; used by one step alone */
        {PLAN(COPY("x", "h") ", " FILL("h") ", " K("\"y\"")), ""},
        {PLAN(COPY("x", "h") ", " K("\"y\"")), ""},
        {PLAN(K("\"h\", \"h\", \"y\"")), ""},
        /* the product adds to it: it writes it too */
        {PLAN(FILL("h") ", " GEMM("x", "h", ", \"beta\": 1") ", " COPY("h", "y")), ""},
        {PLAN(FILL("h") ", " GEMM("x", "h", ", \"beta\": 1") ", " K("\"y\"")), ""},
        /* but here another matrix is added */
        {PLAN(FILL("h") ", " GEMM("x", "y", ", \"d\": \"h\", \"beta\": 1")), "0-h-1"},
        /* tensors of the task stay where they are */
        {PLAN(K("\"x\", \"s\"") ", " K("\"s\", \"y\"")), ""},
        /* prepare wrote it: no run does */
        {PREPARED(COPY("w", "big"), K("\"x\", \"big\", \"g\"") ", " K("\"big\", \"g\", \"y\"")), "0-g-1"},
        /* the larger of two */
        {PLAN(K("\"x\", \"h\", \"big\"") ", " K("\"h\", \"big\", \"y\"")), "0-big-1"},
        {PLAN(K("\"x\", \"big\", \"h\"") ", " K("\"h\", \"y\"") ", " K("\"big\", \"y\"")), "0-big-2"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        steps_of(cases[i].json);
        if (strcmp(pairs(), cases[i].pairs) != 0)
            FAIL("case %zu: got \"%s\", expected \"%s\"", i, pairs(), cases[i].pairs);
    }
    steps_of(cases[0].json);
    CHECK_INT(facts->steps[0].between_bytes, 4 * 8 * 64 * 4);
    finish();
}

TEST(parts_of_one_buffer)
{
    static const struct {
        const char *json, *pairs;
    } cases[] = {
        /* the second half is not what the first step wrote */
        {PLAN(K("\"x\", \"big\"") ", " K("\"big + M*C\", \"y\"")), ""},
        {PLAN(K("\"x\", \"big + M*C\"") ", " K("\"big + M*C\", \"y\"")), "0-big-1"},
        {PLAN(K("\"x\", \"big + 64\"") ", " K("\"big + 65\", \"y\"")), ""},
        {PLAN(K("\"x\", \"big\"") ", " K("\"big + 0\", \"y\"")), "0-big-1"},
        /* one of three parts is, so the whole is (q, k and v of one product) */
        {PLAN(K("\"x\", \"big\"") ", " K("\"big + 2*M*C\", \"big + M*C\", \"big\", \"y\"")), "0-big-1"},
        {PLAN(K("\"x\", \"big\", \"big + M*C\"") ", " K("\"big + M*C\", \"y\"")), "0-big-1"},
        /* two writers of different parts */
        {PLAN(COPY("x", "big") ", " COPY("x", "big + M*C") ", " K("\"big\", \"y\"")), ""},
        {PLAN(COPY("x", "big") ", " COPY("x", "big + M*C") ", " K("\"big\", \"big + M*C\", \"y\"")), ""},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        steps_of(cases[i].json);
        if (strcmp(pairs(), cases[i].pairs) != 0)
            FAIL("case %zu: got \"%s\", expected \"%s\"", i, pairs(), cases[i].pairs);
    }
    finish();
}

TEST(loops)
{
    static const struct {
        const char *json, *pairs;
    } cases[] = {
        {PLAN(LOOP("3", K("\"x\", \"h + t*C\"") ", " K("\"h + t*C\", \"y\""))), "0-h-1"},
        {PLAN(LOOP("3", K("\"x\", \"h + t*C\"") ", " K("\"h + (t + 1)*C\", \"y\""))), ""},
        /* the step behind or before the loop has all rounds to do with */
        {PLAN(LOOP("3", K("\"x\", \"h\"")) ", " K("\"h\", \"y\"")), ""},
        {PLAN(K("\"x\", \"h\"") ", " LOOP("3", K("\"h\", \"y\""))), ""},
        {PLAN(LOOP("3", K("\"x\", \"h\"")) ", " LOOP("3", K("\"h\", \"y\""))), ""},
        {PLAN(K("\"x\", \"h\"") ", " LOOP("2", K("\"s\"")) ", " K("\"h\", \"y\"")), "0-h-2"},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        steps_of(cases[i].json);
        if (strcmp(pairs(), cases[i].pairs) != 0)
            FAIL("case %zu: got \"%s\", expected \"%s\"", i, pairs(), cases[i].pairs);
    }
    finish();
}

TEST(dependencies)
{
    static const struct {
        const char *json, *pairs;
    } cases[] = {
        {PLAN(KID("\"x\", \"h\"", "\"id\": \"a\", \"after\": []") ", " KID("\"h\", \"y\"", "\"after\": [\"a\"]")),
         "0-h-1"},
        /* the text has the reader first */
        {PLAN(KID("\"h\", \"y\"", "\"after\": [\"b\"]") ", " KID(
             "\"x\", \"g\"", "\"id\": \"a\", \"after\": []") ", " KID("\"g\", \"h\"",
                                                                      "\"id\": \"b\", \"after\": [\"a\"]")),
         "1-g-2 2-h-0"},
        /* over a third step */
        {PLAN(KID("\"x\", \"h\"", "\"id\": \"a\", \"after\": []") ", " KID(
             "\"s\"", "\"id\": \"b\", \"after\": [\"a\"]") ", " KID("\"h\", \"y\"", "\"after\": [\"b\"]")),
         "0-h-2"},
        /* nothing says which comes first */
        {PLAN(KID("\"x\", \"h\"", "\"after\": []") ", " KID("\"h\", \"y\"", "\"after\": []")), ""},
    };
    for (size_t i = 0; i < STITCH__COUNT(cases); i++) {
        steps_of(cases[i].json);
        if (strcmp(pairs(), cases[i].pairs) != 0)
            FAIL("case %zu: got \"%s\", expected \"%s\"", i, pairs(), cases[i].pairs);
    }
    finish();
}

/* 600 steps: those past the limit are not there, but they count as users. */
TEST(many_steps)
{
    stitch__buf b;
    stitch__buf_init(&b, NULL);
    stitch__buf_puts(&b, "{\"stitch\": 1, \"let\": {\"M\": \"B*T\"}, \"buffers\": {" BUFFERS "}, \"run\": [");
    for (int i = 0; i < 600; i++)
        stitch__buf_printf(&b, "%s%s", i ? ", " : "",
                           i == 100   ? K("\"x\", \"g\"")
                           : i == 200 ? K("\"g\", \"h\"")
                           : i == 300 ? K("\"x\", \"big\"")
                           : i == 400 ? K("\"big\", \"y\"")
                           : i == 550 ? K("\"big\", \"h\", \"y\"")
                                      : K("\"y\""));
    stitch__buf_puts(&b, "]}");
    steps_of(b.data);
    CHECK_INT(facts->step_count, STITCH__FACTS_STEPS);
    CHECK_STR(pairs(), "100-g-200");
    stitch__buf_free(&b);
    finish();
}

/* With the types of the kernels' parameters. */
TEST(compiled)
{
    static const char source[] =
        "__global__ void k(const float *a, float *b) { b[threadIdx.x] = a[threadIdx.x]; }\n"
        "__global__ void m(float *a, float *b) { a[threadIdx.x] += 1; b[threadIdx.x] = a[threadIdx.x]; }\n";
    stitch_compile_options o = STITCH_COMPILE_OPTIONS_INIT;
    o.arch = "sm_90";
    o.ptx = 1;
    parse(source, PLAN(K("\"x\", \"h\"") ", " K("\"h\", \"g\"") ", {\"kernel\": \"m\", \"grid\": [1], \"block\": [32], "
                                                                "\"args\": [\"g\", \"y\"]}"));
    CHECK_OK(stitch__facts_steps(facts, program, &err));
    CHECK_STR(pairs(), "0-h-1 1-g-2");
    int rc = stitch_program_compile(program, &o, NULL, &err);
    if (rc == STITCH_E_NO_LIBRARY) {
        stitch_error_free(err);
        err = NULL;
        finish();
        SKIP("no NVRTC");
    }
    CHECK_OK(rc);
    CHECK_OK(stitch__facts_steps(facts, program, &err));
    CHECK_STR(pairs(), "0-h-1"); /* m may write g as well */
    finish();
}

/* ---- memory ---- */

typedef struct meter {
    int64_t calls, refuse_at;
} meter;

static void *meter_alloc(size_t size, void *userdata)
{
    meter *m = userdata;
    return m->calls++ == m->refuse_at ? NULL : malloc(size);
}

static void *meter_realloc(void *ptr, size_t size, void *userdata)
{
    meter *m = userdata;
    return m->calls++ == m->refuse_at ? NULL : realloc(ptr, size);
}

static void meter_free(void *ptr, void *userdata)
{
    (void)userdata;
    free(ptr);
}

TEST(every_allocation_fails)
{
    meter m = {0, -1};
    stitch_allocator allocator = {sizeof(allocator), meter_alloc, meter_realloc, meter_free, &m};
    stitch_context *own = new_context(&allocator);
    bool done = false;
    parse("", PLAN(KID("\"x\", \"h\"", "\"id\": \"a\", \"after\": []") ", " KID("\"h\", \"y\"", "\"after\": [\"a\"]")));
    for (int64_t n = 0; !done; n++) {
        stitch__facts *g = NULL;
        m.calls = 0;
        m.refuse_at = n;
        int rc = stitch__facts_new(own, &g, &err);
        if (rc == STITCH_OK)
            rc = stitch__facts_steps(g, program, &err);
        m.refuse_at = -1;
        CHECK(rc == STITCH_OK || rc == STITCH_E_NOMEM);
        CHECK(rc == STITCH_OK ? g->step_count == 2 && g->steps[0].next == 1 : m.calls > n);
        done = m.calls <= n;
        stitch_error_free(err);
        err = NULL;
        stitch__facts_free(g);
        CHECK(n < 1000);
    }
    stitch_context_free(own);
    finish();
}

TEST_MAIN(RUN(kinds_names_and_places), RUN(not_validated), RUN(a_buffer_between_two_steps), RUN(parts_of_one_buffer),
          RUN(loops), RUN(dependencies), RUN(many_steps), RUN(compiled), RUN(every_allocation_fails))
