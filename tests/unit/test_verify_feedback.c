/* SPDX-License-Identifier: MIT
 *
 * What a model is told: the decisive fact first, quoted text cleaned, within the budget.
 */
#include "base/base.h"
#include "check.h"
#include "verify/verify.h"

static stitch_context *ctx;
static stitch_error *err;

__attribute__((destructor)) static void release(void)
{
    stitch_error_free(err);
    stitch_context_free(ctx);
}

static stitch_report *make(void)
{
    stitch_report *r = NULL;
    if (!ctx)
        CHECK_OK(stitch_context_new(&ctx, NULL, &err));
    CHECK_OK(stitch__report_new(ctx, &r, &err));
    CHECK_OK(stitch__report_set(r, &r->task_name, "task", 100, &err));
    return r;
}

static char *feedback(stitch_report *r, size_t max)
{
    char *text = NULL;
    CHECK_OK(stitch__report_finish(r, &err));
    CHECK_OK(stitch_report_feedback(r, max, &text, &err));
    CHECK(stitch__utf8_valid(text, strlen(text)));
    stitch_report_free(r);
    return text;
}

static void add_diag(stitch_report *r, int severity, int line, const char *message, const char *source)
{
    stitch_diagnostic d = STITCH_DIAGNOSTIC_INIT;
    d.severity = severity;
    d.line = line;
    d.column = 3;
    d.file = "program.cu";
    d.message = message;
    CHECK_OK(stitch__report_add_diag(r, &d, source, &err));
}

TEST(compile_errors_with_their_lines)
{
    static const char source[] = "line one\n  int x = y;\nline three";
    stitch_report *r = make();
    char *text;

    add_diag(r, STITCH_SEVERITY_WARNING, 1, "unused variable", source);
    add_diag(r, STITCH_SEVERITY_ERROR, 2, "identifier \"y\" is undefined", source);
    add_diag(r, STITCH_SEVERITY_ERROR, 99, "beyond the end", source);
    CHECK_OK(
        stitch__report_stage_set(r, STITCH_STAGE_COMPILE, STITCH_STAGE_FAILED, STITCH_E_COMPILE, "2 errors", &err));
    text = feedback(r, 0);
    CHECK(strncmp(text, "Verification failed in stage compile: 2 errors\n", 47) == 0);
    CHECK_HAS(text, "program.cu:2:3: error: identifier \"y\" is undefined\n      2 |   int x = y;\n");
    CHECK_HAS(text, "program.cu:99:3: error: beyond the end\n");
    CHECK(strstr(text, "unused variable") == NULL); /* warnings do not matter beside errors */
    stitch_free(text);
}

TEST(quotes_hostile_text_cleaned_and_cut)
{
    stitch_report *r = make();
    char huge[6000], *text;

    memset(huge, 'A', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = 0;
    add_diag(r, STITCH_SEVERITY_ERROR, 1, "bad \x1b[2J \xff escape", huge);
    add_diag(r, STITCH_SEVERITY_ERROR, 1, huge, "x");
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_COMPILE, STITCH_STAGE_FAILED, STITCH_E_COMPILE, "e", &err));
    text = feedback(r, 0);
    CHECK(strchr(text, 0x1b) == NULL);
    CHECK_HAS(text, "bad ?[2J ? escape");
    CHECK_HAS(text, "bytes left out");
    CHECK(strlen(text) < 2500);
    stitch_free(text);
}

TEST(keeps_the_budget)
{
    static const size_t budgets[] = {1, 256, 300, 500, 1000, 4000, 0};
    for (size_t k = 0; k < sizeof(budgets) / sizeof(budgets[0]); k++) {
        stitch_report *r = make();
        size_t limit = budgets[k] == 0 ? 8192 : budgets[k] < 256 ? 256 : budgets[k];
        char *text;
        for (int i = 0; i < 500; i++)
            add_diag(r, STITCH_SEVERITY_ERROR, 1, "m\xc3\xa9ssage with a letter of two bytes, again and again",
                     "source \xc3\xa9");
        CHECK_INT(r->diag_count, 200);
        CHECK_INT(r->diags_left_out, 300);
        CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_COMPILE, STITCH_STAGE_FAILED, STITCH_E_COMPILE, "500 errors",
                                          &err));
        text = feedback(r, budgets[k]);
        if (strlen(text) > limit)
            FAIL("%zu bytes with a budget of %zu", strlen(text), limit);
        CHECK_HAS(text, "500 errors");
        stitch_free(text);
    }
}

TEST(wrong_outputs)
{
    stitch_report *r = make();
    stitch__trial *t;
    char *text;

    r->tensors = stitch__calloc(ctx, 1, sizeof(*r->tensors));
    r->tensors[0].name = stitch__strdup(ctx, "y");
    r->tensors[0].rank = 2;
    r->tensors[0].shape[0] = 4;
    r->tensors[0].shape[1] = 8;
    r->tensor_count = 1;
    t = stitch__report_add_trial(r, "declared", true, 1);
    t->ran = true;
    t->outputs[0].c = (stitch__comparison){.elements = 32,
                                           .mismatches = 8,
                                           .first = 24,
                                           .last = 31,
                                           .worst = 24,
                                           .unwritten = 8,
                                           .unwritten_first = 24,
                                           .nan_got = 8,
                                           .finite = 24};
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_FAILED, STITCH_E_VALIDATE, "wrong", &err));
    text = feedback(r, 0);
    CHECK_HAS(text, "8 of 32 elements are wrong");
    CHECK_HAS(text, "8 were never written, the first is y[3, 0]");
    CHECK_HAS(text, "0 of 1 trials with fresh inputs passed");
    stitch_free(text);
}

TEST(nothing_written)
{
    stitch_report *r = make();
    stitch__trial *t;
    char *text;

    r->tensors = stitch__calloc(ctx, 1, sizeof(*r->tensors));
    r->tensors[0].name = stitch__strdup(ctx, "y");
    r->tensor_count = 1;
    t = stitch__report_add_trial(r, "declared", true, 1);
    t->ran = true;
    t->outputs[0].c = (stitch__comparison){.elements = 1, .mismatches = 1, .unwritten = 1, .nan_got = 1};
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_FAILED, STITCH_E_VALIDATE, "wrong", &err));
    text = feedback(r, 0);
    CHECK_HAS(text, "none of its 1 elements was written");
    stitch_free(text);
}

TEST(findings_of_validation)
{
    stitch_report *r = make();
    char *text;
    CHECK_OK(stitch__report_set(r, &r->findings, "run[0].kernel: grid[0] is 0\nrun[1]: second", 1000, &err));
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_VALIDATE, STITCH_STAGE_FAILED, STITCH_E_VALIDATE,
                                      "run[0].kernel: grid[0] is 0", &err));
    text = feedback(r, 0);
    CHECK(strncmp(text, "Verification failed in stage validate: run[0].kernel: grid[0] is 0\n", 67) == 0);
    CHECK_HAS(text, "run[1]: second\n");
    stitch_free(text);
}

/* Timed, beside two baselines. */
static stitch_report *make_timed(void)
{
    stitch_report *r = make();

    r->precision = STITCH_PRECISION_F16;
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_PASSED, 0, "", &err));
    CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_TIME, STITCH_STAGE_PASSED, 0, "", &err));
    r->baselines = stitch__calloc(ctx, 2, sizeof(*r->baselines));
    r->baseline_count = 2;
    CHECK_OK(stitch__report_set(r, &r->baselines[0].name, "eager, float32", 100, &err));
    CHECK_OK(stitch__report_set(r, &r->baselines[1].name, "eager, TF32", 100, &err));
    r->baselines[0].precision = STITCH_PRECISION_F32;
    r->baselines[1].precision = STITCH_PRECISION_TF32;
    CHECK_OK(stitch__timing_add(r, &r->candidate, 10, &err));
    CHECK_OK(stitch__timing_add(r, &r->baselines[0], 40, &err));
    CHECK_OK(stitch__timing_add(r, &r->baselines[1], 20, &err));
    stitch__timing_finish(r, &r->candidate);
    stitch__timing_finish(r, &r->baselines[0]);
    stitch__timing_finish(r, &r->baselines[1]);
    return r;
}

TEST(a_passed_program_with_figures)
{
    char *text = feedback(make_timed(), 0);

    CHECK(strncmp(text, "The program is correct and takes 10.00 us", 41) == 0);
    CHECK_HAS(text, "4.00 x as fast as the baseline");
    CHECK_HAS(text, "Against eager, float32 (precision f32): 40.00 us, speed-up 4.00 x");
    CHECK_HAS(text, "Also against eager, TF32 (precision tf32): 20.00 us, speed-up 2.00 x");
    CHECK_HAS(text, "The task allows precision f16");
    CHECK(!strstr(text, "idles for")); /* not known */
    stitch_free(text);
}

TEST(nothing_is_won_on_a_degenerate_task)
{
    stitch_report *r = make_timed();
    char *text;

    r->exploit.degenerate = true;
    CHECK_OK(stitch__report_set(r, &r->exploit.degenerate_reason, "zeros pass", 100, &err));
    text = feedback(r, 0);
    CHECK(!strstr(text, "4.00 x") && !strstr(text, "2.00 x"));
    CHECK_HAS(text, "Against eager, float32 (precision f32): 40.00 us; no speed-up counts\n");
    stitch_free(text);
}

TEST(an_idle_device)
{
    static const struct {
        double busy_us;
        uint64_t launches;
        const char *says; /* NULL: nothing */
    } rows[] = {{4, 9, "fewer and larger kernels"},
                {4, 1, "that is what its one launch costs"},
                {7.5, 9, NULL}, /* too little to speak of */
                {12, 9, NULL},
                {0, 9, NULL}};

    for (size_t i = 0; i < STITCH__COUNT(rows); i++) {
        stitch_report *r = make();
        CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_PASSED, 0, "", &err));
        CHECK_OK(stitch__timing_add(r, &r->candidate, 10, &err));
        stitch__timing_finish(r, &r->candidate);
        r->busy_us = rows[i].busy_us;
        r->launches = rows[i].launches;
        char *text = feedback(r, 0);
        CHECK((strstr(text, "idles for") != NULL) == (rows[i].says != NULL));
        if (rows[i].says) {
            CHECK_HAS(text, "The device works in 4.00 us of the 10.00 us and idles for 60 %: ");
            CHECK_HAS(text, rows[i].says);
        }
        stitch_free(text);
    }
}

/* The profile's verdict says it better. */
TEST(an_idle_device_with_a_profile)
{
    for (int bound = 0; bound < STITCH__BOUND_CLASSES; bound++) {
        stitch_report *r = make();
        stitch_profile *p = stitch__calloc(NULL, 1, sizeof(*p));
        CHECK(p != NULL);
        CHECK_OK(stitch__facts_new(NULL, &p->facts, &err));
        p->json = stitch__strdup(NULL, "{}");
        p->advice.run = (stitch__verdict){.bound = bound, .because = "it is so"};
        CHECK_OK(stitch__report_stage_set(r, STITCH_STAGE_CORRECT, STITCH_STAGE_PASSED, 0, "", &err));
        CHECK_OK(stitch__timing_add(r, &r->candidate, 10, &err));
        stitch__timing_finish(r, &r->candidate);
        r->profile = p;
        r->busy_us = 4;
        r->launches = 9;
        char *text = feedback(r, 0);
        CHECK_HAS(text, "it is so");
        CHECK((strstr(text, "idles for") == NULL) == (bound == STITCH__BOUND_LAUNCH || bound == STITCH__BOUND_HOST));
        stitch_free(text);
    }
}

TEST(bad_arguments)
{
    char *text = (char *)"";
    CHECK_ERR(stitch_report_feedback(NULL, 0, &text, &err), STITCH_E_INVALID, "report");
    CHECK(text == NULL);
}

TEST_MAIN(RUN(compile_errors_with_their_lines), RUN(quotes_hostile_text_cleaned_and_cut), RUN(keeps_the_budget),
          RUN(wrong_outputs), RUN(nothing_written), RUN(findings_of_validation), RUN(a_passed_program_with_figures),
          RUN(nothing_is_won_on_a_degenerate_task), RUN(an_idle_device), RUN(an_idle_device_with_a_profile),
          RUN(bad_arguments))
